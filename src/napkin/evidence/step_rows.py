"""A published training step: what a planner knows beforehand, and apart from it the one quantity that was measured.
A stated MFU, rate or time of a row never reaches the part that predicts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from napkin.evidence.rows import Row
from napkin.inputs.load import printable
from napkin.record import record
from napkin.training.precision import POLICIES

UNSTATED_ACCUMULATION = 4
"""Micro-batches of a step on several GPUs where a source states neither them nor the batch; a pipeline has at least
one for each stage."""


@record
class Shape:
    """A decoder's dimensions as tables print them. 0 stands for what it does not have; vocabulary 0: not stated."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: float
    ffn: int
    vocab: int
    gated: bool
    tied: bool
    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    dense_layers: int = 0
    q_rank: int = 0
    kv_rank: int = 0
    nope: int = 0
    rope: int = 0
    v_dim: int = 0
    window: int = 0


@record
class Measured:
    """The quantity that a row prints, and how its source counts FLOPs where the quantity needs that."""

    quantity: str
    value: float
    convention: str = ""
    peak: float = 0.0


@record
class StepRow:
    """One published training step. None: not stated. `why` says what is missing for a prediction, if anything is."""

    id: str
    source: str
    shape: Shape | None
    chip: str
    gpus: int
    node: int | None
    network: float | None
    fabric: str
    seq: int
    tp: int
    pp: int
    vp: int | None
    cp: int
    ep: int
    dp: int
    micro_batch: float | None
    global_batch: float | None
    sp: bool | None
    zero: int | None
    shards: int | None
    recompute: str
    recompute_words: str
    policy: str
    gradient_bytes: int | None
    stack: str
    attention: str
    loss: str
    async_tp: bool
    rowwise: bool
    measured: Measured | None
    suspect: str = ""
    note: str = ""
    why: str = ""


def shape(row: Row) -> Shape | None:
    """The dimensions, or None where one is missing that time or memory depends on."""
    layers, hidden = row.count("model.layers"), row.count("model.hidden")
    heads, ffn = row.count("model.heads"), row.count("model.ffn")
    experts = row.part("model").get("experts") or {}
    mla = row.part("model").get("mla") or {}
    if not isinstance(experts, dict) or not isinstance(mla, dict):
        raise row.wrong("model", "experts and mla must be mappings")
    if layers is None or hidden is None:
        return None
    if heads is None:  # head size 128 or the divisor next to it; only attention's alignment depends on it
        heads = min((n for n in range(1, hidden + 1) if hidden % n == 0), key=lambda n: abs(n - hidden / 128))

    def of(block: Mapping[str, Any], key: str) -> int:
        value = block.get(key)
        if value is None:
            return 0
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**9:
            raise row.wrong("model", f"{key} {printable(repr(value), 40)} is not a whole number")
        return value

    window = re.search(r"window (\d+)", row.text("model.attention"))
    return Shape(
        row.text("model.name"),
        layers,
        hidden,
        heads,
        row.count("model.kv_heads") or heads,
        row.count("model.head_dim") or (hidden // heads if hidden % heads == 0 else hidden / heads),
        ffn or (0 if experts else 4 * hidden),
        row.count("model.vocab") or 0,
        bool(row.flag("model.gated")),
        bool(row.flag("model.tied")),
        of(experts, "count"),
        of(experts, "top_k"),
        of(experts, "ffn"),
        of(experts, "shared_ffn"),
        of(experts, "dense_layers"),
        of(mla, "q_lora_rank"),
        of(mla, "kv_lora_rank"),
        of(mla, "qk_nope_head_dim"),
        of(mla, "qk_rope_head_dim"),
        of(mla, "v_head_dim"),
        int(window[1]) if window else 0,
    )


_GBIT = 1e9 / 8
_NETWORK: tuple[tuple[str, Callable[[float, float, int], float]], ...] = (
    (r"(\d+)x ?(\d+) Gbit/s", lambda cards, rate, node: cards * rate * _GBIT / node),
    (r"()(\d+) Gbit/s RDMA per GPU", lambda _, rate, node: rate * _GBIT),
    (r"()(\d+) Gbit/s", lambda _, rate, node: rate * _GBIT / node),
    (r"()(TCPX)", lambda _, rate, node: 4 * 200 * _GBIT / node),  # A3: four 200 Gbit/s cards a node
)


def network(words: str, node: int) -> float | None:
    """byte/s per GPU from a source's words: `8x 200 Gbit/s … per node`, `400 Gbit/s RDMA per GPU`, `1600 Gbit/s`."""
    for pattern, rate in _NETWORK:
        found = re.search(pattern, words)
        if found:
            number = float(found[2]) if found[2].isdigit() else 0.0
            return rate(float(found[1] or 0), number, node)
    return None


STACKS: tuple[tuple[str, str], ...] = (
    ("llm-foundry", "fsdp-eager"),
    ("megatron bridge", "megatron-core"),
    ("nemo framework launcher", "megatron-core"),
    ("h100 weak scaling", "megatron-core"),
    ("h100 strong scaling", "megatron-core"),
    ("bigscience", "megatron-deepspeed"),
    ("bloom", "megatron-deepspeed"),
    ("megatron-lm readme 2020", "megatron"),
    ("narayanan", "megatron"),
    ("korthikanti", "megatron"),
    ("gpt-neox", "megatron-deepspeed"),
    ("deepspeed", "megatron-deepspeed"),
    ("megatron", "megatron-core"),
    ("nemo", "megatron-core"),
    ("mlperf", "megatron-core"),
    ("nanotron", "nanotron"),
    ("maxtext", "xla"),
    ("jax", "xla"),
    ("pax", "xla"),
    ("levanter", "xla"),
    ("t5x", "xla"),
    ("tpu", "xla"),
    ("llm.c", "lean"),
    ("tinyllama", "lean"),
    ("flashattention", "lean"),
    ("foundry", "fsdp-eager"),
    ("composer", "fsdp-eager"),
    ("transformers", "fsdp-eager"),
    ("accelerate", "fsdp-eager"),
    ("axolotl", "fsdp-eager"),
    ("nanogpt", "fsdp-compiled"),
    ("olmo", "fsdp-compiled"),
    ("torchtitan", "fsdp-compiled"),
    ("fsdp", "fsdp-compiled"),
    ("torchtune", "fsdp-compiled"),
    ("lora", "fsdp-eager"),
)
"""Words of a source's title or place, and the software that they name; the first that occurs holds."""


FUSED_EXPERTS = (26, 6)
"""The container of Megatron Bridge, (year, month), from which on the same layouts with experts take 20 to 35 % less."""


def software(row: Row) -> str:
    """The software stack: named in the row (`layout.stack`), else by the words of its source and `layout.compile`."""
    stated = row.text("layout.stack")
    if stated:
        return stated
    words = " ".join(row.text(p) for p in ("layout.framework", "source.title", "source.where")).lower()
    found = next((stack for word, stack in STACKS if word in words), "")
    compiled = row.flag("layout.compile")
    release = re.search(r"container (\d\d)\.(\d\d)", words)
    if found == "megatron-core" and release and (int(release[1]), int(release[2])) >= FUSED_EXPERTS:
        return "megatron-core-2026"
    if found == "fsdp-compiled":
        if (
            compiled is None
        ):  # torchtitan compiles from its 2024-12 notes on; its first page and fms before 2024-05 do not
            compiled = "benchmark" in words and "docs/performance.md" not in words
        return "fsdp-compiled" if compiled else "fsdp-eager"
    return found


def kernel(row: Row, stack: str) -> str:
    """The attention kernel: named (`layout.attention`), else what the stack of that time ran."""
    stated = row.text("layout.attention")
    if stated:
        return stated
    words = f"{row.text('source.title')} {row.text('layout.precision')}".lower()
    if stack in ("megatron", "megatron-deepspeed") or "nemo framework launcher readme 2023" in words:
        return "eager"
    if stack == "xla" and "pax" in words:
        return "flash" if "transformer engine" in words and (row.count("model.layers") or 0) < 90 else "eager"
    if "foundry" in words:
        return "flash1"
    return "cudnn" if "megatron bridge" in words else "flash"


def step_row(row: Row) -> StepRow:
    """A training step as its row states it, and what a planner takes where it is silent."""
    dims = shape(row)
    chip = row.text("hardware.chip") or row.text("hardware.accelerator")
    node = row.count("hardware.per_node")
    link = row.text("hardware.interconnect")
    tp, pp = row.count("layout.tp") or 1, row.count("layout.pp") or 1
    cp, ep = row.count("layout.cp") or 1, row.count("layout.ep") or 1
    count = row.count("hardware.count") or tp * pp * cp * (row.count("layout.dp") or 1)
    dp = row.count("layout.dp") or max(1, count // (tp * pp * cp))
    if tp * pp * cp * dp != count:
        dp = max(1, count // (tp * pp * cp))
    stack = software(row)
    fsdp = row.text("layout.fsdp")
    shards = row.count("layout.fsdp_shards")
    zero = row.count("layout.zero", least=0)
    if row.count("layout.fsdp_group") or (fsdp and zero is None):
        zero = 3
    if shards == 1:
        zero, shards = 0, None
    if fsdp == "hsdp" and shards is None:
        shards = node or 8
    seq = row.count("model.seq")
    batch = row.number("layout.global_batch")
    micro = row.number("layout.micro_batch")
    words = row.text("layout.recompute")
    mixed = row.text("layout.fsdp_mixed_precision")
    policy = row.text("layout.policy") or "bf16-mixed"
    stated_tokens = re.fullmatch(r"([\d.]+)M", row.text("layout.batch_tokens"))
    if batch is None and stated_tokens and seq:
        batch = float(stated_tokens[1]) * 2**20 / seq
    if batch is None and micro is not None:
        batch = micro * dp * (1 if count == 1 else max(UNSTATED_ACCUMULATION, pp))
    why = _missing(row, dims, seq, batch, chip)
    found = None if why == "whole" else measured(row, dims, seq or 0, batch, count)
    if why == "whole":
        why = "an average over a whole run, not a step"
    elif found is None and not why:
        why = "prints no step time, rate or utilisation of one GPU"
    return StepRow(
        row.text("id"),
        row.text("source.title") or row.text("source"),
        dims,
        chip,
        count,
        node,
        network(link, node or 8),
        "omnipath" if "omni-path" in link.lower() else "rdma",
        seq or 0,
        tp,
        pp,
        row.count("layout.vp"),
        cp,
        ep,
        dp,
        micro,
        batch,
        row.flag("layout.sp"),
        zero,
        shards,
        row.text("layout.recompute_kind") or "none",
        words,
        policy,
        _gradient_bytes(mixed, policy, stack, row.text("layout.precision")),
        stack,
        kernel(row, stack),
        "fused" if row.flag("layout.chunked_cross_entropy") else "",
        bool(row.flag("layout.async_tp")),
        "rowwise" in row.text("layout.precision"),
        found,
        row.text("suspect"),
        row.text("note"),
        why,
    )


def _gradient_bytes(mixed: str, policy: str, stack: str, words: str) -> int | None:
    """Bytes of a gradient element as it is reduced, where the row's own words decide; None: as the stack does it.

    DeepSpeed's BF16_Optimizer all-reduces its fp32 gradients, which moves each twice (deepspeed/runtime/
    bf16_optimizer.py, get_grads_for_reduction; engine.py, buffered all-reduce)."""
    if mixed == "PURE" or policy == "bf16-pure":
        return 2
    return 8 if stack == "megatron-deepspeed" and "fp32 gradient" in words.lower() else None


def _missing(row: Row, dims: Shape | None, seq: int | None, batch: float | None, chip: str) -> str:
    """Why a step cannot be predicted; "whole" for averages over whole runs."""
    if row.flag("layout.whole_run"):
        return "whole"
    if row.text("layout.method") in ("lora", "qlora"):
        return f"trains adapters ({row.text('layout.method')}), not all weights"
    if dims is None:
        return "the number of layers is not stated"
    if seq is None:
        return "the sequence length is not stated"
    if batch is None:
        return "the batch is not stated"
    if not chip:
        return "the accelerator is not stated"
    if row.count("hardware.count") is None and row.count("layout.dp") is None:
        return "the number of accelerators is not stated"
    policy, kind = row.text("layout.policy"), row.text("layout.recompute_kind")
    if policy and policy not in POLICIES:
        return f"the policy {policy[:40]} is not known"
    if kind not in ("", "none", "selective", "full", "other"):
        return f"the recomputation {kind[:40]} is not known"
    sharded = row.count("layout.zero", least=0) == 3 or row.text("layout.fsdp")
    if not sharded and row.count("layout.tp") is None and (row.count("hardware.count") or 1) > 1:
        return "the layout is not stated"
    return ""


def block_weights(dims: Shape, experts: int) -> float:
    """Weights of the blocks' matrices, so many experts of each layer counted."""
    h = dims.hidden
    attention = h * (dims.heads + 2 * dims.kv_heads) * dims.head_dim + dims.heads * dims.head_dim * h
    dense = (3 if dims.gated else 2) * h * dims.ffn
    routed = 3 * h * (experts * dims.expert_ffn + dims.shared_ffn)
    sparse = dims.layers - dims.dense_layers if dims.experts else 0
    return dims.layers * attention + (dims.layers - sparse) * dense + sparse * routed


def step_flops(convention: str, dims: Shape, seq: int, sequences: float) -> float | None:
    """FLOPs of a step by the rule that a source counts with; None for a rule that is not known.

    narayanan  96·B·s·L·h²·(1 + s/6h + V/16Lh), recomputation counted (Narayanan et al. 2021, equation 3)
    others     per token 6·(matrix weights with logits) + 12·L·heads·head size·s, or 6 where attention is causal"""
    tokens, h, depth = sequences * seq, dims.hidden, dims.layers
    if convention == "narayanan":
        return 96 * tokens * depth * h * h * (1 + seq / (6 * h) + dims.vocab / (16 * depth * h))
    if not convention or convention.startswith("none"):
        return None
    weights = block_weights(dims, dims.top_k) + h * dims.vocab
    scores = (6 if "causal" in convention else 12) * depth * dims.heads * dims.head_dim * seq
    return tokens * (6 * weights + scores)


def measured(row: Row, dims: Shape | None, seq: int, sequences: float | None, count: int) -> Measured | None:
    """step_seconds, else tokens_per_second_per_gpu, else mfu; else the step time that a printed TFLOP/s implies by the
    source's own counting rule."""
    seconds = row.number("measured.step_seconds")
    if seconds:
        return Measured("step_seconds", seconds)
    rate = row.number("measured.tokens_per_second_per_gpu")
    if rate is None and row.number("measured.tokens_per_second"):
        rate = (row.number("measured.tokens_per_second") or 0) / count
    if rate:
        return Measured("tokens_per_second_per_gpu", rate)
    convention = row.text("convention.formula")
    flops = step_flops(convention, dims, seq, sequences) if dims and sequences else None
    if flops is None:
        return None
    share, peak = row.number("measured.mfu"), row.number("convention.peak_tflops")
    if share and peak:
        return Measured("mfu", share, convention, peak * 1e12)
    for key in ("hardware_tflops_per_gpu", "model_tflops_per_gpu"):
        printed = row.number(f"measured.{key}")
        if printed:
            return Measured("step_seconds", flops / (printed * 1e12 * count), convention)
    return None
