"""Parameters: pinned counts of published checkpoints, hand-derived ones, and the laws that every count obeys."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from napkin.counting.params import params
from napkin.operations.model import Model
from napkin.term import fold
from tests.conftest import model, preset, run_line

# total, active (top-k of routed experts and everything else), token table, untied head: tensors of the published files
PUBLISHED = {
    "llama3.1-8b": (8_030_261_248, 8_030_261_248, 525_336_576, 525_336_576),
    "llama3.1-405b": (405_853_388_800, 405_853_388_800, 2_101_346_304, 2_101_346_304),
    "gpt2": (124_439_808, 124_439_808, 38_597_376, 0),
    "opt-350m": (331_196_416, 331_196_416, 25_739_264, 0),
    "pythia-160m": (162_322_944, 162_322_944, 38_633_472, 38_633_472),
    "bloom-560m": (559_214_592, 559_214_592, 256_901_120, 0),
    "falcon-7b": (6_921_720_704, 6_921_720_704, 295_469_056, 0),
    "falcon-40b": (41_303_293_952, 41_303_293_952, 532_676_608, 0),
    "mpt-7b": (6_649_286_656, 6_649_286_656, 206_569_472, 0),
    "gpt-j-6b": (6_050_882_784, 6_050_882_784, 206_438_400, 206_438_400),
    "gpt-neo-125m": (125_198_592, 125_198_592, 38_597_376, 0),
    "gemma2-9b": (9_241_705_984, 9_241_705_984, 917_504_000, 0),
    "gemma3-4b": (3_880_263_168, 3_880_263_168, 671_252_480, 0),
    "gemma3n-e4b": (6_835_235_568, 6_835_235_568, 2_886_205_440, 0),
    "gemma4-26b-a4b": (25_233_141_760, 3_822_530_560, 738_197_504, 0),
    "gemma4-e2b": (4_628_569_344, 4_628_569_344, 2_751_463_424, 0),
    "mistral-nemo-12b": (12_247_782_400, 12_247_782_400, 671_088_640, 671_088_640),
    "qwen2-0.5b": (494_032_768, 494_032_768, 136_134_656, 0),
    "olmo-1b": (1_176_764_416, 1_176_764_416, 103_022_592, 0),
    "olmo2-7b": (7_298_617_344, 7_298_617_344, 411_041_792, 411_041_792),
    "phi-1.5": (1_418_270_720, 1_418_270_720, 104_857_600, 104_857_600),
    "starcoderbase-1b": (1_137_207_296, 1_137_207_296, 100_663_296, 0),
    "command-r7b": (8_028_033_024, 8_028_033_024, 1_048_576_000, 0),
    "xglm-564m": (564_463_616, 564_463_616, 262_152_192, 0),
    "mixtral-8x7b": (46_702_792_704, 12_879_925_248, 131_072_000, 131_072_000),
    "deepseek-v2-lite": (15_706_484_224, 2_661_150_208, 209_715_200, 209_715_200),
    "deepseek-v3": (671_026_404_352, 37_552_282_624, 926_679_040, 926_679_040),
    "dbrx": (131_596_523_520, 36_469_708_800, 616_562_688, 616_562_688),
    "gpt-oss-20b": (20_914_757_184, 4_187_440_704, 579_133_440, 579_133_440),
    "llama4-scout": (107_769_861_120, 17_172_894_720, 1_034_485_760, 1_034_485_760),
    "qwen1.5-moe-a2.7b": (14_315_784_192, 2_689_173_504, 311_164_928, 311_164_928),
    "qwen3-30b-a3b": (30_532_122_624, 3_353_032_704, 311_164_928, 311_164_928),
    "phi3.5-moe": (41_873_153_344, 6_640_999_744, 131_334_144, 131_334_144),
    "rwkv-4-169m": (169_342_464, 169_342_464, 38_612_736, 38_612_736),
    "minicpm-2b": (2_724_880_896, 2_724_880_896, 282_822_912, 0),
    "distilgpt2": (81_912_576, 81_912_576, 38_597_376, 0),
    "santacoder": (1_124_886_528, 1_124_886_528, 100_925_440, 0),
    "chatglm3-6b": (6_243_584_000, 6_243_584_000, 266_338_304, 266_338_304),
    "baichuan-7b": (7_000_559_616, 7_000_559_616, 262_144_000, 262_144_000),
    "baichuan2-13b": (13_896_668_160, 13_896_668_160, 643_563_520, 643_563_520),
    "qwen-1.8b": (1_836_828_672, 1_836_828_672, 311_164_928, 311_164_928),
    "qwen-7b": (7_721_324_544, 7_721_324_544, 622_329_856, 622_329_856),
    "internlm2-7b": (7_737_708_544, 7_737_708_544, 379_060_224, 379_060_224),
    "grok-1": (315_684_820_992, 83_756_587_008, 805_306_368, 0),
}
# routers and always-on experts of the same files
MIXTURES = {
    "mixtral-8x7b": (1_048_576, 0),
    "deepseek-v3": (106_430_464, 2_554_331_136),
    "qwen1.5-moe-a2.7b": (2_949_120, 830_521_344),
    "llama4-scout": (3_932_160, 6_039_797_760),
    "gpt-oss-20b": (2_212_608, 0),
}


def llama(**changes: Any) -> Model:
    small = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 3,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "vocab_size": 256,
        "tie_word_embeddings": False,
    }
    return model(**{**small, **changes})


def count(of: Model) -> int:
    total = params(of)["params/total"].value
    assert isinstance(total, int)
    return total


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_checkpoints(name: str) -> None:
    counted = params(preset(name))
    total, active, embedding, lm_head = PUBLISHED[name]
    assert counted["params/total"].value == total
    assert counted["params/active"].value == active
    assert counted["params/embedding"].value == embedding
    assert counted["params/lm_head"].value == lm_head
    assert counted["params/non_embedding"].value == total - embedding - lm_head


@pytest.mark.parametrize("name", MIXTURES)
def test_routers_and_shared_experts(name: str) -> None:
    counted = params(preset(name))
    router, shared = MIXTURES[name]
    assert counted["params/router"].value == router
    assert (counted["params/shared_experts"].value if shared else 0) == shared


def test_by_hand_grouped_query_attention_and_a_gated_mlp() -> None:
    h, f, layers, heads, kv, vocabulary = 64, 160, 3, 8, 2, 256
    d = h // heads
    layer = h * heads * d + 2 * h * kv * d + heads * d * h + 3 * h * f + 2 * h
    assert count(llama()) == layers * layer + 2 * vocabulary * h + h


def test_by_hand_latent_attention() -> None:
    h, a, rank_q, rank_kv, nope, rope, v = 64, 4, 24, 16, 12, 8, 10
    fields = {
        "model_type": "deepseek_v3",
        "hidden_size": h,
        "intermediate_size": 96,
        "num_hidden_layers": 1,
        "num_attention_heads": a,
        "q_lora_rank": rank_q,
        "kv_lora_rank": rank_kv,
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": v,
        "vocab_size": 100,
        "first_k_dense_replace": 1,
    }
    query = h * rank_q + rank_q + rank_q * a * (nope + rope)
    key_value = h * (rank_kv + rope) + rank_kv + rank_kv * a * (nope + v)
    layer = query + key_value + a * v * h + 3 * h * 96 + 2 * h
    assert count(model(**fields)) == layer + 2 * 100 * h + h
    assert count(model(**{**fields, "q_lora_rank": None})) == layer - query + h * a * (nope + rope) + 2 * 100 * h + h


def test_prediction_modules_are_counted_on_request_alone() -> None:
    v3 = preset("deepseek-v3")
    without, with_them = params(v3), params(v3, mtp=True)
    h = 7168
    more = with_them["params/total"].value - without["params/total"].value
    # two norms, the projection 2h → h, one more mixture layer, a norm
    assert more == 2 * h + 2 * h * h + without["params/layer/moe"].value + h
    idle = without["params/layer/moe"].value - without["params/experts"].value // 58 * 248 // 256
    assert with_them["params/active"].value - without["params/active"].value == 2 * h + 2 * h * h + idle + h


def test_a_checkpoint_with_its_prediction_module_is_as_large_as_its_index_says() -> None:
    """tencent/Hy3: 597,572,342,272 bytes, in bf16 but for one fp32 bias an expert in each of the 80 mixtures."""
    assert params(preset("hy3"), mtp=True)["params/total"].value * 2 + 80 * 192 * 4 == 597_572_342_272


@given(
    h=st.integers(1, 16).map(lambda n: n * 8),
    layers=st.integers(1, 9),
    f=st.integers(1, 500),
    vocabulary=st.integers(1, 2000),
)
def test_laws(h: int, layers: int, f: int, vocabulary: int) -> None:
    changes = {"hidden_size": h, "intermediate_size": f, "num_hidden_layers": layers, "vocab_size": vocabulary}
    counted = params(llama(**changes))
    values = {path: term.value for path, term in counted.items()}
    assert all(fold(term) == term.value for term in counted.values())
    assert {term.unit for term in counted.values()} == {"param"}
    assert values["params/total"] == (
        values["params/embedding"] + values["params/lm_head"] + values["params/non_embedding"]
    )
    deeper = params(llama(**{**changes, "num_hidden_layers": 2 * layers}))
    assert deeper["params/layers"].value == 2 * values["params/layers"]
    tied = count(llama(**changes, tie_word_embeddings=True))
    assert values["params/total"] - tied == vocabulary * h


@given(experts=st.integers(1, 40), data=st.data())
def test_active_is_all_but_the_experts_not_chosen(experts: int, data: st.DataObject) -> None:
    top_k = data.draw(st.integers(1, experts))
    h, f, layers = 64, 24, 4
    mixture = model(
        model_type="mixtral",
        hidden_size=h,
        intermediate_size=f,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=8,
        vocab_size=128,
        num_local_experts=experts,
        num_experts_per_tok=top_k,
    )
    counted = params(mixture)
    idle = counted["params/total"].value - counted["params/active"].value
    assert idle == layers * (experts - top_k) * 3 * h * f


def test_the_tree_reaches_each_weights_shape() -> None:
    total = params(llama())["params/total"]
    leaves = {term.name: term.value for term in total.walk() if not term.parts}
    assert leaves["params/layer/decoder/k/weight/rows"] == 16
    assert leaves["params/layer/decoder/k/weight/columns"] == 64
    assert leaves["decoder_layers"] == 3


def test_cost_does_not_grow_with_depth() -> None:
    def nodes(layers: int) -> int:
        return sum(1 for _ in params(llama(num_hidden_layers=layers))["params/total"].walk())

    assert nodes(10_000) == nodes(10)


def test_command() -> None:
    outcome = run_line("params mixtral-8x7b --json")
    assert outcome.status == 0
    assert outcome.values["params/total"] == 46_702_792_704
    assert outcome.data["units"]["params/total"] == "param"
    assert any("tied" in note for note in run_line("params gpt2 --json").data["notes"])


def test_fuyu_projects_patches_without_a_tower() -> None:
    """adept/fuyu-8b: 9,408,238,592 elements in its published file."""
    from napkin.counting.vision import flops_of, params_of
    from tests.conftest import model_of

    fields = {
        "hidden_size": 4096, "image_size": 300, "intermediate_size": 16384, "max_position_embeddings": 16384,
        "model_type": "fuyu", "num_attention_heads": 64, "num_channels": 3, "num_hidden_layers": 36, "patch_size": 30,
        "tie_word_embeddings": False, "vocab_size": 262144,
    }  # fmt: skip
    whole = model_of(fields)
    vision, total = params_of(whole)
    assert (vision.value, total.value) == (30 * 30 * 3 * 4096 + 4096, 9_408_238_592)
    assert flops_of(whole, 0)[0].value == 2 * 100 * 2700 * 4096
