"""Launch files for tools/fuzz.py: a small one of each format that napkin reads, with one to three keys changed."""

from __future__ import annotations

import json
import os
import random
import shlex
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

import yaml

from napkin.inputs.launch.read import MODULES

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "fuzz_launch.yaml")) as _file:
    BASES: dict[str, dict[str, Any]] = yaml.safe_load(_file)
"""Module of a format → form, head and keys of a file; a dot in a key is a block in YAML and JSON."""
FAIR = (
    "auto",
    True,
    False,
    None,
    0,
    1,
    2,
    3,
    8,
    -1,
    4096,
    0.1,
    "full",
    "bf16",
    "fp8",
    "${a.b}",
    "$X",
    "$((2 * 4))",
    "1e3",
)
"""Values that a launch file may hold somewhere, and seldom at the key that they are given to."""


@cache
def declared(name: str) -> tuple[str, ...]:
    """Return the keys that a format's reader looks at."""
    tables = import_module(f"napkin.inputs.launch.formats.{name}").FORMAT.tables
    return tuple(sorted(tables.looked)) or tuple(BASES[name]["keys"])


def launch_file(rng: random.Random, bad: Callable[[random.Random, Any], Any], name: str = "") -> bytes:
    """Return a file of a format, as it is where one is named and none to three keys changed if none is."""
    changes = 0 if name else rng.choice((0, 0, 1, 1, 1, 2, 3))
    name = name or rng.choice(MODULES.split())
    base = BASES[name]
    keys = dict(base["keys"])
    for _ in range(changes):
        _change(rng, keys, name, bad)
    text = FORMS[base.get("form", "yaml")](keys, base.get("head", ""))
    return text.encode("utf-8", "surrogatepass")


def _change(rng: random.Random, keys: dict[str, Any], name: str, bad: Callable[[random.Random, Any], Any]) -> None:
    """Change one key: its value, its name, whether it is there, or what stands next to it."""
    kind, key = rng.randrange(12), rng.choice(list(keys) or ["a"])
    other = rng.choice(declared(name if rng.random() < 0.9 else rng.choice(MODULES.split())))
    if kind == 0:
        keys.pop(key, None)
    elif kind < 3:
        keys[other] = rng.choice(FAIR) if rng.random() < 0.6 else bad(rng, keys.get(other))
    elif kind == 3:
        keys[key] = rng.choice(FAIR)
    elif kind == 4:
        keys[f"{key}{rng.choice(('.a', 's', '-x', '.', ' '))}"] = keys.pop(key, 1)
    elif kind == 5:
        keys[key] = keys.get(other, keys.get(rng.choice(list(keys) or ["a"])))
    elif kind < 10:
        keys[key] = _near(rng, keys.get(key))
    else:
        keys[key] = bad(rng, keys.get(key))


def _near(rng: random.Random, old: Any) -> Any:
    """Return another value that a key may well have."""
    if isinstance(old, bool):
        return not old
    return rng.choice((1, 2, 3, 16, 1000, old * 2, old + 1)) if isinstance(old, int | float) else rng.choice(FAIR)


# --- how they are written ------------------------------------------------------------------------------------------


def _nested(keys: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in keys.items():
        node, *parts = tree, *key.split(".")
        for part in parts[:-1]:
            if not isinstance(node.get(part), dict):
                node[part] = {}
            node = node[part]
        node[parts[-1]] = value
    return tree


def _yaml(keys: Mapping[str, Any], head: str) -> str:
    return yaml.safe_dump(_nested(keys), allow_unicode=True, sort_keys=False)


def _json(keys: Mapping[str, Any], head: str) -> str:
    return json.dumps(_nested(keys), indent=1)


def _toml(keys: Mapping[str, Any], head: str) -> str:
    sections: dict[str, str] = {}
    for key, value in sorted(keys.items(), key=lambda one: "." in one[0]):  # those of no section first
        section, dot, rest = key.rpartition(".")
        line = f"{rest} = {json.dumps(value)}\n"
        sections[section] = sections.get(section, f"[{section}]\n" if dot else "") + line
    return "".join(sections.values())


def _python(keys: Mapping[str, Any], head: str) -> str:
    return "".join(f"{key} = {value!r}\n" for key, value in _nested(keys).items())


def _calls(keys: Mapping[str, Any], head: str) -> str:
    return f"{head}trainer = SFTTrainer(model=MODEL, args=SFTConfig(**{dict(keys)!r}), peft_config=LoraConfig(r=8))\n"


def _recipe(keys: Mapping[str, Any], head: str) -> str:
    return head + "".join(f"recipe.{key} = {value!r}\n" for key, value in keys.items())


def _options(keys: Mapping[str, Any], head: str) -> str:
    words = [f"--{key}" + ("" if value is True else f" {_word(value)}") for key, value in keys.items()]
    return "#!/bin/bash\nX=4\n" + " \\\n  ".join([head, *words]) + "\n"


def _pairs(keys: Mapping[str, Any], head: str) -> str:
    return " \\\n  ".join([head, *(f"{key}={_word(value)}" for key, value in keys.items())]) + "\n"


def _word(value: Any) -> str:
    """Return a value as a shell's word; what has a dollar sign is left for the shell to read."""
    text = str(value)
    return text if "$" in text else shlex.quote(text)


FORMS = {
    "yaml": _yaml,
    "json": _json,
    "toml": _toml,
    "python": _python,
    "calls": _calls,
    "recipe": _recipe,
    "options": _options,
    "pairs": _pairs,
}
