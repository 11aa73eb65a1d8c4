"""Arrangements of two blocks in a layer: where norms and residual additions are."""

from __future__ import annotations

from collections.abc import Callable

from napkin.architectures.blocks import Block, NormStyle, Operations
from napkin.operations.pointwise import Add, Dropout, Scale

Arrangement = Callable[[int, NormStyle, Block, Block], Operations]
"""(width, norm, attention, feed-forward) → a layer's operations."""


def _scaled(operations: Operations, name: str, width: int, scale: bool) -> Operations:
    return (*operations, Scale(name, (operations[-1].name,), width)) if scale else operations


def pre_norm(
    width: int,
    norm: NormStyle,
    attend: Block,
    feed: Block,
    *,
    dropout: tuple[bool, bool] = (False, False),
    scale: bool = False,
    residual_after_norm: bool = False,
    weighted: bool = False,
) -> Operations:
    """Return y = x + attend(norm(x)); z = y + feed(norm(y)). `scale`: a constant multiplies each branch before its
    addition. `residual_after_norm`: the normalized tensor, not x, is what the branch is added to. `weighted`: a learned
    vector multiplies what the branch is added to."""
    first = _scaled(attend("attention_norm"), "attention_scaled", width, scale)
    second = _scaled(feed("mlp_norm"), "mlp_scaled", width, scale)
    base = ("attention_norm", "mlp_norm") if residual_after_norm else ("x", "attention_residual")
    weights: tuple[Operations, Operations] = ((), ())
    if weighted:
        names = ("attention_base", "mlp_base")
        weights = (
            (Scale(names[0], (base[0],), width, learned=True),),
            (Scale(names[1], (base[1],), width, learned=True),),
        )
        base = names
    return (
        norm("attention_norm", "x", width),
        *first,
        *weights[0],
        Add("attention_residual", (base[0], first[-1].name), width, dropout[0]),
        norm("mlp_norm", "attention_residual", width),
        *second,
        *weights[1],
        Add("mlp_residual", (base[1], second[-1].name), width, dropout[1]),
    )


def hyper_connected(
    width: int,
    norm: NormStyle,
    attend: Block,
    feed: Block,
    *,
    streams: int,
    mixes: bool = True,
    iterations: int = 0,
    behind: bool = False,
) -> Operations:
    """Each branch reads a sum of the residual streams and writes to all (fields as in ReadStreams)."""
    from napkin.operations.hyper_connections import ReadStreams, WriteStreams

    operations: Operations = ()
    last = "x"
    for branch, name in ((attend, "attention"), (feed, "mlp")):
        read = f"{name}_read"
        made = branch(f"{name}_norm")
        operations += (
            ReadStreams(read, (last,), width, streams, mixes, iterations, behind=behind),
            norm(f"{name}_norm", read, width),
            *made,
            WriteStreams(f"{name}_residual", (read, made[-1].name, last), width, streams, mixes),
        )
        last = f"{name}_residual"
    return operations


def sandwich_norm(width: int, norm: NormStyle, attend: Block, feed: Block, *, scale: bool = False) -> Operations:
    """Return y = x + norm(attend(norm(x))); z = y + norm(feed(norm(y))): four norms a layer. `scale` as in pre_norm."""
    first, second = attend("attention_norm"), feed("mlp_norm")
    first += (norm("attention_post_norm", first[-1].name, width),)
    second += (norm("mlp_post_norm", second[-1].name, width),)
    first, second = _scaled(first, "attention_scaled", width, scale), _scaled(second, "mlp_scaled", width, scale)
    return (
        norm("attention_norm", "x", width),
        *first,
        Add("attention_residual", ("x", first[-1].name), width),
        norm("mlp_norm", "attention_residual", width),
        *second,
        Add("mlp_residual", ("attention_residual", second[-1].name), width),
    )


def output_norm(width: int, norm: NormStyle, attend: Block, feed: Block) -> Operations:
    """Return y = x + norm(attend(x)); z = y + norm(feed(y)): norms only on the branches' outputs."""
    first, second = attend("x"), feed("attention_residual")
    return (
        *first,
        norm("attention_post_norm", first[-1].name, width),
        Add("attention_residual", ("x", "attention_post_norm"), width),
        *second,
        norm("mlp_post_norm", second[-1].name, width),
        Add("mlp_residual", ("attention_residual", "mlp_post_norm"), width),
    )


def post_norm(
    width: int, norm: NormStyle, attend: Block, feed: Block, *, dropout: tuple[bool, bool] = (False, False)
) -> Operations:
    """Return y = norm(x + attend(x)); z = norm(y + feed(y)): the first Transformer."""
    first, second = attend("x"), feed("attention_norm")
    return (
        *first,
        Add("attention_residual", ("x", first[-1].name), width, dropout[0]),
        norm("attention_norm", "attention_residual", width),
        *second,
        Add("mlp_residual", ("attention_norm", second[-1].name), width, dropout[1]),
        norm("mlp_norm", "mlp_residual", width),
    )


def parallel(
    width: int,
    norm: NormStyle,
    attend: Block,
    feed: Block,
    *,
    norms: int = 1,
    dropout: tuple[bool, bool] = (False, False),
    dropout_sum: bool = False,
    in_turn: bool = False,
) -> Operations:
    """Return y = x + attend(norm(x)) + feed(norm(x)), with one norm for both branches or one each.
    `dropout`: on each branch; `dropout_sum`: once, on the sum of both; `in_turn`: x + attend is summed first."""
    mlp_source = "mlp_norm" if norms == 2 else "attention_norm"
    first, second = attend("attention_norm"), feed(mlp_source)
    if dropout[0]:
        first += (Dropout("attention_dropped", (first[-1].name,), width),)
    if dropout[1]:
        second += (Dropout("mlp_dropped", (second[-1].name,), width),)
    if norms == 2:  # each branch runs whole before the next
        second = (norm("mlp_norm", "x", width), *second)
    both = first[-1].name, second[-1].name
    sums = (("x", both[0]), ("branches", both[1])) if in_turn else (both, ("x", "branches"))
    return (
        norm("attention_norm", "x", width),
        *first,
        *second,
        Add("branches", sums[0], width),
        Add("residual", sums[1], width, dropout_sum),
    )
