"""Follow a Python program that puts a configuration together, without running it: the objects that it constructs, and
what it sets on them.

Functions of the file are followed; calls of others are objects of their name and arguments. A value that is computed,
parsed from the command line, or set in a branch whose condition is unknown is open.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from napkin.errors import NapkinError
from napkin.inputs.launch.python.names import ENUMS, NUMBERS, Values, shown
from napkin.inputs.launch.values import Open

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_STEPS = 20_000
"""Most statements and expressions that are followed in a file. Published recipes have some thousands."""
DEEPEST_CALL = 12
WRAPPERS = ("Config", "Partial", "partial")
"""nemo_run's Config and Partial, and functools': the first argument is what is constructed."""
LAUNCHERS = ("run", "pretrain", "finetune", "train", "add", "print", "set_exp_logging_configs")
"""Functions that start a recipe, or show or log it."""
SETTINGS = "settings"
"""The block of a setter's other arguments."""
PLAIN = (bool, int, float, str, type(None))


class Made:
    """An object that a program constructs.

    target  its class or function, as written      args    positional arguments
    fields  keyword arguments, and attributes set later → (value, line)
    line    of the call                            sure    it is made whenever the program runs
    """

    def __init__(self, target: str, args: tuple[Any, ...] = (), line: int = 0, sure: bool = True) -> None:
        self.target, self.args = target, args
        self.line, self.sure = line, sure
        self.fields: dict[str, tuple[Any, int]] = {}

    @property
    def word(self) -> str:
        """The last part of the target's name."""
        return self.target.rpartition(".")[2]

    def get(self, name: str) -> Any:
        found = self.fields.get(name)
        return found[0] if found is not None else Open(f"{self.word}.{name}")


class Evaluation:
    """The names of a program and the objects that it constructs, in order.

    places   functions of other files → the names of their positional arguments
    setters  functions that set their arguments on the first one → argument → the path of the attribute
    unread   what changes an object in a way that is not followed → why
    """

    def __init__(
        self,
        tree: ast.Module,
        name: str,
        places: Mapping[str, tuple[str, ...]],
        setters: Mapping[str, Mapping[str, str]],
    ) -> None:
        self.name, self.places, self.setters = name, places, setters
        self.functions = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
        self.names: dict[str, Any] = {}
        self.made: list[Made] = []
        self.unread: dict[str, str] = {}
        self.passed: list[tuple[Any, str]] = []
        """What is passed to functions of other files, and the calls."""
        self.sure, self.depth, self.steps = True, 0, 0

    # statements

    def run(self, body: list[ast.stmt], names: dict[str, Any]) -> tuple[bool, Any]:
        """Follow statements. Return whether one returns, and what."""
        for one in body:
            self._step(one)
            done, value = self._statement(one, names)
            if done:
                return True, value
        return False, None

    def _statement(self, one: ast.stmt, names: dict[str, Any]) -> tuple[bool, Any]:
        if isinstance(one, ast.Return):
            value = self.of(one.value, names) if one.value is not None else None
            if not self.sure:
                self.unread[shown(one)] = "returned in a branch whose condition is set elsewhere"
            return self.sure, value
        if isinstance(one, (ast.Assign, ast.AnnAssign)) and one.value is not None:
            value = self.of(one.value, names)
            for target in one.targets if isinstance(one, ast.Assign) else [one.target]:
                if isinstance(target, ast.Name) and isinstance(value, Made) and value.word not in self.functions:
                    before = names.get(target.id)
                    value = before if isinstance(before, Made) and any(each is before for each in value.args) else value
                self._store(target, value, names)
        elif isinstance(one, ast.AugAssign):
            self._store(one.target, Open(shown(one)), names)
        elif isinstance(one, ast.Expr):
            self.of(one.value, names)
        elif isinstance(one, ast.If):
            return self._branch(one, names)
        elif isinstance(one, (ast.With, ast.Try)):
            return self.run(one.body, names)
        elif isinstance(one, (ast.For, ast.While)):
            self._unsure(one.body, names)
        elif isinstance(one, ast.FunctionDef):
            self.functions.setdefault(one.name, one)
        return False, None

    def _branch(self, one: ast.If, names: dict[str, Any]) -> tuple[bool, Any]:
        main = isinstance(one.test, ast.Compare) and "__name__" in ast.unparse(one.test)
        test = True if main else _truth(self.of(one.test, names))
        if test is None:
            self._unsure(one.body, names)
            self._unsure(one.orelse, names)
            return False, None
        return self.run(one.body if test else one.orelse, names)

    def _unsure(self, body: list[ast.stmt], names: dict[str, Any]) -> None:
        """Follow statements of which it is unknown whether they run."""
        before, self.sure = self.sure, False
        self.run(body, names)
        self.sure = before

    def _store(self, target: ast.expr, value: Any, names: dict[str, Any]) -> None:
        if isinstance(target, ast.Name):
            same = isinstance(value, Made) and names.get(target.id) is value
            names[target.id] = value if self.sure or same else Open(target.id)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self._store(part, Open(shown(part)), names)
        elif isinstance(target, ast.Attribute):
            owner = self._owner(target.value, names)
            if owner is not None:
                owner.fields[target.attr] = (value if self.sure else Open(shown(target)), target.lineno)
        elif isinstance(target, ast.Subscript):
            self.unread[shown(target)] = "an item is set by its key"

    def _owner(self, node: ast.expr, names: dict[str, Any]) -> Made | None:
        """Return the object whose attribute is set; one that the file does not construct begins empty."""
        if isinstance(node, ast.Attribute):
            outer = self._owner(node.value, names)
            if outer is None:
                return None
            inner = outer.fields.get(node.attr)
            if inner is None or not isinstance(inner[0], Made):
                outer.fields[node.attr] = (Made(""), node.lineno)
            found = outer.fields[node.attr][0]
        else:
            found = self.of(node, names)
        return found if isinstance(found, Made) else None

    # expressions

    def of(self, node: ast.expr, names: dict[str, Any]) -> Any:
        """Return the value of an expression: a plain value, a list, an object, or Open."""
        self._step(node)
        if isinstance(node, ast.Name):
            return names[node.id] if node.id in names else self.names.get(node.id, Open(node.id))
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id in ENUMS:
                return f"{node.value.id}.{node.attr}"
            owner = self.of(node.value, names)
            return owner.get(node.attr) if isinstance(owner, Made) else Open(shown(node))
        if isinstance(node, ast.Call):
            return self._call(node, names)
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self.of(one, names) for one in node.elts]
        if isinstance(node, ast.Dict):
            return self._mapping(node, names)
        if isinstance(node, ast.IfExp):
            test = _truth(self.of(node.test, names))
            return Open(shown(node)) if test is None else self.of(node.body if test else node.orelse, names)
        if isinstance(node, ast.Compare):
            return self._compared(node, names)
        if isinstance(node, ast.Subscript):
            return self._item(node, names)
        if isinstance(node, (ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.JoinedStr)):
            return self._computed(node, names)
        return node.value if isinstance(node, ast.Constant) and isinstance(node.value, PLAIN) else Open(shown(node))

    def _item(self, node: ast.Subscript, names: dict[str, Any]) -> Any:
        """Return an entry of a mapping that the file writes out; of another's, its name and the key."""
        owner, key = self.of(node.value, names), self.of(node.slice, names)
        if isinstance(owner, Made) and not owner.target and isinstance(key, str):
            return owner.get(key)
        return Open(f"{shown(node.value)}[{key!r}]" if isinstance(key, PLAIN) else shown(node))

    def _mapping(self, node: ast.Dict, names: dict[str, Any]) -> Made:
        found = Made("")
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                found.fields[key.value] = (self.of(value, names), value.lineno)
        return found

    def _computed(self, node: ast.expr, names: dict[str, Any]) -> Any:
        """Return the result of arithmetic, of and, or, not, or of joined texts, where the parts are plain."""
        if isinstance(node, ast.BoolOp):
            ends = isinstance(node.op, ast.Or)
            value: Any = None
            for one in node.values:
                value = self.of(one, names)
                if (truth := _truth(value)) is None:
                    return Open(shown(node))
                if truth is ends:
                    return value
            return value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            truth = _truth(self.of(node.operand, names))
            return Open(shown(node)) if truth is None else not truth
        inside = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        plain = {name: ast.Constant(value) for name in inside if isinstance(value := self._named(name, names), PLAIN)}
        return Values((plain,)).of(node)

    def _named(self, name: str, names: dict[str, Any]) -> Any:
        return names.get(name, self.names.get(name, Open(name)))

    def _compared(self, node: ast.Compare, names: dict[str, Any]) -> Any:
        left, right = self.of(node.left, names), self.of(node.comparators[0], names)
        if len(node.ops) > 1 or any(isinstance(one, (Open, Made)) for one in (left, right)):
            return Open(shown(node))
        sign = node.ops[0]
        if isinstance(sign, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)):
            return (left == right) is isinstance(sign, (ast.Is, ast.Eq))
        if isinstance(sign, (ast.In, ast.NotIn)) and isinstance(right, list):
            return (left in right) is isinstance(sign, ast.In)
        return Open(shown(node))

    def _call(self, node: ast.Call, names: dict[str, Any]) -> Any:
        args = [self.of(one, names) for one in node.args]
        fields = {one.arg: (self.of(one.value, names), one.value.lineno) for one in node.keywords if one.arg}
        if isinstance(node.func, ast.Name):
            if node.func.id in self.functions and self.depth < DEEPEST_CALL:
                return self.called(self.functions[node.func.id], args, fields)
            if node.func.id in NUMBERS and len(args) == 1 and isinstance(args[0], PLAIN):
                return Values(({"x": ast.Constant(args[0])},)).of(ast.Call(node.func, [ast.Name("x")], []))
            if node.func.id == "isinstance" and len(node.args) == 2 and isinstance(args[0], str):
                return ast.unparse(node.args[1]) == "str" or Open(shown(node))
        made = self._constructed(node, args, names)
        if isinstance(made, Made) and made.word in self.setters and args and isinstance(args[0], Made):
            self._set(args[0], self.setters[made.word], fields)
            return args[0]
        if not isinstance(made, Made):
            return made
        for one in node.keywords:
            spread = self.of(one.value, names) if one.arg is None else None
            if isinstance(spread, Made):
                made.fields |= spread.fields
            elif one.arg is None:
                self.unread[f"**{shown(one.value)}"] = "arguments that the file does not write out"
        made.fields |= {
            key: (value, node.lineno) for key, value in zip(self.places.get(made.word, ()), args, strict=False)
        }
        made.fields |= fields
        made.line, made.sure = node.lineno, self.sure
        self.made.append(made)
        if made.word not in LAUNCHERS and not made.word[:1].isupper():
            self.passed += [(one, shown(node)) for one in (*args, *(part for part, _ in fields.values()))]
        return made

    def _set(self, owner: Made, paths: Mapping[str, str], fields: dict[str, tuple[Any, int]]) -> None:
        """Set the arguments of a setter on an object."""
        for name, (value, line) in fields.items():
            *blocks, last = paths.get(name, f"{SETTINGS}.{name}").split(".")
            inner = owner
            for block in blocks:
                if not isinstance(inner.get(block), Made):
                    inner.fields[block] = (Made(""), line)
                inner = inner.get(block)
            inner.fields[last] = (value if self.sure else Open(name), line)

    def _constructed(self, node: ast.Call, args: list[Any], names: dict[str, Any]) -> Any:
        """Return what a call of a function of another file gives: an object; of a text or a list, their methods."""
        if isinstance(node.func, ast.Attribute):
            owner = self.of(node.func.value, names)
            if isinstance(owner, str) and node.func.attr in ("lower", "upper", "strip") and not args:
                return getattr(owner, node.func.attr)()
            if isinstance(owner, list):
                owner += args if node.func.attr == "append" else []
                return None
            if isinstance(owner, Made) and isinstance(node.func.value, ast.Call):
                return Made(f"{owner.target}.{node.func.attr}", (*owner.args, *args))
        if isinstance(node.func, ast.Call):
            inner = self.of(node.func, names)
            return inner if isinstance(inner, Made) else Made(shown(node.func), tuple(args))
        target = ast.unparse(node.func)
        if target.rpartition(".")[2] in WRAPPERS and node.args:
            return Made(args[0].text if isinstance(args[0], Open) else ast.unparse(node.args[0]), tuple(args[1:]))
        return Made(target, tuple(args))

    def called(self, function: ast.FunctionDef, args: list[Any], fields: dict[str, tuple[Any, int]]) -> Any:
        """Return what a function of the file returns for these arguments; the others have their defaults."""
        inputs = function.args
        places = [*inputs.posonlyargs, *inputs.args]
        names: dict[str, Any] = {one.arg: Open(one.arg) for one in (*places, *inputs.kwonlyargs)}
        later = zip(reversed(places), reversed(inputs.defaults), strict=False)
        own = zip(inputs.kwonlyargs, inputs.kw_defaults, strict=True)
        for place, default in (*later, *own):
            if default is not None:
                names[place.arg] = self.of(default, {})
        names |= {place.arg: value for place, value in zip(places, args, strict=False)}
        names |= {name: value for name, (value, _) in fields.items() if name in names}
        self.depth += 1
        _, value = self.run(function.body, names)
        self.depth -= 1
        return value

    def _step(self, node: ast.AST) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            line = getattr(node, "lineno", 1)
            raise NapkinError(f"{self.name}:{line}: has too many statements to follow", "give one recipe")


def _truth(value: Any) -> bool | None:
    """Return whether a value counts as true; None if that is unknown, as of what a function of another file returns."""
    return None if isinstance(value, (Open, Made)) else bool(value)
