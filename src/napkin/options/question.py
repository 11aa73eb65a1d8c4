"""Options that say what is asked about a run: its time, its cost, what fits, what was measured."""

from __future__ import annotations

from napkin import units
from napkin.options.option import Option, choice, flag
from napkin.options.parsers import MOST_ROWS, rows

GROUP = "Question"

OPTIONS = (
    Option("mfu", units.fraction, "Model FLOPs utilization, above 0 and at most 1", metavar="X"),
    Option(
        "goodput",
        units.fraction,
        "Share of the calendar time that is training; checkpoints, interruptions and evaluation take the rest",
        metavar="X",
    ),
    Option("within", units.duration, "Deadline, e.g. 30d", "second", "TIME"),
    Option("budget", units.positive, "Budget in USD", "USD", "USD"),
    Option("flops", units.words, "FLOP convention: 6nd, palm, megatron, nanogpt, torch, causal", metavar="NAME"),
    Option("pairs", choice("full", "half", "exact"), "(query, key) pairs counted: full, half, exact"),
    flag("causal", "Short for --pairs half"),
    Option(
        "confidence",
        units.words,
        "Confidence level of the interval, e.g. 80 or 90%",
        metavar="LEVEL",
    ),
    Option("bytes-per-param", units.positive, "Bytes of training state per parameter", "byte/param", "X"),
    Option("tokens-per-second", units.positive, "Tokens per second of the whole job", "token/s", "N"),
    Option("tokens-per-second-per-gpu", units.positive, "Tokens per second of one GPU", "token/s/GPU", "N"),
    Option("samples-per-second", units.positive, "Sequences per second of the whole job", "1/s", "N"),
    Option(
        "step-time", units.duration, "Seconds of one optimizer step, e.g. 2.3s; needs --global-batch", "second", "TIME"
    ),
    Option(
        "tflops",
        units.positive,
        "TFLOP/s of one GPU as the trainer logs it (--flops names its convention)",
        metavar="X",
    ),
    Option("log", units.words, "A training log: one line of it, pasted, or the file", metavar="LINE|FILE"),
    Option("claimed-mfu", units.fraction, "An MFU that someone reports: which convention explains it?", metavar="X"),
    Option("time", units.duration, "Measured time", "second", "TIME"),
    flag("must-fit", "Exit 1 where it does not fit, 4 where it is too close to call"),
    Option(
        "max",
        choice("micro-batch", "seq", "layers", "params"),
        "Solve for the largest that fits: micro-batch, seq, layers or params",
        metavar="WHAT",
    ),
    flag("tensors", "List every tensor that autograd keeps"),
    Option("snapshot", units.words, "A torch memory snapshot: measured next to predicted", metavar="FILE"),
    Option("snapshot-device", units.count, "Which device of the snapshot, where it has several", metavar="N"),
    Option("objective", choice("time", "cost", "gpus"), "Fastest, cheapest, or fewest GPUs", metavar="WHAT"),
    Option("rows", rows, f"Layouts to list, at most {MOST_ROWS:,}", metavar="N"),
    flag("pareto", "List the layouts that no other beats in both time and memory"),
)

MEASURED_RATES = (
    "tokens-per-second",
    "tokens-per-second-per-gpu",
    "samples-per-second",
    "step-time",
    "tflops",
    "log",
)
"""Options that state a measured rate of training."""
