"""Reinforcement learning: what an engine generates in which time, a step, a run."""

from __future__ import annotations

import math
import os
import pathlib
import re
import runpy
import statistics
from typing import Any

import pytest

from napkin._tables.rollout_errors import SEEN
from napkin.architectures import build
from napkin.commands.question.named import named_config
from napkin.commands.validate.rollout_rows import rollout_row
from napkin.evidence import published
from napkin.evidence.figures.response_lengths import LONGEST, answers_within, kind_of, longest_of_step, own_length
from napkin.evidence.intervals.rollouts import STEP, half_width, page, slower
from napkin.planning.rollout_lengths import RolloutLengths, held_by_micro_batch, spread_of
from napkin.planning.rollouts import Engine, rollout_of, tensors
from napkin.record import replace
from napkin.term import GIVEN, leaf
from napkin.timing.rates import Rates
from napkin.timing.rollout import PER_TENSOR, broadcast_time, decoding_steps, offload_time, sync_time
from tests.conftest import ROOT, run_line

EVIDENCE = os.path.join(ROOT, "configs", "evidence", "rollouts.yaml")
LLAMA = 8_030_261_248
SLOWER = float(slower().value)
"""How many times what is counted of it a published step takes."""
LENGTHS = "--prompt-tokens 200 --response-tokens 1000 --samples-per-prompt 8 --global-batch 128"
LINE = f"llama3-8b --task grpo --gpus 8 --hardware h100 --zero 3 --recompute full {LENGTHS}"


def values(line: str) -> dict[str, Any]:
    return run_line(f"{line} --json").values


def rates(**changes: float) -> Rates:
    """Rates at which everything takes a second a unit."""
    from napkin.record import fields

    return replace(Rates(**dict.fromkeys(fields(Rates), 1.0)), **changes)


def steps_of(
    answers: int, at_once: int, response: int, longest: int, batches: int = 1, joined: bool = False
) -> tuple[float, float]:
    """Decoding steps of a full batch, and after it."""
    full, last = decoding_steps(answers, at_once, response, longest, batches, joined)
    return float(full.value), float(last.value) if last else 0


def test_a_full_batch_decodes_until_the_last_answer_is_begun() -> None:
    """8 answers of 10 tokens, 4 at a time: the first token of each comes from its prompt, the others take 8·9/4 = 18
    steps, and 6 more for the longest; all 8 at once take those of the longest, 16 − 1."""
    assert steps_of(8, 4, 10, 16) == (18, 6)
    assert steps_of(8, 64, 10, 16) == (9, 6)
    assert steps_of(8, 64, 10, 10) == (9, 0)


def test_responses_end_after_any_token_or_at_their_limit() -> None:
    """exp(−t / 100) of the responses are longer than t tokens, and none than 200: 100 · (1 − e⁻²) in the mean; after
    token 100 come (e⁻¹ − e⁻²) / (1 − e⁻²) of all tokens, at 100 + (100·e⁻¹ − 200·e⁻²) / (e⁻¹ − e⁻²) in the mean. All
    of 200 tokens: a fourth after 150, half-way to the end."""
    found = spread_of(round(1e4 * (1 - math.exp(-2))), 20_000)
    assert found.ended == pytest.approx(2, rel=1e-3)
    assert found.after(1e4) == pytest.approx((math.exp(-1) - math.exp(-2)) / (1 - math.exp(-2)), rel=1e-3)
    first, end = math.exp(-1), math.exp(-2)
    assert found.position(1e4) == pytest.approx(1e4 + (1e4 * first - 2e4 * end) / (first - end), rel=1e-3)
    assert found.position() == pytest.approx(1e4 * (1 - 3 * end) / (1 - end), rel=1e-3)
    alike = spread_of(200, 200)
    assert (alike.after(150), alike.position(), alike.position(150)) == (0.25, 100, 175)


def test_the_last_responses_are_decoded_in_passes_of_their_own() -> None:
    """64 answers of 99 tokens with a limit of 399 on one engine: 98 full steps and 300 more; together they decode every
    token once, and read the cache of each where it is. Without a limit nothing comes after."""
    model = build(named_config("qwen2.5-0.5b")[0])
    lengths = RolloutLengths(prompt=100, response=99, longest=399, answers=8, prompts=8)
    engine, capacity = Engine(model, 1, 1, 0.9, apart=False), leaf("capacity", 80e9, "byte", GIVEN)
    one = rollout_of(engine, lengths, capacity)
    assert one.last is not None
    assert (float(one.decode.count.value), float(one.last.count.value)) == (98, 300)
    late = 64 * 98 * lengths.spread.after(99)
    assert one.last.linear / one.decode.linear == pytest.approx(late / (64 * 98 - late), rel=0.01)
    each = one.last.exchanged / late
    assert one.decode.exchanged + one.last.exchanged == pytest.approx(64 * 98 * each)
    cached = [float(passes.cached) / passes.exchanged for passes in (one.decode, one.last)]
    assert cached[0] < cached[1]
    assert rollout_of(engine, replace(lengths, longest=99), capacity).last is None


def test_weights_are_broadcast_to_other_gpus_and_gathered_on_the_same() -> None:
    """5.2 GB over a link of 1 GB/s of which half is reached: half of them to each of two ranks on the same GPUs, all
    of them to others; in nodes of 8 over eight cards of 0.1 GB/s; 0.7 ms a tensor. A library's own rate is all that is
    known of it."""
    weights = leaf("weights", 5.2e9, "byte", GIVEN)
    at = rates(node=8, link=1e9, bus=0.5, network=0.1e9, wire=1.0)
    same, other, far = (
        float(sync_time(weights, 100, 2, gpus, apart, at).value) - 100 * 0.7e-3
        for gpus, apart in ((8, False), (8, True), (16, True))
    )
    assert (same, other, far) == pytest.approx((2.6 / 0.5, 5.2 / 0.5, 5.2 / 0.8))
    assert float(broadcast_time(weights, 2.6e9, "published").value) == pytest.approx(2.0)


def test_a_full_batch_of_several_steps_is_generated_one_into_the_other() -> None:
    """8 answers of a step of 10 tokens each; of 4 steps up to 32 are there, 16 at a time: 8·9/16 steps, and a fourth of
    the 6 of the longest."""
    assert steps_of(8, 16, 10, 16, 4) == (8 * 9 / 16, 6 / 4)


def test_an_engine_that_joins_steps_waits_for_no_step_s_longest_response() -> None:
    """8 answers of 10 tokens on an engine a step ahead, 8 at a time: 9 steps, while two steps' answers share the 15 of
    the longest of 16 tokens; of one of 40 tokens they share 39, half of which are more than 9. Two steps ahead, 16 at
    a time, three share them."""
    assert steps_of(8, 8, 10, 16, joined=True) == (9, 0)
    assert steps_of(8, 8, 10, 40, joined=True) == (9, 39 / 2 - 9)
    assert steps_of(8, 64, 10, 40, 2, joined=True) == (4.5, 39 / 3 - 4.5)
    assert steps_of(8, 8, 10, 40) == (9, 30)


def test_only_nemo_rl_joins_steps_and_only_where_responses_lag() -> None:
    """Responses of 300 tokens with a limit of 3,000: a step ahead, half of the longest one's passes are left."""
    long = "--prompt-tokens 200 --response-tokens 300 --max-response-tokens 3000 --samples-per-prompt 8"
    line = f"step llama3-8b --task grpo --gpus 8 --hardware h100 --trainer {{}} --global-batch 64 {long}"
    ahead = f"{line} --rollout separate:4 --off-policy-steps 1"
    nemo, verl = (values(ahead.format(name))["step/generation"] for name in ("nemo-rl", "verl --rollout-tp 1"))
    assert 0.45 < nemo / verl < 0.6
    nemo, verl = (values(line.format(name))["step/generation"] for name in ("nemo-rl", "verl --rollout-tp 1"))
    assert nemo == pytest.approx(verl, rel=0.02)


def test_published_transfers_are_met() -> None:
    """NeMo RL's colocated ones (pull request 3294): seconds of transfer and update, and in total, with 16 bytes a
    parameter on this many GPUs to the host and back; one rate for all of them."""
    published = (("qwen3-30b-a3b", 16, 30.5e9, 9.67, 17.2), ("qwen3-235b-a22b", 64, 235e9, 18.4, 40.2))
    for name, gpus, params, part, total in published:
        calls = tensors(build(named_config(name)[0])) * float(PER_TENSOR.value)
        moved = float(offload_time(leaf("held", 16 * params / gpus, "byte", GIVEN)).value)
        assert calls == pytest.approx(part, rel=0.1)
        assert calls + moved == pytest.approx(total, rel=0.15)


def test_a_step_is_its_phases() -> None:
    found = values(f"step {LINE}")
    parts = ("generation", "logprobs", "update", "weight_transfer")
    assert found["step/time"] == pytest.approx(sum(found[f"step/{name}"] for name in parts))
    tokens = 128 * 8 * 1200
    assert found["tokens_per_second_per_gpu"] == pytest.approx(tokens / found["step/time"] / 8)


def test_logprobs_are_a_quarter_of_an_update() -> None:
    """A forward pass, next to one forward, one recomputed and a backward of twice that: a quarter; a third at most,
    were nothing recomputed. Each micro-batch also writes its gradients in 16
    bits, reads them, writes them in 32 and reads those: 12 bytes per parameter at least, at up to 3.35e12 byte/s.
    16 micro-batches do it in 0.5 s or a few times that, less than a further forward pass (2 × 8.03e9 FLOPs for each of
    1,228,800 tokens: 2.5 s on eight GPUs at their peak), so a fifth at least; 128 micro-batches take longer by 112
    times that."""
    few, many = (values(f"step {LINE} --micro-batch {size}") for size in (8, 1))
    assert 1 / 5 < few["step/logprobs"] / few["step/update"] < 1 / 3
    assert many["step/update"] - few["step/update"] > (128 - 16) * 12 * LLAMA / 3.35e12


def test_micro_batches_may_have_tokens() -> None:
    """verl packs 16,384 by default: 13 sequences of 1,200, so 128 of a rank in 10 micro-batches of up to 13, or in 16
    of 8, which divide them. Half as many tokens are 6 sequences, with as many context-parallel ranks 13 again."""
    line = f"step {LINE} --trainer verl"
    usual, same, half, two = (
        run_line(f"{line} {more} --json").data["inputs"]["micro-batch"]["value"]
        for more in (
            "",
            "--micro-batch-tokens 16384",
            "--micro-batch-tokens 8192",
            "--micro-batch-tokens 8192 --ulysses 2",
        )
    )
    assert usual == same == 8
    assert half <= 6 < two <= 13
    for more, why in (("--micro-batch 4", "tokens or sequences"), ("--padding", "padded")):
        refused = run_line(f"{line} --micro-batch-tokens 8192 {more}")
        assert refused.status == 2
        assert why in refused.err
    planned = run_line(f"{line.replace('step', 'plan')} --micro-batch-tokens 8192")
    assert planned.status == 2
    assert "micro-batch-tokens" in planned.err


def test_passes_without_gradients_may_have_micro_batches_of_their_own() -> None:
    """Those of the update by default; four times as many sequences in one leave a fourth of the passes to launch and
    to gather weights for, and the update as it was."""
    same, alike, larger = (
        values(f"step {LINE} --micro-batch 2 --reference same{more}")
        for more in ("", " --logprob-micro-batch 2", " --logprob-micro-batch 8")
    )
    assert alike["step/time"] == pytest.approx(same["step/time"], rel=1e-12)
    assert larger["step/update"] == same["step/update"]
    for name in ("logprobs", "reference"):
        assert larger[f"step/{name}"] < same[f"step/{name}"]


def test_the_longest_answer_and_more_models_take_longer() -> None:
    found = values(f"step {LINE}")
    longer = values(f"step {LINE} --max-response-tokens 8000")
    assert longer["step/generation"] > found["step/generation"]
    apart = [values(f"step {LINE} --zero 2{more}")["step/update"] for more in ("", " --max-response-tokens 8000")]
    assert apart[0] == pytest.approx(apart[1])
    reference = values(f"step {LINE} --reference same")
    assert reference["step/reference"] == pytest.approx(found["step/logprobs"])
    ppo = values(f"step {LINE} --reward llama3-8b".replace("grpo", "ppo"))
    assert ppo["step/critic"] > ppo["step/values"] > 0
    assert ppo["step/reward"] == pytest.approx(ppo["step/values"])


def test_ranks_of_context_parallelism_divide_the_mean_sequence_evenly() -> None:
    """1,201 tokens over two ranks are 601 on each, as many as of 1,202."""
    line = f"step {LINE} --zero 2 --cp 2 --max-prompt-tokens 400 --max-response-tokens 2000"
    odd, even = (values(line.replace("--prompt-tokens 200", f"--prompt-tokens {one}")) for one in (201, 202))
    assert odd["step/update"] == even["step/update"]


def test_answers_that_may_be_older_are_generated_while_others_are_trained_on() -> None:
    """The longer of both, then the transfer; answers of several steps share the end of a batch."""
    lines = [f"step {LINE} --max-response-tokens 4000 --rollout separate:4 --off-policy-steps {n}" for n in (0, 1, 4)]
    after, one, four = map(values, lines)
    trained = after["step/logprobs"] + after["step/update"]
    longer = max(after["step/generation"], trained)
    assert one["step/time"] == pytest.approx(longer + after["step/weight_transfer"])
    assert one["step/generation"] == pytest.approx(after["step/generation"])
    assert four["step/generation"] < one["step/generation"]


def test_several_updates_share_what_was_generated() -> None:
    """Four optimizer steps of 32 prompts are one step of 128; each has an optimizer step of its own."""
    found = values(f"step {LINE}")
    parted = values(f"step {LINE} --updates 4".replace("--global-batch 128", "--global-batch 32"))
    assert parted["step/generation"] == pytest.approx(found["step/generation"])
    more = parted["step/update"] - found["step/update"]
    assert 0 < more < 0.1 * found["step/update"]


def test_an_answer_tells_for_how_many_prompts_several_updates_generate() -> None:
    said = "a step generates for 512 prompts: --updates 4 of --global-batch 128 each"
    assert said in run_line(f"step {LINE} --updates 4 --json").data["notes"]
    assert "a step generates for" not in " ".join(run_line(f"step {LINE} --json").data["notes"])


def test_what_leaves_the_gpu_takes_time() -> None:
    """NeMo RL moves weights and states away; there and back at the published rate, and as much longer as all of it."""
    line = f"llama3-8b --task grpo --gpus 8 --hardware h100 --tp 2 --trainer nemo-rl {LENGTHS}"
    held = values(f"memory {line}")
    away = held["memory/parameters"] + held["memory/optimizer"] + held.get("memory/models", 0)
    assert values(f"step {line}")["step/offload"] == pytest.approx(SLOWER * away / 3.3e9)


def test_the_longest_alone_make_a_range_of_means() -> None:
    """Published answers of Llama, 1,060 of 4,096 tokens and 330 of 1,024, have 1 / (1/1,060 - 1/4,096) = 1,430 and 487
    of their own, 834 in the mean: 673 of 3,500, from 500 to four fifths; prompts of 200, 50 to 500."""
    limits = "--max-prompt-tokens 500 --max-response-tokens 3500"
    line = LINE.replace("--prompt-tokens 200 --response-tokens 1000", limits)
    found = run_line(f"step {line} --json").data
    likely, least, most = (
        run_line(f"step {line} --prompt-tokens {prompt} --response-tokens {answer} --json").data
        for prompt, answer in ((200, 673), (50, 500), (500, 2800))
    )
    for path in ("step/time", "step/generation", "step/update", "step/weight_transfer"):
        assert found["values"][path] == likely["values"][path]
        value = likely["values"][path]
        for end, other in (("low", least), ("high", most)):
            own = math.log(likely[end][path] / value)
            off = math.log(other["values"][path] / value)
            assert abs(math.log(found[end][path] / value)) == pytest.approx(math.hypot(own, off), abs=1e-9)
    said = " ".join(run_line(f"step {line} -v").out.split())
    assert "prompts of 50 to 500 tokens in the mean are in the interval" in said
    assert "assumed: prompts of 200 tokens and responses of 673 tokens" in run_line(f"step {line}").out


def test_answers_fill_a_tight_limit_and_not_a_generous_one() -> None:
    """NeMo RL's Qwen3-30B-A3B: 3,200 of 4,096 tokens are 14,630 of its own, its 235B's 5,700 of 8,192 are 18,738."""
    own = math.sqrt(14_628.6 * 18_737.8)
    assert own_length("qwen3_moe") == pytest.approx(own, rel=1e-4)
    for limit in (1024, 8192, 65_536):
        found = answers_within(limit, "qwen3_moe")
        assert found.likely == int(1 / (1 / limit + 1 / own))
        assert found.least < found.likely < found.most <= limit
    assert own_length("llama") < own_length("a type of which nothing was published") < own


def test_base_models_answer_in_few_tokens_whatever_their_type() -> None:
    """400 of 4,096 tokens are 443 of their own, 3,670 of 8,192 are 6,649: 1,716. A name says which they are."""
    own = math.sqrt(1 / (1 / 400 - 1 / 4096) * (1 / (1 / 3670 - 1 / 8192)))
    assert own_length(kind_of("Qwen3-30B-A3B-Base", "qwen3_moe")) == pytest.approx(own)
    assert own == pytest.approx(1716, abs=1)
    assert own_length(kind_of("/models/Database-7B", "qwen3_moe")) == own_length("qwen3_moe") > 5 * own


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("DeepSeek-R1-Distill-Qwen-7B", True),
        ("deepseek-r1-distill-llama-8b", True),
        ("QwQ-32B", True),
        ("Qwen3-4B-Thinking-2507", True),
        ("Phi-4-reasoning", True),
        ("Qwen2.5-7B-Instruct", False),
        ("granite-3.1-8b", False),
    ],
)
def test_models_trained_to_reason_answer_at_length_whatever_their_type(name: str, reasons: bool) -> None:
    """RLinf's distilled models: 14,255 and 10,426 of 27,648 tokens are 29,430 and 16,738 of their own: 22,195."""
    own = math.sqrt(1 / (1 / 14_255 - 1 / 27_648) * (1 / (1 / 10_426 - 1 / 27_648)))
    assert own == pytest.approx(22_195, rel=1e-3)
    assert (own_length(kind_of(name, "qwen2")) == pytest.approx(own)) is reasons


def test_a_type_without_figures_is_taken_as_its_series() -> None:
    """12,800 of 32,768 tokens of Qwen3.5's mixture are 21,006 of its own, its dense models' too."""
    assert own_length("qwen3_5_text") == pytest.approx(1 / (1 / 12_800 - 1 / 32_768), rel=1e-9)
    assert own_length("qwen3") != own_length("qwen3_moe")


def test_nemo_rl_s_passes_without_gradients_have_twice_the_sequences() -> None:
    """logprob_batch_size 2 next to train_micro_batch_size 1: of FSDP's units half as many are gathered for them."""
    many = LINE.replace("h100 --zero 3", "h100 --micro-batch 4")
    line = f"step {many} --framework fsdp --trainer"
    nemo, stated, as_many = (
        values(f"{line} {more}")["step/logprobs"]
        for more in ("nemo-rl", "nemo-rl --logprob-micro-batch 8", "nemo-rl --logprob-micro-batch 4")
    )
    assert nemo == pytest.approx(stated)
    assert nemo < as_many
    verl, own = (values(f"{line} {more}")["step/logprobs"] for more in ("verl", "verl --logprob-micro-batch 4"))
    assert verl == pytest.approx(own)


def test_an_engine_without_graphs_waits_for_its_host() -> None:
    """999 steps of 32 layers at 0.75 ms, more than the device takes; prompts and the update are as they were."""
    graphs, eager = (values(f"step {LINE} {more}") for more in ("", "--rollout-eager"))
    assert eager["step/generation/decode"] == pytest.approx(999 * 32 * 0.75e-3)
    assert eager["step/generation/decode"] > graphs["step/generation/decode"]
    assert eager["step/generation/prefill"] == graphs["step/generation/prefill"]
    assert eager["step/update"] == graphs["step/update"]


def test_micro_batches_of_another_pass_are_about_equally_large() -> None:
    """128 sequences of a GPU, 48 at a time: three of 43, not of 48."""
    line = f"step {LINE} --micro-batch 4 --logprob-micro-batch"
    assert values(f"{line} 48")["step/logprobs"] == pytest.approx(values(f"{line} 43")["step/logprobs"])


def test_a_micro_batch_without_padding_is_shorter_than_its_longest() -> None:
    """One answer of 1,000 tokens and 9 of 200 times 1 + 3·0.6/√9, with prompts of 100: 1,100 and 9·480 over 10; alone
    it is the longest, and others are never longer than it."""
    lengths = RolloutLengths(prompt=100, response=200, longest=1000, answers=8, prompts=16)
    assert held_by_micro_batch(lengths, 1) == 1100
    assert held_by_micro_batch(lengths, 10) == math.ceil((1100 + 9 * 480) / 10)
    assert held_by_micro_batch(replace(lengths, response=900), 2) == 1100


def test_sequences_are_packed_as_the_library_packs_them() -> None:
    """128 sequences a rank of 1,200 tokens: 13 have 16,384 tokens, which makes 10 micro-batches, or 16 of 8 sequences.
    The memory is that of 16,384 tokens, whatever the means are."""
    line = f"llama3-8b --task grpo --gpus 8 --hardware h100 --trainer verl {LENGTHS}"
    packed, eight = values(f"step {line}"), values(f"step {line} --micro-batch 8")
    assert packed["step/update"] == pytest.approx(eight["step/update"])
    long = line.replace("--response-tokens 1000", "--response-tokens 16184")
    one = values(f"memory {long} --micro-batch 1")["memory/allocated"]
    assert values(f"memory {line}")["memory/allocated"] == pytest.approx(one)
    assert values(f"memory {line} --max-response-tokens 4000")["memory/allocated"] == pytest.approx(one)


def test_a_rank_s_sequences_are_divided_about_evenly() -> None:
    """61 of at most 38: two micro-batches, neither of which has more than 31."""
    found = run_line(
        "step llama3-8b --task grpo --gpus 8 --hardware h100 --trainer verl --prompt-tokens 31 --response-tokens 400 "
        "--samples-per-prompt 1 --global-batch 488 --json"
    )
    assert [found.data["inputs"][name]["value"] for name in ("micro-batch", "grad-accum")] == [31, 2]


def test_only_padding_makes_a_micro_batch_as_long_as_its_longest() -> None:
    """verl's has none: its update holds fewer tokens, and without means the interval is of what they may be."""
    line = f"memory {LINE} --max-response-tokens 4000 --micro-batch 8 --precision bf16-mixed --framework fsdp"
    padded, without = (values(f"{line}{trainer}") for trainer in (" --trainer trl", " --trainer verl"))
    assert without["memory/activations"] < 0.7 * padded["memory/activations"]
    means = "--prompt-tokens 200 --response-tokens 1000"
    longest = line.replace(means, "--max-prompt-tokens 200") + " --trainer verl"
    ends = [
        run_line(f"{longest} --response-tokens {mean} --prompt-tokens {p} --json").data
        for mean, p in ((500, 50), (3200, 200))
    ]
    found = run_line(f"{longest} --json").data
    for name, one in (("low", ends[0]), ("high", ends[1])):
        assert found[name]["memory/phase/update"] == pytest.approx(one[name]["memory/phase/update"])


def test_a_step_says_whether_it_fits() -> None:
    """Its memory is that of the phases; a run of such steps says it on line 2."""
    found = run_line(f"step {LINE} --json").values
    assert found["memory/total"] == values(f"memory {LINE}")["memory/total"]
    large = LINE.replace("--zero 3 --recompute full", "--zero 0")
    assert "does not fit" in run_line(f"step {large}").out
    run = run_line(f"train-time {large} --steps 10")
    assert run.status == 0
    assert "DOES NOT FIT" in run.out.splitlines()[1]


def test_a_sequence_leaves_the_answer_what_the_prompt_does_not_take() -> None:
    found = values(f"step {LINE} --seq 4096")
    assert found["step/time"] == values(f"step {LINE} --max-response-tokens 3896")["step/time"]
    alone = LINE.replace("--prompt-tokens 200 --response-tokens 1000", "--seq 4096")
    longest = values(f"memory {LINE} --max-response-tokens 3896")
    assert values(f"memory {alone}")["memory/total"] == longest["memory/total"]


def test_an_engine_of_its_own_leaves_the_trainer_fewer_gpus() -> None:
    found = run_line(f"step {LINE} --rollout separate:4 --json")
    verl = values(f"step {LINE} --rollout separate:4 --trainer verl --stack fsdp-eager")
    assert verl["step/weight_transfer"] == pytest.approx(SLOWER * 2 * LLAMA / 2.6e9)
    assert found.values["step/weight_transfer"] < verl["step/weight_transfer"]
    same = values(f"step {LINE} --rollout none".replace("--gpus 8", "--gpus 4"))
    assert found.values["step/update"] == pytest.approx(same["step/update"])
    assert "step/generation" not in same


def test_a_run_is_its_steps() -> None:
    step = values(f"step {LINE}")["step/time"]
    found = values(f"train-time {LINE} --steps 100 --goodput 1 --price 2")
    assert found["time"] == pytest.approx(100 * step)
    assert found["cost"] == pytest.approx(100 * step * 8 / 3600 * 2)
    epochs = values(f"train-time {LINE} --samples 6400 --epochs 2 --goodput 1")
    assert epochs["steps"] == pytest.approx(100)
    partial = values(f"train-time {LINE} --samples 6401 --epochs 2 --goodput 1")  # 12,802 prompts, 128 a step
    assert partial["steps"] == 101
    assert partial["time"] == pytest.approx(101 * step)


TABLE = "napkin._tables.rollout_errors.SEEN"


def test_a_source_is_judged_by_the_steps_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of e^0.1 (two versions of a page, mean of 0 and 0.2), e^0.3 and e^0.5 times what is counted: the factor is
    e^0.3, and without the page e^0.4. From the others' steps the sources are off by 0.4 and 0.2 (the page's rows), 0.0,
    and 0.3: at 80 %, half a source of three may lie above."""
    rows = (
        ("1", "a, v1", "step", 0.0, 1.0),
        ("2", "a, v2", "step", -0.2, 1.0),
        ("3", "b", "step", -0.3, 1.0),
        ("4", "c", "step", -0.5, 1.0),
    )
    monkeypatch.setattr(TABLE, rows)
    half_width.cache_clear()
    assert math.log(float(slower().value)) == pytest.approx(0.3)
    assert math.log(float(slower("a, v3").value)) == pytest.approx(0.4)
    assert half_width(0.8) == pytest.approx(0.3)
    assert half_width(0.9) == pytest.approx(0.4)
    assert half_width(0.9, "a, v3") == pytest.approx(0.2)  # b from c's step, and c from b's
    half_width.cache_clear()


def test_a_phase_counts_for_the_interval_and_not_for_the_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (("1", "a", "step", -0.3, 1.0), ("2", "b", "step", -0.3, 1.0), ("3", "c", "update", 0.4, 1.0))
    monkeypatch.setattr(TABLE, rows)
    half_width.cache_clear()
    assert math.log(float(slower().value)) == pytest.approx(0.3)
    assert half_width(0.9) == pytest.approx(0.7)
    half_width.cache_clear()


def test_the_factor_makes_only_work_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A phase of which a fifth waits for the host, which launches no slower: e^0.3 times the other 80 %."""
    rows = (("1", "a", "step", -0.3, 1.0), ("2", "b", "step", -0.3, 1.0), ("3", "c", "update", 0.4, 0.8))
    monkeypatch.setattr(TABLE, rows)
    half_width.cache_clear()
    assert half_width(0.9) == pytest.approx(0.7 + math.log(0.8))
    monkeypatch.setattr(TABLE, (*rows[:2], ("3", "c", "update", 0.4, 0.5)))
    half_width.cache_clear()
    assert half_width(0.9) == pytest.approx(0.4)  # 0.5·e^0.3 hides behind the launches
    half_width.cache_clear()


def test_launches_do_not_become_slower() -> None:
    """Adapters of a small model on FSDP wait for the host: their log-probabilities take what is counted of them."""
    adapted = "step qwen2.5-0.5b --lora-rank 32 --task grpo --trainer verl --gpus 8 --hardware h100 --prompt-tokens 100"
    batch = "--response-tokens 200 --samples-per-prompt 5 --global-batch 64"
    tree = run_line(f"{adapted} {batch} --explain").out
    found = re.search(r"step/logprobs = ([\d.]+ ms) = max\(work/slower, counted\)", tree)
    assert found is not None
    assert f"step/logprobs/counted = {found[1]}" in tree


def test_the_interval_of_a_step_is_that_of_published_steps() -> None:
    """That of their sources, or as wide as a training step's."""
    data = run_line(f"step {LINE} --json").data
    values, high, low = (data[name] for name in ("values", "high", "low"))
    for name in ("time", "generation", "logprobs", "update"):
        ratio = high[f"step/{name}"] / values[f"step/{name}"]
        assert ratio == pytest.approx(values[f"step/{name}"] / low[f"step/{name}"])
        assert ratio >= math.exp(half_width(0.9)) * (1 - 1e-9)
    wide = run_line(f"step {LINE} --confidence 50 --json").data
    assert wide["high"]["step/time"] < high["step/time"]
    assert any(f"{len(SEEN)} published steps and phases" in note for note in data["notes"])


def test_nine_in_ten_figures_of_a_source_lie_in_the_interval_of_the_others() -> None:
    """Every source weighing the same, and judged without its own figures."""
    inside: dict[str, list[bool]] = {}
    for _, source, _, error, work in SEEN:
        factor = math.log(float(slower(source).value))
        off = error + (factor if work == 1 else max(factor + math.log(work), 0.0))
        inside.setdefault(page(source), []).append(abs(off) <= half_width(0.9, source))
    share = statistics.fmean(statistics.fmean(own) for own in inside.values())
    assert 0.85 <= share <= 0.95


def test_the_error_of_a_phase_is_that_of_what_is_counted_of_it() -> None:
    """A published row of 31.53 s of log-probabilities and 95.3 s of updates: what its prediction says of both
    against these."""
    row = next(one for one in published.read(EVIDENCE).tuning if one.text("id").startswith("miles"))
    asked = rollout_row(row)
    counted = asked.value("logprob_seconds", 0)[0] / asked.value("update_seconds", 0)[0]
    stated = {quantity: error for name, _, quantity, error, _ in SEEN if name == row.text("id")}
    assert counted == pytest.approx(31.53 / 95.3 * math.exp(stated["logprobs"] - stated["update"]), rel=1e-3)
    assert 1 / 4.6 < counted < 1 / 3.4  # a forward pass, next to a forward one, a recomputed one and a backward of two


def test_versions_of_a_page_count_as_one_source() -> None:
    nemo = "NVIDIA NeMo RL performance summary"
    assert page(f"{nemo}, v0.6") == page(f"{nemo}, v0.5") == nemo
    assert page("DeepSpeed-Chat README, Table 1") == "DeepSpeed-Chat README, Table 1"
    others = [-error for _, source, quantity, error, _ in SEEN if quantity == STEP and not source.startswith(nemo)]
    assert min(others) < math.log(float(slower(f"{nemo}, v0.6").value)) < max(others)


def test_the_errors_of_published_steps_are_those_of_today() -> None:
    tool = runpy.run_path(os.path.join(ROOT, "tools", "rollout_accuracy.py"))
    assert tool["text"]() == pathlib.Path(tool["TABLE"]).read_text(encoding="utf-8"), "python tools/rollout_accuracy.py"


def test_a_teacher_is_not_called_a_reference() -> None:
    line = "memory qwen2.5-7b --reference qwen2.5-14b --gpus 8 --zero 3 --hardware h100 --task"
    said = {task: run_line(f"{line} {task}").out for task in ("distill", "dpo")}
    assert "teacher; 1/8 per GPU" in said["distill"]
    assert "reference; 1/8 per GPU" in said["dpo"]


def test_a_run_is_judged_by_its_deadline_and_its_budget() -> None:
    """Hours of 200 steps at $2 an hour and GPU: twice as much is enough for sure, half of it is not."""
    line = f"train-time {LINE} --steps 200 --price 2 --goodput 1"
    found = values(line)
    time, cost = found["time"], found["cost"]
    assert cost == pytest.approx(2 * 8 * time / 3600)
    for limits, status, verdict in (
        (f"--within {4 * time:.0f}s", 0, "holds"),
        (f"--within {time / 4:.0f}s", 1, "broken"),
        (f"--budget {cost}", 4, "too close to call"),
        (f"--within {4 * time:.0f}s --budget {cost / 4}", 1, "broken"),
    ):
        answer = run_line(f"{line} {limits} --json")
        assert (answer.status, answer.data["verdict"]) == (status, verdict)
    unsharded = run_line(f"{line.replace('--zero 3 --recompute full', '')} --within {4 * time:.0f}s --json")
    assert (unsharded.status, unsharded.data["verdict"]) == (1, "does not fit")


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (f"memory {LINE} --min gpus", "plan"),
        (f"memory {LINE} --max micro-batch", "sweep memory"),
        (f"train-time {LINE.replace('--gpus 8', '')} --steps 10 --within 1d", "sweep train-time"),
    ],
)
def test_what_is_not_searched_names_a_command_that_answers(line: str, hint: str) -> None:
    refused = run_line(line)
    assert refused.status == 2
    named = refused.err.split("hint: napkin ")[1].strip()
    assert named.startswith(f"{hint} llama3-8b")
    assert run_line(named.replace("gpus=8,16,32", "gpus=8,16").replace("=1,2,4,8", "=1,2")).status in (0, 1)


def test_an_engine_on_the_trainers_gpus_has_the_librarys_share() -> None:
    """TRL's vllm_gpu_memory_utilization is 0.3 (trl/trainer/grpo_config.py), verl's 0.5 (config/rollout.yaml)."""
    for trainer, share in (("trl", 0.3), ("verl", 0.5), ("nemo-rl", 0.6)):
        line = f"memory {LINE} --trainer {trainer}"
        assert values(f"{line} --rollout colocated") == values(f"{line} --rollout colocated:{share}")
        assert values(f"{line} --vllm-mode colocate") == values(line)


def test_a_budget_needs_a_price_that_is_known() -> None:
    """No seller of an H20 is known; of an RTX 4090 some are, and the budget is judged by what they ask."""
    line = (
        "train-time qwen2.5-0.5b --task grpo --trainer verl --steps 200 --gpus 8 --prompt-tokens 512 "
        "--response-tokens 1024 --samples-per-prompt 8 --global-batch 64 --budget 100"
    )
    found = run_line(f"{line} --hardware h20")
    assert (found.status, found.err.splitlines()[0]) == (2, "error: --budget needs --price")
    assert run_line(f"{line} --hardware h20 --price 1 --json").data["values"]["cost"] > 0
    assert run_line(f"{line} --hardware 4090 --json").data["inputs"]["price"]["value"] == 0.39


def test_short_answers_end_before_their_limit() -> None:
    """Each published longest answer of a step is within a quarter of what its mean and number give; 5,120 answers
    have one that repeats itself to the limit in six steps of ten."""
    for _, count, mean, longest in LONGEST:
        ended = (1 - 1.8e-4) ** count
        found = longest_of_step(1024, mean, count, "qwen2")
        assert (found - (1 - ended) * 1024) / ended == pytest.approx(longest, rel=0.25)
    assert pytest.approx(0.4, abs=0.01) == (1 - 1.8e-4) ** 5120
    assert longest_of_step(1024, 268, 1, "qwen2") < 320 < longest_of_step(1024, 268, 320, "qwen2") < 1024
    assert longest_of_step(300, 268, 320, "qwen2") == 300


@pytest.mark.parametrize("kind", ["base", "reasoning", "qwen3_moe"])
def test_answers_of_models_that_reason_or_were_not_taught_to_end_reach_any_limit(kind: str) -> None:
    assert longest_of_step(32768, 1000, 8, kind) == 32768


def test_an_engine_waits_for_the_longest_answer_that_is_expected() -> None:
    """A step of 128 answers whose longest has 700 of at most 1,024 tokens decodes as one with a limit of 700."""
    lengths = RolloutLengths(prompt=100, response=250, longest=1024, answers=8, prompts=16)
    expected, limited = replace(lengths, reached=700), replace(lengths, longest=700)
    assert (lengths.last, expected.last, limited.last) == (1024, 700, 700)
    assert expected.spread == limited.spread
    assert expected.most == lengths.most > limited.most
    steps = [decoded_steps(one) for one in (expected, limited, lengths)]
    assert steps[0] == steps[1] == steps[2] - 324


def decoded_steps(lengths: RolloutLengths) -> float:
    """Decoding steps of a rollout on one GPU."""
    engine = Engine(build(named_config("llama3-8b")[0]), 1, 1, 0.9, apart=True)
    work = rollout_of(engine, lengths, leaf("capacity", 80e9, "byte", GIVEN))
    return sum(float(one.count.value) for one in (work.decode, work.last) if one is not None)


def test_a_model_without_a_decoder_generates_no_responses() -> None:
    for command in ("step", "memory", "plan"):
        refused = run_line(f"{command} bert-base-uncased --task grpo --gpus 8 --hardware h100 {LENGTHS}")
        assert refused.status == 3
        assert refused.err.startswith("error: bert-base-uncased generates no tokens: its attention is not causal")


def test_the_longest_response_that_is_expected_is_said() -> None:
    """Of models that end their answers; one that reasons may have any length up to the limit."""
    answers = [run_line(f"step {LINE} --max-response-tokens {most} --json") for most in (1000, 4096)]
    said = [[note for note in one.data["notes"] if "the longest of a step's responses" in note] for one in answers]
    assert not said[0]
    assert "fewer than the 4,096 allowed" in said[1][0]
    assert answers[0].values["step/generation"] < answers[1].values["step/generation"]
    thinking = run_line(f"step {LINE.replace('llama3-8b', 'qwen3-8b')} --max-response-tokens 4096 --json")
    assert not [note for note in thinking.data["notes"] if "the longest of a step's responses" in note]
