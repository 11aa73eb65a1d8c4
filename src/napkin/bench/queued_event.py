"""torch's event of a device with its own queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from napkin.bench.device import (
    Event,
)

if TYPE_CHECKING:
    pass


class QueuedEvent:
    """torch's event of a device with its own queue, CUDA's or Apple's."""

    def __init__(self, backend: Any) -> None:
        self.event = backend.Event(enable_timing=True)

    def record(self) -> None:
        self.event.record()

    def wait(self) -> None:
        self.event.synchronize()

    def since(self, earlier: Event) -> float:
        assert isinstance(earlier, QueuedEvent)
        return float(earlier.event.elapsed_time(self.event)) / 1e3
