"""The trainer's setup, layout and passes in a measured reinforcement learning row."""

from __future__ import annotations

from napkin.architectures import build, implementation_of
from napkin.commands.validate.rollout_lengths import streams
from napkin.errors import NapkinError
from napkin.evidence.finetuning.adapters import adapters_of, check_kind
from napkin.evidence.finetuning.defaults import attention_of, dropout_of, kernel_of_memory
from napkin.evidence.finetuning.rows import as_it_runs
from napkin.evidence.finetuning.software import framework_of, offload_of, precision_of, trainer_of, with_loss
from napkin.evidence.intervals.margins import Asked, widths_of
from napkin.evidence.rows.fields import context_ranks
from napkin.evidence.rows.optimizers import optimizer_of
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.teams import origin_of
from napkin.inputs.hardware import Hardware
from napkin.inputs.model_file import load_config
from napkin.inputs.presets import is_preset
from napkin.operations.model import Model
from napkin.operations.trained import with_score
from napkin.planning.padding import TrainerPasses
from napkin.planning.rollout_lengths import RolloutLengths
from napkin.record import replace
from napkin.training.framework import Framework
from napkin.training.layout import Layout
from napkin.training.recomputation import recompute
from napkin.training.setup import Setup
from napkin.training.tasks import (
    ADAPTERS_OFF,
    CRITIC,
    LOGPROBS,
    NONE,
    REWARD,
    SAME,
    TASKS,
    ForwardPass,
    Task,
    forward_passes,
    loss_of,
    micro_batched,
)
from napkin.training.trainer import Trainer

COPY, OFF = "copy", "switched off"
"""Words for a separate reference model, and for the model with its adapters switched off."""


def trainer_in(row: RowFields) -> Trainer:
    """Return the library of a row, with or without padding as the row states."""
    trainer, free = trainer_of(row), row.flag("layout.padding_free")
    return trainer if free is None else replace(trainer, unpads=free)


def trains_adapters(row: RowFields) -> bool:
    """Return whether a row trains adapters instead of all weights."""
    return not (row.text("method.kind") or "full").startswith("full")


Degrees = tuple[int, int]
"""Tensor-parallel ranks and stages of a pipeline."""


def setup_of(
    row: RowFields,
    model: Model,
    trainer: Trainer,
    lengths: RolloutLengths,
    gpus: int,
    hardware: Hardware,
    tokens: int = 0,
    degrees: Degrees = (1, 1),
) -> Setup:
    """Return the trainer's setup of an optimizer step: a micro-batch and a reference as in its library if the row does
    not say. tokens: of a micro-batch, if sequences are packed; degrees: where the row states none."""
    task = TASKS[row.text("task")]
    framework = framework_of(row, row.text("layout.stack").lower(), trainer)
    kind = "full" if row.text("method.kind").startswith("full") else row.text("method.kind") or "full"
    adapted = kind != "full"
    narrow = "bf16" if "bf16" in hardware.peaks else "fp16"  # of a run that states no 16-bit format
    precision = framework.formats(precision_of(row, trainer, framework, kind, narrow))
    layout = _layout_of(row, trainer, framework, lengths, gpus, degrees)
    bare = with_loss(
        row, model, implementation_of(trainer.builds(framework), model.family), framework, int(layout.tp) > 1
    )
    tuning = adapters_of(row, model, bare, check_kind(row)) if adapted else None
    implementation = as_it_runs(row, bare, tuning, precision, framework)
    optimizer, form, in_backward = optimizer_of(row)
    stated = offload_of(row, trainer, layout.recompute)
    setup = Setup(
        replace(implementation, loss=loss_of(task, implementation.loss, precision, log_probs=implementation.log_probs)),
        layout,
        precision,
        optimizer,
        form,
        kernel_of_memory(attention_of(row, bare)),
        dropout_of(row, model, bare),
        framework=framework,
        in_backward=in_backward,
        offload=tuple(one for one in stated if one not in trainer.between(stated)),
        task=task,
        forwards=_forwards(row, task, trainer, model, adapted),
        generation=hardware.generation,
        widths=widths_of(framework.name, Asked(True, precision.compute, origin_of(row))),
    )
    return TrainerPasses(lengths, trainer, tokens).timed(setup, bool(row.count("layout.micro_batch")))


def _forwards(row: RowFields, task: Task, trainer: Trainer, model: Model, adapted: bool) -> tuple[ForwardPass, ...]:
    """Return the passes of a step without gradient, with a reference as in the library if the row does not say."""
    said = row.text("rl.reference").lower()
    compared = COPY in said or OFF in said or (not said and task.name in trainer.penalizes)
    reference = (ADAPTERS_OFF if adapted else SAME) if compared else NONE
    passes = (
        *(() if _takes_logprobs(row) else (ForwardPass(LOGPROBS, adapters=True, first=True),)),
        *_sampled(row, task, model),
        *forward_passes(task, reference, None, True),
    )
    return micro_batched(passes, row.count("rl.logprob_micro_batch") or 0, trainer.larger)


def _takes_logprobs(row: RowFields) -> bool:
    """Return whether the trainer takes the engine's log-probabilities: what verl does where responses are generated all
    the time (docs/advance/fully_async.md, rollout_correction.bypass_mode), unless it is decoupled from them."""
    return streams(row) and not row.flag("rl.decoupled")


DEGREES = ("tp", "pp", "cp", "ep", "ulysses")


def degrees_of(row: RowFields, model: Model, gpus: int, node: int) -> list[Degrees]:
    """Return the degrees to try, fewest first: those that the row states, else tensor parallelism within a node, then
    stages between nodes."""
    if any(row.count(f"layout.{name}") for name in DEGREES):
        return [(1, 1)]
    tensor = [(tp, 1) for tp in POWERS if tp <= node]
    found = [*tensor, *((tensor[-1][0], pp) for pp in POWERS[1:])]
    fits = [(tp, pp) for tp, pp in found if not (gpus % (tp * pp) or model.kv_heads % tp or model.depth % pp)]
    return fits or [(1, 1)]


POWERS = (1, 2, 4, 8)


def _layout_of(
    row: RowFields, trainer: Trainer, framework: Framework, lengths: RolloutLengths, gpus: int, degrees: Degrees
) -> Layout:
    """Return the layout of the trainer over sequences of the mean length."""
    tp, pp, ep = (
        row.count(f"layout.{name}") or usual for name, usual in zip(("tp", "pp", "ep"), (*degrees, 1), strict=True)
    )
    cp, ulysses = context_ranks(row)
    dp, rest = divmod(gpus, tp * pp * cp)
    if rest:
        raise NapkinError(f"its degrees do not divide {gpus} GPUs")
    micro = row.count("layout.micro_batch") or 1
    sequences = lengths.prompts * lengths.answers // lengths.updates
    usual = "full" if trainer.recomputes(row.text("layout.versions"), framework=framework.name) else "none"
    zero = row.count("layout.zero", least=0)
    usual_stage = trainer.stage(framework)
    return Layout(
        seq=-(-lengths.mean // cp) * cp,
        micro=micro,
        micro_batches=max(1, sequences // (dp * micro)),
        tp=tp,
        pp=pp,
        dp=dp,
        cp=cp,
        ep=ep,
        vp=row.count("layout.vp") or 1,
        ulysses=ulysses,
        sp=1 if tp > 1 and row.flag("layout.sp") is not False else 0,
        zero=usual_stage if zero is None else zero,
        recompute=recompute((row.text("layout.recompute") or usual).split(" ")[0], "recompute"),
    )


def _sampled(row: RowFields, task: Task, policy: Model) -> tuple[ForwardPass, ...]:
    """Return the passes over responses that a task with a value model adds to those of the policy."""
    if not task.critic:
        return ()
    found = []
    reward, values = _other_of(row, "reward_model", policy), _other_of(row, "critic", policy)
    if reward is not None:
        found.append(ForwardPass(REWARD, reward, held=True, first=True))
    if values is not None:
        found.append(ForwardPass("values", values, first=True))
        found.append(ForwardPass(CRITIC, values, held=True, trained=True, first=True))
    return tuple(found)


def _other_of(row: RowFields, field: str, policy: Model) -> Model | None:
    """Return the reward or value model of a row: of the policy's shape if the row says only that there is one; None if
    it says that there is none."""
    said = row.text(f"rl.{field}")
    if said.lower() in ("none", "no", "false"):
        return None
    return with_score(build(load_config(said)) if said and is_preset(said) else policy)
