"""Bytes that the elementwise work of each operation moves for a token, counted tensor by tensor, by hand.

Two bytes for each element of 16 bits that a kernel reads or writes, four of fp32. What several kernels do one after the
other is added up. test_step_bytes_by_hand.py has those that most networks have; every other operation is here, and a
test says that none is missing. Operations whose work is matmuls alone, or views, move nothing of their own."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import napkin.operations
from napkin.operations.attention.compressed import Compressor
from napkin.operations.attention.local import GlobalAttention
from napkin.operations.attention.mixed import GroupedLinear, SeparableConvolution, TokenConvolution
from napkin.operations.base import Operation
from napkin.operations.block_residual import BlockResidual, ClippedNorm, DynamicConvolution
from napkin.operations.convolutions import Conv, ConvPair, HalfShifted
from napkin.operations.embedding import Sines
from napkin.operations.gated_streams import Agreement, DilatedConv, OuterProduct
from napkin.operations.hyper_connections import CopyToStreams, MeanOfStreams, ReadStreams, WriteStreams
from napkin.operations.images import ClassTokens, Patches, Pixels, PlaceImages, Pool, Reorder
from napkin.operations.learned import Affine, Temper
from napkin.operations.norms import ScaledNorm, UnitNorm
from napkin.operations.padding import CutToLength, PadToBlocks, Stagger, Unstagger
from napkin.operations.pointwise import Fourier, ResidualGate, Scale, Softmax
from napkin.operations.recurrence import ForgetGate, Scan
from napkin.operations.relative import ShortConvolution
from napkin.operations.sphere import Interpolate, LearnedScale
from napkin.operations.streams import (
    AddToOthers,
    Blend,
    Correct,
    GaussianTopK,
    Magnitude,
    Rescale,
    SelectStream,
    StackStreams,
    StreamMean,
)
from napkin.operations.views import ByHeads
from tests import test_step_bytes_by_hand

W, N = 100, 3
"""Elements of a token in one stream; streams, groups or heads."""
NORM, PRODUCT, SUM, COPY = (1 + 1, 2 + 1), (2 + 1, 3 + 2), (2 + 1, 2 + 1), (1 + 1, 1 + 1)
"""Tensors read + written, forward and backward. A norm reads and writes; backward it reads the input and the gradient
and writes one. A product of two reads both and writes one; backward it reads both and the gradient and writes two. A
copy reads and writes both ways; so does a product with a constant, which keeps nothing."""


def tensors(*each: tuple[float, float], elements: float = W, width: int = 2) -> tuple[float, float]:
    """The bytes of kernels that run one after the other, of so many elements a token in `width` bytes."""
    return width * elements * sum(ahead for ahead, _ in each), width * elements * sum(back for _, back in each)


CASES = [
    # a sum with a vector reads and writes, and passes its gradient on: 2 and 2; the vector's gradient is read once more
    (Affine("a", ("x",), W), tensors((2, 2), (2, 5))),
    (Temper("t", ("x",), N, W), tensors((2, 4), elements=N * W)),  # times a factor that is learned
    (ScaledNorm("n", ("x",), W), tensors((2, 4), NORM)),  # times a learned vector, then the norm
    (UnitNorm("n", ("x",), W, N), tensors((1, 2), NORM, elements=N * W)),  # its length read before
    (ClippedNorm("n", ("x",), W, N), tensors((1, 2), NORM, elements=N * W)),
    (Softmax("s", ("x",), W), tensors(NORM)),
    (Scale("s", ("x",), W), tensors(COPY)),
    (ResidualGate("g", ("x", "y"), W), tensors((2 + 1, 2 + 2))),  # both branches read, one written; two gradients
    (Fourier("f", ("x",), W), tensors((2, 2), (2, 2), width=4)),  # over the sequence and over the elements, fp32
    # recurrences and convolutions
    (ForgetGate("g", ("x",), N, W), (N * W * (2 + 4), N * W * (2 + 4 + 4 + 2))),  # fp32 result, and its gradient
    (Scan("s", ("x",), "ssd", N, W, 16, 1, 64), tensors((3 + 1, 2 * (3 + 1)), elements=N * W)),  # x, two gates, result
    (Conv("c", ("x",), W, 4), tensors((2, 4))),
    (ConvPair("c", ("x",), W, 25, (2, 2)), tensors((2, 4), (2, 4))),
    (DilatedConv("c", ("x",), W, 4, 2), tensors(PRODUCT)),  # and the gate that it is multiplied by
    (ShortConvolution("c", ("x",), W, 4), tensors((2, 3), (2, 3), width=4)),  # convolved and added in fp32
    (DynamicConvolution("c", ("x", "taps"), W, N), tensors((2, 3), elements=N * W, width=4)),  # one tap at a time
    (HalfShifted("h", ("x", "y"), W, 64), tensors(COPY, COPY)),
    # a value and a gate of each token: position added, softmax, product, sum over the run
    (Compressor("c", ("x",), 64, W, 4, 16), tensors((2, 3), (2, 3), (2, 3), (2, 3))),
    (Compressor("c", ("x",), 64, W, 4, 16, overlapping=True), tensors(*[(2, 3)] * 4, elements=2 * W)),
    # several streams
    (SelectStream("s", ("x",), W), (0, 0)),
    (SelectStream("s", ("x",), W, copied=True), tensors(COPY)),
    (StackStreams("s", ("x", "y"), W), tensors(COPY)),
    (StreamMean("s", ("x",), W, N), tensors((N + 1, 1 + N))),
    (MeanOfStreams("s", ("x",), W, N), tensors((N + 1, 1 + N))),
    (CopyToStreams("s", ("x",), W, N), tensors((1 + N, N + 1))),
    (Magnitude("m", ("x",), W), tensors((1, 1 + 1))),  # one number is left of a token
    (Rescale("r", ("x", "m"), W), tensors((2, 3))),
    (Blend("b", ("x", "c"), W, N), tensors((N, N))),  # the streams that are added to the product
    (Correct("c", ("x", "y", "k"), W, N), tensors((N + 1 + N, N + 1 + N + 1))),
    (AddToOthers("a", ("x", "y"), W, N), tensors(((N - 1) + 1 + (N - 1), (N - 1) + 1))),
    (GaussianTopK("g", ("x",), W), tensors((1, 1), (2, 3))),  # mean and deviation, then the cut
    (OuterProduct("o", ("x", "y"), W, N), tensors((1 + N, 1 + 2 * N))),
    (Agreement("a", ("k", "q"), W, N), tensors((4, 6), elements=N * W)),
    (ReadStreams("r", ("x",), W, N), tensors((3 * N + 1, 5 * N + 1))),
    (WriteStreams("w", ("c", "y", "x"), W, N), tensors((4 * N + 1, 6 * N + 1))),
    # in fp32: joined 2 + 2, cast 2 + 4, normalized 4 + 4, weighed 4 bytes a state; each query's sum written
    (BlockResidual("b", ("x", "y"), W, N, 5), ((4 + 6 + 8 + 4) * N * W + 4 * 5 * W, (22 + 8) * N * W)),
    # networks on the unit sphere: a vector's gradient reads the gradient and the input
    (LearnedScale("s", ("x",), W), tensors(COPY, (0, 2))),
    (Interpolate("i", ("x", "y"), W), tensors((2 + 1, 2), COPY, (0, 2), SUM)),  # difference, product, sum
    # images
    (Pixels("p", (), W), ((4 + 2) * W, 0)),  # fp32 read, 16 bits written; no gradient
    (ClassTokens("c", ("x",), 1, W), tensors(COPY)),
    (Patches("p", ("x",), W), tensors(COPY)),
    (Reorder("r", ("x",), W), tensors(COPY)),
    (PlaceImages("p", ("x",), W), tensors(COPY)),
    (Pool("p", ("x",), W, 4), tensors(COPY, elements=4 * W)),
    (ByHeads("v", ("x",), W), tensors(COPY)),
    (Sines("s", (), W), tensors((2, 0))),  # looked up; no gradient
    # padding: a view's gradient is written next to zeros
    (PadToBlocks("p", ("x",), W), tensors(COPY)),
    (Stagger("s", ("x",), W, 4), tensors(COPY)),
    (CutToLength("c", ("x",), W), tensors((0, 1))),
    (Unstagger("u", ("x",), W, 4), tensors((0, 1))),
    (GlobalAttention("a", ("q", "k", "v", "lk", "lv"), 4, W // 4, N), tensors(COPY, COPY)),  # keys and values joined
    # convolutions next to attention: a bias added in place; channels, their neighbors and these by tokens
    (SeparableConvolution("c", ("x",), W, W, 9), tensors((2, 4), (2, 1))),
    (TokenConvolution("t", ("x", "k"), 4, W, N), tensors(COPY, (1 + N, N + 1), (2 * N, 2 * N))),
    (GroupedLinear("g", ("x",), W, W, 2), tensors(COPY, (2, 1))),  # results by tokens; a bias
]  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "moved"), CASES, ids=lambda one: type(one).__name__ if isinstance(one, Operation) else ""
)
def test_bytes_of_each_operation(operation: Operation, moved: tuple[float, float]) -> None:
    assert operation.traffic() == moved


NOTHING = {
    # matmuls, which move their operands
    "Matmul", "JoinedHead", "BlockMatmul", "StreamedLinear", "FrameConv", "TableMatmul", "DistanceKeys",
    # choices and biases of scores, which are counted by the pair
    "Indexer", "RunIndexer", "BlockIndexer", "RunChoice", "RelativeScores", "PositionBias", "DistanceBias",
    "BiasAdapter", "DynamicMask", "BandAttention", "ShiftedAttention", "LocalAttention", "ResolutionAttention",
    "Unkept",
    # tensors that are there already, or are few
    "Share", "Stream", "SideInput", "EncoderKeys", "Parameters", "Overwrite", "BalanceLoss", "ClassLoss",
    "GlobalTokens", "GlobalInput", "GlobalNorm", "OnGlobal", "WithGlobal",
    # what does not run, or is a part of another factor
    "Idle", "ImageExperts", "Cast", "Dropout",
    # timed with the tokens that each expert gets, or with the weights that it changes
    "Experts", "MergedAdapter",
}  # fmt: skip
ELSEWHERE = {"Adapter", "Reparameterized"}
"""test_adapted_by_hand.py and test_adapter_kinds.py."""


def kinds(base: type[Operation] = Operation) -> Iterator[type[Operation]]:
    """Every class of operation that states its bytes itself."""
    for one in base.__subclasses__():
        if "traffic" in one.__dict__ and one.__module__.startswith("napkin."):
            yield one
        yield from kinds(one)


def test_every_operation_is_counted_by_hand() -> None:
    for module in pkgutil.walk_packages(napkin.operations.__path__, "napkin.operations."):
        importlib.import_module(module.name)
    (marked,) = (m for m in test_step_bytes_by_hand.test_bytes_that_one_operation_moves.pytestmark)  # type: ignore[attr-defined]
    common = {type(case[0]).__name__ for case in marked.args[1]}
    here = {type(operation).__name__ for operation, _ in CASES}
    assert {one.__name__ for one in kinds()} == common | here | NOTHING | ELSEWHERE


def test_what_moves_nothing_says_so() -> None:
    """Whatever its sizes are: it looks at none of them."""
    for one in kinds():
        if one.__name__ in NOTHING:
            assert one.traffic(object.__new__(one)) == (0, 0), one.__name__
