"""The step model's inputs for one run: layout, rates and the interval, from the user's options. No numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence

from napkin.autograd.tensors import sized
from napkin.elementwise import Number, ceil_div, minimum, where
from napkin.errors import Refused
from napkin.evidence import constants as shipped
from napkin.evidence import software
from napkin.evidence.intervals import SLOT_SPREAD, UNKNOWN_SPREAD, RunPoint, SeenStep, point, widened
from napkin.evidence.machines import Machine, is_given, machine
from napkin.evidence.profile_shares import measured_shares
from napkin.evidence.rates import STAGED_BUS, early_of, names, picker, rates
from napkin.footprint.local_weights import weights_of
from napkin.formats import COMPUTE_BITS
from napkin.inputs.hardware import Hardware
from napkin.inputs.peaks import peak_name
from napkin.operations.implementations import STACKED
from napkin.operations.losses import LOSSES, copied_bytes
from napkin.operations.model import Model
from napkin.operations.trained import head_of
from napkin.record import record, replace
from napkin.term import Term
from napkin.timing.optimizer import FUSED_ON_HOST, LOOPED_ON_HOST
from napkin.timing.rates import Rates
from napkin.timing.step import OPTIMIZER, StepTime, step_of_passes
from napkin.timing.step_layout import IDLE, StepLayout
from napkin.training.assigned_stages import Stages
from napkin.training.layout import Layout
from napkin.training.optimizer_step import step_traffic
from napkin.training.precision import Precision
from napkin.training.recomputation import OPERATIONS, SECOND_LINEARS
from napkin.training.setup import Setup
from napkin.training.tasks import Passes

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from napkin.inputs.profile import Profile


@record
class StepPrediction:
    """The passes of a micro-batch, and plan and rates of the step. kernel: of attention; at: the run's point in the
    evidence; without: a held-out source; tuned: whether this is fine-tuning; slots: whether GPUs are joined by slots of
    a board of which nothing is stated; newer: share of the peak of the attention kernel that another release runs, and
    of its small heads, if the release is not stated."""

    passes: Passes
    plan: StepLayout
    rates: Rates
    stack: software.SoftwareStack
    kernel: str
    at: RunPoint
    peak: Term
    factor: float = 1.0
    without: str = ""
    tuned: bool = False
    slots: bool = False
    newer: tuple[Number, Number] | None = None

    def step(self) -> StepTime:
        """Return the time of one step, the same for every command."""
        return step_of_passes(self.passes, self.plan, self.rates)

    @property
    def evidence(self) -> str:
        """Return the class of evidence of the interval (intervals.py)."""
        return shipped.class_of_evidence(self.at, self.without)

    def half_width(
        self, level: float, named: bool = True, found: Term | None = None
    ) -> tuple[float, Sequence[tuple[float, SeenStep]]]:
        """Return half the interval's width in ln t. found: the time of the step, if it is known.

        Software that is not named, or not known, adds its spread, and fine-tuning its larger error; a factor from the
        user's own steps removes the shared part."""
        half, close = shipped.half_width(self.at, level, self.without)
        if self.tuned:
            half *= shipped.tuning_ratio(self.without)
        wide = shipped.deviations(level)
        slow = self.slots and self.rates.bus == STAGED_BUS  # else a profile measured them
        if self.plan.host or slow or self.newer is not None:
            time = found or self.step().time
            seconds, host, slots, kernel = float(time.value), 0.0, 0.0, 0.0
            if self.plan.host:
                host = sum(float(part.value) for part in time.parts if part.name == OPTIMIZER) / seconds
            if slow:
                at = replace(self.rates, bus=self.rates.bus * math.exp(-wide * SLOT_SPREAD))
                slots = math.log(self._seconds(at) / seconds)
            if self.newer is not None:
                at = replace(self.rates, attention=self.newer[0], small_head=self.newer[1])
                kernel = math.log(self._seconds(at) / seconds)
            half = widened(half, wide, host, slots, kernel)
        if self.factor != 1.0:
            return half * shipped.near_ratio(), close
        guessed = not named or self.stack.name == software.UNKNOWN
        return (math.hypot(half, wide * UNKNOWN_SPREAD) if guessed else half), close

    def _seconds(self, at: Rates) -> float:
        """Return the seconds of a step at other rates."""
        return float(step_of_passes(self.passes, self.plan, at).time.value)


def recomputed_share(setup: Setup, model: Model) -> tuple[float, bool]:
    """Return the share of the layers whose forward runs again, and whether only attention's core does."""
    kind, k = setup.layout.recompute.kind, setup.layout.recompute.k
    if kind == "selective":
        return 0.0, True
    if kind == "every":  # blocks 0, K, 2K, …
        return math.ceil(model.depth / k) / model.depth, False
    return (1.0, False) if kind in ("full", "group") else (0.0, False)


def plan_of(model: Model, setup: Setup, stack: software.SoftwareStack, low: bool, kernel: str) -> StepLayout:
    """Return the step model's plan of a setup. low: matmuls in fewer than 16 bits."""
    layout: Layout = setup.layout
    pure = setup.precision.state in ("bf16", "fp16")
    gradient = 2 if pure else reduced_bytes(setup.precision, stack.gradient_bytes)
    share, core = recomputed_share(setup, model)
    before, last = ends(layout.stages)
    lengths = model.vision.lengths(layout.image_tokens) if model.vision is not None else None
    _, tower_tokens, image_tokens = lengths or (1, 1, 1)
    return StepLayout(
        sequence=layout.seq,
        micro_batch=layout.sequences,
        micro_batches=layout.micro_batches,
        tp=layout.tp,
        pp=layout.pp,
        vp=layout.vp,
        cp=layout.cp,
        ep=layout.ep,
        dp=layout.dp,
        sequence_parallel=layout.sp,
        zero=where(layout.dp * layout.cp > 1, layout.zero, 0),
        shards=minimum(setup.shards, layout.dp * layout.cp),
        layers_recomputed=share,
        attention_recomputed=1 if core else 0,
        products_recomputed=SECOND_LINEARS if layout.recompute.kind == OPERATIONS else 0,
        flash=0 if kernel == "eager" else 1,
        idle=IDLE.get(layout.schedule, 1),
        low=1 if low else 0,
        gradient_bytes=gradient,
        gathered_bytes=gathered_bytes(setup.precision, layout.zero, stack.gathers_low),
        frozen_bytes=sized(1, setup.precision.network.gathered),
        optimizer_bytes=step_traffic(
            setup.precision, setup.optimizer.copies, 2 if pure else 4, setup.optimizer.moved(setup.form)
        ),
        host=host_of(setup),
        works=setup.optimizer.works,
        works_on_tables=0 if setup.optimizer.only_matrices else 1,
        exchanges=1 if layout.ulysses else 0,
        etp=layout.etp,
        expert_load=layout.expert_load,
        gathers_adapters=_units(_has_units_of_adapters(setup), layout.zero),
        adapters_exchange=1 if stack.adapters_apart else 0,
        gathers_modules=_units(setup.framework.unit_of_module, layout.zero),
        elementary=1 if stack.eager and setup.implementation.norms == "reference" else 0,
        looped=1 if setup.implementation.looped else 0,
        stacked=1 if setup.implementation.looped in STACKED else 0,
        unrouted=1 if setup.implementation.unrouted else 0,
        wide_stream=where(layout.zero >= 3, 0, 1 if setup.precision.network.autocast else 0),
        frozen_casts=where(layout.zero >= 3, 0, casts_of_frozen(setup.layers_in)),
        **_parts_of_loss(model, setup),
        target=layout.target,
        layers_before=before,
        layers_last=last,
        images=layout.images,
        tower_tokens=tower_tokens,
        image_tokens=image_tokens,
    )


def _parts_of_loss(model: Model, setup: Setup) -> dict[str, Number]:
    """Return what the step model knows of a loss in parts that are recomputed; nothing of any other."""
    form = LOSSES.get(setup.implementation.loss)
    if form is None or form.parts is None or form.early:
        return {}
    layout, network = setup.layout, setup.precision.network
    tokens = layout.sequences * (where(layout.target > 0, layout.target, layout.seq) // layout.cp)
    head = head_of(setup.trained(model))
    copied, back = copied_bytes(
        sized(1, network.param), sized(1, network.compute), head is None or head.learning.trained
    )
    parts = ceil_div(tokens, form.parts(tokens, model.logits, model.hidden))
    alone = _units(not model.tied and setup.framework.unit_of_module, layout.zero)
    return {
        "loss_parts": parts,
        "head_copied": copied,
        "head_copied_back": back,
        "head_gathers": alone * 2 * (parts - 1),
    }


def casts_of_frozen(layers: Precision) -> Number:
    """Return the bytes moved per frozen weight that autocast casts from fp32: read as stored, written for the matmul.

    Its cache holds the casts of weights that require a gradient, and of no others (pytorch/pytorch
    aten/src/ATen/autocast_mode.cpp, cached_cast)."""
    return sized(1, layers.param) + sized(1, layers.compute) if layers.autocast else 0


def host_of(setup: Setup) -> int:
    """Return which kernel updates the optimizer's states on the host, 0 if they are on the GPUs: DeepSpeed's own
    (deepspeed/ops/adam/cpu_adam.py), torch's fused one, or torch's chain of operations."""
    if "optimizer" not in setup.offload:
        return 0
    if setup.optimizer.works is not None:
        raise Refused(f"the time of {setup.optimizer.name} on a host is not modeled", "napkin memory counts its bytes")
    return FUSED_ON_HOST if setup.framework.name == "deepspeed" or setup.form == "fused" else LOOPED_ON_HOST


def _has_units_of_adapters(setup: Setup) -> Number:
    """Return whether FSDP wraps each matrix of an adapter."""
    return setup.implementation.tuning is not None and setup.framework.unit_of_adapter and setup.shards > 1


def _units(alone: Number, zero: Number) -> Number:
    """Return 1 if ZeRO-3 gathers such a part of a layer separately."""
    return where(alone, where(zero >= 3, 1, 0), 0)


def reduced_bytes(policy: Precision, usual: int) -> int:
    """Return the bytes of a gradient element as ranks reduce it. usual: of 16-bit gradients, which the software may add
    up in 32 bits first; gradients in 32 bits are reduced as they are."""
    return 4 if policy.grad == "fp32" else usual


def gathered_bytes(policy: Precision, zero: Number, low: bool) -> Number:
    """Return the bytes of a trained parameter as ranks gather it: under ZeRO-3 for a layer, else after the step. low:
    in the 8 bits of linear layers that multiply such numbers."""
    after = 1 if low and COMPUTE_BITS.get(policy.compute) == 8 else sized(1, policy.param)
    return where(zero >= 3, sized(1, policy.gathered), after)


def ends(stages: Stages) -> tuple[int, int]:
    """Return the layers of the fullest stage before the last, and of the last; (0, 0) if none are assigned by hand."""
    if not stages:
        return 0, 0
    *others, (count, layers) = stages
    return max([each for _, each in others] + [layers] * (count > 1), default=0), layers


def timed(
    model: Model,
    setup: Setup,
    stack: software.SoftwareStack,
    at: Machine,
    kernel: str,
    async_tp: bool,
    without: str = "",
) -> tuple[StepLayout, Rates]:
    """Return the layout and rates of a step; the layout's numbers may be arrays. without: a source that is held out."""
    layout = setup.layout
    known = shipped.constants(without)
    used = names(at, stack, kernel, "rdma", async_tp, "", setup.precision.network.autocast, known)
    reached = rates(
        picker(known, used),
        at,
        early_of(stack),
        setup.precision.state in ("bf16", "fp16"),
        (layout.zero == 3) & (layout.gpus > 1),
    )
    return plan_of(model, setup, stack, at.bits < 16, kernel), reached


def newer_kernel(
    stack: software.SoftwareStack, kernel: str, at: Machine, setup: Setup, without: str = ""
) -> tuple[Number, Number] | None:
    """Return the share of the peak of the attention kernel that a newer release of the software runs, and of its small
    heads; None if its kernel is known."""
    other = stack.newer_kernel(kernel, at.generation)
    if not other:
        return None
    known = shipped.constants(without)
    used = names(at, stack, other, "rdma", False, "", setup.precision.network.autocast, known)
    newer = rates(picker(known, used), at, early_of(stack), False, False)
    return newer.attention, newer.small_head


def slots_unstated(at: Machine, hardware: Hardware, gpus: Number) -> bool:
    """Return whether GPUs are joined by slots of a board of which nothing is stated."""
    return bool(at.staged) and gpus > 1 and not is_given(hardware, "link_bandwidth")


def asked(
    model: Model,
    setup: Setup,
    hardware: Hardware,
    stack_name: str,
    attention: str = "",
    async_tp: bool = False,
    factor: float = 1.0,
    without: str = "",
) -> StepPrediction:
    """Return everything needed to predict one step. `factor`: ratio of the user's own step times to the predictions,
    from `napkin calibrate`. attention: the kernel that is stated. without: a source of the evidence to hold out."""
    stack = software.stack(stack_name)
    layout = setup.layout
    at = machine(hardware, setup.compute)
    kernel = stack.runs(attention, at.generation)
    newer = newer_kernel(stack, kernel, at, setup, without)
    plan, reached = timed(model, setup, stack, at, kernel, async_tp, without)
    params = sum(
        count * sum(w.count for w in weights_of(layer.operations))
        for s in model.stacks
        for _, count, layer in s.kinds()
    )
    place = point(
        at.generation,
        stack.family,
        bool(model.experts),
        int(at.bits),
        params + model.hidden * model.vocabulary,
        int(layout.seq),
        int(layout.gpus),
    )
    dtype = peak_name(setup.compute)
    peak = hardware.term(f"peak/{dtype}", "peak", "FLOP/s/GPU")
    if factor != 1.0:
        reached = replace(reached, stack=reached.stack * factor)
    return StepPrediction(
        setup.passes(model),
        plan,
        reached,
        stack,
        kernel,
        place,
        peak,
        factor,
        without,
        setup.tunes,
        slots=slots_unstated(at, hardware, layout.gpus),
        newer=newer,
    )


def laid_out(
    prediction: StepPrediction, model: Model, setup: Setup, hardware: Hardware, plan: StepLayout, reached: Rates
) -> StepPrediction:
    """Return the prediction of a step in another layout, of which plan and rates are known."""
    gpus = setup.layout.gpus
    return replace(
        prediction,
        passes=setup.passes(model),
        plan=plan,
        rates=reached,
        at=replace(prediction.at, gpus=math.log(gpus)),
        slots=slots_unstated(machine(hardware, setup.compute), hardware, gpus),
    )


def with_profile(reached: Rates, hardware: Hardware, profile: Profile, compute: str) -> tuple[Rates, list[str]]:
    """Return the rates with constants replaced by measurements of `napkin bench`, and what was replaced."""
    measured = measured_shares(hardware, profile, compute, int(reached.units), reached.waves, reached.half_depth)
    changes: dict[str, Number] = dict(measured.shares)
    if "bus" in changes:
        changes["tensor_latency"] = measured.latency
    return replace(reached, **changes), measured.said
