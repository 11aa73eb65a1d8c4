"""FLOPs of one matmul, forward and backward."""

from __future__ import annotations

from napkin.operations.work import Gemm
from napkin.term import GIVEN, Term, constant, leaf, multiply

MULTIPLY_ADD = "a multiply-add is 2 FLOP"
BACKWARD = "backward makes two products of the forward's size: one for the input's gradient, one for the weight's"


def product_term(name: str, product: Gemm, under: str = "") -> Term:
    """Return the 2·batch·m·k·n FLOP of a matmul. under: prefix of the names of its sizes."""
    factors = [constant("2", 2, "FLOP", MULTIPLY_ADD)]
    batch = product.batch
    if not isinstance(batch, int) or batch != 1:
        factors.append(leaf(f"{under}batch", batch, "1", GIVEN))
    sizes = (("m", product.m), ("k", product.k), ("n", product.n))
    return multiply(name, *factors, *(leaf(f"{under}{axis}", size, "1", GIVEN) for axis, size in sizes))
