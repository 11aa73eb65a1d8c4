"""Launch lines as people write them: accelerate's own options, arithmetic, comments, programs of other libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from napkin.errors import NapkinError
from napkin.inputs.launch.read import read_launch, reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.stated import ASSUMED, DEFAULT, FROM_FILE
from napkin.inputs.launch.syntax import source_of
from tests.conftest import run_line

ARGUMENTS = "--model_name_or_path meta-llama/Llama-2-7b-hf --per_device_train_batch_size 1 --max_seq_length 2048"


def line(text: str) -> Reading:
    """Return the reading of a launch script."""
    return reading_of(source_of(text + "\n", "train.sh"))


def values(reading: Reading, *options: str) -> list[object]:
    """Return the values of options."""
    return [reading.value_of(option) for option in options]


def test_accelerates_own_options_are_its_configuration() -> None:
    start = "accelerate launch --mixed_precision bf16 --num_processes 4"
    sharded = line(f"{start} --use_deepspeed --zero_stage 3 --offload_optimizer_device cpu finetune.py {ARGUMENTS}")
    assert values(sharded, "framework", "zero", "offload", "gpus") == ["deepspeed", 3, "optimizer", 4]
    assert values(sharded, "precision", "micro-batch") == ["bf16-mixed", 1]
    assert sharded.inputs["zero"].where == "--zero_stage"
    wrapped = line(
        f"{start} --use_fsdp --fsdp_sharding_strategy SHARD_GRAD_OP --fsdp_offload_params true finetune.py {ARGUMENTS}"
    )
    assert values(wrapped, "framework", "zero", "offload") == ["fsdp", 2, "optimizer,parameters"]
    assert wrapped.value_of("precision") == "amp-bf16"
    plain = line(f"{start} finetune.py {ARGUMENTS}")
    assert values(plain, "framework", "precision") == [
        None,
        "amp-bf16",
    ]  # autocast over weights that are loaded in fp32
    for one in (sharded, wrapped, plain):
        assert not [said.key for said in one.not_modelled]


def test_accelerates_options_win_over_its_file(tmp_path: Path) -> None:
    (tmp_path / "zero2.yaml").write_text(
        "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 2}\nmixed_precision: 'no'\nnum_processes: 8\n"
    )
    script = tmp_path / "run.sh"
    script.write_text(
        f"accelerate launch --config_file zero2.yaml --mixed_precision bf16 --num_processes 4 finetune.py {ARGUMENTS}\n"
    )
    assert values(read_launch(str(script)), "gpus", "zero", "precision") == [4, 2, "bf16-mixed"]


def test_a_deepspeed_file_of_accelerates_that_is_not_here_is_asked_for() -> None:
    reading = line(f"accelerate launch --use_deepspeed --deepspeed_config_file z3.conf finetune.py {ARGUMENTS}")
    assert values(reading, "framework", "zero") == ["deepspeed", None]
    assert "was not found" in next(one.why for one in reading.not_modelled if one.key == "--deepspeed_config_file")


@pytest.mark.parametrize("written", ["$(expr 32 / $N)", "$((32 / N))", "$(echo $ACC)"])
def test_arithmetic_of_a_script(written: str) -> None:
    reading = line(f"N=4\nACC=8\ntorchrun train.py {ARGUMENTS} --gradient_accumulation_steps {written}")
    assert reading.value_of("grad-accum") == 8


def test_the_output_of_another_command_is_unknown() -> None:
    reading = line(f"torchrun train.py {ARGUMENTS} --gradient_accumulation_steps $(expr 32 / $(nproc) | head -1)")
    assert reading.value_of("grad-accum") is None


@pytest.mark.parametrize("between", ["    # half of the paper's \\\n", "\\ \n", "\n"])
def test_options_after_the_end_of_their_command(between: str) -> None:
    """Bash ends a command at a comment, and at a backslash with a blank after it."""
    text = f"torchrun train.py --max_steps 10 \\\n{between}  --per_device_train_batch_size 4\n"
    with pytest.raises(NapkinError, match=r"train.sh:\d: --per_device_train_batch_size begins a new command"):
        line(text)


def test_numbers_of_lora_do_not_say_that_it_is_used() -> None:
    text = f"python train.py {ARGUMENTS} --lora_rank 64"
    assert line(text).inputs["adapter"].origin == ASSUMED
    assert line(f"{text} --use_lora").inputs["adapter"].origin != ASSUMED
    assert line(f"{text} --use_lora False").value_of("adapter") is None
    full = line(f"{text} --train_mode full --task_type dpo")
    assert values(full, "adapter", "lora-rank", "task") == [None, None, "dpo"]
    quantized = line(f"{text} --train_mode qlora")
    assert values(quantized, "adapter", "quantized", "lora-rank") == ["lora", "nf4", 64]


def test_qlora_py() -> None:
    reading = line(
        "python qlora.py --model_name_or_path huggyllama/llama-7b --bits 4 --double_quant --quant_type nf4 --lora_r 64 "
        "--lora_modules all --source_max_len 1024 --target_max_len 256 --per_device_train_batch_size 1"
    )
    assert values(reading, "quantized", "lora-targets", "seq", "lora-rank") == ["nf4-dq", "all", 1280, 64]


def test_nanogpts_configuration_on_a_launch_line(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "large.py").write_text(
        "batch_size = 5\nblock_size = 1024\ngradient_accumulation_steps = 96\nn_layer = 36\nn_head = 20\n"
        "n_embd = 1280\nmax_iters = 100000\noptimizer_name = 'muon'\n"
    )
    script = tmp_path / "run.sh"
    script.write_text("torchrun --standalone --nproc_per_node=8 train.py config/large.py --batch_size=4\n")
    reading = read_launch(str(script))
    assert values(reading, "micro-batch", "global-batch", "gpus", "steps") == [4, 384, 8, 100_000]
    assert (reading.shape["layers"], reading.shape["hidden"], reading.value_of("optimizer")) == (36, 1280, "muon")
    script.write_text("torchrun --nproc_per_node=8 train_muon.py config/large.py\n")
    assert read_launch(str(script)).inputs["global-batch"].origin == ASSUMED  # another program counts as it likes


def test_nanogpts_options_on_a_launch_line(tmp_path: Path) -> None:
    """Two layers without biases of 12h² + 2h, two tables and the last norm; an absent file may set what is not said."""
    options = "--n_layer=2 --n_head=4 --n_embd=128 --block_size=64 --bias=False --batch_size=8"
    script = tmp_path / "run.sh"
    script.write_text(f"torchrun --standalone --nproc_per_node=4 train.py {options}\n")
    reading = read_launch(str(script))
    assert values(reading, "micro-batch", "seq", "gpus", "precision") == [8, 64, 4, "amp-bf16"]
    found = run_line(f"params --from {script} --json").values["params/total"]
    assert found == 2 * (12 * 128**2 + 2 * 128) + (50_304 + 64 + 1) * 128
    script.write_text(f"torchrun --nproc_per_node=4 train.py config/not_here.py {options}\n")
    assert values(read_launch(str(script)), "micro-batch", "seq", "precision", "global-batch") == [8, 64, None, None]


def test_names_of_modelscope_and_of_modules() -> None:
    start = "NPROC_PER_NODE=2 swift sft --max_length 2048 --use_flash_attn true"
    by_type = line(f"{start} --model_type qwen2-1_5b-instruct --model_id_or_path /data/mine --train_type full")
    assert values(by_type, "model", "attention", "gpus") == ["qwen2-1.5b", "flash", 2]
    assert line(f"{start} --model /hub/Qwen2___5-7B-Instruct").value_of("model") == "qwen2.5-7b"


VERL = "algorithm.adv_estimator=grpo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B data.train_batch_size=64"


def test_fsdp_over_all_ranks_is_verls_default() -> None:
    assert line(f"python -m verl.trainer.main_ppo {VERL} actor_rollout_ref.actor.fsdp_config.fsdp_size=-1").inputs[
        "zero"
    ].origin in (DEFAULT, FROM_FILE)
    asked = line(f"python -m verl.trainer.main_ppo {VERL} actor_rollout_ref.actor.fsdp_config.fsdp_size=$SIZE")
    assert asked.inputs["dp-shard"].value is None


def test_hydras_folder_is_relative_to_the_program(tmp_path: Path) -> None:
    (tmp_path / "recipe" / "mine" / "config").mkdir(parents=True)
    (tmp_path / "recipe" / "mine" / "config" / "big.yaml").write_text(
        "data: {max_prompt_length: 1024, max_response_length: 3072}\n"
    )
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts" / "run.sh"
    script.write_text(f"python -m recipe.mine.main_ppo --config-path=config --config-name=big {VERL}\n")
    reading = read_launch(str(script))
    assert reading.value_of("seq") == 4096
    assert not reading.source.missing


def test_a_script_that_is_sourced(tmp_path: Path) -> None:
    (tmp_path / "base.sh").write_text(
        'COMMON="--per_device_train_batch_size 2 \\\n  --gradient_accumulation_steps 4"\nexport SEQ=512\n'
    )
    (tmp_path / "acc.yaml").write_text(
        "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}\nnum_processes: 2\n"
    )
    script = tmp_path / "run.sh"
    script.write_text(
        "source venv/bin/activate\nsource base.sh\npython -m accelerate.commands.launch --config_file acc.yaml sft.py "
        "--model_name_or_path gpt2 $COMMON --max_length $SEQ\n"
    )
    reading = read_launch(str(script))
    assert values(reading, "micro-batch", "grad-accum", "seq", "gpus", "zero") == [2, 4, 512, 2, 3]
    assert not reading.not_modelled
    script.write_text("source gone.sh\ntorchrun train.py --per_device_train_batch_size 2 --max_length $SEQ --bf16\n")
    with pytest.raises(NapkinError, match="starts train"):
        read_launch(str(script))
    script.write_text(f"source gone.sh\ntorchrun train.py {ARGUMENTS} --gradient_accumulation_steps $ACC\n")
    assert any(one.key == "source gone.sh" for one in read_launch(str(script)).not_modelled)


def test_scripts_that_source_each_other_end(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(f"source a.sh\nsource a.sh\ntorchrun train.py {ARGUMENTS}\n")
    assert read_launch(str(tmp_path / "a.sh")).value_of("micro-batch") == 1


def test_prompts_of_a_step_of_trls_grpo() -> None:
    """Its batch counts responses: 4 × 8 on 3 GPUs are 96, of 6 for each of 16 prompts."""
    start = "accelerate launch --num_processes 3 grpo.py --model_name_or_path Qwen/Qwen2.5-3B"
    batch = "--per_device_train_batch_size 4 --gradient_accumulation_steps 8 --max_completion_length 512"
    assert values(line(f"{start} {batch} --num_generations 6"), "task", "global-batch") == ["grpo", 16]
    odd = line(f"{start} {batch} --num_generations 7")
    assert any("not a multiple of 7" in one.why for one in odd.refused)
    alone = line(f"{start.replace('--num_processes 3', '')} {batch} --num_generations 6")
    assert "global-batch" not in alone.inputs


def test_a_script_that_a_script_runs(tmp_path: Path) -> None:
    """`bash train.sh 8` sees its arguments and what is exported, not the other variables of its caller."""
    (tmp_path / "train.sh").write_text(
        f"BATCH=${{BATCH:-2}}\nSEQ=${{SEQ:-1024}}\n"
        f"torchrun --nproc_per_node $1 train.py {ARGUMENTS} --gradient_accumulation_steps $2 "
        "--per_device_train_batch_size $BATCH --max_length $SEQ\n"
    )
    (tmp_path / "wrap.sh").write_text('CUDA_VISIBLE_DEVICES=0 numactl "$@"\n')
    script = tmp_path / "job.slurm"
    for call in ("bash train.sh 8 3", "exec ./train.sh 8 3", 'srun bash "$(pwd)/train.sh" 8 3'):
        script.write_text(f"#!/bin/bash\n#SBATCH --nodes=1\nBATCH=16\nexport SEQ=4096\n{call}\n")
        reading = read_launch(str(script))
        assert values(reading, "gpus", "grad-accum", "micro-batch", "seq") == [8, 3, 2, 4096], call
    script.write_text(f"bash wrap.sh torchrun --nproc_per_node 4 train.py {ARGUMENTS} --max_steps 5\n")
    assert values(read_launch(str(script)), "gpus", "steps") == [4, 5]
    (tmp_path / "loop.sh").write_text("bash loop.sh\nbash loop.sh\n")
    with pytest.raises(NapkinError):
        read_launch(str(tmp_path / "loop.sh"))


def test_the_training_command_is_not_an_engines(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        "vllm serve Qwen/Qwen3-14B --port 8000 --max-model-len 4096 --gpu-memory-utilization 0.9 --dtype bfloat16 &\n"
        "accelerate launch --num_processes 3 train.py\n"
    )
    with pytest.raises(NapkinError, match=r"starts train\.py"):
        read_launch(str(script))
    script.write_text(
        f"curl --max-time 5 --retry 3 --retry-delay 1 --output x --location http://host\n"
        f"ray job submit --address http://127.0.0.1:8265 -- python train.py {ARGUMENTS}\n"
    )
    assert read_launch(str(script)).value_of("model") == "llama2-7b"


@pytest.mark.parametrize(
    ("launcher", "gpus"),
    [
        ("torchrun --nproc_per_node 4 --nnodes 2 src/train.py", 8),
        ("deepspeed --num_gpus 4 src/train.py", 4),
        ("accelerate launch --num_processes 6 src/train.py", 6),
        ("NPROC_PER_NODE=2 llamafactory-cli train", 2),
    ],
)
def test_llama_factorys_gpus_on_a_line(launcher: str, gpus: int) -> None:
    reading = line(f"{launcher} --stage sft --model_name_or_path Qwen/Qwen2.5-7B --finetuning_type lora --bf16")
    assert values(reading, "trainer", "gpus") == ["llama-factory", gpus]
