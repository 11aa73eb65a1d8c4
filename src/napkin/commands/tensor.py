"""`napkin tensor`: a tensor's bytes, strides and views. Selections are applied in this order: --slice, --permute or
--transpose, --contiguous, --view, --index."""

from __future__ import annotations

from napkin import formats, units
from napkin.commands.command import Command, Inputs
from napkin.counting import tensors
from napkin.counting.tensors import View
from napkin.errors import NapkinError
from napkin.formats import Format, Integer
from napkin.options.option import parsed
from napkin.options.parsers import selection
from napkin.render.answer import Answer
from napkin.term import ASSUMED, GIVEN, TRUE, Term, add, ceil_divide, constant, leaf, multiply


def run(inputs: Inputs) -> Answer:
    shape = _shape(inputs)
    form = formats.find(inputs.get("dtype"))
    base = tensors.new(shape)
    view, copied = _views(inputs, base, form)
    width = formats.element_bytes(form)
    elements = _product("elements", view.shape, GIVEN if view.shape == shape else TRUE)
    first = _storage(form, shape, width, "storage/bytes")
    terms = [elements]
    storage = first
    held = first
    if copied:
        storage = multiply("storage/bytes", _product("copied_elements", view.shape, TRUE), width)
        held = add("memory/of_one", first.renamed("memory/original"), storage.renamed("memory/copied"))
    many = inputs.get("count")
    total = multiply("memory/total", held, inputs.term("count")) if many else held.renamed("memory/total")
    seen = multiply("view/bytes", elements, width) if copied or view != base else storage.renamed("view/bytes")
    terms += [total, seen, storage]
    terms.append(leaf("view/offset", view.offset, "1", TRUE))
    index = inputs.get("index")
    place = view.offset if index is None else view.at(index)
    terms.append(leaf("offset", place, "1", TRUE, "offset + Σ index × stride, in elements"))
    terms.append(leaf("contiguous", int(view.contiguous), "1", TRUE))
    terms += [leaf(f"shape/{at}", size, "1", TRUE) for at, size in enumerate(view.shape)]
    terms += [leaf(f"stride/{at}", stride, "1", TRUE) for at, stride in enumerate(view.strides)]
    return Answer("tensor", _title(shape, form, view, base, copied, many), terms)


def _shape(inputs: Inputs) -> tuple[int, ...]:
    text = inputs.need("size", "the shape, e.g. 4x8")
    return parsed(units.shape, text, "SIZE")


def _views(inputs: Inputs, base: View, form: Format | Integer) -> tuple[View, bool]:
    """The view that the options ask for, and whether it had to be copied."""
    asked = [n for n in ("slice", "permute", "transpose", "contiguous", "view", "index") if inputs.get(n)]
    if asked and isinstance(form, Format) and (form.scale or form.element_bits < 8):
        raise NapkinError(
            f"--{asked[0]}: {form.name} packs its elements: it has no views by element",
            "a packed tensor is quantised again for another order; ask for its bytes alone",
        )
    view = base
    if inputs.get("slice") is not None:
        view = tensors.take(view, parsed(selection, inputs.get("slice"), "--slice"))
    if inputs.get("permute") is not None and inputs.get("transpose"):
        raise NapkinError("--permute and --transpose cannot be combined", "give the whole order with --permute")
    if inputs.get("permute") is not None:
        view = tensors.permute(view, inputs.get("permute"))
    if inputs.get("transpose"):
        view = tensors.transpose(view)
    copied = bool(inputs.get("contiguous")) and not view.contiguous
    if copied:
        view = tensors.contiguous(view)
    if inputs.get("view") is not None:
        view = tensors.reshape_view(view, inputs.get("view"))
    return view, copied


def _product(name: str, shape: tuple[int, ...], kind: str) -> Term:
    if len(shape) < 2:
        return leaf(name, shape[0] if shape else 1, "1", kind)
    return multiply(name, *(leaf(f"size/{at}", size, "1", kind) for at, size in enumerate(shape)))


def _storage(form: Format | Integer, shape: tuple[int, ...], width: Term, name: str) -> Term:
    """Bytes of a freshly allocated tensor: whole bytes for packed formats, block scales beside them."""
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


def _title(
    shape: tuple[int, ...], form: Format | Integer, view: View, base: View, copied: bool, many: int | None
) -> str:
    text = f"{f'{many:,} tensors' if many else 'a tensor'} {tensors.written(shape)} of {form.name}"
    if copied:
        return f"{text}, copied to row-major {tensors.written(view.shape)}"
    return text if view == base else f"{text}, seen as {tensors.written(view.shape)} without a copy"


COMMAND = Command(
    "tensor",
    "A tensor's bytes, strides, views and offsets; offsets and strides are in elements",
    run,
    ("dtype", "count", "slice", "permute", "transpose", "contiguous", "view", "index"),
    arguments=("size",),
    defaults={"dtype": "fp32"},
    examples=("tensor 4x8", "tensor 4x4 --transpose", "tensor 4x4 --index 1,2", "tensor 49152x12288 --dtype bf16"),
)
