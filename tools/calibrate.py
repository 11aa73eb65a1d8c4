"""Fit the step model's constants to the published steps and write them (src/napkin/_tables/calibration.py and
calibration_held_out.py).

    python tools/calibrate.py    fit, leave out each source in turn, write the table; then run tools/accuracy.py

The fit starts from the priors, so that the same rows give the same constants. The only input are
configs/evidence/*.yaml (steps through their generated tables) and evidence/rates/priors.py. A few minutes.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from napkin._tables import calibration, calibration_held_out
from napkin.evidence import published
from napkin.evidence.finetuning.rows import fine_tuning
from napkin.evidence.fit import one_constant
from napkin.evidence.fit.columns import Columns
from napkin.evidence.fit.posterior import ConstantsFit, Problem
from napkin.evidence.intervals.steps import SLOPE, SeenStep, distance
from napkin.evidence.predictions import one_run
from napkin.evidence.rates.constants import own_error_of
from napkin.evidence.rates.priors import PRIORS, prior_of
from napkin.evidence.rows import facts
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.teams import source_of
from napkin.evidence.software import stacks
from napkin.evidence.validation import accuracy
from napkin.evidence.validation.step_check import point_of
from napkin.record import record, replace

ROOT = Path(__file__).resolve().parent.parent
LEAST_BASE = 0.03
"""One configuration measured again spreads by 2 to 6 % (posterior.ROW_SPREAD)."""
TUNING = ROOT / "configs" / "evidence" / "tuning.yaml"
TABLES = ROOT / "src" / "napkin" / "_tables"
TABLE, HELD_OUT = TABLES / "calibration.py", TABLES / "calibration_held_out.py"


def problem() -> Problem:
    rows = facts.steps()
    columns = Columns(rows)
    return Problem(
        columns,
        [row.source_key for row in columns.kept],
        {name: prior_of(name)[:2] for name in columns.constants if name not in ("one", "zero")},
        np.array([not (row.suspect or row.judges) for row in columns.kept]),
    )


def base_of(errors: Any, far: Any, own: Any, sources: Any) -> float:
    """Return the mean error next to the evidence: what is left of the mean of |error| beside distance and `own`,
    sources weighing the same."""
    weights = np.array([1 / (sources == s).sum() for s in sources])
    mean = np.average(np.abs(errors), weights=weights)
    beside = np.average((SLOPE * far) ** 2 + own**2, weights=weights)
    return float(np.sqrt(max(mean**2 - beside, LEAST_BASE**2)))


def near_ratio() -> float:
    """Return the 90 % quantile of errors after one near step of the same source was measured, over that without; every
    source weighs the same."""
    found = accuracy.errors()
    near = accuracy.scaled_by_nearest(found)
    known = np.isfinite(near)
    sources = np.array(found.sources)[known]
    weights = np.array([1 / (sources == s).sum() for s in sources])

    def ninth(values: Any) -> float:
        order = np.argsort(values)
        return float(values[order][np.searchsorted(np.cumsum(weights[order]), 0.9 * weights.sum())])

    return ninth(np.abs(near[known])) / ninth(np.abs(found.out[known]))


HOST = ("host_module", "host_unit")
"""Constants that fine-tuning alone shows (configs/evidence/tuning.yaml)."""


@record
class TunedStep:
    """A published step of fine-tuning that waits for the host.

    fits     the constant that it is fitted by
    seconds  as measured; if `beside` is given, less those of the same step without what the constant is about
    """

    fits: str
    source: str
    seconds: float
    step: one_run.StepPrediction
    beside: one_run.StepPrediction | None

    def gap(self, name: str, value: float) -> float:
        """Return ln predicted − ln measured for a value of a constant."""
        steps = [self.step] if self.beside is None else [self.step, self.beside]
        found = [float(replace(one, rates=replace(one.rates, **{name: value})).step().time.value) for one in steps]
        return float(np.log(found[0] - sum(found[1:])) - np.log(self.seconds))


def tuned_rows() -> list[TunedStep]:
    """Return the published steps of fine-tuning that wait for the host."""
    rows = {row.text("id"): row for row in published.read(str(TUNING)).tuning}
    found = []
    for row in rows.values():
        if not row.text("fits"):
            continue
        beside = row.text("beside")
        seconds, step = _measured(row)
        less, other = _measured(rows[beside]) if beside else (0.0, None)
        source = source_of(row.text("source.title"))
        found.append(TunedStep(row.text("fits"), source, seconds - less, step, other))
    return found


def _measured(row: RowFields) -> tuple[float, one_run.StepPrediction]:
    """Return the measured seconds of a row's step, and its prediction."""
    asked = fine_tuning(row)
    assert asked.hardware is not None
    layout = asked.setup.layout
    batch = float(layout.global_batch)
    seconds = measured_seconds(row, batch, batch * float(layout.seq) / float(layout.gpus))
    return seconds, one_run.asked(asked.model, asked.setup, asked.hardware, asked.software)


def measured_seconds(row: RowFields, batch: float, tokens: float) -> float:
    """Return the seconds of a step, as measured, from those of a run over samples, `batch` of them a step, or from the
    rate of one GPU, which works on that many tokens."""
    run, samples = row.number("measured.run_seconds"), row.number("measured.samples")
    stated = row.number("measured.step_seconds") or (run * batch / samples if run and samples else 0.0)
    return stated or tokens / (row.number("measured.tokens_per_second_per_gpu") or 0.0)


def tuned_constant(name: str, rows: Sequence[TunedStep]) -> tuple[float, float]:
    """Return a constant that fine-tuning alone shows, and its σ: its prior if no row is left."""
    prior, spread, _ = PRIORS[name]
    own = [row for row in rows if row.fits == name]

    def gaps(value: float) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for row in own:
            found.setdefault(row.source, []).append(row.gap(name, value))
        return found

    return one_constant.posterior(prior, spread, gaps) if own else (prior, spread)


def short(value: float) -> float:
    return float(f"{value:.5g}")


@record
class Calibration:
    """Everything that the table holds: constants and their σ, those of fits that leave a source out if they differ,
    and the errors of held-out rows."""

    constants: dict[str, float]
    spreads: dict[str, float]
    without: dict[str, dict[str, float]]
    spreads_without: dict[str, dict[str, float]]
    base: float
    seen: list[SeenStep]
    near_ratio: float = 1.0

    def write(self) -> None:
        """Write the table, and apart from it what holds a source out, which a question of the user never asks for;
        constants that a left-out source does not move are those of the whole."""
        moved = {
            source: {n: v for n, v in values.items() if abs(v / self.constants[n] - 1) > 1e-4}
            for source, values in self.without.items()
        }
        wider = {
            source: {n: s for n, s in values.items() if abs(s / self.spreads[n] - 1) > 0.05}
            for source, values in self.spreads_without.items()
        }
        head = (
            '"""Generated by tools/calibrate.py from configs/evidence/steps.yaml, tuning.yaml and '
            'evidence/rates/priors.py; see there."""\n\nfrom __future__ import annotations\n\n'
        )
        held = _mapping("WITHOUT: dict[str, dict[str, float]]", moved)
        held += _mapping("SPREADS_WITHOUT: dict[str, dict[str, float]]", wider)
        HELD_OUT.write_text(head + held, encoding="utf-8")
        text = head + _mapping("CONSTANTS: dict[str, float]", self.constants)
        text += _mapping("SPREADS: dict[str, float]", self.spreads)
        text += f"NEAR_RATIO = {self.near_ratio:.3f}\n"
        text += f"BASE = {self.base:.4f}\n"
        text += "Row = tuple[str, str, str, str, int, int, float, float, float, float, float, float]\n"
        text += "SEEN: tuple[Row, ...] = (\n" + "".join(f"    {_entry(one)!r},\n" for one in self.seen) + ")\n"
        TABLE.write_text(text, encoding="utf-8")


UNKNOWN = "stack/unknown"


def fitted(fit: ConstantsFit) -> dict[str, float]:
    """Return the constants of a fit; software that is not known takes the middle of those that are."""
    found = {name: short(value) for name, value in fit.constants().items()}
    families = sorted({stack.family for stack in stacks.STACKS.values()})
    factors = [found.get(f"stack/{family}", PRIORS[f"stack/{family}"][0]) for family in families]
    return found | {UNKNOWN: short(float(np.exp(np.mean(np.log(factors)))))}


def calibrated(found: Problem) -> Calibration:
    """Fit all rows, and all but each source in turn. Rows that only judge are predicted with a fit of the others."""
    whole = found.fit(rounds=40, report=lambda line: print("all sources:", line, flush=True))
    constants = {name: value for name, (value, _, _) in PRIORS.items()} | fitted(whole)
    spreads = {name: spread for name, (_, spread, _) in PRIORS.items()} | _spreads(found, whole)
    without: dict[str, dict[str, float]] = {}
    spreads_without: dict[str, dict[str, float]] = {}
    errors, exposed = (np.full(len(found.columns.kept), np.nan) for _ in range(2))
    for source in sorted(set(found.sources.tolist()) - {""}):
        mask = found.sources != source
        part = found.fit(mask, start=whole.log) if found.counted[~mask].any() else whole
        without[source] = fitted(part)
        unknown = np.log(without[source][UNKNOWN]) - part.log[found.names.index(UNKNOWN)]
        of_unknown = np.array([unknown * (row.stack not in stacks.STACKS) for row in found.columns.kept])
        spreads_without[source] = _spreads(found, part)
        errors[~mask] = (found.log_predicted(part.log) + of_unknown - found.log_truth)[~mask]
        exposed[~mask] = found.columns.exposed(found.values(part.log))[~mask]
        print(f"without {source}: median error {np.median(np.abs(errors[~mask])):.1%}", flush=True)
    kept = [index for index, row in enumerate(found.columns.kept) if not row.suspect]
    rows = [found.columns.kept[index] for index in kept]
    points, sources = [point_of(row) for row in rows], found.sources[kept]
    far = np.array(
        [min(distance(p, q) for q, other in zip(points, sources, strict=True) if other != s)
         for p, s in zip(points, sources, strict=True)]
    )  # fmt: skip
    own = np.array(
        [own_error_of(p, spreads | spreads_without[str(s)], share)
         for p, s, share in zip(points, sources, exposed[kept].tolist(), strict=True)]
    )  # fmt: skip
    seen = [
        SeenStep(row.id, str(s), p, float(error), float(d), float(o))
        for row, s, p, error, d, o in zip(rows, sources, points, errors[kept], far, own, strict=True)
    ]
    return Calibration(constants, spreads, without, spreads_without, base_of(errors[kept], far, own, sources), seen)


def with_tuned(one: Calibration) -> Calibration:
    """Add the constants that fine-tuning alone shows, the others being those of the table on the disk."""
    rows = tuned_rows()
    constants, spreads = dict(one.constants), dict(one.spreads)
    without, wider = dict(one.without), dict(one.spreads_without)
    for name in HOST:
        value, spread = tuned_constant(name, rows)
        constants[name], spreads[name] = short(value), short(spread)
        for source in sorted({*without, *(row.source for row in rows)}):
            left = [row for row in rows if row.source != source]
            if len(left) < len(rows):
                value, spread = tuned_constant(name, left)
            else:  # it shows neither
                value, spread = constants[name], spreads[name]
            without[source] = {**without.get(source, {}), name: short(value)}
            wider[source] = {**wider.get(source, {}), name: short(spread)}
        print(f"{name}: {constants[name]} ± {spreads[name]}", flush=True)
    return replace(one, constants=constants, spreads=spreads, without=without, spreads_without=wider)


def _spreads(found: Problem, fit: ConstantsFit) -> dict[str, float]:
    return {name: short(spread) for name, spread in zip(found.names, fit.spread, strict=True)}


def write_table() -> None:
    """Calibrate, and write the table; what is fitted with the table in force follows, on a fresh import of it."""
    one = calibrated(problem())
    one.write()
    importlib.reload(calibration)
    importlib.reload(calibration_held_out)
    one = with_tuned(one)
    one.write()
    replace(one, near_ratio=near_ratio()).write()
    print(f"wrote {TABLE.relative_to(ROOT)}")


def _entry(seen: SeenStep) -> tuple[object, ...]:
    p = seen.at
    place = (p.generation, p.stack, int(p.experts), p.bits, round(p.params, 2), round(p.seq, 2), round(p.gpus, 2))
    return (seen.id, seen.source, *place, round(seen.error, 4), round(seen.far, 3), round(seen.own, 4))


def _mapping(head: str, values: Mapping[str, object]) -> str:
    return f"{head} = {{\n" + "".join(f"    {n!r}: {v!r},\n" for n, v in sorted(values.items())) + "}\n"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    write_table()
