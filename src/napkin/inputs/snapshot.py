"""A memory snapshot of torch (`torch.cuda.memory._dump_snapshot`, as pickle or JSON), or the allocator's own maxima.

A pickle is read without executing anything: it may hold plain dicts, lists, texts and numbers alone, and whatever
names a class or a function is refused. Structure: torch/cuda/memory.py, `_snapshot` (segments with their blocks, and
the trace of allocations with the stack of each).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from napkin.errors import NapkinError
from napkin.inputs.load import parse_json, printable, read_bytes
from napkin.record import record

LARGEST = 10**9
BUCKETS = ("optimizer", "gradients", "activations", "parameters", "unexplained")
_MAXIMA = {
    "max_memory_allocated": "allocated",
    "allocated_bytes.all.peak": "allocated",
    "max_memory_reserved": "reserved",
    "reserved_bytes.all.peak": "reserved",
}


@record
class Snapshot:
    """Bytes of one device. None: the file does not say.

    allocated, reserved  the largest of the recorded time (of the trace, where there is one)
    at_dump              allocated when the snapshot was taken      requested  the same before the allocator rounded
    buckets              at_dump by who allocated it, from the stack of each block: BUCKETS
    """

    device: int
    allocated: int | None = None
    reserved: int | None = None
    at_dump: int | None = None
    requested: int | None = None
    buckets: dict[str, int] | None = None


def read_snapshot(path: str, device: int | None = None) -> Snapshot:
    """The snapshot in a file. `device` chooses one of several. Raises NapkinError (2)."""
    name = printable(path)
    data = read_bytes(path, LARGEST)
    content = _unpickled(data, name) if data[:1] == b"\x80" else _json(data, name)
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
    return _from_segments(content, segments, name, device)


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
        return Plain(io.BytesIO(data)).load()
    except NapkinError:
        raise
    except (MemoryError, RecursionError):
        raise NapkinError(f"{name}: is nested too deeply or too large") from None
    except Exception as problem:  # a damaged pickle fails in many ways; none of them is the user's to tell apart
        raise NapkinError(f"{name}: is not a whole pickle: {printable(str(problem), 80)}", "write it again") from None


def _json(data: bytes, name: str) -> Any:
    try:
        return parse_json(data.decode("utf-8-sig"), name).data
    except UnicodeDecodeError:
        raise NapkinError(f"{name}: is neither a pickle nor UTF-8 JSON", "write it with _dump_snapshot") from None


def _bytes(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise NapkinError(f"{where}: {printable(repr(value), 40)} is not a number of bytes")
    return value


def _maxima(content: dict[str, Any], name: str) -> Snapshot | None:
    """`{"max_memory_allocated": …}` or torch.cuda.memory_stats() as JSON."""
    found = {
        ours: _bytes(content[theirs], f"{name}: {theirs}") for theirs, ours in _MAXIMA.items() if theirs in content
    }
    return Snapshot(0, found.get("allocated"), found.get("reserved")) if found else None


def _from_segments(content: dict[str, Any], segments: list[Any], name: str, device: int | None) -> Snapshot:
    devices = sorted({_bytes(s.get("device", 0), f"{name}: segments") for s in segments if isinstance(s, dict)})
    if not devices:
        raise NapkinError(f"{name}: has no segments", "take the snapshot while tensors are allocated")
    chosen = devices[0] if device is None else device
    if chosen not in devices or (device is None and len(devices) > 1):
        raise NapkinError(
            f"{name}: holds the devices {', '.join(map(str, devices))}", f"choose one: --snapshot-device {devices[0]}"
        )
    reserved = at_dump = requested = 0
    buckets = dict.fromkeys(BUCKETS, 0)
    for number, segment in enumerate(segments):
        where = f"{name}: segments.{number}"
        if not isinstance(segment, dict):
            raise NapkinError(f"{where}: is not a mapping", "write the snapshot again")
        if segment.get("device", 0) != chosen:
            continue
        reserved += _bytes(segment.get("total_size"), f"{where}.total_size")
        for block in _mappings(segment.get("blocks"), f"{where}.blocks"):
            if block.get("state") == "inactive":
                continue
            size = _bytes(block.get("size"), f"{where}.blocks.size")
            at_dump += size
            requested += _bytes(block.get("requested_size", size), f"{where}.blocks.requested_size")
            buckets[bucket_of(block.get("frames"))] += size
    peak, most = _peaks(content, chosen, at_dump, reserved, name)
    return Snapshot(chosen, peak, most, at_dump, requested, {k: v for k, v in buckets.items() if v})


def _mappings(value: Any, where: str) -> Iterator[dict[str, Any]]:
    if not isinstance(value, list):
        raise NapkinError(f"{where}: is not a list", "write the snapshot again")
    for one in value:
        if not isinstance(one, dict):
            raise NapkinError(f"{where}: is not a list of mappings", "write the snapshot again")
        yield one


def _peaks(content: dict[str, Any], device: int, allocated: int, reserved: int, name: str) -> tuple[int, int]:
    """The largest allocated and reserved bytes, walking the trace backwards from what stands at its end."""
    traces = content.get("device_traces")
    if not isinstance(traces, list) or device >= len(traces) or not isinstance(traces[device], list):
        return allocated, reserved
    now, held, peak, most = allocated, reserved, allocated, reserved
    for event in reversed(list(_mappings(traces[device], f"{name}: device_traces"))):
        action, size = event.get("action"), event.get("size", 0)
        if action in ("alloc", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap"):
            size = _bytes(size, f"{name}: device_traces.size")
        if action == "alloc":
            now -= size
        elif action == "free_completed":
            now += size
        elif action in ("segment_alloc", "segment_map"):
            held -= size
        elif action in ("segment_free", "segment_unmap"):
            held += size
        peak, most = max(peak, now), max(most, held)
    return peak, most


def bucket_of(frames: Any) -> str:
    """Who allocated a block, by its stack; "unexplained" where the stack does not say.

    torch/optim is the optimizer; a backward pass leaves gradients; a module's forward leaves what it saves;
    a module's construction or move leaves parameters."""
    if not isinstance(frames, list):
        return "unexplained"
    names = [str(f.get("name", "")) for f in frames if isinstance(f, dict)]
    files = [str(f.get("filename", "")).replace("\\", "/") for f in frames if isinstance(f, dict)]
    if any("/torch/optim/" in file for file in files):
        return "optimizer"
    if any(n == "backward" or "Engine::" in n or n.endswith("_backward") for n in names):
        return "gradients"
    if any(n == "forward" for n in names):
        return "activations"
    if any(n in ("_apply", "to", "cuda", "__init__", "reset_parameters", "to_empty") for n in names):
        return "parameters"
    return "unexplained"
