"""Options of `lint`: the file, the rules that are applied, and the figures from which a run's operation is priced."""

from __future__ import annotations

from napkin import units
from napkin.options.option import Option, flag

GROUP = "Lint"

OPTIONS = (
    Option(
        "configs",
        units.words,
        "Configurations of runs, or a MODEL with options",
        metavar="FILE|MODEL",
        positional=True,
        many=True,
    ),
    Option("select", units.words, "Only these rules, by number or prefix: N1,N203", metavar="RULES"),
    Option("ignore", units.words, "Rules to skip", metavar="RULES"),
    flag("rules", "List the rules"),
    Option("warmup-steps", units.positive_count, "Learning-rate warmup steps", "step", "N"),
    Option("save-steps", units.positive_count, "Steps between checkpoints", "step", "N"),
    Option("checkpoint-interval", units.duration, "Time between checkpoints, e.g. 1h", "second", "TIME"),
)

LINT = ("select", "ignore", "rules")
OPERATION = ("checkpoint-interval", "write-bandwidth", "mtbf", "gpu-mtbf")
"""Figures for the cost of checkpoints and failures."""
