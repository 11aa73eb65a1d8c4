"""The replayed backward passes of the sections of a step, cached across steps."""

from __future__ import annotations

from napkin.autograd.live import Replay, read_by_others, replays, weights_of_others
from napkin.elementwise import Flag, Number, is_array, where
from napkin.footprint.sections import Pass, Section
from napkin.training.setup import Setup


class Replays:
    """The backward passes of the sections of a pass. `BEFORE` and `AFTER` are the sections outside the layers. `table`:
    bytes of the gradient of the embedding that a tied head shares, to which the embedding's own gradient is added; 0
    without a tied head."""

    def __init__(self, run: Pass, table: Number = 0) -> None:
        self.run = run
        self.table = table
        self._shared: dict[int, dict[object, Number]] = {}

    def weights(self, kind: int) -> dict[object, Number]:
        """Return the bytes of the gradients of weights that a layer shares with others."""
        return weights_of_others(self.run.layers[kind][1].nodes)

    def shares(self, kind: int) -> dict[object, Number]:
        """Return the bytes of the gradients of what a layer shares with others: tensors, by storage, and weights."""
        if kind not in self._shared:
            nodes = self.run.layers[kind][1].nodes
            self._shared[kind] = {id(x.storage): x.size for x in read_by_others(nodes)} | weights_of_others(nodes)
        return self._shared[kind]

    def section(self, which: int) -> tuple[Section, Number]:
        """Return a section, and the bytes of the gradient that its backward pass starts from."""
        if which == BEFORE:
            return self.run.before, self.run.after.input
        if which == AFTER:
            return self.run.after, 0  # the root gradient lives as long as the backward pass
        section = self.run.layers[which][1]
        return section, section.input

    def of(
        self,
        setup: Setup,
        which: int,
        recomputed: bool = False,
        alone: bool = False,
        carried: bool = False,
    ) -> Replay:
        """Return the replay of section `which` (the index of a layer's type, BEFORE or AFTER), entry by entry if
        layouts differ in whether new gradients are freed at once. On a
        single stage the gradient of a tied head is not freed: it waits for the embedding's (live.py)."""
        section, seed = self.section(which)
        waits = where(setup.layout.pp == 1, self.table, 0) if which == AFTER else 0
        return chosen(setup.frees_gradients, replayed(section, seed, recomputed, alone, waits, carried))


BEFORE, AFTER = -2, -1


def chosen(goes: Flag, both: tuple[Replay, Replay]) -> Replay:
    """Return one of the two replays of a section, entry by entry if layouts differ."""
    kept, freed = both
    if not is_array(goes):
        return freed if goes else kept
    if goes.all() or not goes.any():
        return freed if goes.all() else kept
    return Replay(where(goes, freed.peak, kept.peak), where(goes, freed.end, kept.end))


_REPLAYS: dict[tuple[object, ...], tuple[Section, tuple[Replay, Replay]]] = {}
"""Replays by the id of their section and what else they depend on. The section is kept, so that its id stays unique."""
KEPT_REPLAYS = 64


def replayed(
    section: Section, seed: Number, recomputed: bool, alone: bool, waits: Number, carried: bool
) -> tuple[Replay, Replay]:
    """Return a section's replays, from the cache if an earlier step of the same pass had the same. Arguments: those of
    `replays` in live.py."""
    late = (section.block, section.recomputed) if recomputed and 0 < section.block < len(section.nodes) else None
    if is_array(seed) or is_array(waits):
        return replays(section.nodes, seed, recomputed, alone, waits, carried, late, section.waiting)
    asked = (id(section), seed, recomputed, alone, waits, carried)
    if asked not in _REPLAYS:
        if len(_REPLAYS) >= KEPT_REPLAYS:
            _REPLAYS.clear()
        made = replays(section.nodes, seed, recomputed, alone, waits, carried, late, section.waiting)
        _REPLAYS[asked] = section, made
    return _REPLAYS[asked][1]
