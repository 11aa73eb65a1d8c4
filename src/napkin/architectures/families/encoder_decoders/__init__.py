"""Encoder-decoders, and decoders that attend to an encoder's output."""
