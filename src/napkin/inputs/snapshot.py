"""A memory snapshot of torch (`torch.cuda.memory._dump_snapshot`, as pickle or JSON), or the allocator's own maxima.

A pickle is read without executing anything: it may hold plain dicts, lists, texts and numbers alone, and whatever
names a class or a function is refused; reading may take memory in proportion to the file, no more. Structure:
torch/cuda/memory.py, `_snapshot` (segments with their blocks; the trace of allocations with the stack of each), since
torch 1.13, where a block had a history in place of frames.
"""

from __future__ import annotations

import gc
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from napkin.errors import NapkinError
from napkin.inputs.load import parse_json, printable, read_bytes
from napkin.record import record

LARGEST = 10**9
EXPANSION, APART = 16, 2**28
"""Reading may take so many bytes of memory for each byte of the file, and so many beside."""
BUCKETS = ("optimizer", "gradients", "activations", "parameters", "unexplained")
_MAXIMA = {
    "max_memory_allocated": "allocated",
    "allocated_bytes.all.peak": "allocated",
    "max_memory_reserved": "reserved",
    "reserved_bytes.all.peak": "reserved",
}
_STARTS = {b"\x1f\x8b": "gzip", b"PK": "zip", b"BZ": "bzip2", b"\xfd7zXZ": "xz", b"(\xb5/\xfd": "zstandard"}


@record
class Snapshot:
    """Bytes of one device. None: the file does not say.

    allocated, reserved  the largest of the recorded time (of the trace, where there is one)
    at_dump              allocated when the snapshot was taken      requested  the same before the allocator rounded
    buckets              at_dump by who allocated it, from the stack of each block: BUCKETS
    at_peak              the same when most was allocated; None without a trace
    traced, recorded     whether there is a trace, and whether its events or the blocks have stacks
    """

    device: int
    allocated: int | None = None
    reserved: int | None = None
    at_dump: int | None = None
    requested: int | None = None
    buckets: dict[str, int] | None = None
    at_peak: dict[str, int] | None = None
    traced: bool = False
    recorded: bool = False


def read_snapshot(path: str, device: int | None = None) -> Snapshot:
    """The snapshot in a file. `device` chooses one of several. Raises NapkinError (2)."""
    name = printable(path) if path != "-" else "standard input"
    data = read_bytes(path, LARGEST)
    if not data:
        raise NapkinError(f"{name}: is empty", "write one with torch.cuda.memory._dump_snapshot(FILE)")
    for start, packed in _STARTS.items():
        if data.startswith(start):
            raise NapkinError(f"{name}: is packed ({packed})", "unpack it; a snapshot is what _dump_snapshot writes")
    size = len(data)
    # binary pickles begin with a protocol; texts with a mark or an empty container, as JSON never does
    content = _unpickled(data, name) if data[:1] in (b"\x80", b"(", b"}", b"]") else _json(data, name)
    del data
    if not isinstance(content, dict):
        raise NapkinError(f"{name}: is not a memory snapshot", "write one with torch.cuda.memory._dump_snapshot(FILE)")
    maxima = _maxima(content, name)
    if maxima is not None:
        return maxima
    segments = content.get("segments")
    if not isinstance(segments, list):
        raise NapkinError(
            f"{name}: has neither segments nor max_memory_allocated",
            'a snapshot of torch.cuda.memory._dump_snapshot, or {"max_memory_allocated": BYTES}',
        )
    return _from_segments(content, segments, name, device, size)


@contextmanager
def _at_most(more: int) -> Iterator[None]:
    """No more than so many further bytes of memory, where the system can hold a process to it; collecting garbage,
    of which plain data makes none, waits."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        import resource

        with open("/proc/self/statm", "rb") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = now + more if soft == resource.RLIM_INFINITY else min(now + more, soft)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    except (ImportError, OSError, ValueError):  # not Linux
        try:
            yield
        finally:
            if collecting:
                gc.enable()
        return
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        if collecting:
            gc.enable()


def _unpickled(data: bytes, name: str) -> Any:
    import pickle

    class Plain(pickle.Unpickler):
        """Plain data alone: a class or function named in the file is never looked up."""

        def find_class(self, module: str, global_name: str) -> Any:
            where = printable(f"{module}.{global_name}", 80)
            raise NapkinError(f"{name}: names {where}, and a snapshot holds plain data alone", "it is not read further")

        def persistent_load(self, pid: Any) -> Any:
            raise NapkinError(f"{name}: refers to data outside itself", "it is not read further")

    try:
        with _at_most(EXPANSION * len(data) + APART):
            return Plain(io.BytesIO(data)).load()
    except NapkinError:
        raise
    except (MemoryError, RecursionError):
        raise NapkinError(
            f"{name}: is nested too deeply, or asks for more memory than a snapshot of its size takes",
            "write it with torch.cuda.memory._dump_snapshot(FILE)",
        ) from None
    except Exception as problem:  # a damaged pickle fails in many ways; none of them is the user's to tell apart
        raise NapkinError(f"{name}: is not a whole pickle: {printable(str(problem), 80)}", "write it again") from None


def _json(data: bytes, name: str) -> Any:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise NapkinError(f"{name}: is neither a pickle nor UTF-8 JSON", "write it with _dump_snapshot") from None
    with _at_most(EXPANSION * len(data) + APART):
        try:
            return parse_json(text, name, {}).data
        except MemoryError:
            raise NapkinError(f"{name}: takes more memory than a snapshot of its size does") from None


def _bytes(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise NapkinError(f"{where}: {_shown(value)} is not a number of bytes", "a whole number, 0 or more")
    return value


def _shown(value: Any) -> str:
    """A value in a message: containers by their kind alone, for they may be of any size or hold themselves."""
    if isinstance(value, int) and value.bit_length() > 128:
        return "a number of more than 128 bits"
    plain = value is None or isinstance(value, (bool, int, float, str))
    return printable(repr(value[:40] if isinstance(value, str) else value), 40) if plain else type(value).__name__


def _maxima(content: dict[str, Any], name: str) -> Snapshot | None:
    """`{"max_memory_allocated": …}`, or torch.cuda.memory_stats() as JSON, flat or nested."""
    found = {}
    for theirs, ours in _MAXIMA.items():
        value: Any = content.get(theirs)
        if value is None and "." in theirs:
            value = content
            for part in theirs.split("."):
                value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            found[ours] = _bytes(value, f"{name}: {theirs}")
    return Snapshot(0, found.get("allocated"), found.get("reserved")) if found else None


class _Reader:
    """Blocks and events of one file. A list that stands in a file many times over counts each time: no more items are
    read than the file has bytes."""

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
        return value if type(value) is int and 0 <= value < 2**63 else _bytes(value, f"{self.name}: {where}")

    def bucket(self, frames: Any) -> str:
        """The bucket of a stack, worked out once for all blocks that share it."""
        known = self.known.get(id(frames))
        if known is None:
            known = self.known[id(frames)] = frames, bucket_of(frames)
        return known[1]


def _frames(block: dict[str, Any]) -> Any:
    """The stack of a block: its frames, or those of its latest history (torch before 2.1)."""
    frames = block.get("frames")
    if frames is None:
        history = block.get("history")
        if isinstance(history, list) and history and isinstance(history[0], dict):
            return history[0].get("frames")
    return frames


def _from_segments(content: dict[str, Any], segments: list[Any], name: str, device: int | None, size: int) -> Snapshot:
    reader = _Reader(name, size)
    own = list(reader.mappings(segments, "segments"))
    devices = sorted({reader.bytes(segment.get("device", 0), "segments.device") for segment in own})
    if not devices:
        raise NapkinError(f"{name}: has no segments", "take the snapshot while tensors are allocated")
    chosen = devices[0] if device is None else device
    if chosen not in devices or (device is None and len(devices) > 1):
        listed = ", ".join(map(str, devices[:16])) + (", …" if len(devices) > 16 else "")
        raise NapkinError(f"{name}: holds the devices {listed}", f"choose one: --snapshot-device {devices[0]}")
    reserved = at_dump = requested = 0
    buckets = dict.fromkeys(BUCKETS, 0)
    live: dict[int, tuple[str, int]] = {}
    for segment in own:
        if segment.get("device", 0) != chosen:
            continue
        reserved += reader.bytes(segment.get("total_size"), "segments.total_size")
        address = segment.get("address")
        for block in reader.mappings(segment.get("blocks"), "segments.blocks"):
            length = reader.bytes(block.get("size"), "segments.blocks.size")
            at = block.get("address", address)
            if block.get("state") == "active_allocated":  # one that awaits its stream is free as far as torch counts
                at_dump += length
                requested += reader.bytes(block.get("requested_size", length), "segments.blocks.requested_size")
                bucket = reader.bucket(_frames(block))
                buckets[bucket] += length
                if isinstance(at, int):
                    live[at] = bucket, length
            if isinstance(address, int):
                address += length
    recorded = any(bucket != "unexplained" and size for bucket, size in buckets.items())
    found = _Trace(reader, content.get("device_traces"), chosen)
    if not found.events:
        return Snapshot(chosen, at_dump, reserved, at_dump, requested, _some(buckets), recorded=recorded)
    for at, bucket in found.learned.items():  # the trace knows more: blocks of autograd's own thread have no stack
        if at in live:
            before, length = live[at]
            buckets[before] -= length
            buckets[bucket] += length
    peak, most, at_peak = found.walked(at_dump, reserved, buckets)
    recorded = recorded or found.recorded
    return Snapshot(
        chosen, peak, most, at_dump, requested, _some(buckets), _some(at_peak) if recorded else None, True, recorded
    )


def _some(buckets: dict[str, int]) -> dict[str, int]:
    return {name: size for name, size in buckets.items() if size > 0}


class _Trace:
    """The allocations and frees of one device, oldest first: (change of allocated, change of reserved, bucket).

    torch writes the size that was asked for, up to 511 bytes less than the block's. What is allocated falls when a
    free is requested; where a file has completed frees alone, then."""

    def __init__(self, reader: _Reader, traces: Any, device: int) -> None:
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
        """The largest allocated and reserved bytes, and the buckets when most was allocated, walking backwards from
        what stands at the end."""
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
    """Who allocated a block, by its stack; "unexplained" where the stack does not say.

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
