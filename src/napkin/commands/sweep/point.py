"""One question of a sweep, and its answer."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.errors import NapkinError
from napkin.options.option import Option, Parsed
from napkin.planning.verdicts import VERDICTS
from napkin.record import record
from napkin.render.answer import Answer, Quantities


@record
class Point:
    """One question of a sweep: the text of each swept option, and its answer, or why there is none."""

    changes: Mapping[str, str | bool]
    answer: Answer | None
    problem: NapkinError | None = None

    @property
    def quantities(self) -> Quantities:
        """What was found: path → (value, unit)."""
        return {} if self.answer is None else self.answer.quantities()

    @property
    def judgement(self) -> str | None:
        """The word that the table shows; None if nothing is judged."""
        return None if self.answer is None else self.answer.judgement

    @property
    def fit(self) -> str | None:
        """The verdict on the memory, whether it is the answer's verdict or stands next to it; None if none is."""
        said = None if self.answer is None else self.answer.fit
        return said if said in VERDICTS else None

    def value(self, option: Option) -> Parsed:
        """Return the value of a swept option, in base units."""
        return value_of(option, self.changes[option.name])


def value_of(option: Option, text: str | bool) -> Parsed:
    """Return the value of an option's text, in base units."""
    return text if isinstance(text, bool) else option.parse(text)
