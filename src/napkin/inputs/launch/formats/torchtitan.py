"""torchtitan's TOML (until February 2026)."""

from __future__ import annotations

from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.names import model_of, take_optimizer
from napkin.inputs.launch.precisions import fixed_dtype
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import flag, names, product, whole, word

FAMILIES = {"llama3": ("llama3.1", "llama3"), "llama3_ft": ("llama3.1",), "llama4": ("llama4",), "qwen3": ("qwen3",)}
"""torchtitan's model family → preset families that have its flavors: its llama3 is Llama 3.1."""
ALIKE = {"17bx16e": "llama4-scout", "17bx128e": "llama4-maverick", "671b": "deepseek-v3"}
SCHEDULES = {
    "1f1b": "1f1b",
    "interleaved1f1b": "interleaved",
    "gpipe": "gpipe",
    "zbvzerobubble": "zero-bubble",
    "interleavedzerobubble": "zero-bubble",
}
PARTS = ("parallelism", "training", "experimental")


def is_this(source: LaunchFile) -> bool:
    """Sections whose combination is unique to torchtitan's job configuration."""
    return source.has_all("model.flavor", "training.seq_len") or (
        source.has_any(
            "training.local_batch_size",
            "training.seq_len",
            "parallelism.tensor_parallel_degree",
            "parallelism.data_parallel_shard_degree",
        )
        and "modules" not in source
        and source.has_any("job", "model", "parallelism", "activation_checkpoint")
    )


def place(reading: Reading, key: str) -> str:
    """Return a key in the section that contains it: in 2024 degrees were in [training] and [experimental]."""
    tries = [f"{part}.{key}" for part in PARTS]
    return next((one for one in tries if one in reading.source), tries[0])


def _model(reading: Reading) -> None:
    family = str(reading.source.plain("model.name") or "").lower()
    flavor = str(reading.source.plain("model.flavor") or "").lower()
    if not flavor:
        if family or "model" in reading.source:
            reading.ask("model", "model.flavor")
        return
    if flavor in ALIKE and family.split("_")[0] in ("llama4", "deepseek"):
        reading.put("model", ALIKE[flavor], "model.name", "model.flavor")
        return
    for one in FAMILIES.get(family, (family.replace("_", "-"),)):
        found, _ = model_of(f"{one}-{flavor}")
        if found:
            reading.put("model", found, "model.name", "model.flavor")
            return
    reading.ask("model", "model.flavor", "model.name", given=f"{family} {flavor}")


def layout(reading: Reading) -> None:
    """Read the parallel degrees; a data_parallel_shard_degree of -1 is what the others leave."""
    found = {}
    for key, option in (
        ("tensor_parallel_degree", "tp"),
        ("pipeline_parallel_degree", "pp"),
        ("context_parallel_degree", "cp"),
        ("expert_parallel_degree", "ep"),
        ("expert_tensor_parallel_degree", "etp"),
    ):
        name = place(reading, key)
        size = reading.take(option, name, whole)
        if size:
            found[option] = size
    shard_key, copies_key = (
        place(reading, "data_parallel_shard_degree"),
        place(reading, "data_parallel_replicate_degree"),
    )
    older = place(reading, "data_parallel_degree")
    if older in reading.source and shard_key not in reading.source:
        shard_key = older
    shard = reading.read(shard_key, lambda value: None if value == -1 else whole(value))
    copies = reading.read(copies_key, whole) or 1
    if shard:
        keys = [
            k
            for k in (
                shard_key,
                copies_key,
                *(place(reading, f"{n}_parallel_degree") for n in ("tensor", "pipeline", "context")),
            )
            if k in reading.source
        ]
        dense = [found.get(option, 1) for option in ("tp", "pp", "cp")]
        reading.derive("gpus", product([shard, copies, *dense]), *keys)
        reading.put("dp-shard", shard, shard_key)
    elif reading.take("gpus", "processes.procs", whole) is None and shard_key in reading.source:  # torchforge
        reading.ask("gpus", shard_key)
    reshard = place(reading, "fsdp_reshard_after_forward")
    how = reading.read(reshard, word({one: one for one in ("default", "always", "never")})) or "default"
    pipelined, pipe = found.get("pp", 1) > 1, place(reading, "pipeline_parallel_degree")
    pipelines = [pipe] if pipelined or reading.open_among(pipe) else []
    stage = 0 if shard == 1 else 2 if how == "never" or (how == "default" and pipelined) else 3
    keys = [key for key in (shard_key, reshard, *pipelines) if key in reading.source]
    reading.derive("zero", stage, *keys) if keys else reading.default("zero", stage, shard_key)
    reading.switch("async-tp", True, place(reading, "enable_async_tensor_parallel"))


def batch(reading: Reading) -> None:
    """Read the batch per data-parallel rank, which a pipeline splits into micro-batches."""
    key = "training.local_batch_size" if "training.local_batch_size" in reading.source else "training.batch_size"
    local = reading.read(key, whole)
    total = reading.read("training.global_batch_size", lambda value: None if value == -1 else whole(value))
    if total:
        reading.put("global-batch", total, "training.global_batch_size")
    if (reading.value_of("pp") or 1) == 1:
        reading.put("micro-batch", local, key) if local else reading.default(
            "micro-batch", 8, "training.local_batch_size"
        )
        reading.take("grad-accum", "training.gradient_accumulation_steps", whole)  # of forks
        if not total and "grad-accum" not in reading.inputs:  # job_config.py: local_batch_size × data-parallel ranks
            key = "training.global_batch_size"
            reading.derive("grad-accum", 1, key) if key in reading.source else reading.default("grad-accum", 1, key)
        return
    size = place(reading, "pipeline_parallel_microbatch_size")
    number = place(reading, "pipeline_parallel_microbatches")
    each, many = reading.read(size, whole), reading.read(number, whole)
    if each:
        reading.put("micro-batch", each, size)
    elif many and local:
        reading.derive("micro-batch", max(local // many, 1), key, number)
    else:
        reading.default("micro-batch", 1, size)
    micro = reading.value_of("micro-batch")
    if local and not total and micro and local % micro == 0:
        reading.derive("grad-accum", local // micro, key)
    kind = reading.read(place(reading, "pipeline_parallel_schedule"), word(SCHEDULES, lambda _: None))
    if kind:
        reading.put("schedule", kind, place(reading, "pipeline_parallel_schedule"))


BUDGET = "which activations torch.compile saves within a share of their bytes is not modeled"
"""torch/_functorch/config.py, activation_memory_budget: 0 saves the inputs of each compiled region alone, 1 what takes
the least time; between them a knapsack problem over the graph decides."""


def checkpointing(reading: Reading) -> None:
    """Read recomputation: selective is every second layer unless selective_ac_option is op."""
    mode = str(reading.source.plain("activation_checkpoint.mode") or "selective").lower()
    chosen = reading.source.plain("activation_checkpoint.selective_ac_option")
    option = (
        "op"
        if str(chosen).lower() == "op"
        else str(reading.read("activation_checkpoint.selective_ac_option", whole) or 2)
    )
    keys = [
        key
        for key in ("activation_checkpoint.mode", "activation_checkpoint.selective_ac_option")
        if key in reading.source
    ]
    if mode in ("full", "none"):
        reading.put("recompute", mode, "activation_checkpoint.mode")
        return
    if mode != "selective":
        reading.ask("recompute", "activation_checkpoint.mode")
        why = f"napkin does not support recomputation {mode[:40]!r}"
        if mode == "memory_budget":
            why = f"{BUDGET}; --recompute full is the least memory, none the most"
        reading.refuse("activation_checkpoint.mode", why, "recompute")
        return
    words = "operations" if option == "op" else "full" if option == "1" else f"every:{option}"
    if "activation_checkpoint.selective_ac_option" in reading.source:
        reading.derive("recompute", words, *keys)
    else:
        reading.default("recompute", words, "activation_checkpoint.selective_ac_option")


def precision(reading: Reading) -> None:
    """Read the precision: fp32 shards, bf16 compute; a float8 converter makes linear layers fp8."""
    kept = reading.read("training.dtype", fixed_dtype) or "fp32"
    compute = reading.read("training.mixed_precision_param", fixed_dtype) or "bf16"
    converters = [one.lower() for one in names(reading.source.plain("model.converters") or [])]
    eight = [one for one in converters if "float8" in one or "mx" in one]
    for one in converters:
        if one not in eight:
            reading.omit("model.converters", f"napkin does not know the converter {one[:40]!r}")
    old = reading.read("float8.enable_float8_linear|training.enable_float8_linear", flag)
    keys = [key for key in ("training.dtype", "training.mixed_precision_param") if key in reading.source]
    if eight or old:
        where = (
            "model.converters"
            if eight
            else next(
                key for key in ("float8.enable_float8_linear", "training.enable_float8_linear") if key in reading.source
            )
        )
        kind = "mxfp8" if eight and all("mx" in one for one in eight) else "fp8"
        reading.derive("precision", f"param={kept},grad={kept},compute={kind},state={kept}", where, *keys)
        for block in ("quantize", "float8", "mx"):
            if block in reading.source:
                reading.omit(block, "fp8 layer selection and fp8 all-gather")
        return
    for block in ("quantize", "mx"):
        if block in reading.source:
            reading.ignore(block)
    policy = (
        "bf16-pure"
        if kept == "bf16"
        else "amp-bf16"
        if compute == "bf16"
        else ("fp32" if compute == "fp32" else f"param=fp32,grad=fp32,compute={compute},state=fp32")
    )
    reading.derive("precision", policy, *keys) if keys else reading.default(
        "precision", policy, "training.dtype", "training.mixed_precision_param"
    )


def optimizer(reading: Reading) -> None:
    """Read the optimizer and its implementation: fused by default, except in files of 2024."""
    if "optimizer.name" in reading.source:
        take_optimizer(reading, "optimizer.name")
    else:
        reading.default("optimizer", "adamw", "optimizer.name")
    reading.switch("optimizer-in-backward", True, "optimizer.early_step_in_backward")
    form = reading.source.plain("optimizer.implementation")
    fused = reading.read("optimizer.fused", flag)
    if form is not None:
        reading.put("optimizer-form", str(form).lower().replace("for-loop", "forloop"), "optimizer.implementation")
    elif fused is not None:
        reading.put("optimizer-form", "fused" if fused else "foreach", "optimizer.fused")
    elif "training.batch_size" not in reading.source:
        reading.default("optimizer-form", "fused", "optimizer.implementation")


def compiled(reading: Reading) -> None:
    """Read whether the model is compiled; compiling only the loss does not count."""
    reading.take("compile", "training.compile", flag)
    on = reading.read("compile.enable", flag)
    if on is None:
        return
    parts = names(reading.source.plain("compile.components") or ["model"])
    keys = [key for key in ("compile.enable", "compile.components") if key in reading.source]
    reading.derive("compile", bool(on and "model" in parts), *keys)


SECTIONS = """job profiling metrics lr_scheduler checkpoint validation comm fault_tolerance model.tokenizer_path
    model.hf_assets_path model.print_after_conversion training.dataset training.dataset_path training.max_norm
    training.seed
    training.deterministic training.warmup_steps training.gc_freq training.data_parallel_type optimizer.lr optimizer.eps
    optimizer.beta1 optimizer.beta2 optimizer.weight_decay debug dump_folder parallelism.pipeline_parallel_schedule
    parallelism.context_parallel_rotate_method """
NAMED = {
    "training.enable_cpu_offload": "offloaded optimizer states",
    "training.mixed_precision_reduce": "gradient reduction dtype",
    "training.gc_freq": "Python garbage collection",
    "parallelism.disable_loss_parallel parallelism.enable_compiled_autograd": "parallel loss",
    "parallelism.pipeline_parallel_split_points parallelism.pipeline_parallel_layers_per_stage "
    "parallelism.pipeline_parallel_schedule_csv parallelism.module_fqns_per_model_part "
    "parallelism.pipeline_parallel_first_stage_less_layers "
    "parallelism.pipeline_parallel_last_stage_less_layers": "assignment of layers to pipeline stages",
    "model.norm_type model.use_flex_attn model.attn_mask_type": "alternative kernels",
    "activation_checkpoint": "selection of recomputed layers",
    "compile": "compilation settings",
    "experimental": "experimental features",
    "memory_estimation": "no training",
    "symm_mem_recipes": "communication",
    "primus_turbo": "Primus-Turbo kernels",
}
KEYS = (Key("training.seq_len", "seq", whole, 2048), Key("training.steps", "steps", whole, 10000))
RULES = (
    KeyRule("model.name model.flavor", "model", "family and flavor: llama3 is Llama 3.1", _model),
    KeyRule(
        " ".join(
            f"{part}.{key}"
            for part in PARTS
            for key in (
                "tensor_parallel_degree",
                "pipeline_parallel_degree",
                "context_parallel_degree",
                "expert_parallel_degree",
                "expert_tensor_parallel_degree",
                "data_parallel_shard_degree",
                "data_parallel_replicate_degree",
                "data_parallel_degree",
                "fsdp_reshard_after_forward",
                "enable_async_tensor_parallel",
            )
        )
        + " processes.procs",
        "tp pp cp ep etp gpus dp-shard zero async-tp",
        "degrees; a shard degree of -1 is what the others leave; ZeRO 3, 2 with a pipeline (no resharding)",
        layout,
    ),
    KeyRule(
        "training.local_batch_size training.batch_size training.global_batch_size "
        "training.gradient_accumulation_steps "
        "parallelism.pipeline_parallel_microbatch_size experimental.pipeline_parallel_microbatches",
        "micro-batch global-batch grad-accum schedule",
        "per data-parallel rank; a pipeline splits it into micro-batches",
        batch,
    ),
    KeyRule(
        "activation_checkpoint.mode activation_checkpoint.selective_ac_option",
        "recompute",
        "selective: every second layer, or selected operations with op",
        checkpointing,
    ),
    KeyRule(
        "training.dtype training.mixed_precision_param model.converters float8.enable_float8_linear",
        "precision",
        "fp32 shards and bf16 compute; converters make linear layers fp8",
        precision,
    ),
    KeyRule(
        "optimizer.name optimizer.implementation optimizer.fused optimizer.early_step_in_backward",
        "optimizer optimizer-form optimizer-in-backward",
        "fused",
        optimizer,
    ),
    KeyRule("compile.enable compile.components training.compile", "compile", "only if the model is compiled", compiled),
)
FORMAT = LaunchFormat(
    "torchtitan",
    "torchtitan's TOML",
    "pytorch/torchtitan torchtitan/config/job_config.py before 9810191bb",
    is_this,
    fixed={"framework": "torchtitan", "implementation": "torchtitan"},
    keys=KEYS,
    rules=RULES,
    ignored=SECTIONS,
    not_modelled=NAMED,
)
