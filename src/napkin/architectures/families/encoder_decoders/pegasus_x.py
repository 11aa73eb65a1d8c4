"""PEGASUS-X (arXiv:2208.04347): Pegasus whose encoder sees blocks of its text and a few global tokens.

Fields and arrangements are facts of the class of Hugging Face transformers 5.24.0
(src/transformers/models/pegasus_x/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.assembly import runs_of
from napkin.architectures.blocks import LAYER, Operations, plain_mlp
from napkin.architectures.families.encoder_decoders.bart import PEGASUS
from napkin.architectures.families.encoder_decoders.bart_network import Bart, BartSizes
from napkin.architectures.record import like
from napkin.inputs.model import Config
from napkin.operations.attention.local import GlobalAttention, LocalAttention
from napkin.operations.base import Operation
from napkin.operations.global_tokens import GlobalInput, GlobalNorm, GlobalTokens, OnGlobal, WithGlobal
from napkin.operations.implementations import EAGER
from napkin.operations.model import Layer, Model, stack_of
from napkin.operations.padding import CutToLength, PaddedMatmul, PadToBlocks, Stagger, Unstagger
from napkin.operations.pointwise import Scale
from napkin.operations.roles import COLUMN, KEY, QUERY, ROW, VALUE
from napkin.operations.views import ByHeads
from napkin.record import record, replace

_NETWORK = Bart(before=True, computed=True, bias=False)
GLOBAL = "global"
"""Name of the global tokens that a layer reads, and prefix of what is made of them."""
PROJECTIONS = ("q", "k", "v", "o")
"""Linear layers of attention, which run over what a staggered layer pads."""


@record
class _Encoder:
    """The encoder: `hidden` wide, an MLP of `inner` with `function`, attention of `heads` to blocks of `block` tokens
    and to `tokens` global ones. `staggers`: every second layer's blocks lie half a block further."""

    hidden: int
    heads: int
    inner: int
    function: str
    block: int
    tokens: int
    staggers: bool

    def layer(self, key: tuple[bool, bool]) -> Layer:
        """Return a layer: (is staggered, is the last, whose global tokens nothing reads)."""
        staggered, last = key
        again = partial(self._again, staggered=staggered, used=not last)
        attend = partial(self._attention, staggered, last)
        norm, *rest = pre_norm(self.hidden, LAYER, attend, self._mlp, dropout=(True, True))
        place = next(i for i, op in enumerate(rest) if op.name == "attention_residual") + 1
        attention, mlp = rest[:place], rest[place:]
        returned = mlp[-1].name, _on_global(mlp[-1].name)
        results = [op for op in attention if op.name in ("attention_by_tokens", "o", "attention_residual")]
        return Layer(
            "encoder" + "_staggered" * staggered + "_last" * last,
            (
                GlobalInput(GLOBAL, (), self.tokens, self.hidden),
                norm,
                GlobalNorm(_ON_GLOBAL["attention_norm"], (GLOBAL,), self.hidden, kind="layer", bias=True),
                *attention,
                *map(again, results),
                *mlp,
                *map(again, mlp),
                WithGlobal("encoded", returned[: 1 if last else 2], self.hidden),
            ),
        )

    def _again(self, op: Operation, staggered: bool, used: bool) -> OnGlobal:
        """Return an operation on the stream as it runs again on the global tokens."""
        reads = tuple(map(_on_global, op.reads))
        more = self.block * (staggered and op.name in PROJECTIONS)
        return OnGlobal(
            _on_global(op.name), reads, op, again=True, module=op.module, tokens=self.tokens, more=more, used=used
        )

    def _mlp(self, source: str) -> Operations:
        return plain_mlp(source, width=self.hidden, inner=self.inner, function=self.function, dropout=True)

    def _attention(self, staggered: bool, last: bool, source: str) -> Operations:
        """Return both streams' attention, by the same projections. In the last layer only keys and values of the global
        tokens are read."""
        hidden, more = self.hidden, self.block * staggered
        sizes = (self.heads, hidden // self.heads)
        begin: Operations = (Stagger("staggered", (source,), hidden, self.block),) if staggered else ()
        end: Operations = (Unstagger("unstaggered", ("o",), hidden, self.block),) if staggered else ()
        made: dict[str, Operations] = {}
        for name, role in (("q", QUERY), ("k", KEY), ("v", VALUE)):
            read = begin[-1].name if begin else source
            one: Operations = (PaddedMatmul(name, (read,), hidden, hidden, False, COLUMN, role=role, more=more),)
            if role == QUERY:
                one = (*one, Scale("q_scaled", (name,), hidden))
            made[name] = (*one, ByHeads(f"{name}_by_heads", (one[-1].name,), hidden))
        names = tuple(operations[-1].name for operations in made.values())
        theirs = tuple(map(_on_global, names))
        return (
            *begin,
            *(op for operations in made.values() for op in operations),
            *(
                self._again(op, staggered, not (last and name == "q"))
                for name, operations in made.items()
                for op in operations
            ),
            GlobalAttention(_on_global("attention"), (*theirs, *names[1:]), *sizes, self.tokens, more, not last),
            LocalAttention("attention", (*names, *theirs[1:]), *sizes, self.block, self.tokens, more),
            ByHeads("attention_by_tokens", ("attention",), hidden),
            PaddedMatmul("o", ("attention_by_tokens",), hidden, hidden, False, ROW, more=more),
            *end,
        )


_ON_GLOBAL = {
    "x": GLOBAL,
    "attention_norm": f"{GLOBAL}_norm",
    "staggered": f"{GLOBAL}_norm",
    "unstaggered": f"{GLOBAL}_o",
}


def _on_global(name: str) -> str:
    """Return the name of what an output of the stream is among those of the global tokens."""
    return _ON_GLOBAL.get(name, f"{GLOBAL}_{name}")


def _encoder(config: Config, sizes: BartSizes) -> _Encoder:
    """Read the encoder."""
    block, staggers = config.integer("block_size"), config.flag("stagger_local_blocks")
    if staggers and block % 2:
        raise config.wrong("block_size", f"{block:,} is odd, and half a block is put before each sequence")
    tokens = config.integer("num_global_tokens")
    return _Encoder(sizes.hidden, sizes.heads[0], sizes.inner[0], sizes.function, block, tokens, staggers)


def _pegasus_x(config: Config) -> Model:
    """Return PEGASUS-X: no biases around attention, positions without weights."""
    sizes = _NETWORK.sizes(config)
    model = _NETWORK.network(sizes)
    if sizes.alone:
        config.ignore("block_size", "stagger_local_blocks", "num_global_tokens")
        return model
    read = _encoder(config, sizes)
    first, decoder = model.stacks
    depth = first.depth
    before = (
        *first.before,
        GlobalTokens("global_tokens", (), read.tokens, read.hidden),
        PadToBlocks("embedding_padded", (first.before[-1].name,), read.hidden),
    )
    after = (CutToLength("cut", ("x",), read.hidden), *(replace(op, reads=("cut",)) for op in first.after))
    keys = ((read.staggers and place % 2 == 1, place == depth - 1) for place in range(depth))
    config.notes.append(f"the encoder's layers run over whole blocks of {read.block:,} tokens: sequences are padded")
    encoder = stack_of("encoder", before, runs_of(keys, read.layer), after)
    return replace(model, stacks=(encoder, decoder), block=read.block)


PEGASUS_X = like(
    PEGASUS,
    "pegasus_x",
    build=_pegasus_x,
    config_class="PegasusXConfig",
    implementation=replace(PEGASUS.implementation, kernels=(EAGER,), buffers=()),
    defaults={
        "block_size": 512, "max_position_embeddings": 16384, "num_global_tokens": 32, "stagger_local_blocks": True,
        "vocab_size": 96103,
    },
)  # fmt: skip

ARCHITECTURES = (PEGASUS_X,)
