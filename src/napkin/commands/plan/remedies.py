"""Suggestions where no layout fits: the changes besides the layout that `memory` advises, each with its best layout."""

from __future__ import annotations

from napkin._tables.takes import TAKES
from napkin.commands.command import find
from napkin.commands.inputs import Inputs
from napkin.commands.memory import remedies as of_memory
from napkin.commands.memory.host import keeps
from napkin.commands.memory.question import MemoryQuestion
from napkin.commands.memory.question import read as read_memory
from napkin.commands.plan.question import PlanQuestion, read
from napkin.commands.plan.rows import run_of
from napkin.commands.question.layout import degrees
from napkin.commands.question.untimed import read_searched
from napkin.errors import NapkinError
from napkin.planning.layouts import Scored, chosen_on
from napkin.planning.remedies import ADVICE, TOO_LARGE, Remedy, RemedySearch, advice, remedies
from napkin.planning.remedy_axes import Options
from napkin.planning.verdicts import Fit, evaluate
from napkin.render.answer import Cell, Row

TRIED = ({*ADVICE} - {"recompute"}) | {"offload"}
"""Ways to use less memory that are not layouts; recomputation is searched with the layouts."""


def suggest(question: PlanQuestion, gpus: int) -> tuple[list[Row], list[str]]:
    """Return suggestions that make a step fit on these GPUs, in fine-tuning in the order in which practitioners try
    them; and the options that were tried."""
    setup, hardware = question.layouts.request.setup, question.layouts.hardware
    tried = _Changed(question, gpus)
    found = of_memory.read_axes(question.asked, question.layouts.request.model, setup, hardware)
    search = RemedySearch([axis for axis in found if axis.name in TRIED], tried.evaluated)
    rows = [tried.row(one) for one in (advice(search) if setup.tunes else remedies(search))]
    of_memory.read_host_of(question.asked, search, rows)
    return rows, list(dict.fromkeys(name for axis in search.axes for options in axis.levels for name in options))


class _Changed:
    """The question with some options changed."""

    def __init__(self, question: PlanQuestion, gpus: int) -> None:
        self.question, self.gpus = question, gpus
        self.asked = question.asked.changed({"gpus": str(gpus)})
        self.best: dict[tuple[tuple[str, str | bool], ...], tuple[PlanQuestion, Scored]] = {}
        """The changed question and its recommended layout, by the changes."""
        self.untimed: dict[tuple[tuple[str, str | bool], ...], str] = {}
        """Why no layout is timed, by the changes: `memory` counts its bytes."""

    def evaluated(self, options: Options) -> Fit | str | None:
        """Return the memory of the recommended layout; TOO_LARGE if none fits, None if the options cannot be
        combined."""
        inputs, hardware = self.asked.changed(options), self.question.layouts.hardware
        try:
            read_searched(inputs)
        except NapkinError as problem:
            self.untimed[tuple(options.items())] = problem.message
            return of_memory.evaluated(self.in_memory(), options, hardware)
        try:
            changed = read(inputs)
            chosen, _ = chosen_on(changed.layouts, self.gpus)
            if chosen is None:
                return TOO_LARGE
            asked, setup = changed.layouts.request, changed.layouts.setup(chosen.layout)
            found = evaluate(asked.model, setup, hardware.capacity)
            self.best[tuple(options.items())] = changed, chosen
            return of_memory.read_within_host(found, inputs, hardware, "")
        except NapkinError:
            return None

    def in_memory(self) -> MemoryQuestion:
        """Return the question for `memory`, which counts host memory."""
        given = {name: one for name, one in self.asked.given.items() if name in TAKES["memory"]}
        return read_memory(Inputs(find("memory"), given), self.question.layouts.request.model)

    def row(self, remedy: Remedy) -> Row:
        """Return one suggestion: the changes, the memory per GPU, and the time of the recommended layout."""
        changes, model = tuple(remedy.options.items()), self.question.layouts.request.model
        remedy = of_memory.loaded(model, remedy, self.question.layouts.hardware)
        row: dict[str, Cell] = {
            "change": remedy.change,
            "used": int(remedy.fit.reported.used.value),
        }
        if "lora-rank" in remedy.options and self.question.layouts.request.setup.implementation.tuning is None:
            row["trains"] = of_memory.TRAINS_LORA
        if "offload" in remedy.options:
            row |= of_memory.on_host(self.in_memory(), remedy, self.question.layouts.hardware)
        if changes in self.untimed:
            line = of_memory.command_line(self.in_memory(), remedy)
            return {**row, "command": line, "untimed": self.untimed[changes]}
        changed, chosen = self.best[changes]
        given = changed.asked.given if keeps(remedy.fit.step.setup) else changed.asked.without("host-memory")
        waits = {name: text for name, text in remedy.options.items() if (name, text) not in changes}
        line = Inputs(changed.asked.command, given).command_line("plan", waits)
        speed = {"step/time": chosen.time.value, "tokens_per_second_per_gpu": 1 / chosen.token}
        run = run_of(changed, self.gpus, chosen.token)
        return {**row, **degrees(chosen.layout), **speed, **run, "command": line}
