"""`napkin memory`: what each GPU holds while training, bucket by bucket, and what is left for activations."""

from __future__ import annotations

from napkin.cli.command import Command, Inputs
from napkin.cli.layout import SETUP_DEFAULTS, SETUP_OPTIONS, STATE_OPTIONS, setup_of
from napkin.cli.level import level_of
from napkin.cli.machine import accelerator
from napkin.cli.model import MODEL_OPTIONS, model_of
from napkin.cli.options import Option, choice, declare
from napkin.cli.single import OPTIONS_OF_SINGLE, answered
from napkin.errors import BROKEN, CLOSE, OK, NapkinError
from napkin.formulas import buckets, fit, memory
from napkin.formulas import capacity as ceiling
from napkin.formulas.fit import FITS, NOT, UNDECIDED, Fit
from napkin.formulas.implementations import TORCH, TRANSFORMERS
from napkin.formulas.layer import Model
from napkin.formulas.memory import Setup, Step
from napkin.record import replace
from napkin.render.answer import Answer
from napkin.render.chart import Chart, Series
from napkin.term import TRUE, Term, constant, leaf, multiply, subtract
from napkin.units import count, human, words

LARGEST = ("micro-batch", "seq", "layers", "params")
declare(
    Option("inference", lambda text: text, "Weights alone, as for inference", flag=True),
    Option("must-fit", lambda text: text, "Exit 1 where it does not fit, 4 where it is too close to call", flag=True),
    Option("compile", lambda text: text, "The step runs under torch.compile", flag=True),
    Option("max", choice(*LARGEST), "Solve for the largest that fits: micro-batch, seq, layers or params"),
    Option("tensors", lambda text: text, "List every tensor that autograd keeps", flag=True),
    Option("snapshot", words, "A torch memory snapshot: seen beside predicted", metavar="FILE"),
    Option("snapshot-device", count, "Which device of the snapshot, where it holds several", metavar="N"),
)

STATUS = {FITS: OK, UNDECIDED: CLOSE, NOT: BROKEN}
SHOWN = ("parameters", "gradients", "optimizer", "activations", "weight_casts", "temporaries", "overhead")
REPORTED = ("live", "allocated", "reserved", "used")
WIDTH = 44


def run(inputs: Inputs) -> Answer:
    small = answered(inputs)
    if small is not None:
        return small
    model = model_of(inputs)
    if inputs.get("inference"):
        from napkin.cli.serving import serve

        return serve(inputs, model)
    setup = setup_of(inputs, model)
    if inputs.get("must-fit") and not _named(inputs):
        raise NapkinError("--must-fit needs --hardware", "name the accelerator that it must fit on")
    if inputs.get("max") is not None:
        return _solve(inputs, model, setup)
    if inputs.get("snapshot") is not None:
        from napkin.cli.snapshot import compare

        found = fit.evaluate(model, setup, inputs.get("implementation"), None, bool(inputs.get("compile")))
        return compare(inputs, found, terms_of(found, source(inputs, model)), title(model, setup))
    return account(inputs, model, setup)


def account(inputs: Inputs, model: Model, setup: Setup) -> Answer:
    """The buckets of one layout, against capacity where an accelerator is named."""
    capacity = accelerator(inputs).term("capacity", "memory/capacity", "byte") if _named(inputs) else None
    room = None if capacity is None else capacity.value
    word, compiled = inputs.get("implementation"), bool(inputs.get("compile"))
    found = at_level(inputs, fit.evaluate(model, setup, word, room, compiled), room)
    terms = terms_of(found, source(inputs, model))
    answer = Answer("memory", title(model, setup), tuple(terms.values()))
    answer.intervals = {**found.reported.ends, "memory/total": found.reported.ends["memory/used"]}
    if capacity is not None:
        answer.terms = (*answer.terms, capacity, budget(capacity, terms))
        answer.verdict = found.verdict
        if inputs.get("must-fit"):
            answer.status = STATUS[found.verdict]
    answer.pictures = (*summary(terms, answer, capacity), *table(found.step))
    answer.listed = False
    answer.plot = (_chart(terms, capacity),)
    answer.extra["worst"] = {"stage": int(found.rank.stage.index), "moment": buckets.peak_of(found.rank).name}
    remark(answer, model, setup, found, word)
    if found.verdict in (NOT, UNDECIDED) and room is not None:
        _suggest(answer, model, setup, word, room, compiled)
    if inputs.get("tensors"):
        _list(answer, found.step)
    return answer


def at_level(inputs: Inputs, found: Fit, room: int | None) -> Fit:
    """The fit with its interval at the level asked for: the ends lie as many deviations away as that level takes."""
    level = level_of(inputs)
    if level == 0.9:
        return found
    from napkin.evidence.constants import NORMAL_90, deviations  # only where another level is asked for

    times = deviations(level) / NORMAL_90
    ends = {}
    for path, (low, high) in found.reported.ends.items():
        middle = getattr(found.reported, path.removeprefix("memory/")).value
        ends[path] = (middle * (low / middle) ** times, middle * (high / middle) ** times)
    reported = replace(found.reported, ends=ends)
    return replace(found, reported=reported, verdict=fit.verdict(reported, room))


def _named(inputs: Inputs) -> bool:
    return inputs.get("hardware") is not None


def terms_of(found: Fit, where: str) -> dict[str, Term]:
    """Every published quantity by its path."""
    terms = buckets.tree(found.step, found.rank, where)
    for term in (found.reported.allocated, found.reported.reserved, found.reported.used, found.reported.overhead):
        terms[term.name] = term
    terms["memory/total"] = found.reported.used.renamed("memory/total")
    return terms


def budget(capacity: Term, terms: dict[str, Term]) -> Term:
    """capacity − parameters − gradients − optimizer − overhead: what activations may take."""
    left = capacity
    taken = [terms[f"memory/{name}"] for name in ("parameters", "gradients", "optimizer", "overhead")]
    for number, term in enumerate(taken, 1):
        left = subtract("memory/activation_budget" if number == len(taken) else f"capacity_less_{number}", left, term)
    return left


def source(inputs: Inputs, model: Model) -> str:
    """Whose code the saved activations are those of."""
    word = inputs.get("implementation")
    if word == "hf":
        return f"Hugging Face transformers {TRANSFORMERS}, {model.family}, autograd of torch {TORCH}"
    return f"{word}, autograd of torch {TORCH}"


def title(model: Model, setup: Setup) -> str:
    layout = setup.layout
    ways = [f"{name} {getattr(layout, name)}" for name in ("tp", "pp", "cp", "ep", "dp") if getattr(layout, name) > 1]
    where = f" on {layout.gpus:,} GPUs ({', '.join(ways)})" if layout.gpus > 1 else ""
    return f"{model.name}, {layout.micro:,} × {layout.seq:,} tokens, {setup.precision.name}{where}: bytes per GPU"


def remark(answer: Answer, model: Model, setup: Setup, found: Fit, word: str) -> None:
    """What a reader must know to trust the numbers."""
    stage = int(found.rank.stage.index)
    where = f" on stage {stage} of {setup.layout.pp}" if setup.layout.pp > 1 else ""
    answer.notes.append(f"the peak is in the {buckets.peak_of(found.rank).name}{where}")
    if not found.step.run.exact:
        answer.notes.append("recurrent kernels are taken to keep what they read: an estimate, ± 30 %")
    elif fit.is_measured(model, setup, word) and word == "hf" and setup.attention in setup.code.kernels:
        answer.notes.append(
            f"saved activations are exact for transformers {TRANSFORMERS} on torch {TORCH}, kernels as named"
        )
    elif not fit.is_measured(model, setup, word):
        answer.notes.append(
            f"what the {word} code of {model.family} keeps was not measured: the general rules, −10 to +15 %"
        )
    if setup.precision.param == "fp32" and not setup.precision.autocast and setup.attention == "flash":
        answer.notes.append("CUDA's flash kernel takes no fp32: these bytes are what its signature would keep")
    if setup.attention not in setup.code.kernels:
        answer.notes.append(f"this model's code calls {', '.join(setup.code.kernels)} only, not {setup.attention}")


# --- as a person reads it ---


def summary(terms: dict[str, Term], answer: Answer, capacity: Term | None) -> tuple[str, ...]:
    """The buckets as bars, then the figures that a card reports."""
    whole = max(capacity.value if capacity is not None else 0, terms["memory/total"].value, 1)
    lines = []
    for name in SHOWN:
        size = terms[f"memory/{name}"].value
        cells = min(round(WIDTH * size / whole), WIDTH)
        lines.append(f"  {name.ljust(13)} {human(size, 'byte').ljust(24)} {'█' * cells}")
    lines.append("")
    for name in REPORTED:
        path = f"memory/{name}"
        line = f"  {name.ljust(13)} {human(terms[path].value, 'byte').ljust(24)}"
        if path in answer.intervals:
            low, high = answer.intervals[path]
            line += f" [{human(low, 'byte')} – {human(high, 'byte')}]"
        lines.append(line.rstrip())
    if capacity is not None:
        left = next(term for term in answer.terms if term.name == "memory/activation_budget")
        lines.append(f"  {'capacity'.ljust(13)} {human(capacity.value, 'byte')}")
        lines.append(f"  {'activation budget: '}{human(left.value, 'byte')}")
    return tuple(lines)


def table(step: Step) -> tuple[str, ...]:
    """The stages of a pipeline, one a line."""
    stages = step.setup.layout.pp
    if stages == 1:
        return ()
    shown = range(stages) if stages <= 16 else sorted({int(p) for p in memory.places(step.stack, step.setup.layout)})
    lines = ["", "  stage  layers  in flight  live"]
    for place in shown:
        rank = memory.rank_of(step, place)
        layers = sum(rank.stage.layers)
        lines.append(f"  {place:5}  {layers:6}  {rank.stage.in_flight:9g}  {human(rank.live, 'byte')}")
    return tuple(lines)


def _chart(terms: dict[str, Term], capacity: Term | None) -> Chart:
    series = [Series(name, ["GPU"], [terms[f"memory/{name}"].value / 2**30]) for name in SHOWN]
    marks = [(capacity.value / 2**30, "capacity")] if capacity is not None else []
    return Chart("stack", "memory per GPU", "", "GiB", series, marks=marks)


def _suggest(answer: Answer, model: Model, setup: Setup, word: str, room: int, compiled: bool) -> None:
    """What would make it fit, cheapest first, each verified."""
    found = fit.suggestions(model, setup, word, room, compiled)
    rows = []
    lines = [
        "",
        "  would fit, cheapest first (extra model FLOPs; used):"
        if found
        else "  no change that napkin tries makes it fit",
    ]
    for path, result in found:
        what = " ".join(change.what for change in path)
        flops = sum(change.flops for change in path)
        used = result.reported.used.value
        rows.append({"change": what, "extra_flops": flops, "used": used, "costs": [change.cost for change in path]})
        lines.append(f"    {what}  (+{flops:.0%}; {human(used, 'byte')})  {path[-1].cost}")
    answer.extra["suggestions"] = rows
    answer.pictures = (*answer.pictures, *lines)


def _list(answer: Answer, step: Step) -> None:
    """Every tensor that autograd keeps, by piece and operation, as rows."""
    run = step.run
    rows = []
    pieces = [("outside", 1, run.before), *((p.name, n, p) for n, p in run.layers), ("outside", 1, run.after)]
    seen: set[int] = set()
    for name, layers, piece in pieces:
        for storage in piece.kept:
            if storage.shared and id(storage) in seen:
                continue
            seen.add(id(storage))
            operation, _, tensor = storage.label.partition("/")
            times = 1 if storage.shared else layers
            size = storage.size * storage.kept
            rows.append({"piece": name, "operation": operation, "tensor": tensor, "bytes": size, "times": times})
    answer.rows, answer.rows_name, answer.extra["units"] = [*rows], "tensors", {"bytes": "byte"}


# --- solving ---


def _solve(inputs: Inputs, model: Model, setup: Setup) -> Answer:
    """The largest micro-batch, sequence, number of layers or model that fits."""
    what = inputs.get("max")
    hardware = accelerator(inputs)
    capacity = hardware.term("capacity", "memory/capacity", "byte")
    word, compiled = inputs.get("implementation"), bool(inputs.get("compile"))
    layout = setup.layout

    def changed(value: int) -> tuple[Model, Setup]:
        if what == "micro-batch":
            return model, replace(setup, layout=layout.replaced(micro=value))
        if what == "seq":
            return model, replace(setup, layout=layout.replaced(seq=value))
        return fit.with_layers(model, value), setup

    def fits(value: int) -> bool:
        result = fit.evaluate(*changed(value), word, capacity.value, compiled)
        return bool(result.reported.used.value <= capacity.value)

    unit = layout.cp * layout.tp if what == "seq" else layout.pp * layout.vp if what in ("layers", "params") else 1
    if what == "seq" and layout.cp == layout.tp == 1:
        unit = 1
    most = 10**8 if what == "seq" else 10**6
    best = fit.largest(fits, unit, most)
    if not best:
        raise NapkinError(
            f"--max {what}: not even {unit:,} fits on {hardware.name}",
            "napkin memory without --max lists what would make it fit",
            BROKEN,
        )
    solved, around = changed(best)
    found = at_level(inputs, fit.evaluate(solved, around, word, capacity.value, compiled), capacity.value)
    terms = terms_of(found, source(inputs, model))
    path = {"micro-batch": "max/micro_batch", "seq": "max/seq"}.get(what, "max/layers")
    answer = Answer("memory", f"largest {what}: {title(solved, around)}")
    published = [leaf(path, best, "token" if what == "seq" else "1", TRUE)]
    if what in ("layers", "params"):
        from napkin.formulas.params import params

        counted = params(solved)["params/total"]
        published.append(counted.renamed("params/max"))
        if not setup.optimizer.factored:
            each = ceiling.bytes_per_param(setup.precision, setup.optimizer)
            whole = multiply("capacity_of_all", capacity, constant("gpus", layout.gpus))
            published.append(ceiling.largest(whole, each, "params/ceiling"))
            answer.notes.append(f"params/ceiling: states alone, {each.value:g} bytes a parameter, perfectly sharded")
    answer.terms = (*published, *terms.values(), capacity, budget(capacity, terms))
    answer.intervals = {**found.reported.ends, "memory/total": found.reported.ends["memory/used"]}
    answer.verdict = found.verdict
    peak = buckets.peak_of(found.rank)
    largest = max(memory.BUCKETS, key=lambda bucket: getattr(peak, bucket))
    binding = f"stage {int(found.rank.stage.index)}, in the {peak.name}: {largest}"
    answer.extra["binding"] = binding
    answer.pictures = tuple(f"  {term.name.ljust(16)} {human(term.value, term.unit)}" for term in published)
    answer.pictures += (f"  bound by         {binding}", "", *summary(terms, answer, capacity))
    answer.listed = False
    answer.notes.append(f"the largest whose memory/used is within capacity; {best + unit:,} is beyond it")
    inputs.record(what if what != "params" else "layers", best, "solved")
    return answer


COMMAND = Command(
    "memory",
    "Bytes that training keeps on each GPU, bucket by bucket, and what is left for activations",
    run,
    (
        "hardware",
        "hardware-file",
        *SETUP_OPTIONS,
        *STATE_OPTIONS,
        *MODEL_OPTIONS,
        "compile",
        "must-fit",
        "interval",
        "max",
        "tensors",
        "inference",
        "dtype",
        "snapshot",
        "snapshot-device",
        "batch",
        *OPTIONS_OF_SINGLE,
    ),
    arguments=("model", "size"),
    defaults=SETUP_DEFAULTS,
    examples=(
        "memory llama3-8b --gpus 8 --hardware h100 --seq 8192 --zero 3 --recompute full",
        "memory gpt2 --hardware a100-40gb --micro-batch 8 --seq 1024 --precision amp-bf16",
        "memory llama3-70b --hardware h100 --gpus 64 --tp 8 --pp 4 --zero 1 --recompute full --must-fit",
        "memory llama3-8b --hardware h100 --gpus 8 --zero 3 --recompute full --max micro-batch",
        "memory llama3-8b --hardware h100 --inference --seq 8192",
        "memory linear --width 4 --depth 2 --batch 2 --optimizer adagrad --precision fp32",
    ),
)
