"""Screen of `step`: its time, the parts of it, and whether it fits."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.commands.next_command import FREE, under
from napkin.commands.question.step_model import StepQuestion
from napkin.commands.screens.setup import degrees_of, role_of, run_on, trained_part
from napkin.inputs.peaks import peak_name
from napkin.planning.verdicts import FITS
from napkin.render.answer import Answer
from napkin.render.figures import interval, size_of
from napkin.render.screen import Bar, Next, Screen, quantities
from napkin.term import Term
from napkin.training.setup import Setup
from napkin.training.tasks import MISMATCHED, REFERENCE
from napkin.units import human

SAYS = {
    "compute": "matmuls and attention",
    "memory_bound": "norms, activations: limited by memory bandwidth",
    "communication": "not hidden behind compute",
    "bubble": "idle pipeline stages",
    "optimizer": "the optimizer's update",
    "overhead": "kernel launches and the host",
    "offload": "copies between GPU and host",
    REFERENCE: "its pass without gradients",
    MISMATCHED: "responses to other prompts, without gradients",
}
"""Part of a step → its description, unless its own parts say more."""


def screen(question: StepQuestion, answer: Answer, parts: Sequence[Term], fit: str | None) -> Screen:
    """Return the screen of a step; parts: of its time, fit: the verdict on its memory, if it is known."""
    terms = answer.by_path()
    layout = question.setup.layout
    step = terms["step/time"]
    ends = interval(answer.intervals["step/time"], step.value, "second", question.confidence)
    first = run_on(question.model.name, int(layout.gpus), question.hardware.name)
    divided = degrees_of(layout)
    return Screen(
        [
            f"{first}:" if divided else first,
            *divided,
            *trained_part(question.setup),
            f"{int(layout.global_batch):,} × {int(layout.seq):,} tokens a step",
        ],
        [f"{human(step.value, 'second')} a step", ends, f"MFU {human(terms['mfu'].value, '1', 3)}", _binding(answer)],
        "",
        quantities(_parts(question.setup, parts, step)),
        more=quantities(_rows(question, terms, fit), right=False),
        next=_next(question, fit),
    )


def _binding(answer: Answer) -> str:
    """Return what limits most of the step."""
    return f"mostly {answer.verdict}" if answer.verdict else ""


def _parts(setup: Setup, parts: Sequence[Term], step: Term) -> list[tuple[str | Bar, ...]]:
    """Return a row for every part that takes time, with its share and its own parts."""
    rows: list[tuple[str | Bar, ...]] = []
    for part in parts:
        name, whole = part.name.removeprefix("step/"), float(part.value) / float(step.value)
        if whole < 5e-4:
            continue
        inner = [one for one in part.parts if one.name.startswith("step/") and one.value > part.value / 100]
        inner.sort(key=lambda one: -float(one.value))
        listed = ", ".join(f"{one.name.rpartition('/')[2]} {human(one.value, 'second', 3)}" for one in inner)
        says = listed if name == "communication" and len(inner) > 1 else SAYS.get(name, "")
        label, said = role_of(setup, name).replace("_", " "), f"{whole:.0%}" if whole == whole else "–"
        rows.append((label, human(part.value, "second", 3), Bar(whole), f"{said}; {says}".removesuffix("; ")))
    return rows


def _rows(question: StepQuestion, terms: dict[str, Term], fit: str | None) -> list[tuple[str, str, str]]:
    """Return the speed, utilization with recomputation, and the memory of the step."""
    speed = human(terms["tokens_per_second_per_gpu"].value, "1")
    rows = [("speed", f"{speed} token/s per GPU", "")]
    peak = f"{human(question.prediction.peak.value, 'FLOP/s').removesuffix('/GPU')} {peak_name(question.setup.compute)}"
    rows.append(("MFU", human(terms["mfu"].value, "1", 3), f"counted by operation, of {peak}"))
    if terms["hfu"].value > terms["mfu"].value:
        rows.append(("HFU", human(terms["hfu"].value, "1", 3), "with what is recomputed"))
    if "memory/total" in terms:
        capacity, used = question.hardware.capacity, terms["memory/total"].value
        rows.append(("memory", f"{size_of(used, capacity)} per GPU", fit or ""))
    return rows


def _next(question: StepQuestion, fit: str | None) -> Next:
    """Return the next command: suggestions that make it fit, else the best layout of the machine, if layouts are
    searched."""
    if (fit is not None and fit != FITS) or not question.searched:
        return under("memory")
    return under("plan", {"gpus": str(int(question.setup.layout.gpus))}, FREE)
