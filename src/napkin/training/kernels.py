"""Libraries of fused kernels that replace parts of a Hugging Face class."""

from __future__ import annotations

from napkin.operations.implementations import Implementation
from napkin.record import record, replace


@record
class Kernels:
    """A library of kernels.

    facts    fields of an `Implementation` that it sets
    adapted  further ones with LoRA on frozen weights, which are one function with its matrices; (): LoRA is peft's
    loss     its cross entropy of texts (operations/losses.py)        before  the one of versions before `since`, of the
             library as a run states it
    """

    name: str
    source: str
    facts: tuple[tuple[str, object], ...]
    adapted: tuple[tuple[str, object], ...] = ()
    loss: str = ""
    before: str = ""
    since: tuple[int, int] = (0, 0)

    def on(self, implementation: Implementation) -> Implementation:
        """Return an implementation that runs these kernels."""
        found = replace(implementation, **dict(self.facts))
        if found.tuning is None or not self.adapted:
            return found
        return replace(found, **dict(self.adapted), tuning=replace(found.tuning, joined=True))


LIGER = Kernels(
    "liger",
    "linkedin/Liger-Kernel src/liger_kernel/ops/rms_norm.py, rope.py, swiglu.py: all three and the loss are applied to "
    "a class by default (transformers/monkey_patch.py)",
    (("norms", "own"), ("rotary", "kernel"), ("swiglu", "overwritten")),
    loss="fused",
)
UNSLOTH = Kernels(
    "unsloth",
    "unslothai/unsloth unsloth/kernels/rms_layernorm.py, rope_embedding.py; fast_lora.py, LoRA_MLP: the backward pass "
    "writes the product of gate and up over its gradient; unsloth/models/llama.py, unsloth_fused_ce_loss since "
    "806bee243 (13 August 2025, 2025.8), before that 16-bit logits (kernels/cross_entropy_loss.py)",
    (("norms", "own"), ("rotary", "kernel")),
    adapted=(("swiglu", "remade"),),
    loss="fused-compiled",
    before="in-place-fp32",
    since=(2025, 8),
)
KERNELS = {one.name: one for one in (LIGER, UNSLOTH)}
