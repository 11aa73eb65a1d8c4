"""Published architectures by name, from `_tables/models.py`: plain literals generated from configs/models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from napkin.errors import NapkinError, did_you_mean, nearest
from napkin.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@record
class Preset:
    """One published architecture.

    name              the name that napkin uses
    aliases           other names in use
    family            the series of models that it belongs to
    organisation      its publisher
    hub               names of the organizations that publish it on the Hugging Face hub
    published         year
    source            citation of the facts
    config            the fields of its config.json that determine shapes
    params_published  the publisher's counts: {"total", "active", "non_embedding" or "checkpoint": count, "source":
                      citation}; a text such as "132B" is a rounded count; the checkpoint has a vision tower and
                      multi-token prediction modules too
    note              anything else that a reader should know
    """

    name: str
    aliases: tuple[str, ...]
    family: str
    organisation: str
    hub: tuple[str, ...]
    published: int
    source: str
    config: Mapping[str, Any]
    params_published: Mapping[str, Any]
    note: str


def spelling(name: str) -> str:
    """Return a name's normal form: `meta-llama/Meta-Llama-3-70B` and `Meta_Llama 3 70b` → `metallama370b`."""
    last = name.strip().lower().rsplit("/", 1)[-1]
    return last.replace("-", "").replace("_", "").replace(" ", "")


def is_preset(name: str) -> bool:
    """Return whether a published architecture has this name; in `org/name`, whether that organization publishes it."""
    return _slug(name) is not None


def _slug(name: str) -> str | None:
    """Return the preset that a name means."""
    from napkin._tables.models import NAMES, PRESETS

    slug = NAMES.get(spelling(name))
    organization, slash, _ = name.strip().rpartition("/")
    if slug is None or not slash:
        return slug
    known = (one.lower() for one in PRESETS[slug].get("hub", ()))
    return slug if organization.lower() in known else None


def preset(name: str) -> Preset:
    """Return the published architecture with this name or alias, in any spelling."""
    from napkin._tables.models import NAMES, PRESETS

    slug = _slug(name)
    if slug is None:
        shown = "".join(c if c.isprintable() else "?" for c in name[:60])
        near = NAMES.get(spelling(name))
        hint = _near(shown.rsplit("/", 1)[-1])
        if near is not None:
            publishers = " or ".join(PRESETS[near].get("hub", ())) or PRESETS[near]["organisation"]
            hint = f"if it is the same as {publishers}'s, write {near}; else give the path of its config.json"
        absent = ", and the local Hugging Face cache does not hold it" if "/" in name else ""
        raise NapkinError(
            f"no model is called {shown!r}{absent}",
            hint or "`napkin models` lists the names; a config.json's path will do too",
        )
    return _preset(slug, PRESETS[slug])


def _near(name: str) -> str | None:
    """Return a hint that names the presets most like a name; where it has a word that none of its family has, such as
    the vl of qwen2.5-vl-7b, that none is the same model."""
    family = _of_like_family(name)
    known = {one for slug in family for one in _words(slug)}
    strange = {word for word in _words(name) - known if not nearest(word, known)}
    plain = "-".join(part for part in name.lower().split("-") if part not in strange)
    meant = nearest(plain, family)
    if not meant or not strange:
        return did_you_mean(name, family)
    return f"a config.json's path will do; only like it by name: {' or '.join(meant)}"


def _words(name: str) -> set[str]:
    """Return the words of a name, without its numbers."""
    return {word for word in "".join(c if c.isalpha() else " " for c in name.lower()).split() if len(word) > 1}


def _of_like_family(name: str) -> list[str]:
    """Return the presets whose name begins with a word like that of a name: Whisper is not Mistral. A name that begins
    with a number, `8x7B`, leaves out that word: it may be any family's."""
    from napkin._tables.models import PRESETS

    def begins(text: str) -> str:
        word = "".join(c if c.isalpha() else " " for c in text.lower()).split()
        return word[0] if word else ""

    if name[:1].isdigit():
        return list(PRESETS)
    families = {begins(slug) for slug in PRESETS}
    like = {begins(name), *nearest(begins(name), families, len(families))}
    return [slug for slug in PRESETS if begins(slug) in like]


def presets() -> Iterator[Preset]:
    """Yield all published architectures, in the order of the table (file names)."""
    from napkin._tables.models import PRESETS

    for slug, fields in PRESETS.items():
        yield _preset(slug, fields)


def _preset(slug: str, fields: Mapping[str, Any]) -> Preset:
    return Preset(
        slug,
        tuple(fields["aliases"]),
        fields["family"],
        fields["organisation"],
        tuple(fields.get("hub", ())),
        fields["published"],
        fields["source"],
        fields["config"],
        fields.get("params_published", {}),
        fields.get("note", ""),
    )
