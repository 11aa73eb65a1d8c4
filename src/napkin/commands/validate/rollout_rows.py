"""What a row of measured reinforcement learning (schema finetune/1) states, as a step of phases that follow each other.
What is missing and needed is refused with the reason."""

from __future__ import annotations

import re
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
from napkin.planning.rollout_memory import moved_away
from napkin.planning.rollouts import APART, Engine, RolloutLengths
from napkin.planning.step_memory import terms_of
from napkin.planning.verdicts import evaluate
from napkin.record import record, replace
from napkin.training.layout import Layout
from napkin.training.recomputation import recompute
from napkin.training.setup import Setup
from napkin.training.tasks import LOGPROBS, NONE, SAME, TASKS, ForwardPass, forward_passes, loss_of
from napkin.training.trainers import Trainer

_Read = TypeVar("_Read")
COPY = "second copy"
"""Word of a reference model of its own."""
Interval = tuple[float, float, float]
"""A value and the ends of its interval."""
SYNCHRONOUS = ("on policy", "sync", "colocate sync", "colocate")
"""Words of runs whose phases follow each other."""
BEHIND = re.compile(r"(\d+)-step off|one-step")
"""Words of runs whose answers may be so many steps older than the weights."""


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
    places = stated(_places_of)
    stated(_check_models)
    if model is None or hardware is None or lengths is None or places is None or problems:
        raise NapkinError("; ".join(problem.message for problem in problems))
    trainer = trainer_of(row)
    setup = _setup_of(row, model, trainer, lengths, places.trainer)
    software = "megatron-core" if setup.framework.name == "megatron-core" else trainer.software
    prediction = single.asked(model, setup, hardware, software)
    ranks = min(row.count("rl.rollout_tp") or trainer.ranks, places.engine)
    share = row.number("rl.gpu_memory_utilization") or (APART if places.apart else trainer.share)
    engine = Engine(model, places.engine, ranks, share, places.apart)
    away = None
    if trainer.away and not places.apart:
        kept = evaluate(model, setup, trainer.implementation, hardware.capacity)
        away = moved_away(terms_of(kept, ""), trainer.away)
    seconds = seconds_of(prediction, engine, lengths, hardware, model, away)
    return RolloutRow(seconds, lengths, places.all, row.number("measured.steps") or 0.0)


@record
class Places:
    """GPUs of the trainer and of the engine; apart: they are others."""

    trainer: int
    engine: int
    apart: bool

    @property
    def all(self) -> int:
        return self.trainer + self.engine if self.apart else self.trainer


def _card_of(row: RowFields) -> Hardware:
    """Return the accelerator."""
    hardware = card_of(row)
    if hardware is None:
        raise NapkinError("the accelerator is not stated")
    return hardware


def _places_of(row: RowFields) -> Places:
    """Return the GPUs of the trainer and the engine: the same where phases follow each other and nothing else is
    stated."""
    gpus = row.count("hardware.count")
    if gpus is None:
        raise NapkinError("how many GPUs it ran on is not stated")
    trainer, engine = row.count("rl.trainer_gpus"), row.count("rl.rollout_gpus")
    if trainer and engine and trainer + engine == gpus:
        return Places(trainer, engine, apart=True)
    if _behind_of(row):
        raise NapkinError("how many of its GPUs generate is not stated")
    return Places(gpus, gpus, apart=False)


def _behind_of(row: RowFields) -> int:
    """Return by how many steps answers may be older than the weights. Phases that overlap otherwise are refused."""
    said = (row.text("rl.on_policy") or row.text("rl.mode")).lower()
    if said in SYNCHRONOUS:
        return 0
    found = BEHIND.search(said)
    if found is None:
        raise NapkinError(f"how its phases overlap is not modeled: {said[:40] or 'not stated'}")
    return int(found[1] or 1)


def _check_models(row: RowFields) -> None:
    """Refuse adapters, and models of values and rewards."""
    if row.text("method.kind") not in ("full", ""):
        raise NapkinError("how an engine takes adapters is not modeled")
    if TASKS[row.text("task")].critic:
        raise NapkinError("which models of values and rewards run is not stated")


def lengths_of(row: RowFields) -> RolloutLengths:
    """Return the lengths: where only a sequence's mean is stated, all of it as the answer."""
    answers = row.number("rl.response_length_mean") or row.number("rl.response_length")
    prompt = row.number("rl.prompt_length_mean") or row.number("rl.prompt_length")
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
    step = row.count("layout.global_batch") or (row.count("rl.mini_batch") or 0) * group
    return RolloutLengths(
        prompt=round(prompt),
        response=round(answers),
        longest=max(longest, round(answers)),
        answers=group,
        prompts=samples // group,
        updates=max(samples // step, 1) if step else 1,
        behind=_behind_of(row),
    )


def _setup_of(row: RowFields, model: Model, trainer: Trainer, lengths: RolloutLengths, gpus: int) -> Setup:
    """Return what the trainer runs in an optimizer step: one sequence at a time where the row does not say; a reference
    as its library has it."""
    task = TASKS[row.text("task")]
    framework = framework_of(row, row.text("layout.stack").lower(), trainer)
    name = framework.implementation if framework.implementation != "hf" else trainer.implementation
    precision = framework.formats(precision_of(row, trainer, framework, "full"))
    layout = _layout_of(row, trainer, lengths, gpus)
    implementation = framework.implements(implementation_of(name, model.family), False, int(layout.tp) > 1)
    optimizer, form = optimizer_of(row)
    said = row.text("rl.reference").lower()
    reference = SAME if said == COPY or (not said and task.name in trainer.penalizes) else NONE
    return Setup(
        replace(implementation, loss=loss_of(task, implementation.loss, precision)),
        layout,
        precision,
        optimizer,
        form,
        framework=framework,
        task=task,
        forwards=(ForwardPass(LOGPROBS, adapters=True, first=True), *forward_passes(task, reference, None, True)),
        widths=widths_of(framework.name),
    )


def _layout_of(row: RowFields, trainer: Trainer, lengths: RolloutLengths, gpus: int) -> Layout:
    """Return the layout of the trainer over sequences of the mean length."""
    tp, pp, cp, ep = (row.count(f"layout.{name}") or 1 for name in ("tp", "pp", "cp", "ep"))
    dp, rest = divmod(gpus, tp * pp * cp)
    if rest:
        raise NapkinError(f"its degrees do not divide {gpus} GPUs")
    micro = row.count("layout.micro_batch") or 1
    sequences = lengths.prompts * lengths.answers // lengths.updates
    usual = "full" if trainer.recomputes(row.text("layout.versions")) else "none"
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
        recompute=recompute((row.text("layout.recompute") or usual).split(" ")[0], "recompute"),
    )
