"""Fields of a config.json that napkin did not read: which of them could change what the model's class builds.

What the class in transformers does not read changes nothing: such fields are named in a note. Refused is a field that
the class reads, with another value than its default configuration has; what may be a misspelled field; and, where
napkin has not seen what the class reads, also because a file runs code of its own, any field that is not known to
change no count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Set

from napkin.inputs.class_facts import read_by_class
from napkin.inputs.load import printable
from napkin.inputs.model import Config

CHECKED = 500
"""Unread fields of a file that are looked at one by one."""
NAMED = 6
"""Fields that a message names."""


def settle(config: Config, assumed: Collection[str] = (), strict: bool = False) -> None:
    """Refuse (3) unread fields that may change a count, nested blocks included; name the others in a note.

    assumed  fields that the user knows to change no count
    strict   refuse every field that the class does not read
    """
    for child in config.children:
        settle(child, assumed, strict)
        config.assumed |= child.assumed
    left = _unread(config, set(assumed))
    if assumed:
        config.assumed.update(field for field in _unread(config, set()) if field not in left)
    if not left:
        return
    from napkin._tables.class_fields import ANYWHERE, TRANSFORMERS
    from napkin.inputs.own_code import own_class
    from napkin.inputs.slips import slip_of

    kind, known = printable(config.model_type, 40), read_by_class(config.model_type)
    if known is None:
        unknown = _mattering(config, left[:CHECKED])
        if unknown:
            _refuse(config, unknown, f"napkin does not know whether it changes a count{_more(unknown)}")
        return
    matters = _mattering(config, [f for f in left if f in known and not _same(config.fields[f], known[f])])
    if matters:
        _refuse(config, matters, f"{kind} reads it, and napkin does not know what it changes{_more(matters)}")
    unread = [field for field in left if field not in known]
    checked = _mattering(config, unread[:CHECKED])
    absent = _absent(config, known) if checked else []
    for field in checked:
        near = "" if f" {field} " in f" {ANYWHERE} " else slip_of(field, absent)
        if near:
            raise config.refuse(
                field,
                f"{kind} does not read it; is {near} meant?",
                f"write {near}, or --assume-ignorable {printable(field, 60)} goes on without it",
            )
    own = own_class(config)
    if checked and own:
        _refuse(config, checked, f"{printable(own, 60)} may read it, which is the file's own code{_more(checked)}")
    if checked and strict:
        _refuse(config, checked, f"{kind} does not read it, and --strict-config asks{_more(checked)}")
    if checked:
        names = ", ".join(printable(".".join((*config.prefix, field)), 60) for field in checked[:NAMED])
        others = len(checked) + max(0, len(unread) - CHECKED) - NAMED
        rest = f" and {others:,} more" * (others > 0)
        config.notes.append(f"not read by {kind} in transformers {TRANSFORMERS}, so without effect: {names}{rest}")


def _unread(config: Config, assumed: Set[str]) -> list[str]:
    """Return the fields that were not read, are not null and are not known by name to change no count."""
    from napkin._tables.class_defaults import IGNORABLE, IGNORABLE_WHEN

    known = config.used | assumed | IGNORABLE
    return [
        field
        for field, value in config.fields.items()
        if field not in known and value is not None and value not in IGNORABLE_WHEN.get(field, ())
    ]


def _mattering(config: Config, fields: Sequence[str]) -> list[str]:
    """Return the fields that may change a count: neither known not to, nor repeating what was read under its name in
    other model_types."""
    if not fields:  # presets never reach the next lines: only users' files pay for compiling the patterns
        return []
    import re

    from napkin._tables.class_defaults import ALIASES, IGNORABLE_PATTERNS

    pattern = re.compile("|".join(f"(?:{p})" for p in IGNORABLE_PATTERNS))
    return [
        field
        for field in fields
        if not pattern.fullmatch(field)
        and not any(
            config.origins.get(aliases[field], (None,))[0] == config.fields[field]
            for aliases in ALIASES.values()
            if field in aliases
        )
    ]


def _same(value: object, default: object) -> bool:
    """Return whether a field has its default value: 1 is not true."""
    return value == default and isinstance(value, bool) == isinstance(default, bool)


def _more(fields: Sequence[str]) -> str:
    rest = ", ".join(printable(field, 40) for field in fields[1:NAMED])
    return f" (and {len(fields) - 1:,} more: {rest})" * (len(fields) > 1)


def _refuse(config: Config, fields: Sequence[str], what: str) -> None:
    first = printable(fields[0], 60)
    raise config.refuse(fields[0], what, f"--assume-ignorable {first} goes on without it")


def _absent(config: Config, read: Iterable[str]) -> list[str]:
    """Return the fields that a class or napkin reads and the file does not have under any name: what one of it may
    misspell."""
    present = {*config.fields}
    known = dict.fromkeys((*read, *config.aliases, *config.defaults))
    return [one for one in known if not present & {one, *config.spellings(one)}]
