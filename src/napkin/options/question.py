"""Options about a run: its time, its cost, what fits, what was measured."""

from __future__ import annotations

from napkin import units
from napkin.options.option import Option, choice, flag
from napkin.options.parsers import rows

GROUP = "Question"

OPTIONS = (
    Option("mfu", units.fraction, "Model FLOPs utilization, above 0 and at most 1", metavar="X"),
    Option("goodput", units.fraction, "Share of calendar time spent training", metavar="X"),
    Option(
        "run-kind",
        choice("production", "benchmark", "speedrun"),
        "Kind of run: production, benchmark (MLPerf), speedrun",
        metavar="KIND",
        default="production",
    ),
    Option("within", units.duration, "Deadline, e.g. 30d", "second", "TIME"),
    Option("budget", units.dollars, "Budget in USD", "USD", "USD"),
    Option("flops", units.words, "Convention: 6nd, palm, megatron, torch, …", metavar="NAME", default="6nd"),
    Option("pairs", choice("full", "half", "exact"), "(query, key) pairs counted: full, half, exact", default="full"),
    flag("causal", "Short for --pairs half"),
    Option("confidence", units.words, "Confidence level of the interval, in %", metavar="LEVEL", default="90"),
    Option("bytes-per-param", units.bytes_each, "Bytes of training state per parameter", "byte/param", "X"),
    Option("tokens-per-second", units.positive, "Tokens per second of the whole job", "token/s", "N"),
    Option("tokens-per-second-per-gpu", units.positive, "Tokens per second per GPU", "token/s/GPU", "N"),
    Option("samples-per-second", units.positive, "Sequences per second of the whole job", "1/s", "N"),
    Option("step-time", units.duration, "Time of one optimizer step, e.g. 2.3s", "second", "TIME"),
    Option(
        "tflops",
        units.positive,
        "TFLOP/s per GPU, as the trainer logs it",
        metavar="X",
    ),
    Option("log", units.words, "Training log: a pasted line, or a file", metavar="LINE|FILE"),
    Option(
        "log-file",
        units.words,
        "Training log that is being written; - is standard input",
        metavar="LOG",
        positional=True,
    ),
    flag("once", "Read the log once; do not wait for more"),
    Option("claimed-mfu", units.ratio, "A reported MFU to explain", metavar="X"),
    Option("time", units.duration, "Measured time", "second", "TIME"),
    flag("must-fit", "Exit 1 if it does not fit, 4 if too close to call"),
    Option(
        "max",
        choice("micro-batch", "seq", "layers", "params", "tokens"),
        "Maximize: micro-batch, seq, layers, params, tokens",
        metavar="WHAT",
    ),
    Option("min", choice("gpus", "time", "cost"), "Minimize: gpus, time, cost", metavar="WHAT"),
    flag("tensors", "List every tensor that autograd saves"),
    Option("snapshot", units.words, "PyTorch memory snapshot, or used=61GiB, to compare with", metavar="FILE"),
    Option("snapshot-device", units.count, "Device in the snapshot, if it has several", metavar="N"),
    Option(
        "objective", choice("time", "cost", "gpus"), "Optimize for time, cost or gpus", metavar="WHAT", default="time"
    ),
    Option("rows", rows, "Number of layouts to list", metavar="N"),
    flag("pareto", "Only the Pareto front of time and memory"),
    Option("compute", units.positive, "Training budget, e.g. 3.8e25", "FLOP", "FLOP"),
    Option("law", units.words, "Scaling law, e.g. besiroglu2024, llama3-2024", metavar="NAME"),
    Option("served-tokens", units.positive, "Tokens served over the model's lifetime", "token", "N"),
    Option("unique-tokens", units.positive, "Unique tokens available; further tokens repeat them", "token", "N"),
    Option("experts", units.positive_count, "Experts per active expert (MoE scaling laws)", metavar="N"),
    Option("granularity", units.positive_count, "Parts each expert is split into (MoE scaling laws)", metavar="N"),
    Option("phases", units.words, "Phases of a run, as a list in a run file", metavar="LIST"),
    Option("bits", units.positive_count, "Training precision in bits (precision scaling laws)", metavar="N"),
)

OF_FAILURES = ("gpu-mtbf", "restart-time", "spares", "write-bandwidth", "checkpoint-interval")
"""Options for the calendar time that a run loses to failures."""

MEASURED_TOKENS = ("tokens-per-second", "tokens-per-second-per-gpu", "log")
"""Options that state how many tokens a second a run was measured to train on."""
MEASURED_RATES = (
    "tokens-per-second",
    "tokens-per-second-per-gpu",
    "samples-per-second",
    "step-time",
    "tflops",
    "log",
)
"""Options that state a measured rate of training."""
