"""Published architectures by name, from `_tables/models.py`: plain literals generated from configs/models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from napkin.errors import NapkinError
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

    slug = NAMES.get(spelling(name)) or NAMES.get(spelling(_untuned(name)))
    organization, slash, _ = name.strip().rpartition("/")
    if slug is None or not slash:
        return slug
    known = (one.lower() for one in (*PRESETS[slug].get("hub", ()), *COPIERS))
    return slug if organization.lower() in known else None


COPIERS = ("unsloth",)
"""Organizations that publish copies of others' repositories under the names that these have."""
TUNED = ("-instruct", "-chat", "-it")
"""What ends the names of a publisher's tuned models, which have their base's shape."""


def _untuned(name: str) -> str:
    word = name.strip()
    return next((word[: -len(end)] for end in TUNED if word.lower().endswith(end)), word)


def base_of(name: str) -> str | None:
    """Return the preset that a republication holds in another format, whoever publishes it; None if it is none."""
    from napkin.inputs.republished import republished

    found = republished(name)
    last = found.base.rsplit("/", 1)[-1] if found is not None else ""
    return _slug(last) or _slug(last[5:] if last.lower().startswith("meta-") else last) if last else None


def preset(name: str) -> Preset:
    """Return the published architecture with this name or alias, in any spelling."""
    from napkin._tables.models import PRESETS

    slug = _slug(name)
    if slug is None:
        shown = "".join(c if c.isprintable() else "?" for c in name[:60])
        absent = ", and the local Hugging Face cache does not hold it" if "/" in name else ""
        raise NapkinError(f"no model is called {shown!r}{absent}", _hint(name, shown))
    return _preset(slug, PRESETS[slug])


def _hint(name: str, shown: str) -> str:
    """Return how to name a model that has no preset: the one that is meant, or how to get its config.json."""
    from napkin._tables.models import NAMES, PRESETS
    from napkin.inputs.republished import republished

    sides = name.lower().split("x")
    if len(sides) > 1 and all(side.isdigit() for side in sides):
        return f"the word matmul comes before a shape: matmul {shown}"
    fetched = f"`hf download {shown} config.json` fetches its shape, and the name works then" if "/" in name else ""
    same, near = base_of(name), NAMES.get(spelling(name))
    if near is not None:
        publishers = " or ".join(PRESETS[near].get("hub", ())) or PRESETS[near]["organisation"]
        return f"if it is the same as {publishers}'s, write {near}; else {fetched}"
    if same is not None and (found := republished(name)) is not None:
        return f"{found.why}; as a model, write {same}"
    return _near(shown, fetched)


def _near(name: str, fetched: str) -> str:
    """Return a hint that names the model that a name is a slip of, or how to get its config.json (`fetched` for a name
    with an organization); for a bare name also what has its version or numbers, which may help."""
    from napkin._tables.models import PRESETS
    from napkin.inputs import near_names

    spelled = {one: slug for slug, fields in PRESETS.items() for one in (slug, *fields["aliases"])}
    meant = near_names.meant_by(name, spelled)
    if fetched:
        return f"did you mean {' or '.join(meant)}? else {fetched}" if meant else fetched
    if meant or (meant := near_names.of_size(name, spelled) or near_names.relatives_of(name, spelled)):
        return f"did you mean {' or '.join(meant)}?"
    if like := near_names.alike_but_for_words(name, spelled):
        return f"a config.json's path will do; only like it by name: {' or '.join(like)}"
    return "`napkin models` lists the names; `hf download ORG/NAME config.json` makes ORG/NAME one; a path will do too"


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
