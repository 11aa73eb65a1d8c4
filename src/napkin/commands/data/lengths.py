"""`napkin data lengths FILE`: the lengths of tokenized samples, and what packing them saves."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.inputs.lengths import SampleLengths, count_lengths
from napkin.options.command_line import quoted
from napkin.render.answer import Answer
from napkin.render.figures import amount, share
from napkin.render.screen import Screen, quantities
from napkin.term import TRUE, Term, leaf

SHARES = ((0.5, "median"), (0.9, "p90"), (0.99, "p99"))
TOGETHER = (2, 4, 8, 16)
"""Micro-batch sizes for which padding is shown."""


def run(inputs: Inputs) -> Answer:
    """Answer for a file of samples."""
    inputs.need_all({"samples-file": "which file? JSON lines, one sample each"})
    field, path = inputs.text_or_none("tokens-field"), inputs.text("samples-file")
    return answer(path, field, count_lengths(path, field))


def answer(path: str, field: str | None, found: SampleLengths) -> Answer:
    """Answer with the distribution of lengths, and the share of padding."""
    terms: list[Term] = [
        leaf("data/samples", found.samples, "1", TRUE),
        leaf("data/tokens", found.tokens, "token", TRUE),
        leaf("data/length/mean", found.mean, "token", TRUE),
    ]
    terms += [leaf(f"data/length/{name}", found.quantile(part), "token", TRUE) for part, name in SHARES]
    terms.append(leaf("data/length/longest", found.counts[-1][0], "token", TRUE))
    wasted = [(b, 1 - found.mean / found.padded(b)) for b in TOGETHER]
    terms += [leaf(f"data/padding/{b}", lost, "1", TRUE) for b, lost in wasted]
    rows = [("mean", f"{found.mean:,.1f} tokens", "")]
    rows += [(name, f"{found.quantile(part):,} tokens", f"{part:.0%} are no longer") for part, name in SHARES]
    rows.append(("longest", f"{found.counts[-1][0]:,} tokens", ""))
    rows += [(f"padding, {b} at once", share(lost), "of the tokens, padded to the longest") for b, lost in wasted]
    screen = Screen(
        (f"Lengths of the samples of {path}",),
        (f"{found.samples:,} samples", f"{amount(found.tokens)} tokens", f"{found.mean:,.0f} on average"),
        table=quantities(rows),
        next=_next(path, field),
    )
    reply = Answer("data", terms=terms, screen=screen)
    reply.extra["histogram"] = [list(pair) for pair in found.counts]
    return reply


def _next(path: str, field: str | None) -> str:
    """Return two commands: one writes the lengths to a file, the other uses them for a training run."""
    named = f" --tokens-field {quoted(field)}" if field is not None else ""
    kept = f"napkin data lengths {quoted(path)}{named} --json -o lengths.json"
    return f"{kept} && napkin train-time llama3-8b --hardware h100 --gpus 8 --lora-rank 16 --lengths lengths.json"
