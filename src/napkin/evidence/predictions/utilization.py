"""MFU, HFU and the token rate of a predicted step, from the exact count of the model's FLOPs."""

from __future__ import annotations

from napkin.counting import flops
from napkin.counting.utilization import recomputed
from napkin.operations.model import Model
from napkin.term import TRUE, Term, add, divide, leaf, multiply, subtract
from napkin.timing.step import StepTime
from napkin.training.setup import Setup

PATHS = ("mfu", "mfu/exact", "hfu", "tokens_per_second_per_gpu")
"""What `utilization_terms` returns, by path."""


def utilization_terms(model: Model, setup: Setup, peak: Term, found: StepTime) -> list[Term]:
    """Return mfu, mfu/exact (attention's allowed pairs only), hfu and tokens_per_second_per_gpu. Work that runs only
    because of recomputation counts towards HFU, never MFU."""
    layout = setup.layout
    needed, trained = setup.needed(model), setup.trained(model)
    over = flops.of_layout(trained, layout, layout.global_batch)
    counted = flops.step(needed.trained, over)
    done = flops.of_passes(needed, lambda one, times: flops.of_layout(one, layout, times * layout.global_batch))
    gpus = leaf("gpus", layout.gpus, "GPU", TRUE)
    possible = multiply("flops/possible", peak, gpus, found.time)
    mfu = divide("mfu", done, possible)
    masked = subtract("flops/attention/masked", counted["flops/attention"], counted["flops/attention/exact"])
    exact = divide("mfu/exact", subtract("flops/exact", done, masked), possible)
    more = [divide("hfu/recomputed", recomputed(trained, over, layout.recompute), possible)]
    if setup.wakes:
        passed = subtract("flops/passed_on", flops.passes("flops/run", trained, over), counted["flops/total"])
        more.append(divide("hfu/passed_on", passed, possible))
    tokens = leaf("tokens", layout.global_batch * layout.seq, "token", TRUE)
    rate = divide("tokens_per_second_per_gpu", tokens, found.time, gpus)
    return [mfu, exact, add("hfu", mfu, *more), rate]
