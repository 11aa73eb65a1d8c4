"""What Python code refers to and autograd does not keep, gathered frozen weights, and caches of two stacks, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.footprint import kv_cache
from napkin.footprint.engine_kernels import COPIES, FUSED, kernels_today
from napkin.footprint.gathers import gathered_bytes
from napkin.footprint.memory import parts_of, rank_of
from napkin.footprint.prepared import PreparedStep, prepare
from napkin.operations.model import Model
from napkin.operations.tuning import Tuning
from napkin.record import replace
from tests.conftest import model
from tests.test_pipeline_by_hand import windowed
from tests.test_states_by_hand import (
    DENSE,
    ENDS,
    HEADS,
    KV,
    LAYER,
    LLAMA,
    D,
    F,
    H,
    S,
    V,
    setup_of,
)


def refers(*words: str, of: Model = DENSE, **changes: Any) -> PreparedStep:
    """A step whose checkpoints refer to these."""
    setup = setup_of(of, **changes)
    return prepare(of, replace(setup, implementation=replace(setup.implementation, closure=words)))


@pytest.mark.parametrize("micro", [1, 3])
def test_positions_that_checkpoints_refer_to(micro: int) -> None:
    """Eight bytes each for every token of a sequence, or of each sequence; distances where scores have them."""
    assert refers(micro=micro).run.closure == 0
    assert refers("ids", micro=micro).run.closure == 8 * S
    assert refers("each ids", micro=micro).run.closure == 8 * S * micro
    assert refers("ids", "each ids", "distances", "alibi", micro=micro).run.closure == 8 * S * (1 + micro)


def test_slopes_of_alibi() -> None:
    """A row of 16-bit biases for each head of each sequence."""
    bloom = model(model_type="bloom", hidden_size=H, n_layer=2, n_head=HEADS, vocab_size=V)
    found = [refers(*words, of=bloom, micro=2).run.closure for words in ((), ("alibi",))]
    assert found == [0, 2 * HEADS * S * 2]
    wide = refers("alibi", of=bloom, micro=2, policy="amp-bf16").run.closure
    assert wide == 2 * HEADS * S * 4


def masks(*words: str, of: Model = DENSE, attention: str = "flash", **changes: Any) -> list[dict[object, Any]]:
    setup = setup_of(of, **changes)
    setup = replace(setup, attention=attention, implementation=replace(setup.implementation, closure=words))
    return [dict(section.masks) for _, section in prepare(of, setup).run.layers]


def test_masks_that_attention_reads() -> None:
    """Eager: one of 16 bits for each sequence, or one for each window; a kernel's is boolean and of windows alone."""
    assert masks() == masks("mask", attention="flash") == [{}]
    assert [list(one.values()) for one in masks("mask", attention="eager", micro=3)] == [[3 * S * S * 2]]
    assert masks(attention="eager") == [{}]
    both = masks("masks", of=windowed("wf"), attention="eager", micro=3)
    assert [list(one.values()) for one in both] == [[3 * S * S * 2]] * 2
    assert len({key for one in both for key in one}) == 2
    shared = masks("mask", of=windowed("wf"), attention="eager")
    assert len({key for one in shared for key in one}) == 1
    kernel = masks("masks", of=windowed("wf"), micro=3)
    assert sorted(sum(one.values()) for one in kernel) == [0, S * S]


# --- gathered frozen weights ---

LORA = Tuning("lora", 4, 0.0)
PAIRS = sum(4 * (i + o) for i, o in ((H, HEADS * D), (H, KV * D), (H, KV * D), (HEADS * D, H), (H, F), (H, F), (F, H)))


@pytest.mark.parametrize(
    ("framework", "policy", "each"), [("plain", "bf16-pure", 2), ("plain", "fp32", 4), ("fsdp", "bf16-mixed", 2)]
)
def test_frozen_weights_are_gathered_next_to_adapters(framework: str, policy: str, each: int) -> None:
    """Both in the type that is computed in: embedding and head, and two blocks with their pairs."""
    setup = setup_of(DENSE, framework, policy, dp=4, zero=3)
    step = prepare(DENSE, replace(setup, implementation=replace(setup.implementation, tuning=LORA)))
    found = rank_of(step, 0)
    parts = parts_of(step, found.stage)
    assert gathered_bytes(step, found.stage, parts) == each * (sum(ENDS) + 2 * (LAYER + PAIRS))
    assert gathered_bytes(step, found.stage, parts, 0) == each * sum(ENDS)


# --- caches ---

T5 = model(
    model_type="t5", d_model=H, num_heads=HEADS, d_kv=D, d_ff=F, num_layers=2, num_decoder_layers=3, vocab_size=V,
    feed_forward_proj="relu",
)  # fmt: skip
EACH = 2 * HEADS * D


def test_a_decoder_keeps_its_own_keys_and_those_of_the_encoder() -> None:
    """Three layers of both; as many source tokens as its own if none are given."""
    for keeps in (kv_cache.growing, kv_cache.read, lambda of, n, **more: kv_cache.growing_on(of, n, 1, **more)):
        assert keeps(T5, 10) == 3 * EACH * (10 + 10)
        assert keeps(T5, 10, source=4) == 3 * EACH * (10 + 4)
    assert kv_cache.growing_on(T5, 10, 2, 4) == 3 * EACH * 14 / 2
    assert kv_cache.unread(T5, 10) == kv_cache.unread(T5, 10, 1, 4) == kv_cache.states(T5, 10) == 0
    assert kv_cache.cache(T5, 10, 3, 2, "bf16", source=4).value == 3 * 2 * 3 * EACH * 14


def test_keys_that_layers_share_are_read_by_each() -> None:
    """Gemma 3n keeps those of the layers that make them, and every layer reads."""
    fields = LLAMA | {"model_type": "gemma3n_text", "num_hidden_layers": 4, "head_dim": D, "num_kv_shared_layers": 2}
    fields |= {"layer_types": ["full_attention"] * 4, "intermediate_size": [F] * 4, "laurel_rank": 4}
    fields |= {"altup_num_inputs": 2, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": V}
    shared = model(**fields, activation_sparsity_pattern=[0.0] * 4)
    each = 2 * KV * D
    assert kv_cache.growing(shared, 10) == 2 * each * 10
    assert kv_cache.read(shared, 10) == 4 * each * 10


# --- kernels ---


def test_kernels_of_engines_today() -> None:
    """llama.cpp passes 32 bits on and runs attention in one kernel; the others 16 bits."""
    assert kernels_today("vllm", "NVIDIA") == kernels_today("vllm", "Apple") == FUSED
    cuda, metal = kernels_today("llama.cpp", "NVIDIA"), kernels_today("llama.cpp", "Apple")
    assert (cuda.width, cuda.converts, cuda.scores, cuda.copies) == (4, 6, 0, COPIES)
    assert (metal.width, metal.converts, metal.scores, metal.copies) == (4, 0, 0, COPIES)
