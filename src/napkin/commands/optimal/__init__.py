"""`napkin optimal`: what to train with a budget, and what another choice costs."""

from __future__ import annotations

from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.options.model import MODEL_OPTIONS
from napkin.options.output import DRAWS
from napkin.options.question import OF_FAILURES
from napkin.planning.laws.known import DEFAULT
from napkin.render.answer import Answer

OF_PLAN = ("seq", "precision", "optimizer", "framework")
"""Options of the layouts that are searched for the model."""


def run(inputs: Inputs) -> Answer:
    """Answer for a budget."""
    from napkin.commands.optimal.answer import answer
    from napkin.commands.optimal.question import read

    return answer(read(inputs))


COMMAND = Command(
    "optimal",
    "Compute-optimal training for a budget: parameters, tokens, expected loss, and the cost of other choices",
    run,
    brief="Compute-optimal parameters and tokens for a budget",
    options=(
        "compute",
        "law",
        "params",
        "tokens",
        "served-tokens",
        "unique-tokens",
        "experts",
        "granularity",
        "bits",
        "gpus",
        "nodes",
        "gpus-per-node",
        "hardware",
        "hardware-file",
        "within",
        "budget",
        "price",
        "mfu",
        "goodput",
        "run-kind",
        *OF_FAILURES,
        *OF_PLAN,
        "confidence",
        *(name for name in MODEL_OPTIONS if name not in OF_PLAN),
        *DRAWS,
    ),
    arguments=("model",),
    defaults={"law": DEFAULT, "confidence": "90"},
    examples=(
        "optimal --compute 3.8e25",
        "optimal --gpus 256 --hardware h100 --within 30d",
        "optimal --budget 500000 --price 2 --hardware h100",
        "optimal llama3-8b",
        "optimal --params 8B --compute 1e23 --served-tokens 5T",
        "optimal --compute 1e23 --unique-tokens 100B",
        "optimal --compute 1e22 --law krajewski2024 --experts 64",
    ),
)
