"""The form of a hardware file (hardware_specs.yaml): its fields, their units, and messages that name the line.

pydantic is imported here, so this module is loaded only if such a file is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from napkin import units
from napkin.errors import NapkinError, did_you_mean
from napkin.inputs.hardware import normal
from napkin.inputs.load import Document, printable
from napkin.inputs.peaks import GENERATIONS


def _quantity(parse: Callable[[str], float], plain: Callable[[str], float] = units.positive) -> BeforeValidator:
    """Accept a bare number that `plain` accepts, or text with a unit that `parse` does (`3.35TB/s`)."""

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise units.Unreadable("a number belongs here", "for example 80e9 or 3.35TB")
        text = value if isinstance(value, str) else repr(value)
        return (parse if text.strip("0123456789.eE+- ") else plain)(text)

    return BeforeValidator(read)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise units.Unreadable("text belongs here", "put it in quotes")
    return units.words(value)


def _texts(value: object) -> list[str]:
    if not isinstance(value, list):
        raise units.Unreadable("a list belongs here", "for example [a, b]")
    return [_text(item) for item in value]


def _generation(value: object) -> str:
    name = normal(_text(value))
    if name not in GENERATIONS:
        hint = did_you_mean(name, GENERATIONS) or f"one of {', '.join(GENERATIONS)}"
        raise units.Unreadable(f"{str(value)!r} is not a generation that napkin knows", hint)
    return name


def _tier(value: object) -> str:
    if value not in ("A", "B", "C"):
        raise units.Unreadable("the tier is A, B or C", "A: its source was read; B: one that restates it; C: neither")
    return str(value)


Text = Annotated[str, BeforeValidator(_text)]
Texts = Annotated[list[str], BeforeValidator(_texts)]
Count = Annotated[int, _quantity(units.positive_count, units.positive_count)]
Bytes = Annotated[int, _quantity(units.size, units.positive_count)]
Bandwidth = Annotated[float, _quantity(units.bandwidth)]
Rate = Annotated[float, _quantity(units.compute_rate)]
Watts = Annotated[float, _quantity(units.power_draw)]
Number = Annotated[float, _quantity(units.positive)]
Factor = Annotated[float, _quantity(units.at_least_one, units.at_least_one)]


class StrictEntry(BaseModel):
    """A mapping of the file: unknown keys are refused, and types are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class MemoryEntry(StrictEntry):
    """An accelerator's memory: bytes and byte/s."""

    bytes: Bytes = 0
    bandwidth: Bandwidth = 0.0
    label: Text = ""
    type: Text = ""


class WireEntry(StrictEntry):
    """A rate between devices; makers print one way or both ways together."""

    key: Text = ""  # of an entry of `links`
    name: Text = ""
    per_direction: Bandwidth | None = None
    bidirectional: Bandwidth | None = None


class ReportedEntry(StrictEntry):
    """The memory that software sees, in MiB, and the clock that matmuls run at."""

    torch_mib: Number | None = None
    nvidia_smi_mib: Number | None = None
    note: Text = ""
    source: Text = ""
    clock_hz: Number | None = None
    clock_source: Text = ""


def _wire(value: object) -> Any:
    return {"key": value} if isinstance(value, str) else value


class AcceleratorEntry(StrictEntry):
    """One entry of `accelerators`."""

    name: Text = ""
    vendor: Text = ""
    generation: Annotated[str, BeforeValidator(_generation)] = ""
    aliases: Texts = []
    default_for: Texts = []
    peak_flops: dict[str, Rate] = {}
    sparse_factor: Factor = 1
    sparse_peak_flops: dict[str, Rate | None] = {}
    memory: MemoryEntry | None = None
    reported: ReportedEntry | None = None
    link: Annotated[WireEntry | None, BeforeValidator(_wire)] = None
    nic: WireEntry | None = None
    host_link: Annotated[WireEntry | None, BeforeValidator(_wire)] = None
    optional_link: bool = False  # an accessory; without it devices reach each other by their slots
    no_peer_access: bool = False  # the driver lets no device read another's memory over their slots
    integrated_ports: bool = False  # the network is on the accelerator; the host's network cards do not connect it
    tdp_of_module: bool = False  # the power rating covers a host processor too
    devices_per_node: Count | None = None
    devices_per_package: Count = 1
    device_name: Text = ""
    tdp_w: Watts | None = None
    sm_count: Count | None = None
    boost_clock_hz: Number | None = None
    flop_per_clock_per_sm: Number | None = None
    l2_bytes: Bytes | None = None
    assumed: Texts = []
    source: Text = ""
    printed: Text = ""
    checked: Texts = []
    tier: Annotated[str, BeforeValidator(_tier)] = ""
    run_year: Count | None = None
    note: Text = ""


class LinkEntry(StrictEntry):
    """One entry of `links`."""

    name: Text = ""
    aliases: Texts = []
    per_direction: Bandwidth | None = None
    bidirectional: Bandwidth | None = None
    source: Text = ""


class HardwareFile(StrictEntry):
    """A whole file."""

    references: dict[str, Text] = {}
    links: dict[str, LinkEntry] = {}
    accelerators: dict[str, AcceleratorEntry] = {}


def _fields_at(path: tuple[object, ...]) -> list[str]:
    """Return the field names that a path of the file may have, for the hint to an unknown one."""
    if not path:
        return list(HardwareFile.model_fields)
    if path[0] == "links":
        return list(LinkEntry.model_fields)
    inner: dict[str, type[BaseModel]] = {
        "memory": MemoryEntry,
        "reported": ReportedEntry,
        "link": WireEntry,
        "nic": WireEntry,
        "host_link": WireEntry,
    }
    model = inner.get(str(path[2]), AcceleratorEntry) if len(path) > 2 else AcceleratorEntry
    return [name for name in model.model_fields if name != "key"]


def place_of(document: Document, path: tuple[object, ...]) -> str:
    """Return `file:line: field`, printable whatever the keys hold."""
    line = document.lines.get(path)
    field = ".".join(printable(str(part), 60) for part in path)
    return f"{document.name}:{line}: {field}" if line else f"{document.name}: {field}"


def problem_of(document: Document, error: Mapping[str, Any]) -> NapkinError:
    """Return one finding of pydantic in napkin's words, with file, line and field."""
    path = tuple(error["loc"])
    place = place_of(document, path)
    cause = (error.get("ctx") or {}).get("error")
    if isinstance(cause, units.Unreadable):
        return NapkinError(f"{place}: {cause.reason}", cause.hint)
    if error["type"] == "extra_forbidden":
        known = _fields_at(path[:-1])
        return NapkinError(
            f"{place}: is not a field", did_you_mean(str(path[-1]), known) or f"one of {', '.join(known)}"
        )
    if error["type"] in ("model_type", "model_attributes_type", "dict_type"):
        return NapkinError(f"{place}: a mapping belongs here", "write key: value lines below it")
    return NapkinError(f"{place}: {printable(str(error['msg']))}", "`napkin hardware NAME` shows a known one")
