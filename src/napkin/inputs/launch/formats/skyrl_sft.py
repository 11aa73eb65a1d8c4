"""SkyRL's launch lines of fine-tuning: `python -m skyrl.train.main_sft strategy=fsdp model.path=…`."""

from __future__ import annotations

from napkin.inputs.launch.checks import check_gpus
from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.formats import skyrl
from napkin.inputs.launch.formats.skyrl import F, M, P, T
from napkin.inputs.launch.names import take_model
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.rollouts import take_padding
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import number, product, whole

OF_POLICY = ("model", "optimizer_config", "megatron_config", "fsdp_config", "sequence_parallel_size")
"""Keys and blocks that are the policy's in reinforcement learning."""
OF_TRAINER = ("strategy", "gradient_checkpointing", "micro_train_batch_size_per_gpu", "max_tokens_per_microbatch")
PLACED = ("placement.num_gpus_per_node", "placement.num_nodes")


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is SkyRL's configuration of fine-tuning."""
    return source.module.endswith("main_sft.py") and "strategy" in source and "model.path" in source


def translated(source: LaunchFile) -> LaunchFile:
    """Return the source with the keys of SkyRL's reinforcement learning, whose parts fine-tuning reuses."""
    return source.renamed({**{key: f"{P}.{key}" for key in OF_POLICY}, **{key: f"{T}.{key}" for key in OF_TRAINER}})


def _machine(reading: Reading) -> None:
    """Read the model and the GPUs; the degrees of Megatron are 2 and 2 unless they are stated."""
    take_model(reading, f"{P}.model.path")
    sizes = [reading.read(key, whole) for key in PLACED]
    stated = [key for key in PLACED if key in reading.source]
    if reading.open_among(*PLACED):
        reading.ask("gpus", *stated)
    else:
        gpus = product([size or usual for size, usual in zip(sizes, (4, 1), strict=True)])
        reading.derive("gpus", gpus, *stated) if stated else reading.default("gpus", gpus, *PLACED)
    skyrl.take_layout(reading)
    if skyrl.is_megatron(reading.source):
        for option, key in (("tp", f"{M}.tensor_model_parallel_size"), ("pp", f"{M}.pipeline_model_parallel_size")):
            reading.default(option, 2, key)
        check_gpus(reading, PLACED[0])
    skyrl.take_adapter(reading)
    reading.default("optimizer", "adamw", f"{P}.optimizer_config")


def _batch(reading: Reading) -> None:
    """Read the batch and the lengths. A packed row has max_length tokens; else it is the longest sample's."""
    tokens = f"{T}.max_tokens_per_microbatch"
    if reading.read(tokens, lambda value: None if value == -1 else whole(value)):
        reading.ask("micro-batch", tokens)
    else:
        reading.take("micro-batch", f"{T}.micro_train_batch_size_per_gpu", whole, default=2)
    if "max_length" not in reading.source:
        reading.ask("seq", "max_length")
    reading.switch("packing", True, "use_sequence_packing")
    take_padding(reading, "remove_microbatch_padding", "use_sample_packing")
    steps = reading.take("steps", "num_steps", whole, silent=True)
    if steps is None:
        reading.take("epochs", "num_epochs", number, default=1)


FORMAT = LaunchFormat(
    "skyrl-sft",
    "SkyRL's settings of fine-tuning",
    "NovaSky-AI/SkyRL skyrl/train/config/sft_config.py, skyrl/train/sft_trainer.py",
    is_this,
    fixed={"task": "sft"},
    keys=(
        Key("batch_size", "global-batch", whole, 4),
        Key("max_length", "seq", whole),
    ),
    rules=(
        KeyRule(
            f"{P}.model.path {' '.join(PLACED)} {T}.strategy {M}.* {F}.reshard_after_forward {F}.fsdp_size "
            f"{F}.cpu_offload {P}.sequence_parallel_size {T}.gradient_checkpointing {P}.model.lora.rank "
            f"{P}.model.lora.target_modules {P}.model.lora.dropout",
            "model gpus framework implementation fsdp-version zero tp pp cp ep etp sp dp-shard offload recompute "
            "precision adapter lora-rank lora-targets lora-dropout optimizer",
            "as in SkyRL's reinforcement learning; Megatron's tp 2 and pp 2 by default",
            _machine,
        ),
        KeyRule(
            f"{T}.micro_train_batch_size_per_gpu {T}.max_tokens_per_microbatch use_sequence_packing "
            "remove_microbatch_padding use_sample_packing num_steps num_epochs",
            "micro-batch seq packing padding steps epochs",
            "micro-batch 2 by default; num_steps wins",
            _batch,
        ),
    ),
    ignored=f"""m isolated extra with with_editable env_file project directory frozen {P}.optimizer_config
        *dataset* messages_key tools_key system_key eval_* logger project_name run_name tags ckpt_* seed num_workers
        async_batch_collation dataloader_* sampler* cache_dir force_recache disable_cache train_on_what resume_from
        hf_save_interval export_path max_ckpts_to_keep enable_ray_gpu_monitor record_memory torch_profiler_config
        {P}.model.lora.alpha {P}.model.lora.init_method dummy_run_max_steps""",
    not_modelled={
        f"{M}.*": "settings of Megatron",
        f"{F}.*": "FSDP's settings",
        "dummy_run_full_ctx": "rows of made-up tokens",
        "use_torch_compile": "compilation of the logits' part",
        "model_config_kwargs": "model configuration overrides",
    },
    translated=translated,
)
