"""Qwen of 2023 by the code that comes with its weights (modeling_qwen.py, configuration_qwen.py, finetune.py)."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.counting.params import params
from napkin.errors import NapkinError
from tests.conftest import model_of, run_line

H, A, F, V, L = 64, 4, 96, 128, 2
SMALL = {
    "model_type": "qwen", "hidden_size": H, "intermediate_size": 2 * F, "num_hidden_layers": L,
    "num_attention_heads": A, "kv_channels": H // A, "vocab_size": V, "seq_length": 64,
    "tie_word_embeddings": False,
}  # fmt: skip
LAYER = H * 3 * H + 3 * H + H * H + 3 * H * F + 2 * H
"""One QKV projection with biases, an output projection, three matrices of half the stated width, two norms."""


def count(**changes: Any) -> int:
    fields = {field: value for field, value in {**SMALL, **changes}.items() if value != "omitted"}
    total = params(model_of(fields))["params/total"].value
    assert isinstance(total, int)
    return total


def test_parameters_by_hand() -> None:
    assert count() == 2 * V * H + L * LAYER + H
    assert count(tie_word_embeddings=True) == V * H + L * LAYER + H


def test_no_bias_says_nothing_of_the_qkv_projection() -> None:
    assert count(no_bias=False) - count() == L * (H + 2 * F + H)


def test_half_of_an_odd_width_is_rounded_down() -> None:
    assert count(intermediate_size=2 * F + 1) == count()


def test_the_first_files_have_other_names_and_a_padded_vocabulary() -> None:
    """Theirs is `wte = nn.Embedding(config.padded_vocab_size, …)`; the later class reads `vocab_size`."""
    names = {"n_embd": H, "n_layer": L, "n_head": A, "ffn_hidden_size": 2 * F, "n_positions": 64}
    without = dict.fromkeys(("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"), "omitted")
    assert count(**without, **names, vocab_size=V - 7, padded_vocab_size=V) == count()
    assert count(padded_vocab_size=V + 7) == count()


@pytest.mark.parametrize(
    "changes", [{"kv_channels": 8}, {"kv_channels": "omitted"}, {"use_cache_quantization": True}, {"pos_emb": "alibi"}]
)
def test_what_the_class_cannot_run_or_napkin_does_not_know_is_refused(changes: dict[str, Any]) -> None:
    """Its code cuts the projection's result into parts of hidden_size: heads of another size (128 by default) fail."""
    with pytest.raises(NapkinError):
        count(**changes)


def values(line: str) -> dict[str, Any]:
    found = run_line(f"memory qwen-7b --gpus 1 {line} --json")
    assert found.status == 0, found.err
    return found.values


LORA = "--lora-rank 64 --lora-targets c_attn,c_proj,w1,w2 --seq 64 --recompute full"


def test_adapters_of_its_finetuning_script() -> None:
    """r · (in + out) of c_attn, both c_proj, w1 and w2 in each of 32 layers, with a gradient of 4 bytes."""
    found = values(f"{LORA} --precision param=fp32,compute=bf16,frozen=bf16")
    each = (4096 + 3 * 4096) + (4096 + 4096) + 3 * (4096 + 11008)
    assert found["memory/gradients"] == 4 * 32 * 64 * each == 4 * 143_130_624


def test_logits_stay_in_16_bits_and_autocast_raises_them_in_the_loss() -> None:
    """The log-softmax of all tokens but the last, and the weight of all: 4 bytes each under autocast, as fp32 adapters
    in 16-bit matmuls imply, else 2."""
    narrow = values(f"{LORA} --precision bf16-pure")
    raised = values(f"{LORA} --precision param=fp32,compute=bf16,frozen=bf16")
    saved = "memory/activations/saved"
    assert raised[saved] - narrow[saved] == 2 * (63 * 151936 + 1)


def test_kernels_of_torch_get_a_mask_that_its_own_does_not() -> None:
    """64² scores of 2 bytes in each of 32 layers; torch's kernel keeps 8 bytes less of the random generator."""
    flash, efficient = (values(f"--seq 64 --precision bf16-pure --attention {k}") for k in ("flash", "efficient"))
    saved = "memory/activations/saved"
    assert efficient[saved] - flash[saved] == 32 * (2 * 64 * 64 - 8)
