"""Defaults that a program declares: options of argparse, fields of dataclasses, attributes of classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from napkin.inputs.launch.python.names import Declared, Names, Values, called, is_literal
from napkin.inputs.launch.values import Open

PARSERS = ("parse_args", "parse_known_args", "parse_args_into_dataclasses", "parse_args_and_config", "cli")
"""Functions that return settings from the command line; the last is tyro's."""
FLAGS = {"store_true": False, "store_false": True}


def settings_of(tree: ast.Module) -> dict[str, ast.expr | None]:
    """Return `args.name` for each setting that a program declares once and never changes → its default.

    `args` are names that are only ever assigned the result of a parser or an instance of one of the program's classes,
    and those classes. A function's parameter of the same name is taken to be the same object.
    """
    classes = {one.name: _fields(one) for one in ast.walk(tree) if isinstance(one, ast.ClassDef)}
    options = _once([*_options(tree), *(pair for one in classes.values() for pair in one.items())])
    found: dict[str, ast.expr | None] = {}
    for name, fields in classes.items():
        found |= {f"{name}.{field}": Declared(node, "") for field, node in fields.items() if node is not None}
    found |= _given(tree)
    for name, kind in _holders(tree, classes).items():
        declared = {key: _of_option(key, node) for key, node in (classes[kind] if kind else options).items()}
        found |= {f"{name}.{key}": node for key, node in declared.items()}
    changed = {ast.unparse(one) for one in ast.walk(tree) if isinstance(one, ast.Attribute) and _is_stored(one)}
    return found | dict.fromkeys(changed & found.keys())


def _given(tree: ast.Module) -> dict[str, ast.expr | None]:
    """Return `config.name` for the keyword arguments of each object that a name is assigned once → the argument."""
    every = [one for one in ast.walk(tree) if isinstance(one, ast.Assign)]
    names = [
        part.id for one in every for target in one.targets for part in ast.walk(target) if isinstance(part, ast.Name)
    ]
    found: dict[str, ast.expr | None] = {}
    for one in every:
        target, value = one.targets[0], one.value
        alone = isinstance(target, ast.Name) and names.count(target.id) == 1
        if alone and isinstance(value, ast.Call) and called(value)[:1].isupper():
            found |= {f"{ast.unparse(target)}.{word.arg}": word.value for word in value.keywords if word.arg}
    return found


def _is_stored(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store)


def _of_option(key: str, node: ast.expr | None) -> ast.expr | None:
    return None if node is None else Declared(node, f"--{key}")


def _once(pairs: list[tuple[str, ast.expr | None]]) -> dict[str, ast.expr | None]:
    """Return the names that occur once → their default; those that occur again → None."""
    found: dict[str, ast.expr | None] = {}
    for name, node in pairs:
        found[name] = None if name in found else node
    return found


def _options(tree: ast.Module) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the options of argparse → their default, None if they have none."""
    for one in ast.walk(tree):
        if not isinstance(one, ast.Call) or called(one) != "add_argument":
            continue
        given = {word.arg: word.value for word in one.keywords}
        flags = [part.value for part in one.args if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        flag = next((part for part in flags if part.startswith("--")), flags[0] if flags else "")
        stored, action = given.get("dest"), given.get("action")
        name = stored.value if isinstance(stored, ast.Constant) else flag.lstrip("-").replace("-", "_")
        default = given.get("default")
        if default is None and isinstance(action, ast.Constant) and action.value in FLAGS:
            default = ast.Constant(FLAGS[action.value])
        yield str(name), default


def _fields(one: ast.ClassDef) -> dict[str, ast.expr | None]:
    """Return the attributes in a class's body → their default, None if they have none or it is made by a factory."""
    found: dict[str, ast.expr | None] = {}
    for part in one.body:
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            found[part.target.id] = part.value
        elif isinstance(part, ast.Assign):
            found |= {target.id: part.value for target in part.targets if isinstance(target, ast.Name)}
    for name, node in found.items():
        if isinstance(node, ast.Call) and called(node) in ("field", "Field"):
            found[name] = next((word.value for word in node.keywords if word.arg == "default"), None)
    return found


def parameters_of(
    tree: ast.Module, function: ast.FunctionDef | ast.AsyncFunctionDef, outer: Names
) -> dict[str, ast.expr | None]:
    """Return the parameters of a function → what its one call in the program gives them, or their default, which
    callers elsewhere override where the program has no call; None if a value is not known."""
    inputs = function.args
    places = [*inputs.posonlyargs, *inputs.args]
    others = [one for one in (inputs.vararg, inputs.kwarg) if one is not None]
    found: dict[str, ast.expr | None] = dict.fromkeys(one.arg for one in (*places, *inputs.kwonlyargs, *others))
    usual = dict(zip([one.arg for one in reversed(places)], reversed(inputs.defaults), strict=False))
    usual |= {
        one.arg: node for one, node in zip(inputs.kwonlyargs, inputs.kw_defaults, strict=True) if node is not None
    }
    used = [one for one in ast.walk(tree) if isinstance(one, ast.Name) and one.id == function.name]
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call) and one.func in used]
    if not calls:
        return found | {name: Declared(node, name) for name, node in usual.items() if is_literal(node)}
    words = [word.arg for word in calls[0].keywords]
    if len(used) > 1 or None in words or any(isinstance(one, ast.Starred) for one in calls[0].args):
        return found
    given = dict(zip([one.arg for one in places], calls[0].args, strict=False))
    given |= {word.arg: word.value for word in calls[0].keywords if word.arg is not None}
    top = any(calls[0] in ast.walk(one) for one in tree.body if not isinstance(one, _SCOPES))
    meant = {name: _resolved(node, outer if top else {}) for name, node in given.items() if name in found}
    return found | {name: node for name, node in usual.items() if is_literal(node)} | meant


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _resolved(node: ast.expr, names: Names) -> ast.expr | None:
    """Return a literal for an expression where it is called; None if its value is not known."""
    if is_literal(node):
        return node
    values = Values((names,))
    value = values.of(node)
    if isinstance(value, (Open, list)):
        return None
    return Declared(ast.Constant(value), values.conditions[0]) if values.conditions else ast.Constant(value)


def _holders(tree: ast.Module, classes: dict[str, dict[str, ast.expr | None]]) -> dict[str, str]:
    """Return the names that hold settings → the class that they are an instance of, or "" for a parser's result."""
    parsing = set(PARSERS) | {
        one.name
        for one in ast.walk(tree)
        if isinstance(one, ast.FunctionDef)
        and any(isinstance(part, ast.Return) and _made(part.value) in PARSERS for part in ast.walk(one))
    }
    found: dict[str, set[str | None]] = {}
    for one in ast.walk(tree):
        if isinstance(one, ast.Assign):
            word = _made(one.value)
            plain = isinstance(one.value, ast.Call) and not one.value.args and not one.value.keywords
            kind = "" if word in parsing else word if word in classes and plain else None
            for name in (part.id for target in one.targets for part in ast.walk(target) if isinstance(part, ast.Name)):
                found.setdefault(name, set()).add(kind)
    return {name: kind for name, kinds in found.items() if len(kinds) == 1 and (kind := kinds.pop()) is not None}


def _made(node: ast.expr | None) -> str:
    """Return the function whose result, or a part of it, an expression is."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return called(node) if isinstance(node, ast.Call) else ""
