"""Options about a run (its time, its cost, what fits, what was measured), about the data that it is trained on, and of
the questions without a model: tensors, formats, layers, optimizers, checkpoints, corpora."""

from __future__ import annotations

from napkin import units
from napkin.options.option import Option, choice, flag
from napkin.options.parsers import integers, rows

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


QUANTITIES = (
    Option("size", units.words, "Shape, e.g. 4x8 or MxKxN", metavar="SHAPE", positional=True),
    Option("widths", units.shape, "Widths of linear layers, input first, e.g. 4,4,1", metavar="D,D,…"),
    Option("width", units.positive_count, "Width of every linear layer", metavar="D"),
    Option("depth", units.positive_count, "Number of linear layers", metavar="L"),
    Option(
        "out-dtype",
        units.words,
        "Number format of a matmul's result",
        metavar="NAME",
        default="the inputs'",
    ),
    Option("count", units.positive_count, "Number of such tensors", metavar="N"),
    Option("slice", units.words, "Basic indexing, e.g. 0:2,:,1", metavar="SLICE"),
    Option("permute", integers, "Reorder the dimensions, e.g. 2,0,1", metavar="DIMS"),
    flag("transpose", "Swap the last two dimensions"),
    flag("contiguous", "Copy to row-major order unless already contiguous"),
    Option("view", units.shape, "View the same storage in another shape", metavar="SHAPE"),
    Option("index", integers, "Offset of the element at this index, e.g. 1,2", metavar="I,J"),
    Option("value", units.words, "A number to store, or a format's name", metavar="VALUE", positional=True),
    Option("optimizer-name", units.words, "An optimizer, e.g. adamw or adamw-fused", metavar="NAME", positional=True),
    Option("shape", units.shape, "Shape of the parameter tensor, e.g. 96x64", metavar="SHAPE"),
    Option("param-dtype", units.words, "Number format of the parameter", metavar="NAME"),
    Option("fan-in", units.positive_count, "Input features of a layer", metavar="D"),
    Option("std", units.positive, "Standard deviation of the weights", metavar="X"),
    Option("cut", units.positive, "Truncation of the normal, in standard deviations", metavar="C"),
    Option("write-bandwidth", units.bandwidth, "Checkpoint write rate of the whole job, e.g. 10GB/s", "byte/s", "RATE"),
    Option("mtbf", units.duration, "Mean time between failures of the job, e.g. 24h", "second", "TIME"),
    Option("gpu-mtbf", units.duration, "Mean time between failures of one GPU; needs --gpus", "second", "TIME"),
    Option("restart-time", units.duration, "From a failure to the next step, e.g. 10min", "second", "TIME"),
    Option("spares", units.count, "Spare GPUs on standby, included in the cost", "GPU", "N"),
    Option("vocab", units.positive_count, "Vocabulary size, e.g. 128256", metavar="N"),
)

LINEAR_OPTIONS = ("widths", "width", "depth")
"""Options of a stack of linear layers."""


DATA = (
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
