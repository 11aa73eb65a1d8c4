"""`napkin plan MODEL --gpus N --hardware H`: every layout of the machine, ranked, and why the others are slower."""

from __future__ import annotations

from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.commands.question.tasks import read_whether_rollout
from napkin.commands.question.usual_stack import PLANS_ON
from napkin.errors import HELD, IMPOSSIBLE, OK, NapkinError
from napkin.options.layout import BOUNDED, EXPERT_LOAD, MACHINE_SIZE, SEARCHED
from napkin.options.machine import accelerators
from napkin.options.model import MODEL_OPTIONS, PREDICTING
from napkin.options.output import DRAWS
from napkin.options.question import AMOUNT, OF_FAILURES
from napkin.options.ranges import values
from napkin.options.registry import OPTIONS
from napkin.options.rollout import ROLLOUT
from napkin.options.training import FROZEN, POLICY_OPTIONS, RATE_OPTIONS, SOFTWARE_OPTIONS, TASKED, UNTIMED
from napkin.planning.verdicts import FITS
from napkin.render.answer import Answer
from napkin.units import Unreadable, positive_count

MOST_COUNTS = 64
"""Maximum number of machine sizes in one question."""


def counts(text: str) -> int | list[int]:
    """Read one number of GPUs, a list, or a range that doubles."""
    if ".." not in text and "," not in text:
        return positive_count(text)
    try:
        found = [positive_count(str(one)) for one in values(OPTIONS["gpus"], text, "--gpus")]
    except NapkinError as problem:
        raise Unreadable(problem.message.removeprefix("--gpus: "), problem.hint) from None
    if len(found) > MOST_COUNTS:
        raise Unreadable(f"more than {MOST_COUNTS} machines", "take larger steps")
    return sorted(set(found))


def run(inputs: Inputs) -> Answer:
    """Answer for a model and one or several machines. The search loads numpy, which help does not need."""
    from napkin.render.progress import Progress

    if isinstance(inputs.peek("hardware"), list):
        from napkin.commands.plan.market import answer as of_market
        from napkin.commands.plan.market_question import read as read_market

        with Progress("searching layouts"):
            return of_market(read_market(inputs))
    if read_whether_rollout(inputs):
        from napkin.commands.rollout.plan import run_plan

        return run_plan(inputs)
    from napkin.commands.plan.answer import answer
    from napkin.commands.plan.question import read

    emit = inputs.text_or_none("emit")
    with Progress("searching layouts"):
        found = answer(read(inputs))
    if emit is not None:
        from napkin.commands.plan.emitted import record

        record(inputs, emit, found)
    return found


COMMAND = Command(
    "plan",
    "Search the parallel layouts of a machine, rank those that fit, and say why the others do not win",
    run,
    brief="Parallel layouts of a machine that fit, ranked by step time",
    verdicts=(*HELD.values(), FITS, IMPOSSIBLE),
    success=HELD[OK],
    options=(
        *MACHINE_SIZE,
        "hardware",
        "hardware-file",
        "seq",
        "target-seq",
        "images",
        "image-tokens",
        "global-batch",
        "grad-accum",
        "max-global-batch",
        "objective",
        "min",
        "tokens",
        *AMOUNT,
        "goodput",
        *OF_FAILURES,
        "phases",
        "run-kind",
        "within",
        "budget",
        "price",
        *SEARCHED,
        "ulysses",
        *EXPERT_LOAD,
        "distributed-optimizer",
        "sp",
        "recompute",
        *(f"max-{name}" for name in BOUNDED),
        *POLICY_OPTIONS,
        *SOFTWARE_OPTIONS,
        *TASKED,
        *ROLLOUT,
        *FROZEN,
        "offload",
        "loading",
        *UNTIMED,
        *RATE_OPTIONS,
        "profile",
        "host-memory",
        "confidence",
        "rows",
        "pareto",
        "emit",
        *MODEL_OPTIONS,
        *PREDICTING,
        *DRAWS,
    ),
    arguments=("model",),
    defaults={
        "objective": "time",
        "rows": "10",
        "precision": "bf16-mixed",
        "optimizer": "adamw",
        "implementation": "megatron",
        "attention": "flash",
        "dropout": "0",
        "stack": PLANS_ON,
        "confidence": "90",
    },
    examples=(
        "plan llama3-405b --gpus 16384 --hardware h100 --seq 8192 --global-batch 2048",
        "plan llama3-70b --hardware h100 --seq 8192 --min gpus --tokens 15T --within 60d",
        "plan llama3-70b --gpus 256..2048 --hardware h100 --seq 8192 --max-tp 8",
    ),
    reads={"gpus": counts, "hardware": accelerators},
)
