"""Run files that name launch files: every command that reads run files follows `from:`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Napkin

LAUNCH = """base_model: NousResearch/Meta-Llama-3-8B
sequence_len: 4096
sample_packing: true
micro_batch_size: 2
gradient_accumulation_steps: 4
num_epochs: 1
bf16: true
gradient_checkpointing: true
"""


@pytest.fixture
def run_file(tmp_path: Path) -> str:
    """Return a run file whose model and batch stand in a launch file."""
    (tmp_path / "train.yaml").write_text(LAUNCH)
    path = tmp_path / "run.yaml"
    path.write_text(f"command: memory\nfrom: {tmp_path}/train.yaml\nhardware: h100\ngpus: 8\nzero: 3\n")
    return str(path)


def test_check_holds_limits_on_what_its_launch_file_states(napkin: Napkin, run_file: str) -> None:
    plain = napkin(["memory", "--run", run_file]).status
    kept = napkin(["memory", "--run", run_file, "--json"]).values["memory/parameters"]
    with open(run_file, "a") as out:
        out.write(f"limits: {{memory/parameters: '== {kept}B', verdict: fits}}\n")
    assert plain == 0
    found = napkin(["check", run_file, "--json"])
    assert [one["status"] for one in found.data["checks"]] == ["holds", "holds"], found.err
    text = Path(run_file).read_text()
    Path(run_file).write_text(text.replace("train.yaml", "gone.yaml"))
    lost = napkin(["check", run_file])
    assert lost.status == 2
    assert "gone.yaml: No such file" in lost.err


def test_compare_lint_and_sensitivity_read_the_launch_file(napkin: Napkin, run_file: str) -> None:
    compared = napkin(["compare", run_file, run_file])
    assert "no difference" in compared.out
    linted = napkin(["lint", run_file, "--json"])
    assert linted.status == 0, linted.err
    with open(run_file, "a") as out:
        out.write("phases: [{steps: 10, micro-batch: 1}, {steps: 10, seq: 8192}]\n")
    assert "phase 2" in napkin(["lint", run_file]).out
    launch = run_file.replace("run.yaml", "train.yaml")
    found = napkin(["sensitivity", "memory", "--from", launch, "--hardware", "h100", "--gpus", "8", "--zero", "3"])
    assert found.status == 0, found.err
    assert "--from" in found.out


@pytest.mark.parametrize("named", ["[]", '""', "", "[a.yaml, 3]", "{a: b}"])
def test_a_run_file_that_names_no_launch_file_is_refused(napkin: Napkin, tmp_path: Path, named: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(f"command: memory\nmodel: llama3-8b\nfrom: {named}\nlimits: {{verdict: fits}}\n")
    found = napkin(["check", str(path)])
    assert found.status == 2
    assert "run.yaml:3: from: names no launch file" in found.err
