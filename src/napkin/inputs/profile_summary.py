"""The summary of a profile, which people and the calculator read: a function of its cases only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from napkin.inputs.profile_cases import OK, Case, Json, Peak

# --- collectives: the arithmetic of their figures ------------------------------------------------------------------

_ROUNDS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}


def bus_factor(operation: str, ranks: int) -> float:
    """Return the bytes that each rank's link carries per byte of the operation (nccl-tests, doc/PERFORMANCE.md).

    all_reduce 2(n−1)/n; all_gather, reduce_scatter and all_to_all (n−1)/n; send_recv 1.
    """
    return 1.0 if operation == "send_recv" else _ROUNDS[operation] * (ranks - 1) / ranks


@dataclass(frozen=True, slots=True)
class LatencyFit:
    """Latency α in seconds and bus bandwidth in byte/s of a collective, and how far the points lie from them."""

    alpha_s: float
    busbw: float
    median_error: float
    worst_error: float


def alpha_beta(points: Sequence[tuple[float, float]], factor: float) -> LatencyFit | None:
    """Fit t = α + S·factor/B to (bytes, seconds) by least squares of relative errors (weights 1/t²).

    Without weights the largest sizes dominate and α can become negative. None if the points do not determine the fit.
    """
    if len({size for size, _ in points}) < 2 or factor == 0:
        return None
    weighted = [(1 / t**2, size * factor, t) for size, t in points]
    a = sum(w for w, _, _ in weighted)
    b = sum(w * x for w, x, _ in weighted)
    c = sum(w * x * x for w, x, _ in weighted)
    d = sum(w * t for w, _, t in weighted)
    e = sum(w * x * t for w, x, t in weighted)
    determinant = a * c - b * b
    slope = (a * e - b * d) / determinant
    if slope <= 0:
        return None
    alpha = (d * c - e * b) / determinant
    errors = sorted(abs((alpha + x * slope) / t - 1) for _, x, t in weighted)
    middle = (errors[(len(errors) - 1) // 2] + errors[len(errors) // 2]) / 2
    return LatencyFit(alpha, 1 / slope, middle, errors[-1])


# --- the summary ---------------------------------------------------------------------------------------------------


def summarize(cases: Sequence[Case], peaks: Mapping[str, Peak]) -> Json:
    """Return the figures that people and the calculator look up, from the cases only."""
    good = [case for case in cases if case.status == OK]
    return {
        "matmul": _matmul(good, peaks),
        "memory": _largest_size(good, "memory", ("copy", "write", "read", "triad")),
        "host": _largest_size(
            good, "host", ("h2d_pinned", "d2h_pinned", "both_pinned", "h2d_pageable", "d2h_pageable")
        ),
        "train": _train(good, peaks),
        "collectives": _collectives(good),
    }


def _median(case: Case) -> float:
    assert case.value is not None
    return case.value.median


def _shape(case: Case) -> Json:
    return {name: case.params[name] for name in ("m", "k", "n")}


def _matmul(cases: Sequence[Case], peaks: Mapping[str, Peak]) -> Json:
    rows: Json = {}
    for dtype in dict.fromkeys(str(c.params["dtype"]) for c in cases if c.group == "matmul"):
        mine = [c for c in cases if c.group == "matmul" and c.params["dtype"] == dtype and c.value is not None]
        row: Json = {"unit": "FLOP/s"}
        for kind in ("sustained", "burst", "anchor"):
            best = max((c for c in mine if c.params["kind"] == kind), key=_median, default=None)
            row[kind] = None if best is None else _median(best)
            row[f"{kind}_shape"] = None if best is None else _shape(best)
        peak = peaks.get(dtype)
        row["of_peak"] = None if peak is None or row["sustained"] is None else row["sustained"] / peak.dense_flops
        row["model"] = _model_shapes([c for c in mine if c.params["kind"] in ("model", "attention")])
        rows[dtype] = row
    return rows


def _model_shapes(cases: Sequence[Case]) -> Json | None:
    """Return Σ FLOP / Σ time over the matmuls of the model measured last: its attainable rate, not that of the best
    shape.

    Attention's rate is separate: it counts the unmasked half of the scores where the kernels compute no more.
    """
    if not cases:
        return None
    last = _identity(cases[-1])
    mine = [c for c in cases if _identity(c) == last]
    row: Json = dict(zip(("name", "tp", "tokens"), last, strict=True))
    for name, kind in (("flops_weighted", "model"), ("attention", "attention")):
        flops = [float(c.figures["flops"] or 0) for c in mine if c.params["kind"] == kind]
        rates = [_median(c) for c in mine if c.params["kind"] == kind]
        seconds = sum(f / rate for f, rate in zip(flops, rates, strict=True))
        row[name] = sum(flops) / seconds if seconds else None
    return row


def _identity(case: Case) -> tuple[object, ...]:
    return tuple(case.params[name] for name in ("model", "tp", "tokens"))


def _largest_size(cases: Sequence[Case], group: str, names: Sequence[str]) -> Json:
    row: Json = {}
    for name in names:
        mine = [c for c in cases if c.group == group and c.params["operation"] == name and "suspect" not in c.flags]
        row[name] = _median(max(mine, key=lambda c: int(c.params["bytes"] or 0))) if mine else None
    return row


_STEP_FIGURES = ("allocated", "reserved", "used", "predicted_allocated", "predicted_step_s", "compile_s")


def _train(cases: Sequence[Case], peaks: Mapping[str, Peak]) -> Json:
    """Summarize the deepest model of each variant: tokens per second, MFU in each convention, memory."""
    rows: Json = {}
    for variant in dict.fromkeys(str(c.params["variant"]) for c in cases if c.group == "train"):
        mine = sorted(
            (c for c in cases if c.group == "train" and c.params["variant"] == variant),
            key=lambda c: int(c.params["layers"] or 0),
        )
        deepest = mine[-1]
        step, tokens = _median(deepest), float(deepest.params["tokens"] or 0)
        figures = deepest.figures
        peak = peaks.get(str(deepest.params["compute"]))
        row: Json = {
            "layers": deepest.params["layers"],
            "step_s": step,
            "tokens_per_second": tokens / step,
            "mfu": {},
            "hfu": {},
            **{name: figures.get(name) for name in _STEP_FIGURES},
            "per_layer": None,
        }
        for name, flops in figures.items():
            kind, _, convention = name.partition("/")
            if kind in ("mfu_flops", "hfu_flops") and flops is not None and peak is not None:
                row[kind[:3]][convention] = flops / step / peak.dense_flops
        if len(mine) > 1:
            shallow, layers = mine[0], int(deepest.params["layers"] or 0) - int(mine[0].params["layers"] or 0)
            below, above = shallow.figures.get("allocated"), figures.get("allocated")
            row["per_layer"] = {
                "time_s": (step - _median(shallow)) / layers,
                "bytes": None if below is None or above is None else (above - below) / layers,
            }
        rows[variant] = row
    return rows


def _collectives(cases: Sequence[Case]) -> Json | None:
    mine = [c for c in cases if c.group == "collectives"]
    if not mine:
        return None
    operations: Json = {}
    for name in dict.fromkeys(f"{c.params['operation']}{_where(c)}" for c in mine):
        rows = sorted(
            (c for c in mine if f"{c.params['operation']}{_where(c)}" == name),
            key=lambda c: int(c.params["bytes"] or 0),
        )
        ranks = int(rows[0].params["ranks"] or 0)
        factor = bus_factor(str(rows[0].params["operation"]), ranks)
        points = [(float(c.params["bytes"] or 0), _median(c)) for c in rows]
        fit = alpha_beta(points, factor)
        operations[name] = {
            "ranks": ranks,
            "points": [[size, seconds, size * factor / seconds] for size, seconds in points],
            "alpha_s": fit and fit.alpha_s,
            "busbw": fit and fit.busbw,
            "median_error": fit and fit.median_error,
            "worst_error": fit and fit.worst_error,
        }
    first = mine[0].params
    return {"world": first["world"], "backend": first["backend"], "operations": operations}


def _where(case: Case) -> str:
    """Summarize groups within a node and across nodes separately: all_reduce, all_reduce/intra, all_reduce/inter."""
    scope = case.params["scope"]
    return "" if scope == "all" else f"/{scope}"
