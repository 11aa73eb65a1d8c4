"""What a model is trained for: sequences of a sample, models next to it, logits, FLOPs and time, by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from napkin.operations.losses import LOSSES
from napkin.training.tasks import TASKS
from tests.conftest import Napkin, answered, run_line

GPT2 = 124_439_808
"""Parameters of gpt2, whose head is tied to its embedding."""
LLAMA = 8_030_261_248
SMALL = "gpt2 --seq 512 --precision bf16-pure"


def values(line: str) -> dict[str, Any]:
    return run_line(f"{line} --json").values


def test_a_pair_is_two_sequences() -> None:
    """A loss fused with the head keeps no logits, so that a pair is a micro-batch of two and nothing else."""
    pair = values(f"memory {SMALL} --task dpo --reference precomputed --loss fused")
    two = values(f"memory {SMALL} --micro-batch 2 --loss fused")
    assert pair["memory/live"] == two["memory/live"]
    assert pair["memory/activations/saved"] == two["memory/activations/saved"]


def test_a_reference_is_a_second_copy_of_the_weights_that_zero_3_alone_divides() -> None:
    line = "memory llama3-8b --task dpo --gpus 8 --recompute full --seq 512"
    assert values(f"{line} --zero 1")["memory/models/reference"] == 2 * LLAMA
    assert values(f"{line} --zero 3")["memory/models/reference"] == pytest.approx(2 * LLAMA / 8, rel=1e-6)
    other = values(f"{line} --zero 1 --reference gpt2")
    assert other["memory/models/reference"] == 2 * GPT2
    assert other["memory/parameters"] == 2 * LLAMA
    assert "memory/models" not in values(f"{line} --lora-rank 8")
    assert "memory/models" not in values(f"{line} --reference precomputed")


def test_logits_of_both_models_and_a_copy_are_there_at_once() -> None:
    """Of the pair's 2 · 512 · 50,257 logits: 2 bytes that the loss holds, 2 of the reference, 2 of a copy of them for
    the entropy; and the hidden states that the reference's head reads."""
    found = values(f"memory {SMALL} --task dpo")
    logits = 2 * 512 * 50_257
    hidden = 2 * 512 * 768 * 2
    assert found["memory/at/forward_only/temporaries"] == 6 * logits + hidden
    wide = values("memory gpt2 --seq 512 --precision amp-bf16 --task dpo")
    assert wide["memory/at/forward_only/temporaries"] == 8 * logits + 2 * hidden
    # fp32 adapters next to a 16-bit head, without autocast
    adapted = values("memory gpt2 --seq 512 --task dpo --lora-rank 4 --precision frozen=bf16,param=fp32")
    assert adapted["memory/at/forward_only/temporaries"] == 6 * logits + hidden
    # the same under autocast: accelerate casts the logits, and the hidden state stays in 16 bits
    cast = values("memory gpt2 --seq 512 --task dpo --lora-rank 4 --precision frozen=bf16,param=fp32,compute=bf16")
    assert cast["memory/at/forward_only/temporaries"] == 8 * logits + hidden


def test_the_log_softmax_is_kept_in_16_bits_and_the_logits_in_fp32() -> None:
    """Next to a loss that keeps no logits but two gradients: of the hidden states, and of the head."""
    kept = {
        name: values(f"memory {SMALL} --task simpo --loss {name}")["memory/activations/saved"]
        for name in ("fused", "log-probs", "log-probs-fp32")
    }
    logits = 2 * 512 * 50_257
    assert kept["log-probs-fp32"] - kept["log-probs"] == 2 * logits
    fused = 2 * 512 * 768 * 2 + 50_257 * 768 * 2
    assert kept["log-probs"] - kept["fused"] == pytest.approx(2 * logits - fused, abs=2 * 512 * 768 * 2 + 16)


def test_the_mfu_of_pairs_has_both_sequences_and_the_reference_s_pass() -> None:
    """Two sequences a sample, and of four forward passes' FLOPs (forward, backward twice as much) one more: 2 · 4/3 of
    a sequence that is trained on. What is recomputed is one of them."""
    line = "mfu gpt2 --seq 512 --hardware h100 --gpus 1 --samples-per-second 10 --recompute full"
    pairs, plain = values(f"{line} --task dpo"), values(line)
    assert pairs["mfu/torch"] == pytest.approx(plain["mfu/torch"] * 2 * 4 / 3)
    again = plain["hfu/torch"] - plain["mfu/torch"]
    assert pairs["hfu/torch"] - pairs["mfu/torch"] == pytest.approx(2 * again)
    assert (
        "belongs to a MODEL"
        in run_line("mfu --params 8B --task dpo --hardware h100 --tokens-per-second 9 --gpus 1").err
    )


def test_a_divergence_keeps_what_autograd_does() -> None:
    """trl's generalized Jensen–Shannon divergence, beta 0.5: bytes for each logit, both models' logits not counted."""
    rows, width = 16, 512
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    student = torch.randn(rows, width, dtype=torch.bfloat16, requires_grad=True)
    teacher = torch.randn(rows, width, dtype=torch.bfloat16)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        mine, its = (torch.log_softmax(logits / 0.9, -1) for logits in (student, teacher))
        half = torch.tensor(0.5, dtype=mine.dtype)
        both = torch.stack([mine + torch.log(1 - half), its + torch.log(half)])
        mixture = torch.logsumexp(both, 0)
        parts = [torch.nn.functional.kl_div(mixture, one, reduction="none", log_target=True) for one in (its, mine)]
        assert (half * parts[0] + (1 - half) * parts[1]).sum().requires_grad
    large = sum(size for size in kept.values() if size >= 2 * rows * width)
    assert LOSSES["divergence"].kept * rows * width == pytest.approx(large, rel=0.15)


def test_distillation_has_the_teacher_s_weights_pass_and_logits() -> None:
    """At the loss 30 bytes for each logit, both models' own counted in; a pass of 2N without gradients, no pairs."""
    line = "memory gpt2 --seq 512 --precision bf16-pure --task distill --reference gpt2-medium"
    found, alone = values(line), values(f"memory {SMALL} --loss fused")
    logits = 512 * 50_257
    assert found["memory/models/reference"] == 2 * 354_823_168
    others = alone["memory/activations/saved"] - 512 * 768 * 2 - 50_257 * 768 * 2  # without the fused loss's gradients
    loss = found["memory/at/loss/temporaries"] + found["memory/at/loss/activations"] - others
    assert loss == pytest.approx(30 * logits, rel=0.01)
    step = values("flops gpt2 --seq 512 --task distill --reference gpt2-medium")
    usual = values("flops gpt2 --seq 512")
    teacher = values("flops gpt2-medium --seq 512")
    assert step["flops/total"] == usual["flops/total"] + teacher["flops/forward"]
    stored = values(line.replace("gpt2-medium", "precomputed"))
    assert "memory/models" not in stored


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--task distill", "which teacher"),
        ("--task distill --reference same", "a teacher is another model"),
        ("--task distill --reference gpt2-medium --loss fused", "not modeled"),
        ("--task sft --loss divergence", "--task distill"),
    ],
)
def test_what_distillation_is_not_is_refused(line: str, says: str) -> None:
    answer = run_line(f"memory gpt2 {line}")
    assert answer.status in (2, 3)
    assert says in answer.err


@pytest.mark.parametrize(
    ("task", "sequences", "passes"),
    [
        ("sft", 1, 3),
        ("dpo", 2, 4),
        ("simpo", 2, 3),
        ("orpo", 2, 3),
        ("kto", 1, 6),
        ("dpo --reference precomputed", 2, 3),
    ],
)
def test_flops_are_those_of_the_passes(task: str, sequences: int, passes: int) -> None:
    """Forward once and backward twice; the reference forward; KTO's mismatched answers forward in both models."""
    one = values("flops gpt2 --seq 512")["flops/forward"]
    found = values(f"flops gpt2 --seq 512 --task {task}")
    assert found["flops/forward"] == sequences * one
    assert found["flops/total"] == sequences * passes * one
    assert found["flops/per_token"] == pytest.approx(passes * one / 512)


def test_a_reward_model_has_one_output() -> None:
    """Its head is a vector of 768 weights instead of the embedding: 2 · 512 tokens · 768 multiply-adds of two."""
    assert values(f"memory {SMALL} --task rm")["memory/parameters"] == 2 * (GPT2 + 768)
    found = values("flops gpt2 --seq 512 --task rm")
    assert found["flops/operation/score"] == 2 * (2 * 512) * 768
    assert "flops/operation/lm_head" not in found


def test_the_time_of_a_step_has_the_reference_as_a_part() -> None:
    line = "step llama3-8b --gpus 8 --hardware h100 --zero 3 --seq 2048 --stack fsdp-compiled"
    without = values(f"{line} --task dpo --reference precomputed")
    found = values(f"{line} --task dpo")
    assert found["step/time"] == pytest.approx(without["step/time"] + found["step/reference"])
    assert without["step/time"] == pytest.approx(values(f"{line} --micro-batch 2")["step/time"])
    # a forward pass is a third of the three, and has less to wait for
    assert 0.2 < found["step/reference"] / without["step/time"] < 0.4
    # without its adapters the model passes faster than with them
    adapters = values(f"{line} --task dpo --lora-rank 16")
    assert adapters["step/reference"] < adapters["step/time"] / 2
    assert found["mfu"] > 0


def test_plan_and_step_say_the_same() -> None:
    """The line that a row of the plan gives for `step`."""
    rows = run_line("plan llama3-8b --task dpo --gpus 8 --hardware h100 --seq 1024 --global-batch 32 --json").data[
        "rows"
    ]
    row = next(one for one in rows if one["recommended"])
    found = values(row["command"].removeprefix("napkin "))
    assert found["step/time"] == pytest.approx(row["time"])
    assert found["memory/total"] == row["memory"]
    assert found["step/reference"] > 0


def test_samples_are_pairs() -> None:
    line = "train-time llama3-8b --gpus 8 --hardware h100 --zero 3 --seq 1024 --samples 60k --sample-tokens 600"
    assert values(f"{line} --task dpo")["tokens"] == 2 * 60_000 * 600
    assert values(f"{line} --task kto")["tokens"] == 60_000 * 600


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("memory gpt2 --task simpo --reference same", "--task simpo has no reference model"),
        ("memory gpt2 --reference same", "no task has a reference model"),
        ("memory gpt2 --task dpo --reference adapters-off", "needs adapters"),
        ("memory gpt2 --task dpo --loss chunked", "log-probabilities"),
        ("memory gpt2 --task ppq", "is not one of"),
        ("memory llama3-8b --task dpo --reference gpt2 --gpus 2 --pp 2", "another model"),
    ],
)
def test_what_has_no_meaning_is_refused(line: str, says: str) -> None:
    answer = run_line(line)
    assert answer.status in (2, 3)
    assert says in answer.err


def test_every_task_is_an_option_and_says_its_source() -> None:
    from napkin.options.training import TASKS as WORDS

    assert set(WORDS) == set(TASKS)
    assert all(task.source for name, task in TASKS.items() if name != "pretrain")


def test_fine_tuning_is_advised_in_the_order_in_which_people_try() -> None:
    """On 80 GB adapters are enough by themselves; on 24 GB only 4-bit weights and recomputation together."""
    line = "memory llama3.1-8b --task sft --seq 2048 --json --hardware"
    changes = [row["change"] for row in run_line(f"{line} a100-80gb").data["suggestions"]]
    assert changes[:2] == ["--lora-rank 16", "--lora-rank 16 --quantized nf4"]
    assert changes[-1].startswith("--gpus")
    small = run_line(f"{line} rtx4090 --micro-batch 2").data["suggestions"]
    assert "--quantized nf4" in small[0]["change"]
    assert "--recompute" in small[0]["change"]
    for row in small:
        found = run_line(row["command"].removeprefix("napkin ") + " --json").data
        assert found["verdict"] == "fits"
        assert found["values"]["memory/used"] == row["used"]


def test_plan_prefers_what_surely_fits_with_pairs_too(napkin: Napkin) -> None:
    """GPU-seconds of a token count both sequences of a pair, in the search as in the rows."""
    rows = napkin("plan llama3-8b --task dpo --gpus 8 --hardware h100 --seq 2048 --json").data["rows"]
    chosen = next(row for row in rows if row["recommended"])
    assert any(row["fit"] == "fits" and row["time"] <= rows[0]["high"] for row in rows)
    assert chosen["fit"] == "fits"


def test_advice_names_each_change_once(napkin: Napkin) -> None:
    changes = [
        one["change"]
        for one in napkin("memory llama3-8b --task dpo --hardware h100 --lora-rank 16 --json").data["suggestions"]
    ]
    assert len(changes) == len(set(changes)) > 1


def test_gkd_holds_what_distillation_does_and_has_no_time_without_an_engine(napkin: Napkin) -> None:
    """TRL's GKD generates with the model itself before some steps; the step is distillation's."""
    line = "memory qwen2.5-0.5b --reference qwen2.5-1.5b --seq 1024 --json --task"
    assert napkin(f"{line} gkd").values == napkin(f"{line} distill").values
    for command in ("step", "plan"):
        refused = napkin(f"{command} qwen2.5-0.5b --task gkd --reference qwen2.5-1.5b --gpus 1 --hardware h100")
        assert refused.status == 3
        assert "itself generates responses is not modeled" in refused.err


TAUGHT = "qwen3-8b --task {} --reference qwen3-14b --gpus 8 --hardware h100 --zero 3"
SAMPLED = "--prompt-tokens 200 --response-tokens 500 --global-batch 64 --rollout colocated:0.3"


def test_an_engine_generates_for_distillation_in_a_share_of_the_steps(napkin: Napkin) -> None:
    """What each step has is in all of them; generation and the transfer of weights only where the engine generates, of
    as many tokens as GRPO of one response per prompt."""
    line = f"step {TAUGHT.format('gkd')} {SAMPLED} --json"
    usual, half, every = (napkin(f"{line}{more}").values for more in ("", " --on-policy 0.5", " --on-policy 1"))
    assert usual == half
    for path in ("step/generation", "step/weight_transfer"):
        assert half[path] == pytest.approx(every[path] / 2, rel=1e-12)
    for path in ("step/reference", "step/update"):
        assert half[path] == every[path]
    assert half["step/time"] == pytest.approx(
        every["step/time"] - half["step/generation"] - half["step/weight_transfer"]
    )
    grpo = napkin(
        f"step {TAUGHT.format('grpo')} {SAMPLED} --samples-per-prompt 1 --json".replace("--reference qwen3-14b", "")
    )
    assert grpo.values["step/generation"] == every["step/generation"]
    assert "step/logprobs" not in every
    assert napkin(line.replace("gkd", "distill")).values["step/time"] == every["step/time"]
    run = napkin(f"train-time{line.removeprefix('step')} --samples 6400 --epochs 2").values
    assert run["time/uninterrupted"] == pytest.approx(200 * half["step/time"])


def test_the_engine_of_distillation_shares_the_gpu_with_teacher_and_model(napkin: Napkin) -> None:
    """Next to the engine's three tenths lie the states of the step without an engine, and no activations."""
    line = f"memory {TAUGHT.format('distill')}"
    found = napkin(f"{line} {SAMPLED} --json").values
    alone = napkin(f"{line} --seq 700 --global-batch 64 --json").values
    held = sum(found[f"memory/{name}"] for name in ("parameters", "models", "optimizer", "overhead"))
    assert found["memory/phase/rollout"] == pytest.approx(0.3 * found["memory/capacity"] + held)
    for name in ("parameters", "models", "optimizer", "gradients"):
        assert found[f"memory/{name}"] == alone[f"memory/{name}"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"step {TAUGHT.format('gkd')} {SAMPLED} --reward qwen3-4b", "--reward has no effect here"),
        (f"memory {TAUGHT.format('gkd')} --on-policy 0.3", "--on-policy has no effect here: no engine generates"),
        (
            f"step {TAUGHT.format('grpo')} {SAMPLED} --samples-per-prompt 4 --on-policy 0.3",
            "--on-policy has no effect here: --task grpo generates all responses",
        ),
        (f"step {TAUGHT.format('gkd')} {SAMPLED} --on-policy 0", "is not a share above 0"),
    ],
)
def test_options_of_the_engine_are_refused_where_they_mean_nothing(napkin: Napkin, line: str, said: str) -> None:
    refused = napkin(line)
    assert refused.status == 2
    assert said in refused.err


@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_plan_of_distillation_has_the_memory_of_memory(napkin: Napkin, gpus: int) -> None:
    """The teacher's tape has its own layouts: one sequence in a micro-batch or several, of those that may fit."""
    line = (
        f"plan qwen3-8b --task distill --reference qwen3-14b --gpus {gpus} --hardware h100 --seq 512 --global-batch 64"
    )
    found = napkin(f"{line} --json --rows 4").data
    assert found["rows"]
    for row in found["rows"]:
        again = napkin(row["command"].removeprefix("napkin ") + " --json")
        assert again.values["memory/total"] == row["memory"]


def test_plan_gives_an_engine_less_where_nothing_fits_next_to_its_usual_share(napkin: Napkin) -> None:
    """Half of the card is too much next to the states of all weights on four GPUs, and the host is slow."""
    line = f"plan qwen3-8b --task grpo --gpus 4 --hardware h100 {SAMPLED} --samples-per-prompt 1 --json"
    free = napkin(line.replace(" --rollout colocated:0.3", "")).data
    used = next(row for row in free["rows"] if row["recommended"])
    assert (used["rollout"], used["rollout-offload"], used["fit"]) == ("colocated:0.25", "", "fits")
    stated = napkin(line.replace("colocated:0.3", "colocated:0.5")).data["rows"]
    assert {row["rollout"] for row in stated} == {"colocated:0.5"}
    assert used["step/time"] < next(row["step/time"] for row in stated if row["fit"] == "fits")


def test_plan_advises_what_memory_does_where_no_layout_of_a_task_fits(napkin: Napkin) -> None:
    """On one card of 24 GB: adapters first, each with the layout that `plan` then recommends; then the host, which must
    hold weights, gradients, master copies and moments of 16 bytes per parameter, and what the pass keeps."""
    line = "plan llama3-8b --gpus 1 --hardware rtx4090 --task sft --seq 1024"
    found = napkin(f"{line} --json")
    assert found.data["verdict"] == "impossible"
    rows = found.data["suggestions"]
    assert [row["change"].partition(" --offload")[0] for row in rows[:2]] == [
        "--lora-rank 16",
        "--lora-rank 16 --quantized nf4",
    ]
    for row in rows[:2]:
        again = napkin(row["command"].removeprefix("napkin ") + " --json")
        assert again.data["verdict"] == "fits"
        assert again.values["memory/total"] == row["used"]
        assert again.values["step/time"] == row["step/time"]
    offloaded = next(row for row in rows if "--offload" in row["change"])
    assert offloaded["host"] > 16 * 8.03e9
    there = napkin(f"{line} --host-memory 128GB --json").data["suggestions"]
    assert [row["change"] for row in there] == [row["change"] for row in rows if row is not offloaded]
    assert "nothing is kept" in napkin(f"{line} --lora-rank 16 --host-memory 128GB").err


def test_a_reward_model_has_no_logits_to_fuse(napkin: Napkin) -> None:
    """Its loss is over a score of each sequence: --loss has no effect, and is no suggestion with any tp."""
    line = "memory llama3.2-1b --task rm --gpus 2 --hardware rtx4090 --json"
    refused = napkin(f"{line} --loss fused")
    assert refused.status == 2
    assert "--loss has no effect here" in refused.err
    found = napkin(f"{line} --tp 2 --seq 32768 --micro-batch 8")
    assert found.data["verdict"] == "does not fit"
    assert not [row for row in found.data["suggestions"] if "--loss" in row["change"]]


def test_plan_times_what_it_advises_with_states_on_the_host(napkin: Napkin) -> None:
    """12 bytes per parameter of master copies and moments leave the one card; the answer to the printed command is the
    row's, and too small a host takes the advice away."""
    line = "plan llama3-8b --gpus 1 --hardware h100 --task sft --seq 2048 --global-batch 16"
    row = napkin(f"{line} --json").data["suggestions"][-1]
    assert row["change"] == "--offload optimizer"
    assert row["host"] == pytest.approx(12 * 8_030_261_248, rel=1e-6)  # and a step count per tensor
    again = napkin(row["command"].removeprefix("napkin ") + " --json")
    assert again.data["verdict"] == "fits"
    assert again.values["memory/total"] == row["used"]
    assert again.values["step/time"] == row["step/time"]
    for size, there in (("95GB", False), ("97GB", True)):  # 96.4 GB are kept
        rows = napkin(f"{line} --host-memory {size} --json").data["suggestions"]
        assert any("--offload" in one["change"] for one in rows) == there


def test_plan_judges_the_host_of_what_is_paged(napkin: Napkin) -> None:
    """bitsandbytes' paged 8-bit states: 2 bytes per parameter and their scales, which ZeRO shards over two GPUs."""
    line = "plan llama3-8b --gpus 2 --hardware h100 --task sft --seq 2048 --optimizer paged-adamw-8bit --json"
    small, large = (napkin(f"{line} --host-memory {size}") for size in ("10GB", "100GB"))
    assert small.data["verdict"] == "does not fit"
    assert large.data["verdict"] == "fits"
    assert 2 * 8.03e9 < small.values["memory/host"] < 2.2 * 8.03e9 * 2


def test_sharding_over_the_gpus_that_are_there_is_advised_before_adapters(napkin: Napkin) -> None:
    """Eight GPUs hold 16 bytes of each of 8.03e9 parameters between them: 16 GB each, if one copy takes 128 GB."""
    line = "memory llama3.1-8b --task sft --gpus 8 --hardware h100 --seq 4096 --json"
    rows = napkin(line).data["suggestions"]
    assert rows[0]["change"] == "--zero 3"
    assert "trains" not in rows[0]
    assert rows[1]["change"] == "--lora-rank 16"
    one = napkin("memory llama3.1-8b --task sft --gpus 1 --hardware h100 --seq 4096 --json").data["suggestions"]
    assert not any(row["change"].startswith("--zero") for row in one[:2])


def test_long_samples_are_advised_what_keeps_their_length(napkin: Napkin) -> None:
    """128,256 logits of 32,768 tokens in 2 and 4 bytes are 25 GB: Liger's loss, which has none of them, before a
    shorter sequence; and where one sequence is too long for a GPU, several share it."""
    line = "memory llama3.1-8b --gpus 8 --hardware h100 --json"
    changes = [row["change"] for row in napkin(f"{line} --seq 32Ki --lora-rank 16").data["suggestions"]]
    assert changes[0] == "--recompute full --loss fused"
    assert changes[1].startswith("--seq ")
    changes = [row["change"] for row in napkin(f"{line} --seq 128Ki --task sft").data["suggestions"]]
    assert changes[0].startswith("--cp ")


def test_adapters_alone_make_it_fine_tuning(napkin: Napkin) -> None:
    """The same advice with and without --task sft, which adds nothing to LoRA."""
    line = "memory llama3.1-8b --lora-rank 16 --hardware rtx4090 --seq 4096 --json"
    assert napkin(line).data["suggestions"][:1] == [
        {**row, "command": row["command"].replace(" --task sft", "")}
        for row in napkin(f"{line} --task sft").data["suggestions"][:1]
    ]


@pytest.mark.parametrize("more", ["--task sft", "--lora-rank 16", "--task dpo"])
def test_plan_and_step_of_fine_tuning_run_on_the_same_software(napkin: Napkin, more: str) -> None:
    """A model of transformers over data-parallel ranks, uncompiled, and no pipeline or tensor parallelism unless asked
    for; pre-training is planned with Megatron's layouts."""
    line = f"plan llama3.1-8b --gpus 8 --hardware h100 {more} --json"
    found = napkin(line)
    assert found.data["inputs"]["stack"]["value"] == "fsdp-eager"
    assert found.data["inputs"]["implementation"]["value"] == "hf"
    assert {(row["tp"], row["pp"]) for row in found.data["rows"]} == {(1, 1)}
    step = napkin(f"step llama3.1-8b --gpus 8 --hardware h100 --zero 3 {more} --json")
    assert step.data["inputs"]["stack"]["value"] == "fsdp-eager"
    only, wider = (napkin(f"{line} {tp} 2") for tp in ("--tp", "--max-tp"))
    assert {row["tp"] for row in only.data["rows"]} == {2}
    assert wider.values["layouts"] == found.values["layouts"] + only.values["layouts"]
    assert answered("plan llama3.1-8b --gpus 8 --hardware h100").inputs["stack"].value == "megatron-core"


def test_plan_runs_on_the_framework_that_is_named(napkin: Napkin) -> None:
    """FSDP and DeepSpeed are not Megatron: their own software, and no pipeline of a model of transformers."""
    for framework in ("fsdp", "deepspeed"):
        found = napkin(f"plan llama3.1-8b --gpus 8 --hardware h100 --framework {framework} --json").data
        assert found["inputs"]["stack"]["value"] == "fsdp-eager"
        assert {row["pp"] for row in found["rows"]} == {1}


@pytest.mark.parametrize("command", ["memory", "plan"])
def test_host_memory_is_noted_where_no_offload_is_enough(command: str) -> None:
    """A step that no GPU of the machine holds keeps nothing on a host, whatever its size; `plan` and `memory` take the
    size alike."""
    line = f"{command} deepseek-v3 --gpus 8 --hardware h100 --json"
    plain, sized = run_line(line), run_line(f"{line} --host-memory 2000GB")
    assert sized.status == plain.status
    assert sized.values == plain.values
