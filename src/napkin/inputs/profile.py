"""A machine's profile: what `napkin bench` measured there, read, checked, and turned into rates.

A profile is one JSON file. Its `cases` are the measurements; its `summary` follows from them alone and is recomputed
on reading, so that a file edited by hand does not pass. Its figures are of the kind `measured`; a profile replaces a
datasheet's rates in time and roofline, never the dense peak that MFU divides by.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from napkin.errors import NapkinError
from napkin.inputs.load import name_of, parse_json, printable, read_text
from napkin.inputs.profile_cases import (
    DEVICE_KINDS,
    GPU_KINDS,
    KIND,
    OK,
    SCHEMA,
    STATUSES,
    STRICT,
    Case,
    Json,
    OverRanks,
    Peak,
    ProfiledDevice,
    matmul_id,
)
from napkin.inputs.profile_summary import summarize


@dataclass(frozen=True, slots=True)
class Profile:
    """What was measured on one machine, under which conditions."""

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
        """Return the figure of the slowest GPU where every rank measured it, else the only one."""
        ranks = self.ranks.get(case_id)
        return ranks.min if ranks is not None else value

    def matmul_rate(self, dtype: str) -> tuple[float, str] | None:
        """Return FLOP/s and its origin: the model's own shapes, else sustained at the best shape; None if not measured.
        fp8 means its format of weights and activations, mxfp8 too if it was not measured itself."""
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
        """Return byte/s of device memory, reads and writes counted: triad, else copy."""
        for operation in ("triad", "copy"):
            rate = self.summary["memory"].get(operation)
            if rate is not None:
                return rate, operation
        return None

    def link_rate(self, operation: str, across: bool = False) -> tuple[float, float] | None:
        """Return (latency in s, bus bandwidth in byte/s) of a collective within a node, or across nodes with one GPU
        each; fitted, and None if it was not measured."""
        row = self._collective(f"{operation}/{'inter' if across else 'intra'}")
        if row is None and not across:
            row = self._collective(operation)
            if row is not None and row["ranks"] > self.device.count_visible:
                return None  # these ranks are on several nodes
        return None if row is None or row["alpha_s"] is None else (row["alpha_s"], row["busbw"])

    def _collective(self, operation: str) -> Json | None:
        collectives = self.summary["collectives"]
        if collectives is None or collectives["backend"] == "gloo":
            return None  # gloo says nothing about the network
        row: Json | None = collectives["operations"].get(operation)
        return row

    def notes_for_user(self) -> list[str]:
        """Return the notes that an answer based on this profile must carry."""
        notes = []
        if not self.complete:
            notes.append("the profile is incomplete: its run was stopped before the end")
        if "contended" in self.flags:
            notes.append("the profile is contended: something else was running on the device, or its clock moved")
        if self.data != "normal":
            notes.append(f"the profile was measured on {self.data}: real training draws more power and runs slower")
        return notes


# --- reading -------------------------------------------------------------------------------------------------------


def read_profile(path: str) -> Profile:
    """Return the profile in a file, after checking its form, figures and summary. Raises NapkinError (2)."""
    name = name_of(path)
    text = read_text(path)
    document = parse_json(text, name)
    _announced(document.data, name)
    profile = _typed(text, name)
    _consistent(profile, name)
    return profile


def profile_for(path: str, hardware: str) -> Profile:
    """Return the profile in a file, to be used for the accelerator of that key. Another device's is refused (2)."""
    profile = read_profile(path)
    device, name = profile.device, printable(path)
    if device.kind not in GPU_KINDS:
        raise NapkinError(
            f"{name}: was measured on a {device.kind} device, which is not a GPU", "measure on a GPU: napkin bench"
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
    """Check what types cannot: known words, positive figures, a figure if the status is ok, the summary."""

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
            raise wrong(f"{where}.id", f"{printable(case.id)} appears twice")
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
        expected = summarize(profile.cases, profile.peaks)
    except (KeyError, TypeError, ValueError, ZeroDivisionError, AssertionError):
        raise wrong("cases", "lack the parameters that the summary is made from") from None
    different = difference(expected, profile.summary)
    if different is not None:
        raise wrong(f"summary{different}", "does not follow from the cases")


SAME = 1e-9  # relative; the same sums in the same order differ by nothing


def difference(expected: object, given: object, path: str = "") -> str | None:
    """Return the path at which two JSON values differ; None if they are the same."""
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
