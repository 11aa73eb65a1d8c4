"""What scripts may rely on of run files and of files of rows, a promise a test: statuses, places, reasons."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.conftest import run_line
from tests.contract import refused

# --- check -----------------------------------------------------------------------------------------------------------

HOLDS = (
    "command: train-time\nparams: 70B\ntokens: 15T\ngpus: 1024\nhardware: h100\nmfu: 0.5\nlimits: {time: '<= 150d'}\n"
)
FILES = {
    0: HOLDS,
    1: HOLDS.replace("150d", "100d"),
    2: HOLDS.replace("params", "parms"),
    3: HOLDS.replace("h100", "v100\ndtype: bf16"),
    4: HOLDS.replace("mfu: 0.5\n", "").replace("150d", "240d"),
}


@pytest.mark.parametrize(
    ("several", "status"),
    [((0,), 0), ((1,), 1), ((2,), 2), ((3,), 3), ((4,), 4), ((0, 4), 4), ((4, 1), 1), ((1, 3), 3), ((2, 1, 4), 2)],
)
def test_the_status_of_several_files(write: Any, several: tuple[int, ...], status: int) -> None:
    paths = [write(f"{kind}.yaml", FILES[kind]) for kind in several]
    outcome = run_line(["check", *paths, "--json"])
    assert outcome.status == status
    if set(several) - {2, 3}:
        words = {0: "holds", 1: "broken", 4: "close"}
        found = [(os.path.basename(one["file"]), one["status"]) for one in outcome.data["checks"]]
        assert found == [(f"{kind}.yaml", words[kind]) for kind in several if kind in words]


def test_every_problem_of_every_check_is_a_line_with_a_hint(write: Any) -> None:
    path = write(
        "several.yaml",
        "checks:\n"
        "  - {command: train-time, parms: 7B, tokns: 1T, limits: {time: '<= 3d'}}\n"
        "  - {command: max-params, gpus: 8, hardware: h100, limits: {params/max: '>= 40B'}}\n"
        "  - {command: params, model: llama9, limits: {params/total: '== 5'}}\n",
    )
    outcome = run_line(["check", path, "--json"])
    assert outcome.status == 2
    assert len(outcome.errors) == len(outcome.hints) == 3
    assert [one["status"] for one in outcome.data["checks"]] == ["holds"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("params: 70B\nlimits: {time: '<= 3d'}\n", "command"),
        ("command: train-time\nparams: 70B\n", "limits"),
        (HOLDS.replace("time: '", "tyme: '"), "time"),
        (HOLDS.replace("150d", "150 bananas"), "bananas"),
        (HOLDS.replace("{time: '<= 150d'}", "\n  time: >= 150d"), "quote"),
        (HOLDS + "price: yes\n", "yes"),
        (HOLDS + "gpus: 8\n", "twice"),
        (HOLDS + "pue: 010\n", "octal"),
        ("".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else '1'] * 9)}]\n" for n in range(9)), "aliases"),
        ("- 1\n", "mapping"),
    ],
)
def test_a_run_file_that_is_wrong_names_the_place(write: Any, text: str, says: str) -> None:
    refused(run_line(["check", write("wrong.yaml", text)]), 2, says, "wrong.yaml")


# --- validate --------------------------------------------------------------------------------------------------------

ROWS = """schema: memory/1
rows:
- id: mine
  source: {title: a page}
  model: {params: 8030261248, layers: 32, hidden: 4096, heads: 32, kv_heads: 8, ffn: 14336, vocab: 128256, seq: 2048}
  hardware: {accelerator: H100, chip: H100 SXM 80GB, count: 8}
  layout: {dp: 8, fsdp: full, micro_batch: 1, recompute: full, recompute_kind: full, policy: bf16-mixed}
  memory: {bytes: 30000000000, what: allocated}
"""


def test_a_row_of_ones_own_is_predicted(write: Any) -> None:
    row = run_line(["validate", write("rows.yaml", ROWS), "--json"]).data["rows"][0]
    assert (row["id"], row["quantity"], row["measured"], row["source"]) == ("mine", "memory_allocated", 3e10, "a page")
    assert row["low"] <= row["predicted"] <= row["high"]
    assert row["error"] == pytest.approx(row["predicted"] / 3e10 - 1)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("hidden: 4096, ", "", "not stated"),
        (", chip: H100 SXM 80GB", ", chip: Foo 9", "unknown accelerator"),
        ("bytes: 30000000000", "gib: null", "prints"),
    ],
)
def test_a_row_that_cannot_be_predicted_says_why(write: Any, old: str, new: str, why: str) -> None:
    row = run_line(["validate", write("rows.yaml", ROWS.replace(old, new)), "--json"]).data["rows"][0]
    assert "predicted" not in row
    assert why in row["why"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("memory/1", "memory/9"),
        ("layers: 32", "layers: [1]"),
        ("layers: 32", "layers: many"),
        ("- id: mine\n  source", "- source"),
        (ROWS[ROWS.index("\n- id") :], " []\n"),
    ],
)
def test_a_file_of_rows_that_is_wrong_is_refused(write: Any, old: str, new: str) -> None:
    refused(run_line(["validate", write("rows.yaml", ROWS.replace(old, new))]), 2, "rows.yaml")
