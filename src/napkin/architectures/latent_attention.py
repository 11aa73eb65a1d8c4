"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1) as a block."""

from __future__ import annotations

from collections.abc import Callable

from napkin.architectures.attention_parts import OutputGate, Rope, Scores
from napkin.architectures.blocks import RMS, NormStyle, Operations
from napkin.operations.attention.core import AttentionCore
from napkin.operations.base import Operation
from napkin.operations.linear import Matmul
from napkin.operations.pointwise import Scale
from napkin.operations.roles import COLUMN, KEY, KV_LATENT, QUERY, ROTATED_KEY, ROTATED_QUERY, ROW, VALUE
from napkin.operations.views import Concat, Slice
from napkin.record import record

PARTS, LATENTS = "parts", "latents"
"""What constants multiply: the parts of the queries and the latent of keys and values (LongCat-Flash, arXiv
2509.01322), or both latents, that of keys and values first copied out of its projection (dots3.note)."""


@record
class LatentSizes:
    """Sizes of latent attention. Each of `heads` heads has `nope` elements without positions next to the rotary ones,
    and values of `v_dim` elements; queries have a latent of `q_rank` (None: none), keys and values one of `kv_rank`."""

    width: int
    heads: int
    q_rank: int | None
    kv_rank: int
    nope: int
    v_dim: int


@record
class LatentAttention:
    """Multi-head latent attention: a block that reads [batch, seq, width].

    q  = norm(x·Wqa)·Wqb  (or x·Wq without a rank)       each head: nope elements, then rope.dim rotary ones
    [c, kr] = x·Wkva      [kn, v] = norm(c)·Wkvb         k = [kn, rotary kr, the same for every head]

    queries   makes the operations up to `q`, if they differ (and what a gate needs)
    index     makes the operation that chooses the keys, from the names of the input and of the latent query
    scaled    PARTS or LATENTS, or "" for neither
    rotates   else the rotary elements stay as they are, and queries whole (Kimi Linear, arXiv 2510.26692)
    key_norm  the rotary key is normalized before the rotation
    scores    of which window, sinks and anywhere are read
    """

    sizes: LatentSizes
    rope: Rope
    norm: NormStyle = RMS
    bias: bool = False
    queries: Callable[[LatentAttention, str], Operations] | None = None
    gate: OutputGate | None = None
    index: Callable[[str, str], Operation] | None = None
    scores: Scores = Scores()
    scaled: str = ""
    rotates: bool = True
    key_norm: bool = False
    prefix: str = ""

    @property
    def qk_dim(self) -> int:
        """Elements of a query's or key's head."""
        return self.sizes.nope + self.rope.dim

    def __call__(self, source: str) -> Operations:
        prefix, sizes = self.prefix, self.sizes
        made = self.queries(self, source) if self.queries is not None else self.usual_queries(source)
        made += self._keys_and_values(source)
        rotated, query, key = self._rotated()
        made += rotated
        if self.index is not None:
            made += (self.index(source, prefix + ("q_a_norm_scaled" if self.scaled == LATENTS else "q_a_norm")),)
        core = AttentionCore(
            prefix + "attention",
            (query, key, prefix + "v"),
            sizes.heads,
            sizes.heads,
            self.qk_dim,
            sizes.v_dim,
            window=self.scores.window,
            sinks=self.scores.sinks,
            anywhere=self.scores.anywhere,
        )
        made += (core,)
        if self.gate is not None:
            made += self.gate(source, core.name, sizes.width, sizes.heads, sizes.v_dim, prefix)
        attended = sizes.heads * sizes.v_dim
        return (*made, Matmul(prefix + "o", (made[-1].name,), attended, sizes.width, self.bias, ROW))

    def usual_queries(self, source: str) -> Operations:
        """Return the queries through a low-rank projection, or a single one if no rank is given."""
        prefix, sizes = self.prefix, self.sizes
        wide = sizes.heads * self.qk_dim
        if sizes.q_rank is None:
            return (Matmul(prefix + "q", (source,), sizes.width, wide, False, COLUMN, role=QUERY),)
        operations: Operations = (
            Matmul(prefix + "q_a", (source,), sizes.width, sizes.q_rank, self.bias),
            self.norm(prefix + "q_a_norm", prefix + "q_a", sizes.q_rank),
        )
        if self.scaled == LATENTS:
            operations += (Scale(prefix + "q_a_norm_scaled", (prefix + "q_a_norm",), sizes.q_rank),)
        reads = (operations[-1].name,)
        query = Matmul(prefix + "q", reads, sizes.q_rank, wide, False, COLUMN, role=QUERY, module=prefix + "q_b")
        return (*operations, query)

    def _keys_and_values(self, source: str) -> Operations:
        prefix, sizes = self.prefix, self.sizes
        heads, rank, rotary = sizes.heads, sizes.kv_rank, self.rope.dim
        copied = self.scaled == LATENTS
        operations: Operations = (
            Matmul(prefix + "kv_a", (source,), sizes.width, rank + rotary, self.bias, role=KV_LATENT),
            Slice(prefix + "kv_latent", (prefix + "kv_a",), rank, copied=copied),
            Slice(prefix + "k_shared", (prefix + "kv_a",), rotary),
            self.norm(prefix + "kv_a_norm", prefix + "kv_latent", rank),
        )
        if self.scaled:
            operations += (Scale(prefix + "kv_a_norm_scaled", (prefix + "kv_a_norm",), rank),)
        return (
            *operations,
            Matmul(prefix + "kv_b", (operations[-1].name,), rank, heads * (sizes.nope + sizes.v_dim), False, COLUMN),
            Slice(prefix + "k_nope", (prefix + "kv_b",), heads * sizes.nope),
            Slice(prefix + "v", (prefix + "kv_b",), heads * sizes.v_dim, role=VALUE),
        )

    def _rotated(self) -> tuple[Operations, str, str]:
        """Return the rotations and the joining of heads, and the names of queries and keys."""
        prefix, heads, nope, rotary = self.prefix, self.sizes.heads, self.sizes.nope, self.rope.dim
        operations: list[Operation] = []
        query, shared = prefix + "q", prefix + "k_shared"
        if self.key_norm:
            operations.append(self.norm(prefix + "k_shared_norm", shared, rotary))
            shared = prefix + "k_shared_norm"
        if self.rotates:
            parts = {"q_nope": heads * nope, "q_pe": heads * rotary}
            operations += [Slice(prefix + part, (query,), size) for part, size in parts.items()]
            if self.scaled == PARTS:
                operations += [Scale(f"{prefix}{part}_scaled", (prefix + part,), size) for part, size in parts.items()]
            still, turned = (prefix + part + "_scaled" * (self.scaled == PARTS) for part in parts)
            operations += [
                self.rope(prefix + "q_rope", turned, heads, rotary, ROTATED_QUERY),
                self.rope(prefix + "k_rope", shared, 1, rotary, ROTATED_KEY),
                Concat(prefix + "q_joined", (still, prefix + "q_rope"), heads * self.qk_dim),
            ]
            query, shared = prefix + "q_joined", prefix + "k_rope"
        reads = (prefix + "k_nope", shared)
        key = Concat(prefix + "k", reads, heads * self.qk_dim, first_type=True, role=KEY)
        return (*operations, key), query, key.name
