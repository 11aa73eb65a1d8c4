"""Learned choices of the keys that attention sees."""

from __future__ import annotations

from napkin.autograd.tensors import BYTES, Tensor, select
from napkin.elementwise import Number
from napkin.operations.adapters.adapted import pair
from napkin.operations.adapters.lora import adapter_width
from napkin.operations.bases import Module
from napkin.operations.facts import Cache, LinearPart, Served
from napkin.operations.implementations import Implementation
from napkin.operations.lowering import Lowering, either
from napkin.operations.roles import KV_LATENT, QUERY, ROTATED_KEY, ROTATED_QUERY
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work, chosen_by, gemm
from napkin.record import record

ONLY_FORWARD = (
    "sparse attention's indexers run without gradient and count once; with --indexer-loss, flops and mfu also count "
    "their backward pass"
)


@record
class Indexer(Module):
    """Chooses the `top_k` keys that each query of sparse attention sees (DeepSeek Sparse Attention, DeepSeek-V3.2):
    small queries from the latent query, one key per token, `rotary` elements of each head rotated, and a weight for
    each head; score = Σ_h w_h·relu(q_h·k).

    Reads the layer's normalized input and the latent query; `tempered`: in place of the latter the input again,
    which it normalizes, and a learned factor of the position multiplies each head's query. FLOP over the full square:
    2·b·s²·H·(D + 1). The loss's gradient does not reach its weights: a choice has none (transformers runs it without
    autograd).

    pool  the keys of this many tokens are one, their average by weights that a linear layer and learned positions make;
          scores are those of whole pools"""

    d_in: int
    q_rank: int
    heads: int
    head_dim: int
    rotary: int = 0
    tempered: bool = False
    pool: int = 1

    def weights(self) -> tuple[Weight, ...]:
        shapes: tuple[tuple[str, tuple[int, ...]], ...] = (
            ("query", (self.heads * self.head_dim, self.q_rank)),
            ("key", (self.head_dim, self.d_in)),
            ("key_norm", (self.head_dim,)),
            ("key_norm_bias", (self.head_dim,)),
            ("head_weights", (self.heads, self.d_in)),
        )
        if self.tempered:
            vectors = (("input_norm", self.d_in), ("input_norm_bias", self.d_in))
            factors = (("temper_scale", self.heads), ("temper_bias", self.heads))
            shapes = (*shapes, *((name, (size,)) for name, size in (*vectors, *factors)))
        if self.pool > 1:
            shapes = (
                *shapes,
                ("pool_gate", (self.head_dim, self.d_in)),
                ("pool_positions", (self.pool, self.head_dim)),
            )
        return tuple(Weight(name, shape, trained=False) for name, shape in shapes)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        t, s, each = work.tokens, work.length, work.sequences
        wide, keys = self.heads * self.head_dim, s // self.pool
        pooled = (gemm(f"{self.name}/pool_gate", t, self.d_in, self.head_dim),) if self.pool > 1 else ()
        products = (
            *pooled,
            gemm(f"{self.name}/query", t, self.q_rank, wide),
            gemm(f"{self.name}/key", t, self.d_in, self.head_dim),
            gemm(f"{self.name}/head_weights", t, self.d_in, self.heads),
            gemm(f"{self.name}/scores", s, self.head_dim, keys, each * self.heads, weight=False),
            gemm(f"{self.name}/sum", 1, self.heads, keys, t, weight=False),
        )
        return chosen_by(work, products)

    def linear_parts(self, implementation: Implementation) -> tuple[LinearPart, ...]:
        return (
            LinearPart(f"{self.module}.wq_b", self.q_rank, self.heads * self.head_dim),
            LinearPart(f"{self.module}.wk", self.d_in, self.head_dim),
            LinearPart(f"{self.module}.weights_proj", self.d_in, self.heads),
        )

    def remark(self) -> str:
        return ONLY_FORWARD

    def inverts_mask(self) -> bool:
        return True

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: `scores` counts what is between its products."""
        return 0, 0

    def scores(self, work: Work) -> Number:
        """Return the sums over the heads, which a kernel writes and the choice reads (DeepGEMM, fp8_mqa_logits)."""
        return work.tokens * work.length

    def cache(self, over: Served) -> Cache | None:
        """Cache one key per token, on every rank."""
        return Cache(self.name, growing=over.context * self.head_dim)

    def lower(self, run: Lowering) -> Value:
        """Choose the keys under no_grad, which saves nothing: the scores of all queries and keys, per head, are
        temporaries; with several sequences the keys are first copied for every query."""
        x, latent = run.read(self), run.read(self, 1)
        tape = run.tape
        outer, tape.recomputed = tape.recomputed, True
        stream = "fp32" if tape.autocast else tape.compute
        pairs = run.tokens * (run.s // self.pool)

        queries, keys, head_weights = self.linear_parts(run.implementation)
        asked = tape.layer_norm(latent.tensor, run.tokens, (), 0) if self.tempered else latent.tensor
        made = unkept(run, queries, asked)
        if self.tempered:
            made = tape.scale(made)
        key = tape.layer_norm(unkept(run, keys, x.tensor), run.tokens, (), 0)
        turned = []
        for part in (made, key):
            rotated = tape.new(part.count * self.rotary // self.head_dim, stream, "rotated")
            turned.append(tape.record("rotary", (part,), rotated))
        q, k = (
            tape.record("cat", (t, part), tape.new(t.count, stream, "joined"))
            for t, part in zip((made, key), turned, strict=True)
        )
        given = tape.lowered(tape.cast(k, "fp32"))
        spread = given.view(pairs * self.head_dim)
        spread = select(either(run.b > 1, False), tape.copy(spread, "spread"), spread)
        scores = tape.matmul(tape.cast(q, "fp32"), spread, pairs * self.heads, "scores")
        if tape.autocast:
            tape.hold(given)  # the cast argument of the product
        scores = tape.relu(tape.scale(scores))
        weights = tape.scale(tape.cast(unkept(run, head_weights, x.tensor), "fp32"))
        total = tape.scale(tape.matmul(weights, scores, pairs, "summed"))
        chosen = tape.record("topk", (total,), tape.new(run.tokens, "int32", "chosen keys"))
        around = (QUERY, KV_LATENT, ROTATED_QUERY, ROTATED_KEY)  # of the attention around it
        present = {op.role for op in run.program.operations}
        held = (run.made(role).tensor for role in around if role in present)
        tape.hold(latent.tensor, made, key, *turned, q, k, scores, chosen, *held)
        tape.recomputed = outer
        return Value(chosen, 1, x.divided)


def unkept(run: Lowering, part: LinearPart, read: Tensor) -> Tensor:
    """Run a linear layer that only a choice reads, and its adapter; autocast caches its copy of a trained weight."""
    tape = run.tape
    given, read = read, tape.lowered(read)
    copy = part.d_in * part.d_out * BYTES[tape.autocast] if tape.autocast and not tape.frozen else 0
    made = tape.new(read.count // part.d_in * part.d_out, read.dtype, "output")
    made = tape.record("linear", (read,), made)
    tape.nodes[-1].cached = copy
    rank = adapter_width(part, run.implementation.tuning)
    return tape.add(made, pair(run, given, part.d_in, part.d_out, rank)) if rank else made
