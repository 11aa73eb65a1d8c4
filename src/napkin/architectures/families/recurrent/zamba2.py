"""Zamba2: Mamba-2 layers, and a few attention blocks used in turn, each use with low-rank adapters of its own.

Field names and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/zamba2/).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from napkin.architectures.assembly import runs_of
from napkin.architectures.attention_parts import Rope
from napkin.architectures.blocks import RMS, Block, Operations, gated_mlp
from napkin.architectures.dimensions import Dimensions
from napkin.architectures.families.recurrent.zamba import Zamba, handing_on, hybrid, read_sizes, reused, shared_block
from napkin.architectures.idle import idle
from napkin.architectures.reading import activation, on, width
from napkin.architectures.record import Architecture
from napkin.architectures.recurrent_parts import HYBRID, LINEAR, agree, groups_of, kinds, mixer_layer, network
from napkin.architectures.state_space import Ssd
from napkin.inputs.model import Config
from napkin.operations.base import Operation
from napkin.operations.implementations import HF, MASKS
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Add
from napkin.operations.views import reuse
from napkin.record import record, replace


@record
class _Place:
    """A matmul of a shared block next to which each use has an adapter; `path` is the class's list of them."""

    name: str
    source: str
    d_in: int
    d_out: int
    path: str


@record
class _Adapters:
    """Zamba2's low-rank adapters, as config.json describes them.

    blocks  shared blocks, taken in turn
    uses    of any of them
    rank    of the adapters
    places  of each matmul that has one
    """

    blocks: int
    uses: int
    rank: int
    places: Sequence[_Place]


def zamba2(config: Config) -> Model:
    """Return Zamba2 (arXiv:2411.15242): Mamba-2 layers; before some, `num_mem_blocks` attention blocks taken in turn,
    with low-rank adapters of their own at each use (always on gate and up, on q, k, v if the config says so)."""
    read = _read(config)
    depths = [i for i, kind in enumerate(read.kinds) if kind == HYBRID]
    adapters = _read_adapters(config, read.sizes, depths)
    own = [_numbered(read.block, number) for number in range(adapters.blocks)]
    hidden = read.sizes.hidden

    def layer(key: tuple[str, int]) -> Layer:
        kind, turn = key
        if kind != HYBRID:
            return mixer_layer(hidden, RMS, read.mix, "mamba2")
        adapted = _adapted(reused(read.block, own[turn]), adapters, turn)
        return Layer("hybrid", hybrid(hidden, (*_of_other_uses(adapters, turn), *adapted), read.mix))

    turns = [depths.index(i) % adapters.blocks if kind == HYBRID else 0 for i, kind in enumerate(read.kinds)]
    model = handing_on(network(read.sizes, runs_of(list(zip(read.kinds, turns, strict=True)), layer)))
    return replace(model, shared=tuple(op for operations in own for op in operations))


def _read(config: Config) -> Zamba:
    sizes = read_sizes(config)
    mix = _mamba2(config, sizes)

    def as_in_7b() -> Sequence[str]:
        early = ([LINEAR] * 5 + [HYBRID]) * 7
        return [LINEAR, *early, *[LINEAR] * 4, HYBRID, *[LINEAR] * 3, HYBRID, *[LINEAR] * 2]

    listed = kinds(config, "layers_block_type", sizes.layers, (LINEAR, HYBRID), as_in_7b)
    agree(config, hybrid_layer_ids=[i for i, kind in enumerate(listed) if kind == HYBRID])
    mlp = partial(
        gated_mlp,
        width=sizes.hidden,
        inner=_feed_forward_width(config),
        function=activation(config, "hidden_act"),
        bias=on(config, "add_bias_linear"),
        fused=True,
    )
    rope = Rope(sizes.head_dim) if config.flag("use_mem_rope", otherwise=False) else None
    return Zamba(sizes, listed, mix, shared_block(sizes, rope, mlp))


def _feed_forward_width(config: Config) -> int:
    return config.optional_integer("intermediate_size") or 4 * width(config)


def _mamba2(config: Config, sizes: Dimensions) -> Block:
    hidden, heads = sizes.hidden, config.integer("n_mamba_heads")
    inner = config.integer("mamba_expand") * hidden
    agree(
        config,
        mamba_headdim=config.divides("n_mamba_heads", inner, heads, "(the inner width)"),
        num_query_groups=sizes.heads,
        kv_channels=hidden // sizes.heads,
        use_shared_mlp_adapter=True,
        use_shared_block_lora=True,
        use_shared_attention_lora=config.raw("use_shared_attention_adapter", required=False),
        ffn_hidden_size=config.raw("intermediate_size", required=False),
    )
    config.must_be("use_conv_bias", True)
    return Ssd(
        width=hidden,
        inner=inner,
        heads=heads,
        state=config.integer("mamba_d_state"),
        groups=groups_of(config, "mamba_ngroups", inner, heads),
        kernel=config.integer("mamba_d_conv"),
        chunk=config.integer("chunk_size"),
        bias=on(config, "add_bias_linear"),
        conv_bias=True,
    )


def _read_adapters(config: Config, sizes: Dimensions, depths: Sequence[int]) -> _Adapters:
    """Read the adapters; `depths`: of the layers that a shared block precedes."""
    hidden, rank = sizes.hidden, config.integer("adapter_rank")
    mlp, attention = "shared_transformer.feed_forward", "shared_transformer.self_attn"
    wide = 2 * _feed_forward_width(config)
    places = [_Place("gate_up", "mlp_norm", hidden, wide, f"{mlp}.gate_up_proj_adapter_list")]
    if on(config, "use_shared_attention_adapter"):
        if sizes.kv_heads != sizes.heads or sizes.heads * sizes.head_dim != 2 * hidden:
            raise config.refuse(
                "use_shared_attention_adapter", "its adapters fit only 2 · hidden_size queries and keys"
            )
        places += [
            _Place(letter, "attention_norm", 2 * hidden, 2 * hidden, f"{attention}.linear_{letter}_adapter_list")
            for letter in "qkv"
        ]
    return _Adapters(min(config.integer("num_mem_blocks"), len(depths)), len(depths), rank, places)


def _numbered(block: Operations, number: int) -> Operations:
    return tuple(replace(op, name=f"block_{number}_{op.name}") for op in block)


def _pair(place: _Place, rank: int, use: int) -> tuple[Matmul, Matmul]:
    """Return the two matmuls of a use's adapter."""
    down, up = f"{place.name}_adapter_down", f"{place.name}_adapter_up"
    return (
        Matmul(down, (place.source,), place.d_in, rank, module=f"{place.path}.{use}.0"),
        Matmul(up, (down,), rank, place.d_out, module=f"{place.path}.{use}.1"),
    )


def _of_other_uses(adapters: _Adapters, turn: int) -> Operations:
    """Return the adapters of a shared block's other uses, which the module of each use holds too, with tied weights.
    Uses of one block are equal layers: each stands for the first."""
    others = range(turn + adapters.blocks, adapters.uses, adapters.blocks)
    held = (reuse(op) for place in adapters.places for one in others for op in _pair(place, adapters.rank, one))
    return (idle("other_adapters", tuple(held)),) if others else ()


def _adapted(block: Operations, adapters: _Adapters, use: int) -> Operations:
    """Return the block with W·x + B·A·x in place of W·x if it has adapters."""
    places = {place.name: place for place in adapters.places}
    operations: list[Operation] = []
    renamed: dict[str, str] = {}
    for op in block:
        moved = tuple(renamed.get(read, read) for read in op.reads)
        operations.append(_reading(op, moved))
        if op.name in places:
            down, up = _pair(places[op.name], adapters.rank, use)
            total = f"{op.name}_adapted"
            operations += [down, up, Add(total, (op.name, up.name), up.d_out)]
            renamed[op.name] = total
    return tuple(operations)


def _reading(op: Operation, reads: tuple[str, ...]) -> Operation:
    """Return the operation, which may use another's weights, with other inputs."""
    owner = op.owner()
    return replace(op, reads=reads) if owner is op else replace(op, reads=reads, of=replace(owner, reads=reads))


ZAMBA2 = Architecture(
    "zamba2",
    zamba2,
    config_class="Zamba2Config",
    aliases={"head_dim": "attention_head_dim", "layer_types": "layers_block_type"},
    defaults={
        "adapter_rank": 128, "add_bias_linear": False, "chunk_size": 256, "hidden_act": "gelu",
        "intermediate_size": None, "mamba_d_conv": 4, "mamba_d_state": 64, "mamba_expand": 2, "mamba_ngroups": 1,
        "max_position_embeddings": 4096, "n_mamba_heads": 8, "num_attention_heads": 32, "num_key_value_heads": None,
        "num_mem_blocks": 1, "tie_word_embeddings": True, "use_conv_bias": True,
        "use_shared_attention_adapter": False, "vocab_size": 32000,
    },
    implementation=replace(HF, passes=(MASKS,)),
    modules={
        "mixer_in_proj": "mamba.in_proj", "mixer_out_proj": "mamba.out_proj",
        "q": "shared_transformer.self_attn.q_proj", "k": "shared_transformer.self_attn.k_proj",
        "v": "shared_transformer.self_attn.v_proj", "o": "shared_transformer.self_attn.o_proj",
        "gate_up": "shared_transformer.feed_forward.gate_up_proj",
        "down": "shared_transformer.feed_forward.down_proj",
    },
)  # fmt: skip

ARCHITECTURES = (ZAMBA2,)
