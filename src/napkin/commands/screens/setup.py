"""The model, the machine and the layout of a training step, as line 1 of an answer states them."""

from __future__ import annotations

from napkin.footprint.submodels import PROJECTOR, VISION
from napkin.inputs.hardware import Hardware
from napkin.operations.model import Model
from napkin.operations.roles import LM_HEAD, TOKEN
from napkin.training.layout import Layout
from napkin.training.setup import Setup
from napkin.training.tasks import REFERENCE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from napkin.operations.tuning import Tuning

DEGREES = ("tp", "pp", "vp", "cp", "ep", "dp")


def degrees_of(layout: Layout) -> list[str]:
    """Return the degrees above 1, and how ZeRO divides the states: `tp 8`, `dp 4`, `ZeRO-1`."""
    shown = {"cp": "Ulysses"} if layout.ulysses else {}
    found = [f"{shown.get(name, name)} {int(degree):,}" for name in DEGREES if (degree := getattr(layout, name)) > 1]
    return [*found, f"ZeRO-{int(layout.zero)}"] if layout.zero else found


def run_on(model: str, gpus: int, hardware: str) -> str:
    """Return the model and the machine: `llama3-8b on 8 × H100 SXM 80GB`; hardware: "" if none is named."""
    if hardware:
        return f"{model} on {f'{gpus:,} × ' if gpus > 1 else ''}{hardware}"
    return f"{model} on {gpus:,} GPUs" if gpus > 1 else model


DRIVERS = {
    "": ("CUDA context", "allocator's cache", "NCCL"),
    "NVIDIA": ("CUDA context", "allocator's cache", "NCCL"),
    "AMD": ("HIP context", "allocator's cache", "RCCL"),
}
"""What memory holds of the driver, torch's allocator and the collectives, by the maker of the accelerator."""
AS_CUDA = ("device context", "cache as under CUDA", "collectives as NCCL's")
"""The same of another maker's, whose figures are CUDA's."""


def driver_of(hardware: Hardware | None) -> tuple[str, str, str]:
    """Return what memory holds of the driver, the allocator and the collectives of an accelerator, in words."""
    return DRIVERS.get("" if hardware is None else hardware.vendor, AS_CUDA)


SAVED = {TOKEN: "embedding", LM_HEAD: "head"}
"""Words for modules that are trained in full next to adapters."""


def trained_part(setup: Setup) -> list[str]:
    """Return the task, the trained part, and the format of the frozen part, as clauses; none if the entire model is
    trained."""
    tuning = setup.implementation.tuning
    adapter = [] if tuning is None else [adapter_words(tuning)]
    if tuning is not None and tuning.quantized:
        adapter.append(f"{tuning.quantized} weights")
    if tuning is not None and tuning.saved:
        adapter.append(f"{' and '.join(SAVED.get(name, name) for name in tuning.saved)} trained")
    frozen = []
    if setup.frozen is not None:
        frozen.append(f"{setup.frozen} layers frozen" if setup.frozen else "embedding frozen")
    frozen += [{VISION: "tower frozen", PROJECTOR: "tower and projector frozen"}[setup.asleep]] if setup.asleep else []
    frozen += ["head frozen"] if setup.still_head else []
    task = [setup.task.says] if setup.task.says else []
    return [*task, *adapter, *frozen, *_reference(setup)]


def adapter_words(tuning: Tuning) -> str:
    """Return the adapters and modules trained next to frozen weights, in words."""
    if tuning.method == "lora":
        return f"{'DoRA' if tuning.magnitude else 'LoRA'} rank {tuning.rank}"
    from napkin.operations.adapters.kinds import KINDS

    kind = KINDS.get(tuning.method)
    return tuning.method if kind is None else kind.words(tuning.rank)


def _reference(setup: Setup) -> list[str]:
    """Return the source of the reference's log-probabilities, as a clause; none if no pass computes them."""
    for one in setup.forwards:
        if one.name == REFERENCE:
            held = one.model.name if one.model is not None else "a copy"
            return [f"{role_of(setup, one.name)} {held if one.held else 'the model without adapters'}"]
    return []


def role_of(setup: Setup, name: str) -> str:
    """Return what another model of the step is called: the reference of a distillation is its teacher."""
    return "teacher" if name == REFERENCE and setup.task.teacher else name


def of_setup(model: Model, setup: Setup, hardware: str) -> list[str]:
    """Return the question about a step as clauses."""
    layout = setup.layout
    first, *rest = [run_on(model.name, int(layout.gpus), hardware), *degrees_of(layout)]
    if rest:
        first += ":"
    images = [f"{layout.images:,} image{'s' * (layout.images > 1)} each"] if layout.images else []
    recompute = [] if layout.recompute.kind == "none" else [f"recompute {layout.recompute.word}"]
    offload = [f"offload {' and '.join(setup.offload)}"] if setup.offload else []
    source = f"{int(layout.seq):,} + {int(layout.target):,}" if layout.target else f"{int(layout.seq):,}"
    return [
        first,
        *rest,
        *trained_part(setup),
        f"{int(layout.sequences):,} × {source} tokens",
        *images,
        *recompute,
        *offload,
    ]
