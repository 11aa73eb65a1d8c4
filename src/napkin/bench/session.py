"""One benchmark run: each case measured, judged, and written to the profile before the next one starts.

The file is replaced atomically after every case, so that a kill at any moment loses the case in flight and no more;
`--resume` takes up what is there. On several ranks all measure together and rank 0 alone writes.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import FrameType
from typing import Any, TextIO

from napkin.bench.device import (
    CLOCK_REASONS,
    THERMAL_REASONS,
    UNHEALTHY_REASONS,
    Device,
    DeviceLost,
    OutOfMemory,
    Unsupported,
    Watch,
)
from napkin.bench.stats import median, noisy, spread
from napkin.bench.team import Alone, Team
from napkin.errors import REFUSED, NapkinError
from napkin.inputs.profile import Profile, read_profile
from napkin.inputs.profile_cases import (
    FAILED,
    FINAL,
    INTERRUPTED,
    OK,
    OOM,
    SKIPPED,
    UNSUPPORTED,
    Case,
    OverRanks,
    Range,
    Sustained,
    Telemetry,
    Value,
)
from napkin.inputs.profile_summary import summarise

FIRST_BLOCK = 1.1  # a first block this much slower than the median: the warm-up was too short
IDLE_UTILISATION = 0.05
LOW_CLOCK = 0.9  # of the maximum, without a power or thermal reason


Param = str | int | float | bool | None


class Terminated(BaseException):
    """SIGTERM: the run ends as on Ctrl-C, with another status."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What measuring one case gave: the figure of each block in order, and whatever else belongs to it."""

    unit: str
    values: Sequence[float]
    calls: int = 1
    launch_bound: bool = False
    center: float | None = None  # the case's figure where it is not the median of the blocks
    figures: Mapping[str, float | None] = field(default_factory=dict)
    sustained: Sustained | None = None
    watch: Watch = field(default_factory=Watch)
    flags: Sequence[str] = ()

    def value(self) -> Value:
        s = spread(self.values)
        middle = s.median if self.center is None else min(max(self.center, s.min), s.max)
        measured = asdict(replace(s, median=middle))
        return Value(**measured, unit=self.unit, calls=self.calls, launch_bound=self.launch_bound)


def telemetry(watch: Watch) -> Telemetry | None:
    """The samples in short; None where there are none."""
    samples = watch.samples
    if not samples:
        return None

    def over(values: list[float | None]) -> Range | None:
        known = [v for v in values if v is not None]
        return Range(sum(known) / len(known), min(known), max(known)) if known else None

    masks = [s.reasons for s in samples if s.reasons is not None]
    shares = {
        name: sum(bool(mask & bit) for mask in masks) / len(masks) for bit, name in CLOCK_REASONS.items() if masks
    }
    return Telemetry(
        samples=len(samples),
        sm_clock_mhz=over([s.sm_clock_mhz for s in samples]),
        power_w=over([s.power_w for s in samples]),
        temperature_c=over([s.temperature_c for s in samples]),
        energy_j=watch.energy_j,
        reasons={name: share for name, share in shares.items() if share > 0},
    )


def judge(outcome: Outcome, seen: Telemetry | None, clock_max_mhz: int | None) -> list[str]:
    """Flags of one case: what a reader has to know before trusting the figure."""
    flags = list(outcome.flags)
    slowness = [1 / v for v in outcome.values] if outcome.unit != "second" else list(outcome.values)
    if len(slowness) > 2 and slowness[0] > FIRST_BLOCK * median(slowness[1:]):
        flags.append("slow_first_block")
    if noisy(outcome.values):
        flags.append("contended")
    if spread(outcome.values).outliers:
        flags.append("outliers")
    if outcome.launch_bound:
        flags.append("launch_bound")
    if outcome.sustained is not None and not outcome.sustained.steady:
        flags.append("unsteady")
    if seen is not None:
        if UNHEALTHY_REASONS & seen.reasons.keys():
            flags.append("unhealthy")
        if THERMAL_REASONS & seen.reasons.keys():
            flags.append("thermal")
        capped = (THERMAL_REASONS | UNHEALTHY_REASONS | {"sw_power_cap", "application_clocks"}) & seen.reasons.keys()
        clock = seen.sm_clock_mhz
        if outcome.sustained is not None and clock and clock_max_mhz and not capped and seen.reasons:
            flags += ["low_clock"] if clock.mean < LOW_CLOCK * clock_max_mhz else []
    return list(dict.fromkeys(flags))


class Progress:
    """On a terminal one line, rewritten at most ten times a second; elsewhere a plain line per finished group."""

    def __init__(self, stream: TextIO, planned: float, quiet: bool) -> None:
        self._stream = stream
        self._planned = planned
        self._quiet = quiet
        self._live = not quiet and stream.isatty()
        self._started = time.monotonic()
        self._shown = 0.0
        self._group = ""

    def note(self, what: str) -> None:
        now = time.monotonic()
        if self._live and now - self._shown >= 0.1:
            self._shown = now
            spent = _clock(now - self._started)
            self._stream.write(f"\r\x1b[K{what[:70]}  {spent} of ≈ {_clock(self._planned)}")
            self._stream.flush()

    def group(self, name: str) -> None:
        """A new group of cases begins."""
        if name != self._group:
            self.finish_group()
            self._group = name

    def finish_group(self) -> None:
        if self._group and not self._live and not self._quiet:
            self._stream.write(f"bench: {self._group} measured, {_clock(time.monotonic() - self._started)}\n")
            self._stream.flush()
        self._group = ""

    def close(self) -> None:
        self.finish_group()
        if self._live:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


class Store:
    """The profile's file, replaced atomically."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._folder = os.path.dirname(path) or "."
        self._prefix = f".{os.path.basename(path)}."

    def prepare(self) -> None:
        """Fail before measuring where the file could not be written; remove what a killed run left."""
        if self.path == "-":
            raise NapkinError("-o: the profile is a file, replaced after every case", "name one: -o profile.json")
        if os.path.isdir(self.path):
            raise NapkinError(f"{self.path}: is a directory", "name a file: -o profile.json")
        try:
            for name in os.listdir(self._folder):
                if name.startswith(self._prefix) and name.endswith(".tmp"):
                    os.unlink(os.path.join(self._folder, name))
            probe = self._temporary()
            with open(probe, "w", encoding="utf-8"):
                pass
            os.unlink(probe)
        except OSError as error:
            raise NapkinError(
                f"{self.path}: cannot be written: {error.strerror}",
                "name a file that can be written: -o FILE",
            ) from None

    def _temporary(self) -> str:
        return os.path.join(self._folder, f"{self._prefix}{os.getpid()}.tmp")

    def write(self, profile: Profile) -> None:
        text = json.dumps(asdict(profile), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        temporary = self._temporary()
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path)


class Session:
    """The cases of one run, in order of priority."""

    def __init__(
        self,
        device: Device,
        profile: Profile,
        store: Store | None = None,
        *,
        team: Team | None = None,
        previous: Profile | None = None,
        time_limit: float | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.device = device
        self.profile = profile
        self.store = store
        self.team = team or Alone()
        self.progress = progress or Progress(sys.stderr, 0.0, quiet=True)
        self.time_limit = time_limit
        self._started = device.now()
        self._kept = {case.id: case for case in previous.cases} if previous else {}
        # what an earlier run measured stays in the profile, whether this run asks for it again or not
        self._cases = {name: case for name, case in self._kept.items() if case.status in FINAL}
        self.asked: set[str] = set()  # ids of the cases of this run
        self._ranks: dict[str, OverRanks] = dict(previous.ranks) if previous else {}
        self._flags: list[str] = []
        self._notes: list[str] = list(profile.notes)

    # --- a case ------------------------------------------------------------------------------------------------

    def case(
        self,
        case_id: str,
        group: str,
        params: Mapping[str, Param],
        seconds: float,
        measure: Callable[[], Outcome],
    ) -> Case:
        """Measure one case, or keep what an earlier run measured, or skip it for want of time."""
        self.progress.group(group)
        self.progress.note(case_id)
        kept, skip = self.team.broadcast(self._decide(case_id, params, seconds))
        if kept is not None:
            return self._store(kept)
        case = Case(id=case_id, group=group, status=SKIPPED, params=dict(params), reason=skip, started=now())
        if skip is not None:
            return self._store(case)
        started = self.device.now()
        try:
            case = self._measured(case, measure)
        except (KeyboardInterrupt, Terminated):
            self._store(replace(case, status=INTERRUPTED, reason="interrupted"))
            raise
        except DeviceLost as error:
            self._store(replace(case, status=FAILED, reason=str(error)))
            raise NapkinError(
                f"the device was lost in {case_id}: {error}",
                "what was measured is in the profile; look at the driver's log, then bench --resume",
                REFUSED,
            ) from error
        case = replace(case, elapsed_s=self.device.now() - started)
        self._compare_ranks(case)
        return self._store(self.team.broadcast(case))

    def skip(self, case_id: str, group: str, params: Mapping[str, Param], reason: str) -> Case:
        """A case that has no figure here, and why."""
        return self._store(
            Case(id=case_id, group=group, status=SKIPPED, params=dict(params), reason=reason, started=now())
        )

    def _decide(self, case_id: str, params: Mapping[str, Any], seconds: float) -> tuple[Case | None, str | None]:
        old = self._kept.get(case_id)
        if old is not None and old.status in FINAL and old.params == dict(params):
            return old, None
        if self.time_limit is not None and self.device.now() - self._started + seconds > self.time_limit:
            return None, "time limit"
        return None, None

    def _measured(self, case: Case, measure: Callable[[], Outcome]) -> Case:
        try:
            outcome = measure()
        except Unsupported as error:
            return replace(case, status=UNSUPPORTED, reason=str(error))
        except OutOfMemory as error:
            self.device.release()
            return replace(case, status=OOM, reason=str(error))
        except (RuntimeError, MemoryError) as error:
            known = self.device.explain(error)
            if isinstance(known, OutOfMemory):
                self.device.release()
                return replace(case, status=OOM, reason=str(known))
            if isinstance(known, DeviceLost):
                raise known from error
            return replace(case, status=FAILED, reason=f"{type(error).__name__}: {str(error).splitlines()[0]}"[:500])
        seen = telemetry(outcome.watch)
        return replace(
            case,
            status=OK,
            value=outcome.value(),
            figures=dict(outcome.figures),
            sustained=outcome.sustained,
            telemetry=seen,
            flags=judge(outcome, seen, self.device.info.sm_clock_max_mhz),
        )

    def _compare_ranks(self, case: Case) -> None:
        if self.team.world == 1:
            return
        own = None if case.value is None else case.value.median
        rates = [rate for rate in self.team.gather(own) if rate is not None]
        if case.value is not None and rates:
            self._ranks[case.id] = OverRanks(case.value.unit, min(rates), median(rates), max(rates))

    def _store(self, case: Case) -> Case:
        self.asked.add(case.id)
        self._cases.pop(case.id, None)
        self._cases[case.id] = case
        self.write(complete=False)
        return case

    # --- the whole ---------------------------------------------------------------------------------------------

    def flag(self, name: str, note: str) -> None:
        """Something that holds for the whole run."""
        if name not in self._flags:
            self._flags.append(name)
            self._notes.append(note)

    def note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)

    def current(self, complete: bool) -> Profile:
        cases = list(self._cases.values())
        raised = [flag for flag in ("contended", "unhealthy", "thermal") if any(flag in c.flags for c in cases)]
        return replace(
            self.profile,
            complete=complete,
            elapsed_s=self.device.now() - self._started,
            cases=cases,
            summary=summarise(cases, self.profile.peaks),
            ranks=self._ranks,
            flags=list(dict.fromkeys([*self._flags, *raised])),
            notes=self._notes,
        )

    def write(self, complete: bool) -> Profile:
        profile = self.current(complete)
        if self.store is not None and self.team.rank == 0:
            self.store.write(profile)
        return profile

    def check_alone(self) -> None:
        """Ask before the first case whether anything else uses the device."""
        others = self.device.occupancy()
        if others.other_processes:
            self.flag("contended", f"{others.other_processes} other processes compute on this device")
        elif others.unexplained_bytes:
            self.flag("contended", f"{others.unexplained_bytes >> 20} MiB of device memory belong to something else")
        elif others.utilisation is not None and others.utilisation > IDLE_UTILISATION:
            self.flag("contended", f"the device was {others.utilisation:.0%} busy before the run began")


def now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def resumable(path: str, profile: Profile) -> Profile | None:
    """An earlier profile of the same device and software in `path`; None where there is none or it is another's."""
    if not os.path.exists(path):
        return None
    old = read_profile(path)
    same = all(old.software.get(name) == profile.software.get(name) for name in ("torch", "driver"))
    identity = (old.device.kind, old.device.name, old.device.uuid_hash, old.data, old.world)
    return (
        old
        if same
        and identity
        == (profile.device.kind, profile.device.name, profile.device.uuid_hash, profile.data, profile.world)
        else None
    )


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM ends the run as Ctrl-C does: the case in flight is marked, the file written."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
