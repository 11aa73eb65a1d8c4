"""ArcticTraining's YAML: fine-tuning in DeepSpeed, with Ulysses for long sequences."""

from __future__ import annotations

from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.hf.adapter import adapter
from napkin.inputs.launch.names import MASTER, take_attention, take_model
from napkin.inputs.launch.precisions import adapters, dtype
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.shared import take_deepspeed_block
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import either, flag, natural, whole, word

RENAMED = {
    "model.peft_config.r": "lora_r",
    "model.peft_config.peft_type": "tuning_type",
    "model.peft_config.lora_dropout": "lora_dropout",
    "model.peft_config.target_modules": "lora_target_modules",
}
"""Keys → the names that the shared rules of adapters use."""
Z = "deepspeed.zero_optimization"
TASKS = {"sft": "sft", "causal": "pretrain", "dpo": "dpo"}
OPTIMIZERS = {"cpu_adam": "adamw", "fused_adam": "adamw", "fused_adam_moe": "adamw", "cpu_adam_moe": "adamw"}
STEPS = "exit_iteration|train_iters"


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is ArcticTraining's configuration."""
    return source.is_mapping and source.has_all("type", "model.name_or_path", "data.sources")


def _task(reading: Reading) -> None:
    """Read the trainer's type; the trainers of draft models and speculators are programs of their own."""
    kind = reading.read("type", word({**TASKS, "": "sft"}, lambda _: None))
    if kind is not None:
        reading.put("task", kind, "type")
    else:
        reading.ask("task", "type")
        reading.refuse("type", f"napkin does not know the trainer {str(reading.source.plain('type'))[:40]!r}", "task")


def _layout(reading: Reading) -> None:
    """Read DeepSpeed's block; ZeRO 2 without one (config/trainer.py, build_deepspeed_config)."""
    reading.derive("framework", "deepspeed", "deepspeed")
    reading.take("zero", f"{Z}.stage", natural, default=0 if Z in reading.source else 2)
    take_deepspeed_block(reading, Z, f"{Z}.offload_optimizer", f"{Z}.offload_param")
    if reading.read("activation_checkpoint_cpu_offload", flag):
        before = reading.value_of("offload")
        reading.put(
            "offload", f"{before},activations" if before else "activations", "activation_checkpoint_cpu_offload"
        )
    reading.take("ulysses", "sequence_parallel_size", whole)
    reading.take("ep", "expert_parallel_size", whole)


def _method(reading: Reading) -> None:
    """Read adapters and the precision: weights in model.dtype, and DeepSpeed's fp32 copy of what is trained."""
    adapter(reading)
    held = reading.read("model.dtype", dtype) or "bf16"
    kinds = {"bf16": MASTER, "fp16": "fp16-mixed", "fp32": "fp32"}
    policy = kinds.get(held, MASTER)
    if reading.value_of("adapter"):
        policy = adapters(held, "fp32", held, master=held != "fp32")
    stated = "model.dtype" in reading.source
    reading.derive("precision", policy, "model.dtype") if stated else reading.default(
        "precision", policy, "model.dtype"
    )


def _others(reading: Reading) -> None:
    """Read the rest. Layers are checkpointed; with Ulysses the loss is computed in parts unless Liger fuses it."""
    reading.take("recompute", "model.disable_activation_checkpoint", either("none", "full"), default="full")
    take_attention(reading, "model.attn_implementation")
    reading.default("attention", "flash", "model.attn_implementation")
    kind = reading.read("optimizer.type", word(OPTIMIZERS, lambda _: None))
    if kind is None and reading.find("optimizer.type") is not None:
        reading.refuse("optimizer.type", "napkin does not know this optimizer", "optimizer")
    elif kind is not None:
        reading.put("optimizer", kind, "optimizer.type")
    reading.default("optimizer", "adamw", "optimizer.type")
    if str(reading.source.plain("model.type") or "").lower() == "liger":
        reading.put("loss", "fused", "model.type")
        reading.put("kernels", "liger", "model.type")
    elif (reading.value_of("ulysses") or 1) > 1:
        reading.assume("loss", "chunked-recomputed", "sequence_parallel_size")
    else:
        reading.default("loss", "torch", "model.type")
    reading.take("packing", "data.pack_samples", flag)
    if reading.read(STEPS, natural):
        reading.take("steps", STEPS, natural)
        reading.told("epochs")
    else:
        reading.take("epochs", "epochs", natural, default=1)


FORMAT = LaunchFormat(
    "arctic-training",
    "ArcticTraining's YAML",
    "snowflakedb/ArcticTraining arctic_training/config/{trainer,model,data}.py, trainer/sft_trainer.py",
    is_this,
    keys=(
        Key("micro_batch_size", "micro-batch", whole, 1),
        Key("gradient_accumulation_steps", "grad-accum", whole, 1),
        Key("data.max_length", "seq", whole, 8192),
    ),
    rules=(
        KeyRule(
            "model.name_or_path",
            "model",
            "a preset's name; for a fine-tune, give MODEL",
            lambda reading: take_model(reading, "model.name_or_path"),
        ),
        KeyRule("type", "task", "sft, causal (pretrain), dpo", _task),
        KeyRule(
            "deepspeed.zero_optimization sequence_parallel_size expert_parallel_size activation_checkpoint_cpu_offload",
            "framework zero offload ulysses ep",
            "DeepSpeed, ZeRO 2 without the block; sequence_parallel_size is Ulysses",
            _layout,
        ),
        KeyRule(
            "model.peft_config model.dtype",
            "adapter lora-rank lora-dropout lora-targets precision",
            "bf16 weights and DeepSpeed's fp32 copy",
            _method,
        ),
        KeyRule(
            "model.disable_activation_checkpoint model.attn_implementation model.type optimizer.type data.pack_samples "
            "exit_iteration train_iters epochs",
            "recompute attention loss kernels optimizer packing steps epochs",
            "layers are checkpointed; exit_iteration wins over epochs",
            _others,
        ),
    ),
    ignored="""code skip_validation tokenizer logger wandb scheduler checkpoint optimizer loss_log_interval
        train_log_iter_interval train_log_metrics_path eval_interval eval_log_iter_interval min_iterations
        overfit_first_batch mem_profiler mem_profiler_dir mem_profiler_max_entries kill_switch_path seed
        exit_iteration_this_run data.sources data.eval_sources data.train_eval_split data.num_proc data.dl_num_workers
        data.seed data.use_data_cache data.cache* data.fail_on_missing_cache data.type data.mask_inputs
        deepspeed.steps_per_print deepspeed.wall_clock_breakdown deepspeed.gradient_clipping model.save_name
        model.peft_config.lora_alpha model.peft_config.task_type model.peft_config.bias""",
    not_modelled={
        "deepspeed": "DeepSpeed's buffers and reduction",
        "tiled_mlp_compute": "an MLP computed in parts of the sequence",
        "arctic_moe enable_arctic_moe_custom_optimization enable_routing_replay": "execution of experts",
        "data.always_max_length data.filter_samples data.div_length data.repeat_to_pack_max_length": "packed samples",
        "model.hf_config_kwargs": "overrides of the model's configuration",
        "beta ref_model": "the preference loss and its reference",
    },
    translated=lambda source: source.renamed(RENAMED),
)
