"""Experts of one neuron each, looked up by product keys (Lample et al. 2019, arXiv:1907.05242; He 2024,
arXiv:2407.04153)."""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.operations.base import NOT_TIMED, Gemm, Ordinary, Weight, Work, gemm
from napkin.record import record


@record
class RetrievedExperts(Ordinary):
    """Σ over the chosen experts of score · activation(x·down)·up, each expert a row of two tables. FLOP: 4·T·k·h.

    Reads the tokens and a router's logits of `keys` first and `keys` second halves of keys, whose sums score keys²
    experts, of which the `top_k` best are chosen."""

    width: int
    experts: int
    keys: int
    top_k: int
    function: str
    normalise: bool

    def weights(self) -> tuple[Weight, ...]:
        return tuple(Weight(name, (self.width,), copies=self.experts, used=self.top_k) for name in ("down", "up"))

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return (
            gemm(f"{self.name}/down", self.top_k, self.width, 1, batch=work.tokens, weight=False),
            gemm(f"{self.name}/up", 1, self.top_k, self.width, batch=work.tokens, weight=False),
        )

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet
