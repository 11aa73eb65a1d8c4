"""Dory: a decoder on the unit sphere (nGPT, arXiv:2410.01131) whose layers in the middle run several times.

Fields and arrangements are facts of the class of Hugging Face transformers 5.24.0 (src/transformers/models/dory/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.assembly import embedding, head, runs_of
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Heads, QkNorm, QkvProjections, Rope
from napkin.architectures.blocks import NormStyle, Operations
from napkin.architectures.dimensions import Dimensions, decoder_only, dimensions
from napkin.architectures.layer_plans import laid_out
from napkin.architectures.reading import FULL, WINDOWED, activation, checked, on
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.implementations import HF
from napkin.operations.linear import Matmul
from napkin.operations.model import Beside, Layer, Model
from napkin.operations.pointwise import Activation, Add, Multiply
from napkin.operations.roles import COLUMN, HEADS, ROW, VOCABULARY
from napkin.operations.sphere import Interpolate, LearnedScale
from napkin.operations.views import Stream, run_again
from napkin.record import record, replace

L2 = NormStyle("l2", "fp32", weight=False)
"""Onto the unit sphere (DoryL2Norm)."""
MLP = "mlp"
"""What published files list behind each attention; their numbers of layers count both."""
_SECTIONS = ("n_input_layers", "n_recurrent_layers", "n_output_layers")


@record
class _Sections:
    """Layers that run once, then `loops` times, then once; `kinds`: the attention of each."""

    before: int
    looped: int
    after: int
    loops: int
    kinds: tuple[str, ...]


def _sections(config: Config, stated: int) -> _Sections:
    """Read the sections of a network of this many stated layers."""
    listed = config.items("layer_types", required=False)
    parts = 2 if listed is not None and MLP in listed else 1
    layers = stated // parts
    pattern = laid_out(lambda i, _: WINDOWED if (i + 1) % 4 else FULL)(config, layers)
    kinds = [pattern(i) for i in range(layers)] if listed is None else listed[::parts]
    counts = [config.optional_integer(field, least=0) for field in _SECTIONS]
    before, looped, after = (None if count is None else count // parts for count in counts)
    before, after = before or 0, after or 0
    looped = layers - before - after if looped is None else looped
    if looped < 1 or before + looped + after != layers:
        raise config.wrong("n_recurrent_layers", f"{before}, {looped} and {after} layers are not {layers}")
    known = tuple(checked(config, "layer_types", kinds, layers, (WINDOWED, FULL)))
    return _Sections(before, looped, after, config.integer("n_recurrent_loops"), known)


def _gate(source: str, attended: str, width: int, heads: int, size: int, prefix: str) -> Operations:
    """Return attention's output times σ(W·x ⊙ s²)."""
    wide = heads * size
    return (
        Matmul("gate_logit", (source,), width, wide, False, COLUMN),
        LearnedScale("gate_scaled", ("gate_logit",), wide, squared=True, shard=HEADS),
        Activation("gate_score", ("gate_scaled",), wide, "sigmoid"),
        Multiply("attention_gated", (attended, "gate_score"), wide),
    )


def _attention(config: Config, sizes: Dimensions, kind: str) -> Operations:
    """Return attention of the normed stream, whose rotated queries a learned factor multiplies."""
    bias = on(config, "attention_bias")
    attention = Attention(
        Heads(sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim),
        QkvProjections(bias=bias, out_bias=bias),
        rope=Rope(sizes.head_dim),
        norm=QkNorm(L2),
        gate=_gate,
        out_norm=L2,
    )
    if kind == WINDOWED:
        attention = attention.scored(window=config.integer("sliding_window"))
    made: Operations = ()
    for op in attention("input_norm"):
        if op.attends() is not None:
            scale = LearnedScale("q_scaled", op.reads[:1], sizes.heads * sizes.head_dim, squared=True, shard=HEADS)
            made += (scale, replace(op, reads=("q_scaled", *op.reads[1:])))
        else:
            made += (op,)
    return made


def _feed(config: Config, hidden: int) -> Operations:
    """Return a gated MLP, with learned factors of gate and values and a norm of their product."""
    inner, bias = config.integer("intermediate_size"), on(config, "mlp_bias")
    return (
        Matmul("gate", ("mlp_norm",), hidden, inner, bias, COLUMN),
        LearnedScale("gate_rescaled", ("gate",), inner, shard=HEADS),
        Matmul("up", ("mlp_norm",), hidden, inner, bias, COLUMN),
        LearnedScale("up_rescaled", ("up",), inner, shard=HEADS),
        Activation("activated", ("gate_rescaled",), inner, activation(config, "hidden_act")),
        Multiply("gated", ("activated", "up_rescaled"), inner),
        L2("gated_norm", "gated", inner),
        Matmul("down", ("gated_norm",), inner, hidden, bias, ROW, role="down"),
    )


def _layer(config: Config, sizes: Dimensions, kind: str) -> Layer:
    """Return a layer, each branch of which moves the normed stream towards its normed result."""
    hidden = sizes.hidden
    attend, feed = _attention(config, sizes, kind), _feed(config, hidden)
    operations: Operations = (
        L2("input_norm", "x", hidden),
        *attend,
        L2("attention_normed", attend[-1].name, hidden),
        Interpolate("attention_moved", ("input_norm", "attention_normed"), hidden),
        L2("mlp_norm", "attention_moved", hidden),
        *feed,
        L2("mlp_normed", feed[-1].name, hidden),
        Interpolate("mlp_moved", ("mlp_norm", "mlp_normed"), hidden),
    )
    return Layer("sliding" if kind == WINDOWED else "full", operations)


def _again(layer: Layer) -> Layer:
    """Return a later run of a layer, with its weights."""
    operations = tuple(run_again(op) if op.weights() else op for op in layer.operations)
    return Layer(f"{layer.kind}_again", operations)


def _restart(hidden: int, first: bool, last: bool) -> Layer:
    """Return what runs before each pass of the loop: the normed stream is added to what the loop got, normed."""
    given: Operations = (Stream("given", ("state_norm",), hidden, before=True, waits=not last),)
    if first:
        given = (L2("given_norm", "x", hidden), Stream("given", ("given_norm",), hidden, waits=not last))
    operations = (L2("state_norm", "x", hidden), *given, Add("state", ("state_norm", "given"), hidden))
    return Layer("between", operations, block=False, beside=Beside(held=0 if first else 1))


def _dory(config: Config) -> Model:
    """Return the network, each pass of whose loop is written down; weights belong to the first."""
    sizes = dimensions(config)
    sections = _sections(config, sizes.layers)
    sizes = replace(sizes, layers=len(sections.kinds))
    config.ignore("ngpt_alpha_init", "recurrent_kv_cache_mode", "sliding_window")
    hidden, rows = sizes.hidden, sizes.vocabulary
    layer = partial(_layer, config, sizes)
    first, last = sections.before, sections.before + sections.looped
    runs = list(runs_of(sections.kinds[:first], layer))
    looped = sections.kinds[first:last]
    usual = {kind: layer(kind) for kind in looped}
    owners = {kind: replace(one, kind=f"{one.kind}_looped") for kind, one in usual.items()}  # unlike those around
    again = {kind: _again(one) for kind, one in usual.items()}
    for number in range(sections.loops):
        is_last = number == sections.loops - 1
        beside = Beside(held=1, waits=0 if is_last else 1)
        its = {kind: replace(one, beside=beside) for kind, one in (again if number else owners).items()}
        runs += [(1, _restart(hidden, number == 0, is_last)), *runs_of(looped, its.__getitem__)]
    runs += runs_of(sections.kinds[last:], lambda kind: replace(layer(kind), beside=Beside(held=1)))
    config.notes.append(f"layers {first} to {last - 1} run {sections.loops} times")
    after = head(hidden, rows, norm=L2, none=sizes.headless)
    if not sizes.headless:
        after = (*after, LearnedScale("logits_scaled", ("lm_head",), rows, fp32=True, shard=VOCABULARY))
    return decoder_only(sizes, embedding(rows, hidden), tuple(runs), after)


DORY = Architecture(
    "dory",
    _dory,
    config_class="DoryConfig",
    implementation=replace(HF, by_kind=True, closure=("tables", "masks")),
    modules={"gate_logit": "self_attn.gate_proj"},
    defaults={
        "attention_bias": False, "head_dim": 256, "hidden_act": "silu", "intermediate_size": 7168,
        "layer_types": None, "max_position_embeddings": 8192, "mlp_bias": False, "n_input_layers": 8,
        "n_output_layers": 8, "n_recurrent_layers": None, "n_recurrent_loops": 2, "num_attention_heads": 16,
        "num_key_value_heads": 4, "sliding_window": 1024, "tie_word_embeddings": False, "vocab_size": 131072,
    },
)  # fmt: skip

ARCHITECTURES = (DORY,)
