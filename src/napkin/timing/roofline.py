"""The roofline: an operation takes at least FLOP / peak to compute and bytes / bandwidth to move data.

I = FLOP / byte moved is its arithmetic intensity, R = peak / bandwidth the accelerator's ridge (Williams, Waterman and
Patterson 2009, doi:10.1145/1498765.1498785). I < R: memory binds, else compute. With perfect overlap the time is the
larger of the two; without overlap, their sum; the real time is in between. Every operand is read once and every result
written once: a cache that holds nothing between operations and everything inside one."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.counting.flops import over_own
from napkin.operations.model import Model
from napkin.operations.work import Gemm, Work
from napkin.record import record
from napkin.term import (
    TRUE,
    Term,
    add,
    ceiling,
    constant,
    divide,
    largest,
    leaf,
    multiply,
    smallest,
    subtract,
)

SOURCE = "Williams, Waterman and Patterson 2009, doi:10.1145/1498765.1498785"
MEMORY, COMPUTE = "memory", "compute"

ELEMENTWISE = {
    "relu": (1, "max(x, 0): one comparison"),
    "gelu": (
        9,
        "0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))): 8 multiplications and additions, tanh counted as 1",
    ),
}
"""FLOP for one element, and how they are counted."""


def elementwise(function: str, n: int, width: Term) -> tuple[Term, Term]:
    """Return (FLOP, bytes) of y = f(x) over n elements of `width` bytes: read once, written once."""
    each, how = ELEMENTWISE[function]
    elements = leaf("elements", n, "1")
    flops = multiply("flops/total", constant(f"flop_per_{function}", each, "FLOP", how), elements)
    return flops, multiply("bytes/total", constant("2", 2, "1", "read x, write y"), elements, width)


def product_terms(product: Gemm, width: Term, out: Term) -> tuple[Term, Term]:
    """Return (FLOP, bytes) of a matmul as terms."""
    m, k, n = (leaf(name, size, "1") for name, size in (("m", product.m), ("k", product.k), ("n", product.n)))
    batch = [leaf("batch", product.batch, "1")] if product.batch != 1 else []
    flops = multiply("flops/total", constant("2", 2, "FLOP", "a multiply-add is 2 FLOP"), *batch, m, k, n)
    parts = (("a", (m, k), width), ("b", (k, n), width), ("c", (m, n), out))
    return flops, add("bytes/total", *(multiply(f"bytes/{name}", *batch, *of, size) for name, of, size in parts))


def ridge(name: str, peak: Term, bandwidth: Term) -> Term:
    """Return R in FLOP/byte, the arithmetic intensity at which compute and memory time are equal."""
    return divide(name, peak, bandwidth, source="arithmetic intensity where both bind")


def bounds(flops: Term, moved: Term, peak: Term, bandwidth: Term) -> dict[str, Term]:
    """Return the intensity, the ridge, both times, their maximum and sum, and the attainable rate."""
    compute = divide("time/compute", flops, peak)
    memory = divide("time/memory", moved, bandwidth)
    intensity = divide("intensity", flops, moved, source=SOURCE)
    return {
        "intensity": intensity,
        "ridge": divide("ridge", peak, bandwidth, source=SOURCE),
        "compute": compute,
        "memory": memory,
        "overlapped": largest("time/overlapped", compute, memory),
        "serial": add("time/serial", compute, memory),
        "rate": smallest("rate/attainable", peak, multiply("rate/memory", intensity, bandwidth)),
    }


def verdict(found: dict[str, Term]) -> str:
    """Return which of the bounds is the larger, in words."""
    return MEMORY if found["memory"].value > found["compute"].value else COMPUTE


def smallest_batch(product: Gemm, width: Term, out: Term, ridge: Term) -> Term | None:
    """Return the fewest rows m for which (m×k)(k×n) is compute bound; None if no number of rows is.

    2·m·k·n ≥ R·(w·(m·k + k·n) + o·m·n)  ⟺  m ≥ R·w·k·n / (2·k·n − R·(w·k + o·n)), w and o bytes of an element."""
    k, n = leaf("k", product.k, "1"), leaf("n", product.n, "1")
    two = constant("2", 2, "FLOP")
    row = add("bytes_of_a_row", multiply("row_in", width, k), multiply("row_out", out, n))
    gain = subtract("gain_of_a_row", multiply("flops_of_a_row", two, k, n), multiply("flops_to_hide_a_row", ridge, row))
    if gain.value <= 0:
        return None
    hide = multiply("flops_to_hide_weights", ridge, width, k, n)
    return ceiling("batch/compute_bound", divide("batch/compute_bound/exact", hide, gain))


def transfer(size: Term, bandwidth: Term, name: str) -> Term:
    """Return the seconds to move bytes over a link or memory at its full rate."""
    return divide(name, size, bandwidth)


def slower(over: Term, memory: Term) -> Term:
    """Return the ratio of the time over a link to the time through the accelerator's own memory."""
    return divide("slower", over, memory)


def attainable(intensity: float, peak: float, bandwidth: float) -> float:
    """Return the FLOP/s that the roof allows at an arithmetic intensity: min(peak, I · bandwidth)."""
    return min(peak, intensity * bandwidth)


# --- a model ---------------------------------------------------------------------------------------------------------

ATTENTION_BYTES = "Dao et al. 2022, arXiv:2205.14135: the kernel reads q, k, v and writes the output, no scores"
EACH_A_KERNEL = "every operation a kernel of its own, as eager torch runs it: operands read once, results written once"


def model_bytes(model: Model, over: Mapping[str, Work], width: Term) -> dict[str, Term]:
    """Return the bytes of one forward pass by the operation's name, over all layers that have it."""
    parts: dict[str, list[Term]] = {}
    for stack in model.stacks:
        prefix = f"{stack.name}/" if len(model.stacks) > 1 else ""
        places = [("", 1, op) for op in stack.before]
        places += [(kind, count, op) for kind, count, layer in stack.kinds() for op in layer.operations]
        places += [("", 1, op) for op in stack.after]
        for kind, count, op in places:
            moved = op.elements_moved(over_own(op, over[stack.name]))
            if not moved:
                continue
            source = ATTENTION_BYTES if op.attention_width() else EACH_A_KERNEL
            name = f"bytes/{prefix}{kind or stack.name}/{op.name}"
            numbers = leaf(f"{name}/numbers", moved, "1", TRUE, source)
            parts.setdefault(prefix + op.name, []).append(
                multiply(name, constant(f"{kind or stack.name}_layers", count), numbers, width)
            )
    return {name: add(f"bytes/operation/{name}", *terms) for name, terms in parts.items()}


def bound_of_all(flops: Mapping[str, Term], moved: Mapping[str, Term], peak: Term, bandwidth: Term) -> dict[str, Term]:
    """Return the bounds of operations that run in sequence: each takes the larger of its compute and memory time."""
    all_flops = add("flops/forward", *flops.values())
    found = bounds(all_flops, add("bytes/forward", *moved.values()), peak, bandwidth)
    each = []
    for name, size in moved.items():
        memory = divide(f"time/memory/{name}", size, bandwidth)
        if name in flops:
            each.append(largest(f"time/operation/{name}", divide(f"time/compute/{name}", flops[name], peak), memory))
        else:
            each.append(memory.renamed(f"time/operation/{name}"))
    found["overlapped"] = add("time/overlapped", *each)
    found["rate"] = divide("rate/attainable", all_flops, found["overlapped"])
    return found


@record
class OperationBound:
    """The bound of an operation over all its layers. `share`: its share of the time of the pass."""

    name: str
    flops: float
    bytes: float
    intensity: float
    time: float
    share: float
    bound: str


def bound_of_each(
    flops: Mapping[str, Term], moved: Mapping[str, Term], found: Mapping[str, Term]
) -> list[OperationBound]:
    """Return each operation's own bound; `found`: the bounds of all of them (`bound_of_all`)."""
    seconds = {term.name.removeprefix("time/operation/"): term for term in found["overlapped"].parts}
    rows = []
    for name, size in moved.items():
        done = flops[name].value if name in flops else 0
        limits = [limit.value for limit in seconds[name].parts] if name in flops else [0.0, seconds[name].value]
        compute, memory = limits
        took = seconds[name].value
        bound = COMPUTE if compute >= memory else MEMORY
        rows.append(
            OperationBound(name, done, size.value, done / size.value, took, took / found["overlapped"].value, bound)
        )
    return rows
