"""What programs state in names and ways of their own: setattr, unused objects, a batch's length, a launcher's GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from napkin.errors import Refused
from napkin.inputs.launch.read import read_launch, reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.syntax import source_of
from tests.conftest import Napkin

PROGRAM = """
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from trl import DPOConfig, DPOTrainer
bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
lora = LoraConfig(r=8, target_modules=["q_proj"])
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B"{loaded})
args = DPOConfig("out")
{after}
DPOTrainer(model=model, args=args, train_dataset=data{passed}).train()
"""
LINE = "{launcher} train.py --model_name_or_path Qwen/Qwen2.5-0.5B --per_device_train_batch_size 2 --bf16 True {more}\n"


def python(loaded: str = "", after: str = "", passed: str = "") -> Reading:
    return reading_of(source_of(PROGRAM.format(loaded=loaded, after=after, passed=passed), "train.py"))


def shell(launcher: str, more: str = "") -> Reading:
    return reading_of(source_of(LINE.format(launcher=launcher, more=more), "train.sh"))


def test_setattr_sets_an_argument_as_an_assignment_does() -> None:
    for after in ("setattr(args, 'per_device_train_batch_size', 4)", "args.per_device_train_batch_size = 4"):
        assert python(after=after).value_of("micro-batch") == 4
    assert python().value_of("micro-batch") == 8  # TrainingArguments' default
    assert python(after="setattr(other, 'per_device_train_batch_size', 4)").value_of("micro-batch") == 8
    with pytest.raises(Refused, match="setattr"):
        python(after="for key in given:\n    setattr(args, key, given[key])")


def test_objects_that_a_program_makes_and_never_uses_set_nothing() -> None:
    assert python().value_of("quantized") is None
    assert "adapter" not in python().inputs
    assert python(loaded=", load_in_8bit=True").value_of("quantized") == "int8"
    both = python(loaded=", quantization_config=bnb", passed=", peft_config=lora")
    assert (both.value_of("quantized"), both.value_of("lora-rank")) == ("nf4", 8)


@pytest.mark.parametrize(
    ("more", "option", "value"),
    [
        ("--seq_length 512", "seq", 512),
        ("--use_peft True --peft_lora_r 64", "lora-rank", 64),
        ("--use_peft True --sample_length 512", "seq", None),
        ("--use_peft True --max_prompt_length 512", "seq", 1024),  # a part of TRL's default
        ("--use_peft True --group_by_length True", "seq", 1024),
        ("--use_peft True --quantization_bit 8", "quantized", None),
        ('--use_peft True --lora_target_modules "q_proj", "v_proj"', "lora-targets", None),
        ('--use_peft True --lora_target_modules "q_proj" "v_proj"', "lora-targets", "q,v"),
    ],
)
def test_sizes_under_a_programs_own_names_are_read_or_asked_for(more: str, option: str, value: object) -> None:
    stated = shell("python", more).inputs[option]
    assert stated.value == value


@pytest.mark.parametrize(
    ("launcher", "gpus"),
    [
        ("deepspeed --include localhost:0,1", 2),
        ("deepspeed --include worker-0:0,1,2,3@worker-1:0", 5),
        ("deepspeed --include worker-0@worker-1:0", None),
        ("deepspeed --exclude localhost:0", None),
        ("deepspeed --num_gpus 4", 4),
    ],
)
def test_deepspeed_selects_gpus_of_hosts(launcher: str, gpus: int | None) -> None:
    assert shell(launcher).inputs["gpus"].value == gpus


def test_a_launcher_file_that_is_not_here_leaves_the_sharding_open(napkin: Napkin) -> None:
    reading = shell("accelerate launch --num_processes 4 --config_file absent.yaml")
    assert reading.value_of("gpus") == 4
    assert reading.inputs["zero"].value is None
    assert shell("accelerate launch --config_file absent.yaml").inputs["gpus"].value is None
    assert "zero" not in shell("accelerate launch --num_processes 4").inputs


def test_the_eager_backend_generates_no_code() -> None:
    assert shell("accelerate launch --num_processes 4 --use_fsdp --dynamo_backend eager").value_of("compile") is None
    assert shell("accelerate launch --num_processes 4 --use_fsdp --dynamo_backend inductor").value_of("compile") is True


def test_the_recipe_of_a_torchtune_line_tells_its_gpus(tmp_path: Path) -> None:
    settings = tmp_path / "own.yaml"
    settings.write_text(
        "model:\n  _component_: torchtune.models.llama2.lora_llama2_7b\n  lora_attn_modules: ['q_proj', 'v_proj']\n"
        "  lora_rank: 8\nbatch_size: 2\ngradient_accumulation_steps: 8\ndtype: bf16\ndevice: cuda\n"
        "optimizer:\n  _component_: torch.optim.AdamW\nenable_activation_checkpointing: True\n"
    )
    line = tmp_path / "run.sh"
    line.write_text("tune run lora_finetune_single_device --config own.yaml\n")
    assert read_launch(str(line)).value_of("gpus") == 1
    assert "zero" not in read_launch(str(line)).inputs
    assert read_launch(str(settings)).inputs["gpus"].value is None


OWN = """
import argparse, missing_library
from dataclasses import dataclass, field
@dataclass
class TrainingArguments(transformers.TrainingArguments):
    optim: str = field(default="paged_adamw_32bit")
    model_max_length: int = field(default=512, metadata={"help": "tokens"})
    num_train_epochs: float = compute()
parser = argparse.ArgumentParser()
parser.add_argument("--gradient_accumulation_steps", type=int, default=4)
parser.add_argument("--gradient-checkpointing", action="store_true")
parser.add_argument("--bf16", default=False)
"""


def test_defaults_of_a_program_beside_its_line_hold_in_place_of_the_librarys(tmp_path: Path) -> None:
    line = tmp_path / "run.sh"
    line.write_text(LINE.format(launcher="torchrun --nproc_per_node 2", more=""))
    assert read_launch(str(line)).value_of("grad-accum") == 1  # TrainingArguments' default
    (tmp_path / "train.py").write_text(OWN)
    reading = read_launch(str(line))
    expected = {
        "grad-accum": 4,
        "seq": 512,
        "optimizer": "paged-adamw",
        "recompute": "none",
        "epochs": 3,
        "micro-batch": 2,
    }
    assert {name: reading.value_of(name) for name in expected} == expected
    plain = shell("torchrun").value_of("precision")
    assert reading.value_of("precision") == plain  # --bf16 of the line wins
    (tmp_path / "train.py").write_text(OWN + "parser.add_argument('--lora_r', default=32)\n")
    assert "adapter" not in read_launch(str(line)).inputs
    for stated, option, value in ((500, "steps", 500), (-1, "epochs", 3)):  # -1: TrainingArguments' own
        (tmp_path / "train.py").write_text(OWN + f"parser.add_argument('--max_steps', default={stated})\n")
        assert read_launch(str(line)).value_of(option) == value
    (tmp_path / "train.py").write_text(OWN + "parser.add_argument('--lora_r', default=32)\n")
    line.write_text(LINE.format(launcher="python", more="--use_lora True"))
    assert read_launch(str(line)).value_of("lora-rank") == 32
    line.write_text(LINE.format(launcher="python", more="--max_seq_len 256 --optim adamw_torch"))
    assert [read_launch(str(line)).value_of(name) for name in ("seq", "optimizer")] == [256, "adamw"]
    for text in ("def broken(", OWN + "parser.add_argument('--optim', default='sgd')", OWN.replace("512", "-1")):
        (tmp_path / "train.py").write_text(text)
        assert read_launch(str(line)).value_of("seq") == 256


@pytest.mark.parametrize(
    "switch",
    ["--use_llm_lora 16", "--use_backbone_lora 8", "--adapter lora", "--training_type lora", "--use_lora_adapter 1"],
)
def test_a_switch_of_adapters_under_a_name_of_its_own_is_asked(switch: str) -> None:
    """InternVL's use_llm_lora holds a rank; a word names the method: neither is full training."""
    line = "torchrun --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 2 "
    found = reading_of(source_of(f"{line}{switch}\n", "run.sh"))
    assert "adapter" in found.inputs
    assert found.value_of("adapter") is None
    for off in ("--use_llm_lora 0", "--run_name lora", "--lora_dropout 0"):
        assert "adapter" not in reading_of(source_of(f"{line}{off}\n", "run.sh")).inputs


def test_internvls_backbone_is_the_tower() -> None:
    line = "torchrun train.py --model_name_or_path OpenGVLab/InternVL3-2B --per_device_train_batch_size 2 "
    found = reading_of(source_of(f"{line}--freeze_llm False --freeze_backbone True\n", "run.sh"))
    assert (found.value_of("freeze"), found.refused) == ("vision", [])
    alone = reading_of(source_of(f"{line}--freeze_backbone True\n", "run.sh"))  # LLaVA's
    assert [one.option for one in alone.refused] == ["freeze"]


def test_auto_in_a_linked_file_leaves_a_script_s_default(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(
        '{"zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}}'
    )
    path = tmp_path / "run.sh"
    path.write_text(
        "B=${B:-4}\ndeepspeed train.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size $B "
        "--max_seq_length 2048 --bf16 True --deepspeed ds.json\n"
    )
    assert read_launch(str(path)).value_of("micro-batch") == 4


@pytest.mark.parametrize(
    ("stated", "option", "value"),
    [
        ("--accumulate_grad_batches 4", "grad-accum", 4),
        ("--gradient_acc_steps 4", "grad-accum", 4),
        ("--max_epochs 5", "epochs", 5),
        ("--max_train_steps 500", "steps", 500),
        ("--tp_size 2", "tp", 2),
        ("--sp_size 2", "cp", 2),
        ("--precision bf16", "precision", None),
        ("--use_bf16 True", "precision", None),
        ("--fsdp2 True", "zero", None),
        ("--strategy deepspeed_stage_3", "zero", None),
        ("--quantize 4bit", "quantized", None),
        ("--num_layers_unfrozen 2", "freeze-layers", None),
        ("--train_lm_head_only True", "freeze-layers", None),
    ],
)
def test_settings_under_names_of_its_own_win_over_defaults(stated: str, option: str, value: object) -> None:
    """A name that can mean one thing is assumed to; one that tells no amount leaves the option open."""
    line = "torchrun --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 2 "
    found = reading_of(source_of(f"{line}{stated}\n", "run.sh")).inputs[option]
    assert (found.value, found.origin) == (value, "assumed" if value else "from file")


@pytest.mark.parametrize("stated", ["--warmup_steps 5", "--save_steps 5", "--fp16 False", "--freeze_vision_tower True"])
def test_settings_of_other_things_change_nothing(stated: str) -> None:
    line = "torchrun --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 2 "
    plain, other = (reading_of(source_of(f"{line}{more}\n", "run.sh")) for more in ("", stated))
    assert {name: one.value for name, one in other.inputs.items()} == {
        name: one.value for name, one in plain.inputs.items()
    }


@pytest.mark.parametrize("switch", ["use_adalora", "use_ia3", "use_oft", "enable_vera"])
def test_a_switch_of_another_adapter_is_refused(switch: str) -> None:
    """peft's examples/int8_training/run_adalora_whisper_int8.sh has --use_peft --use_adalora."""
    assert [one.key for one in shell("torchrun --nproc_per_node 2", f"--use_peft --{switch}").refused] == [
        f"--{switch}"
    ]
    assert not shell("torchrun --nproc_per_node 2", "--use_peft").refused
