"""Precision policies: the number format of each kind of tensor in training."""

from __future__ import annotations

from napkin.errors import NapkinError, did_you_mean
from napkin.formats import RECIPES, TRAINED
from napkin.options.training import FROZEN_FORMATS
from napkin.record import record, replace
from napkin.units import number_format


@record
class Precision:
    """A policy: the number format of each kind of tensor.

    param    parameters as the forward pass reads them      grad    gradients as the optimizer reads them
    compute  inputs of matmuls                               state   the optimizer's parameter-shaped states
    master   a further copy of the parameters, or None      autocast  compute differs from param by autocast
    frozen   parameters that are not trained; "": as param. Matmuls of adapters next to them run in compute
    """

    name: str
    param: str
    grad: str
    compute: str
    state: str
    master: str | None = None
    frozen: str = ""

    @property
    def autocast(self) -> bool:
        """fp32 parameters computed in 16 bits: weights are cast on every forward pass."""
        network = self.frozen or self.param
        return network == "fp32" and self.compute not in ("fp32", "tf32")  # tf32 reads fp32 tensors as they are

    @property
    def within_autocast(self) -> bool:
        """Whether the step runs under autocast: matmuls of fp32 parameters, of the network or of adapters next to it,
        run in 16 bits."""
        return self.param == "fp32" and self.compute not in ("fp32", "tf32")

    @property
    def nominal(self) -> str:
        """The format that a weight has outside matmuls, and in which norms, sums and the residual stream run without
        autocast: 16 bits where weights are stored in 8 or 4, which are operands of matmuls alone."""
        stored = {"tf32": "fp32"}.get(self.param, self.param)
        return stored if stored in ("fp32", "bf16", "fp16") else "bf16"

    @property
    def gathered(self) -> str:
        """The format in which ranks gather sharded parameters: autocast's, to which FSDP casts its shards
        (torch/distributed/fsdp, MixedPrecision), else their own."""
        return self.compute if self.autocast else self.param

    @property
    def stated(self) -> str:
        """The policy as typed for --precision; if it has no name, by the parts that do not follow from others."""
        if self.name in POLICIES:
            return self.name
        follows = {"grad": self.param, "compute": self.param, "frozen": self.param, "state": "fp32"}
        parts = {field: getattr(self, field) for field in _FIELDS}
        return ",".join(f"{field}={value}" for field, value in parts.items() if value and value != follows.get(field))

    @property
    def network(self) -> Precision:
        """The policy as layers of frozen parameters see it, without adapters."""
        if not self.frozen or self.frozen == self.param:
            return self
        compute = self.frozen if self.compute == self.param else self.compute
        return replace(self, param=self.frozen, compute=compute, frozen="")


POLICIES: dict[str, Precision] = {
    p.name: p
    for p in (
        Precision("fp32", "fp32", "fp32", "fp32", "fp32"),
        Precision("bf16-pure", "bf16", "bf16", "bf16", "bf16"),
        Precision("amp-bf16", "fp32", "fp32", "bf16", "fp32"),
        Precision("amp-fp16", "fp32", "fp32", "fp16", "fp32"),
        Precision("bf16-mixed", "bf16", "bf16", "bf16", "fp32", "fp32"),
        Precision("bf16-fp32state", "bf16", "bf16", "bf16", "fp32"),
        Precision("fp16-mixed", "fp16", "fp16", "fp16", "fp32", "fp32"),
        Precision("fp8-mixed", "bf16", "bf16", "fp8", "fp32", "fp32"),
        Precision("mxfp8-mixed", "bf16", "bf16", "mxfp8", "fp32", "fp32"),
        Precision("nvfp4-mixed", "bf16", "bf16", "nvfp4", "fp32", "fp32"),
    )
}


def named(policy: Precision) -> Precision:
    """Return a policy with the name of a known policy that has the same parts, if there is one."""
    return next((one for one in POLICIES.values() if replace(one, name=policy.name) == policy), policy)


_FIELDS = ("param", "grad", "compute", "state", "master", "frozen")


def precision(text: str, where: str = "--precision") -> Precision:
    """Return a policy by name, or from its fields: `param=bf16,grad=fp32,compute=fp8,state=fp32,master=fp32`.

    Fields that are omitted follow param (compute, grad, frozen) or are fp32 (state), and there are no master weights.
    Raises NapkinError for a name or a field that is not known. where: what the message names."""
    name = text.strip().lower()
    if name in POLICIES:
        return POLICIES[name]
    if "=" not in name:
        hint = did_you_mean(name, POLICIES) or f"one of {', '.join(POLICIES)}, or param=bf16,grad=fp32,…"
        raise NapkinError(f"{where}: unknown policy {text.strip()[:60]!r}", hint)
    parts: dict[str, str] = {}
    for item in name.split(","):
        field, _, value = (piece.strip() for piece in item.partition("="))
        value = number_format(value)
        value = RECIPES.get(value, value)
        if field not in _FIELDS:
            raise NapkinError(f"{where}: unknown part {field[:40]!r}", f"one of {', '.join(_FIELDS)}")
        if field in parts:
            raise NapkinError(f"{where}: {field} is given twice", "keep one of them")
        if value not in TRAINED and not (field == "master" and value == "none"):
            quantized = f"--quantized {value} with --lora-rank 16" if value in FROZEN_FORMATS else None
            raise NapkinError(
                f"{where}: unknown dtype {value[:40]!r} for {field}",
                quantized or did_you_mean(value, TRAINED) or f"one of {', '.join(TRAINED)}",
            )
        parts[field] = value
    if "param" not in parts:
        raise NapkinError(f"{where}: param is missing", "for example param=bf16,grad=fp32,state=fp32,master=fp32")
    param = parts["param"]
    master = parts.get("master", "none")
    return Precision(
        name,
        param,
        parts.get("grad", param),
        parts.get("compute", param),
        parts.get("state", "fp32"),
        None if master == "none" else master,
        parts.get("frozen", ""),
    )
