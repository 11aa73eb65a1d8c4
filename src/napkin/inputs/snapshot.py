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
from napkin.inputs.load import name_of, parse_json, printable, read_bytes
from napkin.inputs.snapshot_blocks import BUCKETS, AllocationTrace, SnapshotReader, byte_count, frames_of
from napkin.record import record

LARGEST = 10**9
EXPANSION, APART = 16, 2**28
"""Reading may take EXPANSION bytes of memory for each byte of the file, and APART more."""
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
    """Return the snapshot in a file. `device` chooses one of several. Raises NapkinError (2)."""
    name = name_of(path)
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
    """Limit the process to this many further bytes of memory, where the system can; garbage collection, which plain
    data does not need, waits."""
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
            raise NapkinError(f"{name}: takes more memory than a snapshot of its size does", "write it again") from None


def _maxima(content: dict[str, Any], name: str) -> Snapshot | None:
    """Return the maxima of `{"max_memory_allocated": …}`, or of torch.cuda.memory_stats() as JSON, flat or nested."""
    found = {}
    for theirs, ours in _MAXIMA.items():
        value: Any = content.get(theirs)
        if value is None and "." in theirs:
            value = content
            for part in theirs.split("."):
                value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            found[ours] = byte_count(value, f"{name}: {theirs}")
    return Snapshot(0, found.get("allocated"), found.get("reserved")) if found else None


def _from_segments(content: dict[str, Any], segments: list[Any], name: str, device: int | None, size: int) -> Snapshot:
    reader = SnapshotReader(name, size)
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
                bucket = reader.bucket(frames_of(block))
                buckets[bucket] += length
                if isinstance(at, int):
                    live[at] = bucket, length
            if isinstance(address, int):
                address += length
    recorded = any(bucket != "unexplained" and size for bucket, size in buckets.items())
    found = AllocationTrace(reader, content.get("device_traces"), chosen)
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
