"""A layer is a list of operations; parameters, FLOPs, activation bytes, bytes moved and time are folds over it.

A layer is a small dataflow program. Each operation's `name` is also the name of its output tensor, and `reads` names
the outputs that it reads; "x" is the layer's input, and the last operation's output is the next layer's. Symbols:
T tokens, b sequences, s length, h width, a query heads, d head size, f feed-forward width, E experts, k chosen experts.

How a weight or an output splits over tensor-parallel ranks is its `shard`:
    column      the output dimension is divided (q, k, v, gate, up): bias divided with it
    row         the input dimension is divided (attention output, down): bias whole on each rank
    heads       one entry or row a head, divided with the heads
    vocabulary  the rows of a table are divided
    expert      whole experts are divided over expert-parallel ranks
    replicated  whole on each rank
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from napkin.elementwise import Number
from napkin.operations.primitives import causal_pairs, ceil_div, is_array, matmul_flops, minimum, run_pairs
from napkin.record import record, replace

MEMORY = "memory"
"""What cross-attention reads: the encoder's output."""
LENT = "lent/"
"""How a tensor that was lent is read: this and the name of the operation that lends it."""
COLUMN, ROW, HEADS, VOCABULARY, EXPERT, REPLICATED = "column", "row", "heads", "vocabulary", "expert", "replicated"


TABLES = ("token", "layers")
"""Roles of the tables that tokens are looked up in."""


@record
class Weight:
    """A parameter tensor: `copies` of `shape` (experts have copies). `used` of the copies serve one token. `trained`:
    a gradient reaches it."""

    name: str
    shape: tuple[int, ...]
    shard: str = REPLICATED
    copies: int = 1
    used: int = 1
    trained: bool = True

    @property
    def count(self) -> int:
        """All parameters."""
        return self.copies * self.each

    @property
    def active(self) -> int:
        """Parameters that serve one token."""
        return self.used * self.each

    @property
    def each(self) -> int:
        total = 1
        for size in self.shape:
            total *= size
        return total


@record
class Work:
    """What one forward pass runs over: T tokens in sequences whose lengths square to `squares`.

    tokens   Σ length                  squares  Σ length² (attention's full square)
    length   the longest sequence      pairs    full, half or exact: which (query, key) pairs count
    lengths  documents packed into a sequence, (length, how many) each; attention stays inside a document
    memory   length of the other stack's sequence, for cross-attention (0 where there is none)
    """

    sequences: Number
    length: Number
    pairs: str = "full"
    lengths: tuple[tuple[int, int], ...] = ()
    memory: Number = 0

    @property
    def tokens(self) -> Number:
        return self.sequences * self.length

    def pairs_per_head(self, core: AttentionCore) -> Number:
        """(query, key) pairs of one head over all sequences, in the convention asked for. What attends to both stacks'
        keys is halved here, on its own side."""
        if core.cross:
            return self.tokens * self.memory
        window, causal, chunk = core.window, core.causal, core.chunk
        documents = self.lengths or ((self.length, 1),)
        total: Number = 0
        for length, count in documents:
            if self.pairs == "exact" and causal and chunk is not None:
                one = (length // chunk) * causal_pairs(chunk, window) + causal_pairs(length % chunk, window)
            elif self.pairs == "exact" and causal:
                one = causal_pairs(length, window)
            elif self.pairs == "exact" and window is not None:
                one = causal_pairs(length, window) + causal_pairs(length, core.ahead or window) - length
            else:
                one = length * length
            total = total + one * count
        if core.merged:
            own = total // 2 if self.pairs == "half" and causal else total
            return self.sequences * own + self.tokens * self.memory
        return self.sequences * total


@record
class Product:
    """`batch` matrix products (m×k)(k×n) on one device, in the forward pass.

    `flops` is 2·batch·m·k·n, but for attention in a convention that counts fewer pairs. `weight` tells whether (k×n)
    is a parameter (backward then makes one product for the input's and one for the weight's gradient)."""

    name: str
    batch: Number
    m: Number
    k: Number
    n: Number
    flops: Number
    weight: bool = True
    attention: bool = False


def product(name: str, m: Number, k: Number, n: Number, batch: Number = 1, weight: bool = True) -> Product:
    return Product(name, batch, m, k, n, matmul_flops(m, k, n, batch), weight)


@record
class Operation:
    """What all operations share: no weights and no matrix products unless a kind says otherwise."""

    name: str
    reads: tuple[str, ...]

    def weights(self) -> tuple[Weight, ...]:
        """Parameter tensors, whole (not yet divided)."""
        return ()

    def products(self, work: Work) -> tuple[Product, ...]:
        """Matrix products of one forward pass on one device, undivided."""
        return ()

    def moved(self) -> tuple[Number, Number]:
        """Bytes a token that its elementwise work must move, forward and backward, in 16-bit tensors: of operations
        that step.py has no rule for."""
        return 0, 0


@record
class Embedding(Operation):
    """A look-up of `width` numbers in a table of `rows`; no FLOPs. `role`: token, position or segment; layers: of
    numbers that each layer takes its part of; distance: a table that is not looked up, but read whole (TableMatmul).
    `trained`: a gradient reaches the table.
    """

    rows: int
    width: int
    role: str = "token"
    trained: bool = True

    def weights(self) -> tuple[Weight, ...]:
        shard = VOCABULARY if self.role in TABLES else REPLICATED
        return (Weight("weight", (self.rows, self.width), shard, trained=self.trained),)


@record
class Norm(Operation):
    """Normalisation over the last `width` numbers. `kind`: rms, layer, or affine: weight and bias alone (MobileBERT).

    arithmetic  how the reference code computes it:
        fused       one kernel in the input's type (F.layer_norm, F.rms_norm); what a layer norm is unless said
        fused_fp32  that kernel on an fp32 copy of the input, cast back
        fp32_norm   written out: normalised in fp32, cast back, then the weight; what an rms norm is unless said
        fp32_spread as that, but what is divided by the fp32 deviation is the input as it came (T5)
        fp32        written out: the weight too is applied in fp32, then cast back
        narrow      written out: the reciprocal deviation, made in fp32, is cast to the input's type and multiplies it
    groups     how many vectors of `width` a token has (heads, for norms of queries and keys)
    unit_offset  the weight is stored as its difference from 1 (Gemma)
    weight, bias which of its vectors exist; shared over the groups unless `per_group`
    gated      multiplied by the activation (`gate`) of a gate that is read second (Mamba-2)
    """

    width: int
    kind: str = "rms"
    groups: int = 1
    unit_offset: bool = False
    weight: bool = True
    bias: bool = False
    per_group: bool = False
    gated: bool = False
    shard: str = REPLICATED
    arithmetic: str = ""
    gate: str = "silu"

    def __post_init__(self) -> None:
        if not self.arithmetic:
            object.__setattr__(self, "arithmetic", "fused" if self.kind == "layer" else "fp32_norm")

    def weights(self) -> tuple[Weight, ...]:
        shape = (self.groups, self.width) if self.per_group else (self.width,)
        present = (("weight", self.weight), ("bias", self.bias))
        return tuple(Weight(name, shape, self.shard) for name, there in present if there)


@record
class Matmul(Operation):
    """A linear layer d_in → d_out; y = x·W (+ bias). FLOP: 2·T·d_in·d_out."""

    d_in: int
    d_out: int
    bias: bool = False
    shard: str = REPLICATED

    def weights(self) -> tuple[Weight, ...]:
        weight = Weight("weight", (self.d_out, self.d_in), self.shard)
        if not self.bias:
            return (weight,)
        return (weight, Weight("bias", (self.d_out,), COLUMN if self.shard == COLUMN else REPLICATED))

    def products(self, work: Work) -> tuple[Product, ...]:
        return (product(self.name, work.tokens, self.d_in, self.d_out),)


@record
class JoinedHead(Operation):
    """logits = x·[table, rest]ᵀ + bias: the head's matrix is put together on every pass, from the token table of
    `table` numbers a token and a matrix of the others. FLOP: 2·T·d_in·d_out."""

    d_in: int
    d_out: int
    table: int

    def weights(self) -> tuple[Weight, ...]:
        table = Weight("weight", (self.d_out, self.table), VOCABULARY)
        rest = Weight("rest", (self.d_in - self.table, self.d_out))
        return (table, rest, Weight("bias", (self.d_out,)))

    def products(self, work: Work) -> tuple[Product, ...]:
        return (product(self.name, work.tokens, self.d_in, self.d_out),)


@record
class BlockMatmul(Operation):
    """A block-diagonal linear layer: `blocks` separate maps d_in → d_out, one a head. FLOP: 2·T·blocks·d_in·d_out."""

    blocks: int
    d_in: int
    d_out: int
    bias: bool = False
    shard: str = HEADS

    def weights(self) -> tuple[Weight, ...]:
        weight = Weight("weight", (self.blocks, self.d_out, self.d_in), self.shard)
        return (weight, Weight("bias", (self.blocks, self.d_out), self.shard)) if self.bias else (weight,)

    def products(self, work: Work) -> tuple[Product, ...]:
        return (product(self.name, work.tokens, self.d_in, self.d_out, batch=self.blocks),)


@record
class TableMatmul(Operation):
    """A linear layer applied to the `rows` of a table, however many tokens there are. FLOP: 2·rows·d_in·d_out.

    `within`: at most two rows a position of the sequence are taken (distances −s … s)."""

    rows: int
    d_in: int
    d_out: int
    bias: bool = False
    within: bool = False

    def weights(self) -> tuple[Weight, ...]:
        return Matmul(self.name, self.reads, self.d_in, self.d_out, self.bias, COLUMN).weights()

    def products(self, work: Work) -> tuple[Product, ...]:
        rows = minimum(self.rows, 2 * work.length) if self.within else self.rows
        return (product(self.name, rows, self.d_in, self.d_out),)


@record
class PositionBias(Operation):
    """A learnt score for each head and bucket of distances between query and key, added to attention's (T5,
    arXiv:1910.10683, section 2.1). `shared`: the layers that follow use it too, and have no table of their own."""

    buckets: int
    heads: int
    shared: bool = True

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("weight", (self.buckets, self.heads), HEADS),)


@record
class RelativeScores(Operation):
    """Scores of each query or key against the `rows` of a table of relative positions, a part of attention's scores
    (DeBERTa, arXiv:2006.03654). FLOP: 2·b·a·s·rows·d. `within` as in TableMatmul. `divided`: what a constant divides,
    the table's rows, the scores, or neither (a query that is scaled already)."""

    heads: int
    head_dim: int
    rows: int
    within: bool = False
    divided: str = "scores"

    def products(self, work: Work) -> tuple[Product, ...]:
        rows = minimum(self.rows, 2 * work.length) if self.within else self.rows
        return (product(self.name, work.length, self.head_dim, rows, work.sequences * self.heads, weight=False),)


@record
class Reused(Operation):
    """An operation whose weights another place owns (Model.shared, the other stack's table): it works again here and
    its weights are not counted again."""

    of: Operation

    def products(self, work: Work) -> tuple[Product, ...]:
        return self.of.products(work)


@record
class Lend(Operation):
    """Hands what it reads on to all layers that follow: keys and values that several layers share, or numbers of which
    each layer has its part. No pipeline stage then stands alone."""


@record
class Slice(Operation):
    """A view of `width` numbers a token out of a wider (fused) tensor: keeps the whole storage alive.

    indexed  taken by a list of indices: a copy, whose index is kept too
    groups   so many groups of heads are put together: a copy, but of one
    repeats  each group's one head is repeated so often
    copied   a copy, which keeps nothing of the wider one
    """

    width: int
    indexed: bool = False
    groups: int = 1
    repeats: int = 1
    copied: bool = False


@record
class Rotary(Operation):
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


@record
class AttentionCore(Operation):
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

    def pairs(self, work: Work) -> Number:
        """(query, key) pairs of one head over all sequences, in the convention that the work asks for."""
        pairs = work.pairs_per_head(self)
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

    def products(self, work: Work) -> tuple[Product, ...]:
        pairs = self.pairs(work)
        keys = work.memory if self.cross else work.length + self.runs(work.length) + work.memory * self.merged
        halves = self.halved(work)
        scores = matmul_flops(pairs, self.qk_dim, self.heads) // (2 if halves else 1)
        values = matmul_flops(pairs, self.v_dim, self.heads) // (2 if halves else 1)
        batch = work.sequences * self.heads
        return (
            Product("scores", batch, work.length, self.qk_dim, keys, scores, weight=False, attention=True),
            Product("values", batch, work.length, keys, self.v_dim, values, weight=False, attention=True),
        )


@record
class Transpose(Operation):
    """A view with the sequences' tokens of each step next to each other: a product that reads it copies several
    sequences. `width` numbers a token."""

    width: int


@record
class BandAttention(Operation):
    """softmax(q·kᵀ)·v over `window` / 2 keys to each side, reading q, k, v: products of chunks of a window that overlap
    by half of one, of a sequence that is padded to whole windows (Longformer, arXiv:2004.05150).

    With n half windows w a sequence, FLOP 2·b·a·d·((n − 1)·(2w)² + n·w·3w), in every convention of counting pairs."""

    heads: int
    qk_dim: int
    v_dim: int
    window: int

    def products(self, work: Work) -> tuple[Product, ...]:
        half, parts = self.window // 2, 2 * ceil_div(work.length, self.window)
        chunks = work.sequences * (parts - 1)
        found = (
            product("scores", self.window, self.qk_dim, self.window, chunks * self.heads, weight=False),
            product("values", half, 3 * half, self.v_dim, work.sequences * self.heads * parts, weight=False),
        )
        return tuple(replace(one, attention=True) for one in found)


@record
class Indexer(Operation):
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

    def products(self, work: Work) -> tuple[Product, ...]:
        t, s, each = work.tokens, work.length, work.sequences
        wide = self.heads * self.head_dim
        return (
            product(f"{self.name}/query", t, self.q_rank, wide),
            product(f"{self.name}/key", t, self.d_in, self.head_dim),
            product(f"{self.name}/head_weights", t, self.d_in, self.heads),
            product(f"{self.name}/scores", s, self.head_dim, s, each * self.heads, weight=False),
            product(f"{self.name}/sum", 1, self.heads, s, t, weight=False),
        )


@record
class Activation(Operation):
    """An elementwise non-linearity over `width` numbers a token, by its name in config.json: silu, gelu, gelu_new,
    gelu_pytorch_tanh, relu, relu2, … `learnt` scalars belong to it (xIELU has two). `upcast`: computed in fp32 and
    cast back."""

    width: int
    function: str
    learnt: int = 0
    upcast: bool = False

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("scalars", (self.learnt,)),) if self.learnt else ()


@record
class Dropout(Operation):
    """Dropout of `width` numbers a token that no residual addition carries (after the embeddings)."""

    width: int


@record
class Jitter(Operation):
    """Noise of a router: `width` numbers a token, each multiplied in place by a random factor near 1, in training."""

    width: int


@record
class Softcap(Operation):
    """cap·tanh(x/cap) over `width` numbers a token."""

    width: int


@record
class Clamp(Operation):
    """Values cut to an interval, `width` numbers a token."""

    width: int


@record
class Concat(Operation):
    """A new tensor of `width` numbers a token, copied together from all that it reads (one head's part repeated over
    the heads where it is shared). `first_type`: in the first one's type; else in the widest of all."""

    width: int
    first_type: bool = False


@record
class Multiply(Operation):
    """An elementwise product of two tensors of `width` numbers a token."""

    width: int


@record
class Scale(Operation):
    """Multiplication by a constant, or by a learnt vector of `width` (`learnt`). `cast`: the constant is held as an
    integer tensor, which each pass casts to the activations' type. `positions`: each position has a constant of its
    own, in fp32 (Llama 4's temperature of attention). `vector`: constants of each of the `width` numbers, held with the
    weights. `sequences`: each sequence has one, in fp32. `held`: the format that the one constant is held in, which
    each pass casts. `masks`: the constant is each token's mask, in the activations' format, or held as booleans."""

    width: int
    learnt: bool = False
    cast: bool = False
    positions: bool = False
    sequences: bool = False
    vector: bool = False
    held: str = ""
    masks: bool = False

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("scale", (self.width,)),) if self.learnt else ()


@record
class Add(Operation):
    """A sum of tensors of `width` numbers a token (the residual); `dropout` marks the branch read second."""

    width: int
    dropout: bool = False


@record
class Router(Operation):
    """Chooses `top_k` of `experts` for each token by a linear layer. FLOP: 2·T·h·E.

    score      softmax, sigmoid, sqrtsoftplus (√softplus), or softmax_top_k and sigmoid_top_k (of the chosen alone)
    normalise  the chosen scores are divided by their sum       upcast   the linear layer runs in fp32
    balanced   a bias that no gradient reaches takes part in the choice: kept as a buffer, or as a parameter
    softcap    the logits pass through cap·tanh(logit/cap)
    noise      its input is multiplied in place by a random factor near 1, in training
    hashed     a fixed table chooses by the token's number, the linear layer only scores the chosen (Roller et al. 2021,
               arXiv:2106.04426): a buffer, of which rows are looked up
    masked     all scores but those of chosen groups are masked, and the best are taken from what is left
    """

    d_in: int
    experts: int
    top_k: int
    bias: bool = False
    score: str = "softmax"
    normalise: bool = False
    upcast: bool = False
    balanced: str = ""
    softcap: bool = False
    noise: bool = False
    hashed: bool = False
    masked: bool = False

    def weights(self) -> tuple[Weight, ...]:
        present = (("bias", self.bias), ("balance", self.balanced == "parameter"))
        vectors = tuple(Weight(name, (self.experts,), trained=name != "balance") for name, there in present if there)
        return (Weight("weight", (self.experts, self.d_in)), *vectors)

    def products(self, work: Work) -> tuple[Product, ...]:
        return (product(self.name, work.tokens, self.d_in, self.experts),)


@record
class BalanceLoss(Operation):
    """A second loss, on how evenly the routers of all layers spread the tokens over `experts` (Fedus et al. 2021,
    arXiv:2101.03961, equations 4 to 6). `each`: how many routers' logits a layer gives to it."""

    experts: int
    top_k: int
    each: int = 1


@record
class Experts(Operation):
    """Routed feed-forward networks h → f → h; each token runs through top_k of them. FLOP: 2·T·k·(2 or 3)·h·f.

    Reads the tokens and the router's output. `function`: as in Activation, or swiglu_oai: (up + 1)·gate·σ(1.702·gate)
    of clamped gate and up. `weighted_input`: the score multiplies the token before its expert, not after. `idle`:
    choices of a token, beside top_k, that fall on average on experts without weights, which hand it on (LongCat).
    `upcast`: the gate's activation and its product with up run in fp32. `limited`: gate and up are cut to an interval
    before the activation. `dropout`: before the last product. `capacity`: so many tokens of a sequence an expert serves
    at most (0: all)."""

    d_model: int
    d_ff: int
    experts: int
    top_k: int
    gated: bool = True
    bias: bool = False
    function: str = "silu"
    weighted_input: bool = False
    idle: int = 0
    upcast: bool = False
    dropout: bool = False
    capacity: int = 0
    limited: bool = False

    def weights(self) -> tuple[Weight, ...]:
        h, f, e, k = self.d_model, self.d_ff, self.experts, self.top_k
        first = ("gate_up", (2 * f, h)) if self.gated else ("up", (f, h))  # one tensor each for all experts
        shapes = [first, ("down", (h, f))]
        weights = [Weight(name, shape, EXPERT, e, k) for name, shape in shapes]
        if self.bias:
            weights += [Weight(f"{name}_bias", shape[:1], EXPERT, e, k) for name, shape in shapes]
        return tuple(weights)

    def products(self, work: Work) -> tuple[Product, ...]:
        # rows spread over the experts; the shape that each sees on average is the same total
        rows = work.tokens * self.top_k
        up = ("gate", "up") if self.gated else ("up",)
        return (
            *(product(f"{self.name}/{name}", rows, self.d_model, self.d_ff) for name in up),
            product(f"{self.name}/down", rows, self.d_ff, self.d_model),
        )


@record
class ExpertMatmul(Operation):
    """A linear layer of which there are `experts`, each for the rows whose router chose it (JetMoE, arXiv:2404.07413).
    FLOP: 2·T·k·d_in·d_out.

    Reads a tensor and a router's output. `reads_rows` and `makes`: how the rows of what it reads and makes stand:
    tokens one row a token · choices one for each token's choice · sorted the same, by expert. Making tokens, it weighs
    its choices by their scores and adds them up, and a bias."""

    d_in: int
    d_out: int
    experts: int
    top_k: int
    reads_rows: str = "tokens"
    makes: str = "sorted"

    def weights(self) -> tuple[Weight, ...]:
        weight = Weight("weight", (self.d_out, self.d_in), EXPERT, self.experts, self.top_k)
        return (weight, Weight("bias", (self.d_out,))) if self.makes == "tokens" else (weight,)

    def products(self, work: Work) -> tuple[Product, ...]:
        return (product(self.name, work.tokens * self.top_k, self.d_in, self.d_out),)


@record
class Conv(Operation):
    """A convolution of `kernel` steps along the sequence, each of `channels` outputs reading `group` channels.

    Depthwise (group 1) it is elementwise work in a fused kernel and no matrix product; a full one (group > 1) is the
    product (T × group·kernel)(group·kernel × channels). FLOP: 2·T·group·kernel·channels."""

    channels: int
    kernel: int
    bias: bool = True
    shard: str = COLUMN
    group: int = 1

    def weights(self) -> tuple[Weight, ...]:
        weight = Weight("weight", (self.channels, self.group, self.kernel), self.shard)
        return (weight, Weight("bias", (self.channels,), self.shard)) if self.bias else (weight,)

    def products(self, work: Work) -> tuple[Product, ...]:
        if self.group == 1:
            return ()
        return (product(self.name, work.tokens, self.group * self.kernel, self.channels),)


@record
class ConvPair(Operation):
    """Two causal convolutions along the sequence, one after the other, of `kernels` steps each: a depthwise one, and
    one whose `channels` outputs each read the `group` channels of their head (Compressed Convolutional Attention,
    arXiv:2510.04476). FLOP of the second: 2·T·group·kernel·channels."""

    channels: int
    group: int
    kernels: tuple[int, int]

    def weights(self) -> tuple[Weight, ...]:
        shapes = (
            ("depthwise", (self.channels, 1, self.kernels[0])),
            ("heads", (self.channels, self.group, self.kernels[1])),
        )
        return tuple(
            weight
            for name, shape in shapes
            for weight in (Weight(name, shape, COLUMN), Weight(f"{name}_bias", shape[:1], COLUMN))
        )

    def products(self, work: Work) -> tuple[Product, ...]:
        return (product(self.name, work.tokens, self.group * self.kernels[1], self.channels),)


@record
class Delayed(Operation):
    """Values of which one half is made of a token itself, read first, and one half of the token before: `width` numbers
    a token. What stands before a sequence is made of zeros, `d_in` of them, with the same weights.
    FLOP: 2·b·d_in·width/2."""

    width: int
    d_in: int

    def products(self, work: Work) -> tuple[Product, ...]:
        return (product(self.name, work.sequences, self.d_in, self.width // 2),)


@record
class UnitNorm(Operation):
    """x·√width/‖x‖ over each of `groups` vectors of `width` numbers; `learnt`: and by a learnt factor of each."""

    width: int
    groups: int
    learnt: bool = False

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("scale", (self.groups,), HEADS),) if self.learnt else ()


@record
class GroupMean(Operation):
    """The mean of the heads of each group: `width` numbers a token are left."""

    width: int


@record
class Affine(Operation):
    """(x + b)·w with learnt vectors b and w of `width`."""

    width: int

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("bias", (self.width,)), Weight("scale", (self.width,)))


@record
class Carried(Operation):
    """What the layer before hands on beside the stream: `width` numbers a token. `wide`: weights had a part in it, so
    that it is fp32 under autocast."""

    width: int
    wide: bool = False


@record
class Behind(Operation):
    """Tokens of two stacks, one behind the other: `width` numbers for each."""

    width: int


@record
class Overwrite(Operation):
    """The rows of one certain token replaced in place by a learnt vector of `width` numbers."""

    width: int

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("vector", (self.width,)),)


@record
class Learnt(Operation):
    """Vectors or small tensors that a layer learns besides its matrices (A, D, dt bias, decay, …). `trained`: a
    gradient reaches them."""

    tensors: tuple[tuple[str, tuple[int, ...]], ...]
    shard: str = HEADS
    trained: bool = True

    def weights(self) -> tuple[Weight, ...]:
        return tuple(Weight(name, shape, self.shard, trained=self.trained) for name, shape in self.tensors)


@record
class ForgetGate(Operation):
    """How much of a recurrence's state each channel keeps, as a logarithm: −exp(A)·softplus(x + b), with a learnt A of
    each of `heads` and b of each of their `head_dim` channels (Kimi Delta Attention, arXiv:2510.26692, section 3).

    form      how the reference code computes it, in fp32:
        guarded   softplus written out, but for numbers so large that it changes nothing
        softplus  one kernel
        bounded   floor·σ(exp(A)·(x + b)) in its place: no less than `floor`
    narrowed  cast to the stream's type
    """

    heads: int
    head_dim: int
    form: str = "guarded"
    narrowed: bool = False

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("decay", (self.heads,), HEADS), Weight("bias", (self.heads * self.head_dim,), HEADS))


@record
class Cast(Operation):
    """The same numbers in another format: in fp32 (`wide`), or in that of the parameters."""

    width: int
    wide: bool = False


@record
class Mix(Operation):
    """x·w + y·(1 − w), where y is x of the token before and w the learnt share of each of `width` channels, read
    second (RWKV)."""

    width: int


@record
class Scan(Operation):
    """A recurrence over the sequence with a state of `state` numbers a channel: `heads` × `head_dim` channels.

    kind     selective (Mamba), ssd (Mamba-2), delta (gated delta rule), kda (the same, each channel with a decay of its
             own), lightning, mlstm (xLSTM), wkv (RWKV), rg_lru
    chunk    tokens that a chunked form handles by matrix products
    doubled  the delta rule's write strengths reach up to 2

    The matrix products are those of the plain chunked form, c tokens a chunk, n = ⌈s/c⌉ chunks, p head size, N state:
        selective   the state's read-out, 2·b·s·a·p·N; the recurrence itself is elementwise
        ssd         per head 2·n·c·(c·N + c·p + 2·N·p) within and between chunks, and 2·(n+1)²·N·p carries the states
        delta, kda  per head 2·n·c·(2·c·N + c·p + 3·N·p); the triangular solve is no matrix product
        mlstm       per head 2·n·c·(c·N + c·p + 2·N·p + N), the last of them the normaliser's
        lightning   per head 2·(N + p)·Σ(chunk length)² + 4·s·N·p, the last chunk as short as it is
        wkv, rg_lru elementwise
    """

    kind: str
    heads: int
    head_dim: int
    state: int
    groups: int = 1
    chunk: int = 0
    doubled: bool = False

    def products(self, work: Work) -> tuple[Product, ...]:
        p, state, c = self.head_dim, self.state, self.chunk
        if self.kind == "selective":
            return (product("read_out", self.heads * p, state, 1, work.tokens, weight=False),)
        if self.kind not in ("ssd", "delta", "kda", "lightning", "mlstm"):
            return ()
        each = work.sequences * self.heads
        if self.kind == "lightning":
            whole, rest = each * (work.length // c), work.length % c
            found = (
                product("scores", c, state, c, whole, weight=False),
                product("values", c, c, p, whole, weight=False),
                product("last_scores", rest, state, rest, each, weight=False),
                product("last_values", rest, rest, p, each, weight=False),
                product("read_out", work.length, state, p, each, weight=False),
                product("states", state, work.length, p, each, weight=False),
            )
            return tuple(one for one in found if is_array(one.flops) or one.flops)
        chunks = ceil_div(work.length, c)
        within = each * chunks
        common = (
            product("scores", c, state, c, within, weight=False),
            product("values", c, c, p, within, weight=False),
            product("states", state, c, p, within, weight=False),
            product("read_out", c, state, p, within, weight=False),
        )
        if self.kind == "ssd":
            carry = product("carry", chunks + 1, chunks + 1, p * state, each, weight=False)
            return (*common, carry)
        if self.kind == "mlstm":
            return (*common, product("normaliser", c, state, 1, within, weight=False))
        keys = product("keys", c, state, c, within, weight=False)
        corrections = product("corrections", c, state, p, within, weight=False)
        return (*common, keys, corrections)


@record
class Layer:
    """A named list of operations; equal layers compare equal."""

    kind: str
    operations: tuple[Operation, ...]


Runs = tuple[tuple[int, Layer], ...]
"""Runs of identical layers: (how many, layer)."""
Pattern = tuple[int, Runs]
"""Runs that are repeated: (how many times, runs)."""
Numbered = tuple[int, tuple[tuple[int, int], ...]]
"""The same with each kind of layer by its number."""
Parts = tuple[tuple[int, Layer | Runs], ...]
"""Runs and patterns of them in order."""
LONGEST_PERIOD = 64
"""Runs of a pattern that is looked for; networks alternate in far fewer."""


@record
class Stack:
    """Layers as patterns of runs, what stands before them (embedding) and after them (final norm, head).

    Layers that are equal are one object."""

    name: str
    before: tuple[Operation, ...]
    patterns: tuple[Pattern, ...]
    after: tuple[Operation, ...]

    @property
    def runs(self) -> Runs:
        """All runs in order, as many as there are: for what is as long as the network anyway."""
        return tuple(run for times, runs in self.patterns for _ in range(times) for run in runs)

    @property
    def depth(self) -> int:
        return sum(times * sum(count for count, _ in runs) for times, runs in self.patterns)

    @property
    def layers(self) -> list[Layer]:
        """Each distinct layer once, in order."""
        return list({id(layer): layer for _, runs in self.patterns for _, layer in runs}.values())

    @property
    def numbered(self) -> tuple[Numbered, ...]:
        """The patterns, a layer by its place among the distinct ones."""
        place = {id(layer): at for at, layer in enumerate(self.layers)}
        return tuple((times, tuple((n, place[id(layer)]) for n, layer in runs)) for times, runs in self.patterns)

    def kinds(self) -> list[tuple[str, int, Layer]]:
        """Each distinct layer once, with its name among them and how many there are."""
        counts: dict[int, int] = {}
        for times, runs in self.patterns:
            for count, layer in runs:
                counts[id(layer)] = counts.get(id(layer), 0) + times * count
        names: dict[str, int] = {}
        result = []
        for layer in self.layers:
            names[layer.kind] = names.get(layer.kind, 0) + 1
            name = layer.kind if names[layer.kind] == 1 else f"{layer.kind}_{names[layer.kind]}"
            result.append((name, counts[id(layer)], layer))
        return result


def stack_of(
    name: str,
    before: tuple[Operation, ...],
    runs: Iterable[tuple[int, Layer | Runs]],
    after: tuple[Operation, ...],
) -> Stack:
    """A stack from its runs in order."""
    return Stack(name, before, patterns_of(runs), after)


def patterns_of(parts: Iterable[tuple[int, Layer | Runs]]) -> tuple[Pattern, ...]:
    """Runs and patterns of them as patterns alone."""
    found: list[Pattern] = []
    runs: list[tuple[int, Layer]] = []
    for times, one in parts:
        if isinstance(one, Layer):
            runs.append((times, one))
        else:
            found += [*_repeating(runs), (times, one)]
            runs = []
    return (*found, *_repeating(runs))


def _repeating(runs: Iterable[tuple[int, Layer]]) -> tuple[Pattern, ...]:
    """Runs as patterns: neighbours that are equal joined, then what repeats found, the shortest period first."""
    same: dict[int, Layer] = {}
    distinct: list[Layer] = []
    joined: list[tuple[int, Layer]] = []
    for count, layer in runs:
        if id(layer) not in same:
            same[id(layer)] = next((known for known in distinct if known == layer), layer)
            if same[id(layer)] is layer:
                distinct.append(layer)
        one = same[id(layer)]
        if joined and joined[-1][1] is one:
            joined[-1] = (joined[-1][0] + count, one)
        else:
            joined.append((count, one))
    letters: dict[tuple[int, int], str] = {}
    text = "".join(letters.setdefault((count, id(layer)), chr(len(letters))) for count, layer in joined)
    patterns: list[Pattern] = []
    past = 0
    for found in _REPEATED.finditer(text):
        begin, end, period = found.start(), found.end(), len(found[1])
        if begin > past:
            patterns.append((1, tuple(joined[past:begin])))
        patterns.append(((end - begin) // period, tuple(joined[begin : begin + period])))
        past = end
    if past < len(joined):
        patterns.append((1, tuple(joined[past:])))
    return tuple(patterns)


_REPEATED = re.compile(rf"(.{{1,{LONGEST_PERIOD}}}?)\1+", re.DOTALL)


@record
class Model:
    """A network: one stack, or an encoder and a decoder.

    tied      the head's matrix is the token table: counted once
    shared    weights that several layers reuse (kept out of the layers): counted once
    extra     layers on request: multi-token prediction
    facts     what formulas of conventions and layouts ask for by name (hidden, heads, head_dim, vocabulary, …)
    family    the config's model_type: which of an implementation's codes runs it
    streams   of `hidden` numbers each, which layers hand on side by side
    """

    name: str
    stacks: tuple[Stack, ...]
    tied: bool
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    max_length: int | None = None
    shared: tuple[Operation, ...] = ()
    extra: tuple[Layer, ...] = ()
    notes: tuple[str, ...] = ()
    family: str = ""
    streams: int = 1

    @property
    def depth(self) -> int:
        return sum(stack.depth for stack in self.stacks)

    @property
    def operations(self) -> list[Operation]:
        """The operations of each distinct layer."""
        return [op for stack in self.stacks for layer in stack.layers for op in layer.operations]

    @property
    def lends(self) -> bool:
        """Whether layers read more of what stands before them than the residual stream."""
        before = (op for stack in self.stacks for op in stack.before)
        return any(isinstance(op, Lend) for op in (*before, *self.operations))

    @property
    def experts(self) -> set[int]:
        """Numbers of experts that a layer chooses among; none in a dense network."""
        return {op.experts for op in self.operations if isinstance(op, (Experts, ExpertMatmul))}
