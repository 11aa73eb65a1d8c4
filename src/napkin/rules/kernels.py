"""N1: kernels, shapes and formats that are slower than others."""

from __future__ import annotations

import json
from collections.abc import Iterator

from napkin.operations.implementations import EAGER, FLASH
from napkin.rules.case import Configuration, Options
from napkin.rules.rule import EITHER, Hit, Rule
from napkin.timing.efficiency import ALIGNED

WIDTHS = ("intermediate_size", "ffn_hidden_size", "moe_intermediate_size", "n_inner", "d_ff", "ffn_dim")
"""Fields of a config.json that state the inner width of an MLP."""
SLOW = ("fp32", "tf32")


def _eager(case: Configuration) -> Iterator[Hit]:
    if case.setup.attention == EAGER and FLASH in case.setup.implementation.kernels:
        said = "eager attention writes the scores of all token pairs to memory"
        yield Hit(said, "attention", ({"attention": FLASH},))


def _interpreted(case: Configuration) -> Iterator[Hit]:
    built = case.setup.implementation
    parts = (("norms", built.norms == "reference"), ("activations", built.swiglu == "split"))
    apart = [name for name, separate in parts if separate]  # a library's kernels fuse the others
    if apart and case.stack is not None and case.stack.eager and not case.setup.compiled:
        compiled: Options = {"compile": True, **({} if case.guessed else {"stack": "fsdp-compiled"})}
        said = f"{' and '.join(apart)} run as separate kernels, launched from Python"
        yield Hit(said, "compile", (compiled,))


def _vocabulary(case: Configuration) -> Iterator[Hit]:
    tp, vocabulary = int(case.layout.tp), case.model.vocabulary
    if vocabulary % (ALIGNED * tp):
        said = f"the vocabulary of {vocabulary:,} is not a multiple of {ALIGNED}{f' · tp {tp}' if tp > 1 else ''}"
        yield Hit(said, "vocab-multiple", ({"vocab-multiple": str(ALIGNED)},))


def _width(case: Configuration) -> Iterator[Hit]:
    tp = int(case.layout.tp)
    unit = ALIGNED * tp
    for name, value in case.stated.fields().items():
        if name in WIDTHS and isinstance(value, int) and value % unit:
            up = -(-value // unit) * unit
            fields = {**case.stated.fields(), name: up}
            said = f"{name} {value:,} is not a multiple of {ALIGNED}{f' · tp {tp}' if tp > 1 else ''}"
            yield Hit(said, "model", ({"model": json.dumps(fields)},), edit=f"config.json: {name} {up:,}")


def _wide(case: Configuration) -> Iterator[Hit]:
    hardware, policy = case.stated.hardware, case.setup.precision
    if hardware is not None and policy.compute in SLOW and "bf16" in hardware.peaks and not policy.frozen:
        said = f"matmuls in {policy.compute} on an accelerator that has bf16"
        yield Hit(said, "precision", ({"precision": "amp-bf16"}, {"precision": "bf16-mixed"}))


RULES = (
    Rule(
        "N115",
        "eager-attention",
        "Attention writes its scores to memory",
        "Eager attention stores and moves one element per token pair and head; a fused kernel stores one per "
        "token and head.",
        "llama3-8b --gpus 64 --hardware h100 --zero 3 --framework fsdp --attention eager --seq 2048",
        find=_eager,
        gains=EITHER,
        sources=("Dao et al. 2022, arXiv:2205.14135, section 3",),
    ),
    Rule(
        "N116",
        "not-compiled",
        "Elementwise operations run as separate kernels",
        "A compiler fuses chains of elementwise operations into one kernel, which reads and writes only their "
        "inputs and outputs, and launches fewer kernels. Libraries of kernels, such as Liger, fuse norms and "
        "activations without one.",
        "llama3-8b --gpus 64 --hardware h100 --zero 3 --framework fsdp --stack fsdp-eager",
        find=_interpreted,
        sources=("pytorch/pytorch torch/_inductor, fusion of pointwise operations (torch.compile)",),
    ),
    Rule(
        "N117",
        "vocabulary-not-aligned",
        "The vocabulary is not a multiple of 64 · tp",
        "Rows of the LM head's matmul that do not start on a 128-byte boundary load slowly. Padding the "
        "embedding costs a few rows.",
        "gpt2 --gpus 8 --hardware h100 --seq 1024 --micro-batch 8 --framework fsdp --zero 3",
        find=_vocabulary,
        sources=("NVIDIA, Matrix Multiplication Background User's Guide, dimensions and tensor cores",),
    ),
    Rule(
        "N118",
        "width-not-aligned",
        "An MLP's inner width is not a multiple of 64 · tp",
        "Rows of its matmuls that do not start on a 128-byte boundary load slowly. The width belongs to the "
        "architecture, so this concerns models that are not trained yet.",
        '\'{"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16, '
        '"intermediate_size": 5461, "vocab_size": 32000}\' --gpus 8 --hardware h100 --seq 2048 --micro-batch 2',
        find=_width,
        sources=("NVIDIA, Matrix Multiplication Background User's Guide, dimensions and tensor cores",),
    ),
    Rule(
        "N119",
        "matmuls-in-fp32",
        "Matmuls run in fp32 or tf32 although the accelerator has bf16",
        "Matrix units multiply 16-bit numbers several times faster; autocast keeps weights and updates in fp32.",
        "llama3.2-1b --gpus 8 --hardware h100 --precision fp32 --zero 1",
        find=_wide,
        sources=("Micikevicius et al. 2018, Mixed Precision Training, arXiv:1710.03740, section 3",),
    ),
)
