"""Screen of `memory`: whether a step fits, the memory of each GPU at the peak, and suggestions that make it fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.commands.memory.loading import PATH as LOADING
from napkin.commands.memory.question import MemoryQuestion
from napkin.commands.screens.setup import driver_of, of_setup, role_of
from napkin.commands.screens.suggestions import first_command, host_line, would_fit
from napkin.errors import UNDECIDED, listed
from napkin.footprint import buckets
from napkin.footprint.rank import BUCKETS, Moment
from napkin.footprint.saving import FULL
from napkin.inputs.hardware import Hardware
from napkin.planning.verdicts import FITS, NOT, Fit
from napkin.render.answer import Answer, Row, suggested
from napkin.render.figures import interval, size, size_of
from napkin.render.screen import Bar, Next, Screen, quantities
from napkin.term import Term
from napkin.training.setup import Setup
from napkin.units import human

TYPE_CHECKING = False
if TYPE_CHECKING:
    from napkin.planning.largest import LargestFit

PHASES = {
    "forward": "forward pass",
    "forward_only": "pass without gradients",
    "backward": "backward pass",
    "step": "optimizer step",
    "save": "saving of the gathered state",
}
"""Phase of a step → its name in a sentence, if different."""
WORKSPACE = {
    "forward": "one layer's workspace",
    "forward_only": "logits of both models",
    "loss": "logits in the loss",
    "backward": "one layer's workspace",
    "step": "the optimizer's workspace",
    "save": "gathered weights",
}
"""Phase of the peak → its main temporaries."""
AT_HEAD = "the head and its loss"
"""The same where they are those after the layers, in the forward pass."""
HOSTED = ("optimizer", "parameters", "gradients", "activations")
"""What --offload keeps in host memory."""
REMEDIES, TUNING_REMEDIES = 3, 6
"""Number of suggestions that are shown, in general and for fine-tuning."""
MOST = {
    "micro-batch": "largest micro-batch",
    "seq": "longest sequence",
    "layers": "most layers",
    "params": "largest model in the shape",
}
"""Quantity of --max → its name on line 1."""
ADDED = {"micro-batch": "sequence", "seq": "token", "layers": "layer", "params": "layer"}
"""Quantity of --max → what it counts."""


def of_step(question: MemoryQuestion, found: Fit, answer: Answer) -> Screen:
    """Return the screen of one layout's memory."""
    capacity = question.capacity
    shown = _rows(found, answer, None if capacity is None else capacity.value, question.hardware)
    remedies = suggested(answer)
    return Screen(
        of_setup(question.model, question.setup, "" if question.hardware is None else question.hardware.name),
        _headline(question, found, answer),
        found.verdict or "",
        quantities(shown),
        [_peak(found), *_on_loading(found, answer, question.setup.loading), *_remarks(answer, found)],
        would_fit(remedies, TUNING_REMEDIES if question.setup.tunes else REMEDIES),
        next=_next(question, found, remedies, answer.verdict),
    )


def of_largest(question: MemoryQuestion, found: LargestFit, answer: Answer) -> Screen:
    """Return the screen of the largest micro-batch, sequence, number of layers or model that fits."""
    capacity, hardware, what = question.capacity, question.hardware, question.maximize or ""
    assert capacity is not None
    assert hardware is not None
    terms = answer.by_path()
    sure = str(found.surely or found.value or found.unit)
    following = Next({"max": None, what: sure}) if what in ("micro-batch", "seq") else smaller(question)
    remedies = [] if found.value else suggested(answer)
    first, *rest = of_setup(found.model, question.setup, hardware.name)
    used = ("used", size(terms["memory/used"].value), f"of {size(capacity.value)} per GPU")
    return Screen(
        [f"{MOST[what]} of {first}", *(clause for clause in rest if what != "seq" or "tokens" not in clause)],
        _most(what, found, terms, question.confidence),
        found.fit.verdict or "",
        quantities([used, *_binding(what, found), *_rows(found.fit, answer, capacity.value, hardware)]),
        [_peak(found.fit), *_on_loading(found.fit, answer, question.setup.loading)],
        would_fit(remedies, REMEDIES),
        next=first_command(remedies, float(question.setup.layout.gpus)) if remedies else following,
    )


def _most(what: str, found: LargestFit, terms: Mapping[str, Term], level: float) -> list[str]:
    """Return the largest value, the parameters of such a model, and the interval: from what surely fits to what may."""
    verdict = (found.fit.verdict or "").upper()
    if not found.value:
        is_close = "is " if found.fit.verdict == UNDECIDED else ""
        return [f"{_value(what, 0)}: {_value(what, found.unit)} {is_close}{verdict}"]
    size_of_model = [human(terms["params/max"].value, "param")] if "params/max" in terms else []
    ends = f"{level:.0%}: {found.surely:,} to {found.possibly:,}"
    return [_value(what, found.value), ends, *size_of_model, verdict]


def _value(what: str, value: int) -> str:
    """Return a value with its unit: `micro-batch 7`, `6,848 tokens`, `13 layers`."""
    layers = f"{value:,} layer{'s' * (value != 1)}"
    return {"micro-batch": f"micro-batch {value:,}", "seq": f"{value:,} tokens"}.get(what, layers)


def _binding(what: str, found: LargestFit) -> list[tuple[str, str, str]]:
    """Return the limit that rules out a larger value."""
    binding = found.binding
    if binding is None:
        return []
    if not binding.grows:
        return [("limit", "", f"{binding.bucket} of the model")]
    counted = f"{ADDED[what]}{'s' * (found.unit > 1)}"
    return [
        (f"{found.unit:,} more", f"+{size(binding.grows)}", f"{counted}; mostly {binding.bucket.replace('_', ' ')}")
    ]


def _headline(question: MemoryQuestion, found: Fit, answer: Answer) -> list[str]:
    """Return the verdict, the used memory and the capacity, and the interval."""
    used, capacity = found.reported.used.value, question.capacity
    ends = interval(answer.intervals["memory/total"], used, "byte", question.confidence)
    if capacity is None:
        return [f"{size(used)} per GPU", ends]
    on_gpu = [f"{size_of(used, capacity.value)} per GPU", ends]
    terms = answer.by_path()
    if answer.verdict == NOT and found.steps != NOT and "memory/host/capacity" not in terms:
        return [f"{NOT.upper()} while loading", f"{size_of(terms[LOADING].value, capacity.value)} per GPU"]
    if answer.verdict == NOT and found.steps != NOT:
        kept = size_of(terms["memory/host"].value, terms["memory/host/capacity"].value)
        return [f"{NOT.upper()} the host", f"{kept} per node", *on_gpu]
    return [(answer.verdict or "").upper(), *on_gpu]


def _rows(found: Fit, answer: Answer, capacity: float | None, hardware: Hardware | None) -> list[tuple[str | Bar, ...]]:
    """Return the categories at the peak up to the used memory, then what is free or missing."""
    used = float(found.reported.used.value)
    whole = max(used, capacity or 0, 1)
    rows = categories(found, whole, hardware)
    if capacity is not None and capacity >= used:
        rows.append(("free", size(capacity - used, whole), Bar((capacity - used) / whole, 0, "·"), ""))
    elif capacity is not None:
        rows.append(("missing", size(used - capacity, whole), "", "more than the GPU has"))
    terms = answer.by_path()
    for name in HOSTED:
        path = f"memory/host/{name}"
        if path in terms and terms[path].value:
            rows.append((f"host: {name}", size(terms[path].value, whole), "", "in host memory, per GPU"))
    if "memory/host/save" in terms:
        gathered = terms["memory/host/save"].value
        rows.append(("host: save", size(gathered, whole), "", "the complete state, on the first rank's host"))
    return rows


def categories(found: Fit, whole: float, hardware: Hardware | None) -> list[tuple[str | Bar, ...]]:
    """Return what is held at the peak by category, up to the used memory; whole: the bytes of a full bar."""
    peak = buckets.peak_of(found.rank)
    sizes = {name: float(getattr(peak, name)) for name in BUCKETS}
    sizes["overhead"] = float(found.reported.overhead.value)
    return [
        (name.replace("_", " "), size(value, whole), Bar(value / whole), _says(name, found, peak, hardware))
        for name, value in sizes.items()
        if value >= whole / 2000
    ]


def _phase(name: str) -> str:
    return PHASES.get(name, name)


def _peak(found: Fit) -> str:
    """Return the phase of the peak, and its pipeline stage."""
    stages, at = int(found.step.setup.layout.pp), int(found.rank.stage.index)
    where = f", on pipeline stage {at} (of 0 to {stages - 1})" if stages > 1 else ""
    return f"at the peak: in the {_phase(buckets.peak_of(found.rank).name)}{where}"


def _says(name: str, found: Fit, peak: Moment, hardware: Hardware | None) -> str:
    """Return a category's description in a few words."""
    setup = found.step.setup
    layout, precision = setup.layout, setup.precision
    if name == "parameters":
        tuning = setup.implementation.tuning
        rest = precision.frozen or precision.param
        kinds = dict.fromkeys(((tuning.quantized if tuning else "") or rest, rest, precision.param))
        return f"{listed(list(kinds))}{_split(setup, 3)}"
    if name == "models":
        others = [role_of(setup, one) for one, _ in found.rank.others]
        return f"{', '.join(others)}{_split(setup, 3)}"
    if name == "gradients":
        return f"{precision.grad}{_split(setup, 2)}"
    if name == "optimizer":
        states = ", ".join(state for state, bytes_ in found.rank.states if bytes_ > found.rank.optimizer / 1000)
        return f"{states}{_split(setup, 1)}"
    if name == "activations":
        kind = layout.recompute.kind
        return "saved for backward" + (f"; with recompute {layout.recompute.word}" if kind != "none" else "")
    if name == "weight_casts":
        return f"{precision.compute} copies made by autocast"
    if name == "temporaries":
        largest = AT_HEAD if _is_at_head(peak) else WORKSPACE[peak.name]
        gathered = WORKSPACE["save"]
        return largest + (f"; {gathered}" if layout.zero == 3 and largest != gathered else "")
    if name == "inputs":
        return "token ids and labels"
    context, cache, collectives = driver_of(hardware)
    return f"{context}, {cache}" + (f"; {collectives}" if layout.gpus > 1 else "")


def _is_at_head(peak: Moment) -> bool:
    """Return whether the largest temporaries of a peak are those after the layers, in the forward pass."""
    if peak.name != "forward":
        return False
    largest, _ = max(peak.made["temporaries"], key=lambda part: float(part[1]))
    return largest in ("head", "final_norm")


def _split(setup: Setup, stage: int) -> str:
    """Return how a kind of state is sharded, in words; stage: the ZeRO stage that shards it."""
    layout = setup.layout
    over = int(layout.tp * layout.pp * (setup.shards if layout.zero >= stage else 1))
    experts = int(layout.ep * layout.etp * layout.pp)  # tensor-parallel ranks divide them only where they are its own
    apart = layout.ep > 1 and stage > layout.zero and experts != over
    shares = ([f"1/{over:,}"] if over > 1 else []) + ([f"experts 1/{experts:,}"] if apart else [])
    return f"; {', '.join(shares)} per GPU" if shares else ""


def _remarks(answer: Answer, found: Fit) -> list[str]:
    """Return remarks on host memory, and on the lack of suggestions."""
    terms = answer.by_path()
    if "memory/host/capacity" in terms:
        return [host_line(terms["memory/host"].value, terms["memory/host/capacity"].value)]
    if found.steps == FITS or answer.extra.get("suggestions") != []:
        return []
    return ["Nothing that napkin tries makes it fit: recomputation, ZeRO, smaller micro-batches, more GPUs, …"]


def _on_loading(found: Fit, answer: Answer, place: str) -> list[str]:
    """Say that all weights do not fit on each GPU, where they may be there before ranks divide them."""
    if found.loads in ("", FITS):
        return []
    held = f"{size(answer.by_path()[LOADING].value)} of weights"
    where = "are" if place else "may be"
    return [f"while loading: {held} {where} on each GPU before ranks divide them"]


def _next(question: MemoryQuestion, found: Fit, remedies: Sequence[Row], verdict: str | None) -> Next | str:
    """Return the next command: the first change that fits, the largest micro-batch, or an accelerator to fit on."""
    if found.steps == FITS and verdict != FITS and question.setup.save == FULL:
        return Next({"save": None, "host-memory": None})  # each rank saves its own part
    if remedies and question.setup.tunes:
        return str(remedies[0]["command"])
    if remedies:
        return first_command(remedies, float(question.setup.layout.gpus))
    if question.hardware is None:
        return Next({"hardware": "h100"})
    if found.steps == FITS and verdict != FITS and found.loads != FITS:
        return Next({"loading": "host"})
    if found.steps == FITS and verdict != FITS:
        return Next({"offload": None, "host-memory": None})
    if found.steps == FITS:
        return Next({"max": "micro-batch", **dict.fromkeys(("micro-batch", "tensors", "host-memory", "loading"))})
    return smaller(question)


def smaller(question: MemoryQuestion) -> Next:
    """Return the command for the largest model in these proportions that fits on the machine."""
    gpus, model = str(int(question.setup.layout.gpus)), str(question.asked.given["model"].text)
    from napkin.commands.next_command import under

    return under("max-params", {"gpus": gpus, "like": model})
