"""`napkin memory`: what each GPU holds while training, bucket by bucket, and what is left for activations."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from napkin import elementwise
from napkin.autograd.tape import BYTES
from napkin.commands import bars
from napkin.commands.command import Command, Inputs
from napkin.commands.confidence import read_confidence
from napkin.commands.layout import divisions
from napkin.commands.machine import read_hardware
from napkin.commands.model import read_model
from napkin.commands.setup import read_setup
from napkin.commands.single import answered
from napkin.errors import BROKEN, CLOSE, OK, NapkinError
from napkin.footprint import buckets, memory
from napkin.footprint import capacity as ceiling
from napkin.footprint.prepared import Step
from napkin.footprint.setup import Setup
from napkin.inputs.hardware import Hardware, find_link, peak_name
from napkin.inputs.model import traced_steps
from napkin.operations.attention import AttentionCore
from napkin.operations.embedding import Embedding
from napkin.operations.expert_kernels import GROUPED_BYTES
from napkin.operations.experts import ExpertMatmul, Experts
from napkin.operations.implementations import FLASH, TORCH, TRANSFORMERS
from napkin.operations.model import Model
from napkin.operations.recurrence import Scan
from napkin.options.layout import STAGE_OPTIONS
from napkin.options.model import MODEL_OPTIONS, PADDED
from napkin.options.output import DRAWS
from napkin.options.small import LINEAR_OPTIONS
from napkin.options.training import SETUP_DEFAULTS, SETUP_OPTIONS, STATE_OPTIONS
from napkin.planning import fit
from napkin.planning.fit import FITS, NOT, UNDECIDED, Fit, Remedy
from napkin.planning.traffic import Rates
from napkin.record import replace
from napkin.render.answer import Answer
from napkin.term import TRUE, Term, constant, leaf, multiply, subtract
from napkin.units import human

LONGEST, MOST = 10**8, 10**6
"""The longest sequence, and the most of anything else, that is looked at."""
MANY = 9
"""A time above ten times as long is written as a multiple."""
HOST = "pcie5"
"""The link between an accelerator and its host."""
DEVICES_PER_NODE = 8
"""Accelerators that tensor parallelism may join where the table does not say."""

EXCLUSIVE = (("max", "snapshot"), ("max", "tensors"), ("snapshot", "tensors"), ("snapshot", "must-fit"))
STATUS = {FITS: OK, UNDECIDED: CLOSE, NOT: BROKEN}


def run(inputs: Inputs) -> Answer:
    small = answered(inputs)
    if small is not None:
        return small
    model = read_model(inputs)
    if inputs.get("must-fit") and not _named(inputs):
        raise NapkinError("--must-fit needs --hardware", "name the accelerator that it must fit on")
    if inputs.get("inference"):
        from napkin.commands.serving import serve

        return serve(inputs, model)
    for first, second in EXCLUSIVE:
        if inputs.get(first) and inputs.get(second):
            raise NapkinError(f"--{first} and --{second} ask different things", "ask one at a time")
    setup = read_setup(inputs, model)
    if inputs.get("max") is not None:
        return _solve(inputs, model, setup)
    if inputs.get("snapshot") is not None:
        from napkin.commands.snapshot import compare

        found = fit.evaluate(model, setup, inputs.get("implementation"), None, bool(inputs.get("compile")))
        return compare(inputs, found, terms_of(found, source(inputs, model)), title(model, setup))
    return account(inputs, model, setup)


def account(inputs: Inputs, model: Model, setup: Setup) -> Answer:
    """The buckets of one layout, against capacity where an accelerator is named."""
    hardware = read_hardware(inputs) if _named(inputs) else None
    capacity = hardware.term("capacity", "memory/capacity", "byte") if hardware is not None else None
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
    show(answer, found, terms, capacity)
    remark(answer, model, setup, found, word)
    advises = found.verdict in (NOT, UNDECIDED) and inputs.wants("suggestions")
    if advises and hardware is not None and room is not None:
        _suggest(inputs, answer, model, setup, hardware, room)
    if inputs.get("tensors"):
        _list(answer, found.step)
    return answer


def show(answer: Answer, found: Fit, terms: dict[str, Term], capacity: Term | None) -> None:
    """The answer as bars, as a table of the pipeline's stages, and as a picture."""
    rows = bars.stages(found.step)
    answer.pictures = (*answer.pictures, *bars.summary(found, terms, answer, capacity), *bars.table(rows))
    answer.listed = False
    answer.plot = (bars.chart(found, terms, capacity, answer.title),)
    answer.extra["worst"] = {"stage": int(found.rank.stage.index), "moment": buckets.peak_of(found.rank).name}
    if rows:
        answer.extra["stages"] = rows


def at_level(inputs: Inputs, found: Fit, room: int | None) -> Fit:
    """The fit with its interval at the level asked for: the ends lie as many deviations away as that level takes."""
    level = read_confidence(inputs)
    if level == 0.9:
        return found
    from napkin.evidence.constants import NORMAL_90, deviations  # only where another level is asked for

    times = deviations(level) / NORMAL_90
    ends = {}
    for path, (low, high) in found.reported.ends.items():
        middle = getattr(found.reported, path.removeprefix("memory/")).value
        ends[path] = (
            elementwise.floor(middle * (low / middle) ** times),
            elementwise.ceiling(middle * (high / middle) ** times),
        )
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
    where = f" on {layout.gpus:,} GPUs ({divisions(layout)})" if layout.gpus > 1 else ""
    return f"{model.name}, {layout.micro:,} × {layout.seq:,} tokens, {setup.precision.name}{where}: bytes per GPU"


def of_traces(model: Model, setup: Setup) -> str:
    """How near memory/live came to traced steps of transformers' code."""
    found = traced_steps(model.family)
    if found is None:
        return f"memory/live is an estimate: no step of {model.family}'s code was traced"
    if setup.layout.gpus > 1:
        return "memory/live is an estimate: steps of several GPUs were not traced"
    steps, equal, near, furthest = found
    says = f"memory/live of {steps} traced steps of {model.family}'s code: equal to the byte in {equal}"
    return says if equal == steps else f"{says}, within 1 % in {near}, furthest off {furthest:+.1%}"


def of_experts(model: Model, setup: Setup) -> list[str]:
    """What holds for the experts of transformers' code."""
    operations = [op for layer in model.stacks[-1].layers for op in layer.operations]
    if setup.code.looped or any(isinstance(op, ExpertMatmul) for op in operations):
        return ["its experts run one after the other: the bytes are those of tokens that reach each of them"]
    number = BYTES["fp32" if setup.precision.autocast or setup.precision.param == "fp32" else "bf16"]
    for op in operations:
        if not isinstance(op, Experts) or op.weighted_input:
            continue
        if op.d_model * number % GROUPED_BYTES or op.d_ff * number % GROUPED_BYTES:
            shape = f"{op.d_model:,} × {op.d_ff:,}"
            return [f"torch's grouped product refuses experts of {shape}: their rows are no multiple of 16 bytes"]
    return []


def remark(answer: Answer, model: Model, setup: Setup, found: Fit, word: str) -> None:
    """What a reader must know to trust the numbers."""
    stage = int(found.rank.stage.index)
    where = f" on stage {stage} of {setup.layout.pp}" if setup.layout.pp > 1 else ""
    answer.notes.append(f"the peak is in the {buckets.peak_of(found.rank).name}{where}")
    copies = fit.narrow_copies(setup, found.rank)
    if copies:
        answer.notes.append(
            f"intervals allow for {setup.precision.compute} copies of the weights, as they are and transposed "
            f"(Transformer Engine keeps them, torchao does not): {human(copies, 'byte')}"
        )
    if setup.frozen is not None:
        answer.notes.append("no gradient reaches what is frozen; the first trained norm may keep 4 bytes a number less")
    operations = [op for layer in found.step.stack.layers for op in layer.operations]
    if any(isinstance(op, Scan) for op in operations):
        run_by = {"torch": "written-out code"}.get(
            setup.code.mixer, "kernels (mamba_ssm, causal_conv1d, fla, mlstm_kernels)"
        )
        answer.notes.append(f"recurrent layers are taken to run by their {run_by}; their fallback keeps far more")
    if (
        setup.frozen is None
        and fit.is_measured(model, setup, word)
        and word == "hf"
        and setup.attention in setup.code.kernels
    ):
        answer.notes.append(
            f"saved activations are exact for transformers {TRANSFORMERS} on torch {TORCH}, kernels as named"
        )
        answer.notes.append(of_traces(model, setup))
    elif not fit.is_measured(model, setup, word) and not fit.width_of(found.step, word).rows:
        answer.notes.append(f"what the {word} code of {model.family} keeps was not measured: the general rules")
    answer.notes.append(f"intervals: {fit.width_of(found.step, word).says}")
    if setup.precision.param == "fp32" and not setup.precision.autocast and setup.attention == "flash":
        answer.notes.append("CUDA's flash kernel takes no fp32: these bytes are what its signature would keep")
    if word == "hf":
        answer.notes += of_experts(model, setup)
    if setup.attention not in setup.code.kernels:
        answer.notes.append(f"this model's code calls {', '.join(setup.code.kernels)} only, not {setup.attention}")
    elif setup.attention == FLASH:
        answer.notes += masked_kernels(model, setup)


def masked_kernels(model: Model, setup: Setup) -> list[str]:
    """Where torch's attention is given a mask, which its flash kernel does not take."""
    if setup.code.masked:
        also = ", or elementary operations where one key serves several heads" if setup.code.ungrouped else ""
        return [f"this model's code always gives torch's attention a mask: its efficient kernel runs{also}"]
    cores = [op for layer in model.stacks[-1].layers for op in layer.operations if isinstance(op, AttentionCore)]
    if any(op.merged for op in cores):
        return [
            "attention over both sides' keys is always given a mask: torch's efficient kernel runs there, not flash"
        ]
    bounds = [bound for op in cores for bound in (op.window, op.chunk) if bound is not None]
    if not setup.code.window_mask or not bounds or setup.layout.seq < min(bounds):
        return []
    return ["torch's attention learns of windows by a mask: its efficient kernel runs in those layers, not flash"]


def _suggest(inputs: Inputs, answer: Answer, model: Model, setup: Setup, hardware: Hardware, room: int) -> None:
    """What would make it fit, cheapest first, each verified."""
    word, compiled = inputs.get("implementation"), bool(inputs.get("compile"))
    fixed, rates = "global-batch" in inputs, _rates(hardware, setup)
    found = fit.suggestions(model, setup, word, room, compiled, rates, fixed)
    more = fit.wider(model, setup, word, room, compiled, rates, fixed)
    answer.extra["suggestions"] = [_remedy(inputs, setup, one) for one in found]
    answer.extra["more_accelerators"] = _remedy(inputs, setup, more) if more is not None else None
    lines = ["", "  would fit, cheapest first (time at datasheet rates, nothing overlapping):"]
    if not found:
        lines = ["", "  nothing that napkin tries makes it fit on these accelerators"]
    for one in [*found, *([more] if more is not None else [])]:
        row = _remedy(inputs, setup, one)
        time = row["extra_time"]
        longer = f"{time:+.0%} time" if time < MANY else f"{1 + time:,.0f} × the time"
        lines += [f"    {row['change']}  ({longer}; uses {human(row['used'], 'byte')})"]
        lines += [f"        {_added(row)}"]
    answer.pictures = (*answer.pictures, *lines)


def _rates(hardware: Hardware, setup: Setup) -> Rates:
    """What the accelerator and its links give at best; a host is taken to stand behind PCIe of generation 5, and
    a link or network that nobody states to be slow."""
    from napkin.evidence.rates import LINKLESS, SLOWEST_NETWORK

    compute = peak_name(setup.precision.compute)
    return Rates(
        hardware.peaks.get(compute) or hardware.peak(hardware.default_dtype),
        hardware.link_bandwidth or LINKLESS,
        hardware.nic_bandwidth or SLOWEST_NETWORK,
        find_link(HOST).bandwidth,
        hardware.devices_per_node or DEVICES_PER_NODE,
    )


def _remedy(inputs: Inputs, setup: Setup, one: Remedy) -> dict[str, Any]:
    """One suggestion as a row."""
    after = one.fit.step.setup.layout
    what = one.what
    if "dp" in inputs and after.dp != setup.layout.dp:  # the degrees given must still multiply to the GPUs
        what += f" --dp {after.dp}"
    return {
        "change": what,
        "extra_time": one.time,
        "extra_flops": one.burden.again,
        "extra_bytes": one.burden.tensor + one.burden.network,
        "extra_host_bytes": one.burden.host,
        "extra_idle": one.burden.idle,
        "used": one.fit.reported.used.value,
        "costs": [change.cost for change in one.changes],
    }


def _added(row: dict[str, Any]) -> str:
    """What a suggestion adds to the step, in words."""
    parts = []
    if row["extra_flops"]:
        parts.append(f"{row['extra_flops']:.0%} more FLOPs")
    if row["extra_idle"] > 0:
        parts.append(f"{row['extra_idle']:.0%} of the step idle in the pipeline")
    for name, where in (("extra_bytes", "to other GPUs"), ("extra_host_bytes", "to and from the host")):
        if abs(row[name]) >= 1:
            sign, size = ("less", -row[name]) if row[name] < 0 else ("more", row[name])
            parts.append(f"{human(size, 'byte')} {sign} {where}")
    return "; ".join(parts or row["costs"])


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
    """The largest micro-batch, sequence, number of layers or model that fits: by the estimate, for certain (its upper
    end within capacity) and at most (the lower end within). With --must-fit, the one for certain."""
    what = inputs.get("max")
    if setup.layout.stages and what in ("layers", "params"):
        raise NapkinError(
            f"--max {what} and layers dealt to stages by hand cannot be combined", "--pp alone deals evenly"
        )
    hardware = read_hardware(inputs)
    capacity = hardware.term("capacity", "memory/capacity", "byte")
    room = int(capacity.value)
    word, compiled = inputs.get("implementation"), bool(inputs.get("compile"))
    layout = setup.layout

    def changed(value: int) -> tuple[Model, Setup]:
        if what == "micro-batch":
            return model, replace(setup, layout=layout.replaced(micro=value))
        if what == "seq":
            return model, replace(setup, layout=layout.replaced(seq=value))
        return fit.with_layers(model, value), setup

    @cache
    def evaluated(value: int) -> Fit:
        return at_level(inputs, fit.evaluate(*changed(value), word, room, compiled), room)

    unit, most = _range(what, model, setup)
    best, surely, possibly = (
        fit.largest(lambda value, test=test: test(evaluated(value)), unit, most)  # type: ignore[misc]
        for test in (_within(room), lambda one: one.verdict == FITS, lambda one: one.verdict != NOT)
    )
    chosen = surely if inputs.get("must-fit") else best
    solved, around = changed(chosen or unit)
    found = evaluated(chosen or unit)
    terms = terms_of(found, source(inputs, model))
    path = {"micro-batch": "max/micro_batch", "seq": "max/seq"}.get(what, "max/layers")
    answer = Answer("memory", f"largest {what}: {title(solved, around)}")
    published = [leaf(path, chosen, "token" if what == "seq" else "1", TRUE)]
    answer.intervals = {path: (surely, possibly), **found.reported.ends}
    answer.intervals["memory/total"] = found.reported.ends["memory/used"]
    if what in ("layers", "params"):
        published += _sizes(answer, solved, setup, capacity, chosen)
    answer.terms = (*published, *terms.values(), capacity, budget(capacity, terms))
    answer.verdict = found.verdict
    lines = [f"  {term.name.ljust(16)} {human(term.value, term.unit)}" for term in published]
    lines[0] += f"  [{surely:,} – {possibly:,}]"
    answer.notes.append(f"{path}: in brackets the largest that fits for certain, and the largest that may fit")
    if chosen:
        binding = _binding(found, evaluated(chosen + unit), chosen + unit > most)
        answer.extra["binding"] = binding
        grows = f" (+{human(binding['grows'], 'byte')} for {unit:,} more)" if binding["grows"] else ""
        where = f"stage {binding['stage']}, " if layout.pp > 1 else ""
        lines.append(f"  {'bound by'.ljust(16)} {where}in the {binding['moment']}: {binding['bucket']}{grows}")
        certain = (
            "the largest that fits for certain"
            if inputs.get("must-fit")
            else ("the largest whose memory/used is within capacity")
        )
        beyond = "no larger one was looked at" if chosen + unit > most else f"{chosen + unit:,} is beyond it"
        answer.notes.append(f"{certain}; {beyond}")
    else:
        closely = f"; {possibly:,} may, at the lower end of the interval" if possibly else ""
        answer.notes.append(f"not even {unit:,} fits on {hardware.name}{closely}; the memory of {unit:,} is shown")
        answer.status = STATUS[found.verdict]
    answer.pictures = (*lines, "")
    show(answer, found, terms, capacity)
    if not chosen:
        _suggest(inputs, answer, model, setup, hardware, room)
    inputs.record(what if what != "params" else "layers", chosen, "solved")
    return answer


def _within(room: int) -> Callable[[Fit], bool]:
    return lambda found: bool(found.reported.used.value <= room)


def _range(what: str, model: Model, setup: Setup) -> tuple[int, int]:
    """The step and the end of the search. Learnt positions end a sequence."""
    layout = setup.layout
    if what == "seq":
        tables = [op.rows for op in model.stacks[-1].before if isinstance(op, Embedding) and op.role == "position"]
        return layout.cp * (layout.tp if layout.sp else 1), min([LONGEST, *tables])
    return (layout.pp * layout.vp if what in ("layers", "params") else 1), MOST


def _sizes(answer: Answer, solved: Model, setup: Setup, capacity: Term, layers: int) -> list[Term]:
    """Parameters of the largest model, and the ceiling of states alone."""
    from napkin.counting.params import params

    counted = params(solved)["params/total"]
    published = [counted.renamed("params/max") if layers else leaf("params/max", 0, "param", TRUE)]
    answer.notes.append("the model's own width, more or fewer layers; napkin max-params --like scales the whole shape")
    if not setup.optimizer.factored:
        each = ceiling.bytes_per_param(setup.precision, setup.optimizer)
        whole = multiply("capacity_of_all", capacity, constant("gpus", setup.layout.gpus))
        published.append(ceiling.largest(whole, each, "params/ceiling"))
        answer.notes.append(f"params/ceiling: states alone, {each.value:g} bytes a parameter, perfectly sharded")
    return published


def _binding(found: Fit, beyond: Fit, ended: bool) -> dict[str, Any]:
    """What stops it: the stage and the moment of the peak, and the bucket that one more makes largest."""
    peak, then = buckets.peak_of(found.rank), buckets.peak_of(beyond.rank)
    growth = {bucket: getattr(then, bucket) - getattr(peak, bucket) for bucket in memory.BUCKETS}
    bucket = max(growth, key=lambda name: growth[name])
    if ended:
        return {"stage": int(found.rank.stage.index), "moment": peak.name, "bucket": "positions", "grows": 0}
    return {"stage": int(beyond.rank.stage.index), "moment": then.name, "bucket": bucket, "grows": growth[bucket]}


COMMAND = Command(
    "memory",
    "Bytes that training keeps on each GPU, bucket by bucket, and what is left for activations",
    run,
    (
        "hardware",
        "hardware-file",
        *SETUP_OPTIONS,
        *STATE_OPTIONS,
        *STAGE_OPTIONS,
        *MODEL_OPTIONS,
        *PADDED,
        "compile",
        "must-fit",
        "interval",
        "max",
        "tensors",
        "inference",
        "dtype",
        "cache-dtype",
        "snapshot",
        "snapshot-device",
        "batch",
        *LINEAR_OPTIONS,
        *DRAWS,
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
