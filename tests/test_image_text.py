"""Language models that only image-text models have: parameters and forward FLOPs of 2 × 24 tokens, counted on the
classes of transformers 5.23.0 on torch's meta device with eager attention (FlopCounterMode)."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.counting import flops
from napkin.counting.params import params
from tests.conftest import model_of

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
