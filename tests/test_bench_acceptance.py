"""The GPU acceptance script, rehearsed on the CPU: its code runs, its verdict follows from its checks."""

from __future__ import annotations

import importlib.util
import json
import os
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import ROOT

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def script() -> Any:
    path = os.path.join(ROOT, "benchmarks", "gpu_acceptance.py")
    spec = importlib.util.spec_from_file_location("gpu_acceptance", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["gpu_acceptance"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.set_num_threads(before)


def test_a_rehearsal_runs_the_steps_and_judges_no_figure(script: Any, tmp_path: Any) -> None:
    path = tmp_path / "a.json"
    assert script.main(["--rehearse", "--steps", "0,1,2,3,4,7,8,13", "-o", str(path)]) == 0
    report = json.loads(path.read_text())
    assert report["verdict"] == "rehearsal"
    assert report["count"]["fail"] == 0
    steps = {check["name"].partition(":")[0] for check in report["checks"]}
    assert steps == {"environment", "plain_loop", "other_method", "zeros", "formats", "bandwidths", "training", "tf32"}
    assert not [check for check in report["checks"] if check["status"] == "pass" and check["high"] is not None]


def test_a_broken_step_fails_the_verdict_and_not_the_run(script: Any, tmp_path: Any, monkeypatch: Any) -> None:
    def broken(rig: Any) -> Iterator[Any]:
        """Breaks."""
        yield script.holds("begins", True)
        raise RuntimeError("CUDA error: device-side assert")

    monkeypatch.setattr(script, "STEPS", (script.Step(1, 5, broken), script.Step(7, 5, script.bandwidths)))
    path = tmp_path / "a.json"
    assert script.main(["--rehearse", "--steps", "1,7", "-o", str(path)]) == 1
    report = json.loads(path.read_text())
    assert report["verdict"] == "fail"
    assert [check["status"] for check in report["checks"]][:2] == ["pass", "fail"]
    assert any(check["name"].startswith("bandwidths") for check in report["checks"])


def test_steps_beyond_the_budget_are_skipped_with_a_note(script: Any, tmp_path: Any) -> None:
    path = tmp_path / "a.json"
    assert script.main(["--rehearse", "--steps", "6,7", "--budget", "20", "-o", str(path)]) == 0
    statuses = {check["name"].partition(":")[0]: check["status"] for check in json.loads(path.read_text())["checks"]}
    assert statuses["exhaustive"] == "skipped"
    assert statuses["bandwidths"] == "recorded"


def test_a_figure_outside_its_range_fails(script: Any) -> None:
    assert script.within("x", 0.97, 0.98, 1.02).status == "fail"
    assert script.within("x", 1.0, 0.98, 1.02).status == "pass"
    assert script.within("x", 1.03, None, 1.01).status == "fail"
    for spans in script.RANGES.values():
        assert all(low < high for low, high in spans.values())


def test_without_a_gpu_the_script_says_so(script: Any, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert script.main([]) == 5
    assert "no CUDA device" in capsys.readouterr().err


def test_napkins_own_runs_come_before_the_script_has_a_context(script: Any, tmp_path: Any, monkeypatch: Any) -> None:
    """The driver would list the script as another process, and an idle GPU would be called contended."""
    opened = []
    original = script.Rig.napkin

    def first(rig: Any, *words: Any, **more: Any) -> Any:
        opened.append(rig.opened)
        return original(rig, *words, **more)

    monkeypatch.setattr(script.Rig, "napkin", first)
    assert [step.run for step in script.STEPS[:2]] == [script.contention, script.own_run]
    path = tmp_path / "a.json"
    assert script.main(["--rehearse", "--steps", "5,10", "-o", str(path)]) == 0
    assert opened == [False]
    assert json.loads(path.read_text())["device"]["kind"] == "cpu"


def test_a_stranger_on_the_device_fails_the_run_of_its_own(script: Any, monkeypatch: Any) -> None:
    rig = script.Rig(rehearsal=False)
    profile = SimpleNamespace(flags=["contended"], notes=["1 other processes compute on this device"])
    monkeypatch.setattr(rig, "napkin", lambda *a, **k: None)
    monkeypatch.setattr(script, "read_profile", lambda path: profile)
    checks = script.own_run(rig)
    assert next(checks).name == "alone on the device"
    refused = next(checks)
    assert (refused.name, refused.status) == ("not contended", "fail")
    assert refused.note == "1 other processes compute on this device"


def test_the_plan_stays_below_eight_minutes(script: Any) -> None:
    assert sum(step.seconds for step in script.STEPS) < 480
    assert sorted(step.number for step in script.STEPS) == list(range(15))
