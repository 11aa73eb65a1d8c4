"""Recognize what the prose of a published row of memory states."""

from __future__ import annotations

import re

from napkin.evidence.prose.recognize import (
    Fact,
    Facts,
    batch_tokens_of,
    date_of,
    loss_of,
    offloads_of,
    stated,
    window_of,
    words_of_source,
)
from napkin.evidence.rows.recomputation import RECIPE, recomputation
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.words import (
    BINARY,
    EDITION_WORDS,
    FIGURES,
    FRAMEWORK_WORDS,
    FULL_TRAINING,
    KERNELS,
    LORA_TARGETS,
    MEMORY_STACKS,
    QUANTIZED,
    TORCH,
    UNITS,
    fused_loss,
    library_of,
    schedule_named,
)
from napkin.evidence.software.scripts import scripts_named
from napkin.training.frameworks import FRAMEWORKS, PLAIN
from napkin.training.recomputation import OPERATIONS
from napkin.training.trainers import TRAINERS


def of_memory(row: RowFields) -> Facts:
    """Return the facts that the prose of a row of memory states."""
    return {
        "layout": stated(_memory_layout(row)),
        "model": _nominal(row) | window_of(row),
        "memory": stated(_figure(row)),
    }


def framework_of(row: RowFields) -> str:
    """Return the framework that a row names, else the one that its source's title or place does, "" if none. Titles of
    some papers name an edition of it, which counts first. torch itself is one loop around the model, or its FSDP where
    ZeRO-2 or 3 divides that. A library that trains Hugging Face's classes, named alone, shards by DeepSpeed where it
    says a stage of ZeRO."""
    said, words = row.text("layout.framework").lower(), words_of_source(row)
    stage = row.count("layout.zero", least=0) or 0
    named = _first(EDITION_WORDS, words) or _first(FRAMEWORK_WORDS, said)
    if not named and TORCH.search(said):
        return "fsdp" if stage > 1 else PLAIN.name
    named = named or _first(FRAMEWORK_WORDS, words)
    library = TRAINERS.get(library_of(said))
    if named or library is None or not library.of_transformers:
        return named
    return "deepspeed" if stage else PLAIN.name


def _first(table: tuple[tuple[str, str], ...], words: str) -> str:
    """Return what the first word of a table that occurs names, "" if none does."""
    return next((name for word, name in table if word in words), "")


def _memory_layout(row: RowFields) -> dict[str, Fact]:
    framework = framework_of(row)
    found = batch_tokens_of(row) | loss_of(row) | offloads_of(row, weighed=True)
    if framework or row.text("layout.framework"):
        found["framework"] = framework or None
    named = framework, MEMORY_STACKS.get(row.text("layout.stack").lower(), "")
    version = date_of(row) or month_of(row)
    if version:
        found["framework_version"] = version
    grows = any(name in FRAMEWORKS and FRAMEWORKS[name].grows for name in named)
    if grows and row.flag("layout.expandable_segments") is None and by_own_script(row, version):
        found["expandable_segments"] = True
    scripts = scripts_named(framework)
    single = any(scripts_named(name).selective == OPERATIONS for name in named)
    form = fused_loss(row.text("layout.loss"), dict(scripts.fused_losses))
    if form:
        found |= {"loss_form": form, "loss": None, "chunked_cross_entropy": None}
    precision = row.text("layout.precision").lower()
    if not row.text("layout.policy") and "pure" in precision:
        found["policy"] = "bf16-pure"
    if "fp32 gradient accumulation" in precision or "fp32 accumulation" in precision:
        found["accumulation"] = "fp32"
    if "embedding layers count" in row.text("layout.pp_partition"):
        found["pp_partition"] = "slots"
    spelled = _spellings(row)
    if not spelled["attention"] and re.search(r"\blocal\b", row.text("layout.framework").lower()):
        spelled["attention"] = scripts.local_attention
    return found | spelled | _recomputation(row, single)


CONTAINER = re.compile(r"\bcontainer,?:? (2\d)\.(0[1-9]|1[0-2])\b|\b(2\d)\.(0[1-9]|1[0-2])(?:\.\d+)? container\b")
"""NVIDIA's containers have the month of their software (container 26.01)."""
CORE = re.compile(r"\bcore[ _-]r?v?0\.(\d+)\b")
CORE_RELEASES = {8: 202408, 9: 202410, 10: 202502, 11: 202503, 12: 202505, 13: 202507, 14: 202510, 15: 202512}
CORE_RELEASES |= {16: 202602, 17: 202604, 18: 202606, 19: 202608}
"""Second part of a release of Megatron-core, 0.x.0, and its month (the tags core_v0.x.0 of NVIDIA/Megatron-LM)."""


def month_of(row: RowFields) -> int | None:
    """Return the year and month of the container or of the release of Megatron-core that a row names."""
    words = f"{words_of_source(row)} {row.text('layout.container')} {row.text('layout.versions')}".lower()
    if found := CONTAINER.search(words):
        year, month = (part for part in found.groups() if part)
        return int(f"20{year}{month}")
    found = CORE.search(words)
    return CORE_RELEASES.get(int(found[1])) if found else None


OWN_SCRIPT = re.compile(r"\brun_(llama_)?train\.sh\b")
"""torchtitan's own script, which turns on expandable segments since a5e57e4a9 of October 2024."""
TORCHAO, SCRIPTED = re.compile(r"\btorchao\b|pytorch/ao\b"), 202503
"""Software whose benchmarks and tutorials start torchtitan by that script, and since when (pytorch/ao
benchmarks/float8/training since 7963f9c05; docs/source/eager_tutorials/pretraining.rst)."""


def by_own_script(row: RowFields, version: int | None) -> bool:
    """Return whether torchtitan was started by its own script. version: year and month of the run's code."""
    words = f"{words_of_source(row)} {row.text('layout.launcher')} {row.text('note')}".lower()
    return bool(OWN_SCRIPT.search(words) or (TORCHAO.search(words) and version is not None and version >= SCRIPTED))


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


def _recomputation(row: RowFields, single: bool) -> dict[str, Fact]:
    """Return what is recomputed, whether a recipe's own flags decide it, and whether activations are offloaded. single:
    the framework calls it selective where single operations are recomputed."""
    kind, said = row.text("layout.recompute_kind").lower(), row.text("layout.recompute")
    words = said.strip().lower()
    found: dict[str, Fact] = {}
    if "per-op" in words or "per op" in words:
        found["recompute_kind"] = "operations"
    elif words not in ("", "unstated", RECIPE) or kind not in ("", "unstated"):
        kind = kind or recomputation(words) or "other"
        found["recompute_kind"] = "operations" if single and "selective" in words and kind != "selective" else kind
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
