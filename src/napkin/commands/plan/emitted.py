"""The recommended layout of `napkin plan` as a fragment of a framework's own launch file (--emit)."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.errors import NapkinError
from napkin.inputs.launch.written import written
from napkin.render.answer import Answer
from napkin.render.screen import Screen


def record(inputs: Inputs, name: str, found: Answer) -> None:
    """Put the recommended layout into the answer as a launch file. Raises NapkinError (2) if the format cannot express
    it."""
    row = next((one for one in found.rows or () if one.get("recommended")), None)
    if row is None or "tp" not in row:
        raise NapkinError("--emit writes one layout, and none is recommended here", "one number of --gpus")
    layout = {key: int(str(row[key])) for key in ("tp", "pp", "dp", "cp", "ep", "vp", "zero")}
    micro, total = int(str(row["micro_batch"])), int(str(row["global_batch"]))
    options = {
        **layout,
        "sp": bool(row.get("sp")),
        "gpus": layout["tp"] * layout["pp"] * layout["dp"] * layout["cp"],
        "micro-batch": micro,
        "global-batch": total,
        "grad-accum": max(total // (micro * layout["dp"]), 1),
        "seq": inputs.integer("seq"),
        "recompute": str(row["recompute"]),
        "precision": inputs.text("precision").strip().lower(),
        "model": inputs.text("model"),
    }
    text = written(name, options)
    found.extra["emitted"] = text
    found.screen = Screen((), verbatim=text)
