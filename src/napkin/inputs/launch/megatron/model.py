"""The model that Megatron-core's options describe: sizes, experts, positions and vocabulary."""

from __future__ import annotations

import re

from napkin.errors import NapkinError
from napkin.inputs.launch.names import model_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.shapes import vocabulary_of
from napkin.inputs.launch.values import Open, flag, natural, whole
from napkin.inputs.megatron_shape import config_of

SHAPE = (
    "num_layers hidden_size ffn_hidden_size num_attention_heads num_query_groups num_key_value_heads "
    "group_query_attention kv_channels swiglu quick_geglu gated_linear_unit geglu "
    "untie_embeddings_and_output_weights vocab_size padded_vocab_size num_experts moe_router_topk moe_ffn_hidden_size "
    "moe_shared_expert_intermediate_size moe_layer_freq squared_relu max_position_embeddings position_embedding_type "
    "normalization disable_bias_linear multi_latent_attention qk_layernorm add_qkv_bias q_lora_rank kv_lora_rank "
    "qk_head_dim qk_pos_emb_head_dim v_head_dim moe_shared_expert_gate moe_num_experts moe_top_k attention_head_type "
    "topk num_experts_switch embed_layernorm expert_interval make_vocab_size_divisible_by hybrid_layer_pattern "
    "mtp_num_layers"
)


GATED = ("swiglu", "quick_geglu", "gated_linear_unit", "geglu")
"""Switches of a gated MLP (megatron/training/arguments.py, core_transformer_config_from_args)."""


OF_KIND = (
    "swiglu", "squared_relu", "normalization", "position_embedding_type", "use_rotary_position_embeddings",
)  # fmt: skip
"""Options that tell the kind of a decoder apart from its sizes."""


def names_family(program: str) -> bool:
    """Return whether a program is named for a family of models other than GPT: `pretrain_llama.py`."""
    from napkin.inputs.presets import presets

    firsts = (re.match(r"[a-z]{4,}", one.family.lower()) for one in presets())
    families = {found[0] for found in firsts if found is not None} - {"megatron"}
    return bool(set(re.findall(r"[a-z]+", program.lower())) & families)


def position_of(reading: Reading) -> str:
    """Return the position embedding type; the older rotary switch wins (arguments.py, validate_args)."""
    if reading.read("use_rotary_position_embeddings", flag):
        return "rope"
    return str(reading.source.plain("position_embedding_type") or "learned_absolute")


VOCABULARIES = {"gpt2bpetokenizer": 50257, "llama2tokenizer": 32000}
"""Megatron-LM's tokenizers with a fixed vocabulary → tokens."""


def _is_other(path: str) -> bool:
    """Return whether a SentencePiece file is not named as Llama 2's: any such file can go with Llama2Tokenizer."""
    name = path.rsplit("/", 1)[-1].lower()
    return name.endswith(".model") and name != "tokenizer.model" and "llama" not in name


def take_vocabulary(reading: Reading, kind: str, *names: str) -> None:
    """Assume the vocabulary from the tokenizer's type or name, padded as Megatron-LM pads it.

    kind   the key of the tokenizer's type     names  keys of its repository or path
    """
    padded = ("vocab_size", "padded_vocab_size", "pad_vocab_size_to", "extra_vocab_size")
    if "vocab" in reading.shape or reading.source.has_any(*padded):
        return
    plain = reading.source.plain
    stated = [(key, str(plain(key))) for key in names if plain(key)]
    values = [getattr(reading.find(key), "value", "") for key in names]
    paths = [one.rest if isinstance(one, Open) else str(one) for one in values]
    sizes = [(key, vocabulary_of(model_of(name)[0])) for key, name in stated]
    if "gpt2-vocab" in str(plain("vocab_file") or ""):
        sizes.insert(0, ("vocab_file", VOCABULARIES["gpt2bpetokenizer"]))
    if not any(_is_other(path) for path in paths):
        sizes.insert(0, (kind, VOCABULARIES.get(str(plain(kind) or "").lower())))
    key, size = next(((key, size) for key, size in sizes if size), ("", None))
    if size is None:
        if kind in reading.source:
            reading.omit(kind, "the vocabulary size depends on the tokenizer, which is not in the file")
        return
    unit = (reading.read("make_vocab_size_divisible_by", whole) or 128) * (reading.value_of("tp") or 1)
    rows = -(-size // unit) * unit
    reading.dimension("vocab", rows, key)
    reading.omit(key, f"is assumed to have {size:,} tokens, padded to {rows:,}")


def vocabulary_flag(reading: Reading) -> dict[str, str]:
    """Return the vocabulary as Megatron-LM's option. Raises NapkinError (2) if it is unknown."""
    if "vocab" in reading.shape:
        return {"padded-vocab-size": str(reading.shape["vocab"])}
    raise NapkinError(
        f"{reading.source.name}: the vocabulary size depends on the tokenizer, which is not in the file",
        "name a model with the same sizes before the options: MODEL --from FILE",
    )


def _take_experts(reading: Reading) -> None:
    """Read the number of experts and the experts per token.

    Megatron-DeepSpeed, its Switch layers (SwitchMLP, transformer.py) and MegaBlocks default to top-1, Megatron-core to
    top-2.
    """
    key = reading.named("num_experts", "moe_num_experts", "num_experts_switch")
    found = reading.find(key)
    if found is None:
        return
    reading.unsized += reading.open_among("moe_layer_freq")
    if reading.source.plain("mlp_type") == "residual":
        reading.refuse("mlp_type", "a dense MLP beside the experts of each layer, which napkin does not build", "model")
    if isinstance(found.value, list):
        reading.refuse(key, "layers with different numbers of experts")
        return
    number_of = reading.read(key, whole)
    if number_of == 1 and reading.source.has_any("deepspeed", "moe_expert_parallel_size"):
        reading.told(key)
        return
    reading.dimension("experts", number_of, key)
    own = reading.source.has_any("moe_num_experts", "moe_expert_parallel_size", "topk", "num_experts_switch")
    tops = ("moe_router_topk", "moe_top_k", "topk")
    reading.dimension("top_k", reading.read("|".join(tops), whole) or (1 if own else 2), *tops)


def derived_flags(reading: Reading) -> dict[str, str]:
    """Return experts and positions as Megatron-core's options.

    Megatron-DeepSpeed has experts in every second layer by default (expert_interval).
    """
    sizes = {"num-experts": reading.shape.get("experts"), "moe-router-topk": reading.shape.get("top_k")}
    flags = {name: str(size) for name, size in sizes.items() if size}
    if flags and reading.source.has_any("moe_expert_parallel_size", "expert_interval"):
        every, layers = reading.read("expert_interval", whole) or 2, int(reading.shape.get("layers") or 0)
        kinds = ["1" if (layer + 1) % every == 0 else "0" for layer in range(layers)]
        flags["moe-layer-freq"] = f"[{','.join(kinds)}]"
    if "num_key_value_heads" in reading.source and reading.shape.get("kv_heads"):
        flags |= {"group-query-attention": "True", "num-query-groups": str(reading.shape["kv_heads"])}
    return flags | {"position-embedding-type": position_of(reading)}


def take_shape(reading: Reading) -> None:
    """Read the model's dimensions, with Megatron-LM's defaults (megatron/training/arguments.py).

    ffn_hidden_size defaults to 4·hidden, or 8/3·hidden in multiples of 64 if gated; embeddings are tied.
    """
    sizes = {
        "layers": "num_layers",
        "hidden": "hidden_size",
        "heads": "num_attention_heads",
        "head_dim": "kv_channels",
        "expert_ffn": "moe_ffn_hidden_size",
    }
    for name, key in sizes.items():
        reading.dimension(name, reading.read(key, whole), key)
    _take_experts(reading)
    hidden = reading.shape.get("hidden")
    gated = any(reading.read(key, flag) for key in GATED) or "glu" in str(reading.source.plain("activation") or "")
    ffn = reading.read("ffn_hidden_size", whole)
    if hidden and not reading.source.has_any("hybrid_layer_pattern", "hybrid_override_pattern"):
        reading.dimension("ffn", ffn or (int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden), "ffn_hidden_size")
    groups = reading.read("num_query_groups|num_key_value_heads", natural)  # the second: Megatron-DeepSpeed
    if reading.source.plain("attention_head_type") == "multiquery":  # BigCode's fork of Megatron-LM
        groups = 1
    grouped = groups and reading.read("group_query_attention", flag) is not False
    if reading.shape.get("heads"):
        reading.dimension(
            "kv_heads",
            groups if grouped else reading.shape["heads"],
            *[key for key in ("num_query_groups", "num_key_value_heads") if key in reading.source],
            "group_query_attention",
            "attention_head_type",
        )
    vocab = reading.read("padded_vocab_size|pad_vocab_size_to|vocab_size", whole)
    reading.dimension(
        "vocab", vocab, *[k for k in ("padded_vocab_size", "pad_vocab_size_to", "vocab_size") if k in reading.source]
    )
    reading.dimension("gated", bool(gated), *GATED)
    untied = reading.read("untie_embeddings_and_output_weights", flag)
    shared = reading.read("share_embeddings_and_output_weights", flag)
    reading.dimension(
        "tied",
        shared if shared is not None else not untied,
        "untie_embeddings_and_output_weights",
        "share_embeddings_and_output_weights",
    )
    if position_of(reading) == "learned_absolute":
        length = reading.read("max_position_embeddings", whole)
        reading.dimension("positions", length, "max_position_embeddings")


def take_decoder(reading: Reading, kind: str, *names: str) -> None:
    """Name and build the decoder of the dimensions that were read, with a vocabulary that follows from its tokenizer.

    kind   the key of the tokenizer's type     names  keys of its repository or path
    """
    take_vocabulary(reading, kind, *names)
    stated = {
        key: str(value.value)
        for key, value in reading.source.values.items()
        if key in SHAPE.split() and value.value not in (None, False)
    }
    reading.describe("num_layers", "hidden_size", "num_attention_heads", "hybrid_layer_pattern", *stated)
    flags = {key.replace("_", "-"): value for key, value in stated.items()}
    flags |= derived_flags(reading)
    reading.build(lambda: config_of(flags | vocabulary_flag(reading), reading.value_of("seq")))
