"""The parts of a layer that selective recomputation names, as Megatron-core's `recompute_modules` does."""

from __future__ import annotations

CORE_ATTENTION = "core_attn"
"""Scores, softmax and their product with values: a checkpoint."""
EXPERT_ACTIVATION = "moe_act"
"""The activation of routed experts, whose result is freed."""
LAYER_NORMS = "layernorm"
"""Norms of the residual stream that are no part of the linear layers that read them, whose result is freed."""
LATENT_UP = "mla_up_proj"
"""What makes heads of the latents, and rotates them: queries, keys and values are freed."""
DENSE_MLP = "mlp"
"""A dense MLP, a checkpoint, with its norm where that is a part of its first linear layer."""
MOE_LAYER = "moe"
"""Router, routed and shared experts, with their exchange: a checkpoint."""
SHARED_EXPERTS = "shared_experts"
"""Shared experts, a checkpoint."""
MODULES = (CORE_ATTENTION, EXPERT_ACTIVATION, LAYER_NORMS, LATENT_UP, DENSE_MLP, MOE_LAYER, SHARED_EXPERTS)
"""In the order in which an option lists them."""


def selective(names: tuple[str, ...]) -> str:
    """Return the value of --recompute for some of MODULES."""
    ordered = tuple(one for one in MODULES if one in names)
    return "selective" if ordered == (CORE_ATTENTION,) else f"selective:{'+'.join(ordered)}"
