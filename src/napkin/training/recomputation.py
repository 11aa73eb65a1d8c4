"""Recomputation (activation checkpointing): which activations are recomputed in the backward pass."""

from __future__ import annotations

from math import isqrt

from napkin.errors import NapkinError
from napkin.record import record

OPERATIONS = "operations"
SECOND_LINEARS = 0.5
"""Share of the linear layers that operation-level recomputation runs again: every second one (pytorch/torchtitan
torchtitan/parallelisms/parallelize_llama.py, _save_list and meta["forward_mm_count"] % 2)."""


@record
class Recompute:
    """Which activations are recomputed in the backward pass.

    kind     none, selective (attention's core), full (every block), every (blocks 0, K, 2K, …), group (one checkpoint
             for each run of K blocks), operations (all except the outputs of attention and of every second matmul)
    k        the K of every and group; 0 for group:sqrt, which takes K = ⌈√L⌉
    """

    kind: str = "none"
    k: int = 1

    def group(self, depth: int) -> int:
        """Return the number of blocks, of `depth`, that share a checkpoint."""
        if self.kind != "group":
            return 1
        return self.k or isqrt(max(depth - 1, 0)) + 1  # ⌈√L⌉

    @property
    def word(self) -> str:
        """The value of --recompute."""
        return {"every": f"every:{self.k}", "group": f"group:{self.k or 'sqrt'}"}.get(self.kind, self.kind)


def recompute(text: str, where: str = "--recompute") -> Recompute:
    """Parse what is recomputed: none, selective, full, operations, every:K, group:K or group:sqrt. Raises NapkinError
    for other words. where: what the message names."""
    name = text.strip().lower()
    if name in ("none", "selective", "full", OPERATIONS):
        return Recompute(name)
    kind, colon, count = name.partition(":")
    if kind in ("every", "group") and colon:
        if kind == "group" and count == "sqrt":
            return Recompute("group", 0)
        if count.isascii() and count.isdigit() and 1 <= len(count) <= 9 and int(count) > 0:
            return Recompute(kind, int(count))
    raise NapkinError(
        f"{where}: unknown recomputation {text.strip()[:60]!r}",
        "none, selective, operations, full, every:K, group:K or group:sqrt",
    )
