"""The accelerator that a question is about, from --hardware and --hardware-file, and how many, from --gpus,
--nodes and --gpus-per-node."""

from __future__ import annotations

import math
from collections.abc import Iterable

from napkin.commands.inputs import Inputs
from napkin.errors import NapkinError, Refused
from napkin.inputs.hardware import RACK, Hardware, HardwareTable, find, shipped
from napkin.inputs.peaks import TRAINING, peak_name
from napkin.options.machine import FIGURES
from napkin.term import GIVEN, MEASURED, Term, leaf

TYPE_CHECKING = False
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


NODES = ("nodes", "gpus-per-node")
OF_A_NODE = ("--num-gpus", "--num_gpus", "--devices", "--trainer.devices")
"""Option names that mean the GPUs of one node in launchers that also take a number of nodes, and all GPUs in others."""


def read_gpus(inputs: Inputs, alone: bool = True) -> None:
    """Derive --gpus from --nodes and --gpus-per-node, or the GPUs of a node from --gpus and --nodes; reject
    contradictions.

    alone: --gpus-per-node without --nodes means a machine of one node, not only the size of a node
    """
    if not any(name in inputs.given for name in NODES):
        return
    if "nodes" not in inputs.given:
        if "gpus" not in inputs.given and alone:
            inputs.record("gpus", inputs.integer("gpus-per-node"), "derived", "GPU")
        return
    nodes = inputs.integer("nodes")
    if isinstance(inputs.peek("gpus"), (list, tuple)):
        raise NapkinError(f"a contradiction: several --gpus and one number of --nodes, {nodes:,}", "leave out --nodes")
    gpus = inputs.integer_or_none("gpus") if "gpus" in inputs.given and inputs.origin("gpus") != "derived" else None
    _check_meaning(inputs)
    if gpus is None:
        each = inputs.integer("gpus-per-node") if "gpus-per-node" in inputs.given else _read_of_accelerator(inputs)
        inputs.record("gpus", nodes * each, "derived", "GPU")
    elif "gpus-per-node" in inputs.given:
        each = inputs.integer("gpus-per-node")
        if nodes * each != gpus:
            raise NapkinError(
                f"a contradiction: --gpus {gpus:,} and --nodes {nodes:,} × --gpus-per-node {each:,} = {nodes * each:,}",
                "leave out --gpus",
            )
    elif gpus % nodes:
        near = max(round(gpus / nodes), 1) * nodes
        raise NapkinError(f"--gpus {gpus:,} is not a multiple of --nodes {nodes:,}", f"--gpus {near:,} is")
    else:
        inputs.record("gpus-per-node", gpus // nodes, "derived", "GPU")


def _check_meaning(inputs: Inputs) -> None:
    """Reject a count of GPUs under a name that means all GPUs in some launchers and those of one node in others."""
    given = inputs.given.get("gpus")
    if given is not None and given.where in OF_A_NODE:
        raise NapkinError(
            f"{given.where} {given.text} next to --nodes: of each node, or of all nodes together?",
            f"--gpus-per-node {given.text}, or --gpus {given.text} for all together",
        )


def _read_of_accelerator(inputs: Inputs) -> int:
    """Return the GPUs of a node of the accelerator, recorded among the inputs."""
    from napkin.evidence.rates.machines import gpus_per_node

    name = inputs.peek("hardware")
    if name is None:
        raise NapkinError("--nodes needs --gpus-per-node", "--gpus-per-node 8, or --hardware, which has its own")
    each = gpus_per_node(find(str(name), read_hardware_table(inputs)))
    inputs.record("gpus-per-node", each, "default", "GPU")
    return each
