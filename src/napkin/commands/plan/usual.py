"""What people try first, beside the best: whether it fits, and by how much it loses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from napkin.commands.plan.exact import Scored, scored
from napkin.commands.plan.obstacles import largest_bucket, obstacle
from napkin.commands.plan.question import Planner
from napkin.commands.plan.table import Numbers
from napkin.record import replace
from napkin.training.recomputation import recompute
from napkin.units import human

if TYPE_CHECKING:
    from napkin.planning.search import Request

USUAL: tuple[tuple[str, Numbers], ...] = (
    ("data parallel alone", {"zero": 0}),
    ("ZeRO-1", {"zero": 1}),
    ("FSDP (ZeRO-3)", {"zero": 3}),
    ("FSDP, full recomputation", {"zero": 3, "recompute": "full"}),
    ("tensor parallel in the node, ZeRO-1", {"tp": "node", "zero": 1}),
    ("tensor parallel in the node, FSDP", {"tp": "node", "zero": 3}),
)
"""What people try first; each with a micro-batch of one."""


def usual_choices(planner: Planner, request: Request, best: Scored) -> Iterator[dict[str, Any]]:
    """Whether the usual choices fit, and by how much they lose."""
    for name, choice_ in USUAL:
        wanted = {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "vp": 1, "micro-batch": 1, **choice_}
        again = recompute(str(wanted.pop("recompute", "none")))
        only = {key: request.node if value == "node" else int(value) for key, value in wanted.items()}
        only["sp"] = int(only["tp"] > 1)
        found = planner.find(replace(request, only=only, below={}, recomputes=(again,)))
        if found.layouts == 0:
            yield {"name": name, "fits": None, "why": f"is no layout here: {obstacle(request, only)}"}
        elif not len(found):
            over = found.least_used - planner.hardware.capacity
            yield {
                "name": name,
                "fits": False,
                "memory/total": found.least_used,
                "why": f"does not fit: needs {human(found.least_used, 'byte')}, {human(over, 'byte')} too much"
                f"{largest_bucket(request, found)}",
            }
        else:
            one = scored(planner, found.layout(found.ranked(1)[0]))
            yield {
                "name": name,
                "fits": True,
                "memory/total": one.used,
                "step/time": one.time.value,
                "why": f"fits, {one.token / best.token:.2f} × the best's time per token",
            }
