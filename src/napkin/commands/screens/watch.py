"""Screen of `watch`: the progress of the run, its speed, and its MFU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.commands.next_command import under
from napkin.render.answer import Answer
from napkin.render.screen import Next, Screen, quantities
from napkin.term import Term
from napkin.units import human

SHOWN = (
    ("speed", "tokens_per_second"),
    ("per GPU", "tokens_per_second_per_gpu"),
    ("samples", "samples_per_second"),
    ("step", "step/seen"),
    ("predicted", "step/predicted"),
    ("FLOP/s", "flops_per_second/logged"),
    ("MFU", "mfu"),
    ("HFU", "hfu"),
    ("logged MFU", "mfu/logged"),
)
"""(label, path), in the order in which they are shown."""


def parts_of(answer: Answer) -> list[str]:
    """Return the state of the run as parts of one line, the most important first."""
    terms = answer.by_path()
    parts = []
    if "progress/step" in terms:
        total = f" of {terms['progress/total'].value:,}" if "progress/total" in terms else ""
        parts.append(f"step {terms['progress/step'].value:,}{total}")
    for path, words in (("tokens_per_second", "token/s"), ("tokens_per_second_per_gpu", "token/s/GPU")):
        if path in terms:
            parts.append(f"{human(terms[path].value, '1')} {words}")
            break
    else:
        parts += [f"{human(terms['step/seen'].value, 'second')} a step"] if "step/seen" in terms else []
    for path, words in (("mfu", "MFU"), ("mfu/logged", "logged MFU")):
        if path in terms:
            parts.append(f"{words} {human(terms[path].value, '1', 3)}")
            break
    if "progress/left" in terms:
        parts.append(
            "complete" if answer.extra["complete"] else f"{human(terms['progress/left'].value, 'second', 3)} left"
        )
    elif answer.extra["complete"]:
        parts.append("complete")
    return parts


def screen(name: str, model: str, lines: int, answer: Answer, convention: str) -> Screen:
    """Return the screen; name: that of the log; model: with its machine, or ""; lines: the number of lines whose median
    is shown."""
    terms = answer.by_path()
    rows = [
        (label, human(terms[path].value, terms[path].unit), _says(path, terms, convention))
        for label, path in SHOWN
        if path in terms
    ]
    asked = [f"{name}: last {lines} lines" if lines > 1 else f"{name}: one line", *([model] if model else [])]
    follows: Next | None = None
    if model:
        follows = under("mfu", {"log": name}) if name != "standard input" else under("step")
    return Screen(asked, parts_of(answer), answer.verdict or "", quantities(rows), _remarks(answer), next=follows)


def _says(path: str, terms: Mapping[str, Term], convention: str) -> str:
    if path == "mfu":
        return f"counted as {convention}, of {human(terms['peak'].value, 'FLOP/s')}"
    return "as the log counts it" if path in ("mfu/logged", "flops_per_second/logged") else ""


def _remarks(answer: Answer) -> Sequence[str]:
    return [note for note in answer.notes if note.startswith(("measured ", "the log's "))]
