"""The model that a Megatron-LM launch states by its sizes: the config.json that it corresponds to."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.errors import NapkinError, Refused, listed
from napkin.units import Unreadable, positive_count

Fields = dict[str, object]


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
    rotary = shape.get("position-embedding-type", "learned_absolute") == "rope"
    if length is not None:
        fields["max_position_embeddings"] = length
    experts = "num-experts" in shape
    if gated and rotary and shape.get("normalization") == "RMSNorm" and "multi-latent-attention" not in shape:
        return _llama(fields, shape, experts)
    if (
        not gated
        and not rotary
        and not experts
        and "num-query-groups" not in shape
        and "max_position_embeddings" in fields
    ):
        return _gpt2(fields)
    llama = {
        "--swiglu": gated,
        "--position-embedding-type rope": rotary,
        "--normalization RMSNorm": shape.get("normalization") == "RMSNorm",
    }
    lacks = [option for option, given in llama.items() if not given]
    near = f"{listed(lacks)} would make it Llama's; else " if 0 < len(lacks) < len(llama) else ""
    raise Refused(
        "the launch's shape is not one of the decoders that napkin builds from a launch: Llama's, Mixtral's, GPT-2's",
        f"{near}MODEL: a config.json with the same sizes",
    )


def _llama(fields: Fields, shape: Mapping[str, str], experts: bool) -> Fields:
    """Return a decoder with RMSNorm, rotary positions and SwiGLU; with experts as Mixtral has them."""
    fields["model_type"] = "mixtral" if experts else "qwen3" if "qk-layernorm" in shape else "llama"
    fields["num_key_value_heads"] = (
        _number(shape, "num-query-groups") if "group-query-attention" in shape else fields["num_attention_heads"]
    )
    if "kv-channels" in shape:
        fields["head_dim"] = _number(shape, "kv-channels")
    if experts:
        if any(name in shape for name in ("moe-shared-expert-intermediate-size", "moe-layer-freq")):
            raise Refused("shared experts and --moe-layer-freq are not read from a launch", "MODEL: a config.json")
        fields["num_local_experts"] = _number(shape, "num-experts")
        fields["num_experts_per_tok"] = _number(shape, "moe-router-topk", 2)
        if "moe-ffn-hidden-size" in shape:
            fields["intermediate_size"] = _number(shape, "moe-ffn-hidden-size")
    return fields


def _gpt2(fields: Fields) -> Fields:
    """Return a decoder with LayerNorm, learned positions, GELU and biases."""
    names = {
        "num_hidden_layers": "n_layer",
        "hidden_size": "n_embd",
        "num_attention_heads": "n_head",
        "intermediate_size": "n_inner",
        "max_position_embeddings": "n_positions",
    }
    return {"model_type": "gpt2", **{names.get(name, name): value for name, value in fields.items()}}


def _number(shape: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = shape.get(name)
    if text is None and default is not None:
        return default
    try:
        return positive_count(text or "")
    except Unreadable as problem:
        raise NapkinError(f"--{name}: {problem.reason}", problem.hint) from None
