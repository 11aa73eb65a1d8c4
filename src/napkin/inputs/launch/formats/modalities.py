"""Modalities' YAML: components that name each other, from the optimizer's model down to the model itself."""

from __future__ import annotations

from collections.abc import Iterator

from napkin.inputs.launch.checks import take_hybrid
from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.formats.torchtitan import SCHEDULES
from napkin.inputs.launch.modalities_model import arranged, has_trained_model, take_modalities_model
from napkin.inputs.launch.names import AUTOCAST, FP32, take_attention
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.shared import SHARDING
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.tables import within
from napkin.inputs.launch.values import Open, flag, names, number, product, whole, word

COLLATED = "collate_fn.variant_key"


def _layout(reading: Reading) -> None:
    """Read the device mesh, whose shard degree of -1 is what the other degrees leave, and FSDP's sharding."""
    degrees = {"tp": "tensor", "pp": "pipeline", "cp": "context"}
    keys = {option: f"device_mesh.{name}_parallel_degree" for option, name in degrees.items()}
    dense = {option: reading.take(option, key, whole) or 1 for option, key in keys.items()}
    shard, copies = (f"device_mesh.data_parallel_{one}_degree" for one in ("shard", "replicate"))
    shards, replicas = reading.read(shard, whole), reading.read(copies, whole)
    many = copies in reading.source and replicas != 1
    if shards and (replicas or copies not in reading.source):
        stated = [key for key in (shard, copies, *keys.values()) if key in reading.source]
        reading.derive("gpus", product([shards, replicas or 1, *dense.values()]), *stated)
    else:
        reading.ask("gpus", shard if shard in reading.source else "settings.cuda_env.world_size")
    if many and shards:
        reading.put("dp-shard", shards, shard)
    elif many:
        reading.ask("dp-shard", shard, copies)
    if dense["tp"] > 1:
        reading.derive("sp", True, keys["tp"])
        if "tensor_parallel" not in reading.source:
            reading.refuse(keys["tp"], "no component divides the model by it (gpt2_tp)", "tp")
    again = "fsdp2.reshard_after_forward"
    if "fsdp2" in reading.source:
        kept = reading.read(again, flag) is False
        reading.put("zero", 2 if kept else 3, again) if again in reading.source else reading.default("zero", 3, again)
    elif "fsdp1" in reading.source:
        kind = "fsdp1.sharding_strategy"
        reading.put("zero", reading.read(kind, word(SHARDING)), kind)
        if "hybrid" in str(reading.source.plain(kind)).lower():
            take_hybrid(reading, kind)
    else:
        reading.refuse("optimizer.wrapped_model", "no component of the trained model is FSDP", "zero")


def _batch(reading: Reading) -> None:
    """Read the batch of a rank, which a pipeline divides into micro-batches."""
    local = reading.named("settings.step_profile.local_train_micro_batch_size", *OLD_BATCH)
    accumulated = reading.named("settings.step_profile.gradient_accumulation_steps", *OLD_STEPS)
    rows, passes = reading.read(local, whole), reading.read(accumulated, whole)
    part = "schedule.microbatch_size"
    if "schedule" not in reading.source:
        for option, key, found in (("micro-batch", local, rows), ("grad-accum", accumulated, passes)):
            reading.put(option, found, key) if found else reading.ask(option, key)
        return
    each = reading.take("micro-batch", part, whole)
    if each and rows and passes and rows % each == 0:
        reading.derive("grad-accum", passes * (rows // each), local, accumulated, part)
    else:
        reading.ask("grad-accum", local, accumulated, part)
    name = "schedule.pp_schedule_name"
    kind = reading.read(name, word(SCHEDULES, lambda _: None))
    reading.put("schedule", kind, name) if kind else reading.omit(name, "the pipeline's schedule")
    if kind in ("interleaved", "zero-bubble"):
        reading.ask("vp", name)


OLD_BATCH = ("settings.training.local_train_micro_batch_size",)
OLD_STEPS = ("settings.training.gradient_acc_steps",)
"""Names until September 2024."""
LENGTH = "settings.step_profile.sequence_length|settings.training.sequence_length|model.sequence_length"


def _amount(reading: Reading) -> None:
    """Read the length of the run: steps, else tokens. A component counts the other from the one that is given."""
    target = "settings.training_target"
    counts = {
        "steps": (f"{target}.num_target_steps",),
        "tokens": (f"{target}.num_target_tokens", "settings.training.global_num_train_tokens"),
    }
    for option, keys in counts.items():
        key = reading.named(*keys)
        found = reading.read(key, whole)
        if found:
            reading.put(option, found, key)
            return
    reading.told(f"{target}.num_target_steps", f"{target}.num_target_tokens")
    if target in reading.source:
        reading.ask("steps", f"{target}.num_target_steps")


NARROW = {"fp_16": "fp16", "bf_16": "bf16", "fp_32": "fp32"}
OLD_NARROW = {
    **NARROW, "bf_16_working": "fp32", "mixed_precision_megatron": "bf16", "no_mixed_precision": "fp32",
}  # fmt: skip
"""What FSDP 1 gathers in (running_env/env_utils.py, MixedPrecisionSettings)."""


def _precision(reading: Reading) -> None:
    """Read the precision: the shards are fp32, and FSDP gathers them in param_dtype. A Hugging Face model's shards have
    the format in which transformers loads it: fp32 before version 5, that of the checkpoint since."""
    newer = "fsdp2.mixed_precision_settings.param_dtype"
    key = newer if "fsdp2" in reading.source else "fsdp1.mixed_precision_settings"
    narrow = reading.read(key, word(NARROW if key == newer else OLD_NARROW))
    policy = {"bf16": AUTOCAST, "fp32": FP32, "fp16": "param=fp32,grad=fp32,compute=fp16,state=fp32"}.get(narrow or "")
    if policy is None:
        reading.ask("precision", key)
    elif str(reading.source.plain("model.variant_key")) == "gpt2":
        reading.derive("precision", policy, key)
    else:
        reading.assume("precision", policy, key)


def _checkpointing(reading: Reading) -> None:
    """Read recomputation: of whole blocks, of every Nth, or of all but listed operations."""
    old = [one for one in (OLD_MODULES, "checkpointing.activation_checkpointing_modules") if one in reading.source]
    kind = reading.named("checkpointing.ac_variant", "checkpointing.sac_variant")
    variants = {f"{one}_activation_checkpointing": one for one in ("full", "selective_layer", "selective_op")}
    if old:
        wrapped = names(reading.source.plain("fsdp1.block_names") or [])
        listed = names(reading.source.plain(old[0]) or [])
        reading.put("recompute", "full" if listed else "none", old[0])
        if listed and not set(listed) >= set(wrapped):
            reading.refuse(old[0], "recomputes modules that are not the blocks of FSDP", "recompute")
    elif kind in reading.source:
        found = reading.read(kind, word(variants))
        every = reading.named("checkpointing.ac_fun_params.ac_freq", "checkpointing.sac_fun_params.ac_freq")
        if found == "selective_layer":
            reading.derive("recompute", f"every:{reading.read(every, whole) or 1}", kind, every)
        else:
            reading.put("recompute", "operations" if found == "selective_op" else "full", kind)
    reading.default("recompute", "none", "checkpointing.ac_variant")


OLD_MODULES = "settings.training.activation_checkpointing_modules"


def _others(reading: Reading) -> None:
    """Read the optimizer, attention, dropout, compilation and the task."""
    kind = reading.read("optimizer.variant_key", word({"adam": "adamw", "adam_w": "adamw"}, lambda _: None))
    if kind:
        reading.put("optimizer", kind, "optimizer.variant_key")
    else:
        reading.ask("optimizer", "optimizer.variant_key")
        reading.refuse("optimizer.variant_key", "napkin does not know Modalities' optimizer of this name", "optimizer")
    fused, foreach = (reading.read(f"optimizer.{one}", flag) for one in ("fused", "foreach"))
    if fused:
        reading.put("optimizer-form", "fused", "optimizer.fused")
    elif foreach is False:
        reading.put("optimizer-form", "forloop", "optimizer.foreach")
    reading.default("optimizer-form", "foreach", "optimizer.foreach")
    kernel = "model.attention_implementation"
    words = {"manual": "eager", "pytorch_flash": "sdpa", "dao_flash": "flash"}
    found = reading.read(kernel, word(words))
    if found == "sdpa":
        reading.assume("attention", "flash", kernel)
    elif found:
        reading.put("attention", found, kernel)
    else:
        take_attention(reading, "model.kwargs.attn_implementation")
    reading.take("dropout", "model.dropout", number)
    parts = "compiled.block_names"
    reading.put("compile", True, parts) if "compiled" in reading.source else reading.default("compile", False, parts)
    masked = [key for key in _collators(reading.source) if reading.source.plain(key) == "mask_loss_collator_wrapper"]
    if masked:
        reading.derive("task", "sft", masked[0])
    reading.default("task", "pretrain", COLLATED)
    reading.put("packing", True, LENGTH.partition("|")[0], origin="assumed")


def _collators(source: LaunchFile) -> Iterator[str]:
    """Yield the kinds of collators of the file's components."""
    for key, value in source.values.items():
        if key.endswith(".component_key") and not isinstance(value.value, Open) and value.value == "collate_fn":
            yield f"{key.removesuffix('component_key')}variant_key"


FORMAT = LaunchFormat(
    "modalities",
    "Modalities' YAML",
    "Modalities/modalities src/modalities/{registry/components,config/config,models/model_factory}.py, "
    "models/gpt2/gpt2_model.py, running_env/fsdp/device_mesh.py",
    has_trained_model,
    fixed={"framework": "fsdp"},
    keys=(Key(LENGTH, "seq", whole),),
    rules=(
        KeyRule(
            within(
                "model",
                "variant_key model_name model_type n_layer n_embd n_head_q n_head_kv vocab_size ffn_hidden "
                "enforce_swiglu_hidden_dim_multiple_of activation_type use_weight_tying poe_type bias "
                "attention_config.qkv_transforms attention_config.qk_norm_config",
            ),
            "model",
            "the model in the components; SwiGLU is two thirds as wide as ffn_hidden, in multiples of 256",
            take_modalities_model,
        ),
        KeyRule(
            within(
                "device_mesh",
                "tensor_parallel_degree pipeline_parallel_degree context_parallel_degree data_parallel_shard_degree "
                "data_parallel_replicate_degree",
            )
            + " fsdp2.reshard_after_forward fsdp1.sharding_strategy",
            "tp pp cp gpus dp-shard sp zero",
            "the device mesh; a shard degree of -1 is what the others leave",
            _layout,
        ),
        KeyRule(
            f"settings.step_profile.local_train_micro_batch_size {OLD_BATCH[0]} "
            f"settings.step_profile.gradient_accumulation_steps {OLD_STEPS[0]} "
            "schedule.microbatch_size schedule.pp_schedule_name",
            "micro-batch grad-accum schedule",
            "of a rank; a pipeline divides them into micro-batches",
            _batch,
        ),
        KeyRule(
            "settings.training_target.num_target_steps settings.training_target.num_target_tokens "
            "settings.training.global_num_train_tokens",
            "steps tokens",
            "a number, or what another component counts",
            _amount,
        ),
        KeyRule(
            "fsdp2.mixed_precision_settings.param_dtype fsdp1.mixed_precision_settings",
            "precision",
            "fp32 shards, gathered in param_dtype",
            _precision,
        ),
        KeyRule(
            f"checkpointing.ac_variant checkpointing.sac_variant checkpointing.ac_fun_params.ac_freq {OLD_MODULES} "
            "checkpointing.sac_fun_params.ac_freq checkpointing.activation_checkpointing_modules",
            "recompute",
            "full, every Nth block, or operations",
            _checkpointing,
        ),
        KeyRule(
            "optimizer.variant_key optimizer.fused optimizer.foreach model.attention_implementation model.dropout "
            f"compiled.block_names {COLLATED}",
            "optimizer optimizer-form attention dropout compile task",
            "adam and adam_w; manual is eager attention; a collator that masks the loss is SFT",
            _others,
        ),
    ),
    ignored="""settings beside unknown unused around eval_dataloaders optimizer device_mesh.device_type
        device_mesh.world_size *.component_key *.pass_type *.instance_key *.wrapped_model *.model
        *.device_mesh model.sample_key model.seed model.prediction_key model.use_meta_device
        model.huggingface_prediction_subscription_key model.attention_config.qkv_transforms
        model.attention_norm_config model.ffn_norm_config model.lm_head_norm_config model.attention_norm
        model.ffn_norm model.lm_head_norm *.block_names fsdp1.sync_module_states compiled.fullgraph
        compiled.debug checkpointing.layers_fqn loss schedule.pp_degree schedule.batch_size schedule.loss_fn
        schedule.pipeline fsdp1.variant_key fsdp2.variant_key checkpointing.variant_key compiled.variant_key
        tensor_parallel schedule.variant_key device_mesh.variant_key""",
    not_modelled={
        "debugging": "statistics of tensors",
        "device_mesh.enable_loss_parallel": "parallel loss",
        "fsdp2": "FSDP wrapping and reduction",
        "checkpointing": "selection of recomputed operations",
        "model.kwargs model.model_args": "loading of the model",
        "*.stages_generator *.num_layers_per_stage": "assignment of layers to pipeline stages",
    },
    refused={"unknown.variant_key": "changes the model in a way that napkin does not know"},
    translated=arranged,
)
