"""The answer as a tree: each node has a value, a unit, and the operation and parts that it is computed from.

The operations are a small closed set (`OPS`). Folding a tree gives its value back, and the units of the parts combine
into the node's; the expression that `--explain` prints is derived from `op` and `parts`, so it cannot drift.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import sub

from napkin import elementwise, units
from napkin.elementwise import Number

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from typing import Any

GIVEN, TRUE, SEEN, MEASURED, ASSUMED = "given", "exact", "published", "measured", "assumed"
"""Kinds of number: given by the user · exact (a fact or formula) · a published measurement · measured here ·
assumed."""


class Term:
    """A named quantity. `value` is a number, or an array with one entry per layout.

    name    path of the quantity; public API where an answer publishes it (`memory/optimizer/exp_avg`)
    unit    canonical unit (units/algebra.py); "1" if there is none
    op      a key of OPS; for a leaf `given`, `measured`, `table` (a cited figure) or `constant`
    parts   what it is computed from; empty for a leaf
    source  citation of the formula or constant
    kind    for a leaf, one of the five kinds; "" if there are parts
    """

    __slots__ = ("kind", "name", "op", "parts", "source", "unit", "value")

    def __init__(
        self,
        name: str,
        value: Number,
        unit: str,
        op: str,
        parts: tuple[Term, ...] = (),
        source: str = "",
        kind: str = "",
    ) -> None:
        self.name = name
        self.value: Any = value  # a command reads one number here, a search an array
        self.unit = unit
        self.op = op
        self.parts = parts
        self.source = source
        self.kind = kind

    def __repr__(self) -> str:
        return f"Term({self.name!r}, {self.value!r}, {self.unit!r}, {self.op!r}, {len(self.parts)} parts)"

    def renamed(self, name: str, source: str = "") -> Term:
        """Return the same quantity under another name."""
        return Term(name, self.value, self.unit, self.op, self.parts, source or self.source, self.kind)

    def walk(self) -> Iterator[Term]:
        """Yield this node and all below it, parents first; a node that several parents share, once."""
        seen: set[int] = set()
        waiting = [self]
        while waiting:
            node = waiting.pop()
            if id(node) not in seen:
                seen.add(id(node))
                yield node
                waiting.extend(reversed(node.parts))

    def kinds(self) -> set[str]:
        """Return the kinds of number that this quantity rests on."""
        return {node.kind for node in self.walk() if not node.parts}


class Op:
    """One operation: how it combines values, how it combines units, and how it is printed. pair: how it combines two
    values, as most nodes have, without a sequence of them; units: a cache, by the units of the parts."""

    __slots__ = ("fold", "pair", "unit", "units", "write")

    def __init__(
        self,
        fold: Callable[[Sequence[Number]], Number],
        unit: Callable[[Sequence[str]], str],
        write: Callable[[Sequence[str]], str],
        pair: Callable[[Number, Number], Number] | None = None,
    ) -> None:
        self.fold = fold
        self.pair = pair or (lambda a, b: fold((a, b)))
        self.unit = unit
        self.write = write
        self.units: dict[tuple[str, ...], str] = {}


def _in_turn(
    pair: Callable[[Number, Number], Number],
    unit: Callable[[Sequence[str]], str],
    write: Callable[[Sequence[str]], str],
) -> Op:
    """Return the operation that combines its first two values, then the result with each further one."""
    return Op(lambda values: reduce(pair, values), unit, write, pair)


def _infix(symbol: str) -> Callable[[Sequence[str]], str]:
    return lambda names: f" {symbol} ".join(names)


def _call(name: str) -> Callable[[Sequence[str]], str]:
    return lambda names: f"{name}({', '.join(names)})"


def _quotient_unit(parts: Sequence[str]) -> str:
    return units.combine((parts[0], 1), *((p, -1) for p in parts[1:]))


def _no_unit(parts: Sequence[str]) -> str:
    if any(part != "1" for part in parts):
        raise ValueError(f"only numbers without a unit are raised to a power, not {' and '.join(parts)}")
    return "1"


def _plus(a: Number, b: Number) -> Number:
    if b.__class__ is int and not b and elementwise.is_array(a):
        return a  # nothing is added to an array
    return elementwise.plus(a, b)


OPS: dict[str, Op] = {
    "sum": _in_turn(_plus, lambda u: units.same(*u), _infix("+")),
    "difference": _in_turn(sub, lambda u: units.same(*u), _infix("−")),
    "product": _in_turn(elementwise.times, lambda u: units.combine(*((p, 1) for p in u)), _infix("×")),
    "quotient": _in_turn(elementwise.ratio, _quotient_unit, _infix("/")),
    "max": _in_turn(elementwise.maximum, lambda u: units.same(*u), _call("max")),
    "smooth_max": Op(
        lambda v: reduce(elementwise.plus, [x**4 for x in v]) ** 0.25,  # (Σ x⁴)^¼: no kink where two bounds meet
        lambda u: units.same(*u),
        _call("smooth max"),
    ),
    "min": _in_turn(elementwise.minimum, lambda u: units.same(*u), _call("min")),
    "ceil_quotient": _in_turn(elementwise.ceil_div, _quotient_unit, lambda n: f"⌈{n[0]} / {n[1]}⌉"),
    "ceil": Op(lambda v: elementwise.ceiling(v[0]), lambda u: u[0], lambda n: f"⌈{n[0]}⌉"),
    "floor": Op(lambda v: elementwise.floor(v[0]), lambda u: u[0], lambda n: f"⌊{n[0]}⌋"),
    "choice": Op(
        lambda v: elementwise.where(v[0], v[1], v[2]),
        lambda u: units.same(u[1], u[2]),
        lambda n: f"{n[1]} if {n[0]} else {n[2]}",
    ),
    "sqrt": Op(lambda v: elementwise.square_root(v[0]), lambda u: units.root(u[0]), _call("√")),
    "power": Op(lambda v: elementwise.power(v[0], v[1]), _no_unit, _infix("^")),
    "log2": Op(lambda v: elementwise.log2(v[0]), _no_unit, _call("log2")),
    "greater": Op(
        lambda v: elementwise.where(v[0] > v[1], 1, 0),
        lambda u: units.same(*u) and "1",
        lambda n: f"1 if {n[0]} > {n[1]} else 0",
    ),
}


def define(name: str, formula: Callable[..., Number]) -> None:
    """Add an operation to `OPS`: a formula that takes and returns numbers without units, written as a call.

    For a formula with many intermediate values, of which a reader wants to see only the inputs and the result."""
    OPS[name] = Op(lambda v: formula(*v), _no_unit, _call(name.replace("_", " ")))


def leaf(name: str, value: Number, unit: str, kind: str = GIVEN, source: str = "") -> Term:
    """Return an input of the formulas."""
    op = {GIVEN: "given", MEASURED: "measured"}.get(kind, "table" if source else "constant")
    return Term(name, value, unit, op, (), source, kind)


def constant(name: str, value: Number, unit: str = "1", source: str = "") -> Term:
    """Return a number that belongs to a formula (the 6 of 6·N·P)."""
    return Term(name, value, unit, "constant", (), source, TRUE)


def make(op: str, name: str, parts: Sequence[Term], source: str = "") -> Term:
    """Return the node `name` = op(parts); its value and unit follow from the parts."""
    rule = OPS[op]
    of_parts: tuple[str, ...]
    if len(parts) == 2:  # most have
        a, b = parts
        of_parts, value = (a.unit, b.unit), rule.pair(a.value, b.value)
    else:
        of_parts, value = tuple([part.unit for part in parts]), rule.fold([part.value for part in parts])
    unit = rule.units.get(of_parts)
    if unit is None:
        unit = rule.units[of_parts] = rule.unit(of_parts)
    return Term(name, value, unit, op, tuple(parts), source)


def add(name: str, *parts: Term, source: str = "") -> Term:
    """Return the sum of the parts, all of one unit."""
    return make("sum", name, parts, source)


def subtract(name: str, a: Term, b: Term, source: str = "") -> Term:
    """Return a − b, both of one unit."""
    return make("difference", name, (a, b), source)


def multiply(name: str, *parts: Term, source: str = "") -> Term:
    """Return the product of the parts; its unit is the product of theirs."""
    return make("product", name, parts, source)


def divide(name: str, a: Term, *by: Term, source: str = "") -> Term:
    """Return `a` divided by each of the others in turn."""
    return make("quotient", name, (a, *by), source)


def largest(name: str, *parts: Term, source: str = "") -> Term:
    """Return the largest of the parts, all of one unit."""
    return make("max", name, parts, source)


def smooth_largest(name: str, *parts: Term, source: str = "") -> Term:
    """Return (Σ x⁴)^¼ of the parts: close to the largest one, without a kink where two bounds meet."""
    return make("smooth_max", name, parts, source)


def smallest(name: str, *parts: Term, source: str = "") -> Term:
    """Return the smallest of the parts, all of one unit."""
    return make("min", name, parts, source)


def ceil_divide(name: str, a: Term, b: Term, source: str = "") -> Term:
    """Return ⌈a / b⌉."""
    return make("ceil_quotient", name, (a, b), source)


def ceiling(name: str, part: Term, source: str = "") -> Term:
    """Return the part rounded up to an integer."""
    return make("ceil", name, (part,), source)


def floor(name: str, part: Term, source: str = "") -> Term:
    """Return the part rounded down to an integer."""
    return make("floor", name, (part,), source)


def choose(name: str, condition: Term, yes: Term, no: Term, source: str = "") -> Term:
    """Return `yes` if the condition is not 0, else `no`; both of one unit."""
    return make("choice", name, (condition, yes, no), source)


def square_root(name: str, part: Term, source: str = "") -> Term:
    """Return the square root of the part."""
    return make("sqrt", name, (part,), source)


def power(name: str, base: Term, exponent: Term, source: str = "") -> Term:
    """Return base^exponent, both without a unit."""
    return make("power", name, (base, exponent), source)


def log2(name: str, part: Term, source: str = "") -> Term:
    """Return the base-2 logarithm of a number without a unit."""
    return make("log2", name, (part,), source)


def greater(name: str, a: Term, b: Term, source: str = "") -> Term:
    """Return 1 where a > b, else 0."""
    return make("greater", name, (a, b), source)


def fold(term: Term, found: dict[int, Number] | None = None) -> Number:
    """Return the value recomputed from the leaves; `found` caches values by node id, for nodes that trees share."""
    return _fold(term, {} if found is None else found)


def _fold(node: Term, found: dict[int, Number]) -> Number:
    """Return the value of a node, computing each shared node once."""
    if id(node) not in found:
        found[id(node)] = OPS[node.op].fold([_fold(part, found) for part in node.parts]) if node.parts else node.value
    return found[id(node)]


def expression(term: Term) -> str:
    """Return how the node is computed from its parts, by their names: `6 × params × tokens`.

    A name below the node's own path is written without that path; where all parts have the node's parent path, without
    the parent path.
    """
    if not term.parts:
        return ""
    below, parent = f"{term.name}/", term.name[: term.name.rfind("/") + 1]
    siblings = bool(parent) and all(part.name.startswith(parent) for part in term.parts)
    names = []
    for part in term.parts:
        if not part.parts and part.op == "constant" and part.unit == "1" and isinstance(part.value, int):
            names.append(str(part.value))
        elif part.name.startswith(below):
            names.append(part.name[len(below) :])
        else:
            names.append(part.name[len(parent) :] if siblings else part.name)
    return OPS[term.op].write(names)
