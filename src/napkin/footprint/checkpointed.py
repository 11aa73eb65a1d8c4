"""The contents of a checkpoint of a training setup: weights, any master copy, optimizer states."""

from __future__ import annotations

from napkin.autograd.tensors import sized
from napkin.elementwise import total
from napkin.footprint.local_weights import LocalWeights
from napkin.footprint.memory import weights_of_all
from napkin.operations.model import Model
from napkin.record import replace
from napkin.term import TRUE, Term, add, leaf, multiply
from napkin.training.layout import Layout
from napkin.training.setup import Setup

TRAINED = "params/trained"


def trained_params(model: Model, setup: Setup) -> Term:
    """Return the parameters that an optimizer gets, as peft counts them: those that no token reaches too."""
    held = _held(model, setup)
    return leaf(TRAINED, held.all + held.idle, "param", TRUE, "weights with requires_grad")


def _held(model: Model, setup: Setup) -> LocalWeights:
    """Return the weights of all ranks together."""
    return weights_of_all(model, replace(setup, layout=Layout(seq=1), shard=0))


def saved_states(model: Model, setup: Setup) -> Term:
    """Return the bytes of a checkpoint: adapters alone where there are any, else all weights, frozen ones too
    (transformers, trainer.py, _save_optimizer_and_scheduler: exclude_frozen_parameters where the model is peft's; a
    module's state_dict has them); any master copy and the optimizer states of those that are trained."""
    held = _held(model, setup)
    states = total(dense + expert for _, dense, expert in held.states)
    precision = setup.precision
    weights = leaf(TRAINED, held.all, "param", TRUE, "those that get a gradient")
    kept = {"parameters": precision.param, "master": precision.master}
    parts = [_of_each(f"checkpoint/{name}", weights, kind) for name, kind in kept.items() if kind is not None]
    apart = {
        "wider": (held.widened(sized(1, precision.param)), "what stays in a format of its own"),
        "frozen": (held.frozen if setup.implementation.tuning is None else 0, "not trained, and saved with the rest"),
    }
    if more := [(name, size, why) for name, (size, why) in apart.items() if size]:
        leaves = [leaf(f"checkpoint/parameters/{name}", size, "byte", TRUE, why) for name, size, why in more]
        parts[0] = add("checkpoint/parameters", parts[0].renamed("checkpoint/parameters/trained"), *leaves)
    if states:
        parts.append(leaf("checkpoint/optimizer", states, "byte", TRUE, setup.optimizer.name))
    return add("checkpoint/bytes", *parts)


def _of_each(name: str, weights: Term, kind: str) -> Term:
    """Return the bytes of one copy of the weights in a format."""
    each = leaf(name.replace("checkpoint", "bytes_per_param"), sized(1, kind), "byte/param", TRUE, kind)
    return multiply(name, weights, each)
