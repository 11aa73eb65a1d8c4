"""Adapters other than LoRA and DoRA on frozen linear layers, as peft 0.21 runs them (peft/tuners/NAME/layer.py).

Each kind is one class that states what it trains, which buffers it holds, what it runs on the tape, and its matmuls.
LoRA, which also adapts embeddings and to parameters of experts, is in lora.py and adapted.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from napkin.autograd.tensors import BYTES, WEIGHT, Tensor, sized
from napkin.elementwise import Number
from napkin.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from napkin.operations.lowering import Lowering
    from napkin.operations.tuning import Tuning

Base = Callable[[Tensor], Tensor]
"""The frozen product that a kind of adapter is applied to."""


@record
class Beside:
    """The linear layer that an adapter is on.

    size  the adapter's rank, or the width of its blocks        inner  the layer ends a feed-forward block
    """

    d_in: int
    d_out: int
    size: int
    inner: bool = False


@record
class AdapterProduct:
    """A matmul (m×k)(k×n), `batch` of them. m: its rows; 0: the tokens.

    weights, inputs  1 where the backward pass makes the gradient of its second factor, and of its first one; inputs -1:
                     where gradients pass on to what the layer reads
    """

    name: str
    m: int
    k: int
    n: int
    batch: int = 1
    weights: int = 1
    inputs: int = 1


class Math:
    """The types in which an adapter computes on a rank's tape."""

    def __init__(self, run: Lowering, tuning: Tuning, x: Tensor) -> None:
        self.run, self.tape, self.tuning = run, run.tape, tuning
        tape = run.tape
        self.stream = x.dtype
        self.stored = tuning.kept_in or ("fp32" if tape.autocast else tape.compute)
        narrow = tape.autocast or (tape.compute if tuning.kept_in and tuning.autocast else "")
        self.products = narrow or self.stored
        """Type of matmuls: autocast's, or the adapter's own."""
        self.in_stream = narrow or self.stream
        """The same where the adapter is first cast to its input's type."""

    def read(self, x: Tensor) -> Tensor:
        """Return the layer's input in the adapter's type (tuners_utils.py, _cast_input_dtype), after dropout."""
        return self.tape.dropout(self.tape.cast(x, self.stored), self.tuning.dropout)

    def factor(self, x: Tensor) -> Tensor:
        """Return what a matmul reads."""
        return self.tape.cast(x, self.products)

    def made(
        self,
        primitive: str,
        count: Number,
        what: str,
        trained: Number,
        dtype: str = "",
        cast: Number = 0,
        scratch: Number = 0,
    ) -> Tensor:
        """Record a tensor, in the adapter's type or another, made of `trained` elements of parameters alone, which are
        in memory anyway, and of which autocast casts `cast`. scratch: temporary bytes of either pass."""
        tape = self.tape
        copies = [tape.weight_copy(cast, what)] if cast and tape.autocast else []
        out = tape.new(count, dtype or self.stored, what)
        weight = trained * BYTES[self.stored]
        return tape.record(primitive, (), out, copies, weight=weight, scratch=scratch, forward_scratch=scratch)

    def vector(self, count: Number) -> Tensor:
        return self.tape.given(count, self.stored, "vector", kind=WEIGHT)

    def matmul(self, x: Tensor, y: Tensor, count: Number, what: str, dtype: str = "") -> Tensor:
        """Multiply two tensors that both need gradients, and are saved for them, in a type or that of products."""
        dtype = dtype or self.products
        x, y = self.tape.cast(x, dtype), self.tape.cast(y, dtype)
        return self.tape.record("matmul", (x, y), self.tape.new(count, dtype, what), (x, y))

    def added(self, out: Tensor, more: Tensor) -> Tensor:
        return self.tape.cast(self.tape.add(out, more), out.dtype)


class AdapterKind:
    """How adapters of a kind change a frozen linear layer.

    name       peft's, and that of --adapter        title  for people
    sized      the option that gives its size, "" where it has none        usual  peft's default of it
    measure    what the size is, for people
    quantizes  peft runs it on quantized weights (a delta of the weight's own shape needs that shape)
    drops      its input passes dropout, as LoRA's does
    """

    name = ""
    title = ""
    sized = "lora-rank"
    measure = "rank"
    usual = 8
    quantizes = True
    drops = False

    def weights(self, at: Beside) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield the name and the shape of each trained tensor."""
        raise NotImplementedError

    def buffer(self, at: Beside) -> int:
        """Return the elements of fp32 buffers that the layer holds."""
        return 0

    def shared(self, layers: list[Beside]) -> int:
        """Return the elements of frozen tensors that all layers share."""
        return 0

    def lower(self, math: Math, x: Tensor, base: Base, at: Beside) -> Tensor:
        """Run the layer with its adapter; what it records is trained, `base` is not."""
        raise NotImplementedError

    def products(self, at: Beside) -> Iterator[AdapterProduct]:
        """Yield its matmuls."""
        yield from ()

    def traffic(self, at: Beside) -> tuple[Number, Number]:
        """Return the bytes of a token that its elementwise work moves, forward and backward, in 16 bits."""
        return 0, 0

    def moved(self, at: Beside) -> tuple[Number, Number]:
        """Return the bytes that making its weights moves besides matmuls, forward and backward, for any tokens."""
        return 0, 0

    def count(self, at: Beside) -> int:
        """Return the number of trained parameters."""
        total = 0
        for _, shape in self.weights(at):
            each = 1
            for axis in shape:
                each *= axis
            total += each
        return total

    def launches(self, at: Beside) -> tuple[int, int]:
        """Return the kernels that it launches: its matmuls, and as many elementwise ones."""
        own = list(self.products(at))
        ahead = 2 * len(own) + 2
        return ahead, 2 * sum(one.weights + abs(one.inputs) for one in own) + 2


class AdaLora(AdapterKind):
    """y += B·(A∘E)·dropout(x)/r, with a value E for each rank (Zhang et al. 2023, arXiv:2303.10512). Its allocator's
    three importances of each parameter, which a loop that calls `update_and_allocate` makes, are not counted. Once r is
    moved to the layer's type it requires a gradient (0.21.2): the division by it saves what it divides."""

    name, title = "adalora", "AdaLoRA"
    usual = 12
    drops = True

    def weights(self, at: Beside) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield "A", (at.size, at.d_in)
        yield "E", (at.size, 1)
        yield "B", (at.d_out, at.size)

    def lower(self, math: Math, x: Tensor, base: Base, at: Beside) -> Tensor:
        out, tape = base(x), math.tape
        valued = math.made("mul", at.size * at.d_in, "A times E", at.size * (at.d_in + 1))
        thin = math.matmul(math.read(x), valued, x.count // at.d_in * at.size, "thin")
        wide = tape.linear(thin, at.size, at.d_out, once=False)
        scaled = tape.scale(wide)
        divided = tape.record("div", (scaled,), tape.new(scaled.count, scaled.dtype, "divided"), (scaled,))
        tape.keep(tape.new(1, math.stored, "ranks"))
        return math.added(out, divided)

    def products(self, at: Beside) -> Iterator[AdapterProduct]:
        yield AdapterProduct("A", 0, at.d_in, at.size, inputs=-1)
        yield AdapterProduct("B", 0, at.size, at.d_out)

    def traffic(self, at: Beside) -> tuple[Number, Number]:
        return 14 * at.d_out, 8 * at.d_out + 6 * at.d_in


class VeRA(AdapterKind):
    """y += b∘(B·(d∘(A·x))): vectors around two frozen random matrices, of the largest layer, which all layers share
    (Kopiczko et al. 2023, arXiv:2310.11454)."""

    name, title = "vera", "VeRA"
    usual = 256
    drops = True

    def weights(self, at: Beside) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield "lambda_b", (at.d_out,)
        yield "lambda_d", (at.size,)

    def shared(self, layers: list[Beside]) -> int:
        return layers[0].size * (max(at.d_in for at in layers) + max(at.d_out for at in layers)) if layers else 0

    def lower(self, math: Math, x: Tensor, base: Base, at: Beside) -> Tensor:
        out, tape = base(x), math.tape

        def fixed(one: Tensor, d_in: int, d_out: int) -> Tensor:
            tape.frozen = True
            made = tape.linear(math.factor(one), d_in, d_out, once=False)
            tape.frozen = False
            return made

        thin = tape.multiply(fixed(math.read(x), at.d_in, at.size), math.vector(at.size))
        wide = tape.multiply(fixed(thin, at.size, at.d_out), math.vector(at.d_out))
        return math.added(out, wide)

    def products(self, at: Beside) -> Iterator[AdapterProduct]:
        yield AdapterProduct("A", 0, at.d_in, at.size, weights=0, inputs=-1)
        yield AdapterProduct("B", 0, at.size, at.d_out, weights=0)

    def traffic(self, at: Beside) -> tuple[Number, Number]:
        return 10 * at.d_out + 4 * at.size, 8 * (at.d_out + at.size) + 6 * at.d_in


class IA3(AdapterKind):
    """A vector that multiplies what a layer makes, or, where the layer ends a feed-forward block, what it reads (Liu et
    al. 2022, arXiv:2205.05638)."""

    name, title = "ia3", "(IA)³"
    sized, usual = "", 1

    def weights(self, at: Beside) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield "l", (at.d_in if at.inner else at.d_out,)

    def lower(self, math: Math, x: Tensor, base: Base, at: Beside) -> Tensor:
        tape, width = math.tape, self.count(at)
        scaling = math.made("mul", width, "1 times l", width)  # peft multiplies all active adapters
        if at.inner:
            return base(tape.cast(tape.multiply(tape.cast(x, math.stored), scaling), math.stream))
        out = base(x)
        return tape.cast(tape.multiply(out, scaling), out.dtype)

    def traffic(self, at: Beside) -> tuple[Number, Number]:
        width = at.d_in if at.inner else at.d_out
        return 4 * width, 8 * width


class LoHa(AdapterKind):
    """y += ((a₁·b₁)∘(a₂·b₂))·x, the delta made and saved in each call (Hyeon-Woo et al. 2021, arXiv:2108.06098)."""

    name, title = "loha", "LoHa"
    quantizes = False

    def weights(self, at: Beside) -> Iterator[tuple[str, tuple[int, ...]]]:
        for number in ("1", "2"):
            yield f"w{number}_a", (at.d_out, at.size)
            yield f"w{number}_b", (at.size, at.d_in)

    def lower(self, math: Math, x: Tensor, base: Base, at: Beside) -> Tensor:
        out, tape = base(x), math.tape
        each = sized(at.d_in * at.d_out, math.products)
        count, trained = at.d_in * at.d_out, self.count(at)
        delta = math.made("hadamard", count, "delta", trained, math.products, scratch=3 * each)
        tape.keep(tape.new(1, "fp32", "scale"))
        wide = math.matmul(tape.cast(x, delta.dtype), delta, out.count, "output of delta")
        return math.added(out, wide)

    def products(self, at: Beside) -> Iterator[AdapterProduct]:
        yield AdapterProduct("delta", 0, at.d_in, at.d_out, inputs=-1)
        yield AdapterProduct("w1", at.d_out, at.size, at.d_in)
        yield AdapterProduct("w2", at.d_out, at.size, at.d_in)

    def traffic(self, at: Beside) -> tuple[Number, Number]:
        return 6 * at.d_out, 6 * at.d_in

    def moved(self, at: Beside) -> tuple[Number, Number]:
        """Forward the product of two and its scale; backward the scale, and a product for each pair."""
        return 10 * at.d_in * at.d_out, 16 * at.d_in * at.d_out


class LoKr(AdapterKind):
    """y += (w₁⊗(a₂·b₂))·x, whose factors are as near to square as the widths allow (Edalati et al. 2022,
    arXiv:2212.10650; peft's decompose_both and decompose_factor as they are by default)."""

    name, title = "lokr", "LoKr"
    quantizes = False

    def weights(self, at: Beside) -> Iterator[tuple[str, tuple[int, ...]]]:
        (first_out, second_out), (first_in, second_in) = near_square(at.d_out), near_square(at.d_in)
        yield "w1", (first_out, first_in)
        if self._whole(at):
            yield "w2", (second_out, second_in)
        else:
            yield "w2_a", (second_out, at.size)
            yield "w2_b", (at.size, second_in)

    @staticmethod
    def _whole(at: Beside) -> bool:
        """Return whether the second factor is one matrix: a rank from half its larger side on."""
        return 2 * at.size >= max(near_square(at.d_out)[1], near_square(at.d_in)[1])

    def lower(self, math: Math, x: Tensor, base: Base, at: Beside) -> Tensor:
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

    def products(self, at: Beside) -> Iterator[AdapterProduct]:
        yield AdapterProduct("delta", 0, at.d_in, at.d_out, inputs=-1)
        if not self._whole(at):
            yield AdapterProduct("w2", near_square(at.d_out)[1], at.size, near_square(at.d_in)[1])

    def traffic(self, at: Beside) -> tuple[Number, Number]:
        return 6 * at.d_out, 6 * at.d_in

    def moved(self, at: Beside) -> tuple[Number, Number]:
        """Forward the Kronecker product written and scaled; backward the scale, and a sum for each factor."""
        return 6 * at.d_in * at.d_out, 8 * at.d_in * at.d_out


class OFT(AdapterKind):
    """y = W·(R·x), R of orthogonal blocks (Qiu et al. 2023, arXiv:2306.07280): (I + Q)(I − Q)⁻¹ of skew-symmetric Q as
    the first five terms of its series, 1 + 2Q + 2Q² + 2Q³ + Q⁴."""

    name, title = "oft", "OFT"
    sized, measure, usual = "adapter-block", "block", 32

    @staticmethod
    def block(at: Beside) -> int:
        """Return the width of a block: the nearest divisor of the input's, the smaller of two
        (tuners/oft/layer.py, adjust_oft_parameters)."""
        return nearest_divisor(at.d_in, at.size)

    def weights(self, at: Beside) -> Iterator[tuple[str, tuple[int, ...]]]:
        block = self.block(at)
        yield "R", (at.d_in // block, block * (block - 1) // 2)

    def lower(self, math: Math, x: Tensor, base: Base, at: Beside) -> Tensor:
        tape, block = math.tape, self.block(at)
        count = at.d_in * block
        skew = math.made("skew", count, "Q", self.count(at))
        power = skew
        for name in ("Q²", "Q³", "Q⁴"):
            power = math.matmul(power, skew, count, name)
        rotation = tape.add(tape.new(count, math.stored, "series", no_grad=True), power)
        turned = math.matmul(tape.cast(x, math.stored), rotation, x.count, "rotated")
        return base(tape.cast(turned, math.stream))

    def products(self, at: Beside) -> Iterator[AdapterProduct]:
        block = self.block(at)
        blocks = at.d_in // block
        yield AdapterProduct("R", 0, block, block, blocks, inputs=-1)
        for power in ("Q2", "Q3", "Q4"):
            yield AdapterProduct(power, block, block, block, blocks)

    def traffic(self, at: Beside) -> tuple[Number, Number]:
        return 4 * at.d_in, 4 * at.d_in


class BOFT(AdapterKind):
    """y = s∘(W·(R·x)): OFT of blocks as wide as `size` as one full matrix, moved by a permutation that each layer holds
    as a matrix in fp32 (Liu et al. 2023, arXiv:2311.06243; one butterfly factor, as without its CUDA extension). Of a
    model that was on the GPU before it got adapters, these matrices stay on the host, and are copied in each call."""

    name, title = "boft", "BOFT"
    sized, measure, usual = "adapter-block", "block", 4

    def weights(self, at: Beside) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield "R", (at.d_in // at.size, at.size, at.size)
        yield "s", (at.d_out, 1)

    def buffer(self, at: Beside) -> int:
        return at.d_in * at.d_in

    def lower(self, math: Math, x: Tensor, base: Base, at: Beside) -> Tensor:
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

    def products(self, at: Beside) -> Iterator[AdapterProduct]:
        yield AdapterProduct("R", 0, at.d_in, at.d_in, inputs=-1)
        for name in ("P", "PT", "I"):
            yield AdapterProduct(name, at.d_in, at.d_in, at.d_in, weights=0)

    def traffic(self, at: Beside) -> tuple[Number, Number]:
        return 4 * at.d_out, 8 * at.d_out

    def moved(self, at: Beside) -> tuple[Number, Number]:
        """Forward the blocks in place, their cast, the permutation's cast and the identity: in fp32 and 16 bits."""
        return 18 * at.d_in * at.d_in, 6 * at.d_in * at.d_in


def near_square(width: int) -> tuple[int, int]:
    """Return the two factors of a width that are nearest to each other, the smaller first."""
    first = next(one for one in range(int(width**0.5), 0, -1) if width % one == 0)
    return first, width // first


def nearest_divisor(width: int, asked: int) -> int:
    """Return the divisor of a width that is nearest to `asked`, the smaller of two as near."""
    divisors = (one for one in range(1, width + 1) if width % one == 0)
    return min(divisors, key=lambda one: (abs(one - asked), one))


KINDS: dict[str, AdapterKind] = {one.name: one for one in (AdaLora(), VeRA(), IA3(), LoHa(), LoKr(), OFT(), BOFT())}
"""Kinds of adapters besides LoRA and DoRA, by peft's name."""
