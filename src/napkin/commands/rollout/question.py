"""What `memory`, `step` and `train-time` are asked about reinforcement learning, read from the options."""

from __future__ import annotations

import math

from napkin.commands.inputs import Inputs
from napkin.commands.question.confidence import read_confidence
from napkin.commands.question.frozen import read_implementation
from napkin.commands.question.machine import RATES, WHICH, read_hardware
from napkin.commands.question.model import read_model
from napkin.commands.question.nodes import read_gpus
from napkin.commands.question.setup import read_setup
from napkin.commands.question.step_model import read_prediction
from napkin.commands.question.tasks import read_task
from napkin.commands.rollout.seconds import RolloutSeconds, seconds_of
from napkin.errors import NapkinError
from napkin.evidence.answers import TokenRange, answers_within, prompts_within
from napkin.evidence.rates import machine
from napkin.evidence.single import StepPrediction
from napkin.inputs.hardware import Hardware
from napkin.operations.model import Model
from napkin.options.training import SETUP_DEFAULTS
from napkin.planning.rollout_memory import RolloutFit, Sharing, moved_away, weigh
from napkin.planning.rollouts import APART, Engine, RolloutLengths, ranks_needed
from napkin.record import record, replace
from napkin.term import Term
from napkin.training.setup import Setup
from napkin.training.trainers import LOOP, Trainer
from napkin.training.trainers import find as find_trainer

SPANS = {"prompt-tokens": ("prompts", prompts_within), "response-tokens": ("answers", answers_within)}
"""Options of mean lengths: of what, and how long they are below the longest, which each has an option for."""
MEANS = tuple(SPANS)
USAGES = {
    "global-batch": "--global-batch N: prompts a step, for all GPUs",
    "prompt-tokens": "--prompt-tokens N: mean tokens; or --max-prompt-tokens, and they are assumed",
    "response-tokens": "--response-tokens N: mean tokens; or --max-response-tokens, and they are assumed",
}


@record
class RolloutQuestion:
    """A step of reinforcement learning.

    setup       of the passes of the trainer, over sequences of the largest length
    sharing     the engine, and how it shares GPUs with the trainer
    prediction  of the trainer's passes, over sequences of the mean length
    averaged    mean lengths are stated
    ends        the least and the most that mean lengths may be where they are not, with the prediction of each
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
        return weigh(self.model, self.setup, self.implementation, self.sharing, self.capacity, source)

    def timed(self) -> RolloutSeconds:
        """Return a step's seconds."""
        return self._timed(self.lengths, self.prediction)

    def spanned(self) -> dict[str, tuple[float, float]]:
        """Return the interval of each of its times: over the lengths that means may be, too."""
        lows: dict[str, float] = {}
        highs: dict[str, float] = {}
        for lengths, prediction in ((self.lengths, self.prediction), *self.ends):
            found = self._timed(lengths, prediction)
            values = {term.name: float(term.value) for term in (found.time, *found.time.parts, *found.phases)}
            for name, (low, high) in found.ends(self.confidence, self.stack_named).items():
                lows[name] = min(lows.get(name, math.inf), values[name] * low)
                highs[name] = max(highs.get(name, 0.0), values[name] * high)
        return {name: (low, highs[name]) for name, low in lows.items()}

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
    )


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


def read_spans(inputs: Inputs) -> tuple[RolloutLengths, ...]:
    """Return the lengths; where means are not stated, and the longest are, the likely ones, then the least and the most
    that they may be."""
    spans: dict[str, TokenRange] = {}
    said: list[str] = []
    for name, (what, within) in SPANS.items():
        longest = inputs.peek(f"max-{name}")
        if name not in inputs and isinstance(longest, (int, float)):
            spans[name] = found = within(int(longest))
            said.append(f"{what} of {found.likely:,} tokens")
            inputs.note(f"{what} of {found.least:,} to {found.most:,} tokens in the mean are in the interval")
    if said:
        inputs.assume(" and ".join(said))
    lengths = read_lengths(inputs, timed=True, known=tuple(spans))
    if not spans:
        return (lengths,)
    means = [{name: found.all[place] for name, found in spans.items()} for place in range(3)]
    return tuple(
        replace(
            lengths,
            prompt=one.get("prompt-tokens", lengths.prompt),
            response=one.get("response-tokens", lengths.response),
        )
        for one in means
    )


def read_lengths(inputs: Inputs, timed: bool, judged: bool = True, known: tuple[str, ...] = ()) -> RolloutLengths:
    """Return the lengths, and how many answers a step has; what is missing is named at once. timed: means matter; for
    memory alone the longest sequence is enough; judged: on an accelerator; known: means that are assumed."""
    whys = {"model": "which model?", **({"hardware": WHICH} if judged else {})}
    for name, (what, _) in SPANS.items():
        if name not in known and (timed or (f"max-{name}" not in inputs and "seq" not in inputs)):
            whys[name] = f"how long are {what}, on average?"
    whys |= {
        "samples-per-prompt": "how many answers to each prompt?",
        "global-batch": "how many prompts in an optimizer step?",
    }
    inputs.need_all(whys, usages=USAGES)
    whole = inputs.integer_or_none("seq")
    prompt, longest_prompt = _read_length(inputs, "prompt-tokens", 1)
    response, longest = _read_length(inputs, "response-tokens", None if whole is None else whole - longest_prompt)
    if timed and "max-response-tokens" not in inputs and whole is None:
        inputs.assume("every answer of the mean length")
    updates = inputs.integer("updates", default="1")
    found = RolloutLengths(
        prompt=prompt,
        response=response,
        longest=longest,
        answers=inputs.integer("samples-per-prompt"),
        prompts=inputs.integer("global-batch") * updates,
        longest_prompt=longest_prompt,
        updates=updates,
        behind=inputs.integer("off-policy-steps", default="0"),
    )
    if whole not in (None, found.most):
        raise NapkinError(
            f"--seq {whole:,}: the longest prompt and answer have {found.most:,} tokens together",
            "leave out --seq, or the longest ones",
        )
    return found


def _read_length(inputs: Inputs, name: str, rest: int | None) -> tuple[int, int]:
    """Return the mean tokens of a prompt or an answer, and those of the longest. rest: of the longest, where nothing
    else says it; None: the mean."""
    most = f"max-{name}"
    mean = inputs.integer_or_none(name)
    if most in inputs or rest is None or (mean is not None and name == "prompt-tokens"):
        longest = inputs.integer(most, default=None if mean is None else str(mean))
    else:
        longest = max(rest, 1)
    if mean is not None and longest < mean:
        raise NapkinError(f"--{most} {longest:,} is below the mean of {mean:,}", "the longest that is allowed")
    return longest if mean is None else mean, longest


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
    if ranks is None:
        ranks = max(
            ranks_needed(model, hardware.capacity, share, lengths.most, min(node, gpus)), min(trainer.ranks, gpus)
        )
        inputs.default("rollout-tp", str(ranks))
        ranks = inputs.integer("rollout-tp")
    if gpus % ranks:
        raise NapkinError(f"--rollout-tp {ranks} does not divide the engine's {gpus:,} GPUs", "one that does")
    return Engine(model, gpus, ranks, share, where == "separate", trainer.engine, trainer.broadcast)
