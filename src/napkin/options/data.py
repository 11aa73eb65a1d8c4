"""Options that say how much is trained on: steps, or samples, their lengths, and how they fill sequences."""

from __future__ import annotations

from napkin import units
from napkin.options.option import Option, choice, flag

GROUP = "Data"

OPTIONS = (
    Option("steps", units.positive_count, "Optimizer steps, of a run or to measure", "step", "N"),
    Option("samples", units.positive_count, "Samples of the data set, e.g. 52k", "sample", "N"),
    Option("sample-tokens", units.positive, "Mean tokens of a sample", "token", "N"),
    Option("epochs", units.ratio, "Passes over the samples", metavar="X", default="1"),
    flag("packing", "Samples fill sequences (default), or --no-packing: are padded"),
    Option("lengths", units.words, "Lengths of the samples: what data lengths --json wrote", metavar="FILE"),
    Option("about", choice("lengths"), "lengths: tokens of the samples of FILE", metavar="WHAT", positional=True),
    Option("samples-file", units.words, "JSON lines, one sample each", metavar="FILE", positional=True),
    Option("tokens-field", units.words, "Field that holds a sample's token ids, or how many", metavar="NAME"),
)

SAMPLES = ("samples", "sample-tokens", "epochs", "packing", "lengths")
AMOUNT = ("steps", *SAMPLES)
"""Options that say how much is trained on, next to --tokens."""
