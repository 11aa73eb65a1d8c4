"""--ulysses: context-parallel ranks that exchange heads for tokens (Jacobs et al. 2023, arXiv:2309.14509)."""

from __future__ import annotations

import pytest

from tests.conftest import Napkin

LINE = "llama3-8b --gpus 8 --hardware h100 --zero 3 --seq 32768 --json"
RANKS, TOKENS, LAYERS = 4, 32768 // 4, 32
QUERIES, KEYS = 32 * 128, 8 * 128
"""Elements of a token's queries, and of its keys, in a layer of Llama 3 8B."""


def test_a_layer_exchanges_queries_keys_values_and_results_each_way(napkin: Napkin) -> None:
    """4 ranks in a node: 3/4 of a rank's 16-bit elements cross its NVLink, forward and again backward."""
    found = napkin(f"step {LINE} --ulysses {RANKS}").values
    moved = LAYERS * 2 * TOKENS * 2 * (2 * QUERIES + 2 * KEYS) * 3 / 4
    least = moved / 450e9
    assert least < found["step/communication/context"] < 2 * least  # a link is not used in full


def test_few_key_heads_are_repeated_for_the_ranks(napkin: Napkin) -> None:
    """Qwen2.5 0.5B has 14 heads and 2 of keys: 2 ranks divide both; 7 would be no multiple of the 2."""
    line = "qwen2.5-0.5b --gpus 14 --hardware h100 --seq 14336 --json"
    assert napkin(f"step {line} --ulysses 2").status == 0
    refused = napkin(f"step {line} --ulysses 7")
    assert refused.status == 2
    assert "does not divide the 2 key/value heads" in refused.err


def test_ranks_beyond_the_heads_are_refused_with_as_many_as_there_are(napkin: Napkin) -> None:
    """Llama-3 8B has 32 heads; numbers of ranks beyond them are not tried one by one."""
    refused = napkin("step llama3-8b --gpus 1e15 --hardware h100 --zero 3 --ulysses 1e9")
    assert refused.status == 2
    assert "--ulysses 32," in refused.err


def test_memory_is_that_of_context_parallelism_and_a_copy_of_the_result(napkin: Napkin) -> None:
    """What attention returns is kept for its own backward pass, and once more for the output projection."""
    passed, exchanged = (
        napkin(f"memory {LINE} --{name} {RANKS}").values["memory/activations/saved"] for name in ("cp", "ulysses")
    )
    assert exchanged - passed == LAYERS * TOKENS * QUERIES * 2


def test_the_number_of_ranks_is_that_of_cp(napkin: Napkin) -> None:
    alone, both = (napkin(f"step {LINE} --ulysses {RANKS} {more}") for more in ("", f"--cp {RANKS}"))
    assert alone.values == both.values
    assert alone.data["inputs"]["cp"]["value"] == RANKS
    assert napkin(f"step {LINE} --ulysses {RANKS} --cp 2").status == 3
    assert napkin(f"step {LINE} --ulysses 1").values == napkin(f"step {LINE}").values


@pytest.mark.parametrize(("more", "hint"), [("--ulysses 64", "--ulysses 32"), ("--tp 8 --ulysses 8", "--ulysses 4")])
def test_ranks_that_do_not_divide_the_heads_are_refused(napkin: Napkin, more: str, hint: str) -> None:
    refused = napkin(f"step llama3-8b --gpus 64 --hardware h100 --zero 3 --seq 32768 {more}")
    assert refused.status == 2
    assert hint in refused.err


def test_plan_searches_layouts_with_that_exchange(napkin: Napkin) -> None:
    rows = napkin("plan llama3-8b --gpus 16 --hardware h100 --seq 32768 --ulysses 8 --json").data["rows"]
    assert {row["cp"] for row in rows} == {8}
    again = napkin(rows[0]["command"].removeprefix("napkin ") + " --json").values
    assert again["step/time"] == pytest.approx(rows[0]["time"])
    assert again["memory/total"] == rows[0]["memory"]


def test_repeated_heads_of_keys_are_kept_by_each_rank(napkin: Napkin) -> None:
    """14 ranks share 2 heads of keys, which 7 of them keep each: of all tokens, k and v of one head of 64 in place of
    1/7; and the result of the rank's own tokens once more, 14 heads of 64."""
    line = "memory qwen2.5-0.5b --gpus 14 --seq 14336 --json"
    passed, exchanged = (napkin(f"{line} --{name} 14").values["memory/activations/saved"] for name in ("cp", "ulysses"))
    assert exchanged - passed == 24 * (14336 // 14) * 2 * (2 * (14 - 2) * 64 + 14 * 64)
