"""The tree of terms of a rank's memory: what each bucket is the sum of, and what offloading keeps and moves.

The small decoders are those of test_states_by_hand.py."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.footprint.buckets import hosted, tree
from napkin.footprint.memory import rank_of
from napkin.planning.enlarge import with_layers
from napkin.record import replace
from napkin.term import Term
from napkin.training.precision import precision
from napkin.training.recomputation import Recompute
from tests.conftest import Napkin, model
from tests.test_states_by_hand import (
    DENSE,
    LAYER,
    LLAMA,
    TABLE,
    TENSORS,
    WHOLE,
    F,
    H,
    L,
    S,
    step_of,
)


def terms(*named: Any, index: int = 0, **changes: Any) -> dict[str, Term]:
    step = step_of(*(named or (DENSE,)), **changes)
    return tree(step, rank_of(step, index), "a source")


def leaves(term: Term) -> dict[str, float]:
    """The values that a term is computed from, by name."""
    return {one.name: float(one.value) for one in term.walk() if not one.parts}


# --- weights and states ---

STATES = ("exp_avg", "exp_avg_sq", "master")
HELD = ("parameters", "gradients", *(f"optimizer/{name}" for name in STATES))


def test_parameters_are_a_sum_of_weights_times_bytes() -> None:
    """Each section once, the layers by how many there are, over the ranks that shard them."""
    found = terms()
    for name, width in (("parameters", 2), ("gradients", 2), *((name, 4) for name in HELD[2:])):
        one = found[f"memory/{name}"]
        assert one.op == "product"
        assert one.value == width * WHOLE
        (held,) = (node for node in one.walk() if node.name == "weights_held")
        assert [float(part.value) for part in held.parts] == [TABLE, L * LAYER, TABLE + H]
        assert float(one.parts[1].value) == width
    assert found["memory/optimizer"].value == 12 * WHOLE + 4 * TENSORS
    sharded = terms(DENSE, dp=4, zero=3)
    for name in HELD:
        assert sharded[f"memory/{name}"].op == "ceil_quotient"
        assert sharded[f"memory/{name}"].value == found[f"memory/{name}"].value / 4
    for zero, divided in ((0, 0), (1, 3), (2, 4)):
        found = terms(DENSE, dp=4, zero=zero)
        ops = [found[f"memory/{name}"].op for name in HELD]
        assert ops.count("ceil_quotient") == divided


def test_states_have_the_bytes_of_their_own_format() -> None:
    step = step_of()
    policy = precision("param=bf16,grad=bf16,compute=bf16,state=bf16,master=fp32")
    setup = replace(step.setup, precision=policy)
    found = tree(step.under(setup), rank_of(step.under(setup), 0), "a source")
    for name, width in (("exp_avg", 2), ("exp_avg_sq", 2), ("master", 4)):
        assert found[f"memory/optimizer/{name}"].op == "product"
        assert found[f"memory/optimizer/{name}"].parts[1].value == width


def test_tensor_parallel_ranks_hold_parts_of_each_weight() -> None:
    """Norms whole, all else halved."""
    found = terms(DENSE, tp=2)["memory/parameters"]
    norms = (2 * L + 1) * H
    assert found.op == "product"
    assert found.value == 2 * ((WHOLE - norms) / 2 + norms)


# --- activations ---


def test_what_is_saved_is_a_sum_by_layer_and_operation() -> None:
    """Layers, what precedes and follows them, and what all layers share, once."""
    step = step_of(policy="fp32")
    found = tree(step, rank_of(step, 0), "a source")
    saved = found["memory/activations/saved"]
    assert saved.op == "sum"
    names = [part.name for part in saved.parts]
    (of_layers,) = (part for part in saved.parts if part.name.endswith("/layers"))
    assert of_layers.parts[0].value == L
    # SwiGLU's product and its factors: three tensors of T·F in fp32, and the input of the norm T·H
    assert max(leaves(of_layers).values()) >= 4 * S * F
    assert not any("checkpoint" in name for name in names)


def test_checkpointed_layers_keep_their_inputs() -> None:
    """T·h elements each; every second of four; groups of two keep two inputs."""
    for how, layers, inputs in (
        (Recompute("full"), 0, L), (Recompute("every", 2), L // 2, L // 2), (Recompute("group", 2), 0, L // 2)
    ):  # fmt: skip
        saved = terms(DENSE, policy="fp32", recompute=how)["memory/activations/saved"]
        assert saved.op == "sum"
        parts = {part.name: part for part in saved.parts}
        assert parts["checkpoints"].value == inputs * 4 * S * H
        of_layers = [part for name, part in parts.items() if name.endswith("/layers")]
        assert [part.parts[0].value for part in of_layers] == ([layers] if layers else [])


def test_micro_batches_in_flight() -> None:
    """GPipe: all of them; before the last stage of 1F1B, which keeps no head: two; with chunks, the others' in whole
    bytes."""
    piped = terms(DENSE, micro_batches=4, schedule="gpipe")
    assert piped["memory/activations"].op == "product"
    assert piped["memory/activations"].value == 4 * piped["memory/activations/saved"].value
    found = terms(DENSE, pp=2, micro_batches=4)
    assert found["memory/activations"].op == "product"
    assert found["memory/activations"].value == 2 * found["memory/activations/saved"].value
    chunked = terms(DENSE, pp=2, vp=2, micro_batches=4)
    assert chunked["memory/activations"].op == "sum"
    saved = chunked["memory/activations/saved"].value
    assert chunked["memory/activations"].value == saved + -(-saved * (5 - 2) // 2)  # 2(2 − 1) + 2 + 1 chunks of two
    late = terms(DENSE, index=1, pp=2, micro_batches=4, schedule="zero-bubble")["memory/activations"]
    assert late.op == "sum"
    assert [part.name for part in late.parts][-1] == "weight_gradients_to_make"


def test_moments_are_the_sums_of_their_buckets() -> None:
    """Each bucket of a moment once, and the largest moment is what is live."""
    found = terms(DENSE, "fsdp", dp=4, zero=3, micro_batches=2)
    moments = [name for name in found if name.startswith("memory/at/") and name.count("/") == 2]
    assert {name.rpartition("/")[2] for name in moments} == {"forward", "loss", "backward", "step"}
    for name in moments:
        parts = [
            float(one.value) for path, one in found.items() if path.startswith(f"{name}/") and path.count("/") == 3
        ]
        assert len(parts) == 7
        assert sum(parts) == found[name].value
    assert found["memory/live"].value == max(float(found[name].value) for name in moments)
    peak = max(moments, key=lambda name: float(found[name].value))
    assert found["memory/temporaries"].value == found[f"{peak}/temporaries"].value


# --- offloading ---


def test_offloaded_states_are_on_the_host() -> None:
    """Adam's 12 bytes over the ranks; gradients down and weights up."""
    step = step_of(DENSE, dp=4, zero=1, offload=("optimizer",))
    found = {term.name: term.value for term in hosted(step, rank_of(step, 0))}
    assert found == {"memory/host/optimizer": 3 * -(-4 * WHOLE // 4) + TENSORS, "offload/bytes": 4 * WHOLE / 4}


def test_offloaded_parameters_are_on_the_host_with_their_gradients() -> None:
    step = step_of(DENSE, dp=4, zero=3, offload=("parameters", "optimizer"), micro_batches=2)
    found = {term.name: term.value for term in hosted(step, rank_of(step, 0))}
    assert found["memory/host/parameters"] == found["memory/host/gradients"] == 2 * WHOLE / 4
    assert found["offload/bytes"] == 2 * (2 * 2 + 2) * WHOLE / 4


@pytest.mark.parametrize(("how", "transit"), [(Recompute("none"), 2), (Recompute("full"), 5)])
def test_offloaded_activations_leave_the_layers_in_transit(how: Recompute, transit: int) -> None:
    """Of eight layers two stay, one being written and one being read, or five checkpoints; the others go down and come
    up in each of three micro-batches."""
    eight = with_layers(DENSE, 8)
    here, there = (step_of(eight, recompute=how, micro_batches=3, offload=o) for o in ((), ("activations",)))
    whole, part = (rank_of(step, 0) for step in (here, there))
    section = here.run.layers[0][1]
    each = section.input if transit == 5 else section.saved
    assert whole.saved - part.saved == (8 - transit) * each
    found = {term.name: term.value for term in hosted(there, part)}
    assert found == {"memory/host/activations": (8 - transit) * each, "offload/bytes": 2 * 3 * (8 - transit) * each}


def test_nothing_is_on_the_host_without_offloading() -> None:
    step = step_of()
    assert hosted(step, rank_of(step, 0)) == []


def test_an_average_of_the_weights_stays_where_states_are_offloaded() -> None:
    """No part of the optimizer: Adam's 12 bytes go, 4 for each parameter stay."""
    step = step_of(DENSE, offload=("optimizer",), ema=True)
    found = rank_of(step, 0)
    assert found.optimizer == 4 * WHOLE
    assert {term.name: term.value for term in hosted(step, found)}["memory/host/optimizer"] == 12 * WHOLE + 4 * TENSORS


def test_a_tied_head_has_its_norm_alone() -> None:
    """Its matrix is the embedding's: the sum has embedding, layers and a norm, and is exact."""
    tied = step_of(model(**LLAMA, tie_word_embeddings=True))
    found = tree(tied, rank_of(tied, 0), "a source")["memory/parameters"]
    assert found.op == "product"
    (held,) = (node for node in found.walk() if node.name == "weights_held")
    assert [float(part.value) for part in held.parts] == [TABLE, L * LAYER, H]


def test_experts_and_what_stands_beside_them_are_divided_by_their_own_ranks(napkin: Napkin) -> None:
    line = "memory mixtral-8x7b --gpus 64 --ep 8 --zero 1 --hardware h100 --explain --json"
    found = napkin(line).data["terms"]
    # 32 layers of 8 experts of 3 × 4,096 × 14,336 weights, on 8 ranks; the rest of 46,702,792,704 is on each
    experts = 32 * 8 * 3 * 4096 * 14336
    dense = 46_702_792_704 - experts
    assert found["experts_held"]["value"] == experts // 8
    assert found["weights_held"]["value"] == dense
    assert found["memory/parameters/experts"]["value"] == 2 * experts // 8
    # 64 ranks share the dense states, 64 / 8 those of an expert
    assert found["memory/optimizer/exp_avg/dense"]["value"] == 4 * dense // 64
    assert found["memory/optimizer/exp_avg/experts"]["value"] == 4 * (experts // 8) // 8


def test_frozen_weights_are_shown_as_they_are_stored(napkin: Napkin) -> None:
    line = (
        "memory llama3-70b --quantized nf4 --lora-rank 16 --task sft --gpus 16 --hardware 4090 --zero 3 "
        "--recompute full --explain --json"
    )
    found = napkin(line).data["terms"]
    linear = 8192 * (8192 + 1024 + 1024) + 8192 * 8192 + 3 * 8192 * 28672
    norms = 2 * 8192
    layer, head = linear // 2 + 2 * norms, 2 * 8192 * 128256
    adapters = 80 * 16 * (2 * (8192 + 8192) + 2 * (8192 + 1024) + 3 * (8192 + 28672))
    assert found["memory/parameters/frozen/layers/decoder"]["value"] == layer
    assert found["weights_held"]["value"] == adapters
    # one fp32 scale for 64 weights, whole on each rank; the rest by 16 ranks
    assert found["memory/parameters/scales"]["value"] == 80 * linear * 4 // 64
    whole = 80 * layer + 2 * head + 2 * 8192 + 2 * adapters
    assert found["memory/parameters/dense"]["value"] == -(-whole // 16)


@pytest.mark.parametrize(
    "line",
    [
        "llama3-8b --gpus 8 --zero 3",
        "mixtral-8x7b --gpus 64 --ep 8 --zero 2",
        "deepseek-v3 --gpus 512 --ep 32 --zero 3",
        "llama3-8b --task sft --lora-rank 8 --quantized int8 --modules-to-save lm_head",
        "llama3-8b --task sft --lora-rank 8 --precision amp-bf16",
        "qwen2.5-vl-7b --freeze vision",
        "llama3-8b --freeze-layers 10 --gpus 4 --zero 3",
    ],
)
def test_no_weight_is_a_number_without_a_formula(napkin: Napkin, line: str) -> None:
    found = napkin(f"memory {line} --hardware h100 --explain --json").data["terms"]
    states = [path for path in found if path.startswith("memory/optimizer/") and path.count("/") == 2]
    assert len(states) > 2
    for path in ("memory/parameters", "memory/gradients", *states):
        assert "op" in found[path] or path == "memory/optimizer/step", path
