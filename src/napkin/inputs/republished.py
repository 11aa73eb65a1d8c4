"""Republications of a published model: its name and the format of its weights, `Qwen2.5-7B-Instruct-AWQ`.

The format is what the name states, in the layout that its tool writes by default: groups of 128 in GPTQ, AWQ and
llm-compressor's w4a16, and the head in 16 bits in all of them. A name that states no format states no republication.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from napkin.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_KEPT = {"modules_to_not_convert": ["lm_head"]}
_BITS_4 = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True, **_KEPT}


def _compressed(bits: int, group: int | None) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": "int", "symmetric": True, "group_size": group}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}, **_KEPT}


_FORMATS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    (r"-(?:unsloth-)?bnb-4bit", "nf4-dq", _BITS_4),
    (r"-bnb-8bit", "int8", {"quant_method": "bitsandbytes", "load_in_8bit": True, **_KEPT}),
    (r"(?:-int4)?-awq(?:-int4|-4bit)?", "int4", {"quant_method": "awq", "bits": 4, "group_size": 128, **_KEPT}),
    (r"-gptq-(?:int8|8bit)", "int8", {"quant_method": "gptq", "bits": 8, "group_size": 128, **_KEPT}),
    (r"-gptq(?:-int4|-4bit)?", "int4", {"quant_method": "gptq", "bits": 4, "group_size": 128, **_KEPT}),
    (r"(?:-quantized)?[.-]w4a16", "int4", _compressed(4, 128)),
    (r"(?:-quantized)?[.-]w8a(?:8|16)", "int8", _compressed(8, None)),
    (r"-fp8(?:-(?:dynamic|block|kv))?", "fp8", {"quant_method": "fp8", **_KEPT}),
    (r"-nvfp4", "nvfp4", {"quant_method": "modelopt", "quant_algo": "NVFP4", **_KEPT}),
    (r"-mxfp4", "mxfp4", {"quant_method": "mxfp4", **_KEPT}),
)
"""How a name ends → the format's word, and the quantization_config that its tool writes."""
_OTHERS = {
    r"-(?:i1-)?gguf": "a GGUF repository holds one model in several formats; `serve` takes one: --dtype q4_k_m",
    r"-(?:mlx-)?(?:[348]bit|bf16)|-mlx": "MLX's formats are read by MLX alone",
}
"""How other names end → why they have no one format here."""


@record
class Republished:
    """What a republication's name says.

    base    the name without the format
    word    the format of --quantized; "" for none that napkin reads      fields  its quantization_config
    why     why it has no one format, "" otherwise
    mixed   some modules keep 16 bits, chosen for each model (unsloth's dynamic 4 bits)
    """

    base: str
    word: str
    fields: Mapping[str, Any]
    why: str = ""
    mixed: bool = False


def republished(name: str) -> Republished | None:
    """Return what the end of a name says of its weights' format, or None if it says nothing."""
    plain = name.strip().rstrip("/").replace("_", "-")
    for pattern, word, fields in _FORMATS:
        if found := re.search(f"(?:{pattern})$", plain, re.I):
            return Republished(plain[: found.start()], word, fields, mixed="unsloth" in found[0].lower())
    for pattern, why in _OTHERS.items():
        if found := re.search(f"(?:{pattern})$", plain, re.I):
            return Republished(plain[: found.start()], "", {}, why)
    return None
