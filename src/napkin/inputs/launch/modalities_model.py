"""Modalities' components: what is around the trained model, and the model itself.

Source: Modalities/modalities src/modalities/{registry/components,models/gpt2/gpt2_model,models/model}.py.
"""

from __future__ import annotations

from napkin.errors import NapkinError
from napkin.inputs.launch.names import take_model
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import flag, whole, word
from napkin.inputs.megatron_shape import config_of

INSIDE = ("raw_app_state", "model", "model_part", "whole_model", "pipeline", "optimizer")
"""Keys of a component's config that name the component in it."""
STARTS = ("app_state", "optimizer.config.wrapped_model", "optimizer.config.model_parts")
"""Where the model is that is trained, in order of precedence."""
ROLES = {
    "fsdp_wrapped": "fsdp1",
    "fsdp1_wrapped": "fsdp1",
    "fsdp2_wrapped": "fsdp2",
    "activation_checkpointed": "checkpointing",
    "activation_checkpointed_fsdp1": "checkpointing",
    "selective_activation_checkpointed": "checkpointing",
    "compiled": "compiled",
    "gpt2_tp": "tensor_parallel",
    "scheduled": "schedule",
    "debugging_enriched": "debugging",
    **dict.fromkeys(
        (
            "raw",
            "dcp",
            "model_initialized",
            "model_checkpointed",
            "checkpointed",
            "fsdp1_checkpointed",
            "selector",
            "builder",
            "staged",
        ),
        "around",
    ),
}
"""variant_key of a component around the model → the block in which its keys are read (registry/components.py)."""
OTHERS = {"device_mesh": "device_mesh", "optimizer": "optimizer", "loss": "loss"}
"""component_key of a component beside the model → its block. The others change neither memory nor time."""
ROWS = 256
"""Default of enforce_swiglu_hidden_dim_multiple_of (models/gpt2/gpt2_model.py, GPT2LLMConfig)."""


def has_trained_model(source: LaunchFile) -> bool:
    """Return whether a file is Modalities' configuration of training."""
    return "settings" in source and "optimizer.component_key" in source and bool(_chain(source, *STARTS))


def _chain(source: LaunchFile, *starts: str) -> list[str]:
    """Return the components from the first of these that is there to the one that has none in it."""
    path = next((one for one in starts if one in source), "")
    found: list[str] = []
    while path and path not in found:
        named = source.plain(f"{path}.instance_key")
        if named is not None:
            path = str(named)
        elif f"{path}.component_key" in source:
            found.append(path)
            path = next((f"{path}.config.{one}" for one in INSIDE if f"{path}.config.{one}" in source), "")
        else:
            return []
    return found


def arranged(source: LaunchFile) -> LaunchFile:
    """Return the source with each component's keys in a block that is named for what the component does."""
    chain, states = _chain(source, *STARTS), _chain(source, "optimizer")
    kinds = {path: ROLES.get(str(source.plain(f"{path}.variant_key")), "unknown") for path in chain[:-1]}
    blocks = {path: f"around.{path}" if kind == "around" else kind for path, kind in kinds.items()}
    blocks |= {path: f"around.{path}" for path in states[:-1]} | {chain[-1]: "model", states[-1]: "optimizer"}
    for top in dict.fromkeys(key.partition(".")[0] for key in source.values):
        kind = str(source.plain(f"{top}.component_key"))
        if f"{top}.component_key" in source and top not in blocks:
            idle = "unused" if kind in ("model", "pipeline", "app_state") else "beside"
            blocks[top] = OTHERS.get(kind, f"{idle}.{top}")
    places = {place: block for path, block in blocks.items() for place in (f"{path}.config", path)}
    for path in chain:  # a model of FSDP 1 that is loaded has the settings of FSDP where it is loaded
        places |= {f"{one}.config": "fsdp1" for one in _chain(source, f"{path}.config.checkpoint_loading")}
    return source.renamed(dict(sorted(places.items(), key=lambda one: -len(one[0]))))


def take_modalities_model(reading: Reading) -> None:
    """Read the model: its sizes, or the name of a Hugging Face model."""
    kind = str(reading.source.plain("model.variant_key"))
    if kind == "huggingface_pretrained_model":
        take_model(reading, "model.model_name")
        if str(reading.source.plain("model.model_type")) != "AutoModelForCausalLM":
            reading.refuse("model.model_type", "napkin counts causal language models only", "model")
        return
    if kind != "gpt2":
        reading.ask("model", "model.variant_key", given=kind)
        reading.refuse("model.variant_key", f"napkin does not build Modalities' model {kind[:40]!r}", "model")
        return
    sizes = {
        "layers": "n_layer", "hidden": "n_embd", "heads": "n_head_q", "kv_heads": "n_head_kv", "vocab": "vocab_size",
    }  # fmt: skip
    for name, key in sizes.items():
        reading.dimension(name, reading.read(f"model.{key}", whole), f"model.{key}")
    gated = reading.read("model.activation_type", word({"gelu": False, "swiglu": True, "fused_swiglu": True}))
    inner, rows = reading.read("model.ffn_hidden", whole), "model.enforce_swiglu_hidden_dim_multiple_of"
    if inner and gated:
        multiple = reading.read(rows, whole) or ROWS
        inner = -(-(2 * inner // 3) // multiple) * multiple
    reading.dimension("ffn", inner, "model.ffn_hidden", rows)
    reading.dimension("gated", bool(gated), "model.activation_type")
    reading.dimension("tied", bool(reading.read("model.use_weight_tying", flag)), "model.use_weight_tying")
    reading.describe(*(f"model.{key}" for key in sizes.values()))
    reading.build(lambda: config_of(_flags(reading), reading.read("model.sequence_length", whole)))


def _flags(reading: Reading) -> dict[str, str]:
    """Return the decoder as Megatron-LM's options."""
    shape, source = reading.shape, reading.source
    missing = [one for one in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab") if one not in shape]
    if missing:
        raise NapkinError(f"{source.name}: the model's {missing[0]} are not in the file", "give MODEL")
    turned = "Rotary" in str(source.plain("model.attention_config.qkv_transforms"))
    learned = reading.read("model.poe_type", word({"nope": False, "absolute": True}))
    flags = {
        "num-layers": shape["layers"],
        "hidden-size": shape["hidden"],
        "num-attention-heads": shape["heads"],
        "ffn-hidden-size": shape["ffn"],
        "vocab-size": shape["vocab"],
        "num-query-groups": shape["kv_heads"],
        "normalization": _norm(reading),
        "position-embedding-type": "learned_absolute" if learned else "rope" if turned else "none",
    }
    normed = source.states("model.attention_config.qk_norm_config") or reading.read(
        "model.attention_config.use_qk_norm", flag
    )
    switches = {
        "swiglu": shape["gated"],
        "group-query-attention": shape["kv_heads"] != shape["heads"],
        "disable-bias-linear": not reading.read("model.bias", flag),
        "qk-layernorm": bool(normed),
        "untie-embeddings-and-output-weights": not shape["tied"],
    }
    if not switches["group-query-attention"]:
        del flags["num-query-groups"]
    return {name: str(size) for name, size in flags.items()} | {name: "True" for name, on in switches.items() if on}


def _norm(reading: Reading) -> str:
    """Return the norm of every layer, in Megatron-LM's words. Norms that differ are an error."""
    kinds = {"layer_norm": "LayerNorm", "rms_norm": "RMSNorm", "pytorch_rms_norm": "RMSNorm"}
    keys = [
        f"model.{name}{end}"
        for name in ("attention_norm", "ffn_norm", "lm_head_norm")
        for end in ("_config.norm_type", ".variant_key")
    ]
    found = {key: reading.read(key, word(kinds)) for key in keys if key in reading.source}
    if len(set(found.values())) != 1:
        raise NapkinError(f"{reading.source.name}: its norms are not of one kind", "give MODEL")
    own = [key for key in found if reading.source.plain(key) == "rms_norm"]
    if own:
        reading.omit(own[0], "Modalities' own RMSNorm has a bias, and runs in fp32 without a kernel of its own")
    return str(next(iter(found.values())))
