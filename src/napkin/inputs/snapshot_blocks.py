"""Blocks and events of a memory snapshot: who allocated each block, by its stack, and what was allocated when.

Blocks and events are read one at a time and summed; only the blocks that live at the same time are stored.
"""

from __future__ import annotations

from typing import Any

from napkin.errors import NapkinError
from napkin.inputs.load import printable

BUCKETS = ("optimizer", "gradients", "activations", "parameters", "unexplained")
NO_STACK = "no stack"
"""The bucket of a block without a stack in a trace that records stacks: autograd's thread allocated it."""
MOST_BLOCKS, MOST_DEVICES, MOST_FRAMES = 2**20, 2**10, 2**16
"""Blocks that may live at the same time; devices; frames whose kind is remembered."""
DEEPEST = 1000
"""Frames of a stack that are read."""
_KINDS = (("optimizer", 1), ("gradients", 2), ("activations", 4), ("parameters", 8))
"""The bucket of a stack is the first of these that one of its frames names."""


def byte_count(value: Any, where: str) -> int:
    """Return a number of bytes from a file; raise NapkinError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise NapkinError(f"{where}: {_shown(value)} is not a number of bytes", "a whole number, 0 or more")
    return value


def _shown(value: object) -> str:
    """Return a value for a message; for a container only its type, as it may be huge or contain itself."""
    if isinstance(value, int) and value.bit_length() > 128:
        return "a number of more than 128 bits"
    plain = value is None or isinstance(value, (bool, int, float, str))
    return printable(repr(value[:40] if isinstance(value, str) else value), 40) if plain else type(value).__name__


class StackBucket:
    """A stack that has been reduced to its bucket."""

    __slots__ = ("bucket",)

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket


class Stacks:
    """The buckets of stacks; the kind of a frame is computed once."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[Any, Any], int] = {}

    def bucket(self, frames: Any) -> str:
        """Return the bucket of a block by the frames of its stack.

        A frame of torch/optim makes it the optimizer's, one of backward a gradient, one of a module's forward an
        activation, and one of construction or of a move between devices a parameter, in this order.
        """
        if not isinstance(frames, list):
            return frames.bucket if isinstance(frames, StackBucket) else "unexplained"
        kinds, known = 0, self._kinds
        for frame in frames if len(frames) <= DEEPEST else frames[:DEEPEST]:
            try:
                kinds |= known[frame["name"], frame["filename"]]
            except (KeyError, TypeError):
                kinds |= self._learn(frame)
        return next((bucket for bucket, kind in _KINDS if kinds & kind), "unexplained")

    def _learn(self, frame: Any) -> int:
        """Return the kinds of a frame, as bits; remember them if the frame has a name."""
        if not isinstance(frame, dict):
            return 0
        name, file = (text if type(text) is str else "" for text in (frame.get("name"), frame.get("filename")))
        if len(self._kinds) >= MOST_FRAMES:
            self._kinds.clear()
        kind = int("/torch/optim/" in file[:1000].replace("\\", "/"))
        kind |= 2 * (name in ("backward", "_engine_run_backward") or "Engine::" in name or name.endswith("_backward"))
        kind |= 4 * (name == "forward")
        kind |= 8 * (name in ("_apply", "to", "cuda", "__init__", "reset_parameters", "to_empty"))
        self._kinds[name, file] = kind
        return kind


def frames_of(block: dict[str, Any]) -> Any:
    """Return the stack of a block: its frames, or those of its latest history (torch before 2.1)."""
    frames = block.get("frames")
    if frames is None:
        history = block.get("history")
        if isinstance(history, list) and history and isinstance(history[0], dict):
            return history[0].get("frames")
    return frames


class DeviceTotals:
    """Totals of the blocks of one device. live: {address: (bucket, bytes)} of the allocated blocks."""

    def __init__(self) -> None:
        self.reserved = self.at_dump = self.requested = 0
        self.buckets = dict.fromkeys(BUCKETS, 0)
        self.live: dict[int, tuple[str, int]] = {}


class SegmentBlocks:
    """The allocated blocks of a segment that is being read: (address, offset, bucket, bytes, requested) of each."""

    def __init__(self) -> None:
        self.allocated: list[tuple[Any, int, str, int, int]] = []
        self.offset = 0


class Totals:
    """Add up the segments and events of one file as they are read."""

    def __init__(self, name: str) -> None:
        self.name, self.stacks = name, Stacks()
        self.devices: dict[int, DeviceTotals] = {}
        self.traces: dict[int, AllocationTrace] = {}
        self._kept = 0

    def bytes(self, value: Any, where: str) -> int:
        return value if type(value) is int and 0 <= value < 2**63 else byte_count(value, f"{self.name}: {where}")

    def mapping(self, value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise NapkinError(f"{self.name}: {where}: is not a list of mappings", "write the snapshot again")
        return value

    def block(self, blocks: SegmentBlocks, value: Any) -> None:
        """Add a block to those of its segment; one that awaits its stream is free as far as torch counts."""
        block = self.mapping(value, "segments.blocks")
        length = self.bytes(block.get("size"), "segments.blocks.size")
        if block.get("state") == "active_allocated":
            requested = self.bytes(block.get("requested_size", length), "segments.blocks.requested_size")
            bucket = self.stacks.bucket(frames_of(block))
            blocks.allocated.append((block.get("address"), blocks.offset, bucket, length, requested))
            self._kept += 1
            if self._kept > MOST_BLOCKS:
                raise too_many(self.name)
        blocks.offset += length

    def segment(self, value: Any, read: SegmentBlocks) -> None:
        """Add a segment with its blocks: those that were read already, and those still in its value."""
        segment = self.mapping(value, "segments")
        number = self.bytes(segment.get("device", 0), "segments.device")
        blocks = segment.get("blocks")
        if not isinstance(blocks, list):
            raise NapkinError(f"{self.name}: segments.blocks: is not a list", "write the snapshot again")
        for block in blocks:
            self.block(read, block)
        if number not in self.devices and len(self.devices) >= MOST_DEVICES:
            raise NapkinError(f"{self.name}: more than {MOST_DEVICES:,} devices", "write the snapshot again")
        device = self.devices.setdefault(number, DeviceTotals())
        device.reserved += self.bytes(segment.get("total_size"), "segments.total_size")
        start = segment.get("address")
        for address, offset, bucket, length, requested in read.allocated:
            device.at_dump += length
            device.requested += requested
            device.buckets[bucket] += length
            at = start + offset if address is None and type(start) is int else address
            if type(at) is int:
                device.live[at] = bucket, length

    def event(self, device: int, value: Any) -> None:
        trace = self.traces.get(device)
        if trace is None:
            if device >= MOST_DEVICES:
                raise NapkinError(f"{self.name}: more than {MOST_DEVICES:,} devices", "write the snapshot again")
            trace = self.traces[device] = AllocationTrace(self)
        trace.add(self.mapping(value, "device_traces"))


def too_many(name: str) -> NapkinError:
    """Return the error for more live blocks than napkin stores."""
    return NapkinError(f"{name}: more than {MOST_BLOCKS:,} blocks live at the same time", "write the snapshot again")


class _Walk:
    """Allocated bytes after each event, relative to those before the first: the largest, and their buckets at that
    time."""

    def __init__(self) -> None:
        self.now = self.peak = 0
        self.running = dict.fromkeys((*BUCKETS, NO_STACK), 0)
        self.best = dict(self.running)
        self.held: dict[int, str] = {}

    def add(self, change: int, bucket: str) -> None:
        self.now += change
        self.running[bucket] += change
        if self.now >= self.peak:
            self.peak, self.best = self.now, self.running.copy()


class AllocationTrace:
    """The allocations and frees of one device, added up oldest first.

    torch writes the size that was asked for, up to 511 bytes less than the block's. Allocated bytes fall when a free is
    requested or, in a file that only has completed frees, when it completes: both are followed until the first
    request."""

    def __init__(self, totals: Totals) -> None:
        self.totals = totals
        self.recorded = self.events = False
        self._requested, self._completed = _Walk(), _Walk()
        self._has_requests = False
        self._reserved = self._most = 0

    def add(self, event: dict[str, Any]) -> None:
        action, frames = event.get("action"), event.get("frames")
        if frames:
            self.recorded = True
        if type(action) is not str or action not in _ACTIONS:
            return
        self.events = True
        size = self.totals.bytes(event.get("size", 0), "device_traces.size")
        address = event.get("addr")
        at = address if type(address) is int else None
        if action == "alloc":
            self._allocated(size, at, self.totals.stacks.bucket(frames) if frames else NO_STACK)
        elif action == "free_requested":
            if at is not None:
                self._has_requests = True
                _freed(self._requested, size, at)
        elif action == "free_completed":
            if at is None:
                _freed(self._requested, size, at)
            if not self._has_requests:
                _freed(self._completed, size, at)
        else:
            self._reserved += size if action in ("segment_alloc", "segment_map") else -size
            self._most = max(self._most, self._reserved)

    def _allocated(self, size: int, at: int | None, bucket: str) -> None:
        for walk in (self._requested,) if self._has_requests else (self._requested, self._completed):
            walk.add(size, bucket)
            if at is not None:
                walk.held[at] = bucket
                if len(walk.held) > MOST_BLOCKS:
                    raise too_many(self.totals.name)

    def walked(self, device: DeviceTotals) -> tuple[int, int, dict[str, int], dict[str, int]]:
        """Return the largest allocated and reserved bytes, the buckets now, and those when most was allocated: from
        what the device holds now, back over the events. The trace knows more than the blocks: those of autograd's own
        thread have no stack."""
        walk = self._requested if self._has_requests else self._completed
        unnamed = "gradients" if self.recorded else "unexplained"
        now = dict(device.buckets)
        for at, bucket in walk.held.items():
            if at in device.live:
                before, length = device.live[at]
                now[before] -= length
                now[unnamed if bucket == NO_STACK else bucket] += length
        at_peak = {bucket: size + walk.best[bucket] - walk.running[bucket] for bucket, size in now.items()}
        at_peak[unnamed] += walk.best[NO_STACK] - walk.running[NO_STACK]
        peak, most = device.at_dump + walk.peak - walk.now, device.reserved + self._most - self._reserved
        return peak, most, now, at_peak


def _freed(walk: _Walk, size: int, at: int | None) -> None:
    walk.add(-size, "unexplained" if at is None else walk.held.pop(at, "unexplained"))


_ACTIONS = frozenset(
    ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap")
)
