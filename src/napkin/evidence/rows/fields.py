"""The fields of a published row that are read, by what they affect; a row with other fields is not predicted."""

from __future__ import annotations

import re

from napkin.errors import NapkinError
from napkin.evidence.rows.row import RowFields
from napkin.inputs import hardware
from napkin.inputs.load import printable

BOTH = """tp pp dp cp ulysses ep vp sp zero fsdp fsdp_group fsdp_shards micro_batch global_batch batch_tokens grad_accum
schedule recompute recompute_kind policy precision attention optimizer method compile chunked_cross_entropy stack
framework framework_version optimizer_offload capacity_factor etp
expert_imbalance"""
"""Fields of a layout that affect memory and time."""
BYTES = """quantization lora_rank lora_targets layer_kernels optimizer_in_backward packed pp_partition accumulation
recipe_defaults loss_form"""
"""Fields that affect only memory, or restate other fields for it."""
DROPS = """dropout gradient_accumulation_fusion"""
"""Fields that affect memory, and time as well, which does not read them."""
SECONDS = """async_tp async_dp async_ep overlap_grad_reduce overlap_param_gather dispatcher graphs whole_run
fsdp_mixed_precision"""
"""Fields that affect only the time of a step."""
PARTS_OF_TIME = """recompute_layers recompute_matmuls gradient_dtype scaling newer_attention"""
"""Fields that affect the time and whose bytes are unknown."""
NEITHER = """activation_offload local_batch trainable_params recipe replicas container model_parallel_size lora_alpha
per_node nodes launcher dataset steps version versions expandable_segments"""
"""Those that decide neither, or that say what others say. Activations are offloaded on a stream of their own, behind
the compute (torchtune training/_activation_offloading.py, use_streams). Expandable segments make the cache smaller, by
which the interval of a framework whose rows have both is wider."""
TIMED = f"{BOTH} {BYTES} {SECONDS} {PARTS_OF_TIME} {NEITHER} note"
WEIGHED = f"{BOTH} {BYTES} {DROPS} {SECONDS} {NEITHER}"
CPU_OFFLOADS = ("cpu_offload", "fsdp_cpu_offload", "enable_cpu_offload", "param_offload")
"""Spellings of FSDP's CPUOffloadPolicy (torchtune: fsdp_cpu_offload; torchtitan: training.enable_cpu_offload)."""
SHAPE = """name preset params params_nominal layers hidden heads kv_heads ffn vocab gated tied seq longest_sample
head_dim experts mla attention position positions bias
window mtp"""
"""Fields of a model that its description reads; positions and biases are in the tolerance of its parameters
(models.py)."""


def title_of(row: RowFields) -> str:
    """Return the title of a row's source."""
    return row.text("source.title") or row.text("source")


def accelerator_of(row: RowFields) -> str:
    """Return the name of a row's accelerator, "" if it states none: its chip, or the product that the device itself
    prints if that is another one ("Tesla V100-SXM2-32GB-LS" for a V100 SXM2 32GB). A count before it that is the row's
    own says nothing more (`8x A100`)."""
    chip, words = (_without_count(row, row.text(f"hardware.{field}")) for field in ("chip", "accelerator"))
    try:
        printed, meant = hardware.find(words), hardware.find(chip)
    except NapkinError:
        return _without_remark(chip or words)
    exact = hardware.normal(words) in map(hardware.normal, printed.aliases)
    return words if exact and printed.slug != meant.slug else chip


def known_accelerator(row: RowFields) -> hardware.Hardware | None:
    """Return a row's accelerator, None if napkin does not know it."""
    try:
        return hardware.find(accelerator_of(row))
    except NapkinError:
        return None


def generation_of(row: RowFields) -> str:
    """Return the generation of a row's accelerator, "" if it is not known."""
    found = known_accelerator(row)
    return "" if found is None else found.generation


def _without_count(row: RowFields, name: str) -> str:
    return re.sub(rf"^{row.count('hardware.count') or 1} ?[x×*] ?", "", name)


def _without_remark(name: str) -> str:
    """Return an accelerator's name without a remark in parentheses, if only that is a known name; a size alone would be
    another accelerator's."""
    bare = re.sub(r" \((?!\d+ ?[Gg]i?[Bb]?\))[^()]*\)$", "", name)
    for one in (name, bare):
        try:
            hardware.find(one)
        except NapkinError:
            continue
        return one
    return name


def context_ranks(row: RowFields) -> tuple[int, bool]:
    """Return the ranks that divide a sequence, and whether they exchange heads for tokens (Ulysses) in place of passing
    keys and values on."""
    ring, exchanging = row.count("layout.cp") or 1, row.count("layout.ulysses") or 1
    return ring * exchanging, exchanging > 1


def unread_time(row: RowFields) -> str:
    """Return a field of the layout that says something and that the time of a step here does not read; "" if there
    is none."""
    return _unread(row, "layout", TIMED)


def unread_memory(row: RowFields) -> str:
    """Return a field of the layout or the model that says something and that memory here does not read; "" if there
    is none."""
    offloads = [key for key, value in row.part("layout").items() if key in CPU_OFFLOADS and value is True]
    return _unread(row, "layout", f"{WEIGHED} {' '.join(offloads)}") or _unread(row, "model", SHAPE)


ALL_WEIGHTS = ("", "full")
"""Methods that train all weights."""


def leaves_method_open(row: RowFields) -> str:
    """Return what a row says of LoRA's matrices without saying that it trains by LoRA; "" if it does not."""
    states = row.count("layout.lora_rank") or row.part("layout").get("lora_targets")
    if row.text("layout.method") in ALL_WEIGHTS and states:
        return "states what LoRA's matrices are, not that it trains by LoRA"
    return ""


ON = ("flash", "master", "fused")
"""Parts of names of features that are on unless a row says otherwise."""


def is_off(key: str, value: object) -> bool:
    """Return whether a value says that a key's feature is off, which it is without the key."""
    return value in (None, False, 0, "", "none", "None", "no") and not any(word in key for word in ON)


def _unread(row: RowFields, part: str, known: str) -> str:
    """Return which field of a part says something and is not among those that are known; "" if there is none."""
    names = known.split()
    for key, value in row.part(part).items():
        if not is_off(key, value) and key not in names:
            name = printable(str(key), 40)
            return f"{name}: an offload that is not modeled" if "offload" in name else f"{part}.{name}: not modeled"
    return ""
