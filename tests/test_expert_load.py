"""Experts and networks that are not ideal: --expert-imbalance, --capacity-factor, --oversubscription."""

from __future__ import annotations

import json

import pytest

from tests.conftest import Napkin

MOE = "mixtral-8x7b --gpus 16 --hardware h100 --zero 1 --json"


@pytest.mark.parametrize("option", ["--expert-imbalance", "--capacity-factor"])
def test_more_rows_take_more_memory_and_time_in_proportion(napkin: Napkin, option: str) -> None:
    """What experts keep grows with their rows: twice the excess, twice the bytes. The states do not."""
    even, some, more = (napkin(f"memory {MOE} --ep 8 {option} {x}").values for x in (1, 1.25, 1.5))
    assert even == napkin(f"memory {MOE} --ep 8").values
    kept = [one["memory/activations/saved"] for one in (even, some, more)]
    assert kept[2] - kept[0] == 2 * (kept[1] - kept[0]) > 0
    for name in ("parameters", "optimizer"):
        assert some[f"memory/{name}"] == even[f"memory/{name}"]
    seconds = [napkin(f"step {MOE} --ep 8 {option} {x}").values["step/time"] for x in (1, 1.25, 1.5)]
    assert seconds[0] < seconds[1] < seconds[2] < 1.5 * seconds[0]
    assert seconds[0] == napkin(f"step {MOE} --ep 8").values["step/time"]


def test_slots_cost_matmuls_with_masks_where_the_software_fills_them_so(napkin: Napkin) -> None:
    """MaxText gives experts with a capacity their tokens by one-hot masks, also as many slots as tokens; without a
    capacity it sorts them, as Megatron-core always does."""
    line = "step mixtral-8x7b --gpus 16 --hardware h100 --zero 3 --json --stack"
    plain, slots = (napkin(f"{line} xla {more}").values for more in ("", "--capacity-factor 1"))
    assert slots["step/compute/matmul"] > 1.1 * plain["step/compute/matmul"]
    assert slots["step/memory_bound"] < plain["step/memory_bound"]
    plain, slots = (napkin(f"{line} megatron-core {more}").values for more in ("", "--capacity-factor 1"))
    assert slots["step/time"] == plain["step/time"]


def test_a_capacity_below_the_mean_drops_tokens(napkin: Napkin) -> None:
    whole, part = (napkin(f"step {MOE} --ep 8 --capacity-factor {x}").values["step/time"] for x in (1, 0.5))
    assert part < whole


def test_padding_costs_without_expert_parallelism_and_imbalance_does_not(napkin: Napkin) -> None:
    """A rank with all experts processes all of its tokens, however they spread."""
    even, padded = (napkin(f"step {MOE} {more}").values["step/time"] for more in ("", "--capacity-factor 1.5"))
    assert padded > even
    refused = napkin(f"step {MOE} --expert-imbalance 1.5")
    assert refused.status == 2
    assert "every rank has all experts" in refused.err


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("step llama3-8b --gpus 8 --hardware h100 --capacity-factor 2", 2, "llama3-8b has no experts"),
        ("memory llama3-8b --gpus 8 --expert-imbalance 2", 2, "llama3-8b has no experts"),
        ("step llama4-scout --gpus 64 --zero 3 --hardware h100 --capacity-factor 2", 2, "every expert of llama4-scout"),
        ("step mixtral-8x7b --ep 8 --gpus 8 --hardware h100 --expert-imbalance 0.9", 2, "--expert-imbalance"),
        ("memory mixtral-8x7b --ep 8 --gpus 8 --expert-imbalance 2 --capacity-factor 2", 2, "contradiction"),
        ("step llama3-8b --gpus 8 --hardware h100 --zero 3 --oversubscription 2", 2, "crosses the network"),
    ],
)
def test_what_has_no_effect_is_refused(napkin: Napkin, line: str, status: int, said: str) -> None:
    refused = napkin(line)
    assert refused.status == status
    assert said in refused.err


def test_an_oversubscribed_network_is_a_slower_one(napkin: Napkin) -> None:
    """A quarter of an H100's 400 Gbit/s; and of a rate that is given."""
    line = "step llama3-8b --gpus 16 --hardware h100 --zero 3 --json"
    full, quarter = (napkin(f"{line} {more}").values["step/time"] for more in ("", "--oversubscription 4"))
    assert quarter > full
    assert napkin(f"{line} --network-bandwidth 12.5GB/s").values["step/time"] == pytest.approx(quarter)
    given = napkin(f"{line} --network-bandwidth 25GB/s --oversubscription 2").values["step/time"]
    assert given == pytest.approx(quarter)
    assert napkin(f"{line} --oversubscription 1").values["step/time"] == full


def test_plan_ranks_with_what_step_answers(napkin: Napkin) -> None:
    rows = napkin("plan mixtral-8x7b --gpus 16 --hardware h100 --expert-imbalance 1.4 --json").data["rows"]
    divided = [one for one in rows if one["ep"] > 1][:2]
    assert divided
    for row in divided:
        assert "--expert-imbalance 1.4" in row["command"]
        again = napkin(row["command"].removeprefix("napkin ") + " --json").values
        assert again["step/time"] == pytest.approx(row["time"])
        assert again["memory/total"] == row["memory"]


def test_zero_divides_the_states_of_experts_that_tensor_parallel_ranks_repeat(napkin: Napkin) -> None:
    """One replica on 8 ranks with whole experts each: their states have 8 copies, which ZeRO-1 divides. Where ranks
    divide each expert, or hold other experts, there is nothing to divide."""
    line = "memory mixtral-8x7b --gpus 8 --tp 8 --json"
    whole, divided = (napkin(f"{line} {more}").values["memory/optimizer"] for more in ("", "--zero 1"))
    experts = 32 * 8 * 3 * 4096 * 14336
    assert whole - divided == pytest.approx(12 * experts * 7 / 8, rel=1e-3)
    for more in ("--etp 8", "--ep 8"):
        assert "--zero has no effect here" in napkin(f"{line} --zero 1 {more}").err


@pytest.mark.parametrize("gated", [True, False])
def test_scores_that_multiply_within_megatrons_experts(napkin: Napkin, gated: bool) -> None:
    """Of a row, 16 bits each of what it reads (h), of the first product (2·f if gated, else f) and of what the last
    product reads (f); without a kernel for the gated activation, also of what the score multiplies (f). Both are
    h + 3·f. What the last product makes is not kept (megatron/core/transformer/moe/experts.py). Hugging Face's experts
    keep it, to multiply it: h more. Beside it, some indices and scores of a row: less than 64 bytes."""
    h, f, tokens = 256, 384, 2 * 128

    def kept(top_k: int, implementation: str) -> float:
        shape = {
            "model_type": "megatron", "num_hidden_layers": 1, "hidden_size": h, "num_attention_heads": 4,
            "vocab_size": 512, "max_position_embeddings": 128, "intermediate_size": f, "moe_intermediate_size": f,
            "num_experts": 8, "num_experts_per_tok": top_k, "gated": gated, "hidden_act": "silu" if gated else "gelu",
        }  # fmt: skip
        line = ["memory", json.dumps(shape), "--seq", "128", "--micro-batch", "2", "--json"]
        found = napkin([*line, "--implementation", implementation]).values["memory/activations/saved"]
        return float(found)

    row = (kept(3, "megatron") - kept(2, "megatron")) / tokens
    assert 0 <= row - 2 * (h + 3 * f) < 64
    if not gated:
        other = (kept(3, "hf") - kept(2, "hf")) / tokens
        assert 0 <= other - 2 * (2 * h + 2 * f) < 64


def test_an_exchange_beside_another_micro_batch_takes_less_time(napkin: Napkin) -> None:
    """Not on one micro-batch, where nothing else runs; nor without ranks to exchange with, which a note says."""
    line = f"step {MOE} --ep 8 --micro-batch 1 --global-batch"
    for batch, faster in (("64", True), ("16", False)):
        alone, beside = (napkin(f"{line} {batch} {more}").values["step/time"] for more in ("", "--async-ep"))
        assert (beside < alone) == faster
    said = napkin("step mixtral-8x7b --gpus 16 --hardware h100 --zero 1 --async-ep -v")
    assert said.status == 0
    assert "--async-ep" in said.out


def test_what_sends_tokens_decides_the_exchange_between_nodes(napkin: Napkin) -> None:
    """8 experts of a token are on up to 4 nodes: its copies take longer than one to each. Where a run does not say
    which, the interval holds both; where the software has one of them alone, it does not."""
    line = "step qwen3-235b-a22b --gpus 64 --pp 2 --ep 32 --hardware h100 --micro-batch 1 --json"
    once, copies, unsaid = (
        napkin(f"{line} --stack megatron-core {more}") for more in ("--dispatcher deepep", "--dispatcher alltoall", "")
    )
    seconds = [one.values["step/time"] for one in (once, copies, unsaid)]
    assert seconds[1] > 1.2 * seconds[0]
    assert seconds[2] == seconds[0]
    assert once.data["high"]["step/time"] < unsaid.data["high"]["step/time"] > seconds[1]
    assert "--dispatcher alltoall" in " ".join(unsaid.data["notes"])
    assert not any("--dispatcher" in note for one in (once, copies) for note in one.data["notes"])
    rack, old = (napkin(f"{line} --stack {name}") for name in ("megatron-core-2026", "megatron-core-2024"))
    assert not any("--dispatcher" in note for one in (rack, old) for note in one.data["notes"])
    assert old.values["step/communication/expert"] == copies.values["step/communication/expert"]
    assert napkin(f"{line} --dispatcher allgather").status == 2


def test_captured_graphs_leave_less_to_wait_for(napkin: Napkin) -> None:
    """Experts of short micro-batches wait for the host. A dense layer of many tokens does not, which a note says."""
    line = (
        "step qwen3-30b-a3b --gpus 16 --ep 16 --hardware h100 --micro-batch 1 --seq 1024 --stack megatron-core --json"
    )
    times = [napkin(f"{line} --graphs {what}").values["step/time"] for what in ("none", "parts", "whole")]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == 3
    assert napkin(line).values["step/time"] == times[0]
    said = napkin("step llama3-8b --gpus 8 --hardware h100 --zero 1 --graphs whole -v")
    assert said.status == 0
    assert "--graphs" in said.out
    assert napkin(f"{line} --graphs most").status == 2
