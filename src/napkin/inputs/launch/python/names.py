"""Resolve names and expressions in a Python program to values, without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from napkin.inputs.launch.values import Open, calculated
from napkin.units import Unreadable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ON_AMPERE = (
    "is_bfloat16_supported", "is_bf16_supported", "is_torch_bf16_gpu_available", "is_torch_bf16_available",
    "is_available",
)  # fmt: skip
"""Functions that return True on every GPU since Ampere."""
NUMBERS = {"int": int, "float": float, "str": str}
ENUMS = ("torch", "TaskType")
"""Objects whose attributes are values: torch.bfloat16, TaskType.CAUSAL_LM."""
LONGEST_SHOWN = 60
Names = Mapping[str, "ast.expr | None"]


def flat(body: list[ast.stmt], known: Names, sure: bool = True) -> Iterator[tuple[ast.stmt, bool]]:
    """Yield the statements of a body, and whether each always runs when the body does.

    Includes statements inside `with`, `if`, `try` and loops. `if __name__ == "__main__":` counts as always run, and of
    an `if` that `known` names decide what never runs is left out.
    """
    for one in body:
        yield one, sure
        if isinstance(one, (ast.With, ast.AsyncWith)):
            yield from flat(one.body, known, sure)
        elif isinstance(one, ast.If):
            fixed = truth(one.test, known)
            if fixed is not False:
                yield from flat(one.body, known, sure and (bool(fixed) or "__name__" in ast.unparse(one.test)))
            if not fixed:
                yield from flat(one.orelse, known, sure and fixed is not None)
        elif isinstance(one, (ast.For, ast.AsyncFor, ast.While)):
            yield from flat([*one.body, *one.orelse], known, False)
        elif isinstance(one, ast.Try):
            yield from flat(one.body, known, sure)
            handled = [each for part in one.handlers for each in part.body]
            yield from flat([*handled, *one.orelse, *one.finalbody], known, False)
        elif isinstance(one, ast.Match):
            yield from flat([each for part in one.cases for each in part.body], known, False)


def truth(test: ast.expr, known: Names) -> bool | None:
    """Return whether a condition holds; None if that depends on more than literals and names assigned one."""
    values = Values((known,))
    value = values.of(test)
    return None if isinstance(value, Open) or values.conditions else bool(value)


def constants(names: Names) -> dict[str, ast.expr | None]:
    """Return the names that are assigned one literal."""
    return {name: node for name, node in names.items() if node is not None and is_literal(node)}


def is_literal(node: ast.expr) -> bool:
    """Return whether an expression holds no names and calls, apart from torch.bfloat16 and the like."""
    inside = (one for one in ast.walk(node) if isinstance(one, (ast.Name, ast.Call, Declared)))
    return all(isinstance(one, ast.Name) and one.id in ENUMS for one in inside)


def names_of(
    body: list[ast.stmt], parameters: Names | None = None, outer: Names | None = None
) -> dict[str, ast.expr | None]:
    """Return the names assigned in a body → the expression if assigned once and always, else None.

    Of an `if` that its own literals, or those of `outer` names that it does not assign, decide, only what runs counts.
    """
    given = parameters or {}
    first = _assigned(body, given, {})
    free = {name: node for name, node in constants(outer or {}).items() if name not in first}
    return _assigned(body, given, free | constants(first))


def _assigned(body: list[ast.stmt], parameters: Names, known: Names) -> dict[str, ast.expr | None]:
    found = dict(parameters)
    for one, sure in flat(body, known):
        if isinstance(one, (ast.Assign, ast.AnnAssign)) and one.value is not None:
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            for target, value in (pair for whole in targets for pair in _pairs(whole, one.value)):
                alone = isinstance(target, ast.Name) and sure
                for name in _stored(target):
                    more = _with_entry(found.get(name), target, value if sure else ast.Name("a branch"))
                    found[name] = value if alone and name not in found else more
        elif isinstance(one, (ast.AugAssign, ast.For, ast.AsyncFor)):
            found |= dict.fromkeys(_stored(one.target))
        elif isinstance(one, (ast.With, ast.AsyncWith)):
            found |= dict.fromkeys(
                name for each in one.items if each.optional_vars for name in _stored(each.optional_vars)
            )
        elif isinstance(one, (ast.Global, ast.Nonlocal)):
            found |= dict.fromkeys(one.names)
    return found


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """Return the targets of an assignment with their values: of `a, b = 1, 2` two."""
    both = [one.elts if isinstance(one, ast.Tuple) else [] for one in (target, value)]
    if len(both[0]) != len(both[1]) or not both[0] or any(isinstance(one, ast.Starred) for one in both[0] + both[1]):
        return [(target, value)]
    return list(zip(*both, strict=True))


def _with_entry(node: ast.expr | None, target: ast.expr, value: ast.expr) -> ast.expr | None:
    """Return an assigned mapping with the entry that `NAME["key"] = value` sets; None for other targets."""
    parts = parts_of(node) if node is not None else None
    key = target.slice if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) else None
    if parts is None or not isinstance(key, ast.Constant) or not isinstance(key.value, str):
        return None
    entries = dict(parts) | {key.value: ast.copy_location(value, target)}
    return ast.Dict([ast.Constant(name) for name in entries], list(entries.values()))


def _stored(target: ast.expr) -> list[str]:
    """Return the names that an assignment target modifies, including `CONFIG` of `CONFIG["seq"] = 1`."""
    return [one.id for one in ast.walk(target) if isinstance(one, ast.Name)]


def parts_of(node: ast.expr) -> list[tuple[str, ast.expr]] | None:
    """Return the entries of `{"a": …}` or `dict(a=…)`, or None for any other expression."""
    if isinstance(node, ast.Dict):
        keys = [one.value if isinstance(one, ast.Constant) else None for one in node.keys]
        if all(isinstance(one, str) for one in keys):
            return [(str(key), value) for key, value in zip(keys, node.values, strict=True)]
    if isinstance(node, ast.Call) and called(node) == "dict" and not node.args:
        given = [(one.arg, one.value) for one in node.keywords if one.arg is not None]
        return given if len(given) == len(node.keywords) else None
    return None


class Declared(ast.expr):
    """The default of a setting that a program declares, and the option that overrides it, or ""."""

    def __init__(self, default: ast.expr, option: str) -> None:
        super().__init__()
        self.default, self.option = default, option


class Values:
    """Evaluates expressions from the names in scope.

    conditions  functions whose result was used
    """

    def __init__(self, scopes: tuple[Names, ...]) -> None:
        self.scopes = scopes
        self.conditions: list[str] = []

    def expression(self, name: str) -> ast.expr | None:
        """Return the one expression that a name is assigned, or None if there is none or several."""
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    def of(self, node: ast.expr, depth: int = 0) -> Any:
        """Return the value of a literal, a name bound to one, or arithmetic on them; otherwise Open."""
        if depth > 20:
            return Open(shown(node))
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, (bool, int, float, str, type(None))) else Open(shown(node))
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            parts = [self.of(one, depth + 1) for one in node.elts]
            return Open(shown(node)) if any(isinstance(one, Open) for one in parts) else parts
        if isinstance(node, ast.Name):
            meant = self.expression(node.id)
            return self.of(meant, depth + 1) if meant is not None else Open(node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            meant = self.expression(name)
            return name if node.value.id in ENUMS else Open(name) if meant is None else self.of(meant, depth + 1)
        if isinstance(node, Declared):
            self.conditions += [node.option] if node.option else []
            return self.of(node.default, depth + 1)
        if isinstance(node, ast.Call) and called(node) in ON_AMPERE:
            self.conditions.append(f"{called(node)}()")
            return True
        if isinstance(node, ast.Call) and (default := _environment(node)) is not None:
            self.conditions.append(f"${default[0]}")
            return self.of(default[1], depth + 1)
        if isinstance(node, ast.Call) and called(node) in NUMBERS and len(node.args) == 1 and not node.keywords:
            return self._number(node, depth)
        if isinstance(node, ast.BoolOp):
            parts = [self.of(one, depth + 1) for one in node.values]
            if all(isinstance(one, bool) for one in parts):
                return all(parts) if isinstance(node.op, ast.And) else any(parts)
            return Open(shown(node))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.of(node.operand, depth + 1)
            return Open(shown(node)) if isinstance(inner, Open) else not inner
        if isinstance(node, ast.IfExp):
            test = self.of(node.test, depth + 1)
            return (
                Open(shown(node)) if isinstance(test, Open) else self.of(node.body if test else node.orelse, depth + 1)
            )
        if isinstance(node, ast.Compare):
            return self._compared(node, depth)
        return self._computed(node, depth)

    def _compared(self, node: ast.Compare, depth: int) -> Any:
        """Return whether two values are equal, or one is in a list of them."""
        left, right = self.of(node.left, depth + 1), self.of(node.comparators[0], depth + 1)
        sign = node.ops[0]
        if right is None and isinstance(sign, (ast.Is, ast.IsNot)) and isinstance(node.left, ast.Name):
            meant = self.expression(node.left.id)
            left = True if meant is not None and parts_of(meant) is not None else left  # a mapping is not None
        if len(node.ops) == 1 and not isinstance(left, Open) and not isinstance(right, Open):
            if isinstance(sign, (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)):
                return (left == right) is isinstance(sign, (ast.Eq, ast.Is))
            if isinstance(sign, (ast.In, ast.NotIn)) and isinstance(right, list):
                return (left in right) is isinstance(sign, ast.In)
        return Open(shown(node))

    def _number(self, node: ast.Call, depth: int) -> Any:
        """Return what `int("4096")` or `float("0.1")` is."""
        inner = self.of(node.args[0], depth + 1)
        try:
            return NUMBERS[called(node)](inner) if type(inner) in (str, int, float) else Open(shown(node))
        except (ValueError, OverflowError):
            return Open(shown(node))

    def _computed(self, node: ast.expr, depth: int) -> Any:
        """Return the result of + - * // on numbers, or of concatenating strings."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.of(node.operand, depth + 1)
            return -inner if type(inner) in (int, float) else Open(shown(node))
        if isinstance(node, ast.BinOp):
            left, right = self.of(node.left, depth + 1), self.of(node.right, depth + 1)
            sign = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//"}.get(type(node.op))
            if sign == "+" and isinstance(left, str) and isinstance(right, str):
                return left + right
            if sign and type(left) in (int, float) and type(right) in (int, float):
                try:
                    value = calculated(f"({left!r}) {sign} ({right!r})")
                except Unreadable:
                    return Open(shown(node))
                return int(value) if value == int(value) else value
        if isinstance(node, ast.JoinedStr):
            parts = [
                self.of(one.value if isinstance(one, ast.FormattedValue) else one, depth + 1) for one in node.values
            ]
            if all(isinstance(one, (str, int)) for one in parts):
                return "".join(str(one) for one in parts)
        return Open(shown(node))


def _environment(node: ast.Call) -> tuple[str, ast.expr] | None:
    """Return the variable and the default of `os.getenv("NAME", default)` or `os.environ.get("NAME", default)`."""
    asks = called(node) == "getenv" or (called(node) == "get" and owner(node) == "environ")
    name = node.args[0] if len(node.args) == 2 and asks else None
    return (name.value, node.args[1]) if isinstance(name, ast.Constant) and isinstance(name.value, str) else None


def called(node: ast.Call) -> str:
    """Return the last part of a call's name: from_pretrained of FastLanguageModel.from_pretrained."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def owner(node: ast.Call) -> str:
    """Return the part before the last of a call's name: FastLanguageModel of FastLanguageModel.from_pretrained."""
    before = node.func.value if isinstance(node.func, ast.Attribute) else None
    return before.attr if isinstance(before, ast.Attribute) else getattr(before, "id", "")


def shown(node: ast.AST) -> str:
    """Return an expression's source for messages."""
    return ast.unparse(node).split("\n", 1)[0][:LONGEST_SHOWN]
