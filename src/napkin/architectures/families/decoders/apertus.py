"""Apertus: an activation that learns, and in its successor a head of fewer rows than the embedding."""

from __future__ import annotations

from functools import partial

from napkin.architectures.blocks import RMS
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import NormedHeads, constant
from napkin.architectures.dimensions import Dimensions, dimensions
from napkin.architectures.record import Architecture, Wrapper, like
from napkin.inputs.model import Config
from napkin.operations.implementations import HF, ROTARY
from napkin.record import replace


def _fewer_outputs(config: Config) -> Dimensions:
    """Read the dimensions of a decoder whose head may have been cut to the first rows of the vocabulary."""
    sizes = dimensions(config)
    rows = config.optional_integer("output_vocab_size") or sizes.vocabulary
    if rows > sizes.vocabulary:
        raise config.wrong("output_vocab_size", f"is more than the vocabulary of {sizes.vocabulary}")
    if sizes.tied and rows < sizes.vocabulary:
        raise config.refuse("output_vocab_size", "the class does not run a tied head of fewer rows")
    return replace(sizes, vocabulary=rows, more_rows=sizes.vocabulary - rows)


# xielu learns α of the positive and of the negative side
APERTUS = Architecture(
    "apertus",
    Decoder(
        bias="attention_bias",
        out_bias="attention_bias",
        gated=False,
        qk_norm=NormedHeads(RMS),
        function=constant("xielu"),
        feed_forward=lambda config, usual: partial(usual, learned=2),
        only=(("hidden_act", ("xielu",)),),
    ),
    config_class="ApertusConfig",
    implementation=replace(HF, buffers=(ROTARY, ("scalars", ""))),
    defaults={
        "attention_bias": False, "hidden_act": "xielu", "intermediate_size": 14336,
        "max_position_embeddings": 65536, "num_attention_heads": 32, "num_key_value_heads": None,
        "tie_word_embeddings": False, "vocab_size": 131072,
    },
)  # fmt: skip
APERTUS1P5 = like(
    APERTUS,
    "apertus1p5_text",
    sizes=_fewer_outputs,
    config_class="Apertus1p5TextConfig",
    wrappers=(Wrapper("apertus1p5"),),
    defaults={"output_vocab_size": None, "vocab_size": 266752},
)

ARCHITECTURES = (APERTUS, APERTUS1P5)
