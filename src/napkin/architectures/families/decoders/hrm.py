"""HRM-Text (Hierarchical Reasoning Model, arXiv:2506.21734): two stacks of layers that run alternately, several times.

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0 (src/transformers/models/hrm_text/).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.assembly import embedding, head
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Gate, Heads, QkvProjections, Rope
from napkin.architectures.blocks import RMS_BARE, Operations, gated_mlp
from napkin.architectures.dimensions import decoder_only, dimensions_of
from napkin.architectures.reading import DEEPEST, activation, depth, width
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.implementations import HF
from napkin.operations.learned import Parameters
from napkin.operations.model import Beside, Layer, Model
from napkin.operations.passes import Ungraded
from napkin.operations.pointwise import Add
from napkin.operations.roles import REPLICATED
from napkin.operations.views import Stream, run_again
from napkin.record import record, replace


@record
class _Cycles:
    """How often the stacks run: in each of the cycles the low one `low` times, the last `graded[i]` of them with a
    gradient, then the high one. `layers`: of each stack."""

    layers: int
    low: int
    graded: tuple[int, ...]


def _cycles(config: Config) -> _Cycles:
    high, low = config.integer("H_cycles"), config.integer("L_cycles")
    stated = config.optional_integer("num_layers_per_stack")
    layers = stated or depth(config)
    if stated is not None:
        config.must_be("num_hidden_layers", stated * high * (low + 1), stated)
    if layers * high * (low + 1) > DEEPEST:
        raise config.wrong("H_cycles", f"{high} × {low + 1} passes of {layers:,} layers are too many")
    listed = config.items("L_bp_cycles", required=False) or [2]
    if not all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in listed):
        raise config.wrong("L_bp_cycles", "is not a list of whole numbers")
    padded = [1] * max(0, high - len(listed)) + listed
    return _Cycles(layers, low, tuple(min(count, low) for count in padded[:high]))


@record
class _Turn:
    """A pass of a stack with a gradient: it reads the sum of both states and replaces its own.

    idle    low passes without a gradient between the pass before it and this one
    states  the pass that made each state it reads, low and high (0: none)
    """

    stack: str
    idle: int
    states: tuple[int, int]


def _turns(cycles: _Cycles) -> list[_Turn]:
    """Return the passes with a gradient in order."""
    turns: list[_Turn] = []
    low = high = 0
    for graded in cycles.graded:
        idle = cycles.low - graded
        low = 0 if idle else low
        for stack in (*["low"] * graded, "high"):
            turns.append(_Turn(stack, idle, (low, high)))
            idle = 0
            low, high = (len(turns), high) if stack == "low" else (low, len(turns))
    return turns


def _again(operations: Operations) -> Operations:
    """Return the operations with weights that an earlier pass owns."""
    return tuple(run_again(op) if op.weights() else op for op in operations)


def _runs(
    layers: int, turns: list[_Turn], operations: Mapping[str, Operations], hidden: int
) -> tuple[tuple[int, Layer], ...]:
    """Return the passes with what runs before each and after the last; the first pass of a stack owns its weights.
    `operations`: of a layer of each stack."""
    last_reader: dict[tuple[str, int], int] = {}
    for number, turn in enumerate(turns, 1):
        last_reader |= {("low", turn.states[0]): number, ("high", turn.states[1]): number}
    last_reader.pop(("low", 0), None)  # no gradient passes through it
    again = {stack: _again(its) for stack, its in operations.items()}
    runs: list[tuple[int, Layer]] = []
    made, beside, met = ("high", 0), Beside(held=1), set[str]()
    for number, turn in enumerate(turns, 1):
        read = ("low", turn.states[0]), ("high", turn.states[1])
        other = next(state for state in read if state != made)
        later = {state for state, reader in last_reader.items() if reader > number}
        own = Stream("made", ("x",), hidden, waits=made in later)
        norm: Operations = ()
        if number > 1:
            norm, own = (RMS_BARE("final_norm", "x", hidden),), replace(own, reads=("final_norm",))
        passes = Ungraded("passes", ("made",), operations["low"], turn.idle * layers)
        graded = other in last_reader
        stream = Stream("other", ("made",), hidden, before=True, waits=other in later, graded=graded)
        second = passes if turn.idle else stream
        between = (*norm, own, second, Add("state", ("made", second.name), hidden))
        runs.append((1, Layer("between", between, block=False, beside=beside)))
        held = 1 + (turn.states[1] > 0)  # the embeddings, the first high state, are held anyway
        beside = Beside(held, sum(made_by < number for _, made_by in later), called=layers > 1)
        stack = turn.stack
        name, its = (f"{stack}_again", again[stack]) if stack in met else (stack, operations[stack])
        runs.append((layers, Layer(name, its, beside=beside)))
        met.add(stack)
        made, beside = (stack, number), Beside(held, called=True)
    runs.append((1, Layer("between", (RMS_BARE("final_norm", "x", hidden),), block=False, beside=beside)))
    return tuple(runs)


def _hrm(config: Config) -> Model:
    """Return both stacks, each pass of which is written down; weights belong to a stack's first pass with a
    gradient."""
    hidden, heads, cycles = width(config), config.integer("num_attention_heads"), _cycles(config)
    head_dim = config.integer("head_dim")
    sizes = dimensions_of(
        config, hidden, cycles.layers, heads, heads, head_dim, config.optional_integer("max_position_embeddings")
    )
    bias = config.flag("attention_bias")
    config.ignore("prefix_lm", "embedding_scale")
    attend = Attention(
        Heads(hidden, heads, heads, head_dim),
        QkvProjections(bias=bias, out_bias=bias),
        rope=Rope(head_dim),
        gate=Gate(bias=bias),
        gate_first=True,
    )
    feed = partial(
        gated_mlp,
        width=hidden,
        inner=config.integer("intermediate_size"),
        function=activation(config, "hidden_act"),
        bias=config.flag("mlp_bias"),
    )
    turns = _turns(cycles)
    if not any(turn.stack == "low" for turn in turns):
        raise config.refuse("L_bp_cycles", "gives the low stack no gradient at all")
    operations = {stack: pre_norm(hidden, RMS_BARE, attend, feed) for stack in ("low", "high")}
    first = Parameters("state", (), (("weight", (hidden,)),), REPLICATED, trained=False)
    passes = len(cycles.graded) * (cycles.low + 1)
    config.notes.append(f"{2 * cycles.layers} layers run in {passes} passes of {cycles.layers}")
    return decoder_only(
        sizes,
        (first, *embedding(sizes.vocabulary, hidden, scale=True)),
        _runs(cycles.layers, turns, operations, hidden),
        head(hidden, sizes.vocabulary, norm=None, none=sizes.headless),
    )


HRM_TEXT = Architecture(
    "hrm_text",
    _hrm,
    config_class="HrmTextConfig",
    defaults={
        "H_cycles": 2, "L_bp_cycles": None, "L_cycles": 3, "attention_bias": False, "head_dim": 128,
        "hidden_act": "silu", "intermediate_size": 4096, "max_position_embeddings": 2048, "mlp_bias": False,
        "num_attention_heads": 12, "num_layers_per_stack": None, "tie_word_embeddings": False, "vocab_size": 151808,
    },
    implementation=HF,
    modules={"gate_logit": "self_attn.gate_proj"},
)  # fmt: skip

ARCHITECTURES = (HRM_TEXT,)
