"""What a row of measured reinforcement learning (schema finetune/1) states, as a step of phases that follow each other.
What is missing and needed is refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from napkin.architectures import implementation_of
from napkin.commands.rollout.seconds import RolloutSeconds, seconds_of
from napkin.errors import NapkinError
from napkin.evidence import single
from napkin.evidence.finetune_rows import card_of, model_of
from napkin.evidence.finetune_software import framework_of, optimizer_of, precision_of, trainer_of
from napkin.evidence.margins import widths_of
from napkin.evidence.rows import RowFields, WrongRow
from napkin.inputs.hardware import Hardware
from napkin.operations.model import Model
from napkin.planning.rollouts import Engine, RolloutLengths
from napkin.record import record, replace
from napkin.training.layout import Layout
from napkin.training.recomputation import recompute
from napkin.training.setup import Setup
from napkin.training.tasks import LOGPROBS, NONE, TASKS, ForwardPass, forward_passes, loss_of
from napkin.training.trainers import Trainer

_Read = TypeVar("_Read")
Interval = tuple[float, float, float]
"""A value and the ends of its interval."""
SYNCHRONOUS = ("on policy", "sync", "colocate sync", "colocate")
"""Words of runs whose phases follow each other."""


@record
class RolloutRow:
    """A row as a question. steps: of the whole run, 0 where it does not say."""

    seconds: RolloutSeconds
    lengths: RolloutLengths
    gpus: int
    steps: float

    def predicted(self, quantity: str, level: float) -> tuple[Interval, str]:
        """Return a quantity with its interval; no verdict: of which phase its memory is is not stated."""
        value, path = self._value(quantity)
        shortest, longest = self.seconds.ends(level, named=False)[path]
        if quantity.endswith(("_per_gpu", "_per_second")):
            shortest, longest = 1 / longest, 1 / shortest
        return (value, value * shortest, value * longest), ""

    def evidence(self, quantity: str) -> str:
        """Return what an interval rests on: of passes of training, the class of their steps; else it is assumed."""
        passes = quantity in ("logprob_seconds", "update_seconds")
        return self.seconds.prediction.evidence if passes else "assumed"

    def _value(self, quantity: str) -> tuple[float, str]:
        """Return a quantity, and the path of the time that its interval is of."""
        seconds = float(self.seconds.time.value)
        parts = {part.name: float(part.value) for part in self.seconds.time.parts}
        phases = {"gen_seconds": "generation", "logprob_seconds": "logprobs", "update_seconds": "update"}
        if quantity in phases:
            path = f"step/{phases[quantity]}"
            return parts[path], path
        if quantity == "run_seconds":
            if not self.steps:
                raise NapkinError("how many steps the run took is not stated")
            return seconds * self.steps, "step/time"
        samples = self.lengths.prompts * self.lengths.answers
        rates = {
            "step_seconds": seconds,
            "tokens_per_second_per_gpu": self.lengths.tokens / seconds / self.gpus,
            "samples_per_second": samples / seconds,
        }
        if quantity not in rates:
            raise NapkinError("of which phase its memory is is not stated")
        return rates[quantity], "step/time"


def rollout_row(row: RowFields) -> RolloutRow:
    """Return a row as a question. Refused where something is missing, or stated and not understood, with all of it."""
    task = TASKS[row.text("task")]
    problems: list[NapkinError] = []

    def stated(read: Callable[[RowFields], _Read]) -> _Read | None:
        try:
            return read(row)
        except WrongRow:
            raise
        except NapkinError as problem:
            problems.append(problem)
            return None

    model, hardware, lengths = stated(model_of), stated(_card_of), stated(lengths_of)
    ranks, _ = stated(_ranks_of), stated(_check_phases)
    if model is None or hardware is None or lengths is None or ranks is None or problems:
        raise NapkinError("; ".join(problem.message for problem in problems))
    if task.critic:
        raise NapkinError("which models of values and rewards run is not stated")
    trainer = trainer_of(row)
    setup = _setup_of(row, model, trainer, lengths)
    prediction = single.asked(model, setup, hardware, trainer.software)
    gpus = int(setup.layout.gpus)
    share = row.number("rl.gpu_memory_utilization") or trainer.share
    engine = Engine(model, gpus, min(ranks, gpus), share, apart=False)
    seconds = seconds_of(prediction, engine, lengths, hardware, model)
    return RolloutRow(seconds, lengths, gpus, row.number("measured.steps") or 0.0)


def _card_of(row: RowFields) -> Hardware:
    """Return the accelerator."""
    hardware = card_of(row)
    if hardware is None:
        raise NapkinError("the accelerator is not stated")
    return hardware


def _ranks_of(row: RowFields) -> int:
    """Return the tensor-parallel ranks of the engine."""
    ranks = row.count("rl.rollout_tp")
    if ranks is None:
        raise NapkinError("the ranks of its engine are not stated")
    return ranks


def _check_phases(row: RowFields) -> None:
    """Refuse phases that overlap, and adapters."""
    said = (row.text("rl.on_policy") or row.text("rl.mode")).lower()
    if said not in SYNCHRONOUS:
        raise NapkinError(f"how its phases overlap is not modeled: {said[:40] or 'not stated'}")
    if row.text("method.kind") not in ("full", ""):
        raise NapkinError("how an engine takes adapters is not modeled")


def lengths_of(row: RowFields) -> RolloutLengths:
    """Return the lengths: where only a sequence's mean is stated, all of it as the answer."""
    answers, prompt = row.number("rl.response_length_mean"), row.number("rl.prompt_length_mean")
    whole = row.number("rl.sequence_length_mean")
    if answers is None and whole is not None:
        answers, prompt = whole - 1, 1
    if answers is None:
        longest = row.count("rl.response_length_max")
        known = f"; only that they have at most {longest:,} tokens" if longest else ""
        raise NapkinError(f"how long its answers are is not stated{known}")
    if prompt is None:
        raise NapkinError("how long its prompts are is not stated")
    longest = row.count("rl.response_length_max") or row.count("layout.seq_max") or round(answers)
    samples = row.count("rl.samples_per_step")
    group = row.count("rl.group") or 1
    if samples is None:
        prompts = row.count("rl.prompts")
        if prompts is None:
            raise NapkinError("how many answers a step has is not stated")
        samples = prompts * group
    return RolloutLengths(round(prompt), round(answers), max(longest, round(answers)), group, samples // group)


def _setup_of(row: RowFields, model: Model, trainer: Trainer, lengths: RolloutLengths) -> Setup:
    """Return what the trainer runs: one sequence at a time where the row does not say."""
    task = TASKS[row.text("task")]
    framework = framework_of(row, row.text("layout.stack").lower(), trainer)
    name = framework.implementation if framework.implementation != "hf" else trainer.implementation
    precision = framework.formats(precision_of(row, trainer, framework, "full"))
    layout = _layout_of(row, lengths)
    implementation = framework.implements(implementation_of(name, model.family), False, int(layout.tp) > 1)
    optimizer, form = optimizer_of(row)
    return Setup(
        replace(implementation, loss=loss_of(task, implementation.loss, precision)),
        layout,
        precision,
        optimizer,
        form,
        framework=framework,
        task=task,
        forwards=(ForwardPass(LOGPROBS, adapters=True, first=True), *forward_passes(task, NONE, None, True)),
        widths=widths_of(framework.name),
    )


def _layout_of(row: RowFields, lengths: RolloutLengths) -> Layout:
    """Return the layout of the trainer over sequences of the mean length."""
    gpus = row.count("hardware.count")
    if gpus is None:
        raise NapkinError("how many GPUs it ran on is not stated")
    tp, pp, cp, ep = (row.count(f"layout.{name}") or 1 for name in ("tp", "pp", "cp", "ep"))
    dp, rest = divmod(gpus, tp * pp * cp)
    if rest:
        raise NapkinError(f"its degrees do not divide {gpus} GPUs")
    micro = row.count("layout.micro_batch") or 1
    sequences = lengths.prompts * lengths.answers
    zero = row.count("layout.zero", least=0)
    megatron = row.text("layout.stack").lower() == "megatron-core"
    return Layout(
        seq=-(-lengths.mean // cp) * cp,
        micro=micro,
        micro_batches=max(1, sequences // (dp * micro)),
        tp=tp,
        pp=pp,
        dp=dp,
        cp=cp,
        ep=ep,
        sp=1 if tp > 1 else 0,
        zero=(1 if megatron else 0) if zero is None else zero,
        recompute=recompute((row.text("layout.recompute") or "none").split(" ")[0], "recompute"),
    )
