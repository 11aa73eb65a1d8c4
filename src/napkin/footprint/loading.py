"""Memory to load a checkpoint whose weights are quantized while they are loaded, before the ranks divide them."""

from __future__ import annotations

from napkin.elementwise import Flag, Number, ceil_div, where
from napkin.errors import DOES_NOT_FIT, UNDECIDED
from napkin.footprint.local_weights import states_of
from napkin.footprint.memory import weights_of_all
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


def quantizes(setup: Setup) -> bool:
    """Return whether weights are quantized while they are loaded."""
    tuning = setup.implementation.tuning
    return tuning is not None and bool(tuning.quantized) and not setup.framework.program


def loaded_by_each(model: Model, setup: Setup) -> Number:
    """Return the bytes of weights that each GPU holds if they wait there, of the mean pipeline stage; 0 where they are
    not quantized while they are loaded, or not divided afterwards."""
    if not quantizes(setup):
        return 0
    layout = setup.layout
    whole = replace(setup, layout=layout.replaced(zero=0), offload=())
    parameters, _, _ = states_of(weights_of_all(model, whole), whole)
    return where((layout.zero >= 3) & (layout.gpus > 1), ceil_div(parameters, layout.pp), 0)


def overloads(model: Model, setup: Setup, capacity: Number) -> Flag:
    """Return whether all weights, on a GPU before ranks divide them, may be more than it holds."""
    if setup.loading == HOST:
        return False
    held: Flag = loaded_by_each(model, setup) > capacity
    return held


def after_loading(verdict: str, loaded: Number, capacity: Number, place: str) -> str:
    """Return the verdict on a run from that on its steps. loaded, capacity: bytes of a GPU; place: where the weights
    wait, "" if that is not stated."""
    if loaded <= capacity or place == HOST or verdict == DOES_NOT_FIT:
        return verdict
    return DOES_NOT_FIT if place == GPU else UNDECIDED
