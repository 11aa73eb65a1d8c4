"""Ranks of their own for some of LoRA's modules (peft's rank_pattern): `--lora-targets q_proj,v_proj,v_proj=8`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Napkin, run_line
from tests.test_lora_layers import MEMORY, TINY

PROGRAM = """
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("meta-llama/Meta-Llama-3-8B")
lora = LoraConfig(r=16, target_modules=["q_proj", "v_proj"], rank_pattern={"v_proj": 4}, alpha_pattern={"v_proj": 8})
Trainer(get_peft_model(model, lora), TrainingArguments(output_dir="x", per_device_train_batch_size=2)).train()
"""
T5 = {"model_type": "t5", "d_model": 64, "d_kv": 16, "d_ff": 128, "num_heads": 4, "num_layers": 3, "vocab_size": 100}


@pytest.mark.parametrize(
    ("targets", "trained", "saved"),
    [
        ("q_proj,v_proj", 5_376, 1_604_100),
        ("q_proj,v_proj,v_proj=12", 9_984, 1_616_388),
        ("q_proj,v_proj,model.layers.5.self_attn.q_proj=16", 6_912, 1_607_172),
    ],
)
def test_parameters_and_saved_bytes_are_those_of_peft(targets: str, trained: int, saved: int) -> None:
    """Measured with peft 0.21.2 and transformers 5.23.0: LoraConfig(r=4, rank_pattern=…) on this Llama with eager
    attention in fp32, 2 × 32 tokens; distinct storages of saved tensors that are neither weights nor buffers."""
    values = run_line(["memory", json.dumps(TINY), "--lora-targets", targets, *MEMORY.split()]).values
    assert values["memory/gradients"] == 4 * trained
    assert values["memory/activations"] == saved


def test_flops_of_an_adapter_grow_with_its_own_rank() -> None:
    """Rank 24 instead of 8 on the down-projections: 6 FLOP for each of 16·(14,336 + 4,096) more weights and token in
    32 layers."""
    line = "flops llama3-8b --lora-rank 8 --seq 2048 --json"
    plain, wider = (
        run_line(f"{line} --lora-targets all{more}").values["flops/total"] for more in ("", ",down_proj=24")
    )
    assert wider - plain == 6 * 2048 * 32 * 16 * (14336 + 4096)


def test_layers_of_an_encoder_and_a_decoder_have_their_own_paths() -> None:
    """3 layers each: 2·64·4 elements in each q; the decoder's attention to the encoder has one too. Rank 10 in the
    encoder's second layer adds 6·128."""
    line = ["memory", json.dumps(T5), "--lora-rank", "4", "--seq", "16", "--precision", "fp32", "--json"]
    named = [*line, "--lora-targets", "q,encoder.block.1.layer.0.SelfAttention.q=10"]
    assert run_line(named).values["memory/gradients"] == 4 * (9 * 128 * 4 + 6 * 128)


def test_layers_of_a_language_model_next_to_a_tower_have_their_paths() -> None:
    """Qwen2.5-VL 7B, whose q_proj is 3,584 by 3,584: rank 8 in place of 16 in one layer is 8·(3,584 + 3,584) fewer."""
    line = "memory qwen2.5-vl-7b --lora-rank 16 --seq 64 --precision fp32 --lora-targets q_proj,v_proj"
    own = ",model.language_model.layers.3.self_attn.q_proj=8"
    plain, one = (run_line(f"{line}{more} --json").values["memory/gradients"] for more in ("", own))
    assert plain - one == 4 * 8 * (3584 + 3584)


@pytest.mark.parametrize(
    ("targets", "status", "says"),
    [
        ("q_proj,v_proj=8", 2, "no adapter is on such a module"),
        ("q_proj,model.layers.40.self_attn.q_proj=8", 2, "no adapter is on such a module"),
        ("q_proj,vision.layers.4.self_attn.q_proj=8", 2, "no adapter is on such a module"),
        ("q_proj,q_proj=0", 2, "no rank"),
        ("q_proj,q_proj=²", 2, "no rank"),
        ("q_proj,q_proj=99999999999", 2, "no rank"),
        ("q_proj,q_proj=", 2, "no rank"),
        ("q_proj,experts.0.w1=8", 3, "single experts"),
        ("q_proj,=8", 3, "does not read this pattern"),
        ("q_proj,(.*)*x=8", 3, "does not read this pattern"),
        ("q_proj,[z-a]=8", 2, "bad character range"),
        ("q_proj,.*.*.*.*=8", 3, "does not read this pattern"),
    ],
)
def test_what_gives_no_rank(napkin: Napkin, targets: str, status: int, says: str) -> None:
    outcome = napkin(["memory", "llama3-8b", "--lora-rank", "8", "--lora-targets", targets])
    assert outcome.status == status
    assert says in outcome.errors[0]


def test_ranks_in_a_program_are_those_of_its_adapter(napkin: Napkin, tmp_path: Path) -> None:
    """32 layers of Llama-3 8B: 16·(4,096 + 4,096) in each q_proj, 4·(4,096 + 1,024) in each v_proj."""
    program = tmp_path / "tune.py"
    program.write_text(PROGRAM)
    found = napkin(["memory", "--from", str(program), "--seq", "512", "--precision", "fp32", "--json"])
    assert json.loads(found.out)["values"]["memory/gradients"] == 4 * 32 * (16 * 8192 + 4 * 5120)
    assert "not modeled" not in napkin(["read", "--from", str(program)]).out


def test_a_rank_for_each_module_is_read(napkin: Napkin, tmp_path: Path) -> None:
    """As EVA's initialization writes them: 1 to 32 in the q_proj of Llama-3 8B's layers, of 8,192 elements a rank."""
    ranks = {f"model.layers.{layer}.self_attn.q_proj": layer + 1 for layer in range(32)}
    ranks |= {f"model.layers.{layer}.mlp.down_proj": 3 for layer in range(64)}
    adapter = {"peft_type": "LORA", "r": 4, "target_modules": ["q_proj"], "rank_pattern": ranks}
    (tmp_path / "adapter_config.json").write_text(json.dumps(adapter))
    line = ["llama3-8b", "--from", str(tmp_path / "adapter_config.json"), "--seq", "512"]
    values = json.loads(napkin(["memory", *line, "--precision", "fp32", "--json"]).out)["values"]
    assert values["memory/gradients"] == 4 * 8192 * sum(range(1, 33))
    assert len(napkin(["memory", *line]).out) < 2000
    assert len(napkin(["read", *line[1:3]]).out) < 2000


@pytest.mark.parametrize("words", ["--implementation litgpt", "--adapter loha"])
def test_other_adapters_have_one_rank(napkin: Napkin, words: str) -> None:
    line = f"memory llama3-8b --lora-rank 8 --lora-targets q_proj,v_proj,v_proj=4 {words}"
    assert napkin(line).status == 3


def test_numbers_of_layers_are_refused_where_their_path_is_not_known(napkin: Napkin) -> None:
    line = "memory gemma3-4b --lora-rank 8 --lora-targets q_proj,{}=4"  # traced without its tower
    assert napkin(line.format("layers.3.self_attn.q_proj")).status == 3
    assert napkin(line.format("q_proj")).status in (0, 1)
