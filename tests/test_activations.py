"""Bytes kept for backward and live bytes of a step: measured models, kernels by hand, and laws."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy
import pytest
from hypothesis import strategies as st

from napkin._tables import saved_bytes as TABLE
from napkin.architectures import MODULES, WRAPPERS, implementation_of
from napkin.footprint import memory
from napkin.footprint.prepared import prepare
from napkin.footprint.rank import Rank
from napkin.operations.frameworks import FRAMEWORKS
from napkin.operations.implementations import ALL_KERNELS, HF, TORCH, measured, mode, recomputation_of
from napkin.operations.tuning import Tuning
from napkin.record import replace
from napkin.training.kernels import AXOLOTL, AXOLOTL_ON_LIGER, LIGER, UNSLOTH, together
from napkin.training.layout import Layout
from napkin.training.optimizer_names import find
from napkin.training.precision import POLICIES
from napkin.training.recomputation import Recompute, recompute
from napkin.training.setup import Setup
from tests.conftest import model_of


def _data(name: str) -> Any:
    with open(os.path.join(os.path.dirname(__file__), "data", name), encoding="utf-8") as file:
        return json.load(file)


VERSIONS = ("5.23.0", "5.24.0")
"""Of transformers, whose classes were run."""
MEASURED, DRAWN = _data("saved_activations.json"), _data("saved_bytes.json")
POLICY = {"bf16": "bf16-pure", "fp32": "fp32", "amp": "amp-bf16", "autocast": "amp-bf16"}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}


def rank(
    fields: dict[str, Any],
    layout: Layout,
    policy: str = "bf16-pure",
    attention: str = "flash",
    dropout: float = 0.0,
    form: str = "foreach",
    implementation: str = "hf",
    stage: int = 0,
) -> Rank:
    model = model_of(fields)
    code = implementation_of(implementation, model.family)
    setup = Setup(code, layout, POLICIES[policy], find("adamw")[0], form, attention, dropout)
    return memory.rank_of(prepare(model, setup), stage)


def _named(rows: list[list[Any]]) -> list[Any]:
    return [pytest.param(*row, id=f"{row[0]}-{row[1]}-{row[2]}-{row[6]}-{i}") for i, row in enumerate(rows)]


@pytest.mark.parametrize(MEASURED["columns"], _named(MEASURED["rows"]))
def test_saved_bytes_are_those_that_hooks_counted(
    family: str,
    precision: str,
    attention: str,
    sequences: int,
    length: int,
    dropout: float,
    recompute: str,
    saved: int,
    weight_casts: int | None,
    config: dict[str, Any],
) -> None:
    layout = Layout(seq=length, micro=sequences, recompute=Recompute(recompute))
    found = rank(config, layout, POLICY[precision], attention, dropout)
    assert found.saved == saved
    if weight_casts is not None:
        assert found.casts == weight_casts


@pytest.mark.parametrize(DRAWN["columns"], [pytest.param(*row, id=f"{row[0]}-{row[1]}") for row in DRAWN["rows"]])
def test_saved_bytes_of_drawn_configs_are_those_that_hooks_counted(
    model_type: str,
    mode: str,
    sequences: int,
    length: int | list[int],
    saved: int,
    weight_casts: int,
    config: dict[str, Any],
) -> None:
    precision, attention, dropout, *_ = mode.split("/")
    probability = 0.1 if dropout == "dropout" else 0.0
    seq, target = length if isinstance(length, list) else (length, 0)  # of an encoder and its decoder
    layout = Layout(seq=seq, micro=sequences, target=target, recompute=Recompute(recomputation_of(mode)))
    found = rank(config, layout, POLICY[precision], attention, probability)
    assert (found.saved, found.casts) == (saved, weight_casts)
    assert measured(HF, model_type, mode)


def test_the_table_of_what_was_measured_names_modes_and_versions() -> None:
    assert TABLE.TORCH.rsplit(".", 1)[0] == TORCH
    modes = {
        mode(precision, kernel, dropout, sequences, recompute)
        for precision in ("bf16", "fp32", "autocast")
        for kernel in ALL_KERNELS
        for dropout in (False, True)
        for sequences in (1, 2)
        for recompute in ("none", "full")
    }
    assert len(modes) == 96
    for model_type, (index, cases, version) in TABLE.EXACT.items():
        found = TABLE.MODES[index]
        assert model_type in MODULES or model_type in WRAPPERS
        assert set(found) <= modes
        assert cases >= len(found) > 0
        assert version in VERSIONS
    assert len(set(TABLE.MODES)) == len(TABLE.MODES) == len({index for index, *_ in TABLE.EXACT.values()})
    assert {row[0] for row in DRAWN["rows"]} <= set(TABLE.EXACT)


def test_only_measured_modes_are_called_exact() -> None:
    assert measured(HF, "llama", mode("bf16", "flash", False, 4))
    assert not measured(HF, "llama", mode("fp8", "flash", False, 4))
    assert not measured(HF, "no-such-type", mode("bf16", "flash", False, 4))
    assert not measured(FRAMEWORKS["megatron"], "llama", mode("bf16", "flash", False, 4))
    assert measured(FRAMEWORKS["nanogpt"], "gpt2", mode("bf16", "flash", False, 4))
    assert not measured(FRAMEWORKS["nanogpt"], "gpt2", mode("bf16", "flash", False, 4, "full"))


@pytest.mark.parametrize(MEASURED["peak_columns"], _named(MEASURED["peaks"]))
def test_the_largest_live_bytes_are_those_of_a_traced_step(
    family: str,
    precision: str,
    attention: str,
    sequences: int,
    length: int,
    dropout: float,
    recompute: str,
    live: int,
    config: dict[str, Any],
) -> None:
    layout = Layout(seq=length, micro=sequences, recompute=Recompute(recompute))
    found = rank(config, layout, POLICY[precision], attention, dropout)
    assert found.live == pytest.approx(live, rel=0.025)


def test_most_peaks_agree_to_a_thousandth() -> None:
    """A trace also sees a few small buffers (rotary frequencies); the rest is exact but for odd orders of branches."""
    errors = []
    for _, precision, attention, sequences, length, dropout, again, live, config in MEASURED["peaks"]:
        layout = Layout(seq=length, micro=sequences, recompute=Recompute(again))
        errors.append(abs(rank(config, layout, POLICY[precision], attention, dropout).live / live - 1))
    assert sorted(errors)[int(0.9 * len(errors))] < 1e-3


# Korthikanti et al. 2022, equation 2, for f = 4h: sbh·(34 + 5as/h) with dropout, and 16·T of LayerNorm statistics,
# the s² mask that nanoGPT's code makes in each layer.
@pytest.mark.parametrize(("b", "s", "a", "d"), [(2, 64, 4, 16), (3, 32, 8, 8)])
def test_a_plain_block_keeps_what_korthikanti_counted(b: int, s: int, a: int, d: int) -> None:
    h = a * d
    fields = {"model_type": "gpt2", "n_embd": h, "n_layer": 1, "n_head": a, "vocab_size": 97, "n_positions": s}
    one = rank(fields, Layout(seq=s, micro=b), "bf16-pure", "eager", 0.1, implementation="nanogpt").saved
    two = rank(
        {**fields, "n_layer": 2}, Layout(seq=s, micro=b), "bf16-pure", "eager", 0.1, implementation="nanogpt"
    ).saved
    assert two - one == s * b * h * 34 + 5 * a * s * s * b + 16 * s * b + s * s


@pytest.mark.parametrize(
    ("tp", "sp", "kind", "over_sbh"),
    [
        (1, 0, "none", 34 + 10),
        (4, 0, "none", 10 + 24 / 4 + 10 / 4),
        (4, 1, "none", 34 / 4 + 10 / 4),
        (4, 0, "selective", 10 + 24 / 4),
        (4, 1, "selective", 34 / 4),
        (4, 0, "full", 2),
        (4, 1, "full", 2 / 4),
    ],
)
def test_tensor_and_sequence_parallelism_are_korthikantis_table(tp: int, sp: int, kind: str, over_sbh: float) -> None:
    """Korthikanti et al. 2022, table 2, for 5as/h = 10: bytes of a layer over s·b·h. LayerNorm's fp32 mean and
    deviation, 16 bytes per token, are left out there."""
    s, b, a, h = 64, 2, 8, 256
    fields = {"model_type": "gpt2", "n_embd": h, "n_head": a, "vocab_size": 512, "n_positions": s}
    layout = Layout(seq=s, micro=b, tp=tp, sp=sp, recompute=Recompute(kind))
    two, one = (
        rank({**fields, "n_layer": n}, layout, "bf16-pure", "eager", 0.1, implementation="megatron").saved
        for n in (2, 1)
    )
    statistics = 0 if kind == "full" else 16 * s * b / (tp if sp else 1)
    assert (two - one - statistics) / (s * b * h) == over_sbh


def test_megatrons_fused_swiglu_keeps_gate_and_up_alone() -> None:
    layout = Layout(seq=64)
    split, fused = (
        rank(LLAMA, layout, implementation=implementation).saved for implementation in ("nanogpt", "megatron")
    )
    activation = 6 * 2 * 64 * 96  # silu's result of six layers in bf16
    loss = 2 * 64 * 128  # the same logits, the same loss
    assert split - fused >= activation
    assert split - fused < activation + loss


def with_liger(tokens: int, layers: int, **changes: Any) -> Rank:
    """A bf16 step of Llama on Liger's kernels."""
    of = model_of({**LLAMA, "num_hidden_layers": layers, "intermediate_size": 512})
    code = replace(LIGER.on(implementation_of("hf", of.family)), **changes)
    return memory.rank_of(
        prepare(of, Setup(code, Layout(seq=tokens), POLICIES["bf16-pure"], find("adamw")[0], "fused")), 0
    )


def test_a_layer_on_ligers_kernels_keeps_what_matmuls_and_norms_read() -> None:
    """Each norm its input and an fp32 statistic of each row; q, k, v, the attention's output with a statistic of each
    of 4 heads; what the products of attention and MLP read; gate and up. Flash attention keeps its seed too, 24 bytes.
    """
    h, kv, f, tokens = 64, 32, 512, 64
    norms = 2 * (2 * h + 4 + 2 * h)
    attention = 2 * h + 2 * 2 * kv + 2 * h + 4 * 4
    mlp = 3 * 2 * f
    layer = with_liger(tokens, 2).saved - with_liger(tokens, 1).saved
    assert layer == tokens * (norms + attention + mlp) + 24


def with_unsloth(tokens: int, layers: int, **changes: Any) -> Rank:
    """The same on unsloth's kernels, with LoRA of rank 4 on all linear layers."""
    of = model_of({**LLAMA, "num_hidden_layers": layers, "intermediate_size": 512})
    tuning = Tuning("lora", 4, 0.0)
    code = replace(UNSLOTH.on(replace(implementation_of("hf", of.family), tuning=tuning)), **changes)
    return memory.rank_of(
        prepare(of, Setup(code, Layout(seq=tokens), POLICIES["bf16-pure"], find("adamw")[0], "fused")), 0
    )


def test_axolotls_functions_next_to_ligers_kernels_keep_what_unsloths_do() -> None:
    """Liger's norms and rotary embedding, and one function for each MLP and its adapters: unsloth's three."""
    of = model_of({**LLAMA, "intermediate_size": 512})
    plain = replace(implementation_of("hf", of.family), tuning=Tuning("lora", 4, 0.0))
    both, unsloth = together(LIGER, AXOLOTL).on(plain), UNSLOTH.on(plain)
    assert (both.norms, both.rotary, both.swiglu, both.tuning) == (
        unsloth.norms,
        unsloth.rotary,
        unsloth.swiglu,
        unsloth.tuning,
    )
    assert together(LIGER, None) == together(LIGER, UNSLOTH) == LIGER
    eight = replace(plain, tuning=Tuning("lora", 4, 0.0, quantized="int8"))
    assert AXOLOTL_ON_LIGER.on(eight) == LIGER.on(eight)


def test_a_layer_on_unsloths_kernels_keeps_neither_thin_products_nor_what_the_mlp_makes() -> None:
    """As Liger's, less the product of gate and up, which the backward pass writes over its gradient; and of LoRA's two
    matrices nothing is kept: they are one function with the frozen one, which reads its input alone."""
    h, kv, f, tokens = 64, 32, 512, 64
    layer = with_unsloth(tokens, 2).saved - with_unsloth(tokens, 1).saved
    assert layer == tokens * (2 * (2 * h + 4 + 2 * h) + 2 * h + 4 * kv + 2 * h + 4 * 4 + 4 * f) + 24
    kept = with_unsloth(tokens, 2, swiglu="overwritten").saved - with_unsloth(tokens, 1, swiglu="overwritten").saved
    assert kept - layer == tokens * 2 * f


def test_adapters_and_their_layers_are_one_function_without_dropout_alone() -> None:
    """With dropout its mask is kept, of one byte, and what it leaves; and the thin product of rank 4. Below the first
    adapter nothing has a gradient: no mask there, and attention's result is kept for it alone."""
    of, tokens = model_of(LLAMA), 64
    saved = []
    for dropout in (0.0, 0.1):
        tuning = Tuning("lora", 4, dropout, ("o_proj",), joined=True)
        code = replace(implementation_of("hf", of.family), tuning=tuning)
        step = prepare(of, Setup(code, Layout(seq=tokens), POLICIES["bf16-pure"], find("adamw")[0], "fused"))
        saved.append(memory.rank_of(step, 0).saved)
    assert saved[1] - saved[0] == tokens * ((of.depth - 1) * (64 + 2 * 64 + 2 * 4) + 2 * 4)


def test_ligers_swiglu_writes_its_gradients_over_its_inputs() -> None:
    """Without it the peak of an MLP's backward pass is at the gradients of gate and up, next to that of their product,
    which is no longer kept: 2 + 1 - 1 tensors; with it, at the product's gradient: 1."""
    tokens, f = 2048, 512
    over, beside = (
        dict(with_liger(tokens, 2, swiglu=kind).moments[2].made["temporaries"])["layer"]
        for kind in ("overwritten", "fused")
    )
    assert beside - over == 2 * tokens * f


# --- laws ---


SIZES = st.integers(1, 4)


@pytest.mark.parametrize(("b", "s", "layers", "stage"), [(1, 16, 1, 0), (3, 48, 4, 1)])
def test_more_work_of_a_plain_decoder_takes_more(b: int, s: int, layers: int, stage: int) -> None:
    fields = {**LLAMA, "num_hidden_layers": layers + 1}
    base = rank(fields, Layout(seq=s, micro=b, pp=2, micro_batches=2), stage=stage).live
    assert rank(fields, Layout(seq=s, micro=b + 1, pp=2, micro_batches=2), stage=stage).live > base
    assert rank(fields, Layout(seq=2 * s, micro=b, pp=2, micro_batches=2), stage=stage).live > base
    deeper = {**fields, "num_hidden_layers": layers + 3}
    assert rank(deeper, Layout(seq=s, micro=b, pp=2, micro_batches=2), stage=stage).live > base


def test_a_pipeline_holds_micro_batches_in_flight() -> None:
    """1F1B keeps p micro-batches of L/p layers on the first stage; interleaved (p + (p − 1)/v); GPipe all of them."""
    x = 2 * 64 * 64  # a block's input: 64 tokens of width 64 in bf16
    layers = {**LLAMA, "num_hidden_layers": 8}

    def kept(stage: int = 0, **layout: Any) -> float:
        plan = Layout(seq=64, pp=4, micro_batches=16, recompute=Recompute("full"), **layout)
        forward = rank(layers, plan, stage=stage).moments[0]
        assert forward.name == "forward"
        return float(forward.activations)

    assert [kept(stage) for stage in range(3)] == [4 * 2 * x, 3 * 2 * x, 2 * 2 * x]
    assert kept(schedule="gpipe") == 16 * 2 * x
    assert kept(vp=2, schedule="interleaved") == 2 * x * (4 + 3 / 2)


def test_recomputation_orders() -> None:
    def kept(text: str) -> int:
        return int(rank(LLAMA, Layout(seq=64, micro=2, recompute=recompute(text)), attention="eager").saved)

    assert kept("full") < kept("every:2") < kept("selective") < kept("none")
    assert kept("group:3") < kept("full")
    assert kept("group:sqrt") == kept("group:3")  # ⌈√6⌉


def test_arrays_of_layouts_are_answered_as_each_alone() -> None:
    tp, dp, pp, zero = ([1, 2, 2, 4], [4, 1, 2, 1], [1, 2, 3, 2], [3, 1, 0, 2])
    fields = {**LLAMA, "num_key_value_heads": 4}
    many = Layout(
        seq=64,
        micro=numpy.array([1.0, 2, 1, 3]),
        micro_batches=numpy.array([1.0, 4, 3, 2]),
        tp=numpy.array(tp) * 1.0,
        pp=numpy.array(pp) * 1.0,
        dp=numpy.array(dp) * 1.0,
        sp=numpy.array([0.0, 1, 0, 1]),
        zero=numpy.array(zero) * 1.0,
    )
    together = rank(fields, many)
    saved, live = numpy.asarray(together.saved), numpy.asarray(together.live)
    for i in range(4):
        alone = Layout(
            seq=64, micro=[1, 2, 1, 3][i], micro_batches=[1, 4, 3, 2][i], tp=tp[i], pp=pp[i], dp=dp[i],
            sp=[0, 1, 0, 1][i], zero=zero[i],
        )  # fmt: skip
        one = rank(fields, alone)
        assert saved[i] == one.saved
        assert live[i] == pytest.approx(one.live, rel=1e-3)


def test_a_million_layers_answer_like_a_few() -> None:
    few = rank({**LLAMA, "num_hidden_layers": 10}, Layout(seq=64))
    many = rank({**LLAMA, "num_hidden_layers": 100_000}, Layout(seq=64))
    one_layer = (few.saved - rank({**LLAMA, "num_hidden_layers": 9}, Layout(seq=64)).saved) * (100_000 - 10)
    assert many.saved == few.saved + one_layer


INDEXED = {
    "model_type": "deepseek_v32",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 97,
    "intermediate_size": 64,
    "max_position_embeddings": 256,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 24,
    "kv_lora_rank": 24,
    "q_lora_rank": 32,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "mlp_layer_types": ["dense", "sparse"],
    "index_n_heads": 16,
    "index_head_dim": 32,
    "index_topk": 32,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize(
    ("sequences", "recompute", "live"),
    [(1, "none", 10_810_584), (2, "none", 30_550_232), (1, "full", 10_132_032), (2, "full", 29_111_872)],
)
def test_scores_of_an_indexer_come_and_go_at_the_peak(sequences: int, recompute: str, live: int) -> None:
    """Live bytes that a trace of transformers 5.24.0's DeepSeek-V3.2 counted in a step with AdamW, foreach."""
    layout = Layout(seq=256, micro=sequences, recompute=Recompute(recompute))
    assert rank(INDEXED, layout, attention="efficient").live == live


def test_no_gradient_reaches_an_indexer() -> None:
    """Its weights are held, without gradients and states: H·D·q + D·h + 2·D + H·h of each of two layers."""
    layout = Layout(seq=64, micro=1)
    with_it = rank(INDEXED, layout, attention="efficient")
    without = rank(INDEXED | {"index_n_heads": 8}, layout, attention="efficient")
    fewer = 2 * (8 * 32 * 32 + 8 * 64)
    assert with_it.parameters - without.parameters == 2 * fewer
    assert (with_it.gradients, with_it.optimizer) == (without.gradients, without.optimizer)


def test_jitter_keeps_its_noise_and_an_even_load_is_a_loss_of_its_own() -> None:
    """Noise: T·h numbers a layer. The loss: in each layer softmax (T·E numbers), and 4·E bytes in all; the choice,
    through which no gradient passes, is gone by then."""
    mixture = LLAMA | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
    layout = Layout(seq=64, micro=3)
    tokens, plain = 3 * 64, rank(mixture, layout).saved
    assert rank(mixture | {"router_jitter_noise": 0.01}, layout).saved - plain == 6 * tokens * 64 * 2
    balanced = 6 * tokens * 4 * 2 + 4 * 4
    assert rank(mixture | {"output_router_logits": True}, layout).saved - plain == balanced


@pytest.mark.parametrize(
    ("config", "routers", "experts"),
    [
        (
            {
                "model_type": "jetmoe", "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 6,
                "num_key_value_heads": 6, "intermediate_size": 104, "vocab_size": 160, "num_local_experts": 4,
                "num_experts_per_tok": 3, "activation_function": "leaky_relu",
            },
            2 * 4,
            4,
        ),
        (
            {
                "model_type": "lara_mini", "hidden_size": 144, "num_hidden_layers": 4, "num_attention_heads": 6,
                "num_key_value_heads": 6, "head_dim": 16, "vocab_size": 160, "sliding_window": 16, "num_experts": 4,
                "num_experts_per_tok": 1, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40,
                "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 16,
                "linear_value_head_dim": 16,
            },
            4,
            4,
        ),
    ],
)  # fmt: skip
def test_the_balance_of_routers_whose_logits_are_fp32(config: dict[str, Any], routers: int, experts: int) -> None:
    """Softmax of 4·T·E bytes for each router, of which JetMoE has two a layer; 4·E bytes in all."""
    layout = Layout(seq=32, micro=1)
    more = rank(config | {"output_router_logits": True}, layout).saved - rank(config, layout).saved
    assert more == routers * 4 * 32 * experts + 4 * experts
