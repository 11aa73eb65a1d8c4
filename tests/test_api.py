"""`import napkin`: every question is a function that answers as the command does."""

from __future__ import annotations

import copy
import io
import json
import os
import pathlib
import pickle
import re
import runpy
import shlex
import subprocess
import sys
import types
from html.parser import HTMLParser
from typing import Any

import pytest

import napkin
from napkin import NapkinError, api
from napkin._tables.commands import COMMANDS, FUNCTIONS
from napkin.api import AS_WRITTEN
from napkin.cli.reader import read
from napkin.commands.command import named
from napkin.errors import Problems
from napkin.options.registry import OPTIONS
from napkin.render.html import to_html
from napkin.render.svg import figures
from tests import python_script
from tests.conftest import ROOT, answered, run_line

ANY: Any = napkin
"""The same without its signatures, to ask what a type checker rejects."""
RECORDED = runpy.run_path(os.path.join(ROOT, "tools", "recorded.py"))
REFUSED = ["params no-such-model", "flops llama3-8b --seq 0"]
"""Refusals, whatever is drawn."""
DRAWN = [line for line in RECORDED["Draw"](18).lines(41) if not line.startswith("sensitivity plan")] + REFUSED  # 8 s
EIGHT = "memory llama3-8b --gpus 8 --hardware h100 --zero 3"


def eight() -> Any:
    return napkin.memory("llama3-8b", gpus=8, hardware="h100", zero=3)


def as_python(text: object) -> object:
    """A value as Python code would write it: numbers as numbers."""
    if isinstance(text, str) and re.fullmatch(r"\d+", text):
        return int(text)
    return float(text) if isinstance(text, str) and re.fullmatch(r"\d+\.\d+", text) else text


def asked(line: str) -> dict[str, Any]:
    """The answer to a command line, asked in Python, as the JSON has it; NapkinError if there is none."""
    command, words = named(shlex.split(line))
    given = read(command, words).given
    first, *rest = command.name.split()
    target = [rest[0].replace("-", "_")] if rest else []
    arguments = [given[name].text for name in command.arguments if name in given and not OPTIONS[name].many]
    several = [
        one for name in command.arguments if name in given and OPTIONS[name].many for one in list_of(given[name])
    ]
    options = {OPTIONS[name].key: as_python(one.text) for name, one in given.items() if name not in command.arguments}
    function = getattr(napkin, FUNCTIONS_BY_COMMAND[first])
    answer: napkin.Result = function(*target, *arguments, *several, **options)
    return answer.to_dict()


FUNCTIONS_BY_COMMAND = {command: key for key, command in FUNCTIONS.items()}


def list_of(one: Any) -> list[object]:
    return list(one.text)


def plain(data: Any) -> Any:
    """JSON without the texts that a shell and Python write in different ways: `0.5` and `50%` stay what they are."""
    return json.loads(json.dumps(data))


@pytest.mark.parametrize("line", DRAWN)
@pytest.mark.slow
def test_a_function_answers_what_its_command_prints(line: str) -> None:
    printed = run_line(f"{line} --json")
    if not printed.out:
        with pytest.raises(NapkinError) as problem:
            asked(line)
        assert problem.value.status == printed.status
        assert [f"error: {one.message}" for one in problem.value.errors] == printed.errors
        assert [f"hint: {one.hint}" for one in problem.value.errors if one.hint] == printed.hints
    else:
        assert plain(asked(line)) == printed.data


def test_the_draw_has_answers_and_refusals() -> None:
    statuses = {
        run_line(line).status for line in DRAWN if line.startswith(("params", "nonsense", "flops", "memory lin"))
    }
    assert {0, 2} <= statuses


def test_a_number_knows_its_path_its_unit_and_its_interval() -> None:
    answer, data = eight(), run_line(f"{EIGHT} --json").data
    total = data["values"]["memory/total"]
    assert answer.total == answer.memory == answer["memory/total"] == answer.values["memory/total"] == total
    assert answer.optimizer.exp_avg == data["values"]["memory/optimizer/exp_avg"] == 8_030_261_248 * 4 // 8
    assert (answer.total.low, answer.total.high) == (data["low"]["memory/total"], data["high"]["memory/total"])
    assert answer["memory/low"] == answer.total.low
    assert (answer.total.unit, answer.total.path) == ("byte", "memory/total")
    assert answer.verdict == "fits"
    assert answer.status == 0
    assert answer.inputs["gpus"].value == 8
    assert answer.low == data["low"]
    assert answer.units == data["units"]
    assert answer.optimizer.expression == "step + exp_avg + exp_avg_sq + master"
    assert sum(answer.optimizer.parts) == answer.optimizer
    assert "exact" in answer.optimizer.kinds
    assert answer["bytes_of_exp_avg"] == 4  # below what is published
    assert isinstance(answer.total, int)
    assert isinstance(answer.total, napkin.Quantity)
    assert {"total", "optimizer", "activations"} <= set(dir(answer))
    assert "exp_avg" in dir(answer.optimizer)


def test_other_commands_by_attribute() -> None:
    step = napkin.step("llama3-8b", gpus=8, hardware="h100", zero=3)
    assert step.time == step.step == step["step/time"]
    assert step.memory == eight().total
    run = napkin.train_time(params="70B", tokens="15T", gpus=1024, hardware="h100", mfu=0.5)
    assert run.flops == 6 * 70 * 10**9 * 15 * 10**12
    assert run.time == run.flops / (1024 * 989.4e12 * 0.5)
    assert napkin.params("llama3-8b").total == 8_030_261_248
    rows = napkin.plan("llama3-8b", gpus=8, hardware="h100").rows
    assert rows[0]["rank"] == 1


def test_an_answer_does_not_change_and_can_be_copied() -> None:
    answer = eight()
    for change in (lambda: setattr(answer, "verdict", "x"), lambda: setattr(answer.total, "unit", "x")):
        with pytest.raises(AttributeError, match="does not change"):
            change()
    with pytest.raises(TypeError):
        answer.values["memory/total"] = 0
    data = answer.to_dict()
    data["values"].clear()
    data["notes"].append("x")
    assert answer.to_dict()["values"]
    assert "x" not in answer.notes
    assert pickle.loads(pickle.dumps(answer.total)) == copy.deepcopy(answer.total) == answer.total
    assert pickle.loads(pickle.dumps(answer)).to_dict() == copy.deepcopy(answer).to_dict() == answer.to_dict()


def test_what_is_not_there_is_named() -> None:
    answer = eight()
    with pytest.raises(KeyError, match="did you mean memory/optimizer"):
        answer["memory/optimiser"]
    with pytest.raises(AttributeError, match="did you mean"):
        _ = answer.optimizerr
    with pytest.raises(AttributeError, match="memory/at/forward"):
        _ = answer.at
    assert not hasattr(answer, "_ipython_canary_method_should_not_exist_")


def test_values_as_in_a_shell() -> None:
    texts = napkin.train_time(params="70B", tokens="15T", gpus="1024", hardware="h100", mfu="50%")
    numbers = napkin.train_time(params=7e10, tokens=15 * 10**12, gpus=1024.0, hardware="h100", mfu=0.5)
    assert texts.values == numbers.values
    assert napkin.memory("gpt2", sp=None, gpus=None).values == napkin.memory("gpt2").values
    assert napkin.memory("llama3-8b", gpus=8, tp=8, hardware="h100", sp=False).inputs["sp"].value is False
    assert ANY.memory("llama3-8b", batch_size=2).inputs["micro-batch"].value == 2  # another tool's name
    again = napkin.train_time(params="70B", tokens="15T", hardware="h100", mfu=0.5, within=texts.time)
    assert again["gpus"] == 1024
    config = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 2}
    assert napkin.params(config).values == napkin.params(json.dumps(config)).values
    assert napkin.compare("h100", "b200").rows == ANY.compare(["h100", "b200"]).rows


def test_a_count_of_gpus_under_the_name_of_the_accelerator(tmp_path: pathlib.Path) -> None:
    """`gpu` names an accelerator (4090) or counts them, as on the command line and in a run file."""
    counted = ANY.memory("llama3-8b", gpu=8, hardware="h100", zero=3)
    assert counted.inputs["gpus"].value == 8
    assert ANY.memory("llama3-8b", gpu=4090, lora_rank=8).inputs["hardware"].value == "4090"
    path = tmp_path / "run.yaml"
    path.write_text("command: memory\nmodel: llama3-8b\ngpu: 8\nhardware: h100\nzero: 3\n")
    assert (
        run_line(f"memory --run {path} --json").values
        == run_line("memory llama3-8b --gpus 8 --hardware h100 --zero 3 --json").values
    )


def test_a_list_belongs_in_a_sweep() -> None:
    answer = ANY.sweep("train_time", params="7B", tokens="1T", hardware="h100", mfu=0.4, over={"gpus": [64, 128]})
    assert [row["gpus"] for row in answer.rows] == [64, 128]
    with pytest.raises(NapkinError) as problem:
        ANY.train_time(params="7B", tokens="1T", hardware="h100", mfu=0.4, gpus=[64, 128])
    assert "--over gpus=64,128" in str(problem.value.hint)


def test_errors_are_exceptions_with_status_and_hint() -> None:
    with pytest.raises(NapkinError) as problem:
        ANY.memory("llama3-8b", gpuz=8)
    assert (problem.value.status, problem.value.hint) == (2, "did you mean --gpus?")
    assert str(problem.value) == "memory has no option --gpuz\nhint: did you mean --gpus?"
    with pytest.raises(NapkinError) as several:
        napkin.train_time(params="70 apples", gpus="many", hardware="h100")
    assert isinstance(several.value, Problems)
    assert len(several.value.errors) == 2
    with pytest.raises(NapkinError, match="neither a number nor a text"):
        ANY.memory("llama3-8b", gpus=object())
    with pytest.raises(NapkinError, match="is None"):
        napkin.memory(None)
    with pytest.raises(NapkinError) as refused:
        napkin.params({"model_type": "gpt2", "n_embd": 64, "n_head": 2})
    assert refused.value.status == 3


def test_a_number_out_of_range_is_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def overflow(*_: object, **__: object) -> None:
        raise OverflowError

    monkeypatch.setattr(api, "answer_of", overflow)
    with pytest.raises(NapkinError, match="out of range") as problem:
        napkin.params("gpt2")
    assert problem.value.status == 2


@pytest.mark.parametrize("name", ["json", "csv", "explain", "verbose", "plot", "output", "help"])
def test_how_an_answer_is_written_is_no_question(name: str) -> None:
    with pytest.raises(NapkinError, match="not part of the question"):
        ANY.params("gpt2", **{name: True})
    assert name == "help" or name in AS_WRITTEN


def test_an_impossible_answer_is_an_answer() -> None:
    answer = napkin.train_time(params="70B", tokens="15T", gpus=8, hardware="h100", mfu=None, within="1d")
    assert (answer.status, answer.verdict) == (1, "impossible")
    assert run_line(answer.line.removeprefix("napkin ")).status == 1


def test_nothing_is_named_as_a_function_is() -> None:
    """A package or module of that name would take its place once it is imported."""
    folder = os.path.join(ROOT, "src", "napkin")
    taken = {name.removesuffix(".py") for name in os.listdir(folder) if not name.endswith(".pyi")}
    functions = {name.replace("-", "_") for name in COMMANDS} - {"bench"}
    assert functions == set(FUNCTIONS)
    assert not taken & functions
    assert not functions & set(napkin.RECORDS)
    from napkin import bench

    assert isinstance(bench, types.ModuleType)
    assert napkin.bench is bench  # type: ignore[comparison-overlap,unused-ignore]
    with pytest.raises(AttributeError, match="no attribute 'lora'"):
        _ = napkin.lora  # type: ignore[attr-defined]


def loaded(code: str) -> set[str]:
    """The modules that a script loads."""
    script = f"import sys; before = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


def test_importing_costs_nothing_and_asking_what_the_command_does() -> None:
    assert loaded("import napkin") - {"__future__"} == {"napkin"}
    heavy = {
        "torch",
        "numpy",
        "rich",
        "pydantic",
        "matplotlib",
        "yaml",
        "json",
        "typing",
        "dataclasses",
        "re",
        "pandas",
    }
    question = "napkin.train_time(params='70B', tokens='15T', gpus=1024, hardware='h100', mfu=0.5).time"
    assert not heavy & loaded(f"import napkin; {question}")


def test_the_script_of_a_user_runs() -> None:
    assert [answer.status for answer in python_script.questions()] == [0] * 8
    with pytest.raises(NapkinError):
        python_script.rejected()


def test_the_text_and_the_line() -> None:
    answer = eight()
    assert f"{answer!r}\n" == run_line(EIGHT).out
    assert answer.line == f"napkin {EIGHT}"
    assert napkin.tensor("4x8", permute="1,0").line == "napkin tensor 4x8 --permute 1,0"
    assert napkin.dtype("-1.5").line == "napkin dtype -- -1.5"
    assert run_line(napkin.dtype("-1.5").line.removeprefix("napkin ")).status == 0
    assert answer.explain() == "\n".join(run_line(f"{EIGHT} --explain").out.split("\n\n", 1)[1:]).rstrip("\n")
    assert answer.optimizer.explain().startswith("memory/optimizer = ")
    assert answer.to_dict(explain=True)["terms"] == run_line(f"{EIGHT} --explain --json").data["terms"]


def test_a_table_of_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(NapkinError, match="needs pandas") as problem:
        eight().to_frame()
    assert "to_dict" in str(problem.value.hint)
    made: list[Any] = []

    def frame(rows: Any, **options: Any) -> Any:
        made.append((rows, options))
        return types.SimpleNamespace(index=types.SimpleNamespace(name=None))

    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=frame))
    eight().to_frame()
    napkin.plan("llama3-8b", gpus=8, hardware="h100").to_frame()
    rows, options = made[0]
    at = options["index"].index("memory/total")
    assert rows[at][:2] == (eight().total, "byte")
    assert made[1][0][0]["rank"] == 1


class Read(HTMLParser):
    """What a browser sees: elements that are open, attributes, and text outside <style>."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text = io.StringIO()
        self.scopes: list[str | None] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.scopes += [value for name, value in attrs if name == "scope"]
        self.open.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text.write(data)


@pytest.mark.parametrize(
    "line",
    [
        EIGHT,
        "train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --mfu 0.5",
        "plan llama3-8b --gpus 8 --hardware h100",
        "step llama3-8b --gpus 8 --hardware h100 --zero 3",
        "hardware",
    ],
)
def test_a_notebook_shows_what_the_screen_does(line: str) -> None:
    answer = answered(line)
    page = Read(to_html(answer))
    assert page.open == []
    shown = page.text.getvalue()
    screen = answer.screen
    assert all(part in shown for part in screen.headline)
    assert screen.table is not None
    cells = [cell for row in screen.table.rows for cell in row if isinstance(cell, str)]
    assert all(cell in shown for cell in cells)
    pictures = figures(answer.plot, 640)
    bars = sum(not isinstance(cell, str) for row in screen.table.rows for cell in row)
    assert page.seen.count("svg") == bars + sum(picture.count("<svg") for picture in pictures)
    assert "row" in page.scopes


def test_a_notebook_runs_nothing_of_a_name(tmp_path: Any) -> None:
    path = tmp_path / "<img src=x onerror=alert(1)>.json"
    path.write_text(json.dumps({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 2}), encoding="utf-8")
    page = napkin.params(path)._repr_html_()
    assert "<img" not in page
    assert "img src=x onerror" in Read(page).text.getvalue()


def test_every_answer_with_a_plot_draws_it_on_demand(tmp_path: pathlib.Path) -> None:
    step = napkin.step("llama3-8b", gpus=8, hardware="h100", tp=2, pp=2)
    step.plot(tmp_path / "step.svg")
    assert (tmp_path / "step.svg").read_text(encoding="utf-8").lstrip().startswith("<?xml")
    assert step._repr_html_().count("<figure") == 2  # where the time goes, and the pipeline's schedule


def test_values_whose_own_methods_fail_are_refused() -> None:
    class Odd:
        def __index__(self) -> int:
            raise ValueError("no")

    endless: list[object] = []
    endless.append(endless)
    nested: dict[str, object] = {}
    nested["text_config"] = nested
    for value in (Odd(), int, endless, nested):
        for arguments in ({"model": value}, {"model": "gpt2", "precision": value}):
            with pytest.raises(NapkinError):
                napkin.memory(hardware="h100", **arguments)
    with pytest.raises(KeyError, match="a path is a string"):
        napkin.params("gpt2")[None]  # type: ignore[index]
