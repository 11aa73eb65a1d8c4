"""Options for the model and the length of its sequences."""

from __future__ import annotations

from napkin import units
from napkin.options.option import Option, flag
from napkin.options.parsers import lengths, names

OPTIONS = (
    Option(
        "model",
        units.words,
        "Preset, config.json or folder, 7B, org/name, or -",
        metavar="MODEL",
        positional=True,
    ),
    Option("assume-ignorable", names, "Config fields to ignore: they change no count", metavar="FIELD,…"),
    flag("strict-config", "Refuse config fields that the model class does not read"),
    Option("params", units.positive_count, "Number of parameters, e.g. 70B", "param", "N"),
    Option("active-params", units.positive_count, "Parameters active per token, e.g. 37B", "param", "N"),
    Option("like", units.words, "Model or family to take the proportions from", metavar="MODEL"),
    Option("seq", units.degree, "Sequence length", "token", "N", default="4096, or the model's max"),
    Option("target-seq", units.positive_count, "Decoder sequence length of an encoder-decoder", "token", "N"),
    Option("document-lengths", lengths, "Document lengths in a packed sequence: 4096,2048", metavar="N,N,…"),
    Option(
        "mean-document-length",
        units.positive_count,
        "Length of the documents in a packed sequence, all equal",
        "token",
        "N",
    ),
    Option("batch", units.degree, "Number of sequences", metavar="N", default="1"),
    Option("images", units.positive_count, "Images per sequence (tiles, if the model splits images)", metavar="N"),
    Option("image-tokens", units.positive_count, "Tokens per image in the language model", "token", "N"),
    flag("mtp", "Count the multi-token prediction modules too, or train them"),
    flag("indexer-loss", "Count the backward pass of sparse attention's indexers (trained by a separate loss)"),
    Option(
        "vocab-multiple",
        units.positive_count,
        "Pad the vocabulary to a multiple of N · tp",
        metavar="N",
    ),
    flag("inference", "Inference: weights and KV cache, no training"),
    Option(
        "cache-dtype", units.words, "Number format of the KV cache, e.g. fp8", metavar="NAME", default="the weights'"
    ),
    Option("implementation", units.words, "Model implementation: hf, nanogpt, megatron", metavar="NAME"),
)

MODEL_OPTIONS = ("assume-ignorable", "strict-config")
"""Options of every command that takes MODEL."""

PADDED = ("vocab-multiple",)
"""Options of the commands that count a padded vocabulary."""

PREDICTING = ("mtp",)
"""Options of the commands that count or train a model."""
