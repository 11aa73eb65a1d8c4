"""From live tensors to the memory that a GPU reports: allocated, reserved and used, each with an interval.

    allocated = live · (1 + rounding) + workspaces of matmuls            torch.cuda.max_memory_allocated
    reserved  = allocated + apart + streams + gaps                       torch.cuda.max_memory_reserved
    used      = reserved + CUDA context + buffers of communicators and of exchanges   what nvidia-smi shows

The shares come from published runs or from the source of the libraries; none of them is exact. Bytes are integers: a
share of bytes is rounded up, the ends of an interval outwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from napkin.elementwise import Flag, Number, ceiling, floor, is_zero, maximum, minimum, total, where
from napkin.inputs.peaks import SINCE_HOPPER
from napkin.record import record, replace
from napkin.term import ASSUMED, SEEN, TRUE, Term, add, leaf, multiply
from napkin.term import ceiling as rounded_up
from napkin.training.setup import EXACT, Setup, Width


@record
class Figure:
    """A figure with its published range and source."""

    value: float
    low: float
    high: float
    source: str

    def beyond(self, end: str) -> float:
        """Return how far a multiple is above one: its value, or its low or high end."""
        return float(round(getattr(self, end) - 1, 6))


ROUNDING = Figure(0.003, 0.0, 0.015, "26 runs of LitGPT's fine-tuning table: allocated lies 0.3 % above live tensors")
WORKSPACE = Figure(
    8_519_680,
    8_519_680,
    33_554_432,
    "cuBLAS's for each thread that multiplies: 4,096 KiB × 2 + 16 KiB × 8, from Hopper on 4,096 KiB × 8 "
    "(pytorch/pytorch aten/src/ATen/cuda/CublasHandlePool.cpp, whose handles are a thread's own; "
    "getChosenWorkspaceSize); cuBLASLt's, at most that (PyTorch PR 120925)",
)
THREADS = 2
"""Threads of a training step that multiply: one runs the forward pass, autograd's the backward pass."""
ENGINE_WORKSPACE, STREAMS = 4_194_304, 4
"""TransformerEngine's workspace before Hopper, and the streams of grouped products, each with its own
(transformer_engine/pytorch/module/base.py, get_cublas_workspace_size_bytes, get_multi_stream_cublas_workspace)."""
GAPS = Figure(
    1.16,
    1.08,
    1.25,
    "gaps between what comes and goes: the median of BLOOM's 77 runs 1.20, of torchtitan's 19, compiled or not, 1.17 "
    "with what other streams keep",
)
GAPS_BESIDE = Figure(1.12, 1.03, 1.20, "the same without what other streams keep: the median of torchtitan's 19 runs")
OF_SIMULATION = (
    "the allocator's rules (PyTorch c10/cuda/CUDACachingAllocator.cpp: best fit, blocks split, freed neighbors joined) "
    "applied to the births and deaths of all tensors in two steps of 29 Llama-shaped models with frozen weights; on 40 "
    "others with peft's adapters (tools/simulated_cache.py) what is reserved comes out with a median error of 1.1 %"
)
KEPT = Figure(0.05, 0.0, 0.1, f"gaps between what is kept for the backward pass: {OF_SIMULATION}")
BRIEF = Figure(
    0.175, 0.1, 0.3, f"gaps between what lives no longer than a layer's pass, or the head's: {OF_SIMULATION}"
)
ASIDE = Figure(
    0.6,
    0.4,
    0.8,
    "blocks of a layer's tensors that serve none of the larger ones of head and loss, or the reverse, of the smaller "
    f"sum of both: {OF_SIMULATION}",
)
EXPANDABLE = Figure(
    1.0,
    1.0,
    1.06,
    "segments that grow (PyTorch c10/cuda/CUDACachingAllocator.cpp, ExpandableSegment): freed neighbors join, "
    "so that no size has blocks of its own; assumed: gaps of at most 6 %",
)
PLANNED = Figure(
    1.0,
    1.0,
    1.06,
    "addresses that a compiler assigns for a whole step, the best of several orders of placement (Oneflow-Inc/oneflow "
    "core/job/intra_job_mem_sharing_util.cpp); assumed: gaps of at most 6 %",
)
CONTEXT = Figure(
    450e6,
    287e6,
    1.33e9,
    "CUDA context: 287 to 450 MB loaded lazily (PyTorch PR 86509, issue 109888), 1.0 to 1.3 GB eagerly",
)
CONTEXT_EAGER = Figure(
    1.33e9, 1.0e9, 1.4e9, "CUDA context before 11.7, all kernels loaded: 1,271 MiB stated by BLOOM's chronicles"
)
COMMUNICATION = Figure(
    1.3e9,
    0.5e9,
    3.0e9,
    "NCCL: 1 to 1.6 GB for a communicator, about 6 GB with several (NVIDIA/nccl issues 285, 864, 1685)",
)
EXCHANGE = Figure(
    335_544_320,
    83_886_080,
    671_088_640,
    "NCCL between two GPUs of a server that send to each other: 32 channels (src/graph/paths.cc, "
    "ncclTopoComputeP2pChannels) of 10 MiB: 4, 4.7 and 0.5 MiB for its protocols (src/init.cc, DEFAULT_BUFFSIZE, "
    "DEFAULT_LL128_BUFFSIZE, DEFAULT_LL_BUFFSIZE), in whole 2 MiB (src/transport/p2p.cc, p2pRecvSetup)",
)
SERVER = 8
"""GPUs of a server, which exchange over NVLink; buffers of exchanges over the network are shared (assumed)."""


@record
class Flow:
    """Inputs of the allocator's cache in addition to the peak.

    standing  bytes at the optimizer step: weights, gradients, states and its own buffers
    passing   most bytes that are allocated and freed in a pass: activations, gathered weights, losses
    groups    communicators: one for all ranks, one for each parallel degree among them, and one for the exchanges of
              context- and expert-parallel ranks, whose gradients are reduced over another
    peers     GPUs of the same server with which it exchanges what a layer keeps or routes
    planned   a compiler assigned the addresses: there is no cache
    workspaces  of matrix products
    streams   bytes kept for other streams than that of the passes
    frozen    all weights are, but those of adapters
    layers    most bytes that live no longer than a layer's pass
    head      most bytes that live no longer than the head and the loss
    """

    standing: Number
    passing: Number
    groups: Number
    workspaces: Number = THREADS * int(WORKSPACE.value)
    streams: Number = 0
    peers: Number = 0
    planned: bool = False
    frozen: bool = False
    layers: Number = 0
    head: Number = 0

    def parts(self) -> tuple[tuple[str, Number, Figure], ...]:
        """Return what leaves gaps where all weights are frozen but those of adapters: (name, bytes, the share of
        them)."""
        brief = maximum(self.layers, self.head)
        return (
            ("kept", maximum(self.passing - brief, 0), KEPT),
            ("brief", brief, BRIEF),
            ("aside", minimum(self.layers, self.head), ASIDE),
        )

    def share(self, end: str) -> Number:
        """Return the gaps as a share of the passing bytes where weights are trained."""
        return where(self.streams > 0, GAPS_BESIDE.beyond(end), GAPS.beyond(end))

    def gaps(self, end: str) -> Number:
        """Return the bytes of the gaps: the likely ones (`value`), or an end (`low`, `high`)."""
        if self.frozen:
            return total(size * getattr(share, end) for _, size, share in self.parts())
        return self.passing * self.share(end)

    def apart(self, live: Number) -> Number:
        """Return the bytes that stay in the cache but cannot serve the peak: blocks with the sizes of the optimizer
        step fit no activation, so both remain. At the least none does: a large block is split for a smaller tensor
        (c10/cuda/CUDACachingAllocator.cpp, should_split)."""
        return maximum(self.standing + self.passing - live, 0)


def workspaces(setup: Setup, routed: Flag) -> Number:
    """Return the bytes of the workspaces of matrix products. routed: the rank has experts."""
    wide = setup.generation in SINCE_HOPPER
    of_torch = THREADS * int(WORKSPACE.high if wide else WORKSPACE.value)
    own = (int(WORKSPACE.high) if wide else ENGINE_WORKSPACE) * setup.framework.engine
    return of_torch + own + where(routed, STREAMS * own, 0)


@record
class Reported:
    """The three figures with their parts, and the interval of each.

    least  bytes that are needed even when the allocator empties its cache: a smaller capacity does not fit
    """

    allocated: Term
    reserved: Term
    used: Term
    overhead: Term
    ends: dict[str, tuple[Number, Number]]
    least: Number


def _leaf(name: str, figure: Figure, unit: str = "byte", kind: str = SEEN) -> Term:
    return leaf(name, int(figure.value) if unit == "byte" else figure.value, unit, kind, figure.source)


def _share(name: str, whole: Term, share: Term) -> Term:
    """Return a share of bytes, rounded up to an integer."""
    return rounded_up(name, multiply(f"{name}/exact", whole, share))


def _streams(kept: Number) -> Term:
    exact = leaf("memory/cache/streams/exact", kept, "byte", TRUE, "gathers and reductions of FSDP, by shapes")
    return rounded_up("memory/cache/streams", exact)


def reported(
    live: Term,
    gpus: Number,
    width: Width = EXACT,
    flow: Flow | None = None,
    outside: Figure = CONTEXT,
    expandable: bool = False,
    bounds: tuple[str, ...] = ("low", "high"),
) -> Reported:
    """Return allocated, reserved and used bytes from the live bytes of one of `gpus` GPUs.

    width       how far live bytes and each figure can be from the formulas
    flow        of the cache; None: all live bytes come and go
    outside     the CUDA context
    expandable  the allocator's segments grow
    bounds      which ends of the intervals to compute; the other end is a copy"""
    flow = flow or Flow(0, live.value, where(gpus == 1, 0, 1))
    joined = PLANNED if flow.planned else EXPANDABLE if expandable else None
    if joined is not None:
        flow = replace(flow, standing=0)

    def gapped(end: str) -> Number:
        return flow.gaps(end) if joined is None else flow.passing * joined.beyond(end)

    rounding = _share("memory/rounding", live, _leaf("rounding", ROUNDING, "1"))
    workspace = leaf("memory/workspace", flow.workspaces, "byte", SEEN, WORKSPACE.source)
    allocated = add("memory/allocated", live, rounding, workspace)
    apart = leaf(
        "memory/cache/apart",
        flow.apart(live.value),
        "byte",
        SEEN,
        "what the step holds and the passes' peak lacks",
    )
    gaps = _gaps(flow, joined)
    kept_for = [] if is_zero(flow.streams) else [_streams(flow.streams)]
    cache = add("memory/cache", apart, *kept_for, gaps)
    reserved = add("memory/reserved", allocated, cache)
    context = _leaf("memory/context", outside, kind=ASSUMED)
    buffers = _buffers(flow)
    used = add("memory/used", reserved, context, buffers)
    overhead = add("memory/overhead", rounding, workspace, cache, context, buffers)
    figures = allocated, reserved, used
    ends, least = _ends(figures, live.value, width, flow, outside, gapped, bounds)
    return Reported(*figures, overhead, ends, least)


def _gaps(flow: Flow, joined: Figure | None) -> Term:
    """Return the bytes of the gaps in the cache. joined: a share of all that passes, where blocks are joined."""
    if joined is None and flow.frozen:
        return add("memory/cache/gaps", *(_gap(*part) for part in flow.parts()))
    usual = joined or (GAPS if is_zero(flow.streams) else GAPS_BESIDE)
    beyond = joined.beyond("value") if joined is not None else flow.share("value")
    passing = leaf("passing", flow.passing, "byte", TRUE, "bytes that come and go at the peak of a pass")
    return _share("memory/cache/gaps", passing, leaf("caching", beyond, "1", SEEN, usual.source))


def _gap(name: str, size: Number, share: Figure) -> Term:
    """Return the bytes of a part of the gaps."""
    whole = leaf(f"{name}_bytes", size, "byte", TRUE, "bytes that come and go, by how long they live")
    return _share(f"memory/cache/gaps/{name}", whole, leaf(f"share_of_{name}", share.value, "1", SEEN, share.source))


def _buffers(flow: Flow) -> Term:
    """Return the bytes of the buffers of communicators, and of exchanges with peers if there are any."""
    each = leaf("buffers_of_a_communicator", int(COMMUNICATION.value), "byte", ASSUMED, COMMUNICATION.source)
    groups = leaf("communicators", flow.groups, "1", TRUE, "all ranks, and each parallel degree that is a part of them")
    peers = leaf("peers", flow.peers, "1", TRUE, "GPUs of its server that it sends to")
    between = leaf("buffers_of_a_peer", int(EXCHANGE.value), "byte", ASSUMED, EXCHANGE.source)
    collective = multiply("memory/communication/collective", groups, each)
    exchanged = multiply("memory/communication/exchanges", peers, between)
    buffers = collective if is_zero(flow.peers) else add("memory/communication", collective, exchanged)
    return buffers.renamed("memory/communication")


def _ends(
    figures: tuple[Term, Term, Term],
    live: Number,
    width: Width,
    flow: Flow,
    outside: Figure,
    gapped: Callable[[str], Number],
    bounds: tuple[str, ...],
) -> tuple[dict[str, tuple[Number, Number]], Number]:
    """Return the interval of each of the allocated, reserved and used bytes, by name, and the bytes that are needed
    without any cache (0 where the lower ends are not computed). live: bytes; outside: the CUDA context; gapped: the
    bytes of the gaps, by end; bounds: which ends to compute."""
    ends: dict[str, tuple[Number, Number]] = {}
    least: Number = 0
    products = WORKSPACE.low, flow.workspaces + WORKSPACE.high
    for place, end in enumerate(("low", "high")):
        if end not in bounds:
            continue
        margin = width.live[place]
        mine = live * (1 + margin) * (1 + getattr(ROUNDING, end)) + products[place]
        held = flow.apart(live) if place else 0  # the allocator may split such blocks
        kept = mine + (held + flow.streams + gapped(end)) * (1 + margin)
        buffered = flow.groups * getattr(COMMUNICATION, end) + flow.peers * getattr(EXCHANGE, end)
        beyond = getattr(outside, end) + buffered
        least = least if place else mine + beyond
        measured = {name: factors[place] for name, *factors in width.figures}
        for figure, size in zip(figures, _within_each_other(figures, measured, mine, kept, beyond), strict=True):
            before = ends.get(figure.name, (floor(size), size))
            ends[figure.name] = (before[0], ceiling(size))
    return ends, least


def _within_each_other(
    figures: tuple[Term, Term, Term], measured: Mapping[str, float], mine: Number, kept: Number, beyond: Number
) -> tuple[Number, Number, Number]:
    """Return one end of the allocated, reserved and used bytes, each at most the next. A figure that runs measured has
    its own factor (`measured`, by name); the others follow from it. mine, kept: allocated and reserved bytes by part;
    beyond: used minus reserved bytes."""
    allocated, reserved, used = figures
    if reserved.name in measured:
        kept = reserved.value * measured[reserved.name]
    whole = used.value * measured[used.name] if used.name in measured else kept + beyond
    if allocated.name in measured:
        mine = allocated.value * measured[allocated.name]
    kept = minimum(kept, whole)
    return minimum(mine, kept), kept, whole


def within(found: Reported, capacity: Number) -> Reported:
    """Return the figures on a GPU of that capacity: the allocator empties its cache before it gives up (PyTorch
    c10/cuda/CUDACachingAllocator.cpp, release_cached_blocks), so where reserved or used exceed the capacity at their
    lower end, they may be anything from what is needed without a cache."""
    room, needed = maximum(found.least, capacity), floor(found.least)
    ends = dict(found.ends)
    for path in ("memory/used", "memory/reserved"):
        low, high = ends[path]
        ends[path] = (where(low > room, minimum(low, needed), low), high)
    return replace(found, ends=ends)
