"""What a training step runs, as its memory sees it, and how far figures can lie from the formulas."""

from __future__ import annotations

from napkin.autograd.tensors import sized
from napkin.elementwise import Flag, Number, where
from napkin.operations.frozen import Frozen
from napkin.operations.implementations import HF, Implementation
from napkin.operations.model import Model
from napkin.record import record, replace
from napkin.training.frameworks import PLAIN, Framework
from napkin.training.layout import Layout
from napkin.training.optimizer import Optimizer
from napkin.training.precision import Precision
from napkin.training.recomputation import Recompute
from napkin.training.tasks import PRETRAIN, ForwardPass, Passes, Task, passes_of


@record
class Width:
    """How far a step can lie from the formulas.

    live     relative margins of the live bytes, below and above
    figures  (figure, low, high) of those that runs measured themselves, as ratios to the prediction
    rows     how many published rows the ratios are from
    says     the origin in words
    """

    live: tuple[float, float] = (0.0, 0.0)
    figures: tuple[tuple[str, float, float], ...] = ()
    rows: int = 0
    says: str = ""


EXACT = Width()


def keeps_adapters(implementation: Implementation, precision: Precision) -> Implementation:
    """Return an implementation whose adapters are in the trained parameters' type, where frozen ones have another."""
    tuning = implementation.tuning
    if tuning is None or not precision.frozen or precision.frozen == precision.param:
        return implementation
    apart = replace(tuning, kept_in=precision.param, autocast=precision.compute != precision.param)
    return replace(implementation, tuning=apart)


def wakes(frozen: int | None, recompute: Recompute, implementation: Implementation, woken: bool = False) -> bool:
    """Return whether gradients pass through frozen layers all the same: where layers are checkpointed, transformers and
    peft make the embedding's output require one (PreTrainedModel.enable_input_require_grads)."""
    tuning = implementation.tuning
    fixed = frozen is not None or (tuning is not None and tuning.targeted)
    checkpoints = recompute.kind not in ("none", "selective")
    return fixed and implementation.wakes and (checkpoints or woken)


@record
class Setup:
    """What a step runs: everything that its memory depends on, except the model and the hardware.

    shard    ranks that divide states under ZeRO, fewer than all where whole groups are kept (hybrid sharding); 0: all
    ema      an EMA of the weights is kept, in the states' type
    offload  what is kept in the host's memory between its uses: optimizer, activations, parameters (a rank's own part
             of them and of their gradients, as FSDP's CPUOffloadPolicy keeps both; the optimizer runs there)
    framework    the training framework, with its own allocations (frameworks.py)
    in_backward  the optimizer updates each tensor as soon as it has its gradient, which is then freed
    wide_tables  an 8-bit optimizer keeps the states of embedding and head in 32 bits (transformers' Trainer does)
    frozen   this many first layers, and the embedding before them, are not trained and save nothing; None: all are
             trained
    tower    how a vision tower and its projector are run
    woken    the embedding's output requires a gradient though nothing is checkpointed
    asleep   the last part of a multimodal model that is not trained and saves nothing: vision, or projector, with it
             the tower; "": none
    compiled the step runs under torch.compile
    task     what it is trained for            forwards  the passes without gradients that this needs
    save     how the state is saved where ranks divide it (footprint/saving.py)
    widths   how far figures can lie from the formulas, on one GPU and on several: where what is kept was counted on
             the code itself, if not
    """

    implementation: Implementation
    layout: Layout
    precision: Precision
    optimizer: Optimizer
    form: str
    attention: str = "flash"
    dropout: float = 0.0
    shard: Number = 0
    ema: bool = False
    offload: tuple[str, ...] = ()
    framework: Framework = PLAIN
    in_backward: bool = False
    wide_tables: bool = False
    frozen: int | None = None
    woken: bool = False
    tower: Implementation = HF
    asleep: str = ""
    compiled: bool = False
    task: Task = PRETRAIN
    forwards: tuple[ForwardPass, ...] = ()
    save: str = "sharded"
    widths: tuple[tuple[Width, Width], tuple[Width, Width]] = ((EXACT, EXACT), (EXACT, EXACT))

    @property
    def tunes(self) -> bool:
        """Return whether a trained network is trained on: for a task, by adapters, or with layers that stay as they
        are."""
        return self.task != PRETRAIN or self.implementation.tuning is not None or self.freezes

    @property
    def freezes(self) -> bool:
        """Return whether the first layers are not trained and save nothing."""
        return self.frozen is not None or self.asleep != ""

    @property
    def wakes(self) -> bool:
        """Return whether gradients pass through frozen layers all the same."""
        return wakes(self.frozen, self.layout.recompute, self.implementation, self.woken)

    def trained(self, model: Model) -> Model:
        """Return the model with what is frozen marked and its adapters among its operations."""
        from napkin.operations.trained import as_trained  # a large module, which not every question needs

        return as_trained(model, Frozen(self.implementation, self.frozen, self.asleep, self.wakes))

    def passes(self, model: Model) -> Passes:
        """Return what a micro-batch runs: what the time of a step and its hardware FLOPs are of."""
        return passes_of(self.trained(model), self.forwards)

    def needed(self, model: Model) -> Passes:
        """Return the same without the gradients that pass through frozen layers only because their checkpoints need an
        input that requires one: what model FLOPs, and so MFU, are of. They do not depend on what is recomputed."""
        from napkin.operations.trained import as_trained

        return passes_of(as_trained(model, Frozen(self.implementation, self.frozen, self.asleep)), self.forwards)

    @property
    def compute(self) -> str:
        """Return the number format of the network's products, adapters left aside."""
        return self.precision.network.compute

    @property
    def layers_in(self) -> Precision:
        """The policy as the layers see it: that of frozen parameters, if there are; sharded fp32 parameters reach
        them in the compute type."""
        if self.precision.frozen:
            return self.precision.network
        if not self.framework.gathers or self.precision.compute not in ("bf16", "fp16"):
            return self.precision
        return replace(self.precision, param=self.precision.compute)

    @property
    def bucket(self) -> Number:
        """Bytes of the bucket that gradients are reduced in: of the type that they are added up in."""
        return self.framework.bucket * max(sized(1, self.precision.grad), self.framework.accumulator)

    @property
    def adds_up(self) -> Flag:
        """Whether gradients are kept between passes: several micro-batches, or a buffer, add to them."""
        if self.framework.accumulator > 0 or self.framework.wide_gradients:
            return True
        several: Flag = self.layout.micro_batches > 1
        return several

    @property
    def lets_go(self) -> Flag:
        """Whether a weight's new gradient is freed at once: its optimizer step runs immediately, or it is added in
        place to the one that is kept (torch/csrc/autograd/functions/accumulate_grad.h). Gradients that are divided over
        ranks wait until those of their block are reduced together."""
        whole = (self.layout.zero < 2) | (self.shards == 1)
        if self.in_backward:
            return True
        either: Flag = self.adds_up & whole
        return either

    @property
    def shards(self) -> Number:
        """Ranks over which ZeRO divides dense states."""
        return where(self.shard > 0, self.shard, self.layout.dp * self.layout.cp)
