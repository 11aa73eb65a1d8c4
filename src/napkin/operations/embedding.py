"""Lookups of tokens and positions, and scores by distance."""

from __future__ import annotations

from napkin.autograd.tensors import ACTIVATION, BYTES, INPUT, Tensor
from napkin.elementwise import Number, ceil_div, minimum
from napkin.operations.adapters.lora import kind_on, lookup_rank
from napkin.operations.base import Operation
from napkin.operations.bases import Lookup
from napkin.operations.facts import OWN_POSITION_BIAS, SHARED_POSITION_BIAS
from napkin.operations.lowering import Lowering
from napkin.operations.roles import HEADS, POSITION, REPLICATED, SHARED_TENSOR, TABLES, TOKEN, VOCABULARY
from napkin.operations.shapes import Value
from napkin.operations.work import Weight, Work
from napkin.record import record, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import KW_ONLY


@record
class Embedding(Lookup):
    """A lookup of rows of `width` elements in an embedding of `rows`. `role` is one of base.py's roles of embeddings.

    `trained`: a gradient flows to the embedding. `decoder`: it is a decoder's, also if no encoder is next to it.
    `given`: the tokenizer makes ids of its own for it, which are an input of the step. `made`: the step makes them.
    """

    rows: int
    width: int
    trained: bool = True
    _: KW_ONLY
    role: str = TOKEN
    decoder: bool = False
    given: bool = False
    made: bool = False

    def __post_init__(self) -> None:
        self._is_module()

    def weights(self) -> tuple[Weight, ...]:
        shard = VOCABULARY if self.role in TABLES else REPLICATED
        return (Weight("weight", (self.rows, self.width), shard, trained=self.trained),)

    def embeds(self) -> str:
        return self.role

    def tables(self) -> tuple[Weight, ...]:
        return self.weights()

    def cropped(self, length: int) -> Operation:
        return replace(self, rows=min(self.rows, length)) if self.role == POSITION else self

    def padded(self, before: int, rows: int, reads_logits: bool) -> Operation:
        return replace(self, rows=rows) if self.role == TOKEN and self.rows == before else self

    def traffic(self) -> tuple[Number, Number]:
        """Read a row and write it; backward reads the gradient, and reads and writes the row that it is added to."""
        return 4 * self.width, 6 * self.width

    def lower(self, run: Lowering) -> Value:
        tape = run.tape
        stored = "fp32" if tape.autocast else tape.compute
        rows = run.tokens // run.split.sequence
        if self.role == "distance":
            run.distances = run.weight(self.rows * self.width)
            run.distances.storage.shared = True
            return Value(run.distances, self.width)
        if self.role == "token" or (self.role == "layers" and run.implementation.token_ids != "bounded"):
            # a decoder's tokens are the labels, shifted: a tensor that the step makes
            kind = ACTIVATION if run.source or run.implementation.token_ids == "copied" else INPUT
            ids = tape.given(rows, "int64", "token ids", kind=kind, no_grad=True)
            shape = rows
            if run.implementation.token_ids == "transposed":
                ids = tape.new(rows * minimum(run.b - 1, 1), "int64", "token ids by steps", no_grad=True)
            if run.implementation.token_ids == "copied":
                ids = run.masks.setdefault("ids", ids)
        elif self.role == "layers":
            ids = tape.new(rows, "int64", "token ids within the table", no_grad=True)
            shape = rows
        elif self.given or self.made:
            kind, shape = INPUT if self.given else ACTIVATION, rows
            ids = tape.given(rows, "int64", f"{self.name}/ids", kind=kind, no_grad=True)
        else:
            how = run.implementation.segments if self.role == "segment" else run.implementation.positions
            shape = run.own // run.split.sequence * (1 if self.decoder and how == "source" else run.rows_of(how))
            kind = INPUT if how == "buffer" else ACTIVATION
            ids = tape.given(shape, "int64", f"{self.name}/position ids", kind=kind, no_grad=True)
        out = tape.new(shape * self.width, stored, "embedded")
        rows_here = ceil_div(self.rows, run.split.tensor) if self.role in TABLES else self.rows
        grads = rows_here * self.width * BYTES[stored] if self.trained else 0
        out = tape.record("embedding", (ids,), out, (ids,), weight=grads)
        tuning = run.implementation.tuning
        rank = lookup_rank(self, tuning) if tuning is not None else 0
        if rank:
            from napkin.operations.adapters.adapted import adapted_rows

            out = tape.cast(tape.add(out, adapted_rows(run, ids, shape, rank, (rows_here, self.width))), stored)
        found = kind_on(self, run.implementation)
        if found is not None:
            from napkin.operations.adapters.virtual import with_virtual_tokens

            out = with_virtual_tokens(run, *found, out)
        return Value(out, self.width)


@record
class Sines(Lookup):
    """Rows of `width` sines and cosines, one for each position, from a table without parameters (arXiv:1706.03762,
    section 3.5). `role`: SINES, if a variable of the forward function refers to them."""

    width: int

    def weights(self) -> tuple[Weight, ...]:
        return ()

    def traffic(self) -> tuple[Number, Number]:
        """Read a row and write it; no gradient reaches them."""
        return 4 * self.width, 0

    def lower(self, run: Lowering) -> Value:
        tape = run.tape
        stored = "fp32" if tape.autocast else tape.compute
        rows = run.own // run.split.sequence * run.rows_of(run.implementation.positions)
        ids = tape.given(rows, "int64", "position ids", no_grad=True)
        return Value(tape.record("index_select", (ids,), tape.new(rows * self.width, stored, "sines")), self.width)


@record
class BoxEmbedding(Embedding):
    """A lookup by the place of each token's box on a page (LayoutLM, arXiv:1912.13318): by the coordinate of a
    `corner`, if the step gives the four of a token in one tensor, or by a size.

    table  the lookup whose rows it reads too; "": its own
    """

    _: KW_ONLY
    corner: bool = False
    table: str = ""

    def weights(self) -> tuple[Weight, ...]:
        return () if self.table else super().weights()

    def lower(self, run: Lowering) -> Value:
        tape = run.tape
        stored = "fp32" if tape.autocast else tape.compute
        rows = run.tokens // run.split.sequence
        ids = tape.new(rows * (4 if self.corner else 1), "int64", "boxes", no_grad=True)
        ids = run.masks.setdefault("boxes", ids) if self.corner else ids
        out = tape.new(rows * self.width, stored, "embedded")
        out = tape.record("embedding", (ids,), out, (ids,), weight=self.rows * self.width * BYTES[stored])
        tape.nodes[-1].of = self.table or self.name
        return Value(out, self.width)


@record
class PositionBias(Lookup):
    """A learned score for each head and bucket of distances between query and key, added to attention's (T5,
    arXiv:1910.10683, section 2.1).

    shared  the layers that follow use it too, and have no table of their own
    spread  it is copied for each sequence
    boxes   buckets of further tables, by distances between the places of tokens on a page, which differ by sequence
    """

    buckets: int
    heads: int
    shared: bool = True
    boxes: tuple[int, ...] = ()
    spread: bool = False

    def __post_init__(self) -> None:
        self._is_module()

    def weights(self) -> tuple[Weight, ...]:
        own = Weight("weight", (self.buckets, self.heads), HEADS)
        further = (Weight(f"boxes_{n}", (count, self.heads), HEADS) for n, count in enumerate(self.boxes))
        return (own, *further)

    def tables(self) -> tuple[Weight, ...]:
        return self.weights()

    def pattern(self) -> str:
        return SHARED_POSITION_BIAS if self.shared else OWN_POSITION_BIAS

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: `scores` counts those of pairs."""
        return 0, 0

    def scores(self, work: Work) -> Number:
        """Return the score of each pair of a query and a key: once for all sequences but if it is of boxes."""
        return work.length * work.length * self.heads * (1 + len(self.boxes) * work.sequences)

    def lower(self, run: Lowering) -> Value:
        """Look up a bias for each pair of query and key, once for all sequences but if it is of boxes."""
        heads = ceil_div(self.heads, run.split.tensor)
        run.bias = self._looked_up(run, self.buckets, heads, run.own * run.s)
        for count in self.boxes:
            run.bias = run.tape.add(self._looked_up(run, count, heads, run.b * run.own * run.s), run.bias)
        if self.spread:
            run.bias = run.tape.copy(run.bias.view(run.bias.count * run.b), "bias of each sequence")
        if self.shared:
            run.bias.storage.shared = True
            run.shared_tensors[SHARED_TENSOR + self.name] = Value(run.bias, heads, True)
        return Value(run.bias, heads, True)

    def _looked_up(self, run: Lowering, rows: int, heads: Number, pairs: Number) -> Tensor:
        """Return a score for each pair and head from one table."""
        tape = run.tape
        stored = "fp32" if tape.autocast else tape.compute
        buckets = tape.new(pairs, "int64", "buckets", no_grad=True)
        bias = tape.new(pairs * heads, stored, "bias")
        bias = tape.record("embedding", (buckets,), bias, (buckets,), weight=rows * heads * BYTES[stored])
        tuning = run.implementation.tuning
        rank = lookup_rank(self, tuning) if tuning is not None else 0
        if not rank:
            return bias
        from napkin.operations.adapters.adapted import adapted_rows

        return tape.cast(tape.add(bias, adapted_rows(run, buckets, pairs, rank, (rows, heads))), stored)
