"""The order of layers: counts, turning points and the stages looked at, against every layer and every stage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from napkin.architectures import build, implementation_of
from napkin.elementwise import Number
from napkin.footprint import moments, peaks
from napkin.footprint.memory import rank_of
from napkin.footprint.prepared import prepare
from napkin.inputs.load import Document
from napkin.inputs.model_file import config_from
from napkin.operations.model import Layer, Model, Stack, patterns_of, stack_of
from napkin.operations.norms import Norm
from napkin.planning.enlarge import with_layers
from napkin.planning.verdicts import used_on, worst_rank
from napkin.record import replace
from napkin.training import optimizer_names
from napkin.training.frameworks import FRAMEWORKS, PLAIN
from napkin.training.layout import Layout
from napkin.training.order import Order, order_of
from napkin.training.precision import POLICIES
from napkin.training.recomputation import Recompute
from napkin.training.recomputation import recompute as read
from napkin.training.setup import Setup

KINDS = tuple(Layer(f"kind{i}", (Norm("norm", ("x",), 8 + i),)) for i in range(3))
kinds = st.integers(0, 2)
patterns = st.lists(
    st.tuples(st.integers(1, 5), st.lists(st.tuples(st.integers(1, 4), kinds), min_size=1, max_size=4)),
    min_size=1,
    max_size=3,
)
recomputes = st.sampled_from([Recompute("none"), Recompute("full"), *(Recompute("every", k) for k in (1, 2, 3, 5, 40))])


Blocks = list[tuple[int, list[tuple[int, int]]]]
"""How often, and the runs of one block: count and layer type."""


def flat(stack: Stack) -> list[int]:
    return [KINDS.index(layer) for count, layer in stack.runs for _ in range(count)]


def stack(blocks: Blocks) -> Stack:
    runs = [(count, KINDS[kind]) for times, block in blocks for _ in range(times) for count, kind in block]
    return stack_of("decoder", (), runs, ())


@given(patterns)
def test_patterns_are_the_same_layers_in_the_same_order(blocks: Blocks) -> None:
    made = stack(blocks)
    listed = [kind for times, block in blocks for _ in range(times) for count, kind in block for _ in range(count)]
    assert flat(made) == listed
    assert made.depth == len(listed)
    for _, count, layer in made.kinds():
        assert count == listed.count(KINDS.index(layer))


def test_what_alternates_is_one_pattern() -> None:
    sliding, full, other = KINDS
    assert patterns_of([(5, sliding), (1, full)] * 1000) == ((1000, ((5, sliding), (1, full))),)
    assert patterns_of([(1, sliding)] * 1000) == ((1, ((1000, sliding),)),)
    some = [(3, other), *[(1, sliding), (1, full)] * 500]
    assert patterns_of(some) == ((1, ((3, other),)), (500, ((1, sliding), (1, full))))
    assert len(order_of(stack_of("decoder", (), some, ()).numbered, Recompute("every", 3)).segments) < 8


@given(patterns, recomputes, st.integers(0, 4), st.data())
@settings(max_examples=300)
def test_counts_and_turns_are_those_of_every_layer(
    blocks: Blocks, recompute: Recompute, asleep: int, data: st.DataObject
) -> None:
    made = stack(blocks)
    order = order_of(made.numbered, recompute, asleep)
    every = [
        (kind, recompute.kind == "full" or (recompute.kind == "every" and i % recompute.k == 0), i < asleep)
        for i, kind in enumerate(flat(made))
    ]
    named = [(KINDS.index(made.layers[s.kind]), s.checkpointed, s.no_grad) for s in order.variants]
    low = data.draw(st.integers(0, len(every) - 1))
    high = data.draw(st.integers(low + 1, len(every)))
    for x in (low, high):
        assert order.before(x) == tuple(every[:x].count(one) for one in named)
    steps = data.draw(st.lists(st.integers(-9, 9), min_size=len(named), max_size=len(named)))
    peaks = data.draw(st.lists(st.integers(0, 30), min_size=len(named), max_size=len(named)))
    level = dict(zip(named, steps, strict=True))
    top = dict(zip(named, peaks, strict=True))
    brute = max(top[every[i]] + sum(level[one] for one in every[i + 1 : high]) for i in range(low, high))
    above = order.before(high)
    corners = list(order.corners(low, high))
    assert brute == max(
        peaks[variant] + sum(n * (a - b) for n, a, b in zip(steps, above, upto, strict=True))
        for _, variant, upto in corners
    )


# --- a whole step, stage by stage ------------------------------------------------------------------------------------


@given(patterns, recomputes, st.data())
def test_stretches_of_one_composition_hold_the_same_layers_in_the_same_order(
    blocks: Blocks, recompute: Recompute, data: st.DataObject
) -> None:
    order = order_of(stack(blocks).numbered, recompute)
    size = data.draw(st.integers(1, order.depth))
    seen: dict[object, list[tuple[Number, ...]]] = {}
    for low in range(order.depth - size + 1):
        layers = [order.between(low, low + ahead) for ahead in range(1, size + 1)]
        assert seen.setdefault(order.composition(low, low + size), layers) == layers


def config(**fields: Any) -> Model:
    shape = {
        "model_type": "qwen2_moe",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 160,
        "moe_intermediate_size": 96,
        "shared_expert_intermediate_size": 64,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "decoder_sparse_step": 1,
        "vocab_size": 300,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
    }
    return build(config_from("drawn", Document("drawn", None), shape | fields))


def setup_of(model: Model, **layout: Any) -> Setup:
    framework = layout.pop("framework", PLAIN)
    policy = layout.pop("precision", "bf16-mixed")
    optimizer, _ = optimizer_names.find("adamw")
    return Setup(
        implementation_of("hf", model.family),
        Layout(seq=64, **layout),
        POLICIES[policy],
        optimizer,
        "fused",
        framework=framework,
    )


layers = st.one_of(
    st.lists(st.booleans(), min_size=4, max_size=30),
    st.builds(lambda block, times: block * times, st.lists(st.booleans(), min_size=1, max_size=5), st.integers(1, 8)),
)


@given(
    layers,
    st.integers(1, 12),
    st.sampled_from(["none", "full", "every:2", "every:3", "group:2", "group:3", "group:sqrt"]),
    st.sampled_from(["1f1b", "gpipe", "zero-bubble"]),
    st.integers(1, 9),
    st.integers(0, 3),
    st.sampled_from(["plain", "megatron-deepspeed", "nanotron"]),
    st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_the_worst_of_the_stages_looked_at_is_the_worst_of_all(
    sparse: list[bool],
    stages: int,
    recompute: str,
    schedule: str,
    micro_batches: int,
    zero: int,
    framework: str,
    tied: bool,
) -> None:
    model = config(
        num_hidden_layers=len(sparse),
        mlp_only_layers=[i for i, has in enumerate(sparse) if not has],
        tie_word_embeddings=tied,
    )
    pp = min(stages, len(sparse))
    layout: dict[str, Any] = {"pp": pp, "dp": 2, "micro_batches": micro_batches, "zero": zero}
    layout |= {"schedule": schedule, "recompute": read(recompute), "framework": FRAMEWORKS[framework]}
    step = prepare(model, setup_of(model, **layout))
    every = max(used_on(step.setup, rank_of(step, index)) for index in range(pp))
    assert used_on(step.setup, worst_rank(step)) == every


def every_corner(order: Order, low: int, high: int) -> Iterator[tuple[bool, int, tuple[Number, ...]]]:
    """Every layer of low … high − 1 as a turn, from the last to the first."""
    for layer in reversed(range(low, high)):
        variant = next(at for at, n in enumerate(order.between(layer, layer + 1)) if n)
        yield True, variant, order.before(layer + 1)


def every_group(order: Order, low: int, high: int, size: int) -> list[tuple[int, int]]:
    return [(begin, min(begin + size, high)) for begin in reversed(range(low, high, size))]


@given(
    layers,
    st.sampled_from(["none", "full", "every:3", "group:3", "group:sqrt"]),
    st.integers(0, 3),
    st.integers(1, 2),
    st.integers(1, 3),
    st.sampled_from(["bf16-mixed", "amp-bf16"]),
)
@settings(max_examples=60, deadline=None)
def test_the_corners_hold_what_the_worst_of_all_single_layers_holds(
    sparse: list[bool], recompute: str, zero: int, micro_batches: int, stages: int, policy: str
) -> None:
    model = config(num_hidden_layers=len(sparse), mlp_only_layers=[i for i, has in enumerate(sparse) if not has])
    layout = {"dp": 2, "pp": stages, "zero": zero, "micro_batches": micro_batches, "recompute": read(recompute)}
    step = prepare(model, setup_of(model, precision=policy, **layout))
    for index in range(stages):
        found = rank_of(step, index)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Order, "corners", every_corner)
            patch.setattr(Order, "groups", every_group)
            patch.setattr(peaks, "most_held", lambda corners, held: corners)
            brute = rank_of(step, index)
        assert [moment.live for moment in found.moments] == [moment.live for moment in brute.moments]


def test_equal_layers_are_one_run_however_they_are_listed() -> None:
    joined = config(num_hidden_layers=24, mlp_only_layers=list(range(24)))
    one = joined.stacks[0]
    apart = replace(joined, stacks=(Stack("decoder", one.before, ((24, ((1, one.layers[0]),)),), one.after),))
    for recompute in (Recompute("none"), Recompute("every", 5), Recompute("group", 7), Recompute("group", 0)):
        setups = [setup_of(model, pp=3, recompute=recompute) for model in (joined, apart)]
        first, second = (worst_rank(prepare(m, s)) for m, s in zip((joined, apart), setups, strict=True))
        assert first.moments == second.moments


# --- depth costs nothing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recompute", ["none", "full", "every:7", "group:5", "group:sqrt"])
def test_as_many_layers_and_stages_are_looked_at_in_a_million_layers(
    recompute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = []
    plain = peaks.layer_peaks

    def counting(*arguments: Any) -> Iterator[Any]:
        found = list(plain(*arguments))
        looked.append(len(found))
        return iter(found)

    monkeypatch.setattr(moments, "layer_peaks", counting)
    few = config(num_hidden_layers=24, mlp_only_layers=list(range(0, 24, 2)))
    counts = []
    for depth, stages in ((24, 1), (24, 4), (1_000_000, 1), (1_000_000, 1000)):
        model = with_layers(few, depth)
        assert model.stacks[0].depth == depth
        worst_rank(prepare(model, setup_of(model, pp=stages, recompute=read(recompute))))
        counts.append((len(looked), sum(looked)))
        looked.clear()
    assert counts[2][1] <= 2 * counts[0][1] + 20
    assert counts[3][0] <= 24
    assert counts[3][1] <= 24 * counts[2][1]


def test_more_layers_continue_the_pattern() -> None:
    shape = {
        "model_type": "gemma3_text",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 128,
        "vocab_size": 300,
        "sliding_window": 32,
        "max_position_embeddings": 512,
    }

    def of(layers: int) -> Model:
        return build(config_from("drawn", Document("drawn", None), shape | {"num_hidden_layers": layers}))

    for depth in (7, 26, 27, 31, 60, 61):
        for other in range(1, 80):
            grown = with_layers(of(depth), other).stacks[0]
            if depth >= 12 or other <= depth:
                assert programs(grown) == programs(of(other).stacks[0])
    dense_first = with_layers(config(num_hidden_layers=9, mlp_only_layers=[0, 1, 2]), 40).stacks[0]
    assert [(count, layer.kind) for count, layer in dense_first.runs] == [(3, "dense"), (37, "moe")]


def programs(stack: Stack) -> list[tuple[object, ...]]:
    return [layer.operations for count, layer in stack.runs for _ in range(count)]


def test_every_counts_blocks_alone() -> None:
    """Between blocks lie layers that are none: of five blocks the first, third and fifth are checkpointed, also where
    the pattern repeats."""
    for patterns in ([(1, ((1, 0), (1, 1)) * 5)], [(5, ((1, 0), (1, 1)))]):
        order = order_of(patterns, Recompute("every", 2), between={1})
        counts: dict[tuple[int, bool], Number] = dict.fromkeys(((0, True), (0, False), (1, False)), 0)
        for n, one in zip(order.before(order.depth), order.variants, strict=True):
            counts[one.kind, one.checkpointed] += n
        assert counts == {(0, True): 3, (0, False): 2, (1, False): 5}
