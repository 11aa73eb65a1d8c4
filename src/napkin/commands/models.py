"""`napkin models`: the published architectures that napkin knows, or one of them with its citation."""

from __future__ import annotations

from typing import Any

from napkin import units
from napkin.architectures import build
from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.counting.params import params
from napkin.errors import NapkinError, did_you_mean
from napkin.inputs.model import preset_config
from napkin.inputs.presets import Preset, preset, presets, spelling
from napkin.record import record
from napkin.render.answer import Answer
from napkin.term import Term


@record
class ModelsQuestion:
    """Which published architectures are listed; None: whatever it is."""

    family: str | None
    search: str | None
    least: int | None
    most: int | None
    moe: bool | None


def run(inputs: Inputs) -> Answer:
    """Answer with one model where it is named, else with the list."""
    name = inputs.text_or_none("model")
    if name is not None:
        inputs.because(inputs.command.options, "one model is named", "leave out its name to list models")
        return _one(preset(name))
    least, most = inputs.integer_or_none("min-params"), inputs.integer_or_none("max-params")
    family, search = inputs.text_or_none("family"), inputs.text_or_none("search")
    return _list(ModelsQuestion(family, search, least, most, inputs.flag_or_none("moe")))


def _counted(one: Preset) -> dict[str, Term]:
    """Return the exact parameters of a preset."""
    return params(build(preset_config(one)))


def _list(question: ModelsQuestion) -> Answer:
    """Answer with the architectures that the question selects."""
    known = list(presets())
    family, search = question.family, question.search
    if family is not None:
        families = dict.fromkeys(one.family for one in known)
        wanted = family.strip().lower()
        if not any(_within(f, wanted) for f in families):
            raise NapkinError(f"no family is called {family!r}", did_you_mean(wanted, families))
        known = [one for one in known if _within(one.family, wanted)]
    if search is not None:
        known = [one for one in known if spelling(search) in _words(one)]
    least, most, moe = question.least, question.most, question.moe
    rows = []
    for one in known:
        count = _counted(one)
        total, active = count["params/total"].value, count["params/active"].value
        mixture = "params/experts" in count
        if (least and total < least) or (most and total > most) or (moe is not None and mixture is not moe):
            continue
        rows.append(
            {
                "model": one.name,
                "family": one.family,
                "organisation": one.organisation,
                "published": one.published,
                "params": total,
                "active": active,
                "moe": mixture,
            }
        )
    rows.sort(key=lambda row: (row["family"], row["params"]))
    display = [{column: _shown(column, value) for column, value in row.items()} for row in rows]
    return Answer(
        "models",
        f"{len(rows)} published architecture{'s' * (len(rows) != 1)}; `napkin models NAME` shows one with its citation",
        rows=rows,
        display=display,
        units={"params": "param", "active": "param"},
    )


def _shown(column: str, value: Any) -> str:
    """Return a row's entry as people read it; the column's name says the unit."""
    if column == "moe":
        return "yes" if value else ""
    return units.human(value, "param").removesuffix(" parameters") if column in ("params", "active") else str(value)


def _within(family: str, wanted: str) -> bool:
    """Whether a family is the one wanted, or a version: `llama` matches llama, llama2 and llama3.1, not llamafile."""
    rest = family[len(wanted) :]
    return family.startswith(wanted) and not rest[:1].isalpha()


def _words(one: Preset) -> str:
    """Return what a search looks through, spelled as `spelling` does."""
    told = (one.name, *one.aliases, one.family, one.organisation, str(one.config["model_type"]), one.source)
    return "\n".join(spelling(text.replace("/", " ")) for text in told)


def _one(one: Preset) -> Answer:
    """Answer with one model, its citation and its config.json."""
    count = _counted(one)
    shown = [term for path, term in count.items() if path.count("/") == 1]
    facts: dict[str, Any] = {
        "name": one.name,
        "aliases": list(one.aliases),
        "family": one.family,
        "organisation": one.organisation,
        "published": one.published,
        "source": one.source,
        "params_published": dict(one.params_published),
        "note": one.note,
        "config": dict(one.config),
    }
    return Answer(
        "models",
        f"{one.name} ({one.organisation}, {one.published})",
        shown,
        extra={"model": {key: value for key, value in facts.items() if value}},
        pictures=("\n".join(_remarks(one)),),
    )


def _remarks(one: Preset) -> list[str]:
    """Return citation, names and the fields of its config.json, for a person."""
    lines = [f"source: {one.source}"]
    published = dict(one.params_published)
    source = published.pop("source", "")
    counts = (f"{what} {n:,}" if isinstance(n, int) else f"{what} {n}" for what, n in published.items())
    lines += [f"published count: {', '.join(counts)} ({source})"] if published else []
    lines += [f"also called: {', '.join(one.aliases)}"] if one.aliases else []
    lines += [f"note: {one.note}"] if one.note else []
    return [*lines, "config.json:", *_fields(one.config, "  ")]


def _fields(config: Any, pad: str) -> list[str]:
    """Return the fields of a config as indented lines."""
    lines: list[str] = []
    for field, value in config.items():
        if isinstance(value, dict):
            lines += [f"{pad}{field}:", *_fields(value, pad + "  ")]
        else:
            lines.append(f"{pad}{field}: {_written(value)}")
    return lines


def _written(value: Any) -> str:
    """Return a value as config.json writes it; equal neighbors of a list as `3 × "linear_attention"`."""
    if not isinstance(value, list):
        return {True: "true", False: "false", None: "null"}.get(value, str(value)) if _plain(value) else str(value)
    runs: list[tuple[str, int]] = []
    for entry in value:
        text = _written(entry)
        if runs and runs[-1][0] == text:
            runs[-1] = (text, runs[-1][1] + 1)
        else:
            runs.append((text, 1))
    return "[" + ", ".join(text if n == 1 else f"{n} × {text}" for text, n in runs) + "]"


def _plain(value: Any) -> bool:
    """Whether config.json spells the value otherwise than Python."""
    return value is None or isinstance(value, bool)


COMMAND = Command(
    "models",
    "The published architectures that napkin knows, or one with its citation",
    run,
    options=("family", "min-params", "max-params", "moe", "search"),
    arguments=("model",),
    examples=(
        "models",
        "models llama3-70b",
        "models --family llama --max-params 10B",
        "models --moe --min-params 100B",
    ),
)
