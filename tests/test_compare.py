"""Order-independent attribution, and `napkin compare`."""

from __future__ import annotations

import itertools
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from napkin.planning.attribution import MOST_EXACT, Flip, attribute, flip
from tests.conftest import Napkin

RUN = "train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --mfu 0.4 --price 2"


def by_definition(
    parts: Sequence[str], ask: Callable[[frozenset[str]], tuple[float, ...] | None]
) -> dict[str, float] | None:
    """The Shapley value written out: the mean over the orders all of whose stages can be asked."""
    totals, orders = dict.fromkeys(parts, 0.0), 0
    for order in itertools.permutations(parts):
        stages = [ask(frozenset(order[:n])) for n in range(len(order) + 1)]
        answers = [stage[0] for stage in stages if stage is not None]
        if len(answers) < len(stages):
            continue
        orders += 1
        for part, before, after in zip(order, answers, answers[1:], strict=False):
            totals[part] += after - before
    return {part: total / orders for part, total in totals.items()} if orders else None


GAMES = st.lists(st.floats(0, 100) | st.none(), min_size=16, max_size=16)


@given(GAMES)
@pytest.mark.slow
def test_attribution_is_the_mean_over_the_possible_orders(values: list[float | None]) -> None:
    parts = ("a", "b", "c", "d")
    first = values[0] = values[0] or 1.0
    last = values[15] = values[15] or 2.0

    def ask(done: frozenset[str]) -> tuple[float, ...] | None:
        value = values[sum(1 << parts.index(p) for p in done)]
        return None if value is None else (value,)

    expected, found = by_definition(parts, ask), attribute(parts, ask)
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert found.exact
    for part in parts:
        assert found.by[part][0] == pytest.approx(expected[part], abs=1e-9)
    assert sum(v[0] for v in found.by.values()) == pytest.approx(last - first, abs=1e-9)


@given(st.lists(st.floats(0.5, 2), min_size=MOST_EXACT + 1, max_size=MOST_EXACT + 4))
@pytest.mark.slow
def test_sampled_contributions_add_up_too(factors: list[float]) -> None:
    parts = tuple(range(len(factors)))
    found = attribute(parts, lambda done: (math.prod(factors[p] for p in done),))
    assert found is not None
    assert not found.exact
    assert sum(v[0] for v in found.by.values()) == pytest.approx(math.prod(factors) - 1, abs=1e-9)


def test_two_factors_share_their_product_evenly() -> None:
    """f = a·b from 1·1 to 2·3: a alone +1 or after b +3, mean 2; b alone +2 or after a +4, mean 3."""
    factors = {"a": 2, "b": 3}
    found = attribute(("a", "b"), lambda done: (math.prod(factors[p] for p in done),))
    assert found is not None
    assert found.by == {"a": (2.0,), "b": (3.0,)}


def test_flip_finds_the_nearest_change_on_either_side() -> None:
    assert flip(lambda x: "a" if x < 3 else "b", 2.0, 0.1, 10.0) == Flip(cast(float, pytest.approx(3.0, rel=1e-6)), "b")
    lower = flip(lambda x: "a" if 3 <= x < 50 else "b", 4.0, 0.1, 1000.0)
    assert lower is not None
    assert lower.value == pytest.approx(3.0, rel=1e-6)
    assert flip(lambda x: "a", 2.0, 0.1, 10.0) is None
    assert flip(lambda x: None, 2.0, 0.1, 10.0) is None


def test_flip_asks_no_further_than_the_nearest_change() -> None:
    """A change at 3 from 2 is found on the second step of the grid: twice as far is never asked, on neither side."""
    asked: list[float] = []

    def decide(x: float) -> str:
        asked.append(x)
        return "a" if 0.2 < x < 3 else "b"

    assert flip(decide, 2.0, 0.1, 1000.0) == Flip(cast(float, pytest.approx(3.0, rel=1e-6)), "b")
    assert min(asked) == pytest.approx(1)
    assert max(asked) == pytest.approx(4)


@given(st.floats(1.01, 60), st.floats(1.01, 60))
def test_flip_is_the_nearer_of_two(down: float, up: float) -> None:
    found = flip(lambda x: "same" if 10 / down < x < 10 * up else "other", 10.0, 10 / 64, 640.0)
    assert found is not None
    assert max(found.value / 10, 10 / found.value) == pytest.approx(min(down, up), rel=1e-6)


@given(st.integers(1, 500), st.integers(1, 500))
def test_flip_of_a_count_is_the_first_whole_number(now: int, edge: int) -> None:
    found = flip(lambda n: "under" if n < edge else "over", now, 1, 1000, whole=True)
    if edge == 1 and now >= 1:
        assert found is None
    elif now < edge:
        assert found == Flip(edge, "over")
    else:
        assert found == Flip(edge - 1, "under")


def test_compare_parts_add_up_to_the_change(napkin: Napkin) -> None:
    """Time is 6·N·D/(P·mfu·n): b200 (2250 against 989.4 TFLOP/s), MFU 0.35 and 2000 GPUs give 46.30 days."""
    outcome = napkin(f"compare {RUN} --against hardware=b200,mfu=0.35,price=4,gpus=2k --json")
    assert outcome.status == 0
    data = outcome.data
    assert [row["difference"] for row in data["rows"]] == ["gpus", "hardware", "mfu", "price"]
    before, after = (6 * 70e9 * 15e12 / (p * mfu * n) for p, mfu, n in ((989.4e12, 0.4, 1024), (2250e12, 0.35, 2000)))
    assert data["values"]["time/change"] == pytest.approx(after - before, rel=1e-12)
    for path in ("time", "cost", "energy"):
        assert math.fsum(row[path] for row in data["rows"]) == pytest.approx(data["values"][f"{path}/change"])
    price = next(row for row in data["rows"] if row["difference"] == "price")
    assert price["time"] == 0
    assert price["energy"] == 0


def test_two_run_files(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    a, b = tmp_path / "a.yaml", tmp_path / "b.yaml"
    a.write_text("command: train-time\nparams: 70B\ntokens: 15T\ngpus: 1024\nhardware: h100\nmfu: 0.4\n")
    b.write_text("command: train-time\nparams: 70B\ntokens: 30T\ngpus: 4096\nhardware: h100\nmfu: 0.4\n")
    outcome = napkin(["compare", str(a), str(b), "--show", "time", "--json"])
    assert outcome.status == 0
    start = 6 * 70e9 * 15e12 / (989.4e12 * 0.4 * 1024)
    by = {row["difference"]: row["time"] for row in outcome.data["rows"]}
    # tokens double (×2) and GPUs quadruple (×¼): tokens (1·s + ¼·s)/2, gpus (−¾·s − 3/2·s)/2
    assert by["tokens"] == pytest.approx(start * 0.625)
    assert by["gpus"] == pytest.approx(-start * 1.125)


def test_two_accelerators_side_by_side(napkin: Napkin) -> None:
    outcome = napkin("compare h100 b200 --json")
    peaks = {one["path"]: one for one in outcome.data["quantities"]}
    assert peaks["hardware/peak/bf16"]["a"] == 989.4e12
    assert peaks["hardware/peak/bf16"]["b"] == 2250e12


def test_a_ratio_out_of_range_is_not_written(napkin: Napkin) -> None:
    """0.35 of the smallest float is above the largest: the difference stands alone."""
    outcome = napkin(f"compare {RUN} --mfu 5e-324 --against mfu=0.35")
    assert outcome.out.splitlines()[1].strip() == "mfu +0.35"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("compare h100", "two sides"),
        ("compare h100 b2000", "is not a run file, accelerator, model or profile"),
        (f"compare {RUN}", "--against is missing"),
        (f"compare {RUN} --against colour=8", "no option"),
        (f"compare {RUN} --against mfu", "not name=value"),
        (f"compare {RUN} --against mfu=40", "not a share"),
        (f"compare {RUN} --against mfu=0.5,mfu=0.6", "twice"),
        (f"compare {RUN} --against mfu=0.5 --show tiem", "no quantity"),
        ("compare sweep --against mfu=0.5", "cannot ask"),
        ("compare 'napkin params gpt2' 'params gpt2-xl'", "napkin compare params gpt2 --against NAME=VALUE"),
        ("compare 'step gpt2 --seq 512' 'step gpt2 --seq 256'", "compare step gpt2 --seq 512 --against seq=256\n"),
        ("compare trian-time h100", "is not a run file, accelerator, model or profile"),
    ],
)
def test_what_compare_refuses(napkin: Napkin, line: str, words: str) -> None:
    outcome = napkin(line)
    assert outcome.status == 2
    assert words in outcome.err
    assert outcome.out == ""


def test_each_side_has_its_verdict(napkin: Napkin) -> None:
    line = "memory llama3-8b --hardware h100 --gpus 8 --recompute full"
    found = napkin(f"compare {line} --against zero=3 --json").data["sides"]
    alone = [napkin(f"{line} {zero} --json").data["verdict"] for zero in ("", "--zero 3")]
    assert [one["verdict"] for one in found] == alone
    assert alone[0] != alone[1]
    assert [one["name"] for one in found] == ["as given", "zero 3"]


STEP = "step llama3-8b --gpus 16 --hardware a100 --zero 3"


def test_software_that_changes_with_an_option_is_named(napkin: Napkin) -> None:
    """ZeRO-3 suggests FSDP and ZeRO-1 Megatron: what the change of software adds is not ZeRO's."""
    found = napkin(f"compare {STEP} --against zero=1")
    said = "with zero changes stack fsdp-compiled → megatron-core; state --stack to hold it"
    assert said in " ".join(found.out.split())
    assert said in napkin(f"compare {STEP} --against zero=1 --json").data["notes"]
    held = napkin(f"compare {STEP} --stack fsdp-compiled --against zero=1 --json").data
    assert not any("changes" in note for note in held["notes"])


def test_an_option_that_repeats_the_other_side_s_default_is_no_difference(napkin: Napkin) -> None:
    """fsdp and deepspeed with --zero 3 are both ZeRO-3: deepspeed's own default is no step on the way."""
    line = "compare memory llama3-8b --gpus 8 --hardware h100 --framework fsdp --against framework=deepspeed,"
    both = napkin(f"{line}zero=3,seq=2048 --json").data
    assert [row["difference"] for row in both["rows"]] == ["framework", "seq"]
    assert napkin(f"{line}zero=3 --json").data["rows"] == napkin(f"{line}zero=3,tp=1 --json").data["rows"]


def test_sides_that_differ_in_their_intervals_only(napkin: Napkin) -> None:
    """Software that is named as it was assumed."""
    outcome = napkin(f"compare {STEP} --against stack=fsdp-compiled --json")
    assert outcome.status == 0
    moved = [one["path"] for one in outcome.data["quantities"] if one["a"] != one["b"]]
    assert {path.rpartition("/")[2] for path in moved} == {"low", "high"}


def test_the_printed_memory_is_in_gigabytes(napkin: Napkin) -> None:
    lines = [" ".join(line.split()) for line in napkin("compare h100 b200").out.splitlines()]
    assert "hardware/memory 80.00 GB 180.0 GB 2.25 ×" in lines
    assert "hardware/memory/capacity 79.2 GiB 178.4 GiB 2.25 ×" in lines
