"""`napkin memory --max …`: the largest micro-batch, sequence, number of layers or model that fits."""

from __future__ import annotations

from napkin.commands.memory.chart import show
from napkin.commands.memory.loading import add as add_loading
from napkin.commands.memory.question import STATUS, MemoryQuestion
from napkin.commands.memory.remedies import suggest
from napkin.commands.screens import memory as screen
from napkin.footprint.capacity import bytes_per_param
from napkin.inputs.hardware import Hardware
from napkin.planning.largest import LargestFit, largest_that_fits, size_terms
from napkin.planning.step_memory import activation_budget, terms_of
from napkin.render.answer import Answer, Shown
from napkin.term import TRUE, leaf

PATHS = {"micro-batch": "max/micro_batch", "seq": "max/seq"}
"""Path of the quantity that is solved for; layers and params both solve for a number of layers."""


def answer_largest(question: MemoryQuestion) -> Answer:
    """Answer with the largest value that fits: by the estimate, surely (upper end of the interval within capacity) and
    possibly (lower end). With --must-fit, the sure one is the answer."""
    hardware, what, capacity = question.hardware, question.maximize, question.capacity
    assert hardware is not None
    assert what is not None
    assert capacity is not None
    found = largest_that_fits(
        what, question.model, question.setup, question.evaluate, int(capacity.value), question.must_fit
    )
    terms = terms_of(found.fit, question.source)
    path = PATHS.get(what, "max/layers")
    answer = Answer("memory")
    published = [leaf(path, found.value, "token" if what == "seq" else "1", TRUE)]
    ends = found.fit.reported.ends
    answer.intervals = {path: (found.surely, found.possibly), **ends, "memory/total": ends["memory/used"]}
    if what in ("layers", "params"):
        published += size_terms(found, question.setup, capacity)
        _note_sizes(answer, question)
    answer.terms = (*published, *terms.values(), capacity, activation_budget(capacity, terms))
    add_loading(answer, found.model, found.setup)
    answer.verdict = found.fit.verdict
    answer.notes.append(f"{path}: in brackets the largest that surely fits, and the largest that may fit")
    _add_binding(answer, question, found, hardware)
    show(answer, found.fit, terms, capacity, hardware.name)
    if not found.value:
        suggest(answer, question, hardware)
    solved = what if what != "params" else "layers"
    answer.inputs[solved] = Shown(found.value, None, "solved")
    answer.screen = screen.of_largest(question, found, answer)
    return answer


def _note_sizes(answer: Answer, question: MemoryQuestion) -> None:
    """Note which model the largest one is, and the meaning of the ceiling."""
    answer.notes.append("the model's own width, more or fewer layers; napkin max-params --like scales the whole shape")
    if not question.setup.optimizer.factored:
        each = bytes_per_param(question.setup.precision, question.setup.optimizer).value
        answer.notes.append(f"params/ceiling: states only, {each:g} bytes per parameter, perfectly sharded")


def _add_binding(answer: Answer, question: MemoryQuestion, found: LargestFit, hardware: Hardware) -> None:
    """Add the limit that rules out a larger value, or set the status if nothing fits."""
    unit, binding = found.unit, found.binding
    if binding is None:
        closely = f"; {found.possibly:,} may, at the lower end of the interval" if found.possibly else ""
        answer.notes.append(f"not even {unit:,} fits on {hardware.name}{closely}; the memory of {unit:,} is shown")
        answer.status = STATUS[found.fit.verdict]
        return
    answer.extra["binding"] = {
        "stage": binding.stage,
        "moment": binding.moment,
        "bucket": binding.bucket,
        "grows": binding.grows,
    }
    certain = (
        "the largest that surely fits" if question.must_fit else "the largest whose memory/used is within capacity"
    )
    beyond = "no larger one was tried" if found.ended else f"{found.value + unit:,} is beyond it"
    answer.notes.append(f"{certain}; {beyond}")
