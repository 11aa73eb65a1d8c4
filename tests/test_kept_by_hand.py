"""What the layers of a stage keep and share, summed layer by layer by hand: plain, checkpointed and frozen ones.

Seven layers of two types, of which the first is frozen and every second block is checkpointed, with tensors that they
share; every size is a power of its own, so that a sum says what is in it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from napkin.autograd.tensors import ACTIVATION, INPUT_LABEL, WEIGHT_COPY, Node, Storage
from napkin.footprint.memory import rank_of
from napkin.footprint.prepared import PreparedStep
from napkin.footprint.saved_activations import (
    freed_bytes,
    made_once_bytes,
    mask_bytes,
    returned_bytes,
    saved_by_layers,
    saved_bytes,
    shared_kv_bytes,
    shared_storages,
)
from napkin.footprint.sections import Section, is_needed
from napkin.footprint.stages import Stage
from napkin.record import replace
from napkin.training.order import order_of
from napkin.training.recomputation import OPERATIONS, Recompute
from tests.test_closures_by_hand import T5
from tests.test_states_by_hand import HEADS, S, step_of


def storage(label: str, size: int, kept: float = 1, kind: str = ACTIVATION) -> Storage:
    found = Storage(label, size, kind, shared=True)
    found.kept = cast(Any, kept)
    return found


TABLE = storage("rotary table", 10**6)
UNKEPT = storage("another table", 10**7, kept=0)
COPY = storage("copy of a shared weight", 10**8, kind=WEIGHT_COPY)
GIVEN = storage("keys for all", 10**9, kept=0)
RETURNED = storage("returned", 10**5, kept=0)


def section(name: str, saved: int, stream: int, **more: Any) -> Section:
    """A layer that keeps `saved` bytes and reads `stream` bytes."""
    one = Section(name, saved, 10 * saved, (), (), (), stream, saved, chosen=3, burst=0, dropped=0, anew=0, biases=0,
                delayed=0)  # fmt: skip
    return replace(one, **more)


FIRST = section("first", 100, 7, shared=(TABLE, COPY), rest_casts=40, carried=1, rest=2, masks=(("full", 10**4),))
SECOND = section(
    "second", 200, 7, shared=(TABLE, UNKEPT), arguments=(GIVEN,), returned=(RETURNED,), masks=(("full", 10**4),),
    kept=(storage(INPUT_LABEL, 7),),
)  # fmt: skip
TYPES = (0, 1, 1, 0, 1, 0, 1)
"""The type of each layer."""
FROZEN = 1
CHECKPOINTED = (0, 2, 4, 6)


def step(how: Recompute, *, frozen: int = FROZEN, offload: tuple[str, ...] = (), **run: Any) -> PreparedStep:
    order = order_of(((1, tuple((1, kind) for kind in TYPES)),), how, frozen)
    passed = {"before": section("before", 30, 0), "after": section("after", 50, 0), "first": 0}
    layers = tuple((TYPES.count(kind), one) for kind, one in enumerate((FIRST, SECOND)))
    several = {"tables": (TABLE, UNKEPT), "shared_tensors": (GIVEN,), "zeros": None, "layers": layers, **passed, **run}
    setup = SimpleNamespace(
        layout=SimpleNamespace(recompute=how), offload=offload, implementation=SimpleNamespace(passes=())
    )
    return cast(PreparedStep, SimpleNamespace(order=order, setup=setup, run=SimpleNamespace(**several)))


def stage(of: PreparedStep, low: int = 0, high: int = len(TYPES)) -> Stage:
    order = of.order
    variants = order.between(low, high)
    checkpointed = [0, 0]
    for n, one in zip(variants, order.variants, strict=True):
        checkpointed[one.kind] += int(n) * one.checkpointed
    found = SimpleNamespace(
        low=low, high=high, variants=variants, checkpointed=tuple(checkpointed), first=int(low == 0),
        last=int(high == len(TYPES)), layers=tuple(TYPES[low:high].count(kind) for kind in (0, 1)),
    )  # fmt: skip
    return cast(Stage, found)


EVERY = Recompute("every", 2)
PARTS = [(0, 7), (0, 3), (3, 7), (1, 2), (5, 6)]


def plain(low: int, high: int) -> list[int]:
    return [i for i in range(low, high) if i >= FROZEN and i not in CHECKPOINTED]


def checkpoints(low: int, high: int) -> list[int]:
    return [i for i in range(low, high) if i >= FROZEN and i in CHECKPOINTED]


@pytest.mark.parametrize(("low", "high"), PARTS)
def test_layers_keep_what_they_save_or_their_inputs(low: int, high: int) -> None:
    """A frozen layer keeps nothing, a checkpointed one its input and what is its own of its arguments and beyond."""
    of = step(EVERY)
    inputs = sum((7 + 1 + 2, 7)[TYPES[i]] for i in checkpoints(low, high))
    saved = sum((100, 200)[TYPES[i]] for i in plain(low, high))
    assert saved_by_layers(of, stage(of, low, high).variants, 99) == saved + inputs
    by_operation = step(Recompute(OPERATIONS))
    every = stage(by_operation, low, high).variants
    trained = [i for i in range(low, high) if i >= FROZEN]
    assert saved_by_layers(by_operation, every, 99) == sum((10, 7)[TYPES[i]] + 3 for i in trained)


def test_groups_keep_the_inputs_of_their_first_layers() -> None:
    """As many as there are checkpoints, of the largest input."""
    of = step(Recompute("group", 3))
    assert saved_by_layers(of, stage(of).variants, 3) == 3 * (7 + 1 + 2)


def test_offloaded_layers_are_in_transit() -> None:
    """At most two of the largest, or five of the largest checkpoints."""
    of = step(Recompute("none"), frozen=0, offload=("activations",))
    assert saved_by_layers(of, stage(of).variants, 0) == 2 * 200
    assert saved_by_layers(of, stage(of, 0, 1).variants, 0) == 100
    full = step(Recompute("full"), frozen=0, offload=("activations",))
    assert saved_by_layers(full, stage(full).variants, 7) == 5 * (7 + 1 + 2)
    assert saved_by_layers(full, stage(full, 1, 3).variants, 2) == 2 * 7


@pytest.mark.parametrize(("low", "high"), PARTS)
def test_what_a_stage_keeps(low: int, high: int) -> None:
    """Its layers; copies of weights, of checkpointed layers those beyond the block; what lies outside, with each shared
    tensor once where a layer keeps it, or a checkpoint has it as an argument."""
    of = step(EVERY)
    here = stage(of, low, high)
    layers, casts, outside = saved_bytes(of, here)
    assert layers == saved_by_layers(of, here.variants, 99)
    ends = 10 * (30 * here.first + 50 * here.last)
    own = sum((1000, 2000)[TYPES[i]] for i in plain(low, high)) + sum((40, 0)[TYPES[i]] for i in checkpoints(low, high))
    copied = 10**8 * any(TYPES[i] == 0 for i in plain(low, high))
    assert casts == ends + own + copied
    given = 10**9 * any(TYPES[i] == 1 for i in checkpoints(low, high))
    assert outside == 30 * here.first + 50 * here.last + 10**6 * bool(plain(low, high)) + given


def test_the_stream_that_the_embedding_keeps_too_counts_once() -> None:
    """Where the first layer is checkpointed, or keeps its input unchanged; not if it is frozen."""
    for frozen, how, first, less in (
        (0, Recompute("full"), FIRST, 7), (0, Recompute("none"), FIRST, 0), (0, Recompute("none"), SECOND, 7),
        (1, Recompute("full"), FIRST, 0),
    ):  # fmt: skip
        layers = (3, first), (4, replace(SECOND, kept=()))
        both = [step(how, frozen=frozen, first=size, layers=layers) for size in (0, 7)]
        apart, once = (saved_bytes(of, stage(of))[2] for of in both)
        assert apart - once == less


def test_masks_that_checkpointed_layers_refer_to_count_once() -> None:
    """Each kind of mask, however many layers read it."""
    of = step(EVERY)
    assert mask_bytes(of, (2, 3)) == mask_bytes(of, (0, 1)) == 10**4
    assert mask_bytes(of, (0, 0)) == 0
    other = replace(SECOND, masks=(("window", 500), ("full", 10**4)))
    of = step(EVERY, layers=((3, FIRST), (4, other)))
    assert (mask_bytes(of, (1, 1)), mask_bytes(of, (1, 0)), mask_bytes(of, (0, 2))) == (10_500, 10_000, 10_500)
    of.setup.implementation.__dict__["passes"] = ("masks",)
    assert saved_bytes(of, stage(of))[2] - saved_bytes(step(EVERY), stage(of))[2] == 10_500


def test_what_a_layer_returns_next_to_the_stream_lives_until_the_next() -> None:
    """Where the layer does not keep it for backward."""
    of = step(EVERY)
    assert [returned_bytes(of, stage(of), i) for i in range(8)] == [0, 0, *(10**5 * TYPES[i - 1] for i in range(2, 8))]
    assert returned_bytes(of, stage(of, 3, 7), 3) == 0  # another stage's
    kept = replace(SECOND, returned=(storage("returned", 10**5),))
    of = step(EVERY, layers=((3, FIRST), (4, kept)))
    at = [returned_bytes(of, stage(of), i) for i in range(8)]
    assert at == [0, 0, *(10**5 * (TYPES[i - 1] and i - 1 in CHECKPOINTED) for i in range(2, 8))]
    none = step(EVERY, layers=((3, FIRST), (4, replace(SECOND, returned=()))))
    assert returned_bytes(none, stage(none), 4) == 0
    first = step(EVERY, frozen=0, layers=((3, replace(FIRST, returned=(RETURNED,))), (4, SECOND)))
    assert [returned_bytes(first, stage(first), i) for i in (0, 1)] == [0, 10**5]


@pytest.mark.parametrize(("low", "high"), PARTS)
def test_tables_that_no_layer_keeps(low: int, high: int) -> None:
    """Those that checkpoints refer to, and those that the forward function holds; a table that autograd keeps for a
    plain layer counts there."""
    of = step(EVERY)
    referred, held = made_once_bytes(of, stage(of, low, high))
    again, once = checkpoints(low, high), plain(low, high)
    table = 10**6 * (not once)
    other = 10**7
    seconds = [i for i in again if TYPES[i] == 1]
    assert referred == table * bool(again) + other * bool(seconds)
    assert held == table * bool(again or once) + other * any(TYPES[i] == 1 for i in again + once)


def test_what_layers_share_and_none_keeps() -> None:
    """Where a checkpoint has it as an argument it is kept; else the forward function alone holds what is not."""
    of = step(EVERY)
    assert shared_kv_bytes(of, stage(of)) == 0
    unchecked = step(Recompute("none"))
    assert shared_kv_bytes(unchecked, stage(unchecked)) == 10**9
    assert shared_kv_bytes(of, stage(of, 2, 3)) == 0  # one checkpoint
    assert shared_kv_bytes(of, stage(of, 1, 2)) == 10**9  # a plain layer has it as an argument and does not keep it
    kept = storage("kept", 10**3)
    of = step(EVERY, shared_tensors=(kept,))
    assert shared_kv_bytes(of, stage(of)) == 10**3  # no layer reads it
    of = step(EVERY, shared_tensors=(kept,), layers=((3, replace(FIRST, shared=(kept,))), (4, SECOND)))
    assert shared_kv_bytes(of, stage(of)) == shared_kv_bytes(of, stage(of, 3, 4)) == 0
    assert shared_kv_bytes(of, stage(of, 1, 2)) == 10**3
    of = step(EVERY, shared_tensors=(UNKEPT,))
    assert shared_kv_bytes(of, stage(of, 1, 2)) == 10**7  # a plain layer reads it, and does not keep it


@pytest.mark.parametrize("how", [Recompute("none"), EVERY])
def test_a_stage_without_a_layer_that_takes_or_makes_a_tensor_does_not_have_it(how: Recompute) -> None:
    """The fourth layer is of the first type, which neither has it as an argument nor makes it; then makes it."""
    of = step(how)
    assert shared_kv_bytes(of, stage(of, 3, 4)) == 0
    of = step(how, layers=((3, replace(FIRST, made=(GIVEN,))), (4, SECOND)))
    assert shared_kv_bytes(of, stage(of, 3, 4)) == 10**9


@pytest.mark.parametrize("pp", [1, 2])
def test_distances_of_a_decoder_are_not_on_a_stage_of_its_encoder(pp: int) -> None:
    """T5: the biases of S² pairs for each head, in 2 bytes, which the decoder's first layer makes for the others."""
    of = step_of(T5, pp=pp)
    held = [shared_kv_bytes(of, rank_of(of, index).stage) for index in range(pp)]
    assert held == [0] * (pp - 1) + [2 * HEADS * S * S]


def test_shared_tensors_go_with_their_last_reader() -> None:
    """Tables, and arguments of checkpoints, by the variants that read them; no copies of weights."""
    of = step(EVERY)
    here = stage(of)
    found = shared_storages(of, here)
    assert sorted(one.size for one in found) == [0, 10**6, 10**9]  # the table that is not kept has no bytes
    (table,) = (one for one in found if one.size == 10**6)
    (given,) = (one for one in found if one.size == 10**9)
    for variant, reads_table, reads_given in zip(of.order.variants, table.users, given.users, strict=True):
        if not variant.no_grad:
            assert reads_table
            assert reads_given is (variant.checkpointed and variant.kind == 1)
    alone = shared_storages(of, stage(of, 2, 3))  # one checkpointed layer refers to the table and its argument
    assert sorted(one.size for one in alone) == [0, 10**6, 10**9]
    own = storage("of the second type", 10**3)
    other = step(EVERY, layers=((3, FIRST), (4, replace(SECOND, shared=(own,)))))
    assert [one.size for one in shared_storages(other, stage(other, 3, 4))] == [10**6, 0, 0]  # a layer of the first
    left = of.order.between(0, 5)
    assert freed_bytes(found, left) == 0
    assert freed_bytes(found, of.order.between(0, 2)) == 10**9  # layers 2, 4 and 6 are done
    assert freed_bytes(found, of.order.between(0, 0)) == 10**9 + 10**6


def node(reads: object, makes: object, *keeps: Storage) -> Node:
    """A primitive that reads one tensor, makes another, and keeps storages for its backward pass."""
    read, made = (SimpleNamespace(root=root) for root in (reads, makes))
    return cast(Node, SimpleNamespace(inputs=(read,), output=made, kept=tuple((1, one) for one in keeps)))


def test_an_output_is_needed_where_something_that_is_made_of_it_is_kept() -> None:
    """By the next node, or by one behind nodes that keep nothing; not what layers share, and not what is kept beside
    it, before it, or by the node itself where it runs in place."""
    own = Storage("own", 2)
    x, a, b, c = object(), object(), object(), object()
    chain = [node(x, a), node(a, b), node(b, c, own)]
    assert [is_needed(chain, place) for place in range(3)] == [True, True, False]
    assert not is_needed([node(x, a), node(a, b, TABLE)], 0)
    assert not is_needed([node(x, a), node(b, c, own)], 0)
    assert not is_needed([node(a, x), node(x, x, own), node(x, b)], 1)
