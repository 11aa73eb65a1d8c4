"""Parts of layers that run again by themselves: the bytes that each no longer saves, by hand, and what that costs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from napkin.evidence.rows.recomputation import recomputation
from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.syntax import source_of
from napkin.options.training import MODULES
from napkin.training.recomputation import recompute
from tests.conftest import answered, run_line

H, S, HEADS, TOP, INNER, LAYERS = 256, 512, 4, 2, 128, 3
MIXTRAL = {
    "model_type": "mixtral", "vocab_size": 1024, "hidden_size": H, "intermediate_size": INNER,
    "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": 2, "num_local_experts": 8,
    "num_experts_per_tok": TOP, "max_position_embeddings": S, "sliding_window": None, "tie_word_embeddings": False,
}  # fmt: skip
LLAMA = {
    "model_type": "llama", "vocab_size": 1024, "hidden_size": H, "intermediate_size": INNER,
    "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": 2,
    "max_position_embeddings": S, "tie_word_embeddings": False,
}  # fmt: skip
Q_RANK, KV_RANK, NOPE, ROTARY, V = 96, 64, 48, 16, 32
DEEPSEEK = {
    "model_type": "deepseek_v3", "vocab_size": 1024, "hidden_size": H, "intermediate_size": 3 * INNER,
    "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "n_routed_experts": 8,
    "num_experts_per_tok": TOP, "n_shared_experts": 1, "moe_intermediate_size": INNER, "first_k_dense_replace": 1,
    "q_lora_rank": Q_RANK, "kv_lora_rank": KV_RANK, "qk_nope_head_dim": NOPE, "qk_rope_head_dim": ROTARY,
    "v_head_dim": V, "max_position_embeddings": S, "num_nextn_predict_layers": 0, "tie_word_embeddings": False,
}  # fmt: skip
LINE = f"--gpus 1 --hardware h100 --framework megatron-core --seq {S}"
WIDE = 2
"""Bytes of an element in 16 bits."""


def values(config: dict[str, Any], again: str, command: str = "memory", more: str = "") -> dict[str, float]:
    line = f"{command} '{json.dumps(config)}' {LINE} --recompute {again} {more} --json"
    return run_line(line).values


def dropped(config: dict[str, Any], modules: str) -> float:
    """Return the bytes per token that a micro-batch saves less."""
    both = (values(config, again)["memory/activations/saved"] for again in ("none", f"selective:{modules}"))
    return (next(both) - next(both)) / S


EXPERT_ROW = TOP * INNER * WIDE
"""Bytes of the activation of a token's experts."""
NORM = H * WIDE + 4
"""Bytes of what a norm makes, and of its reciprocal root in fp32."""


def test_the_activation_of_experts() -> None:
    assert dropped(MIXTRAL, "moe_act") == LAYERS * EXPERT_ROW
    assert dropped(DEEPSEEK, "moe_act") == (LAYERS - 1) * EXPERT_ROW


def test_norms_that_no_linear_layer_contains() -> None:
    """Query, key and value contain the first norm of a layer, a dense MLP the second; experts and latents do not."""
    assert dropped(MIXTRAL, "layernorm") == LAYERS * NORM
    assert dropped(LLAMA, "layernorm") == 0
    assert dropped(DEEPSEEK, "layernorm") == (LAYERS + LAYERS - 1) * NORM


def test_a_dense_mlp_saves_the_stream_alone() -> None:
    """Norm, gate, up and their product go; the stream that the norm reads stays."""
    assert dropped(LLAMA, "mlp") == LAYERS * (NORM + 3 * INNER * WIDE)
    assert dropped(DEEPSEEK, "mlp") == NORM + 3 * 3 * INNER * WIDE  # the one dense layer


def test_latents_are_expanded_again() -> None:
    """Queries and keys with their rotary parts, and both halves of what makes keys and values: its keys are copied into
    the joined ones, its values are read where they lie. The latents stay."""
    joined = 2 * HEADS * (NOPE + ROTARY)
    assert dropped(DEEPSEEK, "mla_up_proj") == LAYERS * (joined + HEADS * (NOPE + V)) * WIDE


def test_attention_s_result_is_not_copied() -> None:
    """Megatron-core joins the parts of queries where heads lie behind tokens: the output projection saves what the
    kernel returns, and running the core again drops the log-sum-exp alone, 4 bytes a head, and the generator's state.
    NVIDIA measured it: 36.618 GB allocated without, 36.614 with (NVIDIA-NeMo/Megatron-Bridge
    skills/nemo-mbridge-perf-activation-recompute/SKILL.md, Moonlight 16B on 8 H100)."""
    assert dropped(DEEPSEEK, "core_attn") == pytest.approx(LAYERS * 4 * HEADS, abs=0.5)


def test_fused_projections_share_an_8_bit_copy() -> None:
    """Query, key and value are one product, and so are gate and up: of a layer's norms and of the gated product one
    byte of each element in place of two. Attention keeps its result in 16 bits, next to its projection's copy."""
    deeper = {**LLAMA, "num_hidden_layers": LAYERS + 1}
    lines = [(one, f"--precision {name}") for name in ("bf16-mixed", "fp8-mixed") for one in (deeper, LLAMA)]
    saved = [values(one, "none", more=more)["memory/activations/saved"] for one, more in lines]
    assert (saved[0] - saved[1] - (saved[2] - saved[3])) / S == 2 * H - H + INNER


def test_experts_are_converted_and_the_router_and_head_are_not() -> None:
    """Of a mixture's layer: the first norm in one byte, attention's result in another copy; each expert's row and what
    its second product reads in one byte (TransformerEngine transformer_engine/pytorch/module/grouped_linear.py saves
    the converted rows). The router reads the second norm in 16 bits. Outside layers nothing changes: Megatron-core's
    head is no layer of TransformerEngine (megatron/core/models/gpt/gpt_model.py)."""
    wide, narrow = (values(MIXTRAL, "none", more=f"--precision {name}") for name in ("bf16-mixed", "fp8-mixed"))
    saved = (wide["memory/activations/saved"] - narrow["memory/activations/saved"]) / S
    assert saved == LAYERS * (H - H + TOP * (H + INNER))
    wide, narrow = (values(LLAMA, "none", more=f"--precision {name}") for name in ("bf16-mixed", "fp8-mixed"))
    saved = (wide["memory/activations/saved"] - narrow["memory/activations/saved"]) / S
    assert saved == LAYERS * (H - H + H + INNER)


def test_results_in_8_bits_are_dropped_too() -> None:
    """The second product of the experts saves 8 bits of what it reads."""
    found = [values(MIXTRAL, again, more="--precision fp8-mixed") for again in ("none", "selective:moe_act")]
    saved = [one["memory/activations/saved"] for one in found]
    assert 0 < (saved[0] - saved[1]) / S <= LAYERS * EXPERT_ROW


def test_shared_experts() -> None:
    assert dropped(DEEPSEEK, "shared_experts") == (LAYERS - 1) * 3 * INNER * WIDE


def test_a_layer_of_experts_saves_its_input_alone() -> None:
    """What is left of a layer of experts: the stream, both norms with their results, attention, and the sum."""
    with_experts = {**MIXTRAL, "num_hidden_layers": LAYERS + 1}
    left = [values(one, "selective:core_attn+moe")["memory/activations/saved"] for one in (with_experts, MIXTRAL)]
    keys = 2 * 2 * H // HEADS
    stays = 2 * H * WIDE + 2 * NORM + (H + keys) * WIDE + H * WIDE
    assert (left[0] - left[1]) / S == stays


def test_nested_parts_are_dropped_once() -> None:
    """A layer of experts holds the activation and shared experts; the norm before it is its argument."""
    whole = dropped(DEEPSEEK, "moe")
    assert dropped(DEEPSEEK, "moe+moe_act+shared_experts") == whole
    assert dropped(DEEPSEEK, "moe+layernorm") == whole + (2 * LAYERS - 1) * NORM


def test_what_runs_again_is_there_while_its_backward_pass_runs() -> None:
    """Live bytes in the backward pass of a layer do not fall below what it makes again."""
    one = {**LLAMA, "num_hidden_layers": 1, "intermediate_size": 64 * H}
    at = "memory/at/backward/live" if "memory/at/backward/live" in values(one, "none") else "memory/live"
    saved, again = values(one, "none")[at], values(one, "selective:mlp")[at]
    assert again > saved - 0.05 * saved


@pytest.mark.parametrize("modules", MODULES)
def test_each_part_takes_time_and_less_than_all(modules: str) -> None:
    times = [values(DEEPSEEK, again, "step")["step/time"] for again in ("none", f"selective:{modules}", "full")]
    assert times[0] < times[1] < times[2]


def test_the_flops_of_a_part_count_in_hfu_alone() -> None:
    """A dense MLP of three matrices runs one of its three passes again: HFU / MFU − 1 is its share of all FLOPs."""
    found = values(LLAMA, "selective:mlp", "step")
    layer = 2 * (2 * H * H + 2 * H * H // 2 + 3 * H * INNER) + 2 * 2 * H * S
    forward = LAYERS * layer + 2 * H * 1024
    again = LAYERS * 2 * 3 * H * INNER
    assert found["hfu"] / found["mfu"] == pytest.approx(1 + again / (3 * forward))


MOONLIGHT = {
    **DEEPSEEK, "vocab_size": 163840, "hidden_size": 2048, "intermediate_size": 11264, "moe_intermediate_size": 1408,
    "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16, "n_shared_experts": 2,
    "n_routed_experts": 64, "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "num_experts_per_tok": 6, "max_position_embeddings": 8192,
}  # fmt: skip


@pytest.mark.parametrize(
    ("again", "measured"),
    [
        ("none", 36.618),
        ("selective:core_attn", 36.614),
        ("selective:mla_up_proj", 35.902),
        ("selective:mla_up_proj+mlp", 35.917),
        ("selective:moe_act", 35.941),
        ("selective:layernorm+moe_act", 35.949),
    ],
)
def test_published_peaks_of_moonlight(again: str, measured: float) -> None:
    """NVIDIA-NeMo/Megatron-Bridge skills/nemo-mbridge-perf-activation-recompute/SKILL.md: GB allocated on 8 H100, TP 2,
    EP 8, one sequence of 4,096 tokens, gradients and moments in bf16, master copies in fp32 (precision-aware
    optimizer). The lists of two modules found another moment's peak, which napkin has lower."""
    line = "--gpus 8 --hardware h100 --tp 2 --ep 8 --zero 1 --framework megatron-core --seq 4096 --global-batch 4"
    policy = "--precision param=bf16,grad=bf16,compute=bf16,state=bf16,master=fp32"
    found = run_line(f"memory '{json.dumps(MOONLIGHT)}' {line} {policy} --recompute {again} --json")
    assert found.values["memory/allocated"] == pytest.approx(measured * 1e9, rel=0.02)


def test_spelling() -> None:
    one = recompute("selective:layernorm, moe-act")
    assert one.word == "selective:moe_act+layernorm"
    assert one.parts == ("moe_act", "layernorm")
    assert recompute("selective:core_attn").word == "selective"
    assert recompute("full").parts == ()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("llama3-8b --recompute selective:mlp", "does not recompute modules by name"),
        ("llama3-8b --framework fsdp --recompute selective:mlp", "does not recompute modules by name"),
        ("llama3-8b --framework megatron-core --recompute selective:moe_act", "llama3-8b has no experts"),
        ("llama3-8b --framework megatron-core --recompute selective:mla_up_proj", "llama3-8b has no latent attention"),
        ("llama3-8b --framework megatron-core --recompute selective:gdn_norm_out", "unknown module 'gdn_norm_out'"),
    ],
)
def test_refusals(line: str, says: str) -> None:
    found = run_line(f"memory {line} --gpus 8 --hardware h100")
    assert found.status == 2
    assert says in found.err


def test_a_module_that_no_layer_has_is_noted() -> None:
    line = f"memory llama3-8b {LINE} --recompute selective:layernorm"
    assert any("changes nothing" in note for note in answered(line).notes)


@pytest.mark.parametrize(
    "words", ["--recompute-granularity selective --recompute-modules moe_act layernorm",
              "--recompute-modules moe_act layernorm --recompute-granularity selective"],
)  # fmt: skip
def test_a_pasted_line(words: str) -> None:
    line = "memory mixtral-8x7b --hardware h100 --gpus 8 --expert-model-parallel-size 8 --json"
    found = json.loads(run_line(f"{line} {words}").out)["inputs"]
    assert found["recompute"]["value"] == "selective:moe_act+layernorm"
    assert found["framework"]["value"] == "megatron-core"


@pytest.mark.parametrize(
    ("modules", "read"),
    [("[]", "none"), ("[moe_act,layernorm]", "selective:moe_act+layernorm"), ("[core_attn]", "selective")],
)
def test_overrides_of_megatron_bridge(modules: str, read: str) -> None:
    """An empty list recomputes nothing; without a list it is attention's core (transformer_config.py)."""
    line = "python run.py model.tensor_model_parallel_size=2 train.global_batch_size=32 train.micro_batch_size=1"
    again = f"model.recompute_granularity=selective model.recompute_modules={modules}"
    found = reading_of(source_of(f"{line} {again}\n", "run.sh"))
    assert found.inputs["recompute"].value == read


def test_a_plan_is_written_with_its_modules() -> None:
    again = "--tp 1 --pp 1 --ep 8 --zero 1 --micro-batch 1 --recompute selective:moe_act+layernorm"
    line = f"plan mixtral-8x7b --hardware h100 --gpus 64 --framework megatron-core {again} --emit megatron"
    assert "--recompute-granularity selective \\\n  --recompute-modules moe_act layernorm" in run_line(line).out


@pytest.mark.parametrize(
    ("words", "means"),
    [
        ("selective (moe_act, layernorm)", "selective:moe_act+layernorm"),
        ("selective: core_attn, mla_up_proj", "selective:core_attn+mla_up_proj"),
        ("recompute_modules moe_act", "selective:moe_act"),
        ("moe_act layernorm", "selective:moe_act+layernorm"),
        ("shared_experts", "selective:shared_experts"),
        ("mlp, layernorm", ""),  # words of any framework
        ("selective (core_attn)", "selective"),
        ("selective", "selective"),
        ("full", "full"),
        ("mlp of 4 layers", ""),
    ],
)
def test_words_of_rows(words: str, means: str) -> None:
    assert recomputation(words) == means
