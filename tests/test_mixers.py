"""What recurrent layers, encoders and encoder-decoders keep: by hand, from the kernels' save_for_backward, and laws."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.architectures import implementation_of
from napkin.errors import REFUSED, USAGE, NapkinError
from napkin.footprint import kv_cache, memory
from napkin.footprint.prepared import PreparedStep, prepare
from napkin.inputs.model_file import load_config
from napkin.operations.work import Work
from napkin.planning import scaling
from napkin.training.layout import Layout
from napkin.training.optimizer_names import find
from napkin.training.precision import POLICIES
from napkin.training.recomputation import recompute
from napkin.training.setup import Setup
from tests.conftest import model_of, run_line

B, S = 3, 4100
T = B * S
H, D, N = 64, 128, 16


def prepared(fields: dict[str, Any], layout: Layout, policy: str = "bf16-pure") -> PreparedStep:
    model = model_of(fields)
    implementation = implementation_of("hf", model.family)
    return prepare(model, Setup(implementation, layout, POLICIES[policy], find("adamw")[0], "fused"))


def kept(fields: dict[str, Any], policy: str = "bf16-pure", seq: int = S) -> int:
    """Bytes that one layer of the first kind keeps for itself."""
    return int(prepared(fields, Layout(seq=seq, micro=B), policy).run.layers[-1][1].saved)


def mamba(**changes: Any) -> dict[str, Any]:
    base = {"model_type": "mamba", "hidden_size": H, "num_hidden_layers": 2, "vocab_size": 97, "state_size": N}
    return base | {"expand": 2, "time_step_rank": 4, "conv_kernel": 4} | changes


def mamba2(**changes: Any) -> dict[str, Any]:
    base = {"model_type": "mamba2", "hidden_size": H, "num_hidden_layers": 2, "vocab_size": 97, "state_size": N}
    return base | {"expand": 2, "num_heads": 8, "head_dim": 16, "n_groups": 2, "chunk_size": 16} | changes


NORM = 4 * T * H + 4 * T + 2 * T * H + 2 * T * H
"""Root mean square in fp32, its reciprocal root, the normalized input in bf16, and what the product reads."""


def test_mamba_inner_fn_keeps_its_input_and_what_its_scan_needs() -> None:
    low = 2 * T * (4 + 2 * N)
    rows = 2 * (2 * T * N)  # B and C, copied
    states = 4 * B * D * 3 * 2 * N  # 4100 tokens are three chunks of 2048
    constants = 2 * (4 * D * N) + 2 * (4 * D)  # exp(A) and −exp(A); D and the bias of Δ in fp32
    assert kept(mamba()) == NORM + 2 * T * 2 * D + low + rows + states + constants + 2 * T * D


def test_mamba2_keeps_its_projection_the_scans_result_and_the_groups_norms() -> None:
    projection = 2 * T * (2 * D + 2 * 2 * N + 8)
    assert kept(mamba2()) == NORM + projection + 2 * T * D + 4 * T * 2 + 2 * (4 * 8)


def test_autocast_keeps_the_copies_of_a_fused_mixers_weights() -> None:
    step = prepared(mamba2(), Layout(seq=S, micro=B), "amp-bf16")
    weights = H * (2 * D + 2 * 2 * N + 8) + D * H
    assert step.run.layers[-1][1].casts == 2 * weights


def test_the_delta_rule_keeps_normalized_keys_and_a_matrix_of_each_chunk() -> None:
    fields = {"model_type": "qwen3_5_text", "hidden_size": H, "num_hidden_layers": 1, "vocab_size": 97}
    fields |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96}
    fields |= {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16}
    fields |= {"linear_value_head_dim": 24, "layer_types": ["linear_attention"], "max_position_embeddings": S}
    keys, values, heads = 2 * 16, 4 * 24, 4
    offset_norm = 4 * T * H + 4 * T + 4 * T * H + 4 * H + 2 * T * H  # 1 + weight, and the product, in fp32
    convolution = 2 * T * (2 * keys + values)
    gate = 2 * (4 * T * heads) + 2 * (4 * heads)  # softplus' input and result, exp(A) and its negative
    rule = 2 * (2 * T * keys + 4 * T * 2) + 2 * T * values + 4 * T * heads + 2 * T * heads + 2 * T * heads * 64
    wide = 3 * 4 * T * values  # the result, the gate and its activation in fp32
    gated = wide + 4 * T * heads + 2 * (2 * T * values) + 2 * T * values  # with what the output product reads
    mlp = offset_norm + 4 * (2 * T * 96)
    assert kept(fields) == offset_norm + convolution + gate + rule + gated + mlp


def test_kimi_delta_keeps_what_its_decays_are_made_of_and_two_matrices_of_each_chunk() -> None:
    heads, d, f = 2, 16, 96
    fields = {"model_type": "kimi_linear", "hidden_size": H, "num_hidden_layers": 1, "vocab_size": 97}
    fields |= {"linear_num_heads": heads, "linear_head_dim": d, "layer_types": ["linear_attention"]}
    fields |= {"intermediate_size": f, "num_attention_heads": 2, "max_position_embeddings": S}
    size = heads * d
    norm = 4 * T * H + 4 * T + 2 * T * H + 2 * T * H  # fp32 input, rstd, normalized in 16 bits, its product
    wide = 4 * T * size
    decays = 2 * (2 * T * d) + 3 * wide + T * size + 2 * (4 * heads)  # exp, 1 + exp, softplus; where; exp(A), −exp(A)
    rule = 3 * (2 * T * size) + 2 * (4 * T * heads) + 2 * wide + 2 * T * heads + 2 * (2 * T * heads * 64)
    gated = 4 * wide + 4 * T * heads + 4 * d + 2 * T * size  # in fp32 to the end, the weight too
    assert kept(fields) == 2 * norm + 2 * T * 3 * size + decays + rule + gated + 4 * (2 * T * f)


@pytest.mark.parametrize("mode", ["single", "fused"])
def test_a_matrix_memory_keeps_its_reads_by_heads_and_two_numbers_of_each_token_and_head(mode: str) -> None:
    heads, keys, values, f = 2, 32, 128, 192
    fields = {"model_type": "xlstm", "hidden_size": H, "num_hidden_layers": 1, "vocab_size": 97, "num_heads": heads}
    fields |= {"qk_dim_factor": keys / H, "v_dim_factor": values / H, "weight_mode": mode}
    reads = 2 * T * (2 * keys + values) + 2 * (2 * T * heads)
    kernel = reads + 2 * (4 * T * heads)
    capped = 2 * (2 * T * heads)  # tanh
    normed = 2 * (4 * T * values) + 4 * T * heads + 2 * T * values  # in fp32, centered; in 16 bits before its weight
    gated = 3 * (2 * T * values)  # the gate, what it multiplies, and what the output product reads
    assert kept(fields) == 2 * NORM + capped + kernel + normed + gated + 4 * (2 * T * f)


def test_wkv_keeps_key_value_result_and_its_decay() -> None:
    fields = {"model_type": "rwkv", "hidden_size": H, "num_hidden_layers": 2, "vocab_size": 97, "context_length": S}
    norm = 2 * T * H + 8 * T
    mixes = 2 * (2 * T * H)  # the normalized tokens and those before them
    time = norm + mixes + 3 * (2 * T * H + 2 * H) + 3 * (2 * T * H) + 4 * H + 2 * (2 * T * H)
    channel = norm + mixes + 2 * (2 * T * H + 2 * H) + 2 * (2 * T * 4 * H) + 2 * (2 * T * H)
    assert kept(fields) == time + channel


@pytest.mark.parametrize("fields", [mamba(), mamba2()], ids=["mamba", "mamba2"])
def test_recurrent_layers_keep_more_of_longer_sequences_and_wider_types(fields: dict[str, Any]) -> None:
    sizes = [kept(fields, seq=seq) for seq in (1, 2047, 2048, 2049, 4096)]
    assert sizes == sorted(set(sizes))
    assert kept(fields) < kept(fields, "amp-bf16") < kept(fields, "fp32")


T5 = {"model_type": "t5", "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_decoder_layers": 2}
T5 |= {"num_heads": 4, "vocab_size": 97, "feed_forward_proj": "relu"}


def saved(layout: Layout) -> int:
    step = prepared(T5, layout)
    return int(memory.rank_of(step, 0).saved)


def test_a_decoder_of_its_own_length_reads_the_encoders_output_once() -> None:
    step = prepared(T5, Layout(seq=64, micro=2, target=32))
    shared = {id(s): s for _, section in step.run.layers for s in section.shared}
    encoded = [s for s in shared.values() if s.label == "encoder's output"]
    assert [s.size for s in encoded] == [2 * (2 * 64) * 64]
    assert saved(Layout(seq=64, micro=2, target=64)) == saved(Layout(seq=64, micro=2))
    assert saved(Layout(seq=64, micro=2, target=32)) < saved(Layout(seq=64, micro=2))


def test_checkpointed_layers_of_two_lengths_keep_inputs_of_their_own() -> None:
    found = prepared(T5, Layout(seq=64, micro=2, target=32, recompute=recompute("full")))
    inputs = {int(section.input) for _, section in found.run.layers}
    assert inputs == {2 * (2 * 64) * 64, 2 * (2 * 32) * 64}


def test_wkv_caches_three_numbers_a_channel_and_the_tokens_that_it_mixes() -> None:
    fields = {"model_type": "rwkv", "hidden_size": H, "num_hidden_layers": 2, "vocab_size": 97, "context_length": 64}
    layer = model_of(fields).stacks[0].runs[0][1]
    assert kv_cache.cached_numbers(layer, 1000) == (0, 3 * H + 2 * H)


@pytest.mark.parametrize("name", ["mamba-130m", "mamba2-130m", "recurrentgemma-2b", "bamba-9b", "falcon-h1-0.5b"])
def test_recurrent_networks_grow_in_their_proportions(name: str) -> None:
    model, count = scaling.largest_of_family(load_config(name), lambda one: scaling.count(one) <= 20_000_000_000)
    assert 18_000_000_000 < count <= 20_000_000_000
    assert model.hidden % 32 == 0


@pytest.mark.parametrize("name", ["zamba2-1.2b", "nemotron-h-8b", "t5-base"])
def test_what_has_no_proportions_is_refused(name: str) -> None:
    with pytest.raises(NapkinError) as caught:
        scaling.largest_of_family(load_config(name), lambda one: True)
    assert caught.value.status == REFUSED


def test_a_second_sequence_needs_a_second_stack() -> None:
    found = run_line("memory bert-base-uncased --seq 128 --target-seq 64")
    assert found.status == USAGE
    assert "bert-base-uncased has no second stack" in found.err


def test_a_band_is_whole_windows_to_both_sides() -> None:
    h, s, window = 64, 128, 32
    fields = {"model_type": "longformer", "hidden_size": h, "num_attention_heads": 4, "num_hidden_layers": 1}
    model = model_of({**fields, "intermediate_size": 96, "vocab_size": 100, "attention_window": window})
    (layer,) = model.stacks[0].layers
    core = next(op for op in layer.operations if op.name == "attention")
    half = window // 2
    parts = s // half
    by_hand = 2 * h * ((parts - 1) * window * window + parts * half * 3 * half)
    assert sum(one.flops for one in core.gemms(Work(1, s))) == by_hand
    assert sum(one.flops for one in core.gemms(Work(1, s - 1))) == by_hand  # padded to whole windows
