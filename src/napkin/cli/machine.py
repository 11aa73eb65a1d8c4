"""The accelerator that a question is about, from --hardware and --hardware-file."""

from __future__ import annotations

from napkin.cli.command import Inputs
from napkin.inputs.hardware import Hardware, find, peak_name, table
from napkin.term import Term


def accelerator(inputs: Inputs) -> Hardware:
    """The accelerator asked for; what its name leaves open is noted."""
    hardware = find(inputs.need("hardware", "which accelerator?"), table(inputs.get("hardware-file")))
    for note in hardware.notes:
        inputs.note(note)
    return hardware


def dtype_of(inputs: Inputs, hardware: Hardware) -> str:
    """The number format of the matrix products: --dtype, else the accelerator's default, which is noted."""
    if inputs.get("dtype") is not None:
        return peak_name(inputs.get("dtype"))
    dtype = hardware.default_dtype
    inputs.default("dtype", dtype)
    inputs.note(f"dtype {dtype}: the default for {hardware.name}; --dtype asks for another")
    return dtype


def peak_of(inputs: Inputs, hardware: Hardware) -> Term:
    """Dense peak of one accelerator, FLOP/s/GPU."""
    return hardware.term(f"peak/{dtype_of(inputs, hardware)}", "peak", "FLOP/s/GPU")
