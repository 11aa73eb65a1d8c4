"""`napkin hardware`: the known accelerators, or all figures of one with their kinds and sources."""

from __future__ import annotations

from collections.abc import Iterator

from napkin import term
from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.commands.question.machine import read_hardware_table
from napkin.commands.screens.hardware import of_list, of_one
from napkin.errors import NapkinError, did_you_mean
from napkin.inputs import hardware, peaks
from napkin.render.answer import Answer, Row
from napkin.render.screen import Screen
from napkin.term import Term
from napkin.timing import roofline

_SPARSE = "printed for 2:4 structured sparsity; no answer of napkin uses it"
_FIGURES = (
    ("memory", "memory"),
    ("capacity_reported", "memory/capacity"),
    ("nvidia_smi_bytes", "memory/nvidia_smi"),
    ("memory_bandwidth", "memory/bandwidth"),
    ("l2_bytes", "l2"),
    ("link_bandwidth", "link/per_direction"),
    ("nic_bandwidth", "network/per_direction"),
    ("tdp_w", "tdp"),
    ("sm_count", "multiprocessors"),
    ("boost_clock_hz", "clock"),
    ("clock_in_use_hz", "clock_in_use"),
    ("devices_per_node", "devices_per_node"),
    ("devices_per_package", "devices_per_package"),
)
"""Field of Hardware → its path in the answer, below `hardware/`."""


def run(inputs: Inputs) -> Answer:
    """Answer with the named accelerator, with a profile's accelerator as an entry of a hardware file, or with the
    list."""
    if inputs.has("from-profile"):
        inputs.because(inputs.command.names, "the entry is that of the profile's accelerator")
        return _entry(inputs.text("from-profile"))
    table = read_hardware_table(inputs)
    name = inputs.text_or_none("accelerator") or inputs.text_or_none("hardware")
    dtype = inputs.text_or_none("dtype")
    wanted = None if dtype is None else peaks.peak_name(dtype)
    if name is not None:
        inputs.because(("vendor", "hardware"), "one accelerator is named")
        vendors = {table[slug].vendor for slug in table.accelerators}
        maker = next((vendor for vendor in vendors if vendor.lower() == name.strip().lower()), None)
        if maker is not None:
            raise NapkinError(
                f"{maker} is a vendor, not an accelerator", f"napkin hardware --vendor {maker} lists them"
            )
        return _one(hardware.find(name, table), wanted)
    return _list(table, inputs.text_or_none("vendor"), wanted)


def _entry(path: str) -> Answer:
    """Return the measurements of a profile as a hardware file: `napkin hardware --from-profile p.json -o mine.yaml`."""
    from napkin.inputs.profile import read_profile
    from napkin.inputs.profile_entry import hardware_entry, hardware_yaml

    profile = read_profile(path)
    name, entry = hardware_entry(profile)
    # the text is the file and nothing else, so that it can be given to --hardware-file as it is
    return Answer(
        "hardware",
        notes=profile.notes_for_user(),
        screen=Screen((), verbatim=hardware_yaml(profile)),
        extra={"hardware": {"slug": name, **entry}},
    )


def _list(table: hardware.HardwareTable, vendor: str | None, dtype: str | None) -> Answer:
    known = [table[slug] for slug in table.accelerators]
    if vendor is not None:
        vendors = dict.fromkeys(h.vendor for h in known)
        if vendor.lower() not in (v.lower() for v in vendors):
            raise NapkinError(
                f"no accelerator is made by {vendor!r}", did_you_mean(vendor, vendors) or f"one of {', '.join(vendors)}"
            )
        known = [h for h in known if h.vendor.lower() == vendor.lower()]
    rows: list[Row] = []
    for h in known:
        shown = dtype or next(d for d in (*peaks.TRAINING, *h.peaks) if d in h.peaks)
        if shown in h.peaks:
            rows.append(
                {
                    "hardware": h.slug,
                    "vendor": h.vendor,
                    "dtype": shown,
                    "peak": h.peaks[shown],
                    "memory": h.memory,
                    "bandwidth": h.memory_bandwidth,
                    "link": h.link_bandwidth,
                    "tdp": h.tdp_w,
                }
            )
    column_units = {"peak": "FLOP/s", "memory": "byte", "bandwidth": "byte/s", "link": "byte/s", "tdp": "watt"}
    return Answer(
        "hardware",
        rows=rows,
        extra={"columns": column_units},
        screen=of_list(rows),
    )


def _one(h: hardware.Hardware, dtype: str | None) -> Answer:
    if dtype is not None:
        h.peak(dtype)  # refused if it has none
    terms = list(_terms(h, [dtype] if dtype else list(h.peaks)))
    facts = {
        "slug": h.slug,
        "name": h.name,
        "vendor": h.vendor,
        "aliases": [*h.default_for, *h.aliases],
        "memory_type": h.memory_type,
        "link": h.link_name,
        "network": h.nic_name,
        "printed": h.printed,
        "checked": list(h.checked),
        "tier": h.tier,
        "note": h.note,
    }
    sources = {t.name: {"kind": t.kind, "source": t.source} for t in terms if not t.parts}
    return Answer(
        "hardware",
        terms=terms,
        notes=[*h.notes, *_remarks(h)],
        extra={"hardware": {k: v for k, v in facts.items() if v}, "sources": sources},
        screen=of_one(h, {term.name: term for term in terms}),
    )


def _terms(h: hardware.Hardware, dtypes: list[str]) -> Iterator[Term]:
    peaks = {dtype: h.term(f"peak/{dtype}", f"hardware/peak/{dtype}") for dtype in dtypes}
    yield from peaks.values()
    for dtype, dense in peaks.items():
        sparse = h.sparse_peak(dtype)
        path = f"hardware/sparse_peak/{dtype}"
        if sparse is None:
            continue
        if h.sparse_peaks and dtype in h.sparse_peaks:
            yield term.leaf(path, sparse, "FLOP/s", h.kind(f"peak/{dtype}"), f"{h.source}; {_SPARSE}")
        else:
            factor = term.leaf("hardware/sparse_factor", h.sparse_factor, "1", term.TRUE, h.source)
            yield term.multiply(path, dense, factor, source=_SPARSE)
    for figure, path in _FIGURES:
        if getattr(h, figure) is None:
            continue
        one = h.term(figure, f"hardware/{path}")
        yield one
        if figure == "link_bandwidth":
            yield term.multiply("hardware/link/bidirectional", one, term.constant("both ways", 2))
        if figure == "memory_bandwidth":
            for dtype, peak in peaks.items():
                yield roofline.ridge(f"hardware/ridge/{dtype}", peak, one)


def _remarks(h: hardware.Hardware) -> list[str]:
    """Return remarks on the accelerator and on the quality of its figures."""
    tiers = {"A": "the source was read", "B": "a document that restates it was read", "C": "neither was read"}
    found = [f"tier {h.tier}: {tiers[h.tier]}"] if h.tier else []
    found += [f"agrees with: {'; '.join(h.checked)}"] if h.checked else []
    return found + [
        f"{title}: {text}"
        for title, text in (("printed", h.printed), ("as reported", h.reported_note), ("note", h.note))
        if text
    ]


COMMAND = Command(
    "hardware",
    "List the known accelerators, or show one with its sources",
    run,
    brief="List the known accelerators, or show one with its sources",
    options=("hardware", "hardware-file", "vendor", "dtype", "from-profile"),
    arguments=("accelerator",),
    examples=("hardware", "hardware h100", "hardware --vendor AMD --dtype fp8"),
)
