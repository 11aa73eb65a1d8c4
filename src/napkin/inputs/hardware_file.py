"""A hardware file (YAML, the form of hardware_specs.yaml), validated and merged over a table of accelerators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from napkin import term
from napkin.errors import NapkinError, Problems, did_you_mean
from napkin.inputs.file_roles import other_role
from napkin.inputs.hardware import HardwareTable, normal
from napkin.inputs.hardware_schema import (
    AcceleratorEntry,
    HardwareFile,
    MemoryEntry,
    ReportedEntry,
    WireEntry,
    place_of,
    problem_of,
)
from napkin.inputs.load import Document
from napkin.inputs.peaks import PEAKS
from napkin.inputs.yaml_file import read_yaml

Path = tuple[object, ...]
"""Keys and indices that lead to a place in the file."""
STATED = ("vendor", "generation", "printed", "tier", "note", "source", "device_name", "run_year")
PROPERTIES = (
    "devices_per_package",
    "sparse_factor",
    "optional_link",
    "no_peer_access",
    "integrated_ports",
    "tdp_of_module",
)
"""Fields of an entry that replace those that are known."""
ADDED = ("aliases", "default_for")
"""Fields of an entry that are added to those that are known."""
FIGURES = ("devices_per_node", "tdp_w", "sm_count", "boost_clock_hz", "flop_per_clock_per_sm", "l2_bytes")
"""Fields of an entry that are figures, each with its own source."""


def merged(path: str, base: HardwareTable) -> HardwareTable:
    """Return the table with a file's accelerators and links merged over it.

    A key that names a known accelerator changes only the figures that the file gives; a new one must be complete.
    The file's names win. Every problem is named with its line (NapkinError, exit status 2).
    """
    document = read_yaml(path)
    if not isinstance(document.data, dict) or not document.data:
        raise NapkinError(
            f"{document.name}: holds no accelerators", "it has the form of hardware_specs.yaml: accelerators: {NAME: …}"
        )
    if (told := other_role(document.data, ("accelerators",))) is not None:
        raise NapkinError(f"{document.name}: holds no accelerators", told)
    try:
        file = HardwareFile.model_validate(document.data)
    except ValidationError as problem:
        raise _all([problem_of(document, error) for error in problem.errors()]) from None
    reader = HardwareFileReader(document, file, base)
    result = reader.table()
    if reader.problems:
        raise _all(reader.problems)
    return result


def _all(problems: list[NapkinError]) -> NapkinError:
    return problems[0] if len(problems) == 1 else Problems(problems)


class HardwareFileReader:
    """Turn a valid file into flat fields (those of hardware.Hardware and hardware.Link) over those of `base`."""

    def __init__(self, document: Document, file: HardwareFile, base: HardwareTable) -> None:
        self.document = document
        self.file = file
        self.base = base
        self.problems: list[NapkinError] = []
        self.own = bool(base.accelerators)  # the shipped file itself is read over an empty table

    def wrong(self, path: Path, what: str, hint: str | None = None) -> None:
        self.problems.append(
            NapkinError(f"{place_of(self.document, path)}: {what}", hint or "`napkin hardware NAME` shows a known one")
        )

    def table(self) -> HardwareTable:
        links = self.links()
        accelerators = dict(self.base.accelerators)
        names, families = dict(self.base.names), dict(self.base.families)
        taken: dict[str, str] = {}
        for key, entry in self.file.accelerators.items():
            path = ("accelerators", key)
            if not normal(key):
                self.wrong(path, "the name is empty")
                continue
            slug = self.base.names.get(normal(key), normal(key))
            before = accelerators.get(slug)
            fields = self.fields(key, entry, dict(before or {}), links)
            if before is None:
                self.complete(path, fields)
            accelerators[slug] = fields
            for field, listed in (
                ("name", [entry.name or key, slug]),
                ("aliases", entry.aliases),
                ("default_for", entry.default_for),
            ):
                for name in map(normal, listed):
                    if taken.setdefault(name, slug) != slug:
                        self.wrong((*path, field), f"{name} also names {taken[name]}", "give each its own names")
                    elif name in accelerators and name != slug:
                        self.wrong((*path, field), f"{name} is the key of another accelerator", "use it as the key")
                    names[name] = slug
                    if field == "default_for":
                        families[name] = slug
                    else:
                        families.pop(name, None)
            half = _half(fields)
            if half is not None:
                halved = normal(str(fields["device_name"]))
                accelerators[halved] = half
                names.update({halved: halved, normal(half["name"]): halved})
        return HardwareTable(accelerators, names, families, links)

    def links(self) -> Mapping[str, Mapping[str, Any]]:
        links = dict(self.base.links)
        for key, entry in self.file.links.items():
            path, slug = ("links", key), normal(key)
            fields = dict(links.get(slug, {}))
            rate = self.rate(path, entry.per_direction, entry.bidirectional)
            if rate is not None:
                fields["bandwidth"] = rate
            elif "bandwidth" not in fields:
                self.wrong(path, "per_direction is missing", "byte/s one way, or bidirectional: both ways together")
            if entry.name or "name" not in fields:
                fields["name"] = entry.name or key
            if entry.aliases:
                fields["aliases"] = tuple(entry.aliases)
            fields["source"] = entry.source or place_of(self.document, path)
            if self.own:
                fields["kind"] = term.GIVEN
            links[slug] = fields
        return links

    def rate(self, path: Path, one_way: float | None, both_ways: float | None) -> float | None:
        if one_way is None:
            return None if both_ways is None else both_ways / 2
        if both_ways is not None and abs(both_ways / 2 / one_way - 1) > 1e-6:
            self.wrong((*path, "bidirectional"), "is not twice per_direction", "give one of them")
        return one_way

    def fields(
        self, key: str, entry: AcceleratorEntry, fields: dict[str, Any], links: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Return the fields of one accelerator: those of `fields`, changed by what the entry states."""
        path = ("accelerators", key)
        given = entry.model_fields_set
        sources, kinds = dict(fields.get("sources") or {}), dict(fields.get("kinds") or {})

        def put(name: str, value: object, figure: str | None = None, source: str = "", at: Path = ()) -> None:
            """Set a field; a figure of a user's file is given, and cited by its line."""
            fields[name] = value
            figure = figure or name
            sources.pop(figure, None)
            kinds.pop(figure, None)
            if self.own:
                kinds[figure] = term.GIVEN
                sources[figure] = source or entry.source or place_of(self.document, (*path, *(at or (name,))))
            elif source:
                sources[figure] = source

        fields |= {name: getattr(entry, name) for name in STATED if name in given}
        if "name" in given or "name" not in fields:
            fields["name"] = entry.name or key
        fields |= {name: (*fields.get(name, ()), *getattr(entry, name)) for name in ADDED if name in given}
        if "checked" in given:
            fields["checked"] = tuple(self.citations(path, entry.checked))
        for name in FIGURES:
            if name in given:
                put(name, getattr(entry, name))
        fields |= {name: getattr(entry, name) for name in PROPERTIES if name in given}
        self.peaks(path, entry, fields, put)
        if entry.memory is not None:
            self.memory(entry.memory, fields, put)
        if entry.reported is not None:
            self.reported(entry.reported, fields, put)
        for name, wire in (("link", entry.link), ("nic", entry.nic), ("host_link", entry.host_link)):
            if name in given:
                self.wire(path, name, wire, links, put)
        for figure in entry.assumed:
            kinds["peak" if figure == "peak_flops" else figure] = term.ASSUMED
        fields["sources"], fields["kinds"] = sources or None, kinds or None
        return fields

    def peaks(self, path: Path, entry: AcceleratorEntry, fields: dict[str, Any], put: Callable[..., None]) -> None:
        """Set the peaks of an entry, dense and sparse, next to those that are known."""
        for dtype in self.dtypes(path, "peak_flops", entry.peak_flops):
            peaks = {**fields.get("peaks", {}), dtype: entry.peak_flops[dtype]}
            at = ("peak_flops", dtype)
            put("peaks", {name: peaks[name] for name in PEAKS if name in peaks}, f"peak/{dtype}", at=at)
        for dtype in self.dtypes(path, "sparse_peak_flops", entry.sparse_peak_flops):
            sparse = entry.sparse_peak_flops[dtype]
            dense = fields.get("peaks", {}).get(dtype)
            if dense is None or (sparse is not None and sparse < dense):
                self.wrong((*path, "sparse_peak_flops", dtype), "is below the dense peak, or there is none")
            fields["sparse_peaks"] = {**(fields.get("sparse_peaks") or {}), dtype: sparse}

    def memory(self, memory: MemoryEntry, fields: dict[str, Any], put: Callable[..., None]) -> None:
        given = memory.model_fields_set
        if "bytes" in given:
            put("memory", memory.bytes, at=("memory", "bytes"))
            fields["memory_label"] = ""
            for name in ("capacity_reported", "nvidia_smi_bytes"):  # the driver spoke of another size
                if name in fields:
                    put(name, None)
        if "bandwidth" in given:
            put("memory_bandwidth", memory.bandwidth, at=("memory", "bandwidth"))
        for name in ("label", "type"):
            if name in given:
                fields[f"memory_{name}"] = getattr(memory, name)

    def reported(self, reported: ReportedEntry, fields: dict[str, Any], put: Callable[..., None]) -> None:
        if reported.clock_hz is not None:
            put("clock_in_use_hz", reported.clock_hz, source=reported.clock_source, at=("reported",))
        devices = fields.get("devices_per_package", 1)
        for name, mib in (("capacity_reported", reported.torch_mib), ("nvidia_smi_bytes", reported.nvidia_smi_mib)):
            if mib is not None:
                put(name, int(mib * 2**20) * devices, source=reported.source, at=("reported",))
        fields["reported_note"] = reported.note

    def wire(
        self,
        path: Path,
        name: str,
        wire: WireEntry | None,
        links: Mapping[str, Mapping[str, Any]],
        put: Callable[..., None],
    ) -> None:
        """Set a link or network of an accelerator: its own rate, or that of an entry of `links`."""
        figure = f"{name}_bandwidth"
        if wire is None:
            put(f"{name}_name", "", figure, at=(name,))
            put(figure, None, at=(name,))
            return
        if wire.key:
            link = links.get(normal(wire.key))
            if link is None:
                self.wrong((*path, name), f"unknown link {wire.key!r}", did_you_mean(wire.key, links))
                return
            put(figure, link["bandwidth"], source=str(link.get("source", "")), at=(name,))
            put(f"{name}_name", link["name"], figure, source=str(link.get("source", "")), at=(name,))
            return
        rate = self.rate((*path, name), wire.per_direction, wire.bidirectional)
        if rate is None:
            self.wrong(
                (*path, name), "per_direction is missing", "byte/s one way, or bidirectional: both ways together"
            )
        put(f"{name}_name", wire.name, figure, at=(name,))
        put(figure, rate, at=(name,))

    def dtypes(self, path: Path, field: str, table: Mapping[str, Any]) -> Iterator[str]:
        for dtype in table:
            if dtype in PEAKS:
                yield dtype
            else:
                hint = did_you_mean(dtype, PEAKS) or f"one of {', '.join(PEAKS)}"
                self.wrong((*path, field, dtype), "is not a dtype of a peak", hint)

    def citations(self, path: Path, keys: list[str]) -> Iterator[str]:
        for key in keys:
            if key in self.file.references:
                yield self.file.references[key]
            else:
                hint = did_you_mean(key, self.file.references) or "name it under references"
                self.wrong((*path, "checked"), f"{key!r} is not one of the references", hint)

    def complete(self, path: Path, fields: Mapping[str, Any]) -> None:
        hint = "a new accelerator needs peak_flops and memory: {bytes, bandwidth}; a known one only what changes"
        for field, written in (
            ("peaks", "peak_flops"),
            ("memory", "memory.bytes"),
            ("memory_bandwidth", "memory.bandwidth"),
        ):
            if not fields.get(field):
                self.wrong(path, f"{written} is missing", hint)


def _half(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return one of the devices that software sees in a package, with its share of every figure that is divided."""
    devices, name = fields.get("devices_per_package", 1), fields.get("device_name")
    if devices == 1 or not name:
        return None
    part = {
        k: v for k, v in fields.items() if k not in ("aliases", "default_for", "device_name", "devices_per_package")
    }
    for field in ("memory", "capacity_reported", "nvidia_smi_bytes", "l2_bytes", "sm_count"):
        if part.get(field) is not None:
            part[field] = part[field] // devices
    for field in ("memory_bandwidth", "link_bandwidth", "nic_bandwidth", "host_link_bandwidth", "tdp_w"):
        if part.get(field) is not None:
            part[field] = part[field] / devices
    if part.get("devices_per_node") is not None:
        part["devices_per_node"] *= devices
    part["peaks"] = {dtype: peak / devices for dtype, peak in fields["peaks"].items()}
    if part.get("sparse_peaks"):
        part["sparse_peaks"] = {dtype: peak and peak / devices for dtype, peak in part["sparse_peaks"].items()}
    part["name"] = f"{fields['name']} (one of {devices} devices)"
    part["memory_label"] = ""
    part["note"] = f"1/{devices} of each figure of the package"
    return part
