"""From a request to a profile: open the device, measure the most important cases first."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from napkin import __version__
from napkin.bench import bandwidth, formats
from napkin.bench.collectives import collectives
from napkin.bench.matmul import Matmuls
from napkin.bench.model_shapes import ModelAttention, ModelMatmul
from napkin.bench.modes import GROUPS, Mode
from napkin.bench.open_device import open_device
from napkin.bench.progress import BenchProgress, Store
from napkin.bench.session import Session, Terminated, now, resumable, terminable
from napkin.bench.shapes import Shape
from napkin.bench.step_plan import StepPlan
from napkin.bench.team import Alone, Team, Torchrun, launched
from napkin.bench.torch_device import SEED, TorchDevice
from napkin.bench.train import train
from napkin.errors import REFUSED, NapkinError
from napkin.inputs.hardware import Hardware, HardwareTable, find, shipped
from napkin.inputs.peaks import peak_name
from napkin.inputs.profile import Profile
from napkin.inputs.profile_cases import FAILED, KIND, OK, OOM, SCHEMA, UNSUPPORTED, DeviceInfo, Peak, ProfiledDevice
from napkin.inputs.profile_summary import summarize

INTERRUPTED, TERMINATED = 130, 143
METHOD = "events, blocks >= 2 ms, operands rotated beyond twice the L2, one synchronisation"
ENVIRONMENT = ("NCCL_", "CUBLAS_", "PYTORCH_", "TORCH_", "OMP_NUM_THREADS", "NVIDIA_TF32_OVERRIDE")
SAME_SIZE = 0.1  # a GPU whose memory differs more from the table's is another GPU, or a slice of one
PRIVATE = ("/", "\\", "@", "://")  # an environment value that holds a path or a name stays out of the profile
INSTEAD = {"bf16": "fp16", "tf32": "fp32"}
PLANNED = {"quick": 45.0, "default": 180.0, "full": 480.0}


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A model's own shapes on one GPU after the split."""

    name: str
    tp: int
    tokens: int
    gemms: Sequence[ModelMatmul]
    attentions: Sequence[ModelAttention]


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """What was asked. `groups` in any order; `shapes` and `model` belong to matmul, `step` to train."""

    mode: Mode
    groups: Sequence[str] = GROUPS
    dtypes: Sequence[str] = ()
    device: str | None = None
    output: str | None = None
    resume: bool = False
    time_limit: float | None = None
    quiet: bool = False
    data: str = "normal"
    command: Sequence[str] = ("bench",)
    hardware: Hardware | None = None
    known: HardwareTable = field(default_factory=shipped)
    shapes: Sequence[Shape] = ()
    model: ModelRequest | None = None
    step: StepPlan | None = None
    notes: Sequence[str] = field(default=())


@dataclass(frozen=True, slots=True)
class Done:
    """What a run leaves behind."""

    profile: Profile
    path: str | None  # if it was written
    status: int
    rank: int
    hardware: Hardware | None


def matched(info: DeviceInfo, known: HardwareTable) -> Hardware | None:
    """Return the accelerator that a device reports, if its memory agrees; None rather than a similar GPU's peak."""
    if info.kind not in ("cuda", "rocm") or info.mig:
        return None
    try:
        found = find(info.name, known)
        if found.devices_per_package > 1 and found.device_name:
            found = find(found.device_name, known)
    except NapkinError:
        return None
    return found if abs(info.memory_bytes / found.capacity - 1) <= SAME_SIZE else None


def peaks_of(hardware: Hardware | None) -> dict[str, Peak]:
    """Return the dense peaks of the formats that a matmul can be timed in; fp32's are the vector units'."""
    if hardware is None:
        return {}
    found = {}
    for key, form in formats.FORMATS.items():
        name = peak_name(form.peak or key)
        if key == "fp64" and "fp64_tensor" in hardware.peaks:
            name = "fp64_tensor"  # cuBLAS runs fp64 on the tensor cores if there are any
        if name in hardware.peaks:
            found[key] = Peak(hardware.peaks[name], f"{hardware.slug}: {hardware.citation(f'peak/{name}')}")
    return found


def run(request: BenchRequest) -> Done:
    """Measure, and write the profile after every case."""
    device = open_device(request.device)
    team = team_of(device)
    hardware = request.hardware or matched(device.info, request.known)
    origin = None if hardware is None else "given" if request.hardware is not None else "matched by name"
    header = _header(request, device, team, hardware, origin)
    path = request.output or _default_path(request, hardware, device)
    store = None
    if path is not None and team.rank == 0:
        store = Store(path)
        store.prepare()
    previous = team.broadcast(resumable(path, header) if request.resume and path and team.rank == 0 else None)
    progress = BenchProgress(
        sys.stderr, request.time_limit or PLANNED[request.mode.name], request.quiet or team.rank > 0
    )
    session = Session(
        device,
        header,
        store,
        team=team,
        previous=previous,
        time_limit=request.time_limit,
        progress=progress,
    )
    if hardware is None and device.info.kind in ("cuda", "rocm"):
        session.note(f"{device.info.name} is not in the hardware table: no datasheet peak, so no MFU (--hardware NAME)")
    status = 0
    try:
        with terminable():
            session.check_alone()
            measure(session, device, request, hardware)
    except KeyboardInterrupt:
        status = INTERRUPTED
    except Terminated:
        status = TERMINATED
    finally:
        progress.close()
        device.release()
    profile = session.write(complete=status == 0)
    team.close()
    asked = [case.status for case in profile.cases if case.id in session.asked]
    if status == 0 and OK not in asked and any(one in (UNSUPPORTED, OOM, FAILED) for one in asked):
        status = REFUSED  # there is no figure to report, and the report says why
    return Done(profile, path, status, team.rank, hardware)


def team_of(device: TorchDevice) -> Team:
    """Return the job's ranks under torchrun, else a team of one."""
    return Torchrun(device.torch, device.info.kind, device.place) if launched() else Alone()


def measure(session: Session, device: TorchDevice, request: BenchRequest, hardware: Hardware | None) -> None:
    """Return the groups that the request names."""
    mode = request.mode
    groups = [group for group in GROUPS if group in request.groups]
    if "matmul" in groups:
        matmuls = Matmuls(session, mode, request.data)
        for dtype in request.dtypes or _dtypes(session, request):
            if request.model is not None:
                one = request.model
                matmuls.model(dtype, one.name, one.tp, one.gemms, one.attentions, one.tokens)
            for shape in request.shapes:
                matmuls.shape(dtype, shape)
            if request.model is None and not request.shapes:
                matmuls.dtype(dtype)
            device.release()
    if "memory" in groups:
        operations = ("copy",) if mode.name == "quick" else bandwidth.OPERATIONS
        bandwidth.memory(session, mode, hardware.memory_bandwidth if hardware else None, operations)
    if "host" in groups:
        bandwidth.host(session, mode)
    if "train" in groups and request.step is not None:
        train(session, device, replace(request.step, hardware=hardware))
    if "collectives" in groups:
        collectives(session, device, mode)


def _dtypes(session: Session, request: BenchRequest) -> list[str]:
    """Return the mode's formats, only bf16 for a shape or a model; the next wider one replaces what a device lacks."""
    info = session.device.info
    wanted = ("bf16",) if request.shapes or request.model is not None else request.mode.dtypes
    chosen = []
    for dtype in wanted:
        instead = INSTEAD.get(dtype)
        reason = formats.unsupported(dtype, info)
        if reason is not None and instead is not None and request.mode.name != "full":
            session.note(f"{reason}: {instead} is measured instead")
            dtype = instead
        chosen.append(dtype)
    return list(dict.fromkeys(chosen))


def _header(
    request: BenchRequest, device: TorchDevice, team: Team, hardware: Hardware | None, origin: str | None
) -> Profile:
    peaks = peaks_of(hardware)
    return Profile(
        napkin=1,
        kind=KIND,
        schema=SCHEMA,
        complete=False,
        created=now(),
        elapsed_s=0.0,
        command=list(request.command),
        mode=request.mode.name,
        seed=SEED,
        data=request.data,
        method=METHOD,
        device=ProfiledDevice(
            **asdict(device.info),
            hardware=None if hardware is None else hardware.slug,
            hardware_origin=origin,
        ),
        software={"napkin": __version__, "python": platform.python_version(), **device.software()},
        environment={
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(ENVIRONMENT) and not any(mark in value for mark in PRIVATE)
        },
        peaks=peaks,
        cases=[],
        summary=summarize([], peaks),
        world=team.world,
        notes=list(request.notes),
    )


def _default_path(request: BenchRequest, hardware: Hardware | None, device: TorchDevice) -> str | None:
    """Save a complete run; save a single question only with -o, so that it does not replace the machine's profile."""
    if tuple(request.command) != ("bench",):
        return None
    return f"bench-{hardware.slug if hardware else device.info.kind}.json"
