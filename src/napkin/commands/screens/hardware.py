"""Screen of `hardware`: the list of accelerators, or one with its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.inputs.hardware import Hardware
from napkin.render.answer import Cell, Row
from napkin.render.figures import size
from napkin.render.screen import Column, Next, Screen, Table, quantities
from napkin.term import Term
from napkin.units import human

COLUMNS = (
    Column("hardware"),
    Column("peak", right=True),
    Column("dtype"),
    Column("memory", right=True),
    Column("bandwidth", right=True, drop=1),
    Column("link", right=True, drop=3),
    Column("TDP", right=True, drop=4),
    Column("vendor", drop=2),
)


def of_list(rows: Sequence[Row]) -> Screen:
    """Return the screen of the list, one line per accelerator."""
    units = {"bandwidth": "byte/s", "link": "byte/s", "tdp": "watt"}
    cells = [
        (
            str(row["hardware"]),
            _or_none(row["peak"], "FLOP/s"),
            str(row["dtype"]),
            _or_none(row["memory"], "byte/GPU").removesuffix("/GPU"),
            *(_or_none(row[name], unit) for name, unit in units.items()),
            str(row["vendor"]),
        )
        for row in rows
    ]
    found = f"{len(rows)} accelerator{'s' * (len(rows) != 1)}"
    first = next((str(row["hardware"]) for row in rows if str(row["hardware"]).startswith("h100")), None)
    name = first or (str(rows[0]["hardware"]) if rows else None)
    following = Next({"accelerator": name, "vendor": None})
    return Screen((found, "dense peaks", "links one way"), table=Table(COLUMNS, cells), next=following, listing=True)


def _or_none(value: Cell, unit: str) -> str:
    """Return a figure, or a dash if it is not known."""
    return human(value, unit) if isinstance(value, (int, float)) else "–"


def of_one(h: Hardware, terms: Mapping[str, Term]) -> Screen:
    """Return the screen of one accelerator."""
    peaks = {path.rpartition("/")[2]: term for path, term in terms.items() if path.startswith("hardware/peak/")}
    first = h.default_dtype if h.default_dtype in peaks else next(iter(peaks))
    memory = f"{human(h.memory, 'byte/GPU').removesuffix('/GPU')}{f' {h.memory_type}' if h.memory_type else ''}"
    headline = (
        f"{human(peaks[first].value, 'FLOP/s')} dense {first}",
        f"{memory} at {human(h.memory_bandwidth, 'byte/s')}",
        *([human(h.tdp_w, "watt")] if h.tdp_w else []),
    )
    rows = [*_peaks(peaks, terms), *_rest(h)]
    asked = (f"{h.name}{f' by {h.vendor}' if h.vendor else ''}", f"--hardware {h.slug}")
    names = [*h.default_for, *h.aliases]
    remarks = [f"also called: {', '.join(names)}"] if names else []
    remarks += [h.note] if h.note else []
    following = Next({"explain": True})
    return Screen(asked, headline, table=quantities(rows), remarks=remarks, next=following, listing=True)


def _peaks(peaks: Mapping[str, Term], terms: Mapping[str, Term]) -> list[tuple[str, str, str]]:
    """Return a row for each dense peak, formats of one rate together, the highest first, with its ridge."""
    by_rate: dict[float, list[str]] = {}
    for dtype, term in peaks.items():
        by_rate.setdefault(float(term.value), []).append(dtype)
    rows = []
    for rate in sorted(by_rate, reverse=True):
        ridge = terms[f"hardware/ridge/{by_rate[rate][0]}"].value
        said = f"dense, ridge {human(ridge, '1')} FLOP/byte"
        rows.append((f"{', '.join(by_rate[rate])} peak", human(rate, "FLOP/s"), said))
    return rows


def _rest(h: Hardware) -> list[tuple[str, str, str]]:
    """Return a row for each known figure other than peaks."""
    rows = []
    if h.capacity_reported:
        rows.append(("usable memory", size(h.capacity_reported), "what torch can allocate"))
    if h.link_bandwidth:
        node = f"; {h.devices_per_node} GPUs a node" if h.devices_per_node else ""
        rows.append(("link", human(h.link_bandwidth, "byte/s"), f"one way, {h.link_name or 'between GPUs'}{node}"))
    if h.nic_bandwidth:
        name = f"; {h.nic_name}" if h.nic_name else ""
        rows.append(("network", human(h.nic_bandwidth, "byte/s"), f"one way, for each GPU{name}"))
    if h.sm_count:
        clock = f"at {h.boost_clock_hz / 1e9:.3g} GHz" if h.boost_clock_hz else ""
        if h.clock_in_use_hz:
            clock += f"; matmuls seen at {h.clock_in_use_hz / 1e9:.3g} GHz"
        rows.append(("multiprocessors", f"{h.sm_count}", clock))
    if h.l2_bytes:
        rows.append(("L2 cache", size(h.l2_bytes), ""))
    if h.devices_per_package != 1:
        rows.append(("devices per package", str(h.devices_per_package), "software sees each as a GPU"))
    return rows
