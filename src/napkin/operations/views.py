"""Views, copies and casts: no arithmetic of their own."""

from __future__ import annotations

from napkin.autograd.tensors import BYTES, INPUT, WEIGHT_COPY, Tensor
from napkin.elementwise import Number
from napkin.operations.adapters.lora import JOINED
from napkin.operations.base import Operation
from napkin.operations.bases import Elementwise, Ordinary, View
from napkin.operations.facts import SHARED_OUTPUT
from napkin.operations.implementations import QKV
from napkin.operations.lowering import Lowering
from napkin.operations.roles import SHARED_TENSOR
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work
from napkin.record import record, replace


@record
class Reused(Ordinary):
    """An operation whose weights another place owns (Model.shared, the other stack's table): it works again here and
    its weights are not counted again. `again`: it is the owner's module, run once more; else a module of its own whose
    weights are tied to the owner's, which has adapters of its own."""

    of: Operation
    again: bool = False

    def __post_init__(self) -> None:
        self._is_module()

    def runs_again(self) -> bool:
        return self.again

    def weights(self) -> tuple[Weight, ...]:
        """Weights are counted if they are owned."""
        return ()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return self.of.gemms(work)

    def owner(self) -> Operation:
        return self.of

    def padded(self, before: int, rows: int, reads_logits: bool) -> Operation:
        return replace(self, of=self.of.padded(before, rows, reads_logits))

    def traffic(self) -> tuple[Number, Number]:
        """Return what the operation moves, wherever its weights are."""
        return self.of.traffic()

    def scores(self, work: Work) -> Number:
        return self.of.scores(work)

    def lower(self, run: Lowering) -> Value:
        """Run the operation with another layer's weights; autocast casts them once for all uses."""
        run.tape.copies = run.copies.setdefault(id(self.of), {})
        if self.of in run.program.operations:  # of this layer's own: the copy that its first use made
            label = f"{self.of.name}/{self.of.name}/weight"
            own = [s for s in run.tape.kept if s.kind == WEIGHT_COPY and s.label == label]
            dtype = run.tape.autocast
            run.tape.copies = {f"{self.name}/weight": Tensor(s.size // BYTES[dtype], dtype, ((1, s),)) for s in own}
        here = replace(self.of, name=self.name, reads=self.reads, role=self.role, module=self.module)
        made = here.lower(run)
        if (
            id(self.of) in run.cast and self.of not in run.program.operations
        ):  # another layer keeps the copy, and is counted with it
            for copy in run.tape.copies.values():
                copy.storage.earlier = True
        run.tape.copies = None
        return made


def reuse(op: Operation, owner: Operation | None = None) -> Reused:
    """Return the operation `op` working with the weights of `owner` (its own, counted elsewhere, unless given)."""
    return Reused(op.name, op.reads, op if owner is None else owner, role=op.role, module=op.module)


def run_again(op: Operation, owner: Operation | None = None) -> Reused:
    """Return the operation `op` as another run of the module of `owner` (its own, unless given)."""
    return replace(reuse(op, owner), again=True)


@record
class Share(View):
    """Share what it reads with all following layers: shared keys and values, or a tensor of which each layer reads a
    slice. Pipeline stages then depend on each other. Between layers it is passed in a mapping (transformers'
    KVSharingDict), which all of them refer to."""

    def pattern(self) -> str:
        return SHARED_OUTPUT

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: the tensor is there already."""
        return 0, 0

    def lower(self, run: Lowering) -> Value:
        """Share one tensor, however many layers save it."""
        x = run.read(self)
        for _, storage in x.tensor.storages:
            storage.shared = True
        run.shared_tensors[SHARED_TENSOR + self.name] = x
        run.tape.mapped.append(x.tensor)
        return x


@record
class Slice(View):
    """A view of `width` elements per token out of a wider (fused) tensor: keeps the whole storage alive.

    indexed  taken by a list of indices: a copy, whose index is kept too
    groups   this many groups of heads are concatenated: a copy, but of one
    repeats  each group's one head is repeated so often
    copied   a copy, which saves nothing of the wider one
    """

    width: int
    indexed: bool = False
    groups: int = 1
    repeats: int = 1
    copied: bool = False

    def sliced(self) -> tuple[str, int]:
        return self.reads[0], self.width

    def traffic(self) -> tuple[Number, Number]:
        """Read and write a copy; nothing of a view: attention's traffic holds the copies of its parts."""
        return (4 * self.width * self.repeats, 4 * self.width * self.repeats) if self._copies else (0, 0)

    @property
    def _copies(self) -> bool:
        return self.indexed or self.groups > 1 or self.copied

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        cuts = run.implementation.qkv == "apart" and self.role in JOINED
        part = run.tape.slice(x.tensor, x.tensor.count * self.width // x.width, cuts)
        if self.role in JOINED and QKV in run.implementation.variables:
            run.scopes.local(x.tensor)
        if self.indexed:
            index = run.tape.new(1, "int64", "index", no_grad=True)
            taken = run.tape.new(part.count, part.dtype, "taken")
            part = run.tape.record("index", (x.tensor,), taken, (index,))
        if self.repeats > 1:
            part = part.view(part.count * self.repeats)
        if self.groups > 1 or self.copied:
            part = run.tape.copy(part, "put together")
        return Value(part, self.width * self.repeats, x.divided, x.gathered)


@record
class Transpose(View):
    """A view with the sequences' tokens of each step next to each other: a product that reads it copies several
    sequences. `width` elements per token."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        """Read and write the copy that the product which reads it makes, forward and backward."""
        return 4 * self.width, 4 * self.width

    def lower(self, run: Lowering) -> Value:
        """Return a transposed view: with several sequences their tokens are no longer adjacent in memory."""
        x = run.read(self)
        return Value(x.tensor.view(rows_apart=True), x.width, x.divided, x.gathered)


@record
class ByHeads(View):
    """A copy of queries, keys or values of `width` elements per token that is laid out by heads."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        return 4 * self.width, 4 * self.width

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        return Value(run.tape.copy(x.tensor, "by heads"), x.width, x.divided, x.gathered, True)


@record
class Concat(View):
    """A new tensor of `width` elements per token, copied together from all that it reads (one head's part repeated over
    the heads if it is shared). `first_type`: in the first one's type; else in the widest of all."""

    width: int
    first_type: bool = False

    def traffic(self) -> tuple[Number, Number]:
        """Read and write all of it; its gradient is handed out in views."""
        return 4 * self.width, 0

    def lower(self, run: Lowering) -> Value:
        first = run.read(self)
        count = run.tokens * self.width // (run.split.tensor if first.divided else 1)
        inputs = tuple(run.read(self, i).tensor for i in range(len(self.reads)))
        widest = max(inputs, key=lambda tensor: BYTES[tensor.dtype]).dtype
        out = run.tape.new(count, first.tensor.dtype if self.first_type else widest, "joined")
        heads_first = not run.implementation.tokens_first
        return Value(run.tape.record("cat", inputs, out), self.width, first.divided, first.gathered, heads_first)


@record
class SideInput(View):
    """What the layer before passes on next to the stream: `width` elements per token. `fp32`: weights had a part in it,
    so that it is fp32 under autocast."""

    width: int
    fp32: bool = False

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: the tensor is there already."""
        return 0, 0

    def lower(self, run: Lowering) -> Value:
        tape = run.tape
        dtype = ("fp32" if self.fp32 else tape.autocast) if tape.autocast else tape.compute
        given = tape.new(run.tokens * self.width, dtype, "from the layer before")
        run.takes(given)
        return Value(given, self.width)


@record
class Stream(View):
    """A stream of `width` elements per token that later layers read as well: what it reads, or another of its type.

    before  made before the layer
    waits   later layers, which run backward first, have left a gradient of it
    graded  a gradient passes through it
    """

    width: int
    before: bool = False
    waits: bool = False
    graded: bool = True

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: the tensor is there already."""
        return 0, 0

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        if self.before:
            stream = run.tape.given(x.tensor.count, x.tensor.dtype, "stream", no_grad=not self.graded)
            x = Value(stream, self.width, x.divided, x.gathered)
        if self.waits:
            run.tape.waiting.append(x.tensor)
        return x


@record
class EncoderKeys(View):
    """Keys or values that the encoder's layer at the same place made, `width` elements per token: kept there."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: the tensor is there already."""
        return 0, 0

    def lower(self, run: Lowering) -> Value:
        tape = run.tape
        count = run.b * run.source * self.width // run.split.tensor
        return Value(tape.given(count, tape.autocast or tape.compute, "encoder's keys", kind=INPUT), self.width, True)


@record
class ConcatTokens(View):
    """Tokens of two stacks, one behind the other: `width` elements for each."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        """Read and write tokens of both stacks, taken as equally many; the gradient is handed out in views."""
        return 8 * self.width, 0

    def lower(self, run: Lowering) -> Value:
        first = run.read(self)
        parts = tuple(run.read(self, i).tensor for i in range(2))
        joined = run.tape.new(parts[0].count + parts[1].count, parts[0].dtype, "one behind the other")
        return Value(run.tape.record("cat", parts, joined), self.width, first.divided, first.gathered, True)


@record
class Overwrite(Elementwise):
    """The rows of one certain token replaced in place by a learned vector of `width` elements."""

    width: int

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("vector", (self.width,)),)

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: the rows of one token of the vocabulary are few."""
        return 0, 0

    def lower(self, run: Lowering) -> Value:
        """Overwrite the rows; the indices of the tokens are saved."""
        x = run.read(self)
        marked = run.tape.new(x.tensor.count // self.width, "bool", "marked", no_grad=True)
        out = run.tape.record("index_put", (x.tensor, run.weight(self.width)), x.tensor.view(), (marked,))
        return Value(out, x.width, x.divided, x.gathered)


@record
class Cast(Elementwise):
    """Cast to fp32 (`fp32`), or to the dtype of the parameters."""

    width: int
    fp32: bool = False

    def padded(self, before: int, rows: int, reads_logits: bool) -> Operation:
        return replace(self, width=rows) if reads_logits and self.width == before else self

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: eager software's factor holds casts (evidence/rates/priors.py); compiled kernels cast on
        reading."""
        return 0, 0

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        stored = "fp32" if self.fp32 or run.tape.autocast else run.tape.compute
        return Value(run.tape.cast(x.tensor, stored), x.width, x.divided, x.gathered)
