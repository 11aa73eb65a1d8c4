"""Complete training runs: the utilization that accelerator-hours imply, predicted from other teams' runs.

u = 6·A·D / (hours·3600·P), with active parameters A, tokens D and dense peak P. It is the MFU of a normal step minus
losses to restarts, evaluation, slow nodes and bookkeeping; published hours that are tokens over a rate hold no such
losses, and count as those hours over the usual goodput. The rule has four constants:

    ln u = a + M·(b + c·log10(A / 70e9)) − d·min(2, max(0, 2023 − year))

M is 1 for a cluster of fast accelerators in production and 0 for one or two nodes or slower ones: small models on large
clusters of H100s are billed for far more than one clean pass; stacks before 2023 were slower. A speedrun is no such
bill: M is 0. A benchmark run (MLPerf: from start to a target loss, tuned for the purpose, in 8 bits) has a rule of its
own, because its batch is fixed and more accelerators each compute less of it:

    ln u = a + b·log10(accelerators / 1024)

Fitted by least squares, with the weight of a team being the square root of its runs, and robust to outliers; the
interval is a quantile of the leave-one-team-out errors, teams weighing the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul

from napkin.evidence.figures.goodput import PUBLISHED
from napkin.evidence.intervals.ranking import median, over_sources
from napkin.evidence.rates.machines import constants_of
from napkin.inputs import hardware
from napkin.inputs.hardware import Hardware
from napkin.record import record

TYPE_CHECKING = False  # mypy takes it as true; the readers of published rows are loaded where rows are read
if TYPE_CHECKING:
    from napkin.evidence.rows.runs import RunRow

FAST = 5.6e14
"""Dense 16-bit FLOP/s from which an accelerator is fast: halfway, as a ratio, from an A100 to an H100. In the evidence
none lies between them, and none is faster than an H100."""
SMALL_NODE, CLUSTER = 16, 64
"""Accelerators of one or two nodes, where nothing fails and nothing waits; and those from which a run is one of a
cluster, the smallest such run in the evidence. Between them M rises with the logarithm of their number, so that more
accelerators never take longer."""
MODERN = 2023
"""The year from which on software counts as today's."""
OLDEST = 2
"""Years before MODERN beyond which software counts as no older: too few runs before 2021 to tell."""
REFERENCE = 70e9
"""Active parameters at which the rule has no term of the size."""
SMALLEST, LARGEST = 1e9, 500e9
"""Active parameters of the smallest and the largest model in the evidence: beyond them the size counts as theirs."""
RIDGE = 1.0
"""Weight of the prior that b, c and d are 0."""
TO_SIGMA = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation, 1/Φ⁻¹(3/4)."""
ROBUST = 1.5
"""Deviations from which on a run weighs less in the fit (Huber 1964, Robust Estimation of a Location Parameter)."""
FARTHER = 1.25
"""assumed: more width in ln if no such run is in the evidence (new chip, experts, size or count beyond it)."""
MOST_DEVICES = 16384
"""Accelerators of the largest run in the evidence."""
BENCHMARK, PRODUCTION = "benchmark", "production"
USUAL_DEVICES = 1024
"""Accelerators at which a benchmark's rule has no term of their number, and which it takes if none are stated."""
FEWEST_DEVICES = 256
"""Accelerators below which a benchmark's rule has no run: it stays there."""


@record
class PublishedRun:
    """A published run as input of the rule, with the utilization that its hours imply, losses included."""

    row: RunRow
    era: str
    log_u: float
    inputs: tuple[float, ...]


def features_of_benchmark(gpus: int | None) -> tuple[float, ...]:
    """Return the features of a benchmark's rule: 1; log10 of the accelerators over USUAL_DEVICES."""
    return (1.0, math.log10(min(max(gpus or USUAL_DEVICES, FEWEST_DEVICES), MOST_DEVICES) / USUAL_DEVICES))


def features(share: float, active: float, year: float | None) -> tuple[float, ...]:
    """Return the features of the rule: 1; M; M times log10 of the size; minus years before MODERN."""
    size = math.log10(min(max(active, SMALLEST), LARGEST) / REFERENCE)
    return (1.0, share, share * size, -min(OLDEST, max(0.0, MODERN - (year or MODERN))))


def share_of_a_cluster(card: Hardware, gpus: int | None, kind: str) -> float:
    """Return M of a run; one whose paper gives only hours is on a large cluster."""
    if card.peak(card.default_dtype) < FAST or kind != PRODUCTION:
        return 0.0
    if gpus is None:
        return 1.0
    return min(max(math.log(gpus / SMALL_NODE) / math.log(CLUSTER / SMALL_NODE), 0.0), 1.0)


def peak_of(card: Hardware, dtype: str) -> float:
    """Return the dense peak that utilization is taken against: the stated dtype's, else that of 16 bits."""
    return card.peaks.get(dtype) or card.peaks.get("bf16") or card.peak("fp16")


def hours(flops: float, peak: float, utilization: float) -> float:
    """Return the device-hours of a run, H = C / (3600·P·u). peak: FLOP/s of one device."""
    return flops / (3600 * peak * utilization)


def share_held(row: RunRow) -> float:
    """Return the share of a run's accelerator-hours that its published hours hold: tokens over a rate (`rate`) hold no
    losses, and are the goodput of all."""
    return PUBLISHED[row.run_kind].share.value if row.basis == "rate" else 1.0


def flops_of(row: RunRow) -> float:
    """Return C = 6·A·D, the FLOPs of a published run."""
    return 6 * row.active * row.tokens


def run_of(row: RunRow) -> PublishedRun | None:
    """Return the row as the rule needs it; None where hours, accelerator or FLOPs are missing."""
    if row.why or not row.hours:
        return None
    card = hardware.find(row.chip)
    used = flops_of(row) / (row.hours / share_held(row) * 3600 * peak_of(card, row.dtype))
    share = share_of_a_cluster(card, row.gpus, row.run_kind)
    inputs = features_of_benchmark(row.gpus) if row.run_kind == BENCHMARK else features(share, row.active, row.year)
    return PublishedRun(row, constants_of(card), math.log(used), inputs)


def evidence() -> list[PublishedRun]:
    """Return the published runs whose utilization is known."""
    from napkin.evidence.rows import facts

    return [run for row in facts.runs() if (run := run_of(row)) is not None]


SAME = 0.02
"""Largest difference of FLOPs and of tokens between a given run and a published one that counts as the same."""


def published(flops: float, tokens: float, card: Hardware) -> list[RunRow]:
    """Return the published runs of as many FLOPs and tokens on the same accelerator, with their hours."""
    return [
        run.row
        for run in evidence()
        if abs(flops_of(run.row) / flops - 1) < SAME
        and abs(run.row.tokens / tokens - 1) < SAME
        and hardware.find(run.row.chip).slug == card.slug
    ]


def judging(runs: Sequence[PublishedRun], kind: str) -> list[PublishedRun]:
    """Return the runs to compare one of a kind with: benchmarks among themselves, speedruns with production."""
    return [run for run in runs if (run.row.run_kind == BENCHMARK) == (kind == BENCHMARK)]


def solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Solve a linear system by Gaussian elimination with pivoting; a few unknowns need no library."""
    n = len(right)
    rows = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(n):
            if r != i:
                factor = rows[r][i] / rows[i][i]
                rows[r] = [x - factor * y for x, y in zip(rows[r], rows[i], strict=True)]
    return [rows[i][n] / rows[i][i] for i in range(n)]


def team_weights(runs: Sequence[PublishedRun]) -> list[float]:
    """Return the weight of each run: 1 / √(number of runs of its team)."""
    count: dict[str, int] = {}
    for run in runs:
        count[run.row.team] = count.get(run.row.team, 0) + 1
    return [count[run.row.team] ** -0.5 for run in runs]


def fit(runs: Sequence[PublishedRun]) -> list[float]:
    """Return the constants of runs that judge each other, by weighted ridge regression, repeated with outliers weighing
    less."""
    weights = team_weights(runs)
    columns = list(zip(*(run.inputs for run in runs), strict=True))
    measured = [run.log_u for run in runs]
    terms = range(len(columns))
    rule = [0.0] * len(columns)
    pull = [1.0] * len(runs)
    for _ in range(8):
        weighted = [list(map(mul, map(mul, weights, pull), column)) for column in columns]
        matrix = [
            [sum(map(mul, weighted[i], columns[j]), RIDGE if i == j and i else 0.0) for j in terms] for i in terms
        ]
        rule = solve(matrix, [sum(map(mul, column, measured)) for column in weighted])
        gaps = [abs(log_u - predicted(rule, run.inputs)) for log_u, run in zip(measured, runs, strict=True)]
        spread = TO_SIGMA * median(gaps) or 1.0
        pull = [min(1.0, ROBUST * spread / gap) if gap else 1.0 for gap in gaps]
    return rule


def predicted(rule: Sequence[float], inputs: Sequence[float]) -> float:
    """Return ln u by the rule."""
    return float(sum(map(mul, rule, inputs)))


def without(runs: Sequence[PublishedRun], team: str) -> list[PublishedRun]:
    """Return the runs of all other teams."""
    return [run for run in runs if run.row.team != team]


def errors_left_out(runs: Sequence[PublishedRun]) -> list[tuple[PublishedRun, float]]:
    """Return each run with ln predicted − ln measured, by the rule fitted without its team."""
    rules = {team: fit(without(runs, team)) for team in {run.row.team for run in runs}}
    return [(run, predicted(rules[run.row.team], run.inputs) - run.log_u) for run in runs]


def half_width(runs: Sequence[PublishedRun], level: float) -> float:
    """Return half the interval's width in ln u: the confidence level's quantile of the leave-one-team-out errors, every
    team weighing the same."""
    return over_sources(((run.row.team, abs(error)) for run, error in errors_left_out(runs)), level)


@record
class PlannedRun:
    """A planned run, as input of the similarity and the rule."""

    active: float
    total: float
    card: Hardware
    gpus: int | None
    year: float | None = None
    seq: int | None = None
    run_kind: str = PRODUCTION
    precision: str = ""

    @property
    def experts(self) -> bool:
        """Whether the model is a mixture of experts: a dense one counted without its
        embeddings is not."""
        return self.total > 1.2 * self.active

    @property
    def inputs(self) -> tuple[float, ...]:
        if self.run_kind == BENCHMARK:
            return features_of_benchmark(self.gpus)
        return features(share_of_a_cluster(self.card, self.gpus, self.run_kind), self.active, self.year)

    @property
    def era(self) -> str:
        return constants_of(self.card)


_ERAS = ("volta", "turing", "ampere", "ada", "hopper", "blackwell")
GENERATIONS, SIZE, COUNT, LENGTH, YEARS = 2, 10, 20, 8, 3
"""assumed: how far runs are apart that are unlike by one: in generations of accelerators, in ratios of size, of the
number of accelerators and of length, and in years, which weigh half."""


def unlikeness(asked: PlannedRun, run: PublishedRun) -> float:
    """Return how unlike two runs are: a sum of squares in the units above, and one each for experts in only one of them
    and for accelerators of different makers."""
    row = run.row
    same_maker = asked.era in _ERAS and run.era in _ERAS
    generations = _ERAS.index(asked.era) - _ERAS.index(run.era) if same_maker else 0
    total = (generations / GENERATIONS) ** 2 + (not same_maker and asked.era != run.era)
    for ours, theirs, unit in (
        (asked.active, row.active, SIZE),
        (asked.gpus, row.gpus, COUNT),
        (asked.seq, row.seq, LENGTH),
    ):
        if ours and theirs:
            total += (math.log(ours / theirs) / math.log(unit)) ** 2
    years = (asked.year or MODERN + 1) - (row.year or MODERN)
    return total + (asked.experts != row.experts) + (years / YEARS) ** 2 / 2


@record
class Estimate:
    """Utilization of an entire run with its interval and basis.

    similar  the most similar published runs, nearest first     wider  why the interval is wider than the evidence's"""

    mfu: float
    low: float
    high: float
    level: float
    runs: int
    teams: int
    similar: tuple[PublishedRun, ...]
    wider: str = ""

    def named(self) -> str:
        """Name the similar runs: `Llama 3 70B (0.28, meter), …`."""
        return ", ".join(
            f"{run.row.model} ({math.exp(run.log_u):.2f}{f', {run.row.basis}' if run.row.basis else ''})"
            for run in self.similar
        )


class FittedRule:
    """The rule fitted to some runs, with the interval's half width that they give."""

    def __init__(self, runs: Sequence[PublishedRun], level: float) -> None:
        self.runs, self.level = runs, level
        self.constants = fit(runs)
        self.half = half_width(runs, level)


def estimate(asked: PlannedRun, rule: FittedRule) -> Estimate:
    """Return the utilization to expect of a planned run, from published ones."""
    runs, half = rule.runs, rule.half
    middle = predicted(rule.constants, asked.inputs)
    wider = _beyond(asked, runs)
    if wider:
        half *= FARTHER
    similar = sorted(runs, key=lambda run: unlikeness(asked, run))[:6]
    teams = len({run.row.team for run in runs})
    low, high = math.exp(middle - half), min(math.exp(middle + half), 1.0)
    return Estimate(math.exp(middle), low, high, rule.level, len(runs), teams, tuple(similar), wider)


def _beyond(asked: PlannedRun, runs: Sequence[PublishedRun]) -> str:
    """Return why a run is outside the evidence; "" if it is inside."""
    if asked.run_kind == BENCHMARK and asked.precision and not any(bits in asked.precision for bits in "48"):
        return "the published benchmark runs compute in 8 bits"
    if not any(run.era == asked.era for run in runs):
        return "no whole run on such an accelerator is in the evidence"
    if asked.experts:
        return "few published runs have experts"
    if not SMALLEST <= asked.active <= LARGEST:
        return f"{'smaller' if asked.active < SMALLEST else 'larger'} than the models of the evidence"
    if asked.gpus and asked.gpus > MOST_DEVICES:
        return f"more than {MOST_DEVICES:,} accelerators"
    return ""
