"""Views, copies and casts: no arithmetic of their own."""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.operations.base import NOT_TIMED, Elementwise, Gemm, Operation, Ordinary, View, Weight, Work
from napkin.record import record


@record
class Reused(Ordinary):
    """An operation whose weights another place owns (Model.shared, the other stack's table): it works again here and
    its weights are not counted again."""

    of: Operation

    def __post_init__(self) -> None:
        self._named_module()

    def weights(self) -> tuple[Weight, ...]:
        """Weights are counted where they are owned."""
        return ()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return self.of.gemms(work)

    def owner(self) -> Operation:
        return self.of

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet


def reuse(op: Operation, owner: Operation | None = None) -> Reused:
    """Return the operation `op` working with the weights of `owner` (its own, counted elsewhere, unless given)."""
    return Reused(op.name, op.reads, op if owner is None else owner, role=op.role)


@record
class Lend(View):
    """Hands what it reads on to all layers that follow: keys and values that several layers share, or numbers of which
    each layer has its part. No pipeline stage then stands alone."""

    def traffic(self) -> tuple[Number, Number]:
        """Nothing: the tensor is there already."""
        return 0, 0


@record
class Slice(View):
    """A view of `width` numbers a token out of a wider (fused) tensor: keeps the whole storage alive.

    indexed  taken by a list of indices: a copy, whose index is kept too
    groups   so many groups of heads are put together: a copy, but of one
    repeats  each group's one head is repeated so often
    copied   a copy, which keeps nothing of the wider one
    """

    width: int
    indexed: bool = False
    groups: int = 1
    repeats: int = 1
    copied: bool = False

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet


@record
class Transpose(View):
    """A view with the sequences' tokens of each step next to each other: a product that reads it copies several
    sequences. `width` numbers a token."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet


@record
class Concat(View):
    """A new tensor of `width` numbers a token, copied together from all that it reads (one head's part repeated over
    the heads where it is shared). `first_type`: in the first one's type; else in the widest of all."""

    width: int
    first_type: bool = False

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet


@record
class Carried(View):
    """What the layer before hands on beside the stream: `width` numbers a token. `wide`: weights had a part in it, so
    that it is fp32 under autocast."""

    width: int
    wide: bool = False

    def traffic(self) -> tuple[Number, Number]:
        """Nothing: the tensor is there already."""
        return 0, 0


@record
class Behind(View):
    """Tokens of two stacks, one behind the other: `width` numbers for each."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet


@record
class Overwrite(Elementwise):
    """The rows of one certain token replaced in place by a learnt vector of `width` numbers."""

    width: int

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("vector", (self.width,)),)

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet


@record
class Cast(Elementwise):
    """The same numbers in another format: in fp32 (`wide`), or in that of the parameters."""

    width: int
    wide: bool = False

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet
