"""`napkin train-time`: how long a run takes, or what it would need to be done in time or within a budget."""

from __future__ import annotations

from napkin.commands.command import Command, Inputs
from napkin.commands.machine import read_hardware, read_peak
from napkin.counting.six_n import six_n
from napkin.errors import BROKEN, OK, NapkinError
from napkin.inputs.hardware import Hardware
from napkin.options.training import STEP_MODEL
from napkin.render.answer import Answer
from napkin.term import Term, divide, multiply
from napkin.timing import time
from napkin.units import human

PREDICTS = (*STEP_MODEL, "profile")
"""What the step model takes to estimate the MFU of a MODEL."""


def run(inputs: Inputs) -> Answer:
    known, counted = _known(inputs)
    hardware = read_hardware(inputs)
    peak = read_peak(inputs, hardware)
    budget = price = None
    if inputs.get("price") is not None:
        price = inputs.term("price")
    if inputs.get("budget") is not None:
        if price is None:
            raise NapkinError("--budget needs --price", "add --price, USD per GPU-hour")
        budget = inputs.term("budget")
    estimate = None
    layout = [f"--{name}" for name in PREDICTS if name in inputs]
    if layout and ("mfu" in known or "gpus" not in known):
        unused = "--mfu is given" if "mfu" in known else "without --gpus there is no layout to estimate the MFU of"
        inputs.note(f"{', '.join(layout)}: not used, {unused}")
    if "mfu" not in known:
        from napkin.commands import estimated

        if estimated.wanted(known, budget is not None):
            found, estimate = estimated.solved(inputs, known, hardware, peak, budget, price)
    if estimate is None:
        found = time.solve(known, peak, budget, price)
    solved = {name for name in ("params", "tokens", "gpus", "mfu") if name not in known and name in found}
    if estimate is not None:
        solved.discard("mfu")
    for name in solved:
        inputs.record(name, found[name].value, "solved", found[name].unit)
    terms = [found[name] for name in ("time", "flops", "mfu", "gpus", "tokens", "params", "gpu_hours") if name in found]
    terms += [found[name] for name in ("gpus/exact", "time/allowed") if name in found]
    if price is not None:
        terms.append(time.cost(found["gpu_hours"], price))
    terms += _footprint(inputs, hardware, found)
    if counted is not None:
        terms += _beside_the_count(inputs, found, counted)
    impossible = found["mfu"].value > 1
    answer = Answer(
        "train-time",
        _title(found, hardware),
        terms,
        verdict="impossible" if impossible else None,
        status=BROKEN if impossible else OK,
    )
    if estimate is not None:
        estimated.show(answer, inputs, known, found, estimate)
    context = time.beside(found["flops"].value)
    answer.extra["context"] = [
        {"name": name, "flops": flops, "ratio": ratio, "source": source} for name, flops, ratio, source in context
    ]
    if context:
        answer.pictures = ("  beside       " + ", ".join(f"{ratio:.3g} × {name}" for name, _, ratio, _ in context),)
    if impossible:
        answer.notes.append("the MFU that this takes is above 1: more than the hardware's dense peak")
    return answer


def _known(inputs: Inputs) -> tuple[dict[str, Term], Term | None]:
    """What was given among params, tokens, gpus, mfu and time; and a model's counted FLOPs per token."""
    known = {}
    for name in ("params", "tokens", "gpus", "mfu"):
        if inputs.get(name) is not None:
            known[name] = inputs.term(name)
    if inputs.get("within") is not None:
        known["time"] = inputs.term("within", "time")
    if inputs.get("model") is not None:
        return known, _of_model(inputs, known)
    for name in ("seq", "flops", "assume-ignorable", *PREDICTS):
        if name in inputs:
            raise NapkinError(f"--{name} belongs to a MODEL", "name a model instead of --params")
    active = inputs.get("active-params")
    if active is not None:
        if "params" in known and active > known["params"].value:
            raise NapkinError("--active-params is above --params", "active parameters are part of all parameters")
        known["per_token"] = six_n(inputs.term("active-params"))
    return known, None


def _of_model(inputs: Inputs, known: dict[str, Term]) -> Term:
    """Adds a model's parameters and FLOPs per token to what is known; returns the counted FLOPs per token."""
    for name in ("params", "active-params"):
        if inputs.get(name) is not None:
            raise NapkinError(f"MODEL and --{name} cannot be combined", "the model has its own count")
    from napkin.commands.model import per_token, read_model
    from napkin.counting.params import params

    model = read_model(inputs)
    named, counted = per_token(inputs, model)
    known["params"] = params(model)["params/total"].renamed("params")
    known["per_token"] = named
    return counted


def _beside_the_count(inputs: Inputs, found: dict[str, Term], counted: Term) -> list[Term]:
    """The counted FLOPs of the whole run, and the convention's ratio to them."""
    exact = multiply("flops/exact", counted, found["tokens"])
    ratio = divide("flops/ratio", found["flops"], exact)
    inputs.note(
        f"{inputs.get('flops')} is {abs(ratio.value - 1):.1%} {'above' if ratio.value > 1 else 'below'} the count"
    )
    return [exact, ratio]


def _footprint(inputs: Inputs, hardware: Hardware, found: dict[str, Term]) -> list[Term]:
    """Energy and carbon; left out, with a note, where the accelerator's TDP is not known."""
    for name in ("power-overhead", "pue", "carbon-intensity"):
        inputs.get(name)
    if hardware.tdp_w is None:
        inputs.note(f"{hardware.name}: no TDP is known, so energy is left out")
        return []
    tdp = hardware.term("tdp_w", "tdp", "watt/GPU")
    used = time.energy(found["gpus"], found["time"], tdp, inputs.term("power-overhead"), inputs.term("pue"))
    return [used, time.carbon(used, inputs.term("carbon-intensity"))]


def _title(found: dict[str, Term], hardware: Hardware) -> str:
    model = f"{human(found['params'].value, 'param')}, " if "params" in found else ""
    gpus = found["gpus"].value
    count = f"{gpus:,}" if isinstance(gpus, int) else f"{gpus:g}"
    return f"{model}{human(found['tokens'].value, 'token')}, {count} × {hardware.name}, MFU {found['mfu'].value:.3g}"


COMMAND = Command(
    "train-time",
    "How long a training run takes; leave out something else and give --within to solve for that",
    run,
    options=(
        "params",
        "active-params",
        "tokens",
        "gpus",
        "hardware",
        "hardware-file",
        "dtype",
        "mfu",
        "within",
        "budget",
        "price",
        "power-overhead",
        "pue",
        "carbon-intensity",
        "flops",
        "seq",
        "assume-ignorable",
        "interval",
        *PREDICTS,
    ),
    arguments=("model",),
    defaults={"power-overhead": "1.3", "pue": "1.1", "carbon-intensity": "0.385"},
    examples=(
        "train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --mfu 0.5",
        "train-time --params 70B --tokens 15T --hardware h100 --mfu 0.4 --within 30d",
        "train-time llama3-70b --tokens 15T --gpus 1024 --hardware h100 --mfu 0.4 --flops palm --seq 8192",
        "train-time --params 7B --gpus 256 --hardware a100 --mfu 0.45 --price 2 --budget 2000000",
    ),
)
