"""Published training steps as arrays, predicted all at once by the step model.

Rows whose models have the same parts share one evaluation: their dimensions, layouts and rates are arrays.
numpy is needed here, but not for a single `napkin step`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from napkin.errors import NapkinError
from napkin.evidence.fit.generic import decoder, decoders
from napkin.evidence.predictions.step_inputs import gathered_apart, gathered_bytes, reduced_bytes
from napkin.evidence.rates.chips import factors
from napkin.evidence.rates.machines import Machine, bridged, machine
from napkin.evidence.rates.of_step import Asynchronous, Early, constant_names, early_of, rates
from napkin.evidence.rows.printed import PrintedDecoder
from napkin.evidence.rows.recomputation import is_of_parts
from napkin.evidence.rows.steps import StepRow
from napkin.evidence.software import stacks
from napkin.inputs import hardware
from napkin.operations.model import Model
from napkin.options.training import CORE_ATTENTION
from napkin.record import fields, record, replace
from napkin.timing.optimizer import FUSED_ON_HOST
from napkin.timing.step import StepTime, exposed_share, step
from napkin.timing.step_layout import IDLE, StepLayout
from napkin.training.optimizer import Optimizer
from napkin.training.optimizer_step import step_traffic
from napkin.training.optimizers import OPTIMIZERS
from napkin.training.precision import POLICIES
from napkin.training.recomputation import SECOND_LINEARS, recompute

if TYPE_CHECKING:
    from typing import Any

    from napkin.evidence.fit.arrays import Floats, Indices, Mask

MICRO_BATCHES = (1, 2, 4, 8, 16)
"""Micro-batches to try if a table does not state one; the fastest is taken, as its authors would."""
INTERLEAVES = (1, 2, 3, 4)
UNSTATED_VOCABULARY = 51200
"""GPT-2's vocabulary padded to a multiple of 128 × 8, if a table does not say."""

Structure = tuple["int | bool | str", ...]
"""The structure that rows must share to be stacked: a preset, flags, the window, and optional parts."""
_STRUCTURE = ("preset", "mtp", "gated", "tied", "window", "expert_bias", "expert_clamp", "groups", "chosen_groups")
_OPTIONAL = ("experts", "shared_ffn", "dense_layers", "q_rank", "kv_rank")
TEXTS = ("name", "preset")
"""Fields of a printed decoder that are no numbers."""
_FORMS = (
    *("parts_recomputed", "host", "fetched_bytes", "returned_bytes", "stashes", "elementary", "exchanges"),
    *("works", "works_on_tables"),
)
"""What of a step's layout decides which terms there are; rows must share it too."""


def structure(dims: PrintedDecoder) -> Structure:
    """Return the structure of a model; rows with the same structure can be stacked."""
    return (*(getattr(dims, f) for f in _STRUCTURE), *(bool(getattr(dims, f)) for f in _OPTIONAL))


def forms_of(plan: StepLayout) -> tuple[str, ...]:
    """Return the fields of a layout that rows must share to be stacked."""
    return _FORMS if plan.works is None else (*_FORMS, "tp")


def group_of(dims: PrintedDecoder, plan: StepLayout) -> tuple[object, ...]:
    """Return what rows share that are stacked; with an optimizer of matrices, whose work depends on the shape of each
    matrix in its own way, also their dimensions."""
    alone = () if plan.works is None else (dims,)
    return (*structure(dims), *(getattr(plan, form) for form in forms_of(plan)), *alone)


def software_of(row: StepRow) -> stacks.SoftwareStack:
    """Return the software stack of a row, with the dispatcher of experts' tokens that it states."""
    return stacks.dispatched(row.stack or stacks.UNKNOWN, row.dispatcher, "stack")


def plan_of(row: StepRow, micro: float, chunks: int, at: Machine) -> StepLayout:
    """Return the layout of a row's step; what it does not state is the default of its software."""
    stack = software_of(row)
    batch = row.global_batch or 1
    micro = min(micro, max(1.0, batch / row.dp))
    sp = stack.sequence_parallel if row.sp is None else row.sp
    zero = stack.zero if row.zero is None else row.zero
    layers, core, matmuls = recomputed(row, stack)
    optimizer = OPTIMIZERS[row.optimizer or "adamw"]
    gradient = row.gradient_bytes or reduced_bytes(POLICIES[row.policy], stack.gradient_bytes)
    return StepLayout(
        sequence=row.seq,
        micro_batch=micro,
        micro_batches=max(1.0, float(np.ceil(batch / (row.dp * micro) - 1e-9))),
        tp=row.tp,
        pp=row.pp,
        vp=chunks,
        cp=row.cp,
        ep=row.ep,
        dp=row.dp,
        sequence_parallel=1 if sp and row.tp > 1 else 0,
        zero=zero if row.gpus > 1 else 0,
        shards=row.shards or 0,
        layers_recomputed=layers,
        attention_recomputed=core,
        products_recomputed=matmuls,
        experts_recomputed=1 if matmuls else 0,
        parts_recomputed=recompute(row.recompute).apart if is_of_parts(row.recompute) else (),
        gathers_inputs=1 if stack.gathers_inputs and sp and row.tp > 1 else 0,
        splits_boundary=1 if stack.splits_boundary and not sp else 0,
        flash=0 if (row.attention or stack.attention) == "eager" else 1,
        low=1 if at.bits < 16 else 0,
        casts=2 if row.rowwise else 1,
        wide_stream=1 if widens(row, stack) else 0,
        gradient_bytes=gradient,
        gathered_bytes=gathered_bytes(POLICIES[row.policy], zero, stack.gathers_low),
        optimizer_bytes=updated_bytes(row.policy, optimizer),
        host=FUSED_ON_HOST if row.hosts else 0,
        returned_bytes=gradient if row.hosts else 0,
        works=optimizer.works,
        works_on_tables=0 if optimizer.only_matrices else 1,
        elementary=1 if stack.eager else 0,
        gathers_layers=gathered_apart(stack.eager and row.gpus > 1, zero, 2),
        reduces_tensors=1 if stack.reduces_tensors else 0,
        gathers_again=1 if zero >= 3 else 0,
        exchanges=1 if row.exchanges else 0,
        etp=row.etp,
        expert_load=row.capacity or (row.imbalance if row.ep > 1 else 1),
        sends_copies=1 if stack.sends_copies else 0,
        one_hot=1 if stack.masks_experts and row.capacity else 0,
        shared_tile=0 if row.capacity else stack.tile_of_experts(at.generation),
        lanes=at.lanes,
        idle=IDLE.get(row.schedule, 1),
    )


def kernel_of(row: StepRow, stack: stacks.SoftwareStack, generation: str) -> str:
    """Return the attention kernel of a row: the one it states, or its software's own."""
    return stack.runs(row.attention, generation)


def widens(row: StepRow, stack: stacks.SoftwareStack) -> bool:
    """Return whether a row ran autocast over fp32 weights, which FSDP would gather in 16 bits."""
    zero = stack.zero if row.zero is None else row.zero
    return POLICIES[row.policy].autocast and (zero < 3 or row.gpus == 1)


def updated_bytes(policy: str, optimizer: Optimizer) -> float:
    """Return the bytes per parameter of an optimizer's step; the constants were fitted with those of bf16-mixed for
    every policy but bf16-pure."""
    pure = policy == "bf16-pure"
    return step_traffic(POLICIES["bf16-pure" if pure else "bf16-mixed"], optimizer.copies, 2 if pure else 4)


def recomputed(row: StepRow, stack: stacks.SoftwareStack) -> tuple[float, float, float]:
    """Return the recomputed shares of the layers, of the attention core and of the matmuls."""
    if row.recompute == "full":
        return 1.0, 0.0, 0.0
    if is_of_parts(row.recompute):
        return 0.0, float(CORE_ATTENTION in recompute(row.recompute).modules), 0.0
    if row.recompute == "selective" and stack.selective == "attention":
        return 0.0, 1.0, 0.0
    if row.recompute_layers:
        return row.recompute_layers, 0.0, 0.0
    return 0.0, 0.0, SECOND_LINEARS if row.recompute == "selective" else row.recompute_matmuls


def candidates(row: StepRow, dims: PrintedDecoder, at: Machine) -> list[StepLayout]:
    """Return the row's plans: several if it does not state the micro-batch or the interleaving."""
    micro = (
        [row.micro_batch] if row.micro_batch else [b for b in MICRO_BATCHES if b * row.dp <= (row.global_batch or 1)]
    )
    chunks = [row.vp] if row.vp else [1]
    if row.vp is None and row.pp > 1 and row.schedule == "interleaved":
        chunks = [v for v in INTERLEAVES if v > 1 and v * row.pp <= dims.layers]
    elif row.vp is None and row.pp > 1 and row.micro_batch is None and row.schedule != "1f1b":
        chunks = [v for v in INTERLEAVES if v * row.pp <= dims.layers]
    return [plan_of(row, b, v, at) for b in micro or [1] for v in chunks or [1]]


@record
class Candidate:
    """A plan of a row. keys: index of the constant of each field of its rates; index: that of the row among those
    kept."""

    shape: PrintedDecoder
    plan: StepLayout
    machine: Machine
    index: int
    keys: dict[str, int]
    row: StepRow


@record
class RowGroup:
    """Rows of one structure as arrays. `rows`: the row of each candidate."""

    model: Model
    plan: StepLayout
    machine: Machine
    rows: Indices
    fields: Mapping[str, Indices]
    early: Early
    pure: Mask
    sharded: Mask


class Columns:
    """Rows that can be predicted, and the reasons why others cannot.

    kept      rows that can be predicted, in order
    why       row id → reason, for the others
    constants names of all constants that the rows use"""

    def __init__(self, rows: Sequence[StepRow]) -> None:
        self.why: dict[str, str] = {}
        self.kept: list[StepRow] = []
        self.constants: list[str] = ["one", "zero"]
        number = {"one": 0, "zero": 1}
        gathered: dict[tuple[object, ...], list[Candidate]] = {}
        for row in rows:
            if row.why or row.shape is None:
                self.why[row.id] = row.why
                continue
            try:
                stack = software_of(row)
                compute = POLICIES[row.policy].compute
                card = hardware.find(row.chip)
                if compute in ("bf16", "fp16") and compute not in card.peaks:
                    compute = card.default_dtype
                card = bridged(card) if row.bridge else card
                at = machine(card, compute, row.network, row.node)
            except NapkinError as problem:
                self.why[row.id] = problem.message
                continue
            apart = widens(row, stack)
            kernel = kernel_of(row, stack, at.generation)
            asynchronous = Asynchronous(row.async_tp, row.async_ep, row.graphs, row.async_dp)
            used = constant_names(at, stack, kernel, row.fabric, asynchronous, row.loss, apart, factors())
            for name in used.values():
                if name not in number:
                    number[name] = len(number)
                    self.constants.append(name)
            dims = row.shape if row.shape.vocab else replace(row.shape, vocab=UNSTATED_VOCABULARY)
            index = len(self.kept)
            self.kept.append(row)
            keys = {field: number[name] for field, name in used.items()}
            for plan in candidates(row, dims, at):
                gathered.setdefault(group_of(dims, plan), []).append(Candidate(dims, plan, at, index, keys, row))
        self.groups = [_group(members) for members in gathered.values()]

    def values(self, constants: Mapping[str, float]) -> Floats:
        """Return constants by name as the array that `predict` takes."""
        given = {"one": 1.0, "zero": 0.0, **constants}
        return np.array([given[name] for name in self.constants])

    def predict(self, values: Floats) -> Floats:
        """Return seconds of a step for each kept row.

        `values`: constants in order, one set for all rows or one set for each (rows × constants), so that each row can
        be predicted without its own source."""
        seconds = np.full(len(self.kept), np.inf)
        for group in self.groups:
            np.minimum.at(seconds, group.rows, self.steps(group, values).time.value)
        return seconds

    def predict_sets(self, sets: Floats) -> Floats:
        """Return seconds of a step (sets × kept rows) for each of several sets of constants (sets × constants)."""
        seconds: Floats = np.full((len(self.kept), len(sets)), np.inf)
        for group in self.groups:
            found = self._timed(group, _of_sets(sets, group.fields)).time.value
            np.minimum.at(seconds, group.rows, np.broadcast_to(found, (len(sets), len(group.rows))).T)
        transposed: Floats = seconds.T
        return transposed

    def exposed(self, values: Floats) -> Floats:
        """Return the share of each kept row's step that exposed data-parallel communication takes. values: as `predict`
        takes them."""
        seconds, shares = self.predict(values), np.zeros(len(self.kept))
        for group in self.groups:
            time = self.steps(group, values).time
            fastest = np.asarray(time.value == seconds[group.rows])
            shares[group.rows[fastest]] = np.broadcast_to(np.asarray(exposed_share(time)), len(group.rows))[fastest]
        return shares

    def steps(self, group: RowGroup, values: Floats) -> StepTime:
        if values.ndim == 1:
            return self._timed(group, lambda field: values[group.fields[field]])
        return self._timed(group, lambda field: values[group.rows, group.fields[field]])

    def _timed(self, group: RowGroup, pick: Callable[[str], Floats]) -> StepTime:
        at = rates(pick, group.machine, group.early, group.pure, group.sharded)
        with np.errstate(all="ignore"):
            return step(group.model, group.plan, at)


def _of_sets(sets: Floats, fields: Mapping[str, Indices]) -> Callable[[str], Floats]:
    """Return what picks a field's constant as (sets × candidates)."""

    def pick(field: str) -> Floats:
        found: Floats = sets[:, fields[field]]
        return found

    return pick


def _stacked(members: Iterable[object], names: Iterable[str]) -> dict[str, Floats]:
    """Return the fields of that name as arrays with one entry for each member."""
    listed = list(members)
    return {name: np.array([getattr(one, name) for one in listed], dtype=float) for name in names}


def _group(members: Sequence[Candidate]) -> RowGroup:
    first = members[0]
    dimensions = _stacked((one.shape for one in members), (f for f in fields(PrintedDecoder) if f not in TEXTS))
    figures = _stacked(
        (one.machine for one in members), (f for f in fields(Machine) if f not in ("generation", "chip"))
    )
    forms = forms_of(first.plan)
    plan: dict[str, Any] = {form: getattr(first.plan, form) for form in forms}
    plan |= _stacked((one.plan for one in members), (f for f in fields(StepLayout) if f not in forms))
    software = [software_of(one.row) for one in members]
    early = [early_of(stack, one.row.async_dp) for one, stack in zip(members, software, strict=True)]
    copies = np.array([one.row.gpus > 1 and s.copies_shards for one, s in zip(members, software, strict=True)])
    return RowGroup(
        decoders(SimpleNamespace(**dimensions), first.shape) if first.plan.works is None else decoder(first.shape),
        StepLayout(**plan),
        Machine(generation="", chip="", **figures),
        np.array([one.index for one in members]),
        {field: np.array([one.keys[field] for one in members]) for field in first.keys},
        Early(np.array([one.reduces for one in early], float), np.array([one.gathers for one in early], float)),
        np.array([one.row.policy == "bf16-pure" for one in members]),
        (plan["zero"] == 3) & copies,
    )
