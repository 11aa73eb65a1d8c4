"""NeMo 2's recipes: a recipe's own file, or a program that calls one and changes it."""

from __future__ import annotations

import re

from napkin.inputs.launch.checks import check_batch, check_gpus
from napkin.inputs.launch.format import KeyRule, LaunchFormat
from napkin.inputs.launch.formats.nemo import take_core_targets
from napkin.inputs.launch.megatron import core
from napkin.inputs.launch.names import FP8, MEGATRON
from napkin.inputs.launch.python.evaluated import SETTINGS
from napkin.inputs.launch.python.recipe_names import preset_of_recipe
from napkin.inputs.launch.python.recipes import RECIPE, TARGET
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import flag, natural, number, whole

S, M = "trainer.strategy", "model.config"
FINETUNE = "default_finetune_recipe"
"""What NeMo's recipes of fine-tuning begin with (recipes/finetune_default.py)."""
WORDS = {
    "tp": ("tensor_model_parallel_size", "tensor_parallelism"),
    "pp": ("pipeline_model_parallel_size", "pipeline_parallelism"),
    "cp": ("context_parallel_size", "context_parallelism"),
    "ep": ("expert_model_parallel_size", "expert_parallelism"),
    "etp": ("expert_tensor_parallel_size", "expert_tensor_parallelism"),
    "vp": ("virtual_pipeline_model_parallel_size", "virtual_pipeline_parallelism"),
    "sp": ("sequence_parallel", "sequence_parallelism"),
}
DEGREES = {option: (f"{S}.{own}", f"trainer.{given}", given) for option, (own, given) in WORDS.items()}
"""Of MegatronStrategy, of the function that makes a trainer, and of a recipe."""
DEVICES = ("trainer.devices", "trainer.num_gpus_per_node", "num_gpus_per_node")
NODES = ("trainer.num_nodes", "num_nodes")
SIZES = (
    "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups", "num_moe_experts",
    "moe_ffn_hidden_size", "kv_channels", "vocab_size", "moe_router_topk",
)  # fmt: skip
"""Sizes of a model's config, with which it is no longer the recipe's."""
OMITTED = {"micro-batch": 1, "global-batch": 128, "seq": 2048, "steps": 1000}
"""Of default_finetune_recipe, without packed sequences."""
AMOUNTS = {
    "micro-batch": "data.micro_batch_size",
    "global-batch": "data.global_batch_size",
    "seq": "data.seq_length|seq_length",
    "steps": "trainer.max_steps|max_steps",
}
POLICIES = {"bf16_mixed": MEGATRON, "fp16_mixed": "fp16-mixed", "16_mixed": "fp16-mixed"}


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is a recipe of NeMo 2."""
    return source.syntax == "python" and RECIPE in source and _kind(source) != ""


def _kind(source: LaunchFile) -> str:
    """Return whether a recipe pretrains or fine-tunes, from the function that makes it or that it starts."""
    word = str(source.plain(RECIPE) or "").rpartition(".")[2]
    kind = next((one for one in ("pretrain", "finetune") if word.startswith((one, f"default_{one}"))), "")
    return kind if word.endswith(("_recipe", "pretrain", "finetune")) else ""


def _is_begun(reading: Reading) -> bool:
    """Return whether the recipe begins with another file's, which sets what this one omits."""
    return f"{S}.{TARGET}" not in reading.source


def _model(reading: Reading) -> None:
    """Read the model from its config class, or from the module of the recipe that is called."""
    own = (M, "model", f"{M}.{TARGET}", "model.version", f"model.{TARGET}")
    keys = [one for one in own if one in reading.source.values] or [RECIPE]
    found = ((key, preset_of_recipe(str(reading.source.plain(key) or ""))) for key in keys)
    key, name = next((pair for pair in found if pair[1]), (keys[0], None))
    reading.put("model", name, key) if name else reading.ask("model", key, given=str(reading.source.plain(key) or ""))
    for size in SIZES:
        if reading.source.plain(f"{M}.{size}") is not None:
            reading.refuse(f"{M}.{size}", "sizes the model, which is no longer the recipe's", "model")
    reading.told(RECIPE, *keys)


def _task(reading: Reading) -> None:
    """Read the task, and the adapters that a recipe of fine-tuning has unless it says none."""
    if _kind(reading.source) == "pretrain":
        reading.derive("task", "pretrain", RECIPE)
        return
    reading.derive("task", "sft", RECIPE)
    scheme = reading.source.plain("peft_scheme")
    target = str(reading.source.plain(f"peft.{TARGET}") or "").lower()
    if "peft_scheme" not in reading.source and "peft" not in reading.source:
        if str(reading.source.plain(RECIPE)).endswith(FINETUNE):
            return
        reading.default("adapter", "lora", "peft_scheme")
    elif "dora" in target or scheme == "dora":
        reading.put("adapter", "dora", f"peft.{TARGET}" if target else "peft_scheme")
    elif "lora" in target or scheme == "lora":
        reading.put("adapter", "lora", f"peft.{TARGET}" if target else "peft_scheme")
    elif target or reading.open_among("peft_scheme") or str(scheme).lower() not in ("none",):
        reading.ask("adapter", "peft" if target else "peft_scheme")
        return
    else:
        reading.told("peft_scheme")
        return
    rank = reading.take("lora-rank", "peft.dim", whole)
    if rank is None and target:
        reading.default("lora-rank", 32, "peft.dim")
    elif rank is None:
        reading.ask("lora-rank", "peft.dim")
    reading.take("lora-dropout", "peft.dropout", number)
    if "peft.target_modules" in reading.source:
        take_core_targets(reading, "peft.target_modules")
    else:
        reading.default("lora-targets", "q,k,v,o,gate,up,down", "peft.target_modules")


def _machine(reading: Reading) -> None:
    """Read the GPUs and the layout; a recipe that is called sets what the program omits."""
    begun = _is_begun(reading)
    each, nodes = reading.read("|".join(DEVICES), whole), reading.read("|".join(NODES), whole)
    keys = reading.written(*DEVICES, *NODES)
    if each and nodes:
        reading.derive("gpus", each * nodes, *keys)
    else:
        reading.ask("gpus", "trainer.num_nodes" if each else "trainer.devices")
    tuned = str(reading.source.plain(RECIPE)).endswith(FINETUNE)
    for option, names in [pair for pair in DEGREES.items() if pair[0] != "sp"]:
        key = reading.named(*names)
        if reading.find(key) is not None:
            reading.take(option, key, whole, silent=option in ("vp", "etp"))
        elif option in ("tp", "pp", "cp") and begun and not tuned:
            reading.ask(option, names[0])
        elif option in ("tp", "pp", "cp"):
            reading.default(option, 1, names[0])
    sp = reading.read("|".join(DEGREES["sp"]), flag)
    tp = reading.value_of("tp")
    if sp is not None and tp:
        reading.derive("sp", sp and tp > 1, *reading.written(*DEGREES["sp"], *DEGREES["tp"]))
    elif SETTINGS in reading.source and tp:
        reading.derive("sp", tp > 1, *reading.written(*DEGREES["tp"]), SETTINGS)
    check_gpus(reading, f"{S}.tensor_model_parallel_size")


def _batch(reading: Reading) -> None:
    """Read batch, sequence length and steps; a recipe that is called sets what the program omits."""
    tuned = str(reading.source.plain(RECIPE)).endswith(FINETUNE)
    packed = reading.read("packed_sequence", flag)
    for option, names in AMOUNTS.items():
        key = reading.named(*names.split("|"))
        if reading.find(key) is not None:
            reading.take(option, key, whole)
        elif tuned and not (packed and option == "global-batch"):
            reading.default(option, OMITTED[option], key)
        else:
            reading.ask(option, names.split("|")[0])
    if packed:
        reading.put("packing", True, "packed_sequence")
    check_batch(reading, "data.global_batch_size")


def _precision(reading: Reading) -> None:
    """Read the precision plugin: Megatron's, whose gradients are reduced in fp32 unless it says otherwise."""
    key, dtype = f"trainer.plugins.{TARGET}", "trainer.plugins.params_dtype"
    word = str(reading.source.plain(key) or "").rpartition(".")[2]
    if word == "MegatronMixedPrecision" and reading.source.plain(dtype) == "torch.bfloat16":
        word = str(reading.source.plain("trainer.plugins.precision"))  # else the weights are fp32
    elif not word and "trainer.precision" in reading.source:
        key, word = "trainer.precision", str(reading.source.plain("trainer.precision"))
    policy = FP8 if word.startswith("bf16_with_fp8") else POLICIES.get(word.replace("-", "_"))
    changed = "trainer.plugins.grad_reduce_in_fp32"
    narrow = reading.read(changed, flag) is False
    if (
        any(one in reading.source for one in ("trainer.plugins.fp8", "trainer.plugins.fp4"))
        or SETTINGS in reading.source
        or reading.source.unread
        or reading.read("performance_mode", flag)
    ):
        reading.ask("precision", "trainer.plugins")
    elif not word and _is_begun(reading):
        policy = MEGATRON.replace("grad=fp32", "grad=bf16") if narrow else MEGATRON
        reading.default("precision", policy, "trainer.plugins")
    elif policy is None:
        reading.ask("precision", key, given=word)
    elif narrow and policy == MEGATRON:
        reading.derive("precision", policy.replace("grad=fp32", "grad=bf16"), key, changed)
    else:
        reading.put("precision", policy, key)
    reading.told(key, changed, dtype, "trainer.plugins.precision")


def _optimizer(reading: Reading) -> None:
    """Read the optimizer and its sharding: the recipes' distributed Adam, Megatron's or torch's FSDP."""
    key = f"optim.{TARGET}"
    word = str(reading.source.plain(key) or "")
    named = str(reading.source.plain("optim.config.optimizer") or "adam").lower()
    if named not in ("adam", "adamw") or (word and not re.search("fused_adam|MegatronOptimizerModule", word)):
        reading.ask("optimizer", key)
    elif word:
        reading.put("optimizer", "adamw", key)
    else:
        reading.default("optimizer", "adamw", key)
    fsdp = reading.source.plain(f"{S}.fsdp")
    whole_shards = reading.read(f"{SETTINGS}.use_mcore_fsdp", flag)
    switch = "optim.config.use_distributed_optimizer"
    shards = reading.read(switch, flag)
    if fsdp is not None:
        reading.put("zero", 3, f"{S}.fsdp")
    elif whole_shards:
        reading.put("zero", 3, f"{SETTINGS}.use_mcore_fsdp")
    elif shards is not None:
        reading.put("zero", int(shards), switch)
    elif "distributed_fused_adam" in word:
        reading.put("zero", 1, key)
    else:
        reading.default("zero", 1, switch)
    reading.told(key, f"{S}.fsdp")
    core.take_predictions(reading, f"{M}.mtp_num_layers")
    if reading.read(f"{SETTINGS}.recompute_layers", natural) or reading.source.states(f"{SETTINGS}.recompute_modules"):
        reading.ask("recompute", f"{SETTINGS}.recompute_layers")
    elif f"{M}.recompute_granularity" in reading.source:
        core.take_recompute(reading, *(f"{M}.recompute_{name}" for name in core.RECOMPUTE))


FORMAT = LaunchFormat(
    "nemo-recipe",
    "NeMo 2's recipes in Python",
    "NVIDIA/NeMo nemo/collections/llm/recipes",
    is_this,
    fixed={"framework": "megatron-core"},
    rules=(
        KeyRule(
            f"{RECIPE} {M}.{TARGET} model.version model.{TARGET} " + " ".join(f"{M}.{one}" for one in SIZES),
            "model",
            "the model's config class, or the module of the recipe",
            _model,
        ),
        KeyRule(
            f"peft_scheme peft.{TARGET} peft.dim peft.dropout peft.target_modules",
            "task adapter lora-rank lora-dropout lora-targets",
            "pretrain_recipe, finetune_recipe; the latter has LoRA unless peft_scheme is none",
            _task,
        ),
        KeyRule(
            " ".join("|".join(names) for names in (DEVICES, NODES, *DEGREES.values())),
            "gpus tp pp cp ep etp vp sp",
            "a recipe that is called sets what the program omits: asked",
            _machine,
        ),
        KeyRule(
            "data.micro_batch_size data.global_batch_size data.seq_length|seq_length trainer.max_steps|max_steps "
            "packed_sequence",
            "micro-batch global-batch seq steps packing",
            "as they are",
            _batch,
        ),
        KeyRule(
            f"trainer.plugins.{TARGET} trainer.plugins.precision trainer.plugins.params_dtype trainer.precision "
            "trainer.plugins.grad_reduce_in_fp32",
            "precision",
            "bf16_mixed: bf16 weights, fp32 gradients and master weights",
            _precision,
        ),
        KeyRule(
            f"{SETTINGS}.use_mcore_fsdp {SETTINGS}.recompute_layers {SETTINGS}.recompute_modules "
            f"optim.{TARGET} optim.config.optimizer optim.config.use_distributed_optimizer {S}.fsdp {M}.mtp_num_layers "
            + " ".join(f"{M}.recompute_{one}" for one in core.RECOMPUTE),
            "optimizer zero recompute mtp",
            "distributed_fused_adam shards optimizer states",
            _optimizer,
        ),
    ),
    ignored=f"""log resume resume_path dir name tokenizer data.{TARGET} data.num_workers data.paths data.split
        data.dataset_root trainer.{TARGET} trainer.accelerator trainer.limit_* trainer.log_* trainer.val_*
        trainer.use_distributed_sampler trainer.accumulate_grad_batches trainer.enable_checkpointing trainer.logger
        {S}.{TARGET} {S}.gradient_as_bucket_view {S}.ckpt_* {S}.pipeline_dtype {S}.ddp.{TARGET}
        {S}.ddp.check_for_nan_in_grad optim.max_lr optim.min_lr optim.warmup_steps optim.adam_* optim.config.lr
        optim.config.adam_* optim.config.weight_decay optim.config.{TARGET} optim.lr_scheduler peft.alpha
        model.tokenizer model.{TARGET} {M}.seq_length fn""",
    not_modelled={
        "trainer.callbacks": "callbacks, such as the overlap of communication",
        f"{S}.ddp": "gradient reduction",
        S: "strategy settings",
        "trainer.plugins": "precision settings",
        "trainer": "trainer settings",
        SETTINGS: "settings for speed",
        "performance_mode": "settings that the recipe changes for speed",
        M: "model settings",
        "model": "model settings",
        "data": "settings of the data",
        "optim": "placement and format of optimizer states",
        "peft": "settings of the adapters",
    },
)
