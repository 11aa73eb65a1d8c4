"""Differences between training frameworks in memory: facts about their source code, each with its location.

The formulas of memory.py are the same for all; a record says which tensors exist. What a run's own flags decide
(layout, precision, recomputation, dropout) is not part of it."""

from __future__ import annotations

from napkin.operations.implementations import HUGGING_FACE
from napkin.options.training import MODULES
from napkin.record import replace
from napkin.training.framework import COMPUTE, COST, ENDS, FIRST, FRONT, Divisions, Earlier, Edition, Framework

ZERO_3 = "ZeRO-3"
PLAIN = Framework("plain", "one loop around torch", "torch.optim, torch.autograd, torch.nn.parallel", reducer=True)
FRAMEWORKS: dict[str, Framework] = {
    one.name: one
    for one in (
        PLAIN,
        Framework(
            "megatron",
            "Megatron-LM of 2019 to 2022",
            "Korthikanti et al. 2022, arXiv:2205.05198, sections 4 and 6: fp16, fp32 gradients, dropout 0.1",
            software="megatron",
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
            software="megatron-deepspeed",
            pipelined=1,
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
            "NVIDIA/Megatron-LM megatron/core/distributed/distributed_data_parallel.py: fp32 gradients in one buffer; "
            "megatron/core/transformer/transformer_config.py, recompute_modules (since 3b141a24 of April 2025); "
            "NVIDIA/NeMo r2.0.0 nemo/collections/nlp/modules/common/megatron/adapters/parallel_adapters.py and "
            "NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/peft/utils.py, ParallelLinearAdapter",
            software="megatron-core",
            pads=128,
            implementation="megatron",
            wide_gradients=True,
            masters=True,
            reference_first=True,
            engine=True,
            recomputes=MODULES,
            divides_adapters=True,
            differs=(("fuses_gradients", True),),
            earlier=(
                Earlier(
                    202504,
                    (("differs", ()),),
                    "NVIDIA/TransformerEngine before ba5dc5dd (8 April 2025, release 2.3): a new tensor for each layer "
                    "each time, which is freed with its gradient",
                ),
            ),
        ),
        Framework(
            "deepspeed",
            "DeepSpeed's ZeRO around a Hugging Face model",
            "microsoft/DeepSpeed deepspeed/runtime/zero/stage_1_and_2.py, step: the own part's gradients are flattened "
            "and copied to fp32 before any is freed; stage3.py, _prepare_fp32_grad_for_sub_group: the same for each "
            "group, grad_partitions_flat_buffer (since 4912e0ad7 of January 2022): all gradients of the own part; "
            "runtime/comm/coalesced_collectives.py, reduce_scatter_coalesced; config.py: buckets of 5e8, "
            "sub_group_size 1e9",
            software="fsdp-eager",
            divides=Divisions(staged=False),
            pipelined=1,
            step_bytes=6,
            step_most=1_000_000_000,
            bucket=500_000_000,
            masters=True,
            host_step=True,
            interleaves=True,
            keeps_shards=True,
            unit_of_module=True,
            sharding=ZERO_3,
        ),
        Framework(
            "colossalai",
            "Colossal-AI's ZeRO and Gemini around a Hugging Face model",
            "hpcaitech/ColossalAI colossalai/zero/low_level/low_level_optim.py, step: fp32 copies of the own part's "
            "gradients; booster/plugin/hybrid_parallel_plugin.py: zero_bucket_size_in_m 12; shardformer/layer/loss.py: "
            "logits without the last token's, torch's cross entropy; examples/language/llama/benchmark.py and "
            "applications/Colossal-LLaMA/train.py: Max CUDA memory usage, max_memory_allocated",
            prints="allocated",
            software="fsdp-eager",
            step_bytes=4,
            bucket=12 * 2**20,
        ),
        Framework(
            "fsdp",
            "PyTorch FSDP with mixed precision around a Hugging Face model",
            "pytorch/pytorch torch/distributed/fsdp: fp32 shards, gathered in the compute type; "
            "fully_sharded_data_parallel.py: sharding_strategy None is FULL_SHARD",
            software="fsdp-eager",
            zero=3,
            divides=Divisions(staged=False),
            gathers=True,
            root_last=True,
            at_loss=0,
            reduced_in=COMPUTE,
            fsdp=2,
            unit_of_layer=True,
        ),
        Framework(
            "oneflow",
            "OneFlow's compiled jobs, single_client",
            "Oneflow-Inc/oneflow at 75f11b825 (14 May 2021): core/job/intra_job_mem_sharing_util.cpp; core/graph/"
            "task_graph.cpp, IsSpecialOpNotConsiderMergeInChain; core/job_rewriter/auto_mixed_precision.cpp (fp32 "
            "variables and their casts), fuse_cast_scale_pass.cpp, autograd.cpp (ClipGradientByGlobalNorm), "
            "pipeline_buffer_pass.cpp; user/kernels/sparse_softmax_cross_entropy_kernel.cu; Oneflow-Inc/"
            "OneFlow-Benchmark LanguageModeling/GPT/oneflow_gpt: dropout 0.1, no fused attention",
            pads=128,
            implementation="megatron-2022",
            attention="eager",
            dropout=0.1,
            divides=Divisions(zero=(0, 1), context=(), heads=()),
            autocasts=True,
            wide_copies=4,
            planned=True,
            program=True,
            differs=(("loss", "compiled"),),
        ),
        Framework(
            "nanotron",
            "nanotron",
            "huggingface/nanotron src/nanotron/helpers.py create_table_log, models/llama.py get_block_compute_costs, "
            "models/base.py build_model, "
            "optim/gradient_accumulator.py (fp32 buffers of all weights)",
            software="nanotron",
            implementation="nanotron",
            program=True,
            partition=COST,
            accumulator=4,
            reported=FIRST,
        ),
        Framework(
            "torchtitan",
            "torchtitan: FSDP2 with bf16 compute, fp32 shards",
            "pytorch/torchtitan torchtitan/parallelisms/parallelize_llama.py, train.py, metrics.py (December 2024): "
            "a step's line has memory, max_reserved_gib; "
            "config_manager.py: data_parallel_shard_degree -1, all ranks; "
            "torchtitan/float8.py: torchao's linear layers",
            prints="reserved",
            software="fsdp-compiled",
            zero=3,
            implementation="torchtitan",
            quantizer="torchao",
            program=True,
            gathers=True,
            fsdp=2,
            ends_apart=True,
            at_loss=0,
            reduced_in="fp32",
            keeps_stage=True,
            grows=True,
            divided_loss="dtensor",
            editions=(
                Edition(
                    202504,
                    "",
                    "compiled",
                    "pytorch/torchtitan torchtitan/components/loss.py, build_cross_entropy_loss since bbb1b616 (2 "
                    "April 2025): compiled with the model; e8977b007 (18 December 2024) had turned that off",
                ),
                Edition(
                    202604,
                    "chunked-backward-eager",
                    "chunked-backward",
                    "pytorch/torchtitan torchtitan/components/loss.py, ChunkedLossWrapper since 786e26f8 (27 April "
                    "2026), models/llama3/config_registry.py: every recipe takes it, with 8 parts",
                    divided="chunked-backward-divided",
                ),
            ),
            earlier=(
                Earlier(
                    202508,
                    (("ends_apart", False), ("at_loss", 1)),
                    "pytorch/torchtitan torchtitan/models/llama3/infra/parallelize.py, apply_fsdp before 83e69410 (28 "
                    "July 2025): embedding, norm and head are the root's, the last block is not freed before the loss",
                ),
            ),
        ),
        Framework(
            "torchtune",
            "torchtune: single-device and FSDP recipes in bf16",
            "meta-pytorch/torchtune torchtune/modules/{rms_norm,attention}.py, modules/loss/ce_chunked_output_loss.py; "
            "recipes/configs/llama3_1/70B_full.yaml, custom_sharded_layers",
            software="fsdp-eager",
            zero=3,
            divides=Divisions(staged=False),
            implementation="torchtune",
            quantizer="torchao",
            program=True,
            fsdp=2,
            ends_apart=True,
            at_loss=0,
            editions=(
                Edition(
                    202409,
                    "chunked-eager",
                    "chunked",
                    "meta-pytorch/torchtune recipes/configs since 4fba6cd44 (28 August 2024): CEWithChunkedOutputLoss, "
                    "LinearCrossEntropyLoss since 9c06c8bda (30 April 2025)",
                ),
            ),
        ),
        Framework(
            "litgpt",
            "LitGPT's fine-tuning scripts",
            "Lightning-AI/litgpt lit_gpt/{model,lora,adapter,adapter_v2,rmsnorm}.py, finetune/*.py (October 2023; "
            "Memory used: torch.cuda.max_memory_allocated)",
            prints="allocated",
            quantizer="bitsandbytes",
            software="fsdp-eager",
            zero=3,
            divides=Divisions(staged=False),
            implementation="litgpt",
            program=True,
            fsdp=1,
            at_loss=0,
            unsynced=True,
        ),
    )
}


def first_version(framework: Framework) -> Framework:
    """Return a framework with FSDP's first version, FullyShardedDataParallel, in place of fully_shard. The gradient of
    a unit is one flat tensor, which is reduced as it is, without a copy (torch/distributed/fsdp/_runtime_utils.py,
    _reduce_grad and _get_reduce_scatter_tensors), and a unit in which some parameters are frozen has a gradient of all
    of them, so that each matrix of an adapter is a unit (peft 0.21 utils/other.py, fsdp_auto_wrap_policy)."""
    return replace(framework, fsdp=1, reduced_in="", unit_of_adapter=True)


LEAST, MOST = "least", "most"
"""Names of the two bounds of a framework that is not named."""


def unnamed(divided: bool, sharded: bool, alone: bool) -> tuple[Framework, Framework]:
    """Return frameworks that bound the memory of an unnamed one from below and above.

    divided  layers are split over tensor-parallel ranks, as only Megatron-like frameworks do
    sharded  parameters are sharded over data-parallel ranks
    alone    the run is on one GPU

    The lower bound: a loss that works in place of its logits; fused norms, rotary embedding and gating; inputs of
    column-parallel layers gathered again in backward; gradients only in their own dtype. The upper bound: a loss with
    fp32 copies; unfused norms and rotary embedding, keys repeated for every head, gathered inputs kept; if several GPUs
    hold complete parameters, an fp32 buffer that accumulates gradients."""
    says = "a framework that is not named"
    source = "what the frameworks of this file do, at both ends"
    implementation = "megatron" if divided else HUGGING_FACE
    least: tuple[tuple[str, object], ...] = (("loss", "vocabulary"),)
    most: tuple[tuple[str, object], ...] = (("loss", "dtensor"), ("gather_again", False), ("swiglu", "split"))
    if not divided:
        least = (("loss", "compiled"), ("norms", "fused"), ("rotary", "kernel"), ("swiglu", "fused"))
        most = (("norms", "fp32"), ("few_heads", "repeated"))
    return (
        Framework(LEAST, says, source, implementation=implementation, gathers=sharded, differs=least),
        Framework(
            MOST,
            says,
            source,
            implementation=implementation,
            gathers=sharded,
            accumulator=0 if sharded or alone else 4,
            differs=most,
        ),
    )
