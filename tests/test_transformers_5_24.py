"""Model types that came with transformers 5.24.0, and what that version changed in others: parameters of its classes,
counted on the meta device, and files as their publishers write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from napkin.counting import flops
from napkin.counting.params import params
from napkin.counting.vision import params_of
from napkin.errors import REFUSED, NapkinError
from napkin.footprint.memory import parts_of, rank_of
from napkin.footprint.moments import Moments
from tests.conftest import model_of, preset, run_line
from tests.test_states_by_hand import step_of

DEFAULTS: dict[str, dict[str, Any]] = dict(
    json.loads((Path(__file__).parent / "data" / "default_configs.json").read_text(encoding="utf-8"))["rows"]
)
EXAONE = {
    "activation_function": "silu", "architectures": ["ExaoneForCausalLM"], "embed_dropout": 0.0, "head_dim": 128,
    "auto_map": {"AutoModelForCausalLM": "modeling_exaone.ExaoneForCausalLM"}, "hidden_size": 4096,
    "intermediate_size": 14336, "layer_norm_epsilon": 1e-05, "max_position_embeddings": 32768,
    "model_type": "exaone", "num_attention_heads": 32, "num_key_value_heads": 8, "num_layers": 32,
    "rope_scaling": {"factor": 8.0, "rope_type": "llama3"}, "tie_word_embeddings": False, "vocab_size": 102400,
}  # fmt: skip
SARVAM = {
    "architectures": ["SarvamMLAForCausalLM"], "first_k_dense_replace": 1, "head_dim": 576, "hidden_size": 4096,
    "intermediate_size": 16384, "kv_lora_rank": 512, "model_type": "sarvam_mla", "moe_intermediate_size": 2048,
    "num_attention_heads": 64, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 32,
    "num_shared_experts": 1, "q_head_dim": 192, "q_lora_rank": None, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "rope_scaling": {"type": "deepseek_yarn", "factor": 40}, "v_head_dim": 128,
    "vocab_size": 262144,
}  # fmt: skip
LOOP = {
    "model_type": "inkling2_loop_text", "hidden_size": 64, "num_hidden_layers": 4, "n_layers_per_attn_res_block": 1,
    "loop_layer_index_start": 1, "loop_layer_index_end": 3, "loop_gate_rank": 8, "vocab_size": 100,
    "unpadded_vocab_size": 90, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
}  # fmt: skip
DORY = {
    "model_type": "dory", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96, "vocab_size": 100, "n_input_layers": 1,
    "n_output_layers": 1,
}  # fmt: skip


def total(fields: dict[str, Any]) -> int:
    return int(params(model_of(fields))["params/total"].value)


@pytest.mark.parametrize(
    ("model_type", "changes", "count"),
    [
        ("apertus1p5_text", {}, 8_091_086_912),
        ("apertus1p5_text", {"output_vocab_size": 131_072}, 8_091_086_912 - 4096 * (266_752 - 131_072)),
        ("apertus1p5", {}, 8_091_086_912),
        ("dory", {}, 3_975_229_440),
        ("exaone", {}, 7_818_448_896),
        ("hy_v4_vl", {}, 769_907_389_085),
        ("inkling2_text", {}, 593_718_478_848),
        ("inkling2_loop", {}, 26_068_156_416),
        ("lara_mini", {}, 7_281_684_672),
        ("sarvam_mla", {}, 106_031_763_456),
        ("sarvam_moe", {}, 32_152_648_064),
    ],
)
def test_counts_are_those_of_the_class(model_type: str, changes: dict[str, Any], count: int) -> None:
    """The language model's of the multimodal ones."""
    assert total({**DEFAULTS[model_type], **changes}) == count


@pytest.mark.parametrize(
    ("model_type", "count"),
    [
        ("aria", 18_701_885_824),
        ("audioflamingo3", 12_708_843_520),
        ("glmasr", 2_136_470_528),
        ("granite_speech", 6_990_441_514),
        ("hy_v4_vl", 771_142_515_869),
        ("inkling2_loop", 26_386_412_544),
        ("moss_transcribe_diarize", 908_513_280),
        ("muse_spark", 822_036_513_792),
        ("phi4_multimodal", 5_308_268_992),
        ("qwen2_5_omni_thinker", 11_338_288_896),
        ("qwen3_asr", 2_039_626_880),
        ("qwen3_omni_moe_thinker", 18_418_329_704),
        ("voxtral", 4_676_271_104),
    ],
)
def test_counts_with_towers_and_encoders_are_those_of_the_class(model_type: str, count: int) -> None:
    """All parameters of the multimodal classes in their default configurations."""
    assert params_of(model_of(DEFAULTS[model_type]))[-1].value == count


def test_files_of_the_code_that_publishers_wrote_are_read() -> None:
    assert total(EXAONE) == 7_818_448_896
    assert total(SARVAM) == 106_031_763_456


def test_a_loop_runs_its_layers_again_and_holds_them_once() -> None:
    """A pass more of Dory's two layers in the middle costs a fourth pass of four equal layers: no weights."""
    once, twice, thrice = (model_of({**DORY, "n_recurrent_loops": n}) for n in (1, 2, 3))
    assert len({params(one)["params/total"].value for one in (once, twice, thrice)}) == 1

    def forward(of: Any) -> float:
        return float(flops.forward(of, flops.works(of, 1, 32)).value)

    head = 2 * 32 * 64 * 100
    assert forward(twice) - forward(once) == forward(thrice) - forward(twice) == (forward(once) - head) / 2


def test_messages_are_held_also_where_no_second_pass_reads_them() -> None:
    """Each of four messages of each of two layers: a query, a matrix 2h → r and two r → h."""
    gates = 2 * 4 * (64 + 2 * 64 * 8 + 2 * 8 * 64)
    counts = {passes: total({**LOOP, "loop_num_passes": passes}) for passes in (1, 2, 3)}
    assert len(set(counts.values())) == 1
    plain = {field: value for field, value in LOOP.items() if not field.startswith("loop_")}
    heads = {"num_attention_heads": 24, "swa_num_attention_heads": 24}
    assert counts[1] - total({**plain, **heads, "model_type": "inkling2_text"}) == gates


def test_loops_that_cannot_be_are_wrong() -> None:
    for fields in (
        {**LOOP, "loop_layer_index_end": 5},
        {**LOOP, "n_layers_per_attn_res_block": 2},
        {**DORY, "n_recurrent_layers": 3},
        {**DEFAULTS["apertus1p5_text"], "output_vocab_size": 266_753},
    ):
        with pytest.raises(NapkinError) as caught:
            model_of(fields)
        assert caught.value.status == 2


@pytest.mark.parametrize("fields", [LOOP, DORY], ids=["inkling2_loop", "dory"])
def test_looped_layers_are_on_one_pipeline_stage(fields: dict[str, Any]) -> None:
    """A stage of later runs would need a copy of weights that another stage holds; ALBERT's are on every stage."""
    model = model_of(fields)
    assert (model.shares_tensors, model.shares_weights) == (False, True)
    found = run_line("memory - --gpus 2 --pp 2 --seq 64", stdin=json.dumps(fields))
    assert found.status == REFUSED
    assert "have weights of other stages" in found.errors[0]
    rows = run_line("plan - --gpus 2 --hardware h100 --seq 64 --json", stdin=json.dumps(fields)).data["rows"]
    assert {row["pp"] for row in rows} == {1}
    for other in (model_of(DEFAULTS["albert"]), preset("deberta-v3-base"), preset("gpt2")):
        assert not other.on_one_stage


@pytest.mark.parametrize("fields", [LOOP, DORY, DEFAULTS["hrm_text"]], ids=["inkling2_loop", "dory", "hrm_text"])
def test_weights_of_looped_layers_have_one_gradient(fields: dict[str, Any]) -> None:
    """When the layers are done all gradients are there but the embedding's, however often the layers ran."""
    step = step_of(model_of(fields), policy="fp32")
    found = rank_of(step, 0)
    parts = parts_of(step, found.stage)
    (_, embedding), *_ = parts
    made = Moments(step, found, parts).end_of_backward().gradients
    assert made == found.gradients - 4 * embedding.all


@pytest.mark.parametrize("model_type", ["funnel", "encoder-decoder", "seamless_m4t_v2"])
def test_a_type_of_transformers_that_is_not_read_is_no_misspelling(model_type: str) -> None:
    refused = run_line("params -", stdin=json.dumps({"model_type": model_type, "hidden_size": 64}))
    assert refused.status == 3
    assert f"napkin does not read '{model_type}', a model type of transformers" in refused.err
    assert "did you mean" not in refused.err
