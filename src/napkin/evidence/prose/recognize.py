"""Recognize names, versions and units in the free text of a published row, and write them into its fields.

Only steps.py, kernels.py, memory.py and what they share here look for words; rows/words.py lists them. People state
facts in prose ("bf16 (fp32 gradient accumulation)", a page's title that names the software, "8x 200 Gbit/s HDR per
node"); the predictions read the fields that are filled here. The shipped evidence (configs/evidence/*.yaml) states the
fields itself and does not pass through here. A spelling that is not known stays as it is, and whoever reads the field
refuses it by name.

Fields filled for a training step:
    layout.stack                software stack (software/stacks.py), from the framework, title and place of the source
    layout.attention            attention kernel, if it is not the stack's usual one
    layout.newer_attention      that of a later release, if the release is not stated
    layout.recompute_layers     share of the layers whose forward pass runs again, if only some do
    layout.recompute_matmuls    share of the matmuls that run again
    layout.gradient_dtype       fp32 where gradients are reduced in fp32
    layout.scaling              rowwise: one fp8 scale a row            layout.policy   number formats (precision.py)
    layout.chunked_cross_entropy                                        the loss materializes no logits
    layout.loss_form            a form of Megatron-core's fused loss, which materializes them (operations/losses.py)
    layout.layer_kernels        liger: norms, rotary embeddings and gated MLPs run its kernels
    layout.batch_tokens         tokens of a global batch
    hardware.network            byte/s per accelerator to other nodes        hardware.fabric   its kind
    model.window                sliding window of every other layer, in tokens
    model.experts.bias, model.experts.clamp
                                1 where experts of the preset that a row names have biases, and clamp gate and up
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

from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.words import (
    FUSES_LOSS,
    LIGER_WORD,
    OFFLOADED,
    PLAIN_LOSSES,
    fuses_loss,
)
from napkin.training.versions import month_of

Fact = str | float | bool | list[str] | Mapping[str, object] | None
"""The canonical value of a field; None: not stated."""
Facts = dict[str, dict[str, Fact]]
"""Section of a row → field → value; "": of the row itself."""


def recognized(row: RowFields, facts: Callable[[RowFields], Facts]) -> RowFields:
    """Return the row with the facts that `facts` (`of_step` or `of_memory`) finds in its prose added to its fields."""
    fields = dict(row.fields)
    for section, found in facts(row).items():
        if found:
            fields |= {section: {**row.part(section), **found}} if section else found
    return row.replaced(fields)


def loss_of(row: RowFields) -> dict[str, Fact]:
    """Return whether the words of a row's loss, of its kernels or of its framework name a loss that materializes no
    logits, and whether layers run Liger's kernels."""
    found: dict[str, Fact] = {}
    if LIGER_WORD in f"{row.text('layout.kernels')} {row.text('layout.framework')}".lower():
        found |= {"chunked_cross_entropy": True, "layer_kernels": LIGER_WORD}
    if not row.text("layout.loss") and any(name in words_of_source(row) for name in FUSES_LOSS):
        found["chunked_cross_entropy"] = True
    for field in ("loss", "kernels"):
        words = row.text(f"layout.{field}").strip().lower().replace("-", " ")
        if fuses_loss(words):
            found |= {"chunked_cross_entropy": True, field: None}
        elif words.replace(" ", "_") in PLAIN_LOSSES:
            found[field] = None
    return found


def offloads_of(row: RowFields, weighed: bool) -> dict[str, Fact]:
    """Return what `layout.offload` says is in the host's memory, under a name for each. The time of parameters that
    are there is not known: it stays as it is."""
    words = [word.strip().lower() for word in row.text("layout.offload").split(",")]
    names = {OFFLOADED.get(word, "") for word in words}
    if "" in names or not (weighed or names <= {"activations", "optimizer"}):
        return {}
    fields = {"optimizer": "optimizer_offload", "activations": "activation_offload", "parameters": "cpu_offload"}
    return {"offload": None, **dict.fromkeys((fields[name] for name in names), True)}


def batch_tokens_of(row: RowFields) -> dict[str, Fact]:
    """Return the tokens of a batch stated as `0.5M`, in which M is 2²⁰; other words say nothing."""
    said = row.part("layout").get("batch_tokens")
    if not isinstance(said, str):
        return {}
    tokens = re.fullmatch(r"(\d+(?:\.\d+)?)M", said)
    return {"batch_tokens": float(tokens[1]) * 2**20 if tokens else None}


def window_of(row: RowFields) -> dict[str, Fact]:
    """Return the sliding window of `alternating sliding window 128 and full`."""
    window = re.search(r"window (\d+)", row.text("model.attention"))
    return {"window": int(window[1])} if window else {}


def stated(found: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return the facts without those that words leave open."""
    return {key: value for key, value in found.items() if value != ""}


def words_of_source(row: RowFields) -> str:
    """Return what a row says of its software and its source, in lower case."""
    places = ("layout.framework", "source.title", "source.where", "memory.kind")
    return " ".join(row.text(path) for path in places).lower()


DATED = ("layout.versions", "layout.version", "layout.framework", "source.where", "source.title")
"""Fields whose words may name the month of a framework's code; the first that does counts."""


def date_of(row: RowFields) -> int | None:
    """Return the year and month (202506) that a row's version or framework, or its source's place or title, states, as
    202506, 2025-06 or June 2025; None if none does."""
    return next((month for path in DATED if (month := month_of(row.text(path)))), None)


def month_or_year_of(row: RowFields) -> int | None:
    """Return `date_of`, else the last month of the year that the source's title names; None if neither is stated."""
    year = re.search(r"\b20[12]\d\b", row.text("source.title"))
    return date_of(row) or (int(year[0]) * 100 + 12 if year else None)
