"""LongCat-Flash."""

from __future__ import annotations

from napkin.architectures.attention_parts import Rope
from napkin.architectures.blocks import RMS, Operations, Routing, gated_mlp, moe
from napkin.architectures.dimensions import Dimensions, decoder_of, dimensions_of
from napkin.architectures.latent_attention import PARTS, LatentAttention, LatentSizes
from napkin.architectures.reading import activation, chosen_experts, depth, on, width
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.implementations import HF
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Add
from napkin.record import record, replace


@record
class LongcatReading:
    """What a config.json says of LongCat-Flash. `inner`: of the dense networks; `expert_inner`: of an expert."""

    sizes: Dimensions
    attention: LatentAttention
    function: str
    inner: int
    expert_inner: int
    routing: Routing


def read(config: Config) -> LongcatReading:
    """Read a config.json."""
    hidden, layers = width(config), depth(config, "num_layers")
    config.ignore("num_key_value_heads", "head_dim", "num_hidden_layers")
    nope, rotary = config.integer("qk_nope_head_dim"), config.integer("qk_rope_head_dim")
    config.must_be("qk_head_dim", nope + rotary)
    for field, value in (("attention_method", "MLA"), ("zero_expert_type", "identity"), ("router_bias", False)):
        config.must_be(field, value)
    inner, heads = config.integer("expert_ffn_hidden_size"), config.integer("num_attention_heads")
    config.must_be("mla_scale_q_lora", True)
    config.must_be("mla_scale_kv_lora", True)
    length = config.optional_integer("max_position_embeddings")
    ranks = config.integer("q_lora_rank"), config.integer("kv_lora_rank")
    idle = config.optional_integer("zero_expert_num", least=0) or 0
    experts, top_k = chosen_experts(config, "n_routed_experts", "moe_topk", idle)
    if idle:
        config.notes.append(
            f"{idle} of the experts have no weights: tokens are taken to spread evenly over all; transformers' class "
            f"holds the first matrix of each, which nothing runs, {layers * idle * 2 * inner * hidden:,} parameters"
        )
    return LongcatReading(
        dimensions_of(config, hidden, layers, heads, heads, nope + rotary, length),
        LatentAttention(
            LatentSizes(hidden, heads, *ranks, nope, config.integer("v_head_dim")),
            Rope(rotary, "interleaved"),
            bias=on(config, "attention_bias"),
            scaled=PARTS,
        ),
        activation(config, "hidden_act"),
        config.integer("ffn_hidden_size"),
        inner,
        Routing(experts, top_k, upcast=True, balanced="buffer", idle=idle),
    )


def layer(of: LongcatReading) -> Layer:
    """Return a layer: two attentions and two dense networks in turn, and experts that read what the first network reads
    and are added at the layer's end; some experts return their tokens unchanged."""
    hidden = of.sizes.hidden
    sparse = moe("first/mlp_norm", width=hidden, inner=of.expert_inner, routing=of.routing, function=of.function)
    operations: Operations = ()
    last = "x"
    for prefix in ("first/", "second/"):
        norm, residual = f"{prefix}mlp_norm", f"{prefix}attention_residual"
        attended = replace(of.attention, prefix=prefix)(f"{prefix}attention_norm")
        fed = gated_mlp(norm, width=hidden, inner=of.inner, function=of.function, prefix=prefix)
        operations += (
            RMS(f"{prefix}attention_norm", last, hidden),
            *attended,
            Add(residual, (last, attended[-1].name), hidden),
            RMS(norm, residual, hidden),
            *(sparse if prefix == "first/" else ()),
            *fed,
            Add(f"{prefix}mlp_residual", (residual, fed[-1].name), hidden),
        )
        last = f"{prefix}mlp_residual"
    return Layer("moe", (*operations, Add("shortcut", (last, sparse[-1].name), hidden)))


def longcat(config: Config) -> Model:
    """Return LongCat-Flash (arXiv 2509.01322)."""
    of = read(config)
    return decoder_of(of.sizes, ((of.sizes.layers, layer(of)),), RMS)


LONGCAT_FLASH = Architecture(
    "longcat_flash",
    longcat,
    config_class="LongcatFlashConfig",
    aliases={
        "intermediate_size": "ffn_hidden_size",
        "moe_intermediate_size": "expert_ffn_hidden_size",
        "num_experts_per_tok": "moe_topk",
        "num_local_experts": "n_routed_experts",
    },
    implementation=replace(HF, looped="joined", linear_router=True, fp16_excepts=("router.classifier/weight",)),
    defaults={
        "attention_bias": False, "expert_ffn_hidden_size": 2048, "ffn_hidden_size": 12288, "hidden_act": "silu",
        "kv_lora_rank": 512, "max_position_embeddings": 131072, "moe_topk": 12, "n_routed_experts": 512,
        "num_attention_heads": 64, "num_key_value_heads": None, "q_lora_rank": 1536, "qk_head_dim": None,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "tie_word_embeddings": False, "v_head_dim": 128,
        "vocab_size": 131072, "zero_expert_num": 256,
    },
    modules={
        "first/q_a": "self_attn.0.q_a_proj", "first/kv_a": "self_attn.0.kv_a_proj_with_mqa",
        "first/kv_b": "self_attn.0.kv_b_proj", "first/o": "self_attn.0.o_proj", "router": "mlp.router.classifier",
        "first/gate": "mlps.0.gate_proj", "first/up": "mlps.0.up_proj", "first/down": "mlps.0.down_proj",
        "second/q_a": "self_attn.1.q_a_proj", "second/kv_a": "self_attn.1.kv_a_proj_with_mqa",
        "second/kv_b": "self_attn.1.kv_b_proj", "second/o": "self_attn.1.o_proj", "second/gate": "mlps.1.gate_proj",
        "second/up": "mlps.1.up_proj", "second/down": "mlps.1.down_proj", "first/q_b": "self_attn.0.q_b_proj",
        "second/q_b": "self_attn.1.q_b_proj",
    },
)  # fmt: skip

ARCHITECTURES = (LONGCAT_FLASH,)
