"""What is live at a peak, by hand: sums of gradients, what a recomputed pass holds, weights without a gradient."""

from __future__ import annotations

from napkin.architectures import implementation_of
from napkin.autograd.forward_peaks import forward_peaks
from napkin.autograd.live import replays
from napkin.autograd.tape import Tape
from napkin.counting.params import params
from napkin.footprint import memory
from napkin.footprint.optimizer_buffers import tensor_sizes
from napkin.footprint.prepared import prepare
from napkin.training.layout import Layout
from napkin.training.optimizers import find
from napkin.training.precision import POLICIES
from napkin.training.setup import Setup
from tests.conftest import model_of

TABLE, ROWS = 1000, 10


def lookups(names: tuple[str, ...]) -> Tape:
    """Lookups of `ROWS` bytes in tables of `TABLE` bytes, added up."""
    tape = Tape("fp32")
    made = None
    for name in names:
        ids = tape.new(1, "int64", "ids", no_grad=True)
        row = tape.record("embedding", (ids,), tape.new(ROWS, "fp32", "row"), (ids,), weight=TABLE)
        tape.nodes[-1].of = name
        made = row if made is None else tape.add(made, row)
    return tape


def test_gradients_of_a_table_that_is_read_twice_are_summed() -> None:
    """Two tables' gradients: both live. One table's: both and their sum, and then the sum."""
    ids = 8
    apart, _ = replays(lookups(("x", "y")).nodes, 0)
    twice, freed = replays(lookups(("x", "x")).nodes, 0)
    assert (apart.peak, apart.end) == (2 * TABLE - ids, 2 * TABLE - 2 * ids)
    assert (twice.peak, twice.end) == (3 * TABLE - 2 * ids, TABLE - 2 * ids)
    assert (freed.peak, freed.end) == (3 * TABLE - 2 * ids, -2 * ids)


def test_a_sum_waits_for_the_other_table() -> None:
    """x, y, x, y: the second reader of x waits while y's are added up, and the other way round."""
    found, _ = replays(lookups(("x", "y", "x", "y")).nodes, 0)
    # backward: y, x, y and its sum (4 tables), then x next to both sums (4)
    assert found.peak == 4 * TABLE - 3 * 8
    assert found.end == 2 * TABLE - 4 * 8


def test_a_recomputed_pass_holds_what_is_read_after_the_last_saved_tensor() -> None:
    tape = Tape("fp32")
    x = tape.given(ROWS, "fp32", "given")
    summand = tape.shift(x)
    saved = tape.tanh(x)
    tape.add(summand, saved)
    size = 4 * ROWS
    assert forward_peaks(tape.nodes, ()) == (3 * size, 3 * size, 2 * size)


def test_weights_that_the_loss_does_not_reach_have_neither_gradients_nor_states() -> None:
    """LayoutLM's masked head leaves the pooler of h·(h + 1) parameters unread."""
    h = 32
    fields = {"model_type": "layoutlm", "hidden_size": h, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = model_of({**fields, "intermediate_size": 72, "vocab_size": 97, "max_position_embeddings": 33})
    setup = Setup(
        implementation_of("hf", "layoutlm"), Layout(seq=33), POLICIES["fp32"], find("adamw")[0], "foreach", "flash"
    )
    step = prepare(model, setup)
    rank = memory.rank_of(step, 0)
    trained = int(params(model)["params/total"].value) - h * (h + 1)
    assert rank.gradients == 4 * trained
    assert rank.optimizer == 8 * trained + 4 * 46  # and a counter for each trained tensor
    pooler = [shape for _, shape, _ in tensor_sizes(step) if shape == (h, h)]
    assert len(pooler) == 2 * 4 + 1  # attention of two layers, the head's dense layer; not the pooler


def test_layers_that_share_a_matrix_add_to_one_gradient() -> None:
    """The last layer leaves its gradient; one before makes its own and the sum next to that, and leaves one."""
    tape = Tape("fp32")
    x = tape.given(8, "fp32", "given")
    tape.linear(x, 8, 8)
    (node,) = tape.nodes
    node.of, node.elsewhere = "shared", True
    matrix, row = 8 * 8 * 4, 8 * 4
    last, last_freed = replays(tape.nodes, row)
    assert (last.peak, last.end) == (matrix + row, matrix - row)
    assert last_freed == last  # it waits for the layers before
    earlier, _ = replays(tape.nodes, row, carried=True)
    assert (earlier.peak, earlier.end) == (3 * matrix - row, matrix - row)
