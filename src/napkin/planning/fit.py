"""Whether a step fits, the largest that does, and what would make one fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from napkin.autograd.tape import sized
from napkin.elementwise import Number
from napkin.errors import Refused
from napkin.footprint import allocator, memory
from napkin.footprint.allocator import EXACT, Reported, Width
from napkin.footprint.memory import Rank
from napkin.footprint.prepared import Step, prepare
from napkin.footprint.setup import Setup
from napkin.footprint.stages import places
from napkin.formats import EXACT_KEPT
from napkin.inputs.model import traced_error
from napkin.operations.base import EXPERT
from napkin.operations.implementations import EAGER, FLASH, measured, mode
from napkin.operations.model import Model, Pattern
from napkin.operations.queries import divides_heads
from napkin.planning.traffic import Burden, Rates, burden
from napkin.record import record, replace
from napkin.term import TRUE, leaf
from napkin.training.optimizers import OPTIMIZERS
from napkin.training.recomputation import Recompute

FITS, UNDECIDED, NOT = "fits", "too close to call", "does not fit"
MOST = 10**9
"""No search looks beyond this."""


@record
class Fit:
    """A step against a card. `rank`: the worst one."""

    step: Step
    rank: Rank
    reported: Reported
    verdict: str


def is_measured(model: Model, setup: Setup, implementation: str) -> bool:
    """Whether what this step keeps for backward was counted on the code itself: never with 8-bit products, nor with
    what is trained beside frozen weights or a loss of its own, whose libraries were not run."""
    numbers = setup.precision
    operations = model.operations
    if not all(op.depends_on_shapes(setup.layout.seq) for op in operations):
        return False
    if numbers.compute not in EXACT_KEPT or setup.code.tuning is not None or setup.code.loss:
        return False
    precision = "autocast" if numbers.autocast else "fp32" if numbers.param == "fp32" else "bf16"
    name = mode(precision, setup.attention, setup.dropout > 0, setup.layout.micro)
    return measured(implementation, model.family, name)


def width_of(step: Step, implementation: str) -> Width:
    """How far the figures can lie from the formula's. Where nothing else is uncertain, live bytes are as far off as
    those of traced steps of the same code were."""
    setup = step.setup
    counted = is_measured(step.model, setup, implementation) and setup.attention in setup.code.kernels
    width = setup.widths[0 if setup.layout.gpus == 1 else 1][0 if counted else 1]
    if implementation != "hf" or not counted or width.live != EXACT.live:
        return width
    error = traced_error(step.model.family)
    return replace(width, live=(-error, error))


def worst_rank(step: Step) -> Rank:
    """The rank with the most live bytes."""
    ranks = [memory.rank_of(step, place) for place in places(step)]
    return max(ranks, key=lambda rank: rank.live)


def evaluate(model: Model, setup: Setup, implementation: str, capacity: Number | None, compiled: bool) -> Fit:
    """One step's memory, and whether it fits: `fits` where even the upper end does, `does not fit` where what must be
    there without any cache is already too much."""
    step = prepare(model, setup)
    rank = worst_rank(step)
    live = leaf("memory/live", rank.live, "byte", TRUE)
    width = width_of(step, implementation)
    found = allocator.reported(live, setup.layout.gpus, compiled, width, rank.flow(setup))
    copies = narrow_copies(setup, rank)
    if copies:
        found = replace(found, ends={path: (low, high + copies) for path, (low, high) in found.ends.items()})
    return Fit(step, rank, found, verdict(found, capacity))


def narrow_copies(setup: Setup, rank: Rank) -> Number:
    """Bytes of the weights' copies in a format of 8 or 4 bits that a library may keep until the backward pass, as they
    are and transposed (TransformerEngine pytorch/module/linear.py saves both; torchao's float8 keeps none): what the
    upper ends allow for."""
    compute = setup.precision.compute
    return 0 if compute in EXACT_KEPT else 2 * sized(rank.held.all, compute)


def verdict(found: Reported, capacity: Number | None) -> str:
    if capacity is None:
        return ""
    if found.least > capacity:
        return NOT
    return FITS if found.ends["memory/used"][1] <= capacity else UNDECIDED


# --- the largest that fits ---


def largest(fits: Callable[[int], bool], unit: int = 1, most: int = MOST) -> int:
    """The largest multiple of `unit` that fits, 0 where none does. More never takes less memory."""
    if not fits(unit):
        return 0
    low, high = 1, 2
    while high * unit <= most and fits(high * unit):
        low, high = high, 2 * high
    high = min(high, most // unit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * unit) else (low, middle)
    return low * unit


def with_layers(model: Model, layers: int) -> Model:
    """The model with another number of layers: its own, cut off, or its last pattern repeated further."""
    if model.shares_tensors:
        raise Refused(f"{model.name}: its layers read what others make: another number of them is another network")
    last = model.stacks[-1]
    patterns = list(last.patterns)
    if layers > last.depth:
        patterns = _without_tail(patterns)
        times, runs = patterns.pop()
        period = sum(count for count, _ in runs)
        if len(runs) > 1 and times == 1:  # nothing repeats: the last run goes on
            patterns.append((1, runs[:-1]))
            runs = runs[-1:]
        ahead = sum(n * sum(count for count, _ in some) for n, some in patterns)
        if len(runs) == 1:
            patterns.append((1, ((layers - ahead, runs[0][1]),)))
        else:
            patterns.append((-(-(layers - ahead) // period), runs))
    kept: list[Pattern] = []
    for times, runs in patterns:
        period = sum(count for count, _ in runs)
        whole = min(times, layers // period)
        if whole:
            kept.append((whole, runs))
        layers -= whole * period
        if whole < times:
            cut = []
            for count, layer in runs:
                if layers > 0:
                    cut.append((min(count, layers), layer))
                    layers -= count
            kept += [(1, tuple(cut))] if cut else []
            break
    return replace(model, stacks=(*model.stacks[:-1], replace(last, patterns=tuple(kept))))


def _without_tail(patterns: list[Pattern]) -> list[Pattern]:
    """Patterns without the last where it is only the beginning of the one before."""
    if len(patterns) < 2 or patterns[-1][0] > 1:
        return patterns
    begins, tail = patterns[-2][1], patterns[-1][1]
    *whole, (count, layer) = tail
    same = len(tail) <= len(begins) and tuple(whole) == begins[: len(whole)]
    if same and begins[len(whole)][1] is layer and count <= begins[len(whole)][0]:
        return patterns[:-1]
    return patterns


# --- what would make it fit ---


@record
class Change:
    """One way to take less: the options that ask for it, and what it costs in words."""

    what: str
    setup: Setup
    cost: str


@record
class Remedy:
    """Changes that together make it fit, verified by their own evaluation; what they add to the step's burden, and its
    time as a share of the step's FLOPs at datasheet rates."""

    changes: tuple[Change, ...]
    fit: Fit
    burden: Burden
    time: float

    @property
    def what(self) -> str:
        return " ".join(change.what for change in self.changes)

    @property
    def kinds(self) -> Iterator[str]:
        """Its changes, without the degree of what divides the work."""
        for change in self.changes:
            name = change.what.split()[0]
            yield name if name in DEGREES else change.what

    @property
    def order(self) -> tuple[float, ...]:
        """Cheapest first: by the time that FLOPs run again, idle stages and bytes moved take, then fewer changes."""
        return round(self.time, 9), len(self.changes)


def changes(model: Model, setup: Setup, fixed: bool, node: int = 8) -> Iterator[Change]:
    """Single changes on the same accelerators. `fixed`: the global batch is given, so that fewer replicas run more
    micro-batches; `node`: accelerators that tensor parallelism may join."""
    layout = setup.layout
    operations = [op for layer in model.stacks[-1].layers for op in layer.operations]
    routed = (weight.copies for op in operations for weight in op.weights() if weight.shard == EXPERT)
    fewest = min(routed, default=0)

    def laid(what: str, cost: str, **fields: object) -> Change:
        return Change(what, replace(setup, layout=layout.replaced(**fields)), cost)

    if setup.attention == EAGER and FLASH in setup.code.kernels:
        yield Change("--attention flash", replace(setup, attention=FLASH), "nothing: fewer bytes to memory too")
    if setup.form != "fused" and "fused" in setup.optimizer.forms:
        yield Change("--optimizer-form fused", replace(setup, form="fused"), "nothing: one kernel for all tensors")
    if layout.tp > 1 and not layout.sp and (layout.seq // layout.cp) % layout.tp == 0:
        yield laid("--sp", "nothing: the same bytes between the same ranks", sp=1)
    if layout.dp * layout.cp > 1:
        costs = {
            1: "nothing: the same bytes in reduce-scatter and all-gather",
            2: "gradients reduced after every micro-batch",
            3: "parameters gathered in every pass",
        }
        for zero in range(layout.zero + 1, 4):
            yield laid(f"--zero {zero}", costs[zero], zero=zero)
    eight = OPTIMIZERS.get(f"{setup.optimizer.name}-8bit")
    if eight is not None:
        what = f"--optimizer {eight.name}" + (" --optimizer-form fused" if setup.form != "fused" else "")
        yield Change(what, replace(setup, optimizer=eight, form="fused"), "states rounded to 8 bits")
    if layout.micro > 1:
        half = layout.micro // 2
        exact = layout.micro % 2 == 0
        if exact or not fixed:
            yield laid(
                f"--micro-batch {half}",
                "smaller products",
                micro=half,
                micro_batches=layout.micro_batches * 2 if fixed else layout.pp,
            )
    for times in (2, 4, 8):
        fewer = layout.dp // times
        if layout.dp % times or fewer % layout.ep:
            continue
        keeps = not setup.shard or (fewer * layout.cp) % setup.shard == 0
        wider, deeper, longer = layout.tp * times, layout.pp * times, layout.cp * times
        tokens, whole = layout.seq // layout.cp, layout.micro_batches * times if fixed else 0
        if keeps and wider <= node and divides_heads(model, setup.code, wider) and tokens % wider == 0:
            yield laid(
                f"--tp {wider}",
                "activations added up between the ranks of every layer",
                tp=wider,
                dp=fewer,
                sp=layout.sp if layout.tp > 1 else 1,
                micro_batches=whole or layout.pp,
            )
        dealt = layout.stages or model.shares_tensors
        if keeps and not dealt and model.stacks[-1].depth % (deeper * layout.vp) == 0:
            yield laid(f"--pp {deeper}", "a pipeline's bubble", pp=deeper, dp=fewer, micro_batches=whole or deeper)
        if layout.seq % (longer * layout.tp) == 0:
            cost = "keys and values passed round in every layer"
            yield laid(f"--cp {longer}", cost, cp=longer, dp=fewer, micro_batches=whole or layout.pp)
    if fewest and layout.dp % (layout.ep * 2) == 0 and fewest % (layout.ep * 2) == 0:
        yield laid(f"--ep {layout.ep * 2}", "tokens between the experts' ranks", ep=layout.ep * 2)
    for what, cost in (
        ("optimizer", "gradients to the host and weights back every step; the host's processor updates"),
        ("activations", "what a layer keeps to the host and back"),
    ):
        if what not in setup.offload:
            together = (*setup.offload, what)
            yield Change(f"--offload {','.join(together)}", replace(setup, offload=together), cost)
    kind = layout.recompute.kind
    if kind == "none" and setup.attention == EAGER:
        yield laid("--recompute selective", "attention's core again", recompute=Recompute("selective"))
    if kind in ("none", "selective"):
        yield laid("--recompute every:2", "every second block's forward again", recompute=Recompute("every", 2))
    if kind in ("none", "selective", "every"):
        yield laid("--recompute full", "every block's forward again", recompute=Recompute("full"))


def suggestions(
    model: Model,
    setup: Setup,
    implementation: str,
    capacity: Number,
    compiled: bool,
    rates: Rates,
    fixed: bool = False,
    most: int = 5,
) -> list[Remedy]:
    """Changes that make it fit on the same accelerators, cheapest first: single ones, else combinations of up to four
    of those that help most."""
    now = evaluate(model, setup, implementation, capacity, compiled)
    used = now.reported.used.value
    idle: set[str] = set()

    def tried(path: tuple[Change, ...]) -> Remedy:
        return _remedy(path, evaluate(model, path[-1].setup, implementation, capacity, compiled), now, rates)

    paths: list[tuple[Change, ...]] = [()]
    found: list[Remedy] = []
    seen: set[frozenset[str]] = set()
    while not found and paths and len(paths[0]) < DEEPEST:
        remedies = []
        for path in paths:
            names = {change.what.split()[0] for change in path}
            for change in changes(model, path[-1].setup if path else setup, fixed, rates.node):
                together = frozenset((*(c.what for c in path), change.what))
                if change.what.split()[0] not in names | idle and together not in seen:
                    seen.add(together)
                    remedies.append(tried((*path, change)))
        found = [remedy for remedy in remedies if remedy.fit.verdict == FITS]
        if len(paths[0]) == 0:  # what saves nothing by itself is not tried in combinations
            helps = {one.what.split()[0] for one in remedies if one.fit.reported.used.value < used}
            idle = {one.what.split()[0] for one in remedies} - helps
        remedies.sort(key=lambda remedy: float(remedy.fit.reported.used.value))
        paths = [remedy.changes for remedy in remedies[:KEPT]]
    shown: dict[frozenset[str], Remedy] = {}  # of several degrees of one kind of parallelism the cheapest
    for remedy in sorted(found, key=lambda remedy: remedy.order):
        shown.setdefault(frozenset(remedy.kinds), remedy)
    return list(shown.values())[:most]


def wider(
    model: Model, setup: Setup, implementation: str, capacity: Number, compiled: bool, rates: Rates, fixed: bool = False
) -> Remedy | None:
    """The fewest doublings of the accelerators that make it fit, states divided among all of them."""
    layout = setup.layout
    now = evaluate(model, setup, implementation, capacity, compiled)
    for times in (2**k for k in range(1, DOUBLINGS + 1)):
        if fixed and layout.micro_batches % times:
            return None
        m = layout.micro_batches // times if fixed else layout.micro_batches
        wide = layout.replaced(dp=layout.dp * times, zero=3, micro_batches=m)
        what = f"--gpus {wide.gpus}" + ("" if layout.zero == 3 else " --zero 3")
        change = Change(what, replace(setup, layout=wide), f"{times} × the accelerators")
        result = evaluate(model, change.setup, implementation, capacity, compiled)
        if result.verdict == FITS:
            return _remedy((change,), result, now, rates)
    return None


DEGREES = ("--tp", "--pp", "--cp")
DEEPEST, KEPT, DOUBLINGS = 4, 4, 10
"""Changes in one combination; combinations that a further change is tried on; doublings of the accelerators."""


def _remedy(path: tuple[Change, ...], then: Fit, now: Fit, rates: Rates) -> Remedy:
    before, after = _burden(now), _burden(then)
    shares = (rates.share(one, fit.step.model, fit.step.setup) for one, fit in ((after, then), (before, now)))
    return Remedy(path, then, after.over(before), next(shares) - next(shares))


def _burden(found: Fit) -> Burden:
    """What a layout costs beside memory."""
    setup = found.step.setup
    kept = found.rank.saved
    if "activations" in setup.offload:
        kept = memory.rank_of(found.step.under(replace(setup, offload=())), found.rank.stage.index).saved
    return burden(found.step.model, setup, found.rank, kept - found.rank.saved)
