"""Hugging Face's TrainingArguments, TRL's and the alignment handbook's recipes."""

from __future__ import annotations

from napkin.inputs.launch.checks import BATCH, refuse_prediction, take_hybrid, take_machine
from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.hf.accelerate_line import LAUNCHERS, ask_sharding, take_accelerate
from napkin.inputs.launch.hf.adapter import adapter, is_qlora
from napkin.inputs.launch.hf.blocks import flattened
from napkin.inputs.launch.hf.lengths import seq
from napkin.inputs.launch.hf.names import BATCHES, EPOCHS, amount, ask_own, spelled
from napkin.inputs.launch.hf.precision import is_from_scratch, precision
from napkin.inputs.launch.hf.trl import (
    OF_TRL,
    TEACHER,
    has_trl_defaults,
    take_task,
    take_trainer,
)
from napkin.inputs.launch.names import take_attention, take_model, take_optimizer
from napkin.inputs.launch.own_names import refuse_frozen
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.rollouts import of_trl, take_other_model
from napkin.inputs.launch.shared import (
    IDLE_FSDP,
    NAMED_FSDP,
    SHARDING,
    WHY_FSDP,
    take_deepspeed_file,
    take_fsdp,
    take_fsdp_file,
    take_liger,
)
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.stated import DEFAULT
from napkin.inputs.launch.values import flag, number, whole
from napkin.options.launches import TRAINING_ARGUMENTS


def is_this(source: LaunchFile) -> bool:
    """Return whether a file names a model with transformers' TrainingArguments and no LLaMA-Factory key."""
    flat = flattened(source)
    stated, trl = (sum(one in flat for one in keys) for keys in (TRAINING_ARGUMENTS, OF_TRL))
    line = source.syntax == "shell" and UNMISTAKABLE in flat
    own = source.syntax == "shell" and is_qlora(flat)
    if ("base_model" in source and not line) or not (stated or own):
        return False
    if not flat.has_any(*MODELS, *(OWN_MODELS if line else ())):
        if source.has_any("finetuning_type", "stage"):
            return False
        if any(f"{block}.{UNMISTAKABLE}" in source for block in OF_ARGUMENTS):
            return True
        return (source.is_mapping or source.syntax == "shell") and stated + trl >= ENOUGH
    launched = any(one in source.command for one in LAUNCHERS)
    return own or stated >= 2 or trl > 0 or UNMISTAKABLE in flat or (launched and stated > 0)


MODELS = ("model_name_or_path", "model_name", "model_id")
OWN_MODELS = ("model_path", "base_model", "base_model_name_or_path", "config_name")
"""Names of the model on launch lines of a program of one's own, and run_clm.py's of a config.json to start from."""
SUMS = "gradient_accumulation_steps|grad_accum|grad_accum_steps|grad_acc_steps|accumulation_steps"
OF_ARGUMENTS = ("training_args", "training_arguments")
"""Blocks named for TrainingArguments, in a file of a program that takes the model from its line (ChatGLM3, GLM-4)."""
UNMISTAKABLE = "per_device_train_batch_size"
"""The argument that no other library has."""
ENOUGH = 4
"""Arguments that tell a file without a model, which its program names."""


def rollout(reading: Reading) -> None:
    """Read the generation engine and the reference: the model with adapters disabled, a copy, or the teacher."""
    take_other_model(reading, "reference", TEACHER)
    if reading.value_of("task") in ("grpo", "rloo"):
        for key in ("num_generations", "reward_funcs", "use_vllm"):
            if key in reading.source and reading.find(key) is not None:
                reading.told(key)
        engine = [key for key in reading.source.values if key.startswith("vllm") or key == "use_vllm"]
        of_trl(reading, (512, 256))
        for key in engine:
            if all(key not in one.where for one in reading.inputs.values()):
                reading.omit(key, "settings of the generation engine")


def framework(reading: Reading) -> None:
    """Read the GPU count, the framework, ZeRO stage and offload from the launch line and the files that it names."""
    take_machine(reading)
    reading.take("gpus", "num_processes", whole)
    if take_accelerate(reading):
        return
    if take_deepspeed_file(reading) or ask_sharding(reading):
        return
    words = str(reading.source.plain("fsdp") or "").lower().split()
    if words and words != ["false"]:
        reading.derive("framework", "fsdp", "fsdp")
        stage = next((SHARDING[one] for one in words if one in SHARDING), 3)
        reading.put("zero", stage, "fsdp")
        if any(one.startswith("hybrid") for one in words):
            take_hybrid(reading, "fsdp")
        if "offload" in words:
            reading.put("offload", "optimizer,parameters", "fsdp")
        if "fsdp_config" in reading.source:
            kept = reading.inputs["zero"]
            take_fsdp_file(reading)
            take_fsdp(reading, "fsdp_config")
            reading.inputs["zero"] = kept


def prompts(reading: Reading) -> None:
    """Read the prompts of a step of GRPO and RLOO, whose batches count responses, where the GPUs are known."""
    keys = ("micro-batch", "grad-accum", "gpus", "samples-per-prompt")
    micro, steps, gpus, samples = (reading.value_of(key) for key in keys)
    if reading.value_of("task") not in ("grpo", "rloo") or not (micro and steps and gpus and samples):
        return
    where = ("per_device_train_batch_size", "gradient_accumulation_steps", "num_generations")
    if micro * steps * gpus % samples:
        what = f"{micro} × {steps} responses on {gpus} GPUs are not a multiple of {samples}"
        reading.contradict("num_generations", what, *BATCH)
    else:
        reading.derive("global-batch", micro * steps * gpus // samples, *where)


OF_QLORA = (("micro-batch", 1, BATCHES), ("grad-accum", 16, tuple(SUMS.split("|"))))
QLORA_STEPS = 10_000
"""Defaults of qlora.py's TrainingArguments (artidoro/qlora qlora.py)."""


def assume_qlora(reading: Reading) -> None:
    """Assume qlora.py's batch and steps, which win over epochs, in place of TrainingArguments' own defaults."""
    if not is_qlora(reading.source):
        return
    for option, usual, keys in OF_QLORA:
        if not reading.source.has_any(*keys) and reading.inputs[option].origin == DEFAULT:
            reading.assume(option, usual, keys[0])
    if "max_steps" not in reading.source and ("qlora" in reading.source.program or not reading.source.has_any(*EPOCHS)):
        reading.assume("steps", QLORA_STEPS, "max_steps")
        reading.inputs.pop("epochs", None)
        reading.told(*EPOCHS)


def others(reading: Reading) -> None:
    """Read optimizer, attention, recomputation, loss, packing and compilation."""
    if "optimizer" not in reading.inputs:
        take_optimizer(reading, "optim")
    reading.default("optimizer", "paged-adamw" if is_qlora(reading.source) else "adamw", "optim")
    if reading.source.has_any("attn_implementation"):
        take_attention(reading, "attn_implementation")
    else:
        for key in ("use_flash_attn", "use_flash_attention", "use_flash_attention_2", "flash_attn"):
            reading.switch("attention", "flash", key)
    refuse_prediction(reading)
    smoothed = reading.named("label_smoothing_factor", "label_smoothing")
    if reading.read(smoothed, number):
        reading.omit(smoothed, "keeps the log-probabilities of the whole vocabulary (LabelSmoother)")
    refuse_frozen(reading)
    reading.default("attention", "flash", "attn_implementation")
    on = reading.read("gradient_checkpointing", flag)
    if on is not None:
        reading.put("recompute", "full" if on else "none", "gradient_checkpointing")
    elif reading.value_of("recompute") is None:
        usual = "full" if has_trl_defaults(reading) or is_qlora(reading.source) else "none"
        reading.default("recompute", usual, "gradient_checkpointing")
    _loss(reading)
    if reading.read("packing", flag) is not None:
        reading.put("packing", reading.read("packing", flag), "packing")
    if reading.read("activation_offloading", flag):
        before = reading.value_of("offload")
        reading.put("offload", f"{before},activations" if before else "activations", "activation_offloading")
    reading.switch("compile", True, "torch_compile")


LOSSES = {"nll": "torch", "dft": "torch", "chunked_nll": "chunked-recomputed"}
"""TRL's loss_type of texts → form; the default is chunked_nll since 1.7, nll before (sft_config.py)."""


def _loss(reading: Reading) -> None:
    """Read the form of the cross entropy of texts."""
    for key in ("use_liger", "use_liger_kernel"):
        take_liger(reading, key)
    if (
        reading.value_of("loss")
        or reading.value_of("trainer") != "trl"
        or reading.value_of("task") not in (None, "sft")
    ):
        return
    form = LOSSES.get(str(reading.source.plain("loss_type")))
    if form is not None:
        reading.put("loss", form, "loss_type")
    elif not has_trl_defaults(reading):
        reading.default("loss", "torch", "loss_type")


def read_model(reading: Reading) -> None:
    """Read the model under the keys that these programs give it."""
    take_model(reading, *MODELS, *(OWN_MODELS if reading.source.syntax == "shell" else ()))
    if "model" not in reading.inputs:
        reading.ask("model", "model_name_or_path")
    if is_from_scratch(reading.source):
        reading.assume("task", "pretrain", "config_name")


FORMAT = LaunchFormat(
    "hf-trainer",
    "Hugging Face TrainingArguments, TRL",
    "huggingface/trl trl/trainer/{model_config,sft_config,dpo_config,grpo_config}.py; huggingface/transformers "
    "training_args.py",
    is_this,
    keys=(
        Key("|".join(BATCHES), "micro-batch", whole, 8),
        Key(SUMS, "grad-accum", whole, 1),
    ),
    rules=(
        KeyRule(
            "model_name_or_path|model_name|model_id|model_path|base_model|base_model_name_or_path",
            "model",
            "a preset's name; for a fine-tune, give MODEL",
            read_model,
        ),
        KeyRule(" ".join(OF_TRL), "trainer", "trl if the file has one of TRL's keys, else hf-trainer", take_trainer),
        KeyRule(
            "num_generations reward_funcs beta desirable_weight simpo_gamma gamma_beta_ratio loss_type "
            "center_rewards_coefficient",
            "task",
            "GRPO by its keys; with beta only, give --task: DPO, ORPO and KTO share it",
            take_task,
        ),
        KeyRule(
            "max_length max_seq_length max_prompt_length max_completion_length max_source_length max_target_length",
            "seq target-seq",
            "sequence length; GRPO: prompt + completion; TRL's default is 1024",
            seq,
        ),
        KeyRule(
            "max_steps num_train_epochs|num_epochs|epochs|n_epochs",
            "steps epochs",
            "max_steps wins unless it is -1; 3 epochs",
            amount,
        ),
        KeyRule(
            "use_peft lora_r lora_dropout lora_target_modules trainable lora_modules_to_save modules_to_save use_dora "
            "load_in_4bit load_in_8bit use_bnb_nested_quant q_lora",
            "adapter lora-rank lora-dropout lora-targets modules-to-save quantized",
            "LoRA of rank 16; nf4-dq with use_bnb_nested_quant",
            adapter,
        ),
        KeyRule(
            "num_generations use_vllm beta",
            "samples-per-prompt max-prompt-tokens max-response-tokens rollout reference",
            "GRPO and RLOO: the reference is the model with adapters disabled",
            rollout,
        ),
        KeyRule("deepspeed fsdp fsdp_config", "framework zero offload", "a DeepSpeed file, or FSDP's flags", framework),
        KeyRule(
            "use_deepspeed use_fsdp batch_size mini_batch_size micro_batch_size",
            "micro-batch zero",
            "names of a program's own leave them open",
            ask_own,
        ),
        KeyRule(
            "bits source_max_len",
            "micro-batch grad-accum steps",
            "qlora.py's arguments: batch 1, accumulation 16, 10000 steps are assumed",
            assume_qlora,
        ),
        KeyRule("num_generations", "global-batch", "GRPO, RLOO: responses of a step / num_generations", prompts),
        KeyRule(
            "torch_dtype dtype bf16 fp16 mixed_precision",
            "precision",
            "weights are loaded in torch_dtype (default fp32); bf16 adds autocast",
            precision,
        ),
        KeyRule(
            "optim attn_implementation gradient_checkpointing use_liger use_liger_kernel loss_type packing "
            "activation_offloading torch_compile",
            "optimizer attention recompute loss kernels packing offload compile",
            "TRL recomputes by default, and computes the loss in parts of the tokens, except in files with keys of TRL "
            "before 0.20 (max_seq_length)",
            others,
        ),
    ),
    ignored="""gradient_checkpointing_kwargs lora_task_type tf32 dataset_batch_size ignore_data_skip
    trackio_space_id chat_template_kwargs chat_template_path num_completions_to_print """
    """weight_decay max_grad_norm adam_beta1 """ + IDLE_FSDP,
    not_modelled={
        NAMED_FSDP: WHY_FSDP,
        "fsdp_config": WHY_FSDP,
        "padding_free": "padding-free batches",
        "max_prompt_length": "part of the sequence length",
        "precompute_ref_log_probs": "whether the reference model runs during training",
        "group_by_length": "length grouping reduces padding",
        "beta": "the KL weight; 0 needs no reference",
        "sync_ref_model ref_model* num_iterations generation_batch_size steps_per_generation": "post-training settings",
        "teacher_model*": "distillation settings",
        "temperature": "sampling settings",
    },
    refused={
        "spectrum_config_path unfrozen_parameters": "only the named parameters are trained",
        "optim_target_modules": "optimizer states of these modules are low-rank, which napkin does not model",
    },
    translated=spelled,
)
