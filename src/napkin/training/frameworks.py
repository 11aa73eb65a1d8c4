"""What training frameworks do with memory, where they differ: facts of their code, each with its place.

The formulas of memory.py are the same for all; a profile says which tensors there are. What a run's own flags decide
(layout, policy, recomputation, dropout) is no part of it.
"""

from __future__ import annotations

from napkin.record import record, replace
from napkin.training.precision import Precision

EVEN, FRONT, SLOTS, COST = "even", "front", "slots", "cost"
WORST, FIRST, ENDS = "worst", "first", "ends"


@record
class Framework:
    """
    implementation  whose model code it runs (implementations.py)
    attention     its kernel where nobody says         dropout  its default
    partition     how layers are dealt to pipeline stages. even: as evenly as can be, the earlier ones more · front:
                  ⌈L/p⌉ each, the last what is left · slots: embedding and head count as a layer each · cost: by
                  shares of the weights that are multiplied, a block's against the head's
    accumulator   bytes an element of the buffer in which gradients of micro-batches are added up, beside the gradients
    step_bytes    bytes an element that the optimizer step makes for its own part (fp32 gradients, flat copies)
    bucket        elements of the bucket that gradients are reduced in, of the type that they are added up in
    wide_gradients  gradients are kept in fp32 beside 16-bit parameters, in one buffer that stands through the step
    gathers       parameters are sharded in fp32 and cast as they are gathered: layers run in the compute type
    ends_apart    table and head are units of their own, gathered one at a time
    frees_last    the last layer's parameters are let go before the loss, as all others' (FSDP of torch 1.11 to 2.x; its
                  successor fully_shard keeps them for the backward pass)
    keeps_stage   with a pipeline the stage's parameters stay gathered, and its gradients whole
    unsynced      gradients of a layer's flat parameter, frozen weights among trained ones included, stand unsharded
                  until the last micro-batch
    pads          the vocabulary is padded to a multiple of this · tp, where a launch line does not say otherwise
    reported      whose memory its log prints: the worst rank's, the first stage's, the larger of both ends'
    differs       choices of its code (implementations.py `Implementation`) that are other than its implementation's
    """

    name: str
    says: str
    source: str
    implementation: str = "hf"
    attention: str = "flash"
    dropout: float = 0.0
    partition: str = EVEN
    accumulator: int = 0
    step_bytes: int = 0
    bucket: int = 0
    wide_gradients: bool = False
    gathers: bool = False
    ends_apart: bool = False
    frees_last: bool = False
    keeps_stage: bool = False
    unsynced: bool = False
    pads: int = 0
    reported: str = WORST
    differs: tuple[tuple[str, object], ...] = ()

    def formats(self, policy: Precision) -> Precision:
        """A policy with fp32 master copies as the framework keeps it: sharded fp32 parameters that are cast as they are
        gathered need no copy; or fp32 gradients beside 16-bit parameters."""
        if policy.master is None:
            return policy
        if self.gathers:
            compute = policy.compute if policy.compute in ("bf16", "fp16") else "bf16"
            return replace(policy, param="fp32", grad="fp32", compute=compute, master=None)
        return replace(policy, grad="fp32") if self.wide_gradients else policy


PLAIN = Framework("plain", "one loop around torch", "torch.optim, torch.autograd")
FRAMEWORKS: dict[str, Framework] = {
    one.name: one
    for one in (
        PLAIN,
        Framework(
            "megatron",
            "Megatron-LM of 2019 to 2022",
            "Korthikanti et al. 2022, arXiv:2205.05198, sections 4 and 6: fp16, fp32 gradients, dropout 0.1",
            pads=128,
            implementation="megatron-2022",
            attention="eager",
            dropout=0.1,
            wide_gradients=True,
        ),
        Framework(
            "megatron-deepspeed",
            "Megatron-DeepSpeed (BLOOM)",
            "bigscience-workshop/Megatron-DeepSpeed megatron/model/gpt_model.py, mpu/cross_entropy.py; DeepSpeed of "
            "February 2022, runtime/zero/stage_1_and_2.py (fp32 copies of the own part in the step, buckets of 5e8)",
            pads=128,
            implementation="megatron-2022",
            attention="eager",
            dropout=0.1,
            partition=FRONT,
            step_bytes=6,
            bucket=500_000_000,
            reported=ENDS,
        ),
        Framework(
            "megatron-core",
            "Megatron-core, NeMo, Megatron Bridge",
            "NVIDIA/Megatron-LM megatron/core/distributed/distributed_data_parallel.py: fp32 gradients in one buffer",
            pads=128,
            implementation="megatron",
            wide_gradients=True,
        ),
        Framework(
            "deepspeed",
            "DeepSpeed's ZeRO around a Hugging Face model",
            "microsoft/DeepSpeed deepspeed/runtime/zero/stage_1_and_2.py, config defaults: buckets of 5e8",
            bucket=500_000_000,
        ),
        Framework(
            "fsdp",
            "PyTorch FSDP with mixed precision around a Hugging Face model",
            "pytorch/pytorch torch/distributed/fsdp: fp32 shards, gathered in the compute type",
            gathers=True,
        ),
        Framework(
            "nanotron",
            "nanotron",
            "huggingface/nanotron src/nanotron/helpers.py create_table_log, models/llama.py get_block_compute_costs, "
            "models/base.py build_model, "
            "optim/gradient_accumulator.py (fp32 buffers of all weights)",
            implementation="nanotron",
            partition=COST,
            accumulator=4,
            reported=FIRST,
        ),
        Framework(
            "torchtitan",
            "torchtitan: FSDP2 with bf16 compute, fp32 shards",
            "pytorch/torchtitan torchtitan/parallelisms/parallelize_llama.py, train.py, metrics.py (December 2024)",
            implementation="torchtitan",
            gathers=True,
            keeps_stage=True,
        ),
        Framework(
            "torchtune",
            "torchtune: single-device and FSDP recipes in bf16",
            "meta-pytorch/torchtune torchtune/modules/{rms_norm,attention}.py, modules/loss/ce_chunked_output_loss.py; "
            "recipes/configs/llama3_1/70B_full.yaml, custom_sharded_layers",
            implementation="torchtune",
            ends_apart=True,
        ),
        Framework(
            "litgpt",
            "LitGPT's fine-tuning scripts",
            "Lightning-AI/litgpt lit_gpt/{model,lora,adapter,adapter_v2,rmsnorm}.py, finetune/*.py (October 2023)",
            implementation="litgpt",
            frees_last=True,
            unsynced=True,
        ),
    )
}


def unnamed(divided: bool, sharded: bool, alone: bool) -> tuple[Framework, Framework]:
    """The least and the most that training code holds of which nobody says whose it is. `divided`: its layers are split
    over tensor-parallel ranks, as only code of Megatron's kind does; `sharded`: its parameters over data-parallel ones;
    `alone`: it runs on one card.

    least   a loss that works in its logits' place; norms, rotation and the gate's product as kernels of their own;
            inputs of divided products gathered again in backward; gradients in their own type alone
    most    a loss with fp32 copies; these written out, keys repeated for every head, gathered inputs kept; an fp32
            buffer that gradients
            of micro-batches are added up in, where several cards hold whole parameters"""
    says = "whose framework nobody names"
    source = "what the codes of this file do, at both ends"
    implementation = "megatron" if divided else "hf"
    least: tuple[tuple[str, object], ...] = (("loss", "vocabulary"),)
    most: tuple[tuple[str, object], ...] = (("loss", "dtensor"), ("gather_again", False), ("swiglu", "split"))
    if not divided:
        least = (("loss", "compiled"), ("norms", "fused"), ("rotary", "kernel"), ("swiglu", "fused"))
        most = (("norms", "fp32"), ("repeats", True))
    return (
        Framework("least", says, source, implementation=implementation, gathers=sharded, differs=least),
        Framework(
            "most",
            says,
            source,
            implementation=implementation,
            gathers=sharded,
            accumulator=0 if sharded or alone else 4,
            differs=most,
        ),
    )
