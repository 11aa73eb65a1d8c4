"""Parse YAML as other loaders do: anchors, merge keys, `yes` and `no`, and all number forms."""

from __future__ import annotations

from napkin.inputs.load import Document, printable
from napkin.inputs.yaml_file import Builder, parse_yaml

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CORE = "tag:yaml.org,2002:"
MOST_NODES = 100_000
"""Most values of a file with aliases expanded; a file without aliases may have more."""
_TRUE, _FALSE, _NULL = ("true", "yes", "on"), ("false", "no", "off"), ("", "~", "null")


def read(text: str, name: str) -> Document:
    """Parse YAML 1.1 as PyYAML's safe loader does, but accept only standard tags and reject duplicate keys."""
    return parse_yaml(text, name, _Words)


class _Words(Builder):
    """Builds data from events by YAML 1.1's rules."""

    def __init__(self, name: str, lines: dict[tuple[object, ...], int]) -> None:
        super().__init__(name, lines)
        self._anchored: dict[str, tuple[Any, int]] = {}
        self._nodes = 0

    def node(self, loader: Any, event: Any, path: tuple[object, ...], depth: int) -> Any:
        """Return the data that begins with an event, with anchors and merge keys resolved."""
        import yaml

        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchored:
                name = printable(str(event.anchor), 40)
                raise self.fail(
                    event, f"the alias *{name} has no anchor before it", f"define &{name}, or quote the text"
                )
            data, nodes = self._anchored[event.anchor]
            self._nodes += nodes
            if self._nodes > MOST_NODES:
                raise self.fail(event, "its aliases repeat too much", f"at most {MOST_NODES:,} values")
            return data
        self._nodes += 1
        before = self._nodes
        anchor, tag = event.anchor, getattr(event, "tag", None)
        event.anchor = None
        if tag and tag.startswith(_CORE) and "python" not in tag:
            event.tag = None
        data = super().node(loader, event, path, depth)
        if isinstance(data, dict) and "<<" in data:
            merged = data.pop("<<")
            for block in merged if isinstance(merged, list) else [merged]:
                data = {**block, **data} if isinstance(block, dict) else data
        if anchor:
            self._anchored[anchor] = data, self._nodes - before + 1
        return data

    def scalar(self, event: Any) -> object:
        """Return a string, number, boolean or None."""
        text = str(event.value)
        if event.tag:
            raise self.fail(event, f"the tag {printable(event.tag)} is not read", "write plain YAML")
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
        for kind in (int, float):
            try:
                value = kind(text)
            except ValueError:
                continue
            return value if value == value and abs(value) != float("inf") else text
        return text
