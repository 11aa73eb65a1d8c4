"""Adapters that rotate the inputs of a layer by orthogonal blocks: OFT and BOFT, as peft 0.21 runs them
(peft/tuners/NAME/layer.py)."""

from __future__ import annotations

from collections.abc import Iterator

from napkin.autograd.tensors import Tensor
from napkin.elementwise import Number
from napkin.operations.adapters.kind import AdaptedLayer, AdapterKind, AdapterProduct, Base, Math


class OFT(AdapterKind):
    """y = W·(R·x), R of orthogonal blocks (Qiu et al. 2023, arXiv:2306.07280): (I + Q)(I − Q)⁻¹ of skew-symmetric Q as
    the first five terms of its series, 1 + 2Q + 2Q² + 2Q³ + Q⁴."""

    name, title = "oft", "OFT"
    sized, measure, usual = "adapter-block", "block", 32

    @staticmethod
    def block(at: AdaptedLayer) -> int:
        """Return the width of a block: the nearest divisor of the input's, the smaller of two
        (tuners/oft/layer.py, adjust_oft_parameters)."""
        return nearest_divisor(at.d_in, at.size)

    def weights(self, at: AdaptedLayer) -> Iterator[tuple[str, tuple[int, ...]]]:
        block = self.block(at)
        yield "R", (at.d_in // block, block * (block - 1) // 2)

    def lower(self, math: Math, x: Tensor, base: Base, at: AdaptedLayer) -> Tensor:
        tape, block = math.tape, self.block(at)
        count = at.d_in * block
        skew = math.made("skew", count, "Q", self.count(at))
        power = skew
        for name in ("Q²", "Q³", "Q⁴"):
            power = math.matmul(power, skew, count, name)
        rotation = tape.add(tape.new(count, math.stored, "series", no_grad=True), power)
        turned = math.matmul(tape.cast(x, math.stored), rotation, x.count, "rotated")
        return base(tape.cast(turned, math.stream))

    def products(self, at: AdaptedLayer) -> Iterator[AdapterProduct]:
        block = self.block(at)
        blocks = at.d_in // block
        yield AdapterProduct("R", 0, block, block, blocks, inputs=-1)
        for power in ("Q2", "Q3", "Q4"):
            yield AdapterProduct(power, block, block, block, blocks)

    def traffic(self, at: AdaptedLayer) -> tuple[Number, Number]:
        return 4 * at.d_in, 4 * at.d_in


class BOFT(AdapterKind):
    """y = s∘(W·(R·x)): OFT of blocks as wide as `size` as one full matrix, moved by a permutation that each layer holds
    as a matrix in fp32 (Liu et al. 2023, arXiv:2311.06243; one butterfly factor, as without its CUDA extension). Of a
    model that was on the GPU before it got adapters, these matrices stay on the host, and are copied in each call."""

    name, title = "boft", "BOFT"
    sized, measure, usual = "adapter-block", "block", 4

    def weights(self, at: AdaptedLayer) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield "R", (at.d_in // at.size, at.size, at.size)
        yield "s", (at.d_out, 1)

    def buffer(self, at: AdaptedLayer) -> int:
        return at.d_in * at.d_in

    def lower(self, math: Math, x: Tensor, base: Base, at: AdaptedLayer) -> Tensor:
        tape, square, small, dtype = math.tape, at.d_in * at.d_in, at.d_in * at.size, math.in_stream
        blocks = math.made("cayley", small, "blocks", small, "fp32")
        solved = [tape.new(small, "fp32", f"solve {part}") for part in ("factors", "blocks", "result")]
        tape.keep(*solved, tape.new(at.d_in, "int32", "pivots"))
        placed = tape.record("block_diag", (blocks,), tape.new(square, "fp32", "blocks in place"))
        turned = tape.cast(placed, math.stream)
        moves = tape.new(square, math.stream, "permutation", no_grad=True)
        for fixed in (moves, moves, tape.new(square, math.stream, "identity", no_grad=True)):
            kept = tape.cast(fixed, dtype)
            turned = tape.record("matmul", (turned,), tape.new(square, dtype, "rotation"), (kept,))
        out = base(math.matmul(x, tape.cast(turned, math.stream), x.count, "rotated", dtype))
        ones = tape.new(at.d_out, math.stream, "ones")
        scaling = tape.multiply(math.vector(at.d_out), ones, "scaling")
        return tape.cast(tape.multiply(out, scaling), out.dtype)

    def products(self, at: AdaptedLayer) -> Iterator[AdapterProduct]:
        yield AdapterProduct("R", 0, at.d_in, at.d_in, inputs=-1)
        for name in ("P", "PT", "I"):
            yield AdapterProduct(name, at.d_in, at.d_in, at.d_in, weights=0)

    def traffic(self, at: AdaptedLayer) -> tuple[Number, Number]:
        return 4 * at.d_out, 8 * at.d_out

    def moved(self, at: AdaptedLayer) -> tuple[Number, Number]:
        """Forward the blocks in place, their cast, the permutation's cast and the identity: in fp32 and 16 bits."""
        return 18 * at.d_in * at.d_in, 6 * at.d_in * at.d_in


def nearest_divisor(width: int, asked: int) -> int:
    """Return the divisor of a width that is nearest to `asked`, the smaller of two as near."""
    divisors = (one for one in range(1, width + 1) if width % one == 0)
    return min(divisors, key=lambda one: (abs(one - asked), one))
