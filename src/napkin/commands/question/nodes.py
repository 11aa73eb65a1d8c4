"""The number of GPUs, from --gpus, --nodes and --gpus-per-node."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.commands.question.machine import read_hardware_table
from napkin.errors import NapkinError
from napkin.inputs.hardware import find

NODES = ("nodes", "gpus-per-node")
OF_A_NODE = ("--num-gpus", "--num_gpus", "--devices", "--trainer.devices")
"""Option names that mean the GPUs of one node in launchers that also take a number of nodes, and all GPUs in others."""


def read_gpus(inputs: Inputs, alone: bool = True) -> None:
    """Derive --gpus from --nodes and --gpus-per-node, or the GPUs of a node from --gpus and --nodes; reject
    contradictions.

    alone: --gpus-per-node without --nodes means a machine of one node, not only the size of a node
    """
    if not any(name in inputs.given for name in NODES):
        return
    if "nodes" not in inputs.given:
        if "gpus" not in inputs.given and alone:
            inputs.record("gpus", inputs.integer("gpus-per-node"), "derived", "GPU")
        return
    nodes = inputs.integer("nodes")
    if isinstance(inputs.peek("gpus"), (list, tuple)):
        raise NapkinError(f"a contradiction: several --gpus and one number of --nodes, {nodes:,}", "leave out --nodes")
    gpus = inputs.integer_or_none("gpus") if "gpus" in inputs.given and inputs.origin("gpus") != "derived" else None
    _check_meaning(inputs)
    if gpus is None:
        each = inputs.integer("gpus-per-node") if "gpus-per-node" in inputs.given else _read_of_accelerator(inputs)
        inputs.record("gpus", nodes * each, "derived", "GPU")
    elif "gpus-per-node" in inputs.given:
        each = inputs.integer("gpus-per-node")
        if nodes * each != gpus:
            raise NapkinError(
                f"a contradiction: --gpus {gpus:,} and --nodes {nodes:,} × --gpus-per-node {each:,} = {nodes * each:,}",
                "leave out --gpus",
            )
    elif gpus % nodes:
        near = max(round(gpus / nodes), 1) * nodes
        raise NapkinError(f"--gpus {gpus:,} is not a multiple of --nodes {nodes:,}", f"--gpus {near:,} is")
    else:
        inputs.record("gpus-per-node", gpus // nodes, "derived", "GPU")


def _check_meaning(inputs: Inputs) -> None:
    """Reject a count of GPUs under a name that means all GPUs in some launchers and those of one node in others."""
    given = inputs.given.get("gpus")
    if given is not None and given.where in OF_A_NODE:
        raise NapkinError(
            f"{given.where} {given.text} next to --nodes: of each node, or of all nodes together?",
            f"--gpus-per-node {given.text}, or --gpus {given.text} for all together",
        )


def _read_of_accelerator(inputs: Inputs) -> int:
    """Return the GPUs of a node of the accelerator, recorded among the inputs."""
    from napkin.evidence.rates.machines import gpus_per_node

    name = inputs.peek("hardware")
    if name is None:
        raise NapkinError("--nodes needs --gpus-per-node", "--gpus-per-node 8, or --hardware, which has its own")
    each = gpus_per_node(find(str(name), read_hardware_table(inputs)))
    inputs.record("gpus-per-node", each, "default", "GPU")
    return each
