"""The dimensions of a preset as a table prints them, for rows that name a model instead of its shape."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.architectures import build
from napkin.counting.params import params
from napkin.errors import NapkinError
from napkin.inputs.model_file import load_config
from napkin.operations.base import Operation
from napkin.operations.model import Layer, Model
from napkin.operations.roles import DOWN, EXPERT, KV_LATENT, QUERY, SHARED_EXPERT

Dimensions = dict[str, object]
"""Fields of a row's `model`."""


def dimensions_of(name: str, mtp: bool = False) -> Dimensions:
    """Return the fields that describe a preset. Refused: one whose layers are not plain attention and MLP, or that is
    trained with its multi-token prediction modules (`mtp`)."""
    model = build(load_config(name))
    found = _decoder(model) if len(model.stacks) == 1 and model.heads and not mtp else None
    if found is None:
        raise NapkinError(f"the preset {name} is not a decoder that a table describes fully")
    return {**found, "params": int(params(model)["params/total"].value)}


def sizes_of(name: str) -> Dimensions:
    """Return the sizes of a preset whose layers a table does not describe: of its stream, heads and vocabulary, and of
    its experts. Its layers are taken from the preset. Refused: one of several stacks."""
    model = build(load_config(name))
    if len(model.stacks) != 1:
        raise NapkinError(f"the preset {name} has several stacks of layers, which no table of steps describes")
    dims: Dimensions = {
        "layers": model.depth,
        "hidden": model.hidden,
        "vocab": model.vocabulary,
        "tied": model.tied,
        "gated": True,
    }
    if model.heads:
        dims |= {"heads": model.heads, "kv_heads": model.kv_heads, "head_dim": model.head_dim}
    sparse = [(count, layer) for count, layer in model.stacks[0].runs if layer.block and _chooses(layer)]
    if sparse:
        dims["experts"] = _experts(sparse[0][1], model.depth - sum(count for count, _ in sparse))
    return dims


def _decoder(model: Model) -> Dimensions | None:
    """Return the dimensions of a decoder whose layers are alike but for dense layers before mixtures of experts."""
    runs = [(count, layer) for count, layer in model.stacks[0].runs if layer.block]
    dense = [(count, layer) for count, layer in runs if not _chooses(layer)]
    sparse = [(count, layer) for count, layer in runs if _chooses(layer)]
    attends = [core for _, layer in runs for op in layer.operations if (core := op.attends()) is not None]
    if len(attends) != len(runs) or any(core.window is not None or core.chunk is not None for core in attends):
        return None
    widths = [_width(layer) for _, layer in dense]
    if len(set(widths)) > 1 or not all(widths) or len(runs) > 2:
        return None
    ffn, gated = (widths and widths[0]) or (None, True)
    first = runs[0][1].operations
    dims: Dimensions = {
        "layers": model.depth,
        "hidden": model.hidden,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "vocab": model.vocabulary,
        "tied": model.tied,
        "ffn": ffn,
        "gated": gated,
    }
    if sparse:
        dims["experts"] = _experts(sparse[0][1], sum(count for count, _ in dense))
    return dims | _latent(first, model.heads, model.hidden)


def _chooses(layer: Layer) -> int:
    """Return among how many experts a layer chooses; 0: none."""
    return max((op.chooses_among() for op in layer.operations), default=0)


def _width(layer: Layer) -> tuple[int, bool] | None:
    """Return the width of a dense layer's MLP, and whether it is gated: a product of its own, or a doubled one; None if
    no linear layer of it has the role of the last one."""
    core = next((n for n, op in enumerate(layer.operations) if op.attends() is not None), 0)
    linears = [one for op in layer.operations[core:] if (one := op.linear()) is not None]
    place = next((n for n, one in enumerate(linears) if one.role == DOWN), None)
    if place is None:
        return None
    down = linears[place]
    outputs = sum(one.d_out for one in linears[1:place])  # the first is attention's own
    return int(down.d_in), bool(outputs == 2 * down.d_in)


def _experts(layer: Layer, dense: int) -> Dimensions:
    """Return how many experts there are, of how many a token uses, and their width and that of shared ones."""
    weights = [one for op in layer.operations for one in op.weights() if one.shard == EXPERT and one.name == "down"]
    shared = [one for op in layer.operations if op.role == SHARED_EXPERT and (one := op.linear()) is not None]
    return {
        "count": weights[0].copies,
        "top_k": weights[0].used,
        "ffn": weights[0].shape[-1],
        "shared_ffn": int(shared[-1].d_in) if shared else 0,
        "dense_layers": dense,
    }


def _latent(operations: Sequence[Operation], heads: int, hidden: int) -> Dimensions:
    """Return the ranks and head sizes of latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1)."""
    linears = [one for op in operations if (one := op.linear()) is not None]
    place = next((n for n, one in enumerate(linears) if one.role == KV_LATENT), None)
    if place is None:
        return {}
    query = next(one for one in linears if one.role == QUERY)
    down, up, out = linears[place : place + 3]
    rope = down.d_out - up.d_in
    return {
        "mla": {
            "q_lora_rank": int(query.d_in) if query.d_in != hidden else 0,
            "kv_lora_rank": int(up.d_in),
            "qk_rope_head_dim": int(rope),
            "qk_nope_head_dim": int(query.d_out // heads - rope),
            "v_head_dim": int(out.d_in // heads),
        }
    }
