"""Where operations are in the reference class, and which of them LoRA's targets name."""

from __future__ import annotations

import pytest

from napkin.inputs.presets import presets
from napkin.operations.adapters.named import is_target
from napkin.operations.adapters.targets import all_operations
from napkin.operations.base import Operation
from napkin.operations.model import Model
from napkin.operations.roles import TABLES
from tests.conftest import model_of, preset, run_line
from tests.test_memory import memory
from tests.test_renamed import operations_of

LLAMA = (
    "model.embed_tokens self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj mlp.gate_proj mlp.up_proj "
    "mlp.down_proj lm_head"
)
MODULES = {
    "llama3-8b": LLAMA,
    "qwen2.5-7b": LLAMA,
    "gemma2-9b": LLAMA,
    "mixtral-8x7b": LLAMA.replace("mlp.gate_proj mlp.up_proj mlp.down_proj", "mlp.gate mlp.experts"),
    "deepseek-v3": "eh_proj model.embed_tokens self_attn.q_a_proj self_attn.q_b_proj self_attn.kv_a_proj_with_mqa "
    "self_attn.kv_b_proj self_attn.o_proj mlp.gate_proj mlp.up_proj mlp.down_proj mlp.gate mlp.experts "
    "mlp.shared_experts.gate_proj mlp.shared_experts.up_proj mlp.shared_experts.down_proj lm_head",
    "deepseek-v2-lite": "model.embed_tokens self_attn.q_proj self_attn.kv_a_proj_with_mqa self_attn.kv_b_proj "
    "self_attn.o_proj mlp.gate_proj mlp.up_proj mlp.down_proj mlp.gate mlp.experts mlp.shared_experts.gate_proj "
    "mlp.shared_experts.up_proj mlp.shared_experts.down_proj lm_head",
    "gpt2": "transformer.wte transformer.wpe attn.c_attn attn.c_proj mlp.c_fc mlp.c_proj lm_head",
    "gpt-neox-20b": "gpt_neox.embed_in attention.query_key_value attention.dense mlp.dense_h_to_4h mlp.dense_4h_to_h "
    "lm_head",
    "falcon-7b": "transformer.word_embeddings self_attention.query_key_value self_attention.dense mlp.dense_h_to_4h "
    "mlp.dense_4h_to_h lm_head",
    "opt-6.7b": "model.decoder.embed_tokens model.decoder.embed_positions self_attn.q_proj self_attn.k_proj "
    "self_attn.v_proj self_attn.out_proj fc1 fc2 lm_head",
    "bert-base-uncased": "bert.embeddings.word_embeddings bert.embeddings.position_embeddings "
    "bert.embeddings.token_type_embeddings attention.self.query attention.self.key attention.self.value "
    "attention.output.dense intermediate.dense output.dense cls.predictions.transform.dense cls.predictions.decoder",
    "t5-base": "shared encoder.embed_tokens decoder.embed_tokens layer.0.SelfAttention.q layer.0.SelfAttention.k "
    "layer.0.SelfAttention.v layer.0.SelfAttention.o layer.0.SelfAttention.relative_attention_bias "
    "layer.1.DenseReluDense.wi layer.1.DenseReluDense.wo "
    "layer.1.EncDecAttention.q layer.1.EncDecAttention.k layer.1.EncDecAttention.v layer.1.EncDecAttention.o "
    "layer.2.DenseReluDense.wi layer.2.DenseReluDense.wo lm_head",
    "mamba-130m": "backbone.embeddings mixer.in_proj mixer.x_proj mixer.dt_proj mixer.out_proj lm_head",
}
"""Preset → the modules with weights, from named_modules() of the class in transformers 5.23.0, which has no
multi-token prediction (DeepSeek-V3: eh_proj in the published weights)."""


def lora_modules(model: Model) -> list[Operation]:
    return [op for op in all_operations(model) if op.linear() is not None or op.embeds() in TABLES]


def modules_of(model: Model) -> list[Operation]:
    return [op for operations in operations_of(model) for op in operations if op.module]


@pytest.mark.parametrize("name", MODULES)
def test_an_operation_has_its_path_in_the_reference_class(name: str) -> None:
    assert {op.module for op in modules_of(preset(name)) if op.weights()} == set(MODULES[name].split()) - {
        "shared",
        "decoder.embed_tokens",
    }


@pytest.mark.parametrize("name", [one.name for one in presets()])
def test_every_module_of_every_preset_is_placed(name: str) -> None:
    """A module that no record places has its operation's own name, which is no path. What turns patches into tokens,
    and a tower's features into those of the language model, has names alone."""
    model = preset(name)
    joins = [model.vision.patches, model.vision.projector] if model.vision is not None else []
    named = {id(op) for part in joins for op in lora_modules(part)}
    for op in lora_modules(model):
        if id(op) in named:
            continue
        assert op.module != op.short or op.module in ("lm_head", "linear", "per_layer_projection")


@pytest.mark.parametrize(
    ("name", "target", "modules"),
    [
        ("llama3-8b", "q_proj", 1),
        ("llama3-8b", "self_attn.q_proj", 1),
        ("llama3-8b", "q", 1),
        ("llama3-8b", "proj", 0),
        ("llama3-8b", "attn.q_proj", 0),
        ("llama3-8b", "lm_head", 1),
        ("llama3-8b", "embed_tokens", 1),
        ("gpt2", "c_attn", 1),
        ("gpt2", "c_proj", 2),
        ("gpt2", "o", 1),
        ("gpt-neox-20b", "query_key_value", 1),
        ("gpt-neox-20b", "dense", 1),
        ("bert-base-uncased", "dense", 4),
        ("bert-base-uncased", "q_proj", 0),
        ("t5-base", "q", 2),
        ("bart-large", "q_proj", 2),
        ("bart-large", "q", 1),
        ("deepseek-v3", "q_b_proj", 1),
        ("deepseek-v3", "q", 1),
    ],
)
def test_targets_match_the_end_of_a_path(name: str, target: str, modules: int) -> None:
    """In T5 and BART, self-attention and cross-attention."""
    assert len({op.module for op in lora_modules(preset(name)) if is_target(op, (target,))}) == modules


def trained(line: str) -> float:
    """Trained elements, from bf16 gradients."""
    return float(memory(line).values["memory/gradients"]) / 2


def test_targets_train_what_peft_trains() -> None:
    """r·(d_in + d_out) for each matched linear layer, r·(rows + d) for an embedding."""
    lora = "--seq 128 --lora-rank 16 --lora-targets"
    assert trained(f"{lora} lm_head") == 16 * (4096 + 128256)
    assert trained(f"{lora} embed_tokens") == 16 * (128256 + 4096)
    assert trained(f"{lora} o_proj,mlp.down_proj") == 32 * 16 * (4096 + 4096 + 14336 + 4096)
    assert trained(f"{lora} all-linear") == trained("--seq 128 --lora-rank 16")
    assert trained(f"{lora} self_attn.q_proj") == trained(f"{lora} q") == 32 * 16 * 2 * 4096


def test_an_adapted_embedding_keeps_its_rows() -> None:
    """Next to LoRA on q: thin rows of r elements per token, which its second matrix reads."""
    saved = "memory/activations/saved"
    one = memory("--seq 128 --lora-rank 16 --lora-targets q").values[saved]
    both = memory("--seq 128 --lora-rank 16 --lora-targets q,embed_tokens").values[saved]
    assert both - one >= 2 * 16 * 128


@pytest.mark.parametrize(
    ("name", "target", "rows", "width"), [("gpt2", "wte", 50257, 768), ("gemma-2b", "embed_tokens", 256000, 2048)]
)
def test_an_adapted_tied_embedding_is_trained(name: str, target: str, rows: int, width: int) -> None:
    """Its adapter is one pair of matrices, of the embedding alone: the tied head has none."""
    found = run_line(f"memory {name} --seq 128 --lora-rank 16 --lora-targets {target} --precision bf16-mixed --json")
    assert found.data["values"]["memory/gradients"] == 2 * 16 * (rows + width)


def test_layers_keep_what_recomputation_asks_of_them() -> None:
    """DeBERTa-v2 runs its convolution after the first block: naming its modules must not lose that."""
    fields = {
        "model_type": "deberta-v2",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 128,
        "relative_attention": True,
        "conv_kernel_size": 3,
    }
    first, *others = model_of(fields).stacks[0].layers
    assert first.beyond in [op.name for op in first.operations]
    assert {one.beyond for one in others} == {""}
