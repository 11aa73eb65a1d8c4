"""Launch lines that name a settings file, and scripts that start training more than once."""

from __future__ import annotations

from pathlib import Path

import pytest

from napkin.errors import NapkinError
from napkin.inputs.launch.read import read_launch, reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.syntax import source_of

SFT = """model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct
torch_dtype: bfloat16
bf16: true
gradient_checkpointing: true
gradient_accumulation_steps: 8
per_device_train_batch_size: 4
max_length: 4096
num_train_epochs: 1
"""
STAGE_3 = """distributed_type: DEEPSPEED
deepspeed_config: {zero_stage: 3}
mixed_precision: bf16
num_processes: 8
"""


def read(folder: Path, line: str, **files: str) -> Reading:
    """Return the reading of a launch script beside these files."""
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    script = folder / "launch.sh"
    script.write_text(line + "\n")
    return read_launch(str(script))


def values(reading: Reading, *options: str) -> list[object]:
    """Return the values of options."""
    return [reading.value_of(option) for option in options]


@pytest.mark.parametrize(
    "line",
    [
        "accelerate launch --config_file acc.yaml scripts/run_sft.py sft.yaml --per_device_train_batch_size=2",
        "accelerate launch --config_file acc.yaml src/sft.py --config sft.yaml --per_device_train_batch_size 2",
        "accelerate launch --config_file=acc.yaml src/sft.py --config sft.yaml --per_device_train_batch_size 2",
        'CONFIG=sft.yaml\naccelerate launch --config_file acc.yaml sft.py --config "$CONFIG" '
        "--per_device_train_batch_size 2",
    ],
)
def test_a_settings_file_is_read_and_the_line_wins(tmp_path: Path, line: str) -> None:
    reading = read(tmp_path, line, sft=SFT, acc=STAGE_3)
    assert values(reading, "model", "micro-batch", "grad-accum", "seq", "recompute", "gpus", "zero", "task") == [
        "qwen2.5-1.5b",
        2,
        8,
        4096,
        "full",
        8,
        3,
        "sft",
    ]
    assert "launch.sh" in reading.inputs["micro-batch"].place
    assert reading.inputs["seq"].place.endswith("sft.yaml:7: max_length")


def test_the_shell_decides_which_settings_file(tmp_path: Path) -> None:
    reading = read(tmp_path, "trl sft --config ${1:-sft.yaml}", sft=SFT)
    assert values(reading, "model", "seq") == ["qwen2.5-1.5b", 4096]
    assert any(one.key == "$1" and "its default, sft.yaml" in one.why for one in reading.not_modelled)


@pytest.mark.parametrize(
    ("line", "text", "options"),
    [
        (
            "FORCE_TORCHRUN=1 NNODES=2 NPROC_PER_NODE=4 llamafactory-cli train own.yaml cutoff_len=512",
            "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\nfinetuning_type: full\ncutoff_len: 2048\n",
            {"trainer": "llama-factory", "model": "qwen2.5-7b", "seq": 512, "gpus": 8},
        ),
        (
            "accelerate launch -m axolotl.cli.train own.yaml",
            "base_model: NousResearch/Meta-Llama-3-8B\nmicro_batch_size: 2\nsequence_len: 4096\n",
            {"trainer": "axolotl", "model": "llama3-8b", "micro-batch": 2, "seq": 4096},
        ),
        (
            "axolotl train own.yaml",
            "base_model: NousResearch/Meta-Llama-3-8B\nmicro_batch_size: 2\nsequence_len: 4096\n",
            {"trainer": "axolotl", "micro-batch": 2},
        ),
        (
            "megatron rlhf --use_ray --config own.yaml",
            "rlhf_type: grpo\nmodel: Qwen/Qwen2.5-7B\nmicro_batch_size: 2\ntuner_type: full\n",
            {"trainer": "ms-swift", "task": "grpo", "micro-batch": 2},
        ),
        (
            "torchrun --nproc_per_node=8 run_train.py --config-file own.yaml",
            "parallelism: {dp: 4, tp: 2, pp: 1}\ntokens: {sequence_length: 2048, micro_batch_size: 3, train_steps: 9}\n"
            "model: {model_config: {hidden_size: 512, num_hidden_layers: 4, num_attention_heads: 8, vocab_size: 9}}\n",
            {"tp": 2, "micro-batch": 3, "gpus": 8, "seq": 2048},
        ),
    ],
)
def test_each_launcher_names_settings_its_own_way(
    tmp_path: Path, line: str, text: str, options: dict[str, object]
) -> None:
    reading = read(tmp_path, line, own=text)
    assert values(reading, *options) == list(options.values())


def test_settings_that_are_not_here_leave_the_rest_open(tmp_path: Path) -> None:
    line = "accelerate launch run_dpo.py gone.yaml --model_name_or_path Qwen/Qwen2.5-7B"
    reading = read(tmp_path, line + " --per_device_train_batch_size 2 --gradient_accumulation_steps 4")
    assert values(reading, "model", "micro-batch", "grad-accum") == ["qwen2.5-7b", 2, 4]
    assert values(reading, "recompute", "epochs", "optimizer") == [None, None, None]  # not TrainingArguments' defaults
    assert any(one.key == "gone.yaml" and "was not found" in one.why for one in reading.not_modelled)
    with pytest.raises(NapkinError, match=r"its settings are in gone\.yaml, which was not found"):
        read(tmp_path, "trl sft --config gone.yaml")


TWICE = """torchrun --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen2.5-7B \\
  --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --bf16

torchrun --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen2.5-7B \\
  --per_device_train_batch_size 1 --gradient_accumulation_steps 2 --bf16
"""


def test_a_script_that_trains_twice_says_so_and_a_line_chooses() -> None:
    first = reading_of(source_of(TWICE, "all.sh"))
    assert first.value_of("micro-batch") == 4
    assert any(one.key == "line 4" and "--from all.sh:4" in one.why for one in first.not_modelled)
    for line in (4, 5):
        second = reading_of(source_of(TWICE, "all.sh", line))
        assert second.value_of("micro-batch") == 1
        assert not any(one.key.startswith("line ") for one in second.not_modelled)
    with pytest.raises(NapkinError, match=r"all\.sh:7: no command starts here"):
        source_of("x=1\n" * 6 + "\n" + TWICE, "all.sh", 7)


def test_a_settings_file_that_names_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NapkinError, match="is no mapping of keys"):
        read(tmp_path, "trl sft --config own.yaml", own="trl sft --config own.yaml\n")


# --- Hydra ---

BASE = """defaults: [ppo_trainer, actor@actor_rollout_ref.actor: small]
micro: 4
policy: Qwen/Qwen2.5-0.5B-Instruct
actor_rollout_ref:
  model: {path: "${policy}"}
  actor: {ppo_mini_batch_size: 32, ppo_micro_batch_size_per_gpu: "${micro}"}
trainer: {n_gpus_per_node: 1, nnodes: 1}
algorithm: {adv_estimator: gae}
data: {max_prompt_length: 512, max_response_length: 512}
"""
RUN = """defaults: [base, _self_]
hydra: {searchpath: [file://verl/trainer/config]}
algorithm: {adv_estimator: grpo}
"""


def hydra(folder: Path, line: str, **files: str) -> Reading:
    """Return the reading of a launch line next to a folder config/."""
    texts = {"base": BASE, "run": RUN, "actor/small": "ppo_micro_batch_size_per_gpu: 2\nuse_torch_compile: false\n"}
    for name, text in {**texts, **files}.items():
        path = folder / "config" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "launch.sh").write_text(line + "\n")
    return read_launch(str(folder / "launch.sh"))


@pytest.mark.parametrize(
    "named",
    [
        "python train.py --config-name run",
        "python3 -m verl.trainer.main_ppo --config-path=config --config-name='run.yaml'",
        'D="$(pwd)"\npython train.py --config-path="$D/config" --config-name=run',
    ],
)
def test_a_configuration_that_a_line_names_is_composed_of_its_defaults(tmp_path: Path, named: str) -> None:
    """run.yaml over base.yaml over actor/small.yaml, in actor_rollout_ref.actor; the line over all, also where a file
    refers to what it overrides."""
    reading = hydra(tmp_path, f"{named} trainer.n_gpus_per_node=2")
    assert values(reading, "model", "task", "gpus", "micro-batch") == ["qwen2.5-0.5b", "grpo", 2, 4]
    reading = hydra(tmp_path, f"{named} micro=8 policy=Qwen/Qwen2.5-1.5B-Instruct")
    assert values(reading, "model", "gpus", "micro-batch") == ["qwen2.5-1.5b", 1, 8]
    reading = hydra(tmp_path, named, base=BASE.replace(', ppo_micro_batch_size_per_gpu: "${micro}"', ""))
    assert values(reading, "micro-batch") == [2]


def test_a_configuration_is_composed_when_it_is_given_itself(tmp_path: Path) -> None:
    hydra(tmp_path, "python train.py --config-name run")
    reading = read_launch(str(tmp_path / "config" / "run.yaml"))
    assert values(reading, "model", "task", "gpus") == ["qwen2.5-0.5b", "grpo", 1]


def test_a_configuration_that_is_not_here_leaves_the_rest_open(tmp_path: Path) -> None:
    line = "python3 -m verl.trainer.main_ppo --config-name={} actor_rollout_ref.model.path=Qwen/Qwen2.5-7B"
    reading = hydra(tmp_path, line.format("gone"))
    assert values(reading, "model", "zero") == ["qwen2.5-7b", None]
    assert any(one.key == "gone.yaml" and "was not found" in one.why for one in reading.not_modelled)
    reading = hydra(tmp_path, line.format("run"), run=RUN.replace("base", "gone"))
    assert values(reading, "model", "task", "zero") == ["qwen2.5-7b", "grpo", None]
    assert values(hydra(tmp_path, line.format("ppo_trainer")), "zero") == [3]  # verl's own: its defaults are known


def test_defaults_that_name_each_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        NapkinError, match=r"base.yaml:1: defaults: the defaults form a cycle: run.yaml → .* → run.yaml"
    ):
        hydra(tmp_path, "python train.py --config-name run", base="defaults: [run]\n")


def test_defaults_that_name_too_many_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "other.yaml").write_text("x: 1\n")
    with pytest.raises(NapkinError, match="its defaults name more than 200 files"):
        hydra(tmp_path, "python train.py --config-name run", base=f"defaults: [{', '.join(['other'] * 201)}]\n")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("python3 main.py training=gpt3/5b stages=[training] training.trainer.num_nodes=20", "which names a recipe"),
        ("tune run --nproc_per_node 8 full_finetune_distributed --config llama4/maverick_17B", "tune cp NAME FILE"),
        ("python3 main.py recipes=training/llama/hf_llama3_8b cluster_type=slurm", "HyperPod"),
    ],
)
def test_related_launch_lines_say_which_file_would_do(tmp_path: Path, line: str, says: str) -> None:
    with pytest.raises(NapkinError) as problem:
        read(tmp_path, line, own="model: {model_name: a/b}\ntraining: {trainer_type: TRL_SFT}\n")
    assert problem.value.status == 3
    assert says in f"{problem.value.message} {problem.value.hint}"
