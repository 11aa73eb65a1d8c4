"""Model and hardware FLOPs utilization of a measured rate.

    MFU = tokens/s/GPU · FLOP/token / peak          HFU = MFU · (1 + recomputed FLOPs / FLOPs of a step)
Recomputation counts towards HFU, never MFU. The peak is the datasheet's dense one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from napkin.counting import flops
from napkin.counting.flops import Works
from napkin.elementwise import Number
from napkin.errors import NapkinError
from napkin.operations.base import Operation
from napkin.operations.model import Layer, Model
from napkin.operations.recomputed_parts import parts_of
from napkin.options.training import CORE_ATTENTION
from napkin.term import GIVEN, Term, add, constant, divide, leaf, multiply, subtract
from napkin.training.order import order_of
from napkin.training.recomputation import OPERATIONS, SECOND_LINEARS, Recompute

RARE, GOOD, FAIR, BAD = 0.70, 0.40, 0.23, 0.05
"""MFU (palm) of published training steps on accelerators at their printed clock, with equal weight for each source: 1 %
reach RARE, 50 % GOOD, 90 % FAIR.
Below BAD, a threshold from a lecture, something is wrong (Stanford CS336, lecture 2)."""
VERDICTS = ("good", "fair", "poor", "bad", "impossible")
PALM = "Chowdhery et al. 2022, arXiv 2204.02311, section 4.1"


UNMASKED = "MFU above 1: it counts attention's full square, of which kernels skip what masks leave out"
"""Why an MFU may exceed 1 below the hardware's peak."""


def judged(used: float, excess: float = 1.0, seen: float = 1.0) -> float:
    """Return the MFU that is compared with published steps, whose attention has no windows. excess: how many times the
    FLOPs that masks allow it counts, by which one above 1 is divided; seen: the share of its FLOPs in windows."""
    return used * seen if used * seen <= 1 or used > excess else used / excess


def verdict_of(used: float, excess: float = 1.0, seen: float = 1.0) -> str:
    """Return the verdict on an MFU, relative to published training steps; above 1 is impossible. The arguments are
    those of `judged`."""
    if used > excess:
        return "impossible"
    used = judged(used, excess, seen)
    return "good" if used >= GOOD else "fair" if used >= FAIR else "poor" if used > BAD else "bad"


def is_rare(used: float, verdict: str | None) -> bool:
    """Return whether an MFU is possible but so high that its inputs are in doubt."""
    return verdict == VERDICTS[0] and used > RARE


def achieved(name: str, rate: Term, per_token: Term) -> Term:
    """Return the FLOP/s of one GPU: tokens/s/GPU × FLOP/token."""
    return multiply(f"flops_per_second/{name}", rate, per_token)


def mfu(name: str, done: Term, peak: Term) -> Term:
    """Return the MFU: achieved FLOP/s divided by the dense peak."""
    return divide(f"mfu/{name}", done, peak, source=PALM)


def mfu_of_matmul(done: Term, time: Term, peak: Term) -> tuple[Term, Term]:
    """Return (MFU, FLOP/s) of a matmul of `done` FLOP that took `time`."""
    rate = divide("rate", done, time)
    return divide("mfu", rate, peak), rate


def hfu(name: str, model_utilization: Term, repeated: Term) -> Term:
    """Return HFU: MFU · (1 + the recomputed share)."""
    return multiply(f"hfu/{name}", model_utilization, repeated, source=PALM)


def repeated(model: Model, run: Model, over: Works, recompute: Recompute, others: Sequence[Term] = ()) -> Term:
    """Return 1 + recomputed FLOPs / FLOPs of a step (forward and backward); run: the model as it runs with this
    recomputation, which lets gradients pass through frozen layers; others: FLOPs of passes without gradients."""
    one = constant("1", 1)
    if recompute.kind == "none":
        return constant("no_recomputation", 1)
    step = flops.passes("flops/step", model, over)
    again = recomputed(run, over, recompute)
    if run != model:
        again = add("flops/again", again, subtract("flops/passed_on", flops.passes("flops/run", run, over), step))
    whole = add("flops/step/with_others", step, *others) if others else step
    return add("with_recomputation", one, divide("recomputed_share", again, whole))


def repeated_of_parameters(recompute: Recompute) -> Term:
    """Return 1 + the recomputed share if only a number of parameters is known: one forward of the three passes."""
    if recompute.kind == "none":
        return constant("no_recomputation", 1)
    if recompute.kind not in ("full", "group"):
        raise NapkinError(f"--recompute {recompute.kind} needs a model", "give a MODEL instead of --params")
    return add("with_recomputation", constant("1", 1), divide("recomputed_share", constant("1", 1), constant("3", 3)))


def recomputed(model: Model, over: Works, recompute: Recompute) -> Term:
    """Return the recomputed FLOPs of the backward pass: the attention core and other parts of blocks, every block, each
    K-th block, or all except attention and every second linear layer. Layers that no gradient reaches are not
    recomputed."""
    path = "flops/recomputed"
    if recompute.kind == "selective":
        core = CORE_ATTENTION in recompute.modules
        again = [op for stack in model.stacks for layer in stack.layers for op in _of_parts(layer, recompute.apart)]
        parts = _learning(model, over, lambda op: (core and flops.is_attention(op)) or op in again)
    elif recompute.kind == OPERATIONS:
        layers = [op for stack in model.stacks for layer in stack.layers for op in layer.operations]
        linears = _learning(model, over, lambda op: op in layers and op.linear() is not None)
        second = constant("every_second", SECOND_LINEARS, source="of the linear layers, one after the other")
        parts = [multiply(f"{one.name}/again", second, one) for one in linears]
        parts += _learning(model, over, lambda op: op in layers and op.linear() is None and not flops.is_attention(op))
    else:
        parts = [
            multiply(f"{path}/{stack.name}/{kind}", leaf(f"{kind}_layers_recomputed", count, "1", GIVEN), block)
            for stack in model.stacks
            for kind, count, block in _blocks(model, stack.name, over, recompute)
        ]
    if not parts:
        return constant(path, 0, "FLOP")
    return parts[0].renamed(path) if len(parts) == 1 else add(path, *parts)


def _of_parts(layer: Layer, modules: tuple[str, ...]) -> list[Operation]:
    """Return the operations of a layer of which all runs again, and not the activation within them alone."""
    names = {name for part in parts_of(layer.operations, modules) if not part.within for name in part.operations}
    return [op for op in layer.operations if op.name in names]


def _learning(model: Model, over: Works, only: Callable[[Operation], bool]) -> list[Term]:
    """Return the forward FLOPs, by name, of operations of layers that a gradient reaches."""
    return list(flops.by_operation(model, over, only=lambda op: op.learning.runs and only(op)).values())


def _blocks(model: Model, name: str, over: Works, recompute: Recompute) -> list[tuple[str, Number, Term]]:
    """Yield (layer type, number recomputed, FLOPs of one) for a stack's layers; groups are recomputed as a whole."""
    stack = next(stack for stack in model.stacks if stack.name == name)
    order = order_of(stack.numbered, recompute)
    again: list[Number] = [0] * len(stack.layers)
    for variant, count in zip(order.variants, order.before(order.depth), strict=True):
        again[variant.kind] += count * variant.checkpointed
    return [
        (kind, count, flops.layer_forward(f"flops/layer/{name}/{kind}", layer, over[name]))
        for count, (kind, _, layer) in zip(again, stack.kinds(), strict=True)
        if any(op.learning.runs for op in layer.operations)
    ]
