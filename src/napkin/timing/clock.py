"""Seconds of single operations on one GPU, as terms: bytes through memory, GEMMs, bytes over a link."""

from __future__ import annotations

from collections.abc import Iterable

from napkin import term
from napkin.elementwise import Number
from napkin.operations.work import ALL, Learning
from napkin.term import Term
from napkin.timing import collectives
from napkin.timing.collectives import ONE, TWO, RankGroup, groups_of
from napkin.timing.efficiency import alignment, depth, tiles
from napkin.timing.rates import Rates
from napkin.timing.step_layout import StepLayout

SECOND, BYTE, PER_PARAM = "second", "byte", "byte/param"
STACK, CALIBRATION, DATASHEET = "stack", "calibration", "datasheet"
"""Sources of a rate."""
WIDE_BYTES = term.constant("bytes_of_16_bits", 2, BYTE)
"""Bytes of one element of a moved activation or gradient."""
IN_FORWARD, IN_BACKWARD = 0.4, 0.6
"""The parts of permutation and casts in each pass, whose traffic was calibrated for both together. Assumed: no source
measured the passes separately."""
MULTIPLY_ADD = term.constant("2", 2, "FLOP", "a multiply-add is 2 FLOP")


def size(name: str, value: Number) -> Term:
    """Return a leaf: a dimension of the model or a degree of the layout."""
    return term.leaf(name, value, "1", term.GIVEN)


def zero(name: str) -> Term:
    """Return zero seconds."""
    return term.constant(name, 0, SECOND)


def total(name: str, terms: Iterable[Term]) -> Term:
    """Return the sum of seconds; 0 if there are none."""
    parts = tuple(terms)
    return term.add(name, *parts) if parts else zero(name)


def split(name: str, forward: float) -> Term:
    """Return the assumed share of one pass in a calibrated traffic."""
    return term.leaf(name, forward, "1", term.ASSUMED, "how both passes' traffic is split between them")


class Clock:
    """Converts work to seconds for one layout and one set of rates."""

    def __init__(self, rates: Rates, layout: StepLayout) -> None:
        self.rates, self.layout = rates, layout
        self.memory = term.multiply(
            "memory/rate",
            term.leaf("memory/bandwidth", rates.bandwidth, "byte/s", term.TRUE, DATASHEET),
            self.rate("memory/share", rates.memory),
        )
        self.link = term.multiply(
            "link/rate",
            term.leaf("link/bandwidth", rates.link, "byte/s", term.TRUE, "datasheet, one way"),
            self.rate("link/share", rates.bus),
        )
        self.network = term.multiply(
            "network/rate",
            term.leaf("network/bandwidth", rates.network, "byte/s", term.TRUE, "datasheet, one network card"),
            self.rate("network/share", rates.wire),
        )
        self.peak = term.leaf("peak", rates.peak, "FLOP/s", term.TRUE, DATASHEET)
        self.peak_wide = term.leaf("peak/16bit", rates.peak_wide, "FLOP/s", term.TRUE, DATASHEET)
        self.units = term.leaf("matrix_units", rates.units, "1", term.TRUE, DATASHEET)
        self.node = term.leaf("gpus_of_a_node", rates.node, "1", term.TRUE, DATASHEET)
        self.groups = groups_of(layout)
        self.tp, self.cp, self.low = self.groups.tensor.ranks, self.groups.context.ranks, size("low", layout.low)
        self.micro_batch, self.sequence = size("micro_batch", layout.micro_batch), size("sequence", layout.sequence)
        self.tokens = self.tokens_of("tokens", self.sequence)
        self.read = self.tokens_of("tokens_read", size("sequence_read", layout.keys))
        self.sequence_parallel = size("sequence_parallel", layout.sequence_parallel)
        self.stream = term.choose("ranks_of_the_stream", self.sequence_parallel, self.tp, ONE)
        """Ranks that divide tensors outside tensor-parallel regions: t with sequence parallelism, else 1."""
        self._operand = term.subtract(
            "bytes_of_an_operand", WIDE_BYTES, term.multiply("bytes_saved", term.constant("1 byte", 1, BYTE), self.low)
        )

    def tokens_of(self, name: str, sequence: Term) -> Term:
        """Return the tokens of a micro-batch on one GPU."""
        return term.divide(name, term.multiply(f"{name}/all", self.micro_batch, sequence), self.cp)

    def rate(self, name: str, value: Number, unit: str = "1", source: str = CALIBRATION) -> Term:
        """Return a constant calibrated on published runs."""
        return term.leaf(name, value, unit, term.SEEN, source)

    def move(self, name: str, moved: Term) -> Term:
        """Return the seconds to move bytes at the memory's rate."""
        return term.divide(name, moved, self.memory)

    def gemm(
        self,
        name: str,
        m: Term,
        k: Term,
        n: Term,
        batch: Term = ONE,
        wide: bool = False,
        slowed: Term | None = None,
    ) -> Term:
        """Return the seconds of `batch` GEMMs (m×k)(k×n): a smooth maximum of compute time at the rate for this shape
        and memory time.

        wide    operands have 16 bits, independent of the layout's precision
        slowed  further factors on the rate: alignment, grouping"""
        many = () if batch is ONE else (batch,)
        flops = term.multiply(f"{name}/flops", MULTIPLY_ADD, *many, m, k, n)
        constant = self.rate("matmul/16bit", self.rates.matmul_wide) if wide else self.rate("matmul", self.rates.matmul)
        fits = tiles(f"{name}/tiles", m, n, batch, self.units, self.rate("waves", self.rates.waves))
        deep = depth(f"{name}/depth", k, self.rate("half_depth", self.rates.half_depth))
        share = term.multiply(f"{name}/share", constant, *(() if slowed is None else (slowed,)), fits, deep)
        reached = term.multiply(f"{name}/rate", self.peak_wide if wide else self.peak, share)
        inputs = term.add(f"{name}/inputs", term.multiply(f"{name}/a", m, k), term.multiply(f"{name}/b", k, n))
        moved = term.add(
            f"{name}/bytes",
            term.multiply(f"{name}/bytes/read", WIDE_BYTES if wide else self._operand, inputs),
            term.multiply(f"{name}/bytes/written", WIDE_BYTES, m, n),
        )
        if many:
            moved = term.multiply(f"{name}/bytes/all", batch, moved)
        return term.smooth_largest(
            name, term.divide(f"{name}/compute", flops, reached), self.move(f"{name}/moved", moved)
        )

    def linear(
        self,
        name: str,
        m: Term,
        k: Term,
        n: Term,
        batch: Term = ONE,
        wide: bool = False,
        grouped: Term | None = None,
        learning: Learning = ALL,
    ) -> tuple[Term, Term]:
        """Return the seconds forward, and backward: the input's gradient (m×n)(n×k) and the weight's (k×m)(m×n), if
        they are computed. The rows of all three operands have length k or n, so these two determine the alignment."""
        slowed = alignment(f"{name}/alignment", self.rate("misaligned", self.rates.misaligned), k, n)
        if grouped is not None:
            slowed = term.multiply(f"{name}/slowed", grouped, slowed)
        forward = self.gemm(f"{name}/forward", m, k, n, batch, wide, slowed)
        backward = []
        if learning.inputs:
            backward.append(self.gemm(f"{name}/input_gradient", m, n, k, batch, wide, slowed))
        if learning.weights:
            backward.append(self.gemm(f"{name}/weight_gradient", k, m, n, batch, wide, slowed))
        return forward, total(f"{name}/backward", backward)

    def bus(self, name: str, group: RankGroup) -> Term:
        """Return the byte/s of each rank of a group."""
        return collectives.bus_bandwidth(name, group.ranks, self.node, group.stride, self.link, self.network)

    def around(self, name: str, group: RankGroup) -> Term:
        """Return the seconds of the hops of one all-gather or reduce-scatter over a group."""
        link, network = (
            self.rate(f"hop/{what}", each, SECOND)
            for what, each in (("link", self.rates.link_hop), ("network", self.rates.network_hop))
        )
        return collectives.once_around(name, group.ranks, self.node, group.stride, link, network)

    def neighbors(self, name: str, group: RankGroup) -> Term:
        """Return the byte/s from each rank of a group to the next one: the network's if the group leaves the node."""
        crosses = collectives.crosses_nodes(f"{name}/crosses_nodes", group.ranks, self.node, group.stride)
        return term.choose(name, crosses, self.network, self.link)

    def transfer(self, name: str, sent: Term, bandwidth: Term, latency: Term | None = None) -> Term:
        """Return the seconds to transfer bytes at a bandwidth, plus latency."""
        if latency is None:
            return term.divide(name, sent, bandwidth)
        return term.add(name, term.divide(f"{name}/wire", sent, bandwidth), latency)

    def latency(self, name: str, ranks: Term, seconds: Term) -> Term:
        """Return the latency of a collective; 0 for a single rank."""
        return term.choose(name, term.greater(f"{name}/several", ranks, ONE), seconds, zero(f"{name}/none"))


__all__ = ["BYTE", "ONE", "PER_PARAM", "SECOND", "TWO", "WIDE_BYTES", "Clock", "size", "total", "zero"]
