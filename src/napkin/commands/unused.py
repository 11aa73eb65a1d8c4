"""Options that were given and change nothing: why, and what would make them matter. Loaded only on that path."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

from napkin.commands.inputs import Inputs, OptionText, Reason
from napkin.errors import NapkinError, Problems
from napkin.options.machine import FIGURES
from napkin.options.registry import OPTIONS

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from napkin.commands.command import Command
    from napkin.render.answer import Answer

STEP = "a step is predicted only for a MODEL with --gpus and --global-batch"
REASONS: dict[str, Reason] = {
    "hardware": ("no accelerator is asked about", "leave it out"),
    "hardware-file": ("no accelerator is asked about", "--hardware names one of the file"),
    "confidence": ("nothing is estimated here, so there is no interval", "leave it out"),
    "batch": ("a training step has micro-batches", "--micro-batch, or --global-batch"),
    "dtype": ("training takes a policy", "for example --precision bf16-mixed"),
    "cache-dtype": ("only serving has a KV cache", "--inference"),
    "snapshot-device": ("no snapshot is read", "--snapshot FILE"),
    "compile": ("no step is run", "leave it out"),
    "dropout": ("no dropout mask is kept here, and its time is not counted", "--attention eager keeps a mask"),
    "attention": ("this answer does not depend on attention's kernel", "leave it out"),
    "optimizer-form": ("the forms of this optimizer take the same memory and time here", "leave it out"),
    "loss": ("this is the form that the model's implementation has", "leave it out"),
    "async-tp": ("there is no tensor-parallel communication to overlap", "--tp 2 or more"),
    "schedule": ("there is no pipeline", "--pp 2 or more"),
    "peak-flops": ("no computation is timed", "leave it out"),
    "memory-size": ("nothing has to fit", "leave it out"),
    "memory-bandwidth": ("no memory traffic is timed", "leave it out"),
    "link-bandwidth": ("nothing crosses the link between GPUs", "--gpus 2 or more, divided"),
    "network-bandwidth": (
        "nothing that is waited for crosses the network between nodes",
        "more GPUs than one node has",
    ),
    "tdp": ("no power is counted", "napkin train-time counts energy"),
    "price": ("no GPU-hours are counted", "--tokens says how much is trained"),
    "within": ("no run has a deadline without its tokens", "--tokens says how much is trained"),
    "gpus": ("the answer does not depend on the number of GPUs", "leave it out"),
    "link": ("no transfer is asked about", "napkin roofline transfer 80GB --link pcie5"),
    "out-dtype": ("only a matmul has a result of another format", "napkin roofline matmul MxKxN --out-dtype fp32"),
    "against": ("two sides are named", "compare COMMAND … --against NAME=VALUE"),
    "target-seq": ("only a model with an encoder and a decoder has a second sequence", "leave it out"),
    "seq": ("the answer does not depend on the sequence's length", "leave it out"),
    "active-params": ("a MODEL has its own count", "--params and --active-params, without a MODEL"),
    "profile": ("no rate is used", "leave it out"),
}
"""Option → why it changes nothing where no one said, and a hint."""


def refuse(inputs: Inputs, unused: Mapping[str, Reason | None], spare: dict[str, NapkinError] | None) -> None:
    """Refuse options that change nothing, all at once; note those that stand where several commands read their options.

    spare: takes the refusals instead
    """
    problems: dict[str, NapkinError] = {}
    for name, reason in unused.items():
        given = inputs.given(name)
        why, hint = reason or REASONS.get(name, ("this answer does not depend on it", "leave it out"))
        if name in FIGURES and reason is None and "hardware" not in inputs:
            why, hint = "it takes the place of a figure of an accelerator", "--hardware names one"
        option = OPTIONS[name]
        shown = option.shown if option.positional or not option.flag or inputs.peek(name) else f"--no-{name}"
        where = given.where if given is not None else ""
        place = f"{where}: " if where and not where.startswith("--") else ""
        if given is not None and given.shared:
            inputs.note(f"{place}{shown} is not used: {why}")
        else:
            problems[name] = NapkinError(f"{place}{shown} has no effect here: {why}", hint)
    if spare is not None:
        spare |= problems
    elif problems:
        raise Problems(list(problems.values())) if len(problems) > 1 else next(iter(problems.values()))


def without_effect(
    command: Command,
    given: Mapping[str, OptionText],
    only: Container[str] | None,
    inputs: Inputs,
    answer: Answer,
    names: Iterable[str],
) -> Iterator[str]:
    """Yield those of the options without which the answer is the same."""
    for name in names:
        if inputs.is_default(name):
            continue
        rest = {other: one for other, one in given.items() if other != name}
        try:
            same = _substance(command.run(Inputs(command, rest, only))) == _substance(answer)
        except NapkinError:
            continue
        if same:
            yield name


def _substance(answer: Answer) -> tuple[object, ...]:
    """Return what an answer says, but for its notes."""
    return answer.quantities(), answer.intervals, answer.verdict, answer.status, answer.rows, answer.extra
