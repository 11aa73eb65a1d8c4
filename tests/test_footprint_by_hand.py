"""What a step and a server keep, worked out by hand: the allocator's figures, caches, losses, stages, moments.

The small decoders are those of test_states_by_hand.py."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from napkin.autograd.tensors import ACTIVATION, WEIGHT_COPY, Node, Storage, Tensor
from napkin.footprint import capacity, kv_cache, served_weights
from napkin.footprint.activations import counted
from napkin.footprint.allocator import (
    COMMUNICATION,
    CONTEXT,
    CONTEXT_EAGER,
    EXCHANGE,
    GAPS,
    GAPS_BESIDE,
    WORKSPACE,
    Flow,
    Reported,
    reported,
    within,
    workspaces,
)
from napkin.footprint.rank import peers_of
from napkin.footprint.saved_activations import SharedStorage, dot, freed_bytes
from napkin.footprint.sections import chosen_of, delayed_of
from napkin.footprint.served_weights import StoredWeights, stored
from napkin.footprint.varied_lengths import VARIED, VARIED_BETWEEN_GRADIENTS, held_by_lengths
from napkin.operations.implementations import HF
from napkin.operations.linear import Matmul
from napkin.record import replace
from napkin.term import TRUE, leaf
from napkin.training.frameworks import FRAMEWORKS
from napkin.training.layout import Layout
from napkin.training.optimizers import OPTIMIZERS
from napkin.training.precision import POLICIES
from napkin.training.setup import EXACT, Setup, Width
from tests.conftest import model, preset
from tests.test_states_by_hand import (
    ATTENTION,
    DENSE,
    EXPERTS,
    KV,
    OTHERS,
    SPARSE,
    TABLE,
    D,
    E,
    F,
    H,
    L,
    V,
)

MIB = 1 << 20

# --- what a GPU reports ---


def figures(live: int, gpus: int = 1, width: Width = EXACT, flow: Flow | None = None, **more: Any) -> Reported:
    return reported(leaf("live", live, "byte", TRUE), gpus, width, flow, **more)


def test_figures_of_libraries_in_bytes() -> None:
    """cuBLAS: 2 of 4,096 KiB and 8 of 16 KiB, or 8 of 4,096 KiB. BLOOM: 1,271 MiB."""
    assert WORKSPACE.value == WORKSPACE.low == 2 * 4096 * 1024 + 8 * 16 * 1024
    assert WORKSPACE.high == 8 * 4096 * 1024
    assert CONTEXT_EAGER.value == pytest.approx(1271 * MIB, rel=0.003)
    for one in (CONTEXT, CONTEXT_EAGER, COMMUNICATION, GAPS, GAPS_BESIDE, VARIED, VARIED_BETWEEN_GRADIENTS):
        assert one.low < one.value < one.high
    assert (CONTEXT_EAGER.low, CONTEXT_EAGER.high) == (1.0e9, 1.4e9)
    assert (CONTEXT.low, CONTEXT.high) == (287e6, 1.33e9)
    assert (COMMUNICATION.low, COMMUNICATION.high) == (0.5e9, 3e9)
    assert (GAPS.low, GAPS.high) == (1.08, 1.25)
    assert (VARIED.low, VARIED.value, VARIED.high) == (GAPS.value, 2.0, 3.5)
    assert VARIED_BETWEEN_GRADIENTS.low == VARIED.low


def test_from_live_bytes_to_what_the_driver_shows() -> None:
    """0.3 % of rounding, in whole bytes up, and two workspaces of cuBLAS; a cache of 16 % of what comes and goes; what
    the optimizer step holds apart; context and three communicators."""
    live, passing = 1_000_000_001, 600_000_000
    found = figures(live, 8, flow=Flow(500_000_000, passing, 3))
    rounding, workspace = 3_000_001, 2 * 8_519_680
    cache = (500_000_000 + passing - live) + 96_000_000
    assert found.allocated.value == live + rounding + workspace
    assert found.reserved.value == found.allocated.value + cache
    assert found.used.value == found.reserved.value + 450_000_000 + 3 * 1_300_000_000
    assert found.overhead.value == found.used.value - live


@pytest.mark.parametrize(
    ("layers", "head", "freed", "divided", "stay", "held"),
    [
        (10, 0, 3, False, False, 5.6 + 3),  # of layers 0.56 times as much again, and all that the step frees
        (0, 10, 3, False, False, 23 + 3),  # of the head 2.3 times
        (10, 0, 3, False, True, 1.4 * 5.6 + 3),  # 1.4 times as much around gradients
        (10, 0, 90, False, True, 2 * 1.4 * 5.6),  # no more of what the step frees than activations came in the way of
        (10, 0, 90, True, True, 1.4 * 5.6 + 90),  # shards of gradients are another stream's
    ],
)
def test_what_the_cache_holds_where_lengths_vary(
    layers: int, head: int, freed: int, divided: bool, stay: bool, held: float
) -> None:
    """After the 1,400 micro-batches of the runs that were measured."""
    found = held_by_lengths(layers, head, freed, divided, stay, 1_400, "value")
    assert found == pytest.approx(held)
    low, high = (held_by_lengths(layers, head, freed, divided, stay, 1_400, end) for end in ("low", "high"))
    assert low < held < high


@pytest.mark.parametrize(("passes", "folds"), [(1, 0), (30, math.log(30)), (0, math.log(30)), (1_400, math.log(1_400))])
def test_what_the_cache_holds_grows_as_longer_micro_batches_come(passes: int, folds: float) -> None:
    """With the logarithm of their number, as the longest of many does; after 30 if no one says how many."""
    found = held_by_lengths(10, 0, 0, False, False, passes, "value")
    assert found == pytest.approx(5.6 * (0.3 + 0.18 * folds) / (0.3 + 0.18 * math.log(1_400)))


def test_buffers_of_exchanges_between_gpus_of_a_server() -> None:
    """NCCL: 32 channels to a peer, each with 4 MiB, 640·120·8·8 bytes (4.7 MiB) and 512·8·8·16 bytes (0.5 MiB) in
    whole 2 MiB. Experts and heads on 8 GPUs go to 7 others, keys in a ring to 2; tensor-parallel ranks are neighbors,
    and what goes over the network shares its buffers."""
    channel = 4 * MIB + 640 * 120 * 8 * 8 + 512 * 8 * 8 * 16
    assert EXCHANGE.value == 32 * (-(-channel // (2 * MIB)) * 2 * MIB)
    assert EXCHANGE.low < EXCHANGE.value < EXCHANGE.high
    alone, sends = (figures(10**9, 8, flow=Flow(0, 10**9, 2, peers=n)) for n in (0, 7))
    assert sends.used.value - alone.used.value == 7 * EXCHANGE.value
    assert sends.reserved.value == alone.reserved.value
    low, high = (sends.ends["memory/used"][i] - alone.ends["memory/used"][i] for i in (0, 1))
    assert (low, high) == (7 * EXCHANGE.low, 7 * EXCHANGE.high)
    for degrees, peers in (
        ({"dp": 8, "ep": 8}, 7),
        ({"dp": 9, "ep": 9}, 0),  # one more than a server has
        ({"dp": 64, "ep": 64}, 0),  # a peer over the network leaves two channels to all
        ({"cp": 8, "ulysses": True}, 7),
        ({"cp": 8}, 2),
        ({"cp": 2}, 1),
        ({"tp": 4, "cp": 2, "ulysses": True}, 1),
        ({"tp": 4, "cp": 4, "ulysses": True}, 0),
        ({"cp": 16}, 0),
        ({"tp": 8, "cp": 4}, 0),
        ({"tp": 2, "dp": 4, "ep": 4}, 3),
        ({"tp": 2, "dp": 8, "ep": 8}, 0),
        ({"dp": 8, "tp": 8, "pp": 4}, 0),
    ):
        assert peers_of(Layout(seq=128, micro=1, **cast(Any, degrees))) == peers, degrees
    assert peers_of(Layout(seq=128, micro=1, cp=8), gathers_keys=True) == 0


def test_what_other_streams_keep_is_reserved_and_leaves_smaller_gaps() -> None:
    """12 % of what comes and goes, 3 to 20, where 16 have the streams in them; segments that grow have neither gaps nor
    blocks apart, and streams all the same. None of it is needed where the allocator empties its cache."""
    live, passing, streams = 1_000_000_000, 600_000_000, 50_000_001
    flow = Flow(500_000_000, passing, 1, streams=streams)
    found, plain = figures(live, 8, flow=flow), figures(live, 8, flow=replace(flow, streams=0))
    apart = 500_000_000 + passing - live
    assert found.reserved.value - found.allocated.value == apart + streams + 72_000_000
    assert figures(live, 8, flow=flow, expandable=True).reserved.value == found.allocated.value + streams
    low, high = found.ends["memory/reserved"]
    assert low - plain.ends["memory/allocated"][0] == pytest.approx(streams + 0.03 * passing, abs=2)
    assert high - plain.ends["memory/allocated"][1] == pytest.approx(apart + streams + 0.20 * passing, abs=2)
    assert found.least == plain.least


@pytest.mark.parametrize(
    ("generation", "framework", "routed", "mib"),
    [
        ("hopper", "fsdp", 0, 2 * 32),
        ("blackwell", "fsdp", 1, 2 * 32),
        ("ampere", "megatron-core", 0, 2 * 8.125 + 4),
        ("hopper", "megatron-core", 0, 2 * 32 + 32),
        ("hopper", "megatron-core", 1, 2 * 32 + 5 * 32),
        ("", "megatron-core", 1, 2 * 8.125 + 5 * 4),
    ],
)
def test_workspaces_of_products(generation: str, framework: str, routed: int, mib: float) -> None:
    """Two threads of torch, TransformerEngine's one, four more for grouped products. Four functional tests of
    Megatron-LM at 93ebf8d7 measured 100 MiB beyond their live tensors on an H100, and 28 MiB less on an A100, where
    CUBLAS_WORKSPACE_CONFIG makes the first as wide."""
    plain = Setup(HF, Layout(seq=1), POLICIES["bf16-mixed"], OPTIMIZERS["adamw"], "fused")
    setup = replace(plain, framework=FRAMEWORKS[framework], generation=generation)
    assert workspaces(setup, routed > 0) == mib * MIB


def test_without_a_flow_all_comes_and_goes() -> None:
    """One communicator if there are several GPUs, none on one."""
    alone, two = figures(1_000_000_000), figures(1_000_000_000, 2)
    assert alone.reserved.value - alone.allocated.value == 160_000_000
    assert alone.used.value - alone.reserved.value == 450_000_000
    assert two.used.value - alone.used.value == 1_300_000_000


def test_the_ends_of_the_figures() -> None:
    """The least of everything, and the most: live bytes 10 % lower or 20 % higher, rounding 0 to 1.5 %, gaps of 8 to
    25 %, blocks of the optimizer step that are split for the passes or not, context and communicators as published."""
    live, passing = 1_000_000_000, 600_000_000
    found = figures(live, 8, Width((-0.1, 0.2)), Flow(500_000_000, passing, 2))
    apart = 500_000_000 + passing - live
    low = live * 0.9 + 8_519_680
    kept = low + passing * 0.08 * 0.9
    assert found.ends["memory/allocated"][0] == pytest.approx(low, abs=1)
    assert found.ends["memory/reserved"][0] == pytest.approx(kept, abs=1)
    assert found.ends["memory/used"][0] == pytest.approx(kept + 287e6 + 2 * 0.5e9, abs=1)
    assert found.least == pytest.approx(low + 287e6 + 2 * 0.5e9)
    high = live * 1.2 * 1.015 + 2 * 8_519_680 + 32 * MIB
    most = high + (apart + passing * 0.25) * 1.2
    assert found.ends["memory/allocated"][1] == pytest.approx(high, abs=1)
    assert found.ends["memory/reserved"][1] == pytest.approx(most, abs=1)
    assert found.ends["memory/used"][1] == pytest.approx(most + 1.33e9 + 2 * 3e9, abs=1)
    assert within(found, 10**10).ends["memory/used"] == found.ends["memory/used"]
    room = int(found.least) + 1000
    assert within(found, room).ends["memory/used"] == (int(found.least), found.ends["memory/used"][1])
    assert within(found, room).ends["memory/reserved"] == found.ends["memory/reserved"]
    assert within(found, 0).ends["memory/used"] == (int(found.least), found.ends["memory/used"][1])


def test_ends_that_runs_measured_are_ratios_to_the_figure() -> None:
    """Each figure within the next."""
    ratios = (("memory/allocated", 0.5, 1.5), ("memory/reserved", 0.75, 2.0), ("memory/used", 0.8, 3.0))
    found = figures(1_000_000_000, 1, Width(figures=ratios))
    for name, low, high in ratios:
        value = getattr(found, name.rpartition("/")[2]).value
        assert list(found.ends[name]) == pytest.approx([low * value, high * value], abs=1)
    tight = figures(1_000_000_000, 1, Width(figures=(("memory/used", 0.1, 0.2),)))
    used = tight.used.value
    for name in ("allocated", "reserved", "used"):
        assert list(tight.ends[f"memory/{name}"]) == pytest.approx([0.1 * used, 0.2 * used], abs=1)


# --- serving ---

GROUPED = 2 * KV * D
"""Elements of a token's keys and values in a layer of the small decoder."""


def test_the_cache_of_grouped_heads() -> None:
    """L layers of KV heads of D, keys and values; two ranks hold a head each, eight one of the two again."""
    assert {kv_cache.growing(DENSE, 10), kv_cache.growing_on(DENSE, 10, 1), kv_cache.read(DENSE, 10)} == {
        10 * L * GROUPED
    }
    assert [kv_cache.growing_on(DENSE, 10, n) for n in (2, 8)] == [10 * L * GROUPED / 2] * 2
    assert kv_cache.read(DENSE, 10, 2) == 10 * L * GROUPED / 2
    assert kv_cache.states(DENSE, 10) == kv_cache.unread(DENSE, 10) == 0
    assert kv_cache.cache(DENSE, 10, 3, 2, "bf16").value == 3 * 2 * 10 * L * GROUPED


def test_states_of_recurrent_layers_do_not_grow() -> None:
    """Mamba: a state of 2·h·16 and the 3 last inputs of the convolution of 4 in each layer."""
    small = model(
        model_type="mamba", hidden_size=H, num_hidden_layers=L, vocab_size=V, state_size=16, conv_kernel=4, expand=2
    )
    fixed = L * 2 * H * (16 + 3)
    assert kv_cache.growing(small, 10) == 0
    assert kv_cache.states(small, 10) == kv_cache.read(small, 10) == kv_cache.states(small, 1000) == fixed
    assert kv_cache.cache(small, 10, 3, 4, "fp32").value == 3 * 4 * fixed


@pytest.mark.parametrize("dtype", ["nf4", "q4_k_m", "bf16"])
def test_a_format_takes_bytes_per_parameter(dtype: str) -> None:
    assert capacity.width(dtype, "width").unit == "byte/param"


def test_the_narrower_of_two_latents_is_cached() -> None:
    """x → 48 → 16 → keys and values of 4 heads of 8: both are narrower than 4 · 16, and all of both comes from 16."""
    chain = (("wide", "x", 128, 48), ("narrow", "wide", 48, 16), ("k", "narrow", 16, 32), ("v", "narrow", 16, 32))
    by_name = {name: Matmul(name, (source,), d_in, d_out) for name, source, d_in, d_out in chain}
    kept: Any = SimpleNamespace(heads=4, head_dim=(8, 8), made_from=("k", "v"))
    found = kv_cache.latent_of(kept, by_name)
    assert found is not None
    assert found.d_out == 16


def test_heads_of_a_latent_read_all_of_it() -> None:
    """DeepSeek-V2: 512 + 64 in place of a key of 192 and a value of 128: (576 + 512)/320 of the FLOPs."""
    layer = next(layer for _, _, layer in preset("deepseek-v3").stacks[-1].kinds())
    assert list(kv_cache.absorbed(layer).values()) == [(576 + 512) / (192 + 128)]
    dense = next(layer for _, _, layer in DENSE.stacks[-1].kinds())
    assert kv_cache.absorbed(dense) == {}
    for ranks in (1, 4):
        assert kv_cache.cached_numbers(layer, 10, ranks) == (10 * 576, 0)


NF4 = StoredWeights("nf4", 0.5, 2)
MATRICES = L * (ATTENTION + 3 * H * F)


def test_how_weights_are_stored() -> None:
    assert stored("bf16") == StoredWeights("bf16", 2, 2)
    assert stored("fp8").each == stored("fp8").rest == 1
    assert (stored("nf4").each, stored("nf4").rest) == (0.5 + 4 / 64, 2)


def test_weights_of_a_server() -> None:
    """Norms on every rank, all else divided; more ranks than heads of keys and values hold each of these again, here
    4/2 times."""
    norms = (2 * L + 1) * H
    split = L * (ATTENTION + 3 * H * F) + 2 * TABLE
    two = StoredWeights("bf16", 2, 2)
    assert served_weights.divided(DENSE) == (split, norms)
    assert served_weights.weights(DENSE, two, 1).value == 2 * (split + norms)
    assert served_weights.weights(DENSE, two, 2).value == 2 * (split // 2 + norms)
    again = L * 2 * H * KV * D
    assert served_weights.repeated(DENSE, 2) == 0
    assert served_weights.repeated(DENSE, 4) == again
    # of half a byte an element: matrices of layers; the embedding and the head have two bytes
    narrow = (split - 2 * TABLE + again) // 4 * 0.5
    assert served_weights.weights(DENSE, NF4, 4).value == narrow + 2 * (2 * TABLE // 4 + norms)


def test_weights_of_the_ends_are_divided_over_the_ranks() -> None:
    """Two bytes an element also where matrices of layers have half of one: the table; the last norm and the head."""
    for ranks in (1, 2):
        assert served_weights.end_bytes(DENSE, NF4, ranks) == (2 * TABLE / ranks, 2 * (TABLE + H) / ranks)


def test_products_that_make_less_than_all_heads_are_not_repeated() -> None:
    """Four ranks with two heads: once more the 256 · 2 columns of keys and of values of Gemma 3n's 20 layers that make
    their own, and of Zaya's 40 the 128 · 2 of keys, for its values' product makes one head's."""
    assert served_weights.repeated(preset("gemma3n-e2b"), 4) == 20 * 2 * 512 * 2048
    assert served_weights.repeated(preset("gemma3n-e2b"), 8) == 3 * 20 * 2 * 512 * 2048  # and three times more of eight
    assert served_weights.repeated(preset("zaya1-8b"), 4) == 40 * 256 * 2048


def test_weights_that_a_pass_reads() -> None:
    """All but rows of the embedding; of E experts with 2 for each token, E·(1 − (1 − 2/E)^n)."""
    dense = served_weights.weights_read(DENSE, 5, NF4)
    assert (dense.experts, dense.others) == (0, MATRICES * 0.5 + ((2 * L + 1) * H + TABLE) * 2)
    assert served_weights.expert_bytes(DENSE, NF4) == 0
    assert served_weights.expert_bytes(SPARSE, NF4) == EXPERTS * 0.5
    for tokens, hit in ((1, 2), (2, E * (1 - 0.75**2))):
        found = served_weights.weights_read(SPARSE, tokens, StoredWeights("bf16", 2, 2))
        assert found.experts == pytest.approx(2 * EXPERTS / E * hit)
        assert found.others == 2 * (OTHERS - TABLE)
        assert found.total == found.experts + found.others


# --- what is kept ---


def stored_tensor(size: int, label: str = "x", kind: str = ACTIVATION) -> Storage:
    found = Storage(label, size, kind, False)
    found.kept = 1
    return found


def test_counts_of_layer_types() -> None:
    """Twice (3 of the second, 1 of the first), and 4 of the first."""
    assert counted([(2, ((3, 1), (1, 0))), (1, ((4, 0),))]) == {0: 6, 1: 6}
    assert dot((2, 3), (5, 7)) == 31


def test_shared_storages_are_freed_with_their_last_reader() -> None:
    """Of 10 bytes that the first type reads and 100 that both do."""
    shared = [SharedStorage(10, (True, False)), SharedStorage(100, (True, True))]
    assert [freed_bytes(shared, left) for left in ((1, 1), (0, 1), (1, 0), (0, 0))] == [0, 10, 0, 110]


def node(
    name: str, size: int, inputs: tuple[Tensor, ...] = (), kept: tuple[Storage, ...] = (), weight: int = 1
) -> Node:
    output = SimpleNamespace(size=size, storages=())
    fields = SimpleNamespace(name=name, output=output, inputs=inputs, kept=[(1, one) for one in kept], weight=weight)
    return cast(Node, fields)


def test_recomputation_by_operations_keeps_every_second_linear_layer() -> None:
    """Outputs of linear layers 1 and 3, and what attention saves that is not its input."""
    read, made = stored_tensor(1000), stored_tensor(40)
    query = cast(Tensor, SimpleNamespace(storages=[(1, read)]))
    nodes = [node("linear", 1), node("linear", 2), node("attention", 7, (query,), (read, made)), node("linear", 4)]
    assert chosen_of(nodes) == 1 + 40 + 4
    assert chosen_of(nodes[1:]) == 2 + 40
    made.kept = 0  # of layouts that take another kernel
    assert chosen_of(nodes) == 1 + 4


def test_delayed_weight_gradients_need_inputs_and_gradients() -> None:
    """Each input once, and each output's gradient; not copies of weights, nor products without a weight."""
    x, copy = stored_tensor(10), stored_tensor(500, kind=WEIGHT_COPY)
    nodes = [node("linear", 1, kept=(x, copy)), node("linear", 2, kept=(x,)), node("bmm", 4, kept=(x,), weight=0)]
    assert delayed_of([*nodes, node("softmax", 8, kept=(stored_tensor(9),))]) == 10 + 1 + 2
