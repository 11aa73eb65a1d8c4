"""Options that say which model is asked about, and how long its sequences are."""

from __future__ import annotations

from napkin import units
from napkin.options.option import Option, flag
from napkin.options.parsers import lengths, names

GROUP = "Model"

OPTIONS = (
    Option(
        "model",
        units.words,
        "A preset, a config.json, a folder with one, a napkin YAML, or -",
        metavar="MODEL",
        positional=True,
    ),
    Option(
        "assume-ignorable", names, "Config fields to ignore: fields that you know to change no count", metavar="FIELD,…"
    ),
    flag("strict-config", "Refuse config fields that the model's class does not read"),
    Option("params", units.positive_count, "Parameters, e.g. 70B", "param", "N"),
    Option("active-params", units.positive_count, "Parameters that serve one token, e.g. 37B", "param", "N"),
    Option("like", units.words, "A model or family whose proportions the largest shape keeps", metavar="MODEL"),
    Option("seq", units.degree, "Tokens in a sequence", "token", "N"),
    Option("target-seq", units.positive_count, "Tokens of the decoder's sequence, in an encoder-decoder", "token", "N"),
    Option("document-lengths", lengths, "Documents packed into a sequence: 4096,2048 or 4x1024", metavar="N,N,…"),
    Option(
        "mean-document-length", units.positive_count, "Documents of one length packed into a sequence", "token", "N"
    ),
    Option("batch", units.degree, "Sequences", metavar="N"),
    flag("mtp", "Count the multi-token prediction modules too"),
    Option(
        "vocab-multiple",
        units.positive_count,
        "Pad the vocabulary to a multiple of N · tp (Megatron, nanotron: 128)",
        metavar="N",
    ),
    flag("inference", "Weights only, as for inference"),
    Option("cache-dtype", units.words, "Number format of the KV cache, e.g. fp8", metavar="NAME"),
    Option("implementation", units.words, "Model implementation: hf, nanogpt, megatron", metavar="NAME"),
)

MODEL_OPTIONS = ("assume-ignorable", "strict-config")
"""Options of every command that takes MODEL."""

PADDED = ("vocab-multiple",)
"""Options of the commands that count a padded vocabulary."""
