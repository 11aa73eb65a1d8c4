"""The memory of reinforcement learning: each phase, what is kept between phases, and the interval."""

from __future__ import annotations

import itertools

import pytest

from tests.conftest import run_line
from tests.test_rollouts import LENGTHS, LINE, LLAMA, values

LOGITS = 2 * 4 * 1024 * 128_256
"""Bytes of the largest pass of an engine with Llama 3 8B: fp32 logits of 1,024 sequences, and log-probabilities."""


def test_the_engine_has_its_share_of_each_gpu() -> None:
    """Half of the card; the rest of it next to the weights, and logits of 1,024 sequences twice, is cache."""
    found = values(f"memory {LINE}")
    assert found["engine/weights"] == 2 * LLAMA
    assert found["engine/kv_cache"] == pytest.approx(found["memory/capacity"] / 2 - 2 * LLAMA - LOGITS)
    kept = found["memory/parameters"] + found["memory/optimizer"] + found["memory/overhead"]
    assert found["memory/phase/rollout"] == pytest.approx(found["memory/capacity"] / 2 + kept)
    phases = [found[f"memory/phase/{name}"] for name in ("rollout", "weight_transfer", "update")]
    assert found["memory/used"] == found["memory/total"] == max(phases)
    assert found["memory/reserved"] < found["memory/phase/update"]  # the engine sleeps then
    away = values(f"memory {LINE} --rollout-offload optimizer,parameters")
    assert away["memory/phase/rollout"] == pytest.approx(found["memory/capacity"] / 2 + found["memory/overhead"])


def test_activations_leave_in_the_passes_and_states_between_them() -> None:
    """Activations are the update's: while responses are generated there are none, so that phase holds the same (but for
    overhead), nothing is moved between phases, and the host holds what the GPU does not keep in the update."""
    found, away = (values(f"memory {LINE}{more}") for more in ("", " --offload activations"))
    moved = found["memory/activations/saved"] - away["memory/activations/saved"]
    assert away["memory/host"] == 8 * away["memory/host/activations"] == 8 * moved > 0
    assert away["memory/phase/update"] < found["memory/phase/update"]
    rollout, overhead = (one["memory/phase/rollout"] - one["memory/overhead"] for one in (away, found))
    assert rollout == pytest.approx(overhead)
    both = values(f"memory {LINE} --rollout-offload optimizer --offload activations")
    assert both["memory/host"] == 8 * (both["memory/host/activations"] + both["memory/optimizer"])
    refused = run_line(f"step {LINE} --offload optimizer,activations --recompute none")
    assert (refused.status, "--recompute full" in refused.err) == (3, True)


def test_the_memory_of_a_phase_has_the_given_confidence_level() -> None:
    """The update's ends are those of the same step of training at that level, where no engine is next to it."""
    alone = f"memory {LINE} --rollout none --json --confidence"
    wide, narrow = (run_line(f"{alone} {level}").data for level in (90, 50))
    update = "memory/phase/update"
    for name in ("low", "high"):
        assert narrow[name][update] == pytest.approx(narrow[name]["memory/used"], rel=1e-12)
        assert wide[name][update] == pytest.approx(wide[name]["memory/used"], rel=1e-12)
    assert wide["low"][update] < narrow["low"][update] < narrow["high"][update] < wide["high"][update]


def test_verl_divides_states_as_its_launch_files_say() -> None:
    """FSDP shards everything; Megatron has its distributed optimizer."""
    line = "memory llama3-8b --gpus 8 --hardware h100 --trainer verl --json"
    ways = ("", " --framework megatron-core", " --framework megatron-core --tp 2")
    assert [run_line(f"{line}{more}").data["inputs"]["zero"]["value"] for more in ways] == ["3", "1", "1"]


def test_an_engine_that_does_not_sleep_keeps_its_share() -> None:
    """TRL's does not unless it is asked to."""
    found = values(f"memory {LINE} --trainer trl --precision bf16-mixed")
    assert found["memory/phase/update"] > found["memory/capacity"] / 2


def test_a_critic_has_states_of_its_own() -> None:
    """16 bytes for each of its parameters over 8 GPUs, with a score in place of the head."""
    found = values(f"memory {LINE}".replace("grpo", "ppo"))
    critic = LLAMA - 128_256 * 4096 + 4096
    assert found["memory/models/critic"] == pytest.approx(16 * critic / 8, rel=1e-4)


def test_what_leaves_the_gpus_of_a_node_must_fit_its_host() -> None:
    """NeMo RL moves weights, the reference's too, and states: of 8 GPUs of tp 2, bf16 weights and reference, gradients
    that stay, and 12 bytes per parameter over four ranks."""
    line = f"memory llama3-8b --task grpo --gpus 8 --hardware h100 --tp 2 --trainer nemo-rl {LENGTHS}"
    found = run_line(f"{line} --host-memory 100GB --json")
    expected = 8 * (2 * 2 * LLAMA / 2 + 12 * LLAMA / 2 / 4)
    assert found.values["memory/host"] == pytest.approx(expected, rel=0.01)
    assert found.data["verdict"] == "does not fit"
    assert run_line(f"{line} --host-memory 1TB --json").data["verdict"] == "fits"
    assert "nothing is kept" in run_line(f"memory {LINE} --host-memory 1TB").err


def test_the_memory_of_the_longest_needs_no_mean() -> None:
    means = "--prompt-tokens 200 --response-tokens 1000"
    line = LINE.replace(means, "--max-prompt-tokens 500 --max-response-tokens 3500")
    known = LINE.replace(means, "--prompt-tokens 500 --response-tokens 3500")
    assert values(f"memory {line}")["memory/phase/update"] == values(f"memory {known}")["memory/phase/update"]


def test_trl_makes_logits_of_the_answers_alone() -> None:
    """Of 2,048 and 1,024 tokens a third have logits: each of the others would have theirs of 128,256 words, and as many
    of the log-softmax or the gradient, 2 bytes each in bf16, at the peak."""
    line = "memory llama3.2-1b --task grpo --rollout none --gpus 1 --hardware h100 --micro-batch 2 --recompute none"
    more = "--samples-per-prompt 2 --global-batch 1 --max-prompt-tokens 2048 --max-response-tokens 1024"
    policy = "--precision bf16-pure"
    alone, all_of_them = (values(f"{line} {more} {policy}{trainer}") for trainer in (" --trainer trl", ""))
    prompts = 2 * 2048 * 128_256
    saved = all_of_them["memory/allocated"] - alone["memory/allocated"]
    assert saved == pytest.approx(4 * prompts, rel=0.01)
    short = "--samples-per-prompt 2 --global-batch 1 --max-prompt-tokens 1 --max-response-tokens 3071"
    same = [values(f"{line} {short} {policy}{one}")["memory/allocated"] for one in (" --trainer trl", "")]
    assert same[0] == pytest.approx(same[1], rel=0.02)


def test_the_memory_of_generation_has_an_interval() -> None:
    """The engine's share is given: graphs come on top, and it leaves room for its largest pass, here logits of 1,024
    sequences and their log-probabilities; what the trainer keeps is as uncertain as its update."""
    data = run_line(f"memory {LINE} --json").data
    values, low, high = data["values"], data["low"], data["high"]
    rollout = "memory/phase/rollout"
    assert values["memory/total"] == values[rollout]
    kept = values["memory/parameters"] + values["memory/optimizer"] + values["memory/overhead"]
    times = [ends["memory/phase/update"] / values["memory/phase/update"] for ends in (low, high)]
    half = values["memory/capacity"] / 2
    assert low[rollout] == pytest.approx(half - LOGITS + kept * times[0])
    assert high[rollout] == pytest.approx(half + kept * times[1] + 2 * 2**30)


def test_the_memory_of_an_engine_of_its_own_has_an_interval() -> None:
    """Nothing of the trainer is there: between its share without the room of its largest pass, and graphs on top."""
    data = run_line(f"memory {LINE} --rollout separate:4 --json").data
    values, low, high = data["values"], data["low"], data["high"]
    assert values["memory/engine"] == pytest.approx(0.9 * values["memory/capacity"])
    assert values["memory/engine"] - low["memory/engine"] == pytest.approx(LOGITS)
    assert high["memory/engine"] - values["memory/engine"] == pytest.approx(2 * 2**30)


SHARED = f"llama3-8b --task grpo --hardware h100 --lora-rank 16 --trainer unsloth {LENGTHS}"


def test_adapters_on_the_weights_of_the_engine_take_no_room_for_a_copy() -> None:
    """Unsloth's: half of the card has the weights and the cache, and next to it the trainer has adapters, states and
    what its update needs; nothing is transferred. In nf4 the engine holds less, and a 24 GB card has room for both."""
    found = values(f"memory {SHARED}")
    assert found["engine/weights"] == 2 * LLAMA
    rest = found["memory/capacity"] / 2 - 2 * LLAMA
    kept = found["memory/parameters"] + found["memory/optimizer"] + found["memory/overhead"]
    assert found["memory/phase/rollout"] == pytest.approx(rest + kept)
    assert "memory/phase/weight_transfer" not in found
    step = values(f"step {SHARED}")
    assert "step/weight_transfer" not in step
    assert step["step/time"] == pytest.approx(
        sum(step[f"step/{name}"] for name in ("generation", "logprobs", "update"))
    )
    narrow = run_line(f"memory {SHARED} --quantized nf4 --json".replace("h100", "rtx4090"))
    assert narrow.data["verdict"] == "fits"
    assert narrow.values["engine/weights"] < LLAMA
    plan = run_line(f"plan {SHARED} --gpus 1 --quantized nf4 --json".replace("h100", "rtx4090")).data
    same = run_line(
        f"{next(one['command'] for one in plan['rows'] if one['recommended'])} --json".removeprefix("napkin ")
    )
    assert plan["values"]["step/time"] == pytest.approx(same.values["step/time"])


def test_the_list_of_the_update_s_memory_is_complete() -> None:
    """What the trainer holds at the peak of the update adds up to it, in GiB of one decimal."""
    lines = run_line(f"memory {LINE}").out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("  update"))
    parts = list(itertools.takewhile(lambda one: one.startswith("    "), lines[at + 1 :]))
    total = sum(float(one.partition(" GiB")[0].split()[-1]) for one in parts)
    assert total == pytest.approx(values(f"memory {LINE}")["memory/phase/update"] / 2**30, abs=0.05 * len(parts))


GAPS = 1.16
"""Bytes reserved for each byte that comes and goes: the median of 96 measured runs of BLOOM and torchtitan."""


def passes(line: str, micro: int, by: int) -> float:
    """Bytes of the phase of passes without gradients for each sequence more in their micro-batches."""
    few, many = (
        values(f"memory {line} --logprob-micro-batch {n}")["memory/phase/logprobs"] for n in (micro, micro + by)
    )
    return float(many - few) / by


def test_log_probabilities_have_the_memory_of_their_own_micro_batches() -> None:
    """Of each of 1,200 tokens, the head's input of 4,096 numbers in bf16, 128,256 logits of 2 bytes with the
    log-softmax of 2 more, its id and label of 8; the allocator's gaps and rounding come on top. Nothing else depends
    on the option, and no more sequences run than an optimizer step has, 1,024 over 8 GPUs."""
    token = 2 * 4096 + 4 * 128_256 + 2 * 8
    each = passes(LINE, 16, 16)
    assert each / (1200 * token) == pytest.approx(GAPS, rel=0.01)
    assert passes(LINE, 32, 32) == pytest.approx(each)
    assert passes(LINE, 128, 32) == 0
    usual, wide = (values(f"memory {LINE}{more}") for more in ("", " --logprob-micro-batch 128"))
    ends = ("memory/low", "memory/high", "memory/phase/logprobs/low", "memory/phase/logprobs/high")
    changed = {name for name in usual if usual[name] != wide[name]}
    used = {f"memory/used{end}" for end in ("", "/low", "/high")}
    assert changed == {"memory/phase/logprobs", "memory/total", *used, *ends}
    assert wide["memory/total"] == wide["memory/phase/logprobs"]
    as_update = values(f"memory {LINE} --logprob-micro-batch 1")
    assert as_update["memory/phase/logprobs"] == usual["memory/phase/logprobs"] < usual["memory/phase/update"]


def test_megatron_s_logits_are_cast_in_passes_without_gradients_too() -> None:
    """Half of the vocabulary on each of two ranks: 16-bit logits, fp32 ones and their exponentials, 10 bytes; a rank
    has the head's input of all tokens."""
    token = 2 * 4096 + 10 * 128_256 / 2 + 2 * 8
    each = passes(f"{LINE} --framework megatron-core --tp 2".replace(" --zero 3", ""), 16, 16)
    assert each / (1200 * token) == pytest.approx(GAPS, rel=0.01)


def test_what_is_on_the_host_until_the_update_is_not_in_the_passes_before_it() -> None:
    """States of 12 bytes per parameter over 8 GPUs; the weights are needed there."""
    here, away = (values(f"memory {LINE}{more}") for more in ("", " --rollout-offload optimizer,parameters"))
    moved = here["memory/phase/logprobs"] - away["memory/phase/logprobs"]
    assert moved == pytest.approx(12 * LLAMA / 8, rel=0.05)
    assert here["memory/phase/update"] == away["memory/phase/update"]


@pytest.mark.parametrize(
    ("trainer", "back"),
    [
        ("--trainer verl", True),  # workers/fsdp_workers.py, update_actor: load_fsdp_optimizer
        ("--trainer trl --framework deepspeed --precision bf16-mixed", False),  # ZeRO-Offload's CPU Adam
        ("--trainer openrlhf --micro-batch 1", False),  # adam_offload
        ("--framework deepspeed", False),
    ],
)
def test_where_offloaded_states_are_in_the_update_is_the_librarys(trainer: str, back: bool) -> None:
    """Two moments in fp32, and a master copy next to 16-bit weights, over 8 GPUs: none is there while responses are
    generated; verl's are back for the update, the others' stay on the host."""
    line = f"memory {LINE.replace('--zero 3', '--zero 2')} {trainer}"
    here, away = (values(f"{line}{more}") for more in ("", " --offload optimizer"))
    states = (8 if "verl" in trainer else 12) * LLAMA / 8
    assert away["memory/host"] == pytest.approx(8 * states, rel=1e-6)
    left = [one["memory/phase/rollout"] - one["memory/overhead"] for one in (here, away)]
    assert left[0] - left[1] == pytest.approx(states, rel=1e-6)
    assert away.get("memory/optimizer", 0.0) == pytest.approx(states if back else 0, rel=1e-6)
    assert (away["memory/phase/update"] == here["memory/phase/update"]) == back


def test_states_that_are_moved_between_phases_are_those_that_the_library_can_move() -> None:
    """OpenRLHF: deepspeed_utils.py, offload_deepspeed_states; TRL's trainer moves none. On the host once is enough."""
    trl, openrlhf = (f"memory {LINE} --trainer {name}" for name in ("trl", "openrlhf"))
    assert "trl cannot move it" in run_line(f"{trl} --rollout-offload optimizer").err
    assert "openrlhf cannot move it" in run_line(f"{openrlhf} --rollout-offload parameters").err
    assert values(f"{openrlhf} --rollout-offload optimizer")["memory/host"] == pytest.approx(12 * LLAMA, rel=1e-6)
    both = values(f"{openrlhf} --offload optimizer --rollout-offload optimizer")
    assert both == values(f"{openrlhf} --offload optimizer")
    here = values(f"memory {LINE} --trainer nemo-rl --rollout-offload none")
    assert "memory/host" not in here
    apart = run_line(f"memory {LINE} --rollout separate:4 --rollout-offload optimizer")
    assert (apart.status, "no engine generates on the trainer's GPUs" in apart.err) == (2, True)


def test_passes_of_packed_sequences_are_as_long_as_a_micro_batch_of_the_update() -> None:
    """verl packs 16,384 tokens for both; a stated number of sequences is one of sequences, the longest of 1,200 tokens,
    and OpenRLHF has twice as many as in an update, 8 next to 4."""
    line = f"llama3-8b --task grpo --gpus 8 --hardware h100 {LENGTHS} --max-response-tokens 1000"
    packed = values(f"memory {line} --trainer verl")["memory/phase/logprobs"]
    one = f"memory {line} --trainer verl".replace("--prompt-tokens 200", "--prompt-tokens 15384")
    assert packed == pytest.approx(values(f"{one} --logprob-micro-batch 1")["memory/phase/logprobs"])
    usual, eight, four = (
        values(f"memory {line} --trainer openrlhf{more}")["memory/phase/logprobs"]
        for more in ("", " --logprob-micro-batch 8", " --logprob-micro-batch 4")
    )
    assert usual == eight > four
