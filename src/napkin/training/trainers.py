"""Fine-tuning libraries by name, with their defaults.

Each fact comes from public code, at the commit or version in its source.
"""

from __future__ import annotations

from napkin.errors import NapkinError, did_you_mean
from napkin.training.trainer import PENALIZED, Trainer

LOOP = Trainer(
    "none",
    "peft 0.21 tuners/tuners_utils.py, cast_adapter_dtype: adapters in fp32 (autocast_adapter_dtype)",
    autocast=False,
    stages=("plain", "megatron", "megatron-deepspeed", "megatron-core", "colossalai"),
)
"""A plain loop around transformers and peft."""
TRAINERS: dict[str, Trainer] = {
    one.name: one
    for one in (
        LOOP,
        Trainer(
            "hf-trainer",
            "transformers 5 trainer.py, autocast_smart_context_manager: autocast under bf16 or fp16; peft's adapters",
            widens=True,
            defers=True,
        ),
        Trainer(
            "accelerate",
            "accelerate accelerator.py, prepare_model: forward under autocast; peft's adapters; utils/dataclasses.py, "
            "MegatronLMPlugin: pp_degree",
            stages=("megatron-core",),
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
            "logits_to_keep: the completion's",
            group=8,
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
            "in place of accelerate's: no cast to fp32",
            as_loaded=True,
            nested=True,
            kernels="axolotl",
            defers=True,
        ),
        Trainer(
            "llama-factory",
            "hiyouga/LLaMA-Factory src/llamafactory/model/adapter.py: trained parameters in fp32 unless pure_bf16; "
            "hparams/model_args.py, double_quantization; src/llamafactory/train/mca/workflow.py: Megatron-core",
            nested=True,
            stages=("megatron-core",),
            full="amp-bf16",
            checkpoints=True,
            defers=True,
        ),
        Trainer(
            "ms-swift",
            "modelscope/ms-swift swift/llm/argument: torch_dtype bf16, lora_dtype None: peft's; lora_dropout 0.05; "
            "swift/trainers/rlhf_trainer/grpo_trainer.py, logits_to_keep; swift/arguments/base_args/quant_args.py; "
            "swift/megatron/arguments/megatron_args.py: padding_free on, recompute_granularity selective, of core_attn",
            nested=True,
            joins=("megatron-core",),
            stages=("megatron-core",),
            keeps=("megatron-core",),
            scores=("grpo",),
            dropout=0.05,
            checkpoints=True,
            defers=True,
        ),
        Trainer(
            "unsloth",
            "unslothai/unsloth unsloth/models/_utils.py, float32_mixed_precision; unslothai/unsloth-zoo "
            "unsloth_zoo/gradient_checkpointing.py, Unsloth_Offloaded_Gradient_Checkpointer; unsloth/models/llama.py, "
            "fast_inference: the model is made of vLLM's own tensors (convert_vllm_to_huggingface), "
            "gpu_memory_utilization 0.5, standby only where UNSLOTH_VLLM_STANDBY asks for it; "
            "bnb_4bit_use_double_quant; unsloth-zoo temporary_patches/moe_utils_bnb4bit.py (since May 2026), "
            "gpt_oss.py, GptOssExpertsBnb4bit: experts are quantized too",
            nested=True,
            experts=True,
            checkpoints=True,
            offloads=True,
            kernels="unsloth",
            engine="vllm",
            shares=True,
            sleeps=False,
            software="lean",
        ),
        Trainer(
            "torchtune",
            "meta-pytorch/torchtune recipes/lora_finetune_single_device.py: everything in the recipe's dtype",
            implementation="torchtune",
            framework="torchtune",
            adapters="bf16",
            beside_quantized="bf16",
            autocast=False,
        ),
        Trainer(
            "nemo",
            "NVIDIA/NeMo megatron_gpt_peft_tuning_config.yaml: bf16 parameters, distributed optimizer",
            implementation="megatron",
            framework="megatron-core",
            stages=("megatron-core",),
            adapters="bf16",
            beside_quantized="bf16",
            autocast=False,
            software="megatron-core",
        ),
        Trainer(
            "verl",
            "volcengine/verl verl/trainer/config/engine/fsdp.yaml: model_dtype fp32, bf16 compute, fsdp_size -1 and "
            "reshard_after_forward: divided over all ranks; model/hf_model.yaml: use_remove_padding; "
            "verl/trainer/config: use_kl_loss and use_kl_in_reward are off, rollout.tensor_model_parallel_size 2, "
            "rollout.name vllm; actor.yaml: no micro-batch size, ppo_max_token_len_per_gpu 16384; "
            "docs/perf/perf_tuning.rst: at least twice the longest sequence; "
            "docs/advance/delta_weight_sync.md: full broadcasts, 7B in 5.5 to 6 s, 72B in 28.5, "
            "235B in 246 to 266; trainer/config/engine/megatron.yaml: pipeline_model_parallel_size",
            full="amp-bf16",
            loads="fp32",
            checkpoints=True,
            penalizes=(),
            engine="vllm",
            ranks=2,
            unpads=True,
            packs=16384,
            longest=(2,),
            broadcast=2.6e9,
            framework="fsdp",
            divides=(("fsdp", 3), ("megatron-core", 1)),
            stages=("megatron-core",),
        ),
        Trainer(
            "openrlhf",
            "OpenRLHF/OpenRLHF openrlhf/utils/deepspeed: ZeRO with bf16 parameters and fp32 master copies; "
            "openrlhf/cli/train_ppo_ray.py: algo.kl.init_coef 0.01, ds.zero_stage 2, "
            "micro_train_batch_size 4; README.md: responses by vLLM",
            framework="deepspeed",
            divides=(("deepspeed", 2),),
            engine="vllm",
            micro=4,
            penalizes=(*PENALIZED, "grpo"),
        ),
        Trainer(
            "nemo-rl",
            "NVIDIA-NeMo/RL examples/configs/grpo_math_1B.yaml: generation.backend vllm, gpu_memory_utilization 0.6, "
            "bf16, reference_policy_kl_penalty 0.01, sequence_packing of 4 × 512 tokens; grpo_math_8B.yaml: of "
            "the longest sequence; nemo_rl/algorithms/grpo.py: offload_before_refit, offload_after_refit, "
            "timer policy_and_reference_logprobs; dtensor_cfg: FSDP2 around transformers' models, whose weights are "
            "loaded in float32; megatron_cfg: pipeline_model_parallel_size, "
            "distributed_data_parallel_config.use_distributed_optimizer",
            full="amp-bf16",
            loads="fp32",
            implementation="megatron",
            framework="megatron-core",
            also=("fsdp",),
            divides=(("megatron-core", 1), ("fsdp", 3)),
            stages=("megatron-core",),
            adapters="bf16",
            beside_quantized="bf16",
            autocast=False,
            share=0.6,
            engine="vllm",
            away=("optimizer", "parameters"),
            unpads=True,
            packs=2048,
            longest=(1,),
            timer=("logprobs", "reference"),
            penalizes=(*PENALIZED, "grpo"),
            apart=False,
            software="megatron-core",
        ),
        Trainer(
            "nemo-automodel",
            "NVIDIA-NeMo/Automodel: FSDP2, Transformer Engine's kernels, adapters in the model's dtype; "
            "nemo_automodel/components/distributed/pipelining/autopipeline.py",
            stages=("plain",),
            adapters="bf16",
            beside_quantized="bf16",
            autocast=False,
            apart=False,
            software="fsdp-compiled",
        ),
    )
}


def find(text: str) -> Trainer:
    """Return the library of that name; an unknown one is refused (2)."""
    word = text.strip().lower()
    if word not in TRAINERS:
        hint = did_you_mean(word, TRAINERS) or f"one of {', '.join(TRAINERS)}"
        raise NapkinError(f"--trainer: {text.strip()[:60]!r} is not known", hint)
    return TRAINERS[word]
