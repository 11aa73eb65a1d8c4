"""A.X K1 and K2: DeepSeek-V3 with normed experts, or with gated norms and gated attention."""

from __future__ import annotations

from napkin.architectures.attention_parts import gated
from napkin.architectures.blocks import RMS, Block, Operations
from napkin.architectures.families.mixtures_of_experts.deepseek import DEEPSEEK_V3, DEEPSEEK_V32
from napkin.architectures.latent_attention import LatentAttention
from napkin.architectures.latent_decoder import Branches, LatentPlan
from napkin.architectures.layer_plans import by_type
from napkin.architectures.record import REQUIRED, like
from napkin.inputs.model import Config
from napkin.operations.linear import Matmul
from napkin.operations.pointwise import Activation
from napkin.operations.roles import COLUMN, QUERY
from napkin.operations.views import Concat, Slice
from napkin.record import replace


def _gated_norms(config: Config, hidden: int) -> Branches:
    """A.X K2: norms multiplied by σ(silu(y·W₁)·W₂), a gate of low rank, except before dense networks."""
    rank = config.integer("gated_norm_rank")

    def branches(plan: LatentPlan, attend: Block, feed: Block) -> tuple[Block, Block]:
        return _behind_gate(attend, hidden, rank), _behind_gate(feed, hidden, rank) if plan.sparse else feed

    return branches


def _behind_gate(block: Block, width: int, rank: int) -> Block:
    """Return the block of y ⊙ σ(silu(y·W₁)·W₂), the product in fp32."""

    def of_gated(source: str) -> Operations:
        low = f"{source}_low"
        return (
            Matmul(low, (source,), width, rank),
            Activation(f"{low}_act", (low,), rank, "silu"),
            Matmul(f"{source}_gate", (f"{low}_act",), rank, width),
            *gated(source, f"{source}_gate", width, fp32=True),
            *block(f"{source}_gated"),
        )

    return of_gated


def _normed_experts(config: Config, hidden: int) -> Branches:
    """A.X K1: the result of a mixture of experts is normalized."""

    def normed(block: Block) -> Block:
        def of(source: str) -> Operations:
            operations = block(source)
            return (*operations, RMS("mlp_out_norm", operations[-1].name, hidden))

        return of

    return lambda plan, attend, feed: (attend, normed(feed) if plan.sparse else feed)


def _queries_with_gate(of: LatentAttention, source: str) -> Operations:
    """Return A.X K2's queries and output gate from one projection, which reads the latent query before and after its
    norm."""
    sizes, both = of.sizes, ("q_a_norm", "q_a")
    rank, queries, gates = sizes.q_rank or 0, sizes.heads * of.qk_dim, sizes.heads * sizes.v_dim
    return (
        Matmul("q_a", (source,), sizes.width, rank, of.bias),
        of.norm(*both, rank),
        Concat("q_latents", both, 2 * rank),
        Matmul("q_gate", ("q_latents",), 2 * rank, queries + gates, False, COLUMN),
        Slice("q", ("q_gate",), queries, role=QUERY),
        Slice("output_gate", ("q_gate",), gates),
    )


def _gate(source: str, attended: str, width: int, heads: int, size: int, prefix: str) -> Operations:
    return gated(attended, "output_gate", heads * size, fp32=True)


def _axk2(usual: LatentAttention) -> LatentAttention:
    return replace(usual, queries=_queries_with_gate, gate=_gate)


AXK1 = like(
    DEEPSEEK_V3,
    "axk1",
    where=by_type,
    branches=_normed_experts,
    config_class="AXK1Config",
    aliases={"num_local_experts": "n_routed_experts"},
    defaults={
        "first_k_dense_replace": REQUIRED, "max_position_embeddings": 32768, "mlp_layer_types": None,
        "n_group": REQUIRED, "n_routed_experts": 192, "norm_topk_prob": REQUIRED, "num_attention_heads": 64,
        "num_key_value_heads": 64, "topk_group": REQUIRED, "vocab_size": 163840,
    },
)  # fmt: skip
AXK2 = like(
    DEEPSEEK_V32,
    "axk2",
    attention=_axk2,
    branches=_gated_norms,
    config_class="AXK2Config",
    defaults={
        "first_k_dense_replace": REQUIRED, "gated_norm_rank": 16, "index_n_heads": 16, "intermediate_size": 5120,
        "kv_lora_rank": 128, "max_position_embeddings": 131072, "mlp_bias": REQUIRED, "moe_intermediate_size": 512,
        "n_routed_experts": 128, "num_attention_heads": 32, "num_key_value_heads": 32, "q_lora_rank": 384,
        "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "vocab_size": 163840,
    },
    modules={
        "attention_norm_low": "input_layernorm.mlp.fc1", "attention_norm_gate": "input_layernorm.mlp.fc2",
        "q_gate": "self_attn.q_gate_proj", "mlp_norm_low": "post_attention_layernorm.mlp.fc1",
        "mlp_norm_gate": "post_attention_layernorm.mlp.fc2",
    },
)  # fmt: skip

ARCHITECTURES = (AXK1, AXK2)
