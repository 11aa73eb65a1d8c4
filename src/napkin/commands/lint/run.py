"""The amount of training, its price, and the operation of the run, read from the options."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.counting.params import params
from napkin.footprint import capacity, storage
from napkin.operations.model import Model
from napkin.options.lint import OPERATION
from napkin.rules.case import Run
from napkin.term import GIVEN, Term, leaf
from napkin.timing import interruptions
from napkin.training.setup import Setup


def read_run(inputs: Inputs, model: Model, setup: Setup, seconds: float | None) -> Run:
    """Return the amount of training, its price, and the operation of the run, as far as given. seconds: of a step, if
    it is timed."""
    tokens: float | None = None
    padding = 0.0
    a_step = float(setup.layout.global_batch * setup.layout.seq)
    price = float(inputs.number("price")) if inputs.has("price") else None
    if "tokens" in inputs:
        tokens = float(inputs.number("tokens"))
    elif "steps" in inputs:
        tokens = inputs.integer("steps") * a_step
    elif "samples" in inputs and ("sample-tokens" in inputs or "lengths" in inputs):
        from napkin.commands.question.amount import read_amount

        found = read_amount(inputs, int(setup.layout.seq))
        tokens = float(found.tokens.value)
        padding = next((float(one.value) for one in found.more if one.name == "padding/share"), 0.0)
    epochs = float(inputs.number("epochs")) if inputs.has("epochs") else None
    steps = tokens / a_step if tokens is not None else None
    why = "the number of steps of the run is not stated"
    inputs.depends(("warmup-steps",), steps is not None, why, "--steps, or --tokens")
    warmup = inputs.integer_or_none("warmup-steps") if steps is not None else None
    interval, write, mtbf = _read_operation(inputs, model, setup, seconds)
    return Run(tokens, price, interval, mtbf, write, epochs, padding, steps, warmup)


def _read_operation(
    inputs: Inputs, model: Model, setup: Setup, seconds: float | None
) -> tuple[Term | None, Term | None, Term | None]:
    """Return the checkpoint interval, the write time, and the mean time between failures of the job; None if one is
    missing."""
    stated = "write-bandwidth" in inputs and ("mtbf" in inputs or "gpu-mtbf" in inputs)
    paced = "checkpoint-interval" in inputs or ("save-steps" in inputs and seconds is not None)
    needs = "--write-bandwidth, --mtbf or --gpu-mtbf, and --checkpoint-interval or --save-steps (with --hardware)"
    inputs.depends((*OPERATION, "save-steps"), stated and paced, "the cost of checkpoints is not known without", needs)
    if not stated or not paced:
        return None, None, None
    if "checkpoint-interval" in inputs:
        interval = inputs.term("checkpoint-interval")
    else:
        interval = leaf("interval", inputs.integer("save-steps") * float(seconds or 0.0), "second", GIVEN)
    if "gpu-mtbf" in inputs:
        gpus = leaf("gpus", int(setup.layout.gpus), "GPU")
        mtbf = interruptions.mtbf_of(leaf("gpu_mtbf", inputs.number("gpu-mtbf"), "GPU-second"), gpus)
    else:
        mtbf = inputs.term("mtbf")
    widths = capacity.state_widths(setup.precision, setup.optimizer)
    kept = {name: width for name, width in widths.items() if name != "gradients" and width.value}
    size = storage.checkpoint_bytes(params(model)["params/total"], kept)
    return interval, storage.write_time(size, inputs.term("write-bandwidth")), mtbf
