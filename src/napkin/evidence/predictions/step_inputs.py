"""The layout of the step model from the user's options. No numpy."""

from __future__ import annotations

import math

from napkin.autograd.tensors import sized
from napkin.elementwise import Number, ceil_div, minimum, where
from napkin.errors import Refused
from napkin.evidence.rates.machines import Machine
from napkin.evidence.software import stacks
from napkin.formats import COMPUTE_BITS
from napkin.operations.implementations import ALWAYS, CUDNN, EAGER, EFFICIENT, FLASH, STACKED
from napkin.operations.model import Model
from napkin.operations.queries import head_of
from napkin.options.training import CORE_ATTENTION
from napkin.timing.optimizer import FUSED_ON_HOST, LOOPED_ON_HOST
from napkin.timing.step_layout import IDLE, StepLayout
from napkin.training.layout import Layout, Stages
from napkin.training.optimizer_step import step_traffic
from napkin.training.precision import Precision
from napkin.training.recomputation import OPERATIONS, SECOND_LINEARS
from napkin.training.setup import Setup


def recomputed_share(setup: Setup, model: Model) -> tuple[float, bool]:
    """Return the share of the layers whose forward runs again, and whether only attention's core does."""
    kind, k = setup.layout.recompute.kind, setup.layout.recompute.k
    if kind == "selective":
        return 0.0, CORE_ATTENTION in setup.layout.recompute.modules
    if kind == "every":  # blocks 0, K, 2K, …
        return math.ceil(model.depth / k) / model.depth, False
    return (1.0, False) if kind in ("full", "group") else (0.0, False)


def reads_mask(setup: Setup) -> bool:
    """Return whether torch's attention always gets an explicit mask."""
    return setup.implementation.kernel_mask == ALWAYS


def kernel_under_mask(kernel: str, setup: Setup) -> str:
    """Return the attention kernel that runs where `kernel` is asked for: torch's flash kernel takes no mask, and leaves
    such steps to the memory-efficient one; cuDNN's takes it (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp,
    check_for_attn_mask in can_use_flash_attention alone)."""
    return EFFICIENT if kernel == FLASH and reads_mask(setup) else kernel


def plan_of(model: Model, setup: Setup, stack: stacks.SoftwareStack, at: Machine, kernel: str) -> StepLayout:
    """Return the step model's plan of a setup on a machine."""
    layout: Layout = setup.layout
    before, last = ends(layout.stages)
    lengths = model.vision.lengths(layout.image_tokens) if model.vision is not None else None
    _, tower_tokens, image_tokens = lengths or (1, 1, 1)
    return StepLayout(
        sequence=layout.seq,
        uneven=layout.uneven,
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
        parts_recomputed=layout.recompute.apart,
        **_recomputed(model, setup),
        gathers_inputs=where(layout.sp, 1 if stack.gathers_inputs else 0, 0),
        splits_boundary=where(layout.sp, 0, 1 if stack.splits_boundary else 0),
        flash=0 if kernel == EAGER else 1,
        masked=1 if kernel in (EFFICIENT, CUDNN) and reads_mask(setup) else 0,
        idle=IDLE.get(layout.schedule, 1),
        low=1 if at.bits < 16 else 0,
        **_bytes_of_parameters(setup, stack),
        host=host_of(setup),
        **_moved(setup, stack),
        works=setup.optimizer.works,
        works_on_tables=0 if setup.optimizer.only_matrices else 1,
        exchanges=1 if layout.ulysses else 0,
        etp=layout.etp,
        expert_load=layout.expert_load,
        sends_copies=1 if stack.sends_copies else 0,
        one_hot=1 if stack.masks_experts and layout.capacity else 0,
        shared_tile=0 if layout.capacity else stack.tile_of_experts(at.generation),
        lanes=at.lanes,
        **_units(setup),
        reduces_tensors=1 if stack.reduces_tensors else 0,
        gathers_again=where(layout.zero >= 3, 1, 0),
        elementary=1 if stack.eager and setup.implementation.norms == "reference" else 0,
        looped=1 if setup.implementation.looped else 0,
        stacked=1 if setup.implementation.looped in STACKED else 0,
        unrouted=1 if setup.implementation.unrouted else 0,
        branched=1 if setup.implementation.branched else 0,
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


def _recomputed(model: Model, setup: Setup) -> dict[str, Number]:
    """Return what the step model knows of recomputation: shares of the layers and of operations in them."""
    share, core = recomputed_share(setup, model)
    operations = setup.layout.recompute.kind == OPERATIONS
    return {
        "layers_recomputed": share,
        "attention_recomputed": 1 if core else 0,
        "products_recomputed": SECOND_LINEARS if operations else 0,
        "experts_recomputed": 1 if operations else 0,
    }


def _bytes_of_parameters(setup: Setup, stack: stacks.SoftwareStack) -> dict[str, Number]:
    """Return the bytes of a parameter's gradient, gathered weight and optimizer step."""
    precision, optimizer = setup.precision, setup.optimizer
    pure = precision.state in ("bf16", "fp16")
    return {
        "gradient_bytes": 2 if pure else reduced_bytes(precision, stack.gradient_bytes),
        "gathered_bytes": gathered_bytes(precision, setup.layout.zero, stack.gathers_low),
        "frozen_bytes": sized(1, precision.network.gathered),
        "optimizer_bytes": step_traffic(precision, optimizer.copies, 2 if pure else 4, optimizer.moved(setup.form)),
    }


def _units(setup: Setup) -> dict[str, Number]:
    """Return which parts of a layer FSDP gathers separately."""
    framework, zero = setup.framework, setup.layout.zero
    return {
        "gathers_layers": gathered_apart(framework.unit_of_layer and setup.shards > 1, zero, 2),
        "gathers_adapters": gathered_apart(_has_units_of_adapters(setup), zero, 2),
        "gathers_modules": gathered_apart(framework.unit_of_module, zero, 3),
        "gathers_late": gathered_apart(
            framework.gathers_late and framework.unit_of_layer and setup.shards > 1, zero, 3
        ),
    }


def _parts_of_loss(model: Model, setup: Setup) -> dict[str, Number]:
    """Return what the step model knows of a loss in parts that are recomputed; nothing of any other."""
    if not setup.implementation.loss:
        return {}
    from napkin.operations.losses import LOSSES, copied_bytes

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
    alone = gathered_apart(not setup.held(model).tied and setup.framework.unit_of_module, layout.zero, 3)
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


def _moved(setup: Setup, stack: stacks.SoftwareStack) -> dict[str, Number]:
    """Return what a step moves between a GPU and its host, in bytes of a parameter and of its gradient, and whether the
    inputs of layers that run again wait there."""
    away = set(setup.offload)
    return {
        "fetched_bytes": sized(1, setup.precision.param) if "parameters" in away else 0,
        "returned_bytes": reduced_bytes(setup.precision, stack.gradient_bytes) if updates_on_host(setup) else 0,
        "stashes": 1 if "activations" in away else 0,
    }


def updates_on_host(setup: Setup) -> bool:
    """Return whether the host updates the parameters: it has the optimizer's states, or the parameters themselves."""
    return bool({"optimizer", "parameters"} & set(setup.offload))


def host_of(setup: Setup) -> int:
    """Return which kernel updates the optimizer's states on the host, 0 if they are on the GPUs: DeepSpeed's own
    (deepspeed/ops/adam/cpu_adam.py), torch's fused one, or torch's chain of operations."""
    if not updates_on_host(setup):
        return 0
    if setup.optimizer.works is not None:
        raise Refused(f"the time of {setup.optimizer.name} on a host is not modeled", "napkin memory counts its bytes")
    return FUSED_ON_HOST if setup.framework.host_step or setup.form == "fused" else LOOPED_ON_HOST


def _has_units_of_adapters(setup: Setup) -> Number:
    """Return whether FSDP wraps each matrix of an adapter."""
    return setup.implementation.tuning is not None and setup.framework.unit_of_adapter and setup.shards > 1


def gathered_apart(alone: Number, zero: Number, least: int) -> Number:
    """Return 1 if such a part of a layer is gathered separately, which it is from that stage of ZeRO on: units of FSDP
    also where they stay whole until the gradients are reduced (SHARD_GRAD_OP)."""
    return where(alone, where(zero >= least, 1, 0), 0)


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
