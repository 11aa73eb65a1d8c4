"""Common layouts compared with the best: whether they fit, and how much slower they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from napkin.options.layout import BOUNDED
from napkin.planning.fitting_layouts import only_layout
from napkin.planning.grid import Request
from napkin.planning.layout_memory import used_bytes
from napkin.planning.layouts import LayoutQuestion, Scored, scored
from napkin.planning.obstacles import largest_bucket, obstacle
from napkin.record import record, replace
from napkin.training.recomputation import recompute
from napkin.units import human

NODE = "node"
"""Placeholder for as many tensor-parallel ranks as a node has GPUs."""
USUAL: tuple[tuple[str, Mapping[str, int | str]], ...] = (
    ("data parallel only", {"zero": 0}),
    ("ZeRO-1", {"zero": 1}),
    ("FSDP (ZeRO-3)", {"zero": 3}),
    ("FSDP, full recomputation", {"zero": 3, "recompute": "full"}),
    ("tensor parallel in the node, ZeRO-1", {"tp": NODE, "zero": 1}),
    ("tensor parallel in the node, FSDP", {"tp": NODE, "zero": 3}),
)
"""Layouts that people try first, each with micro-batch 1."""


@record
class UsualChoice:
    """A common choice: whether it fits (None: not a valid layout), its bytes and seconds if known, and the reason."""

    name: str
    fits: bool | None
    why: str
    used: float | None = None
    seconds: float | None = None


def usual_choices(question: LayoutQuestion, request: Request, winner: Scored) -> Iterator[UsualChoice]:
    """Yield whether each common choice fits, and how much slower it is than the winner. Each uses the request's first
    recomputation (none by default)."""
    first = request.recomputes[0]
    for name, choice in USUAL:
        wanted = {**{name: 1 for name in BOUNDED if name != "zero"}, **choice}
        again = recompute(str(wanted.pop("recompute", first.word)))
        if "recompute" in choice and (again == first or again not in request.recomputes):
            continue
        only = {key: request.node if value == NODE else int(value) for key, value in wanted.items()}
        only["sp"] = int(only["tp"] > 1)
        layout = only_layout(replace(request, only=only, below={}, recomputes=(again,)))
        if layout is None:
            yield UsualChoice(name, None, f"is not a valid layout: {obstacle(request, only)}")
            continue
        used = float(used_bytes(request.model, question.setup(layout)))
        over = used - question.hardware.capacity
        if over > 0:
            why = (
                f"does not fit: needs {human(used, 'byte')}, {human(over, 'byte')} too much"
                f"{largest_bucket(request, layout)}"
            )
            yield UsualChoice(name, False, why, used)
        else:
            one = scored(question, layout)
            times = f"fits, {one.token / winner.token:.2f} × the best's time per token"
            yield UsualChoice(name, True, times, one.used, one.time.value)
