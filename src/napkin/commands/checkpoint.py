"""`napkin checkpoint`: what one holds, how long it takes to write, how often to write one."""

from __future__ import annotations

from napkin.commands.command import Command, Inputs
from napkin.commands.model import read_model
from napkin.counting import params
from napkin.errors import NapkinError
from napkin.footprint import capacity, storage
from napkin.options.model import MODEL_OPTIONS
from napkin.render.answer import Answer
from napkin.term import Term, leaf
from napkin.training import optimizers
from napkin.training.precision import precision
from napkin.units import human


def run(inputs: Inputs) -> Answer:
    count = _params(inputs)
    policy = precision(inputs.get("precision"))
    optimizer, _ = optimizers.find(inputs.get("optimizer"))
    widths = capacity.state_widths(policy, optimizer)
    kept = {name: width for name, width in widths.items() if name != "gradients" and width.value}
    size = storage.checkpoint_bytes(count, kept)
    terms = [size, *size.parts]
    inputs.note("gradients are not saved; the iteration and step counters add kilobytes")
    bandwidth = inputs.get("write-bandwidth")
    if bandwidth is not None:
        write = storage.write_time(size, inputs.term("write-bandwidth"))
        terms.append(write)
        mtbf = _mtbf(inputs)
        if mtbf is not None:
            young = storage.young(write, mtbf)
            terms += [young, storage.daly(write, mtbf, young), storage.lost(write, mtbf, young)]
            if mtbf.parts:
                terms.append(mtbf)
            if write.value >= mtbf.value:
                inputs.note("writing takes longer than the mean time between failures: hardly any work would survive")
    elif inputs.get("mtbf") is not None or inputs.get("gpu-mtbf") is not None:
        raise NapkinError("--write-bandwidth is missing", "an interval needs the time that writing takes")
    return Answer("checkpoint", f"{human(count.value, 'param')}, {optimizer.name}, {policy.name}", terms)


def _params(inputs: Inputs) -> Term:
    """The model's exact count, or --params."""
    if inputs.get("model") is None:
        inputs.need("params", "a MODEL, or its number of parameters")
        return inputs.term("params")
    if inputs.get("params") is not None:
        raise NapkinError("MODEL and --params cannot be combined", "the model has its own count")
    return params.params(read_model(inputs))["params/total"]


def _mtbf(inputs: Inputs) -> Term | None:
    """The job's, as given or from one GPU's."""
    gpu = inputs.get("gpu-mtbf")
    if inputs.get("mtbf") is not None:
        if gpu is not None:
            raise NapkinError("--mtbf and --gpu-mtbf cannot be combined", "give the job's or one GPU's")
        return inputs.term("mtbf")
    if gpu is None:
        return None
    inputs.need("gpus", "how many can fail?")
    return storage.mtbf_of(leaf("gpu_mtbf", gpu, "GPU-second"), inputs.term("gpus"))


COMMAND = Command(
    "checkpoint",
    "Bytes of a checkpoint, how long it takes to write, and how often to write one (Young, Daly)",
    run,
    (*MODEL_OPTIONS, "params", "precision", "optimizer", "write-bandwidth", "mtbf", "gpu-mtbf", "gpus"),
    arguments=("model",),
    defaults={"precision": "bf16-mixed", "optimizer": "adamw"},
    examples=(
        "checkpoint --params 70B --write-bandwidth 10GB/s --mtbf 24h",
        "checkpoint llama3-405b --write-bandwidth 100GB/s --gpu-mtbf 50000h --gpus 16384",
    ),
)
