"""Blocks and events of a memory snapshot: who allocated each block, by its stack, and what was allocated when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from napkin.errors import NapkinError
from napkin.inputs.load import printable

BUCKETS = ("optimizer", "gradients", "activations", "parameters", "unexplained")


def byte_count(value: Any, where: str) -> int:
    """Return a number of bytes as a file states it; refused (2) where it is none."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise NapkinError(f"{where}: {_shown(value)} is not a number of bytes", "a whole number, 0 or more")
    return value


def _shown(value: object) -> str:
    """Return a value for a message: of a container only its type, for it may be of any size or hold itself."""
    if isinstance(value, int) and value.bit_length() > 128:
        return "a number of more than 128 bits"
    plain = value is None or isinstance(value, (bool, int, float, str))
    return printable(repr(value[:40] if isinstance(value, str) else value), 40) if plain else type(value).__name__


class SnapshotReader:
    """Read blocks and events of one file. A list that a file repeats counts each time: no more items are read than the
    file has bytes."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.left = name, size
        self.known: dict[int, tuple[Any, str]] = {}

    def mappings(self, value: Any, where: str) -> Iterator[dict[str, Any]]:
        if not isinstance(value, list):
            raise NapkinError(f"{self.name}: {where}: is not a list", "write the snapshot again")
        self.left -= len(value)
        if self.left < 0:
            raise NapkinError(f"{self.name}: {where}: repeats itself", "write the snapshot again")
        for one in value:
            if not isinstance(one, dict):
                raise NapkinError(f"{self.name}: {where}: is not a list of mappings", "write the snapshot again")
            yield one

    def bytes(self, value: Any, where: str) -> int:
        return value if type(value) is int and 0 <= value < 2**63 else byte_count(value, f"{self.name}: {where}")

    def bucket(self, frames: Any) -> str:
        """Return the bucket of a stack, computed once for all blocks that share it."""
        known = self.known.get(id(frames))
        if known is None:
            known = self.known[id(frames)] = frames, bucket_of(frames)
        return known[1]


def frames_of(block: dict[str, Any]) -> Any:
    """Return the stack of a block: its frames, or those of its latest history (torch before 2.1)."""
    frames = block.get("frames")
    if frames is None:
        history = block.get("history")
        if isinstance(history, list) and history and isinstance(history[0], dict):
            return history[0].get("frames")
    return frames


class AllocationTrace:
    """The allocations and frees of one device, oldest first: (change of allocated, change of reserved, bucket).

    torch writes the size that was asked for, up to 511 bytes less than the block's. What is allocated falls when a
    free is requested; where a file has completed frees alone, then."""

    def __init__(self, reader: SnapshotReader, traces: Any, device: int) -> None:
        self.events: list[tuple[int, int, str]] = []
        self.learned: dict[int, str] = {}
        self.recorded = False
        if not isinstance(traces, list) or device >= len(traces) or not isinstance(traces[device], list):
            return
        events = traces[device]
        self.recorded = any(isinstance(e, dict) and e.get("frames") for e in events)
        held: dict[int, str] = {}
        requests = {
            event["addr"]
            for event in events
            if isinstance(event, dict) and event.get("action") == "free_requested" and type(event.get("addr")) is int
        }
        for event in reader.mappings(events, "device_traces"):
            action = event.get("action")
            if action not in _ACTIONS:
                continue
            size = reader.bytes(event.get("size", 0), "device_traces.size")
            addr = event.get("addr")
            addr = addr if type(addr) is int else None
            if action == "alloc":
                bucket = reader.bucket(event.get("frames"))
                if bucket == "unexplained" and self.recorded and not event.get("frames"):
                    bucket = "gradients"  # no Python stack while others have one: autograd's own thread
                if addr is not None:
                    held[addr] = self.learned[addr] = bucket
                self.events.append((size, 0, bucket))
            elif action == "free_requested" or (action == "free_completed" and addr not in requests):
                if action == "free_requested" and addr is None:
                    continue
                bucket = "unexplained" if addr is None else held.pop(addr, "unexplained")
                if addr is not None:
                    self.learned.pop(addr, None)
                self.events.append((-size, 0, bucket))
            elif action in ("segment_alloc", "segment_map"):
                self.events.append((0, size, ""))
            elif action in ("segment_free", "segment_unmap"):
                self.events.append((0, -size, ""))

    def walked(self, allocated: int, reserved: int, buckets: dict[str, int]) -> tuple[int, int, dict[str, int]]:
        """Return the largest allocated and reserved bytes, and the buckets when most was allocated, walking backwards
        from the end."""
        now, held, peak, most = allocated, reserved, allocated, reserved
        running, best = dict(buckets), dict(buckets)
        for change, held_change, bucket in reversed(self.events):
            now, held = now - change, held - held_change
            if bucket:
                running[bucket] -= change
            if now > peak:
                peak, best = now, dict(running)
            most = max(most, held)
        return peak, most, best


_ACTIONS = frozenset(
    ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap")
)


def bucket_of(frames: Any) -> str:
    """Return who allocated a block, by its stack; "unexplained" where the stack does not say.

    torch/optim is the optimizer; a backward pass leaves gradients; a module's forward leaves what it saves;
    a module's construction or move leaves parameters."""
    if not isinstance(frames, list):
        return "unexplained"
    names = [str(f.get("name", ""))[:200] for f in frames[:DEEPEST] if isinstance(f, dict)]
    files = [str(f.get("filename", ""))[:1000].replace("\\", "/") for f in frames[:DEEPEST] if isinstance(f, dict)]
    if any("/torch/optim/" in file for file in files):
        return "optimizer"
    if any(n in ("backward", "_engine_run_backward") or "Engine::" in n or n.endswith("_backward") for n in names):
        return "gradients"
    if any(n == "forward" for n in names):
        return "activations"
    if any(n in ("_apply", "to", "cuda", "__init__", "reset_parameters", "to_empty") for n in names):
        return "parameters"
    return "unexplained"


DEEPEST = 1000
"""Frames of a stack that are looked at."""
