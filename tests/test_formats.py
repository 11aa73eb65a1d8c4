"""Number formats against torch's own figures and casts, and against the standards' tables."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from napkin import formats
from napkin.bench import formats as bench_formats
from napkin.counting.tensor_bytes import allocated
from napkin.errors import NapkinError
from napkin.formats import FORMATS, Format, Integer
from napkin.formats.figures import figures_of
from napkin.formats.rounding import store
from napkin.formats.table import power_of_two
from napkin.inputs.peaks import peak_name
from napkin.training.precision import precision

TORCH = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
}


def figures(name: str) -> dict[str, float]:
    return {t.name.rpartition("/")[2]: t.value for t in figures_of(formats.find(name), "x")}


@pytest.mark.parametrize(("name", "dtype"), TORCH.items())
def test_every_command_reads_the_same_spellings(name: str, dtype: str) -> None:
    for spelling in (name, dtype, f"torch.{dtype}", dtype.upper()):
        assert formats.find(spelling).name == name
        assert peak_name(spelling) == name.partition("_")[0]
        assert precision(f"param={spelling}").param == name.partition("_")[0]
    if name in bench_formats.FORMATS:
        assert bench_formats.named(dtype) == name


@pytest.mark.parametrize(("name", "dtype"), TORCH.items())
def test_ranges_are_those_of_torch(name: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    info, found = torch.finfo(getattr(torch, dtype)), figures(name)
    assert found["max"] == info.max
    assert found["min_normal"] == info.tiny
    assert found["epsilon"] == info.eps
    assert found["bits"] == info.bits
    assert found["bytes"] == getattr(torch, dtype).itemsize


def test_figures_that_torch_does_not_have() -> None:
    # OCP MX v1.0, table 5 and section 5.4; NVIDIA A100 whitepaper; arXiv:2209.05433, table 1
    assert figures("fp4_e2m1")["max"] == 6
    assert figures("fp4_e2m1")["min_normal"] == 1
    assert figures("fp4_e2m1")["min_subnormal"] == 0.5
    assert figures("fp8_e4m3")["min_subnormal"] == 2**-9
    assert figures("fp8_e5m2")["min_subnormal"] == 2**-16
    assert figures("fp16")["min_subnormal"] == 2**-24
    assert figures("bf16")["min_subnormal"] == 2**-133
    tf32 = figures("tf32")
    assert (tf32["bits"], tf32["bytes"], tf32["epsilon"], tf32["exponent_bits"]) == (19, 4, 2**-10, 8)
    assert tf32["max"] == (2 - 2**-10) * 2.0**127


def test_scaled_formats_state_the_bytes_of_their_scales() -> None:
    assert figures("mxfp8")["bytes"] == 1 + 1 / 32
    assert figures("mxfp4")["bytes"] == 0.5 + 1 / 32
    assert figures("nvfp4")["bytes"] == 0.5 + 1 / 16
    assert figures("mxfp8")["max"] == 448 * 2.0**127
    assert figures("nvfp4")["max"] == 6 * 448


def test_integers() -> None:
    assert figures("int8") == {
        "bits": 8, "bytes": 1, "max": 127, "min": -128, "min_normal": 1, "min_subnormal": 1, "epsilon": 1
    }  # fmt: skip
    assert figures("uint16")["max"] == 65_535
    assert figures("uint16")["min"] == 0


@pytest.mark.parametrize(
    ("text", "name", "value", "event"),
    [
        ("1e-8", "fp16", 0, "underflow"),  # the smallest subnormal is 5.96e-8
        ("1e-8", "bf16", 1.0011717677116394e-08, "rounded"),
        ("1e-8", "fp32", 9.99999993922529e-09, "rounded"),
        ("0.1", "bf16", 0.10009765625, "rounded"),
        ("6e-8", "fp16", 5.960464477539063e-08, "subnormal"),
        ("65519", "fp16", 65504, "rounded"),
        ("449", "fp8_e4m3", 448, "rounded"),
        ("464", "fp8_e4m3", 448, "rounded"),  # half-way to 480, which does not exist; 448 is the even one
        ("5", "fp4_e2m1", 4, "rounded"),  # half-way between 4 and 6: 4 is even
        ("100", "fp4_e2m1", 6, "overflow"),
        ("465", "fp8_e4m3", 448, "overflow"),
        ("2.5", "int8", 2, "rounded"),
        ("-3.5", "int8", -4, "rounded"),
        ("200", "int8", 127, "overflow"),
        ("-200", "int8", -128, "overflow"),
        ("1", "nvfp4", 1, "rounded"),
        ("5", "mxfp4", 4, "rounded"),
        ("5e-39", "mxfp4", 5.877471754111438e-39, "rounded"),
    ],
)
def test_what_a_value_becomes(text: str, name: str, value: float, event: str) -> None:
    stored = store(Fraction(text), formats.find(name))
    assert stored.value is not None
    assert float(stored.value) == pytest.approx(value, rel=1e-7 if name == "nvfp4" else 0, abs=0)
    assert stored.event == event or name == "nvfp4"


@pytest.mark.parametrize(
    ("text", "name", "becomes"),
    [("65520", "fp16", "infinity"), ("-65520", "fp16", "−infinity"), ("1e39", "fp32", "infinity")],
)
def test_what_lies_above_the_range(text: str, name: str, becomes: str) -> None:
    stored = store(Fraction(text), formats.find(name))
    assert stored.value is None
    assert (stored.event, stored.becomes) == ("overflow", becomes)


def test_ties_go_to_the_even_neighbor_and_decimals_are_not_rounded_twice() -> None:
    bf16 = formats.find("bf16")
    assert store(Fraction(1) + Fraction(1, 256), bf16).value == 1
    assert store(Fraction(1) + Fraction(3, 256), bf16).value == 1 + Fraction(4, 256)
    # just above the tie by less than a double can hold: an exact decimal still rounds up
    above = Fraction(1) + Fraction(1, 256) + Fraction(1, 10**30)
    assert store(above, bf16).value == 1 + Fraction(2, 256)


@pytest.mark.parametrize(("name", "dtype"), TORCH.items())
def test_rounding_is_that_of_torch(name: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")

    @given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300) | st.floats(-1000, 1000))
    def check(value: float) -> None:
        # torch casts doubles to fp8 by way of fp32, so it is given a number that fp32 holds already
        if name.startswith("fp8"):
            value = float(torch.tensor(value, dtype=torch.float64).to(torch.float32))
        if not math.isfinite(value):
            return
        cast = float(torch.tensor(value, dtype=torch.float64).to(getattr(torch, dtype)).to(torch.float64))
        stored = store(Fraction(value), FORMATS[name])
        if stored.value is None:
            assert not math.isfinite(cast)
        elif stored.event == "overflow" and math.isnan(cast):  # torch 2.5; later releases take the largest number
            assert abs(value) > FORMATS[name].largest
        else:
            assert float(stored.value) == cast

    check()


@given(st.fractions(min_value=-(10**6), max_value=10**6), st.sampled_from([f for f in FORMATS if f != "int8"]))
def test_storing_twice_changes_nothing(value: Fraction, name: str) -> None:
    form = FORMATS[name]
    once = store(value, form)
    if once.value is not None:
        again = store(once.value, form)
        assert again.value is not None
        assert float(again.value) == pytest.approx(float(once.value), rel=1e-6 if name == "nvfp4" else 0, abs=0)


@given(st.fractions(min_value=Fraction(1, 10**4), max_value=400), st.sampled_from(["fp16", "bf16", "fp8_e5m2", "tf32"]))
def test_a_normal_number_is_off_by_half_an_epsilon_at_most(value: Fraction, name: str) -> None:
    form = FORMATS[name]
    assert isinstance(form, Format)
    stored = store(value, form)
    if stored.event in ("exact", "rounded"):
        assert stored.value is not None
        assert abs(stored.value - value) <= value * power_of_two(-form.fraction - 1)


def test_bytes_of_packed_tensors() -> None:
    """Elements without gaps, a byte for each block of a row, and four for NVFP4's scale of the tensor."""

    def bytes_of(name: str, shape: tuple[int, ...]) -> float:
        form = FORMATS[name]
        return float(allocated(form, shape, formats.element_bytes(form), "bytes").value)

    assert bytes_of("fp4_e2m1", (3, 3)) == 5
    assert bytes_of("mxfp8", (4, 33)) == 4 * 33 + 4 * 2
    assert bytes_of("nvfp4", (4, 32)) == 64 + 8 + 4
    assert bytes_of("bf16", (3, 5)) == 30


def test_names() -> None:
    assert formats.find("BFloat16").name == "bf16"
    assert formats.find("torch.float8_e4m3fn").name == "fp8_e4m3"
    assert isinstance(formats.find("int64"), Integer)
    with pytest.raises(NapkinError) as problem:
        formats.find("bf61")
    assert problem.value.hint == "did you mean bf16?"
