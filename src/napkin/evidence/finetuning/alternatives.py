"""How else a fine-tuning run may have run, as its row leaves open: the defaults of other versions of its software, and
what its script may set."""

from __future__ import annotations

from napkin.architectures import implementation_of
from napkin.evidence.finetuning.defaults import may_be_old
from napkin.evidence.finetuning.software import may_fuse_loss, offload_of, trainer_of
from napkin.evidence.prose.recognize import date_of
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.setups import FIRST_CODE
from napkin.operations.implementations import CUT_IN_FP32, CUT_IN_FUNCTION
from napkin.operations.model import Model
from napkin.record import replace
from napkin.training.recomputation import recompute
from napkin.training.setup import Setup
from napkin.training.tasks import loss_of
from napkin.training.versions import version_of


def alternatives_of(row: RowFields, model: Model, setup: Setup, loss: str) -> tuple[Setup, ...]:
    """Return setups that the row leaves open too. loss: of texts, as the row is read."""
    found = []
    if may_be_old(row, trainer_of(row), setup.implementation):
        found.append(_of_2023(setup))
    if setup.framework.editions and date_of(row) is None:
        found.append(_before_editions(model, setup))
    fused = may_fuse_loss(row, loss)
    if fused:
        found.append(_with_loss(setup, fused))
    if _may_keep(row, setup):
        found.append(_without_checkpoints(row, setup))
    if setup.implementation.of_transformers and version_of("transformers", row.text("layout.versions")) is None:
        found.append(_copying_logits(setup, CUT_IN_FUNCTION))
        if model.experts and not setup.implementation.looped:
            found.append(_with_linear_experts(setup))
    return tuple(found)


def _of_2023(setup: Setup) -> Setup:
    """Return a setup as the releases of 2023 ran it: attention step by step, frozen blocks that stay gathered, logits
    that are copied."""
    keeps = setup.framework.under_library and setup.implementation.tuning is not None
    old = replace(setup, attention="eager", framework=replace(setup.framework, keeps_frozen=keeps))
    return _copying_logits(old, CUT_IN_FP32)


def _before_editions(model: Model, setup: Setup) -> Setup:
    """Return a setup with the loss of its framework's first code."""
    base = implementation_of(setup.implementation.name, model.family)
    first = setup.framework.implements(base, setup.compiled, setup.layout.tp > 1, FIRST_CODE)
    return _with_loss(setup, first.loss)


def _copying_logits(setup: Setup, cuts: str) -> Setup:
    """Return a setup of transformers before 4.49, whose own loss copies the logits; cuts: as its releases cast them."""
    implementation = setup.implementation
    if not implementation.shifted or implementation.loss:
        return setup
    return replace(setup, implementation=replace(implementation, shifted=False, cuts=cuts))


def _with_linear_experts(setup: Setup) -> Setup:
    """Return a setup of transformers 4, where experts are linear layers in most classes, quantized with the others."""
    implementation = setup.implementation
    return replace(setup, implementation=replace(implementation, looped=implementation.looped_in_4))


def _with_loss(setup: Setup, loss: str) -> Setup:
    """Return a setup with another loss of text."""
    found = loss_of(setup.task, loss, setup.precision, log_probs=setup.implementation.log_probs)
    return replace(setup, implementation=replace(setup.implementation, loss=found))


def _may_keep(row: RowFields, setup: Setup) -> bool:
    """Return whether a run that says nothing of it may have checkpointed no block, though its library usually does."""
    if row.text("layout.recompute") or setup.layout.recompute.kind != "full":
        return False
    stored = bool(row.text("method.quantized") or row.text("method.quantised"))
    return trainer_of(row).may_keep(row.text("layout.versions"), stored)


def _without_checkpoints(row: RowFields, setup: Setup) -> Setup:
    """Return a setup that keeps what every block saves."""
    layout = setup.layout.replaced(recompute=recompute("none", "recompute"))
    return replace(setup, layout=layout, offload=offload_of(row, trainer_of(row), layout.recompute))
