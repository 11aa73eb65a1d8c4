"""The question of `memory`, `step` and `train-time` about reinforcement learning, read from the options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.commands.inputs import Inputs
from napkin.commands.question.confidence import read_confidence, widening
from napkin.commands.question.machine import RATES, read_gpus, read_hardware
from napkin.commands.question.model import read_model
from napkin.commands.question.setup import read_setup
from napkin.commands.question.step_model import read_prediction
from napkin.commands.question.tasks import read_task
from napkin.commands.question.untimed import check_stashed, read_untimed
from napkin.commands.rollout.engine import read_away, read_engine, read_offload_of_passes, read_place
from napkin.commands.rollout.lengths import read_lengths, read_means_below, read_padding, read_spans, read_unbounded
from napkin.commands.rollout.seconds import RolloutSeconds, seconds_of
from napkin.errors import NapkinError
from napkin.evidence.predictions.one_run import StepPrediction
from napkin.inputs.hardware import Hardware
from napkin.operations.model import Model
from napkin.options.training import SETUP_DEFAULTS
from napkin.planning.padding import TrainerPasses
from napkin.planning.rollout_lengths import RolloutLengths
from napkin.planning.rollout_memory import STATES, RolloutFit, Sharing, moved_away, spanned, weigh
from napkin.planning.rollouts import gathered, micro_batches, scored
from napkin.record import record
from napkin.term import Term
from napkin.training.setup import Setup


@record
class RolloutQuestion:
    """A step of reinforcement learning.

    setups      of the trainer's update, and of its passes without gradients, over sequences of the largest length; if
                memory depends on unknown means, over sequences of the likely, the smallest and the largest mean
    sharing     the engine and its share of the trainer's GPUs
    spans       the likely lengths; then those with the least and the most mean tokens, where means are not stated; then
                the likely ones for each other size of micro-batch that the library may take, if none is stated
    predictions of an optimizer step over sequences of each mean length; none for memory
    unbounded   option → likely mean of the lengths of which nothing is given, for a question that needs them
    asked       the options as given, to read the same question with other options
    """

    model: Model
    setups: tuple[tuple[Setup, Setup], ...]
    hardware: Hardware
    sharing: Sharing
    spans: tuple[RolloutLengths, ...]
    predictions: tuple[StepPrediction, ...]
    stack_named: bool
    confidence: float
    unbounded: Mapping[str, str]
    asked: Inputs

    @property
    def setup(self) -> Setup:
        """The setup with the likely lengths."""
        return self.setups[0][0]

    @property
    def lengths(self) -> RolloutLengths:
        """The likely lengths."""
        return self.spans[0]

    @property
    def gpus(self) -> int:
        """All GPUs, those of the trainer and of an engine on its own."""
        engine = self.sharing.engine
        return int(self.setup.layout.gpus) + (engine.gpus if engine is not None and engine.apart else 0)

    @property
    def capacity(self) -> Term:
        return self.hardware.term("capacity", "memory/capacity", "byte")

    def weighed(self, source: str = "") -> RolloutFit:
        """Return the memory of each phase. source: the implementation that the activations belong to."""
        times = widening(self.confidence)
        found, *others = (
            weigh(self.model, setups, self.sharing, self.capacity, source, times) for setups in self.setups
        )
        return spanned(found, others, self.capacity)

    def timed(self, fit: RolloutFit) -> list[RolloutSeconds]:
        """Return a step's seconds with each of its lengths. fit: its memory."""
        away = moved_away(fit.terms, self.sharing.away)
        return [
            seconds_of(prediction, self.sharing.engine, lengths, self.hardware, self.model, away)
            for lengths, prediction in zip(self.spans, self.predictions, strict=True)
        ]


def read(inputs: Inputs, timed: bool = True) -> RolloutQuestion:
    """Read the question. timed: mean lengths matter; memory is that of the longest."""
    task = read_task(inputs)
    spans = read_spans(inputs) if timed else (read_lengths(inputs, timed),)
    lengths = spans[0]
    inputs.defaults(SETUP_DEFAULTS)
    model = read_model(inputs)
    hardware = read_hardware(inputs, (*(RATES if timed else ()), "memory-size"))
    read_gpus(inputs)
    total = inputs.integer("gpus", default="1")
    trainer = read_padding(inputs)
    inputs.default("rollout", f"colocated:{trainer.share:g}")
    place = read_place(inputs, trainer)
    if place.gpus >= total:
        raise NapkinError(
            f"--rollout separate:{place.gpus}: --gpus {total:,} counts all, the trainer's too",
            f"--gpus {place.gpus + 8}",
        )
    if lengths.behind and not place.gpus:
        raise NapkinError(
            "--off-policy-steps: responses are generated on separate GPUs while others are trained on",
            "--rollout separate:GPUS",
        )
    tokens = () if "micro-batch" in inputs else trainer.micro_batches(lengths.most)
    passes = [(one, tokens[0] if tokens else 0) for one in spans] + [(lengths, one) for one in tokens[1:]]
    setup, predictions = _read_passes(inputs, model, hardware, passes, lengths, total - place.gpus, timed)
    setup = scored(setup, trainer.scores, lengths.longest)
    means = spans if timed else read_means_below(inputs, lengths)
    engine = read_engine(inputs, model, hardware, lengths, place, trainer)
    away = read_away(inputs, trainer, place)
    _note(inputs, task.name, away, lengths)
    return RolloutQuestion(
        model=model,
        setups=tuple(one for held in tokens or (0,) for one in micro_batches(setup, means, trainer.unpads, held)),
        hardware=hardware,
        sharing=Sharing(engine, trainer.sleeps, away, trainer.movable, trainer.returns),
        spans=tuple(one for one, _ in passes),
        predictions=tuple(predictions),
        stack_named="stack" in inputs,
        confidence=read_confidence(inputs),
        unbounded=read_unbounded(inputs, lengths),
        asked=inputs,
    )


def _note(inputs: Inputs, task: str, away: tuple[str, ...], lengths: RolloutLengths) -> None:
    """Note what is assumed."""
    if lengths.behind:
        inputs.note(
            f"{task}: the next responses are generated while the trainer works; then the weights are transferred"
        )
    else:
        inputs.note(f"{task}: generation, passes without gradients and the update follow each other")
    if lengths.generated < 1:
        inputs.note(
            f"the model generates the responses of {lengths.generated:.0%} of the steps; the others have the data's"
        )
    inputs.note("each response is trained on once")
    if lengths.updates > 1:
        inputs.note(
            f"a step generates for {lengths.prompts:,} prompts: --updates {lengths.updates} of "
            f"--global-batch {lengths.prompts // lengths.updates:,} each"
        )
    if "compile" in inputs:
        inputs.note("--compile applies to the trainer's passes, not to the generation engine")
    if away:
        inputs.note(f"{' and '.join(away)}: moved to the host while responses are generated, and back for the update")
    kept = [one for one in inputs.texts("offload") if one in STATES and one not in away]
    if kept:
        inputs.note(f"{' and '.join(kept)}: on the host in the update too, which updates the weights there")


def _read_passes(
    inputs: Inputs,
    model: Model,
    hardware: Hardware,
    passes: Sequence[tuple[RolloutLengths, int]],
    lengths: RolloutLengths,
    gpus: int,
    timed: bool,
) -> tuple[Setup, list[StepPrediction]]:
    """Return the trainer's setup over the longest sequences, and, if it is `timed`, the predictions over those of the
    mean lengths of `passes`, each with the tokens of a micro-batch, 0 where its sequences are known."""
    changes: dict[str, str | bool | None] = {
        "seq": str(lengths.most),
        "global-batch": str(lengths.batch),
        "gpus": str(gpus),
        "offload": read_offload_of_passes(inputs, read_padding(inputs)),
    }
    asked = inputs.changed(changes)
    asked.defaults(SETUP_DEFAULTS)
    if timed:
        read_untimed(asked)
    setup = read_setup(asked, model)
    if timed:
        check_stashed(setup.offload, setup.layout.recompute.kind)
    trainer = read_padding(asked)
    stated = "micro-batch" in inputs
    setups = [TrainerPasses(one, trainer, tokens).timed(setup, stated) for one, tokens in passes]
    if not stated:
        setup = gathered(setup, lengths, trainer.micro)
    predictions = [read_prediction(asked, model, one, hardware) for one in setups if timed]
    if not stated:
        packs = passes[0][1]
        if packs:
            asked.note(f"{trainer.name} packs sequences into micro-batches of up to {packs:,} tokens: --micro-batch N")
        for name, value in (("micro-batch", setups[0].layout.micro), ("grad-accum", setups[0].layout.micro_batches)):
            asked.record(name, int(value), "default")
    inputs.adopt(asked)
    for note in asked.notes:
        inputs.note(note)
    for name, shown in asked.shown.items():
        if name not in changes and name not in inputs:
            inputs.shown[name] = shown
    return setup, predictions
