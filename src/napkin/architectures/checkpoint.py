"""How a quantized checkpoint stores its weights: config.json's quantization_config → a format and its exceptions.

Field names are those of Hugging Face transformers 5.23.0 (src/transformers/utils/quantization_config.py), of
compressed-tensors (QuantizationConfig) and of NVIDIA ModelOpt's hf_quant_config.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from napkin import formats
from napkin.inputs.load import printable
from napkin.inputs.model import number_in
from napkin.operations.model import Checkpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Fields = Mapping[str, Any]

EXCEPTIONS = ("modules_to_not_convert", "llm_int8_skip_modules", "ignore", "exclude_modules")
"""Fields that list the modules which stay in 16 bits."""
MOST_EXCEPTIONS = 20_000
MOST_REPEATS = 3
"""Repetitions in a pattern; none of a group. More could take for ever to match."""


def checkpoint_of(fields: Fields, unlisted: bool = False) -> Checkpoint:
    """Return how the weights of a file with this quantization_config are stored."""
    method = fields.get("quant_method")
    if fields.get("load_in_8bit") is True or fields.get("load_in_4bit") is True:
        method = "bitsandbytes"  # whatever it states (src/transformers/quantizers/auto.py, from_dict)
    maker = fields.get("producer")
    if method is None and isinstance(maker, dict):  # ModelOpt before it named its method
        method = maker.get("name")
    word = printable(method, 40) if isinstance(method, str) else "an unnamed method"
    read = METHODS.get(word)
    found = read(fields) if read is not None else None
    lists = (fields[field] for field in EXCEPTIONS if isinstance(fields.get(field), list))
    kept = tuple(one for listed in lists for one in listed if isinstance(one, str))
    if found is None or len(kept) > MOST_EXCEPTIONS or not all(map(_is_readable, kept)):
        return Checkpoint(word)
    return Checkpoint(word, *found, kept, unlisted)


def _is_readable(pattern: str) -> bool:
    """Return whether an exception is a path, or an expression that is quick to match."""
    if len(re.findall(r"[*+}]", pattern)) > MOST_REPEATS:
        return False
    if not pattern.startswith("re:"):
        return True
    try:
        re.compile(pattern.removeprefix("re:"))
    except (re.error, OverflowError, RecursionError):
        return False
    return not re.search(r"\)[*+{]", pattern)


def _grouped(fields: Fields) -> tuple[str, float] | None:
    """Return the format of integers with a scale, and a zero point, for each group of weights (-1: for a column)."""
    return _integers(fields.get("bits", 4), fields.get("group_size", 128), zeros=True)


def _integers(bits: object, group: object, *, zeros: bool) -> tuple[str, float] | None:
    bits, group = number_in(bits), number_in(group)
    if not isinstance(bits, int) or not 2 <= bits <= 8 or not isinstance(group, int | None):
        return None
    return f"int{bits}", formats.in_groups(bits, group or 0, bits * zeros)


def _eight_bit_floats(fields: Fields) -> tuple[str, float]:
    """Return 8-bit floats with an fp32 scale for each block where blocks are stated."""
    block = fields.get("weight_block_size")
    sides = [side for side in block or () if isinstance(side, int) and side > 0] if isinstance(block, list) else []
    return "fp8", formats.BYTES["fp8"] + (4 / (sides[0] * sides[1]) if len(sides) == 2 else 0.0)


def _bitsandbytes(fields: Fields) -> tuple[str, float] | None:
    if fields.get("load_in_8bit") or fields.get("_load_in_8bit"):
        return "int8", formats.BYTES["int8"]
    if not (fields.get("load_in_4bit") or fields.get("_load_in_4bit")):
        return None
    word = "nf4-dq" if fields.get("bnb_4bit_use_double_quant") else "nf4"
    return word, formats.QUANTIZED[word]


def _rounded(fields: Fields) -> tuple[str, float] | None:
    """Return the format of AutoRound's weights, which are stored as GPTQ's or AWQ's; None if some layers differ."""
    return None if fields.get("extra_config") else _grouped(fields)


def _hqq(fields: Fields) -> tuple[str, float] | None:
    """Return the format of HQQ's weights (quantization_config.py, HqqConfig): a zero point and a scale of 16 bits for
    each group, the same for all layers."""
    stated = fields.get("quant_config")
    weights = stated.get("weight_quant_params") if isinstance(stated, dict) else None
    if not isinstance(weights, dict):
        return None
    bits, group = number_in(weights.get("nbits")), number_in(weights.get("group_size"))
    if not isinstance(bits, int) or not isinstance(group, int) or not 1 <= bits <= 8:
        return None
    return f"int{bits}", formats.in_groups(bits, group, 16)


def _mxfp4(_: Fields) -> tuple[str, float]:
    return "mxfp4", formats.element_bytes(formats.find("mxfp4")).value


def _compressed_tensors(fields: Fields) -> tuple[str, float] | None:
    """Return the format of all groups of layers, if they agree."""
    groups = fields.get("config_groups")
    stated = (
        [one.get("weights") for one in groups.values() if isinstance(one, dict)] if isinstance(groups, dict) else []
    )
    found = {_compressed(one) for one in stated if isinstance(one, dict)}
    return found.pop() if len(found) == 1 else None


def _compressed(weights: Fields) -> tuple[str, float] | None:
    bits, kind, group = weights.get("num_bits"), weights.get("type", "int"), weights.get("group_size")
    if kind == "int":
        return _integers(bits, group, zeros=not weights.get("symmetric", True))
    if bits == 8:
        return "fp8", formats.BYTES["fp8"]
    name = {16: "nvfp4", 32: "mxfp4"}.get(group) if bits == 4 and isinstance(group, int) else None
    return (name, formats.element_bytes(formats.find(name)).value) if name else None


def _modelopt(fields: Fields) -> tuple[str, float] | None:
    name = {"FP8": "fp8", "NVFP4": "nvfp4"}.get(str(fields.get("quant_algo")))
    return (name, formats.element_bytes(formats.find(name)).value) if name else None


METHODS: Mapping[str, Callable[[Fields], tuple[str, float] | None]] = {
    "gptq": _grouped,
    "awq": _grouped,
    "auto-round": _rounded,
    "intel/auto-round": _rounded,
    "hqq": _hqq,
    "bitsandbytes": _bitsandbytes,
    "fp8": _eight_bit_floats,
    "fbgemm_fp8": _eight_bit_floats,
    "mxfp4": _mxfp4,
    "compressed-tensors": _compressed_tensors,
    "modelopt": _modelopt,
}
"""quant_method → its reader: the format's name and the bytes of a weight, scales included; None if it is unknown."""
