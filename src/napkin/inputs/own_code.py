"""Files that run code of their own under a model_type of transformers."""

from __future__ import annotations

from napkin.inputs.class_facts import registered
from napkin.inputs.model import Config


def spelled(name: str) -> str:
    """Return a class name without what published files spell in several ways."""
    return name.replace("_", "").lower()


def own_class(config: Config) -> str:
    """Return the class that a file's own code (`auto_map`) defines under a model_type of transformers, which has no
    such class; "" if there is none."""
    names, kind = config.fields.get("architectures"), config.fields.get("model_type")
    if not config.fields.get("auto_map") or not isinstance(names, list) or not names:
        return ""
    if not isinstance(kind, str) or not registered(kind):  # a type of its own, which napkin knows by that code
        return ""
    from napkin._tables.class_names import NAMES

    first = names[0]
    return first if isinstance(first, str) and f" {spelled(first)} " not in f" {NAMES} " else ""
