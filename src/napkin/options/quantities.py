"""Options of the questions without a model: tensors, formats, layers, optimizers, checkpoints, corpora."""

from __future__ import annotations

from napkin import units
from napkin.options.option import Option, flag
from napkin.options.parsers import integers

GROUP = "Quantities"

OPTIONS = (
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
