"""The time of matrix decompositions, from published optimizer steps with and without them.

Each takes as long as this many bytes at the memory's rate for a cube of its side (m²·n for an m×n matrix). Each has one
source, so the figures have no interval; changes between library versions are unknown."""

from __future__ import annotations

from napkin.record import record
from napkin.training.optimizer_work import EIGENVECTORS, ORTHOGONAL, RENEWED, SINGULAR


@record
class SeenDecomposition:
    """Matrices decomposed on one GPU, and the extra seconds.

    matrices  (how many, m, n), m ≤ n      bandwidth  of its memory, byte/s
    """

    matrices: tuple[tuple[int, int, int], ...]
    seconds: float
    bandwidth: float
    source: str

    @property
    def bytes_of_a_cube(self) -> float:
        return self.seconds * self.bandwidth / sum(count * m * m * n for count, m, n in self.matrices)


SPEEDRUN = "KellerJordan/modded-nanogpt, records/102924_Optimizers, 8 H100, 12 layers of 768, October 2024"
SEEN = {
    EIGENVECTORS: SeenDecomposition(
        ((15, 768, 768), (3, 3072, 3072)),  # of 120 and 24 on 8 GPUs
        1.165 - 0.160,
        3.35e12,
        f"{SPEEDRUN}: DistributedShampoo, steps 4,990 to 5,100: 160 ms, every tenth 1,165 ms",
    ),
    ORTHOGONAL: SeenDecomposition(
        ((120, 768, 768), (24, 3072, 3072)),  # all of them on every GPU
        RENEWED * (0.3010 - 0.1386 - 0.0427),
        3.35e12,
        f"{SPEEDRUN}: SOAP 301.0 ms and Adam 138.6 ms a step, of which 42.7 ms for 2.09 TFLOP of fp32 products at 73% "
        "of 67 TFLOP/s",
    ),
    SINGULAR: SeenDecomposition(
        ((96, 2048, 2048), (72, 2048, 5461)),
        70.0,
        2.039e12,
        "jiaweizzhao/GaLore, issue 16: the first step of llama_1b on an A100, taken as 80 GB, 70 s; later ones 30 ms",
    ),
}
"""The measurements of each kind."""
