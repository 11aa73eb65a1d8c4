"""Given options that have no effect: the reason, and what would give them one. Loaded only on that path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from napkin.commands.inputs import Inputs
from napkin.commands.question.machine import NODES, read_of_memory
from napkin.commands.signature import AllButAdvice
from napkin.commands.uses import Reason
from napkin.errors import NapkinError, Problems
from napkin.options.machine import FIGURES
from napkin.options.output import DRAWS
from napkin.options.registry import OPTIONS
from napkin.render.answer import Answer

STEP = "a step is predicted only for a MODEL with --gpus and --global-batch"
REASONS: dict[str, Reason] = {
    "hardware": ("the answer does not use an accelerator", "leave it out"),
    "hardware-file": ("the answer does not use an accelerator", "--hardware names one of the file"),
    "confidence": ("nothing is estimated here, so there is no interval", "leave it out"),
    "batch": ("a training step has micro-batches", "--micro-batch, or --global-batch"),
    "dtype": ("training takes a policy", "for example --precision bf16-mixed"),
    "cache-dtype": ("only serving has a KV cache", "--inference"),
    "snapshot-device": ("no snapshot is read", "--snapshot FILE"),
    "compile": ("no step is run", "leave it out"),
    "dropout": ("no dropout mask is kept here, and its time is not counted", "--attention eager keeps a mask"),
    "attention": ("this answer does not depend on attention's kernel", "leave it out"),
    "optimizer-form": ("the forms of this optimizer take the same memory and time here", "leave it out"),
    "optimizer-in-backward": ("it affects only memory, which this answer does not include", "napkin memory"),
    "implementation": ("this implementation keeps and computes the same here", "leave it out"),
    "loss": ("this form of the loss takes the same memory and time here", "leave it out"),
    "kernels": ("these kernels keep and compute the same here", "leave it out"),
    "host-memory": ("nothing is kept in the host's memory", "--offload optimizer"),
    "async-tp": ("there is no tensor-parallel communication to overlap", "--tp 2 or more"),
    "async-dp": (
        "no gradients are reduced here, or ZeRO-3 gathers and scatters while it computes",
        "--gpus 2 or more, --zero 0, 1 or 2",
    ),
    "async-ep": ("no exchange of experts' tokens is left to hide", "--ep 2 or more, and several micro-batches"),
    "dispatcher": ("no tokens of experts cross ranks, or this software sends them so", "leave it out"),
    "graphs": ("the device does not wait for the host here, or the software has no graphs", "leave it out"),
    "schedule": ("there is no pipeline", "--pp 2 or more"),
    "peak-flops": ("no computation is timed", "leave it out"),
    "memory-size": ("nothing has to fit", "leave it out"),
    "memory-bandwidth": ("no memory traffic is timed", "leave it out"),
    "link-bandwidth": ("nothing crosses the link between GPUs", "--gpus 2 or more, divided"),
    **dict.fromkeys(
        ("network-bandwidth", "oversubscription"),
        ("nothing that is waited for crosses the network between nodes", "more GPUs than one node has"),
    ),
    "ulysses": ("one rank has the entire sequence", "--ulysses 2 or more"),
    "expert-imbalance": ("no rank has some of the experts only", "--ep 2 or more"),
    "capacity-factor": ("the answer does not depend on the experts' slots", "leave it out"),
    "tdp": ("no power is counted", "napkin train-time counts energy"),
    "price": ("no GPU-hours are counted", "--tokens says how much is trained"),
    "within": ("no run has a deadline without its tokens", "--tokens says how much is trained"),
    "gpus": ("the answer does not depend on the number of GPUs", "leave it out"),
    "nodes": ("the answer does not depend on how GPUs are grouped into nodes", "leave it out"),
    "gpus-per-node": ("the answer does not depend on how GPUs are grouped into nodes", "leave it out"),
    "link": ("the question is not about a transfer", "napkin roofline transfer 80GB --link pcie5"),
    "out-dtype": ("only a matmul has a result of another format", "napkin roofline matmul MxKxN --out-dtype fp32"),
    "against": ("two sides are named", "compare COMMAND … --against NAME=VALUE"),
    "target-seq": ("only a model with an encoder and a decoder has a second sequence", "leave it out"),
    "seq": ("the answer does not depend on the sequence's length", "leave it out"),
    "active-params": ("a MODEL has its own count", "--params and --active-params, without a MODEL"),
    "profile": ("no rate is used", "leave it out"),
}
"""Option → the default reason why it has no effect, and a hint."""
SAME = {"dtype": "the format computes as fast as the default one here"}
"""Option → why its value has no effect although the option could have one."""


def check_unused(inputs: Inputs, unused: Mapping[str, Reason | None], spare: dict[str, NapkinError] | None) -> None:
    """Reject options that have no effect, all at once. Only note those from a source for several commands, and those
    that would matter to a slightly different question.

    spare: collects the errors instead
    """
    problems: dict[str, NapkinError] = {}
    for name, reason in unused.items():
        given = inputs.given.get(name)
        why, hint = reason or REASONS.get(name, ("this answer does not depend on it", "leave it out"))
        if name in FIGURES and reason is None and "hardware" not in inputs:
            why, hint = "it replaces a figure of an accelerator", "--hardware names one"
            if name == "memory-size":
                hint = read_of_memory(inputs)
        where = given.where if given is not None else ""
        place = f"{where}: " if where and not where.startswith("--") else ""
        if name in inputs.minor or (given is not None and given.shared):
            inputs.note(f"{place}{_shown(name, inputs.peek(name))} is not used: {why}")
        else:
            problems[name] = NapkinError(f"{place}{_shown(name, inputs.peek(name))} has no effect here: {why}", hint)
    if spare is not None:
        spare |= problems
    elif problems:
        raise Problems(list(problems.values())) if len(problems) > 1 else next(iter(problems.values()))


def _shown(name: str, value: object) -> str:
    """Return the option as it was given, without its value."""
    option = OPTIONS[name]
    return f"--no-{name}" if option.flag and not value else option.shown


def note_without_effect(
    inputs: Inputs, answer: Answer, names: Iterable[str], again: Callable[[Inputs], Answer]
) -> Iterator[str]:
    """Yield the given figures of the accelerator that do not change the answer. Add a note for other such options,
    which describe the run and would matter to a slightly different question.

    again: answers for other options
    """
    quantities = _quantities(answer)
    for name in names:
        if inputs.is_default(name) or (name in NODES and "gpus" in inputs and inputs.origin("gpus") == "derived"):
            continue
        rest = {other: one for other, one in inputs.without(name).items() if other not in DRAWS}
        brief, others = Inputs(inputs.command, rest, AllButAdvice()), Inputs(inputs.command, rest)
        try:
            if _quantities(again(brief)) != quantities:  # without advice, which takes longest
                continue
            other = again(others)
        except NapkinError:
            continue
        if _listed((other.rows, other.extra)) != _listed((answer.rows, answer.extra)):
            continue
        told = {*inputs.notes, *answer.notes} != {*others.notes, *other.notes}
        if name in FIGURES and not told:
            yield name
        else:
            why = "only its notes" if told else f"no figure: {SAME.get(name) or REASONS[name][0]}"
            inputs.note(f"{_shown(name, inputs.peek(name))} changes {why}")


def _listed(node: object) -> object:
    """Return rows and extra keys without the command lines in them, which repeat every option."""
    if isinstance(node, Mapping):
        return {name: _listed(one) for name, one in node.items() if name != "command"}
    return [_listed(one) for one in node] if isinstance(node, (list, tuple)) else node


def _quantities(answer: Answer) -> tuple[object, ...]:
    """Return the quantities of an answer and its verdict."""
    return answer.quantities(), answer.intervals, answer.verdict, answer.status
