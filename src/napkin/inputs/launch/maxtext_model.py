"""The model that MaxText's YAML names or describes by its sizes."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.errors import NapkinError
from napkin.inputs.launch.names import model_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import flag, names, natural, whole

SIZES = (
    ("layers", "base_num_decoder_layers", 16),
    ("hidden", "base_emb_dim", 2048),
    ("heads", "base_num_query_heads", 16),
    ("kv_heads", "base_num_kv_heads", 16),
    ("head_dim", "head_dim", 128),
    ("ffn", "base_mlp_dim", 7168),
    ("vocab", "vocab_size", 32_000),
)
"""(dimension, key, default in base.yml)."""

EXPERTS = (
    ("experts", "num_experts"),
    ("top_k", "num_experts_per_tok"),
    ("expert_ffn", "base_moe_mlp_dim"),
    ("shared_experts", "shared_experts"),
    ("dense_layers", "first_num_dense_layers"),
)


SCALE = "global_parameter_scale"
"""The key that multiplies the sizes of a model without a name: a power of two."""


DENSE = {"llama2": "llama", "mistral": "llama", "qwen3": "qwen3", "gemma": "gemma", "gemma2": "gemma2"}
"""Decoder blocks without experts, all gated → the model_type that builds them."""


PAIRED = "gemma2"
"""The decoder block whose one layer holds a local and a global attention, each with its MLP (models/gemma2.py)."""


MIXTURES = {"mixtral": 2, "qwen3_moe": 3, "deepseek": 5}
"""Decoder blocks with experts → how many entries of EXPERTS they need."""


NAMES = {
    "deepseek2-16b": "deepseek-v2-lite",
    "deepseek2-236b": "deepseek-v2",
    "deepseek3-671b": "deepseek-v3",
    "deepseek3-671b-2dfsdp": "deepseek-v3",
    "deepseek3-671b-batchsplit": "deepseek-v3",
    "deepseek3.2-671b": "deepseek-v3.2",
    "deepseek4-284b": "deepseek-v4-flash",
    "gemma4-26b": "gemma4-26b-a4b",
    "llama4-17b-16e": "llama4-scout",
    "llama4-17b-128e": "llama4-maverick",
    "qwen3-480b-a35b": "qwen3-coder-480b-a35b",
    "gpt3-52k": "",
}
"""MaxText's names (src/maxtext/configs/models) → the published model; "" for a model of its own."""


def read_model(reading: Reading) -> None:
    """Read the model by name, or by sizes with base.yml's defaults."""
    name = reading.source.plain("model_name")
    changed = [key for _, key, _ in SIZES if reading.find(key) is not None]
    if "student_overrides" in reading.source:
        reading.ask("model", "student_overrides.model_name", "student_overrides")
    elif isinstance(name, str) and name != "default":
        found = NAMES[name] or None if name in NAMES else model_of(name)[0]
        reading.put("model", found, "model_name") if found else reading.ask("model", "model_name", given=name)
        for key in changed:
            reading.refuse(key, "changes the model named by model_name", "model")
    elif changed or SCALE in reading.source:
        _described(reading)
    else:
        reading.ask("model", "model_name")


def _scales(reading: Reading) -> dict[str, int]:
    """Return what global_parameter_scale multiplies each dimension by: heads and MLP, width and layers double in turn
    (get_individual_scales, types.py)."""
    scale = reading.read(SCALE, whole) or 1
    doublings = scale.bit_length() - 1
    if 2**doublings != scale:
        raise reading.source.error(SCALE, f"{scale} is not a power of two")
    cycles, rest = divmod(doublings, 3)
    layers, heads, hidden = 2**cycles, 2 ** (cycles + (rest > 0)), 2 ** (cycles + (rest > 1))
    widths = dict.fromkeys(("heads", "kv_heads", "ffn", "expert_ffn"), heads)
    return {"layers": layers, "hidden": hidden, **widths}


def _described(reading: Reading) -> None:
    scales, block = _scales(reading), _block(reading.source)
    if block == PAIRED:
        scales["layers"] *= 2
    latent = reading.source.plain("attention_type") == "mla"
    for name, key, default in SIZES:
        stated = reading.read(key, whole)
        launched = "base_config" in reading.source or reading.source.syntax == "shell"
        if name == "head_dim" and (latent or (stated is None and not launched)):
            continue
        reading.dimension(name, (stated or default) * scales.get(name, 1), key)
    for name, key in EXPERTS:
        count = reading.read(key, natural)  # base.yml states first_num_dense_layers: 0
        reading.dimension(name, count and count * scales.get(name, 1), key)
    acts = names(reading.source.plain("mlp_activations") or ["silu", "linear"])
    reading.dimension("gated", len(acts) > 1, "mlp_activations")
    reading.dimension("tied", bool(reading.read("logits_via_embedding", flag)), "logits_via_embedding")
    reading.describe(*(key for _, key, _ in SIZES), SCALE, "decoder_block")
    reading.build(lambda: _config(reading))


def _block(source: LaunchFile) -> str:
    return str(source.plain("decoder_block") or "llama2").lower()


def _config(reading: Reading) -> dict[str, object]:
    """Return the decoder block's config.json. Raises NapkinError (2) if napkin cannot build the block."""
    shape, source = reading.shape, reading.source
    block = _block(source)
    fields: dict[str, object] = {
        "num_hidden_layers": shape["layers"],
        "hidden_size": shape["hidden"],
        "num_attention_heads": shape["heads"],
        "num_key_value_heads": shape["kv_heads"],
        "intermediate_size": shape["ffn"],
        "vocab_size": shape["vocab"],
        "tie_word_embeddings": shape["tied"],
        "head_dim": shape.get("head_dim"),
    }
    if block in DENSE and shape["gated"]:
        return {"model_type": DENSE[block], **fields}
    _check_experts(source, block, shape)
    if block == "mixtral":
        more = {"num_local_experts": shape["experts"], "num_experts_per_tok": shape["top_k"]}
        return {"model_type": "mixtral", **fields, **more}
    if block == "qwen3_moe":
        more = {
            "num_experts": shape["experts"],
            "num_experts_per_tok": shape["top_k"],
            "moe_intermediate_size": shape["expert_ffn"],
        }
        return {"model_type": "qwen3_moe", **fields, **more}
    if block == "deepseek" and source.plain("attention_type") == "mla":
        return _deepseek(source, shape, fields)
    raise NapkinError(
        f"{source.name}: napkin cannot build decoder block {block[:40]!r}", "name a MODEL with the same sizes"
    )


def _check_experts(source: LaunchFile, block: str, shape: Mapping[str, int | bool]) -> None:
    """Raise NapkinError (2) if the file omits a dimension that a mixture of experts needs."""
    lacks = [key for name, key in EXPERTS[: MIXTURES.get(block, 0)] if shape.get(name) is None]
    if lacks:
        raise NapkinError(
            f"{source.name}: decoder_block {block!r} needs {', '.join(lacks)}",
            f"write {lacks[0]}: N, or name a MODEL",
        )


def _deepseek(source: LaunchFile, shape: Mapping[str, int | bool], fields: Mapping[str, object]) -> dict[str, object]:
    """Return DeepSeek-V3's config.json. Latent attention has no head_dim."""
    ranks = {
        key: source.plain(key)
        for key in ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    }
    return {
        "model_type": "deepseek_v3",
        **{k: v for k, v in fields.items() if k != "head_dim"},
        **ranks,
        "n_routed_experts": shape["experts"],
        "num_experts_per_tok": shape["top_k"],
        "moe_intermediate_size": shape["expert_ffn"],
        "n_shared_experts": shape["shared_experts"],
        "first_k_dense_replace": shape["dense_layers"],
    }
