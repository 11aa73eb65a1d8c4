"""N3: cost, and the operation of a run."""

from __future__ import annotations

from collections.abc import Iterator

from napkin.errors import Refused
from napkin.evidence.figures.prices import PRICES
from napkin.inputs.hardware import find, shipped
from napkin.inputs.peaks import peak_name
from napkin.render.figures import to_type
from napkin.rules.case import Configuration
from napkin.rules.numbers import divisors
from napkin.rules.rule import INFO, OWN, Gain, Hit, Rule
from napkin.term import Term
from napkin.timing import interruptions
from napkin.training.tasks import PRETRAIN
from napkin.units import human

REPEATS = 4
"""Passes over pretraining data up to which repeated tokens are worth nearly as much as new ones."""
TENTH = 10
"""Share of a run to which a warm-up that is too long is shortened; schedules in use have less."""
IDLE = 0.15
"""Share of GPU-hours from which a suggestion of fewer GPUs is reported."""
SPARSE_IS = 0.05
"""Relative tolerance for taking a stated peak as the one with sparsity."""


def _sparse(case: Configuration) -> Iterator[Hit]:
    hardware = case.stated.hardware
    if hardware is None or "peak-flops" not in case.given:
        return
    own, dtype = find(hardware.slug, shipped()), peak_name(case.setup.compute)
    try:
        dense, sparse, stated = own.peak(dtype), own.sparse_peak(dtype), hardware.peak(dtype)
    except Refused:
        return
    if sparse is not None and abs(stated / sparse - 1) < SPARSE_IS:
        said = f"{human(stated, 'FLOP/s')} is the peak with 2:4 sparsity; dense {dtype} has {human(dense, 'FLOP/s')}"
        yield Hit(said, "peak-flops", ({"peak-flops": None},), edit="without --peak-flops")


def _checkpoints(case: Configuration) -> Iterator[Hit]:
    run = case.run
    if run.interval is None or run.mtbf is None or run.write is None:
        return
    best = interruptions.young(run.write, run.mtbf)
    now, then = _lost(run.write, run.mtbf, run.interval), _lost(run.write, run.mtbf, best)
    gain = min(now, 1.0) - then
    if gain >= 0.01:
        cost = case.cost * gain if case.cost is not None else None
        said = f"a checkpoint every {human(run.interval.value, 'second')} loses {min(now, 1.0):.1%} of the run"
        option, text = "checkpoint-interval", _typed(best)
        if "save-steps" in case.given and case.seconds is not None:
            option, text = "save-steps", str(max(round(float(best.value) / case.seconds), 1))
        yield Hit(said, option, ({option: text},), Gain(time=gain, cost=cost))


def _lost(write: Term, mtbf: Term, interval: Term) -> float:
    """Return the share of time for writing checkpoints and repeating work after failures."""
    return float(interruptions.lost(write, mtbf, interval).value)


def _typed(interval: Term) -> str:
    """Return an interval as it is typed, in full minutes from one minute on."""
    seconds = float(interval.value)
    return f"{round(seconds / 60)}min" if seconds >= 60 else f"{seconds:.0f}s"


def _long_warmup(case: Configuration) -> Iterator[Hit]:
    steps, warmup = case.run.steps, case.run.warmup
    if steps is not None and warmup is not None and warmup >= steps:
        said = f"warm-up of {warmup:,} steps in a run of {steps:,.0f}: the learning rate never decays"
        yield Hit(said, "warmup-steps", ({"warmup-steps": str(max(int(steps) // TENTH, 1))},))


def _too_many(case: Configuration) -> Iterator[Hit]:
    gpus, replica = int(case.layout.gpus), int(case.layout.tp * case.layout.pp * case.layout.cp)
    fewer = [n * replica for n in divisors(gpus // replica) if 8 * n * replica >= gpus > n * replica]
    batch = str(int(case.layout.global_samples))
    changes = tuple(
        {"gpus": str(n), "global-batch": batch, **({"dp": str(n // replica)} if "dp" in case.given else {})}
        for n in fewer
    )
    waits = 1 - case.part("compute") - case.part("memory_bound")  # the most that fewer GPUs can save
    if changes and waits >= IDLE and case.verdict:  # a step that does not fit needs no fewer GPUs
        said = f"{gpus:,} GPUs have little work each; fewer need fewer GPU-hours"
        yield Hit(said, "gpus", changes)


def _part_of_node(case: Configuration) -> Iterator[Hit]:
    gpus, node = int(case.layout.gpus), case.stated.node
    if node and gpus > node and gpus % node:
        nodes = -(-gpus // node)
        idle = 1 - gpus / (nodes * node)
        cost = case.cost * idle / (1 - idle) if case.cost is not None else None
        said = f"{gpus:,} GPUs leave {nodes * node - gpus} GPUs of {nodes} nodes idle"
        yield Hit(said, "gpus", ({"gpus": str(nodes * node)},), Gain(time=idle, cost=cost))


def _repeated(case: Configuration) -> Iterator[Hit]:
    epochs = case.run.epochs
    if epochs is not None and epochs > REPEATS and case.setup.task == PRETRAIN:
        share = 1 - REPEATS / epochs
        cost = case.cost * share if case.cost is not None else None
        said = f"{epochs:g} epochs; beyond {REPEATS}, repeated tokens are worth less each time"
        yield Hit(said, "epochs", ({"epochs": str(REPEATS)},), Gain(time=share, cost=cost))


def _dear(case: Configuration) -> Iterator[Hit]:
    hardware, price = case.stated.hardware, case.run.price
    known = PRICES.get(hardware.slug) if hardware is not None else None
    if known is not None and price is not None and price > known.high:
        cost = case.cost * (1 - known.high / price) if case.cost is not None else None
        said = f"${price:g} a GPU-hour is above the market of {known.date} (${known.low:g} to ${known.high:g})"
        yield Hit(said, "price", ({"price": to_type(known.high)},), Gain(cost=cost))


RULES = (
    Rule(
        "N301",
        "sparse-peak",
        "The stated peak is the one with structured sparsity",
        "Datasheets print the rate of 2:4 sparse matrices, twice the dense one. Training is dense: with it times are "
        "too short and MFU is half of what it is. What the configuration itself costs is not changed, so there is no "
        "price.",
        "llama3-8b --gpus 8 --hardware h100 --zero 3 --peak-flops 1979TFLOPS",
        find=_sparse,
        gains=OWN,
        sources=("NVIDIA H100 datasheet, footnote `with sparsity`",),
    ),
    Rule(
        "N302",
        "checkpoint-interval",
        "The checkpoint interval is far from the optimum",
        "Writing takes w/T of the time, repeating work after failures T/2M: least at T = √(2·w·M). Needs "
        "--checkpoint-interval or --save-steps, --write-bandwidth, and --mtbf or --gpu-mtbf.",
        "llama3-70b --gpus 1024 --hardware h100 --tp 8 --zero 1 --recompute full --checkpoint-interval 12h "
        "--write-bandwidth 10GB/s --mtbf 24h",
        find=_checkpoints,
        gains=OWN,
        whole="the run",
        sources=(interruptions.YOUNG,),
    ),
    Rule(
        "N303",
        "too-many-gpus",
        "Fewer GPUs would need far fewer GPU-hours",
        "With more GPUs at the same batch, each has less to compute and as much to reduce. On fewer GPUs the "
        "run takes longer and costs less.",
        "llama3.2-1b --gpus 512 --hardware h100 --zero 1 --global-batch 512 --seq 2048",
        find=_too_many,
        severity=INFO,
        least=IDLE,
        whole="the GPU-hours",
        sources=("the step model: docs/step-time.md",),
    ),
    Rule(
        "N304",
        "part-of-a-node",
        "The GPUs are not whole nodes",
        "Nodes are rented and scheduled as a unit; unused GPUs of the last node are paid for.",
        "llama3-8b --gpus 12 --hardware h100 --zero 3",
        find=_part_of_node,
        gains=OWN,
        whole="the GPUs",
        sources=("arithmetic: 1 − gpus / (nodes · GPUs of a node)",),
    ),
    Rule(
        "N305",
        "data-repeated",
        "Pretraining repeats its data more than four times",
        "For up to four epochs, repeated tokens are worth nearly as much as new ones; after that, less each "
        "time. The price is that of the epochs beyond four.",
        "llama3.2-1b --gpus 8 --hardware h100 --zero 1 --samples 1M --sample-tokens 1000 --epochs 10 --price 3",
        find=_repeated,
        gains=OWN,
        severity=INFO,
        whole="the run",
        sources=("Muennighoff et al. 2023, arXiv:2305.16264, abstract and section 5",),
    ),
    Rule(
        "N306",
        "price-above-market",
        "The price of a GPU-hour is above the market",
        "Prices of a GPU-hour are known as of a date, from public lists; contracts differ.",
        "llama3-8b --gpus 64 --hardware h100 --zero 3 --tokens 1T --price 12",
        find=_dear,
        gains=OWN,
        severity=INFO,
        sources=("the snapshots of src/napkin/evidence/figures/prices.py, each with its date and source",),
    ),
    Rule(
        "N307",
        "warmup-longer-than-run",
        "The learning rate warms up for longer than the run",
        "A run that ends during warm-up never reaches the intended learning rates. The loss of quality is not "
        "priced. Needs --warmup-steps, and --steps or --tokens.",
        "llama3.2-1b --gpus 8 --hardware h100 --zero 1 --global-batch 64 --steps 1000 --warmup-steps 2000",
        find=_long_warmup,
        gains=OWN,
        sources=("torch.optim.lr_scheduler.LinearLR, total_iters",),
    ),
)
