"""SageMaker HyperPod's fine-tuning recipes (model_type: llm_finetuning_aws). Its verl recipes are read as verl's."""

from __future__ import annotations

from napkin.inputs.launch.checks import check_batch, take_heads_exchanged
from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.hf.adapter import adapter
from napkin.inputs.launch.names import take_attention, take_model, take_optimizer
from napkin.inputs.launch.precisions import adapters
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.shared import take_amount, take_fsdp
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import either, flag, number, whole, word

RENAMED = {
    "training_config.model_config.peft_config.r": "lora_r",
    "training_config.model_config.peft_config.peft_type": "tuning_type",
    "training_config.model_config.peft_config.lora_dropout": "lora_dropout",
    "training_config.model_config.peft_config.target_modules": "lora_target_modules",
    "training_config.model_config.peft_config.exclude_modules": "lora_exclude_modules",
    "training_config.model_config.peft_config.use_dora": "use_dora",
    "training_config.model_config.peft_config": "peft",
    "training_config.model_config": "",
    "training_config.training_args": "",
    "training_config": "",
}
"""Keys and blocks, the more specific first → the names that the rules use."""


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is a recipe of HyperPod's own fine-tuning."""
    return source.has_all("training_config.model_config.model_name_or_path", "training_config.training_args")


def _machine(reading: Reading) -> None:
    for block in ("scale_config", "elastic_policy"):
        if block in reading.source:
            reading.omit(block, "other batches for other numbers of nodes")
    devices, nodes = reading.read("trainer.devices", whole), reading.read("trainer.num_nodes", whole) or 1
    if devices:
        reading.derive("gpus", devices * nodes, "trainer.devices", "trainer.num_nodes")
    else:
        reading.ask("gpus", "trainer.devices")


def _method(reading: Reading) -> None:
    """Read task, adapter and precision; the recipe does not state the dtype of weights that are trained in full."""
    reading.take("task", "trainer_type", word({"sft": "sft", "dpo": "dpo"}))
    if reading.value_of("task") == "dpo" and reading.read("reference_free", flag):
        reading.put("reference", "none", "reference_free")
    adapter(reading)
    if reading.value_of("adapter") is None:
        reading.ask("precision", "strategy.fsdp_config")
    else:
        held = reading.value_of("quantized") or "bf16"
        reading.assume("precision", adapters(held, "fp32"), "tuning_type")


def _batch(reading: Reading) -> None:
    reading.take("global-batch", "train_batch_size", whole)
    reading.take("micro-batch", "micro_train_batch_size", whole)
    check_batch(reading, "train_batch_size")
    take_amount(reading, "max_epochs", 1)


def _others(reading: Reading) -> None:
    reading.derive("framework", "fsdp", "strategy.fsdp_config")
    take_fsdp(reading, "strategy.fsdp_config")
    for key in ("ring_attn_size", "ulysses_sequence_parallel_size"):
        size = reading.read(key, whole)
        if size and size > 1 and key.startswith("ulysses"):
            take_heads_exchanged(reading, key)
        elif size and size > 1:
            reading.put("cp", size, key)
    reading.take("recompute", "gradient_checkpointing", either("full", "none"), default="none")
    take_attention(reading, "attn_implementation")
    reading.take("packing", "packing_samples", flag)
    take_optimizer(reading, "optim")
    reading.default("optimizer", "adamw", "optim")
    if (reading.read("aux_loss_coef", number) or 0) > 0:
        reading.omit("aux_loss_coef", "token routing to experts")


FORMAT = LaunchFormat(
    "hyperpod",
    "SageMaker HyperPod's fine-tuning recipes",
    "aws/sagemaker-hyperpod-recipes recipes_collection/recipes/fine-tuning",
    is_this,
    keys=(Key("max_len", "seq", whole),),
    rules=(
        KeyRule(
            "training_config.model_config.model_name_or_path",
            "model",
            "a preset's name; for a fine-tune, give MODEL",
            lambda reading: take_model(reading, "model_name_or_path"),
        ),
        KeyRule("trainer.devices trainer.num_nodes", "gpus", "GPUs of a node × nodes", _machine),
        KeyRule(
            "training_config.training_args.trainer_type training_config.model_config.peft_config",
            "task adapter lora-rank lora-dropout lora-targets quantized precision",
            "sft or dpo; bf16 weights under LoRA are assumed, in full training the precision must be given",
            _method,
        ),
        KeyRule(
            "training_config.training_args.train_batch_size training_config.training_args.micro_train_batch_size "
            "training_config.training_args.max_epochs",
            "global-batch micro-batch epochs",
            "the global batch, and the micro-batch of a GPU",
            _batch,
        ),
        KeyRule(
            "training_config.training_args.strategy.fsdp_config training_config.training_args.ring_attn_size "
            "training_config.training_args.gradient_checkpointing training_config.model_config.attn_implementation "
            "training_config.training_args.packing_samples",
            "framework zero offload dp-shard cp recompute attention packing optimizer",
            "FSDP; ring attention is read as cp",
            _others,
        ),
    ),
    ignored="""display_name instance_types run adam_betas
        version datasets force_rerun apply_chat_template chat_template_key generation_cfg lora_checkpoint_file_path
        model_save_name multimodal peft l2 lr_scheduler lr_warmup_ratio max_ckpt_mem max_ckpt_num merge_weights M
        override_training_dir resume_checkpoint_path save_hf_ckpt sampling_method trainer_callbacks training_dir
        use_tensorboard use_wandb gradient_checkpointing_use_reentrant disable_ds_ckpt disable_fast_tokenizer
        gradient_clipping_threshold nll_loss_coef log_gpu_memory log_run_time label_smoothing max_samples trainer
        pretrain_mode lora_alpha strategy.fsdp_config.state_dict_type strategy.fsdp_config.sync_module_states
        strategy.fsdp_config.cpu_ram_efficient_loading""",
    not_modelled={
        "strategy.fsdp_config": "FSDP wrapping and prefetching; napkin assumes the framework's defaults",
        "ring_head_stride": "context parallelism implementation",
        "ref_offload": "placement of the reference model",
        "beta loss_type": "the preference loss",
        "device_map": "layers spread over several GPUs in one process",
        "grad_accum_dtype": "the format that gradients are accumulated in",
    },
    translated=lambda source: source.renamed(RENAMED),
)
