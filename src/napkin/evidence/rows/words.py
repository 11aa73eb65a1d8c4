"""Words by which prose names software, kernels, schedules, formats and units: what prose/steps.py and
prose/memory.py look for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from napkin.evidence.software.stacks import COPIES, ONCE
from napkin.options.training import NO_GRAPHS, PARTS, WHOLE
from napkin.training.versions import is_before, is_since

DISPATCHERS: tuple[tuple[str, str], ...] = (
    ("deepep", ONCE),
    ("hybridep", ONCE),
    ("flex", ONCE),
    ("alltoall", COPIES),
    ("standard", COPIES),
)
"""Words for what takes tokens to their experts, without their dashes and spaces: Megatron-LM's
--moe-token-dispatcher-type and --moe-flex-dispatcher-backend, torchtitan's expert_parallel_comm_backend."""
DEEPSPEED = "deepspeed"
"""A word that names Megatron-DeepSpeed next to Megatron's, else what divides a model of PyTorch's own layers."""
EDITION_WORDS: tuple[tuple[str, str], ...] = (
    ("bigscience", "megatron-deepspeed"),
    ("bloom", "megatron-deepspeed"),
    ("korthikanti", "megatron"),
)
"""Words of a paper or project whose edition of a framework has a memory of its own (training/frameworks.py)."""
STACK_WORDS: tuple[tuple[str, str], ...] = (
    ("llm-foundry", "fsdp-eager"),
    ("habanalabs", ""),  # a fork of its own, also in its MLPerf submissions
    ("mlperf", "megatron-mlperf"),
    ("megatron bridge", "megatron-core"),
    ("automodel", "fsdp-compiled"),  # torch's FSDP with TransformerEngine's fused layers
    ("nemo framework launcher", "megatron-core"),
    ("h100 weak scaling", "megatron-core-2024"),  # of July 2024
    ("h100 strong scaling", "megatron-core-2024"),
    *EDITION_WORDS,
    ("megatron-lm readme 2020", "megatron"),
    ("narayanan", "megatron"),
    ("gpt-neox", "megatron-deepspeed"),
    ("deepspeed", DEEPSPEED),
    ("megatron", "megatron-core"),
    ("nemo", "megatron-core"),
    ("nanotron", "nanotron"),
    ("maxtext", "xla"),
    ("jax", "xla"),
    ("pax", "xla"),
    ("levanter", "xla"),
    ("t5x", "xla"),
    ("tpu", "xla"),
    ("llm.c", "lean"),
    ("llmq", "lean"),
    ("tinyllama", "lean"),
    ("flashattention", "lean"),
    ("foundry", "fsdp-eager"),
    ("composer", "fsdp-eager"),
    ("transformers", "fsdp-eager"),
    ("accelerate", "fsdp-eager"),
    ("axolotl", "fsdp-eager"),
    ("nanogpt", "fsdp-compiled"),
    ("olmo", "fsdp-compiled"),
    ("torchtitan", "fsdp-compiled"),
    ("prime-rl", "fsdp-compiled"),  # its trainer compiles each block (src/prime_rl/trainer/model.py, apply_compile)
    ("fsdp", "fsdp-compiled"),
    ("torchtune", "fsdp-compiled"),
    ("lora", "fsdp-eager"),
)
"""Words of a framework, title or place, and the software stack that they name; the first that occurs holds."""
FRAMEWORK_WORDS: tuple[tuple[str, str], ...] = (
    ("megatron-deepspeed", "megatron-deepspeed"),
    ("megatron bridge", "megatron-core"),
    ("nemo", "megatron-core"),
    ("megatron", "megatron-core"),
    ("nanotron", "nanotron"),
    ("torchtitan", "torchtitan"),
    ("torchtune", "torchtune"),
    ("litgpt", "litgpt"),
    ("lit-gpt", "litgpt"),
    ("deepspeed", "deepspeed"),
    ("fsdp", "fsdp"),
    ("foundry", "fsdp"),
    ("colossal", "colossalai"),
    ("oneflow", "oneflow"),
)
"""Words of a framework, title or place, and the framework whose memory is modeled; the first that occurs holds."""
LIBRARIES = (
    ("unsloth", "unsloth"),
    ("axolotl", "axolotl"),
    ("llama[- ]?factory", "llama-factory"),
    ("ms-swift|swift", "ms-swift"),
    ("torchtune", "torchtune"),
    ("verl", "verl"),
    ("openrlhf", "openrlhf"),
    ("nemo[- ]?rl", "nemo-rl"),
    ("nemo automodel|nemo-automodel", "nemo-automodel"),
    ("nemo", "nemo"),
    ("trl", "trl"),
    ("trainer|transformers|hugging ?face", "hf-trainer"),
    ("accelerate", "accelerate"),
)
"""Words of a framework, and the library of fine-tuning that they name (training/trainers.py); the first that occurs
counts: a library is listed before those that it is built on."""


def library_of(words: str) -> str:
    """Return the library of fine-tuning that a framework's words name, "" if none."""
    return _named(words, LIBRARIES)


def dispatcher_named(words: str) -> str:
    """Return the dispatcher that words name (stacks.py, ONCE and COPIES); "" for none, the words if they name no known
    one."""
    plain = re.sub(r"[-_ ]+", "", words.lower())
    return next((found for spelling, found in DISPATCHERS if spelling in plain), words)


PROGRAMS = (("lit-?gpt", "litgpt"),)
"""Words of a training program that divides its model itself, with torch's FSDP, and the framework that it is here."""


def program_of(words: str) -> str:
    """Return the framework of a training program that words name, "" if none."""
    return _named(words, PROGRAMS)


def _named(words: str, table: Iterable[tuple[str, str]]) -> str:
    """Return the first name of a table whose spellings words hold, "" if none."""
    return next((name for spelling, name in table if re.search(rf"\b({spelling})\b", words.lower())), "")


TORCH = re.compile(r"^(?!.*\bxla\b).*\b(pytorch|torch|ddp)\b")
"""Words of a framework that is torch itself, on its own allocator."""
MEMORY_STACKS = {"fsdp-eager": "fsdp", "fsdp-compiled": "torchtitan", "lean": "plain"}
"""Stacks whose memory is that of a framework of another name."""
CUDNN_9_4 = (24, 10)
"""The first of NVIDIA's containers, (year, month), after cuDNN 9.4 of September 2024 (stacks.py, early_cudnn)."""
CUDNN_9_4_MLPERF = (4, 1)
"""The first round of MLPerf training after it, of November 2024."""
FUSED_EXPERTS = (26, 6)
"""The container of Megatron Bridge, (year, month), from which on its recipes in MXFP8 capture a whole iteration
(NVIDIA-NeMo/Megatron-Bridge v0.5.0, scripts/performance/configs: cuda_graph_impl="full_iteration"), and no others:
those for racks that one link joins (GB200, GB300) and for one node of B300; others capture parts of a layer at most."""

PRECISIONS = (
    (("nvfp4", "fp4"), "nvfp4-mixed"),
    (("mxfp8",), "mxfp8-mixed"),
    (("fp8", "float8", "e4m3"), "fp8-mixed"),
    (("pure bf16", "bf16 pure", "bf16-true", "pure bfloat16", "bfloat16 pure", "pure_bf16"), "bf16-pure"),
    (("bf16", "bfloat16"), "bf16-mixed"),
    (("fp16", "float16", "16-mixed"), "fp16-mixed"),
    (("fp32", "float32", "tf32"), "fp32"),
)
"""Words of a precision, and the policy that they name; the first that occurs holds. 8-bit products come before the
16-bit formats of what is around them."""
AUTOCAST = re.compile(r"autocast|\bamp\b(?!.*\bo[123]\b)")
"""Words for torch's autocast over fp32 weights; Apex's and NeMo's AMP at level O2 keeps 16-bit ones."""
OPEN_PRECISION = ("unstated", "not stated", "mixed", "mixed precision", "amp")
"""What rows say of a precision that they do not state."""
KERNELS = {
    spelling: name
    for name, spellings in {
        "flash": (
            "flash",
            "flash1",
            "flash2",
            "flash3",
            "fa2",
            "fa3",
            "flash_attention_2",
            "flash_attention_3",
            "sdpa",
            "pytorch sdpa",
            "torch sdpa",
            "splash",
            "flex",
            "flexattention",
            "flex_attention",
            "flex attention",
        ),
        "efficient": ("efficient", "xformers", "mem_efficient", "memory efficient", "memory-efficient"),
        "cudnn": ("cudnn", "te", "transformer engine"),
        "eager": ("eager", "math", "unfused", "naive", "vanilla"),
    }.items()
    for spelling in spellings
}
"""Spellings of the attention kernels of the memory model."""
HOPPERS_OWN = re.compile(r"cudnn|\bfa[34]\b|flash[ _-]?(?:attn|attention)?[ _-]?[34]")
"""Kernels written for the asynchronous matrix units of Hopper and later: FlashAttention 3 is as fast there as cuDNN 9
(Shah et al. 2024, arXiv:2407.08608, figures 5 and 6)."""


SECOND = re.compile(r"\bfa2\b|flash[ _-]?(?:attn|attention)?[ _-]?2|^flex(?:[ _-]?attention)?$")
"""FlashAttention-2 by its number, and torch's FlexAttention, a kernel in Triton nearly as fast (0.9 of it forward, 0.85
backward: pytorch.org/blog/flexattention)."""


def timed_kernel(words: str) -> str:
    """Return the kernel whose time an attention of these words takes: eager, efficient, cudnn, flash2 or, of no stated
    version, flash; "" if they are not known. What follows the name in parentheses specifies it (`sdpa (cuDNN)`)."""
    if HOPPERS_OWN.search(words):
        return "cudnn"
    if SECOND.search(words):
        return "flash2"
    if words.startswith("flash"):
        return "flash"
    return KERNELS.get(words) or KERNELS.get(re.split(r"[ (,]", words)[0], "")


MASK = re.compile(r"\bmask(ed)?\b")
"""Words of an attention that is told what it may see by a mask."""


CUDNN_FIRST = (2, 11)
"""The release of torch from which on scaled_dot_product_attention takes cuDNN's kernel before FlashAttention-2 on
compute capability 9.0, 10.0 and 10.3: the first with cuDNN above 9.15.0 (pytorch/pytorch aten/src/ATen/native/
transformers/cuda/sdp_utils.cpp, check_prefer_cudnn_attention; huggingface/transformers pull request 48163). 2.5.0 did
so too, 2.5.1 no longer (pytorch/pytorch pull request 138522)."""
SDPA = ("", "sdpa", "default", "transformers default", "transformers default (not set)")
"""Words by which a row leaves the kernel to torch."""


def kernel_of_torch(words: str, versions: str) -> str:
    """Return the kernel that torch itself picks in those versions, where a row leaves it to torch, else ""."""
    if words not in SDPA:
        return ""
    if is_since("torch", versions, CUDNN_FIRST):
        return "cudnn"
    # a row that states no attention may not run torch's
    return "flash2" if words and is_before("torch", versions, CUDNN_FIRST) else ""


LIGER_WORD = "liger"
"""What names the kernels of linkedin/Liger-Kernel."""
FUSED_LOSSES = re.compile(r"liger|cut cross entropy|\bcce\b|fused|chunked")
"""Words of losses that materialize no logits."""


def fuses_loss(words: str) -> bool:
    """Return whether words of a loss or of kernels name a loss that materializes no logits."""
    return FUSED_LOSSES.search(re.sub(r"[-_]", " ", words.lower())) is not None


WITH_HEAD = re.compile(r"liger|cut cross entropy|\bcce\b|linear|chunked")
"""Words of losses that take the head's matmul into their kernel."""


def fused_loss(words: str, forms: Mapping[str, str]) -> str:
    """Return the form of the fused cross entropy that words name, of a framework's own, which read whole logits
    (Megatron-core: cross_entropy_loss_fusion, cross_entropy_fusion_impl); "" if they name none. forms: by whose they
    are."""
    words = re.sub(r"[-_]", " ", words.lower())
    if not re.search(r"\bfus(ed|ion)\b", words) or WITH_HEAD.search(words):
        return ""
    return forms.get("te" if re.search(r"\bte\b|transformer ?engine", words) else "native", "")


IN_PLACE = re.compile(r"liger[ _-]cross[ _-]entropy")
"""Liger's cross entropy alone, without the head's matmul (src/liger_kernel/ops/cross_entropy.py): the gradient is
written over the logits."""
FUSES_LOSS = ("llm-foundry", "llm foundry")
"""Words of software whose loss is a fused kernel by default (mosaicml/llm-foundry llmfoundry/models/mpt/
modeling_mpt.py: loss_fn fused_crossentropy)."""
PLAIN_LOSSES = ("plain", "standard", "default", "eager", "cross entropy", "cross-entropy", "cross_entropy")
"""Words of the loss that materializes them."""
OFFLOADED = {
    **dict.fromkeys(("parameters", "params", "param", "weights"), "parameters"),
    **dict.fromkeys(("activations", "activation"), "activations"),
    **dict.fromkeys(("optimizer", "optim", "optimizer states"), "optimizer"),
}
"""Words for what is kept in the host's memory."""
SHARDERS = ("deepspeed", "ddp", "fsdp", "fsdp1", "fsdp2", "none", "pytorch", "torch")
"""What rows call a stack, and which says only by what the model is sharded."""
FSDP = {
    **dict.fromkeys(("true", "fsdp", "fsdp1", "fsdp2", "full_shard", "full", "fully_shard", "hsdp", "hybrid_shard"), 3),
    **dict.fromkeys(("shard_grad_op", "hybrid_shard_zero2", "_hybrid_shard_zero2"), 2),
    **dict.fromkeys(("false", "none", "no", "no_shard", "ddp"), 0),
    **{f"zero{stage}": stage for stage in range(4)},
}
"""What rows call FSDP's sharding → the ZeRO stage that it is (torch.distributed.fsdp.ShardingStrategy)."""
HYBRID = ("hsdp", "hybrid_shard", "hybrid_shard_zero2", "_hybrid_shard_zero2")
"""Those of them that shard within a node and copy between nodes."""
SCHEDULES = {
    **{name: name for name in ("1f1b", "interleaved", "gpipe")},
    **dict.fromkeys(("interleaved 1f1b", "1f1b interleaved", "interleaved1f1b"), "interleaved"),
    **dict.fromkeys(("afab", "all forward all backward"), "gpipe"),
    **dict.fromkeys(("zero bubble", "zerobubble", "zb1p", "zb h1", "zbv", "zbvzerobubble"), "zero-bubble"),
}
"""Spellings of the pipeline schedules, with a blank for hyphens and underscores."""


def schedule_named(words: str) -> str:
    """Return the pipeline schedule that words name; unknown words as they are."""
    said = words.strip().lower()
    return SCHEDULES.get(re.sub(r"[-_ ]+", " ", said), said)


CAPTURES = {
    **dict.fromkeys(("full", "full iteration", "whole iteration"), WHOLE),
    **dict.fromkeys(("partial", "transformer engine", "local"), PARTS),
    **dict.fromkeys(("off", "disabled"), NO_GRAPHS),
}
"""Spellings of what CUDA graphs capture, with a blank for hyphens and underscores, Megatron-LM's cuda_graph_impl and
cuda_graph_scope among them (megatron/core/transformer/transformer_config.py)."""


def graphs_named(words: str) -> str:
    """Return what words say that CUDA graphs capture (options/training.py, GRAPHS); unknown words as they are."""
    said = words.strip().lower()
    return CAPTURES.get(re.sub(r"[-_ ]+", " ", said), said)


FULL_TRAINING = (
    "full",
    "sft",
    "pretrain",
    "pretraining",
    "full_finetune",
    "full_finetuning",
    "full_fine_tuning",
    "none",
)
"""Names of methods that train all weights."""
QUANTIZED = {
    **dict.fromkeys(("", "none"), ""),
    **dict.fromkeys(("nf4", "bnb.nf4", "bnb_nf4"), "nf4"),
    **dict.fromkeys(("nf4_dq", "bnb.nf4_dq", "bnb_nf4_dq"), "nf4-dq"),
}
"""Spellings of the formats of frozen weights."""
LORA_TARGETS = {
    spelling: name
    for name, spellings in {
        "q": ("q", "q_proj", "query", "wq"),
        "k": ("k", "k_proj", "key", "wk"),
        "v": ("v", "v_proj", "value", "wv"),
        "o": ("o", "o_proj", "output_proj", "proj", "wo"),
        "gate": ("gate", "gate_proj", "w1"),
        "up": ("up", "up_proj", "w3"),
        "down": ("down", "down_proj", "w2"),
    }.items()
    for spelling in spellings
}
"""Spellings of the LoRA target modules."""
FIGURES = {
    "used": "used",
    "driver": "used",
    "nvidia-smi": "used",
    "reserved": "reserved",
    "alloc": "allocated",
    "active": "allocated",
}
"""Words for what a printed figure of memory is; the first that occurs holds."""
UNITS = {"gib": 2**30, "gb": 1e9, "mib": 2**20, "mb": 1e6}
BINARY = ("gib", "2^30", "2**30", "1024")
"""Words for a GB of 2³⁰ bytes."""
