"""A tensor is a storage and a view of it: shape, strides, offset. Slices and transposes are new views of the same
storage and take no memory; `contiguous` copies. Strides and offsets are counted in elements."""

from __future__ import annotations

from napkin.errors import NapkinError
from napkin.record import record, replace


@record
class TensorView:
    """`storage` elements exist; element (i, j, …) of the view is number offset + Σ index·stride of them."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    storage: int

    @property
    def elements(self) -> int:
        return product(self.shape)

    @property
    def contiguous(self) -> bool:
        """Row-major without gaps, as torch defines it: dimensions of size 1 may have any stride."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True

    def at(self, index: tuple[int, ...]) -> int:
        """Return the position in the storage of the element with that index; negative indices count from the end."""
        if len(index) != len(self.shape):
            raise NapkinError(
                f"an index of {len(index)} numbers into {len(self.shape)} dimensions",
                f"the shape is {written(self.shape)}",
            )
        place = self.offset
        for dimension, (i, size, stride) in enumerate(zip(index, self.shape, self.strides, strict=True)):
            if not -size <= i < size:
                raise NapkinError(
                    f"index {i} is out of range for dimension {dimension} of size {size}", f"{-size} to {size - 1}"
                )
            place += (i % size) * stride
        return place


def product(shape: tuple[int, ...]) -> int:
    """Return the number of elements of a shape."""
    total = 1
    for size in shape:
        total *= size
    return total


def written(shape: tuple[int, ...]) -> str:
    """Return a shape as it is printed."""
    return "x".join(map(str, shape)) if shape else "a scalar"


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor: the last dimension's is 1, each other the product of the sizes after
    it."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def new(shape: tuple[int, ...]) -> TensorView:
    """Return a newly allocated tensor."""
    return TensorView(shape, row_major(shape), 0, product(shape))


def permute(view: TensorView, order: tuple[int, ...]) -> TensorView:
    """Return a view with the dimensions in another order: no copy."""
    count = len(view.shape)
    wanted = tuple(d % count if -count <= d < count else -1 for d in order)
    if sorted(wanted) != list(range(count)):
        raise NapkinError(
            f"{','.join(map(str, order))} is not an order of {count} dimensions",
            f"each of 0 to {count - 1} once, for example {','.join(map(str, reversed(range(count))))}",
        )
    return replace(view, shape=tuple(view.shape[d] for d in wanted), strides=tuple(view.strides[d] for d in wanted))


def transpose(view: TensorView) -> TensorView:
    """Return a view with the last two dimensions exchanged (torch's `.mT`)."""
    count = len(view.shape)
    if count < 2:
        raise NapkinError(
            f"a tensor of {count} dimension{'s' * (count != 1)} has no two to transpose", "give two or more"
        )
    return permute(view, (*range(count - 2), count - 1, count - 2))


def take(view: TensorView, selection: tuple[int | slice, ...]) -> TensorView:
    """Return a view by basic indexing: an index drops its dimension, a slice start:stop:step keeps it."""
    if len(selection) > len(view.shape):
        raise NapkinError(
            f"{len(selection)} selections for {len(view.shape)} dimensions", f"the shape is {written(view.shape)}"
        )
    shape, strides, offset = [], [], view.offset
    for dimension, (size, stride) in enumerate(zip(view.shape, view.strides, strict=True)):
        chosen = selection[dimension] if dimension < len(selection) else slice(None)
        if isinstance(chosen, int):
            if not -size <= chosen < size:
                raise NapkinError(
                    f"index {chosen} is out of range for dimension {dimension} of size {size}", f"{-size} to {size - 1}"
                )
            offset += (chosen % size) * stride
            continue
        if chosen.step is not None and chosen.step < 1:
            raise NapkinError(f"a slice's step of {chosen.step} is not above zero", "torch slices go forward only")
        start, stop, step = chosen.indices(size)
        count = len(range(start, stop, step))
        shape.append(count)
        strides.append(stride * step)
        offset += start * stride if start else 0
    return TensorView(tuple(shape), tuple(strides), offset, view.storage)


def contiguous(view: TensorView) -> TensorView:
    """Return a contiguous copy of the elements; the view itself if it is already contiguous."""
    return view if view.contiguous else new(view.shape)


def reshape_view(view: TensorView, shape: tuple[int, ...]) -> TensorView:
    """Return another shape on the same storage (torch's `.view`). Refused if the strides do not allow it."""
    if product(shape) != view.elements:
        raise NapkinError(
            f"{written(shape)} has {product(shape):,} elements, the tensor {view.elements:,}",
            "keep the number of elements",
        )
    if view.contiguous:
        return replace(view, shape=shape, strides=row_major(shape))
    strides = _compatible(view, shape)
    if strides is None:
        raise NapkinError(
            f"a view as {written(shape)} does not fit strides {','.join(map(str, view.strides))}",
            "add --contiguous, which copies",
        )
    return replace(view, shape=shape, strides=strides)


def _compatible(view: TensorView, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the strides of `shape` on a view that is not contiguous. Dimensions that are contiguous with each other
    form chunks, and each new dimension must stay inside one chunk."""
    strides: list[int] = []
    pending = list(shape)
    dims = [(s, t) for s, t in zip(view.shape, view.strides, strict=True) if s != 1]
    while dims:
        size, step = dims.pop()
        total = size
        while dims and dims[-1][1] == step * total:  # the dimension before continues this chunk
            total *= dims.pop()[0]
        filled = 1
        while pending and (filled < total or pending[-1] == 1):
            filled *= pending[-1]
            strides.append(step * (filled // pending[-1]))
            pending.pop()
        if filled != total:
            return None
    strides.extend([1] * len(pending))  # what is left has size 1
    return tuple(reversed(strides))
