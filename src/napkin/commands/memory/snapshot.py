"""`napkin memory MODEL --snapshot FILE`: a torch memory snapshot, compared with the prediction."""

from __future__ import annotations

import os
from string import ascii_letters

from napkin.elementwise import Number
from napkin.errors import NapkinError
from napkin.footprint import buckets
from napkin.footprint.rank import Moment
from napkin.inputs.hardware import Hardware
from napkin.inputs.snapshot import Snapshot, read_snapshot
from napkin.planning.verdicts import Fit
from napkin.record import record
from napkin.render.answer import Answer, Row
from napkin.term import MEASURED, Term, leaf
from napkin.units import Unreadable, human, memory

OURS = {
    "parameters": ("parameters",),
    "gradients": ("gradients",),
    "optimizer": ("optimizer",),
    "activations": ("activations", "weight_casts", "inputs"),
}
"""Category of a snapshot → the predicted categories that it contains."""
TEMPORARIES = {"forward": "activations", "loss": "gradients", "backward": "gradients", "step": "optimizer"}
"""Phase → the category to whose stack its temporaries belong."""


FIGURES = ("allocated", "reserved", "used")
"""Figures of a run's memory: max_memory_allocated, max_memory_reserved, and what nvidia-smi reports."""


def read_measured(path: str, device: int | None) -> Snapshot:
    """Read a snapshot file, or figures typed in its place: `reserved=66GiB,used=70GiB`, or a size that does not say
    which figure it is."""
    if os.path.exists(path) or path == "-":
        return read_snapshot(path, device)
    parts = [(name.strip(), sign, text) for name, sign, text in (part.partition("=") for part in path.split(","))]
    if any(name in FIGURES for name, sign, _ in parts if sign):
        wrong = next((name for name, sign, _ in parts if not sign or name not in FIGURES), None)
        if wrong is not None:
            what = f"--snapshot: {wrong[:40]!r} is not a figure of {', '.join(FIGURES)}"
            raise NapkinError(what, "--snapshot reserved=66GiB,used=70GiB")
        sizes: dict[str, int] = {}
        for name, _, text in parts:
            if name in sizes:
                raise NapkinError(f"--snapshot: {name} is given twice", "keep one of them")
            sizes[name] = _read_size(text)
        return Snapshot(0, sizes.get("allocated"), sizes.get("reserved"), used=sizes.get("used"))
    number = path.rstrip(ascii_letters).strip()
    if number.replace(".", "", 1).isdigit() and not number.endswith("."):  # no name such as 61.pickle
        return Snapshot(0, unstated=_read_size(path))
    return read_snapshot(path, device)


def _read_size(text: str) -> int:
    """Return a typed size."""
    try:
        return memory(text)
    except Unreadable as problem:
        raise NapkinError(f"--snapshot: {problem}", problem.hint or "a size, e.g. 61GiB") from None


OF_DRIVER = 1.02
"""Memory as nvidia-smi counts it over what the driver lets torch have, at the most. assumed: 1.006 on an H100."""


def check_holds(seen: Snapshot, stated: str, path: str, hardware: Hardware) -> None:
    """Reject a measurement that the accelerator cannot hold, with what its driver keeps; stated: the option."""
    most = max(getattr(seen, name) or 0 for name in (*FIGURES, "unstated"))
    if most > (hardware.nvidia_smi_bytes or hardware.capacity * OF_DRIVER):
        there = f"{human(hardware.capacity, 'byte')} of {hardware.name}"
        raise NapkinError(
            f"{stated} {path[:60]}: {human(most, 'byte')} is above the {there}",
            "the --hardware of the run, or leave it out",
        )


def compare(seen: Snapshot, path: str, found: Fit, terms: dict[str, Term]) -> Answer:
    """Answer with measured and predicted bytes: the peak figures with their intervals, then by category at the peak,
    and by category at the time of the snapshot against the nearest predicted phase."""
    answer = Answer("memory", tuple(terms.values()))
    answer.intervals = {**found.reported.ends, "memory/total": found.reported.ends["memory/used"]}
    rows: list[Difference] = []
    measured: list[Term] = []
    for name in FIGURES:
        stated: int | None = getattr(seen, name)
        value = seen.unstated if stated is None else stated
        if value is not None:
            row = Difference(f"{'if' if stated is None else 'largest'} {name}", value, terms[f"memory/{name}"].value)
            where = place(value, answer.intervals[f"memory/{name}"])
            answer.notes.append(
                f"{name}: measured is {value / row.predicted - 1:+.1%} of predicted, {where} the interval"
            )
            rows.append(row)
            measured.append(leaf(f"seen/{name}", value, "byte", MEASURED, path))
    stages = int(found.step.setup.layout.pp)
    if stages > 1:
        worst = int(found.rank.stage.index)
        answer.notes.append(
            f"predicted for stage {worst} of {stages}, the fullest: take the snapshot of a rank of that stage"
        )
    peak = buckets.peak_of(found.rank)
    if seen.at_peak is not None:
        rows += _by_bucket("at the peak", seen.at_peak, peak)
        measured += [leaf(f"seen/at/peak/{n}", v, "byte", MEASURED, path) for n, v in seen.at_peak.items()]
        answer.notes.append(f"the predicted peak is in the {peak.name}")
    if seen.buckets is not None and seen.at_dump is not None:
        moment = _nearest(found.rank.moments, seen.at_dump)
        rows += _by_bucket("when taken", seen.buckets, moment)
        measured.append(leaf("seen/at_dump", seen.at_dump, "byte", MEASURED, path))
        measured += [leaf(f"seen/at/dump/{n}", v, "byte", MEASURED, path) for n, v in seen.buckets.items()]
        answer.notes.append(f"what was allocated when the snapshot was taken is nearest to the {moment.name}")
        _advise(answer, seen)
    answer.terms = (*answer.terms, *measured)
    answer.rows, answer.rows_name = [row.row() for row in rows], "seen"
    answer.extra["columns"] = {"seen": "byte", "predicted": "byte", "unexplained": "byte"}
    return answer


def place(value: Number, ends: tuple[Number, Number]) -> str:
    """Return where a value lies: inside, above or below an interval."""
    low, high = ends
    return "inside" if low <= value <= high else "above" if value > high else "below"


def _advise(answer: Answer, seen: Snapshot) -> None:
    """Note how to take a snapshot that shows more."""
    if not seen.recorded:
        answer.notes.append("no stacks: torch.cuda.memory._record_memory_history() before the model is made gives them")
    elif not seen.traced:
        answer.notes.append("no trace: the largest figures are those when the snapshot was taken")
    elif seen.buckets is not None and seen.buckets.get("unexplained", 0) > seen.buckets.get("parameters", 0):
        answer.notes.append("much was allocated before recording began: start it before the model is made")


def _by_bucket(when: str, seen: dict[str, int], moment: Moment) -> list[Difference]:
    """Return rows for each category, for allocations without a known stack, and for the total."""
    rows = []
    for bucket, parts in OURS.items():
        predicted = sum(getattr(moment, part) for part in parts)
        if TEMPORARIES[moment.name] == bucket:
            predicted += moment.temporaries
        rows.append(Difference(f"{bucket} {when}", seen.get(bucket, 0), predicted))
    rows.append(Difference(f"unexplained {when}", seen.get("unexplained", 0), 0))
    return [*rows, Difference(f"all {when}", sum(seen.values()), _plain(moment.live))]


@record
class Difference:
    """Measured and predicted bytes of a peak figure, or of a category at an instant."""

    what: str
    seen: int
    predicted: int | float

    @property
    def unexplained(self) -> float:
        return self.seen - self.predicted

    @property
    def error(self) -> float | None:
        """Return measured over predicted, less one; None if nothing is predicted."""
        return self.seen / self.predicted - 1 if self.predicted else None

    def row(self) -> Row:
        """Return the row of the answer."""
        figures = {"seen": self.seen, "predicted": self.predicted, "unexplained": self.unexplained}
        return {"what": self.what, **figures, "error": self.error}


def _plain(value: Number) -> int | float:
    """Return the bytes of one layout as a Python number."""
    return value if isinstance(value, (int, float)) else float(value)


def _nearest(moments: tuple[Moment, ...], allocated: int) -> Moment:
    return min(moments, key=lambda moment: abs(float(moment.live) - allocated))
