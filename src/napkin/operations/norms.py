"""Normalizations."""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.operations.base import HEADS, REPLICATED, Elementwise, Weight, division_of
from napkin.record import record


@record
class Norm(Elementwise):
    """Normalisation over the last `width` numbers. `kind`: rms, layer, or affine: weight and bias alone (MobileBERT).

    arithmetic  how the reference code computes it:
        fused       one kernel in the input's type (F.layer_norm, F.rms_norm); what a layer norm is unless said
        fused_fp32  that kernel on an fp32 copy of the input, cast back
        fp32_norm   written out: normalised in fp32, cast back, then the weight; what an rms norm is unless said
        fp32_spread as that, but what is divided by the fp32 deviation is the input as it came (T5)
        fp32        written out: the weight too is applied in fp32, then cast back
        narrow      written out: the reciprocal deviation, made in fp32, is cast to the input's type and multiplies it
    groups     how many vectors of `width` a token has (heads, for norms of queries and keys)
    unit_offset  the weight is stored as its difference from 1 (Gemma)
    weight, bias which of its vectors exist; shared over the groups unless `per_group`
    gated      multiplied by the activation (`gate`) of a gate that is read second (Mamba-2)
    """

    width: int
    kind: str = "rms"
    groups: int = 1
    unit_offset: bool = False
    weight: bool = True
    bias: bool = False
    per_group: bool = False
    gated: bool = False
    shard: str = REPLICATED
    arithmetic: str = ""
    gate: str = "silu"

    def __post_init__(self) -> None:
        if not self.arithmetic:
            object.__setattr__(self, "arithmetic", "fused" if self.kind == "layer" else "fp32_norm")

    def weights(self) -> tuple[Weight, ...]:
        shape = (self.groups, self.width) if self.per_group else (self.width,)
        present = (("weight", self.weight), ("bias", self.bias))
        return tuple(Weight(name, shape, self.shard) for name, there in present if there)

    def normalizes(self) -> bool:
        return True

    def traffic(self) -> tuple[Number, Number]:
        """Read and write; backward reads two and writes one."""
        return 4 * self.width * self.groups, 6 * self.width * self.groups

    def division(self) -> str:
        return division_of(self.shard)


@record
class UnitNorm(Elementwise):
    """x·√width/‖x‖ over each of `groups` vectors of `width` numbers; `learnt`: and by a learnt factor of each."""

    width: int
    groups: int
    learnt: bool = False

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("scale", (self.groups,), HEADS),) if self.learnt else ()

    def traffic(self) -> tuple[Number, Number]:
        return 6 * self.width * self.groups, 10 * self.width * self.groups
