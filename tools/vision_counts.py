"""Parameters of real multimodal classes and FLOPs of an image, counted by torch and compared with what napkin says.

Small configs are built on the CPU and one image runs through the tower and the projector, as torch.utils.flop_counter
sees it. No download. What the classes save for backward is compared by vision_bytes.py.

    hf/bin/python tools/vision_counts.py                  every type
    hf/bin/python tools/vision_counts.py step3p7 blip     these
    hf/bin/python tools/vision_counts.py --write          keep the result for the tests
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]

import torch  # noqa: E402
import transformers  # noqa: E402
from reference_class import reading  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from napkin.counting.vision import flops_of, params_of  # noqa: E402

transformers.logging.set_verbosity_error()
CASES = ROOT / "tests" / "data" / "vision_counts.json"
TEXT = {
    "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96, "vocab_size": 99, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512,
}  # fmt: skip
BARE = {name: TEXT[name] for name in [*TEXT][:5]}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
VIT = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 3}
SQUARE = {**VIT, "image_size": 56, "patch_size": 14}
QWEN = {"depth": 3, "hidden_size": 48, "intermediate_size": 80, "num_heads": 3, "patch_size": 4}
OPT = {
    "model_type": "opt", "hidden_size": 64, "word_embed_proj_dim": 64, "num_hidden_layers": 2, "ffn_dim": 96,
    "vocab_size": 99, "num_attention_heads": 4, "max_position_embeddings": 64,
}  # fmt: skip
OF_BART = {
    "model_type": "bart", "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "vocab_size": 99,
    "max_position_embeddings": 64,
}  # fmt: skip
QFORMER = {
    "hidden_size": 32, "num_hidden_layers": 5, "num_attention_heads": 4, "intermediate_size": 72, "vocab_size": 77,
    "max_position_embeddings": 20, "cross_attention_frequency": 2,
}  # fmt: skip


def rotary(*sections: int) -> dict[str, Any]:
    """Return the rotary positions of text, of which images have three."""
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": list(sections)}}


class Seen(NamedTuple):
    """A config, the tokens that an image of it makes (0: as it says), and how its class sees one (`_held`: napkin
    counts the parameters only)."""

    fields: dict[str, Any]
    sees: Callable[[Any], object]
    tokens: int = 0


def pixels(side: int = 56) -> torch.Tensor:
    return torch.zeros(1, 3, side, side)


def patches(elements: int, grid: str = "image_grid_thw", size: tuple[int, ...] = (1, 8, 12)) -> Callable[[Any], object]:
    """Return how a class sees one image whose patches lie in a row."""
    count = size[-1] * size[-2]
    given = {"pixel_values": torch.zeros(count, elements), grid: torch.tensor([size])}
    return lambda model: getattr(model, "model", model).get_image_features(**given)


def _held(model: Any) -> None:
    """See nothing."""


def _git(model: Any) -> object:
    return model.git.visual_projection(model.git.image_encoder(pixel_values=pixels()).last_hidden_state)


def _instructed(model: Any) -> object:
    seen, none = model.vision_model(pixel_values=pixels())[0], torch.zeros(1, 0, dtype=torch.long)
    queries = {"query_embeds": model.query_tokens, "attention_mask": torch.ones(1, model.query_tokens.shape[1])}
    return model.language_projection(model.qformer(input_ids=none, encoder_hidden_states=seen, **queries)[0])


def _idefics2(model: Any) -> object:
    mask = torch.ones(1, 4, 4, dtype=torch.bool)
    seen = model.model.vision_model(pixel_values=pixels(), patch_attention_mask=mask).last_hidden_state
    return model.model.connector(seen, attention_mask=torch.ones(1, 16))


def _kosmos(model: Any) -> object:
    seen = model.vision_model(pixel_values=pixels())[0]
    return model.image_to_text_projection(model.vision_model.model.post_layernorm(seen))


LATENTS = {
    "hidden_size": 64, "resampler_n_latents": 5, "resampler_depth": 2, "resampler_n_heads": 4,
    "resampler_head_dim": 12, "num_key_value_heads": 2,
}  # fmt: skip
MUSE = {**VIT, "patch_size": 4, "pos_emb_height": 4, "pos_emb_width": 4, "merge_size": 2}
RADIO = {
    "model_type": "radio", "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 3, "mlp_ratio": 2.0,
    "patch_size": 8, "max_img_size": 64, "image_size": 64, "num_cls_tokens": 2, "num_registers": 3,
    "video_temporal_patch_size": 2,
}  # fmt: skip
HYBRID = {**TEXT, "model_type": "nemotron_h", "hybrid_override_pattern": "*-"}
QUERIES = {"num_query_tokens": 6, "text_config": OPT, "vision_config": SQUARE, "qformer_config": QFORMER}
INDEXED = {"indexer_n_heads": 4, "indexer_head_dim": 16, "indexer_kv_heads": 1, "indexer_budget": 16}
TYPES: dict[str, Seen] = {
    "fuyu": Seen(
        {"image_size": 60, "patch_size": 12, "text_config": BARE},
        lambda model: model.model.get_image_features(torch.zeros(1, 25, 432)),
    ),
    "modernvbert": Seen(
        {"pixel_shuffle_factor": 2, "text_config": {**BARE, "pad_token_id": 0},
         "vision_config": {**SQUARE, "model_type": "siglip_vision_model", "vision_use_head": False}},
        lambda model: model.model.get_image_features(pixels()[None]),
    ),
    "florence2": Seen(
        {"text_config": OF_BART,
         "vision_config": {"depths": [1, 2], "patch_size": [7, 3], "patch_stride": [4, 2], "patch_padding": [3, 1],
                           "patch_prenorm": [False, True], "embed_dim": [16, 32], "num_heads": [2, 4],
                           "num_groups": [2, 4], "projection_dim": 64, "qkv_bias": False}}, _held,
    ),
    "got_ocr2": Seen(
        {"text_config": {**TEXT, "model_type": "qwen2"},
         "vision_config": {"hidden_size": 48, "num_attention_heads": 3, "num_hidden_layers": 4, "image_size": 256,
                           "global_attn_indexes": [1, 3], "window_size": 5, "mlp_dim": 80, "output_channels": 24}},
        _held,
    ),
    "vision-encoder-decoder": Seen(
        {"encoder": {"model_type": "donut-swin", "embed_dim": 16, "depths": [1, 2], "num_heads": [2, 4],
                     "window_size": 5, "image_size": [64, 96]},
         "decoder": {"model_type": "trocr", "d_model": 64, "decoder_layers": 2, "decoder_attention_heads": 4,
                     "decoder_ffn_dim": 96, "vocab_size": 99, "max_position_embeddings": 64, "is_decoder": True,
                     "add_cross_attention": True}}, _held,
    ),
    "pix2struct": Seen(
        {"text_config": {"hidden_size": 64, "num_layers": 2, "num_heads": 4, "d_ff": 96, "d_kv": 16, "vocab_size": 99},
         "vision_config": {"hidden_size": 64, "d_ff": 80, "d_kv": 10, "num_hidden_layers": 2,
                           "num_attention_heads": 4, "seq_len": 100, "patch_embed_hidden_size": 300}}, _held,
    ),
    "molmo2": Seen(
        {"text_config": TEXT,
         "vision_config": {**VIT, "num_key_value_heads": 3, "head_dim": 10, "num_position_embeddings": 16},
         "adapter_config": {"vision_feature_layer": [3, 1], "hidden_size": 48, "num_attention_heads": 4,
                            "num_key_value_heads": 2, "head_dim": 12, "intermediate_size": 70, "text_hidden_size": 64,
                            "mlp_bias": True}}, _held,
    ),
    "lfm3_vl": Seen(
        {"text_config": {**TEXT, "model_type": "lfm2", "layer_types": ["conv", "full_attention"]},
         "projector_hidden_size": 50,
         "vision_config": {"hidden_size": 48, "intermediate_size": 70, "num_attention_heads": 4,
                           "num_key_value_heads": 2, "num_hidden_layers": 3, "conv_kernel_size": 5,
                           "layer_types": ["conv", "full_attention", "conv"]}}, _held,
    ),
    "minicpmv4_6": Seen(
        {"text_config": {**TEXT, "model_type": "qwen3_5_text", "layer_types": ["linear_attention", "full_attention"]},
         "insert_layer_id": 1, "merger_times": 2,
         "vision_config": {**VIT, "image_size": 64, "patch_size": 8, "insert_layer_id": 1}}, _held,
    ),
    "video_llava": Seen(
        {"text_config": {**TEXT, "model_type": "llama"},
         "vision_config": {**SQUARE, "model_type": "clip_vision_model"}},
        lambda model: model.model.get_image_features(pixels()),
    ),
    "blip": Seen(
        {"text_config": {k: TEXT[k] for k in [*TEXT][:5]}, "vision_config": SQUARE},
        lambda model: model.vision_model(pixel_values=pixels()),
    ),
    "git": Seen({**{k: TEXT[k] for k in [*TEXT][:5]}, "num_image_with_embedding": 3, "vision_config": SQUARE}, _git),
    "cosmos3_edge": Seen(
        {"projector_hidden_size": 112, "text_config": {**TEXT, **rotary(2, 3, 3)},
         "vision_config": {**VIT, "patch_size": 4, "num_patches": 64}},
        patches(48), 24,
    ),
    "ernie4_5_vl_moe": Seen(
        {"text_config": {**TEXT, "moe_intermediate_size": [32, 16], "moe_num_experts": 4, "moe_k": 2,
                         "moe_num_shared_experts": 1, **rotary(3, 3, 2)}, "vision_config": QWEN},
        patches(48), 24,
    ),
    "muse_glimmer": Seen(
        {"out_hidden_size": 192, "projector_hidden_size": 112, "text_config": TEXT, "vision_config": MUSE},
        patches(96), 24,
    ),
    "step3p7": Seen(
        {"text_config": {**TEXT, **EXPERTS, "share_expert_dim": 24},
         "vision_config": {**SQUARE, "image_size": 64, "patch_size": 8}},
        lambda model: model.model.get_image_features(pixels(64)),
    ),
    "nemotron_h_omni": Seen(
        {"projector_hidden_size": 112, "vision_hidden_size": 48, "text_config": HYBRID, "vision_config": RADIO},
        patches(192, "image_grid_hw", (8, 8)),
    ),
    "cohere_compass": Seen(
        {"tie_word_embeddings": True,
         "text_config": {**TEXT, "layer_types": ["full_attention"] * 2,
                         "rope_parameters": {"full_attention": rotary(2, 3, 3)["rope_parameters"]}},
         "vision_config": {**QWEN, "out_hidden_size": 64, "num_position_embeddings": 64,
                           "deepstack_visual_indexes": [0, 1]}},
        patches(96), 24,
    ),
    "qwen4_exp": Seen(
        {"text_config": {**{k: v for k, v in TEXT.items() if k != "intermediate_size"}, **EXPERTS, **INDEXED,
                         "indexer_compress_ratio": 2, "shared_expert_intermediate_size": 24},
         "vision_config": {**QWEN, "out_hidden_size": 64, "num_position_embeddings": 64}},
        patches(96), 24,
    ),
    "blip-2": Seen(QUERIES, lambda model: model.get_image_features(pixel_values=pixels())),
    "instructblip": Seen(QUERIES, _instructed),
    "instructblipvideo": Seen(QUERIES, _instructed),
    "aria": Seen(
        {"text_config": {**TEXT, "model_type": "aria_text", "moe_num_experts": 4, "moe_topk": 2,
                         "moe_num_shared_experts": 1},
         "vision_config": {**SQUARE, "model_type": "idefics3_vision"}, "projector_patch_to_query_dict": {"16": 6}},
        lambda model: model.model.get_image_features(pixels(), pixel_mask=torch.ones(1, 56, 56, dtype=torch.bool)),
    ),
    "idefics2": Seen(
        {"text_config": {**TEXT, "model_type": "mistral"}, "vision_config": SQUARE, "perceiver_config": LATENTS},
        _idefics2,
    ),
    "kosmos-2": Seen(
        {"latent_query_num": 6, "vision_config": SQUARE,
         "text_config": {"embed_dim": 64, "layers": 2, "attention_heads": 4, "ffn_dim": 96, "vocab_size": 99}},
        _kosmos,
    ),
    "t5gemma2": Seen(
        {"encoder": {"mm_tokens_per_image": 4, "text_config": TEXT,
                     "vision_config": {**SQUARE, "model_type": "siglip_vision_model", "vision_use_head": False}},
         "decoder": TEXT, "vocab_size": 99},
        lambda model: model.model.encoder.get_image_features(pixel_values=pixels()),
    ),
}  # fmt: skip


def counted(model_type: str, seen: Seen) -> tuple[int, int]:
    """Return the class's parameters, and the FLOPs of an image forward."""
    config = transformers.AutoConfig.for_model(model_type, **json.loads(json.dumps(seen.fields)))
    masked = type(config) in transformers.MODEL_FOR_MASKED_LM_MAPPING
    made = transformers.AutoModelForMaskedLM if masked else transformers.AutoModelForImageTextToText
    model = made.from_config(config, attn_implementation="eager")
    with FlopCounterMode(display=False) as counter:
        seen.sees(model)
    return sum(weight.numel() for weight in model.parameters()), counter.get_total_flops()


def said(model_type: str, seen: Seen) -> tuple[Any, Any]:
    """Return the same as napkin counts it."""
    model = reading({"model_type": model_type, **seen.fields})
    *_, whole = params_of(model)
    terms = flops_of(model, 0, seen.tokens)
    return whole.value, terms[0].value if terms else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("types", nargs="*", help="model types")
    parser.add_argument("--write", action="store_true", help="keep the result for the tests")
    asked = parser.parse_args()
    rows: list[list[Any]] = []
    for model_type in asked.types or TYPES:
        seen = TYPES[model_type]
        mine, theirs = said(model_type, seen), counted(model_type, seen)
        print(f"{model_type}: {'equal' if mine == theirs else f'{mine} of {theirs}'}", flush=True)
        if mine == theirs:
            rows.append([model_type, seen.tokens, *theirs, seen.fields])
    if asked.write:
        about = (
            f"Parameters of whole classes and forward FLOPs of an image, Hugging Face transformers "
            f"{transformers.__version__}, counted by tools/vision_counts.py."
        )
        columns = ["model_type", "tokens", "params", "flops", "config"]
        text = json.dumps({"about": about, "columns": columns})[:-1] + ', "rows": [\n'
        text += ",\n".join(json.dumps(row, separators=(",", ":")) for row in sorted(rows, key=lambda row: str(row[0])))
        CASES.write_text(text + "\n]}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
