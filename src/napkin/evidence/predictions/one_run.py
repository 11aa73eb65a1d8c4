"""The predicted step of one run: the step model with the rates of its software and machine, and an interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from napkin.elementwise import Number, holds_for_all, is_zero
from napkin.evidence.figures.host_updates import UPDATE_SPREAD
from napkin.evidence.intervals.steps import (
    HOST_LINK_SPREAD,
    HOST_SPREAD,
    LIBRARY_SPREAD,
    NETWORK_SPREAD,
    SLOT_SPREAD,
    UNKNOWN_SPREAD,
    RunPoint,
    SeenStep,
    point,
    widened,
)
from napkin.evidence.predictions.step_inputs import kernel_under_mask, plan_of
from napkin.evidence.rates import constants as shipped
from napkin.evidence.rates.machines import OPEN_LIBRARIES, Machine, is_given, machine
from napkin.evidence.rates.of_step import (
    PEER_BUS,
    STAGED_BUS,
    SYNCHRONOUS,
    Asynchronous,
    constant_names,
    early_of,
    on_host,
    picker,
    rates,
)
from napkin.evidence.software import stacks
from napkin.footprint.local_weights import weights_of
from napkin.inputs.hardware import Hardware
from napkin.inputs.peaks import peak_name
from napkin.operations.model import Model
from napkin.record import record, replace
from napkin.term import Term
from napkin.timing.rates import Rates
from napkin.timing.step import OPTIMIZER, StepTime, exposed_share, step_of_passes
from napkin.timing.step_layout import StepLayout
from napkin.training.layout import Layout
from napkin.training.setup import Setup
from napkin.training.tasks import Passes

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from napkin.inputs.profile import Profile


@record
class StepPrediction:
    """The passes of a micro-batch, and plan and rates of the step. kernel: of attention; at: the run's point in the
    evidence; without: a held-out source; slots: whether GPUs are joined by slots of a board of which nothing is stated;
    network: whether they are joined by a network between nodes of which nothing is; newer: share of the peak of the
    attention kernel that another release runs, and of its small heads, if the release is not stated; copies: the time
    of an all-to-all of tokens' copies relative to bytes/bandwidth, if that may run or a dispatcher's own kernels;
    lowest: the share of the peak of 16-bit matmuls as predicted, and the rates at the lowest voltage, if power limits
    the clock and no step measured the accelerator (rates/constants.py); library: the share of the peak of 16-bit
    matmuls as predicted, if which library runs them differs by release."""

    passes: Passes
    plan: StepLayout
    rates: Rates
    stack: stacks.SoftwareStack
    kernel: str
    at: RunPoint
    peak: Term
    factor: float = 1.0
    without: str = ""
    slots: bool = False
    network: bool = False
    newer: tuple[Number, Number] | None = None
    lowest: tuple[Number, Rates] | None = None
    copies: Number | None = None
    library: Number | None = None

    def step(self) -> StepTime:
        """Return the time of one step, the same for every command."""
        return step_of_passes(self.passes, self.plan, self.rates)

    @property
    def evidence(self) -> str:
        """Return the class of evidence of the interval (intervals/steps.py)."""
        return shipped.class_of_evidence(self.at, self.without)

    def of_evidence(self, level: float, exposed: float = 0.0) -> tuple[float, Sequence[tuple[float, SeenStep]]]:
        """Return half the width by the errors of published steps alone. exposed: the share of the step that
        data-parallel communication takes in addition to the compute."""
        return shipped.half_width(self.at, level, self.without, exposed)

    def half_width(
        self, level: float, named: bool = True, found: Term | None = None
    ) -> tuple[float, Sequence[tuple[float, SeenStep]]]:
        """Return half the interval's width in ln t. found: the time of the step, if it is known.

        Software that is not named, or not known, adds its spread; a factor from the user's own steps removes the shared
        part."""
        time = found or self.step().time
        half, close = self.of_evidence(level, float(exposed_share(time)))
        wide = shipped.deviations(level)
        half = self._widened(half, wide, time)
        if self.factor != 1.0:
            return half * shipped.near_ratio(), close
        guessed = not named or self.stack.name == stacks.UNKNOWN
        return (math.hypot(half, wide * UNKNOWN_SPREAD) if guessed else half), close

    def _widened(self, half: float, wide: float, time: Term) -> float:
        """Return half the interval's width with what no published step shows, `wide` σ from what is predicted."""
        seconds, reached = float(time.value), self.rates

        def over(at: Rates) -> float:
            return math.log(self._seconds(at) / seconds)

        def slower(rate: Number, spread: float) -> Number:
            return rate * math.exp(-wide * spread)

        names = "host slots kernel launches network clock moved dispatch library"
        found = dict.fromkeys(names.split(), 0.0)
        if self.plan.host:
            updated = sum(float(part.value) for part in time.parts if part.name == OPTIMIZER)
            found["host"] = wide * UPDATE_SPREAD * updated / seconds
        if self.plan.moves:
            found["moved"] = over(replace(reached, host_link=slower(reached.host_link, HOST_LINK_SPREAD)))
        if self.slots and reached.bus in (STAGED_BUS, PEER_BUS):  # else a profile measured them
            found["slots"] = over(replace(reached, bus=slower(reached.bus, SLOT_SPREAD)))
        if self.network:
            found["network"] = over(replace(reached, network=slower(reached.network, NETWORK_SPREAD)))
        if self.newer is not None:
            found["kernel"] = over(replace(reached, attention=self.newer[0], small_head=self.newer[1]))
        if self.copies is not None:
            apart = replace(self.plan, sends_copies=1), replace(reached, dispatch=self.copies)
            found["dispatch"] = math.log(float(step_of_passes(self.passes, *apart).time.value) / seconds)
        if self.stack.eager or not is_zero(reached.host_chunk):
            found["launches"] = over(on_host(reached, math.exp(wide * HOST_SPREAD)))
        if self.library is not None and reached.matmul_wide == self.library:  # else a profile measured it
            matmul, wider = (slower(rate, LIBRARY_SPREAD) for rate in (reached.matmul, reached.matmul_wide))
            found["library"] = over(replace(reached, matmul=matmul, matmul_wide=wider))
        if self.lowest is not None and reached.matmul_wide == self.lowest[0]:  # else a profile measured it
            low = self.lowest[1]
            found["clock"] = over(
                replace(reached, matmul=low.matmul, matmul_wide=low.matmul_wide, attention=low.attention)
            )
        return widened(half, **found)

    def _seconds(self, at: Rates) -> float:
        """Return the seconds of a step at other rates."""
        return float(step_of_passes(self.passes, self.plan, at).time.value)


def timed(
    model: Model,
    setup: Setup,
    stack: stacks.SoftwareStack,
    at: Machine,
    kernel: str,
    asynchronous: Asynchronous,
    without: str = "",
) -> tuple[StepLayout, Rates]:
    """Return the layout and rates of a step; the layout's numbers may be arrays. without: a source that is held out."""
    reached = _reached(shipped.constants(without), setup, stack, at, kernel, asynchronous)
    return plan_of(model, setup, stack, at, kernel), reached


def _reached(
    known: Mapping[str, float],
    setup: Setup,
    stack: stacks.SoftwareStack,
    at: Machine,
    kernel: str,
    asynchronous: Asynchronous,
) -> Rates:
    """Return the rates of a step by these constants; the layout's numbers may be arrays."""
    layout = setup.layout
    used = constant_names(at, stack, kernel, "rdma", asynchronous, "", setup.precision.network.autocast, known)
    return rates(
        picker(known, used),
        at,
        early_of(stack, asynchronous.data),
        setup.precision.state in ("bf16", "fp16"),
        (layout.zero == 3) & (layout.gpus > 1) & stack.copies_shards,
    )


def newer_kernel(
    stack: stacks.SoftwareStack, kernel: str, at: Machine, setup: Setup, without: str = ""
) -> tuple[Number, Number] | None:
    """Return the share of the peak of the attention kernel that a newer release of the software runs, and of its small
    heads; None if its kernel is known."""
    other = stack.newer_kernel(kernel, at.generation)
    if not other:
        return None
    newer = _reached(shipped.constants(without), setup, stack, at, other, Asynchronous())
    return newer.attention, newer.small_head


def dispatch_of_copies(
    stack: stacks.SoftwareStack, model: Model, at: Machine, setup: Setup, without: str = ""
) -> Number | None:
    """Return the time of an all-to-all of tokens' copies relative to bytes/bandwidth; None if no rank exchanges tokens,
    or which dispatcher does is known."""
    if not (stack.open_dispatcher and model.experts) or holds_for_all(setup.layout.ep == 1):
        return None
    apart = replace(stack, sends_copies=True)
    return _reached(shipped.constants(without), setup, apart, at, "", Asynchronous()).dispatch


def slots_unstated(at: Machine, hardware: Hardware, gpus: Number) -> bool:
    """Return whether GPUs are joined by slots of a board of which nothing is stated."""
    return bool(at.slots) and gpus > 1 and not is_given(hardware, "link_bandwidth")


def network_unstated(at: Machine, hardware: Hardware, gpus: Number) -> bool:
    """Return whether GPUs of several nodes are joined by a network of which nothing is stated."""
    return bool(at.leaves_node(gpus)) and not is_given(hardware, "nic_bandwidth")


def asked(
    model: Model,
    setup: Setup,
    hardware: Hardware,
    stack_name: str,
    attention: str = "",
    asynchronous: Asynchronous = SYNCHRONOUS,
    factor: float = 1.0,
    without: str = "",
    dispatcher: str = "",
) -> StepPrediction:
    """Return everything needed to predict one step. `factor`: ratio of the user's own step times to the predictions,
    from `napkin calibrate`. attention: the kernel that is stated; dispatcher: how tokens reach their experts, if that
    is. without: a source of the evidence to hold out."""
    stack = stacks.dispatched(stack_name, dispatcher)
    layout = setup.layout
    at = machine(hardware, setup.compute)
    kernel = kernel_under_mask(stack.runs(attention, at.generation), setup)
    newer = newer_kernel(stack, kernel, at, setup, without)
    plan, reached = timed(model, setup, stack, at, kernel, asynchronous, without)
    place = _place(model, layout, at, stack)
    dtype = peak_name(setup.compute)
    peak = hardware.term(f"peak/{dtype}", "peak", "FLOP/s/GPU")
    lowest = None
    if shipped.may_be_at_lowest_voltage(at, without):
        slower = shipped.at_lowest_voltage(shipped.constants(without))
        lowest = reached.matmul_wide, _reached(slower, setup, stack, at, kernel, asynchronous)
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
        slots=slots_unstated(at, hardware, layout.gpus),
        network=network_unstated(at, hardware, layout.gpus),
        newer=newer,
        lowest=lowest,
        copies=dispatch_of_copies(stack, model, at, setup, without),
        library=reached.matmul_wide if stack.eager and at.generation in OPEN_LIBRARIES else None,
    )


def _place(model: Model, layout: Layout, at: Machine, stack: stacks.SoftwareStack) -> RunPoint:
    """Return the point of a run in the evidence."""
    params = sum(
        count * sum(w.count for w in weights_of(layer.operations))
        for s in model.stacks
        for _, count, layer in s.kinds()
    )
    return point(
        at.generation,
        stack.family,
        bool(model.experts),
        int(at.bits),
        params + model.hidden * model.vocabulary,
        int(layout.seq),
        int(layout.gpus),
    )


def laid_out(
    prediction: StepPrediction, model: Model, setup: Setup, hardware: Hardware, plan: StepLayout, reached: Rates
) -> StepPrediction:
    """Return the prediction of a step in another layout, of which plan and rates are known."""
    gpus, at = setup.layout.gpus, machine(hardware, setup.compute)
    return replace(
        prediction,
        passes=setup.passes(model),
        plan=plan,
        rates=reached,
        at=replace(prediction.at, gpus=math.log(gpus)),
        slots=slots_unstated(at, hardware, gpus),
        network=network_unstated(at, hardware, gpus),
    )


def with_profile(reached: Rates, hardware: Hardware, profile: Profile, compute: str) -> tuple[Rates, list[str]]:
    """Return the rates with constants replaced by measurements of `napkin bench`, and what was replaced."""
    from napkin.evidence.rates.profile_shares import measured_shares

    measured = measured_shares(hardware, profile, compute, int(reached.units), reached.waves, reached.half_depth)
    changes: dict[str, Number] = dict(measured.shares)
    if "bus" in changes:
        changes["tensor_latency"] = measured.latency
    return replace(reached, **changes), measured.said
