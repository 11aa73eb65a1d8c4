"""Screen of `bench`: device and verdict, then matmul, memory, host, training, collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from napkin import units
from napkin.bench.verdicts import IMPOSSIBLE, mfu_verdict, verdict
from napkin.inputs.profile import Profile
from napkin.inputs.profile_cases import OK, UNSUPPORTED, Case
from napkin.render.figures import compact, size
from napkin.render.screen import Column, Next, Screen, Table, quantities

BENCH_ROW = tuple[str, str, str]
"""A row of the table: name, figure, remarks."""
FIGURES = (
    Column("figure"),
    Column("before", right=True),
    Column("after", right=True),
    Column("change", right=True),
    Column("", drop=1),
)


def screen(profile: Profile, path: str | None) -> Screen:
    """Return the screen of a profile; path: the file it was written to."""
    rows = [*_load(profile), *_matmul(profile), *_shapes(profile), *_model(profile), *_bandwidths(profile)]
    rows += [*_train(profile), *_collectives(profile)]
    missing = _missing(profile)
    headline = [verdict(profile), *_leading(profile)]
    if len(headline) == 1:
        headline += (
            [f"not measured: {missing[0][1]}"] if missing else [f"{label}: {figure}" for label, figure, _ in rows[:1]]
        )
    remarks = [f"{dtype} not measured: {reason}" for dtype, reason in missing]
    remarks += [f"written to {path}"] if path is not None else []
    return Screen(_device(profile), headline, verdict(profile), quantities(rows), remarks, next=_next(profile, path))


def of_two(files: Sequence[str], rows: Sequence[dict[str, Any]], differing: int, notes: Sequence[str]) -> Screen:
    """Return the screen of two profiles, figure by figure."""
    cells = [
        (
            str(row["figure"]),
            units.human(row["a"], row["unit"]),
            units.human(row["b"], row["unit"]),
            f"{row['change']:+.1%}",
            str(row["is"]),
        )
        for row in rows
    ]
    asked = (f"{files[1]} against {files[0]}",)
    headline = (f"{differing} of {len(rows)} figures differ beyond noise",)
    again = Next({"what": ("compare", files[1], files[0])}, keep=())
    return Screen(asked, headline, table=Table(FIGURES, cells), remarks=notes[:1], next=again, listing=True)


def _device(profile: Profile) -> list[str]:
    d, software = profile.device, profile.software
    facts = [d.name, f"{d.sm_count} SMs" if d.sm_count else "", size(d.memory_bytes)]
    facts += [f"{d.power_limit_w:.0f} W" if d.power_limit_w else "", d.kind if d.kind != "cuda" else ""]
    facts += [f"torch {software.get('torch')}", f"CUDA {software['cuda']}" if software.get("cuda") else ""]
    facts += [f"{profile.world} ranks" if profile.world > 1 else "", f"measured in {profile.elapsed_s:.0f} s"]
    return [fact for fact in facts if fact]


def _leading(profile: Profile) -> list[str]:
    """Return the first sustained rate, and its share of the peak."""
    for dtype, row in profile.summary["matmul"].items():
        if row["sustained"] is not None:
            share = row["of_peak"]
            said = [] if share is None else [_judged(share)]
            return [f"{_rate(row['sustained'])} sustained in {dtype}", *said]
    return []


def _load(profile: Profile) -> list[BENCH_ROW]:
    """Return the sensor readings under the longest load."""
    held = [c.telemetry for c in profile.cases if c.sustained is not None and c.telemetry is not None]
    if not held:
        return []
    seen, said = held[0], []
    if seen.power_w is not None:
        limit = profile.device.power_limit_w
        said.append(f"{seen.power_w.mean:.0f}{f' of {limit:.0f}' if limit else ''} W")
    if seen.sm_clock_mhz is not None:
        top = profile.device.sm_clock_max_mhz
        said.append(f"{seen.sm_clock_mhz.mean:.0f}{f' of {top}' if top else ''} MHz")
    if seen.temperature_c is not None:
        said.append(f"{seen.temperature_c.max:.0f} °C")
    reasons = [f"{name} {share:.0%} of the time" for name, share in seen.reasons.items()]
    return [("under load", said[0] if said else "", "; ".join([*reasons, *said[1:]]))] if said or reasons else []


def _matmul(profile: Profile) -> list[BENCH_ROW]:
    """Return the sustained rate of each number format, at the best shape found."""
    rows: list[BENCH_ROW] = []
    for dtype, row in profile.summary["matmul"].items():
        if row["sustained"] is None:
            continue
        case = _case(profile, dtype, row["sustained_shape"])
        share = row["of_peak"]
        said = [_judged(share)] if share is not None else []
        said += [f"burst {_rate(row['burst'])}"] if row["burst"] else []
        said.append("{m}x{k}x{n}".format(**row["sustained_shape"]))
        if case and case.value:
            said.append(f"p10–p90 {(case.value.p90 - case.value.p10) / case.value.median:.1%}")
        rows.append((f"matmul {dtype}", _rate(row["sustained"]), "; ".join(said)))
        rows += _ranks(profile, case, "FLOP/s")
    return rows


def _ranks(profile: Profile, case: Case | None, unit: str) -> list[BENCH_ROW]:
    """Return the figure of every GPU of the job; a synchronous step runs at the rate of the slowest."""
    over = profile.ranks.get(case.id) if case is not None else None
    if over is None:
        return []
    least, median, most = (units.human(value, unit) for value in (over.min, over.median, over.max))
    return [(f"  over {profile.world} ranks", median, f"least {least}, most {most}")]


def _shapes(profile: Profile) -> list[BENCH_ROW]:
    """Return the requested single shapes."""
    rows: list[BENCH_ROW] = []
    for case in profile.cases:
        kind = case.params.get("kind")
        if case.group != "matmul" or kind not in ("shape_burst", "shape_sustained"):
            continue
        p = case.params
        label = f"{p['dtype']} {p['m']}x{p['k']}x{p['n']}"
        if case.value is None:
            rows.append((label, case.status, str(case.reason or "")))
            continue
        peak = profile.peaks.get(str(p["dtype"]))
        share = case.value.median / peak.dense_flops if peak else None
        said = str(kind).removeprefix("shape_")
        said += "" if share is None else f"; {_judged(share)}"
        rows.append((label, _rate(case.value.median), said))
    return rows


def _model(profile: Profile) -> list[BENCH_ROW]:
    """Return the rate of a model's own matmuls."""
    rows: list[BENCH_ROW] = []
    for dtype, row in profile.summary["matmul"].items():
        one = row["model"]
        if one is None or one["flops_weighted"] is None:
            continue
        said = f"{one['tokens']} tokens, tp {one['tp']}, {dtype}"
        if dtype in profile.peaks:
            share = one["flops_weighted"] / profile.peaks[dtype].dense_flops
            said = f"MFU {share:.2f} is what its own matmuls allow; {said}"
        rows.append((f"{one['name']} matmuls", _rate(one["flops_weighted"]), said))
        if one["attention"] is not None:
            rows.append(("  its attention", _rate(one["attention"]), "the masked half not counted"))
    return rows


def _missing(profile: Profile) -> list[tuple[str, str]]:
    """Return the number formats that were not measured, and why."""
    return list(
        dict.fromkeys(
            (str(c.params["dtype"]), str(c.reason))
            for c in profile.cases
            if c.group == "matmul" and c.status == UNSUPPORTED and c.reason and "dtype" in c.params
        )
    )


def _case(profile: Profile, dtype: str, shape: dict[str, int]) -> Case | None:
    wanted = {"kind": "sustained", "dtype": dtype, **shape}
    return next(
        (c for c in profile.cases if c.status == OK and wanted.items() <= c.params.items() and c.group == "matmul"),
        None,
    )


def _bandwidths(profile: Profile) -> list[BENCH_ROW]:
    """Return the bandwidths of device memory and of the link to the host, one row each."""
    rows: list[BENCH_ROW] = []
    for group in ("memory", "host"):
        rates = [
            (name, units.human(rate, "byte/s")) for name, rate in profile.summary[group].items() if rate is not None
        ]
        if rates:
            (first, rate), *others = rates
            rows.append((f"{group} {first}", rate, "; ".join(f"{name} {other}" for name, other in others)))
    return rows


def _train(profile: Profile) -> list[BENCH_ROW]:
    """Return the measured training step of each variant with its prediction."""
    rows: list[BENCH_ROW] = []
    for variant, row in profile.summary["train"].items():
        mine = (c for c in profile.cases if c.status == OK and c.group == "train" and c.params["variant"] == variant)
        case = next(c for c in mine if c.params["layers"] == row["layers"])
        p = case.params
        palm = row["mfu"].get("palm")
        reached = profile.summary["matmul"].get(str(p["compute"]), {}).get("of_peak")
        said = [] if palm is None else [_judged(palm, reached)]
        said.append(f"{p['model']}, {row['layers']} layers, {p['micro_batch']} x {p['sequence']} tokens")
        said.append(f"{p['precision']}, AdamW, recompute {p['recompute']}")
        rows.append((f"training {variant}", f"{row['tokens_per_second']:,.0f} tokens/s", "; ".join(said)))
        rows += _ranks(profile, case, "second")
        if row["predicted_step_s"] is not None:
            error = row["predicted_step_s"] / row["step_s"] - 1
            predicted = f"predicted {units.human(row['predicted_step_s'], 'second')} ({error:+.1%})"
            rows.append(("  step", units.human(row["step_s"], "second"), predicted))
        rows += _memory(row)
    return rows


def _memory(row: dict[str, Any]) -> list[BENCH_ROW]:
    """Return the memory of a training step, measured and predicted."""
    allocated, predicted = row["allocated"], row["predicted_allocated"]
    if allocated is None:
        said = "not known on this device"
        return [] if predicted is None else [("  memory allocated", said, f"predicted {size(predicted)}")]
    parts = [] if predicted is None else [f"predicted {size(predicted)} ({predicted / allocated - 1:+.1%})"]
    parts += [f"{name} {size(row[name])}" for name in ("reserved", "used") if row[name]]
    return [("  memory allocated", size(allocated), "; ".join(parts))]


def _collectives(profile: Profile) -> list[BENCH_ROW]:
    """Return the bus bandwidth of each collective at the largest size."""
    found = profile.summary["collectives"]
    if found is None:
        skipped = [c for c in profile.cases if c.group == "collectives" and c.reason]
        return [("collectives", "not measured", str(skipped[0].reason))] if skipped else []
    said = f"{found['world']} ranks, {found['backend']}"
    said += ": a check of the code, no network figure" if found["backend"] == "gloo" else ""
    rows: list[BENCH_ROW] = [("collectives", "bus rate", said)]
    for name, row in found["operations"].items():
        moved, _, rate = row["points"][-1]
        parts = [f"at {compact(int(moved), 'byte')}"]
        if row["alpha_s"] is not None:
            parts.append(f"latency {row['alpha_s'] * 1e6:.0f} µs")
        rows.append((f"  {name}", units.human(rate, "byte/s"), "; ".join(parts)))
    return rows


def _next(profile: Profile, path: str | None) -> Next:
    """Return the next command: a prediction from these rates."""
    known = profile.device.hardware
    if path is None or not known:
        return Next({"quick": True}, keep=())
    return Next({"model": "llama3-8b", "hardware": known, "gpus": "8", "zero": "3", "profile": path}, "step", keep=())


def _judged(mfu: float, sustained_share: float | None = None) -> str:
    """Return an MFU with its verdict."""
    word = mfu_verdict(mfu, sustained_share)
    return f"MFU {mfu:.2f}, {'impossible: a wrong peak or rate' if word == IMPOSSIBLE else word}"


def _rate(value: float) -> str:
    return units.human(value, "FLOP/s")
