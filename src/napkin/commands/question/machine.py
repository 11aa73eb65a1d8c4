"""The accelerator that a question is about, from --hardware and --hardware-file."""

from __future__ import annotations

import math
from collections.abc import Iterable

from napkin.commands.inputs import Inputs
from napkin.errors import NapkinError, Refused
from napkin.inputs.hardware import RACK, Hardware, HardwareTable, find, shipped
from napkin.inputs.peaks import TRAINING, peak_name
from napkin.options.machine import FIGURES
from napkin.term import GIVEN, MEASURED, Term, leaf

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from napkin.inputs.profile import Profile


def read_hardware_table(inputs: Inputs) -> HardwareTable:
    """Return the shipped accelerators, those of --hardware-file merged over them."""
    path = inputs.text_or_none("hardware-file")
    if path is None:
        return shipped()
    from napkin.inputs.hardware_file import merged  # pydantic, on this path only

    return merged(path, shipped())


RATES = ("peak-flops", "memory-bandwidth", "link-bandwidth", "network-bandwidth", "oversubscription", "tdp")
"""Figures that the time of a step depends on (power, because it can limit the clock)."""


WHICH = "which accelerator?"


def idle_links(gpus: int, node: int) -> tuple[str, ...]:
    """Return the rates of RATES that no traffic uses on this many GPUs, in nodes of this size."""
    network = ("network-bandwidth", "oversubscription")
    return ("link-bandwidth", *network) if gpus == 1 else network if gpus <= node else ()


def read_hardware(inputs: Inputs, uses: Iterable[str]) -> Hardware:
    """Return the accelerator, with given figures instead of the table's; note which variant was taken for an ambiguous
    name.

    uses: options of the figures that the answer depends on; others are rejected at the end
    """
    if not inputs.has("hardware") and "memory-size" in inputs:
        raise NapkinError("--hardware is missing: which accelerator has this memory?", read_of_memory(inputs))
    hardware = find(inputs.text("hardware", WHICH), read_hardware_table(inputs))
    for note in hardware.notes:
        inputs.note(note)
    if hardware.read_as:
        inputs.assume(hardware.read_as)
    inputs.depends(uses, True)
    if inputs.has("gpus-per-node"):
        hardware = _read_nodes(inputs, hardware, inputs.integer("gpus-per-node"))
    given = [name for name in FIGURES if name in inputs]
    return _read_figures(inputs, hardware, given) if given else hardware


def _read_nodes(inputs: Inputs, hardware: Hardware, each: int) -> Hardware:
    """Return the accelerator in nodes of this many. Hosts of a rack, such as the 18 of four GPUs in an NVL72, do not
    divide its link (NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/perf_recipes/: NVLINK_DOMAIN_SIZE 72 on nodes of
    four); more than a host has are the devices that the link joins."""
    joined = hardware.devices_per_node or 0
    if each <= RACK < joined:
        inputs.note(f"the link of {hardware.name} joins {joined:,} GPUs across hosts of {each:,}")
        return hardware
    from napkin.record import replace  # only if a figure is given

    return replace(hardware, devices_per_node=each)


def read_generation(inputs: Inputs) -> str:
    """Return the generation of the accelerator, "" if none is given."""
    return find(inputs.text("hardware"), read_hardware_table(inputs)).generation if inputs.has("hardware") else ""


def read_of_memory(inputs: Inputs) -> str:
    """Return a hint that names accelerators with about --memory-size of memory, the fastest first among equals."""
    size = float(inputs.number("memory-size"))
    known = read_hardware_table(inputs).accelerators

    def order(slug: str) -> tuple[float, float]:
        far = abs(math.log(float(known[slug]["memory"]) / size))
        return round(far, 1), -max(known[slug]["peaks"].values(), default=0.0)

    near = sorted(known, key=order)[:3]
    return f"--hardware {near[0]}; others of about this memory: {', '.join(near[1:])}"


FIELDS = {
    "memory-size": "memory",
    "memory-bandwidth": "memory_bandwidth",
    "link-bandwidth": "link_bandwidth",
    "network-bandwidth": "nic_bandwidth",
    "tdp": "tdp_w",
}
"""Option → the field of Hardware that it replaces; `peak-flops` replaces the peaks."""


def _read_figures(inputs: Inputs, hardware: Hardware, given: list[str]) -> Hardware:
    """Return the accelerator with the given figures; its other peaks are scaled in proportion."""
    from napkin.record import replace  # only if a figure is given

    inputs.repeats.update(name for name in given if _read_as_own(inputs, hardware, name))
    changes: dict[str, object] = {FIELDS[name]: inputs.peek(name) for name in given if name in FIELDS}
    kinds = {**(hardware.kinds or {}), **dict.fromkeys(changes, GIVEN)}
    sources = {**(hardware.sources or {}), **dict.fromkeys(changes, "")}
    if "oversubscription" in given:
        from napkin.evidence.rates.machines import SLOWEST_NETWORK

        own, slower = changes.get("nic_bandwidth"), inputs.peek("oversubscription")
        whole = own if isinstance(own, (int, float)) else hardware.nic_bandwidth or SLOWEST_NETWORK
        assert isinstance(slower, (int, float))
        changes["nic_bandwidth"] = whole / slower
        kinds["nic_bandwidth"], sources["nic_bandwidth"] = GIVEN, "divided by --oversubscription"
    if "memory" in changes:
        changes["capacity_reported"] = None
    if "peak-flops" in given:
        peak = inputs.peek("peak-flops")
        assert isinstance(peak, (int, float))
        changes |= hardware.scaled_peaks(read_base_dtype(inputs, hardware), peak)
        kinds["peak"] = GIVEN
        sources |= {f"peak/{dtype}": "" for dtype in hardware.peaks}
    return replace(hardware, **changes, kinds=kinds, sources=sources)


def _read_as_own(inputs: Inputs, hardware: Hardware, name: str) -> bool:
    """Return whether a given figure equals the accelerator's own."""
    if name == "oversubscription":
        return inputs.peek(name) == 1
    if name == "peak-flops":
        own: object = hardware.peak(read_base_dtype(inputs, hardware))
    else:
        own = getattr(hardware, FIELDS[name])
    return inputs.peek(name) == own


def read_base_dtype(inputs: Inputs, hardware: Hardware) -> str:
    """Return the dtype whose peak --peak-flops states: --dtype's, else the policy's, else the accelerator's default."""
    dtype = inputs.peek("dtype")
    if dtype is not None:
        return peak_name(str(dtype))
    if "precision" in inputs:
        from napkin.training.precision import precision

        return peak_name(precision(str(inputs.peek("precision"))).compute)
    return hardware.default_dtype


def read_usual_format(inputs: Inputs) -> str:
    """Return the number format of training if nothing states it: bf16, or the first that the accelerator has of fp16
    and fp32."""
    if not inputs.has("hardware"):
        return TRAINING[0]
    peaks = find(inputs.text("hardware"), read_hardware_table(inputs)).peaks
    return next((one for one in TRAINING if one in peaks), TRAINING[0])


def read_usual_policy(inputs: Inputs) -> str:
    """Return the policy of training in that format, by name."""
    from napkin.training.usual_policy import usual_policy

    return usual_policy(read_usual_format(inputs))


def check_trains_in(hardware: Hardware, compute: str) -> None:
    """Refuse a step whose matmuls are in a format that the accelerator has no peak for."""
    if peak_name(compute) not in hardware.peaks:
        from napkin.training.usual_policy import usual_policy

        usual = next((usual_policy(one) for one in TRAINING if one in hardware.peaks), "")
        hint = f"--precision {usual}" if usual else f"it has {', '.join(hardware.peaks)}"
        raise Refused(f"{hardware.name} has no {compute} peak that napkin knows", hint)


def check_dtype(inputs: Inputs) -> None:
    """Raise an error for --dtype in a training command, which takes --precision: --dtype is the format of a peak, of
    served weights, or of a tensor."""
    if "dtype" in inputs.given:
        from napkin.training.usual_policy import usual_policy

        word = str(inputs.peek("dtype")).strip().lower()
        policy = usual_policy(word)
        hint = f"--precision {policy}" if policy else "no policy computes in it; for example --precision bf16-mixed"
        raise NapkinError(f"--dtype {word[:40]}: training takes a policy", hint)
    if inputs.has("dtype"):  # of a peak that was read before
        inputs.record("dtype", inputs.peek("dtype"), "derived")


def read_dtype(inputs: Inputs, hardware: Hardware) -> str:
    """Return the number format of the matmuls: --dtype, else the accelerator's default, which is noted."""
    if inputs.has("dtype"):
        return peak_name(inputs.text("dtype"))
    if "precision" in inputs:
        from napkin.training.precision import precision

        dtype = peak_name(precision(str(inputs.peek("precision"))).compute)
        inputs.record("dtype", dtype, "derived")
        return dtype
    dtype = hardware.default_dtype
    asked = "dtype" in inputs.command.names
    if asked:
        inputs.default("dtype", dtype)
    else:
        inputs.record("dtype", dtype, "assumed")
    inputs.note(f"dtype {dtype}: the default for {hardware.name}{'; --dtype asks for another' * asked}")
    return dtype


def read_peak(inputs: Inputs, hardware: Hardware) -> Term:
    """Return the dense peak of one accelerator, FLOP/s/GPU."""
    return hardware.term(f"peak/{read_dtype(inputs, hardware)}", "peak", "FLOP/s/GPU")


def element_format(dtype: str) -> str:
    """Return the format of a tensor whose matmuls run at a peak's rate: fp64_tensor → fp64, fp16_fp16acc → fp16."""
    kinds = ("fp64_tensor", "fp32_matrix", "fp16_fp16acc", "fp8_fp16acc")
    return dtype.partition("_")[0] if dtype in kinds else dtype


def record_rates(inputs: Inputs, profile: Profile, dtype: str) -> tuple[tuple[float, str] | None, ...]:
    """Return (FLOP/s, location) of matmuls and (byte/s, location) of memory from a profile, recorded among the inputs;
    None if absent."""
    rate = profile.matmul_rate(dtype)
    moved = profile.memory_bandwidth()
    for name, found, unit in (("matmul-rate", rate, "FLOP/s"), ("memory-rate", moved, "byte/s")):
        if found is not None:
            inputs.record(name, found[0], "profile", unit, found[1])
    return rate, moved


def read_roof(inputs: Inputs, hardware: Hardware, dtype: str) -> tuple[Term, Term]:
    """Return (FLOP/s, byte/s) of one accelerator: the datasheet's, or those of --profile if it measured them."""
    peak = hardware.term(f"peak/{peak_name(dtype)}", "peak", "FLOP/s")
    bandwidth = hardware.term("memory_bandwidth", "memory_bandwidth")
    path = inputs.text_or_none("profile")
    if path is None:
        return peak, bandwidth
    from napkin.inputs.profile import profile_for

    profile = profile_for(path, hardware.slug)
    for note in profile.notes_for_user():
        inputs.note(note)
    rate, moved = record_rates(inputs, profile, dtype)
    if rate is None:
        inputs.note(f"the profile has no {dtype} matmul: the datasheet's peak is used")
    else:
        peak = leaf("peak", rate[0], "FLOP/s", MEASURED, f"{path}: {rate[1]}")
    if moved is None:
        inputs.note("the profile has no memory bandwidth: the datasheet's is used")
    else:
        bandwidth = leaf("memory_bandwidth", moved[0], "byte/s", MEASURED, f"{path}: {moved[1]}")
    return peak, bandwidth
