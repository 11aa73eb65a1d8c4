"""Activation functions on the tape, as in transformers' activations.py.

Python computes an expression's operands from left to right and holds each until its operator has run; a function holds
its argument until it returns. Temporaries of one C++ statement of a backward formula live until that statement ends
(tools/autograd/derivatives.yaml in pytorch, torch/csrc/autograd/FunctionsManual.cpp).
"""

from __future__ import annotations

from collections.abc import Callable

from napkin.autograd.tape import Tape
from napkin.autograd.tensors import BYTES, Tensor
from napkin.errors import Refused
from napkin.operations.implementations import Implementation

MakeWeight = Callable[[int], Tensor]
"""Returns an activation's learned vector of this many elements."""


def activated(tape: Tape, implementation: Implementation, x: Tensor, function: str, learned: MakeWeight) -> Tensor:
    """Run function(x), which holds x until it returns. learned: makes the vectors that it learns."""
    out = _computed(tape, implementation.written, x, function, learned)
    tape.hold(x)
    return out


def _computed(tape: Tape, written: bool, x: Tensor, function: str, learned: MakeWeight) -> Tensor:
    if function == "relu":
        return tape.relu(x)
    if function in ("relu2", "relu_squared"):
        positive = tape.relu(x)
        out = tape.power(positive)
        tape.hold(positive)
        return out
    if function == "sigmoid":
        return tape.sigmoid(x)
    if function == "tanh":
        return tape.tanh(x)
    if function == "linear":
        return x
    if function == "gelu_10":
        return clipped(tape, tape.smooth(x, "gelu"))
    if function == "gelu_python":  # 0.5·x·(1 + erf(x/√2))
        half = tape.scale(x)
        return tape.multiply(half, tape.shift(tape.erf(tape.scale(x))))
    if written and function in ("gelu_new", "gelu_accurate", "gelu_python_tanh"):
        # 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))
        half = tape.scale(x)
        inner = tape.scale(tape.add(x, tape.scale(tape.power(x))))
        return tape.multiply(half, tape.shift(tape.tanh(inner)))
    if written and function == "gelu_fast":
        # 0.5·x·(1 + tanh(x·0.7978845608·(1 + 0.044715·x·x)))
        half, factor = tape.scale(x), tape.scale(x)
        inner = tape.multiply(factor, tape.shift(tape.scale(tape.multiply(tape.scale(x), x))))
        return tape.multiply(half, tape.shift(tape.tanh(inner)))
    if written and function == "quick_gelu":
        return tape.multiply(x, tape.sigmoid(tape.scale(x)))
    if function == "xielu":
        return xielu(tape, x, learned)
    if function == "swiglu_oai":
        raise Refused("swiglu_oai is known in experts only")
    return tape.smooth(x, function, function == "bloom_gelu")


def clipped(tape: Tape, x: Tensor) -> Tensor:
    """Clamp x to an interval. In backward, two masks, combined into one, and a zero select the gradient."""
    masks = 2 * x.count * BYTES["bool"] + BYTES[x.dtype]
    return tape.record("clamp", (x,), tape.new(x.count, x.dtype, "clipped"), (x,), scratch=masks)


def xielu(tape: Tape, x: Tensor, learned: MakeWeight) -> Tensor:
    """where(x > 0, α₊·x·x + β·x, α₋·(expm1(min(x, ε)) − x) + β·x), its two scalars learned."""
    stored = "fp32" if tape.autocast else tape.compute
    up, down = (tape.record("softplus", (learned(1),), tape.new(1, stored, "scalar")) for _ in range(2))
    positive = tape.add(tape.multiply(tape.multiply(x, up), x), tape.scale(x))
    least = tape.record("minimum", (x,), tape.new(x.count, x.dtype, "least"), (x,))
    raised = tape.raised(least)
    grown = tape.new(raised.count, raised.dtype, "expm1")
    grown = tape.record("expm1", (raised,), grown, (grown,))
    negative = tape.add(tape.multiply(tape.add(grown, x), down), tape.scale(x))
    condition = tape.new(x.count, "bool", "positive", no_grad=True)
    return tape.record("where", (positive, negative), tape.new(x.count, positive.dtype, "xielu"), (condition,))
