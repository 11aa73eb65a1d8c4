"""The figures of a profile by path, and which of them differ between two profiles beyond noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from napkin.inputs.profile import Profile
from napkin.inputs.profile_cases import OK, Case

# Run to run on one GPU figures differ by under 1 %, at worst 2.2 %; between the GPUs of one node by 2.7 to 4.9 %
# (ml-engineering, compute/accelerator/README.md: five runs of one H200, and the nodes that it measured).
RUN_TO_RUN = 0.022
GPU_TO_GPU = 0.049

SAME, OTHER_GPU, DIFFERENT = "within noise", "as two GPUs of one kind differ", "differs"


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """One headline figure, and the spread of the blocks that it comes from."""

    path: str
    value: float
    unit: str
    p10: float
    p90: float
    source: str  # the case's id


def figures(profile: Profile) -> dict[str, ComparedFigure]:
    """Return the headline figures by their path in the answer."""
    found: dict[str, ComparedFigure] = {}

    def put(path: str, value: float | None, unit: str, case: Case | None) -> None:
        if value is None:
            return
        ratio = (1.0, 1.0)
        if case is not None and case.value is not None:
            ratio = (case.value.p10 / case.value.median, case.value.p90 / case.value.median)
        source = "" if case is None else case.id
        found[path] = ComparedFigure(path, value, unit, value * ratio[0], value * ratio[1], source)

    for dtype, row in profile.summary["matmul"].items():
        for kind in ("sustained", "burst", "anchor"):
            wanted = {"kind": kind, "dtype": dtype, **(row[f"{kind}_shape"] or {})}
            put(f"matmul/{dtype}/{kind}", row[kind], "FLOP/s", next(iter(_cases(profile, "matmul", wanted)), None))
        if row["model"] is not None:
            put(f"matmul/{dtype}/model", row["model"]["flops_weighted"], "FLOP/s", None)
            put(f"matmul/{dtype}/model_attention", row["model"]["attention"], "FLOP/s", None)
    for case in profile.cases:
        kind = str(case.params.get("kind"))
        if case.status == OK and case.value is not None and kind.startswith("shape_"):
            p = case.params
            path = f"matmul/{p['dtype']}/{p['m']}x{p['k']}x{p['n']}/{kind.removeprefix('shape_')}"
            put(path, case.value.median, "FLOP/s", case)
    for group in ("memory", "host"):
        for name, rate in profile.summary[group].items():
            sizes = _cases(profile, group, {"operation": name})
            largest = max(sizes, key=lambda c: int(c.params["bytes"] or 0), default=None)
            put(f"{group}/{name}", rate, "byte/s", largest)
    for variant, row in profile.summary["train"].items():
        put(f"train/{variant}/tokens_per_second", row["tokens_per_second"], "token/s", None)
        put(f"train/{variant}/step_time", row["step_s"], "second", None)
        put(f"train/{variant}/allocated", row["allocated"], "byte", None)
    for name, row in ((profile.summary["collectives"] or {}).get("operations") or {}).items():
        put(f"collective/{name}/busbw", row["busbw"], "byte/s", None)
        put(f"collective/{name}/alpha", row["alpha_s"], "second", None)
    return found


def _cases(profile: Profile, group: str, wanted: Mapping[str, Any]) -> list[Case]:
    return [c for c in profile.cases if c.status == OK and c.group == group and wanted.items() <= c.params.items()]


def compared(a: Profile, b: Profile) -> list[dict[str, Any]]:
    """Return one row for each figure that both have: both values, the change, and whether it is beyond noise.

    A difference counts where the blocks' p10–p90 bands lie apart and it exceeds what repeated runs differ by.
    """
    same_device = a.device.uuid_hash is not None and a.device.uuid_hash == b.device.uuid_hash
    left, right = figures(a), figures(b)
    rows = []
    for path, one in left.items():
        other = right.get(path)
        if other is None:
            continue
        change = other.value / one.value - 1
        apart = one.p90 < other.p10 or other.p90 < one.p10
        if not apart or abs(change) <= RUN_TO_RUN:
            word = SAME
        elif not same_device and a.device.name == b.device.name and abs(change) <= GPU_TO_GPU:
            word = OTHER_GPU
        else:
            word = DIFFERENT
        rows.append({"figure": path, "a": one.value, "b": other.value, "unit": one.unit, "change": change, "is": word})
    return rows
