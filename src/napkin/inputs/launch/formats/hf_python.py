"""Python programs that train with TRL, transformers' Trainer, peft or unsloth, read without running them."""

from __future__ import annotations

from napkin.inputs.launch.format import KeyRule, LaunchFormat
from napkin.inputs.launch.formats import hf_trainer
from napkin.inputs.launch.hf import lengths, trl
from napkin.inputs.launch.hf.adapter import adapter, quantization
from napkin.inputs.launch.hf.names import amount
from napkin.inputs.launch.hf.precision import precision
from napkin.inputs.launch.hf.virtual_tokens import SETTINGS, TOKENS, take_virtual_tokens
from napkin.inputs.launch.lora import take_adapter_dropout, take_layers, take_lora, take_saved
from napkin.inputs.launch.names import take_attention, take_model, take_optimizer
from napkin.inputs.launch.precisions import adapters, dtype
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.shared import IDLE_FSDP
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import Open, flag, whole
from napkin.inputs.presets import preset

MODEL = "model_name_or_path"
DTYPES = ("torch_dtype", "dtype")
OTHER_HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice", "MaskedLM",
               "ImageClassification", "Audio", "Speech", "CTC", "ObjectDetection", "Segmentation")  # fmt: skip
LINEARS = "q,k,v,o,gate,up,down"
"""unsloth's default LoRA targets (unsloth/models/llama.py)."""
PARTS = {"finetune_attention_modules": "q,k,v,o", "finetune_mlp_modules": "gate,up,down"}
"""FastModel's parts of a layer that get adapters → their linear layers, where they have the usual names."""
TOWERS = ("finetune_vision_layers", "finetune_language_layers")


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is a program whose trainer napkin read."""
    return source.syntax == "python" and bool(source.command)


def _fast(reading: Reading) -> bool:
    return "unsloth" in reading.source.command


def _kind(reading: Reading) -> str:
    """Return TRL's trainer kind (sft, dpo, …), or "" for transformers' Trainer."""
    return reading.source.command[-1] if "trl" in reading.source.command else ""


def _model(reading: Reading) -> None:
    """Read the model from from_pretrained; refuse a head that is not a language model's."""
    take_model(reading, MODEL)
    made = str(reading.source.plain("model_class") or "")
    head = next((one for one in OTHER_HEADS if one in made), None)
    if head == "SequenceClassification" and _kind(reading) == "reward":
        return
    if head is not None:
        reading.refuse("model_class", f"{made[:60]} has a different head from the preset of that name")


def _trainer(reading: Reading) -> None:
    name = "unsloth" if _fast(reading) else "trl" if _kind(reading) else "hf-trainer"
    reading.derive("trainer", name, "trainer")
    if _fast(reading):
        reading.assume("gpus", 1, MODEL)


def _task(reading: Reading) -> None:
    """Read the task from TRL's trainer class; transformers' Trainer is read like a TrainingArguments file."""
    kind = _kind(reading)
    if kind == "cpo" and str(reading.source.plain("loss_type")) == "simpo":
        reading.derive("task", "simpo", "loss_type")
    elif kind and kind not in trl.PROGRAMS:
        reading.ask("task", "trainer")
        reading.refuse("trainer", f"napkin does not support task of TRL's trainer {kind!r}", "task")
    else:
        trl.take_task(reading)
        if kind:
            reading.derive("task", trl.PROGRAMS[kind], "trainer")


def _seq(reading: Reading) -> None:
    """Read the sequence length: unsloth's model sets one, which the trainer may lower (unsloth/models/rl.py)."""
    if not _fast(reading) or reading.value_of("task") == "grpo":
        lengths.seq(reading)
        return
    reading.take("seq", "max_seq_length", whole, default=2048)
    reading.told("max_length")


def _adapter(reading: Reading) -> None:
    """Read adapters and quantization; unsloth loads nf4 with double quantization by default."""
    if not _fast(reading):
        if not _virtual_tokens(reading):
            adapter(reading)
        return
    if reading.read("use_peft", flag):
        by_name = str(reading.source.plain("model_class")) == "FastLanguageModel"
        take_lora(reading, "lora_r", "lora_target_modules", 16, LINEARS if by_name else "all")
        if not by_name:
            _parts(reading)
        take_adapter_dropout(reading, "lora_dropout")
        take_layers(reading, "layers_to_transform")
        take_saved(reading, "lora_modules_to_save")
        reading.told("use_peft")
    elif reading.find("use_peft") is not None:
        reading.ask("adapter", "use_peft")
    if reading.read("load_in_8bit", flag):
        reading.put("quantized", "int8", "load_in_8bit")
    elif reading.read("full_finetuning|load_in_16bit", flag):
        reading.told("full_finetuning", "load_in_16bit")
        reading.inputs.pop("quantized", None)
    elif (four := reading.read("load_in_4bit", flag)) is not None:
        reading.inputs.pop("quantized", None)
        if four:
            reading.put("quantized", "nf4-dq", "load_in_4bit")
    else:
        reading.inputs.pop("quantized", None)
        reading.default("quantized", "nf4-dq", "load_in_4bit")


def _virtual_tokens(reading: Reading) -> bool:
    """Read the virtual tokens of peft's prompt learning, which come on top of the tokens of a text where they pass
    through the network, and return whether the program has them."""
    if reading.source.has_any("lora_r", "lora_target_modules") or not take_virtual_tokens(reading, "peft_class"):
        return False
    count, text = reading.value_of("virtual-tokens"), reading.value_of("seq")
    if reading.value_of("adapter") != "prefix" and count is not None and text is not None:
        reading.derive("seq", text + count, TOKENS)
    if reading.read("use_peft", flag) is None:
        reading.ask("adapter", "use_peft")
    reading.told("use_peft", "lora_task_type")
    quantization(reading, None)
    return True


def _parts(reading: Reading) -> None:
    """Read the parts that FastModel gives adapters where no module is named (unsloth/models/vision.py, get_peft_model).

    The layers of a tower have the names of the language model's, so that one without the other is asked for.
    """
    if reading.source.plain("lora_target_modules") is not None:
        return
    keys = [key for key in (*PARTS, *TOWERS) if key in reading.source]
    off = [key for key in keys if reading.read(key, flag) is False]
    model = reading.value_of("model")
    apart = model is None or "vision_config" in preset(model).config
    if reading.open_among(*keys) or (apart and set(off) & set(TOWERS)):
        reading.ask("lora-targets", *keys)
    elif not keys:
        return
    elif left := [names for key, names in PARTS.items() if key not in off]:
        state = reading.derive if len(left) == len(PARTS) else reading.assume
        state("lora-targets", "all" if len(left) == len(PARTS) else left[0], *keys)
    else:
        reading.refuse(off[0], "no part of the model is trained", "lora-targets")


def _precision(reading: Reading) -> None:
    """Read the precision; unsloth keeps adapters in fp32 (unsloth_zoo/training_utils.py)."""
    if not _fast(reading):
        if isinstance(getattr(reading.find(MODEL), "value", None), Open) and not reading.source.has_any(*DTYPES):
            reading.ask("precision", MODEL)
        else:
            precision(reading)
        return
    reading.told("bf16", "fp16")
    narrow = reading.read("dtype", dtype) or ("fp16" if reading.read("fp16", flag) else "bf16")
    key = reading.named("dtype", "fp16", "bf16")
    if not reading.value_of("adapter"):
        reading.ask("precision", "full_finetuning")
    elif reading.find("dtype") is None and not reading.source.has_any("fp16", "bf16"):
        reading.default("precision", adapters(reading.value_of("quantized") or narrow, "fp32", narrow), "dtype")
    else:
        reading.derive("precision", adapters(reading.value_of("quantized") or narrow, "fp32", narrow), key)


def _others(reading: Reading) -> None:
    """Read the remaining options.

    unsloth recomputes by default and changes the defaults of TRL's arguments (unsloth/models/rl.py).
    """
    if not _fast(reading):
        hf_trainer.others(reading)
        return
    again = reading.source.plain("use_gradient_checkpointing")
    if again is not None:
        reading.put("recompute", "full" if again in (True, "unsloth", "True") else "none", "use_gradient_checkpointing")
        reading.told("gradient_checkpointing")
    take_optimizer(reading, "optim")
    reading.default("optimizer", "adamw-8bit" if reading.source.plain("arguments") else "adamw", "optim")
    reading.default("recompute", "full", "use_gradient_checkpointing")
    take_attention(reading, "attn_implementation")
    reading.default("attention", "flash", "attn_implementation")
    reading.take("packing", "packing", flag)


def _batch(reading: Reading) -> None:
    """Read the batch: 8 samples without accumulation by default; unsloth's TRL arguments default to 4 × 2."""
    changed = _fast(reading) and bool(reading.source.plain("arguments"))
    for key, option, usual in (
        ("per_device_train_batch_size", "micro-batch", 4 if changed else 8),
        ("gradient_accumulation_steps", "grad-accum", 2 if changed else 1),
    ):
        reading.take(option, key, whole)
        reading.default(option, usual, key)


def _frozen(reading: Reading) -> None:
    """Refuse a program that freezes parameters itself, unless adapters freeze the model anyway."""
    if "requires_grad" not in reading.source:
        return
    if "adapter" in reading.inputs:
        reading.told("requires_grad")
    else:
        reading.refuse("requires_grad", "the program freezes parameters; which ones is not read", "freeze-layers")


def _refused_adapters(reading: Reading) -> None:
    kind = reading.source.plain("peft_class")
    if kind is not None and "virtual-tokens" not in reading.inputs:
        reading.refuse("peft_class", f"napkin does not read the arguments of peft's {kind}Config", "adapter")


FORMAT = LaunchFormat(
    "hf-python",
    "Python programs of TRL, transformers' Trainer, peft and unsloth",
    "huggingface/trl trl/trainer/*_config.py; huggingface/transformers training_args.py; huggingface/peft "
    "tuners/lora/config.py; unslothai/unsloth unsloth/models/{loader,llama,rl}.py",
    is_this,
    rules=(
        KeyRule("model_name_or_path model_class", "model", "the argument of from_pretrained", _model),
        KeyRule("trainer", "trainer gpus", "the class; unsloth runs on one GPU", _trainer),
        KeyRule(
            "num_generations max_completion_length beta loss_type reward_funcs",
            "task",
            "from TRL's class: SFTTrainer, DPOTrainer, GRPOTrainer, KTO, ORPO, Reward, RLOO",
            _task,
        ),
        KeyRule(
            "per_device_train_batch_size gradient_accumulation_steps",
            "micro-batch grad-accum",
            "8, 1; unsloth 4, 2",
            _batch,
        ),
        KeyRule(
            "max_length max_seq_length max_prompt_length max_completion_length",
            "seq",
            "1,024; unsloth's from_pretrained: 2,048",
            _seq,
        ),
        KeyRule("max_steps num_train_epochs", "steps epochs", "max_steps wins; 3 epochs", amount),
        KeyRule(
            "use_peft lora_r lora_dropout lora_target_modules layers_to_transform lora_modules_to_save use_dora "
            "load_in_4bit load_in_8bit load_in_16bit full_finetuning bnb_4bit_quant_type bnb_4bit_use_double_quant",
            "adapter lora-rank lora-dropout lora-targets modules-to-save quantized",
            "LoraConfig, get_peft_model, BitsAndBytesConfig; unsloth: 4-bit by default",
            _adapter,
        ),
        KeyRule(
            "num_generations use_vllm beta",
            "samples-per-prompt max-prompt-tokens max-response-tokens rollout reference",
            "GRPO and RLOO: the reference is the model with adapters disabled",
            hf_trainer.rollout,
        ),
        KeyRule(
            f"peft_class {' '.join(SETTINGS)}",
            "adapter virtual-tokens seq",
            "prompt tuning, p-tuning and prefix tuning; peft's other configurations are refused",
            _refused_adapters,
        ),
        KeyRule("requires_grad", "", "a program that freezes parameters is refused without adapters", _frozen),
        KeyRule(
            "deepspeed fsdp fsdp_config",
            "framework zero offload",
            "as in a YAML file",
            hf_trainer.framework,
        ),
        KeyRule(
            "torch_dtype dtype bf16 fp16",
            "precision",
            "weights are loaded in torch_dtype (default fp32); bf16 adds autocast; unsloth: adapters in fp32",
            _precision,
        ),
        KeyRule(
            "optim attn_implementation gradient_checkpointing use_gradient_checkpointing use_liger_kernel packing "
            "torch_compile",
            "optimizer attention recompute loss kernels packing compile",
            "TRL and unsloth recompute by default",
            _others,
        ),
    ),
    ignored=hf_trainer.FORMAT.ignored
    + f"""{IDLE_FSDP} arguments model_class lora_task_type use_cache device_map
        low_cpu_mem_usage trust_remote_code random_state bnb_4bit_compute_dtype bnb_4bit_quant_storage
        peft_config.inference_mode peft_config.init_lora_weights peft_config.alpha_pattern.* loftq_config
        remove_unused_columns hub_model_id
        assistant_only_loss completion_only_loss max_lora_rank disable_log_stats reward_funcs dataset_text_field
        shuffle_dataset dataloader_drop_last greater_is_better eval_packing truncation_mode pad_token eos_token
        average_tokens_across_devices label_smoothing_factor use_exact_model_name fix_tokenizer""",
    not_modelled={
        **hf_trainer.FORMAT.not_modelled,
        "peft_config.*": "selection of parameters with adapters",
        "bnb_4bit_quant_storage": "storage dtype of quantized weights under FSDP",
        "fast_inference gpu_memory_utilization float8_kv_cache": "settings of the generation engine",
        "finetune_*": "selection of modules with adapters",
    },
    refused=hf_trainer.FORMAT.refused,
)
