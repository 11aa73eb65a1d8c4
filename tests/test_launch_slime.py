"""slime's launch scripts: whose GPUs, batches of responses, lengths, engines and the model behind two descriptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from napkin.inputs.launch.read import read_launch, reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.syntax import source_of
from tests.conftest import Napkin

SIZES = """MODEL_ARGS=(
   --swiglu --num-layers {layers} --hidden-size 2560 --ffn-hidden-size 9728 --num-attention-heads 32
   --group-query-attention --num-query-groups 8 --kv-channels 128 --qk-layernorm --disable-bias-linear
   --normalization RMSNorm --position-embedding-type rope --vocab-size 151936
)
"""
SCRIPT = """#!/bin/bash
{models}
ROLLOUT_ARGS=(
   --num-rollout 3000 --rollout-batch-size 32 --n-samples-per-prompt 8 --rollout-max-response-len 8192
   --prompt-data /root/dapo.jsonl --input-key prompt --rm-type deepscaler
)
PERF_ARGS=(
   --tensor-model-parallel-size 2 --sequence-parallel --recompute-granularity full --recompute-method uniform
   --recompute-num-layers 1
)
ray job submit --address="http://127.0.0.1:8265" \\
   -- python3 {program} \\
   --actor-num-nodes 2 \\
   --actor-num-gpus-per-node 8 \\
   {more} \\
   ${{MODEL_ARGS[@]}} \\
   ${{ROLLOUT_ARGS[@]}} \\
   ${{PERF_ARGS[@]}}
"""
COLOCATED = "--colocate --rollout-num-gpus-per-engine 4 --sglang-mem-fraction-static 0.7"


def slime(
    more: str, models: str = "", checkpoint: str = "--hf-checkpoint /root/Qwen3-4B", program: str = "train.py"
) -> Reading:
    text = SCRIPT.format(more=f"{checkpoint} {more}", models=models, program=program)
    return reading_of(source_of(text, "run.sh"))


def values(reading: Reading) -> dict[str, Any]:
    return {name: one.value for name, one in reading.inputs.items()}


def test_a_step_trains_on_the_responses_to_its_prompts() -> None:
    """The global batch counts responses: 32 × 8 in two updates of 128, which are those to 16 prompts."""
    found = values(slime(f"{COLOCATED} --global-batch-size 128 --advantage-estimator gspo"))
    expected = {"task": "grpo", "steps": 3000, "samples-per-prompt": 8, "global-batch": 16, "updates": 2, "gpus": 16}
    assert {name: found[name] for name in expected} == expected
    assert values(slime(f"{COLOCATED} --num-steps-per-rollout 4"))["global-batch"] == 8
    assert values(slime(COLOCATED))["global-batch"] is None
    assert (found["tp"], found["sp"], found["zero"], found["recompute"]) == (2, True, 1, "full")
    assert found["precision"] == "param=bf16,grad=fp32,compute=bf16,state=fp32,master=fp32"


def test_a_dynamic_batch_counts_tokens() -> None:
    assert values(slime(COLOCATED))["micro-batch"] == 1
    dynamic = slime(f"{COLOCATED} --use-dynamic-batch-size --max-tokens-per-gpu 9216")
    assert dynamic.inputs["micro-batch"].value is None
    assert "--max-tokens-per-gpu" in dynamic.inputs["micro-batch"].where


@pytest.mark.parametrize(
    ("more", "seq"),
    [("", None), ("--rollout-max-prompt-len 1024", 9216), ("--rollout-max-context-len 16384", 16384)],
)
def test_the_sequence_is_open_without_the_longest_prompt(more: str, seq: int | None) -> None:
    found = slime(f"{COLOCATED} {more}")
    assert found.inputs["seq"].value == seq
    assert found.value_of("max-response-tokens") == 8192


def test_engines_share_the_actors_gpus_or_have_others() -> None:
    """slime/ray/placement_group.py: actor + rollout GPUs, unless colocated."""
    shared = values(slime(COLOCATED))
    assert (shared["rollout"], shared["rollout-tp"], shared["gpus"]) == ("colocated:0.7", 4, 16)
    apart = values(slime("--rollout-num-gpus 4 --rollout-num-gpus-per-engine 2", program="train_async.py"))
    assert (apart["rollout"], apart["rollout-tp"], apart["gpus"]) == ("separate:4", 2, 20)
    assert apart["off-policy-steps"] == 1
    assert "off-policy-steps" not in shared
    assert values(slime("--colocate"))["rollout"] is None  # SGLang chooses its share


@pytest.mark.parametrize(
    ("more", "reference", "origin"),
    [
        ("--use-kl-loss --kl-loss-coef 0.00", "same", "derived"),  # arguments.py loads it whatever the weight
        ("--kl-coef 0.01", "same", "derived"),
        ("--kl-coef 0.00", "none", "default"),
        ("", "none", "default"),
    ],
)
def test_kl_needs_the_reference(more: str, reference: str, origin: str) -> None:
    found = slime(f"{COLOCATED} --ref-load /root/ref {more}")
    assert (found.inputs["reference"].value, found.inputs["reference"].origin) == (reference, origin)


def test_the_checkpoints_name_wins_over_sizes_that_agree_with_it() -> None:
    agreeing = slime(COLOCATED, SIZES.format(layers=36))
    assert (agreeing.value_of("model"), agreeing.shape) == ("qwen3-4b", {})
    cut = slime(COLOCATED, SIZES.format(layers=5))
    assert cut.shape["layers"] == 5
    unnamed = slime(COLOCATED, SIZES.format(layers=36), "--hf-checkpoint /root/mine")
    assert unnamed.value_of("model") == "qwen3-4b"  # its sizes are Qwen3-4B's
    assert slime(COLOCATED, checkpoint="--hf-checkpoint /root/mine").value_of("model") is None


def test_the_engines_weights_may_be_quantized_where_those_that_are_trained_are_not() -> None:
    found = slime(COLOCATED, checkpoint="--hf-checkpoint /root/Qwen3-4B-FP8")
    assert found.value_of("model") == "qwen3-4b"
    assert "quantized" not in found.inputs
    assert not found.refused
    assert any("engine's weights are quantized" in one.why for one in found.not_modelled)


def test_sglang_may_capture_no_graphs() -> None:
    assert values(slime(f"{COLOCATED} --sglang-disable-cuda-graph"))["rollout-eager"] is True


def test_sft_has_no_engine() -> None:
    found = values(slime("--loss-type sft_loss --global-batch-size 128 --num-epoch 3 --debug-train-only"))
    assert (found["task"], found["global-batch"], found["gpus"]) == ("sft", 128, 16)
    assert not {"rollout", "reference", "rollout-tp"} & found.keys()


def test_what_trains_a_part_or_another_backend_is_refused() -> None:
    for more in ("--only-train-params-name-list experts", "--train-backend fsdp"):
        assert [one.key for one in slime(f"{COLOCATED} {more}").refused] == [more.split()[0]]


def test_the_optimizer_goes_to_the_host() -> None:
    tuned = "--loss-type sft_loss --optimizer-cpu-offload"
    assert slime(tuned).value_of("offload") == "optimizer"
    assert slime(f"{tuned} --optimizer-offload-fraction 0.5").inputs["offload"].value is None


def test_the_actor_leaves_its_gpus_to_engines_on_them() -> None:
    """arguments.py: with colocate, offload_train and offload_rollout are the default."""
    assert slime(COLOCATED).value_of("rollout-offload") == "optimizer,parameters"
    both = slime(f"{COLOCATED} --optimizer-cpu-offload")
    assert [both.value_of(one) for one in ("offload", "rollout-offload")] == ["optimizer", "optimizer,parameters"]
    assert "rollout-offload" not in slime(f"{COLOCATED} --no-offload-train").inputs
    assert [one.key for one in slime(f"{COLOCATED} --no-offload-rollout").refused] == ["--no-offload-rollout"]
    assert "rollout-offload" not in slime(COLOCATED.replace("--colocate", "--rollout-num-gpus 8")).inputs


def test_memory_answers_a_script_with_the_sizes_of_a_file_beside_it(napkin: Napkin, tmp_path: Path) -> None:
    """The script's folder is found as scripts commonly find it, and sizes are taken from the file that it sources."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "own.sh").write_text(SIZES.format(layers=2))
    folder = 'HERE="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" &>/dev/null && pwd)"\nsource "${HERE}/models/own.sh"'
    script = tmp_path / "run.sh"
    more = f"--hf-checkpoint /root/mine {COLOCATED} --global-batch-size 256 --rollout-max-prompt-len 1024"
    script.write_text(SCRIPT.format(more=more, models=folder, program="train.py"))
    assert read_launch(str(script)).shape["layers"] == 2
    outcome = napkin(f"memory --from {script} --hardware h200 --quiet")
    assert (outcome.status, outcome.errors) == (0, [])


def test_an_array_that_is_set_elsewhere_is_no_value_of_the_option_before_it() -> None:
    found = slime(COLOCATED.replace("--colocate ", "") + " --colocate")
    assert found.value_of("rollout") == "colocated:0.7"
    assert "$MODEL_ARGS[@]" in [one.key for one in found.not_modelled]


def test_sizes_that_a_loop_computes_leave_the_model_open() -> None:
    sizes = SIZES.format(layers=5).replace("--swiglu", "--swiglu --num-experts 8 --moe-layer-freq $FREQ")
    found = slime(COLOCATED, sizes, "--hf-checkpoint /root/mine")
    assert found.inputs["model"].value is None
    assert "--moe-layer-freq" in found.inputs["model"].where


def test_training_that_rounds_its_weights_to_int4_is_told() -> None:
    """The variable is in Ray's runtime environment (scripts/low_precision/run-qwen3-30B-A3B-int4.sh)."""
    flag = "OPEN_TRAINING_INT4_FAKE_QAT_FLAG"
    script = SCRIPT.format(more=f"--hf-checkpoint /root/Qwen3-4B {COLOCATED}", models="", program="train.py")
    for value, told in (("1", True), ("0", False)):
        text = f'ENV_JSON="{{\\"env_vars\\": {{\\"{flag}\\": \\"{value}\\"}}}}"\n{script}'
        text = text.replace("ray job submit", 'ray job submit --runtime-env-json="${ENV_JSON}"')
        found = reading_of(source_of(text, "run.sh"))
        assert (flag in {one.key for one in found.not_modelled}) is told
