"""What LoRA's pairs keep in Megatron, by hand: of a sequence that ranks divide, and where no gradient comes from."""

from __future__ import annotations

import pytest

from napkin.architectures import implementation_of
from napkin.elementwise import Number
from napkin.footprint.prepared import prepare
from napkin.operations.adapters.targets import resolved
from napkin.operations.tuning import Tuning
from napkin.record import replace
from napkin.training.layout import Layout
from napkin.training.optimizer_names import find
from napkin.training.precision import POLICIES
from napkin.training.setup import Setup

from .conftest import model_of
from .test_adapter_kinds import LLAMA

TOKENS, HIDDEN, RANK = 2 * 64, 48, 4


def saved(targets: str, tp: int, sp: bool, implementation: str = "megatron", divided: bool = True) -> Number:
    """Return the bytes that a layer saves on one of tp ranks for the adapters on these modules."""
    model = model_of(LLAMA)
    layers = implementation_of(implementation, model.family)
    lora = Tuning("lora", RANK, 0.0, library="transformers", divided=divided)
    tuning = resolved(lora, tuple(targets.split(",")), model, layers)
    layout = Layout(seq=64, micro=2, tp=tp, sp=int(sp))
    setup = Setup(replace(layers, tuning=tuning), layout, POLICIES["bf16-pure"], find("adamw")[0], "fused", "flash")
    return prepare(model, setup).run.layers[-1][1].saved


@pytest.mark.parametrize("tp", [2, 4])
@pytest.mark.parametrize(("targets", "inputs", "pairs"), [("q_proj", 1, 1), ("q_proj,k_proj,v_proj,up_proj", 2, 4)])
def test_a_pair_on_a_column_parallel_layer_keeps_the_tokens_of_all_ranks(
    targets: str, inputs: int, pairs: int, tp: int
) -> None:
    """In 16 bits: 2·T·h of each norm's output, whoever reads it, and 2·T·r of each pair, as without sequence
    parallelism, which divides only the other inputs: the stream before both norms, 2·T·h each, and their 4·T of
    statistics; and what attention's norm made for frozen layers is not kept (NVIDIA-NeMo/Megatron-Bridge pull request
    4581)."""
    divided = 2 * (2 * TOKENS * HIDDEN + 4 * TOKENS)
    assert saved(targets, tp, False) - saved(targets, tp, True) == pytest.approx(divided * (1 - 1 / tp))
    assert saved(targets, tp, True) > inputs * 2 * TOKENS * HIDDEN + pairs * 2 * TOKENS * RANK


def test_a_pair_on_a_row_parallel_layer_reads_what_the_layer_before_made() -> None:
    """Down's input holds all tokens and is divided by its width, f = 80: 2·T·f/t and 2·T·r, with sequence parallelism
    or without."""
    for sp in (False, True):
        assert saved("o_proj,down_proj", 2, sp) - saved("o_proj", 2, sp) == 2 * TOKENS * (80 // 2 + RANK)


def test_a_pair_that_is_divided_as_its_layer_reads_a_rank_s_own_tokens() -> None:
    """Next to a column-parallel layer, with sequence parallelism: a norm's output, 2·T·h/t, and what A makes of all
    tokens, 2·T·r, which B reads (mcore-bridge, LoraParallelLinear: TELinear for A, TEColumnParallelLinear for B)."""
    own = saved("q_proj", 2, True, divided=False)
    assert saved("q_proj", 2, True) - own == 2 * TOKENS * HIDDEN / 2
    assert saved("q_proj,up_proj", 2, True, divided=False) - own == 2 * TOKENS * (HIDDEN / 2 + RANK)


def test_the_first_layer_keeps_what_its_pairs_read_where_gradients_are_added_in_place() -> None:
    """No gradient reaches the first layer's input, and a linear layer that adds its weight's gradient to the buffer of
    all makes none: the pair's weights are trained all the same. The layers behind keep the stream, 2·T·h, in addition,
    and so does the first whose gradients are tensors of their own."""
    model = model_of(LLAMA)
    for fuses in (False, True):
        layers = replace(implementation_of("megatron", model.family), fuses_gradients=fuses)
        tuning = resolved(Tuning("lora", RANK, 0.0, library="transformers"), ("q_proj",), model, layers)
        setup = Setup(
            replace(layers, tuning=tuning), Layout(seq=64, micro=2), POLICIES["bf16-pure"], find("adamw")[0], "fused"
        )
        first, other = (section.saved for _, section in prepare(model, setup).run.layers)
        assert other - first == 2 * TOKENS * HIDDEN + 4 * TOKENS
