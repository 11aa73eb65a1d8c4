"""`napkin plan MODEL --gpus N --hardware H`: every layout of the machine, ranked, and why the others lose."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from napkin.cli import asking
from napkin.cli.command import Command, Inputs
from napkin.cli.layout import SETUP_DEFAULTS, setup_with
from napkin.cli.level import level_of
from napkin.cli.machine import accelerator
from napkin.cli.model import MODEL_OPTIONS, model_of, sequence
from napkin.cli.options import DRAWS, OPTIONS, Option, choice, declare
from napkin.cli.step import memory_terms, utilisation
from napkin.errors import BROKEN, NapkinError
from napkin.evidence import single
from napkin.evidence.rates import machine
from napkin.formulas.fit import UNDECIDED
from napkin.formulas.memory import Setup
from napkin.inputs.hardware import Hardware
from napkin.inputs.plan import Layout, recompute
from napkin.record import record, replace
from napkin.render.answer import Answer
from napkin.render.chart import Chart, Series
from napkin.render.scale import titled
from napkin.term import Term, leaf
from napkin.units import Unreadable, human, positive_count

if TYPE_CHECKING:
    from napkin.evidence.single import Asked
    from napkin.formulas.step import Plan, Rates
    from napkin.inputs.profile import Profile
    from napkin.search import Found, Request

LARGEST_STEP = 16 * 2**20
"""Tokens in a step up to which a free batch grows: what the largest published dense run settled on (Llama 3 405B,
Grattafiori et al. 2024, arXiv:2407.21783, section 3.4.1)."""
RECOMPUTES = ("none", "selective", "full")
FREE = ("tp", "pp", "dp", "cp", "ep", "vp", "zero", "micro-batch")
BOUNDED = ("tp", "pp", "cp", "ep", "vp", "zero", "micro-batch")
MOST_COUNTS = 64


MOST_ROWS = 1000
"""Each row listed is evaluated once more, exactly, some three milliseconds each."""


def _listed(text: str) -> int:
    """A number of rows from 1 to MOST_ROWS."""
    rows = positive_count(text)
    if rows > MOST_ROWS:
        raise Unreadable(f"{text.strip()!r} rows are too many", f"at most {MOST_ROWS:,}; --csv and --pareto narrow it")
    return rows


def _counts(text: str) -> int | list[int]:
    """One number of GPUs, a list, or a range that doubles."""
    if ".." not in text and "," not in text:
        return positive_count(text)
    try:
        found = [positive_count(one) for one in asking.values(OPTIONS["gpus"], text, "--gpus")]
    except NapkinError as problem:
        raise Unreadable(problem.message.removeprefix("--gpus: "), problem.hint) from None
    if len(found) > MOST_COUNTS:
        raise Unreadable(f"more than {MOST_COUNTS} machines", "take larger steps")
    return sorted(set(found))


declare(
    Option("objective", choice("time", "cost", "gpus"), "Fastest, cheapest, or fewest GPUs", metavar="WHAT"),
    Option("max-global-batch", positive_count, "Largest step in sequences, where the batch is free", metavar="N"),
    Option("rows", _listed, f"Layouts to list, at most {MOST_ROWS:,}", metavar="N"),
    Option("pareto", lambda text: text, "List the layouts that no other beats in time and memory both", flag=True),
    *(Option(f"max-{name}", positive_count, f"Largest --{name}", metavar="N") for name in BOUNDED),
)

Numbers = Mapping[str, Any]


@record
class Planner:
    """What all machines of one question share. `typical`: a step as `step` would ask it, for what no layout changes."""

    inputs: Inputs
    hardware: Hardware
    request: Request
    typical: Asked
    profile: Profile | None
    level: float
    per_sequence: float

    def timed(self, setup: Setup) -> tuple[Plan, Rates]:
        """Plan and rates; the layout's numbers may be arrays."""
        at = machine(self.hardware, setup.precision.compute)
        overlapped = bool(self.inputs.get("async-tp"))
        asked = self.typical
        plan, rates = single.timed(self.request.model, setup, asked.stack, at, asked.kernel, overlapped)
        if asked.factor != 1.0:
            rates = replace(rates, stack=rates.stack * asked.factor)
        if self.profile is not None:
            rates, _ = single.with_profile(rates, self.hardware, self.profile, setup.precision.compute)
        return plan, rates

    def on(self, gpus: int) -> Request:
        return replace(self.request, gpus=gpus)


@record
class Scored:
    """One layout by the scalar formulas of `step` and `memory`."""

    layout: Layout
    time: Term
    used: float
    fit: str
    mfu: float
    token: float
    """GPU-seconds of one token."""

    def part(self, name: str) -> float:
        return float(next(part.value for part in self.time.parts if part.name == name))


def run(inputs: Inputs) -> Answer:
    planner = _planner(inputs)
    counts = inputs.get("gpus")
    if counts is None and "within" in inputs and "tokens" in inputs:
        inputs.default("objective", "gpus")  # what is left out is what is asked for
    if counts is None and inputs.get("objective") == "gpus":
        return _fewest(planner)
    if counts is None:
        raise NapkinError("--gpus is missing: how many?", "--gpus 1024, or --objective gpus --within 30d --tokens 15T")
    if isinstance(counts, list):
        return _fewest(planner, counts) if inputs.get("objective") == "gpus" else _curve(planner, counts)
    return _fewest(planner, [counts]) if inputs.get("objective") == "gpus" else _one(planner, counts)


def _planner(inputs: Inputs) -> Planner:
    from napkin.formulas import flops
    from napkin.search import Request

    model = model_of(inputs)
    hardware = accelerator(inputs)
    seq = sequence(inputs, model)
    setup = setup_with(inputs, model, Layout(seq=seq))
    at = machine(hardware, setup.precision.compute)
    typical = single.asked(
        model,
        setup,
        hardware,
        inputs.get("stack"),
        inputs.get("attention") if "attention" in inputs else None,
        bool(inputs.get("async-tp")),
        float(inputs.get("factor") or 1.0),
    )
    profile = None
    if inputs.get("profile") is not None:
        from napkin.inputs.profile import read_profile

        profile = read_profile(str(inputs.get("profile")))
        for what in single.with_profile(typical.rates, hardware, profile, setup.precision.compute)[1]:
            inputs.note(f"measured by the profile: {what}")
    if inputs.get("global-batch") is None:
        inputs.default("max-global-batch", str(max(LARGEST_STEP // seq, 1)))
    chosen = inputs.get("recompute")
    only = {name: int(inputs.get(name)) for name in FREE if inputs.get(name) is not None}
    if inputs.get("sp") is not None:
        only["sp"] = int(inputs.get("sp"))
    if "tp" not in only and inputs.get("max-tp") is None:
        inputs.default("max-tp", str(int(at.node)))
        inputs.note(
            f"tensor parallelism stays within the {int(at.node)} GPUs of a node: no published step in the evidence "
            "leaves it; --max-tp looks further"
        )
    below = {name: inputs.get(f"max-{name}") for name in BOUNDED if inputs.get(f"max-{name}") is not None}
    request = Request(
        model=model,
        setup=setup,
        gpus=1,
        node=int(at.node),
        seq=seq,
        batch=inputs.get("global-batch"),
        most=inputs.get("max-global-batch") or 1,
        recomputes=tuple(recompute(one) for one in ((chosen,) if chosen else RECOMPUTES)),
        only=only,
        below=below,
        deep="zero" in only or "zero" in below,
    )
    if not request.deep:
        inputs.note(
            "ZeRO-3 beside a pipeline is left out: no published step with several micro-batches in the evidence has "
            "it; --max-zero 3 takes it in"
        )
    counted = flops.step(model, flops.works(model, 1, seq))["flops/total"].value
    return Planner(inputs, hardware, request, typical, profile, level_of(inputs), float(counted))


def scored(planner: Planner, layout: Layout) -> Scored:
    """The exact path: what `step` and `memory` answer for this layout."""
    from napkin.formulas.fit import evaluate
    from napkin.formulas.step import step

    setup = replace(planner.request.setup, layout=layout)
    found = step(planner.request.model, *planner.timed(setup))
    word = planner.inputs.get("implementation")
    fit = evaluate(planner.request.model, setup, word, planner.hardware.capacity, False)
    seconds = found.time.value
    mfu = planner.per_sequence * layout.global_batch / (planner.typical.peak.value * layout.gpus * seconds)
    token = layout.gpus * seconds / (layout.global_batch * layout.seq)
    return Scored(layout, found.time, fit.reported.used.value, fit.verdict, mfu, token)


def _half_width(planner: Planner, gpus: int) -> float:
    """Half the interval of ln t: it depends on machine, model and software, not on the layout."""
    at = planner.typical.at
    return replace(planner.typical, at=replace(at, gpus=math.log(gpus))).half_width(planner.level)[0]


# --- one machine -----------------------------------------------------------------------------------------------------


def _one(planner: Planner, gpus: int) -> Answer:
    from napkin.search import search

    inputs, request = planner.inputs, planner.on(gpus)
    capacity = planner.hardware.capacity
    found = search(request, planner.timed, capacity)
    if not len(found):
        return _impossible(planner, request, found)
    best = scored(planner, found.layout(found.ranked(1)[0]))
    answer = _ranked(planner, found, best)
    limit, tokens = inputs.get("within"), inputs.get("tokens")
    if limit is not None and tokens is not None and best.token * tokens / gpus > limit:
        answer.status, answer.verdict = BROKEN, "impossible"
        answer.notes.append(
            f"the best takes {human(best.token * tokens / gpus, 'second')}, not {human(limit, 'second')}: "
            "--objective gpus finds how many GPUs it takes"
        )
    return answer


def _ranked(planner: Planner, found: Found, best: Scored) -> Answer:
    request, inputs = found.request, planner.inputs
    half = _half_width(planner, request.gpus)
    wanted = inputs.get("rows")
    front = found.front()
    listed = front[:wanted] if inputs.get("pareto") else list(_distinct(found, wanted))
    entries = [(scored(planner, found.layout(i)), i in front) for i in listed]
    rows = [_row(planner, n, one, best, half, on_front) for n, (one, on_front) in enumerate(entries, 1)]
    answer = Answer(
        "plan",
        _title(planner, request.gpus, found.layouts, len(found)),
        _terms(planner, best, found),
        rows=rows,
        display=_table([_displayed(row) for row in rows]),
    )
    for term in answer.terms:
        if term.name in ("step/time", "mfu", "hfu", "tokens_per_second_per_gpu"):
            answer.intervals[term.name] = (term.value / math.exp(half), term.value * math.exp(half))
    answer.extra["columns"] = COLUMNS
    answer.extra["pareto"] = [
        {
            **degrees(found.layout(i)),
            "step/time": float(found.seconds[i]),
            "mfu": float(_mfu(planner, found, i)),
            "memory/total": float(found.used[i]),
        }
        for i in front
    ]
    popular = list(_popular(planner, request, best))
    answer.extra["popular"] = popular
    why = _why(entries[0][0], entries[1][0]) if len(entries) > 1 else ""
    answer.pictures = tuple(
        line
        for line in (
            why,
            f"time against memory: {_front_line(planner, found, front)}",
            *(f"{one['name']}: {one['why']}" for one in popular),
            f"as a step: {command_line(planner, best.layout)}",
        )
        if line
    )
    ties = int((found.score <= found.score.min() * math.exp(2 * half)).sum())
    answer.extra["ties"] = ties
    answer.notes.append(
        f"{ties:,} of {len(found):,} layouts that fit lie within each other's {planner.level:.0%} intervals "
        f"(×/÷ {math.exp(half):.2f}); `tie` marks those listed"
    )
    if request.batch is None:
        answer.notes.append(
            "the batch is free: each layout takes the largest step that it can; they are ranked by time per token"
        )
    answer.plot = (_scatter(planner, found, front),)
    return answer


def _distinct(found: Found, wanted: int) -> Iterator[int]:
    """The best layouts in order; of those that differ in the ZeRO stage alone and are as fast, the lowest stage."""
    seen: set[tuple[Any, ...]] = set()
    for i in found.ranked(16 * wanted):
        layout = found.layout(i)
        key = (layout.replaced(zero=0), float(found.seconds[i]))
        if key not in seen:
            seen.add(key)
            yield i
        if len(seen) == wanted:
            return


COLUMNS = {
    "global-batch": "1",
    "step/time": "second",
    "step/low": "second",
    "step/high": "second",
    "mfu": "1",
    "tokens_per_second_per_gpu": "token/s/GPU",
    "memory/total": "byte",
    "memory/headroom": "byte",
    "step/communication": "second",
    "step/bubble": "second",
    "time": "second",
    "gpu_hours": "GPU-hour",
    "cost": "USD",
}
"""Units of the columns that have one."""


def degrees(layout: Layout) -> dict[str, Any]:
    """A layout by its options' names."""
    kind, k = layout.recompute.kind, layout.recompute.k
    again = {"every": f"every:{k}", "group": f"group:{k or 'sqrt'}"}.get(kind, kind)
    names = ("tp", "pp", "dp", "cp", "ep", "vp")
    return {
        **{name: getattr(layout, name) for name in names},
        "sp": bool(layout.sp),
        "zero": layout.zero,
        "micro-batch": layout.micro,
        "global-batch": layout.global_batch,
        "recompute": again,
    }


def _row(planner: Planner, rank: int, one: Scored, best: Scored, half: float, on_front: bool) -> dict[str, Any]:
    seconds = one.time.value
    row: dict[str, Any] = {
        "rank": rank,
        **degrees(one.layout),
        "step/time": seconds,
        "step/low": seconds / math.exp(half),
        "step/high": seconds * math.exp(half),
        "mfu": one.mfu,
        "tokens_per_second_per_gpu": 1 / one.token,
        "memory/total": one.used,
        "memory/headroom": planner.hardware.capacity - one.used,
        "fit": one.fit,
        "step/communication": one.part("step/communication"),
        "step/bubble": one.part("step/bubble"),
        "tie": rank > 1 and one.token <= best.token * math.exp(2 * half),
        "pareto": on_front,
    }
    return {**row, **_whole_run(planner, one)}


def _whole_run(planner: Planner, one: Scored) -> dict[str, float]:
    """Time, GPU-hours and cost of all tokens, where they are given."""
    tokens, price = planner.inputs.get("tokens"), planner.inputs.get("price")
    if tokens is None:
        return {}
    hours = one.token * tokens / 3600
    run = {"time": one.token * tokens / one.layout.gpus, "gpu_hours": hours}
    return {**run, "cost": hours * price} if price is not None else run


def _displayed(row: Numbers) -> dict[str, str]:
    """What a person reads of a row: degrees that matter, then the figures."""
    short = {"micro-batch": "mb", "global-batch": "batch"}
    table: dict[str, str] = {}
    for name, value in row.items():
        if name in ("step/low", "step/high", "tokens_per_second_per_gpu", "memory/headroom", "gpu_hours"):
            continue
        if name in ("tie", "pareto"):
            table[name] = ("≈" if name == "tie" else "●") if value else ""
        elif name in ("step/communication", "step/bubble"):
            table[name.removeprefix("step/")] = f"{value / row['step/time']:.1%}"
        elif name == "memory/total":
            table["memory"] = f"{value / 2**30:.1f} GiB"
        elif name == "mfu":
            table[name] = f"{value:.1%}"
        elif name == "fit":
            table[name] = "close" if value == UNDECIDED else str(value)
        elif isinstance(value, bool):
            table[name] = "yes" if value else "no"
        elif name in COLUMNS:
            table[short.get(name, name)] = human(value, COLUMNS[name])
        else:
            table[short.get(name, name)] = str(value)
    return table


UNREMARKABLE = {"cp": "1", "ep": "1", "vp": "1", "zero": "0", "sp": "no", "recompute": "none", "tie": "", "pareto": ""}


def _table(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Without the columns in which no row has anything to say."""
    silent = [name for name, usual in UNREMARKABLE.items() if all(row.get(name, usual) == usual for row in rows)]
    return [{name: text for name, text in row.items() if name not in silent} for row in rows]


def _terms(planner: Planner, best: Scored, found: Found) -> list[Term]:
    """The best layout as `step` publishes it, what it holds, and what the whole run takes."""
    from napkin.formulas.step import step
    from napkin.term import TRUE

    setup = replace(planner.request.setup, layout=best.layout)
    whole = step(planner.request.model, *planner.timed(setup))
    terms = [whole.time, *whole.time.parts, *utilisation(planner.request.model, setup, planner.typical.peak, whole)]
    terms += memory_terms(planner.inputs, planner.request.model, setup)
    terms.append(planner.hardware.term("capacity", "memory/capacity", "byte"))
    terms.append(leaf("layouts", found.layouts, "1", TRUE, "divide machine, model and batch"))
    terms.append(leaf("layouts/fit", len(found), "1", TRUE, "and fit the memory"))
    terms += [leaf(name, value, COLUMNS[name], TRUE) for name, value in _whole_run(planner, best).items()]
    return terms


def _why(first: Scored, second: Scored) -> str:
    """Where the runner-up loses its time, part by part, per token where steps are not alike."""
    share = second.token / first.token - 1
    scale = 1 / (second.layout.global_batch * second.layout.seq), 1 / (first.layout.global_batch * first.layout.seq)
    gaps = {
        b.name.removeprefix("step/"): b.value * scale[0] - a.value * scale[1]
        for a, b in zip(first.time.parts, second.time.parts, strict=True)
    }
    tokens = first.layout.global_batch * first.layout.seq
    worst = sorted(gaps.items(), key=lambda gap: -abs(gap[1]))[:3]
    parts = ", ".join(
        f"{name} {'+' if gap > 0 else '−'}{human(abs(gap) * tokens, 'second')}" for name, gap in worst if gap
    )
    moved = [
        f"{name} {value} for {degrees(first.layout)[name]}"
        for name, value in degrees(second.layout).items()
        if value != degrees(first.layout)[name]
    ]
    return f"the runner-up ({', '.join(moved)}) takes {share:.2%} more" + (f": {parts}" if parts else "")


POPULAR: tuple[tuple[str, Numbers], ...] = (
    ("data parallel alone", {"zero": 0}),
    ("ZeRO-1", {"zero": 1}),
    ("FSDP (ZeRO-3)", {"zero": 3}),
    ("FSDP, full recomputation", {"zero": 3, "recompute": "full"}),
    ("tensor parallel in the node, ZeRO-1", {"tp": "node", "zero": 1}),
    ("tensor parallel in the node, FSDP", {"tp": "node", "zero": 3}),
)
"""What people try first; each with a micro-batch of one."""


def _popular(planner: Planner, request: Request, best: Scored) -> Iterator[dict[str, Any]]:
    """Whether the usual choices fit, and by how much they lose."""
    from napkin.search import search

    for name, choice_ in POPULAR:
        wanted = {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "vp": 1, "micro-batch": 1, **choice_}
        again = recompute(str(wanted.pop("recompute", "none")))
        only = {key: request.node if value == "node" else int(value) for key, value in wanted.items()}
        only["sp"] = int(only["tp"] > 1)
        found = search(
            replace(request, only=only, below={}, recomputes=(again,)), planner.timed, planner.hardware.capacity
        )
        if found.layouts == 0:
            yield {"name": name, "fits": None, "why": f"is no layout here: {_obstacle(request, only)}"}
        elif not len(found):
            over = found.least_used - planner.hardware.capacity
            yield {
                "name": name,
                "fits": False,
                "memory/total": found.least_used,
                "why": f"does not fit: needs {human(found.least_used, 'byte')}, {human(over, 'byte')} too much"
                f"{_largest_bucket(request, found)}",
            }
        else:
            one = scored(planner, found.layout(found.ranked(1)[0]))
            yield {
                "name": name,
                "fits": True,
                "memory/total": one.used,
                "step/time": one.time.value,
                "why": f"fits, {one.token / best.token:.2f} × the best's time per token",
            }


def _obstacle(request: Request, only: Mapping[str, int]) -> str:
    """Why a choice of degrees leaves no layout."""
    heads, ranks, batch = request.model.heads, request.gpus // only["tp"], request.batch or request.most
    if request.gpus % only["tp"]:
        return f"{request.gpus:,} GPUs are not a multiple of {only['tp']}"
    if heads % only["tp"]:
        return f"tp {only['tp']} does not divide the {heads} attention heads"
    if ranks > batch:
        return f"{ranks:,} data-parallel ranks for {batch:,} sequences"
    return f"{ranks:,} data-parallel ranks do not divide {batch:,} sequences"


def _largest_bucket(request: Request, found: Found) -> str:
    """What takes most of the least layout's memory."""
    from napkin.formulas import memory
    from napkin.formulas.fit import worst_rank

    if found.least is None:
        return ""
    rank = worst_rank(memory.prepare(request.model, replace(request.setup, layout=found.least)))
    peak = max(rank.moments, key=lambda moment: moment.live)
    sizes = {bucket: getattr(peak, bucket) for bucket in memory.BUCKETS}
    name = max(sizes, key=lambda bucket: sizes[bucket])
    return f", {human(sizes[name], 'byte')} of it {name.replace('_', ' ')}"


def _mfu(planner: Planner, found: Found, i: Any) -> Any:
    """MFU of layouts by index; what is fast for a batch that is free is seen in it too."""
    request = found.request
    return planner.per_sequence / (planner.typical.peak.value * found.score[i] * request.seq)


def _front_line(planner: Planner, found: Found, front: list[int]) -> str:
    """The Pareto front in a few words: its ends and how many layouts lie on it."""
    ends = [front[0], front[-1]] if len(front) > 1 else [front[0]]
    shown = " … ".join(f"MFU {_mfu(planner, found, i):.1%} at {found.used[i] / 2**30:.1f} GiB" for i in ends)
    return f"{len(front)} layout{'s' if len(front) > 1 else ''} that no other beats in both: {shown}"


def command_line(planner: Planner, layout: Layout) -> str:
    """The same layout as a question to `napkin step`."""
    inputs = planner.inputs
    words = [f"napkin step {inputs.shown['model'].text}", f"--hardware {inputs.shown['hardware'].text}"]
    for name, value in degrees(layout).items():
        if name == "sp":
            words += [] if value == (layout.tp > 1) else ["--sp" if value else "--no-sp"]
        elif name not in SETUP_DEFAULTS or str(value) != SETUP_DEFAULTS[name]:
            words.append(f"--{name} {value}")
    words.append(f"--seq {layout.seq}")
    for name in ("precision", "optimizer", "implementation", "stack"):
        if inputs.get(name) is not None and inputs.get(name) != SETUP_DEFAULTS.get(name):
            words.append(f"--{name} {inputs.shown[name].text}")
    return " ".join(words)


def _title(planner: Planner, gpus: int, layouts: int, fitting: int) -> str:
    request = planner.request
    batch = f"{request.batch:,}" if request.batch else f"up to {request.most:,}"
    return (
        f"{request.model.name} on {gpus:,} × {planner.hardware.name}, {batch} × {request.seq:,} tokens a step: "
        f"{layouts:,} layouts, {fitting:,} fit"
    )


def _scatter(planner: Planner, found: Found, front: list[int]) -> Chart:
    """MFU against memory: the front, and a sample of the rest."""
    rest = list(range(0, len(found), max(len(found) // 1500, 1)))

    def points(name: str, which: Any) -> Series:
        return Series(name, list(found.used[which] / 2**30), list(_mfu(planner, found, which)))

    return Chart(
        "points",
        f"plan: layouts of {planner.request.model.name} on {found.request.gpus:,} GPUs",
        "memory of one GPU (GiB)",
        "MFU",
        [points("layouts that fit", rest), points("no other beats in both", front)],
    )


# --- several machines ------------------------------------------------------------------------------------------------


def _curve(planner: Planner, counts: Sequence[int]) -> Answer:
    """The best layout of each machine: how speed and cost grow."""
    from napkin.search import search

    rows: list[dict[str, Any]] = []
    bests: list[Scored] = []
    for gpus in counts:
        found = search(planner.on(gpus), planner.timed, planner.hardware.capacity)
        if not len(found):
            why = "no layout fits" if found.layouts else "no layout divides it"
            rows.append({"gpus": gpus, "why": why})
            continue
        best = scored(planner, found.layout(found.ranked(1)[0]))
        bests.append(best)
        row = _row(planner, 1, best, best, _half_width(planner, gpus), True)
        dropped = ("rank", "tie", "pareto")
        rows.append({"gpus": gpus, **{name: value for name, value in row.items() if name not in dropped}})
    if not bests:
        return _impossible(planner, planner.on(counts[-1]), None)
    for row in rows:
        if "step/time" in row:
            speed = row["tokens_per_second_per_gpu"]
            row["tokens_per_second"] = speed * row["gpus"]
            row["efficiency"] = speed * bests[0].token
    kept = _within(planner, rows)
    chosen = min(kept or [r for r in rows if "step/time" in r], key=lambda row: _goal(planner, row))
    answer = Answer(
        "plan",
        f"{planner.request.model.name} on {counts[0]:,} to {counts[-1]:,} × {planner.hardware.name}: the best of each",
        _chosen_terms(chosen),
        rows=rows,
        display=_table([_displayed_curve(row) for row in rows]),
    )
    if planner.inputs.get("within") is not None and not kept:
        answer.status, answer.verdict = BROKEN, "impossible"
    answer.extra["columns"] = {**COLUMNS, "gpus": "GPU", "tokens_per_second": "token/s"}
    answer.plot = tuple(_curves(planner, [row for row in rows if "step/time" in row]))
    return answer


def _goal(planner: Planner, row: Numbers) -> float:
    """What is made small: the whole run's GPU-hours, its GPUs, or its time."""
    objective = planner.inputs.get("objective")
    if objective == "gpus":
        return float(row["gpus"])
    if objective == "cost":
        return 1 / float(row["tokens_per_second_per_gpu"])
    return 1 / float(row["tokens_per_second"])


def _within(planner: Planner, rows: Sequence[Numbers]) -> list[Numbers]:
    """The machines that are done in time."""
    limit = planner.inputs.get("within")
    done = [row for row in rows if "step/time" in row]
    if limit is None:
        return done
    if planner.inputs.get("tokens") is None:
        raise NapkinError("--within needs --tokens", "how many tokens must be trained in that time?")
    return [row for row in done if row["time"] <= limit]


def _chosen_terms(row: Numbers) -> list[Term]:
    """The machine that the objective asks for, as quantities."""
    from napkin.term import TRUE

    named = {"gpus": "GPU", **COLUMNS, "tokens_per_second": "token/s", "efficiency": "1"}
    published = [name for name in named if name in row and name not in ("step/low", "step/high", "global-batch")]
    return [leaf(name, row[name], named[name], TRUE) for name in published]


def _displayed_curve(row: Numbers) -> dict[str, str]:
    if "why" in row:
        return {"gpus": f"{row['gpus']:,}", "why": str(row["why"])}
    hidden = ("gpus", "tokens_per_second", "efficiency", "step/low", "step/high")
    table = {"gpus": f"{row['gpus']:,}"}
    table |= _displayed({name: value for name, value in row.items() if name not in hidden})
    return {**table, "tokens/s": f"{row['tokens_per_second']:,.0f}", "efficiency": f"{row['efficiency']:.1%}"}


def _curves(planner: Planner, rows: Sequence[Numbers]) -> Iterator[Chart]:
    """Speed against the ideal, and MFU, over the number of GPUs."""
    gpus = [row["gpus"] for row in rows]
    if len(rows) < 2:
        return
    speeds = [row["tokens_per_second"] for row in rows]
    scale = next((s for s in (1e6, 1e3) if max(speeds) >= s), 1.0)
    unit = {1e6: "million tokens/s", 1e3: "thousand tokens/s", 1.0: "tokens/s"}[scale]
    ideal = [speeds[0] / gpus[0] * n / scale for n in gpus]
    name = f"plan: {planner.request.model.name} on {planner.hardware.name}"
    band = [
        [row["tokens_per_second"] * row["step/time"] / row[end] / scale for row in rows]
        for end in ("step/high", "step/low")
    ]
    speed = Series("best layout", gpus, [s / scale for s in speeds], *band)
    ends = {"log_x": max(gpus) >= 4 * min(gpus)}
    yield Chart(
        "lines",
        name,
        "GPUs",
        titled("speed", unit),
        [speed, Series("in proportion", gpus, ideal)],
        log_y=ends["log_x"],
        **ends,
    )
    yield Chart("lines", "", "GPUs", "MFU", [Series("best layout", gpus, [row["mfu"] for row in rows])], **ends)


def _fewest(planner: Planner, counts: Sequence[int] | None = None) -> Answer:
    """The fewest GPUs that train --tokens within --within: doubled until it is done, then narrowed in eighths."""
    inputs = planner.inputs
    limit, tokens = inputs.get("within"), inputs.get("tokens")
    if limit is None or tokens is None:
        raise NapkinError(
            "--objective gpus needs --within and --tokens", "for example --within 30d --tokens 15T --objective gpus"
        )
    if counts is not None:
        return _curve(planner, counts)
    node = planner.request.node

    def done(gpus: int) -> bool:
        from napkin.search import search

        found = search(planner.on(gpus), planner.timed, planner.hardware.capacity)
        return bool(len(found)) and float(found.score.min()) * tokens / gpus <= limit

    high = _first(done, node)
    if high is None:
        return _impossible(planner, planner.on(node << DOUBLINGS), None)
    steps = [high // 2 + i * high // 16 for i in range(1, 8) if high // 2 * i % 8 == 0 and high > 16 * node]
    while steps:
        middle = steps[len(steps) // 2]
        if done(middle):
            high, steps = middle, [n for n in steps if n < middle]
        else:
            steps = [n for n in steps if n > middle]
    answer = _one(planner, high)
    answer.terms = (leaf("gpus", high, "GPU"), *answer.terms)
    inputs.record("gpus", high, "solved", "GPU")
    answer.notes.append("the number of GPUs is the fewest among powers of two times the node, and eighths between them")
    return answer


DOUBLINGS = 17
"""From a node of 8 that reaches a million GPUs."""


def _first(done: Callable[[int], bool], node: int) -> int | None:
    for doubling in range(DOUBLINGS + 1):
        if done(node << doubling):
            return node << doubling
    return None


# --- what cannot be --------------------------------------------------------------------------------------------------


def _impossible(planner: Planner, request: Request, found: Found | None) -> Answer:
    """The nearest question that has an answer, with status 1."""
    capacity = planner.hardware.capacity
    reasons = []
    if found is not None and found.least is not None:
        reasons.append(
            f"none of {found.layouts:,} layouts fits {human(capacity, 'byte')}: the smallest takes "
            f"{human(found.least_used, 'byte')}{_largest_bucket(request, found)}"
        )
    else:
        most = request.batch or request.most
        reasons += _rules(request) or [
            f"no layout of {request.gpus:,} GPUs divides the model and a step of at most {most:,} sequences as asked"
        ]
    near = _nearest(planner, request)
    if near is None:
        raise NapkinError(
            f"{request.model.name} on {request.gpus:,} × {planner.hardware.name}: {'; '.join(reasons)}",
            "no number of GPUs that was tried and no single relaxed option changes that",
            status=BROKEN,
        )
    what, other = near
    answer = _ranked(planner, other, scored(planner, other.layout(other.ranked(1)[0])))
    answer.status, answer.verdict = BROKEN, "impossible"
    answer.title = f"{'; '.join(reasons)}\nnearest: {what}\n{answer.title}"
    answer.extra["reasons"] = reasons
    answer.extra["nearest"] = what
    return answer


def _rules(request: Request) -> list[str]:
    """Which of the given degrees breaks which rule."""
    heads, depth, n = request.model.heads, request.model.stacks[-1].depth, request.gpus
    found = []
    only = request.only
    for name, whole, what in (("tp", heads, "attention heads"), ("cp", request.seq, "tokens of a sequence")):
        if name in only and whole % only[name]:
            found.append(f"--{name} {only[name]} does not divide the {whole:,} {what}")
    if only.get("pp", 1) * only.get("vp", 1) > depth:
        found.append(f"pp · vp is above the {depth} layers")
    product = math.prod(only.get(name, 1) for name in ("tp", "pp", "cp", "dp"))
    if n % product:
        found.append(f"{n:,} GPUs are not a multiple of {product:,}")
    if not found and request.batch is not None:
        found.append(f"no data-parallel degree of {n:,} GPUs divides the batch of {request.batch:,}")
    return found


def _nearest(planner: Planner, request: Request) -> tuple[str, Found] | None:
    """The question that changes least and has an answer: one degree moved, then another number of GPUs, then none
    of the degrees held, then both."""
    from napkin.search import search

    for what, other in _alternatives(planner, request):
        found = search(other, planner.timed, planner.hardware.capacity)
        if len(found):
            return what, found
    return None


TRIED = 16
"""Machines of a few nodes more or fewer that are tried before other sizes."""


def _alternatives(planner: Planner, request: Request) -> Iterator[tuple[str, Request]]:
    for name, value in request.only.items():
        rest = {key: held for key, held in request.only.items() if key != name}
        free = replace(request, only=rest)
        for near in _near_values(free, name, value):
            yield f"--{name} {near} in place of {value}", replace(request, only={**rest, name: near})
    if len(request.recomputes) == 1 and request.recomputes[0].kind != "full":
        yield "--recompute full", replace(request, recomputes=(recompute("full"),))
    node, n = request.node, request.gpus
    whole = n // node * node
    near_machines = [whole + i * node for i in range(-TRIED, TRIED + 1) if whole + i * node > 0]
    powers = [node << i for i in range(DOUBLINGS)]
    doubled = [*(p for p in powers if p > n), *(p for p in reversed(powers) if p < n)]
    tried = sorted((m for m in near_machines if m != n), key=lambda m: abs(m - n))[:TRIED]
    least = _bytes_of_weights(request) / (planner.hardware.capacity or 1)
    for gpus in [*tried, *doubled]:
        if gpus >= least:
            yield f"--gpus {gpus:,} in place of {n:,}", replace(request, gpus=gpus)
    if request.only or request.below:
        yield "no degree held", replace(request, only={}, below={})
        for gpus in doubled:
            if gpus >= least:
                yield (
                    f"--gpus {gpus:,} in place of {n:,} and no degree held",
                    replace(request, only={}, below={}, gpus=gpus),
                )


def _bytes_of_weights(request: Request) -> float:
    """What all cards together hold under every layout: each weight and its master copy, once."""
    from napkin.formulas.capacity import bytes_per_param
    from napkin.formulas.params import params

    each = bytes_per_param(request.setup.precision, request.setup.optimizer)
    kept = sum(float(part.value) for part in each.parts if part.name.endswith(("/parameters", "/master")))
    return kept * float(params(request.model)["params/total"].value)


def _near_values(free: Request, name: str, value: int) -> list[int]:
    """Values of a degree with which the machine divides, nearest first."""
    from napkin.search import INNER, OUTER, grid

    whole = grid(free)
    if whole is None:
        return []
    if name in INNER:
        found = {int(v) for v in whole.rows[:, INNER.index(name)]}
    elif name in OUTER:
        found = {int(v) for v in whole.columns[:, OUTER.index(name)]}
    else:
        found = {int(v) for v in whole.dp[whole.valid]}
    return sorted(found - {value}, key=lambda v: abs(math.log(max(v, 0.5) / max(value, 0.5))))[:4]


COMMAND = Command(
    "plan",
    "Every layout that divides the machine and fits its memory, ranked, and why the others lose",
    run,
    options=(
        "gpus",
        "hardware",
        "hardware-file",
        "seq",
        "global-batch",
        "max-global-batch",
        "objective",
        "tokens",
        "within",
        "price",
        "tp",
        "pp",
        "dp",
        "cp",
        "ep",
        "vp",
        "sp",
        "zero",
        "micro-batch",
        "recompute",
        *(f"max-{name}" for name in BOUNDED),
        "precision",
        "optimizer",
        "optimizer-form",
        "momentum",
        "implementation",
        "attention",
        "dropout",
        "stack",
        "async-tp",
        "factor",
        "profile",
        "interval",
        "rows",
        "pareto",
        *MODEL_OPTIONS,
        *DRAWS,
    ),
    arguments=("model",),
    defaults={
        "objective": "time",
        "rows": "10",
        "precision": "bf16-mixed",
        "optimizer": "adamw",
        "implementation": "megatron",
        "attention": "flash",
        "dropout": "0",
        "stack": "megatron-core",
        "interval": "90",
    },
    examples=(
        "plan llama3-405b --gpus 16384 --hardware h100 --seq 8192 --global-batch 2048",
        "plan llama3-70b --hardware h100 --seq 8192 --objective gpus --tokens 15T --within 60d",
        "plan llama3-70b --gpus 256..2048 --hardware h100 --seq 8192 --max-tp 8",
    ),
    reads={"gpus": _counts},
)
