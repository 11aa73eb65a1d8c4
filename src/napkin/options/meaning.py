"""What an option of another tool with another form of value means in napkin's options, by the tables of meanings.py."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.record import record

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
