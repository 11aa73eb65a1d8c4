"""Which layers of a backward pass are looked at, and what gradients of shared weights it has left, by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from napkin.autograd.tape import Tape
from napkin.counting.conventions import excess
from napkin.counting.params import params
from napkin.evidence.figures.host_updates import host_rate
from napkin.footprint import peaks
from napkin.footprint.activations import one_layer
from napkin.footprint.kv_cache import cache
from napkin.footprint.local_weights import LocalWeights
from napkin.footprint.memory import rank_of
from napkin.footprint.peaks import Corner, StageLayers
from napkin.footprint.placeholders import buffers
from napkin.footprint.prepared import _part_asleep, layers_asleep, prepare
from napkin.footprint.rank import Rank
from napkin.footprint.rows import Rows
from napkin.footprint.stages import Stage, _runs
from napkin.footprint.submodels import TowerPart, submodels_of, tower_part
from napkin.operations.implementations import HF
from napkin.operations.linear import Matmul
from napkin.operations.lowering import Lowering
from napkin.operations.model import Layer
from napkin.operations.shapes import Shape, Split
from napkin.record import replace
from napkin.term import constant
from napkin.timing.optimizer import FUSED_ON_HOST, LOOPED_ON_HOST
from napkin.training.layout import Layout
from napkin.training.order import order_of
from napkin.training.recomputation import Recompute
from napkin.training.setup import Setup
from tests.conftest import ROOT, model_of, preset, run_line
from tests.test_moments_by_hand import TIED
from tests.test_states_by_hand import setup_of

DEPTH = 10


def layers_with(corners: list[Corner], others: int = 0, **sizes: Any) -> StageLayers:
    """Ten layers of one variant, each of which keeps `stays` bytes and whose other sizes are given; of each other
    variant two, of no size."""
    found = {"weights": 0, "copies": 0, "cached": 0, "stays": 0, "returned": {}, "size": 1, "inputs": 0, **sizes}
    of = cast(Any, StageLayers.__new__(StageLayers))
    of.step = SimpleNamespace(setup=SimpleNamespace(offload=()), sizes=found)
    of.stage = SimpleNamespace(low=0, high=DEPTH + 2 * others)
    none = [0] * others
    of.sections = [SimpleNamespace(input=found["inputs"]), *(SimpleNamespace(input=0) for _ in none)]
    of.weights, of.copies, of.cached = ([found[name], *none] for name in ("weights", "copies", "cached"))
    of.reruns, of.size, of.encoder = [0, *none], found["size"], 0
    of.begin, of.end = (0, *none), (DEPTH, *(2 for _ in none))
    of.corners = lambda: iter(corners)
    of.reused = lambda *_: (0, 0)  # no layer runs the weights of another
    return cast(StageLayers, of)


def chosen(monkeypatch: pytest.MonkeyPatch, corners: list[Corner] | None = None, **sizes: Any) -> set[int]:
    """Return which of three layers that are alike, the third, the fifth and the seventh, are looked at."""
    monkeypatch.setattr(peaks, "saved_by_layers", lambda step, counts, inputs: counts[0] * step.sizes["stays"])
    monkeypatch.setattr(peaks, "returned_bytes", lambda step, stage, layer: step.sizes["returned"].get(layer, 0))
    of = layers_with(corners or [(1, 0, (n,), 0, 0) for n in (7, 5, 3)], **sizes)
    return {int(upto[0]) for _, _, upto, _, _ in of.largest_corners(lambda made: made)}


def test_of_layers_that_are_alike_those_with_the_most_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layer n of ten has n·stays behind it and (10 − n)·weights made: 10·3 + 12·7 is more than 10·7 + 12·3, and forward
    10·7 more than 10·3. Copies that are free again count against it: 12 − 3 is less than 10."""
    assert chosen(monkeypatch, stays=10, weights=12) == {3, 7}
    assert chosen(monkeypatch, stays=10, weights=9) == {7}
    assert chosen(monkeypatch, stays=10, weights=12, copies=3) == {7}


def test_forward_what_is_cached_later_is_not_there_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """10·n − 14·(10 − n) grows with n as 10·n does; what the layer before returned may be more: 1,000 bytes."""
    assert chosen(monkeypatch, stays=10, cached=14) == {7}
    assert chosen(monkeypatch, stays=10, returned={2: 1000}) == {3, 7}


def test_what_is_recomputed_and_checkpoints_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fifth layer holds most backward where 100 bytes are recomputed with it; of groups, the inputs of its 9
    checkpoints are more than those of 1."""
    recomputed = [(1, 0, (n,), 0, 100 * (n == 5)) for n in (7, 5, 3)]
    assert chosen(monkeypatch, cast(Any, recomputed), stays=10) == {5, 7}
    groups = [(1, 0, (n,), 9 if n == 5 else 1, 0) for n in (7, 5, 3)]
    assert chosen(monkeypatch, cast(Any, groups), stays=10, size=2, inputs=50) == {5}


def test_layers_with_another_variant_before_them_are_not_like_those_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seventh has none before it, the fifth one and the third two, and 10·5 + 9·5 is more than 10·3 + 9·7: what the
    other variant alone keeps is there as long as any of it is."""
    corners: list[Corner] = [(1, 0, (7, 0), 0, 0), (1, 0, (5, 1), 0, 0), (1, 0, (3, 2), 0, 0)]
    assert chosen(monkeypatch, corners, others=1, stays=10, weights=9) == {7, 5}


def test_ends_are_not_like_layers_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first and the last of a stage are looked at next to the one between that holds the most."""
    corners: list[Corner] = [(1, 0, (n,), 0, 0) for n in (10, 7, 3, 1)]
    assert chosen(monkeypatch, corners, stays=10, weights=9) == {10, 7, 1}


HOLDER, READER = object(), object()
KEY = (id(HOLDER), 0)


def shared(begin: tuple[int, int] = (0, 0)) -> StageLayers:
    """Two layers that hold a weight of 10 bytes each, and four that read these in turn, from layer `begin` on."""
    of = cast(Any, StageLayers.__new__(StageLayers))
    of.order = order_of(((1, ((2, 0), (4, 1))),), Recompute("none"), 0)
    of.step = SimpleNamespace(
        replays=SimpleNamespace(weights=lambda kind: {KEY: 10}, shares=lambda kind: {KEY: 10} if kind else {}),
        run=SimpleNamespace(kinds=[SimpleNamespace(operations=(one,)) for one in (HOLDER, READER)]),
    )
    of.stage, of.begin, of.end, of.reruns = SimpleNamespace(low=sum(begin)), begin, (2, 4), [0, 0]
    return cast(StageLayers, of)


@pytest.mark.parametrize(
    ("done", "left", "beside_a_reader"),
    [((0, 0), 0, 0), ((0, 1), 10, 10), ((0, 2), 20, 10), ((0, 4), 20, 10), ((1, 4), 10, None), ((2, 4), 0, None)],
)
def test_gradients_of_weights_that_layers_share(done: tuple[int, int], left: int, beside_a_reader: int | None) -> None:
    """The first two readers leave one each, the others add to them, and each holder completes one; a layer that reads
    adds to its own once both are there."""
    of = shared()
    assert of.reused(done) == (left, left)
    assert beside_a_reader is None or of.reused(done, 1)[0] == beside_a_reader


def test_gradients_are_complete_where_no_layer_of_the_stage_adds_to_them() -> None:
    """On a stage of the readers alone, nothing waits after the fourth."""
    of = shared(begin=(2, 0))
    assert of.reused((0, 3)) == (20, 20)
    assert of.reused((0, 4)) == (20, 0)


def test_holders_without_a_reader_on_their_stage_leave_no_gradient() -> None:
    """Each completes its own at once."""
    of = shared()
    of.end = (2, 0)
    for done in ((0, 0), (1, 0), (2, 0)):
        assert of.reused(done) == (0, 0)
        assert of.rereads(KEY, done) == (0, False)


def test_the_layer_before_a_corner_is_looked_at_where_it_is_alike_and_shares() -> None:
    of = shared()
    assert list(of._before(1, 1, (2, 4))) == [(True, 1, (2, 3), 0, 0)]
    assert list(of._before(1, 1, (2, 1))) == []  # before the first reader is a holder
    assert list(of._before(1, 0, (2, 0))) == []  # holders share nothing here
    assert list(shared(begin=(2, 0))._before(1, 1, (2, 2))) == [(True, 1, (2, 1), 0, 0)]


def test_what_is_live_at_the_loss_at_least() -> None:
    """Weights, those of other models, states, the micro-batches in flight and the one that is there."""
    stage = cast(Stage, SimpleNamespace(chunks=3, parts=1, delayed=0))
    rank = Rank(stage, LocalWeights(0, 0), 10**6, 0, (("state", 10**4), ("master", 10**5)), 1, 0, 100, 0, (), others=(
        ("reference", 10**7),))  # fmt: skip
    assert rank.least == 10**7 + 10**6 + 10**5 + 10**4 + 2 * 100 + 1


@pytest.mark.parametrize(("frozen", "asleep"), [("", 0), ("vision", 2), ("projector", 3)])
def test_what_is_frozen_before_the_language_model_sleeps(frozen: str, asleep: int) -> None:
    """Patches, tower, projector, images in place, the language model: the first two or three."""
    model = preset("qwen2.5-vl-7b")
    shape = Shape(1, 64, images=1, lengths=(64, 64, 16))
    submodels = submodels_of(model, HF, HF, shape, Split(), frozen)
    assert [submodel.asleep for submodel in submodels] == [place < asleep for place in range(5)]


def test_layers_of_a_tower_come_first() -> None:
    """32 layers of Qwen 2.5-VL's tower, its projector, and images put in place; what no gradient reaches sleeps."""
    part = tower_part(preset("qwen2.5-vl-7b"))
    assert (part.tower, part.projected, part.layers) == (32, 33, 34)
    assert [_part_asleep(part, n) for n in (0, 31, 32, 33)] == ["", "", "vision", "projector"]
    assert _part_asleep(TowerPart(), 99) == ""


def test_frozen_layers_that_gradients_pass_through_come_after_the_tower() -> None:
    """The tower's 32 layers, the projector, the images, and the first 3 of the language model's."""
    of = preset("qwen2.5-vl-7b")
    setup = setup_of(of, frozen=3, recompute=Recompute("full"))
    woken = replace(setup, implementation=replace(setup.implementation, wakes=True))
    assert layers_asleep(of, woken) == 34 + 3


@pytest.mark.parametrize("late", [False, True])
def test_a_checkpointed_linear_layer_is_computed_anew_up_to_its_input(late: bool) -> None:
    """Of 6 tokens of 4 elements in bf16: the input is there, and the product need not be made for it is not kept."""
    lowering = Lowering(Tape("bf16"), replace(HF, late=late), Shape(1, 6), Split(), "flash", 0.0)
    made, dtype = one_layer(lowering, Layer("one", (Matmul("product", ("x",), 4, 8),)), 4, "bf16", {})
    assert (made.input, made.saved, made.anew, dtype) == (6 * 4 * 2, 6 * 4 * 2, 6 * 4 * 2, "bf16")


@pytest.mark.parametrize("model_type", ["albert", "zamba", "zamba2"])
def test_shared_weights_are_allocated_once(model_type: str) -> None:
    """In fp32 four bytes for each parameter that is counted."""
    rows = json.loads(Path(ROOT, "tests/data/default_configs.json").read_text(encoding="utf-8"))["rows"]
    fields = {**dict(rows)[model_type], "model_type": model_type}
    found = run_line("memory - --seq 64 --precision fp32 --json", stdin=json.dumps(fields)).values
    assert found["memory/parameters"] == 4 * params(model_of(fields))["params/total"].value


def test_what_is_offloaded_of_micro_batches_in_flight_is_on_the_host() -> None:
    """GPT-2 on two stages: what the GPU keeps of its two micro-batches without offloading, less what it keeps with."""
    line = "memory gpt2 --gpus 2 --pp 2 --grad-accum 4 --seq 64 --json"
    here, away = (run_line(f"{line}{more}").values for more in ("", " --offload activations"))
    assert here["memory/activations"] == 2 * here["memory/activations/saved"]
    assert away["memory/host/activations"] == here["memory/activations"] - away["memory/activations"] > 0


def test_a_cache_and_a_state_of_equal_size_are_both_kept() -> None:
    """Falcon-H1 0.5B: 256 elements a token and a state of 201,984 in each of 36 layers, as many at 789 tokens."""
    found = cache(preset("falcon-h1-0.5b"), 789, 1, 2, "bf16")
    assert found.value == 36 * 2 * (256 * 789 + 201_984)


def test_stages_that_are_assigned_by_hand_begin_where_the_others_end() -> None:
    """Two stages of 3 layers, then one of 4 and two of 1: stage i begins with layer i · size + origin."""
    layout = Layout(seq=8, pp=5, stages=((2, 3), (1, 4), (2, 1)))
    setup = cast(Setup, SimpleNamespace(layout=layout, framework=SimpleNamespace(partition="even")))
    found = _runs(preset("gpt2"), order_of(((12, ((1, 0),)),), Recompute("none"), 0), setup)
    assert found == [(3, 0, 2, 0), (4, 2, 3, 6 - 2 * 4), (1, 3, 5, 10 - 3)]


def test_layouts_on_one_tape_have_the_replays_of_their_own() -> None:
    """Of a tied head: a single micro-batch leaves its gradients, several let them go, on one stage with the table's."""
    for micro_batches in (1, 2):
        for pp in (1, 2):
            alone = setup_of(TIED, pp=pp, micro_batches=micro_batches)
            names = {name: np.array([value] * 2) for name, value in (("pp", pp), ("micro_batches", micro_batches))}
            both = replace(alone, layout=alone.layout.replaced(**names))
            one, found = prepare(TIED, alone), Rows(TIED, both).step(both, np.array([0, 1]))
            assert np.all(np.asarray(found.after.peak) == one.after.peak)
            assert np.all(np.asarray(found.after.end) == one.after.end)


@pytest.mark.parametrize(("by_kind", "tables"), [(False, 1), (True, 2)])
def test_layers_with_a_window_have_angles_of_their_own_where_the_class_has_them_by_kind(
    by_kind: bool, tables: int
) -> None:
    """Gemma 2: windows in every second layer; 128 frequencies in fp32 of a head's 256 elements, and their originals."""
    model = preset("gemma2-2b")
    setup = setup_of(model)
    own = replace(setup.implementation, by_kind=by_kind, buffers=(("rotary", "fp32"),))
    step = prepare(model, replace(setup, implementation=own))
    assert buffers(step, rank_of(step, 0).stage) == tables * 4 * 256


def test_an_optimizer_on_the_host_moves_the_bytes_of_the_published_runs() -> None:
    """30 bytes a parameter. In one kernel, GB/s: 118 (Ren et al. 2021, table 4: 15 billion parameters in 3.82 s), 12.0,
    54.5, 23.2, 29.7, 19.3 and 33.9; in torch's loop 20.6 (21.86 s), 5.8 and 7.5. The rate is their geometric mean."""
    fused = (450 / 3.82, 202.14 / 16.838, 545.25 / 10, 36 / 1.55, 120.66 / 4.063, 17.88 / 0.926, 525 / 15.5)
    looped = (450 / 21.86, 120.66 / 20.734, 128.856 / 17.2)
    for kernel, rates in ((FUSED_ON_HOST, fused), (LOOPED_ON_HOST, looped)):
        assert host_rate(kernel) == pytest.approx(1e9 * math.prod(rates) ** (1 / len(rates)), rel=1e-3)


def test_a_convention_counts_in_excess_only_what_masks_do_not_allow() -> None:
    """An MFU by the full square may exceed 1 by the ratio to the allowed pairs, and never has to stay below 1."""
    six, eight, four = (constant("flops", value, "FLOP") for value in (6.0, 8.0, 4.0))
    assert excess(six, None) == excess(six, eight) == 1
    assert excess(six, four) == 1.5


def test_a_learned_prompt_is_cached_with_the_tokens() -> None:
    """CPM-Ant puts 32 of them before each of two sequences of 100: keys and values of 64 elements in three layers."""
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "dim_head": 16, "dim_ff": 128, "num_hidden_layers": 3}
    found = model_of({"model_type": "cpmant", "vocab_size": 256, "prompt_length": 32, **sizes})
    assert cache(found, 100, 2, 2, "bf16").value == 2 * 3 * (100 + 32) * 2 * 64 * 2
