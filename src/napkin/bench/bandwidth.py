"""Device memory and the link to the host, in bytes that the program asks for (STREAM's counting)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from napkin.bench.device import Kernel, Unsupported
from napkin.bench.matmul import outcome
from napkin.bench.measurement import Measurement
from napkin.bench.modes import DEVICE_TIMING, HOST_TIMING, MIB, Mode
from napkin.bench.session import Session
from napkin.bench.stats import median
from napkin.bench.timing import Timing, time_blocks

HOST_BYTES = 64 * MIB  # of a CPU's or an Apple GPU's buffers: above their caches
CACHE_MULTIPLE = 8  # a buffer of fewer last-level caches measures the cache
PAGEABLE_REPEATS = 10
OPERATIONS = ("copy", "write", "read", "triad")
DIRECTIONS = (("h2d", True), ("d2h", True), ("both", True), ("h2d", False), ("d2h", False))
TRANSFER_TIMING = Timing(blocks=10, min_block=2e-3, warmup=2)


def memory(session: Session, mode: Mode, datasheet: float | None, operations: tuple[str, ...] = OPERATIONS) -> None:
    """copy 2N, write N, read N, triad 3N bytes over buffers of N bytes."""
    device = session.device
    on_gpu = device.info.kind in ("cuda", "rocm")
    timing = DEVICE_TIMING if on_gpu else HOST_TIMING
    smallest = CACHE_MULTIPLE * (device.info.l2_bytes or 0)
    for size in mode.stream_bytes if on_gpu else (HOST_BYTES,):
        for operation in operations if size >= smallest else ():
            session.case(
                f"memory/{operation}/{size // MIB}MiB",
                "memory",
                {"operation": operation, "bytes": size},
                0.5,
                partial(_stream, session, operation, size, timing, datasheet),
            )
            device.release()


def _stream(session: Session, operation: str, size: int, timing: Timing, datasheet: float | None) -> Measurement:
    kernel = session.device.stream(operation, size)
    seen = outcome(kernel, time_blocks(session.device, kernel, timing))
    # faster than the datasheet: cache hits or a wrong count, never a headline
    suspect = datasheet is not None and median(seen.values) > datasheet
    return replace(seen, flags=("suspect",) if suspect else ())


def host(session: Session, mode: Mode) -> None:
    """Measure host to device and back, over pinned and pageable memory, and both ways at once.

    With several ranks first on rank 0 alone, then on all at once: the GPUs of a node share its memory and its links.
    """
    sizes = mode.transfer_bytes if session.device.info.kind in ("cuda", "rocm") else mode.transfer_bytes[:1]
    together = (False, True) if session.team.world > 1 else (False,)
    for all_ranks in together:
        for size in sizes:
            for direction, pinned in DIRECTIONS:
                name = f"{direction}_{'pinned' if pinned else 'pageable'}"
                operation = f"all_{name}" if all_ranks else name
                idle = not all_ranks and session.team.rank > 0
                session.case(
                    f"host/{operation}/{size // MIB}MiB",
                    "host",
                    {"operation": operation, "bytes": size},
                    0.5,
                    partial(_transfer, session, direction, pinned, size, idle),
                )


def _transfer(session: Session, direction: str, pinned: bool, size: int, idle: bool) -> Measurement:
    if idle:
        raise Unsupported("measured on rank 0 alone")
    kernel = session.device.transfer(direction, pinned, size)
    if pinned:
        return outcome(kernel, time_blocks(session.device, kernel, TRANSFER_TIMING))
    return _by_wall_clock(session, kernel)


def _by_wall_clock(session: Session, kernel: Kernel) -> Measurement:
    """Time pageable copies, which block the host, by the wall clock around copy and synchronization."""
    device = session.device
    kernel.call(0)
    device.synchronize()
    rates = []
    for _ in range(PAGEABLE_REPEATS):
        start = device.now()
        kernel.call(0)
        device.synchronize()
        rates.append(kernel.work / (device.now() - start))
    return Measurement(unit=kernel.unit, values=rates)
