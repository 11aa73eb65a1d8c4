"""Read a Python file of assignments, such as nanoGPT's configurations, without running it."""

from __future__ import annotations

from napkin.errors import NapkinError, Refused
from napkin.inputs.launch.source import FileValue, LaunchFile, check_size
from napkin.inputs.launch.values import Open, calculated
from napkin.inputs.load import Document
from napkin.units import Unreadable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from typing import Any


def read(text: str, name: str, line: int = 0) -> LaunchFile:
    """Return the assignments of a Python file, or the setup of its trainer on a line.

    Raises Refused (3) for a program that defines functions or classes but constructs no trainer.
    """
    import ast

    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        wrong = getattr(problem, "lineno", None)
        raise NapkinError(f"{name}{f':{wrong}' if wrong else ''}: not Python", "check the file's syntax") from None
    from napkin.inputs.launch.python.program import program_of
    from napkin.inputs.launch.python.recipes import recipe_of

    program = recipe_of(tree, name, line) or program_of(tree, name, line)
    if program is not None:
        return program
    values: dict[str, FileValue] = {}
    lines: dict[tuple[object, ...], int] = {}
    unread: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            raise Refused(
                f"{name}:{node.lineno}: is a Python program, which napkin does not execute",
                "give sizes as options, or a configuration file in YAML, JSON or TOML",
            )
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            unread[ast.unparse(node)[:60]] = "imports are not executed"
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            _assign(node.targets[0].id, node.value, values, lines)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            changed = ast.BinOp(ast.Name(node.target.id), node.op, node.value)
            _assign(node.target.id, ast.copy_location(changed, node), values, lines)
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            unread[ast.unparse(node).split("\n", 1)[0][:60]] = "only assignments are read"
    check_size(len(values) + len(unread), name)
    source = LaunchFile(name, "python", values, Document(name, None, lines))
    source.unread = unread
    return source


def _assign(key: str, node: ast.expr, values: dict[str, FileValue], lines: dict[tuple[object, ...], int]) -> None:
    """Add an assignment; the entries of `dict(…)` and `{…}` become keys of a block."""
    from napkin.inputs.launch.python.names import parts_of

    inner = parts_of(node)
    if inner:
        for old in [one for one in values if one.startswith(f"{key}.")]:
            del values[old]
        for name, part in inner:
            _assign(f"{key}.{name}", part, values, lines)
        return
    value = _value(node, values)
    if key.endswith(".type") and isinstance(value, Open) and all(one.isidentifier() for one in value.text.split(".")):
        value = value.text  # a class
    values[key] = FileValue(key, value)
    lines[tuple(key.split("."))] = node.lineno


def _value(node: ast.expr, known: dict[str, FileValue]) -> Any:
    """Return the value of a literal, of arithmetic on numbers, or of a name assigned earlier; otherwise Open."""
    import ast

    if isinstance(node, ast.Name) and node.id in known:
        return known[node.id].value
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, MemoryError, RecursionError):
        pass
    written = ast.unparse(node)
    for name in {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} & known.keys():
        if isinstance(known[name].value, (int, float)):
            import re

            written = re.sub(rf"\b{name}\b", str(known[name].value), written)
    try:
        return calculated(written)
    except Unreadable:
        return Open(written)
