"""The question of `napkin memory` about a training step, read from the options."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.commands.memory.host import read_host, read_save
from napkin.commands.memory.notes import source_of
from napkin.commands.question.confidence import read_confidence, widening
from napkin.commands.question.layout import divisions
from napkin.commands.question.machine import check_dtype, read_hardware
from napkin.commands.question.setup import read_loading, read_setup
from napkin.commands.question.usual_stack import read_whose_model
from napkin.errors import BROKEN, CLOSE, OK, UNDECIDED, NapkinError
from napkin.footprint.loading import loaded_by_each
from napkin.inputs.hardware import Hardware
from napkin.operations.model import Model
from napkin.planning import verdicts
from napkin.planning.step_memory import with_wider_ends
from napkin.planning.verdicts import FITS, NOT, Fit
from napkin.record import record, replace
from napkin.term import Term
from napkin.training.setup import Setup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from napkin.inputs.snapshot import Snapshot

EXCLUSIVE = (
    *(("max", "snapshot"), ("max", "tensors"), ("snapshot", "tensors"), ("snapshot", "must-fit")),
    *(("max", "host-memory"), ("snapshot", "host-memory")),
)
STATUS = {FITS: OK, UNDECIDED: CLOSE, NOT: BROKEN}


@record
class MemoryQuestion:
    """A question of `memory` about a training step.

    hardware     accelerator to fit on; None: bytes only       confidence    level of the intervals
    must_fit     whether the exit status depends on the fit   maximize      the quantity to maximize, or None
    tensors      whether kept tensors are listed             advise        whether remedies are wanted
    snapshot     the measured memory and its source, or None
    node         GPUs that share a host                      host_memory   bytes of that host, None: not given
    asked        the options as given, to read the same question with other options
    """

    model: Model
    setup: Setup
    hardware: Hardware | None
    confidence: float
    asked: Inputs
    must_fit: bool = False
    maximize: str | None = None
    tensors: bool = False
    advise: bool = True
    snapshot: Snapshot | None = None
    snapshot_from: str = ""
    node: int = 1
    host_memory: float | None = None

    @property
    def capacity(self) -> Term | None:
        """Memory of one accelerator, in bytes."""
        return None if self.hardware is None else self.hardware.term("capacity", "memory/capacity", "byte")

    @property
    def source(self) -> str:
        """The implementation that the saved activations belong to."""
        return source_of(self.model, self.setup.implementation)

    @property
    def title(self) -> str:
        """The question in one line."""
        return title(self.model, self.setup)

    def evaluate(self, model: Model, setup: Setup) -> Fit:
        """Return a step's memory against the accelerator, with intervals at the question's confidence."""
        capacity = None if self.hardware is None else self.hardware.capacity
        found = verdicts.evaluate(model, setup, capacity)
        return with_wider_ends(found, widening(self.confidence), capacity)


def read(inputs: Inputs, model: Model) -> MemoryQuestion:
    """Read the question about a training step of the model."""
    for first, second in EXCLUSIVE:
        if inputs.value(first) and inputs.value(second):
            raise NapkinError(f"--{first} and --{second} ask different things", "ask one at a time")
    check_dtype(inputs)
    maximize, path = inputs.text_or_none("max"), inputs.text_or_none("snapshot")
    if maximize is not None and maximize in inputs:
        raise NapkinError(
            f"a contradiction: --max {maximize} asks for the {maximize}, and --{maximize} gives it",
            "leave out one of the two",
        )
    setup = read_setup(inputs, model)
    if maximize in ("layers", "params") and setup.layout.stages:
        raise NapkinError(
            f"--max {maximize} and layers assigned to stages by hand cannot be combined", "--pp alone assigns evenly"
        )
    snapshot = None
    if path is not None:
        from napkin.commands.memory.snapshot import read_measured

        snapshot = read_measured(path, inputs.integer_or_none("snapshot-device"))
    read_whose_model(inputs, setup)
    setup = replace(setup, save=read_save(inputs, setup))
    needs_hardware = maximize is not None or inputs.has("hardware")
    hardware = read_hardware(inputs, ("memory-size",)) if needs_hardware else None
    if snapshot is not None and hardware is not None:
        from napkin.commands.memory.snapshot import check_holds

        check_holds(snapshot, inputs.given["snapshot"].where or "--snapshot", str(path), hardware)
    node, host_memory = read_host(inputs, setup, hardware)
    read_loading(inputs, loaded_by_each(model, setup), snapshot is None)
    return MemoryQuestion(
        model=model,
        setup=setup,
        hardware=hardware,
        confidence=0.9 if snapshot is not None else read_confidence(inputs),
        asked=inputs,
        must_fit=inputs.flag("must-fit"),
        maximize=maximize,
        tensors=inputs.flag("tensors"),
        advise=inputs.wants("suggestions"),
        snapshot=snapshot,
        snapshot_from=path or "",
        node=node,
        host_memory=host_memory,
    )


def title(model: Model, setup: Setup) -> str:
    """Return the question about a step in one line."""
    layout = setup.layout
    where = f" on {layout.gpus:,} GPUs ({divisions(layout)})" if layout.gpus > 1 else ""
    return f"{model.name}, {layout.sequences:,} × {layout.seq:,} tokens, {setup.precision.name}{where}: bytes per GPU"
