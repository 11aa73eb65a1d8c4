"""Recognize what the prose of a published row of a training step states."""

from __future__ import annotations

import re

from napkin.evidence.prose.kernels import kernels_of
from napkin.evidence.prose.recognize import (
    Fact,
    Facts,
    batch_tokens_of,
    date_of,
    loss_of,
    month_or_year_of,
    offloads_of,
    stated,
    window_of,
    words_of_source,
)
from napkin.evidence.rows.fields import known_accelerator
from napkin.evidence.rows.models import preset_model, preset_of
from napkin.evidence.rows.networks import network_of
from napkin.evidence.rows.printed import LAYERS_OF
from napkin.evidence.rows.recomputation import PARTS_RECOMPUTED, RECIPE, recomputation, share_of_layers
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.teams import source_of
from napkin.evidence.rows.words import (
    AUTOCAST,
    CUDNN_9_4,
    CUDNN_9_4_MLPERF,
    DEEPSPEED,
    FUSED_EXPERTS,
    OPEN_PRECISION,
    PRECISIONS,
    SHARDERS,
    STACK_WORDS,
    graphs_named,
    library_of,
)
from napkin.inputs.hardware import RACK
from napkin.options.training import WHOLE
from napkin.training.framework import FSDP
from napkin.training.precision import POLICIES
from napkin.training.trainers import TRAINERS


def of_step(row: RowFields) -> Facts:
    """Return the facts that the prose of a row of a training step states."""
    layout: dict[str, Fact] = {}
    stack = _stack(row)
    layout["stack"] = stack
    layout["attention"], layout["newer_attention"] = kernels_of(row, stack)
    layout["dispatcher"] = row.text("layout.dispatcher") or _dispatcher(row)
    layout |= _recomputed_in_time(row) | _micro_batch_of(row)
    precision = row.text("layout.precision")
    if not row.text("layout.policy"):
        layout["policy"] = policy_of(precision)
    if "rowwise" in precision:
        layout["scaling"] = "rowwise"
    if "fp32 gradient" in precision.lower() or _reduces_fp32(row, stack):
        layout["gradient_dtype"] = "fp32"
    layout |= batch_tokens_of(row) | loss_of(row) | offloads_of(row, weighed=False)
    formula = row.text("convention.formula")
    return {
        "layout": stated(layout),
        "hardware": {**network_of(row)},
        "model": {**unprinted(row), **window_of(row)},
        "convention": {"rule": rule_of(formula)} if formula else {},
        "source": {"key": row.text("source.key") or source_of(row.text("source.title"))},
    }


def unprinted(row: RowFields) -> dict[str, Fact]:
    """Return what tables do not print of the preset that a row names: the window of every other layer, and whether
    experts have biases, clamp gate and up, and are chosen by groups."""
    printed, preset = row.part("model").get("experts"), preset_of(row)
    if preset is None or len(preset.stacks) > 1:
        return {}
    operations = [(count, op) for _, count, layer in preset.stacks[0].kinds() for op in layer.operations]
    found: dict[str, Fact] = {}
    routed = next((one for _, op in operations if (one := op.routed()) is not None), None)
    if routed is not None and isinstance(printed, dict):
        limited = {} if routed.groups == 1 else {"groups": routed.groups, "chosen_groups": routed.chosen_groups}
        found["experts"] = {"bias": int(routed.bias), "clamp": int(routed.clamped), **limited, **printed}
    windows: dict[int, int] = {}
    for count, op in operations:
        if (core := op.attends()) is not None:
            windows[core.window or 0] = windows.get(core.window or 0, 0) + count
    if len(windows) == 2 and windows.get(0) == preset.stacks[0].depth / 2:
        found["window"] = max(windows)
    return found


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


MEGATRON_LM = re.compile(r"megatron[-_ ]?lm")
"""What names NVIDIA/Megatron-LM's own training script, not a program on Megatron-core."""
OF_MEGATRON_CORE = "megatron-core"


def _reduces_fp32(row: RowFields, stack: str) -> bool:
    """Return whether gradients are reduced in fp32 because the row's script does so with bf16 weights unless
    --grad-reduce-in-bf16 is given (NVIDIA/Megatron-LM megatron/training/arguments.py, validate_args:
    accumulate_allreduce_grads_in_fp32). Programs on Megatron-core choose for themselves; NVIDIA's recipes for the speed
    that it publishes reduce in bf16 (NVIDIA-NeMo/Megatron-Bridge scripts/performance: grad_reduce_in_fp32)."""
    if row.text("layout.gradient_dtype") or not stack.startswith(OF_MEGATRON_CORE):
        return False
    # not source.where: others' runs are filed there
    named = f"{row.text('layout.framework')} {row.text('source.title')}".lower()
    return MEGATRON_LM.search(named) is not None and "bf16" in row.text("layout.precision").lower()


AUTOMODEL = "automodel"
"""Its benchmarks dispatch by DeepEP (NVIDIA-NeMo/Automodel docs/performance-summary.mdx, Kernel Optimizations)."""


def _dispatcher(row: RowFields) -> str:
    """Return what takes tokens to their experts, where the words of a row's software say it; "" if not."""
    return "deepep" if any(word in words_of_source(row) for word in ("deepep", "hybridep", AUTOMODEL)) else ""


TITAN = "torchtitan"
"""Its configurations recompute every second matmul unless they say otherwise (torchtitan/config/job_config.py,
ActivationCheckpoint: mode selective, selective_ac_option op; train_configs/llama3_8b.toml)."""


EACH_STAGE, EACH_CHUNK, SINGLE = "one for each stage", "one for each chunk of a stage", "of one sequence"
MICRO_BATCHES = ((202504, SINGLE), (202501, EACH_CHUNK), (0, EACH_STAGE))
"""The month from which on torchtitan splits a rank's batch into so many micro-batches unless a run says otherwise
(pytorch/torchtitan pull requests 781 of January 2025 and 1073 of April 2025)."""


def _micro_batch_of(row: RowFields) -> dict[str, Fact]:
    """Return the micro-batch of a pipeline of which a row states a rank's batch alone, where its software's default is
    known."""
    local, pp, date = row.positive("layout.local_batch"), row.count("layout.pp") or 1, date_of(row)
    if not local or pp == 1 or row.positive("layout.micro_batch") or not date or TITAN not in words_of_source(row):
        return {}
    how = next(each for since, each in MICRO_BATCHES if date >= since)
    chunks = row.count("layout.vp") if how == EACH_CHUNK else 1
    if how == SINGLE or chunks is None:
        return {"micro_batch": 1} if how == SINGLE else {}
    return {"micro_batch": local / (pp * chunks)} if local % (pp * chunks) == 0 else {}


def _recomputed_in_time(row: RowFields) -> dict[str, Fact]:
    """Return what is recomputed, if a row states it only in words; unknown words are kept."""
    words, stated = row.text("layout.recompute").strip().lower(), row.text("layout.recompute_kind")
    if words == RECIPE:
        return {"recipe_defaults": True}
    if words in ("", "unstated"):
        return {} if stated or TITAN not in words_of_source(row) else {"recompute_kind": "selective"}
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


def stack_of(row: RowFields) -> str:
    """Return the software stack that the words of the row's source and `layout.compile` name, "" if none."""
    words = words_of_source(row)
    found = next((stack for word, stack in STACK_WORDS if word in words), None)
    compiled = row.flag("layout.compile")
    if compiled is None and COMPILED.search(row.text("layout.framework").lower()):
        compiled = True
    if found is None:
        library = TRAINERS.get(library_of(row.text("layout.framework")))
        own = TORCH.search(row.text("layout.framework").lower()) or (library and library.of_transformers)
        return FSDP[bool(compiled)] if own else ""
    if found == "megatron-core" and (month_or_year_of(row) or CORE) < CORE:
        return "megatron"
    if found in ("megatron-core", "megatron-mlperf"):
        return edition(found, words, row)
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


RELEASE = re.compile(r"\b(?:container|nemo)[ :/]+(\d\d)\.(\d\d)")
"""The year and month of one of NVIDIA's containers: `container 26.06`, `nvcr.io/nvidia/nemo:26.06`."""


def attends(row: RowFields) -> bool:
    """Return whether every layer of a row's model has attention. Recipes capture an iteration of such models alone:
    those with state spaces capture parts (NVIDIA-NeMo/Megatron-Bridge v0.5.0 scripts/performance/configs/nemotronh/
    nemotron_3_workload_base_configs.py)."""
    name = row.text(f"model.{LAYERS_OF}")
    if not name:
        return True
    layers = [layer for _, layer in preset_model(name).stacks[0].runs if layer.block]
    return all(any(op.attends() is not None for op in layer.operations) for layer in layers)


def edition(stack: str, words: str, row: RowFields) -> str:
    """Return the edition of Megatron's core by the release of a container that the words name and the row's precision,
    or of its stack for MLPerf by the round; today's if they name none."""
    release = RELEASE.search(f"{words} {row.text('layout.versions').lower()}")
    round_of = re.search(r"mlperf training v(\d)\.(\d)", words)
    if stack == "megatron-mlperf":
        return f"{stack}-2023" if round_of and (int(round_of[1]), int(round_of[2])) < CUDNN_9_4_MLPERF else stack
    if release is None:
        return stack
    found = (int(release[1]), int(release[2]))
    policy = row.text("layout.policy") or policy_of(row.text("layout.precision"))
    captured = graphs_named(row.text("layout.graphs")) in ("", WHOLE)
    if found >= FUSED_EXPERTS and policy == "mxfp8-mixed" and captured and is_joined(row) and attends(row):
        return f"{stack}-2026"
    return f"{stack}-2024" if found < CUDNN_9_4 else stack


def is_joined(row: RowFields) -> bool:
    """Return whether a run's accelerators are on one link, or in racks that one joins."""
    card = known_accelerator(row)
    joined = (card.devices_per_node if card else None) or row.count("hardware.per_node") or RACK
    return joined > RACK or (row.count("hardware.count") or 1) <= joined


COMPILED = re.compile(r"\btorch\.compile\b|\bcompiled\b")
COMPILES = re.compile(r"\b(torchtitan|fms)\b")
"""Whose benchmarks compile: torchtitan from its notes of December 2024 on, not on its first page; fms from May 2024."""
TORCH = re.compile(r"\b(pytorch|torch|lightning)\b")
"""Words that name PyTorch's own layers, where none names other software."""
CORE = 202301
"""The month from which on Megatron-LM has its core (NVIDIA/Megatron-LM megatron/core)."""


def rule_of(formula: str) -> str:
    """Return how a source counts FLOPs: narayanan, full or causal attention; "" if it prints none."""
    if formula == "narayanan":
        return formula
    if not formula or formula.startswith("none"):
        return ""
    return "causal" if "causal" in formula else "full"
