"""What the scripts of frameworks and of fine-tuning libraries do where a published row does not say.

Which tensors a framework keeps is in training/frameworks.py, and what a library changes in training/trainers.py; this
serves the reading of rows only."""

from __future__ import annotations

from napkin.inputs.launch.megatron.core import FUSED_LOSSES
from napkin.record import record
from napkin.training.framework import Framework
from napkin.training.frameworks import MOST
from napkin.training.recomputation import OPERATIONS
from napkin.training.trainer import Trainer


@record
class Scripts:
    """Defaults of a framework's scripts, and of its recipes, where a row names one (`layout.recipe_defaults`).

    recompute        what they recompute; "" if it is not known, so that a run may have recomputed or not
    selective        what a row means by selective recomputation, "" where its own is of entire layers
    sharded_recompute  what they recompute on several GPUs; "" if as on one
    sequence_parallel  whether it may be on under tensor parallelism, each possibility; () if the framework has none
    ends_apart       embedding and head of adapted networks may be FSDP units of their own, or not
    global_batch     sequences of a step; 0 if the row's batch decides
    typical          length of a sample at the peak over the longest one, on several GPUs
    targets, recipe_targets  LoRA's target modules; those of a recipe that quantizes nothing
    lora_rank, lora_dropout  its rank and its dropout
    quantizer        whose quantized layers adapters run on (operations/tuning.py)
    recipe_chunks    a recipe's loss never holds all logits
    recipe_optimizer  the optimizer of a recipe that trains all weights, as rows name it
    recipe_offloads  a recipe may offload activations
    step_bytes       bytes per element that the optimizer step allocates without ZeRO, in addition to those with it
    eager_context    its CUDA context has all kernels (CUDA before 11.7)
    own_batches      each GPU has micro-batches of its own, if a run does not say how its GPUs divide the work
    may_shard        the ZeRO stage that a run which states none may have had, 0 if it had none
    whole_states     optimizer states are divided only where a run says so, though several GPUs could
    lone_stages      its ZeRO stages are on where one rank divides nothing
    fused_losses     its fused cross entropies by whose they are (operations/losses.py)
    chunked          its own cross entropy in parts of the tokens, "" if it has none
    local_attention  the attention kernel of layers of its own, which rows call local, "" if it has no others
    """

    recompute: str = ""
    selective: str = "selective"
    sharded_recompute: str = ""
    sequence_parallel: tuple[int, ...] = (0, 1)
    ends_apart: bool = False
    global_batch: int = 0
    typical: float = 1.0
    targets: tuple[str, ...] = ("q", "v")
    recipe_targets: tuple[str, ...] = ("q", "v")
    lora_rank: int = 8
    lora_dropout: float = 0.05
    quantizer: str = "bitsandbytes"
    recipe_chunks: bool = False
    recipe_optimizer: str = "adamw"
    recipe_offloads: bool = False
    step_bytes: int = 0
    eager_context: bool = False
    own_batches: bool = False
    may_shard: int = 0
    whole_states: bool = False
    lone_stages: bool = False
    fused_losses: tuple[tuple[str, str], ...] = ()
    chunked: str = ""
    local_attention: str = ""


IN_16_BITS = "chunked"
"""torchtune's cross entropy in parts of the tokens, which keeps logits in 16 bits."""
USUAL = Scripts()
"""LoRA's rank is peft's, LLaMA-Factory's and ms-swift's default (peft 0.21, tuners/lora/config.py; llamafactory/
hparams/finetuning_args.py; swift/arguments/tuner_args.py)."""
SCRIPTS = {
    # from before sequence parallelism (Korthikanti et al. 2022)
    "megatron": Scripts(recompute="none", sequence_parallel=()),
    # Oneflow-Inc/oneflow core/job/job_conf.proto: optimizer_placement_optimization_mode has no default
    "oneflow": Scripts(recompute="none", sequence_parallel=(), whole_states=True),
    "megatron-deepspeed": Scripts(recompute="none", sequence_parallel=(), step_bytes=4, eager_context=True),
    # NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/peft/lora.py: LoRA of rank 32; its recipes for the speed that
    # NVIDIA publishes adapt linear_qkv alone (scripts/performance, cfg.peft.target_modules), the class by itself all
    # linear layers; NVIDIA/Megatron-LM use_distributed_optimizer; core/transformer/dot_product_attention.py, of
    # transformer_impl local
    "megatron-core": Scripts(
        targets=("q", "k", "v"),
        recipe_targets=("q", "k", "v"),
        lora_rank=32,
        may_shard=1,
        fused_losses=tuple(FUSED_LOSSES.items()),
        local_attention="eager",
    ),
    "nanotron": Scripts(recompute="none"),
    "deepspeed": Scripts(own_batches=True, lone_stages=True),
    "fsdp": Scripts(own_batches=True),
    # its recipes: activation_checkpoint.mode selective, selective_ac_option op
    "torchtitan": Scripts(
        recompute=OPERATIONS, selective=OPERATIONS, sequence_parallel=(1,), chunked="chunked-backward"
    ),
    # recipes/configs/llama3*/…lora_single_device.yaml, LoRA's of 2024-09: q and v; custom_sharded_layers is set for
    # full fine-tuning only; llama3_1/8B_full_single_device.yaml: the optimizer
    "torchtune": Scripts(
        ends_apart=True,
        targets=("q", "v", "o", "gate", "up", "down"),
        lora_dropout=0.0,
        quantizer="torchao",
        selective="",
        recipe_chunks=True,
        chunked=IN_16_BITS,
        recipe_optimizer="paged adamw 8bit in backward",
        recipe_offloads=True,
    ),
    # finetune/*.py: FSDPStrategy(activation_checkpointing_policy={Block}); 128 sequences of one optimizer step; the
    # first step takes the longest sample (lora.py), of which a typical one of an instruction set is half, 0.3 to 0.7
    "litgpt": Scripts(
        recompute="none",
        selective="",
        sharded_recompute="full",
        global_batch=128,
        typical=0.5,
        own_batches=True,
    ),
    MOST: Scripts(chunked=IN_16_BITS),  # the upper bound of a framework that is not named
}
"""Framework → its scripts."""


def scripts_of(framework: Framework) -> Scripts:
    """Return what a framework's scripts do."""
    return scripts_named(framework.name)


def scripts_named(framework: str) -> Scripts:
    """Return what the scripts of a framework of this name do; the usual where none is known."""
    return SCRIPTS.get(framework, USUAL)


@record
class LibraryScripts:
    """Defaults of the scripts of a fine-tuning library.

    all_linear   adapters are on all linear layers
    loads_fp32   all weights are trained as a script has loaded them: in fp32 if that names no dtype, before
                 transformers 5 (modeling_utils.py, from_pretrained: dtype "auto" since then), and then the step runs
                 under autocast
    undated      it is as old as transformers 4
    reentrant    checkpoints of a run that states no version are reentrant under FSDP's first version, as those of
                 transformers 4 are
    holds_logits its loop holds the logits until the backward pass is over: the variable for what the model returned
                 lives on (`outputs = model(**batch); outputs.loss.backward()`: huggingface/peft
                 method_comparison/MetaMathQA/run.py, train; AnswerDotAI/fsdp_qlora train.py, fsdp_main). A library's
                 function returns the loss alone (transformers 5 trainer.py, compute_loss)
    """

    all_linear: bool = False
    loads_fp32: bool = False
    undated: bool = False
    reentrant: bool = True
    holds_logits: bool = False


LIBRARIES = {
    "none": LibraryScripts(undated=True, reentrant=False, holds_logits=True),
    "hf-trainer": LibraryScripts(loads_fp32=True, undated=True),
    "accelerate": LibraryScripts(loads_fp32=True, undated=True),
    **dict.fromkeys(("ms-swift", "llama-factory", "unsloth"), LibraryScripts(all_linear=True)),
}
"""Fine-tuning library → its scripts."""


def scripts_of_library(trainer: Trainer) -> LibraryScripts:
    """Return what a fine-tuning library's scripts do."""
    return library_named(trainer.name)


def library_named(name: str) -> LibraryScripts:
    """Return what the scripts of a fine-tuning library of this name do."""
    return LIBRARIES.get(name, LibraryScripts())
