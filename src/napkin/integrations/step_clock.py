"""How long steps take: the time between calls, less pauses, after warm-up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from napkin.errors import NapkinError


class StepClock:
    """The last steps of a loop, and how the run goes as a whole.

    A step lasts from one call of `step` to the next, without what was paused. The first call ends the first step where
    `start` began it, and begins the second otherwise. The first `warm_up` steps are counted and not timed: compilation,
    the allocator's first blocks, the search for kernels.
    """

    def __init__(self, clock: Callable[[], float], warm_up: int, window: int) -> None:
        self.steps = self.tokens = 0
        self.timed: deque[tuple[float, int]] = deque(maxlen=window)
        self._clock, self._warm_up = clock, warm_up
        self._mark: float | None = None
        self._paused_at: float | None = None
        self._paused = 0.0
        self._since: tuple[float, int, int] | None = None  # when warm-up was over, after this many steps and tokens

    def start(self) -> None:
        """Begin the first step."""
        self._mark = self._clock()
        if not self._warm_up:
            self._since = self._mark, self.steps, self.tokens

    def pause(self) -> None:
        """Stop the clock of the step."""
        if self._paused_at is not None:
            raise NapkinError("the meter is paused already", "leave one pause before the next")
        self._paused_at = self._clock()

    def resume(self) -> None:
        """Go on with the step."""
        if self._paused_at is None:
            raise NapkinError("the meter is not paused", "with meter.pause(): evaluate()")
        if self._mark is not None:
            self._paused += self._clock() - max(self._paused_at, self._mark)
        self._paused_at = None

    @property
    def is_paused(self) -> bool:
        """Whether the clock of the step is stopped."""
        return self._paused_at is not None

    def step(self, tokens: int) -> None:
        """End a step that processed this many tokens."""
        if self.is_paused:
            raise NapkinError("a step ended in a pause of the meter", "call step() outside of meter.pause()")
        now = self._clock()
        self.steps += 1
        self.tokens += tokens
        if self._mark is not None and self.steps > self._warm_up:
            self.timed.append((max(now - self._mark - self._paused, 0.0), tokens))
        if self._since is None and self.steps >= self._warm_up:
            self._since = now, self.steps, self.tokens
        self._mark, self._paused = now, 0.0

    @property
    def seconds(self) -> float | None:
        """Mean seconds of the steps in the window; None while warming up."""
        return sum(seconds for seconds, _ in self.timed) / len(self.timed) if self.timed else None

    @property
    def tokens_per_step(self) -> float | None:
        """Mean tokens of the steps in the window; None while warming up."""
        return sum(tokens for _, tokens in self.timed) / len(self.timed) if self.timed else None

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens over seconds of the window."""
        seconds = self.seconds
        return (self.tokens_per_step or 0) / seconds if seconds else None

    def left(self, steps: int | None, tokens: int | None) -> float | None:
        """Return the seconds until this many steps or tokens, at the speed since warm-up with its pauses; None if
        neither is known or nothing moves."""
        if self._since is None or self._mark is None:
            return None
        began, first_steps, first_tokens = self._since
        total, now, first = (
            (steps, self.steps, first_steps) if steps is not None else (tokens, self.tokens, first_tokens)
        )
        if total is None or now <= first:
            return None
        return max(total - now, 0) * (self._mark - began) / (now - first)
