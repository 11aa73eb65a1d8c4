"""The attention core: softmax(q·kᵀ)·v."""

from __future__ import annotations

from napkin.autograd.tensors import Tensor, select
from napkin.elementwise import Number, maximum
from napkin.operations.adapters.lora import kind_on
from napkin.operations.attention.kernels import (
    FLASH_HEAD,
    FLASH_LARGEST,
    by_kernel,
    is_masked,
    prompted,
    repeated_in_kernel,
    whole_heads,
    with_runs,
)
from napkin.operations.base import Timer
from napkin.operations.bases import Ordinary
from napkin.operations.facts import Cache, Served
from napkin.operations.implementations import EAGER, EFFICIENT, FLASH
from napkin.operations.lowering import Lowering
from napkin.operations.primitives import matmul_flops, minimum
from napkin.operations.roles import HEADS, SHARED_TENSOR
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, PairRule, Pairs, Weight, Work
from napkin.record import record, replace


@record
class AttentionCore(Ordinary):
    """softmax(q·kᵀ)·v, reading q, k, v. FLOP over the full square: 2·b·a·s²·(d_qk + d_v).

    window   keys seen by a query, itself included (None: all)    causal  a query sees no later key
    softcap  scores pass through cap·tanh(score/cap)              sinks   one learned extra score a head
    cross    keys and values come from the other stack            position  none, alibi or relative: a PositionBias is
                                                                           added (zeros in cross-attention, T5's code);
                                                                           dynamic: a mask that is read fourth is
                                                                           added; distance: scores that are read fourth
    chunk    a query sees only keys of its own run of `chunk` tokens (None: all); if it sees later ones too, each run
             is a call of its own, and no other pairs are ever computed
    upcast   in eager attention, the scores are a matmul of fp32 tensors
    anywhere the window's keys are chosen among all past keys, which are cached
    own_mask the implementation passes torch's attention a mask for each head
    masked   the implementation passes torch's attention a mask, also one that hides nothing
    shared   one tensor is both key and value, the same for all heads of every rank
    compressed  next to those, a query sees one more key for each run of this many tokens that is past (0: none), which
                it reads fourth; `chosen`: at most this many of these (None: all)
    ahead    keys seen from the query on, itself included, if both directions have separate windows
    merged   keys and values of this stack and of the other one are concatenated
    copied   only head-major copies of what it reads are in variables
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
    masked: bool = False
    shared: bool = False
    compressed: int = 0
    chosen: int | None = None
    ahead: int | None = None
    merged: bool = False
    copied: bool = False

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("sinks", (self.heads,), HEADS),) if self.sinks else ()

    @property
    def cached(self) -> int:
        """Return the elements of keys and values per token."""
        return self.kv_heads * (self.qk_dim if self.shared else self.qk_dim + self.v_dim)

    def runs(self, length: Number) -> Number:
        """Return the compressed keys, one per run of tokens, in a sequence of `length`."""
        return length // self.compressed if self.compressed else 0

    def pair_rules(self, exact: bool) -> tuple[PairRule, ...]:
        """Return the (query, key) pairs of one head: `exact`, those that the mask allows; else those that an
        implementation computes before masking."""
        if self.cross:
            return (PairRule("own", ""),)
        rules = [self.own_rule(exact)]
        if self.compressed:
            rate = ("tokens_of_a_run", self.compressed)
            chosen = () if self.chosen is None else (("chosen", self.chosen),)
            rules.append(
                PairRule("runs", "run_pairs", (rate, *chosen)) if exact else PairRule("runs", "all_run_pairs", (rate,))
            )
        if self.merged:
            rules.append(PairRule("other_side", ""))
        return tuple(rules)

    def own_rule(self, exact: bool) -> PairRule:
        """Return the rule for the keys of the sequence itself."""
        window = () if self.window is None else (("window", self.window),)
        if self.chunk is not None and not self.causal:
            return PairRule("own", "chunk_squares", (("chunk", self.chunk),))
        if not exact:
            return PairRule("own", "square_pairs")
        if self.causal and self.chunk is not None:
            return PairRule("own", "chunk_pairs", (("chunk", self.chunk), *window))
        if self.causal:
            return PairRule("own", "causal_pairs", window)
        if self.window is not None:
            return PairRule("own", "two_sided_pairs", (*window, ("ahead", self.ahead or self.window)))
        return PairRule("own", "square_pairs")

    def pairs(self, work: Work) -> Number:
        """Return one head's (query, key) pairs over all sequences, in the selected convention. Packed documents see
        only themselves; if attention is over both stacks' keys, only its own side is halved."""
        total: Number = 0
        for rule in self.pair_rules(work.pairs == "exact"):
            if not rule.rule:
                total = total + rule.pairs(work.length, work.memory)
                continue
            own: Number = 0
            for length, count in work.lengths or ((work.length, 1),):
                own = own + count * rule.pairs(length, 0)
            total = total + (own // 2 if self.merged and self.causal and work.pairs == "half" else own)
        return work.sequences * total

    def halved(self, work: Work) -> bool:
        """Return whether half of the square is counted: the causal convention that ignores the diagonal. Attention that
        sees both ways stays full."""
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
            Gemm("scores", batch, work.length, self.qk_dim, keys, scores, False, of_scores),
            Gemm("values", batch, work.length, keys, self.v_dim, values, False, of_values),
        )

    def traffic(self) -> tuple[Number, Number]:
        """Count the copies that split, transpose and concatenate q, k and v."""
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
        """Return the keys and values, for at most the window; those that another layer caches are read again.
        Compressed keys, and keys of the other stack for its own tokens, are cached in addition."""
        again = self.reads[1].startswith(SHARED_TENSOR)
        tokens = over.source if self.cross else over.context
        for bound in (None if self.anywhere else self.window, self.chunk):
            if bound is not None:
                tokens = minimum(tokens, bound)
        runs = self.runs(over.context)
        unread = _beyond(tokens, self.window if self.anywhere else None) + _beyond(runs, self.chosen)
        tokens = tokens + runs + over.source * self.merged
        if self.shared:
            return Cache(self.reads[1], growing=tokens * self.cached, unread=unread * self.cached, again=again)
        sizes = (self.qk_dim, self.v_dim)
        made_from = self.reads[1:3]
        kept = Cache(self.reads[1], tokens=tokens, heads=self.kv_heads, head_dim=sizes, made_from=made_from)
        return replace(kept, unread=unread, again=again)

    def elements_moved(self, work: Work) -> Number:
        """Count q, k, v and the output; the kernel writes no scores (Dao et al. 2022, arXiv:2205.14135)."""
        keys = work.sequences * work.memory if self.cross else work.tokens + work.sequences * self.runs(work.length)
        keys = keys + work.sequences * work.memory * self.merged
        return work.tokens * self.heads * (self.qk_dim + self.v_dim) + keys * self.cached

    def lower(self, run: Lowering) -> Value:
        q, k, v = (run.read(self, i) for i in range(3))
        prefix = kind_on(self, run.implementation)
        kernel, masked = self._kernel(run, prefix is not None)
        heads = self.heads // run.split.tensor
        kv_heads = heads if k.width == self.heads * self.qk_dim else maximum(self.kv_heads // run.split.tensor, 1)
        width = self.heads * self.v_dim
        written = run.implementation.few_heads == "unchanged" and kv_heads is not heads and self.kv_heads != self.heads
        tensors = (q.tensor, k.tensor, v.tensor)
        if self.compressed:
            tensors = with_runs(run, self, tensors)
        if prefix is not None:
            from napkin.operations.adapters.virtual import with_prefix

            tensors = with_prefix(run, *prefix, tensors)
        tensors = self._as_the_kernel_reads(run, tensors, heads, kv_heads)
        first = len(run.tape.nodes)
        if kernel == EAGER:
            rows_apart = tuple(not value.heads_first for value in (q, k, v))
            out = self.eager(run, tensors, rows_apart, heads, kv_heads)
        elif written:
            from napkin.operations.attention.eager import written_out

            apart = tuple(t.view(rows_apart=not value.heads_first) for t, value in zip(tensors, (q, k, v), strict=True))
            out = written_out(run, self, apart, heads, kv_heads)
        else:
            out = by_kernel(run, self, tensors, heads, kv_heads, kernel, masked)
            cut = kernel == FLASH and self.qk_dim % FLASH_HEAD != 0
            if q.heads_first and kernel != EFFICIENT and not cut:  # the result lies as the query does
                out = select(heads == 1, out, run.tape.copy(out, "tokens first"))
        run.inner[self.name] = first, len(run.tape.nodes), len(run.tape.nodes)
        if run.split.exchanges:
            out = run.tape.record("exchange", (out,), run.tape.new(out.count, out.dtype, "own tokens of all heads"))
        if run.implementation.tuning is not None and run.implementation.tuning.prompted:
            out = prompted(run, out)
        return Value(out, width, True, True)

    def _kernel(self, run: Lowering, prefixed: bool) -> tuple[str, bool]:
        """Return the kernel that runs in place of the one asked for, where that does not take this attention, and
        whether it reads a mask."""
        kernel = run.attention
        if kernel == FLASH and self.qk_dim != self.v_dim and run.implementation.rotary != "kernel":
            kernel = EFFICIENT  # torch's flash kernel takes one head size for all three
        masked = kernel != EAGER and (prefixed or is_masked(run, self))
        if kernel == FLASH and (masked or self.position in ("relative", "distance") or self.qk_dim > FLASH_LARGEST):
            kernel = EFFICIENT  # flash takes no mask, and no larger heads
        return kernel, masked

    def _as_the_kernel_reads(
        self, run: Lowering, tensors: tuple[Tensor, Tensor, Tensor], heads: Number, kv_heads: Number
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return query, key and value as the implementation hands them to its kernel: all heads of a rank, scaled, in
        one tensor, exchanged between context-parallel ranks, key and value repeated for each query head."""
        implementation = run.implementation
        if implementation.gathers_heads:
            tensors = whole_heads(run, self, tensors)
        if implementation.query_scale:
            factor = run.tape.new(run.own, tensors[0].dtype, "query scale", no_grad=True)
            tensors = (run.tape.multiply(tensors[0], factor), *tensors[1:])
        if implementation.qkv == "joined":
            value = tensors[2]
            whole = run.tape.new(sum((t.count for t in tensors), 0), value.dtype, "query, key and value")
            tensors = (*tensors[:2], run.tape.slice(whole, value.count))
        if run.split.exchanges:
            tensors = exchanged(run, tensors, kv_heads)
        if implementation.few_heads == "repeated":
            keys, values = (repeated_in_kernel(run, t, heads, kv_heads) for t in tensors[1:])
            tensors = (tensors[0], keys, values)
        return tensors

    def eager(
        self, run: Lowering, qkv: tuple[Tensor, ...], rows_apart: tuple[bool, ...], heads: Number, kv_heads: Number
    ) -> Tensor:
        """Run attention in elementary operations. `rows_apart`: that of q, k and v, which have their heads
        interleaved."""
        from napkin.operations.attention.eager import eager

        views = tuple(t.view(rows_apart=apart) for t, apart in zip(qkv, rows_apart, strict=True))
        return eager(run, self, views, heads, kv_heads)


def exchanged(run: Lowering, qkv: tuple[Tensor, Tensor, Tensor], kv_heads: Number) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values of a rank's heads for all tokens, in place of all heads for its own tokens. Fewer
    key and value heads than ranks are repeated before (Ulysses: arXiv:2309.14509, section 3.2). kv_heads: of a
    tensor-parallel rank."""
    more = maximum(run.split.context // kv_heads, 1)
    q, k, v = (
        run.tape.record("exchange", (t,), run.tape.new(t.count * times, t.dtype, "own heads of all tokens"))
        for t, times in zip(qkv, (1, more, more), strict=True)
    )
    return q, k, v


def _beyond(tokens: Number, most: int | None) -> Number:
    """Return how many of these tokens exceed the number that a query chooses (None: it sees all)."""
    return 0 if most is None else tokens - minimum(tokens, most)
