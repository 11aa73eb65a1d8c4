"""Accelerators: figures against datasheets, names, a user's file, and the generated table against its source."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from napkin.commands.command import ask, find
from napkin.commands.signature import OptionText
from napkin.errors import NapkinError, Problems, Refused
from napkin.evidence.rates.machines import constants_of, machine
from napkin.inputs import hardware, peaks
from napkin.inputs.hardware_file import merged
from napkin.inputs.yaml_file import read_yaml
from napkin.render import render
from napkin.render.screen import Display
from tests.conftest import run_line

ROOT = Path(__file__).resolve().parent.parent
TABLE = hardware.shipped()

# (name, figure, value): datasheets and whitepapers, by hand
PRINTED = [
    ("a100", "peak/bf16", 312e12),
    ("a100", "peak/tf32", 156e12),
    ("a100", "peak/fp32", 19.5e12),
    ("a100", "memory_bandwidth", 2.039e12),
    ("a100-40gb", "memory_bandwidth", 1.555e12),
    ("a100-64gb", "sm_count", 124),  # Turisini et al. 2023, arXiv:2307.16885
    ("a100-64gb", "memory_bandwidth", 1.64e12),
    ("a100", "link_bandwidth", 300e9),
    ("h100", "peak/bf16", 989.4e12),
    ("h100", "peak/fp8", 1978.9e12),
    ("h100", "peak/fp32", 66.9e12),
    ("h100", "memory", 80 * 10**9),
    ("h100", "memory_bandwidth", 3.35e12),
    ("h100", "link_bandwidth", 450e9),
    ("h100", "nic_bandwidth", 50e9),
    ("h100", "tdp_w", 700),
    ("h100", "sm_count", 132),
    ("h100", "l2_bytes", 50 * 2**20),
    ("h100-pcie", "peak/bf16", 756e12),
    ("h200", "memory_bandwidth", 4.8e12),
    ("h200", "memory", 141 * 10**9),
    ("b200", "peak/bf16", 2250e12),
    ("gb200", "devices_per_node", 72),
    ("v100", "peak/fp16", 125e12),
    ("l4", "peak/bf16", 121e12),
    ("l40s", "peak/bf16", 362.05e12),
    ("rtx 4090", "peak/bf16", 165.2e12),
    ("a10g", "peak/bf16", 70e12),
    ("mi300x", "peak/bf16", 1307.4e12),
    ("mi300x", "memory_bandwidth", 5.3e12),
    ("mi250x", "peak/bf16", 383e12),
    ("mi250x-gcd", "peak/bf16", 191.5e12),
    ("mi250x-gcd", "memory", 64 * 10**9),
    ("tpu v5p", "peak/bf16", 459e12),
    ("gaudi2", "peak/bf16", 432e12),
    ("trn2", "peak/bf16", 667e12),
]


@pytest.mark.parametrize(("name", "figure", "value"), PRINTED)
def test_figures_of_datasheets(name: str, figure: str, value: float) -> None:
    assert hardware.find(name).figure(figure) == pytest.approx(value, rel=1e-12)


def test_what_the_driver_reports_is_the_capacity_where_it_is_known() -> None:
    h100 = hardware.find("h100")
    assert h100.capacity == h100.capacity_reported == 81089 * 2**20  # torch.cuda.get_device_properties
    assert (h100.kind("capacity"), h100.kind("memory"), h100.kind("nic_bandwidth")) == ("published", "exact", "assumed")
    b100 = hardware.find("b100")
    assert b100.capacity_reported is None
    assert b100.capacity == b100.memory
    assert b100.kind("capacity") == "assumed"


def test_sparse_figures_are_separate_from_dense_ones() -> None:
    assert hardware.find("h100").sparse_peak("bf16") == pytest.approx(1979e12, rel=1e-3)
    assert hardware.find("h100").sparse_peak("fp32") is None  # vector rate
    assert hardware.find("v100").sparse_peak("fp16") is None
    assert hardware.find("b300").sparse_peak("fp4") == 18e15  # not twice the dense 13.5
    assert hardware.find("mi355x").sparse_peak("fp4") is None
    assert hardware.find("mi355x").sparse_peak("bf16") == pytest.approx(5033.2e12)


def test_a_missing_peak_is_refused_never_replaced() -> None:
    for name, dtype in (("v100", "bf16"), ("a100", "fp8"), ("t4", "bf16"), ("gtx-titan-x", "fp16"), ("h100", "nvfp4")):
        with pytest.raises(Refused, match=r"no .* peak") as caught:
            hardware.find(name).peak(dtype)
        assert caught.value.status == 3
        assert caught.value.hint
    with pytest.raises(Refused, match="power rating is not known"):
        hardware.find("tpu-v5e").term("tdp_w", "tdp")


def test_tf32_and_fp32_are_different_rates() -> None:
    h100 = hardware.find("h100")
    assert h100.peak("tf32") / h100.peak("float32") > 7


def test_default_dtype_is_bf16_else_fp16_else_fp32() -> None:
    assert [hardware.find(n).default_dtype for n in ("h100", "v100", "gtx-titan-x")] == ["bf16", "fp16", "fp32"]


def test_unknown_names_give_the_nearest() -> None:
    for ask_for, near in (("h10", "h100"), ("mi300xx", "mi300x"), ("rtx4009", "rtx-4090")):
        with pytest.raises(NapkinError) as caught:
            hardware.find(ask_for)
        assert caught.value.status == 2
        assert near in str(caught.value.hint)
    with pytest.raises(NapkinError, match="unknown dtype 'bf61'") as caught:
        hardware.find("h100").peak("bf61")
    assert (caught.value.status, caught.value.hint) == (2, "did you mean bf16?")
    with pytest.raises(NapkinError, match="unknown link 'pcie9'"):
        hardware.find_link("pcie9")


def test_a_family_takes_a_documented_default_and_says_so() -> None:
    h100 = hardware.find("H100")
    assert h100.slug == "h100-sxm-80gb"
    assert h100.notes[0].startswith("h100 is read as H100 SXM 80GB")
    assert "h100-pcie-80gb" in h100.notes[0]
    assert hardware.find("h100-sxm-80gb").notes == ()
    for slug in TABLE.families.values():
        assert slug in TABLE.accelerators


def test_every_name_resolves_whatever_its_case_and_hyphens() -> None:
    for slug, fields in TABLE.accelerators.items():
        for name in (slug, fields["name"], *fields.get("aliases", ()), *fields.get("default_for", ())):
            for spelling in (name, name.upper(), name.lower(), name.replace("-", " "), name.replace(" ", "_")):
                assert hardware.find(spelling).slug == slug
    assert hardware.find("NVIDIA H100 80GB HBM3").slug == "h100-sxm-80gb"  # torch.cuda.get_device_name
    assert hardware.find("nvidia-l40s").slug == "l40s"


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("A100 80GB SXM4", "a100-sxm-80gb"),
        ("A100(40G)", "a100-sxm-40gb"),
        ("A100 (80 GB)", "a100-sxm-80gb"),
        ("NVIDIA A800-SXM4-80GB", "a800-sxm-80gb"),
        ("V100 16GB PCIe", "v100-pcie-16gb"),
        ("Tesla V100", "v100-sxm2-16gb"),
        ("H100 700W SXM", "h100-sxm-80gb"),
        ("H100 95GiB", "h100-sxm-96gb-500w"),
        ("L4 24GB", "l4"),
        ("L40S PCIe", "l40s"),
        ("GeForce RTX 3060", "rtx-3060-12gb"),
        ("RTX A6000 Ada", "rtx-6000-ada"),
        ("AMD Instinct MI300X OAM 192GB", "mi300x"),
        ("MI-300X", "mi300x"),
    ],
)
def test_names_in_another_order_and_with_more_words_resolve(name: str, slug: str) -> None:
    assert hardware.find(name).slug == slug


@pytest.mark.parametrize(
    "name", ["RTX 4090 48GB", "H20 141GB", "H200 PCIe", "H100 SXM 500W", "AMD H100", "80GB", "SXM4", "NVIDIA GPU"]
)
def test_what_is_not_true_of_an_accelerator_is_not_its_name(name: str) -> None:
    with pytest.raises(NapkinError, match="unknown accelerator"):
        hardware.find(name)


def test_names_of_published_measurements_resolve() -> None:
    for name in ("A100 SXM 80GB", "H100 SXM 96GB 500W", "GB300 (per GPU)", "TPU v7 (Ironwood)", "V100 SXM2 32GB"):
        assert hardware.find(name).name == name


def test_a_package_of_two_devices_says_so() -> None:
    assert "software sees as 2 devices" in hardware.find("mi250x").notes[0]
    whole, half = hardware.find("mi250x"), hardware.find("mi250x-gcd")
    assert half.capacity * 2 == whole.capacity
    assert half.capacity == 65520 * 2**20  # torch, one GCD


def test_links() -> None:
    assert hardware.find_link("pcie5").bandwidth == pytest.approx(32e9 * 16 * 128 / 130 / 8, rel=1e-6)
    assert hardware.find_link("PCIe Gen4 x16").bandwidth == pytest.approx(31.5e9, rel=1e-3)
    assert hardware.find_link("nvlink4").bandwidth == hardware.find("h200").link_bandwidth == 450e9
    assert hardware.find("a800").link_bandwidth == 200e9  # cut


# --- laws of the shipped file --------------------------------------------------------------------------------------


@pytest.mark.parametrize("slug", list(TABLE.accelerators))
def test_every_accelerator_is_complete_and_plausible(slug: str) -> None:
    h = TABLE[slug]
    assert h.source
    assert h.vendor
    assert h.tier in "ABC"
    assert h.memory >= 10**9
    assert 6e10 <= h.memory_bandwidth <= 2e13
    assert 1e12 <= h.peak(h.default_dtype) <= 1e16
    assert 0.8 < h.capacity / h.memory < 1.08  # gigabytes are sold, GiB less a reserve are had
    for dtype in h.peaks:
        sparse = h.sparse_peak(dtype)
        assert sparse is None or sparse > h.peak(dtype)
    if h.flop_per_clock_per_sm and h.sm_count and h.boost_clock_hz:
        per_second = h.flop_per_clock_per_sm * h.sm_count * h.boost_clock_hz
        assert per_second == pytest.approx(h.peak("bf16"), rel=0.02)
    assert 1 <= h.clock_gain < 1.25  # no card is listed as slower than its datasheet


def test_names_are_unique() -> None:
    seen: dict[str, str] = {}
    for slug, fields in TABLE.accelerators.items():
        for name in (slug, fields["name"], *fields.get("aliases", ()), *fields.get("default_for", ())):
            assert seen.setdefault(hardware.normal(name), slug) == slug


def test_finding_one_loads_neither_yaml_nor_pydantic() -> None:
    code = (
        "import sys; from napkin.inputs import hardware; hardware.find('h100').peak('bf16');"
        "print([m for m in ('yaml', 'pydantic', 'pathlib', 'json', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, env=_path(), check=True)
    assert done.stdout.strip() == "[]"


def _path() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src")}


# --- a user's file -------------------------------------------------------------------------------------------------


def _table(tmp_path: Path, text: str) -> hardware.HardwareTable:
    file = tmp_path / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    return merged(str(file), TABLE)


NEW = """\
links:
  fabric: {name: My fabric, bidirectional: 100.0e+9}
accelerators:
  My Chip 9:
    aliases: [mc9]
    peak_flops: {bf16: 5e14, fp8: "1PFLOP/s"}
    sparse_factor: 2
    memory: {bytes: 96GiB, bandwidth: 4.0TB/s}
    link: fabric
    nic: {name: two ports, per_direction: 400Gbit/s}
    tdp_w: 1.2kW
"""


def test_a_new_accelerator(tmp_path: Path) -> None:
    table = _table(tmp_path, NEW)
    chip = hardware.find("MC9", table)
    assert chip.name == "My Chip 9"
    assert (chip.peak("bf16"), chip.peak("fp8"), chip.sparse_peak("fp8")) == (5e14, 1e15, 2e15)
    assert (chip.memory, chip.memory_bandwidth, chip.tdp_w) == (96 * 2**30, 4e12, 1200)
    assert (chip.link_bandwidth, chip.nic_bandwidth) == (50e9, 50e9)
    assert chip.kind("peak/bf16") == "given"
    assert chip.citation("peak/bf16").endswith("mine.yaml:6: accelerators.My Chip 9.peak_flops.bf16")
    assert hardware.find("h100", table).peak("bf16") == 989.4e12  # the shipped ones stay
    assert hardware.find_link("my-fabric", table).bandwidth == 50e9


def test_a_known_name_changes_only_what_is_given(tmp_path: Path) -> None:
    table = _table(tmp_path, "accelerators:\n  h100:\n    peak_flops: {bf16: 800.0e+12}\n    tdp_w: 600\n")
    h100 = hardware.find("h100-sxm-80gb", table)
    assert (h100.peak("bf16"), h100.tdp_w) == (800e12, 600)
    assert h100.peak("fp8") == 1978.9e12
    assert (h100.kind("peak/bf16"), h100.kind("peak/fp8"), h100.kind("tdp_w")) == ("given", "exact", "given")
    assert hardware.find("h100").tdp_w == 700  # the shipped table is untouched


def test_another_memory_size_drops_the_drivers_figure_of_the_first(tmp_path: Path) -> None:
    table = _table(tmp_path, "accelerators: {h100: {memory: {bytes: 64000000000}}}\n")
    h100 = hardware.find("h100", table)
    assert h100.capacity_reported is None
    assert h100.capacity == 64 * 10**9


def test_the_clock_in_use_is_that_of_the_entry(tmp_path: Path) -> None:
    """A GeForce card's boost clock is a minimum: an RTX 5090's published matmuls reach 1.13 to 1.16 of its peak."""
    shipped = hardware.find("rtx-5090")
    assert shipped.clock_gain == pytest.approx(2.87 / 2.407)
    assert shipped.kind("clock_in_use_hz") == "published"
    table = _table(tmp_path, "accelerators: {rtx-5090: {reported: {clock_hz: 2.407e+9}}}\n")
    own = hardware.find("rtx-5090", table)
    assert own.clock_gain == 1
    assert own.capacity_reported == shipped.capacity_reported
    assert hardware.find("h100").clock_gain == 1


def test_the_half_of_a_package_follows_the_package(tmp_path: Path) -> None:
    table = _table(tmp_path, "accelerators: {mi250x: {peak_flops: {bf16: 300.0e+12}}}\n")
    assert hardware.find("mi250x-gcd", table).peak("bf16") == 150e12


def test_a_users_name_wins(tmp_path: Path) -> None:
    text = "accelerators:\n  mine:\n    aliases: [h100]\n    peak_flops: {bf16: 1.0e+12}\n"
    table = _table(tmp_path, text + "    memory: {bytes: 1GB, bandwidth: 1TB/s}\n")
    assert hardware.find("h100", table).slug == "mine"
    assert hardware.find("h100", table).notes == ()


GOOD = "accelerators:\n  x:\n    peak_flops: {bf16: 1.0e+12}\n    memory: {bytes: 1000000000, bandwidth: 1.0e+12}\n"
BAD = [
    ("", "holds no accelerators", None),
    ("- a\n- b\n", "holds no accelerators", None),
    ("accelerators: [a]\n", "1: accelerators: a mapping belongs here", None),
    ("accelerators: {x: 5}\n", "1: accelerators.x: a mapping belongs here", None),
    ("accelerator: {}\n", "1: accelerator: is not a field", "accelerators"),
    (GOOD + "    tdp: 5\n", "5: accelerators.x.tdp: is not a field", "tdp_w"),
    (GOOD + "    tdp_w: -5\n", "5: accelerators.x.tdp_w: '-5' is not above zero", None),
    (GOOD + "    tdp_w: 0\n", "5: accelerators.x.tdp_w: '0' is not above zero", None),
    (GOOD + "    tdp_w: .nan\n", "5: accelerators.x.tdp_w: .nan is not a finite number", None),
    (GOOD + "    tdp_w: 1e400\n", "5: accelerators.x.tdp_w: 1e400 is not a finite number", None),
    (GOOD + "    tdp_w: true\n", "5: accelerators.x.tdp_w: a number belongs here", None),
    (GOOD + "    tdp_w: [1]\n", "5: accelerators.x.tdp_w: a number belongs here", None),
    (GOOD + "    tdp_w: yes\n", "5: accelerators.x.tdp_w: 'yes' could be a text or a truth value", None),
    (GOOD + "    sparse_factor: 0.5\n", "5: accelerators.x.sparse_factor: '0.5' is below 1", None),
    (GOOD + "    sm_count: 1.5\n", "5: accelerators.x.sm_count: '1.5' is not a whole number", None),
    (GOOD + "    tier: D\n", "5: accelerators.x.tier: the tier is A, B or C", None),
    (GOOD + "    name: 5\n", "5: accelerators.x.name: text belongs here", "quotes"),
    (GOOD + "    aliases: mc9\n", "5: accelerators.x.aliases: a list belongs here", None),
    (GOOD + "    link: nvlink9\n", "5: accelerators.x.link: unknown link 'nvlink9'", "nvlink"),
    (GOOD + "    link: {per_direction: 1.0e+9, bidirectional: 1.0e+9}\n", "5: .*is not twice per_direction", None),
    (GOOD + "    link: {name: a}\n", "5: accelerators.x.link: per_direction is missing", None),
    (GOOD + "    peak_flops: {}\n", "5: the key 'peak_flops' appears twice", None),
    (GOOD + "    aliases: [h100-sxm-80gb]\n", "5: .*is the key of another accelerator", None),
    (GOOD + "    memory_bandwith: 1\n", "5: accelerators.x.memory_bandwith: is not a field", "memory"),
    (GOOD + "    checked: [a]\n", "5: .*'a' is not one of the references", None),
    (GOOD + "    sparse_peak_flops: {bf16: 1.0}\n", "5: .*is below the dense peak", None),
    ("accelerators:\n  x:\n    peak_flops: {bf61: 1.0e+12}\n", "3: accelerators.x.peak_flops.bf61", "bf16"),
    ("accelerators:\n  x:\n    peak_flops: {bf16: 1T}\n", "2: accelerators.x: memory.bytes is missing", None),
    (
        "accelerators:\n  h100:\n    memory: {bytes: 80G}\n",
        "3: accelerators.h100.memory.bytes: '80G' is ambiguous",
        "80GB",
    ),
    ("accelerators:\n  h100:\n    memory: {size: 80}\n", "3: accelerators.h100.memory.size: is not a field", "bytes"),
    ("a: [1]\nb: *a\n", r"2: the alias \*a has no anchor before it", "define &a"),
    ("a: &a [*a]\n", r"1: the alias \*a has no anchor before it", None),
    (
        "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
        + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcdef", "bcdefg", strict=True)),
        "its aliases repeat too much",
        "100,000",
    ),
    ("accelerators: {h100: {tdp_w: 1}\n", "not YAML", None),
    ("links: {a: {name: b}}\n", "1: links.a: per_direction is missing", None),
]


@pytest.mark.parametrize(("text", "message", "hint"), BAD)
def test_a_bad_file_is_one_clear_line(tmp_path: Path, text: str, message: str, hint: str | None) -> None:
    with pytest.raises(NapkinError, match=message) as caught:
        _table(tmp_path, text)
    problem = caught.value.problems[0] if isinstance(caught.value, Problems) else caught.value
    assert problem.status == 2
    assert "mine.yaml" in problem.message
    assert "\n" not in problem.message
    if hint is not None:
        assert hint in str(problem.hint)


def test_every_problem_is_named(tmp_path: Path) -> None:
    with pytest.raises(Problems) as caught:
        _table(tmp_path, GOOD + "    tdp_w: -1\n    sm_count: x\n    vendr: acme\n")
    assert len(caught.value.problems) == 3


def test_what_is_no_file(tmp_path: Path) -> None:
    for path, message in (
        (str(tmp_path), "is a directory"),
        (str(tmp_path / "none.yaml"), "No such file"),
        ("a\0b", "is not a path"),
    ):
        with pytest.raises(NapkinError, match=message) as caught:
            merged(path, TABLE)
        assert caught.value.status == 2
    (tmp_path / "latin.yaml").write_bytes(b"accelerators: {\xe9: 1}")
    with pytest.raises(NapkinError, match="not UTF-8"):
        merged(str(tmp_path / "latin.yaml"), TABLE)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
fields = st.sampled_from(
    [
        "memory",
        "peak_flops",
        "link",
        "nic",
        "reported",
        "aliases",
        "tdp_w",
        "sparse_peak_flops",
        "checked",
        "name",
        "assumed",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(["h100", "x", ""]), st.dictionaries(fields, values, max_size=3), max_size=2))
def test_no_file_ends_in_a_traceback(tmp_path_factory: pytest.TempPathFactory, accelerators: object) -> None:
    file = tmp_path_factory.mktemp("h") / "f.yaml"
    file.write_text(json.dumps({"accelerators": accelerators}), encoding="utf-8")
    with suppress(NapkinError):
        table = merged(str(file), TABLE)
        for slug in table.accelerators:
            assert table[slug].peaks


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=30))
def test_any_name_is_found_or_refused(name: str) -> None:
    with suppress(NapkinError):
        assert hardware.find(name).slug in TABLE.accelerators


# --- the command ---------------------------------------------------------------------------------------------------


def _ask(**options: str) -> object:
    return ask(find("hardware"), {name.replace("_", "-"): OptionText(text) for name, text in options.items()})


def test_the_list_has_rows() -> None:
    data = json.loads(render(_ask(), "json"))  # type: ignore[arg-type]
    rows = {row["hardware"]: row for row in data["rows"]}
    assert len(rows) == len(TABLE.accelerators)
    assert rows["h100-sxm-80gb"]["peak"] == 989_400_000_000_000
    amd = json.loads(render(_ask(vendor="amd", dtype="fp8"), "json"))["rows"]  # type: ignore[arg-type]
    assert {row["vendor"] for row in amd} == {"AMD"}
    assert "mi250x" not in {row["hardware"] for row in amd}


def test_an_accelerator_without_training_formats_is_listed(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("accelerators: {x: {peak_flops: {int8: 1TFLOP/s}, memory: {bytes: 1GB, bandwidth: 1TB/s}}}")
    rows = json.loads(render(_ask(hardware_file=str(file)), "json"))["rows"]  # type: ignore[arg-type]
    assert rows[-1]["dtype"] == "int8"
    with pytest.raises(Refused):
        _ = hardware.find("x", merged(str(file), TABLE)).default_dtype


def test_one_shows_every_figure_with_its_source() -> None:
    answer = _ask(accelerator="h100")
    data = json.loads(render(answer, "json"))  # type: ignore[arg-type]
    assert data["values"]["hardware/peak/bf16"] == 989_400_000_000_000
    assert data["values"]["hardware/link/bidirectional"] == 2 * data["values"]["hardware/link/per_direction"]
    assert data["values"]["hardware/ridge/bf16"] == pytest.approx(295.3, abs=0.1)
    assert data["values"]["hardware/sparse_peak/bf16"] == 2 * data["values"]["hardware/peak/bf16"]
    assert all(entry["source"] for entry in data["sources"].values())
    assert "H100 whitepaper" in render(answer, "text", Display(explain=True))  # type: ignore[arg-type]
    assert "h100 is read as" in data["notes"][0]


def test_every_accelerator_can_be_shown() -> None:
    for slug in TABLE.accelerators:
        for form in ("text", "json", "csv", "markdown"):
            assert render(_ask(accelerator=slug), form)  # type: ignore[arg-type]


def test_the_command_refuses() -> None:
    for options, status in (
        ({"accelerator": "v100", "dtype": "bf16"}, 3),
        ({"accelerator": "h1000"}, 2),
        ({"vendor": "nvdia"}, 2),
        ({"dtype": "bf17"}, 2),
        ({"hardware_file": "/nowhere.yaml"}, 2),
    ):
        with pytest.raises(NapkinError) as caught:
            _ask(**options)
        assert caught.value.status == status


# --- the generation --------------------------------------------------------------------------------------------------


def _card(tmp_path: Path, key: str, generation: str = "") -> str:
    """A hardware file with an accelerator that has an H100's figures under a key of its own."""
    stated = f"generation: {generation}, " if generation else ""
    file = tmp_path / f"{key}.yaml"
    file.write_text(
        f"accelerators: {{{key}: {{{stated}peak_flops: {{bf16: 989.4TFLOP/s}}, tdp_w: 700, sm_count: 132, "
        "memory: {bytes: 80GB, bandwidth: 3.35TB/s}, link: nvlink4, nic: {per_direction: 50GB/s}, devices_per_node: 8}}"
    )
    return str(file)


def test_every_shipped_accelerator_states_its_generation() -> None:
    from napkin._tables.calibration import CONSTANTS
    from napkin.evidence.rates.machines import GENERIC, MEASURED_GENERATIONS

    assert {TABLE[slug].generation for slug in TABLE.accelerators} == set(peaks.GENERATIONS)
    measured = {name.split("/")[1] for name in CONSTANTS if name.startswith("matmul/")}
    assert {*MEASURED_GENERATIONS, GENERIC} == measured <= set(peaks.GENERATIONS)


def test_cards_are_held_to_the_power_of_their_own_process() -> None:
    """Datasheets: A10 150 W and 125 TFLOP/s, T4 70 W and 65, L4 72 W and 121, of RTX A6000's 300 and 154.8, Quadro RTX
    8000's 260 and 130.5, L40S's 350 and 362.05. An A100 has more FLOP/s for a watt than any GA102."""
    found = {card: machine(hardware.find(card), "fp16").power for card in ("a10", "t4", "l4", "rtx-a6000", "a100")}
    assert found["a10"] == pytest.approx((150 / 125) / (300 / 154.8), rel=1e-3)
    assert found["t4"] == pytest.approx((70 / 65) / (260 / 130.5), rel=1e-3)
    assert found["l4"] == pytest.approx((72 / 121) / (350 / 362.05), rel=1e-3)
    assert found["rtx-a6000"] == pytest.approx(1, rel=1e-3)
    assert found["a100"] == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "generation"), [("rtx-pro-6000", "ada"), ("rtx-5090", "ada"), ("b200", "blackwell"), ("a6000", "ampere")]
)
def test_cards_multiply_at_the_share_of_the_instructions_that_they_have(name: str, generation: str) -> None:
    """Compute capability 12.0 has mma.sync alone, for which cuBLAS runs its kernels of older generations; 10.0 has
    tcgen05 (NVIDIA/cutlass media/docs/cpp/blackwell_functionality.md)."""
    assert constants_of(hardware.find(name)) == generation


def test_a_users_accelerator_takes_the_constants_of_the_generation_it_states(tmp_path: Path) -> None:
    line = "step llama3-8b --gpus 8 --zero 3 --micro-batch 1 --seq 4096 --json --hardware"
    shipped = run_line(f"{line} h100-sxm-80gb")
    stated = run_line(f"{line} my-card --hardware-file {_card(tmp_path, 'my-card', 'hopper')}")
    unstated = run_line(f"{line} my-card --hardware-file {_card(tmp_path, 'my-card')}")
    named = run_line(f"{line} h100-of-mine --hardware-file {_card(tmp_path, 'h100-of-mine')}")
    assert stated.values["step/time"] == shipped.values["step/time"]
    assert unstated.values["step/time"] != shipped.values["step/time"]
    assert named.values["step/time"] == unstated.values["step/time"]  # the key says nothing
    assert not any("generation" in note for note in json.loads(stated.out)["notes"])
    assert any("its generation is not stated" in note for note in json.loads(unstated.out)["notes"])


def test_a_file_that_changes_a_known_accelerator_keeps_its_generation(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("accelerators: {h100: {tdp_w: 600}}")
    assert hardware.find("h100", merged(str(file), TABLE)).generation == "hopper"


def test_a_generation_that_is_misspelled_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NapkinError, match="not a generation") as caught:
        merged(_card(tmp_path, "x", "hoper"), TABLE)
    assert "hopper" in str(caught.value.hint)


def test_an_alias_stands_for_a_copy(tmp_path: Path) -> None:
    """yaml.safe_dump writes an object that occurs twice as an anchor and an alias, and merge keys take its fields."""
    path = tmp_path / "mine.yaml"
    path.write_text("a: &id001 {x: 1, y: [2, 3]}\nb: *id001\nc:\n  <<: *id001\n  x: 4\n")
    document = read_yaml(str(path))
    assert document.data == {"a": {"x": 1, "y": [2, 3]}, "b": {"x": 1, "y": [2, 3]}, "c": {"x": 4, "y": [2, 3]}}
    document.data["b"]["y"].append(5)
    assert document.data["a"]["y"] == [2, 3]
    assert document.place("b").endswith("mine.yaml:2: b")
