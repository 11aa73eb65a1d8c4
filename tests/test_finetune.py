"""Rows of measured fine-tuning: each quantity is what `memory` and `step` answer for the same run, or a reason."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from napkin.architectures import implementation_of
from napkin.evidence import published
from napkin.evidence.finetuning.layout import layout_of
from napkin.evidence.finetuning.lengths import RowLengths
from napkin.evidence.finetuning.rows import fine_tuning
from napkin.evidence.finetuning.software import holds_logits, with_loss
from napkin.evidence.finetuning.words import within
from napkin.evidence.rows.row import RowFields
from napkin.inputs.load import Document
from napkin.inputs.presets import preset
from napkin.operations.frameworks import FRAMEWORKS as PROGRAMS
from napkin.operations.implementations import HF
from napkin.training.frameworks import FRAMEWORKS
from napkin.training.frameworks import PLAIN as PLAIN_FRAMEWORK
from tests.conftest import preset as network
from tests.conftest import run_line

ROW = """- id: {id}
  source: {{title: hand-made}}
  task: {task}
  model: {{preset: {model}}}
  hardware: {{chip: {chip}, count: {count}}}
  method: {{{method}}}
  layout: {{micro_batch: 4, grad_accum: 1, recompute: full, {layout}}}
  measured: {{{measured}}}
"""
LORA = "kind: lora, lora_rank: 16, lora_targets_canonical: 'q,v'"
A100 = "A100 SXM 80GB"
DROPPED = "loss: 'cross entropy, logits dropped'"
KBIT = "'nf4; fp32 elsewhere (prepare_model_for_kbit_training)'"
PLAIN = "seq: 4096, precision: bf16-pure, trainer: none, stack: none"


def validated(tmp_path: pathlib.Path, *rows: dict[str, Any], chip: str = A100) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the entries of `validate` for rows, by id and quantity."""
    usual = {
        "id": "a",
        "task": "sft",
        "model": "llama3-8b",
        "chip": chip,
        "count": 1,
        "method": LORA,
        "layout": PLAIN,
        "measured": "peak_bytes: 3e+10, what: allocated, tokens_per_second_per_gpu: 3000",
    }
    file = tmp_path / "finetune.yaml"
    file.write_text("schema: finetune/1\nrows:\n" + "".join(ROW.format(**{**usual, **row}) for row in rows))
    found = run_line(f"validate {file} --json")
    assert found.status == 0, found.err
    return {(row["id"], row["quantity"]): row for row in found.data["rows"]}


@pytest.mark.parametrize(
    ("row", "options"),
    [
        ({"method": "kind: full", "layout": f"{PLAIN}, {DROPPED}"}, "--precision bf16-pure"),
        (
            {"layout": f"{PLAIN}, {DROPPED}, autocast: false"},
            "--lora-rank 16 --lora-targets q,v --precision frozen=bf16,param=fp32",
        ),
        (
            {"layout": PLAIN.replace("trainer: none", "trainer: torchtune")},
            "--lora-rank 16 --lora-targets q,v --precision bf16-pure --framework torchtune",
        ),
        (  # peft's preparation for training in k bits casts what is not quantized to fp32
            {
                "method": f"{LORA}, quantized: nf4",
                "layout": "seq: 4096, precision: bf16, trainer: hf-trainer, stack: none",
            },
            "--lora-rank 16 --lora-targets q,v --quantized nf4 --precision amp-bf16",
        ),
        (  # accelerate casts the parameters that FSDP trains to fp32 under autocast
            {
                "method": "kind: full",
                "count": 2,
                "layout": "seq: 4096, precision: amp-bf16, trainer: hf-trainer, stack: fsdp, zero: 3",
            },
            "--gpus 2 --zero 3 --framework fsdp --precision amp-bf16",
        ),
        ({"method": "kind: full", "layout": f"{PLAIN}, loss: fused"}, "--precision bf16-pure --loss fused"),
    ],
)
def test_a_row_is_what_the_commands_answer(tmp_path: pathlib.Path, row: dict[str, Any], options: str) -> None:
    found = validated(tmp_path, row)
    common = f"llama3-8b --seq 4096 --micro-batch 4 --recompute full --hardware a100-sxm-80gb {options} --json"
    memory = run_line(f"memory {common}").values
    entry = found["a", "memory_allocated"]
    assert entry["predicted"] == pytest.approx(min(memory["memory/allocated"], 79.25 * 2**30), rel=0.01)
    speed = run_line(f"step {common} --stack fsdp-eager").values["tokens_per_second_per_gpu"]
    assert found["a", "tokens_per_second_per_gpu"]["predicted"] == pytest.approx(speed, rel=1e-6)


def test_one_entry_for_each_quantity_that_was_measured(tmp_path: pathlib.Path) -> None:
    measured = "peak_bytes: 3e+10, what: reserved, driver_bytes: 4e+10, step_seconds: 5, samples_per_second: 1"
    found = validated(tmp_path, {"measured": measured})
    assert {quantity for _, quantity in found} == {"memory_reserved", "memory_used", "samples_per_second"}
    assert all(row["low"] <= row["predicted"] <= row["high"] for row in found.values())


@pytest.mark.parametrize(
    ("gpus", "micro", "mean", "mib"), [(2, 8, 277.2, 57_757), (4, 4, 282.8, 36_992), (8, 2, 267.5, 27_808)]
)
def test_where_lengths_vary_the_cache_holds_what_a_step_frees_a_second_time(
    tmp_path: pathlib.Path, gpus: int, micro: int, mean: float, mib: int
) -> None:
    """Gradients and the optimizer's temporaries too, which are shards: nvidia-smi of full fine-tunes with FSDP
    (foundation-model-stack/fms-acceleration at 876e2ed6, scripts/benchmarks/refs_orca/a100_80gb_mp.csv, rows 0 to 2),
    where max_memory_allocated is 39.2, 28.0 and 22.5 GB."""
    layout = f"micro_batch: {micro}, packed: true, precision: fp16 weights, autocast: false, attention: flash, zero: 3"
    stack = "kernels: padding-free, trainer: hf-trainer, stack: fsdp, versions: 'transformers 4.43.3'"
    row = {
        "model": "mistral-7b-v0.1",
        "count": gpus,
        "method": "kind: full",
        "layout": f"{layout}, {stack}",
        "measured": f"driver_mib: {mib}, mean_tokens_per_sample: {mean}, samples: 2000",
    }
    text = ROW.replace("micro_batch: 4, grad_accum: 1, ", "")
    file = tmp_path / "finetune.yaml"
    usual = {"id": "a", "task": "sft", "chip": "A100 SXM 80GB"}
    file.write_text("schema: finetune/1\nrows:\n" + text.format(**{**usual, **row}))
    (entry,) = run_line(f"validate {file} --json").data["rows"]
    assert (entry["quantity"], entry["measured"]) == ("memory_used", mib * 2**20)
    assert entry["predicted"] == pytest.approx(entry["measured"], rel=0.08)


@pytest.mark.parametrize(
    ("model", "version", "looped"),
    [
        ("mixtral-8x7b", "4.52.4", "modules"),  # a ModuleList of experts
        ("granite-3.0-3b-a800m", "4.52.4", "joined"),  # GraniteMoeParallelExperts: self.weight[i] of one parameter
        ("gpt-oss-20b", "4.55.0", "joined"),  # GptOssExperts: self.gate_up_proj[expert_idx]
        ("granite-3.0-3b-a800m", "5.0.0", ""),
    ],
)
def test_transformers_4_ran_experts_one_after_the_other(
    tmp_path: pathlib.Path, model: str, version: str, looped: str
) -> None:
    layout = f"{PLAIN}, versions: 'transformers {version}'"
    file = tmp_path / "finetune.yaml"
    row = {"id": "a", "task": "sft", "model": model, "chip": "A100 SXM 80GB", "count": 1, "method": "kind: full"}
    file.write_text("schema: finetune/1\nrows:\n" + ROW.format(**row, layout=layout, measured="oom: true"))
    (found,) = published.read(str(file)).tuning
    assert fine_tuning(found).setup.implementation.looped == looped


def test_runs_that_were_out_of_memory_get_a_verdict(tmp_path: pathlib.Path) -> None:
    found = validated(
        tmp_path,
        {"id": "all", "method": "kind: full", "measured": "oom: true"},
        {"id": "large", "model": "llama3-70b", "measured": "oom: true"},
    )
    assert found["large", "memory_used"]["verdict"] == "does not fit"
    assert found["all", "memory_used"]["verdict"] in ("does not fit", "too close to call", "fits")


def test_runs_that_ran_get_a_verdict(tmp_path: pathlib.Path) -> None:
    """`oom: false`, `ran: true`, or the card that it ran on. LoRA on 16 GB of weights fits 80 GB and not 12 GiB."""
    found = validated(
        tmp_path,
        {"id": "ran", "layout": PLAIN.replace("4096", "512"), "measured": "oom: false"},
        {"id": "said", "layout": PLAIN.replace("4096", "512"), "measured": "ran: true"},
        {"id": "card", "measured": "card_gib_at_most: 12, step_seconds: 5"},
        {"id": "weighed", "measured": "card_gib_at_most: 80, oom: false, peak_bytes: 3e+10, what: used"},
        {"id": "beyond", "measured": "card_gib_at_most: 12, peak_bytes: 1e+10, what: used"},
    )
    assert found["ran", "memory_used"]["verdict"] == found["said", "memory_used"]["verdict"] == "fits"
    assert "measured" not in found["ran", "memory_used"]
    assert found["card", "memory_used"]["verdict"] == "does not fit"
    assert found["card", "step_seconds"]["predicted"]
    assert "verdict" not in found["weighed", "memory_used"]
    assert found["weighed", "memory_used"]["measured"] == 3e10
    assert "takes more than its accelerator holds, and ran" in found["beyond", "memory_used"]["why"]


@pytest.mark.parametrize(
    ("model", "modules"), [("gpt2-xl", "c_attn"), ("bloom-7b1", "query_key_value"), ("llama2-7b", "q_proj,v_proj")]
)
def test_adapters_of_a_row_that_names_no_modules_are_where_peft_puts_them(
    tmp_path: pathlib.Path, model: str, modules: str
) -> None:
    """By the class: peft 0.21, utils/constants.py, TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING."""
    layout = PLAIN.replace("4096", "512")
    open_, named = ("kind: lora, lora_rank: 8", f"kind: lora, lora_rank: 8, lora_targets: '{modules}'")
    methods = {"a": open_, "b": named}
    rows = [{"id": name, "model": model, "method": said, "layout": layout} for name, said in methods.items()]
    found = validated(tmp_path, *rows)
    assert found["a", "memory_allocated"]["predicted"] == found["b", "memory_allocated"]["predicted"]


def test_modules_are_those_that_the_run_named_if_the_class_has_them(tmp_path: pathlib.Path) -> None:
    """A fused projection has one adapter, where the parts of a layer that a row also states are three."""
    method = "kind: lora, lora_rank: 8, lora_targets: '{}', lora_targets_canonical: '{}'"
    names = {"both": ("c_attn,w1", "q,k,v,up"), "named": ("c_attn,w1", ""), "parts": ("c_attn", "qkv,up")}
    rows = [{"id": one, "model": "qwen-7b", "method": method.format(*said)} for one, said in names.items()]
    found = {one: row["predicted"] for (one, what), row in validated(tmp_path, *rows).items() if "memory" in what}
    assert found["both"] == found["named"] > found["parts"]


def test_transformers_before_4_49_copied_the_logits(tmp_path: pathlib.Path) -> None:
    """All but each sequence's last: 4 bytes of the vocabulary's 128,256 more for each other token at the loss."""
    layout = f"{PLAIN}, autocast: false".replace("4096", "64")
    rows = [
        {"id": version, "method": "kind: full", "layout": f"{layout}, versions: 'transformers {version}'"}
        for version in ("4.48.1", "4.49.0")
    ]
    text = "schema: finetune/1\nrows:\n"
    for row in rows:
        usual = {"task": "sft", "model": "llama3-8b", "chip": A100, "count": 1, "measured": "oom: false"}
        text += ROW.format(**{**usual, **row})
    (tmp_path / "rows.yaml").write_text(text)
    old, new = (fine_tuning(row).setup.implementation for row in published.read(str(tmp_path / "rows.yaml")).tuning)
    assert (old.cuts, old.shifted) == ("fp32", False)
    assert (new.cuts, new.shifted) == ("", True)


@pytest.mark.parametrize("chip", ["3090", "4x RTX 3090", "RTX 3090 24GB", "RTX 3090 (one desk)"])
def test_a_card_of_a_name_of_digits_or_with_the_row_s_own_count_is_known(tmp_path: pathlib.Path, chip: str) -> None:
    row = {"count": 4, "method": "kind: full", "measured": "oom: true"}
    assert validated(tmp_path, row, chip=f"'{chip}'")["a", "memory_used"]["verdict"] == "does not fit"


@pytest.mark.parametrize("chip", ["8x RTX 3090", "RTX 3090 48GB", "RTX 3090 (48GB)", "3091"])
def test_a_card_that_is_not_known_is_the_reason(tmp_path: pathlib.Path, chip: str) -> None:
    row = {"count": 4, "method": "kind: full", "measured": "oom: true"}
    assert "unknown accelerator" in validated(tmp_path, row, chip=f"'{chip}'")["a", "memory_used"]["why"]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"task": "gkd"}, "no preset has the shape of its teacher: not stated"),
        ({"task": "prm"}, "the task prm is not predicted"),
        ({"method": "kind: lisa, trainable_params: 1000"}, "trains by lisa"),
        ({"method": f"{LORA}, quantized: aqlm-2"}, "stores frozen weights as aqlm-2"),
        ({"method": f"{LORA}, modules_to_save: gate_norm"}, "in full: not modeled"),
        ({"model": "no-such-model"}, "no preset has the shape"),
        ({"layout": f"{PLAIN}, ulysses: 4"}, "do not divide 1 GPUs"),
        ({"layout": f"{PLAIN}, device_placement: auto"}, "states layout.device_placement: not modeled"),
        ({"method": f"{LORA}, experts_targeted: targeted"}, "which tensors of the experts"),
        ({"method": "kind: lora, lora_rank: 16, lora_targets: the usual ones"}, "has no linear layer 'the'"),
        ({"layout": f"{PLAIN}, offload: everything"}, "the offload everything is not modeled"),
        ({"layout": f"{PLAIN}, tp: 3"}, "do not divide"),
        ({"layout": f"{PLAIN.replace('stack: none', 'stack: colossal')}"}, "the framework colossal is not modeled"),
    ],
)
def test_what_is_not_understood_makes_the_row_say_why(tmp_path: pathlib.Path, row: dict[str, Any], why: str) -> None:
    for entry in validated(tmp_path, row).values():
        assert "predicted" not in entry
        assert why in entry["why"]


def test_ranks_that_exchange_heads_are_not_those_that_pass_keys_on(tmp_path: pathlib.Path) -> None:
    """The same tokens on each, but attention waits for all-to-alls."""
    rows = [{"id": name, "count": 4, "layout": f"{PLAIN}, {name}: 4"} for name in ("ulysses", "cp")]
    found = validated(tmp_path, *rows)
    speeds = [found[name, "tokens_per_second_per_gpu"]["predicted"] for name in ("ulysses", "cp")]
    assert speeds[0] > speeds[1]  # here the ring, of short parts, is slower


@pytest.mark.parametrize(
    ("row", "same"),
    [
        ({"method": f"{LORA}, quantized: hqq-4"}, {"method": f"{LORA}, quantized: nf4"}),  # 4.5 bits a weight
        ({"method": f"{LORA}, quantized: eetq"}, {"method": f"{LORA}, quantized: int8"}),
        (
            {"method": "kind: galore", "layout": f"{PLAIN}, optimizer: galore"},
            {"method": "kind: full", "layout": f"{PLAIN}, optimizer: galore"},
        ),
        ({"method": "kind: lora, lora_rank: 16, lora_targets: q_proj v_proj"}, {"method": LORA}),
        ({"layout": f"{PLAIN}, loss: chunked"}, {"layout": f"{PLAIN}, loss: fused"}),
        ({"layout": f"{PLAIN}, offload: activation"}, {"layout": f"{PLAIN}, offload: activations"}),
        ({"layout": f"{PLAIN}, attention: flash_attn"}, {"layout": PLAIN}),
        (
            {"count": 4, "layout": "seq: 4096, precision: bf16, framework: TRL SFTTrainer + DeepSpeed ZeRO-3, zero: 3"},
            {"count": 4, "layout": "seq: 4096, precision: bf16, trainer: trl, stack: deepspeed, zero: 3"},
        ),
        (
            {"layout": "seq: 4096, precision: bf16, framework: LLaMA-Factory on transformers"},
            {"layout": "seq: 4096, precision: bf16, trainer: llama-factory, stack: none"},
        ),
        ({"model": "'', name: decapoda-research/llama-7b-hf"}, {"model": "llama-7b"}),
    ],
)
def test_rows_that_say_the_same_in_other_words(
    tmp_path: pathlib.Path, row: dict[str, Any], same: dict[str, Any]
) -> None:
    found = validated(tmp_path, {"id": "one", **row}, {"id": "other", **same})
    for quantity in ("memory_allocated", "tokens_per_second_per_gpu"):
        assert found["one", quantity]["predicted"] == found["other", quantity]["predicted"]


def test_attention_written_for_hopper_is_faster_there(tmp_path: pathlib.Path) -> None:
    one = {"layout": PLAIN.replace("4096", "65536"), "measured": "step_seconds: 60"}
    rows = [{**one, "id": name, "layout": f"{one['layout']}, attention: {name}"} for name in ("fa3", "cudnn", "fa2")]
    found = validated(tmp_path, *rows, chip="H100 SXM 80GB")
    fa3, cudnn, fa2 = (found[name, "step_seconds"]["predicted"] for name in ("fa3", "cudnn", "fa2"))
    assert fa3 == cudnn < 0.8 * fa2


def test_adapters_that_a_row_leaves_open_are_its_librarys(tmp_path: pathlib.Path) -> None:
    """peft's rank 8 on queries and values; ms-swift's on all linear layers; the interval allows for others."""
    swift = PLAIN.replace("trainer: none", "trainer: ms-swift")
    found = validated(
        tmp_path,
        {"id": "open", "method": "kind: lora"},
        {"id": "said", "method": "kind: lora, lora_rank: 8, lora_targets_canonical: 'q,v'"},
        {"id": "swift", "method": "kind: lora", "layout": swift},
        {"id": "all", "method": "kind: lora, lora_rank: 8, lora_targets: all-linear", "layout": swift},
    )
    for open_, said in (("open", "said"), ("swift", "all")):
        for quantity in ("memory_allocated", "tokens_per_second_per_gpu"):
            one, other = found[open_, quantity], found[said, quantity]
            assert one["predicted"] == other["predicted"]
            assert one["low"] < other["low"] < other["high"] < one["high"]


def test_memory_of_reinforcement_learning_is_that_of_its_phases(tmp_path: pathlib.Path) -> None:
    """What a driver shows is the largest phase of `memory`; what torch allocates is the trainer's."""
    layout = "zero: 3, precision: amp-bf16, trainer: verl, stack: fsdp, framework: FSDP2"
    rl = "group: 8, prompts: 128, prompt_length_mean: 200, response_length_mean: 1000, response_length_max: 3500"
    row = ROW.replace("  measured:", f"  rl: {{{{{rl}, rollout_tp: 1, gpu_memory_utilization: 0.5}}}}\n  measured:")
    usual = {"task": "grpo", "model": "llama3-8b", "chip": A100, "count": 8, "method": LORA, "layout": layout}
    file = tmp_path / "finetune.yaml"
    rows = [
        row.format(id=what, **usual, measured=f"peak_bytes: 5e+10, what: {what}, step_seconds: 60")
        for what in ("used", "allocated", "unstated")
    ]
    file.write_text("schema: finetune/1\nrows:\n" + "".join(rows))
    found = {(row["id"], row["quantity"]): row for row in run_line(f"validate {file} --json").data["rows"]}
    line = (
        "memory llama3-8b --task grpo --gpus 8 --hardware a100-sxm-80gb --trainer verl --framework fsdp --zero 3 "
        "--fsdp-version 2 "
        "--lora-rank 16 --lora-targets q,v --micro-batch 4 --recompute full --global-batch 128 --samples-per-prompt 8 "
        "--prompt-tokens 200 --response-tokens 1000 --max-prompt-tokens 200 --max-response-tokens 3500 "
        "--rollout colocated:0.5 --rollout-tp 1 --json"
    )
    used, allocated, unstated = (found[what, f"memory_{what}"] for what in ("used", "allocated", "unstated"))
    assert used["low"] < used["predicted"] < used["high"]
    assert allocated["predicted"] < used["predicted"] == unstated["predicted"]
    assert unstated["low"] == allocated["low"]
    assert found["used", "step_seconds"]["predicted"] > 0
    held = run_line(line).values
    assert used["predicted"] == pytest.approx(held["memory/total"], rel=0.02)


def test_memory_is_of_the_longest_micro_batch_and_time_of_the_mean_one(tmp_path: pathlib.Path) -> None:
    """Unstated, lengths are lognormal, and their standard deviation is 0.6 of the mean (0.3 to 0.9): σ² = ln 1.36, the
    largest of 10,000 standard normal numbers is 3.836, so that the longest sample has exp(0.5545 · 3.836 − 0.1537) =
    7.195 times the mean. 500 tokens are the mean of the longest of 4 rows, 1 + 0.6 · 1.049 times that of all: 500 /
    1.6295 · 7.195 = 2,208, and never more than the length at which samples are cut."""
    base = "packed: false, precision: bf16-pure, trainer: none, stack: none"
    measured = "peak_bytes: 3e+10, what: allocated, samples_per_second: 4"
    mean = f"{measured}, mean_tokens_per_sample: 500"
    found = validated(
        tmp_path,
        {"id": "mean", "layout": base, "measured": mean},
        {"id": "cut", "layout": f"{base}, seq_max: 600", "measured": mean},
        {"id": "all", "layout": f"{base}, seq: 2208", "measured": measured},
        {"id": "short", "layout": f"{base}, seq: 500", "measured": measured},
    )
    one, cut, alike, short = (found[name, "memory_allocated"] for name in ("mean", "cut", "all", "short"))
    assert one["predicted"] == alike["predicted"]
    assert one["low"] < alike["low"]
    assert one["high"] > alike["high"]
    assert cut["predicted"] < one["low"]
    assert short["predicted"] < cut["predicted"]
    times = [found[name, "samples_per_second"]["predicted"] for name in ("mean", "short")]
    assert times[0] == times[1]


@pytest.mark.parametrize(
    "software", ["trainer: axolotl", "trainer: llama-factory", "trainer: hf-trainer, kernels: accelerated-peft-bnb"]
)
def test_libraries_that_quantize_scales_too(tmp_path: pathlib.Path, software: str) -> None:
    """Of 6.98e9 weights 1/16 byte of scales becomes 1/64 + 1/16384 (QLoRA, arXiv:2305.14314, section 3)."""
    method = f"{LORA}, quantized: nf4"
    layout = "seq: 512, precision: bf16, stack: none"
    row = {"model": "mistral-7b-v0.1", "method": method}
    named = validated(tmp_path, {**row, "layout": f"{layout}, {software}"})["a", "memory_allocated"]
    written = validated(tmp_path, {**row, "layout": f"{layout}, {software}", "method": f"{LORA}, quantized: nf4-dq"})
    assert named["predicted"] == written["a", "memory_allocated"]["predicted"]
    trl = validated(tmp_path, {**row, "layout": f"{layout}, trainer: hf-trainer"})["a", "memory_allocated"]
    nested = validated(
        tmp_path, {**row, "method": f"{LORA}, quantized: nf4-dq", "layout": f"{layout}, trainer: hf-trainer"}
    )
    saved = trl["predicted"] - nested["a", "memory_allocated"]["predicted"]
    assert saved == pytest.approx(6_979_321_856 * (1 / 16 - 1 / 64 - 1 / 16384), rel=0.01)


def test_a_run_whose_ranks_may_each_load_all_of_4_bit_weights_is_not_said_to_fit(tmp_path: pathlib.Path) -> None:
    """Llama 2 70B in 4 bits is 35 GB: two cards of 24 GB hold it sharded, and neither does while it is loaded, unless
    the ranks share that (axolotl-ai-cloud/axolotl issue 1522; peft docs/source/accelerate/fsdp.md: 2 x 24 GB)."""
    method = "kind: lora, lora_rank: 8, lora_targets_canonical: 'q,v', quantized: nf4"
    layout = "seq: 512, precision: bf16, trainer: axolotl, stack: fsdp, zero: 3, offload: parameters"
    row = {"method": method, "layout": layout, "measured": "oom: true", "count": 2}
    found = validated(
        tmp_path,
        {**row, "id": "small", "model": "llama2-70b", "chip": "RTX 3090"},
        {**row, "id": "large", "model": "llama2-70b", "chip": "A100 SXM 80GB"},
        {**row, "id": "eight", "model": "llama2-7b", "chip": "RTX 3090"},
    )
    verdicts = {name: found[name, "memory_used"]["verdict"] for name in ("small", "large", "eight")}
    assert verdicts == {"small": "too close to call", "large": "fits", "eight": "fits"}


def test_what_prepares_a_quantized_model_checkpoints_its_blocks(tmp_path: pathlib.Path) -> None:
    """peft utils/other.py, prepare_model_for_kbit_training(use_gradient_checkpointing=True): alpaca-lora's LLaMA 7B in
    8 bits at 4 x 256 tokens takes 8 to 10 GB (tloen/alpaca-lora issue 121), its weights alone 6.9."""
    line = "memory llama-7b --task sft --lora-rank 8 --lora-targets q,v --seq 256 --micro-batch 4 --trainer hf-trainer"
    used = "memory/used"
    eight = run_line(f"{line} --quantized int8 --json").values[used]
    assert eight == run_line(f"{line} --quantized int8 --recompute full --json").values[used]
    assert eight == pytest.approx(9e9, rel=0.15)
    assert run_line(f"{line} --json").values[used] == run_line(f"{line} --recompute none --json").values[used]
    text = ROW.replace("recompute: full, ", "")
    row = {"id": "a", "task": "sft", "model": "llama-7b", "chip": "RTX 4090", "count": 1}
    row |= {"layout": "seq: 256, precision: fp16, trainer: hf-trainer", "measured": "peak_bytes: 9e+9, what: used"}
    file = tmp_path / "finetune.yaml"
    file.write_text("schema: finetune/1\nrows:\n" + text.format(**row, method=f"{LORA}, quantized: int8"))
    (entry,) = run_line(f"validate {file} --json").data["rows"]
    assert entry["predicted"] == pytest.approx(9e9, rel=0.15)


def test_what_a_script_calls_itself_is_read_from_the_dtype_of_its_base(tmp_path: pathlib.Path) -> None:
    """peft's prepare_model_for_kbit_training: the embedding and the head, 2 x 128,256 x 4,096, in 4 bytes, not 2."""
    layout = PLAIN.replace("4096", "128")
    found = validated(
        tmp_path,
        {"id": "plain", "layout": layout, "method": f"{LORA}, quantized: nf4"},
        {"id": "kbit", "layout": layout, "method": f"{LORA}, quantized: nf4, base_dtype: {KBIT}"},
    )
    plain, kbit = (found[name, "memory_allocated"]["predicted"] for name in ("plain", "kbit"))
    assert kbit - plain == pytest.approx(2 * 2 * 128_256 * 4096, rel=0.2)


@pytest.mark.parametrize(
    ("layout", "holds"),
    [
        ({"trainer": "none"}, True),
        ({"trainer": "none", "loss": "cross entropy, logits dropped"}, False),
        ({"trainer": "hf-trainer"}, False),
        ({}, False),
    ],
)
def test_a_loop_of_one_s_own_holds_the_logits(layout: dict[str, str], holds: bool) -> None:
    assert holds_logits(RowFields(Document("rows.yaml", None), 0, {"layout": layout})) == holds


def test_fsdp_before_torch_2_1_kept_frozen_blocks_gathered(tmp_path: pathlib.Path) -> None:
    """At the end of the backward pass each of 4 GPUs has all of Llama 2 70B's blocks, 68.5e9 x 2 bytes, next to its
    quarter of 138 GB (meta-llama/llama-cookbook issue 118: out of memory on 4 A100 of 80 GB with torch 2.0.1)."""
    layout = "seq: 2048, packed: true, precision: bf16-pure, attention: flash, trainer: none, stack: fsdp, zero: 3"
    row = {"model": "llama2-70b", "count": 4}
    gib = "peak_bytes: 8e+10, what: allocated"
    old, new = f"{layout}, versions: torch 2.0.1", f"{layout}, versions: torch 2.1.0"
    found = validated(
        tmp_path,
        {**row, "id": "old", "layout": old, "measured": "oom: true"},
        {**row, "id": "new", "layout": new, "measured": "oom: true"},
        {**row, "id": "small", "model": "llama2-7b", "layout": old, "measured": gib},
        {**row, "id": "full", "model": "llama2-7b", "method": "kind: full", "layout": old, "measured": gib},
        {**row, "id": "full-new", "model": "llama2-7b", "method": "kind: full", "layout": new, "measured": gib},
    )
    assert found["old", "memory_used"]["verdict"] == "does not fit"
    assert found["new", "memory_used"]["verdict"] != "does not fit"
    blocks = 32 * (4 * 4096 * 4096 + 3 * 4096 * 11008)
    assert found["small", "memory_allocated"]["predicted"] > 2 * blocks * (1 + 1 / 4)
    full = (found[name, "memory_allocated"]["predicted"] for name in ("full", "full-new"))
    assert len(set(full)) == 1


def test_what_dtype_a_script_loads_is_left_open(tmp_path: pathlib.Path) -> None:
    """Llama 7B on one A100 of 80 GB: Adam's states of bf16 weights are 4 times 13.5 GB, of fp32 ones 8 times
    (tatsu-lab/stanford_alpaca issue 56: out of memory). transformers before 5 load fp32 unless a dtype is given."""
    layout = "seq: 512, precision: bf16, trainer: hf-trainer, stack: none"
    row = {"model": "llama-7b", "method": "kind: full", "measured": "oom: true"}
    found = validated(
        tmp_path,
        {**row, "id": "open", "layout": layout},
        {**row, "id": "old", "layout": f"{layout}, versions: transformers 4.28"},
        {**row, "id": "new", "layout": f"{layout}, versions: transformers 5.0"},
        {**row, "id": "said", "layout": layout.replace("bf16", "bf16 weights")},
    )
    verdicts = [found[name, "memory_used"]["verdict"] for name in ("open", "old", "new", "said")]
    assert verdicts == ["too close to call", "does not fit", "fits", "fits"]
    assert found["old", "memory_used"]["low"] > 16 * 6.7e9


def test_litgpt_by_its_name(tmp_path: pathlib.Path) -> None:
    """Lightning-AI/litgpt pull requests 275 and 1113 print max_memory_allocated: StableLM 3B in bf16-mixed at a
    micro-batch of 4, and TinyLlama in bf16 at 8 x 512 tokens."""
    line = "seq_max: 512, framework: LitGPT, precision: bf16-true"
    method = "kind: lora, lora_rank: 32, lora_targets: 'q,v', lora_dropout: 0.05"
    text = ROW.replace("recompute: full, ", "").replace("micro_batch: 4", "micro_batch: 8")
    row = {"id": "a", "task": "sft", "model": "tinyllama-1.1b", "chip": "A10G", "count": 1, "method": method}
    file = tmp_path / "finetune.yaml"
    measured = "peak_bytes: 10.54e+9, what: unstated"
    file.write_text("schema: finetune/1\nrows:\n" + text.format(**row, layout=line, measured=measured))
    (entry,) = run_line(f"validate {file} --json").data["rows"]
    assert entry["predicted"] == pytest.approx(10.54e9, rel=0.06)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("cognitivecomputations/dolphin-2.6-mistral-7b", "mistral-7b"),
        ("gradientai/Llama-3-8B-Instruct-Gradient-1048k", "llama3-8b"),
        ("NousResearch/Nous-Hermes-Llama2-13b", "llama2-13b"),
        ("lmsys/vicuna-13b-v1.3", "llama-13b"),
        ("HuggingFaceH4/zephyr-7b-beta", "mistral-7b"),
        ("liuhaotian/llava-v1.6-mistral-7b", ""),  # images too
        ("mlabonne/beyonder-4x7b", ""),  # four of them
        ("nonsense-7b", ""),
    ],
)
def test_a_fine_tune_has_the_shape_of_the_model_in_its_name(name: str, shape: str) -> None:
    found = within(name)
    assert (preset(found).name if found else "") == (preset(shape).name if shape else "")


def test_a_cutoff_is_not_how_long_samples_are(tmp_path: pathlib.Path) -> None:
    """The longest sample has the usual 1,024 tokens, but at least a quarter of the length at which samples are cut, and
    at most that length. As lengths vary, the cache has gaps."""
    base = "packed: false, precision: bf16-pure, trainer: none, stack: none"
    cuts = {512: 512, 2048: 1024, 16384: 4096}
    rows: list[dict[str, Any]] = []
    for what in ("allocated", "reserved"):
        measured = f"peak_bytes: 3e+10, what: {what}"
        for cut, longest in cuts.items():
            rows.append({"id": f"cut{cut}", "layout": f"{base}, seq_max: {cut}", "measured": measured})
            rows.append({"id": f"all{cut}", "layout": f"{base}, seq: {longest}", "measured": measured})
    found = validated(tmp_path, *rows[:6]) | validated(tmp_path, *rows[6:])
    for cut in cuts:
        varied, alike = (found[f"{name}{cut}", "memory_allocated"] for name in ("cut", "all"))
        assert varied["predicted"] == alike["predicted"]
        varied, alike = (found[f"{name}{cut}", "memory_reserved"] for name in ("cut", "all"))
        assert varied["predicted"] > alike["predicted"]
        assert varied["high"] > alike["high"]


def test_a_row_without_lengths_has_memory_and_no_speed(tmp_path: pathlib.Path) -> None:
    found = validated(tmp_path, {"layout": "precision: bf16"})
    assert found["a", "memory_allocated"]["low"] < found["a", "memory_allocated"]["predicted"]
    assert "how long its sequences are" in found["a", "tokens_per_second_per_gpu"]["why"]


def test_degrees_that_a_row_leaves_open_are_those_of_the_fastest_layout_that_fits(tmp_path: pathlib.Path) -> None:
    """16 sequences, four in a forward pass, on 16 GPUs: four GPUs share one. Llama 2 70B in bf16 fits no card, so that
    tensors are divided."""
    layout = "global_batch: 16, seq: 4096, precision: bf16-pure, trainer: nemo, stack: megatron-core"
    measured = "peak_bytes: 3e+10, what: allocated, step_seconds: 2"
    row = {"count": 16, "model": "llama2-70b", "measured": measured}
    found = validated(
        tmp_path, {"id": "open", **row, "layout": layout}, {"id": "tp4", **row, "layout": f"{layout}, tp: 4"}
    )
    for name in ("memory_allocated", "step_seconds"):
        assert found["open", name]["low"] <= found["tp4", name]["predicted"] <= found["open", name]["high"]


def test_ranks_wait_for_the_one_with_the_longest_rows() -> None:
    """The mean of the larger of two standard normal numbers is 1/√π = 0.564, of the largest of four 1.029."""
    joined = RowLengths(500, (500, 500, 500), varied=True)
    assert joined.waits(2, 1, 1)[0] == pytest.approx(1 + 0.6 * 0.564, rel=0.02)
    assert joined.waits(2, 4, 4)[0] == pytest.approx(1 + 0.6 * 0.564 / 4, rel=0.01)
    padded = RowLengths(500, (500, 500, 500), varied=True, padded=True)
    assert padded.waits(2, 2, 1)[0] == pytest.approx((1 + 0.6 * 1.029) / (1 + 0.6 * 0.564), rel=0.02)
    assert padded.waits(1, 2, 1) == (1, 1, 1)
    assert RowLengths(500, (500, 500, 500)).waits(8, 1, 1) == (1, 1, 1)


def test_frozen_weights_have_a_type_of_their_own() -> None:
    """bf16 weights next to fp32 adapters: 2 bytes a weight, 4 a trained parameter, and so are gradient and moments."""
    line = "memory llama3-8b --seq 1024 --lora-rank 16 --lora-targets q,v --json --precision"
    found = run_line(f"{line} frozen=bf16,param=fp32").values
    trained = 32 * 16 * (4096 + 4096 + 4096 + 1024)
    assert found["memory/parameters"] == 8_030_261_248 * 2 + trained * 4
    assert found["memory/optimizer"] == pytest.approx(trained * 8, abs=64 * 4 * 2)
    pure = run_line(f"{line} bf16-pure").values
    # each adapted layer keeps its input in fp32 too: q's and v's are two copies
    assert found["memory/activations"] > pure["memory/activations"]
    # attention runs in the type of the frozen weights
    assert "takes no fp32" not in run_line(f"{line} frozen=bf16,param=fp32").out
    assert "takes no fp32" in run_line(f"{line} fp32").out
    refused = run_line("memory llama3-8b --precision frozen=bf16,param=fp32")
    assert refused.status == 2
    assert "frozen= needs weights that are not trained" in refused.err


@pytest.mark.parametrize(("quantized", "each"), [("int8", 1), ("fp8", 1), ("int4", 0.5 + 2.5 / 128)])
def test_formats_of_frozen_weights(quantized: str, each: float) -> None:
    line = "memory llama3-8b --seq 1024 --lora-rank 16 --lora-targets q,v --precision bf16-pure --json"
    found = run_line(f"{line} --quantized {quantized}").values["memory/parameters"]
    layers = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    rest = 8_030_261_248 - layers
    trained = 32 * 16 * (4096 + 4096 + 4096 + 1024)
    assert found == pytest.approx(layers * each + 2 * rest + 2 * trained, rel=1e-6)


def test_dropout_of_adapters_keeps_a_mask_and_its_own_output_next_to_each() -> None:
    """bf16, LoRA of q and v: both save their input, 2 bytes an element once; with dropout each saves its output (2) and
    its mask (1), but no mask in the first layer, whose input needs no gradient."""
    line = "memory llama3.1-8b --lora-rank 16 --lora-targets q,v --precision bf16-pure --seq 1024 --json"
    saved = [
        run_line(f"{line} {dropout}").values["memory/activations/saved"]
        for dropout in ("", "--lora-dropout 0.1", "--dropout 0.1 --lora-dropout 0")
    ]
    assert saved[1] - saved[0] == 1024 * 4096 * ((2 * (2 + 1) - 2) * 31 + (2 * 2 - 2))
    assert saved[2] == saved[0]


def test_dora_keeps_what_its_vector_multiplies() -> None:
    """A vector of the outputs for each adapted layer, and in each its result and the adapter's, for the gradient
    (counted with hooks on peft 0.21)."""
    line = "memory llama3-8b --seq 1024 --lora-rank 16 --lora-targets q,v --precision bf16-pure --json"
    plain, found = run_line(line).values, run_line(f"{line} --adapter dora").values
    assert found["memory/parameters"] - plain["memory/parameters"] == 2 * 32 * (4096 + 1024)
    kept = 2 * 32 * 1024 * (2 * 4096 + 2 * 1024)
    assert found["memory/activations/saved"] - plain["memory/activations/saved"] == pytest.approx(kept, rel=0.01)
    assert run_line("memory llama3-8b --adapter dora").status == 2


def test_reentrant_checkpoints_of_frozen_blocks_stay_until_the_backward_pass_is_over(tmp_path: pathlib.Path) -> None:
    """Under FSDP, each block's input and its gradient: at the end of the backward pass twice what it began with, 16
    bits of T·h in each of 32 layers (torch/distributed/fsdp/_runtime_utils.py); transformers 5 checkpoints otherwise.
    """
    layout = "seq: 4096, precision: bf16, trainer: hf-trainer, stack: fsdp, zero: 3, loss: fused"
    rows = [
        {"id": name, "count": 2, "layout": f"{layout}, versions: 'transformers {version}'"}
        for name, version in (("v4", "4.57"), ("v5", "5.0"))
    ]
    found = validated(tmp_path, *rows)
    old, new = (found[version, "memory_allocated"]["predicted"] for version in ("v4", "v5"))
    assert 0.9 < (old - new) / (32 * 4 * 4096 * 4096 * 2) <= 1.01
    others = [
        {"id": "open", "count": 2, "layout": layout},
        {"id": "second", "count": 2, "layout": f"{layout}, framework: FSDP2".replace("hf-trainer", "accelerate")},
        {"id": "loop", "count": 2, "layout": layout.replace("hf-trainer", "none")},
    ]
    more = validated(tmp_path, *others)
    assert more["open", "memory_allocated"]["predicted"] == old
    copied = 4 * 16 * ((4096 + 4096) + (4096 + 1024))  # of a block's adapters, for their reduction
    assert 0.9 < (more["second", "memory_allocated"]["predicted"] - new) / copied <= 1.01
    assert more["loop", "memory_allocated"]["predicted"] < old


def test_70b_in_4_bits_on_two_gpus_with_reentrant_checkpoints(tmp_path: pathlib.Path) -> None:
    """35.6 GB a GPU, and 19.6 with the parameters in host memory (huggingface/peft docs/source/accelerate/fsdp.md:
    Llama 2 70B, all-linear, 2 x 2,048 tokens)."""
    method = "kind: lora, lora_rank: 8, lora_targets: all-linear, lora_dropout: 0.1, quantized: nf4-dq"
    layout = "seq: 2048, precision: bf16, attention: flash, trainer: trl, stack: fsdp, zero: 3"
    text = ROW.replace("micro_batch: 4, grad_accum: 1", "micro_batch: 2, grad_accum: 2")
    row = {"task": "sft", "model": "llama2-70b", "chip": A100, "count": 2, "method": method}
    rows = [
        {**row, "id": "here", "layout": layout, "measured": "peak_bytes: 35.6e+9, what: used"},
        {
            **row,
            "id": "away",
            "layout": f"{layout}, offload: parameters",
            "measured": "peak_bytes: 19.6e+9, what: used",
        },
    ]
    file = tmp_path / "finetune.yaml"
    file.write_text("schema: finetune/1\nrows:\n" + "".join(text.format(**one) for one in rows))
    for entry in run_line(f"validate {file} --json").data["rows"]:
        assert entry["predicted"] == pytest.approx(entry["measured"], rel=0.12)


@pytest.mark.parametrize(
    ("measured", "why"),
    [
        ("memory_gib: 55.3", "measured.memory_gib: not read; measured takes peak_bytes"),
        ("runs: 3", "nothing is measured; measured takes peak_bytes"),
        ("peak_bytes: much", "'much' is not a number"),
    ],
)
def test_a_row_that_nothing_is_read_of_says_why_and_leaves_the_others(
    tmp_path: pathlib.Path, measured: str, why: str
) -> None:
    found = validated(tmp_path, {"measured": measured}, {"id": "b"})
    assert why in found["a", "memory_used"]["why"]
    assert "predicted" not in found["a", "memory_used"]
    assert found["b", "memory_allocated"]["predicted"] > 0
    assert why in run_line(f"validate {tmp_path / 'finetune.yaml'}").out.replace("\n  ", " ")


def test_a_run_is_as_long_as_its_samples(tmp_path: pathlib.Path) -> None:
    """64 samples in batches of 4 are 16 steps; tokens that were derived from a rate say nothing."""
    layout, times = f"{PLAIN}, global_batch: 4", "step_seconds: 5, run_seconds: 100"
    found = validated(
        tmp_path,
        {"layout": layout, "measured": f"{times}, samples: 64"},
        {"id": "tokens", "layout": layout, "measured": f"{times}, tokens: {64 * 4096}"},
        {"id": "rate", "layout": layout, "measured": f"{times}, tokens: {64 * 4096}, derived: [tokens]"},
    )
    step = found["a", "step_seconds"]["predicted"]
    assert found["a", "run_seconds"]["predicted"] == pytest.approx(16 * step)
    assert found["tokens", "run_seconds"]["predicted"] == pytest.approx(16 * step)
    assert "steps" in found["rate", "run_seconds"]["why"]


def test_a_benchmark_s_time_has_its_evaluations_in_it(tmp_path: pathlib.Path) -> None:
    """0.88 of the time to a target are steps, as in the logs of MLPerf's fine-tuning (tests/test_goodput.py)."""
    layout, times = f"{PLAIN}, global_batch: 4", "step_seconds: 5, run_seconds: 100, samples: 64"
    found = validated(tmp_path, {"id": "mlperf-a", "layout": layout, "measured": times})
    step = found["mlperf-a", "step_seconds"]["predicted"]
    assert found["mlperf-a", "run_seconds"]["predicted"] == pytest.approx(16 * step / 0.88)


def test_samples_of_unknown_length_that_are_packed_attend_to_themselves(tmp_path: pathlib.Path) -> None:
    """Attention takes anything from nothing to that of the whole sequence: the middle, and a wider interval."""
    layout = PLAIN.replace("seq: 4096", "seq: 16384")
    joined = layout.replace("seq:", "packed: true, seq_max:")
    found = validated(tmp_path, {"layout": layout}, {"id": "packed", "layout": joined})
    rate = "tokens_per_second_per_gpu"
    whole, packed = found["a", rate], found["packed", rate]
    assert 1.1 < packed["predicted"] / whole["predicted"] < 1.5
    assert packed["high"] / packed["low"] > 1.2 * whole["high"] / whole["low"]
    assert packed["low"] == pytest.approx(whole["low"], rel=0.001)


def test_a_batch_that_the_gpus_cannot_share_is_refused(tmp_path: pathlib.Path) -> None:
    found = validated(tmp_path, {"count": 64, "layout": f"{PLAIN}, global_batch: 8"})
    assert "how its 64 GPUs divide a batch of 8" in found["a", "tokens_per_second_per_gpu"]["why"]


def test_an_optimizer_in_backward_holds_no_gradients(tmp_path: pathlib.Path) -> None:
    """8,030,261,248 bf16 gradients less, but for the largest ones, of embedding and head: 128,256 × 4,096 each."""
    layout = f"{PLAIN}, optimizer: '{{}}'".replace("seq: 4096", "seq: 64")
    words = {"here": "PagedAdamW", "away": "bitsandbytes PagedAdamW, optimizer in backward"}
    full = {"method": "kind: full", "measured": "peak_bytes: 3e+10, what: allocated"}
    found = validated(tmp_path, *({**full, "id": one, "layout": layout.format(said)} for one, said in words.items()))
    saved = found["here", "memory_allocated"]["predicted"] - found["away", "memory_allocated"]["predicted"]
    assert 2 * (8_030_261_248 - 2 * 128_256 * 4_096) <= saved <= 1.01 * 2 * 8_030_261_248


@pytest.mark.parametrize(
    ("said", "same", "method"),
    [("copy", "second copy", "kind: full"), ("adapters off", "adapters switched off", LORA)],
)
def test_words_for_the_source_of_a_reference(tmp_path: pathlib.Path, said: str, same: str, method: str) -> None:
    measured = "peak_bytes: 3e+10, what: allocated}}\n  rl: {{reference: {}"
    asked = {"task": "dpo", "model": "llama3.2-1b", "method": method}
    found = validated(tmp_path, *({**asked, "id": one, "measured": measured.format(one)} for one in (said, same)))
    usual = validated(tmp_path, {**asked, "id": "open"})["open", "memory_allocated"]
    assert found[said, "memory_allocated"]["predicted"] == found[same, "memory_allocated"]["predicted"]
    assert found[said, "memory_allocated"]["predicted"] == usual["predicted"]


@pytest.mark.parametrize(
    ("loss", "form"),
    [
        ("liger_cross_entropy", "in-place"),
        ("Liger cross-entropy", "in-place"),
        ("liger_fused_linear_cross_entropy", "fused"),
        ("liger", "fused"),
    ],
)
def test_ligers_loss_without_the_heads_product_keeps_the_logits(loss: str, form: str) -> None:
    layout = {"trainer": "none", "stack": "none", "kernels": "liger", "loss": loss}
    row = RowFields(Document("rows.yaml", None), 0, {"layout": layout})
    assert with_loss(row, network("llama3-8b"), HF, PLAIN_FRAMEWORK).loss == form


@pytest.mark.parametrize(
    ("loss", "form"),
    [
        ("fused (default)", "vocabulary"),
        ("cross_entropy_loss_fusion", "vocabulary"),
        ("fused, Transformer Engine", "in-place"),
        ("te fused", "in-place"),
        ("liger", "fused"),
        ("fused linear cross entropy", "fused"),
        ("", ""),
    ],
)
def test_megatrons_fused_cross_entropy_reads_whole_logits(loss: str, form: str) -> None:
    row = RowFields(Document("rows.yaml", None), 0, {"layout": {"stack": "megatron-core", "loss": loss}})
    megatron = FRAMEWORKS["megatron-core"]
    assert with_loss(row, network("llama3-8b"), PROGRAMS["megatron"], megatron).loss == form


@pytest.mark.parametrize(("stack", "more", "longest"), [
    ("megatron-core", "", 208), ("megatron-core", "padding_free: false", 1024), ("deepspeed", "", 1024),
])  # fmt: skip
def test_ms_swift_joins_the_rows_of_a_micro_batch_on_megatron(stack: str, more: str, longest: int) -> None:
    """16 rows of at most 2,048 tokens, the longest of 1,024, 7.195 times the mean: the largest of 625 joined sums has
    1 + 0.6 · 3.090 / √16 = 1.4636 times its mean of 142 a row (modelscope/ms-swift
    swift/megatron/arguments/megatron_args.py)."""
    layout = {"trainer": "ms-swift", "stack": stack, "micro_batch": 16, "seq_max": 2048}
    layout |= {"padding_free": False} if more else {}
    row = RowFields(Document("rows.yaml", None), 0, {"layout": layout, "hardware": {"count": 1}})
    _, lengths = layout_of(row, 1)
    assert lengths.longest[0] == longest


def test_kernels_that_run_a_norm_at_once_make_a_step_faster(tmp_path: pathlib.Path) -> None:
    found = validated(tmp_path, {}, {"id": "liger", "layout": f"{PLAIN}, kernels: liger"})
    rate = "tokens_per_second_per_gpu"
    assert 1.02 < found["liger", rate]["predicted"] / found["a", rate]["predicted"] < 1.2


@pytest.mark.parametrize(
    ("asked", "says"), [("--adapter dora", "use_dora=True"), ("--lora-dropout 0.1", "lora_dropout != 0")]
)
def test_what_peft_refuses_next_to_experts_in_one_tensor_is_refused(asked: str, says: str) -> None:
    """peft 0.21.2 raises "lora.ParamWrapper does not work with …" for Mixtral's all-linear; attention alone is fine."""
    line = f"memory mixtral-8x7b --lora-rank 8 --hardware h100 {asked}"
    refused = run_line(line)
    assert (refused.status, refused.err.count("error:")) == (2, 1)
    assert says in refused.err
    assert run_line(f"{line} --lora-targets q_proj,v_proj").status == 0
    assert run_line(f"{line} --lora-targets q_proj,w1,w2,w3").status == 2


def test_fsdp_under_the_trainers_loop_holds_all_gradients_until_the_last_micro_batch() -> None:
    """transformers' Trainer runs all micro-batches but the last under accelerate's no_sync, so that each GPU holds the
    gradients of the complete model in bf16; the update finds its eighth in fp32. FSDP by itself divides each, the final
    norm's and the head's when the backward pass is over."""
    line = "memory llama3.1-8b --task sft --gpus 8 --zero 3 --framework fsdp --precision amp-bf16 --hardware h100"
    params = 8_030_261_248
    deferred = run_line(f"{line} --trainer trl --grad-accum 2 --json").values
    assert deferred["memory/at/backward/gradients"] == 2 * params
    assert deferred["memory/at/step/gradients"] == pytest.approx(4 * params / 8, rel=1e-6)
    for other in ("--trainer trl --grad-accum 1", "--recompute full --grad-accum 2"):
        found = run_line(f"{line} {other} --json").values["memory/at/backward/gradients"]
        assert found - 2 * (128256 + 1) * 4096 <= 4 * params / 8 * (1 + 1e-6)


def test_the_longest_of_joined_micro_batches_is_nearer_to_the_mean(tmp_path: pathlib.Path) -> None:
    """Four rows of 300 tokens in the mean, one of them 7.195 times as long: (7.195 + 3) / 4 times 300."""
    layout = "packed: true, padding_free: true, precision: bf16-pure, trainer: none, stack: none"
    measured = "peak_bytes: 3e+10, what: allocated"
    found = validated(
        tmp_path,
        {"layout": layout, "measured": f"{measured}, mean_tokens_per_sample: 300"},
        {"id": "all", "layout": f"{layout}, seq: 765", "measured": measured},
    )
    assert found["a", "memory_allocated"]["predicted"] == found["all", "memory_allocated"]["predicted"]


def test_the_longest_of_a_run_follows_from_its_samples_and_its_padding() -> None:
    """32,000 samples on two GPUs: the largest of 16,000 standard normal numbers is 3.950. Padded rows of 524 tokens are
    the mean of the longest of 8, 1 + 0.6 · 1.434 means: 524 / 1.8605 · exp(0.5545 · 3.950 − 0.1537) = 2,159."""
    layout = {"trainer": "hf-trainer", "stack": "fsdp", "micro_batch": 8, "grad_accum": 2, "zero": 3, "packed": False}
    measured = {"mean_tokens_per_sample": 524, "steps": 1000}
    row = {"layout": layout, "hardware": {"count": 2}, "measured": measured}
    _, lengths = layout_of(RowFields(Document("rows.yaml", None), 0, row), 1)
    assert lengths.longest[0] == pytest.approx(2159, rel=0.001)
    row["measured"] = {"mean_tokens_per_sample": 524, "samples_per_second": 8, "run_seconds": 4000}
    _, same = layout_of(RowFields(Document("rows.yaml", None), 0, row), 1)
    assert same.longest == lengths.longest


def test_fast_kernels_leave_the_loss_of_a_class_that_no_longer_names_torchs() -> None:
    found, plain = {}, implementation_of("hf", "granitemoe")
    for versions in ("transformers 4.46.3", "transformers 4.52.4"):
        layout = {"kernels": "moe-scattermoe-granite-ep1-foak", "versions": versions}
        row = RowFields(Document("rows.yaml", None), 0, {"layout": layout})
        read = with_loss(row, network("granite3.0-3b-a800m"), plain, FRAMEWORKS["fsdp"])
        found[versions[-6:]] = (read.norms, read.loss)
    assert found["4.46.3"] == ("fused", "in-place")
    assert found["4.52.4"] == ("fused", plain.loss)


def test_unsloth_keeps_the_inputs_of_blocks_on_the_host() -> None:
    """Of 32 checkpoints of 16,384 x 4,096 elements of 2 bytes, a few are on the GPU at a time, written or read
    (unsloth_zoo/gradient_checkpointing.py); a plain checkpoint keeps all there."""
    line = "memory llama3.1-8b --task sft --lora-rank 8 --quantized nf4 --seq 16384 --hardware h100 --trainer unsloth"
    moved, kept = (run_line(f"{line} --recompute {kind} --json").values for kind in ("full", "every:1"))
    checkpoint = 16_384 * 4_096 * 2
    assert 26 * checkpoint <= moved["memory/host/activations"] < 32 * checkpoint
    assert kept["memory/live"] - moved["memory/live"] == moved["memory/host/activations"]


def test_experts_that_are_targeted_have_adapters_on_both_of_their_tensors(tmp_path: pathlib.Path) -> None:
    """64 experts in each of 46 layers, gate_up of 2,048 to 3,072 and down of 1,536 to 2,048: fp32 weights and two
    states at the peak, before there are gradients."""
    method = "kind: lora, lora_rank: 16, quantized: nf4, quantize_moe_experts: true, lora_targets: o_proj"
    rows = (
        {"id": said, "model": "glm4.7-flash", "method": f"{method}, experts_targeted: {said}"}
        for said in ("not targeted", "targeted")
    )
    layout = "seq: 512, precision: bf16, trainer: axolotl, stack: none"
    found = validated(tmp_path, *({**row, "layout": layout} for row in rows))
    apart, experts = (found[said, "memory_allocated"]["predicted"] for said in ("not targeted", "targeted"))
    states = 12 * 46 * 64 * 16 * (2_048 + 3_072 + 1_536 + 2_048)
    assert experts - apart == pytest.approx(states, rel=0.01)


def test_another_kind_of_adapters_is_lora_of_as_many_parameters(tmp_path: pathlib.Path) -> None:
    """Rank 16 next to q and v of Llama 3 8B: 32 layers, 16 x (4,096 + 4,096 + 4,096 + 1,024) parameters."""
    params = 32 * 16 * (4096 + 4096 + 4096 + 1024)
    other = f"kind: lokr, lora_targets_canonical: 'q,v', trainable_params: {params}"
    found = validated(tmp_path, {"id": "lora"}, {"id": "lokr", "method": other})
    for quantity in ("memory_allocated", "tokens_per_second_per_gpu"):
        lora, lokr = found["lora", quantity], found["lokr", quantity]
        assert lokr["predicted"] == lora["predicted"]
        assert lokr["low"] < lora["low"]
        assert lokr["high"] > lora["high"]
        assert lokr["evidence"] == "assumed"
