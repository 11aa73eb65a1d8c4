"""The meaning of other spellings: options of other tools, accelerators with a count, lists given for one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.cli.known import known
from napkin.errors import NapkinError
from napkin.options import ranges
from napkin.options.launches import MEGATRON, TRAINING_ARGUMENTS
from napkin.options.meaning import plain
from napkin.options.option import Option
from napkin.units import Unreadable, count


def is_megatron(words: Sequence[str]) -> bool:
    """Return whether a line was pasted from a launch of Megatron-LM: it holds an option that no other tool has."""
    names = MEGATRON.split()
    return any(word[2:].partition("=")[0].replace("_", "-") in names for word in words if word.startswith("--"))


def is_trainer(words: Sequence[str]) -> bool:
    """Return whether a line was pasted from a launch of Hugging Face's Trainer: it has three options that only the
    Trainer has."""
    names = {word[2:].partition("=")[0].replace("-", "_") for word in words if word.startswith("--")}
    return len(names.intersection(TRAINING_ARGUMENTS)) > 2


def machine(text: str) -> tuple[str, str] | None:
    """Return (count, name) of `8xh100`, `h100x8`, `8 × H100` or `h100:8`; None for an accelerator without a count."""
    from napkin.inputs.hardware import normal

    if normal(text) in known("hardware"):
        return None
    word = text.strip().lower().replace("×", "x").replace("*", "x").replace(":", "x")
    at = -1
    while (at := word.find("x", at + 1)) >= 0:
        first, second = word[:at].strip(" -"), word[at + 1 :].strip(" -")
        for number, name in ((first, second), (second, first)):
            if number.isdigit() and 0 < len(number) < 8 and normal(name) in known("hardware"):
                return number, name
    return None


def is_size(text: str) -> bool:
    """Return whether a word is a number of parameters or tokens: `7B`."""
    from napkin.inputs.sizes import LEAST, size_of

    try:
        return (size_of(text) or 0) >= LEAST
    except NapkinError:
        return False


def is_accelerator(text: str) -> bool:
    """Return whether a word names an accelerator, with or without a count."""
    from napkin.inputs.hardware import normal

    name = normal(text)
    parted = (set(one.split("-")) for one in known("hardware"))
    return (
        name in known("hardware")
        or (name.isdigit() and len(name) > 3 and any(name in parts for parts in parted))
        or machine(text) is not None
    )


def is_several(option: Option, text: str, parse: object) -> bool:
    """Return whether a text is a list or range although the option takes one value."""
    if ("," not in text and ".." not in text) or option.metavar == "LIST" or "," in option.metavar:
        return False
    words = known(option.name)
    if words:
        try:
            reads = parse if callable(parse) else option.parse
            listed = isinstance(reads(text), (tuple, list))  # one value that is a list: --offload optimizer,activations
        except Unreadable:
            listed = False
        return not listed and all(plain(part) in words for part in text.split(","))
    if parse is not option.parse:
        return False
    try:
        option.parse(text)
    except Unreadable:
        pass
    else:
        return False
    try:
        many = len(ranges.values(option, text, option.name)) > 1
    except NapkinError:
        return False
    return many and not (digits(text) and any(group.startswith("0") for group in text.split(",")[1:]))


def digits(text: str) -> str:
    """Return the number in which commas can only be digit grouping: `8,192` is 8192; empty for what can only be a
    list."""
    head, *groups = text.split(",")
    grouped = bool(groups) and head.isdigit() and len(head) < 4 and all(len(g) == 3 and g.isdigit() for g in groups)
    return "".join((head, *groups)) if grouped else ""


def filled(hint: str, texts: Mapping[str, str]) -> str:
    """Return a hint with its placeholders filled in from the line."""
    if "{twenty}" in hint:
        return hint.replace("{twenty}", _times(texts.get("params"), 20) or "20 × the parameters")
    return hint


def _times(text: str | None, factor: int) -> str | None:
    """Return a count times a factor, as it is typed: `70B` times 20 is `1.4T`."""
    try:
        total = count(text or "") * factor
    except Unreadable:
        return None
    for letter, size in (("T", 10**12), ("B", 10**9), ("M", 10**6)):
        if total >= size:
            return f"{total / size:g}{letter}"
    return str(total)


def is_count_of(text: str | None) -> bool:
    """Return whether a value is a number of accelerators, and not the name of one (`4090`)."""
    return text is not None and text.isdigit() and not is_accelerator(text)
