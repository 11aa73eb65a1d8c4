"""Read the question of `train-time` from the options."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.commands.inputs import Inputs
from napkin.commands.question.goodput import read_goodput
from napkin.commands.question.machine import WHICH, check_dtype, read_hardware, read_peak
from napkin.commands.train_time.question import SolvedMachine, TrainTimeQuestion
from napkin.counting.six_n import six, six_n
from napkin.errors import NapkinError
from napkin.inputs.hardware import Hardware
from napkin.options.layout import MACHINE_SIZE
from napkin.options.model import MODEL_OPTIONS, PREDICTING
from napkin.options.question import AMOUNT, MEASURED_TOKENS, SAMPLES
from napkin.options.rollout import ROLLOUT
from napkin.options.training import FROZEN, STEP_MODEL, TASKED, UNTIMED
from napkin.term import Term, constant
from napkin.timing import time
from napkin.timing.goodput import Goodput

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from napkin.commands.question.step_model import StepQuestion
    from napkin.evidence.figures.prices import Price

PREDICTS = (*STEP_MODEL, *TASKED, "images", "image-tokens", "profile")
"""Options that the step model takes to estimate the MFU of a MODEL."""
LAYOUT = tuple(name for name in PREDICTS if name not in FROZEN)
"""Those of them that change only the MFU, not the FLOPs."""
TUNED = (*FROZEN, *TASKED, *AMOUNT)
"""Options that each indicate fine-tuning or training on a set of samples."""
ONE_CARD = {"gpus": "1", "time": "12h"}
"""A command line for fine-tuning on one GPU, for hints."""
OF_MODEL = ("seq", "flops", *MODEL_OPTIONS, *PREDICTING, *PREDICTS, *ROLLOUT)
"""Options that need a MODEL's shapes."""


def read(inputs: Inputs) -> TrainTimeQuestion:
    """Read the question."""
    if any(name in inputs for name in UNTIMED):
        from napkin.commands.question.untimed import read_untimed

        read_untimed(inputs)
    known, counts, named, data = _read_known(inputs)
    measured = any(name in inputs for name in MEASURED_TOKENS)
    laid_out = named != "" and "mfu" not in known and not measured and any(name in inputs for name in PREDICTS)
    if laid_out and "gpus" not in known:
        from napkin.commands.train_time.fewest import read_degrees

        read_degrees(inputs, known)
    hardware, market = _read_priced_hardware(inputs, known, named != "")
    peak = read_peak(inputs, hardware)
    price = inputs.term("price") if inputs.has("price") else None
    budget = inputs.term("budget") if inputs.has("budget") else None
    if measured:
        from napkin.commands.train_time.measured import read_measured

        known["mfu"] = read_measured(inputs, known, peak)
    _check_asked(inputs, known)
    if not {"gpus", "time"} & set(known):
        _check_enough(inputs, known)
    solved = _read_solved(inputs, known, hardware) if laid_out else None
    judged = _judged(known, budget, laid_out)
    budget = None if "budget" in judged else budget
    _note_unread(inputs, known, hardware)
    confidence, step = _read_estimate(inputs, known, hardware, budget)
    draw = _read_draw(inputs, hardware)
    return TrainTimeQuestion(
        known=known,
        counted=None if counts is None else counts[0],
        excess=1.0 if counts is None else counts[1],
        convention=str(inputs.peek("flops") or "6nd"),
        hardware=hardware,
        peak=peak,
        budget=budget,
        price=price,
        limits=judged,
        draw=draw,
        overhead=inputs.term("power-overhead") if draw is None else constant("host", 1, "1", "the draw is the node's"),
        pue=inputs.term("pue"),
        carbon=_read_intensity(inputs),
        confidence=confidence,
        goodput=_read_goodput(inputs, known, confidence, step, measured),
        step=step,
        named=named,
        solved=solved,
        data=data,
        weighed=inputs.wants("memory/total"),
        measured=measured,
        market=market,
    )


def _read_priced_hardware(inputs: Inputs, known: Mapping[str, Term], named: bool) -> tuple[Hardware, Price | None]:
    """Return the accelerator and its market price, which becomes the default of --price with a budget, or where a model
    that is named is fine-tuned; else None."""
    if not inputs.has("hardware"):
        _check_missing(inputs, known)
    hardware, market = read_hardware(inputs, ("peak-flops", "tdp")), None
    if inputs.has("budget") or named:
        from napkin.commands.question.price import read_market_price

        market = read_market_price(inputs, hardware, int(known["gpus"].value) if "gpus" in known else 0)
    if inputs.has("budget") and not inputs.has("price"):
        _check_missing(inputs, known)
    return hardware, market


def _read_solved(inputs: Inputs, known: dict[str, Term], hardware: Hardware) -> SolvedMachine | None:
    """Solve for the GPUs if a layout has a deadline and no number of GPUs; the GPUs replace the time in `known`. Take
    the fewest it fits on if fine-tuning has a budget only."""
    if "gpus" not in known and not {"tokens", "time"} & set(known) and any(name in inputs for name in TUNED):
        from napkin.commands.train_time.fewest import read_smallest

        known["gpus"] = read_smallest(inputs, hardware)
    if "gpus" in known or not {"tokens", "time"} <= set(known):
        return None
    from napkin.commands.train_time.fewest import read_fewest

    solved = read_fewest(inputs, known, hardware)
    known["gpus"] = solved.gpus
    del known["time"]
    return solved


def _read_goodput(
    inputs: Inputs, known: Mapping[str, Term], confidence: float | None, step: StepQuestion | None, measured: bool
) -> Goodput:
    """Return the goodput: predicted from failures if the speed of a step is predicted or measured."""
    trained = None if step is None else (step.model, step.setup)
    timed = measured or step is not None
    goodput = read_goodput(inputs, of_mfu=confidence is None and not measured, of_runs=not timed, trained=trained)
    return goodput.on(known["gpus"]) if timed and "gpus" in known else goodput


def _judged(known: dict[str, Term], budget: Term | None, laid_out: bool) -> dict[str, Term]:
    """Remove and return the limits that are not needed to solve the run; the run is judged against them."""
    judged = {}
    for name in time.limits({"mfu": six(), **known} if laid_out else known, budget is not None):
        limit = known.pop(name, budget)
        if limit is not None:
            judged[name] = limit
    return judged


def _note_unread(inputs: Inputs, known: Mapping[str, Term], hardware: Hardware) -> None:
    """Record why options that this question does not read have no effect."""
    if "mfu" in known:
        given = "--mfu" if inputs.has("mfu") else "the measured rate"
        inputs.because(("confidence", *LAYOUT), f"{given} is given, and nothing is estimated", f"leave out {given}")
    elif "gpus" not in known:
        inputs.because(LAYOUT, "without --gpus there is no layout to estimate the MFU of", "add --gpus, or --within")
    else:
        inputs.because(("confidence", *LAYOUT), "the MFU is solved for, and nothing is estimated")
    powered = hardware.tdp_w is not None or inputs.peek("power") == "measured"
    counted_by_power = ("power-overhead", "pue", "carbon-intensity", "region")
    inputs.depends(counted_by_power, powered, f"no TDP of {hardware.name} is known, so energy is omitted", "--tdp")


def _read_draw(inputs: Inputs, hardware: Hardware) -> Term | None:
    """Return the measured power of an accelerator in training, if requested; None for its TDP."""
    if inputs.text_or_none("power") != "measured":
        return None
    from napkin.evidence.figures.power import drawn

    if "power-overhead" in inputs:
        raise NapkinError("--power measured has the host's share in it", "leave out --power-overhead")
    return drawn(hardware.slug, hardware.name)


def _read_intensity(inputs: Inputs) -> Term:
    """Return the CO2 per kWh: of a region's grid, or as given."""
    region = inputs.text_or_none("region")
    if region is None:
        return inputs.term("carbon-intensity")
    from napkin.evidence.figures.power import intensity

    if "carbon-intensity" in inputs:
        raise NapkinError("--region and --carbon-intensity cannot be combined", "both say the CO2 of a kWh")
    return intensity(region)


def _check_missing(inputs: Inputs, known: Mapping[str, Term]) -> None:
    """Raise an error if there is no accelerator, or a budget without a known price; name what else is missing. The MFU
    can be estimated."""
    more = []
    if inputs.has("hardware") and inputs.has("budget") and not inputs.has("price"):
        from napkin.commands.question.price import no_price

        more.append(no_price())
    try:
        _check_enough(inputs, known)
    except NapkinError as problem:
        more.append(problem)
    inputs.need_all({"hardware": WHICH}, more)


def _check_enough(inputs: Inputs, known: Mapping[str, Term]) -> None:
    """Raise an error if too much is missing, with examples of a complete question. The MFU can be estimated."""
    usual = {**time.EXAMPLE, **(ONE_CARD if any(name in inputs for name in TUNED) else {})}
    time.unknowns({"mfu": six(), **known}, inputs.has("budget"), usual)


def _check_asked(inputs: Inputs, known: Mapping[str, Term]) -> None:
    """Reject --min or --max for a quantity that is given. A quantity that is left out is answered with or without
    them."""
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


def _read_amount(inputs: Inputs, known: dict[str, Term]) -> tuple[Term, ...]:
    """Add the tokens if steps or samples determine them; return the description of the samples."""
    if not any(name in inputs for name in AMOUNT):
        return ()
    from napkin.commands.question.amount import read_amount
    from napkin.commands.question.model import read_model, read_sequence

    if not inputs.has("model"):
        known["tokens"] = read_amount(inputs, None).tokens
        return ()
    model = read_model(inputs)

    def of_layout() -> int:
        from napkin.commands.question.layout import read_layout
        from napkin.options.training import SETUP_DEFAULTS

        inputs.defaults(SETUP_DEFAULTS)
        return int(read_layout(inputs, model).global_batch)

    laid_out = inputs.has("gpus") and not inputs.has("mfu")
    found = read_amount(inputs, read_sequence(inputs, model), of_layout if laid_out else None)
    known["tokens"] = found.tokens
    return found.more


def _read_known(inputs: Inputs) -> tuple[dict[str, Term], tuple[Term, float] | None, str, tuple[Term, ...]]:
    """Return the given values among params, tokens, gpus, mfu and time; a model's counted FLOPs per token with the
    convention's excess, and its name; and the description of the samples."""
    if "model" in inputs:
        from napkin.commands.question.size import read_size

        read_size(inputs, OF_MODEL)
    if any(name in inputs for name in MACHINE_SIZE[1:]):
        from napkin.commands.question.machine import read_gpus

        read_gpus(inputs, alone=False)
    known = {}
    for name in ("params", "tokens", "gpus", "mfu"):
        if inputs.has(name):
            known[name] = inputs.term(name)
    if inputs.has("within"):
        known["time"] = inputs.term("within", "time")
    if inputs.has("model"):
        counts, name = _read_model(inputs, known)
        more = _read_amount(inputs, known)
        return known, counts, name, more
    if any(name in inputs for name in AMOUNT):
        _read_amount(inputs, known)
    size = f"MODEL {inputs.shown['params'].text}" if inputs.has("params") else "name a model"
    inputs.because(OF_MODEL, "it belongs to a MODEL", f"{size} instead of --params")
    active = inputs.integer_or_none("active-params")
    if active is not None:
        if "params" in known and active > known["params"].value:
            raise NapkinError("--active-params is above --params", "active parameters are part of all parameters")
        known["per_token"] = six_n(inputs.term("active-params"))
    return known, None, "", ()


def _read_model(inputs: Inputs, known: dict[str, Term]) -> tuple[tuple[Term, float], str]:
    """Add a model's parameters and FLOPs per token to the known values; return its counted FLOPs per token, with the
    convention's excess, and its name."""
    for name in ("params", "active-params"):
        if inputs.has(name):
            raise NapkinError(f"MODEL and --{name} cannot be combined", "the model has its own count")
    from napkin.commands.question.model import read_model, read_per_token
    from napkin.counting.conventions import excess
    from napkin.counting.params import params

    model = read_model(inputs)
    named, counted, allowed = read_per_token(inputs, model)
    known["params"] = params(model)["params/total"].renamed("params")
    known["per_token"] = named
    return (counted, excess(named, allowed)), model.name


def _read_estimate(
    inputs: Inputs, known: Mapping[str, Term], hardware: Hardware, budget: Term | None
) -> tuple[float | None, StepQuestion | None]:
    """Return the confidence level of an estimated MFU, None if it is given or solved for, and the step that gives it if
    a model has a layout."""
    if "mfu" in known:
        return None, None
    from napkin.evidence.predictions.run_estimate import is_wanted

    if not is_wanted(known, budget is not None):
        return None, None
    from napkin.commands.question.confidence import read_confidence
    from napkin.evidence.rates.machines import generation_note

    if note := generation_note(hardware):
        inputs.note(note)
    confidence = read_confidence(inputs)
    if not inputs.has("model") or "gpus" not in known or not any(name in inputs for name in PREDICTS):
        return confidence, None
    from napkin.commands.question.amount import read_padded_lengths
    from napkin.commands.question.model import read_model
    from napkin.commands.question.step_model import read_over_padded, read_step
    from napkin.commands.question.usual_stack import read_whose_model
    from napkin.options.training import SETUP_DEFAULTS

    check_dtype(inputs)
    inputs.defaults(SETUP_DEFAULTS)
    step = read_step(inputs, read_model(inputs))
    padded = read_padded_lengths(inputs, step.setup)
    step = step if padded is None else read_over_padded(inputs, step, *padded)
    read_whose_model(inputs, step.setup, step.prediction.stack.name)
    if step.setup.layout.images and any(name in inputs for name in SAMPLES):
        inputs.assume("--images of a sequence of --seq tokens")
    return confidence, step
