"""Screen of `memory --inference`: whether weights and KV cache fit, for how many sequences, how fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.commands.screens.setup import driver_of, run_on
from napkin.inputs.hardware import Hardware
from napkin.planning.served import ServedMemory, Serving
from napkin.planning.verdicts import FITS
from napkin.render.answer import Answer, Row, number_in
from napkin.render.figures import interval, size, size_of
from napkin.render.screen import Bar, Column, Next, Screen, Table, quantities
from napkin.units import human

POWERS, ENOUGH = tuple(2**power for power in range(1, 11)), 0.95
"""Tensor-parallel degrees to try, and the largest share of a GPU that may be used in a rough estimate."""
SMALLER = ("fp8", "nf4", "nvfp4")
"""Formats of weights to try next if they do not fit, the widest first."""


def screen(
    serving: Serving, hardware: Hardware | None, found: ServedMemory, answer: Answer, formats: Sequence[Row]
) -> Screen:
    """Return the screen of a served model; formats: weights and cache in other number formats."""
    source = f" (and {serving.source:,} read by the encoder)" if serving.source else ""
    where = run_on(serving.model.name, serving.ranks, "" if hardware is None else hardware.name)
    question = [f"serving {where}:", f"tp {serving.ranks}"] if serving.ranks > 1 else [f"serving {where}"]
    question += [f"{serving.sequences:,} × {serving.seq:,} tokens{source}", f"{serving.weights.name} weights"]
    return Screen(
        [*question, f"{serving.cache_name} KV cache"],
        _headline(found, answer),
        answer.verdict or "",
        quantities(_rows(serving, found, answer, driver_of(hardware)[0])),
        (),
        _formats(formats),
        next=_next(serving, hardware, answer, formats),
    )


def _headline(found: ServedMemory, answer: Answer) -> list[str]:
    """Return the verdict, the used memory and the capacity, and the interval."""
    terms = {term.name: term.value for term in answer.terms}
    ends = interval(answer.intervals["memory/total"], found.total.value, "byte")
    if "memory/capacity" not in terms:
        return [f"{size(found.total.value)} per GPU", ends]
    return [(answer.verdict or "").upper(), f"{size_of(found.total.value, terms['memory/capacity'])} per GPU", ends]


def _rows(serving: Serving, found: ServedMemory, answer: Answer, context: str) -> list[tuple[str | Bar, ...]]:
    """Return the used and free memory of each GPU, the sequences it can serve, and their speed."""
    terms = answer.by_path()
    total = float(found.total.value)
    capacity = float(terms["memory/capacity"].value) if "memory/capacity" in terms else 0.0
    whole = max(total, capacity)
    split = f"; 1/{serving.ranks:,} per GPU" if serving.ranks > 1 else ""
    held = (
        ("parameters", found.weights, f"{serving.weights.name}{split}"),
        ("KV cache", found.cache, f"{serving.cache_name} keys and values"),
        (context, found.context, ""),
    )
    rows: list[tuple[str | Bar, ...]] = [
        (name, size(term.value, whole), Bar(float(term.value) / whole), says) for name, term, says in held if term.value
    ]
    if capacity > total:
        rows.append(("free", size(capacity - total, whole), Bar((capacity - total) / whole, 0, "·"), ""))
    elif capacity:
        rows.append(("missing", size(total - capacity, whole), "", "more than the GPU has"))
    many, long = f"sequences of {serving.seq:,} tokens", f"tokens at batch {serving.sequences:,}"
    rows += [
        (name, human(terms[path].value, "1"), "", says)
        for name, path, says in (("max batch", "max/batch", many), ("max context", "max/seq", long))
        if path in terms and terms[path].value
    ]
    if "time/per_token" in terms and answer.verdict == FITS:
        pace = human(terms["tokens_per_second"].value, "1", 3)
        rows.append(
            ("decode", human(terms["time/per_token"].value, "second", 3), "", f"per token; {pace} token/s, at best")
        )
    return rows


def _formats(rows: Sequence[Row]) -> Table:
    """Return the bytes of weights and cache in other number formats, and what fits with them."""
    heads = {"dtype": "weights in", "weights": "weights", "max_batch": "max batch", "max_seq": "max context"}
    names = list(rows[0])
    columns = [
        Column(
            heads.get(name, f"{name.partition('_')[2]} KV cache"),
            name != "dtype",
            1 if name in ("dtype", "weights") else 2,
        )
        for name in names
    ]
    largest = {name: max(number_in(row, name) for row in rows) for name in names if name != "dtype"}

    def cell(name: str, row: Row) -> str:
        if name == "dtype":
            return str(row[name])
        value = number_in(row, name)
        return f"{value:,.0f}" if name.startswith("max") else size(value, largest[name])

    return Table(columns, [[cell(name, row) for name in names] for row in rows])


def _next(serving: Serving, hardware: Hardware | None, answer: Answer, formats: Sequence[Row]) -> Next:
    """Return the next command: the largest batch that surely fits, a format in which it fits, more GPUs, or an
    accelerator."""
    terms: Mapping[str, float] = {term.name: term.value for term in answer.terms}
    if hardware is None:
        return Next({"hardware": "h100"})
    if answer.verdict == FITS and "max/batch" not in terms:
        return Next({"inference": None, "dtype": None, "cache-dtype": None, "batch": None})
    room = terms["memory/capacity"] - answer.intervals["memory/total"][1]
    surely = serving.sequences + int(room * serving.sequences // max(terms["memory/kv_cache"], 1))
    if answer.verdict == FITS and min(surely, terms["max/batch"]) > serving.sequences:
        return Next({"batch": str(min(surely, int(terms["max/batch"])))})
    for name in SMALLER:
        if any(row["dtype"] == name and number_in(row, "max_batch") >= serving.sequences for row in formats):
            return Next({"dtype": name})
    ranks, held = serving.ranks, float(terms["memory/total"])
    enough = (n for n in POWERS if n > ranks and held * ranks / n < ENOUGH * float(hardware.capacity))
    more = next((n for n in enough if not serving.model.heads % n), None)
    return Next({"gpus": str(more), "tp": None}) if more else Next({"dtype": SMALLER[-1], "cache-dtype": "fp8"})
