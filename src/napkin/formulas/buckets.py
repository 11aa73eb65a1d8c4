"""A rank's memory as a tree of terms: the buckets, the moments that they add up to, and what a card reports."""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.formulas.memory import BUCKETS, Moment, Rank, Step
from napkin.formulas.tape import sized
from napkin.term import TRUE, Term, add, constant, divide, largest, leaf, multiply


def tree(step: Step, rank: Rank, source: str) -> dict[str, Term]:
    """Terms by path. `source` says whose code the activations are those of."""
    precision, stage = step.setup.precision, rank.stage
    root = "memory"
    terms: dict[str, Term] = {}

    def put(term: Term) -> Term:
        terms[term.name] = term
        return term

    width = leaf("bytes_of_a_parameter", sized(1, precision.param), "byte/param", TRUE, f"{precision.param}")
    grad = leaf("bytes_of_a_gradient", sized(1, precision.grad), "byte/param", TRUE, f"{precision.grad}")
    put(multiply(f"{root}/parameters", _count("parameters_held", rank.parameters, width), width))
    put(multiply(f"{root}/gradients", _count("gradients_held", rank.gradients, grad), grad))
    states = [put(leaf(f"{root}/optimizer/{name}", size, "byte", TRUE)) for name, size in rank.states]
    if states:
        put(add(f"{root}/optimizer", *states, source=step.setup.optimizer.source))
    else:
        put(leaf(f"{root}/optimizer", 0, "byte", TRUE, step.setup.optimizer.source))
    saved = put(leaf(f"{root}/activations/saved", rank.saved, "byte", TRUE, source))
    flight = constant("micro_batches_in_flight", stage.in_flight)
    put(multiply(f"{root}/activations", saved, flight))
    put(leaf(f"{root}/weight_casts", rank.casts, "byte", TRUE, "torch.autocast keeps a copy of each weight it cast"))
    moments = []
    worst = max(rank.moments, key=lambda m: m.live)
    for moment in rank.moments:
        parts = [
            put(leaf(f"{root}/at/{moment.name}/{bucket}", getattr(moment, bucket), "byte", TRUE)) for bucket in BUCKETS
        ]
        moments.append(put(add(f"{root}/at/{moment.name}", *parts)))
    put(largest(f"{root}/live", *moments))
    put(leaf(f"{root}/temporaries", worst.temporaries, "byte", TRUE, f"at the peak, in the {worst.name}"))
    return terms


def _count(name: str, size: Number, width: Term) -> Term:
    return divide(name, leaf(f"{name}/bytes", size, "byte", TRUE), width)


def peak_of(rank: Rank) -> Moment:
    """The moment of the largest live bytes."""
    return max(rank.moments, key=lambda m: m.live)
