"""Published architectures by name, from `_tables/models_*.py` (one for each first letter, so that one model costs no
reading of all): plain literals generated from configs/models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from napkin.errors import NapkinError
from napkin.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
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


SHARDS = "0abcdefghijklmnopqrstuvwxyz"
"""What the tables of models end in: the letter that their names begin with, 0 for anything else."""


def shard_of(name: str) -> str:
    """Return the end of the table that has a name, in its normal form, or a preset."""
    return name[0] if name and name[0] in SHARDS[1:] else SHARDS[0]


def named(spelled: str) -> str | None:
    """Return the preset that has exactly this name, in its normal form."""
    found: Mapping[str, str] = _table(shard_of(spelled)).NAMES
    return found.get(spelled)


def _table(shard: str) -> ModuleType:
    return import_module(f"napkin._tables.models_{shard}")


def is_preset(name: str) -> bool:
    """Return whether a published architecture has this name; in `org/name`, whether that organization publishes it."""
    return _slug(name) is not None


def _slug(name: str) -> str | None:
    """Return the preset that a name means."""
    slug = named(spelling(name)) or named(spelling(_untuned(name)))
    organization, slash, _ = name.strip().lower().rpartition("/")
    if slug is None or not slash:
        return slug
    fields = fields_of(slug)
    if _publishes(organization, fields):
        return slug
    return slug if name.strip().lower() in (one.lower() for one in fields["aliases"]) else None


def _publishes(organization: str, fields: Mapping[str, Any]) -> bool:
    known = (one.lower() for one in (*fields.get("hub", ()), *COPIERS))
    return PUBLISHERS.get(organization, organization) in known


def is_published(name: str) -> bool:
    """Return whether the organization in a preset's name publishes the model; others publish what was made of it."""
    slug = _slug(name)
    return slug is not None and _publishes(name.strip().lower().rpartition("/")[0], fields_of(slug))


COPIERS = ("unsloth", "llm-research", "ai-modelscope")
"""Organizations that publish copies of others' repositories under the names that these have: the last two on ModelScope
(modelscope/ms-swift, swift/model/models: `Model(ModelScope's name, the hub's name)`)."""
PUBLISHERS = {
    "01ai": "01-ai",
    "cohereforai": "coherelabs",
    "minimax": "minimaxai",
    "nv-community": "nvidia",
    "openai-mirror": "openai",
    "paddlepaddle": "baidu",
    "shanghai_ai_laboratory": "internlm",
    "teleai": "tele-ai",
    "tencent-hunyuan": "tencent",
    "tencent-youtu-research": "tencent",
    "thudm": "zai-org",
    "zhipuai": "zai-org",
}
"""Another name of a publisher, on ModelScope (the same pairs in ms-swift) or before it was renamed on the hub → its
name there."""
SHOWN = 6
"""Presets that a hint names of those that a name begins."""
TUNED = ("-instruct", "-chat", "-it", "-base", "-thinking", "-sft", "-dpo")
"""What ends the names of a publisher's stages of one model, which have one shape."""


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
    slug = _slug(name)
    if slug is None:
        shown = "".join(c if c.isprintable() else "?" for c in name[:60])
        absent = ", and the local Hugging Face cache does not hold it" if "/" in name else ""
        raise NapkinError(f"no model is called {shown!r}{absent}", _hint(name, shown))
    return _preset(slug, fields_of(slug))


def _hint(name: str, shown: str) -> str:
    """Return how to name a model that has no preset: the one that is meant, or how to get its config.json."""
    from napkin.inputs.republished import republished

    sides = name.lower().split("x")
    if len(sides) > 1 and all(side.isdigit() for side in sides):
        return f"the word matmul comes before a shape: matmul {shown}"
    if _is_accelerator(name):
        return f"that is an accelerator: --hardware {shown}, after a MODEL such as llama3-8b"
    fetched = f"`hf download {shown} config.json` fetches its shape, and the name works then" if "/" in name else ""
    same, near = base_of(name), named(spelling(name))
    if near is not None:
        fields = fields_of(near)
        publishers = " or ".join(fields.get("hub", ())) or fields["organisation"]
        return f"if it is the same as {publishers}'s, write {near}; else {fetched}"
    if same is not None and (found := republished(name)) is not None:
        return f"{found.why}; as a model, write {same}"
    return _near(shown, fetched)


def _is_accelerator(name: str) -> bool:
    """Return whether an accelerator has this name."""
    from napkin.inputs.hardware import find

    try:
        return bool(find(name))
    except NapkinError:
        return False


def _near(name: str, fetched: str) -> str:
    """Return a hint that names the model that a name is a slip of, or how to get its config.json (`fetched` for a name
    with an organization); for a bare name also what has its version or numbers, which may help."""
    from napkin.inputs import near_names

    spelled = _spelled()
    if fetched:
        meant = near_names.meant_by(name, spelled)
        return f"did you mean {' or '.join(meant)}? else {fetched}" if meant else fetched
    if begun := _begun(name):
        few = len(begun) <= near_names.MOST
        listed = f"`napkin models {spelling(name)}` lists {', '.join(begun[:SHOWN])}" + " …" * (len(begun) > SHOWN)
        return f"did you mean {' or '.join(begun)}?" if few else listed
    if meant := near_names.nearest(name, spelled):
        return f"did you mean {' or '.join(meant)}?"
    if like := near_names.alike_but_for_words(name, spelled):
        return f"a config.json's path will do; only like it by name: {' or '.join(like)}"
    return "`napkin models` lists the names; `hf download ORG/NAME config.json` makes ORG/NAME one; a path will do too"


def _begun(name: str) -> list[str]:
    """Return names of presets that begin with a name, in whole words (`deepseek`, `qwen3`): those of its version first,
    then the newest."""
    start = spelling(name)
    if not start[:1].isalpha():
        return []

    def rest(one: str) -> str | None:
        """Return what follows; None if the name is no beginning of it, or ends within a word or number."""
        last = one.rsplit("/", 1)[-1]
        if not spelling(last).startswith(start) or spelling(last) == start:
            return None
        end = next(end for end in range(len(last)) if spelling(last[:end]) == start)
        within = any(kind(start[-1]) and kind(last[end]) for kind in (str.isalpha, str.isdigit))
        return None if within else last[end:]

    found = []
    for slug, fields in all_fields():
        begun = [(one, after) for one in (slug, *fields["aliases"]) if (after := rest(one)) is not None]
        if begun:
            one, after = begun[0]
            others = start[-1].isdigit() and not after[1:2].isdigit()  # qwen3-asr-… are of another line than qwen3-8b
            found.append((one != slug, after.startswith("."), others, -int(fields["published"]), one))
    return [one for *_, one in sorted(found, key=lambda one: one[:4])]


def _spelled() -> dict[str, str]:
    """Return each name and alias with the preset that it means."""
    return {one: slug for slug, fields in all_fields() for one in (slug, *fields["aliases"])}


def shapeless(name: str, of: str = "its model") -> NapkinError:
    """Return why a row's model has no shape, with the presets that are near by name. `of` is what has no name."""
    from napkin.inputs import near_names

    spelled = _spelled() if name else {}
    near = near_names.nearest(name, spelled)
    told = f" (near: {', '.join(near)})" if near else ""
    return NapkinError(f"no preset has the shape of {name[:60] or of}{told}")


def presets() -> Iterator[Preset]:
    """Yield all published architectures, in the order of their files' names."""
    for slug, fields in all_fields():
        yield _preset(slug, fields)


def names() -> tuple[str, ...]:
    """Return the names that napkin uses."""
    return tuple(sorted(slug for slug, _ in all_fields()))


def fields_of(slug: str) -> Mapping[str, Any]:
    """Return what the file of a preset says; `slug` is the name that napkin uses."""
    found: Mapping[str, Any] = _table(shard_of(slug)).PRESETS[slug]
    return found


def all_fields() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each name that napkin uses with what its file says, in the order of their files' names."""
    for shard in SHARDS:
        yield from _table(shard).PRESETS.items()


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
