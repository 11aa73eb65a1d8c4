"""The tokens that a trainer of reinforcement learning runs for each sequence, where it pads sequences to one length or
its ranks wait for the one that has the most.

Ranks that gather each layer's parameters together (ZeRO-3, FSDP: torch/distributed/fsdp, an all-gather before each
unit) run a micro-batch in the time of the rank with the longest sequences. Micro-batches of as many tokens are even
(verl docs/perf/perf_tuning.rst, use_dynamic_bsz); those of m sequences are not: the mean length of m sequences is off
by 1/√m of what one is, so that the most of d ranks have is

    p + r + (longest of d responses − r)/√m

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

GATHERED = 3
"""ZeRO stage in which ranks gather the parameters of each layer."""
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


def run_tokens(layout: Layout, lengths: RolloutLengths, padded: str, even: bool = False) -> int:
    """Return the tokens of each sequence as the trainer runs it. padded: the sequences that it pads to their longest
    (training/trainer.py), "" if none; even: its micro-batches have as many tokens on every rank. A prompt has its mean
    length, or at the limit the longest."""
    ranks = int(layout.dp) if int(layout.zero) == GATHERED and not even else 1
    if not padded:
        waits = longest_of(lengths.spread, ranks) - longest_of(lengths.spread, 1)
        return lengths.mean + round(waits / math.sqrt(int(layout.micro)))
    if padded == LIMIT:
        return lengths.most
    together = int(layout.micro) * ranks
    if padded != MICRO_BATCH:
        together = max(lengths.prompts * lengths.answers // int(layout.dp), together)
    return lengths.prompt + math.ceil(longest_of(lengths.spread, together))


def as_run(setup: Setup, lengths: RolloutLengths, padded: str, even: bool = False) -> Setup:
    """Return a setup over sequences as the trainer runs them in the mean: padded ones are equally long. even: its
    micro-batches have as many tokens on every rank."""
    found = over(setup, run_tokens(setup.layout, lengths, padded, even))
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
        return as_run(setup, self.lengths, self.trainer.padded, even=bool(self.tokens) and not stated)

    def held(self, setup: Setup, stated: bool) -> Setup:
        """Return a setup over the largest micro-batch of the update."""
        if not stated:
            setup = gathered(setup, self.lengths, self.trainer.micro)
        setup = scored(setup, self.trainer.scores, self.lengths.longest)
        tokens = 0 if stated else self.tokens
        return micro_batches(setup, [self.lengths], self.trainer.unpads, tokens)[0][0]
