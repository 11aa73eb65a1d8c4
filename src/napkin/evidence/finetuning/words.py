"""What a row of fine-tuning says in words alone: the library and what divides its model, and the model's shape."""

from __future__ import annotations

import re

from napkin.evidence.finetuning.software import STORED
from napkin.evidence.prose.recognize import Fact, Facts
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.words import library_of
from napkin.inputs.presets import is_preset

SHARDED_BY = (
    ("lit-?(gpt|llama)", "litgpt"),
    ("megatron(-core|-lm|-bridge)?|mcore", "megatron-core"),
    ("deepspeed|zero-?[123]", "deepspeed"),
    ("fsdp[12]?|dtensor|fully_shard", "fsdp"),
    ("ddp|distributeddataparallel", "ddp"),
)
"""Words of a framework, and what they say divides the model."""


TUNED_FROM = {"vicuna": "llama", "alpaca": "llama", "wizardlm": "llama", "guanaco": "llama", "zephyr": "mistral"}
"""Names of fine-tunes, and the family that they were tuned from, whose sizes they have (lm-sys/FastChat
docs/vicuna_weights_version.md; tatsu-lab/stanford_alpaca README; alignment-handbook recipes/zephyr-7b-beta)."""
OTHER_SHAPES = re.compile(r"llava|vision|clip|blip|video|audio|omni|moe|^vl$|^\d+x\d+b$")
"""Words of names that say that a model is more than the one it was made from."""
SIZE = re.compile(r"\d+(\.\d+)?[bm]$")


def within(name: str) -> str:
    """Return the preset whose name, with a size, a fine-tune's name contains (`dolphin-2.6-mistral-7b`), "" if none."""
    words = name.rpartition("/")[2].lower().replace("_", "-").replace(" ", "-").split("-")
    words = [TUNED_FROM.get(word, word) for word in words]
    if any(OTHER_SHAPES.search(word) for word in words):
        return ""
    parts = (words[first:last] for first in range(len(words)) for last in range(len(words), first, -1))
    names = ("-".join(part) for part in parts if any(SIZE.fullmatch(word) for word in part))
    return max((one for one in names if is_preset(one)), key=len, default="")


TASK_WORDS = {
    **dict.fromkeys(("supervised fine-tuning", "fine-tuning", "finetuning", "instruction tuning"), "sft"),
    **dict.fromkeys(("pretraining", "pretrain", "continued pretraining"), "sft"),
    **dict.fromkeys(("ipo",), "dpo"),
    **dict.fromkeys(("reward model", "reward modeling", "reward-model", "reward_model"), "rm"),
    **dict.fromkeys(("dapo", "gspo"), "grpo"),
}
"""Words for what is trained on, and the task that runs the same passes: whatever data all tokens are of; another loss
of the same log-probabilities."""
LIKE_LORA = {
    **dict.fromkeys(("qlora", "rslora", "lora+", "loraplus", "pissa", "loftq"), "lora"),
    **dict.fromkeys(("qdora",), "dora"),
}
"""Kinds with LoRA's operations: over quantized weights, with another scale, another rate for B, other first values."""
VIRTUAL_TOKENS = {"prompttuning": "prompt", "ptuning": "p-tuning", "prefixtuning": "prefix"}
"""Kinds that train tokens in front of a sequence, and what --adapter calls them (ChatGLM's P-tuning v2 trains keys and
values, as prefix tuning)."""
OVER_QUANTIZED = dict.fromkeys(("qlora", "qdora"), "nf4")
"""Kinds whose name says that frozen weights are quantized, and to what by default (Dettmers et al. 2023)."""
ALL_WEIGHTS = re.compile(
    r"full( (parameters?|params?|weights?|model))?( (fine ?tun(e|ing)|sft|training|ft))?|fft|all (weights|parameters)"
)
NESTED = re.compile(r"double|nested|\bdq\b")
FORMATS = (
    (r"\b(gptq|awq)\b(?!.*8)", "int4"),
    (r"\bnf4\b|\bfp4\b|\b4[ _-]?bits?\b|load_in_4bit", "nf4"),
    (r"\bint8\b|\b8[ _-]?bits?\b|load_in_8bit", "int8"),
)
"""Words of a format of frozen weights: bitsandbytes' two of 4 bits are as large and as slow as each other."""
ATTENTION, FEED_FORWARD = ("q", "k", "v", "o"), ("gate", "up", "down")
PARTS = {
    **dict.fromkeys(("attention", "attn", "self-attention", "qkvo"), ATTENTION),
    "qkv": ATTENTION[:3],
    **dict.fromkeys(("mlp", "ffn", "feed-forward"), FEED_FORWARD),
    **{f"w{name}": (name,) for name in ATTENTION},
}
"""Words for several of the modules that have adapters, and Meta's names of those of attention."""
IDLE = ("only", "layers", "modules", "projections", "and", "")


def of_tuning(row: RowFields) -> Facts:
    """Return the facts that words state and that have no field, in the names that the fields have."""
    words = row.text("layout.framework").lower()
    found = {"trainer": library_of(words), "stack": _sharded_by(words)}
    layout: dict[str, Fact] = {field: name for field, name in found.items() if name and not row.text(f"layout.{field}")}
    said = row.text("task")
    kind, stored = row.text("method.kind"), row.text("method.quantized") or row.text("method.quantised")
    method: dict[str, Fact] = {"kind": kind_named(kind)} if kind else {}
    if named := stored_named(stored) if stored else OVER_QUANTIZED.get(_joined(kind), ""):
        method["quantized"] = named
    if not row.text("method.lora_targets_canonical") and (names := targets_named(row.text("method.lora_targets"))):
        method["lora_targets_canonical"] = names
    return {"layout": layout, "method": method, "": {"task": task_named(said)} if said else {}}


def task_named(words: str) -> str:
    """Return the task that words name; unknown words as they are."""
    said = words.strip().lower()
    return TASK_WORDS.get(said, said)


def kind_named(words: str) -> str:
    """Return what words say is trained: full, or a kind of adapter; unknown words as they are."""
    said = words.strip().lower()
    if ALL_WEIGHTS.fullmatch(re.sub(r"[-_ ]+", " ", said)):
        return "full"
    return {**LIKE_LORA, **VIRTUAL_TOKENS}.get(_joined(said), said)


def _joined(words: str) -> str:
    return re.sub(r"[-_ ]+", "", words.strip().lower())


def stored_named(words: str) -> str:
    """Return the format of frozen weights that words name, "" if the field's own words do, or they are not known."""
    said = words.strip().lower()
    if said in STORED or (said.partition(" (")[0] in STORED and not NESTED.search(said)):
        return said if said != words else ""
    found = next((name for spelling, name in FORMATS if re.search(spelling, said)), "")
    return "nf4-dq" if found == "nf4" and NESTED.search(said) else found


def targets_named(words: str) -> str:
    """Return the modules with adapters where words name several at once, in brackets, or as Meta's code does; "" where
    the field's own words do."""
    said = re.sub(r"[\[\]\"']", "", words.strip().lower())
    parts = [part for part in re.split(r"[\s,+&/]+", said) if part not in IDLE]
    names = [name for part in parts for name in PARTS.get(part, (part,))]
    if "(" in said:  # a remark
        return ""
    return ",".join(dict.fromkeys(names)) if names != parts or said != words.strip().lower() else ""


def _sharded_by(words: str) -> str:
    return next((name for spelling, name in SHARDED_BY if re.search(rf"\b({spelling})\b", words)), "")
