"""Files that run code of their own under a model_type of transformers."""

from __future__ import annotations

from napkin.inputs.model import Config


def spelled(name: str) -> str:
    """Return a class name without what published files spell in several ways."""
    return name.replace("_", "").lower()


def own_class(config: Config) -> str:
    """Return the class that a file's own code (`auto_map`) defines and transformers does not have; "" if there is
    none."""
    names = config.fields.get("architectures")
    if not config.fields.get("auto_map") or not isinstance(names, list) or not names:
        return ""
    from napkin._tables.class_names import NAMES

    first = names[0]
    return first if isinstance(first, str) and f" {spelled(first)} " not in f" {NAMES} " else ""
