"""The ways to reduce the memory of a step of reinforcement learning: those of its trainer, and a smaller engine on the
same GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from napkin.operations.model import Model
from napkin.planning.remedy_axes import Axis, Options, halves, machine_axes, trainer_axes
from napkin.planning.rollout_lengths import RolloutLengths
from napkin.planning.rollout_memory import Sharing
from napkin.record import replace
from napkin.term import Term
from napkin.training.setup import Setup


def rollout_axes(
    model: Model,
    setups: tuple[Setup, Setup],
    given: Options,
    node: int,
    sharing: Sharing,
    lengths: RolloutLengths,
    capacity: Term,
) -> list[Axis]:
    """Return every axis of a step of reinforcement learning with room for less memory. setups: of the update, and of
    the largest micro-batch of passes without gradients; sharing: the engine, and what is offloaded while it runs;
    capacity: of a GPU, in bytes."""
    (setup, passing), engine = setups, sharing.engine
    return [
        *machine_axes(setup, given, engine.gpus if engine is not None and engine.apart else 0),
        *_trainer(model, setup, given, node, sharing),
        *_passes(passing, lengths),
        *_engine(setup, sharing, given, lengths, capacity, node),
    ]


def _trainer(model: Model, setup: Setup, given: Options, node: int, sharing: Sharing) -> Iterator[Axis]:
    """Yield what reduces the memory of the trainer's passes. What --offload moves is on the host in them, unless the
    library brings it back: then only activations are."""
    for axis in trainer_axes(model, setup, given, node):
        if axis.name != "offload" or not sharing.returns:
            yield axis
        elif "activations" not in setup.offload:
            offload = ",".join([*filter(None, str(given.get("offload", "")).split(",")), "activations"])
            yield replace(axis, levels=({"offload": offload},))


def _passes(passing: Setup, lengths: RolloutLengths) -> Iterator[Axis]:
    """Yield fewer sequences in the passes without gradients: of several, or in place of packed ones."""
    if not any(one.first and not one.trained for one in passing.forwards):
        return
    sequences, cp = int(passing.layout.micro), int(passing.layout.cp)
    sizes = halves(sequences, 1) or ([1] if passing.layout.seq >= lengths.most + cp else [])
    if sizes:
        levels = tuple({"logprob-micro-batch": str(size)} for size in sizes)
        yield Axis("logprobs", levels, "smaller passes without gradients")


def _engine(
    setup: Setup, sharing: Sharing, given: Options, lengths: RolloutLengths, capacity: Term, node: int
) -> Iterator[Axis]:
    """Yield what an engine on the trainer's GPUs leaves to it: smaller shares that still hold a response, and the
    trainer's states on the host while responses are generated."""
    engine = sharing.engine
    if engine is None or engine.apart:
        return
    most = engine.ranks if "rollout-tp" in given else min(node, engine.gpus)
    doubled = (engine.ranks << i for i in range(most.bit_length()))
    ranks = [count for count in doubled if count <= most and engine.gpus % count == 0]
    smaller = []
    for share in (tenths / 10 for tenths in range(9, 0, -1) if tenths / 10 < engine.share):
        tried = (count for count in ranks if replace(engine, share=share, ranks=count).holds(lengths, capacity))
        enough = next(tried, None)
        if enough is not None:
            divided = {"rollout-tp": str(enough)} if enough > engine.ranks else {}
            smaller.append({"rollout": f"colocated:{share:g}", **divided})
    if smaller:
        yield Axis("share", tuple(smaller), "fewer responses at a time")
    away = list(sharing.away)
    levels = []
    for what in sharing.movable:
        if what not in away and what not in setup.offload:
            away.append(what)
            levels.append({"rollout-offload": ",".join(away)})
    if levels:
        yield Axis("away", tuple(levels), "states moved to the host and back in every step")
