"""Attention: rotary positions, the core, sparse and banded forms."""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.operations.base import (
    HEADS,
    LENT,
    NOT_TIMED,
    Elementwise,
    Gemm,
    Ordinary,
    Pairs,
    Timer,
    Weight,
    Work,
    gemm,
)
from napkin.operations.facts import Cache, Served
from napkin.operations.primitives import causal_pairs, ceil_div, matmul_flops, minimum, run_pairs
from napkin.record import record, replace


@record
class Rotary(Elementwise):
    """Rotary position embedding of `dim` of each of `heads` heads' `head_dim` numbers (x·cos + rotated(x)·sin).

    pairing  half: number i turns with i + dim/2 · interleaved: 2i with 2i + 1 · complex: as one complex product
    upcast   computed in fp32 and cast back
    table    which of the network's tables of angles it reads, where layers have their own bases
    wide     this table is fp32 where activations are narrower
    """

    heads: int
    head_dim: int
    dim: int
    pairing: str = "half"
    upcast: bool = False
    table: int = 0
    wide: bool = False

    def traffic(self) -> tuple[Number, Number]:
        return 4 * self.heads * self.head_dim, 4 * self.heads * self.head_dim

    def angles(self) -> tuple[int, int]:
        return self.dim, self.table


@record
class AttentionCore(Ordinary):
    """softmax(q·kᵀ)·v, reading q, k, v. FLOP over the full square: 2·b·a·s²·(d_qk + d_v).

    window   keys seen by a query, itself included (None: all)    causal  a query sees no later key
    softcap  scores pass through cap·tanh(score/cap)              sinks   one learnt extra score a head
    cross    keys and values come from the other stack            position  none, alibi or relative: a PositionBias is
                                                                           added (zeros in cross-attention, T5's code);
                                                                           dynamic: a mask that is read fourth is
                                                                           added; distance: scores that are read fourth
    chunk    a query sees only keys of its own run of `chunk` tokens (None: all)
    upcast   written out, the scores are a product of fp32 tensors
    anywhere the window's keys are chosen among all that are past, which are cached
    own_mask the code gives torch's attention a mask for each head
    shared   one tensor is both key and value, the same for all heads of every rank
    compressed  beside those, a query sees one more key for each run of so many tokens that is past (0: none), which
                it reads fourth; `chosen`: at most so many of these (None: all)
    ahead    keys seen from the query on, itself included, where both ways have windows of their own
    merged   keys and values are this stack's and the other's, one behind the other
    """

    heads: int
    kv_heads: int
    qk_dim: int
    v_dim: int
    window: int | None = None
    causal: bool = True
    softcap: bool = False
    sinks: bool = False
    cross: bool = False
    position: str = "none"
    chunk: int | None = None
    upcast: bool = False
    anywhere: bool = False
    own_mask: bool = False
    shared: bool = False
    compressed: int = 0
    chosen: int | None = None
    ahead: int | None = None
    merged: bool = False

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("sinks", (self.heads,), HEADS),) if self.sinks else ()

    @property
    def cached(self) -> int:
        """Numbers of keys and values a token."""
        return self.kv_heads * (self.qk_dim if self.shared else self.qk_dim + self.v_dim)

    def runs(self, length: Number) -> Number:
        """Keys that stand for runs of tokens, in a sequence of `length`."""
        return length // self.compressed if self.compressed else 0

    def own_pairs(self, work: Work) -> Number:
        """Return one head's (query, key) pairs over all sequences, compressed keys apart, in the convention asked for.

        Attention over both stacks' keys is halved here, on its own side."""
        if self.cross:
            return work.tokens * work.memory
        window, causal, chunk = self.window, self.causal, self.chunk
        documents = work.lengths or ((work.length, 1),)
        total: Number = 0
        for length, count in documents:
            if work.pairs == "exact" and causal and chunk is not None:
                one = (length // chunk) * causal_pairs(chunk, window) + causal_pairs(length % chunk, window)
            elif work.pairs == "exact" and causal:
                one = causal_pairs(length, window)
            elif work.pairs == "exact" and window is not None:
                one = causal_pairs(length, window) + causal_pairs(length, self.ahead or window) - length
            else:
                one = length * length
            total = total + one * count
        if self.merged:
            own = total // 2 if work.pairs == "half" and causal else total
            return work.sequences * own + work.tokens * work.memory
        return work.sequences * total

    def pairs(self, work: Work) -> Number:
        """(query, key) pairs of one head over all sequences, in the convention that the work asks for."""
        pairs = self.own_pairs(work)
        if self.compressed:
            for length, count in work.lengths or ((work.length, 1),):
                exact = work.pairs == "exact"
                one = run_pairs(length, self.compressed, self.chosen) if exact else length * self.runs(length)
                pairs = pairs + work.sequences * count * one
        return pairs

    def halved(self, work: Work) -> bool:
        """Whether half of the square is counted: the causal convention that ignores the diagonal. Attention that sees
        both ways stays full."""
        return work.pairs == "half" and self.causal and not (self.cross or self.merged)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        pairs = self.pairs(work)
        keys = work.memory if self.cross else work.length + self.runs(work.length) + work.memory * self.merged
        halves = self.halved(work)
        scores = matmul_flops(pairs, self.qk_dim, self.heads) // (2 if halves else 1)
        values = matmul_flops(pairs, self.v_dim, self.heads) // (2 if halves else 1)
        batch = work.sequences * self.heads
        of_scores, of_values = (Pairs(pairs, self.heads, size, halves) for size in (self.qk_dim, self.v_dim))
        return (
            Gemm("scores", batch, work.length, self.qk_dim, keys, scores, False, True, of_scores),
            Gemm("values", batch, work.length, keys, self.v_dim, values, False, True, of_values),
        )

    def traffic(self) -> tuple[Number, Number]:
        """Splitting, transposing and joining of q, k and v."""
        wide = (self.heads + self.kv_heads) * self.qk_dim + self.kv_heads * self.v_dim
        return 2 * wide, 4 * wide

    def division(self) -> str:
        return HEADS

    def time(self, timer: Timer) -> None:
        timer.attention(self)

    def attends(self) -> AttentionCore:
        return self

    def attention_width(self) -> Number:
        return self.heads * (self.qk_dim + self.v_dim)

    def ring(self) -> tuple[Number, Number]:
        return self.cached, self.cached * self.merged

    def cache(self, over: Served) -> Cache | None:
        """Keys and values, for at most the window; nothing where they are another layer's. Keys of runs of tokens, and
        of the other stack, are kept in addition; the other stack's are kept for its own tokens."""
        if self.reads[1].startswith(LENT):
            return None
        tokens = over.source if self.cross else over.context
        for bound in (None if self.anywhere else self.window, self.chunk):
            if bound is not None:
                tokens = minimum(tokens, bound)
        tokens = tokens + self.runs(over.context) + over.source * self.merged
        if self.shared:
            return Cache(self.reads[1], growing=tokens * self.cached)
        sizes = (self.qk_dim, self.v_dim)
        return Cache(self.reads[1], tokens=tokens, heads=self.kv_heads, head_dim=sizes, made_from=self.reads[1:3])

    def elements_moved(self, work: Work) -> Number:
        """The kernel reads q, k, v and writes the output, no scores: Dao et al. 2022, arXiv:2205.14135."""
        keys = work.sequences * work.memory if self.cross else work.tokens + work.sequences * self.runs(work.length)
        keys = keys + work.sequences * work.memory * self.merged
        return work.tokens * self.heads * (self.qk_dim + self.v_dim) + keys * self.cached


@record
class BandAttention(Ordinary):
    """softmax(q·kᵀ)·v over `window` / 2 keys to each side, reading q, k, v: products of chunks of a window that overlap
    by half of one, of a sequence that is padded to whole windows (Longformer, arXiv:2004.05150).

    With n half windows w a sequence, FLOP 2·b·a·d·((n − 1)·(2w)² + n·w·3w), in every convention of counting pairs."""

    heads: int
    qk_dim: int
    v_dim: int
    window: int

    def weights(self) -> tuple[Weight, ...]:
        return ()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        half, parts = self.window // 2, 2 * ceil_div(work.length, self.window)
        chunks = work.sequences * (parts - 1)
        found = (
            gemm("scores", self.window, self.qk_dim, self.window, chunks * self.heads, weight=False),
            gemm("values", half, 3 * half, self.v_dim, work.sequences * self.heads * parts, weight=False),
        )
        return tuple(replace(one, attention=True) for one in found)

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet

    def depends_on_shapes(self, length: int) -> bool:
        """The code pads sequences to whole windows."""
        return length % self.window == 0

    def attention_width(self) -> Number:
        return self.heads * (self.qk_dim + self.v_dim)


@record
class Indexer(Ordinary):
    """Chooses the `top_k` keys that each query of sparse attention sees (DeepSeek Sparse Attention, DeepSeek-V3.2):
    small queries from the latent query, one key a token, `rotary` numbers of each head turned, and a weight for each
    head; score = Σ_h w_h·relu(q_h·k).

    Reads the layer's normalised input and the latent query. FLOP over the full square: 2·b·s²·H·(D + 1). The loss's
    gradient does not reach its weights: a choice has none (transformers runs it without autograd)."""

    d_in: int
    q_rank: int
    heads: int
    head_dim: int
    rotary: int = 0

    def weights(self) -> tuple[Weight, ...]:
        shapes = (
            ("query", (self.heads * self.head_dim, self.q_rank)),
            ("key", (self.head_dim, self.d_in)),
            ("key_norm", (self.head_dim,)),
            ("key_norm_bias", (self.head_dim,)),
            ("head_weights", (self.heads, self.d_in)),
        )
        return tuple(Weight(name, shape, trained=False) for name, shape in shapes)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        t, s, each = work.tokens, work.length, work.sequences
        wide = self.heads * self.head_dim
        return (
            gemm(f"{self.name}/query", t, self.q_rank, wide),
            gemm(f"{self.name}/key", t, self.d_in, self.head_dim),
            gemm(f"{self.name}/head_weights", t, self.d_in, self.heads),
            gemm(f"{self.name}/scores", s, self.head_dim, s, each * self.heads, weight=False),
            gemm(f"{self.name}/sum", 1, self.heads, s, t, weight=False),
        )

    def inverts_mask(self) -> bool:
        return True

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet

    def cache(self, over: Served) -> Cache | None:
        """One key a token, on every rank."""
        return Cache(self.name, growing=over.context * self.head_dim)
