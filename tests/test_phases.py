"""`phases:` of a run file: parts add up in time, and the worst counts in memory."""

from __future__ import annotations

import pathlib

import pytest

from napkin.term import fold
from tests.conftest import ROOT, Napkin

BASE = "params: 7B\ngpus: 256\nhardware: h100\nmfu: 0.4\nprice: 2\n"
PHASES = """phases:
  - {name: first, tokens: 400B, gpus: 128}
  - {name: rest, tokens: 600B}
"""


@pytest.fixture
def run_file(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "run.yaml"


def test_times_and_costs_add_up_by_hand(napkin: Napkin, run_file: pathlib.Path) -> None:
    """6·7e9·400e9 FLOP on 128 GPUs at 0.4 of 989.4e12, then 600e9 tokens on 256."""
    run_file.write_text(BASE + PHASES)
    data = napkin(f"train-time --run {run_file} --json").data
    values = data["values"]
    first, rest = (6 * 7e9 * tokens / (989.4e12 * 0.4 * gpus) for tokens, gpus in ((400e9, 128), (600e9, 256)))
    assert values["time"] == pytest.approx(first + rest, rel=1e-3)
    assert values["gpu_hours"] == pytest.approx((first * 128 + rest * 256) / 3600, rel=1e-3)
    assert values["cost"] == pytest.approx(2 * values["gpu_hours"])
    assert values["flops/total"] == pytest.approx(6 * 7e9 * 1e12)
    assert values["tokens"] == 1e12
    assert (values["gpus"], values["mfu"]) == (256, pytest.approx(0.4))
    assert [row["phase"] for row in data["rows"]] == ["first", "rest"]
    assert sum(row["time"] for row in data["rows"]) == pytest.approx(values["time"])


def test_one_phase_is_the_run(napkin: Napkin, run_file: pathlib.Path) -> None:
    run_file.write_text("model: llama3-8b\nhardware: h100\ngpus: 64\nphases:\n  - {tokens: 1T}\n")
    parts = napkin(f"plan --run {run_file} --json").data
    whole = napkin("plan llama3-8b --hardware h100 --gpus 64 --tokens 1T --json").data
    for path in ("time", "time/uninterrupted", "goodput", "mfu", "gpu_hours"):
        assert parts["values"][path] == pytest.approx(whole["values"][path]), path
    assert parts["low"]["time"] == pytest.approx(whole["low"]["time"])


def test_memory_is_that_of_the_worst_phase(napkin: Napkin) -> None:
    path = f"{ROOT}/docs/examples/phases.yaml"
    data = napkin(f"memory --run {path} --recompute full --json").data
    totals = [data["values"][f"phase/{n}/memory/total"] for n in (1, 2, 3, 4)]
    assert data["values"]["memory/total"] == max(totals)
    assert data["notes"][0].startswith("the largest of 4 phases")
    assert data["verdict"] == "fits"


def test_limits_hold_of_the_whole_run(napkin: Napkin, run_file: pathlib.Path) -> None:
    run_file.write_text(BASE + "within: 20d\n" + PHASES)
    late = napkin(f"train-time --run {run_file} --json")
    assert (late.status, late.data["verdict"]) == (0, "holds")
    run_file.write_text("command: train-time\n" + BASE + PHASES + 'limits:\n  time: "<= 6d"\n  cost: "<= 300000"\n')
    checked = napkin(f"check {run_file} --json")
    assert checked.status == 1
    assert [one["status"] for one in checked.data["checks"]] == ["broken", "holds"]


def test_the_tree_of_a_run_in_parts(run_file: pathlib.Path) -> None:
    from napkin.commands.command import ask, find
    from napkin.commands.runfile import options_of_file

    run_file.write_text(BASE + PHASES)
    command = find("train-time")
    for term in ask(command, options_of_file(str(run_file), command)).terms:
        assert fold(term) == pytest.approx(term.value)


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        (BASE + "phases: 3\n", 2, "is not a list of mappings"),
        (BASE + "phases:\n  - {tokens: 1T, nonsense: 3}\n", 2, "no such option"),
        (BASE + "phases:\n  - {tokens: 1T, within: 3d}\n", 2, "belongs to the whole run"),
        (BASE + "tokens: 2T\n" + PHASES, 2, "a contradiction"),
        (BASE + "min: gpus\n" + PHASES, 2, "cannot be combined"),
        ("command: train-time\n" + BASE + "sp: true\n" + PHASES, 2, "--sp"),
    ],
)
def test_what_parts_cannot_be(napkin: Napkin, run_file: pathlib.Path, text: str, status: int, said: str) -> None:
    run_file.write_text(text)
    outcome = napkin(f"train-time --run {run_file}")
    assert outcome.status == status, outcome.err
    assert said in outcome.err
    assert len(outcome.errors) == 1


def test_phases_belong_in_a_file(napkin: Napkin) -> None:
    outcome = napkin("train-time --params 7B --tokens 1T --gpus 8 --hardware h100 --mfu 0.4 --phases 3")
    assert outcome.status == 2
    assert "run file" in outcome.errors[0]


def test_each_of_a_part_s_problems_has_its_hint(napkin: Napkin, run_file: pathlib.Path) -> None:
    run_file.write_text("model: gpt2\nhardware: h100\ntp: [16]\nzero: {}\n" + PHASES)
    found = napkin(f"memory --run {run_file}")
    assert found.status == 2
    assert len(found.errors) == len(found.hints) == 2


def test_an_option_of_one_part_that_changes_nothing_is_refused(napkin: Napkin, run_file: pathlib.Path) -> None:
    parts = PHASES.replace("tokens: 600B", "tokens: 600B, seq: 8192")
    run_file.write_text(f"command: train-time\n{BASE}{parts}")
    outcome = napkin(f"train-time --run {run_file}")
    assert outcome.status == 2
    assert "phases.1.seq: --seq has no effect here" in outcome.err
