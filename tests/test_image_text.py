"""Language models that only image-text models have: parameters and forward FLOPs of 2 × 24 tokens, counted on the
classes of transformers 5.23.0 on torch's meta device with eager attention (FlopCounterMode)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from napkin.counting import flops
from napkin.counting.params import params
from tests.conftest import model_of, run_line

SHAPE = {
    "vocab_size": 99, "hidden_size": 64, "num_hidden_layers": 4, "intermediate_size": 96, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip
KOSMOS = {"vocab_size": 99, "embed_dim": 64, "layers": 3, "ffn_dim": 128, "attention_heads": 4}
HEAD = 99 * 64
"""Of Molmo 2 and Muse Glimmer, the models without the head were run."""


@pytest.mark.parametrize(
    ("fields", "parameters", "forward"),
    [
        ({"model_type": "kosmos_2_text_model", **KOSMOS}, 108_032, 10_930_176),
        ({"model_type": "kosmos_2_5_text_model", **KOSMOS}, 107_776, 10_930_176),
        (
            {"model_type": "molmo2_text", **SHAPE, "additional_vocab_size": 5},
            130_240 + HEAD,
            12_976_128 + 2 * 48 * HEAD,
        ),
        ({"model_type": "muse_glimmer_text", **SHAPE}, 146_688 + HEAD, 14_548_992 + 2 * 48 * HEAD),
        ({"model_type": "git", **SHAPE, "num_hidden_layers": 3}, 166_467, 9_750_528),
        ({"model_type": "chameleon", **SHAPE, "num_hidden_layers": 3}, 105_856, 10_340_352),
    ],
)
def test_counts_are_the_class_s(fields: dict[str, Any], parameters: int, forward: int) -> None:
    if fields["model_type"] in ("git", "chameleon"):
        fields = {name: value for name, value in fields.items() if name != "head_dim"}
    if fields["model_type"] == "git":
        del fields["num_key_value_heads"]
    model = model_of(fields)
    assert params(model)["params/total"].value == parameters
    assert flops.forward(model, flops.works(model, 2, 24)).value == forward


def test_a_model_of_actions_holds_one_of_images_and_text() -> None:
    text = {"model_type": "gemma", **SHAPE}
    held = {"model_type": "paligemma", "text_config": text, "vision_config": {}, "projection_dim": 64}
    inner, outer = model_of(held), model_of({"model_type": "pi0", "vlm_config": held, "dit_config": {}})
    assert params(outer)["params/total"].value == params(inner)["params/total"].value
    assert outer.vision is not None
    assert inner.vision is not None
    assert outer.vision.tokens == inner.vision.tokens == (224 // 16) ** 2


def test_experts_of_images_are_counted_and_idle() -> None:
    """Parameters of the language model of the class's default configuration."""
    fields = {
        "model_type": "ernie4_5_vl_moe_text", "hidden_size": 2560, "num_hidden_layers": 28, "vocab_size": 103424,
    }  # fmt: skip
    counted = params(model_of(fields))
    assert counted["params/total"].value == 28_624_635_776
    images = 27 * 64 * 3 * 512 * 2560
    text = 27 * (64 - 6) * 3 * 1536 * 2560
    assert counted["params/active"].value == 28_624_635_776 - images - text


def _captions(decoder: dict[str, Any]) -> dict[str, Any]:
    both = {"is_decoder": True, "add_cross_attention": True}
    return {"model_type": "vision-encoder-decoder", "encoder": {"model_type": "vit"}, "decoder": {**both, **decoder}}


@pytest.mark.parametrize(
    ("decoder", "parameters"),
    [
        (
            {"model_type": "bert", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
             "intermediate_size": 96, "vocab_size": 99},
            135_971,
        ),
        ({"model_type": "roberta", "num_hidden_layers": 2, "hidden_size": 768}, 58_545_753),
        ({"model_type": "gpt2", "n_layer": 2, "n_embd": 768}, 58_288_896),
        ({"model_type": "trocr", "decoder_layers": 2, "d_model": 1024}, 85_593_088),
        (
            {"model_type": "mbart", "encoder_layers": 1, "decoder_layers": 2, "d_model": 1024,
             "is_encoder_decoder": False},
            86_119_424,
        ),
    ],
)  # fmt: skip
def test_decoders_behind_an_image_encoder_hold_their_cross_attention(decoder: dict[str, Any], parameters: int) -> None:
    """Parameters of `decoder` in VisionEncoderDecoderModel of transformers 5.23.0."""
    assert params(model_of(_captions(decoder)))["params/total"].value == parameters


def test_cross_attention_is_allocated_and_not_run() -> None:
    fields = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 99}
    without, beside = model_of(fields), model_of({**fields, "add_cross_attention": True})
    cross = 4 * 64 * 64 + 4 * 64 + 2 * 64  # four matrices with biases, a norm
    both = [params(model)["params/total"].value for model in (without, beside)]
    assert both[1] - both[0] == 2 * cross
    assert len({flops.forward(model, flops.works(model, 2, 24)).value for model in (without, beside)}) == 1


def test_adapters_of_evolla_follow_its_layers() -> None:
    """An adapter holds four matrices of h × h with biases, an MLP between h and 4 h, three norms' vectors and gates."""
    fields = {"model_type": "evolla", **SHAPE, "num_hidden_layers": 6, "aligner_num_add_layers": 3}
    del fields["head_dim"]
    hidden = 64
    adapter = 4 * hidden * (hidden + 1) + 8 * hidden * hidden + 3 * hidden + 2
    totals = [params(model_of({**fields, "aligner_num_add_layers": n}))["params/total"].value for n in (3, 6)]
    assert totals[1] - totals[0] == 3 * adapter


DIFFUSION = {
    "model_type": "diffusion_gemma_text", **SHAPE, "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_experts": 5, "top_k_experts": 2, "moe_intermediate_size": 24, "global_head_dim": 32,
}  # fmt: skip


def test_both_passes_of_diffusion_gemma_share_their_weights() -> None:
    """Without sharing, the encoder has all weights again but those that condition the canvas."""
    once, twice = (model_of({**DIFFUSION, "tie_word_embeddings": tied}) for tied in (True, False))
    shared, apart = (params(model)["params/total"].value for model in (once, twice))
    hidden, inner, rows = 64, 96, 99
    conditioning = 3 * hidden * inner + hidden
    head = rows * hidden
    assert apart - shared == (shared - conditioning) + head


def test_the_canvas_sees_the_prompt() -> None:
    """A token of the canvas has scores with each of the prompt and of the canvas, in every layer."""
    model = model_of({**DIFFUSION, "tie_word_embeddings": True})
    work = [flops.forward(model, flops.works(model, 1, prompt, target=8)).value for prompt in (16, 32, 48)]
    squares = 16 * 16 * 2  # second difference of the prompt's own scores, s² for s of 16, 32, 48
    each_layer = [4 * 4 * size for size in (16, 32, 16, 32)]  # products of queries and keys, weights and values
    assert (work[2] - work[1]) - (work[1] - work[0]) == squares * sum(each_layer)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"model_type": "idefics", "hidden_size": 64, "num_hidden_layers": 2}, "IdeficsForVisionText2Text"),
        ({"model_type": "evolla", "hidden_size": 64, "num_hidden_layers": 2}, "EvollaForProteinText2Text"),
        (
            {"model_type": "pix2struct_text_model", "hidden_size": 64, "num_layers": 2, "num_heads": 4, "d_kv": 16},
            "Pix2StructTextModel",
        ),
    ],
)
def test_published_files_name_a_class_with_a_head(fields: dict[str, Any], named: str) -> None:
    totals = [params(model_of(one))["params/total"].value for one in (fields, {**fields, "architectures": [named]})]
    assert totals[0] == totals[1]


def test_screens_show_what_images_take_in_addition() -> None:
    """419,816,304 = 4,300,079,472 of gemma-3-4b's checkpoint less the 3,880,263,168 of its language model."""
    counted = run_line("params gemma3-4b").out
    assert "4,300,079,472 with vision" in counted
    assert re.search(r"vision tower +419\.8 M .* in addition", counted)
    assert re.search(r"vision tower .* in addition", run_line("flops gemma3-4b --images 1").out)
    assert "vision tower" not in run_line("flops gemma3-4b").out


@pytest.mark.parametrize(
    ("model", "modules"),
    [
        # projection 2h → h, gated queries, keys and values, output, gated MLP, five norms, norms of queries and keys
        (
            "qwen3.5-9b",
            2 * 4096**2 + 2 * 4096**2 + 2 * 4096 * 1024 + 4096**2 + 3 * 4096 * 12288 + 5 * 4096 + 2 * 256,
        ),
        ("qwen3.6-27b", 2 * 5120**2 + 3 * 5120 * 6144 + 2 * 5120 * 1024 + 3 * 5120 * 17408 + 5 * 5120 + 2 * 256),
    ],
)
def test_multi_token_prediction_of_gated_delta_networks(model: str, modules: int) -> None:
    plain, with_them = (
        json.loads(run_line(f"params {model} {more} --json").out)["values"]["params/total"] for more in ("", "--mtp")
    )
    assert with_them - plain == modules
