"""`napkin init`: how weights are initialized, and what that does to the scale of activations, layer after layer."""

from __future__ import annotations

from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.counting import init
from napkin.record import record
from napkin.render.answer import Answer
from napkin.term import Term, constant, divide, multiply


@record
class InitQuestion:
    """Linear layers of `fan_in` inputs; std: of the weights, None for 1/√fan-in; cut: in standard deviations."""

    fan_in: Term
    depth: Term
    std: Term | None
    cut: Term


def run(inputs: Inputs) -> Answer:
    """Answer for linear layers one after the other."""
    return answer(read(inputs))


def read(inputs: Inputs) -> InitQuestion:
    """Read the question."""
    inputs.need("fan-in", "how many inputs has a layer?")
    depth = inputs.term("depth")
    std = inputs.term("std") if inputs.has("std") else None
    return InitQuestion(inputs.term("fan-in"), depth, std, inputs.term("cut"))


def answer(question: InitQuestion) -> Answer:
    """Answer with the standard deviation of the weights, and of the outputs after each layer."""
    fan_in, depth = question.fan_in, question.depth
    std = init.scaled_std(fan_in) if question.std is None else question.std.renamed("init/std")
    unscaled = init.output_std(constant("unit_std", 1), fan_in, "init/unscaled/output_std")
    each = init.output_std(std, fan_in, "init/output_std")
    truncated = multiply("init/truncated/output_std", each, init.truncation(question.cut))
    terms = [
        std,
        each,
        init.after(depth, each, "init/output_std/after_depth"),
        unscaled,
        init.after(depth, unscaled, "init/unscaled/output_std/after_depth"),
        truncated,
        init.after(depth, truncated, "init/truncated/output_std/after_depth"),
        divide("init/cut_in_std", constant("cut", 3, "1", "trunc_normal_(a=−3, b=3) cuts at absolute ±3"), std),
    ]
    note = (
        "torch's trunc_normal_(std=1/√d, a=-3, b=3) cuts at an absolute ±3 (init/cut_in_std standard deviations), "
        "which changes nothing for wide layers; init/truncated is a cut at ± --cut standard deviations"
    )
    return Answer("init", f"{depth.value:,} linear layers of {fan_in.value:,} inputs", terms, notes=[note])


COMMAND = Command(
    "init",
    "How weights start: the standard deviation that keeps the scale, and what N(0, 1) does to it",
    run,
    options=("fan-in", "depth", "std", "cut"),
    defaults={"depth": "1", "cut": "3"},
    examples=("init --fan-in 4096 --depth 32", "init --fan-in 4096 --depth 32 --std 0.02"),
)
