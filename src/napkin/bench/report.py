"""The text report of a profile: device, verdict, matmul, memory, host, training, collectives."""

from __future__ import annotations

from typing import Any

from napkin import units
from napkin.bench.verdicts import mfu_verdict, verdict
from napkin.inputs.profile import Profile
from napkin.inputs.profile_cases import OK, UNSUPPORTED, Case

BAR = 10  # cells of a bar that shows the share of the peak
EIGHTHS = " ▏▎▍▌▋▊▉"


def report(profile: Profile, path: str | None) -> str:
    """Return the profile as text for people."""
    parts = [_device(profile), _health(profile), "", *_matmul(profile), *_bandwidths(profile), *_train(profile)]
    parts += _collectives(profile)
    if path is not None:
        parts += ["", f"profile     {path}   (napkin step … --profile {path})"]
    return "\n".join(line.rstrip() for line in parts)


def bar(share: float) -> str:
    """Draw a share of 1 as a bar of ten cells, to an eighth of a cell."""
    eighths = round(min(1.0, max(0.0, share)) * BAR * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (EIGHTHS[rest] if rest else "")).ljust(BAR)


def _device(profile: Profile) -> str:
    d, software = profile.device, profile.software
    facts = [d.name, f"{d.sm_count} SMs" if d.sm_count else "", f"{d.memory_bytes / 2**30:.1f} GiB"]
    facts += [f"{d.power_limit_w:.0f} W" if d.power_limit_w else "", d.kind if d.kind != "cuda" else ""]
    facts += [f"torch {software.get('torch')}", f"CUDA {software['cuda']}" if software.get("cuda") else ""]
    facts += [f"{profile.world} ranks" if profile.world > 1 else ""]
    return "  ".join(fact for fact in facts if fact)


def _health(profile: Profile) -> str:
    """Return the verdict, and the sensor readings under the longest load."""
    held = [c for c in profile.cases if c.sustained is not None and c.telemetry is not None]
    said = []
    if held:
        seen = held[0].telemetry
        assert seen is not None
        if seen.power_w is not None:
            limit = profile.device.power_limit_w
            said.append(f"{seen.power_w.mean:.0f}{f' of {limit:.0f}' if limit else ''} W")
        if seen.sm_clock_mhz is not None:
            top = profile.device.sm_clock_max_mhz
            said.append(f"{seen.sm_clock_mhz.mean:.0f}{f' of {top}' if top else ''} MHz")
        if seen.temperature_c is not None:
            said.append(f"{seen.temperature_c.max:.0f} °C")
        said += [f"{name} {share:.0%} of the time" for name, share in seen.reasons.items()]
    return f"{verdict(profile)}{': ' + ', '.join(said) if said else ''}"


def _matmul(profile: Profile) -> list[str]:
    rows: dict[str, Any] = profile.summary["matmul"]
    lines = []
    for dtype, row in rows.items():
        if row["sustained"] is None:
            continue
        case = _case(profile, dtype, row["sustained_shape"])
        shape = "{m}x{k}x{n}".format(**row["sustained_shape"])
        share = row["of_peak"]
        peak = f"{bar(share)} MFU {share:.2f}, {mfu_verdict(share)}" if share is not None else ""
        band = f"p10–p90 {(case.value.p90 - case.value.p10) / case.value.median:.1%}" if case and case.value else ""
        burst = f"burst {_rate(row['burst'])}" if row["burst"] else ""
        lines.append(f"  {dtype:9}{_rate(row['sustained']):>14}  {peak:25} {burst:20} {shape:17} {band}")
        lines += _ranks(profile, case, "FLOP/s")
    if lines:
        lines.insert(0, "matmul      sustained, at the best shape found (m x k x n)")
    lines += _shapes(profile)
    for dtype, row in rows.items():
        if row["model"] is not None and row["model"]["flops_weighted"] is not None:
            one = row["model"]
            share = one["flops_weighted"] / profile.peaks[dtype].dense_flops if dtype in profile.peaks else None
            text = f"  {one['name']}, {one['tokens']} tokens, tp {one['tp']}, {dtype}: {_rate(one['flops_weighted'])}"
            text += f" = MFU {share:.2f} is what its own matmuls allow" if share is not None else ""
            lines.append(text)
            if one["attention"] is not None:
                lines.append(f"    its attention: {_rate(one['attention'])}, the masked half not counted")
    missing = [c for c in profile.cases if c.group == "matmul" and c.status == UNSUPPORTED and c.reason]
    lines += [f"  {c.params['dtype']!s:9}not measured: {c.reason}" for c in missing if c.params.get("kind") == "anchor"]
    return lines


def _ranks(profile: Profile, case: Case | None, unit: str) -> list[str]:
    """Return the same figure for every GPU of the job; a synchronous step runs at the slowest one's rate."""
    over = profile.ranks.get(case.id) if case is not None else None
    if over is None:
        return []
    shown = (units.human(value, unit) for value in (over.min, over.median, over.max))
    return ["    over {} ranks: least {}, median {}, most {}".format(profile.world, *shown)]


def _shapes(profile: Profile) -> list[str]:
    """Return the single shapes that were asked for."""
    lines = []
    for case in profile.cases:
        kind = case.params.get("kind")
        if case.group == "matmul" and kind in ("shape_burst", "shape_sustained"):
            p = case.params
            shape = f"m {p['m']}, k {p['k']}, n {p['n']}"
            if case.value is None:
                lines.append(f"  {p['dtype']}  {shape}: {case.status}: {case.reason}")
                continue
            peak = profile.peaks.get(str(p["dtype"]))
            share = case.value.median / peak.dense_flops if peak else None
            word = str(kind).removeprefix("shape_")
            verdict_text = "" if share is None else f" = MFU {share:.2f}: {mfu_verdict(share)}"
            lines.append(f"  {p['dtype']}  {shape}  {word}: {_rate(case.value.median)}{verdict_text}")
    return lines


def _case(profile: Profile, dtype: str, shape: dict[str, int]) -> Case | None:
    wanted = {"kind": "sustained", "dtype": dtype, **shape}
    return next(
        (c for c in profile.cases if c.status == OK and wanted.items() <= c.params.items() and c.group == "matmul"),
        None,
    )


def _bandwidths(profile: Profile) -> list[str]:
    lines = []
    memory = {name: rate for name, rate in profile.summary["memory"].items() if rate is not None}
    if memory:
        lines.append(
            "memory      " + "  ".join(f"{name} {units.human(rate, 'byte/s')}" for name, rate in memory.items())
        )
    host = {name: rate for name, rate in profile.summary["host"].items() if rate is not None}
    if host:
        lines.append("host        " + "  ".join(f"{name} {units.human(rate, 'byte/s')}" for name, rate in host.items()))
    return lines


def _train(profile: Profile) -> list[str]:
    lines: list[str] = []
    for variant, row in profile.summary["train"].items():
        mine = (c for c in profile.cases if c.status == OK and c.group == "train" and c.params["variant"] == variant)
        case = next(c for c in mine if c.params["layers"] == row["layers"])
        p = case.params
        if not lines:
            lines.append(
                f"training    {p['model']}, {row['layers']} layers, {p['micro_batch']} x {p['sequence']} tokens, "
                f"{p['precision']}, AdamW, recompute {p['recompute']}"
            )
        mfu = "  ".join(f"{value:.2f} ({name})" for name, value in row["mfu"].items())
        palm = row["mfu"].get("palm")
        reached = profile.summary["matmul"].get(str(p["compute"]), {}).get("of_peak")
        word = f"   {mfu_verdict(palm, reached)}" if palm is not None else ""
        lines.append(f"  {variant:9}{row['tokens_per_second']:,.0f} tokens/s   {'MFU ' + mfu if mfu else ''}{word}")
        lines += _ranks(profile, case, "second")
        if row["predicted_step_s"] is not None:
            error = row["predicted_step_s"] / row["step_s"] - 1
            lines.append(f"    step {row['step_s']:.4g} s, predicted {row['predicted_step_s']:.4g} s ({error:+.1%})")
        allocated, predicted = row["allocated"], row["predicted_allocated"]
        if allocated is not None:
            text = f"    allocated {allocated / 1e9:.3f} GB"
            if predicted is not None:
                text += f", predicted {predicted / 1e9:.3f} ({predicted / allocated - 1:+.1%})"
            text += f", reserved {row['reserved'] / 1e9:.2f}" if row["reserved"] else ""
            text += f", on the card {row['used'] / 1e9:.2f}" if row["used"] else ""
            lines.append(text)
        elif predicted is not None:
            lines.append(f"    allocated: not known on this device; predicted {predicted / 1e9:.3f} GB")
    return lines


def _collectives(profile: Profile) -> list[str]:
    found = profile.summary["collectives"]
    if found is None:
        skipped = [c for c in profile.cases if c.group == "collectives" and c.reason]
        return [f"collectives {skipped[0].reason}: not measured"] if skipped else []
    lines = [f"collectives {found['world']} ranks, {found['backend']}"]
    if found["backend"] == "gloo":
        lines[0] += ": a check of the code, no network figure"
    for name, row in found["operations"].items():
        size, seconds, rate = row["points"][-1]
        fit = ""
        if row["alpha_s"] is not None:
            fit = f"   latency {row['alpha_s'] * 1e6:.0f} µs, {units.human(row['busbw'], 'byte/s')}"
            fit += f" (fit, worst error {row['worst_error']:.0%})"
        at = f"bus at {units.human(int(size), 'byte')}, {seconds:.3g} s"
        lines.append(f"  {name:22} {units.human(rate, 'byte/s'):>12} {at}{fit}")
    return lines


def _rate(value: float) -> str:
    return units.human(value, "FLOP/s")
