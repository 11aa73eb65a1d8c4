"""How the work of a fine-tuning row is divided: degrees, batch, lengths, and the steps of its run."""

from __future__ import annotations

import math
import re

from napkin.errors import NapkinError
from napkin.evidence.finetuning.lengths import RowLengths, lengths_of
from napkin.evidence.finetuning.software import UNDIVIDED, trainer_of
from napkin.evidence.rows.fields import context_ranks
from napkin.evidence.rows.recomputation import recomputation, share_of_layers
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.setups import schedule_of
from napkin.evidence.software.scripts import scripts_named
from napkin.record import replace
from napkin.training.frameworks import FRAMEWORKS
from napkin.training.layout import Layout
from napkin.training.recomputation import Recompute, recompute

DEGREES = ("tp", "pp", "cp", "ep")
SPREADS = ("auto", "balanced", "balanced_low_0", "sequential")
ON_ONE_GPU = re.compile(r"(cuda|gpu|\{ ?(''|\"\") ?:)")
"""What a device_map may be: a way to spread the layers, or a GPU for all of them (`{'': local_rank}`)."""
MOST_TOGETHER = 4
"""Sequences of a pass if a row says nothing of them: one, to this many. Assumed."""


def _has_own_batches(stack: str) -> bool:
    """Return whether each GPU has its own micro-batches by default."""
    return stack in UNDIVIDED or scripts_named(stack).own_batches


def _gpus_of(row: RowFields) -> int:
    return row.count("hardware.count") or 1


def _degrees_of(row: RowFields) -> tuple[int, int, int, int]:
    """Return the tensor, pipeline, context and expert parallel degrees: if none is stated and the batch is of fewer
    micro-batches than there are GPUs, as many as possible of those that share one divide tensors within a node."""
    if _is_spread(row):
        stated = [name for name in DEGREES if (row.count(f"layout.{name}") or 1) > 1]
        stated += ["zero"] if row.count("layout.zero", least=0) else []
        if stated:
            raise NapkinError(f"device_map spreads the layers, with which {stated[0]} is not understood")
        return 1, _gpus_of(row) // (row.count("layout.dp") or 1), 1, 1
    tp, pp, ep = (row.count(f"layout.{name}") or 1 for name in ("tp", "pp", "ep"))
    cp, _ = context_ranks(row)
    shared = _sharing(row)
    if shared > 1:
        tp = max(one for one in range(1, _per_node(row) + 1) if shared % one == 0)
        cp = shared // tp
    return tp, pp, cp, ep


def _is_spread(row: RowFields) -> bool:
    """Return whether each process spreads the layers over several GPUs, which run one after the other: the device_map
    of transformers and accelerate (docs/source/en/usage_guides/big_modeling.md). One that names a GPU holds all layers
    there."""
    said = row.text("layout.device_map").partition(" (")[0].lower()
    if _gpus_of(row) == 1 or said in ("", "none", "false") or ON_ONE_GPU.match(said):
        return False
    if said not in SPREADS:
        raise NapkinError(f"device_map {said[:40]} is not understood")
    return True


def _per_node(row: RowFields) -> int:
    return min(row.count("hardware.per_node") or 8, _gpus_of(row))


def _sharing(row: RowFields) -> int:
    """Return the number of GPUs that share a micro-batch if the row does not state it: gpus · accumulation / batch; 1:
    none."""
    states = any(row.count(f"layout.{name}") for name in (*DEGREES, "dp"))
    if states or _has_own_batches(row.text("layout.stack").lower()):
        return 1
    batch = row.count("layout.global_batch")
    each = _gpus_of(row) * (row.count("layout.grad_accum") or 1) * (row.count("layout.micro_batch") or 1)
    return each // batch if batch and batch < each and each % batch == 0 else 1


def divisions_of(row: RowFields, layout: Layout) -> tuple[Layout, ...]:
    """Return other degrees that share a micro-batch between as many GPUs, if the row states none; other numbers of
    processes that spread the layers over their GPUs."""
    if _is_spread(row):
        gpus = 0 if row.count("layout.dp") else _gpus_of(row)
        fewer = (pp for pp in range(2, gpus) if gpus % pp == 0)
        return tuple(layout.replaced(pp=pp, dp=gpus // pp) for pp in fewer)
    shared = _sharing(row)
    ways = [one for one in range(1, _per_node(row) + 1) if shared % one == 0 and one != layout.tp]
    return tuple(layout.replaced(tp=tp, cp=shared // tp, sp=min(tp - 1, 1)) for tp in ways) if shared > 1 else ()


def layout_of(row: RowFields, rows: int) -> tuple[Layout, RowLengths]:
    """Return the layout and the lengths; rows: sequences of a sample, which a packed sequence holds as well
    (modelscope/ms-swift swift/dataset/packing.py, create_packed_idx: the sum of a pair's lengths). Refused if degrees
    are not stated, or do not divide the GPUs."""
    gpus = _gpus_of(row)
    tp, pp, cp, ep = _degrees_of(row)
    dp = row.count("layout.dp") or gpus // (tp * pp * cp)
    if dp * tp * pp * cp != gpus:
        raise NapkinError(f"its degrees do not divide {gpus} GPUs")
    micro, sums = _batch_of(row, gpus, dp)
    spread = _is_spread(row)
    trainer, stack = trainer_of(row), row.text("layout.stack").lower()
    each = micro * sums * dp
    lengths = lengths_of(row, micro, each, samples_of(row, each) / dp, stack in trainer.joins)
    if _leaves_batch_open(row):
        if gpus > 1 and not _has_own_batches(stack) and tp * pp * cp * ep == 1:
            raise NapkinError(f"how its {gpus} GPUs divide the model and the batch is not stated")
        lengths = lengths.several(MOST_TOGETHER, "the micro-batch is not stated")
    if spread:
        lengths = replace(lengths, untimed="GPUs that run one after the other are not modeled in time")
    stored = bool(row.text("method.quantized") or row.text("method.quantised"))
    usual = "full" if trainer.recomputes(row.text("layout.versions"), stored, stack) else "none"
    chunks = row.count("layout.vp") or 1
    zero = row.count("layout.zero", least=0)
    if zero is None:
        own = FRAMEWORKS[stack].zero if stack in FRAMEWORKS else 0
        zero = own or (1 if row.text("layout.distributed_optimizer") else 0)
    layout = Layout(
        seq=lengths.seq,
        micro=micro,
        rows=1 if row.flag("layout.packed") else rows,
        micro_batches=1 if spread else sums,  # no two are under way
        tp=tp,
        pp=pp,
        dp=dp,
        cp=cp,
        ep=ep,
        vp=chunks,
        sp=1 if tp > 1 and row.flag("layout.sp") is not False else 0,
        zero=zero if dp * cp > 1 or scripts_named(stack).lone_stages else 0,
        schedule=schedule_of(row, chunks),
        target=row.count("layout.target_seq") or 0,
        ulysses=context_ranks(row)[1],
        recompute=recomputed(row.text("layout.recompute") or usual),
    )
    return layout, lengths


def recomputed(words: str) -> Recompute:
    """Return what words say is recomputed: of every K-th layer, or of all. Refused for another share of the layers."""
    kind, share = recomputation(words), share_of_layers(words, 0)
    if kind or share is None:
        return recompute(kind or words, "recompute")
    period = round(1 / share)
    if not math.isclose(share * period, 1):
        raise NapkinError(f"recomputes {share:.0%} of its layers, not every K-th: not modeled")
    return recompute(f"every:{period}")


def _leaves_batch_open(row: RowFields) -> bool:
    """Return whether the sequences of a pass are not stated."""
    return not any(row.part("layout").get(name) for name in ("micro_batch", "global_batch", "batch", "local_batch"))


def _batch_of(row: RowFields, gpus: int, dp: int) -> tuple[int, int]:
    """Return the micro-batch, and how many of them a step has on each rank."""
    batch, sums = row.count("layout.global_batch"), row.count("layout.grad_accum")
    micro = row.count("layout.micro_batch")
    if micro is None and batch is not None and batch % (dp * (sums or 1)) == 0:
        micro = batch // (dp * (sums or 1)) if sums else 1
    if micro is None and batch is not None:
        raise NapkinError("the micro-batch is not stated")
    micro = micro or 1
    if batch is not None and batch < dp * micro:
        raise NapkinError(f"how its {gpus} GPUs divide a batch of {batch} is not stated")
    return micro, sums or (max(1, batch // (dp * micro)) if batch else 1)


def samples_of(row: RowFields, batch: float) -> float:
    """Return the samples of the whole run, of steps of so many; 0 where the row does not say. Where it states a rate
    and a time of the whole run, their product is how much it trained on: a count, which is the same on every
    machine."""
    stated, steps = row.number("measured.samples"), row.number("measured.steps")
    if stated or steps:
        return stated or (steps or 0.0) * batch
    rate, seconds = row.number("measured.samples_per_second"), row.number("measured.run_seconds")
    return rate * seconds if rate and seconds else 0.0


def saves_of(row: RowFields, layout: Layout) -> int:
    """Return the checkpoints of the whole run; 0 where the row does not say how many steps lie between two."""
    every = row.count("layout.save_steps")
    return int(steps_of(row, layout) // every) if every else 0


def steps_of(row: RowFields, layout: Layout) -> float:
    """Return the steps of the whole run: as stated, or by the samples (a pair is one) or the tokens that it trained on;
    0 where the row does not say."""
    stated, batch = row.number("measured.steps"), float(layout.global_samples)
    tokens = None if "tokens" in row.names("measured.derived") else row.number("measured.tokens")
    samples = row.number("measured.samples") or (0.0 if tokens else samples_of(row, batch))
    return stated or (samples / batch if samples else (tokens or 0.0) / float(layout.global_batch * layout.seq))
