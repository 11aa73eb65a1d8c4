"""Fit constants to measured steps: maximum a posteriori, with a random factor per source, robust to outliers.

    minimize  Σ_rows w·ρ((ln t_predicted − ln t_measured − u_source)/σ) + Σ_constants ((ln c − ln prior)/σ_prior)²/2
              + Σ_sources ρ(u/τ)

ρ is Huber's, with a knee for rows and one for sources; w gives a source the weight of the square root of its rows. The
factor u of a source's rows on one software absorbs what is specific to it (cluster, version); it is fitted together
with the constants and not used in predictions. Gauss–Newton with damping."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from napkin.evidence.fit.columns import Columns
from napkin.evidence.intervals.steps import EXPERTS_SPREAD
from napkin.evidence.rows.printed import Measured, step_flops
from napkin.evidence.rows.steps import StepRow
from napkin.record import record

if TYPE_CHECKING:
    from napkin.evidence.fit.arrays import Floats, Mask

ROW_SPREAD = 0.05
"""σ: spread of ln t inside a source that the model cannot explain; one configuration measured again spreads by 2 to
6 %, and shapes add as much. That of mixtures of experts is EXPERTS_SPREAD."""
SOURCE_SPREAD = 0.06
"""τ: spread of sources around the constants that they share."""
KNEE = 1.0
"""Huber knee for rows in σ, so that details missing from a printed shape do not move constants far."""
SOURCE_KNEE = 1.0
"""Huber knee for sources in τ, so that one outlying table does not affect the others."""
LEAST_GAIN = 0.001
"""Gain of the cost in one round below which a fit ends. A cost of 0.5 is one row that is off by one σ."""
HEAVIEST = 1.5
"""Most weight of one row, and thrice a row's weight in a source of one."""


def seconds_of(row: StepRow) -> float:
    """Return the measured step time in seconds, from a rate or an MFU by tokens or by the source's own rule."""
    found = row.measured
    assert found is not None
    return seconds_from(found, row)


def seconds_from(found: Measured, row: StepRow) -> float:
    """Return the seconds of a step from the quantity that a row prints."""
    batch = row.global_batch or 1
    if found.quantity == "step_seconds":
        return found.value
    if found.quantity == "tokens_per_second_per_gpu":
        return batch * row.seq / found.value / row.gpus
    assert row.shape is not None
    return (step_flops(found.rule, row.shape, row.seq, batch) or 0.0) / (found.value * found.peak * row.gpus)


def in_quantity(seconds: float, row: StepRow) -> float:
    """Return a predicted step time as the quantity that the row prints."""
    found = row.measured
    if found is None or found.quantity == "step_seconds":
        return seconds
    return found.value * seconds_of(row) / seconds  # both quantities are inverse to the time


@record
class ConstantsFit:
    """Constants in the order of `names` (logarithms), their posterior σ, and each group's factor (logarithm)."""

    names: list[str]
    log: Floats
    spread: Floats
    sources: dict[str, float]
    cost: float

    def constants(self) -> dict[str, float]:
        return {name: float(np.exp(value)) for name, value in zip(self.names, self.log, strict=True)}


def group_of(source: str, row: StepRow) -> str:
    """Return the group with a common factor: a source's rows on one software, dense or with experts."""
    return f"{source} {row.stack}{' experts' if row.shape and row.shape.experts else ''}"


def huber(z: Floats, knee: float) -> Floats:
    """Return ρ(z): z²/2, and a line beyond the knee."""
    size = np.abs(z)
    return np.where(size < knee, z * z / 2, knee * size - knee * knee / 2)


def trust(z: Floats, knee: float) -> Floats:
    """Return ρ'(z)/z: 1, and less beyond the knee."""
    return np.minimum(1.0, knee / np.maximum(np.abs(z), 1e-9))


class Problem:
    """Rows and measurements, prepared once; `fit` can hold out sources or single rows.

    Each software of a source has a factor of its own, and so have its mixtures of experts, with a wider spread: what is
    wrong with experts says nothing of dense layers."""

    def __init__(
        self,
        columns: Columns,
        sources: Sequence[str],
        priors: Mapping[str, tuple[float, float]],
        counted: Mask | None = None,
    ) -> None:
        self.columns = columns
        self.sources = np.array(sources)
        experts = [bool(row.shape and row.shape.experts) for row in columns.kept]
        self.groups = np.array([group_of(s, row) for s, row in zip(sources, columns.kept, strict=True)])
        self.row_spread = np.where(experts, EXPERTS_SPREAD, ROW_SPREAD)
        self.log_truth = np.log([seconds_of(row) for row in columns.kept])
        self.counted = np.ones(len(columns.kept), bool) if counted is None else counted
        self.names = [name for name in columns.constants if name not in ("one", "zero")]
        self.prior = np.log([priors[name][0] for name in self.names])
        self.prior_spread = np.array([priors[name][1] for name in self.names])

    def values(self, log: Floats) -> Floats:
        return np.concatenate([[1.0, 0.0], np.exp(log)])

    def log_predicted(self, log: Floats) -> Floats:
        return np.log(self.columns.predict(self.values(log)))

    def jacobian(self, log: Floats) -> Floats:
        """Return the slope of each row's ln t in each constant's logarithm (rows × constants)."""
        step = 1e-4
        moved = np.exp(np.vstack([log, log + step * np.eye(len(log))]))
        fixed = np.tile([1.0, 0.0], (len(moved), 1))
        found = np.log(self.columns.predict_sets(np.hstack([fixed, moved])))
        slopes: Floats = (found[1:] - found[0]).T / step
        return slopes

    def weights(self, mask: Mask) -> Floats:
        weights = np.zeros(len(mask))
        for group in set(self.groups[mask]):
            members = mask & (self.groups == group)
            weights[members] = min(HEAVIEST, 2 * HEAVIEST / np.sqrt(members.sum()))
        return weights

    def fit(
        self,
        mask: Mask | None = None,
        start: Floats | None = None,
        rounds: int = 12,
        report: Callable[[str], None] | None = None,
    ) -> ConstantsFit:
        """Fit by Gauss-Newton."""
        use = self.counted if mask is None else mask & self.counted
        log = self.prior.copy() if start is None else start.copy()
        present = sorted(set(self.groups[use].tolist()))
        member = np.array([[group == key for key in present] for group in self.groups[use]], dtype=float)
        row_spread = self.row_spread[use]
        weights = self.weights(use)[use]
        shift = np.zeros(len(present))

        def residual(log: Floats, shift: Floats) -> Floats:
            return (self.log_predicted(log) - self.log_truth)[use] - member @ shift

        def cost(log: Floats, shift: Floats) -> float:
            rows = huber(residual(log, shift) / row_spread, KNEE)
            priors = (((log - self.prior) / self.prior_spread) ** 2).sum() / 2
            return float((weights * rows).sum() + priors + huber(shift / SOURCE_SPREAD, SOURCE_KNEE).sum())

        now, damping = cost(log, shift), 1e-3
        hessian = np.eye(len(log) + len(present))
        for turn in range(rounds):
            design = np.hstack([self.jacobian(log)[use], -member])
            gap = residual(log, shift)
            pull = weights * trust(gap / row_spread, KNEE) / row_spread**2
            hold = trust(shift / SOURCE_SPREAD, SOURCE_KNEE) / SOURCE_SPREAD**2
            hessian = design.T @ (pull[:, None] * design) + np.diag(np.concatenate([1 / self.prior_spread**2, hold]))
            slope = design.T @ (pull * gap) + np.concatenate([(log - self.prior) / self.prior_spread**2, hold * shift])
            better = False
            while damping < 1e6:
                move = np.linalg.solve(hessian + damping * np.diag(np.diag(hessian)), -slope)
                log_next, shift_next = log + move[: len(log)], shift + move[len(log) :]
                then = cost(log_next, shift_next)
                if then < now:
                    better = True
                    break
                damping *= 5
            if not better:
                break
            gain, log, shift, now = now - then, log_next, shift_next, then
            damping = max(damping / 5, 1e-6)
            if report:
                report(f"round {turn + 1}: cost {now:.2f}")
            if gain < LEAST_GAIN:
                break
        spread = np.sqrt(np.diag(np.linalg.inv(hessian)))[: len(log)]
        return ConstantsFit(self.names, log, spread, dict(zip(present, shift.tolist(), strict=True)), now)
