"""`napkin checkpoint`: the size of a checkpoint, its write time, and how often to write one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.commands.question.model import read_model
from napkin.commands.question.size import read_size
from napkin.counting import params
from napkin.errors import NapkinError
from napkin.evidence.figures import failures
from napkin.footprint import capacity, storage
from napkin.operations.model import Model
from napkin.options.model import MODEL_OPTIONS, PREDICTING
from napkin.options.training import FROZEN, OF_FROZEN, TRAINED
from napkin.record import record, replace
from napkin.render.answer import Answer
from napkin.render.figures import amount, share
from napkin.render.screen import Next, Screen, Table, shares
from napkin.term import Term, leaf, multiply
from napkin.timing import interruptions
from napkin.training import optimizer_names
from napkin.training.optimizer import Optimizer
from napkin.training.optimizers import in_eight_bits
from napkin.training.precision import Precision, precision
from napkin.units import human


@record
class CheckpointQuestion:
    """A checkpoint of `params` parameters.

    size    bytes of what is saved: weights, master copy, optimizer states
    merged  bytes of the model with its adapters added in; None without adapters
    trained  words for the part that is trained, if it is not the whole model
    write   byte/s of the entire job           mtbf  mean seconds between failures of the job
    gpus    GPUs that write to shared storage at published rates, if no rate is given
    """

    params: Term
    size: Term
    merged: Term | None
    trained: Sequence[str]
    policy: Precision
    optimizer: Optimizer
    write: Term | None = None
    mtbf: Term | None = None
    gpus: Term | None = None


def run(inputs: Inputs) -> Answer:
    """Answer for a model or a number of parameters."""
    return answer(read(inputs))


def read(inputs: Inputs) -> CheckpointQuestion:
    """Read the question."""
    saved = _read_saved(inputs)
    write = inputs.term("write-bandwidth") if inputs.has("write-bandwidth") else None
    stated = write is not None and inputs.has("mtbf")
    inputs.depends(
        ("gpus",), not stated, "--write-bandwidth and --mtbf are those of the whole job", "leave out one of them"
    )
    gpus = inputs.term("gpus") if inputs.has("gpus") and not stated else None
    if write is not None or gpus is not None:
        mtbf = _read_mtbf(inputs)
        if gpus is not None and mtbf is None:
            inputs.assume("failures at the rate of published runs")
            gpu_mtbf, _ = failures.published_mtbf()
            mtbf = interruptions.mtbf_of(gpu_mtbf, gpus)
        if gpus is not None and write is None:
            inputs.assume("storage as in published runs")
        return replace(saved, write=write, mtbf=mtbf, gpus=gpus)
    if inputs.has("mtbf") or inputs.has("gpu-mtbf"):
        hint = "an interval needs the time that writing takes; or --gpus, for a published rate"
        raise NapkinError("--write-bandwidth is missing", hint)
    return saved


def _read_saved(inputs: Inputs) -> CheckpointQuestion:
    """Read what is saved: of a model as it is trained, or of a number of parameters that all are."""
    read_size(inputs, (*MODEL_OPTIONS, *PREDICTING, *TRAINED))
    policy = precision(inputs.text("precision"))
    optimizer, _ = optimizer_names.find(inputs.text("optimizer"))
    if not inputs.has("model"):
        inputs.because(FROZEN, "it belongs to a MODEL", "name a model instead of --params")
        inputs.need("params", "a MODEL, or its number of parameters")
        return _of_count(inputs.term("params"), policy, optimizer)
    if inputs.has("params"):
        raise NapkinError("MODEL and --params cannot be combined", "the model has its own count")
    model = read_model(inputs)
    count = _count_of(model)
    if not (optimizer.factored or optimizer.only_matrices or any(name in inputs for name in FROZEN)):
        return _of_count(count, policy, optimizer)  # every parameter has the same bytes: no setup is read for them
    from napkin.commands.question.trained_setup import read_trained_setup
    from napkin.commands.screens.setup import trained_part
    from napkin.footprint.checkpointed import saved_states

    setup = read_trained_setup(inputs, model)
    inputs.depends(OF_FROZEN, False, "frozen weights are not saved")
    merged = None
    if setup.implementation.tuning is not None:
        each = capacity.width(setup.precision.frozen or setup.precision.param, "bytes_per_param/merged")
        merged = multiply("checkpoint/merged", count, each)
    found = saved_states(model, setup), merged, trained_part(setup)
    return CheckpointQuestion(count, *found, setup.precision, setup.optimizer)


def _count_of(model: Model) -> Term:
    """Return the parameters of a model, with those of its vision tower and audio encoder."""
    from napkin.counting.vision import params_of

    return (params.params(model)["params/total"], *params_of(model))[-1]


def _of_count(count: Term, policy: Precision, optimizer: Optimizer) -> CheckpointQuestion:
    """Return what is saved of a number of parameters that are all trained."""
    widths = capacity.state_widths(policy, optimizer)
    kept = {name: width for name, width in widths.items() if name != "gradients" and width.value}
    return CheckpointQuestion(count, storage.checkpoint_bytes(count, kept), None, (), policy, optimizer)


def _read_mtbf(inputs: Inputs) -> Term | None:
    """Return the job's mean time between failures, as given or from one GPU's."""
    gpu = inputs.number_or_none("gpu-mtbf")
    if inputs.has("mtbf"):
        if gpu is not None:
            raise NapkinError("--mtbf and --gpu-mtbf cannot be combined", "give the job's or one GPU's")
        return inputs.term("mtbf")
    if gpu is None:
        return None
    inputs.need("gpus", "how many can fail?")
    return interruptions.mtbf_of(leaf("gpu_mtbf", gpu, "GPU-second"), inputs.term("gpus"))


def answer(question: CheckpointQuestion) -> Answer:
    """Answer with the bytes, the time to write them, and the intervals of Young and Daly."""
    size = question.size
    terms = [size, *size.parts, *([question.merged] if question.merged is not None else [])]
    notes = ["gradients are not saved; the iteration and step counters add kilobytes"]
    write = _write_time(question, size)
    if write is not None:
        terms.append(write)
        mtbf = question.mtbf
        if mtbf is not None:
            young = interruptions.young(write, mtbf)
            terms += [young, interruptions.daly(write, mtbf, young), interruptions.lost(write, mtbf, young)]
            if mtbf.parts:
                terms.append(mtbf)
            if write.value >= mtbf.value:
                notes.append("writing takes longer than the mean time between failures: hardly any work would survive")
    return Answer("checkpoint", terms=terms, notes=notes, screen=_screen(question, {t.name: t for t in terms}))


def _write_time(question: CheckpointQuestion, size: Term) -> Term | None:
    """Return the time to write a checkpoint: at a given rate, or as published jobs did on this many GPUs."""
    if question.write is not None:
        return storage.write_time(size, question.write)
    if question.gpus is None:
        return None
    write = replace(failures.written()[0], states=size)
    return write.seconds(question.gpus).renamed("checkpoint/write_time")


KEPT = {"parameters": "weights", "master": "master weights", "optimizer": "optimizer states"}
"""Part of a checkpoint → its name on the screen."""


def _screen(question: CheckpointQuestion, terms: Mapping[str, Term]) -> Screen:
    """Return the screen: the bytes, and how often to write them if the failure rate is known."""
    total = terms["checkpoint/bytes"]
    rows = [
        (KEPT[part.name.rpartition("/")[2]], human(part.value, "byte"), part.value / total.value, "")
        for part in total.parts
        if part.value
    ]
    table = shares(rows)
    if question.merged is not None:
        merged = human(question.merged.value, "byte")
        row = ("merged model", merged, "", "", "model and adapters in one")
        table = Table(table.columns, (*table.rows, row))
    headline = [human(total.value, "byte")]
    following = Next({"write-bandwidth": "10GB/s", "mtbf": "24h"})
    if "checkpoint/write_time" in terms:
        headline.append(f"{human(terms['checkpoint/write_time'].value, 'second')} to write")
        following = Next({"mtbf": "24h"})
    if "checkpoint/interval" in terms:
        young, daly = terms["checkpoint/interval"], terms["checkpoint/interval/daly"]
        headline.insert(0, f"one every {human(young.value, 'second')}")
        lost = share(terms["checkpoint/overhead"].value)
        more = [
            ("by Daly's formula", human(daly.value, "second"), "", "", "above by Young's"),
            ("time lost", lost, "", "", "writing, redoing work"),
        ]
        table = Table(table.columns, (*table.rows, *more))
        eight = in_eight_bits(question.optimizer)
        following = Next({"optimizer": eight.name} if eight else {"explain": True})
    first = f"Checkpoint of {amount(question.params.value)} parameters"
    asked = (first, *question.trained, question.optimizer.name, question.policy.name)
    hopeless = "checkpoint/write_time" in terms and question.mtbf is not None and _is_hopeless(terms, question.mtbf)
    said = ["Writing takes longer than the mean time between failures: hardly any work would survive."] * hopeless
    return Screen(asked, headline, table=table, remarks=said, next=following)


def _is_hopeless(terms: Mapping[str, Term], mtbf: Term) -> bool:
    """Return whether writing takes longer than the mean time between failures."""
    return bool(terms["checkpoint/write_time"].value >= mtbf.value)


COMMAND = Command(
    "checkpoint",
    "Size of a checkpoint, time to write it, and how often to write one (Young, Daly)",
    run,
    brief="Checkpoint size, write time, and how often to write one",
    options=(
        *(*MODEL_OPTIONS, *PREDICTING, "params", "precision", "optimizer", *FROZEN),
        *("write-bandwidth", "mtbf", "gpu-mtbf", "gpus"),
    ),
    arguments=("model",),
    defaults={"precision": "bf16-mixed", "optimizer": "adamw"},
    examples=(
        "checkpoint --params 70B --write-bandwidth 10GB/s --mtbf 24h",
        "checkpoint llama3-70b --gpus 512",
        "checkpoint llama3-8b --lora-rank 16",
        "checkpoint llama3-405b --write-bandwidth 100GB/s --gpu-mtbf 50000h --gpus 16384",
    ),
)
