"""Whether a step fits, the largest that does, and what would make one fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from napkin.elementwise import Number, maximum
from napkin.formulas import allocator, memory
from napkin.formulas.allocator import Reported
from napkin.formulas.implementations import EAGER, FLASH, measured
from napkin.formulas.layer import AttentionCore, Experts, Model, Stack
from napkin.formulas.memory import Rank, Setup, Step
from napkin.formulas.optimizers import OPTIMIZERS
from napkin.inputs.plan import Recompute
from napkin.record import record, replace
from napkin.term import TRUE, leaf

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
    """Whether what this step keeps for backward was counted on the code itself."""
    done = {
        "autocast": setup.precision.autocast,
        "dropout": setup.dropout > 0,
        "fp32": setup.precision.compute == "fp32",
    }
    experts = any(isinstance(op, Experts) for _, layer in model.stacks[-1].runs for op in layer.operations)
    return measured(implementation, model.family, frozenset(way for way, does in done.items() if does), experts)


def spread(step: Step, implementation: str) -> tuple[float, float]:
    """How far the live bytes can lie from the formula's."""
    setup = step.setup
    if not step.run.exact:
        return allocator.ESTIMATED
    if not is_measured(step.model, setup, implementation) or setup.attention not in setup.code.kernels:
        return allocator.UNSEEN
    return allocator.SINGLE if setup.layout.gpus == 1 else allocator.PARALLEL


def worst_rank(step: Step) -> Rank:
    """The rank with the most live bytes."""
    ranks = [memory.rank_of(step, place) for place in memory.places(step.stack, step.setup.layout)]
    return max(ranks, key=lambda rank: rank.live)


def evaluate(model: Model, setup: Setup, implementation: str, capacity: Number | None, compiled: bool) -> Fit:
    """One step's memory, and whether it fits: `fits` where even the upper end does, `does not fit` where what must be
    there without any cache is already too much."""
    step = memory.prepare(model, setup)
    rank = worst_rank(step)
    live = leaf("memory/live", rank.live, "byte", TRUE)
    found = allocator.reported(live, setup.layout.gpus, compiled, spread(step, implementation), rank.flow(setup))
    return Fit(step, rank, found, verdict(found, capacity))


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
    """The model with another number of layers: its own pattern, cut or repeated."""
    last = model.stacks[-1]
    runs: list[tuple[int, object]] = []
    left, depth = layers, last.depth
    whole = left // depth
    if len(last.runs) == 1:
        runs = [(layers, last.runs[0][1])]
    else:
        for _ in range(min(whole, 64)):
            runs += last.runs
        left -= min(whole, 64) * depth
        for count, layer in last.runs:
            if left > 0:
                runs.append((min(count, left), layer))
                left -= count
        if left > 0:  # beyond 64 repetitions the order no longer matters: one long run of the last kind
            runs.append((left, last.runs[-1][1]))
    stack = Stack(last.name, last.before, tuple(runs), last.after)  # type: ignore[arg-type]
    return replace(model, stacks=(*model.stacks[:-1], stack))


# --- what would make it fit ---


@record
class Change:
    """One way to take less. `flops`: extra model FLOPs as a share of the step's; `cost`: what else it costs."""

    what: str
    setup: Setup
    flops: float
    cost: str
    rank: int


def changes(model: Model, setup: Setup) -> Iterator[Change]:
    """Single changes, cheapest first by extra FLOPs, then by bytes moved."""
    layout = setup.layout
    operations = [op for _, layer in model.stacks[-1].runs for op in layer.operations]

    def laid(what: str, flops: float, cost: str, rank: int, **fields: object) -> Change:
        return Change(what, replace(setup, layout=layout.replaced(**fields)), flops, cost, rank)

    if setup.attention == EAGER and FLASH in setup.code.kernels:
        yield Change("--attention flash", replace(setup, attention=FLASH), 0.0, "nothing", 0)
    if setup.form != "fused" and "fused" in setup.optimizer.forms:
        yield Change("--optimizer-form fused", replace(setup, form="fused"), 0.0, "nothing", 0)
    if layout.tp > 1 and not layout.sp:
        yield laid("--sp", 0.0, "nothing: the same bytes between the same ranks", 1, sp=1)
    if layout.dp * layout.cp > 1:
        moved = {1: "nothing: the same bytes in reduce-scatter and all-gather", 2: "gradients scattered every backward"}
        for zero in range(layout.zero + 1, 4):
            yield laid(
                f"--zero {zero}",
                0.0,
                moved.get(zero, "parameters gathered in every pass: 1.5 × the bytes"),
                1 + zero,
                zero=zero,
            )
    if layout.micro > 1:
        half = layout.micro // 2
        yield laid(
            f"--micro-batch {half}",
            0.0,
            "smaller products",
            5,
            micro=half,
            micro_batches=layout.micro_batches * layout.micro // half,
        )
    eight = OPTIMIZERS.get(f"{setup.optimizer.name}-8bit")
    if eight is not None:
        yield Change(f"--optimizer {eight.name}", replace(setup, optimizer=eight, form="fused"), 0.0, "8-bit states", 6)
    heads = max(
        (op.kv_heads for op in operations if isinstance(op, AttentionCore)),
        default=1,
    )
    if "optimizer" not in setup.offload:
        yield Change(
            "--offload optimizer",
            replace(setup, offload=(*setup.offload, "optimizer")),
            0.0,
            "the optimizer's states over the host's link every step",
            12,
        )
    wider = layout.tp * 2
    if (
        layout.dp % 2 == 0
        and model.heads % wider == 0
        and wider <= 8
        and heads % wider == 0
        and layout.seq % (wider * layout.cp) == 0
    ):
        yield laid(
            f"--tp {wider}", 0.0, "activations between the ranks of a layer", 7, tp=wider, dp=layout.dp // 2, sp=1
        )
    deeper = layout.pp * 2
    if layout.dp % 2 == 0 and model.stacks[-1].depth % deeper == 0:
        yield laid(
            f"--pp {deeper}", 0.0, "a pipeline's bubble", 8, pp=deeper, dp=layout.dp // 2,
            micro_batches=max(layout.micro_batches, deeper),
        )  # fmt: skip
    if layout.dp % 2 == 0 and layout.seq % (layout.cp * 2 * max(layout.tp, 1)) == 0:
        yield laid(
            f"--cp {layout.cp * 2}", 0.0, "keys and values between ranks", 9, cp=layout.cp * 2, dp=layout.dp // 2
        )
    experts = [op.experts for op in operations if isinstance(op, Experts)]
    if experts and layout.dp % (layout.ep * 2) == 0 and min(experts) % (layout.ep * 2) == 0:
        yield laid(f"--ep {layout.ep * 2}", 0.0, "tokens between experts' ranks", 7, ep=layout.ep * 2)
    if layout.recompute.kind == "none":
        if setup.attention == EAGER:
            yield laid("--recompute selective", 0.03, "attention's core again", 10, recompute=Recompute("selective"))
        yield laid("--recompute full", 1 / 3, "the whole forward pass again", 11, recompute=Recompute("full"))
    elif layout.recompute.kind in ("selective", "every"):
        yield laid("--recompute full", 1 / 3, "the whole forward pass again", 11, recompute=Recompute("full"))


def suggestions(
    model: Model, setup: Setup, implementation: str, capacity: Number, compiled: bool, most: int = 5
) -> list[tuple[tuple[Change, ...], Fit]]:
    """Changes that make it fit, each verified by its own evaluation: single ones, else combinations of two or three of
    those that help most."""
    tried: list[tuple[Change, Fit]] = []
    found: list[tuple[tuple[Change, ...], Fit]] = []
    for change in changes(model, setup):
        result = evaluate(model, change.setup, implementation, capacity, compiled)
        tried.append((change, result))
        if result.verdict == FITS:
            found.append(((change,), result))
    frontier = sorted(tried, key=lambda pair: float(maximum(pair[1].reported.used.value, 0)))[:4]
    paths: list[tuple[tuple[Change, ...], Fit]] = [((change,), result) for change, result in frontier]
    depth = 1
    while not found and depth < 4 and paths:
        longer: list[tuple[tuple[Change, ...], Fit]] = []
        for path, _ in paths[:4]:
            names = {change.what.split()[0] for change in path}
            for change in changes(model, path[-1].setup):
                if change.what.split()[0] in names:
                    continue
                result = evaluate(model, change.setup, implementation, capacity, compiled)
                longer.append(((*path, change), result))
        found = [pair for pair in longer if pair[1].verdict == FITS]
        paths = sorted(longer, key=lambda pair: float(pair[1].reported.used.value))
        depth += 1
    seen: set[frozenset[str]] = set()
    unique = []
    for path, result in sorted(found, key=lambda pair: (sum(c.flops for c in pair[0]), sum(c.rank for c in pair[0]))):
        key = frozenset(change.what for change in path)
        if key not in seen:
            seen.add(key)
            unique.append((path, result))
    return unique[:most]
