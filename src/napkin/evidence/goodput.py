"""The share of the calendar time that whole runs train at a good step's rate, as published."""

from __future__ import annotations

from napkin.term import SEEN, leaf
from napkin.timing.goodput import Goodput

PUBLISHED = Goodput(
    leaf("goodput", 0.88, "1", SEEN, "whole-run over good-step utilization of seven published runs, 0.66 to 1.0"), 0.13
)
"""Whole-run utilization over that of a good step, and its spread: seven published runs for which both are known lie
between 0.66 and 1.0 (BLOOM 0.88, Llama 3.1 405B 0.86, GLM-130B 0.77, PaLM 0.66 with its ramps)."""
NOTE = (
    "time is calendar time: time/uninterrupted over a goodput of {:.3g} (checkpoints, interruptions, evaluation and "
    "slow steps take the rest; 0.66 to 1.0 in published runs); --goodput takes your own"
)
"""What an answer says where it takes the published share."""
