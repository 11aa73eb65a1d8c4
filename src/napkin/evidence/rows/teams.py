"""The origin of a published row: the source of the evidence that a page's title belongs to, and the team that trained
a model. A row is predicted with its own source or team held out, so a user's rows must name them as the evidence does.
"""

from __future__ import annotations

from collections.abc import Iterable

from napkin.evidence.rows.fields import title_of
from napkin.evidence.rows.row import RowFields
from napkin.inputs.hardware import normal


def source_of(title: str) -> str:
    """Return the key of the source whose pages have such titles, "" for one that the evidence does not hold."""
    from napkin._tables import published_steps as table

    titles = ((start, key) for key, source in table.SOURCES.items() for start in source["titles"])
    return _longest((start, key) for start, key in titles if title.lower().startswith(start.lower()))


def team_of(model: str) -> str:
    """Return the team that publishes the model's family, "" for one that the evidence does not hold."""
    from napkin._tables import published_runs as table

    words = f"{normal(model)}-"
    families = ((normal(family), team) for team, listed in table.TEAMS.items() for family in listed)
    return _longest((family, team) for family, team in families if words.startswith(f"{family}-"))


THREAD = r"/([\w.-]+?) ?(?:PR|pull request|issue)? ?#(\d+)"
"""A repository and the number of an issue or pull request in it: `meta-pytorch/torchtune PR#389`, `pytorch/ao#812`."""


def thread_of(where: str) -> str:
    """Return the thread that a row comes from, as `torchtune#389` whoever owns the repository; "" if from none."""
    import re  # slow to load, and read from rows alone

    found = re.search(THREAD, where, re.IGNORECASE)
    return "" if found is None else f"{''.join(filter(str.isalnum, found[1].lower()))}#{found[2]}"


def origin_of(row: RowFields) -> tuple[str, str]:
    """Return the title and the thread of a row's source, which its interval leaves out."""
    return title_of(row), thread_of(row.text("source.where"))


def _longest(found: Iterable[tuple[str, str]]) -> str:
    """Return the owner of the longest of the beginnings that match, of (beginning, owner)."""
    return max(found, key=lambda pair: len(pair[0]), default=("", ""))[1]
