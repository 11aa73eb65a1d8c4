"""A memory snapshot of torch (`torch.cuda.memory._dump_snapshot`, as pickle or JSON), or the allocator's own maxima.

A pickle is read without executing anything: it may contain only plain dicts, lists, texts and numbers, and whatever
names a class or a function is refused. Files of up to 1 GB are read from a stream in constant memory. Structure:
torch/cuda/memory.py, `_snapshot` (segments with their blocks; the trace of allocations with the stack of each), since
torch 1.13, in which a block had a history instead of frames."""

from __future__ import annotations

import io
from typing import Any, BinaryIO

from napkin.errors import NapkinError
from napkin.inputs.file_kinds import START, refuse_kind
from napkin.inputs.load import name_of, with_bytes
from napkin.inputs.snapshot_blocks import Totals, byte_count
from napkin.inputs.snapshot_json import read_json
from napkin.inputs.snapshot_pickle import read_pickle
from napkin.record import record

LARGEST = 10**9
_MAXIMA = {
    "max_memory_allocated": "allocated",
    "allocated_bytes.all.peak": "allocated",
    "max_memory_reserved": "reserved",
    "reserved_bytes.all.peak": "reserved",
}


@record
class Snapshot:
    """Bytes of one device. None: the file does not say.

    allocated, reserved  the largest of the recorded time (of the trace, if there is one)
    used, unstated       typed figures: what nvidia-smi reports, and a peak that may be any of the three
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
    used: int | None = None
    unstated: int | None = None


def read_snapshot(path: str, device: int | None = None) -> Snapshot:
    """Return the snapshot in a file. `device` chooses one of several. Raises NapkinError (2)."""
    name = name_of(path)
    totals = Totals(name)
    content = with_bytes(path, lambda file: _content(file, name, totals))
    if not isinstance(content, dict):
        raise NapkinError(f"{name}: is not a memory snapshot", "write one with torch.cuda.memory._dump_snapshot(FILE)")
    maxima = _maxima(content, name)
    if maxima is not None:
        return maxima
    if not isinstance(content.get("segments"), list):
        raise NapkinError(
            f"{name}: has neither segments nor max_memory_allocated",
            'a snapshot of torch.cuda.memory._dump_snapshot, or {"max_memory_allocated": BYTES}',
        )
    return _of_device(totals, name, device)


def _content(file: BinaryIO, name: str, totals: Totals) -> Any:
    """Read a pickle or JSON, and add its segments and events to `totals`."""
    buffered = file if isinstance(file, io.BufferedReader) else io.BufferedReader(file)  # type: ignore[type-var]
    start = buffered.peek(START)[:START]
    if not start:
        raise NapkinError(f"{name}: is empty", "write one with torch.cuda.memory._dump_snapshot(FILE)")
    refuse_kind(start, name)
    # binary pickles begin with a protocol; texts with a mark or an empty container, as JSON never does
    if start[:1] in (b"\x80", b"(", b"}", b"]"):
        return read_pickle(buffered, name, totals, LARGEST)
    text = io.TextIOWrapper(buffered, encoding="utf-8-sig")
    try:
        return read_json(text, name, totals, LARGEST)
    except UnicodeDecodeError:
        raise NapkinError(f"{name}: is neither a pickle nor UTF-8 JSON", "write it with _dump_snapshot") from None
    finally:
        text.detach()


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


def _of_device(totals: Totals, name: str, device: int | None) -> Snapshot:
    """Return the totals of one device's segments and events."""
    devices = sorted(totals.devices)
    if not devices:
        raise NapkinError(f"{name}: has no segments", "take the snapshot while tensors are allocated")
    chosen = devices[0] if device is None else device
    if chosen not in devices or (device is None and len(devices) > 1):
        listed = ", ".join(map(str, devices[:16])) + (", …" if len(devices) > 16 else "")
        raise NapkinError(f"{name}: holds the devices {listed}", f"choose one: --snapshot-device {devices[0]}")
    seen, trace = totals.devices[chosen], totals.traces.get(chosen)
    recorded = any(bucket != "unexplained" and size for bucket, size in seen.buckets.items())
    at_dump, requested, reserved = seen.at_dump, seen.requested, seen.reserved
    if trace is None or not trace.events:
        return Snapshot(chosen, at_dump, reserved, at_dump, requested, _some(seen.buckets), recorded=recorded)
    peak, most, buckets, at_peak = trace.walked(seen)
    recorded = recorded or trace.recorded
    return Snapshot(
        chosen, peak, most, at_dump, requested, _some(buckets), _some(at_peak) if recorded else None, True, recorded
    )


def _some(buckets: dict[str, int]) -> dict[str, int]:
    return {name: size for name, size in buckets.items() if size > 0}
