"""`napkin tensor`: a tensor's bytes, strides and views. Selections are applied in this order: --slice, --permute or
--transpose, --contiguous, --view, --index."""

from __future__ import annotations

from collections.abc import Mapping

from napkin import formats, units
from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.counting import tensor_bytes, tensors
from napkin.counting.tensors import TensorView
from napkin.errors import NapkinError
from napkin.formats import Format, Integer
from napkin.options.option import parsed
from napkin.options.parsers import selection
from napkin.record import record
from napkin.render.answer import Answer
from napkin.render.figures import size
from napkin.render.screen import Next, Screen, quantities
from napkin.term import TRUE, Term, leaf


@record
class TensorQuestion:
    """A tensor of a shape and format, in `count` copies. view: the result of the selections, copied or not.

    offset  of the element at --index, or None"""

    shape: tuple[int, ...]
    form: Format | Integer
    count: Term | None
    view: TensorView
    copied: bool
    offset: int | None


def run(inputs: Inputs) -> Answer:
    """Answer for a shape."""
    return answer(read(inputs))


def read(inputs: Inputs) -> TensorQuestion:
    """Read the question."""
    shape = parsed(units.shape, inputs.text("size", "the shape, e.g. 4x8"), "SHAPE")
    form = formats.find(inputs.text("dtype"))
    view, copied = _read_view(inputs, tensors.new(shape), form)
    count = inputs.term("count") if inputs.has("count") else None
    offset = view.at(inputs.integers("index")) if inputs.has("index") else None
    return TensorQuestion(shape, form, count, view, copied, offset)


def _read_view(inputs: Inputs, base: TensorView, form: Format | Integer) -> tuple[TensorView, bool]:
    """Return the view that the options select, and whether it requires a copy."""
    asked = [n for n in ("slice", "permute", "transpose", "contiguous", "view", "index") if inputs.value(n)]
    if asked and isinstance(form, Format) and (form.scale or form.element_bits < 8):
        raise NapkinError(
            f"--{asked[0]}: {form.name} packs its elements: it has no views by element",
            "a packed tensor is quantized again for another order; ask only for its bytes",
        )
    view = base
    if inputs.has("slice"):
        view = tensors.take(view, parsed(selection, inputs.text("slice"), "--slice"))
    if inputs.has("permute") and inputs.flag("transpose"):
        raise NapkinError("--permute and --transpose cannot be combined", "give the whole order with --permute")
    if inputs.has("permute"):
        view = tensors.permute(view, inputs.integers("permute"))
    if inputs.flag("transpose"):
        view = tensors.transpose(view)
    copied = inputs.flag("contiguous") and not view.contiguous
    if copied:
        view = tensors.contiguous(view)
    if inputs.has("view"):
        view = tensors.reshape_view(view, inputs.integers("view"))
    return view, copied


def answer(question: TensorQuestion) -> Answer:
    """Answer with bytes, shape, strides and offset; offsets and strides are in elements."""
    shape, form, view, copied = question.shape, question.form, question.view, question.copied
    same = view == tensors.new(shape)
    found = tensor_bytes.of_view(form, shape, view, copied=copied, count=question.count)
    place = view.offset if question.offset is None else question.offset
    terms = [
        found.elements,
        found.total,
        found.viewed,
        found.storage,
        leaf("view/offset", view.offset, "1", TRUE),
        leaf("offset", place, "1", TRUE, "offset + Σ index × stride, in elements"),
        leaf("contiguous", int(view.contiguous), "1", TRUE),
        *(leaf(f"shape/{at}", size, "1", TRUE) for at, size in enumerate(view.shape)),
        *(leaf(f"stride/{at}", stride, "1", TRUE) for at, stride in enumerate(view.strides)),
    ]
    return Answer("tensor", terms=terms, screen=_screen(question, {term.name: term for term in terms}, same))


def _screen(question: TensorQuestion, terms: Mapping[str, Term], same: bool) -> Screen:
    """Return the screen: the bytes, shape and strides of the view; same: the view is the tensor."""
    view, copied = question.view, question.copied
    total, shown, storage = (int(terms[path].value) for path in ("memory/total", "view/bytes", "storage/bytes"))
    headline = [size(total), f"{view.elements:,} elements"]
    if question.offset is not None:
        headline.append(f"the element is at offset {question.offset:,}")
    rows = [
        (
            "shape",
            _tuple(view.shape),
            "" if same else f"{'a copy' if copied else 'a view'} of {_tuple(question.shape)}",
        ),
        ("strides", _tuple(view.strides), "in elements"),
    ]
    if view.offset:
        rows.append(("starts at", f"element {view.offset:,}", "of the storage"))
    rows.append(("order", "contiguous" if view.contiguous else "not contiguous", _advice(view.contiguous)))
    if shown != storage:
        rows.append(("in the view", size(shown), f"of {size(storage)} that its storage keeps allocated"))
    elif question.count is not None or copied:
        rows.append(("each", size(storage), "the original is kept too" if copied else ""))
    return Screen(_asked(question, same), headline, table=quantities(rows, right=False), next=_next(question, same))


def _tuple(numbers: tuple[int, ...]) -> str:
    """Return a shape or strides as torch prints them."""
    return f"({', '.join(map(str, numbers))}{',' * (len(numbers) == 1)})"


def _advice(is_contiguous: bool) -> str:
    return "" if is_contiguous else "view() needs .contiguous(), which copies"


def _next(question: TensorQuestion, same: bool) -> Next:
    """Return the next command: another format, the copy that a view may need, a transpose."""
    if not question.view.contiguous:
        return Next({"contiguous": True, "index": None})
    if same and len(question.shape) > 1 and question.form.name == "fp32":
        return Next({"transpose": True, "index": None, "count": None})
    return Next({"dtype": "bf16" if question.form.name != "bf16" else "fp32"})


def _asked(question: TensorQuestion, same: bool) -> list[str]:
    """Return the question as clauses; same: the view is the tensor."""
    shape = tensors.written(question.shape)
    many = f"{question.count.value:,} tensors" if question.count is not None else "Tensor"
    text = f"{many} {shape}"
    if question.copied:
        return [text, question.form.name, f"copied to row-major {tensors.written(question.view.shape)}"]
    return [text, question.form.name, *([] if same else [f"seen as {tensors.written(question.view.shape)}, no copy"])]


COMMAND = Command(
    "tensor",
    "Bytes, strides, views and offsets of a tensor; offsets and strides are in elements",
    run,
    brief="Bytes, strides, views and offsets of a tensor",
    options=("dtype", "count", "slice", "permute", "transpose", "contiguous", "view", "index"),
    arguments=("size",),
    defaults={"dtype": "fp32"},
    examples=("tensor 4x8", "tensor 4x4 --transpose", "tensor 4x4 --index 1,2", "tensor 49152x12288 --dtype bf16"),
)
