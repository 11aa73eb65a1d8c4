"""The model of a recipe by its names in NeMo and Megatron-Bridge: llama3_8b, llama32_1b_pretrain_config,
Llama31Config70B."""

from __future__ import annotations

import re

from napkin.inputs.launch.names import model_of

_ENDS = re.compile(r"[._](?:pretrain|finetune|sft|peft|lora)\w*?(?:[._]\w*)?$|\.model$")
"""What comes after the model in a recipe's name."""
_CLASS = re.compile(r"(?:Model)?(?:Config|Provider)")
_PAIR = re.compile(r"(?<=[a-z])(\d)(\d)(?=[_-]|$)")
"""A version without its dot: llama31, qwen25."""


def preset_of_recipe(text: str) -> str | None:
    """Return the preset of a config class, or of the function or module of a recipe; None if there is none."""
    if "/" in text:
        return model_of(text)[0]
    word = text.rpartition(".")[2]
    if _CLASS.search(word):
        word = re.sub(r"(?<=[a-z])(?=\d+[BM])", "_", _CLASS.sub("_", word)).strip("_").lower()
    else:
        word = _ENDS.sub("", text).rpartition(".")[2].lower()
    word = re.sub(r"(?<=\d)p(?=\d)", ".", re.sub(r"_\d+k$", "", word))  # qwen25_1p5b, llama3_8b_64k
    for one in (word, _PAIR.sub(r"\1.\2", word)):
        found, _ = model_of(one.replace("_", "-"))
        if found:
            return found
    return None
