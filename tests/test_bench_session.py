"""What happens around the measurements: statuses, resuming, interruption, limits, verdicts. On a fake device."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest

from napkin.bench import modes
from napkin.bench.bandwidth import host, memory
from napkin.bench.device import DeviceLost, MatmulSpec, Occupancy, OutOfMemory, Sample
from napkin.bench.matmul import Matmuls
from napkin.bench.measurement import Measurement
from napkin.bench.progress import Store
from napkin.bench.session import Param, Session, resumable
from napkin.bench.verdicts import IMPOSSIBLE, mfu_verdict, verdict, warnings
from napkin.errors import NapkinError
from napkin.inputs.profile import Profile, read_profile
from napkin.inputs.profile_cases import (
    INTERRUPTED,
    KIND,
    OK,
    OOM,
    SCHEMA,
    SKIPPED,
    UNSUPPORTED,
    DeviceInfo,
    Peak,
    ProfiledDevice,
)
from napkin.inputs.profile_summary import summarize
from tests.fake_device import FakeDevice

PEAKS = {"bf16": Peak(989e12, "datasheet"), "fp8_e4m3": Peak(1979e12, "datasheet")}


def header(fake: FakeDevice, **changes: Any) -> Profile:
    profile = Profile(
        napkin=1,
        kind=KIND,
        schema=SCHEMA,
        complete=False,
        created="2026-11-21T09:00:00Z",
        elapsed_s=0.0,
        command=["bench"],
        mode="default",
        seed=0,
        data="normal",
        method="fake",
        device=ProfiledDevice(**asdict(fake.info)),
        software={"torch": "2.13.0", "driver": "570"},
        environment={},
        peaks=PEAKS,
        cases=[],
        summary=summarize([], {}),
    )
    return replace(profile, **changes)


def session_on(device: FakeDevice, path: str | None = None, **options: Any) -> Session:
    return Session(device, header(device), None if path is None else Store(path), **options)


def constant(seconds: float = 1e-3) -> Any:
    return lambda: Measurement(unit="second", values=[seconds] * 5)


# --- a whole run ---------------------------------------------------------------------------------------------------


def measure_all(session: Session) -> None:
    matmuls = Matmuls(session, modes.DEFAULT)
    for dtype in ("bf16", "fp8_e4m3", "nvfp4"):
        matmuls.dtype(dtype)
    memory(session, modes.DEFAULT, 4.8e12)
    host(session, modes.DEFAULT)


def test_a_whole_run_finds_the_best_shape_and_writes_a_profile_that_reads_back(tmp_path: Any) -> None:
    """The fake's best shape is off the grid's depths, so the search needs its walk along k."""

    def seconds(spec: MatmulSpec, at: float) -> float:
        rate = {"bf16": 750e12, "fp8_e4m3": 1350e12}[spec.dtype]
        loss = abs(spec.k - 7168) / 7168 * 0.05 + (0.0 if (spec.m, spec.n) == (1536, 2816) else 0.03)
        return spec.flops / (rate * max(0.1, 1 - loss))

    device = FakeDevice(seconds)
    path = str(tmp_path / "p.json")
    session = session_on(device, path)
    measure_all(session)
    session.write(complete=True)
    profile = read_profile(path)
    rows = profile.summary["matmul"]
    assert rows["bf16"]["sustained"] == pytest.approx(750e12)
    assert rows["bf16"]["sustained_shape"] == {"m": 1536, "k": 7168, "n": 2816}
    assert rows["bf16"]["of_peak"] == pytest.approx(750 / 989)
    assert rows["fp8_e4m3"]["sustained"] == pytest.approx(1350e12)
    statuses = {case.id: case.status for case in profile.cases}
    assert statuses["matmul/nvfp4/anchor/8192x8192x8192"] == UNSUPPORTED
    assert {v for k, v in statuses.items() if "variant" in k} == {OK}
    assert statuses["host/both_pageable/256MiB"] == UNSUPPORTED if "host/both_pageable/256MiB" in statuses else True
    assert profile.summary["memory"]["copy"] == pytest.approx(4.2e12)
    assert profile.summary["host"]["h2d_pinned"] == pytest.approx(55e9)
    assert profile.summary["host"]["both_pinned"] == pytest.approx(110e9)
    assert verdict(profile) == "healthy"
    assert os.path.getsize(path) < 200_000
    held = next(c for c in profile.cases if c.sustained)
    assert held.telemetry is not None
    assert held.telemetry.reasons == {"sw_power_cap": 1.0}
    assert held.figures["joules_per_flop"] == pytest.approx(700 / 750e12, rel=1e-3)


def test_the_searchs_best_is_within_one_per_cent_of_the_whole_grid() -> None:
    """A landscape with noise-free ripples: the race must not lose the best shape in its short first rounds."""
    from napkin.bench.shapes import candidates

    def rate(m: int, k: int, n: int) -> float:
        return 700e12 * (1 + 0.05 * ((m * 7 + k * 13 + n * 17) % 1009) / 1009)

    device = FakeDevice(lambda spec, at: spec.flops / rate(spec.m, spec.k, spec.n))
    session = session_on(device)
    best = Matmuls(session, modes.DEFAULT).search("bf16")[0]
    assert rate(*best) >= 0.99 * max(rate(*shape) for shape in candidates(132))


def test_the_anchor_divides_the_clocks_drift_out() -> None:
    """A device that slows down by a third during the race still ranks the shapes rightly."""

    def seconds(spec: MatmulSpec, at: float) -> float:
        quality = 1.0 if (spec.m, spec.k, spec.n) == (2816, 4096, 1536) else 0.9
        return spec.flops / (750e12 * quality) * (1 + at / 30)

    session = session_on(FakeDevice(seconds, sensors=lambda at: Sample(at, 1900 / (1 + at / 30), 700.0, 60.0, 0x4)))
    mode = replace(modes.DEFAULT, walk=False)
    assert Matmuls(session, mode).search("bf16")[0] == (2816, 4096, 1536)
    profile = session.write(complete=True)
    assert profile.cases[0].flags == ["clock_moved"]  # the sensors explain it
    assert "contended" not in profile.flags


def test_a_slow_down_that_no_sensor_explains_is_contention() -> None:
    session = session_on(FakeDevice(lambda spec, at: spec.flops / 750e12 * (1.0 if at < 6 else 1.5)))
    Matmuls(session, replace(modes.DEFAULT, walk=False)).search("bf16")
    assert "contended" in session.write(complete=True).flags


# --- statuses ------------------------------------------------------------------------------------------------------


def test_out_of_memory_is_a_status_and_the_run_goes_on() -> None:
    device = FakeDevice(fail=lambda spec: OutOfMemory("too big") if spec.m > 10000 else None)
    matmuls = Matmuls(session_on(device), modes.DEFAULT)
    assert matmuls.blocks(matmuls.spec("bf16", (20480, 64, 64)), "anchor", modes.DEVICE_TIMING).status == OOM
    assert matmuls.blocks(matmuls.spec("bf16", (4096, 4096, 4096)), "anchor", modes.DEVICE_TIMING).status == OK


def test_a_lost_device_ends_the_run_with_status_3_after_writing(tmp_path: Any) -> None:
    device = FakeDevice(fail=lambda spec: DeviceLost("CUDA error: an illegal memory access") if spec.m == 64 else None)
    path = str(tmp_path / "p.json")
    matmuls = Matmuls(session_on(device, path), modes.DEFAULT)
    matmuls.blocks(matmuls.spec("bf16", (4096, 4096, 4096)), "anchor", modes.DEVICE_TIMING)
    with pytest.raises(NapkinError) as raised:
        matmuls.blocks(matmuls.spec("bf16", (64, 64, 64)), "anchor", modes.DEVICE_TIMING)
    assert raised.value.status == 3
    assert [case.status for case in read_profile(path).cases] == [OK, "failed"]


def test_ctrl_c_marks_the_case_in_flight_and_keeps_the_rest(tmp_path: Any) -> None:
    path = str(tmp_path / "p.json")
    session = session_on(FakeDevice(), path)
    session.case("a", "memory", {"operation": "copy", "bytes": 1}, 0.0, constant())

    def interrupted() -> Measurement:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session.case("b", "memory", {"operation": "write", "bytes": 1}, 0.0, interrupted)
    profile = read_profile(path)
    assert [(c.id, c.status) for c in profile.cases] == [("a", OK), ("b", INTERRUPTED)]
    assert not profile.complete
    assert verdict(profile) == "incomplete"


Params = dict[str, Param]


def test_the_time_limit_skips_what_would_not_end_within_it() -> None:
    device = FakeDevice()
    session = session_on(device, time_limit=10.0)
    params: Params = {"operation": "copy", "bytes": 1}
    assert session.case("a", "memory", params, 8.0, constant()).status == OK
    device.host += 8.0
    late = session.case("b", "memory", params, 8.0, constant())
    assert (late.status, late.reason) == (SKIPPED, "time limit")
    assert session.case("c", "memory", params, 1.0, constant()).status == OK


def test_an_error_of_the_library_fails_its_case_alone() -> None:
    def broken() -> Measurement:
        raise RuntimeError("cuDNN has no kernel for this\nand a long trace")

    case = session_on(FakeDevice()).case("a", "train", {"operation": "x", "bytes": 1}, 0.0, broken)
    assert case.status == "failed"
    assert case.reason == "RuntimeError: cuDNN has no kernel for this"


# --- resuming ------------------------------------------------------------------------------------------------------


def test_resume_keeps_what_is_final_and_measures_the_rest(tmp_path: Any) -> None:
    path = str(tmp_path / "p.json")
    session = session_on(FakeDevice(), path)
    params: Params = {"operation": "copy", "bytes": 1}
    session.case("done", "memory", params, 0.0, constant())
    with pytest.raises(KeyboardInterrupt):
        session.case("cut", "memory", params, 0.0, lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    device = FakeDevice()
    again = session_on(device, path, previous=resumable(path, header(device)))
    ran: list[str] = []

    def tracked(name: str) -> Any:
        outcome: Callable[[], Measurement] = constant()

        def measure() -> Measurement:
            ran.append(name)
            return outcome()

        return measure

    for name in ("done", "cut", "new"):
        again.case(name, "memory", params, 0.0, tracked(name))
    assert ran == ["cut", "new"]
    changed: Params = {"operation": "copy", "bytes": 2}
    again.case("done", "memory", changed, 0.0, tracked("other parameters"))
    assert ran[-1] == "other parameters"


@pytest.mark.parametrize(
    "change",
    [
        {"software": {"torch": "2.14.0", "driver": "570"}},
        {"software": {"torch": "2.13.0", "driver": "575"}},
        {"data": "zeros"},
        {"device": ProfiledDevice("cuda", "Another GPU", 1)},
        {"world": 8},
    ],
)
def test_another_machines_profile_is_not_resumed(tmp_path: Any, change: dict[str, Any]) -> None:
    path = str(tmp_path / "p.json")
    session_on(FakeDevice(), path).write(complete=True)
    assert resumable(path, header(FakeDevice())) is not None
    assert resumable(path, header(FakeDevice(), **change)) is None


def test_a_missing_profile_resumes_as_a_fresh_run(tmp_path: Any) -> None:
    assert resumable(str(tmp_path / "none.json"), header(FakeDevice())) is None


# --- files ---------------------------------------------------------------------------------------------------------


def test_an_unwritable_profile_is_found_before_measuring(tmp_path: Any) -> None:
    for bad in (tmp_path, tmp_path / "no" / "such" / "folder" / "p.json"):
        with pytest.raises(NapkinError) as raised:
            Store(str(bad)).prepare()
        assert raised.value.status == 2


def test_stale_temporaries_of_the_same_profile_are_removed(tmp_path: Any) -> None:
    stale, other = tmp_path / ".p.json.4711.tmp", tmp_path / ".q.json.4711.tmp"
    stale.write_text("{")
    other.write_text("{")
    store = Store(str(tmp_path / "p.json"))
    store.prepare()
    assert not stale.exists()
    assert other.exists()
    assert not (tmp_path / "p.json").exists()


def test_a_profile_holds_no_nan(tmp_path: Any) -> None:
    path = str(tmp_path / "p.json")
    session = session_on(FakeDevice(), path)
    nan = float("nan")
    with pytest.raises(ValueError, match="JSON"):
        session.case(
            "a",
            "memory",
            {"operation": "copy", "bytes": 1},
            0.0,
            lambda: Measurement("second", [1.0], figures={"x": nan}),
        )


# --- judgement -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mask", "flag", "word"),
    [
        (0x4, None, "healthy"),
        (0x20, "thermal", "throttled"),
        (0x40, "unhealthy", "unhealthy"),
        (0x80, "unhealthy", "unhealthy"),
        (0x8, "unhealthy", "unhealthy"),
    ],
)
def test_reasons_of_a_lowered_clock(mask: int, flag: str | None, word: str) -> None:
    device = FakeDevice(sensors=lambda at: Sample(at, 1500.0, 600.0, 80.0, mask))
    session = session_on(device)
    case = Matmuls(session, modes.DEFAULT).sustained("bf16", (8192, 8192, 8192))
    assert (flag in case.flags) if flag else case.flags == []
    assert verdict(session.write(complete=True)) == word


def test_a_low_clock_without_a_reason_is_flagged() -> None:
    device = FakeDevice(sensors=lambda at: Sample(at, 1400.0, 400.0, 50.0, 0x100))
    case = Matmuls(session_on(device), modes.DEFAULT).sustained("bf16", (8192, 8192, 8192))
    assert "low_clock" in case.flags


def test_missing_sensors_are_null_not_zero() -> None:
    device = FakeDevice(sensors=lambda at: Sample(at))
    case = Matmuls(session_on(device), modes.DEFAULT).sustained("bf16", (8192, 8192, 8192))
    assert case.telemetry is not None
    assert case.telemetry.power_w is None
    assert case.telemetry.reasons == {}


@pytest.mark.parametrize(
    ("others", "contended"),
    [
        (Occupancy(0, 0.0, 0), False),
        (Occupancy(None, None, None), False),
        (Occupancy(1, 0.0, 0), True),
        (Occupancy(None, None, 3 << 30), True),  # a container hides the process, not its memory
        (Occupancy(0, 0.5, 0), True),
    ],
)
def test_who_else_is_on_the_device(others: Occupancy, contended: bool) -> None:
    session = session_on(FakeDevice(occupancy=others))
    session.check_alone()
    assert ("contended" in session.write(complete=True).flags) is contended


def test_contention_within_a_case_is_seen_from_its_blocks() -> None:
    """Another process takes the device for half of the blocks."""
    calls = [0]

    def seconds(spec: MatmulSpec, at: float) -> float:
        calls[0] += 1
        return spec.flops / 750e12 * (1.4 if calls[0] % 40 < 20 else 1.0)

    matmuls = Matmuls(session_on(FakeDevice(seconds)), modes.DEFAULT)
    case = matmuls.blocks(matmuls.spec("bf16", (8192, 8192, 8192)), "anchor", modes.DEVICE_TIMING)
    assert "contended" in case.flags


def test_faster_than_the_datasheets_memory_is_suspect_and_no_headline() -> None:
    session = session_on(FakeDevice())
    memory(session, modes.QUICK, 4.0e12, ("copy",))  # the fake copies at 4.2
    profile = session.write(complete=True)
    assert profile.summary["memory"]["copy"] is None
    assert any("suspect" in text for text in warnings(profile))


def test_buffers_within_eight_caches_are_not_measured() -> None:
    session = session_on(FakeDevice(info=DeviceInfo("rocm", "MI300X", 192 << 30, 304, 256 << 20)))
    memory(session, modes.QUICK, None, ("copy",))  # 1 GiB is four caches
    assert session.write(complete=True).cases == []


@pytest.mark.parametrize(
    ("mfu", "word"),
    [
        (0.62, "good"),
        (0.5, "good"),
        (0.45, "fine"),
        (0.3, "can improve"),
        (0.05, "poor: look for the bottleneck"),
        (0.049, "something is wrong"),
        (1.02, IMPOSSIBLE),
    ],
)
def test_the_verdict_on_an_mfu(mfu: float, word: str) -> None:
    assert mfu_verdict(mfu) == word


def test_an_mfu_above_what_the_machine_sustains_is_no_compliment() -> None:
    assert mfu_verdict(0.9, sustained_share=0.76) == IMPOSSIBLE


def test_a_figure_above_the_peak_is_warned_about() -> None:
    session = session_on(FakeDevice(lambda spec, at: spec.flops / 1500e12))
    Matmuls(session, modes.DEFAULT).anchor("bf16")
    assert any("above the datasheet" in text for text in warnings(session.write(complete=True)))


def test_the_profile_is_plain_json_with_stable_keys(tmp_path: Any) -> None:
    path = str(tmp_path / "p.json")
    session = session_on(FakeDevice(), path)
    Matmuls(session, modes.DEFAULT).anchor("bf16")
    data = json.loads((tmp_path / "p.json").read_text())
    assert list(data) == [
        "napkin", "kind", "schema", "complete", "created", "elapsed_s", "command", "mode", "seed", "data", "method",
        "device", "software", "environment", "peaks", "cases", "summary", "world", "ranks", "flags", "notes",
    ]  # fmt: skip
    assert list(data["cases"][0]) == [
        "id", "group", "status", "params", "reason", "value", "figures", "sustained", "telemetry", "flags", "started",
        "elapsed_s",
    ]  # fmt: skip
    assert list(data["summary"]) == ["matmul", "memory", "host", "train", "collectives"]
