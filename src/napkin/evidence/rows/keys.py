"""The keys of rows, by schema and block: those that are read, those that are known and not read, which is said, and
those that carry no meaning for a prediction or repeat others."""

from __future__ import annotations

from napkin.evidence.rows.fields import BOTH, BYTES, CPU_OFFLOADS, DROPS, NEITHER, PARTS_OF_TIME, SECONDS, SHAPE
from napkin.evidence.rows.files import MEMORY, RUNS, SERVING, STEPS, TUNING
from napkin.record import record


@record
class Keys:
    """Keys of a block of rows.

    read    by predictions, or by what is compared with them
    told    known, and not read: a row that has them is predicted without, and that is said
    silent  of no meaning for a prediction, or repeating others
    closed  whether any other key may change the prediction: a row with one is not predicted"""

    read: str
    told: str = ""
    silent: str = ""
    closed: bool = True


ABOUT = """layout_note step_id check tier unverified quote citation cite url link links author authors contributor
license tags comment comments description remark remarks notes title where origin"""
"""Keys at the top of a row that say where it is from and what its author thinks of it."""
TOP = "id source model hardware layout note suspect"
SHAPES = f"{SHAPE} position positions bias"
SHAPE_NOTES = "params params_nominal shape active_params multimodal note revision url"
MACHINE = "chip accelerator count per_node nodes interconnect network fabric"
MACHINE_NOTES = """slices note host cpu cloud provider region instance instance_type cluster machine vendor driver
cuda cuda_version driver_version os"""
ELSEWHERE = ("per_node", "nodes")
"""Keys of a layout that are the machine's."""
ALL_LAYOUT = f"""{BOTH} {BYTES} {DROPS} {SECONDS} {PARTS_OF_TIME} {" ".join(CPU_OFFLOADS)} offload loss kernels
distributed_optimizer"""
LAYOUT_NOTES = " ".join((*(name for name in NEITHER.split() if name not in ELSEWHERE), "note", "commit"))
SPEEDS = """step_seconds tokens_per_second_per_gpu tokens_per_second mfu hardware_tflops_per_gpu
model_tflops_per_gpu"""
PRINTED = """derived printed tag note hfu gpu_hours tokens samples_per_second memory_gb memory_gib memory_kind gb gib
unit kind step_seconds_std mfu_printed tokens_per_second_printed fraction_of_peak aggregate_pflops mfu_hfu_tier loss
final_loss eval_loss perplexity accuracy power_w energy_kwh cost_usd steps"""
"""What sources print next to what is compared."""
MEASURED_MEMORY = "bytes gib gb mib mb what kind unit oom analytic"
MEMORY_NOTES = """which note printed activations_percent_of_tp_baseline activations_gib params_and_optimizer_gib derived
tag rank"""
COUNTED = "formula peak_tflops rule"
COUNTED_NOTES = "attention embeddings recompute_counted note"
EXPERTS = "count top_k ffn shared_ffn dense_layers bias clamp groups chosen_groups"
LATENT = "q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim"
TRAINED: dict[str, Keys] = {
    "model": Keys(SHAPES, silent=SHAPE_NOTES),
    "model.experts": Keys(EXPERTS, silent="note"),
    "model.mla": Keys(LATENT, silent="note"),
    "hardware": Keys(MACHINE, silent=MACHINE_NOTES),
    "layout": Keys(ALL_LAYOUT, silent=LAYOUT_NOTES),
    "convention": Keys(COUNTED, silent=COUNTED_NOTES, closed=False),
}
OF_A_PRESET = "layers hidden heads kv_heads head_dim ffn vocab gated tied"
"""Dimensions that a fine-tuning row may state if they are its preset's."""
TUNED_LAYOUT = """framework trainer stack versions micro_batch grad_accum global_batch seq seq_max packed padded
padding_free precision autocast recompute optimizer optimizer_form optimizer_in_backward attention dropout loss kernels
lora_kernels compile offload zero tp pp dp cp ep vp sp ulysses distributed_optimizer target_seq fsdp_version schedule
device_map save_steps"""
TUNED_NOTES = """local_batch seq_stated tokens_per_micro_batch tokens_per_step recompute_detail vit_recompute note
token_budget mini_batch tokens_per_gpu_max"""
"""Keys of the layout of fine-tuning that restate others, and the most tokens of a packed micro-batch, which a step of
reinforcement learning reads."""
TUNED_METHOD = """kind lora_rank lora_dropout lora_targets lora_targets_canonical lora_target_parameters quantised
quantized quantize_moe_experts experts_targeted base_dtype adapter_dtype trainable_params modules_to_save freeze_vit
freeze freeze_layers freeze_head"""
TUNED_SPEEDS = """tokens_per_second_per_gpu samples_per_second step_seconds gen_seconds logprob_seconds update_seconds
run_seconds"""
TUNED_MEMORY = "peak_bytes peak_bytes_per_gpu driver_bytes driver_mib what oom ran card_gib_at_most"
TUNED_AMOUNTS = "mean_tokens_per_sample mean_tokens_per_step samples steps tokens tokens_per_second derived"
TUNED_PRINTED = f"""{PRINTED} mib per_gpu sum_over_gpus start_allocated_bytes run_seconds_min run_seconds_max runs
reserved_p99_bytes reserved_mean_bytes allocated_after_step_mean_bytes train_seconds max_batch_printed
tokens_per_step generate_sequences_seconds three_steps_seconds step_iterations_per_second model_init_gb resting_gb
micro_step_seconds reserved_gib cpu_gb training_gb loss_gb engine_weights_gb kv_cache_gb model_tflops_per_gpu mfu
run_seconds_50_steps run_seconds_200_steps run_seconds_400_steps gpu_hours_400_steps"""
ROLLOUT = """algorithm critic decoupled enforce_eager engine gpu_memory_utilization group logprob_micro_batch mini_batch
mode on_policy prompt_length prompt_length_max prompt_length_mean prompts reference response_length response_length_max
response_length_mean reward_model rollout_gpus rollout_tp samples_per_step sequence_length_mean split_nodes teacher
trainer_gpus"""
ROLLOUT_TOLD = """colocated rollout_pp staleness partial_rollout prefix_shared reshard engine_offload sleep
rollout_micro_batch multi_turn use_kl_loss teacher_deepspeed actor_nodes critic_nodes layered_summon"""
ROLLOUT_NOTES = "dataset prompts_total epochs rpo_alpha require_batches beta note"
TUNING_KEYS: dict[str, Keys] = {
    "": Keys(f"{TOP} task method rl measured kind run_kind judges fits beside", silent=ABOUT, closed=False),
    "model": Keys(f"name preset {OF_A_PRESET}", silent=SHAPE_NOTES),
    "hardware": Keys(MACHINE, silent=MACHINE_NOTES),
    "method": Keys(TUNED_METHOD, silent="lora_alpha load note"),
    "layout": Keys(TUNED_LAYOUT, silent=TUNED_NOTES),
    "measured": Keys(f"{TUNED_SPEEDS} {TUNED_MEMORY} {TUNED_AMOUNTS}", silent=TUNED_PRINTED, closed=False),
    "rl": Keys(ROLLOUT, ROLLOUT_TOLD, ROLLOUT_NOTES),
}
NOT_IN_ROLLOUTS = """attention packed padded seq dp sp vp ulysses schedule dropout compile distributed_optimizer
lora_kernels device_map target_seq mini_batch tokens_per_micro_batch"""
"""Keys of the layout that a step of reinforcement learning does not read, though another kind of row does."""
RUN_KEYS: dict[str, Keys] = {
    "": Keys(
        """id source model kind run_kind accelerator count params_active params_total tokens device_hours seq_len
        peak_dtype precision organisation year hours_basis check suspect""",
        silent=f"""{ABOUT} note co2_t cost_usd energy_mwh events flop_stated global_batch_tokens goodput grid_kg_per_kwh
        mfu_kind mfu_stated power_w pue tflops_per_device_stated tokens_per_s_per_device wall_clock_days""",
        closed=False,
    )
}
SERVED_RATES = """output_tokens_per_second output_tokens_per_second_per_gpu total_tokens_per_second
total_tokens_per_second_per_gpu requests_per_second prefill_tokens_per_second prefill_tokens_per_second_per_gpu
decode_tokens_per_second"""
SERVED_TIMES = """ttft_ms ttft_mean_ms ttft_median_ms tpot_ms tpot_mean_ms tpot_median_ms itl_ms itl_mean_ms
itl_median_ms total_latency_ms"""
SERVED_SIZES = """kv_cache_tokens kv_cache_gib_per_gpu kv_cache_gb_per_gpu weights_gib weights_gib_per_gpu
weights_gb_per_gpu"""
SERVED_LOAD = """mode batch concurrency input_tokens output_tokens input_tokens_mean output_tokens_mean ttft_limit_ms
tpot_limit_ms dataset speculation prefix_cache_hit_fraction"""
SERVED_TOLD = """length_spread context_tokens_mean nodes_mean input_tokens_day output_tokens_day
input_tokens_cached"""
SERVED_PRINTED = """submissions duration_seconds output_tokens_per_second_range max_concurrency kv_cache_blocks kv_note
memory_bandwidth_gb_per_second_per_gpu_printed activation_peak_gib non_torch_gib total_gpu_gib weights_gb_printed
available_gb_after_load oom note printed cost_usd power_w"""
SERVING_KEYS: dict[str, Keys] = {
    "": Keys(
        "id source model quant hardware layout engine load measured note suspect",
        silent=f"{ABOUT} derived",
        closed=False,
    ),
    "model": Keys(SHAPES, silent=f"{SHAPE_NOTES} active_nominal"),
    "model.experts": Keys(EXPERTS, silent="note"),
    "model.mla": Keys(LATENT, silent="note"),
    "quant": Keys("weights kv", silent="note"),
    "hardware": Keys("chip accelerator count per_node nodes", "interconnect network fabric", MACHINE_NOTES),
    "layout": Keys("tp pp dp ep dp_attention", silent="split note"),
    "engine": Keys("name version options", silent="note commit date url"),
    "load": Keys(SERVED_LOAD, SERVED_TOLD, "requests note"),
    "measured": Keys(
        f"{SERVED_RATES} {SERVED_TIMES} {SERVED_SIZES} itl_fit_ms derived", silent=SERVED_PRINTED, closed=False
    ),
}
KEYS: dict[str, dict[str, Keys]] = {
    STEPS: {
        "": Keys(f"{TOP} measured convention judges", silent=ABOUT, closed=False),
        **TRAINED,
        "measured": Keys(SPEEDS, silent=PRINTED, closed=False),
    },
    MEMORY: {
        "": Keys(f"{TOP} memory measured convention judges", silent=ABOUT, closed=False),
        **TRAINED,
        "measured": Keys(SPEEDS, silent="derived printed note", closed=False),
        "memory": Keys(MEASURED_MEMORY, silent=MEMORY_NOTES, closed=False),
    },
    TUNING: TUNING_KEYS,
    RUNS: RUN_KEYS,
    SERVING: SERVING_KEYS,
}
"""Schema → block → its keys; "": those of the row itself, "model.experts": those of a block within a block. Blocks that
are not here (source, check) say nothing of a prediction."""
RUN_BLOCKS = ("model", "hardware", "layout", "method", "rl", "quant", "engine", "load")
"""Blocks that describe the run."""
