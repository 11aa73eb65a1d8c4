"""What launch lines state with switches, launchers and words of their own, and what leaves an option open."""

from __future__ import annotations

from pathlib import Path

import pytest

from napkin.errors import NapkinError, Refused
from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.syntax import source_of
from tests.conftest import Napkin

MODEL = "--model_name_or_path Qwen/Qwen2.5-0.5B --per_device_train_batch_size 2 --bf16 True"
SIZES = "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --micro-batch-size 1 --seq-length 2048"


def shell(more: str = "", launcher: str = "python", program: str = "train.py", before: str = "") -> Reading:
    text = f"#!/bin/bash\n{before}\n" + f"{launcher} {program} {MODEL} {more}\n"
    return reading_of(source_of(text, "train.sh"))


def said(reading: Reading, option: str) -> tuple[object, str]:
    one = reading.inputs[option]
    return one.value, one.origin


@pytest.mark.parametrize(
    ("more", "option", "value", "origin"),
    [
        ("--actor_gradient_checkpointing", "recompute", "full", "assumed"),
        ("--use_grad_checkpoint True", "recompute", "full", "assumed"),
        ("--use_activation_checkpointing False", "recompute", "none", "assumed"),
        ("--grad_checkpointing $ON", "recompute", None, "from file"),
        ("--vit_gradient_checkpointing True", "recompute", "none", "default"),
        ("--offload optimizer", "offload", None, "from file"),
        ("--use_8bit_optimizer", "optimizer", None, "from file"),
        ("--use_8bit_adam True", "optimizer", None, "from file"),
        ("--optim adamw_torch --use_8bit_optimizer", "optimizer", None, "from file"),
        ("--optim adamw_8bit --use_8bit_optimizer", "optimizer", "adamw-8bit", "from file"),
        ("--use_8bit_adam False", "optimizer", "adamw", "default"),
        ("--optimizer adamw_8bit", "optimizer", "adamw-8bit", "from file"),
        ("--ds_stage 2", "framework", "deepspeed", "assumed"),
    ],
)
def test_switches_of_a_programs_own(more: str, option: str, value: object, origin: str) -> None:
    assert said(shell(more), option) == (value, origin)


def test_no_offload_is_read_where_it_is_off() -> None:
    assert "offload" not in shell("--offload none").inputs
    assert "offload" not in shell("--ref_offload True").inputs


def test_the_precision_is_assumed_where_the_launchers_file_is_missing() -> None:
    """DeepSpeed would keep bf16 weights with an fp32 master, FSDP fp32 ones."""
    launched = shell(launcher="accelerate launch --num_processes 4 --config_file zero2.yaml")
    assert said(launched, "precision") == ("amp-bf16", "assumed")
    assert launched.inputs["zero"].value is None
    assert said(shell(), "precision") == ("amp-bf16", "derived")


@pytest.mark.parametrize(
    ("before", "gpus"),
    [
        ("export CUDA_VISIBLE_DEVICES=4,5,6,7", 4),
        ("export CUDA_VISIBLE_DEVICES=0,1 NNODES=2", 4),
        ("export NPROC_PER_NODE=3 CUDA_VISIBLE_DEVICES=0,1", 3),
        ("export CUDA_VISIBLE_DEVICES=$MINE", None),
        ("export NPROC_PER_NODE=$(count)", None),
    ],
)
def test_llamafactory_runs_on_every_visible_gpu(before: str, gpus: int | None) -> None:
    """src/llamafactory/launcher.py: NPROC_PER_NODE, else the number of devices; NNODES nodes."""
    text = "--stage sft --finetuning_type full --model_name_or_path Qwen/Qwen2.5-0.5B --per_device_train_batch_size 1"
    reading = reading_of(source_of(f"{before}\nllamafactory-cli train {text}\n", "train.sh"))
    assert reading.inputs["gpus"].value == gpus


def test_visible_gpus_do_not_tell_how_many_a_plain_python_uses() -> None:
    assert "gpus" not in shell(before="export CUDA_VISIBLE_DEVICES=0,1").inputs
    assert shell(launcher="deepspeed", before="export CUDA_VISIBLE_DEVICES=0,1").value_of("gpus") == 2


def test_processes_of_ms_swift_that_a_script_does_not_tell_are_asked() -> None:
    line = "swift sft --model Qwen/Qwen2.5-0.5B --max_length 2048"
    for before, gpus in (("NPROC_PER_NODE=$N", None), ("NPROC_PER_NODE=4", 4), ("CUDA_VISIBLE_DEVICES=3", 1)):
        assert reading_of(source_of(f"{before} {line}\n", "train.sh")).inputs["gpus"].value == gpus


def test_qlora_py_trains_adapters_over_4_bit_weights_unless_told_otherwise() -> None:
    """artidoro/qlora qlora.py: bits 4, double_quant True, lora_r 64, lora_dropout 0, full_finetune False."""
    lengths = "--source_max_len 384 --target_max_len 128"
    reading = shell(lengths, program="qlora.py")
    assert said(reading, "adapter") == ("lora", "default")
    assert said(reading, "lora-rank") == (64, "default")
    assert said(reading, "quantized") == ("nf4-dq", "default")
    assert reading.value_of("lora-targets") == "all"
    assert "lora-dropout" not in reading.inputs
    assert "adapter" not in shell(f"{lengths} --full_finetune", program="qlora.py").inputs
    assert said(shell(f"{lengths} --lora_r 16", program="qlora.py"), "lora-rank") == (16, "from file")
    assert "adapter" not in shell(lengths).inputs  # another program


def test_qlora_py_has_its_own_batch_and_steps() -> None:
    """artidoro/qlora qlora.py, TrainingArguments: batch 1, accumulation 16, max_steps 10000, which wins over epochs."""
    text = "python qlora.py --model_name_or_path huggyllama/llama-7b --source_max_len 384 --target_max_len 128 {}\n"

    def meant(more: str = "") -> dict[str, tuple[object, str]]:
        reading = reading_of(source_of(text.format(more), "train.sh"))
        return {
            one: said(reading, one) for one in ("micro-batch", "grad-accum", "steps", "epochs") if one in reading.inputs
        }

    usual = {"micro-batch": (1, "assumed"), "grad-accum": (16, "assumed"), "steps": (10_000, "assumed")}
    assert meant() == usual
    assert meant("--num_train_epochs 3") == usual
    stated = "--per_device_train_batch_size 4 --gradient_accumulation_steps 2 --max_steps 100"
    assert [value for value, _ in meant(stated).values()] == [4, 2, 100]
    assert meant("--max_steps -1 --num_train_epochs 2")["epochs"] == (2, "from file")
    assert meant("--batch_size 4")["micro-batch"][0] is None
    other = shell("--bits 4 --double_quant --num_train_epochs 3")  # a program with qlora.py's arguments
    assert said(other, "epochs") == (3, "from file")
    assert said(other, "grad-accum") == (16, "assumed")


def test_a_task_that_generates_samples() -> None:
    assert said(shell("--num_generations 8"), "task") == ("grpo", "derived")
    assert said(shell("--num_generations 2", program="RLOO_my.py"), "task") == ("rloo", "assumed")
    assert shell("--num_generations 1 --lmbda 0.5").inputs["task"].value is None  # distillation generates too
    assert shell("--num_generations 1 --teacher_model_type Qwen3-8B").inputs["task"].value is None
    assert said(shell("--max_completion_length 512"), "task") == ("grpo", "assumed")


def test_a_task_that_an_unknown_option_names_is_asked() -> None:
    megatron = "torchrun --nproc_per_node 8 pretrain_gpt.py " + SIZES
    assert reading_of(source_of(f"{megatron} --train-mode dpo\n", "t.sh")).inputs["task"].value is None
    assert "task" not in reading_of(source_of(f"{megatron} --train-mode plain\n", "t.sh")).inputs
    assert shell("--recipe_kind dpo", program="sft.py").value_of("task") == "sft"  # the program's name tells it


def test_gated_mlps_of_megatron() -> None:
    for name, gated in (("--swiglu", True), ("--quick-geglu", True), ("--squared-relu", False)):
        text = f"torchrun --nproc_per_node 8 pretrain_gpt.py {SIZES} --ffn-hidden-size 2880 {name}\n"
        assert reading_of(source_of(text, "train.sh")).shape["gated"] is gated


def test_a_layer_list_is_no_learning_rate() -> None:
    reading = shell("--warmup_layers 0 1 22 23 --warmup_ratio 0.1")
    assert "--warmup_layers" in [one.key for one in reading.not_modelled]
    assert "--warmup_ratio" in reading.ignored


def test_a_batch_alone_does_not_make_a_file_deepspeeds() -> None:
    levanter = "trainer:\n  mp: p=f32,c=bf16\n  train_batch_size: 128\n  seed: 0\n"
    assert reading_of(source_of(levanter, "a.yaml")).format.name == "levanter"
    with pytest.raises(NapkinError, match="no format that napkin knows"):
        reading_of(source_of("train_batch_size: 16\nepochs: 3\n", "a.yaml"))
    for text in ('{"train_batch_size": 16}', "train_batch_size: 16\nbf16:\n  enabled: true\n"):
        assert reading_of(source_of(text, "ds.yaml")).value_of("framework") == "deepspeed"


@pytest.mark.parametrize("name", ["--config", "--yaml_config", "--train-config", "--cfg", "--recipe", "--exp_config"])
def test_a_settings_file_that_is_missing_is_named(name: str) -> None:
    with pytest.raises(NapkinError, match=r"its settings are in my\.yaml, which was not found"):
        reading_of(source_of(f"deepspeed src/train.py {name} my.yaml --output_dir out\n", "train.sh"))


def test_the_module_that_starts_is_named() -> None:
    text = "torchrun --nproc_per_node=8 --rdzv_backend c10d -m my.package.trainer --checkpoint.enable --a.b c\n"
    with pytest.raises(NapkinError, match=r"starts my\.package\.trainer, whose options"):
        reading_of(source_of(text, "train.sh"))


def test_a_launcher_that_a_branch_decides_starts_the_program_all_the_same() -> None:
    branch = 'if command -v uv; then RUN="uv run --no-sync torchrun"; else RUN=torchrun; fi'
    line = "$RUN --nproc_per_node 4 my_sft.py --base_model Qwen/Qwen3-1.7B --batch_size 1024 --micro_batch_size 4"
    with pytest.raises(NapkinError, match=r"starts my_sft\.py, whose options"):  # its names are axolotl's too
        reading_of(source_of(f"{branch}\n{line}\n", "train.sh"))


@pytest.mark.parametrize("more", ["--dpo true", "--use_dpo", "--do_orpo True", "--train_stage kto"])
def test_a_task_that_a_switch_names_is_asked(more: str) -> None:
    assert shell(more).inputs["task"].value is None
    assert "task" not in shell("--dpo false").inputs


def test_settings_that_a_module_or_an_argument_file_holds_are_named() -> None:
    for line in ("deepspeed --module my.tuning --config a.yaml --x", "python train.py --train_args_file a.json --x"):
        with pytest.raises(NapkinError, match=r"its settings are in a\.(yaml|json), which was not found"):
            reading_of(source_of(f"{line}\n", "train.sh"))


def test_a_program_without_options_is_named() -> None:
    with pytest.raises(NapkinError, match=r"starts train\.py without options of its own"):
        reading_of(source_of("#!/bin/bash\nuv run python src/train.py $@\n", "train.sh"))
    with pytest.raises(NapkinError, match="no training command with options was found"):
        reading_of(source_of("#!/bin/bash\nexport A=1\nmkdir -p x\n", "train.sh"))


def test_programs_that_make_data_are_not_the_training() -> None:
    made = "python create_pairs.py --model_name_or_path a --tokenizer_name b --save_prefix c --seed 1 --k 2 --m 3 --n 4"
    with pytest.raises(NapkinError, match=r"starts dpo\.py"):
        reading_of(source_of(f"{made}\naccelerate launch dpo.py --my_model a --out b\n", "train.sh"))


def test_a_vision_tower_before_megatrons_decoder_is_refused() -> None:
    """examples/multimodal: --seq-length is the tower's, --decoder-seq-length the language model's."""
    more = "--decoder-seq-length 1024 --img-h 336 --freeze-LM --freeze-ViT"
    reading = reading_of(source_of(f"torchrun --nproc_per_node 8 train.py {SIZES} --bf16 {more}\n", "train.sh"))
    assert reading.value_of("seq") == 1024
    assert {one.key for one in reading.refused} == {"--img-h", "--freeze-LM"}


def test_a_recipe_of_megatron_bridge_by_name_is_refused() -> None:
    line = "torchrun --nproc_per_node 8 scripts/training/run_recipe.py --recipe qwen3_8b_peft train.micro_batch_size=1"
    with pytest.raises(Refused, match="names a recipe"):
        reading_of(source_of(f"{line} train.global_batch_size=8 model.seq_length=4096\n", "train.sh"))


def test_open_instruct_started_as_a_module_is_open_instruct() -> None:
    reading = shell("--max_seq_length 4096 --beta 0.1", "accelerate launch -m", "open_instruct.dpo_tune")
    assert (reading.value_of("task"), reading.value_of("trainer")) == ("dpo", "accelerate")


def test_an_open_option_says_what_it_depends_on(napkin: Napkin, tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(
        "N=$(count)\nfor M in a/x b/y; do\n"
        "torchrun --nproc_per_node $N train.py --model_name_or_path $M --deepspeed my.json \\\n"
        "  --per_device_train_batch_size $SIZE --model_max_length 512 --num_train_epochs 1\ndone\n"
    )
    told = napkin(["memory", "--from", str(script), "--hardware", "h100"]).err
    assert "train.sh:3: --model_name_or_path: leaves the model open ($M, of a loop)" in told
    assert "train.sh:3: --nproc_per_node: leaves --gpus open (the output of $(count))" in told
    assert "train.sh:3: --deepspeed: leaves --zero open (my.json was not found)" in told
    assert "train.sh:4: --per_device_train_batch_size: leaves --micro-batch open ($SIZE)" in told


def test_a_refused_key_has_its_line(napkin: Napkin, tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(f"torchrun --nproc_per_node 8 train.py {SIZES} --bf16 \\\n --freeze-LM\n")
    answer = napkin(["memory", "--from", str(script), "--hardware", "h100"])
    assert answer.status == 3
    assert "train.sh:2: --freeze-LM: the language model is frozen" in answer.err


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ("--tune_mm_mlp_adapter True", ["--tune_mm_mlp_adapter"]),
        ("--freeze_backbone True --tune_mlp_adapter", ["--freeze_backbone", "--tune_mlp_adapter"]),
        ("--tune_st_mlp_adapter True", ["--tune_st_mlp_adapter"]),
        ("--tune_mm_projector True --tune_language_model True", []),
        ("--tune_mm_projector True --tune_language_model False", ["--tune_mm_projector", "--tune_language_model"]),
        ("--mm_tunable_parts mm_mlp_adapter", ["--mm_tunable_parts"]),
        ("--mm_tunable_parts mm_vision_tower,mm_mlp_adapter,mm_language_model", []),
        ("--tune_mm_llm False --tune_mm_vision True", ["--tune_mm_llm"]),
        ("--tune_mm_llm True --tune_mm_vision False --freeze_vision_tower True", []),
        ("--freeze_backbone True --lora_enable True", []),
    ],
)
def test_a_run_that_trains_no_language_model_is_refused(more: str, refused: list[str]) -> None:
    """LLaVA's llava/train/train.py, LLaVA-NeXT's, and Qwen-VL's finetuning: a projector is trained alone at first."""
    reading = shell(more, "deepspeed", "train_mem.py")
    assert [one.key for one in reading.refused] == refused
    assert not {"--tune_mm_llm", "--mm_tunable_parts", "--freeze_backbone"} & {one.key for one in reading.not_modelled}


@pytest.mark.parametrize("switch", ["--use_lora", "--use_peft True", "--lora_enable True"])
def test_the_switch_of_lora_says_that_it_is_used(switch: str) -> None:
    one = shell(switch).inputs["adapter"]
    assert (one.value, one.origin, one.where) == ("lora", "from file", switch.split()[0])


def test_a_trainer_that_shared_keys_suggest_is_assumed() -> None:
    assert said(shell("--lora_r 64 --dataset_name my/set", program="distill.py"), "trainer") == ("trl", "assumed")
    assert said(shell("--use_peft", program="distill.py"), "trainer") == ("trl", "derived")
    assert said(shell("--lora_r 8", program="sft.py"), "trainer") == ("trl", "derived")
    line = "python sft.py --base_model Qwen/Qwen2.5-0.5B --per_device_train_batch_size 2 --lora_r 8\n"
    assert said(reading_of(source_of(line, "own.sh")), "trainer") == ("trl", "assumed")  # TRL's has model_name_or_path
    text = "training:\n  max_steps: 200\n  gradient_accumulation_steps: 4\n  learning_rate: 1e-4\n  max_length: 256\n"
    assert said(reading_of(source_of(text, "own.yaml")), "trainer") == ("trl", "assumed")


def test_a_program_that_which_finds_is_that_program() -> None:
    for found in ('"$(which swift)"', "$(command -v swift)"):
        text = (
            f'cmd=({found} sft --model Qwen/Qwen2.5-7B --max_length 2048)\ntorchrun --nproc_per_node 2 "${{cmd[@]}}"\n'
        )
        reading = reading_of(source_of(f"#!/bin/bash\n{text}", "train.sh"))
        assert (reading.value_of("trainer"), reading.value_of("adapter")) == ("ms-swift", "lora")


def test_a_dtype_of_the_checkpoint_is_assumed_bf16_under_an_adapter_too() -> None:
    for more, frozen in (("--torch_dtype auto", "bf16"), ("--torch_dtype float16", "fp16"), ("", "fp32")):
        policy, origin = said(shell(f"--use_peft True --lora_r 8 {more}", program="sft.py"), "precision")
        assert f"frozen={frozen}" in str(policy)
        assert (origin == "assumed") is ("auto" in more)
