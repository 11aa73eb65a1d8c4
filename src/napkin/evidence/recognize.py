"""Recognize names, versions and units in the free text of a published row, and write them into its fields.

Only this module looks for words; row_words.py lists them. People state facts in prose ("bf16 (fp32 gradient
accumulation)", a page's title that names the software, "8x 200 Gbit/s HDR per node"); the predictions read the fields
that are filled here. The shipped evidence (configs/evidence/*.yaml) states the fields itself and does not pass through
here. A spelling that is not known stays as it is, and whoever reads the field refuses it by name.

Fields filled for a training step:
    layout.stack                software stack (software.py), from the framework, title and place of the source
    layout.attention            attention kernel, if it is not the stack's usual one
    layout.newer_attention      that of a later release, if the release is not stated
    layout.recompute_layers     share of the layers whose forward pass runs again, if only some do
    layout.recompute_matmuls    share of the matmuls that run again
    layout.gradient_dtype       fp32 where gradients are reduced in fp32
    layout.scaling              rowwise: one fp8 scale a row            layout.policy   number formats (precision.py)
    layout.chunked_cross_entropy                                        the loss materializes no logits
    layout.layer_kernels        liger: norms, rotary embeddings and gated MLPs run its kernels
    layout.batch_tokens         tokens of a global batch
    hardware.network            byte/s per accelerator to other nodes        hardware.fabric   its kind
    model.window                sliding window of every other layer, in tokens
    source.key                  source of the evidence that the page is of
    convention.rule             how FLOPs are counted: narayanan, full or causal attention
and for memory:
    layout.framework            framework (training/frameworks.py)           layout.framework_version   year and month
    layout.policy, layout.accumulation, layout.pp_partition, layout.attention, layout.schedule, layout.method,
    layout.quantization, layout.lora_targets, layout.activation_offload, layout.optimizer_offload,
    layout.cpu_offload          in their canonical spelling
    layout.recompute_kind       none, selective, full, operations or other
    layout.recipe_defaults      the flags are a recipe's own
    model.params_nominal        parameters that the model's name states
    memory.what                 allocated, reserved or used                  memory.analytic, memory.bytes
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from napkin.evidence.row_networks import network_of
from napkin.evidence.row_recomputation import PARTS_RECOMPUTED, RECIPE, recomputation, share_of_layers
from napkin.evidence.row_words import (
    AUTOCAST,
    BINARY,
    CUDNN_9_4,
    CUDNN_9_4_MLPERF,
    DEEPSPEED,
    FIGURES,
    FRAMEWORK_WORDS,
    FULL_TRAINING,
    FUSED_EXPERTS,
    FUSES_LOSS,
    KERNELS,
    LIGER_WORD,
    LORA_TARGETS,
    MEMORY_STACKS,
    MONTHS,
    OFFLOADED,
    OPEN_PRECISION,
    PLAIN_LOSSES,
    PRECISIONS,
    QUANTIZED,
    SHARDERS,
    STACK_WORDS,
    UNITS,
    fuses_loss,
    library_of,
    schedule_named,
    timed_kernel,
)
from napkin.evidence.rows import RowFields
from napkin.evidence.step_rows import TIMED_KERNELS
from napkin.evidence.teams import source_of
from napkin.training.framework import FSDP
from napkin.training.frameworks import PLAIN
from napkin.training.precision import POLICIES
from napkin.training.trainers import TRAINERS

Fact = str | float | bool | list[str] | None
"""The canonical value of a field; None: not stated."""
Facts = dict[str, dict[str, Fact]]
"""Section of a row → field → value; "": of the row itself."""


def recognized(row: RowFields, facts: Callable[[RowFields], Facts]) -> RowFields:
    """Return the row with the facts that `facts` (`of_step` or `of_memory`) finds in its prose added to its fields."""
    fields = dict(row.fields)
    for section, found in facts(row).items():
        if found:
            fields |= {section: {**row.part(section), **found}} if section else found
    return RowFields(row.document, row.index, fields)


# --- training steps --------------------------------------------------------------------------------------------------


def of_step(row: RowFields) -> Facts:
    """Return the facts that the prose of a row of a training step states."""
    layout: dict[str, Fact] = {}
    stack = _stack(row)
    layout["stack"] = stack
    layout["attention"] = kernel = _kernel_of(row, stack)
    layout["newer_attention"] = _newer_kernel(row, kernel)
    layout |= _recomputed_in_time(row)
    precision = row.text("layout.precision")
    if not row.text("layout.policy"):
        layout["policy"] = policy_of(precision)
    if "rowwise" in precision:
        layout["scaling"] = "rowwise"
    if "fp32 gradient" in precision.lower():
        layout["gradient_dtype"] = "fp32"
    layout |= _batch_tokens(row) | _loss(row) | _offloads(row, weighed=False)
    formula = row.text("convention.formula")
    return {
        "layout": _stated(layout),
        "hardware": {**network_of(row)},
        "model": _window(row),
        "convention": {"rule": rule_of(formula)} if formula else {},
        "source": {"key": row.text("source.key") or source_of(row.text("source.title"))},
    }


def policy_of(precision: str) -> str:
    """Return the policy that the words of a row's precision name; "" if they leave it open. A precision that is not
    known stays as it is."""
    words = precision.strip().lower()
    if words in POLICIES or words in ("", *OPEN_PRECISION):
        return words if words in POLICIES else ""
    if AUTOCAST.search(words):
        return "amp-fp16" if "fp16" in words else "amp-bf16"
    return next((policy for spellings, policy in PRECISIONS if any(word in words for word in spellings)), words)


def _stack(row: RowFields) -> str:
    """Return the software stack that a row states, or that its words name. Of one that is known by what shards it
    alone, PyTorch's own layers are what is sharded."""
    said = row.text("layout.stack")
    if said.lower() not in ("", *SHARDERS):
        return said
    found = stack_of(row)
    return found if found or not said else FSDP[bool(row.flag("layout.compile"))]


def _loss(row: RowFields) -> dict[str, Fact]:
    """Return whether the words of a row's loss, of its kernels or of its framework name a loss that materializes no
    logits, and whether layers run Liger's kernels."""
    found: dict[str, Fact] = {}
    if LIGER_WORD in f"{row.text('layout.kernels')} {row.text('layout.framework')}".lower():
        found |= {"chunked_cross_entropy": True, "layer_kernels": LIGER_WORD}
    if not row.text("layout.loss") and any(name in _source_words(row) for name in FUSES_LOSS):
        found["chunked_cross_entropy"] = True
    for field in ("loss", "kernels"):
        words = row.text(f"layout.{field}").strip().lower().replace("-", " ")
        if fuses_loss(words):
            found |= {"chunked_cross_entropy": True, field: None}
        elif words.replace(" ", "_") in PLAIN_LOSSES:
            found[field] = None
    return found


def _offloads(row: RowFields, weighed: bool) -> dict[str, Fact]:
    """Return what `layout.offload` says is in the host's memory, under a name for each. The time of parameters that
    are there is not known: it stays as it is."""
    words = [word.strip().lower() for word in row.text("layout.offload").split(",")]
    names = {OFFLOADED.get(word, "") for word in words}
    if "" in names or not (weighed or names <= {"activations", "optimizer"}):
        return {}
    fields = {"optimizer": "optimizer_offload", "activations": "activation_offload", "parameters": "cpu_offload"}
    return {"offload": None, **dict.fromkeys((fields[name] for name in names), True)}


TITAN = "torchtitan"
"""Its configurations recompute every second matmul unless they say otherwise (torchtitan/config/job_config.py,
ActivationCheckpoint: mode selective, selective_ac_option op; train_configs/llama3_8b.toml)."""


def _recomputed_in_time(row: RowFields) -> dict[str, Fact]:
    """Return what is recomputed, if a row states it only in words; unknown words are kept."""
    words, stated = row.text("layout.recompute").strip().lower(), row.text("layout.recompute_kind")
    if words == RECIPE:
        return {"recipe_defaults": True}
    if words in ("", "unstated"):
        return {} if stated or TITAN not in _source_words(row) else {"recompute_kind": "selective"}
    found: dict[str, Fact] = {}
    one_stage = (row.count("layout.pp") or 1) == 1
    counted = share_of_layers(words, (row.count("model.layers") or 0) if one_stage else 0)
    if counted is not None:
        found["recompute_layers"] = counted
    for spellings, what, share in PARTS_RECOMPUTED if counted is None else ():
        if any(word in words for word in spellings):
            found[f"recompute_{what}"] = share
            break
    return found if stated else {**found, "recompute_kind": "other" if found else recomputation(words) or words}


def _batch_tokens(row: RowFields) -> dict[str, Fact]:
    """Return the tokens of a batch stated as `0.5M`, in which M is 2²⁰; other words say nothing."""
    said = row.part("layout").get("batch_tokens")
    if not isinstance(said, str):
        return {}
    tokens = re.fullmatch(r"([\d.]+)M", said)
    return {"batch_tokens": float(tokens[1]) * 2**20 if tokens else None}


def _window(row: RowFields) -> dict[str, Fact]:
    """Return the sliding window of `alternating sliding window 128 and full`."""
    window = re.search(r"window (\d+)", row.text("model.attention"))
    return {"window": int(window[1])} if window else {}


def _stated(found: Mapping[str, Fact]) -> dict[str, Fact]:
    return {key: value for key, value in found.items() if value != ""}


def _source_words(row: RowFields) -> str:
    places = ("layout.framework", "source.title", "source.where", "memory.kind")
    return " ".join(row.text(path) for path in places).lower()


def stack_of(row: RowFields) -> str:
    """Return the software stack that the words of the row's source and `layout.compile` name, "" if none."""
    words = _source_words(row)
    found = next((stack for word, stack in STACK_WORDS if word in words), None)
    compiled = row.flag("layout.compile")
    if compiled is None and COMPILED.search(row.text("layout.framework").lower()):
        compiled = True
    if found is None:
        library = TRAINERS.get(library_of(row.text("layout.framework")))
        own = TORCH.search(row.text("layout.framework").lower()) or (library and library.implementation == "hf")
        return FSDP[bool(compiled)] if own else ""
    if found == "megatron-core" and (BEFORE_CORE.search(row.text("source.title")) or (_dated(row) or CORE) < CORE):
        return "megatron"
    if found in ("megatron-core", "megatron-mlperf"):
        return edition(found, words)
    if found == DEEPSPEED:
        return "megatron-deepspeed" if "megatron" in words else FSDP[bool(compiled)]
    if found == FSDP[False] and compiled:
        return FSDP[True]
    if found == "fsdp-compiled":
        if compiled is None:
            named = "benchmark" in words and COMPILES.search(words) is not None
            compiled = named and "docs/performance.md" not in words
        return "fsdp-compiled" if compiled else "fsdp-eager"
    return found


def edition(stack: str, words: str) -> str:
    """Return the edition of Megatron's core by the release of a container that the words name, or of its stack for
    MLPerf by the round; today's if they name none."""
    release = re.search(r"container (\d\d)\.(\d\d)", words)
    round_of = re.search(r"mlperf training v(\d)\.(\d)", words)
    if stack == "megatron-mlperf":
        return f"{stack}-2023" if round_of and (int(round_of[1]), int(round_of[2])) < CUDNN_9_4_MLPERF else stack
    if release is None:
        return stack
    found = (int(release[1]), int(release[2]))
    return f"{stack}-2026" if found >= FUSED_EXPERTS else f"{stack}-2024" if found < CUDNN_9_4 else stack


COMPILED = re.compile(r"\btorch\.compile\b|\bcompiled\b")
COMPILES = re.compile(r"\b(torchtitan|fms)\b")
"""Whose benchmarks compile: torchtitan from its notes of December 2024 on, not on its first page; fms from May 2024."""
TORCH = re.compile(r"\b(pytorch|torch|lightning)\b")
"""Words that name PyTorch's own layers, where none names other software."""
BEFORE_CORE = re.compile(r"\b20(1\d|2[0-2])\b")
"""Years of Megatron-LM before its core (NVIDIA/Megatron-LM megatron/core, from 2023 on)."""
CORE = 202301
"""The month from which on Megatron-LM has its core."""
BEFORE_FUSED = re.compile(r"\b20(1\d|2[01])\b")
"""Years before fused attention was published (Dao et al. 2022, arXiv:2205.14135)."""


FOUNDRYS_SECOND = 202401
"""The month from which on LLM Foundry's benchmarks run FlashAttention-2 and not the first one in Triton
(mosaicml/llm-foundry scripts/train/benchmarking/sweep.py at 5e85bd6)."""


def _newer_kernel(row: RowFields, kernel: str) -> str:
    """Return the attention kernel of a later release, where a row states neither a kernel nor a date; "" if none."""
    return "flash2" if kernel == "flash1" and not row.text("layout.attention") and _dated(row) is None else ""


def _kernel_of(row: RowFields, stack: str) -> str:
    """Return the attention kernel that a row states in other words than the fit's, or that its source is known to have
    run; "" for the stack's usual one."""
    said = row.text("layout.attention").lower()
    if said:
        return "" if said in TIMED_KERNELS else timed_kernel(said)
    words = f"{row.text('source.title')} {row.text('layout.precision')}".lower()
    if stack in ("megatron", "megatron-deepspeed"):
        return ""
    if "nemo framework launcher readme 2023" in words:
        return "eager"
    if stack == "xla" and "pax" in words:
        return "" if "transformer engine" in words and (row.count("model.layers") or 0) < 90 else "eager"
    if "foundry" in words:
        return "flash2" if (_dated(row) or 0) >= FOUNDRYS_SECOND else "flash1"
    if not stack and BEFORE_FUSED.search(row.text("source.title")):
        return "eager"
    return "cudnn" if "megatron bridge" in words else ""


def rule_of(formula: str) -> str:
    """Return how a source counts FLOPs: narayanan, full or causal attention; "" if it prints none."""
    if formula == "narayanan":
        return formula
    if not formula or formula.startswith("none"):
        return ""
    return "causal" if "causal" in formula else "full"


# --- memory ----------------------------------------------------------------------------------------------------------


def of_memory(row: RowFields) -> Facts:
    """Return the facts that the prose of a row of memory states."""
    return {
        "layout": _stated(_memory_layout(row)),
        "model": _nominal(row) | _window(row),
        "memory": _stated(_figure(row)),
    }


def framework_of(row: RowFields) -> str:
    """Return the framework that the words of the row's source name, "" if none. A library that trains Hugging Face's
    classes, named alone, shards by DeepSpeed where it says a stage of ZeRO."""
    words = _source_words(row)
    named = next((name for word, name in FRAMEWORK_WORDS if word in words), "")
    library = TRAINERS.get(library_of(row.text("layout.framework")))
    if named or library is None or library.implementation != "hf":
        return named
    return "deepspeed" if row.count("layout.zero", least=0) else PLAIN.name


def _memory_layout(row: RowFields) -> dict[str, Fact]:
    framework = framework_of(row)
    found = _batch_tokens(row) | _loss(row) | _offloads(row, weighed=True)
    if framework or row.text("layout.framework"):
        found["framework"] = framework or None
    titan = "torchtitan" in (framework, MEMORY_STACKS.get(row.text("layout.stack").lower(), ""))
    if version := _dated(row):
        found["framework_version"] = version
    precision = row.text("layout.precision").lower()
    if not row.text("layout.policy") and "pure" in precision:
        found["policy"] = "bf16-pure"
    if "fp32 gradient accumulation" in precision or "fp32 accumulation" in precision:
        found["accumulation"] = "fp32"
    if "embedding layers count" in row.text("layout.pp_partition"):
        found["pp_partition"] = "slots"
    spelled = _spellings(row)
    own_layers = framework == "megatron-core" and re.search(r"\blocal\b", row.text("layout.framework").lower())
    if own_layers and not spelled["attention"]:
        spelled["attention"] = "eager"  # core/transformer/dot_product_attention.py; a kernel is TransformerEngine's
    return found | spelled | _recomputation(row, titan)


def _dated(row: RowFields) -> int | None:
    """Return the year and month (202506) that a row's version, or its source's place or title, states, as 202506,
    2025-06 or June 2025; None if none does."""
    for words in (row.text(path) for path in ("layout.versions", "layout.version", "source.where", "source.title")):
        if dated := re.search(r"(20\d\d)-?(0[1-9]|1[0-2])(?!\d\d\d)", words):
            return int(dated[1] + dated[2])
        if dated := re.search(rf"\b({'|'.join(MONTHS)})[a-z]* (20\d\d)\b", words.lower()):
            return int(dated[2]) * 100 + MONTHS.index(dated[1]) + 1
    return None


def _spellings(row: RowFields) -> dict[str, Fact]:
    """Return the canonical names of a row's attention kernel, schedule, method, formats and LoRA targets."""
    kernel = row.text("layout.attention").strip().lower()
    method, stored = _joined(row.text("layout.method")), _joined(row.text("layout.quantization"))
    found: dict[str, Fact] = {
        "attention": KERNELS.get(kernel, kernel),
        "schedule": schedule_named(row.text("layout.schedule")),
        "method": "full" if method in FULL_TRAINING else method,
    }
    if stored in QUANTIZED and row.text("layout.quantization"):
        found["quantization"] = QUANTIZED[stored] or "none"
    targets = _targets(row.part("layout").get("lora_targets"))
    return found | ({"lora_targets": targets} if targets else {})


def _joined(text: str) -> str:
    return re.sub(r"[ -]+", "_", text.strip().lower())


def _targets(value: Fact) -> list[str]:
    """Return the LoRA target modules by canonical name; an unknown one stays as it is."""
    words = value if isinstance(value, list) else re.split(r"[\s,+]+", str(value or ""))
    spelled = [str(word).strip() for word in words if str(word).strip()]
    return list(dict.fromkeys(LORA_TARGETS.get(word.lower(), word) for word in spelled))


def _recomputation(row: RowFields, titan: bool) -> dict[str, Fact]:
    """Return what is recomputed, whether a recipe's own flags decide it, and whether activations are offloaded."""
    kind, said = row.text("layout.recompute_kind").lower(), row.text("layout.recompute")
    words = said.strip().lower()
    found: dict[str, Fact] = {}
    if "per-op" in words or "per op" in words:
        found["recompute_kind"] = "operations"
    elif words not in ("", "unstated", RECIPE) or kind not in ("", "unstated"):
        kind = kind or recomputation(words) or "other"
        found["recompute_kind"] = "operations" if titan and "selective" in words and kind != "selective" else kind
    elif kind:
        found["recompute_kind"] = None
    if said == RECIPE:
        found["recipe_defaults"] = True
    if "offload" in f"{words} {row.text('layout.optimizer')}".lower():
        found["activation_offload"] = True
    return found


def _nominal(row: RowFields) -> dict[str, Fact]:
    """Return the parameters that a model's nominal size or name states (`200B`)."""
    found = re.search(r"([\d.]+) ?B\b", f"{row.text('model.params_nominal')} {row.text('model.name')}")
    if found:
        return {"params_nominal": float(found[1]) * 1e9}
    return {"params_nominal": None} if row.text("model.params_nominal") else {}


def _figure(row: RowFields) -> dict[str, Fact]:
    """Return what a printed figure of memory is, its bytes, and whether it was drawn from a formula."""
    what, kind = row.text("memory.what").strip().lower(), row.text("memory.kind").lower()
    words = what or ("" if "unstated" in kind else kind)
    found: dict[str, Fact] = {"what": next((name for word, name in FIGURES.items() if word in words), what)}
    if "analytic" in kind:
        found["analytic"] = True
    if not row.number("memory.bytes"):
        found["bytes"] = _bytes(row)
    return found


def _bytes(row: RowFields) -> float | None:
    """Return a printed figure in bytes by the unit of its field, or GiB where the row's words say so."""
    for field, size in UNITS.items():
        value = row.number(f"memory.{field}")
        if value:
            unit = row.text("memory.unit").lower()
            binary = field == "gb" and any(word in unit for word in BINARY)
            return value * (2**30 if binary else size)
    return None
