"""Screen of `memory linear`: the bytes that training a few linear layers keeps."""

from __future__ import annotations

from napkin.footprint.linear_memory import LinearMemory
from napkin.render.figures import size
from napkin.render.screen import Bar, Next, Screen, quantities
from napkin.training.optimizer import Optimizer
from napkin.training.precision import Precision
from napkin.units import human

PARTS = {"master": "master weights"}


def memory(title: str, found: LinearMemory, optimizer: Optimizer, policy: Precision) -> Screen:
    """Return the screen of a stack of linear layers."""
    total = float(found.total.value)
    says = {
        "parameters": policy.param,
        "gradients": policy.grad,
        "master": f"{policy.master} copies of the weights",
        "optimizer": f"{policy.state}; states of {optimizer.name}",
        "activations": f"{policy.compute}; inputs of the layers after the first",
    }
    rows: list[tuple[str | Bar, ...]] = []
    for term in found.parts:
        name = term.name.removeprefix("memory/")
        if term.value:
            shown = size(term.value, found.total.value)
            rows.append((PARTS.get(name, name), shown, Bar(float(term.value) / total), says.get(name, "")))
    apart = [f"the data itself ({size(found.saved_input.value)})"]
    if found.counters.value:
        apart.append(f"step counters ({size(found.counters.value)})")
    head = [size(found.total.value), human(found.params.value, "param")]
    return Screen(
        [title], head, "", quantities(rows), [f"not counted: {', '.join(apart)}"], next=Next({"explain": True})
    )
