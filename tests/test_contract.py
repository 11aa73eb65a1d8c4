"""What scripts may rely on of every answer, a promise a test: models, spellings, messages, JSON, origins."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.conftest import run_line
from tests.contract import COUNT, RUN, SMALL, changed, refused

ORIGINS = {
    *("given", "run file", "from file", "profile", "preset", "class default", "default", "derived", "evidence"),
    *("assumed", "solved"),
}


# --- MODEL -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["config.json", "folder/config.json", "no-suffix"])
def test_a_model_is_a_file_or_a_folder(write: Any, form: str) -> None:
    path = write(form, SMALL)
    asked = os.path.dirname(path) if form.startswith("folder") else path
    assert run_line(["params", asked, "--json"]).values["params/total"] == COUNT


YAML = "\n".join(f"  {k}: {str(v).lower()}" for k, v in SMALL.items())


@pytest.mark.parametrize(
    "text", [json.dumps(SMALL), f"name: mine\nsource: me\nconfig:\n{YAML}\n", YAML.replace("  ", "") + "\n"]
)
def test_a_model_is_read_from_standard_input(text: str) -> None:
    assert run_line("params - --json", stdin=text).values["params/total"] == COUNT


def test_what_the_config_omits_is_shown_as_class_default(write: Any) -> None:
    path = write("c.json", changed(num_key_value_heads=None))  # llama's default: as many as query heads
    answer = run_line(["params", path, "--json"]).data
    assert answer["values"]["params/total"] == COUNT + 4 * 2 * 256 * 128
    assert answer["inputs"]["hidden-act"] == {"value": "silu", "origin": "class default", "given": None}


@pytest.mark.parametrize(
    ("fields", "status", "says"),
    [
        ({"hidden_size": None}, 3, "hidden_size: is missing"),
        ({"num_hidden_layers": None}, 3, "num_hidden_layers: is missing"),
        ({"model_type": None}, 3, "model_type is missing"),
        ({"model_type": "lamma"}, 3, "llama"),
        ({"model_type": "kimi_vl", "turbo_mode": 3}, 3, "text_config"),
        ({"num_key_value_heads": None, "num_key_value_head": 4}, 3, "num_key_value_heads"),
        ({"hidden_act": "swiglu2"}, 3, "hidden_act"),
        ({"hidden_size": [256]}, 2, "not a whole number"),
        ({"hidden_size": 256.5}, 2, "not a whole number"),
        ({"hidden_size": -256}, 2, "not between"),
        ({"hidden_size": 10**30}, 2, "not between"),
    ],
)
def test_a_config_that_cannot_be_counted_says_why(write: Any, fields: dict[str, Any], status: int, says: str) -> None:
    refused(run_line(["params", write("c.json", changed(**fields))]), status, says, "c.json")


def test_a_field_can_be_vouched_for_and_is_shown(write: Any) -> None:
    answer = run_line(["params", write("c.json", changed(turbo_mode=3)), "--assume-ignorable", "turbo_mode", "--json"])
    assert answer.values["params/total"] == COUNT
    assert any("turbo_mode" in note for note in answer.data["notes"])
    assert answer.data["inputs"]["assume-ignorable"]["origin"] == "given"


@pytest.mark.parametrize(
    "fields", [{"n_embd": 256}, {"hidden_size": "256"}, {"bos_token_id": 1, "attention_dropout": 0.1}]
)
def test_agreeing_synonyms_numbers_as_text_and_irrelevant_fields_pass(write: Any, fields: dict[str, Any]) -> None:
    assert run_line(["params", write("c.json", changed(**fields)), "--json"]).values["params/total"] == COUNT


def test_a_quantised_checkpoint_and_a_vision_tower_are_noted(write: Any) -> None:
    stored = run_line(["params", write("q.json", changed(quantization_config={"quant_method": "fp8"})), "--json"])
    assert stored.values["params/total"] == COUNT
    assert any("stored as fp8" in note for note in stored.data["notes"])
    seeing = {"model_type": "llava", "text_config": SMALL, "vision_config": {"hidden_size": 96}}
    answer = run_line(["params", write("v.json", seeing), "--json"])
    assert answer.values["params/total"] == COUNT
    assert answer.values["params/vision"] > 0
    assert any("params/vision" in note for note in answer.data["notes"])
    unknown = {"model_type": "llava", "text_config": SMALL, "vision_config": {"model_type": "unheard_of"}}
    notes = run_line(["params", write("w.json", unknown), "--json"]).data["notes"]
    assert any("vision" in note and "are not" in note for note in notes)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1, 2]",
        '{"model_type": "llama", "model_type": "llama"}',
        '{"model_type": "llama", "hidden_size": NaN}',
        '{"model_type": "llama", "hidden_size": 1e999}',
        "[" * 5000 + "]" * 5000,
        '{"model_type": "llama", "x": ' + "9" * 6000 + "}",
        "x" * 10_000_000,
        '{"x": "' + "y" * 17_000_000 + '"}',
    ],
    ids=["empty", "open", "list", "twice", "nan", "infinite", "deep", "long number", "junk", "too large"],
)
def test_a_hostile_file_is_wrong_in_one_line(write: Any, text: str) -> None:
    outcome = run_line(["params", write("c.json", text)])
    refused(outcome, 2)
    assert len(outcome.errors) == len(outcome.hints) == 1
    assert max(map(len, outcome.err.splitlines())) <= 4000


def test_messages_escape_control_characters(write: Any) -> None:
    outcome = run_line(["params", write("c.json", changed(**{"bad\x1b[31m\n": 1})), "--strict-config"])
    refused(outcome, 3, "\\x1b[31m\\n")
    assert "\x1b" not in outcome.err


@pytest.mark.slow
def test_a_million_layers_count_like_four(write: Any) -> None:
    total = run_line(["params", write("c.json", changed(num_hidden_layers=10**6)), "--json"]).values["params/total"]
    assert total == 725_504 * 10**6 + 512_256
    mixed = changed(num_hidden_layers=1000, model_type="gemma2", head_dim=32)  # two kinds of layer by turns
    assert run_line(["memory", write("m.json", mixed), "--json"]).values["memory/total"] > 0


# --- quantities ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "path", "value"),
    [
        ("--params 70b", "params", 70_000_000_000),
        ("--params '70 B'", "params", 70_000_000_000),
        ("--params 70_000", "params", 70_000),
        ("--params 1.5e12", "params", 1_500_000_000_000),
        ("--params 4Ki", "params", 4096),
        ("--gpus 1k", "gpus", 1000),
        ("--gpus 512 --gpus 1024", "gpus", 1024),
        ("--mfu 50%", "mfu", 0.5),
        ("--params 123456789012345678901234567890", "params", 123456789012345678901234567890),
    ],
)
def test_spellings_that_are_read(options: str, path: str, value: float) -> None:
    assert run_line(f"{RUN} --mfu 0.5 {options} --json").values[path] == value


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--params 70,000", "commas"),
        ("--params 0x10", "hexadecimal"),
        ("--params ٧٠", "not a number"),
        ("--params 1m", "1M for million"),
        ("--params nan", "not a number"),
        ("--params inf", "not a number"),
        ("--params -1", "not above zero"),
        ("--params 0", "above zero"),
        ("--params 1e400", "out of range"),
        ("--gpus 1.5", "whole number"),
        ("--mfu 50", "50% is 0.5"),
        ("--mfu 1.2", "share"),
        ("--within 30", "30s, 30h or 30d"),
        ("--memory-size 80G", "80GB (1000s) or 80GiB (1024s)"),
        ("--dtype bf61", "bf16"),
        ("--hardware h1000", "h100"),
        ("--dtpye bf16", "--dtype"),
        ("--budget 100 --hardware mi250x", "--price"),
    ],
)
def test_spellings_that_are_refused(options: str, says: str) -> None:
    refused(run_line(f"{RUN} --mfu 0.5 {options}"), 2, says)


@pytest.mark.parametrize("words", ["tran-time", "--hlep", "train-time llama3-8bb --tokens 1T --gpus 8 --hardware h100"])
def test_unknown_words_are_refused(words: str) -> None:
    refused(run_line(words), 2)


def test_8k_is_8000_and_the_note_names_8ki() -> None:
    answer = run_line("flops gpt2 --seq 8k --json").data
    assert answer["inputs"]["seq"]["value"] == 8000
    assert any("8Ki" in note and "8,192" in note for note in answer["notes"])


def test_an_accelerator_without_the_figure_is_refused_as_unknown() -> None:
    refused(run_line(f"{RUN} --mfu 0.5 --hardware v100 --dtype bf16"), 3, "bf16", "fp16")
    answer = run_line(f"{RUN} --mfu 0.5 --hardware v100 --json").data
    assert answer["inputs"]["dtype"] == {"value": "fp16", "origin": "default", "given": "fp16"}


# --- JSON ------------------------------------------------------------------------------------------------------------

ANSWERS = (
    f"{RUN} --mfu 0.5 --price 2",
    RUN,
    f"{RUN} --confidence 80",
    "train-time --params 1e250 --tokens 1e250 --gpus 8 --hardware h100 --mfu 0.5",
    "max-params --gpus 8 --hardware h100",
    "params gpt2",
    "flops gpt2",
    "memory gpt2 --hardware a100 --gpus 8 --zero 2",
    "step gpt2 --hardware a100 --gpus 8",
    "mfu gpt2 --tokens-per-second 100000 --gpus 8 --hardware a100",
    "roofline matmul 64x64x64 --hardware h100",
    "roofline gpt2 --hardware h100",
    "tensor 4x8 --dtype fp32",
    "dtype 1e-8",
    "data --tokens 15T --vocab 128256",
    "checkpoint --params 70B --write-bandwidth 10GB/s --mtbf 24h",
    "init --fan-in 4096 --depth 32",
    "optimizer adamw --shape 96x64 --param-dtype bf16",
    "hardware h100",
    "models gpt2",
)


@pytest.mark.parametrize("line", ANSWERS)
def test_json_is_one_object_of_finite_numbers_with_units_and_origins(line: str) -> None:
    outcome = run_line(f"{line} --json")
    assert outcome.status == 0

    def never(token: str) -> None:
        raise AssertionError(f"{token} is not a number of JSON")

    data = json.loads(outcome.out, parse_constant=never)
    assert data["napkin"] == 1
    assert data["command"] == line.split()[0]
    assert set(data["units"]) == set(data["values"])
    assert all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in data["values"].values())
    for name, one in data["inputs"].items():
        assert "_" not in name
        assert {"value", "origin", "given"} <= set(one) <= {"value", "origin", "given", "where"}
        assert one["origin"] in ORIGINS
    for path, low in data["values"].items():
        if path.endswith("/low"):
            assert low <= data["values"][path[: -len("low")] + "high"]


def test_an_overflowing_answer_is_left_out_with_a_note() -> None:
    answer = run_line("train-time --params 1e250 --tokens 1e250 --gpus 8 --hardware h100 --mfu 0.5 --json").data
    assert "time" not in answer["values"]
    assert any(note.startswith("time is out of range") for note in answer["notes"])


def test_counts_are_exact_however_large() -> None:
    answer = run_line(
        "train-time --params 10000000000000001 --tokens 10000000000000003 --gpus 1 --mfu 1 --hardware h100 --json"
    )
    assert answer.values["flops/total"] == 6 * 10000000000000001 * 10000000000000003


def test_a_file_answers_with_dashes_or_underscores_and_the_command_line_wins(write: Any) -> None:
    path = write("run.yaml", "model: gpt2\nmicro-batch: 2\nglobal_batch: 16\ngpus: 8\nzero_stage: 1\nhardware: a100\n")
    inputs = run_line(["memory", "--run", path, "--micro-batch", "1", "--json"]).data["inputs"]
    assert inputs["micro-batch"] == {"value": 1, "origin": "given", "given": "1"}
    assert inputs["global-batch"]["origin"] == inputs["zero"]["origin"] == "run file"
    assert inputs["recompute"]["origin"] == "default"
    other = write("other.yaml", "command: flops\nmodel: gpt2\n")
    refused(run_line(["memory", "--run", other]), 2, "flops")
