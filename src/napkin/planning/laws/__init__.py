"""Scaling laws: how published fits divide a training budget between parameters and tokens, and what deviating costs."""
