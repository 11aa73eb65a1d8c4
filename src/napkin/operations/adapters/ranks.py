"""Ranks of their own for some of LoRA's modules, as peft's rank_pattern gives them (peft 0.21, utils/other.py,
get_pattern_key): the first pattern counts that matches a module's path, or its end after a dot."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from napkin.errors import NapkinError, Refused
from napkin.inputs.rank_patterns import is_plain
from napkin.operations.adapters.lora import module_of, modules_of, times_rank
from napkin.operations.adapters.named import is_target
from napkin.operations.adapters.targets import RANK, paths_in
from napkin.operations.base import Operation
from napkin.operations.facts import LinearPart
from napkin.operations.implementations import Implementation
from napkin.operations.model import Layer, Model, Stack, stack_of
from napkin.operations.tuning import Tuning
from napkin.record import replace

MOST_PATTERNS = 4096
"""Patterns that are read; more are refused."""
LARGEST_RANK = 10**6
WITHIN = "language_model"
"""What the language model is called in a class with other towers."""
_ONE_EXPERT = re.compile(r"experts?\W*[_.]\W*(?:\d|\\d)")

Ranks = tuple[tuple[str, int], ...]
"""(pattern, rank) in order, or (path, rank)."""


def ranks_among(targets: Iterable[str]) -> Ranks:
    """Return the ranks that `PATTERN=RANK` among the targets give."""
    found = []
    for target in targets:
        pattern, equals, rank = target.rpartition(RANK)
        if not equals:
            continue
        if not (rank.isascii() and rank.isdecimal() and len(rank) < 9 and 0 < int(rank) <= LARGEST_RANK):
            raise NapkinError(f"--lora-targets {target[:60]}: {rank[:20]!r} is no rank", "for example down_proj=8")
        if not is_plain(pattern):
            raise Refused(
                f"--lora-targets {target[:60]}: napkin does not read this pattern",
                r"names, ., .*, \d+, [0-9] and (a|b), as in layers.(0|1).*q_proj=8",
            )
        if _ONE_EXPERT.search(pattern):
            raise Refused(
                f"--lora-targets {target[:60]}: ranks in single experts are not modeled", "one for all of them"
            )
        found.append((pattern, int(rank)))
    if len(found) > MOST_PATTERNS:
        raise Refused(f"--lora-targets: {len(found):,} patterns of ranks", f"at most {MOST_PATTERNS:,}")
    return tuple(found)


@lru_cache(4)
def patterns_of(ranks: Ranks) -> Patterns:
    """Return the patterns of ranks, which remember what they matched: layouts and suggestions ask the same again."""
    return Patterns(ranks)


class Patterns:
    """Patterns with their ranks."""

    def __init__(self, ranks: Ranks) -> None:
        try:
            self._compiled = [(re.compile(rf"(.*\.)?({pattern})$"), rank) for pattern, rank in ranks]
        except re.error as problem:
            raise NapkinError(f"--lora-targets: {problem}", "for example down_proj=8") from None
        self._places: dict[str, int | None] = {}

    def place(self, path: str) -> int | None:
        """Return which pattern gives a module its rank."""
        if path not in self._places:
            found = next((at for at, (one, _) in enumerate(self._compiled) if one.match(path)), None)
            self._places[path] = found
        return self._places[path]

    def of(self, paths: Iterable[str], before: str = "") -> Ranks:
        """Return (path, rank) of the paths with ranks of their own. before: what the class puts before them."""
        places = ((path, self.place((before + path).lower())) for path in paths)
        return tuple((path, self._compiled[at][1]) for path, at in places if at is not None)


def with_ranks(model: Model, ranks: Ranks, implementation: Implementation) -> Model:
    """Return a model whose layers know the ranks of their modules."""
    patterns = patterns_of(ranks)
    stacks = [_ranked(stack, patterns, implementation, at) for stack, at in _located(model)]
    return replace(model, stacks=tuple(stacks))


def ranks_outside(model: Model, ranks: Ranks, implementation: Implementation) -> Ranks:
    """Return (path, rank) of the modules that are in no layer."""
    return patterns_of(ranks).of(path for op in _ends(model) for path in all_paths(op, implementation))


def check_ranks(model: Model, ranks: Ranks, implementation: Implementation) -> tuple[str, ...]:
    """Return the patterns that give no adapter its rank. Raises where a pattern may name what is before the layers of a
    class that napkin does not know. implementation: with the adapters."""
    tuning = implementation.tuning
    assert tuning is not None

    def adapted(op: Operation) -> Iterator[str]:
        return _adapted_paths(op, implementation, tuning)

    patterns = patterns_of(ranks)
    used = {patterns.place(path.lower()) for op in _ends(model) for path in adapted(op)}
    within: set[str] = set()
    for stack, at in _located(model):
        for number, paths in enumerate(numbered_paths(stack, adapted)):
            within |= paths if not at else set()
            used |= {patterns.place(f"{at}.{number}.{path}".lower() if at else path.lower()) for path in paths}
    unused = tuple(pattern for at, (pattern, _) in enumerate(ranks) if at not in used)
    if within and unused:
        raise Refused(
            f"--lora-targets {unused[0][:60]}={dict(ranks)[unused[0]]}: where {model.family}'s layers are in their "
            "class is not known",
            "name modules within the layers, as in self_attn.q_proj=8",
        )
    return unused


def numbered_paths(stack: Stack, paths: Callable[[Operation], Iterable[str]]) -> list[frozenset[str]]:
    """Return the paths within each layer, in the order of the layers."""
    found: dict[int, frozenset[str]] = {}
    for layer in stack.layers:
        held = (path for op, _ in modules_of(layer.operations) for path in paths(op))
        found[id(layer)] = frozenset(held)
    return [found[id(layer)] for count, layer in stack.runs for _ in range(count)]


def _located(model: Model) -> list[tuple[Stack, str]]:
    """Return each stack with the path of its layers in the class; an empty one where that is not known."""
    from napkin._tables.layer_paths import TYPES

    known = next((paths for paths, types in TYPES.items() if model.family in types), ())
    # a class with a tower puts its language model elsewhere; the table has those that it was built within
    apart = model.vision is not None and not all(WITHIN in path.split(".") for path in known)
    if apart or len(known) != len(model.stacks):
        known = ("",) * len(model.stacks)
    return list(zip(model.stacks, known, strict=True))


def _ranked(stack: Stack, patterns: Patterns, implementation: Implementation, at: str) -> Stack:
    """Return a stack whose layers know the ranks of their modules. at: the path of the layers in the class."""
    paths = numbered_paths(stack, lambda op: all_paths(op, implementation))
    runs: list[tuple[int, Layer]] = []
    known: dict[tuple[int, Ranks], Layer] = {}
    numbers = iter(range(len(paths)))
    for count, layer in stack.runs:
        for _ in range(count):
            number = next(numbers)
            ranks = patterns.of(sorted(paths[number]), f"{at}.{number}." if at else "")
            runs.append((1, known.setdefault((id(layer), ranks), replace(layer, ranks=ranks))))
    return stack_of(stack.name, stack.before, runs, stack.after)


def _ends(model: Model) -> list[Operation]:
    ends = (op for stack in model.stacks for op in (*stack.before, *stack.after))
    return [op for op, _ in modules_of((*ends, *model.shared))]


def all_paths(op: Operation, implementation: Implementation) -> Iterator[str]:
    """Yield the paths of what an adapter can be on."""
    yield from paths_in(op, implementation)
    yield from (part.path for part in op.linear_parts(implementation) if part.parameter)


def _adapted_paths(op: Operation, implementation: Implementation, tuning: Tuning) -> Iterator[str]:
    """Yield the paths of what has an adapter."""
    for path in paths_in(op, implementation):
        if times_rank(LinearPart(path, 0, 0), tuning) or is_target(module_of(op), tuning.targets):
            yield path
    yield from (part.path for part in op.linear_parts(implementation) if part.parameter and times_rank(part, tuning))
