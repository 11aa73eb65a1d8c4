"""Memory of encoders, by hand: what attention next to a convolution keeps, and the order of registered tensors."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.architectures import implementation_of
from napkin.footprint import memory
from napkin.footprint.optimizer_buffers import tensor_sizes
from napkin.footprint.prepared import PreparedStep, prepare
from napkin.training.layout import Layout
from napkin.training.optimizer_names import find
from napkin.training.precision import POLICIES
from napkin.training.setup import Setup
from tests.conftest import model_of, run_line

LAYERS, A, H, S = 3, 4, 32, 24
SIZES = {
    "hidden_size": H, "num_hidden_layers": LAYERS, "num_attention_heads": A, "intermediate_size": 40, "vocab_size": 50,
    "max_position_embeddings": 70, "hidden_act": "relu",
}  # fmt: skip


def step(model_type: str, sequences: int, policy: str = "bf16-pure", dropout: float = 0.0, **more: Any) -> PreparedStep:
    model = model_of({"model_type": model_type, **SIZES, **more})
    code = implementation_of("hf", model_type)
    layout = Layout(seq=S, micro=sequences)
    return prepare(model, Setup(code, layout, POLICIES[policy], find("adamw")[0], "forloop", "eager", dropout))


def saved(*asked: Any, **more: Any) -> tuple[int, int]:
    rank = memory.rank_of(step(*asked, **more), 0)
    return int(rank.saved), int(rank.casts)


@pytest.mark.parametrize(("sequences", "policy"), [(1, "bf16-pure"), (2, "bf16-pure"), (2, "amp-bf16")])
def test_a_convolution_keeps_the_values_as_they_were_projected(sequences: int, policy: str) -> None:
    """Of several sequences, the product has a copy of them by heads; autocast keeps a copy of the kernels: 5 each."""
    with_it, casts = saved("nystromformer", sequences, policy, conv_kernel_size=5)
    without, fewer = saved("nystromformer", sequences, policy, conv_kernel_size=None)
    assert with_it - without == LAYERS * sequences * S * H * 2 * (sequences > 1)
    assert casts - fewer == LAYERS * A * 5 * 2 * (policy == "amp-bf16")


def test_weights_of_attention_that_nothing_drops_are_kept_once() -> None:
    """BERT keeps a mask of one byte and the weights that are left, and ids of segments, which are a buffer here."""
    bert, _ = saved("bert", 2, dropout=0.1)
    here, _ = saved("nystromformer", 2, dropout=0.1, conv_kernel_size=None)
    assert bert - here == LAYERS * 2 * A * S * S * (1 + 2) + 8 * S


def test_attention_that_is_approximated_says_nothing_of_bytes() -> None:
    for tokens, exact in ((64, True), (512, False)):
        model = model_of({"model_type": "nystromformer", **SIZES, "segment_means_seq_len": tokens})
        assert all(op.depends_on_shapes(S) for op in model.operations) is exact
        assert any("approximates" in note for note in model.notes) is not exact


@pytest.mark.parametrize(
    ("model_type", "rows", "more"),
    [
        ("bert", [50, 70, 3], {}),
        ("nystromformer", [50, 72, 3], {}),
        ("roberta", [50, 3, 70], {}),
        ("mobilebert", [50, 70, 3], {"embedding_size": H, "intra_bottleneck_size": 8}),
    ],
)
def test_tables_are_updated_in_the_order_in_which_classes_register_them(
    model_type: str, rows: list[int], more: dict[str, Any]
) -> None:
    """BERT's segments run before positions and are registered after them, RoBERTa's before. MobileBERT projects tokens
    first, by a layer that is registered after all tables."""
    sizes = [shape for _, shape, _ in tensor_sizes(step(model_type, 1, type_vocab_size=3, **more))]
    assert sizes[:3] == [(count, H) for count in rows]


@pytest.mark.parametrize("line", ["--target-seq 128", "--recompute full", "--max-micro-batch 4 --max-zero 3"])
def test_a_plan_of_t5_has_memory_s_bytes(line: str) -> None:
    """The zeros in place of position biases, of layouts with different micro-batches at once."""
    rows = run_line(f"plan t5-base --gpus 8 --hardware a100 --seq 512 --rows 8 {line} --json").data["rows"]
    assert rows
    for row in rows:
        step = run_line(f"{row['command'].removeprefix('napkin ')} --json").values
        assert row["memory"] == pytest.approx(step["memory/total"], rel=1e-9)
