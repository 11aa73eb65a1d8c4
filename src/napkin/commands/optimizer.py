"""`napkin optimizer`: what an optimizer keeps for each parameter, tensor by tensor."""

from __future__ import annotations

from collections.abc import Sequence

from napkin import formats
from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.counting.tensors import written
from napkin.formats import Format, Integer
from napkin.record import record
from napkin.render.answer import Answer, Row
from napkin.render.figures import amount, size
from napkin.render.screen import Column, Next, Screen, Table, quantities
from napkin.term import Term
from napkin.training import optimizer_names, optimizer_states, optimizers
from napkin.training.optimizer import Optimizer


@record
class OptimizerQuestion:
    """An optimizer and its form, for parameters of a dtype: one tensor of `shape`, or `params` parameters."""

    optimizer: Optimizer
    form: str | None
    dtype: Format | Integer
    shape: tuple[int, ...] | None
    params: Term | None


def run(inputs: Inputs) -> Answer:
    """Answer for one optimizer, or with the list of all."""
    name = inputs.text_or_none("optimizer-name") or inputs.text_or_none("optimizer")
    if name is None:
        inputs.because(inputs.command.options, "no optimizer is named", "napkin optimizer adamw, for example")
        return _list()
    inputs.because(("optimizer",), "the optimizer is named already")
    return answer(read(inputs, name))


def read(inputs: Inputs, name: str) -> OptimizerQuestion:
    """Read the question about one optimizer."""
    optimizer, form = optimizer_names.find(name, "NAME", inputs.text_or_none("optimizer-form"))
    dtype = formats.find(inputs.text("param-dtype"), "--param-dtype")
    if optimizer.note:
        inputs.note(f"{optimizer.name} {optimizer.note}")
    shape = inputs.integers("shape") if inputs.has("shape") else None
    inputs.because(("params",), "--shape says how many parameters there are")
    params = inputs.term("params") if shape is None and inputs.has("params") else None
    return OptimizerQuestion(optimizer, form, dtype, shape, params)


def answer(question: OptimizerQuestion) -> Answer:
    """Answer with the states that are kept."""
    width = formats.element_bytes(question.dtype, "state_bytes_per_element")
    if question.shape is None:
        return _of_many(question, width)
    return _of_tensor(question, question.shape, width)


def _of_tensor(question: OptimizerQuestion, shape: tuple[int, ...], width: Term) -> Answer:
    """Answer for one parameter tensor; width: bytes of an element."""
    optimizer, form = question.optimizer, question.form
    kept = optimizer_states.of_tensor(optimizer, shape, width, form)
    terms, notes = [kept.total, kept.each, *kept.states], []
    if kept.counters is not None:
        terms.append(kept.counters)
        where = kept.counters.name.rpartition("/")[2]
        notes.append(f"{', '.join(kept.scalars)}: 4 bytes per tensor each, kept on the {where}{_form(form)}")
    answer = Answer("optimizer", terms=terms, notes=notes)
    names = [(term, term.name.rpartition("/")[2]) for term in kept.states]
    rows = [(name, size(term.value), "one number a tensor" * (name in kept.scalars)) for term, name in names]
    answer.screen = Screen(
        (f"States of {optimizer.name}", f"{written(shape)} parameter in {question.dtype.name}"),
        (size(kept.total.value) if names else "0 bytes: no state", f"{kept.each.value:.7g} bytes per parameter"),
        table=quantities(rows),
        next=_next(question),
    )
    return answer


def _next(question: OptimizerQuestion) -> Next:
    """Return the next command: an optimizer with less state, or the list."""
    if eight := optimizers.in_eight_bits(question.optimizer):
        return Next({"optimizer-name": eight.name, "optimizer": None, "optimizer-form": None})
    return Next({"optimizer-name": "adamw", "optimizer": None})


def _form(form: str | None) -> str:
    """Return the form in which the step runs, in words."""
    return f" ({form})" if form else " (fused and capturable optimizers keep them on the device)"


def _of_many(question: OptimizerQuestion, width: Term) -> Answer:
    """Answer with the bytes per parameter of large tensors, and for --params parameters."""
    optimizer = question.optimizer
    per = optimizer_states.of_large_tensors(optimizer, width)
    terms, notes = [per], []
    if question.params is not None:
        terms.insert(0, optimizer_states.of_params(question.params, per))
        counters = optimizer_states.counters(optimizer)
        if counters:
            notes.append(f"step counters, {counters} bytes per tensor, are not included: give --shape")
    count = question.params
    parts = per.parts if len(optimizer.states) > 1 and per.op == "sum" else ()
    whole = (size(terms[0].value), f"{per.value:.7g} bytes per parameter")
    answer = Answer("optimizer", terms=terms, notes=notes)
    answer.screen = Screen(
        (
            f"States of {optimizer.name}",
            f"{'large parameters' if count is None else f'{amount(count.value)} parameters'} in {question.dtype.name}",
        ),
        whole[1:] if count is None else whole,
        table=quantities(
            [(part.name.rpartition("/")[2], f"{part.value:.7g} bytes per parameter", "") for part in parts]
        ),
        next=_next(question),
    )
    return answer


def _list() -> Answer:
    """Answer with every optimizer and its bytes per parameter."""
    rows: list[Row] = []
    cells: list[tuple[str, ...]] = []
    for optimizer in optimizers.OPTIMIZERS.values():
        sizes = {dtype: optimizer_states.bytes_in(optimizer, dtype) for dtype in ("fp32", "bf16")}
        states = [state.name for state in optimizer.states]
        named: Row = {"optimizer": optimizer.name, "copies": optimizer.copies, "states": states}
        rows.append({**named, **sizes, "source": optimizer.source})
        texts = ["by shape" if size is None else f"{size:.7g}" for size in sizes.values()]
        cells.append((optimizer.name, *texts, _shortened(states)))
    columns = (
        Column("optimizer"),
        Column("fp32", right=True),
        Column("bf16", right=True),
        Column("states", drop=1),
    )
    screen = Screen(
        ("Bytes of state per parameter", "by the parameters' dtype"),
        table=Table(columns, cells),
        next=Next({"optimizer-name": "adamw", "params": "7B"}),
        listing=True,
    )
    return Answer("optimizer", rows=rows, screen=screen)


LONGEST = 31
"""Maximum characters of a list of states; a longer one ends in an ellipsis."""


def _shortened(states: Sequence[str]) -> str:
    """Return names separated by commas, as many as fit."""
    count = next(n for n in range(len(states), -1, -1) if n <= 1 or len(", ".join(states[:n])) <= LONGEST)
    return ", ".join(states[:count]) + (", …" if count < len(states) else "") or "none"


COMMAND = Command(
    "optimizer",
    "Optimizer states per parameter: tensors, bytes, and where step counters are stored",
    run,
    brief="Optimizer states, in bytes per parameter",
    options=("optimizer", "optimizer-form", "shape", "param-dtype", "params"),
    arguments=("optimizer-name",),
    defaults={"param-dtype": "fp32"},
    examples=("optimizer", "optimizer adamw --shape 96x64 --param-dtype bf16", "optimizer adamw-8bit --params 7B"),
)
