"""Facts about transformers' classes: defaults, the fields that they read, and what tracing their steps showed."""

from __future__ import annotations

from collections.abc import Collection, Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def class_facts(model_type: str) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """Return a model_type's class defaults and aliases; empty if none are known."""
    from napkin._tables.class_defaults import ALIASES, CLASS_DEFAULTS

    return CLASS_DEFAULTS.get(model_type, {}), ALIASES.get(model_type, {})


SIZES = ("hidden_size", "num_hidden_layers", "decoder_layers", "num_decoder_layers")
"""Fields without which a file of its own describes no model."""


def held_facts(model_type: str, given: Collection[str]) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """Return the same for a block within another model's file, with the class's size where the block, which has the
    `given` fields, leaves it out: transformers writes only what differs from the class (`to_diff_dict`)."""
    defaults, aliases = class_facts(model_type)
    stated = {aliases.get(field, field) for field in given}
    if stated.issuperset(SIZES):
        return defaults, aliases
    known = read_by_class(model_type) or {}
    sizes = {aliases.get(field, field): value for field, value in known.items() if isinstance(value, int)}
    return {**{field: sizes[field] for field in SIZES if field in sizes}, **defaults}, aliases


def read_by_class(model_type: str) -> Mapping[str, Any] | None:
    """Return the fields that a model_type's class reads, each with the value that its default configuration writes;
    None where transformers has no such class."""
    import json

    from napkin._tables.class_fields import READ

    if model_type not in READ:
        return None
    fields: dict[str, Any] = json.loads(READ[model_type])
    return fields


def registered(model_type: str) -> bool:
    """Return whether transformers has the model_type."""
    from napkin._tables.class_fields import REGISTERED

    return f" {model_type} " in f" {REGISTERED} "


def tie_rule(model_type: str) -> tuple[str, bool] | None:
    """Return whose tie_word_embeddings a multimodal class follows, as `architectures.tying` names the rules, and its
    own level's if the file states none; None if no class was seen."""
    from napkin._tables.class_ties import TIES

    return TIES.get(model_type)


def measured_modes(model_type: str) -> tuple[str, ...]:
    """Return the modes of a model_type's training step whose bytes kept for backward were measured, as
    `operations.implementations.mode` names them."""
    from napkin._tables.saved_bytes import EXACT, MODES

    return MODES[EXACT[model_type][0]] if model_type in EXACT else ()


def measured_version(model_type: str) -> str:
    """Return the version of transformers in which these were measured."""
    from napkin._tables.saved_bytes import EXACT

    return EXACT[model_type][2]


def traced_steps(model_type: str) -> tuple[int, int, int, float] | None:
    """Return what tracing training steps of a model_type showed (tools/traced_steps.py): the number of steps, of peaks
    equal to the byte, of peaks within 1 %, and the largest error. None: no step was traced."""
    from napkin._tables.traced_steps import TRACED

    return TRACED.get(model_type)


def traced_error(model_type: str) -> float:
    """Return the largest error, as a share, of napkin's peaks for traced steps of a model_type; if no step of it was
    traced, the error that nine in ten of the traced model_types stay below."""
    from napkin._tables.traced_steps import TRACED

    furthest = sorted(abs(error) for *_, error in TRACED.values())
    return abs(TRACED[model_type][3]) if model_type in TRACED else furthest[len(furthest) * 9 // 10]
