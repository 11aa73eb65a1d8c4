"""A meter for training loops: tokens per second, MFU, time left, and how far a step is from its prediction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import index

from napkin.errors import NapkinError, escaped
from napkin.integrations.forecast import Forecast, Forecaster
from napkin.integrations.step_clock import StepClock
from napkin.record import record
from napkin.units import Unreadable, human, positive_count

WARM_UP, WINDOW = 5, 20
"""Steps that are not timed at first, and over how many the last ones are averaged."""
LARGEST_WINDOW = 10**6
"""Largest number of steps to average."""

LOGGED = (
    "tokens_per_second", "tokens_per_second_per_gpu", "mfu", "hfu", "step_seconds", "predicted", "deviation",
    "seconds_left",
)  # fmt: skip
"""Numbers of a reading for a logger; the logger knows the step."""


@record
class MeterReading:
    """The meter's reading after a step. Rates are averages of the last steps (the window); None during warm-up.

    step, tokens      of the run so far, all GPUs together
    step_seconds      the mean of the window       tokens_per_second, tokens_per_second_per_gpu
    mfu, hfu          by the named convention      convention   palm, 6nd, …
    predicted         seconds of the predicted step, low and high the ends of its interval
    deviation         step_seconds over predicted; None if the step is not the predicted one, and `why` says so
    seconds_left      until the total, at the run's speed so far with its pauses
    """

    step: int
    tokens: int
    step_seconds: float | None
    tokens_per_second: float | None
    tokens_per_second_per_gpu: float | None
    convention: str
    mfu: float | None
    hfu: float | None
    predicted: float | None
    low: float | None
    high: float | None
    deviation: float | None
    why: str
    seconds_left: float | None

    @property
    def is_expected(self) -> bool | None:
        """Return whether the step is within the prediction's interval; None if they are not compared."""
        if self.deviation is None or self.low is None or self.high is None or self.step_seconds is None:
            return None
        return self.low <= self.step_seconds <= self.high

    def to_dict(self) -> dict[str, float]:
        """Return the numbers that are known, by name, for a logger."""
        numbers = {name: getattr(self, name) for name in LOGGED}
        return {name: float(value) for name, value in numbers.items() if value is not None}

    def __str__(self) -> str:
        if self.step_seconds is None or self.tokens_per_second is None:
            return f"step {self.step:,}: warming up"
        parts = [f"step {self.step:,}: {self.tokens_per_second:,.0f} tokens/s"]
        if self.mfu is not None:
            again = f", HFU {self.hfu:.3g}" if self.hfu is not None and self.hfu != self.mfu else ""
            parts.append(f"MFU {self.mfu:.3g} ({self.convention}){again}")
        parts.append(f"{human(self.step_seconds, 'second')} a step")
        if self.deviation is not None:
            parts[-1] += f", {self.deviation:.2f} × the prediction"
        if self.seconds_left is not None:
            parts.append(f"{human(self.seconds_left, 'second')} left")
        return "   ".join(parts)


@record
class Explanation:
    """How a measured step compares with the predicted one.

    term      path of the part of the prediction that most likely explains the difference: the part that a cause
              changes whose own prediction meets the measured step, else the part that would have to change least; None
              if the difference is within the interval
    is_known  whether there is such a cause     share   the term's share of the predicted step
    needed    path → how many times as long as predicted this part would take, if it alone made the difference
    says      all that in sentences
    """

    term: str | None
    is_known: bool
    share: float | None
    needed: dict[str, float]
    says: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.says)


class Meter:
    """Compares a training loop with napkin's prediction for it. One per process; rank 0's is enough.

        meter = napkin.Meter("llama3-8b", hardware="h100", gpus=8, zero=3, seq=8192, total_tokens="15T")
        for batch in loader:
            ...  # forward, backward, optimizer
            reading = meter.step(tokens=batch.numel() * world_size)

    model         as of napkin.step: a preset, a config; None with params="7B", which is measured and not predicted
    gpus          of the whole job              convention   whose MFU: palm, 6nd, megatron, …; None: mfu's default
    total_steps, total_tokens   of the whole run: one of them gives the time left
    warm_up       steps that are not timed      window       steps that a reading averages
    predict       False: measure only           clock        seconds, from any start
    options       those of `napkin step`: seq, tp, pp, zero, micro_batch, grad_accum, recompute, precision, from_, …
    """

    def __init__(
        self,
        model: object = None,
        *,
        hardware: str,
        gpus: int = 1,
        convention: str | None = None,
        total_steps: int | None = None,
        total_tokens: int | float | str | None = None,
        warm_up: int = WARM_UP,
        window: int = WINDOW,
        predict: bool = True,
        clock: Callable[[], float] = time.perf_counter,
        **options: object,
    ) -> None:
        if not callable(clock):
            raise NapkinError(f"clock: {type(clock).__name__} cannot be called", "clock=time.perf_counter")
        if total_steps is not None and total_tokens is not None:
            raise NapkinError("total_steps and total_tokens cannot be combined", "give the one that ends the run")
        self.gpus = _whole("gpus", gpus, 1)
        self.last: MeterReading | None = None
        self._total_steps = None if total_steps is None else _whole("total_steps", total_steps, 1)
        self._total_tokens = None if total_tokens is None else _tokens(total_tokens)
        self._pace = StepClock(clock, _whole("warm_up", warm_up), _whole("window", window, 1, LARGEST_WINDOW))
        self._forecaster = Forecaster(model, hardware, self.gpus, convention, predict, options)
        self._added = self._steps_before = self._tokens_before = 0

    def start(self) -> None:
        """Begin the first step now; without it, the first call of `step` does, and that step is not timed."""
        self._pace.start()

    def prepare(self) -> None:
        """Ask for the prediction of the step that the options describe, which the first reading would ask for."""
        self._forecaster.prepare()

    def resume_from(self, steps: int = 0, tokens: int = 0) -> None:
        """Say what the run had done before this process: for the time left, and in the numbers of a reading."""
        self._steps_before, self._tokens_before = _whole("steps", steps), _whole("tokens", tokens)

    def add(self, tokens: int) -> None:
        """Count the tokens of a micro-batch, all GPUs together: of a step that accumulates gradients."""
        self._added += _whole("tokens", tokens)

    def step(self, tokens: int | None = None) -> MeterReading:
        """End an optimizer step and return the reading. tokens: that all GPUs together processed in it, padding
        included, in addition to those that were added."""
        if tokens is None and not self._added:
            raise NapkinError("step() needs the tokens of the step", "meter.step(tokens=batch.numel() * world_size)")
        self._pace.step(_whole("tokens", 0 if tokens is None else tokens) + self._added)
        self._added = 0
        with self.pause():  # what reading the meter takes is not part of the next step
            self.last = self._read()
        return self.last

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Leave out what is not training: evaluation, a checkpoint. The time left counts it."""
        self.begin_pause()
        try:
            yield
        finally:
            self.end_pause()

    def begin_pause(self) -> None:
        """Begin a pause, if a loop cannot use `with meter.pause()`."""
        self._pace.pause()

    def end_pause(self) -> None:
        """End the pause."""
        self._pace.resume()

    @property
    def is_paused(self) -> bool:
        """Whether a pause has begun and not ended."""
        return self._pace.is_paused

    def _read(self) -> MeterReading:
        pace = self._pace
        steps, tokens = pace.steps + self._steps_before, pace.tokens + self._tokens_before
        each = pace.tokens_per_step
        forecast = self._forecaster.of(pace.tokens / pace.steps if each is None else each)
        seconds, rate = pace.seconds, pace.tokens_per_second
        per_gpu = None if rate is None else rate / self.gpus
        same = each is not None and forecast.is_of(each)
        compared = seconds is not None and forecast.seconds is not None and same
        return MeterReading(
            step=steps,
            tokens=tokens,
            step_seconds=seconds,
            tokens_per_second=rate,
            tokens_per_second_per_gpu=per_gpu,
            convention=forecast.convention,
            mfu=None if per_gpu is None else per_gpu * forecast.mfu_of_rate,
            hfu=None if per_gpu is None else per_gpu * forecast.hfu_of_rate,
            predicted=forecast.seconds,
            low=forecast.low,
            high=forecast.high,
            deviation=seconds / forecast.seconds if compared and seconds and forecast.seconds else None,
            why="" if compared else _why(forecast, each),
            seconds_left=pace.left(
                None if self._total_steps is None else self._total_steps - self._steps_before,
                None if self._total_tokens is None else self._total_tokens - self._tokens_before,
            ),
        )

    def explain(self) -> Explanation:
        """Return how the last reading compares with the prediction, and what would explain the difference."""
        reading = self.last
        if reading is None or reading.deviation is None or reading.step_seconds is None:
            return Explanation(
                None, False, None, {}, ("warming up" if reading is None or not reading.why else reading.why,)
            )
        forecast = self._forecaster.of(self._pace.tokens_per_step or 0)
        return _explained(reading, forecast, self._forecaster)


def _explained(reading: MeterReading, forecast: Forecast, forecaster: Forecaster) -> Explanation:
    """Return what would explain a difference: what mfu says of it, and what each part would have to become."""
    seconds, predicted = reading.step_seconds or 0.0, forecast.seconds or 0.0
    excess = seconds - predicted
    interval = f"90%: {human(forecast.low or predicted, 'second')} to {human(forecast.high or predicted, 'second')}"
    says = [
        f"{human(seconds, 'second')} a step, {seconds / predicted:.2f} × the predicted "
        f"{human(predicted, 'second')} ({interval})"
    ]
    if reading.is_expected:
        return Explanation(None, False, None, {}, (*says, "that is within the usual error of such predictions"))
    needed = {path: 1 + excess / part for path, part in forecast.parts.items() if part > 0 and part + excess > 0}
    causes = forecaster.causes(forecast, seconds)
    known = next((term for term, _ in causes if term is not None), None)
    says += [said for _, said in causes]
    ranked = sorted(needed, key=lambda path: abs(needed[path] - 1))
    if ranked:
        listed = ", ".join(
            f"{_name(path)} ({forecast.parts[path] / predicted:.0%} of the prediction) {needed[path]:.3g} ×"
            for path in ranked[:4]
        )
        says.append(f"if one part alone made the difference, it would take: {listed}")
    term = known or (ranked[0] if ranked else None)
    share = None if term is None else forecast.parts.get(term, 0.0) / predicted
    return Explanation(term, known is not None, share, needed, tuple(says))


def _name(path: str) -> str:
    return path.rpartition("/")[2].replace("_", " ")


def _why(forecast: Forecast, tokens: float | None) -> str:
    """Return why a step is not compared with a prediction."""
    if tokens is None:
        return "warming up"
    if forecast.tokens is None:
        return "no step is predicted"
    return f"a step of {forecast.tokens:,} tokens is predicted, and {tokens:,.0f} were processed"


def _whole(name: str, value: object, least: int = 0, most: int = 10**18) -> int:
    """Return a whole number from `least` to `most`; NapkinError (2) for what is none."""
    try:
        found = least - 1 if isinstance(value, bool) else index(value)  # type: ignore[arg-type]
    except Exception:  # a value's own methods may raise anything
        found = least - 1
    if not least <= found <= most:
        said = repr(value[:60]) if isinstance(value, str) else type(value).__name__
        if type(value) is float or (type(value) is int and abs(value) <= most):
            said = str(value)
        raise NapkinError(f"{name}: {escaped(said)} is not a whole number from {least} to {most:.0e}", "give one")
    return found


def _tokens(total: int | float | str) -> int:
    """Read the tokens of a run as `--tokens` does."""
    try:
        number = total if isinstance(total, (str, float)) else _whole("total_tokens", total, 1)
        return positive_count(number if isinstance(number, str) else repr(number))
    except Unreadable as problem:
        raise NapkinError(f"total_tokens: {problem.reason}", problem.hint) from None
