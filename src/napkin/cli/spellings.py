"""The meaning of other spellings: options of other tools, accelerators with a count, lists given for one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.cli.known import known
from napkin.errors import NapkinError
from napkin.options import ranges
from napkin.options.launches import MEGATRON
from napkin.options.option import Option
from napkin.record import record
from napkin.units import Unreadable, count

TRUE, FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


@record
class Meaning:
    """The meaning of a spelling: pairs (option, text), or the hint of an error. used: it takes the next word as its
    value; unless: an option that makes the error unnecessary."""

    options: tuple[tuple[str, str], ...] = ()
    refusal: str = ""
    used: bool = False
    unless: str = ""


def plain(text: str) -> str:
    """Return a word of another tool in lowercase with dashes: `FULL_SHARD auto_wrap` → `full-shard auto-wrap`."""
    return " ".join(text.replace("_", "-").lower().split())


def meaning(means: Mapping[str, str], value: str | None, ahead: str | None) -> Meaning | None:
    """Return the meaning of a spelling with its value, which is in the same word or in the next one (`ahead`); None if
    the value is missing."""
    text = ahead if value is None else value
    if text is not None:
        found = _meaning_of(means, plain(text))
        if found is not None and (value is not None or "" not in means or found != means.get("*")):
            return _read(found, text, value is None)
    if value is None:
        return _read(means[""], "", False) if "" in means else None
    return Meaning(refusal=f"one of {', '.join(word for word in means if word.isalnum())}")


def _meaning_of(means: Mapping[str, str], word: str) -> str | None:
    """Return the meaning of what follows: the word itself, true or false, a number, anything that holds a part."""
    if word in means:
        return means[word]
    if word in FALSE and "false" in means:
        return means["false"]
    if word in TRUE and "" in means:
        return means[""]
    if "#" in means and word.isdigit():
        return means["#"]
    for pattern, found in means.items():
        if len(pattern) > 1 and pattern[0] == "*" == pattern[-1] and pattern[1:-1] in word:
            return found
    return means.get("*")


def _read(meant: str, text: str, used: bool) -> Meaning:
    """Read `--zero 3 --compile` as options with texts, `{}` replaced by the text; after `!` it is a hint, and after `?`
    one where its option is not given."""
    if meant.startswith("!"):
        return Meaning(refusal=meant[1:], used=used)
    states, asked, lacks = meant.partition("?")
    words = [word.replace("{}", text) for word in states.split()]
    pairs: list[tuple[str, str]] = []
    for word in words:
        if word.startswith("--"):
            pairs.append((word[2:], ""))
        else:
            pairs[-1] = (pairs[-1][0], word)
    if asked:
        return Meaning(tuple(pairs), states + lacks, used, unless=lacks.split()[0][2:])
    return Meaning(tuple(pairs), used=used)


def is_megatron(words: Sequence[str]) -> bool:
    """Return whether a line was pasted from a launch of Megatron-LM: it holds an option that no other tool has."""
    names = MEGATRON.split()
    return any(word[2:].partition("=")[0].replace("_", "-") in names for word in words if word.startswith("--"))


def is_trainer(words: Sequence[str]) -> bool:
    """Return whether a line was pasted from a launch of Hugging Face's Trainer: it has three options that only the
    Trainer has."""
    from napkin.inputs.launch.hf.trl import ARGUMENTS

    names = {word[2:].partition("=")[0].replace("-", "_") for word in words if word.startswith("--")}
    return len(names.intersection(ARGUMENTS)) > 2


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
