"""Mamba, Falcon-Mamba and Mamba-2: networks of state-space mixers only.

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.blocks import (
    RMS,
    Block,
)
from napkin.architectures.reading import activation, depth, on, width
from napkin.architectures.record import Architecture, like
from napkin.architectures.recurrent_parts import (
    agree,
    groups_of,
    mixer_layer,
    network,
    rank_of,
    scaled,
    sizes_of,
)
from napkin.architectures.state_space import Selective, Ssd
from napkin.inputs.model import Config
from napkin.operations.model import Model
from napkin.operations.roles import LM_HEAD
from napkin.operations.views import Cast
from napkin.record import replace


def _state_space(config: Config, mix: Block, kind: str, *, heads: int, head_dim: int) -> Model:
    """Return a network of one kind of mixer; the residual stream is fp32 where residual_in_fp32 says so."""
    sizes = sizes_of(config, heads, heads, head_dim, positions=False)
    wide = config.flag("residual_in_fp32", otherwise=True)
    layer = mixer_layer(sizes.hidden, RMS, mix, kind, wide=wide)
    model = network(sizes, ((sizes.layers, layer),))
    stack = model.stacks[0]
    if not wide or stack.after[-1].role != LM_HEAD:
        return model
    narrowed = (Cast("head_input", ("final_norm",), sizes.hidden), replace(stack.after[-1], reads=("head_input",)))
    return replace(model, stacks=(replace(stack, after=(*stack.after[:-1], *narrowed)),))


def mamba(config: Config, *, normed: bool = False) -> Model:
    """Return Mamba (arXiv:2312.00752) or Falcon-Mamba, whose Δ, B and C are normalized without weights."""
    inner = _inner_width(config)
    return _state_space(config, _read_selective(config, inner, normed), "mamba", heads=inner, head_dim=1)


def _inner_width(config: Config) -> int:
    hidden = width(config)
    agree(config, d_model=hidden, n_layer=depth(config), rms_norm=True, ssm_cfg={})
    inner = config.optional_integer("intermediate_size")
    if inner is None:
        inner = scaled(config, "expand", hidden)
    agree(config, d_inner=inner)
    config.ignore("expand", "pad_vocab_size_multiple", "fused_add_norm")
    return inner


def _read_selective(config: Config, inner: int, normed: bool) -> Block:
    hidden = width(config)
    return Selective(
        width=hidden,
        inner=inner,
        state=config.integer("state_size"),
        rank=rank_of(config, "time_step_rank", hidden),
        kernel=config.integer("conv_kernel"),
        bias=on(config, "use_bias"),
        conv_bias=on(config, "use_conv_bias"),
        normed=normed,
        norm_weights=False,
        function=activation(config, "hidden_act"),
    )


falcon_mamba = partial(mamba, normed=True)


def mamba2(config: Config) -> Model:
    """Return Mamba-2 (arXiv:2405.21060)."""
    hidden = width(config)
    inner = scaled(config, "expand", hidden)
    heads, head_dim = config.integer("num_heads"), config.integer("head_dim")
    if heads * head_dim != inner:
        raise config.wrong(
            "num_heads", f"{heads} heads of {head_dim} are not expand · hidden_size = {inner}", "make them agree"
        )
    agree(config, intermediate_size=inner, rms_norm=True)
    config.ignore("norm_before_gate", "time_step_rank", "pad_vocab_size_multiple", "fused_add_norm")
    mix = Ssd(
        width=hidden,
        inner=inner,
        heads=heads,
        state=config.integer("state_size"),
        groups=groups_of(config, "n_groups", inner, heads),
        kernel=config.integer("conv_kernel"),
        chunk=config.integer("chunk_size"),
        bias=on(config, "use_bias"),
        conv_bias=on(config, "use_conv_bias"),
        function=activation(config, "hidden_act"),
    )
    return _state_space(config, mix, "mamba2", heads=heads, head_dim=head_dim)


FALCON_MAMBA = Architecture(
    "falcon_mamba",
    falcon_mamba,
    config_class="FalconMambaConfig",
    defaults={
        "conv_kernel": 4, "expand": 2, "hidden_act": "silu", "state_size": 16, "tie_word_embeddings": True,
        "time_step_rank": "auto", "use_bias": False, "use_conv_bias": True, "vocab_size": 50280,
    },
    modules={
        "embedding": "backbone.embeddings", "mixer_in_proj": "mixer.in_proj", "mixer_x_proj": "mixer.x_proj",
        "mixer_dt_proj": "mixer.dt_proj", "mixer_out_proj": "mixer.out_proj",
    },
)  # fmt: skip
MAMBA = like(
    FALCON_MAMBA,
    "mamba",
    build=mamba,
    config_class="MambaConfig",
    aliases={"d_inner": "intermediate_size", "d_model": "hidden_size", "n_layer": "num_hidden_layers"},
)  # fmt: skip
MAMBA2 = Architecture(
    "mamba2",
    mamba2,
    config_class="Mamba2Config",
    defaults={
        "chunk_size": 256, "conv_kernel": 4, "expand": 2, "head_dim": 64, "hidden_act": "silu", "n_groups": 8,
        "num_heads": 128, "rms_norm": True, "state_size": 128, "tie_word_embeddings": False, "time_step_rank": "auto",
        "use_bias": False, "use_conv_bias": True, "vocab_size": 32768,
    },
    modules={
        "embedding": "backbone.embeddings", "mixer_in_proj": "mixer.in_proj", "mixer_out_proj": "mixer.out_proj",
    },
)  # fmt: skip

ARCHITECTURES = (
    FALCON_MAMBA,
    MAMBA,
    MAMBA2,
)
