"""Numbers that are none, or not of their kind, wherever a text may hold one: each is refused in one line."""

from __future__ import annotations

import pathlib

import pytest

from napkin.inputs.log import progress_of
from napkin.units import plain
from tests.conftest import Napkin

LONG = "9" * 5000
"""More digits than Python makes an int of."""
MEGATRON = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 2"
SERVING = """schema: serving/1
rows:
- {{id: a, model: {{name: llama3-8b}}, measured: {{itl_ms: {}}}}}
"""


def test_plain_digits_are_ascii_and_few() -> None:
    assert [plain(text) for text in ("0", "-7", "9" * 18)] == [0, -7, 10**18 - 1]
    assert [plain(text) for text in ("", "-", "--3", "+3", "²", "٣", "1_0", "9" * 19, LONG)] == [None] * 9


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("memory gpt2 --hardware h100 --confidence ８０", "'８０' is not a confidence level"),
        ("memory gpt2 --hardware h100 --confidence 80%%", "'80%%' is not a confidence level"),
        ("train-time gpt2 --price 50%", "'50%' is a share, not an amount"),
        ("optimal --compute 50%", "'50%' is a share, not an amount"),
        ("step gpt2 --hardware h100 --peak-flops 1m", "'1m' is ambiguous"),
        ("train-time gpt2 --hardware h100 --tdp 700mW", "'700mW' is in milliwatts"),
        ("sweep step gpt2 --hardware h100 --over gpus=1..8:x２", "'２' is not a factor"),
        (f"memory gpt2 --hardware h100 --optimizer galore:{LONG}", "is not a rank"),
        (f"memory --hardware h100 {MEGATRON.partition('.py ')[2]} --seq-length ²", "'²' is not a number"),
    ],
)
def test_a_number_of_another_kind_is_refused(napkin: Napkin, line: str, message: str) -> None:
    outcome = napkin(line)
    assert outcome.status == 2
    assert any(message in error for error in outcome.errors)


def test_shares_are_read_where_a_factor_belongs(napkin: Napkin) -> None:
    said = napkin("mfu gpt2 --hardware h100 --tokens-per-second-per-gpu 9000 --claimed-mfu 50% --json").data
    assert said["inputs"]["claimed-mfu"]["value"] == 0.5


def test_a_step_of_a_log_with_too_many_digits_is_none() -> None:
    assert progress_of("iteration 7/ 10") == (7, 10)
    assert progress_of(f"iteration {LONG}/ 10") is None
    assert progress_of(f"| {LONG}/3 [") is None
    assert progress_of(f"iteration 7/ {LONG}") == (7, None)


@pytest.mark.parametrize("test", ["[ ² -eq 3 ]", f"[ {LONG} -gt 3 ]", "[ --3 -eq 3 ]"])
def test_what_a_shell_script_compares_is_left_open(napkin: Napkin, tmp_path: pathlib.Path, test: str) -> None:
    path = tmp_path / "train.sh"
    path.write_text(f"if {test}; then S=64; else S=128; fi\n{MEGATRON} --seq-length $S\n")
    assert napkin(f"read --from {path}").status == 0


@pytest.mark.parametrize("figure", ["{'²': 10}", "{'1.5': 10}", "{'-1': 10}"])
def test_rows_of_serving_refuse_what_is_no_number_of_tokens(
    napkin: Napkin, tmp_path: pathlib.Path, figure: str
) -> None:
    path = tmp_path / "rows.yaml"
    path.write_text(SERVING.format(figure))
    outcome = napkin(f"validate {path} --json")
    assert outcome.status == 0
    assert "is not a number of tokens" in outcome.data["rows"][0]["why"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"n": 3, "n": 5}', "the key 'n' appears twice"),
        ('{"n": [[1, 2], [3]]}', "neither a list of token ids nor their number"),
        ('{"n": [-1]}', "neither a list of token ids nor their number"),
        ('{"n": [1, true]}', "neither a list of token ids nor their number"),
        ('{"n": [NaN]}', "neither a list of token ids nor their number"),
        ('[{"n": 3}, {"n": 4}]', "is not an object with fields"),
    ],
)
def test_samples_are_objects_with_token_ids(napkin: Napkin, tmp_path: pathlib.Path, text: str, message: str) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text(text)
    outcome = napkin(f"data lengths {path} --tokens-field n")
    assert outcome.status == 2
    assert f"{path}:1: {message}" in outcome.errors[0] or f"{path}:1: n is {message}" in outcome.errors[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id," + "x" * 200_000 + "\n", ":1: not CSV: field larger than field limit"),
        ("id,a.b,a\n", ":1: the column 'a' is empty"),
        ("id,a,a.b\n", ":1: the column 'a' is empty"),
        ("id,a,a\n", ":1: the column 'a' is empty"),
        ("id," + ",".join(f"c{at}" for at in range(50_000)) + "\n", ": no column says what was measured"),
    ],
)
def test_a_table_of_rows_has_columns_of_their_own(
    napkin: Napkin, tmp_path: pathlib.Path, text: str, message: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    outcome = napkin(f"validate {path}")
    assert (outcome.status, len(outcome.errors)) == (2, 1)
    assert f"{path}{message}" in outcome.errors[0]


def test_a_key_that_comes_twice_is_found_at_once(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("{" + ",".join(f'"k{at}": 1' for at in range(100_000)) + ', "k99999": 2}')
    outcome = napkin(f"params {path}")
    assert outcome.errors == [f"error: {path}:1: the key 'k99999' appears twice"]


def test_a_report_that_cannot_be_written_is_status_74(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    outcome = napkin(f"check configs/runs/lecture-time.yaml --junit {tmp_path}/none/report.xml")
    assert (outcome.status, len(outcome.errors)) == (74, 1)
