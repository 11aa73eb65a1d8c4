"""The `Rates` of a step for a chip and a software stack, from the calibrated constants.

One mapping from a run to the names of its constants serves a single run (numbers) and all published rows at once
(arrays)."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from napkin.elementwise import Number, maximum, minimum, where
from napkin.evidence.figures.host_updates import host_rate
from napkin.evidence.rates.decompositions import SEEN
from napkin.evidence.rates.machines import HOPPER_UNITS, LARGE_UNITS, TORUS, Machine
from napkin.evidence.rates.priors import CHIP
from napkin.evidence.software.stacks import SoftwareStack
from napkin.inputs.peaks import SINCE_HOPPER
from napkin.options.training import GRADIENTS, NO_GRAPHS, PARAMETERS_TOO, PARTS, WHOLE
from napkin.record import record, replace
from napkin.timing.optimizer import FUSED_ON_HOST, LOOPED_ON_HOST
from napkin.timing.rates import Rates
from napkin.training.optimizer_work import EIGENVECTORS, ORTHOGONAL, SINGULAR

LARGEST_SHARE = 0.95
"""Largest share of the peak that matmuls reach, at the clock in use. Those on matrix units that the maker holds below
their full rate reach it, as neither power nor memory limits them: zzc0721/torch-performance-test-data at 9d82827,
database.md, best of five sizes in bf16 over the printed peak: L20 0.96, H20 0.96. GeForce cards exceed it, as their
boost clock is a minimum that they run above: RTX 4090 0.97 to 1.05, RTX 5090 1.13 to 1.16 (`reported: clock_hz` in
hardware_specs.yaml). An RTX 3090's matmuls reach 1.08, and its published training runs as if they did not."""
STAGED_BUS = 0.52
"""Bus bandwidth over the wire's, where NCCL copies through the host's memory, as it must where the driver offers no
peer access (GeForce). Published all-reduces: 18 GB/s on 4 × RTX 4090 (NVIDIA/nccl issue 1603), 35 and 28 on 4 and 8 ×
RTX 5090 (issue 1639), of 31.5 and 63: their geometric mean."""
PEER_BUS = 0.69
"""The same over slots whose cards reach each other's memory. Published all-reduces: 46.5, 41.1 and 39.4 GB/s on 8 × RTX
PRO 6000 behind two, three and four PCIe switches, 41.5 on 7 of them on the root ports of two processors, of 63
(voipmonitor/rtx6kpro at 29f3863, hardware/pcie-bandwidth.md and wrx90-cpayne-8gpu-root-topology-comparison.md), 24.7 on
5 cards with peer access at 31.5 (tinygrad/open-gpu-kernel-modules issue 17): their geometric mean. Where the path
crosses the host bridge and nothing is set, NCCL goes through the host's memory with these cards too (NVIDIA/nccl
src/graph/paths.cc at 5067397, ncclTopoCheckP2p): 22.2 on 8 on root ports, a third of the wire (pcie-bandwidth.md)."""

NARROW = (("hopper", 8), ("blackwell", 8), ("blackwell", 4))
"""Generations and bits with a constant of their own; others take the share that 16 bits reach."""
BEFORE_FLASH = ("volta", "turing")
"""Generations that FlashAttention-2 does not support (Dao-AILab/flash-attention README: Ampere or newer): torch calls
its memory-efficient kernel in its place (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, check_sm_version)."""
WITH_UNITS_OF_ITS_OWN = "blackwell"
"""The generation whose matrix units FlashAttention-2 and its relatives do not use: its instructions (tcgen05) are not
those of older ones, which run as on Hopper (NVIDIA/cutlass media/docs/cpp/blackwell_functionality.md). `flash` without
a version is between the two, as a release decides (torch's cuDNN and FlashAttention-4, or FlashAttention-2)."""

FIRST = ("flash1", "efficient")
"""Kernels of FlashAttention's first algorithm, which divide the work by heads and sequences alone."""


def matmul_of(era: str, bits: int) -> str:
    """Return the constant of matmuls in that many bits."""
    return f"matmul/{era}/{bits if (era, bits) in NARROW else 16}"


@record
class Asynchronous:
    """What a run says of the work that the device does not wait for.

    tensor   whether collectives of tensor parallelism overlap with the matmuls that need them; None: as its software
             has it. Megatron's core without its user buffers hides those of the backward pass behind the gradients of
             weights (NVIDIA/Megatron-LM megatron/core/tensor_parallel/layers.py,
             LinearWithGradAccumulationAndAsyncCommunication; model_parallel_config.py, tp_comm_overlap)
    experts  the experts' exchange overlaps with the compute of another micro-batch; None: as its software has it
    graphs   what the device launches by itself (options/training.py, GRAPHS); "": as its software has it
    data     what of data parallelism overlaps with the passes (options/training.py, OVERLAPS); "": as its software has
             it"""

    tensor: bool | None = None
    experts: bool | None = None
    graphs: str = ""
    data: str = ""


SYNCHRONOUS = Asynchronous()


def constant_names(
    at: Machine,
    stack: SoftwareStack,
    kernel: str,
    fabric: str,
    asynchronous: Asynchronous,
    loss: str,
    autocast: bool,
    known: Container[str],
) -> dict[str, str]:
    """Return the constant that holds for this run by field of `Rates` (or by a factor of one), in the order in which
    the fit numbers them.

    kernel    of attention, as asked for        fabric  of the network
    loss      "fused" where the head and the cross entropy run as one kernel
    autocast  over fp32 weights that no rank gathers in 16 bits, so that each gradient is cast and added apart
    known     constants of accelerators (chips.py)"""
    return {
        **_of_products(at, known),
        **_of_attention(at, stack, kernel),
        "memory": "memory",
        **_of_collectives(at, stack, fabric, asynchronous),
        **_of_kernels(stack, loss, autocast),
        **_of_host(stack, asynchronous.graphs),
    }


def _of_products(at: Machine, known: Container[str]) -> dict[str, str]:
    """Return the constants of matmuls, and the chip's own factor if one is fitted."""
    return {
        "matmul": matmul_of(at.generation, int(at.bits)),
        "matmul_wide": f"matmul/{at.generation}/16",
        "power": "power",
        "chip": chip if (chip := f"{CHIP}{at.chip}") in known else "one",
        "waves": "waves",
        "half_depth": "half_depth",
        "misaligned": "misaligned",
    }


def _of_attention(at: Machine, stack: SoftwareStack, kernel: str) -> dict[str, str]:
    """Return the constants of the attention kernel that runs where `kernel` is asked for."""
    held = at.generation == WITH_UNITS_OF_ITS_OWN and kernel in ("flash2", *FIRST)
    if kernel == "flash2" or (kernel == "cudnn" and at.generation not in SINCE_HOPPER):
        kernel = "flash"
    if at.generation in BEFORE_FLASH and kernel == "flash":
        kernel = "efficient"
    cudnn = "kernel/cudnn-2023" if stack.early_cudnn else "kernel/cudnn"
    fused = {"cudnn": cudnn, "flash1": "kernel/flash1", "efficient": "kernel/efficient"}
    return {
        "attention": f"attention/{at.generation}{'/flash' if held else ''}",
        "attention_large": "attention/ampere",
        "matmul_large": "matmul/ampere/16",
        "kernel": fused.get(kernel, "one"),
        "small_head": f"small_head/{'cudnn' if kernel == 'cudnn' else 'flash'}",
        "large_head": "large_head/efficient" if kernel == "efficient" else "one",
        "attention_backward": "attention_backward",
        "masked_backward": "one" if stack.narrow_attention and kernel == "cudnn" and at.bits == 8 else "zero",
        "half_keys": f"half_keys/{'first' if kernel in FIRST else 'flash'}",
        "core": "core",
        "core_odd": "core_odd",
        "score_bytes": "score_bytes",
    }


def _of_collectives(at: Machine, stack: SoftwareStack, fabric: str, asynchronous: Asynchronous) -> dict[str, str]:
    """Return the constants of collectives, by what the software or the run overlaps with compute."""
    shown = "overlap" if stack.overlap else "plain"
    if asynchronous.tensor is None:
        tensor = shown
    elif stack.overlap:
        tensor = "overlap" if asynchronous.tensor else "gradients"
    else:
        tensor = "async" if asynchronous.tensor else "plain"
    beside = stack.async_experts if asynchronous.experts is None else asynchronous.experts
    return {
        "bus": "bus",
        "wire": f"wire/{fabric}",
        "tensor_latency": "tensor_latency",
        "data_latency": "data_latency",
        "link_hop": "zero" if at.generation in TORUS else "hop/link",
        "network_hop": "zero" if at.generation in TORUS else "hop/network",
        "tensor_exposed": f"tensor_exposed/{tensor}",
        "pipeline_exposed": f"pipeline_exposed/{shown}",
        "context_exposed": "context_exposed",
        "expert_exposed": "expert_exposed/async" if beside else "one",
        "data_exposed": "data_exposed",
        "interference": "interference",
    }


def _of_kernels(stack: SoftwareStack, loss: str, autocast: bool) -> dict[str, str]:
    """Return the constants of operations around the matmuls: elementwise kernels, the optimizer, experts' routing."""
    routed = "fused" if stack.fused_experts else "plain"
    return {
        "elementwise": f"elementwise/{'compiled' if stack.compiled or stack.fused_chains else 'eager'}",
        "cast_bytes": f"cast_bytes/{'fused' if stack.fused_casts else 'plain'}",
        "loss_bytes": f"loss_bytes/{'fused' if stack.fused_loss or loss == 'fused' else 'plain'}",
        "accumulation_bytes": f"accumulation/{'autocast' if autocast else stack.accumulation}",
        "accumulation_sharded": "accumulation/sharded",
        "optimizer_slowness": "optimizer_slowness",
        "grouped": "grouped",
        "expert_bias_bytes": f"expert_bias_bytes/{routed}",
        "clamps_apart": "one" if stack.clamps_apart and not stack.fused_experts else "zero",
        "permutation_bytes": f"permutation_bytes/{routed}",
        "dispatch": f"dispatch{'/copies' if stack.sends_copies else ''}",
    }


def _of_host(stack: SoftwareStack, graphs: str) -> dict[str, str]:
    """Return the constants of the host's launches, of a step's start, and the software's own factor. graphs: what is
    captured, "" as the software has it."""
    captured = WHOLE if stack.one_program else graphs or (WHOLE if stack.fused_experts else NO_GRAPHS)
    whole = captured == WHOLE
    by_modules = not (stack.eager or stack.compiled or whole)
    launches = "eager" if stack.eager else "modules" if by_modules and captured != PARTS else "fused"
    return {
        "host_layer": "zero" if whole else f"host_layer/{launches}",
        "host_chunk": "host_chunk" if by_modules else "zero",
        "host_experts": "zero" if whole else f"host_experts{'/parts' if captured == PARTS else ''}",
        "host_expert": "host_expert" if stack.experts_apart and not whole else "zero",
        "host_unit": "host_unit",
        "host_module": "host_module",
        "fixed": "fixed",
        "straggle": "straggle",
        "stops_early": "one" if stack.one_program else "stops_early" if stack.stops_early else "zero",
        "stack": f"stack/{stack.family}",
    }


@record
class Early:
    """Overlap of data parallelism: 1 if gradients are reduced during the last backward pass, and 1 if parameters are
    gathered during the next step's first forward pass."""

    reduces: Number
    gathers: Number


def early_of(stack: SoftwareStack, stated: str = "") -> Early:
    """Return how data parallelism overlaps: as a run states it (options/training.py, OVERLAPS) or its stack has it."""
    if stated:
        return Early(1 if stated in (GRADIENTS, PARAMETERS_TOO) else 0, 1 if stated == PARAMETERS_TOO else 0)
    return Early(1 if stack.reduce_early else 0, 1 if stack.gather_early else 0)


PURE_ACCUMULATION = 4
"""Bytes per weight where gradients are added up in 16 bits in place: read and written once."""
PURE_SHARDED = 8
"""The same under ZeRO-3: FSDP joins the gradients of a unit's views (4) and divides the result by a share of the ranks
(4) (torch 2.13 torch/distributed/fsdp/_flat_param.py, _get_unflat_views_unaligned, whose backward joins;
_runtime_utils.py, _reduce_grad). What it adds to the micro-batches before is one rank's shard, which is left out
(_accumulate_sharded_grad: 6 bytes over the ranks)."""
HOST_FUSED, HOST_LOOPED = host_rate(FUSED_ON_HOST), host_rate(LOOPED_ON_HOST)
PINNED = 12 / 15.753846
"""Share of a PCIe link's rate that copies of pinned memory reach: about 12 GB/s over PCIe 3.0 x16 (NVIDIA CUDA C++ Best
Practices Guide, section 10.1.1)."""
AS_THEY_STAND = """
    attention_backward masked_backward half_keys small_head large_head core core_odd memory wire waves half_depth
    misaligned cast_bytes loss_bytes tensor_latency data_latency link_hop network_hop
    tensor_exposed pipeline_exposed context_exposed expert_exposed
    data_exposed interference grouped expert_bias_bytes clamps_apart permutation_bytes dispatch host_layer
    host_chunk host_experts host_expert host_unit host_module optimizer_slowness fixed straggle stops_early stack"""
"""Rates that are the constant of their field, without a factor or a limit."""


def rates(pick: Callable[[str], Number], at: Machine, early: Early, pure: Number, sharded: Number) -> Rates:
    """Return the rates of a run. `pick(field)` gives the constant for a field of `constant_names`.

    early    what data parallelism overlaps with the passes
    pure     1 where gradients are 16-bit and added in place
    sharded  1 where ZeRO-3 copies what it gathers and scatters"""
    wider = maximum(at.bits / 16, 1)
    exponent = where(at.at_lowest_voltage, 1, minimum(pick("power"), 1))  # a higher peak never computes slower
    clock = pick("chip") * at.power**exponent
    matmul, whole = (
        where(at.held, LARGEST_SHARE * at.gain, minimum(pick(one) * clock, LARGEST_SHARE))
        for one in ("matmul", "matmul_wide")
    )
    attention = pick("attention") * clock
    accumulation = where(
        sharded,
        where(pure, PURE_SHARDED, pick("accumulation_sharded")),
        where(pure, PURE_ACCUMULATION, pick("accumulation_bytes")),
    )
    return Rates(
        peak=at.peak,
        peak_wide=at.peak_wide,
        peak_full=at.full,
        bandwidth=at.bandwidth,
        link=at.link,
        network=at.network,
        host_link=at.host_link,
        pinned=PINNED,
        host_fused=HOST_FUSED,
        host_looped=HOST_LOOPED,
        node=at.node,
        units=at.units,
        matmul=matmul,
        matmul_wide=whole,
        attention=where(
            at.small,
            beside_softmax(pick, at, whole) * minimum(pick("kernel"), 1),
            where(
                at.held,
                beside(minimum(pick("attention") * pick("kernel"), LARGEST_SHARE), pick("matmul_wide"), whole, at),
                minimum(attention * pick("kernel"), LARGEST_SHARE),
            ),
        ),
        bus=where(at.slots, bus_of_slots(at), pick("bus")),
        score_bytes=pick("score_bytes") * wider,
        elementwise=pick("elementwise") * wider,
        accumulation_bytes=accumulation,
        data_overlap=early.reduces,
        gather_overlap=early.gathers,
        eigenvectors=SEEN[EIGENVECTORS].bytes_of_a_cube,
        orthogonal=SEEN[ORTHOGONAL].bytes_of_a_cube,
        singular=SEEN[SINGULAR].bytes_of_a_cube,
        **{name: pick(name) for name in AS_THEY_STAND.split()},
    )


def bus_of_slots(at: Machine) -> Number:
    """Return bus bandwidth over the wire's where the slots of a board join accelerators."""
    return where(at.staged, STAGED_BUS, PEER_BUS)


def beside_softmax(pick: Callable[[str], Number], at: Machine, matmul: Number) -> Number:
    """Return the share of the peak that FlashAttention-2's kernel for compute capability 8.0 reaches on small matrix
    units. Softmax and loads take as many clocks of a multiprocessor as on an A100, whose two shares say how many, and
    its matmuls more: Dao 2023 (arXiv:2307.08691), section 3.1."""
    others = 1 / pick("attention_large") - 1 / pick("matmul_large")
    return 1 / (1 / matmul + others * at.issued / LARGE_UNITS / at.gain)


def beside(attention: Number, whole: Number, matmul: Number, at: Machine) -> Number:
    """Return the share of the peak that attention reaches on Hopper's matrix units held below their full rate: softmax
    and loads take as many clocks of a multiprocessor as on an H100. attention, whole: its shares of attention and of
    matmuls; matmul: the share of matmuls on these."""
    others = maximum(1 / attention - 1 / whole, 0)
    return 1 / (1 / matmul + others * at.issued / HOPPER_UNITS)


def picker(constants: Mapping[str, float], fields: Mapping[str, str]) -> Callable[[str], float]:
    """`pick` for one run: the constant by its name; "one" and "zero" are the numbers."""
    fixed = {"one": 1.0, "zero": 0.0}
    return lambda field: fixed[fields[field]] if fields[field] in fixed else constants[fields[field]]


def on_host(reached: Rates, slower: float) -> Rates:
    """Return the rates on a host that takes this many times as long to launch kernels and gather units."""
    names = ("host_layer", "host_chunk", "host_experts", "host_expert", "host_unit", "host_module")
    return replace(reached, **{name: getattr(reached, name) * slower for name in names})
