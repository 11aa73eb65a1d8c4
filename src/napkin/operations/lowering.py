"""From a layer's operations to torch's primitives, run on a tape: one rule for each kind of operation.

What an implementation does differently is a field of `Implementation` (and, for arithmetic that the published code
fixes, of the operation itself); how a layout divides tensors stands in `Split`. The rules follow the code of Hugging
Face transformers, from which nanoGPT's and Megatron's differ in fusing more. Here stand products, what is elementwise,
norms and mixers; attention's rules are in attention_rules.py, routers' and experts' in expert_rules.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from napkin.autograd.tape import (
    ACTIVATION,
    BYTES,
    INPUT,
    INPUT_LABEL,
    WEIGHT,
    WEIGHT_COPY,
    Tape,
    Tensor,
    select,
    sized,
)
from napkin.elementwise import Number, ceil_div, maximum, minimum
from napkin.errors import Refused
from napkin.operations.activation_rules import activated
from napkin.operations.attention import AttentionCore, Indexer
from napkin.operations.base import (
    COLUMN,
    DOWN,
    KEY,
    KV_LATENT,
    MEMORY,
    MIXER,
    MIXER_GATE,
    QKV,
    QUERY,
    ROTATED_KEY,
    ROTATED_QUERY,
    ROW,
    SCAN_PARAMETERS,
    TABLES,
    VALUE,
    VOCABULARY,
    Operation,
)
from napkin.operations.embedding import Embedding, RelativeScores
from napkin.operations.implementations import Implementation, Tuning
from napkin.operations.linear import BlockMatmul, JoinedHead, Matmul, TableMatmul
from napkin.operations.model import Model
from napkin.operations.norms import Norm
from napkin.operations.pointwise import Activation, Add, Clamp, Dropout, Jitter, Learnt, Mix, Multiply, Scale, Softcap
from napkin.operations.recurrence import Conv, Scan
from napkin.operations.scopes import Scopes
from napkin.operations.views import Behind, Cast, Concat, Overwrite, Reused, Slice
from napkin.record import record, replace

JOINED = (QUERY, KEY, VALUE, QKV)
"""Roles of attention's linear layers, and of the one that makes all three."""
ENCODED = "encoder's output"
"""What cross-attention reads: one tensor, which all layers of a decoder share."""


@record
class Split:
    """How one rank's part of a layer is cut: tensor, context and expert parallelism, and sequence parallelism's
    division of what tensor parallelism leaves whole (1 where it is off). `inner`: ranks that each expert's width is
    divided over (expert tensor parallelism)."""

    tensor: Number = 1
    context: Number = 1
    expert: Number = 1
    sequence: Number = 1
    inner: Number = 1

    def sent(self, tokens: Number) -> Number:
        """Tokens whose experts run on a rank, of the `tokens` that it holds between layers: tensor-parallel ranks
        share them, and those that divide an expert gather theirs (Megatron-core transformer/moe/token_dispatcher.py).
        """
        return ceil_div(tokens * self.sequence * self.inner, self.tensor)


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


def beside(op: Any, program: tuple[Operation, ...], code: Implementation, tuning: Tuning) -> tuple[int, int]:
    """How many of LoRA's pairs of matrices a product has beside it, and the numbers that they make for a token. A
    joined product has those of all its parts, with one dropout of their common input."""
    if tuning.method != "lora":
        return 0, 0
    if code.joined_qkv and op.role in JOINED:
        if op.role in (KEY, VALUE):
            return 0, 0
        parts = [part for part in program if part.role in tuning.targets and part.role in JOINED]
        return len(parts), sum(getattr(part, "d_out", 0) or getattr(part, "width", 0) for part in parts)
    chosen = (
        op.module in tuning.targets if tuning.targets else op.shard != VOCABULARY
    )  # PEFT's "all-linear": not the head
    return (1, op.d_out) if chosen else (0, 0)


def is_plain(op: Any, tuning: Tuning) -> bool:
    """Whether a frozen product's weight is stored as it was: the head's, but for bitsandbytes."""
    return not tuning.quantised or (op.shard == VOCABULARY and tuning.library != "bitsandbytes")


def key_heads(model: Model) -> list[int]:
    """Key/value heads of a network's attention that ranks divide, each number of them once."""
    cores = (op for s in model.stacks for one in s.layers for op in one.operations if isinstance(op, AttentionCore))
    return sorted({op.kv_heads for op in cores if not op.shared})


def divides_heads(model: Model, code: Implementation, ranks: int) -> bool:
    """Whether the code runs on so many tensor-parallel ranks: they divide query and key/value heads, or, where it
    gathers heads, each rank has one of the latter."""
    return model.heads % ranks == 0 and all(
        few % ranks == 0 or (code.gathers_heads and ranks % few == 0) for few in key_heads(model)
    )


Rules = dict[type[Operation], "Callable[[Lowering, Any], Value]"]
"""What each kind of operation runs."""


class Lowering:
    """Runs operations on a tape for one micro-batch on one rank."""

    def __init__(
        self,
        tape: Tape,
        code: Implementation,
        shape: Shape,
        split: Split,
        attention: str,
        dropout: float,
        rules: Rules,
        selective: bool = False,
    ) -> None:
        self.tape = tape
        self.rules = rules
        self.code = code
        self.split = split
        self.attention = attention
        self.dropout = dropout
        self.selective = selective
        self.stack = 0
        self.over(shape)
        self.tables: dict[tuple[Any, ...], tuple[Tensor, Tensor]] = {}
        self.orders: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
        self.factor: Tensor | None = None
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
        self.lent: dict[str, Value] = {}
        self.program: tuple[Operation, ...] = ()
        self.whole: dict[int, Tensor] = {}

    # --- the program ---

    def over(self, shape: Shape) -> None:
        """What runs from here on runs over these tokens: another stack's, with rotary tables of its own."""
        self.stack += 1
        self.b = shape.sequences
        self.s = shape.length
        self.own = shape.length // self.split.context
        self.tokens = self.b * self.own
        self.source = shape.source
        self.encoded: Tensor | None = None

    def reads_encoder(self, width: Number, dtype: str) -> None:
        """The encoder's output, which the layers that follow share."""
        self.encoded = self.tape.given(self.b * (self.source // self.split.context) * width, dtype, ENCODED)
        self.encoded.places[0][1].shared = True

    def run(self, operations: tuple[Operation, ...], x: Value | None) -> Value:
        """All operations in order; the last one's output."""
        if self.code.norms_inline:
            operations = inline(operations)
        self.values = {**self.lent} if x is None else {**self.lent, "x": x}
        if x is not None and self.encoded is not None:
            self.values[MEMORY] = Value(self.encoded, x.width, whole=True)
        self.program = operations
        self.whole = {}
        self.own_tables = {}
        self.factor = None
        self.orders = {}
        self.windowed = any(isinstance(op, AttentionCore) and op.window is not None for op in operations)
        self.gates = _gates(operations) if self.code.swiglu == "fused" else frozenset()
        self.merged, self.inside = _kernels(operations, self.code.mixer)
        self.shifted = {}
        self.scopes = Scopes(self.tape, operations, x is not None, self.code.weights_late)
        for op in operations:
            self.tape.scope = op.name
            self.scopes.enter(op, [self.values[name].tensor for name in op.reads if name in self.values])
            rule = self.rules.get(type(op))
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

    def of_role(self, role: str) -> Operation:
        """The operation of this layer that has a role, which one has."""
        return next(op for op in self.program if op.role == role)

    def made(self, role: str) -> Value:
        """What the operation with a role has made."""
        return self.values[self.of_role(role).name]

    def residual(self, width: Number, dtype: str) -> Value:
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
        if tensor.rows_apart:
            tensor = select(self.b == 1, tensor, self.tape.copy(self.tape.lowered(tensor), "by steps"))
        if self.code.casts_down and op.role == DOWN:
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

    def joined_head(self, op: Any) -> Value:
        """The matrix is an activation: autocast casts it, and both factors are kept."""
        x, tape = self.read(op), self.tape
        rows = ceil_div(op.d_out, self.split.tensor)
        parts = tuple(self.weight(size * rows) for size in (op.table, op.d_in - op.table))
        stored = parts[0].dtype
        grads = sum(weight.count for weight in op.weights()) * BYTES[stored]
        matrix = tape.new(op.d_in * rows, stored, "matrix put together")
        matrix = tape.record("cat", parts, matrix, weight=grads)
        out = tape.matmul(x.tensor, matrix, self.tokens * rows, "logits")
        return Value(out, op.d_out, True, True)

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
        if op.role == "token" or (op.role == "layers" and not self.code.bounded_ids):
            # a decoder's tokens are the labels, shifted: a tensor that the step makes
            kind = ACTIVATION if self.source or self.code.copies_ids else INPUT
            ids = tape.given(rows, "int64", "token ids", kind=kind, fixed=True)
            shape = rows
            if self.code.copies_ids:
                ids = self.masks.setdefault("ids", ids)
        elif op.role == "layers":
            ids = tape.new(rows, "int64", "token ids within the table", fixed=True)
            shape = rows
        else:
            how = self.code.segments if op.role == "segment" else self.code.positions
            shape = self.own // self.split.sequence * self.rows_of(how)
            kind = INPUT if how == "buffer" else ACTIVATION
            ids = tape.given(shape, "int64", f"{op.name}/position ids", kind=kind, fixed=True)
        out = tape.new(shape * op.width, stored, "embedded")
        rows_here = ceil_div(op.rows, self.split.tensor) if op.role in TABLES else op.rows
        grads = rows_here * op.width * BYTES[stored] if op.trained and self.code.tuning is None else 0
        return Value(tape.record("embedding", (ids,), out, (ids,), weight=grads), op.width)

    def rows_of(self, how: str) -> Number:
        """Rows of a table of ids or angles: one a sequence, or one for all."""
        return self.b if how in ("each", "learnt") or (how == "source" and not self.source) else 1

    def slice(self, op: Any) -> Value:
        x = self.read(op)
        cuts = self.code.cuts and op.role in JOINED
        part = self.tape.slice(x.tensor, x.tensor.count * op.width // x.width, cuts)
        if op.indexed:
            index = self.tape.new(1, "int64", "index", fixed=True)
            taken = self.tape.new(part.count, part.dtype, "taken")
            part = self.tape.record("index", (x.tensor,), taken, (index,))
        if op.repeats > 1:
            part = part.view(part.count * op.repeats)
        if op.groups > 1 or op.copied:
            part = self.tape.copy(part, "put together")
        return Value(part, op.width * op.repeats, x.divided, x.whole)

    # --- what is answered approximately: kernels that keep what they read ---

    def reused(self, op: Any) -> Value:
        """An operation whose weights stand elsewhere works as ever; autocast casts them once for all uses."""
        self.tape.copies = self.copies.setdefault(id(op.of), {})
        if op.of in self.program:  # of this layer's own: the copy that its first use made
            label = f"{op.of.name}/{op.of.name}/weight"
            own = [s for s in self.tape.kept if s.kind == WEIGHT_COPY and s.label == label]
            dtype = self.tape.autocast
            self.tape.copies = {f"{op.name}/weight": Tensor(s.size // BYTES[dtype], dtype, ((1, s),)) for s in own}
        here = replace(op.of, name=op.name, reads=op.reads, role=op.role, module=op.module)
        made = self.rules[type(op.of)](self, here)
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
        apart = self.code.mixer == "apart"
        weight = tape.given(count, tensor.dtype, "weight", kind=WEIGHT)
        if tape.autocast and not apart:
            weight = tape.weight_copy(count, f"{op.name}/weight")
        if apart:  # autocast casts what is seen through a view on every pass
            each = tape.new(self.b * count, tensor.dtype, "weight for each sequence")
            weight = each if tape.autocast else select(self.b == 1, weight, each)
        kept.append(weight)
        grads = count * sized(1, "fp32" if tape.autocast else tape.compute)
        return Value(tape.record("bmm", (tensor,), out, kept, weight=grads), width, x.divided, x.whole)

    def table_matmul(self, op: Any) -> Value:
        """The table's rows, projected once for all sequences. Laid by heads the result is repeated for each."""
        tape = self.tape
        rows_here = minimum(op.rows, 2 * self.s) if op.within else op.rows
        assert self.distances is not None  # the stack begins with it
        table = self.distances
        if id(table) not in self.shifted:
            self.shifted[id(table)] = tape.dropout(table, self.dropout)
        x = tape.lowered(tape.slice(self.shifted[id(table)], rows_here * op.d_in))
        if tape.copies is not None:  # the weight is the content's, which keeps autocast's copy of it
            rows = tape.record("linear", (x,), tape.new(rows_here * op.d_out, x.dtype, "rows"), (x,))
        else:
            rows = tape.linear(x, op.d_in, op.d_out, op.bias, f"{op.name}/weight")
        if self.code.laid_by_heads:
            rows = tape.copy(rows.view(rows.count * self.b), "for each sequence")
        return Value(rows, op.d_out)

    def relative_scores(self, op: Any) -> Value:
        """Scores against each row, of which each pair's distance then chooses one: both and the choice are kept."""
        tape = self.tape
        content, table = self.read(op).tensor, tape.lowered(self.read(op, 1).tensor)
        if op.divided == "table":  # in place
            divisor = tape.new(1, "fp32", "divisor", fixed=True)
            table = tape.record("div", (table,), table.view(), (divisor,))
        if self.code.laid_by_heads:
            content = self.turned(content)
        else:  # the product puts sequences and heads together, and repeats the table
            content, spread = tape.lowered(content), table.view(table.count * self.b)
            content = select(self.b == 1, content, tape.copy(content, "folded"))
            table = select(self.b == 1, table, tape.copy(spread, "for each sequence"))
        rows_here = minimum(op.rows, 2 * self.s) if op.within else op.rows
        scores = tape.matmul(content, table, self.tokens * op.heads * rows_here, "scores of rows")
        index = tape.new(self.own * self.s, "int64", "distances", fixed=True)
        pairs = tape.new(self.tokens * op.heads * self.s, scores.dtype, "scores of pairs")
        pairs = tape.record("gather", (scores,), pairs, (scores, index))
        return Value(self.over_constant(pairs) if op.divided == "scores" else pairs, op.heads * op.rows)

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
        around = (QUERY, KV_LATENT, ROTATED_QUERY, ROTATED_KEY)  # of the attention around it
        tape.hold(made, key, *turned, q, k, scores, chosen, *(self.made(role).tensor for role in around))
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
            count = op.channels * op.group * op.kernel
            cached = self.tape.weight_copy(count, f"{op.name}/weight")
            kept.append(self.tape.new(count, cached.dtype, "weight", fixed=True) if self.code.conv_view else cached)
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

    def concat(self, op: Any) -> Value:
        first = self.read(op)
        count = self.tokens * op.width // (self.split.tensor if first.divided else 1)
        inputs = tuple(self.read(op, i).tensor for i in range(len(op.reads)))
        widest = max(inputs, key=lambda tensor: BYTES[tensor.dtype]).dtype
        out = self.tape.new(count, first.tensor.dtype if op.first_type else widest, "joined")
        return Value(self.tape.record("cat", inputs, out), op.width, first.divided, first.whole, True)

    def behind(self, op: Any) -> Value:
        first = self.read(op)
        parts = tuple(self.read(op, i).tensor for i in range(2))
        joined = self.tape.new(parts[0].count + parts[1].count, parts[0].dtype, "one behind the other")
        return Value(self.tape.record("cat", parts, joined), op.width, first.divided, first.whole, True)

    def overwrite(self, op: Any) -> Value:
        """Keeps where the token stands."""
        x = self.read(op)
        marked = self.tape.new(x.tensor.count // op.width, "bool", "marked", fixed=True)
        out = self.tape.record("index_put", (x.tensor, self.weight(op.width)), x.tensor.view(), (marked,))
        return Value(out, x.width, x.divided, x.whole)

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
        if op.positions or op.sequences:
            factor = self.factor if op.positions else None
            factor = self.masks.get("factors", factor)
            if factor is None:
                factor = self.tape.new(self.own if op.positions else self.b, "fp32", "factor", fixed=True)
                if self.code.tempers_once:
                    factor.places[0][1].shared = True
                    self.masks["factors"] = factor
                self.factor = factor if op.positions else None  # one for all that this layer scales
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
        if op.upcast:
            wide = self.activated(self.tape.cast(x.tensor, "fp32"), op.function)
            return Value(self.tape.cast(wide, x.tensor.dtype), x.width, x.divided, x.whole)
        return Value(self.activated(x.tensor, op.function), x.width, x.divided, x.whole)

    def activated(self, x: Tensor, function: str) -> Tensor:
        return activated(self.tape, self.code, x, function, self.weight)

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
            out = self.tape.multiply(out, self.activated(self.tape.cast(gate, "fp32"), op.gate))
            out = self.tape.cast(out, x.tensor.dtype)
        return Value(out, x.width, x.divided, x.whole, x.heads_first)

    def normalised(self, x: Tensor, op: Norm, divided: bool) -> Tensor:
        tape = self.tape
        if op.kind == "affine":
            scaled = tape.multiply(x, self.weight(op.width))
            return tape.add(scaled, self.weight(op.width)) if op.bias else scaled
        width = op.width // (self.split.tensor if divided and op.groups == 1 else 1)
        rows = x.count // width
        arithmetic = op.arithmetic if self.code.norms != "fused" else "fused"
        narrow = "fp32" if op.gated and arithmetic == "fp32" else x.dtype  # the gate comes before the cast
        size = width * (op.groups if op.per_group else 1)
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
        if arithmetic == "narrow":
            spread = tape.rsqrt(tape.shift(tape.mean(tape.power(x), rows)))
            return tape.multiply(given, tape.cast(spread, narrow), "normalised")
        if op.kind == "layer":
            mean = tape.mean(x, rows)
            deviation = tape.add(x, mean)
            centred = tape.add(x, mean)
        else:
            deviation = centred = x
        if arithmetic == "fp32_spread":
            centred = given
        variance = tape.mean(tape.power(deviation), rows)
        spread = tape.power(tape.shift(variance)) if self.code.powered else tape.rsqrt(tape.shift(variance))
        out = tape.multiply(centred, spread, "normalised")
        if not op.weight:
            return tape.cast(out, narrow)
        weight = self.weight(size)
        if arithmetic == "fp32":
            if op.unit_offset or op.gated or op.kind == "layer" or self.code.wide_weight:
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


def _gates(operations: tuple[Operation, ...]) -> frozenset[str]:
    """Activations that nothing but a product reads."""
    made = {op.name for op in operations if isinstance(op, Activation)}
    others = {name for op in operations if not isinstance(op, Multiply) for name in op.reads}
    products = {op.reads[0] for op in operations if isinstance(op, Multiply)}
    return frozenset((made & products) - others)


def _kernels(operations: tuple[Operation, ...], mixer: str) -> tuple[frozenset[str], frozenset[str]]:
    """Operations whose work the kernel before them does, and those that one kernel of a recurrence runs again in
    backward: all of its mixer's, but for the input projection."""
    merged: set[str] = set()
    inside: set[str] = set()
    convolutions = {op.name for op in operations if isinstance(op, Conv)}
    for op in operations:
        if not isinstance(op, Scan) or mixer == "torch":
            continue
        merged |= {one.name for one in operations if isinstance(one, Activation) and one.reads[0] in convolutions}
        if op.kind == "selective" and mixer == "apart":
            for gated in operations:
                if isinstance(gated, Multiply) and op.name in gated.reads:
                    merged |= {gated.name, *gated.reads} - {op.name}
        elif op.kind in ("selective", "ssd"):
            inside |= {one.name for one in operations if one.role in (MIXER, MIXER_GATE, SCAN_PARAMETERS)}
    return frozenset(merged), frozenset(inside)


def inline(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """The norms of attention's products each right behind its product."""
    joined = {op.name for op in operations if op.role in JOINED}
    norms = {op.reads[0]: op for op in operations if isinstance(op, Norm) and op.reads[0] in joined}
    moved = {norm.name for norm in norms.values()}
    ordered: list[Operation] = []
    for op in operations:
        if op.name not in moved:
            ordered += [op, norms[op.name]] if op.name in norms else [op]
    return tuple(ordered)


def either(first: Number, second: Number) -> Number:
    """Whether one of the conditions holds, entry by entry."""
    return maximum(first * 1, second * 1) == 1


RULES: Rules = {
    Activation: Lowering.activation,
    Behind: Lowering.behind,
    BlockMatmul: Lowering.block_matmul,
    Conv: Lowering.convolved,
    Learnt: Lowering.learnt,
    RelativeScores: Lowering.relative_scores,
    Reused: Lowering.reused,
    TableMatmul: Lowering.table_matmul,
    Add: Lowering.add,
    Cast: Lowering.cast,
    Clamp: Lowering.clamp,
    Concat: Lowering.concat,
    Dropout: Lowering.dropped,
    Embedding: Lowering.embedding,
    Indexer: Lowering.indexer,
    Jitter: Lowering.jittered,
    JoinedHead: Lowering.joined_head,
    Matmul: Lowering.matmul,
    Mix: Lowering.mixed,
    Multiply: Lowering.multiply,
    Norm: Lowering.norm,
    Overwrite: Lowering.overwrite,
    Scale: Lowering.scale,
    Slice: Lowering.slice,
    Softcap: Lowering.softcap,
}
