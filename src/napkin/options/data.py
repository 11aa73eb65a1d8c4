"""Options that say how much is trained on: steps, or samples, their lengths, and how they fill sequences."""

from __future__ import annotations

from napkin import units
from napkin.options.option import Option, choice, flag

GROUP = "Data"

OPTIONS = (
    Option("steps", units.positive_count, "Optimizer steps, of a run or to measure", "step", "N"),
    Option("samples", units.positive_count, "Samples in the data set, e.g. 52k", "sample", "N"),
    Option("sample-tokens", units.positive, "Mean sample length", "token", "N"),
    Option("epochs", units.ratio, "Passes over the samples", metavar="X", default="1"),
    flag("packing", "Pack samples into sequences (default); --no-packing pads"),
    Option("lengths", units.words, "Sample lengths, as written by data lengths --json", metavar="FILE"),
    Option("about", choice("lengths"), "lengths: sample lengths of FILE, in tokens", metavar="WHAT", positional=True),
    Option("samples-file", units.words, "JSON Lines file, one sample per line", metavar="FILE", positional=True),
    Option("tokens-field", units.words, "Field with a sample's token ids, or their number", metavar="NAME"),
)

SAMPLES = ("samples", "sample-tokens", "epochs", "packing", "lengths")
AMOUNT = ("steps", *SAMPLES)
"""Options that say how much is trained on, next to --tokens."""
