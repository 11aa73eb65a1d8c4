"""NeMo 1's YAML, as in its examples and launcher."""

from __future__ import annotations

import re

from napkin.inputs.launch.checks import check_batch, check_gpus
from napkin.inputs.launch.format import KeyRule, LaunchFormat, apply, open_reading
from napkin.inputs.launch.lora import take_adapter_dropout
from napkin.inputs.launch.megatron import core, model
from napkin.inputs.launch.names import FP32, MEGATRON
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.remaining import finish
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.stated import DEFAULT
from napkin.inputs.launch.values import flag, names, number, product, whole
from napkin.inputs.megatron_shape import config_of

OF_ALIGNER = {"sft": "sft", "dpo": "dpo", "kto": "kto", "rm": "rm", "ppo": "ppo", "reinforce": "rloo",
              "knowledge_distillation": "distill"}  # fmt: skip
"""Blocks of NeMo-Aligner's trainer → the task."""


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is NeMo 1's YAML."""
    return "trainer" in source and source.has_any(
        "model.micro_batch_size", "model.encoder_seq_length", "model.tensor_model_parallel_size"
    )


def _machine(reading: Reading) -> None:
    each, nodes = reading.read("trainer.devices", whole), reading.read("trainer.num_nodes", whole)
    if each and reading.find("trainer.num_nodes") is None:
        reading.default("gpus", each, "trainer.num_nodes", "trainer.devices")  # the launcher may set num_nodes
    elif each:
        reading.derive("gpus", each * (nodes or 1), "trainer.devices", "trainer.num_nodes")
    elif "trainer.devices" in reading.source:
        reading.ask("gpus", "trainer.devices")
    kind = next((one for one in OF_ALIGNER if f"trainer.{one}" in reading.source), None)
    if kind == "reinforce":  # no critic, like RLOO
        reading.assume("task", "rloo", "trainer.reinforce")
    elif kind:
        reading.derive("task", OF_ALIGNER[kind], f"trainer.{kind}")
    elif (data := "model.data.train_ds.max_seq_length") in reading.source:  # megatron_gpt_finetuning.py's data
        reading.derive("task", "sft", data)
    steps = reading.read("trainer.max_steps", lambda value: None if value == -1 else whole(value))
    epochs = reading.read("trainer.max_epochs", lambda value: None if value == -1 else number(value))
    if steps or reading.open_among("trainer.max_steps"):
        reading.put("steps", steps, "trainer.max_steps")
    elif epochs:
        reading.put("epochs", epochs, "trainer.max_epochs")


def _precision(reading: Reading) -> None:
    """Read the precision: 32 is fp32; bf16 has fp32 main parameters with O2, and is autocast over fp32 without it."""
    kind = str(reading.source.plain("trainer.precision") or "32").lower()
    keys = [key for key in ("trainer.precision", "model.megatron_amp_O2", "model.fp8") if key in reading.source]
    if not re.fullmatch(r"(bf16|16|32|fp16|fp32)(-(mixed|true))?", kind):
        reading.ask("precision", "trainer.precision")
        return
    main = reading.read("model.megatron_amp_O2", flag)
    if reading.read("model.fp8", flag):
        policy = MEGATRON.replace("compute=bf16", "compute=fp8")
    elif "bf16" in kind:
        policy = MEGATRON if main is not False else "amp-bf16"
    elif "16" in kind:
        policy = "fp16-mixed" if main else "param=fp32,grad=fp32,compute=fp16,state=fp32"
    else:
        policy = FP32
    # NVIDIA/NeMo megatron_gpt_model.py, setup_mcore_distributed_parallel: grad_reduce_in_fp32
    synced = str(reading.source.plain("model.optim.grad_sync_dtype") or "fp32").lower()
    if reading.source.plain("model.optim.name") == "mcore_distributed_optim" and synced != "fp32":
        policy = policy.replace("grad=fp32", "grad=bf16")
        keys.append("model.optim.grad_sync_dtype")
    reading.derive("precision", policy, *keys) if keys else reading.default("precision", policy, "trainer.precision")


NO_DECODER = {
    "model.mm_cfg": "a vision tower runs alongside the language model",
    "model.patch_dim": "a vision transformer, not a language model",
    "model.bert_binary_head": "an encoder, not a decoder-only language model",
    "model.retro": "a retrieval model",
    "model.unet_config": "a diffusion model",
    "model.vision": "a vision tower runs alongside the language model",
}
"""Keys that NeMo's decoders do not have → what they configure."""
OTHERS = re.compile(
    r"bert|bart|(?<![a-z])m?t5|retro|griffin|mamba|neva|clip|imagen|diffusion|dreambooth|sdxl|controlnet"
)
"""Names of NeMo's other models, as in the run names of its files."""
TARGETS = {
    "attention_qkv": ["q", "k", "v"],
    "linear_qkv": ["q", "k", "v"],
    "attention_dense": ["o"],
    "linear_proj": ["o"],
    "mlp_fc1": ["gate", "up"],
    "linear_fc1": ["gate", "up"],
    "mlp_fc2": ["down"],
    "linear_fc2": ["down"],
    "attention": ["q", "k", "v", "o"],
    "mlp": ["gate", "up", "down"],
    "all": ["all"],
}
"""NeMo's fused linear layers → the preset's linear layers that they fuse."""
STAGE_OF_ADAM = {
    "fused_adam": 0,
    "distributed_fused_adam": 1,
    "mcore_distributed_optim": 1,
    "adamw": 0,
    "adam": 0,
    "megatron_fused_adam": 0,
}
"""NeMo's names of Adam with decoupled weight decay → ZeRO stage."""


def _check_decoder(reading: Reading) -> None:
    """Refuse models other than decoders, which use the same size keys."""
    for key, why in NO_DECODER.items():
        if key in reading.source:
            reading.refuse(key, why, "model")
            return
    for key in ("name", "run.name", "exp_manager.name"):
        found = OTHERS.search(str(reading.source.plain(key) or "").lower())
        if found:
            reading.refuse(key, f"names {found[0]}, which is not a decoder that napkin builds from sizes", "model")
            return


def take_core_targets(reading: Reading, key: str) -> None:
    """Read LoRA targets by Megatron-core's names; fused QKV and gate-up projections count as their parts."""
    value = reading.find(key)
    listed = [part for one in names(value.value if value is not None else []) for part in TARGETS.get(one, [one])]
    if listed:
        reading.assume("lora-targets", ",".join(dict.fromkeys(listed)), key)
    else:
        reading.ask("lora-targets", key)


def _model(reading: Reading) -> None:
    """Read the model block with Megatron-core's keys."""
    _check_decoder(reading)
    inner = open_reading(OF_MODEL, reading.source.under("model").renamed({"num_moe_experts": "num_experts"}))
    apply(OF_MODEL, inner)
    degrees = product([inner.value_of(name) or 1 for name in ("tp", "pp", "cp")])
    gpus = reading.inputs.get("gpus")
    if gpus is not None and gpus.value is not None:
        if gpus.origin == DEFAULT and gpus.value % degrees:  # of one node; the launcher may set num_nodes
            reading.ask("gpus", "trainer.num_nodes")
        inner.inputs["gpus"] = reading.inputs["gpus"]
    check_gpus(inner, "tensor_model_parallel_size")
    check_batch(inner, "global_batch_size")
    finish(inner)
    reading.adopt(inner, "model")


def _inside(reading: Reading) -> None:
    """Read the model block: sizes, sequence length, recomputation, optimizer and adapters."""
    _take_size(reading)
    if reading.find("data.train_ds.max_seq_length") is not None:
        # of fine-tuning data, whatever encoder_seq_length says (gpt_sft_dataset.py, collate_fn)
        reading.take("seq", "data.train_ds.max_seq_length", whole)
    core.take_sp(reading)
    core.take_recompute(
        reading,
        "activations_checkpoint_granularity",
        "activations_checkpoint_method",
        "activations_checkpoint_num_layers",
    )
    core.take_dropout(reading, None)
    core.take_attention(reading)
    core.take_loss(reading)
    core.take_gradients(reading)
    _take_optimizer(reading)
    _take_adapter(reading)
    if reading.read("cpu_offloading", flag):
        reading.omit("cpu_offloading", "CPU offload of activations and weights")


def _take_size(reading: Reading) -> None:
    """Read the model's dimensions, or ask for the model if the file names a checkpoint instead."""
    model.take_shape(reading)
    core.take_predictions(reading, built="layers" in reading.shape)
    if "layers" in reading.shape:
        model.take_vocabulary(reading, "tokenizer.type", "tokenizer.type", "tokenizer.model")
        reading.describe("num_layers", "hidden_size", "num_attention_heads", "ffn_hidden_size")
        reading.build(lambda: config_of(_flags(reading) | model.vocabulary_flag(reading), reading.value_of("seq")))
    else:
        reading.ask("model", "restore_from_path")
        for degree_ in ("tp", "pp", "cp", "ep"):  # the checkpoint's degrees if the file has none
            if reading.inputs[degree_].origin == DEFAULT:
                del reading.inputs[degree_]


def _take_optimizer(reading: Reading) -> None:
    """Read the optimizer and the ZeRO stage: FSDP's sharding strategy, or the optimizer's own sharding."""
    source = reading.source
    name = str(source.plain("optim.name") or "").lower()
    sharded = reading.read("fsdp", flag)
    if reading.open_among("optim.name"):
        reading.ask("optimizer", "optim.name")
        reading.ask("zero", "optim.name")
    if name == "sgd":
        reading.put("optimizer", "sgd-momentum", "optim.name")
    elif name in STAGE_OF_ADAM:
        reading.put("optimizer", "adamw", "optim.name")
    elif name:
        reading.ask("optimizer", "optim.name")
        reading.refuse("optim.name", f"napkin does not support optimizer {name[:40]!r}", "optimizer")
    if sharded:
        kinds = {"full": 3, "hybrid": 3, "grad": 2}
        reading.derive(
            "zero",
            kinds.get(str(source.plain("fsdp_sharding_strategy") or "full"), 3),
            "fsdp",
            "fsdp_sharding_strategy",
        )
    elif name:
        reading.derive("zero", STAGE_OF_ADAM.get(name, 0), "optim.name")


def _take_adapter(reading: Reading) -> None:
    """Read LoRA; refuse other PEFT schemes."""
    scheme = str(reading.source.plain("peft.peft_scheme") or "").lower()
    if scheme == "lora":
        reading.put("adapter", "lora", "peft.peft_scheme")
        rank = reading.read("peft.lora_tuning.adapter_dim", whole)
        reading.put("lora-rank", rank, "peft.lora_tuning.adapter_dim") if rank else reading.ask(
            "lora-rank", "peft.lora_tuning.adapter_dim"
        )
        take_adapter_dropout(reading, "peft.lora_tuning.adapter_dropout")
        take_core_targets(reading, "peft.lora_tuning.target_modules")
    elif scheme and scheme not in ("none", "null"):
        reading.refuse("peft.peft_scheme", f"napkin does not support adapter {scheme[:40]!r}", "adapter")


def _flags(reading: Reading) -> dict[str, str]:
    """Return the sizes as Megatron-LM's options."""
    source = reading.source
    flags = {
        key.replace("_", "-"): str(source.plain(key))
        for key in model.SHAPE.split()
        if source.plain(key) not in (None, False)
    }
    if "swiglu" in str(source.plain("activation")):
        flags["swiglu"] = "true"
    if source.plain("bias") is False:
        flags["disable-bias-linear"] = "true"
    if source.plain("share_embeddings_and_output_weights") is False:
        flags["untie-embeddings-and-output-weights"] = "true"
    if source.plain("num_query_groups"):
        flags["group-query-attention"] = "true"
    norm = str(source.plain("normalization") or "layernorm")
    flags["normalization"] = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm"}.get(norm.lower(), norm)
    return flags


OF_MODEL = LaunchFormat(
    "nemo",
    "NeMo's model block",
    "",
    is_this,
    keys=core.LAYOUT,
    rules=(
        KeyRule(model.SHAPE + " bias activation share_embeddings_and_output_weights", "", "", _inside),
        KeyRule(
            "sequence_parallel activations_checkpoint_granularity activations_checkpoint_method fsdp optim.name "
            "activations_checkpoint_num_layers hidden_dropout attention_dropout use_flash_attention "
            "megatron_amp_O2 fp8 fsdp_sharding_strategy",
            "",
            "",
            lambda reading: None,
        ),
    ),
    ignored=core.IGNORED
    + """ tokenizer data optim nsys_profile native_amp_* hysteresis seed restore_from_path
        restore_from_ckpt resume_from_checkpoint pre_process post_process persist_layer_norm onnx_safe exp_manager
        apex_transformer_log_level grad_div_ar_fusion sync_batch_comm get_attention_mask_from_fusion
        dist_ckpt_* gc_interval
        do_layer_norm_weight_decay reset_lr reset_lr_steps skip_train megatron_timer_kwargs enable_megatron_timers
        headscale openai_gelu normalize_attention_scores rotary_percentage attention_type mcore_gpt drop_layers
        transformer_block_type reduce_amax use_emha validation_param_sync_overlap sharp fsdp_sharded_checkpoint
         ffn_dropout megatron_amp_O2 fp8 seq_len_interpolation_factor answer_only_loss
        scale_positional_embedding fp8_hybrid fp8_e4m3 fp8_margin fp8_interval fp8_amax_* bias cpu_offloading_*
        wandb""",
    not_modelled={
        **core.NOT_MODELLED,
        "transformer_engine": "choice of layer implementation",
        "grad_allreduce_chunk_size_mb gradient_as_bucket_view": "gradient buckets",
        "ub_tp_comm_overlap* overlap_p2p_comm batch_p2p_comm": "overlap of communication and computation",
        "num_micro_batches_with_partial_activation_checkpoints "
        "activations_checkpoint_layers_per_pipeline": "selection of recomputed layers",
        "fp16_lm_cross_entropy fp32_residual_connection": "number formats within a layer",
        "fsdp fsdp_*": "FSDP settings",
        "peft": "adapters",
        "dpo kto ppo reinforce spin knowledge_distillation sampling_params reward_model* output_sequence "
        "regression": "the task's loss and sample generation",
    },
    refused={"virtual_prompt_style": "trains a prompt before the text, not the weights"},
)
FORMAT = LaunchFormat(
    "nemo",
    "NeMo 1's YAML",
    "NVIDIA/NeMo examples/nlp/language_modeling/conf, nemo/collections/nlp/models/language_modeling",
    is_this,
    fixed={"framework": "megatron-core", "implementation": "megatron"},
    rules=(
        KeyRule(
            "trainer.devices trainer.num_nodes trainer.max_steps trainer.max_epochs",
            "gpus steps epochs task",
            "devices × nodes; NeMo-Aligner's block of the trainer names the task",
            _machine,
        ),
        KeyRule(
            "trainer.precision model.megatron_amp_O2 model.fp8",
            "precision",
            "O2 keeps fp32 main parameters",
            _precision,
        ),
        KeyRule(
            "model",
            "tp pp cp ep vp micro-batch global-batch seq model zero sp recompute dropout attention optimizer",
            "Megatron-core's names; distributed_fused_adam is ZeRO 1, fsdp ZeRO 3",
            _model,
        ),
    ),
    ignored="""trainer exp_manager name restore_from_path defaults run cluster s3_checkpointing inference hydra
        megatron_amp_O2""",
    not_modelled={},
)
