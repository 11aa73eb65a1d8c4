"""Suggestions that make a step of reinforcement learning fit: each is verified by asking the changed question, and its
extra time is that of the step."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.commands.memory.host import holds, host_of, read_host
from napkin.commands.memory.remedies import extra, read_found, read_given, read_host_of, suggestion
from napkin.commands.rollout.question import RolloutQuestion, read
from napkin.commands.rollout.seconds import spanned
from napkin.errors import NapkinError
from napkin.evidence.rates.machines import gpus_per_node
from napkin.footprint.memory import least_states
from napkin.planning.remedies import HOST_TOO_SMALL, TOO_LARGE, Remedy, RemedySearch, remedies
from napkin.planning.remedy_axes import Options
from napkin.planning.rollout_axes import rollout_axes
from napkin.planning.rollout_memory import RolloutFit, hosted_between
from napkin.planning.verdicts import Fit
from napkin.record import record, replace
from napkin.render.answer import Answer, Row
from napkin.term import Term

Changes = tuple[tuple[str, "str | bool"], ...]


@record
class _Held:
    """The memory of a changed question: of a GPU, and of a node's host, if anything is kept there."""

    fit: RolloutFit
    host: Term | None
    room: float | None


def suggest(answer: Answer, question: RolloutQuestion, fit: RolloutFit) -> None:
    """Add suggestions: those on the same GPUs, the fastest first, then one with more GPUs. fit: memory as asked."""
    tried = _Changed(question, fit)
    found = rollout_axes(
        question.model,
        (question.setup, question.setups[0][1]),
        read_given(question.asked),
        gpus_per_node(question.hardware),
        question.sharing,
        question.lengths,
        question.capacity,
    )
    search = RemedySearch(found, tried.evaluated)
    here, more = read_found(question.asked, search, remedies(search))
    rows = sorted(map(tried.row, here), key=extra) + ([] if more is None else [tried.row(more)])
    read_host_of(question.asked, search, rows)
    answer.extra["suggestions"] = rows
    if not rows:
        answer.notes.append(
            "nothing that napkin tries makes it fit: ZeRO, parallelism, smaller micro-batches of the update and of the "
            "passes before it, recomputation, a smaller share for the engine, states on the host, LoRA and more GPUs, "
            "each and all together"
        )


class _Changed:
    """The question with some options changed."""

    def __init__(self, question: RolloutQuestion, fit: RolloutFit) -> None:
        self.question, self.inputs = question, question.asked
        self.held: dict[Changes, _Held] = {}
        self.before, self.why = self._seconds({}, fit)

    def evaluated(self, options: Options) -> Fit | str | None:
        """Return the memory of the update, with the verdict on the entire step; TOO_LARGE if its states alone are more
        than a GPU has, HOST_TOO_SMALL if only the host lacks room; None if the options cannot be combined."""
        asked = self.inputs.changed(options)
        try:
            changed = read(asked, timed=False)
            setup, hardware = changed.setup, changed.hardware
            if not setup.offload and least_states(changed.model, setup) > hardware.capacity:
                return TOO_LARGE
            found = changed.weighed()
            between = hosted_between(found.terms, changed.sharing.away)
            node, room = read_host(asked, setup, hardware, tuple(between))
        except NapkinError:
            return None
        kept = {**between, **found.terms}
        if not holds(kept, node, room):
            return HOST_TOO_SMALL
        self.held[tuple(options.items())] = _Held(found, host_of(kept, node), room)
        return replace(found.update, verdict=found.verdict)

    def _seconds(self, options: Options, fit: RolloutFit) -> tuple[tuple[float, float, float] | None, str]:
        """Return the seconds of a step with their interval, or the reason why it is not timed. fit: its memory."""
        try:
            asked = read(self.inputs.changed(options))
            found = asked.timed(fit)
        except NapkinError as problem:
            return None, problem.message
        return (float(found[0].time.value), *spanned(found, asked.confidence, asked.stack_named)["step/time"]), ""

    def _line(self, remedy: Remedy, held: _Held) -> str:
        """Return the question with a suggestion applied, as a command line."""
        kept = self.inputs.given if held.host is not None else self.inputs.without("host-memory")
        return Inputs(self.inputs.command, kept).command_line("memory", remedy.options)

    def row(self, remedy: Remedy) -> Row:
        """Return one suggestion: the changes, the memory per GPU, and the extra time of a step."""
        held = self.held[tuple(remedy.options.items())]
        host = {}
        if held.host is not None and {"offload", "rollout-offload"} & remedy.options.keys():
            host = {"host": int(held.host.value)} | ({} if held.room is None else {"host_capacity": int(held.room)})
        after, why = self._seconds(remedy.options, held.fit)
        time: tuple[float, float, float] | str = why or self.why
        if self.before is not None and after is not None:
            ratio, low, high = (seconds / self.before[0] for seconds in after)
            time = ratio, low, high
        return suggestion(
            remedy,
            int(held.fit.total.value),
            self._line(remedy, held),
            host,
            time,
            trains_all=self.question.setup.implementation.tuning is None,
        )
