"""Published architectures by name, from `_tables/models.py`: plain literals generated from configs/models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from napkin.errors import NapkinError, did_you_mean
from napkin.record import record


@record
class Preset:
    """One published architecture.

    name              the name that napkin uses
    aliases           other spellings in use
    family            the line of models that it belongs to
    organisation      who published it
    published         the year
    source            the citation of the facts
    config            the fields of its config.json that shapes depend on
    params_published  what the publisher counts: {"total", "active" or "non_embedding": a number, "source": where};
                      text such as "132B" is a rounded figure
    note              what else a reader should know
    """

    name: str
    aliases: tuple[str, ...]
    family: str
    organisation: str
    published: int
    source: str
    config: Mapping[str, Any]
    params_published: Mapping[str, Any]
    note: str


def spelling(name: str) -> str:
    """What all spellings of one name share: `meta-llama/Meta-Llama-3-70B`, `Meta_Llama 3 70b` → `metallama370b`."""
    last = name.strip().lower().rsplit("/", 1)[-1]
    return last.replace("-", "").replace("_", "").replace(" ", "")


def is_preset(name: str) -> bool:
    """Whether an architecture is called so."""
    from napkin._tables.models import NAMES

    return spelling(name) in NAMES


def preset(name: str) -> Preset:
    """The architecture called `name`, under any of its spellings."""
    from napkin._tables.models import NAMES, PRESETS

    slug = NAMES.get(spelling(name))
    if slug is None:
        shown = "".join(c if c.isprintable() else "?" for c in name[:60])
        hint = did_you_mean(shown.rsplit("/", 1)[-1], PRESETS)
        raise NapkinError(
            f"no model is called {shown!r}", hint or "`napkin models` lists the names; a config.json's path will do too"
        )
    return _preset(slug, PRESETS[slug])


def presets() -> Iterator[Preset]:
    """All of them, by family and size as they stand in the table."""
    from napkin._tables.models import PRESETS

    for slug, fields in PRESETS.items():
        yield _preset(slug, fields)


def _preset(slug: str, fields: Mapping[str, Any]) -> Preset:
    return Preset(
        slug,
        tuple(fields["aliases"]),
        fields["family"],
        fields["organisation"],
        fields["published"],
        fields["source"],
        fields["config"],
        fields.get("params_published", {}),
        fields.get("note", ""),
    )
