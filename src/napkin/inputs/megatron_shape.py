"""The config.json for a model that a Megatron-LM launch states by its sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from napkin.errors import NapkinError, Refused
from napkin.inputs.load import printable
from napkin.units import Unreadable, plain, positive_count

Fields = dict[str, object]
_REPEATED = re.compile(r"\[([01](?:,[01])*)\](?:\*(\d{1,6}))?")
"""A part of --moe-layer-freq: `[0]*3`."""


def config_of(shape: Mapping[str, str], length: int | None) -> Fields:
    """Return the config.json of the decoder that Megatron-LM builds from these options, without their dashes; length:
    tokens in a sequence. Refuses (2) a shape that lacks a size, and (3) one that none of napkin's decoders has."""
    missing = [name for name in ("num-layers", "hidden-size", "num-attention-heads") if name not in shape]
    size = shape.get("padded-vocab-size") or shape.get("vocab-size")
    if missing:
        raise NapkinError("MODEL is missing: which model?", f"a preset, or --{missing[0]} too, for a shape")
    if size is None:
        raise NapkinError(
            "--vocab-size is missing: the launch reads it from its tokenizer", "for example --vocab-size 128256"
        )
    layers, hidden, heads = (_number(shape, name) for name in ("num-layers", "hidden-size", "num-attention-heads"))
    gated = "swiglu" in shape
    fields: Fields = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "vocab_size": _number({"vocab-size": size}, "vocab-size"),
        "tie_word_embeddings": "untie-embeddings-and-output-weights" not in shape,
        "intermediate_size": _number(
            shape, "ffn-hidden-size", int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden
        ),
    }
    position = shape.get("position-embedding-type", "learned_absolute")
    rotary = position == "rope"
    if length is not None:
        fields["max_position_embeddings"] = length
    experts = "num-experts" in shape
    if plain(shape.get("mtp-num-layers", "0")):
        fields["num_nextn_predict_layers"] = _number(shape, "mtp-num-layers")
    predicts = "num_nextn_predict_layers" in fields
    if gated and rotary and shape.get("normalization") == "RMSNorm":
        if "multi-latent-attention" in shape:
            return _latent(fields, shape)
        if not predicts and (experts or "disable-bias-linear" in shape):
            return _llama(fields, shape, experts)
    differs = ("num-query-groups", "kv-channels", "qk-layernorm", "squared-relu", "disable-bias-linear")
    usual = shape.get("normalization", "LayerNorm") == "LayerNorm" and not any(name in shape for name in differs)
    if usual and not gated and not experts and not predicts and "max_position_embeddings" in fields:
        if position == "alibi" and "embed-layernorm" in shape and fields["intermediate_size"] == 4 * hidden:
            return {"model_type": "bloom", "n_layer": layers, "n_head": heads, **fields}
        if position == "learned_absolute":
            return _gpt2(fields, shape.get("attention-head-type") == "multiquery")
    return _any(fields, shape, experts)


def _any(fields: Fields, shape: Mapping[str, str], experts: bool) -> Fields:
    """Return the fields of a decoder that no class of transformers is. Refuses (3) what that decoder has not."""
    position = shape.get("position-embedding-type", "learned_absolute")
    for option in ("multi-latent-attention", "attention-head-type", "moe-shared-expert-gate", "embed-layernorm"):
        if option in shape:
            raise Refused(f"--{option} in a decoder of this shape is not read from a launch", "MODEL: a config.json")
    if position not in ("learned_absolute", "rope", "none"):
        raise Refused(
            f"--position-embedding-type {printable(position, 40)} in a decoder of this shape is not read from a launch",
            "MODEL: a config.json",
        )
    if position == "learned_absolute" and "max_position_embeddings" not in fields:
        raise NapkinError("--max-position-embeddings is missing", "it sizes the table of learned positions")
    gated, biased = "swiglu" in shape, "disable-bias-linear" not in shape
    fields |= _heads(fields, shape) | {
        "model_type": "megatron",
        "normalization": shape.get("normalization", "LayerNorm"),
        "position_embedding_type": position,
        "hidden_act": "silu" if gated else "relu2" if "squared-relu" in shape else "gelu",
        "gated": gated,
        "attention_bias": biased or "add-qkv-bias" in shape,
        "mlp_bias": biased,
        "qk_layernorm": "qk-layernorm" in shape,
    }
    return fields | (_mixed(fields, shape) if experts else {})


def _heads(fields: Fields, shape: Mapping[str, str]) -> Fields:
    """Return the number of key heads, and the width of a head if the launch states it."""
    grouped = "group-query-attention" in shape
    keys = _number(shape, "num-query-groups") if grouped else fields["num_attention_heads"]
    width = {"head_dim": _number(shape, "kv-channels")} if "kv-channels" in shape else {}
    return {"num_key_value_heads": keys, **width}


def _mixed(fields: Fields, shape: Mapping[str, str]) -> Fields:
    """Return the fields of a mixture of experts in some layers or all."""
    layers, shared = _whole(fields["num_hidden_layers"]), "moe-shared-expert-intermediate-size"
    return {
        "num_experts": _number(shape, "num-experts"),
        "num_experts_per_tok": _number(shape, "moe-router-topk", 2),
        "moe_intermediate_size": _number(shape, "moe-ffn-hidden-size", _whole(fields["intermediate_size"])),
        "moe_shared_expert_intermediate_size": 0 if plain(shape.get(shared, "0")) == 0 else _number(shape, shared),
        "mlp_layer_types": ["sparse" if kind == "1" else "dense" for kind in _kinds(shape, layers)],
    }


def _llama(fields: Fields, shape: Mapping[str, str], experts: bool) -> Fields:
    """Return a decoder with RMSNorm, rotary positions and SwiGLU; with experts as Mixtral has them, or as GLM 4.5 where
    the first layers have none or all tokens pass through shared ones."""
    normed, biased = "qk-layernorm" in shape, "add-qkv-bias" in shape
    fields |= _heads(fields, shape)
    if not experts:
        fields["model_type"] = "qwen3" if normed else "qwen2" if biased else "llama"
        if normed and biased:
            raise Refused("--qk-layernorm next to --add-qkv-bias is not read from a launch", "MODEL: a config.json")
        return fields
    inner = _number(shape, "moe-ffn-hidden-size", _whole(fields["intermediate_size"]))
    dense, shared = _dense(shape, _whole(fields["num_hidden_layers"])), _shared(shape, inner)
    routed = {"num_experts_per_tok": _number(shape, "moe-router-topk", 2)}
    if dense or shared or biased:
        return (
            fields
            | routed
            | _beside(shape, inner, dense, shared)
            | {
                "model_type": "glm4_moe",
                "attention_bias": biased,
                "use_qk_norm": normed,
            }
        )
    if normed:
        sizes = {"num_experts": _number(shape, "num-experts"), "moe_intermediate_size": inner}
        return fields | routed | sizes | {"model_type": "qwen3_moe", "mlp_only_layers": [], "decoder_sparse_step": 1}
    sizes = {"num_local_experts": _number(shape, "num-experts"), "intermediate_size": inner}
    return fields | routed | sizes | {"model_type": "mixtral"}


def _latent(fields: Fields, shape: Mapping[str, str]) -> Fields:
    """Return a decoder with latent attention, as DeepSeek-V3 has it (arguments.py, _add_mla_args)."""
    if "qk-layernorm" not in shape:
        raise Refused(
            "--multi-latent-attention without --qk-layernorm is no model that napkin knows", "MODEL: a config.json"
        )
    layers = _whole(fields["num_hidden_layers"])
    inner = _number(shape, "moe-ffn-hidden-size", _whole(fields["intermediate_size"]))
    sparse = "num-experts" in shape
    dense = _dense(shape, layers) if sparse else layers
    fields |= _beside(shape, inner, dense, _shared(shape, inner)) if sparse else {"first_k_dense_replace": layers}
    return fields | {
        "model_type": "deepseek_v3",
        "num_key_value_heads": fields["num_attention_heads"],
        "q_lora_rank": _number(shape, "q-lora-rank") if "q-lora-rank" in shape else None,
        "kv_lora_rank": _number(shape, "kv-lora-rank", 32),
        "qk_nope_head_dim": _number(shape, "qk-head-dim", 128),
        "qk_rope_head_dim": _number(shape, "qk-pos-emb-head-dim", 64),
        "v_head_dim": _number(shape, "v-head-dim", 128),
        "num_experts_per_tok": _number(shape, "moe-router-topk", 2),
        "n_group": 1,
        "topk_group": 1,
    }


def _beside(shape: Mapping[str, str], inner: int, dense: int, shared: int) -> Fields:
    """Return the fields of experts next to dense layers and shared experts."""
    return {
        "n_routed_experts": _number(shape, "num-experts"),
        "moe_intermediate_size": inner,
        "n_shared_experts": shared,
        "first_k_dense_replace": dense,
    }


def _shared(shape: Mapping[str, str], inner: int) -> int:
    """Return how many experts all tokens pass through. Megatron-LM states their width together."""
    name = "moe-shared-expert-intermediate-size"
    if name not in shape or plain(shape[name]) == 0:
        return 0
    width = _number(shape, name)
    if width % inner or "moe-shared-expert-gate" in shape:
        raise Refused(
            f"--{name} {width} is not a multiple of the width of an expert, {inner}, or has a gate",
            "MODEL: a config.json",
        )
    return width // inner


def _kinds(shape: Mapping[str, str], layers: int) -> str:
    """Return 1 for each layer with experts and 0 for each other. --moe-layer-freq is N (every Nth layer has experts),
    or a list such as ([0]*3+[1]*58)."""
    text = re.sub(r"[\s'\"()]", "", shape.get("moe-layer-freq", "1"))
    if text.isdigit():
        return "".join("1" if i % max(int(text), 1) == 0 else "0" for i in range(layers))
    parts = [_REPEATED.fullmatch(part) for part in text.split("+")]
    kinds = "".join(found[1].replace(",", "") * min(int(found[2] or 1), layers) for found in parts if found is not None)
    if None in parts or len(kinds) != layers:
        raise NapkinError(
            f"--moe-layer-freq {shape['moe-layer-freq'][:60]}: is no list of {layers} layers",
            "for example ([0]*3+[1]*58)",
        )
    return kinds


def _dense(shape: Mapping[str, str], layers: int) -> int:
    """Return how many of the first layers have no experts. Refuses (3) dense layers among those with experts."""
    kinds = _kinds(shape, layers)
    dense = len(kinds) - len(kinds.lstrip("0"))
    if "0" in kinds[dense:]:
        raise Refused(
            "--moe-layer-freq with dense layers among those with experts is not read from a launch",
            "MODEL: a config.json",
        )
    return dense


def _gpt2(fields: Fields, shared: bool) -> Fields:
    """Return a decoder with LayerNorm, learned positions, GELU and biases; shared: all queries share one key."""
    names = {
        "num_hidden_layers": "n_layer",
        "hidden_size": "n_embd",
        "num_attention_heads": "n_head",
        "intermediate_size": "n_inner",
        "max_position_embeddings": "n_positions",
    }
    kind: Fields = {"model_type": "gpt_bigcode", "multi_query": True} if shared else {"model_type": "gpt2"}
    return kind | {names.get(name, name): value for name, value in fields.items()}


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value


def _number(shape: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = shape.get(name)
    if text is None and default is not None:
        return default
    try:
        return positive_count(text or "")
    except Unreadable as problem:
        raise NapkinError(f"--{name}: {problem.reason}", problem.hint) from None
