"""What `napkin plan` searches: model, machine and the freedom of every degree, as the options leave it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from napkin.commands.command import Inputs
from napkin.commands.confidence import read_confidence
from napkin.commands.machine import read_hardware
from napkin.commands.model import read_model, read_sequence
from napkin.commands.setup import read_setup_around
from napkin.counting import flops
from napkin.evidence import single
from napkin.evidence.rates import generation_note, machine
from napkin.footprint.setup import Setup
from napkin.inputs.hardware import Hardware
from napkin.options.layout import BOUNDED, SEARCHED
from napkin.record import record, replace
from napkin.training.layout import Layout, recompute

if TYPE_CHECKING:
    from napkin.evidence.single import StepInputs
    from napkin.inputs.profile import Profile
    from napkin.planning.search import Found, Request
    from napkin.timing.step import Plan, Rates

LARGEST_STEP = 16 * 2**20
"""Tokens in a step up to which a free batch grows: what the largest published dense run settled on (Llama 3 405B,
Grattafiori et al. 2024, arXiv:2407.21783, section 3.4.1)."""
RECOMPUTES = ("none", "selective", "full")


@record
class Planner:
    """What all machines of one question share. `typical`: a step as `step` would ask it, for what no layout changes."""

    inputs: Inputs
    hardware: Hardware
    request: Request
    typical: StepInputs
    profile: Profile | None
    level: float
    per_sequence: float

    def timed(self, setup: Setup) -> tuple[Plan, Rates]:
        """Plan and rates; the layout's numbers may be arrays."""
        at = machine(self.hardware, setup.precision.compute)
        overlapped = bool(self.inputs.get("async-tp"))
        asked = self.typical
        plan, rates = single.timed(self.request.model, setup, asked.stack, at, asked.kernel, overlapped)
        if asked.factor != 1.0:
            rates = replace(rates, stack=rates.stack * asked.factor)
        if self.profile is not None:
            rates, _ = single.with_profile(rates, self.hardware, self.profile, setup.precision.compute)
        return plan, rates

    def on(self, gpus: int) -> Request:
        return replace(self.request, gpus=gpus)

    def find(self, request: Request) -> Found:
        """Every layout of the request, timed, and kept where it fits."""
        from napkin.planning.search import search

        return search(request, self.timed, self.hardware.capacity)

    def half_width(self, gpus: int) -> float:
        """Half the interval of ln t: it depends on machine, model and software, not on the layout."""
        at = replace(self.typical.at, gpus=math.log(gpus))
        return replace(self.typical, at=at).half_width(self.level)[0]


def planner_of(inputs: Inputs) -> Planner:
    """The question of `inputs`, everything but the number of GPUs resolved."""
    from napkin.planning.search import Request

    model = read_model(inputs)
    hardware = read_hardware(inputs)
    if note := generation_note(hardware):
        inputs.note(note)
    seq = read_sequence(inputs, model)
    setup = read_setup_around(inputs, model, Layout(seq=seq))
    at = machine(hardware, setup.precision.compute)
    typical = single.asked(
        model,
        setup,
        hardware,
        inputs.get("stack"),
        inputs.get("attention") if "attention" in inputs else None,
        bool(inputs.get("async-tp")),
        float(inputs.get("factor") or 1.0),
    )
    profile = None
    if inputs.get("profile") is not None:
        from napkin.inputs.profile import profile_for

        profile = profile_for(str(inputs.get("profile")), hardware.slug)
        for note in profile.notes_for_user():
            inputs.note(note)
        for what in single.with_profile(typical.rates, hardware, profile, setup.precision.compute)[1]:
            inputs.note(f"measured by the profile: {what}")
    if inputs.get("global-batch") is None:
        inputs.default("max-global-batch", str(max(LARGEST_STEP // seq, 1)))
    chosen = inputs.get("recompute")
    only = {name: int(inputs.get(name)) for name in SEARCHED if inputs.get(name) is not None}
    if inputs.get("sp") is not None:
        only["sp"] = int(inputs.get("sp"))
    if "tp" not in only and inputs.get("max-tp") is None:
        inputs.default("max-tp", str(int(at.node)))
        inputs.note(
            f"tensor parallelism stays within the {int(at.node)} GPUs of a node: no published step in the evidence "
            "leaves it; --max-tp looks further"
        )
    below = {name: inputs.get(f"max-{name}") for name in BOUNDED if inputs.get(f"max-{name}") is not None}
    request = Request(
        model=model,
        setup=setup,
        gpus=1,
        node=int(at.node),
        seq=seq,
        batch=inputs.get("global-batch"),
        most=inputs.get("max-global-batch") or 1,
        recomputes=tuple(recompute(one) for one in ((chosen,) if chosen else RECOMPUTES)),
        only=only,
        below=below,
        deep="zero" in only or "zero" in below,
    )
    if not request.deep:
        inputs.note(
            "ZeRO-3 beside a pipeline is left out: no published step with several micro-batches in the evidence has "
            "it; --max-zero 3 takes it in"
        )
    counted = flops.step(model, flops.works(model, 1, seq))["flops/total"].value
    return Planner(inputs, hardware, request, typical, profile, read_confidence(inputs), float(counted))
