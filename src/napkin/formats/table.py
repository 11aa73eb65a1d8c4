"""Number formats: how many bits, and the bytes of a tensor of them.

A floating-point format has one sign bit, `exponent` bits e with a bias, and `fraction` bits f. A normal number is
±1.fraction · 2^E with 1 − bias ≤ E ≤ top, a subnormal one ±0.fraction · 2^(1 − bias). Sources: IEEE 754-2019 (fp16,
fp32, fp64); Micikevicius et al. 2022, arXiv:2209.05433 (fp8); OCP Microscaling Formats (MX) Specification v1.0 (fp4,
mxfp8, mxfp4); NVIDIA (tf32, nvfp4).
"""

from __future__ import annotations

from napkin.elementwise import Number, ratio
from napkin.errors import NapkinError, did_you_mean
from napkin.record import record
from napkin.term import TRUE, Term, add, constant, divide, leaf, multiply
from napkin.units import NUMBER_FORMATS, number_format

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fractions import Fraction


INFINITE, SATURATES = "infinity", "the largest number"
"""What a value above the range becomes. fp8_e4m3 has no infinity: torch 2.13 casts to ±448 (the format's paper allows
NaN too)."""

IEEE = "IEEE 754-2019, section 3.6"
BFLOAT = "Kalamkar et al. 2019, arXiv:1905.12322: fp32's exponent, 7 fraction bits"
TF32 = "NVIDIA A100 Tensor Core GPU Architecture whitepaper: 8 exponent and 10 fraction bits, kept in 32"
FP8 = "Micikevicius et al. 2022, arXiv:2209.05433, table 1"
MX = "OCP Microscaling Formats (MX) Specification v1.0: 32 elements share an 8-bit power of two"
NVFP4 = "NVIDIA, Pretraining LLMs with NVFP4, arXiv:2509.25149: 16 elements share an e4m3 scale, a tensor an fp32 one"
TWOS_COMPLEMENT = "two's complement"


@record
class Format:
    """A floating-point format, or with `scale` a block of elements that share a scale.

    bits      of one element, its sign included      stored    bits that it occupies (tf32 lies in 32)
    top       largest exponent of a normal number    missing   codes lost at the top binade (e4m3's NaN)
    above     what a value above the range becomes
    scale     the shared scale's format: "" (none), e8m0 (a power of two) or fp8_e4m3     block  elements that share it
    """

    name: str
    exponent: int
    fraction: int
    top: int
    source: str
    above: str = INFINITE
    missing: int = 0
    stored: int = 0
    scale: str = ""
    block: int = 1

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.fraction

    @property
    def bias(self) -> int:
        return int(2 ** (self.exponent - 1)) - 1

    @property
    def lowest(self) -> int:
        """Exponent of the smallest normal number."""
        return 1 - self.bias

    @property
    def largest(self) -> Fraction:
        """Largest finite element: (2 − (1 + missing)·2^−f) · 2^top."""
        return (2 - (1 + self.missing) * power_of_two(-self.fraction)) * power_of_two(self.top)

    @property
    def element_bits(self) -> int:
        """Bits that one element occupies, without its share of a scale."""
        return self.stored or self.bits


@record
class Integer:
    """An integer format in two's complement, or unsigned; its numbers are one apart."""

    name: str
    bits: int
    signed: bool = True
    source: str = TWOS_COMPLEMENT

    @property
    def largest(self) -> int:
        return int(2 ** (self.bits - self.signed)) - 1

    @property
    def smallest(self) -> int:
        return -int(2 ** (self.bits - 1)) if self.signed else 0

    @property
    def element_bits(self) -> int:
        return self.bits


SCALE_BITS = 8
"""Bits of a shared scale."""


def is_scaled(form: Format | Integer) -> bool:
    """Return whether its elements share a scale."""
    return isinstance(form, Format) and bool(form.scale)


FORMATS: dict[str, Format | Integer] = {
    f.name: f
    for f in (
        Format("fp64", 11, 52, 1023, IEEE),
        Format("fp32", 8, 23, 127, IEEE),
        Format("tf32", 8, 10, 127, TF32, stored=32),
        Format("fp16", 5, 10, 15, IEEE),
        Format("bf16", 8, 7, 127, BFLOAT),
        Format("fp8_e4m3", 4, 3, 8, FP8, above=SATURATES, missing=1),
        Format("fp8_e5m2", 5, 2, 15, FP8),
        Format("fp4_e2m1", 2, 1, 2, MX, above=SATURATES),
        Integer("int8", 8),
        Format("mxfp8", 4, 3, 8, MX, above=SATURATES, missing=1, scale="e8m0", block=32),
        Format("mxfp4", 2, 1, 2, MX, above=SATURATES, scale="e8m0", block=32),
        Format("nvfp4", 2, 1, 2, NVFP4, above=SATURATES, scale="fp8_e4m3", block=16),
    )
}
"""The formats that numbers of a network have, widest first."""

INTEGERS: dict[str, Integer] = {
    i.name: i
    for i in (
        Integer("int64", 64),
        Integer("int32", 32),
        Integer("int16", 16),
        Integer("uint64", 64, signed=False),
        Integer("uint32", 32, signed=False),
        Integer("uint16", 16, signed=False),
        Integer("uint8", 8, signed=False),
    )
}
"""What token ids, masks and indices are stored in."""

BYTES: dict[str, int] = {
    **{f.name: f.element_bits // 8 for f in FORMATS.values() if f.element_bits >= 8 and not is_scaled(f)},
    **{i.name: i.bits // 8 for i in INTEGERS.values()},
    "fp8": 1,
    "bool": 1,
}
"""Bytes of one element of a tensor, of formats without a shared scale; fp8 is either of its formats."""
SIXTEENTHS: dict[str, Number] = {
    f.name: ratio(16 * f.element_bits + SCALE_BITS * 16 // f.block, 8)
    for f in FORMATS.values()
    if isinstance(f, Format) and f.scale
}
"""Bytes of 16 elements with their part of the 8-bit scales that they share."""
TRAINED = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4", "mxfp4", "int8")
"""Formats that a training policy may name."""
COMPUTE_BITS: dict[str, int] = {
    name: 8 * BYTES[name] if name in BYTES else FORMATS[name].element_bits for name in TRAINED
}
"""Bits of an operand of a matmul, without its part of a shared scale."""
RECIPES = {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "fp4": "nvfp4"}
"""Format → the recipe of training that uses it: fp8 takes both of its formats."""
EXACT_KEPT = ("fp32", "tf32", "bf16", "fp16")
"""Formats of matmuls whose saved tensors were counted with hooks; tf32 reads fp32 tensors."""


def in_groups(bits: int, group: int, zero_bits: int = 0) -> float:
    """Return the bytes of an integer weight of this many bits, with a 16-bit scale and a zero point of `zero_bits` for
    each group of weights (below 1: for an entire column, which is not counted)."""
    return bits / 8 + ((16 + zero_bits) / 8 / group if group > 0 else 0.0)


QUANTIZED = {
    "nf4": 0.5 + 4 / 64,
    "nf4-dq": 0.5 + 1 / 64 + 4 / (64 * 256),
    "int4": in_groups(4, 128, zero_bits=4),
}
"""Bytes of a weight in formats that only the layers' matrices are stored in. nf4: 4 bits, and an fp32 scale for 64 of
them; nf4-dq: an 8-bit one with fp32 for 256 scales (Dettmers et al. 2023, QLoRA, arXiv:2305.14314, section 3). int4: a
16-bit scale and a 4-bit zero point for 128 weights, as GPTQ and AWQ have them (Frantar et al. 2022, arXiv:2210.17323;
Lin et al. 2023, arXiv:2306.00978)."""

NORMAL_FLOATS = ("nf4", "nf4-dq")
"""bitsandbytes' 4-bit formats."""


def scale_bytes(name: str) -> float:
    """Return the bytes of a weight's part of the scales that bitsandbytes keeps next to 4-bit weights."""
    return QUANTIZED[name] - 0.5 if name in NORMAL_FLOATS else 0.0


def stored_bytes(name: str) -> float:
    """Return the bytes of a frozen weight of a layer; a scale for each row, of 8 bits, is not counted."""
    return QUANTIZED[name] if name in QUANTIZED else BYTES[name]


_MEANS = {
    "fp8": "fp8_e4m3",
    "fp4": "fp4_e2m1",
    "long": "int64",
    "int": "int32",
    "short": "int16",
    "byte": "uint8",
    "bool": "uint8",
}
"""The storage format that a general word means."""


def power_of_two(exponent: int) -> Fraction:
    """2^exponent, exactly."""
    from fractions import Fraction  # brings decimal: loaded if a value is stored, not where bytes are asked for

    return Fraction(2**exponent) if exponent >= 0 else Fraction(1, 2**-exponent)


def find(name: str, where: str = "--dtype") -> Format | Integer:
    """Return the format called `name`, in torch's or the field's spelling; refuse an unknown name."""
    word = number_format(name)
    word = _MEANS.get(word, word)
    known = {**FORMATS, **INTEGERS}
    if word not in known:
        shown = "".join(c for c in name.strip()[:40] if c.isprintable())
        raise NapkinError(
            f"{where}: unknown dtype {shown!r}",
            did_you_mean(word, [*known, *_MEANS, *NUMBER_FORMATS]) or f"one of {', '.join(FORMATS)}",
        )
    return known[word]


def element_bytes(form: Format | Integer, name: str = "bytes_per_element") -> Term:
    """Return the bytes of one element with its share of the block's scale: bits/8 + 1/block, a fraction for fp4 and
    scaled."""
    eight = constant("8", 8, "1/byte")
    if isinstance(form, Format) and form.scale:
        of_block = constant("elements_of_a_block", form.block, "1", form.source)
        scale = leaf("scale_bits", 8, "1", TRUE, form.source)
        elements = multiply("bits_of_elements", leaf("element_bits", form.bits, "1", TRUE, form.source), of_block)
        return divide(name, add("bits_of_a_block", elements, scale), of_block, eight)
    return divide(name, leaf("element_bits", form.element_bits, "1", TRUE, form.source), eight)
