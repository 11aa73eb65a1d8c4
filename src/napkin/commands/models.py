"""`napkin models`: the known published models, or one of them with its citation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.architectures import build
from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.commands.next_command import under
from napkin.counting.params import params
from napkin.errors import NapkinError, did_you_mean
from napkin.inputs.model_file import preset_config
from napkin.inputs.presets import Preset, is_preset, preset, presets, spelling
from napkin.record import record
from napkin.render.answer import Answer, Cell, Row
from napkin.render.figures import compact
from napkin.render.screen import Column, Next, Screen, Table, quantities
from napkin.term import Term


@record
class ModelsQuestion:
    """Filters of the listed models; None: no filter."""

    family: str | None
    search: str | None
    least: int | None
    most: int | None
    moe: bool | None


def run(inputs: Inputs) -> Answer:
    """Answer with the named model, or with the list."""
    name = inputs.text_or_none("model")
    if name is not None:
        inputs.because(inputs.command.options, "one model is named", "leave out its name to list models")
        if not is_preset(name) and any(spelling(name) in _words(one) for one in presets()):
            inputs.note(f"no model is named {name[:60]}: those that match it are listed")
            return _list(ModelsQuestion(None, name, None, None, None))
        return _one(preset(name))
    least, most = inputs.integer_or_none("min-params"), inputs.integer_or_none("max-params")
    family, search = inputs.text_or_none("family"), inputs.text_or_none("search")
    return _list(ModelsQuestion(family, search, least, most, inputs.flag_or_none("moe")))


def _counted(one: Preset) -> dict[str, Term]:
    """Return the exact parameters of a preset."""
    return params(build(preset_config(one)))


def _list(question: ModelsQuestion) -> Answer:
    """Answer with the models that the question selects."""
    known = list(presets())
    family, search = question.family, question.search
    if family is not None:
        families = dict.fromkeys(one.family for one in known)
        wanted = family.strip().lower()
        if not any(_within(f, wanted) for f in families):
            hint = did_you_mean(wanted, families) or "napkin models lists them with their families"
            raise NapkinError(f"no family is called {family!r}", hint)
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
    return Answer(
        "models",
        rows=rows,
        extra={"columns": {"params": "param", "active": "param"}},
        screen=_listing(rows, search),
    )


COLUMNS = (
    Column("model"),
    Column("parameters", right=True),
    Column("active", right=True, drop=1),
    Column("family", drop=2),
    Column("published", drop=4),
    Column("organization", drop=3),
)


def _listing(rows: Sequence[Row], search: str | None) -> Screen:
    """Return the screen of the list, a line a model; search: what they match."""
    cells = [
        (
            str(row["model"]),
            _figure(row["params"]),
            _figure(row["active"]) if row["moe"] else "",
            str(row["family"]),
            str(row["published"]),
            str(row["organisation"]),
        )
        for row in rows
    ]
    matching = f" matching {search}" if search else ""
    found = f"{len(rows)} published architecture{'s' * (len(rows) != 1)}{matching}"
    following = Next(command="models", changes={"model": str(rows[-1]["model"])}, keep=()) if rows else None
    return Screen((found,), table=Table(COLUMNS, cells), next=following, listing=True)


def _figure(count: Cell) -> str:
    """Return a count of parameters without its unit."""
    return compact(count, "param") if isinstance(count, (int, float)) else ""


def _within(family: str, wanted: str) -> bool:
    """Return whether a family is the requested one or a version of it: `llama` matches llama, llama2 and llama3.1, not
    llamafile."""
    rest = family[len(wanted) :]
    return family.startswith(wanted) and not rest[:1].isalpha()


def _words(one: Preset) -> str:
    """Return the searchable text of a model, normalized by `spelling`."""
    told = (one.name, *one.aliases, one.family, one.organisation, str(one.config["model_type"]), one.source)
    return "\n".join(spelling(text.replace("/", " ")) for text in told)


def _one(one: Preset) -> Answer:
    """Answer with one model, its citation and its config.json."""
    count = _counted(one)
    shown = [term for path, term in count.items() if path.count("/") == 1]
    facts: dict[str, Cell] = {
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
        terms=shown,
        extra={"model": {key: value for key, value in facts.items() if value}},
        screen=_screen(one, count),
    )


SIZES = (
    ("num_hidden_layers", "layers"),
    ("n_layer", "layers"),
    ("num_layers", "layers"),
    ("hidden_size", "hidden size"),
    ("n_embd", "hidden size"),
    ("d_model", "hidden size"),
    ("intermediate_size", "MLP width"),
    ("d_ff", "MLP width"),
    ("moe_intermediate_size", "expert width"),
    ("num_local_experts", "experts"),
    ("n_routed_experts", "experts"),
    ("num_experts", "experts"),
    ("num_experts_per_tok", "experts a token uses"),
    ("num_attention_heads", "attention heads"),
    ("n_head", "attention heads"),
    ("num_heads", "attention heads"),
    ("num_key_value_heads", "key and value heads"),
    ("vocab_size", "vocabulary"),
    ("max_position_embeddings", "longest sequence"),
    ("n_positions", "longest sequence"),
)
"""Field of config.json → what it is; those of one meaning are spellings of several model types."""


def _screen(one: Preset, count: Mapping[str, Term]) -> Screen:
    """Return the screen of one model: its parameters, its sizes, where they are published."""
    total, active = count["params/total"].value, count["params/active"].value
    headline = [f"{total:,} parameters", *([f"{active:,} active per token"] if active != total else [])]
    text = one.config.get("text_config")
    fields = {**(text if isinstance(text, Mapping) else {}), **one.config}
    rows = [("model_type", str(one.config["model_type"]), "")]
    rows += [(label, f"{fields[field]:,}", field) for field, label in SIZES if isinstance(fields.get(field), int)]
    remarks = [f"source: {one.source}"]
    remarks += [f"also called: {', '.join(one.aliases)}"] if one.aliases else []
    remarks += [one.note[0].upper() + one.note[1:]] if one.note else []
    memory = under("memory", {"hardware": "h100", "gpus": "8", "zero": "3"})
    asked = (one.name, one.organisation, str(one.published))
    return Screen(asked, headline, table=quantities(rows), remarks=remarks, next=memory)


COMMAND = Command(
    "models",
    "List the known models, or show one with its citation",
    run,
    brief="List the known models, or show one with its citation",
    options=("family", "min-params", "max-params", "moe", "search"),
    arguments=("model",),
    examples=(
        "models",
        "models llama3-70b",
        "models --family llama --max-params 10B",
        "models --moe --min-params 100B",
    ),
)
