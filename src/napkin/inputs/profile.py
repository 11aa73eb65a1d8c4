"""A machine's profile: what `napkin bench` measured there, read, checked, and turned into rates.

A profile is one JSON file. Its `cases` are the measurements; its `summary` follows from them alone and is recomputed
on reading, so that a file edited by hand does not pass. Its figures are of the kind `measured`; a profile replaces a
datasheet's rates in time and roofline, never the dense peak that MFU divides by.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from napkin.errors import NapkinError
from napkin.inputs.hardware import peak_name
from napkin.inputs.load import parse_json, printable, read_text

SCHEMA = 1
KIND = "bench-profile"
OK, UNSUPPORTED, OOM, SKIPPED, FAILED, INTERRUPTED = "ok", "unsupported", "oom", "skipped", "failed", "interrupted"
STATUSES = (OK, UNSUPPORTED, OOM, SKIPPED, FAILED, INTERRUPTED)
FINAL = (OK, UNSUPPORTED)  # what `--resume` does not measure again
DEVICE_KINDS = ("cuda", "rocm", "mps", "cpu")
GPU_KINDS = ("cuda", "rocm")

Json = dict[str, Any]
STRICT = {"extra": "forbid", "allow_inf_nan": False}


@dataclass(frozen=True, slots=True)
class Value:
    """A figure with the spread of its repetitions. `calls` are those of one block."""

    __pydantic_config__ = STRICT

    unit: str
    median: float
    p10: float
    p90: float
    min: float
    max: float
    mean: float
    cv: float
    blocks: int
    calls: int
    outliers: int
    launch_bound: bool = False


@dataclass(frozen=True, slots=True)
class Sustained:
    __pydantic_config__ = STRICT

    seconds: float
    settle_s: float
    drift: float
    spread: float
    steady: bool


@dataclass(frozen=True, slots=True)
class Range:
    __pydantic_config__ = STRICT

    mean: float
    min: float
    max: float


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What the sensors said meanwhile; null where a sensor is missing. Shares are of the samples."""

    __pydantic_config__ = STRICT

    samples: int
    sm_clock_mhz: Range | None = None
    power_w: Range | None = None
    temperature_c: Range | None = None
    energy_j: float | None = None
    reasons: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement. `figures` are further numbers by name, in base units."""

    __pydantic_config__ = STRICT

    id: str
    group: str
    status: str
    params: dict[str, str | int | float | bool | None]
    reason: str | None = None
    value: Value | None = None
    figures: dict[str, float | None] = field(default_factory=dict)
    sustained: Sustained | None = None
    telemetry: Telemetry | None = None
    flags: list[str] = field(default_factory=list)
    started: str = ""
    elapsed_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ProfiledDevice:
    __pydantic_config__ = STRICT

    kind: str
    name: str
    memory_bytes: int
    hardware: str | None = None
    hardware_origin: str | None = None
    uuid_hash: str | None = None
    compute_capability: list[int] | None = None
    arch: str | None = None
    sm_count: int | None = None
    l2_bytes: int | None = None
    ecc: bool | None = None
    mig: bool | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    sm_clock_max_mhz: int | None = None
    pcie_gen: int | None = None
    pcie_width: int | None = None
    count_visible: int = 1


@dataclass(frozen=True, slots=True)
class Peak:
    __pydantic_config__ = STRICT

    dense_flops: float
    source: str


@dataclass(frozen=True, slots=True)
class OverRanks:
    """The same case on every GPU of the job; a synchronous job runs at the slowest."""

    __pydantic_config__ = STRICT

    unit: str
    min: float
    median: float
    max: float


@dataclass(frozen=True, slots=True)
class Profile:
    __pydantic_config__ = STRICT

    napkin: int
    kind: str
    schema: int
    complete: bool
    created: str
    elapsed_s: float
    command: list[str]
    mode: str
    seed: int
    data: str
    method: str
    device: ProfiledDevice
    software: dict[str, str | int | None]
    environment: dict[str, str]
    peaks: dict[str, Peak]
    cases: list[Case]
    summary: Json
    world: int = 1
    ranks: dict[str, OverRanks] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    # --- rates for the calculator --------------------------------------------------------------------------------

    def slowest(self, case_id: str, value: float) -> float:
        """The figure of the slowest GPU where every rank measured it, else the one that there is."""
        ranks = self.ranks.get(case_id)
        return ranks.min if ranks is not None else value

    def matmul_rate(self, dtype: str) -> tuple[float, str] | None:
        """FLOP/s and what it is: of the model's own shapes, else sustained at the best shape; None if not measured.
        fp8 stands for its format of weights and activations, mxfp8 too where it was not measured itself."""
        measured = self.summary["matmul"]
        if dtype not in measured:
            dtype = {"fp8": "fp8_e4m3", "mxfp8": "fp8_e4m3"}.get(dtype, dtype)
        row = measured.get(dtype)
        if row is None:
            return None
        if row["model"] is not None and row["model"]["flops_weighted"] is not None:
            return row["model"]["flops_weighted"], f"shapes of {row['model']['name']}, tp {row['model']['tp']}"
        if row["sustained"] is None:
            return None
        shape = row["sustained_shape"]
        case_id = matmul_id(dtype, "sustained", shape["m"], shape["k"], shape["n"])
        return self.slowest(case_id, row["sustained"]), "sustained"

    def memory_bandwidth(self) -> tuple[float, str] | None:
        """byte/s of device memory, reads and writes counted: triad, else copy."""
        for operation in ("triad", "copy"):
            rate = self.summary["memory"].get(operation)
            if rate is not None:
                return rate, operation
        return None

    def host_bandwidth(self, direction: str) -> float | None:
        """byte/s between host and device over pinned memory; direction h2d or d2h."""
        rate = self.summary["host"].get(f"{direction}_pinned")
        return None if rate is None else float(rate)

    def link_rate(self, operation: str, across: bool = False) -> tuple[float, float] | None:
        """(latency in seconds, bus bandwidth in byte/s) of a collective within a node, or across nodes with one GPU
        each; fitted, and None where it was not measured."""
        row = self._collective(f"{operation}/{'inter' if across else 'intra'}")
        if row is None and not across:
            row = self._collective(operation)
            if row is not None and row["ranks"] > self.device.count_visible:
                return None  # these ranks are on several nodes
        return None if row is None or row["alpha_s"] is None else (row["alpha_s"], row["busbw"])

    def collective_seconds(self, operation: str, size: float) -> float | None:
        """Seconds of a collective over `size` bytes by the measured table, for as many ranks as were measured."""
        row = self._collective(operation)
        return None if row is None else interpolate(row["points"], size)

    def _collective(self, operation: str) -> Json | None:
        collectives = self.summary["collectives"]
        if collectives is None or collectives["backend"] == "gloo":
            return None  # gloo is no network figure
        row: Json | None = collectives["operations"].get(operation)
        return row

    def notes_for_user(self) -> list[str]:
        """What a calculation that uses this profile has to say about it."""
        notes = []
        if not self.complete:
            notes.append("the profile is incomplete: its run was stopped before the end")
        if "contended" in self.flags:
            notes.append("the profile is contended: something else was running on the device, or its clock moved")
        if self.data != "normal":
            notes.append(f"the profile was measured on {self.data}: real training draws more power and runs slower")
        return notes


def matmul_id(dtype: str, kind: str, m: int, k: int, n: int) -> str:
    return f"matmul/{dtype}/{kind}/{m}x{k}x{n}"


# --- a hardware entry ----------------------------------------------------------------------------------------------


def hardware_entry(profile: Profile) -> tuple[str, Json]:
    """(name, entry) in the form of hardware_specs.yaml, for a hardware file of one's own.

    An accelerator of the shipped table keeps its datasheet's peaks, since MFU divides by them, and takes what was
    measured otherwise. An unknown one has no datasheet: its peaks are the sustained rates, and the entry says so.
    """
    device = profile.device
    if device.kind not in GPU_KINDS:
        raise NapkinError(f"the profile is of a {device.kind} device, not of a GPU", "measure on a GPU: napkin bench")
    memory = profile.memory_bandwidth()
    measured = f"napkin bench, {profile.created[:10]}, torch {profile.software.get('torch')}"
    entry: Json = {"source": measured}
    if device.hardware is None:
        rates = {dtype: row["sustained"] for dtype, row in profile.summary["matmul"].items() if row["sustained"]}
        if not rates or memory is None:
            raise NapkinError(
                f"the profile has no sustained matmul rate or no memory bandwidth of {printable(device.name)}",
                "measure them: napkin bench --only matmul,memory",
            )
        entry["name"] = device.name
        entry["peak_flops"] = {peak_name(dtype): round(rate) for dtype, rate in rates.items()}
        entry["assumed"] = ["peak_flops"]
        entry["printed"] = "these are measured sustained rates, so an MFU of 1 can be reached"
    sizes: Json = {} if device.hardware else {"bytes": device.memory_bytes}
    if memory is not None:
        sizes["bandwidth"] = round(memory[0])
    if sizes:
        entry["memory"] = sizes
    entry["reported"] = {"torch_mib": device.memory_bytes / 2**20, "source": measured}
    if device.sm_count is not None:
        entry["sm_count"] = device.sm_count
    if device.l2_bytes is not None:
        entry["l2_bytes"] = device.l2_bytes
    if device.power_limit_w is not None:
        entry["tdp_w"] = device.power_limit_w
    link = profile.link_rate("all_reduce")
    if link is not None:
        entry["link"] = {"name": "measured all-reduce bus bandwidth", "per_direction": round(link[1])}
    return device.hardware or "-".join(device.name.lower().split()), entry


def hardware_yaml(profile: Profile) -> str:
    """The entry as a file for --hardware-file."""
    name, entry = hardware_entry(profile)
    return "accelerators:\n" + "\n".join(_yaml_lines({name: entry}, 1)) + "\n"


def _yaml_lines(mapping: Json, depth: int) -> list[str]:
    lines = []
    for key, value in mapping.items():
        start = f"{'  ' * depth}{key}:"
        if isinstance(value, dict):
            lines += [start, *_yaml_lines(value, depth + 1)]
        elif isinstance(value, list):
            lines.append(f"{start} [{', '.join(value)}]")
        elif isinstance(value, str):
            lines.append(f"{start} " + "'" + value.replace("'", "''") + "'")
        else:
            lines.append(f"{start} {int(value) if float(value).is_integer() else value!r}")
    return lines


# --- collectives: the arithmetic of their figures ------------------------------------------------------------------

_ROUNDS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}


def bus_factor(operation: str, ranks: int) -> float:
    """Bytes that each rank's link carries per byte of the operation's size (nccl-tests, doc/PERFORMANCE.md).

    all_reduce 2(n−1)/n; all_gather, reduce_scatter and all_to_all (n−1)/n; send_recv 1.
    """
    return 1.0 if operation == "send_recv" else _ROUNDS[operation] * (ranks - 1) / ranks


@dataclass(frozen=True, slots=True)
class Fit:
    alpha_s: float
    busbw: float
    median_error: float
    worst_error: float


def alpha_beta(points: Sequence[tuple[float, float]], factor: float) -> Fit | None:
    """Fit t = α + S·factor/B to (bytes, seconds) by least squares of relative errors (weights 1/t²).

    Unweighted, the largest sizes decide alone and α can come out negative. None where the points do not determine it.
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
    return Fit(alpha, 1 / slope, middle, errors[-1])


def interpolate(points: Sequence[Sequence[float]], size: float) -> float:
    """Seconds at `size` from (bytes, seconds, …) rows in rising order: log t over log S between them, the first time
    below the smallest, constant bandwidth above the largest."""
    sizes = [row[0] for row in points]
    if size <= sizes[0]:
        return points[0][1]
    if size >= sizes[-1]:
        return points[-1][1] * size / sizes[-1]
    right = bisect_left(sizes, size)
    (x0, y0), (x1, y1) = points[right - 1][:2], points[right][:2]
    share = math.log(size / x0) / math.log(x1 / x0)
    return float(y0 * (y1 / y0) ** share)


# --- the summary, a function of the cases --------------------------------------------------------------------------


def summarise(cases: Sequence[Case], peaks: Mapping[str, Peak]) -> Json:
    """The figures that people and the calculator look up, from the cases alone."""
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
    """Σ FLOP / Σ time over the own matmuls of the model measured last: what it can reach, not what the best shape does.

    Attention's rate stands apart: it counts the unmasked half of the scores where the kernels compute no more.
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


def _identity(case: Case) -> tuple[Any, ...]:
    return tuple(case.params[name] for name in ("model", "tp", "tokens"))


def _largest_size(cases: Sequence[Case], group: str, names: Sequence[str]) -> Json:
    row: Json = {}
    for name in names:
        mine = [c for c in cases if c.group == group and c.params["operation"] == name and "suspect" not in c.flags]
        row[name] = _median(max(mine, key=lambda c: int(c.params["bytes"] or 0))) if mine else None
    return row


_STEP_FIGURES = ("allocated", "reserved", "used", "predicted_allocated", "predicted_step_s", "compile_s")


def _train(cases: Sequence[Case], peaks: Mapping[str, Peak]) -> Json:
    """The deepest model of each variant: tokens per second, MFU in each convention, memory."""
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
    """Groups within a node and across nodes stand apart: all_reduce, all_reduce/intra, all_reduce/inter."""
    scope = case.params["scope"]
    return "" if scope == "all" else f"/{scope}"


# --- reading -------------------------------------------------------------------------------------------------------


def read_profile(path: str) -> Profile:
    """The profile in a file: its form, its figures and its summary checked. Raises NapkinError (2)."""
    name = printable(path) if path != "-" else "standard input"
    text = read_text(path)
    document = parse_json(text, name)
    _announced(document.data, name)
    profile = _typed(text, name)
    _consistent(profile, name)
    return profile


def profile_for(path: str, hardware: str) -> Profile:
    """The profile in a file, to be used for the accelerator of that key. Another device's is refused (2)."""
    profile = read_profile(path)
    device, name = profile.device, printable(path)
    if device.kind not in GPU_KINDS:
        raise NapkinError(
            f"{name}: was measured on a {device.kind} device, which stands for no GPU", "measure on a GPU: napkin bench"
        )
    if device.hardware != hardware:
        known = device.hardware or "no accelerator that napkin knows"
        raise NapkinError(
            f"{name}: was measured on {printable(device.name)} ({known}), not on {hardware}",
            f"--hardware {device.hardware}, or say what it is while measuring: napkin bench --hardware {hardware}"
            if device.hardware
            else f"say what it is while measuring: napkin bench --resume --hardware {hardware} -o {name}",
        )
    return profile


def _announced(data: Any, name: str) -> None:
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise NapkinError(f"{name}: is not a profile", "napkin bench writes one: napkin bench -o profile.json")
    if data.get("schema") != SCHEMA:
        raise NapkinError(
            f"{name}: schema: is {printable(str(data.get('schema')), 40)}, this napkin reads {SCHEMA}",
            "measure again with this version of napkin, or read it with the version that wrote it",
        )


def _typed(text: str, name: str) -> Profile:
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(Profile).validate_json(text, strict=True)
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise NapkinError(
            f"{name}: {printable(where)}: {printable(first['msg'])}", "docs/bench.md describes the profile's fields"
        ) from None


def _consistent(profile: Profile, name: str) -> None:
    """What types alone do not say: known words, positive figures, a figure where there is a status ok, the summary."""

    def wrong(where: str, what: str) -> NapkinError:
        return NapkinError(
            f"{name}: {where}: {what}", "a profile is written by napkin bench, not edited: measure again"
        )

    if profile.device.kind not in DEVICE_KINDS:
        raise wrong("device.kind", f"{printable(profile.device.kind)} is not one of {', '.join(DEVICE_KINDS)}")
    seen: set[str] = set()
    for number, case in enumerate(profile.cases):
        where = f"cases.{number}"
        if case.id in seen:
            raise wrong(f"{where}.id", f"{printable(case.id)} stands twice")
        seen.add(case.id)
        if case.status not in STATUSES:
            raise wrong(f"{where}.status", f"{printable(case.status)} is not one of {', '.join(STATUSES)}")
        if case.status == OK and case.value is None:
            raise wrong(f"{where}.value", "is missing, though the status is ok")
        if case.value is not None and not 0 < case.value.min <= case.value.median <= case.value.max:
            raise wrong(f"{where}.value", "needs 0 < min ≤ median ≤ max")
    for dtype, peak in profile.peaks.items():
        if peak.dense_flops <= 0:
            raise wrong(f"peaks.{printable(dtype)}", "is not positive")
    try:
        expected = summarise(profile.cases, profile.peaks)
    except (KeyError, TypeError, ValueError, ZeroDivisionError, AssertionError):
        raise wrong("cases", "lack the parameters that the summary is made from") from None
    different = difference(expected, profile.summary)
    if different is not None:
        raise wrong(f"summary{different}", "does not follow from the cases")


SAME = 1e-9  # relative; the same sums in the same order differ by nothing


def difference(expected: Any, given: Any, path: str = "") -> str | None:
    """Where two JSON values differ, as a path; None where they are the same."""
    if isinstance(expected, dict) and isinstance(given, dict):
        for key in [*expected, *(k for k in given if k not in expected)]:
            if key not in expected or key not in given:
                return f"{path}.{printable(str(key))}"
            inner = difference(expected[key], given[key], f"{path}.{key}")
            if inner is not None:
                return inner
        return None
    if isinstance(expected, list) and isinstance(given, list):
        if len(expected) != len(given):
            return path
        for number, (left, right) in enumerate(zip(expected, given, strict=True)):
            inner = difference(left, right, f"{path}.{number}")
            if inner is not None:
                return inner
        return None
    if isinstance(expected, bool) or isinstance(given, bool) or expected is None or given is None:
        return None if expected is given else path
    if isinstance(expected, int | float) and isinstance(given, int | float):
        return None if abs(expected - given) <= SAME * max(abs(expected), abs(given)) else path
    return None if expected == given else path
