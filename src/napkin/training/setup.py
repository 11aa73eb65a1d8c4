"""What a training step runs, as far as its memory depends on it, and the errors of the memory formulas."""

from __future__ import annotations

from napkin.autograd.tensors import sized
from napkin.elementwise import Flag, Number, where
from napkin.formats import EXACT_KEPT
from napkin.operations.frozen import Frozen
from napkin.operations.implementations import HF, Implementation
from napkin.operations.model import Model
from napkin.record import record, replace
from napkin.training.framework import Framework
from napkin.training.frameworks import PLAIN
from napkin.training.layout import Layout
from napkin.training.optimizer import Optimizer
from napkin.training.precision import Precision
from napkin.training.recomputation import Recompute
from napkin.training.tasks import PRETRAIN, ForwardPass, Passes, Task, passes_of


@record
class Width:
    """Margins of the memory of a step around the formulas.

    live     relative margins of the live bytes, below and above
    figures  (figure, low, high) of figures that runs measured directly, as ratios to the prediction
    rows     number of published rows behind the ratios
    says     the origin in words
    """

    live: tuple[float, float] = (0.0, 0.0)
    figures: tuple[tuple[str, float, float], ...] = ()
    rows: int = 0
    says: str = ""


EXACT = Width()


def keeps_adapters(implementation: Implementation, precision: Precision, framework: Framework) -> Implementation:
    """Return an implementation whose adapters are divided as the framework divides them, and have the dtype of trained
    parameters, if frozen ones have another.

    fully_shard of a block, its adapters among its weights, casts them as it gathers them (torch/distributed/fsdp/
    _fully_shard/_fsdp_param.py, all_gather_inputs: to param_dtype), so that peft finds them in the dtype of the matmuls
    and casts nothing. A matrix that is a unit of its own is read outside it, sharded and in fp32 (peft 0.21
    tuners/lora/layer.py: `_cast_input_dtype(x, lora_A.weight.dtype)`), and FSDP casts that input back."""
    tuning = implementation.tuning
    if tuning is None:
        return implementation
    tuning = replace(tuning, divided=framework.divides_adapters)
    if not precision.frozen or precision.frozen == precision.param:
        return replace(implementation, tuning=tuning)
    if precision.within_autocast and framework.gathers and framework.fsdp == 2 and not framework.unit_of_adapter:
        return replace(implementation, tuning=replace(tuning, kept_in=precision.compute))
    apart = replace(tuning, kept_in=precision.param, autocast=precision.compute != precision.param)
    return replace(implementation, tuning=apart)


def wakes(frozen: int | None, recompute: Recompute, implementation: Implementation, woken: bool = False) -> bool:
    """Return whether gradients pass through frozen layers anyway: with checkpointed layers, transformers and peft make
    the embedding's output require a gradient (PreTrainedModel.enable_input_require_grads)."""
    tuning = implementation.tuning
    fixed = frozen is not None or (tuning is not None and tuning.targeted)
    checkpoints = recompute.kind not in ("none", "selective")
    return fixed and implementation.wakes and (checkpoints or woken)


@record
class Setup:
    """A training step: everything that its memory depends on, except the model and the hardware's memory.

    shard    sharding-group size under ZeRO, less than all ranks for HSDP; 0: all ranks
    ema      an EMA of the weights is kept, in the states' dtype
    offload  what is kept in the host's memory between its uses: optimizer, activations, parameters (a rank's own part
             of them and of their gradients, as FSDP's CPUOffloadPolicy keeps both; the optimizer runs there)
    framework    the training framework, with its own allocations (frameworks.py)
    in_backward  the optimizer updates each tensor as soon as it has its gradient, which is then freed
    wide_tables  an 8-bit optimizer keeps the states of embedding and head in fp32 (transformers' Trainer does)
    frozen   number of first layers that, with the embedding, are not trained and save nothing; None: all are trained
    tower    implementation of the vision tower and its projector
    woken    the embedding's output requires a gradient although nothing is checkpointed
    asleep   the last part of a multimodal model that is not trained and saves nothing: vision, or projector, with it
             the tower; "": none
    still_head  the final norm and the head are not trained
    compiled the step runs under torch.compile
    task     the training task            forwards  its passes without gradients
    save     how a sharded state is saved (footprint/saving.py)
    generation  of the GPU: how large the workspaces of its matrix products are
    loading  where quantized weights wait until ranks divide them (footprint/loading.py), "" if that is not stated
    widths   margins of the figures, on one GPU and on several: if saved tensors were measured on the code, and if not
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
    still_head: bool = False
    compiled: bool = False
    task: Task = PRETRAIN
    forwards: tuple[ForwardPass, ...] = ()
    save: str = "sharded"
    generation: str = ""
    loading: str = ""
    widths: tuple[tuple[Width, Width], tuple[Width, Width]] = ((EXACT, EXACT), (EXACT, EXACT))

    @property
    def tunes(self) -> bool:
        """Return whether this is fine-tuning: a task, adapters, or frozen layers."""
        return self.task != PRETRAIN or self.implementation.tuning is not None or self.freezes or self.still_head

    @property
    def tunes_own_class(self) -> bool:
        """Return whether this fine-tunes a model's own class of transformers, as fine-tuning libraries do."""
        return self.tunes and self.implementation.of_transformers

    @property
    def freezes(self) -> bool:
        """Return whether the first layers are not trained and save nothing."""
        return self.frozen is not None or self.asleep != ""

    @property
    def wakes(self) -> bool:
        """Return whether gradients pass through frozen layers anyway."""
        return wakes(self.frozen, self.layout.recompute, self.implementation, self.woken)

    def held(self, model: Model) -> Model:
        """Return the model with the weights that its implementation has: a head of its own where that ties none."""
        return replace(model, tied=False) if model.tied and self.implementation.own_head else model

    def trained(self, model: Model) -> Model:
        """Return the model with frozen operations marked and adapters among its operations."""
        return self._trained(model, self._frozen(self.wakes))

    def _trained(self, model: Model, frozen: Frozen) -> Model:
        held = self.held(model)
        if not frozen.anything:
            return held
        from napkin.operations.trained import as_trained  # a large module, which not every question needs

        return as_trained(held, frozen)

    def passes(self, model: Model) -> Passes:
        """Return the passes of a micro-batch, from which the time of a step and its hardware FLOPs follow."""
        return passes_of(self.trained(model), self.forwards)

    def needed(self, model: Model) -> Passes:
        """Return the passes without gradients that pass through frozen layers only because checkpoints need an input
        that requires one. Model FLOPs, and so MFU, count these: they do not depend on recomputation."""
        return passes_of(self._trained(model, self._frozen(False)), self.forwards)

    def _frozen(self, wakes: bool) -> Frozen:
        return Frozen(self.implementation, self.frozen, self.asleep, wakes, self.still_head)

    @property
    def between_waits(self) -> Number:
        """Return the micro-batches of a rank between two moments at which it waits for the others: ranks that gather
        layers wait in every one, others once a step."""
        return 1 if int(self.layout.zero) == 3 else self.layout.micro_batches

    @property
    def running(self) -> Implementation:
        """Return the implementation as the step runs it: under autocast the cross entropy casts 16-bit logits to fp32
        (aten/src/ATen/autocast_mode.h, AT_FORALL_FP32), those of 16-bit weights next to adapters too."""
        return replace(self.implementation, fp32_loss=self.implementation.fp32_loss or self.precision.within_autocast)

    @property
    def compute(self) -> str:
        """Return the number format of the network's matmuls, without adapters."""
        return self.precision.network.compute

    @property
    def layers_in(self) -> Precision:
        """The policy as the layers see it: that of frozen parameters, if any; sharded fp32 parameters arrive in the 16
        bits of the matmuls, or of what 8-bit matmuls quantize."""
        if self.precision.frozen:
            return self.precision.network
        policy, framework = self.precision, self.framework
        wide = policy.compute if policy.compute in EXACT_KEPT else "bf16"
        if (framework.gathers or framework.autocasts) and policy.autocast:
            policy = replace(policy, param=wide)
        return replace(policy, compute=wide) if framework.keeps_inputs else policy

    @property
    def narrower(self) -> Precision | None:
        """Return the policy with frozen weights next to adapters in the 16 bits of the matmuls, if they are in fp32 and
        nothing else decides how layers see them; else None."""
        tuning, policy = self.implementation.tuning, self.precision
        if tuning is None or tuning.quantized or not policy.autocast or self.framework.gathers:
            return None
        return replace(policy, name="", frozen=policy.compute)

    def bucket(self, width: int) -> Number:
        """Return the bytes of the bucket in which a model of this width reduces gradients, in the dtype of their
        accumulation."""
        framework = self.framework
        square = where(self.layout.zero >= 3, width**2, framework.bucket)
        elements = square if framework.bucket_of_width else framework.bucket
        return elements * max(sized(1, self.precision.grad), framework.accumulator)

    @property
    def blocks_in_flight(self) -> int:
        """Blocks whose parameters FSDP holds gathered in the passes: the one in use, and the one that it prefetches."""
        framework = self.framework
        return 1 if framework.reentrant and framework.fsdp == 1 and self.layout.recompute.kind == "full" else 2

    @property
    def copied_to_buckets(self) -> Flag:
        """Whether a reducer's buckets hold a copy of all gradients (`Framework.reducer`). Software that divides layers
        over ranks reduces gradients where they are."""
        layout = self.layout
        copied: Flag = self.framework.reducer & (layout.dp > 1) & (layout.zero == 0) & (layout.tp * layout.pp == 1)
        return copied

    @property
    def adds_up(self) -> Flag:
        """Whether gradients are accumulated between passes: over several micro-batches, or in a buffer."""
        several: Flag = self.layout.micro_batches > 1
        either: Flag = (self.copies_apart if self.wide_copies else several) | self.keeps_gradients
        return either

    @property
    def keeps_gradients(self) -> Flag:
        """Whether gradients are in a buffer that lives from step to step."""
        if self.framework.accumulator > 0 or self.framework.wide_gradients:
            return True
        kept: Flag = self.framework.keeps_shards & (self.layout.zero >= 3)
        return kept

    @property
    def wide_copies(self) -> int:
        """Bytes per element of copies of the gradients that the optimizer step makes: none of fp32 ones."""
        return self.framework.wide_copies if self.precision.grad in ("bf16", "fp16") else 0

    @property
    def copies_apart(self) -> Flag:
        """Whether a plan gives the copies of all gradients memory of their own. Where tensor- or pipeline-parallel
        ranks communicate in the stream of the passes, the optimizer's operations are a part of the same chain, in which
        tensors that do not live at the same time share memory, if they run as often: once a step (Oneflow-Inc/oneflow
        core/graph/task_graph.cpp, IsSpecialOpNotConsiderMergeInChain and TraverseConnectedSubGraphMergeInThisChain)."""
        layout = self.layout
        apart: Flag = (layout.tp * layout.pp == 1) | (layout.micro_batches > 1)
        return apart

    @property
    def accumulator(self) -> Number:
        """Bytes per element of buffers next to the gradients, which live through the step."""
        return self.framework.accumulator + self.wide_copies * where(self.copies_apart, 1, 0)

    @property
    def step_bytes(self) -> Number:
        """Bytes per element that the optimizer step allocates for its own shard."""
        return self.framework.step_bytes + self.wide_copies * where(self.copies_apart, 0, 1)

    @property
    def frees_gradients(self) -> Flag:
        """Whether a weight's new gradient is freed at once: its optimizer step runs immediately, or it is added in
        place to the accumulated one (torch/csrc/autograd/functions/accumulate_grad.h). Sharded gradients wait until
        those of their block are reduced together."""
        whole = (self.layout.zero < 2) | (self.shards == 1)
        if self.in_backward:
            return True
        either: Flag = self.adds_up & whole
        return either

    @property
    def shards(self) -> Number:
        """Ranks over which ZeRO divides dense states."""
        return where(self.shard > 0, self.shard, self.layout.dp * self.layout.cp)
