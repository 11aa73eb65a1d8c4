"""Read the defaults of a program's own options from its source, where that lies beside the launch line."""

from __future__ import annotations

from napkin.inputs.launch.source import FileValue, LaunchFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable, Iterator

LARGEST = 1_000_000
"""Most bytes of a program that is parsed."""


def with_defaults(source: LaunchFile, groups: Iterable[tuple[str, ...]]) -> LaunchFile:
    """Return a launch line with the defaults that its program's argparse or dataclasses give to options.

    groups  spellings of one option, the first of which it is added as. One that the line states is left alone, and so
            is one whose default is computed, not a plain value, or declared in two ways.
    """
    from napkin.inputs.launch.settings_files import path_of

    path = path_of(source.name, source.script) if source.syntax == "shell" and source.script else None
    stated = _declared(path) if path is not None else {}
    added = {}
    for group in groups:
        values = [(name, value) for name in group for value in stated.get(name, ())]
        if len(values) == 1 and _is_plain(values[0][1]) and not source.has_any(*group):
            added[group[0]] = FileValue(f"{source.program}: {values[0][0]}", values[0][1])
    if not added:
        return source
    found = source.renamed({})
    found.values |= added
    return found


def _is_plain(value: object) -> bool:
    """Return whether a default is a value that an option may have: a flag, a word or a positive number."""
    return isinstance(value, (bool, str)) or (isinstance(value, (int, float)) and value > 0)


def _declared(path: str) -> dict[str, list[object]]:
    """Return the literal defaults of a program's options."""
    import ast

    try:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read(LARGEST))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found: dict[str, list[object]] = {}
    for one in ast.walk(tree):
        for name, node in _options(one):
            found.setdefault(name, []).append(node.value if isinstance(node, ast.Constant) else None)
    return found


def _options(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the options that a node declares: `add_argument("--name", default=1)`, a dataclass's `name: int = 1`."""
    import ast

    from napkin.inputs.launch.python.names import called

    if isinstance(node, ast.Call) and called(node) == "add_argument":
        words = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        given = {one.arg: one.value for one in node.keywords}
        value = given.get("default")
        if value is None and _text(given.get("action")) in ("store_true", "store_false"):
            value = ast.Constant(_text(given.get("action")) == "store_false")
        for word in words:
            if word.startswith("--") and value is not None:
                yield word[2:].replace("-", "_"), value
    elif isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(one) for one in node.decorator_list):
        for one in node.body:
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.value is not None:
                stated = one.value
                if isinstance(stated, ast.Call) and called(stated) == "field":
                    stated = next((each.value for each in stated.keywords if each.arg == "default"), stated)
                yield one.target.id, stated


def _text(node: ast.expr | None) -> str:
    return str(getattr(node, "value", ""))
