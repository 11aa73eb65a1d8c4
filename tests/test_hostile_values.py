"""Values that files hold in the wrong place, form or number: the message has file, line and field, and nothing is read
as what it is not."""

from __future__ import annotations

import json
import pathlib
import pickle
from typing import Any

import pytest

from napkin.architectures.checkpoint import checkpoint_of
from napkin.errors import NapkinError
from napkin.inputs.load import parse_json
from napkin.inputs.log import figures
from napkin.inputs.yaml_file import parse_yaml
from napkin.units import Unreadable, numbers
from tests.conftest import Napkin

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}


@pytest.fixture
def config(tmp_path: pathlib.Path) -> Any:
    """Write a config.json with some fields changed; return its path."""

    def write(**fields: object) -> pathlib.Path:
        path = tmp_path / "config.json"
        path.write_text(json.dumps({**LLAMA, **fields}))
        return path

    return write


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"a": {"b": [1, {"c": 2}, NaN]}}', "f:1: a.b.2: NaN"),
        ('{"a": {"b": 1},\n"c": 1e400}', "f:2: c: 1e400"),
        ('{"NaN": "NaN",\n"z": NaN}', "f:2: z: NaN"),
        ("[[3, NaN]]", "f:1: 0.1: NaN"),
        ("NaN", "f:1: NaN"),
    ],
)
def test_a_number_that_json_lacks_is_named_with_its_field(text: str, place: str) -> None:
    with pytest.raises(Exception, match=r"^f:") as caught:
        parse_json(text, "f")
    assert str(caught.value).startswith(f"{place} is ")


@pytest.mark.parametrize("word", [".nan", "-.inf", "1e999", "yes", "0x1f", "12:30", "!x 1"])
def test_a_value_that_yaml_could_mean_otherwise_is_named_with_its_field(word: str) -> None:
    with pytest.raises(Exception, match=r"^f:2: a\.0: ") as caught:
        parse_yaml(f"a:\n- {word}\n", "f")
    assert caught.value.hint  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", ["nf4", 3, [], True])
def test_a_quantization_that_is_no_mapping_is_refused(napkin: Napkin, config: Any, value: object) -> None:
    outcome = napkin(f"memory {config(quantization_config=value)} --inference --hardware h100")
    assert outcome.status == 2
    assert "quantization_config: " in outcome.errors[0]
    assert "is not a mapping" in outcome.errors[0]


@pytest.mark.parametrize("method", [None, "gptq"])
def test_old_files_of_bitsandbytes_do_not_name_it(method: str | None) -> None:
    """transformers decides by load_in_4bit alone (AutoQuantizationConfig.from_dict)."""
    fields = {"load_in_4bit": True, **({"quant_method": method} if method else {})}
    assert (checkpoint_of(fields).method, checkpoint_of(fields).format) == ("bitsandbytes", "nf4")


@pytest.mark.parametrize("names", [[3], [["LlamaForCausalLM"]], [None]])
def test_a_class_is_named_by_a_text(napkin: Napkin, config: Any, names: object) -> None:
    outcome = napkin(f"params {config(architectures=names)}")
    assert outcome.status == 2
    assert "architectures: " in outcome.errors[0]
    assert outcome.errors[0].endswith("is not the name of a class")


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("elapsed time per iteration (ms): 812.4 |", 0.8124),
        ("elapsed time per iteration (ms): 1,812.4 |", 1.8124),
        ("elapsed time per iteration (ms): 1,812,400 |", 1812.4),
        ("elapsed time per iteration (ms): 812,4 |", None),
        ("elapsed time per iteration (ms): 1,8124 |", None),
        ("elapsed time per iteration (ms): 12,34,567 |", None),
    ],
)
def test_a_decimal_comma_of_a_log_is_no_thousands(line: str, seconds: float | None) -> None:
    assert figures(line).quantities.get("step_seconds") == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("0,5", "write 0.5: the decimal point is a dot"),
        ("1,25k", "write 1.25k: the decimal point is a dot"),
        ("70,000", "write 70000: thousands have no commas"),
        ("1,000,000", "write 1000000: thousands have no commas"),
    ],
)
def test_a_comma_is_a_decimal_point_or_groups_thousands(text: str, hint: str) -> None:
    with pytest.raises(Unreadable) as caught:
        numbers.split(text)
    assert caught.value.hint == hint


EVENT = {"action": "alloc", "addr": 1, "size": 4096}
BLOCK = {"state": "active_allocated", "size": 4096, "requested_size": 4000}
SEGMENT = {"device": 0, "address": 0, "total_size": 8192, "blocks": [BLOCK]}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("order", [("segments", "device_traces"), ("device_traces", "segments")])
@pytest.mark.parametrize("events", [0, 1, 2])
@pytest.mark.parametrize("devices", [1, 2])
def test_a_snapshot_of_any_number_of_events_is_read(
    napkin: Napkin, tmp_path: pathlib.Path, protocol: int, order: tuple[str, ...], events: int, devices: int
) -> None:
    parts = {"segments": [SEGMENT], "device_traces": [[EVENT] * events] * devices}
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({name: parts[name] for name in order}, protocol))
    outcome = napkin(f"memory gpt2 --seq 128 --snapshot {path} --json")
    assert outcome.status == 0, outcome.err
    assert json.loads(outcome.out)["values"]["seen/reserved"] == 8192


def test_a_row_has_no_more_layers_than_a_model(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    row = {
        "id": "one",
        "model": {"layers": 10**11, "hidden": 4096, "heads": 32, "ffn": 14336, "vocab": 32000, "seq": 2048},
        "hardware": {"chip": "A100 SXM 80GB", "count": 8},
        "layout": {"stack": "fsdp-eager", "zero": 3, "micro_batch": 1, "global_batch": 8},
        "measured": {"step_seconds": 2},
    }
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({"schema": "steps/1", "rows": [row]}))
    outcome = napkin(f"validate {path}")
    assert outcome.status == 2
    assert "rows.0.model.layers: 100000000000 is out of range (row one)" in outcome.errors[0]


def test_a_row_whose_name_is_a_number_has_one(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({"schema": "steps/1", "rows": [{"id": 1}]}))
    assert "rows.0.id: 1 is not a text" in napkin(f"validate {path}").errors[0]


@pytest.mark.parametrize(
    ("option", "place"),
    [
        ("global-batch: 7", "run.yaml:5: global-batch: 7 is not a multiple of micro-batch"),
        ("freeze-layers: 400", "run.yaml:5: freeze-layers: 400: gpt2 has 12 layers"),
        ("dp: 16", "run.yaml:4: gpus: a contradiction: --gpus 8 and"),
        ("tp: 2..4", "run.yaml:5: tp: '2..4' is several values"),
        ("zero: 1,2", "run.yaml:5: zero: '1,2' is several values"),
    ],
)
def test_what_a_file_gives_is_named_with_its_line(
    napkin: Napkin, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, option: str, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    run = pathlib.Path("run.yaml")
    run.write_text(f"command: memory\nmodel: gpt2\nhardware: h100\ngpus: 8\n{option}\n")
    outcome = napkin("memory --run run.yaml")
    assert outcome.status == 2
    assert outcome.errors[0].removeprefix("error: ").startswith(place)
    run.write_text(run.read_text() + "limits: {verdict: fits}\n")
    assert napkin("check run.yaml").errors == outcome.errors


def test_an_option_is_named_as_the_line_spells_it(napkin: Napkin) -> None:
    outcome = napkin("memory gpt2 --hardware h100 --measured 80TB")
    assert outcome.errors[0].startswith("error: --measured 80TB: 80.00 TB")


def test_a_path_that_begins_with_a_dash_stays_behind_two(
    napkin: Napkin, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pathlib.Path("-x.json").write_text(json.dumps(LLAMA))
    out = napkin("params -- -x.json").out
    following = out[out.index("next: napkin ") + len("next: napkin ") :].replace("\\\n", " ").strip()
    assert following.endswith(" -- -x.json")
    assert napkin(following).status == 0


def test_a_name_that_ends_with_a_slash_is_a_folder(napkin: Napkin) -> None:
    assert napkin("params gpt2/").errors[0] == "error: gpt2/: No such file or directory"


def test_a_figure_is_typed_once(napkin: Napkin) -> None:
    outcome = napkin("memory gpt2 --hardware h100 --measured reserved=1GiB,used=2GiB,reserved=3GiB")
    assert (outcome.status, outcome.errors[0]) == (2, "error: --measured: reserved is given twice")


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ("[[10, 5], [10, 6]]", "histogram.1: the length 10 appears twice"),
        ("[[-3, 5]]", "histogram.0: the length -3 is not between 1 and 1,000,000,000"),
        ("[[10, 0]]", "histogram.0: the count 0 is not between 1 and"),
        ("[[10.5, 1]]", "histogram.0: the length 10.5 is not a whole number"),
        ('[["10", 1]]', "histogram.0: the length '10' is not a whole number"),
        ("[[10, true]]", "histogram.0: the count True is not a whole number"),
        ("[[10, null]]", "histogram.0: the count None is not a whole number"),
        ("[[10]]", "histogram.0: is not a pair of a length and a count"),
    ],
)
def test_what_is_wrong_with_a_histogram_is_named(tmp_path: pathlib.Path, napkin: Napkin, pairs: str, says: str) -> None:
    file = tmp_path / "lengths.json"
    file.write_text(f'{{"histogram": {pairs}}}')
    found = napkin(f"train-time gpt2 --gpus 1 --hardware a100 --mfu 0.4 --epochs 1 --lengths {file}")
    assert found.status == 2
    assert f"lengths.json:1: {says}" in found.errors[0]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("{a: 1\n b: 2}", "comma"),
        ("a: 1\n\tb: 2", "spaces"),
        ("a: b: c", "one key"),
        ("a: 'x\nb: 2", "quote"),
        ("a:\n  b: 1\n c: 2", "indent"),
        ("a: @x", "quote the text"),
    ],
)
def test_what_to_do_about_text_that_is_no_yaml(text: str, hint: str) -> None:
    with pytest.raises(NapkinError, match="not YAML") as problem:
        parse_yaml(text, "run.yaml")
    assert hint in str(problem.value.hint)


@pytest.mark.parametrize(
    ("line", "error", "hint"),
    [
        ("memory --run=", "--run: it is empty", "give a value"),
        ("sweep memroy llama3-8b --over gpus=1,2", "no such command 'memroy'", "did you mean memory?"),
        ("sensitivity nope", "no such command 'nope'", "napkin --help lists the commands"),
        ("compare step gpt2 llama3-8b --hardware h100", "unexpected word 'llama3-8b'", "--against model=llama3-8b"),
        (
            "compare step gpt2 --hardware h100 -- --seq 8",
            "unexpected word '--seq'",
            "--against seq=VALUE: options of the other side",
        ),
        ("compare hardware h100 b200", "unexpected word 'b200'", "napkin compare h100 b200"),
        ("sweep llama3-8b --gpus 8", "sweep: which command?", "napkin sweep step llama3-8b --gpus 8"),
        ("sensitivity --hardware h100", "sensitivity: which command?", "napkin sensitivity step --hardware h100"),
        ("memory llama3-8b --explain nothing", "unexpected word 'nothing'", "napkin memory takes MODEL, then options"),
        ("memory llama3-8b -- --gpus 8", "unexpected word '8'", "--gpus 8"),
        ("memory llama3-8b --gpus -8", "--gpus: '-8' is not above zero", "write a number above zero"),
        ("memory llama3-8b 8 9", "unexpected words '9'", "write a shape as one word: 8x9"),
    ],
)
def test_words_that_mean_nothing_here(napkin: Napkin, line: str, error: str, hint: str) -> None:
    outcome = napkin(line)
    assert (outcome.status, outcome.err) == (2, f"error: {error}\nhint: {hint}\n")


def test_a_run_file_for_a_command_that_does_not_exist(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("command: memroy\nmodel: llama3-8b\n")
    assert napkin(f"memory --run {path}").err.splitlines() == [
        f"error: {path}:1: command: no such command 'memroy'",
        "hint: did you mean memory?",
    ]


@pytest.mark.parametrize(("value", "says"), [("0", "is 0"), ("-3", "is -3"), ("[]", "is an empty list")])
def test_a_sample_without_tokens_is_told_from_one_without_a_count(
    napkin: Napkin, tmp_path: pathlib.Path, value: str, says: str
) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text(f'{{"tokens": 3}}\n{{"tokens": {value}}}\n')
    outcome = napkin(f"data lengths {path} --tokens-field tokens")
    assert outcome.errors == [f"error: {path}:2: tokens {says}: a sample has a token at least"]


def test_a_file_that_says_nothing_new_and_a_run_file_in_another_place(napkin: Napkin, config: Any) -> None:
    path = config()
    assert napkin(f"memory llama3-8b --from {path}").errors == [
        f"error: {path}: says only MODEL, which the command line says"
    ]
    run = path.with_name("run.yaml")
    run.write_text("model: llama3-8b\nhardware: h100\n")
    for line in (f"memory --from {run}", f"params {run}"):
        assert napkin(line).err.splitlines()[1] == "hint: it is a run file: give it with --run"
    assert napkin(f"memory --run {run}").status == 0
    assert "add command" in napkin(f"check {run}").err
