"""`napkin optimizer`: what an optimizer keeps for each parameter, tensor by tensor."""

from __future__ import annotations

from typing import Any

from napkin import formats
from napkin.commands.command import Command, Inputs
from napkin.counting.tensors import written
from napkin.render.answer import Answer
from napkin.term import Term, add, constant, divide, leaf, multiply
from napkin.training import optimizers
from napkin.training.optimizers import Optimizer


def run(inputs: Inputs) -> Answer:
    name = inputs.get("optimizer-name") or inputs.get("optimizer")
    if name is None:
        return _list()
    optimizer, form = optimizers.find(name, "NAME", inputs.get("optimizer-form"))
    form_of_param = formats.find(inputs.get("param-dtype"), "--param-dtype")
    if optimizer.note:
        inputs.note(f"{optimizer.name} {optimizer.note}")
    shape = inputs.get("shape")
    width = formats.element_bytes(form_of_param, "state_bytes_per_element")
    if shape is None:
        return _rate(inputs, optimizer, width, form_of_param.name)
    states = optimizers.terms(optimizer, shape, width)
    total = add("optimizer/state_bytes", *states) if states else leaf("optimizer/state_bytes", 0, "byte", "true")
    scalars = {s.name for s in optimizer.kept(shape) if s.layout == optimizers.SCALAR}
    params = leaf("params", optimizers.elements_of(optimizers.State("whole"), shape), "param")
    tensors = [t for t in states if t.name.rpartition("/")[2] not in scalars and not t.name.endswith("code_books")]
    per = divide("optimizer/bytes_per_param", add("optimizer/tensor_bytes", *tensors), params) if tensors else None
    terms = [total, per or leaf("optimizer/bytes_per_param", 0, "byte/param", "true", optimizer.source), *states]
    if scalars:
        where = "device" if optimizers.counters_on_device(form) else "host"
        counted = [t for t in states if t.name.rpartition("/")[2] in scalars]
        terms.append(add(f"optimizer/counters/{where}", *counted))
        inputs.note(f"{', '.join(sorted(scalars))}: 4 bytes a tensor each, kept on the {where}{_form(form)}")
    title = f"{optimizer.name} for a {written(shape)} parameter of {form_of_param.name}"
    return Answer("optimizer", title, terms)


def _form(form: str | None) -> str:
    return f" ({form})" if form else " (fused and capturable optimizers keep them on the device)"


def _rate(inputs: Inputs, optimizer: Optimizer, width: Term, dtype: str) -> Answer:
    """Bytes for each parameter of large tensors, and for --params of them."""
    each = divide("state_bytes", width, constant("parameter", 1, "param"))
    per = optimizers.per_param(optimizer, each, "optimizer/bytes_per_param")
    terms = [per]
    if inputs.get("params") is not None:
        terms.insert(0, multiply("optimizer/state_bytes", inputs.term("params"), per))
        if optimizers.counters(optimizer):
            inputs.note(f"step counters, {optimizers.counters(optimizer)} bytes a tensor, are not in it: give --shape")
    return Answer("optimizer", f"{optimizer.name}, large parameters of {dtype}", terms)


def _list() -> Answer:
    rows: list[dict[str, Any]] = []
    for optimizer in optimizers.OPTIMIZERS.values():
        row: dict[str, Any] = {
            "optimizer": optimizer.name,
            "copies": optimizer.copies,
            "states": [s.name for s in optimizer.states],
        }
        for dtype in ("fp32", "bf16"):
            width = divide("state", formats.element_bytes(formats.find(dtype)), constant("parameter", 1, "param"))
            row[dtype] = None if optimizer.factored else optimizers.per_param(optimizer, width).value
        rows.append({**row, "source": optimizer.source})
    title = "bytes a parameter that each optimizer keeps, for parameters of fp32 and bf16 (–: it depends on the shape)"
    display = [
        {
            "optimizer": row["optimizer"],
            "copies": str(row["copies"]),
            "fp32": "–" if row["fp32"] is None else f"{row['fp32']:.7g}",
            "bf16": "–" if row["bf16"] is None else f"{row['bf16']:.7g}",
            "states": ", ".join(row["states"]) or "none",
        }
        for row in rows
    ]
    return Answer("optimizer", title, rows=rows, display=display, extra={"units": {}})


COMMAND = Command(
    "optimizer",
    "What an optimizer keeps for each parameter: states, bytes, where step counters live",
    run,
    ("optimizer", "optimizer-form", "shape", "param-dtype", "params"),
    arguments=("optimizer-name",),
    defaults={"param-dtype": "fp32"},
    examples=("optimizer", "optimizer adamw --shape 96x64 --param-dtype bf16", "optimizer adamw-8bit --params 7B"),
)
