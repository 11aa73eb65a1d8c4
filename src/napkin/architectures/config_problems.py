"""Collect all problems of the fields of a config.json."""

from __future__ import annotations

from collections.abc import Callable

from napkin.errors import NapkinError, Problems
from napkin.inputs.model import Config

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST = 11
"""Problems that are looked for: ten are printed, and that there are more."""


def every_problem(config: Config, first: NapkinError, build: Callable[[Config], object]) -> NapkinError:
    """Return the problems of single fields, of which `first` was raised; `build` reads a config.

    Each unfit field is given a value with which reading goes on, until the next problem, or none.
    """
    problems, fields = [first], config.fields
    while config.unfit and len(problems) < MOST:
        prefix, spellings, value = config.unfit[-1]
        fields = _with(fields, prefix[len(config.prefix) :], spellings, value)
        facts = config.model_type, config.defaults, config.aliases
        config = Config(config.name, config.document, fields, *facts, config.prefix, config.origin)
        try:
            build(config)
        except NapkinError as problem:
            if config.unfit:
                problems.append(problem)
    return first if len(problems) == 1 else Problems(problems)


def _with(fields: Any, prefix: tuple[str, ...], spellings: list[str], value: object) -> dict[str, Any]:
    """Return fields in which the field below `prefix` has the value, under its first spelling only."""
    if prefix:
        return {**fields, prefix[0]: _with(fields[prefix[0]], prefix[1:], spellings, value)}
    return {**{name: one for name, one in fields.items() if name not in spellings}, spellings[0]: value}
