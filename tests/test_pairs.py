"""One rule for the pairs of queries and keys: the time of a step and its FLOPs read the same."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from napkin._tables.calibration import CONSTANTS
from napkin.operations.attention.core import AttentionCore
from napkin.operations.facts import AttentionCost
from napkin.operations.queries import seen_operations
from napkin.operations.streams_apart import ChunkAttention
from napkin.operations.work import Work
from napkin.timing.attention import pairs_of

from .conftest import model_of, run_line

TINY = json.loads((Path(__file__).parent / "data" / "tiny_networks.json").read_text(encoding="utf-8"))
READS = ("q", "k", "v")


def timed(core: AttentionCost, length: int, memory: int, exact: bool) -> float:
    """Return the pairs from which the time of a step is computed."""
    clock: Any = SimpleNamespace(layout=SimpleNamespace(uneven=1, sequence=length, keys=memory))
    value: float = pairs_of(clock, core, "core", exact).value
    return value


@pytest.mark.parametrize("network", TINY, ids=[row["config"]["model_type"] for row in TINY])
def test_time_and_flops_pair_queries_and_keys_alike(network: dict[str, Any]) -> None:
    """For every core of every network: 2 · heads · (d_qk + d_v) FLOP for each pair that is timed."""
    model = model_of(network["config"])
    layers = [op for stack in model.stacks for layer in stack.layers for op in layer.operations]
    cores = [(op, core) for op in (*layers, *seen_operations(model)) if (core := op.attends()) is not None]
    for op, core in dict(cores).items():
        for length in (7, 48, 1000):
            for convention, exact in (("exact", True), ("full", False)):
                flops = sum((one.flops for one in op.gemms(Work(3, length, convention, memory=24))), 0)
                pairs = timed(core, length, 24, exact)
                assert flops == 3 * 2 * core.heads * (core.qk_dim + core.v_dim) * pairs


def seen(core: AttentionCore, query: int, length: int) -> int:
    """Count the keys of a query by the definition of each mask, one key after the other."""
    found = 0
    for key in range(length):
        behind = core.window is None or query - key < core.window
        ahead = key <= query if core.causal else core.window is None or key - query < (core.ahead or core.window)
        alike = core.chunk is None or key // core.chunk == query // core.chunk
        found += behind and ahead and alike
    runs = 0 if not core.compressed else (query + 1) // core.compressed
    return found + (runs if core.chosen is None else min(runs, core.chosen))


@pytest.mark.parametrize(
    "mask",
    [
        {},
        {"window": 5},
        {"chunk": 6},
        {"chunk": 6, "window": 4},
        {"causal": False},
        {"causal": False, "window": 5, "ahead": 3},
        {"causal": False, "chunk": 6},
        {"compressed": 4},
        {"compressed": 4, "chosen": 2, "window": 5},
    ],
    ids=str,
)
@pytest.mark.parametrize("length", [3, 12, 23])
def test_a_step_times_the_pairs_that_the_mask_allows(mask: dict[str, Any], length: int) -> None:
    core = AttentionCore("core", READS, 2, 2, 8, 8, **mask)
    assert timed(core, length, 0, True) == sum(seen(core, query, length) for query in range(length))


def test_eager_attention_computes_no_pairs_of_separate_calls() -> None:
    """Chunks that see both ways are calls of their own: 6·6 + 6·6 + 2·2 of 14 tokens, in eager attention too."""
    core = AttentionCore("core", READS, 2, 2, 8, 8, causal=False, chunk=6)
    assert timed(core, 14, 0, False) == 76


def test_block_sparse_attention_takes_the_time_of_its_blocks() -> None:
    """BigBird at 4,096 tokens: 64 blocks, of which the first and last see 64 each, their neighbors 7 and the other 60
    see 8, where full attention has 64·64. A kernel whose queries read n keys reaches
    n / (n + half_keys) of its rate."""
    base = {
        "model_type": "big_bird", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
        "intermediate_size": 3072, "vocab_size": 50358, "max_position_embeddings": 4096, "hidden_act": "gelu_new",
        "block_size": 64, "num_random_blocks": 3,
    }  # fmt: skip
    seconds = []
    for kind in ("block_sparse", "original_full"):
        config = json.dumps(base | {"attention_type": kind})
        found = run_line("step - --gpus 1 --hardware a100 --seq 4096 --json", config).values
        seconds.append(found["step/compute/attention"])
    share = (2 * 64 + 2 * 7 + 60 * 8) / 64**2
    slower = (1 + CONSTANTS["half_keys/flash"] / (4096 * share)) / (1 + CONSTANTS["half_keys/flash"] / 4096)
    assert seconds[0] / seconds[1] == pytest.approx(share * slower)


def test_chunks_sorted_by_hashes_take_arrays_of_lengths() -> None:
    """Reformer's rotations follow from the sequence: for each length of an array as for the length itself."""
    numpy = pytest.importorskip("numpy")
    core = ChunkAttention("core", READS, 2, 8, chunk=4, around=1, hashes=3, buckets=-1, most=64)
    lengths = [3, 4, 8, 40, 64, 256, 1024]
    found: Any = core.gemms(Work(1, numpy.array(lengths, dtype=float)))[2].n
    assert [core.gemms(Work(1, length))[2].n for length in lengths] == list(found)
    # one chunk: nothing; 2·⌊8/4⌋ = 4 buckets, half of them, 3 times; 16 chunks: 32 buckets as 4 and 8, half of each
    assert (found[0], found[2], found[4]) == (0, 3 * 2, 3 * (2 + 4))
