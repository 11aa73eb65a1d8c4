"""Hostile inputs: drawn questions held against the contract, and streams, links and variables in real processes."""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
from typing import Any

import pytest

from napkin.inputs.launch.read import MODULES, formats, reading_of
from napkin.inputs.launch.syntax import source_of
from napkin.render import render
from napkin.render.answer import Answer
from napkin.render.screen import Display, Screen
from napkin.term import Term, leaf, multiply
from napkin.units import human
from tests.conftest import ROOT, Napkin

sys.path.insert(0, os.path.join(ROOT, "tools"))

import fuzz
import fuzz_draws
import fuzz_launch
import fuzz_oracles

CASES, RANGES = 2000, 8


@pytest.mark.parametrize("part", range(RANGES))
def test_drawn_questions(part: int) -> None:
    each = CASES // RANGES
    assert fuzz.run_range((part * each, each, False))["failures"] == {}


def test_the_judge_finds_what_is_wrong() -> None:
    case = fuzz_draws.Case(0, ("params", "gpt2", "--json"))
    assert fuzz_oracles.judged(case, 0, '{"values": {"a": 1}, "units": {"a": "1"}}', "") is None
    for status, out, err in (
        (70, "", "error: a defect\n"),
        (9, "", ""),
        (2, "", ""),
        (0, "{}", "error: x\n"),
        (2, "", "error: x\nerror: x\n"),
        (2, "", "error: \x1b\n"),
        (2, "", f"error: {'x' * 5000}\n"),
        (2, "", "error: x\nTraceback\n"),
        (2, "", "error: f: unhashable type: 'list'\nhint: y\n"),
        (0, "{", ""),
        (0, '{"values": {"a": NaN}}', ""),
        (0, '{"values": {"a": 1}, "units": {}}', ""),
        (0, '{"values": {"a": 1}, "units": {"a": "1"}, "low": {"a": 2}}', ""),
        (0, "x" * 1_000_001, ""),
    ):
        assert fuzz_oracles.judged(case, status, out, err), (status, out[:40], err[:40])


def test_the_judge_finds_forms_that_differ() -> None:
    six, width = leaf("six", 6, "byte"), leaf("width", 3, "1")
    whole = multiply("whole", six, width)
    screen = Screen(("a question",), (human(18, "byte"), "90%: 17 to 19 bytes"))

    def answer(term: Term, **more: Any) -> Answer:
        made = Answer("memory", [term], **{"screen": screen, **more})
        made.intervals = {"whole": (17, 19)}
        return made

    assert fuzz_oracles.forms_agree(answer(whole)) is None
    wrong = Term("whole", 18, "byte", "product", (six, leaf("width", 4, "1")))
    assert "folds" in str(fuzz_oracles.forms_agree(answer(wrong)))
    for said in ("23 bytes", "3.2 GiB", "23%"):
        other = Screen(("a question",), (said,))
        assert "line 2" in str(fuzz_oracles.forms_agree(answer(whole, screen=other))), said
    assert "nan" in str(fuzz_oracles.forms_agree(answer(whole, screen=Screen(("nan of it",), ("18 bytes",)))))


def test_the_judge_finds_a_broken_law() -> None:
    law = ("recompute", "full", "step/time", 1)
    slow, fast = (Answer("step", [leaf("step/time", seconds, "second")]) for seconds in (2.0, 1.0))
    assert fuzz_oracles.broken_law(law, fast, slow) is None
    assert fuzz_oracles.broken_law(law, slow, slow) is None
    assert fuzz_oracles.broken_law(law, slow, fast)


def test_a_case_follows_from_its_seed() -> None:
    assert [fuzz_draws.draw(seed) for seed in range(40)] == [fuzz_draws.draw(seed) for seed in range(40)]


def test_every_format_has_a_launch_file_to_change() -> None:
    """The file that is changed is read as its own format, and nothing in it is refused."""
    known = [one.name for one in formats()]
    for name, format in zip(MODULES.split(), known, strict=True):
        text = fuzz_launch.launch_file(random.Random(0), fuzz_draws.unfit, name).decode()
        reading = reading_of(source_of(text, "launch.txt"))
        assert (reading.format.name, reading.refused) == (format, []), name


# --- real processes ------------------------------------------------------------------------------------------------


def shell(line: str, folder: pathlib.Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run a shell's line in which `napkin` is this checkout."""
    env = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "src"), **variables}
    program = f"napkin() {{ '{sys.executable}' -m napkin \"$@\"; }}; "
    return subprocess.run(["bash", "-c", program + line], cwd=folder, env=env, capture_output=True, check=False)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("napkin params gpt2 >&-", 74),
        ("napkin params gpt2 >/dev/full", 74),
        ("napkin --help >/dev/full", 74),
        ("napkin params gpt2 -o /dev/full", 74),
        ("napkin params gpt2 -o missing/x", 74),
        ("napkin params gpt2 -o .", 74),
        ("napkin params gpt2 -o new/", 74),
        ("ln -s loop loop; napkin params gpt2 -o loop", 74),
        ("(ulimit -f 0; napkin params gpt2 -o x)", 74),
        ("napkin params gpt2 -o /dev/null", 0),
        ("set -o pipefail; napkin params gpt2 -o /dev/stdout | grep -q gpt2", 0),
        ("set -o pipefail; napkin models | true", 141),
        ("set -o pipefail; napkin memory --help-all | true", 141),
        ("napkin params no-such >&-", 2),
        ("napkin params no-such 2>&-", 2),
        ("napkin params no-such 2>/dev/full", 2),
        ("napkin params no-such <&- >&- 2>&-", 2),
        ("napkin params - <&-", 2),
        ("napkin params gpt2 -o answer >&-", 0),
        ("napkin params gpt2 2>&- <&-", 0),
        ("napkin >&-", 2),
        (r"napkin params $'\xff\xfe.json'", 2),
        (r"napkin $'\xff'", 2),
        ("mkdir gone; cd gone; rmdir ../gone; napkin check run.yaml", 2),
        ("mkdir gone; cd gone; rmdir ../gone; napkin params config.json", 2),
        ("mkdir gone; cd gone; rmdir ../gone; napkin params gpt2 -o answer", 74),
    ],
)
def test_closed_and_full_streams_keep_the_status(tmp_path: pathlib.Path, line: str, status: int) -> None:
    done = shell(line, tmp_path)
    assert done.returncode == status
    assert b"Traceback" not in done.stderr
    assert b"defect" not in done.stderr


def test_a_closed_stderr_sends_nothing_to_stdout(tmp_path: pathlib.Path) -> None:
    assert shell("napkin params no-such 2>&-", tmp_path).stdout == b""
    assert shell("napkin 2>&-", tmp_path).stdout == b""


LIMIT = (
    "command: train-time\nparams: 70B\ntokens: 15T\ngpus: 1024\nhardware: h100\nmfu: 0.5\nlimits:\n  time: <= 150d\n"
)


@pytest.mark.parametrize(
    ("encoding", "written"),
    [("ascii", b"\\u00e9\\u03b2\\ud83d\\ude00"), ("latin-1", b"\xe9\\u03b2\\ud83d\\ude00"), ("utf-8", "éβ😀".encode())],
)
def test_json_escapes_what_a_stream_cannot_hold(tmp_path: pathlib.Path, encoding: str, written: bytes) -> None:
    (tmp_path / "éβ😀.yaml").write_text(LIMIT)
    done = shell("napkin check *.yaml --json", tmp_path, PYTHONIOENCODING=encoding)
    assert written in done.stdout
    assert json.loads(done.stdout.decode(encoding))["checks"][0]["file"] == "éβ😀.yaml"


@pytest.mark.parametrize("out", ["", "-o answer.json", "--junit answer.xml"])
def test_a_name_that_is_not_text_is_written_as_an_escape(tmp_path: pathlib.Path, out: str) -> None:
    """The byte 0xff of a file's name is U+DCFF in Python, which no encoding has."""
    with open(os.fsencode(tmp_path) + b"/bad\xff.yaml", "w") as file:
        file.write(LIMIT)
    done = shell(f"napkin check *.yaml --json {out}", tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    written = (tmp_path / out.split()[1]).read_bytes() if out else done.stdout
    assert b"bad\\udcff.yaml" in written


def test_a_report_that_cannot_be_written_has_the_status_of_one(tmp_path: pathlib.Path) -> None:
    (tmp_path / "limit.yaml").write_text(LIMIT)
    for command in ("check limit.yaml", "lint llama3-8b --gpus 8"):
        done = shell(f"napkin {command} --junit none/report.xml", tmp_path)
        assert done.returncode == 74, command
        assert done.stderr.startswith(b"error: --junit: none/report.xml: No such file or directory")


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1"])
def test_json_on_a_stream_that_is_not_utf_8(tmp_path: pathlib.Path, encoding: str) -> None:
    line = "memory llama3-8b --hardware h100 --gpus 8 --zero 3"
    done = shell(f"napkin {line} --json", tmp_path, PYTHONIOENCODING=encoding)
    whole = shell(f"napkin {line} --json", tmp_path, PYTHONIOENCODING="utf-8")
    assert json.loads(done.stdout.decode("ascii")) == json.loads(whole.stdout)
    text = shell(f"napkin {line}", tmp_path, PYTHONIOENCODING=encoding)
    assert text.returncode == 0
    assert text.stdout.decode(encoding)
    assert not text.stderr


def test_output_follows_links_and_keeps_the_mode(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    real, link, dangling = tmp_path / "real", tmp_path / "link", tmp_path / "dangling"
    real.write_text("before")
    real.chmod(0o640)
    link.symlink_to("real")
    dangling.symlink_to("made")
    for path in (link, dangling):
        assert napkin(f"params gpt2 -o {path}").status == 0
        assert path.is_symlink()
    assert "gpt2" in real.read_text()
    assert real.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "made").read_text() == real.read_text()
    assert sorted(os.listdir(tmp_path)) == ["dangling", "link", "made", "real"]


def test_an_interrupt_ends_with_its_status(tmp_path: pathlib.Path) -> None:
    pipe = tmp_path / "config.json"
    os.mkfifo(pipe)
    running = subprocess.Popen(
        [sys.executable, "-m", "napkin", "params", str(pipe)],
        env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.default_int_handler
        ),  # a job in the background ignores it
    )
    try:
        with open(pipe, "wb"):  # from here on it reads
            running.send_signal(signal.SIGINT)
            assert running.communicate(timeout=60) == (b"", b"")
        assert running.returncode == 130
    finally:
        running.kill()


def test_a_pipe_is_read_as_a_file(tmp_path: pathlib.Path) -> None:
    config = '{"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 2, "vocab_size": 100}'
    done = shell(f"mkfifo f; echo '{config}' > f & sleep 0.1; napkin params f --json", tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["values"]["params/total"] > 0


@pytest.mark.parametrize("content", ["", '{"model_type": "gpt2"}', "zz"])
def test_a_pipe_with_an_error_is_not_opened_again(tmp_path: pathlib.Path, content: str) -> None:
    """A second opening waits for a second writer, which never comes."""
    (tmp_path / "content").write_text(content)
    line = "mkfifo f; export -f napkin; cat content > f & timeout 60 bash -c 'napkin params f'"
    done = shell(line, tmp_path)
    assert done.returncode in (2, 3)  # 124: it waited
    assert done.stderr.startswith(b"error: f:")


@pytest.mark.parametrize("value", ["", "x", "1", "complete_bash", "source_zsh"])
def test_a_stray_completion_variable_changes_no_answer(
    napkin: Napkin, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    plain = napkin("params gpt2").out
    monkeypatch.setenv("_NAPKIN_COMPLETE", value)
    assert napkin("params gpt2").out == plain


@pytest.mark.parametrize("cursor", ["²", "-1", "9" * 30, "", "x"])
def test_completion_with_an_odd_cursor(napkin: Napkin, monkeypatch: pytest.MonkeyPatch, cursor: str) -> None:
    monkeypatch.setenv("_NAPKIN_COMPLETE", "complete_zsh")
    monkeypatch.setenv("COMP_WORDS", "napkin\npar")
    monkeypatch.setenv("COMP_CWORD", cursor)
    assert napkin("").status == 0


# --- found by drawing ----------------------------------------------------------------------------------------------


def test_a_problem_found_twice_is_reported_once(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    run = tmp_path / "run.yaml"
    run.write_text("command: no-such\n")
    assert len(napkin(f"check {run} {run}").errors) == 1


def test_a_cut_exponent_is_no_prefix(napkin: Napkin) -> None:
    assert napkin("train-time --params 7e --tokens 1T --hardware h100 --gpus 8").status == 2
    assert "exponent" in napkin("data --tokens 7e --vocab 100").errors[0]
    assert "exponent" in napkin("data --tokens 1E --vocab 100").errors[0]
    assert napkin("data --tokens 1e--5 --vocab 100").status == 2
    assert napkin("roofline matmul 8x8x8 --hardware h100 --peak-flops 1EFLOP/s").status == 0


@pytest.mark.parametrize("optimizer", ["adamw", "adagrad", "adafactor", "adamw8bit"])
def test_a_stack_of_any_depth_costs_what_its_layers_do(napkin: Napkin, optimizer: str) -> None:
    def asked(layers: str) -> dict[str, float]:
        return napkin(f"memory linear {layers} --batch 2 --optimizer {optimizer} --json").values

    line = "--width 8 --depth {}".format
    assert asked(line(3)) == asked("--widths 8,8,8,8,1")
    two, three, deep = asked(line(2)), asked(line(3)), asked(line("1e15"))
    for path, value in deep.items():
        assert value == two[path] + (10**15 - 2) * (three[path] - two[path]), path


def test_fp64_s_own_largest_number_is_read(napkin: Napkin) -> None:
    largest = napkin("dtype 1.7976931348623157e308 --dtype fp64 --json")
    assert largest.status == 0
    assert 1.7976931348623157e308 in largest.values.values()
    assert napkin("dtype 1e309 --dtype fp64").status == 2
    assert napkin("dtype 5x").status == 2


def test_a_family_is_searched_up_to_a_width(napkin: Napkin) -> None:
    line = "max-params --hardware h100 --like llama3 --json"
    assert napkin(f"{line} --gpus 1e6").status == 0
    refused = napkin(f"{line} --gpus 1e12")
    assert refused.status == 3
    assert "4,096 heads" in refused.errors[0]


def test_a_machine_for_fewer_layers_than_a_family_s_narrowest_shape(napkin: Napkin) -> None:
    """16 GB hold a few layers of Llama's narrowest width, whole on each GPU, and not as many as are in proportion."""
    answer = napkin("max-params --gpus 8 --like llama3 --hardware v100 --ema --json")
    assert answer.status == 0
    assert any("not even its smallest shape fits" in note for note in answer.data["notes"])
    assert "fits/params" not in answer.values


def test_every_unfit_field_of_a_config_is_named(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama"}')
    missing = napkin(f"params {path}")
    assert missing.status == 3
    assert [line.split(": ")[2] for line in missing.errors] == ["hidden_size", "num_hidden_layers"]
    path.write_text('{"model_type": "llama",\n "hidden_size": "x",\n "num_hidden_layers": 0, "vocab_size": true}')
    wrong = napkin(f"params {path}")
    assert wrong.status == 2
    assert [line.split(": ")[1:3] for line in wrong.errors] == [
        [f"{path}:2", "hidden_size"],
        [f"{path}:3", "num_hidden_layers"],
        [f"{path}:3", "vocab_size"],
    ]
    path.write_text(
        '{"model_type": "llava", "text_config": {"model_type": "llama", "hidden_size": null, "num_hidden_layers": 0}}'
    )
    assert len(napkin(f"params {path}").errors) == 2


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('{"a": 1,\n "b": {"a": 2},\n "a": 3}', 3, "appears twice"),
        ('{"a": "NaN",\n "b": NaN}', 2, "NaN"),
        ('{"a": "1e999",\n "b": 1e999}', 2, "out of range"),
    ],
)
def test_a_mistake_of_json_has_its_line(
    napkin: Napkin, tmp_path: pathlib.Path, text: str, line: int, words: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    (error,) = napkin(f"params {path}").errors
    assert error.startswith(f"error: {path}:{line}: ")
    assert words in error


def test_bytes_of_a_parameter(napkin: Napkin) -> None:
    line = "max-params --gpus 8 --hardware h100 --json --bytes-per-param"
    assert "ambiguous" in napkin(f"{line} 16G").errors[0]
    assert napkin(f"{line} 16B").values == napkin(f"{line} 16").values
    assert napkin(f"{line} 0.5").values["params/max"] == 2 * 640 * 10**9


@pytest.mark.parametrize("name", ["\0", "\ud800", "x" * 5000])
def test_a_text_that_is_no_path(napkin: Napkin, name: str) -> None:
    assert napkin(["check", name]).status == 2
    assert napkin(["params", f"./{name}.json"]).status == 2


def test_out_of_range_numbers_are_reported_in_words(napkin: Napkin) -> None:
    outcome = napkin("step gpt2 --gpus 8 --hardware h100 --peak-flops 1e-300")
    assert outcome.status == 0
    assert "out of range" in outcome.out
    assert "nan" not in outcome.out
    line = "train-time --params 8B --tokens 1e300 --hardware h100 --gpus 8 --mfu 1e-9"
    outcome = napkin(f"{line} --carbon-intensity 1e30")
    assert outcome.status == 0
    assert "CO2e out of range" in outcome.out
    assert "inf" not in outcome.out


@pytest.mark.parametrize(
    "budget",
    ["--gpus 1e15 --hardware h100 --within 30d", "--compute 10", "--compute 5e-324 --unique-tokens 100B"],
)
def test_a_budget_that_trains_nothing_is_reported(napkin: Napkin, budget: str) -> None:
    """10¹⁵ GPUs fail so often that nothing of the time is training."""
    outcome = napkin(f"optimal {budget}")
    assert outcome.status == 1
    assert "not enough for one parameter" in outcome.errors[0]


def test_three_hyphens_begin_no_option(napkin: Napkin) -> None:
    outcome = napkin("params gpt2 ---json")
    assert outcome.status == 2
    assert "two hyphens" in outcome.hints[0]


def test_no_control_character_of_a_file_reaches_a_screen() -> None:
    answer = Answer("memory", screen=Screen(("a\x1b[2J\x1b[31mb\u202e",), ("18 bytes",), "fits"))
    assert render(answer, "text") == "a\\x1b[2J\\x1b[31mb\\u202e\n  18 bytes\n"
    assert render(answer, "markdown").startswith("a\\x1b[2J")
    colored = render(answer, "text", Display(color=True))
    assert "\\x1b[2J" in colored
    assert "\x1b[1;32m" in colored
