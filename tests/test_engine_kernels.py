"""What an engine's kernels move between the products: by hand, for a layer of Llama 3 8B."""

from __future__ import annotations

import pytest

from napkin.architectures import build
from napkin.commands.question.named import named_config
from napkin.evidence.serving.words import LLAMA_CPP, VLLM, kernels_of
from napkin.footprint.engine_kernels import (
    FUSED,
    WIDE_CUDA,
    WIDE_METAL,
    EngineKernels,
    activations,
    in_flight,
    widened,
)
from napkin.footprint.served_weights import stored
from napkin.inputs import hardware
from napkin.operations.model import Model
from napkin.record import replace

H, KV, FF, HEADS, LAYERS = 4096, 1024, 14336, 32, 32
ELEMENTWISE = 2 * 2 * H + 2 * (H + KV) + (H + 2 * KV) + 2 * 3 * H + 2 * FF + 3 * FF
"""Elements of a token that two norms, the rotations, the cache, two sums, the activation and the product read and
write."""
PRODUCTS = 6 * H + FF + H + 2 * KV + H + 2 * FF + H
"""Elements of the operands of seven products, q, k, v, o, gate, up and down, and of their results."""


@pytest.fixture(scope="module")
def llama() -> Model:
    return build(named_config("llama3-8b")[0])


def test_fused_kernels_pass_on_16_bits(llama: Model) -> None:
    assert activations(FUSED, llama, 1, 0) == LAYERS * 2 * ELEMENTWISE
    assert activations(FUSED, llama, 10, 1000) == 10 * LAYERS * 2 * ELEMENTWISE


def test_llama_cpp_converts_around_products_and_writes_scores(llama: Model) -> None:
    """In 32 bits twice as much; 6 bytes for each element of an operand or result, 24 for each score."""
    each = LAYERS * (4 * ELEMENTWISE + 6 * PRODUCTS)
    assert activations(WIDE_CUDA, llama, 7, 0) == 7 * each
    assert activations(WIDE_CUDA, llama, 7, 28) == 7 * each + LAYERS * HEADS * 28 * 24
    assert activations(WIDE_METAL, llama, 7, 28) == 7 * LAYERS * 4 * ELEMENTWISE + LAYERS * HEADS * 28 * 16


def test_quantized_weights_were_written_as_16_bits_for_prompts() -> None:
    old = EngineKernels(widens=True)
    q4 = stored("q4_0")
    assert widened(old, q4, 900.0, 512) == pytest.approx(900 + 900 / q4.each * 2)
    assert widened(old, q4, 900.0, 1) == widened(FUSED, q4, 900.0, 512) == widened(old, stored("bf16"), 900.0, 512) == 0


def test_one_host_launches_ahead_as_far_as_the_streams_hold(llama: Model) -> None:
    """On CUDA a layer has 7 products of 3 kernels, attention of 7 and 8 others: 36; of 2 stages each has 16 layers, 576
    kernels, so that 1 + 1,000/576 parts are in flight; at most the copies of the inputs."""
    assert in_flight(WIDE_CUDA, llama, stored("bf16"), 8, 16) == 4
    assert in_flight(WIDE_CUDA, llama, stored("bf16"), 2, 16) == 2
    large = build(named_config("llama3-70b")[0])
    assert in_flight(WIDE_CUDA, large, stored("bf16"), 2, 16) == pytest.approx(1 + 1000 / (40 * 36))
    old = replace(WIDE_CUDA, widens=True)
    assert in_flight(old, large, stored("q4_0"), 2, 16) == pytest.approx(1 + 1000 / (40 * 43))
    for kernels, weights in ((WIDE_CUDA, "q4_0"), (old, "bf16")):  # nothing is widened, or wide already
        assert in_flight(kernels, large, stored(weights), 2, 16) == pytest.approx(1 + 1000 / (40 * 36))
    assert in_flight(FUSED, large, stored("bf16"), 8, 16) == 8
    assert in_flight(WIDE_CUDA, large, stored("bf16"), 4, 1) == 1


@pytest.mark.parametrize(
    ("said", "scores", "widens"),
    [("May 2024", 24, True), ("b2800", 24, True), ("b4000", 24, False), ("2025 -fa 1", 0, False), ("", 24, False)],
)
def test_the_version_says_which_kernels_ran(said: str, scores: int, widens: bool) -> None:
    found = kernels_of(LLAMA_CPP, said, hardware.find("4090"))
    assert (found.scores, found.widens) == (scores, widens)
    assert not kernels_of(LLAMA_CPP, said, hardware.find("M1 Max")).widens
    assert kernels_of(VLLM, said, hardware.find("4090")) == FUSED
