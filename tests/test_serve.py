"""`napkin serve`: memory, rates, price and inversions, against published rows and arithmetic by hand."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.commands.optimal.published import serving_rate
from napkin.planning.engines import ENGINES, room, weights_on
from napkin.term import constant
from tests.conftest import run_line
from tests.test_generation import setup

CARD = constant("c", 80e9, "byte")
LLAMA = 2 * 8_030_261_248


def answered(line: str) -> dict[str, Any]:
    found: dict[str, Any] = run_line(f"serve {line} --json").data
    return found


@pytest.mark.parametrize(
    ("line", "path", "measured"),
    [
        # TensorRT-LLM 0.6.1, docs/source/performance.md at 138f96d45f, H100 GPUs (FP8)
        (
            "llama2-7b --hardware h100 --dtype fp8 --cache-dtype fp8 --engine tensorrt-llm --batch 112"
            " --isl 128 --osl 2048",
            "serve/output_tokens_per_second",
            6818,
        ),
        # gpt-fast, README.md: batch 1, five tokens of a prompt, int8 on an A100
        (
            "llama2-7b --hardware a100-sxm-80gb --engine gpt-fast --isl 5 --osl 200 --dtype int8",
            "serve/tpot",
            1 / 155.58,
        ),
        # GPU-Benchmarks-on-LLM-Inference, README.md: RTX 4090, tg 1024
        (
            "llama3-8b --hardware 4090 --engine llama.cpp --dtype q4_k_m --isl 1 --osl 1024",
            "serve/tpot",
            1 / 127.74,
        ),
    ],
)
def test_published_rows_lie_in_the_interval(line: str, path: str, measured: float) -> None:
    found = answered(line)
    assert found["low"][path] < measured < found["high"][path]
    assert found["values"][path] == pytest.approx(measured, rel=0.35)


def test_memory_and_price_by_hand() -> None:
    """Llama 3 8B: 131,072 bytes of cache a token; 4 sequences of 300 tokens at USD 3 an hour."""
    found = answered("llama3-8b --hardware h100 --batch 4 --input-len 200 --output-len 100 --price 3")
    values = found["values"]
    assert values["memory/parameters"] == LLAMA
    assert values["memory/kv_cache"] == 4 * 300 * 131_072
    assert values["serve/kv_cache/per_token"] == 131_072
    rate = values["serve/output_tokens_per_second"]
    assert values["serve/cost_per_million_output_tokens"] == pytest.approx(3 / 3600 / rate * 1e6)
    cycle = values["serve/ttft"] + 99 * values["serve/tpot"]
    assert rate == pytest.approx(400 / cycle)
    assert values["serve/total_tokens_per_second"] == pytest.approx(3 * rate)
    assert found["verdict"] == "fits"


def test_engines_leave_what_their_rule_says() -> None:
    """80 GB, 2 GiB besides weights: 0.9 of all, 0.88 static, 0.9 of what is free."""
    one = setup("llama3-8b")
    left = {name: float(room(engine, one, CARD).cache.value) for name, engine in ENGINES.items()}
    assert left["vllm"] == pytest.approx(0.9 * 80e9 - LLAMA - 2 * 2**30)
    assert left["sglang"] == pytest.approx(0.88 * 80e9 - LLAMA)
    assert left["tensorrt-llm"] == pytest.approx(0.9 * (80e9 - LLAMA - 2 * 2**30))
    assert float(room(ENGINES["vllm"], one, CARD, 0.5).cache.value) == pytest.approx(40e9 - LLAMA - 2 * 2**30)


def test_weights_over_stages_and_experts() -> None:
    """Llama 3 8B in two stages: 16 layers and the embedding or the head. Mixtral's experts over 8 GPUs: an eighth."""
    table = 2 * 128_256 * 4096
    assert float(weights_on(setup("llama3-8b", pp=2)).value) == pytest.approx((LLAMA - 2 * table) / 2 + table, rel=1e-5)
    experts = 2 * 32 * 8 * 3 * 4096 * 14336
    whole = float(weights_on(setup("mixtral-8x7b")).value)
    assert float(weights_on(setup("mixtral-8x7b", ep=8, dp=8)).value) == pytest.approx(whole - experts * 7 / 8)


def test_the_largest_batch_is_the_largest_that_fits() -> None:
    line = "llama3-8b --gpus 1 --hardware h100 --prompt-tokens 2000 --response-tokens 500"
    found = answered(f"{line} --max batch")
    batch = found["inputs"]["batch"]["value"]
    assert found["verdict"] == "fits"
    assert answered(f"{line} --batch {batch + 1}")["verdict"] != "fits"
    bounded = answered(f"{line} --max batch --max-tpot 15ms")
    several = bounded["inputs"]["batch"]["value"]
    assert 1 < several < batch
    assert bounded["values"]["serve/tpot"] <= 0.015
    assert answered(f"{line} --batch {several + 1}")["values"]["serve/tpot"] > 0.015


def test_a_bound_alone_asks_for_the_most_requests_in_flight() -> None:
    line = "llama3-8b --gpus 1 --hardware h100 --prompt-tokens 2000 --response-tokens 500"
    found = answered(f"{line} --max-tpot 30ms --max-ttft 300ms")
    many = found["inputs"]["concurrency"]["value"]
    assert many == found["values"]["serve/in_flight"] > 1
    assert found["values"]["serve/tpot"] <= 0.030
    assert found["values"]["serve/ttft"] <= 0.300
    one_more = answered(f"{line} --concurrency {many + 1}")["values"]
    assert one_more["serve/tpot"] > 0.030 or one_more["serve/ttft"] > 0.300
    assert answered(f"{line} --max concurrency")["inputs"]["concurrency"]["value"] > many


def test_a_request_beyond_the_models_positions_gets_a_note() -> None:
    """GPT-2 has 1,024 positions: half of them for a prompt, half for the answer."""
    inputs = answered("gpt2 --hardware t4")["inputs"]
    assert (inputs["prompt-tokens"]["value"], inputs["response-tokens"]["value"]) == (512, 512)
    beyond = "1,025 tokens of a request are beyond the model's 1,024 positions"
    assert beyond in answered("gpt2 --hardware t4 --isl 513")["notes"]
    assert "beyond gpt2's 1,024 positions" in run_line("serve gpt2 --hardware t4 --isl 513").out


def test_apples_chips_run_llama_cpp() -> None:
    found = answered("llama3-8b --hardware m3-max --dtype q4_k_m")
    assert found["inputs"]["engine"]["value"] == "llama.cpp"
    assert "llama.cpp" in run_line("serve llama3-8b --hardware m3-max --dtype q4_k_m").out


def test_check_holds_a_service_against_limits(tmp_path: Any) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(
        "command: serve\nmodel: llama3-8b\nhardware: h100\nconcurrency: 32\n"
        "limits:\n  verdict: fits\n  serve/tpot: '<= 1s'\n  serve/cost_per_million_output_tokens: '<= 0.001'\n"
    )
    outcome = run_line(f"check {file} --json")
    assert outcome.status == 1
    status = {one["path"]: one["status"] for one in outcome.data["checks"]}
    assert status == {
        "verdict": "holds",
        "serve/tpot": "holds",
        "serve/cost_per_million_output_tokens": "broken",
    }


def test_compare_explains_rate_pace_and_cost() -> None:
    line = "compare serve llama3-8b --hardware h100 --concurrency 64 --against hardware=h200,cache-dtype=fp8 --json"
    found: Any = run_line(line).data
    rate = "serve/output_tokens_per_second"
    assert list(found["columns"]) == [rate, "serve/tpot", "serve/cost_per_million_output_tokens"]
    ends = next(one for one in found["quantities"] if one["path"] == rate)
    assert sum(row[rate] for row in found["rows"]) == pytest.approx(ends["b"] - ends["a"])


def test_without_gpus_it_takes_the_fewest() -> None:
    """Llama 3 70B is 141 GB: of two cards of 80 GB an engine leaves 0.9, three hold it in stages."""
    found = answered("llama3-70b --hardware h100 --batch 16")
    gpus = found["inputs"]["gpus"]
    assert (gpus["value"], gpus["origin"]) == (3, "solved")
    assert found["inputs"]["pp"]["value"] == 3
    assert answered("llama3-70b --hardware h100 --batch 16 --gpus 2")["verdict"] != "fits"


def test_requests_that_have_no_room_wait() -> None:
    found = answered(
        "llama3-8b --gpus 1 --hardware 4090 --dtype fp8 --concurrency 500 --prompt-tokens 900 --response-tokens 100"
    )
    values = found["values"]
    assert values["serve/in_flight"] == values["serve/max_batch"] < 500
    assert values["serve/requests_per_second"] * values["serve/request"] == pytest.approx(500)


@pytest.mark.parametrize(
    ("line", "status", "says"),
    [
        ("llama3-8b --hardware h100 --batch 4 --concurrency 8", 2, "cannot be combined"),
        ("llama3-8b --hardware h100 --batch 4 --max batch", 2, "--max batch asks for what --batch gives"),
        ("llama3-8b --hardware h100 --max-tpot 1us", 1, "a single request takes at best"),
        ("llama3-8b --hardware mi300x --engine tensorrt-llm", 3, "runs on GPUs of NVIDIA"),
        ("llama3-8b --hardware h100 --ep 2 --gpus 2", 2, "has no experts"),
        ("llama3-8b --hardware h100 --tp 3", 2, "does not divide"),
        ("llama3-8b --hardware h100 --gpus 4 --tp 2 --dp 4", 2, "contradiction"),
        ("llama3-8b --hardware h100 --engine vlm", 2, "no engine is called"),
        ("llama3-70b --hardware h100 --gpus 1 --must-fit", 1, ""),
        ("bert-base-uncased --hardware h100", 3, "generates no tokens"),
        ("llama3-8b", 2, "which accelerator serves it"),
    ],
)
def test_what_is_refused(line: str, status: int, says: str) -> None:
    outcome = run_line(f"serve {line}")
    assert outcome.status == status
    assert says in outcome.err


def test_what_to_train_says_what_serving_it_gives() -> None:
    found = serving_rate("h100-sxm-80gb", "llama3-8b", None)
    assert found is not None
    asked = answered(found.command.removeprefix("napkin serve "))
    assert asked["values"]["serve/output_tokens_per_second"] == pytest.approx(found.rate)
    assert asked["values"]["serve/tpot"] <= 0.05
