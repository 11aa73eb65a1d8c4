"""The time of one layer for one micro-batch: each operation by roofline, recomputation, communication.

Seconds are kept in groups until the end, so that the printed breakdown adds up to the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin import term
from napkin.elementwise import Number, holds_for_all, is_array, where
from napkin.operations.base import EXPERT_KERNELS, Operation
from napkin.operations.implementations import Implementation
from napkin.operations.model import Layer
from napkin.operations.recomputed_parts import RecomputedPart, parts_of
from napkin.operations.rewrite import fuse, fuse_linears
from napkin.operations.roles import ADAPTER, MERGED
from napkin.operations.work import ALL
from napkin.options.training import EXPERT_ACTIVATION
from napkin.record import record, replace
from napkin.term import Term
from napkin.timing.clock import PER_PARAM, SECOND, STACK, Clock, size, total, zero
from napkin.timing.layer_clock import GROUPS, LayerClock
from napkin.timing.layer_collectives import adapter_time, heads_time, ring_time, tensor_time
from napkin.timing.layer_weights import Held, layer_weights
from napkin.timing.matrix_work import work_of
from napkin.timing.step_layout import StepLayout

RECOMPUTED = ("layers_recomputed", "attention_recomputed", "products_recomputed", "experts_recomputed")
"""Fields of a layout that say what is recomputed."""
RING_STEP = 3
"""Launches of a further step of ring attention in a pass: the kernel, the exchange and the correction."""
TRAINING_STACK = Implementation(swiglu="generated")
"""The fusion of elementwise operations in the stacks whose step times are calibrated."""


@record
class LayerTime:
    """Seconds of one layer for one micro-batch, by group, and the weights on one GPU; or those of operations outside
    the layers (ends.py).

    behind   time that can overlap with gradient reduction in the last micro-batch: all except the forward pass and its
             waits for the host; 0 for the head, whose backward pass runs before any gradient is complete
    ahead    time that can overlap with gathering updated parameters of later layers: the forward pass
    weights  parameters that are trained, before ZeRO divides them
    frozen   bytes of frozen parameters, once for each pass that gathers them: forward, and backward if it runs; both
             0 outside the layers, whose weights `end_weights` counts
    works    seconds of the optimizer's matmuls and decompositions, before ZeRO divides them
    spare    seconds by which the host's launches are shorter than the work of the device, 0 if they are longer
    tensors  weight tensors, of linear layers that read one tensor a single one; 0 outside the layers"""

    groups: dict[str, Term]
    behind: Term
    ahead: Term
    weights: Held
    frozen: Held
    works: Term
    spare: Term
    tensors: int = 0


def layer_time(clock: Clock, layer: Layer, kind: str) -> LayerTime:
    """Return the seconds of one layer for one micro-batch: forward, backward, recomputation, gradient accumulation."""
    rates = clock.rates
    own = LayerClock(clock, kind)
    weights, frozen = layer_weights(layer.operations, clock.layout, kind)
    operations = fuse(layer.operations, TRAINING_STACK)
    own.learns = any(op.learning.runs for op in operations)
    for op in operations:
        op.time(own)
    linears = fuse_linears(own.linears)
    last = own.fused(linears)
    own.elementwise(operations)
    own.add(*tensor_time(clock, kind, residual_width(operations), linears))
    own.add(*adapter_time(clock, kind, own.adapters.values()))
    passed = sum(op.ring()[0] for op in operations)  # the other stack's keys and values are not timed yet
    if is_array(passed) or passed:
        exchanges = holds_for_all(clock.layout.exchanges > 0)
        forth, back = heads_time(clock, kind, operations) if exchanges else ring_time(clock, kind, passed)
        own.add(forth, back if any(op.learning.inputs for op in operations if op.attends()) else {})
    own.hide_exchange()
    accumulated = term.multiply(
        f"{kind}/accumulation/bytes",
        clock.rate("accumulation_bytes", rates.accumulation_bytes, PER_PARAM),
        term.add(f"{kind}/all_weights", weights.dense, weights.experts),
    )
    again = parts_of(operations, clock.layout.parts_recomputed) if own.learns else []
    groups = by_group(
        own, last, clock.move(f"{kind}/accumulation", accumulated), parts_time(clock, operations, again, kind)
    )
    counted = launches_of(operations, clock.layout, again)
    launches = launch_time(clock, kind, operations, counted)
    waits = experts_launched(clock, kind, operations, counted)
    waited, spare = host_time(kind, groups, launches)
    groups["host"] = term.add(f"{kind}/host", waited, waits)
    seconds = term.add(f"{kind}/seconds", *groups.values())
    forward = forward_time(own, counted, launches, waits)
    behind = term.subtract(f"{kind}/behind", seconds, forward)
    tensors = sum(1 for op in layer.operations if op.weights()) - len(own.linears) + len(linears)
    works = work_of(clock, layer.operations, kind)
    return LayerTime(groups, behind, forward, weights, frozen, works, spare, tensors)


def forward_time(own: LayerClock, counted: Launches, launches: Term, waits: Term) -> Term:
    """Return the seconds of the forward pass with its waits for the host: the larger of its device time and its share
    of the launches, plus its share of the waits for experts. Recomputation changes none of these, so it never makes a
    step faster."""
    kind = own.kind
    forward = total(f"{kind}/forward", (one for terms in own.forward.values() for one in terms))
    share = term.leaf(f"{kind}/forward/share", counted.forward, "1", term.TRUE, "counted operations")
    launched = term.multiply(f"{kind}/launch/forward", launches, share)
    longer = term.largest(f"{kind}/forward/longer", forward, launched)
    return term.add(f"{kind}/forward/waited", longer, term.multiply(f"{kind}/host/experts/forward", waits, share))


def parts_time(
    clock: Clock, operations: Sequence[Operation], parts: Sequence[RecomputedPart], kind: str
) -> dict[str, list[Term]]:
    """Return the seconds by group of the parts of a layer that run again: their operations' forward pass, with its
    communication, or of experts the activation alone. What several parts have runs once more only."""
    own = LayerClock(clock, f"{kind}/again")
    if not parts:
        return own.forward
    names = {name for part in parts if not part.within for name in part.operations}
    chosen = [op for op in operations if op.name in names]
    for op in chosen:
        op.time(own)
    linears = fuse_linears(own.linears)
    own.fused(linears)
    own.elementwise(chosen)
    own.add(*tensor_time(clock, own.kind, residual_width(operations), linears))
    own.add(*adapter_time(clock, own.kind, own.adapters.values()))
    for op in operations:
        within = any(part.module == EXPERT_ACTIVATION and op.name in part.operations for part in parts)
        if within and op.name not in names and (experts := op.routed()) is not None:
            from napkin.timing.experts import activation_time

            own.add({"elementwise": activation_time(clock, experts, f"{own.kind}/{op.name}")}, {})
    return own.forward


@record
class Launches:
    """Kernel launches of a layer relative to the same layer fully trained without recomputation: its own and those of
    adapters; the share in the forward pass; and the units and modules that are gathered separately, over all passes.
    They do not depend on sizes; otherwise more device work in the backward pass could hide more launches and make a
    step faster."""

    own: Number
    adapters: Number
    forward: Number
    units: Number
    modules: Number


def launches_of(operations: Sequence[Operation], layout: StepLayout, parts: Sequence[RecomputedPart] = ()) -> Launches:
    """Return a layer's launches: one for each operation, one for each gradient of inputs and of weights in the backward
    pass, and those of recomputation, of all or of parts. Each step of a ring after the first has the attention kernel,
    the exchange and the correction of what was summed before, in each pass (NVIDIA/TransformerEngine
    transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py, AttnFuncWithCPAndKVP2P)."""
    repeated = {name for part in parts for name in part.operations}
    added = [op for op in operations if op.role in (ADAPTER, MERGED)]
    own = [op for op in operations if op.role not in (ADAPTER, MERGED)]
    usual = max(sum(sum(replace(op, learning=ALL).launch_counts()) for op in own), 1)
    learns = any(op.learning.runs for op in operations)
    again, core = layout.layers_recomputed * learns, layout.attention_recomputed * learns
    passes = [
        [sum(_counts_as(op, layout) * op.launch_counts()[way] for op in some) for way in (0, 1)]
        + [
            sum(_counts_as(op, layout) * op.launch_counts()[0] for op in some if op.name in repeated)
            + core * sum(op.launch_counts()[0] for op in some if op.attends() and op.name not in repeated)
        ]
        for some in (own, added)
    ]
    if not holds_for_all(layout.cp == 1) and not holds_for_all(layout.exchanges > 0):
        ring = RING_STEP * (layout.cp - 1) * sum(1 for op in own if op.attends())
        passes[0] = [passes[0][0] + ring, passes[0][1] + ring * learns, passes[0][2]]
    plain, adapters = (ahead * (1 + again) + back + more for ahead, back, more in passes)
    every, ahead = plain + adapters, sum(one for one, *_ in passes)
    gathered = 1 + learns + layout.gathers_again * again
    matrices = [sum(len(op.weights()) for op in added), sum(1 for op in own if op.weights())]
    units = (layout.gathers_layers + layout.gathers_adapters * matrices[0]) * gathered
    modules = layout.gathers_modules * sum(matrices) * gathered
    return Launches(plain / usual, adapters / usual, ahead / where(every > 0, every, 1), units, modules)


def _counts_as(op: Operation, layout: StepLayout) -> Number:
    """Return the number of launches of an operation. If experts run in a loop, each has three: the first matmul, the
    activation and the second matmul."""
    experts = op.routed()
    return 1 if experts is None else where(layout.looped > 0, 3 * experts.experts / layout.ep, 1)


def launch_time(clock: Clock, kind: str, operations: Sequence[Operation], counted: Launches) -> Term:
    """Return the seconds for the host to launch a layer's kernels: those of experts or of a dense layer, and adapters
    at a dense layer's rate."""
    rates = clock.rates
    several = any(op.launches() == EXPERT_KERNELS for op in operations)
    trained = where(clock.layout.looped > 0, rates.host_layer, rates.host_experts) if several else rates.host_layer
    own, dense = (
        clock.rate(f"{kind}/launch/{what}", rate, SECOND, STACK)
        for what, rate in (
            ("trained", trained),
            ("dense", rates.host_layer),
        )
    )
    shares = (
        term.leaf(f"{kind}/launch/{what}/share", share, "1", term.TRUE, "counted operations")
        for what, share in (("own", counted.own), ("adapters", counted.adapters))
    )
    parts = [
        term.multiply(f"{kind}/launch/{what}", rate, share)
        for what, rate, share in zip(("own", "adapters"), (own, dense), shares, strict=True)
    ]
    gathers = (("units", counted.units, rates.host_unit), ("modules", counted.modules, rates.host_module))
    for what, count, each in gathers:
        if not holds_for_all(count <= 0):
            gathered = term.leaf(
                f"{kind}/launch/{what}", count, "1", term.TRUE, "gathered by themselves, in all passes"
            )
            rate = clock.rate(f"{kind}/launch/{what}/each", each, SECOND, STACK)
            parts.append(term.multiply(f"{kind}/launch/{what}/seconds", gathered, rate))
    return term.add(f"{kind}/launch", *parts)


def experts_launched(clock: Clock, kind: str, operations: Sequence[Operation], counted: Launches) -> Term:
    """Return the seconds that the device waits for the host, which reads back the number of tokens of each expert and
    then launches the kernels of each: forward, backward, and recomputation."""
    layout = clock.layout
    found = [one.experts / layout.ep for op in operations if (one := op.routed()) is not None]
    if not found:
        return zero(f"{kind}/host/experts")
    local = term.leaf(f"{kind}/host/experts/local", where(layout.looped > 0, 0, sum(found)), "1", term.TRUE, "on a GPU")
    each = clock.rate(f"{kind}/host/experts/each", clock.rates.host_expert, SECOND, STACK)
    share = term.leaf(f"{kind}/host/experts/passes", counted.own, "1", term.TRUE, "counted operations")
    return term.multiply(f"{kind}/host/experts", local, each, share)


def by_group(
    own: LayerClock, last: Term | None, accumulation: Term, parts: Mapping[str, Sequence[Term]]
) -> dict[str, Term]:
    """Return the seconds by group without the host's: forward, backward, and recomputation, which layers that no
    gradient reaches do not have. parts: those of parts of the layer that run again."""
    clock, kind = own.clock, own.kind
    shares = clock.layout if own.learns else replace(clock.layout, **dict.fromkeys(RECOMPUTED, 0))
    every = size("layers_recomputed", shares.layers_recomputed)
    experts, products = (size(one, getattr(shares, one)) for one in ("experts_recomputed", "products_recomputed"))
    more = {
        "attention": ("core_recomputed", size("attention_recomputed", shares.attention_recomputed)),
        "matmul": ("products_recomputed", products),
    }
    routed: dict[str, Term] = {}
    if own.routed and not holds_for_all(shares.experts_recomputed == 0):
        routed = {"matmul": term.subtract(f"{kind}/experts/left", experts, products), "elementwise": experts}
    groups: dict[str, Term] = {}
    for group in GROUPS[:-1]:
        name = f"{kind}/{group}"
        if group == "accumulation":
            groups[group] = term.add(name, accumulation)
            continue
        forward = total(f"{name}/forward", own.forward[group])
        seconds = [forward, total(f"{name}/backward", own.backward[group])]
        seconds.append(term.multiply(f"{name}/recomputed", every, forward))
        if parts[group]:
            seconds.append(total(f"{name}/parts_recomputed", parts[group]))
        if group in more:
            what, share = more[group]
            seconds.append(term.multiply(f"{name}/{what}", share, forward))
        if group in routed:
            every_expert = total(f"{name}/experts", (one[group] for one in own.routed))
            seconds.append(term.multiply(f"{name}/experts_recomputed", routed[group], every_expert))
        if group == "matmul" and last is not None:
            skipped = clock.rate("stops_early", clock.rates.stops_early, source="checkpoint stops early")
            early = term.multiply(f"{name}/skipped", every, skipped, last)
            groups[group] = term.subtract(name, term.add(f"{name}/all", *seconds), early)
        else:
            groups[group] = term.add(name, *seconds)
    return groups


def host_time(kind: str, groups: dict[str, Term], launch: Term) -> tuple[Term, Term]:
    """Return the seconds that the device waits for the host, which launches a layer's kernels in `launch` seconds; and
    those that the host has to spare while the device works."""
    busy = term.add(f"{kind}/device", *groups.values())
    longer = term.largest(f"{kind}/longer", busy, launch)
    waited = term.subtract(f"{kind}/host/launches", longer, busy)
    return waited, term.subtract(f"{kind}/host/spare", longer, launch)


def residual_width(operations: Sequence[Operation]) -> Number:
    """Return the elements per token of the residual stream: the output of the last row-parallel layer or sum."""
    return next((width for op in reversed(operations) if (width := op.residual()) is not None), 0)
