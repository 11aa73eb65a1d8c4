"""`napkin params MODEL`: parameters, exactly: total, active, embeddings, layers, down to each weight's shape."""

from __future__ import annotations

from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.commands.model import read_model
from napkin.counting.params import of_vision, params
from napkin.operations.model import Model
from napkin.options.model import MODEL_OPTIONS, PADDED
from napkin.render.answer import Answer


def run(inputs: Inputs) -> Answer:
    """Answer for a model."""
    return answer(read_model(inputs), inputs.flag("mtp"))


def answer(model: Model, mtp: bool) -> Answer:
    """Answer with a model's parameters; mtp: with its multi-token prediction modules."""
    counted = params(model, mtp=mtp)
    total, active = counted["params/total"].value, counted["params/active"].value
    title = f"{model.name}: {total:,} parameters" + (f", {active:,} of them active" if active != total else "")
    answer = Answer("params", title, (*counted.values(), *of_vision(model)))
    if "params/idle_experts" in counted:
        answer.notes.append("active: everything but the routed experts that a token does not choose")
    if model.tied:
        answer.notes.append("tied embeddings: the head is the token embedding, which is counted once")
    return answer


COMMAND = Command(
    "params",
    "Parameters of a model, exactly: total, active, tables, layers, each weight's shape",
    run,
    options=(*MODEL_OPTIONS, *PADDED, "tp", "mtp"),
    arguments=("model",),
    examples=("params llama3-8b", "params deepseek-v3 --mtp", "params configs/models/gpt2.yaml --explain"),
)
