"""A published training step: what is known before the run, and separately the measured quantity. A stated MFU, rate or
time never reaches the prediction."""

from __future__ import annotations

import math
import re

from napkin.evidence.rows.fields import accelerator_of, context_ranks, leaves_method_open, title_of, unread_time
from napkin.evidence.rows.networks import states_bridge
from napkin.evidence.rows.optimizers import name_of
from napkin.evidence.rows.printed import Measured, PrintedDecoder, measured, printed_decoder
from napkin.evidence.rows.recomputation import is_of_parts
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.words import FSDP, HYBRID, SCHEDULES, dispatcher_named, graphs_named, schedule_named
from napkin.evidence.software.stacks import COPIES, ONCE, STACKS
from napkin.options.training import GRADIENTS, GRAPHS, NO_OVERLAP, OVERLAPS, PARAMETERS_TOO
from napkin.record import record
from napkin.training import optimizers
from napkin.training.precision import POLICIES

UNSTATED_ACCUMULATION = 4
"""Micro-batches of a step on several GPUs if a source states neither them nor the batch; a pipeline has at least
one for each stage."""


@record
class StepRow:
    """One published training step. None: not stated.

    source             title of the page
    source_key         source of the evidence that it belongs to, "" for another one
    bridge             a bridge joins its cards
    network            byte/s per accelerator to other nodes
    exchanges          whether context-parallel ranks exchange heads for tokens
    shards             ranks that divide states under ZeRO
    recompute_stated   whether the row says anything of recomputation
    recompute_layers   share of the layers whose forward pass runs again if only some do
    recompute_matmuls  share of the matmuls that run again
    gradient_bytes     bytes of a gradient element as it is reduced, where the row itself decides
    attention          its kernel, "" for the software's own
    newer_attention    that of a later release of the software, where the row leaves the release open
    imbalance          tokens of the fullest expert-parallel rank over the mean
    hosts              the host updates the optimizer's states, by a fused kernel
    judges             whether no constant is learnt from it: it only judges the intervals
    why                what is missing for a prediction, if anything is"""

    id: str
    source: str
    source_key: str
    shape: PrintedDecoder | None
    chip: str
    gpus: int
    node: int | None
    network: float | None
    fabric: str
    bridge: bool
    seq: int
    tp: int
    pp: int
    vp: int | None
    cp: int
    exchanges: bool
    ep: int
    etp: int
    dp: int
    micro_batch: float | None
    global_batch: float | None
    sp: bool | None
    zero: int | None
    shards: int | None
    recompute: str
    recompute_stated: bool
    recompute_layers: float
    recompute_matmuls: float
    policy: str
    gradient_bytes: int | None
    stack: str
    attention: str
    newer_attention: str
    loss: str
    async_tp: bool | None
    async_ep: bool | None
    async_dp: str
    dispatcher: str
    graphs: str
    imbalance: float
    capacity: float
    rowwise: bool
    schedule: str
    optimizer: str
    hosts: bool
    measured: Measured | None
    judges: bool = False
    suspect: str = ""
    note: str = ""
    why: str = ""


def step_row(row: RowFields) -> StepRow:
    """Return a training step from its row, with defaults for what it does not state."""
    dims = printed_decoder(row)
    chip = accelerator_of(row)
    node, seq = row.count("hardware.per_node"), row.count("model.seq")
    stack, policy = row.text("layout.stack"), row.text("layout.policy") or "bf16-mixed"
    degrees, count = _degrees(row)
    zero, shards = _sharding(row, node)
    batch = _batch(row, seq, degrees["dp"], degrees["pp"], count)
    why = _missing(row, dims, seq, batch, chip)
    found = None if why == WHOLE_RUN else measured(row, dims, seq or 0, batch, count)
    if why == WHOLE_RUN:
        why = "an average over a whole run, not a step"
    elif found is None and not why:
        why = "prints no step time, rate or utilization of one GPU"
    return StepRow(
        id=row.text("id"),
        source=title_of(row),
        source_key=row.text("source.key"),
        shape=dims,
        chip=chip,
        gpus=count,
        node=node,
        network=row.positive("hardware.network"),
        fabric=row.text("hardware.fabric") or "rdma",
        bridge=states_bridge(row),
        seq=seq or 0,
        vp=row.count("layout.vp"),
        exchanges=context_ranks(row)[1],
        micro_batch=row.positive("layout.micro_batch"),
        global_batch=batch,
        sp=row.flag("layout.sp"),
        zero=zero,
        shards=shards,
        recompute=row.text("layout.recompute_kind") or ("full" if row.flag("layout.recipe_defaults") else "none"),
        recompute_stated=bool(row.text("layout.recompute")),
        recompute_layers=row.number("layout.recompute_layers", most=1) or 0.0,
        recompute_matmuls=row.number("layout.recompute_matmuls", most=1) or 0.0,
        policy=policy,
        gradient_bytes=_gradient_bytes(row, policy, stack),
        stack=stack,
        attention=row.text("layout.attention"),
        newer_attention=row.text("layout.newer_attention"),
        loss="fused" if row.flag("layout.chunked_cross_entropy") else "",
        async_tp=row.flag("layout.async_tp"),
        async_ep=row.flag("layout.async_ep"),
        async_dp=_overlap(row),
        dispatcher=dispatcher_named(row.text("layout.dispatcher")),
        graphs=graphs_named(row.text("layout.graphs")),
        etp=row.count("layout.etp") or 1,
        imbalance=row.number("layout.expert_imbalance", 1.0) or 1.0,
        capacity=row.positive("layout.capacity_factor") or 0.0,
        rowwise=row.text("layout.scaling") == "rowwise",
        schedule=schedule_named(row.text("layout.schedule")),
        optimizer=name_of(row),
        hosts=row.part("layout").get("optimizer_offload") is True,
        measured=found,
        judges=bool(row.flag("judges")),
        suspect=row.text("suspect"),
        note=row.text("note"),
        why=why,
        **degrees,
    )


def _degrees(row: RowFields) -> tuple[dict[str, int], int]:
    """Return tp, pp, cp, ep and dp, and the number of accelerators: dp fills what the others leave of it."""
    tp, pp = row.count("layout.tp") or 1, row.count("layout.pp") or 1
    (cp, _), ep = context_ranks(row), row.count("layout.ep") or 1
    stated = row.count("layout.dp")
    count = row.count("hardware.count") or tp * pp * cp * (stated or 1)
    if count % (tp * pp * cp):
        raise row.wrong("layout", f"tp · pp · cp = {tp * pp * cp:,} does not divide the {count:,} accelerators")
    dp = stated if stated and tp * pp * cp * stated == count else max(1, count // (tp * pp * cp))
    return {"tp": tp, "pp": pp, "cp": cp, "ep": ep, "dp": dp}, count


def _sharding(row: RowFields, node: int | None) -> tuple[int | None, int | None]:
    """Return the ZeRO stage and the ranks that divide states under it; None if the row does not say."""
    fsdp, shards = fsdp_of(row), row.count("layout.fsdp_shards")
    zero = row.count("layout.zero", 0, 3)
    if zero is None and row.count("layout.fsdp_group"):
        zero = 3
    if zero is None and fsdp in FSDP:
        zero = FSDP[fsdp]
    if shards == 1:
        zero, shards = 0, None
    if fsdp in HYBRID and shards is None:
        shards = node or 8
    return zero, shards


def fsdp_of(row: RowFields) -> str:
    """Return the FSDP sharding that a row states, in lower case; "" if none. How modules are wrapped, which Hugging
    Face's option says next to it, is passed over."""
    words = re.sub(r"[-_ ]+", "_", row.text("layout.fsdp").strip().lower()).removesuffix("_auto_wrap")
    return re.sub(r"^zero_(?:stage_)?(?=\d$)", "zero", words)


def _batch(row: RowFields, seq: int | None, dp: int, pp: int, count: int) -> float | None:
    """Return the sequences of a global batch, from its tokens or from the micro-batch if the row does not state
    them."""
    batch, tokens, micro = (row.positive(f"layout.{name}") for name in ("global_batch", "batch_tokens", "micro_batch"))
    if batch is None and tokens and seq:
        batch = tokens / seq
    if batch is None and micro is not None:
        unstated = 1 if count == 1 else max(UNSTATED_ACCUMULATION, pp)
        batch = micro * dp * (row.count("layout.grad_accum") or unstated)
    return batch


def _overlap(row: RowFields) -> str:
    """Return what of data parallelism a row says to overlap with compute (options/training.py, OVERLAPS), also in the
    words of Megatron-LM's options; "" if it says nothing."""
    stated = row.text("layout.async_dp").strip().lower()
    if stated:
        return stated
    gradients, parameters = row.flag("layout.overlap_grad_reduce"), row.flag("layout.overlap_param_gather")
    if gradients is None and parameters is None:
        return ""
    return PARAMETERS_TOO if parameters else GRADIENTS if gradients else NO_OVERLAP


def _gradient_bytes(row: RowFields, policy: str, stack: str) -> int | None:
    """Return the bytes of a gradient element as it is reduced, where the row decides; None: as the stack does it."""
    stated = row.text("layout.gradient_dtype")
    if row.text("layout.fsdp_mixed_precision") == "PURE" or policy == "bf16-pure" or stated in ("bf16", "fp16"):
        return 2
    wide = stated == "fp32" and stack in STACKS
    return STACKS[stack].fp32_gradient_bytes if wide else None


WHOLE_RUN = "whole"
FABRICS = ("rdma", "omnipath")
"""Kinds of network between nodes, each with its own constant."""
TIMED_KERNELS = ("flash", "flash1", "flash2", "cudnn", "efficient", "eager")
"""Kernels of attention that rows name; of `flash` the software decides which, where it runs one."""


def _missing(row: RowFields, dims: PrintedDecoder | None, seq: int | None, batch: float | None, chip: str) -> str:
    """Return why a step cannot be predicted; WHOLE_RUN for averages over whole runs."""
    if row.flag("layout.whole_run"):
        return WHOLE_RUN
    if row.text("layout.method") in ("lora", "qlora"):
        return f"trains adapters ({row.text('layout.method')}), not all weights"
    if dims is None:
        return "the number of layers is not stated"
    if seq is None:
        return "the sequence length is not stated"
    if batch is None:
        return "the batch is not stated"
    if not chip:
        return "the accelerator is not stated"
    if row.count("hardware.count") is None and row.count("layout.dp") is None:
        return "the number of accelerators is not stated"
    policy, kind = row.text("layout.policy"), row.text("layout.recompute_kind")
    if policy and policy not in POLICIES:
        return f"the policy {policy[:40]} is not known"
    if kind not in ("", "none", "selective", "full", "other") and not is_of_parts(kind):
        return f"the recomputation {kind[:40]} is not known"
    fsdp, optimizer = fsdp_of(row), name_of(row)
    if fsdp and fsdp not in FSDP:
        return f"layout.fsdp: {fsdp[:40]} is not known"
    if optimizer and optimizer not in optimizers.OPTIMIZERS:
        return f"the optimizer {optimizer[:40]} is not known"
    if (graphs := graphs_named(row.text("layout.graphs"))) and graphs not in GRAPHS:
        return f"layout.graphs: {graphs[:40]} is not known"
    if (overlap := _overlap(row)) and overlap not in OVERLAPS:
        return f"layout.async_dp: {overlap[:40]} is not known"
    if (dispatcher := dispatcher_named(row.text("layout.dispatcher"))) not in ("", ONCE, COPIES):
        return f"layout.dispatcher: {dispatcher[:40]} is not known"
    schedule = schedule_named(row.text("layout.schedule"))
    if schedule and schedule not in SCHEDULES.values():
        return f"the pipeline's schedule {schedule[:40]} is not modeled"
    if schedule == "zero-bubble" and (row.count("layout.vp") or 1) > 1:
        return "the pipeline's schedule with several chunks and zero bubble is not modeled"
    if why := unread_time(row) or leaves_method_open(row):
        return why
    sharded, gpus = row.count("layout.zero", 0, 3) == 3 or fsdp, row.count("hardware.count") or 1
    stated = [row.count(f"layout.{name}") for name in ("dp", "pp", "cp")]
    covered = gpus == 1 or math.prod(one or 1 for one in stated) == gpus
    if not sharded and row.count("layout.tp") is None and not covered:
        return "the layout is not stated"
    if row.text("hardware.fabric") == "ethernet":
        return "the rate of the Ethernet between its nodes is not stated"
    if row.text("hardware.fabric") not in ("", *FABRICS):
        return f"the fabric {row.text('hardware.fabric')[:40]} is not known"
    if row.text("layout.attention") not in ("", *TIMED_KERNELS):
        return f"the attention {row.text('layout.attention')[:40]} is not known"
    return ""
