"""What published runs show of the allocator: rounding, and the share of what passes that stays in its cache."""

from __future__ import annotations

import statistics

from napkin.errors import NapkinError
from napkin.evidence.intervals.ranking import nearest_rank
from napkin.evidence.rows.models import described
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.setups import framework_of, setup_of
from napkin.evidence.validation import memory_check, memory_readings
from napkin.footprint import allocator
from napkin.footprint.prepared import prepare


class Ledger:
    """A row's bytes by the formulas, and what it measured of them. `outside`: context and communicators, where the
    figure counts them."""

    def __init__(self, row: RowFields, measured: float) -> None:
        framework = framework_of(row)
        assert framework is not None
        model = described(row)
        setup = setup_of(row, model, framework)
        rank = memory_readings.reported_rank(prepare(model, setup))
        flow = rank.flow(setup)
        is_used = memory_check.quantity_of(row) == "memory_used"
        groups = flow.groups * allocator.COMMUNICATION.value + flow.peers * allocator.EXCHANGE.value
        self.measured, self.live, self.passing = measured, float(rank.live), float(flow.passing)
        self.apart, self.workspaces = float(flow.apart(rank.live) + flow.streams), float(flow.workspaces)
        self.outside = float(allocator.CONTEXT_EAGER.value + groups) if is_used else 0.0

    @property
    def rounding(self) -> float:
        return (self.measured - self.workspaces) / self.live - 1

    @property
    def allocated(self) -> float:
        return self.live * (1 + allocator.ROUNDING.value) + self.workspaces

    @property
    def caching(self) -> float:
        return 1 + (self.measured - self.outside - self.allocated - self.apart) / self.passing

    def error(self, caching: float) -> float:
        """Of the figure with another source's share."""
        found = self.allocated + self.apart + (caching - 1) * self.passing + self.outside
        return abs(found / self.measured - 1)


def learned(rows: list[RowFields]) -> str:
    """Lines of a table: what each source shows of the shares that published runs taught, and how far off its rows are
    with what the other source shows."""
    seen: dict[tuple[str, str], list[Ledger]] = {}
    for row in rows:
        framework, measured, what = framework_of(row), row.number("memory.bytes"), memory_check.quantity_of(row)
        alone = (row.count("hardware.count") or row.count("layout.dp") or 1) == 1
        grows = row.flag("layout.expandable_segments")
        rounds = what == "memory_allocated" and alone and not row.flag("layout.recipe_defaults")
        caches = what in CACHED and not grows
        if framework is None or framework.planned or not measured or row.text("suspect") or not (rounds or caches):
            continue
        try:
            one = Ledger(row, measured)
        except NapkinError:
            continue
        name = "rounding" if rounds else "cache"
        seen.setdefault((name, framework.name), []).append(one)
    lines = ""
    for (name, source), members in sorted(seen.items(), reverse=True):
        shown = sorted(one.rounding if name == "rounding" else one.caching for one in members)
        quarter = len(shown) // 4
        others = [
            statistics.median(one.caching for one in them) for (n, s), them in seen.items() if n == name and s != source
        ]
        off = ""
        if others and name != "rounding":
            errors = [one.error(statistics.fmean(others)) for one in members]
            off = f"{statistics.median(errors):.1%}, {nearest_rank(errors, 0.9):.1%}"
        lines += f"| {name} | `{source}` | {len(shown)} | {statistics.median(shown):.4g} "
        lines += f"| {shown[quarter]:.4g} to {shown[-1 - quarter]:.4g} | {off} |\n"
    return lines


CACHED = ("memory_reserved", "memory_used")
