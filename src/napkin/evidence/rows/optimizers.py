"""The optimizer of a measured row."""

from __future__ import annotations

from napkin.errors import NapkinError
from napkin.evidence.rows.row import RowFields
from napkin.training import optimizer_names
from napkin.training.optimizer import Optimizer
from napkin.training.versions import TRANSFORMERS_5, is_before

MULTI_TENSOR = (2, 0)
"""The first release of torch whose optimizers step over lists of tensors unless they are told otherwise
(pytorch/pytorch torch/optim/adamw.py, _default_to_fused_or_foreach)."""


def optimizer_of(row: RowFields, usual: str = "adamw") -> tuple[Optimizer, str, bool]:
    """Return the optimizer, its form, and whether it runs in the backward pass. usual: where the row names none.

    Raises NapkinError (2) for an unknown one."""
    name, in_backward = optimizer_names.in_words(row.text("layout.optimizer") or usual)
    optimizer, form = optimizer_names.find(name)
    own, versions = "fused" if "fused" in optimizer.forms else optimizer.forms[0], row.text("layout.versions")
    if is_before("torch", versions, MULTI_TENSOR) and "forloop" in optimizer.forms:
        own = "forloop"
    elif is_before("transformers", versions, TRANSFORMERS_5) and "foreach" in optimizer.forms:
        own = "foreach"
    stated = row.text("layout.optimizer_form") or form or own
    return optimizer, stated, in_backward or bool(row.flag("layout.optimizer_in_backward"))


def name_of(row: RowFields) -> str:
    """Return the optimizer's name in napkin, "" if the row does not say; an unknown one as the row has it."""
    words = row.text("layout.optimizer").strip()
    try:
        return optimizer_of(row)[0].name if words else ""
    except NapkinError:
        return words
