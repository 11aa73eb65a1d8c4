"""napkin.Meter with a clock that the test moves: what it counts, what it leaves out, and what it says of a step."""

from __future__ import annotations

import json
import pathlib
import pickle
from typing import Any

import pytest

import napkin
from napkin import NapkinError
from napkin.integrations.meter import WARM_UP
from tests.conftest import run_line

JOB: dict[str, Any] = {"hardware": "h100", "gpus": 8, "zero": 3}
TOKENS = 8 * 4096
PREDICTED = napkin.step("llama3-8b", **JOB).time


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def metered(seconds: float, steps: int = WARM_UP + 4, **more: Any) -> tuple[napkin.Meter, Clock]:
    """A meter of llama3-8b after steps that all took as long."""
    clock = Clock()
    meter = napkin.Meter("llama3-8b", **{**JOB, **more}, clock=clock)
    meter.start()
    for _ in range(steps):
        clock.now += seconds
        meter.step(tokens=TOKENS)
    return meter, clock


def test_mfu_is_that_of_the_command() -> None:
    reading = metered(0.9)[0].last
    line = "mfu llama3-8b --step-time 0.9s --global-batch 8 --gpus 8 --hardware h100 --zero 3 --json"
    said = run_line(line).values
    assert reading is not None
    assert reading.tokens_per_second == pytest.approx(TOKENS / 0.9)
    assert reading.tokens_per_second_per_gpu == pytest.approx(TOKENS / 0.9 / 8)
    assert (reading.mfu, reading.hfu) == pytest.approx((said["mfu"], said["hfu/palm"]))
    assert reading.mfu == pytest.approx(
        (6 * (8.03e9 - 0.525e9) + 12 * 4096 * 32 * 4096) * TOKENS / 0.9 / 8 / 989.4e12, 1e-3
    )
    assert reading.convention == "palm"
    assert reading.deviation == pytest.approx(said["gap"])
    assert reading.predicted == said["step/predicted"]


def test_a_named_convention_and_recomputation() -> None:
    reading = metered(0.9, convention="6nd", recompute="full")[0].last
    assert reading is not None
    assert reading.convention == "6nd"
    assert reading.mfu == pytest.approx(6 * 8_030_261_248 * TOKENS / 0.9 / 8 / 989.4e12)
    assert 1.2 * (reading.mfu or 1) < (reading.hfu or 0) < 4 / 3 * (reading.mfu or 0)


def test_warm_up_is_counted_and_not_timed() -> None:
    clock = Clock()
    meter = napkin.Meter("llama3-8b", **JOB, clock=clock, total_steps=100)
    for seconds in [60.0] * WARM_UP:
        clock.now += seconds
        reading = meter.step(tokens=TOKENS)
    assert reading.mfu is None
    assert str(reading) == "step 5: warming up"
    for _ in range(3):
        clock.now += 0.5
        reading = meter.step(tokens=TOKENS)
    assert reading.step_seconds == pytest.approx(0.5)
    assert reading.seconds_left == pytest.approx((100 - 8) * 0.5)
    assert (reading.step, reading.tokens) == (8, 8 * TOKENS)


def test_a_loop_that_was_not_started_loses_its_first_step() -> None:
    clock = Clock()
    meter = napkin.Meter("llama3-8b", **JOB, clock=clock, warm_up=0)
    assert meter.step(tokens=TOKENS).step_seconds is None
    clock.now += 0.5
    assert meter.step(tokens=TOKENS).step_seconds == 0.5


def test_what_is_paused_is_no_step_but_takes_the_run_s_time() -> None:
    meter, clock = metered(0.5, total_steps=WARM_UP + 5 + 10)
    clock.now += 0.3
    with meter.pause():
        clock.now += 100
    clock.now += 0.2
    reading = meter.step(tokens=TOKENS)
    assert reading.step_seconds == pytest.approx(0.5)
    assert reading.seconds_left == pytest.approx(10 * (5 * 0.5 + 100) / 5)
    with pytest.raises(NapkinError, match="in a pause"), meter.pause():
        meter.step(tokens=TOKENS)
    with pytest.raises(NapkinError, match="paused already"), meter.pause(), meter.pause():
        pass
    assert not meter.is_paused


def test_accumulated_gradients_are_one_step() -> None:
    clock = Clock()
    meter = napkin.Meter("llama3-8b", **JOB, clock=clock, warm_up=1)
    meter.start()
    for _ in range(3):
        for _ in range(4):
            clock.now += 0.5
            meter.add(TOKENS)
        reading = meter.step()
    assert reading.tokens == 3 * 4 * TOKENS
    assert reading.step_seconds == 2.0
    assert reading.predicted == napkin.step("llama3-8b", **JOB, grad_accum=4).time
    assert reading.deviation == pytest.approx(2.0 / reading.predicted)


def test_a_step_without_tokens() -> None:
    meter, clock = metered(0.5, total_tokens="1T")
    for _ in range(20):
        clock.now += 0.5
        reading = meter.step(tokens=0)
    assert (reading.tokens_per_second, reading.mfu, reading.deviation) == (0, 0, None)
    assert "0 were processed" in reading.why
    standing = napkin.Meter("llama3-8b", **JOB, clock=lambda: 0.0, warm_up=0)
    standing.start()
    assert standing.step(tokens=TOKENS).mfu is None  # no time has passed
    for tokens in (-1, 0.5, None, float("nan"), True):
        with pytest.raises(NapkinError, match="tokens"):
            meter.step(tokens=tokens)  # type: ignore[arg-type]


def test_another_batch_is_not_compared() -> None:
    clock = Clock()
    meter = napkin.Meter("llama3-8b", **JOB, global_batch=16, clock=clock, warm_up=0)
    meter.start()
    clock.now += 1
    reading = meter.step(tokens=TOKENS)
    assert reading.deviation is None
    assert reading.why == "a step of 65,536 tokens is predicted, and 32,768 were processed"
    assert meter.explain().says == (reading.why,)


def test_time_left_of_a_run_that_goes_on() -> None:
    clock = Clock()
    meter = napkin.Meter("llama3-8b", **JOB, clock=clock, total_tokens=TOKENS * 1000)
    meter.resume_from(steps=900, tokens=TOKENS * 900)
    meter.start()
    for _ in range(WARM_UP + 5):
        clock.now += 2
        reading = meter.step(tokens=TOKENS)
    assert reading.step == 900 + WARM_UP + 5
    assert reading.seconds_left == pytest.approx(2 * (100 - WARM_UP - 5))


def test_a_step_within_the_interval_needs_no_explanation() -> None:
    found = metered(float(PREDICTED) * 1.05)[0].explain()
    assert found.term is None
    assert found.says[-1] == "that is within the usual error of such predictions"


def test_the_term_that_explains_a_slow_step() -> None:
    meter, _ = metered(0.9)
    found, predicted = meter.explain(), napkin.step("llama3-8b", **JOB)
    compute = predicted["step/compute"]
    assert (found.term, found.is_known) == ("step/compute", False)  # no cause is known: the part that changes least
    assert found.share == pytest.approx(compute / predicted.time)
    assert found.needed["step/compute"] == pytest.approx((compute + 0.9 - predicted.time) / compute)
    assert "no single cause" in str(found)
    slower = napkin.step("llama3-8b", **JOB, recompute="full").time  # every layer is recomputed, and no one said so
    known = metered(float(slower), confidence=50)[0].explain()
    assert (known.term, known.is_known) == ("step/compute", True)
    assert "every layer is recomputed" in str(known)


def test_parameters_alone_are_measured_and_not_predicted() -> None:
    clock = Clock()
    meter = napkin.Meter(params="7B", hardware="h100", gpus=8, clock=clock, warm_up=0)
    meter.start()
    clock.now += 1
    reading = meter.step(tokens=80_000)
    assert reading.mfu == pytest.approx(6 * 7e9 * 10_000 / 989.4e12)
    assert (reading.predicted, reading.deviation, reading.why) == (None, None, "no step is predicted")
    assert napkin.Meter("llama3-8b", hardware="h100", predict=False).step(tokens=1).predicted is None


def test_a_launch_file_is_read_once(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "args.json"
    arguments = {"model_name_or_path": "gpt2", "per_device_train_batch_size": 2, "gradient_accumulation_steps": 3}
    path.write_text(json.dumps({**arguments, "bf16": True, "max_steps": 9}), encoding="utf-8")
    clock = Clock()
    meter = napkin.Meter("gpt2", hardware="h100", seq=64, from_=str(path), clock=clock, warm_up=0)
    path.unlink()
    meter.start()
    clock.now += 1
    reading = meter.step(tokens=2 * 3 * 64)
    assert reading.deviation == 1 / (reading.predicted or 0)
    assert meter.explain().term is not None


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ({"model": "llama3-9000b", "hardware": "h100"}, "llama3-9000b"),
        ({"model": "llama3-8b", "hardware": "h100", "gpuz": 8}, "gpuz"),
        ({"model": "llama3-8b", "hardware": "h100", "warm_up": -1}, "warm_up"),
        ({"model": "llama3-8b", "hardware": "h100", "total_steps": 1, "total_tokens": 1}, "cannot be combined"),
        ({"model": "llama3-8b", "hardware": "h100", "total_tokens": "many"}, "total_tokens"),
        ({"params": "7B", "hardware": "h100", "tp": 8}, "--tp"),
    ],
)
def test_what_cannot_be_metered_is_refused_at_the_start(question: dict[str, Any], said: str) -> None:
    with pytest.raises(NapkinError, match=said):
        napkin.Meter(**question).prepare()


def test_a_reading_for_a_logger() -> None:
    reading = metered(0.9)[0].last
    assert reading is not None
    assert set(reading.to_dict()) == {
        "tokens_per_second", "tokens_per_second_per_gpu", "mfu", "hfu", "step_seconds", "predicted", "deviation",
    }  # fmt: skip
    slower = 0.9 / reading.to_dict()["predicted"]
    assert f"MFU 0.237 (palm)   900.0 ms a step, {slower:.2f} × the prediction" in str(reading)
    assert pickle.loads(pickle.dumps(reading)) == reading


@pytest.mark.parametrize(
    ("name", "value"),
    [("gpus", 0), ("gpus", "8"), ("warm_up", None), ("window", 1.5), ("window", 10**40), ("total_steps", 0),
     ("total_steps", ""), ("clock", None), ("total_tokens", 10**400), ("gpus", True)],
)  # fmt: skip
def test_arguments_of_a_meter_are_checked_at_once(name: str, value: object) -> None:
    arguments: dict[str, Any] = {**JOB, name: value}
    with pytest.raises(napkin.NapkinError, match=name):
        napkin.Meter("llama3-8b", **arguments)


@pytest.mark.parametrize("tokens", ["8", -1, 10**400, True, int, [1]])
def test_what_is_no_number_of_tokens_is_refused(tokens: Any) -> None:
    meter = napkin.Meter(params="7B", hardware="h100", gpus=8)
    for asked in (meter.add, lambda one: meter.step(tokens=one), lambda one: meter.resume_from(0, one)):
        with pytest.raises(napkin.NapkinError, match="tokens: "):
            asked(tokens)
