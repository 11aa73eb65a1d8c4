"""The result of a question in Python: the same record that the command prints, read by attribute or by path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from napkin.api.quantity import OWN, Quantity, numbered
from napkin.errors import ABSENT, NapkinError, did_you_mean
from napkin.render import render
from napkin.render.answer import Answer, Cell, Quantities, Row, Shown
from napkin.term import Term

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    import os

    import pandas


class Result:
    """The answer to one question.

    answer.total                          a number: memory/total for `memory`, step/time for `step`, as `answer.memory`
    answer.optimizer.exp_avg              the same by attributes, dashes as underscores; with .low, .high, .unit, .parts
    answer["memory/optimizer/exp_avg"]    the same by path; any path of the JSON's values, or of its terms
    answer.values, .units, .low, .high    by path, as in JSON   verdict   a word, or None
    answer.inputs                         option → its value and origin   status    the command's exit status
    answer.rows, .notes, .extra           rows of a listing; remarks; the other keys of the JSON
    """

    __slots__ = ("_found", "_numbers", "_terms", "line")

    line: str
    """The command line that asks the same question."""
    _found: Answer
    _numbers: Quantities
    _terms: dict[str, Term] | None

    def __init__(self, found: Answer, line: str) -> None:
        for name, value in (("_found", found), ("line", line), ("_numbers", found.quantities()), ("_terms", None)):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: an answer does not change")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name}: an answer does not change")

    def __reduce__(self) -> tuple[type[Result], tuple[Answer, str]]:
        return Result, (self._found, self.line)

    @property
    def command(self) -> str:
        """The command that answers the same question."""
        return self._found.command

    @property
    def verdict(self) -> str | None:
        """The answer in a word: fits, does not fit, holds, compute, …; None if nothing is judged."""
        return self._found.verdict

    @property
    def status(self) -> int:
        """The command's exit status: 0 answered, 1 it does not hold or is impossible, 4 too close to call."""
        return self._found.status

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed, omitted or not used, in sentences."""
        return tuple(self._found.notes)

    @property
    def inputs(self) -> Mapping[str, Shown]:
        """Every input, by its option: .value in base units, .origin, .text as typed, .unit, .where (file and line)."""
        return MappingProxyType(self._found.inputs)

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of a listing; none if the answer is not one."""
        return tuple(MappingProxyType(dict(row)) for row in self._found.rows or ())

    @property
    def extra(self) -> Mapping[str, Cell]:
        """The other keys of the JSON, such as `suggestions` of `memory`."""
        return MappingProxyType(self._found.extra)

    @property
    def errors(self) -> tuple[NapkinError, ...]:
        """Errors in parts of the question, if the rest was answered."""
        return tuple(one for problem in self._found.problems for one in problem.errors)

    @property
    def values(self) -> Mapping[str, int | float]:
        """Every published number, by its path, in base units."""
        return MappingProxyType({path: value for path, (value, _) in self._numbers.items()})

    @property
    def units(self) -> Mapping[str, str]:
        """The units of `values`."""
        return MappingProxyType({path: unit for path, (_, unit) in self._numbers.items()})

    @property
    def low(self) -> Mapping[str, float]:
        """The low ends of the intervals, by path."""
        return MappingProxyType({path: float(ends[0]) for path, ends in self._found.intervals.items()})

    @property
    def high(self) -> Mapping[str, float]:
        """The high ends of the intervals, by path."""
        return MappingProxyType({path: float(ends[1]) for path, ends in self._found.intervals.items()})

    @property
    def terms(self) -> Mapping[str, Term]:
        """The tree of terms as a table: the published numbers and all terms that they are computed from."""
        table = self._terms
        if table is None:
            from napkin.render.term_table import table_of

            table = {path: entry.term for path, entry in table_of(self._found.finite()).items()}
            object.__setattr__(self, "_terms", table)
        return MappingProxyType(table)

    def __getitem__(self, path: str) -> Quantity:
        if not isinstance(path, str):
            raise KeyError(f"a path is a string, not {type(path).__name__}: see .values for the paths")
        found = self._found.by_path().get(path)
        if found is None:
            published = self._numbers
            if path in published:  # the end of an interval
                return numbered(self, path, *published[path])
            if path not in self.terms:
                raise KeyError(f"{path}: {did_you_mean(path, published) or 'see .values for the paths'}")
            found = self.terms[path]
        return numbered(self, path, found.value, found.unit, found)

    def __contains__(self, path: object) -> bool:
        return path in self._numbers or path in self.terms

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __bool__(self) -> bool:
        return True  # an answer without quantities is one

    def __getattr__(self, name: str) -> Quantity:
        if name.startswith("_"):
            raise AttributeError(name)
        for bucket in ("", self.command):
            if self._path(bucket, name) is not None:
                return self.below(bucket, name)
        return self.below("", name)

    def below(self, bucket: str, name: str) -> Quantity:
        """Return the number with this name below a path; "" is the root."""
        path = self._path(bucket, name)
        if path is None:
            buckets = (bucket,) if bucket else ("", self.command)
            starts = tuple(f"{one}/{name}/".lstrip("/") for one in buckets)
            deeper = ", ".join([one for one in self if one.startswith(starts)][:5])
            known = [word for one in buckets for word in self.names_below(one) if word != name]
            hint = f"below it are {deeper}" if deeper else did_you_mean(name, known) or "dir() lists them"
            raise AttributeError(f"{bucket or self.command} has no number {name!r}: {hint}")
        return self[path]

    def _path(self, bucket: str, name: str) -> str | None:
        """Return the path that an attribute refers to: a number with this name, or the total of the bucket with this
        name."""
        for spelling in dict.fromkeys((name, name.rstrip("_"), name.replace("_", "-"))):
            path = f"{bucket}/{spelling}" if bucket else spelling
            for one in (path, *(f"{path}/{own}" for own in OWN)):
                if one in self._numbers:
                    return one
        return None

    def names_below(self, bucket: str) -> list[str]:
        """Return the attributes below a path, as Python identifiers."""
        start = f"{bucket}/" if bucket else ""
        words = (path[len(start) :].partition("/")[0].replace("-", "_") for path in self if path.startswith(start))
        return [word for word in dict.fromkeys(words) if word.isidentifier()]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.names_below(""), *self.names_below(self.command)]

    def to_dict(self, explain: bool = False) -> dict[str, object]:
        """Return the object that --json prints; explain: include the tree of terms."""
        from napkin.render.json import to_data

        return to_data(self._found, explain)

    def to_json(self, explain: bool = False) -> str:
        """Return the text that the command's --json prints."""
        from napkin.render.json import to_json

        return to_json(self._found, explain)

    def to_frame(self) -> pandas.DataFrame:
        """Return the rows of a listing, or the quantities by path with their units and intervals, as a DataFrame.

        Raises NapkinError where pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise NapkinError(
                "to_frame needs pandas, which is not installed", "pip install pandas; to_dict() needs nothing", ABSENT
            ) from None
        if self._found.rows is not None:
            return pandas.DataFrame([dict(row) for row in self._found.rows])
        low, high = self.low, self.high
        rows = [(value, unit, low.get(path), high.get(path)) for path, (value, unit) in self._numbers.items()]
        frame = pandas.DataFrame(rows, index=list(self), columns=["value", "unit", "low", "high"])
        frame.index.name = "path"
        return frame

    def explain(self, path: str | None = None) -> str:
        """Return how each number is computed, down to the inputs; path: only for this number."""
        from napkin.render.text import explained, explained_term

        if path is None:
            return "\n".join(explained(self._found))
        self[path]  # an unknown path is a KeyError that names those near it
        term = self._found.by_path().get(path) or self.terms.get(path)
        return "" if term is None else "\n".join(explained_term(term))

    def plot(self, path: str | os.PathLike[str], theme: str = "light") -> None:
        """Write the answer's plot to a .svg or .png file, as --plot does; needs matplotlib."""
        from napkin.render.plot import draw

        draw(self._found, str(path), theme)

    def __repr__(self) -> str:
        return render(self._found, "text").rstrip("\n")

    def _repr_html_(self) -> str:
        from napkin.render.html import to_html

        return to_html(self._found)
