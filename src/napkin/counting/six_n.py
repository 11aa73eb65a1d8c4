"""The rule of thumb that training costs 6 FLOP per parameter and token."""

from __future__ import annotations

from napkin.term import Term, constant, divide, multiply

SIX = "Kaplan et al. 2020, arXiv:2001.08361, section 2.1: 2 FLOP forward and 4 backward per parameter and token"


def six() -> Term:
    """Return the FLOP of one parameter and token: forward 2, backward 4."""
    return constant("6", 6, "FLOP/param/token", SIX)


def six_n(params: Term) -> Term:
    """Return the FLOP per token by the rule of thumb 6·N: forward 2·N, backward 4·N."""
    return multiply("flops/per_token", six(), params)


def against_count(flops: Term, per_token: Term, tokens: Term) -> tuple[Term, Term]:
    """Return the counted FLOPs of an entire run, and the ratio of a convention's `flops` to them."""
    exact = multiply("flops/exact", per_token, tokens)
    return exact, divide("flops/ratio", flops, exact)
