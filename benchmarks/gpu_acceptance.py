"""Does `napkin bench` tell the truth on this GPU? One command, under 8 minutes, a machine-readable verdict.

    python benchmarks/gpu_acceptance.py                  writes gpu-acceptance.json; exit status 0, 1 fail, 5 no GPU
    python benchmarks/gpu_acceptance.py --steps 1,3,8    some steps only
    python benchmarks/gpu_acceptance.py --rehearse       the same code on the CPU with tiny sizes; no figure is judged

Each step compares napkin with something independent of it: a plain timing loop, another tool's method, an exhaustive
sweep, torch's own allocator statistics. Figures with a range are judged on the GPU for which the range is known and
recorded on any other; agreements and orders are judged everywhere.

The runs of `napkin bench` that say whether it is alone come first, before this process has a context on the device:
from then on the driver lists it, and they would rightly call the device contended.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from types import FrameType
from typing import Any

from napkin.bench import modes, shapes
from napkin.bench.device import MatmulSpec, OutOfMemory, Unsupported
from napkin.bench.host_devices import CpuDevice
from napkin.bench.matmul import Matmuls
from napkin.bench.open_device import import_torch, open_device
from napkin.bench.run import matched
from napkin.bench.session import Session
from napkin.bench.stats import median
from napkin.bench.step_plan import StepPlan
from napkin.bench.timing import Hold, Timing, hold, time_blocks, time_many
from napkin.bench.torch_device import TorchDevice
from napkin.bench.train import train
from napkin.errors import NapkinError
from napkin.inputs.hardware import Hardware, shipped
from napkin.inputs.profile import Profile, read_profile
from napkin.inputs.profile_cases import OK, Case, ProfiledDevice
from napkin.inputs.profile_summary import summarize

BUDGET = 470.0
PASS, FAIL, RECORDED, SKIPPED = "pass", "fail", "recorded", "skipped"

RANGES: dict[str, dict[str, tuple[float, float]]] = {
    "h200-sxm-141gb": {
        "bf16/sustained": (720e12, 790e12),
        "bf16/burst": (800e12, 870e12),
        "bf16/8192": (700e12, 800e12),
        "fp8_e4m3/8192": (1250e12, 1525e12),
        "tf32/8192": (330e12, 480e12),
        "fp32/8192": (40e12, 62e12),
        "int8/8192": (1000e12, 1700e12),
        "memory/copy": (4.0e12, 4.5e12),
        "host/h2d": (45e9, 60e9),
    }
}
"""What published measurements of a part let one expect, dense FLOP/s and byte/s."""


@dataclass(frozen=True)
class Check:
    """One figure and whether it is as it should be. low and high are None where it is only recorded."""

    name: str
    value: float | str | bool | None
    low: float | None = None
    high: float | None = None
    status: str = RECORDED
    note: str = ""


def within(name: str, value: float, low: float | None, high: float | None, note: str = "") -> Check:
    holds = (low is None or value >= low) and (high is None or value <= high)
    return Check(name, value, low, high, PASS if holds else FAIL, note)


def holds(name: str, value: bool, note: str = "") -> Check:
    return Check(name, value, status=PASS if value else FAIL, note=note)


def recorded(name: str, value: float | str | bool | None, note: str = "") -> Check:
    return Check(name, value, note=note)


class Rig:
    """The device, its size of things, and what steps hand to one another."""

    def __init__(self, rehearsal: bool) -> None:
        self.rehearsal = rehearsal
        self.torch = import_torch()
        self.side = 128 if rehearsal else 8192
        self.seconds = 0.05 if rehearsal else 1.0  # of a hold that elsewhere lasts a second
        self.best: tuple[tuple[int, int, int], float] | None = None
        self.profile_path: str | None = None
        self.matmul_dtype = "bf16"
        self.hot: float | None = None

    @cached_property
    def device(self) -> TorchDevice:
        """Opened at its first use: this process has no context on the device before."""
        device = open_device("cpu" if self.rehearsal else None)
        if isinstance(device, CpuDevice):
            device.rotation_bytes = 1 << 20
        return device

    @property
    def opened(self) -> bool:
        return "device" in self.__dict__

    @cached_property
    def hardware(self) -> Hardware | None:
        return matched(self.device.info, shipped())

    @property
    def slug(self) -> str | None:
        return self.hardware.slug if self.hardware else None

    def judged(self, name: str, value: float) -> Check:
        """Compare a figure with the published range of this part, where there is one."""
        span = None if self.rehearsal or self.slug is None else RANGES.get(self.slug, {}).get(name)
        return recorded(name, value) if span is None else within(name, value, *span)

    def session(self) -> Session:
        about = ProfiledDevice(**asdict(self.device.info))
        empty = summarize([], {})
        return Session(
            self.device,
            Profile(
                1, "bench-profile", 1, False, "", 0.0, ["acceptance"], "default", 0, "normal", "", about,
                self.device.software(), {}, {}, [], empty,
            ),
        )  # fmt: skip

    def matmuls(self, data: str = "normal") -> Matmuls:
        return Matmuls(self.session(), modes.DEFAULT, data)

    def rate(self, dtype: str, m: int, k: int, n: int, data: str = "normal", **more: Any) -> float:
        """Median FLOP/s by napkin's method."""
        spec = replace(MatmulSpec(dtype, m, k, n, data=data), **more)
        kernel = self.device.matmul(spec)
        timing = modes.HOST_TIMING if self.rehearsal else Timing()
        return kernel.work / median(time_blocks(self.device, kernel, timing).seconds)

    def held(self, dtype: str, shape: tuple[int, int, int], window: float) -> float:
        kernel = self.device.matmul(MatmulSpec(dtype, *shape))
        how = modes.HOST_HOLD if self.rehearsal else Hold(window=window, settle_min=1.0, settle_max=10.0)
        result = hold(self.device, kernel, how)
        return kernel.work * result.calls * len(result.seconds) / result.window_s

    def soak(self, seconds: float) -> None:
        """Load until the clock has settled."""
        self.held(self.matmul_dtype, (self.side,) * 3, seconds)

    def napkin(self, *words: str, timeout: float, check: bool = True) -> subprocess.CompletedProcess[str]:
        """`napkin …` in a process of its own; on the CPU in a rehearsal."""
        command = [sys.executable, "-m", "napkin", *words]
        if self.rehearsal and words[0] == "bench":
            command += ["--device", "cpu"]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=check)


# --- the steps -----------------------------------------------------------------------------------------------------


def environment(rig: Rig) -> Iterator[Check]:
    """Name the machine, and check that it is idle."""
    version = rig.torch.__version__
    major, minor = (int(part) for part in version.split(".")[:2])
    yield holds("torch is 2.11 or later", (major, minor) >= (2, 11), version)
    others = rig.device.occupancy()
    yield recorded("sensors", type(rig.device.sensors).__name__)
    if not rig.rehearsal:
        yield holds("nothing else computes here", not others.other_processes and not others.unexplained_bytes)
    rig.soak(2.0)
    link = rig.device.sensors.pcie()
    yield recorded("pcie under load", f"gen {link[0]} x{link[1]}" if link else None)


def plain(rig: Rig, calls: int) -> float:
    """Time the plain loop that anyone would write: no rotation, no events, one wall clock."""
    torch, side = rig.torch, rig.side
    a, b = (torch.randn(side, side, device=rig.device.place).to(torch.bfloat16) for _ in "ab")
    b, c = b.t(), torch.empty(side, side, device=rig.device.place, dtype=torch.bfloat16)
    for _ in range(50 if not rig.rehearsal else 2):
        torch.mm(a, b, out=c)
    rig.device.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        torch.mm(a, b, out=c)
    rig.device.synchronize()
    return 2.0 * side**3 * calls / (time.perf_counter() - start)


def plain_loop(rig: Rig) -> Iterator[Check]:
    """napkin's figure for 8192³ against the plain loop, both with a settled clock."""
    rig.soak(10.0)
    side, calls = rig.side, 200 if not rig.rehearsal else 4
    ours, theirs = [], []
    for _ in range(3):  # interleaved, so that a drift of the clock meets both
        theirs.append(plain(rig, calls))
        ours.append(rig.rate("bf16", side, side, side))
    rig.hot = median(ours)
    yield recorded("plain loop", median(theirs))
    yield rig.judged("bf16/8192", rig.hot)
    ratio = rig.hot / median(theirs)
    yield recorded("napkin / plain loop", ratio) if rig.rehearsal else within("napkin / plain loop", ratio, 0.98, 1.02)
    rig.device.sleep(0.1 if rig.rehearsal else 10.0)
    yield recorded("plain loop after a rest", plain(rig, calls // 4))


def flushed(rig: Rig, shape: tuple[int, int, int], calls: int) -> list[float]:
    """Seconds of single calls as mamf-finder times them: a 256 MiB buffer zeroed and C rewritten before each."""
    torch, (m, k, n) = rig.torch, shape
    place = rig.device.place
    a = torch.randn(m, k, device=place).to(torch.bfloat16)
    b = torch.randn(n, k, device=place).to(torch.bfloat16).t()
    c, source = (torch.randn(m, n, device=place).to(torch.bfloat16) for _ in "cs")
    scratch = torch.empty((256 if not rig.rehearsal else 1) << 18, dtype=torch.int32, device=place)
    pairs = []
    for _ in range(calls):
        scratch.zero_()
        c.copy_(source)
        start, end = rig.device.event(), rig.device.event()
        start.record()
        torch.mm(a, b, out=c)
        end.record()
        pairs.append((start, end))
    rig.device.synchronize()
    return [end.since(start) for start, end in pairs]


def other_method(rig: Rig) -> Iterator[Check]:
    """Compare the method behind the published tables with napkin's burst, on two shapes."""
    side = rig.side
    for shape in ((side, side, side), (1536, 6144, 2816) if not rig.rehearsal else (96, 64, 80)):
        rig.device.sleep(0.0 if rig.rehearsal else 2.0)
        times = sorted(flushed(rig, shape, 150 if not rig.rehearsal else 8)[3:])
        work = 2.0 * shape[0] * shape[1] * shape[2]
        fastest = work / median(times[:5])
        kernel = rig.device.matmul(MatmulSpec("bf16", *shape))
        timing = modes.HOST_TIMING if rig.rehearsal else modes.BURST_TIMING
        burst = kernel.work / median(time_blocks(rig.device, kernel, timing).seconds)
        name = "napkin burst / flushed, median of its 5 fastest: " + "x".join(map(str, shape))
        yield recorded("flushed mean: " + "x".join(map(str, shape)), work * len(times) / sum(times))
        yield recorded(name, burst / fastest) if rig.rehearsal else within(name, burst / fastest, 0.93, None)


def zeros(rig: Rig) -> Iterator[Check]:
    """Constant operands clock higher where power is the limit: why napkin's are random."""
    side = rig.side
    random_rate = rig.held("bf16", (side, side, side), 2.0)
    spec = MatmulSpec("bf16", side, side, side, data="zeros")
    kernel = rig.device.matmul(spec)
    how = modes.HOST_HOLD if rig.rehearsal else Hold(window=2.0, settle_min=1.0, settle_max=3.0)
    result = hold(rig.device, kernel, how)
    ratio = kernel.work * result.calls * len(result.seconds) / result.window_s / random_rate
    yield recorded("zeros / random", ratio) if rig.rehearsal else within("zeros / random", ratio, 1.0, 1.5)


def formats(rig: Rig) -> Iterator[Check]:
    """Every format at one shape: ranges, order, fp8's variants, and a reason where there is none."""
    side, rates = rig.side, {}
    for dtype in modes.FULL.dtypes:
        try:
            rates[dtype] = rig.rate(dtype, side, side, side)
            yield rig.judged(f"{dtype}/8192", rates[dtype])
        except Unsupported as reason:
            yield recorded(f"{dtype}/8192", None, str(reason))
        rig.device.release()
    if "fp8_e4m3" in rates:
        for name, more in (
            ("fast_accum", {"fast_accum": True}),
            ("out_fp8", {"out": "fp8_e4m3"}),
            ("rowwise", {"scaling": "rowwise"}),
        ):
            try:
                yield recorded(f"fp8_e4m3/{name}", rig.rate("fp8_e4m3", side, side, side, **more))
            except Unsupported as reason:
                yield recorded(f"fp8_e4m3/{name}", None, str(reason))
    order = (("fp8_e4m3", "bf16", 1.5), ("bf16", "tf32", 1.7), ("tf32", "fp32", 5.0))
    for faster, slower, factor in order if not rig.rehearsal and rig.slug == "h200-sxm-141gb" else ():
        if faster in rates and slower in rates:
            yield within(f"{faster} / {slower}", rates[faster] / rates[slower], factor, None)


def own_run(rig: Rig) -> Iterator[Check]:
    """`napkin bench --only matmul --dtype bf16` as a user runs it, and the sustained rate once more."""
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "bench.json")
    words = ["bench", "--only", "matmul,memory", "--dtype", "bf16", "-o", path, "--quiet"]
    yield recorded("alone on the device", not rig.opened)
    rig.napkin(*words, *(["--quick"] if rig.rehearsal else []), timeout=100)
    profile = read_profile(path)
    if not rig.rehearsal:
        yield holds("not contended", "contended" not in profile.flags, "; ".join(profile.notes))
    rig.profile_path = path
    row = profile.summary["matmul"]["bf16"]
    shape = tuple(int(row["sustained_shape"][side]) for side in ("m", "k", "n"))
    rig.best = ((shape[0], shape[1], shape[2]), row["sustained"])
    seconds = sum(case.elapsed_s for case in profile.cases if case.group == "matmul")
    yield within("seconds for one format", seconds, None, 60.0)
    yield rig.judged("bf16/sustained", row["sustained"])
    yield rig.judged("bf16/burst", row["burst"])
    case = next(c for c in profile.cases if c.params.get("kind") == "sustained")
    if not rig.rehearsal:
        yield holds("steady", case.sustained is not None and case.sustained.steady)
        reasons = set(case.telemetry.reasons) if case.telemetry else set()
        yield holds("only the power cap lowers the clock", reasons <= {"sw_power_cap", "idle"}, ", ".join(reasons))
        again = rig.held("bf16", rig.best[0], 10.0)
        yield within("sustained again / sustained", again / row["sustained"], 0.985, 1.015)


def exhaustive(rig: Rig) -> Iterator[Check]:
    """Compare the search with every shape of its own grid, and with random shapes."""
    device = rig.device
    sms = None if rig.rehearsal else device.info.sm_count
    grid = shapes.candidates(sms)
    dice = random.Random(1)
    others = [tuple(dice.randrange(8, 80) * 256 for _ in "mkn") for _ in range(60)] if not rig.rehearsal else []
    matmuls = rig.matmuls()
    best_shape = matmuls.search("bf16")[0]
    each = 0.02 if not rig.rehearsal else 1e-3
    guess = rig.hot or 1e10
    rates: list[tuple[float, tuple[int, int, int]]] = []
    everything = [(m, k, n) for m, k, n in (*grid, *others)]
    for start in range(0, len(everything), 50):
        part = everything[start : start + 50]
        kernels = [device.matmul(MatmulSpec("bf16", *shape)) for shape in part]
        calls = [max(1, round(each * guess / kernel.work)) for kernel in kernels]
        times = time_many(device, kernels, calls)
        rates += [(kernel.work / t, shape) for kernel, t, shape in zip(kernels, times, part, strict=True)]
    finalists = [shape for _, shape in sorted(rates, reverse=True)[:6]]
    seconds = 1.5 * rig.seconds
    ours = rig.held("bf16", best_shape, seconds)
    theirs = max(rig.held("bf16", shape, seconds) for shape in finalists)
    yield recorded("best by search", "x".join(map(str, best_shape)))
    yield recorded("best by sweep", "x".join(map(str, finalists[0])))
    name = "best of the sweep / best of the search"
    yield recorded(name, theirs / ours) if rig.rehearsal else within(name, theirs / ours, None, 1.01)


def bandwidths(rig: Rig) -> Iterator[Check]:
    """Device memory and the host's link; nothing above the datasheet."""
    size = (1 << 30) if not rig.rehearsal else (1 << 20)
    timing = Timing() if not rig.rehearsal else modes.HOST_TIMING
    top = rig.hardware.memory_bandwidth if rig.hardware else None
    for operation in ("copy", "write", "read", "triad"):
        kernel = rig.device.stream(operation, size)
        rate = kernel.work / median(time_blocks(rig.device, kernel, timing).seconds)
        yield rig.judged(f"memory/{operation}", rate)
        if top is not None:
            yield within(f"memory/{operation} / datasheet", rate / top, None, 1.0)
        rig.device.release()
    for direction in ("h2d", "d2h", "both"):
        try:
            kernel = rig.device.transfer(direction, True, 256 << 20)
        except Unsupported as reason:
            yield recorded(f"host/{direction}", None, str(reason))
            continue
        rate = kernel.work / median(time_blocks(rig.device, kernel, Timing(blocks=10, warmup=2)).seconds)
        yield rig.judged(f"host/{direction}", rate)


def took(case: Case) -> float:
    assert case.value is not None
    return case.value.median


def training(rig: Rig) -> Iterator[Check]:
    """Real steps: loss, MFU, memory against the prediction, and a depth predicted from two others."""
    from napkin.architectures import build
    from napkin.bench.step_plan import TINY
    from napkin.inputs.load import Document
    from napkin.inputs.model_file import config_from, load_config

    tiny = config_from("tiny llama", Document("tiny llama", TINY), TINY)
    model = build(tiny if rig.rehearsal else load_config("llama3-8b"))
    base = StepPlan(model, 128 if rig.rehearsal else 4096, 1, (2, 4, 6), variants=("eager",), steps=10)
    base = replace(base, precision="fp32", steps=3, layers=(1, 2)) if rig.rehearsal else base
    session = rig.session()
    cases = train(session, rig.device, base)
    if not rig.rehearsal:
        cases += train(session, rig.device, replace(base, layers=(4,), variants=("compiled",)))
        cases += train(session, rig.device, replace(base, layers=(4,), recompute="full"))
        cases += train(session, rig.device, replace(base, layers=(2,), precision="amp-bf16"))
    failed = [case for case in session.write(complete=True).cases if case.status != OK]
    yield holds("every step ran", not failed, "; ".join(f"{case.id}: {case.reason}" for case in failed))
    steps = {}
    for case in cases:
        name = f"{case.params['variant']}, {case.params['layers']} layers, {case.params['precision']}"
        name += "" if case.params["recompute"] == "none" else ", recomputed"
        steps[name] = case
        figures = case.figures
        yield holds(f"{name}: loss falls", (figures["loss_last"] or 9e9) < (figures["loss_first"] or 0.0))
        yield recorded(f"{name}: step", took(case))
        if rig.hardware is not None:
            peak = rig.hardware.peak(str(case.params["compute"]))
            mfu = (figures["mfu_flops/palm"] or 0.0) / took(case) / peak
            yield within(f"{name}: MFU (palm)", mfu, 0.2, 0.76)
        predicted, allocated = figures["predicted_allocated"], figures["allocated"]
        if predicted and allocated:
            judged = "compiled" not in name  # inductor fuses what autograd would keep
            check = within(f"{name}: predicted / allocated", predicted / allocated, 0.98, 1.02)
            yield check if judged else recorded(check.name, predicted / allocated)
    if not rig.rehearsal:
        two, four, six = (took(steps[f"eager, {depth} layers, bf16-pure"]) for depth in (2, 4, 6))
        yield within("4 layers from 2 and 6", (two + six) / 2 / four, 0.97, 1.03)
        yield within("compiled / eager speed", four / took(steps["compiled, 4 layers, bf16-pure"]), 1.0, None)


def killed(rig: Rig) -> Iterator[Check]:
    """SIGKILL in the middle, then --resume: the same cases, at most one of them measured twice."""
    path = os.path.join(tempfile.mkdtemp(), "killed.json")
    words = ["bench", "matmul", "--model", "llama3-8b", "--seq", "4096", "--quiet", "-o", path]
    if rig.rehearsal:
        words = ["bench", "--only", "matmul,memory", "--quick", "--quiet", "-o", path, "--device", "cpu"]
    process = subprocess.Popen(
        [sys.executable, "-m", "napkin", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline and process.poll() is None:
        if os.path.exists(path) and len(read_profile(path).cases) >= 3:
            break
        time.sleep(0.02)
    process.kill()
    process.wait()
    before = read_profile(path)
    done = {case.id: case.started for case in before.cases if case.status == OK}
    yield holds("the file is whole after SIGKILL", bool(done), f"{len(done)} cases")
    rig.napkin(*(word for word in words if word not in ("--device", "cpu")), "--resume", timeout=60)
    after = {case.id: case.started for case in read_profile(path).cases}
    yield holds("what was measured is kept", all(after.get(name) == at for name, at in done.items()))


OTHER = """
import sys, torch
a = torch.randn(4096, 4096, device=sys.argv[1]); print("up", flush=True)
while True:
    for _ in range(20): a @ a
    torch.cuda.synchronize()
"""


def contention(rig: Rig) -> Iterator[Check]:
    """Another process on the device must be noticed; that none is noticed where there is none is step 5's check."""
    if rig.rehearsal:
        yield recorded("contended beside another process", None, "needs a GPU")
        return
    yield recorded("one other process only", not rig.opened)
    process = subprocess.Popen([sys.executable, "-c", OTHER, "cuda"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        done = rig.napkin("bench", "matmul", "8192x8192x8192", "--quick", "--json", "--quiet", timeout=60)
    finally:
        process.kill()
        process.wait()
    yield holds("contended beside another process", json.loads(done.stdout)["verdict"] == "contended")


def limits(rig: Rig) -> Iterator[Check]:
    """Check that what cannot be measured has a status and a reason, and no figure."""
    try:
        rig.device.matmul(MatmulSpec("bf16", 1 << 19, 1 << 19, 1 << 19))
        yield holds("a shape that cannot fit is out of memory", False)
    except OutOfMemory:
        yield holds("a shape that cannot fit is out of memory", True)
    words = ("bench", "matmul", "256x256x256", "--dtype", "nvfp4", "--quick", "--json", "--quiet")
    done = rig.napkin(*words, timeout=60, check=False)
    expected = (rig.device.info.compute_capability or (0, 0)) >= (10, 0)
    yield holds("nvfp4 has a figure only where the device has it", bool(json.loads(done.stdout)["values"]) is expected)
    yield holds("and status 3 where it has none", done.returncode == (0 if expected else 3))


def one_rank(rig: Rig) -> Iterator[Check]:
    """Check that collectives of one process have no figure rather than a false one."""
    path = os.path.join(tempfile.mkdtemp(), "one.json")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", "-m", "napkin"]
    words = ["bench", "collectives", "--quiet", "-o", path, *(["--device", "cpu"] if rig.rehearsal else [])]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=90, check=False)
    yield holds("exit status 0", done.returncode == 0, done.stderr[-200:])
    profile = read_profile(path)
    yield holds("no collective figure", profile.summary["collectives"] is None)
    yield holds("and a reason", profile.cases[0].reason == "one rank")


def tf32(rig: Rig) -> Iterator[Check]:
    """TF32 through torch.compile with the legacy switch: no error, a gain, and the switch back where it was."""
    torch, side = rig.torch, rig.side // 2
    a = torch.randn(side, side, device=rig.device.place)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        call = torch.mm if rig.rehearsal else torch.compile(torch.mm)
        call(a, a)
        yield holds("compiles under TF32", True)
    except RuntimeError as error:
        yield holds("compiles under TF32", False, str(error)[:200])
    finally:
        torch.set_float32_matmul_precision(before)
    if not rig.rehearsal:
        ratio = rig.rate("tf32", side, side, side) / rig.rate("fp32", side, side, side)
        yield within("tf32 / fp32", ratio, 3.0, None)
    yield holds("the switch is back", torch.get_float32_matmul_precision() == before)


def road_back(rig: Rig) -> Iterator[Check]:
    """Check that `napkin step --profile` answers with the profile and says so."""
    if rig.profile_path is None or rig.slug is None:
        yield recorded("napkin step --profile", None, "needs step 5 on a known GPU")
        return
    words = ["step", "llama3-8b", "--gpus", "8", "--tp", "8", "--hardware", rig.slug, "--json"]
    plain_answer = json.loads(rig.napkin(*words, timeout=30).stdout)["values"]["step/time"]
    done = rig.napkin(*words, "--profile", rig.profile_path, timeout=30)
    answer = json.loads(done.stdout)
    yield recorded("step by the datasheet", plain_answer)
    yield recorded("step by the profile", answer["values"]["step/time"])
    yield holds("the profile changes the answer", answer["values"]["step/time"] != plain_answer)


@dataclass(frozen=True)
class Step:
    """One step of the acceptance run."""

    number: int
    seconds: float  # planned, and its share of the deadline
    run: Callable[[Rig], Iterator[Check]]

    @property
    def name(self) -> str:
        return self.run.__name__


STEPS = (
    Step(10, 25, contention),  # these two first: while this process has no context on the device
    Step(5, 75, own_run),
    Step(0, 12, environment),
    Step(1, 35, plain_loop),
    Step(2, 15, other_method),
    Step(3, 12, zeros),
    Step(4, 20, formats),
    Step(7, 15, bandwidths),
    Step(8, 110, training),
    Step(9, 35, killed),
    Step(11, 15, limits),
    Step(12, 20, one_rank),
    Step(13, 15, tf32),
    Step(14, 5, road_back),
    Step(6, 60, exhaustive),  # last: the first to be left out where time runs short
)


class Late(Exception):
    """A step passed its deadline."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    def late(number: int, frame: FrameType | None) -> None:
        raise Late(f"more than {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run_step(rig: Rig, step: Step) -> list[Check]:
    """Return the step's checks; an exception or a missed deadline is a failed check, not the end of the run."""
    checks: list[Check] = []
    try:
        with deadline(3 * step.seconds):
            for check in step.run(rig):
                checks.append(replace(check, name=f"{step.name}: {check.name}"))
    except (Late, NapkinError, RuntimeError, OSError, ValueError, AssertionError, subprocess.SubprocessError) as error:
        said = str(error).splitlines()[0][:300] if str(error) else ""
        said += (getattr(error, "stderr", None) or "")[-300:]
        checks.append(Check(f"{step.name}: runs", False, status=FAIL, note=f"{type(error).__name__}: {said}"))
    if rig.opened:
        rig.device.release()
    return checks


def write_report(rig: Rig, checks: list[Check], seconds: float, path: str) -> dict[str, Any]:
    """Write the report so far to its file; about the device only once a step has opened it."""
    count = {status: sum(check.status == status for check in checks) for status in (PASS, FAIL, RECORDED, SKIPPED)}
    report = {
        "kind": "gpu-acceptance",
        "verdict": "rehearsal" if rig.rehearsal and not count[FAIL] else FAIL if count[FAIL] else PASS,
        "count": count,
        "device": asdict(rig.device.info) if rig.opened else None,
        "hardware": rig.slug if rig.opened else None,
        "software": rig.device.software() if rig.opened else None,
        "seconds": round(seconds, 1),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "checks": [asdict(check) for check in checks],
    }
    temporary = f"{path}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1, allow_nan=False)
    os.replace(temporary, path)
    return report


def run(rig: Rig, wanted: Sequence[int], path: str, budget: float) -> dict[str, Any]:
    """All steps in order, the file rewritten after each."""
    started = time.monotonic()
    checks: list[Check] = []
    for step in STEPS:
        spent = time.monotonic() - started
        if step.number not in wanted:
            continue
        if spent + step.seconds > budget:
            checks.append(Check(f"{step.name}: runs", None, status=SKIPPED, note="time"))
        else:
            print(
                f"[{spent:4.0f} s] {step.number}: {(step.run.__doc__ or '').splitlines()[0]}",
                file=sys.stderr,
                flush=True,
            )
            checks += run_step(rig, step)
        write_report(rig, checks, time.monotonic() - started, path)
    _ = rig.device  # named in the report even where no step needed it
    return write_report(rig, checks, time.monotonic() - started, path)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", default="gpu-acceptance.json")
    parser.add_argument("--steps", default=",".join(str(step.number) for step in STEPS))
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds in all")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, tiny; no figure is judged")
    chosen = parser.parse_args(argv)
    try:
        rig = Rig(chosen.rehearse)
        if not chosen.rehearse and not rig.torch.cuda.is_available():
            open_device(None)  # says what is missing
        report = run(rig, [int(n) for n in chosen.steps.split(",")], chosen.output, chosen.budget)
    except NapkinError as problem:
        print(f"error: {problem.message}\nhint: {problem.hint}", file=sys.stderr)
        return problem.status
    for check in report["checks"]:
        span = "" if check["low"] is None and check["high"] is None else f"  [{check['low']}, {check['high']}]"
        print(f"{check['status']:9}{check['name']}: {check['value']}{span}  {check['note']}".rstrip())
    print(f"verdict: {report['verdict']}, {report['seconds']} s, {chosen.output}")
    return 1 if report["verdict"] == FAIL else 0


if __name__ == "__main__":
    sys.exit(main())
