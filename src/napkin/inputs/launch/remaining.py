"""The keys of a launch file that set no option: each is ignored, not modeled or refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from napkin.inputs.launch import values
from napkin.inputs.launch.harmless import is_harmless, is_word
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.stated import ASSUMED, DEFAULT, StatedOption
from napkin.inputs.launch.tables import is_named
from napkin.inputs.launch.values import Open, is_nothing, is_off
from napkin.inputs.slips import among_keys, slip_of

CUT = 9
"""Least letters of a key whose ending is cut or added: gradient_checkpoint is gradient_checkpointing."""
ENDING = 3
"""Most letters of that ending."""


def key_meant(key: str, looked: Iterable[str], source: LaunchFile) -> str:
    """Return the key of a format that a key of a file of settings misspells; "" for none.

    looked  the keys that the format reads
    """
    block, _, name = key.rpartition(".")
    beside = [one for one in looked if "*" not in one and one.rpartition(".")[0] == block and one not in source]
    names = {_bare(one.rpartition(".")[2]): one for one in sorted(beside)}
    own = _bare(name)
    alike = [one for one in names if _digits(one) == _digits(own)]
    return names.get(own) or names.get(slip_of(own, alike, among_keys)) or names.get(_whole(own, names), "")


def _bare(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _last(key: str) -> str:
    """Return the name of a key in its block: train.zero_stage is zero_stage in older versions."""
    return _bare(key.rpartition(".")[2])


def _digits(name: str) -> list[str]:
    """Return the digits of a name in order: fp4 is no slip of fp8, but bf61 is one of bf16."""
    return sorted(char for char in name if char.isdigit())


def _whole(name: str, known: Iterable[str]) -> str:
    """Return the known name whose ending a name lacks, or has besides; "" for none."""
    pairs = ((one, *sorted((name, one), key=len)) for one in known)
    found = (one for one, short, long in pairs if long.startswith(short) and len(short) >= CUT)
    return next((one for one in found if abs(len(one) - len(name)) <= ENDING), "")


TASKS = ("dpo", "orpo", "kto", "simpo", "grpo", "rloo", "ppo", "gkd", "rm", "rlhf")
"""Words that name a task of post-training."""
TEACHERS = ("teacher", "teacher_model", "teacher_path", "teacher_name", "teacher_model_path")
"""Keys and blocks of a model that another learns from."""


def is_other_task(key: str, value: object, task: StatedOption | None) -> bool:
    """Return whether a key or its value names a task, and another than the one that was read, unless the file states
    that one: `--train-mode dpo`, `--dpo true`. A teacher is of distillation."""
    word = str(value).lower() if value is not True else key.removeprefix("use_").removeprefix("do_")
    named = word in TASKS or key.partition(".")[0] in TEACHERS
    return named and (task is None or (task.origin in (DEFAULT, ASSUMED) and task.value not in (None, word)))


_COUNTED = "hidden|decoder|attention|attn|query|kv|key_value|routed|local|shared|moe"
_SIZES = re.compile(
    rf"(base_|model_)?(num|n)_(({_COUNTED})_)*(layers?|heads?|experts?|embd?)(_per_tok(en)?|_switch)?|d_model|d_ff|"
    r"(moe_|expert_)?(intermediate|ffn_hidden|ffn|mlp_hidden|hidden|embedding|embed)_(size|dim)|dim_ff|moe_top_?k|"
    r"(padded_|model_)?vocab_size|vocabulary_size|head_(dim|size)|mlp_ratio|expansion_ratio|ffn_dim_multiplier"
)
_OF_OTHERS = {
    "data", "dataset", "datasets", "tokenizer", "generation", "sampling", "sampling_params", "rollout", "draft",
    "teacher", "critic", "reward", "reward_model", "vision", "vision_encoder", "vision_config", "audio_config", "eval",
    "evaluation",
}  # fmt: skip
"""Blocks of keys that size another model than the trained one, or that sample from it."""


def sizes_model(key: str) -> bool:
    """Return whether a key's name is that of a dimension of the trained model."""
    *blocks, name = key.split(".")
    return _SIZES.fullmatch(name) is not None and not _OF_OTHERS & set(blocks)


UNKNOWN = "napkin does not know its effect"


def finish(reading: Reading) -> Reading:
    """Classify every key that set no option as ignored, not modeled or refused."""
    held = reading.inputs.get("quantized")
    if held is not None and held.origin == ASSUMED and "adapter" not in reading.inputs:
        del reading.inputs["quantized"]
        reading.refuse(held.where, "the weights are quantized, so only adapters can be trained", "adapter")
    looked = reading.format.looked | reading.source.looked
    blocks = {part for key in looked if "*" not in key for part in _ways(key)} - looked
    beside: dict[str, list[str]] = {}
    for key in looked:
        beside.setdefault(key.rpartition(".")[0], []).append(key)
    for key, value in reading.source.values.items():
        if key in blocks:
            _check_block(reading, key, value.value)
        if key not in reading.used and not any(part in reading.covered for part in _ways(key)):
            _classify(reading, key, value.value, key in looked, beside)
    for name in reading.source.missing:
        if reading.source.is_mapping:
            reading.omit("defaults", f"{name[:80]} was not found; it sets what this file does not")
        else:
            reading.omit(name, "was not found; it sets what the launch line does not")
    for key, why in reading.source.unread.items():
        if key not in reading.used | reading.covered:
            reading.omit(key, why)
    return reading


def _check_block(reading: Reading, key: str, value: object) -> None:
    """Refuse a value where napkin reads a block of keys; a list of blocks is not modeled."""
    group = reading.source.syntax == "shell" and isinstance(value, str)  # Hydra's config group: model=hf
    if isinstance(value, list) and value:  # prompt learning's train_ds of NeMo
        reading.omit(key, "is a list, where napkin reads a block of keys")
    elif not group and not is_nothing(value):
        raise reading.source.error(key, f"{values.shown(value)} is given where a block of keys is expected")


def _classify(reading: Reading, key: str, value: object, looked: bool, beside: Mapping[str, Sequence[str]]) -> None:
    """Classify a key that set no option. looked: the format reads it.

    beside  block → the keys in it that the format reads
    """
    why = is_named(key, reading.format.refused)
    if why is not None and not is_off(value):
        reading.refuse(key, why)
    elif why is not None or is_named(key, reading.format.ignored) is not None:
        _ignore_known(reading, key, beside)
    elif (told := is_named(key, reading.format.not_modelled)) is not None:
        if value is None:
            reading.ignore(key)
        elif looked or not _is_misspelled(reading, key, beside):
            reading.omit(key, told)
    elif value is None or value in ([], {}, ""):
        reading.ignore(key)
    elif is_harmless(key):
        _ignore_known(reading, key, beside)
    elif key.startswith("sbatch.") and reading.value_of("gpus") is not None:
        reading.ignore(key)  # the launcher or the program states the GPUs
    elif isinstance(value, Open):
        reading.omit(key, f"{value.text[:60]} is set elsewhere")
    elif looked:
        reading.ignore(key)
    elif sizes_model(key) and reading.value_of("model") is not None:
        entry = reading.inputs["model"]
        reading.inputs["model"] = StatedOption(None, entry.origin, f"{entry.where}, {key}", entry.place)
        reading.config, reading.unbuilt, reading.shape = None, None, {}
        reading.refuse(key, f"sizes the model, and napkin does not know it in {reading.format.says}", "model")
    elif not _is_misspelled(reading, key, beside):
        if is_other_task(key, value, reading.inputs.get("task")):
            reading.ask("task", key)
        reading.omit(key, UNKNOWN)


def _ignore_known(reading: Reading, key: str, beside: Mapping[str, Sequence[str]]) -> None:
    """Ignore a key that a pattern or a block covers, unless it misspells one that the format reads.

    beside  block → the keys in it that the format reads
    """
    read = key in beside.get(key.rpartition(".")[0], ()) or is_nothing(reading.source.values[key].value)
    if read or is_word(key) or key in reading.format.ignored.split() or not _is_misspelled(reading, key, beside):
        reading.ignore(key)


def _is_misspelled(reading: Reading, key: str, beside: Mapping[str, Sequence[str]]) -> bool:
    """Report a key that misspells one of the format. Return whether it does.

    It is refused in a file of settings. On a launch line, whose program may have options of its own that are like the
    format's, it is not modeled, and what it may set is asked.
    """
    near = key_meant(key, beside.get(key.rpartition(".")[0], ()), reading.source)
    says = f"napkin knows no such key in {reading.format.says}; did you mean {near}?"
    if near and reading.source.is_mapping:
        reading.refuse(key, says)
    elif near:
        for option, entry in list(reading.inputs.items()):
            named = {_last(one) for one in entry.where.split(", ")}
            if entry.origin in (DEFAULT, ASSUMED) and _last(near) in named:
                reading.ask(option, key)
        reading.omit(key, says)
    return bool(near)


def _ways(key: str) -> Iterable[str]:
    """Yield a key and its enclosing blocks: a.b.c, a.b, a."""
    while key:
        yield key
        key = key.rpartition(".")[0]
