"""Write docs/accuracy.md: how far predictions lie from what was published, from the shipped constants and evidence.

python tools/accuracy.py            the same comparison that `napkin validate` makes, in several ways
"""

from __future__ import annotations

import math
import statistics
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from napkin._tables import calibration, calibration_held_out
from napkin.commands.validate.finetune import PHASES, compared
from napkin.commands.validate.finetune_memory import MEMORY
from napkin.evidence import published
from napkin.evidence.intervals.steps import CLASSES
from napkin.evidence.predictions import runs
from napkin.evidence.rates.priors import CHIP, PRIORS, prior_of
from napkin.evidence.rows import facts
from napkin.evidence.rows.runs import RUN_KINDS
from napkin.evidence.rows.teams import source_of
from napkin.evidence.software.stacks import STACKS
from napkin.evidence.validation import accuracy, memory_check, run_check, step_check
from napkin.evidence.validation.compared import Compared
from napkin.evidence.validation.error_statistics import coverage_of

ROOT = Path(__file__).resolve().parent.parent
EVIDENCE = ROOT / "configs" / "evidence"
TUNING, TUNING_MEMORY, ROLLOUTS = (EVIDENCE / f"{name}.yaml" for name in ("tuning", "tuning_memory", "rollouts"))
RUN = "run_seconds"
WHOLE = ("step_seconds", RUN, "tokens_per_second_per_gpu")
"""Quantities of a whole step of reinforcement learning."""
ORDER = (*CLASSES, "assumed", "")
"""Classes of evidence: "assumed" where a row leaves open what changes its answer, "" where there is one class."""
PAGE = ROOT / "docs" / "accuracy.md"

HEAD = """# How far off is it?

Every figure here is made by `python tools/accuracy.py` from the published rows in `configs/evidence`; `napkin validate`
makes the same comparison row by row, and `napkin validate FILE` for rows of your own. Errors are
|predicted/measured − 1|.

**Held out** means: the constants were fitted without the row's whole source (all pages of one team on one software),
so that neither the row nor its neighbors help to predict it. That is the figure to expect for software and a cluster
that napkin never saw. **Inside** means: the source is in the fit, as it is for everybody who uses that software.
A prediction uses what a planner knows beforehand: shapes, layout, hardware, software. It never reads a row's stated
MFU, FLOP/s or time. Rows that look inconsistent are predicted and shown, but neither counted nor learned from. Rows
that were predicted before anything was fitted to them stay out of every fit (`judges: true`): they judge the intervals.
The form of the model was chosen with all rows in view; leaving a source out takes it from the constants, not from that.
"""


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join(["---"] + ["--:"] * (len(head) - 1)) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def figures(errors: Any) -> list[str]:
    count, median, mean, ninth = accuracy.summary(errors)
    return [str(count), percent(median), percent(mean), percent(ninth)]


def overall(found: accuracy.Errors) -> str:
    dense, near = ~found.experts, accuracy.scaled_by_nearest(found)
    known = np.isfinite(near)
    first = np.array(distinct(found))
    rows = [
        ["dense, source held out", *figures(found.out[dense])],
        ["dense, source held out, each configuration once", *figures(found.out[dense & first])],
        ["dense, inside", *figures(found.inside[dense])],
        ["dense, held out, after one measured step of a near configuration", *figures(near[known & dense])],
        ["mixture of experts, source held out", *figures(found.out[~dense])],
        ["mixture of experts, inside", *figures(found.inside[~dense])],
        ["mixture of experts, after one measured step of a near configuration", *figures(near[known & ~dense])],
    ]
    return table(["steps", "rows", "median", "mean", "p90"], rows)


def distinct(found: accuracy.Errors) -> list[bool]:
    """Mark the first row of each configuration."""
    seen: set[Any] = set()
    first = []
    for row in found.rows:
        key = (row.shape, row.chip, row.gpus, row.seq, row.tp, row.pp, row.vp, row.cp, row.ep, row.dp, row.micro_batch,
               row.global_batch, row.recompute_stated, row.recompute, row.recompute_layers, row.recompute_matmuls,
               row.policy, row.async_tp, row.async_dp, row.async_ep, row.graphs)  # fmt: skip
        first.append(key not in seen)
        seen.add(key)
    return first


def by_source(found: accuracy.Errors) -> str:
    names = facts.step_sources()
    sources = np.array(found.sources)
    covered = {one.id: one.covered for one in step_check.steps(facts.steps())}
    rows = []
    for source in sorted(set(found.sources), key=lambda s: names[s].lower()):
        mine = sources == source
        inside = [covered[row.id] for row, m in zip(found.rows, mine, strict=True) if m]
        bias = float(np.median(np.expm1(found.out[mine])))
        rows.append(
            [
                names[source],
                *figures(found.out[mine]),
                f"{100 * bias:+.1f} %",
                percent(sum(map(bool, inside)) / len(inside)),
                percent(accuracy.summary(found.inside[mine])[1]),
            ]
        )
    return table(["source", "rows", "median", "mean", "p90", "bias", "in the 90 % interval", "median inside"], rows)


def coverage() -> str:
    rows = []
    for level in (0.5, 0.8, 0.9):
        compared = [
            one for one in step_check.steps(facts.steps(), level) if one.covered is not None and not one.suspect
        ]
        groups: dict[str, list[bool]] = {}
        for one in compared:
            groups.setdefault(one.group, []).append(bool(one.covered))
        equal = statistics.fmean(statistics.fmean(found) for found in groups.values())
        width = statistics.median(math.sqrt((one.high or 1) / (one.low or 1)) for one in compared)
        rowwise = sum(bool(one.covered) for one in compared) / len(compared)
        rows.append([f"{100 * level:.0f} %", percent(equal), percent(rowwise), f"×/÷ {width:.2f}"])
    return table(["level", "covered, sources weighing the same", "covered, rows", "usual width"], rows)


def by_class() -> str:
    """Return the coverage of every quantity by what its intervals rest on."""
    tuned = entries(TUNING)
    answers = entries(ROLLOUTS)
    parts = {
        "a training step": step_check.steps(facts.steps()),
        "a step of fine-tuning": [one for one in tuned if not one.quantity.startswith((MEMORY, RUN))],
        "a run of fine-tuning": [one for one in tuned if one.quantity == RUN],
        "a step of reinforcement learning": [one for one in answers if one.quantity in WHOLE],
        "a phase of such a step": [one for one in answers if one.quantity in PHASES],
        "memory of pretraining": [memory_check.compared(row) for row in facts.memory()],
        "memory of fine-tuning": [one for one in entries(TUNING_MEMORY) if one.quantity.startswith(MEMORY)],
        "a whole run": run_check.compared(facts.runs(), 0.9, inside=False),
    }
    rows = []
    for name, found in parts.items():
        known = [one for one in found if one.covered is not None and not one.suspect]
        kinds = [kind for kind in ORDER if any(one.evidence == kind for one in known)]
        for kind in kinds:
            one = coverage_of([each for each in known if each.evidence == kind])
            covered = f"{percent(one.covered)} ± {100 * one.error:.1f}" if one.groups > 1 else percent(one.covered)
            rows.append([name, kind or "all", str(one.rows), str(one.groups), covered, f"×/÷ {one.width:.2f}"])
    head = ["what", "class of evidence", "rows", "sources", "covered at 90 %, ± its standard error", "usual width"]
    return table(head, rows)


@cache
def entries(path: Path) -> list[Compared]:
    """Return the rows of a file of fine-tuning, each predicted without its source."""
    return [one for row in published.read(str(path)).tuning for one in compared(row, 0.9)]


def tuning() -> str:
    """Return the errors of fine-tuning by source, each held out."""
    names = facts.step_sources()
    groups: dict[str, list[Compared]] = {}
    for one in entries(TUNING):
        if one.error is not None:
            groups.setdefault(names[source_of(one.source)], []).append(one)
    rows = []
    for name, mine in sorted(groups.items(), key=lambda pair: pair[0].lower()):
        logs = np.log([(one.predicted or 1.0) / (one.measured or 1.0) for one in mine])
        found = coverage_of(mine)
        inside = sum(bool(one.covered) for one in mine) / len(mine)
        rows.append([name, *figures(logs), percent(inside), f"×/÷ {found.width:.2f}"])
    head = ["source", "rows", "median", "mean", "p90", "in the 90 % interval", "usual width"]
    return table(head, rows)


def megatron(found: accuracy.Errors) -> str:
    sources = np.array(found.sources)
    rows = []
    plain: list[float] = []
    own: list[float] = []
    single: list[float] = []
    for source in ("narayanan", "korthikanti"):
        mine = np.flatnonzero(sources == source)
        errors = found.out[mine]
        factored = accuracy.with_own_factor(errors, held_out=False)
        alone = accuracy.with_own_factor(errors, held_out=True)
        plain += list(errors)
        own += list(factored)
        single += list(alone)
        for i, e, f, a in zip(mine, errors, factored, alone, strict=True):
            measured = found.seconds[i]
            rows.append(
                [found.rows[i].id, f"{measured:.2f}", f"{measured * math.exp(e):.2f}"]
                + [f"{100 * math.expm1(x):+.1f} %" for x in (e, f, a)]
            )
    text = table(["row", "measured s", "predicted s", "held out", "one factor a paper", "factor without the row"], rows)
    text += "\n" + table(
        ["13 rows", "rows", "median", "mean", "p90"],
        [
            ["papers held out", *figures(np.array(plain))],
            ["with one factor a paper", *figures(np.array(own))],
            ["with one factor a paper, found without the row", *figures(np.array(single))],
        ],
    )
    return text


def whole_runs() -> str:
    answers = [
        (row, found, math.log(runs.hours(runs.flops_of(row), peak, found.mfu) / row.hours))
        for row, found, peak in run_check.validated(facts.runs())
        if found is not None and row.hours
    ]
    lines, teams = [], []
    for kind in RUN_KINDS:
        mine = [(row, found, error) for row, found, error in answers if row.run_kind == kind]
        half = [math.log(found.high / found.mfu) for _, found, _ in mine]
        inside = [abs(error) <= width for (_, _, error), width in zip(mine, half, strict=True)]
        covered, width = percent(sum(inside) / len(inside)), math.exp(statistics.median(half))
        lines.append([kind, *figures(np.array([e for *_, e in mine])), covered, f"×/÷ {width:.2f}"])
        for team in sorted({row.team for row, *_ in mine}, key=str.lower):
            teams.append([kind, team, *figures(np.array([e for row, _, e in mine if row.team == team]))])
    text = table(["kind of run", "rows", "median", "mean", "p90", "in the 90 % interval", "usual width"], lines)
    text += "\n" + table(["kind of run", "team", "rows", "median", "mean", "p90"], teams)
    known = runs.evidence()
    a, b, c, d = runs.fit(runs.judging(known, runs.PRODUCTION))
    text += (
        f"\nProduction: ln u = {a:.2f} + M·({b:.2f} + {c:.2f}·log10(A/70e9)) − {d:.2f}·min(2, max(0, 2023 − year)), "
    )
    text += "M = 1 on clusters of accelerators of 560 TFLOP/s and more.\n"
    text += "A speedrun: the same with M = 0, and no bill.\n"
    a, b = runs.fit(runs.judging(known, runs.BENCHMARK))
    text += f"A benchmark (MLPerf): ln u = {a:.2f} + {b:.2f}·log10(accelerators/{runs.USUAL_DEVICES:,}).\n"
    return text


def constants() -> str:
    rows = []
    used = {name for values in calibration_held_out.WITHOUT.values() for name in values}
    chips = sorted(name for name in calibration.CONSTANTS if name.startswith(CHIP))
    for name in (*PRIORS, *chips):
        prior, spread, source = prior_of(name)
        value, now = calibration.CONSTANTS[name], calibration.SPREADS[name]
        where = source if name in used or name.startswith("stack/") else f"{source} · not moved by any row"
        rows.append([f"`{name}`", f"{value:.4g}", percent(now), f"{prior:.4g}", percent(spread), where])
    head = ["constant", "value", "± (σ of ln)", "prior", "± prior", "prior from"]
    return table(head, rows)


def page() -> str:
    found = accuracy.errors()
    ranked = accuracy.ranking(found)
    right = percent(ranked.right / ranked.pairs)
    families = len({stack.family for stack in STACKS.values()})
    parts = [
        HEAD,
        "## Training steps\n",
        overall(found),
        "### By source, each held out in turn\n",
        by_source(found),
        INTERVALS,
        coverage(),
        CLASSED,
        by_class(),
        "### Fine-tuning\n",
        TUNED,
        tuning(),
        "### Which layout is faster\n",
        f"Of {ranked.pairs} pairs of published layouts (same page, model, chip, GPUs, sequence, precision) that\n"
        f"differ by more than 3 %, {right} are ordered rightly. Taking the predicted best of each of\n"
        f"{ranked.groups} groups of three or more costs {percent(ranked.regret)} on average, "
        f"{percent(ranked.worst)} at worst.\n",
        MEGATRON,
        megatron(found),
        "## Whole runs\n",
        "Accelerator-hours from parameters, tokens, accelerator, year and kind of run; the team held out: a\n"
        "benchmark's submitter, or the last of joint ones, whose software it is.\n",
        whole_runs(),
        "## The constants\n",
        f"{len(calibration.CONSTANTS)} constants, {families} of them factors of software. Priors come from kernel\n"
        "measurements, datasheets and code; the steps move them (maximum a posteriori, robust, a random factor for\n"
        "each software of a source). `host_module` is fitted to steps of fine-tuning (tuning.yaml).\n"
        "A wide ± says that no row pins it.\n",
        constants(),
        TAIL,
    ]
    return "\n".join(parts)


INTERVALS = """### Intervals

Quantiles of the errors with sources held out, every source weighing the same, over an error to expect: a base, and
in addition the spread of the constants that the run rests on (those of its chip and of its software, the fewer sources
measured them, the closer to the spread before any did, and that of exposed data-parallel communication, by its share of
the step), how far apart releases are on mixtures of experts, and the distance to the evidence. Nothing else that is
known before a run tells how far off it will be: with steps of each source judged by errors of the others, neither the
shares of attention, elementwise work, tensor-parallel communication or launches, nor the number of sources on the same
software and chips, nor a quantile for each class below gave intervals of a better score (width, and 20 times what lies
outside). Steps of fine-tuning need no factor of their own: 1.4 covered no more sources than 1 and scored worse.
"""

CLASSED = """### By class of evidence

Each row with its own source held out, every source weighing the same. **Measured**: another source measured this
software on such chips; memory: rows measured this framework. **Described**: its code is known, and no other source
measured it there. **Unknown**: the software is not known. **Assumed**: the row leaves open what changes the answer.
One rule makes them all: the quantile, over sources, of the errors on rows of the class, or of an error to expect from
the constants that a step rests on. A class of ten sources cannot show better than ± 9 points.
"""

TUNED = """Steps with adapters, quantized weights, short or packed samples (configs/evidence/tuning.yaml), each
predicted without its source, as tokens a second, seconds of a step or seconds of a run: by the trainer's clock, which
goes on while it evaluates, saves and waits for samples. Two constants of the host are fitted to rows that wait for it.
Their intervals are those of other steps, plus what an unknown host, an unknown network or a clock at its lowest
voltage adds. A run takes longer than its steps: as much as the middle source's runs did, and its slow end reaches
further by the 90 % quantile, over sources, of how far runs lay outside the interval of their steps; its fast end does
not, as no source's runs did. `train-time` and `plan` answer the hours of fine-tuning with the same two figures.
"""

MEGATRON = """### Megatron's published tables

Calculon (Isaev et al. 2023) reports 3.65 % on average and 8.87 % at worst for the Korthikanti cells, with efficiencies
set by hand for that machine. napkin's figures for the same rows and for Narayanan et al. 2021:
"""

TAIL = """## What the rest is

- **Software versions.** One configuration measured again, months or releases apart, differs by 2 to 6 % (dense) and by
  up to 40 % (experts). The same 1T model takes 102.6 s in 2021 and 94.4 s in 2022: no common constant fits both.
- **Mixtures of experts** come from two sources on GPUs and one on TPUs. The second's steps at 16k to 131k tokens are
  predicted 14 to 25 % too slow, most of it attention, whose kernels' speed since cuDNN 9.4 the first's short sequences
  show badly. gpt-oss in 16 bits is predicted up to 26 % too fast on Blackwell, and 37 % on TPUs, where heads of 64 and
  the biases of its experts may cost more than is counted. Megatron Bridge's B300 of 26.02 with an overlapped exchange
  takes 1.7 times as long as predicted, and longer than its B200 without.
  The first's releases from 26.06 on take 20 to 35 % less time than those before at the same layout: an edition of its
  own (`--stack megatron-core-2026`), whose constants are assumed where the source is held out.
- **Networks.** nanotron's steps on 512 GPUs (MFU 0.05 and 0.19, optima of a search) wait for something that no
  bandwidth in the table explains. Omni-Path is slower than its line rate, and its share has one source.
- **Odd shapes** (108-wide heads, hidden sizes that divide badly) lose 10 to 40 % in kernels that no closed form here
  sees.
- **Full memory** slows some of LLM Foundry's rows by a fifth; napkin does not model that.
- **Whole runs** carry bookkeeping: hours that are tokens over a rate, hours that hold more than one pass. Knowing the
  same team's other run on the same chip still leaves 11 %.
"""

if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
