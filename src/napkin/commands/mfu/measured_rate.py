"""The measured rate of a training run, from the given figure: tokens/s, step time, TFLOP/s, or a log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from napkin.commands.inputs import Inputs
from napkin.commands.question.layout import read_global_batch
from napkin.commands.question.model import parse_convention
from napkin.counting import measured_rate
from napkin.errors import NapkinError
from napkin.inputs.log import Logged
from napkin.options.question import MEASURED_RATES
from napkin.options.registry import OPTIONS
from napkin.record import record
from napkin.term import ASSUMED, GIVEN, Term, leaf

LOGGED_BY = "megatron"
"""The convention of a logged TFLOP/s, if it can be counted."""
RATED = "for example --tokens-per-second 98000"


@record
class Counted:
    """What converts a rate: FLOPs per token by convention, and the tokens of a sample, if known. basis: the convention
    whose MFU is judged; allowed: FLOPs per token of the pairs of tokens that masks allow; half: of half the square."""

    per_token: Mapping[str, Term]
    seq: int | None
    basis: str = "6nd"
    allowed: Term | None = None
    half: Term | None = None


def read_counted_parameters(inputs: Inputs, per_token: Term) -> Counted:
    """Return what converts the rate of a model of which only the number of parameters is known."""
    seq = inputs.peek("seq")  # only some rates need it
    return Counted({"6nd": per_token}, seq if isinstance(seq, int) else None)


def without_rate() -> NapkinError:
    """Return the error for a question without a measured rate."""
    return NapkinError(f"{_listed(MEASURED_RATES)}: one of these is needed", RATED)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"--{name}" for name in names)


def read_rate(inputs: Inputs, counted: Counted, logged: Logged | None) -> Term:
    """Return tokens/s/GPU from the one figure that was given."""
    given = [name for name in MEASURED_RATES if inputs.has(name)]
    if len(given) > 1:
        raise NapkinError(f"{_listed(given)}: these cannot be combined", RATED)
    if logged is not None:
        return _read_log(inputs, counted, logged)
    return _read_figure(inputs, counted, given[0], inputs.term(given[0]))


def _read_figure(inputs: Inputs, counted: Counted, name: str, figure: Term) -> Term:
    """Return tokens/s/GPU from an option's figure."""
    if name == "tokens-per-second-per-gpu":
        return figure
    if name == "tflops":
        return _read_tflops(inputs, counted, figure)
    hint = f"{OPTIONS['gpus'].usage}, 1 for a single one; --tokens-per-second-per-gpu needs none"
    inputs.need_all({"gpus": f"--{name} is the whole job's"}, usages={"gpus": hint})
    gpus = inputs.term("gpus")
    if name == "tokens-per-second":
        return measured_rate.of_tokens(figure, gpus)
    if counted.seq is None:
        raise NapkinError("--seq is missing: how many tokens is a sequence?", "--seq N, or MODEL in place of --params")
    inputs.depends(("seq",), True)
    seq = leaf("seq", counted.seq, "token", GIVEN if "seq" in inputs else ASSUMED)
    if name == "samples-per-second":
        inputs.assume(f"samples of {counted.seq:,} tokens with padding")
        inputs.note("samples per second times --seq counts padding as tokens: --seq N, their mean length, counts none")
        return measured_rate.of_samples(figure, seq, gpus)
    read_global_batch(inputs)
    each = {"global-batch": f"{OPTIONS['global-batch'].usage}; or --grad-accum N next to --micro-batch"}
    inputs.need_all({"global-batch": "sequences in one optimizer step"}, usages=each if "micro-batch" in inputs else {})
    return measured_rate.of_step(figure, inputs.term("global-batch"), seq, gpus)


def _read_tflops(inputs: Inputs, counted: Counted, figure: Term) -> Term:
    """Return tokens/s/GPU from a logged TFLOP/s, in the convention of whoever logged it."""
    default = LOGGED_BY if LOGGED_BY in counted.per_token else "6nd"
    given = inputs.text("flops") if "flops" in inputs else None
    name = known_convention(given, counted) if given is not None else default
    if given is None:
        inputs.note(f"the logged TFLOP/s is read in the {name} convention; --flops names another")
        inputs.assume(f"TFLOP/s by the {name} convention")
    return measured_rate.of_flops(figure, counted.per_token[name])


def known_convention(name: str, counted: Counted) -> str:
    """Return a convention by its name; one that needs a model is refused without one."""
    word = parse_convention(name)
    if word not in counted.per_token:
        raise NapkinError(f"--flops {word} needs a model", "give a MODEL instead of --params")
    return word


_OF_LOG = (
    ("tokens_per_second_per_gpu", "tokens-per-second-per-gpu", "token/s/GPU"),
    ("tokens_per_second", "tokens-per-second", "token/s"),
    ("samples_per_second", "samples-per-second", "1/s"),
    ("step_seconds", "step-time", "second"),
    ("flops_per_second_per_gpu", "tflops", "FLOP/s/GPU"),
)
"""Quantity of a log → its option and unit; the most direct first."""
_NEEDS = {"tokens_per_second": ("gpus",), "samples_per_second": ("gpus",), "step_seconds": ("gpus", "global-batch")}
"""Quantity of a log → options needed to convert it to a rate per GPU."""
INSTEAD = {"global-batch": "grad-accum"}
"""Option → another option from which it follows."""


def _read_log(inputs: Inputs, counted: Counted, logged: Logged) -> Term:
    """Return tokens/s/GPU from the log's most direct figure that the other options make usable."""
    found = dict(logged.quantities)
    if "global_batch" in found and not inputs.has("global-batch"):
        inputs.default("global-batch", str(int(found["global_batch"])))
    if "steps_per_second" in found and "step_seconds" not in found:
        found["step_seconds"] = 1 / found["steps_per_second"]
    lacking: list[str] = []
    for quantity, option, unit in _OF_LOG:
        if quantity not in found:
            continue
        missing = [name for name in _NEEDS.get(quantity, ()) if not inputs.has(name)]
        missing = [name for name in missing if not inputs.has(INSTEAD.get(name, name))]
        if missing:
            lacking += missing
            continue
        inputs.note(f"from the log: {logged.words.get(quantity, quantity)}")
        if option == "tflops":
            return _read_tflops(inputs, counted, leaf(option, found[quantity] / measured_rate.TERA, "1"))
        return _read_figure(inputs, counted, option, leaf(option.replace("-", "_"), found[quantity], unit))
    if lacking:
        raise NapkinError(
            f"--log: what the line says needs {' and '.join(f'--{name}' for name in dict.fromkeys(lacking))}",
            "add it: the line does not say it",
        )
    raise NapkinError("--log: the line says only an MFU, no rate", "give it as --claimed-mfu, together with a rate")
