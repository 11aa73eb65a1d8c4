"""Kimi K3's language model: the tensors of a small checkpoint, added up by hand."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.counting.params import params
from napkin.errors import NapkinError
from napkin.operations.block_residual import BlockResidual
from tests.conftest import model_of

H, VOCAB, DENSE, EXPERTS, INNER, LATENT = 6, 16, 10, 3, 5, 4
KDA_DIM, KDA_HEADS, KERNEL = 4, 2, 3
HEADS, NOPE, ROPE, VALUE, Q_RANK, KV_RANK = 2, 3, 1, 3, 5, 4
LINEAR = {
    "head_dim": KDA_DIM, "num_heads": KDA_HEADS, "short_conv_kernel_size": KERNEL, "gate_lower_bound": -5.0,
    "use_full_rank_gate": True, "kda_layers": [1], "full_attn_layers": [2],
}  # fmt: skip
TEXT: dict[str, Any] = {
    "model_type": "kimi_linear", "hidden_size": H, "num_hidden_layers": 2, "num_attention_heads": HEADS,
    "first_k_dense_replace": 1, "q_lora_rank": Q_RANK, "kv_lora_rank": KV_RANK, "qk_nope_head_dim": NOPE,
    "qk_rope_head_dim": ROPE, "v_head_dim": VALUE, "num_experts": EXPERTS, "num_experts_per_token": 2,
    "num_shared_experts": 1, "num_expert_group": 1, "topk_group": 1, "moe_intermediate_size": INNER,
    "intermediate_size": DENSE, "vocab_size": VOCAB, "moe_renormalize": True, "mla_use_nope": True,
    "hidden_act": "situ", "routed_expert_hidden_size": LATENT, "latent_moe_use_norm": True, "attn_res_block_size": 1,
    "mla_use_output_gate": True, "linear_attn_config": LINEAR,
}  # fmt: skip


def whole(**text: Any) -> dict[str, Any]:
    return {"model_type": "kimi_k3", "text_config": {**TEXT, **text}}


def test_parameters_are_those_of_the_checkpoint_s_tensors() -> None:
    inner = KDA_DIM * KDA_HEADS
    outside = 2 * VOCAB * H + H + (H + H)  # embedding, head, norm; norm and projection of the last sum
    each = 2 * H + 2 * (H + H)  # norms; norm and projection of each branch's sum
    delta = (
        3 * inner * H  # q, k, v
        + 3 * inner * KERNEL  # their convolutions
        + KDA_DIM * H + inner * KDA_DIM  # decays, through a bottleneck
        + inner + KDA_HEADS  # dt_bias, A_log
        + KDA_HEADS * H  # write strengths
        + inner * H + KDA_DIM  # output gate of full rank, norm
        + H * inner
    )  # fmt: skip
    attention = (
        Q_RANK * H + Q_RANK + HEADS * (NOPE + ROPE) * Q_RANK
        + (KV_RANK + ROPE) * H + KV_RANK + HEADS * (NOPE + VALUE) * KV_RANK
        + 2 * HEADS * VALUE * H  # output and its gate
    )  # fmt: skip
    mixture = EXPERTS * H + 3 * INNER * H + 2 * LATENT * H + LATENT + EXPERTS * 3 * INNER * LATENT
    total = outside + 2 * each + delta + 3 * DENSE * H + attention + mixture
    assert params(model_of(whole()))["params/total"].value == total


def test_a_branch_reads_the_sums_of_the_blocks_before_it() -> None:
    linear = {**LINEAR, "kda_layers": [1, 2, 3, 4], "full_attn_layers": [5]}
    model = model_of(whole(num_hidden_layers=5, attn_res_block_size=2, linear_attn_config=linear))
    (stack,) = model.stacks
    read = [op.states for layer in stack.layers for op in layer.operations if isinstance(op, BlockResidual)]
    # blocks begin at layers 0, 2 and 4: attention reads 1, 2, 2, 3 and 3 sums, the networks 2, 2, 3, 3 and 4, the mean
    # of which is 2.5; the first attention reads the embedding alone
    assert set(read) == {2}
    assert [op.states for op in stack.after if isinstance(op, BlockResidual)] == [4]


@pytest.mark.parametrize("text", [{"mla_use_output_gate": False}, {"linear_attn_config": None}, {"hidden_act": "gelu"}])
def test_another_network_under_the_name_is_refused(text: dict[str, Any]) -> None:
    with pytest.raises(NapkinError):
        model_of(whole(**text))
