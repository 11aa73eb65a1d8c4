"""Bytes of a tensor, as terms.

A tensor of n elements of w bytes takes n·w. A format of less than a byte packs its elements: ⌈n·bits / 8⌉. A format
with block scales adds a byte for each block of a row, and 4 bytes per tensor if the block scales are scaled as well.
"""

from __future__ import annotations

from napkin import formats
from napkin.counting.tensors import TensorView, new
from napkin.formats import Format, Integer
from napkin.record import record
from napkin.term import ASSUMED, GIVEN, TRUE, Term, add, ceil_divide, constant, leaf, multiply


@record
class TensorBytes:
    """The sizes of a tensor and of a view of it.

    elements, viewed  of the view       storage  bytes of the storage that the view reads
    total             bytes of all tensors of this kind, with the original if the view is a copy
    """

    elements: Term
    viewed: Term
    storage: Term
    total: Term


def of_view(
    form: Format | Integer, shape: tuple[int, ...], view: TensorView, *, copied: bool, count: Term | None
) -> TensorBytes:
    """Return the bytes of `count` tensors of a shape and of a view; copied: the view is a copy."""
    width = formats.element_bytes(form)
    elements = elements_of("elements", view.shape, GIVEN if view.shape == shape else TRUE)
    first = allocated(form, shape, width, "storage/bytes")
    storage, one = first, first
    if copied:
        storage = multiply("storage/bytes", elements_of("copied_elements", view.shape, TRUE), width)
        one = add("memory/of_one", first.renamed("memory/original"), storage.renamed("memory/copied"))
    total = one.renamed("memory/total") if count is None else multiply("memory/total", one, count)
    same = view == new(shape) and not copied
    viewed = storage.renamed("view/bytes") if same else multiply("view/bytes", elements, width)
    return TensorBytes(elements, viewed, storage, total)


def elements_of(name: str, shape: tuple[int, ...], kind: str) -> Term:
    """Return the product of the sizes of a shape."""
    if len(shape) < 2:
        return leaf(name, shape[0] if shape else 1, "1", kind)
    return multiply(name, *(leaf(f"size/{at}", size, "1", kind) for at, size in enumerate(shape)))


def allocated(form: Format | Integer, shape: tuple[int, ...], width: Term, name: str) -> Term:
    """Return the bytes of a new tensor: whole bytes for packed formats, and block scales."""
    elements = elements_of("storage/elements", shape, GIVEN)
    bits = multiply("storage/bits", elements, leaf("element_bits", form.element_bits, "1", TRUE, form.source))
    packed = ceil_divide("storage/packed", bits, constant("8", 8, "1/byte"))
    if not isinstance(form, Format) or not form.scale:
        return multiply(name, elements, width) if form.element_bits % 8 == 0 else packed.renamed(name)
    last = leaf(f"size/{len(shape) - 1}", shape[-1], "1")
    blocks = ceil_divide("blocks_of_a_row", last, constant("elements_of_a_block", form.block, "1", form.source))
    one = constant("scale", 1, "byte", form.source)
    parts = [packed, multiply("storage/scales", elements_of("rows", shape[:-1], GIVEN), blocks, one)]
    if form.scale != "e8m0":
        parts.append(leaf("storage/tensor_scale", 4, "byte", ASSUMED, form.source))
    return add(name, *parts)
