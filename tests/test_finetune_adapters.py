"""Adapters and frozen weights in rows of measured fine-tuning."""

from __future__ import annotations

import pathlib

import pytest

from tests.conftest import run_line
from tests.finetune_row import PLAIN, validated


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


def test_adapters_that_a_row_leaves_open_are_its_librarys(tmp_path: pathlib.Path) -> None:
    """peft's rank 8 on queries and values; ms-swift's on all linear layers; the interval allows for others: in time
    from the former's fast end to the slow end of all linear layers with rank 64."""
    swift = PLAIN.replace("trainer: none", "trainer: ms-swift")
    found = validated(
        tmp_path,
        {"id": "open", "method": "kind: lora"},
        {"id": "said", "method": "kind: lora, lora_rank: 8, lora_targets_canonical: 'q,v'"},
        {"id": "most", "method": "kind: lora, lora_rank: 64, lora_targets: all-linear"},
        {"id": "swift", "method": "kind: lora", "layout": swift},
        {"id": "all", "method": "kind: lora, lora_rank: 8, lora_targets: all-linear", "layout": swift},
    )
    for open_, said in (("open", "said"), ("swift", "all")):
        for quantity in ("memory_allocated", "tokens_per_second_per_gpu"):
            assert found[open_, quantity]["predicted"] == found[said, quantity]["predicted"]
        one, other = found[open_, "memory_allocated"], found[said, "memory_allocated"]
        assert one["low"] < other["low"] < other["high"] < one["high"]
    speed = {name: found[name, "tokens_per_second_per_gpu"] for name in ("open", "said", "most", "swift", "all")}
    assert speed["open"]["high"] == pytest.approx(speed["said"]["high"])
    assert speed["open"]["low"] == pytest.approx(speed["most"]["low"])
    assert speed["most"]["low"] < speed["said"]["low"]
    assert speed["swift"]["low"] <= speed["all"]["low"] < speed["all"]["high"] < speed["swift"]["high"]


def test_megatron_core_adapts_what_its_published_recipes_adapt(tmp_path: pathlib.Path) -> None:
    """NVIDIA-NeMo/Megatron-Bridge scripts/performance: cfg.peft.target_modules = ["linear_qkv"], of rank 32."""
    layout = "seq: 4096, precision: bf16-pure, framework: megatron-core, stack: megatron-core"
    said = "kind: lora, lora_rank: 32, lora_targets_canonical: 'q,k,v'"
    rows = [{"id": one, "layout": layout, "method": method} for one, method in (("open", "kind: lora"), ("said", said))]
    found = validated(tmp_path, *rows)
    for quantity in ("memory_allocated", "tokens_per_second_per_gpu"):
        assert found["open", quantity]["predicted"] == found["said", quantity]["predicted"]


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


@pytest.mark.parametrize(
    ("kind", "parameters", "words"),
    [
        ("prefixtuning", 11_468_800, "--adapter prefix --virtual-tokens 200"),
        ("prompt tuning", 61_440, "--adapter prompt --virtual-tokens 20"),
        ("p-tuning", 28_382_208, "--adapter p-tuning --virtual-tokens 20"),
        ("miss", 7_340_032, "--adapter miss --lora-rank 64 --lora-targets q_proj,v_proj"),
    ],
)
def test_a_row_of_another_kind_is_what_the_command_answers(
    tmp_path: pathlib.Path, kind: str, parameters: int, words: str
) -> None:
    """The parameters that peft prints (method_comparison/MetaMathQA/results) say how many virtual tokens there are, or
    which rank."""
    method = f"kind: {kind}, trainable_params: {parameters}"
    method += ", lora_targets_canonical: 'q,v'" if kind == "miss" else ""
    layout = "seq: 768, precision: bf16-pure, trainer: none, stack: none, loss: fused"
    row = {"model": "llama3.2-3b", "method": method, "layout": layout}
    predicted = validated(tmp_path, row)["a", "memory_allocated"]["predicted"]
    line = f"memory llama3.2-3b --hardware a100-80gb --seq 768 --micro-batch 4 --recompute full --loss fused {words}"
    found = run_line(f"{line} --precision frozen=bf16,param=fp32,grad=fp32,state=fp32,compute=bf16 --json").data
    assert predicted == pytest.approx(found["values"]["memory/allocated"], rel=0.03)
