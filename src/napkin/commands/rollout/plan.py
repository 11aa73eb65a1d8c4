"""`plan` of reinforcement learning: where responses are generated, on how many ranks, and the trainer's layout."""

from __future__ import annotations

from napkin._tables.takes import TAKES
from napkin.commands.inputs import Inputs
from napkin.commands.memory.host import read_node
from napkin.commands.plan.question import read_given
from napkin.commands.plan.search_space import read_layouts
from napkin.commands.question.confidence import read_confidence
from napkin.commands.question.goodput import read_goodput
from napkin.commands.question.layout import degrees
from napkin.commands.question.machine import read_gpus
from napkin.commands.question.price import read_market_price
from napkin.commands.question.untimed import read_searched
from napkin.commands.rollout.amount import read_steps, run_of
from napkin.commands.rollout.engine import (
    read_away,
    read_eager,
    read_form,
    read_offload_of_passes,
    read_place,
    read_shares,
)
from napkin.commands.rollout.lengths import read_padding, read_spans
from napkin.commands.rollout.search import Freedom, RolloutLayout, RolloutSearch, chosen
from napkin.commands.screens.rollout_plan import screen
from napkin.errors import BROKEN, NapkinError
from napkin.options.command_line import Text, Texts, pieces_of
from napkin.options.training import SETUP_DEFAULTS
from napkin.planning.fewest import TRIED, fewest, machines
from napkin.planning.layouts import LayoutQuestion
from napkin.planning.verdicts import FITS, NOT
from napkin.record import record
from napkin.render.answer import Answer, Cell
from napkin.term import TRUE, Term, leaf
from napkin.timing.goodput import Goodput

ELSEWHERE = ("objective", "within", "budget", "max-global-batch", "pareto", "emit", "phases", "run-kind", "grad-accum",
    "micro-batch-tokens",
)  # fmt: skip
"""Options of `plan` that do not apply to reinforcement learning."""


@record
class RolloutPlan:
    """The question. gpus: 0 to find the fewest; steps: of the entire run, None if unknown; given: options that a `step`
    line repeats."""

    search: RolloutSearch
    gpus: int
    steps: Term | None
    goodput: Goodput | None
    price: Term | None
    rows: int
    given: Texts


def read(inputs: Inputs) -> RolloutPlan:
    """Read the question."""
    lengths, *others = read_spans(inputs)
    for name in (*ELSEWHERE, "tokens"):
        inputs.depends((name,), False, "a plan of reinforcement learning does not take it", "--steps, --price")
    if isinstance(inputs.peek("gpus"), list):
        raise NapkinError("a plan of reinforcement learning is for one number of GPUs", "one --gpus")
    least = inputs.text_or_none("min")
    if (least is not None) == inputs.has("gpus") or least not in (None, "gpus"):
        raise NapkinError("--gpus is missing: how many?", "--gpus 16, or --min gpus for the fewest")
    read_gpus(inputs, alone=False)
    asked = inputs.changed(
        {
            "seq": str(lengths.most),
            "global-batch": str(lengths.batch),
            "nodes": None,
            "offload": read_offload_of_passes(inputs, read_padding(inputs)),
        }
    )
    read_searched(asked)
    layouts, prediction = read_layouts(asked)
    inputs.adopt(asked)
    for note in asked.notes:
        inputs.note(note)
    for name, shown in asked.shown.items():
        if name not in ("seq", "global-batch"):
            inputs.shown.setdefault(name, shown)
    capacity = layouts.hardware.term("capacity", "memory/capacity", "byte")
    amount = any(name in inputs for name in ("steps", "samples"))
    inputs.depends(("price", "epochs"), amount, "only a whole run has a cost", "--steps 200")
    gpus = 0 if least else inputs.integer("gpus")
    market = read_market_price(inputs, layouts.hardware, gpus) if amount else None
    if market is not None:
        inputs.assume(f"${market.middle:g} a GPU-hour ({market.date})")
    return RolloutPlan(
        search=RolloutSearch(
            layouts,
            prediction,
            lengths,
            _read_freedom(inputs, layouts),
            capacity,
            tuple(others),
            read_confidence(inputs),
        ),
        gpus=gpus,
        steps=read_steps(inputs, lengths) if amount else None,
        goodput=read_goodput(inputs, trained=(layouts.request.model, layouts.request.setup)) if amount else None,
        price=inputs.term("price") if inputs.has("price") else None,
        rows=inputs.integer("rows"),
        given=read_given(inputs),
    )


def _read_freedom(inputs: Inputs, layouts: LayoutQuestion) -> Freedom:
    """Return the options of the engine that are to be searched."""
    trainer = read_padding(inputs)
    place = read_place(inputs, trainer)
    if place.word == "none":
        raise NapkinError("--rollout none: plan chooses layout and engine of a step that generates", "leave it out")
    _, host = read_node(inputs, layouts.request.setup, layouts.hardware)
    inputs.depends(("host-memory",), place.word != "separate", "an engine on its own GPUs moves nothing to the host")
    return Freedom(
        shares=(place.share,) if ":" in (inputs.text_or_none("rollout") or "") else (place.share, place.share / 2),
        asleep=trainer.sleeps,
        away=read_away(inputs, trainer, place),
        where=place.word,
        apart=place.gpus,
        ranks=inputs.integer_or_none("rollout-tp"),
        trainer=trainer,
        stated="micro-batch" in inputs,
        host=host,
        form=read_form(inputs, trainer),
        shared=read_shares(inputs, trainer),
        eager=read_eager(inputs, trainer),
    )


def run_plan(inputs: Inputs) -> Answer:
    """Answer with the layouts of a step, the fastest first, and the recommended one."""
    plan = read(inputs)
    gpus = plan.gpus or _fewest(plan)
    ways = plan.search.on(gpus)
    use = chosen(ways)
    if use is None:
        line = " ".join(pieces_of("memory", plan.given, {"gpus": str(gpus)}, TAKES["memory"]))
        raise NapkinError(
            f"{plan.search.model.name} on {gpus:,} × {plan.search.layouts.hardware.name}: no layout and engine fit "
            "together",
            f"{line} says what would fit; or --min gpus",
            BROKEN,
        )
    fitting = [one for one in ways if one.fit.verdict != NOT]
    shown = fitting[: plan.rows]
    if use not in shown:
        shown = [*shown[:-1], use] if len(shown) == plan.rows else [*shown, use]
    rows = [_row(plan, one, fitting.index(one) + 1, one is use) for one in shown]
    found = use.seconds
    tokens = plan.search.lengths.tokens
    rate = leaf("tokens_per_second_per_gpu", tokens / use.time / gpus, "token/s/GPU", TRUE, "prompts and responses")
    outer = {term.name: term for term in (found.time, *found.time.parts, *found.phases)}
    terms = [*outer.values(), rate, *use.fit.phases, use.fit.total, plan.search.capacity]
    terms += [leaf("layouts", len(ways), "1", TRUE, "with an engine"), leaf("layouts/fit", len(fitting), "1", TRUE)]
    terms += _run_terms(plan, use, found.time)
    if not plan.gpus:
        terms.insert(0, leaf("gpus", gpus, "GPU"))
        inputs.record("gpus", gpus, "solved")
    answer = Answer("plan", terms, rows=rows)
    ends = use.ends(plan.search.confidence, "stack" in plan.given)
    answer.intervals.update((name, ends[name]) for name in outer)
    low, high = (end / use.time for end in ends["step/time"])
    for term in terms:
        if term.name in ("time", "time/uninterrupted", "gpu_hours", "cost"):
            answer.intervals[term.name] = (float(term.value) * low, float(term.value) * high)
    answer.intervals["memory/total"] = use.fit.ends["memory/total"]
    answer.verdict = use.fit.verdict
    answer.notes.append(found.evidence)
    answer.screen = screen(plan.search, answer, use, plan.search.confidence)
    return answer


def _fewest(plan: RolloutPlan) -> int:
    """Return the fewest GPUs on which a step surely fits."""

    def does(gpus: int) -> bool:
        use = chosen(plan.search.on(gpus))
        return use is not None and use.fit.verdict == FITS

    found = fewest(does, machines(plan.search.layouts.request.node)[:MOST], 1)
    return found.or_refuse("no number of GPUs that was tried is enough", TRIED)


MOST = 12
"""Numbers of GPUs that are tried to find the fewest."""


def _run_terms(plan: RolloutPlan, use: RolloutLayout, step: Term) -> list[Term]:
    """Return the totals of the entire run, if its steps are given."""
    if plan.steps is None or plan.goodput is None:
        return []
    return run_of(plan.steps, step, use.gpus, plan.goodput, plan.price)


def _row(plan: RolloutPlan, one: RolloutLayout, rank: int, use: bool) -> dict[str, Cell]:
    """Return one layout as a row."""
    low, high = (end / one.time for end in one.ends(plan.search.confidence, "stack" in plan.given)["step/time"])
    shown = degrees(one.layout)
    run = {term.name: float(term.value) for term in _run_terms(plan, one, one.seconds.time)}
    seconds = run.get("time", one.time)
    return {
        "rank": rank,
        **shown,
        "micro_batch": shown["micro-batch"],
        "global_batch": plan.search.lengths.each,
        "global-batch": plan.search.lengths.each,
        "rollout": _where(one),
        "rollout-tp": one.engine.ranks,
        "rollout-offload": ",".join(one.sharing.away),
        "step/time": one.time,
        "step/low": one.time * low,
        "step/high": one.time * high,
        **{term.name: float(term.value) for term in one.seconds.phases},
        "time": seconds,
        "low": seconds * low,
        "high": seconds * high,
        **{name: value for name, value in run.items() if name in ("gpu_hours", "cost")},
        "tokens_per_second_per_gpu": plan.search.lengths.tokens / one.time / one.gpus,
        "memory": float(one.fit.total.value),
        "memory/total": float(one.fit.total.value),
        "fit": one.fit.verdict,
        "recommended": use,
        "misses": None,
        "command": _command(plan, one),
    }


def _where(one: RolloutLayout) -> str:
    return f"separate:{one.engine.gpus}" if one.engine.apart else f"colocated:{one.engine.share:g}"


def _command(plan: RolloutPlan, one: RolloutLayout) -> str:
    """Return the layout as a `napkin step` command line."""
    changes: dict[str, Text] = {
        "gpus": str(one.gpus),
        "nodes": None,
        "dp": None,
        "rollout": _where(one),
        "rollout-tp": str(one.engine.ranks),
        "global-batch": str(plan.search.lengths.each),
    }
    if not one.engine.apart and one.sharing.away != plan.search.freedom.away:
        changes["rollout-offload"] = ",".join(one.sharing.away)
    own = ("recompute",) if "trainer" in plan.given else ()
    for name, value in degrees(one.layout).items():
        if name in changes:
            continue
        if name == "sp":
            changes[name] = None if value == (one.layout.tp > 1) else bool(value)
        else:
            usual = name not in own and str(value) == SETUP_DEFAULTS.get(name)
            changes[name] = None if usual else str(value)
    if one.tokens:
        changes |= {"micro-batch": None, "micro-batch-tokens": str(one.tokens // int(one.layout.cp))}
    return " ".join(pieces_of("step", plan.given, changes))
