"""Words of a command line → options: forms, all problems at once, the spellings of other tools, pasted launch lines."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Collection

import pytest

from napkin.cli.reader import read
from napkin.cli.verbs import HINTS, command_of
from napkin.cli.verbs import SAME as VERBS
from napkin.cli.words import HINTED
from napkin.commands.command import MODULES, find, named
from napkin.options import launches, meanings, synonyms
from napkin.options.registry import OPTIONS, spelled
from napkin.training.frameworks import FRAMEWORKS
from napkin.training.trainers import TRAINERS
from tests.conftest import Napkin, run_line


def given(line: str) -> dict[str, object]:
    """What a line without problems says, by option."""
    command, words = named(command_of(line.split()))
    return {name: one.text for name, one in read(command, words).given.items()}


MEMORY = "memory llama3-8b --hardware h100"


@pytest.mark.parametrize(
    ("line", "same"),
    [
        (f"{MEMORY} --seq=2048", f"{MEMORY} --seq 2048"),
        (f"{MEMORY} --dpo", f"{MEMORY} --task dpo"),
        (f"{MEMORY} --use_peft --lora_r 8", f"{MEMORY} --lora-rank 8"),
        (f"{MEMORY} --measured 61GiB", f"{MEMORY} --snapshot 61GiB"),
        (f"{MEMORY} --micro_batch 2", f"{MEMORY} --micro-batch 2"),
        (f"{MEMORY} --tp 2 --tp 4", f"{MEMORY} --tp 4"),
        (f"{MEMORY} --tp 2 --tensor-parallel-size 4", f"{MEMORY} --tp 4"),
        (f"{MEMORY} --sp=false", f"{MEMORY} --no-sp"),
        (f"{MEMORY} --compile true", f"{MEMORY} --compile"),
        ("memory --hardware h100 -- llama3-8b", MEMORY),
        ("memory --model llama3-8b --hardware h100", MEMORY),
        ("vram llama3-8b --hardware h100", MEMORY),
        (f"{MEMORY} --gpu-type a100", "memory llama3-8b --hardware a100"),
        (f"{MEMORY} --gpu 8", f"{MEMORY} --gpus 8"),
        ("memory llama3-8b --gpu=8 --hardware h100", f"{MEMORY} --gpus 8"),
        (f"sweep {MEMORY} --over seq=1,2 --over zero=2,3", f"sweep {MEMORY} --over seq=1,2 --by zero=2,3"),
        (f"sweep {MEMORY} --over seq=1,2 --over seq=3,4", f"sweep {MEMORY} --over seq=3,4"),
        ("plan llama3-8b --max-hours 500", "plan llama3-8b --within 500h"),
        ("train-time 7B --tokens 1T --spot-price 2", "train-time 7B --tokens 1T --price 2"),
        ("init --width 4096 --layers 32", "init --fan-in 4096 --depth 32"),
        ("train-time --params 7 B --tokens 1 T --within 14 days", "train-time --params 7B --tokens 1T --within 14days"),
        ("train-time 7B --tokens 1T --gpu-cost 2", "train-time 7B --tokens 1T --price 2"),
        ("memory llama3-8b --hardware 8xh100", f"{MEMORY} --gpus 8"),
        ("memory llama3-8b --hardware h100:8", f"{MEMORY} --gpus 8"),
        (f"{MEMORY} --fsdp", f"{MEMORY} --zero 3"),
        (f"{MEMORY} --fsdp full_shard", f"{MEMORY} --zero 3"),
        (f"{MEMORY} --sharding_strategy SHARD_GRAD_OP", f"{MEMORY} --zero 2"),
        (f"{MEMORY} --ddp", f"{MEMORY} --zero 0"),
        (f"{MEMORY} --per_device_train_batch_size 4", f"{MEMORY} --micro-batch 4"),
        (f"{MEMORY} --training.seq_len 8192", f"{MEMORY} --seq 8192"),
        (f"{MEMORY} --gradient_checkpointing true", f"{MEMORY} --recompute full"),
        (f"{MEMORY} --no-gradient-checkpointing", f"{MEMORY} --recompute none"),
        (f"{MEMORY} --attn_implementation flash_attention_2", f"{MEMORY} --attention flash"),
        (f"{MEMORY} --lora 8 --load-in-4bit", f"{MEMORY} --lora-rank 8 --quantized nf4"),
        (f"{MEMORY} --inference --max-num-seqs 8", f"{MEMORY} --inference --batch 8"),
        (f"{MEMORY} --inference --batch-size 8", f"{MEMORY} --inference --batch 8"),
        (f"{MEMORY} --offload-optimizer", f"{MEMORY} --offload optimizer"),
        (f"{MEMORY} --use_liger_kernel true", f"{MEMORY} --kernels liger"),
        (f"{MEMORY} --method lora --lora-rank 8", f"{MEMORY} --lora-rank 8"),
        (f"{MEMORY} --method dpo", f"{MEMORY} --task dpo"),
        (f"{MEMORY} --qlora --lora-rank 8", f"{MEMORY} --quantized nf4 --lora-rank 8"),
        ("optimal --flops 1e22", "optimal --compute 1e22"),
        (f"{MEMORY} --grpo", f"{MEMORY} --task grpo"),
        (f"{MEMORY} --grpo --num_generations 8", f"{MEMORY} --task grpo --samples-per-prompt 8"),
        (f"{MEMORY} --grpo --max_completion_length 4096", f"{MEMORY} --task grpo --max-response-tokens 4096"),
        (f"{MEMORY} --grpo --ref_model 7B --vllm_mode colocate", f"{MEMORY} --grpo --reference 7B --rollout colocated"),
        ("time --params 7B --days 30", "train-time --params 7B --within 30d"),
        ("train-time --params 7B --cost-per-hour 2", "train-time --params 7B --price 2"),
    ],
)
def test_spellings_that_mean_the_same(line: str, same: str) -> None:
    assert given(line) == given(same)


def test_a_batch_size_is_said_to_be_one_gpu_s() -> None:
    """`batch size` is a GPU's in some tools and the job's in others."""
    line = "step llama3-8b --gpus 8 --hardware h100 --zero 3"
    assert "assumed: --batch-size is per GPU" in run_line(f"{line} --batch-size 4").out
    assert "per GPU," not in run_line(f"{line} --micro-batch 4").out.split("assumed: ")[1]


@pytest.mark.parametrize(
    ("line", "hints"),
    [
        ("memory llama3-8b --hardware 4095", ["rtx-4090", "--hardware-file"]),
        ("memory qwen2.5-opera-7b", ["a config.json's path", "only like it by name: qwen2.5-7b"]),
        ("memory llama 3 8b --hardware h100", ["llama-3-8b"]),
        ("memory llama3-8b --task instruct", ["sft"]),
        ("train-time 7B --chinchilla --gpus 8 --hardware a100", ["--tokens 140B"]),
        ("plan llama3-8b --gpus 8 --hardware h100 --max seq", ["napkin memory, train-time and serve take --max"]),
        ("flops llama3-8b --quantized nf4", ["napkin memory"]),
        (f"{MEMORY} --precision param=bf16,frozen=nf4", ["--quantized nf4"]),
        ("train-time 7B --tokens 1T --hardware h100 --within 2 months", ["60d"]),
        ("train-time llama3-8b --samples 50000 --hardware h100 --gpus 8", ["--sample-tokens", "--lengths"]),
        (f"{MEMORY} --bf16", ["--precision bf16-mixed"]),
        (f"{MEMORY} --mixed-precision bf16", ["--precision bf16-mixed"]),
        (f"{MEMORY} --precision bf16", ["--precision bf16-mixed"]),
        (f"{MEMORY} --qlora", ["--quantized nf4 --lora-rank"]),
        ("memory llama-8b", ["llama3-8b or llama3.1-8b"]),
        ("train-time 7B --tokens 1T --gpus 8 --hardware h100 --electricity-price 0.1", ["--price, USD per GPU-hour"]),
        ("roofline attention --hardware h100", ["napkin roofline MODEL"]),
        ("mfu llama3-8b --step-time 2s --batch-size 4 --gpus 8 --hardware h100", ["--grad-accum N"]),
        (f"{MEMORY} --adapter qlora", ["--quantized nf4 --lora-rank"]),
        (f"{MEMORY} --task rlhf", ["--task grpo, rloo or ppo"]),
        (f"{MEMORY} --task lora", ["--lora-rank 16"]),
        (f"{MEMORY} --lora-rank 8 --quantized 4bit", ["--quantized nf4", "int4 (GPTQ, AWQ)"]),
        (f"{MEMORY} --lora-rank 8 --quant 8bit", ["--quantized int8"]),
        (f"{MEMORY} --deepspeed zero2.json", ["--zero 2", "--framework deepspeed"]),
        (f"{MEMORY} --cpu-offload", ["--offload optimizer"]),
        (f"{MEMORY} --lr 1e-4", ["learning rate"]),
        (f"{MEMORY} --max gpus", ["--min gpus"]),
        ("memory gemma3 27b --hardware h100", ["gemma3-27b"]),
        ("memory mistral --hardware h100", ["`napkin models mistral` lists", "mistral-7b"]),
        ("memory llama3-8b --vram 24GB", ["--hardware rtx-4090"]),
        (f"{MEMORY} --zero 4", ["3 is FSDP"]),
        (f"{MEMORY} --gpus eight", ["--gpus N: total number of GPUs"]),
        (f"{MEMORY} --seq 4,096", ["write 4096"]),
        (f"{MEMORY} --gpus 100 --tp 8", ["--gpus 96, or --tp 4"]),  # 10 divides the GPUs and not the 32 heads
        ("train-time gpt2 --tokens 10B --hardware h100", ["--gpus 64, --within 30d"]),
        ("plan llama3-8b --hardware h100 --gpus 8 --min gpus", ["leave out --gpus"]),
        ("tensor 2x3x4 --transpose 0,1", ["--transpose takes no value"]),
        ("init 4096", ["--fan-in 4096"]),
        ("how long does llama3-8b take?", ["napkin train-time llama3-8b"]),
        ("how much memory does 7B need", ["napkin memory 7B"]),
        ("can llama3-8b fit on a 4090?", ["napkin memory llama3-8b --hardware 4090"]),
        ("how many gpus for 70B?", ["napkin memory 70B --hardware h100 --min gpus"]),
        ("cost 70B --tokens 1T --gpus 8", ["napkin train-time 70B --tokens 1T --gpus 8 --price 2"]),
        ("energy 70B", ["napkin train-time 70B"]),
        ("7B", ["napkin memory 7B"]),
        (f"{MEMORY} -tp 8", ["--tp N"]),
        (f"{MEMORY} —gpus 8", ["--gpus N"]),
        (f"{MEMORY} gpus=8", ["--gpus 8"]),
        ("memory llama3-8b h100", ["--hardware h100"]),
        ("memory llama3-8b --gpus h100", ["--hardware h100"]),
        (f"{MEMORY} --grpo --prompts 64", ["--global-batch"]),
        (f"{MEMORY} --grpo --ppo_mini_batch_size 64", ["--updates"]),
        (f"{MEMORY} --gpus 8,16", ["sweep memory llama3-8b --hardware h100 --over gpus=8,16"]),
        (f"{MEMORY} --seq 2048..8192", ["--over seq=2048..8192"]),
        ("memory llama3-8b --hardware h100,b200", ["--over hardware=h100,b200"]),
        (f"{MEMORY} --tokens 1T", ["train-time"]),
        (f"{MEMORY} --hardwar h100", ["--hardware"]),
        (f"{MEMORY} --micro 4", ["--micro-batch"]),
        ("train-time --params 70B --chinchilla", ["--tokens 1.4T"]),
        ("train-time --params 70B --tokens 1B --epochs 3", ["--tokens 3B"]),
        ("llama3-8b --gpus 8", ["napkin memory llama3-8b"]),
        ("matmul 4x4x4", ["roofline matmul"]),
        (f"sweep {MEMORY} --over seq=1,2 --over zero=2,3 --over tp=1,2", ["--over and --by"]),
        (f"{MEMORY} --attention sdpa", ["--attention flash"]),
        (f"{MEMORY} --zero stage3", ["--zero 3"]),
        (f"{MEMORY} --task ipo", ["--task dpo"]),
        (f"{MEMORY} --task dapo", ["--task grpo"]),
        (f"{MEMORY} --framework fsdp2", ["--framework fsdp --fsdp-version 2"]),
        (f"{MEMORY} --framework deepspeed_zero3", ["--framework deepspeed --zero 3"]),
        (f"{MEMORY} --framework ddp", ["--framework plain"]),
        (f"{MEMORY} --framework hf", ["--trainer hf-trainer"]),
        ("checkpoint llama3-8b --save full", ["leave it out"]),
        (f"{MEMORY} --trainer huggingface", ["--trainer hf-trainer"]),
        (f"{MEMORY} --trainer deepspeed", ["--framework deepspeed"]),
        (f"{MEMORY} --framework trl", ["--trainer trl"]),
        (f"{MEMORY} --optimizer galore_adamw_layerwise", ["--optimizer galore-adamw --optimizer-in-backward"]),
        (f"{MEMORY} --min memory", ["--min gpus"]),
        (f"{MEMORY} --max tokens", ["--max micro-batch or seq or layers or params"]),
        ("serve llama3-8b --hardware h100 --quantization awq", ["--dtype int4"]),
        ("validate --learning-rate 1", ["napkin validate --help"]),  # it predicts no run of one's own
        ("compare memory llama3-8b --hardware h100 --against gpus=16,foo=3", ["napkin memory --help"]),
        (f"{MEMORY} --memory-size 24", ["24GB (1000s) or 24GiB"]),
        (f"{MEMORY} --measured 61", ["61GB (1000s) or 61GiB"]),
        (f"{MEMORY} --inference --task dpo", ["leave out one of the two"]),
        ("check --init -o run.yaml", ["napkin check --init run.yaml"]),
        ("init llama3-8b", ["napkin init --fan-in 4096 --depth 32"]),
        ("dtype bf16 3.14", ["napkin dtype 3.14 --dtype bf16"]),
    ],
)
def test_what_is_not_the_same_is_refused_with_the_proper_option(napkin: Napkin, line: str, hints: list[str]) -> None:
    outcome = napkin(line)
    assert outcome.status == 2
    assert outcome.out == ""
    assert len(outcome.errors) == len(outcome.hints) == 1
    for hint in hints:
        assert hint in outcome.hints[0]


def test_all_problems_come_together_each_with_its_hint(napkin: Napkin) -> None:
    outcome = napkin(f"{MEMORY} --foo 4 --seq x --gpus 0 --bf16 extra words --tp")
    assert outcome.status == 2
    assert len(outcome.errors) == len(outcome.hints) == 6
    many = napkin(f"{MEMORY} " + " ".join(f"--wrong{n}" for n in range(15)))
    assert len(many.hints) == 10


def test_a_pasted_trainer_line_is_one_problem(napkin: Napkin) -> None:
    """The Trainer's --bf16 keeps fp32 weights, Megatron's does not: the file that launches it is read instead."""
    trainer = "--per_device_train_batch_size 2 --learning_rate 2e-5 --bf16 True --num_train_epochs 3 --logging_steps 5"
    outcome = napkin(f"memory gpt2 {trainer}")
    assert outcome.status == 2
    assert len(outcome.errors) == 1
    assert "napkin memory --from run.sh" in outcome.hints[0]
    assert len(napkin("memory gpt2 --gradient_checkpointing --per_device_train_batch_size 2 --nope").errors) == 1


def test_a_pasted_megatron_line_is_read_with_its_meaning_and_its_shape() -> None:
    line = (
        "memory --tensor-model-parallel-size 2 --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 "
        "--num-attention-heads 32 --group-query-attention --num-query-groups 8 --seq-length 8192 --swiglu "
        "--max-position-embeddings 8192 --normalization RMSNorm --position-embedding-type rope --vocab-size 128256 "
        "--untie-embeddings-and-output-weights --disable-bias-linear --micro-batch-size 1 --bf16 --optimizer sgd "
        "--lr 3e-4 --data-path a b c --use-distributed-optimizer --sequence-parallel --world-size 8"
    )
    found = given(line)
    shape = json.loads(str(found.pop("model")))
    assert found == {
        "tp": "2",
        "seq": "8192",
        "micro-batch": "1",
        "precision": "param=bf16,grad=fp32,compute=bf16,state=fp32,master=fp32",
        "optimizer": "sgd-momentum",
        "distributed-optimizer": True,
        "sp": True,
        "gpus": "8",
    }
    published = run_line("params llama3-8b --json").values["params/total"]
    assert run_line(["params", json.dumps(shape), "--json"]).values["params/total"] == published
    command, words = named(line.split())
    unused = read(command, words).unused
    assert {"--lr", "--data-path", "--max-position-embeddings"} <= set(unused)
    assert run_line(f"{MEMORY} --bf16").status == 2  # on its own it is no policy


@pytest.mark.parametrize(
    ("words", "model_type"),
    [
        ("--swiglu --normalization RMSNorm --position-embedding-type rope --num-experts 8", "mixtral"),
        ("--max-position-embeddings 1024", "gpt2"),
    ],
)
def test_other_shapes_of_megatron(words: str, model_type: str) -> None:
    shape = f"--num-layers 12 --hidden-size 768 --num-attention-heads 12 --vocab-size 50304 --seq-length 1024 {words}"
    config = json.loads(str(given(f"memory {shape} --tensor-model-parallel-size 1")["model"]))
    assert config["model_type"] == model_type
    assert run_line(["params", json.dumps(config)]).status == 0


def test_a_shape_that_lacks_a_size_or_is_not_known_is_refused(napkin: Napkin) -> None:
    shape = "memory --num-layers 12 --hidden-size 768 --num-attention-heads 12 --tensor-model-parallel-size 1"
    assert "--vocab-size" in napkin(shape).errors[0]
    assert "--max-position-embeddings" in napkin(f"{shape} --vocab-size 1000 --swiglu").errors[0]
    odd = napkin(f"{shape} --vocab-size 1000 --swiglu --position-embedding-type relative")
    assert odd.status == 3


def test_the_tables_name_options_that_exist_and_contradict_no_option() -> None:
    """Every meaning is made of options of napkin's; no name means one option here and another there."""
    ahead = {"steps", "samples", "epochs", "run-kind", "nodes", "gpus-per-node", "grad-accum"}
    assert set(synonyms.SAME) - ahead <= set(OPTIONS)
    for table in (meanings.MEANS, launches.MEGATRON_MEANS):
        for means in table.values():
            for meant in means.values():
                names = [word[2:] for word in meant.split() if word.startswith("--") and not meant.startswith("!")]
                assert set(names) <= set(OPTIONS), meant
    for name, spellings in synonyms.SAME.items():
        assert len(set(spellings.split())) == len(spellings.split()), name
    for name in OPTIONS:
        assert spelled(name, OPTIONS) == name


def test_the_verbs_name_commands() -> None:
    words = [word for spellings in (*VERBS.values(), *HINTS) for word in spellings.split()]
    assert not set(words) & set(MODULES)
    assert len(words) == len(set(words))
    assert {meant.split()[0] for meant in VERBS} <= set(MODULES)


def test_every_option_of_every_command_is_read_by_its_own_name() -> None:
    for name in MODULES:
        command = find(name)
        for option in (OPTIONS[one] for one in command.names):
            words = [f"--{option.name}"] if option.flag else [f"--{option.name}", "7"]
            assert option.name in read(command, words).given


@pytest.mark.parametrize("line", [f"{MEMORY} --bogus", "train-time --params", "memory llama3-8b --gpu h100"])
def test_no_line_loads_typer(line: str) -> None:
    code = f"import sys\nfrom napkin.cli import main\nmain({line.split()!r})\nsys.exit('typer' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60).returncode == 0


def test_a_shape_near_llamas_is_what_megatron_builds(napkin: Napkin) -> None:
    """Megatron-LM's own defaults are LayerNorm, learned positions and biases, also with --swiglu: of the norms, of the
    two products of attention and of both of the MLP."""
    width, layers, inner, vocabulary = 4096, 32, 10880, 32000
    shape = f"--num-layers {layers} --hidden-size {width} --num-attention-heads 32 --seq-length 4096"
    line = f"memory {shape} --vocab-size {vocabulary} --micro-batch-size 1 --swiglu --tensor-model-parallel-size 1"
    attention, mlp = 4 * width * width + 4 * width, 3 * width * inner + 2 * inner + width
    weights = (vocabulary + 4096) * width + layers * (attention + mlp + 4 * width) + 2 * width
    assert napkin(f"{line} --json").data["values"]["memory/parameters"] == 2 * weights
    stated = [row for row in napkin(f"{line} -v").out.splitlines() if row.startswith("  tp ")]
    assert len(stated[0]) < 80, "the long value of MODEL widens no column"
    # with rotary positions and RMSNorm, biases alone are more than Llama has
    llama = f"{line} --position-embedding-type rope --normalization RMSNorm"
    biases = layers * (4 * width + 2 * inner + width)
    with_biases, without = (
        napkin(f"{llama} {more} --json").data["values"]["memory/parameters"] for more in ("", "--disable-bias-linear")
    )
    assert with_biases - without == 2 * biases


def test_a_flag_of_peft_s_is_a_kind_of_adapter(napkin: Napkin) -> None:
    line = "memory llama3-8b --lora-rank 8 --json"
    assert napkin(f"{line} --use-dora").values == napkin(f"{line} --adapter dora").values


def test_hints_for_other_values_are_loaded_for_the_options_that_have_them() -> None:
    assert set(HINTED) == set(meanings.VALUES)


@pytest.mark.parametrize("option", ["framework", "trainer"])
def test_other_names_of_software_lead_to_names_that_are_known(option: str) -> None:
    named: dict[str, Collection[str]] = {"framework": FRAMEWORKS, "trainer": TRAINERS}
    for said, hint in meanings.VALUES[option].items():
        assert said not in named[option]
        found = re.findall(r"--(framework|trainer) (\S+?)(?:,|;| |$)", hint)
        assert found, hint
        assert all(name in named[kind] for kind, name in found), hint


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("--framework mcore", "--framework megatron-core"),
        ("--framework GPT-NeoX", "--framework megatron-deepspeed"),
        ("--framework llm_foundry", "--framework fsdp"),
        ("--trainer SFTTrainer", "--trainer trl"),
        ("--trainer easyr1", "--trainer verl"),
    ],
)
def test_software_by_another_name_gets_its_own(napkin: Napkin, line: str, hint: str) -> None:
    found = napkin(f"memory llama3-8b --gpus 8 --hardware h100 {line}")
    assert (found.status, found.err.splitlines()[-1]) == (2, f"hint: {hint}")
