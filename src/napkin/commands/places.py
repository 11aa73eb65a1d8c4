"""Errors about options of a question: where a file gives the option, or how the line spells it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from napkin.commands.signature import OptionText
from napkin.errors import NapkinError, Problems

BUILT = "MODEL:1: "
"""How errors in a config.json begin that was built from a launch file's sizes."""
_NAMED = re.compile(r"--([a-z][a-z-]*)(?=[ :])")


def at_their_places(problem: NapkinError, given: Mapping[str, OptionText]) -> NapkinError:
    """Return a problem whose messages begin with file, line and key of the first option that they name, where a file
    gives it, and with the name that the command line has for it."""
    located = [_at_its_place(one, given) for one in problem.errors]
    return located[0] if len(located) == 1 else Problems(located)


def _at_its_place(problem: NapkinError, given: Mapping[str, OptionText]) -> NapkinError:
    built = given.get("model")
    if built is not None and built.origin != "given" and problem.message.startswith(BUILT):
        file = built.where.partition(":")[0]  # its sizes are several keys, and the message names one
        return type(problem)(f"{file}: {problem.message.removeprefix(BUILT)}", problem.hint, problem.status)
    for found in _NAMED.finditer(problem.message):
        one = given.get(found[1])
        if one is None or not one.where:
            continue
        place, rest = one.where.split(", ")[0], problem.message[found.end() :]
        if one.origin == "given":
            if not found.start():
                return type(problem)(place + rest, problem.hint, problem.status)
        elif place.partition(":")[0] not in problem.message:
            if found.start():
                return problem.at(place)
            return type(problem)(f"{place}: {rest.lstrip(': ')}", problem.hint, problem.status)
    return problem
