"""N1: degrees of parallelism that are slower than others on the same GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from napkin.rules.case import Configuration, Options
from napkin.rules.numbers import divisors, halves, nearest
from napkin.rules.rule import EITHER, Hit, Rule

BUBBLE = 0.1
"""Share of a step from which a pipeline bubble is checked."""
OF_TP: Options = {"sp": None}
OF_PP: Options = {"vp": None, "chunk-layers": None, "schedule": None, "stage-layers": None}
"""Options that have no meaning without tensor parallelism, and without a pipeline."""


def _across_nodes(case: Configuration) -> Iterator[Hit]:
    tp, node = int(case.layout.tp), case.stated.node
    if node and tp > node:
        changes = tuple(_fewer(case, "tp", t) for t in halves(tp) if t <= node)
        yield Hit(f"tp {tp} spans {-(-tp // node)} nodes of {node} GPUs", "tp", changes)


def _fewer(case: Configuration, name: str, degree: int) -> Options:
    """Return the change to fewer ranks of one kind; options without meaning for them are removed."""
    idle = {"tp": OF_TP, "pp": OF_PP}.get(name, {}) if degree == 1 else {}
    return {**case.degrees(**{name: degree}), **{one: None for one in idle if one in case.given}}


def _tensor(case: Configuration) -> Iterator[Hit]:
    tp, node = int(case.layout.tp), case.stated.node
    if 1 < tp <= max(node, 1):
        said = f"tp {tp} is more than the layers need"
        yield Hit(said, "tp", tuple(_fewer(case, "tp", t) for t in halves(tp)))


def _pipeline(case: Configuration) -> Iterator[Hit]:
    pp = int(case.layout.pp)
    if pp > 1:
        said = f"{pp} pipeline stages, and fewer would fit"
        yield Hit(said, "pp", tuple(_fewer(case, "pp", p) for p in halves(pp)))


def _context(case: Configuration) -> Iterator[Hit]:
    cp, seq = int(case.layout.cp), int(case.layout.seq)
    if cp > 1:
        said = f"cp {cp} divides {seq:,} tokens that fit on fewer GPUs"
        yield Hit(said, "cp", tuple(_fewer(case, "cp", c) for c in halves(cp)))


def _experts(case: Configuration) -> Iterator[Hit]:
    ep, node = int(case.layout.ep), case.stated.node
    if node and ep * int(case.layout.tp) > node:
        said = f"ep {ep} sends tokens between {-(-ep * int(case.layout.tp) // node)} nodes in every layer"
        yield Hit(said, "ep", tuple({"ep": str(e)} for e in halves(ep)))


def _bubble(case: Configuration) -> Iterator[Hit]:
    layout, part = case.layout, case.part("bubble")
    if layout.pp == 1 or part < BUBBLE:
        return
    depth, pp, vp = case.model.stacks[-1].depth, int(layout.pp), int(layout.vp)
    changes: list[Options] = []
    if depth % pp == 0 and not layout.stages:
        chunks = [v for v in range(vp + 1, depth // pp + 1) if (depth // pp) % v == 0]
        changes += [{"vp": str(v), "schedule": None} for v in chunks]
    batch = str(int(layout.global_samples))
    changes += [{"micro-batch": str(m), "global-batch": batch} for m in halves(int(layout.micro))]
    if vp == 1:
        changes.append({"schedule": "zero-bubble"})
    count = int(layout.micro_batches)
    yield Hit(f"the bubble is {part:.0%} of the step: {pp} stages, {count} micro-batches", "pp", tuple(changes))


def _uneven(case: Configuration) -> Iterator[Hit]:
    layout, depth = case.layout, case.model.stacks[-1].depth
    pp = int(layout.pp)
    if pp > 1 and depth % pp and not layout.stages:
        fullest = -(-depth // pp)
        near = [p for p in nearest(pp, divisors(depth)) if p > 1]
        said = f"{depth} layers on {pp} stages; the fullest has {fullest}, the mean {depth / pp:.1f}"
        yield Hit(said, "pp", tuple(_fewer(case, "pp", p) for p in near))


def _sharded(case: Configuration) -> Iterator[Hit]:
    layout, node = case.layout, case.stated.node
    ranks, shards = int(layout.dp * layout.cp), int(case.setup.shards)
    inside = node // int(layout.tp) if node else 0
    if layout.zero == 3 and 1 < inside < ranks:
        groups = [g for g in (inside, 2 * inside, 4 * inside, ranks) if ranks % g == 0 and g != shards]
        said = f"ZeRO-3 shards over groups of {shards} of {ranks} ranks; another size communicates less"
        yield Hit(said, "dp-shard", tuple({"dp-shard": str(g)} for g in groups))


def _interleaved(case: Configuration) -> Iterator[Hit]:
    vp = int(case.layout.vp)
    if vp > 1:
        said = f"{vp} model chunks per stage cost more communication than they save in bubble"
        fewer: list[Options] = [{"vp": str(v)} for v in range(1, vp) if vp % v == 0 and v > 1]
        yield Hit(said, "vp", (*fewer, {"vp": "1", "schedule": None}))


def _unsplit(case: Configuration) -> Iterator[Hit]:
    if case.layout.tp > 1 and not case.layout.sp:
        said = "norms and dropout run on every tensor-parallel rank on all tokens"
        yield Hit(said, "sp", ({"sp": True},))


def _exposed(case: Configuration) -> Iterator[Hit]:
    if case.layout.tp > 1 and "async-tp" not in case.given and case.stack is not None and not case.stack.overlap:
        said = f"{case.stack.name} waits for the collectives of tp {int(case.layout.tp)}"
        yield Hit(said, "tp", ({"async-tp": True},))


RULES = (
    Rule(
        "N103",
        "tensor-parallel-across-nodes",
        "Tensor parallelism spans several nodes",
        "Each layer all-reduces activations four times over the tensor-parallel ranks; between nodes they "
        "cross the network, which is several times slower than the link inside a node.",
        "llama3-8b --gpus 64 --hardware h100 --tp 16 --zero 1 --global-batch 128 --framework megatron-core",
        find=_across_nodes,
        sources=("Narayanan et al. 2021, arXiv:2104.04473, section 3.2, takeaway 1",),
    ),
    Rule(
        "N105",
        "pipeline-bubble",
        "The pipeline bubble is large",
        "Stages idle for (p−1)/(v·m) of their compute time. More model chunks, smaller micro-batches or a "
        "schedule that fills the bubble reduce it.",
        "llama3-70b --gpus 128 --hardware h100 --tp 8 --pp 8 --zero 1 --global-batch 16 --recompute full",
        find=_bubble,
        sources=("Narayanan et al. 2021, arXiv:2104.04473, section 2.2", "Qi et al. 2023, arXiv:2401.10241"),
    ),
    Rule(
        "N106",
        "tensor-parallel-needless",
        "Fewer tensor-parallel ranks fit and are faster",
        "Tensor parallelism exchanges activations in every layer and makes matmuls narrower; as data parallelism the "
        "same GPUs exchange gradients once a step.",
        "llama3-8b --gpus 64 --hardware h100 --tp 8 --zero 1 --global-batch 256",
        find=_tensor,
        sources=("Narayanan et al. 2021, arXiv:2104.04473, section 3.3, takeaway 2",),
    ),
    Rule(
        "N107",
        "pipeline-needless",
        "Fewer pipeline stages fit and are faster",
        "Each stage adds a slot to the bubble; the same GPUs used for data parallelism have none.",
        "llama3-8b --gpus 64 --hardware h100 --pp 4 --zero 1 --global-batch 256",
        find=_pipeline,
        sources=("Narayanan et al. 2021, arXiv:2104.04473, section 3.3, takeaway 2",),
    ),
    Rule(
        "N108",
        "context-parallel-at-short-sequence",
        "Fewer context-parallel ranks hold the sequence and are faster",
        "Context parallelism exchanges keys and values in every layer, for activations that fit without it.",
        "llama3-8b --gpus 64 --hardware h100 --cp 4 --zero 1 --seq 4096 --global-batch 256 --recompute selective",
        find=_context,
        sources=("Liu et al. 2023, Ring Attention, arXiv:2310.01889, section 3",),
    ),
    Rule(
        "N109",
        "expert-parallel-across-nodes",
        "Expert parallelism sends tokens between nodes",
        "Each layer sends every token to its experts and back; between nodes that is limited by the network.",
        "deepseek-moe-16b --gpus 64 --hardware h100 --ep 32 --zero 1",
        find=_experts,
        sources=("Rajbhandari et al. 2022, DeepSpeed-MoE, arXiv:2201.05596, section 5",),
    ),
    Rule(
        "N110",
        "uneven-stages",
        "Pipeline stages hold different numbers of layers",
        "A pipeline runs at the pace of its fullest stage; a number of stages that divides the layers wastes nothing.",
        "llama3-70b --gpus 96 --hardware h100 --tp 4 --pp 6 --zero 1 --global-batch 768 --recompute full",
        find=_uneven,
        sources=("Narayanan et al. 2021, arXiv:2104.04473, section 2.2",),
    ),
    Rule(
        "N111",
        "sharding-group",
        "The ZeRO-3 sharding-group size is not the fastest",
        "Groups inside a node gather parameters over the link, and reduce gradients between the groups over the "
        "network, where nothing hides it; one group of all ranks hides more of both. Which is faster depends on both "
        "rates and on the work between them.",
        "llama3-8b --gpus 64 --hardware h100 --zero 3 --dp-shard 8 --framework fsdp --recompute full --seq 2048",
        find=_sharded,
        sources=("pytorch/pytorch torch/distributed/fsdp/api.py, ShardingStrategy.HYBRID_SHARD",),
    ),
    Rule(
        "N112",
        "interleaving-costs-more",
        "Fewer model chunks per stage are faster",
        "Interleaving divides the bubble by the number of chunks per stage and multiplies the traffic between "
        "stages by it. With many micro-batches there is little bubble to save.",
        "llama3-8b --gpus 16 --hardware l40s --pp 8 --vp 4 --zero 1 --global-batch 2048 --recompute full",
        find=_interleaved,
        sources=("Narayanan et al. 2021, arXiv:2104.04473, section 2.2.2",),
        least=0.005,
    ),
    Rule(
        "N113",
        "sequence-parallel-off",
        "Tensor-parallel ranks repeat norms and keep their full inputs",
        "Sequence parallelism divides what tensor parallelism replicates, and moves the same number of bytes: "
        "reduce-scatter and all-gather instead of all-reduce.",
        "llama3-70b --gpus 64 --hardware h100 --tp 8 --no-sp --zero 1 --recompute full --global-batch 64",
        find=_unsplit,
        gains=EITHER,
        sources=("Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2",),
    ),
    Rule(
        "N114",
        "tensor-collectives-exposed",
        "Tensor-parallel collectives are not hidden behind matmuls",
        "Collectives that are split into chunks overlap with the matmuls that need them.",
        "llama3-8b --gpus 8 --hardware h100 --tp 4 --zero 3 --stack fsdp-compiled --global-batch 64",
        find=_exposed,
        sources=("pytorch/torchtitan torchtitan/distributed/tensor_parallel.py, maybe_enable_async_tp",),
    ),
)
