"""Laws of steps, plans and runs over drawn questions: more of what helps never hurts, and parts add up.

Every question is asked as a user asks it, through the command line.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from .conftest import run_line

pytestmark = pytest.mark.slow
SMALLER = 1 + 1e-9
"""Two computations of one number differ by less."""
MODELS = (
    "llama3-8b",
    "llama3-70b",
    "gpt2",
    "phi-2",
    "gemma2-9b",
    "mixtral-8x7b",
    "deepseek-v2-lite",
    "qwen3-30b-a3b",
    "gpt-oss-20b",
    "t5-large",
    "falcon-mamba-7b",
    "zamba2-1.2b",
    "qwen3-next-80b-a3b",
    "bert-base-uncased",
)
Options = dict[str, str]
LAWS = settings(max_examples=25, deadline=None)


@st.composite
def questions(draw: st.DrawFn) -> tuple[str, Options]:
    """A model and a layout of it that napkin answers."""
    tp, pp, cp = draw(st.sampled_from([1, 1, 2, 4, 8])), draw(st.sampled_from([1, 1, 2])), draw(st.sampled_from([1, 2]))
    options = {
        "tp": tp,
        "pp": pp,
        "cp": cp,
        "gpus": tp * pp * cp * draw(st.sampled_from([1, 2, 8])),
        "zero": draw(st.sampled_from([0, 1, 2, 3] if pp == 1 else [0, 1])),
        "micro-batch": draw(st.sampled_from([1, 2, 4])),
        "grad-accum": draw(st.sampled_from([1, 2, 8])),
        "seq": draw(st.sampled_from([256, 512, 1024])),
        "hardware": draw(st.sampled_from(["h100", "a100", "b200", "mi300x"])),
        "precision": draw(st.sampled_from(["bf16-mixed", "amp-bf16", "fp32", "bf16-pure"])),
        "framework": draw(st.sampled_from(["fsdp", "megatron-core", "deepspeed", "torchtitan"])),
    }
    return draw(st.sampled_from(MODELS)), {name: str(value) for name, value in options.items()}


def asked(command: str, model: str, options: Options) -> dict[str, float]:
    """Return the values of an answer; a layout that does not divide the model is not drawn."""
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    outcome = run_line([command, *([model] if model else []), *words, "--json"])
    assume(outcome.status in (0, 1, 4))
    return outcome.values


def seconds(model: str, options: Options) -> float:
    return asked("step", model, options)["step/time"]


def more(options: Options, name: str, factor: int = 2) -> Options:
    return {**options, name: str(factor * int(options[name]))}


# --- the step ------------------------------------------------------------------------------------------------------


@LAWS
@given(questions())
def test_recomputation_makes_no_step_faster_and_keeps_no_more(question: tuple[str, Options]) -> None:
    model, options = question
    modes = [{**options, "recompute": mode} for mode in ("none", "selective", "full")]
    times = [seconds(model, one) for one in modes]
    assert times[0] <= times[1] * SMALLER
    assert times[1] <= times[2] * SMALLER
    kept = [asked("memory", model, one)["memory/activations/saved"] for one in modes]
    assert kept[2] <= min(kept)  # a core recomputed from wider tensors than it would keep saves nothing


@LAWS
@given(questions(), st.sampled_from(["micro-batch", "grad-accum"]))
def test_twice_the_batch_takes_at_most_twice_the_time(question: tuple[str, Options], name: str) -> None:
    model, options = question
    one, two = seconds(model, options), seconds(model, more(options, name))
    assert one <= two * SMALLER
    assert two <= 2 * one * SMALLER


@LAWS
@given(questions())
def test_a_longer_sequence_takes_more_of_both(question: tuple[str, Options]) -> None:
    model, options = question
    longer = more(options, "seq")
    assert seconds(model, options) <= seconds(model, longer) * SMALLER
    short, long = asked("memory", model, options), asked("memory", model, longer)
    assert short["memory/live"] <= long["memory/live"]  # alike if it peaks with all gradients complete
    assert short["memory/activations/saved"] < long["memory/activations/saved"]


@LAWS
@given(questions(), st.sampled_from([("network-bandwidth", "25GB/s", "100GB/s"), ("peak-flops", "3e14", "9e14")]))
def test_a_faster_machine_is_no_slower(question: tuple[str, Options], better: tuple[str, str, str]) -> None:
    model, options = question
    name, low, high = better
    assert seconds(model, {**options, name: high}) <= seconds(model, {**options, name: low}) * SMALLER


@LAWS
@given(questions())
def test_the_parts_of_a_step_add_up(question: tuple[str, Options]) -> None:
    values = asked("step", *question)
    parts = ("compute", "memory_bound", "communication", "bubble", "optimizer", "overhead")
    assert sum(values[f"step/{part}"] for part in parts) == pytest.approx(values["step/time"])
    assert values["mfu"] <= values["hfu"] * SMALLER


# --- memory --------------------------------------------------------------------------------------------------------


@LAWS
@given(questions())
def test_a_higher_stage_of_zero_keeps_no_more_states(question: tuple[str, Options]) -> None:
    model, options = question
    assume(options["pp"] == "1")
    kept = []
    for stage in "0123":
        found = asked("memory", model, {**options, "zero": stage})
        kept.append([found[f"memory/{part}"] for part in ("parameters", "gradients", "optimizer")])
    for lower, higher in pairwise(kept):
        assert all(b <= a for a, b in zip(lower, higher, strict=True))


@LAWS
@given(questions())
def test_a_wider_format_takes_no_less(question: tuple[str, Options]) -> None:
    model, options = question
    live = [
        asked("memory", model, {**options, "precision": policy})["memory/live"]
        for policy in ("bf16-pure", "bf16-mixed", "fp32")
    ]
    assert live[0] <= min(live[1:])


# --- runs ----------------------------------------------------------------------------------------------------------

runs = st.fixed_dictionaries(
    {
        "params": st.integers(10**6, 10**13),
        "tokens": st.integers(10**6, 10**15),
        "gpus": st.integers(1, 10**6),
        "mfu": st.sampled_from([0.1, 0.25, 0.5, 1.0]),
        "hardware": st.sampled_from(["h100", "a100", "b200"]),
        "price": st.sampled_from([0.5, 2, 3.75]),
    }
)


@LAWS
@given(runs, st.integers(2, 1000))
def test_a_run_scales_exactly(run: dict[str, object], factor: int) -> None:
    options = {name: str(value) for name, value in run.items()}
    one = asked("train-time", "", options)
    for name in ("params", "tokens"):
        scaled = asked("train-time", "", more(options, name, factor))
        for path in ("time", "flops/total", "gpu_hours", "cost", "energy"):
            assert scaled[path] == pytest.approx(factor * one[path], rel=1e-12), (name, path)
    faster = asked("train-time", "", more(options, "gpus", factor))
    assert faster["time"] == pytest.approx(one["time"] / factor, rel=1e-12)
    for path in ("gpu_hours", "cost", "energy"):
        assert faster[path] == pytest.approx(one[path], rel=1e-12), path


@LAWS
@given(runs)
def test_what_is_left_out_is_found_again(run: dict[str, object]) -> None:
    options = {name: str(value) for name, value in run.items()}
    found = asked("train-time", "", options)
    within = {"within": f"{found['time']!r}s"}
    for name in ("params", "tokens", "mfu"):
        rest = {**{key: value for key, value in options.items() if key != name}, **within}
        assert asked("train-time", "", rest)[name] == pytest.approx(float(options[name]), rel=1e-6, abs=1), name
    rest = {**{key: value for key, value in options.items() if key != "gpus"}, **within}
    assert asked("train-time", "", rest)["gpus/exact"] == pytest.approx(float(options["gpus"]), rel=1e-6)


@LAWS
@given(st.integers(1, 10**5), st.sampled_from(["h100", "b200"]), st.sampled_from(["bf16-mixed", "fp32"]))
def test_the_largest_model_grows_with_the_machine(gpus: int, hardware: str, precision: str) -> None:
    options = {"gpus": str(gpus), "hardware": hardware, "precision": precision}
    one, two = (asked("max-params", "", each)["params/max"] for each in (options, more(options, "gpus")))
    assert 0 <= two - 2 * one <= 1


# --- plans ---------------------------------------------------------------------------------------------------------

PLANNED = settings(max_examples=4, deadline=None)
plans = st.fixed_dictionaries(
    {
        "gpus": st.sampled_from([8, 16, 64]),
        "seq": st.sampled_from([1024, 4096]),
        "hardware": st.sampled_from(["h100", "a100"]),
        "global-batch": st.sampled_from([128, 256]),
    }
)
planned = st.sampled_from(["gpt2", "llama3-8b", "phi-2"])


@PLANNED
@given(planned, plans)
def test_the_best_layout_of_more_gpus_is_no_slower(model: str, plan: dict[str, object]) -> None:
    options = {name: str(value) for name, value in plan.items()}
    one, two = asked("plan", model, options), asked("plan", model, more(options, "gpus"))
    assert two["step/time"] <= one["step/time"] * SMALLER


@PLANNED
@given(planned, plans)
def test_the_best_layout_of_a_faster_network_is_no_slower(model: str, plan: dict[str, object]) -> None:
    options = {name: str(value) for name, value in plan.items()}
    slow, fast = (
        asked("plan", model, {**options, "network-bandwidth": rate})["step/time"] for rate in ("10GB/s", "100GB/s")
    )
    assert fast <= slow * SMALLER
