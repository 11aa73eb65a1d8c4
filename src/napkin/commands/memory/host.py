"""Host memory of a node: what offloading and saving keep there, against its size."""

from __future__ import annotations

from collections.abc import Mapping

from napkin._tables.takes import TAKES
from napkin.commands.inputs import Inputs
from napkin.errors import NapkinError, Refused
from napkin.footprint.saving import FULL, SHARDED
from napkin.inputs.hardware import RACK, Hardware
from napkin.planning.verdicts import FITS, NOT
from napkin.render.answer import Answer
from napkin.term import GIVEN, Term, add, constant, leaf, multiply
from napkin.training.setup import Setup

EACH = ("optimizer", "parameters", "gradients", "activations")
"""Bytes that each GPU keeps in host memory."""


def read_save(inputs: Inputs, setup: Setup) -> str:
    """Return how the state is saved."""
    how, layout = inputs.text_or_none("save") or SHARDED, setup.layout
    if how == SHARDED:
        return how
    if layout.zero < 3 or setup.shards == 1:
        raise NapkinError(f"--save {how}: every rank has the complete weights", "leave it out, or --zero 3")
    if layout.tp * layout.pp * layout.ep > 1:
        raise Refused(f"--save {how}: gathering over tensor, pipeline or expert ranks is not modeled", "--save sharded")
    if setup.framework.unit_of_module and how != FULL:
        raise NapkinError(f"--save {how}: DeepSpeed gathers on the first rank's host", f"--save {FULL}")
    if "parameters" in setup.offload:
        raise Refused(f"--save {how} with offloaded parameters is not modeled", "--save sharded")
    return how


def keeps(setup: Setup) -> bool:
    """Return whether a step keeps anything in the host's memory."""
    return bool(setup.offload) or setup.optimizer.paged or setup.save == FULL


def read_host(
    inputs: Inputs, setup: Setup, hardware: Hardware | None, away: tuple[str, ...] = ()
) -> tuple[int, float | None]:
    """Return the GPUs of a node, and its host memory in bytes if given. away: what is offloaded between phases of a
    step."""
    kept = bool(away) or keeps(setup)
    read_whether_kept(inputs, kept)
    return read_node(inputs, setup, hardware) if kept else (1, None)


def read_whether_kept(inputs: Inputs, kept: bool) -> None:
    """Reject --host-memory if nothing is kept in host memory."""
    hint = (
        "--offload, or --save full, keeps something there" if "save" in TAKES[inputs.command.name] else "leave it out"
    )
    inputs.depends(("host-memory",), kept, "nothing is kept in the host's memory", hint)


def read_node(inputs: Inputs, setup: Setup, hardware: Hardware | None) -> tuple[int, float | None]:
    """Return the GPUs of a node, and its host memory in bytes if given."""
    given = inputs.number_or_none("host-memory")
    from napkin.evidence.rates.machines import NODE, gpus_per_node  # only if something is kept there

    stated = inputs.integer("gpus-per-node") if inputs.has("gpus-per-node") else None
    joined = stated or (NODE if hardware is None else gpus_per_node(hardware))
    if given is not None and joined > RACK:
        raise Refused(
            "--host-memory: the accelerator's link joins a rack of nodes",
            "--gpus-per-node says how many GPUs share a host",
        )
    return min(int(setup.layout.gpus), joined), None if given is None else float(given)


def host_of(terms: Mapping[str, Term], node: int) -> Term | None:
    """Return the bytes in host memory of the first rank's node; None if there are none."""
    kept = [terms[f"memory/host/{name}"] for name in EACH if f"memory/host/{name}" in terms]
    parts = []
    if kept:
        each = add("memory/host/of_a_gpu", *kept)
        parts.append(multiply("memory/host/of_gpus", each, constant("gpus_of_a_node", node)))
    if "memory/host/save" in terms:
        parts.append(terms["memory/host/save"])
    return add("memory/host", *parts) if parts else None


def holds(terms: Mapping[str, Term], node: int, capacity: float | None) -> bool:
    """Return whether host memory suffices; True if its size is not given."""
    host = host_of(terms, node)
    return host is None or capacity is None or float(host.value) <= capacity


def judge(answer: Answer, terms: Mapping[str, Term], node: int, capacity: float | None) -> None:
    """Add the bytes in host memory of a node with this many GPUs, and its size if given; the verdict then covers both
    memories. terms: those of one GPU."""
    held = host_of(terms, node)
    if held is None:
        return
    answer.terms = (*answer.terms, held)
    if capacity is not None:
        answer.terms = (*answer.terms, leaf("memory/host/capacity", capacity, "byte", GIVEN, "--host-memory"))
        verdict = FITS if held.value <= capacity else NOT
        answer.verdict = verdict if verdict == NOT else answer.verdict or verdict
