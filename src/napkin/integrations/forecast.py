"""napkin's prediction for a training loop, from the commands `step` and `mfu`."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.api import ask
from napkin.api.result import Result
from napkin.errors import NapkinError
from napkin.options.registry import OPTIONS
from napkin.record import record

SAME = 0.01
"""Share by which the tokens of a step may differ from those of the predicted one."""
KEPT = 8
"""Predictions that are cached: one for each number of micro-batches in a step."""
BATCH = ("global-batch", "grad-accum")


@record
class Forecast:
    """The prediction of one step.

    tokens              that it processes; None, as the seconds are, if no step is predicted
    seconds, low, high  how long it takes, with its interval      parts  path → seconds of the parts of it
    mfu_of_rate, hfu_of_rate    utilization by `convention` of one token/s/GPU     question  the options that ask it
    """

    tokens: int | None
    seconds: float | None
    low: float | None
    high: float | None
    parts: Mapping[str, float]
    mfu_of_rate: float
    hfu_of_rate: float
    convention: str
    question: Mapping[str, object]

    def is_of(self, tokens: float) -> bool:
        """Return whether the predicted step processes this many tokens."""
        return self.tokens is not None and abs(tokens / self.tokens - 1) <= SAME


class Forecaster:
    """Forecasts of one job, by the number of micro-batches in a step. Raises NapkinError if the job is not one that
    napkin can answer for."""

    def __init__(
        self,
        model: object,
        hardware: str,
        gpus: int,
        convention: str | None,
        predict: bool,
        options: Mapping[str, object],
    ) -> None:
        self._arguments = () if model is None else (model,)
        self._options: dict[str, object] = {**options, "hardware": hardware, "gpus": gpus}
        self._convention = convention
        self._known: dict[int, Forecast] = {}
        self._predicts = predict and (model is not None or "from_" in options)
        self._has_batch = not self._predicts
        self._tokens_each = 0
        if self._predicts:
            self._settle(self._step({}))

    def _settle(self, first: Result) -> None:
        """Turn launch files into options, so that they are read once; record whether the batch is stated."""
        if self._options.pop("from_", None) is not None:
            for name, one in first.inputs.items():
                if one.origin == "from file" and name == "model":
                    self._arguments = self._arguments or (one.text,)
                elif one.origin == "from file":
                    self._options[OPTIONS[name].key] = one.value if one.text is None else one.text
        self._has_batch = any(first.inputs[name].origin != "default" for name in BATCH)
        self._tokens_each = _count(first, "global-batch") * _count(first, "seq")

    def of(self, tokens: float) -> Forecast:
        """Return the forecast of a step of this many tokens."""
        times = 1 if self._has_batch else max(round(tokens / self._tokens_each), 1)
        if times not in self._known:
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[times] = self._made(times)
        return self._known[times]

    def prepare(self) -> None:
        """Make the forecast of the step that the options describe."""
        self.of(self._tokens_each)

    def _batch(self, times: int) -> dict[str, object]:
        return {} if self._has_batch else {"grad_accum": times}

    def _step(self, batch: Mapping[str, object]) -> Result:
        try:
            return ask("step", self._arguments, {**self._options, **batch})
        except NapkinError as problem:
            hint = f"{problem.hint or problem.message}; predict=False measures without a prediction"
            raise NapkinError(problem.message, hint, problem.status) from None

    def _made(self, times: int) -> Forecast:
        """Return the forecast of a step of this many micro-batches."""
        if not self._predicts:
            rate = {"tokens_per_second_per_gpu": 1}
            used = ask("mfu", self._arguments, {**self._options, **self._flops(), **rate})
            return _forecast(used, self._options, None)
        step = self._step(self._batch(times))
        question = {**self._options, **self._batch(times), **self._flops()}
        question.setdefault("micro_batch", step.inputs["micro-batch"].value)
        used = ask("mfu", self._arguments, {**question, "step_time": f"{float(step['step/time'])!r}s"})
        return _forecast(used, question, step)

    def _flops(self) -> dict[str, object]:
        return {} if self._convention is None else {"flops": self._convention}

    def causes(self, forecast: Forecast, seconds: float) -> list[tuple[str | None, str]]:
        """Return each part of the step that could explain these seconds by itself, as (path of the part, sentence)."""
        found = ask("mfu", self._arguments, {**forecast.question, "step_time": f"{seconds!r}s"}).extra.get("causes")
        rows = found if isinstance(found, list) else []
        return [(row["term"], row["says"]) for row in rows]


def _forecast(used: Result, question: Mapping[str, object], step: Result | None) -> Forecast:
    """Return the forecast from the answers: MFU is proportional to the rate, so that one answer gives all."""
    convention = str(used.extra["convention"])
    rate = float(used["tokens_per_second_per_gpu"])
    shares = float(used["mfu"]) / rate, float(used[f"hfu/{convention}"]) / rate
    if step is None:
        return Forecast(None, None, None, None, {}, *shares, convention, question)
    time = step["step/time"]
    parts = {part.path: float(part) for part in time.parts}
    tokens = _count(step, "global-batch") * _count(step, "seq")
    return Forecast(tokens, float(time), time.low, time.high, parts, *shares, convention, question)


def _count(answer: Result, name: str) -> int:
    """Return an input of the answer that is a whole number."""
    value = answer.inputs[name].value
    assert isinstance(value, int)
    return value
