"""Versions of software that a run states: `trl 0.19.1, transformers 4.53, torch 2.6`, or the month of the run or of
its software: `April 2023`."""

from __future__ import annotations

Release = tuple[int, int]
"""The first two numbers of a version."""
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
"""How the names of months begin, in their order."""
RELEASED = {
    ("torch", (1, 13)): 202210,
    ("torch", (2, 0)): 202303,
    ("torch", (2, 1)): 202310,
    ("transformers", (4, 36)): 202312,
    ("transformers", (4, 49)): 202502,
    ("transformers", (5, 0)): 202601,
    ("peft", (0, 12)): 202407,
    ("bitsandbytes", (0, 48)): 202509,
}
"""A release → the year and month in which pypi.org first had it: no earlier run can have had it."""
TRANSFORMERS_5 = (5, 0)
"""Before it, experts are modules with linear layers of their own, Trainer takes torch's AdamW as it is (foreach on a
GPU; training_args.py, optim; fused from 5 on), and checkpoints are reentrant (modeling_utils.py,
gradient_checkpointing_enable)."""


def version_of(name: str, versions: str) -> Release | None:
    """Return a library's version among those that a run states, None if it does not."""
    if not versions:
        return None
    import re  # slow to load, and read from rows alone

    found = re.search(rf"\b{re.escape(name)}[ =v]*(\d{{1,9}})\.(\d{{1,9}})", versions)
    return None if found is None else (int(found[1]), int(found[2]))


def is_since(name: str, versions: str, release: Release) -> bool:
    """Return whether a run states a version of a library that is a release or newer."""
    stated = version_of(name, versions)
    return stated is not None and stated >= release


def is_before(name: str, versions: str, release: Release) -> bool:
    """Return whether a run states a version of a library that is older than a release, or a month before that."""
    stated = version_of(name, versions)
    if stated is not None:
        return stated < release
    month = month_of(versions) if versions else None
    return month is not None and month < RELEASED.get((name, release), 0)


def month_of(words: str) -> int | None:
    """Return the year and month (202506) that words state as 202506, 2025-06 or June 2025; None if they state none."""
    import re  # slow to load, and read from rows alone

    if dated := re.search(r"(20\d\d)-?(0[1-9]|1[0-2])(?!\d\d\d)", words):
        return int(dated[1] + dated[2])
    if dated := re.search(rf"\b({'|'.join(MONTHS)})[a-z]* (20\d\d)\b", words.lower()):
        return int(dated[2]) * 100 + MONTHS.index(dated[1]) + 1
    return None
