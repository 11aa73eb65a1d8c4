"""What the rates of a step need to know of an accelerator and the node that it is in."""

from __future__ import annotations

from napkin.elementwise import Flag, Number, where
from napkin.errors import Refused
from napkin.formats import COMPUTE_BITS
from napkin.inputs.hardware import RACK, Hardware, find_link
from napkin.record import record, replace
from napkin.term import GIVEN

MEASURED_GENERATIONS = ("volta", "turing", "ampere", "ada", "hopper", "blackwell", "cdna", "tpu", "gaudi")
"""Generations of accelerators with their own constants (priors.py: `matmul/GENERATION/16`)."""
GENERIC = "other"
"""The generation whose constants hold for all other accelerators."""

REFERENCE_WATTS = {
    "volta": 300 / 125e12,
    "turing": 260 / 130.5e12,
    "ampere": 400 / 312e12,
    "ada": 350 / 362.05e12,
    "hopper": 700 / 989.4e12,
    "blackwell": 1000 / 2250e12,
    "cdna": 750 / 1307.4e12,
    "gaudi": 600 / 432e12,
}
"""Watts per dense 16-bit FLOP/s of the accelerator whose share of the peak is in the constants: V100, Quadro RTX 8000,
A100, L40S, H100 SXM, B200, MI300X, Gaudi 2. Another one of the generation with less power for the same peak runs at
lower clocks: a Gaudi 3 has 0.39 of a Gaudi 2's watts for a FLOP/s and reaches 0.74 of its peak in the best of many
short matmuls, a Gaudi 2 0.97 (stas00/ml-engineering compute/accelerator/README.md, Maximum Achievable Matmul FLOPS)."""
SMALL_WATTS = {**REFERENCE_WATTS, "ampere": 300 / 154.8e12}
"""The same for GPUs with the small matrix units: an RTX A6000 is Ampere's, as GA102 and its relatives come from another
process than the A100's (8 nm, NVIDIA GA102 whitepaper, table 1) and take more watts for a FLOP."""

ONLY_SMALL_UNITS = ("turing", "ada")
"""Generations all of whose GPUs have the small matrix units, of those that REFERENCE_WATTS names."""
MOST_POWER = 1.3
"""Power per FLOP/s, relative to the reference, above which nothing is power-limited."""

WITH_SMALL_UNITS, SMALL_UNITS = ("turing", "ampere", "ada", "blackwell"), 1024
"""Dense 16-bit FLOP per clock of a whole multiprocessor of compute capability 7.5, 8.6, 8.9 and 12.0 (NVIDIA GA102
whitepaper, table 3; Ada GPU architecture whitepaper, appendix A), and the generations that have it on some GPUs."""
INSTRUCTIONS = {"blackwell": "ada"}
"""Generations whose GPUs with small matrix units multiply with an older one's instructions: those of compute capability
12.0 have mma.sync and none of a B200's tcgen05 (NVIDIA/cutlass media/docs/cpp/blackwell_functionality.md, Blackwell
SM120 GEMMs)."""
LARGE_UNITS = 2048
"""The same of an A100 (NVIDIA A100 whitepaper, table 3)."""
OPEN_LIBRARIES = ("cdna",)
"""Generations on which the library that PyTorch multiplies with differs by release (intervals/steps.py,
LIBRARY_SPREAD)."""
TORUS = ("tpu",)
"""Generations whose accelerators a torus joins, in nodes and between them: rings run along each of its axes."""
LANES = 128
"""Elements of a row of a TPU's registers, to whose multiples XLA pads a tensor's last dimension (cloud.google.com
tpu/docs/performance-guide, Padding)."""
HOPPER, HOPPER_UNITS = "hopper", 4096
"""The same of an H100 (NVIDIA H100 whitepaper, table 2), and its generation; an H20 is held at a quarter of it."""


def constants_of(hardware: Hardware) -> str:
    """Return the generation whose constants hold for an accelerator: its own, that whose instructions it multiplies
    with, or GENERIC."""
    if hardware.generation in INSTRUCTIONS and 0 < (hardware.flop_per_clock_per_sm or 0) <= SMALL_UNITS:
        return INSTRUCTIONS[hardware.generation]
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
    chip: the accelerator's name; full: dense FLOP/s of fp32, 0 if it is not known; issued: dense 16-bit FLOP per clock
    and multiprocessor, 0 if not known; slots: 1 if the slots of a board join accelerators; staged: 1 if collectives go
    through the host's memory there; host_link: byte/s one way between an accelerator and its host; gain: clock in use
    over the one behind the peaks (hardware.clock_gain)."""

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
    issued: Number = 0.0
    slots: Number = 0.0
    staged: Number = 0.0
    host_link: Number = 0.0
    gain: Number = 1.0

    @property
    def held(self) -> Number:
        """Return 1 if the maker holds the matrix units below their full rate: accumulation in fp32 at half of it on
        GeForce cards and their relatives, Hopper's for export at a quarter."""
        whole = HOPPER_UNITS if self.generation == HOPPER else SMALL_UNITS
        return where((self.issued > 0) & (self.issued < whole), 1, 0)

    @property
    def small(self) -> Number:
        """Return 1 if a multiprocessor has the small matrix units."""
        return where((self.issued > 0) & (self.issued <= SMALL_UNITS) & (self.generation != HOPPER), 1, 0)

    def leaves_node(self, gpus: Number) -> Flag:
        """Return whether a network between nodes joins this many accelerators."""
        return gpus > self.node and self.generation not in TORUS

    @property
    def lanes(self) -> int:
        """Return the size to whose multiples attention pads heads: 1 if it pads none."""
        return LANES if self.generation in TORUS else 1

    @property
    def at_lowest_voltage(self) -> Number:
        """Return 1 if the clock under load falls as the watts do: small matrix units on fewer watts for a FLOP/s than
        their generation's reference, which its watts limit too (RTX A6000, L40S).

        Watts grow with f·V², and below some clock the voltage falls no further. Seen in matmuls that go on: a T4 does
        24 of 65 TFLOP/s, 0.53 of the reference's share with 0.54 of its watts, "due to power capping" (NVIDIA developer
        forum, topic 264462); an L4 55 to 59 of 121, 0.67 to 0.71 with 0.62, and 71 in short tests
        (zzc0721/torch-performance-test-data issue 120; database.md). Large dies, whose references run near their
        highest clock, lose less: an A100 PCIe does 0.92 with 0.63, an H100 PCIe 0.82 with 0.65 (database.md)."""
        fewer = (self.power < 1) & (self.held == 0)
        return where(fewer & ((self.small == 1) | (self.generation in ONLY_SMALL_UNITS)), 1, 0)

    @property
    def low(self) -> Number:
        return where(self.bits < 16, 1, 0)


WIDE = tuple(name for name, bits in COMPUTE_BITS.items() if bits > 16)
"""Formats whose activations are wider than the 16 bits that the constants count: their traffic grows with them."""
LINKLESS = 32e9
"""byte/s one way for a GPU whose link is not known: PCIe 4 × 16."""
SLOTS = {
    "volta": "pcie3",
    "turing": "pcie3",
    "ampere": "pcie4",
    "ada": "pcie4",
    "hopper": "pcie5",
    "blackwell": "pcie5",
}
"""The slot of a generation's cards, which joins them where no bridge does."""
TO_HOST = ("PCIe", "C2C")
"""Parts of the names of links that join an accelerator with its host too."""
ROUNDED = 1.25
"""Rates up to this part of a slot's are meant for it."""
WITHOUT_MATRIX_UNITS = ("kepler", "maxwell", "pascal")
"""Generations whose 16-bit products with fp32 sums, which torch asks cuBLAS for (ATen/cuda/CUDABlas.cpp:
CUBLAS_COMPUTE_32F), run at the rate of fp32 ones: packed 16-bit arithmetic, the datasheet's fp16, sums in fp16."""
NODE = 8
"""GPUs of a node if neither the source nor the accelerator's entry says."""
SLOWEST_NETWORK = 12.5e9
"""byte/s a GPU if neither the source nor the accelerator's entry states the network: one 100 Gbit/s card."""


def gpus_per_node(hardware: Hardware, stated: int | None = None) -> int:
    """Return how many GPUs the fast link joins: the accelerator's own number, from 1 up, else 8; stated: of a published
    row, which an accelerator whose link joins a rack outdoes."""
    own = hardware.devices_per_node
    return own if own and own > RACK else stated or own or NODE


def is_given(hardware: Hardware, figure: str) -> bool:
    """Return whether the user or a row states a figure itself."""
    return (hardware.kinds or {}).get(figure) == GIVEN


def is_bridge_unstated(hardware: Hardware) -> bool:
    """Return whether the accelerator's link is an accessory that is not stated to be present."""
    return hardware.optional_link and not is_given(hardware, "link_bandwidth")


def bridged(hardware: Hardware) -> Hardware:
    """Return the accelerator with its bridge stated to be present, if it has one."""
    if not is_bridge_unstated(hardware):
        return hardware
    return replace(hardware, kinds={**(hardware.kinds or {}), "link_bandwidth": GIVEN})


def by_slots(hardware: Hardware) -> Hardware:
    """Return the accelerator without its fast link: its slot joins it with the others of its node."""
    slot = SLOTS.get(hardware.generation)
    rate = find_link(slot).bandwidth if slot else LINKLESS
    return replace(hardware, link_bandwidth=rate, link_name="PCIe", optional_link=False)


def link_of(hardware: Hardware) -> tuple[float, bool]:
    """Return byte/s one way of the link between the GPUs of a node, and whether it is PCIe. A bridge for two cards
    counts where a rate is given that slots do not have."""
    rate = hardware.link_bandwidth
    if rate is None:
        return LINKLESS, True
    if not hardware.optional_link:
        return rate, "pcie" in hardware.link_name.lower()
    slot = SLOTS.get(hardware.generation)
    usual = find_link(slot).bandwidth if slot else LINKLESS
    if is_bridge_unstated(hardware):
        return usual, True
    return rate, rate <= ROUNDED * usual


def host_link_of(hardware: Hardware) -> float:
    """Return byte/s one way between an accelerator and its host, 0 if it is not known."""
    if hardware.host_link_bandwidth:
        return hardware.host_link_bandwidth
    if hardware.link_bandwidth and any(name in hardware.link_name for name in TO_HOST) and not hardware.optional_link:
        return hardware.link_bandwidth
    slot = SLOTS.get(hardware.generation)
    return find_link(slot).bandwidth if slot else 0.0


def machine(hardware: Hardware, compute: str, network: float | None = None, node: int | None = None) -> Machine:
    """Return the figures of an accelerator that computes linear layers in `compute`. Refused without a memory
    bandwidth."""
    wide = "bf16" if "bf16" in hardware.peaks else "fp16"
    if wide not in hardware.peaks or compute in WIDE:  # fp32 runs attention and head in fp32 too
        wide = compute if compute in WIDE else hardware.default_dtype
    bits = COMPUTE_BITS.get(compute, 16)
    if bits == 4:
        peak = hardware.peak("fp4")
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
    stated = hardware.generation in (*WITH_SMALL_UNITS, HOPPER)
    issued = (hardware.flop_per_clock_per_sm or 0.0) if stated else 0.0
    usual = (SMALL_WATTS if 0 < issued <= SMALL_UNITS else REFERENCE_WATTS).get(era)
    link, slots = link_of(hardware)
    staged = slots and (hardware.no_peer_access or hardware.link_bandwidth is None)
    watts = None if hardware.tdp_of_module or compute in WIDE else hardware.tdp_w
    power = watts / hardware.peak(wide) / usual if usual and watts else 1.0
    return Machine(
        era,
        hardware.name,
        peak,
        whole,
        hardware.memory_bandwidth,
        link,
        network or hardware.nic_bandwidth or SLOWEST_NETWORK,
        gpus_per_node(hardware, node),
        1 if era == "tpu" else hardware.sm_count or 100,
        min(power, MOST_POWER),
        bits,
        hardware.peaks.get("fp32", 0.0),
        issued,
        1.0 if slots else 0.0,
        1.0 if staged else 0.0,
        host_link_of(hardware) or LINKLESS,
        hardware.clock_gain,
    )
