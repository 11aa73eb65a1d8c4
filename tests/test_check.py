"""Limits: what holds, what is broken, what is too close to call, and the statuses of several files."""

from __future__ import annotations

import itertools
import json
import pathlib
from typing import Any

import pytest

from napkin.inputs import limits as check
from napkin.units import Unreadable
from tests.conftest import Napkin

RUN = "command: train-time\nparams: 70B\ntokens: 15T\ngpus: 1024\nhardware: h100\nmfu: 0.5\n"


@pytest.mark.parametrize(
    ("condition", "unit", "value", "status"),
    [
        ("<= 150d", "second", 143.9 * 86400, "holds"),
        ("<= 100d", "second", 143.9 * 86400, "broken"),
        (">= 30B", "param", 40 * 10**9, "holds"),
        ("30B .. 50B", "param", 40 * 10**9, "holds"),
        ("30B .. 39B", "param", 40 * 10**9, "broken"),
        ("== 8030261248", "param", 8030261248, "holds"),
        ("== 8030261248", "param", 8030261249, "broken"),
        ("== 144d ± 1%", "second", 143.9 * 86400, "holds"),
        ("== 144d ± 1h", "second", 143.9 * 86400, "broken"),
        ("== 144d +- 3h", "second", 143.9 * 86400, "holds"),
        ("< 72GiB", "byte", 72 * 2**30, "broken"),
        ("<= 72 GiB", "byte", 72 * 2**30, "holds"),
        ("> 0.3", "1", 0.31, "holds"),
        ("<= 50%", "1", 0.5, "holds"),
    ],
)
def test_a_value_against_a_condition(condition: str, unit: str, value: float, status: str) -> None:
    assert check.judge("x", check.read_limit(condition, unit), value, unit, None).status == status


@pytest.mark.parametrize(
    ("condition", "interval", "status"),
    [
        ("<= 100", (80, 99), "holds"),
        ("<= 100", (80, 101), "close"),
        ("<= 100", (101, 120), "broken"),
        (">= 100", (80, 101), "close"),
        ("90 .. 110", (95, 105), "holds"),
        ("90 .. 110", (85, 105), "close"),
        ("90 .. 110", (111, 120), "broken"),
    ],
)
def test_an_estimate_is_close_where_the_limit_lies_inside_its_interval(
    condition: str, interval: tuple[float, float], status: str
) -> None:
    middle = sum(interval) / 2
    assert check.judge("x", check.read_limit(condition, "1"), middle, "1", interval).status == status


@pytest.mark.parametrize("condition", ["150d", "=< 3", "<=", "<= 80G", "5 .. 3", "", 30, None, ["<= 3"], "<= x"])
def test_an_invalid_condition_is_reported(condition: Any) -> None:
    with pytest.raises(Unreadable):
        check.read_limit(condition, "byte")


def write(folder: pathlib.Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_statuses_over_several_files(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    holds = write(tmp_path, "holds.yaml", RUN + 'limits: {time: "<= 150d"}\n')
    broken = write(tmp_path, "broken.yaml", RUN + 'limits: {time: "<= 100d"}\n')
    wrong = write(tmp_path, "wrong.yaml", RUN + 'limits: {tme: "<= 100d"}\n')
    assert napkin(["check", holds]).status == 0
    assert napkin(["check", holds, broken]).status == 1
    outcome = napkin(["check", holds, broken, wrong, "--json"])
    assert outcome.status == 2
    assert [c["status"] for c in outcome.data["checks"]] == ["holds", "broken"]
    assert "wrong.yaml:7: limits.tme" in outcome.errors[0]
    assert "did you mean time" in outcome.hints[0]


def test_which_status_wins(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    """Not answerable (3) over wrong (2), wrong over broken (1), broken over close (4), close over holding (0)."""
    question = RUN.replace("mfu: 0.5\n", "")
    files = {
        3: write(tmp_path, "refused.yaml", RUN.replace("h100", "v100\ndtype: bf16") + 'limits: {time: "<= 1d"}\n'),
        2: write(tmp_path, "wrong.yaml", RUN + 'limits: {tme: "<= 100d"}\n'),
        1: write(tmp_path, "broken.yaml", RUN + 'limits: {time: "<= 100d"}\n'),
        4: write(tmp_path, "close.yaml", question + 'limits: {time: "<= 200d"}\n'),
        0: write(tmp_path, "holds.yaml", RUN + 'limits: {time: "<= 150d"}\n'),
    }
    for status, file in files.items():
        assert napkin(["check", file]).status == status
    for wins, loses in itertools.combinations(files, 2):
        for pair in ((wins, loses), (loses, wins)):
            assert napkin(["check", *(files[status] for status in pair)]).status == wins


def test_json_rows_of_the_contract(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    path = write(tmp_path, "run.yaml", RUN + 'limits: {time: "<= 100d", gpus: "== 1024"}\n')
    first = napkin(["check", path, "--json"]).data["checks"][0]
    assert set(first) == {"file", "line", "path", "limit", "value", "low", "high", "status"}
    assert (first["file"], first["line"]) == (path, 7)
    assert first["path"] == "time"
    assert first["status"] == "broken"


def test_text_says_by_how_much(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    path = write(tmp_path, "run.yaml", RUN + 'limits: {time: "<= 100d"}\n')
    out = napkin(["check", path]).out
    assert "broken  time      143.9 days  <= 100d  by 43.94 days (30.5%)" in out


def test_what_to_do_next_is_about_a_broken_limit_before_one_that_is_close(
    napkin: Napkin, tmp_path: pathlib.Path
) -> None:
    run = "command: memory\nmodel: llama3-8b\ngpus: 8\nhardware: h100\nzero: 3\n"
    path = write(tmp_path, "run.yaml", run + 'limits: {memory/total: "<= 60GiB", memory/live: "<= 1GiB"}\n')
    said = napkin(["check", path, "-v"])
    assert said.status == 1
    assert "--limit 'memory/live <= 1GiB'" in said.out
    assert "\nquantities\n" not in said.out  # a list of limits has none


def test_a_list_of_checks_has_its_own_limits_each(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    one = "  - {command: train-time, params: 70B, tokens: 15T, gpus: 1024, hardware: h100, mfu: 0.5, "
    path = write(
        tmp_path, "list.yaml", f'checks:\n{one}limits: {{time: "<= 150d"}}}}\n{one}limits: {{time: "<= 100d"}}}}\n'
    )
    outcome = napkin(["check", path, "--json"])
    assert outcome.status == 1
    assert [c["status"] for c in outcome.data["checks"]] == ["holds", "broken"]


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        (RUN, 2, ["limits"]),
        ('params: 70B\nlimits: {time: "<= 1d"}\n', 2, ["command", "missing"]),
        (RUN + "limits: {}\n", 2, ["limits"]),
        (RUN + "limits:\n  time: >= 30d\n", 2, [":8:", "not YAML"]),
        (RUN + "limits: {time: 30}\n", 2, ["run.yaml:7", "not a condition"]),
        (RUN + 'gpux: 3\nlimits: {time: "<= 1d"}\n', 2, ["run.yaml:7: gpux", "no such option"]),
        (RUN.replace("train-time", "train-tim") + 'limits: {time: "<= 1d"}\n', 2, ["run.yaml:1", "no such command"]),
        (RUN.replace("mfu: 0.5", "mfu: 50") + 'limits: {time: "<= 1d"}\n', 2, ["run.yaml:6: mfu", "share"]),
        (RUN.replace("h100", "v100\ndtype: bf16") + 'limits: {time: "<= 1d"}\n', 3, ["run.yaml", "no bf16"]),
        ("- 1\n", 2, ["mapping"]),
        ("checks: []\n", 2, ["checks"]),
        ("checks: [3]\n", 2, ["checks"]),
        ("checks: [{command: train-time}]\nparams: 3\n", 2, ["next to checks"]),
        ('command: check\nlimits: {time: "<= 1d"}\n', 2, ["itself"]),
        ("", 2, ["mapping"]),
    ],
)
def test_bad_run_files(napkin: Napkin, tmp_path: pathlib.Path, text: str, status: int, words: list[str]) -> None:
    path = write(tmp_path, "run.yaml", text)
    outcome = napkin(["check", path])
    assert outcome.status == status, outcome.err
    assert len(outcome.errors) == 1
    for word in words:
        assert word in outcome.err


def test_an_unquoted_condition_gets_its_own_hint(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    path = write(tmp_path, "run.yaml", RUN + "limits:\n  time: >= 30d\n")
    assert "quote" in napkin(["check", path]).hints[0]


def test_the_shipped_run_files_hold(napkin: Napkin) -> None:
    outcome = napkin("check configs/runs/lecture-time.yaml configs/runs/lecture-memory.yaml --json")
    assert outcome.status == 0
    assert {c["status"] for c in outcome.data["checks"]} == {"holds"}


def test_a_run_file_gives_the_options_and_the_command_line_wins(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    path = write(tmp_path, "run.yaml", RUN)
    data = json.loads(napkin(["train-time", "--run", path, "--gpus", "2048", "--json"]).out)
    assert data["inputs"]["gpus"] == {"value": 2048, "origin": "given", "given": "2048"}
    assert data["inputs"]["tokens"]["origin"] == "run file"
    outcome = napkin(["max-params", "--run", path])
    assert outcome.status == 2
    assert "the file is for 'train-time'" in outcome.err


def test_a_run_file_chooses_the_form_and_names_no_other(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    path = write(tmp_path, "form.yaml", RUN + "json: true\n")
    assert json.loads(napkin(["train-time", "--run", path]).out)["command"] == "train-time"
    assert napkin(["train-time", "--run", path, "--csv"]).out.startswith("path,value,unit")
    nested = write(tmp_path, "nested.yaml", RUN + f"run: {path}\n")
    outcome = napkin(["train-time", "--run", nested])
    assert outcome.status == 2
    assert "nested.yaml" in outcome.err
    assert "run: a run file names no other" in outcome.err


def test_a_command_that_is_no_name_is_not_sent_to_check(tmp_path: pathlib.Path, napkin: Napkin) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("command: [memory]\nmodel: gpt2\nlimits:\n  memory/used: 10GiB\n")
    found = napkin(f"check {file}")
    assert found.status == 2
    assert "command: is not the name of a command" in found.errors[0]
    assert "napkin check" not in found.err


def test_a_file_without_limits_is_told_its_other_mistakes_too(tmp_path: pathlib.Path, napkin: Napkin) -> None:
    path = write(tmp_path, "run.yaml", "command: train-time\nparamz: 70B\n")
    found = napkin(f"check {path}")
    assert found.status == 2
    assert "limits: a mapping from path to condition is missing" in found.err
    assert "run.yaml:2: paramz: train-time has no such option" in found.err


FITS = "command: memory\nmodel: llama3-8b\ngpus: 8\nhardware: h100\nzero: 3\nlimits: {memory/used: '<= 80GB'}\n"


@pytest.mark.parametrize(
    ("more", "same"),
    [
        ("gradient_checkpointing: true", "recompute: full"),
        ("use_liger_kernel: true", "kernels: liger"),
        ("attn_implementation: flash_attention_2", "attention: flash"),
        ("per_device_train_batch_size: 2", "micro_batch: 2"),
    ],
)
def test_an_option_of_another_tool_means_in_a_run_file_what_it_means_on_the_command_line(
    tmp_path: pathlib.Path, napkin: Napkin, more: str, same: str
) -> None:
    values = []
    for line in (more, same):
        (tmp_path / "run.yaml").write_text(FITS + line + "\n")
        values.append(napkin(f"check {tmp_path / 'run.yaml'} --json").data["checks"][0]["value"])
    assert values[0] == values[1]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("bf16: true", "bf16: is not an option of napkin"),
        ("gradient_checkpointing: true\nrecompute: none", "recompute: is given twice under two spellings"),
        ("fsdp: full_shard", "fsdp: is given twice under two spellings"),
        ("micro_bach: 2", "micro_bach: memory has no such option"),
        ("layout: {tp: 2}", "layout: memory has no such option"),
        ("name: [a, b]", "name: is not a text"),
    ],
)
def test_a_key_of_a_run_file_that_is_not_understood_is_refused(
    tmp_path: pathlib.Path, napkin: Napkin, more: str, said: str
) -> None:
    (tmp_path / "run.yaml").write_text(FITS + more + "\n")
    outcome = napkin(f"check {tmp_path / 'run.yaml'}")
    assert outcome.status == 2
    assert said in outcome.err
