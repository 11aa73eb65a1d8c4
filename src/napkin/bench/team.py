"""The ranks of a run: a single process, or those that torchrun started. Every decision is taken by rank 0 for all."""

from __future__ import annotations

import datetime
import os
from typing import Any, Protocol, TypeVar

from napkin.errors import NapkinError
from napkin.inputs.load import printable
from napkin.units import plain

T = TypeVar("T")

TIMEOUT_S = 120


class Team(Protocol):
    """The ranks of a run."""

    rank: int
    world: int
    local_world: int

    def broadcast(self, value: T) -> T:
        """Return rank 0's value on every rank."""

    def gather(self, value: T) -> list[T]:
        """Return every rank's value, on every rank, in rank order."""

    def close(self) -> None: ...


class Alone:
    """One process."""

    rank = 0
    world = 1
    local_world = 1

    def broadcast(self, value: T) -> T:
        return value

    def gather(self, value: T) -> list[T]:
        return [value]

    def close(self) -> None:
        pass


class Torchrun:
    """Ranks over torch.distributed: the device's backend for data, gloo for the few words of control."""

    def __init__(self, torch: Any, device_kind: str, place: Any) -> None:
        distributed = torch.distributed
        self._distributed = distributed
        self.backend = "nccl" if device_kind in ("cuda", "rocm") else "gloo"
        if not distributed.is_initialized():
            options: dict[str, Any] = {"timeout": datetime.timedelta(seconds=TIMEOUT_S)}
            if self.backend == "nccl":
                options["device_id"] = place
            distributed.init_process_group(self.backend, **options)
        self.rank = distributed.get_rank()
        self.world = distributed.get_world_size()
        self.local_world = from_launcher("LOCAL_WORLD_SIZE", self.world)
        self._control = None if self.backend == "gloo" else distributed.new_group(backend="gloo")

    def broadcast(self, value: T) -> T:
        box = [value]
        self._distributed.broadcast_object_list(box, src=0, group=self._control)
        return box[0]

    def gather(self, value: T) -> list[T]:
        box: list[Any] = [None] * self.world
        self._distributed.all_gather_object(box, value, group=self._control)
        return box

    def barrier(self) -> None:
        self._distributed.barrier()

    def group_of(self, groups: list[list[int]]) -> object:
        """Return the group that this rank belongs to; every rank creates all of them, in the same order."""
        made = [(ranks, self._distributed.new_group(ranks)) for ranks in groups]
        return next(group for ranks, group in made if self.rank in ranks)

    def close(self) -> None:
        self._distributed.destroy_process_group()


def from_launcher(name: str, otherwise: int) -> int:
    """Return the number in a variable that torchrun sets. A text that is none is an error (2)."""
    text = os.environ.get(name)
    found = otherwise if text is None else plain(text)
    if found is None or found < 0:
        raise NapkinError(f"the variable {name} is {printable(text or '', 40)!r}, not a number", f"unset {name}")
    return found


def launched() -> bool:
    """Return whether torchrun (or a scheduler that sets the same variables) started this process as one of several."""
    return "RANK" in os.environ and from_launcher("WORLD_SIZE", 1) > 1
