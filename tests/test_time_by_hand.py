"""Seconds outside a layer's matmuls, by hand: failures and checkpoints, goodput, the roofline, rollouts, generation."""

from __future__ import annotations

import math
from typing import Any

import pytest

from napkin.errors import NapkinError
from napkin.record import replace
from napkin.term import Term, leaf
from napkin.timing import roofline
from napkin.timing.generation import EngineRanks, passes_time
from napkin.timing.goodput import Goodput
from napkin.timing.interruptions import CheckpointWrite, Interruptions, daly, lost, mtbf_of, useful, young
from napkin.timing.rollout import (
    broadcast_time,
    decoding_steps,
    dispatch_time,
    offload_time,
    sync_time,
    together_time,
)
from napkin.timing.time import carbon, compared_with_known, energy, limits, missing_of, solve, unknowns
from tests.test_generation import RATES, SHARES, passes
from tests.unit_step import UNIT


def given(name: str, value: float, unit: str = "1") -> Term:
    return leaf(name, value, unit, "given")


def seconds(value: float) -> Term:
    return given("t", value, "second")


# --- failures and checkpoints ---

GPUS = given("gpus", 32, "GPU")
WRITE = CheckpointWrite(seconds(5), given("rate", 1e9, "byte/s/node"), given("each", 1e9, "byte/GPU"))
FAILING = Interruptions(given("m", 32e4, "GPU-second"), WRITE, seconds(100), given("rest", 0.9), (0.1, 0.2, 0.3))


def test_intervals_between_checkpoints() -> None:
    """Young 1974: √(2wM). Daly 2006, equation 37: √(2wM)·(1 + √(w/2M)/3 + (w/2M)/9) − w, and M where w ≥ 2M."""
    w, m = 50.0, 10_000.0
    first = young(seconds(w), seconds(m))
    assert first.value == pytest.approx(math.sqrt(2 * w * m))
    share = w / (2 * m)
    best = math.sqrt(2 * w * m) * (1 + math.sqrt(share) / 3 + share / 9) - w
    assert daly(seconds(w), seconds(m), first).value == pytest.approx(best)
    assert daly(seconds(3 * m), seconds(m), first).value == m
    assert lost(seconds(w), seconds(m), seconds(1000)).value == pytest.approx(50 / 1000 + 1000 / (2 * m))
    assert mtbf_of(given("m", 32e4, "GPU-second"), GPUS).value == 1e4


def test_how_long_a_checkpoint_blocks() -> None:
    """5 s, and 32e9 bytes over 4 nodes at 1e9 each; states where they are known; a rate of the whole job."""
    assert WRITE.seconds(GPUS).value == 5 + 32e9 / 4e9
    assert WRITE.seconds(given("gpus", 33, "GPU")).value == 5 + 33e9 / 5e9
    known = replace(WRITE, states=given("states", 80e9, "byte"))
    assert known.seconds(GPUS).value == 5 + 80e9 / 4e9
    assert replace(known, whole=given("whole", 2e9, "byte/s")).seconds(GPUS).value == 40


def test_what_failures_leave() -> None:
    """Daly 2006, section 3: T/(M·e^(R/M)·(e^((T + w)/M) − 1)), with Young's T, times what else is lost."""
    m, w, r = 1e4, 13.0, 100.0
    t = math.sqrt(2 * w * m)
    share = t / (m * math.exp(r / m) * (math.exp((t + w) / m) - 1))
    assert FAILING.interval(GPUS).value == pytest.approx(t)
    assert FAILING.available(GPUS).value == pytest.approx(share)
    assert FAILING.share(GPUS).value == pytest.approx(0.9 * share)
    own = replace(FAILING, every=seconds(50))
    assert own.available(GPUS).value == pytest.approx(useful(50 / m, w / m, r / m))
    values = [term.value for term in FAILING.terms(GPUS, seconds(86400))]
    assert values == pytest.approx([m, 8.64, w, t])
    assert [term.value for term in FAILING.saving(given("s", 8e9, "byte")).terms(GPUS, seconds(1))][-1] == 8e9


def test_the_spread_of_what_failures_leave() -> None:
    """Half of what the logarithm moves by between one σ below and above, of each; added in squares."""
    m, w, r = 1e4, 13.0, 100.0

    def log(m: float, w: float, r: float) -> float:
        return math.log(useful(math.sqrt(2 * w * m) / m, w / m, r / m))

    e = math.exp
    moves = (
        log(m * e(0.1), w, r) - log(m / e(0.1), w, r),
        log(m, w * e(0.2), r) - log(m, w / e(0.2), r),
        log(m, w, r * e(0.3)) - log(m, w, r / e(0.3)),
    )
    assert FAILING.spread(GPUS) == pytest.approx(math.hypot(*moves) / 2, rel=1e-6)
    assert replace(FAILING, spreads=(0, 0, 0)).spread(GPUS) == 0


def test_goodput_between_calendar_and_training() -> None:
    found = Goodput(given("goodput", 0.8), 0.1)
    assert found.calendar(seconds(8)).value == pytest.approx(10)
    assert found.uninterrupted(seconds(10)).value == pytest.approx(8)
    assert found.whole_run(given("mfu", 0.5)).value == pytest.approx(0.4)
    assert found.ends(2) == pytest.approx((0.8 / math.exp(0.2), 0.8 * math.exp(0.2)))
    assert found.ends(10) == pytest.approx((0.8 / math.e, 1))
    assert found.run(5, 2) == pytest.approx((10, 12.5))
    assert found.half_widths(0.4, 3) == pytest.approx((math.hypot(0.4, 0.3),) * 2)
    lost = replace(found, spread=0.0, loss=0.2)
    assert lost.ends(2) == pytest.approx((0.8 / math.exp(0.4), 0.8))
    assert lost.half_widths(0.4, 3) == pytest.approx((0.4, math.hypot(0.4, 0.6)))
    assert found.paid(GPUS).value == 32
    assert replace(found, spares=given("spares", 4, "GPU")).paid(GPUS).value == 36
    assert found.expected(seconds(5)) == []


def test_goodput_of_a_machine_is_that_of_its_failures() -> None:
    """What is known of the published share is added to it; other checkpoints give another share and the same rest."""
    found = Goodput(given("goodput", 0.8), 0.1, interruptions=FAILING).on(GPUS)
    assert found.share.value == FAILING.share(GPUS).value
    assert found.spread == pytest.approx(math.hypot(0.1, FAILING.spread(GPUS)))
    assert found.on(given("gpus", 1, "GPU")) is found
    states = given("states", 800e9, "byte")
    saved = found.saving(states)
    slower = FAILING.saving(states)
    assert saved.share.value == slower.share(GPUS).value < found.share.value
    assert saved.spread == pytest.approx(math.hypot(0.1, slower.spread(GPUS)))


# --- the roofline ---


def test_the_roof() -> None:
    """min(peak, I · bandwidth); the larger of the two times, or their sum."""
    assert [roofline.attainable(i, 100, 20) for i in (1, 5, 8)] == [20, 100, 100]
    flops, moved = given("f", 1000, "FLOP"), given("b", 100, "byte")
    found = roofline.bounds(flops, moved, given("peak", 50, "FLOP/s"), given("bandwidth", 4, "byte/s"))
    values = {name: one.value for name, one in found.items()}
    assert values == {
        "intensity": 10, "ridge": 12.5, "compute": 20, "memory": 25, "overlapped": 25, "serial": 45, "rate": 40,
    }  # fmt: skip
    assert roofline.verdict(found) == "memory"
    faster = roofline.bounds(flops, moved, given("peak", 50, "FLOP/s"), given("bandwidth", 5, "byte/s"))
    assert (faster["rate"].value, roofline.verdict(faster)) == (50, "compute")


def test_operations_one_after_the_other() -> None:
    """a: 100 FLOP and 10 bytes, 2 s and 5; b: 300 FLOP and 10 bytes, 6 s; c moves 4 bytes in 2 s."""
    flops = {"a": given("a", 100, "FLOP"), "b": given("b", 300, "FLOP")}
    moved = {name: given(name, size, "byte") for name, size in (("a", 10), ("b", 10), ("c", 4))}
    found = roofline.bound_of_all(flops, moved, given("peak", 50, "FLOP/s"), given("bandwidth", 2, "byte/s"))
    assert found["overlapped"].value == 5 + 6 + 2
    assert found["rate"].value == pytest.approx(400 / 13)
    rows = roofline.bound_of_each(flops, moved, found)
    assert [(one.name, one.flops, one.bytes, one.intensity, one.time, one.bound) for one in rows] == [
        ("a", 100, 10, 10, 5, "memory"), ("b", 300, 10, 30, 6, "compute"), ("c", 0, 4, 0, 2, "memory"),
    ]  # fmt: skip
    assert [one.share for one in rows] == pytest.approx([5 / 13, 6 / 13, 2 / 13])


def test_elementwise_functions_read_once_and_write_once() -> None:
    width = given("w", 2, "byte")
    assert [one.value for one in roofline.elementwise("relu", 100, width)] == [100, 400]
    assert [one.value for one in roofline.elementwise("gelu", 100, width)] == [900, 400]


# --- rollouts ---


def test_steps_that_decode_answers() -> None:
    """S·(r − 1)/B and (R − r)/k: 12 answers of 11 tokens in the mean, the longest of 31, four at a time."""
    cases = ((4, 1, (30, 20)), (100, 1, (10, 20)), (4, 2, (30, 10)), (100, 3, (10 / 3, 20 / 3)))
    for at_once, batches, expected in cases:
        full, last = decoding_steps(12, at_once, 11, 31, batches)
        assert last is not None
        assert (float(full.value), float(last.value)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        # it trains faster than the engine generates the other 60 %: all GPUs generate the 40 %, the engine the others
        (80, 300 * (0.4 / 3 + 0.6)),
        # while it trains for 250 s, the engine generates 250 / 300 of a step's responses; 24 GPUs the others
        (250, 250 + 50 / 3),
        # and where the engine is the faster one nothing is lent
        (310, 310),
    ],
)
def test_a_trainer_lends_its_gpus_to_the_engine(training: int, expected: float) -> None:
    """300 s of an engine on 8 GPUs, beside a trainer on 16 that starts when 40 % of the responses are there."""
    generation, seconds = given("g", 300, "second"), given("t", training, "second")
    assert together_time(generation, seconds, 8, 16, 0.4).value == pytest.approx(expected)
    assert together_time(generation, seconds, 8, 16, 0.0).value == max(300, training)


def test_new_weights_reach_the_engine() -> None:
    """In a node over the link, one rank's part; over the network with one card, or with all of a node's in a ring to
    GPUs of their own; 0.7 ms a tensor."""
    rates = replace(UNIT, link=100.0, network=10.0, bus=0.5, wire=0.25)
    weights = given("w", 8000, "byte")
    for gpus, ranks, apart, expected in (
        (8, 4, False, 2000 / 50), (8, 4, True, 8000 / 50), (16, 4, False, 2000 / 2.5), (16, 4, True, 8000 / 20),
    ):  # fmt: skip
        found = sync_time(weights, 1000, ranks, gpus, apart, rates)
        assert found.value == pytest.approx(expected + 0.7)
    assert broadcast_time(weights, 400, "a library").value == 20
    assert dispatch_time("update/dispatch", 600, 20).value == 30
    assert offload_time(given("held", 6.6e9, "byte")).value == pytest.approx(2)


# --- generation ---


def seconds_of(groups: EngineRanks, shares: Any = SHARES, rates: Any = RATES, **changes: Any) -> float:
    """Seconds next to the weights and the cache."""
    own = replace(rates, reached=shares)
    return float(passes_time("t", passes(**changes), groups, own).value) - 32


WAITING = replace(SHARES, latency=2.0, hop=5.0)


def test_exchanges_between_ranks_of_an_engine() -> None:
    """Each latency and its bytes: two all-reduces a layer of 2(t − 1)/t; to the experts and back (e − 1)/e; one hop
    between stages. Doublings of nodes cost more."""
    assert seconds_of(EngineRanks(tp=4), WAITING, exchanged=8) == 3 * 2 * 5 * 2 + 2 * 5 * 1.5 * 8
    experts = {"routed_layers": 4, "routed": 16}
    assert seconds_of(EngineRanks(ep=4), WAITING, **experts) == pytest.approx(3 * 2 * 4 * 2 + 2 * 3 / 4 * 16)
    assert seconds_of(EngineRanks(tp=4, ep=4), WAITING, exchanged=8, **experts) == 60 + 120
    assert seconds_of(EngineRanks(pp=2), WAITING, exchanged=8) == 3 * 2 + 8
    # sixteen ranks are on two nodes of eight: one doubling
    wide = seconds_of(EngineRanks(ep=16), WAITING, **experts)
    assert wide == pytest.approx(3 * 2 * 4 * (2 + 5) + 2 * 15 / 16 * 16)
    # neighbors of a pipeline are as far apart as tensor-parallel ranks are many
    assert (
        seconds_of(EngineRanks(tp=8, pp=2), WAITING, exchanged=8) - seconds_of(EngineRanks(tp=8), WAITING, exchanged=8)
        == 3 * (2 + 5) + 8
    )


def test_launches_of_layers_and_of_routing() -> None:
    """Of a stage: 5 layers, 4 routed over two stages."""
    launched = replace(SHARES, layer=2.0, routed=13.0)
    assert seconds_of(EngineRanks(), launched) == 3 * 5 * 2
    alone = seconds_of(EngineRanks(pp=2), SHARES, routed_layers=4)
    assert seconds_of(EngineRanks(pp=2), launched, routed_layers=4) - alone == 3 * (5 * 2 + 2 * 13)


# --- whole runs ---


def test_what_is_missing_is_a_limit_or_follows() -> None:
    known = {name: given(name, 1) for name in ("params", "tokens", "gpus", "mfu", "time")}
    without = {name: term for name, term in known.items() if name != "params"}
    assert missing_of(without) == ["params"]
    assert missing_of(without | {"per_token": given("per_token", 1)}) == []
    assert limits(known, False) == ("time",)
    assert limits(known, True) == ("time", "budget")
    assert limits(without, True) == ("budget",)
    two = {name: term for name, term in without.items() if name != "gpus"}
    assert limits(two, True) == ()
    assert limits({name: known[name] for name in ("gpus", "time", "mfu")}, True) == ("budget",)


def test_one_equation_determines_one_unknown_and_a_budget_another() -> None:
    """What is missing beyond that is named, with its option."""
    known = {name: given(name, 1) for name in ("params", "tokens", "gpus", "mfu", "time")}

    def without(*names: str) -> dict[str, Term]:
        return {name: one for name, one in known.items() if name not in names}

    assert unknowns(without("time"), False) == ["time"]
    assert unknowns(without("tokens", "time"), True) == ["tokens", "time"]
    for missing, budget in ((("tokens", "time"), False), (("params", "tokens", "time"), True)):
        with pytest.raises(NapkinError, match=r"too much is missing: .*--tokens.*--within") as found:
            unknowns(without(*missing), budget)
        assert ("all but two" if budget else "all but one") in str(found.value.hint)
    assert unknowns(without("gpus", "time"), True) == ["gpus", "time"]
    assert unknowns(without("tokens", "gpus", "time"), True) == ["tokens", "gpus", "time"]  # a product decides them


RUN = {
    "params": given("params", 1e9, "param"), "tokens": given("tokens", 2e10, "token"),
    "gpus": given("gpus", 8, "GPU"), "mfu": given("mfu", 0.5),
}  # fmt: skip
PEAK = given("peak", 1e15, "FLOP/s/GPU")


def test_a_run_by_six_n() -> None:
    """6·10⁹·2·10¹⁰ FLOP at 4·10¹⁵ a second: 30,000 s, at a goodput of 0.8 37,500 s; spares are paid."""
    found = solve(RUN, PEAK)
    assert (found["flops"].value, found["time"].value) == (1.2e20, 30_000)
    assert found["gpu_hours"].value == pytest.approx(8 * 30_000 / 3600)
    share = Goodput(given("goodput", 0.8), spares=given("spares", 2, "GPU"))
    slower = solve(RUN, PEAK, goodput=share)
    assert (slower["time/uninterrupted"].value, slower["time"].value) == (30_000, 37_500)
    assert slower["gpu_hours"].value == pytest.approx(10 * 37_500 / 3600)
    # 48 GPU-hours in a budget of 96 at 2: six hours of eight, 0.8 of them training
    rest = {name: term for name, term in RUN.items() if name != "tokens"}
    price = given("price", 2, "USD/GPU-hour")
    bought = solve(rest, PEAK, given("budget", 96, "USD"), price, goodput=Goodput(given("goodput", 0.8)))
    assert bought["time"].value == pytest.approx(6 * 3600)
    assert bought["tokens"].value == pytest.approx(0.8 * 6 * 3600 * 4e15 / 6e9, abs=1)


def test_energy_and_what_everyone_knows() -> None:
    """8 GPUs of 700 W, 1.5 times that with the host, 1.2 with the room: 10.08 kW."""
    run = {"gpus": GPUS, "time": seconds(3600)}
    used = energy(run, given("tdp", 700, "watt/GPU"), given("overhead", 1.5), given("pue", 1.2))
    assert used.value == pytest.approx(32 * 700 * 1.5 * 1.2 * 3600)
    assert carbon(used, given("grid", 0.5, "kg/kWh")).value == pytest.approx(32 * 0.7 * 1.5 * 1.2 * 0.5)
    assert [row[2] for row in compared_with_known(3.14e23)] == pytest.approx([1, 3.14e23 / 2e25, 0.0314, 0.00314])
