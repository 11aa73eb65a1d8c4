"""`napkin init`: how weights start, and what that does to the scale of activations, layer after layer."""

from __future__ import annotations

from napkin.commands.command import Command, Inputs
from napkin.counting import init
from napkin.render.answer import Answer
from napkin.term import constant, divide, multiply


def run(inputs: Inputs) -> Answer:
    inputs.need("fan-in", "how many inputs has a layer?")
    inputs.get("depth")
    fan_in, depth = inputs.term("fan-in"), inputs.term("depth")
    std = init.scaled_std(fan_in) if inputs.get("std") is None else inputs.term("std").renamed("init/std")
    unscaled = init.output_std(constant("unit_std", 1), fan_in, "init/unscaled/output_std")
    inputs.get("cut")
    left = init.truncation(float(inputs.get("cut")))
    each = init.output_std(std, fan_in, "init/output_std")
    truncated = multiply("init/truncated/output_std", each, left)
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
    inputs.note(
        "torch's trunc_normal_(std=1/√d, a=-3, b=3) cuts at an absolute ±3 (init/cut_in_std standard deviations), "
        "which changes nothing for wide layers; init/truncated is a cut at ± --cut standard deviations"
    )
    return Answer("init", f"{inputs.get('depth'):,} linear layers of {inputs.get('fan-in'):,} inputs", terms)


COMMAND = Command(
    "init",
    "How weights start: the standard deviation that keeps the scale, and what N(0, 1) does to it",
    run,
    ("fan-in", "depth", "std", "cut"),
    defaults={"depth": "1", "cut": "3"},
    examples=("init --fan-in 4096 --depth 32", "init --fan-in 4096 --depth 32 --std 0.02"),
)
