"""`napkin bench` as it is typed: requests, answers, statuses, signals. On a fake device if something is measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from napkin.bench.device import MatmulSpec
from napkin.inputs.profile_cases import DeviceInfo
from tests.conftest import ROOT, Napkin
from tests.fake_device import FakeDevice

torch = pytest.importorskip("torch")


class Opened(FakeDevice):
    """What a TorchDevice has beside the protocol."""

    torch = torch
    place = torch.device("cpu")

    def software(self) -> dict[str, Any]:
        return {"torch": "2.13.0", "cuda": "13.0", "cudnn": None, "nccl": None, "driver": "580"}


H200 = DeviceInfo(
    "cuda", "NVIDIA H200", 150_110_011_392, 132, 50 << 20, (9, 0), sm_clock_max_mhz=1980, uuid_hash="0a1b2c3d"
)


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Callable[..., FakeDevice]:
    """Let `napkin bench` open a fake H200, in an empty folder."""

    def opens(seconds: Callable[[MatmulSpec, float], float] | None = None, info: DeviceInfo = H200) -> FakeDevice:
        device = Opened(seconds, info=info)
        monkeypatch.setattr("napkin.bench.run.open_device", lambda name: device)
        monkeypatch.chdir(tmp_path)
        return device

    return opens


def test_help_does_not_import_torch_numpy_or_pydantic() -> None:
    code = (
        "import sys; from napkin.cli import main; main(['bench', '--help']); print(list(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    for module in ("torch", "numpy", "pydantic", "rich"):
        assert f"'{module}'" not in done.stderr
    assert "compare" in done.stdout


def test_a_whole_run_answers_in_json_and_leaves_a_profile(napkin: Napkin, h200: Any, tmp_path: Any) -> None:
    h200()
    done = napkin("bench --only matmul,memory,host,collectives --json --quiet")
    assert done.status == 0, done.err
    values = done.values
    assert values["matmul/bf16/sustained"] == pytest.approx(750e12)
    assert values["matmul/bf16/sustained/mfu"] == pytest.approx(750 / 989.4, rel=1e-3)
    assert values["matmul/fp8_e4m3/burst"] == pytest.approx(750e12)
    assert values["memory/triad"] == pytest.approx(4.2e12)
    assert values["memory/triad/of_peak"] == pytest.approx(4.2 / 4.8)
    assert values["host/h2d_pinned"] == pytest.approx(55e9)
    assert done.data["verdict"] == "healthy"
    assert done.data["units"]["memory/triad"] == "byte/s"
    assert os.listdir(tmp_path) == ["bench-h200-sxm-141gb.json"]
    profile = json.loads((tmp_path / "bench-h200-sxm-141gb.json").read_text())
    assert profile["complete"]
    assert profile["device"]["hardware"] == "h200-sxm-141gb"
    assert profile["summary"]["collectives"] is None


def test_every_published_term_folds_and_its_units_combine(h200: Any) -> None:
    from napkin.commands.command import ask, find
    from napkin.commands.signature import OptionText
    from napkin.term import MEASURED, OPS, fold

    h200()
    texts = {"what": (), "only": "matmul,memory,host", "quiet": True, "quick": True}
    answer = ask(find("bench"), {name: OptionText(text) for name, text in texts.items()})
    assert len(answer.terms) > 8
    for term in answer.terms:
        for node in term.walk():
            assert fold(node) == node.value
            assert not node.parts or OPS[node.op].unit([part.unit for part in node.parts]) == node.unit
        assert MEASURED in term.kinds()
        assert all(node.source for node in term.walk() if not node.parts)


@pytest.mark.parametrize(("mode", "seconds"), [("--quick", 30.0), ("", 115.0)])
def test_the_kernels_of_a_mode_leave_time_for_its_training_step(
    napkin: Napkin, h200: Any, tmp_path: Any, mode: str, seconds: float
) -> None:
    """Device time on a clock that takes its time to settle; 45 and 180 seconds are what the whole mode may take."""
    rates = {"bf16": 750e12, "fp8_e4m3": 1350e12, "tf32": 400e12}
    h200(lambda spec, at: spec.flops / rates[spec.dtype] * (1.05 if at % 40 > 3 else 1.0))
    assert napkin(f"bench {mode} --only matmul,memory,host --quiet -o p.json").status == 0
    profile = json.loads((tmp_path / "p.json").read_text())
    assert profile["elapsed_s"] < seconds
    searches = [case["elapsed_s"] for case in profile["cases"] if case["id"].endswith("/search")]
    assert max(searches) < 25


def test_a_person_reads_a_report(napkin: Napkin, h200: Any) -> None:
    h200()
    done = napkin("bench --quick --only matmul")
    assert done.status == 0
    for said in ("NVIDIA H200", "132 SMs", "MFU 0.76, good", "healthy", "690 W", "sw_power_cap 100% of the time"):
        assert said in done.out
    assert "bench: matmul measured" in done.err  # a plain line a group, where stderr is no terminal


def test_one_shape_is_answered_and_not_kept(napkin: Napkin, h200: Any, tmp_path: Any) -> None:
    h200()
    done = napkin("bench matmul 4096x8192x1024 --dtype bf16,fp8 --json")
    assert done.status == 0, done.err
    assert done.values["matmul/bf16/4096x8192x1024/sustained"] == pytest.approx(750e12)
    assert done.values["matmul/bf16/4096x8192x1024/sustained/mfu"] == pytest.approx(0.758, abs=1e-3)
    assert done.values["matmul/fp8_e4m3/4096x8192x1024/burst"] == pytest.approx(750e12)
    assert os.listdir(tmp_path) == []


def test_output_names_the_profile(napkin: Napkin, h200: Any, tmp_path: Any) -> None:
    h200()
    done = napkin("bench matmul 4096x8192x1024 -o mine.json")
    assert done.status == 0
    assert "bf16 4096x8192x1024" in done.out
    assert json.loads((tmp_path / "mine.json").read_text())["kind"] == "bench-profile"


def test_a_models_own_shapes(napkin: Napkin, h200: Any) -> None:
    h200()
    done = napkin("bench matmul --model llama3-8b --tp 8 --micro-batch 1 --seq 8192 --json")
    assert done.status == 0, done.err
    assert done.values["matmul/bf16/model"] == pytest.approx(750e12)
    assert done.values["matmul/bf16/model/mfu"] == pytest.approx(0.758, abs=1e-3)
    assert done.values["matmul/bf16/model_attention"] == pytest.approx(500e12)


def test_resume_measures_only_what_is_missing(napkin: Napkin, h200: Any) -> None:
    h200()
    assert napkin("bench --quick --only matmul -o p.json --quiet").status == 0
    device = h200()
    assert napkin("bench --quick --only matmul,memory -o p.json --resume --quiet").status == 0
    assert device.launched < 200  # the memory cases alone


def test_an_interrupted_run_reports_what_it_has(
    napkin: Napkin, h200: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = h200()
    monkeypatch.setattr(device, "stream", lambda operation, size: (_ for _ in ()).throw(KeyboardInterrupt))
    done = napkin("bench --quick --only matmul,memory -o p.json --quiet")
    assert done.status == 130
    assert "750.0 TFLOP/s" in done.out
    assert "incomplete" in done.out
    profile = json.loads((tmp_path / "p.json").read_text())
    assert not profile["complete"]
    assert [c["status"] for c in profile["cases"]][-1] == "interrupted"


def test_sigterm_ends_the_run_with_143(napkin: Napkin, h200: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import signal

    device = h200()
    original = device.stream

    def stream(operation: str, size: int) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return original(operation, size)

    monkeypatch.setattr(device, "stream", stream)
    assert napkin("bench --quick --only memory -o p.json --quiet").status == 143


V100 = DeviceInfo("cuda", "Tesla V100-SXM2-32GB", 34_089_730_048, 80, 6 << 20, (7, 0))


def test_a_device_without_bf16_is_measured_in_fp16(napkin: Napkin, h200: Any) -> None:
    h200(info=V100)
    done = napkin("bench --quick --only matmul --json --quiet")
    assert done.status == 0
    assert {path.split("/")[1] for path in done.values if path.startswith("matmul/")} == {"fp16", "fp32"}
    assert any("fp16 is measured instead" in note for note in done.data["notes"])
    assert napkin("bench matmul 4096x4096x4096 --json --quiet").values["matmul/fp16/4096x4096x4096/burst"] > 0


def test_what_does_not_exist_here_is_status_3_with_the_reason(napkin: Napkin, h200: Any) -> None:
    h200(info=V100)
    done = napkin("bench matmul 4096x4096x4096 --dtype bf16 --quiet")
    assert done.status == 3
    assert "needs compute capability 8.0" in done.out


def test_the_profile_is_no_stream(napkin: Napkin, h200: Any) -> None:
    h200()
    assert napkin("bench --quick -o -").status == 2


def test_no_cuda_is_status_5_with_one_line_and_no_file(napkin: Napkin, monkeypatch: Any, tmp_path: Any) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.chdir(tmp_path)
    for line in (
        "bench",
        "bench matmul 64x64x64",
        "bench step --model llama3-8b",
        "bench collectives",
        "bench --device cuda:3",
    ):
        done = napkin(line)
        assert done.status == 5
        assert done.out == ""
        assert done.errors == ["error: no CUDA device"]
        assert len(done.hints) == 1
        assert "--device cpu" in done.hints[0]
    assert os.listdir(tmp_path) == []


def test_no_torch_is_status_5_and_says_how_to_get_it(napkin: Napkin, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    done = napkin("bench")
    assert done.status == 5
    assert "torch is not installed" in done.errors[0]
    assert "[bench]" in done.hints[0]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("bench matmull", "cannot measure 'matmull'"),
        ("bench matmul 12x12", "is not a shape MxKxN"),
        ("bench matmul 0x4x4", "0"),
        ("bench matmul 4x4xabc", "abc"),
        ("bench matmul 9999999x4x4", "is not a shape MxKxN"),
        ("bench --dtype bf61", "unknown 'bf61'"),
        ("bench --only matmul,disk", "unknown 'disk'"),
        ("bench --only ,", "names nothing"),
        ("bench --quick --full", "cannot be combined"),
        ("bench --data ones", "neither normal nor zeros"),
        ("bench --tp 8", "--model is missing"),
        ("bench step", "--model is missing"),
        ("bench memory 4x4x4", "unexpected '4x4x4'"),
        ("bench matmul --model llama3-8b --tp 3", "does not divide"),
        ("bench step --model llama3-8b --precision bf16-mixed", "not in 'bf16-mixed'"),
        ("bench step --model llama3-8b --recompute selective", "measures none and full"),
        ("bench --hardware h2000", "unknown accelerator"),
        ("bench --time-limit 180", "180"),
        ("bench compare one.json", "takes two profiles"),
        ("bench compare none.json none.json", "none.json"),
        ("bench --quick -o /no/such/folder/p.json", "cannot be written"),
    ],
)
def test_errors_are_reported_before_anything_is_measured(napkin: Napkin, h200: Any, line: str, said: str) -> None:
    device = h200()
    done = napkin(line)
    assert done.status == 2, done.err
    assert said in done.errors[0]
    assert device.launched == 0


def test_compare_shows_what_changed(napkin: Napkin, h200: Any) -> None:
    h200()
    napkin("bench --quick --only matmul -o a.json --quiet")
    h200(lambda spec, at: spec.flops / 700e12)
    napkin("bench --quick --only matmul -o b.json --quiet")
    done = napkin("bench compare a.json b.json")
    assert done.status == 0, done.err
    assert "-6.7%" in done.out
    assert "6 of 6 figures differ beyond noise" in done.out
    assert napkin("compare a.json b.json").out == done.out
    same = napkin("bench compare a.json a.json --json")
    assert same.data["verdict"] == "same"
    assert same.data["rows"]


@pytest.mark.parametrize(
    ("info", "slug"),
    [
        (H200, "h200-sxm-141gb"),
        (DeviceInfo("cuda", "NVIDIA H100 80GB HBM3", 85_029_158_912, 132), "h100-sxm-80gb"),
        (DeviceInfo("cuda", "NVIDIA H100 80GB HBM3", 10 << 30, 16), None),  # a slice of one
        (DeviceInfo("cuda", "NVIDIA H200", 150_110_011_392, 132, mig=True), None),
        (DeviceInfo("rocm", "AMD Instinct MI250X", 64 << 30, 110), "mi250x-gcd"),  # one of the two in a package
        (DeviceInfo("cuda", "Nvidia Unheard-of", 1 << 37, 132), None),
        (DeviceInfo("cpu", "NVIDIA H200", 150_110_011_392), None),
    ],
)
def test_a_device_takes_its_own_datasheet_or_none(info: DeviceInfo, slug: str | None) -> None:
    from napkin.bench.run import matched
    from napkin.inputs.hardware import shipped

    found = matched(info, shipped())
    assert (found.slug if found else None) == slug


def test_an_unknown_gpu_has_rates_but_no_mfu(napkin: Napkin, h200: Any) -> None:
    h200(info=DeviceInfo("cuda", "Unheard-of 9000", 1 << 37, 132, 50 << 20, (9, 0)))
    done = napkin("bench --quick --only matmul --json")
    assert done.status == 0
    assert "matmul/bf16/sustained" in done.values
    assert "matmul/bf16/sustained/mfu" not in done.values
    assert any("no datasheet peak" in note for note in done.data["notes"])
