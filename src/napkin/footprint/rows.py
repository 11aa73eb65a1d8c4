"""One pass on the tape for many layouts, of which few differ on the tape.

The tape depends on the micro-batch and on tensor, context, expert and sequence parallelism. Layouts that agree in these
form a row. Each row runs once, forward and backward, and its sizes apply to every layout of the row."""

from __future__ import annotations

from napkin.autograd.live import Replay
from napkin.autograd.tensors import Storage
from napkin.elementwise import Array, Flag, Number, is_array, where
from napkin.footprint.local_weights import LocalWeights
from napkin.footprint.prepared import PreparedStep, order_of_run, pass_of, stack_of_step, step_of, table_gradient
from napkin.footprint.rank_weights import Weights, weights_on_a_rank
from napkin.footprint.replays import AFTER, Replays, chosen, replayed
from napkin.footprint.sections import Pass, Section
from napkin.operations.model import Model
from napkin.record import fields, replace
from napkin.training.order import Order
from napkin.training.setup import Setup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    T = TypeVar("T")

_RECORDS = (Pass, Section, Replay, Weights, LocalWeights)
_AS_THEY_ARE = ("kept", "nodes", "kinds", "patterns")
"""Fields that hold no sizes, or that only replays and listings read."""


class Rows:
    """The pass of every row, whose setup has arrays with one entry per row."""

    def __init__(self, model: Model, setup: Setup) -> None:
        self.model, self.setup = setup.held(model), setup
        self.stack = stack_of_step(self.model, setup)
        self.run = pass_of(model, self.stack, setup)
        self._replays = Replays(self.run)
        self._known: dict[tuple[int, bool, bool, bool, bool], tuple[Replay, Replay]] = {}
        self._known_weights: dict[bool, Weights] = {}
        self.table = table_gradient(self.model, setup, self._held(True))

    def step(self, setup: Setup, index: object) -> PreparedStep:
        """Return the step of layouts; index: the row of each."""
        run = _Taker(index).all(self.run)
        return step_of(self.model, self.stack, setup, _OfRows(self, run, index), self._weights(setup, index))

    def order(self, setup: Setup) -> Order:
        """Return the order of the layers, which is the same for every row."""
        return order_of_run(self.model, self.run, setup)

    def _weights(self, setup: Setup, index: object) -> Weights:
        """Return the weights on a rank of each layout; with a tied head, a single stage holds less than two."""
        if not self.model.tied:
            return _Taker(index).all(self._held(False))
        single, several = (_Taker(index).all(self._held(one)) for one in (True, False))
        return _either(setup.layout.pp == 1, single, several)

    def _held(self, single: bool) -> Weights:
        """Return the weights on a rank of each row; single: without a pipeline."""
        if single not in self._known_weights:
            setup = replace(self.setup, layout=self.setup.layout.replaced(pp=1 if single else 2))
            self._known_weights[single] = weights_on_a_rank(self.model, self.stack, setup, self.run.kinds)
        return self._known_weights[single]

    def shares(self, kind: int) -> dict[object, Number]:
        """Return the bytes of the gradients of what a layer shares with others, in every row."""
        return self._replays.shares(kind)

    def of(self, which: int, recomputed: bool, alone: bool, waits: bool, carried: bool) -> tuple[Replay, Replay]:
        """Return the replays of a section in every row.

        which  the index of a layer's type, BEFORE or AFTER
        waits  the head's gradient waits for the embedding's

        The other arguments are those of `replays` in live.py."""
        key = (which, recomputed, alone, waits, carried)
        if key not in self._known:
            section, seed = self._replays.section(which)
            self._known[key] = replayed(section, seed, recomputed, alone, self.table if waits else 0, carried)
        return self._known[key]


class _OfRows(Replays):
    """The replays for the layouts of one setup, taken from their rows."""

    def __init__(self, rows: Rows, run: Pass, index: object) -> None:
        super().__init__(run)
        self._rows, self._taker = rows, _Taker(index)
        self._of_layouts: dict[tuple[object, ...], Replay] = {}

    def shares(self, kind: int) -> dict[object, Number]:
        sizes = self._rows.shares(kind)
        return {key: self._taker.all(size) for key, size in sizes.items()}

    def weights(self, kind: int) -> dict[object, Number]:
        shared = super().weights(kind)
        return {key: size for key, size in self.shares(kind).items() if key in shared}

    def of(
        self,
        setup: Setup,
        which: int,
        recomputed: bool = False,
        alone: bool = False,
        carried: bool = False,
    ) -> Replay:
        key = (which, recomputed, alone, carried)
        if key not in self._of_layouts:
            both = self._taker.all(self._rows.of(which, recomputed, alone, False, carried))
            if which == AFTER and self._rows.model.tied:
                _, waiting = self._taker.all(self._rows.of(which, recomputed, alone, True, carried))
                both = both[0], _either(setup.layout.pp == 1, waiting, both[1])
            self._of_layouts[key] = chosen(setup.frees_gradients, both)
        return self._of_layouts[key]


def _either(condition: Flag, yes: T, no: T) -> T:
    """Return a record with fields from `yes` if the condition holds, else from `no`."""
    found: T = _either_of(condition, yes, no)
    return found


def _either_of(condition: Flag, yes: Any, no: Any) -> Any:
    if isinstance(yes, _RECORDS):
        names = fields(type(yes))
        return replace(yes, **{name: _either_of(condition, getattr(yes, name), getattr(no, name)) for name in names})
    if isinstance(yes, tuple):
        return tuple(_either_of(condition, a, b) for a, b in zip(yes, no, strict=True))
    return yes if yes is no or isinstance(yes, str) else where(condition, yes, no)


class _Taker:
    """Indexes every array of a record; a storage that several sections share stays one object."""

    def __init__(self, index: object) -> None:
        self._index = index
        self._storages: dict[int, Storage] = {}
        self._arrays: dict[int, tuple[Array, Array]] = {}

    def all(self, value: T) -> T:
        """Return a value with one entry per layout in place of one per row."""
        found: T = self._of(value)
        return found

    def _of(self, value: Any) -> Any:
        if is_array(value):
            return self._entries(value)
        if isinstance(value, tuple):
            return tuple(self._of(one) for one in value)
        if isinstance(value, Storage):
            return self._storage(value)
        if isinstance(value, _RECORDS):
            names = [name for name in fields(type(value)) if name not in _AS_THEY_ARE]
            return replace(value, **{name: self._of(getattr(value, name)) for name in names})
        return value

    def _entries(self, sizes: Array) -> Array:
        """Return an array's entries, cached for arrays that several records hold."""
        known = self._arrays.get(id(sizes))
        if known is None:
            known = self._arrays[id(sizes)] = (sizes, sizes.take(self._index))
        return known[1]

    def _storage(self, storage: Storage) -> Storage:
        if id(storage) not in self._storages:
            taken = Storage(storage.label, self._of(storage.size), storage.kind, storage.shared)
            taken.kept = self._of(storage.kept)
            self._storages[id(storage)] = taken
        return self._storages[id(storage)]
