"""Common layouts compared with the best: whether they fit, and how much slower they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from napkin.options.layout import BOUNDED
from napkin.planning.fitting_layouts import only_layout
from napkin.planning.grid import Request
from napkin.planning.layouts import LayoutQuestion, Scored, scored
from napkin.planning.obstacles import largest_bucket, obstacle
from napkin.planning.verdicts import FITS, NOT, evaluate
from napkin.record import record, replace
from napkin.training.frameworks import ZERO_3
from napkin.training.recomputation import recompute
from napkin.units import human

NODE = "node"
"""Placeholder for as many tensor-parallel ranks as a node has GPUs."""
USUAL: tuple[tuple[str, Mapping[str, int | str]], ...] = (
    ("data parallel only", {"zero": 0}),
    ("ZeRO-1", {"zero": 1}),
    ("{sharding} (ZeRO-3)", {"zero": 3}),
    ("{sharding}, full recomputation", {"zero": 3, "recompute": "full"}),
    ("tensor parallel in the node, ZeRO-1", {"tp": NODE, "zero": 1}),
    ("tensor parallel in the node, {sharding}", {"tp": NODE, "zero": 3}),
)
"""Layouts that people try first, each with micro-batch 1 unless another is given. {sharding}: what the framework calls
ZeRO-3."""


@record
class UsualChoice:
    """A common choice: what it recomputes, the verdict on its memory ("": not a valid layout), its bytes and seconds if
    known, and the reason."""

    name: str
    recompute: str
    fit: str
    why: str
    used: float | None = None
    seconds: float | None = None


def usual_choices(question: LayoutQuestion, request: Request, winner: Scored) -> Iterator[UsualChoice]:
    """Yield whether each common choice fits, and how much slower it is than the winner. Each uses the request's first
    recomputation (none by default)."""
    first = request.recomputes[0]
    micro = {name: size for name, size in request.only.items() if name == "micro-batch"}
    sharding = request.setup_with(3).framework.sharding
    for usual, choice in USUAL:
        name = usual.format(sharding=sharding).replace(f"{ZERO_3} ({ZERO_3})", ZERO_3)
        wanted = {**{name: 1 for name in BOUNDED if name != "zero"}, **micro, **choice}
        again = recompute(str(wanted.pop("recompute", first.word)))
        if "recompute" in choice and (again == first or again not in request.recomputes):
            continue
        only = {key: request.node if value == NODE else int(value) for key, value in wanted.items()}
        only["sp"] = int(only["tp"] > 1)
        layout = only_layout(replace(request, only=only, below={}, recomputes=(again,)))
        if layout is None:
            yield UsualChoice(name, again.word, "", f"is not a valid layout: {obstacle(request, only)}")
            continue
        capacity = question.hardware.capacity
        found = evaluate(request.model, question.setup(layout), capacity)
        used = float(found.reported.used.value)
        if found.verdict == NOT:
            needs = f"needs {human(used, 'byte')}, {human(used - capacity, 'byte')} too much"
            why = f"does not fit: {needs}{largest_bucket(request, layout)}"
            yield UsualChoice(name, again.word, NOT, why, used)
            continue
        one = scored(question, layout)
        times = f"{one.token / winner.token:.2f} × the best's time per token"
        close = "" if found.verdict == FITS else f" ({human(used, 'byte')} of {human(capacity, 'byte')})"
        why = f"{found.verdict}{close}, {times}"
        yield UsualChoice(name, again.word, found.verdict, why, used, one.time.value)
