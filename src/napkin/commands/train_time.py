"""`napkin train-time`: how long a run takes, or what it would need to be done in time or within a budget."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.commands.command import Command
from napkin.commands.goodput import read_goodput
from napkin.commands.inputs import Inputs
from napkin.commands.machine import WHICH, check_dtype, read_hardware, read_peak
from napkin.commands.screens.train_time import screen
from napkin.commands.train_time_question import TrainTimeQuestion
from napkin.counting.six_n import against_count, six, six_n
from napkin.errors import BROKEN, CLOSE, OK, NapkinError
from napkin.inputs.hardware import Hardware
from napkin.options.layout import MACHINE_SIZE
from napkin.options.model import MODEL_OPTIONS
from napkin.options.option import choice
from napkin.options.training import STEP_MODEL, UNTIMED
from napkin.render.answer import Answer, Shown
from napkin.term import Term
from napkin.timing import time

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from napkin.commands.step_model import StepQuestion

PREDICTS = (*STEP_MODEL, "profile")
"""What the step model takes to estimate the MFU of a MODEL."""
OF_MODEL = ("seq", "flops", *MODEL_OPTIONS, *PREDICTS)
"""Options that need a MODEL's shapes."""
VERDICTS = {OK: "holds", BROKEN: "broken", CLOSE: "too close to call"}
"""Exit status → what a deadline or budget is called that was asked to hold."""


def run(inputs: Inputs) -> Answer:
    """Answer for a model or its number of parameters."""
    return answer(read(inputs))


def read(inputs: Inputs) -> TrainTimeQuestion:
    """Read the question."""
    if any(name in inputs for name in UNTIMED):
        from napkin.commands.untimed import read_untimed

        read_untimed(inputs)
    known, counted, named = _read_known(inputs)
    if not inputs.has("hardware"):
        _check_missing(inputs, known)
    hardware = read_hardware(inputs, ("peak-flops", "tdp"))
    peak = read_peak(inputs, hardware)
    price = inputs.term("price") if inputs.has("price") else None
    if inputs.has("budget") and price is None:
        raise NapkinError("--budget needs --price", "add --price, USD per GPU-hour")
    budget = inputs.term("budget") if inputs.has("budget") else None
    judged = {}
    for name in time.limits(known, budget is not None):
        limit = known.pop(name, budget)
        if limit is not None:
            judged[name] = limit
    budget = None if "budget" in judged else budget
    _check_asked(inputs, known)
    if "mfu" in known:
        inputs.because(("confidence", *PREDICTS), "--mfu is given, and nothing is estimated", "leave out --mfu")
    elif "gpus" not in known:
        inputs.because(PREDICTS, "without --gpus there is no layout to estimate the MFU of", "add --gpus")
    else:
        inputs.because(("confidence", *PREDICTS), "the MFU is what is asked for, and nothing is estimated")
    powered = hardware.tdp_w is not None
    counted_by_power = ("power-overhead", "pue", "carbon-intensity")
    inputs.depends(counted_by_power, powered, f"no TDP of {hardware.name} is known, so energy is omitted", "--tdp")
    confidence, step = None, None
    if "mfu" not in known:
        from napkin.evidence.run_estimate import is_wanted

        if is_wanted(known, budget is not None):
            confidence, step = _read_estimate(inputs, known, hardware)
    return TrainTimeQuestion(
        known=known,
        counted=counted,
        convention=str(inputs.peek("flops") or "6nd"),
        hardware=hardware,
        peak=peak,
        budget=budget,
        price=price,
        limits=judged,
        overhead=inputs.term("power-overhead"),
        pue=inputs.term("pue"),
        carbon=inputs.term("carbon-intensity"),
        confidence=confidence,
        goodput=read_goodput(inputs, of_mfu=confidence is None),
        step=step,
        named=named,
    )


def _check_missing(inputs: Inputs, known: Mapping[str, Term]) -> None:
    """Refuse a question without an accelerator, naming what else is missing; an MFU can be estimated."""
    try:
        time.unknowns({"mfu": six(), **known}, inputs.has("budget"))
    except NapkinError as problem:
        inputs.need_all({"hardware": WHICH}, [problem])
    inputs.need("hardware", WHICH)


def _check_asked(inputs: Inputs, known: Mapping[str, Term]) -> None:
    """Refuse what --min or --max asks for where it is given too; what is left out is answered with or without them."""
    asked = [(word, name) for word in ("min", "max") if (name := inputs.text_or_none(word)) is not None]
    if len(asked) > 1:
        raise NapkinError("--min and --max ask different things", "ask one at a time")
    for word, name in asked:
        given = {"time": "within", "cost": "budget"}.get(name, name)
        if given in inputs or name in known:
            shown = "the model" if name == "params" and given not in inputs else f"--{given}"
            raise NapkinError(f"--{word} {name} asks for what {shown} gives", "leave out one of the two")
    if ("min", "cost") in asked:
        inputs.need("price", "USD per GPU-hour")


def _read_known(inputs: Inputs) -> tuple[dict[str, Term], Term | None, str]:
    """Return what was given among params, tokens, gpus, mfu and time; a model's counted FLOPs per token, its name."""
    if "model" in inputs:
        from napkin.commands.size import read_size

        read_size(inputs, OF_MODEL)
    if any(name in inputs for name in MACHINE_SIZE[1:]):
        from napkin.commands.nodes import read_gpus

        read_gpus(inputs, alone=False)
    known = {}
    for name in ("params", "tokens", "gpus", "mfu"):
        if inputs.has(name):
            known[name] = inputs.term(name)
    if inputs.has("within"):
        known["time"] = inputs.term("within", "time")
    if inputs.has("model"):
        return known, *_read_model(inputs, known)
    size = f"MODEL {inputs.shown['params'].text}" if inputs.has("params") else "name a model"
    inputs.because(OF_MODEL, "it belongs to a MODEL", f"{size} instead of --params")
    active = inputs.integer_or_none("active-params")
    if active is not None:
        if "params" in known and active > known["params"].value:
            raise NapkinError("--active-params is above --params", "active parameters are part of all parameters")
        known["per_token"] = six_n(inputs.term("active-params"))
    return known, None, ""


def _read_model(inputs: Inputs, known: dict[str, Term]) -> tuple[Term, str]:
    """Add a model's parameters and FLOPs per token to what is known; return the counted FLOPs per token, its name."""
    for name in ("params", "active-params"):
        if inputs.has(name):
            raise NapkinError(f"MODEL and --{name} cannot be combined", "the model has its own count")
    from napkin.commands.model import read_model, read_per_token
    from napkin.counting.params import params

    model = read_model(inputs)
    named, counted = read_per_token(inputs, model)
    known["params"] = params(model)["params/total"].renamed("params")
    known["per_token"] = named
    return counted, model.name


def _read_estimate(inputs: Inputs, known: Mapping[str, Term], hardware: Hardware) -> tuple[float, StepQuestion | None]:
    """Return the confidence level of an estimated MFU, and the step that it rests on where a model has a layout."""
    from napkin.commands.confidence import read_confidence
    from napkin.evidence.rates import generation_note

    if note := generation_note(hardware):
        inputs.note(note)
    confidence = read_confidence(inputs)
    if not inputs.has("model") or "gpus" not in known or not any(name in inputs for name in PREDICTS):
        return confidence, None
    from napkin.commands.model import read_model
    from napkin.commands.step_model import read_step
    from napkin.options.training import SETUP_DEFAULTS

    check_dtype(inputs)
    for name, text in SETUP_DEFAULTS.items():
        inputs.default(name, text)
    return confidence, read_step(inputs, read_model(inputs))


def answer(question: TrainTimeQuestion) -> Answer:
    """Answer with the run's time, FLOPs, cost, energy, and what was left out."""
    known, hardware, price = question.known, question.hardware, question.price
    if question.confidence is None:
        answer = _answer_from(question, time.solve(known, question.peak, question.budget, price, question.goodput))
    else:
        from napkin.commands.estimated import add_estimate, estimated

        run = estimated(
            known, hardware, question.peak, question.budget, price, question.confidence, question.goodput, question.step
        )
        answer = _answer_from(question, run.found)
        add_estimate(answer, known, hardware, price is not None, run, question.confidence, question.goodput)
    _judge(question, answer)
    answer.screen = screen(question, answer)
    return answer


def _judge(question: TrainTimeQuestion, answer: Answer) -> None:
    """Say whether the run keeps a deadline and a budget that were given although the rest determines it."""
    if not question.limits or answer.verdict is not None:
        return
    terms = answer.by_path()
    statuses = set()
    for name, limit in question.limits.items():
        path = {"time": "time", "budget": "cost"}[name]
        low, high = answer.intervals.get(path, (terms[path].value,) * 2)
        statuses.add(OK if high <= limit.value else BROKEN if low > limit.value else CLOSE)
    answer.status = next(status for status in (BROKEN, CLOSE, OK) if status in statuses)
    answer.verdict = VERDICTS[answer.status]


def _answer_from(question: TrainTimeQuestion, found: Mapping[str, Term]) -> Answer:
    """Answer with the run's quantities once they are solved."""
    known, price = question.known, question.price
    terms = [
        found[name]
        for name in ("time", "time/uninterrupted", "goodput", "flops", "mfu", "gpus", "tokens", "params", "gpu_hours")
        if name in found
    ]
    terms += [found[name] for name in ("gpus/exact", "time/allowed") if name in found]
    if price is not None:
        terms.append(time.cost(found["gpu_hours"], price))
    footprint, notes = _footprint(question, found)
    terms += footprint
    if question.counted is not None:
        exact, note = _compared_with_count(question.convention, found, question.counted)
        terms += exact
        notes.append(note)
    impossible = found["mfu"].value > 1
    answer = Answer(
        "train-time",
        terms,
        verdict="impossible" if impossible else None,
        status=BROKEN if impossible else OK,
        notes=notes,
    )
    for name in ("params", "tokens", "gpus", "mfu"):
        if name not in known and name in found:
            answer.inputs[name] = Shown(found[name].value, None, "solved", found[name].unit)
    context = time.compared_with_known(found["flops"].value)
    answer.extra["context"] = [
        {"name": name, "flops": flops, "ratio": ratio, "source": source} for name, flops, ratio, source in context
    ]
    if impossible:
        answer.notes.append("the MFU that this takes is above 1: more than the hardware's dense peak")
    return answer


def _compared_with_count(convention: str, found: Mapping[str, Term], counted: Term) -> tuple[list[Term], str]:
    """Return the counted FLOPs of the whole run, and the convention's ratio to them; and the ratio in words."""
    exact, ratio = against_count(found["flops"], counted, found["tokens"])
    side = "above" if ratio.value > 1 else "below"
    return [exact, ratio], f"{convention} is {abs(ratio.value - 1):.1%} {side} the count"


def _footprint(question: TrainTimeQuestion, found: Mapping[str, Term]) -> tuple[list[Term], list[str]]:
    """Return energy and carbon; omitted, with a note, where the accelerator's TDP is not known."""
    hardware = question.hardware
    if hardware.tdp_w is None:
        return [], [f"{hardware.name}: no TDP is known, so energy is omitted"]
    tdp = hardware.term("tdp_w", "tdp", "watt/GPU")
    used = time.energy(found["gpus"], found["time"], tdp, question.overhead, question.pue)
    return [used, time.carbon(used, question.carbon)], []


COMMAND = Command(
    "train-time",
    "How long a training run takes; leave out something else and give --within to solve for that",
    run,
    brief="How long a run takes, what it costs, or what it needs",
    verdicts=(*VERDICTS.values(), "impossible"),
    options=(
        "params",
        "active-params",
        "tokens",
        *MACHINE_SIZE,
        "hardware",
        "hardware-file",
        "dtype",
        "mfu",
        "goodput",
        "within",
        "budget",
        "min",
        "max",
        "price",
        "power-overhead",
        "pue",
        "carbon-intensity",
        "flops",
        "seq",
        "assume-ignorable",
        "strict-config",
        "confidence",
        *PREDICTS,
        *UNTIMED,
    ),
    arguments=("model",),
    reads={"max": choice("params", "tokens")},
    defaults={"power-overhead": "1.3", "pue": "1.1", "carbon-intensity": "0.385"},
    examples=(
        "train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --mfu 0.5",
        "train-time --params 70B --tokens 15T --hardware h100 --mfu 0.4 --within 30d",
        "train-time --params 70B --tokens 15T --hardware h100 --within 60d --min gpus",
        "train-time llama3-70b --tokens 15T --gpus 1024 --hardware h100 --mfu 0.4 --flops palm --seq 8192",
        "train-time --params 7B --gpus 256 --hardware a100 --mfu 0.45 --price 2 --budget 2000000",
    ),
)
