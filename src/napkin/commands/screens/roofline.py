"""Screen of `roofline`: compute or memory bound, the compute and memory times, and what would change the bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.commands.next_command import under
from napkin.render.answer import Row, number_in
from napkin.render.figures import size
from napkin.render.screen import Bar, Column, Next, Screen, Table, quantities
from napkin.term import Term
from napkin.units import human

MOST_OPERATIONS = 14
"""Operations of a model that are listed one by one, the slowest first; the others are one row."""


def headline(terms: Mapping[str, Term], verdict: str) -> list[str]:
    """Return the bound, the least time, and the distance from the ridge point."""
    intensity, ridge = terms["intensity"].value, terms["ridge"].value
    found = [f"{verdict} bound", f"{human(intensity, '1')} FLOP/byte, ridge {human(ridge, '1')}"]
    return [*found, human(terms["time/overlapped"].value, "second")]


def of_operation(asked: Sequence[str], terms: Mapping[str, Term], verdict: str, rows_are: str = "") -> Screen:
    """Return the screen of one operation; rows_are: the name of the dimension that must grow to be compute bound."""
    compute, memory = terms["time/compute"].value, terms["time/memory"].value
    longer, peak = max(compute, memory), _peak(terms)
    rows: list[Sequence[str | Bar]] = [
        ("FLOPs", human(terms["flops/total"].value, "FLOP")),
        ("bytes moved", size(terms["bytes/total"].value), "operands read once, the result written once"),
        ("time to compute", human(compute, "second"), Bar(compute / longer), "at the dense peak"),
        ("time to move", human(memory, "second"), Bar(memory / longer), "at the memory bandwidth"),
        ("without overlap", human(terms["time/serial"].value, "second"), "one after the other"),
        ("attainable", human(terms["rate/attainable"].value, "FLOP/s"), f"of {human(peak, 'FLOP/s')}"),
    ]
    if "batch/compute_bound" in terms:
        least = human(terms["batch/compute_bound"].value, "1")
        rows.append(("compute bound", f"from {least}", f"{rows_are} on"))
    return Screen(asked, headline(terms, verdict), table=quantities(rows), next=Next({"hardware": "b200"}))


def _peak(terms: Mapping[str, Term]) -> float:
    """Return the accelerator's dense peak in the question's number format."""
    return float(next(part.value for part in terms["time/compute"].parts if part.name == "peak"))


COLUMNS = (
    Column("operation"),
    Column("time", right=True),
    Column("", drop=2),
    Column("intensity", right=True, drop=1),
    Column("bound by"),
)


def of_model(
    asked: Sequence[str], terms: Mapping[str, Term], verdict: str, rows: Sequence[Row], sequences: int
) -> Screen:
    """Return the screen of a model's forward pass on a batch: its operations over all layers, the slowest first."""
    each = sorted(((float(str(row["time"])), row) for row in rows), key=lambda one: -one[0])
    listed = each if len(each) <= MOST_OPERATIONS else each[: MOST_OPERATIONS - 1]
    left = [seconds for seconds, _ in each[len(listed) :]]
    longest = max(each[0][0], sum(left))
    cells: list[tuple[str | Bar, ...]] = [
        (
            str(row["operation"]),
            human(seconds, "second"),
            Bar(seconds / longest),
            human(number_in(row, "intensity"), "FLOP/byte") if row["intensity"] else "–",
            str(row["bound"]),
        )
        for seconds, row in listed
    ]
    if left:
        cells.append((f"{len(left)} others", human(sum(left), "second"), Bar(sum(left) / longest), "", ""))
    batch = {"micro-batch": str(sequences)} if sequences > 1 else {}
    first = headline(terms, verdict)
    rate = f"{human(terms['rate/attainable'].value, 'FLOP/s')} attainable"
    return Screen(asked, [*first, rate], table=Table(COLUMNS, cells), next=under("step", batch))


def of_transfer(terms: Mapping[str, Term], link: str) -> Screen:
    """Return the screen of bytes over a link, next to the accelerator's own memory if one is named."""
    headline = [human(terms["time/link"].value, "second"), f"at {human(terms['link'].value, 'byte/s')}"]
    rows = []
    if "time/memory" in terms:
        memory = terms["time/memory"]
        rate = next(part.value for part in memory.parts if part.unit == "byte/s")
        said = f"{human(rate, 'byte/s')}; {terms['slower'].value:.3g} × faster"
        rows.append(("the GPU's own memory", human(memory.value, "second"), said))
    asked = (f"{human(terms['bytes/total'].value, 'byte')} over {link}",)
    other = "ib-ndr" if "pcie" in link.lower() else "pcie5"
    return Screen(asked, headline, table=quantities(rows), next=Next({"link": other, "link-bandwidth": None}))
