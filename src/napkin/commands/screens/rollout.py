"""Screen of reinforcement learning: the phases of a step, in bytes and in seconds, and a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.commands.next_command import FREE, under
from napkin.commands.rollout.question import RolloutQuestion
from napkin.commands.rollout.seconds import RolloutSeconds
from napkin.commands.screens.memory import categories
from napkin.commands.screens.setup import degrees_of, run_on, trained_part
from napkin.commands.screens.suggestions import first_command, host_line, would_fit
from napkin.errors import DOES_NOT_FIT, HELD
from napkin.evidence.figures.prices import Price
from napkin.planning.rollout_memory import RolloutFit
from napkin.render.answer import Answer, suggested
from napkin.render.figures import interval, limits, size, size_of
from napkin.render.screen import Bar, Next, Screen, quantities
from napkin.term import Term
from napkin.units import human

SAYS = {
    "generation": "prefill and decode",
    "logprobs": "of the policy, before the update",
    "reference": "of the reference, or the teacher",
    "reward": "scores of the reward model",
    "values": "the critic's values",
    "critic": "the critic's update",
    "update": "forward, backward, optimizer",
    "weight_transfer": "to the engine",
    "offload": "the trainer's states to the host and back",
}
"""Phase of a step → what it is."""


HOLDS = {
    "engine/memory": "engine",
    "engine/weights": "engine's weights",
    "memory/parameters": "new weights",
}
"""Part of a phase's memory → its owner, if not the trainer."""
REMEDIES = 3
"""Number of suggestions that are shown."""


def _question(question: RolloutQuestion) -> list[str]:
    """Return the question as clauses: model and machine, layout, task, engine, lengths."""
    engine, lengths = question.sharing.engine, question.lengths
    first = run_on(question.model.name, question.gpus, question.hardware.name)
    divided = degrees_of(question.setup.layout)
    where = "no engine"
    if engine is not None:
        where = f"engine on {engine.gpus:,} of them" if engine.apart else f"engine in {engine.share:.0%}"
    return [
        f"{first}:" if divided else first,
        *divided,
        *trained_part(question.setup),
        where,
        f"{lengths.prompts:,} × {lengths.answers:,} responses of {lengths.response:,} tokens",
    ]


def of_memory(question: RolloutQuestion, answer: Answer, found: RolloutFit) -> Screen:
    """Return the screen of the memory of each phase."""
    capacity = float(question.capacity.value)
    terms = answer.by_path()
    total = float(terms["memory/total"].value)
    whole = max(total, capacity)
    rows: list[tuple[str | Bar, ...]] = []
    for one in found.phases:
        name = one.name.rpartition("/")[2].replace("_", " ")
        rows.append((name, size(one.value, whole), Bar(float(one.value) / whole), _owners(one)))
    rows += [(f"  {name}", *cells) for name, *cells in categories(found.update, whole, question.hardware)]
    engine = question.sharing.engine
    remarks = []
    if engine is not None:
        left = engine.cache(question.capacity)
        weights = size(engine.weights().value)
        remarks.append(f"the engine: weights {weights}, tp {engine.ranks}, cache {size(left.value)}")
    if "memory/host" in terms:
        there = terms.get("memory/host/capacity")
        remarks.append(host_line(terms["memory/host"].value, None if there is None else there.value))
    if answer.extra.get("suggestions") == []:
        remarks.append("Nothing that napkin tries makes it fit: ZeRO, recomputation, LoRA, more GPUs, …")
    ends = interval(answer.intervals["memory/total"], total, "byte", question.confidence)
    head = [(answer.verdict or "").upper(), f"{size_of(total, capacity)} per GPU", ends]
    remedies = suggested(answer)
    too_large = answer.verdict == DOES_NOT_FIT
    following = first_command(remedies, question.gpus) if too_large and remedies else _after(question, too_large)
    more = would_fit(remedies, REMEDIES)
    return Screen(_question(question), head, answer.verdict or "", quantities(rows), remarks, more, next=following)


def _owners(phase: Term) -> str:
    """Return the bytes of each owner of a phase's memory; "" if there is one."""
    held: dict[str, float] = {}
    for part in phase.parts if phase.name.startswith("memory/phase") else ():
        owner = HOLDS.get(part.name, "trainer")
        held[owner] = held.get(owner, 0.0) + float(part.value)
    parts = [f"{owner} {size(value)}" for owner, value in held.items() if value]
    return ", ".join(parts) if len(parts) > 1 else ""


def _after(question: RolloutQuestion, too_large: bool) -> Next:
    """Return the next command: the step's time, or the fewest GPUs on which a layout fits. It assumes the means of
    lengths whose maxima are given, and takes the same likely means of others."""
    changes = dict(question.unbounded)
    if not too_large:
        return under("step", changes)
    return under("plan", {**changes, "gpus": None, "min": "gpus"}, (*FREE, "rollout", "rollout-tp"))


def of_step(question: RolloutQuestion, answer: Answer, found: RolloutSeconds, fit: str) -> Screen:
    """Return the screen of a step's seconds; fit: the verdict on its memory."""
    step = found.time
    rows = _phases(step, found.phases)
    rate = answer.by_path()["tokens_per_second_per_gpu"]
    memory = size_of(float(answer.by_path()["memory/total"].value), float(question.capacity.value))
    more = [
        ("speed", f"{human(rate.value, 'token/s')} per GPU", "prompts and responses"),
        ("memory", f"{memory} per GPU", fit),
    ]
    head = [
        f"{human(step.value, 'second')} a step",
        interval(answer.intervals["step/time"], step.value, "second", question.confidence),
    ]
    following = under("memory") if fit == DOES_NOT_FIT else under("train-time", {"steps": "200"})
    return Screen(_question(question), head, "", quantities(rows), more=quantities(more, right=False), next=following)


def _phases(step: Term, phases: Sequence[Term]) -> list[tuple[str | Bar, ...]]:
    """Return a row for each phase with its share."""
    rows: list[tuple[str | Bar, ...]] = []
    for part in phases:
        name = part.name.removeprefix("step/")
        share = float(part.value) / float(step.value)
        label = name.replace("_", " ")
        rows.append((label, human(part.value, "second", 3), Bar(share), f"{share:.0%}; {SAYS[name]}"))
    return rows


def of_time(
    question: RolloutQuestion, answer: Answer, most: Mapping[str, float], fit: str, market: Price | None
) -> Screen:
    """Return the screen of a run's hours. most: its limits by path; fit: the verdict on a step's memory; market: the
    price where sellers ask it."""
    terms, asked = answer.by_path(), limits(most.get("time"), most.get("cost"))
    ends = interval(answer.intervals["time"], terms["time"].value, "second", question.confidence)
    head = [human(terms["time"].value, "second"), ends, human(terms["gpu_hours"].value, "GPU-hour")]
    memory = size_of(float(terms["memory/total"].value), float(question.capacity.value))
    if fit == DOES_NOT_FIT:
        head.insert(1, f"DOES NOT FIT {memory}")
    elif answer.verdict is not None and answer.verdict in HELD.values():
        head.insert(1, f"{answer.verdict.upper()}: {' and '.join(asked)}")
    rows: list[tuple[str, str, str]] = [("steps", human(terms["steps"].value, "1"), "")]
    rows.append(("a step", human(terms["step/time"].value, "second"), ""))
    if terms["goodput"].value != 1:
        rows.append(("goodput", human(terms["goodput"].value, "1", 3), "of the time is training"))
    if "cost" in terms:
        ends = interval(answer.intervals["cost"], terms["cost"].value, "USD", question.confidence)
        rows.append(("cost", human(terms["cost"].value, "USD"), ends))
    if market is not None:
        rows.append(("price", human(market.middle, "USD"), market.words))
    rows.append(("memory", f"{memory} per GPU", fit))
    table = quantities(rows, right=False)
    found = [terms[f"step/{name}"] for name in SAYS if f"step/{name}" in terms]
    phases = quantities(_phases(terms["step/time"], found))
    following = under("memory") if fit == DOES_NOT_FIT else Next({"explain": True})
    return Screen([*_question(question), *asked], head, answer.verdict or "", table, more=phases, next=following)
