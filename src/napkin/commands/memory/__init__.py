"""`napkin memory`: what each GPU holds while training, bucket by bucket, and what is left for activations."""

from __future__ import annotations

from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.commands.matmul_or_linear import run_matmul_or_linear
from napkin.commands.memory import host, loading
from napkin.commands.memory.chart import show
from napkin.commands.memory.notes import notes_of
from napkin.commands.memory.question import STATUS, MemoryQuestion, read
from napkin.commands.question.machine import RATES
from napkin.commands.question.model import read_model
from napkin.commands.question.tasks import read_whether_rollout
from napkin.commands.screens import memory as screen
from napkin.errors import UNDECIDED
from napkin.options.layout import STAGE_OPTIONS
from napkin.options.model import MODEL_OPTIONS, PADDED, PREDICTING
from napkin.options.option import choice
from napkin.options.output import DRAWS
from napkin.options.question import LINEAR_OPTIONS
from napkin.options.rollout import ROLLOUT
from napkin.options.training import SETUP_DEFAULTS, SETUP_OPTIONS, STATE_OPTIONS
from napkin.planning.step_memory import activation_budget, kept_tensors, terms_of
from napkin.planning.verdicts import FITS, NOT, VERDICTS, Fit
from napkin.render.answer import Answer


def run(inputs: Inputs) -> Answer:
    """Answer for a model that trains or serves, or for a stack of linear layers."""
    judged = "must-fit" in inputs or any(name in inputs and "inference" not in inputs for name in ("max", "min"))
    if judged and inputs.peek("model") != "linear":
        inputs.need_all({"model": "which model?", "hardware": "which accelerator must it fit on?"})
    small = run_matmul_or_linear(inputs)
    if small is not None:
        return small
    if "batch" in inputs and "micro-batch" not in inputs and not inputs.flag("inference"):
        inputs.means("batch", "micro-batch")
    if read_whether_rollout(inputs):
        from napkin.commands.rollout.answer import run_memory

        return run_memory(inputs)
    model = read_model(inputs)
    if inputs.flag("inference"):
        from napkin.commands.memory import serving

        return serving.run(inputs, model)
    if inputs.has("min"):
        from napkin.commands.memory.fewest import run_fewest

        return run_fewest(inputs, model, lambda chosen: answer(read(chosen, model)))
    question = read(inputs, model)
    if question.snapshot is not None:
        inputs.minor.add("hardware")
        inputs.because(("hardware",), "a measurement is compared with the prediction, and nothing has to fit")
    found = answer(question)
    if question.advise and found.verdict in (NOT, UNDECIDED):
        inputs.depends(RATES, True)  # what the remedies cost
    else:
        inputs.minor.update(RATES)
        inputs.because(RATES, "only remedies take time, and none is needed")
    return found


def answer(question: MemoryQuestion) -> Answer:
    """Answer with the memory of one layout, with the largest value that fits, or with a comparison to a snapshot."""
    if question.maximize is not None:
        from napkin.commands.memory.largest import answer_largest

        return answer_largest(question)
    found = question.evaluate(question.model, question.setup)
    if question.snapshot is not None:
        from napkin.commands.memory.snapshot import compare
        from napkin.commands.screens.snapshot import screen as compared

        terms = terms_of(found, question.source)
        answer = compare(question.snapshot, question.snapshot_from, found, terms)
        answer.screen = compared(question, answer)
        return answer
    return _account(question, found)


def _account(question: MemoryQuestion, found: Fit) -> Answer:
    """Answer with the memory of one layout by category, against capacity if an accelerator is named."""
    capacity = question.capacity
    terms = terms_of(found, question.source)
    answer = Answer("memory", tuple(terms.values()))
    answer.intervals = {**found.reported.ends, "memory/total": found.reported.ends["memory/used"]}
    if capacity is not None:
        answer.terms = (*answer.terms, capacity, activation_budget(capacity, terms))
        answer.verdict = found.verdict
    host.judge(answer, terms, question.node, question.host_memory)
    loading.add(answer, question.model, question.setup)
    if capacity is not None and question.must_fit:
        answer.status = STATUS[answer.verdict or found.verdict]
    show(answer, found, terms, capacity, question.hardware.name if question.hardware is not None else "")
    answer.notes += notes_of(question.model, question.setup, found)
    if question.hardware is not None and question.advise and found.steps in (NOT, UNDECIDED):
        from napkin.commands.memory.remedies import suggest

        suggest(answer, question, question.hardware)
    answer.screen = screen.of_step(question, found, answer)
    if question.tensors:
        _list_tensors(answer, found)
    return answer


def _list_tensors(answer: Answer, found: Fit) -> None:
    """Add every tensor that autograd saves, by section and operation, as rows."""
    from napkin.commands.screens.saved_tensors import listed

    tensors = kept_tensors(found.step)
    answer.rows = [
        {"piece": one.section, "operation": one.operation, "tensor": one.tensor, "bytes": one.size, "times": one.times}
        for one in tensors
    ]
    answer.rows_name = "tensors"
    answer.extra["columns"] = {"bytes": "byte"}
    if answer.screen is not None:
        answer.screen = listed(answer.screen, tensors, found.step.setup.layout.recompute.kind != "none")


COMMAND = Command(
    "memory",
    "Memory of a training step per GPU, by category, and whether it fits",
    run,
    brief="Memory of a training step per GPU, and whether it fits",
    options=(
        "hardware",
        "hardware-file",
        *SETUP_OPTIONS,
        *STATE_OPTIONS,
        *STAGE_OPTIONS,
        *MODEL_OPTIONS,
        *PADDED,
        *PREDICTING,
        *ROLLOUT,
        "save",
        "loading",
        "host-memory",
        "must-fit",
        "confidence",
        "phases",
        "max",
        "min",
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
    reads={"min": choice("gpus"), "max": choice("micro-batch", "seq", "layers", "params")},
    arguments=("model", "size"),
    defaults=SETUP_DEFAULTS,
    verdicts=VERDICTS,
    success=FITS,
    examples=(
        "memory llama3-8b --gpus 8 --hardware h100 --seq 8192 --zero 3 --recompute full",
        "memory gpt2 --hardware a100-40gb --micro-batch 8 --seq 1024 --precision amp-bf16",
        "memory llama3-70b --hardware h100 --gpus 64 --tp 8 --pp 4 --zero 1 --recompute full --must-fit",
        "memory llama3-8b --hardware h100 --gpus 8 --zero 3 --recompute full --max micro-batch",
        "memory llama3-70b --hardware h100 --min gpus --recompute full",
        "memory llama3-8b --hardware h100 --inference --seq 8192",
        "memory linear --width 4 --depth 2 --batch 2 --optimizer adagrad --precision fp32",
    ),
)
