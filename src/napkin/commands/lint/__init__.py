"""`napkin lint FILE…`: what wastes time, memory or money in a configuration, with the cost and the fix of each
finding."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.commands.lint.files import ReadTarget, read_target, targets_of
from napkin.commands.lint.question import read_ask, read_case, read_stated, read_words
from napkin.commands.lint.report import Linted, counts
from napkin.commands.question.setup import read_setup
from napkin.commands.question.tasks import read_whether_rollout
from napkin.commands.rollout.trainer import OF_ENGINE, read_trainer_of_rollout
from napkin.commands.screens.lint import of_rule, of_rules, screen
from napkin.errors import BROKEN, CLOSE, OK, REFUSED, USAGE, NapkinError, Problems
from napkin.options.comparing import LINT, OPERATION
from napkin.options.layout import STAGE_OPTIONS
from napkin.options.model import MODEL_OPTIONS, PADDED, PREDICTING
from napkin.options.question import AMOUNT
from napkin.options.rollout import ROLLOUT
from napkin.options.training import RATE_OPTIONS, SETUP_DEFAULTS, SETUP_OPTIONS, STATE_OPTIONS
from napkin.record import replace
from napkin.render.answer import Answer
from napkin.render.findings import Finding, of_problem, to_annotations
from napkin.rules.case import Stated
from napkin.rules.contradictions import refused
from napkin.rules.judge import contradictions, findings, joined
from napkin.rules.registry import CONTRADICTIONS, RULES, find, is_known, is_number, is_selected, laws, prefixes
from napkin.rules.rule import BrokenRule, Law

Wanted = Callable[[Law], bool]


def run(inputs: Inputs) -> Answer:
    """Answer for each configuration: its findings, or the rules themselves."""
    words = inputs.texts("configs")
    if inputs.flag("rules"):
        return of_rules(laws())
    if inputs.flag("explain") and words and all(is_number(word) or is_known(word) for word in words):
        return of_rule([find(word) for word in words])
    if not words and not {"from", "model"} & set(inputs.given):
        raise NapkinError(
            "FILE or MODEL is missing: what to check?", "napkin lint train.yaml, or napkin lint MODEL --gpus 8"
        )
    wanted = _read_selection(inputs)
    found: list[Linted] = []
    problems: list[NapkinError] = []
    targets = targets_of(words, inputs.texts("from"))
    marked = inputs.has("annotations") and bool(inputs.text("annotations"))
    marks: list[Finding] = []
    for target in targets:
        started = time.perf_counter()
        try:
            for read in read_target(inputs, target):
                try:
                    one = _read_linted(inputs, read, wanted)
                except NapkinError as problem:
                    from napkin.commands.places import at_their_places
                    from napkin.commands.unknown_names import read_unknown_names

                    told = read_unknown_names(problem, read.inputs)
                    raise at_their_places(told, read.inputs.given) from None
                found.append(replace(one, seconds=time.perf_counter() - started))
                started = time.perf_counter()
        except NapkinError as problem:
            if len(targets) == 1 and not marked:
                raise
            every = problem.problems if isinstance(problem, Problems) else (problem,)
            problems += [one.at(target.name, target.name) if target.name else one for one in every]
            marks += [of_problem(one, target.name, target.name) for one in problems[-len(every) :]]
    answer = _answer(found, problems, inputs.flag("explain"))
    if inputs.has("junit"):
        from napkin.commands.junit_file import write_junit

        cases = [mark for one in found for mark in one.marks]
        write_junit(inputs.text("junit"), [*cases, *marks], _seconds(found), "napkin lint")
    if marked:
        marks += [one.mark(finding) for one in found for finding in one.findings]
        answer.trailer = to_annotations(marks, os.environ.get("GITHUB_WORKSPACE", ""))
    return answer


def _read_selection(inputs: Inputs) -> Wanted:
    """Return whether a rule is selected by --select and --ignore."""
    select = prefixes(inputs.text("select"), "--select") if inputs.has("select") else ("N",)
    ignore = prefixes(inputs.text("ignore"), "--ignore") if inputs.has("ignore") else ()
    return lambda rule: is_selected(rule, select, ignore)


def _read_linted(inputs: Inputs, read: ReadTarget, wanted: Wanted) -> Linted:
    """Return the findings in one configuration."""
    asked, typed, passes = read.inputs, inputs.texts_given(), None
    if read_whether_rollout(asked):
        asked, passes = read_trainer_of_rollout(asked)
        inputs.depends(OF_ENGINE, True)
        read = replace(read, inputs=asked)
    clashes, idle = (
        tuple(one for one in listed if wanted(one.rule) and not read.is_ignored(one))
        for listed in (read.clashes, read.idle)
    )
    if (clashes or idle) and "model" not in asked.given:
        return _read_impossible(inputs, read, None, (*clashes, *idle))
    stated = read_stated(asked, passes=passes)
    broken = contradictions(stated, [rule for rule in CONTRADICTIONS if wanted(rule)]) or clashes
    if broken:
        return _read_impossible(inputs, read, stated, [one for one in broken if not read.is_ignored(one)])
    read_words(asked)
    try:
        setup = read_setup(asked, stated.model)
    except NapkinError as problem:
        if problem.status != USAGE or isinstance(problem, Problems) or not wanted(CONTRADICTIONS[-1]):
            raise
        return _read_impossible(inputs, read, stated, [refused(problem.message, problem.hint)])
    case = read_case(asked, stated, setup, passes)
    inputs.adopt(asked)
    ask = read_ask(asked, case, passes)
    every = findings(case, [rule for rule in RULES if wanted(rule)], ask)
    found = (*(one for one in every if not read.is_ignored(one)), *idle)
    together = joined(case, found, ask)
    if setup.task.rollout:  # its batch counts prompts, and no change is one of the batch
        found = tuple(_with_same_batch(one) for one in found)
        together = None if together is None else _with_same_batch(together)
    return Linted(read, stated, found, case, typed, together=together)


def _with_same_batch(one: BrokenRule) -> BrokenRule:
    """Return a finding whose change keeps the stated batch."""
    return replace(one, change={name: text for name, text in one.change.items() if name != "global-batch"})


def _read_impossible(inputs: Inputs, read: ReadTarget, stated: Stated | None, found: Sequence[BrokenRule]) -> Linted:
    """Return a configuration that cannot be run; all its options count as read."""
    read.inputs.depends(read.inputs.given, True)
    inputs.adopt(read.inputs)
    return Linted(read, stated, tuple(found), None, inputs.texts_given())


def _answer(found: Sequence[Linted], problems: Sequence[NapkinError], whys: bool) -> Answer:
    """Answer with the findings of all configurations, the worst first in each. whys: include the explanation of each
    rule."""
    answer = Answer("lint", rows=[one.row(finding) for one in found for finding in one.findings], problems=problems)
    answer.extra["columns"] = {"time": "1", "memory": "byte", "cost": "USD"}
    answer.extra["together"] = [one.extra for one in found if one.extra is not None]
    answer.status = max((one.status for one in found), key=(OK, CLOSE, BROKEN).index, default=OK)
    if problems:
        answer.status = max((one.status for one in problems), key=(OK, BROKEN, USAGE, REFUSED).index)
    for one in found:
        answer.notes += [note for note in one.notes if note not in answer.notes]
    if len(found) == 1:
        inputs = found[0].read.inputs
        answer.inputs, answer.assumed = inputs.told(), list(inputs.assumed)
        answer.notes += inputs.notes
        if found[0].case is not None and found[0].case.stated.hardware is None:
            answer.assumed.append("no --hardware: nothing is timed")
    number = counts([finding for one in found for finding in one.findings])
    answer.verdict = ", ".join(f"{n} {word}{'s' * (n > 1)}" for word, n in number.items())
    answer.verdict = answer.verdict or ("no findings" if found else "not read")
    answer.screen = screen(found, len(problems), whys)
    return answer


def _seconds(found: Sequence[Linted]) -> dict[str, float]:
    """Return the time that each file took; phases are of one file."""
    seconds: dict[str, float] = {}
    for one in found:
        seconds[one.read.target.name] = seconds.get(one.read.target.name, 0.0) + one.seconds
    return seconds


COMMAND = Command(
    "lint",
    "Find what wastes time, memory or money in a configuration: what each costs, and the change that fixes it",
    run,
    brief="Find what a configuration wastes, and how to fix it",
    options=(
        *LINT,
        "junit",
        "annotations",
        "model",
        "hardware",
        "hardware-file",
        "profile",
        *SETUP_OPTIONS,
        *STATE_OPTIONS,
        *STAGE_OPTIONS,
        *MODEL_OPTIONS,
        *PADDED,
        *PREDICTING,
        *RATE_OPTIONS,
        "tokens",
        *AMOUNT,
        "price",
        *OPERATION,
        *ROLLOUT,
        "save-steps",
        "warmup-steps",
    ),
    arguments=("configs",),
    opens=True,
    defaults=SETUP_DEFAULTS,
    examples=(
        "lint llama3-8b --gpus 64 --hardware h100 --zero 3 --framework fsdp --recompute full",
        "lint configs/launch/lora-8b.yaml --hardware h100 --gpus 8",
        "lint --rules",
        "lint --explain N105",
    ),
)
