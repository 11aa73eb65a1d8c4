"""Model files that are not a Hugging Face config.json: Meta's and Mistral's params.json, LitGPT's, MosaicML's and
nanoGPT's are read as the config.json they correspond to; of others an error names the file that will do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from napkin.errors import Refused
from napkin.inputs.load import printable

Fields = dict[str, Any]


class Foreign(NamedTuple):
    """One kind of file: how it is recognized, and the config.json that it means or the file that will do instead."""

    name: str
    marks: tuple[str, ...]
    read: Callable[[Mapping[str, Any]], Fields] | None
    instead: str = ""
    inside: str = ""


def translated(data: Mapping[str, Any], where: str) -> tuple[Fields, str] | None:
    """Return the config.json that another project's file means, and a note; None where the file is not recognized.
    Refused (3): one that does not say enough."""
    for kind in KINDS:
        block = data.get(kind.inside) if kind.inside else data
        if not isinstance(block, dict) or not all(mark in _named(block) for mark in kind.marks):
            continue
        if kind.read is None:
            raise Refused(f"{where}: is {kind.name}, which does not say all that a model has", kind.instead)
        try:
            fields = {field: value for field, value in kind.read(_named(block)).items() if value is not None}
        except (TypeError, ValueError, KeyError, ArithmeticError) as problem:
            what = printable(str(problem), 60)
            raise Refused(f"{where}: is {kind.name}, and napkin cannot read it ({what})", kind.instead) from None
        return fields, f"read as {fields['model_type']}: {kind.name}"
    return None


def _named(block: Mapping[str, Any]) -> Fields:
    """Return the fields with underscores in place of dashes."""
    return {str(field).replace("-", "_"): value for field, value in block.items()}


def _whole(value: object) -> int:
    """Return a whole number, else an error."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
        raise ValueError(f"{value!r} is not a whole number")
    return int(value)


def _meta(of: Mapping[str, Any]) -> Fields:
    """Read Meta's params.json (meta-llama/llama-models, models/llama3/model.py): the MLP is 8/3 of the width, times
    ffn_dim_multiplier, rounded up to multiple_of; -1 tokens are the tokenizer's, 32,000 before Llama 3."""
    width, multiple = _whole(of["dim"]), _whole(of["multiple_of"])
    inner = int(2 * 4 * width / 3)
    if of.get("ffn_dim_multiplier") is not None:
        inner = int(of["ffn_dim_multiplier"] * inner)
    rows = _whole(of["vocab_size"])
    if of.get("moe_args"):
        raise ValueError("mixtures of experts: give the config.json of the Hugging Face release")
    return {
        "model_type": "llama",
        "hidden_size": width,
        "num_hidden_layers": of["n_layers"],
        "num_attention_heads": of["n_heads"],
        "num_key_value_heads": of.get("n_kv_heads"),
        "intermediate_size": multiple * -(-inner // multiple),
        "vocab_size": 32_000 if rows == -1 else rows,
        "max_position_embeddings": of.get("max_seq_len"),
        "tie_word_embeddings": False,
    }


def _mistral(of: Mapping[str, Any]) -> Fields:
    """Read Mistral's params.json (mistralai/mistral-inference, args.py)."""
    fields = {
        "model_type": "mistral",
        "hidden_size": of["dim"],
        "num_hidden_layers": of["n_layers"],
        "num_attention_heads": of["n_heads"],
        "num_key_value_heads": of.get("n_kv_heads"),
        "head_dim": of.get("head_dim"),
        "intermediate_size": of["hidden_dim"],
        "vocab_size": of["vocab_size"],
        "max_position_embeddings": of.get("max_position_embeddings") or of.get("max_seq_len"),
        "sliding_window": of.get("sliding_window"),
        "tie_word_embeddings": bool(of.get("tied_embeddings", False)),
    }
    if of.get("q_lora_rank") or of.get("kv_lora_rank"):
        raise ValueError("latent attention")
    if isinstance(of.get("moe"), dict):
        fields |= {
            "model_type": "mixtral",
            "num_local_experts": of["moe"]["num_experts"],
            "num_experts_per_tok": of["moe"]["num_experts_per_tok"],
        }
    return fields


def _litgpt(of: Mapping[str, Any]) -> Fields:
    """Read LitGPT's model_config.yaml (Lightning-AI/litgpt, litgpt/config.py): Llama's blocks or GPT-NeoX's."""
    width, bias = _whole(of["n_embd"]), bool(of.get("bias", True))
    shared = {
        "hidden_size": width,
        "num_hidden_layers": of["n_layer"],
        "num_attention_heads": of["n_head"],
        "intermediate_size": of.get("intermediate_size") or 4 * width,
        "vocab_size": of["padded_vocab_size"],
        "max_position_embeddings": of.get("block_size"),
        "tie_word_embeddings": False,
    }
    kinds = of.get("mlp_class_name", "GptNeoxMLP"), of.get("norm_class_name", "LayerNorm")
    if kinds == ("LLaMAMLP", "RMSNorm"):
        if of.get("parallel_residual", True) or of.get("n_expert") or of.get("norm_qk"):
            raise ValueError("other blocks than Llama's")
        return {
            "model_type": "llama",
            **shared,
            "num_key_value_heads": of.get("n_query_groups"),
            "head_dim": of.get("head_size"),
            "attention_bias": bool(of.get("attn_bias", False)) or bias,
            "mlp_bias": bias,
        }
    if kinds == ("GptNeoxMLP", "LayerNorm") and of.get("n_query_groups") in (None, of["n_head"]):
        neox = {"rotary_pct": of.get("rotary_percentage", 0.25), "attention_bias": bias}
        return {"model_type": "gpt_neox", **shared, **neox, "use_parallel_residual": of.get("parallel_residual", True)}
    raise ValueError(f"{kinds[0]} with {kinds[1]}")


def _mosaic(of: Mapping[str, Any]) -> Fields:
    """Read the model block of MosaicML's YAML (mosaicml/llm-foundry, models/mpt/configuration_mpt.py)."""
    known = ("d_model", "n_heads", "n_layers", "expansion_ratio", "max_seq_len", "vocab_size", "attn_config", "no_bias")
    fields = {field: of[field] for field in known if field in of}
    return {"model_type": "mpt", **fields, "norm_type": "low_precision_layernorm"}


def _nanogpt(of: Mapping[str, Any]) -> Fields:
    """Read the model_args of nanoGPT (karpathy/nanoGPT, model.py): GPT-2's blocks."""
    if of.get("bias") is False:
        raise ValueError("no class of transformers has GPT-2 with bias=False")
    return {
        "model_type": "gpt2",
        "n_layer": of["n_layer"],
        "n_head": of["n_head"],
        "n_embd": of["n_embd"],
        "n_positions": of["block_size"],
        "vocab_size": of.get("vocab_size", 50_304),
    }


_EXPORT = "give the config.json of the model's Hugging Face export"
KINDS = (
    Foreign("Meta's params.json", ("dim", "n_layers", "n_heads", "multiple_of"), _meta, _EXPORT),
    Foreign("Mistral's params.json", ("dim", "n_layers", "n_heads", "hidden_dim"), _mistral, _EXPORT),
    Foreign("LitGPT's model_config.yaml", ("n_embd", "n_layer", "padded_vocab_size"), _litgpt, _EXPORT),
    Foreign("nanoGPT's model_args", ("n_layer", "n_head", "n_embd", "block_size"), _nanogpt, _EXPORT),
    Foreign("MosaicML's training YAML", ("d_model", "n_heads", "n_layers", "name"), _mosaic, _EXPORT, "model"),
    Foreign("OLMo's training YAML", ("d_model", "n_heads", "n_layers"), None, f"{_EXPORT} (model_type olmo)", "model"),
    Foreign(
        "GPT-NeoX's training YAML",
        ("num_layers", "hidden_size", "num_attention_heads"),
        None,
        f"{_EXPORT} (tools/ckpts/convert_neox_to_hf.py writes one), or add model_type: gpt_neox and vocab_size",
    ),
    Foreign("Mistral's params.json of another architecture", ("dim", "n_layers"), None, _EXPORT),
)
"""In the order in which they are tried."""
