"""How a run is laid out: number formats (a policy) and parallelism (a layout), as the user gave them."""

from __future__ import annotations

from napkin.elementwise import Number, maximum
from napkin.errors import NapkinError, did_you_mean
from napkin.formats import RECIPES, TRAINED
from napkin.record import record, replace
from napkin.units import number_format


@record
class Precision:
    """A policy: which number format each kind of tensor has.

    param    parameters as the forward pass reads them      grad    gradients as the optimizer reads them
    compute  inputs of matrix products                      state   the optimizer's parameter-shaped states
    master   a further copy of the parameters, or None      autocast  compute differs from param by autocast
    """

    name: str
    param: str
    grad: str
    compute: str
    state: str
    master: str | None = None

    @property
    def autocast(self) -> bool:
        """fp32 parameters computed in 16 bits: weights are cast on every forward pass."""
        return self.param == "fp32" and self.compute not in ("fp32", "tf32")  # tf32 reads fp32 tensors as they are


POLICIES: dict[str, Precision] = {
    p.name: p
    for p in (
        Precision("fp32", "fp32", "fp32", "fp32", "fp32"),
        Precision("bf16-pure", "bf16", "bf16", "bf16", "bf16"),
        Precision("amp-bf16", "fp32", "fp32", "bf16", "fp32"),
        Precision("bf16-mixed", "bf16", "bf16", "bf16", "fp32", "fp32"),
        Precision("bf16-fp32state", "bf16", "bf16", "bf16", "fp32"),
        Precision("fp16-mixed", "fp16", "fp16", "fp16", "fp32", "fp32"),
        Precision("fp8-mixed", "bf16", "bf16", "fp8", "fp32", "fp32"),
        Precision("mxfp8-mixed", "bf16", "bf16", "mxfp8", "fp32", "fp32"),
        Precision("nvfp4-mixed", "bf16", "bf16", "nvfp4", "fp32", "fp32"),
    )
}
_FIELDS = ("param", "grad", "compute", "state", "master")


def precision(text: str, where: str = "--precision") -> Precision:
    """A policy by name, or written out: `param=bf16,grad=fp32,compute=fp8,state=fp32,master=fp32`.

    Written out, what is left out follows param (compute, grad) or is fp32 (state), and there is no master copy."""
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
            raise NapkinError(f"{where}: unknown dtype {value[:40]!r} for {field}", did_you_mean(value, TRAINED))
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
    )


OPERATIONS = "operations"


@record
class Recompute:
    """Which activations are computed again in the backward pass.

    kind     none, selective (attention's core), full (every block), every (blocks 0, K, 2K, …), group (one checkpoint
             for each run of K blocks), operations (all but attention's result and every second product's)
    k        the K of every and group; 0 for group:sqrt, which takes K = ⌈√L⌉
    """

    kind: str = "none"
    k: int = 1

    @property
    def word(self) -> str:
        """As an option spells it."""
        return {"every": f"every:{self.k}", "group": f"group:{self.k or 'sqrt'}"}.get(self.kind, self.kind)


def recompute(text: str, where: str = "--recompute") -> Recompute:
    """What is recomputed, by its word: none, selective, full, operations, every:K, group:K or group:sqrt."""
    name = text.strip().lower()
    if name in ("none", "selective", "full", OPERATIONS):
        return Recompute(name)
    kind, colon, count = name.partition(":")
    if kind in ("every", "group") and colon:
        if kind == "group" and count == "sqrt":
            return Recompute("group", 0)
        if count.isascii() and count.isdigit() and 1 <= len(count) <= 9 and int(count) > 0:
            return Recompute(kind, int(count))
    raise NapkinError(
        f"{where}: unknown recomputation {text.strip()[:60]!r}",
        "none, selective, operations, full, every:K, group:K or group:sqrt",
    )


Stages = tuple[tuple[int, int], ...]
"""A pipeline's stages in order, as (how many, layers of each)."""


def joined(stages: Stages) -> Stages:
    """The same in as few runs as can be; runs of no stage left out."""
    found: list[tuple[int, int]] = []
    for count, layers in stages:
        if found and found[-1][1] == layers:
            found[-1] = (found[-1][0] + count, layers)
        elif count:
            found.append((count, layers))
    return tuple(found)


def held_by(stages: Stages, index: int) -> tuple[int, int]:
    """The first layer of stage `index` and the one after its last."""
    low = 0
    for count, layers in stages:
        if index < count:
            return low + index * layers, low + (index + 1) * layers
        low, index = low + count * layers, index - count
    return low, low


def with_experts(ranks: Number, tp: Number, ep: Number, etp: Number) -> Number:
    """Of n ranks that hold the same dense weights, those that hold the same experts: t·n/(e·etp) (Megatron-core
    parallel_state.py, expert_data_parallel_size)."""
    return maximum(ranks * tp // (ep * etp), 1)


@record
class Layout:
    """How the work is divided. Every field may be an array with one entry per layout (zero, sp too), but stages.

    tp pp dp cp ep etp   tensor, pipeline, data, context, expert and expert-tensor parallel degrees (ep inside dp)
    vp        model chunks a stage (1: none)      sp  sequence parallelism (0 or 1)     zero  ZeRO stage 0..3
    micro     sequences in one forward pass       micro_batches  forward passes of one rank in one step
    seq       tokens in a sequence                target  tokens of the decoder's, in an encoder-decoder (0: as many)
    stages    layers of each pipeline stage, where they are dealt by hand
    """

    seq: Number
    micro: Number = 1
    micro_batches: Number = 1
    tp: Number = 1
    pp: Number = 1
    dp: Number = 1
    cp: Number = 1
    ep: Number = 1
    etp: Number = 1
    vp: Number = 1
    sp: Number = 0
    zero: Number = 0
    target: Number = 0
    schedule: str = "1f1b"
    recompute: Recompute = Recompute()
    stages: Stages = ()

    @property
    def gpus(self) -> Number:
        return self.tp * self.pp * self.dp * self.cp

    @property
    def global_batch(self) -> Number:
        """Sequences in one optimizer step."""
        return self.micro * self.micro_batches * self.dp

    def with_experts(self, ranks: Number) -> Number:
        """Of as many ranks as hold the same dense weights, those that hold the same experts."""
        return with_experts(ranks, self.tp, self.ep, self.etp)

    def replaced(self, **changes: object) -> Layout:
        return replace(self, **changes)
