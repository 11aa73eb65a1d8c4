"""The search: the same formulas as `step` and `memory`, nothing forgotten, the best found."""

from __future__ import annotations

import io
import itertools
import math
import os
import pathlib
import runpy
import shlex
import sys
import time
from collections import Counter

import numpy as np
import pytest

from napkin.autograd.control_flow import BranchesDifferError, differs, holds_for_all, same_branches
from napkin.commands.command import find
from napkin.commands.inputs import Inputs
from napkin.commands.plan import published
from napkin.commands.plan.search_space import read_layouts
from napkin.commands.question.setup import read_setup
from napkin.commands.signature import OptionText
from napkin.elementwise import divisors
from napkin.errors import DOES_NOT_FIT, UNDECIDED, NapkinError, Refused
from napkin.evidence.predictions import one_run
from napkin.footprint.allocator import reported
from napkin.footprint.memory import rank_of
from napkin.footprint.prepared import prepare
from napkin.footprint.stages import places
from napkin.planning.grid import chunks, grid
from napkin.planning.layout_time import Times
from napkin.planning.layouts import LayoutQuestion, best, recommended, scored
from napkin.planning.search import Fastest, search
from napkin.planning.verdicts import FITS, used_bytes, worst_rank
from napkin.record import replace
from napkin.render.answer import Answer
from napkin.render.progress import CLEAR, Progress
from napkin.term import TRUE, leaf
from napkin.timing.step import step
from napkin.training.layout import Layout
from napkin.training.recomputation import Recompute
from tests.conftest import ROOT, Napkin

PLAN = "plan llama3-70b --hardware h100 --seq 8192"
SMALL = "plan llama3-8b --hardware h100 --seq 8192"


def planner_of(line: str) -> LayoutQuestion:
    words = shlex.split(line)
    model, options = words[0], words[1:]
    given = {"model": OptionText(model)}
    for name, text in zip(options[::2], options[1::2], strict=True):
        given[name.removeprefix("--")] = OptionText(text)
    return read_layouts(Inputs(find("plan"), given))[0]


@pytest.mark.parametrize(
    "line",
    [
        "llama3-8b --gpus 64 --hardware h100 --seq 8192 --global-batch 96 --max-zero 3 --max-tp 32",
        "llama3-70b --gpus 48 --hardware a100 --seq 4096 --implementation hf --stack fsdp-compiled --max-zero 3",
        "mixtral-8x7b --gpus 32 --hardware h100 --seq 4096 --precision fp8-mixed --max-zero 3",
        "deepseek-v3 --gpus 256 --hardware h800 --seq 4096 --max-cp 1 --max-micro-batch 2",
        "minimax-text-01 --gpus 16 --hardware h200 --seq 1024 --global-batch 16 --max-zero 3",
        "gemma3-27b --gpus 16 --hardware h100 --seq 1024 --global-batch 64 --max-zero 3",
        "gemma3-27b --gpus 16 --hardware h100 --seq 1024 --global-batch 32 --recompute group:4",
        "jamba-v0.1 --gpus 8 --hardware h200 --seq 1024 --global-batch 32 --recompute every:3",
        "llama3-8b --gpus 16 --hardware h100 --seq 1024 --global-batch 64 --recompute group:5",
        "gpt2 --gpus 12 --hardware b200 --recompute every:2 --implementation hf --precision amp-bf16",
    ],
)
def test_arrays_and_scalars_agree_to_twelve_digits(line: str) -> None:
    """Random layouts of the grid, fitting or not, against the exact integers of `step` and `memory`."""
    planner, gpus = planner_of(line), int(line.split()[2])
    model = planner.request.model
    found = search(planner.on(gpus), planner.timed, float("inf"))
    assert found.layouts == len(found) > 500
    for i in np.random.default_rng(0).choice(len(found), 24, replace=False):
        setup = replace(planner.request.setup, layout=found.layout(int(i)))
        assert setup.layout.gpus == gpus
        plan, rates = planner.timed(setup)
        assert found.seconds[i] == pytest.approx(step(model, plan, rates).time.value, rel=1e-12)
        assert found.used[i] == pytest.approx(used_bytes(model, setup), rel=1e-12)


def test_plan_and_memory_take_the_same_stage_of_a_pipeline() -> None:
    """Here the stage with the most live bytes is not the one that uses most, with what the allocator keeps."""
    planner = planner_of("gemma3-4b --gpus 16 --hardware h100 --seq 4096 --global-batch 64 --recompute full")
    found = search(planner.on(16), planner.timed, float("inf"))
    degrees = {"zero": 0, "tp": 4, "pp": 4, "vp": 3, "micro": 2, "sp": 0}
    layouts = enumerate(map(found.layout, range(len(found))))
    i, layout = next((i, one) for i, one in layouts if all(getattr(one, name) == n for name, n in degrees.items()))
    prepared = prepare(planner.request.model, replace(planner.request.setup, layout=layout))
    ranks = [rank_of(prepared, place) for place in places(prepared)]
    live = [rank.live for rank in ranks]
    used = [
        reported(leaf("live", rank.live, "byte", TRUE), 16, flow=rank.flow(prepared.setup)).used.value for rank in ranks
    ]
    assert live.index(max(live)) != used.index(max(used))
    assert worst_rank(prepared) == ranks[used.index(max(used))]
    assert found.used[i] == pytest.approx(max(used), rel=1e-12)


def test_layouts_run_on_one_tape_only_where_each_part_takes_its_own_course() -> None:
    one, several = np.array([True, False, False]), np.array([False, True, True])
    with same_branches(one, several):
        assert not holds_for_all(np.array([False, False, True]))  # nor for either part alone
        for condition in (one, several):  # each would hold on a tape of its own
            with pytest.raises(BranchesDifferError):
                holds_for_all(condition)
            with pytest.raises(BranchesDifferError):
                differs(condition)
    assert not holds_for_all(one)
    assert differs(one)


def brute_force(planner: LayoutQuestion, gpus: int) -> list[tuple[float, float, Layout]]:
    """Every combination of whole numbers up to the machine's size, through the options and rules of `napkin step`:
    (seconds, bytes, layout) of each that they let pass."""
    request = planner.request
    command = find("step")
    up_to = range(1, gpus + 1)
    kept = []
    for tp, pp, cp in itertools.product(up_to, up_to, up_to):
        if tp * pp * cp > gpus:
            continue
        for zero, micro, again, vp, sp in itertools.product(
            range(4), (1, 2), ("none", "full"), range(1, 13), (False, True)
        ):
            if (vp > 1 and pp == 1) or (sp and tp == 1) or (zero == 3 and pp > 1):
                continue
            texts = {"model": "gpt2", "tp": tp, "pp": pp, "cp": cp, "zero": zero, "micro-batch": micro, "vp": vp}
            texts |= {"gpus": gpus, "global-batch": request.batch, "recompute": again, "seq": request.seq}
            texts |= {"implementation": "megatron", "hardware": "h100"}
            inputs = Inputs(
                command, {name: OptionText(str(text)) for name, text in texts.items()} | {"sp": OptionText(sp)}
            )
            try:
                setup = read_setup(inputs, request.model)
            except NapkinError:
                continue
            if zero and setup.layout.dp * cp == 1:
                continue
            asked = one_run.asked(request.model, setup, planner.hardware, "megatron-core")
            seconds = step(request.model, asked.plan, asked.rates).time.value
            kept.append((seconds, float(used_bytes(request.model, setup)), setup.layout))
    return kept


@pytest.mark.parametrize(("gpus", "batch"), [(2, 8), (3, 6), (4, 8)])
def test_the_best_layout_is_that_of_an_exhaustive_loop_over_step(gpus: int, batch: int) -> None:
    planner = planner_of(
        f"gpt2 --hardware h100 --memory-size 4200MB --seq 1024 --global-batch {batch} --max-micro-batch 2 "
        f"--max-tp {gpus}"
    )
    planner = replace(planner, request=replace(planner.request, recomputes=(Recompute("none"), Recompute("full"))))
    found = search(planner.on(gpus), planner.timed, planner.hardware.capacity)
    every = brute_force(planner, gpus)
    fitting = sorted((one for one in every if one[1] <= planner.hardware.capacity), key=lambda one: one[0])
    assert found.layouts == len(every)
    assert 0 < len(found) == len(fitting) < len(every)
    assert np.sort(found.seconds) == pytest.approx([seconds for seconds, _, _ in fitting], rel=1e-12)
    best = found.layout(found.ranked(1)[0])
    assert best in [layout for seconds, _, layout in fitting if seconds <= fitting[0][0] * (1 + 1e-12)]


def test_every_layout_of_the_grid_passes_the_rules_of_step() -> None:
    """The other way round: what the search tries, `napkin step` takes."""
    planner = planner_of("mixtral-8x7b --gpus 16 --hardware h100 --seq 4096 --global-batch 32 --max-zero 3")
    found = search(planner.on(16), planner.timed, float("inf"))
    for i in np.random.default_rng(1).choice(len(found), 60, replace=False):
        layout = found.layout(int(i))
        names = ("tp", "pp", "dp", "cp", "ep", "vp", "zero", "seq")
        given = {name: OptionText(str(getattr(layout, name))) for name in names}
        given |= {
            "micro-batch": OptionText(str(layout.micro)),
            "global-batch": OptionText("32"),
            "sp": OptionText(bool(layout.sp)),
        }
        given |= {"model": OptionText("mixtral-8x7b"), "recompute": OptionText(layout.recompute.kind)}
        assert read_setup(Inputs(find("step"), given), planner.request.model).layout == layout


def test_divisors_andchunks() -> None:
    assert divisors(12, 12) == [1, 2, 3, 4, 6, 12]
    assert divisors(12, 4) == [1, 2, 3, 4]
    assert divisors(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36]
    assert divisors(10**15, 7) == [1, 2, 4, 5]
    assert len(divisors(10**9)) == 100  # 2⁹·5⁹
    assert chunks(80, 1) == [1]
    assert chunks(80, 4) == [1, 2, 4, 5, 10, 20]
    assert chunks(126, 16) == [1, 2, 4]  # 8 layers in the fullest stages; 16 · 8 is above 126


def test_the_front_is_what_nothing_beats() -> None:
    planner = planner_of("llama3-8b --hardware h100 --seq 8192 --global-batch 64")
    found = search(planner.on(16), planner.timed, planner.hardware.capacity)
    front = found.front()
    assert front
    for i in front:
        assert not ((found.score < found.score[i]) & (found.used < found.used[i])).any()
    for i in np.random.default_rng(2).choice(len(found), 50):
        better = (found.score[front] <= found.score[i]) & (found.used[front] * 0.999 <= found.used[i])
        assert better.any()


def test_the_printed_step_command_gives_the_same_answer(napkin: Napkin) -> None:
    outcome = napkin(f"{PLAN} --gpus 64 --global-batch 256 --json")
    assert outcome.status == 0
    text = napkin(f"{PLAN} --gpus 64 --global-batch 256").out
    line = " ".join(text.partition("next: napkin ")[2].replace("\\\n", " ").split())
    single_step = napkin(f"{line} --json").values
    for path in ("step/time", "step/low", "step/high", "mfu", "memory/total", "tokens_per_second_per_gpu"):
        assert outcome.values[path] == single_step[path]
    (chosen,) = (row for row in outcome.data["rows"] if row["recommended"])
    assert chosen["step/time"] == single_step["step/time"]
    assert chosen["memory/total"] == chosen["memory"] == single_step["memory/total"]
    assert chosen["mfu"] == pytest.approx(single_step["mfu"], rel=1e-12)
    for row in outcome.data["rows"][:3]:
        again = napkin(row["command"].removeprefix("napkin ") + " --json").values
        assert again["step/time"] == row["step/time"] == row["time"]
        assert (again["step/low"], again["step/high"]) == (row["low"], row["high"])
        assert again["memory/total"] == row["memory"]


@pytest.mark.parametrize(
    "line",
    [
        "llama3-70b --gpus 96 --hardware h100 --seq 8192",
        "deepseek-v3 --gpus 256 --hardware h800 --seq 4096 --max-cp 1 --max-micro-batch 2",
        "jamba-v0.1 --gpus 16 --hardware h200 --seq 1024 --global-batch 32",
        "llama3-8b --gpus 16 --hardware h100 --seq 4096 --trainer axolotl",  # three frameworks
    ],
)
def test_the_fastest_layouts_are_those_of_all_and_no_step_is_faster_than_its_bound(line: str) -> None:
    planner, gpus = planner_of(line), int(line.split()[2])
    request, capacity = planner.on(gpus), planner.hardware.capacity
    every = search(request, planner.timed, capacity, prune=False)
    for count in (1, 300, every.layouts):
        fastest = Fastest(request, planner.timed, capacity)
        some = fastest.found(count)
        scores = np.sort(every.score[every.score <= fastest.reached])
        assert np.array_equal(np.sort(some.score), scores)
    for part in fastest.parts:
        if not part.memory.blocks:  # a framework with which nothing fits
            continue
        times = Times(part.memory.request, part.memory.blocks, planner.timed)
        times.evaluate(np.arange(times.seconds.shape[-1]))
        assert (times.least() <= times.scores(np.arange(times.seconds.shape[-1])).min(axis=(0, 1))).all()


@pytest.mark.parametrize(
    "line",
    [
        "llama3-8b --gpus 16 --hardware h100 --seq 8192 --global-batch 128",
        "llama3-8b --gpus 8 --hardware h100 --seq 4096 --global-batch 64 --max-tp 1 --zero 3",
        "qwen3-32b --gpus 32 --hardware a100 --seq 4096 --global-batch 64",
    ],
)
def test_the_recommended_layout_is_the_fastest_that_surely_fits_within_the_leaders_interval(line: str) -> None:
    planner, gpus = planner_of(line), int(line.split()[2])
    found = planner.find(planner.on(gpus))
    leader = best(planner, found)
    chosen = recommended(planner, found, leader)
    furthest = leader.token * math.exp(planner.apart(gpus))
    for i in found.ranked(len(found)):
        one = scored(planner, found.layout(i))
        if one.token > furthest:
            assert chosen.layout == leader.layout
            break
        assert found.surely[i] == (one.fit == FITS), one.layout
        if one.fit == FITS:
            assert (chosen.token, chosen.fit) == (one.token, FITS)
            break


def test_the_time_of_a_run_is_by_the_calendar_and_rows_that_miss_a_limit_say_so(napkin: Napkin) -> None:
    """1 T tokens in steps of 128 · 8192, over the goodput of 16 GPUs, 0.88 on 2,330 and hardly a failure here; at 3
    USD an hour."""
    line = "plan llama3-8b --gpus 16 --hardware h100 --seq 8192 --global-batch 128 --tokens 1T --price 3"
    data = napkin(f"{line} --json").data
    for row in [data["values"], *data["rows"]]:
        running = row["step/time"] * 1e12 / (128 * 8192)
        assert row["time/uninterrupted"] == pytest.approx(running)
        assert 0.9 < row["goodput"] < 0.92
        assert row["time"] == pytest.approx(running / row["goodput"])
        assert row["cost"] == pytest.approx(3 * 16 * row["time"] / 3600)
    assert all(row["misses"] is None for row in data["rows"])
    assert data["values"]["time/low"] < data["values"]["time"] < data["values"]["time/high"]
    own = napkin(f"{line} --goodput 0.95 --json").values
    assert own["time"] == pytest.approx(own["time/uninterrupted"] / 0.95)
    assert own["time/high"] / own["time"] == pytest.approx(own["step/high"] / own["step/time"])
    days = data["rows"][0]["time"] / 86400 * 1.001
    late = napkin(f"{line} --within {days}d --json").data["rows"]
    for row in late:
        assert (row["misses"] is not None) == (row["time"] > days * 86400)
    assert late[0]["misses"] is None
    assert "--within" in late[-1]["misses"]
    dear = napkin(f"{line} --budget {data['rows'][0]['cost'] * 0.99} --json")
    assert all("--budget" in row["misses"] for row in dear.data["rows"])
    assert dear.status == 4  # within the interval of the cost
    assert dear.data["verdict"] == "too close to call"
    poor = napkin(f"{line} --budget {data['rows'][0]['cost'] * 0.2} --json")
    assert (poor.status, poor.data["verdict"]) == (1, "broken")


def test_plan_and_train_time_give_one_calendar_time(napkin: Napkin) -> None:
    rest = "--gpus 64 --hardware h100 --seq 8192 --global-batch 256"
    data = napkin(f"plan llama3-8b {rest} --tokens 1T --json").data
    (row,) = (row for row in data["rows"] if row["recommended"])
    words = row["command"].split()[3:]
    layout = dict(zip(words[::2], words[1::2], strict=True))
    layout.pop("--implementation")
    line = " ".join(f"{name} {text}" for name, text in layout.items())
    run = napkin(f"train-time llama3-8b --gpus 64 --tokens 1T {line} --json").values
    for path in ("time", "time/low", "time/high", "time/uninterrupted", "goodput", "gpu_hours"):
        assert data["values"][path] == pytest.approx(run[path]), path


def test_plan_shows_what_published_runs_took(napkin: Napkin) -> None:
    """The answer of `train-time` to the same question without a layout; none where no run is asked about, nor where
    samples are trained on."""
    run = "llama3-8b --gpus 64 --hardware h100 --tokens 1T --goodput 0.8"
    plan, time = (napkin(f"{name} {run} --json") for name in ("plan", "train-time"))
    for path in ("time", "time/low", "time/high"):
        assert plan.values[path.replace("time", "time/published", 1)] == time.values[path]
    assert plan.data["low"]["time/published"] == time.data["low"]["time"]
    assert plan.values["time/published"] > plan.values["time"]
    assert "by published runs' MFU" in napkin(f"plan {run}").out
    assert "time/published" not in napkin("plan llama3-8b --gpus 64 --hardware h100 --json").values
    tuned = napkin("plan llama3-8b --gpus 8 --hardware h100 --task sft --tokens 1B --json")
    assert "time/published" not in tuned.values
    said = "time/published is omitted: the published whole runs are pretraining"
    assert any(note.startswith(said) for note in tuned.data["notes"])


def test_plan_says_why_no_published_time_is_there(napkin: Napkin, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `train-time` answers with an error is no error of the plan, which says so in a note."""

    def refuse(*_: object, **__: object) -> Answer:
        raise Refused("no published run is known", "--mfu")

    monkeypatch.setattr(published, "ask", refuse)
    plan = napkin("plan llama3-8b --gpus 64 --hardware h100 --tokens 1T --json")
    said = "time/published is omitted: napkin train-time does not answer: no published run is known"
    assert said in plan.data["notes"]
    assert "time/published" not in plan.values
    assert plan.values["time"] > 0


def test_rows_are_ranked_fit_and_have_intervals(napkin: Napkin) -> None:
    data = napkin(f"{PLAN} --gpus 64 --global-batch 256 --rows 25 --json").data
    rows = data["rows"]
    assert len(rows) in (25, 26)  # the recommended one is listed too
    assert sum(row["recommended"] for row in rows) == 1
    assert [row["step/time"] for row in rows] == sorted(row["step/time"] for row in rows)
    for row in rows:
        assert row["tp"] * row["pp"] * row["cp"] * row["dp"] == 64
        assert row["memory"] == row["memory/total"] <= data["values"]["memory/capacity"]
        assert (row["micro_batch"], row["global_batch"]) == (row["micro-batch"], row["global-batch"])
        assert row["step/low"] < row["step/time"] < row["step/high"]
        assert row["tie"] == (row["rank"] > 1 and row["step/low"] <= rows[0]["step/high"])
    assert data["values"]["layouts"] > data["values"]["layouts/fit"] > 25
    assert {one["name"]: one["fits"] for one in data["popular"]}["data parallel only"] is False


@pytest.mark.parametrize(
    "line", ["--framework fsdp --seq 8192 --gpus 8 --global-batch 64", "--seq 4096 --gpus 16 --global-batch 64"]
)
def test_a_usual_choice_has_the_verdict_of_memory(napkin: Napkin, line: str) -> None:
    """`does not fit` means that it surely does not, in plan as in memory; what may fit is too close to call."""
    degrees = {
        "data parallel only": "--zero 0",
        "ZeRO-1": "--zero 1",
        "FSDP (ZeRO-3)": "--zero 3",
        "FSDP, full recomputation": "--zero 3 --recompute full",
    }
    found = napkin(f"plan llama3-8b --hardware h100 {line} --json").data
    alone = line if "fsdp" in line else f"{line} --implementation megatron"
    said = " ".join(napkin(f"plan llama3-8b --hardware h100 {line}").out.split())
    usual = {one["name"]: one for one in found["popular"]}
    for name, layout in degrees.items():
        memory = napkin(f"memory llama3-8b --hardware h100 {alone} {layout} --json").data
        assert usual[name]["fit"] == memory["verdict"]
        assert usual[name]["fits"] == {"fits": True, "does not fit": False}.get(memory["verdict"])
        assert usual[name]["memory/total"] == memory["values"]["memory/total"]
        assert usual[name]["why"].startswith(memory["verdict"])
    for word, verdict in (("too close to call:", UNDECIDED), ("do not fit:", DOES_NOT_FIT)):
        listed = said.partition(word)[2].partition(":")[0] if word in said else ""
        tabled = [name for name in degrees if f"– {name} " in said]
        assert all((name in listed) == (usual[name]["fit"] == verdict) for name in degrees if name not in tabled)


def test_the_front_can_be_listed(napkin: Napkin) -> None:
    data = napkin(f"{PLAN} --gpus 64 --global-batch 256 --pareto --rows 8 --json").data
    rows = data["rows"]
    assert all(row["pareto"] for row in rows)
    assert [row["step/time"] for row in rows] == sorted(row["step/time"] for row in rows)
    held = [row["memory/total"] for row in rows]
    assert held == sorted(held, reverse=True)
    assert [row["tp"] for row in rows] == [one["tp"] for one in data["pareto"][:8]]


def test_given_degrees_are_kept(napkin: Napkin) -> None:
    rows = napkin(f"{PLAN} --gpus 64 --tp 4 --pp 2 --no-sp --zero 1 --recompute full --max-cp 2 --json").data["rows"]
    assert {row["cp"] for row in rows} == {1, 2}
    for row in rows:
        assert (row["tp"], row["pp"], row["sp"], row["zero"], row["recompute"]) == (4, 2, False, 1, "full")


def test_a_range_of_machines_is_a_curve(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    picture = tmp_path / "scaling.svg"
    outcome = napkin(f"{SMALL} --gpus 8..32 --tokens 1T --price 2 --json --plot {picture}")
    rows = outcome.data["rows"]
    assert [row["gpus"] for row in rows] == [8, 16, 32]
    speeds = [row["tokens_per_second"] for row in rows]
    assert speeds == sorted(speeds)
    assert all(row["cost"] == pytest.approx(2 * row["gpus"] * row["time"] / 3600) for row in rows)
    assert outcome.values["gpus"] == 32
    assert all(words in picture.read_text() for words in ("GPUs", "tokens/s", "MFU"))
    cheapest = napkin(f"{SMALL} --gpus 8..32 --tokens 1T --price 2 --objective cost --json").values
    assert cheapest["cost"] == min(row["cost"] for row in rows)


def test_no_layout_is_no_grid() -> None:
    planner = planner_of("llama3-8b --hardware h100 --global-batch 7 --dp 5")
    assert grid(planner.on(8)) is None


def test_a_listing_is_bounded(napkin: Napkin) -> None:
    outcome = napkin("plan llama3-8b --gpus 8 --hardware h100 --rows 999999999999")
    assert outcome.status == 2
    assert "--rows" in outcome.errors[0]
    assert "at most 500" in outcome.hints[0]


def test_the_table_of_published_layouts_is_in_step() -> None:
    """docs/plan.md's table, made by tools/layouts.py: its rows are those of the evidence, and every sixth that shares
    its machine and layout with no other is placed anew."""
    layouts = runpy.run_path(os.path.join(ROOT, "tools", "layouts.py"))
    rows = layouts["published"]()
    with open(os.path.join(ROOT, "docs", "plan.md"), encoding="utf-8") as file:
        table = file.read().partition(layouts["BEGIN"])[2].partition(layouts["END"])[0]
    by_source = Counter(row.source for row in rows)
    for source, count in [*by_source.items(), ("all", len(rows))]:
        assert f"| {source} | {count} |" in table, "run python tools/layouts.py"
    large = [row for row in rows if row.gpus >= layouts["DETAILED"]]
    place = {row.id: (row.chip, row.gpus, layouts["layout_of"](row).replaced(recompute=None)) for row in large}
    shared = Counter(place.values())
    alone = [row for row in large if shared[place[row.id]] == 1]
    assert len(alone) > 30
    for row in alone[::6]:
        _, line = layouts["details"]([layouts["placed"](row)])
        assert f"| {' | '.join(line)} |" in table, f"{row.id}: run python tools/layouts.py"


@pytest.mark.parametrize(
    "line",
    [
        "llama3-8b --gpus 32 --hardware h100 --seq 4096 --global-batch 96 --max-zero 3",
        "mixtral-8x7b --gpus 16 --hardware h100 --seq 4096 --max-zero 3",
        "gemma3-27b --gpus 16 --hardware h100 --seq 1024 --global-batch 64 --implementation hf",
    ],
)
def test_what_is_dropped_by_its_states_would_not_fit(line: str) -> None:
    """Some cards hold some of these layouts: the same ones with and without dropping."""
    planner, gpus = planner_of(line), int(line.split()[2])
    held = []
    for capacity in (20e9, 60e9, 200e9):
        kept = search(planner.on(gpus), planner.timed, capacity)
        every = search(planner.on(gpus), planner.timed, capacity, prune=False)
        assert kept.layouts == every.layouts
        assert np.array_equal(np.sort(kept.used), np.sort(every.used))
        assert np.array_equal(np.sort(kept.seconds), np.sort(every.seconds))
        assert len(every) == 0 or Fastest(planner.on(gpus), planner.timed, capacity).least <= every.score.min()
        assert every.least is not None
        assert every.least_used <= every.used.min(initial=np.inf)
        held.append(len(every))
    assert held[0] < held[-1]


def test_progress_is_printed_to_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def __init__(self, terminal: bool) -> None:
            super().__init__()
            self.terminal = terminal

        def isatty(self) -> bool:
            return self.terminal

    for terminal in (True, False):
        screen = Screen(terminal)
        monkeypatch.setattr(sys, "stderr", screen)
        with Progress("searching", every=0.001):
            while terminal and screen.getvalue().count("searching") < 3:
                time.sleep(0.001)
        assert ("searching: " in screen.getvalue()) == terminal
        assert screen.getvalue().endswith(CLEAR) == terminal
