"""The model that a published row describes: a preset by its name, else a decoder of the dimensions that it states."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from napkin.architectures import build
from napkin.counting.params import params
from napkin.errors import NapkinError
from napkin.evidence.rows.printed import PrintedDecoder
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.steps import step_row
from napkin.inputs.load import Document
from napkin.inputs.model_file import config_from, load_config
from napkin.inputs.presets import is_preset
from napkin.operations.model import Model

APART = 0.02
"""How far the parameters of a row's shape may lie from those that it states: biases, positions, padded vocabularies."""


def config_of(dims: PrintedDecoder, seq: int) -> Mapping[str, object]:
    """Return the printed dimensions as a config.json of the family that has its parts: Llama, GPT-2, Mixtral or
    DeepSeek, else of what Megatron-LM builds. Refused for windowed attention."""
    if dims.window:
        raise NapkinError("its windowed attention is not among the shapes that a table describes fully")
    if dims.kv_rank:
        return _latent(dims, seq)
    if dims.shared_ffn or dims.dense_layers or (not dims.gated and (dims.experts or dims.kv_heads != dims.heads)):
        return _mixed(dims, seq)
    if not dims.gated:
        return {
            "model_type": "gpt2",
            "n_embd": dims.hidden,
            "n_layer": dims.layers,
            "n_head": dims.heads,
            "n_inner": dims.ffn,
            "vocab_size": dims.vocab,
            "n_positions": seq,
            "tie_word_embeddings": dims.tied,
        }
    config = _sized(dims, seq) | {"model_type": "llama", "intermediate_size": dims.ffn}
    if dims.experts:
        config |= {"model_type": "mixtral", "num_local_experts": dims.experts, "num_experts_per_tok": dims.top_k}
        config |= {"intermediate_size": dims.expert_ffn, "sliding_window": None}
    return config


def _sized(dims: PrintedDecoder, seq: int) -> dict[str, object]:
    """Return the fields that a config.json of either family has, but those of its MLPs."""
    return {
        "hidden_size": dims.hidden,
        "num_hidden_layers": dims.layers,
        "num_attention_heads": dims.heads,
        "num_key_value_heads": dims.kv_heads,
        "head_dim": int(dims.head_dim),
        "vocab_size": dims.vocab,
        "max_position_embeddings": seq,
        "tie_word_embeddings": dims.tied,
    }


def _mixed(dims: PrintedDecoder, seq: int) -> Mapping[str, object]:
    """Return the dimensions as a config.json of a decoder with few key heads or experts: of the Llama family if its
    MLPs are gated, else of GPT's."""
    config = _sized(dims, seq) | {"model_type": "megatron", "intermediate_size": dims.ffn or dims.expert_ffn}
    if dims.gated:
        config |= {"gated": True, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False}
        config |= {"normalization": "RMSNorm", "position_embedding_type": "rope"}
    if dims.experts:
        config |= {"num_experts": dims.experts, "num_experts_per_tok": dims.top_k}
        config |= {"moe_intermediate_size": dims.expert_ffn, "moe_shared_expert_intermediate_size": dims.shared_ffn}
        kinds = ["dense"] * dims.dense_layers + ["sparse"] * (dims.layers - dims.dense_layers)
        config["mlp_layer_types"] = kinds
    return config


def _latent(dims: PrintedDecoder, seq: int) -> Mapping[str, object]:
    """Return the dimensions of a decoder with latent attention as a config.json of DeepSeek's."""
    if not dims.gated or (dims.experts and dims.shared_ffn % dims.expert_ffn):
        raise NapkinError("its latent attention with such MLPs is not among the shapes that a table describes fully")
    config = _sized(dims, seq) | {"model_type": "deepseek_v3", "intermediate_size": dims.ffn}
    del config["head_dim"]
    config |= {"q_lora_rank": dims.q_rank or None, "kv_lora_rank": dims.kv_rank, "v_head_dim": dims.v_dim}
    config |= {"qk_nope_head_dim": dims.nope, "qk_rope_head_dim": dims.rope}
    if not dims.experts:
        return config | {"first_k_dense_replace": dims.layers}
    config |= {"n_routed_experts": dims.experts, "num_experts_per_tok": dims.top_k, "n_group": 1, "topk_group": 1}
    config |= {"moe_intermediate_size": dims.expert_ffn, "n_shared_experts": dims.shared_ffn // dims.expert_ffn}
    return config | {"first_k_dense_replace": dims.dense_layers}


def model_of(dims: PrintedDecoder, seq: int) -> Model:
    """Return the model of the printed dimensions."""
    return build(config_from(dims.name, Document(dims.name, None), dict(config_of(dims, seq))))


def depth_from(row: RowFields, stages: int) -> int | None:
    """Return the number of layers if only width and size are stated: the multiple of the pipeline's stages nearest
    to (N − V·h)/12h², or 4h² + 3hf of a gated block."""
    size = row.number("model.params") or row.number("model.params_nominal")
    hidden = row.count("model.hidden")
    if size is None or hidden is None or row.part("model").get("experts"):
        return None
    ffn = row.count("model.ffn") or 4 * hidden
    block = 4 * hidden * hidden + (3 if row.flag("model.gated") else 2) * hidden * ffn
    embeddings = (row.count("model.vocab") or 0) * hidden * (1 if row.flag("model.tied") else 2)
    return max(round((size - embeddings) / block / stages), 1) * stages


def preset_of(row: RowFields) -> Model | None:
    """Return the preset that a row names, whoever's copy of it ran, if the depth and the width that it states are the
    preset's."""
    name = row.text("model.name").rpartition("/")[2]
    preset = preset_model(name) if is_preset(name) else None
    if preset is None:
        return None
    depth = preset.stacks[-1].depth
    same = (row.count("model.layers") or depth, row.count("model.hidden") or preset.hidden)
    if same != (depth, preset.hidden):
        return None
    return preset.predicting if row.flag("model.mtp") else preset


@cache
def preset_model(name: str) -> Model:
    """Return the model of a preset."""
    return build(load_config(name))


def described(row: RowFields) -> Model:
    """Return the row's model: the preset of that name, whoever's copy of it ran, else a decoder of the dimensions that
    the row states. Refused where a dimension is missing, or they contradict the parameters that it states."""
    preset = preset_of(row)
    if preset is not None:
        return preset
    layers, hidden = row.count("model.layers"), row.count("model.hidden")
    if layers is None:
        layers = depth_from(row, row.count("layout.pp") or 1)
    if layers is None or hidden is None:
        raise NapkinError("the number of layers or the width is not stated")
    if row.count("model.vocab") is None:
        raise NapkinError("the vocabulary is not stated")
    found = [_built(row, {"layers": layers, **fields}) for fields in _unsaid(row, layers, hidden)]
    stated = row.number("model.params")
    if not stated:
        if len(found) > 1:
            raise NapkinError("whether its MLP is gated and its embeddings are tied is not stated, nor its parameters")
        return found[0]
    counts = [float(params(one)["params/total"].value) for one in found]
    nearest = min(range(len(found)), key=lambda place: abs(counts[place] / stated - 1))
    if abs(counts[nearest] / stated - 1) > APART:
        raise NapkinError(f"its shape makes {counts[nearest]:,.0f} parameters, not the {stated:,.0f} that it states")
    return found[nearest]


def _built(row: RowFields, fields: Mapping[str, object]) -> Model:
    """Return the model of the row with these dimensions filled in."""
    step = step_row(row.replaced({**row.fields, "model": {**row.part("model"), **fields}}))
    assert step.shape is not None
    return model_of(step.shape, step.seq or row.count("model.longest_sample") or 2048)


def _unsaid(row: RowFields, layers: int, hidden: int) -> list[dict[str, object]]:
    """Return each way to read what a row does not say of its shape: a gated MLP or none, tied embeddings or not; a
    gated MLP's width from the parameters. Without a gate it is GPT's: four times the model's, its embeddings tied."""
    gated, tied = row.flag("model.gated"), row.flag("model.tied")
    ways: list[dict[str, object]] = []
    for gate in (False, True) if gated is None else (gated,):
        both = (False, True) if row.number("model.params") or gate else (True,)
        for same in both if tied is None else (tied,):
            fields: dict[str, object] = {"gated": gate, "tied": same}
            if gate and row.count("model.ffn") is None and not row.part("model").get("experts"):
                fields["ffn"] = _width(row, layers, hidden, same)
            ways.append(fields)
    return ways


def _width(row: RowFields, layers: int, hidden: int, tied: bool) -> int:
    """Return a gated MLP's width from the parameters: (N − embeddings − h)/L − attention − 2h (two norms), over 3h."""
    stated, heads = row.number("model.params"), row.count("model.heads") or 1
    if not stated:
        raise NapkinError("the width of its MLP is not stated")
    size = row.count("model.head_dim") or hidden // heads
    attention = 2 * hidden * size * (heads + (row.count("model.kv_heads") or heads))
    embeddings = (row.count("model.vocab") or 0) * hidden * (1 if tied else 2)
    return max(round(((stated - embeddings - hidden) / layers - attention - 2 * hidden) / (3 * hidden)), 1)
