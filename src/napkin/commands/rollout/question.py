"""What `memory`, `step` and `train-time` are asked about reinforcement learning, read from the options."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.commands.question.confidence import read_confidence
from napkin.commands.question.frozen import read_implementation
from napkin.commands.question.machine import RATES, read_hardware
from napkin.commands.question.model import read_model
from napkin.commands.question.nodes import read_gpus
from napkin.commands.question.setup import read_setup
from napkin.commands.question.step_model import read_prediction
from napkin.commands.question.tasks import read_task
from napkin.commands.rollout.engine import read_form, read_shares
from napkin.commands.rollout.lengths import MEANS, read_lengths, read_means_below, read_spans
from napkin.commands.rollout.seconds import RolloutSeconds, seconds_of
from napkin.commands.rollout.seconds import spanned as spanned_times
from napkin.errors import NapkinError
from napkin.evidence.rates import machine
from napkin.evidence.single import StepPrediction
from napkin.inputs.hardware import Hardware
from napkin.operations.model import Model
from napkin.options.training import SETUP_DEFAULTS
from napkin.planning.rollout_memory import RolloutFit, Sharing, moved_away, spanned, weigh
from napkin.planning.rollouts import APART, FORMAT, Engine, RolloutLengths, held_by_micro_batch, ranks_needed
from napkin.record import record, replace
from napkin.term import Term
from napkin.training.setup import Setup
from napkin.training.trainers import LOOP, Trainer
from napkin.training.trainers import find as find_trainer


@record
class RolloutQuestion:
    """A step of reinforcement learning.

    setup       of the passes of the trainer, over sequences of the largest length
    sharing     the engine, and how it shares GPUs with the trainer
    prediction  of the trainer's passes, over sequences of the mean length
    averaged    mean lengths are stated
    ends        the least and the most that mean lengths may be where they are not, with the prediction of each
    otherwise   the setup over sequences of such lengths, where the memory of the trainer depends on means
    """

    model: Model
    setup: Setup
    hardware: Hardware
    implementation: str
    lengths: RolloutLengths
    sharing: Sharing
    prediction: StepPrediction
    stack_named: bool
    confidence: float
    averaged: bool
    ends: tuple[tuple[RolloutLengths, StepPrediction], ...] = ()
    otherwise: tuple[Setup, ...] = ()

    @property
    def gpus(self) -> int:
        """All GPUs, those of the trainer and of an engine on its own."""
        engine = self.sharing.engine
        return int(self.setup.layout.gpus) + (engine.gpus if engine is not None and engine.apart else 0)

    @property
    def capacity(self) -> Term:
        return self.hardware.term("capacity", "memory/capacity", "byte")

    def weighed(self, source: str = "") -> RolloutFit:
        """Return the memory of each phase. source: whose implementation the activations are of."""
        found, *others = (
            weigh(self.model, setup, self.implementation, self.sharing, self.capacity, source)
            for setup in (self.setup, *self.otherwise)
        )
        return spanned(found, others, self.capacity)

    def timed(self) -> RolloutSeconds:
        """Return a step's seconds."""
        return self._timed(self.lengths, self.prediction)

    def spanned(self) -> dict[str, tuple[float, float]]:
        """Return the interval of each of its times: over the lengths that means may be, too."""
        found = [self._timed(*one) for one in ((self.lengths, self.prediction), *self.ends)]
        return spanned_times(found, self.confidence, self.stack_named)

    def _timed(self, lengths: RolloutLengths, prediction: StepPrediction) -> RolloutSeconds:
        away = moved_away(self.weighed().terms, self.sharing.away) if self.sharing.away else None
        return seconds_of(prediction, self.sharing.engine, lengths, self.hardware, self.model, away)


def read(inputs: Inputs, timed: bool = True) -> RolloutQuestion:
    """Read the question. timed: mean lengths matter; memory is that of the longest."""
    task = read_task(inputs)
    lengths, *others = read_spans(inputs) if timed else (read_lengths(inputs, timed),)
    inputs.defaults(SETUP_DEFAULTS)
    model = read_model(inputs)
    hardware = read_hardware(inputs, (*RATES, "memory-size"))
    read_gpus(inputs)
    total = inputs.integer("gpus", default="1")
    trainer = find_trainer(inputs.text("trainer")) if inputs.has("trainer") else LOOP
    where, _, size = inputs.text("rollout", default=f"colocated:{trainer.share:g}").partition(":")
    apart = int(size) if where == "separate" else 0
    if apart >= total:
        raise NapkinError(
            f"--rollout separate:{apart}: --gpus {total:,} counts all, the trainer's too", f"--gpus {apart + 8}"
        )
    away = inputs.texts("offload") or (() if apart or where == "none" else trainer.away)
    if lengths.behind and not apart:
        raise NapkinError(
            "--off-policy-steps: answers are generated while others are trained on, on GPUs of their own",
            "--rollout separate:GPUS",
        )
    setup, predictions = _read_passes(inputs, model, hardware, (lengths, *others), total - apart)
    means = (lengths, *others) if timed else read_means_below(inputs, lengths)
    setup, *otherwise = _without_padding(setup, means, trainer)
    engine = _read_engine(inputs, model, hardware, lengths, where, total, size, trainer)
    if engine is not None and not engine.apart and trainer is LOOP:
        inputs.assume("the engine asleep while training")
    _note(inputs, task.name, away, lengths)
    return RolloutQuestion(
        *(model, setup, hardware, read_implementation(inputs), lengths, Sharing(engine, trainer.sleeps, away)),
        prediction=predictions[0],
        stack_named="stack" in inputs,
        confidence=read_confidence(inputs),
        averaged=all(name in inputs for name in MEANS),
        ends=tuple(zip(others, predictions[1:], strict=True)),
        otherwise=tuple(otherwise),
    )


def _without_padding(setup: Setup, means: tuple[RolloutLengths, ...], trainer: Trainer) -> list[Setup]:
    """Return the setup over the longest sequences, or, where a micro-batch of several has no padding, over the largest
    one that they make, for each of the means."""
    micro = int(setup.layout.micro)
    if not trainer.unpads or micro == 1:
        return [setup]
    cp = int(setup.layout.cp)
    held = [-(-held_by_micro_batch(one, micro) // cp) * cp for one in means]
    return [replace(setup, layout=setup.layout.replaced(seq=one)) for one in held]


def _note(inputs: Inputs, task: str, away: tuple[str, ...], lengths: RolloutLengths) -> None:
    """Say what is taken for granted."""
    if lengths.behind:
        inputs.note(f"{task}: the next answers are generated while the trainer works; then the weights are transferred")
    else:
        inputs.note(f"{task}: generation, log-probabilities and the update follow each other")
    inputs.note("each answer is trained on once")
    if "compile" in inputs:
        inputs.note("--compile: of the passes that are trained; the engine's are what they are")
    if away:
        inputs.note(f"{' and '.join(away)}: moved to the host while answers are generated, and back")


def _read_passes(
    inputs: Inputs, model: Model, hardware: Hardware, lengths: tuple[RolloutLengths, ...], gpus: int
) -> tuple[Setup, list[StepPrediction]]:
    """Return the trainer's setup over the longest sequences, and the predictions over mean ones."""
    changes: dict[str, str | bool] = {
        "seq": str(lengths[0].most),
        "global-batch": str(lengths[0].batch),
        "gpus": str(gpus),
    }
    asked = inputs.changed(changes)
    for name in ("nodes", "offload"):
        asked.given.pop(name, None)
        asked.shown.pop(name, None)
    asked.defaults(SETUP_DEFAULTS)
    setup = read_setup(asked, model)
    means = [replace(setup, layout=setup.layout.replaced(seq=one.mean)) for one in lengths]
    predictions = [read_prediction(asked, model, mean, hardware) for mean in means]
    inputs.adopt(asked)
    for note in asked.notes:
        inputs.note(note)
    for name, shown in asked.shown.items():
        if name not in changes and name not in inputs:
            inputs.shown[name] = shown
    return setup, predictions


def _read_engine(
    inputs: Inputs,
    model: Model,
    hardware: Hardware,
    lengths: RolloutLengths,
    where: str,
    total: int,
    size: str,
    trainer: Trainer,
) -> Engine | None:
    """Return the inference engine; None where answers are not generated here. trainer: whose library starts it."""
    inputs.depends(("rollout-tp",), where != "none", "no answer is generated here", "--rollout colocated:0.5")
    if where == "none":
        return None
    gpus = int(size) if where == "separate" else total
    share = APART if where == "separate" else float(size)
    node = int(machine(hardware, "bf16").node)
    ranks = inputs.integer_or_none("rollout-tp")
    apart = where == "separate"
    shared = not apart and read_shares(inputs, trainer)
    form = read_form(inputs, trainer) if shared else FORMAT
    if ranks is None:
        needed = ranks_needed(model, hardware.capacity, share, lengths.most, min(node, gpus), form)
        ranks = max(needed, min(trainer.ranks, gpus))
        inputs.default("rollout-tp", str(ranks))
        ranks = inputs.integer("rollout-tp")
    if gpus % ranks:
        raise NapkinError(f"--rollout-tp {ranks} does not divide the engine's {gpus:,} GPUs", "one that does")
    return Engine(model, gpus, ranks, share, apart, trainer.engine, trainer.broadcast, form, shared)
