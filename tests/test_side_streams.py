"""Streams next to the residual stream: what variables hold of them forward, and whose gradients wait backward."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.architectures import implementation_of
from napkin.autograd.live import replays
from napkin.autograd.tape import Tape
from napkin.footprint.prepared import prepare
from napkin.operations.model import Beside
from napkin.training.layout import Layout
from napkin.training.optimizer_names import find
from napkin.training.precision import POLICIES
from napkin.training.setup import Setup
from tests.conftest import model_of

WIDTH = 8


def sides(fields: dict[str, Any]) -> list[Beside]:
    """The streams next to each run of layers, in order."""
    return [layer.beside for _, layer in model_of(fields).stacks[0].runs if layer.block]


def hrm(**more: Any) -> dict[str, Any]:
    return {
        "model_type": "hrm_text", "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "head_dim": 8,
        "num_hidden_layers": 1, "vocab_size": 100, **more,
    }  # fmt: skip


def test_a_state_waits_between_its_first_and_its_last_reader() -> None:
    """Passes low 1, high 2, low 3, high 4. The embeddings are the first high state, read by 1 and 2; low 1's state is
    read by 2 and 3; high 2's by 3 and 4; low 3's by 4 alone."""
    found = sides(hrm(H_cycles=2, L_cycles=1))
    assert [one.waits for one in found] == [1, 1, 1, 0]
    assert [one.held for one in found] == [1, 1, 2, 2]


def test_no_gradient_of_a_state_waits_across_passes_without_one() -> None:
    """Low passes 1 and 2 of three, high 3, then, after two without a gradient, low 4 and high 5."""
    found = sides(hrm(H_cycles=2, L_cycles=3, L_bp_cycles=[2, 1]))
    assert [one.waits for one in found] == [1, 1, 0, 1, 0]


@pytest.mark.parametrize(("loops", "waits"), [(1, [0]), (3, [1, 1, 0])])
def test_what_a_loop_starts_from_waits_until_its_first_pass(loops: int, waits: list[int]) -> None:
    fields = {
        "model_type": "dory", "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "head_dim": 8,
        "num_key_value_heads": 2, "vocab_size": 100, "num_hidden_layers": 3, "n_input_layers": 1, "n_output_layers": 1,
        "n_recurrent_loops": loops, "layer_types": ["full_attention"] * 3, "sliding_window": 16,
    }  # fmt: skip
    found = sides(fields)
    assert [one.waits for one in found] == [0, *waits, 0]
    assert [one.held for one in found] == [0, *[1] * loops, 1]


def test_a_gradient_that_waits_is_as_large_as_the_stream() -> None:
    """Three of four passes have a stream of 3 · 24 · 32 elements in fp32 to wait for."""
    setup = Setup(
        implementation_of("hf", "hrm_text"),
        Layout(seq=24, micro=3),
        POLICIES["fp32"],
        find("adamw")[0],
        "foreach",
        "eager",
    )
    step = prepare(model_of(hrm(H_cycles=2, L_cycles=1)), setup)
    assert sorted(section.waits for _, section in step.run.layers)[-4:] == [0, *[4 * 3 * 24 * 32] * 3]


@pytest.mark.parametrize(("waits", "peak", "end"), [(False, 0, 0), (True, 2, 1)])
def test_a_gradient_that_waits_is_added_to(waits: bool, peak: int, end: int) -> None:
    """A sum hands its gradient on to both streams. Where later layers have left one of the second stream, their sum is
    a third tensor next to both, of which one is left beside the gradient that was handed on."""
    tape = Tape("bf16")
    first, second = tape.given(WIDTH, "bf16", "x"), tape.given(WIDTH, "bf16", "stream")
    total = tape.add(first, second)
    made, _ = replays(tape.nodes, total.size, waiting=(second,) if waits else ())
    assert (made.peak, made.end) == (peak * total.size, end * total.size)


def test_a_sum_of_rows_hands_its_gradient_on_in_a_view() -> None:
    """The mean divides it in a tensor of the rows' size, the sum does not."""
    sizes = []
    for reduce in (Tape.mean, Tape.sum):
        tape = Tape("fp32")
        x = tape.given(4 * WIDTH, "fp32", "x")
        out = reduce(tape, x, 4)
        sizes.append(replays(tape.nodes, out.size)[0].end)
    assert sizes == [4 * WIDTH * 4 - 4 * 4, 0]
