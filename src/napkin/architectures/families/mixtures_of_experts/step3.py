"""Step-3 (arXiv:2507.19427): multi-matrix factorized attention and a mixture of experts.

Fields and structure are those of its published code (stepfun-ai/step3, configuration_step3.py and modeling_step3.py):
queries come through a bottleneck with a norm, and all of them share one key and value head.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from napkin.architectures.attention import Attention
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import constant
from napkin.architectures.dimensions import dimensions
from napkin.architectures.mixture import Mixture, as_wide_as
from napkin.architectures.record import Architecture, Wrapper
from napkin.inputs.model import Config


def _factorized(config: Config, usual: Attention) -> Attention:
    """Give queries their bottleneck: as wide as a head unless share_q_dim says otherwise."""
    return usual.projected(narrow=config.optional_integer("share_q_dim") or usual.heads.head_dim)


def _listed(config: Config, layers: int) -> Callable[[int], bool]:
    """Read which layers have experts: a text of their numbers, else all but the first."""
    text = config.optional_text("moe_layers_enum")
    if text is None:
        return lambda i: i > 0
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() for word in words):
        raise config.wrong("moe_layers_enum", "is not a text of layer numbers with commas between them")
    sparse = frozenset(map(int, words))
    return lambda i: i in sparse


STEP3 = Architecture(
    "step3_text",
    Decoder(
        sizes=partial(dimensions, kv_heads=1),
        attention=_factorized,
        function=constant("silu"),
        experts=Mixture(
            "moe_num_experts",
            "moe_top_k",
            where=_listed,
            shared=as_wide_as("share_expert_dim"),
            normalize="norm_expert_weight",
        ),
        only=(("num_attention_groups", (1,)),),
    ),
    aliases={"max_position_embedding": "max_position_embeddings", "max_seq_len": "max_position_embeddings"},
    wrappers=(Wrapper("step3_vl", ignored=("understand_projector_stride", "image_token_len", "patch_token_len")),),
    defaults={"head_dim": 256, "norm_expert_weight": False, "share_q_dim": None, "tie_word_embeddings": False},
    modules={
        "q_narrow": "self_attn.q_proj", "q": "self_attn.wq", "q_narrow_norm": "self_attn.inter_norm",
        "router": "moe.gate", "shared/gate": "share_expert.gate_proj", "shared/up": "share_expert.up_proj",
        "shared/down": "share_expert.down_proj",
    },
)  # fmt: skip

ARCHITECTURES = (STEP3,)
