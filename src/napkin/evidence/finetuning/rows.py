"""Read a row of measured fine-tuning (schema finetune/1) as the setup of a step. Fields that are not understood, and
required fields that are missing, raise an error with the reason; an ambiguous field gives all its readings."""

from __future__ import annotations

from napkin.architectures import implementation_of
from napkin.errors import NapkinError
from napkin.evidence.finetuning.adapters import PROJECTED, adapters_of, check_kind, open_adapters
from napkin.evidence.finetuning.alternatives import alternatives_of
from napkin.evidence.finetuning.defaults import attention_of, context_of, dropout_of, gets_mask, kernel_of_memory
from napkin.evidence.finetuning.layout import divisions_of, layout_of, saves_of, steps_of
from napkin.evidence.finetuning.lengths import RowLengths
from napkin.evidence.finetuning.models import (
    card_of,
    frozen_layers,
    frozen_part,
    is_judged,
    least_room_of,
    model_of,
    reference_of,
    room_of,
    teacher_of,
)
from napkin.evidence.finetuning.software import (
    framework_of,
    holds_logits,
    is_reentrant,
    offload_of,
    precisions_of,
    trainer_of,
    with_kernels,
    with_loss,
)
from napkin.evidence.intervals.margins import Asked, widths_of
from napkin.evidence.rows.optimizers import optimizer_of
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.runs import run_kind_of
from napkin.evidence.rows.teams import origin_of
from napkin.evidence.rows.words import graphs_named
from napkin.evidence.software.scripts import scripts_of
from napkin.evidence.software.stacks import STACKS
from napkin.footprint.allocator import CONTEXT, Figure
from napkin.inputs.hardware import Hardware
from napkin.operations.implementations import ALWAYS, CUDNN, EFFICIENT, Implementation
from napkin.operations.model import Model
from napkin.operations.trained import with_score
from napkin.operations.tuning import Tuning
from napkin.options.training import GRAPHS, PARTS
from napkin.record import record, replace
from napkin.training.framework import Framework
from napkin.training.layout import Layout
from napkin.training.precision import Precision
from napkin.training.recomputation import recompute
from napkin.training.setup import Setup, keeps_adapters
from napkin.training.tasks import TASKS, Task, forward_passes, loss_of
from napkin.training.trainer import Trainer
from napkin.training.trainers import LOOP
from napkin.training.versions import is_before

SCORED = Task("seq_cls", scalar=True)
"""One answer for a whole sequence: a head of one output, as the reward model's, and sequences by themselves."""
PREDICTED = {
    SCORED.name: SCORED,
    **{name: TASKS[name] for name in ("sft", "dpo", "orpo", "simpo", "kto", "rm", "gkd")},
}
"""Tasks of rows that train on samples."""


@record
class FineTuning:
    """A row as a question.

    hardware  None if not stated        software  the stack with the most similar steps
    room      bytes of a GPU, None if not stated
    least     those that it has at least, fewer where a row states the accelerator's size alone
    steps     of the whole run, 0 if it does not say
    saves     checkpoints that the run writes, 0 if it does not say
    lengths   of its sequences                oom  the run was out of memory
    judged    all that is known of its memory is whether it fit
    joined    a sequence is several samples of unknown length, each of which attends only to itself
    run_kind  of the whole run: a benchmark's time to its target has evaluations in it
    otherwise alternative setups, if a run that ran does not fit with this one
    divisions other degrees on as many GPUs, if the row states none
    adds_up   whether gradients are accumulated over micro-batches is not stated
    other     adapters of another kind, modeled as LoRA with as many parameters, or LoRA that the row leaves open
    opened    setups with the least and the most that LoRA may be where the row leaves it open, for its time
    wider     with weights in the other dtype that its script may have loaded, and as other versions ran it
    graphs    what CUDA graphs capture (options/training.py, GRAPHS); "": as its software has it
    kernel    of attention, as its time takes it; flash: of the version that the software runs
    context   of CUDA
    """

    model: Model
    setup: Setup
    hardware: Hardware | None
    room: float | None
    software: str
    steps: float
    lengths: RowLengths
    oom: bool
    judged: bool
    joined: bool
    run_kind: str
    otherwise: tuple[Setup, ...] = ()
    divisions: tuple[Setup, ...] = ()
    adds_up: bool = False
    other: bool = False
    opened: tuple[Setup, ...] = ()
    wider: tuple[Setup, ...] = ()
    graphs: str = ""
    kernel: str = "flash"
    context: Figure = CONTEXT
    least: float | None = None
    saves: int = 0


RESHARDS = (2, 1)
"""The release of torch from which on FSDP frees gathered parameters that are frozen."""


@record
class _Stated:
    """What a row states of its run, read once.

    kind   what is trained: full, or a kind of adapter
    other  its kind of adapter, if that is modeled as LoRA
    wider  other precisions that its script may have loaded
    """

    task: Task
    kind: str
    other: bool
    model: Model
    trainer: Trainer
    framework: Framework
    precision: Precision
    wider: tuple[Precision, ...]
    layout: Layout
    lengths: RowLengths

    @property
    def adapted(self) -> bool:
        """Whether adapters are trained, and not the network's own weights."""
        return self.kind != "full"


def _stated_by(row: RowFields) -> _Stated:
    """Return what a row states. Refused if something is missing, or stated and not understood."""
    task, kind, other = _task_of(row), _kind_of(row), check_kind(row)
    model, trainer = model_of(row), trainer_of(row)
    framework = _framework_of(row, trainer, kind)
    precision, *wider = (framework.formats(one) for one in precisions_of(row, trainer, framework, kind))
    layout, lengths = layout_of(row, task.rows)
    scored = with_score(model) if task.scalar else model
    return _Stated(task, kind, other, scored, trainer, framework, precision, tuple(wider), layout, lengths)


def fine_tuning(row: RowFields) -> FineTuning:
    """Return a row as a question. Refused if something is missing, or stated and not understood."""
    stated = _stated_by(row)
    model, layout, lengths, framework = stated.model, stated.layout, stated.lengths, stated.framework
    base = implementation_of(stated.trainer.builds(framework), model.family)
    plain = with_loss(row, model, base, framework, (row.count("layout.tp") or 1) > 1)
    masked = gets_mask(row, base, lengths, layout)
    bare = _for_task(row, stated, plain, masked)
    tuning = adapters_of(row, model, bare, stated.other) if stated.adapted else None
    kernel, card = attention_of(row, base), card_of(row)
    kernel = EFFICIENT if masked and kernel != CUDNN else kernel
    setup = _setup_of(row, stated, as_it_runs(row, bare, tuning, stated.precision, framework), kernel)
    sums = row.count("layout.grad_accum") or row.count("layout.global_batch")
    return FineTuning(
        model,
        setup,
        card,
        room_of(row, card),
        stated.trainer.stack_on(framework),
        steps_of(row, layout),
        lengths,
        bool(row.flag("measured.oom")),
        is_judged(row),
        bool(row.flag("layout.packed")) and row.count("layout.seq") is None and not lengths.varied,
        run_kind_of(row),
        _otherwise(row, setup),
        tuple(replace(setup, layout=one) for one in divisions_of(row, layout)),
        adds_up=framework.defers and not sums,
        other=stated.other,
        opened=tuple(
            replace(setup, implementation=as_it_runs(row, bare, one, stated.precision, framework))
            for one in open_adapters(row, model, bare)
        ),
        wider=(
            *(replace(setup, precision=one) for one in stated.wider),
            *alternatives_of(row, model, setup, plain.loss),
        ),
        graphs=graphs_of(row, stated.trainer.stack_on(framework)),
        kernel=kernel,
        context=context_of(row),
        least=least_room_of(row, card),
        saves=saves_of(row, layout),
    )


def graphs_of(row: RowFields, stack: str) -> str:
    """Return what CUDA graphs capture in a row's run: what it states, or what its stack's submissions to MLPerf do."""
    stated = graphs_named(row.text("layout.graphs"))
    if stated in GRAPHS:
        return stated
    known = STACKS.get(stack)
    return PARTS if run_kind_of(row) == "benchmark" and known is not None and known.graphed_layers else ""


def _for_task(row: RowFields, stated: _Stated, plain: Implementation, masked: bool) -> Implementation:
    """Return an implementation with the task's loss. masked: its attention always gets an explicit mask."""
    form = loss_of(stated.task, plain.loss, stated.precision, log_probs=plain.log_probs)
    bare = replace(plain, loss=form, holds_logits=holds_logits(row))
    return replace(bare, kernel_mask=ALWAYS) if masked else bare


def _setup_of(row: RowFields, stated: _Stated, implementation: Implementation, kernel: str) -> Setup:
    """Return the setup of a step. kernel: of attention, as its time takes it."""
    task, model, framework, adapted = stated.task, stated.model, stated.framework, stated.adapted
    optimizer, form, in_backward = optimizer_of(row)
    card = card_of(row)
    return Setup(
        implementation,
        stated.layout,
        stated.precision,
        optimizer,
        form,
        kernel_of_memory(kernel),
        dropout_of(row, model, implementation),
        framework=framework,
        offload=offload_of(row, stated.trainer, stated.layout.recompute),
        in_backward=in_backward,
        task=task,
        forwards=forward_passes(
            task, reference_of(row, task, adapted), teacher_of(row, task), framework.reference_first
        ),
        generation="" if card is None else card.generation,
        widths=widths_of(framework.name, Asked(True, stated.precision.compute, origin_of(row))),
        frozen=None if adapted else frozen_layers(row, model),
        asleep="" if adapted else frozen_part(row, model),
        still_head=not adapted and row.flag("method.freeze_head") is True,
    )


def as_it_runs(
    row: RowFields, bare: Implementation, tuning: Tuning | None, precision: Precision, framework: Framework
) -> Implementation:
    """Return an implementation with adapters and the row's kernels."""
    kept = bare if tuning is None else keeps_adapters(replace(bare, tuning=tuning), precision, framework)
    return with_kernels(row, kept)


def _task_of(row: RowFields) -> Task:
    """Return the task, one that trains on samples."""
    task = row.text("task")
    asked = PREDICTED.get(task)
    if asked is None:
        raise NapkinError(f"the task {task[:40]} is not predicted")
    if asked.generates and "colocate" in row.text("rl.mode"):
        raise NapkinError("distillation of responses that an engine on the same GPUs generates is not modeled")
    return asked


def _kind_of(row: RowFields) -> str:
    """Return what is trained: full, or a kind of adapter."""
    kind = row.text("method.kind")
    return "full" if kind in PROJECTED else kind  # an optimizer of all weights


def _framework_of(row: RowFields, trainer: Trainer, kind: str) -> Framework:
    """Return the framework, as its version and the trainer's checkpoints make it keep frozen blocks."""
    framework = framework_of(row, row.text("layout.stack").lower(), trainer)
    if not framework.under_library:
        return framework
    reentrant = is_reentrant(row, trainer)
    late = reentrant and framework.fsdp == 1 and trainer is not LOOP
    framework = replace(framework, reentrant=reentrant, gathers_late=late)
    if kind == "full":
        return framework
    old = is_before("torch", row.text("layout.versions"), RESHARDS)
    return replace(framework, keeps_frozen=True) if old else framework


def _otherwise(row: RowFields, setup: Setup) -> tuple[Setup, ...]:
    """Return alternative setups of a run that does not fit as its row is read, from what the row leaves open."""
    found = []
    layout = setup.layout
    may_shard = scripts_of(setup.framework).may_shard
    if may_shard and row.count("layout.zero", least=0) is None and not layout.zero:
        found.append(layout.replaced(zero=may_shard))
    if not row.text("layout.recompute"):
        last = found[-1] if found else layout
        found.append(last.replaced(recompute=recompute("full", "recompute")))
    return tuple(replace(setup, layout=one) for one in found)
