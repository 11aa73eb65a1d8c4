"""The layouts that `serve` compares: against loops over all degrees, and laws of more GPUs."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from napkin.planning.engines import ENGINES, room
from napkin.planning.service import Service, hold, least_latency, serve
from napkin.planning.serving_search import GivenRanks, fastest, keeps, largest_batch, layouts
from napkin.record import replace
from napkin.term import constant
from napkin.timing.generation import CLOSED, STATIC, EngineRanks, LatencyLimits, Traffic
from tests.conftest import run_line
from tests.test_generation import H100, setup

CARD = constant("c", 80e9, "byte")


def answered(line: str) -> dict[str, Any]:
    found: dict[str, Any] = run_line(f"serve {line} --json").data
    return found


def divides(name: str, tp: int, pp: int, ep: int, dp: int) -> bool:
    """Whether degrees are possible: 32 heads (Mixtral) or 64 (Llama 3 70B), 8 experts."""
    if (64 if name == "llama3-70b" else 32) % tp:
        return False
    experts = ep == 1 or (name == "mixtral-8x7b" and ep > tp and ep % tp == 0 and 8 % ep == 0)
    return experts and dp % max(ep // tp, 1) == 0


@pytest.mark.parametrize("name", ["llama3-70b", "mixtral-8x7b"])
@pytest.mark.parametrize("gpus", [1, 6, 8])
def test_every_layout_of_the_gpus_is_tried_once(name: str, gpus: int) -> None:
    degrees = product(range(1, 9), repeat=4)
    wanted = {d for d in degrees if d[0] * d[1] * d[3] == gpus and divides(name, *d)}
    found = [(one.groups.tp, one.groups.pp, one.groups.ep, one.dp) for one in layouts(setup(name), GivenRanks(gpus))]
    assert len(found) == len(set(found))
    assert set(found) == wanted


@pytest.mark.parametrize(
    ("name", "dtype", "batch", "usual"),
    [("llama3-70b", "bf16", 1, 3), ("llama3-70b", "bf16", 300, 6), ("mixtral-8x7b", "bf16", 64, 2)],
)
def test_the_fewest_gpus_are_those_of_a_loop_over_all_degrees(name: str, dtype: str, batch: int, usual: int) -> None:
    """Of 80 GB vLLM takes 0.9, less at most 4 GiB: three cards hold the 141 GB of Llama 3 70B, six also 201 GB of
    cache."""
    most, traffic = 9, Traffic(STATIC, batch, 1024, 1024)

    def holds(tp: int, pp: int, ep: int, dp: int) -> bool:
        one = replace(setup(name, dtype=dtype), groups=EngineRanks(tp, pp, ep), dp=dp)
        return batch * float(hold(one, traffic, None).each.value) <= room(ENGINES["vllm"], one, CARD).low

    degrees = (d for d in product(range(1, 9), repeat=4) if d[0] * d[1] * d[3] < most and divides(name, *d))
    fewest = min(d[0] * d[1] * d[3] for d in degrees if holds(*d))
    found = answered(f"{name} --hardware h100 --memory-size 80GB --batch {batch} --dtype {dtype}")
    assert found["inputs"]["gpus"]["value"] == fewest == usual
    assert found["verdict"] == "fits"


@pytest.mark.parametrize("name", ["llama3-8b", "mixtral-8x7b", "deepseek-v2"])
def test_more_gpus_are_never_slower(name: str) -> None:
    left = constant("r", 30e9, "byte")
    for requests in (3, 100):
        rates = []
        for gpus in (1, 2, 4, 8, 16):
            traffic = Traffic(CLOSED, requests, 500, 100)
            tried = layouts(setup(name), GivenRanks(gpus))
            best = fastest(tried, lambda one, load=traffic: serve(one, load, H100, left), lambda one: one)  # type: ignore[misc]
            assert best is not None
            assert float(best.in_flight.value) <= requests
            rates.append(float(best.output_rate.value))
        assert rates == sorted(rates)


@pytest.mark.parametrize("most", [20, 77, 299])
@pytest.mark.parametrize("name", ["llama3-8b", "mixtral-8x7b"])
def test_the_largest_batch_is_that_of_trying_each(name: str, most: int) -> None:
    """With a rate to exceed that none has, there may be none."""

    def served(batch: int) -> Service:
        return serve(one, Traffic(CLOSED, batch, 700, 300), H100)

    for tp in (1, 8):
        one = replace(setup(name), groups=EngineRanks(tp))
        each = {batch: served(batch) for batch in range(1, 301)}
        tpot, ttft = [float(term.value) for term in (each[most + 1].tpot, each[most + 1].ttft) if term is not None]
        for limits in (LatencyLimits(tpot=tpot * (1 - 1e-9)), LatencyLimits(ttft=ttft * (1 - 1e-9))):
            kept = [batch for batch, found in each.items() if keeps(found, limits)]
            assert kept == list(range(1, most + 1))
            assert largest_batch(served, each[300], limits) == most
            rate = float(each[most].output_rate.value)
            assert largest_batch(served, each[300], limits, 0.99 * rate) == most
            assert largest_batch(served, each[300], limits, 1.01 * rate) in (0, most)


@pytest.mark.parametrize("response", [2, 40])
@pytest.mark.parametrize("prompt", [30, 3000])
@pytest.mark.parametrize("name", ["llama3-8b", "mixtral-8x7b", "deepseek-v2-lite"])
def test_no_service_is_faster_than_the_least_latency(name: str, prompt: int, response: int) -> None:
    """Of any number of stages, replicas and sequences: a search may skip what the bound excludes."""
    every = list(layouts(setup(name), GivenRanks(8)))
    assert len(every) > 1
    for one in every:
        bounds = least_latency(one, Traffic(CLOSED, 1, prompt, response), H100)
        for batch, alike in product((1, 2, 7, 200), (False, True)):
            found = serve(one, Traffic(CLOSED, batch * one.dp, prompt, response, alike), H100)
            assert found.tpot is not None
            assert bounds[0] <= float(found.ttft.value) * (1 + 1e-12)
            assert bounds[1] <= float(found.tpot.value) * (1 + 1e-12)


@pytest.mark.parametrize(
    "line",
    [
        "deepseek-v2 --gpus 8 --hardware h200 --concurrency 512",
        "llama3-70b --gpus 6 --hardware h100 --batch 8",
        "llama3-70b --gpus 16 --hardware h100 --max-tpot 30ms",
    ],
)
def test_a_layout_that_is_found_says_the_same_when_it_is_given(line: str) -> None:
    found = answered(line)
    degrees = [
        f"--{name} {found['inputs'][name]['value']}" for name in ("tp", "pp", "ep", "dp") if name in found["inputs"]
    ]
    again = answered(f"{line} {' '.join(degrees)}")
    assert again["values"] == found["values"]
    assert again["verdict"] == found["verdict"] == "fits"


def test_the_fewest_gpus_for_requests_within_a_bound() -> None:
    """As many as are enough: on fewer they do not fit, or the bound breaks."""
    line = "llama3-70b --hardware h100 --concurrency 400"
    bounded = answered(f"{line} --max-tpot 40ms")
    gpus = bounded["inputs"]["gpus"]["value"]
    assert bounded["values"]["serve/tpot"] <= 0.040
    assert bounded["values"]["serve/in_flight"] == 400
    assert answered(line)["inputs"]["gpus"]["value"] < gpus
    for fewer in (gpus - 1, gpus - 2, gpus // 2):
        slower = answered(f"{line} --gpus {fewer}")
        assert slower["verdict"] != "fits" or slower["values"]["serve/tpot"] > 0.040


@pytest.mark.parametrize(
    ("line", "status", "says"),
    [
        ("llama3-70b --hardware h100 --gpus 8 --concurrency 9 --max-tpot 40ms", 2, "both are given"),
        ("llama3-70b --hardware h100 --concurrency 9 --max-tpot 1us", 1, "a single request takes at best"),
        ("llama3-8b --hardware 4090 --gpus 2 --engine llama.cpp --pp 1 --tp 1 --dp 1", 2, "contradiction"),
        ("llama3-8b --hardware h100 --gpus 6 --pp 4", 2, "does not divide --gpus 6"),
    ],
)
def test_what_is_refused(line: str, status: int, says: str) -> None:
    outcome = run_line(f"serve {line}")
    assert outcome.status == status
    assert says in outcome.err


def test_an_engine_divides_a_model_in_its_own_way() -> None:
    """llama.cpp gives each card some of the layers unless it is told otherwise."""
    line = "llama3-70b --hardware 4090 --gpus 2 --dtype q4_k_m --engine llama.cpp"
    assert answered(line)["inputs"]["pp"]["value"] == 2
    assert answered(f"{line} --tp 2")["inputs"]["tp"]["value"] == 2


def test_the_cheapest_of_several_machines_is_the_cheapest_row() -> None:
    line = "llama3-8b --concurrency 64 --max-tpot 40ms"
    found = answered(f"{line} --hardware h100,l40s,a10")
    rows = {row["hardware"]: row for row in found["rows"]}
    costs = {name: row["cost"] for name, row in rows.items() if "cost" in row}
    chosen = next(row for row in rows.values() if row.get("recommended"))
    assert set(costs) == {"h100-sxm-80gb", "l40s"}  # an A10 is rented alone, and one is too slow
    assert chosen["cost"] == min(costs.values())
    path = "serve/cost_per_million_output_tokens"
    assert found["values"][path] == pytest.approx(chosen["cost"])
    for name, row in rows.items():
        if "cost" not in row:
            assert row["why"]
            continue
        alone = answered(row["command"].removeprefix("napkin serve ").replace(" --max-tpot 40ms", ""))
        assert alone["inputs"]["hardware"]["value"] == name
        assert alone["values"][path] == pytest.approx(row["cost"])
        assert alone["values"]["serve/tpot"] <= 0.040
        assert (row["cost/low"], row["cost/high"]) == pytest.approx((alone["low"][path], alone["high"][path]))


def test_a_price_of_single_machines_is_not_that_of_a_model_over_several() -> None:
    """An A10 is rented alone: two that share a model have no known price, two replicas do."""
    path = "serve/cost_per_million_output_tokens"
    line = "llama3-8b --hardware a10 --gpus 2 --batch 4"
    assert path in answered(f"{line} --tp 1")["values"]
    shared = answered(f"{line} --tp 2")
    assert path not in shared["values"]
    assert "machines of up to 1;" in " ".join(shared["notes"])
