"""Search for combinations of options that make a step fit, practical ones first.

Every option that can save memory is an axis with levels: level 0 is the given value, and each further level takes less
memory. A combination has a level on each axis. If it fits, every stronger combination fits; if it does not, no weaker
one does. For each group of axes the strongest combination is tried first: if it does not fit, nothing in the group
does. Otherwise the axes are relaxed one by one, the costliest first, as far as the step still fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from napkin.options.command_line import option_piece
from napkin.planning.remedy_axes import LORA, QLORA, Axis, Options
from napkin.planning.verdicts import FITS, Fit
from napkin.record import record

Choice = tuple[int, ...]
"""A level for each axis; 0 leaves it as given."""


@record
class Remedy:
    """Options that together make the step fit, verified by evaluation."""

    options: Options
    fit: Fit
    costs: tuple[str, ...]

    @property
    def change(self) -> str:
        """The options as they are typed."""
        return " ".join(option_piece(name, text) for name, text in self.options.items())


TRAINER = (
    *("save", "attention", "optimizer-form", "sp", "frozen", "quantized", "quantize-experts"),
    *("zero", "micro-batch", "recompute", "lora-rank", "share", "away", "logprobs"),
)
"""Settings of the trainer, and of an engine on its GPUs: the same GPUs, the same tokens in a step, the same model."""
GROUPS: tuple[tuple[str, ...], ...] = (
    (*TRAINER, "tp"),
    (*TRAINER, "cp"),
    (*TRAINER, "ep"),
    (*TRAINER, "pp"),
    (*TRAINER, LORA),
    (*TRAINER, QLORA),
    (*TRAINER, "seq", LORA),
    (*TRAINER, "seq", QLORA),
    (*TRAINER, "optimizer", "offload"),
    (*TRAINER, "cp", "seq"),
    (*TRAINER, "seq"),
)
"""Further groups of axes on the same GPUs, in the order in which they are added."""
RELAXED = (
    *(QLORA, LORA, "lora-rank", "gpus", "seq", "offload", "optimizer", "pp", "recompute", "cp", "tp", "ep"),
    *("micro-batch", "share", "zero", "away", "logprobs", "quantize-experts", "quantized", "frozen", "sp", "loss"),
    *("optimizer-form", "attention", "save"),
)
"""The order in which axes are relaxed: the least desirable changes first, free ones last."""
WITHOUT_ZERO = ("zero", *(name for name in RELAXED if name != "zero"))
"""The same order for users who prefer not to shard."""
DEGREES = (("tp",), ("cp",), ("ep",), ("pp",), ("tp", "cp"), ("tp", "pp"))
"""Degrees that are combined with more GPUs, if sharding over them is not enough."""
DIVIDING = ("pp", "cp", "ep", "tp")
"""Degrees whose product may exceed the GPUs, the first to be given up first."""
MOST, ENOUGH = 3, 2
"""Numbers of remedies on the same GPUs after which no further group, and no drastic group, is tried."""


TOO_LARGE = "states"
"""Result for a combination whose states alone exceed a GPU; it is not evaluated further."""


HOST_TOO_SMALL = "host"
"""Result for a combination that fits the GPU but not host memory."""


class RemedySearch:
    """The combinations of some axes that fit; each is evaluated only if earlier evaluations do not decide it.

    evaluate  returns the memory of a combination, TOO_LARGE or HOST_TOO_SMALL, or None if it is not valid"""

    def __init__(self, found: Sequence[Axis], evaluate: Callable[[Options], Fit | str | None]) -> None:
        self.axes = [axis for axis in found if axis.levels]
        self.evaluate = evaluate
        self._known: dict[Choice, Fit | str | None] = {}

    def met(self, why: str) -> bool:
        """Return whether a combination was found not to fit for this reason."""
        return why in self._known.values()

    @property
    def evaluations(self) -> int:
        """Combinations that were evaluated."""
        return len(self._known)

    def options(self, choice: Choice) -> dict[str, str | bool]:
        """Return the options of a combination; if two axes set the same option, the later one counts."""
        options: dict[str, str | bool] = {}
        for axis, level in zip(self.axes, choice, strict=True):
            if level:
                options |= axis.levels[level - 1]
        return options

    def strongest(self, names: Sequence[str]) -> Choice:
        """Return the combination with every one of these axes at its last level, but offloading no more than the host
        has room for, with a batch and a sequence that the ranks can divide, a ZeRO stage with which the software has
        the ranks, and no larger degrees than there are GPUs."""
        choice = tuple(len(axis.levels) if axis.name in names else 0 for axis in self.axes)
        if self._implied(choice) is None:
            fewer = self._weaker(choice, "gpus", None)
            choice = choice if self.evaluated(fewer) is None else fewer
        divided = self._weaker(choice, "seq", None)
        degrees = any(level and axis.name in DIVIDING for axis, level in zip(self.axes, choice, strict=True))
        if degrees and not self._implied(divided) and self.evaluated(divided) is None:
            staged = self._weaker(choice, "zero", None)
            if self.evaluated(staged) is not None:
                return self._weaker(staged, "offload", HOST_TOO_SMALL)
            for name in DIVIDING:
                choice = self._weaker(choice, name, None)
            divided = choice
        return self._weaker(divided, "offload", HOST_TOO_SMALL)

    def _weaker(self, choice: Choice, name: str, problem: str | None) -> Choice:
        """Return a combination with an axis relaxed until its evaluation is not this problem."""
        at = next((at for at, axis in enumerate(self.axes) if axis.name == name), None)
        while at is not None and choice[at] and self.evaluated(choice) == problem:
            choice = (*choice[:at], choice[at] - 1, *choice[at + 1 :])
        return choice

    def evaluated(self, choice: Choice) -> Fit | str | None:
        """Return the memory of a combination, TOO_LARGE, or None if it is not valid."""
        if choice not in self._known:
            self._known[choice] = self.evaluate(self.options(choice))
        return self._known[choice]

    def fits(self, choice: Choice) -> bool:
        """Return whether a combination fits: implied by a weaker one that fits or a stronger one that does not, else by
        evaluation."""
        implied = None if choice in self._known else self._implied(choice)
        return _fits(self.evaluated(choice)) if implied is None else implied

    def _implied(self, choice: Choice) -> bool | None:
        """Return whether a combination fits, as evaluations of weaker or stronger ones tell; None if they do not."""
        for other, fit in self._known.items():
            if fit is None or fit == HOST_TOO_SMALL:  # the host may have room for a weaker one
                continue
            if _fits(fit) and all(a <= b for a, b in zip(other, choice, strict=True)):
                return True
            if not _fits(fit) and all(a >= b for a, b in zip(other, choice, strict=True)):
                return False
        return None

    def relaxed(self, choice: Choice, order: Sequence[str]) -> Choice:
        """Return a combination with its axes relaxed one by one as far as it still fits."""
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
        """Return the combination as a remedy; None if its evaluation does not fit."""
        fit = self.evaluated(choice)
        if not isinstance(fit, Fit) or not _fits(fit):
            return None
        costs = tuple(axis.cost for axis, level in zip(self.axes, choice, strict=True) if level)
        return Remedy(self.options(choice), fit, costs)


def _fits(found: Fit | str | None) -> bool:
    return isinstance(found, Fit) and found.verdict == FITS


def remedies(search: RemedySearch) -> Iterator[Remedy]:
    """Yield combinations on the same GPUs that make the step fit, none of which could be relaxed further; none if even
    all changes together do not."""
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


ADVICE = (LORA, "frozen", QLORA, "quantized", "quantize-experts", "optimizer", "lora-rank", "recompute", "loss", "seq")
"""What practitioners try for fine-tuning, in this order; then host memory."""
SAME_TRAINING = ("save", "attention", "optimizer-form", "sp", "zero", "micro-batch", "recompute", "loss", "cp")
"""Changes on the same GPUs that do not affect the training; the last two only if the others are not enough."""


def advice(search: RemedySearch) -> Iterator[Remedy]:
    """Yield remedies for a fine-tuning step in the order in which practitioners try them: sharding over the given GPUs,
    which does not affect the training; each single change that is enough; if no adapter is enough, a combination of
    changes; then host memory, with other changes if nothing else is enough."""
    names = [name for name in ADVICE if name in {axis.name for axis in search.axes}]
    singles = {name: search.strongest((name,)) for name in (*names, "offload")}
    enough = [name for name in names if search.fits(singles[name])]
    chosen = [singles[name] for name in enough if name != "seq"]
    if not {LORA, "frozen", QLORA, "quantized", "quantize-experts"} & set(enough):
        together = [name for name in names if name != LORA]  # which QLoRA includes
        groups = (search.strongest((*together[:count], "micro-batch")) for count in range(2, len(together) + 1))
        chosen += [choice for choice in groups if search.fits(choice)][:1]
    if "seq" in enough:  # what keeps the length comes before
        chosen.append(singles["seq"])
    if search.fits(singles["offload"]):
        chosen.append(singles["offload"])
    elif not any(map(any, chosen)):  # nothing without the host's memory, nor that alone
        with_host = search.strongest((*names, "micro-batch", "offload"))
        chosen += [with_host] if search.fits(with_host) else []
    relaxed = dict.fromkeys(search.relaxed(choice, RELAXED) for choice in chosen if any(choice))
    sharded = _sharded(search)
    first = [] if sharded is None else [sharded]
    for choice in dict.fromkeys((*first, *relaxed)):  # each once: several may relax to the same
        remedy = search.remedy(choice)
        if remedy is not None:
            yield remedy


def _sharded(search: RemedySearch) -> Choice | None:
    """Return the weakest combination of changes that do not affect the training that fits, if it shards what was not
    sharded."""
    groups = (
        search.strongest(SAME_TRAINING[:count]) for count in range(len(SAME_TRAINING) - 2, len(SAME_TRAINING) + 1)
    )
    strongest = next((group for group in groups if any(group) and search.fits(group)), None)
    if strongest is None:
        return None
    choice = search.relaxed(strongest, RELAXED)
    levels = {axis.name: level for axis, level in zip(search.axes, choice, strict=True)}
    return choice if any(levels.get(name) for name in ("zero", "cp", "save")) else None


def with_more_gpus(search: RemedySearch) -> Remedy | None:
    """Return a combination with more GPUs that makes the step fit: the fewest on which it does, or, if other changes do
    on the given ones, those on which it needs the fewest other changes."""
    everything = [axis.name for axis in search.axes]
    if "gpus" not in everything:
        return None
    divided = [(*TRAINER, *degrees, "gpus") for degrees in DEGREES if set(degrees) <= set(everything)]
    groups = ([(*TRAINER, "gpus")], divided, [everything])
    sparing = (*(name for name in RELAXED if name not in ("gpus", "zero")), "gpus", "zero")
    return _with_more(search, groups, RELAXED) or _with_more(search, ([("zero", "gpus")], *groups), sparing)


def _with_more(search: RemedySearch, several: Sequence[Sequence[Sequence[str]]], order: Sequence[str]) -> Remedy | None:
    """Return the combination with the fewest more GPUs that makes the step fit, of the first of several lists of groups
    of axes in which there is one, relaxed in this order."""
    at = [axis.name for axis in search.axes].index("gpus")
    for groups in several:
        strongest = [search.strongest(group) for group in groups]
        found = [search.relaxed(choice, order) for choice in strongest if search.fits(choice)]
        if any(_only_shards(search, choice) for choice in found):
            return None  # which every further group would be relaxed to
        larger = [choice for choice in found if choice[at]]
        if larger:
            return search.remedy(min(larger, key=lambda one: one[at]))
    return None


def _only_shards(search: RemedySearch, choice: Choice) -> bool:
    """Return whether a combination changes nothing but the sharding over the given GPUs."""
    return not any(level for axis, level in zip(search.axes, choice, strict=True) if axis.name != "zero")
