"""The tokens that a trainer of reinforcement learning runs for each sequence, where it pads sequences to one length.

Symbols: n responses that are padded together, of which a share exp(−x·t/R) is longer than t tokens and none longer than
the limit R (LengthSpread). The expected longest of them is the integral of 1 − (1 − exp(−x·t/R))ⁿ over t from 0 to R:

    longest = R/x · Σ vᵏ/k  over k = 1 … n,  with v = 1 − exp(−x)

which is the mean for one response, and the limit for many."""

from __future__ import annotations

import math

from napkin.planning.rollout_lengths import LengthSpread, RolloutLengths
from napkin.planning.rollouts import gathered, micro_batches, over, packed, scored
from napkin.record import record, replace
from napkin.training.layout import Layout
from napkin.training.setup import Setup
from napkin.training.trainer import LIMIT, MICRO_BATCH, Trainer

LEAST = 1e-9
"""Terms of the sum below this share are left out."""


def longest_of(spread: LengthSpread, count: int) -> float:
    """Return the expected tokens of the longest of `count` responses."""
    if not spread.ended:
        return float(spread.longest)
    found, power, ratio = 0.0, 1.0, 1 - math.exp(-spread.ended)
    for k in range(1, count + 1):
        power *= ratio
        found += power / k
        if power < LEAST:
            break
    return spread.longest / spread.ended * found


def run_tokens(layout: Layout, lengths: RolloutLengths, padded: str) -> int:
    """Return the tokens of each sequence as the trainer runs it. padded: the sequences that it pads to their longest
    (training/trainer.py), "" if none. A prompt has its mean length, or at the limit the longest."""
    if not padded:
        return lengths.mean
    if padded == LIMIT:
        return lengths.most
    together = int(layout.micro)
    if padded != MICRO_BATCH:
        together = max(lengths.prompts * lengths.answers // int(layout.dp), together)
    return lengths.prompt + math.ceil(longest_of(lengths.spread, together))


def as_run(setup: Setup, lengths: RolloutLengths, padded: str) -> Setup:
    """Return a setup over sequences as the trainer runs them in the mean: padded ones are equally long."""
    found = over(setup, run_tokens(setup.layout, lengths, padded))
    return found if padded else replace(found, layout=found.layout.replaced(uneven=lengths.uneven))


@record
class TrainerPasses:
    """What the micro-batches of a trainer hold, if a setup is read over the longest sequences.

    lengths  with the likely means        tokens  of a micro-batch, 0 where it holds sequences
    kept     share of a GPU's memory that an engine keeps meanwhile
    """

    lengths: RolloutLengths
    trainer: Trainer
    tokens: int = 0
    kept: float = 0.0

    def timed(self, setup: Setup, stated: bool) -> Setup:
        """Return a setup over sequences of the mean length. stated: its micro-batch is given, not the library's."""
        if not stated:
            setup = gathered(setup, self.lengths, self.trainer.micro)
            setup = packed(setup, self.lengths, self.tokens) if self.tokens else setup
        return as_run(setup, self.lengths, self.trainer.padded)

    def held(self, setup: Setup, stated: bool) -> Setup:
        """Return a setup over the largest micro-batch of the update."""
        if not stated:
            setup = gathered(setup, self.lengths, self.trainer.micro)
        setup = scored(setup, self.trainer.scores, self.lengths.longest)
        tokens = 0 if stated else self.tokens
        return micro_batches(setup, [self.lengths], self.trainer.unpads, tokens)[0][0]
