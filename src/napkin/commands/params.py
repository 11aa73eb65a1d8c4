"""`napkin params MODEL`: parameters, exactly: total, active, tables, layers, down to each weight's shape."""

from __future__ import annotations

from napkin.commands.command import Command, Inputs
from napkin.commands.model import read_model
from napkin.counting.params import params
from napkin.options.model import MODEL_OPTIONS, PADDED
from napkin.render.answer import Answer


def run(inputs: Inputs) -> Answer:
    model = read_model(inputs)
    counted = params(model, mtp=bool(inputs.get("mtp")))
    total, active = counted["params/total"].value, counted["params/active"].value
    title = f"{model.name}: {total:,} parameters" + (f", {active:,} of them active" if active != total else "")
    answer = Answer("params", title, tuple(counted.values()))
    if "params/idle_experts" in counted:
        answer.notes.append("active: everything but the routed experts that a token does not choose")
    if model.tied:
        answer.notes.append("the head is tied to the token table, which is counted once")
    return answer


COMMAND = Command(
    "params",
    "Parameters of a model, exactly: total, active, tables, layers, each weight's shape",
    run,
    options=(*MODEL_OPTIONS, *PADDED, "tp", "mtp"),
    arguments=("model",),
    examples=("params llama3-8b", "params deepseek-v3 --mtp", "params configs/models/gpt2.yaml --explain"),
)
