"""The amount of training: tokens, steps, or samples that are packed or padded."""

from __future__ import annotations

from collections.abc import Callable

from napkin.commands.inputs import Inputs
from napkin.commands.question.tasks import read_task
from napkin.errors import NapkinError
from napkin.inputs.lengths import SampleLengths, read_lengths
from napkin.options.question import AMOUNT, SAMPLES
from napkin.record import record
from napkin.render.figures import to_type
from napkin.term import GIVEN, TRUE, Term, divide, leaf, multiply, subtract
from napkin.term import constant as fixed

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from napkin.training.setup import Setup

COUNTED = ("steps", "samples", "lengths")
"""Options that count how much is trained on; the others say how."""
LONGEST_OF = "padded to the longest of a micro-batch: E[max] over samples drawn at random"


@record
class Amount:
    """The tokens that are processed, padding included, with notes on the real tokens and the share of padding."""

    tokens: Term
    more: tuple[Term, ...] = ()


def read_whether_stated(inputs: Inputs) -> bool:
    """Return whether the amount of training is stated other than by --tokens. The passes over samples of a launch file
    state none where the samples are not counted: they are those of a data set."""
    stated = [name for name in AMOUNT if name in inputs]
    return any(name in COUNTED or not inputs.given[name].shared for name in stated)


def read_amount(inputs: Inputs, seq: int | None, of_layout: Callable[[], int] | None = None) -> Amount:
    """Return the amount of training. seq: tokens of a sequence; None if only --params is given. of_layout: returns the
    sequences of a step, if a layout states them."""
    given = [name for name in AMOUNT if name in inputs]
    if "tokens" in inputs:
        hint = "leave out one of the two"
        if given == ["epochs"]:
            repeated = inputs.integer("tokens") * float(inputs.number("epochs"))
            hint = f"--tokens {to_type(repeated)}: the tokens of all epochs together"
        where = inputs.given[given[0]].where  # as a launch of another tool spells it
        typed = where if where.startswith("--") else f"--{given[0]}"
        raise NapkinError(f"--tokens and {typed} both say how much is trained on", hint)
    if "steps" in inputs:
        found = _read_steps(inputs, _of_a_model("steps", seq), of_layout)
    else:
        found = _read_samples(inputs, seq)
    inputs.record("tokens", int(found.tokens.value), "derived", "token")
    return found


def _of_a_model(option: str, seq: int | None) -> int:
    """Return the tokens of a sequence; refused where no model has any."""
    if seq is None:
        raise NapkinError(f"--{option} needs a MODEL, whose sequences have a length", "or --tokens")
    return seq


def _read_steps(inputs: Inputs, seq: int, of_layout: Callable[[], int] | None) -> Amount:
    """Return the tokens of this many optimizer steps: steps · global batch · sequence."""
    inputs.because(SAMPLES, "--steps says how much is trained on", "leave out one of the two")
    if not inputs.has("global-batch") and of_layout is None:
        raise NapkinError("--steps needs --global-batch: sequences of one step", "for example --global-batch 128")
    batch = leaf("global_batch", of_layout() if of_layout else inputs.integer("global-batch"), "1", GIVEN)
    tokens = leaf("sequence", seq, "token", GIVEN)
    steps = leaf("steps", inputs.integer("steps"), "1", GIVEN)
    return Amount(multiply("tokens", steps, batch, tokens))


def _read_samples(inputs: Inputs, seq: int | None) -> Amount:
    """Return the tokens of all passes over the samples, packed without padding, or each padded to the longest of its
    micro-batch if the lengths are known, else to the sequence, which a bare number of parameters does not have."""
    lengths = read_lengths(inputs.text("lengths")) if inputs.has("lengths") else None
    if lengths is not None:
        lengths = lengths if seq is None else _read_cut(inputs, lengths, seq)
        if "sample-tokens" in inputs:
            raise NapkinError("--lengths and --sample-tokens both say how long samples are", "leave out one of the two")
        inputs.default("samples", str(lengths.samples))
    inputs.need("samples", "how many?")
    if lengths is None and not inputs.has("sample-tokens"):
        raise NapkinError(
            "--samples needs the length of a sample", "--sample-tokens N: their mean; or --lengths FILE: all of them"
        )
    mean = float(lengths.mean if lengths is not None else inputs.number("sample-tokens"))
    if seq is not None and mean > seq:
        raise NapkinError(
            f"--sample-tokens {mean:,.0f}: is longer than a sequence of {seq:,}", "--seq, or the mean of what is kept"
        )
    inputs.default("epochs", "1")
    samples = leaf("samples", inputs.integer("samples"), "1", GIVEN)
    epochs = leaf("epochs", float(inputs.number("epochs")), "1", GIVEN)
    rows = read_task(inputs).rows
    several = [leaf("sequences_of_a_sample", rows, "1", TRUE, read_task(inputs).source)] if rows > 1 else []
    real = multiply(
        "tokens/real",
        samples,
        *several,
        epochs,
        leaf("tokens_of_a_sequence" if rows > 1 else "tokens_of_a_sample", mean, "token", GIVEN),
    )
    if "packing" not in inputs:
        inputs.assume("samples packed without padding")
    inputs.default("packing", True)
    if inputs.flag("packing"):
        return Amount(real.renamed("tokens"))
    if lengths is not None:
        each = leaf("padded_sample", lengths.padded(_read_together(inputs)), "token", TRUE, LONGEST_OF)
    else:
        each = leaf("sequence", _of_a_model("no-packing", seq), "token", GIVEN)
    tokens = multiply("tokens", samples, *several, epochs, each)
    wasted = subtract("padding/share", fixed("1", 1), divide("tokens/real_share", real, tokens))
    return Amount(tokens, (real, wasted))


def _read_together(inputs: Inputs) -> int:
    """Return the sequences that are padded to the longest of them."""
    return (inputs.integer_or_none("micro-batch") or 1) * read_task(inputs).rows


def read_padded_lengths(inputs: Inputs, setup: Setup) -> tuple[int, int] | None:
    """Return the mean tokens of a sequence, padded to the longest of its micro-batch, on all ranks and on the one that
    the others wait for; None where samples are packed, or are all padded to the sequence."""
    if not inputs.has("lengths") or not inputs.has("packing") or inputs.flag("packing"):
        return None
    layout, together = setup.layout, _read_together(inputs)
    lengths = read_lengths(inputs.text("lengths")).cut(int(layout.seq))
    slowest = lengths.of_slowest(together, int(layout.dp), int(setup.between_waits))
    return round(lengths.padded(together)), round(slowest)


def _read_cut(inputs: Inputs, lengths: SampleLengths, seq: int) -> SampleLengths:
    """Return the lengths as training cuts them to the sequence, which is noted."""
    kept = lengths.cut(seq)
    if kept.tokens < lengths.tokens:
        longer = sum(count for length, count in lengths.counts if length > seq)
        share = 1 - kept.tokens / lengths.tokens
        inputs.note(f"{longer:,} samples are longer than {seq:,} tokens and cut: {share:.1%} of all tokens are lost")
    return kept
