"""Libraries of fused kernels that replace parts of a Hugging Face class."""

from __future__ import annotations

from napkin.operations.implementations import Implementation
from napkin.record import record, replace


@record
class Kernels:
    """A library of kernels.

    facts    fields of an `Implementation` that it sets
    adapted  further ones with LoRA on frozen weights, which are one function with its matrices; (): LoRA is peft's
    without  formats of frozen weights that it has no such function for        texts  by default for texts alone
    since    version of the trainer that has them by default, (0, 0) for all
    loss     its cross entropy of texts (operations/losses.py), "" if it has none
    before   the one of versions before `loss_since`
    unmasked its attention reads no mask of padding in training
    """

    name: str
    source: str
    facts: tuple[tuple[str, object], ...]
    adapted: tuple[tuple[str, object], ...] = ()
    without: tuple[str, ...] = ()
    texts: bool = False
    since: tuple[int, int] = (0, 0)
    loss: str = ""
    before: str = ""
    loss_since: tuple[int, int] = (0, 0)
    unmasked: bool = False

    def on(self, implementation: Implementation) -> Implementation:
        """Return an implementation that runs these kernels."""
        found = replace(implementation, **dict(self.facts))
        if found.tuning is None or not self.adapted or found.tuning.quantized in self.without:
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
    "806bee243 (13 August 2025, 2025.8), before that 16-bit logits (kernels/cross_entropy_loss.py); "
    "LlamaModel_fast_forward drops the attention mask in training",
    (("norms", "own"), ("rotary", "kernel")),
    adapted=(("swiglu", "remade"),),
    loss="fused-compiled",
    before="in-place-fp32",
    loss_since=(2025, 8),
    unmasked=True,
)
AXOLOTL = Kernels(
    "axolotl",
    "axolotl-ai-cloud/axolotl src/axolotl/kernels/lora.py, LoRA_MLP, LoRA_QKV, LoRA_O, after unsloth's; "
    "utils/schemas/config.py, check_auto_enable_lora_kernels since ecac73192 (29 April 2025, 0.10)",
    (),
    adapted=(("swiglu", "remade"),),
    without=("int8",),
    texts=True,
    since=(0, 10),
)
AXOLOTL_ON_LIGER = Kernels(
    "axolotl-liger",
    "axolotl's Liger plugin replaces the class's norms, rotary embedding and MLP before the model is loaded; its "
    "functions of adapters then replace the forward pass of each MLP and of the projections in each attention "
    "(src/axolotl/monkeypatch/lora_kernels.py, apply_lora_kernel_patches, at 067b021c8), and leave the others",
    LIGER.facts,
    adapted=AXOLOTL.adapted,
    without=AXOLOTL.without,
    loss=LIGER.loss,
)
KERNELS = {one.name: one for one in (LIGER, UNSLOTH, AXOLOTL, AXOLOTL_ON_LIGER)}


def together(named: Kernels, usual: Kernels | None) -> Kernels:
    """Return the kernels that a run has if a trainer's usual ones stay next to those that it names."""
    return AXOLOTL_ON_LIGER if (named, usual) == (LIGER, AXOLOTL) else named
