"""A launch file as a flat mapping of dotted keys to values, with references resolved and line numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from napkin.errors import NapkinError
from napkin.inputs.launch.values import Open, calculated
from napkin.inputs.load import DEEPEST, Document, printable
from napkin.record import record
from napkin.units import Unreadable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_INNERMOST = re.compile(r"\$\{([^${}]*)\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_CHAIN = 40
MOST_KEYS = 10_000
"""Most keys in one launch file. Published ones have hundreds."""
LONGEST_KEYS = 300_000
"""Longest keys of a launch file in total, in characters: the answer lists each."""
_ONE_RUN = "give the configuration of one run"
ARITHMETIC = {"multiply": "*", "sum": "+", "add": "+", "subtract": "-", "int_div": "//"}
"""NeMo's arithmetic resolvers → operator."""
_MOST_REFERENCES = 10_000
_LONGEST_TEXT = 100_000
"""Longest value with references resolved, in characters."""


@record
class FileValue:
    """A value of a file.

    key  in full, as the file writes it     variables  environment variables that would override the value
    """

    key: str
    value: Any
    variables: tuple[str, ...] = ()


class LaunchFile:
    """A file's keys. Dashes in names count as underscores; nested keys are joined by dots.

    syntax   yaml, json, toml, shell or python
    values   key → FileValue
    command  words of a script's command that are not options (the program that it starts)
    unread   parts of the file that are not keys → why     looked  keys that a reader looked up
    environment  variables that a script sets and launchers read (NPROC_PER_NODE) → text
    settings  settings files that a launch line names     missing  those that do not exist
    parts    the launch line and the settings files that this source joins
    files    those that a script writes, which its program reads: path → text
    """

    def __init__(self, name: str, syntax: str, values: Mapping[str, FileValue], document: Document) -> None:
        self.name = name
        self.syntax = syntax
        self.values = dict(values)
        self.document = document
        self.command: tuple[str, ...] = ()
        self.unread: dict[str, str] = {}
        self.environment: dict[str, str] = {}
        self.looked: set[str] = set()
        self.parts: tuple[LaunchFile, ...] = ()
        self.settings: tuple[str, ...] = ()
        self.missing: tuple[str, ...] = ()
        self.files: dict[str, str] = {}

    def __contains__(self, key: str) -> bool:
        """Return whether a key or a block of this name exists."""
        return key in self.values or any(one.startswith(f"{key}.") for one in self.values)

    @property
    def is_mapping(self) -> bool:
        """Return whether the file is a document of keys rather than a script or program."""
        return isinstance(self.document.data, dict)

    @property
    def script(self) -> str:
        """The Python program that a launch line starts, as the line writes its path; "" if none."""
        return next((one for one in self.command if one.endswith(".py")), "")

    @property
    def program(self) -> str:
        """The file name of that program."""
        return self.script.rsplit("/", 1)[-1]

    @property
    def module(self) -> str:
        """The file of the module that a launch line starts (`python -m open_instruct.finetune`); "" if none."""
        found = self.values.get("m")
        name = found.value if found is not None else ""
        words = str(name.rest).split() if isinstance(name, Open) else name if isinstance(name, list) else [name]
        return str(words[0]).replace(".", "/") + ".py" if words and words[0] else ""

    def has_all(self, *keys: str) -> bool:
        return all(key in self for key in keys)

    def has_any(self, *keys: str) -> bool:
        return any(key in self for key in keys)

    def states(self, block: str) -> bool:
        """Return whether a key, or any key in a block of this name, has a value. An empty `fsdp_config:` has none."""
        return any(self.values[key].value not in (None, "", [], {}) for key in self.inside(block))

    def get(self, key: str) -> FileValue | None:
        self.looked.add(key)
        return self.values.get(key)

    def plain(self, key: str) -> Any:
        """Return a key's value, or None if it is missing or open."""
        found = self.get(key)
        return None if found is None or isinstance(found.value, Open) else found.value

    def inside(self, block: str) -> Iterator[str]:
        """Yield the keys of a block."""
        return (key for key in self.values if key == block or key.startswith(f"{block}."))

    def under(self, block: str) -> LaunchFile:
        """Return a block as a separate source; messages keep the full key names."""
        cut = len(block) + 1
        inner = {key[cut:]: value for key, value in self.values.items() if key.startswith(f"{block}.")}
        found = LaunchFile(self.name, self.syntax, inner, self.document)
        found.missing = self.missing
        return found

    def renamed(self, names: Mapping[str, str]) -> LaunchFile:
        """Return the source with other names of keys and blocks; messages keep the names of the file.

        names  key or block → its new name; "" removes the block's name from its keys
        """
        values = {}
        for key, value in self.values.items():
            old = next((one for one in names if key == one or key.startswith(f"{one}.")), "")
            new = (names[old] + key[len(old) :]).lstrip(".") if old else key
            values[new if new and new not in values else key] = value
        found = LaunchFile(self.name, self.syntax, values, self.document)
        found.command, found.environment, found.unread = self.command, self.environment, dict(self.unread)
        found.parts, found.missing, found.files = self.parts, self.missing, self.files
        return found

    def place(self, key: str) -> str:
        """Return `file:line: key` for messages."""
        value = self.values.get(key)
        inside = ((part, name) for part in self.parts for name, one in part.values.items() if one is value)
        part, own = next(inside, (None, ""))
        if value is not None and part is not None:
            return part.place(own)
        inner = next(self.inside(key), None) if value is None else None
        whole = self.values[inner].key if inner is not None else ""
        written = value.key if value is not None else whole[: len(whole) - len(inner or "") + len(key)] or key
        if self.syntax == "shell" and (written,) in self.document.lines:
            return self.document.place(written)
        if self.document.lines or self.document.json:
            return self.document.place(*written.split("."))
        return f"{self.name}: {printable(written, 80)}"

    def error(self, key: str, what: str, hint: str | None = None) -> NapkinError:
        """Return an error (2) at a key."""
        return NapkinError(f"{self.place(key)}: {what}", hint or "correct that value in the file")


def of_mapping(document: Document, syntax: str) -> LaunchFile:
    """Return a parsed YAML, JSON or TOML document as a LaunchFile. Raises NapkinError if it is not a mapping."""
    data = document.data
    if not isinstance(data, dict) or not data:
        what = "is empty" if not data else "is not a mapping of keys"
        raise NapkinError(f"{document.name}: {what}", "give a training framework's configuration file")
    values: dict[str, FileValue] = {}
    left, size = [_MOST_REFERENCES], 0
    try:
        for path, value in _leaves(data, ()):
            key = ".".join(str(part) for part in path)
            found, variables = resolved(value, path, data, left)
            values[key.replace("-", "_")] = FileValue(key, found, variables)
            check_size(len(values), document.name)
            size += len(key)
            if size > LONGEST_KEYS:
                raise NapkinError(f"{document.name}: its keys have more than {LONGEST_KEYS:,} characters", _ONE_RUN)
    except RecursionError:
        raise NapkinError(f"{document.name}: is nested too deeply", f"at most {DEEPEST} levels") from None
    return LaunchFile(document.name, syntax, values, document)


def check_size(keys: int, name: str) -> None:
    """Raise NapkinError (2) for a launch file with more keys than any framework has."""
    if keys > MOST_KEYS:
        raise NapkinError(f"{name}: holds more than {MOST_KEYS:,} keys", _ONE_RUN)


def _leaves(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from _leaves(value, (*path, str(key)))
    else:
        yield path, node


def resolved(
    value: Any, path: tuple[str, ...], root: Any, left: list[int], chain: int = 0
) -> tuple[Any, tuple[str, ...]]:
    """Return a value with its references resolved, and the environment variables that would override it.

    Unresolvable references are Open. left: how many more references may be resolved in this file.
    Resolves OmegaConf's `${a.b}`, `${.a}` and `${oc.env:VAR,default}`, NeMo's arithmetic (`${multiply:…}`), and
    `${VAR:default}` of Primus and Megatron.
    """
    if not isinstance(value, str) or "${" not in value:
        return value, ()
    variables: list[str] = []
    text: Any = value
    while isinstance(text, str) and (match := _INNERMOST.search(text)):
        chain += 1
        left[0] -= 1
        if chain >= _LONGEST_CHAIN or left[0] < 0 or len(text) > _LONGEST_TEXT:
            return Open(value), tuple(dict.fromkeys(variables))
        found, more = _meaning(match[1].strip(), path, root, left, chain)
        variables += more
        if isinstance(found, Open):
            return Open(value), tuple(dict.fromkeys(variables))
        text = found if match[0] == text else f"{text[: match.start()]}{_written(found)}{text[match.end() :]}"
    return text, tuple(dict.fromkeys(variables))


def _written(value: object) -> str:
    return "" if value is None else str(value)


def _meaning(inner: str, path: tuple[str, ...], root: Any, left: list[int], chain: int) -> tuple[Any, tuple[str, ...]]:
    """Return the resolution of one `${inner}`."""
    head, colon, tail = inner.partition(":")
    if colon and head in ARITHMETIC:
        try:
            return calculated(f" {ARITHMETIC[head]} ".join(part.strip() for part in tail.split(","))), ()
        except Unreadable:
            return Open(inner), ()
    if colon and head.lower() in ("oc.env", "env"):
        name, comma, default = tail.partition(",")
        return (scalar(default) if comma else Open(inner)), (name.strip(),)
    if colon and _VARIABLE.fullmatch(head) and not head.islower():  # a resolver of the program: ${cuda_env:RANK}
        return scalar(tail.removeprefix("-")), (head,)
    if colon:
        return Open(inner), ()
    keys = inner.split(".")
    node, start = root, keys
    if inner.startswith("."):
        ups = len(inner) - len(inner.lstrip("."))
        start = [*path[: len(path) - ups], *inner.lstrip(".").split(".")]
    for tops in ((), ("parameters",)):
        node = root
        for key in (*tops, *start):
            node = node.get(key) if isinstance(node, dict) else None
        if node is not None:
            return resolved(node, tuple(start), root, left, chain)
    present = _present(root, start)
    return (None if present else Open(inner)), ((inner,) if not present and inner.isupper() else ())


def _present(root: Any, keys: list[str]) -> bool:
    for key in keys:
        if not isinstance(root, dict) or key not in root:
            return False
        root = root[key]
    return True


def scalar(text: str) -> Any:
    """Return the number, boolean or string that a textual default denotes."""
    plain = text.strip().strip("'\"")
    lower = plain.lower()
    if lower in ("true", "false"):
        return lower == "true"
    if lower in ("null", "none", "~"):
        return None
    for kind in (int, float):
        try:
            return kind(plain)
        except ValueError:
            continue
    return plain
