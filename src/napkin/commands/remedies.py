"""What would make a step fit: changes as rows, cheapest first, with what each adds to the step."""

from __future__ import annotations

from napkin.commands.memory_question import MemoryQuestion
from napkin.evidence.rates import LINKLESS, SLOWEST_NETWORK
from napkin.footprint.setup import Setup
from napkin.inputs.hardware import Hardware, find_link, peak_name
from napkin.planning import remedies
from napkin.planning.remedies import Remedy
from napkin.planning.traffic import DatasheetRates
from napkin.render.answer import Answer, Row
from napkin.units import human

MANY = 9
"""A time above ten times as long is written as a multiple."""
HOST = "pcie5"
"""The link assumed between an accelerator and its host."""
DEVICES_PER_NODE = 8
"""Accelerators that tensor parallelism may join where the table does not say."""


def suggest(answer: Answer, question: MemoryQuestion, hardware: Hardware) -> None:
    """Add what would make it fit, cheapest first, each verified."""
    model, setup, word, compiled = question.model, question.setup, question.implementation, question.compiled
    fixed, rates, room = question.fixed_batch, _rates(hardware, setup), int(hardware.capacity)
    found = remedies.suggestions(model, setup, word, room, compiled, rates, fixed)
    more = remedies.wider(model, setup, word, room, compiled, rates, fixed)
    answer.extra["suggestions"] = [_row(question, one) for one in found]
    answer.extra["more_accelerators"] = _row(question, more) if more is not None else None
    lines = ["", "  would fit, cheapest first (time at datasheet rates, nothing overlapping):"]
    if not found:
        lines = ["", "  nothing that napkin tries makes it fit on these accelerators"]
    for one in [*found, *([more] if more is not None else [])]:
        longer = f"{one.time:+.0%} time" if one.time < MANY else f"{1 + one.time:,.0f} × the time"
        lines += [f"    {_change(question, one)}  ({longer}; uses {human(one.fit.reported.used.value, 'byte')})"]
        lines += [f"        {_added(one)}"]
    answer.pictures = (*answer.pictures, *lines)


def _rates(hardware: Hardware, setup: Setup) -> DatasheetRates:
    """Return what the accelerator and its links give at best; where a rate is not known, PCIe of generation 5 to the
    host, and slow links."""
    compute = peak_name(setup.precision.compute)
    return DatasheetRates(
        hardware.peaks.get(compute) or hardware.peak(hardware.default_dtype),
        hardware.link_bandwidth or LINKLESS,
        hardware.nic_bandwidth or SLOWEST_NETWORK,
        find_link(HOST).bandwidth,
        hardware.devices_per_node or DEVICES_PER_NODE,
    )


def _change(question: MemoryQuestion, one: Remedy) -> str:
    """Return what is changed, as options."""
    after = one.fit.step.setup.layout
    if question.fixed_dp and after.dp != question.setup.layout.dp:  # the degrees must still multiply to the GPUs
        return f"{one.what} --dp {after.dp}"
    return one.what


def _row(question: MemoryQuestion, one: Remedy) -> Row:
    """Return one suggestion as a row."""
    return {
        "change": _change(question, one),
        "extra_time": one.time,
        "extra_flops": one.burden.again,
        "extra_bytes": one.burden.tensor + one.burden.network,
        "extra_host_bytes": one.burden.host,
        "extra_idle": one.burden.idle,
        "used": one.fit.reported.used.value,
        "costs": [change.cost for change in one.changes],
    }


def _added(one: Remedy) -> str:
    """Return what a suggestion adds to the step, in words."""
    burden, parts = one.burden, []
    if burden.again:
        parts.append(f"{burden.again:.0%} more FLOPs")
    if burden.idle > 0:
        parts.append(f"{burden.idle:.0%} of the step idle in the pipeline")
    for size, where in ((burden.tensor + burden.network, "to other GPUs"), (burden.host, "to and from the host")):
        if abs(size) >= 1:
            parts.append(f"{human(abs(size), 'byte')} {'less' if size < 0 else 'more'} {where}")
    return "; ".join(parts or [change.cost for change in one.changes])
