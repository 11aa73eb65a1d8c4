"""`memory`, `step` and `train-time` of reinforcement learning: the phases of a step on each GPU, its time, a run's."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.commands.memory.notes import source_of
from napkin.commands.memory.question import STATUS
from napkin.commands.rollout.question import RolloutQuestion, read
from napkin.commands.rollout.seconds import seconds_of
from napkin.commands.screens import rollout as screen
from napkin.counting.params import params
from napkin.elementwise import Number
from napkin.errors import UNDECIDED, NapkinError
from napkin.planning import verdicts
from napkin.planning.rollouts import held_by_rollout
from napkin.planning.step_memory import terms_of
from napkin.planning.verdicts import FITS, NOT
from napkin.render.answer import Answer
from napkin.term import TRUE, Term, add, constant, divide, largest, leaf, multiply

ENGINE = ("engine/", "memory/engine")
OUTSIDE = 2 * 2**30
"""assumed: most bytes of CUDA graphs and communication that an engine takes outside of its share."""


def run_memory(inputs: Inputs) -> Answer:
    """Answer with the memory of each phase of a step on a GPU."""
    for name in ("max", "min", "inference", "snapshot", "tensors", "must-fit"):
        inputs.depends((name,), name == "must-fit", "it belongs to a step of training alone", "leave it out")
    question = read(inputs)
    inputs.depends(("suggestions",), True)
    capacity = question.capacity
    fit = verdicts.evaluate(question.model, question.setup, question.implementation, int(capacity.value))
    terms = terms_of(fit, source_of(question.model, question.implementation))
    used = terms.pop("memory/total").renamed("update/used")
    phases = phases_of(question, terms, used)
    total = largest("memory/total", *phases)
    engine = question.engine
    own = [] if engine is None else [engine.weights(), engine.cache(capacity)]
    answer = Answer("memory", (*terms.values(), *phases, *own, total, capacity))
    ends = _ends(phases, used, fit.reported.ends["memory/used"])
    answer.intervals = {**fit.reported.ends, **ends, "memory/total": _largest(ends)}
    low, high = answer.intervals["memory/total"]
    answer.verdict = FITS if high <= capacity.value else NOT if low > capacity.value else UNDECIDED
    if inputs.flag("must-fit"):
        answer.status = STATUS[answer.verdict]
    answer.screen = screen.of_memory(question, answer, phases)
    return answer


def _ends(phases: list[Term], used: Term, of_update: tuple[Number, Number]) -> dict[str, tuple[float, float]]:
    """Return the interval of each phase: the trainer's part is as uncertain as its update (of_update); what the engine
    takes is its share, and where it generates, graphs and workspace that the share does not count besides."""
    low, high = (float(end) / float(used.value) for end in of_update)
    found = {}
    for one in phases:
        engine = sum(float(part.value) for part in (one, *one.parts) if part.name.startswith(ENGINE))
        trainer = float(one.value) - engine
        outside = OUTSIDE if engine and not one.name.endswith("update") else 0.0
        found[one.name] = (engine + trainer * low, engine + trainer * high + outside)
    return found


def _largest(ends: dict[str, tuple[float, float]]) -> tuple[float, float]:
    """Return the interval of the largest phase."""
    return max(low for low, _ in ends.values()), max(high for _, high in ends.values())


def phases_of(question: RolloutQuestion, terms: dict[str, Term], used: Term) -> list[Term]:
    """Return what a GPU of the trainer holds while answers are generated, while the engine takes the new weights, and
    in the update, the last: terms: of its memory."""
    engine, capacity = question.engine, question.capacity
    if engine is None or engine.apart:
        own = [] if engine is None else [engine.memory(capacity).renamed("memory/engine")]
        return [*own, used.renamed("memory/phase/update")]
    kept = _kept(question, terms)
    rollout = add("memory/phase/rollout", *held_by_rollout(engine, capacity, kept))
    weights = engine.weights()
    sync = add("memory/phase/weight_transfer", weights, kept.renamed("kept"), terms["memory/parameters"])
    beside = [] if question.asleep else [engine.memory(capacity)]
    update = add("memory/phase/update", used, *beside)
    return [rollout, sync, update]


def _kept(question: RolloutQuestion, terms: dict[str, Term]) -> Term:
    """Return the bytes of the trainer that stay on a GPU while answers are generated: weights, states and its
    context."""
    away = question.away
    parts = [leaf("overhead", terms["memory/overhead"].value, "byte", TRUE, "context and communication")]
    if "optimizer" not in away:
        parts.append(terms["memory/optimizer"])
    if "parameters" not in away:
        parts += [terms["memory/parameters"], *([terms["memory/models"]] if "memory/models" in terms else [])]
    return add("memory/kept", *parts)


def run_step(inputs: Inputs) -> Answer:
    """Answer with the seconds of a step: generation, log-probabilities, update, weight transfer."""
    question = read(inputs)
    return answer_step(question)


def answer_step(question: RolloutQuestion) -> Answer:
    """Answer with a step's seconds and the tokens that it trains on."""
    found = seconds_of(question.prediction, question.engine, question.lengths, question.hardware, question.model)
    ends = found.ends(question.confidence, question.stack_named)
    gpus = leaf("gpus", question.gpus, "GPU", TRUE)
    tokens = leaf("tokens", question.lengths.tokens, "token", TRUE, "prompts and answers")
    rate = divide("tokens_per_second_per_gpu", tokens, found.time, gpus)
    answer = Answer("step", [found.time, *found.time.parts, *found.inner, rate])
    for term in (found.time, *found.time.parts):
        shortest, longest = ends[term.name]
        answer.intervals[term.name] = (float(term.value) * shortest, float(term.value) * longest)
    low, high = answer.intervals["step/time"]
    scale = float(rate.value) * float(found.time.value)
    answer.intervals[rate.name] = (scale / high, scale / low)
    answer.notes.append(found.evidence)
    answer.screen = screen.of_step(question, answer, found)
    return answer


def run_time(inputs: Inputs) -> Answer:
    """Answer with the hours of so many steps, or of passes over prompts."""
    from napkin.commands.question.goodput import read_goodput

    question = read(inputs)
    found = answer_step(question)
    steps = _read_steps(inputs, question)
    goodput = read_goodput(inputs).on(leaf("gpus", question.gpus, "GPU", TRUE))
    step = found.by_path()["step/time"]
    busy = multiply("time/uninterrupted", steps, step)
    time = goodput.calendar(busy)
    hours = divide(
        "gpu_hours",
        multiply("gpu_seconds", goodput.paid(leaf("gpus", question.gpus, "GPU", TRUE)), time),
        constant("seconds_per_hour", 3600, "second/hour"),
    )
    terms = [
        time,
        busy,
        goodput.share,
        steps,
        hours,
        step,
        *step.parts,
        params(question.model)["params/total"].renamed("params"),
    ]
    terms.append(multiply("tokens", steps, leaf("tokens_of_a_step", question.lengths.tokens, "token", TRUE)))
    if inputs.has("price"):
        terms.append(multiply("cost", hours, inputs.term("price")))
    answer = Answer("train-time", terms)
    low, high = (end / float(step.value) for end in found.intervals["step/time"])
    for name in ("time", "time/uninterrupted", "gpu_hours", "cost", "step/time"):
        value = next((float(one.value) for one in terms if one.name == name), None)
        if value is not None:
            answer.intervals[name] = (value * low, value * high)
    answer.notes += found.notes
    answer.screen = screen.of_time(question, answer)
    return answer


def _read_steps(inputs: Inputs, question: RolloutQuestion) -> Term:
    """Return the optimizer steps: as given, or the passes over the prompts over the prompts of a step."""
    if inputs.has("steps"):
        inputs.because(("samples", "epochs"), "--steps says how much is trained on", "leave out one of the two")
        return leaf("steps", inputs.integer("steps"), "1", TRUE)
    if not inputs.has("samples"):
        raise NapkinError("how much is trained? --steps, or --samples: prompts", "for example --steps 200")
    inputs.default("epochs", "1")
    prompts = multiply(
        "prompts",
        leaf("samples", inputs.integer("samples"), "1", TRUE),
        leaf("epochs", float(inputs.number("epochs")), "1", TRUE),
    )
    return divide("steps", prompts, leaf("prompts_of_a_step", question.lengths.prompts, "1", TRUE))
