"""The answers of `napkin bench`: what was measured, and two profiles compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from napkin import term
from napkin.errors import NapkinError
from napkin.render.answer import Answer
from napkin.term import Term

if TYPE_CHECKING:
    from napkin.bench.run import Done
    from napkin.inputs.hardware import Hardware
    from napkin.inputs.profile import Profile


def answer(done: Done) -> Answer:
    """Answer with what was measured."""
    from napkin.bench.verdicts import verdict, warnings
    from napkin.commands.screens.bench import screen

    profile = done.profile
    return Answer(
        "bench",
        terms=_terms(profile, done.hardware),
        verdict=verdict(profile),
        status=done.status,
        screen=screen(profile, done.path),
        notes=warnings(profile),
        extra={"profile": done.path, "device": profile.device.kind},
    )


def _terms(profile: Profile, hardware: Hardware | None) -> list[Term]:
    """Return the headline figures and derived ones: shares of the peak, MFU."""
    from napkin.bench.compare import figures

    found = figures(profile)
    terms = {
        path: term.leaf(path, one.value, one.unit, term.MEASURED, one.source or "bench") for path, one in found.items()
    }
    peaks = {
        dtype: term.leaf(f"peak/{dtype}", peak.dense_flops, "FLOP/s", term.TRUE, peak.source)
        for dtype, peak in profile.peaks.items()
    }
    for path in [path for path in terms if path.startswith("matmul/")]:
        _, dtype, kind, *rest = path.split("/")
        if dtype in peaks and (rest or kind in ("sustained", "model")):  # single shapes have a part more
            terms[f"{path}/mfu"] = term.divide(f"{path}/mfu", terms[path], peaks[dtype])
    if hardware is not None:
        bandwidth = hardware.term("memory_bandwidth", "peak/bandwidth")
        for operation in ("copy", "write", "read", "triad"):
            path = f"memory/{operation}"
            if path in terms:
                terms[f"{path}/of_peak"] = term.divide(f"{path}/of_peak", terms[path], bandwidth)
    for variant in profile.summary["train"]:  # the last is the fastest: compiled if it was measured
        _train_terms(profile, variant, terms, peaks)
    return list(terms.values())


def _train_terms(profile: Profile, variant: str, terms: dict[str, Term], peaks: dict[str, Term]) -> None:
    """Add MFU, HFU and memory of a variant of the training step to the terms."""
    row = profile.summary["train"][variant]
    case = max(
        (c for c in profile.cases if c.group == "train" and c.params["variant"] == variant and c.value is not None),
        key=lambda c: int(c.params["layers"] or 0),
    )
    step = terms[f"train/{variant}/step_time"]
    compute = str(case.params["compute"])
    for name, flops in case.figures.items():
        kind, _, convention = name.partition("/")
        if kind not in ("mfu_flops", "hfu_flops") or flops is None or compute not in peaks:
            continue
        path = f"{kind[:3]}/{convention}"
        work = term.leaf(f"flops/{path}", flops, "FLOP", term.TRUE, f"one step, {convention} convention")
        terms[f"train/{variant}/{path}"] = term.divide(f"train/{variant}/{path}", work, step, peaks[compute])
        terms[path] = terms[f"train/{variant}/{path}"].renamed(path)
    sustained = terms.get(f"matmul/{compute}/sustained")
    if "mfu/palm" in terms and sustained is not None:
        work = terms["mfu/palm"].parts[0]
        terms["mfu/sustained"] = term.divide(
            "mfu/sustained", work, step, sustained, source="share of this machine's sustained rate, not MFU"
        )
    for name in ("allocated", "reserved", "used"):
        if row[name] is not None:
            terms[f"memory/{name}"] = term.leaf(f"memory/{name}", row[name], "byte", term.MEASURED, case.id)
    if row["predicted_allocated"] is not None:
        terms["memory/predicted"] = term.leaf(
            "memory/predicted", row["predicted_allocated"], "byte", term.TRUE, "napkin memory, implementation hf"
        )


def compare(files: Sequence[str]) -> Answer:
    """Answer with the figures of two profiles, and which differ beyond noise."""
    from napkin.bench.compare import DIFFERENT, compared
    from napkin.commands.screens.bench import of_two
    from napkin.inputs.profile import read_profile

    if len(files) != 2:
        raise NapkinError("bench compare takes two profiles", "napkin bench compare before.json after.json")
    a, b = (read_profile(path) for path in files)
    rows = compared(a, b)
    if not rows:
        raise NapkinError(f"{files[0]} and {files[1]} have no figure in common")
    differing = sum(row["is"] == DIFFERENT for row in rows)
    notes = []
    if a.device.name != b.device.name:
        notes.append(f"different devices: {a.device.name} and {b.device.name}")
    for name in ("torch", "cuda", "driver", "cudnn"):
        if a.software.get(name) != b.software.get(name):
            notes.append(f"{name}: {a.software.get(name)} and {b.software.get(name)}")
    for profile, path in ((a, files[0]), (b, files[1])):
        notes += [f"{path}: {note}" for note in profile.notes_for_user()]
    return Answer(
        "bench",
        rows=rows,
        verdict="differs" if differing else "same",
        notes=notes,
        screen=of_two(files, rows, differing, notes),
    )
