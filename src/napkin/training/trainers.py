"""Fine-tuning libraries by name, with their defaults.

Each fact comes from public code, at the commit or version in its source.
"""

from __future__ import annotations

from napkin.errors import NapkinError, did_you_mean
from napkin.options.rollout import MOVED
from napkin.record import replace
from napkin.training.divisions import MEGATRON, ON_FSDP1, ON_FSDP2, SHARDED, TRANSFORMERS, UNDIVIDED, WHOLE
from napkin.training.framework import Divisions
from napkin.training.generating_trainers import GENERATING
from napkin.training.trainer import RANK, Backend, Trainer

LOOP = Trainer(
    "none",
    "peft 0.21 tuners/tuners_utils.py, cast_adapter_dtype: adapters in fp32 (autocast_adapter_dtype)",
    autocast=False,
    movable=MOVED,
    backends=(
        *(Backend(name) for name in ("plain", "megatron", "megatron-deepspeed", "megatron-core", "colossalai")),
        Backend("deepspeed", Divisions(staged=False), implied=(1, 2, 3)),
        Backend("fsdp", Divisions(staged=False)),
    ),
)
"""A plain loop around transformers and peft."""
TRAINERS: dict[str, Trainer] = {
    one.name: one
    for one in (
        LOOP,
        Trainer(
            "hf-trainer",
            "transformers 5 trainer.py, autocast_smart_context_manager: autocast under bf16 or fp16; peft's adapters; "
            "integrations/deepspeed.py: a ZeRO stage is DeepSpeed's",
            backends=TRANSFORMERS,
            widens=True,
            defers=True,
        ),
        Trainer(
            "accelerate",
            "accelerate accelerator.py, prepare_model: forward under autocast; peft's adapters; utils/dataclasses.py, "
            "MegatronLMPlugin: pp_degree; DeepSpeedPlugin: zero_stage; FullyShardedDataParallelPlugin: fsdp_version 1",
            version=1,
            backends=(*TRANSFORMERS, Backend("megatron-core", Divisions(context=(), heads=()))),
            defers=True,
        ),
        Trainer(
            "trl",
            "huggingface/trl trl/trainer/sft_trainer.py: adapters of a quantized base are cast to bf16; utils.py, "
            "create_model_from_path: a model is loaded in float32 unless a dtype is given; its configs "
            "set gradient_checkpointing since a222aeb46 (8 August 2025, release 0.22); sft_config.py, loss_type "
            "chunked_nll since b58947c7e (14 June 2026, release 1.7); "
            "grpo_config.py: vllm_gpu_memory_utilization 0.3, vllm_enable_sleep_mode off, num_generations 8, "
            "generation_batch_size: the micro-batches of all ranks; grpo_trainer.py and rloo_trainer.py, "
            "logits_to_keep: the completion's, _generate_and_score_completions: a rank's are padded to one length; "
            "trl/accelerate_configs: zero3.yaml is DeepSpeed's, fsdp2.yaml FSDP's",
            backends=TRANSFORMERS,
            group=8,
            pads=RANK,
            scores=("grpo", "rloo"),
            full="amp-bf16",
            loads="fp32",
            beside_quantized="bf16",
            checkpoints=True,
            since=(0, 22),
            loss="chunked-recomputed",
            loss_since=(1, 7),
            share=0.3,
            engine="vllm",
            sleeps=False,
            defers=True,
        ),
        Trainer(
            "axolotl",
            "axolotl-ai-cloud/axolotl src/axolotl/loaders/{model,adapter}.py: norms back to torch_dtype; "
            "cli/merge_lora.py: bnb_4bit_use_double_quant is on; monkeypatch/accelerate/fsdp2.py, fsdp2_prepare_model "
            "in place of accelerate's: no cast to fp32, _process_lora_module_for_fsdp: fully_shard of each matrix of "
            "an adapter; docs/nd_parallelism.qmd: FSDP is recommended and is ZeRO-2 and "
            "ZeRO-3, DeepSpeed has tensor-parallel ranks only; deepspeed_configs/zero{1,3,3_bf16}.json",
            backends=(
                Backend("plain", WHOLE),
                Backend("deepspeed", Divisions(tensor=(0, 1, 2), context=(), heads=(), staged=False), implied=(1,)),
                Backend("fsdp", ON_FSDP2, first=ON_FSDP1, implied=(2, 3)),
            ),
            as_loaded=True,
            units=(1, 2),
            nested=True,
            kernels="axolotl",
            defers=True,
            auto_buckets=True,
        ),
        Trainer(
            "llama-factory",
            "hiyouga/LLaMA-Factory src/llamafactory/model/adapter.py: trained parameters in fp32 unless pure_bf16; "
            "hparams/model_args.py, double_quantization; src/llamafactory/train/mca/workflow.py: Megatron-core; "
            "examples/deepspeed: ds_z3_config.json, ds_z2_autotp_config.json, ds_z3_alst_config.json",
            nested=True,
            casts=True,
            backends=(
                Backend("plain", UNDIVIDED),
                SHARDED,
                Backend("fsdp", replace(UNDIVIDED, zero=(0, 2, 3))),
                MEGATRON,
            ),
            full="amp-bf16",
            checkpoints=True,
            defers=True,
            auto_buckets=True,
        ),
        Trainer(
            "ms-swift",
            "modelscope/ms-swift swift/llm/argument: torch_dtype bf16, lora_dtype None: peft's; lora_dropout 0.05; "
            "swift/trainers/rlhf_trainer/grpo_trainer.py, logits_to_keep; swift/arguments/base_args/quant_args.py; "
            "swift/megatron/arguments/megatron_args.py: padding_free on, recompute_granularity selective, of "
            "core_attn; swift/arguments/sft_args.py: deepspeed zero0 to zero3, deepspeed_autotp_size; "
            "swift/config/zero3.json; "
            "sequence_parallel_size: heads are exchanged, or keys passed on; swift/trainers/patcher.py and "
            "swift/megatron/callbacks/print.py: memory(GiB) is max_memory_reserved; modelscope/mcore-bridge "
            "src/mcore_bridge/tuners/lora.py, LoraParallelLinear; docs/source_en/Instruction/"
            "Command-line-parameters.md, offload_optimizer, offload_model: during inference with vLLM, off by default",
            prints="reserved",
            movable=MOVED,
            own_adapters=("megatron-core",),
            nested=True,
            joins=("megatron-core",),
            backends=(
                Backend("plain", Divisions(zero=(0,), tensor=(), staged=False)),
                Backend("deepspeed", Divisions(tensor=(0, 1, 2), staged=False), implied=(1, 2, 3)),
                Backend("fsdp", Divisions(zero=(0, 2, 3), tensor=(), staged=False)),
                MEGATRON,
            ),
            keeps=("megatron-core",),
            scores=("grpo",),
            dropout=0.05,
            checkpoints=True,
            defers=True,
            auto_buckets=True,
        ),
        Trainer(
            "unsloth",
            "unslothai/unsloth unsloth/models/_utils.py, float32_mixed_precision; unslothai/unsloth-zoo "
            "unsloth_zoo/gradient_checkpointing.py, Unsloth_Offloaded_Gradient_Checkpointer; unsloth/models/llama.py, "
            "fast_inference: the model is made of vLLM's own tensors (convert_vllm_to_huggingface), "
            "gpu_memory_utilization 0.5, standby only where UNSLOTH_VLLM_STANDBY asks for it; "
            "bnb_4bit_use_double_quant; unsloth-zoo temporary_patches/moe_utils_bnb4bit.py (since May 2026), "
            "gpt_oss.py, GptOssExpertsBnb4bit: experts are quantized too; unsloth.ai/docs, multi-GPU training: DDP, "
            "and what a script sets up by itself; LLaMA-Factory src/llamafactory/hparams/parser.py: incompatible with "
            "ZeRO-3; unslothai/notebooks: peak reserved memory, max_memory_reserved",
            prints="reserved",
            backends=(
                Backend("plain", UNDIVIDED),
                Backend("deepspeed", replace(UNDIVIDED, zero=(0, 1, 2))),
                Backend("fsdp", replace(UNDIVIDED, zero=(0, 2, 3))),
            ),
            casts=True,
            nested=True,
            experts=True,
            checkpoints=True,
            offloads=True,
            kernels="unsloth",
            engine="vllm",
            applies=True,
            shares=True,
            sleeps=False,
        ),
        Trainer(
            "torchtune",
            "meta-pytorch/torchtune recipes/lora_finetune_single_device.py: everything in the recipe's dtype; "
            "full_finetune_distributed.py: tensor_parallel_dim, context_parallel_dim, fsdp_reshard_after_forward",
            implementation="torchtune",
            framework="torchtune",
            backends=(
                Backend("torchtune", Divisions(zero=(0, 2, 3), tensor=(2, 3), context=(2, 3), heads=(), staged=False)),
            ),
            adapters="bf16",
            beside_quantized="bf16",
            autocast=False,
        ),
        Trainer(
            "nemo",
            "NVIDIA/NeMo megatron_gpt_peft_tuning_config.yaml: bf16 parameters, distributed optimizer",
            implementation="megatron",
            framework="megatron-core",
            backends=(MEGATRON,),
            adapters="bf16",
            beside_quantized="bf16",
            autocast=False,
            software="megatron-core",
        ),
        *GENERATING,
        Trainer(
            "nemo-automodel",
            "NVIDIA-NeMo/Automodel: FSDP2, Transformer Engine's kernels, adapters in the model's dtype; "
            "nemo_automodel/components/distributed/{fsdp2,ddp}.py: tp_size, cp_size; pipelining/autopipeline.py",
            backends=(
                Backend("plain", Divisions(zero=(0,), heads=())),
                Backend("fsdp", Divisions(zero=(0, 2, 3), heads=()), implied=(2, 3)),
            ),
            adapters="bf16",
            beside_quantized="bf16",
            autocast=False,
            units=(),
            software="fsdp-compiled",
        ),
    )
}


def find(text: str) -> Trainer:
    """Return the library of that name; an unknown one is refused (2)."""
    word = text.strip().lower()
    if word not in TRAINERS:
        from napkin.training.frameworks import FRAMEWORKS

        hint = f"--framework {word}" if word in FRAMEWORKS else did_you_mean(word, TRAINERS)
        hint = hint or f"one of {', '.join(TRAINERS)}"
        raise NapkinError(f"--trainer: {text.strip()[:60]!r} is not known", hint)
    return TRAINERS[word]
