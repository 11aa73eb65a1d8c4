"""The largest model whose training state fits: capacity divided by bytes per parameter.

An upper bound: printed gigabytes of all accelerators, states perfectly sharded, nothing for activations.
"""

from __future__ import annotations

from napkin import formats
from napkin.term import Term, add, constant, divide, floor, multiply
from napkin.training import optimizer_states
from napkin.training.optimizer import Optimizer
from napkin.training.precision import Precision


def width(dtype: str, name: str) -> Term:
    """Return the bytes of a parameter in a number format (a fraction for formats of 4 bits and block-scaled ones)."""
    whole = constant("parameter", 1, "param")
    packed = formats.QUANTIZED.get(dtype, formats.GGUF.get(dtype))
    if packed is not None:
        return divide(name, constant(f"{name}/{dtype}", packed, "byte"), whole)
    return divide(name, formats.element_bytes(formats.find(dtype), f"{name}/{dtype}"), whole)


def state_widths(policy: Precision, optimizer: Optimizer) -> dict[str, Term]:
    """Return the bytes per parameter in training: parameters, gradients, any master copy, optimizer states."""
    root = "bytes_per_param"
    parts = {
        "parameters": width(policy.param, f"{root}/parameters"),
        "gradients": width(policy.grad, f"{root}/gradients"),
    }
    if policy.master is not None:
        parts["master"] = width(policy.master, f"{root}/master")
    state = width(policy.state, f"{root}/state")
    parts["optimizer"] = optimizer_states.per_param(optimizer, state, f"{root}/optimizer")
    return parts


def bytes_per_param(policy: Precision, optimizer: Optimizer) -> Term:
    """Return the bytes of training state per parameter: the sum of `state_widths`."""
    return add("bytes_per_param", *state_widths(policy, optimizer).values())


def total_capacity(per_gpu: Term, gpus: Term) -> Term:
    """Return the memory of all GPUs together."""
    return multiply("memory/capacity", per_gpu, gpus)


def most_params(capacity: Term, each: Term, name: str = "params/max") -> Term:
    """Return ⌊capacity / bytes per parameter⌋."""
    return floor(name, divide(f"{name}/exact", capacity, each))
