"""How thorough a run is, and the seconds that each part is planned to take."""

from __future__ import annotations

from dataclasses import dataclass

from napkin.bench.timing import Hold, Timing

GROUPS = ("matmul", "memory", "host", "train", "collectives")
MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class Mode:
    """`dtypes` are those measured unless --dtype says otherwise; a device that lacks one reports it unsupported."""

    name: str
    dtypes: tuple[str, ...]
    hold: Hold
    first: float  # seconds for each shape in the first round of the race
    walk: bool  # along k after the race
    holds: int  # how many of the best bf16 shapes are held for the sustained figure; one in other formats
    stream_bytes: tuple[int, ...]
    transfer_bytes: tuple[int, ...]
    compiled: bool
    layers: tuple[int, ...]  # depths of the training step
    sequence: int
    steps: int
    collective_bytes: tuple[int, ...]


QUICK = Mode(
    name="quick",
    dtypes=("bf16", "tf32"),
    hold=Hold(window=4.0, settle_min=1.0, settle_max=3.0),
    first=1e-3,
    walk=False,
    holds=1,
    stream_bytes=(GIB,),
    transfer_bytes=(256 * MIB,),
    compiled=False,
    layers=(2,),
    sequence=2048,
    steps=10,
    collective_bytes=(MIB, 32 * MIB, 512 * MIB),
)
DEFAULT = Mode(
    name="default",
    dtypes=("bf16", "fp8_e4m3", "tf32"),
    hold=Hold(),
    first=4e-3,
    walk=True,
    holds=1,
    stream_bytes=(GIB, 4 * GIB),
    transfer_bytes=(16 * MIB, 256 * MIB),
    compiled=True,
    layers=(2, 6),
    sequence=4096,
    steps=20,
    collective_bytes=tuple(1 << power for power in range(15, 31, 3)),
)
FULL = Mode(
    name="full",
    dtypes=("fp64", "fp32", "tf32", "bf16", "fp16", "fp8_e4m3", "int8", "mxfp8", "mxfp4", "nvfp4"),
    hold=Hold(),
    first=4e-3,
    walk=True,
    holds=3,
    stream_bytes=(256 * MIB, GIB, 4 * GIB),
    transfer_bytes=(MIB, 16 * MIB, 256 * MIB, GIB),
    compiled=True,
    layers=(2, 6),
    sequence=4096,
    steps=20,
    collective_bytes=tuple(1 << power for power in range(15, 33)),
)

# A host has no boost clock to wait for and is a thousand times slower: short blocks and short holds say the same.
HOST_TIMING = Timing(blocks=5, min_block=2e-3, warmup=1)
HOST_HOLD = Hold(window=0.2, sub_window=0.02, settle_min=0.0, settle_max=0.1)
DEVICE_TIMING = Timing()
BURST_TIMING = Timing(blocks=10, min_block=3e-3, warmup=3, idle=0.3, watch=2e-3)
