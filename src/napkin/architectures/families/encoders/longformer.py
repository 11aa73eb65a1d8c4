"""Longformer (arXiv:2004.05150): attention over a window to both sides.

Tokens that attend to all, and to which all attend, have projections of their own; they are the task's, and none is
counted on.
"""

from __future__ import annotations

from collections.abc import Sequence

from napkin.architectures.families.encoders.bert import BERT
from napkin.architectures.masked import ENCODER, bert_modules
from napkin.architectures.record import REQUIRED, like
from napkin.inputs.load import printable
from napkin.inputs.model import LARGEST_DIMENSION, Config
from napkin.operations.implementations import EAGER, ROTARY
from napkin.record import replace


def attention_windows(config: Config, layers: int) -> Sequence[int]:
    """Read the window of each layer: one for all, or a list; even. A sequence is padded to whole ones."""
    given = config.raw("attention_window")
    listed = given if isinstance(given, list) else [config.integer("attention_window")] * layers
    if len(listed) != layers:
        raise config.wrong("attention_window", f"has {len(listed)} entries for {layers} layers")
    for one in listed:
        if isinstance(one, bool) or not isinstance(one, int) or not 0 < one <= LARGEST_DIMENSION or one % 2:
            raise config.wrong("attention_window", f"{printable(repr(one), 60)} is not an even number of tokens")
    config.must_be("onnx_export", False)
    config.must_be("attention_mode", "longformer")
    config.ignore("ignore_attention_mask")
    config.notes.append("no token is taken to attend to all: which do is the task's")
    return listed


LONGFORMER = like(
    BERT,
    "longformer",
    next_sentence=False,
    head="gelu",
    windows=attention_windows,
    config_class="LongformerConfig",
    defaults={"attention_window": 512, "onnx_export": False, "position_embedding_type": REQUIRED},
    implementation=replace(ENCODER, positions="each", segments="each", kernels=(EAGER,), buffers=(ROTARY,)),
    modules=bert_modules("longformer", head_dense="lm_head.dense", lm_head="lm_head.decoder"),
)  # fmt: skip

ARCHITECTURES = (LONGFORMER,)
