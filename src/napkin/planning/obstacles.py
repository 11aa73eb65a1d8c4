"""Short explanations of why no layout is valid, or none fits."""

from __future__ import annotations

import math
from collections.abc import Mapping

from napkin.footprint import buckets
from napkin.footprint.prepared import prepare
from napkin.footprint.rank import BUCKETS
from napkin.operations.queries import undivided
from napkin.options.layout import OF_REPLICA
from napkin.planning.grid import Request
from napkin.planning.verdicts import worst_rank
from napkin.record import replace
from napkin.training.layout import Layout
from napkin.units import human


def broken_rules(request: Request) -> list[str]:
    """Return the rules that the given degrees break."""
    depth, n = request.model.stacks[-1].depth, request.gpus
    found = []
    only = request.only
    if "tp" in only and (what := undivided(request.model, request.setup.implementation, only["tp"])):
        found.append(f"--tp {only['tp']} does not divide {what}")
    if "cp" in only and request.seq % only["cp"]:
        found.append(f"--cp {only['cp']} does not divide the {request.seq:,} tokens of a sequence")
    if only.get("pp", 1) * only.get("vp", 1) > depth:
        found.append(f"pp · vp is above the {depth} layers")
    if only.get("pp", 1) > 1 and request.model.on_one_stage:
        found.append("layers read what layers of other pipeline stages make, or have their weights")
    product = math.prod(only.get(name, 1) for name in (*OF_REPLICA, "dp"))
    if n % product:
        found.append(f"{n:,} GPUs are not a multiple of {product:,}")
    steps = only.get("grad-accum", 1)
    if request.batch is not None and request.batch % steps:
        found.append(f"--grad-accum {steps:,} does not divide the batch of {request.batch:,}")
    if not found and request.batch is not None:
        found.append(f"no data-parallel degree of {n:,} GPUs divides the batch of {request.batch:,}")
    return found


def obstacle(request: Request, only: Mapping[str, int]) -> str:
    """Return why a choice of degrees leaves no layout."""
    ranks, batch = request.gpus // only["tp"], request.batch or request.most
    if request.gpus % only["tp"]:
        return f"{request.gpus:,} GPUs are not a multiple of {only['tp']}"
    if what := undivided(request.model, request.setup.implementation, only["tp"]):
        return f"tp {only['tp']} does not divide {what}"
    if ranks == 1 and only.get("zero"):
        return "there is one data-parallel rank, and no other to share states with"
    divides = request.setup_with(only.get("zero", 0)).framework.divides
    if only["tp"] > 1 and only.get("zero", 0) not in divides.tensor:
        return f"the library has no tensor-parallel ranks with ZeRO-{only.get('zero', 0)}"
    if only.get("zero", 0) not in divides.zero:
        return f"the library has no ZeRO-{only['zero']}"
    if ranks > batch:
        return f"{ranks:,} data-parallel ranks for {batch:,} sequences"
    return f"{ranks:,} data-parallel ranks do not divide {batch:,} sequences"


def largest_bucket(request: Request, layout: Layout) -> str:
    """Return the largest memory category of a layout, as the end of a sentence."""
    rank = worst_rank(prepare(request.model, replace(request.setup_with(int(layout.zero)), layout=layout)))
    peak = buckets.peak_of(rank)
    sizes = {bucket: getattr(peak, bucket) for bucket in BUCKETS}
    name = max(sizes, key=lambda bucket: sizes[bucket])
    return f", {human(sizes[name], 'byte')} of it {name.replace('_', ' ')}"
