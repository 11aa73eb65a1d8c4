"""Decoders of attention and feed-forward layers; some families have mixtures of experts among them."""
