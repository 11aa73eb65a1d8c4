"""MFU, HFU and the rate of tokens of a predicted step, from the exact count of the model's FLOPs."""

from __future__ import annotations

from napkin.counting import flops
from napkin.evidence.single import recomputed_share
from napkin.operations.model import Model
from napkin.term import TRUE, Term, add, constant, divide, leaf, multiply, subtract
from napkin.timing.step import StepTime
from napkin.training.setup import Setup

PATHS = ("mfu", "mfu/exact", "hfu", "tokens_per_second_per_gpu")
"""What `utilization_terms` returns, by path."""


def utilization_terms(model: Model, setup: Setup, peak: Term, found: StepTime) -> list[Term]:
    """Return mfu, mfu/exact (attention's allowed pairs only), hfu and tokens_per_second_per_gpu."""
    layout = setup.layout
    passes = setup.passes(model)
    trained = passes.trained
    over = flops.of_layout(trained, layout, layout.global_batch)
    needed = setup.needed(model) if setup.wakes else passes
    counted = flops.step(needed.trained, over)
    done = flops.of_passes(needed, lambda one, times: flops.of_layout(one, layout, times * layout.global_batch))
    gpus = leaf("gpus", layout.gpus, "GPU", TRUE)
    possible = multiply("flops/possible", peak, gpus, found.time)
    mfu = divide("mfu", done, possible)
    masked = subtract("flops/attention/masked", counted["flops/attention"], counted["flops/attention/exact"])
    exact = divide("mfu/exact", subtract("flops/exact", done, masked), possible)
    more = [_recomputed(trained, setup, over)]
    if setup.wakes:
        more.append(subtract("flops/passed_on", flops.passes("flops/run", trained, over), counted["flops/total"]))
    again = divide("hfu/recomputed", flops.summed("flops/again", more), possible)
    tokens = leaf("tokens", layout.global_batch * layout.seq, "token", TRUE)
    rate = divide("tokens_per_second_per_gpu", tokens, found.time, gpus)
    return [mfu, exact, add("hfu", mfu, again), rate]


def _recomputed(model: Model, setup: Setup, over: flops.Works) -> Term:
    """Return the FLOPs of the forward passes that run again: the blocks' without the head, or only attention's core."""
    share, core = recomputed_share(setup, model)
    if core:
        return flops.summed("flops/recomputed", list(flops.by_operation(model, over, only=flops.is_attention).values()))
    tokens = setup.layout.global_batch * (setup.layout.target or setup.layout.seq)
    head = leaf("flops/head", 2 * tokens * model.hidden * model.logits, "FLOP", TRUE, "2·T·h·V")
    again = list(flops.by_operation(model, over, only=lambda op: op.learning.runs).values())
    blocks = add(
        "flops/blocks", flops.summed("flops/learning", again), multiply("flops/less_head", constant("-1", -1), head)
    )
    return multiply("flops/recomputed", leaf("recomputed", share, "1", TRUE), blocks)
