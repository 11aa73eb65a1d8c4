"""Scaling laws: how published fits split a training budget between parameters and tokens, and the cost of
deviations."""
