"""`napkin memory`: what each GPU holds while training, bucket by bucket, and what is left for activations."""

from __future__ import annotations

from napkin.cli.command import Command, Inputs
from napkin.cli.layout import SETUP_DEFAULTS, SETUP_OPTIONS, setup_of
from napkin.cli.machine import accelerator
from napkin.cli.model import MODEL_OPTIONS, model_of
from napkin.cli.options import Option, declare
from napkin.cli.single import OPTIONS_OF_SINGLE, answered
from napkin.errors import BROKEN, CLOSE, OK
from napkin.formulas import allocator, buckets, memory
from napkin.formulas.implementations import TORCH, TRANSFORMERS
from napkin.formulas.layer import Model
from napkin.formulas.memory import Rank, Setup, Step
from napkin.render.answer import Answer
from napkin.render.chart import Chart, Series
from napkin.term import Term, subtract
from napkin.units import human

declare(
    Option("must-fit", lambda text: text, "Exit 1 where it does not fit, 4 where it is too close to call", flag=True),
    Option("compile", lambda text: text, "torch.compile: less cache, the same tensors", flag=True),
)

FITS, UNDECIDED, NOT = "fits", "too close to call", "does not fit"
STATUS = {FITS: OK, UNDECIDED: CLOSE, NOT: BROKEN}
SHOWN = ("parameters", "gradients", "optimizer", "activations", "weight_casts", "temporaries", "overhead")
WIDTH = 60


def run(inputs: Inputs) -> Answer:
    small = answered(inputs)
    if small is not None:
        return small
    model = model_of(inputs)
    setup = setup_of(inputs, model)
    step = memory.prepare(model, setup)
    rank = worst_rank(step)
    terms = buckets.tree(step, rank, _source(inputs, model))
    found = allocator.reported(terms["memory/live"], setup.layout.gpus, bool(inputs.get("compile")))
    for term in (found.allocated, found.reserved, found.used, found.overhead):
        terms[term.name] = term
    terms["memory/total"] = found.used.renamed("memory/total")
    answer = Answer("memory", _title(model, setup), tuple(terms.values()))
    answer.intervals = {**found.ends, "memory/total": found.ends["memory/used"]}
    capacity = None
    if inputs.get("hardware") is not None:
        capacity = _judge(inputs, answer, terms, found)
    answer.pictures = (*bar(terms, capacity), *table(step))
    answer.plot = (_chart(terms, capacity),)
    answer.extra["worst"] = {"stage": int(rank.stage.index), "moment": buckets.peak_of(rank).name}
    _remark(inputs, setup, rank, answer)
    return answer


def worst_rank(step: Step) -> Rank:
    """The rank with the most live bytes: of the first two, the middle and the last two stages."""
    return max((memory.rank_of(step, place) for place in places(step.setup.layout.pp)), key=lambda rank: rank.live)


def places(stages: int) -> list[int]:
    """Stages that can be the worst: fewer micro-batches along the pipeline, table and head at its ends."""
    return sorted({0, min(1, stages - 1), stages // 2, max(stages - 2, 0), stages - 1})


def _judge(inputs: Inputs, answer: Answer, terms: dict[str, Term], found: allocator.Reported) -> Term:
    """Capacity, the activation budget, and whether it fits."""
    hardware = accelerator(inputs)
    capacity = hardware.term("capacity", "memory/capacity", "byte")
    taken = [terms[f"memory/{name}"] for name in ("parameters", "gradients", "optimizer", "overhead")]
    left = capacity
    for number, term in enumerate(taken, 1):
        name = "memory/activation_budget" if number == len(taken) else f"capacity_less_{number}"
        left = subtract(name, left, term)
    answer.terms = (*answer.terms, capacity, left)
    if found.least > capacity.value:
        answer.verdict = NOT
    else:
        answer.verdict = FITS if found.ends["memory/used"][1] <= capacity.value else UNDECIDED
    if inputs.get("must-fit"):
        answer.status = STATUS[answer.verdict]
    return capacity


def _source(inputs: Inputs, model: Model) -> str:
    """Whose code the saved activations are those of."""
    word = inputs.get("implementation")
    if word == "hf":
        return f"Hugging Face transformers {TRANSFORMERS}, {model.family}, autograd of torch {TORCH}"
    return f"{word}, autograd of torch {TORCH}"


def _title(model: Model, setup: Setup) -> str:
    layout = setup.layout
    ways = [f"{name} {getattr(layout, name)}" for name in ("tp", "pp", "cp", "ep", "dp") if getattr(layout, name) > 1]
    where = f" on {layout.gpus:,} GPUs ({', '.join(ways)})" if layout.gpus > 1 else ""
    return f"{model.name}, {layout.micro:,} × {layout.seq:,} tokens, {setup.precision.name}{where}: bytes per GPU"


def _remark(inputs: Inputs, setup: Setup, rank: Rank, answer: Answer) -> None:
    """What a reader must know to trust the numbers."""
    if setup.layout.gpus > 1:
        answer.notes.append(f"the worst rank is on stage {int(rank.stage.index)} of {setup.layout.pp}")
    answer.notes.append(f"the peak is in the {buckets.peak_of(rank).name}")
    if setup.precision.param == "fp32" and not setup.precision.autocast and setup.attention == "flash":
        answer.notes.append("CUDA's flash kernel takes no fp32: these bytes are what its signature would keep")
    if setup.attention not in setup.code.kernels:
        answer.notes.append(f"this model's code calls {', '.join(setup.code.kernels)} only, not {setup.attention}")


def bar(terms: dict[str, Term], capacity: Term | None) -> tuple[str, ...]:
    """The buckets as a bar, the whole of it the card's capacity or what is used."""
    whole = max(capacity.value if capacity is not None else 0, terms["memory/total"].value)
    if not whole:
        return ()
    lines = []
    for name in SHOWN:
        size = terms[f"memory/{name}"].value
        cells = round(WIDTH * size / whole)
        lines.append(f"  {name.ljust(13)} {'█' * min(cells, WIDTH)}{' ' if cells else ''}{human(size, 'byte')}")
    return tuple(lines)


def table(step: Step) -> tuple[str, ...]:
    """The stages of a pipeline, one a line."""
    stages = step.setup.layout.pp
    if stages == 1:
        return ()
    lines = ["  stage  layers  in flight  live"]
    shown = list(range(stages)) if stages <= 16 else places(step)
    for place in shown:
        rank = memory.rank_of(step, place)
        layers = sum(rank.stage.layers)
        lines.append(f"  {place:5}  {layers:6}  {rank.stage.in_flight:9g}  {human(rank.live, 'byte')}")
    return tuple(lines)


def _chart(terms: dict[str, Term], capacity: Term | None) -> Chart:
    series = [Series(name, ["GPU"], [terms[f"memory/{name}"].value / 2**30]) for name in SHOWN]
    marks = [(capacity.value / 2**30, "capacity")] if capacity is not None else []
    return Chart("stack", "memory per GPU", "", "GiB", series, marks=marks)


COMMAND = Command(
    "memory",
    "Bytes that training keeps on each GPU, bucket by bucket, and what is left for activations",
    run,
    ("hardware", "hardware-file", *SETUP_OPTIONS, *MODEL_OPTIONS, "must-fit", "compile", *OPTIONS_OF_SINGLE, "batch"),
    arguments=("model", "size"),
    defaults=SETUP_DEFAULTS,
    examples=(
        "memory llama3-8b --gpus 8 --hardware h100 --seq 8192 --zero 3 --recompute full",
        "memory gpt2 --hardware a100-40gb --micro-batch 8 --seq 1024 --precision amp-bf16",
        "memory llama3-70b --hardware h100 --gpus 64 --tp 8 --pp 4 --zero 1 --recompute full --must-fit",
        "memory linear --width 4 --depth 2 --batch 2 --optimizer adagrad --precision fp32",
    ),
)
