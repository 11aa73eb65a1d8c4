"""Rows of measured preference training and reinforcement learning: what `memory` and `step` answer for the same run."""

from __future__ import annotations

import math
import pathlib
from typing import Any

import pytest

from napkin._tables.rollout_errors import SEEN
from napkin.evidence.figures.response_lengths import longest_of_step
from napkin.evidence.intervals.rollouts import page as title_of
from napkin.evidence.intervals.rollouts import slower
from tests.conftest import run_line

ROW = """- id: a
  source: {{title: hand-made}}
  task: {task}
  model: {{preset: {model}}}
  hardware: {{chip: H100 SXM 80GB, count: {count}}}
  method: {{{method}}}
  layout: {{{layout}}}
  rl: {{{rl}}}
  measured: {{{measured}}}
"""
PAIRS = "micro_batch: 1, grad_accum: 1, seq: 2048, precision: bf16-mixed, recompute: full, stack: deepspeed, zero: 3"
GRPO = "tp: 1, precision: bf16-mixed, stack: megatron-core, trainer: nemo-rl"
SAMPLED = (
    "on_policy: on policy, group: 8, prompts: 64, prompt_length_mean: 200, response_length_mean: 1000, rollout_tp: 1"
)
RATE = "tokens_per_second_per_gpu: 3000"
USUAL = {"measured": RATE, "count": 8, "model": "llama3-8b", "method": "kind: full"}
UPDATE = "update_seconds: 15"
PER_GPU = "tokens_per_second_per_gpu"


def validated(tmp_path: pathlib.Path, **row: Any) -> dict[str, dict[str, Any]]:
    file = tmp_path / "finetune.yaml"
    file.write_text("schema: finetune/1\nrows:\n" + ROW.format(**{**USUAL, **row}))
    found = run_line(f"validate {file} --json")
    assert found.status == 0, found.err
    return {one["quantity"]: one for one in found.data["rows"]}


def ends(found: dict[str, Any], likely: dict[str, Any], others: list[dict[str, Any]]) -> None:
    """Check an interval: of a likely value that is stated, and of what it would be in others, as two errors add."""
    value = likely["predicted"]
    assert found["predicted"] == pytest.approx(value)
    off = [math.log(one["predicted"] / value) for one in others]
    for end, farthest in (("low", max(0, -min(off))), ("high", max(0, max(off)))):
        own = math.log(likely[end] / value)
        assert abs(math.log(found[end] / value)) == pytest.approx(math.hypot(own, farthest))


@pytest.mark.parametrize(("task", "said", "reference"), [("dpo", "second copy", "same"), ("simpo", "none", "")])
def test_a_row_of_pairs_is_what_memory_and_step_answer(
    tmp_path: pathlib.Path, task: str, said: str, reference: str
) -> None:
    measured = f"peak_bytes: 4e+10, what: allocated, {RATE}"
    rows = validated(tmp_path, task=task, layout=PAIRS, rl=f"reference: {said}", measured=measured)
    line = (
        f"llama3-8b --task {task} --gpus 8 --hardware h100 --seq 2048 --zero 3 --recompute full --framework deepspeed"
    )
    line += f" --reference {reference} --json" if reference else " --json"
    assert rows["memory_allocated"]["predicted"] == run_line(f"memory {line}").values["memory/allocated"]
    step = run_line(f"step {line} --stack fsdp-eager").values
    assert rows["tokens_per_second_per_gpu"]["predicted"] == pytest.approx(step["tokens_per_second_per_gpu"])


@pytest.mark.parametrize(
    ("stated", "meant"),
    [
        ("prompts: 64, prompt_length_mean: 200, response_length_mean: 1000", "group: 8"),
        ("samples_per_step: 512", "sequence_length_mean: 1200"),
    ],
)
def test_the_rate_and_the_time_of_a_step_state_its_tokens(tmp_path: pathlib.Path, stated: str, meant: str) -> None:
    """3,072 tokens a second on each of 8 GPUs, for 25 s, are 614,400: 64 prompts of 8 responses, 1,200 tokens each."""
    fixed = "on_policy: on policy, rollout_tp: 1"
    measured = "tokens_per_second_per_gpu: 3072, step_seconds: 25"
    found = validated(tmp_path, task="grpo", layout=GRPO, rl=f"{fixed}, {stated}", measured=measured)
    told = validated(tmp_path, task="grpo", layout=GRPO, rl=f"{fixed}, {stated}, {meant}", measured=measured)
    assert found[PER_GPU]["predicted"] == told[PER_GPU]["predicted"] is not None
    without = validated(tmp_path, task="grpo", layout=GRPO, rl=f"{fixed}, {stated}", measured="step_seconds: 25")
    assert "is not stated" in without["step_seconds"]["why"]


def test_a_reference_that_a_row_does_not_state_is_a_copy_of_the_model(tmp_path: pathlib.Path) -> None:
    measured = f"peak_bytes: 4e+10, what: allocated, {RATE}"
    open_, copy, unknown = (
        validated(tmp_path, task="dpo", layout=PAIRS, rl=f"algorithm: dpo{more}", measured=measured)
        for more in ("", ", reference: second copy", ", reference: a guess")
    )
    for quantity in ("memory_allocated", PER_GPU):
        assert open_[quantity]["predicted"] == copy[quantity]["predicted"]
        assert "where the reference is: a guess" in unknown[quantity]["why"]


def test_a_synchronous_step_is_what_step_answers(tmp_path: pathlib.Path) -> None:
    measured = "step_seconds: 30, gen_seconds: 10, logprob_seconds: 5, update_seconds: 15"
    rows = validated(tmp_path, task="grpo", layout=GRPO, rl=SAMPLED, measured=measured)
    line = (
        "step llama3-8b --task grpo --gpus 8 --hardware h100 --trainer nemo-rl --zero 1 --prompt-tokens 200 "
        "--response-tokens 1000 --samples-per-prompt 8 --global-batch 64 --rollout-tp 1 --precision bf16-mixed --json"
    )
    step = run_line(line).values
    for quantity, path in (
        ("step_seconds", "step/time"),
        ("gen_seconds", "step/generation"),
        ("update_seconds", "step/update"),
    ):
        assert rows[quantity]["predicted"] == pytest.approx(step[path])
        assert rows[quantity]["low"] < rows[quantity]["predicted"] < rows[quantity]["high"]
    both = step["step/logprobs"] + step["step/reference"]  # NeMo RL's timer policy_and_reference_logprobs
    assert rows["logprob_seconds"]["predicted"] == pytest.approx(both)


@pytest.mark.parametrize(
    ("stated", "option"),
    [
        ("attention: flash_attention_3", "--attention cudnn"),
        ("attention: flash_attention_2", "--attention flash2"),
        ("ulysses: 4", "--ulysses 4"),
        ("loss: fused", "--loss fused"),
    ],
)
def test_what_a_row_says_of_the_trainers_passes_is_what_step_is_asked(
    tmp_path: pathlib.Path, stated: str, option: str
) -> None:
    layout = f"zero: 3, precision: bf16-mixed, stack: fsdp, trainer: verl, micro_batch: 1, {stated}"
    long = SAMPLED.replace("response_length_mean: 1000", "response_length_mean: 30000")
    measured = f"peak_bytes: 4e+10, what: allocated, {UPDATE}"
    rows = validated(tmp_path, task="grpo", layout=layout, rl=long, measured=measured)
    line = (
        "llama3-8b --task grpo --gpus 8 --hardware h100 --trainer verl --framework fsdp --zero 3 --prompt-tokens 200 "
        "--response-tokens 30000 --samples-per-prompt 8 --global-batch 64 --rollout-tp 1 --precision bf16-mixed "
        f"--micro-batch 1 {option} --json"
    )
    assert rows["update_seconds"]["predicted"] == pytest.approx(run_line(f"step {line}").values["step/update"])
    held = run_line(f"memory {line}").values["memory/allocated"]
    assert rows["memory_allocated"]["predicted"] == pytest.approx(held)


def test_torch_counts_a_vllm_within_the_trainers_processes(tmp_path: pathlib.Path) -> None:
    """vllm-project/vllm issues 17117 and 33625: memory freed in its sleep stays in torch's figures, which can exceed
    the GPU's."""
    layout = "zero: 3, precision: bf16-mixed, stack: fsdp, trainer: verl, micro_batch: 1"

    def allocated(versions: str, **rl: str) -> dict[str, Any]:
        said = {"gpu_memory_utilization": "0.4", **rl}
        run = SAMPLED + "".join(f", {name}: {value}" for name, value in said.items())
        measured = f"peak_bytes: 4e+10, what: allocated, {UPDATE}"
        row = {"layout": f"{layout}, versions: {versions}", "rl": run, "measured": measured}
        return validated(tmp_path, task="grpo", **row)["memory_allocated"]

    own = allocated("verl 0.8")
    assert allocated("verl 0.5", engine="sglang")["predicted"] == pytest.approx(own["predicted"])
    fourth, third = (allocated("verl 0.6", gpu_memory_utilization=share) for share in ("0.4", "0.3"))
    assert fourth["predicted"] - third["predicted"] == pytest.approx(0.1 * 85.2e9, rel=0.01)
    assert 0.3 * 80e9 < fourth["predicted"] - own["predicted"] < 0.4 * 86e9
    most = allocated("verl 0.6", gpu_memory_utilization="0.9")
    assert most["predicted"] > 86e9
    assert most["high"] > most["predicted"]


def test_an_engine_of_a_row_captures_no_graphs_where_it_says_so(tmp_path: pathlib.Path) -> None:
    """999 steps of 32 layers at 0.75 ms."""
    graphs, eager = (
        validated(tmp_path, task="grpo", layout=GRPO, rl=f"{SAMPLED}{more}", measured="gen_seconds: 30")
        for more in ("", ", enforce_eager: true")
    )
    host = 999 * 32 * 0.75e-3 * float(slower().value)
    assert graphs["gen_seconds"]["predicted"] < host < eager["gen_seconds"]["predicted"] < 1.05 * host


def test_an_engine_that_applies_adapters_launches_their_kernels_as_well(tmp_path: pathlib.Path) -> None:
    """999 steps of 32 layers at 0.75 and 0.8 ms in verl's engine; TRL merges adapters into the weights first."""
    adapted = "kind: lora, lora_rank: 16, lora_targets: all-linear"

    def seconds(trainer: str, method: str) -> float:
        layout = f"zero: 3, precision: bf16, stack: fsdp, micro_batch: 8, trainer: {trainer}"
        rl = f"{SAMPLED}, enforce_eager: true"
        found = validated(tmp_path, task="grpo", layout=layout, rl=rl, method=method, measured="gen_seconds: 30")
        return float(found["gen_seconds"]["predicted"])

    host = 999 * 32 * 0.8e-3 * float(slower().value)
    assert seconds("verl", adapted) - seconds("verl", "kind: full") == pytest.approx(host, rel=0.01)
    assert seconds("trl", adapted) == pytest.approx(seconds("trl", "kind: full"))


def test_an_engine_captures_graphs_as_its_library_does_in_that_version(tmp_path: pathlib.Path) -> None:
    """verl's rollout.enforce_eager was true up to 0.5."""
    layout = "zero: 3, precision: bf16-mixed, stack: fsdp, trainer: verl, micro_batch: 8"

    def seconds(versions: str, more: str = "") -> float:
        layout_of = f"{layout}, versions: verl {versions}"
        found = validated(tmp_path, task="grpo", layout=layout_of, rl=SAMPLED + more, measured="gen_seconds: 30")
        return float(found["gen_seconds"]["predicted"])

    assert seconds("0.5") == seconds("0.6", ", enforce_eager: true") > seconds("0.6")
    assert seconds("0.5", ", enforce_eager: false") == seconds("0.6")


def test_a_precision_states_the_engines_too(tmp_path: pathlib.Path) -> None:
    """With weights of 8 bits in place of 16, half of 16 GB are read in each of 999 steps at most at 3.35 TB/s."""
    measured = "gen_seconds: 30, update_seconds: 15"
    both, mixed, also, neither = (
        validated(tmp_path, task="grpo", layout=GRPO.replace("bf16-mixed", said), rl=SAMPLED, measured=measured)
        for said in (
            "fp8 (training and generation)",
            "'training bf16, generation fp8'",
            "bf16 training and fp8 generation",
            "bf16 (training and generation)",
        )
    )
    assert mixed["update_seconds"]["predicted"] == neither["update_seconds"]["predicted"]
    assert both["update_seconds"]["predicted"] < neither["update_seconds"]["predicted"]
    for one in (both, mixed, also):
        saved = neither["gen_seconds"]["predicted"] - one["gen_seconds"]["predicted"]
        assert 0.5 * 999 * 7e9 / 3.35e12 < saved < 2 * 999 * 8e9 / 3.35e12


def test_a_micro_batch_that_is_not_stated_is_packed(tmp_path: pathlib.Path) -> None:
    """64 sequences a rank of 1,200 tokens: 13 have 16,384 tokens, which makes 5 micro-batches, or 8 of 8 sequences;
    verl's guide has at least twice the longest, 2 sequences, which take longer."""
    layout = "zero: 3, precision: bf16-mixed, stack: fsdp, trainer: verl"
    likely, eight, two = (
        validated(tmp_path, task="grpo", layout=f"{layout}{also}", rl=SAMPLED, measured=UPDATE)["update_seconds"]
        for also in ("", ", micro_batch: 8", ", micro_batch: 2")
    )
    ends(likely, eight, [two])
    assert two["predicted"] > eight["predicted"]


def test_answers_are_timed_as_the_engine_that_generates_them(tmp_path: pathlib.Path) -> None:
    """By what the trainer starts, unless the row names another; of one that no one measured what all engines share."""

    def generation(trainer: str, engine: str) -> float:
        layout = f"tp: 1, precision: bf16-mixed, stack: megatron-core{trainer}"
        rl = f"{SAMPLED}, gpu_memory_utilization: 0.6{engine}"
        found = validated(tmp_path, task="grpo", layout=layout, rl=rl, measured="gen_seconds: 10")
        return float(found["gen_seconds"]["predicted"])

    vllm, unmeasured = generation(", trainer: nemo-rl", ""), generation("", "")
    assert vllm != unmeasured
    assert generation("", ", engine: vllm0.8.3") == vllm
    assert generation(", trainer: nemo-rl", ", engine: DeepSpeed hybrid engine") == unmeasured


@pytest.mark.parametrize(
    ("rl", "why"),
    [
        (
            SAMPLED.replace("on policy,", "1-step Off,").replace("rollout_tp: 1", "rollout_tp: 8"),
            "how many of its GPUs",
        ),
        (SAMPLED.replace("on policy,", "colocate_async,"), "overlap"),
        (SAMPLED.replace("response_length_mean: 1000, ", ""), "how long its responses are"),
        (SAMPLED.replace("prompts: 64, ", ""), "how many responses"),
        (SAMPLED.replace("group: 8, ", ""), "how many responses a prompt has"),
    ],
)
def test_what_is_not_stated_is_the_reason(tmp_path: pathlib.Path, rl: str, why: str) -> None:
    found = validated(tmp_path, task="grpo", layout=GRPO, rl=rl)
    assert why in found["tokens_per_second_per_gpu"]["why"]


def test_a_run_that_was_out_of_memory_gets_a_verdict(tmp_path: pathlib.Path) -> None:
    small = validated(tmp_path, task="grpo", layout=GRPO, rl=SAMPLED, measured="oom: true", count=1)
    assert small["memory_used"]["verdict"] == "does not fit"


def test_an_open_division_of_the_gpus_is_the_half(tmp_path: pathlib.Path) -> None:
    """A fourth and three fourths are in the interval."""
    rl = SAMPLED.replace("on policy,", "1-step Off,")
    stated = {
        part: validated(tmp_path, task="grpo", layout=GRPO, rl=f"{rl}, trainer_gpus: {8 - part}, rollout_gpus: {part}")[
            "tokens_per_second_per_gpu"
        ]
        for part in (2, 4, 6)
    }
    found = validated(tmp_path, task="grpo", layout=GRPO, rl=rl)["tokens_per_second_per_gpu"]
    ends(found, stated.pop(4), [*stated.values()])


def test_a_batch_that_is_not_stated_is_that_of_the_algorithm(tmp_path: pathlib.Path) -> None:
    """DAPO's: 512 prompts of 16 answers, 32 prompts an optimizer step; of 12 in verl's scripts."""
    without = SAMPLED.replace("group: 8, prompts: 64, ", "algorithm: dapo, ")
    verl = "trainer: verl, stack: fsdp, zero: 3"
    for layout, group in ((GRPO, 16), (verl, 12)):
        found = validated(tmp_path, task="grpo", layout=layout, rl=without, measured=UPDATE)
        stated = without.replace("dapo,", f"dapo, group: {group}, prompts: 512, mini_batch: 32,")
        same = validated(tmp_path, task="grpo", layout=layout, rl=stated, measured=UPDATE)
        assert found["update_seconds"]["predicted"] == pytest.approx(same["update_seconds"]["predicted"])


def test_a_trainer_that_switches_lends_its_gpus(tmp_path: pathlib.Path) -> None:
    """Two nodes of a trainer and one of an engine, stated as nodes or as GPUs; what generation takes alone is shorter
    by 0.4 · 2 / 3 where the trainer lends its GPUs, until training is longer."""
    layout = "trainer: verl, stack: fsdp, zero: 3, micro_batch: 1"
    long = SAMPLED.replace("on_policy: on policy", "mode: {}, {}").replace("1000", "8000")
    nodes = "split_nodes: 2 hybrid + 1 standalone"
    said = {
        "nodes": long.format("no-switch", nodes),
        "gpus": long.format("no-switch", "trainer_gpus: 16, rollout_gpus: 8"),
        "switch": long.format("switch", nodes),
    }
    hardware = {"count": "24, per_node: 8", "measured": "step_seconds: 100"}
    found = {
        name: validated(tmp_path, task="grpo", layout=layout, rl=rl, **hardware)["step_seconds"]["predicted"]
        for name, rl in said.items()
    }
    assert found["nodes"] == found["gpus"]
    assert found["nodes"] * (1 - 0.4 * 2 / 3) < found["switch"] < found["nodes"]


def test_states_that_a_run_offloads_are_moved_between_phases(tmp_path: pathlib.Path) -> None:
    """Llama 3 8B of 8 GPUs: parameters and two moments in fp32, 96.4 GB over 8 GPUs, at 3.3 GB/s there and back, times
    the factor of published steps; on GPUs of its own an engine needs none of that room."""
    layout = "trainer: verl, stack: fsdp, zero: 3, micro_batch: 1"
    seconds = {}
    for name, more in (("kept", ""), ("moved", ", offload: 'parameters,optimizer'")):
        found = validated(tmp_path, task="grpo", layout=layout + more, rl=SAMPLED, measured="step_seconds: 100")
        seconds[name] = found["step_seconds"]["predicted"]
    moved = 12 * 8_030_261_248 / 8 / 3.3e9 * float(slower().value)
    assert seconds["moved"] - seconds["kept"] == pytest.approx(moved, rel=0.01)


def test_trls_micro_batches_are_responses(tmp_path: pathlib.Path) -> None:
    """trl/trainer/grpo_config.py, generation_batch_size: 2 on each of 8 GPUs, twice, are 32 responses to 4 prompts of
    num_generations 8. Other libraries count prompts."""
    layout = "micro_batch: 2, grad_accum: 2, precision: amp-bf16, trainer: {}, stack: fsdp, zero: 3"
    lengths = "prompt_length_mean: 200, response_length_mean: 1000, response_length_max: 2048, rollout_tp: 1"
    open_ = validated(tmp_path, task="grpo", layout=layout.format("trl"), rl=lengths, measured=UPDATE)
    said = f"{lengths}, group: 8, prompts: 4"
    stated = validated(tmp_path, task="grpo", layout=layout.format("trl"), rl=said, measured=UPDATE)
    assert open_["update_seconds"]["predicted"] == stated["update_seconds"]["predicted"]
    other = validated(tmp_path, task="grpo", layout=layout.format("verl"), rl=lengths, measured=UPDATE)
    assert "how many responses a step has is not stated" in other["update_seconds"]["why"]


def test_an_engine_that_generates_all_the_time_gives_the_log_probabilities(tmp_path: pathlib.Path) -> None:
    """As verl takes them, unless the row says that both are decoupled: a pass less."""
    rl = SAMPLED.replace("on_policy: on policy,", "mode: fully_async,")
    rl += ", trainer_gpus: 4, rollout_gpus: 4, reference: none"
    taken, decoupled = (
        validated(tmp_path, task="grpo", layout=GRPO, rl=f"{rl}{also}", measured="logprob_seconds: 3")[
            "logprob_seconds"
        ]
        for also in ("", ", decoupled: true")
    )
    assert "the engine gives the log-probabilities" in taken["why"]
    assert decoupled["predicted"] > 0


def test_a_limit_alone_makes_a_range_of_answers(tmp_path: pathlib.Path) -> None:
    """Answers of 500 to 4/5 of 4,096 tokens, 1 / (1/4,096 + 1/834) likely, and prompts of at most 50 are 50."""
    means = "prompt_length_mean: 200, response_length_mean: 1000"
    asked = SAMPLED.replace(means, "prompt_length_max: 50")
    rows = {
        said: validated(
            tmp_path, task="grpo", layout=GRPO, rl=f"{asked}, {more}, response_length_max: 4096", measured=UPDATE
        )
        for said, more in (
            ("most", "response_length_mean: 3276"),
            ("likely", "response_length_mean: 693"),
            ("least", "response_length_mean: 500"),
        )
    }
    asked += ", response_length_max: 4096"
    found = validated(tmp_path, task="grpo", layout=GRPO, rl=asked, measured=UPDATE)["update_seconds"]
    least, likely, most = (rows[said]["update_seconds"] for said in ("least", "likely", "most"))
    ends(found, likely, [least, most])
    assert least["predicted"] < found["predicted"] < most["predicted"]
    assert found["evidence"] == "assumed"


def test_of_streamed_answers_only_the_update_is_known(tmp_path: pathlib.Path) -> None:
    asked = SAMPLED.replace("on policy,", "fully async, trainer_gpus: 4, rollout_gpus: 4,")
    found = validated(tmp_path, task="grpo", layout=GRPO, rl=asked, measured=f"{UPDATE}, gen_seconds: 9")
    assert "the wait for them" in found["gen_seconds"]["why"]
    assert found["update_seconds"]["predicted"] > 0


def test_sequences_are_sent_with_the_padding_that_a_version_sends(tmp_path: pathlib.Path) -> None:
    """6,400 answers of at most 128 tokens to prompts of at most 20,352: verl before 0.8 sends as many as its pull
    request 3495 did in 19.86 s; since then the 2,240 that each has, and where answers are streamed nothing is known."""
    asked = SAMPLED.replace("prompts: 64", "prompts: 800").replace(
        "response_length_mean: 1000", "response_length_mean: 40"
    )
    asked = asked.replace("prompt_length_mean: 200", "prompt_length_mean: 2200, prompt_length_max: 20352")
    asked += ", response_length_max: 128, reference: none"
    layout = "zero: 3, precision: bf16-mixed, stack: fsdp, trainer: verl, micro_batch: 8"

    def update(versions: str, rl: str = asked) -> float:
        found = validated(tmp_path, task="grpo", layout=f"{layout}{versions}", rl=rl, measured=UPDATE)
        return float(found["update_seconds"]["predicted"]) / float(slower("hand-made").value)

    padded, real = update(""), update(", versions: verl 0.8")
    assert update(", versions: verl 0.7") == padded
    assert padded - real == pytest.approx(19.86 * (1 - 2240 / 20480))


def test_no_step_waits_for_the_longest_of_streamed_answers(tmp_path: pathlib.Path) -> None:
    """Each is trained on when it ends, so a higher limit changes only their attention, by less than a hundredth of a
    step; where the next answers as a whole are generated meanwhile, each token more of the longest that is expected
    takes half a decoding step, as NeMo RL generates two steps' together; one reads 16.06 GB at 3.35 TB/s at most."""

    def step(mode: str, longest: int) -> float:
        asked = SAMPLED.replace(
            "on policy,", f"{mode}, trainer_gpus: 4, rollout_gpus: 4, response_length_max: {longest},"
        )
        layout = f"{GRPO}, micro_batch: 1"
        found = validated(tmp_path, task="grpo", layout=layout, rl=asked, measured="step_seconds: 60")
        return float(found["step_seconds"]["predicted"])

    assert step("fully async", 16384) == pytest.approx(step("fully async", 4096), rel=0.01)
    shorter, longer = (longest_of_step(limit, 1000, 512, "llama") for limit in (16384, 65536))
    assert step("1-step Off", 65536) > step("1-step Off", 16384) + (longer - shorter) / 2 * 16.06e9 / 3.35e12
    assert longer > shorter


def test_models_of_rewards_and_values_that_a_row_names_run_in_its_step(tmp_path: pathlib.Path) -> None:
    rl = f"{SAMPLED}, reference: frozen copy, critic: {{0}}, reward_model: {{0}}"
    small, large = (
        validated(tmp_path, task="ppo", layout=GRPO, rl=rl.format(name), measured="step_seconds: 30")["step_seconds"]
        for name in ("llama3.2-1b", "llama3-8b")
    )
    line = (
        "step llama3-8b --task ppo --gpus 8 --hardware h100 --trainer nemo-rl --zero 1 --prompt-tokens 200 "
        "--response-tokens 1000 --samples-per-prompt 8 --global-batch 64 --rollout-tp 1 --precision bf16-mixed "
        "--reference same --reward llama3.2-1b --critic llama3.2-1b --json"
    )
    assert small["predicted"] == pytest.approx(run_line(line).values["step/time"])
    assert large["predicted"] > 1.3 * small["predicted"]


def test_degrees_of_a_trainer_are_the_first_on_which_its_step_fits(tmp_path: pathlib.Path) -> None:
    """70B weights in 16 bits are 141 GB, and 141 more of the reference: eight ranks divide them on 80 GB cards."""
    row = {"task": "grpo", "rl": SAMPLED.replace("rollout_tp: 1", "rollout_tp: 4"), "measured": UPDATE, "count": 128}
    found = [
        validated(tmp_path, layout=layout, model="llama3-70b", **row)["update_seconds"]["predicted"]
        for layout in (GRPO.replace("tp: 1, ", ""), GRPO.replace("tp: 1", "tp: 8"))
    ]
    assert found[0] == found[1]


def test_the_page_on_fine_tuning_says_what_the_interval_rests_on() -> None:
    page = " ".join(
        pathlib.Path(__file__).parents[1].joinpath("docs/fine-tuning.md").read_text(encoding="utf-8").split()
    )
    assert f"The factor, {float(slower().value):.1f}," in page
    sources = len({title_of(source) for _, source, *_ in SEEN})
    assert f"that of {len(SEEN)} published steps and phases of {sources} sources" in page
