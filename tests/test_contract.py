"""What scripts may rely on, a promise a test: exit statuses, error and hint lines, JSON, origins, files, spellings.

The pinned counts are worked out by hand for SMALL: h = 256, 4 layers, 8 heads of 32 (4 of them for keys and values),
feed-forward 688, 1,000 rows of vocabulary, untied. A layer has 2·256² + 2·256·128 + 3·256·688 + 2·256 = 725,504
weights; with the table, the head and the last norm 4·725,504 + 2·256,000 + 256 = 3,414,272.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.conftest import Outcome, run_line

SMALL: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 688,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
COUNT = 3_414_272
RUN = "train-time --params 70B --tokens 15T --gpus 1024 --hardware h100"
ORIGINS = {
    *("given", "run file", "from file", "profile", "preset", "class default", "default", "derived", "evidence"),
    *("assumed", "solved"),
}


@pytest.fixture
def write(tmp_path: Any) -> Any:
    """`write("name", text or mapping)` → path."""

    def put(name: str, content: Any) -> str:
        path = os.path.join(tmp_path, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(content if isinstance(content, str) else json.dumps(content, indent=1))
        return path

    return put


def changed(**fields: Any) -> dict[str, Any]:
    """SMALL with other fields; None takes one out."""
    return {k: v for k, v in {**SMALL, **fields}.items() if v is not None}


def refused(outcome: Outcome, status: int, *says: str) -> None:
    """One or more error lines, a hint, nothing on stdout, the status."""
    assert outcome.status == status, outcome.err
    assert outcome.out == ""
    assert outcome.errors
    assert outcome.hints
    for word in says:
        assert word in outcome.err
    assert "Traceback" not in outcome.err


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
    unknown = {"model_type": "glm4v", "text_config": SMALL, "vision_config": {"hidden_size": 64}}
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
        ("--params -1", "negative"),
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


# --- train-time ------------------------------------------------------------------------------------------------------

GIVEN = {"params": "70B", "tokens": "15T", "gpus": "1024", "mfu": "0.5", "within": "30d"}


@pytest.mark.parametrize("missing", ["tokens", "gpus", "params"])
def test_one_quantity_may_be_missing_and_solves_the_equation(missing: str) -> None:
    options = " ".join(f"--{k} {v}" for k, v in GIVEN.items() if k != missing)
    data = run_line(f"train-time {options} --hardware h100 --json").data
    v = data["values"]
    assert data["inputs"][missing]["origin"] == "solved"
    assert v["flops/total"] == pytest.approx(989.4e12 * v["mfu"] * v["gpus"] * v["time"], rel=1e-9)
    assert v["flops/total"] == pytest.approx(6 * v["params"] * v["tokens"], rel=1e-9)


@pytest.mark.parametrize(
    "given",
    [
        "--params 70B --mfu 0.4 --within 30d",
        "--params 70B --tokens 1T --within 30d",
        "--tokens 1T --mfu 0.4 --within 30d",
        "--params 70B --mfu 0.4 --gpus 1024",
        "--params 70B --tokens 1T --gpus 1024",
    ],
)
def test_with_a_budget_two_may_be_missing(given: str) -> None:
    v = run_line(f"train-time {given} --hardware h100 --budget 2000000 --price 2.5 --json").values
    assert v["cost"] == pytest.approx(2_000_000, rel=1e-9)
    assert v["gpu_hours"] == pytest.approx(800_000, rel=1e-9)
    assert v["flops/total"] == pytest.approx(989.4e12 * v["mfu"] * v["gpus"] * v["time"], rel=1e-9)
    assert v["time"] <= 2_592_000 or "gpus 1024" in given


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--params 70B --tokens 15T", "--gpus, --within"),
        ("--params 70B --tokens 15T --gpus 8 --tp 2", "MODEL"),
    ],
)
def test_too_many_unknowns_are_named(options: str, says: str) -> None:
    refused(run_line(f"train-time {options} --hardware h100"), 2, says)


@pytest.mark.parametrize(
    ("limits", "status", "verdict"),
    [
        ("--within 150d", 0, "holds"),  # it takes 143.9 days: 6·70e9·15e12 / (989.4e12·0.5·1024) s
        ("--within 140d", 1, "broken"),
        ("--within 150d --price 2 --budget 8e6", 0, "holds"),  # 143.9·24·1024·2 = 7.07 M USD
        ("--within 150d --price 2 --budget 7e6", 1, "broken"),
        ("--price 2 --budget 7e6", 1, "broken"),
    ],
)
def test_a_deadline_and_a_budget_of_a_run_that_is_determined_are_judged(limits: str, status: int, verdict: str) -> None:
    outcome = run_line(f"train-time --params 70B --tokens 15T --gpus 1024 --mfu 0.5 --hardware h100 {limits} --json")
    assert (outcome.status, outcome.data["verdict"]) == (status, verdict)
    assert outcome.values["time"] == pytest.approx(6 * 70e9 * 15e12 / (989.4e12 * 0.5 * 1024))


def test_an_impossible_answer_is_given_with_status_1() -> None:
    outcome = run_line(f"{RUN} --within 30d --json")
    assert (outcome.status, outcome.data["verdict"]) == (1, "impossible")
    assert outcome.values["mfu"] > 1


def test_an_estimated_mfu_carries_an_interval_that_a_level_narrows() -> None:
    wide, narrow = run_line(f"{RUN} --json"), run_line(f"{RUN} --confidence 80 --json")
    assert wide.data["inputs"]["mfu"]["origin"] == "evidence"
    low, time, high = (wide.values[path] for path in ("time/low", "time", "time/high"))
    assert low < narrow.values["time/low"] < time < narrow.values["time/high"] < high


# --- memory and step -------------------------------------------------------------------------------------------------


def test_states_of_the_default_policy_are_sixteen_bytes(write: Any) -> None:
    v = run_line(["memory", write("c.json", SMALL), "--json"]).values
    assert v["memory/parameters"] == v["memory/gradients"] == 2 * COUNT
    assert v["memory/optimizer"] == 12 * COUNT + 4 * (4 * 9 + 3)  # one fp32 step counter for each of 39 tensors
    assert v["memory/total"] == v["memory/used"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--tp 3 --gpus 6", "--tp 2 does"),
        ("--cp 3 --gpus 3", "--cp 2 does"),
        ("--tp 2 --gpus 7", "--gpus 8"),
        ("--tp 2 --dp 3 --gpus 8", "contradiction"),
        ("--ep 2 --gpus 2", "no experts"),
        ("--pp 8 --gpus 8", "at most 4"),
        ("--gpus 2 --global-batch 3", "multiple"),
        ("--precision bf17-mixed", "bf16-mixed"),
        ("--optimizer adamww", "adamw"),
        ("--attention flashh", "flash"),
        ("--recompute half", "group:sqrt"),
        ("--must-fit", "--hardware"),
        ("--zero 4", "0, 1, 2, 3"),
    ],
)
def test_a_layout_that_cannot_be_is_refused_with_the_nearest(write: Any, options: str, says: str) -> None:
    refused(run_line(["memory", write("c.json", SMALL), *options.split()]), 2, says)


def test_megatrons_long_names_are_the_same_options(write: Any) -> None:
    path = write("c.json", SMALL)
    long = "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 2 --seq-length 256"
    short = "--tp 2 --pp 2 --micro-batch 2 --seq 256"
    answers = [run_line(["memory", path, "--gpus", "8", *one.split(), "--json"]) for one in (long, short)]
    assert answers[0].values == answers[1].values


def test_must_fit_sets_the_status() -> None:
    line = "memory llama3-8b --hardware h100 --must-fit --json"
    for options, status, verdict in (
        ("--gpus 8 --zero 3 --recompute full", 0, "fits"),
        ("--gpus 1", 1, "does not fit"),
    ):
        outcome = run_line(f"{line} {options}")
        assert (outcome.status, outcome.data["verdict"]) == (status, verdict)
    v = run_line("memory llama3-8b --gpus 8 --zero 3 --recompute full --json").values
    between = (v["memory/used"] + v["memory/high"]) / 2
    close = run_line(f"{line} --gpus 8 --zero 3 --recompute full --memory-size {int(between)}B")
    assert (close.status, close.data["verdict"]) == (4, "too close to call")


@pytest.mark.parametrize("what", ["micro-batch", "seq"])
def test_the_largest_fits_and_one_more_does_not(write: Any, what: str) -> None:
    path = write("c.json", SMALL)
    line = ["memory", path, "--hardware", "h100", "--json"]
    answer = run_line([*line, "--max", what])
    best = answer.values[f"max/{what.replace('-', '_')}"]
    assert answer.data["inputs"][what]["origin"] == "solved"
    at, beyond = (run_line([*line, f"--{what}", str(best + more)]).values for more in (0, 1))
    assert at["memory/used"] <= at["memory/capacity"] < beyond["memory/used"]
    assert at["memory/used"] == answer.values["memory/used"]


def test_every_interval_follows_the_level(write: Any) -> None:
    path = write("c.json", SMALL)
    for command, low in (("memory", "memory/low"), ("step", "step/low")):
        line = [command, path, "--hardware", "h100", "--gpus", "8", "--json"]
        wide, narrow = run_line(line).values, run_line([*line, "--confidence", "80"]).values
        high = low.replace("low", "high")
        assert wide[low] < narrow[low] < narrow[high] < wide[high]
    refused(run_line(["step", path, "--hardware", "h100", "--confidence", "200"]), 2, "50 to 98")


# --- flops, mfu, roofline --------------------------------------------------------------------------------------------


def test_attention_is_counted_full_half_or_exactly(write: Any) -> None:
    line = ["flops", write("c.json", SMALL), "--batch", "2", "--seq", "128", "--json"]
    attention = 4 * 128 * 128 * 256 * 4 * 2  # Q·Kᵀ and P·V over the square, 256 wide, 4 layers, 2 sequences
    products = 2 * 256 * (4 * (725_504 - 512) + 256_000)
    full = run_line(line).values
    assert full["flops/forward"] == products + attention
    assert full["flops/backward"] == 2 * full["flops/forward"]
    assert full["flops/attention"] == 3 * attention == 2 * full["flops/attention/half"]
    assert full["flops/attention/exact"] == 3 * 4 * (128 * 129 // 2) * 256 * 4 * 2
    assert run_line([*line, "--causal"]).values["flops/forward"] == products + attention // 2


def test_mfu_is_given_under_every_convention(write: Any) -> None:
    line = ["mfu", write("c.json", SMALL), "--gpus", "8", "--hardware", "h100", "--json"]
    v = run_line([*line, "--tokens-per-second", "98000"]).values
    for name in ("6nd", "6nd_non_embedding", "palm", "nanogpt", "megatron", "causal", "torch"):
        assert 0 < v[f"mfu/{name}"] <= v[f"hfu/{name}"]
    assert v["mfu/6nd"] == pytest.approx(6 * COUNT * 98_000 / (8 * 989.4e12))
    each = run_line([*line, "--tokens-per-second-per-gpu", "12250"]).values
    assert each["mfu/palm"] == pytest.approx(v["mfu/palm"])


def test_the_verdict_of_the_roofline_is_a_word() -> None:
    for shape, word in (("4096x4096x4096", "compute"), ("1x4096x4096", "memory")):
        answer = run_line(f"roofline matmul {shape} --hardware h100 --json").data
        m, k, n = map(int, shape.split("x"))
        assert answer["verdict"] == word
        assert answer["values"]["intensity"] == pytest.approx(2 * m * k * n / (2 * (m * k + k * n + m * n)))
        assert [answer["values"][one] for one in "mkn"] == [m, k, n]
    refused(run_line("roofline matmul 64x64x64 --hardware a100 --dtype fp8"), 3, "fp8")


# --- small commands --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("tensor 4x8 --dtype fp32", {"memory/total": 128, "elements": 32, "contiguous": 1, "stride/0": 8, "offset": 0}),
        ("data --tokens 15T --vocab 65536", {"data/bytes": 30 * 10**12}),
        ("data --tokens 15T --vocab 65537", {"data/bytes": 60 * 10**12}),
        ("optimizer adamw-fused --shape 96x64 --param-dtype bf16", {"optimizer/state_bytes": 2 * 96 * 64 * 2 + 4}),
        ("flops linear --widths 4,4,1 --batch 2", {"params/total": 20, "flops/total": 240}),
        (
            "memory linear --width 4 --depth 2 --batch 2 --optimizer adagrad --precision fp32",
            {"memory/total": 496, "memory/saved_input": 32},
        ),
        ("dtype 70000", {"dtype/fp16/max": 65504, "dtype/fp8_e4m3/max": 448, "dtype/bf16/value": 70144}),
        ("max-params --gpus 8 --hardware h100", {"params/max": 40 * 10**9, "memory/capacity": 640 * 10**9}),
        (
            "checkpoint --params 70B --write-bandwidth 10GB/s --mtbf 24h",
            {
                "checkpoint/bytes": 980 * 10**9,
                "checkpoint/write_time": 98,
                "checkpoint/interval": (2 * 98 * 86400) ** 0.5,
            },
        ),
    ],
)
def test_small_answers(line: str, values: dict[str, float]) -> None:
    answer = run_line(f"{line} --json").values
    for path, value in values.items():
        assert answer[path] == pytest.approx(value, rel=1e-12), path


def test_muon_on_a_vector_is_refused() -> None:
    refused(run_line("optimizer muon --shape 96"), 2, "matrices")


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


# --- plan and bench --------------------------------------------------------------------------------------------------


def test_an_impossible_plan_answers_with_the_nearest(write: Any) -> None:
    outcome = run_line(["plan", write("c.json", SMALL), "--gpus", "13", "--tp", "2", "--hardware", "h100", "--json"])
    assert (outcome.status, outcome.data["verdict"]) == (1, "impossible")
    assert outcome.data["rows"]


def test_without_a_device_bench_is_absent() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("a CUDA device is here")
    refused(run_line("bench --quick"), 5, "no CUDA device")


def test_a_plan_without_gpus_asks_for_the_fewest(write: Any) -> None:
    line = ["plan", write("c.json", SMALL), "--hardware", "h100", "--within", "1d", "--tokens", "1B", "--json"]
    answer = run_line(line).data
    assert answer["inputs"]["objective"] == {"value": "gpus", "origin": "default", "given": "gpus"}
    assert answer["values"]["gpus"] >= 1
