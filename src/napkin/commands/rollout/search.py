"""The search of `plan` for reinforcement learning: layouts of the trainer and placement of the engine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from napkin.commands.question.confidence import widening
from napkin.commands.rollout.seconds import RolloutSeconds, seconds_of
from napkin.commands.rollout.seconds import spanned as spanned_times
from napkin.errors import NapkinError
from napkin.evidence.predictions.one_run import StepPrediction
from napkin.operations.model import Model
from napkin.planning.layouts import LayoutQuestion, best, recommended
from napkin.planning.padding import TrainerPasses
from napkin.planning.rollout_lengths import RolloutLengths
from napkin.planning.rollout_memory import RolloutFit, Sharing, hosted_between, moved_away, spanned, weigh
from napkin.planning.rollouts import APART, FORMAT, PARTS, Engine, micro_batches, packed, ranks_needed, scored
from napkin.planning.verdicts import FITS, NOT
from napkin.record import record, replace
from napkin.term import Term
from napkin.training.layout import Layout
from napkin.training.setup import Setup
from napkin.training.trainer import Trainer

TRIED = 5
"""Layouts of the trainer that are evaluated with each engine: the fastest ones, and the Pareto front of time and
memory."""


@record
class Freedom:
    """The search space of the engine.

    shares   of each GPU's memory if it is colocated, until a step surely fits
    asleep   whether the engine sleeps during training
    away     the trainer's states that are offloaded during generation
    where    "", colocated or separate, as given            apart  GPUs of a separate engine, if given
    ranks    its tensor-parallel ranks, None: searched
    trainer  the library                                    stated  the sequences of its micro-batches are given
    host     bytes of the memory of a node's host, None: not given
    form, shared  number format of the weights of a colocated engine, and whether it shares the trainer's
    eager    seconds in which its host launches the kernels of a layer, 0 with CUDA graphs
    """

    shares: tuple[float, ...]
    asleep: bool
    away: tuple[str, ...]
    where: str
    apart: int
    ranks: int | None
    trainer: Trainer
    stated: bool
    host: float | None
    form: str
    shared: bool
    eager: float

    def tokens(self, layout: Layout, lengths: RolloutLengths) -> int:
        """Return the tokens of a micro-batch as large as a layout's where the library packs as many into each, at least
        the longest sequence; 0 where it has as many sequences."""
        if self.stated or not self.trainer.packs or self.trainer.padded:
            return 0
        ranks = int(layout.cp)
        return -(-max(int(layout.micro) * lengths.mean, lengths.most) // ranks) * ranks


@record
class RolloutLayout:
    """One layout of a step: the trainer's layout, the engine, the time of a step and the memory of its phases. open:
    its time with other mean lengths, if they are unknown; tokens: of a micro-batch, 0 where it has sequences."""

    layout: Layout
    sharing: Sharing
    seconds: RolloutSeconds
    fit: RolloutFit
    open: tuple[RolloutSeconds, ...] = ()
    tokens: int = 0

    def ends(self, level: float, named: bool) -> dict[str, tuple[float, float]]:
        """Return the interval of each of its times, in seconds."""
        return spanned_times((self.seconds, *self.open), level, named)

    @property
    def time(self) -> float:
        return float(self.seconds.time.value)

    @property
    def engine(self) -> Engine:
        assert self.sharing.engine is not None
        return self.sharing.engine

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return int(self.layout.gpus) + (self.engine.gpus if self.engine.apart else 0)


@record
class RolloutSearch:
    """The search. layouts: of the trainer, over the longest sequences; prediction: of a step, for what does not depend
    on the layout; lengths: of prompts and responses; others: those with the smallest and the largest mean, if the mean
    is unknown."""

    layouts: LayoutQuestion
    prediction: StepPrediction
    lengths: RolloutLengths
    freedom: Freedom
    capacity: Term
    others: tuple[RolloutLengths, ...] = ()
    confidence: float = 0.9

    @property
    def model(self) -> Model:
        return self.layouts.request.model

    def on(self, gpus: int) -> list[RolloutLayout]:
        """Return the layouts on this many GPUs: those that fit first, each group sorted by time."""
        return sorted(self._ways(gpus), key=lambda one: (one.fit.verdict == NOT, one.time))

    def _ways(self, gpus: int) -> Iterator[RolloutLayout]:
        """Yield the layouts with each engine. One on the trainer's GPUs is tried with one share after the other, until
        a step surely fits that moves no more to the host than the library does."""
        free = self.freedom
        if free.where == "separate" or self.lengths.behind:
            for engine in self._apart(gpus):
                yield from self._with(engine, gpus)
            return
        for share in free.shares:
            found = [one for engine in self._fastest(gpus, share, False) for one in self._with(engine, gpus)]
            yield from found
            if any(one.fit.verdict == FITS and one.sharing.away == free.away for one in found):
                return

    def _apart(self, gpus: int) -> Iterator[Engine]:
        """Yield the engines on GPUs of their own to try, each with the ranks that generate fastest."""
        free = self.freedom
        parts = {free.apart} if free.apart else {int(gpus * part) for part in PARTS}
        for part in sorted(part for part in parts if 0 < part < gpus):
            yield from self._fastest(part, APART, apart=True)

    def _fastest(self, gpus: int, share: float, apart: bool) -> Iterator[Engine]:
        """Yield the engine on this many GPUs with the ranks that generate fastest; none if no number of ranks holds the
        model."""
        node, capacity = self.layouts.request.node, float(self.capacity.value)
        form = FORMAT if apart else self.freedom.form
        try:
            longest, within = self.lengths.most, min(node, gpus)
            least = self.freedom.ranks or ranks_needed(self.model, capacity, share, longest, within, form)
        except NapkinError:
            return
        most = self.freedom.ranks or min(node, gpus)
        tried = [least << i for i in range(most.bit_length()) if least << i <= most]
        free = self.freedom
        engines = [
            Engine(
                self.model,
                gpus,
                ranks,
                share,
                apart,
                family=free.trainer.engine,
                broadcast=free.trainer.broadcast,
                form=form,
                shared=free.shared and not apart,
                eager=free.eager,
            )
            for ranks in tried
            if gpus % ranks == 0
        ]
        timed = []
        for engine in engines:
            try:
                timed.append((self._seconds(self.prediction, engine, None, self.lengths), engine))
            except NapkinError:  # its share leaves no cache
                continue
        if timed:
            yield min(timed, key=lambda one: _generating(one[0]))[1]

    def _seconds(
        self, prediction: StepPrediction, engine: Engine, away: Term | None, lengths: RolloutLengths
    ) -> RolloutSeconds:
        return seconds_of(prediction, engine, lengths, self.layouts.hardware, self.model, away)

    def _with(self, engine: Engine, gpus: int) -> Iterator[RolloutLayout]:
        """Yield the fastest layouts of the trainer with an engine; if one may not fit, also with the trainer's states
        offloaded to the host during generation."""
        free = self.freedom
        request = self.layouts.on(gpus - engine.gpus if engine.apart else gpus)
        found = self.layouts.find(request)
        if not len(found):
            return
        chosen = recommended(self.layouts, found, best(self.layouts, found)).layout
        tried = [*found.distinct(TRIED), *found.front()[:TRIED]]
        layouts = [*(found.layout(i) for i in tried), chosen]
        alike = {self._packed(layout).layout: layout for layout in layouts}  # of as many tokens, one of each
        for layout in alike.values():
            first = self._evaluated(layout, self._sharing(engine, free.away))
            yield first
            more = self._sharing(engine, self._movable())
            if first.fit.verdict != FITS and more.away != first.sharing.away:
                yield self._evaluated(layout, more)

    def _sharing(self, engine: Engine, away: tuple[str, ...]) -> Sharing:
        """Return how the trainer and an engine share GPUs, if they do."""
        return Sharing(engine, self.freedom.asleep, () if engine.apart else away, self.freedom.trainer.movable)

    def _movable(self) -> tuple[str, ...]:
        """Return the states that can be offloaded during generation: those that are not on the host anyway."""
        return tuple(one for one in self.freedom.trainer.movable if one not in self.layouts.request.setup.offload)

    def _packed(self, layout: Layout) -> Setup:
        """Return the setup of a layout with the sequences of its micro-batches as the library packs them."""
        setup, tokens = self.layouts.setup(layout), self.freedom.tokens(layout, self.lengths)
        return packed(setup, self.lengths, tokens) if tokens else setup

    def _evaluated(self, layout: Layout, sharing: Sharing) -> RolloutLayout:
        """Return one layout with its memory, over the longest sequences, and its time, over mean ones."""
        assert sharing.engine is not None
        trainer, tokens = self.freedom.trainer, self.freedom.tokens(layout, self.lengths)
        setup = scored(self._packed(layout), trainer.scores, self.lengths.longest)
        spans = (self.lengths, *self.others)
        times = widening(self.confidence)
        first, *rest = (
            weigh(self.model, one, sharing, self.capacity, times=times)
            for one in micro_batches(setup, spans, trainer.unpads, tokens)
        )
        fit = spanned(first, rest, self.capacity)
        if not self._hosted(hosted_between(fit.terms, sharing.away), layout):
            fit = replace(fit, verdict=NOT)
        away = moved_away(fit.terms, sharing.away)
        found, *others = (
            self._seconds(self._prediction(setup, lengths, tokens), sharing.engine, away, lengths) for lengths in spans
        )
        return RolloutLayout(setup.layout if tokens else layout, sharing, found, fit, tuple(others), tokens)

    def _hosted(self, kept: Mapping[str, Term], layout: Layout) -> bool:
        """Return whether host memory of a node suffices for what its GPUs offload during generation."""
        joined = min(self.layouts.request.node, int(layout.gpus))
        there = self.freedom.host
        return there is None or joined * sum(float(one.value) for one in kept.values()) <= there

    def _prediction(self, setup: Setup, lengths: RolloutLengths, tokens: int) -> StepPrediction:
        """Return the prediction of an optimizer step of a layout, over sequences as they run in the mean. tokens: of a
        micro-batch, 0 where it has sequences."""
        mean = TrainerPasses(lengths, self.freedom.trainer, tokens).timed(setup, stated=not tokens)
        plan, rates = self.layouts.timed(mean)
        at = replace(self.prediction.at, gpus=math.log(int(setup.layout.gpus)), seq=math.log(int(mean.layout.seq)))
        return replace(self.prediction, passes=mean.passes(self.model), plan=plan, rates=rates, at=at)


def _generating(found: RolloutSeconds) -> float:
    """Return the seconds that depend on the engine."""
    return sum(float(one.value) for one in found.phases if one.name in ("step/generation", "step/weight_transfer"))


def chosen(ways: list[RolloutLayout]) -> RolloutLayout | None:
    """Return the fastest layout that surely fits, else the fastest that may fit; None if there is none."""
    for verdicts in ((FITS,), None):
        found = [one for one in ways if one.fit.verdict != NOT and (verdicts is None or one.fit.verdict in verdicts)]
        if found:
            return min(found, key=lambda one: one.time)
    return None
