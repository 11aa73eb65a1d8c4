"""Screen of `max-params`: the largest number of parameters, the bytes of each, and the largest shape."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.errors import UNDECIDED
from napkin.planning.verdicts import FITS
from napkin.render.answer import Answer
from napkin.render.figures import amount, size_of
from napkin.render.screen import Next, Screen, quantities
from napkin.term import Term
from napkin.units import human

SERVED = "a ceiling: nothing is left for the KV cache"
TRAINED = "a ceiling: states perfectly sharded, no activations"
PARTS = {"parameters": "weights", "gradients": "gradients", "master": "master weights", "optimizer": "optimizer states"}


def screen(
    answer: Answer,
    machine: str,
    weights: str | None,
    like: str | None,
    laid_out: bool,
    recomputed: bool = False,
    part: Sequence[str] = (),
) -> Screen:
    """Return the screen; weights: the number format of inference, like: the model whose proportions the shape keeps;
    laid_out: whether the shape must fit under a layout; recomputed: whether it recomputes activations; part: the
    trained part, if not all of it."""
    terms = answer.by_path()
    if "params/max" not in terms:
        return _of_trained_part(answer, machine, str(like), recomputed, part)
    each, capacity = terms["bytes_per_param"].value, terms["memory/capacity"].value
    most = human(terms["params/max"].value, "param")
    head = [most, f"{human(capacity, 'byte').partition(' (')[0]} at {each:g} {'byte' if each == 1 else 'bytes'} each"]
    if "fits/params" in terms:
        head = [*_fitting(answer), f"{amount(terms['params/max'].value)} at most, states only"]
    elif laid_out:
        head = ["nothing fits under this layout", f"{amount(terms['params/max'].value)} at most, states only"]
    asked = f"{weights} weights, to serve" if weights else "training"
    return Screen(
        [f"the largest model on {machine}", asked, *([f"shaped like {like}"] if like else [])],
        head,
        "",
        quantities(_formats(terms) if weights else _rows(answer), right=False),
        [SERVED if weights else TRAINED],
        next=_next(weights, like, laid_out, recomputed),
    )


def _fitting(answer: Answer) -> list[str]:
    """Return in words what fits: the largest by the estimate, and the largest that surely does, if that is another."""
    found = human(answer.by_path()["fits/params"].value, "param")
    if answer.verdict == FITS:
        return [f"{found} fit"]
    surely = answer.intervals["fits/params"][0]
    return [f"{found} may fit", f"{amount(surely)} surely" if surely else "none surely"]


def _of_trained_part(answer: Answer, machine: str, like: str, recomputed: bool, part: Sequence[str]) -> Screen:
    """Return the screen of a model of which a part is trained: what fits under the layout, and its shape."""
    found = "fits/params" in answer.by_path()
    return Screen(
        [f"the largest model on {machine}", *part, f"shaped like {like}"],
        _fitting(answer) if found else ["nothing fits under this layout"],
        "",
        quantities(_rows(answer), right=False),
        next=_next(None, like, True, recomputed),
    )


def _formats(terms: dict[str, Term]) -> list[tuple[str, str]]:
    """Return the number of parameters that fit in each number format."""
    return [
        (path.rpartition("/")[2], human(term.value, "param"))
        for path, term in terms.items()
        if path.startswith("params/max/")
    ]


def _rows(answer: Answer) -> list[tuple[str, str, str]]:
    """Return the shapes, what the largest one takes, and the bytes of each parameter."""
    terms, rows = answer.by_path(), []
    for path, name in (("fits", "may fit" if answer.verdict == UNDECIDED else "fits"), ("like", "ceiling")):
        if f"{path}/layers" in terms:
            rows.append((name, human(terms[f"{path}/params"].value, "param"), _shape(terms, path)))
    if "fits/memory" in terms:
        used, capacity = terms["fits/memory"].value, terms["fits/capacity"].value
        rows.append(("memory per GPU", size_of(used, capacity), answer.verdict or ""))
    for part, name in PARTS.items():
        term = terms.get(f"bytes_per_param/{part}")
        if term is not None and term.value:
            rows.append((name, f"{term.value:g} bytes", "each parameter"))
    return rows


def _shape(terms: dict[str, Term], path: str) -> str:
    """Return a shape in words."""
    layers, hidden, heads, kv = (terms[f"{path}/{n}"].value for n in ("layers", "hidden_size", "heads", "kv_heads"))
    shared = f" ({kv:,} KV)" if kv != heads else ""
    return f"{layers:,} layers of {hidden:,}; {heads:,} heads{shared}"


def _next(weights: str | None, like: str | None, laid_out: bool, recomputed: bool) -> Next:
    """Return the next command: the largest shape, one that fits with its activations, with recomputation, or
    training."""
    if weights:
        return Next({"inference": None, "dtype": None})
    if like is None:
        return Next({"like": "llama3", "zero": "3", "bytes-per-param": None})
    if not laid_out:
        return Next({"zero": "3"})
    return Next({"explain": True} if recomputed else {"recompute": "full"})
