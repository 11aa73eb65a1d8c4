"""Memory of training a stack of linear layers: parameters, gradients, optimizer states, saved activations."""

from __future__ import annotations

from napkin import formats
from napkin.counting import linear_stack as linear
from napkin.record import record
from napkin.term import TRUE, Term, add, ceiling, constant, divide, leaf, multiply
from napkin.training import optimizer_states
from napkin.training.optimizer import SCALAR, Optimizer
from napkin.training.precision import Precision


@record
class LinearMemory:
    """Bytes of a stack: the total and its parts, and, not included in it, the step counters and the saved input (the
    data)."""

    total: Term
    parts: tuple[Term, ...]
    counters: Term
    saved_input: Term
    params: Term


def linear_memory(
    runs: tuple[linear.EqualLayers, ...], batch: int, policy: Precision, optimizer: Optimizer
) -> LinearMemory:
    """Return the bytes of training linear layers on `batch` examples, one row each: parameters, gradients, states and
    what autograd saves. runs: layers one after the other, equal ones together."""
    params = leaf("params/total", linear.weights(runs), "param", TRUE)
    parts = [_sized("memory/parameters", params, policy.param), _sized("memory/gradients", params, policy.grad)]
    if policy.master is not None:
        parts.append(_sized("memory/master", params, policy.master))
    states, counters = _states(optimizer, runs, policy)
    data, kept = linear.saved(runs, batch)
    saved = leaf("saved_numbers", kept, "1", TRUE, "what the layers after the first read")
    parts += [states, _sized("memory/activations", saved, policy.compute)]
    given = leaf("input_numbers", data, "1", TRUE, "what the first layer reads")
    saved_input = _sized("memory/saved_input", given, policy.compute)
    return LinearMemory(add("memory/total", *parts), tuple(parts), counters, saved_input, params)


def _sized(name: str, count: Term, dtype: str) -> Term:
    """Return count × bytes of the number format, in whole bytes."""
    each = formats.element_bytes(formats.find(dtype), f"bytes_of_{dtype}")
    if count.unit != "1":
        each = divide(each.name, each, constant("parameter", 1, "param"))
    size = multiply(f"{name}/exact", count, each)
    return multiply(name, count, each) if isinstance(size.value, int) else ceiling(name, size)


def _states(optimizer: Optimizer, runs: tuple[linear.EqualLayers, ...], policy: Precision) -> tuple[Term, Term]:
    """Return (memory/optimizer without counters, memory/step_counters), summed over the tensors."""
    width = formats.element_bytes(formats.find(policy.state), f"bytes_of_{policy.state}")
    by_state: dict[str, list[Term]] = {}
    counters: list[Term] = []
    for run, shape in ((one, weight.shape) for one in runs for weight in one.one.weights()):
        scalar = {s.name for s in optimizer.kept(shape) if s.layout == SCALAR}
        for term in optimizer_states.terms(optimizer, shape, width, run.name):
            state = term.name.rpartition("/")[2]
            if state in scalar:
                counters.append(run.all(term))
            elif state == "code_books":
                by_state["code_books"] = [term]  # one set for all tensors
            else:
                by_state.setdefault(state, []).append(run.all(term))
    total = [add(f"memory/optimizer/{state}", *terms) for state, terms in by_state.items()]
    none = leaf("no_state", 0, "byte", TRUE, optimizer.source)
    return add("memory/optimizer", *(total or [none])), add("memory/step_counters", *(counters or [none]))
