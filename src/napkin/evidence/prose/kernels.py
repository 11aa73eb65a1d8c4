"""The attention kernel that ran where a published row of a training step states none, by its software and date."""

from __future__ import annotations

import re

from napkin.evidence.prose.recognize import month_or_year_of, words_of_source
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.steps import TIMED_KERNELS
from napkin.evidence.rows.words import timed_kernel
from napkin.record import record

USUAL = ""
"""The kernel that is usual with the row's software stack."""


@record
class OwnKernel:
    """The attention kernel that a program runs unless its configuration names another.

    names    words for the program, each of which is enough
    kernels  (year and month from which on, kernel), the first one from 0 on
    without  words that name another kernel
    """

    names: tuple[str, ...]
    kernels: tuple[tuple[int, str], ...]
    without: tuple[str, ...] = ()


OWN = (
    # its recipes left use_flash_attention off (NVIDIA/NeMo-Framework-Launcher launcher_scripts/conf/training/gpt3)
    OwnKernel(("nemo framework launcher", "nemo megatron launcher"), ((0, "eager"), (202401, USUAL))),
    # its own attention is unfused, Transformer Engine's is not (NVIDIA/JAX-Toolbox rosetta/projects/pax)
    OwnKernel(("pax", "paxml"), ((0, "eager"),), without=("transformer engine",)),
    # its benchmarks ran the first FlashAttention (mosaicml/llm-foundry scripts/train/benchmarking/sweep.py at 5e85bd6)
    OwnKernel(("foundry",), ((0, "flash1"), (202401, "flash2"))),
    OwnKernel(("megatron bridge",), ((0, "cudnn"),)),
)
FUSED = 202201
"""The month from which on there is fused attention (Dao et al. 2022, arXiv:2205.14135)."""


def kernels_of(row: RowFields, stack: str) -> tuple[str, str]:
    """Return the attention kernel that a row states in other words than the fit's, or that its software ran, and that
    of a later release if the row leaves the release open; USUAL and "" if nothing is known."""
    said = row.text("layout.attention").lower()
    if said:
        return USUAL if said in TIMED_KERNELS else timed_kernel(said), ""
    if stack in ("megatron", "megatron-deepspeed"):
        return USUAL, ""
    words, month = f"{words_of_source(row)} {row.text('layout.precision').lower()}", month_or_year_of(row)
    for own in OWN:
        if _names(words, own.names) and not _names(words, own.without):
            return _at(own, month)
    return "eager" if not stack and (month or FUSED) < FUSED else USUAL, ""


def _at(own: OwnKernel, month: int | None) -> tuple[str, str]:
    """Return the program's kernel in a month, and "". Of a release that is not known, return its first kernel and its
    last one, or the usual one if that is the last."""
    first, last = own.kernels[0][1], own.kernels[-1][1]
    if month is not None:
        return next(kernel for since, kernel in reversed(own.kernels) if month >= since), ""
    if last == USUAL or first == last:
        return last, ""
    return first, last


def _names(words: str, names: tuple[str, ...]) -> bool:
    """Return whether one of these names is among the words, whatever joins theirs."""
    spaced = f" {re.sub('[^a-z0-9]+', ' ', words)} "
    return any(f" {name} " in spaced for name in names)
