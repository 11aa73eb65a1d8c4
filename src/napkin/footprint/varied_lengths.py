"""What the allocator's cache holds because no two micro-batches of a run are as long."""

from __future__ import annotations

import math

from napkin.footprint.allocator import Figure

VARIED = Figure(
    2.0,
    1.16,
    3.5,
    "gaps where no two micro-batches are as long, of what is as long as they are: 8 LoRA runs of fms-acceleration "
    "on one GPU (scripts/benchmarks/refs_orca/a100_80gb_pf.csv), nvidia-smi against max_memory_allocated: 2.0 to 2.1 "
    "where rows are padded, 2.7 to 3.5 where they are joined; 8 on two GPUs: 1.2 to 2.2. A micro-batch longer than all "
    "before finds no block large enough, and theirs stay: the allocator's rules, simulated over lognormal lengths of a "
    "7B model with frozen weights, give 1.75 to 4.1, by their order",
)
VARIED_BETWEEN_GRADIENTS = Figure(
    2.4,
    1.16,
    6.0,
    "the same where gradients of all weights stay between micro-batches and keep the free blocks next to them from "
    "joining: 16 FSDP runs of refs_orca (a100_80gb_pf.csv, a100_80gb_mp.csv), beyond their measured "
    "max_memory_allocated, gradients and temporaries: 1.7 to 3.2 of what the formulas count, the median 2.4; the same "
    "simulation gives 1.2 to 1.4 times what it gives with frozen weights. Mixtures of experts (refs/a100_80gb_moe.csv) "
    "show more, up to 6: logits are most of what comes and goes there (OF_HEAD)",
)
PASSES, EARLY = 1_400, 30
"""Micro-batches of those runs on each GPU, 1,000 or 2,000; after how many a figure is read whose source does not say
(assumed)."""
GROWTH = (0.3, 0.18)
"""How what is lost grows with the number n of micro-batches: as 0.3 + 0.18 · ln n, of what is as long as the longest so
far. A longer one comes ever more rarely. By the same simulation of three models with frozen weights: 0.5 after 3, 0.7
after 10, 1.1 after 100, 1.5 after 800, the means of 6 orders each."""
OF_HEAD, OF_LAYERS = 2.3, 0.56
"""Shares of what is lost of the head's tensors and of the rest, relative to those runs, of which the head's are about a
quarter. Logits and their copies are a few blocks larger than all others, so that a longer micro-batch finds none. The
simulation gives 3.3 and 0.8 of their bytes after 400 micro-batches of models whose logits are a fifth to two thirds of
what passes, in mixtures of experts too: this ratio."""


def _grown(passes: float) -> float:
    """Return what the cache holds after this many micro-batches, in multiples of what it holds after those of the runs
    that were measured."""
    first, per_fold = GROWTH
    return (first + per_fold * math.log(passes)) / (first + per_fold * math.log(PASSES))


def held_by_lengths(
    layers: float, head: float, freed: float, divided: bool, stay: bool, passes: float, end: str
) -> float:
    """Return the bytes that the cache holds because no two micro-batches are as long.

    layers, head  bytes that come and go and are as long as a micro-batch: of the layers, and of the head and the loss
    freed    bytes that the optimizer step frees. The next step wants the same sizes, so that they are lost only as far
             as activations came in their way
    divided  the gradients are, and all that is freed is lost: their reductions' stream allocates the shards for itself,
             and whole gradients are not free again before it is done with them (torch/distributed/fsdp/
             _runtime_utils.py, _post_backward_hook; c10/cuda/CUDACachingAllocator.cpp, recordStream)
    stay     gradients of all weights stay between micro-batches
    passes   micro-batches of the run, 0 if unknown
    end      the likely figure (`value`), or an end (`low`, `high`)"""
    varied = (OF_LAYERS * layers + OF_HEAD * head) * _grown(passes or EARLY)
    lost = (VARIED_BETWEEN_GRADIENTS if stay else VARIED).beyond(end) * varied
    return lost + (freed if divided else min(freed, lost))
