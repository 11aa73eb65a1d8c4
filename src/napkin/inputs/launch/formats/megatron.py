"""Megatron-LM's launch scripts and argument lists."""

from __future__ import annotations

import re

from napkin.inputs.launch.checks import EACH, NODES, check_batch, check_gpus, take_machine
from napkin.inputs.launch.format import KeyRule, LaunchFormat
from napkin.inputs.launch.megatron import core, model
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import flag, product, whole

BLOCKS = {"language_model.num_moe_experts": "num_experts", "language_model": "", "model_parallel": ""}
"""Blocks and a key of Megatron-LM's --yaml-cfg (megatron/training/yaml_arguments.py) → the arguments' names."""

FLAGSCALE = ("system", "model", "data")
"""Blocks of FlagScale's train configurations; each of their inmost keys is an argument (flagscale/runner/utils.py,
flatten_dict_to_args)."""
OF_RUNNER = {"experiment.runner.nnodes": "nnodes", "experiment.runner.nproc_per_node": "nproc_per_node"}


def _flat(source: LaunchFile) -> LaunchFile:
    if source.has_all("language_model.num_layers", "model_parallel"):
        return source.renamed(BLOCKS)
    if source.has_all("train.system", "train.model.num_layers"):
        entry = str(source.plain("experiment.task.entrypoint") or "")
        source = source.renamed({"train": ""} | OF_RUNNER)
        source.command = (entry,) if entry else ()
    if source.has_all("system", "model.num_layers"):
        return source.renamed(_inmost(source))
    return source


def _inmost(source: LaunchFile) -> dict[str, str]:
    """Return FlagScale's keys → their last names. Of several with one name the last wins, as on a command line."""
    keys = [key for block in FLAGSCALE for key in source.inside(block)]
    last = {key.rpartition(".")[2]: key for key in keys}
    return {key: name if last[name := key.rpartition(".")[2]] == key else f"overridden.{key}" for key in keys}


PROGRAM = re.compile(r"(?:^|/)pretrain_[^/]*\.py$")


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is Megatron-LM's arguments."""
    source = _flat(source)
    flat = source.syntax == "shell"
    program = any(PROGRAM.search(one) for one in source.command)
    sized = source.has_any("tensor_model_parallel_size", "num_layers", "hybrid_layer_pattern") and source.has_any(
        "micro_batch_size", "global_batch_size", "seq_length", "train_iters", "train_samples"
    )
    return (
        (flat or "hidden_size" in source)
        and (program or sized)
        and "modules" not in source
        and "trainer" not in source
        and not source.has_any(
            "train_micro_batch_size_per_gpu", "pipe_parallel_size", "model", "per_device_train_batch_size"
        )
    )


OF_TOWERS = ("img_h", "patch_dim", "freeze_ViT", "vision_model_type", "language_model_type", "audio_encoder_model")
"""Options of a vision or audio tower (examples/multimodal/multimodal_args.py, examples/mimo/train.py)."""


def _program(reading: Reading) -> None:
    """Refuse a program whose model is not a decoder-only language model."""
    name = reading.source.program
    if any(word in name for word in ("bert", "t5", "vision", "retro", "vlm", "_vl", "llava", "_ict", "multimodal")):
        reading.refuse(name, "not a decoder-only model; napkin builds only decoders from sizes", "model")
    if "rwkv" in name:
        reading.refuse(name, "builds recurrent layers, whose sizes the options do not give", "model")
    if model.names_family(name) and not reading.source.has_any(*model.OF_KIND):
        reading.refuse(name, "builds a decoder of its own, whose kind the options do not tell", "model")
    tower = next((key for key in OF_TOWERS if key in reading.source), None)
    if tower is not None:
        reading.refuse(
            tower, "an image or audio tower before the language model, which napkin does not build from sizes"
        )
        reading.take("seq", "decoder_seq_length", whole)  # --seq-length is the tower's
    if reading.read("freeze_LM", flag):
        reading.refuse("freeze_LM", "the language model is frozen; only the other parts are trained", "freeze")
    for key in ("hybrid_layer_pattern", "hybrid_override_pattern", "hybrid_attention_ratio"):
        if reading.find(key) is not None:
            reading.refuse(key, "a pattern of Mamba, attention and MLP layers, which napkin does not build from sizes")
    for key in ("linear_attention_type", "linear_attention_freq", "experimental_attention_variant"):
        if reading.find(key) is not None:
            reading.refuse(key, "layers of another attention, which napkin does not build from sizes")
            break


def _model(reading: Reading) -> None:
    model.take_shape(reading)
    if not reading.shape.get("layers") and "hybrid_layer_pattern" not in reading.source:
        if reading.unsized:
            reading.describe()
        return
    core.take_predictions(reading, built=True)
    model.take_decoder(reading, "tokenizer_type", "tokenizer_model", "tokenizer_name_or_path")


def _layout(reading: Reading) -> None:
    take_machine(reading)
    core.take_division(reading)
    core.take_overlap(reading, omitted=False)
    core.take_tensor_overlap(reading, omitted=False)
    core.take_expert_slices(reading, "num_experts", "moe_num_experts")
    gpus, parts = reading.value_of("gpus"), [reading.value_of(name) or 1 for name in ("tp", "pp")]
    if reading.read("moe_expert_model_parallelism", flag) and gpus:  # MegaBlocks: over the data-parallel ranks
        reading.derive("ep", gpus // product(parts) or 1, "moe_expert_model_parallelism")
    core.take_instances(reading)
    core.take_offload(reading)
    check_gpus(reading, *[key for key in (*EACH, *NODES) if reading.find(key) is not None][:1])
    check_batch(reading, "global_batch_size")


def _amount(reading: Reading) -> None:
    """Read Megatron-DeepSpeed's token limit: training ends at it, at the samples or at the steps, whichever comes first
    (training.py, train)."""
    tokens, length = reading.read("train_tokens", whole), reading.value_of("seq")
    if tokens is None:
        return
    for option, key, each in (
        ("samples", "train_samples", 1),
        ("steps", "train_iters", reading.value_of("global-batch")),
    ):
        limit = reading.value_of(option)
        if limit and not (length and each):
            reading.ask(option, key, "train_tokens")
            return
        if limit and limit * each * length < tokens:
            return
        reading.inputs.pop(option, None)
        reading.told(key)
    reading.put("tokens", tokens, "train_tokens")


def _others(reading: Reading) -> None:
    core.take_precision(reading)
    core.take_optimizer(reading)
    core.take_dropout(reading)
    core.take_attention(reading)
    core.take_loss(reading)
    core.take_gradients(reading)


FORMAT = LaunchFormat(
    "megatron-lm",
    "Megatron-LM's arguments",
    "NVIDIA/Megatron-LM megatron/training/arguments.py",
    is_this,
    fixed={"framework": "megatron-core", "implementation": "megatron"},
    keys=core.LAYOUT,
    rules=(
        KeyRule(
            "pretrain_*.py hybrid_layer_pattern decoder_seq_length freeze_LM",
            "seq",
            "encoders, vision towers and hybrid models are refused",
            _program,
        ),
        KeyRule(
            model.SHAPE,
            "model mtp",
            "sizes; ffn 4·hidden, or 8/3·hidden in multiples of 64 if gated; tied by default",
            _model,
        ),
        KeyRule(
            "train_tokens", "tokens", "Megatron-DeepSpeed's limit, if it ends before the samples and the steps", _amount
        ),
        KeyRule(
            "nnodes nproc_per_node use_distributed_optimizer use_torch_fsdp2 use_megatron_fsdp sequence_parallel "
            "recompute_activations recompute_granularity recompute_method recompute_num_layers recompute_modules "
            "deepspeed "
            "activations_checkpoint_method activations_checkpoint_num_layers moe_expert_model_parallelism "
            "moe_expert_capacity_factor moe_pad_expert_input_to_capacity overlap_moe_expert_parallel_comm "
            f"{core.OVERLAPPED} "
            "num_distributed_optimizer_instances "
            "pipeline_model_parallel_layout account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split "
            "cpu_optimizer optimizer_cpu_offload optimizer_offload_fraction cuda_graph_impl cuda_graph_scope "
            "cuda_graph_modules moe_token_dispatcher_type moe_flex_dispatcher_backend",
            "gpus zero offload dp-shard sp recompute capacity-factor async-ep async-dp dispatcher graphs stage-layers "
            "vp embedding-as-layer loss-as-layer",
            "the distributed optimizer is ZeRO 1; sp needs tp; recompute-activations is selective",
            _layout,
        ),
        KeyRule(
            "bf16 fp16 fp8_format grad_reduce_in_bf16 optimizer hidden_dropout attention_dropout attention_backend "
            f"{' '.join(core.FLASH)} transformer_impl cross_entropy_loss_fusion cross_entropy_fusion_impl",
            "precision optimizer dropout attention loss",
            "bf16 with fp32 gradient buffers; default dropout 0.1",
            _others,
        ),
    ),
    ignored=core.IGNORED
    + " m module master_addr node_rank log_dir redirects tee rdzv_id standalone max_restarts sbatch experiment action"
    + " overridden",
    not_modelled=core.NOT_MODELLED,
    refused={
        "peft_type": "FlagScale's adapters",
        "enable_hetero": "pipeline stages on different accelerators",
    },
    translated=_flat,
)
