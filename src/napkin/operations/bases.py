"""Intermediate bases of operations, which give the defaults that most kinds share."""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.operations.base import LAYER_KERNELS, Operation, Timer
from napkin.operations.facts import AttentionCost, Cache, LinearLayer, LinearPart, RoutedExperts, Served
from napkin.operations.roles import AS_READ
from napkin.operations.work import Gemm, Weight, Work
from napkin.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from napkin.operations.implementations import Implementation

ELEMENT_BYTES = 2
"""Bytes per element of the 16-bit tensors that `traffic` counts."""


@record
class Ordinary(Operation, abstract=True):
    """Defaults of most operations: GEMMs that run one by one, no attention, no cache, no communication."""

    def division(self) -> str:
        return AS_READ

    def time(self, timer: Timer) -> None:
        timer.gemms(self)

    def linear(self) -> LinearLayer | None:
        return None

    def linear_parts(self, implementation: Implementation) -> tuple[LinearPart, ...]:
        return ()

    def holds(self) -> tuple[Operation, ...]:
        return ()

    def attention_width(self) -> Number:
        return 0

    def scores(self, work: Work) -> Number:
        return 0

    def elements_moved(self, work: Work) -> Number:
        """Count every operand and result of GEMMs with a weight, else the traffic of elementwise work."""
        matmuls = [one for one in self.gemms(work) if one.weight]
        if not matmuls:
            return work.tokens * (self.traffic()[0] / ELEMENT_BYTES)
        moved: Number = 0
        for one in matmuls:
            moved = moved + one.batch * (one.m * one.k + one.m * one.n)
        return moved + sum(one.batch * one.k * one.n for one in matmuls)

    def elementary(self) -> tuple[Number, Number]:
        return 0, 0

    def ring(self) -> tuple[Number, Number]:
        return 0, 0

    def launches(self) -> str:
        return LAYER_KERNELS

    def launch_counts(self) -> tuple[int, int]:
        return self.learning.launch_counts(bool(self.weights()))

    def cache(self, over: Served) -> Cache | None:
        return None

    def fused_into_multiplication(self) -> Operation:
        return self

    def multiplies(self) -> tuple[str, ...]:
        return ()

    def residual(self) -> Number | None:
        return None

    def attends(self) -> AttentionCost | None:
        return None

    def embeds(self) -> str:
        return ""

    def tables(self) -> tuple[Weight, ...]:
        return ()

    def buffers(self, vocabulary: int) -> tuple[tuple[int, str], ...]:
        return ()

    def gives_logits(self) -> bool:
        return False

    def angles(self) -> tuple[int, int] | None:
        return None

    def normalizes(self) -> bool:
        return False

    def replaces(self) -> str:
        return ""

    def inverts_mask(self) -> bool:
        return False

    def owner(self) -> Operation:
        return self

    def runs_again(self) -> bool:
        return False

    def depends_on_shapes(self, length: int) -> bool:
        return True

    def cropped(self, length: int) -> Operation:
        return self

    def padded(self, before: int, rows: int, reads_logits: bool) -> Operation:
        return self

    def remark(self) -> str:
        return ""

    def expert_part(self) -> str:
        return ""

    def routed(self) -> RoutedExperts | None:
        return None

    def chooses_among(self) -> int:
        return 0

    def scans(self) -> str:
        return ""

    def sliced(self) -> tuple[str, int] | None:
        return None

    def pattern(self) -> str:
        return ""


@record
class Module(Ordinary, abstract=True):
    """Defaults of operations that are one module of the reference class with its own weights."""

    def __post_init__(self) -> None:
        self._is_module()


@record
class Elementwise(Ordinary, abstract=True):
    """Elementwise arithmetic or a reduction over each token's vector: no matmuls, no parameters unless stated."""

    def weights(self) -> tuple[Weight, ...]:
        return ()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return ()


@record
class Lookup(Ordinary, abstract=True):
    """Rows indexed from a parameter: no matmuls."""

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return ()


@record
class View(Ordinary, abstract=True):
    """A view or a copy of existing tensors: no parameters, no arithmetic."""

    def weights(self) -> tuple[Weight, ...]:
        return ()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return ()
