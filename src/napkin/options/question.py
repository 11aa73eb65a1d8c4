"""Options that say what is asked about a run: its time, its cost, what fits, what was measured."""

from __future__ import annotations

from napkin import units
from napkin.options.option import Option, choice, flag
from napkin.options.parsers import rows

GROUP = "Question"

OPTIONS = (
    Option("mfu", units.fraction, "Model FLOPs utilization, above 0 and at most 1", metavar="X"),
    Option("goodput", units.fraction, "Training's share of the calendar time", metavar="X"),
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
    Option("tokens-per-second-per-gpu", units.positive, "Tokens per second of one GPU", "token/s/GPU", "N"),
    Option("samples-per-second", units.positive, "Sequences per second of the whole job", "1/s", "N"),
    Option("step-time", units.duration, "Time of one optimizer step, e.g. 2.3s", "second", "TIME"),
    Option(
        "tflops",
        units.positive,
        "TFLOP/s of one GPU, as the trainer logs it",
        metavar="X",
    ),
    Option("log", units.words, "A training log: one line, pasted, or the file", metavar="LINE|FILE"),
    Option(
        "log-file",
        units.words,
        "A training log that is being written; - is standard input",
        metavar="LOG",
        positional=True,
    ),
    flag("once", "Answer from what the log has now, and do not wait for more"),
    Option("claimed-mfu", units.ratio, "An MFU that someone reports, to be explained", metavar="X"),
    Option("time", units.duration, "Measured time", "second", "TIME"),
    flag("must-fit", "Exit 1 where it does not fit, 4 if too close"),
    Option(
        "max",
        choice("micro-batch", "seq", "layers", "params", "tokens"),
        "Largest micro-batch, seq, layers, params, tokens",
        metavar="WHAT",
    ),
    Option("min", choice("gpus", "time", "cost"), "Fewest gpus, least time or cost", metavar="WHAT"),
    flag("tensors", "List every tensor that autograd keeps"),
    Option("snapshot", units.words, "A torch memory snapshot, next to the prediction", metavar="FILE"),
    Option("snapshot-device", units.count, "Which device of the snapshot, where it has several", metavar="N"),
    Option(
        "objective", choice("time", "cost", "gpus"), "Fastest, cheapest, or fewest GPUs", metavar="WHAT", default="time"
    ),
    Option("rows", rows, "Layouts to list", metavar="N"),
    flag("pareto", "Layouts that no other beats in time and memory"),
    Option("compute", units.positive, "Training budget, e.g. 3.8e25", "FLOP", "FLOP"),
    Option("law", units.words, "Scaling law, e.g. besiroglu2024, llama3-2024", metavar="NAME"),
    Option("served-tokens", units.positive, "Tokens the model will serve in its life", "token", "N"),
    Option("unique-tokens", units.positive, "Different tokens there are; more repeat", "token", "N"),
    Option("experts", units.positive_count, "Experts for each active one, of a law for mixtures", metavar="N"),
    Option("granularity", units.positive_count, "Parts that each expert is split into", metavar="N"),
    Option("phases", units.words, "Parts of a run; a list in a run file", metavar="LIST"),
    Option("bits", units.positive_count, "Bits trained in, of a law of precision", metavar="N"),
)

OF_FAILURES = ("gpu-mtbf", "restart-time", "spares", "write-bandwidth", "checkpoint-interval")
"""Options of what failures take of a run's calendar time."""

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
