"""One pass on the tape for many layouts: what the tape sees differs between few of them.

The tape depends on the micro-batch and on tensor, context, expert and sequence parallelism. Layouts that agree in these
are of one row: each row runs once, forward and backward, and its sizes are taken for every layout of the row.
"""

from __future__ import annotations

from napkin.autograd.live import Replay
from napkin.autograd.tensors import Storage, sized
from napkin.elementwise import Number, is_array, where
from napkin.footprint.activations import Pass, Piece
from napkin.footprint.prepared import (
    AFTER,
    PreparedStep,
    Replays,
    chosen,
    pass_of,
    replayed,
    stack_of_step,
    step_of,
    table_of,
)
from napkin.footprint.states import held
from napkin.operations.model import Model
from napkin.record import fields, replace
from napkin.training.setup import Setup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_AS_THEY_ARE = ("kept", "nodes")
"""Fields of a piece that only its replay and listings read."""


class Rows:
    """The pass of every row, whose setup has arrays with one entry per row."""

    def __init__(self, model: Model, setup: Setup) -> None:
        self.model, self.setup = model, setup
        self.stack = stack_of_step(model, setup)
        self.run = pass_of(model, self.stack, setup)
        self.table = held((table_of(self.stack),), setup).all * sized(1, setup.precision.grad) * model.tied
        self._replays = Replays(self.run)
        self._known: dict[tuple[int, bool, bool, bool, bool], Replay] = {}

    def step(self, setup: Setup, index: Any) -> PreparedStep:
        """Return the step of layouts; index: the row of each."""
        run = _Taken(index).all(self.run)
        return step_of(self.model, self.stack, setup, run, _OfRows(self, run, index))

    def of(self, which: int, goes: bool, again: bool, alone: bool, waits: bool) -> Replay:
        """Return the replay of a piece in every row; waits: whether the head's gradient waits for the embedding's."""
        key = (which, goes, again, alone, waits)
        if key not in self._known:
            piece, seed = self._replays.piece(which)
            self._known[key] = replayed(piece, seed, goes, again, alone, self.table if waits else 0)
        return self._known[key]


class _OfRows(Replays):
    """The replays of layouts, taken from those of their rows."""

    def __init__(self, rows: Rows, run: Pass, index: Any) -> None:
        super().__init__(run)
        self._rows, self._index = rows, index

    def of(self, setup: Setup, which: int, again: bool = False, alone: bool = False, waits: Number = 0) -> Replay:
        tied = which == AFTER and self._rows.model.tied

        def either(goes: bool) -> Replay:
            found = self._taken(which, goes, again, alone, False)
            if not (goes and tied):
                return found
            waiting = self._taken(which, goes, again, alone, True)
            single = setup.layout.pp == 1
            return Replay(*(where(single, a, b) for a, b in zip(_sizes(waiting), _sizes(found), strict=True)))

        return chosen(setup.lets_go, either)

    def _taken(self, *asked: Any) -> Replay:
        return Replay(*(_Taken(self._index).all(size) for size in _sizes(self._rows.of(*asked))))


def _sizes(found: Replay) -> tuple[Number, Number, Number]:
    return found.peak, found.end, found.weights


class _Taken:
    """Takes the entries of an index from every array of a record; a storage that several pieces share stays one."""

    def __init__(self, index: Any) -> None:
        self._index = index
        self._storages: dict[int, Storage] = {}

    def all(self, value: Any) -> Any:
        """Return a value with arrays of one entry per layout in place of those of one per row."""
        if is_array(value):
            return value[self._index]
        if isinstance(value, tuple):
            return tuple(self.all(one) for one in value)
        if isinstance(value, Storage):
            return self._storage(value)
        if isinstance(value, (Piece, Pass)):
            names = [name for name in fields(type(value)) if name not in _AS_THEY_ARE]
            return replace(value, **{name: self.all(getattr(value, name)) for name in names})
        return value

    def _storage(self, storage: Storage) -> Storage:
        if id(storage) not in self._storages:
            taken = Storage(storage.label, self.all(storage.size), storage.kind, storage.shared)
            taken.kept = self.all(storage.kept)
            self._storages[id(storage)] = taken
        return self._storages[id(storage)]
