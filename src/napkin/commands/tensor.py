"""`napkin tensor`: a tensor's bytes, strides and views. Selections are applied in this order: --slice, --permute or
--transpose, --contiguous, --view, --index."""

from __future__ import annotations

from napkin import formats, units
from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.counting import tensors
from napkin.counting.tensors import TensorView
from napkin.errors import NapkinError
from napkin.formats import Format, Integer
from napkin.options.option import parsed
from napkin.options.parsers import selection
from napkin.record import record
from napkin.render.answer import Answer
from napkin.term import ASSUMED, GIVEN, TRUE, Term, add, ceil_divide, constant, leaf, multiply


@record
class TensorQuestion:
    """A tensor of a shape and format; `count` of them; view: what the options make of it, copied or not.

    offset  of the element asked for, or None"""

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
    shape = parsed(units.shape, inputs.text("size", "the shape, e.g. 4x8"), "SIZE")
    form = formats.find(inputs.text("dtype"))
    view, copied = _read_view(inputs, tensors.new(shape), form)
    count = inputs.term("count") if inputs.has("count") else None
    offset = view.at(inputs.integers("index")) if inputs.has("index") else None
    return TensorQuestion(shape, form, count, view, copied, offset)


def _read_view(inputs: Inputs, base: TensorView, form: Format | Integer) -> tuple[TensorView, bool]:
    """Return the view that the options ask for, and whether it had to be copied."""
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
    width = formats.element_bytes(form)
    elements = _product("elements", view.shape, GIVEN if view.shape == shape else TRUE)
    first = _storage(form, shape, width, "storage/bytes")
    storage, held = first, first
    if copied:
        storage = multiply("storage/bytes", _product("copied_elements", view.shape, TRUE), width)
        held = add("memory/of_one", first.renamed("memory/original"), storage.renamed("memory/copied"))
    many = question.count
    total = held.renamed("memory/total") if many is None else multiply("memory/total", held, many)
    viewed = storage.renamed("view/bytes") if same and not copied else multiply("view/bytes", elements, width)
    place = view.offset if question.offset is None else question.offset
    terms = [
        elements,
        total,
        viewed,
        storage,
        leaf("view/offset", view.offset, "1", TRUE),
        leaf("offset", place, "1", TRUE, "offset + Σ index × stride, in elements"),
        leaf("contiguous", int(view.contiguous), "1", TRUE),
        *(leaf(f"shape/{at}", size, "1", TRUE) for at, size in enumerate(view.shape)),
        *(leaf(f"stride/{at}", stride, "1", TRUE) for at, stride in enumerate(view.strides)),
    ]
    return Answer("tensor", _title(question, same), terms)


def _product(name: str, shape: tuple[int, ...], kind: str) -> Term:
    """Return the product of the sizes of a shape."""
    if len(shape) < 2:
        return leaf(name, shape[0] if shape else 1, "1", kind)
    return multiply(name, *(leaf(f"size/{at}", size, "1", kind) for at, size in enumerate(shape)))


def _storage(form: Format | Integer, shape: tuple[int, ...], width: Term, name: str) -> Term:
    """Return the bytes of a freshly allocated tensor: whole bytes for packed formats, and block scales."""
    elements = _product("storage/elements", shape, GIVEN)
    scaled = isinstance(form, Format) and form.scale
    if not scaled and form.element_bits % 8 == 0:
        return multiply(name, elements, width)
    bits = multiply("storage/bits", elements, leaf("element_bits", form.element_bits, "1", TRUE, form.source))
    packed = ceil_divide("storage/packed", bits, constant("8", 8, "1/byte"))
    if not isinstance(form, Format) or not form.scale:
        return packed.renamed(name)
    last = leaf(f"size/{len(shape) - 1}", shape[-1], "1")
    blocks = ceil_divide("blocks_of_a_row", last, constant("elements_of_a_block", form.block, "1", form.source))
    one = constant("scale", 1, "byte", form.source)
    parts = [packed, multiply("storage/scales", _product("rows", shape[:-1], GIVEN), blocks, one)]
    if form.scale != "e8m0":
        parts.append(leaf("storage/tensor_scale", 4, "byte", ASSUMED, form.source))
    return add(name, *parts)


def _title(question: TensorQuestion, same: bool) -> str:
    """Return the question in one line; same: the view is the tensor."""
    many = f"{question.count.value:,} tensors" if question.count is not None else "a tensor"
    text = f"{many} {tensors.written(question.shape)} of {question.form.name}"
    view = tensors.written(question.view.shape)
    if question.copied:
        return f"{text}, copied to row-major {view}"
    return text if same else f"{text}, seen as {view} without a copy"


COMMAND = Command(
    "tensor",
    "A tensor's bytes, strides, views and offsets; offsets and strides are in elements",
    run,
    brief="A tensor's bytes, strides, views and offsets",
    options=("dtype", "count", "slice", "permute", "transpose", "contiguous", "view", "index"),
    arguments=("size",),
    defaults={"dtype": "fp32"},
    examples=("tensor 4x8", "tensor 4x4 --transpose", "tensor 4x4 --index 1,2", "tensor 49152x12288 --dtype bf16"),
)
