"""What CI reads of `napkin check`: JUnit, annotations, folders, limits on the verdict, and a first run file."""

from __future__ import annotations

import json
import os
import pathlib
import re
import xml.etree.ElementTree as ElementTree

import pytest

from napkin.commands.command import MODULES, find
from napkin.inputs.limits import BROKEN_WORD
from napkin.render.findings import PROBLEM, Finding, escaped, to_annotations, to_junit
from tests.conftest import Napkin, written

TIME = "command: train-time\nparams: 70B\ntokens: 15T\ngpus: 1024\nhardware: h100\nmfu: 0.5\n"
FITS = "command: memory\nmodel: gpt2\nhardware: h100\n"
TOO_LARGE = "command: memory\nmodel: llama3-70b\ngpus: 8\nhardware: h100\n"

CASE = {"name", "classname", "time", "group", "file", "line"}
SHAPE: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors"},
        {"group", "time", "skipped", "timestamp", "hostname", "id", "package", "file", "log", "url"},
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
    ),
    "testcase": ({"name"}, CASE, {"skipped", "error", "failure", "system-out", "system-err"}),
    "failure": (set(), {"type", "message"}, set()),
    "error": (set(), {"type", "message"}, set()),
    "system-out": (set(), set(), set()),
}
"""Element → required attributes, further attributes, elements inside: Jenkins' junit-10.xsd (xunit-plugin), and
file and line of a case, which pytest's xunit1 writes and GitLab reads."""


def write(folder: pathlib.Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def wrong_shape(element: ElementTree.Element) -> list[str]:
    """Where a JUnit file departs from the shape, and where a suite's counts are not those of its cases."""
    if element.tag not in SHAPE:
        return [f"<{element.tag}> is unknown"]
    needed, allowed, inside = SHAPE[element.tag]
    found = [f"{element.tag}: {name} is missing" for name in needed - set(element.attrib)]
    found += [f"{element.tag}: {name} is unknown" for name in set(element.attrib) - needed - allowed]
    found += [f"<{child.tag}> inside <{element.tag}>" for child in element if child.tag not in inside]
    if element.tag in ("testsuites", "testsuite"):
        counts = {"tests": "testcase", "failures": "failure", "errors": "error"}
        for name, tag in counts.items():
            if element.get(name) != str(len(list(element.iter(tag)))):
                found.append(f"{element.tag}: {name} is {element.get(name)}")
    if element.tag == "testcase" and sum(child.tag in ("failure", "error") for child in element) > 1:
        found.append("two outcomes of one case")
    return found + [one for child in element for one in wrong_shape(child)]


def test_junit_has_the_shape_that_is_read(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    broken = write(tmp_path, "run.yaml", TIME + 'limits:\n  time: "<= 100d"\n  gpus: "== 1024"\n  tme: "<= 1d"\n')
    close = write(tmp_path, "close.yaml", TIME.replace("mfu: 0.5\n", "") + 'limits: {time: "<= 250d"}\n')
    gone = str(tmp_path / "gone.yaml")
    target = tmp_path / "junit.xml"
    assert napkin(["check", broken, close, gone, "--junit", str(target)]).status == 2
    root = ElementTree.parse(target).getroot()
    assert wrong_shape(root) == []
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("5", "2", "2")
    assert [suite.get("name") for suite in root] == [broken, close, gone]
    cases = {case.get("name"): case for case in root.iter("testcase")}
    first = cases["train-time: time <= 100d"]
    assert (first.get("file"), first.get("line"), first.get("classname")) == (broken, "8", broken)
    assert first[0].get("message") == "time is 143.9 days: broken, by 43.94 days (30.5%)"
    assert cases["train-time: gpus == 1024"].get("line") == "9"
    assert re.search(r"may be \d+ to \d+ days", cases["train-time: time <= 250d"][0].get("message") or "")
    problem = next(case for case in root[0] if case[0].tag == "error")
    assert (problem.get("file"), problem.get("line")) == (broken, "10")


def test_the_shape_finds_what_is_wrong() -> None:
    good = to_junit([Finding("a", BROKEN_WORD, "b", "c", 3)], {})
    assert wrong_shape(ElementTree.fromstring(good)) == []
    for text, other in (("failure", "fail"), ('tests="1"', 'tests="2"'), ("line=", "lineno="), ("classname", "class")):
        assert wrong_shape(ElementTree.fromstring(good.replace(text, other))) != []


def test_two_cases_of_one_file_have_two_names(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    one = "- " + TIME.replace("\n", "\n  ") + 'limits: {time: "<= 150d"}\n'
    named = one.replace("- command", "- name: the lecture\n  command")
    path = write(tmp_path, "list.yaml", f"checks:\n{one}{one}{named}")
    target = tmp_path / "junit.xml"
    assert napkin(["check", path, "--junit", str(target)]).status == 0
    names = [case.get("name") for case in ElementTree.parse(target).getroot().iter("testcase")]
    assert names == ["train-time: time <= 150d", "train-time: time <= 150d (2)", "the lecture: time <= 150d"]


def test_junit_holds_any_text() -> None:
    odd = "a \x00 \x1b[31m \ud800 <&>\"' ]]> \ufffe é"
    root = ElementTree.fromstring(to_junit([Finding(odd, PROBLEM, odd, odd, 1), Finding(odd, "holds", odd)], {}))
    assert wrong_shape(root) == []
    assert root[0][0].get("name") == "a \\x00 \\x1b[31m \\ud800 <&>\"' ]]> \\ufffe é"


def test_annotations_are_workflow_commands(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    path = write(tmp_path, "run.yaml", TIME + 'limits: {time: "<= 100d", gpus: "== 1024", tme: "<= 1d"}\n')
    outcome = napkin(["check", path, "--annotations", "github"])
    assert outcome.status == 2
    assert outcome.out.splitlines()[-2:] == [
        f"::error file={path},line=7,title=train-time%3A time <= 100d::time is 143.9 days: broken, by 43.94 days "
        "(30.5%25)",
        f"::error file={path},line=7,title=cannot be checked::limits.tme: the answer has no such quantity "
        "(did you mean time?)",
    ]


def test_an_annotation_cannot_be_broken_out_of() -> None:
    """Percent first, then line ends; in a property colon and comma too (actions/toolkit, core/src/command.ts)."""
    assert escaped("50%: a,b\r\n::error::c") == "50%25: a,b%0D%0A::error::c"
    assert escaped("50%: a,b\r\n", property=True) == "50%25%3A a%2Cb%0D%0A"
    finding = Finding("a,file=b::", BROKEN_WORD, "c\n::set-output name=d::e", "f,g:h.yaml", 2)
    assert to_annotations([finding]) == [
        "::error file=f%2Cg%3Ah.yaml,line=2,title=a%2Cfile=b%3A%3A::c%0A::set-output name=d::e"
    ]


def test_an_annotation_names_the_file_from_the_root_of_the_checkout(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path / "runs")
    one = [Finding("a", BROKEN_WORD, "b", "c.yaml", 2)]
    assert to_annotations(one, str(tmp_path)) == ["::error file=runs/c.yaml,line=2,title=a::b"]
    assert to_annotations(one, str(tmp_path / "elsewhere")) == ["::error file=c.yaml,line=2,title=a::b"]


def test_what_is_too_close_is_a_warning_and_what_holds_says_nothing(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    path = write(tmp_path, "run.yaml", TIME.replace("mfu: 0.5\n", "") + 'limits: {time: "<= 250d", gpus: "== 1024"}\n')
    lines = napkin(["check", path, "--annotations", "github"]).out.splitlines()
    marks = [line for line in lines if line.startswith("::")]
    assert len(marks) == 1
    place, _, said = marks[0].partition("::time is ")
    assert place == f"::warning file={path},line=6,title=train-time%3A time <= 250d"
    assert re.match(r"\d+\.\d days: too close, may be ", said)


def test_annotations_are_printed_where_nothing_could_be_checked(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    gone = str(tmp_path / "gone.yaml")
    outcome = napkin(["check", gone, "--annotations", "github"])
    assert outcome.status == 2
    assert f"::error file={gone},title=cannot be checked::No such file or directory (check the path)" in outcome.out


def test_annotations_and_json_do_not_share_a_stream(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    path = write(tmp_path, "run.yaml", TIME + 'limits: {time: "<= 100d"}\n')
    outcome = napkin(["check", path, "--annotations", "github", "--json"])
    assert (outcome.status, outcome.out) == (2, "")
    assert "--json and --annotations cannot be combined" in outcome.err
    target = tmp_path / "out.json"
    outcome = napkin(["check", path, "--annotations", "github", "--json", "-o", str(target)])
    assert outcome.status == 1
    assert outcome.out.startswith("::error ")
    assert json.loads(target.read_text())["checks"][0]["line"] == 7


def test_a_folder_is_read_to_the_bottom_sorted_each_file_once(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    for name in ("b.yaml", "a.yml", "deep/er/c.yaml", ".hidden/d.yaml"):
        write(tmp_path, name, TIME + 'limits: {time: "<= 150d"}\n')
    write(tmp_path, "compose.yaml", "services: {}\n")
    write(tmp_path, "list.yaml", "- 1\n")
    write(tmp_path, "notes.txt", "not YAML: :\n")
    outcome = napkin(["check", str(tmp_path), str(tmp_path / "a.yml"), "--json"])
    assert outcome.status == 0, outcome.err
    files = [os.path.relpath(c["file"], tmp_path) for c in outcome.data["checks"]]
    assert files == ["a.yml", "b.yaml", "deep/er/c.yaml"]
    text = napkin(["check", str(tmp_path)]).out
    assert "3 of 3" in text
    assert "compose.yaml" in text
    assert "list.yaml" in text


def test_a_bad_file_does_not_hide_the_others(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    write(tmp_path, "a.yaml", "command: [\n")
    write(tmp_path, "b.yaml", TIME + 'limits: {time: "<= 100d"}\n')
    write(tmp_path, "c.yaml", TIME)
    os.symlink(tmp_path / "nowhere", tmp_path / "d.yaml")
    os.symlink(tmp_path, tmp_path / "loop")
    outcome = napkin(["check", str(tmp_path)])
    assert outcome.status == 2
    assert "BROKEN   1 of 1   not checked: 3" in outcome.out
    assert [line.rpartition("/")[2].split(":")[0] for line in outcome.errors] == ["a.yaml", "c.yaml", "d.yaml"]


def test_a_folder_without_run_files_is_an_error(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    assert "holds no file that ends in .yaml" in napkin(["check", str(tmp_path)]).err
    write(tmp_path, "compose.yaml", "services: {}\n")
    outcome = napkin(["check", str(tmp_path)])
    assert outcome.status == 2
    assert "holds no run file" in outcome.err


def test_of_many_limits_those_that_fail_are_listed(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    for n in range(17):
        write(tmp_path, f"{n:02}.yaml", TIME + f'limits: {{time: "<= {100 if n == 3 else 150}d"}}\n')
    out = napkin(["check", str(tmp_path)]).out
    assert len(out.splitlines()) < 10
    assert "broken: 1   holds: 16" in out
    assert "16 more hold" in out


@pytest.mark.parametrize(
    ("question", "limit", "status", "found"),
    [
        (FITS, "fits", 0, "holds"),
        (FITS, '"== fits"', 0, "holds"),
        (FITS, "does not fit", 1, "broken"),
        (TOO_LARGE, "fits", 1, "broken"),
        (TOO_LARGE, "does not fit", 0, "holds"),
        (TOO_LARGE + "must-fit: true\n", "does not fit", 0, "holds"),
        (TOO_LARGE, "fits | too close to call", 1, "broken"),
        ("command: roofline\nmodel: matmul\nsize: 8192x8192x8192\nhardware: h100\n", "compute", 0, "holds"),
        ("command: roofline\nmodel: matmul\nsize: 8192x8192x8192\nhardware: h100\n", "memory", 1, "broken"),
    ],
)
def test_a_limit_on_the_verdict(
    napkin: Napkin, tmp_path: pathlib.Path, question: str, limit: str, status: int, found: str
) -> None:
    path = write(tmp_path, "run.yaml", f"{question}limits:\n  verdict: {limit}\n")
    outcome = napkin(["check", path, "--json"])
    assert outcome.status == status, outcome.err
    assert [c["status"] for c in outcome.data["checks"]] == [found]
    assert isinstance(outcome.data["checks"][0]["value"], str)


def test_a_verdict_that_is_too_close_to_call_is_close(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    question = "command: memory\nmodel: llama3-8b\ngpus: 8\nzero: 3\nhardware: h100\nseq: 6144\n"
    path = write(tmp_path, "run.yaml", question + "limits: {verdict: fits}\n")
    outcome = napkin(["check", path, "--json"])
    assert outcome.status == 4, outcome.err
    assert [c["status"] for c in outcome.data["checks"]] == ["close"]
    path = write(tmp_path, "run.yaml", question + "limits: {verdict: too close to call}\n")
    assert napkin(["check", path]).status == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (FITS + "limits: {verdict: fit}\n", ["run.yaml:4: limits.verdict", "'fit' is not a verdict", "fits"]),
        (FITS + "limits: {verdict: 3}\n", ["3 is not a verdict"]),
        (FITS + "limits: {cost: '<= 9'}\n", ["no such quantity", "price, USD per GPU-hour"]),
        (FITS + "limits: {verdct: fits}\n", ["no such quantity", "did you mean verdict"]),
        (TIME + "limits: {verdict: holds}\n", ["this answer has no verdict"]),
        ("command: params\nmodel: gpt2\nlimits: {verdict: fits}\n", ["the command gives no verdict"]),
    ],
)
def test_a_limit_that_no_verdict_can_meet(napkin: Napkin, tmp_path: pathlib.Path, text: str, words: list[str]) -> None:
    outcome = napkin(["check", write(tmp_path, "run.yaml", text)])
    assert outcome.status == 2
    for word in words:
        assert word in outcome.err


def test_what_the_question_itself_asks_is_a_line_too(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    text = TOO_LARGE + 'must-fit: true\nlimits: {memory/parameters: ">= 1GB"}\n'
    outcome = napkin(["check", write(tmp_path, "run.yaml", text), "--json"])
    assert outcome.status == 1
    found = [(c["line"], c["path"], c["limit"], c["value"], c["status"]) for c in outcome.data["checks"]]
    assert found[1] == (1, "verdict", "fits", "does not fit", "broken")


PLAN = "command: plan\nmodel: gpt2\nhardware: h100\ngpus: 8\nseq: 1024\nglobal-batch: 64\n"
RUN = PLAN + "tokens: 300B\n"


@pytest.mark.parametrize(
    ("question", "status", "limit", "value"),
    [
        (RUN + "within: 90d\n", 0, "", ""),
        (RUN + "within: 1h\n", 1, "holds", "broken"),
        (
            "command: train-time\nmodel: gpt2\nhardware: h100\ngpus: 8\ntokens: 300B\nzero: 1\nwithin: 1h\n",
            1,
            "holds",
            "broken",
        ),
    ],
)
def test_each_command_says_which_verdict_is_success(
    napkin: Napkin, tmp_path: pathlib.Path, question: str, status: int, limit: str, value: str
) -> None:
    """A deadline that is missed is a line of its own: what was asked to hold, and what was found."""
    outcome = napkin(["check", write(tmp_path, "run.yaml", question + 'limits: {mfu: ">= 1%"}\n'), "--json"])
    assert outcome.status == status, outcome.err
    own = [(c["limit"], c["value"]) for c in outcome.data["checks"] if c["path"] == "verdict"]
    assert own == ([(limit, value)] if limit else [])


def test_plan_gives_a_verdict_on_memory_without_a_limit(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    assert napkin(["check", write(tmp_path, "run.yaml", PLAN + "limits: {verdict: fits}\n")]).status == 0
    assert napkin(["check", write(tmp_path, "run.yaml", RUN + "within: 90d\nlimits: {verdict: holds}\n")]).status == 0


@pytest.mark.parametrize("name", ["json", "csv", "verbose", "quiet", "explain"])
def test_how_a_file_writes_its_own_answer_is_not_used(napkin: Napkin, tmp_path: pathlib.Path, name: str) -> None:
    path = write(tmp_path, "run.yaml", f"{FITS}{name}: true\nlimits: {{verdict: fits}}\n")
    outcome = napkin(["check", path, "--json"])
    assert outcome.status == 0, outcome.err
    assert [note for note in outcome.data["notes"] if f"run.yaml:4: {name} is not used" in note]


VERDICTS = [
    (name, example) for name in MODULES if name != "bench" and find(name).verdicts for example in find(name).examples
]


@pytest.mark.parametrize(("name", "line"), VERDICTS)
@pytest.mark.slow
def test_a_verdict_is_one_that_its_command_names(name: str, line: str) -> None:
    assert json.loads(written(line, "json"))["verdict"] in (None, *find(name).verdicts)


def test_init_writes_a_file_that_passes(
    napkin: Napkin, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = napkin("check --init")
    assert outcome.status == 0, outcome.err
    assert "HOLDS" in outcome.out
    assert "next: napkin check napkin.yaml" in outcome.out
    text = (tmp_path / "napkin.yaml").read_text()
    assert "napkin check napkin.yaml" in text
    assert napkin("check napkin.yaml").status == 0
    assert napkin("check .").status == 0
    outcome = napkin("check --init")
    assert outcome.status == 2
    assert "napkin.yaml: already exists" in outcome.err
    assert (tmp_path / "napkin.yaml").read_text() == text


def test_init_takes_a_name_or_a_folder(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    named, folder = tmp_path / "mine.yaml", tmp_path / "runs"
    folder.mkdir()
    assert napkin(["check", "--init", str(named)]).status == 0
    assert napkin(["check", "--init", str(folder)]).status == 0
    assert (folder / "napkin.yaml").exists()
    dangling = tmp_path / "link.yaml"
    os.symlink(tmp_path / "target.yaml", dangling)
    assert napkin(["check", "--init", str(dangling)]).status == 2
    assert not (tmp_path / "target.yaml").exists()
    assert napkin(["check", "--init", str(named), "other.yaml"]).status == 2
    assert napkin(["check", "--init", "-"]).status == 2
    assert napkin(["check", "--init", str(tmp_path / "no" / "folder.yaml")]).status == 2
