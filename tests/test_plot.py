"""What pictures show: where axes start, marks, intervals, legends outside, and a schedule that adds up to the step."""

from __future__ import annotations

import itertools
import pathlib
import re
import shlex
from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
import pytest

from napkin.cli.reader import read
from napkin.commands.command import ask, named
from napkin.planning.schedule import interleaved
from napkin.render.answer import Answer
from napkin.render.chart import Chart, Series, spoken
from napkin.render.chart import axis as scaled
from napkin.render.plot import draw, draw_panel
from tests.conftest import Napkin

mpl.use("agg")

STEP = "step llama3-70b --gpus 32 --hardware h100 --tp 8 --pp 4 --global-batch 8"
DRAWING = {
    "memory llama3-8b --gpus 8 --hardware h100 --zero 3": ("GiB", "capacity", "backward pass", "used (nvidia-smi)"),
    "memory llama3-8b --hardware h100 --inference --batch 4": ("GiB", "capacity", "KV cache", "weights"),
    "serve llama3-8b --hardware h100 --concurrency 32": (
        *("token/s", "time of each further token (ms)", "batch 32 (asked)", "a million output tokens at"),
    ),
    STEP: ("seconds", "whole step", "stage 4", "idle (bubble)", "1F1B", "8 micro-batches"),
    f"{STEP} --vp 2": ("interleaved 1F1B", "2 model chunks"),
    "plan llama3-8b --gpus 16 --hardware h100": ("MFU", "memory of one GPU (GiB)", "capacity", "use: "),
    "plan llama3-8b --gpus 8..32 --hardware h100": ("linear scaling", "GPUs", "tokens/s"),
    "roofline llama3-8b --hardware h100": ("FLOP/byte", "TFLOP/s", "ridge", "peak", "attention"),
    "roofline matmul 64x64x64 --hardware h100": ("FLOP/byte", "ridge"),
    "compare train-time --params 7B --tokens 1T --gpus 64 --hardware h100 --mfu 0.4 --against mfu=0.5": (
        "A: as given",
        "B: mfu 0.5",
        "time (days)",
    ),
}


@pytest.mark.parametrize("line", DRAWING)
@pytest.mark.slow
def test_a_picture_says_what_it_shows(napkin: Napkin, tmp_path: pathlib.Path, line: str) -> None:
    picture = tmp_path / "picture.svg"
    outcome = napkin(f"{line} --plot {picture}")
    assert outcome.status in (0, 1), outcome.err
    text = re.sub(r"<[^>]+>", " ", picture.read_text())
    assert [words for words in DRAWING[line] if words not in " ".join(text.split())] == []
    assert re.findall(r"\b[a-z]+_[a-z_]+\b|\b\d+e[+]\d+", text) == []


@pytest.fixture
def axes() -> Iterator[Any]:
    from matplotlib import pyplot

    figure, one = pyplot.subplots(layout="constrained")
    yield one
    pyplot.close(figure)


TWO = [Series("first", ["a", "b"], [4.0, 5.0]), Series("second", ["a", "b"], [1.0, 3.0])]


@pytest.mark.parametrize("kind", ["bars", "stack"])
def test_bars_start_at_zero_and_a_mark_is_inside(axes: Any, kind: str) -> None:
    draw_panel(Chart(kind, "t", series=TWO, marks=[(20.0, "capacity")]), axes, "#000000")
    low, high = axes.get_ylim()
    assert low == 0
    assert high > 20


def test_a_line_starts_at_zero_and_keeps_its_interval_inside(axes: Any) -> None:
    chart = Chart("lines", "t", series=[Series("one", [1.0, 2.0], [9.0, 9.5], [8.0, 8.5], [11.0, 12.0])])
    draw_panel(chart, axes, "#000000")
    assert axes.get_ylim()[0] == 0
    assert axes.get_ylim()[1] >= 12
    assert axes.collections


@pytest.mark.parametrize("kind", ["bars", "stack", "lines", "points", "tornado"])
def test_no_line_goes_through_a_legend(axes: Any, kind: str) -> None:
    numbers = [Series(s.name, [1.0, 2.0], s.y) for s in TWO]
    chart = Chart(kind, "t", series=numbers if kind in ("lines", "points") else TWO, middle=3.0)
    draw_panel(chart, axes, "#000000")
    axes.figure.canvas.draw()
    legend = axes.get_legend().get_window_extent()
    assert legend.y0 >= axes.get_window_extent().y1 - 1
    title = axes.title if axes.title.get_text() else axes._left_title
    assert title.get_window_extent().y0 >= legend.y1 - 1


def test_the_interval_of_a_stack_reaches_its_ends(axes: Any) -> None:
    draw_panel(Chart("stack", "t", series=TWO, whisker=("b", 6.0, 11.0)), axes, "#000000")
    ends = [tuple(segment[:, 1]) for lines in axes.collections for segment in lines.get_segments()]
    assert ends == [pytest.approx((6.0, 11.0))]


def test_predicted_and_measured_have_one_range(axes: Any) -> None:
    series = [Series("one", [1.0, 30.0], [2.0, 20.0], [1.0, 15.0], [3.0, 25.0])]
    draw_panel(Chart("points", "t", series=series, log_x=True, log_y=True, diagonal=True), axes, "#000000")
    assert axes.get_xlim() == axes.get_ylim()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_is_not_of_the_ground_color(tmp_path: pathlib.Path, theme: str) -> None:
    picture = tmp_path / "one.svg"
    answer = Answer("step")
    answer.plot = [Chart("bars", "title", "x", "seconds", TWO)]
    draw(answer, str(picture), theme)
    text = picture.read_text()
    ground = {"light": "#ffffff", "dark": "#0d1117"}[theme]
    assert f"fill: {ground}" in text
    inks = re.findall(r'<text style="[^"]*fill: (#[0-9a-f]{6})', text.lower())
    assert ground not in inks


@pytest.mark.parametrize(
    ("stages", "batches", "chunks"), [(4, 8, 1), (4, 8, 2), (2, 6, 3), (4, 6, 2), (8, 3, 1), (8, 8, 4)]
)
def test_every_pass_is_in_the_schedule_once_and_in_order(stages: int, batches: int, chunks: int) -> None:
    slots = interleaved(stages, batches, chunks, 1.0, 2.0)
    assert len(slots) == len({(s.kind, s.stage, s.chunk, s.micro_batch) for s in slots})
    assert len(slots) == 2 * stages * batches * chunks
    ends = {(s.kind, s.chunk * stages + s.stage, s.micro_batch): s.start + s.length for s in slots}
    for one in slots:
        place = one.chunk * stages + one.stage
        before = place - 1 if one.kind == "forward" else place + 1
        assert one.start >= ends.get((one.kind, before, one.micro_batch), 0.0)
    for stage in range(stages):
        mine = sorted((s.start, s.length) for s in slots if s.stage == stage)
        assert all(a + length <= b for (a, length), (b, _) in itertools.pairwise(mine))


@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_the_schedule_takes_the_batches_and_the_bubble(chunks: int) -> None:
    """(m + (p − 1)/v) passes of a micro-batch: Narayanan et al. 2021, section 2.2."""
    slots = interleaved(4, 8, chunks, 1.0 / chunks, 2.0 / chunks)
    assert max(s.start + s.length for s in slots) == pytest.approx(3 * (8 + 3 / chunks))


def test_the_schedule_ends_with_the_step(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    from napkin.commands.step import timeline

    drawn: list[Chart] = []
    kept = timeline.charts

    def keep(*given: Any) -> list[Chart]:
        drawn.extend(kept(*given))
        return drawn

    patch = pytest.MonkeyPatch()
    patch.setattr(timeline, "charts", keep)
    time = napkin(f"{STEP} --vp 2 --json --plot {tmp_path / 'a.svg'}").values["step/time"]
    patch.undo()
    assert max(span.start + span.length for span in drawn[1].spans) == pytest.approx(time)


@pytest.mark.parametrize(
    ("value", "unit", "name"),
    [
        (85 * 2**30, "byte", "GiB"),
        (3.6e6, "GPU-hour", "million GPU-hours"),
        (1.3e6, "kg", "t"),
        (40e9, "param", "billion parameters"),
    ],
)
def test_axes_have_the_units_that_people_read(value: float, unit: str, name: str) -> None:
    assert scaled([value], unit)[1] == name


def test_a_quantity_is_named_in_words() -> None:
    assert spoken("step/time") == "time of a step"
    assert spoken("tokens_per_second_per_gpu") == "tokens per second per GPU"
    assert spoken("memory/optimizer") == "memory: optimizer"


@pytest.mark.parametrize(
    "line",
    [
        "plan llama3-8b --gpus 8..64 --hardware h100",
        "sweep memory llama3-8b --gpus 8 --hardware h100 --zero 3 --over seq=2048..16384",
        "sweep train-time 7B --tokens 2T --hardware a100 --over gpus=64,128",
        "memory llama3-8b --gpus 8 --hardware h100 --zero 3",
    ],
)
def test_an_interval_is_around_what_it_is_of(line: str) -> None:
    command, words = named(shlex.split(line))
    charts = ask(command, read(command, words).given).plot
    drawn = [series for chart in charts for series in chart.series if series.low]
    assert drawn or line.startswith("memory")
    for series in drawn:
        for low, value, high in zip(series.low, series.y, series.high, strict=True):
            assert low <= value <= high < 10 * value


def test_a_sweep_of_memory_marks_the_capacity_and_draws_no_quantity_twice() -> None:
    command, words = named(
        shlex.split("sweep memory llama3-8b --gpus 8 --hardware h100 --zero 3 --over seq=2048..16384")
    )
    charts = ask(command, read(command, words).given).plot
    assert [name for _, name in charts[0].marks] == ["capacity 79.2"]
    drawn = [tuple(chart.series[0].y) for chart in charts]
    assert len(set(drawn)) == len(drawn)
    assert not [chart.title for chart in charts if "memory: at:" in chart.title]
