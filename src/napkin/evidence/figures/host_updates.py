"""Published updates of offloaded optimizer states on a host: the rate at which it moves their bytes, and its spread."""

from __future__ import annotations

import math

from napkin.record import record
from napkin.timing.optimizer import FUSED_ON_HOST, LOOPED_ON_HOST

BYTES = 30
"""Bytes that Adam moves of a parameter: it reads a gradient of 4, reads and writes a master copy and two moments of 4,
and writes a weight of 2."""


@record
class HostUpdate:
    """One published update by Adam: kernel, parameters that one host updates, seconds."""

    kernel: int
    params: float
    seconds: float
    source: str


ZERO_OFFLOAD = "Ren et al. 2021 (arXiv:2101.06840), table 4: 1, 4 and 10 billion parameters on 2 × Xeon 8168"
PRIME, FORK = "PrimeIntellect-ai/prime-rl pull request 3210", "ISEEKYAN/Megatron-LM issue 188"
UPDATES = (
    HostUpdate(FUSED_ON_HOST, 15e9, 0.22 + 1.03 + 2.57, ZERO_OFFLOAD),
    HostUpdate(
        FUSED_ON_HOST,
        6.738e9,
        64 / 2.05 - 64 / 4.45,
        "chenyaofo, gist d4cd6a20: LLaMA 7B, DeepSpeed ZeRO-3, 2 × Xeon 8358: 64 samples with offloading less without",
    ),
    HostUpdate(FUSED_ON_HOST, 72.7e9 / 4, 10.0, "deepspeedai/DeepSpeed issue 6834: Qwen 72B on 4 nodes, about 10 s"),
    HostUpdate(FUSED_ON_HOST, 1.2e9, 310 / 200, "deepspeedai/DeepSpeed issue 6695: 1.2B, 310 s in about 200 steps"),
    HostUpdate(
        FUSED_ON_HOST,
        4.022e9,
        5.629 - 1.566,
        "PrimeIntellect-ai/prime-rl pull request 3210: Qwen3 4B, torch's fused AdamW",
    ),
    HostUpdate(
        FUSED_ON_HOST,
        0.596e9,
        1.678 - 0.752,
        "NVIDIA-NeMo/RL pull request 3628: Qwen3 0.6B, Megatron-core, with less without",
    ),
    HostUpdate(
        FUSED_ON_HOST,
        35e9 / 2,
        15.5,
        "ISEEKYAN/Megatron-LM issue 188: Qwen3.5 35B on 2 nodes, Megatron-core's optimizer",
    ),
    HostUpdate(LOOPED_ON_HOST, 15e9, 1.39 + 5.71 + 14.76, ZERO_OFFLOAD),
    HostUpdate(LOOPED_ON_HOST, 4.022e9, 22.3 - 1.566, f"{PRIME}: the same, torch's AdamW"),
    HostUpdate(LOOPED_ON_HOST, 8 * 536.9e6, 17.2, f"{FORK}: 8 ranks with one thread each"),
)


def _logs(kernel: int) -> list[float]:
    """Return ln byte/s of the updates by this kernel."""
    return [math.log(BYTES * one.params / one.seconds) for one in UPDATES if one.kernel == kernel]


def host_rate(kernel: int) -> float:
    """Return the byte/s at which a host of published runs updates, their geometric mean."""
    logs = _logs(kernel)
    return math.exp(sum(logs) / len(logs))


def _spread() -> float:
    """Return σ of ln byte/s around the mean of its kernel, pooled over the kernels."""
    kinds = [_logs(kernel) for kernel in (FUSED_ON_HOST, LOOPED_ON_HOST)]
    squares = sum((one - sum(logs) / len(logs)) ** 2 for logs in kinds for one in logs)
    return math.sqrt(squares / sum(len(logs) - 1 for logs in kinds))


UPDATE_SPREAD = _spread()
"""σ of ln(seconds) of an update: hosts differ in memory, cores and how many of them a process may use."""
