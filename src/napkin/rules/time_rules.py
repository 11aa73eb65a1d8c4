"""N1: settings that slow down a step although memory is free."""

from __future__ import annotations

from collections.abc import Iterator

from napkin.rules import degrees, kernels
from napkin.rules.case import Configuration
from napkin.rules.numbers import halves
from napkin.rules.rule import Hit, Rule

WEAKER = {
    "full": ("none", "operations", "selective", "every:2"),
    "every": ("none", "selective"),
    "group": ("none", "selective", "every:2"),
    "operations": ("none",),
    "selective": ("none",),
}
"""Kind of recomputation → kinds that recompute less."""


def _recomputed(case: Configuration) -> Iterator[Hit]:
    kind = case.layout.recompute
    if kind.kind != "none":
        words = WEAKER[kind.kind]
        batch = str(int(case.layout.global_samples))
        smaller = [{"micro-batch": str(n), "global-batch": batch} for n in halves(int(case.layout.micro))]
        changes = tuple({"recompute": word, **less} for word in words for less in ({}, *smaller))
        said = f"recompute {kind.word} recomputes activations that fit in memory"
        yield Hit(said, "recompute", changes, ordered=True)


def _gathered(case: Configuration) -> Iterator[Hit]:
    layout = case.layout
    if layout.zero == 3 and layout.dp * layout.cp > 1 and case.setup.implementation.tuning is None:
        lower = ("2",) if case.setup.framework.gathers else ("1", "2")
        yield Hit("ZeRO-3 gathers parameters that fit unsharded", "zero", tuple({"zero": stage} for stage in lower))


def _small(case: Configuration) -> Iterator[Hit]:
    layout = case.layout
    if not case.fits:
        return
    sizes = (int(layout.micro) * times for times in (2, 4, 8, 16))
    batch = str(int(layout.global_samples))
    fitting = [micro for micro in sizes if int(layout.global_samples) % (micro * int(layout.dp)) == 0]
    free = ((case.capacity or 0) - (case.used or 0)) / 2**30
    if fitting:
        changes = tuple({"micro-batch": str(micro), "global-batch": batch} for micro in fitting)
        yield Hit(f"micro-batch {int(layout.micro)} leaves {free:.1f} GiB free", "micro-batch", changes)


RULES = (
    Rule(
        "N101",
        "recompute-with-memory-free",
        "Activations are recomputed that would fit in memory",
        "Recomputation runs forward passes again, up to a third more compute. If the step fits without it, "
        "with less of it, or with smaller micro-batches, that time is wasted.",
        "llama3-8b --gpus 64 --hardware h100 --zero 3 --framework fsdp --recompute full",
        find=_recomputed,
        sources=("Korthikanti et al. 2022, arXiv:2205.05198, section 5",),
    ),
    Rule(
        "N102",
        "zero3-where-less-fits",
        "ZeRO-3 gathers parameters in every pass although they fit unsharded",
        "Stage 3 moves 1.5 times as many bytes as stages 1 and 2, to save memory that is free here.",
        "llama3.2-1b --gpus 64 --hardware a100 --zero 3 --stack fsdp-eager",
        find=_gathered,
        sources=("Rajbhandari et al. 2020, arXiv:1910.02054, section 7",),
        least=0.01,
    ),
    Rule(
        "N104",
        "micro-batch-too-small",
        "A larger micro-batch fits and is faster",
        "Small micro-batches leave matrix units idle and pay host and gather costs more often; a larger one fits.",
        "gpt2 --gpus 8 --hardware a100 --seq 1024 --global-batch 256 --framework fsdp --zero 3",
        find=_small,
        sources=("NVIDIA, Matrix Multiplication Background User's Guide: tile and wave quantization",),
    ),
    *degrees.RULES,
    *kernels.RULES,
)
