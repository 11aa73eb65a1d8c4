"""The modules of a quantized checkpoint that stay in 16 bits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from napkin.operations.fold_cache import remembered
from napkin.operations.model import Model
from napkin.record import record

_LAYER = re.compile(r"^.*?layers\.(?=\d|\*)")
_NUMBERED = re.compile(r"^layers\.(\d+)(?:\.|$)")
ROOTS = ("model.", "language_model.model.", "model.language_model.", "")
"""Prefixes of `layers.` in the classes; an expression is tried with each."""


@remembered
def narrow_layers(model: Model, kept: tuple[str, ...]) -> Mapping[tuple[str, str, str], int]:
    """Return the number of layers of one type in which an operation's matrices are stored in the quantized format, by
    stack, layer type and operation.

    kept  modules in 16 bits: `re:` and an expression, or the path of a module or of one that contains it, or the end of
          the path, with `*` for anything (transformers 5.23.0, quantizers/quantizers_utils.py, should_convert_module;
          compressed-tensors, utils/match.py)"""
    paths = _Kept.of(kept)
    found: dict[tuple[str, str, str], int] = {}
    for stack in model.stacks:
        names = {id(layer): name for name, _, layer in stack.kinds()}
        at = 0
        for count, layer in stack.runs:
            for index in range(at, at + count):
                for op in layer.operations:
                    key = (stack.name, names[id(layer)], op.name)
                    found[key] = found.get(key, 0) + (not paths.has(index, op.module))
            at += count
    return found


def narrow_shares(model: Model, kept: tuple[str, ...]) -> tuple[tuple[str, float], ...]:
    """Return the modules that are not quantized in every layer, and the share of their layers in which they are."""
    counts: dict[str, list[int]] = {}
    narrow = narrow_layers(model, kept)
    for stack in model.stacks:
        for kind, count, layer in stack.kinds():
            for op in layer.operations:
                both = counts.setdefault(op.module, [0, 0])
                both[0] += narrow[stack.name, kind, op.name]
                both[1] += count
    return tuple((name, some / all_) for name, (some, all_) in counts.items() if some < all_)


@record
class _Kept:
    """Modules that stay in 16 bits.

    parts    paths, or parts of them               numbered  {layer: such paths below `layers.N.`}
    spanned  paths with `*`, as expressions        expressions  as the file has them
    """

    parts: tuple[str, ...]
    numbered: Mapping[int, tuple[str, ...]]
    spanned: tuple[re.Pattern[str], ...]
    expressions: tuple[re.Pattern[str], ...]

    @staticmethod
    def of(kept: Iterable[str]) -> _Kept:
        """Return the modules from the file's patterns."""
        parts: list[str] = []
        spanned: list[re.Pattern[str]] = []
        expressions: list[re.Pattern[str]] = []
        numbered: dict[int, list[str]] = {}
        for one in kept:
            if one.startswith("re:"):
                expressions.append(re.compile(one.removeprefix("re:")))
                continue
            path = _LAYER.sub("layers.", one)
            if "*" in path:
                inner = ".*".join(map(re.escape, re.split(r"\*+", path)))
                spanned.append(re.compile(rf"(?:^|\.){inner}(?:\.|$)"))
            elif layer := _NUMBERED.match(path):
                numbered.setdefault(int(layer[1]), []).append(path)
            else:
                parts.append(path)
        return _Kept(tuple(parts), {at: tuple(own) for at, own in numbered.items()}, tuple(spanned), tuple(expressions))

    def has(self, layer: int, module: str) -> bool:
        """Return whether a module of a layer is among them, or within one of them."""
        path = f"layers.{layer}.{module}"
        whole = f".{path}."
        return (
            any(f".{one}." in whole for one in (*self.parts, *self.numbered.get(layer, ())))
            or any(one.search(path) for one in self.spanned)
            or any(one.match(root + path) for one in self.expressions for root in ROOTS)
        )
