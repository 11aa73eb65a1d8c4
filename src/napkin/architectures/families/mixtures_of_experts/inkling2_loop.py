"""Inkling 2 with a loop: layers in the middle run several times, and from the second pass on read messages of the pass
before.

Fields and arrangements are facts of the class of Hugging Face transformers 5.24.0
(src/transformers/models/inkling2_loop/).
"""

from __future__ import annotations

from collections.abc import Mapping

from napkin.architectures.blocks import RMS_BARE, Operations
from napkin.architectures.families.mixtures_of_experts.inkling2 import INKLING2, InklingParts, layer, network, read
from napkin.architectures.idle import idle
from napkin.architectures.record import Wrapper, like
from napkin.inputs.load import printable
from napkin.inputs.model import Config, number_in
from napkin.operations.base import Operation
from napkin.operations.block_residual import BlockResidual
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Activation, Add, Multiply
from napkin.operations.views import Cast, Concat, Slice, run_again
from napkin.record import record

BRANCHES = ("q_", "k_", "v_", "mlp_")
"""What a layer reads a message into."""
FORMER = {"core_start": "loop_layer_index_start", "core_end": "loop_layer_index_end"}
FORMER |= {"num_passes": "loop_num_passes", "gate_rank": "loop_gate_rank"}
"""Names in the block `loop_config` of earlier files, which wins over the fields."""


@record
class _Loop:
    """Layers `start` to `end` run `passes` times; `rank`: of the gates that mix messages."""

    start: int
    end: int
    passes: int
    rank: int


def _read_loop(config: Config, parts: InklingParts) -> _Loop:
    block: Mapping[str, object] = config.mapping("loop_config", required=False) or {}
    for former, field in FORMER.items():
        if former in block:
            value = number_in(block[former])
            if isinstance(value, bool) or not isinstance(value, int):
                raise config.wrong("loop_config", f"{former} {printable(repr(value), 60)} is not a whole number")
            config.restate(field, value)
    loop = _Loop(*(config.integer(field) for field in FORMER.values()))
    ends = {"loop_layer_index_start": loop.start, "loop_layer_index_end": loop.end}
    for field, place in ends.items():
        if place % parts.every:
            raise config.wrong(field, f"{place} is not a multiple of the {parts.every} layers of a block")
    if not loop.start < loop.end <= parts.sizes.layers:
        raise config.wrong("loop_layer_index_end", f"layers {loop.start} to {loop.end} are none of the network's")
    return loop


def _mixed(hidden: int, rank: int, branch: str, source: str) -> Operations:
    """Return (1 − tanh(forget)) ⊙ x + tanh(take) ⊙ message, both gates read from x and the message (MessageGate)."""
    at = f"{branch}gate_{{}}".format
    message = f"{branch}message"
    return (
        RMS_BARE(at("norm"), source, hidden),
        RMS_BARE(at("message_norm"), message, hidden),
        Concat(at("pair"), (at("norm"), at("message_norm")), 2 * hidden),
        Matmul(at("down"), (at("pair"),), 2 * hidden, rank),
        Cast(at("wide"), (at("down"),), rank, fp32=True),
        Matmul(at("forget"), (at("wide"),), rank, hidden),
        Activation(at("forgotten"), (at("forget"),), hidden, "tanh"),
        Matmul(at("take"), (at("wide"),), rank, hidden),
        Activation(at("taken"), (at("take"),), hidden, "tanh"),
        Multiply(at("kept"), (at("forgotten"), source), hidden),
        Multiply(at("added"), (at("taken"), message), hidden),
        Add(at("mixed"), (source, at("kept"), at("added")), hidden),
    )


def _message(hidden: int, states: int) -> Operations:
    """Return the messages of the pass before: sums over its blocks, one for each branch."""
    read = BlockResidual("message_input", ("x",), hidden, states, len(BRANCHES))
    return (read, *(Slice(f"{branch}message", (read.name,), hidden) for branch in BRANCHES))


def _again(op: Operation, owned: dict[str, Operation]) -> Operation:
    """Return an operation of a later pass with the weights of an earlier one, which each branch's norm shares; else it
    owns them itself."""
    names = (op.name, *(op.name.removeprefix(branch) for branch in BRANCHES))
    owner = next((owned[name] for name in names if name in owned), None)
    if owner is None:
        owned[op.name] = op
    return run_again(op, owner) if owner is not None and op.weights() else op


def _loop_layers(parts: InklingParts, loop: _Loop) -> list[Layer]:
    """Return the layers of the loop, pass by pass; weights belong to the first pass that runs them."""
    plans, hidden = parts.plans[loop.start : loop.end], parts.sizes.hidden
    states = (loop.end - loop.start) // parts.every
    firsts = [layer(parts, plan) for plan in plans]
    if loop.passes == 1:
        gates = [op for branch in BRANCHES for op in _mixed(hidden, loop.rank, branch, "x")]
        held = idle("unused_messages", (*_message(hidden, states), *gates))
        return [Layer(one.kind + "_loop", (held, *one.operations)) for one in firsts]
    owners = [{op.name: op for op in one.operations} for one in firsts]
    made = list(firsts)
    for number in range(1, loop.passes):
        for plan, owned in zip(plans, owners, strict=True):
            usual = layer(parts, plan, lambda branch, source: _mixed(hidden, loop.rank, branch, source))
            operations = tuple(_again(op, owned) for op in (*_message(hidden, states), *usual.operations))
            made.append(Layer(f"{usual.kind}_{'messages' if number == 1 else 'again'}", operations))
    return made


def _inkling2_loop(config: Config) -> Model:
    parts = read(config)
    loop = _read_loop(config, parts)
    around = [layer(parts, plan) for plan in parts.plans]
    made = [*around[: loop.start], *_loop_layers(parts, loop), *around[loop.end :]]
    config.notes.append(f"layers {loop.start} to {loop.end - 1} run {loop.passes} times")
    distinct: dict[Layer, Layer] = {}
    return network(parts, tuple((1, distinct.setdefault(one, one)) for one in made))


INKLING2_LOOP = like(
    INKLING2,
    "inkling2_loop_text",
    build=_inkling2_loop,
    config_class="Inkling2LoopTextConfig",
    wrappers=(Wrapper("inkling2_loop"),),
    modules={
        f"{branch}gate_{name}": f"{branch}message_gate.{path}"
        for branch in BRANCHES
        for name, path in (("down", "down_proj"), ("forget", "forget_gate_proj"), ("take", "message_gate_proj"))
    },
    defaults={
        "log_scaling_n_floor": 8192, "loop_gate_rank": 64, "loop_layer_index_end": 18, "loop_layer_index_start": 6,
        "loop_num_passes": 3, "moe_intermediate_size": 1152, "n_routed_experts": 128, "num_attention_heads": 24,
        "swa_num_attention_heads": 24,
    },
)  # fmt: skip

ARCHITECTURES = (INKLING2_LOOP,)
