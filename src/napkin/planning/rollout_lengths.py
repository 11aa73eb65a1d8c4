"""The lengths and numbers of the prompts and responses of a step of reinforcement learning."""

from __future__ import annotations

import math

from napkin.record import record


@record
class LengthSpread:
    """The lengths of responses that end after any token with the same probability, or at their limit.

    longest   limit R          ended   x = R / τ, where a share exp(−t / τ) of responses is longer than t tokens

    Their mean is τ · (1 − exp(−x)), from R (x = 0) down.
    """

    longest: int
    ended: float

    def after(self, start: float) -> float:
        """Return the share of all tokens of responses that come after token `start` of theirs."""
        return self._tokens(start) / self._tokens(0.0)

    def position(self, start: float = 0.0) -> float:
        """Return the mean place of those tokens in their response."""
        if not self.ended:
            return (start + self.longest) / 2
        scale, end = self.longest / self.ended, math.exp(-self.ended)
        first = math.exp(-start / scale)
        return scale + (start * first - self.longest * end) / (first - end) if first > end else float(start)

    def _tokens(self, start: float) -> float:
        """Return the tokens after `start` of one response, in the mean."""
        if not self.ended:
            return max(self.longest - start, 0.0)
        return max(math.exp(-start * self.ended / self.longest) - math.exp(-self.ended), 0.0)


def spread_of(mean: int, longest: int) -> LengthSpread:
    """Return the spread of responses with this mean and limit, from mean / limit = (1 − exp(−x)) / x."""
    if mean >= longest:
        return LengthSpread(longest, 0.0)
    low, high = 0.0, longest / mean
    for _ in range(60):
        x = (low + high) / 2
        low, high = (x, high) if (1 - math.exp(-x)) / x > mean / longest else (low, x)
    return LengthSpread(longest, high)


@record
class RolloutLengths:
    """Lengths and numbers of the prompts and responses of a step.

    prompt, response         mean tokens        longest_prompt, longest    of the longest ones (0: the mean prompt)
    reached   tokens of the longest response that a step is expected to have, 0: the limit `longest`
    answers   responses per prompt              prompts   prompts per step
    updates   optimizer steps per step, each on a part of the responses
    behind    steps by which responses may be older than the weights; 0: generation and training alternate
    joined    whether responses of such a later step are started next to the last ones of the step before
    streamed  whether they are trained on as they end, while the engine is kept full: no step waits for its longest one
    lent      share of them that must be there before the trainer starts, until when it lends its GPUs
    dispatch  tokens/s at which the library's driver sends the sequences of a pass to the workers, 0 if unknown
    padded    whether it sends them padded to the longest prompt and response
    generated share of steps whose responses are generated; the others have those of the data
    """

    prompt: int
    response: int
    longest: int
    answers: int
    prompts: int
    longest_prompt: int = 0
    reached: int = 0
    updates: int = 1
    behind: int = 0
    joined: bool = False
    streamed: bool = False
    lent: float = 0.0
    dispatch: float = 0.0
    padded: bool = False
    generated: float = 1.0

    @property
    def mean(self) -> int:
        """Tokens of a sequence."""
        return self.prompt + self.response

    @property
    def last(self) -> int:
        """Tokens of the response that a step waits for."""
        return max(self.reached or self.longest, self.response)

    @property
    def spread(self) -> LengthSpread:
        """How the lengths of responses differ."""
        return spread_of(self.response, self.last)

    @property
    def uneven(self) -> float:
        """Mean square of the lengths of sequences over the square of their mean, for prompts of one length p: (p² + 2pr
        + E[r²])/(p + r)², where the mean place E[r²]/(2r) of the tokens of responses gives E[r²]."""
        of_responses = 2 * self.response * self.spread.position()
        return (self.prompt**2 + 2 * self.prompt * self.response + of_responses) / self.mean**2

    @property
    def most(self) -> int:
        """Tokens of the longest sequence."""
        return max(self.longest_prompt, self.prompt) + self.longest

    @property
    def each(self) -> int:
        """Prompts of one optimizer step."""
        return self.prompts // self.updates

    @property
    def batch(self) -> int:
        """Sequences of one optimizer step."""
        return self.each * self.answers

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.prompts * self.answers * self.mean

    @property
    def dispatched(self) -> int:
        """Tokens that the driver sends to the workers for a pass."""
        return self.prompts * self.answers * self.most if self.padded else self.tokens


DEVIATION, LARGEST = 0.6, 3
"""assumed: standard deviation of lengths relative to their mean, and the number of them by which the largest
micro-batch of a step exceeds the mean."""


def held_by_micro_batch(lengths: RolloutLengths, micro: int) -> int:
    """Return the tokens of each of the `micro` sequences of the largest micro-batch, without padding: one has the
    maximum length, the others the mean length of the largest micro-batch."""
    others = micro - 1
    if not others:
        return lengths.most
    each = min(lengths.mean * (1 + LARGEST * DEVIATION / math.sqrt(others)), lengths.most)
    return math.ceil((lengths.most + others * each) / micro)
