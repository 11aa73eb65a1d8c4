"""How weights of a stored format are expanded to 16 bits before a matmul."""

from __future__ import annotations

from napkin import term
from napkin.elementwise import holds_for_all
from napkin.record import record
from napkin.term import Term
from napkin.timing.clock import BYTE, WIDE_BYTES, Clock

UNPACKED = term.constant(
    "bytes_of_unpacking",
    16,
    BYTE,
    "AutoGPTQ auto_gptq/nn_modules/qlinear/qlinear_cuda_old.py at 9f7d370, lines 311 to 348: 32 bits written by the "
    "shift; read and cast to 8; masked; less the zero point; times the scale, in 16",
)
"""Bytes per 4-bit weight that elementwise operations move in addition to its stored bytes."""
BY_TABLE = term.leaf(
    "nf4/table",
    90,
    "FLOP",
    term.SEEN,
    "bitsandbytes dequantize_4bit on an A100, its values in a table: 1.241 ms for 16,384 × 16,384 weights, of 19.5 "
    "TFLOP/s (a report on InfiniTensor's Learning-CUDA, NF4)",
)
"""Work of the vector units for each NF4 weight that bitsandbytes expands, in what they could multiply and add."""
BY_BRANCHES = term.leaf(
    "nf4/branches",
    151,
    "FLOP",
    term.SEEN,
    "bitsandbytes before 0.48: 15 nested conditions, both sides of which a warp takes; 1.36 to 2.07 times as long on "
    "A100 and H100 (bitsandbytes pull request 1747; kernels.cu, dDequantizeNF4), 1.68 in the middle",
)
"""The same before values were looked up."""


@record
class Expansion:
    """How a stored format is expanded to 16-bit weights.

    written    bytes moved per weight in addition to the stored ones     decoded  whether its values are looked up
    again      whether the backward pass expands the weights again instead of reading saved ones"""

    written: Term = WIDE_BYTES
    decoded: bool = False
    again: bool = True


ONE_KERNEL = Expansion()
EXPANSIONS = {
    "nf4": Expansion(decoded=True),
    "nf4-dq": Expansion(decoded=True),
    "int4": Expansion(UNPACKED, again=False),
}
"""Stored format → its expansion; others use one kernel that reads the stored bytes and writes 16 bits."""


def decoded(clock: Clock, name: str, elements: Term, moved: Term) -> Term:
    """Return the seconds of a kernel that finds the value of each weight: those of its bytes, or of its vector units
    where these take longer; of the bytes alone on accelerators whose fp32 rate is not known. elements: weights;
    moved: seconds of their bytes, stored and found."""
    rate = clock.rates.peak_full
    if not holds_for_all(rate > 0):
        return moved.renamed(name)
    branched = term.leaf("nf4/old", clock.layout.branched, "1", term.GIVEN, "1 before bitsandbytes 0.48")
    each = term.choose(f"{name}/each", branched, BY_BRANCHES, BY_TABLE)
    units = term.leaf("peak/fp32", rate, "FLOP/s", term.TRUE, "datasheet, vector units")
    found = term.divide(f"{name}/found", term.multiply(f"{name}/work", each, elements), units)
    return term.smooth_largest(name, moved, found)
