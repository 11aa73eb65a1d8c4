"""Views against torch: strides, offsets, contiguity, which shapes a view can take."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from napkin.counting import tensors
from napkin.counting.tensors import TensorView
from napkin.errors import NapkinError

SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


def test_the_lectures_examples() -> None:
    square = tensors.new((4, 4))
    assert square.strides == (4, 1)
    assert square.at((1, 2)) == 6
    turned = tensors.transpose(square)
    assert (turned.strides, turned.contiguous, turned.storage) == ((1, 4), False, 16)
    assert tensors.contiguous(turned) == square
    assert tensors.contiguous(square) is square


def same(view: TensorView, real: Any, torch: Any) -> None:
    assert view.shape == tuple(real.shape)
    assert view.offset == real.storage_offset()
    assert view.contiguous == real.is_contiguous()
    assert view.elements == real.numel()
    # the stride of a dimension of size 1 changes no address
    assert [s for s, n in zip(view.strides, view.shape, strict=True) if n > 1] == [
        s for s, n in zip(real.stride(), real.shape, strict=True) if n > 1
    ]


@given(SHAPES, st.data())
def test_views_are_those_of_torch(shape: tuple[int, ...], data: st.DataObject) -> None:
    torch = pytest.importorskip("torch")
    view, real = tensors.new(shape), torch.zeros(shape)
    for _ in range(data.draw(st.integers(1, 3))):
        count = len(view.shape)
        step = data.draw(st.sampled_from(["permute", "transpose", "take", "view", "contiguous"]))
        if step == "permute":
            order = tuple(data.draw(st.permutations(range(count))))
            view, real = tensors.permute(view, order), real.permute(order)
        elif step == "transpose" and count > 1:
            view, real = tensors.transpose(view), real.mT
        elif step == "contiguous":
            copied = not view.contiguous
            view, real = tensors.contiguous(view), real.contiguous()
            assert not copied or view.offset == 0
        elif step == "take" and count:
            chosen = tuple(
                data.draw(st.integers(-size, size - 1))
                if data.draw(st.booleans())
                else slice(data.draw(st.integers(0, size - 1)), None, data.draw(st.integers(1, 3)))
                for size in view.shape[: data.draw(st.integers(1, count))]
            )
            view, real = tensors.take(view, chosen), real[chosen]
        elif step == "view" and view.shape:
            wanted = data.draw(
                st.sampled_from([(view.elements,), (1, view.elements), (*view.shape, 1), tuple(reversed(view.shape))])
            )
            try:
                real = real.view(wanted)
            except RuntimeError:
                with pytest.raises(NapkinError):
                    tensors.reshape_view(view, wanted)
                return
            view = tensors.reshape_view(view, wanted)
        same(view, real, torch)
    if view.elements and view.shape:
        index = tuple(data.draw(st.integers(-size, size - 1)) for size in view.shape)
        flat = torch.as_strided(torch.arange(max(view.storage, 1)), view.shape, view.strides, view.offset)
        assert view.at(index) == int(flat[index])


def shapes_of(elements: int, dims: int) -> list[tuple[int, ...]]:
    """Every shape with this many dimensions that has this many elements."""
    if dims == 1:
        return [(elements,)]
    sizes = [size for size in range(1, elements + 1) if elements % size == 0]
    return [(size, *rest) for size in sizes for rest in shapes_of(elements // size, dims - 1)]


@pytest.mark.parametrize("part", [(..., slice(None)), (slice(0, 2), ..., slice(0, 4, 2)), (..., slice(1, 3))])
def test_every_shape_of_every_order_of_dimensions_is_viewed_where_torch_views_it(part: tuple[Any, ...]) -> None:
    torch = pytest.importorskip("torch")
    viewed = refused = 0
    for order in itertools.permutations(range(4)):
        real = torch.zeros(2, 3, 1, 4)[part].permute(order)
        view = TensorView(tuple(real.shape), real.stride(), real.storage_offset(), 24)
        for shape in (one for dims in (1, 2, 3, 4) for one in shapes_of(view.elements, dims)):
            try:
                wanted = real.view(shape)
            except RuntimeError:
                with pytest.raises(NapkinError):
                    tensors.reshape_view(view, shape)
                refused += 1
            else:
                same(tensors.reshape_view(view, shape), wanted, torch)
                viewed += 1
    assert viewed
    assert refused


def test_dimensions_are_counted_from_the_end_too() -> None:
    """torch.zeros(2, 3, 4).permute(-3, -1, -2): strides (12, 1, 4); -4 and 3 are out of range."""
    assert tensors.permute(tensors.new((2, 3, 4)), (-3, -1, -2)).strides == (12, 1, 4)
    for order in ((-4, 1, 2), (3, 1, 2)):
        with pytest.raises(NapkinError):
            tensors.permute(tensors.new((2, 3, 4)), order)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda v: tensors.permute(v, (0, 0, 1)),
        lambda v: tensors.permute(v, (0, 1)),
        lambda v: tensors.take(v, (5,)),
        lambda v: tensors.take(v, (0, 0, 0, 0)),
        lambda v: tensors.take(v, (slice(None, None, -1),)),
        lambda v: tensors.reshape_view(v, (7,)),
        lambda v: v.at((1, 2)),
        lambda v: v.at((0, 0, 4)),
        lambda v: tensors.transpose(tensors.new((3,))),
    ],
)
def test_what_torch_refuses_is_refused(wrong: Callable[[TensorView], object]) -> None:
    with pytest.raises(NapkinError) as problem:
        wrong(tensors.new((2, 3, 4)))
    assert problem.value.hint
