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
        "Preset, config.json or folder, 7B, org/name, or -",
        metavar="MODEL",
        positional=True,
    ),
    Option("assume-ignorable", names, "Config fields that you know to change no count", metavar="FIELD,…"),
    flag("strict-config", "Refuse config fields that the class does not read"),
    Option("params", units.positive_count, "Parameters, e.g. 70B", "param", "N"),
    Option("active-params", units.positive_count, "Parameters that serve one token, e.g. 37B", "param", "N"),
    Option("like", units.words, "Model or family whose proportions are kept", metavar="MODEL"),
    Option("seq", units.degree, "Tokens in a sequence", "token", "N", default="4096, or the model's max"),
    Option("target-seq", units.positive_count, "Tokens of the decoder, in an encoder-decoder", "token", "N"),
    Option("document-lengths", lengths, "Documents of a packed sequence: 4096,2048", metavar="N,N,…"),
    Option("mean-document-length", units.positive_count, "Documents of one length in a packed sequence", "token", "N"),
    Option("batch", units.degree, "Sequences", metavar="N", default="1"),
    Option("images", units.positive_count, "Images in each sequence (tiles, where a model cuts images)", metavar="N"),
    Option("image-tokens", units.positive_count, "Tokens that the language model sees of an image", "token", "N"),
    flag("mtp", "Count the multi-token prediction modules too"),
    flag("indexer-loss", "Count the backward pass of sparse attention's indexers, which a loss of their own trains"),
    Option(
        "vocab-multiple",
        units.positive_count,
        "Pad the vocabulary to a multiple of N · tp",
        metavar="N",
    ),
    flag("inference", "Serving: weights and KV cache, no training"),
    Option(
        "cache-dtype", units.words, "Number format of the KV cache, e.g. fp8", metavar="NAME", default="the weights'"
    ),
    Option("implementation", units.words, "Model implementation: hf, nanogpt, megatron", metavar="NAME"),
)

MODEL_OPTIONS = ("assume-ignorable", "strict-config")
"""Options of every command that takes MODEL."""

PADDED = ("vocab-multiple",)
"""Options of the commands that count a padded vocabulary."""
