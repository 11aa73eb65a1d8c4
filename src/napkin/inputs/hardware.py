"""Accelerators and links by name, from the shipped table or a user's file merged over it.

The shipped facts come from `_tables/hardware.py`, plain literals generated from hardware_specs.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from napkin import term
from napkin.errors import Refused, nearest
from napkin.inputs.peaks import SPARSE, TRAINING, peak_name, unknown
from napkin.record import record

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from typing import Any

    Fields = Mapping[str, Any]


_KINDS = {
    "capacity_reported": term.SEEN,
    "nvidia_smi_bytes": term.SEEN,
    "nic_bandwidth": term.ASSUMED,
    "clock_in_use_hz": term.SEEN,
}
"""Figures that do not come from a datasheet: what drivers print, and how nodes are usually built."""

_WORDS = {
    "memory": "memory size",
    "capacity": "memory size",
    "memory_bandwidth": "memory bandwidth",
    "l2_bytes": "L2 size",
    "link_bandwidth": "link to the other devices of a node",
    "nic_bandwidth": "network rate",
    "host_link_bandwidth": "link to its host",
    "tdp_w": "power rating",
    "sm_count": "number of multiprocessors",
    "boost_clock_hz": "clock",
    "clock_in_use_hz": "clock in use",
    "flop_per_clock_per_sm": "rate per multiprocessor",
    "devices_per_node": "number of devices in a node",
}
_UNITS = {
    "memory": "byte",
    "capacity": "byte",
    "capacity_reported": "byte",
    "nvidia_smi_bytes": "byte",
    "memory_bandwidth": "byte/s",
    "l2_bytes": "byte",
    "link_bandwidth": "byte/s",
    "nic_bandwidth": "byte/s",
    "host_link_bandwidth": "byte/s",
    "tdp_w": "watt",
    "boost_clock_hz": "1/s",
    "clock_in_use_hz": "1/s",
    "flop_per_clock_per_sm": "FLOP",
}

RACK = 8
"""Devices above which a link joins a rack: more than a node, also one that a published row states (NVL72, a TPU's
torus)."""


@record
class Hardware:
    """One accelerator. None: napkin does not know the figure. Rates are bytes or FLOP per second, links one way.

    generation              one of GENERATIONS; "" if a user's file does not state it
    peaks                   dense FLOP/s by dtype
    memory                  the printed number of gigabytes × 10⁹
    capacity_reported bytes that the driver makes available to torch
    optional_link           the link is an accessory, without which devices reach each other by their slots
    no_peer_access          the driver lets no device read another's memory over their slots
    nic_bandwidth           network per device, as nodes are usually built
    host_link_bandwidth     to the host, where it is neither the link nor the slot of the generation's cards
    integrated_ports        the network is on the accelerator itself, and network cards of the host do not connect it
    clock_in_use_hz         clock that matmuls run at, where it is above the one behind the peaks
    tdp_of_module           the power rating covers a host processor on the same module, and says nothing of the clock
    devices_per_node        devices that reach each other over the link devices_per_package 2 if software sees a package
    as two devices, each with half of everything; device_name is one of them
    sources                 citation by figure, if it is not `source`
    kinds                   kind of number by figure, if it is not a published fact
    run_year                year of most published training runs on it, if it is an old one
    notes                   what an answer that uses this accelerator must say
    read_as `SXM 80GB`: the part of this name that the given name, a family's, does not state
    """

    slug: str
    name: str
    peaks: Mapping[str, float]
    memory: int
    memory_bandwidth: float
    vendor: str = ""
    generation: str = ""
    aliases: tuple[str, ...] = ()
    default_for: tuple[str, ...] = ()
    sparse_factor: float = 1
    sparse_peaks: Mapping[str, float | None] | None = None
    memory_label: str = ""
    memory_type: str = ""
    capacity_reported: int | None = None
    nvidia_smi_bytes: int | None = None
    reported_note: str = ""
    device_name: str = ""
    l2_bytes: int | None = None
    link_name: str = ""
    link_bandwidth: float | None = None
    optional_link: bool = False
    no_peer_access: bool = False
    nic_name: str = ""
    nic_bandwidth: float | None = None
    host_link_name: str = ""
    host_link_bandwidth: float | None = None
    integrated_ports: bool = False
    tdp_of_module: bool = False
    devices_per_node: int | None = None
    devices_per_package: int = 1
    tdp_w: float | None = None
    sm_count: int | None = None
    boost_clock_hz: float | None = None
    clock_in_use_hz: float | None = None
    flop_per_clock_per_sm: float | None = None
    source: str = ""
    printed: str = ""
    checked: tuple[str, ...] = ()
    tier: str = ""
    note: str = ""
    sources: Mapping[str, str] | None = None
    kinds: Mapping[str, str] | None = None
    run_year: int | None = None
    notes: tuple[str, ...] = ()
    read_as: str = ""

    def peak(self, dtype: str) -> float:
        """Return the dense peak in FLOP/s. Refused (3) where this accelerator has none that napkin knows."""
        name = peak_name(dtype)
        if name not in self.peaks:
            raise Refused(f"{self.name} has no {name} peak that napkin knows", f"it has {', '.join(self.peaks)}")
        return self.peaks[name]

    def sparse_peak(self, dtype: str) -> float | None:
        """Return the peak printed for 2:4 structured sparsity, or None. To be shown, never to be divided by."""
        name = peak_name(dtype)
        dense = self.peak(name)
        if self.sparse_peaks and name in self.sparse_peaks:
            return self.sparse_peaks[name]
        return dense * self.sparse_factor if self.sparse_factor > 1 and name in SPARSE else None

    def scaled_peaks(self, dtype: str, peak: float) -> dict[str, object]:
        """Return the fields of an accelerator whose peak in one dtype is `peak`: every dense peak · peak / this one's.
        The peaks with structured sparsity are unknown."""
        factor = peak / self.peak(dtype)
        peaks = {name: dense * factor for name, dense in self.peaks.items()}
        return {"peaks": peaks, "sparse_peaks": None, "sparse_factor": 1}

    @property
    def clock_gain(self) -> float:
        """Return the clock that matmuls run at over the one behind the peaks: 1 where none is known to be above it."""
        if not self.clock_in_use_hz or not self.boost_clock_hz:
            return 1.0
        return self.clock_in_use_hz / self.boost_clock_hz

    @property
    def default_dtype(self) -> str:
        """Return the format that training would use here: bf16, else fp16, else fp32."""
        for dtype in TRAINING:
            if dtype in self.peaks:
                return dtype
        raise Refused(f"{self.name} has no bf16, fp16 or fp32 peak", f"name one with --dtype: {', '.join(self.peaks)}")

    @property
    def capacity(self) -> int:
        """Return the bytes that a process can use: the driver's figure if it is known, else the printed size."""
        return self.memory if self.capacity_reported is None else self.capacity_reported

    def figure(self, figure: str) -> float:
        """Return a figure by its field's name, or `peak/DTYPE`. Refused (3) if it is not known."""
        if figure.startswith("peak/"):
            return self.peak(figure[5:])
        value: float | None = getattr(self, figure)
        if value is None:
            raise Refused(
                f"{self.name}: its {_WORDS.get(figure, figure)} is not known",
                f"give it in a file of your own with --hardware-file, under {self.slug}",
            )
        return value

    def kind(self, figure: str) -> str:
        """Return the kind of number: a published fact, unless `kinds` says otherwise."""
        if figure == "capacity":
            return term.ASSUMED if self.capacity_reported is None else self.kind("capacity_reported")
        kinds = self.kinds or {}
        return kinds.get(figure) or kinds.get(figure.partition("/")[0]) or _KINDS.get(figure, term.TRUE)

    def citation(self, figure: str) -> str:
        """Return where a figure comes from."""
        if figure == "capacity":
            figure = "memory" if self.capacity_reported is None else "capacity_reported"
        if figure == "nic_bandwidth" and not (self.sources or {}).get(figure):
            return f"{self.nic_name}, as nodes are usually built"
        return (self.sources or {}).get(figure, self.source)

    def term(self, figure: str, name: str, unit: str | None = None) -> term.Term:
        """Return a figure as a leaf of an answer, with its kind and citation."""
        if unit is None:
            unit = "FLOP/s" if figure.startswith("peak/") else _UNITS.get(figure, "1")
        return term.leaf(name, self.figure(figure), unit, self.kind(figure), self.citation(figure))


@record
class Link:
    """A link named with `--link`: byte/s in one direction."""

    slug: str
    name: str
    bandwidth: float
    aliases: tuple[str, ...] = ()
    source: str = ""
    kind: str = term.TRUE


class HardwareTable:
    """Accelerators and links by key, as fields, and the keys by every name. Records are made on demand; found: those
    that were asked for by a name."""

    __slots__ = ("accelerators", "families", "found", "links", "names")

    def __init__(
        self,
        accelerators: Mapping[str, Fields],
        names: Mapping[str, str],
        families: Mapping[str, str],
        links: Mapping[str, Fields],
    ) -> None:
        self.accelerators = accelerators
        self.names = names
        self.families = families
        self.links = links
        self.found: dict[str, Hardware] = {}

    def __getitem__(self, slug: str) -> Hardware:
        return Hardware(slug=slug, **self.accelerators[slug])


@cache
def shipped() -> HardwareTable:
    """Return the table that comes with napkin."""
    from napkin._tables import hardware as data

    return HardwareTable(data.ACCELERATORS, data.NAMES, data.FAMILIES, data.LINKS)


def normal(name: str) -> str:
    """Return a name in lowercase with hyphens for spaces and underscores: `H100_SXM 80GB` → h100-sxm-80gb."""
    return "-".join(name.lower().replace("_", " ").replace("-", " ").split())


def find(name: str, among: HardwareTable | None = None) -> Hardware:
    """Return the accelerator called `name`: its key, its name, an alias, or a family (`h100`), which adds a note."""
    known = among or shipped()
    if name not in known.found:  # one question asks often
        known.found[name] = _find(name, known)
    return known.found[name]


def _find(name: str, known: HardwareTable) -> Hardware:
    asked = normal(name)
    wanted = _listed(asked, known)
    if not wanted:
        from napkin.inputs.card_names import in_other_words  # of the names that are not listed only

        wanted = in_other_words(asked, known.names, known.accelerators)
    if wanted:
        slug = known.names[wanted]
        fields = known.accelerators[slug]
        left_open = [word for word in fields["name"].split() if word.lower() not in wanted.split("-")]
        read_as = " ".join(left_open) if known.families.get(wanted) == slug else ""
        return Hardware(slug=slug, **{**fields, "notes": _notes(wanted, slug, fields, known), "read_as": read_as})
    near = list(dict.fromkeys(known.names[one] for one in nearest(asked, known.names, 8)))[:3]
    close = f"did you mean {' or '.join(near)}?" if near else "napkin hardware lists them;"
    if asked == "any":
        close = "napkin plan --hardware any compares them;"
    raise unknown("accelerator", name, (), f"{close} one of your own: --hardware-file")


def _listed(asked: str, known: HardwareTable) -> str:
    """Return the table's name that equals a normalized name up to its unit or maker, "" if there is none."""
    unit = {"g": "b"}.get(asked[-1:], "gb")  # as in a100-80g, h100-80
    for wanted in (asked, f"{asked}{unit}"):
        if wanted in known.names:
            return wanted
    maker, _, bare = asked.partition("-")  # nvidia-h100
    of_maker = bare in known.names and str(known.accelerators[known.names[bare]].get("vendor", "")).lower() == maker
    return bare if of_maker else ""


def _notes(asked: str, slug: str, fields: Fields, known: HardwareTable) -> tuple[str, ...]:
    notes = []
    if known.families.get(asked) == slug:
        words = set(asked.split("-"))
        others = [k for k in known.accelerators if k != slug and words <= set(k.split("-"))]
        also = f"; {asked} can also be {', '.join(others)}" if others else ""
        notes.append(f"{asked} is read as {fields['name']} ({slug}){also}")
    if fields.get("devices_per_package", 1) > 1:
        half = fields.get("device_name")
        notes.append(
            f"{fields['name']} is a package that software sees as {fields['devices_per_package']} devices; figures and "
            f"counts are of packages" + (f" ({half} is one device)" if half else "")
        )
    if (fields.get("kinds") or {}).get("peak") == term.ASSUMED:
        notes.append(f"no maker prints the peaks of {fields['name']}: {fields.get('printed') or 'assumed'}")
    return tuple(notes)


def find_link(name: str, among: HardwareTable | None = None) -> Link:
    """Return the link called `name`: its key, its name or an alias."""
    links = (among or shipped()).links
    asked = normal(name)
    for slug, fields in links.items():
        if asked in (slug, normal(fields["name"]), *map(normal, fields.get("aliases", ()))):
            return Link(slug=slug, **fields)
    raise unknown("link", name, links, f"one of {', '.join(links)}")
