"""Options of `napkin bench`."""

from __future__ import annotations

from napkin import units
from napkin.options.option import Option, flag

GROUP = "Benchmark"
MEASURED = ("matmul", "memory", "host", "train", "step", "collectives", "compare")

OPTIONS = (
    Option(
        "what",
        units.words,
        "matmul, memory, host, train, step, collectives, or compare A B",
        metavar="WHAT",
        positional=True,
        many=True,
        default="all",
    ),
    Option("device", units.words, "cuda, cuda:0, mps or cpu", metavar="NAME", default="a CUDA device"),
    flag("quick", "Under 45 seconds: bf16 and tf32, one eager step"),
    flag("full", "Every format, more sizes: up to 8 minutes"),
    Option("only", units.words, "Groups: matmul,memory,host,train,collectives", metavar="LIST"),
    flag("resume", "Keep what the profile already has, measure the rest"),
    Option("time-limit", units.duration, "Skip what would exceed this time, e.g. 180s", "second", "TIME"),
    Option("data", units.words, "Operands: normal, or zeros (faster than real data)", metavar="NAME"),
    Option("layers", units.positive_count, "Number of layers", metavar="N"),
)
