"""Classes with attention of their own, by hand: parameters, products, and what they save for backward."""

from __future__ import annotations

import json
from typing import Any

import pytest

from napkin.architectures import implementation_of
from napkin.counting import flops
from napkin.errors import Refused
from napkin.footprint import kv_cache, memory
from napkin.footprint.prepared import prepare
from napkin.training.layout import Layout
from napkin.training.optimizer_names import find
from napkin.training.precision import POLICIES
from napkin.training.setup import Setup
from tests.conftest import model_of, run_line

BOTH = 2
"""Sequences of a micro-batch."""


def saved(fields: dict[str, Any], length: int, target: int = 0) -> object:
    """Bytes that eager attention in fp32 saves of two sequences."""
    model = model_of(fields)
    layout = Layout(seq=length, micro=BOTH, target=target)
    implementation = implementation_of("hf", fields["model_type"])
    setup = Setup(implementation, layout, POLICIES["fp32"], find("adamw")[0], "foreach", "eager")
    return memory.rank_of(prepare(model, setup), 0).saved


# --- CPM-Ant: p learned tokens before s given ones make S = p + s in every layer -------------------------------------

H, A, D, F, LAYERS, ROWS = 48, 4, 16, 72, 2, 97
P, S = 7, 39
GIVEN = S - P
CPM: dict[str, Any] = {
    "model_type": "cpmant", "hidden_size": H, "num_attention_heads": A, "dim_head": D, "dim_ff": F,
    "num_hidden_layers": LAYERS, "vocab_size": ROWS, "prompt_length": P, "prompt_types": 3, "segment_types": 4,
    "position_bias_num_buckets": 32,
}  # fmt: skip


def test_what_layers_save_of_a_prompt() -> None:
    tokens, pairs, logits = BOTH * S, BOTH * S * S, BOTH * GIVEN * ROWS
    norm = 3 * tokens * H + tokens  # its input, that normalized, that scaled; the reciprocal root of each token
    masks = 2 * pairs  # bytes: compared before the softmax and again after it
    attention = 3 * tokens * A * D + 2 * A * pairs + tokens * A * D  # weights, and again with the mask
    mlp = 4 * tokens * F  # gate, its activation, up, their product
    layer = 4 * (2 * norm + attention + mlp) + masks
    ids = 4 * (2 * tokens + pairs)  # of tokens, of segments, of each pair's bucket
    head = 4 * (2 * tokens * H + tokens + BOTH * GIVEN * H)  # the norm's output is copied without the prompt
    assert saved(CPM, GIVEN) == LAYERS * layer + ids + head + 4 * (logits + 1)


def test_products_of_a_prompt() -> None:
    """Layers multiply S tokens, the head the given ones; rates count the given ones."""
    model = model_of(CPM)
    over = flops.works(model, BOTH, GIVEN)
    linear = 2 * BOTH * S * (4 * H * A * D + 3 * H * F)
    attention = 2 * 2 * BOTH * A * S * S * D
    counted = flops.step(model, over)
    forward = LAYERS * (linear + attention) + 2 * BOTH * GIVEN * H * ROWS
    assert counted["flops/forward"].value == forward
    assert counted["flops/per_token"].value == 3 * forward / (BOTH * GIVEN)
    with pytest.raises(Refused, match="7 learned tokens before each sequence, not before each document"):
        flops.works(model, BOTH, GIVEN, documents=((16, 2),))


def test_a_prompt_is_cached() -> None:
    assert kv_cache.growing(model_of(CPM), GIVEN) == LAYERS * 2 * A * D * S


def test_a_step_with_a_prompt_takes_the_time_of_its_tokens() -> None:
    """A little less than that of S given tokens, of which all have logits."""

    def layers(prompt: int, length: int) -> float:
        fields = json.dumps(CPM | {"prompt_length": prompt, "hidden_size": 1024, "vocab_size": 10**6})
        values = run_line(f"step - --hardware h100 --seq {length} --micro-batch 8 --json", stdin=fields).values
        return float(values["step/compute"])

    without, behind, given = layers(0, 1024), layers(512, 1024), layers(0, 1536)
    assert without < behind < given


def test_parameters_with_a_prompt() -> None:
    """As transformers 5.24 builds it on the meta device, with 3 prompts of 7 tokens."""
    assert run_line("params - --json", stdin=json.dumps(CPM)).values["params/total"] == 56_256


# --- PEGASUS-X: blocks of B tokens and G global tokens; s tokens are padded to S, to S + B where blocks are staggered -

INNER, OUTER, BLOCK, GLOBAL, SOURCE, TARGET = 72, 104, 16, 6, 40, 24
PADDED = 48
PEGASUS: dict[str, Any] = {
    "model_type": "pegasus_x", "d_model": H, "encoder_attention_heads": A, "decoder_attention_heads": A,
    "encoder_layers": 4, "decoder_layers": LAYERS, "encoder_ffn_dim": INNER, "decoder_ffn_dim": OUTER,
    "vocab_size": ROWS, "block_size": BLOCK, "num_global_tokens": GLOBAL, "stagger_local_blocks": True,
}  # fmt: skip
FEW, MANY = BOTH * GLOBAL, BOTH * PADDED


def encoder_layer(staggered: bool, last: bool) -> int:
    """Numbers that a layer saves: of both streams, norms with a mean and a deviation a token, projections, scores."""
    length = PADDED + BLOCK * staggered
    read, keys = BOTH * length, length + GLOBAL
    stream = 2 * (MANY * H + 2 * MANY) + read * H + MANY * H  # two norms, and what is made of them
    attention = 3 * read * H + BOTH * A * length * (BLOCK + GLOBAL) + read * H
    few = 2 * FEW * H + 2 * FEW + 2 * FEW * H  # the norm, key and value
    if not last:
        few += FEW * H + 2 * BOTH * keys * H + BOTH * A * GLOBAL * keys + FEW * H  # query, all keys and values, result
        few += 2 * FEW * H + 2 * FEW + 2 * FEW * INNER
    return stream + attention + 2 * MANY * INNER + few


def test_what_two_streams_save() -> None:
    """The last layer's global tokens are read by its local attention only: what they make else is gone."""
    layers = sum(encoder_layer(place % 2 == 1, place == 3) for place in range(4))
    tokens = BOTH * TARGET
    norm = 2 * tokens * H + 2 * tokens
    own = 3 * tokens * H + BOTH * A * TARGET**2 + tokens * H
    across = 2 * tokens * H + 2 * BOTH * SOURCE * H + BOTH * A * TARGET * SOURCE
    decoder = LAYERS * (3 * norm + own + across + 2 * tokens * OUTER)
    between = MANY * H + 2 * BOTH * SOURCE + BOTH * SOURCE * H  # the padded stream, and its norm without padding
    head = norm + tokens * ROWS + 1
    ids = 8 * (GLOBAL + tokens)
    assert saved(PEGASUS, SOURCE, TARGET) == 4 * (layers + between + decoder + head) + ids


def test_products_of_two_streams() -> None:
    """As torch counts them on the class: 25,250,304 forward and 49,625,088 backward."""
    forward = 0
    for place in range(4):
        length = PADDED + BLOCK * (place % 2)
        forward += 8 * (BOTH * length + FEW) * H * H + 4 * (MANY + FEW) * H * INNER
        forward += 4 * BOTH * H * (length * (BLOCK + GLOBAL) + GLOBAL * (length + GLOBAL))
    unread = 4 * FEW * H * H + 4 * BOTH * H * GLOBAL * (length + GLOBAL) + 4 * FEW * H * INNER  # of the last one
    tokens = BOTH * TARGET
    layer = (12 * tokens + 4 * BOTH * SOURCE) * H * H + 4 * tokens * H * OUTER
    forward += LAYERS * (layer + 4 * BOTH * TARGET * (TARGET + SOURCE) * H) + 2 * tokens * H * ROWS
    model = model_of(PEGASUS)
    counted = flops.step(model, flops.works(model, BOTH, SOURCE, target=TARGET))
    assert counted["flops/forward"].value == forward == 25_250_304
    assert counted["flops/backward"].value == 2 * (forward - unread) == 49_625_088


def test_blocks_that_are_staggered_have_halves() -> None:
    refused = run_line("params -", stdin=json.dumps(PEGASUS | {"block_size": 15}))
    assert "block_size" in refused.err
    assert (
        run_line("params -", stdin=json.dumps(PEGASUS | {"block_size": 15, "stagger_local_blocks": False})).status == 0
    )


# --- MRA: K chosen blocks of 32 × 32 scores of each head, and n² scores of the blocks' means ------------------------

WIDE, HEADS, SIZE, FEED, LENGTH, ROW, CHOSEN = 128, 4, 32, 72, 96, 3, 6
MRA: dict[str, Any] = {
    "model_type": "mra", "hidden_size": WIDE, "num_attention_heads": HEADS, "num_hidden_layers": LAYERS,
    "intermediate_size": FEED, "vocab_size": ROWS, "max_position_embeddings": LENGTH, "block_per_row": 2,
}  # fmt: skip


@pytest.mark.parametrize("full", [True, False])
def test_what_two_resolutions_save(full: bool) -> None:
    tokens, groups = BOTH * LENGTH, BOTH * HEADS
    scores, of_token, of_block = groups * CHOSEN * 32 * 32, groups * LENGTH, groups * ROW
    masked = 3 * tokens * WIDE + of_token  # query, key and value, and the mask
    chosen = 2 * 8 * groups * CHOSEN  # bytes: which blocks, in which rows
    fine = scores + groups * CHOSEN * 32 + tokens * WIDE + of_token  # weights, their sums, the result, its divisor
    coarse = 3 * of_block * SIZE + 3 * of_block + of_block  # means, what divides them, tokens of each
    coarse += 2 * of_block * ROW + 2 * tokens * WIDE + 6 * of_token  # weights twice, values, sum, both corrections
    attention = 4 * (masked + fine + coarse * full) + chosen + 8 * of_block * full
    stream = 4 * (5 * tokens * WIDE + 4 * tokens + 2 * tokens * FEED)
    before = 4 * (tokens * WIDE + 2 * tokens)
    head = 4 * (4 * tokens * WIDE + 2 * tokens + tokens * ROWS + 1)
    fields = MRA | {"approx_mode": "full" if full else "sparse"}
    assert saved(fields, LENGTH) == LAYERS * (attention + stream) + before + head


@pytest.mark.parametrize("full", [True, False])
def test_products_of_two_resolutions(full: bool) -> None:
    """Those of the chosen blocks, next to what torch counts on the class: 75,565,056 forward. Without the means' part
    in the result their scores have no gradient."""
    tokens, groups = BOTH * LENGTH, BOTH * HEADS
    means = 2 * groups * ROW * ROW * SIZE
    linear = 2 * tokens * (4 * WIDE * WIDE + 2 * WIDE * FEED)
    head = 2 * tokens * WIDE * (WIDE + ROWS)
    blocks = LAYERS * 2 * 2 * groups * CHOSEN * 32 * 32 * SIZE
    forward = LAYERS * (linear + means * (1 + full)) + head
    model = model_of(MRA | {"approx_mode": "full" if full else "sparse"})
    counted = flops.step(model, flops.works(model, BOTH, LENGTH))
    assert counted["flops/forward"].value == forward + blocks
    assert forward == 75_565_056 - (not full) * LAYERS * means
    assert counted["flops/backward"].value == 2 * (forward + blocks - (not full) * LAYERS * means)


def test_small_heads_are_padded_to_the_kernels() -> None:
    """Heads of 8 elements have products of 32."""
    small = model_of(MRA | {"hidden_size": 8 * HEADS})
    counted = flops.step(small, flops.works(small, BOTH, LENGTH))
    products = LAYERS * 4 * BOTH * HEADS * 32 * (CHOSEN * 32 * 32 + ROW * ROW)
    assert counted["flops/attention"].value == 3 * products


@pytest.mark.parametrize(("length", "near"), [(LENGTH + 1, LENGTH), (64, LENGTH)])
def test_parts_of_blocks_are_refused(length: int, near: int) -> None:
    """And fewer blocks than the class chooses: six need three in a row."""
    refused = run_line(f"flops - --seq {length}", stdin=json.dumps(MRA))
    assert refused.status == 2
    assert "a multiple of 32 tokens, of at least 96" in refused.err
    assert f"hint: --seq {near}" in refused.err
    assert run_line(f"flops - --seq {near}", stdin=json.dumps(MRA)).status == 0


# --- ConvBERT: half of each layer's width in attention, half in a convolution whose kernel each token makes ---------

CHANNELS, PARTS, STEPS, INSIDE, NARROW, WORDS = 48, 2, 9, 72, 24, 33
CONVBERT: dict[str, Any] = {
    "model_type": "convbert", "hidden_size": CHANNELS, "num_attention_heads": 4, "head_ratio": 2,
    "num_hidden_layers": LAYERS, "intermediate_size": INSIDE, "vocab_size": ROWS, "max_position_embeddings": 64,
    "embedding_size": NARROW, "conv_kernel_size": STEPS,
}  # fmt: skip


def test_what_mixed_attention_saves() -> None:
    tokens, half = BOTH * WORDS, CHANNELS // 2
    convolution = tokens * CHANNELS + tokens * half  # what both of its parts make
    kernel = tokens * half + tokens * half + tokens * PARTS * STEPS  # the query, the product as a copy, the shares
    unfolded = tokens * half * STEPS
    attention = 3 * tokens * half + BOTH * PARTS * WORDS**2
    stream = 5 * tokens * CHANNELS + 4 * tokens + 2 * tokens * INSIDE
    before = 2 * tokens * NARROW + 2 * tokens
    head = tokens * CHANNELS + 3 * tokens * NARROW + 2 * tokens + tokens * ROWS + 1
    layer = convolution + kernel + unfolded + attention + stream
    assert saved(CONVBERT, WORDS) == 4 * (LAYERS * layer + before + head)


@pytest.mark.parametrize("groups", [1, 2])
def test_products_of_mixed_attention(groups: int) -> None:
    """As torch counts them on the class, without its depthwise convolutions: elementwise work."""
    tokens, half = BOTH * WORDS, CHANNELS // 2
    linear = 2 * tokens * (5 * CHANNELS * half + half * PARTS * STEPS + CHANNELS * CHANNELS)
    convolution = 2 * tokens * half * STEPS
    attention = 4 * BOTH * WORDS * WORDS * half
    mlp = 4 * tokens * CHANNELS * INSIDE // groups
    ends = 2 * tokens * (2 * NARROW * CHANNELS + NARROW * ROWS)
    model = model_of(CONVBERT | {"num_groups": groups})
    forward = flops.step(model, flops.works(model, BOTH, WORDS))["flops/forward"].value
    assert forward == LAYERS * (linear + convolution + attention + mlp) + ends
    depthwise = LAYERS * 2 * tokens * CHANNELS * STEPS
    assert forward + depthwise == {1: 5_268_384, 2: 4_356_000}[groups]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"conv_kernel_size": 8}, "8 is even"),
        ({"num_groups": 5}, "5 do not divide hidden_size = 48"),
        ({"hidden_size": 20, "num_groups": 1, "head_ratio": 1}, "head_ratio"),
    ],
)
def test_shapes_that_mixed_attention_cannot_have(changes: dict[str, Any], said: str) -> None:
    assert said in run_line("params -", stdin=json.dumps(CONVBERT | changes)).err
