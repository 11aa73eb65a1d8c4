"""Megatron-core's settings, shared by Megatron-LM, Megatron-Bridge, NeMo and Primus under the same names."""

from __future__ import annotations

from napkin.inputs.launch.format import Key
from napkin.inputs.launch.megatron.graphs import take_graphs
from napkin.inputs.launch.megatron.stages import take_stages
from napkin.inputs.launch.names import FP8, FP32, MEGATRON
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.values import Open, flag, natural, number, product, whole, word
from napkin.options.launches import OVERLAPS
from napkin.options.training import (
    CORE_ATTENTION,
    DISPATCHERS,
    GRADIENTS,
    MODULES,
    MOE_LAYER,
    NO_OVERLAP,
    PARAMETERS_TOO,
    selective,
)

OVERLAPPED = " ".join(name.replace("-", "_") for name in OVERLAPS)
LAYOUT = (
    Key("tensor_model_parallel_size|model_parallel_size", "tp", whole, 1),
    Key("pipeline_model_parallel_size", "pp", whole, 1),
    Key("context_parallel_size|ds_sequence_parallel_size", "cp", whole, 1),  # the second: Megatron-DeepSpeed's Ulysses
    Key("expert_model_parallel_size|moe_expert_parallel_size", "ep", whole, 1),
    Key("expert_tensor_parallel_size", "etp", whole),
    Key("num_virtual_stages_per_pipeline_rank|virtual_pipeline_model_parallel_size", "vp", whole, silent=True),
    Key("num_layers_per_virtual_pipeline_stage", "chunk-layers", whole, silent=True),
    Key(
        "decoder_first_pipeline_num_layers|num_layers_in_first_pipeline_stage", "first-stage-layers", whole, silent=True
    ),
    Key("decoder_last_pipeline_num_layers|num_layers_in_last_pipeline_stage", "last-stage-layers", whole, silent=True),
    Key("micro_batch_size|batch_size", "micro-batch", whole),
    Key("global_batch_size", "global-batch", whole),
    Key("seq_length|encoder_seq_length", "seq", whole),
    Key("train_iters", "steps", whole, silent=True),
    Key("train_samples", "samples", whole, silent=True),
)
SHARDING = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
NOT_MODELLED = {
    "moe_router_force_load_balancing moe_router_* moe_grouped_gemm moe_permute_fusion "
    "moe_expert_capacity_factor moe_pad* moe_aux* moe_z* moe_shared_expert_overlap moe_use_legacy* "
    "moe_*": "token routing to experts",
    "overlap_* tp_comm_overlap_* delay_* align_*": "overlap of communication and computation",
    "recompute_method recompute_num_layers distribute_saved_activations": "recomputation settings",
    "cross_entropy_* fused_* *_fusion apply_rope_fusion masked_softmax_fusion no_*_fusion": "fused kernels",
    "cuda_graph* enable_cuda_graph external_cuda_graph use_cuda_graph*": "CUDA graphs",
    "decoupled_lr decoupled_min_lr": "a separate learning rate needs another gradient buffer for the embedding",
    "fp8_* fp4_* first_last_layers_bf16 num_layers_at_*_in_bf16 inference_*": "fp8 recipe and layer selection",
    "step_batch_size_schedule rampup_batch_size": "the batch grows during the run",
    "optimizer_cpu_offload optimizer_offload_fraction cpu_offloading* use_precision_aware_optimizer main_grads_dtype "
    "main_params_dtype exp_avg_dtype exp_avg_sq_dtype": "placement and format of optimizer states",
    "transformer_impl use_mcore_models use_legacy_models spec transformer_engine": "choice of layer implementation",
    "pipeline_model_parallel_comm_backend microbatch_group_size_per_vp_stage "
    "standalone_embedding_stage": "assignment of layers to pipeline stages",
    "ddp_* grad_reduce_in_fp32 average_in_collective nccl_ub use_nccl* "
    "num_distributed_optimizer_instances": "gradient reduction",
    "window_size softmax_type attention_output_gate": "attention variant or kernel",
    "rotary_interleaved rotary_scaling_factor yarn_* mscale*": "positional encoding",
    "use_turbo* enable_primus_turbo turbo_* primus_turbo*": "Primus-Turbo kernels",
    "deepspeed_activation_checkpointing embed_layernorm pp_partition_method partition_activations": "layer settings",
    "empty_unused_memory_level": "frequency of emptying the allocator's cache",
    "hybrid_* is_hybrid_model mamba_*": "hybrid models with Mamba layers",
    "attention_softmax_in_fp32 apply_query_key_layer_scaling fp32_residual_connection "
    "no_bias*": "number formats within a layer",
    "experimental_*": "latent attention",
    "eod_* reset_* variable_seq_lengths sft packed_sequence*": "attention masked at document boundaries",
}
IGNORED = """manual_gc manual_gc_interval tiktoken_pattern num_workers no_mmap_bin_files calculate_per_token_loss
    no_create_attention_mask_in_dataloader use_cpu_initialization no_initialization perform_initialization rotary_*
    mtp_loss_scaling_factor
    layernorm_epsilon norm_epsilon apply_layernorm_1p use_rope_scaling rope_* use_rotary_position_embeddings
    no_position_embedding no_rope_fusion no_persist_layer_norm sharp enable_megatron_timers check_for_nan_in_*
    nccl_communicator_config_path exit_* use_dist_ckpt dist_ckpt* auto_detect_ckpt_format recompute_granularity
    async_tensor_model_parallel_allreduce no_async_tensor_model_parallel_allreduce
    barrier_* straggler* rerun_mode legacy_tokenizer high_priority_stream_groups
    use_pytorch_profiler profile* mid_level_dataset_surplus data_args_path accumulate_allreduce_grads_in_fp32
    attention_dropout ckpt* te_rng_tracker nnodes nproc_per_node use_flash_attn log_* disable_mamba_mem_eff_path
    u deepspeed deepspeed_config kill_switch_path abort_on_unmet_fused_kernel_constraints valid_num_workers"""


def _take_sharding(reading: Reading, default: int) -> None:
    """Read the ZeRO stage: 1 for the distributed optimizer, 3 for FSDP of torch or Megatron, or DeepSpeed's."""
    stage = reading.take("zero", "zero_stage", natural)
    if stage == 0 and reading.read("bf16", flag):
        reading.omit(
            "bf16", "with bf16, DeepSpeed shards optimizer states in stage 0 too: give --zero 1 (bf16_optimizer.py)"
        )
    if stage is not None:
        _of_deepspeed(reading, "zero_stage")
        return
    if reading.read("deepspeed", flag) and "zero" not in reading.inputs:
        _of_deepspeed(reading, "deepspeed")
        reading.ask("zero", "deepspeed_config")
        return
    if reading.read("use_torch_fsdp2", flag):
        reading.put("zero", 3, "use_torch_fsdp2")
        reading.told("use_distributed_optimizer")
        return
    if reading.read("use_megatron_fsdp|use_custom_fsdp", flag):
        kind = reading.read("data_parallel_sharding_strategy", word(SHARDING))
        keys = [
            k
            for k in ("use_megatron_fsdp", "use_custom_fsdp", "data_parallel_sharding_strategy")
            if k in reading.source
        ]
        reading.derive("zero", 3 if kind is None else kind, *keys)
        return
    on = reading.read("use_distributed_optimizer", flag)
    if on is not None:
        reading.put("zero", 1 if on else 0, "use_distributed_optimizer")
    else:
        reading.default("zero", default, "use_distributed_optimizer")


def _of_deepspeed(reading: Reading, key: str) -> None:
    """Record that DeepSpeed's engine runs Megatron's model."""
    reading.derive("framework", "megatron-deepspeed", key)
    reading.inputs.pop("implementation", None)


def take_division(reading: Reading, zero: int = 0) -> None:
    """Read the ZeRO stage, sequence parallelism, recomputation, slots of experts and the overlap of their exchange.
    zero: the stage if the file sets none."""
    _take_sharding(reading, zero)
    take_sp(reading)
    take_recompute(reading)
    take_stages(reading)
    if reading.read("moe_pad_expert_input_to_capacity", flag):
        factor = reading.read("moe_expert_capacity_factor", number)
        if factor is not None and factor > 0:
            reading.put("capacity-factor", factor, "moe_expert_capacity_factor", "moe_pad_expert_input_to_capacity")
    take_async(reading, "overlap_moe_expert_parallel_comm")
    take_dispatcher(reading)
    take_graphs(reading)


def take_overlap(reading: Reading, section: str = "", omitted: bool | None = None) -> None:
    """Read what of data parallelism overlaps with compute.

    section  the keys' own, with its dot
    omitted  what a key means that is not there: False: off, as in Megatron-LM (arguments.py); None: as a recipe has it,
             whose overlaps are all on"""
    if reading.value_of("zero") == 3 or reading.value_of("framework") == "megatron-deepspeed":
        return  # Megatron's own buffers are not in use
    keys = [section + name.replace("-", "_") for name in OVERLAPS]
    given = [key for key in keys if reading.find(key) is not None]
    if not given:
        if omitted is not None:
            reading.default("async-dp", NO_OVERLAP, *keys)
        return
    reduces, gathers = (reading.read(key, flag) if key in given else omitted for key in keys)
    if gathers:
        reading.derive("async-dp", PARAMETERS_TOO, *given)
    elif reduces is False:
        reading.derive("async-dp", NO_OVERLAP, *given)
    elif gathers is False:
        reading.derive("async-dp", GRADIENTS, *given)
    else:
        reading.told(*given)


def take_predictions(reading: Reading, key: str = "mtp_num_layers", built: bool = False) -> None:
    """Read whether multi-token prediction modules are trained (NVIDIA/Megatron-LM megatron/core/transformer/
    transformer_config.py, mtp_num_layers). built: the model is built from the file's sizes, with as many modules;
    another has those of its config.json, and one is the number that such files state."""
    number_of = reading.read(key, natural)
    if isinstance(getattr(reading.find(key), "value", None), Open):
        reading.ask("mtp", key)
    elif number_of and number_of > 1 and not built:
        reading.refuse(key, "napkin trains as many modules as the model's config.json states", "mtp")
    elif number_of:
        reading.put("mtp", True, key)


def take_async(reading: Reading, key: str) -> None:
    """Read whether the experts' exchange overlaps with the compute of another micro-batch."""
    reading.switch("async-ep", True, key)


def take_dispatcher(reading: Reading, section: str = "") -> None:
    """Read what sends tokens to their experts: an all-to-all, or a backend's kernels, DeepEP's unless another is named.
    section: the keys' own, with its dot (NVIDIA/Megatron-LM megatron/core/transformer/transformer_config.py,
    moe_token_dispatcher_type, moe_enable_deepep and moe_flex_dispatcher_backend)."""
    kind, backend = section + "moe_token_dispatcher_type", section + "moe_flex_dispatcher_backend"
    named = str(reading.source.plain(kind) or "").lower()
    flex = str(reading.source.plain(backend) or "deepep").lower()
    found = flex if named == "flex" else named
    if found in DISPATCHERS:
        reading.put("dispatcher", found, *((kind, backend) if named == "flex" else (kind,)))


def take_offload(reading: Reading) -> None:
    """Read the optimizer on the host: Megatron-core's, whose share defaults to all states (arguments.py,
    optimizer_offload_fraction), and Megatron-DeepSpeed's."""
    on, share = reading.named("optimizer_cpu_offload", "cpu_optimizer"), "optimizer_offload_fraction"
    if not reading.read(on, flag):
        return
    part = reading.read(share, number)
    if part in (None, 1) and not reading.open_among(share):
        reading.put("offload", "optimizer", on)
        reading.told(share)
    else:
        reading.ask("offload", on, share)


def take_expert_slices(reading: Reading, *experts: str) -> None:
    """Read the ranks that divide an expert: those that divide the other layers, if the file has experts and does not
    say (arguments.py, validate_args). experts: keys of their number."""
    if not reading.source.has_any(*experts):
        reading.inputs.pop("etp", None)  # nothing that it could divide
    elif (tp := reading.value_of("tp")) is not None:
        reading.default("etp", tp, "expert_tensor_parallel_size")


def take_instances(reading: Reading) -> None:
    """Read the instances of the distributed optimizer: each divides the states over its part of the data-parallel ranks
    (parallel_state.py, intra_partial_data_parallel_group_with_cp)."""
    key = "num_distributed_optimizer_instances"
    instances = reading.read(key, whole)
    if not instances or instances == 1 or not reading.value_of("zero"):
        return
    gpus, ranks = reading.value_of("gpus"), product([reading.value_of(name) or 1 for name in ("tp", "pp")])
    if gpus is None:
        reading.ask("dp-shard", key)
    elif gpus % (ranks * instances) == 0:
        reading.derive("dp-shard", gpus // ranks // instances, key)
    else:
        reading.contradict(key, f"{instances} instances do not divide {gpus // ranks} data-parallel ranks", "dp-shard")


def take_sp(reading: Reading) -> None:
    """Read sequence parallelism. Megatron disables it without tensor parallelism (arguments.py, validate_args)."""
    on = reading.read("sequence_parallel", flag)
    if on is not None:
        tp = reading.value_of("tp") or 1
        reading.derive("sp", bool(on and tp > 1), "sequence_parallel", "tensor_model_parallel_size")
    elif (reading.value_of("tp") or 1) > 1:
        reading.default("sp", False, "sequence_parallel")


def take_tensor_overlap(reading: Reading, omitted: bool | None = None) -> None:
    """Read whether collectives of tensor parallelism overlap with the matmuls that need them.

    omitted  what a file means that does not say so: False: off, as in Megatron-LM (model_parallel_config.py,
             tp_comm_overlap); None: as a recipe has it"""
    on = reading.read("tp_comm_overlap", flag)
    if (reading.value_of("tp") or 1) <= 1:
        return
    if on is not None:
        reading.put("async-tp", on, "tp_comm_overlap")
    elif omitted is not None:
        reading.default("async-tp", omitted, "tp_comm_overlap")


WHOLE_EXPERTS = "moe_layer_recompute"
"""Megatron-core's older switch for what `moe` among the modules means."""
RECOMPUTE = ("granularity", "method", "num_layers", "modules")
"""Ends of the names of Megatron-core's settings of recomputation, in the order in which `take_recompute` takes them."""


def take_recompute(
    reading: Reading,
    granularity: str = "recompute_granularity",
    method: str = "recompute_method",
    layers: str = "recompute_num_layers",
    modules: str = "recompute_modules",
) -> None:
    """Read recomputation: none, selective (core attention, or the modules that are named), or full, in groups of layers
    if given."""
    if reading.read("checkpoint_activations", flag):
        reading.put("recompute", "full", "checkpoint_activations")
        return
    if reading.read("recompute_activations", flag):
        reading.put("recompute", "selective", "recompute_activations")
        return
    older = "activations_checkpoint_method"
    if reading.find(granularity) is None and older != method and reading.find(older) is not None:
        granularity, method, layers = older, older, "activations_checkpoint_num_layers"
    kind = str(reading.source.plain(granularity) or "none").lower()
    kind = "full" if granularity == older and kind != "none" else kind  # before 2022 there was no granularity option
    if kind == "none" and reading.read(WHOLE_EXPERTS, flag):
        kind = "selective"  # (transformer_config.py, __post_init__)
    if kind == "none":
        reading.default("recompute", "none", granularity)
        return
    if kind == "selective":
        _take_selective(reading, granularity, modules)
        return
    if kind != "full":
        raise reading.source.error(granularity, f"{kind[:40]!r} is neither full nor selective")
    _take_full(reading, granularity, method, layers)


def _take_full(reading: Reading, granularity: str, method: str, layers: str) -> None:
    """Read full recomputation: of every layer, in groups of layers (uniform), or of the first ones (block)."""
    how = str(reading.source.plain(method) or "uniform").lower()
    number_of = reading.read(layers, natural)
    keys = [key for key in dict.fromkeys((granularity, method, layers)) if reading.find(key) is not None]
    if how == "block" and number_of == 0:
        reading.derive("recompute", "none", *keys)
    elif how == "block" and number_of is not None:
        total, stages = reading.shape.get("layers"), (reading.value_of("pp") or 1) * (reading.value_of("vp") or 1)
        if total is None or number_of * stages >= total:
            reading.derive("recompute", "full", *keys)
            if total is None:
                reading.omit(
                    layers,
                    "assumed to cover all layers of a stage, because the file does not give the number of layers",
                )
        else:
            reading.ask("recompute", *keys)
            reading.refuse(
                layers, f"the first {number_of} layers of each stage are recomputed, which napkin does not model"
            )
    elif how == "uniform" and number_of is not None and number_of > 1:
        reading.derive("recompute", f"group:{number_of}", *keys)
    else:
        reading.derive("recompute", "full", *keys)


def _take_selective(reading: Reading, granularity: str, modules: str) -> None:
    """Read selective recomputation, which is that of core attention unless modules are named (arguments.py)."""
    import re

    given = reading.source.plain(modules)
    names = re.findall(r"\w+", str(given or ""))
    if reading.read(WHOLE_EXPERTS, flag):
        names = [*(names or [CORE_ATTENTION]), MOE_LAYER]
        reading.told(WHOLE_EXPERTS)
    elif given is not None and not names:
        reading.derive("recompute", "none", granularity, modules)  # an empty list is none, no list attention's core
        return
    unknown = [name for name in names if name not in MODULES]
    if unknown:
        reading.ask("recompute", granularity, modules)
        why = f"which tensors {', '.join(unknown)[:80]} saves is not modeled"
        reading.refuse(modules, f"{why}; --recompute none is an upper bound", "recompute")
        return
    if names:
        reading.put("recompute", selective(tuple(names)), granularity, modules, WHOLE_EXPERTS)
    else:
        reading.put("recompute", "selective", granularity)


def take_precision(reading: Reading, default: str | None = FP32) -> None:
    """Read the precision. bf16 has fp32 gradient buffers unless gradients are reduced in bf16; fp8 adds fp8 compute."""
    bf16, fp16 = reading.read("bf16", flag), reading.read("fp16", flag)
    eight = reading.find("fp8_format", "fp8")
    on = eight is not None and eight.value is not False and str(eight.value).lower() not in ("none", "false", "null")
    keys = [
        key
        for key in ("bf16", "fp16", "fp8_format", "fp8", "grad_reduce_in_bf16", "grad_reduce_in_fp32")
        if reading.find(key) is not None
    ]
    if bf16 and fp16:  # training/arguments.py: assert not args.bf16
        reading.contradict("fp16", "bf16 is set too, and Megatron-LM starts with one of them only", "precision")
    narrow_grads = reading.read("grad_reduce_in_bf16", flag) or reading.read("grad_reduce_in_fp32", flag) is False
    policy = default
    if bf16 or (on and not fp16):
        policy = "bf16-mixed" if narrow_grads else MEGATRON
    elif fp16:
        policy = "fp16-mixed"
    if on:
        policy = FP8 if narrow_grads else MEGATRON.replace("compute=bf16", "compute=fp8")
    if policy is None:
        return
    if bf16 or fp16 or on:
        reading.derive("precision", policy, *keys)
    elif nameless := next((key for key in reading.source.unread if key.startswith("--")), ""):
        reading.ask("precision", "bf16", "fp16", why=f"{nameless} may set it")
    else:
        reading.default("precision", policy, "bf16", "fp16")


def take_optimizer(reading: Reading, key: str = "optimizer") -> None:
    """Read the optimizer. adam has decoupled weight decay; sgd has momentum 0.9."""
    kind = reading.source.plain(key)
    known = {"adam": "adamw", "adamw": "adamw", "sgd": "sgd-momentum", "muon": "muon", "dist_muon": "muon"}
    word_ = str(kind).lower() if kind is not None else "adam"
    if word_ not in known:
        reading.ask("optimizer", key)
        reading.refuse(key, f"napkin does not support optimizer {word_[:40]!r}", "optimizer")
    elif kind is None:
        reading.default("optimizer", "adamw", key)
    else:
        reading.put("optimizer", known[word_], key)


def take_dropout(reading: Reading, default: float | None = 0.1) -> None:
    """Read dropout, which defaults to 0.1 in Megatron-LM."""
    found = {key: reading.read(key, number) for key in ("hidden_dropout", "attention_dropout")}
    stated = [key for key, value in found.items() if value is not None or reading.open_among(key)]
    if stated:
        reading.put("dropout", max(found[key] or 0 for key in stated), *stated)
    elif default is not None:
        reading.default("dropout", default, "hidden_dropout", "attention_dropout")


ATTENTION = {"flash": "flash", "fused": "cudnn", "unfused": "eager", "local": "eager"}


FLASH = (
    "use_flash_attn", "use_flash_attention", "use_flash_attn_v1", "use_flash_attn_v2", "use_flash_attn_triton",
    "use_flash_attn_builder",
)  # fmt: skip
"""Switches of flash attention; those with a version are Megatron-DeepSpeed's."""


FUSED_LOSSES = {"native": "vocabulary", "te": "in-place"}
"""cross_entropy_fusion_impl → the form of the loss (core/models/common/language_module/language_module.py)."""


def take_loss(reading: Reading) -> None:
    """Read the fused cross entropy; without it, the loss is the framework's own."""
    on, kind = "cross_entropy_loss_fusion", "cross_entropy_fusion_impl"
    if not reading.read(on, flag):
        return
    if reading.open_among(kind):
        reading.ask("loss", kind)
        return
    form = reading.read(kind, word(FUSED_LOSSES)) or FUSED_LOSSES["native"]
    reading.derive("loss", form, *[key for key in (on, kind) if key in reading.source])


def take_gradients(reading: Reading) -> None:
    """Read whether weight gradients are computed apart, in place of by kernels that add to the buffer of all."""
    on, off = "gradient_accumulation_fusion", "no_gradient_accumulation_fusion"
    if reading.read(off, flag):
        reading.put("separate-gradients", True, off)
    elif reading.read(on, flag) is False:
        reading.derive("separate-gradients", True, on)


def take_attention(reading: Reading) -> None:
    """Read the attention kernel; `auto` is assumed to be flash. The layers of --transformer-impl local have one of
    elementary operations (core/transformer/dot_product_attention.py)."""
    kind = reading.find("attention_backend")
    if kind is not None and str(kind.value).rpartition(".")[2].lower() in ATTENTION:
        reading.put("attention", ATTENTION[str(kind.value).rpartition(".")[2].lower()], "attention_backend")
    elif any(reading.read(key, flag) for key in FLASH):
        reading.put("attention", "flash", *[key for key in FLASH if key in reading.source])
    elif reading.source.plain("transformer_impl") == "local":
        reading.put("attention", "eager", "transformer_impl")
    elif kind is not None:
        reading.assume("attention", "flash", "attention_backend")
