"""Implementations of training frameworks other than transformers; each is the same for all its models."""

from __future__ import annotations

from napkin.operations.implementations import HUGGING_FACE, Implementation
from napkin.record import replace

_LIBRARY = Implementation(buffers=(), norms_last=False, closure=(), counted=())
"""The layers of a training library: no buffers, norms where they run, nothing that a checkpointed layer refers to."""
_NANOGPT = replace(
    _LIBRARY,
    name="nanogpt",
    buffers=(("masks", ""),),
    weights_to="attention",
    embeddings="loss",
    softmax="narrowed",
    mask="layer",
    written=False,
    norms="fused",
    rotary="table",
    fp32_loss=False,
    shifted=False,
    crops=True,
    counted=("gpt2", "nanogpt"),
)
_MEGATRON = replace(
    _LIBRARY,
    name="megatron",
    softmax="narrowed",
    written=False,
    norms="fused",
    rotary="kernel",
    fused_projections=True,
    tokens_first=True,
    fp32_loss=False,
    shifted=False,
    swiglu="fused",
    gather_again=True,
    parallel_loss=True,
    log_probs="vocabulary",
    gathers_heads=True,
    scores_inside=True,
    grouped_linears=True,
    wide_head=True,
)
"""The layers of NVIDIA/Megatron-LM, megatron/core; transformer/moe/experts.py, TEGroupedMLP: scores multiply within the
experts, whose linear_fc1 and linear_fc2 are linear layers (modelscope/mcore-bridge src/mcore_bridge/tuners/lora.py,
LoraParallelLinear: a pair of thin ones next to each, with dropout); transformer/multi_latent_attention.py joins the
parts of [tokens, sequences, heads, elements], and so does pytorch/torchtitan torchtitan/models/deepseek_v3/model.py of
[sequences, tokens, heads, elements]: the kernels of TransformerEngine and torch return the result as the query lies.
transformer/module.py, Float16Module: what the last stage returns is cast to fp32, logits too where the model has no
labels (verl workers/actor/megatron_actor.py, logits_processor; THUDM/slime slime/utils/ppo_utils.py).
models/gpt/gpt_model.py: the head is a tensor_parallel.ColumnParallelLinear, no layer of TransformerEngine;
transformer/moe/moe_utils.py, RouterGatingLinearFunction: the router's input is saved as it is given."""
_MEGATRON_2022 = replace(_MEGATRON, name="megatron-2022", gathers_heads=False, loss="vocabulary")
_NANOTRON = replace(
    _MEGATRON, name="nanotron", gathers_heads=False, swiglu="split", gather_again=False, loss="sharded", log_probs=""
)
_TITAN = replace(
    _LIBRARY,
    name="torchtitan",
    rotary="kernel",
    tokens_first=True,
    shifted=False,
    parallel_loss=True,
    gathers_keys=True,
    wide_head=True,
)
"""pytorch/torchtitan torchtitan/components/quantization/float8.py: filter_fqns, in every recipe ["output"], of mixtures
also "router.gate"; float8.py of 2024 and torchtune torchtune/training/quantization.py: fqn != "output"."""
_TORCHTUNE = replace(_TITAN, name="torchtune", few_heads="repeated", parallel_loss=False, gathers_keys=False)
_LITGPT = replace(
    _LIBRARY,
    name="litgpt",
    norms="fp32",
    joins=True,
    written=False,
    shifted=False,
    loss="held",
    qkv="joined",
    own_head=True,
)
"""Lightning-AI/litgpt litgpt/model.py, GPT: wte and lm_head are two modules; scripts/convert_hf_checkpoint.py copies a
tied head's weight, and finetune/*.py load both (tie_embeddings is an argument of pretrain.py alone)."""
FRAMEWORKS: dict[str, Implementation] = {
    one.name: one for one in (_NANOGPT, _MEGATRON, _MEGATRON_2022, _NANOTRON, _TITAN, _TORCHTUNE, _LITGPT)
}
"""Implementations other than transformers': the same for all models that they run."""
IMPLEMENTATIONS = (HUGGING_FACE, *FRAMEWORKS)
