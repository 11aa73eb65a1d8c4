"""Frozen records that cost nothing to declare.

`dataclasses` writes and compiles several functions for every class, half a millisecond each: two dozen records take a
fifth of a cold start. `@record` gives the same (ordered fields, defaults, frozen, equality and hash by value, repr)
from functions that all records share.
"""

from __future__ import annotations

from collections.abc import Callable

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from typing_extensions import dataclass_transform

    _Class = TypeVar("_Class", bound=type)
    _Record = TypeVar("_Record")
else:

    def dataclass_transform(**_: object) -> Callable[[object], object]:
        """Do nothing at run time; type checkers read the real one."""
        return lambda decorator: decorator


class FrozenRecordError(AttributeError):
    """A field of a record was set or deleted."""


@dataclass_transform(frozen_default=True)
def record(cls: _Class) -> _Class:
    """Make a class with annotated fields a frozen record; fields of its bases come first.

    Fields annotated after `_: KW_ONLY` (as in a dataclass) are given by keyword only, here and in derived records, and
    come after all positional fields.
    """
    own: Any = cls
    keywords: dict[str, None] = {}
    names: dict[str, None] = {}
    for base in cls.__mro__[1:]:
        keywords |= dict.fromkeys(getattr(base, "__keywords__", ()))
        names |= dict.fromkeys(getattr(base, "__match_args__", ()))
    stated = tuple(cls.__annotations__)
    if "_" in stated:
        keywords |= dict.fromkeys(stated[stated.index("_") + 1 :])
    positional = tuple(name for name in (*names, *stated) if name not in keywords and name != "_")
    ordered = tuple(dict.fromkeys((*positional, *keywords)))
    type.__setattr__(own, "__match_args__", ordered)
    own.__keywords__ = tuple(keywords)
    own.__init__ = _init_of(ordered, len(keywords), getattr(cls, "__post_init__", None))
    own.__setattr__ = _refuse
    own.__delattr__ = _refuse
    own.__eq__ = _equal
    own.__hash__ = _hash
    own.__repr__ = _repr
    return cls


def fields(kind: type) -> tuple[str, ...]:
    """Return the names of a record's fields, in order."""
    names: tuple[str, ...] = kind.__match_args__  # type: ignore[attr-defined]
    return names


def _init_of(names: tuple[str, ...], keywords: int, post: Callable[[Any], None] | None) -> Callable[..., None]:
    """Return an __init__ for fields of these names, of which the last `keywords` are given by keyword only."""
    count = len(names)
    positional = count - keywords
    known = frozenset(names)

    def __init__(self: object, *values: object, **named: object) -> None:
        fields = self.__dict__
        fields.update(zip(names, values, strict=False))
        if not named and len(values) == count == positional:
            if post is not None:
                post(self)
            return
        if named:
            for name in named:
                if name in fields or name not in known:
                    raise TypeError(f"{type(self).__name__}: {name!r} is given twice or is not a field")
            fields.update(named)
        if len(values) > positional:
            raise TypeError(f"{type(self).__name__} takes {positional} positional fields, not {len(values)}")
        if len(fields) < count:
            cls = type(self)
            for name in names:
                if name not in fields:
                    if not hasattr(cls, name):
                        raise TypeError(f"{cls.__name__}: the field {name!r} is missing")
                    fields[name] = getattr(cls, name)
        if post is not None:
            post(self)

    return __init__


def replace(one: _Record, **changes: object) -> _Record:
    """Return the same record with some fields changed."""
    kind: Any = type(one)
    made = kind.__new__(kind)
    fields = made.__dict__
    fields.update(one.__dict__)
    fields.update(changes)
    if len(fields) > len(kind.__match_args__):
        raise TypeError(f"{kind.__name__} has no field {' or '.join(fields.keys() - set(kind.__match_args__))!r}")
    post = getattr(kind, "__post_init__", None)
    if post is not None:
        post(made)
    return made  # type: ignore[no-any-return]


def _refuse(self: object, name: str, *_: object) -> None:
    raise FrozenRecordError(f"{type(self).__name__}.{name}: a record does not change")


def _equal(self: object, other: object) -> bool:
    return type(self) is type(other) and self.__dict__ == other.__dict__


def _hash(self: Any) -> int:
    fields = self.__dict__
    return hash((type(self).__name__, *(fields[name] for name in self.__match_args__)))


def _repr(self: object) -> str:
    return f"{type(self).__name__}({', '.join(f'{name}={self.__dict__[name]!r}' for name in fields(type(self)))})"
