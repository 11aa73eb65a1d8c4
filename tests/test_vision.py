"""Vision towers and projectors: parameters and FLOPs are those of transformers' classes, counted on the meta device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from napkin.architectures import build
from napkin.counting.params import params
from napkin.counting.vision import flops_of, params_of
from napkin.inputs.model_file import load_config, preset_config
from napkin.inputs.presets import preset
from napkin.record import replace
from tests.conftest import ROOT, Napkin, model_of, run_line

SAVED: dict[str, dict[str, Any]] = dict(
    json.loads(Path(ROOT, "tests/data/default_configs.json").read_text(encoding="utf-8"))["rows"]
)
TEXT = {
    "model_type": "qwen2_vl_text",
    "hidden_size": 96,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}
SMALL = {
    "model_type": "qwen2_vl",
    "text_config": TEXT,
    "vision_config": {"depth": 3, "embed_dim": 64, "num_heads": 4, "hidden_size": 96, "mlp_ratio": 3},
}


@pytest.mark.parametrize(
    ("model_type", "total"),
    [
        ("cohere2_vision", 35_651_000_064),
        ("cosmos3_omni", 12_616_410_352),
        ("deepseek_vl", 6_720_158_976),
        ("lighton_ocr", 1_005_647_872),
        ("vipllava", 7_079_690_240),
        ("gemma3", 2_723_312_896),
        ("hyperclovax_vision_v2", 9_705_315_072),
        ("idefics3", 6_909_685_760),
        ("internvl", 11_765_025_792),
        ("llava", 7_062_902_784),
        ("mllama", 10_642_941_475),
        ("idefics", 12_670_461_504),
        ("llava_next", 7_062_906_880),
        ("llava_onevision", 12_469_102_112),
        ("mistral3", 23_340_272_640),
        ("paligemma", 2_910_390_528),
        ("qwen2_5_vl", 75_789_228_800),
        ("qwen2_vl", 73_381_962_752),
        ("qwen3_5", 9_407_453_936),
        ("qwen3_5_moe", 35_114_261_360),
        ("qwen3_vl", 12_616_410_352),
        ("qwen3_vl_moe", 14_052_070_640),
        ("smolvlm", 6_909_685_760),
        ("exaone4_5", 12_100_938_496),
        ("glm46v", 10_292_777_472),
        ("glm4v", 10_292_777_472),
        ("glm4v_moe", 104_372_866_880),
        ("glm_ocr", 807_479_808),
        ("glm5_next", 313_786_889_214),
        ("inkling2", 594_046_172_160),
        ("mistral_large4", 1_051_822_421_536),
        ("kimi_k25", 670_570_869_232),
        ("lfm2_vl", 2_812_857_088),
        ("llama4", 108_225_039_360),
        ("minimax_m3_vl", 448_052_008_448),
        ("ovis2", 11_778_684_918),
        ("paddleocr_vl", 799_695_472),
        ("qianfan_ocr", 12_387_044_352),
        ("video_llama_3", 12_155_424_000),
    ],
)
def test_the_whole_class_s_parameters_are_counted(model_type: str, total: int) -> None:
    vision, whole = params_of(model_of(SAVED[model_type]))
    assert whole.value == total
    assert vision.value == total - params(model_of(SAVED[model_type]))["params/total"].value


CROSSED: dict[str, dict[str, Any]] = {
    "mllama": {
        "model_type": "mllama",
        "text_config": {
            "model_type": "mllama_text_model", "num_hidden_layers": 5, "cross_attention_layers": [3],
            "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
            "vocab_size": 99,
        },
        "vision_config": {
            "num_hidden_layers": 5, "num_global_layers": 2, "image_size": 112, "hidden_size": 64, "attention_heads": 4,
            "intermediate_size": 96, "vision_output_dim": 192, "intermediate_layers_indices": [1, 3],
        },
    },
    "idefics": {
        "model_type": "idefics", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96,
        "num_attention_heads": 4, "vocab_size": 99,
        "vision_config": {
            "num_hidden_layers": 3, "embed_dim": 48, "num_attention_heads": 3, "intermediate_size": 80,
            "image_size": 28, "patch_size": 7,
        },
    },
}  # fmt: skip
"""Of models whose layers attend to images."""


@pytest.mark.parametrize(
    ("model_type", "forward"),
    # counted by torch in the tower and the projector, without the mask of 4 tiles, a product of 288 × 1 × 288
    [("mllama", 290_064_384 - 2 * 288**2), ("idefics", 2_115_648)],
)
def test_towers_that_layers_attend_to_are_their_classes(model_type: str, forward: int) -> None:
    once, *_ = flops_of(model_of(CROSSED[model_type]), 0)
    assert once.value == forward
    answer = run_line(["memory", "-", "--images", "1", "--seq", "64"], stdin=json.dumps(CROSSED[model_type]))
    assert answer.status == 3
    assert "attend to images" in answer.err


@pytest.mark.parametrize(
    ("model_type", "block", "says"),
    [
        ("minimax_m3_vl", "vision_config", "clip_vision_model"),  # as MiniMax-M3 is published
        ("kimi_k25", "vision_config", ""),  # as Kimi K2.6 is
        ("exaone4_5", "text_config", "exaone4_5_text"),  # as EXAONE 4.5 is
    ],
)
def test_what_a_class_does_not_read_of_a_block_s_model_type_changes_nothing(
    model_type: str, block: str, says: str
) -> None:
    usual = SAVED[model_type]
    published = {**usual, block: {**usual[block], "model_type": says}}
    assert params_of(model_of(published))[1].value == params_of(model_of(usual))[1].value


def test_qwen2_vl_by_hand() -> None:
    patches = 3 * 2 * 14 * 14 * 64
    layer = 4 * 64 * 64 + 4 * 64 + 2 * 64 * 192 + 192 + 64 + 4 * 64
    merger = 2 * 64 + 256 * 256 + 256 + 256 * 96 + 96
    vision, _ = params_of(model_of(SMALL))
    assert vision.value == patches + 3 * layer + merger


@pytest.mark.parametrize(
    ("changes", "params", "forward"),
    [
        ({}, 167_413_760, 44_680_740_864 - 2 * 16 * 144 * 768),
        (
            {"hidden_size": 96, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 6,
             "num_key_value_heads": 6, "head_dim": 32, "patch_size": 8, "position_embedding_size": 333,
             "use_clipped_linears": True, "standardize": True},
            None, None,
        ),
    ],
)  # fmt: skip
def test_gemma4_s_tower_is_its_class_s(changes: dict[str, Any], params: int | None, forward: int | None) -> None:
    """Parameters of vision_tower and embed_vision, and FLOPs of an image of 16 tokens without the product that pools;
    of the second by hand: two tables of 333 positions, norms around both blocks, of queries and of keys."""
    text = {**SAVED["gemma4"]["text_config"], "hidden_size": 64}
    model = model_of({"model_type": "gemma4", "text_config": text, "vision_config": changes})
    vision, _ = params_of(model)
    if params is None:
        layer = 4 * 96 * 192 + 3 * 96 * 80 + 4 * 96 + 2 * 32
        params = 3 * 64 * 96 + 2 * 333 * 96 + 2 * layer + 96 * 64
    assert vision.value == params
    once, _ = flops_of(model, 0, 16)
    assert forward in (None, once.value)


# forward FLOPs that torch's FlopCounterMode counts in get_image_features with eager attention
@pytest.mark.parametrize(
    ("model_type", "changes", "forward"),
    [
        ("llava", {}, 406_077_407_232),
        ("gemma3", {"vision_use_head": False, "image_size": 896, "patch_size": 14}, 1_318_865_338_368),
        ("paligemma", {}, 213_551_677_440),
        ("internvl", {}, 740_772_904_960),
    ],
)
def test_flops_of_an_image_are_the_class_s(model_type: str, changes: dict[str, Any], forward: int) -> None:
    fields = SAVED[model_type]
    model = model_of({**fields, "vision_config": {**fields["vision_config"], **changes}})
    once, each = flops_of(model, 0)
    assert once.value == forward
    assert 2 * forward < each.value < 3 * forward  # pixels need no gradient


def test_tokens_of_an_image_are_an_option_where_its_size_decides() -> None:
    text = json.dumps(SMALL)
    tokens = 16  # of 2 × 2 patches each
    n, h = 4 * tokens, 64
    forward = n * 2 * 3 * 2 * 14 * 14 * h
    forward += 3 * n * (2 * 4 * h * h + 2 * 2 * h * 192 + 2 * 2 * n * h)
    forward += tokens * 2 * (256 * 256 + 256 * 96)
    line = ["flops", "-", "--seq", "64", "--image-tokens", "16", "--images", "3", "--batch", "2", "--json"]
    values = run_line(line, stdin=text).values
    assert values["flops/vision/forward"] == forward
    assert values["flops/vision"] == 6 * values["flops/vision/per_image"]
    assert run_line(["flops", "-", "--seq", "64", "--images", "3"], stdin=text).status == 2  # their size is not known


def test_a_step_times_the_tower_and_its_projector() -> None:
    """2 sequences of 3 images, each of 64 patches and 16 tokens: q, k and v, attention over all pairs, the first linear
    layer over squares of patches."""
    asked = ("--seq", "64", "--image-tokens", "16", "--images", "3", "--micro-batch", "2", "--hardware", "h100")
    terms = run_line(["step", "-", *asked, "--explain", "--json"], stdin=json.dumps(SMALL)).data["terms"]
    assert terms["tower/vision/qkv/forward/flops"]["value"] == 6 * 64 * 2 * 64 * 3 * 64
    assert terms["tower/vision/attention/flops"]["value"] == 6 * 64 * 64 * 2 * (64 + 64)
    assert terms["projector/merger_1/forward/flops"]["value"] == 6 * 16 * 2 * 256 * 256


def test_a_model_without_eyes_takes_no_images() -> None:
    assert run_line("flops llama3-8b --seq 64 --images 1").status == 2


def test_params_shows_both_totals_and_the_totals_stay_the_language_model_s() -> None:
    answer = run_line(["params", "-", "--json"], stdin=json.dumps(SMALL))
    values = answer.values
    assert values["params/total_with_vision"] == values["params/total"] + values["params/vision"]
    assert any("params/vision" in note for note in answer.data["notes"])


def test_a_tower_that_cannot_be_read_is_left_out_with_the_reason() -> None:
    fields = {
        "cross_layer_interval": 1, "hidden_size": 64, "intermediate_size": 96, "model_type": "idefics",
        "num_attention_heads": 4, "num_hidden_layers": 2, "use_resampler": True, "vocab_size": 99,
        "vision_config": {"embed_dim": 48, "num_attention_heads": 4, "num_hidden_layers": 2},
    }  # fmt: skip
    answer = run_line(["params", "-", "--json"], stdin=json.dumps(fields))
    assert answer.status == 0
    assert "params/vision" not in answer.values
    assert any("use_resampler" in note for note in answer.data["notes"])


def test_a_tower_that_no_class_takes_is_an_error() -> None:
    fields = {**SMALL, "vision_config": {**SMALL["vision_config"], "num_heads": 5}}  # type: ignore[dict-item]
    answer = run_line(["params", "-", "--json"], stdin=json.dumps(fields))
    assert answer.status == 2
    assert "num_heads" in answer.err


@pytest.mark.parametrize(("heads", "tp"), [(4, 2), (6, 2), (3, 2)])
def test_tensor_parallelism_divides_the_heads_of_the_tower(heads: int, tp: int) -> None:
    fields = {**SMALL, "vision_config": {**SMALL["vision_config"], "num_heads": heads, "embed_dim": 96}}  # type: ignore[dict-item]
    line = ["memory", "-", "--gpus", "8", "--hardware", "h100", "--seq", "64", "--tp", str(tp)]
    outcome = run_line(line, stdin=json.dumps(fields))
    assert outcome.status == (0 if heads % tp == 0 else 2)
    if outcome.status:
        assert f"attention heads of the vision tower ({heads})" in outcome.err


@pytest.mark.parametrize("value", [None, [], {"a": 1}, 3, "resnet", 1e300, True])
@pytest.mark.parametrize("field", ["model_type", "depth", "embed_dim", "patch_size", "spatial_merge_size", "mlp_ratio"])
def test_hostile_vision_fields_never_crash(field: str, value: object) -> None:
    fields = {**SMALL, "vision_config": {**SMALL["vision_config"], field: value}}  # type: ignore[dict-item]
    assert run_line(["params", "-", "--json"], stdin=json.dumps(fields)).status in (0, 2, 3)


QWEN2_5_VL = {
    "depth": 32, "hidden_act": "silu", "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "in_chans": 3,
    "patch_size": 14, "spatial_merge_size": 2, "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31],
    "temporal_patch_size": 2,
}  # fmt: skip
SO400M = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16,
    "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("published", "total"),
    [
        (
            {
                "model_type": "qwen2_5_vl", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
                "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
                "tie_word_embeddings": False, "vision_config": {**QWEN2_5_VL, "out_hidden_size": 3584},
            },
            8_292_166_656,
        ),
        (
            {
                "model_type": "qwen2_vl", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
                "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
                "tie_word_embeddings": False,
                "vision_config": {
                    "depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "num_heads": 16, "in_chans": 3,
                    "hidden_size": 3584, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
                },
            },
            8_291_375_616,
        ),
        (
            {
                "model_type": "llava",
                "text_config": {
                    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
                    "num_attention_heads": 32, "vocab_size": 32064, "tie_word_embeddings": False,
                },
                "vision_config": {
                    "model_type": "clip_vision_model", "hidden_size": 1024, "image_size": 336,
                    "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14,
                },
            },
            7_063_427_072,
        ),
        (
            {
                "model_type": "gemma3",
                "text_config": {
                    "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
                    "num_hidden_layers": 34, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
                    "vocab_size": 262208, "sliding_window": 1024,
                },
                "vision_config": {**SO400M, "image_size": 896},
            },
            4_300_079_472,
        ),
        (
            {
                "model_type": "paligemma", "projection_dim": 2048,
                "text_config": {
                    "model_type": "gemma", "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 18,
                    "num_attention_heads": 8, "num_key_value_heads": 1, "vocab_size": 257216,
                },
                "vision_config": SO400M,
            },
            2_923_466_480,
        ),
        (
            {
                "model_type": "llama4", "tie_word_embeddings": False,
                "text_config": {
                    "model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192,
                    "intermediate_size_mlp": 16384, "num_hidden_layers": 48, "num_attention_heads": 40,
                    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 202048, "num_local_experts": 16,
                    "num_experts_per_tok": 1, "interleave_moe_layer_step": 1,
                },
                "vision_config": {
                    "model_type": "llama4_vision_model", "hidden_size": 1408, "image_size": 336,
                    "intermediate_size": 5632, "num_attention_heads": 16, "num_hidden_layers": 34, "patch_size": 14,
                    "vision_output_dim": 4096,
                },
            },
            108_641_793_536,
        ),
    ],
)  # fmt: skip
def test_published_checkpoints_have_as_many_parameters(published: dict[str, Any], total: int) -> None:
    """Parameters of the safetensors files on the hub: of Qwen2.5-VL-7B, Qwen2-VL-7B, LLaVA-1.5-7B, Gemma 3 4B,
    PaliGemma-3B-224 and Llama 4 Scout."""
    _, whole = params_of(model_of(published))
    assert whole.value == total


@pytest.mark.parametrize("command", ["memory", "step"])
def test_tokens_of_an_image_need_an_image(napkin: Napkin, command: str) -> None:
    outcome = napkin(f"{command} qwen2.5-vl-7b --hardware a100 --image-tokens 1000")
    assert (outcome.status, outcome.out) == (2, "")
    assert "--image-tokens has no effect here: there are no images" in outcome.err


def test_an_audio_encoder_that_nothing_counts_is_named() -> None:
    heard = model_of({**preset("qwen2.5-omni-7b").config, "audio_config": {"num_mel_bins": None}})
    assert any(note.endswith("its audio encoder is counted nowhere") for note in heard.notes)
    assert heard.missing == "no audio encoder"
    assert not any("audio" in note for note in build(load_config("qwen2.5-vl-7b")).notes)


@pytest.mark.parametrize(("norm", "biases"), [("layer_norm", 1), ("rms_norm", 0)])
def test_internvl_has_the_norms_that_its_file_states(norm: str, biases: int) -> None:
    """InternViT-6B's are RMS norms, InternViT-300M's layer norms: two in each of 45 layers of 3,200."""
    one = preset("internvl3-38b")
    config = {**one.config, "vision_config": {**one.config["vision_config"], "norm_type": norm}}
    tower, plain = (params_of(build(preset_config(each)))[0].value for each in (replace(one, config=config), one))
    assert tower - plain == biases * 2 * 45 * 3200


def test_kimi_vl_sees_with_moonvit_by_hand() -> None:
    """Parameters of MoonVitPretrainedModel and KimiVLMultiModalProjector (modeling_kimi_vl.py), whose file names its
    position embedding otherwise than Kimi K2.5's."""
    width, inner, layers, rows, text = 48, 80, 3, 8 * 4, 64
    fields = {
        "model_type": "moonvit", "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": 4, "patch_size": 14, "init_pos_emb_height": 8, "init_pos_emb_width": 4,
        "merge_kernel_size": [2, 2],
    }  # fmt: skip
    held = {"model_type": "deepseek_v3", "hidden_size": text, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = model_of({"model_type": "kimi_vl", "text_config": held, "vision_config": fields})
    patches = 3 * 14 * 14 * width + width + rows * width
    attention = width * 3 * width + 3 * width + width * width + width
    each = 4 * width + attention + width * inner + inner + inner * width + width
    wide = 4 * width
    projector = 2 * width + wide * wide + wide + wide * text + text
    assert params_of(model)[0].value == patches + layers * each + 2 * width + projector


def test_an_answer_says_that_other_modalities_are_not_counted() -> None:
    said = {name: run_line(f"params {name}").out for name in ("gemma3n-e2b", "qwen2.5-omni-7b", "llava-1.5-7b")}
    assert "no vision tower" in said["gemma3n-e2b"]
    assert "with vision and audio" in said["qwen2.5-omni-7b"]
    assert "only" not in said["llava-1.5-7b"]
    assert "no audio" not in said["llava-1.5-7b"]
