"""Muse Spark's language model: Muse Glimmer's, with experts of a narrower stream and learned residual gates.

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/muse_spark/).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Gate, Scaling
from napkin.architectures.blocks import RMS_BARE, RMS_OFFSET, Block, NormStyle, Operations, Routing
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import Embedded, Headed, NormedHeads, activation_in, always
from napkin.architectures.layer_plans import Seen, Windows, all_sparse, by_base, laid_out, listed_or
from napkin.architectures.mixture import Mixture
from napkin.architectures.reading import FULL, WINDOWED, never_tied
from napkin.architectures.record import Architecture, Wrapper
from napkin.inputs.model import Config
from napkin.operations.base import Operation
from napkin.operations.expert_kernels import new_shares
from napkin.operations.experts import Experts
from napkin.operations.implementations import HF
from napkin.operations.linear import Matmul
from napkin.operations.model import Model
from napkin.operations.norms import ScaledNorm
from napkin.operations.pointwise import ResidualGate
from napkin.operations.router import Router
from napkin.record import replace

PERIOD = 4
"""Of layers, counted from the last, each such has full attention without positions if the file does not say."""
BARE = replace(RMS_BARE, power=True)
WEIGHTED = NormStyle(arithmetic="fp32", power=True)


def _gated(source: str, attended: str, width: int, heads: int, size: int, prefix: str = "") -> Operations:
    """Return the norm of each head's result, multiplied by a gate that the layer's input makes."""
    norm = BARE(prefix + "attention_normed", attended, size, heads)
    return (norm, *Gate()(source, norm.name, width, heads, size, prefix))


def _attention(config: Config, usual: Attention) -> Attention:
    return replace(usual, gate=_gated, scaling=Scaling(queries=True))


def _arrangement(width: int, norm: NormStyle, attend: Block, feed: Block) -> Operations:
    """Return y = gate(x, norm(attend(norm(x)))); z = gate(y, norm(feed(norm(y)))), whose gates weigh both."""
    first, second = attend("attention_norm"), feed("mlp_norm")
    return (
        norm("attention_norm", "x", width),
        *first,
        BARE("attention_post_norm", first[-1].name, width),
        ResidualGate("attention_residual", ("x", "attention_post_norm"), width),
        norm("mlp_norm", "attention_residual", width),
        *second,
        ScaledNorm("mlp_post_norm", (second[-1].name,), width),
        ResidualGate("mlp_residual", ("attention_residual", "mlp_post_norm"), width),
    )


def _pooled(
    source: str, *, width: int, inner: int, routing: Routing, function: str, shared: Block | None, pooled: int
) -> Operations:
    """Return experts that read and write a narrower stream, each result normalized."""
    return (
        Router(
            "router", (source,), width, routing.experts, routing.top_k, score=routing.score,
            normalize=routing.normalize, upcast=routing.upcast, balanced=routing.balanced,
        ),
        Matmul("pre_expert", (source,), width, pooled, module="mlp.pre_expert_proj"),
        RMS_OFFSET("pre_expert_norm", "pre_expert", pooled),
        Experts(
            "experts", ("pre_expert_norm", "router"), pooled, inner, routing.experts, routing.top_k,
            function=function, normed=True,
        ),
        Matmul("post_expert", ("experts",), pooled, width, module="mlp.post_expert_proj"),
    )  # fmt: skip


def _rotated(config: Config, seen: Seen, sparse: Sequence[bool]) -> Sequence[int | None]:
    """Read which layers have rotary positions."""
    if config.items("layer_rope_theta", required=False) is not None:
        return by_base("layer_rope_theta")(config, seen, sparse)
    last = len(sparse) - 1
    return [0 if (last - i) % PERIOD else None for i in range(len(sparse))]


_SPARK = Decoder(
    norm=RMS_OFFSET,
    arrangement=always(_arrangement),
    bias="attention_bias",
    out_bias="attention_bias",
    qk_norm=NormedHeads(BARE),
    windows=Windows(laid_out(lambda i, layers: WINDOWED if (layers - 1 - i) % PERIOD else FULL)),
    rotates=_rotated,
    attention=_attention,
    function=activation_in("hidden_act"),
    experts=Mixture(where=listed_or(all_sparse), score="sigmoid", normalize=True, upcast=True, balanced="buffer"),
    embedding=Embedded(norm=BARE),
    head=Headed(scale=True, softcap="final_logit_softcapping"),
    ignored=("output_multiplier", "qk_scale_factor", "residual_gate_temperature"),
)


def muse_spark(config: Config) -> Model:
    """Return Muse Spark's language model."""
    never_tied(config)
    experts = replace(_SPARK.experts, block=partial(_pooled, pooled=config.integer("moe_hidden_size")))
    model = replace(_SPARK, experts=experts)(config)
    (stack,) = model.stacks

    def last(op: Operation) -> Operation:
        return WEIGHTED("final_norm", "x", model.hidden) if op.name == "final_norm" else op

    return replace(model, stacks=(replace(stack, after=tuple(map(last, stack.after))),))


MUSE_SPARK = Architecture(
    "muse_spark_text",
    muse_spark,
    config_class="MuseSparkTextConfig",
    implementation=replace(
        HF, router="scores", native_scores="kept", shares=new_shares, fp32_norm_weight=True, fp32_router=True,
        token_ids="copied",
        fp32_weights=("/gate", "mlp.gate/weight"),
    ),
    wrappers=(
        Wrapper(
            "muse_spark",
            ignored=("out_hidden_size", "projector_hidden_size", "projector_hidden_act"),
        ),
    ),
    defaults={
        "attention_bias": False, "final_logit_softcapping": 20.0, "head_dim": 64, "hidden_act": "silu",
        "intermediate_size": 16384, "layer_rope_theta": None, "layer_types": None,
        "max_position_embeddings": 1048576, "mlp_layer_types": None, "moe_hidden_size": 4096,
        "moe_intermediate_size": 4096, "num_attention_heads": 128, "num_experts_per_tok": 8,
        "num_key_value_heads": 16, "num_local_experts": 256, "sliding_window": 2048, "tie_word_embeddings": False,
        "vocab_size": 202048,
    },
    modules={"gate_logit": "self_attn.gate_proj"},
)  # fmt: skip

ARCHITECTURES = (MUSE_SPARK,)
