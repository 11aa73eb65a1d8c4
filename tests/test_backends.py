"""Which framework a ZeRO stage means in a library, and what libraries divide over ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from napkin.training.frameworks import FRAMEWORKS
from napkin.training.trainers import TRAINERS
from tests.conftest import Napkin

DEEPSPEED = dict.fromkeys((1, 2, 3), "deepspeed")
MEANS = {
    **dict.fromkeys(("hf-trainer", "accelerate", "trl", "llama-factory", "ms-swift", "none"), DEEPSPEED),
    "axolotl": {1: "deepspeed", 2: "fsdp", 3: "fsdp"},  # docs/nd_parallelism.qmd: FSDP is ZeRO-2 and ZeRO-3
    "nemo-automodel": {2: "fsdp", 3: "fsdp"},  # fully_shard, which has no ZeRO-1
}
ON_8 = "llama3-8b --gpus 8 --hardware h100 --seq 2048"


@pytest.mark.parametrize("command", ["memory", "step", "train-time --tokens 1B", "max-params --like llama3"])
@pytest.mark.parametrize("trainer", sorted(MEANS))
def test_a_stage_means_a_framework_in_every_command(napkin: Napkin, command: str, trainer: str) -> None:
    """What the library shards with is assumed and named, and stating it changes nothing."""
    line = f"{command} {ON_8}".replace("llama3 llama3-8b", "llama3") + f" --trainer {trainer}"
    for stage, framework in MEANS[trainer].items():
        meant = napkin(f"{line} --zero {stage} --json")
        stated = napkin(f"{line} --zero {stage} --framework {framework} --json")
        assert meant.values == stated.values
        found = meant.data["inputs"]["framework"]
        assert (found["value"], found["origin"]) == (framework, "assumed")
        assert any(f"--framework {framework} is what --zero {stage} means" in note for note in meant.data["notes"])
        assert f"{framework} for ZeRO-{stage}" in napkin(f"{line} --zero {stage}").out


@pytest.mark.parametrize("trainer", sorted(MEANS))
def test_no_stage_means_no_framework(napkin: Napkin, trainer: str) -> None:
    for line in (f"memory {ON_8} --trainer {trainer}", f"memory {ON_8} --trainer {trainer} --zero 0"):
        assert "framework" not in napkin(f"{line} --json").data["inputs"]


def test_sharded_weights_are_not_cast_whole(napkin: Napkin) -> None:
    """Llama 3 70B over 64 GPUs: one 64th of 2 bytes a weight, and no copies of all of them, which are 131 GiB."""
    for trainer in ("trl", "hf-trainer --recompute full", "trl --framework fsdp"):
        found = napkin(f"memory llama3-70b --gpus 64 --hardware h100 --trainer {trainer} --zero 3 --json")
        assert found.data["verdict"] == "fits"
        assert found.values["memory/weight_casts"] == 0
    found = napkin("memory llama3-70b --gpus 64 --hardware h100 --trainer trl --zero 3 --json")
    assert found.values["memory/parameters"] == pytest.approx(2 * 70_553_706_496 / 64, rel=1e-3)


PLANS = (
    "llama3-8b --gpus 8 --hardware h100 --trainer axolotl --global-batch 32",
    "llama3-8b --gpus 8 --hardware h100 --trainer trl --lora-rank 16 --global-batch 32",
    "llama3-8b --gpus 4 --hardware v100 --trainer hf-trainer --lora-rank 16 --quantized nf4",
    "llama3-8b --gpus 8 --hardware a100 --trainer ms-swift --task dpo",
    "llama3-8b --gpus 8 --hardware a100 --trainer unsloth --lora-rank 16",
    "llama3-8b --gpus 8 --hardware h100 --trainer none --seq 4096",
)


@pytest.mark.parametrize("line", PLANS)
def test_layouts_of_a_plan_are_those_of_step_and_memory(napkin: Napkin, line: str) -> None:
    """Each stage on the framework that it means, in one ranking."""
    data = napkin(f"plan {line} --rows 400 --json").data
    trainer = line.split("--trainer ")[1].split()[0]
    rows = data["rows"]
    for stage in {row["zero"] for row in rows}:
        one = next(row for row in rows if row["zero"] == stage)
        meant = {0: "plain", **MEANS.get(trainer, {})}[stage]
        assert one.get("framework", "plain") == meant
        asked = one["command"].removeprefix("napkin step ")
        step = napkin(f"step {asked} --json")
        assert step.values["step/time"] == pytest.approx(one["step/time"])
        assert step.values["memory/total"] == one["memory/total"]
        assert napkin(f"memory {asked} --json").values["memory/total"] == one["memory/total"]
    chosen = next(row for row in rows if row["recommended"])
    step = napkin(f"step {chosen['command'].removeprefix('napkin step ')} --json").data["inputs"]
    for name in ("precision", "framework"):
        assert data["inputs"].get(name, {}).get("value") == step.get(name, {}).get("value")


REFUSED = (
    ("--trainer trl --zero 3 --tp 8", "has no tensor-parallel ranks with ZeRO-3", "--zero 0 or 1 or 2"),
    ("--trainer trl --tp 4", "has tensor-parallel ranks only without others", "--framework deepspeed"),
    ("--trainer trl --zero 2 --cp 2", "has no context-parallel ranks that pass keys on", "--framework fsdp"),
    ("--trainer hf-trainer --framework fsdp --ulysses 2", "that exchange heads", "--framework deepspeed"),
    ("--trainer trl --framework fsdp --zero 1", "--zero 1: --trainer trl on fsdp has no such stage", "deepspeed"),
    ("--trainer axolotl --zero 1 --cp 2", "--cp 2: --trainer axolotl on deepspeed has no", "--framework fsdp"),
    ("--trainer llama-factory --framework fsdp --tp 2", "has no tensor-parallel ranks", "--framework deepspeed"),
    ("--trainer unsloth --zero 3", "--zero 3: --trainer unsloth has no such stage", "--framework fsdp"),
    ("--trainer unsloth --tp 2", "--tp 2: --trainer unsloth has no tensor-parallel ranks", "--tp 1"),
    ("--trainer verl --tp 2", "--tp 2: --trainer verl on fsdp has no", "--framework megatron-core"),
    ("--trainer openrlhf --zero 3 --tp 2", "has no tensor-parallel ranks with ZeRO-3", "--zero 0 or 1 or 2"),
    ("--trainer trl --framework megatron-core", "--trainer trl does not run on --framework megatron-core", "fsdp"),
    ("--trainer accelerate --framework fsdp --tp 2", "on fsdp version 1 has no tensor-parallel", "--fsdp-version 2"),
    ("--trainer trl --framework fsdp --fsdp-version 1 --cp 2", "on fsdp version 1 has no context", "--fsdp-version 2"),
    ("--framework oneflow --zero 3", "--zero 3: --framework oneflow has no such stage", "--zero 0 or 1"),
    ("--framework oneflow --cp 2", "--cp 2: --framework oneflow has no context-parallel ranks", "--cp 1"),
    ("--trainer trl --zero 3 --tp 2 --lora-rank 8", "has no tensor-parallel ranks with ZeRO-3", "--framework fsdp"),
)


@pytest.mark.parametrize(("more", "problem", "hint"), REFUSED)
def test_a_layout_that_a_library_does_not_have_is_refused(napkin: Napkin, more: str, problem: str, hint: str) -> None:
    for command in ("memory", "step"):
        found = napkin(f"{command} {ON_8} {more}")
        assert found.status == 2
        assert problem in found.errors[0]
        assert hint in found.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("more", "problem", "hint"), [one for one in REFUSED if "--tp 4" not in one[0] and "--ulysses" not in one[0]]
)
def test_a_plan_for_it_is_refused_too(napkin: Napkin, more: str, problem: str, hint: str) -> None:
    found = napkin(f"plan {ON_8} {more}")
    assert (found.status, problem in found.errors[0], hint in found.err) == (2, True, True)


UNKNOWN_THERE = "memory llama3-8b --hardware h100 --gpus 8 --trainer {} {} --framework torchtitan"


@pytest.mark.parametrize("trainer", sorted(TRAINERS))
@pytest.mark.parametrize("stage", ["", "--zero 0", "--zero 1", "--zero 2", "--zero 3"])
def test_each_framework_that_a_refusal_offers_is_one_that_runs(napkin: Napkin, trainer: str, stage: str) -> None:
    """With the ZeRO stage that is given, or with one that the hint states next to it."""
    (hint,) = napkin(UNKNOWN_THERE.format(trainer, stage)).hints
    for way in hint.removeprefix("hint: ").split(", or "):
        typed = way.split(" or ")[0]  # --zero 0 or 2 or 3: any of them
        kept = "" if "--zero" in typed else stage
        found = napkin(f"memory llama3-8b --hardware h100 --gpus 8 --trainer {trainer} {kept} {typed}")
        assert found.status != 2, (hint, found.err)


@pytest.mark.parametrize("software", ["--framework fsdp", "--trainer openrlhf", "--trainer verl", "--trainer nemo-rl"])
def test_a_plan_without_sharding_states_it_where_sharding_is_usual(napkin: Napkin, software: str) -> None:
    rows = napkin(f"plan {ON_8} {software} --lora-rank 8 --rows 400 --json").data["rows"]
    whole = [row for row in rows if row["zero"] == 0 and row["dp"] * row["cp"] > 1]
    assert whole
    for row in whole[:6]:
        step = napkin(f"{row['command'].removeprefix('napkin ')} --json")
        assert step.values["memory/total"] == row["memory/total"]
        assert step.data["inputs"]["zero"]["value"] == "0"


@pytest.mark.parametrize("given", ["--zero 2", "--distributed-optimizer"])
def test_a_stage_is_a_condition_of_the_fewest_gpus(napkin: Napkin, given: str) -> None:
    """One GPU is enough for 1.2 B parameters at 16 bytes: 20 of 80 GB, and divides nothing."""
    found = napkin(f"memory llama3.2-1b --hardware a100 --min gpus {given} --json")
    assert found.values["gpus"] == 1
    assert f"{given.split()[0]} changes nothing on one GPU" in found.data["notes"]
    shown = napkin(f"memory llama3.2-1b --hardware a100 --min gpus {given}").out
    following = " ".join(shown.split("next: napkin ")[1].replace("\\", " ").split())
    assert napkin(following).status == 0


def test_the_fewest_gpus_are_sharded_as_far_as_a_library_does(napkin: Napkin) -> None:
    """unsloth has no ZeRO-3, and more of its GPUs hold no more: 140 GB of weights never fit."""
    found = napkin("memory llama3-70b --hardware h100 --min gpus --trainer unsloth")
    assert (found.status, "no such stage" in found.err) == (1, False)
    assert napkin("memory llama3-8b --hardware h100 --min gpus --trainer unsloth --lora-rank 8").status == 0


def test_tensor_parallel_remedies_keep_a_stage_that_has_them(napkin: Napkin) -> None:
    """DeepSpeed's AutoTP ends at ZeRO-2, so that ZeRO-3 next to it is given up, and not the ranks."""
    line = "memory llama3-70b --gpus 16 --hardware h100 --seq 16384 --trainer hf-trainer --framework deepspeed --json"
    changes = [one["change"] for one in napkin(line).data["suggestions"]]
    assert any("--tp" in change and "--zero 2" in change for change in changes)


def test_a_sweep_says_what_changes_with_a_stage(napkin: Napkin) -> None:
    line = "sweep memory llama3.2-1b --gpus 4 --hardware a100 --seq 2048 --trainer trl --over zero=0,3"
    found = napkin(f"{line} --json").data["inputs"]
    assert found["precision"]["value"] == ["amp-bf16", "bf16-mixed"]
    assert (found["framework"]["value"], found["framework"]["origin"]) == ("deepspeed", "assumed")
    assert "assumed: framework deepspeed, amp-bf16 or bf16-mixed, AdamW" in napkin(line).out


def test_compare_names_the_framework_that_changes_with_a_stage(napkin: Napkin) -> None:
    line = f"compare memory {ON_8} --trainer axolotl --zero 3 --against zero={{}} --json"
    for stage, change in ((1, "framework fsdp → deepspeed"), (0, "framework fsdp → none")):
        assert any(change in note for note in napkin(line.format(stage)).data["notes"])


def test_commands_reject_the_same_ranks_next_to_others(napkin: Napkin) -> None:
    """ZeRO-0 of TRL means no framework: the class's tp_plan, with no data-parallel ranks; a search of given degrees has
    none either, but one over free stages has DeepSpeed's."""
    line = "llama3.1-8b --hardware h100 --trainer trl --tp 2"
    said = {napkin(f"{command} {line} --gpus 8 --zero 0").err for command in ("memory", "step", "plan")}
    assert len(said) == 1
    assert "has tensor-parallel ranks only without others" in said.pop()
    assert napkin(f"plan {line} --gpus 2 --zero 0").status == 0
    assert napkin(f"plan {line} --gpus 8").status == 0


ALLOWED = (
    "--trainer trl --zero 2 --tp 2",
    "--trainer trl --framework fsdp --fsdp-version 2 --lora-rank 8 --tp 2",
    "--trainer trl --zero 3 --ulysses 2",
    "--trainer trl --framework fsdp --tp 2 --cp 2",
    "--trainer hf-trainer --tp 8",  # the class's tp_plan, without data-parallel ranks
    "--trainer llama-factory --zero 2 --tp 2",
    "--trainer ms-swift --zero 3 --ulysses 4",
    "--trainer accelerate --framework megatron-core --tp 2 --pp 2",
    "--trainer torchtune --tp 2",
    "--trainer openrlhf --cp 2",
    "--trainer nemo-rl --framework fsdp --tp 2",
)


@pytest.mark.parametrize("more", ALLOWED)
def test_a_layout_that_a_library_has_is_answered(napkin: Napkin, more: str) -> None:
    assert napkin(f"step {ON_8} {more}").status == 0


def test_plans_search_what_a_library_has(napkin: Napkin) -> None:
    """DeepSpeed's AutoTP ends at ZeRO-2; fully_shard has tensor-parallel ranks; verl's FSDP and unsloth have none."""
    found = {
        trainer: napkin(f"plan {ON_8} --trainer {trainer} --rows 400 --json").data["rows"]
        for trainer in ("trl", "axolotl", "verl", "unsloth --lora-rank 8")
    }
    wide = {
        trainer: {row["zero"] for row in rows if row["tp"] > 1 and row["dp"] > 1} for trainer, rows in found.items()
    }
    assert wide == {"trl": {1, 2}, "axolotl": {1, 2, 3}, "verl": set(), "unsloth --lora-rank 8": set()}
    long = {trainer: {row["zero"] for row in rows if row["cp"] > 1} for trainer, rows in found.items()}
    assert long == {"trl": set(), "axolotl": {2, 3}, "verl": set(), "unsloth --lora-rank 8": set()}
    assert {row["zero"] for row in found["unsloth --lora-rank 8"]} == {0}


def test_the_fewest_gpus_of_memory_name_the_search_of_plan(napkin: Napkin) -> None:
    said = napkin("memory llama3-8b --min gpus --hardware a100-sxm-40gb --trainer trl").out.replace("\n  ", " ")
    assert "--tp, which plan searches, may need fewer" in said
    alone = napkin("memory llama3-8b --min gpus --hardware a100-sxm-40gb --trainer verl").out
    assert "may need fewer" not in alone


def test_sharding_in_fsdps_words_is_fsdp(napkin: Napkin) -> None:
    for words in ("--fsdp full_shard", "--fsdp", "--sharding-strategy FULL_SHARD"):
        found = napkin(f"memory {ON_8} --trainer trl {words} --json")
        assert found.data["inputs"]["framework"]["value"] == "fsdp"
        assert found.values == napkin(f"memory {ON_8} --trainer trl --framework fsdp --zero 3 --json").values


@pytest.mark.parametrize("trainer", sorted(TRAINERS))
def test_what_a_stage_means_is_a_framework_that_has_it(trainer: str) -> None:
    """One framework for each stage, on which the library runs and which has that stage."""
    library = TRAINERS[trainer]
    for stage in (1, 2, 3):
        names = [one.framework for one in library.backends if stage in one.implied]
        assert len(names) <= 1
        assert all(stage in library.on(FRAMEWORKS[name]).divides.zero for name in names)
    assert library.implied(0) == ""
    assert not library.framework or library.has(library.framework)


FSDP_8 = "llama3-8b --gpus 8 --hardware h100 --trainer trl --framework fsdp --json"
BLOCK = 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
"""Parameters of a layer of Llama 3 8B."""


@pytest.mark.parametrize("command", ["memory", "step", "plan"])
def test_fsdp_means_the_recipes_of_a_library_that_run_on_it(napkin: Napkin, command: str) -> None:
    line = f"{command} {ON_8} --trainer torchtune"
    own = napkin(f"{line} --json").data["values"]
    assert napkin(f"{line} --framework fsdp --json").data["values"] == own
    other = napkin(f"{line} --framework deepspeed")
    assert (other.status, "--trainer torchtune does not run on" in other.errors[0]) == (2, True)


def test_the_first_version_of_fsdp_reduces_gradients_as_they_are(napkin: Napkin) -> None:
    """fully_shard copies a block's gradients, in bf16, for their reduction, and the copy stays until the next one's is
    made; FullyShardedDataParallel reduces its flat gradient."""
    newer, older = (napkin(f"memory {FSDP_8} --fsdp-version {version}").values for version in (2, 1))
    assert newer["memory/temporaries"] - older["memory/temporaries"] == 2 * BLOCK
    assert newer["memory/overhead"] > older["memory/overhead"]  # pools of its two streams
    assert napkin(f"memory {FSDP_8}").values == newer


def test_matrices_of_adapters_are_units_in_the_version_that_makes_them(napkin: Napkin) -> None:
    """peft's policy in the first, axolotl's own calls of fully_shard, and none elsewhere: each unit is gathered by
    itself, forward and backward."""
    seconds = {
        (trainer, version): napkin(
            f"step {FSDP_8.replace('trl', trainer)} --lora-rank 16 --fsdp-version {version}"
        ).values["step/time"]
        for trainer in ("trl", "axolotl", "nemo-automodel")
        for version in (1, 2)
    }
    assert seconds["trl", 1] > 1.5 * seconds["trl", 2]
    assert seconds["axolotl", 2] > 1.5 * seconds["trl", 2]
    assert seconds["nemo-automodel", 1] == seconds["nemo-automodel", 2]


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("--trainer trl --framework fsdp", "2"),
        ("--trainer trl --framework fsdp --lora-rank 8", "2"),
        ("--trainer axolotl --zero 3 --lora-rank 8", "2"),
        ("--trainer accelerate --framework fsdp", "1"),
        ("--trainer verl", "1"),
        ("--framework fsdp", "2"),
    ],
)
def test_the_usual_version_of_fsdp(napkin: Napkin, line: str, version: str) -> None:
    for command in ("memory", "step", "plan"):
        found = napkin(f"{command} {ON_8} {line} --json")
        assert found.values == napkin(f"{command} {ON_8} {line} --fsdp-version {version} --json").values
    assert napkin(f"memory {ON_8} {line} --json").data["inputs"]["fsdp-version"]["value"] == version


def test_a_version_without_fsdp_is_refused(napkin: Napkin) -> None:
    for more in ("", "--framework torchtitan", "--trainer trl --zero 3"):
        found = napkin(f"memory {ON_8} {more} --fsdp-version 1")
        assert (found.status, "--fsdp-version has no effect here" in found.err) == (2, True)


ACCELERATE = """compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_sharding_strategy: FULL_SHARD
{version}mixed_precision: bf16
num_processes: 8
"""


@pytest.mark.parametrize(
    ("stated", "version", "origin"),
    [("  fsdp_version: 1\n", "1", "from file"), ("  fsdp_version: 2\n", "2", "from file"), ("", "1", "default")],
)
def test_the_version_of_a_launch_file(napkin: Napkin, tmp_path: Path, stated: str, version: str, origin: str) -> None:
    """accelerate's own default is the first (utils/dataclasses.py, FullyShardedDataParallelPlugin)."""
    (tmp_path / "a.yaml").write_text(ACCELERATE.format(version=stated))
    found = napkin(f"read --from {tmp_path / 'a.yaml'} --json").data["inputs"]["fsdp-version"]
    assert (found["value"], found["origin"]) == (version, origin)
    memory = napkin(f"memory llama3-8b --from {tmp_path / 'a.yaml'} --hardware h100 --trainer trl --json")
    assert memory.values == napkin(f"memory {FSDP_8} --fsdp-version {version}").values
