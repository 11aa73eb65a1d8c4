"""Words by which rows say what is recomputed in backward, and of how many layers."""

from __future__ import annotations

import re

from napkin.options.training import MODULES, selective
from napkin.training.recomputation import recompute

RECIPE = "recipe default"
"""What rows say of flags that are a recipe's, and which their source does not state."""
NO = frozenset(("none", "no", "off", "false", "disabled", "without"))
MOVED = frozenset(("unsloth", "offload", "offloaded", "offloading", "cpu"))
"""Words for checkpoints whose inputs wait on the host: all layers, of which the bytes are read where they matter."""
FULL = MOVED | {"full", "fully", "yes", "on", "true", "enabled", "uniform", "all", "every", "each"}
"""Words for all of it. Megatron-LM's method `uniform` divides all layers into units, of which each is recomputed."""
SELECTIVE = frozenset(("selective", "selectively", "sac", "attention", "attn", "core", "op"))
"""Words for a part of each layer, which the software decides: the core of attention, or every second matmul."""
ACTIVATIONS = frozenset(("activation", "activations", "gradient", "gradients", "checkpointing", "checkpoint", "ac"))
ACT = ACTIVATIONS | {"checkpoints", "recompute", "recomputation", "recomputed", "recomputing", "remat"}
"""Words for recomputation itself: alone, they say that there is some, of all layers."""
NEUTRAL = ACT | {"granularity", "method", "mode", "layer", "layers", "of", "the", "only", "is", "with"}
SOME = re.compile(r"layer|block|some|every|except|only|\d+ of |%|per-op|^\d+\)?$")
"""Words of a remark that say that less is recomputed, or something else."""


def recomputation(words: str) -> str:
    """Return what words for recomputation mean: none, selective, full, or parts of layers by name; "" if they are not
    known. A remark in parentheses is ignored if it says where this is from (`full (--checkpoint-activations)`), not if
    it says how much (`full (10 of 80 layers)`)."""
    if parts := parts_named(words):
        return parts
    head, opened, remark = words.strip().lower().partition(" (")
    if opened and SOME.search(remark):
        return ""
    said = re.findall(r"[a-z]+|\d+", re.sub(r"\buniform[ /,]+\d+\b", "uniform", head))
    rest = {word for word in said if word not in NEUTRAL}
    if rest & NO:
        return "none" if rest <= NO else ""
    if rest & SELECTIVE:
        return "selective" if rest <= SELECTIVE | {"on", "true", "enabled"} else ""
    if rest:
        return "full" if rest <= FULL else ""
    return "full" if ACT & set(said) else ""


def parts_named(words: str) -> str:
    """Return what `--recompute` calls the modules of a layer that words name in Megatron-core's way (`selective:
    moe_act, layernorm`, or `moe_act layernorm`, which are its spellings alone), "" if they name none or say more."""
    said = set(re.findall(r"[a-z_]+", words.lower()))
    names = said.intersection(MODULES)
    stated = {"selective", "modules", "recompute_modules"}
    others = said - names - stated - NEUTRAL - {"and", "recompute_granularity"}
    spelled = any("_" in name for name in names)
    if not names or others or not (spelled or said & stated) or re.search(r"\d", words):
        return ""
    return selective(tuple(names))


def is_of_parts(kind: str) -> bool:
    """Return whether a kind of recomputation names parts of layers: `selective:moe_act+layernorm`."""
    return kind.startswith("selective:") and bool(recompute(kind).parts)


COUNTED = re.compile(r"\b(\d+)(?: ?/ ?| (?:out )?of (?:the )?| in )(\d+)\b")
"""`30 of 80 layers`, `1 in 3 layers`."""
PERIOD = re.compile(r"\bevery (\d+)(?:st|nd|rd|th)? (?:layer|block)s?\b|\bselective[ (,]+(\d+)\)?$")
"""`every 2 layers`; torchtitan's `selective` with a number in place of `op`."""
PERCENT = re.compile(r"\b(\d+) ?% of (?:the )?(?:layers|blocks)\b")
HALF = re.compile(
    r"\bevery (?:other|second) (?:layer|block)\b|\bhalf (?:of )?(?:the )?(?:layers|blocks)\b|\bsome blocks\b"
)
NUMBER = re.compile(r"\b(\d+) (?:layers|blocks)\b")
"""A number of the model's layers."""


def share_of_layers(words: str, layers: int) -> float | None:
    """Return the share of the layers that words count; None if they count none. layers: of the model, 0 if a number
    alone may be of each pipeline stage."""
    said = words.strip().lower()
    if "uniform" in said:  # a number of layers is that of a unit
        return None
    if HALF.search(said):
        return 0.5
    if found := PERIOD.search(said):
        some, every = 1, int(found[1] or found[2])
    elif found := PERCENT.search(said):
        some, every = int(found[1]), 100
    elif found := COUNTED.search(said):
        some, every = int(found[1]), int(found[2])
    elif found := NUMBER.search(said):
        some, every = int(found[1]), layers
    else:
        return None
    return some / every if 0 < some <= every else None


PARTS_RECOMPUTED = (
    (("custom", "qkv_proj"), "layers", 0.9),  # all but the projections of q, k and v
    (("per-op",), "matmuls", 0.5),  # every second matmul
)
"""Words for what is recomputed of a step, what they count, and its share."""
