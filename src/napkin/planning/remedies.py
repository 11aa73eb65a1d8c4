"""What would make a step fit: changes on the same number of GPUs, and more GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from napkin.elementwise import Number
from napkin.footprint import memory
from napkin.footprint.setup import Setup
from napkin.operations.implementations import EAGER, FLASH
from napkin.operations.model import Model
from napkin.operations.queries import divides_heads
from napkin.operations.roles import EXPERT
from napkin.planning.traffic import Burden, DatasheetRates, burden
from napkin.planning.verdicts import FITS, Fit, evaluate
from napkin.record import record, replace
from napkin.training.optimizers import OPTIMIZERS
from napkin.training.recomputation import Recompute


@record
class Change:
    """One way to use less memory: the options that ask for it, and what it costs in words."""

    what: str
    setup: Setup
    cost: str


@record
class Remedy:
    """Changes that together make the step fit, verified by an evaluation of their own.

    burden  what they add to the step's recomputation, idle time and traffic
    time    of that burden, as a share of the time of the step's FLOPs at datasheet rates
    """

    changes: tuple[Change, ...]
    fit: Fit
    burden: Burden
    time: float

    @property
    def what(self) -> str:
        return " ".join(change.what for change in self.changes)

    @property
    def kinds(self) -> Iterator[str]:
        """Yield its changes, without the degree of parallelism."""
        for change in self.changes:
            name = change.what.split()[0]
            yield name if name in DEGREES else change.what

    @property
    def order(self) -> tuple[float, ...]:
        """Return the sort key, cheapest first: the time of recomputation, bubble and traffic, then fewer changes."""
        return round(self.time, 9), len(self.changes)


def changes(model: Model, setup: Setup, fixed: bool, node: int = 8) -> Iterator[Change]:
    """Yield single changes on the same GPUs. `fixed`: the global batch is given, so that fewer replicas run more
    micro-batches; `node`: the most GPUs of a tensor-parallel group."""
    yield from _implementation_changes(setup)
    yield from _sharding_changes(setup)
    eight = OPTIMIZERS.get(f"{setup.optimizer.name}-8bit")
    if eight is not None:
        what = f"--optimizer {eight.name}" + (" --optimizer-form fused" if setup.form != "fused" else "")
        yield Change(what, replace(setup, optimizer=eight, form="fused"), "states rounded to 8 bits")
    yield from _smaller_micro_batch(setup, fixed)
    for times in (2, 4, 8):
        yield from _fewer_replicas(model, setup, fixed, node, times)
    yield from _more_expert_parallelism(model, setup)
    yield from _offloading(setup)
    yield from _recomputation(setup)


def _with_layout(setup: Setup, what: str, cost: str, **fields: object) -> Change:
    return Change(what, replace(setup, layout=setup.layout.replaced(**fields)), cost)


def _implementation_changes(setup: Setup) -> Iterator[Change]:
    """Yield other implementations of the same computation."""
    if setup.attention == EAGER and FLASH in setup.implementation.kernels:
        yield Change("--attention flash", replace(setup, attention=FLASH), "nothing: fewer bytes to memory too")
    if setup.form != "fused" and "fused" in setup.optimizer.forms:
        yield Change("--optimizer-form fused", replace(setup, form="fused"), "nothing: one kernel for all tensors")


def _sharding_changes(setup: Setup) -> Iterator[Change]:
    """Yield sequence parallelism and higher ZeRO stages."""
    layout = setup.layout
    if layout.tp > 1 and not layout.sp and (layout.seq // layout.cp) % layout.tp == 0:
        yield _with_layout(setup, "--sp", "nothing: the same bytes between the same ranks", sp=1)
    if layout.dp * layout.cp > 1:
        costs = {
            1: "nothing: the same bytes in reduce-scatter and all-gather",
            2: "gradients reduced after every micro-batch",
            3: "parameters gathered in every pass",
        }
        for zero in range(int(layout.zero) + 1, 4):
            yield _with_layout(setup, f"--zero {zero}", costs[zero], zero=zero)


def _smaller_micro_batch(setup: Setup, fixed: bool) -> Iterator[Change]:
    """Yield half the micro-batch."""
    layout = setup.layout
    if layout.micro > 1:
        half = layout.micro // 2
        exact = layout.micro % 2 == 0
        if exact or not fixed:
            yield _with_layout(
                setup,
                f"--micro-batch {half}",
                "smaller matmuls",
                micro=half,
                micro_batches=layout.micro_batches * 2 if fixed else layout.pp,
            )


def _fewer_replicas(model: Model, setup: Setup, fixed: bool, node: int, times: int) -> Iterator[Change]:
    """Yield `times` the tensor, pipeline or context parallelism with as many times fewer replicas."""
    layout = setup.layout
    fewer = layout.dp // times
    if layout.dp % times or fewer % layout.ep:
        return
    keeps = not setup.shard or (fewer * layout.cp) % setup.shard == 0
    wider, deeper, longer = layout.tp * times, layout.pp * times, layout.cp * times
    tokens, whole = layout.seq // layout.cp, layout.micro_batches * times if fixed else 0
    if keeps and wider <= node and divides_heads(model, setup.implementation, int(wider)) and tokens % wider == 0:
        yield _with_layout(
            setup,
            f"--tp {wider}",
            "activations added up between the ranks of every layer",
            tp=wider,
            dp=fewer,
            sp=layout.sp if layout.tp > 1 else 1,
            micro_batches=whole or layout.pp,
        )
    assigned = layout.stages or model.shares_tensors
    if keeps and not assigned and model.stacks[-1].depth % (deeper * layout.vp) == 0:
        yield _with_layout(
            setup, f"--pp {deeper}", "a pipeline's bubble", pp=deeper, dp=fewer, micro_batches=whole or deeper
        )
    if layout.seq % (longer * layout.tp) == 0:
        cost = "keys and values passed round in every layer"
        yield _with_layout(setup, f"--cp {longer}", cost, cp=longer, dp=fewer, micro_batches=whole or layout.pp)


def _more_expert_parallelism(model: Model, setup: Setup) -> Iterator[Change]:
    """Yield twice the expert parallelism."""
    layout = setup.layout
    operations = [op for layer in model.stacks[-1].layers for op in layer.operations]
    routed = (weight.copies for op in operations for weight in op.weights() if weight.shard == EXPERT)
    fewest = min(routed, default=0)
    if fewest and layout.dp % (layout.ep * 2) == 0 and fewest % (layout.ep * 2) == 0:
        yield _with_layout(setup, f"--ep {layout.ep * 2}", "tokens between the experts' ranks", ep=layout.ep * 2)


def _offloading(setup: Setup) -> Iterator[Change]:
    """Yield what else can be offloaded to the host."""
    for what, cost in (
        ("optimizer", "gradients to the host and weights back every step; the host's processor updates"),
        ("activations", "what a layer keeps to the host and back"),
    ):
        if what not in setup.offload:
            together = (*setup.offload, what)
            yield Change(f"--offload {','.join(together)}", replace(setup, offload=together), cost)


def _recomputation(setup: Setup) -> Iterator[Change]:
    """Yield more recomputation."""
    kind = setup.layout.recompute.kind
    if kind == "none" and setup.attention == EAGER:
        yield _with_layout(setup, "--recompute selective", "attention's core again", recompute=Recompute("selective"))
    if kind in ("none", "selective"):
        yield _with_layout(
            setup, "--recompute every:2", "every second block's forward again", recompute=Recompute("every", 2)
        )
    if kind in ("none", "selective", "every"):
        yield _with_layout(setup, "--recompute full", "every block's forward again", recompute=Recompute("full"))


def suggestions(
    model: Model,
    setup: Setup,
    implementation: str,
    capacity: Number,
    compiled: bool,
    rates: DatasheetRates,
    fixed: bool = False,
    most: int = 5,
) -> list[Remedy]:
    """Return changes that make the step fit on the same GPUs, cheapest first: single ones, else combinations of up to
    four of those that help most."""
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
    model: Model,
    setup: Setup,
    implementation: str,
    capacity: Number,
    compiled: bool,
    rates: DatasheetRates,
    fixed: bool = False,
) -> Remedy | None:
    """Return the fewest doublings of the GPUs that make the step fit, states sharded over all of them."""
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


def _remedy(path: tuple[Change, ...], then: Fit, now: Fit, rates: DatasheetRates) -> Remedy:
    before, after = _burden(now), _burden(then)
    shares = (rates.share(one, fit.step.model, fit.step.setup) for one, fit in ((after, then), (before, now)))
    return Remedy(path, then, after.over(before), next(shares) - next(shares))


def _burden(found: Fit) -> Burden:
    """Return what a layout costs in time: recomputation, bubble and traffic."""
    setup = found.step.setup
    kept = found.rank.saved
    if "activations" in setup.offload:
        kept = memory.rank_of(found.step.under(replace(setup, offload=())), found.rank.stage.index).saved
    return burden(found.step.model, setup, found.rank, kept - found.rank.saved)
