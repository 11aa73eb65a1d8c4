"""Options that say how the model is trained: formats, optimizer, recomputation, software, adapters."""

from __future__ import annotations

from napkin import units
from napkin.options.layout import DEGREES, EXPERT_LOAD, MACHINE_SIZE, STAGE_OPTIONS
from napkin.options.option import NONE, Option, choice, flag, or_none
from napkin.options.parsers import frozen_parts, lowercase_names, offloads

TORCH_LOSS = "torch"
"""The form of cross entropy that torch has: log-softmax, then the likelihood."""
TASKS = ("pretrain", "sft", "dpo", "orpo", "simpo", "kto", "rm", "distill", "gkd", "grpo", "rloo", "ppo")
"""What a model can be trained for."""
ADAPTERS = (
    *("lora", "dora", "adalora", "vera", "ia3", "loha", "lokr", "miss", "oft", "boft"),
    *("prompt", "p-tuning", "prefix"),
)
"""Kinds of adapters, as peft names them; dora is its LoRA with use_dora."""
FROZEN_FORMATS = ("nf4", "nf4-dq", "int4", "int8", "fp8")
"""Formats that frozen weights of layers are stored in: int4 as GPTQ and AWQ have it, 8 bits with scales of rows."""
UNQUANTIZED = NONE
"""The word for frozen weights that keep their 16 or 32 bits."""
DISPATCHERS = ("alltoall", "deepep", "hybridep", "flex")
"""An all-to-all of each token's copies, and kernels that send a token once to each node; `flex` is either of these."""
NO_OVERLAP, GRADIENTS, PARAMETERS_TOO = OVERLAPS = ("none", "gradients", "both")
"""What of data parallelism overlaps with compute below ZeRO-3: nothing, the reduction of gradients with the last
backward pass, or the gathering of parameters with the next forward pass as well."""
NO_GRAPHS, PARTS, WHOLE = GRAPHS = ("none", "parts", "whole")
"""What CUDA graphs capture: nothing, a layer's attention and router with what prepares the dispatch, or a whole
iteration (NVIDIA/Megatron-LM megatron/core/transformer/transformer_config.py: cuda_graph_scope attn, moe_router,
moe_preprocess; cuda_graph_impl full_iteration)."""
KERNELS = ("none", "liger", "unsloth", "axolotl", "axolotl-liger")
LOSSES = (
    TORCH_LOSS,
    "compiled",
    "in-place",
    "in-place-fp32",
    "chunked",
    "chunked-eager",
    "vocabulary",
    "sharded",
    "dtensor",
    "fused",
    "fused-compiled",
    "chunked-recomputed",
    "log-probs",
    "log-probs-fp32",
    "divergence",
    "divergence-fp32",
    "chunked-backward",
    "chunked-backward-eager",
    "chunked-backward-divided",
    "held",
)

OPTIONS = (
    Option("tokens", units.positive_count, "Training tokens, e.g. 15T", "token", "N"),
    Option("precision", units.words, "Policy, or param=bf16,grad=fp32,…", metavar="POLICY", default="bf16-mixed"),
    Option("optimizer", units.words, "Optimizer; napkin optimizer lists them", metavar="NAME", default="adamw"),
    Option(
        "optimizer-form",
        choice("foreach", "forloop", "fused"),
        "Optimizer implementation: foreach, forloop, fused",
        metavar="FORM",
        default="fused if available",
    ),
    Option("momentum", units.probability, "Momentum of sgd and rmsprop", metavar="X", default="0, 0.9 in sgd-momentum"),
    Option(
        "recompute",
        units.words,
        "Recomputation: none, selective, full, every:K, …",
        metavar="KIND",
    ),
    Option(
        "attention",
        choice("flash", "flash2", "eager", "efficient", "cudnn"),
        "Attention kernel: flash, flash2, eager, efficient, cudnn",
        metavar="NAME",
    ),
    Option("dropout", units.probability, "Dropout probability", metavar="P"),
    Option("loss", choice(*LOSSES), "Cross-entropy implementation (default: the framework's)", metavar="FORM"),
    Option("stack", units.words, "Software stack: megatron-core, fsdp-compiled, xla, …", metavar="NAME"),
    Option("kernels", choice(*KERNELS), "Fused kernels (default: the trainer's, else none)", metavar="NAME"),
    Option("framework", units.words, "Framework, and its defaults: fsdp, deepspeed, …", metavar="NAME"),
    Option("fsdp-version", choice("1", "2"), "FSDP's version; 2 is fully_shard", metavar="1|2"),
    Option("trainer", units.words, "Training library: trl, axolotl, unsloth, …", metavar="NAME"),
    flag("compile", "Train with torch.compile"),
    flag("separate-gradients", "Compute each weight gradient in a tensor of its own, then add it to Megatron's buffer"),
    flag("async-tp", "Overlap tensor-parallel collectives with compute"),
    Option("async-dp", choice(*OVERLAPS), "What of data parallelism overlaps with compute", metavar="WHAT"),
    flag("async-ep", "Overlap the experts' all-to-all with another micro-batch"),
    Option("dispatcher", choice(*DISPATCHERS), "What sends tokens to their experts", metavar="NAME"),
    Option("graphs", choice(*GRAPHS), "What CUDA graphs capture of a step", metavar="WHAT"),
    Option("factor", units.ratio, "Measured over predicted step time (napkin calibrate)", metavar="X"),
    Option("task", choice(*TASKS), "Objective: sft, dpo, kto, rm, …", metavar="TASK", default="pretrain"),
    Option(
        "reference",
        units.words,
        "Reference model: same, adapters-off, precomputed, or a MODEL",
        metavar="WHICH",
        default="same, adapters-off with LoRA",
    ),
    Option("lora-rank", or_none(units.positive_count), "LoRA rank; freezes all other weights", metavar="R"),
    Option(
        "adapter",
        or_none(choice(*ADAPTERS, NONE)),
        "PEFT method: lora, dora, ia3, vera, oft, …",
        metavar="KIND",
        default="lora",
    ),
    Option("adapter-block", units.positive_count, "Block size of oft and boft", metavar="N"),
    Option(
        "virtual-tokens",
        units.positive_count,
        "Virtual tokens of prompt tuning, p-tuning or prefix tuning",
        metavar="N",
    ),
    Option(
        "lora-dropout",
        units.probability,
        "Dropout on adapter inputs",
        metavar="P",
        default="the trainer's, or --dropout",
    ),
    Option(
        "lora-targets",
        lowercase_names,
        "LoRA targets: q,v or all,-o,@16-31,down_proj=8",
        metavar="NAME,…",
        default="all-linear",
    ),
    Option(
        "modules-to-save",
        or_none(lowercase_names),
        "Modules trained in full: embed_tokens,lm_head",
        metavar="NAME,…",
    ),
    Option(
        "quantized",
        choice(*FROZEN_FORMATS, UNQUANTIZED),
        "Format of the frozen weights: nf4, nf4-dq, int4, int8, fp8; or none",
        metavar="FORMAT",
    ),
    flag("quantize-experts", "Quantize the routed experts too"),
    Option("freeze-layers", units.count, "Freeze the embedding and the first N layers", metavar="N"),
    flag("freeze-head", "Freeze the final norm and the head"),
    Option("freeze", or_none(frozen_parts), "Frozen parts: vision, projector", metavar="PART,…"),
    flag("optimizer-in-backward", "Update each weight as soon as its gradient is ready"),
    flag("ema", "Keep an EMA of the weights"),
    Option(
        "save",
        choice("sharded", "full", "full-on-gpu"),
        "Checkpoints: sharded, or gathered (full, full-on-gpu)",
        metavar="HOW",
        default="sharded",
    ),
    Option(
        "loading",
        choice("host", "gpu"),
        "Quantized weights wait in host memory, or all on each GPU, until ranks divide them",
        metavar="WHERE",
    ),
    Option("offload", or_none(offloads), "Offload to the host: optimizer, activations, parameters", metavar="WHAT,…"),
)

POLICY_OPTIONS = (
    "precision",
    "optimizer",
    "optimizer-form",
    "optimizer-in-backward",
    "momentum",
    "implementation",
    "attention",
    "dropout",
)
SEQUENCE_OPTIONS = ("seq", "target-seq", "images", "image-tokens")
SETUP_OPTIONS = (
    *DEGREES,
    "ulysses",
    *EXPERT_LOAD,
    "distributed-optimizer",
    *SEQUENCE_OPTIONS,
    "recompute",
    *POLICY_OPTIONS,
)
"""Options on which the memory and the time of a training step depend."""

UNTIMED = ("ema",)
"""Options that the step model does not time; the commands that predict a step refuse them and name `napkin memory`."""

TASKED = ("task", "reference")
"""The training task."""

ADAPTED = (
    *("lora-rank", "adapter", "adapter-block", "virtual-tokens", "lora-dropout", "lora-targets", "modules-to-save"),
    *("quantized", "quantize-experts"),
)
FROZEN = ("freeze-layers", "freeze-head", "freeze", *ADAPTED)
"""The trained part of a model, and the format of the rest."""
OF_FROZEN = ("quantized", "quantize-experts", "lora-dropout")
"""Options of adapters that do not change what is trained."""
TRAINED = tuple(name for name in FROZEN if name not in OF_FROZEN)
"""Options that decide what is trained."""

SOFTWARE_OPTIONS = ("loss", "kernels", "framework", "fsdp-version", "trainer", "compile", "separate-gradients")
"""What runs the step, as memory depends on it."""
RATE_OPTIONS = ("stack", "async-tp", "async-dp", "async-ep", "dispatcher", "graphs", "factor")
"""What runs the step, as time alone depends on it."""

STATE_OPTIONS = ("dp-shard", *SOFTWARE_OPTIONS, *TASKED, *FROZEN, "offload", *UNTIMED)
"""Further options on which a training step depends, mostly in memory."""

SETUP_DEFAULTS: dict[str, str | bool] = {
    "tp": "1",
    "pp": "1",
    "cp": "1",
    "ep": "1",
    "etp": "1",
    "vp": "1",
    "zero": "0",
    "micro-batch": "1",
    "recompute": "none",
    "precision": "bf16-mixed",
    "optimizer": "adamw",
    "implementation": "hf",
    "attention": "flash",
    "dropout": "0",
}
"""The default setup of a step."""

SETUP_WORDS: dict[str, str] = {
    "gpus": "tp · pp · dp · cp",
    "dp": "gpus / (tp · pp · cp)",
    "sp": "on with tp",
    "global-batch": "micro-batch × dp",
    "optimizer-form": "fused if available",
    "schedule": "1f1b",
    "stack": "typical of the layout",
}
"""The defaults, in words, that other options decide."""

STEP_MODEL = (
    *(name for name in DEGREES if name not in MACHINE_SIZE),
    "ulysses",
    *EXPERT_LOAD,
    "distributed-optimizer",
    "dp-shard",
    "recompute",
    *POLICY_OPTIONS,
    *SOFTWARE_OPTIONS,
    *RATE_OPTIONS,
    "offload",
    *FROZEN,
    *STAGE_OPTIONS,
)
"""Options of the step model besides the model, its sequence length and its GPUs: given one of them, it predicts."""


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
