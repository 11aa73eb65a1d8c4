"""A training step to measure, and napkin's prediction for it: FLOPs, memory, time. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from napkin import record, term
from napkin.architectures import implementation_of
from napkin.counting import flops
from napkin.counting.conventions import all_conventions
from napkin.errors import NapkinError
from napkin.evidence.predictions import one_run
from napkin.footprint import allocator, memory
from napkin.footprint.prepared import prepare
from napkin.inputs.hardware import Hardware
from napkin.operations.implementations import HUGGING_FACE
from napkin.operations.model import Model, stack_of
from napkin.training import optimizer_names
from napkin.training.layout import Layout
from napkin.training.precision import precision
from napkin.training.recomputation import recompute
from napkin.training.setup import Setup

PRECISIONS = ("bf16-pure", "amp-bf16", "fp32")
VARIANTS = ("eager", "compiled")
TINY = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 2048,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}
"""A decoder small enough for a CPU's step."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """napkin's prediction for a step: bytes, and seconds on an accelerator that it knows."""

    allocated: float
    step_s: float | None


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The steps to measure."""

    model: Model
    sequence: int
    micro_batch: int  # 0: the largest power of two that is predicted to fit
    layers: Sequence[int]
    precision: str = "bf16-pure"
    recompute: str = "none"
    variants: Sequence[str] = VARIANTS
    steps: int = 20
    hardware: Hardware | None = None  # whose datasheet the prediction of time starts from

    @property
    def compute(self) -> str:
        """The format that the matmuls run in: its peak is MFU's denominator."""
        return "fp32" if self.precision == "fp32" else "bf16"


def at_depth(model: Model, layers: int) -> Model:
    """Return a model of the first `layers` layers: the geometry that a single device can hold."""
    if len(model.stacks) != 1:
        raise NapkinError(f"bench step: {model.name} has {len(model.stacks)} stacks", "measure a decoder")
    stack = model.stacks[0]
    runs, left = [], layers
    for count, one in stack.runs:
        if left > 0:
            runs.append((min(count, left), one))
            left -= count
    return record.replace(model, stacks=(stack_of(stack.name, stack.before, runs, stack.after),))


def step_flops(model: Model, plan: StepPlan) -> dict[str, float]:
    """Return the FLOPs of a step in each convention: the model's (MFU), with recomputation (HFU)."""
    over = flops.works(model, plan.micro_batch, plan.sequence)
    tokens = plan.micro_batch * plan.sequence
    found = {f"mfu_flops/{name}": float(one.value) * tokens for name, one in all_conventions(model, over).items()}
    for convention, pairs in (("palm", flops.FULL), ("causal", flops.HALF)):
        again = 0.0
        if plan.recompute == "full":
            work = flops.works(model, plan.micro_batch, plan.sequence, pairs=pairs)[model.stacks[0].name]
            again = float(
                sum(
                    count * gemm.flops
                    for _, count, layer in model.stacks[0].kinds()
                    for op in layer.operations
                    for gemm in op.gemms(work)
                )
            )
        found[f"hfu_flops/{convention}"] = found[f"mfu_flops/{convention}"] + again
    return found


def predict(model: Model, plan: StepPlan, variant: str) -> Prediction:
    """Return what `napkin memory` and, for a known accelerator, `napkin step` predict for the same step."""
    optimizer, _ = optimizer_names.find("adamw")
    compiled = variant == "compiled"
    setup = Setup(
        implementation=implementation_of(HUGGING_FACE, model.family),
        layout=Layout(seq=plan.sequence, micro=plan.micro_batch, recompute=recompute(plan.recompute)),
        precision=precision(plan.precision),
        optimizer=optimizer,
        form="fused",
    )
    live = memory.rank_of(prepare(model, setup), 0).live
    allocated = allocator.reported(term.leaf("memory/live", live, "byte", term.TRUE, "napkin memory"), 1)
    seconds = None
    if plan.hardware is not None and plan.compute in plan.hardware.peaks:
        stack = "fsdp-compiled" if compiled else "fsdp-eager"
        asked = one_run.asked(model, setup, plan.hardware, stack)
        seconds = float(asked.step().time.value)
    return Prediction(float(allocated.allocated.value), seconds)
