"""The contents of a checkpoint of a training setup: trained weights, any master copy, optimizer states."""

from __future__ import annotations

from napkin.autograd.tensors import sized
from napkin.elementwise import total
from napkin.footprint.memory import weights_of_all
from napkin.operations.model import Model
from napkin.record import replace
from napkin.term import TRUE, Term, add, leaf, multiply
from napkin.training.layout import Layout
from napkin.training.setup import Setup


def saved_states(model: Model, setup: Setup) -> Term:
    """Return the bytes of a checkpoint of the trained weights, any master copy, and the optimizer states."""
    held = weights_of_all(model, replace(setup, layout=Layout(seq=1), shard=0))
    states = total(dense + expert for _, dense, expert in held.states)
    precision = setup.precision
    weights = leaf("params/trained", held.all, "param", TRUE, "those that get a gradient")
    kept = {"parameters": precision.param, "master": precision.master}
    parts = [_of_each(f"checkpoint/{name}", weights, kind) for name, kind in kept.items() if kind is not None]
    if wider := held.widened(sized(1, precision.param)):
        apart = leaf("checkpoint/parameters/wider", wider, "byte", TRUE, "what stays in a format of its own")
        parts[0] = add("checkpoint/parameters", parts[0].renamed("checkpoint/parameters/trained"), apart)
    if states:
        parts.append(leaf("checkpoint/optimizer", states, "byte", TRUE, setup.optimizer.name))
    return add("checkpoint/bytes", *parts)


def _of_each(name: str, weights: Term, kind: str) -> Term:
    """Return the bytes of one copy of the weights in a format."""
    each = leaf(name.replace("checkpoint", "bytes_per_param"), sized(1, kind), "byte/param", TRUE, kind)
    return multiply(name, weights, each)
