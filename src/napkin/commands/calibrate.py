"""`napkin calibrate`: compare your own measured steps with the predictions and refit the shipped constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.commands.screens.validate import grouped
from napkin.elementwise import Number
from napkin.errors import NapkinError
from napkin.evidence.fit import user_steps
from napkin.evidence.fit.user_steps import MovedConstant
from napkin.evidence.published import read
from napkin.evidence.rows.files import STEPS
from napkin.evidence.validation import step_check
from napkin.evidence.validation.error_statistics import errors_of, time_factor
from napkin.render.answer import Answer
from napkin.render.figures import share
from napkin.render.screen import Next, Screen, quantities
from napkin.term import MEASURED, Term, leaf

SHOWN = 4
"""Number of rows without a comparison that the screen lists."""


def run(inputs: Inputs) -> Answer:
    """Answer for a file of measured steps, and for a profile if one is given."""
    path = inputs.text("file", "which rows? a YAML of schema steps/1, as configs/evidence/steps.yaml has them")
    profile = inputs.text_or_none("profile")
    return answer(path, None if profile is None else str(profile))


def answer(path: str, profile: str | None) -> Answer:
    """Answer with the ratio of measured to predicted step time, and the constants that the steps change."""
    rows = read(path)
    if rows.schema != STEPS:
        raise NapkinError(f"{path}: calibrate takes {STEPS}, not {rows.schema}", "measured training steps")
    if rows.unread:
        raise NapkinError(rows.unread[0].why, "correct it, or leave the row out")
    steps = rows.steps
    before = [one for one in step_check.steps(steps, in_sample=True) if not one.suspect]
    known = [one for one in before if one.error is not None]
    if not known:
        why = next((one.why for one in before if one.why), "no row has a measured step")
        raise NapkinError(f"{path}: no row can be compared: {why}", "name hardware, layout and a measured quantity")
    changes, after = user_steps.refitted(steps)
    factor, left = time_factor(known)
    terms: list[Term] = [
        leaf("factor", factor, "1", MEASURED, f"{path}: median of measured over predicted step time"),
        leaf("rows", len(known), "1", MEASURED, path),
        leaf("error/before", errors_of(known).median, "1", MEASURED, path),
        leaf("error/factor", left, "1", MEASURED, path),
        leaf("error/refitted", after, "1", MEASURED, path),
    ]  # fmt: skip
    answer = Answer("calibrate", terms=terms)
    answer.rows = [dict(one.__dict__) for one in changes]
    left_out = [f"not compared: {one.id}: {one.why}" for one in before if one.why] + grouped(rows.told)
    answer.screen = _screen(path, {term.name: term.value for term in terms}, changes, left_out)
    answer.notes.append(f"give --factor {factor:.3f} to `napkin step` for steps of this software and cluster")
    if not changes:
        answer.notes.append("no constant moved by a quarter of its spread: the factor is enough")
    answer.notes += left_out
    if profile is not None:
        _add_profile(answer, profile)
    return answer


def _screen(
    path: str, found: Mapping[str, Number], changes: Sequence[MovedConstant], left_out: Sequence[str]
) -> Screen:
    """Return the screen: the factor of this software and cluster, the remaining errors, the constants that change.
    left_out: rows that cannot be compared, with the reason, and keys that are not read."""
    factor = float(found["factor"])
    side = "longer" if factor >= 1 else "shorter"
    rows = [
        ("median error, as shipped", share(found["error/before"]), ""),
        ("  with this factor", share(found["error/factor"]), f"napkin step … --factor {factor:.3f}"),
        ("  with refitted constants", share(found["error/refitted"]), ""),
    ]
    rows += [
        (one.constant, f"{one.yours:.4g}", f"shipped {one.shipped:.4g}; moved by {one.sigmas:+.1f} σ")
        for one in changes
    ]
    said = [] if changes else ["No constant moved by a quarter of its spread: the factor is enough."]
    said += left_out[:SHOWN]
    said += [f"and {len(left_out) - SHOWN} more (-v)"] if len(left_out) > SHOWN else []
    steps = "step" if found["rows"] == 1 else "steps"
    return Screen(
        (f"{found['rows']} measured {steps} of {path}", "against the shipped constants"),
        (f"factor {factor:.4g}", f"your steps take {abs(factor - 1):.1%} {side} than predicted"),
        table=quantities(rows),
        remarks=said,
        next=Next({}, "validate"),
    )


def _add_profile(answer: Answer, path: str) -> None:
    """Add the rates that `napkin bench` measured, with the constants of that chip."""
    from napkin.evidence.rates.constants import constants
    from napkin.evidence.rates.machines import constants_of
    from napkin.inputs.hardware import find
    from napkin.inputs.profile import read_profile

    profile = read_profile(path)
    card = find(profile.device.hardware or profile.device.name)
    shipped = constants()
    era = constants_of(card)
    wide = card.default_dtype
    rate, moved = profile.matmul_rate(wide), profile.memory_bandwidth()
    extra: list[Term] = []
    if rate is not None:
        extra.append(leaf(f"profile/matmul/{era}/16", rate[0] / card.peak(wide), "1", MEASURED, rate[1]))
        extra.append(leaf(f"shipped/matmul/{era}/16", shipped[f"matmul/{era}/16"], "1", MEASURED, "calibration"))
    if moved is not None:
        extra.append(leaf("profile/memory", moved[0] / card.memory_bandwidth, "1", MEASURED, moved[1]))
        extra.append(leaf("shipped/memory", shipped["memory"], "1", MEASURED, "calibration"))
    answer.terms = (*answer.terms, *extra)
    answer.notes.append("give the profile to `napkin step --profile` to predict with these rates")


COMMAND = Command(
    "calibrate",
    "Compare your own measured steps with the predictions, and find the factor of your software and cluster",
    run,
    brief="Correct the predictions with your own measured steps",
    options=("profile",),
    arguments=("file",),
    examples=("calibrate configs/evidence/example.yaml",),
)
