"""NeMo AutoModel's recipes in YAML: fine-tuning, pretraining and distillation under FSDP2."""

from __future__ import annotations

from napkin.inputs.launch.checks import check_batch, check_gpus
from napkin.inputs.launch.format import KeyRule, LaunchFormat
from napkin.inputs.launch.lora import take_adapter_dropout
from napkin.inputs.launch.megatron.core import take_predictions
from napkin.inputs.launch.names import AUTOCAST, PURE, take_attention, take_model, take_optimizer, take_targets
from napkin.inputs.launch.precisions import adapters, dtype, take_fp8
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.rollouts import take_other_model
from napkin.inputs.launch.shapes import layers_of
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import flag, names, natural, product, whole

S, D, P, Q = "step_scheduler", "distributed", "peft", "quantization"
MODEL = (
    "model.pretrained_model_name_or_path",
    "model.config.pretrained_model_name_or_path",
    "model.config.name_or_path",
    "model.config",
)
SIZES = """hidden_size num_hidden_layers num_attention_heads num_key_value_heads intermediate_size vocab_size
    num_experts n_routed_experts num_experts_per_tok moe_intermediate_size head_dim n_embd n_layer n_head"""
PREDICTED = ("model.num_nextn_predict_layers", "model.config.num_nextn_predict_layers")
"""Keys of the number of multi-token prediction modules (components/models/common/mtp/mtp.py)."""
DEGREES = {"tp": "tp_size", "pp": "pp_size", "cp": "cp_size", "ep": "ep_size"}
PRETRAINS = ("megatron", "nanogpt", "mock", "MockIterable", "pretrain")
"""Parts of the class names of pretraining data sets."""


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is a recipe of NeMo AutoModel that trains a language model."""
    sized = source.has_any(f"{S}.local_batch_size", f"{S}.global_batch_size")
    target = str(source.plain("model._target_") or "")
    return sized and "model" in source and not any(word in target for word in ("Diffusion", "diffusers"))


def _model(reading: Reading) -> None:
    """Read the model by name; refuse size overrides, which make it another model."""
    keys = tuple(key for key in MODEL if reading.source.plain(key) is not None)
    take_model(reading, *(keys or ("model",)))
    for block in ("model", "model.config"):
        for name in SIZES.split():
            key = f"{block}.{name}"
            if reading.find(key) is not None and keys:
                reading.refuse(key, "changes the named model", "model")
    if reading.find(f"{Q}.load_in_4bit") is None and not reading.source.has_any(P):
        reading.inputs.pop("quantized", None)


def _task(reading: Reading) -> None:
    """Read the task from the recipe; the data set distinguishes fine-tuning from pretraining, which share one."""
    recipe = str(reading.source.plain("recipe") or reading.source.plain("recipe._target_") or "")
    data = str(reading.source.plain("dataset._target_") or "")
    if "Distillation" in recipe:
        reading.derive("task", "distill", "recipe")
        take_other_model(reading, "reference", "teacher_model.pretrained_model_name_or_path")
        return
    if recipe and not any(word in recipe for word in ("NextTokenPrediction", "Benchmarking", "VLM")):
        reading.refuse("recipe", f"napkin does not read the recipe {recipe.rsplit('.', 1)[-1][:60]!r}", "task")
    elif any(word in data for word in PRETRAINS):
        reading.derive("task", "pretrain", "dataset._target_")
    else:
        reading.derive("task", "sft", *[key for key in ("recipe", "dataset._target_") if key in reading.source])


def _read_model(reading: Reading) -> None:
    _model(reading)
    take_predictions(reading, reading.named(*PREDICTED))


def _layout(reading: Reading) -> None:
    """Read the parallel degrees and the ZeRO stage (components/distributed/{config,parallelizer}.py).

    dp_size is what the other degrees leave. With experts, FSDP keeps parameters gathered by default.
    """
    sizes = {option: reading.take(option, f"{D}.{name}", whole) for option, name in DEGREES.items()}
    strategy = str(reading.source.plain(f"{D}.strategy") or "fsdp2").lower()
    total, copies = (reading.read(f"{D}.{one}", whole) for one in ("dp_size", "dp_replicate_size"))
    if total and all(reading.find(f"{D}.{DEGREES[one]}") is None or sizes[one] for one in ("tp", "pp", "cp")):
        dense = [sizes[one] or 1 for one in ("tp", "pp", "cp")]
        keys = [f"{D}.{DEGREES[one]}" for one in ("tp", "pp", "cp") if sizes[one]]
        reading.derive("gpus", product([total, *dense]), f"{D}.dp_size", *keys)
    else:
        reading.ask("gpus", f"{D}.dp_size")
    if total and copies and copies > 1:
        reading.derive("dp-shard", total // copies, f"{D}.dp_size", f"{D}.dp_replicate_size")
    elif copies and copies > 1:
        reading.ask("dp-shard", f"{D}.dp_replicate_size")
    if strategy == "ddp":
        reading.put("zero", 0, f"{D}.strategy")
    elif strategy == "megatron_fsdp":
        reading.default("zero", 3, f"{D}.zero_dp_strategy")
        reading.omit(f"{D}.strategy", "Megatron-FSDP is timed like torch's FSDP")
    elif strategy == "fsdp2":
        _reshard(reading, sizes)
    else:
        reading.refuse(f"{D}.strategy", f"napkin does not support strategy {strategy[:40]!r}", "zero")
    if (sizes["tp"] or 1) > 1:
        reading.take("sp", f"{D}.sequence_parallel", flag)
    if f"{D}.offload_policy" in reading.source and strategy == "fsdp2":
        reading.put("offload", "optimizer,parameters", f"{D}.offload_policy")
    check_gpus(reading, f"{D}.dp_size")


def _reshard(reading: Reading, sizes: dict[str, int | None]) -> None:
    """Read reshard_after_forward: off by default with pipeline stages and for mixtures of experts."""
    own, moe = f"{D}.reshard_after_forward", f"{D}.moe.reshard_after_forward"
    key = moe if (sizes["ep"] or 1) > 1 else own
    again = reading.read(key, flag)
    if again is not None:
        reading.put("zero", 3 if again else 2, key)
    else:
        reading.default("zero", 2 if key == moe or (sizes["pp"] or 1) > 1 else 3, key)


def _batch(reading: Reading) -> None:
    """Read the global batch and the local batch, which pipeline stages split into micro-batches."""
    reading.take("global-batch", f"{S}.global_batch_size", whole)
    local, cut = f"{S}.local_batch_size", f"{D}.pipeline.pp_microbatch_size"
    if (reading.value_of("pp") or 1) > 1:
        reading.take("micro-batch", cut, whole, default=1)
        _stages(reading)
    else:
        reading.take("micro-batch", local, whole, default=1)
    check_batch(reading, f"{S}.global_batch_size")
    if not reading.take("steps", f"{S}.max_steps", whole):
        reading.take("epochs", f"{S}.num_epochs", whole)


def _stages(reading: Reading) -> None:
    """Read the virtual stages per rank from layers_per_stage, if it divides the layers evenly."""
    key = f"{D}.pipeline.layers_per_stage"
    each, layers, stages = reading.read(key, whole), layers_of(reading.value_of("model")), reading.value_of("pp")
    if each and layers and layers % (each * stages) == 0:
        reading.derive("vp", layers // (each * stages), key, f"{D}.pp_size")
    elif each:
        reading.omit(key, "assignment of layers to pipeline stages")


def _seq(reading: Reading) -> None:
    """Read the sequence length: the pack's, else the data set's."""
    packs = [f"{block}.packed_sequence_size" for block in ("packed_sequence", "dataset")]
    packed = reading.named(*packs)
    reading.told(*packs)
    if reading.read(packed, natural):
        reading.take("seq", packed, whole)
        reading.derive("packing", True, packed)
        return
    keys = [f"dataset.{one}" for one in ("seq_length", "seq_len", "max_seq_length", "max_length")]
    if (own := "dataloader.collate_fn.max_length") in reading.source:  # most name a function there
        keys.append(own)
    if not reading.take("seq", "|".join(keys), whole):
        reading.ask("seq", reading.named(*keys))


def _adapter(reading: Reading) -> None:
    """Read LoRA: by default rank 8 on *_proj, in the model's dtype (components/_peft/lora.py)."""
    if reading.read(f"{Q}.load_in_4bit", flag):
        double = reading.read(f"{Q}.bnb_4bit_use_double_quant", flag)
        kind = str(reading.source.plain(f"{Q}.bnb_4bit_quant_type") or "fp4").lower()
        reading.put("quantized", "int4" if kind != "nf4" else "nf4-dq" if double else "nf4", f"{Q}.load_in_4bit")
    elif reading.read(f"{Q}.load_in_8bit", flag):
        reading.put("quantized", "int8", f"{Q}.load_in_8bit")
    if not reading.source.states(P):
        return
    dora = reading.read(f"{P}.use_dora", flag)
    reading.derive("adapter", "dora" if dora else "lora", *([f"{P}.use_dora"] if dora else []), f"{P}._target_")
    reading.take("lora-rank", f"{P}.dim", whole, default=8)
    take_adapter_dropout(reading, f"{P}.dropout")
    targets = reading.find(f"{P}.target_modules")
    excluded = reading.find(f"{P}.exclude_modules")
    if reading.read(f"{P}.match_all_linear", flag):
        reading.assume("lora-targets", "all", f"{P}.match_all_linear")
        reading.omit(f"{P}.match_all_linear", "the head gets an adapter too: give the layers with --lora-targets")
    elif targets is not None:
        _targets(reading, targets.value)
    elif excluded is not None:
        reading.ask("lora-targets", f"{P}.exclude_modules")
    else:
        reading.default("lora-targets", "all", f"{P}.target_modules")


def _targets(reading: Reading, value: object) -> None:
    """Read target patterns: `*_proj` matches attention and MLP linear layers, `*.q_proj` one of them."""
    key = f"{P}.target_modules"
    patterns = names(value)
    last = [one.rpartition(".")[2] if "." in one else one.lstrip("*") for one in patterns]
    if patterns == ["*_proj"] or patterns == ["*.*_proj"]:
        reading.derive("lora-targets", "all", key)
    elif all(one and not any(sign in one for sign in "*?[") for one in last):
        take_targets(reading, key, last)
    else:
        reading.ask("lora-targets", key, given=", ".join(patterns))


def _precision(reading: Reading) -> None:
    """Read the precision: FSDP2 computes in bf16 over weights in the dtype that they are loaded in.

    That is the checkpoint's dtype if torch_dtype is omitted or auto.
    """
    loaded = reading.read("model.torch_dtype|model.dtype", dtype)
    key = reading.named("model.torch_dtype", "model.dtype")
    compute = reading.read(f"{D}.mp_policy.param_dtype", dtype) or "bf16"
    keys = [one for one in (key, f"{D}.mp_policy.param_dtype") if one in reading.source]
    kept = "bf16" if loaded in (None, "auto") else str(loaded)
    state = reading.assume if loaded in (None, "auto") else reading.derive
    if reading.value_of("adapter"):
        policy = adapters(reading.value_of("quantized") or kept, kept, compute)
    else:
        policy = {("bf16", "bf16"): PURE, ("fp32", "bf16"): AUTOCAST, ("fp32", "fp32"): "fp32"}.get(
            (kept, compute), f"param={kept},grad={kept},compute={compute},state={kept}"
        )
    state("precision", policy, *(keys or [key]))
    take_fp8(reading, "fp8.enabled")
    for one in ("exp_avg_dtype", "master_weights", "master_weight_bits"):
        if reading.find(f"optimizer.{one}") is not None and not reading.value_of("adapter"):
            reading.ask("precision", f"optimizer.{one}")


def _others(reading: Reading) -> None:
    take_optimizer(reading, "optimizer._target_")
    kernel = "model.attn_implementation|model.backend.attn|model.text_config.attn_implementation"
    take_attention(reading, *kernel.split("|"))
    again = reading.find(f"{D}.activation_checkpointing", "parallelizer.activation_checkpointing")
    key = reading.named(f"{D}.activation_checkpointing", "parallelizer.activation_checkpointing")
    if again is not None and str(again.value).lower() in ("selective", "full"):
        chosen = str(again.value).lower()
        reading.assume("recompute", "operations", key) if chosen == "selective" else reading.put(
            "recompute", "full", key
        )
    elif (on := reading.read(key, flag)) is not None:
        reading.put("recompute", "full" if on else "none", key)
    else:
        reading.default("recompute", "none", key)
    loss = str(reading.source.plain("loss_fn._target_") or "").rsplit(".", 1)[-1]
    if "FusedLinear" in loss:
        reading.derive("loss", "fused", "loss_fn._target_")
    elif "Chunked" in loss:
        whole_graph = reading.read("loss_fn.compile", flag)
        reading.derive("loss", "chunked" if whole_graph else "chunked-eager", "loss_fn._target_")
    elif loss and "MaskedCrossEntropy" not in loss:
        reading.omit("loss_fn._target_", f"napkin does not know the memory of {loss[:40]!r}")
    if reading.read("compile.enabled", flag):
        reading.put("compile", True, "compile.enabled")
    elif reading.read("distributed.enable_compile", flag):  # layer by layer (distributed/config.py, FSDP2Config)
        reading.put("compile", True, "distributed.enable_compile")


FORMAT = LaunchFormat(
    "nemo-automodel",
    "NeMo AutoModel's recipes",
    "NVIDIA-NeMo/Automodel nemo_automodel/recipes/{_dist_utils.py,llm/train_ft.py}, components/{distributed/config,"
    "distributed/parallelizer,_peft/lora,_peft/module_matcher,training/step_scheduler}.py",
    is_this,
    fixed={"trainer": "nemo-automodel", "framework": "fsdp"},
    rules=(
        KeyRule(
            " ".join((*MODEL, *PREDICTED)), "model mtp", "a preset's name; size overrides are refused", _read_model
        ),
        KeyRule(
            "recipe recipe._target_ dataset._target_ teacher_model.pretrained_model_name_or_path",
            "task reference",
            "the recipe and the type of data set",
            _task,
        ),
        KeyRule(
            " ".join(f"{D}.{one}" for one in (*DEGREES.values(), "dp_size", "dp_replicate_size", "strategy"))
            + f" {D}.sequence_parallel {D}.offload_policy.* {D}.reshard_after_forward {D}.moe.reshard_after_forward",
            "tp pp cp ep dp-shard gpus zero sp offload",
            "FSDP2: ZeRO 3; ZeRO 2 with pipeline stages, and with experts unless moe.reshard_after_forward",
            _layout,
        ),
        KeyRule(
            f"{S}.global_batch_size {S}.local_batch_size {D}.pipeline.pp_microbatch_size "
            f"{D}.pipeline.layers_per_stage {S}.max_steps {S}.num_epochs",
            "global-batch micro-batch vp steps epochs",
            "local_batch_size, which pipeline stages split into pp_microbatch_size",
            _batch,
        ),
        KeyRule(
            "packed_sequence.packed_sequence_size dataset.packed_sequence_size dataset.seq_length dataset.seq_len",
            "seq packing",
            "the pack's length, else the maximum; must be given if the file has neither",
            _seq,
        ),
        KeyRule(
            f"{P}._target_ {P}.dim {P}.dropout {P}.target_modules {P}.exclude_modules {P}.match_all_linear "
            f"{P}.use_dora {Q}.load_in_4bit {Q}.load_in_8bit {Q}.bnb_4bit_quant_type {Q}.bnb_4bit_use_double_quant",
            "adapter lora-rank lora-targets lora-dropout quantized",
            "LoRA of rank 8 on *_proj",
            _adapter,
        ),
        KeyRule(
            f"model.torch_dtype model.dtype {D}.mp_policy.param_dtype fp8.enabled optimizer.exp_avg_dtype "
            "optimizer.master_weights optimizer.master_weight_bits",
            "precision",
            "weights in the loaded dtype, bf16 compute",
            _precision,
        ),
        KeyRule(
            f"optimizer._target_ model.attn_implementation model.backend.attn {D}.activation_checkpointing "
            "parallelizer.activation_checkpointing loss_fn._target_ loss_fn.compile compile.enabled "
            "distributed.enable_compile",
            "optimizer attention recompute loss compile",
            "FusedLinearCrossEntropy is fused",
            _others,
        ),
    ),
    ignored=f"""recipe dist_env rng dataset validation_dataset _validation_dataset dataloader validation_dataloader
        _validation_dataloader optimizer lr_scheduler ci wandb checkpoint clip_grad_norm nvtx skypilot slurm benchmark
        tokenizer processor model._target_ model.trust_remote_code model.output_hidden_states model.use_cache
        model.config._target_ model.config.trust_remote_code model.config.use_cache model.text_config.use_cache
        model.load_base_model model.force_hf model.use_sdpa_patching model.bos_token_id model.eos_token_id
        {P}.alpha {P}.use_triton {P}.lora_A_init {P}.dropout_position {P}._target_ {Q}.bnb_4bit_compute_dtype
        {Q}.bnb_4bit_quant_storage {D}._target_ {D}.mp_policy moe_metrics tool_call_eval parallelizer._target_
        compile.mode compile.dynamic compile.fullgraph compile.backend loss_fn.ignore_index loss_fn.chunk_len
        packed_sequence.packing_strategy packed_sequence.split_across_pack packed_sequence.max_packs prewarm
        packed_sequence.num_proc model.config.rope_theta model.config.rope_scaling model.config.rms_norm_eps
        model.config.architectures autocast.enabled embedding_row_repair _dsv4_tulu3_chat_template
        {S}.gc_every_steps {S}.ckpt_every_steps {S}.val_every_steps {S}.log_remote_every_steps
        {D}.patch_is_packed_sequence""",
    not_modelled={
        "model.backend": "choice of kernels",
        "model.use_liger_kernel": "fused kernels",
        f"{D}.pipeline autopipeline": "assignment of layers to pipeline stages",
        f"{D}.defer_fsdp_grad_sync {D}.enable_* {D}.fsdp2_*": "overlap of communication and computation",
        f"{D}.moe": "FSDP wrapping of expert layers",
        "fp8.*": "fp8 recipe and layer selection",
        f"{P}.use_memory_efficient_lora {P}.moe_rank_scaling {P}.lora_dtype {P}.exclude_modules": "adapter settings",
        "teacher_model teacher_distributed separate_meshes kd_ratio kd_loss_fn": "execution of the teacher",
        "freeze_config": "trained parts of a multimodal model",
        "loss_fn.fp32_upcast": "the loss's number format",
        "packed_sequence": "sample packing",
        "neftune": "embedding noise",
    },
    refused={
        "qat.enabled": "quantization-aware training",
    },
)
