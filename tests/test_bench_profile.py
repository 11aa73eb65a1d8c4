"""Reading a profile: its form, its arithmetic, the rates that the calculator takes, and what bad files say."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from napkin.bench import modes
from napkin.bench.bandwidth import host, memory
from napkin.bench.compare import DIFFERENT, OTHER_GPU, SAME, compared
from napkin.bench.matmul import Matmuls
from napkin.bench.measurement import Measurement
from napkin.errors import NapkinError
from napkin.inputs.profile import Profile, profile_for, read_profile
from napkin.inputs.profile_cases import DeviceInfo
from napkin.inputs.profile_entry import hardware_entry, hardware_yaml
from napkin.inputs.profile_summary import alpha_beta, bus_factor
from tests.conftest import ROOT, run_line
from tests.fake_device import FakeDevice
from tests.test_bench_session import header, session_on

# One published NCCL all-reduce table, 8 H200 over NVLink with NVLS, 32 KiB to 16 GiB: (bytes, bus bandwidth GB/s).
H200_BUSBW = {1 << 20: 39.9, 32 << 20: 275.8, 512 << 20: 450.0, 16 << 30: 482.3}


def loaded(path: str) -> Any:
    with open(path) as file:
        return json.load(file)


# --- collectives' arithmetic ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "two", "eight", "thirty_two"),
    [
        ("all_reduce", 1.0, 1.75, 1.9375),
        ("all_gather", 0.5, 0.875, 0.96875),
        ("reduce_scatter", 0.5, 0.875, 0.96875),
        ("all_to_all", 0.5, 0.875, 0.96875),
        ("send_recv", 1.0, 1.0, 1.0),
    ],
)
def test_bus_factors(operation: str, two: float, eight: float, thirty_two: float) -> None:
    assert [bus_factor(operation, n) for n in (2, 8, 32)] == [two, eight, thirty_two]


@given(st.floats(1e-6, 1e-2), st.floats(1e9, 1e12), st.sampled_from([0.5, 0.875, 1.75]))
def test_the_fit_recovers_latency_and_bandwidth(alpha: float, bandwidth: float, factor: float) -> None:
    points = [(float(1 << p), alpha + (1 << p) * factor / bandwidth) for p in range(15, 35)]
    fit = alpha_beta(points, factor)
    assert fit is not None
    assert fit.busbw == pytest.approx(bandwidth, rel=1e-6)
    assert fit.alpha_s == pytest.approx(alpha, rel=1e-6)
    assert fit.worst_error < 1e-6


def test_relative_errors_keep_the_latency_positive() -> None:
    """A link that gets better with size, as real ones do: least squares of plain errors would make α negative."""
    points = [(float(s), s * 1.75 / (rate * 1e9)) for s, rate in H200_BUSBW.items()]
    fit = alpha_beta(points, 1.75)
    assert fit is not None
    assert 20e-6 < fit.alpha_s < 60e-6
    assert 400e9 < fit.busbw < 500e9
    n, sx, sy = len(points), sum(s for s, _ in points), sum(t for _, t in points)
    sxx, sxy = sum(s * s for s, _ in points), sum(s * t for s, t in points)
    plain = sy / n - (n * sxy - sx * sy) / (n * sxx - sx * sx) * sx / n
    first = points[0][1]
    assert abs(plain / first - 1) > abs(fit.alpha_s / first - 1) or plain < 0


def test_one_size_determines_no_fit() -> None:
    assert alpha_beta([(1024.0, 1e-3)], 1.75) is None
    assert alpha_beta([(1024.0, 1e-3), (2048.0, 1e-3)], 0.0) is None


# --- a good file ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def profile_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small complete profile of a fake H200."""
    return write(str(tmp_path_factory.mktemp("profile") / "p.json"))


def write(
    path: str, rate: float = 750e12, bandwidth: float = 1.0, name: str = "Fake H200", uuid: str | None = None
) -> str:
    info = DeviceInfo(
        "cuda", name, 140 << 30, 132, 50 << 20, (9, 0), uuid_hash=uuid, power_limit_w=700.0, count_visible=8
    )
    device = FakeDevice(lambda spec, at: spec.flops / rate, info=info)
    session = session_on(device, path)
    matmuls = Matmuls(session, modes.QUICK)
    matmuls.anchor("bf16")
    matmuls.sustained("bf16", (1536, 6144, 2816))
    memory(session, modes.QUICK, None)
    host(session, modes.QUICK)
    for operation in ("all_reduce", "all_gather"):
        for power in (20, 25, 30):
            size = 1 << power
            seconds = (40e-6 + size * bus_factor(operation, 8) / 450e9) / bandwidth
            session.case(
                f"collectives/all/{operation}/{size}",
                "collectives",
                {"operation": operation, "bytes": size, "ranks": 8, "world": 8, "scope": "all", "backend": "nccl"},
                0.0,
                lambda seconds=seconds: Measurement("second", [seconds] * 3),  # type: ignore[misc]
            )
    session.write(complete=True)
    return path


def test_the_rates_that_the_calculator_takes(profile_path: str) -> None:
    profile = read_profile(profile_path)
    assert profile.matmul_rate("bf16") == pytest.approx((750e12, "sustained"))
    assert profile.matmul_rate("fp16") is None
    assert profile.memory_bandwidth() == pytest.approx((4.2e12, "triad"))
    alpha, bandwidth = profile.link_rate("all_reduce") or (0.0, 0.0)
    assert (alpha, bandwidth) == pytest.approx((40e-6, 450e9))
    assert profile.link_rate("all_to_all") is None
    assert profile.link_rate("all_reduce", across=True) is None
    assert profile.notes_for_user() == []


def test_ranks_on_several_nodes_are_no_link_within_a_node(profile_path: str, tmp_path: Any) -> None:
    data = loaded(profile_path)
    data["device"]["count_visible"] = 4
    path = tmp_path / "p.json"
    path.write_text(json.dumps(data))
    assert read_profile(str(path)).link_rate("all_reduce") is None


def test_a_profile_is_used_for_its_own_accelerator_only(profile_path: str, tmp_path: Any) -> None:
    def asked(slug: str, **device: Any) -> Profile:
        data = loaded(profile_path)
        data["device"].update(device)
        path = tmp_path / "p.json"
        path.write_text(json.dumps(data))
        return profile_for(str(path), slug)

    assert asked("h200-sxm-141gb", hardware="h200-sxm-141gb").device.hardware == "h200-sxm-141gb"
    for hardware, device, said in (
        ("h100-sxm-80gb", {"hardware": "h200-sxm-141gb"}, "not on h100-sxm-80gb"),
        ("h200-sxm-141gb", {"hardware": None}, "no accelerator that napkin knows"),
        ("h200-sxm-141gb", {"kind": "cpu"}, "is not a GPU"),
    ):
        with pytest.raises(NapkinError) as raised:
            asked(hardware, **device)
        assert said in raised.value.message
        assert raised.value.status == 2


@pytest.mark.parametrize(
    "question", ["step llama3-8b --gpus 8", "plan llama3-8b --gpus 8", "roofline relu 1048576", "serve llama3-8b"]
)
def test_every_command_refuses_another_accelerators_profile(profile_path: str, question: str) -> None:
    outcome = run_line(f"{question} --hardware h100 --profile {profile_path}")
    assert outcome.status == 2
    assert "not on h100-sxm-80gb" in outcome.err


def test_the_slowest_rank_is_what_a_synchronous_job_gets(profile_path: str, tmp_path: Any) -> None:
    data = loaded(profile_path)
    data["world"] = 8
    data["ranks"] = {
        "matmul/bf16/sustained/1536x6144x2816": {"unit": "FLOP/s", "min": 7.2e14, "median": 7.4e14, "max": 7.5e14}
    }
    path = tmp_path / "p.json"
    path.write_text(json.dumps(data))
    assert read_profile(str(path)).matmul_rate("bf16") == (7.2e14, "sustained")


def test_a_hardware_entry_of_an_unknown_accelerator_reads_back(profile_path: str, tmp_path: Any) -> None:
    from napkin.inputs.hardware import find, shipped
    from napkin.inputs.hardware_file import merged

    profile = read_profile(profile_path)
    name, entry = hardware_entry(profile)
    assert name == "fake-h200"
    assert entry["peak_flops"]["bf16"] == pytest.approx(750e12)
    assert entry["assumed"] == ["peak_flops"]
    file = tmp_path / "mine.yaml"
    file.write_text(hardware_yaml(profile))
    known = find("fake-h200", merged(str(file), shipped()))
    assert known.generation == "hopper"  # from its compute capability
    assert known.peak("bf16") == pytest.approx(750e12)
    assert known.memory == 140 << 30
    assert known.memory_bandwidth == pytest.approx(4.2e12)
    assert known.tdp_w == 700


def test_the_hardware_command_makes_a_file_that_others_take(profile_path: str, tmp_path: Any) -> None:
    mine = str(tmp_path / "mine.yaml")
    assert run_line(["hardware", "--from-profile", profile_path, "-o", mine]).status == 0
    shown = run_line(["hardware", "fake-h200", "--hardware-file", mine, "--json"])
    assert shown.status == 0, shown.err
    assert shown.values["hardware/peak/bf16"] == pytest.approx(750e12)
    assert run_line(["hardware", "--from-profile", mine]).status == 2  # a YAML file is no profile


def test_a_known_accelerator_keeps_its_datasheets_peak(profile_path: str, tmp_path: Any) -> None:
    from napkin.inputs.hardware import find, shipped
    from napkin.inputs.hardware_file import merged

    data = loaded(profile_path)
    data["device"]["hardware"], data["device"]["hardware_origin"] = "h200-sxm-141gb", "matched by name"
    path, file = tmp_path / "p.json", tmp_path / "mine.yaml"
    path.write_text(json.dumps(data))
    file.write_text(hardware_yaml(read_profile(str(path))))
    before, after = find("h200", shipped()), find("h200", merged(str(file), shipped()))
    assert after.peaks == before.peaks
    assert after.memory_bandwidth == pytest.approx(4.2e12)


def test_no_hardware_entry_of_a_cpu(profile_path: str, tmp_path: Any) -> None:
    data = loaded(profile_path)
    data["device"]["kind"] = "cpu"
    path = tmp_path / "p.json"
    path.write_text(json.dumps(data))
    with pytest.raises(NapkinError, match="not of a GPU"):
        hardware_entry(read_profile(str(path)))


# --- bad files -----------------------------------------------------------------------------------------------------


def spoil(change: Callable[[Any], object]) -> Callable[[Any], Any]:
    def apply(data: Any) -> Any:
        result = change(data)
        return data if result is None else result

    return apply


BAD: list[tuple[str, Callable[[Any], Any], str]] = [
    ("not an object", lambda d: [], "is not a profile"),
    ("another kind", lambda d: {**d, "kind": "weights"}, "is not a profile"),
    ("a later schema", lambda d: {**d, "schema": 2}, "schema: is 2"),
    ("no schema", lambda d: {k: v for k, v in d.items() if k != "schema"}, "schema: is None"),
    ("an unknown field", lambda d: {**d, "extra": 1}, "extra"),
    ("a missing field", lambda d: {k: v for k, v in d.items() if k != "cases"}, "cases"),
    ("a wrong type", lambda d: {**d, "complete": "yes"}, "complete"),
    ("an edited summary", spoil(lambda d: d["summary"]["matmul"]["bf16"].update(sustained=9e14)), "sustained"),
    ("a summary too many", spoil(lambda d: d["summary"].update(more={})), "summary.more"),
    ("an unknown device kind", spoil(lambda d: d["device"].update(kind="tpu")), "device.kind"),
    ("a case twice", spoil(lambda d: d["cases"].append(d["cases"][0])), "appears twice"),
    ("an unknown status", spoil(lambda d: d["cases"][0].update(status="fine")), "cases.0.status"),
    ("ok without a value", spoil(lambda d: d["cases"][0].update(value=None)), "cases.0.value"),
    ("a negative rate", spoil(lambda d: d["cases"][0]["value"].update(min=-1.0)), "cases.0.value"),
    ("a peak of zero", spoil(lambda d: d["peaks"]["bf16"].update(dense_flops=0)), "peaks.bf16"),
    ("parameters gone", spoil(lambda d: d["cases"][0].update(params={})), "cases"),
    ("a text for a number", spoil(lambda d: d["cases"][0]["value"].update(median="1e15")), "median"),
]


@pytest.mark.parametrize(("what", "change", "said"), BAD, ids=[what for what, _, _ in BAD])
def test_a_spoilt_profile_is_refused_with_its_field(
    profile_path: str, tmp_path: Any, what: str, change: Callable[[Any], Any], said: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(change(loaded(profile_path))))
    with pytest.raises(NapkinError) as raised:
        read_profile(str(path))
    assert raised.value.status == 2
    assert said in raised.value.message
    assert raised.value.message.startswith(str(path))
    assert raised.value.hint


@pytest.mark.parametrize("text", ["", "{", "null", '{"kind": NaN}', '{"kind": 1, "kind": 2}', "[" * 200, "\x00"])
def test_what_is_no_json_is_refused(tmp_path: Any, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(NapkinError) as raised:
        read_profile(str(path))
    assert raised.value.status == 2


@given(st.integers(0, 10**9), st.sampled_from(["drop", "null", "text", "negative", "huge"]))
def test_no_spoilt_profile_ends_in_a_traceback(profile_path: str, seed: int, how: str) -> None:
    """One value anywhere in the file replaced: it is read or refused, nothing else."""
    data = loaded(profile_path)
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, value in list(items):
            places.append((node, key))
            walk(value)

    walk(data)
    node, key = random.Random(seed).choice(places)
    if how == "drop":
        del node[key]
    else:
        node[key] = {"null": None, "text": "x", "negative": -1, "huge": 10**40}[how]
    path = profile_path + ".spoilt"
    with open(path, "w") as file:
        json.dump(data, file)
    status = 2
    try:
        read_profile(path)
    except NapkinError as problem:
        status = problem.status
    assert status == 2


# --- comparing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "uuids", "word"),
    [
        (1.02, ("a", "a"), SAME),  # repeated runs of one GPU differ by as much
        (1.03, ("a", "a"), DIFFERENT),
        (1.04, ("a", "b"), OTHER_GPU),  # two GPUs of one node do too
        (1.06, ("a", "b"), DIFFERENT),
    ],
)
def test_which_differences_are_beyond_noise(tmp_path: Any, change: float, uuids: tuple[str, str], word: str) -> None:
    a = read_profile(write(str(tmp_path / "a.json"), uuid=uuids[0]))
    b = read_profile(write(str(tmp_path / "b.json"), rate=750e12 * change, uuid=uuids[1]))
    rows = {row["figure"]: row for row in compared(a, b)}
    assert rows["matmul/bf16/sustained"]["is"] == word
    assert rows["matmul/bf16/sustained"]["change"] == pytest.approx(change - 1)
    assert rows["memory/copy"]["is"] == SAME


def test_overlapping_blocks_are_noise_whatever_their_medians() -> None:
    def one(values: list[float]) -> Profile:
        session = session_on(FakeDevice())
        session.case("m", "memory", {"operation": "copy", "bytes": 1}, 0.0, lambda: Measurement("byte/s", values))
        return session.write(complete=True)

    (row,) = compared(one([1.0, 2.0, 3.0]), one([1.5, 2.5, 3.5]))
    assert row["change"] == pytest.approx(0.25)
    assert row["is"] == SAME


# --- kill -9 -------------------------------------------------------------------------------------------------------

VICTIM = """
import sys, time
sys.path.insert(0, sys.argv[3])
from napkin.bench.measurement import Measurement
from napkin.bench.progress import Store
from napkin.bench.session import resumable
from tests.test_bench_session import header, session_on
from tests.fake_device import FakeDevice
device = FakeDevice()
store = Store(sys.argv[1])
store.prepare()
session = session_on(device, sys.argv[1], previous=resumable(sys.argv[1], header(device)))
def measure(i):
    print(i, flush=True)
    time.sleep(float(sys.argv[2]))
    return Measurement("byte/s", [1.0 + i] * 3)
for i in range(40):
    session.case(f"case {i}", "memory", {"operation": "copy", "bytes": i}, 0.0, lambda: measure(i))
session.write(complete=True)
"""


KILLS = 3


def victim(path: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", VICTIM, path, "0.01", ROOT]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def test_kill_9_loses_only_the_case_in_flight(tmp_path: Any) -> None:
    """Killed at random moments again and again, each start resumes; every case is measured once, or once more when it
    was in flight."""
    path = str(tmp_path / "p.json")
    moments = random.Random(7)
    begun: list[int] = []
    for _ in range(KILLS):
        with victim(path) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            time.sleep(moments.uniform(0.0, 0.15))
            process.kill()
            begun += [int(line) for line in (first + process.stdout.read()).split()]
        if os.path.exists(path):
            partial = read_profile(path)  # whole at any moment
            assert not partial.complete or len(partial.cases) == 40
    with victim(path) as process:
        assert process.stdout is not None
        begun += [int(line) for line in process.stdout.read().split()]
    assert process.returncode == 0
    profile = read_profile(path)
    assert profile.complete
    assert sorted(case.id for case in profile.cases) == sorted(f"case {i}" for i in range(40))
    assert {case.status for case in profile.cases} == {"ok"}
    assert len(begun) - 40 <= KILLS
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]


def test_a_profile_is_a_dataclass_all_the_way_down(profile_path: str) -> None:
    assert json.loads(json.dumps(asdict(read_profile(profile_path)))) == loaded(profile_path)
    assert header(FakeDevice()).summary["collectives"] is None


def test_measured_rates_stand_among_the_inputs_with_their_origin(profile_path: str, tmp_path: Any) -> None:
    data = loaded(profile_path)
    data["device"]["hardware"], data["device"]["hardware_origin"] = "h200-sxm-141gb", "matched by name"
    mine = tmp_path / "h200.json"
    mine.write_text(json.dumps(data))
    line = ["roofline", "matmul", "8192x8192x8192", "--hardware", "h200", "--profile", str(mine), "--json"]
    outcome = run_line(line)
    assert outcome.status == 0, outcome.err
    assert outcome.data["inputs"]["matmul-rate"]["origin"] == "profile"
    assert outcome.data["inputs"]["matmul-rate"]["value"] == pytest.approx(750e12)
    assert outcome.data["inputs"]["memory-rate"]["origin"] == "profile"


def test_an_engine_runs_prompts_as_fast_as_the_products_that_were_measured(tmp_path: Any) -> None:
    """At half of the measured rate the linear layers of a long prompt take twice as long; decoding one sequence, which
    reads memory, takes as long as before."""
    found = []
    for rate in (600e12, 300e12):
        data = loaded(write(str(tmp_path / "any.json"), rate=rate))
        data["device"]["hardware"], data["device"]["hardware_origin"] = "h200-sxm-141gb", "matched by name"
        mine = tmp_path / f"{rate:g}.json"
        mine.write_text(json.dumps(data))
        outcome = run_line(f"serve llama3-8b --hardware h200 --isl 4096 --profile {mine} --json")
        assert outcome.status == 0, outcome.err
        found.append(outcome.data)
    fast, slow = found
    assert fast["inputs"]["memory-rate"]["origin"] == "profile"
    assert slow["values"]["serve/step"] == pytest.approx(fast["values"]["serve/step"])
    assert 1.7 < slow["values"]["serve/ttft"] / fast["values"]["serve/ttft"] < 2
