"""Longformer (arXiv:2004.05150): attention over a window to both sides.

Tokens that attend to all, and to which all attend, have projections of their own; they are the task's, and none is
counted on.
"""

from __future__ import annotations

from napkin.architectures.families.encoders.bert import BERT, NETWORK
from napkin.architectures.masked import ENCODER, bert_modules
from napkin.architectures.record import REQUIRED, like
from napkin.architectures.sparse_attention import attention_windows
from napkin.operations.implementations import EAGER, ROTARY
from napkin.record import replace

LONGFORMER = like(
    BERT,
    "longformer",
    build=replace(NETWORK, next_sentence=False, head="gelu", windows=attention_windows),
    config_class="LongformerConfig",
    defaults={"attention_window": 512, "onnx_export": False, "position_embedding_type": REQUIRED},
    implementation=replace(
        ENCODER, positions="each", segments="each", kernels=(EAGER,), buffers=(ROTARY,), registers_first=()
    ),
    modules={
        **bert_modules("longformer", head_dense="lm_head.dense", lm_head="lm_head.decoder"),
        "global_q": "attention.self.query_global", "global_k": "attention.self.key_global",
        "global_v": "attention.self.value_global",
    },
)  # fmt: skip

ARCHITECTURES = (LONGFORMER,)
