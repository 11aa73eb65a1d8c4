"""What would make a step fit: combinations of options, searched from the practical ones to the drastic ones.

Every option that can save memory is an axis with levels, level 0 as asked and each further one taking less memory. A
combination is a level on each axis, so that what fits implies that every stronger combination fits too, and what does
not fit that no weaker one does. For each group of axes the strongest combination is tried first: if it does not fit,
nothing in the group does. Otherwise the axes are relaxed one after the other, the costliest first, as far as the step
still fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from napkin.operations.implementations import EAGER, FLASH
from napkin.operations.model import Model
from napkin.operations.queries import divides_heads
from napkin.operations.roles import EXPERT
from napkin.planning.verdicts import FITS, Fit
from napkin.record import record
from napkin.training.optimizers import OPTIMIZERS
from napkin.training.setup import Setup

Options = Mapping[str, "str | bool"]
"""Option → its text in a changed question; True and False for flags."""
Choice = tuple[int, ...]
"""A level for each axis; 0 leaves it as asked."""


@record
class Axis:
    """One way to use less memory, level by level: the options that ask for each, and what it costs in words."""

    name: str
    levels: tuple[Options, ...]
    cost: str


@record
class Remedy:
    """Options that together make the step fit, verified by an evaluation of their own."""

    options: Options
    fit: Fit
    costs: tuple[str, ...]


TRAINER = ("attention", "optimizer-form", "sp", "quantised", "zero", "micro-batch", "recompute", "lora-rank")
"""Settings of the trainer: the same GPUs, the same tokens in a step, the same model."""
GROUPS: tuple[tuple[str, ...], ...] = (
    (*TRAINER, "tp"),
    (*TRAINER, "cp"),
    (*TRAINER, "ep"),
    (*TRAINER, "pp"),
    (*TRAINER, "optimizer", "offload"),
    (*TRAINER, "seq"),
)
"""What else may change on the same GPUs, one group after the other."""
RELAXED = (
    *("lora-rank", "gpus", "seq", "offload", "optimizer", "pp", "recompute", "cp", "tp", "ep"),
    *("micro-batch", "zero", "quantised", "sp", "optimizer-form", "attention"),
)
"""The order in which axes are relaxed: what nobody wants to change first, what costs nothing last."""
WITHOUT_ZERO = ("zero", *(name for name in RELAXED if name != "zero"))
"""The same for those who would rather not shard."""
MOST, ENOUGH = 3, 2
"""Remedies on the same GPUs after which no further group is tried, and no drastic one."""
SHORTEST = 512
"""Tokens below which no shorter sequence is suggested."""
LEAST_RANK = 8
"""LoRA's rank below which none is suggested."""
DOUBLINGS = 10
"""Doublings of the GPUs that are tried."""


def axes(model: Model, setup: Setup, given: Options, node: int) -> list[Axis]:
    """Return every axis that the setup leaves room on. given: the options of the question, by name; node: the most GPUs
    of a tensor-parallel group."""
    return [
        *_machine(setup, given),
        *_degrees(model, setup, given, node),
        *_sharding(setup, given),
        *_batch(setup),
        *_recomputation(setup),
        *_kernels(setup),
        *_adapter(setup),
        *_optimizer(setup),
        *_sequence(model, setup),
    ]


def _kernels(setup: Setup) -> Iterator[Axis]:
    """Yield other implementations of the same computation."""
    if setup.attention == EAGER and FLASH in setup.implementation.kernels:
        yield Axis("attention", ({"attention": FLASH},), "nothing: fewer bytes to memory too")
    if setup.form != "fused" and "fused" in setup.optimizer.forms:
        yield Axis("optimizer-form", ({"optimizer-form": "fused"},), "nothing: one kernel for all tensors")


def _adapter(setup: Setup) -> Iterator[Axis]:
    """Yield what LoRA can still save: frozen weights in 4 bits, a smaller rank."""
    tuning = setup.implementation.tuning
    if tuning is None:
        return
    if not tuning.quantized:
        yield Axis("quantised", ({"quantised": "nf4"}, {"quantised": "nf4-dq"}), "frozen weights rounded to 4 bits")
    if tuning.rank > LEAST_RANK:
        yield Axis("lora-rank", ({"lora-rank": str(LEAST_RANK)},), "fewer trained parameters")


def _sharding(setup: Setup, given: Options) -> Iterator[Axis]:
    """Yield sequence parallelism and higher ZeRO stages."""
    layout = setup.layout
    if layout.tp > 1 and not layout.sp and (layout.seq // layout.cp) % layout.tp == 0:
        yield Axis("sp", ({"sp": True},), "nothing: the same bytes between the same ranks")
    # Megatron's distributed optimizer names stage 1 and contradicts the others
    other: dict[str, str | bool] = {"distributed-optimizer": False} if "distributed-optimizer" in given else {}
    stages = tuple({"zero": str(stage), **other} for stage in range(int(layout.zero) + 1, 4))
    if stages:
        yield Axis("zero", stages, "states gathered from the other ranks")


def _batch(setup: Setup) -> Iterator[Axis]:
    """Yield smaller micro-batches."""
    sizes = _halves(int(setup.layout.micro), 1)
    if sizes:
        yield Axis("micro-batch", tuple({"micro-batch": str(size)} for size in sizes), "smaller matmuls")


def _halves(size: int, least: int) -> list[int]:
    """Return the size halved again and again, down to `least`."""
    found = []
    while size % 2 == 0 and size // 2 >= least:
        size //= 2
        found.append(size)
    if size > least == 1:
        found.append(1)
    return found


def _recomputation(setup: Setup) -> Iterator[Axis]:
    """Yield more recomputation."""
    kind = setup.layout.recompute.kind
    words = []
    if kind == "none" and setup.attention == EAGER:
        words.append("selective")
    if kind in ("none", "selective"):
        words.append("every:2")
    if kind in ("none", "selective", "every"):
        words.append("full")
    if words:
        yield Axis("recompute", tuple({"recompute": word} for word in words), "forward passes again")


def _optimizer(setup: Setup) -> Iterator[Axis]:
    """Yield states in 8 bits, and what can be offloaded to the host."""
    eight = OPTIMIZERS.get(f"{setup.optimizer.name}-8bit")
    if eight is not None:
        form = {"optimizer-form": "fused"} if setup.form != "fused" else {}
        yield Axis("optimizer", ({"optimizer": eight.name, **form},), "states rounded to 8 bits")
    levels: list[Options] = []
    together = list(setup.offload)
    for what in ("optimizer", "activations", "parameters"):
        if what not in together:
            together.append(what)
            zero = {"zero": "3"} if what == "parameters" else {}
            levels.append({"offload": ",".join(together), **zero})
    if levels:
        yield Axis("offload", tuple(levels), "transfers over the link to the host")


def _degrees(model: Model, setup: Setup, given: Options, node: int) -> Iterator[Axis]:
    """Yield larger tensor, pipeline, context and expert parallelism on the same GPUs, with as many times fewer
    replicas."""
    layout = setup.layout
    tp, pp, cp, ep, dp = (int(getattr(layout, name)) for name in ("tp", "pp", "cp", "ep", "dp"))
    times = [k for k in (2, 4, 8) if dp % k == 0 and dp // k % ep == 0]

    def larger(name: str, degree: int, k: int) -> Options:
        return {name: str(degree * k)} | ({"dp": str(dp // k)} if "dp" in given else {})

    wide = [k for k in times if tp * k <= node and divides_heads(model, setup.implementation, tp * k)]
    wide = [k for k in wide if (int(layout.seq) // cp) % (tp * k) == 0]
    long = [k for k in times if int(layout.seq) % (cp * k * tp) == 0]
    assigned = bool(layout.stages) or model.shares_tensors
    deep = [k for k in times if not assigned and model.stacks[-1].depth % (pp * k * int(layout.vp)) == 0]
    fewest = min(_experts(model), default=0)
    spread = [k for k in (2, 4, 8) if fewest and dp % (ep * k) == 0 and fewest % (ep * k) == 0]
    found = (
        ("tp", tuple(larger("tp", tp, k) for k in wide), "activations added up between the ranks of every layer"),
        ("cp", tuple(larger("cp", cp, k) for k in long), "keys and values passed round in every layer"),
        ("pp", tuple(larger("pp", pp, k) for k in deep), "a pipeline's bubble"),
        ("ep", tuple({"ep": str(ep * k)} for k in spread), "tokens between the experts' ranks"),
    )
    for name, levels, cost in found:
        if levels:
            yield Axis(name, levels, cost)


def _experts(model: Model) -> list[int]:
    """Return the experts of each layer that routes."""
    operations = [op for layer in model.stacks[-1].layers for op in layer.operations]
    return [weight.copies for op in operations for weight in op.weights() if weight.shard == EXPERT]


def _machine(setup: Setup, given: Options) -> Iterator[Axis]:
    """Yield more GPUs, as more replicas."""
    layout = setup.layout
    levels = []
    for times in (1 << k for k in range(1, DOUBLINGS + 1)):
        if "global-batch" in given and layout.global_batch % (layout.dp * times):
            break  # a step has no more sequences to share out
        options: dict[str, str | bool] = {}
        if "dp" in given:
            options = {"dp": str(int(layout.dp) * times), **options}
        if "gpus" in given or "dp" not in given:
            options = {"gpus": str(int(layout.gpus) * times), **options}
        levels.append(options)
    if levels:
        yield Axis("gpus", tuple(levels), "more GPUs")


def _sequence(model: Model, setup: Setup) -> Iterator[Axis]:
    """Yield shorter sequences."""
    lengths = _halves(int(setup.layout.seq), SHORTEST) if len(model.stacks) == 1 else []
    if lengths:
        yield Axis("seq", tuple({"seq": str(length)} for length in lengths), "a shorter context")


class Search:
    """What fits among the combinations of some axes, evaluated only where earlier evaluations do not tell."""

    def __init__(self, found: Sequence[Axis], evaluate: Callable[[Options], Fit | None]) -> None:
        self.axes = [axis for axis in found if axis.levels]
        self._evaluate = evaluate
        self._known: dict[Choice, Fit | None] = {}

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

    def evaluated(self, choice: Choice) -> Fit | None:
        """Return the memory of a combination; None where it cannot be asked."""
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
                if fit.verdict == FITS and all(a <= b for a, b in zip(other, choice, strict=True)):
                    return True
                if fit.verdict != FITS and all(a >= b for a, b in zip(other, choice, strict=True)):
                    return False
        fit = self.evaluated(choice)
        return fit is not None and fit.verdict == FITS

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
        """Return the combination as a remedy; None where its own evaluation does not fit."""
        fit = self.evaluated(choice)
        if fit is None or fit.verdict != FITS:
            return None
        costs = tuple(axis.cost for axis, level in zip(self.axes, choice, strict=True) if level)
        return Remedy(self.options(choice), fit, costs)


def remedies(search: Search) -> Iterator[Remedy]:
    """Yield combinations on the same GPUs that make the step fit, none of which could be relaxed further; none where
    even all changes together do not."""
    found: list[Choice] = []
    here = [axis.name for axis in search.axes if axis.name != "gpus"]
    orders: list[tuple[Sequence[str], Sequence[str]]] = [(TRAINER, RELAXED), (TRAINER, WITHOUT_ZERO)]
    orders += [(group, RELAXED) for group in GROUPS if group[-1] in here]
    orders += [(here, RELAXED)]
    for group, order in orders:
        drastic = group[-1] in ("offload", "seq") or group is here
        if (group is here and found) or len(found) >= (ENOUGH if drastic else MOST):
            continue
        strongest = search.strongest(group)
        if not any(strongest) or not search.fits(strongest):
            continue
        choice = search.relaxed(strongest, order)
        remedy = search.remedy(choice)
        if remedy is not None and choice not in found:
            found.append(choice)
            yield remedy


def with_more_gpus(search: Search, fewest: bool) -> Remedy | None:
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
