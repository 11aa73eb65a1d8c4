"""The weights of a rank as terms: parameters, gradients and optimizer states by section of the model, as trained or
frozen, dense or of experts, and the ranks that divide them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from napkin.autograd.tensors import sized
from napkin.elementwise import Number
from napkin.footprint import memory
from napkin.footprint.local_weights import LocalWeights, divided, expert_shards
from napkin.footprint.prepared import PreparedStep
from napkin.footprint.rank import Rank
from napkin.formats import scale_bytes, stored_bytes
from napkin.operations.base import Operation
from napkin.operations.roles import EXPERT
from napkin.record import record
from napkin.term import TRUE, Term, add, ceil_divide, constant, leaf, multiply
from napkin.training.setup import Setup


@record
class Part:
    """One section of the model on a rank: how many there are, its operations, and the weights of one.

    name  table, layers/TYPE, head, shared, or frozen/TYPE"""

    name: str
    count: Number
    operations: tuple[Operation, ...]
    weights: LocalWeights


@record
class HeldWeights:
    """The weights of a rank, as the terms that its parameters, gradients and states share.

    dense, experts  elements of trained weights; None if the rank has none"""

    step: PreparedStep
    rank: Rank
    parts: tuple[Part, ...]
    dense: Term | None
    experts: Term | None

    @staticmethod
    def of(step: PreparedStep, rank: Rank) -> HeldWeights:
        """Return the weights of a rank."""
        parts = _parts(step, rank)
        dense = _held("weights_held", step, parts, experts=False)
        return HeldWeights(step, rank, parts, dense, _held("experts_held", step, parts, experts=True))

    def parameters(self, path: str) -> Term:
        """Return the bytes of the parameters: those trained, those frozen as they are stored, and the scales of
        quantized ones, which ZeRO-3 leaves whole."""
        setup = self.step.setup
        width = sized(1, setup.precision.param)
        beside = [
            self._beside(f"{path}/frozen", lambda one: one.frozen - one.scales, _stored(setup)),
            self._beside(f"{path}/wider", lambda one: one.widened(width), "kept in a wider type, bytes more"),
        ]
        scales = self._beside(f"{path}/scales", lambda one: one.scales, "no parameters: no rank divides them")
        each = leaf("bytes_of_a_parameter", width, "byte/param", TRUE, setup.precision.param)
        more = [term for term in beside if term is not None]
        return self._bytes(path, self.rank.parameters, each, bool(setup.layout.zero >= 3), more, scales)

    def gradients(self, path: str) -> Term:
        """Return the bytes of the gradients."""
        kind = self.step.setup.precision.grad
        each = leaf("bytes_of_a_gradient", sized(1, kind), "byte/param", TRUE, kind)
        return self._bytes(path, self.rank.gradients, each, bool(self.step.setup.layout.zero >= 2))

    def state(self, path: str, name: str, size: Number) -> Term:
        """Return the bytes of one optimizer state: weights × bytes if it has the shape of all weights."""
        precision = self.step.setup.precision
        kind = precision.master if name == "master" and precision.master else precision.state
        each = leaf(f"bytes_of_{name}", sized(1, kind), "byte/param", TRUE, kind)
        return self._bytes(path, size, each, bool(self.step.setup.layout.zero >= 1))

    def _bytes(
        self, path: str, size: Number, each: Term, sharded: bool, beside: Sequence[Term] = (), apart: Term | None = None
    ) -> Term:
        """Return trained weights × bytes with what is `beside` them, divided by the ranks that shard them; the same of
        experts; and what is `apart` and never divided. One leaf of that size if a framework adds to them (flat copies).

        each: bytes of a trained weight"""
        setup, terms = self.step.setup, []
        for at, weights, more, ranks in (
            (path, self.dense, beside, setup.shards),
            (f"{path}/experts", self.experts, (), expert_shards(setup)),
        ):
            name = f"{path}/trained" if more else f"{at}/whole"
            both = [*([multiply(name, weights, each)] if weights is not None else ()), *more]
            if both:
                whole = add(f"{at}/whole", *both) if more else both[0]
                terms.append(ceil_divide(at, whole, constant("ranks", ranks)) if sharded else whole.renamed(at))
        terms += [apart] if apart is not None else []
        if len(terms) > 1:
            found = add(path, *(term.renamed(f"{path}/dense") if term.name == path else term for term in terms))
        else:
            found = terms[0].renamed(path) if terms else leaf(path, 0, "byte", TRUE)
        return found if found.value == size else leaf(path, size, "byte", TRUE)

    def _beside(self, path: str, of: Callable[[LocalWeights], Number], source: str) -> Term | None:
        """Return the bytes that sections hold beside their trained weights; None if they hold none."""
        found = []
        for part in self.parts:
            size = of(part.weights)
            if size:
                one = leaf(f"{path}/{part.name}", size, "byte", TRUE, source)
                found.append(_times(f"{path}/{part.name}/all", part.count, one))
        return add(path, *found) if found else None


def _parts(step: PreparedStep, rank: Rank) -> tuple[Part, ...]:
    """Return the sections of the model on the rank's stage."""
    sections: list[tuple[str, tuple[Operation, ...]]] = [("table", step.stack.before)]
    layers = [
        (section.name, layer.operations) for layer, (_, section) in zip(step.run.kinds, step.run.layers, strict=True)
    ]
    sections += [(f"layers/{name}", operations) for name, operations in layers]
    sections.append(("head", step.stack.after))
    sections += [("shared", step.model.shared)] if step.weights.shared is not None else []
    sections += [(f"frozen/{name}", operations) for name, operations in layers]
    found = zip(sections, memory.parts_of(step, rank.stage), strict=False)  # frozen layers only where some are
    return tuple(Part(name, count, operations, one) for (name, operations), (count, one) in found if count)


def _held(name: str, step: PreparedStep, parts: Iterable[Part], experts: bool) -> Term | None:
    """Return the trained weights on a rank, dense or of experts; None if it has none."""
    held = []
    for part in parts:
        size = part.weights.expert if experts else part.weights.dense
        if size:
            of = f"{part.name}/experts" if experts else part.name
            held.append(_times(f"{of}/held", part.count, _elements(step, f"weights/{of}", part, size, experts)))
    return add(name, *held) if held else None


def _times(name: str, count: Number, one: Term) -> Term:
    """Return a term for all of as many alike."""
    return multiply(name, constant("layers", count), one) if count != 1 else one


def _elements(step: PreparedStep, path: str, part: Part, whole: Number, experts: bool) -> Term:
    """Return the elements of a section's weights on one rank, after sharding; one leaf if some are shared (a tied
    head), frozen or of adapters."""
    here = []
    for op in part.operations:
        for weight in op.weights():
            if (weight.shard == EXPERT) != experts:
                continue
            count = leaf(f"{path}/{op.name}/{weight.name}", weight.count, "param", TRUE)
            ways = divided(weight, step.setup.layout)
            split = ways != 1
            here.append(ceil_divide(f"{count.name}/here", count, constant("ranks", ways)) if split else count)
    found = add(path, *here) if here else None
    if found is not None and found.value == whole:
        return found
    tuning = step.setup.implementation.tuning
    source = f"{tuning.method}, rank {tuning.rank}" if tuning is not None and not part.weights.saved else ""
    return leaf(path, whole, "param", TRUE, source)


def _stored(setup: Setup) -> str:
    """Return how frozen weights are stored, in words."""
    precision, tuning = setup.precision, setup.implementation.tuning
    kept = precision.frozen or precision.param
    if tuning is None or not tuning.quantized:
        return f"{kept}, {sized(1, kept):g} B each"
    apart = scale_bytes(tuning.quantized) if tuning.quantizer.scales_apart else 0.0
    return f"{tuning.quantized}, {stored_bytes(tuning.quantized) - apart:g} B each, where quantized; else {kept}"
