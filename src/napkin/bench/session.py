"""One benchmark run: each case measured, judged, and written to the profile before the next one starts.

The file is replaced atomically after every case, so that a kill at any moment loses the case in flight and no more;
`--resume` takes up what is there. On several ranks all measure together and rank 0 alone writes.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import FrameType

from napkin.bench.device import (
    Device,
    DeviceLost,
    OutOfMemory,
    Unsupported,
)
from napkin.bench.measurement import Measurement, judge, telemetry
from napkin.bench.progress import BenchProgress, Store
from napkin.bench.stats import median
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
)
from napkin.inputs.profile_summary import summarize

IDLE_UTILIZATION = 0.05


Param = str | int | float | bool | None


class Terminated(BaseException):
    """SIGTERM: the run ends as on Ctrl-C, with another status."""


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
        progress: BenchProgress | None = None,
    ) -> None:
        self.device = device
        self.profile = profile
        self.store = store
        self.team = team or Alone()
        self.progress = progress or BenchProgress(sys.stderr, 0.0, quiet=True)
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
        measure: Callable[[], Measurement],
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
        """Record a case that has no figure here, and why."""
        return self._store(
            Case(id=case_id, group=group, status=SKIPPED, params=dict(params), reason=reason, started=now())
        )

    def _decide(self, case_id: str, params: Mapping[str, object], seconds: float) -> tuple[Case | None, str | None]:
        old = self._kept.get(case_id)
        if old is not None and old.status in FINAL and old.params == dict(params):
            return old, None
        if self.time_limit is not None and self.device.now() - self._started + seconds > self.time_limit:
            return None, "time limit"
        return None, None

    def _measured(self, case: Case, measure: Callable[[], Measurement]) -> Case:
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
        """Record something that holds for the entire run."""
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
            summary=summarize(cases, self.profile.peaks),
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
        elif others.utilization is not None and others.utilization > IDLE_UTILIZATION:
            self.flag("contended", f"the device was {others.utilization:.0%} busy before the run began")


def now() -> str:
    """Return the time in UTC as profiles print it."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def resumable(path: str, profile: Profile) -> Profile | None:
    """Return the earlier profile in `path`; None if there is none or its device or software differ."""
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
    """End the run on SIGTERM as on Ctrl-C: the case in flight is marked, the file written."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
