"""Decoders of attention whose families consist of mixtures of experts."""
