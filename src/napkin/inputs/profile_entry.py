"""A profile as an entry of a hardware file."""

from __future__ import annotations

from napkin.errors import NapkinError
from napkin.inputs.load import printable
from napkin.inputs.peaks import peak_name
from napkin.inputs.profile import Profile
from napkin.inputs.profile_cases import GPU_KINDS, DeviceInfo, Json


def hardware_entry(profile: Profile) -> tuple[str, Json]:
    """Return (name, entry) in the form of hardware_specs.yaml, for a user's hardware file.

    An accelerator of the shipped table keeps its datasheet's peaks, since MFU divides by them, and takes what was
    measured otherwise. An unknown one has no datasheet: its peaks are the sustained rates, and the entry says so.
    """
    device = profile.device
    if device.kind not in GPU_KINDS:
        raise NapkinError(f"the profile is of a {device.kind} device, not of a GPU", "measure on a GPU: napkin bench")
    memory = profile.memory_bandwidth()
    measured = f"napkin bench, {profile.created[:10]}, torch {profile.software.get('torch')}"
    entry: Json = {"source": measured}
    if device.hardware is None:
        rates = {dtype: row["sustained"] for dtype, row in profile.summary["matmul"].items() if row["sustained"]}
        if not rates or memory is None:
            raise NapkinError(
                f"the profile has no sustained matmul rate or no memory bandwidth of {printable(device.name)}",
                "measure them: napkin bench --only matmul,memory",
            )
        entry["name"] = device.name
        generation = generation_of(device)
        if generation:
            entry["generation"] = generation
        entry["peak_flops"] = {peak_name(dtype): round(rate) for dtype, rate in rates.items()}
        entry["assumed"] = ["peak_flops"]
        entry["printed"] = "these are measured sustained rates, so an MFU of 1 can be reached"
    sizes: Json = {} if device.hardware else {"bytes": device.memory_bytes}
    if memory is not None:
        sizes["bandwidth"] = round(memory[0])
    if sizes:
        entry["memory"] = sizes
    entry["reported"] = {"torch_mib": device.memory_bytes / 2**20, "source": measured}
    if device.sm_count is not None:
        entry["sm_count"] = device.sm_count
    if device.l2_bytes is not None:
        entry["l2_bytes"] = device.l2_bytes
    if device.power_limit_w is not None:
        entry["tdp_w"] = device.power_limit_w
    link = profile.link_rate("all_reduce")
    if link is not None:
        entry["link"] = {"name": "measured all-reduce bus bandwidth", "per_direction": round(link[1])}
    return device.hardware or "-".join(device.name.lower().split()), entry


def generation_of(device: DeviceInfo) -> str:
    """Return the generation that a GPU's compute capability or gfx architecture names; "" if neither does."""
    if device.arch is not None:
        return next((name for start, name in _GFX.items() if device.arch.startswith(start)), "")
    return _CAPABILITIES.get(device.compute_capability or (0, 0), "")


_CAPABILITIES = {
    **dict.fromkeys([(6, 0), (6, 1)], "pascal"),
    **dict.fromkeys([(7, 0)], "volta"),
    **dict.fromkeys([(7, 5)], "turing"),
    **dict.fromkeys([(8, 0), (8, 6)], "ampere"),
    **dict.fromkeys([(8, 9)], "ada"),
    **dict.fromkeys([(9, 0)], "hopper"),
    **dict.fromkeys([(10, 0), (10, 3), (12, 0)], "blackwell"),
}
"""CUDA compute capability → generation (CUDA C++ Programming Guide, compute capabilities)."""
_GFX = {
    **dict.fromkeys(["gfx90", "gfx94", "gfx95"], "cdna"),
    **dict.fromkeys(["gfx10", "gfx11", "gfx12"], "rdna"),
}
"""LLVM's name of an AMD architecture, by its start → generation (LLVM's AMDGPU usage guide, processors)."""


def hardware_yaml(profile: Profile) -> str:
    """Return the entry as a file for --hardware-file."""
    name, entry = hardware_entry(profile)
    return "accelerators:\n" + "\n".join(_yaml_lines({name: entry}, 1)) + "\n"


def _yaml_lines(mapping: Json, depth: int) -> list[str]:
    lines = []
    for key, value in mapping.items():
        start = f"{'  ' * depth}{key}:"
        if isinstance(value, dict):
            lines += [start, *_yaml_lines(value, depth + 1)]
        elif isinstance(value, list):
            lines.append(f"{start} [{', '.join(value)}]")
        elif isinstance(value, str):
            lines.append(f"{start} " + "'" + value.replace("'", "''") + "'")
        else:
            lines.append(f"{start} {int(value) if float(value).is_integer() else value!r}")
    return lines
