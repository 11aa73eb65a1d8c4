"""Recomputation (activation checkpointing): which activations are recomputed in the backward pass."""

from __future__ import annotations

from math import isqrt

from napkin.errors import NapkinError
from napkin.options.training import CORE_ATTENTION, MODULES, selective
from napkin.record import record

OPERATIONS = "operations"
SECOND_LINEARS = 0.5
"""Share of the linear layers that operation-level recomputation runs again: every second one (pytorch/torchtitan
torchtitan/parallelisms/parallelize_llama.py, _save_list and meta["forward_mm_count"] % 2). Experts run again in full:
neither that list nor torch's own, which took its place in March 2026, has _grouped_mm (torch 2.13
torch/_functorch/partitioners.py, get_default_op_list)."""


@record
class Recompute:
    """Which activations are recomputed in the backward pass.

    kind     none, selective (parts of each block), full (every block), every (blocks 0, K, 2K, …), group (one
             checkpoint for each run of K blocks), operations (all except the outputs of attention and of every second
             matmul)
    k        the K of every and group; 0 for group:sqrt, which takes K = ⌈√L⌉
    modules  the parts of selective (operations/recomputed_parts.py): attention's core unless others are named
    """

    kind: str = "none"
    k: int = 1
    modules: tuple[str, ...] = (CORE_ATTENTION,)

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of each block that are recomputed by themselves."""
        return self.modules if self.kind == "selective" else ()

    @property
    def apart(self) -> tuple[str, ...]:
        """The same without attention's core."""
        return tuple(one for one in self.parts if one != CORE_ATTENTION)

    def group(self, depth: int) -> int:
        """Return the number of blocks, of `depth`, that share a checkpoint."""
        if self.kind != "group":
            return 1
        return self.k or isqrt(max(depth - 1, 0)) + 1  # ⌈√L⌉

    @property
    def word(self) -> str:
        """The value of --recompute."""
        if self.apart:
            return selective(self.modules)
        return {"every": f"every:{self.k}", "group": f"group:{self.k or 'sqrt'}"}.get(self.kind, self.kind)


def recompute(text: str, where: str = "--recompute") -> Recompute:
    """Parse what is recomputed: none, selective, selective:MODULE+…, full, operations, every:K, group:K or group:sqrt.
    Raises NapkinError for other words. where: what the message names."""
    name = text.strip().lower()
    if name in ("none", "selective", "full", OPERATIONS):
        return Recompute(name)
    kind, colon, count = name.partition(":")
    if kind in ("every", "group") and colon:
        if kind == "group" and count == "sqrt":
            return Recompute("group", 0)
        if count.isascii() and count.isdigit() and 1 <= len(count) <= 9 and int(count) > 0:
            return Recompute(kind, int(count))
    if kind == "selective" and colon:
        return Recompute("selective", modules=_modules(count, where))
    raise NapkinError(
        f"{where}: unknown recomputation {text.strip()[:60]!r}",
        "none, selective, selective:MODULE+…, operations, full, every:K, group:K or group:sqrt",
    )


def _modules(text: str, where: str) -> tuple[str, ...]:
    """Return the modules of a list with + or commas, in the order of MODULES."""
    names = {name.strip().replace("-", "_") for name in text.replace("+", ",").split(",")}
    unknown = sorted(names - {*MODULES})
    if unknown:
        raise NapkinError(f"{where}: unknown module {unknown[0][:40]!r}", ", ".join(MODULES))
    return tuple(name for name in MODULES if name in names)
