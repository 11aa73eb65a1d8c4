"""N1: what makes a step slower than it needs to be."""

from __future__ import annotations

from collections.abc import Iterator

from napkin.rules.case import Configuration
from napkin.rules.rule import Hit, Rule

WEAKER = {
    "full": ("none", "operations", "selective", "every:2"),
    "every": ("none", "selective"),
    "group": ("none", "selective", "every:2"),
    "operations": ("none",),
    "selective": ("none",),
}
"""Kind of recomputation → those that run less again."""
BUBBLE = 0.1
"""Share of a step from which on a pipeline's bubble is looked at."""


def _recomputed(case: Configuration) -> Iterator[Hit]:
    kind = case.layout.recompute
    if kind.kind != "none":
        words = WEAKER.get(kind.kind, ("none",))
        batch = str(int(case.layout.global_samples))
        smaller = ({"micro-batch": str(n), "global-batch": batch} for n in _halves(int(case.layout.micro)))
        changes = tuple({"recompute": word, **less} for less in ({}, *smaller) for word in words)
        yield Hit(f"recompute {kind.word} runs forward passes again that fit in memory", "recompute", changes)


def _gathered(case: Configuration) -> Iterator[Hit]:
    layout = case.layout
    if layout.zero == 3 and layout.dp * layout.cp > 1 and not case.setup.implementation.tuning:
        lower = ("2",) if case.setup.framework.gathers else ("1", "2")
        yield Hit(
            "ZeRO-3 gathers parameters that fit undivided",
            "zero",
            tuple({"zero": stage} for stage in lower),
        )


def _across_nodes(case: Configuration) -> Iterator[Hit]:
    layout, node = case.layout, case.stated.node
    if node and layout.tp > node:
        smaller = [t for t in _halves(int(layout.tp)) if t <= node]
        yield Hit(
            f"tp {int(layout.tp)} spans {-(-int(layout.tp) // node)} nodes of {node} GPUs",
            "tp",
            tuple(case.degrees(tp=t) for t in smaller),
        )


def _halves(degree: int) -> list[int]:
    """Return a degree halved again and again."""
    found = []
    while degree % 2 == 0:
        degree //= 2
        found.append(degree)
    return found


def _small(case: Configuration) -> Iterator[Hit]:
    layout = case.layout
    if not case.fits:
        return
    changes = []
    for times in (2, 4, 8, 16):
        micro = int(layout.micro) * times
        if layout.global_samples % (micro * layout.dp) == 0:
            changes.append({"micro-batch": str(micro), "global-batch": str(int(layout.global_samples))})
    free = (case.capacity or 0) - (case.used or 0)
    if changes:
        yield Hit(f"micro-batch {int(layout.micro)} leaves {free / 2**30:.1f} GiB free", "micro-batch", tuple(changes))


def _bubble(case: Configuration) -> Iterator[Hit]:
    layout = case.layout
    part = case.part("bubble")
    if layout.pp == 1 or part < BUBBLE:
        return
    depth, pp, vp = case.model.stacks[-1].depth, int(layout.pp), int(layout.vp)
    changes: list[dict[str, str | bool | None]] = []
    if depth % pp == 0 and not layout.stages:
        chunks = [v for v in range(vp + 1, depth // pp + 1) if (depth // pp) % v == 0]
        changes += [{"vp": str(v)} for v in chunks]
    micro = int(layout.micro)
    if micro > 1:
        changes += [{"micro-batch": str(m), "global-batch": str(int(layout.global_samples))} for m in _halves(micro)]
    found = [*changes, *(case.degrees(pp=p) for p in _halves(pp))]
    yield Hit(
        f"the pipeline's bubble is {part:.0%} of the step: {pp} stages, {int(layout.micro_batches)} micro-batches",
        "pp",
        tuple(found),
    )


RULES = (
    Rule(
        "N101",
        "recompute-with-memory-free",
        "Activations are recomputed that would fit in memory",
        "Recomputation runs forward passes again, up to a third more compute. Where the step fits without it, or with "
        "less of it, or in smaller micro-batches, that time is wasted.",
        "llama3-8b --gpus 64 --hardware h100 --zero 3 --framework fsdp --recompute full",
        _recomputed,
        sources=("Korthikanti et al. 2022, arXiv:2205.05198, section 5",),
    ),
    Rule(
        "N102",
        "zero3-where-less-fits",
        "ZeRO-3 gathers parameters in every pass though they fit undivided",
        "Stage 3 moves each parameter twice more a step than stages 1 and 2 (1.5 times their traffic), for memory "
        "that is free here.",
        "llama3.2-1b --gpus 64 --hardware a100 --zero 3 --stack fsdp-eager",
        _gathered,
        sources=("Rajbhandari et al. 2020, arXiv:1910.02054, section 7",),
        least=0.01,
    ),
    Rule(
        "N103",
        "tensor-parallel-across-nodes",
        "Tensor parallelism leaves the node",
        "Each layer adds up activations four times over the tensor-parallel ranks; between nodes they move over the "
        "network, which is several times slower than the link inside a node.",
        "llama3-8b --gpus 64 --hardware h100 --tp 16 --zero 1 --global-batch 128 --framework megatron-core",
        _across_nodes,
        sources=("Narayanan et al. 2021, arXiv:2104.04473, section 3.2, takeaway 1",),
    ),
    Rule(
        "N104",
        "micro-batch-too-small",
        "A larger micro-batch fits and is faster",
        "Small micro-batches leave matrix units idle, pay host and gather costs more often, and a larger one fits.",
        "gpt2 --gpus 8 --hardware a100 --seq 1024 --global-batch 256 --framework fsdp --zero 3",
        _small,
        sources=("NVIDIA, Matrix Multiplication Background User's Guide: tile and wave quantization",),
    ),
    Rule(
        "N105",
        "pipeline-bubble",
        "The pipeline's bubble is over 10 % of the step",
        "Stages idle for (p−1)/(v·m) of the time that they compute. More model chunks, more micro-batches or fewer "
        "stages make that smaller.",
        "llama3-70b --gpus 128 --hardware h100 --tp 8 --pp 8 --zero 1 --global-batch 16 --recompute full",
        _bubble,
        sources=("Narayanan et al. 2021, arXiv:2104.04473, section 2.2",),
    ),
)
