"""Names that several frameworks share: models, optimizers, attention kernels, LoRA targets, precision policies."""

from __future__ import annotations

import re

from napkin.inputs.launch.low_rank import take_projected
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.values import Open, names
from napkin.inputs.presets import base_of, is_preset, is_published, preset
from napkin.inputs.republished import republished
from napkin.inputs.slips import among_others, slip_of
from napkin.options.optimizer_spellings import SPELLINGS, UNMODELED
from napkin.options.training import FROZEN_FORMATS

PURE, AUTOCAST, MASTER = "bf16-pure", "amp-bf16", "bf16-mixed"
FP16, FP8, FP32 = "fp16-mixed", "fp8-mixed", "fp32"
MEGATRON = "param=bf16,grad=fp32,compute=bf16,state=fp32,master=fp32"
"""Megatron-LM's bf16: fp32 gradient buffers (arguments.py, accumulate_allreduce_grads_in_fp32)."""

ADAMW = {
    **dict.fromkeys(("adam", "adam-pax", "mcore-distributed-optim", "adamw-apex-fused"), None),
    "adamw-torch-fused": "fused",
}
"""What launch files alone call AdamW → the form of torch's step if the name implies one: transformers
(training_args.py, OptimizerNames), apex, DeepSpeed, Composer, PaxML and Megatron-LM. "Adam" has decoupled weight decay
in DeepSpeed, apex and Megatron-LM; the states are the same either way."""
OPTIMIZERS = (
    *("adamw", "adamw-8bit", "adamw-4bit", "paged-adamw", "paged-adamw-8bit", "adam-8bit", "adafactor", "lion"),
    *("lion-8bit", "paged-lion", "paged-lion-8bit", "muon", "sgd", "adagrad", "rmsprop"),
    *("lamb", "sophia", "came", "nadam", "radam", "adam-mini", "rmsprop-32bit", "rmsprop-8bit"),
    *("lion-32bit", "ademamix", "ademamix-8bit", "paged-ademamix", "paged-ademamix-8bit"),
    *("schedule-free-adamw", "schedule-free-radam", "schedule-free-sgd"),
)
"""Optimizers that launch files name as napkin does, or by another spelling."""


def take_optimizer(reading: Reading, *keys: str) -> None:
    """Read an optimizer by name or class path; refuse unknown ones."""
    value = reading.find(*keys)
    if value is None:
        return
    key = next(key for key in keys if reading.source.get(key) is value)
    word = str(value.value).rsplit(".", 1)[-1].strip().lower().replace("_", "-")
    known = "adamw" if word in ADAMW else SPELLINGS.get(word, word)
    if isinstance(value.value, Open):
        reading.ask("optimizer", key)
        return
    if take_projected(reading, key, word):
        return
    if word == "lomo":  # no state: SGD whose step follows each gradient
        reading.assume("optimizer", "sgd", key)
        reading.put("optimizer-in-backward", True, key)
        return
    if known not in OPTIMIZERS:
        reading.ask("optimizer", key)
        near = slip_of(word, (*ADAMW, *SPELLINGS, *OPTIMIZERS), among_others)
        why = f", which {UNMODELED[known]}" if known in UNMODELED else f"; did you mean {near}?" if near else ""
        reading.refuse(key, f"napkin does not support optimizer {str(value.value)[:40]!r}{why}", "optimizer")
        return
    _put_optimizer(reading, key, known)
    form = ADAMW.get(word)
    if form:
        reading.put("optimizer-form", form, key)


def _put_optimizer(reading: Reading, key: str, known: str) -> None:
    """Keep an optimizer, with what transformers' optim_args add to the states of SGD and RMSprop (trainer_optimizer.py,
    _get_sgd and _get_rmsprop)."""
    text = reading.source.plain("optim_args")
    if known not in ("sgd", "rmsprop") or text is None:
        reading.put("optimizer", known, key)
        return
    stated = dict(one.strip().partition("=")[::2] for one in str(text).split(","))
    on = {name: stated.get(name, "").lower() in ("true", "1", "yes") for name in ("nesterov", "centered")}
    try:
        momentum = float(stated.get("momentum", "0"))
    except ValueError:
        raise reading.source.error("optim_args", f"momentum {stated['momentum'][:40]!r} is not a number") from None
    parts = ["momentum"] * (momentum != 0) + ["centered"] * (on["centered"] and known == "rmsprop")
    if known == "sgd" and parts and on["nesterov"]:
        parts = ["nesterov"]
    reading.derive("optimizer", "-".join((known, *parts)), key, "optim_args")


ATTENTION: dict[str, str | None] = {
    "flash_attention_2": "flash",
    "flash_attention_3": "cudnn",
    "flash_attention_4": "cudnn",
    "flash_attention": "flash",
    "flash_attn": "flash",
    "flash": "flash",
    "fa2": "flash",
    "fa3": "cudnn",
    "kernels_community/flash_attn2": "flash",
    "kernels_community/flash_attn3": "cudnn",
    "kernels_community/vllm_flash_attn3": "cudnn",
    "eager": "eager",
    "math": "eager",
    "torch": "eager",
    "disabled": "eager",
    "sdpa": "flash",
    "xformers": "efficient",
    "cudnn": "cudnn",
    "fused": "cudnn",
    "unfused": "eager",
    "local": "eager",
    "auto": None,
}
"""Attention kernel names. torch's sdpa picks flash for 16-bit inputs and a causal mask."""


def take_attention(reading: Reading, *keys: str) -> None:
    """Read the attention kernel; `sdpa` is assumed to select flash."""
    value = reading.find(*keys)
    if value is None:
        return
    key = next(key for key in keys if reading.source.get(key) is value)
    word = str(value.value).strip().lower().replace("-", "_")
    if word not in ATTENTION:
        reading.omit(key, f"napkin does not support attention kernel {str(value.value)[:40]!r}")
        return
    kernel = ATTENTION[word]
    if kernel is None:
        reading.ask("attention", key)
    elif word == "sdpa":
        reading.assume("attention", kernel, key)
    else:
        reading.put("attention", kernel, key)


_TARGETS = {
    "q_proj": "q",
    "k_proj": "k",
    "v_proj": "v",
    "o_proj": "o",
    "output_proj": "o",
    "gate_proj": "gate",
    "up_proj": "up",
    "down_proj": "down",
    "w1": "gate",
    "w3": "up",
    "w2": "down",
    "wqkv": "qkv",
    "query_key_value": "qkv",
    "linear_qkv": "qkv",
    "all_linear": "all",
    "all": "all",
}


def lora_targets(targets: list[str]) -> str:
    """Return LoRA target modules by napkin's names. What is named next to all linear layers stays, if it is none."""
    words = [_TARGETS.get(one.strip().lower().replace("-", "_"), one.strip().lower()) for one in targets]
    linear = set(_TARGETS.values()) - {"all"} if "all" in words else set()
    return ",".join(dict.fromkeys(one for one in sorted(words, key="all".__ne__) if one not in linear))


_ALTERNATIVES = re.compile(r"\((?:\?:)?([\w|]+)\)|(\w+)")
_ANYWHERE = re.compile(r"\.\*\.?(\w+)(?:\.\*)?")
_OTHER_SENSES = re.compile(r"vision|visual|image|audio|projector")
_EVERY_LAYER = re.compile(r"\[\\d\]\+|\\d\+|\[0-9\]\+")


def matched_targets(pattern: str) -> list[str] | None:
    """Return the module names at the end of a regular expression, as peft matches it: `.*(mlp|attn).(up|q)_proj`.

    None if the expression selects layers, excludes a part of the language model, or does not end in a list of names.
    """
    anywhere = [_ANYWHERE.fullmatch(one) for one in pattern.strip("^$").split("|")]
    if all(anywhere):
        return [one[1] for one in anywhere if one]
    front, _, last = pattern.strip("^$").rpartition(".")
    if any(not _OTHER_SENSES.search(one) for one in re.findall(r"\(\?!([^)]*)\)", front)):
        return None
    parts = list(_ALTERNATIVES.finditer(last))
    if not last or "".join(one[0] for one in parts) != last or re.search(r"\d", _EVERY_LAYER.sub("", front)):
        return None
    found = [""]
    for one in parts:
        found = [left + right for left in found for right in (one[1] or one[2]).split("|")]
    return found


def take_targets(reading: Reading, key: str, value: object) -> None:
    """Read LoRA targets as peft matches them: a list, names in a string, or a regular expression.

    A variable leaves them open, and so do listed words with commas. The names themselves are kept next to napkin's
    words for them: on a model that lacks a module peft passes over its name.
    """
    if isinstance(value, Open):
        reading.ask("lora-targets", key)
        return
    if isinstance(value, list) and any("," in str(one) for one in value):
        reading.ask("lora-targets", key, given=" ".join(str(one) for one in value))
        return
    if not isinstance(value, str) or not re.search(r"[|\\*+]", value):
        listed: list[str] | None = names(value)
        reading.put("lora-targets", lora_targets(listed or []), key)
    elif (listed := matched_targets(value)) is None:
        reading.ask("lora-targets", key, given=value)
    else:
        reading.derive("lora-targets", lora_targets(listed), key)
    if listed and reading.value_of("lora-targets") != "all":
        reading.spell("lora-targets", ",".join(dict.fromkeys(one.strip().lower() for one in listed)))


_SUFFIXES = re.compile(
    r"-(?:(?:instruct|chat|it|base|hf|fp16|bf16|pt|sft|dpo|rm|mixture|text|preview|distill|pretrained|"
    r"\d{4}|v\d+(?:\.\d+)*|bnb-4bit|unsloth|unsloth-bnb-4bit|gptq|awq|4bit|8bit|int4|mlx|1m|128k|4k|8k|16k|32k|"
    r"\d+k|deduped|reasoning|thinking|128e|full|lora|qlora|merged|beta|alpha|700k|step\d+|1t|\d+t))$"
)
"""Name suffixes of republished models with the same shape."""


_DOT = re.compile(r"___|(?<=\d)_(?=\d)")
"""A dot of a version or a size in ModelScope's folders (1___5B) and in names of modules (llama3_1, qwen2-1_5b)."""


_STEP = re.compile(r"/(?:checkpoint|global_step|step|epoch)[-_]?\d+$")
"""The folder of a run's checkpoint, below one that is named for the model."""


def model_of(name: str) -> tuple[str | None, bool]:
    """Return the preset for a model name, and whether the name includes its publisher.

    A copy, chat version or fine-tune is assumed to have the shape of the model that its name begins with.
    """
    written = _STEP.sub("", name.strip().strip("/"))
    found = _preset_of(written)
    return found if found[0] else _preset_of(_DOT.sub(".", written))


def _preset_of(plain: str) -> tuple[str | None, bool]:
    """Return the preset for a name, and whether the name includes its publisher.

    Names of other publishers are those of fine-tunes, which are assumed to keep the shape.
    """
    if is_preset(plain):
        found = preset(plain)
        last = plain.rsplit("/", 1)[-1]
        return found.name, is_published(plain) if "/" in plain else last == plain
    if (base := base_of(plain)) is not None:
        return base, False
    word = plain.rsplit("/", 1)[-1].lower().replace("_", "-")
    word = re.sub(r"-(?:(?:coder|math|safeguard)(?=-)|chat(?=-\d))", "", word)
    while word:
        for one in (word, word.removeprefix("meta-"), word.replace("llama-2-", "llama2-")):
            if is_preset(one):
                return preset(one).name, False
        shorter = _SUFFIXES.sub("", word)
        if shorter == word:
            return None, False
        word = shorter
    return None, False


_HELD = re.compile(r"(bnb-?4bit)|(?:-(?:int8|8bit)(?=-|$))|-(?:awq|gptq|int4|4bit)(?=-|$)")


_UNKNOWN = re.compile(r"-(?:aqlm|hqq|exl[23]|gguf|quip|eetq|spqr|vptq|[23]bit|q[2-8](?:-[a-z0-9]+)*)(?=-|$)")
"""Formats of weights that napkin does not know, as names state them."""


def held_format(name: str) -> str | None:
    """Return the weight format that a repository's name implies.

    bitsandbytes' 4-bit is nf4 with double quantization (unsloth's copies); AWQ and GPTQ are int4, or int8 if they say
    8.
    """
    stated = republished(name)
    if stated is not None and stated.word in FROZEN_FORMATS:
        return stated.word
    found = _HELD.search(name.rpartition("/")[2].lower().replace("_", "-"))
    if found is None:
        return None
    return "nf4-dq" if found[1] else "int8" if "8" in found[0] else "int4"


def take_model(reading: Reading, *keys: str) -> None:
    """Read a model name and the quantization that it implies: an exact or assumed preset, or open."""
    _take_named(reading, *keys)
    value = reading.find(*keys)
    if value is None or not isinstance(value.value, str):
        return
    held = held_format(value.value)
    key = next(key for key in keys if reading.source.get(key) is value)
    if held is None and _UNKNOWN.search(value.value.rpartition("/")[2].lower().replace("_", "-")):
        reading.ask("quantized", key)
    elif held is not None:
        reading.assume("quantized", held, key)
        if (stated := republished(str(value.value))) is not None and stated.mixed:
            reading.omit(key, f"its file keeps some modules in 16 bits; all layers are counted in {held}")


def _take_named(reading: Reading, *keys: str) -> None:
    """Read a model name: an exact or assumed preset, or open."""
    value = reading.find(*keys)
    if value is None:
        block = next((key for key in keys if key in reading.source), None)
        if block is not None:
            reading.ask("model", block)
        return
    key = next(key for key in keys if reading.source.get(key) is value)
    if isinstance(value.value, Open):
        name, _ = model_of(value.value.rest)
        reading.assume("model", name, key) if name else reading.ask("model", key)
        return
    if not isinstance(value.value, str):
        reading.ask("model", key)
        return
    name, published = model_of(value.value)
    if name is None:
        reading.ask("model", key, given=value.value)
    elif published:
        reading.put("model", name, key)
    else:
        reading.assume("model", name, key)
