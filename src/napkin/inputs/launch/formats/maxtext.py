"""MaxText's YAML and model descriptions."""

from __future__ import annotations

from napkin.inputs.launch.format import KeyRule, LaunchFormat
from napkin.inputs.launch.maxtext_model import EXPERTS, SCALE, SIZES, read_model
from napkin.inputs.launch.precisions import fixed_dtype
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.rollouts import take_other_model
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import flag, number, product, whole, word

TRAINS = ("base_config", "per_device_batch_size", "max_target_length", "steps", "remat_policy", "ici_fsdp_parallelism")
DEGREES = (("tensor", "tp"), ("pipeline", "pp"), ("expert", "ep"), ("context", "cp"), ("sequence", "cp"))
ATTENTION = {
    "dot_product": "eager",
    "flash": "flash",
    "cudnn_flash_te": "cudnn",
    "cudnn_flash_jax": "cudnn",
    "autoselected": None,
}


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is MaxText's YAML."""
    return source.has_any("base_emb_dim", "base_num_decoder_layers") or (
        source.has_any("base_config", "per_device_batch_size", "max_target_length", "ici_fsdp_parallelism")
        and source.has_any("max_target_length", "base_config", "remat_policy", "per_device_batch_size")
        and not source.has_any("model_name_or_path", "base_model")
    )


def trains(reading: Reading) -> bool:
    """Return whether a file describes training and not only a model."""
    return reading.source.has_any(*TRAINS)


def layout(reading: Reading) -> None:
    """Read the parallel degrees within a slice (ici) and across slices (dcn); -1 is what the others leave."""
    if not trains(reading):
        return
    sizes: list[int | None] = []
    keys: list[str] = []
    for part, option in DEGREES:
        found = []
        for net in ("ici", "dcn"):
            key = f"{net}_{part}_parallelism"
            size = reading.read(key, whole)
            if key in reading.source:
                keys.append(key)
                sizes.append(size)
                found.append((key, size))
        known = [(key, size) for key, size in found if size]
        if known and (product([size or 1 for _, size in known]) > 1 or reading.value_of(option) is None):
            reading.put(option, product([size or 1 for _, size in known]), *(key for key, _ in known))
    copies = [key for key in ("ici_data_parallelism", "dcn_data_parallelism") if key in reading.source]
    fsdp, across = "ici_fsdp_parallelism", "dcn_fsdp_parallelism"  # one mesh axis
    shard = reading.read(fsdp, whole)
    slices = reading.read(across, whole)
    if across in reading.source:
        keys.append(across)
        shard = shard * slices if shard and slices else None
    for key in copies:
        sizes.append(reading.read(key, whole))
    if shard and shard > 1:
        reading.put("dp-shard", shard, *[key for key in (fsdp, across) if key in reading.source])
    elif any((reading.read(key, whole) or 1) > 1 for key in copies):
        reading.ask("dp-shard", *copies, *[key for key in (fsdp, across) if key in reading.source])
    stage = 0 if shard == 1 else 3
    reading.derive("zero", stage, fsdp) if fsdp in reading.source else reading.default("zero", stage, fsdp)
    if fsdp in reading.source and all(size for size in (*sizes, shard)):
        reading.derive("gpus", product([size or 1 for size in (*sizes, shard)]), fsdp, *copies, *keys)
    if reading.find("hardware") is not None:
        reading.ask("hardware", "hardware")


def _batch(reading: Reading) -> None:
    if not trains(reading):
        return
    for key, option, default in (
        ("max_target_length", "seq", 2048),
        ("gradient_accumulation_steps", "grad-accum", 1),
    ):
        found = reading.read(key, whole)
        if found:
            reading.put(option, found, key)
        elif key in reading.source:
            reading.ask(option, key)
        else:
            reading.default(option, default, key)
    _micro_batch(reading)
    steps = reading.read("steps", whole)
    epochs = reading.read("num_epoch", number)
    if steps:
        reading.put("steps", steps, "steps")
        reading.told("num_epoch")
    elif epochs:
        reading.put("epochs", epochs, "num_epoch")


def _micro_batch(reading: Reading) -> None:
    """Read the micro-batch of a data-parallel rank.

    per_device_batch_size counts every device, also those that share sequences (calculate_global_batch_sizes, types.py):
    a rank has as many times more, in a pipeline divided into num_pipeline_microbatches.
    """
    key, pieces = "per_device_batch_size", "num_pipeline_microbatches"
    each = reading.read(key, number)
    if each is None and key in reading.source:
        reading.ask("micro-batch", key)
        return
    degrees = {option: reading.value_of(option) or 1 for _, option in DEGREES if option != "ep"}
    shared = [
        name
        for part, option in DEGREES
        if option != "ep"
        for name in (f"ici_{part}_parallelism", f"dcn_{part}_parallelism")
    ]
    asked = [one for one in shared if one in reading.source and reading.read(one, whole) is None]
    stages = degrees["pp"]
    parts = (reading.read(pieces, whole) or stages) if stages > 1 else 1
    total = (12 if each is None else each) * product(list(degrees.values()))
    used = [one for one in shared if (reading.read(one, whole) or 1) > 1]
    if asked or total < 1 or total != int(total) or int(total) % parts:
        reading.ask("micro-batch", key, *asked, *used)
        return
    if parts > 1:
        reading.derive("grad-accum", parts * (reading.value_of("grad-accum") or 1), pieces, *used)
    if each is None:
        reading.default("micro-batch", int(total) // parts, key)
    elif used:
        reading.derive("micro-batch", int(total) // parts, key, *used)
    else:
        reading.put("micro-batch", int(total), key)


def _slots(reading: Reading) -> None:
    """Read the slots of experts, which only their dense_matmul has (layers/moe.py)."""
    factor = reading.read("capacity_factor", number)
    if reading.read("sparse_matmul", flag) is False and factor is not None and factor > 0:
        reading.put("capacity-factor", factor, "capacity_factor", "sparse_matmul")


def _task(reading: Reading) -> None:
    if "teacher_overrides" in reading.source:
        reading.derive("task", "distill", "teacher_overrides", "student_overrides")
        take_other_model(reading, "reference", "teacher_overrides.model_name")
        reading.omit("student_overrides", "the student is a different model from the named one")
    elif reading.read("use_dpo", flag):
        algo = str(reading.source.plain("dpo.algo") or "dpo").lower()
        reading.put("task", algo, "use_dpo", "dpo.algo") if algo in ("dpo", "orpo") else reading.ask("task", "dpo.algo")
    elif reading.read("use_sft", flag):
        reading.put("task", "sft", "use_sft")
    elif "rl" in reading.source or reading.source.module.endswith("train_rl.py"):
        reading.assume("task", "grpo", "rl.loss_algo")
        reading.refuse("rl", "Tunix divides the prompts into batches of its own, which napkin does not read")
    elif reading.read("use_grpo", flag):
        reading.put("task", "grpo", "use_grpo")
    elif trains(reading):
        reading.default("task", "pretrain", "use_sft")
    if reading.read("lora.enable_lora", flag):
        rank = reading.read("lora.lora_rank", whole)
        reading.put("adapter", "lora", "lora.enable_lora")
        reading.put("lora-rank", rank, "lora.lora_rank") if rank else reading.ask("lora-rank", "lora.lora_rank")
        reading.ask("lora-targets", "lora.lora_module_path")
    reading.take("packing", "packing", flag)


def precision(reading: Reading, weights: str = "fp32") -> None:
    """Read the precision; base.yml has fp32 weights, gradients and optimizer states, and bf16 activations."""
    if not trains(reading):
        return
    kept = reading.read("weight_dtype", fixed_dtype)
    compute = reading.read("dtype", fixed_dtype)
    grads, moments = reading.read("grad_dtype", fixed_dtype), reading.read("mu_dtype", fixed_dtype)
    keys = [
        key
        for key in ("weight_dtype", "dtype", "grad_dtype", "mu_dtype", "quantization")
        if reading.find(key) is not None
    ]
    kept, default = kept or weights, not keys
    eight = str(reading.source.plain("quantization") or "").lower()
    if eight:
        if "fp8" not in eight:
            reading.ask("precision", "quantization")
            reading.omit("quantization", f"napkin does not model training in {eight[:30]}")
            return
        compute = "fp8"
    policy = f"param={kept},grad={grads or 'fp32'},compute={compute or 'bf16'},state={moments or kept}"
    if policy == "param=fp32,grad=fp32,compute=bf16,state=fp32":
        policy = "amp-bf16"
    reading.default("precision", policy, "weight_dtype", "dtype") if default else reading.derive(
        "precision", policy, *keys
    )


PARTIAL = (
    *("minimal", "minimal_with_context", "minimal_flash", "minimal_offloaded", "save_dot_with_context_except_mlp"),
    *("save_dot_except_mlp", "save_dot_except_mlpwi", "save_qkv_proj", "save_out_proj", "qkv_proj_offloaded", "custom"),
)
"""Policies that save some matmuls (configs/types.py, RematPolicy, and names of earlier releases)."""


def others(reading: Reading, attention: str | None = None) -> None:
    """Read recomputation, optimizer, attention and offload. attention: the default kernel."""
    if not trains(reading):
        return
    policy = reading.source.plain("remat_policy")
    words = {"full": "full", "none": "none"}
    if policy is None:
        reading.default("recompute", "full", "remat_policy")
    elif str(policy).lower() in words:
        reading.put("recompute", words[str(policy).lower()], "remat_policy")
    else:
        reading.ask("recompute", "remat_policy")
        known = str(policy).lower() in PARTIAL
        why = "saves some matmuls, which napkin does not model" if known else "is no policy that napkin knows"
        reading.refuse("remat_policy", f"{policy!s:.40} {why}", "recompute")
    names = word({"adamw": "adamw", "adam_pax": "adamw", "sgd": "sgd", "muon": "muon"})
    reading.take("optimizer", "opt_type", names, default="adamw")
    kernel = reading.find("attention")
    if kernel is None and attention:
        reading.default("attention", attention, "attention")
    elif kernel is None or ATTENTION.get(str(kernel.value).lower()) is None:
        reading.ask("attention", "attention")
    else:
        reading.put("attention", ATTENTION[str(kernel.value).lower()], "attention")
    reading.switch("offload", "optimizer", "optimizer_memory_host_offload")
    reading.switch("offload", "optimizer,parameters", "parameter_memory_host_offload")
    reading.take("dropout", "dropout_rate", number)


IGNORED = """m base_config run_name  dataset_* hf_* grain_* train_data_columns eval_data_columns
    train_split
    hf_eval_split enable_goodput_recording monitor_goodput gradient_clipping_threshold learning_rate*
    warmup_steps_fraction
    opt_adam* adam_* adamw_mask cosine* save_checkpoint_on_completion checkpoint_period log_period tokenizer_* skip_jax*
    enable_nnx reuse_example_batch use_vertex_tensorboard dpo lora rope_* normalization_layer_epsilon enable_dropout
    async_checkpointing upload_* profiler skip_first_n* jax_cache_dir gcs_metrics base_output_directory
    z_loss_multiplier
    distill_alpha distill_temperature distill_beta sft_train_on_completion_only  mscale rope_interleave
    max_position_embeddings original_max_position_embeddings beta_fast beta_slow routed_* norm_topk_prob use_qk_norm
     enable_single_controller  load_parameters_path load_full_state_path
    decoder_block mlp_activations q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim attention_type
     use_post_attn_norm use_post_ffw_norm query_pre_attn_scalar"""
NAMED = {
    "sa_* *_tile_* use_tokamax* megablox sparse_matmul use_ragged*": "kernel tile sizes",
    "max_segments_per_seq": "documents per row",
    "use_tunix_gradient_accumulation use_tunix*": "gradient accumulation",
    "remat_policy context *_proj decoder_layer_input mlpw* query_* key_* value_*": "selection of saved activations",
    "distill_layer_indices": "distilled layers of student and teacher",
    "teacher_overrides student_overrides": "another distillation model",
    "float32_logits cast_logits_to_fp32 float32_qk_product matmul_precision "
    "activations_in_float32": "number formats of some matmuls",
    "load_balance_loss_weight capacity_factor num_vocab_tiling": "expert and loss settings",
    "scan_layers param_scan_axis num_layers_per_pipeline_stage num_pipeline_microbatches num_pipeline_repeats "
    "pipeline_*": "layer scanning and pipeline layout",
    "logits_dot_in_fp32 final_logits_soft_cap attn_logits_soft_cap": "number formats of logits",
    "allow_split_physical_axes num_slices compile_topology* ici_* dcn_* mesh_axes "
    "logical_axis_rules shard_*": "the mesh",
    "override_model_config": "model overrides",
    "quantization quantize_*": "number formats of matmuls",
    "use_iota_embed fused_qkv fused_mlp": "fused layers",
    "sliding_window_size": "sliding-window attention",
}
RULES_TRAIN = (
    KeyRule(
        " ".join(f"{net}_{part}_parallelism" for part, _ in DEGREES for net in ("ici", "dcn"))
        + " ici_fsdp_parallelism "
        "ici_data_parallelism dcn_data_parallelism dcn_fsdp_parallelism hardware",
        "tp pp ep cp zero dp-shard gpus",
        "ici within a slice, dcn across slices; fsdp -1 is what the other degrees leave",
        layout,
    ),
    KeyRule(
        "per_device_batch_size max_target_length gradient_accumulation_steps steps num_epoch num_pipeline_microbatches",
        "micro-batch seq grad-accum steps epochs",
        "default 12 sequences of 2048 tokens a device; devices that share sequences have them together",
        _batch,
    ),
    KeyRule(
        "use_dpo use_sft use_grpo teacher_overrides lora.enable_lora packing",
        "task adapter lora-rank packing",
        "default pretrain",
        _task,
    ),
)
FORMAT = LaunchFormat(
    "maxtext",
    "MaxText's YAML",
    "AI-Hypercomputer/maxtext src/maxtext/configs/base.yml",
    is_this,
    rules=(
        KeyRule(
            f"model_name {SCALE} " + " ".join(key for _, key, _ in SIZES) + " " + " ".join(key for _, key in EXPERTS),
            "model",
            "a name, or sizes with base.yml's defaults",
            read_model,
        ),
        *RULES_TRAIN,
        KeyRule(
            "weight_dtype dtype grad_dtype mu_dtype quantization",
            "precision",
            "fp32 weights, bf16 activations",
            precision,
        ),
        KeyRule("capacity_factor sparse_matmul", "capacity-factor", "slots of experts without sparse_matmul", _slots),
        KeyRule(
            "remat_policy opt_type attention optimizer_memory_host_offload dropout_rate",
            "recompute optimizer attention offload dropout",
            "remat_policy: default full",
            others,
        ),
    ),
    ignored=IGNORED,
    not_modelled=NAMED,
    refused={"use_multimodal": "image tokens, and an encoder of images before the language model"},
)
