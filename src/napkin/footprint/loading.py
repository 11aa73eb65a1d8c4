"""Memory to load a checkpoint whose weights are quantized while they are loaded, before the ranks divide them."""

from __future__ import annotations

from napkin.footprint import memory
from napkin.footprint.prepared import prepare
from napkin.operations.model import Model
from napkin.record import replace
from napkin.training.setup import Setup


def loaded_by_each(model: Model, setup: Setup) -> int:
    """Return the bytes of quantized weights that each GPU holds if every process loads all of them; 0 where they are
    not quantized while they are loaded, or not divided afterwards.

    bitsandbytes quantizes a weight when it is moved to the GPU (bitsandbytes/nn/modules.py, Params4bit._quantize,
    Int8Params._quantize). One process loads for all where accelerate's fsdp_cpu_ram_efficient_loading is on (peft
    docs/source/accelerate/fsdp.md)."""
    tuning = setup.implementation.tuning
    if tuning is None or not tuning.quantized or setup.framework.program or int(setup.layout.zero) < 3:
        return 0
    whole = replace(setup, layout=setup.layout.replaced(zero=0), offload=())
    return int(memory.holding(prepare(model, whole), 0).parameters)
