"""Parse YAML as other loaders do: anchors, merge keys, `yes` and `no`, and all number forms."""

from __future__ import annotations

import re

from napkin.inputs.launch.values import Open
from napkin.inputs.load import Document, printable
from napkin.inputs.yaml_file import Builder, parse_yaml

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CORE = "tag:yaml.org,2002:"
_TRUE, _FALSE, _NULL = ("true", "yes", "on"), ("false", "no", "off"), ("", "~", "null")
_BASED = re.compile(r"0(?:[0-7_]*[0-7]|x[0-9a-fA-F_]*[0-9a-fA-F]|b[01_]*[01])")
"""Integers in octal, hexadecimal and binary, as YAML 1.1 writes them."""


def read(text: str, name: str) -> Document:
    """Parse YAML 1.1 as PyYAML's safe loader does, but accept only standard tags and reject duplicate keys."""
    return parse_yaml(text, name, _Words)


class _Words(Builder):
    """Builds data from events by YAML 1.1's rules."""

    def node(self, loader: Any, event: Any, path: tuple[object, ...], depth: int) -> Any:
        """Return the data that begins with an event; standard tags are passed over."""
        tag = getattr(event, "tag", None)
        if tag and tag.startswith(_CORE) and "python" not in tag:
            event.tag = None
        return super().node(loader, event, path, depth)

    def scalar(self, event: Any, path: tuple[object, ...]) -> object:
        """Return a string, number, boolean or None."""
        text = str(event.value)
        if event.tag == "!include":  # draccus' and others' name of another file
            return Open(f"!include {text}", text)
        if event.tag:
            raise self.fail(event, f"the tag {printable(event.tag)} is not read", "write plain YAML", path)
        if not event.implicit[0]:
            return text
        lower = text.lower()
        if lower in _NULL:
            return None
        if lower in _TRUE or lower in _FALSE:
            return lower in _TRUE
        digits = text.lstrip("+-")
        if digits[:1] not in "0123456789." or len(text) > 40 or not text.isascii():
            return text
        if _BASED.fullmatch(digits):
            base = {"x": 16, "b": 2}.get(digits[1], 8)
            return (-1 if text[0] == "-" else 1) * int(digits.replace("_", ""), base if base == 8 else 0)
        for kind in (int, float):
            try:
                value = kind(text)
            except ValueError:
                continue
            return value if value == value and abs(value) != float("inf") else text
        return text
