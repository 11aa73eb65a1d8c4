"""Rows of one's own: what each field says is used or the row says why not; YAML and CSV; presets; the first file."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from napkin.evidence.fit.generic import decoder
from napkin.evidence.prose.recognize import recognized
from napkin.evidence.prose.steps import of_step
from napkin.evidence.rows.preset_dimensions import dimensions_of
from napkin.evidence.rows.printed import printed_decoder
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.steps import StepRow, step_row
from napkin.inputs.load import Document

from .conftest import run_line

MODEL = {
    "name": "ours", "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 128256,
    "gated": True, "tied": False, "seq": 8192,
}  # fmt: skip
HARDWARE = {"chip": "H100 SXM 80GB", "count": 64, "per_node": 8}
LAYOUT = {"tp": 2, "pp": 2, "dp": 16, "micro_batch": 1, "global_batch": 128, "framework": "megatron-core"}


def row(layout: dict[str, Any], **parts: Any) -> dict[str, Any]:
    fields = {"model": MODEL, "hardware": HARDWARE, "measured": {"step_seconds": 2.0}, **parts}
    return {"id": "one", **fields, "layout": {key: value for key, value in layout.items() if value is not None}}


def read(layout: dict[str, Any], **parts: Any) -> StepRow:
    return step_row(recognized(RowFields(Document("rows.yaml", None), 0, row(layout, **parts)), of_step))


def validated(path: pathlib.Path, rows: list[Any], schema: str = "steps/1") -> Any:
    path.write_text(json.dumps({"schema": schema, "rows": rows}))  # JSON is YAML
    return run_line(f"validate {path} --json")


@pytest.mark.parametrize("sums", [1, 2, 8])
def test_gradient_accumulation_gives_the_batch_that_is_not_stated(sums: int) -> None:
    found = read({**LAYOUT, "global_batch": None, "grad_accum": sums})
    assert found.global_batch == 1 * 16 * sums  # micro-batch · dp · sums
    assert found.why == ""


@pytest.mark.parametrize(
    ("said", "zero", "shards"),
    [
        (False, 0, None),
        ("ddp", 0, None),
        ("no_shard", 0, None),
        (True, 3, None),
        ("full_shard", 3, None),
        ("SHARD_GRAD_OP", 2, None),
        ("hsdp", 3, 8),
        ("hybrid_shard", 3, 8),
    ],
)
def test_how_fsdp_shards(said: object, zero: int, shards: int | None) -> None:
    found = read({"dp": 64, "micro_batch": 1, "global_batch": 128, "fsdp": said, "framework": "fsdp"})
    assert (found.zero, found.shards, found.why) == (zero, shards, "")


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("frobnicate", 3, "layout.frobnicate: not modeled"),
        ("param_offload", True, "param_offload: an offload that is not modeled"),
        ("fsdp", "sideways", "layout.fsdp: sideways is not known"),
        ("optimizer", "Lioness", "the optimizer Lioness is not known"),
        ("schedule", "zb-v2", "the pipeline's schedule zb-v2 is not modeled"),
        ("policy", "bf17", "the policy bf17 is not known"),
    ],
)
def test_a_field_that_is_not_understood_is_named(field: str, value: object, why: str) -> None:
    assert read({**LAYOUT, field: value}).why == why


@pytest.mark.parametrize("off", [False, None, 0, "none"])
def test_a_field_that_says_off_changes_nothing(off: object) -> None:
    assert read({**LAYOUT, "optimizer_offload": off}).why == ""


def test_a_stated_schedule_decides_the_chunks(tmp_path: pathlib.Path) -> None:
    # without a micro-batch, authors are taken to have chosen among interleavings, unless the row says 1F1B
    deep = {"tp": 2, "pp": 8, "dp": 4, "global_batch": 32, "framework": "megatron-core"}
    rows = [{**row(deep), "id": "free"}, {**row({**deep, "schedule": "1F1B"}), "id": "plain"}]
    free, plain = (one["predicted"] for one in validated(tmp_path / "rows.yaml", rows).data["rows"])
    assert plain > 1.05 * free


def test_one_bad_row_does_not_refuse_the_file(tmp_path: pathlib.Path) -> None:
    rows = [row(LAYOUT), {**row(LAYOUT), "id": "two", "model": 7}, {**row({**LAYOUT, "zero": 9}), "id": "three"}, 5]
    answer = validated(tmp_path / "rows.yaml", rows)
    assert answer.status == 0
    whys = {one["id"]: one.get("why", "") for one in answer.data["rows"]}
    assert whys["one"] == ""
    assert whys["two"].endswith("rows.1.model: is not a mapping (row two)")
    assert "layout.zero" in whys["three"]
    assert whys["row 4"].endswith("rows.3: is not a mapping")
    shown = run_line(f"validate {tmp_path / 'rows.yaml'}").out
    assert "not predicted: two:" in shown
    assert "not predicted: three:" in shown


def test_a_file_of_bad_rows_is_refused(tmp_path: pathlib.Path) -> None:
    answer = validated(tmp_path / "rows.yaml", [{**row(LAYOUT), "model": 7}])
    assert answer.status == 2
    assert "rows.0.model: is not a mapping" in answer.err


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama3-8b", {"layers": 32, "hidden": 4096, "kv_heads": 8, "ffn": 14336, "gated": True, "tied": False}),
        ("gpt2", {"layers": 12, "hidden": 768, "heads": 12, "ffn": 3072, "gated": False, "tied": True}),
        ("mixtral-8x7b", {"layers": 32, "experts": {"count": 8, "top_k": 2, "ffn": 14336}}),
        (
            "deepseek-v3",
            {
                "layers": 61,
                "ffn": 18432,
                "experts": {"count": 256, "top_k": 8, "ffn": 2048, "shared_ffn": 2048, "dense_layers": 3},
                "mla": {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128},
            },
        ),
    ],
)
def test_a_preset_has_the_dimensions_of_its_config(name: str, expected: dict[str, Any]) -> None:
    found = dimensions_of(name)
    for key, value in expected.items():
        if isinstance(value, dict):
            block: Any = found[key]
            assert {part: block[part] for part in value} == value
        else:
            assert found[key] == value


def test_a_row_may_name_a_preset(tmp_path: pathlib.Path) -> None:
    named = {**row(LAYOUT, model={"preset": "llama3-8b", "seq": 8192}), "id": "named"}
    first, second = validated(tmp_path / "rows.yaml", [row(LAYOUT), named]).data["rows"]
    assert first["predicted"] == second["predicted"]
    wrong = {**row(LAYOUT, model={"preset": "llama9-8b", "seq": 8192}), "id": "wrong"}
    whys = [one.get("why", "") for one in validated(tmp_path / "rows.yaml", [row(LAYOUT), wrong]).data["rows"]]
    assert "'llama9-8b' is not a preset" in whys[1]


def test_csv_and_yaml_say_the_same(tmp_path: pathlib.Path) -> None:
    given = row(LAYOUT)
    cells = {"id": "one"} | {
        f"{part}.{key}": value
        for part in ("model", "hardware", "layout", "measured")
        for key, value in given[part].items()
    }
    table = tmp_path / "rows.csv"
    table.write_text(",".join(cells) + "\n" + ",".join(str(value) for value in cells.values()) + "\n")
    yaml = validated(tmp_path / "rows.yaml", [given]).data["rows"]
    assert run_line(f"validate {table} --json").data["rows"] == yaml


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("id,layout.tp\na,1\n", "no column says what was measured"),
        ("id,id,measured.step_seconds\na,b,1\n", "the column 'id' is empty, appears twice or has parts"),
        ("id,measured.step_seconds\na,1,2\n", "rows.csv:2: 3 cells under 2 column names"),
        ("id,schema,measured.step_seconds\na,steps/7,1\n", "unknown schema 'steps/7'"),
        ('id,measured.step_seconds\n"a,1\n', "not CSV"),
        ("id,measured.step_seconds\n", "rows: is empty"),
    ],
)
def test_a_bad_table_is_refused_with_its_line(tmp_path: pathlib.Path, text: str, problem: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    answer = run_line(f"validate {path}")
    assert (answer.status, answer.out) == (2, "")
    assert problem in answer.err


def test_init_writes_rows_that_are_predicted_and_never_overwrites(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "mine.yaml"
    first = run_line(f"validate {path} --init --json")
    assert first.status == 0
    assert all("predicted" in one for one in first.data["rows"])
    before = path.read_text()
    again = run_line(f"validate {path} --init")
    assert again.status == 2
    assert "already exists" in again.err
    assert path.read_text() == before


def test_a_file_of_which_no_row_can_be_read_names_the_problem_of_each(tmp_path: pathlib.Path) -> None:
    outcome = validated(tmp_path / "rows.yaml", [{}, 3, 7])
    assert outcome.status == 2
    assert [line for line in outcome.err.splitlines() if line.startswith("error:")][2].endswith("is not a mapping")


def test_one_bad_row_of_memory_does_not_refuse_the_file(tmp_path: pathlib.Path) -> None:
    good = {**row(LAYOUT, memory={"gib": 60.0, "what": "used"}), "id": "good"}
    rows = [
        good,
        {**good, "id": "figure", "memory": {"gib": "plenty"}},
        {**good, "id": "what", "memory": {"gib": 1.0, "what": "free"}},
        {**good, "id": "split", "layout": {**LAYOUT, "tp": 3}},
    ]
    answer = validated(tmp_path / "rows.yaml", rows, "memory/1")
    assert answer.status == 0
    whys = {one["id"]: one.get("why", "") for one in answer.data["rows"]}
    assert whys["good"] == ""
    assert "memory.gib: 'plenty' is not a number" in whys["figure"]
    assert "memory.what" in whys["what"]
    assert "does not divide the 64 accelerators" in whys["split"]


def test_init_without_a_name_says_what_it_wrote_and_asks_about_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = run_line("validate --init").out
    assert "wrote rows.yaml: replace its rows" in shown
    assert shown.splitlines()[-1] == "next: napkin validate rows.yaml --explain"


def test_a_file_whose_rows_of_memory_are_all_wrong_is_refused(tmp_path: pathlib.Path) -> None:
    bad = {**row(LAYOUT, memory={"gib": "plenty"})}
    answer = validated(tmp_path / "rows.yaml", [bad], "memory/1")
    assert answer.status == 2
    assert "memory.gib: 'plenty' is not a number" in answer.err


def test_latent_attention_without_a_compressed_query_reads_the_stream() -> None:
    """DeepSeek-V2-Lite: 27 · 2048 · 16 · (128 + 64) weights of the query, none of a compression."""
    dims: Any = dimensions_of("deepseek-v2-lite")["mla"]
    assert (dims["q_lora_rank"], dims["kv_lora_rank"], dims["qk_rope_head_dim"]) == (0, 512, 64)
    shape = printed_decoder(RowFields(Document("rows.yaml", None), 0, {"model": dimensions_of("deepseek-v2-lite")}))
    assert shape is not None
    queries = [op for op in decoder(shape).operations if op.name == "q"]
    assert {(op.linear().d_in, op.linear().d_out) for op in queries} == {(2048, 16 * 192)}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("rows.csv", "model,hardware\nllama3-8b,h100\n", ["no column is id", "model.preset"]),
        ("rows.csv", "id,model,measured.step_seconds\nmine,llama3-8b,2\n", ["preset: llama3-8b", "--init"]),
    ],
)
def test_a_first_table_of_ones_own_is_told_its_form(
    tmp_path: pathlib.Path, name: str, text: str, words: list[str]
) -> None:
    path = tmp_path / name
    path.write_text(text)
    answer = run_line(f"validate {path}")
    assert answer.status == 2
    for word in words:
        assert word in answer.err
