"""Zamba: Mamba layers between which an attention block, of the same weights each time, is used again.

Field names and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/zamba/).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from napkin.architectures.assembly import runs_of
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Heads, Rope
from napkin.architectures.blocks import RMS, Block, Operations, gated_mlp
from napkin.architectures.dimensions import Dimensions
from napkin.architectures.reading import activation, kv_heads_of, on, width
from napkin.architectures.record import Architecture
from napkin.architectures.recurrent_parts import HYBRID, LINEAR, agree, kinds, mixer_layer, network, rank_of, sizes_of
from napkin.architectures.state_space import Selective
from napkin.inputs.model import Config
from napkin.operations.implementations import HF, MASKS
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Add
from napkin.operations.roles import SHARED_TENSOR
from napkin.operations.views import Concat, Share, Slice, reuse
from napkin.record import record, replace

ORIGINAL = "original"
"""What the token embedding is handed on as."""


@record
class Zamba:
    """A network of Zamba, as config.json describes it.

    kinds  of each layer: LINEAR, or HYBRID where a shared block goes before the mixer
    block  the operations of a shared block: attention on [x, token embedding] (2h wide) and an MLP
    """

    sizes: Dimensions
    kinds: Sequence[str]
    mix: Block
    block: Operations


def reused(operations: Operations, owners: Operations) -> Operations:
    """Return the operations with the weights that others own."""
    pairs = zip(operations, owners, strict=True)
    return tuple(reuse(op, owner) if op.weights() else op for op, owner in pairs)


def read_sizes(config: Config) -> Dimensions:
    """Read the dimensions; the shared block's attention reads 2h elements."""
    hidden, heads = width(config), config.integer("num_attention_heads")
    agree(config, attention_hidden_size=2 * hidden)
    config.must_be("tie_word_embeddings", True)  # without it the class shares no weights at all, the blocks' included
    head_dim = config.optional_integer("attention_head_dim")
    if head_dim is None:
        head_dim = config.divides("num_attention_heads", 2 * hidden, heads, "(2 · hidden_size)")
    return sizes_of(config, heads, kv_heads_of(config, heads), head_dim)


def shared_block(sizes: Dimensions, rope: Rope | None, mlp: Block) -> Operations:
    """Return mlp(norm(attention(norm([x, token embedding]))))."""
    hidden = sizes.hidden
    heads = Heads(2 * hidden, sizes.heads, sizes.kv_heads, sizes.head_dim, out_width=hidden)
    attended = Attention(heads, rope=rope)("attention_norm")
    return (
        Concat("joined", ("x", SHARED_TENSOR + ORIGINAL), 2 * hidden),
        RMS("attention_norm", "joined", 2 * hidden),
        *attended,
        RMS("mlp_norm", attended[-1].name, hidden),
        *mlp("mlp_norm"),
    )


def handing_on(model: Model) -> Model:
    """Return the model with a copy of the token embedding that the shared blocks read."""
    stack = model.stacks[0]
    source = stack.before[-1].name
    handed = (
        Slice("original_copied", (source,), model.hidden, copied=True),
        Share(ORIGINAL, ("original_copied",)),
        Slice("stream", (source,), model.hidden),
    )
    return replace(model, stacks=(replace(stack, before=(*stack.before, *handed)),))


def hybrid(hidden: int, block: Operations, mix: Block) -> Operations:
    """Return y = x + mamba(norm(x + W·block([x, token embedding])))."""
    mixed = mix("norm")
    return (
        *block,
        Matmul("linear", (block[-1].name,), hidden, hidden),
        Add("with_attention", ("x", "linear"), hidden),
        RMS("norm", "with_attention", hidden),
        *mixed,
        Add("residual", ("x", mixed[-1].name), hidden),
    )


def zamba(config: Config) -> Model:
    """Return Zamba (arXiv:2405.16712): Mamba layers; at some depths one attention block, the same each time, goes
    before."""
    read = _read(config)
    hidden = read.sizes.hidden
    layers = {
        HYBRID: Layer("hybrid", hybrid(hidden, reused(read.block, read.block), read.mix)),
        LINEAR: mixer_layer(hidden, RMS, read.mix, "mamba"),
    }
    model = handing_on(network(read.sizes, runs_of(read.kinds, layers.__getitem__)))
    return replace(model, shared=read.block if HYBRID in read.kinds else ())


def _read(config: Config) -> Zamba:
    sizes = read_sizes(config)

    def by_period() -> Sequence[str]:
        period, offset = config.integer("attn_layer_period"), config.integer("attn_layer_offset", least=0)
        rest = [HYBRID if i % period == offset else LINEAR for i in range(sizes.layers - 3)]
        return [LINEAR, LINEAR, HYBRID, *rest]

    listed = kinds(config, "layers_block_type", sizes.layers, (LINEAR, HYBRID), by_period)
    config.ignore("attn_layer_period", "attn_layer_offset")
    inner, function = config.integer("intermediate_size"), activation(config, "hidden_act")
    mlp = partial(gated_mlp, width=sizes.hidden, inner=inner, function=function)
    return Zamba(sizes, listed, _mamba(config), shared_block(sizes, None, mlp))


def _mamba(config: Config) -> Block:
    hidden, heads = width(config), config.integer("n_mamba_heads")
    inner = config.integer("mamba_expand") * hidden
    config.divides("n_mamba_heads", inner, heads, "(the inner width)")
    return Selective(
        width=hidden,
        inner=inner,
        state=config.integer("mamba_d_state"),
        rank=rank_of(config, "mamba_dt_rank", hidden),
        kernel=config.integer("mamba_d_conv"),
        bias=on(config, "mamba_proj_bias"),
        conv_bias=on(config, "mamba_conv_bias"),
        heads=heads,
        function=activation(config, "hidden_mamba_act"),
    )


ZAMBA = Architecture(
    "zamba",
    zamba,
    config_class="ZambaConfig",
    aliases={"head_dim": "attention_head_dim", "layer_types": "layers_block_type"},
    defaults={
        "attention_head_dim": None, "attention_hidden_size": None, "attn_layer_offset": 4, "attn_layer_period": 6,
        "hidden_act": "gelu", "hidden_mamba_act": "silu", "intermediate_size": 14848, "mamba_conv_bias": True,
        "mamba_d_conv": 4, "mamba_d_state": 16, "mamba_dt_rank": "auto", "mamba_expand": 2, "mamba_proj_bias": False,
        "max_position_embeddings": 4096, "n_mamba_heads": 2, "num_attention_heads": 16, "num_key_value_heads": 16,
        "tie_word_embeddings": True, "vocab_size": 32000,
    },
    implementation=replace(HF, mixer="apart", passes=(MASKS,), fp32_weights=("/A_log",)),
    modules={
        "mixer_in_proj": "mamba.in_proj", "mixer_out_proj": "mamba.out_proj", "q": "shared_transf.self_attn.q_proj",
        "k": "shared_transf.self_attn.k_proj", "v": "shared_transf.self_attn.v_proj",
        "o": "shared_transf.self_attn.o_proj", "gate": "shared_transf.feed_forward.gate_proj",
        "up": "shared_transf.feed_forward.up_proj", "down": "shared_transf.feed_forward.down_proj",
    },
)  # fmt: skip

ARCHITECTURES = (ZAMBA,)
