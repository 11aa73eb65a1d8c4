"""Matmuls and decompositions of optimizers that treat a weight as a matrix, for one step on one matrix.

With m ≤ n the sides of a matrix, a and b those of a block of it, r the rank of a projection:
    Muon      5 iterations of (m×n)(n×m), (m×m)(m×m), (m×m)(m×n), in bf16 (torch/optim/_muon.py)
    Shampoo   Gram matrices (a×b)(b×a) and (b×a)(a×b), the block between their roots (a×a)(a×b) and (a×b)(b×b); each
              root is an eigendecomposition, recomputed every ten steps
    SOAP      the Gram matrices; gradient and momentum into their eigenvectors' basis and the update back, three times
              both sides; each basis is recomputed by a product and a QR decomposition every ten steps
    GaLore    the gradient down to r columns or rows and the update back; a singular value decomposition every 200 steps
    APOLLO    the gradient down to r by random numbers
All except Muon's are in fp32. A decomposition is counted in cubes: m³ of an m×m matrix, m²·n of an m×n one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from napkin.elementwise import Number, maximum, minimum
from napkin.record import record

EIGENVECTORS, ORTHOGONAL, SINGULAR = "eigendecomposition", "QR decomposition", "singular value decomposition"
ITERATIONS = 5
"""Newton and Schulz's (torch.optim.Muon, ns_steps)."""
RENEWED = 10
"""Steps between two decompositions in the published comparison of Shampoo and SOAP (KellerJordan/modded-nanogpt,
records/102924_Optimizers) and by SOAP's default (precondition_frequency)."""
PROJECTED_FOR = 200
"""Steps for which GaLore keeps a projection (update_proj_gap)."""


@record
class Product:
    """`times` matmuls (m×k)(k×n) per step; full: in fp32, else in bf16."""

    m: Number
    k: Number
    n: Number
    times: Number = 1
    full: bool = True


@record
class MatrixWork:
    """The work of a step on one matrix: matmuls, and the average cubes of each kind of decomposition."""

    products: tuple[Product, ...] = ()
    cubes: tuple[tuple[str, Number], ...] = ()


Works = Callable[[Number, Number], MatrixWork]
"""(rows, columns) of a matrix → the work of a step."""


def orthogonalizing(rows: Number, columns: Number) -> MatrixWork:
    """Muon: Newton and Schulz's iteration."""
    m, n = minimum(rows, columns), maximum(rows, columns)
    each = ((m, n, m), (m, m, m), (m, m, n))
    return MatrixWork(tuple(Product(*one, times=ITERATIONS, full=False) for one in each))


def pieces(size: Number, most: int) -> list[tuple[Number, Number]]:
    """Return (count, length) of the blocks of a side that is cut into blocks of `most`."""
    whole = size // most
    return [(count, long) for count, long in ((whole, most), (1, size - whole * most)) if int(count) and int(long)]


def blocks(rows: Number, columns: Number, most: int) -> list[tuple[Number, Number, Number]]:
    """Return (count, rows, columns) of the blocks of a matrix with sides of at most `most`."""
    return [(i * j, a, b) for i, a in pieces(int(rows), most) for j, b in pieces(int(columns), most)]


def preconditioning(most: int) -> Works:
    """Shampoo on blocks of at most `most` a side."""

    def work(rows: Number, columns: Number) -> MatrixWork:
        cut = blocks(rows, columns, most)
        products = [
            Product(*one, times=count) for count, a, b in cut for one in ((a, b, a), (b, a, b), (a, a, b), (a, b, b))
        ]
        cubes = sum(count * (a**3 + b**3) for count, a, b in cut) / RENEWED
        return MatrixWork(tuple(products), ((EIGENVECTORS, cubes),))

    return work


def rotating(most: int) -> Works:
    """SOAP, which leaves sides longer than `most` as they are."""

    def work(rows: Number, columns: Number) -> MatrixWork:
        sides = list(_sides(rows, columns, most))
        products = [Product(side, other, side) for side, other in sides]
        products += [Product(side, side, other, times=3) for side, other in sides]
        return MatrixWork(tuple(products), ((ORTHOGONAL, sum(side**3 for side, _ in sides) / RENEWED),))

    return work


def _sides(rows: Number, columns: Number, most: int) -> Iterator[tuple[Number, Number]]:
    """Yield each side that is not too long, with the other."""
    yield from ((side, other) for side, other in ((rows, columns), (columns, rows)) if int(side) <= most)


def projecting(rank: int, decomposed: bool) -> Works:
    """GaLore, and APOLLO, whose projection is random and which scales the gradient itself."""

    def work(rows: Number, columns: Number) -> MatrixWork:
        m, n = minimum(rows, columns), maximum(rows, columns)
        r = minimum(rank, m)
        if not decomposed:
            return MatrixWork((Product(n, m, r),))
        return MatrixWork((Product(n, m, r), Product(n, r, m)), ((SINGULAR, m * m * n / PROJECTED_FOR),))

    return work


def sums_of_squares(shape: Sequence[int], most: int, cut: bool) -> int:
    """Return the elements of the Gram matrices of a tensor's last two sides. most: the longest side with one; longer
    sides are cut into blocks, or have none."""
    rows, columns = shape[-2:]
    copies = 1
    for size in shape[:-2]:
        copies *= size
    if not cut:
        return copies * sum(int(side) ** 2 for side, _ in _sides(rows, columns, most))
    return copies * sum(int(count * (a * a + b * b)) for count, a, b in blocks(rows, columns, most))
