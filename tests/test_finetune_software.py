"""What libraries, frameworks and their versions do in rows of measured fine-tuning."""

from __future__ import annotations

import pathlib

import pytest

from napkin.architectures import implementation_of
from napkin.evidence import published
from napkin.evidence.finetuning.layout import layout_of
from napkin.evidence.finetuning.rows import fine_tuning
from napkin.evidence.finetuning.software import holds_logits, precision_of, with_loss
from napkin.evidence.rows.row import RowFields
from napkin.inputs.load import Document
from napkin.operations.frameworks import FRAMEWORKS as PROGRAMS
from napkin.operations.implementations import HF
from napkin.training.frameworks import FRAMEWORKS
from napkin.training.frameworks import PLAIN as PLAIN_FRAMEWORK
from napkin.training.trainers import TRAINERS
from napkin.training.versions import is_before, is_since
from tests.conftest import preset as network
from tests.conftest import run_line
from tests.finetune_row import A100, LORA, PLAIN, ROW, validated

KBIT = "'nf4; fp32 elsewhere (prepare_model_for_kbit_training)'"


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


@pytest.mark.parametrize(
    ("words", "param", "compute"),
    [
        ("fp32", "fp32", "fp32"),
        ("'fp32 weights, bf16 compute'", "fp32", "bf16"),
        ("fp32 with fp16 autocast", "fp32", "fp16"),
    ],
)
def test_fp32_weights_do_not_say_what_products_compute_in(
    tmp_path: pathlib.Path, words: str, param: str, compute: str
) -> None:
    layout = f"trainer: none, stack: fsdp, zero: 3, seq: 64, precision: {words}"
    row = {"id": "a", "task": "sft", "model": "llama3-8b", "chip": A100, "count": 2, "method": "kind: full"}
    text = ROW.format(**row, layout=layout, measured="oom: false")
    (tmp_path / "rows.yaml").write_text("schema: finetune/1\nrows:\n" + text)
    (found,) = published.read(str(tmp_path / "rows.yaml")).tuning
    precision = fine_tuning(found).setup.precision
    assert (precision.param, precision.compute) == (param, compute)


@pytest.mark.parametrize("words", ["1f1b", "1F1B", "interleaved 1F1B", "all-forward-all-backward"])
def test_a_pipelines_schedule_is_read_as_rows_of_steps_spell_it(tmp_path: pathlib.Path, words: str) -> None:
    layout = f"trainer: none, stack: deepspeed, pp: 2, vp: 2, seq: 64, precision: bf16, schedule: {words}"
    row = {"id": "a", "task": "sft", "model": "llama3-8b", "chip": A100, "count": 2, "method": "kind: full"}
    text = ROW.format(**row, layout=layout, measured="oom: false")
    (tmp_path / "rows.yaml").write_text("schema: finetune/1\nrows:\n" + text)
    (found,) = published.read(str(tmp_path / "rows.yaml")).tuning
    named = {"1F1B": "1f1b", "interleaved 1F1B": "interleaved", "all-forward-all-backward": "gpipe"}
    assert fine_tuning(found).setup.layout.schedule == named.get(words, words)


def test_transformers_before_4_49_copied_the_logits(tmp_path: pathlib.Path) -> None:
    """All but each sequence's last: 4 bytes of the vocabulary's 128,256 more for each other token at the loss. From
    4.46 on a function casts them, whose caller holds those in 16 bits."""
    layout = f"{PLAIN}, autocast: false".replace("4096", "64")
    rows = [
        {"id": version, "method": "kind: full", "layout": f"{layout}, versions: 'transformers {version}'"}
        for version in ("4.45.2", "4.48.1", "4.49.0")
    ]
    text = "schema: finetune/1\nrows:\n"
    for row in rows:
        usual = {"task": "sft", "model": "llama3-8b", "chip": A100, "count": 1, "measured": "oom: false"}
        text += ROW.format(**{**usual, **row})
    (tmp_path / "rows.yaml").write_text(text)
    found = [fine_tuning(row).setup.implementation for row in published.read(str(tmp_path / "rows.yaml")).tuning]
    assert [(one.cuts, one.shifted) for one in found] == [("fp32", False), ("function", False), ("", True)]


@pytest.mark.parametrize(
    ("dated", "compiled", "loss"),
    [
        ("May 2024", "false", ""),  # torch.nn.CrossEntropyLoss in every recipe
        ("September 2024", "false", "chunked-eager"),
        ("September 2024", "true", "chunked"),
    ],
)
def test_torchtunes_recipes_take_the_loss_of_their_month_also_under_fsdp(
    tmp_path: pathlib.Path, dated: str, compiled: str, loss: str
) -> None:
    layout = f"trainer: torchtune, stack: fsdp, zero: 3, seq: 64, precision: bf16-pure, compile: {compiled}"
    row = {"id": "a", "task": "sft", "model": "llama3-8b", "chip": A100, "count": 2, "method": LORA}
    text = ROW.format(**row, layout=f"{layout}, versions: 'torchtune, {dated}'", measured="oom: false")
    (tmp_path / "rows.yaml").write_text("schema: finetune/1\nrows:\n" + text)
    (found,) = published.read(str(tmp_path / "rows.yaml")).tuning
    setup = fine_tuning(found).setup
    assert setup.framework is FRAMEWORKS["torchtune"]
    assert setup.implementation.loss == loss


def test_attention_written_for_hopper_is_faster_there(tmp_path: pathlib.Path) -> None:
    one = {"layout": PLAIN.replace("4096", "65536"), "measured": "step_seconds: 60"}
    rows = [{**one, "id": name, "layout": f"{one['layout']}, attention: {name}"} for name in ("fa3", "cudnn", "fa2")]
    found = validated(tmp_path, *rows, chip="H100 SXM 80GB")
    fa3, cudnn, fa2 = (found[name, "step_seconds"]["predicted"] for name in ("fa3", "cudnn", "fa2"))
    assert fa3 == cudnn < 0.8 * fa2


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


def test_a_month_rules_out_what_was_released_later() -> None:
    """pypi.org: torch 2.1.0 on 4 October 2023, transformers 5.0.0 on 26 January 2026. A stated version decides."""
    assert is_before("torch", "August 2023", (2, 1))
    assert is_before("torch", "2023-08", (2, 1))
    assert not is_before("torch", "October 2023", (2, 1))
    assert not is_before("torch", "torch 2.1, August 2023", (2, 1))
    assert not is_before("torch", "August 2023", (2, 7)), "no month is known of every release"
    assert is_before("transformers", "December 2025", (5, 0))
    assert not is_before("transformers", "", (5, 0))
    assert not is_since("torch", "October 2026", (2, 1)), "a run can have had an older one"


@pytest.mark.parametrize(
    ("method", "precision", "weights"),
    [
        ({"kind": "full"}, "amp-bf16", "fp32"),
        ({"kind": "full"}, "amp-bf16 over bf16 weights", "bf16"),
        ({"kind": "full", "base_dtype": "bf16"}, "amp-bf16", "bf16"),
        ({"kind": "lora"}, "amp-bf16", "fp32"),
        ({"kind": "lora", "base_dtype": "fp32"}, "bf16", "fp32"),
        ({"kind": "lora", "base_dtype": "fp16"}, "amp-fp16", "fp16"),
        ({"kind": "lora"}, "bf16", "bf16"),
        ({"kind": "lora", "quantized": "nf4", "base_dtype": "fp16"}, "amp-fp16", "fp16"),
    ],
)
def test_autocast_is_over_fp32_weights_unless_a_row_says_otherwise(
    method: dict[str, str], precision: str, weights: str
) -> None:
    """`amp-bf16` is the policy of --precision: fp32 parameters under autocast."""
    row = RowFields(Document("rows.yaml", None), 0, {"layout": {"precision": precision}, "method": method})
    found = precision_of(row, TRAINERS["accelerate"], PLAIN_FRAMEWORK, method["kind"])
    assert (found.frozen or found.param) == weights
    assert found.param in ("fp32", weights)


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


def test_litgpt_divides_its_model_itself(tmp_path: pathlib.Path) -> None:
    """A row that calls the FSDP that its script starts a stack of its own says the same run."""
    row = {"model": "tinyllama-1.1b", "count": 8, "method": "kind: full"}
    layout = "seq: 512, framework: LitGPT, trainer: none, zero: 3, precision: bf16-pure"
    found = validated(
        tmp_path,
        {**row, "id": "alone", "layout": layout},
        {**row, "id": "named", "layout": f"{layout}, stack: fsdp"},
        {**row, "id": "other", "layout": layout.replace("LitGPT", "own script") + ", stack: fsdp"},
    )
    alone, named, other = (found[name, "memory_allocated"]["predicted"] for name in ("alone", "named", "other"))
    assert alone == named != other


def test_litgpt_reduces_gradients_in_the_last_micro_batch() -> None:
    """Lightning's no_backward_sync: until then each GPU has whole ones, 2 bytes of each of N parameters, in place of an
    eighth (TinyLlama, whose head is a weight of its own)."""
    line = "memory tinyllama-1.1b --framework litgpt --zero 3 --gpus 8 --precision bf16-pure --seq 64 --recompute full"
    at = "memory/at/backward/gradients"
    one, four = (run_line(f"{line} --global-batch {size} --json").data["values"] for size in (8, 32))
    count = 1_100_048_384
    assert four[at] >= 2 * count > 4 * one[at]


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
    prefetched = 2 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096)  # a block, by the other alone
    assert 0.9 < (old - new + prefetched) / (32 * 4 * 4096 * 4096 * 2) <= 1.01
    others = [
        {"id": "open", "count": 2, "layout": layout},
        {"id": "second", "count": 2, "layout": f"{layout}, framework: FSDP2"},
        {"id": "loop", "count": 2, "layout": layout.replace("hf-trainer", "none")},
    ]
    more = validated(tmp_path, *others)
    assert more["open", "memory_allocated"]["predicted"] == old
    # copies of a block's adapters, for their reduction, but no casts of them, nor of what the two read
    copied = (4 - 2) * 16 * ((4096 + 4096) + (4096 + 1024))
    cast = 4 * 4096 * 4096 * 2
    assert 0.9 < (more["second", "memory_allocated"]["predicted"] - new + cast) / copied <= 1.1
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


def test_an_optimizer_in_backward_holds_no_gradients(tmp_path: pathlib.Path) -> None:
    """8,030,261,248 bf16 gradients less, but for the largest ones, of embedding and head: 128,256 × 4,096 each."""
    layout = f"{PLAIN}, optimizer: '{{}}'".replace("seq: 4096", "seq: 64")
    words = {"here": "PagedAdamW", "away": "bitsandbytes PagedAdamW, optimizer in backward"}
    full = {"method": "kind: full", "measured": "peak_bytes: 3e+10, what: allocated"}
    found = validated(tmp_path, *({**full, "id": one, "layout": layout.format(said)} for one, said in words.items()))
    saved = found["here", "memory_allocated"]["predicted"] - found["away", "memory_allocated"]["predicted"]
    assert 2 * (8_030_261_248 - 2 * 128_256 * 4_096) <= saved <= 1.01 * 2 * 8_030_261_248


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


def test_a_policy_by_name_says_whether_adapters_run_under_autocast() -> None:
    """A plain loop has no autocast unless the row names it, in the policy or in its field; the field wins."""

    def computes(layout: str, trainer: str = "none") -> str:
        fields = {
            "id": "a",
            "task": "sft",
            "model": {"preset": "llama3-8b"},
            "method": {"kind": "lora", "lora_rank": 8, "lora_targets_canonical": "q,v"},
            "layout": {"micro_batch": 1, "seq": 512, "trainer": trainer, "stack": "none", **_pairs(layout)},
        }
        return fine_tuning(RowFields(Document("row.yaml", {}, {}), 0, fields)).setup.precision.compute

    assert computes("precision=amp-bf16") == "bf16"
    assert computes("precision=amp-fp16") == "fp16"
    assert computes("precision=p=f32;c=bfloat16") == "bf16"  # jmp's, as Levanter names it: the whole model is cast
    for program in ("fsdp_qlora train.py", "mistral-finetune", "VectorLM"):  # whose adapters are in bf16 themselves
        assert computes(f"precision=bf16-pure,framework={program}") == "bf16"
    assert computes("precision=bf16-pure") == computes("precision=amp-bf16,autocast=") == "fp32"


@pytest.mark.parametrize(
    ("versions", "trainer", "quantized", "kept"),
    [
        ("peft 0.11.1", "hf-trainer", "", "bf16"),
        ("peft 0.12.0", "hf-trainer", "", "fp32"),
        ("torch 2.4", "hf-trainer", "", "fp32"),
        ("peft 0.11.1", "hf-trainer", "nf4", "fp32"),  # which have no floating-point dtype
        ("peft 0.11.1", "llama-factory", "", "fp32"),  # it casts them itself (model/adapter.py)
    ],
)
def test_peft_casts_adapters_to_fp32_since_0_12(versions: str, trainer: str, quantized: str, kept: str) -> None:
    """get_peft_model(autocast_adapter_dtype=True): mapping.py at v0.12.0, and not at v0.11.1."""
    method = {"kind": "lora", "lora_rank": 8, "lora_targets_canonical": "q,v", "quantized": quantized}
    layout = {"micro_batch": 1, "seq": 512, "trainer": trainer, "stack": "none", "versions": versions}
    fields = {"id": "a", "task": "sft", "model": {"preset": "llama3-8b"}, "method": method, "layout": layout}
    assert fine_tuning(RowFields(Document("row.yaml", {}, {}), 0, fields)).setup.precision.param == kept


def _pairs(text: str) -> dict[str, object]:
    """Return `name=value,…` as fields; an empty value is an explicit no."""
    return {name: value or False for name, _, value in (one.partition("=") for one in text.split(","))}


def test_nvidias_code_for_mlperf_captures_the_layers_of_a_step(tmp_path: pathlib.Path) -> None:
    """Llama 2 70B's 80 layers on 8 ranks wait for the host where it launches them one by one."""
    alike = {
        "model": "llama2-70b",
        "chip": "B200 SXM 180GB",
        "count": 8,
        "method": "kind: lora, lora_rank: 16, lora_targets_canonical: 'q,k,v,o'",
        "layout": "seq: 1024, tp: 8, precision: bf16, trainer: nemo, stack: megatron-core",
        "measured": "step_seconds: 1",
    }
    found = validated(tmp_path, {"id": "mlperf-a", **alike}, {"id": "b", **alike})
    captured, launched = (found[name, "step_seconds"]["predicted"] for name in ("mlperf-a", "b"))
    assert captured < 0.9 * launched
