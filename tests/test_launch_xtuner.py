"""xtuner's Python configurations and DeepSpeed-Chat's launch lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from napkin.inputs.launch.read import read_launch, reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.syntax import source_of

CONFIG = """import torch
from mmengine.optim import AmpOptimWrapper
from peft import LoraConfig
from torch.optim import AdamW
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from xtuner.model import SupervisedFinetune

pretrained_model_name_or_path = 'meta-llama/Llama-2-7b-hf'
max_length = 2048
pack_to_max_length = True
sequence_parallel_size = 2
batch_size = 4  # per device
accumulative_counts = 8
accumulative_counts *= sequence_parallel_size
max_epochs = 3
optim_type = AdamW

model = dict(
    type=SupervisedFinetune,
    llm=dict(
        type=AutoModelForCausalLM.from_pretrained,
        pretrained_model_name_or_path=pretrained_model_name_or_path,
        quantization_config=dict(
            type=BitsAndBytesConfig, load_in_4bit=True, bnb_4bit_compute_dtype=torch.float16,
            bnb_4bit_use_double_quant=True, bnb_4bit_quant_type='nf4')),
    lora=dict(type=LoraConfig, r=64, lora_alpha=16, lora_dropout=0.1))
train_dataloader = dict(batch_size=batch_size, num_workers=0)
optim_wrapper = dict(
    type=AmpOptimWrapper, optimizer=dict(type=optim_type, lr=2e-4), accumulative_counts=accumulative_counts,
    loss_scale='dynamic', dtype='float16')
train_cfg = dict(max_epochs=max_epochs)
"""


def options(reading: Reading, *names: str) -> dict[str, object]:
    """Return the values of options."""
    return {name: reading.value_of(name) for name in names}


def test_an_xtuner_configuration_is_read() -> None:
    reading = reading_of(source_of(CONFIG, "qlora.py"))
    expected = {
        "model": "llama2-7b",
        "task": "sft",
        "seq": 2048,
        "packing": True,
        "cp": 2,
        "micro-batch": 4,
        "grad-accum": 16,  # 8, and again for the two ranks that share a sequence
        "epochs": 3,
        "adapter": "lora",
        "lora-rank": 64,
        "lora-targets": "all",
        "lora-dropout": 0.1,
        "quantized": "nf4-dq",
        "optimizer": "adamw",
        "recompute": "full",
    }
    assert options(reading, *expected) == expected
    assert not reading.refused
    assert any("xtuner train" in one.key for one in reading.not_modelled)


def test_the_launch_line_of_xtuner_adds_gpus_and_zero(tmp_path: Path) -> None:
    (tmp_path / "qlora.py").write_text(CONFIG)
    script = tmp_path / "run.sh"
    script.write_text("NPROC_PER_NODE=8 xtuner train qlora.py --deepspeed deepspeed_zero2_offload\n")
    reading = read_launch(str(script))
    assert options(reading, "gpus", "zero", "offload", "framework", "micro-batch") == {
        "gpus": 8,
        "zero": 2,
        "offload": "optimizer",
        "framework": "deepspeed",
        "micro-batch": 4,
    }
    assert reading.value_of("precision") == "frozen=nf4,param=bf16,grad=bf16,compute=bf16,state=fp32,master=fp32"


def test_xtuners_other_models_are_refused() -> None:
    reading = reading_of(source_of(CONFIG.replace("type=SupervisedFinetune", "type=LLaVAModel"), "llava.py"))
    assert [one.key for one in reading.refused] == ["model.type"]


SFT = """ZERO_STAGE=$2
if [ "$ZERO_STAGE" == "" ]; then ZERO_STAGE=3; fi
deepspeed --num_gpus 4 main.py --data_path Dahoas/rm-static --data_split 2,4,4 \\
  --model_name_or_path facebook/opt-1.3b --per_device_train_batch_size 6 --max_seq_len 512 \\
  --gradient_checkpointing --zero_stage $ZERO_STAGE --offload --deepspeed"""
RLHF = """deepspeed --num_gpus 8 main.py --actor_model_name_or_path facebook/opt-13b \\
  --critic_model_name_or_path facebook/opt-350m --num_padding_at_beginning 1 --actor_zero_stage 3 \\
  --critic_zero_stage 3 --per_device_generation_batch_size 8 --per_device_training_batch_size 4 \\
  --max_answer_seq_len 128 --enable_hybrid_engine --actor_gradient_checkpointing --dtype bf16 --deepspeed"""


def test_deepspeed_chats_steps_are_read() -> None:
    assert options(
        reading_of(source_of(SFT, "run.sh")),
        *("task", "model", "gpus", "micro-batch", "seq", "zero", "offload", "recompute", "precision"),
    ) == {
        "task": "sft",
        "model": "opt-1.3b",
        "gpus": 4,
        "micro-batch": 6,
        "seq": 512,
        "zero": 3,
        "offload": "optimizer,parameters",
        "recompute": "full",
        "precision": "fp16-mixed",
    }
    assert options(
        reading_of(source_of(RLHF, "run.sh")),
        *("task", "model", "critic", "reward", "reference", "seq", "max-response-tokens", "updates", "precision"),
    ) == {
        "task": "ppo",
        "model": "opt-13b",
        "critic": "opt-350m",
        "reward": "opt-350m",
        "reference": "same",
        "seq": 384,  # 256 by default, and 128
        "max-response-tokens": 128,
        "updates": 2,
        "precision": "bf16-mixed",
    }


@pytest.mark.parametrize("alone", [True, False])
def test_deepspeed_chats_lora_is_refused_where_more_is_trained(alone: bool) -> None:
    line = SFT + " --lora_dim 128" + (" --only_optimize_lora" if alone else "")
    reading = reading_of(source_of(line, "run.sh"))
    assert (reading.value_of("lora-rank"), reading.value_of("lora-targets")) == (128, "all")
    assert bool(reading.refused) is not alone
