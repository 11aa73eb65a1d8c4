"""What the scripts of frameworks and of fine-tuning libraries do where a published row does not say.

Which tensors a framework keeps is in training/frameworks.py, and what a library changes in training/trainers.py; this
serves the reading of rows only."""

from __future__ import annotations

from napkin.record import record
from napkin.training.framework import Framework
from napkin.training.recomputation import OPERATIONS
from napkin.training.trainer import Trainer


@record
class Scripts:
    """Defaults of a framework's scripts, and of its recipes, where a row names one (`layout.recipe_defaults`).

    recompute        what they recompute; "" if it is not known, so that a run may have recomputed or not
    selective        what a row means by selective recomputation
    sharded_recompute  what they recompute on several GPUs, whatever a row says of none; "" if as on one
    sequence_parallel  whether it may be on under tensor parallelism, each possibility; () if the framework has none
    ends_apart       embedding and head of adapted networks may be FSDP units of their own, or not
    global_batch     sequences of a step; 0 if the row's batch decides
    typical          length of a sample at the peak over the longest one, on several GPUs
    targets, recipe_targets  LoRA's target modules; those of a recipe that quantizes nothing
    lora_dropout     its dropout
    quantizer        whose quantized layers adapters run on (operations/tuning.py, library)
    recipe_chunks    a recipe's loss never holds all logits
    recipe_optimizer  the optimizer of a recipe that trains all weights, as rows name it
    recipe_offloads  a recipe may offload activations
    step_bytes       bytes per element that the optimizer step allocates without ZeRO, in addition to those with it
    eager_context    its CUDA context has all kernels (CUDA before 11.7)
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
    lora_dropout: float = 0.05
    quantizer: str = "bitsandbytes"
    recipe_chunks: bool = False
    recipe_optimizer: str = "adamw"
    recipe_offloads: bool = False
    step_bytes: int = 0
    eager_context: bool = False


USUAL = Scripts()
SCRIPTS = {
    # from before sequence parallelism (Korthikanti et al. 2022)
    "megatron": Scripts(recompute="none", sequence_parallel=()),
    "megatron-deepspeed": Scripts(recompute="none", sequence_parallel=(), step_bytes=4, eager_context=True),
    "nanotron": Scripts(recompute="none"),
    # its recipes: activation_checkpoint.mode selective, selective_ac_option op
    "torchtitan": Scripts(recompute=OPERATIONS, selective=OPERATIONS, sequence_parallel=(1,)),
    # recipes/configs/llama3*/…lora_single_device.yaml, LoRA's of 2024-09: q and v; custom_sharded_layers is set for
    # full fine-tuning only; llama3_1/8B_full_single_device.yaml: the optimizer
    "torchtune": Scripts(
        ends_apart=True,
        targets=("q", "v", "o", "gate", "up", "down"),
        lora_dropout=0.0,
        quantizer="torchao",
        recipe_chunks=True,
        recipe_optimizer="paged adamw 8bit in backward",
        recipe_offloads=True,
    ),
    # finetune/*.py: FSDPStrategy(activation_checkpointing_policy={Block}); 128 sequences of one optimizer step; the
    # first step takes the longest sample (lora.py), of which a typical one of an instruction set is half, 0.3 to 0.7
    "litgpt": Scripts(recompute="none", sharded_recompute="full", global_batch=128, typical=0.5),
}
"""Framework → its scripts."""


def scripts_of(framework: Framework) -> Scripts:
    """Return what a framework's scripts do."""
    return SCRIPTS.get(framework.name, USUAL)


@record
class LibraryScripts:
    """Defaults of the scripts of a fine-tuning library.

    all_linear   adapters are on all linear layers
    loads_fp32   all weights are trained as a script has loaded them: in fp32 if that names no dtype, before
                 transformers 5 (modeling_utils.py, from_pretrained: dtype "auto" since then), and then the step runs
                 under autocast
    undated      it is as old as transformers 4
    """

    all_linear: bool = False
    loads_fp32: bool = False
    undated: bool = False


LIBRARIES = {
    "none": LibraryScripts(undated=True),
    "hf-trainer": LibraryScripts(loads_fp32=True, undated=True),
    "accelerate": LibraryScripts(loads_fp32=True, undated=True),
    **dict.fromkeys(("ms-swift", "llama-factory", "unsloth"), LibraryScripts(all_linear=True)),
}
"""Fine-tuning library → its scripts."""


def scripts_of_library(trainer: Trainer) -> LibraryScripts:
    """Return what a fine-tuning library's scripts do."""
    return LIBRARIES.get(trainer.name, LibraryScripts())
