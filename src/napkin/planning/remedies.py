"""Search combinations of options that make a step fit, practical ones first.

Every option that can save memory is an axis with levels, level 0 as asked and each further one taking less memory. A
combination is a level on each axis, so that what fits implies that every stronger combination fits too, and what does
not fit that no weaker one does. For each group of axes the strongest combination is tried first: if it does not fit,
nothing in the group does. Otherwise the axes are relaxed one after the other, the costliest first, as far as the step
still fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from napkin.planning.remedy_axes import LORA, QLORA, Axis, Options
from napkin.planning.verdicts import FITS, Fit
from napkin.record import record

Choice = tuple[int, ...]
"""A level for each axis; 0 leaves it as asked."""


@record
class Remedy:
    """Options that together make the step fit, verified by an evaluation of their own."""

    options: Options
    fit: Fit
    costs: tuple[str, ...]


TRAINER = (
    *("attention", "optimizer-form", "sp", "quantized", "quantize-experts", "zero", "micro-batch", "recompute"),
    "lora-rank",
)
"""Settings of the trainer: the same GPUs, the same tokens in a step, the same model."""
GROUPS: tuple[tuple[str, ...], ...] = (
    (*TRAINER, "tp"),
    (*TRAINER, "cp"),
    (*TRAINER, "ep"),
    (*TRAINER, "pp"),
    (*TRAINER, LORA),
    (*TRAINER, QLORA),
    (*TRAINER, "optimizer", "offload"),
    (*TRAINER, "seq"),
)
"""What else may change on the same GPUs, one group after the other."""
RELAXED = (
    *(QLORA, LORA, "lora-rank", "gpus", "seq", "offload", "optimizer", "pp", "recompute", "cp", "tp", "ep"),
    *("micro-batch", "zero", "quantize-experts", "quantized", "sp", "loss", "optimizer-form", "attention"),
)
"""The order in which axes are relaxed: what no one wants to change first, what costs nothing last."""
WITHOUT_ZERO = ("zero", *(name for name in RELAXED if name != "zero"))
"""The same for those who would rather not shard."""
MOST, ENOUGH = 3, 2
"""Remedies on the same GPUs after which no further group is tried, and no drastic one."""


TOO_LARGE = "states"
"""Of a combination whose states by themselves are larger than a GPU: it is not evaluated further."""


HOST_TOO_SMALL = "host"
"""Of a combination that fits but for what it keeps in the memory of a node's host."""


class RemedySearch:
    """What fits among the combinations of some axes, evaluated only where earlier evaluations do not tell.

    evaluate  returns the memory of a combination, TOO_LARGE or HOST_TOO_SMALL, or None if it cannot be asked"""

    def __init__(self, found: Sequence[Axis], evaluate: Callable[[Options], Fit | str | None]) -> None:
        self.axes = [axis for axis in found if axis.levels]
        self._evaluate = evaluate
        self._known: dict[Choice, Fit | str | None] = {}

    def met(self, why: str) -> bool:
        """Return whether a combination was found not to fit for this reason."""
        return why in self._known.values()

    @property
    def evaluations(self) -> int:
        """Combinations that were evaluated."""
        return len(self._known)

    def options(self, choice: Choice) -> dict[str, str | bool]:
        """Return the options of a combination; of two axes that set one option the later one counts."""
        options: dict[str, str | bool] = {}
        for axis, level in zip(self.axes, choice, strict=True):
            if level:
                options |= axis.levels[level - 1]
        return options

    def strongest(self, names: Sequence[str]) -> Choice:
        """Return the combination with every one of these axes at its last level."""
        return tuple(len(axis.levels) if axis.name in names else 0 for axis in self.axes)

    def evaluated(self, choice: Choice) -> Fit | str | None:
        """Return the memory of a combination, TOO_LARGE, or None if it cannot be asked."""
        if choice not in self._known:
            self._known[choice] = self._evaluate(self.options(choice))
        return self._known[choice]

    def fits(self, choice: Choice) -> bool:
        """Return whether a combination fits: from one that is at most as strong and fits, or at least as strong and
        does not, else by its own evaluation."""
        if choice not in self._known:
            for other, fit in self._known.items():
                if fit is None:
                    continue
                if _fits(fit) and all(a <= b for a, b in zip(other, choice, strict=True)):
                    return True
                if not _fits(fit) and all(a >= b for a, b in zip(other, choice, strict=True)):
                    return False
        return _fits(self.evaluated(choice))

    def relaxed(self, choice: Choice, order: Sequence[str]) -> Choice:
        """Return a combination that fits with its axes relaxed one after the other as far as it still fits."""
        names = [axis.name for axis in self.axes]
        for at in (names.index(name) for name in order if name in names):
            low, high = 0, choice[at]
            while low < high:
                middle = (low + high) // 2
                if self.fits((*choice[:at], middle, *choice[at + 1 :])):
                    high = middle
                else:
                    low = middle + 1
            choice = (*choice[:at], high, *choice[at + 1 :])
        return choice

    def remedy(self, choice: Choice) -> Remedy | None:
        """Return the combination as a remedy; None if its own evaluation does not fit."""
        fit = self.evaluated(choice)
        if not isinstance(fit, Fit) or not _fits(fit):
            return None
        costs = tuple(axis.cost for axis, level in zip(self.axes, choice, strict=True) if level)
        return Remedy(self.options(choice), fit, costs)


def _fits(found: Fit | str | None) -> bool:
    return isinstance(found, Fit) and found.verdict == FITS


def remedies(search: RemedySearch) -> Iterator[Remedy]:
    """Yield combinations on the same GPUs that make the step fit, none of which could be relaxed further; none where
    even all changes together do not."""
    found: list[Choice] = []
    here = [axis.name for axis in search.axes if axis.name != "gpus"]
    orders: list[tuple[Sequence[str], Sequence[str]]] = [(TRAINER, RELAXED), (TRAINER, WITHOUT_ZERO)]
    orders += [(group, RELAXED) for group in GROUPS if group[-1] in here]
    orders += [(here, RELAXED)]
    for group, order in orders:
        drastic = group[-1] in ("offload", "seq") or group is here
        last = group is here or group[-1] in (LORA, QLORA)  # only if nothing else serves
        if (last and found) or len(found) >= (ENOUGH if drastic else MOST):
            continue
        strongest = search.strongest(group)
        if not any(strongest) or not search.fits(strongest):
            continue
        choice = search.relaxed(strongest, order)
        remedy = search.remedy(choice)
        if remedy is not None and choice not in found:
            found.append(choice)
            yield remedy


ADVICE = (LORA, QLORA, "quantized", "quantize-experts", "optimizer", "lora-rank", "recompute", "loss", "seq")
"""What people who fine-tune try, in this order; then the host's memory."""
SAME_TRAINING = ("attention", "optimizer-form", "sp", "zero", "micro-batch", "recompute", "loss", "cp")
"""What leaves the training as it is, on the same GPUs; the last two if the others are not enough."""


def advice(search: RemedySearch) -> Iterator[Remedy]:
    """Yield what makes a fine-tuning step fit, in the order in which people try it: states sharded over the GPUs that
    are there, which changes nothing of the training; each change that is enough by itself; if no adapters are, as
    many changes together as it takes, before what is kept in the host's memory."""
    names = [name for name in ADVICE if name in {axis.name for axis in search.axes}]
    singles = {name: search.strongest((name,)) for name in (*names, "offload")}
    enough = [name for name in names if search.fits(singles[name])]
    chosen = [singles[name] for name in enough if name != "seq"]
    if not {LORA, QLORA, "quantized", "quantize-experts"} & set(enough):
        together = [name for name in names if name != LORA]  # which QLoRA includes
        groups = (search.strongest((*together[:count], "micro-batch")) for count in range(2, len(together) + 1))
        chosen += [choice for choice in groups if search.fits(choice)][:1]
    if "seq" in enough:  # what keeps the length comes before
        chosen.append(singles["seq"])
    if search.fits(singles["offload"]):
        chosen.append(singles["offload"])
    relaxed = dict.fromkeys(search.relaxed(choice, RELAXED) for choice in chosen if any(choice))
    sharded = _sharded(search)
    first = [] if sharded is None else [sharded]
    for choice in dict.fromkeys((*first, *relaxed)):  # each once: several may relax to the same
        remedy = search.remedy(choice)
        if remedy is not None:
            yield remedy


def _sharded(search: RemedySearch) -> Choice | None:
    """Return the least that fits of what leaves the training as it is, where sharding is a part of it."""
    groups = (
        search.strongest(SAME_TRAINING[:count]) for count in range(len(SAME_TRAINING) - 2, len(SAME_TRAINING) + 1)
    )
    strongest = next((group for group in groups if any(group) and search.fits(group)), None)
    if strongest is None:
        return None
    choice = search.relaxed(strongest, RELAXED)
    levels = {axis.name: level for axis, level in zip(search.axes, choice, strict=True)}
    return choice if levels.get("zero") or levels.get("cp") else None


def with_more_gpus(search: RemedySearch, fewest: bool) -> Remedy | None:
    """Return a combination with more GPUs that makes the step fit. fewest: with as few GPUs as can be, whatever else
    they need; else with as little else as can be."""
    everything = [axis.name for axis in search.axes]
    if "gpus" not in everything:
        return None
    others = [name for name in RELAXED if name not in ("gpus", "zero")]
    order = RELAXED if fewest else (*others, "gpus", "zero")
    for group in ((*TRAINER, "gpus"), everything):
        strongest = search.strongest(group)
        if search.fits(strongest):
            choice = search.relaxed(strongest, order)
            return search.remedy(choice) if choice[everything.index("gpus")] else None
    return None
