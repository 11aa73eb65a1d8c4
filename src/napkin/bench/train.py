"""A real training step: a plain torch decoder of the model's own operations, AdamW, eager and compiled."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import Any

from napkin.bench.device import OutOfMemory
from napkin.bench.measurement import Measurement
from napkin.bench.session import Session
from napkin.bench.step_plan import PRECISIONS, StepPlan, at_depth, predict, step_flops
from napkin.bench.torch_device import TorchDevice
from napkin.errors import NapkinError
from napkin.inputs.profile_cases import OK, OOM, Case
from napkin.operations.model import Model

WARMUP = 5
WARMUP_COMPILED = 10
LONGEST = 10.0  # seconds of timed steps, where 20 would take longer
FEWEST = 3
FITS = 0.8  # of free memory
LARGEST_MICRO_BATCH = 4  # sequences of thousands of tokens fill a GPU by then, and steps stay short
HOSTS = ("cpu", "mps")
LEARNING_RATE = 1e-4


def train(session: Session, device: TorchDevice, plan: StepPlan) -> list[Case]:
    """Measure eager steps at every depth, compiled ones only at the greatest: compiling takes longer than measuring.

    Out of memory halves the micro-batch, for this and all later cases, and says so.
    """
    if plan.precision not in PRECISIONS:
        raise NapkinError(
            f"--precision: bench step trains in {', '.join(PRECISIONS)}, not {plan.precision}",
            "torch's own optimizers keep no separate master copy",
        )
    if plan.micro_batch == 0:
        plan = replace(plan, micro_batch=session.team.broadcast(_fitting(device, plan)))
    cases = []
    for variant in plan.variants:
        depths = sorted({min(depth, plan.model.depth) for depth in plan.layers})
        for layers in depths if variant == "eager" else depths[-1:]:
            case = _one(session, device, plan, variant, layers)
            while case.status == OOM and plan.micro_batch > 1:
                session.note(f"micro-batch {plan.micro_batch} did not fit: halved")
                plan = replace(plan, micro_batch=plan.micro_batch // 2)
                case = _one(session, device, plan, variant, layers)
            if case.status == OK:
                cases.append(case)
    return cases


def _fitting(device: TorchDevice, plan: StepPlan) -> int:
    """Return the largest power of two predicted to fit at the greatest depth; 1 if there is no prediction."""
    deepest = at_depth(plan.model, min(max(plan.layers), plan.model.depth))
    free = FITS * device.free_bytes()
    best = 1
    while best < LARGEST_MICRO_BATCH:
        need = predict(deepest, replace(plan, micro_batch=2 * best), "eager").allocated
        if need > free:
            break
        best *= 2
    return best


def _one(session: Session, device: TorchDevice, plan: StepPlan, variant: str, layers: int) -> Case:
    model = at_depth(plan.model, layers)
    size = f"{layers}layers/{plan.micro_batch}x{plan.sequence}"
    recompute = "" if plan.recompute == "none" else f"/recompute-{plan.recompute}"
    return session.case(
        f"train/{variant}/{model.name}/{plan.precision}/{size}{recompute}",
        "train",
        {
            "variant": variant,
            "model": model.name,
            "layers": layers,
            "sequence": plan.sequence,
            "micro_batch": plan.micro_batch,
            "tokens": plan.sequence * plan.micro_batch,
            "precision": plan.precision,
            "compute": plan.compute,
            "optimizer": "adamw-fused",
            "recompute": plan.recompute,
        },
        10.0 if variant == "eager" else 30.0,
        lambda: _measure(device, plan, model, variant),
    )


def _measure(device: TorchDevice, plan: StepPlan, model: Model, variant: str) -> Measurement:
    if variant == "compiled":
        device.torch.compiler.reset()  # what an earlier depth compiled would keep its parameters alive
    gc.collect()
    device.release()
    need = predict(model, plan, variant).allocated
    if device.info.kind in HOSTS and need > device.free_bytes():
        # a host that overcommits would end the process, not the allocation
        raise OutOfMemory(f"{need:.0f} bytes are needed, {device.free_bytes()} are free")
    try:
        return _steps(device, plan, model, variant)
    except (RuntimeError, MemoryError) as error:
        known = device.explain(error)
        if isinstance(known, OutOfMemory):
            raise known from None  # without the traceback, whose frames would keep the tensors alive
        raise


def _steps(device: TorchDevice, plan: StepPlan, model: Model, variant: str) -> Measurement:
    torch = device.torch
    decoder = build(torch, device, plan, model)
    optimizer = torch.optim.AdamW(decoder.parameters(), lr=LEARNING_RATE, fused=True)
    shape = (plan.micro_batch, plan.sequence)
    tokens = torch.randint(0, model.vocabulary, shape, device=device.place)
    forward = torch.compile(decoder) if variant == "compiled" else decoder

    def cast() -> AbstractContextManager[Any]:
        return torch.autocast(device.place.type, torch.bfloat16) if plan.precision == "amp-bf16" else nullcontext()

    def step() -> Any:
        with cast():
            loss = forward(tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    started = time.perf_counter()
    first_loss = float(step())
    first_step_s = time.perf_counter() - started
    warmup = WARMUP_COMPILED if variant == "compiled" else WARMUP
    for _ in range(min(warmup, plan.steps)):
        step()
    device.synchronize()
    device.reset_peak()
    before = device.now()
    for _ in range(FEWEST):
        last = step()
    device.synchronize()
    estimate = (device.now() - before) / FEWEST
    peak = device.peak_bytes()
    count = min(plan.steps, max(FEWEST, int(LONGEST / estimate)))
    with device.watch(0.02) as watch:
        seconds, last = _timed(device, step, count)
    figures: dict[str, float | None] = {
        "params": float(sum(p.numel() for p in decoder.parameters())),
        **step_flops(model, plan),
        **peak,
        "compile_s": first_step_s if variant == "compiled" else None,
        "loss_first": first_loss,
        "loss_last": float(last),
    }
    prediction = predict(model, plan, variant)
    figures |= {"predicted_allocated": prediction.allocated, "predicted_step_s": prediction.step_s}
    return Measurement(unit="second", values=seconds, figures=figures, watch=watch)


def _timed(device: TorchDevice, step: Callable[[], Any], count: int) -> tuple[list[float], Any]:
    """Time steps with one event each and a single synchronization."""
    marks = [device.event()]
    marks[0].record()
    loss = None
    for _ in range(count):
        loss = step()
        marks.append(device.event())
        marks[-1].record()
    device.synchronize()
    return [later.since(earlier) for earlier, later in pairwise(marks)], loss


def build(torch: Any, device: TorchDevice, plan: StepPlan, model: Model) -> Any:
    """Return the model's parameters on the device, in the dtype that the precision policy stores them in."""
    from napkin.bench.torch_model import TorchDecoder

    kernels = device.attention_backends() if plan.compute == "bf16" else ()  # the fast ones take no fp32
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if plan.precision == "bf16-pure" else torch.float32)
    try:
        with torch.device(device.place):
            decoder = TorchDecoder(model, kernels, recompute=plan.recompute == "full")
    finally:
        torch.set_default_dtype(before)
    decoder.reset()
    return decoder
