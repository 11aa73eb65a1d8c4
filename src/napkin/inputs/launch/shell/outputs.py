"""Work out the output of the commands that scripts compute numbers and names with: `$(echo $GPUS | wc -w)`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence

from napkin.inputs.launch.shell.marks import DEFAULTED, END, marks
from napkin.inputs.launch.shell.words import Statement, statements
from napkin.inputs.launch.values import calculated
from napkin.record import replace
from napkin.units import Unreadable

_LISTS_GPUS = re.compile(r"-L|--list-gpus|--query-gpu=.*")
_PRINTED = re.compile(r"\s*print\(\s*(int\()?([\d\s+*/().-]+?)(?(1)\))\s*\)\s*;?\s*")
MOST = 10_000
"""Longest output that is worked out, in characters."""


def output_of(
    command: str, expanded: Callable[[str], list[str]], text: Callable[[str], str], gpus: Callable[[], str | None]
) -> str | None:
    """Return the output of a command, or None if it is unknown.

    expanded  returns the words that a raw word expands to     text  expands the variables of a text
    gpus      returns the GPUs of a node, if they are known
    Variables that an environment would override stay marked in it.
    """
    steps = list(statements(command))
    if not steps:  # `# a comment within a command`
        return ""
    at = next((at for at, word in enumerate(steps[0].words) if word.startswith("<<<")), 0)
    if at:  # `wc -w <<< "$TEXT"` is `echo "$TEXT" | wc -w`
        given = "".join(steps[0].words[at:]).removeprefix("<<<")
        said = replace(steps[0], words=("echo", given), ends="|")
        steps = [said, replace(steps[0], words=steps[0].words[:at]), *steps[1:]]
    if folder := _entered(steps):
        steps = [replace(steps[0], words=("realpath", folder), into="")]
    if [one.words for one in steps] == [("cat",)] and steps[0].here is not None:
        return steps[0].here if steps[0].quoted else text(steps[0].here)
    if any(one.here is not None or one.into for one in steps):
        return None
    if any(one.ends != "|" for one in steps[:-1]):
        return None
    read = [[marks(word) for raw in one.words for word in expanded(raw)] for one in steps]
    if any(unknown for words in read for _, _, unknown in words):
        return None
    names = dict.fromkeys(name for words in read for _, defaults, _ in words for name in defaults)
    texts = [[plain for plain, _, _ in words] for words in read]
    result = _begun(texts[0], gpus)
    for words in texts[1:]:
        result = _filtered(result, words) if result is not None and len(result) <= MOST else None
    if result is None:
        return None
    return "".join(f"{DEFAULTED}{name}{END}" for name in names) + result.rstrip("\n")


_OF_LINKS = ("--", "-P", "-L")
"""Words of cd and pwd that choose between a folder and the one that it links to."""


def _entered(steps: Sequence[Statement]) -> str:
    """Return the folder, unexpanded, of `cd -- FOLDER &>/dev/null && pwd -P`, which prints its path; "" otherwise."""
    plain = [[word for word in one.words if word not in _OF_LINKS] for one in steps]
    if [words[:1] for words in plain] != [["cd"], ["pwd"]] or [len(words) for words in plain] != [2, 1]:
        return ""
    silent = steps[0].into in ("", "/dev/null") and not steps[1].into
    return plain[0][1] if silent and steps[0].ends in ("&&", ";", "\n") else ""


def _begun(words: Sequence[str], gpus: Callable[[], str | None]) -> str | None:
    """Return the output of the first command of a pipeline, with its line end."""
    name, *rest = words or [""]
    plain = [one for one in rest if one not in ("-n", "-e", "--")]
    if name == "echo":
        return " ".join(plain) + "\n"
    if name == "printf" and plain[:1] in (["%s"], ["%s\\n"]) and len(plain) == 2:
        return plain[1] + "\n" * plain[0].endswith("n")
    if (name, rest[:1]) == ("command", ["-v"]) or name == "which":
        return f"{rest[-1]}\n" if rest else None
    if name == "expr":
        return _number(" ".join(rest).replace("\\*", "*"))
    if name == "basename" and plain:
        base = plain[0].rstrip("/").rsplit("/", 1)[-1]
        return (base.removesuffix(plain[1]) if len(plain) > 1 and base != plain[1] else base) + "\n"
    if name == "dirname" and plain:
        return (os.path.dirname(plain[0].rstrip("/")) or ".") + "\n"
    if (name == "realpath" or words[:2] == ["readlink", "-f"]) and plain and not plain[-1].startswith("-"):
        return os.path.abspath(plain[-1]) + "\n"
    if name == "nvidia-smi" and any(_LISTS_GPUS.fullmatch(one) for one in rest):
        count = marks(gpus() or "")[0]
        headed = any(one.startswith("--query-gpu") for one in rest) and not any("noheader" in one for one in rest)
        return "GPU\n" * (int(count) + headed) if count.isdecimal() and int(count) <= MOST else None
    if name in ("python", "python3") and rest[:1] == ["-c"] and len(rest) == 2:
        found = _PRINTED.fullmatch(rest[1])
        exact = found is not None and (found[1] or "/" not in found[2].replace("//", ""))
        return _number(found[2]) if found is not None and exact else None
    return None


def _number(text: str) -> str | None:
    try:
        return f"{int(calculated(text))}\n"
    except Unreadable:
        return None


def _filtered(text: str, words: Sequence[str]) -> str | None:
    """Return what a later command of a pipeline makes of a text."""
    name, *rest = words or [""]
    known = _FILTERS.get(name)
    return known(text, rest) if known is not None else None


def _wc(text: str, words: Sequence[str]) -> str | None:
    sizes = {"-l": text.count("\n"), "-w": len(text.split()), "-c": len(text.encode())}
    return f"{sizes[words[0]]}\n" if len(words) == 1 and words[0] in sizes else None


def _tr(text: str, words: Sequence[str]) -> str | None:
    plain = [one.replace("\\n", "\n").replace("\\t", "\t") for one in words]
    if any("-" in one[1:-1] or "[" in one for one in plain if not one.startswith("-")):  # a range of letters
        return None
    if len(plain) == 2 and plain[0] == "-d":
        return "".join(char for char in text if char not in plain[1])
    if len(plain) == 2 and plain[0] in ("-cd", "-dc"):
        return "".join(char for char in text if char in plain[1])
    if len(plain) == 2 and not plain[0].startswith("-") and len(plain[0]) == len(plain[1]):
        return text.translate(str.maketrans(plain[0], plain[1]))
    return None


def _awk(text: str, words: Sequence[str]) -> str | None:
    if not words or words[-1].replace(" ", "") != "{printNF}" or len(words) > 3:
        return None
    sign = "".join(words[:-1]).removeprefix("-F") if len(words) > 1 else None
    return "".join(f"{len(line.split(sign or None)) if line else 0}\n" for line in text.splitlines())


def _bc(text: str, words: Sequence[str]) -> str | None:
    return _number(text.strip()) if not words else None


def _cut(text: str, words: Sequence[str]) -> str | None:
    found = re.fullmatch(r"-d\s?(.)\s-f\s?(\d+)", " ".join(words))
    if found is None:
        return None
    rows = [line.split(found[1]) for line in text.splitlines()]
    return "".join((row[int(found[2]) - 1] if int(found[2]) <= len(row) else "") + "\n" for row in rows)


def _grep(text: str, words: Sequence[str]) -> str | None:
    if len(words) == 2 and words[0] == "-o" and len(words[1]) == 1:
        return f"{words[1]}\n" * text.count(words[1])
    return None


_SUBSTITUTE = re.compile(r"s([^\w\s\\])((?:(?!\1)[^\[\]*^$\\])+)\1((?:(?!\1)[^&\\])*)\1(g?)")
"""A substitution of sed whose pattern has no special character but the dot, which matches itself too."""


def _sed(text: str, words: Sequence[str]) -> str | None:
    found = _SUBSTITUTE.fullmatch(words[-1]) if words and words[:-1] in ([], ["-e"]) else None
    if found is None or ("." in found[2] and len(re.findall(found[2], text)) != text.count(found[2])):
        return None
    times = -1 if found[4] else 1
    return "".join(line.replace(found[2], found[3], times) for line in text.splitlines(keepends=True))


_FILTERS: Mapping[str, Callable[[str, Sequence[str]], str | None]] = {
    "wc": _wc,
    "tr": _tr,
    "awk": _awk,
    "bc": _bc,
    "cut": _cut,
    "grep": _grep,
    "sed": _sed,
}
