"""Which fields of a row of published memory are read: one that states others, or contradicts itself, is refused."""

from __future__ import annotations

from napkin.evidence.rows import RowFields, unread
from napkin.evidence.step_rows import StepRow

CPU_OFFLOADS = ("cpu_offload", "fsdp_cpu_offload", "enable_cpu_offload", "param_offload")
"""Spellings of FSDP's CPUOffloadPolicy (torchtune: fsdp_cpu_offload; torchtitan: training.enable_cpu_offload)."""
READ = """tp pp dp cp ep vp sp zero fsdp fsdp_group fsdp_shards micro_batch global_batch batch_tokens grad_accum
schedule recompute recompute_kind policy precision attention optimizer method quantization lora_rank lora_targets
compile chunked_cross_entropy optimizer_in_backward packed pp_partition stack framework framework_version accumulation
recipe_defaults"""
"""Fields of a layout that decide memory here."""
IDLE = """activation_offload optimizer_offload async_tp local_batch trainable_params recipe replicas whole_run container
model_parallel_size fsdp_mixed_precision lora_alpha per_node nodes launcher dataset steps version"""
"""Fields of a layout that change no bytes beyond what others say."""
SHAPE = """name preset params params_nominal layers hidden heads kv_heads ffn vocab gated tied seq longest_sample
head_dim experts mla attention position window"""
"""Fields of a model that its description reads."""
FULL = ("", "full")
"""Methods that train all weights."""


def unread_memory(row: RowFields) -> str:
    """Return a field of the layout or the model that says something and that memory here does not read; "" where there
    is none."""
    offloads = [key for key, value in row.part("layout").items() if key in CPU_OFFLOADS and value is True]
    return unread(row, "layout", READ, f"{IDLE} {' '.join(offloads)}") or unread(row, "model", SHAPE, "")


def contradiction(row: RowFields, step: StepRow) -> str:
    """Return what a row states twice and differently; "" where there is nothing of the kind."""
    ways = step.tp * step.pp * step.cp
    dp = row.count("layout.dp")
    if step.gpus % ways or (dp is not None and dp * ways != step.gpus):
        said = f"tp·pp·cp·dp = {ways * dp:,}" if dp is not None else f"tp·pp·cp = {ways:,}"
        return f"{step.gpus:,} accelerators and {said}: a contradiction"
    adapts = row.text("layout.method") not in FULL
    trained, whole = row.number("layout.trainable_params"), row.number("model.params")
    if not adapts and (row.count("layout.lora_rank") or row.part("layout").get("lora_targets")):
        return "states what LoRA's matrices are, not that it trains by LoRA"
    if not adapts and trained and whole and trained < whole / 2:
        return f"trains {trained / whole:.2%} of its parameters by a method that it does not state"
    return ""
