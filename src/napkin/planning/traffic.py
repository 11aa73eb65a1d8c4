"""What a layout costs in addition to memory: FLOPs that run again, and the bytes that each GPU sends in a step.

n ranks that add up or gather a payload in a ring pass (n−1)/n of it each way. For m micro-batches of T tokens on a GPU,
a stage of ℓ layers, width h, and a rank's weights and gradients of P and G bytes before ZeRO divides them:

    data      ZeRO 0 and 1: G + P · 2: m·G + P · 3: m·(2P + G)                 Rajbhandari et al. 2020, section 7
    tensor    an all-reduce for each row-parallel layer forward, for each column-parallel input backward: 2·T·h·2
              bytes; a forward pass that is recomputed sends again             Shoeybi et al. 2019, section 3
    context   keys and values of the other ranks, twice that backward          Liu et al. 2023, ring attention
    pipeline  T·h·2 bytes each way between stages, for each chunk              Narayanan et al. 2021, section 2.2
    expert    each token's copies there and back, forward and backward         Lepikhin et al. 2020
    host      optimizer offloaded: gradients down, weights up, once a step     Ren et al. 2021 (ZeRO-Offload)
              parameters offloaded: up in both passes, gradients down, every micro-batch
              activations offloaded: down and up, every micro-batch
"""

from __future__ import annotations

from napkin.autograd.tensors import sized
from napkin.counting import flops, utilization
from napkin.elementwise import Number
from napkin.footprint.offload import host_bytes
from napkin.footprint.rank import Rank
from napkin.footprint.setup import Setup
from napkin.operations.model import Layer, Model
from napkin.operations.roles import COLUMN, ROW
from napkin.record import record
from napkin.timing.collectives import all_reduce_bytes, gather_share

ACTIVATION_BYTES = 2
"""Activations and their gradients travel in 16 bits."""


@record
class Burden:
    """What a layout costs in a step in addition to its work.

    again    recomputed FLOPs, as a share of the step's FLOPs
    tensor   bytes that a GPU sends to the ranks of its tensor-parallel group
    network  bytes that it sends to other ranks
    host     bytes between it and its host
    idle     the pipeline's bubble over the work
    """

    again: float
    tensor: Number
    network: Number
    host: Number
    idle: float

    def over(self, before: Burden) -> Burden:
        """Return what this adds to another burden; less recomputation does not count as a gain."""
        return Burden(
            max(self.again - before.again, 0.0),
            self.tensor - before.tensor,
            self.network - before.network,
            self.host - before.host,
            self.idle - before.idle,
        )


@record
class DatasheetRates:
    """Datasheet rates of one accelerator: dense FLOP/s, byte/s over the link inside a node, over the network and to the
    host; `node`: accelerators that the link joins."""

    peak: float
    link: float
    network: float
    host: float
    node: int

    def share(self, burden: Burden, model: Model, setup: Setup) -> float:
        """Return a burden's time over that of the step's FLOPs, all at full rate and without overlap: comparable
        between layouts of different batches."""
        layout = setup.layout
        over = flops.of_layout(model, layout, layout.global_batch)
        compute = 3 * flops.forward(model, over).value / layout.gpus / self.peak
        outside = self.link if layout.gpus <= self.node else self.network
        moved = burden.tensor / self.link + burden.network / outside + burden.host / self.host
        return float(burden.again + burden.idle + moved / compute)


def again(model: Model, setup: Setup) -> float:
    """FLOPs of the forward passes that run again over those of forward and backward."""
    layout = setup.layout
    if layout.recompute.kind == "none":
        return 0.0
    over = flops.of_layout(model, layout, 1)
    repeated = utilization.recomputed(model, over, layout.recompute).value
    return float(repeated / (3 * flops.forward(model, over).value))


def tensor_bytes(layer: Layer, setup: Setup, width: int) -> Number:
    """Return the bytes that tensor parallelism sends in one layer for one micro-batch."""
    layout = setup.layout
    shared = {(one.reads, one.shard) for op in layer.operations if (one := op.linear()) is not None}
    forward = sum(shard == ROW for _, shard in shared)
    backward = sum(shard == COLUMN for _, shard in shared)
    repeats = 1 + (layout.recompute.kind in ("full", "every", "group"))
    return (repeats * forward + backward) * all_reduce_bytes(_passed(setup, width), layout.tp)


def context_bytes(layer: Layer, setup: Setup) -> Number:
    """Keys and values that context parallelism passes round in one layer for one micro-batch."""
    layout = setup.layout
    numbers = sum(sum(op.ring()) for op in layer.operations)
    whole = ACTIVATION_BYTES * layout.micro * layout.seq * numbers / layout.tp
    return 3 * gather_share(layout.cp) * whole


def expert_bytes(layer: Layer, setup: Setup) -> Number:
    """Tokens that expert parallelism exchanges in one layer for one micro-batch, and those that ranks which share an
    expert gather."""
    layout = setup.layout
    copies = sum(op.dispatched() for op in layer.operations)
    tokens = layout.micro * layout.seq / layout.cp / layout.tp
    return 4 * (gather_share(layout.ep) + layout.etp - 1) * ACTIVATION_BYTES * tokens * copies


def _passed(setup: Setup, width: int) -> Number:
    """Bytes of one activation of the residual stream on a GPU."""
    layout = setup.layout
    return ACTIVATION_BYTES * layout.micro * layout.seq / layout.cp * width


def data_bytes(rank: Rank, setup: Setup) -> Number:
    """Return the bytes that data parallelism sends in a step."""
    layout, held = setup.layout, rank.held
    m, replicas = layout.micro_batches, layout.dp * layout.cp
    passed = held.dense * gather_share(replicas) + held.expert * gather_share(layout.with_experts(replicas))
    weights, gradients = passed * sized(1, setup.precision.param), passed * sized(1, setup.precision.grad)
    if layout.zero == 3:
        return m * (2 * weights + gradients)
    return gradients * (m if layout.zero == 2 else 1) + weights


def burden(model: Model, setup: Setup, rank: Rank, offloaded: Number = 0) -> Burden:
    """Return the burden of a layout on its worst rank. `offloaded`: bytes of activations that a micro-batch sends to
    the host."""
    layout = setup.layout
    width, m = model.hidden, layout.micro_batches
    together: Number = 0
    layers: Number = 0
    for count, layer in zip(rank.stage.layers, rank.stage.kinds, strict=True):
        together += count * tensor_bytes(layer, setup, width)
        layers += count * (context_bytes(layer, setup) + expert_bytes(layer, setup))
    between = 2 * layout.vp * _passed(setup, width * model.streams) * (layout.pp > 1) / (layout.tp if layout.sp else 1)
    return Burden(
        again(model, setup),
        m * together,
        data_bytes(rank, setup) + m * (layers + between),
        host_bytes(rank, setup) + 2 * m * offloaded,
        float((layout.pp - 1) / (layout.vp * m)),
    )
