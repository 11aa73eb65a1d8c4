"""From a layer's operations to torch's primitives, run on a tape: one rule for each kind of operation.

What a code does differently stands in `implementations.Code` (and, for arithmetic that the published code fixes, on
the operation itself); how a layout divides tensors stands in `Split`. The rules follow the code of Hugging Face
transformers, from which nanoGPT's and Megatron's differ in fusing more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from napkin.elementwise import Number, ceil_div, is_array, maximum, minimum
from napkin.errors import Refused
from napkin.formulas import mixers
from napkin.formulas.implementations import ALIBI, ALWAYS, CUDNN, EAGER, EFFICIENT, FLASH, Code, Tuning
from napkin.formulas.layer import (
    COLUMN,
    MEMORY,
    ROW,
    VOCABULARY,
    Activation,
    Add,
    AttentionCore,
    BalanceLoss,
    BlockMatmul,
    Cast,
    Clamp,
    Concat,
    Conv,
    Dropout,
    Embedding,
    ExpertMatmul,
    Experts,
    Indexer,
    Jitter,
    Learnt,
    Matmul,
    Mix,
    Model,
    Multiply,
    Norm,
    Operation,
    PositionBias,
    RelativeScores,
    Reused,
    Rotary,
    Router,
    Scale,
    Scan,
    Slice,
    Softcap,
    TableMatmul,
)
from napkin.formulas.scopes import Scopes
from napkin.formulas.tape import (
    ACTIVATION,
    BYTES,
    INPUT,
    INPUT_LABEL,
    WEIGHT,
    WEIGHT_COPY,
    Tape,
    Tensor,
    promoted,
    select,
    sized,
)
from napkin.record import record, replace

EFFICIENT_ROWS = 32
"""The memory-efficient kernel pads its log-sum-exp to a multiple of this many queries (torch meta registrations)."""
GROUPED_BYTES = 16
"""torch's grouped product raises an error for rows that are no multiple of this (GroupedMMUtils.h)."""
MASK_KEYS = 8
"""torch pads the rows of a mask for the memory-efficient kernel to a multiple of this (preprocess_mask in
ATen/native/transformers/attention.cpp)."""
FLASH_LARGEST = 256
"""Its largest head (sdp_utils.cpp, check_head_dim_size_flash)."""
FLASH_HEAD = 8
"""torch pads head sizes to a multiple of this for the flash kernel."""
JOINED = ("q", "k", "v", "qkv")
"""Names of attention's products, and of the one that makes all three."""
ENCODED = "encoder's output"
"""What cross-attention reads: one tensor, which all layers of a decoder share."""
PHILOX = {FLASH: (16, 8), EFFICIENT: (8, 8), CUDNN: (8, 8)}
"""Bytes of the random generator's seed and offset that a kernel keeps, with or without dropout."""


@record
class Split:
    """How one rank's part of a layer is cut: tensor, context and expert parallelism, and sequence parallelism's
    division of what tensor parallelism leaves whole (1 where it is off)."""

    tensor: Number = 1
    context: Number = 1
    expert: Number = 1
    sequence: Number = 1


@record
class Shape:
    """One micro-batch: b sequences of s tokens. `source`: tokens of the encoder's sequences, whose output the decoder
    reads; 0 in a network of one stack."""

    sequences: Number
    length: Number
    source: Number = 0


@record
class Value:
    """A tensor in a layer's program: `width` numbers a token before any division; `divided` over tensor-parallel
    ranks; `whole` holds all tokens of the sequence-parallel group; `heads_first`: a head's tokens lie together."""

    tensor: Tensor
    width: Number
    divided: bool = False
    whole: bool = False
    heads_first: bool = False


def beside(op: Any, program: tuple[Operation, ...], code: Code, tuning: Tuning) -> tuple[int, int]:
    """How many of LoRA's pairs of matrices a product has beside it, and the numbers that they make for a token. A
    joined product has those of all its parts, with one dropout of their common input."""
    if tuning.method != "lora":
        return 0, 0
    if code.joined_qkv and op.name in JOINED:
        if op.name in ("k", "v"):
            return 0, 0
        parts = [part for part in program if part.name in tuning.targets and part.name in JOINED]
        return len(parts), sum(getattr(part, "d_out", 0) or getattr(part, "width", 0) for part in parts)
    chosen = (
        op.name in tuning.targets if tuning.targets else op.shard != VOCABULARY
    )  # PEFT's "all-linear": not the head
    return (1, op.d_out) if chosen else (0, 0)


def is_plain(op: Any, tuning: Tuning) -> bool:
    """Whether a frozen product's weight is stored as it was: the head's, but for bitsandbytes."""
    return not tuning.quantised or (op.shard == VOCABULARY and tuning.library != "bitsandbytes")


def key_heads(model: Model) -> list[int]:
    """Key/value heads of a network's attention, each number of them once."""
    cores = (op for s in model.stacks for one in s.layers for op in one.operations if isinstance(op, AttentionCore))
    return sorted({op.kv_heads for op in cores})


def divides_heads(model: Model, code: Code, ranks: int) -> bool:
    """Whether the code runs on so many tensor-parallel ranks: they divide query and key/value heads, or, where it
    gathers heads, each rank has one of the latter."""
    return model.heads % ranks == 0 and all(
        few % ranks == 0 or (code.gathers_heads and ranks % few == 0) for few in key_heads(model)
    )


class Lowering:
    """Runs operations on a tape for one micro-batch on one rank."""

    def __init__(
        self,
        tape: Tape,
        code: Code,
        shape: Shape,
        split: Split,
        attention: str,
        dropout: float,
        selective: bool = False,
    ) -> None:
        self.tape = tape
        self.code = code
        self.split = split
        self.attention = attention
        self.dropout = dropout
        self.selective = selective
        self.exact = True
        self.over(shape)
        self.tables: dict[tuple[Any, ...], tuple[Tensor, Tensor]] = {}
        self.orders: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
        self.own_tables: dict[tuple[Any, ...], tuple[Tensor, Tensor]] = {}
        self.masks: dict[str, Tensor] = {}
        self.copies: dict[int, dict[str, Tensor]] = {}
        self.bias: Tensor | None = None
        self.zeros: Tensor | None = None
        self.distances: Tensor | None = None
        self.windowed = False
        self.routers: Number = 0
        self.gates: frozenset[str] = frozenset()
        self.merged: frozenset[str] = frozenset()
        self.inside: frozenset[str] = frozenset()
        self.shifted: dict[int, Tensor] = {}
        self.values: dict[str, Value] = {}
        self.program: tuple[Operation, ...] = ()
        self.whole: dict[int, Tensor] = {}

    # --- the program ---

    def over(self, shape: Shape) -> None:
        """What runs from here on runs over these tokens."""
        self.b = shape.sequences
        self.s = shape.length
        self.own = shape.length // self.split.context
        self.tokens = self.b * self.own
        self.source = shape.source
        self.encoded: Tensor | None = None

    def reads_encoder(self, width: int, dtype: str) -> None:
        """The encoder's output, which the layers that follow share."""
        self.encoded = self.tape.given(self.b * (self.source // self.split.context) * width, dtype, ENCODED)
        self.encoded.places[0][1].shared = True

    def run(self, operations: tuple[Operation, ...], x: Value | None) -> Value:
        """All operations in order; the last one's output."""
        self.values = {} if x is None else {"x": x}
        if x is not None and self.encoded is not None:
            self.values[MEMORY] = Value(self.encoded, x.width, whole=True)
        self.program = operations
        self.whole = {}
        self.own_tables = {}
        self.orders = {}
        self.windowed = any(isinstance(op, AttentionCore) and op.window is not None for op in operations)
        self.gates = _gates(operations) if self.code.swiglu == "fused" else frozenset()
        self.merged, self.inside = _kernels(operations, self.code.mixer)
        self.shifted = {}
        self.scopes = Scopes(self.tape, operations, x is not None, self.code.frame.weights_late)
        for op in operations:
            self.tape.scope = op.name
            self.scopes.enter(op, [self.values[name].tensor for name in op.reads if name in self.values])
            rule = _RULES.get(type(op))
            if rule is None:
                raise Refused(
                    f"what {type(op).__name__.lower()} keeps for backward is not known",
                    "activation memory is answered for transformers with softmax attention",
                )
            if op.name in self.merged:  # the kernel before does its work
                self.values[op.name] = self.read(op)
                continue
            self.tape.again = op.name in self.inside
            self.values[op.name] = rule(self, op)
            self.tape.again = False
            self.scopes.leave(op, self.values[op.name].tensor)
        self.scopes.close(*(value.tensor for value in (x,) if value is not None))
        return self.values[operations[-1].name]

    def read(self, op: Operation, index: int = 0) -> Value:
        return self.values[op.reads[index]]

    def residual(self, width: int, dtype: str) -> Value:
        """A layer's input: the residual stream."""
        count = self.tokens // self.split.sequence * width
        return Value(self.tape.given(count, dtype, INPUT_LABEL), width)

    # --- linear layers and what stands around them ---

    def matmul(self, op: Any) -> Value:
        x = self.read(op)
        tensor, d_in, d_out = x.tensor, op.d_in, op.d_out
        divided = x.divided
        whole = x.whole
        t = self.split.tensor
        column = op.shard in (COLUMN, VOCABULARY)
        if column:
            if not self.code.gather_again and not x.whole:
                tensor = self.gathered(x)
            d_out, divided, whole = d_out // t, True, True
        elif op.shard == ROW:
            d_in, divided, whole = d_in // t, False, False
        factor = tensor.count // d_in
        if self.code.casts_down and op.name.endswith("down"):
            tensor = self.tape.cast(tensor, "fp32" if self.tape.autocast else self.tape.compute)
        if self.code.tuning is not None:
            out = self.tuned(op, tensor, d_in, d_out, self.code.tuning)
        else:
            once = not self.code.turned or op.shard == VOCABULARY
            out = self.tape.linear(tensor, d_in, d_out, op.bias, f"{op.name}/weight", once)
            if not once and op.bias:  # added apart, in its own type
                out = self.tape.add(out, self.weight(d_out))
        if column and self.code.gather_again and not x.whole:
            out.count = factor * self.split.sequence * d_out
            out.places[0][1].size = out.size
        if op.shard == ROW:
            out = self.scattered(out)
        return Value(out, op.d_out, divided, whole)

    def tuned(self, op: Any, x: Tensor, d_in: Number, d_out: Number, tuning: Tuning) -> Tensor:
        """A product with a frozen weight keeps nothing, but its input where the weight is quantised (bitsandbytes'
        MatMul4Bit). LoRA keeps its input after dropout and what stands between and behind its two matrices; a scale
        keeps what it multiplies."""
        tape = self.tape
        out = tape.new(x.count // d_in * d_out, x.dtype, "output")
        scratch = 0 if is_plain(op, tuning) else tuning.widened * d_in * d_out
        kept = (x,) if tuning.keeps else ()
        out = tape.record("frozen", (x,), out, kept, scratch=scratch)
        several, width = beside(op, self.program, self.code, tuning)
        if several:
            thin = tape.linear(tape.dropout(x, tuning.dropout), d_in, several * tuning.rank)
            wide = tape.linear(thin, several * tuning.rank, width // self.split.tensor)
            if self.code.joined_qkv:  # put into its place among the parts of the joined product
                wide = tape.record("pad", (wide,), tape.new(wide.count, wide.dtype, "padded"), (wide,))
            out = tape.add(out, wide.view(out.count))
        if tuning.method == "adapter_v2":
            out = tape.multiply(out, self.tape.given(d_out, tape.compute, "scale", kind=WEIGHT))
        return out

    def gathered(self, x: Value) -> Tensor:
        """All tokens of the sequence-parallel group, gathered into a new tensor; itself where there is none."""
        n = self.split.sequence
        there = self.whole.get(id(x.tensor))
        if there is not None:  # every product that reads a tensor shares its gathered form
            return there
        whole = self.tape.new(x.tensor.count * n, x.tensor.dtype, "gathered")
        gathered = select(n == 1, x.tensor, whole)
        if gathered is not x.tensor:
            self.tape.record("all_gather", (x.tensor,), gathered)
        self.whole[id(x.tensor)] = gathered
        return gathered

    def scattered(self, x: Tensor) -> Tensor:
        """The sum over tensor-parallel ranks, one part of the tokens on each with sequence parallelism."""
        n = self.split.sequence
        part = self.tape.new(x.count // n, x.dtype, "reduced")
        reduced = select(n == 1, x, part)
        return self.tape.record("reduce_scatter", (x,), reduced) if reduced is not x else x

    def joined(self, x: Value) -> Value:
        """The parts of all tensor-parallel ranks, gathered; itself where nothing is divided."""
        t = self.split.tensor
        whole = self.tape.new(x.tensor.count * t, x.tensor.dtype, "gathered")
        gathered = select(t == 1, x.tensor, whole)
        if gathered is not x.tensor:
            self.tape.record("all_gather", (x.tensor,), gathered)
        return Value(gathered, x.width, False, True)

    def embedding(self, op: Any) -> Value:
        tape = self.tape
        stored = "fp32" if tape.autocast else tape.compute
        rows = self.tokens // self.split.sequence
        if op.role == "distance":
            self.distances = self.weight(op.rows * op.width)
            return Value(self.distances, op.width)
        if op.role == "token":
            # a decoder's tokens are the labels, shifted: a tensor that the step makes
            kind = ACTIVATION if self.source else INPUT
            ids = tape.given(rows, "int64", "token ids", kind=kind, fixed=True)
            shape = rows
        else:
            how = self.code.segments if op.role == "segment" else self.code.positions
            shape = self.own // self.split.sequence * self.rows_of(how)
            kind = INPUT if how == "buffer" else ACTIVATION
            ids = tape.given(shape, "int64", f"{op.name}/position ids", kind=kind, fixed=True)
        out = tape.new(shape * op.width, stored, "embedded")
        rows_here = ceil_div(op.rows, self.split.tensor) if op.role == "token" else op.rows
        grads = rows_here * op.width * BYTES[stored] if self.code.tuning is None else 0
        return Value(tape.record("embedding", (ids,), out, (ids,), weight=grads), op.width)

    def rows_of(self, how: str) -> Number:
        """Rows of a table of ids or angles: one a sequence, or one for all."""
        return self.b if how == "each" or (how == "source" and not self.source) else 1

    def slice(self, op: Any) -> Value:
        x = self.read(op)
        cuts = self.code.frame.cuts and op.name in JOINED
        part = self.tape.slice(x.tensor, x.tensor.count * op.width // x.width, cuts)
        if op.indexed:
            index = self.tape.new(1, "int64", "index", fixed=True)
            taken = self.tape.new(part.count, part.dtype, "taken")
            part = self.tape.record("index", (x.tensor,), taken, (index,))
        if op.repeats > 1:
            part = part.view(part.count * op.repeats)
        if op.groups > 1:
            part = self.tape.copy(part, "put together")
        return Value(part, op.width * op.repeats, x.divided, x.whole)

    # --- what is answered approximately: kernels that keep what they read ---

    def reused(self, op: Any) -> Value:
        """An operation whose weights stand elsewhere works as ever; autocast casts them once for all uses."""
        self.tape.copies = self.copies.setdefault(id(op.of), {})
        made = _RULES[type(op.of)](self, replace(op.of, name=op.name, reads=op.reads))
        self.tape.copies = None
        return made

    def learnt(self, op: Any) -> Value:
        """Small tensors of the layer's own, which no other operation makes."""
        count = sum(weight.count for weight in op.weights())
        return Value(self.weight(count), count)

    def block_matmul(self, op: Any) -> Value:
        """Batched products, one a block. Sequences are folded into one dimension by a copy, or, where each has a
        product of its own, the weight is repeated for each."""
        x = self.read(op)
        tape, width = self.tape, op.blocks * op.d_out
        tensor = tape.lowered(x.tensor)
        is_part = any(isinstance(one, Slice) and one.name == op.reads[0] for one in self.program)
        if not is_part:
            if id(tensor) not in self.shifted:
                self.shifted[id(tensor)] = select(self.b == 1, tensor, tape.copy(tensor, "by blocks"))
            tensor = self.shifted[id(tensor)]
        out = tape.new(tensor.count * op.d_out // op.d_in, tensor.dtype, "output")
        count = op.blocks * op.d_in * op.d_out
        kept = [tensor]
        weight = tape.given(count, tensor.dtype, "weight", kind=WEIGHT)
        if tape.autocast:
            weight = tape.weight_copy(count, f"{op.name}/weight")
        if self.code.mixer == "apart":
            weight = select(self.b == 1, weight, tape.new(self.b * count, tensor.dtype, "weight for each sequence"))
        kept.append(weight)
        grads = count * sized(1, "fp32" if tape.autocast else tape.compute)
        return Value(tape.record("bmm", (tensor,), out, kept, weight=grads), width, x.divided, x.whole)

    def table_matmul(self, op: Any) -> Value:
        """The table's rows, projected once for all sequences, and the result repeated for each."""
        self.exact = self.exact and self.code.laid_by_heads
        tape = self.tape
        rows_here = minimum(op.rows, 2 * self.s) if op.within else op.rows
        table = self.distances
        if table is None or op.within:
            table = self.weight(rows_here * op.d_in)
        if id(table) not in self.shifted:
            self.shifted[id(table)] = tape.dropout(table, self.dropout)
        x = tape.lowered(self.shifted[id(table)])
        if tape.copies is not None:  # the weight is the content's, which keeps autocast's copy of it
            rows = tape.record("linear", (x,), tape.new(rows_here * op.d_out, x.dtype, "rows"), (x,))
        else:
            rows = tape.linear(x, op.d_in, op.d_out, op.bias, f"{op.name}/weight")
        return Value(tape.copy(rows.view(rows.count * self.b), "for each sequence"), op.d_out)

    def relative_scores(self, op: Any) -> Value:
        """Scores against each row, of which each pair's distance then chooses one: both and the choice are kept."""
        self.exact = self.exact and self.code.laid_by_heads
        tape = self.tape
        content = self.turned(self.read(op).tensor)
        table = tape.lowered(self.read(op, 1).tensor)
        rows_here = minimum(op.rows, 2 * self.s) if op.within else op.rows
        scores = tape.matmul(content, table, self.tokens * op.heads * rows_here, "scores of rows")
        index = tape.new(self.own * self.s, "int64", "distances", fixed=True)
        pairs = tape.new(self.tokens * op.heads * self.s, scores.dtype, "scores of pairs")
        pairs = tape.record("gather", (scores,), pairs, (scores, index))
        return Value(self.over_constant(pairs), op.heads * op.rows)

    def turned(self, x: Tensor) -> Tensor:
        """The tensor laid out by heads: one copy for all that read it."""
        x = self.tape.lowered(x)
        if id(x) not in self.shifted:
            self.shifted[id(x)] = self.tape.copy(x, "by heads")
        return self.shifted[id(x)]

    def over_constant(self, x: Tensor) -> Tensor:
        """x divided by a constant that is a tensor."""
        return self.tape.multiply(x, self.tape.new(1, x.dtype, "constant", fixed=True), "divided")

    def indexer(self, op: Any) -> Value:
        """The choice of keys, which runs without autograd and keeps nothing: the scores of every query with every key,
        for each head, come and go, and for several sequences the keys are first copied for every query."""
        x, latent = self.read(op), self.read(op, 1)
        tape = self.tape
        outer, tape.again = tape.again, True
        stream = "fp32" if tape.autocast else tape.compute
        pairs = self.tokens * self.s

        def product(read: Tensor, d_in: Number, d_out: Number) -> Tensor:
            read = tape.lowered(read)
            copy = d_in * d_out * BYTES[tape.autocast] if tape.autocast else 0  # of the weight, in autocast's cache
            made = tape.new(read.count // d_in * d_out, read.dtype, "output")
            return tape.record("linear", (read,), made, cached=copy)

        made = product(latent.tensor, op.q_rank, op.heads * op.head_dim)
        key = tape.layer_norm(product(x.tensor, op.d_in, op.head_dim), self.tokens, (), 0)
        turned = []
        for part in (made, key):
            rotated = tape.new(part.count * op.rotary // op.head_dim, stream, "rotated")
            turned.append(tape.record("rotary", (part,), rotated))
        q, k = (
            tape.record("cat", (t, part), tape.new(t.count, stream, "joined"))
            for t, part in zip((made, key), turned, strict=True)
        )
        spread = tape.lowered(tape.cast(k, "fp32")).view(pairs * op.head_dim)
        spread = select(either(self.b > 1, False), tape.copy(spread, "spread"), spread)
        scores = tape.matmul(tape.cast(q, "fp32"), spread, pairs * op.heads, "scores")
        scores = tape.relu(tape.scale(scores))
        weights = tape.scale(tape.cast(product(x.tensor, op.d_in, op.heads), "fp32"))
        total = tape.scale(tape.matmul(weights, scores, pairs, "summed"))
        chosen = tape.record("topk", (total,), tape.new(self.tokens, "int32", "chosen keys"))
        names = ("q", "kv_a", "q_rope", "k_rope")  # of the attention around it
        tape.hold(made, key, *turned, q, k, scores, chosen, *(self.values[n].tensor for n in names))
        tape.again = outer
        return Value(chosen, 1, x.divided)

    def convolved(self, op: Any) -> Value:
        """A convolution keeps its input; parts of several products are put together first."""
        first = self.read(op)
        inputs = tuple(self.read(op, i).tensor for i in range(len(op.reads)))
        count = self.tokens * op.channels // (self.split.tensor if first.divided else 1)
        joined = inputs[0]
        if len(inputs) > 1:
            whole = self.made_of(op.reads)
            joined = whole or self.tape.record("cat", inputs, self.tape.new(count, joined.dtype, "joined"))
        by_blocks = self.code.mixer == "apart" and any(isinstance(one, BlockMatmul) for one in self.program)
        if op.group > 1 or self.code.mixer == "torch" or by_blocks:
            joined = self.tape.copy(self.tape.lowered(joined), "input by channels")
        out = self.tape.new(count, joined.dtype, "convolved")
        if self.code.mixer == "torch" and op.group == 1:  # padded to both sides: the result is cut from a longer one
            out.places[0][1].size = out.size // self.own * (self.own + op.kernel - 1)
        stored = "fp32" if self.tape.autocast else self.tape.compute
        grads = sum(weight.count for weight in op.weights()) * sized(1, stored)
        kept = [joined]
        if self.tape.autocast and (self.code.mixer == "torch" or op.group > 1):
            kept.append(self.tape.weight_copy(op.channels * op.group * op.kernel, f"{op.name}/weight"))
        convolved = self.tape.record("conv", (joined,), out, kept, weight=grads)
        return Value(convolved, op.channels, first.divided, first.whole)

    def made_of(self, names: tuple[str, ...]) -> Tensor | None:
        """The tensor that the named outputs are slices of, where they are all of it."""
        parts = [op for op in self.program if op.name in names]
        slices = [op for op in parts if isinstance(op, Slice)]
        if len(slices) < len(parts) or len({op.reads for op in slices}) > 1:
            return None
        whole = self.values[slices[0].reads[0]]
        return whole.tensor if sum(op.width for op in slices) == whole.width else None

    def mixed(self, op: Any) -> Value:
        """The tensor of the tokens before is made once for all that mix the same."""
        x, share = self.read(op), self.read(op, 1).tensor
        tape = self.tape
        if id(x.tensor) not in self.shifted:
            self.shifted[id(x.tensor)] = tape.copy(x.tensor, "tokens before")
        before = self.shifted[id(x.tensor)]
        rest = tape.scale(share, "1 - share")
        return Value(tape.add(tape.multiply(x.tensor, share), tape.multiply(before, rest)), x.width)

    def scanned(self, op: Any) -> Value:
        """A recurrence, by the kernel or the code that runs it (mixers.py)."""
        first = self.read(op)
        ways = self.split.tensor if first.divided else 1
        size = mixers.Sizes(
            self.b, self.own, op.heads // ways, op.head_dim, op.state, ceil_div(op.groups, ways), op.chunk
        )
        tape, prefix = self.tape, op.name.removesuffix("scan")
        read = [self.read(op, index).tensor for index in range(len(op.reads))]
        tape.again = False
        if op.kind == "selective" and self.code.mixer == "whole":
            out = mixers.inner(tape, self.beside(op, "in_proj"), self.beside(op, "x_proj"), size)
        elif op.kind == "selective":
            u, delta, b, c = read[:4]
            by_heads = any(isinstance(one, BlockMatmul) and one.name == f"{prefix}x_proj" for one in self.program)
            out = mixers.selective(tape, (u, delta, b, c), self.beside(op, "gate"), size, turned=not by_heads)
        elif op.kind == "ssd":
            normed = any(isinstance(one, Norm) and one.name == f"{prefix}norm" for one in self.program)
            out = mixers.ssd(tape, self.source_of(f"{prefix}gate"), size, normed)
        elif op.kind == "delta":
            out = mixers.delta(tape, read[0], read[1], read[2], size, op.doubled)
        elif op.kind == "wkv":
            out = mixers.wkv(tape, read[0], read[1], size)
        elif op.kind == "lightning":
            out = mixers.lightning(tape, read[0], size)
        else:
            out = mixers.rg_lru(tape, read[0], read[1], read[2], size)
        return Value(out, op.heads * op.head_dim, first.divided, first.whole)

    def source_of(self, name: str) -> Tensor:
        """The tensor that the named slice is cut from."""
        cut = next(op for op in self.program if op.name == name)
        return self.values[cut.reads[0]].tensor

    def beside(self, op: Operation, name: str) -> Tensor:
        """What another operation of the same mixer made."""
        return self.values[op.name.removesuffix("scan") + name].tensor

    def concat(self, op: Any) -> Value:
        first = self.read(op)
        count = self.tokens * op.width // (self.split.tensor if first.divided else 1)
        inputs = tuple(self.read(op, i).tensor for i in range(len(op.reads)))
        widest = max(inputs, key=lambda tensor: BYTES[tensor.dtype]).dtype
        out = self.tape.new(count, first.tensor.dtype if op.first_type else widest, "joined")
        return Value(self.tape.record("cat", inputs, out), op.width, first.divided, first.whole, True)

    # --- elementwise ---

    def add(self, op: Any) -> Value:
        first = self.read(op)
        total = first.tensor
        for index in range(1, len(op.reads)):
            other = self.read(op, index).tensor
            if op.dropout:
                other = self.tape.dropout(other, self.dropout)
            total = self.tape.add(total, other)
        return Value(total, op.width, first.divided, first.whole)

    def dropped(self, op: Any) -> Value:
        x = self.read(op)
        return Value(self.tape.dropout(x.tensor, self.dropout), x.width, x.divided, x.whole)

    def jittered(self, op: Any) -> Value:
        """x·noise, in place: the noise is kept."""
        x = self.read(op)
        noise = self.tape.new(x.tensor.count, x.tensor.dtype, "noise", fixed=True)
        out = self.tape.record("mul", (x.tensor, noise), x.tensor.view(), (noise,))
        return Value(out, x.width, x.divided, x.whole)

    def multiply(self, op: Any) -> Value:
        values = [self.read(op, i) for i in range(2)]
        if op.reads[0] in self.gates:
            gated = self.gated(values[0].tensor, values[1].tensor)
            return Value(gated, op.width, values[1].divided, values[1].whole)
        wide = max(values, key=lambda v: v.width if isinstance(v.width, int) else 0)
        other = values[1] if wide is values[0] else values[0]
        product = self.tape.multiply(wide.tensor, other.tensor)
        return Value(product, op.width, wide.divided, wide.whole)

    def gated(self, gate: Tensor, up: Tensor) -> Tensor:
        """activation(gate)·up in one kernel, which keeps both."""
        out = self.tape.new(up.count, up.dtype, "gated")
        return self.tape.record("swiglu", (gate, up), out, (gate, up))

    def scale(self, op: Any) -> Value:
        x = self.read(op)
        if op.positions:
            factor = self.tape.new(self.own, "fp32", "factor", fixed=True)
            scaled = self.tape.multiply(x.tensor, factor)
            return Value(self.tape.cast(scaled, x.tensor.dtype), x.width, x.divided, x.whole, x.heads_first)
        if op.vector:
            stored = "fp32" if self.tape.autocast else self.tape.compute
            constants = self.tape.given(op.width, stored, "constants", kind=WEIGHT, fixed=True)
            return Value(self.tape.multiply(x.tensor, constants), x.width, x.divided, x.whole)
        if op.masks:
            dtype = op.held or x.tensor.dtype
            mask = self.tape.new(self.tokens, dtype, "mask of tokens", fixed=True)
            if dtype == "fp32" and "tokens" in self.masks:  # the step's own, which no cast copies
                mask = self.tape.given(self.tokens, dtype, "mask of tokens", kind=INPUT, fixed=True)
            self.masks["tokens"] = mask
            if op.held:
                filled = self.tape.new(x.tensor.count, x.tensor.dtype, "filled")
                return Value(self.tape.record("masked_fill", (x.tensor,), filled, (mask,)), x.width)
            return Value(self.tape.multiply(x.tensor, mask), x.width, x.divided, x.whole)
        if op.cast or (op.held and op.held != x.tensor.dtype):
            factor = self.tape.new(1, x.tensor.dtype, "factor", fixed=True)
            return Value(self.tape.multiply(x.tensor, factor), x.width, x.divided, x.whole)
        if not op.learnt:
            return Value(self.tape.scale(x.tensor), x.width, x.divided, x.whole)
        weight = self.weight(op.width)
        return Value(self.tape.multiply(x.tensor, weight), x.width, x.divided, x.whole)

    def softcap(self, op: Any) -> Value:
        x = self.read(op)
        return Value(self.capped(x.tensor), x.width, x.divided, x.whole)

    def capped(self, x: Tensor) -> Tensor:
        """cap·tanh(x/cap)."""
        return self.tape.scale(self.tape.tanh(self.tape.scale(x)))

    def cast(self, op: Any) -> Value:
        x = self.read(op)
        stored = "fp32" if op.wide or self.tape.autocast else self.tape.compute
        return Value(self.tape.cast(x.tensor, stored), x.width, x.divided, x.whole)

    def clamp(self, op: Any) -> Value:
        x = self.read(op)
        out = self.tape.new(x.tensor.count, x.tensor.dtype, "clamped")
        return Value(self.tape.record("clamp", (x.tensor,), out, (x.tensor,)), x.width, x.divided, x.whole)

    def activation(self, op: Any) -> Value:
        x = self.read(op)
        if op.name in self.gates:  # one kernel with the product that follows
            return x
        return Value(self.activated(x.tensor, op.function), x.width, x.divided, x.whole)

    def activated(self, x: Tensor, function: str) -> Tensor:
        tape = self.tape
        function = dict(self.code.functions).get(function, function)
        if function == "relu":
            return tape.relu(x)
        if function in ("relu2", "relu_squared"):
            return tape.power(tape.relu(x))
        if function == "sigmoid":
            return tape.sigmoid(x)
        if function == "tanh":
            return tape.tanh(x)
        if function == "linear":
            return x
        if function == "gelu_10":  # cut to −10 … 10
            grown = tape.smooth(x, "gelu")
            return tape.record("clamp", (grown,), tape.new(x.count, x.dtype, "clipped"), (grown,))
        if function == "gelu_python":  # 0.5·x·(1 + erf(x/√2))
            return tape.multiply(tape.scale(x), tape.shift(tape.smooth(tape.scale(x), "erf")))
        if self.code.written and function in ("gelu_new", "gelu_accurate", "gelu_python_tanh"):
            # 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))
            cube = tape.scale(tape.power(x))
            inner = tape.scale(tape.add(x, cube))
            return tape.multiply(tape.scale(x), tape.shift(tape.tanh(inner)))
        if self.code.written and function == "gelu_fast":
            # 0.5·x·(1 + tanh(x·0.7978845608·(1 + 0.044715·x·x)))
            square = tape.multiply(tape.scale(x), x)
            inner = tape.multiply(tape.scale(x), tape.shift(tape.scale(square)))
            return tape.multiply(tape.scale(x), tape.shift(tape.tanh(inner)))
        if self.code.written and function == "quick_gelu":
            return tape.multiply(x, tape.sigmoid(tape.scale(x)))
        if function == "xielu":
            return self.xielu(x)
        if function == "swiglu_oai":
            raise Refused("swiglu_oai stands in experts alone")
        return tape.smooth(x, function, function == "bloom_gelu")

    def xielu(self, x: Tensor) -> Tensor:
        """where(x > 0, α₊·x·x + β·x, α₋·(expm1(min(x, ε)) − x) + β·x), its two scalars learnt."""
        tape = self.tape
        stored = "fp32" if tape.autocast else tape.compute
        up, down = (tape.record("softplus", (self.weight(1),), tape.new(1, stored, "scalar")) for _ in range(2))
        positive = tape.add(tape.multiply(tape.multiply(x, up), x), tape.scale(x))
        least = tape.record("minimum", (x,), tape.new(x.count, x.dtype, "least"), (x,))
        raised = tape.raised(least)
        grown = tape.new(raised.count, raised.dtype, "expm1")
        grown = tape.record("expm1", (raised,), grown, (grown,))
        negative = tape.add(tape.multiply(tape.add(grown, x), down), tape.scale(x))
        condition = tape.new(x.count, "bool", "positive", fixed=True)
        return tape.record("where", (positive, negative), tape.new(x.count, positive.dtype, "xielu"), (condition,))

    # --- norms ---

    def weight(self, count: Number) -> Tensor:
        """A learnt vector, as it is stored."""
        stored = "fp32" if self.tape.autocast else self.tape.compute
        tuning = self.code.tuning
        frozen = tuning is not None and tuning.method != "adapter_v2"
        return self.tape.given(count, stored, "weight", kind=WEIGHT, fixed=frozen)

    def norm(self, op: Any) -> Value:
        x = self.read(op)
        out = self.normalised(x.tensor, op, x.divided)
        if x.tensor is self.distances:  # every layer reads the one table
            out.places[0][1].shared = True
            self.distances = out
        if op.gated and op.name not in self.inside:
            gate = self.read(op, 1).tensor
            if any(isinstance(one, Slice) and one.name == op.reads[1] for one in self.program):
                gate = self.tape.copy(gate, "gate")  # a group's heads lie apart
            out = self.tape.multiply(out, self.tape.smooth(self.tape.cast(gate, "fp32"), "silu"))
            out = self.tape.cast(out, x.tensor.dtype)
        return Value(out, x.width, x.divided, x.whole, x.heads_first)

    def normalised(self, x: Tensor, op: Norm, divided: bool) -> Tensor:
        tape = self.tape
        width = op.width // (self.split.tensor if divided and op.groups == 1 else 1)
        rows = x.count // width
        narrow = x.dtype
        size = width * (op.groups if op.per_group else 1)
        arithmetic = op.arithmetic if self.code.norms != "fused" else "fused"
        if self.code.norms == "fp32" and op.kind == "rms":
            arithmetic = "fp32"
        learnt = (op.weight + op.bias) * size * BYTES["fp32" if tape.autocast else tape.compute]
        if self.code.norms == "lowered" and tape.autocast:
            return self.lowered_norm(x, op, rows, size, learnt)
        if arithmetic in ("fused", "fused_fp32"):
            if arithmetic == "fused_fp32":
                x = tape.cast(x, "fp32")
            if op.kind == "rms":
                return (
                    tape.cast(tape.rms_norm(x, rows, learnt), narrow)
                    if arithmetic != "fused"
                    else tape.rms_norm(x, rows, learnt)
                )
            shifted = [tape.scale(self.weight(size))] if op.unit_offset else []
            out = tape.layer_norm(x, rows, shifted, learnt)
            return tape.cast(out, narrow) if arithmetic == "fused_fp32" else out
        given, x = x, tape.cast(x, "fp32")
        if op.kind == "layer":
            mean = tape.mean(x, rows)
            deviation = tape.add(x, mean)
            centred = tape.add(x, mean)
        else:
            deviation = centred = x
        if arithmetic == "fp32_spread":
            centred = given
        variance = tape.mean(tape.power(deviation), rows)
        spread = tape.rsqrt(tape.shift(variance))
        out = tape.multiply(centred, spread, "normalised")
        if not op.weight:
            return tape.cast(out, narrow)
        weight = self.weight(size)
        if arithmetic == "fp32":
            if op.unit_offset or op.kind == "layer" or self.code.wide_weight:
                weight = tape.cast(weight, "fp32")
            if op.unit_offset:
                weight = tape.shift(weight, "1 + weight")
            return tape.cast(tape.multiply(out, weight), narrow)
        if arithmetic == "fp32_spread":  # cast to the weight's type
            narrow = weight.dtype
        product = tape.multiply(tape.cast(out, narrow), weight)
        tape.hold(out, variance)
        return product

    def lowered_norm(self, x: Tensor, op: Norm, rows: Number, size: int, learnt: Number) -> Tensor:
        """A layer norm that the code takes out of autocast: its arguments are cast to 16 bits on every pass."""
        tape = self.tape
        lowered = [tape.cast(self.weight(size), tape.autocast) for there in (op.weight, op.bias) if there]
        x = tape.lowered(x)
        mean, rstd = (tape.new(rows, "fp32", what, fixed=True) for what in ("mean", "rstd"))
        out = tape.new(x.count, x.dtype, "normalised")
        return tape.record("layer_norm", (x,), out, (x, mean, rstd, *lowered), weight=learnt)

    # --- attention ---

    def position_bias(self, op: Any) -> Value:
        """A look-up for each pair of query and key, once for all sequences."""
        tape = self.tape
        stored = "fp32" if tape.autocast else tape.compute
        pairs = self.own * self.s
        buckets = tape.new(pairs, "int64", "buckets", fixed=True)
        heads = ceil_div(op.heads, self.split.tensor)
        bias = tape.new(pairs * heads, stored, "bias")
        self.bias = tape.record("embedding", (buckets,), bias, (buckets,), weight=op.buckets * heads * BYTES[stored])
        return Value(self.bias, heads, True)

    def biased(self, op: AttentionCore, heads: Number, keys: Number) -> Tensor:
        """The position bias as a kernel's additive mask: laid out by heads, what is masked cut out of it."""
        tape = self.tape
        stored = "fp32" if tape.autocast else tape.compute
        pairs = self.own * keys
        if op.cross:  # no distances: zeros, made once
            own = next((one for one in self.program if isinstance(one, PositionBias)), None)
            if own is not None:
                self.zeros = tape.new(pairs * heads, tape.autocast or stored, "no bias", fixed=True)
                self.zeros.places[0][1].shared = own.shared
            assert self.zeros is not None  # a first layer has a table
            return self.aligned(self.zeros, pairs // keys, keys, heads)
        table = self.bias if self.bias is not None else self.weight(pairs * heads)
        bias = Tensor(pairs * heads, stored, table.places)
        if op.causal:
            condition = tape.new(pairs, "bool", "causal mask", fixed=True)
            bias = tape.record("where", (bias,), tape.new(bias.count, stored, "bias within the mask"), (condition,))
        return self.aligned(tape.lowered(tape.copy(bias, "bias by heads")), pairs // keys, keys, heads)

    def aligned(self, mask: Tensor, queries: Number, keys: Number, heads: Number) -> Tensor:
        """An additive mask as the efficient kernel takes it: rows padded to a multiple of 8, a copy unless they are."""
        rows = ceil_div(keys, MASK_KEYS) * MASK_KEYS
        padded = self.tape.new(queries * rows * heads, mask.dtype, "padded bias")
        return select(rows == keys, mask, self.tape.record("pad", (mask,), padded))

    def table(self, op: Any, dtype: str) -> tuple[Tensor, Tensor]:
        """cos and sin of every position: made once, kept by whichever layers' products need them."""
        key = (op.dim, self.code.by_kind and self.windowed)
        if key not in self.tables:
            kept = "fp32" if self.code.rotary_fp32 else dtype
            dim = op.dim // 2 if self.code.half_tables else op.dim
            kept = "fp32" if op.pairing == "complex" else kept
            scope, self.tape.scope = self.tape.scope, "rotary"
            rows = self.own * (self.b if self.code.positions == "each" else 1)
            pair = tuple(self.tape.new(rows * dim, kept, what, fixed=True) for what in ("cos", "sin"))
            for tensor in pair:
                tensor.places[0][1].shared = True
            self.tape.scope = scope
            self.tables[key] = (pair[0], pair[1])
        return self.tables[key]

    def rotary(self, op: Any) -> Value:
        x = self.read(op)
        tape = self.tape
        stream = "fp32" if tape.autocast else tape.compute
        tensor = x.tensor
        if self.code.rotary == "kernel":
            out = tape.new(tensor.count, tensor.dtype, "rotated")
            return Value(tape.record("rotary", (tensor,), out), x.width, x.divided, x.whole)
        if self.code.rotary == "table":
            cos, sin = self.table(op, stream)
        else:
            cos, sin = self.widened(op, tensor.dtype if self.code.rotary in ("pair", "values") else stream)
        if op.pairing == "complex" and self.code.rotary == "table":
            turns = cos.view()  # a complex64 number of 8 bytes for each pair
            turned = tape.multiply(tape.cast(tensor, "fp32"), turns)
            return Value(tape.cast(turned, tensor.dtype), x.width, x.divided, x.whole)
        narrow = tensor.dtype
        part = tensor if op.dim == op.head_dim else tape.slice(tensor, tensor.count * op.dim // op.head_dim)
        if op.upcast:
            part = tape.cast(part, "fp32")
        turned = tape.multiply(part, cos)
        other = tape.multiply(tape.rotate(part), sin)
        out = tape.add(turned, other)
        if op.upcast or (self.code.rotary_fp32 and self.code.rotary == "table"):
            out = tape.cast(out, narrow)
        joins = self.code.joins or op.dim != op.head_dim
        if joins:
            joined = tape.new(tensor.count, out.dtype, "joined")
            out = tape.record("cat", (out,) if op.dim == op.head_dim else (out, tensor), joined)
        return Value(out, x.width, x.divided, x.whole, joins)

    def widened(self, op: Any, stream: str) -> tuple[Tensor, Tensor]:
        """cos and sin repeated for this layer: for query and key together, or for each."""
        key = (op.dim, op.name if self.code.rotary == "pair" else "")
        if key not in self.own_tables:
            kept = "fp32" if self.code.rotary_fp32 else stream
            dim = op.dim
            pair = tuple(self.tape.new(self.own * dim, kept, what, fixed=True) for what in ("cos", "sin"))
            self.own_tables[key] = (pair[0], pair[1])
        return self.own_tables[key]

    def core(self, op: Any) -> Value:
        q, k, v = (self.read(op, i) for i in range(3))
        kernel = self.attention
        if kernel == FLASH and op.qk_dim != op.v_dim and self.code.rotary != "kernel":
            kernel = EFFICIENT  # torch's flash kernel takes one head size for all three
        masked = kernel != EAGER and self.is_masked(op)
        if kernel == FLASH and (masked or op.position == "relative" or op.qk_dim > FLASH_LARGEST):
            kernel = EFFICIENT  # flash takes no mask, and no larger heads
        heads = op.heads // self.split.tensor
        kv_heads = heads if k.width == op.heads * op.qk_dim else maximum(op.kv_heads // self.split.tensor, 1)
        width = op.heads * op.v_dim
        written = self.code.ungrouped and kv_heads is not heads and op.kv_heads != op.heads
        tensors = (q.tensor, k.tensor, v.tensor)
        if self.code.gathers_heads:
            tensors = self.whole_heads(op, tensors)
        if self.code.query_scale:
            factor = self.tape.new(self.own, q.tensor.dtype, "query scale", fixed=True)
            tensors = (self.tape.multiply(q.tensor, factor), *tensors[1:])
        if self.code.joined_qkv:
            whole = self.tape.new(sum((t.count for t in tensors), 0), v.tensor.dtype, "query, key and value")
            tensors = (*tensors[:2], self.tape.slice(whole, v.tensor.count))
        if self.code.repeats:
            keys, values = (self.repeated_in_kernel(t, heads, kv_heads) for t in tensors[1:])
            tensors = (tensors[0], keys, values)
        if self.selective:  # the core runs again in backward: its inputs are all that is kept for it
            self.tape.keep(*tensors)
            self.tape.again = True
        if self.code.laid_by_heads:
            out = self.by_heads(op, tensors, heads)
        elif kernel == EAGER:
            apart = tuple(t.view(rows_apart=not value.heads_first) for t, value in zip(tensors, (q, k, v), strict=True))
            out = self.eager(op, apart, heads, kv_heads)
        elif written:
            apart = tuple(t.view(rows_apart=not value.heads_first) for t, value in zip(tensors, (q, k, v), strict=True))
            out = self.written_out(op, apart, heads, kv_heads)
        else:
            out = self.kernel(op, tensors, heads, kv_heads, kernel, masked)
            cut = kernel == FLASH and op.qk_dim % FLASH_HEAD != 0
            if q.heads_first and kernel != EFFICIENT and not cut:  # the result lies as the query does
                out = select(heads == 1, out, self.tape.copy(out, "tokens first"))
        self.tape.again = False
        if self.code.tuning is not None and self.code.tuning.method.startswith("adapter"):
            out = self.prompted(out)
        return Value(out, width, True, True)

    def whole_heads(self, op: AttentionCore, qkv: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """With more ranks than key/value heads: the joined product's result gathered, of which each rank's key is
        rotated, its value a view that keeps it whole."""
        query, key, value = qkv
        few = self.split.tensor > op.kv_heads
        if not is_array(few) and not few:
            return qkv
        width = op.heads * op.qk_dim + op.kv_heads * (op.qk_dim + op.v_dim)
        joined = self.tape.new(self.tokens * width, value.dtype, "gathered query, key and value")
        one = self.tape.slice(self.tape.record("all_gather", (value,), joined), self.tokens * op.v_dim)
        own = self.tape.record("all_gather", (key,), self.tape.new(self.tokens * op.qk_dim, key.dtype, "whole key"))
        return query, select(few, own, key), select(few, one, value)

    def is_masked(self, op: AttentionCore) -> bool:
        """Whether the kernel gets an explicit mask. One that a window spares is not made."""
        if self.code.masked or not self.code.window_mask:
            return self.code.masked
        bounds = [bound for bound in (op.window, op.chunk) if bound is not None]
        longest = self.s.max() if is_array(self.s) else self.s
        return bool(bounds) and bool(longest >= min(bounds) - (0 if op.causal else 1))

    def prompted(self, attended: Tensor) -> Tensor:
        """attended + gate·(attention over the adapter's prompt): the gate keeps what it multiplies."""
        tape = self.tape
        answer = tape.new(attended.count, attended.dtype, "attended prompt")
        gate = tape.given(1, attended.dtype, "gate", kind=WEIGHT)
        return tape.add(attended, tape.multiply(answer, gate))

    def repeated(self, x: Tensor, heads: Number, kv_heads: Number) -> Tensor:
        """Keys or values repeated for each query head: a copy, but a view of one head of one sequence."""
        count = x.count // kv_heads * heads
        copied = self.tape.copy(x.view(count), "repeated")
        stays = select(either(self.b == 1, False), select(kv_heads == 1, x.view(count), copied), copied)
        return select(heads == kv_heads, x, stays)

    def folded(self, x: Tensor, heads: Number) -> Tensor:
        """Sequences and heads as one dimension, as a batched product wants them: a copy where they lie apart."""
        if not x.rows_apart:
            return x
        copied = self.tape.copy(x, "folded")
        return select(either(self.b == 1, heads == 1), x, copied)

    def eager(self, op: AttentionCore, qkv: tuple[Tensor, ...], heads: Number, kv_heads: Number) -> Tensor:
        """softmax(q·kᵀ)·v in elementary operations."""
        tape, code = self.tape, self.code
        q, k, v = qkv
        scores_count = self.b * heads * self.own * (self.source if op.cross else self.s)
        if code.ungrouped:  # by the product itself
            k, v = tape.lowered(k), tape.lowered(v)
        k, v = repeated = tuple(self.repeated(t, heads, kv_heads) for t in (k, v))
        value_type = v.dtype
        if code.softmax == "wide_scores":
            q, k = tape.cast(q, "fp32"), tape.cast(k, "fp32")
        if op.upcast:  # outside of autocast
            q, k = (tape.cast(self.folded(t, heads), "fp32") for t in (q, k))
            scores = tape.record("matmul", (q, k), tape.new(scores_count, "fp32", "scores"), (q, k))
        else:
            q, k = (self.folded(tape.lowered(t), heads) for t in (q, k))
            scores = tape.matmul(q, k, scores_count, "scores")
        scores = tape.scale(scores)
        if op.softcap:
            scores = self.capped(scores)
        if code.mask:
            mask = self.causal_mask()
            scores = tape.record("masked_fill", (scores,), tape.new(scores.count, scores.dtype, "masked"), (mask,))
        else:
            scores = tape.shift(scores, "masked", "fp32" if tape.autocast else "")
        if code.floors:  # by then of the mask's type
            scores = tape.raised(scores)
            least = tape.new(1, "fp32", "least", fixed=True)
            scores = tape.record("max", (scores,), tape.new(scores.count, scores.dtype, "cut"), (scores, least))
        if op.sinks:
            return self.with_sinks(scores, v, heads, scores_count, op)
        weights = tape.softmax(scores, "fp32" if code.softmax == "wide" else "")
        weights = tape.cast(weights, value_type)
        if code.softmax == "wide":
            tape.hold(scores)
        weights = tape.dropout(weights, self.dropped_share(op))
        self.scopes.weights(weights)
        out = tape.matmul(weights, self.folded(tape.lowered(v), heads), self.tokens * heads * op.v_dim, "values")
        out = tape.copy(out, "attended")
        tape.hold(*repeated)
        return out

    def dropped_share(self, op: AttentionCore) -> float:
        """The probability that one of attention's weights is dropped."""
        drops = self.code.drops == ALWAYS or (self.code.drops == ALIBI and op.position == "alibi")
        return self.dropout if drops else 0.0

    def by_heads(self, op: AttentionCore, qkv: tuple[Tensor, ...], heads: Number) -> Tensor:
        """Written-out attention of tensors that are laid out by heads, the scores of positions added."""
        tape = self.tape
        q, k, v = (self.turned(x) for x in qkv)
        count = self.b * heads * self.own * self.s
        scores = tape.matmul(q, self.over_constant(k), count, "scores")
        for one in self.program:
            if isinstance(one, RelativeScores):
                scores = tape.add(scores, self.values[one.name].tensor)
        mask = tape.new(self.b * self.own * self.s, "bool", "mask", fixed=True)
        scores = tape.record("masked_fill", (scores,), tape.new(count, scores.dtype, "masked"), (mask,))
        weights = tape.dropout(tape.softmax(scores), self.dropped_share(op))
        out = tape.matmul(tape.lowered(weights), v, self.tokens * heads * op.v_dim, "values")
        return tape.copy(out, "attended")

    def causal_mask(self) -> Tensor:
        """The boolean mask of this layer, or the one of all layers."""
        if self.code.mask == "each":
            return self.tape.new(self.b * self.own * self.s, "bool", "mask", fixed=True)
        if self.code.mask == "layer":
            return self.tape.new(self.own * self.s, "bool", "causal mask", fixed=True)
        if "mask" not in self.masks:
            self.masks["mask"] = self.tape.new(self.b * self.own * self.s, "bool", "causal mask", fixed=True)
            self.masks["mask"].places[0][1].shared = True
        return self.masks["mask"]

    def with_sinks(self, scores: Tensor, v: Tensor, heads: Number, count: Number, op: AttentionCore) -> Tensor:
        """Scores with one learnt score a head beside them: shifted by their maximum, normalised, the sink cut off."""
        tape = self.tape
        rows = self.b * heads * self.own
        combined = tape.copy(tape.scale(scores).view(count + rows), "with sinks")
        peak = tape.new(rows, "int64", "index of maximum", fixed=True)
        combined = tape.record("max", (combined,), tape.new(count + rows, scores.dtype, "shifted"), (peak,))
        weights = tape.softmax(combined)
        cut = tape.slice(weights, count)
        weights = tape.cast(cut, v.dtype)
        weights = tape.dropout(weights, self.dropped_share(op))
        out = tape.matmul(weights, self.folded(tape.lowered(v), heads), self.tokens * heads * op.v_dim, "values")
        return tape.copy(out, "attended")

    def kernel(
        self,
        op: AttentionCore,
        qkv: tuple[Tensor, ...],
        heads: Number,
        kv_heads: Number,
        kernel: str,
        masked: bool = False,
    ) -> Tensor:
        """One fused kernel: keeps query, key, value, result and log-sum-exp, the random generator's state, and a mask
        where it is given one."""
        tape = self.tape
        q, k, v = qkv
        # transformers leaves grouped heads to the kernel only without a mask (integrations/sdpa_attention.py)
        repeated = masked or op.qk_dim > FLASH_LARGEST
        if repeated:
            k, v = (self.repeated_by_model(t, heads, kv_heads) for t in (k, v))
        q, k, v = (tape.lowered(t) for t in (q, k, v))
        rows = self.own
        if kernel == EFFICIENT:
            rows = ceil_div(rows, EFFICIENT_ROWS) * EFFICIENT_ROWS
            if not repeated:
                k, v = (self.repeated_in_kernel(t, heads, kv_heads) for t in (k, v))
        padded = kernel == FLASH and op.qk_dim % FLASH_HEAD != 0
        size = ceil_div(op.v_dim, FLASH_HEAD) * FLASH_HEAD if padded else op.v_dim
        if padded:
            q, k, v = (
                tape.record("pad", (t,), tape.new(t.count // op.qk_dim * size, t.dtype, "padded")) for t in (q, k, v)
            )
        out = tape.new(self.tokens * heads * size, v.dtype, "attended")
        lse = tape.new(self.b * heads * rows, "fp32", "log-sum-exp", fixed=True)
        extra = [tape.new(n, "bool", "philox", fixed=True) for n in PHILOX[kernel]]
        if op.position == "relative":
            extra.append(self.biased(op, heads, self.source if op.cross else self.s))
        if masked:
            extra.append(self.mask(op, heads, kernel))
        out = tape.record("attention", (q, k, v), out, (q, k, v, out, lse, *extra))
        return tape.copy(tape.slice(out, self.tokens * heads * op.v_dim), "cut") if padded else out

    def mask(self, op: AttentionCore, heads: Number, kernel: str) -> Tensor:
        """An additive mask: one for all heads, made anew by each call from a boolean one, or with ALiBi's biases for
        each head, made once for all layers."""
        tape = self.tape
        keys = ceil_div(self.s, MASK_KEYS) * MASK_KEYS if kernel == EFFICIENT else self.s
        if op.position != "alibi":
            return tape.new(self.b * self.own * keys, tape.autocast or tape.compute, "mask", fixed=True)
        rows = self.b * heads * self.own
        if ALIBI not in self.masks:
            stored = "fp32" if tape.autocast else tape.compute
            self.masks[ALIBI] = tape.new(rows * self.s, stored, "mask with biases", fixed=True)
            self.masks[ALIBI].places[0][1].shared = True
        mask = tape.lowered(self.masks[ALIBI])
        return mask if keys == self.s else tape.copy(mask.view(rows * keys), "padded mask")

    def written_out(self, op: AttentionCore, qkv: tuple[Tensor, ...], heads: Number, kv_heads: Number) -> Tensor:
        """What scaled_dot_product_attention runs where no kernel takes the heads (ATen/native/transformers/
        attention.cpp, _scaled_dot_product_attention_math): elementary operations, in fp32."""
        tape = self.tape
        q, k, v = (tape.lowered(t) for t in qkv)
        narrow = q.dtype
        q, k, v = (tape.cast(t, "fp32") for t in (q, k, v))
        q, k = tape.scale(q), tape.scale(k)
        k, v = (self.repeated(t, heads, kv_heads) for t in (k, v))
        q, k = (self.folded(t, heads) for t in (q, k))
        scores = tape.record("matmul", (q, k), tape.new(self.b * heads * self.own * self.s, "fp32", "scores"), (q, k))
        weights = tape.new(scores.count, "fp32", "softmax")
        weights = tape.record("softmax", (scores,), weights, (weights,))
        weights = tape.dropout(weights, self.dropped_share(op))
        v = self.folded(v, heads)
        out = tape.new(self.tokens * heads * op.v_dim, "fp32", "values")
        out = tape.cast(tape.record("matmul", (weights, v), out, (weights, v)), narrow)
        return tape.copy(out, "attended")

    def repeated_by_model(self, x: Tensor, heads: Number, kv_heads: Number) -> Tensor:
        """Keys or values repeated for each query head: a copy, but a view of a single head."""
        wide = x.view(x.count // kv_heads * heads)
        return select(heads == kv_heads, x, select(kv_heads == 1, wide, self.tape.copy(wide, "repeated")))

    def repeated_in_kernel(self, x: Tensor, heads: Number, kv_heads: Number) -> Tensor:
        """A kernel that takes no grouped heads reads keys and values repeated for each query head."""
        copied = self.tape.copy(x.view(x.count // kv_heads * heads), "repeated")
        return select(heads == kv_heads, x, copied)

    # --- experts ---

    def router(self, op: Any) -> Value:
        """The choice of experts; its value is what weighs the chosen."""
        x = self.read(op)
        tape, code = self.tape, self.code
        k, e = op.top_k, op.experts
        rows = x.tensor.count // op.d_in
        outer = tape.compute, tape.autocast
        if code.router_apart and tape.autocast:
            tape.compute, tape.autocast = "fp32", ""
        tensor = tape.cast(x.tensor, "fp32") if op.upcast else x.tensor
        logits = tape.linear(tensor, op.d_in, e, op.bias, f"{op.name}/weight")
        made_in = logits.dtype
        if code.router == "sparsemixer":
            return Value(self.sparsemixer(logits, rows, k, e), k)
        chosen = tape.new(rows * k, "int64", "chosen", fixed=True)
        wide = logits if code.native_scores else tape.cast(logits, "fp32")
        if op.score == "softmax_top_k":
            best = tape.record("topk", (wide,), tape.new(rows * k, wide.dtype, "best"), (chosen,))
            weights = tape.softmax(best, best.dtype)
        else:
            asked = wide.dtype if code.native_scores == "kept" else ""
            scores = tape.sigmoid(wide) if op.score == "sigmoid" else tape.softmax(wide, asked)
            kept = [chosen, *self.groups(op, rows)]
            if op.upcast and not code.fp32_router and tape.compute != "fp32":
                kept.append(tape.new(op.d_in * e, "fp32", "wide weight", fixed=True))
            weights = tape.record("topk", (scores,), tape.new(rows * k, scores.dtype, "weights"), kept)
            if op.normalise:
                weights = self.shares(weights, rows)
        tape.compute, tape.autocast = outer
        if code.router != "scores":
            weights = tape.cast(weights, x.tensor.dtype if code.router == "tokens" else made_in)
        return Value(weights, k)

    def balanced(self, op: Any) -> Value:
        """Each layer's router logits, their softmax once more, and how many tokens each expert got."""
        tape = self.tape
        rows = self.tokens * self.routers * op.each
        probabilities = tape.softmax(
            tape.new(rows * op.experts, "fp32" if self.code.wide_logits else tape.compute, "x")
        )
        chosen = tape.new(rows * op.top_k, "int64", "chosen", fixed=True)
        shares = tape.new(op.experts, "fp32", "shares of tokens", fixed=True)
        loss = tape.new(1, "fp32", "balance")
        return Value(tape.record("balance", (probabilities,), loss, (chosen, shares)), 1)

    def groups(self, op: Router, rows: Number) -> list[Tensor]:
        """What the choice of groups keeps: each group's best experts, the chosen groups, and a mask of the others."""
        best = self.code.best_of_group
        if not best or (best == 1 and op.groups == 1):  # one best alone is asked for only where there are groups
            return []
        tape = self.tape
        indices = [tape.new(rows * n, "int64", "groups", fixed=True) for n in (best * op.groups, op.top_groups)]
        return [*indices, tape.new(rows * op.experts, "bool", "outside the groups", fixed=True)]

    def shares(self, weights: Tensor, rows: Number) -> Tensor:
        """The chosen scores, divided by their sum."""
        tape = self.tape
        summed_in = "fp32" if tape.autocast else weights.dtype
        total = tape.record("sum", (weights,), tape.new(rows, summed_in, "total"))
        if self.code.clamped:
            total = tape.record("clamp", (total,), tape.new(rows, total.dtype, "clamped total"), (total,))
        if self.code.new_shares:
            out = tape.new(weights.count, promoted(weights, total), "divided")
            return tape.record("div", (weights, total), out, (total, weights))
        divided = tape.new(weights.count, weights.dtype, "divided")
        return tape.record("div", (weights, total), divided, (total, divided))

    def sparsemixer(self, logits: Tensor, rows: Number, k: int, e: int) -> Tensor:
        """For each choice: the logits masked around the best, their softmax, and the probability of the chosen."""
        tape = self.tape
        parts = []
        for _ in range(k):
            mask = tape.new(rows * e, "bool", "masked", fixed=True)
            best, index = (tape.new(rows, "int64", what, fixed=True) for what in ("best", "chosen"))
            masked = tape.record("masked_fill", (logits,), tape.new(rows * e, logits.dtype, "left"), (mask, best))
            gates = tape.softmax(masked)
            one = tape.record("gather", (gates,), tape.new(rows, gates.dtype, "multiplier"), (index,))
            parts.append(tape.record("mixer", (one,), tape.new(rows, one.dtype, "kept multiplier"), (one,)))
        return tape.record("cat", tuple(parts), tape.new(rows * k, parts[0].dtype, "weights"))

    def clamped_swiglu(self, up: Tensor, count: Number) -> Tensor:
        """(up + 1)·gate·σ(α·gate) of gate and up, cut to an interval (gpt-oss)."""
        tape = self.tape
        parts = []
        for what in ("gate", "up"):
            part = tape.slice(up, count)
            parts.append(tape.record("clamp", (part,), tape.new(count, part.dtype, what), (part,)))
        gate, other = parts
        return tape.multiply(tape.scale(other), tape.multiply(gate, tape.sigmoid(tape.scale(gate))))

    def weighted_experts(self, op: Any) -> Value:
        """Every expert runs every token, its score multiplied in first: batched products, and a sum (Llama 4)."""
        x, weights = self.read(op), self.read(op, 1)
        tape = self.tape
        stored = "fp32" if tape.autocast else tape.compute
        local = ceil_div(op.experts, self.split.expert)
        tokens = x.tensor.count // op.d_model
        rows, inner = tokens * local, op.d_ff // self.split.tensor
        repeated = tape.copy(x.tensor.view(rows * op.d_model), "repeated")
        score = tape.record("scatter", (weights.tensor,), tape.new(rows, weights.tensor.dtype, "scores"))
        sent = tape.multiply(repeated, score, "weighted")
        first = inner * (2 if op.gated else 1)
        grads = local * op.d_model * sized(1, stored)

        def product(read: Tensor, width: Number, count: Number, what: str) -> Tensor:
            read = tape.lowered(read)
            kept = [read]
            if tape.autocast:
                kept.append(tape.new(local * op.d_model * width, tape.autocast, f"{what} weight"))
                kept[1].places[0][1].kind = WEIGHT_COPY
            made = tape.new(count, read.dtype, what)
            return tape.record("bmm", (read,), made, kept, weight=grads * width)

        up = product(sent, first, rows * first, "up")
        gate, other = (tape.slice(up, rows * inner) for _ in range(2))
        hidden = tape.multiply(self.activated(gate, op.function), other)
        out = product(hidden, inner, rows * op.d_model, "down")
        total = tape.record("sum", (out,), tape.new(x.tensor.count, out.dtype, "summed"))
        return Value(total, op.d_model, x.divided, x.whole)

    def order(self, router: str, rows: Number) -> tuple[Tensor, Tensor, Tensor]:
        """How a router's choices are sorted by expert, the tokens that they stand for, and their scores in that order:
        made once for all that follow the router."""
        if router not in self.orders:
            tape, weights = self.tape, self.values[router].tensor
            order, tokens = (tape.new(rows, "int64", what, fixed=True) for what in ("order", "token"))
            scores = tape.record("gather", (weights,), tape.new(rows, weights.dtype, "scores"), (order,))
            self.orders[router] = (order, tokens, scores)
        return self.orders[router]

    def expert_matmul(self, op: Any) -> Value:
        """One product an expert, of the rows that chose it, put together; index_add keeps what it adds."""
        x = self.read(op)
        tape = self.tape
        rows = self.tokens * op.top_k
        order, tokens, scores = self.order(op.reads[1], rows)
        read = x.tensor
        if op.reads_rows != "sorted":
            sent = tape.new(rows * op.d_in, read.dtype, "sent")
            read = tape.record("gather", (read,), sent, (tokens if op.reads_rows == "tokens" else order,))
        read = tape.lowered(read)
        local = ceil_div(op.experts, self.split.expert)
        kept = [read]
        if tape.autocast:  # of a part of the weight, which autocast casts anew each time
            kept.append(tape.new(local * op.d_in * op.d_out, tape.autocast, "weight", fixed=True))
        grads = local * op.d_in * op.d_out * sized(1, "fp32" if tape.autocast else tape.compute)
        out = tape.record("linear", (read,), tape.new(rows * op.d_out, read.dtype, "output"), kept, weight=grads)
        out = tape.copy(out, "joined")
        if op.makes == "choices":
            restored = tape.new(out.count, out.dtype, "restored")
            out = tape.record("index_add", (out,), restored, (order, out))
        elif op.makes == "tokens":
            out = tape.multiply(out, scores)
            total = tape.new(self.tokens * op.d_out, out.dtype, "summed")
            out = tape.scale(tape.record("index_add", (out,), total, (tokens, out)), "shifted")
            return Value(out, op.d_out, x.divided, x.whole)
        return Value(out, op.top_k * op.d_out, x.divided, x.whole)

    def looped_experts(self, op: Any) -> Value:
        """Each expert takes its tokens out, runs, and adds what it made, weighted, to the result (index_add keeps what
        it adds). All experts together keep as much however the tokens spread, as long as each has one."""
        x, weights = self.read(op), self.read(op, 1)
        tape = self.tape
        tokens = x.tensor.count // op.d_model
        rows = tokens * op.top_k
        inner = op.d_ff // self.split.tensor
        local = ceil_div(op.experts, self.split.expert)
        stored = "fp32" if tape.autocast else tape.compute

        def taken(count: Number) -> tuple[Tensor, Tensor]:
            """So many tokens, and where they stand."""
            places = tape.new(2 * count, "int64", "token and choice", fixed=True)
            sent = tape.new(count * op.d_model, x.tensor.dtype, "sent")
            return tape.record("gather", (x.tensor,), sent, (places,), scratch=x.tensor.size), places

        def added(out: Tensor, places: Tensor) -> Tensor:
            """Weighted, and added to the result."""
            score = tape.new(places.count // 2, weights.tensor.dtype, "weight")
            out = tape.multiply(out, tape.record("gather", (weights.tensor,), score, (places,)))
            out = tape.cast(out, x.tensor.dtype)
            total = tape.new(x.tensor.count, out.dtype, "summed")
            return tape.record("index_add", (out,), total, (places, out))

        def product(read: Tensor, width: Number, made: Number, what: str) -> Tensor:
            read = tape.lowered(read)
            kept = [read]
            if tape.autocast:  # of a part of the weight, which autocast casts anew each time
                kept.append(tape.new(local * width * made, tape.autocast, f"{what} weight", fixed=True))
            out = tape.new(rows * made, read.dtype, what)
            return tape.record("linear", (read,), out, kept, weight=local * width * made * BYTES[stored])

        sent, places = taken(rows)
        if op.gated and self.code.looped == "joined":
            both = product(sent, op.d_model, 2 * inner, "up")
            gate, up = (tape.slice(both, rows * inner) for _ in range(2))
            hidden = tape.multiply(self.activated(gate, op.function), up)
        elif op.gated:
            gate, up = (product(sent, op.d_model, inner, what) for what in ("gate", "up"))
            hidden = tape.multiply(self.activated(gate, op.function), up)
        else:
            hidden = self.activated(product(sent, op.d_model, inner, "up"), op.function)
        total = added(product(hidden, inner, op.d_model, "down"), places)
        if op.idle:
            total = tape.add(total, added(*taken(tokens * op.idle)))
        return Value(total, op.d_model, x.divided, x.whole)

    def experts(self, op: Any) -> Value:
        """Tokens sorted by expert, two grouped products, weighted, put back in order and summed.

        transformers 5 calls torch's grouped product in every precision: on CUDA it takes bf16, fp16 and fp32
        (aten/src/ATen/native/GroupedMMUtils.h) and autocast leaves it alone, so that tokens are cast to the weights'
        type. Below compute capability 8.0 an operator of its own keeps the same (integrations/moe.py)."""
        if op.weighted_input:
            return self.weighted_experts(op)
        if self.code.looped:
            return self.looped_experts(op)
        x, weights = self.read(op), self.read(op, 1)
        tape = self.tape
        tokens = x.tensor.count // op.d_model
        rows = tokens * op.top_k
        t = self.split.tensor
        inner = op.d_ff // t
        order, back, pick = (tape.new(rows, "int64", what, fixed=True) for what in ("order", "inverse", "token"))
        offsets = tape.new(ceil_div(op.experts, self.split.expert), "int32", "offsets", fixed=True)
        sent = tape.new(rows * op.d_model, x.tensor.dtype, "sent")
        sent = tape.record("gather", (x.tensor,), sent, (pick,), scratch=x.tensor.size)
        weight = tape.record("gather", (weights.tensor,), tape.new(rows, weights.tensor.dtype, "weight"), (order,))
        stored = "fp32" if tape.autocast else tape.compute
        local = ceil_div(op.experts, self.split.expert)
        sent = tape.cast(sent, stored)
        first = inner * (2 if op.gated else 1)
        up = tape.new(rows * first, stored, "up")
        grads = local * first * op.d_model * BYTES[stored]
        up = tape.record("grouped_mm", (sent,), up, (sent, offsets), weight=grads)
        if op.bias:
            offsets_of_bias = tape.new(rows, "int64", "expert of each", fixed=True)
            up = tape.record("bias", (up,), up.view(), (offsets_of_bias,))
        if op.function == "swiglu_oai":
            hidden = self.clamped_swiglu(up, rows * inner)
        elif op.gated:
            gate, other = (tape.slice(up, rows * inner) for _ in range(2))
            if self.code.swiglu == "fused":
                hidden = self.gated(gate, other)
            else:
                hidden = tape.multiply(self.activated(gate, op.function), other)
        else:
            hidden = self.activated(up, op.function)
        out = tape.new(rows * op.d_model, stored, "down")
        grads = local * inner * op.d_model * BYTES[stored]
        out = tape.record("grouped_mm", (hidden,), out, (hidden, offsets), weight=grads)
        out = tape.multiply(out, weight)
        ordered = tape.new(out.count, out.dtype, "ordered")
        out = tape.record("gather", (out,), ordered, (back,), scratch=out.size)
        total = tape.record("sum", (out,), tape.new(x.tensor.count, out.dtype, "summed"))
        return Value(tape.cast(total, x.tensor.dtype), op.d_model, x.divided, x.whole)


def _gates(operations: tuple[Operation, ...]) -> frozenset[str]:
    """Activations that nothing but a product reads."""
    made = {op.name for op in operations if isinstance(op, Activation)}
    others = {name for op in operations if not isinstance(op, Multiply) for name in op.reads}
    products = {op.reads[0] for op in operations if isinstance(op, Multiply)}
    return frozenset((made & products) - others)


def _kernels(operations: tuple[Operation, ...], mixer: str) -> tuple[frozenset[str], frozenset[str]]:
    """Operations whose work the kernel before them does, and those that one kernel of a recurrence runs again in
    backward: all of its mixer's, which share a prefix, but for the input projection."""
    merged: set[str] = set()
    inside: set[str] = set()
    for op in operations:
        if not isinstance(op, Scan) or mixer == "torch":
            continue
        prefix = op.name.removesuffix("scan")
        merged.add(f"{prefix}conv_act")
        if op.kind == "selective" and mixer == "apart":
            merged |= {f"{prefix}gate_act", f"{prefix}gated"}
        elif op.kind in ("selective", "ssd"):
            own = {one.name for one in operations if one.name.startswith(prefix)}
            inside |= {name for name in own if not name.startswith(f"{prefix}in_proj")}
    return frozenset(merged), frozenset(inside)


def either(first: Number, second: Number) -> Number:
    """Whether one of the conditions holds, entry by entry."""
    return maximum(first * 1, second * 1) == 1


_RULES: dict[type[Operation], Callable[[Lowering, Any], Value]] = {
    Activation: Lowering.activation,
    BlockMatmul: Lowering.block_matmul,
    Conv: Lowering.convolved,
    Learnt: Lowering.learnt,
    PositionBias: Lowering.position_bias,
    RelativeScores: Lowering.relative_scores,
    Reused: Lowering.reused,
    Scan: Lowering.scanned,
    TableMatmul: Lowering.table_matmul,
    Add: Lowering.add,
    AttentionCore: Lowering.core,
    Cast: Lowering.cast,
    Clamp: Lowering.clamp,
    Concat: Lowering.concat,
    Dropout: Lowering.dropped,
    Embedding: Lowering.embedding,
    BalanceLoss: Lowering.balanced,
    ExpertMatmul: Lowering.expert_matmul,
    Experts: Lowering.experts,
    Indexer: Lowering.indexer,
    Jitter: Lowering.jittered,
    Matmul: Lowering.matmul,
    Mix: Lowering.mixed,
    Multiply: Lowering.multiply,
    Norm: Lowering.norm,
    Rotary: Lowering.rotary,
    Router: Lowering.router,
    Scale: Lowering.scale,
    Slice: Lowering.slice,
    Softcap: Lowering.softcap,
}
