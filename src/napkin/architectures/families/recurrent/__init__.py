"""State-space, delta-rule, linear-attention and convolution layers, by themselves or next to attention."""
