"""Python programs that train with TRL, transformers' Trainer, peft and unsloth: read from their syntax, never run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from napkin.errors import NapkinError, Refused
from napkin.inputs.launch.read import read_launch, reading_of
from napkin.inputs.launch.syntax import source_of
from tests.conftest import Napkin, run_line
from tests.test_launch import read

QLORA = """
import os
import torch
from trl import SFTConfig, SFTTrainer
MODEL = "meta-llama/Llama-3.1-8B"
SEQ = 2 * 1024
os.system("touch {touched}")

def main():
    bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)
    model = AutoModelForCausalLM.from_pretrained(MODEL, quantization_config=bnb, torch_dtype=torch.bfloat16)
    lora = LoraConfig(r=32, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    args = SFTConfig("out", per_device_train_batch_size=2, gradient_accumulation_steps=8, max_length=SEQ, bf16=True,
                     num_train_epochs=1, gradient_checkpointing_kwargs={{"use_reentrant": False}}, {more})
    trainer = SFTTrainer(model=model, args=args, train_dataset=load_dataset("x"), peft_config=lora)
    trainer.train()

if __name__ == "__main__":
    main()
"""
UNSLOTH = """
from unsloth import FastLanguageModel, is_bfloat16_supported
max_seq_length = 2048
model, tokenizer = FastLanguageModel.from_pretrained(model_name="unsloth/Meta-Llama-3.1-8B",
    max_seq_length=max_seq_length, dtype=None{loaded})
model = FastLanguageModel.get_peft_model(model, r=16, use_gradient_checkpointing="unsloth")
trainer = SFTTrainer(model=model, tokenizer=tokenizer, train_dataset=data(), max_seq_length=max_seq_length,
    args={arguments}(max_steps=60, fp16=not is_bfloat16_supported(), bf16=is_bfloat16_supported(){more}))
"""


def of(text: str, *names: str) -> list[Any]:
    options, _ = read(text)
    return [options.get(name) for name in names]


def test_trl_with_a_quantized_base(tmp_path: Path) -> None:
    """TRL keeps adapters of a quantized base in bf16, and recomputes unless told otherwise; 2 · 1024 tokens."""
    touched = tmp_path / "touched"
    options, reading = read(QLORA.format(touched=touched, more="optim='paged_adamw_8bit'"))
    expected = {
        "model": "llama3.1-8b",
        "trainer": "trl",
        "task": "sft",
        "micro-batch": 2,
        "grad-accum": 8,
        "seq": 2048,
        "epochs": 1,
        "adapter": "lora",
        "lora-rank": 32,
        "lora-targets": "q,v",
        "quantized": "nf4-dq",
        "precision": "frozen=nf4,param=bf16,grad=bf16,compute=bf16,state=bf16",
        "optimizer": "paged-adamw-8bit",
        "recompute": "full",
    }
    assert {name: options.get(name) for name in expected} == expected
    assert reading.inputs["lora-rank"].where == "LoraConfig.r"
    assert reading.inputs["lora-rank"].place.endswith("file:12: LoraConfig.r")
    assert not touched.exists()


def test_excluded_modules_are_targets_with_a_minus(tmp_path: Path) -> None:
    """peft's LoraConfig.exclude_modules takes them out of target_modules."""
    file = tmp_path / "train.py"
    file.write_text(
        "from peft import LoraConfig\nfrom trl import SFTConfig, SFTTrainer\n"
        "peft = LoraConfig(r=8, target_modules='all-linear', exclude_modules=['o_proj', 'down_proj'])\n"
        "SFTTrainer(model='Qwen/Qwen3-8B', args=SFTConfig(), peft_config=peft)\n",
        encoding="utf-8",
    )
    outcome = run_line(["read", "--from", str(file), "--json"])
    assert outcome.status == 0
    assert "all,-o_proj,-down_proj" in outcome.out
    assert "exclude_modules: " not in outcome.out


@pytest.mark.parametrize(
    ("model", "more", "targets"),
    [
        ("unsloth/Meta-Llama-3.1-8B", "", "all"),
        ("unsloth/Meta-Llama-3.1-8B", "finetune_vision_layers=False, finetune_mlp_modules=True, ", "all"),
        ("unsloth/Meta-Llama-3.1-8B", "finetune_mlp_modules=False, ", "q,k,v,o"),
        ("unsloth/Meta-Llama-3.1-8B", "finetune_attention_modules=False, ", "gate,up,down"),
        ("unsloth/Meta-Llama-3.1-8B", 'finetune_mlp_modules=False, target_modules=["q_proj"], ', "q"),
        ("unsloth/Qwen2.5-VL-7B-Instruct", "finetune_vision_layers=True, ", "all"),
        ("unsloth/Qwen2.5-VL-7B-Instruct", "finetune_vision_layers=False, ", None),
    ],
)
def test_unsloths_fast_model_gives_adapters_to_parts(model: str, more: str, targets: str | None) -> None:
    """unsloth_zoo/peft_utils.py, get_peft_regex: the linear layers of attention and MLPs, unless one is turned off."""
    text = UNSLOTH.format(loaded="", arguments="SFTConfig", more="").replace("r=16, ", f"r=16, {more}")
    text = text.replace("FastLanguageModel", "FastModel")
    assert of(text.replace("unsloth/Meta-Llama-3.1-8B", model), "lora-targets") == [targets]


def test_what_a_constant_condition_leaves_out_is_not_read() -> None:
    """Notebooks keep the loading of what they trained behind `if False:`."""
    again = 'FastLanguageModel.get_peft_model(model, r=64, use_gradient_checkpointing="unsloth")'
    program = UNSLOTH.format(loaded="", arguments="SFTConfig", more="")
    assert of(f"{program}\nif False:\n    {again}\n", "lora-rank", "adapter") == [16, "lora"]
    assert of(f"{program}\nif True:\n    pass\nelse:\n    {again}\n", "lora-rank", "adapter") == [16, "lora"]
    assert of(f"{program}\nif True:\n    {again}\n", "lora-rank") == [None]


@pytest.mark.parametrize(
    ("loaded", "arguments", "policy"),
    [
        ("torch.float16", "bf16=True", "param=fp16,grad=fp16,compute=bf16,state=fp16"),
        ("torch.bfloat16", "fp16=True", "param=bf16,grad=bf16,compute=fp16,state=bf16"),
        ("torch.bfloat16", "bf16=True", "bf16-pure"),
    ],
)
def test_autocast_leaves_weights_as_they_are_loaded(loaded: str, arguments: str, policy: str) -> None:
    """torch.autocast converts what products read; parameters, their gradients and states stay as they are."""
    program = f"""
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", torch_dtype={loaded})
trainer = Trainer(model=model, args=TrainingArguments(output_dir="x", {arguments}), train_dataset=data())
trainer.train()
"""
    assert of(program, "precision") == [policy]


def test_unsloths_defaults_are_its_own() -> None:
    """4 bits with double quantization unless told otherwise; 4 samples and 2 of them accumulated in TRL's arguments,
    which unsloth changes, 8 and 1 in transformers' (unsloth/models/rl.py); one GPU; adapters in fp32."""
    names = ("trainer", "gpus", "quantized", "micro-batch", "grad-accum", "optimizer", "seq", "lora-targets")
    of_trl = UNSLOTH.format(loaded="", arguments="SFTConfig", more="")
    assert of(of_trl, *names) == ["unsloth", 1, "nf4-dq", 4, 2, "adamw-8bit", 2048, "q,k,v,o,gate,up,down"]
    plain = UNSLOTH.format(loaded=", load_in_4bit=False", arguments="TrainingArguments", more="")
    assert of(plain, *names[2:4], "precision", "steps") == [
        None,
        8,
        "frozen=bf16,param=fp32,grad=fp32,compute=bf16,state=fp32",
        60,
    ]


@pytest.mark.parametrize(
    ("more", "option"),
    [
        ("max_steps=len(data) // 8", "steps"),
        ("optim=choose()", "optimizer"),
        ("gradient_checkpointing=config.again", "recompute"),
        ("fp16=use_fp16", "precision"),
    ],
)
def test_computed_values_are_required_from_the_user(more: str, option: str) -> None:
    options, _ = read(QLORA.format(touched="x", more=more))
    assert option in options
    assert options[option] is None


def test_a_name_with_two_values_and_a_branch_are_required_from_the_user() -> None:
    text = QLORA.format(touched="x", more="")
    twice = text.replace("SEQ = 2 * 1024", "SEQ = 1024\nSEQ = 2048")
    assert of(twice, "seq") == [None]
    branch = text.replace("    lora = ", "    if tuned():\n        lora = ")
    assert of(branch, "adapter") == [None]
    either = text.replace("peft_config=lora", "peft_config=lora if tuned() else None")
    assert of(either, "adapter") == [None]
    later = text.replace("    trainer = ", "    args.per_device_train_batch_size = 4\n    trainer = ")
    assert of(later, "micro-batch") == [None]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def f(): pass\nx = SFTTrainer(model=m, args=parse())\n", "not written in the file"),
        ("x = SFTConfig(**options)\nmake(x).train()\n", "takes settings from"),
        ("def f(): pass\nx = SFTConfig(bf16=True)\nLLM('gpt2').generate(x)\n", "Python program"),
        ("a = SFTTrainer(args=SFTConfig())\nb = DPOTrainer(args=DPOConfig())\n", "constructs 2 trainers"),
        ("def f(): pass\nmodel = LoraConfig(r=8)\n", "Python program"),
    ],
)
def test_programs_that_do_not_say_are_refused(text: str, says: str) -> None:
    with pytest.raises(Refused, match=says):
        read("import torch\n" + text)


def test_trainers_and_heads_without_a_task() -> None:
    text = "m = AutoModelForTokenClassification.from_pretrained('gpt2')\nt = {}(model=m, args={})\n"
    assert {one.key for one in read(text.format("Trainer", "TrainingArguments(bf16=True)"))[1].refused} == {
        "AutoModelForTokenClassification"
    }
    options, reading = read(text.format("BCOTrainer", "BCOConfig()"))
    assert options["task"] is None
    assert "'bco'" in reading.refused[1].why
    tuned = "t = GRPOTrainer(model='Qwen/Qwen3-8B', args=GRPOConfig(beta=0.04), peft_config=LoraConfig(r=8))\n"
    assert of(tuned, "reference", "adapter") == ["adapters-off", "lora"]
    generated = "t = RLOOTrainer(model='Qwen/Qwen3-8B', args=RLOOConfig(max_prompt_length=256, num_generations=4))\n"
    assert of(generated, "task", "samples-per-prompt", "model", "seq") == ["rloo", 4, "qwen3-8b", 512]


def test_trls_model_config_and_a_notebooks_commands() -> None:
    """TRL's ModelConfig has the model and LoRA; a notebook without a program starts one by its commands."""
    text = "m = ModelConfig(model_name_or_path='Qwen/Qwen2.5-3B', torch_dtype='bfloat16', use_peft=True, lora_r=4)\n"
    text += "t = SFTTrainer(model=m.model_name_or_path, args=SFTConfig(), peft_config=get_peft_config(m))\n"
    assert of(text, "model", "adapter", "lora-rank") == ["qwen2.5-3b", "lora", 4]
    command = "!torchrun --nproc_per_node 2 finetune.py --model_name_or_path Qwen/Qwen3-8B --bf16 True \\\n"
    cell = {"cell_type": "code", "source": ["import os\n", command, "  --per_device_train_batch_size 3\n"]}
    assert of(json.dumps({"cells": [cell]}), "gpus", "micro-batch", "model") == [2, 3, "qwen3-8b"]


def test_a_notebook_is_its_cells(napkin: Napkin, tmp_path: Path) -> None:
    """Commands to the shell, and a cell that is no Python, are left out."""
    code = ["!pip install trl\n%load_ext x\n", "broken(a b)", QLORA.format(touched="x", more="")]
    cells = [{"cell_type": "markdown", "source": ["# A"]}]
    cells += [{"cell_type": "code", "source": one.splitlines(keepends=True)} for one in code]
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"nbformat": 4, "cells": cells}), encoding="utf-8")
    asked = ["memory", "--from", str(path), "--gpus", "1", "--hardware", "h100", "--json"]
    found = napkin(asked)
    assert found.status == 0, found.err
    assert found.data["inputs"]["micro-batch"]["value"] == 2


def test_a_program_with_lists_and_keys_in_its_texts_is_python() -> None:
    """Lines within its texts look like TOML and YAML."""
    text = 'import torch\nfrom trl import SFTTrainer\nx = """\n[section]\nkey: value\na.b = 3\n"""\n'
    options, _ = read(text + "t = SFTTrainer(model='Qwen/Qwen3-8B', args=SFTConfig(max_length=512))\n")
    assert (options["seq"], options["model"]) == (512, "qwen3-8b")
    with pytest.raises(NapkinError, match="file:8: not Python"):
        read(text + "y = (\n")


STAGES = """
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

def first():
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-4B")
    model.gradient_checkpointing_enable()
    args = SFTConfig(per_device_train_batch_size=2, max_length=1024)
    SFTTrainer(model=model, args=args, peft_config=LoraConfig(r=8, target_modules="all-linear")).train()

def second():
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-1.7B")
    args = DPOConfig(per_device_train_batch_size=1, max_length=2048, gradient_checkpointing=False)
    DPOTrainer(model=model, args=args).train()
"""


def chosen(path: Path, line: int, *names: str) -> list[Any]:
    inputs = read_launch(f"{path}:{line}").inputs
    return [inputs[name].value if name in inputs else None for name in names]


def test_one_of_several_trainers_is_named_by_its_line(tmp_path: Path, napkin: Napkin) -> None:
    path = tmp_path / "stages.py"
    path.write_text(STAGES)
    names = ("model", "task", "micro-batch", "seq", "adapter", "lora-rank", "recompute")
    assert chosen(path, 8, *names) == ["qwen3-4b", "sft", 2, 1024, "lora", 8, "full"]
    assert chosen(path, 13, *names) == ["qwen3-1.7b", "dpo", 1, 2048, None, None, "none"]
    several = napkin(f"read --from {path}")
    assert several.status == 3
    assert "SFTTrainer on line 8, DPOTrainer on line 13" in several.err
    assert f"--from {path}:13" in several.err
    answered = napkin(f"memory --from {path}:13 --gpus 1 --hardware h100 --json")
    assert (answered.status, json.loads(answered.out)["inputs"]["seq"]["value"]) == (0, 2048), answered.err
    assert napkin(f"lint --from {path}:13 --gpus 1 --hardware h100").status == 0
    none = napkin(f"read --from {path}:3")
    assert (none.status, "no trainer is made on this line" in none.err) == (2, True)


def test_stages_in_one_scope_keep_what_was_assigned_last(tmp_path: Path) -> None:
    """The second stage loads its model anew: neither the first's switch nor its arguments are its own; a value written
    into arguments whose name both have stays open."""
    path = tmp_path / "script.py"
    lines = [one[4:] for one in STAGES.splitlines() if one.startswith("    ")]
    path.write_text("import trl\n" + "\n".join(lines) + "\n")
    names = ("model", "task", "seq", "recompute", "adapter")
    assert chosen(path, 5, *names) == ["qwen3-4b", "sft", 1024, "full", "lora"]
    assert chosen(path, 8, *names) == ["qwen3-1.7b", "dpo", 2048, "none", None]
    path.write_text("import trl\n" + "\n".join((*lines[:3], "args.max_length = 64", *lines[3:])) + "\n")
    assert chosen(path, 9, "seq") == [None]


def test_a_line_of_no_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    path.write_text("base_model: Qwen/Qwen3-8B\nmicro_batch_size: 2\nsequence_len: 2048\n")
    with pytest.raises(NapkinError, match="only programs and scripts take a line"):
        read_launch(f"{path}:2")
    with pytest.raises(NapkinError, match="No such file"):
        read_launch(f"{path}.py:2")


def test_the_environments_defaults_are_defaults() -> None:
    """`os.getenv("NAME", default)` is its default, which the variable overrides; without a default it is open."""
    text = (
        "import os, torch\nfrom transformers import TrainingArguments, Trainer, AutoModelForCausalLM\n"
        'model = AutoModelForCausalLM.from_pretrained(os.getenv("MODEL_ID", "Qwen/Qwen2.5-7B"))\n'
        'args = TrainingArguments(per_device_train_batch_size=int(os.environ.get("BATCH", "3")),\n'
        '    gradient_accumulation_steps=int(os.getenv("STEPS")), num_train_epochs=float("2"),\n'
        "    bf16=torch.cuda.is_available() and torch.cuda.is_bf16_supported())\n"
        "Trainer(model=model, args=args).train()\n"
    )
    reading = reading_of(source_of(text, "train.py"))
    assert [reading.value_of(one) for one in ("model", "micro-batch", "epochs")] == ["qwen2.5-7b", 3, 2]
    assert reading.inputs["micro-batch"].origin == "default"
    assert "$BATCH" in reading.inputs["micro-batch"].where
    assert reading.value_of("grad-accum") is None
    assert reading.value_of("precision") == "amp-bf16"


def test_a_length_that_the_program_keeps_for_itself_is_asked() -> None:
    """transformers' Trainer has no length: the program's own tokenization decides it. TRL's default is 1,024."""
    program = (
        'model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", torch_dtype=torch.bfloat16)\n'
        'tokens = tokenizer(text, max_length=341, padding="max_length")\n'
        "args = {config}(per_device_train_batch_size=4)\ntrainer = {trainer}(model=model, args=args)\n"
    )
    own = reading_of(source_of(program.format(config="TrainingArguments", trainer="Trainer"), "train.py"))
    assert own.inputs["seq"].value is None
    trl = reading_of(source_of(program.format(config="SFTConfig", trainer="SFTTrainer"), "train.py"))
    assert (trl.inputs["seq"].value, trl.inputs["seq"].origin) == (1024, "default")


PROMPTS = """
from peft import {kind}, get_peft_model
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", torch_dtype="bfloat16")
config = {kind}(task_type="CAUSAL_LM", num_virtual_tokens={count}{more})
args = SFTConfig("out", max_length=1024, bf16=True)
trainer = SFTTrainer(model=model, args=args, peft_config=config, train_dataset=data)
trainer.train()
"""


@pytest.mark.parametrize(
    ("kind", "adapter", "seq"),
    [
        ("PromptTuningConfig", "prompt", 1044),
        ("PromptEncoderConfig", "p-tuning", 1044),
        ("PrefixTuningConfig", "prefix", 1024),
    ],
)
def test_virtual_tokens_come_on_top_of_the_text_where_they_pass_through_the_network(
    tmp_path: Path, kind: str, adapter: str, seq: int
) -> None:
    """max_length truncates the text, before which peft puts the embeddings of 20 tokens; a prefix is keys and values
    in each layer (peft/peft_model.py, PeftModelForCausalLM.forward)."""
    (tmp_path / "train.py").write_text(PROMPTS.format(kind=kind, count=20, more=""))
    found = read_launch(str(tmp_path / "train.py")).inputs
    assert [found[one].value for one in ("adapter", "virtual-tokens", "seq")] == [adapter, 20, seq]


def test_a_number_of_virtual_tokens_that_is_not_written_is_asked_for(napkin: Napkin, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROMPTS.format(kind="PromptTuningConfig", count="options.tokens", more=""))
    found = napkin(["memory", "--from", str(tmp_path / "train.py")])
    assert found.status != 0
    assert "--virtual-tokens" in found.err


def test_an_encoder_of_another_width_is_refused(napkin: Napkin, tmp_path: Path) -> None:
    """128 of 4,096: three layers of 128 columns, which p-tuning is not counted with."""
    more = ", encoder_hidden_size=128"
    (tmp_path / "train.py").write_text(PROMPTS.format(kind="PromptEncoderConfig", count=20, more=more))
    found = napkin(["memory", "--from", str(tmp_path / "train.py")])
    assert found.status == 3
    assert "encoder_hidden_size" in found.err


DECLARED = """
import argparse
from dataclasses import dataclass, field
USE_LORA, QUANTIZED = True, False
FULL = not USE_LORA

class CFG:
    seq = 4096

@dataclass
class Script:
    epochs: int = field(default=2)

def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--accumulate", type=int, required=True)
    parser.add_argument("--checkpointing", action="store_true")
    return parser.parse_args()

def main(args):
    script = Script()
    if QUANTIZED:
        bnb = BitsAndBytesConfig(load_in_4bit=True)
    else:
        bnb = None
    kwargs = {"torch_dtype": "bfloat16"}
    kwargs["attn_implementation"] = "eager"
    model = AutoModelForCausalLM.from_pretrained("gpt2", quantization_config=bnb, **kwargs)
    if USE_LORA:
        lora = LoraConfig(r=8, target_modules=["c_attn"])
    else:
        lora = None
    SFTTrainer(model, SFTConfig("o", bf16=True, max_length=CFG.seq, num_train_epochs=script.epochs,
        per_device_train_batch_size=args.batch_size, gradient_accumulation_steps=args.accumulate,
        gradient_checkpointing=args.checkpointing, optim="sgd" if FULL else "adamw_8bit"), peft_config=lora)

args = get_args()
main(args)
"""


def test_settings_that_a_program_declares_have_their_defaults() -> None:
    """Options of argparse, fields of a dataclass, attributes of a class, entries set later, and branches on flags."""
    options, reading = read(DECLARED)
    expected = {
        "micro-batch": 4, "grad-accum": None, "recompute": "none", "epochs": 2, "seq": 4096, "adapter": "lora",
        "lora-rank": 8, "optimizer": "adamw-8bit", "attention": "eager",
    }  # fmt: skip
    assert {name: options[name] for name in expected} == expected
    assert "quantized" not in options
    stated = reading.inputs["micro-batch"]
    assert (stated.origin, stated.where.split(", ")[0]) == ("default", "--batch_size")
    assert reading.inputs["seq"].origin == "from file"


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ("    args.batch_size = pick()\n", "micro-batch"),  # written later
        ("    global USE_LORA\n    USE_LORA = pick()\n", "adapter"),
        ('    kwargs["torch_dtype"] = pick()\n', "precision"),
    ],
)
def test_settings_that_a_program_changes_are_asked(more: str, name: str) -> None:
    options, _ = read(DECLARED.replace("    if USE_LORA:\n", f"{more}    if USE_LORA:\n"))
    assert options[name] is None


def test_an_argument_class_of_the_programs_own_is_not_trls() -> None:
    """OLMo-core's SFTConfig is a class of its script."""
    own = "class SFTConfig(Config):\n    pass\nconfig = SFTConfig(model=build())\ntrain(config)\n"
    with pytest.raises(Refused, match="is a Python program"):
        read(own)
    options, _ = read(
        own.replace("Config):", "trl.SFTConfig):").replace("model=build()", "per_device_train_batch_size=2")
    )
    assert options["micro-batch"] == 2


FUNCTION = """
NAME = "gpt2"

def train_fn(name, dtype=torch.bfloat16, batch=8, accumulate=1, fsdp="", fsdp_config=None, checkpointing=False):
    if dtype == torch.bfloat16:
        loading = {"attn_implementation": "eager", "torch_dtype": dtype}
    else:
        loading = dict()
    if fsdp != "" and fsdp_config is not None:
        more = {"fsdp": fsdp, "fsdp_config": fsdp_config}
    else:
        more = {"gradient_checkpointing": checkpointing}
    model = AutoModelForCausalLM.from_pretrained(name, **loading)
    Trainer(model, TrainingArguments("o", bf16=True, per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulate, **more))
"""


def test_a_function_that_is_called_once_has_that_calls_arguments() -> None:
    called = FUNCTION + "train_fn(NAME, batch=2, fsdp='full_shard', fsdp_config={'offload_params': True})\n"
    options, reading = read(called)
    expected = {"model": "gpt2", "micro-batch": 2, "grad-accum": 1, "zero": 3, "offload": "optimizer,parameters"}
    assert {name: options[name] for name in expected} == expected
    assert (options["attention"], options["recompute"]) == ("eager", "none")
    assert reading.inputs["micro-batch"].origin == "from file"
    assert read(FUNCTION + "train_fn(NAME, checkpointing=True)\n")[0]["recompute"] == "full"


def test_a_function_that_is_called_elsewhere_has_its_defaults() -> None:
    """Its callers may override them, which is said; what two calls set differently is asked."""
    found = read(FUNCTION.replace("**more", "gradient_checkpointing=False").replace("**loading", "torch_dtype=dtype"))[
        1
    ]
    stated = found.inputs["micro-batch"]
    assert (stated.value, stated.origin, stated.where.split(", ")[0]) == (8, "default", "batch")
    assert found.inputs["model"].value is None
    both = (
        FUNCTION.replace("**more", "").replace("**loading", "") + "train_fn(NAME, batch=2)\ntrain_fn(NAME, batch=4)\n"
    )
    assert read(both)[0]["micro-batch"] is None
    named = FUNCTION.replace("**more", "").replace("**loading", "").replace("name, dtype", 'dtype=1, name="gpt2", d')
    model = read(named)[1].inputs["model"]
    assert (model.value, model.origin, model.where.split(", ")[0]) == ("gpt2", "default", "name")
