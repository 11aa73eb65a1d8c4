"""Memory to load a checkpoint whose weights are quantized while they are loaded, before the ranks divide them."""

from __future__ import annotations

from napkin.errors import DOES_NOT_FIT, UNDECIDED
from napkin.footprint import memory
from napkin.footprint.prepared import prepare
from napkin.operations.model import Model
from napkin.record import replace
from napkin.training.setup import Setup

HOST, GPU = "host", "gpu"
"""Where quantized weights wait until the ranks divide them.

bitsandbytes quantizes a weight when it is moved to the GPU (bitsandbytes/nn/modules.py, Params4bit._quantize,
Int8Params._quantize), where each process then holds all. transformers 4.39 to 4.57 move each one back to the host under
DeepSpeed's ZeRO-3, and under FSDP with accelerate's fsdp_cpu_ram_efficient_loading (modeling_utils.py,
_load_state_dict_into_meta_model; pull request 29587); its earlier releases and those from 5.0 on do not
(core_model_loading.py, convert_and_load_state_dict_in_model), unless a device_map says so."""


def loaded_by_each(model: Model, setup: Setup) -> int:
    """Return the bytes of weights that each GPU holds if they wait there; 0 where they are not quantized while they are
    loaded, or not divided afterwards."""
    tuning = setup.implementation.tuning
    if tuning is None or not tuning.quantized or setup.framework.program or int(setup.layout.zero) < 3:
        return 0
    if int(setup.layout.gpus) == 1:
        return 0
    whole = replace(setup, layout=setup.layout.replaced(zero=0), offload=())
    return int(memory.holding(prepare(model, whole), 0).parameters)


def after_loading(verdict: str, loaded: float, capacity: float, place: str) -> str:
    """Return the verdict on a run from that on its steps. loaded, capacity: bytes of a GPU; place: where the weights
    wait, "" if that is not stated."""
    if loaded <= capacity or place == HOST or verdict == DOES_NOT_FIT:
        return verdict
    return DOES_NOT_FIT if place == GPU else UNDECIDED
