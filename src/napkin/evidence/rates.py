"""The `Rates` of a step for a chip and a software stack, from the calibrated constants.

One mapping from a run to the names of its constants serves a single run (numbers) and all published rows at once
(arrays)."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from napkin.elementwise import Number, maximum, minimum, where
from napkin.errors import Refused
from napkin.evidence.decompositions import SEEN
from napkin.evidence.priors import CHIP
from napkin.evidence.software import SINCE_HOPPER, SoftwareStack
from napkin.formats import COMPUTE_BITS
from napkin.inputs.hardware import Hardware
from napkin.record import record
from napkin.timing.rates import Rates
from napkin.training.optimizer_work import EIGENVECTORS, ORTHOGONAL, SINGULAR

MEASURED_GENERATIONS = ("volta", "turing", "ampere", "ada", "hopper", "blackwell", "cdna", "tpu", "gaudi")
"""Generations of accelerators with their own constants (priors.py: `matmul/GENERATION/16`)."""
GENERIC = "other"
"""The generation whose constants hold for all other accelerators."""

REFERENCE_WATTS = {
    "volta": 300 / 125e12,
    "ampere": 400 / 312e12,
    "hopper": 700 / 989.4e12,
    "blackwell": 1000 / 2250e12,
    "cdna": 750 / 1307.4e12,
}
"""Watts per dense 16-bit FLOP/s of the GPU whose share of the peak is in the constants: V100, A100 and H100 SXM, B200,
MI300X.
Another GPU of the generation with less power for the same peak runs at lower clocks."""

MOST_POWER = 1.3
"""Power per FLOP/s, relative to the reference, above which nothing is power-limited."""

LARGEST_SHARE = 0.95


def constants_of(hardware: Hardware) -> str:
    """Return the generation whose constants hold for an accelerator: its own, or GENERIC."""
    return hardware.generation if hardware.generation in MEASURED_GENERATIONS else GENERIC


def generation_note(hardware: Hardware) -> str:
    """Return what an answer must say where the accelerator's generation is not stated, else ""."""
    if hardware.generation:
        return ""
    return (
        f"{hardware.name}: its generation is not stated, so generic shares of its peaks are assumed; "
        f"set `generation:` in the hardware file ({', '.join(MEASURED_GENERATIONS)}, …)"
    )


@record
class Machine:
    """Hardware inputs of the rates; each a number or one per row. units: matrix units that share the tiles;
    chip: the accelerator's name; full: dense FLOP/s of fp32, 0 if it is not known."""

    generation: str
    chip: str
    peak: Number
    peak_wide: Number
    bandwidth: Number
    link: Number
    network: Number
    node: Number
    units: Number
    power: Number
    bits: Number
    full: Number = 0.0

    @property
    def low(self) -> Number:
        return where(self.bits < 16, 1, 0)


WIDE = tuple(name for name, bits in COMPUTE_BITS.items() if bits > 16)
"""Formats whose activations are wider than the 16 bits that the constants count: their traffic grows with them."""
LINKLESS = 32e9
"""byte/s one way for a GPU whose link is not known: PCIe 4 × 16."""
WITHOUT_MATRIX_UNITS = ("kepler", "maxwell", "pascal")
"""Generations whose 16-bit products with fp32 sums, which torch asks cuBLAS for (ATen/cuda/CUDABlas.cpp:
CUBLAS_COMPUTE_32F), run at the rate of fp32 ones: packed 16-bit arithmetic, the datasheet's fp16, sums in fp16."""
NODE = 8
"""GPUs of a node if neither the source nor the accelerator's entry says."""
SLOWEST_NETWORK = 12.5e9
"""byte/s a GPU if neither the source nor the accelerator's entry states the network: one 100 Gbit/s card."""


RACK = 8
"""GPUs above which a link joins more than the node that a published row states (NVL72, a TPU's torus)."""


def gpus_per_node(hardware: Hardware, stated: int | None = None) -> int:
    """Return how many GPUs the fast link joins: the accelerator's own number, from 1 up, else 8; stated: of a published
    row, which an accelerator whose link joins a rack outdoes."""
    own = hardware.devices_per_node
    return own if own and own > RACK else stated or own or NODE


def machine(hardware: Hardware, compute: str, network: float | None = None, node: int | None = None) -> Machine:
    """Return the figures of an accelerator that computes linear layers in `compute`."""
    wide = "bf16" if "bf16" in hardware.peaks else "fp16"
    if wide not in hardware.peaks or compute in WIDE:  # fp32 runs attention and head in fp32 too
        wide = compute if compute in WIDE else hardware.default_dtype
    bits = COMPUTE_BITS.get(compute, 16)
    if bits == 4:  # training's 4-bit matmuls scale every block: no GPU reaches more than twice its 8-bit rate
        peak = min(hardware.peak("fp4"), 2 * hardware.peak("fp8"))
    elif bits == 8:
        peak = hardware.peak("int8" if compute == "int8" else "fp8")
    elif compute in ("fp16", "bf16"):  # the same rate; V100 has fp16 alone
        peak = hardware.peaks.get(compute) or hardware.peak(wide)
    else:
        peak = hardware.peak(compute)
    whole = hardware.peak(wide)
    if hardware.generation in WITHOUT_MATRIX_UNITS:
        peak, whole = (min(rate, hardware.peak("fp32")) for rate in (peak, whole))
    if not hardware.memory_bandwidth:
        raise Refused(f"{hardware.name}: its memory bandwidth is not known")
    era = constants_of(hardware)
    usual = REFERENCE_WATTS.get(era)
    power = hardware.tdp_w / hardware.peak(wide) / usual if usual and hardware.tdp_w and compute not in WIDE else 1.0
    return Machine(
        era,
        hardware.name,
        peak,
        whole,
        hardware.memory_bandwidth,
        hardware.link_bandwidth or LINKLESS,
        network or hardware.nic_bandwidth or SLOWEST_NETWORK,
        gpus_per_node(hardware, node),
        1 if era == "tpu" else hardware.sm_count or 100,
        min(power, MOST_POWER),
        bits,
        hardware.peaks.get("fp32", 0.0),
    )


NARROW = (("hopper", 8), ("blackwell", 8), ("blackwell", 4))
"""Generations and bits with a constant of their own; others take the share that 16 bits reach."""
BEFORE_FLASH = ("volta", "turing")
"""Generations that FlashAttention-2 does not support (Dao-AILab/flash-attention README: Ampere or newer): torch calls
its memory-efficient kernel in its place (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, check_sm_version)."""


def matmul_of(era: str, bits: int) -> str:
    """Return the constant of matmuls in that many bits."""
    return f"matmul/{era}/{bits if (era, bits) in NARROW else 16}"


def names(
    at: Machine,
    stack: SoftwareStack,
    kernel: str,
    fabric: str,
    async_tp: bool,
    loss: str,
    autocast: bool,
    known: Container[str],
) -> dict[str, str]:
    """Return the constant that holds for this run by field of `Rates` (or by a factor of one). autocast: over fp32
    weights that no rank gathers in 16 bits, so that each gradient is cast and added apart; known: constants of
    accelerators (chips.py)."""
    era, shown = at.generation, "overlap" if stack.overlap else "plain"
    if kernel == "cudnn" and era not in SINCE_HOPPER:
        kernel = "flash"
    if era in BEFORE_FLASH and kernel == "flash":
        kernel = "efficient"
    routed = "fused" if stack.fused_experts else "plain"
    captured = stack.fused_experts or stack.one_program
    cudnn = "kernel/cudnn-2023" if stack.early_cudnn else "kernel/cudnn"
    fused = {"cudnn": cudnn, "flash1": "kernel/flash1", "efficient": "kernel/flash1"}
    return {
        "matmul": matmul_of(era, int(at.bits)),
        "matmul_wide": f"matmul/{era}/16",
        "power": "power",
        "chip": chip if (chip := f"{CHIP}{at.chip}") in known else "one",
        "waves": "waves",
        "half_depth": "half_depth",
        "misaligned": "misaligned",
        "attention": f"attention/{era}",
        "kernel": fused.get(kernel, "one"),
        "small_head": f"small_head/{'cudnn' if kernel == 'cudnn' else 'flash'}",
        "attention_backward": "attention_backward",
        "half_keys": "half_keys",
        "core": "core",
        "core_odd": "core_odd",
        "score_bytes": "score_bytes",
        "memory": "memory",
        "bus": "bus",
        "wire": f"wire/{fabric}",
        "tensor_latency": "tensor_latency",
        "data_latency": "data_latency",
        "tensor_exposed": f"tensor_exposed/{'async' if async_tp else shown}",
        "pipeline_exposed": f"pipeline_exposed/{shown}",
        "context_exposed": "context_exposed",
        "data_exposed": "data_exposed",
        "interference": "interference",
        "elementwise": f"elementwise/{'compiled' if stack.compiled or stack.fused_chains else 'eager'}",
        "cast_bytes": f"cast_bytes/{'fused' if stack.fused_casts else 'plain'}",
        "loss_bytes": f"loss_bytes/{'fused' if stack.fused_loss or loss == 'fused' else 'plain'}",
        "accumulation_bytes": f"accumulation/{'autocast' if autocast else stack.accumulation}",
        "accumulation_sharded": "accumulation/sharded",
        "optimizer_slowness": "optimizer_slowness",
        "grouped": "grouped",
        "expert_bias_bytes": f"expert_bias_bytes/{routed}",
        "permutation_bytes": f"permutation_bytes/{routed}",
        "dispatch": "dispatch",
        "host_layer": "zero" if stack.one_program else f"host_layer/{'eager' if stack.eager else 'fused'}",
        "host_experts": "zero" if captured else "host_experts",
        "host_expert": "host_expert" if stack.experts_apart and not captured else "zero",
        "host_unit": "host_unit",
        "host_module": "host_module",
        "fixed": "fixed",
        "straggle": "straggle",
        "stops_early": "stops_early" if stack.stops_early else "zero",
        "stack": f"stack/{stack.family}",
    }


@record
class Early:
    """Overlap of data parallelism: 1 if gradients are reduced during the last backward pass, and 1 if parameters are
    gathered during the next step's first forward pass."""

    reduces: Number
    gathers: Number


def early_of(stack: SoftwareStack) -> Early:
    """Return the overlap of a software stack's data parallelism."""
    return Early(1 if stack.reduce_early else 0, 1 if stack.gather_early else 0)


PURE_ACCUMULATION = 4
"""Bytes per weight where gradients are added up in 16 bits in place: read and written once."""
AS_THEY_STAND = (
    *(
        "attention_backward",
        "half_keys",
        "small_head",
        "core",
        "core_odd",
        "memory",
        "bus",
        "wire",
        "waves",
        "half_depth",
        "misaligned",
    ),
    *("cast_bytes", "loss_bytes", "tensor_latency", "data_latency", "tensor_exposed", "pipeline_exposed"),
    *(
        "context_exposed",
        "data_exposed",
        "interference",
        "grouped",
        "expert_bias_bytes",
        "permutation_bytes",
        "dispatch",
        "host_layer",
    ),
    *(
        "host_experts",
        "host_expert",
        "host_unit",
        "host_module",
        "optimizer_slowness",
        "fixed",
        "straggle",
        "stops_early",
        "stack",
    ),
)
"""Rates that are constants of the same name on every machine."""


def rates(pick: Callable[[str], Number], at: Machine, early: Early, pure: Number, sharded: Number) -> Rates:
    """Return the rates of a run. `pick(field)` gives the constant for a field of `names`.

    early    what data parallelism overlaps with the passes
    pure     1 where gradients are 16-bit and added in place
    sharded  1 under ZeRO-3 on more than one GPU"""
    wider = maximum(at.bits / 16, 1)
    clock = pick("chip") * at.power ** minimum(pick("power"), 1)  # a higher peak never computes slower
    accumulation = where(sharded, pick("accumulation_sharded"), pick("accumulation_bytes"))
    return Rates(
        peak=at.peak,
        peak_wide=at.peak_wide,
        peak_full=at.full,
        bandwidth=at.bandwidth,
        link=at.link,
        network=at.network,
        node=at.node,
        units=at.units,
        matmul=minimum(pick("matmul") * clock, LARGEST_SHARE),
        matmul_wide=minimum(pick("matmul_wide") * clock, LARGEST_SHARE),
        attention=minimum(pick("attention") * pick("kernel") * clock, LARGEST_SHARE),
        score_bytes=pick("score_bytes") * wider,
        elementwise=pick("elementwise") * wider,
        accumulation_bytes=where(pure, PURE_ACCUMULATION, accumulation),
        data_overlap=early.reduces,
        gather_overlap=early.gathers,
        eigenvectors=SEEN[EIGENVECTORS].bytes_of_a_cube,
        orthogonal=SEEN[ORTHOGONAL].bytes_of_a_cube,
        singular=SEEN[SINGULAR].bytes_of_a_cube,
        **{name: pick(name) for name in AS_THEY_STAND},
    )


def picker(constants: Mapping[str, float], fields: Mapping[str, str]) -> Callable[[str], float]:
    """`pick` for one run: the constant by its name; "one" and "zero" are the numbers."""
    fixed = {"one": 1.0, "zero": 0.0}
    return lambda field: fixed[fields[field]] if fields[field] in fixed else constants[fields[field]]
