"""The search for a device's fastest matmul shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from napkin.bench import formats, shapes
from napkin.bench.device import Device, Kernel, MatmulSpec, Watch
from napkin.bench.modes import Mode
from napkin.bench.shapes import Shape
from napkin.bench.stats import ANCHOR_SPREAD, relative_spread
from napkin.bench.timing import time_many

BATCH_SECONDS = 1.0  # of measuring between two timings of the anchor
FREE_SHARE = 0.4  # of free memory for the operands of one shape of the search


class MatmulSearch:
    """The race of shapes on a device, with the anchor timed about once a second and its drift divided out."""

    def __init__(
        self,
        device: Device,
        mode: Mode,
        dtype: str,
        data: str,
        anchor: Shape,
        sms: int | None,
        note: Callable[[str], None],
    ) -> None:
        """note: shows progress; sms: multiprocessors whose waves the shapes fill, None if there are none."""
        self.note = note
        self.device = device
        self.mode = mode
        self.dtype = dtype
        self.data = data
        self.sms = sms
        self.watched = Watch()
        self.anchor_rates: list[float] = []
        self._anchor = device.matmul(self._spec(anchor))

    def _spec(self, shape: Shape) -> MatmulSpec:
        m, k, n = shape
        return MatmulSpec(self.dtype, m, k, n, data=self.data)

    def run(self) -> list[tuple[Shape, float]]:
        entrants = [shape for shape in shapes.candidates(self.sms) if self._fits(shape)]
        with self.device.watch(0.05) as watch:
            self._batch([], 0.0)
            ranked = shapes.race(entrants, self.rates, first=self.mode.first)
            if self.mode.walk and self.sms is not None:
                ranked = self._walk(ranked, self.sms)
        self.watched = watch
        return ranked

    def _fits(self, shape: Shape) -> bool:
        spec = self._spec(shape)
        return formats.illegal(spec) is None and formats.spec_bytes(spec) < FREE_SHARE * self.device.free_bytes()

    def _expected(self, work: float) -> float:
        """Return the seconds of one call at the anchor's rate."""
        return work / self.anchor_rates[-1] if self.anchor_rates else float("inf")

    def _batch(self, kernels: Sequence[Kernel], seconds: float) -> list[float]:
        """Return seconds per call of each kernel, the anchor first; all are queued, so the device never idles."""
        queued = [self._anchor, *kernels]
        calls = [max(1, round(self.mode.first / self._expected(self._anchor.work)))]
        calls += [max(1, round(seconds / self._expected(kernel.work))) for kernel in kernels]
        anchor, *times = time_many(self.device, queued, calls)
        self.anchor_rates.append(self._anchor.work / anchor)
        return times

    def rates(self, entrants: Sequence[Shape], seconds: float) -> list[float]:
        """Return FLOP/s of each shape from about `seconds` of calls, relative to the anchor before and after it."""
        self.note(f"matmul {self.dtype} search  {len(entrants)} shapes left")
        kernels = [self.device.matmul(self._spec(shape)) for shape in entrants]
        size = max(1, int(BATCH_SECONDS / seconds))
        batches = [kernels[start : start + size] for start in range(0, len(kernels), size)]
        first = len(self.anchor_rates)
        times = [self._batch(batch, seconds) for batch in batches]
        self._batch([], seconds)
        result: list[float] = []
        for number, (batch, measured) in enumerate(zip(batches, times, strict=True), first):
            drift = (self.anchor_rates[number] + self.anchor_rates[number + 1]) / 2 / self.anchor_rates[0]
            result += [kernel.work / time / drift for kernel, time in zip(batch, measured, strict=True)]
        return result

    def _walk(self, ranked: list[tuple[Shape, float]], sms: int) -> list[tuple[Shape, float]]:
        """Search along k from the two best layouts and the most square single wave: the grid's depths are coarse."""
        seconds = self.mode.first * 27  # as long as a shape had in the round before the finalists'
        starts = ranked[:2]
        square = shapes.one_wave(sms)
        if square is not None and all((shape[0], shape[2]) != square for shape, _ in starts):
            shape = (square[0], ranked[0][0][1], square[1])
            starts = [*starts, (shape, self.rates([shape], seconds)[0])]
        walked = [shapes.walk(shape, rate, lambda s: self._walked(s, seconds)) for shape, rate in starts]
        best = dict([*ranked, *walked])
        return sorted(best.items(), key=lambda pair: -pair[1])[: shapes.FINALISTS]

    def _walked(self, shape: Shape, seconds: float) -> float:
        return self.rates([shape], seconds)[0] if self._fits(shape) else 0.0

    def flags(self) -> list[str]:
        """Return whether the anchor moved, and whether the clock explains it."""
        moved = relative_spread(self.anchor_rates[1:])
        if moved <= ANCHOR_SPREAD:
            return []
        clocks = [s.sm_clock_mhz for s in self.watched.samples if s.sm_clock_mhz is not None]
        explained = bool(clocks) and relative_spread(clocks) >= moved / 2
        return ["clock_moved" if explained else "contended"]
