"""The FLOPs per token of a model in every convention, read from the options, to convert a measured rate with."""

from __future__ import annotations

from collections.abc import Callable

from napkin.commands.inputs import Inputs
from napkin.commands.mfu.measured_rate import Counted
from napkin.commands.question.frozen import read_passes
from napkin.commands.question.model import read_documents, read_indexer_loss, read_sequence, read_target
from napkin.commands.question.tasks import read_task
from napkin.counting import conventions, flops
from napkin.operations.model import Model
from napkin.record import record
from napkin.training.tasks import Passes

VERDICT_BY = "palm"
"""The convention whose MFU the verdict is about, if none is named and nothing is frozen."""


@record
class CountedModel:
    """What converts a model's rates, the passes of its step, and the FLOPs of a model in a number of its samples."""

    counted: Counted
    passes: Passes
    over: Callable[[Model, int], flops.Works]


def read_counted(inputs: Inputs, model: Model) -> CountedModel:
    """Return the FLOPs per token of the model in every convention at the lengths of the question."""
    seq = read_sequence(inputs, model)
    documents = read_documents(inputs, seq)
    target, indexer_loss = read_target(inputs, model), read_indexer_loss(inputs, model)
    task = read_task(inputs)
    passes = read_passes(inputs, model)

    def over(one: Model, times: int) -> flops.Works:
        rows = times * task.rows
        return flops.works(one, rows, seq, target=target, documents=documents, indexer_loss=indexer_loss)

    per_token = conventions.all_conventions(model, over(model, 1))
    usual = passes == Passes(model)
    if not usual:  # the other conventions count the gradients of all weights, and one model
        per_token["torch"] = conventions.counted_per_token(passes, over)
    allowed = conventions.allowed_per_token(passes, over)
    half = conventions.counted_per_token(passes, over, pairs=flops.HALF)
    counted = Counted(per_token, seq * task.rows, VERDICT_BY if usual else "torch", allowed, half)
    return CountedModel(counted, passes, over)
