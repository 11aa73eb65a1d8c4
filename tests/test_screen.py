"""What a person sees: no line wider than the terminal, the answer in line 2, names whole, colors by verdict."""

from __future__ import annotations

import io
import re

import pytest

from napkin.render import render
from napkin.render.answer import Answer, Shown
from napkin.render.figures import amount, between, briefly, size
from napkin.render.screen import Bar, Column, Display, Next, Screen, Table, quantities
from napkin.render.terminal import readable, wants_color, width_of
from napkin.units import human
from tests.conftest import Napkin, answered, run_line, written

WIDTHS = (60, 80, 100, 200)
HEIGHT = 24
LECTURE = "train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --mfu 0.5"

SCREENS = (
    (LECTURE, "time"),
    ("train-time --params 70B --tokens 15T --gpus 1024 --hardware h100", "time"),
    ("train-time --params 70B --tokens 15T --hardware h100 --mfu 0.4 --within 30d", "gpus"),
    ("train-time --params 7B --gpus 256 --hardware a100 --mfu 0.45 --price 2 --budget 2000000", "tokens"),
    ("train-time deepseek-v3 --tokens 14.8T --gpus 2048 --hardware h800 --dtype fp8", "time"),
    ("train-time --params 13B --tokens 2T --gpus 512 --hardware a100 --within 10d", "mfu"),
    ("train-time --params 405B --tokens 15.6T --gpus 100000 --hardware b200 --price 4", "time"),
    ("train-time --params 1M --tokens 1M --gpus 1 --hardware h100 --mfu 0.1", "time"),
    ("train-time --params 10T --tokens 900T --gpus 1 --hardware v100 --mfu 0.1", "time"),
    ("optimal --compute 3.8e25", "params"),
    ("optimal --budget 500000 --price 2 --hardware h100", "params"),
    ("optimal llama3-8b --compute 1e23 --served-tokens 5T", "params"),
    ("optimal --compute 1e23 --unique-tokens 100B", "params"),
    ("memory llama3-8b --gpus 8 --hardware h100 --zero 3", "memory/total"),
    ("memory llama3-8b --gpus 8 --hardware h100", "memory/total"),
    ("memory llama3-405b --hardware h100", "memory/total"),
    ("memory llama3-70b --hardware h100 --gpus 64 --tp 8 --pp 4 --zero 1 --recompute full --must-fit", "memory/total"),
    ("memory deepseek-v3 --hardware b200 --gpus 100000 --tp 8 --zero 1", "memory/total"),
    ("memory gpt2 --seq 1", "memory/total"),
    ("memory llama3.1-8b --hardware rtx-4090 --lora-rank 16 --quantized nf4 --recompute full", "memory/total"),
    ("memory llama3-8b --gpus 8 --hardware h100 --zero 3 --offload optimizer --micro-batch 2", "memory/total"),
    ("memory llama3-8b --hardware h100 --gpus 8 --zero 3 --max micro-batch", "max/micro_batch"),
    ("memory llama3-8b --hardware h100 --gpus 8 --zero 3 --max seq", "max/seq"),
    ("memory llama3-8b --hardware h100 --gpus 8 --max params", "max/layers"),
    ("memory llama3-70b --hardware h100 --gpus 8 --max micro-batch", "max/micro_batch"),
    ("memory llama3-8b --hardware h100 --inference --seq 8192", "memory/total"),
    ("memory deepseek-v3 --hardware h100 --inference --seq 8192", "memory/total"),
    ("memory llama3-8b --inference --batch 1000000", "memory/total"),
    ("memory linear --width 4 --depth 2 --batch 2 --optimizer adagrad --precision fp32", "memory/total"),
    ("step llama3-70b --tp 8 --pp 4 --dp 32 --global-batch 1024 --seq 8192 --hardware h100", "step/time"),
    ("step llama3-8b --gpus 8 --zero 3 --hardware h100 --recompute full", "step/time"),
    ("step gpt2 --hardware h100 --seq 8", "step/time"),
    ("step deepseek-v3 --gpus 102400 --ep 32 --tp 8 --hardware b200 --zero 1", "step/time"),
    ("mfu llama3-8b --tokens-per-second 98000 --gpus 8 --hardware h100 --seq 8192 --recompute full", "mfu"),
    ("mfu llama3-70b --tflops 430 --hardware h100 --seq 8192 --claimed-mfu 0.43", "mfu"),
    ("mfu --params 7B --tokens-per-second-per-gpu 3100 --hardware a100", "mfu"),
    ("mfu llama3-8b --tokens-per-second 98000000 --gpus 8 --hardware h100 --seq 8192", "mfu"),
    ("mfu matmul 16384x32768x8192 --time 0.16s --dtype fp32 --hardware h100", "mfu"),
    ("max-params --gpus 8 --hardware h100", "params/max"),
    ("max-params --gpus 100000 --hardware b200 --optimizer sgd --precision bf16-pure", "params/max"),
    ("max-params --gpus 8 --hardware h100 --like llama3 --zero 3 --seq 8192 --recompute full", "fits/params"),
    ("max-params --gpus 1 --hardware h100 --inference --dtype nvfp4", "params/max"),
    ("plan llama3-8b --gpus 8 --hardware h100 --seq 8192 --global-batch 64", "step/time"),
    ("plan llama3-70b --gpus 512 --hardware h100 --seq 8192 --global-batch 1024 --tokens 15T --price 2", "time"),
    ("plan llama3-70b --hardware h100 --seq 8192 --objective gpus --tokens 15T --within 60d", "gpus"),
    ("plan llama3-8b --gpus 8 --hardware h100 --tokens 15T --within 10d", "time"),
    ("plan llama3-8b --gpus 8..64 --hardware h100 --tokens 1T", "time"),
    ("plan llama3-8b --gpus 64,128 --hardware h100,a100 --tokens 1T --within 30d", "cost"),
)
"""Commands, and the path of the quantity that is the answer."""
IDS = [line for line, _ in SCREENS]


@pytest.mark.parametrize(("line", "path"), SCREENS, ids=IDS)
def test_a_screen_at_every_width(line: str, path: str) -> None:
    answer = answered(line)
    assert answer.screen is not None
    known = words(render(answer, "text", Display(1000)))
    for width in WIDTHS:
        text = render(answer, "text", Display(width))
        lines = text.splitlines()
        assert max(map(len, lines)) <= width, text
        assert len(lines) <= HEIGHT, text
        value, unit = answer.quantities()[path]
        assert holds(lines[1], float(value), unit), text
        assert words(text) <= known, text
        assert sum(said.startswith(("note", "assumed")) for said in lines) <= 1


def holds(line: str, value: float, unit: str) -> bool:
    """Whether the line states the value, to the precision that it prints."""
    if unit != "byte":
        return human(value, unit) in line
    return size(value) in line or any(f" {value / 2**30:,.{digits}f} of" in line for digits in (1, 2))


def words(text: str) -> set[str]:
    """The words of a text; what counts the assumptions left out is none of them."""
    return {word.strip(",;") for word in re.sub(r"\d+ more \(-v\)|[\\…]|[█▌·]+", "", text).split()} - {""}


@pytest.mark.parametrize(("line", "path"), SCREENS, ids=IDS)
def test_the_next_command_is_answered(line: str, path: str) -> None:
    text = written(line)
    assert "next: " in text
    command = text.partition("next: ")[2].replace("\\\n", " ")
    outcome = run_line(command.split()[1:])
    assert outcome.status in (0, 1, 4), f"{command}: {outcome.err}"


@pytest.mark.parametrize(("line", "path"), SCREENS, ids=IDS)
def test_quiet_is_the_second_line(line: str, path: str) -> None:
    quiet = written(line, quiet=True)
    assert len(quiet.splitlines()) == 1
    assert quiet.strip().startswith(written(line).splitlines()[1].strip())


@pytest.mark.parametrize("line", [LECTURE, "memory llama3-8b --gpus 8 --hardware h100 --must-fit"])
def test_quiet_says_no_more_and_exits_the_same(line: str) -> None:
    full, quiet = run_line(line), run_line(f"{line} --quiet")
    assert quiet.status == full.status
    assert quiet.err == ""
    assert quiet.out.strip().startswith(full.out.splitlines()[1].strip())


def test_paths_names_every_quantity(napkin: Napkin) -> None:
    values = napkin(f"{LECTURE} --json").values
    lines = [line.split() for line in napkin(f"{LECTURE} --paths").out.splitlines()]
    assert set(values) <= {words[0] for words in lines}


def page(screen: Screen, view: Display, **more: object) -> list[str]:
    answer = Answer("train-time", screen=screen)
    answer.assumed = list(more.get("assumed", ()))  # type: ignore[call-overload]
    return render(answer, "text", view).splitlines()


@pytest.mark.parametrize(
    ("verdict", "code"),
    [("fits", "32"), ("holds", "32"), ("does not fit", "31"), ("broken", "31"), ("too close to call", "33")],
)
def test_the_headline_has_the_color_of_its_verdict(verdict: str, code: str) -> None:
    screen = Screen(("a question",), (verdict.upper(), "3 GiB"), verdict)
    assert page(screen, Display(color=True))[1] == f"\x1b[1;{code}m  {verdict.upper()}   3 GiB\x1b[0m"
    assert page(screen, Display())[1] == f"  {verdict.upper()}   3 GiB"


def test_a_verdict_in_a_cell_is_colored() -> None:
    rows = Table((Column("limit"), Column("status")), (("time <= 5d", "broken"), ("mfu > 0.3", "holds")))
    lines = page(Screen((), table=rows, listing=True), Display(color=True))
    assert "\x1b[1;31mbroken\x1b[0m" in lines[1]
    assert "\x1b[1;32mholds\x1b[0m" in lines[2]


def test_columns_go_in_a_fixed_order_and_cells_stay_whole() -> None:
    columns = (Column("name"), Column("size", right=True), Column("maker", drop=1), Column("year", drop=2))
    table = Table(columns, (("a-long-name-to-copy", "80 GB", "NVIDIA", "2022"), ("b", "141 GB", "AMD", "2023")))
    screen = Screen((), table=table, listing=True)
    seen = {width: page(screen, Display(width))[0].split() for width in (60, 44, 38, 20)}
    assert seen[60] == ["name", "size", "maker", "year"]
    assert seen[44] == ["name", "size", "maker", "year"]
    assert seen[38] == ["name", "size", "maker"]
    assert seen[20] == ["name", "size"]
    assert page(screen, Display(20))[1].split()[0] == "a-long-name-to-copy"


def test_a_remark_loses_its_last_clauses_and_a_bar_takes_what_is_left() -> None:
    rows = quantities(
        [("weights", "1.9 GiB", Bar(0.5), "bf16; one eighth of all"), ("free", "2 GiB", Bar(1, 0.5, "·"))]
    )
    wide, narrow = (page(Screen((), table=rows), Display(width)) for width in (80, 40))
    assert wide[0].endswith("bf16; one eighth of all")
    assert wide[0].count("█") == 12
    assert narrow[0].endswith("bf16")
    assert "█" in narrow[0]


def test_a_remark_without_clauses_loses_the_last_names_of_its_list() -> None:
    table = quantities([("optimizer", "2.5 GiB", "state1, state2, exp_avg, ortho_matrix")])
    for width, said in ((80, "state1, state2, exp_avg, ortho_matrix"), (44, "state1, state2, …"), (26, "")):
        assert page(Screen((), table=table), Display(width))[0].removeprefix("  optimizer  2.5 GiB").strip() == said


def test_a_sentence_that_folds_is_shown_whole() -> None:
    """A word that is wider than its column, such as a path, stays whole too."""
    said = "activations are recomputed that fit; configs/launch/of-a-long-name.yaml:10"
    table = Table((Column(), Column(right=True), Column(remark=True, folds=True)), [("N101", "16%", said)])
    for width in (30, 40, 80, 200):
        lines = page(Screen((), table=table), Display(width))
        assert " ".join(" ".join(lines).split()) == f"N101 16% {said}"
        assert all(len(line) <= width or len(line.split()) == 1 for line in lines)
    assert len(page(Screen((), table=table), Display(200))) == 1


def test_lines_lose_their_last_parts() -> None:
    screen = Screen(("llama3-70b", "64 × H100", "tp 8", "pp 4"), ("FITS", "3 GiB of 80 GiB", "90%: 2 to 4 GiB"))
    lines = page(screen, Display(30), assumed=["AdamW", "bf16-mixed", "no recomputation"])
    assert lines == ["llama3-70b, 64 × H100, tp 8, …", "  FITS   3 GiB of 80 GiB", "assumed: AdamW, 2 more (-v)"]
    assert page(screen, Display(quiet=True)) == ["FITS   3 GiB of 80 GiB   90%: 2 to 4 GiB"]


def test_a_next_command_continues_between_its_options() -> None:
    inputs = {
        "model": Shown("llama3-8b", "llama3-8b", "given"),
        "gpus": Shown(8, "8", "given"),
        "hardware": Shown("h100", "h100", "run file"),
        "sp": Shown(False, None, "given"),
        "batch": Shown(None, None, "default"),
        "hardware-file": Shown("my cards.yaml", "my cards.yaml", "given"),
    }
    answer = Answer("memory", inputs=inputs, screen=Screen((), next=Next({"max": "micro-batch", "gpus": None})))
    text = render(answer, "text", Display(50)).replace("next: ", "")
    assert all(len(line) <= 50 for line in text.splitlines())
    joined = " ".join(text.replace("\\\n", " ").split())
    assert joined == "napkin memory llama3-8b --hardware h100 --no-sp --hardware-file 'my cards.yaml' --max micro-batch"


def test_figures() -> None:
    assert size(1_610_612_736) == "1.50 GiB"
    assert size(1_610_612_736, largest=20 * 2**30) == "1.5 GiB"
    assert size(1_048_576, largest=20 * 2**30) == "1.00 MiB"
    assert size(496) == "496 bytes"
    assert size(0, largest=2**30) == "0.00 GiB"
    assert amount(70_000_000_000) == "70B"
    assert amount(8_030_261_248) == "8.03B"
    assert amount(15_000_000_000_000) == "15T"
    assert amount(1024) == "1,024"
    assert between(160 * 86400, 386.3 * 86400, "second") == "160 to 386 days"
    assert between(3600 * 5, 86400 * 9, "second") == "5.00 h to 9.00 days"
    assert between(97.6, 130, "second") == "97.6 to 130 s"
    assert between(0.782, 1.214, "second") == "782 to 1,214 ms"
    assert between(0.2, 0.4512, "1") == "0.2 to 0.451"
    assert briefly(30 * 86400, "second") == "30 days"


class Stream(io.StringIO):
    """A terminal as far as isatty says, of an encoding."""

    def __init__(self, tty: bool, encoding: str = "utf-8") -> None:
        super().__init__()
        self._tty, self._encoding = tty, encoding

    def isatty(self) -> bool:
        return self._tty

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding


def test_color_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert wants_color(Stream(True))
    assert not wants_color(Stream(False))
    monkeypatch.setenv("TERM", "dumb")
    assert not wants_color(Stream(True))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_color(Stream(True))


def test_a_pipe_is_as_wide_as_columns_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert width_of(Stream(False)) == 80
    for stated, width in (("120", 120), ("0", 80), ("wide", 80), ("-3", 80)):
        monkeypatch.setenv("COLUMNS", stated)
        assert width_of(Stream(False)) == width


def test_a_stream_of_ascii_gets_ascii() -> None:
    assert readable("8 × H100 ██▌··", Stream(True, "ascii")) == "8 x H100 ###.."
    assert readable("8 × H100 ██▌··", Stream(True)) == "8 × H100 ██▌··"


@pytest.mark.parametrize(
    ("width", "kept"),
    [
        (60, ["101 s a step", "90%: 80 to 127 s", "FITS 60.6 of 79.2 GiB"]),
        (40, ["101 s a step", "FITS 60.6 of 79.2 GiB"]),
        (20, ["101 s a step"]),
    ],
)
def test_a_narrow_headline_keeps_its_verdict_longest(width: int, kept: list[str]) -> None:
    parts = ["101 s a step", "90%: 80 to 127 s", "FITS 60.6 of 79.2 GiB", "MFU 0.54"]
    screen = Screen((), parts, "fits")
    assert page(screen, Display(width))[0].strip().split("   ") == kept
