"""Adapters that add a low-rank or Kronecker-factored update, or scale activations: AdaLoRA, VeRA, MiSS, IA3, LoHa and
LoKr, as peft 0.21 runs them (peft/tuners/NAME/layer.py)."""

from __future__ import annotations

from collections.abc import Iterator

from napkin.autograd.tensors import WEIGHT, Tensor, sized
from napkin.elementwise import Number
from napkin.operations.adapters.kind import AdaptedLayer, AdapterKind, AdapterProduct, Base, Math


class AdaLora(AdapterKind):
    """y += B·(A∘E)·dropout(x)/r, with a value E for each rank (Zhang et al. 2023, arXiv:2303.10512). Its allocator's
    three importances of each parameter, which a loop that calls `update_and_allocate` makes, are not counted. Once r is
    moved to the layer's type it requires a gradient (0.21.2): the division by it saves what it divides."""

    name, title = "adalora", "AdaLoRA"
    usual = 12
    drops = True

    def weights(self, at: AdaptedLayer) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield "A", (at.size, at.d_in)
        yield "E", (at.size, 1)
        yield "B", (at.d_out, at.size)

    def lower(self, math: Math, x: Tensor, base: Base, at: AdaptedLayer) -> Tensor:
        out, tape = base(x), math.tape
        valued = math.made("mul", at.size * at.d_in, "A times E", at.size * (at.d_in + 1))
        thin = math.matmul(math.read(x), valued, x.count // at.d_in * at.size, "thin")
        wide = tape.linear(thin, at.size, at.d_out, once=False)
        scaled = tape.scale(wide)
        divided = tape.record("div", (scaled,), tape.new(scaled.count, scaled.dtype, "divided"), (scaled,))
        tape.keep(tape.new(1, math.stored, "ranks"))
        return math.added(out, divided)

    def products(self, at: AdaptedLayer) -> Iterator[AdapterProduct]:
        yield AdapterProduct("A", 0, at.d_in, at.size, inputs=-1)
        yield AdapterProduct("B", 0, at.size, at.d_out)

    def traffic(self, at: AdaptedLayer) -> tuple[Number, Number]:
        return 14 * at.d_out, 8 * at.d_out + 6 * at.d_in


class VeRA(AdapterKind):
    """y += b∘(B·(d∘(A·x))): vectors around two frozen random matrices, of the largest layer, which all layers share
    (Kopiczko et al. 2023, arXiv:2310.11454)."""

    name, title = "vera", "VeRA"
    usual = 256
    drops = True

    def weights(self, at: AdaptedLayer) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield "lambda_b", (at.d_out,)
        yield "lambda_d", (at.size,)

    def shared(self, layers: list[AdaptedLayer]) -> int:
        return layers[0].size * (max(at.d_in for at in layers) + max(at.d_out for at in layers)) if layers else 0

    def lower(self, math: Math, x: Tensor, base: Base, at: AdaptedLayer) -> Tensor:
        out, tape = base(x), math.tape

        def fixed(one: Tensor, d_in: int, d_out: int) -> Tensor:
            tape.frozen = True
            made = tape.linear(math.factor(one), d_in, d_out, once=False)
            tape.frozen = False
            return made

        thin = tape.multiply(fixed(math.read(x), at.d_in, at.size), math.vector(at.size))
        wide = tape.multiply(fixed(thin, at.size, at.d_out), math.vector(at.d_out))
        return math.added(out, wide)

    def products(self, at: AdaptedLayer) -> Iterator[AdapterProduct]:
        yield AdapterProduct("A", 0, at.d_in, at.size, weights=0, inputs=-1)
        yield AdapterProduct("B", 0, at.size, at.d_out, weights=0)

    def traffic(self, at: AdaptedLayer) -> tuple[Number, Number]:
        return 10 * at.d_out + 4 * at.size, 8 * (at.d_out + at.size) + 6 * at.d_in


class MiSS(AdapterKind):
    """y += B·(sum of the input's blocks of r elements), with blocks that share one matrix (Kang and Yin 2024,
    arXiv:2409.15371), in the form that peft initializes by default: only the sums are kept."""

    name, title = "miss", "MiSS"
    usual = 64
    drops = True

    def weights(self, at: AdaptedLayer) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield "miss_block", (at.size, at.d_out)

    def lower(self, math: Math, x: Tensor, base: Base, at: AdaptedLayer) -> Tensor:
        out = base(x)
        summed = math.tape.sum(math.read(x), x.count // at.d_in * at.size)
        return math.added(out, math.tape.linear(summed, at.size, at.d_out))

    def products(self, at: AdaptedLayer) -> Iterator[AdapterProduct]:
        yield AdapterProduct("miss_block", 0, at.size, at.d_out)

    def traffic(self, at: AdaptedLayer) -> tuple[Number, Number]:
        return 6 * at.d_out + 2 * at.d_in, 4 * at.d_out + 8 * at.d_in


class IA3(AdapterKind):
    """A vector that multiplies what a layer makes, or, where the layer ends a feed-forward block, what it reads (Liu et
    al. 2022, arXiv:2205.05638)."""

    name, title = "ia3", "(IA)³"
    sized, usual = "", 1

    def weights(self, at: AdaptedLayer) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield "l", (at.d_in if at.inner else at.d_out,)

    def lower(self, math: Math, x: Tensor, base: Base, at: AdaptedLayer) -> Tensor:
        tape, width = math.tape, self.count(at)
        scaling = math.made("mul", width, "1 times l", width)  # peft multiplies all active adapters
        if at.inner:
            return base(tape.cast(tape.multiply(tape.cast(x, math.stored), scaling), math.stream))
        out = base(x)
        return tape.cast(tape.multiply(out, scaling), out.dtype)

    def traffic(self, at: AdaptedLayer) -> tuple[Number, Number]:
        width = at.d_in if at.inner else at.d_out
        return 4 * width, 8 * width


class LoHa(AdapterKind):
    """y += ((a₁·b₁)∘(a₂·b₂))·x, the delta made and saved in each call (Hyeon-Woo et al. 2021, arXiv:2108.06098)."""

    name, title = "loha", "LoHa"
    quantizes = False

    def weights(self, at: AdaptedLayer) -> Iterator[tuple[str, tuple[int, ...]]]:
        for number in ("1", "2"):
            yield f"w{number}_a", (at.d_out, at.size)
            yield f"w{number}_b", (at.size, at.d_in)

    def lower(self, math: Math, x: Tensor, base: Base, at: AdaptedLayer) -> Tensor:
        out, tape = base(x), math.tape
        each = sized(at.d_in * at.d_out, math.products)
        count, trained = at.d_in * at.d_out, self.count(at)
        delta = math.made("hadamard", count, "delta", trained, math.products, scratch=3 * each)
        tape.keep(tape.new(1, "fp32", "scale"))
        wide = math.matmul(tape.cast(x, delta.dtype), delta, out.count, "output of delta")
        return math.added(out, wide)

    def products(self, at: AdaptedLayer) -> Iterator[AdapterProduct]:
        yield AdapterProduct("delta", 0, at.d_in, at.d_out, inputs=-1)
        yield AdapterProduct("w1", at.d_out, at.size, at.d_in)
        yield AdapterProduct("w2", at.d_out, at.size, at.d_in)

    def traffic(self, at: AdaptedLayer) -> tuple[Number, Number]:
        return 6 * at.d_out, 6 * at.d_in

    def moved(self, at: AdaptedLayer) -> tuple[Number, Number]:
        """Forward the product of two and its scale; backward the scale, and a product for each pair."""
        return 10 * at.d_in * at.d_out, 16 * at.d_in * at.d_out


class LoKr(AdapterKind):
    """y += (w₁⊗(a₂·b₂))·x, whose factors are as near to square as the widths allow (Edalati et al. 2022,
    arXiv:2212.10650; peft's decompose_both and decompose_factor as they are by default)."""

    name, title = "lokr", "LoKr"
    quantizes = False

    def weights(self, at: AdaptedLayer) -> Iterator[tuple[str, tuple[int, ...]]]:
        (first_out, second_out), (first_in, second_in) = near_square(at.d_out), near_square(at.d_in)
        yield "w1", (first_out, first_in)
        if self._whole(at):
            yield "w2", (second_out, second_in)
        else:
            yield "w2_a", (second_out, at.size)
            yield "w2_b", (at.size, second_in)

    @staticmethod
    def _whole(at: AdaptedLayer) -> bool:
        """Return whether the second factor is one matrix: a rank from half its larger side on."""
        return 2 * at.size >= max(near_square(at.d_out)[1], near_square(at.d_in)[1])

    def lower(self, math: Math, x: Tensor, base: Base, at: AdaptedLayer) -> Tensor:
        out, tape = base(x), math.tape
        first, second = (a * b for a, b in zip(near_square(at.d_out), near_square(at.d_in), strict=True))
        if self._whole(at):
            factor = tape.given(second, math.stored, "w2", kind=WEIGHT)
        else:
            sides = near_square(at.d_out)[1] + near_square(at.d_in)[1]
            factor = math.made("matmul", second, "w2", at.size * sides, math.products, at.size * sides)
        outer = tape.given(first, math.stored, "w1", kind=WEIGHT)
        dtype = math.stored if math.stored == "fp32" else factor.dtype
        count = at.d_in * at.d_out
        delta = tape.record("kron", (factor,), tape.new(count, dtype, "kron"), (factor, outer))
        delta = tape.scale(delta, "delta")
        wide = math.matmul(tape.cast(x, delta.dtype), delta, out.count, "output of delta")
        return math.added(out, wide)

    def products(self, at: AdaptedLayer) -> Iterator[AdapterProduct]:
        yield AdapterProduct("delta", 0, at.d_in, at.d_out, inputs=-1)
        if not self._whole(at):
            yield AdapterProduct("w2", near_square(at.d_out)[1], at.size, near_square(at.d_in)[1])

    def traffic(self, at: AdaptedLayer) -> tuple[Number, Number]:
        return 6 * at.d_out, 6 * at.d_in

    def moved(self, at: AdaptedLayer) -> tuple[Number, Number]:
        """Forward the Kronecker product written and scaled; backward the scale, and a sum for each factor."""
        return 6 * at.d_in * at.d_out, 8 * at.d_in * at.d_out


def near_square(width: int) -> tuple[int, int]:
    """Return the two factors of a width that are nearest to each other, the smaller first."""
    first = next(one for one in range(int(width**0.5), 0, -1) if width % one == 0)
    return first, width // first
