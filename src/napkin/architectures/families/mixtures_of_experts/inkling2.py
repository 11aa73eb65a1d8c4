"""Inkling 2's language model: Inkling's scores by distance and short convolutions, with attention over the sums of
earlier blocks of layers in place of plain residual additions.

Fields and arrangements are facts of the class of Hugging Face transformers 5.24.0 (src/transformers/models/inkling2/);
before, the head had rows for the padding of the vocabulary too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from napkin.architectures.assembly import embedding, head, runs_of
from napkin.architectures.attention_parts import Gate
from napkin.architectures.blocks import RMS, RMS_BARE, RMS_FP32, Block, Operations, Routing, moe
from napkin.architectures.dimensions import Dimensions, decoder_only
from napkin.architectures.families.mixtures_of_experts.inkling import INKLING, sizes_over
from napkin.architectures.reading import chosen_experts, depth, listed, width
from napkin.architectures.record import REQUIRED, Wrapper, like
from napkin.inputs.model import Config
from napkin.operations.attention.core import AttentionCore
from napkin.operations.block_residual import BlockResidual, ClippedNorm, DynamicConvolution
from napkin.operations.implementations import EAGER
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model, Parts
from napkin.operations.pointwise import Add, Scale
from napkin.operations.relative import DistanceBias, ShortConvolution
from napkin.operations.roles import COLUMN, KEY, QUERY, ROW, VALUE
from napkin.operations.views import Slice
from napkin.record import record, replace

FULL, WINDOWED = "hybrid", "hybrid_sliding"
PERIOD = 6
"""Every PERIOD-th layer sees all keys, if a config does not say which."""


class Inkling2Plan(NamedTuple):
    """What sets a layer apart: its attention, how many blocks precede it, and whether it begins one."""

    attention: str
    blocks: int
    begins: bool


@record
class _InklingAttention:
    """Attention of one kind of layer; `window`: None sees all keys, with taps of convolutions that each token makes."""

    width: int
    heads: int
    kv_heads: int
    size: int
    rank: int
    extent: int
    kernel: int
    window: int | None

    def __call__(self, sources: tuple[str, str, str]) -> Operations:
        """Return attention of what queries, keys and values read."""
        source, for_keys, for_values = sources
        wide, narrow = self.heads * self.size, self.kv_heads * self.size
        keys = Matmul("k", (for_keys,), self.width, narrow, False, COLUMN, role=KEY)
        values = Matmul("v", (for_values,), self.width, narrow, False, COLUMN, role=VALUE)
        operations: Operations = (
            Matmul("q", (source,), self.width, wide, False, COLUMN, role=QUERY),
            keys,
            *self._convolved("k", for_keys, narrow),
            values,
            *self._convolved("v", for_values, narrow),
            Matmul("relative", (source,), self.width, self.heads * self.rank, False, COLUMN),
            Matmul("sink", (source,), self.width, self.heads, False, COLUMN),
            ClippedNorm("q_clip", ("q",), self.size, self.heads, learned=True),
            ClippedNorm("k_clip", ("k_conv",), self.size, self.kv_heads),
            RMS_BARE("v_norm", "v_conv", self.size, self.kv_heads),
            ClippedNorm("relative_clip", ("relative",), self.rank, self.heads, learned=True),
        )
        query, asked = "q_clip", "relative_clip"
        if self.window is None:
            query, asked = "q_tempered", "relative_tempered"
            operations += (
                Scale(query, ("q_clip",), wide, positions=True),
                Scale(asked, ("relative_clip",), self.heads * self.rank, positions=True),
            )
        core = AttentionCore(
            "attention", (query, "k_clip", "v_norm", "distance_bias"), self.heads, self.kv_heads, self.size, self.size,
            window=self.window, position="distance",
        )  # fmt: skip
        gated = Gate(upcast=True)(source, "attention", self.width, self.heads, self.size)
        return (
            *operations,
            DistanceBias("distance_bias", (asked,), self.heads, self.rank, self.extent),
            core,
            *gated,
            Matmul("o", (gated[-1].name,), wide, self.width, False, ROW),
        )

    def _convolved(self, name: str, source: str, channels: int) -> Operations:
        if self.window is not None:
            return (ShortConvolution(f"{name}_conv", (name,), channels, self.kernel),)
        taps = Matmul(f"{name}_taps", (source,), self.width, self.kv_heads * self.kernel, False, COLUMN)
        return (taps, DynamicConvolution(f"{name}_conv", (name, taps.name), channels, self.kernel))


@record
class InklingParts:
    """What config.json says of the network: nothing below reads it again.

    every  layers in a block    kernel  of the convolutions    plans  what sets each layer apart
    """

    sizes: Dimensions
    kernel: int
    every: int
    attentions: Mapping[str, _InklingAttention]
    feed: Block
    plans: Sequence[Inkling2Plan]
    softcap: bool


def read(config: Config) -> InklingParts:
    """Read a config.json."""
    hidden, layers = width(config), depth(config)
    config.ignore("log_scaling_n_floor", "log_scaling_alpha", "qk_l2_clip_threshold", "rel_l2_clip_threshold")
    config.ignore("mlp_gate_softcap", "mlp_up_softcap", "route_scale", "number_of_conv_states", "tie_word_embeddings")
    config.must_be("hidden_act", "silu")
    kernel, every = config.integer("conv_kernel_size"), config.integer("n_layers_per_attn_res_block")
    kinds = listed(config, "layer_types", layers, (FULL, WINDOWED))
    kinds = kinds or [WINDOWED if (i + 1) % PERIOD else FULL for i in range(layers)]
    attentions = {kind: _attention(config, hidden, kernel, kind) for kind in sorted(set(kinds))}
    config.ignore(*(prefix + name for prefix in ("", "swa_") for name in _SIZES), "rel_extent", "sliding_window_size")
    sizes = sizes_over(config, [(one.heads, one.kv_heads, one.size) for one in attentions.values()])
    outputs = config.integer("unpadded_vocab_size")
    return InklingParts(
        replace(sizes, vocabulary=outputs, more_rows=sizes.vocabulary - outputs),
        kernel,
        every,
        attentions,
        _experts(config, hidden),
        [Inkling2Plan(kind, -(-i // every), i % every == 0) for i, kind in enumerate(kinds)],
        config.real("final_logit_softcapping") is not None,
    )


def inkling2(config: Config) -> Model:
    """Return Inkling 2's language model."""
    parts = read(config)
    return network(parts, runs_of(parts.plans, lambda plan: layer(parts, plan)))


def network(parts: InklingParts, runs: Parts) -> Model:
    """Return a language model of these layers."""
    sizes, hidden = parts.sizes, parts.sizes.hidden
    final = BlockResidual("final_input", ("x",), hidden, -(-sizes.layers // parts.every) + 1)
    after = head(
        hidden, sizes.vocabulary, norm=RMS_FP32, softcap=parts.softcap, fp32_cap=True, none=sizes.headless,
        source=final.name,
    )  # fmt: skip
    before = embedding(sizes.vocabulary + sizes.more_rows, hidden, norm=RMS)
    return decoder_only(sizes, before, runs, (final, *after))


_SIZES = ("num_attention_heads", "num_key_value_heads", "head_dim")


def _attention(config: Config, hidden: int, kernel: int, kind: str) -> _InklingAttention:
    """Read the attention of one kind of layer."""
    near = kind == WINDOWED
    names = ["swa_" * near + name for name in _SIZES]
    heads, kv_heads, size = map(config.integer, names)
    if heads % kv_heads:
        raise config.wrong(names[1], f"{heads} attention heads are not a multiple of {kv_heads} key/value heads")
    window = config.integer("sliding_window_size") if near else None
    extent = window or config.integer("rel_extent")
    return _InklingAttention(hidden, heads, kv_heads, size, config.integer("d_rel"), extent, kernel, window)


def _experts(config: Config, hidden: int) -> Block:
    experts, top_k = chosen_experts(config, "n_routed_experts", "num_experts_per_tok")
    score = config.text("scoring_func", known=("sigmoid", "softmax", "sqrtsoftplus"))
    routing = Routing(experts, top_k, score=score, normalize=True, upcast=True, balanced="buffer")
    return partial(moe, width=hidden, inner=config.integer("moe_intermediate_size"), routing=routing)


Mixes = Callable[[str, str], Operations]
"""(name, what is read) → operations that mix a message into it, the last of them the result."""


def _unmixed(name: str, source: str) -> Operations:
    return ()


def layer(parts: InklingParts, plan: Inkling2Plan, mixes: Mixes = _unmixed) -> Layer:
    """Return a layer, each branch of which reads a sum over earlier blocks and ends with a short convolution. mixes: a
    message into what each branch reads."""
    hidden, near = parts.sizes.hidden, plan.attention == WINDOWED
    several = not near or mixes is not _unmixed
    letters = ("q_", "k_", "v_") if several else ("",)
    read: Operations = ()
    reads = ["x"] * len(letters)
    if plan.blocks:
        read = (BlockResidual("attention_input", ("x",), hidden, plan.blocks + 1, 1 if near else len(letters)),)
        reads = ["attention_input"] * len(letters)
        if not near:
            reads = [f"{letter}read" for letter in letters]
            read += tuple(Slice(name, ("attention_input",), hidden) for name in reads)
    for place, letter in enumerate(letters):
        mixed = mixes(letter, reads[place])
        read += mixed
        reads[place] = mixed[-1].name if mixed else reads[place]
    normed = [f"{letter}input_norm" for letter in letters]
    norms = tuple(RMS_FP32(name, of, hidden) for name, of in zip(normed, reads, strict=True))
    first = parts.attentions[plan.attention]((normed[0], normed[several], normed[2 * several]))
    convolved = ShortConvolution("attention_conv", (first[-1].name,), hidden, parts.kernel)
    partial_sum: Operations = () if plan.begins else (Add("attention_residual", ("x", convolved.name), hidden),)
    last = partial_sum[-1].name if partial_sum else convolved.name
    mlp_input = BlockResidual("mlp_input", (last,), hidden, plan.blocks + plan.begins + 1)
    mixed = (mlp_input, *mixes("mlp_", "mlp_input"))
    second = parts.feed("mlp_norm")
    return Layer(
        f"{'sliding' if near else 'full'}_{plan.blocks}" + "_begins" * plan.begins,
        (
            *read,
            *norms,
            *first,
            convolved,
            *partial_sum,
            *mixed,
            RMS_FP32("mlp_norm", mixed[-1].name, hidden),
            *second,
            ShortConvolution("mlp_conv", (second[-1].name,), hidden, parts.kernel),
            Add("mlp_residual", (last, "mlp_conv"), hidden),
        ),
    )


INKLING2 = like(
    INKLING,
    "inkling2_text",
    build=inkling2,
    config_class="Inkling2TextConfig",
    aliases={**INKLING.aliases, "intermediate_size": "moe_intermediate_size", "routed_scaling_factor": "route_scale"},
    implementation=replace(
        INKLING.implementation, kernels=(EAGER,), fp32_weights=("/weight", "/query", "mlp.gate/weight"),
    ),
    wrappers=(Wrapper("inkling2"),),
    modules={
        "q": "self_attn.q_proj.linear", "k": "self_attn.k_proj.linear", "v": "self_attn.v_proj.linear",
        "o": "self_attn.o_proj.linear", "gate_logit": "self_attn.o_proj.gate_proj",
        "relative": "self_attn.relative_position_bias.linear", "sink": "self_attn.sink_proj",
        "k_taps": "self_attn.k_proj.sconv.weight_proj", "v_taps": "self_attn.v_proj.sconv.weight_proj",
    },
    defaults={
        "intermediate_size": REQUIRED, "local_layer_ids": REQUIRED, "mlp_layer_types": REQUIRED,
        "n_shared_experts": REQUIRED, "final_logit_softcapping": 30.0, "log_scaling_n_floor": 128000,
        "max_position_embeddings": 1048576, "moe_intermediate_size": 2304, "n_layers_per_attn_res_block": 6,
        "n_routed_experts": 384, "num_attention_heads": 48, "num_experts_per_tok": 8, "scoring_func": "sigmoid",
        "sliding_window_size": 1024, "swa_num_attention_heads": 48, "swa_num_key_value_heads": 8,
        "unpadded_vocab_size": 200058,
    },
)  # fmt: skip

ARCHITECTURES = (INKLING2,)
