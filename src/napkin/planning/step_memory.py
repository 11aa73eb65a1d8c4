"""The memory of one step as published quantities: its terms, the activation budget, the saved tensors."""

from __future__ import annotations

from napkin import elementwise
from napkin.footprint import buckets
from napkin.footprint.prepared import PreparedStep
from napkin.planning import verdicts
from napkin.planning.verdicts import Fit
from napkin.record import record, replace
from napkin.term import Term, subtract


@record
class SavedTensor:
    """A tensor that autograd saves for the backward pass: `size` bytes in each of `times` layers of a section."""

    section: str
    operation: str
    tensor: str
    size: int
    times: int


def terms_of(found: Fit, source: str) -> dict[str, Term]:
    """Return every published quantity by its path; `source`: the implementation that the activations belong to."""
    terms = buckets.tree(found.step, found.rank, source)
    for term in (found.reported.allocated, found.reported.reserved, found.reported.used, found.reported.overhead):
        terms[term.name] = term
    terms["memory/total"] = found.reported.used.renamed("memory/total")
    return terms


def activation_budget(capacity: Term, terms: dict[str, Term]) -> Term:
    """Return capacity − parameters − gradients − optimizer − overhead, the bytes available to activations."""
    left = capacity
    taken = [terms[f"memory/{name}"] for name in ("parameters", "gradients", "optimizer", "overhead")]
    for number, term in enumerate(taken, 1):
        left = subtract("memory/activation_budget" if number == len(taken) else f"capacity_less_{number}", left, term)
    return left


def with_wider_ends(found: Fit, times: float, capacity: int | None) -> Fit:
    """Return the fit with its intervals widened by the factor `times`, rounded outward."""
    if times == 1:
        return found
    ends = {}
    for path, (low, high) in found.reported.ends.items():
        middle = getattr(found.reported, path.removeprefix("memory/")).value
        ends[path] = (
            elementwise.floor(middle * (low / middle) ** times),
            elementwise.ceiling(middle * (high / middle) ** times),
        )
    reported = replace(found.reported, ends=ends)
    steps = verdicts.verdict(reported, capacity)
    return replace(found, reported=reported, verdict=verdicts.worse(steps, found.loads), steps=steps)


def kept_tensors(step: PreparedStep) -> list[SavedTensor]:
    """Return every tensor that autograd saves; a storage that several sections share is listed once."""
    run = step.run
    sections = [("outside", 1, run.before), *((p.name, n, p) for n, p in run.layers), ("outside", 1, run.after)]
    listed: set[int] = set()
    found = []
    for name, layers, section in sections:
        for storage in section.kept:
            if storage.shared and id(storage) in listed:
                continue
            listed.add(id(storage))
            operation, _, tensor = storage.label.partition("/")
            times = 1 if storage.shared else layers
            found.append(SavedTensor(name, operation, tensor, int(storage.saved), times))
    return found
