"""ERNIE 4.5."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from napkin.architectures.blocks import moe
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import Headed, RotaryPositions
from napkin.architectures.layer_plans import by_type
from napkin.architectures.mixture import Mixture, counted
from napkin.architectures.record import REQUIRED, Architecture, Wrapper, like
from napkin.autograd.tensors import Tensor
from napkin.elementwise import Number
from napkin.inputs.model import Config
from napkin.operations.expert_kernels import divided_by, sum_of_scores
from napkin.operations.images import ImageExperts
from napkin.operations.implementations import FP32_ROTARY, HF, NEVER, Running
from napkin.operations.model import Layer, Model
from napkin.record import replace


def _between(config: Config, layers: int) -> Callable[[int], bool]:
    """Experts in each n-th layer from a first to a last one."""
    start, step = config.integer("moe_layer_start_index", least=0), config.integer("moe_layer_interval")
    end = config.integer("moe_layer_end_index", least=-1)
    last = layers - 1 if end == -1 else end
    return lambda i: start <= i <= last and (i + 1) % step == 0


def _clamped_shares(run: Running, weights: Tensor, rows: Number) -> Tensor:
    """Return the chosen scores divided by their sum, which is clamped from below."""
    total = sum_of_scores(run, weights, rows)
    least = run.tape.new(rows, total.dtype, "clamped total")
    return divided_by(run, weights, run.tape.record("clamp", (total,), least, (total,)))


ERNIE4_5 = Architecture(
    "ernie4_5",
    Decoder(
        bias="use_bias",
        out_bias="use_bias",
        mlp_bias="use_bias",
        rotary=RotaryPositions("interleaved", upcast=True),
    ),
    config_class="Ernie4_5Config",
    implementation=replace(FP32_ROTARY, rotary="layer", drops=NEVER),
    defaults={
        "head_dim": 128, "hidden_act": "silu", "intermediate_size": 3072, "max_position_embeddings": 131072,
        "num_attention_heads": 16, "num_key_value_heads": 2, "tie_word_embeddings": True, "use_bias": False,
        "vocab_size": 103424,
    },
)  # fmt: skip
PADDLEOCR_VL = like(
    ERNIE4_5,
    "paddleocr_vl_text",
    rotary=RotaryPositions(),
    config_class="PaddleOCRTextConfig",
    implementation=replace(HF, positions="each"),
    wrappers=(Wrapper("paddleocr_vl", flat=True),),
)
ERNIE4_5_MOE = like(
    ERNIE4_5,
    "ernie4_5_moe",
    head=Headed(bias="use_bias"),
    experts=Mixture(
        "moe_num_experts",
        "moe_k",
        where=_between,
        shared=counted("moe_num_shared_experts"),
        normalize=True,
        upcast=True,
        balanced="parameter",
        balances=True,
        block=partial(moe, shared_first=True),
    ),
    ignored=("moe_capacity", "moe_gate", "moe_use_aux_free"),
    config_class="Ernie4_5_MoeConfig",
    aliases={"num_experts": "moe_num_experts", "num_experts_per_tok": "moe_k"},
    implementation=replace(
        FP32_ROTARY,
        rotary="layer",
        router="tokens",
        shares=_clamped_shares,
        fp32_router=True,
        router_apart=True,
        fp32_logits=True,
        fp32_weights=("mlp.gate/weight", "mlp.gate/balance"),
        drops=NEVER,
    ),
    defaults={
        "head_dim": REQUIRED, "intermediate_size": 12288, "moe_intermediate_size": 1536, "moe_k": 6,
        "moe_layer_end_index": -1, "moe_layer_interval": 1, "moe_layer_start_index": 1, "moe_num_experts": 64,
        "moe_num_shared_experts": 2, "num_attention_heads": 20, "num_key_value_heads": 4,
    },
)  # fmt: skip


def ernie_vl(config: Config) -> Model:
    """Return ERNIE 4.5 VL: each mixture has experts of text and narrower ones of images, with a router of their own."""
    widths = config.items("moe_intermediate_size") or []
    if len(widths) != 2 or not all(isinstance(one, int) and 0 < one < 10**9 for one in widths):
        raise config.wrong("moe_intermediate_size", "is not two widths: of the experts of text, and of images")
    config.restate("moe_intermediate_size", widths[0])
    model = _VL(config)
    count, chosen = config.integer("moe_num_experts"), config.integer("moe_k")
    unused = ImageExperts("image_experts", (), model.hidden, widths[1], count, chosen)

    def seeing(layer: Layer) -> Layer:
        sparse = any(op.expert_part() for op in layer.operations)
        return replace(layer, operations=(unused, *layer.operations)) if sparse else layer

    return replace(model, stacks=tuple(stack.mapped(seeing) for stack in model.stacks))


_MOE = ERNIE4_5_MOE.build
assert isinstance(_MOE, Decoder)
_VL: Decoder = replace(
    _MOE, head=Headed(), experts=replace(_MOE.experts, where=by_type), rotary=RotaryPositions("interleaved")
)
ERNIE4_5_VL_MOE = Architecture(
    "ernie4_5_vl_moe_text",
    ernie_vl,
    config_class="Ernie4_5_VLMoeTextConfig",
    aliases=ERNIE4_5_MOE.aliases,
    implementation=replace(ERNIE4_5_MOE.implementation, rotary="table", rotary_fp32=False),
    wrappers=(Wrapper("ernie4_5_vl_moe"),),
    modules={"router": "mlp.text_moe.gate", "experts": "mlp.text_moe.experts"},
    defaults={
        "hidden_act": "silu", "intermediate_size": 12288, "max_position_embeddings": 131072,
        "mlp_layer_types": None, "moe_intermediate_size": [1536, 512], "moe_k": 6, "moe_num_experts": 64,
        "moe_num_shared_experts": 2, "num_attention_heads": 20, "num_key_value_heads": 4,
        "tie_word_embeddings": True, "use_bias": False, "vocab_size": 103424,
    },
)  # fmt: skip

ARCHITECTURES = (PADDLEOCR_VL, ERNIE4_5, ERNIE4_5_MOE, ERNIE4_5_VL_MOE)
