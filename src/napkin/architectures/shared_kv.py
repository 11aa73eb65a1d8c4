"""Gemma 3n and Gemma 4: layers that share keys and values, and inputs of each layer's own.

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from napkin.architectures import reading
from napkin.architectures.attention_parts import Rope
from napkin.architectures.blocks import RMS_BARE, RMS_FP32, Operations
from napkin.architectures.reading import CHUNKED, FULL, WINDOWED
from napkin.autograd.tensors import Tensor
from napkin.inputs.model import Config
from napkin.operations.attention.core import AttentionCore
from napkin.operations.base import Operation
from napkin.operations.embedding import Embedding
from napkin.operations.implementations import HF, ROTARY, Running
from napkin.operations.linear import Matmul
from napkin.operations.pointwise import Activation, Add, Multiply, Scale
from napkin.operations.roles import COLUMN, KEY, LAYERS, QUERY, ROW, SHARED_TENSOR, VALUE
from napkin.operations.views import Share, Slice
from napkin.record import replace

NORM = RMS_FP32


OWN, LENDS, BORROWS = "own", "lends", "borrows"
"""Keys and values of a layer: its own; its own, which later layers read too; those of an earlier one."""


WORDS = {OWN: (), LENDS: ("lending",), BORROWS: ("borrowing",)}


INPUTS = "per_layer_inputs"


def kinds_of(config: Config, layers: int, period: int) -> Sequence[str]:
    """Return the attention of each layer: full in each `period`-th where config.json does not list it."""
    kinds = reading.layer_types(config, layers, lambda i: WINDOWED if (i + 1) % period else FULL)
    if CHUNKED in kinds:
        raise config.refuse("layer_types", "napkin does not know chunks in this class")
    return kinds


def sharing(config: Config, kinds: Sequence[str]) -> list[str]:
    """Read how layers have their keys and values: the last `num_kv_shared_layers` read those of the last layer of their
    kind before."""
    shared = config.integer("num_kv_shared_layers", least=0)
    if not shared:
        return [OWN] * len(kinds)
    first = len(kinds) - shared
    if first < 1 or set(kinds[:first]) != set(kinds):
        raise config.wrong(
            "num_kv_shared_layers",
            f"{shared} of {len(kinds)} layers leave no layer of each type to share keys and values from",
        )
    lenders = {kind: i for i, kind in enumerate(kinds[:first])}.values()
    return [LENDS if i in lenders else OWN if i < first else BORROWS for i in range(len(kinds))]


class SharedHeads(NamedTuple):
    """Sizes of a layer's attention. `one_product`: keys and values are the norms of one product."""

    width: int
    heads: int
    kv_heads: int
    head_dim: int
    bias: bool
    window: int | None
    one_product: bool = False


def attention(source: str, size: SharedHeads, mode: str, kind: str) -> Operations:
    """Return grouped-query attention with norms of query, key and value, rotary query and key; its keys and values may
    be an earlier layer's."""
    q_width, kv_width = size.heads * size.head_dim, size.kv_heads * size.head_dim
    rope = Rope(size.head_dim)
    operations: list[Operation] = [
        Matmul("q", (source,), size.width, q_width, size.bias, COLUMN, role=QUERY),
        NORM("q_norm", "q", size.head_dim, size.heads),
        rope("q_rope", "q_norm", size.heads, size.head_dim),
    ]
    key, value = f"{SHARED_TENSOR}{kind}_keys", f"{SHARED_TENSOR}{kind}_values"
    if mode != BORROWS:
        key, value = "k_rope", "v_norm"
        operations.append(Matmul("k", (source,), size.width, kv_width, size.bias, COLUMN, role=KEY))
        if not size.one_product:
            operations.append(Matmul("v", (source,), size.width, kv_width, size.bias, COLUMN, role=VALUE))
        operations += [
            NORM("k_norm", "k", size.head_dim, size.kv_heads),
            rope("k_rope", "k_norm", size.kv_heads, size.head_dim),
            RMS_BARE("v_norm", "k" if size.one_product else "v", size.head_dim, size.kv_heads),
        ]
    if mode == LENDS:
        operations += [Share(f"{kind}_keys", (key,)), Share(f"{kind}_values", (value,))]
    core = AttentionCore(
        "attention",
        ("q_rope", key, value),
        size.heads,
        size.kv_heads,
        size.head_dim,
        size.head_dim,
        window=size.window,
    )
    return (*operations, core, Matmul("o", ("attention",), q_width, size.width, size.bias, ROW))


def layers_inputs(rows: int, hidden: int, layers: int, each: int) -> Operations:
    """Return `each` elements per token for every layer: looked up in an embedding, plus a projection of the token's
    embedding."""
    wide = layers * each
    return (
        Embedding("per_layer_embedding", (), rows, wide, role=LAYERS),
        Scale("per_layer_embedding_scaled", ("per_layer_embedding",), wide),
        Matmul("per_layer_projection", ("embedding_scaled",), hidden, wide, module="per_layer_model_projection"),
        Scale("per_layer_projection_scaled", ("per_layer_projection",), wide),
        NORM("per_layer_projection_norm", "per_layer_projection_scaled", each, layers),
        Add("per_layer_sum", ("per_layer_projection_norm", "per_layer_embedding_scaled"), wide),
        Scale("per_layer_sum_scaled", ("per_layer_sum",), wide),
        Share(INPUTS, ("per_layer_sum_scaled",)),
    )


def layer_input(source: str, hidden: int, each: int, function: str) -> Operations:
    """Return norm((activation(source·G) ⊙ the layer's input)·P)."""
    return (
        Matmul("per_layer_gate", (source,), hidden, each),
        Activation("per_layer_activation", ("per_layer_gate",), each, function),
        Slice("per_layer_input", (SHARED_TENSOR + INPUTS,), each),
        Multiply("per_layer_gated", ("per_layer_activation", "per_layer_input"), each),
        Matmul("per_layer_projection", ("per_layer_gated",), each, hidden),
        NORM("per_layer_norm", "per_layer_projection", hidden),
    )


def capped(config: Config) -> bool:
    """Read whether the logits have a soft cap."""
    return config.real("final_logit_softcapping", required=False) is not None


def _to_power(run: Running, variance: Tensor) -> Tensor:
    """Return a norm's reciprocal deviation as a power of the variance, which is kept."""
    return run.tape.power(variance)


IMPLEMENTATION = replace(
    HF,
    by_kind=True,
    router="scores",
    linear_router=True,
    rstd=_to_power,
    fp32_norm_weight=True,
    buffers=(ROTARY, ("scale", ""), ("scalar", "")),
)
