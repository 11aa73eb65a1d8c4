"""What the software of a fine-tuning row does where the row does not say: the attention kernel, dropout, and the memory
of CUDA itself, by the versions that the row states."""

from __future__ import annotations

from napkin.evidence.finetuning.lengths import RowLengths
from napkin.evidence.finetuning.software import reads_no_mask
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.words import MASK, SDPA, kernel_of_torch, timed_kernel
from napkin.evidence.software.scripts import scripts_of_library
from napkin.footprint.allocator import CONTEXT, CONTEXT_EAGER, Figure
from napkin.inputs.class_facts import read_by_class
from napkin.operations.implementations import EAGER, Implementation
from napkin.operations.model import Model
from napkin.training.layout import Layout
from napkin.training.trainer import Trainer
from napkin.training.versions import is_before

FIRST_SDPA = (4, 36)
"""The release of transformers whose classes first run scaled_dot_product_attention unless they are told otherwise
(huggingface/transformers pull request 26572); before, attention multiplies, masks and normalizes step by step."""
LAZY = (1, 13)
"""The first release of torch with builds for CUDA 11.7, which loads kernels when they are first used."""


def attention_of(row: RowFields, implementation: Implementation) -> str:
    """Return the attention kernel; torch's choice without a mask is that of its version or flash (of no stated
    version), and so is a kernel of another name. Classes of transformers that know no other run step by step."""
    words, versions = row.text("layout.attention").lower(), row.text("layout.versions")
    if not words and implementation.of_transformers and is_before("transformers", versions, FIRST_SDPA):
        return EAGER
    return kernel_of_torch(words, versions) or timed_kernel(words) or "flash"


def kernel_of_memory(kernel: str) -> str:
    """Return an attention kernel as memory knows it: no release of FlashAttention keeps more than another."""
    return "flash" if kernel == "flash2" else kernel


def gets_mask(row: RowFields, implementation: Implementation, lengths: RowLengths, layout: Layout) -> bool:
    """Return whether torch's attention gets an explicit mask: the row says so, or a class of transformers runs several
    sequences that are padded to the longest (transformers masking_utils.py, sdpa_mask, which leaves it out only where
    no token is padding). A kernel that a row names gets none: FlashAttention takes lengths."""
    words = row.text("layout.attention").lower()
    if MASK.search(words):
        return True
    padded = implementation.of_transformers and lengths.padded and int(layout.sequences) > 1
    return padded and words in SDPA and attention_of(row, implementation) != EAGER and not reads_no_mask(row)


def may_be_old(row: RowFields, trainer: Trainer, implementation: Implementation) -> bool:
    """Return whether a run that states neither versions nor a kernel of attention may be of 2023: its attention step by
    step, and FSDP's blocks of before torch 2.1."""
    kernel = row.text("layout.attention") and attention_of(row, implementation) != EAGER
    stated = kernel or row.text("layout.versions")
    return implementation.of_transformers and not stated and scripts_of_library(trainer).undated


def dropout_of(row: RowFields, model: Model, implementation: Implementation) -> float:
    """Return the probability by which activations are dropped: that of the class's default configuration, which its
    published files repeat, where a class of transformers is trained as it was loaded."""
    stated = row.number("layout.dropout", most=1)
    if stated is not None:
        return stated
    if not implementation.of_transformers:
        return 0.0
    fields = read_by_class(model.family) or {}
    shares = [value for name, value in fields.items() if _is_dropout(name) and isinstance(value, float)]
    return max(shares, default=0.0)


def _is_dropout(name: str) -> bool:
    """Return whether a field of a configuration is a dropout inside the layers: not of a head, nor of whole layers."""
    return ("dropout" in name or name.endswith("_pdrop")) and not name.startswith("classifier")


def context_of(row: RowFields) -> Figure:
    """Return what CUDA itself takes."""
    return CONTEXT_EAGER if is_before("torch", row.text("layout.versions"), LAZY) else CONTEXT
