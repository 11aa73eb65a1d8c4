"""Fit what inference engines reach to published rows of serving and write it (src/napkin/_tables/serving_shares.py).

    python tools/serving_shares.py    fit, hold each source out in turn, write the table (a minute)

The shares are those of training steps times exp(effects); an effect's prior is 0 ± SPREADS, so that the same rows give
the same table and what no row tells stays if it was. The only input is configs/evidence/serving.yaml.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from napkin.commands.validate.served import Predicted
from napkin.commands.validate.serving import measured
from napkin.errors import NapkinError
from napkin.evidence import published
from napkin.evidence.serving.errors import SeenServing, kind_of_quantity
from napkin.evidence.serving.generation import kind_of, names, rates_of
from napkin.evidence.serving.rows import ServedRow, served_row
from napkin.formats import COMPUTE_BITS
from napkin.inputs.yaml_file import read_yaml
from napkin.planning import engines, service
from napkin.planning.engines import EngineMemory
from napkin.planning.generation import ServingSetup
from napkin.record import record
from napkin.term import Term

ROOT = Path(__file__).resolve().parent.parent
ROWS = ROOT / "configs" / "evidence" / "serving.yaml"
TABLE = ROOT / "src" / "napkin" / "_tables" / "serving_shares.py"
SPREADS = {"layer": 0.7, "routed": 0.7, "latency": 0.7, "host": 0.7}
SPREAD = 0.25
"""assumed: σ of an effect before any row, in ln: of seconds, and of shares."""
NOISE = 0.15
"""assumed: how far a row lies from a formula whose constants are right, in ln; beyond twice this it pulls less."""
LENGTHS = (0, 128, 512, 2048, 8192)
"""Lengths of llama-bench that are learned from: those in between say the same."""
FITTED = ("decode", "prefill", "throughput")
ROUNDS, AGAIN = 6, 2
"""Steps of the fit of all rows, and of those without one source."""


@record
class Point:
    """One measured quantity of a row: `over` that many tokens."""

    id: str
    source: str
    name: str
    over: int
    truth: float
    asked: ServedRow
    effects: tuple[str, ...]
    suspect: bool

    @property
    def kind(self) -> str:
        return kind_of_quantity(self.name)

    def predict(self, values: Mapping[str, float]) -> float:
        """Return the quantity with these effects."""
        asked = self.asked
        rates = rates_of(asked.hardware, asked.computed, asked.family, values)
        return Predicted(asked, rates, values.get("limited", 0.0), {}).value(self.name, self.over)


def source_keys() -> dict[str, list[str]]:
    """Return the beginnings of the titles of each source's pages."""
    found = read_yaml(str(ROWS)).data["sources"]
    return {key: list(one["titles"]) for key, one in found.items()}


def points() -> list[Point]:
    """Return every quantity of the evidence that is predicted."""
    titles = source_keys()
    found = []
    for row in published.read(str(ROWS)).serving:
        asked = served_row(row)
        bits = COMPUTE_BITS.get(asked.computed, 16)
        effects = {one for parts in names(bits, kind_of(asked.hardware), asked.family).values() for one in parts}
        if asked.limits is not None:
            effects.add("limited")
        title, suspect = row.text("source.title"), bool(row.text("suspect"))
        source = next(key for key, begins in titles.items() if title.startswith(tuple(begins)))
        for one in measured(row):
            if one.value is None or one.over not in LENGTHS:
                continue
            point = Point(row.text("id"), source, one.name, one.over, one.value, asked, tuple(effects), suspect)
            if is_predicted(point):
                found.append(point)
    return found


def is_predicted(point: Point) -> bool:
    """Return whether a quantity is predicted at all."""
    try:
        return point.predict({}) > 0
    except NapkinError:
        return False


def spread_of(name: str) -> float:
    return SPREADS.get(name.partition("/")[0], SPREAD)


class Fit:
    """Least squares around priors, each row pulling less the farther off it is, each source as the root of its rows."""

    def __init__(self, every: Sequence[Point]) -> None:
        self.points = [one for one in every if one.kind in FITTED and not one.suspect]
        self.names = sorted({name for one in self.points for name in one.effects})
        self.prior = np.array([spread_of(name) for name in self.names])
        sources = np.array([one.source for one in self.points])
        self.sources = sources
        self.weights = np.array([1 / math.sqrt((sources == one).sum()) for one in sources])

    def residuals(self, values: Any) -> Any:
        known = dict(zip(self.names, values.tolist(), strict=True))
        return np.array([math.log(one.predict(known) / one.truth) for one in self.points])

    def jacobian(self, values: Any, at: Any, step: float = 0.02) -> Any:
        """d residual / d effect, of the effects that a row has."""
        known = dict(zip(self.names, values.tolist(), strict=True))
        found = np.zeros((len(self.points), len(self.names)))
        for row, one in enumerate(self.points):
            for column, name in enumerate(self.names):
                if name in one.effects:
                    moved = one.predict({**known, name: known[name] + step})
                    found[row, column] = (math.log(moved / one.truth) - at[row]) / step
        return found

    def step(self, values: Any, at: Any, slopes: Any, used: Any) -> Any:
        """Return the effects after one step."""
        pull = np.minimum(1, 2 * NOISE / np.maximum(np.abs(at), 1e-9)) * self.weights * used / NOISE**2
        left = slopes.T @ (slopes * pull[:, None]) + np.diag(1 / self.prior**2)
        right = slopes.T @ (pull * at) + values / self.prior**2
        return values - np.linalg.solve(left, right)

    def run(self, used: Any, start: Any, rounds: int, slopes: Any = None) -> tuple[Any, Any]:
        """Return the effects, and the slopes at the end."""
        values = start
        for turn in range(rounds):
            at = self.residuals(values)
            if slopes is None or (turn % 2 == 0 and rounds > AGAIN):
                slopes = self.jacobian(values, at)
            values = self.step(values, at, slopes, used)
            print(f"round {turn}: median |error| {np.median(np.abs(at[used > 0])):.3f}", flush=True)
        return values, slopes


def short(value: float) -> float:
    return round(float(value), 4)


def remember_passes() -> None:
    """Keep what passes read and compute, and the room for the cache, which no effect changes: a fit asks for the same
    ones thousands of times."""
    for module, name in ((service, "prefill_passes"), (service, "decode_passes"), (engines, "room")):
        setattr(module, name, _remembered(getattr(module, name)))


def _remembered(function: Any) -> Any:
    known: dict[tuple[object, ...], object] = {}

    def found(*asked: Any) -> object:
        key = tuple(_key(one) for one in asked)
        if key not in known:
            known[key] = function(*asked)
        return known[key]

    return found


def _key(one: Any) -> object:
    """Return what tells an argument from others: a setup by its model's identity and the rest, a term by its value."""
    if isinstance(one, ServingSetup):
        return (id(one.model), repr({name: value for name, value in vars(one).items() if name != "model"}))
    return one.value if isinstance(one, Term) else one.name if isinstance(one, EngineMemory) else one


def main() -> None:
    remember_passes()
    every = points()
    fit = Fit(every)
    print(len(fit.points), "figures,", len(fit.names), "effects")
    whole, slopes = fit.run(np.ones(len(fit.points)), np.zeros(len(fit.names)), ROUNDS)
    effects = {name: short(value) for name, value in zip(fit.names, whole, strict=True) if abs(value) > 5e-4}
    without: dict[str, dict[str, float]] = {}
    for source in source_keys():
        used = (fit.sources != source).astype(float)
        part, _ = fit.run(used, whole, AGAIN, slopes) if (fit.sources == source).any() else (whole, None)
        without[source] = {name: short(value) for name, value in zip(fit.names, part, strict=True)}
    seen = [
        SeenServing(
            one.source,
            one.kind,
            one.asked.family,
            one.asked.hardware.generation,
            round(math.log(one.predict(without[one.source]) / one.truth), 3),
        )
        for one in every
        if not one.suspect
    ]
    write(effects, without, seen)


def write(effects: dict[str, float], without: dict[str, dict[str, float]], seen: Sequence[SeenServing]) -> None:
    lines = [
        '"""Generated by tools/serving_shares.py from configs/evidence/serving.yaml; see there."""\n',
        "from __future__ import annotations\n",
        "EFFECTS: dict[str, float] = {",
        *(f"    {name!r}: {value!r}," for name, value in sorted(effects.items())),
        "}",
        "WITHOUT: dict[str, dict[str, float]] = {",
        *(f"    {source!r}: {values!r}," for source, values in sorted(without.items())),
        "}",
        "TITLES: dict[str, tuple[str, ...]] = {",
        *(f"    {key!r}: {tuple(begins)!r}," for key, begins in source_keys().items()),
        "}",
        "SEEN: tuple[tuple[str, str, str, str, float], ...] = (",
        *(f"    {(one.source, one.kind, one.engine, one.generation, one.error)!r}," for one in seen),
        ")\n",
    ]
    TABLE.write_text("\n".join(lines), encoding="utf-8")
    print(f"wrote {TABLE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
