"""Small multimodal configs, and what their classes are called with (vision_bytes.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "intermediate_size": 96, "vocab_size": 99,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}  # fmt: skip
QWEN = {**LLAMA, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}}
VIT = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 3}
LENGTH = 96


class Case(NamedTuple):
    """A config, and the tokens that an image of it makes (0: as the config says).

    given  (sequences, length, images in each) → what the class is called with next to ids and labels
    alone  the class asks for the places of images alone, not of videos as well
    """

    name: str
    fields: dict[str, Any]
    given: Callable[[int, int, int], dict[str, Any]]
    tokens: int = 0
    alone: bool = True
    length: int = LENGTH

    @property
    def written(self) -> dict[str, Any]:
        return {"config": self.fields, "tokens": self.tokens, "length": self.length}


def pictures(side: int) -> Callable[[int, int, int], dict[str, Any]]:
    """Return images of one size."""

    def given(sequences: int, length: int, images: int) -> dict[str, Any]:
        return {"pixel_values": torch.zeros(sequences * images, 3, side, side, device="meta")}

    return given


def patches(elements: int, rows: int, columns: int, mrope: bool = True) -> Callable[[int, int, int], dict[str, Any]]:
    """Return images as rows of patches (Qwen-VL's)."""

    def given(sequences: int, length: int, images: int) -> dict[str, Any]:
        many = sequences * images
        found = {
            "pixel_values": torch.zeros(many * rows * columns, elements, device="meta"),
            "image_grid_thw": torch.tensor([[1, rows, columns]] * many, device="cpu"),
        }
        if mrope:
            found["position_ids"] = torch.zeros(3, sequences, length, dtype=torch.long, device="meta")
        return found

    return given


def whole(kind: str, text: dict[str, Any], vision: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model_type": kind, "text_config": text, "vision_config": vision, "tie_word_embeddings": False, **more}


_CLIP = {"model_type": "clip_vision_model", **VIT, "image_size": 28, "patch_size": 7}
_SIGLIP = {"model_type": "siglip_vision_model", **VIT, "image_size": 28, "patch_size": 7, "vision_use_head": False}
_QWEN2 = {"depth": 4, "embed_dim": 48, "num_heads": 3, "hidden_size": 64, "mlp_ratio": 2, "patch_size": 7}
_QWEN2_5 = {
    "depth": 4, "hidden_size": 48, "num_heads": 3, "out_hidden_size": 64, "intermediate_size": 80, "patch_size": 7,
    "window_size": 28, "fullatt_block_indexes": [1, 3],
}  # fmt: skip
_CASES = (
    Case("llava", whole("llava", LLAMA, _CLIP), pictures(28)),
    Case("llava-siglip", whole("llava", LLAMA, _SIGLIP, vision_feature_select_strategy="full"), pictures(28)),
    Case(
        "gemma3",
        whole("gemma3", {**LLAMA, "model_type": "gemma3_text"}, _SIGLIP, mm_tokens_per_image=4, image_token_id=7),
        pictures(28),
    ),
    Case(
        "paligemma",
        whole("paligemma", {**LLAMA, "model_type": "gemma"}, {**_SIGLIP, "projection_dim": 64}, image_token_id=7),
        pictures(28),
    ),
    Case(
        "internvl",
        whole(
            "internvl", LLAMA, {**VIT, "model_type": "internvl_vision", "image_size": [28, 28], "patch_size": [7, 7]}
        ),
        pictures(28),
    ),
    Case(
        "qwen2_vl",
        whole("qwen2_vl", {**QWEN, "model_type": "qwen2_vl_text"}, _QWEN2, image_token_id=7),
        patches(2 * 3 * 49, 4, 8),
        8,
        False,
    ),
    Case(
        "qwen2_5_vl",
        whole("qwen2_5_vl", {**QWEN, "model_type": "qwen2_5_vl_text"}, _QWEN2_5, image_token_id=7),
        patches(2 * 3 * 49, 8, 8),
        16,
        False,
    ),
)  # fmt: skip
CONFIGS: dict[str, Case] = {case.name: case for case in _CASES}
