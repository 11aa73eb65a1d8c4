"""No option is ignored in silence: given next to a question, each one changes the answer, is refused, or is named in a
note. Every option of every command is asked in this process with a few of the questions that it belongs to; with
NAPKIN_ALL=1 with all of them."""

from __future__ import annotations

import os
import random
import re
import shlex

import pytest

from napkin.commands.command import named
from napkin.commands.inputs import Inputs
from napkin.commands.signature import OptionText
from napkin.options.output import COMMON
from napkin.options.registry import OPTIONS
from tests.conftest import run_line

QUESTIONS = """
memory llama3-8b --hardware h100 --gpus 8 --zero 3
memory llama3-8b --gpus 16 --tp 2 --pp 4 --zero 1 --global-batch 32
memory mixtral-8x7b --hardware h100 --gpus 16 --ep 8 --zero 1
memory gpt2 --seq 512
memory t5-base --seq 512
memory gpt2 --task dpo --seq 512 --hardware a100
memory llama3-8b --hardware h100 --lora-rank 16 --quantized nf4 --seq 1024
memory llama3-8b --hardware h100 --inference --seq 8192
memory llama3-8b --hardware h100 --gpus 8 --zero 3 --max micro-batch --recompute full
memory linear --width 4 --depth 2 --batch 2 --optimizer adagrad --precision fp32
step llama3-8b --gpus 8 --zero 3 --hardware h100
step llama3-8b --gpus 16 --tp 2 --pp 4 --global-batch 32 --hardware h100
step gpt2 --hardware a100
step gpt2 --task grpo --hardware a100 --prompt-tokens 100 --response-tokens 300 --samples-per-prompt 2 --global-batch 4
step gpt2 --task gkd --reference gpt2-large --rollout colocated --hardware a100 --prompt-tokens 100 \
--response-tokens 300 --global-batch 4
step mixtral-8x7b --gpus 16 --ep 8 --zero 1 --global-batch 64 --hardware h100
train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --mfu 0.5
train-time --params 70B --tokens 15T --gpus 1024 --hardware h100
train-time --params 7B --gpus 256 --hardware a100 --mfu 0.45 --price 2 --budget 2000000
train-time --params 7B --gpus 256 --hardware a100 --tokens 1T --within 30d
train-time llama3-8b --tokens 1T --hardware h100 --within 30d
train-time llama3-8b --tokens 1T --gpus 64 --hardware h100 --tp 2 --zero 1 --global-batch 512 --seq 8192
train-time llama3-8b --samples 52k --sample-tokens 350 --lora-rank 16 --gpus 8 --hardware h100 --seq 2048
train-time llama3-8b --steps 1000 --global-batch 64 --gpus 8 --zero 3 --hardware h100 --seq 2048
plan gpt2 --gpus 4 --hardware h100 --seq 1024 --global-batch 16
plan gpt2 --hardware h100 --tokens 10B --within 30d
optimal --compute 1e22
optimal --gpus 64 --hardware h100 --within 30d --mfu 0.4
mfu llama3-8b --tokens-per-second 98000 --gpus 8 --hardware h100 --seq 8192
mfu llama3-8b --step-time 4s --gpus 16 --global-batch 64 --tp 2 --hardware h100 --seq 4096
mfu --params 7B --tokens-per-second-per-gpu 3100 --hardware a100
mfu --params 7B --samples-per-second 3 --seq 2048 --gpus 8 --hardware a100
mfu matmul 16384x32768x8192 --time 0.16s --dtype fp32 --hardware h100
max-params --gpus 8 --hardware h100
max-params --gpus 8 --hardware h100 --like gpt2 --zero 3
max-params --gpus 1 --hardware h100 --inference
roofline matmul 4096x4096x4096 --hardware h100
roofline relu 1048576 --hardware h100
roofline transfer 80GB --link pcie5 --hardware h100
roofline transfer 80GB --link own --hardware h100
roofline gpt2 --hardware h100 --seq 1024
flops gpt2 --seq 1024
flops matmul 16384x32768x8192
flops linear --widths 4,4,1 --batch 2
params llama3-8b
params deepseek-v3
checkpoint --params 70B --write-bandwidth 10GB/s --mtbf 24h
checkpoint gpt2
data --tokens 15T --vocab 128256
data lengths tests/data/samples.jsonl --tokens-field tokens
init --fan-in 4096 --depth 32
optimizer adamw --params 7B
optimizer adamw --shape 96x64
optimizer
tensor 4x8
dtype
dtype 1e-8
dtype bf16
hardware h100
hardware
models llama3-8b
models
compare h100 b200
sweep train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --over mfu=0.3,0.4
compare train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --mfu 0.4 --against hardware=b200
sensitivity train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --mfu 0.4
""".strip().splitlines()

VALUES = {
    name: texts.split("|")
    for name, texts in (
        line.split("=", 1)
        for line in """
accelerator=b200
active-params=2B
adapter=dora
adapter-block=4|8
lora-dropout=0.1
against=mfu=0.5
assume-ignorable=no_such_field
attention=eager|efficient
batch=4
budget=100000
by=gpus=512,1024
bytes-per-param=12
cache-dtype=fp8
capacity-factor=1.5|2
carbon-intensity=0.1
change=20%
chunk-layers=2|4
claimed-mfu=0.4
confidence=50
count=3
cp=2
critic=gpt2
cut=2
depth=3
document-lengths=1024,1024
dp=4|2
dp-shard=2|4
dropout=0.1
dtype=fp8|fp16|fp32
emit=megatron|deepspeed
ep=2|4
epochs=2
etp=2
expert-imbalance=1.5
factor=1.5
family=llama
fan-in=1024
first-stage-layers=5
flops=palm|causal
framework=deepspeed|torchtitan
fsdp-version=1
freeze=vision|projector
freeze-head=
freeze-layers=4
global-batch=64|128
goodput=0.8
gpu-mtbf=10000h
restart-time=20min
run-kind=speedrun|benchmark
power=measured
phases=x
region=europe-north1
spares=8
compute=1e22
law=llama3-2024
served-tokens=1T
ulysses=2|4
unique-tokens=100B
experts=4
granularity=2
checkpoint-interval=2h
bits=8
gpus=32|16
gpus-per-node=4|2
grad-accum=2|8
hardware=h200|b200
host-memory=1TB
image-tokens=300
images=2
implementation=megatron|nanogpt
index=1,2
last-stage-layers=5
lengths=tests/data/lengths.json
like=qwen2.5
limit=time <= 150d
link=pcie4
link-bandwidth=50GB/s
log=tps: 6,000  tflops: 300.0  mfu: 30.0%
logprob-micro-batch=1|64
loading=host
lora-rank=8|64
lora-targets=q,v
loss=fused|chunked
kernels=liger|unsloth|axolotl|axolotl-liger
max=micro-batch|seq
max-cp=1|2
max-ep=1
max-global-batch=32
max-micro-batch=1|2
max-params=10B
max-pp=1|2
max-prompt-tokens=300
max-response-tokens=900
max-tp=1|2
max-vp=1|2
max-zero=1|0
mean-document-length=512
memory-bandwidth=1TB/s
memory-size=40GB
mfu=0.33
micro-batch=2|4
micro-batch-tokens=16Ki
min=gpus|cost
min-params=10B
momentum=0.9|0
modules-to-save=lm_head
mtbf=12h
network-bandwidth=2GB/s
nodes=4|2|1
objective=gpus|cost
off-policy-steps=2
on-policy=0.3
offload=optimizer|activations
oversubscription=4|16
optimizer=sgd|lion
optimizer-form=forloop|foreach
out-dtype=fp32
over=gpus=512,1024
pairs=half
param-dtype=bf16
params=3B
peak-flops=5e14
permute=1,0
power-overhead=1.5
pp=2|4
precision=fp32|bf16-pure
price=7
prompt-tokens=200
pue=1.5
quantized=nf4
recompute=full|selective
reference=precomputed|gpt2
run-kind=benchmark|speedrun
response-tokens=400
reward=gpt2
rollout=colocated:0.3
rollout-offload=optimizer
graphs=parts|whole
dispatcher=alltoall|deepep
async-dp=none|gradients|both
virtual-tokens=20
rollout-tp=2
rows=3
sample-tokens=100
samples=1M
samples-per-prompt=4
samples-per-second=5
save=full
schedule=gpipe|interleaved
search=meta
seq=2048|1024
shape=96x64
show=cost|time
size=2x3x4
slice=0:2,0:2
snapshot-device=1
stack=megatron-core|lean
stage-layers=7,8,8,9
std=0.02
step-time=2.5s
steps=1000
target-seq=256
task=dpo|grpo
tdp=500
tflops=300
theme=dark
time=0.5s
tokens=500B
tokens-field=input_ids
tokens-per-second=40000
tokens-per-second-per-gpu=5000
tp=2|4
trainer=trl|unsloth|nemo
updates=2
vary=mfu
vendor=AMD
view=2x16
vocab=32000
vocab-multiple=1024
vp=2|4
width=8
widths=4,8,1
within=10d
write-bandwidth=5GB/s
zero=1|2|0
""".strip().splitlines()
    )
}
"""Values that differ from the default; if there are several, each may be the one that a question takes."""

FILES = {"from-profile", "hardware-file", "output", "plot", "profile", "run", "snapshot", "junit"}
"""Options that name a file."""
EXIT_STATUS = {"must-fit"}
"""Options that only the exit status depends on, and that only if it does not fit."""
SHOWN_ONLY = {"rows", "worst", "show"}
"""Options that say how much of an answer people see."""
TOLD = ("inputs", "notes", "napkin", "command", "units", "evidence")
"""Keys of an answer that say nothing of what it found."""
DOCUMENTED = {
    ("tensor 4x8", "contiguous"),
    ("train-time llama3-8b --tokens 1T --hardware h100 --within 30d", "min"),
}
"""Options that change nothing there and say so in their help; what is left out may be asked for by its name."""


def substance(data: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in data.items() if key not in TOLD}


def drawn(line: str) -> list[str]:
    """Return the options of the line's command that the line does not have."""
    command, _ = named(shlex.split(line))
    there = set(re.findall(r"--([a-z][\w-]*)", line))
    kept = {*there, *FILES, *EXIT_STATUS, *COMMON, "profile", "data", *command.arguments}
    return [name for name in dict.fromkeys((*command.names, *command.figures)) if name not in kept]


ASKED = 6
"""Questions that an option is asked with."""


def sampled() -> dict[str, list[str]]:
    """Return question → the options to ask it with: each option with a fixed sample of the questions that take it."""
    lines: dict[str, list[str]] = {}
    for line in QUESTIONS:
        for name in drawn(line):
            lines.setdefault(name, []).append(line)
    result: dict[str, list[str]] = {line: [] for line in QUESTIONS}
    for name, takes in lines.items():
        many = len(takes) if os.environ.get("NAPKIN_ALL") else min(ASKED, len(takes))
        for line in random.Random(name).sample(takes, many):
            result[line].append(name)
    return {line: names for line, names in result.items() if names}


def test_every_option_has_a_value_to_test_with() -> None:
    """A new option of a command that a question is about is asked too: it needs a value here."""
    names = {name for line in QUESTIONS for name in drawn(line) if not OPTIONS[name].flag}
    assert sorted(names - set(VALUES)) == []


@pytest.mark.parametrize(("line", "names"), sampled().items(), ids=sampled())
def test_no_option_is_ignored_in_silence(line: str, names: list[str]) -> None:
    base = run_line(f"{line} --json")
    assert base.status in (0, 1, 4), base.err
    ignored = []
    for name in names:
        option = OPTIONS[name]
        before = base.data["inputs"].get(name, {"value": None})
        texts = [""] if option.flag else [shlex.quote(one) for one in VALUES[name]]
        dashes = "--no-" if option.flag and before["value"] is True else "--"
        silent = []
        for given in texts:
            found = run_line(f"{line} {dashes}{name} {given} --json")
            if found.status in (2, 3) or (found.status == 1 and found.err.startswith("error: ")):
                continue  # refused, or impossible with this value
            assert found.status in (0, 1, 4), (name, found.err)
            new = [note for note in found.data["notes"] if note not in base.data["notes"]]
            if substance(found.data) != substance(base.data) or any(f"--{name}" in note for note in new):
                break
            if (name in SHOWN_ONLY or line.startswith("compare ")) and run_line(
                f"{line} --{name} {given}"
            ).out != run_line(line).out:
                break
            same = name in found.data["inputs"] and found.data["inputs"][name]["value"] == before["value"]
            if not same and (line, name) not in DOCUMENTED:
                silent.append(f"--{name} {given}")
        else:
            ignored += silent
    assert not ignored


@pytest.mark.parametrize(
    ("line", "says", "hint"),
    [
        ("memory llama3-8b --vp 2", "--vp has no effect here: there is no pipeline", "--pp 2 or more"),
        ("memory llama3-8b --sp", "--sp has no effect here: there is no tensor parallelism", "--tp 2 or more"),
        ("memory llama3-8b --dtype fp16", "--dtype fp16: training takes a policy", "--precision fp16-mixed"),
        ("memory mixtral-8x7b --etp 2", "does not divide", ""),
        ("memory llama3-8b --hardware h100 --max micro-batch --micro-batch 4", "a contradiction", "leave out"),
        ("memory llama3-8b --inference --zero 3", "--zero has no effect here: it belongs to training", ""),
        ("mfu llama3-8b --tokens-per-second-per-gpu 9000 --hardware h100 --tp 2", "--tp has no effect here", ""),
        (
            "train-time llama3-8b --tokens 1T --gpus 64 --hardware h100 --mfu 0.4 --tp 2",
            "--tp has no effect here: --mfu is given",
            "leave out --mfu",
        ),
        (
            "optimal --gpus 8 --hardware h100 --within 30d --mfu 0.4 --seq 8192",
            "--seq has no effect",
            "leave out --mfu",
        ),
        (
            "optimal --gpus 8 --hardware h100 --within 30d --mfu 0.4 --peak-flops 5e14 --precision fp32",
            "--precision has no effect",
            "leave out --mfu",
        ),
        ("params llama3-8b --mtp", "--mtp has no effect here: llama3-8b has no multi-token", ""),
        ("params llama3-8b --assume-ignorable turbo", "--assume-ignorable turbo has no effect here", "leave it out"),
        ("step llama3-8b --gpus 8 --zero 3 --hardware h100 --network-bandwidth 9GB/s", "--network-bandwidth", "node"),
        (
            "checkpoint --params 70B --write-bandwidth 10GB/s --mtbf 24h --gpus 32",
            "--gpus has no effect here: --write-bandwidth and --mtbf are those of the whole job",
            "leave out one of them",
        ),
    ],
)
def test_what_changes_nothing_is_refused_with_its_reason(line: str, says: str, hint: str) -> None:
    found = run_line(line)
    assert found.status == 2
    assert not found.out
    assert says in found.err
    assert hint in found.err


def test_all_that_changes_nothing_is_named_at_once() -> None:
    found = run_line("train-time --params 7B --tokens 1T --gpus 64 --hardware h100 --mfu 0.4 --tp 2 --seq 2048")
    assert found.status == 2
    assert [line.split()[1] for line in found.errors if line.startswith("error")] == ["--tp", "--seq"]


def test_a_value_that_repeats_its_default_is_no_surprise() -> None:
    plain = run_line("memory llama3-8b --gpus 8 --zero 3 --json")
    same = run_line("memory llama3-8b --gpus 8 --zero 3 --vp 1 --no-sp --dp 8 --dp-shard 8 --dropout 0 --json")
    assert same.status == 0
    assert same.values == plain.values


def test_options_that_several_commands_share_are_noted(tmp_path: object) -> None:
    """A run file that names no command is for several of them: what one does not use, it says."""
    file = f"{tmp_path}/shared.yaml"
    with open(file, "w") as out:
        out.write("hardware: h100\ngpus: 8\nzero: 3\nprice: 2\nmtp: true\nseq: 4096\n")
    found = run_line(f"memory llama3-8b --run {file} --json")
    assert found.status == 0
    assert {"price", "mtp"} == {n.split("--")[1].split()[0] for n in found.data["notes"] if "is not used" in n}
    assert "price" not in found.data["inputs"]
    with open(file, "a") as out:
        out.write("command: memory\n")
    assert run_line(f"memory llama3-8b --run {file}").status == 2
    with open(file, "w") as out:
        out.write("hardwear: h100\n")
    assert run_line(f"memory llama3-8b --run {file}").status == 2


def test_a_sweep_needs_an_option_in_some_of_its_questions() -> None:
    base = "sweep memory llama3-8b --gpus 8 --zero 1 --over pp=1,2 --json"
    some = run_line(f"{base} --vp 2")
    assert some.status == 0
    none = run_line(f"{base} --snapshot-device 1")
    assert none.status == 2
    assert "--snapshot-device" in none.err


def test_reading_is_what_makes_an_option_matter() -> None:
    command, _ = named(["memory"])
    given = {"seq": OptionText("8192"), "micro-batch": OptionText("2"), "tp": OptionText("1")}
    inputs = Inputs(command, given)
    assert inputs.has("seq")
    assert "tp" in inputs
    assert list(inputs.unused()) == ["seq", "micro-batch", "tp"]
    inputs.integer("seq")
    inputs.integer("micro-batch")
    inputs.depends(("micro-batch",), False, "of a reason")
    inputs.integer("tp")  # its default
    assert inputs.unused() == {"micro-batch": ("of a reason", "leave it out")}
    inputs.depends(("micro-batch",), True)
    assert not inputs.unused()
