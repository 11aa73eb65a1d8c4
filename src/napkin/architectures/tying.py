"""Whose tie_word_embeddings a multimodal model follows: both levels of its config.json may state it.

Since transformers 5 each class has a rule, which tools/class_ties.py finds in the classes. Before, the language model's
block decided, and a checkpoint that was saved then holds what it said.
"""

from __future__ import annotations

from napkin.inputs.class_facts import tie_rule
from napkin.inputs.load import printable
from napkin.inputs.model import Config

FIELD = "tie_word_embeddings"
RULED = 5
"""The major version of transformers since which a class has a rule."""


def settle_tie(config: Config, text: Config, model_type: str) -> None:
    """Give the language model's block the tie_word_embeddings by which the whole's class shares its head's weight.

    config, text  the outer level and the language model's block, which may be the same
    model_type    the whole's
    Refused (3): levels that contradict each other, if neither a rule nor the file's version decides
    """
    outer = config.flag(FIELD) if config.has(FIELD) else None
    inner = text.flag(FIELD) if text is not config and text.has(FIELD) else None
    usual, rule, release = bool(text.defaults.get(FIELD)), tie_rule(model_type), _release(config, text)
    if rule is None and release is None and None not in (outer, inner) and outer is not inner:
        raise config.refuse(
            FIELD, "contradicts text_config's, and releases differ in which they follow", "make them agree"
        )
    old = _first(inner, outer, usual)
    now = _first(outer, inner, usual) if rule is None else _ruled(*rule, outer, usual if inner is None else inner)
    found = old if release is not None and release < RULED else now
    if found is not now:
        config.notes.append(
            f"{FIELD} is {str(found).lower()}, as transformers {release} read this file when it was saved: the "
            f"checkpoint's parameters; the class of transformers 5 reads {str(now).lower()}"
        )
    elif inner not in (None, found):
        whose = "never shares them" if rule is not None and rule[0] == "never" else "follows its own"
        config.notes.append(
            f"{FIELD} in text_config is without effect: the class of {printable(model_type, 40)} {whose}"
        )
    if found in (outer, inner):
        text.restate(FIELD, found)
    else:
        text.fields = {name: value for name, value in text.fields.items() if name not in text.spellings(FIELD)}
        text.defaults = {**text.defaults, FIELD: found}


def _first(*stated: bool | None) -> bool:
    return next(value for value in stated if value is not None)


def _ruled(rule: str, default: bool, outer: bool | None, inner: bool) -> bool:
    """Return whether the class shares the weight.

    rule     own: by the outer level; text: by the language model; either: if one of both says so; first: by the
             outer level if it states a value, else by the language model; never
    default  the outer level's, if it states none
    inner    the language model's value, stated or its class's
    """
    own = default if outer is None else outer
    if rule == "first":
        return inner if outer is None else outer
    return {"own": own, "text": inner, "either": own or inner, "never": False}[rule]


def _release(config: Config, text: Config) -> int | None:
    """Return the major version of transformers that wrote the file, where it says so."""
    root = config.document.data
    levels = (config.fields, root if isinstance(root, dict) else {}, text.fields)
    written = next((found for level in levels if isinstance(found := level.get("transformers_version"), str)), "")
    config.ignore("transformers_version")
    major, dot, _ = written.partition(".")
    return int(major) if dot and major.isdecimal() and len(major) <= 3 else None
