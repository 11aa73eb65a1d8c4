"""Every option of napkin by name. Each is declared once, in the module of its group.

Run files use the same names (dashes or underscores). Megatron's long names are hidden aliases, so that a launch line
can be pasted.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from napkin.options import bench, comparing, layout, machine, model, output, question, small, training
from napkin.options.option import Option


def registry(groups: Iterable[tuple[str, tuple[Option, ...]]]) -> dict[str, Option]:
    """Return the options of all groups by name; a name or alias that is declared twice is a ValueError."""
    found: dict[str, Option] = {}
    spellings: set[str] = set()
    for _, options in groups:
        for option in options:
            for spelling in (option.name, *option.aliases):
                if spelling in spellings:
                    raise ValueError(f"--{spelling} is declared twice")
                spellings.add(spelling)
            found[option.name] = option
    return found


GROUPS = tuple(
    (one.GROUP, one.OPTIONS) for one in (model, training, layout, machine, question, small, comparing, bench, output)
)
"""(heading, its options), in the order in which help shows them."""

OPTIONS = registry(GROUPS)
_ALIASES = {alias: option.name for option in OPTIONS.values() for alias in option.aliases}


def canonical(name: str) -> str:
    """Return an option's name from any spelling: underscores, Megatron's names."""
    dashed = name.replace("_", "-")
    return _ALIASES.get(dashed, dashed)


def spelled(spelling: str, taken: Container[str]) -> str | None:
    """Return the name, among `taken`, of the option with this name or other spelling."""
    if spelling in taken:
        return spelling
    name = _ALIASES.get(spelling)
    return name if name is not None and name in taken else None
