"""Libraries of reinforcement learning by name, with their defaults, as those of trainers.py."""

from __future__ import annotations

from napkin.options.rollout import MOVED
from napkin.record import replace
from napkin.training.divisions import ON_FSDP2, UNDIVIDED
from napkin.training.framework import Divisions
from napkin.training.trainer import LIMIT, PENALIZED, Backend, Trainer

GENERATING: tuple[Trainer, ...] = (
    Trainer(
        "verl",
        "volcengine/verl verl/trainer/config/engine/fsdp.yaml: model_dtype fp32, bf16 compute, fsdp_size -1 and "
        "reshard_after_forward: divided over all ranks; model/hf_model.yaml: use_remove_padding; "
        "verl/trainer/config: use_kl_loss and use_kl_in_reward are off, rollout.tensor_model_parallel_size 2, "
        "rollout.name vllm, enforce_eager false since 0.6; actor.yaml: no micro-batch size, "
        "ppo_max_token_len_per_gpu 16384; "
        "docs/perf/perf_tuning.rst: at least twice the longest sequence; "
        "model/hf_model.yaml, lora.merge false; rollout/vllm_rollout/vllm_async_server.py, LoRARequest; "
        "workers/fsdp_workers.py, update_actor: load_fsdp_optimizer where optimizer_offload or param_offload had "
        "moved states, and offload_fsdp_optimizer after it; "
        "docs/advance/delta_weight_sync.md: full broadcasts, 7B in 5.5 to 6 s, 72B in 28.5, "
        "235B in 246 to 266; pull request 3495: ray.put of a batch of 6,400 by 20,480 in 19.86 s; "
        "trainer/ppo/ray_trainer.py: left_right_2_no_padding before each pass of worker engines, the only workers "
        "since 0.8; trainer/config/engine/megatron.yaml: pipeline_model_parallel_size; "
        "workers/rollout/vllm_rollout in 0.4 to 0.7.0: a vLLM worker in each worker of the trainer; "
        "engine/fsdp.yaml: strategy fsdp, the first version; ulysses_sequence_parallel_size, no tensor parallelism",
        version=1,
        full="amp-bf16",
        loads="fp32",
        checkpoints=True,
        penalizes=(),
        engine="vllm",
        ranks=2,
        unpads=True,
        pads=LIMIT,
        packs=16384,
        longest=(2,),
        applies=True,
        broadcast=2.6e9,
        captures=(0, 6),
        hosts=(0, 7),
        dispatch=6400 * 20480 / 19.86,
        dispatches=(0, 8),
        movable=MOVED,
        returns=True,
        framework="fsdp",
        backends=(
            Backend("fsdp", replace(UNDIVIDED, zero=(0, 2, 3), heads=(2, 3)), usual=3),
            Backend("megatron-core", usual=1),
        ),
    ),
    Trainer(
        "openrlhf",
        "OpenRLHF/OpenRLHF openrlhf/utils/deepspeed: ZeRO with bf16 parameters and fp32 master copies; "
        "openrlhf/cli/train_ppo_ray.py: algo.kl.init_coef 0.01, ds.zero_stage 2, "
        "micro_train_batch_size 4, micro_rollout_batch_size 8, ds.tensor_parallel_size, ds.ring_attn_size; "
        "README.md: responses by vLLM; openrlhf/utils/deepspeed/deepspeed_utils.py: adam_offload is "
        "offload_optimizer of DeepSpeed; offload_deepspeed_states (ds.enable_sleep): optimizer states and master "
        "copies, not the 16-bit weights",
        movable=("optimizer",),
        framework="deepspeed",
        backends=(Backend("deepspeed", Divisions(tensor=(0, 1, 2), heads=(), staged=False), usual=2),),
        engine="vllm",
        micro=4,
        larger=2,
        penalizes=(*PENALIZED, "grpo"),
    ),
    Trainer(
        "nemo-rl",
        "NVIDIA-NeMo/RL examples/configs/grpo_math_1B.yaml: generation.backend vllm, gpu_memory_utilization 0.6, "
        "bf16, reference_policy_kl_penalty 0.01, sequence_packing of 4 × 512 tokens; grpo_math_8B.yaml: of "
        "the longest sequence, logprob_batch_size 2 next to train_micro_batch_size 1; nemo_rl/algorithms/grpo.py: "
        "offload_before_refit, offload_after_refit; dtensor_cfg.cpu_offload is FSDP2's CPUOffloadPolicy; "
        "timer policy_and_reference_logprobs; recipes/llm/performance/*async*.yaml: in_flight_weight_updates, with "
        "which algorithms/async_utils starts prompts of a later step as those of the step before end; "
        "dtensor_cfg: FSDP2 around transformers' models, whose weights are loaded in float32; "
        "megatron_cfg: pipeline_model_parallel_size, "
        "distributed_data_parallel_config.use_distributed_optimizer",
        full="amp-bf16",
        loads="fp32",
        implementation="megatron",
        framework="megatron-core",
        also=("fsdp",),
        backends=(Backend("megatron-core", usual=1), Backend("fsdp", ON_FSDP2, usual=3)),
        adapters="bf16",
        beside_quantized="bf16",
        autocast=False,
        share=0.6,
        engine="vllm",
        movable=MOVED,
        away=MOVED,
        unpads=True,
        packs=2048,
        longest=(1,),
        larger=2,
        timer=("logprobs", "reference"),
        joins_steps=True,
        penalizes=(*PENALIZED, "grpo"),
        units=(),
        software="megatron-core",
    ),
    Trainer(
        "skyrl",
        "NovaSky-AI/SkyRL skyrl/train/config/config.py: strategy fsdp (FSDP2, fp32 shards, bf16 compute), "
        "gradient_checkpointing, remove_microbatch_padding, use_kl_loss, gpu_memory_utilization 0.8; "
        "examples/train: micro_train_batch_size_per_gpu and micro_forward_batch_size_per_gpu from 1 to 64, 4 in "
        "the middle; skyrl/train/trainer.py, timer fwd_logprobs_values_reward: passes of the "
        "policy and of the reference; skyrl/backends/skyrl_train/workers/worker_dispatch.py: model and optimizer "
        "leave the GPUs while the engine generates; inference_servers/remote_inference_client.py, load_lora_adapter",
        full="amp-bf16",
        loads="fp32",
        checkpoints=True,
        framework="fsdp",
        backends=(
            Backend("fsdp", replace(UNDIVIDED, zero=(0, 2, 3), heads=(2, 3)), usual=3),
            Backend("megatron-core", usual=1),
        ),
        share=0.8,
        engine="vllm",
        movable=MOVED,
        away=MOVED,
        applies=True,
        unpads=True,
        micro=4,
        timer=("logprobs", "reference"),
        penalizes=(*PENALIZED, "grpo"),
    ),
    Trainer(
        "slime",
        "THUDM/slime slime/utils/arguments.py: micro_batch_size 1, use_kl_loss and kl_coef off, "
        "rollout_num_gpus_per_engine 1, colocate: the actor is offloaded meanwhile; scripts/*.sh: "
        "use-dynamic-batch-size of 9,216 tokens, recompute-granularity full, sglang-mem-fraction-static 0.7; "
        "slime/backends/megatron_utils/data.py, get_batch: sequences without padding; actor.py: timer log_probs",
        implementation="megatron",
        framework="megatron-core",
        backends=(Backend("megatron-core", usual=1),),
        adapters="bf16",
        beside_quantized="bf16",
        autocast=False,
        checkpoints=True,
        share=0.7,
        engine="sglang",
        movable=MOVED,
        away=MOVED,
        unpads=True,
        packs=9216,
        penalizes=(),
        units=(),
        software="megatron-core",
    ),
    Trainer(
        "areal",
        "inclusionAI/AReaL areal/api/cli_args.py: parameters in bfloat16, mem_fraction_static 0.9, a reference "
        "only where kl_ctl is above 0; examples: max_tokens_per_mb 10,240, gradient_checkpointing, kl_ctl 0; "
        "docs/en/algorithms/async.md: responses go on with new weights",
        checkpoints=True,
        framework="fsdp",
        backends=(
            Backend("fsdp", replace(UNDIVIDED, zero=(0, 2, 3), tensor=(2, 3), heads=(2, 3)), usual=3),
            Backend("megatron-core", usual=1),
        ),
        share=0.9,
        engine="sglang",
        unpads=True,
        packs=10240,
        joins_steps=True,
        penalizes=(),
    ),
    Trainer(
        "roll",
        "alibaba/ROLL roll/configs/base_config.py: init_kl_coef 0.2 enables the reference; "
        "configs/worker_config.py: no sequence packing, no removal of padding up to sequence_length; examples: "
        "megatron_train, per_device_train_batch_size 1, gpu_memory_utilization 0.8; roll/distributed/strategy: "
        "states are offloaded while others generate",
        implementation="megatron",
        framework="megatron-core",
        also=("fsdp",),
        backends=(Backend("megatron-core", usual=1), Backend("fsdp", ON_FSDP2, usual=3)),
        autocast=False,
        checkpoints=True,
        share=0.8,
        engine="vllm",
        movable=MOVED,
        away=MOVED,
        pads=LIMIT,
        penalizes=(*PENALIZED, "grpo"),
        software="megatron-core",
    ),
    Trainer(
        "easy-r1",
        "hiyouga/EasyR1 examples/config.yaml: fp32 shards, padding_free, micro-batches of 1 sequence for the "
        "update and 2 for passes without gradients, gradient checkpointing, offload_params and offload_optimizer, "
        "use_kl_loss, gpu_memory_utilization 0.6, tensor_parallel_size 2",
        version=1,
        full="amp-bf16",
        loads="fp32",
        checkpoints=True,
        framework="fsdp",
        backends=(Backend("fsdp", replace(UNDIVIDED, zero=(0, 2, 3), heads=(2, 3)), usual=3),),
        share=0.6,
        engine="vllm",
        ranks=2,
        movable=MOVED,
        away=MOVED,
        returns=True,
        unpads=True,
        larger=2,
        penalizes=(*PENALIZED, "grpo"),
    ),
)
