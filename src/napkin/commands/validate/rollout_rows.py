"""A measured reinforcement learning row (schema finetune/1) as a step with phases. Raises an error with the reason if a
required field is missing."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import chain
from typing import TypeVar

from napkin.commands.rollout.seconds import RolloutSeconds, seconds_of
from napkin.commands.validate.rollout_lengths import behind_of, lengths_of
from napkin.commands.validate.rollout_memory import TRAINERS_OWN, AskedStep, Interval, counted_in, held_in, memory_of
from napkin.commands.validate.rollout_setup import degrees_of, setup_of, trainer_in, trains_adapters
from napkin.errors import NapkinError
from napkin.evidence.finetuning.defaults import attention_of
from napkin.evidence.finetuning.models import BYTES, card_of, is_judged, model_of, room_of
from napkin.evidence.finetuning.software import offload_of
from napkin.evidence.intervals.rollouts import with_others
from napkin.evidence.predictions import one_run
from napkin.evidence.rates.machines import gpus_per_node, machine
from napkin.evidence.rows.fields import context_ranks, title_of
from napkin.evidence.rows.row import RowFields, WrongRow
from napkin.evidence.serving.words import engine_of
from napkin.inputs.hardware import Hardware
from napkin.operations.model import Model
from napkin.planning.rollout_lengths import RolloutLengths
from napkin.planning.rollout_memory import RolloutFit, moved_away
from napkin.planning.rollouts import APART, FORMAT, PARTS, Engine, ranks_needed
from napkin.planning.step_memory import terms_of
from napkin.planning.verdicts import NOT, evaluate
from napkin.record import record, replace
from napkin.timing.generation import eager_launches
from napkin.training.setup import Setup
from napkin.training.tasks import LOGPROBS

_Read = TypeVar("_Read")
GENERATED = re.compile(r"generation\W{1,3}(bf16|fp8)|(?:.*\b)?(bf16|fp8)\b[^,;]*generation")
"""Words of a precision that state the engine's: `Training BF16, Generation FP8`, `fp8 (training and generation)`."""
OWN = ("none", "transformers")
"""Words for runs in which the model itself generates, without an engine."""
NO_PASS = "the engine gives the log-probabilities: no pass of the trainer does"
NO_ENGINE = "the time of responses that a model generates without an engine is not modeled"
SPLIT = re.compile(r"(\d{1,5}) hybrid \+ (\d{1,5}) standalone")
"""Nodes whose GPUs train, and those whose GPUs only generate."""
MEMORY = "memory_"


@record
class RolloutRow:
    """A row as a question.

    seconds   of a step, with the likely lengths and placement, then with the others that the row leaves open
    lengths   the same      gpus  in total      steps  of the entire run, 0 if unknown
    held      memory of its phases, if measured        apart  the engine has separate GPUs
    bound     bytes of a GPU that it did not run out of
    counted   bytes of an engine in the figures of the trainer's process, which may exceed the GPU's
    timer     passes that the library's timer of log-probabilities holds
    streams   responses are generated while the model is trained      source  of the row, which is held out
    """

    seconds: tuple[RolloutSeconds, ...]
    lengths: tuple[RolloutLengths, ...]
    gpus: int
    steps: tuple[float, ...]
    streams: bool
    source: str
    held: list[RolloutFit]
    apart: bool = False
    bound: float = math.inf
    timer: tuple[str, ...] = (LOGPROBS,)
    counted: Interval = (0.0, 0.0, 0.0)

    def predicted(self, quantity: str, level: float) -> tuple[Interval, str]:
        """Return a quantity with its interval; and for memory the verdict on the run's accelerator."""
        if quantity == "gen_seconds" and self.streams:
            raise NapkinError(
                "responses are generated while the model is trained: what is measured is the wait for them, a small "
                "difference of two times that are both uncertain"
            )
        if quantity.startswith(MEMORY):
            verdict = self.held[0].verdict
            what = quantity.removeprefix(MEMORY)
            bound = math.inf if what in TRAINERS_OWN and any(self.counted) else self.bound
            value, low, high = (min(end, bound) for end in memory_of(self.held, what, self.apart, self.counted))
            return (value, low, high), verdict
        value, path = self.value(quantity, 0)
        shortest, longest = self.seconds[0].ends(level, named=False, without=self.source)[path]
        if quantity.endswith(("_per_gpu", "_per_second")):
            shortest, longest = 1 / longest, 1 / shortest
        others = [self.value(quantity, place)[0] for place in range(1, len(self.seconds))]
        return (value, *with_others(value, (shortest, longest), others)), ""

    def evidence(self, quantity: str) -> str:
        """Return the class of evidence of an interval: that of training steps for training passes; else assumed."""
        passes = quantity in ("logprob_seconds", "update_seconds")
        stated = len(self.seconds) == 1
        return self.seconds[0].prediction.evidence if passes and stated else "assumed"

    def value(self, quantity: str, place: int) -> tuple[float, str]:
        """Return a quantity, and the path of the time that its interval belongs to. place: index of the lengths."""
        timed, lengths, steps = self.seconds[place], self.lengths[place], self.steps[place]
        seconds = float(timed.time.value)
        parts = {part.name: float(part.value) for part in timed.phases}
        phases = {"gen_seconds": ("generation",), "logprob_seconds": self.timer, "update_seconds": ("update",)}
        if quantity in phases:
            found = [path for path in (f"step/{phase}" for phase in phases[quantity]) if path in parts]
            if not found:
                raise NapkinError(NO_PASS if quantity != "gen_seconds" else NO_ENGINE)
            return sum(parts[path] for path in found), found[0]
        if quantity == "run_seconds":
            if not steps:
                raise NapkinError("how many steps the run took is not stated")
            return seconds * steps, "step/time"
        if "step/generation" not in parts:
            raise NapkinError(NO_ENGINE)
        samples = lengths.prompts * lengths.answers
        rates = {
            "step_seconds": seconds,
            "tokens_per_second_per_gpu": lengths.tokens / seconds / self.gpus,
            "samples_per_second": samples / seconds,
        }
        return rates[quantity], "step/time"


def rollout_row(row: RowFields, inside: bool = False, without: str = "") -> RolloutRow:
    """Return a row as a question, its source held out unless `inside`, or the one that `without` says. Raises an error
    that lists everything missing or not understood."""
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
    if model is None or hardware is None or lengths is None or places is None or problems:
        raise NapkinError("; ".join(dict.fromkeys(problem.message for problem in problems)))
    likely, *other_tokens = _tokens_of(row, lengths[0]) or (0,)
    open_ = [
        *((one, places[0], likely) for one in lengths),
        *((lengths[0], one, likely) for one in places[1:]),
        *((lengths[0], places[0], one) for one in other_tokens),
    ]
    asked = [_asked(row, model, hardware, *one) for one in open_]
    source = without or ("" if inside else title_of(row))
    seconds = tuple(_seconds_of(one, source) for one in asked)
    judged = is_judged(row)
    weighs = judged or any(row.number(f"measured.{name}") for name in BYTES)
    held = [fit for one in asked for fit in held_in(one)] if weighs else []
    all_lengths = tuple(one for one, *_ in open_)
    steps = tuple(_steps_of(row, one) for one in all_lengths)
    return RolloutRow(
        seconds,
        all_lengths,
        places[0].all,
        steps,
        bool(lengths[0].behind),
        source,
        held,
        places[0].apart,
        math.inf if judged else hardware.capacity,
        trainer_in(row).timer,
        counted_in(asked[0]),
    )


def _steps_of(row: RowFields, lengths: RolloutLengths) -> float:
    """Return the steps of the entire run, 0 if the row does not say."""
    return row.number("measured.steps") or (row.number("measured.tokens") or 0.0) / lengths.tokens


def _tokens_of(row: RowFields, lengths: RolloutLengths) -> tuple[int, ...]:
    """Return the tokens of a micro-batch: as stated for each GPU of those that divide a sequence, else as the library
    packs them, the likely number first; none if the row states its sequences, or the library packs none. The longest
    sequence always fits."""
    if row.count("layout.micro_batch"):
        return ()
    stated = row.count("layout.token_budget") or row.count("layout.tokens_per_gpu_max")
    if stated:
        return (max(stated * context_ranks(row)[0], lengths.most),)
    return trainer_in(row).micro_batches(lengths.most)


def _asked(
    row: RowFields, model: Model, hardware: Hardware, lengths: RolloutLengths, places: Places, tokens: int
) -> AskedStep:
    """Return a step with these lengths as a question. tokens: of a micro-batch, 0 where its sequences are given."""
    trainer = trainer_in(row)
    setup = _fitting(row, model, hardware, lengths, places, tokens)
    kernel = attention_of(row, setup.implementation)
    said = row.text("rl.engine")
    if said in OWN:
        return AskedStep(model, hardware, trainer, setup, kernel, None, lengths, tokens)
    stated = offload_of(row, trainer, setup.layout.recompute)
    offloaded = trainer.away or trainer.between(stated)
    share = row.number("rl.gpu_memory_utilization") or (APART if places.apart else trainer.share)
    form = engine_format(row)
    ranks = _ranks_of(row, model, hardware, lengths, places, share, form)
    family = engine_of(said) if said else trainer.engine
    versions, stated_eager = row.text("layout.versions"), row.flag("rl.enforce_eager")
    eager = trainer.launches_eagerly(versions) if stated_eager is None else stated_eager
    engine = Engine(
        model,
        places.engine,
        ranks,
        share,
        places.apart,
        family=family,
        broadcast=trainer.broadcast,
        form=form,
        eager=eager_launches(trainer.applies and trains_adapters(row)) if eager else 0.0,
    )
    counted = trainer.counts_engine(versions, family)
    return AskedStep(model, hardware, trainer, setup, kernel, engine, lengths, tokens, offloaded, counted)


def _fitting(
    row: RowFields, model: Model, hardware: Hardware, lengths: RolloutLengths, places: Places, tokens: int
) -> Setup:
    """Return the trainer's setup; on a framework with pipeline stages, where the row states no degrees, with the first
    on which its step may fit, as a run did that is not judged by whether it fits."""
    trainer, gpus = trainer_in(row), places.trainer
    setups = (
        setup_of(row, model, trainer, lengths, gpus, hardware, tokens, degrees)
        for degrees in degrees_of(row, model, gpus, min(gpus_per_node(hardware), gpus))
    )
    first = next(setups)
    if not first.framework.divides.staged or is_judged(row):
        return first
    every = chain((first,), setups)
    fits = (one for one in every if evaluate(model, one, hardware.capacity).verdict != NOT)
    return next(fits, first)


def _seconds_of(asked: AskedStep, source: str) -> RolloutSeconds:
    """Return the seconds of a step, with that source held out."""
    trainer, setup, model, hardware = asked.trainer, asked.setup, asked.model, asked.hardware
    prediction = one_run.asked(model, setup, hardware, trainer.stack_on(setup.framework), asked.kernel)
    away = None
    if asked.away:
        kept = evaluate(model, setup, hardware.capacity)
        away = moved_away(terms_of(kept, ""), asked.away)
    return seconds_of(prediction, asked.engine, asked.lengths, hardware, model, away, source)


def _ranks_of(
    row: RowFields, model: Model, hardware: Hardware, lengths: RolloutLengths, places: Places, share: float, form: str
) -> int:
    """Return the tensor-parallel ranks of an engine: as stated, else the library's, or as many as hold the model."""
    stated = row.count("rl.rollout_tp")
    if stated:
        return min(stated, places.engine)
    node = min(int(machine(hardware, "bf16").node), places.engine)
    needed = ranks_needed(model, hardware.capacity, share, lengths.most, node, form)
    return min(max(needed, trainer_in(row).ranks), places.engine)


def engine_format(row: RowFields) -> str:
    """Return the number format of the engine's weights, where a row's precision states it."""
    found = GENERATED.search(row.text("layout.precision").lower())
    return FORMAT if found is None else found[1] or found[2]


@record
class Places:
    """GPUs of the trainer and of the engine; apart: these are different GPUs."""

    trainer: int
    engine: int
    apart: bool

    @property
    def all(self) -> int:
        return self.trainer + self.engine if self.apart else self.trainer


def _card_of(row: RowFields) -> Hardware:
    """Return the accelerator, with no more memory than the card had that the row says it ran on."""
    hardware = card_of(row)
    if hardware is None:
        raise NapkinError("the accelerator is not stated")
    room = room_of(row, hardware) or hardware.capacity
    return hardware if room == hardware.capacity else replace(hardware, capacity_reported=int(room))


def _places_of(row: RowFields) -> tuple[Places, ...]:
    """Return the GPUs of the trainer and the engine. Phases in sequence share all GPUs unless stated; otherwise return
    the likely division, then others."""
    gpus = row.count("hardware.count")
    if gpus is None:
        raise NapkinError("how many GPUs it ran on is not stated")
    trainer, engine = row.count("rl.trainer_gpus"), row.count("rl.rollout_gpus")
    nodes, each = SPLIT.fullmatch(row.text("rl.split_nodes")), row.count("hardware.per_node")
    if nodes and each:
        trainer, engine = int(nodes[1]) * each, int(nodes[2]) * each
    if trainer and engine and trainer + engine == gpus:
        return (Places(trainer, engine, apart=True),)
    if not behind_of(row):
        return (Places(gpus, gpus, apart=False),)
    replica = math.prod(row.count(f"layout.{name}") or 1 for name in ("tp", "pp", "cp"))
    engine_ranks = row.count("rl.rollout_tp") or 1
    parts = [int(gpus * part) for part in PARTS]
    found = [part for part in parts if part >= engine_ranks and gpus > part and not (gpus - part) % replica]
    if not found:
        raise NapkinError("how many of its GPUs generate is not stated")
    return tuple(Places(gpus - part, part, apart=True) for part in found)
