"""Which fields of a config.json each class of transformers reads, and the value it has if it writes one itself.

What a class does not read cannot change what it builds. A field counts as read where any branch of the class's source
could read it (class_source.py), and where it was read while small models of drawn configs were built and run, which
shows what the text hides (names made at run time).

    hf/bin/python tools/class_fields.py                          write the table that napkin reads
    hf/bin/python tools/class_fields.py llama bert               the same, these model types anew
    hf/bin/python tools/class_fields.py --show llama             what a class reads
    hf/bin/python tools/class_fields.py --defaults               write the files that default configs save (tests)
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import random
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]

import cuda_on_meta  # noqa: E402
import transformers  # noqa: E402
from class_source import (  # noqa: E402
    ANY_CLASS,
    NOT_BUILDING,
    PARSES_ROPE,
    aliases_of,
    of_config,
    overwritten,
    read_in_text,
)
from drawn_configs import BORROWED  # noqa: E402
from transformers import CONFIG_MAPPING, PreTrainedConfig  # noqa: E402

from napkin.architectures import MODULES, WRAPPERS  # noqa: E402

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()

TABLE = ROOT / "src" / "napkin" / "_tables" / "class_fields.py"
SAVED = ROOT / "tests" / "data" / "default_configs.json"
CASES = 3
"""Drawn configs of each model type that are run."""
LONGEST = 60
"""Characters of a default value that is kept."""


# --- at run time ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def recording(read: dict[str, set[str]]) -> Iterator[None]:
    """Collect, by model type, the attributes of configurations that models read."""
    usual = PreTrainedConfig.__getattribute__

    def record(self: Any, key: str) -> Any:
        frame = sys._getframe(1)
        file, function = frame.f_code.co_filename, frame.f_code.co_name
        builds = ("/models/" in file or "rope_utils" in file or "masking_utils" in file) and "/auto/" not in file
        if builds and not function.startswith(NOT_BUILDING) and function not in PARSES_ROPE:
            read.setdefault(type(self).model_type, set()).add(key)
        return usual(self, key)

    PreTrainedConfig.__getattribute__ = record
    try:
        yield
    finally:
        PreTrainedConfig.__getattribute__ = usual


def read_at_run_time(model_type: str) -> dict[str, set[str]]:
    """Return what was read, by model type, while a few small models were built and run."""
    from class_counts import counted
    from drawn_configs import draw

    read: dict[str, set[str]] = {}
    rng = random.Random(model_type)
    for _ in range(CASES):
        with contextlib.suppress(Exception):  # a draw that contradicts itself
            shape = draw(model_type, rng, 0.0)._replace(sequences=2)
            with recording(read):
                counted(shape)
    return read


# --- the table ------------------------------------------------------------------------------------------------------


def saved(model_type: str) -> dict[str, Any] | None:
    """Return the config.json that a model type's default configuration writes; None if it has none."""
    try:
        fields: dict[str, Any] = json.loads(CONFIG_MAPPING[model_type]().to_json_string())
    except Exception:  # a class without defaults
        return None
    return fields


def fields_of(model_type: str, recorded: set[str]) -> dict[str, Any]:
    """Return the fields that a model type's classes read, each with what its default configuration writes, or None."""
    config_class = CONFIG_MAPPING[model_type]
    declared = {field.name for field in dataclasses.fields(config_class)}
    facts = {n for n in dir(config_class) if not isinstance(getattr(config_class, n, None), property)} - declared
    names = (read_in_text(model_type) | recorded) - (facts - set(ANY_CLASS))
    aliases = aliases_of(config_class)
    names |= {aliases[name] for name in names if name in aliases}
    if config_class.sub_configs:  # its classes also read configurations within it, under the same names
        names &= declared | of_config(config_class) | set(ANY_CLASS)
    names |= {alias for alias, name in aliases.items() if name in names}
    names -= overwritten(config_class) - set(ANY_CLASS)
    defaults = saved(model_type) or {}
    kept = {}
    for name in sorted(n for n in names if not n.startswith("_") and n not in ("", "kwargs", "config")):
        value = defaults.get(name)
        kept[name] = value if len(json.dumps(value)) <= LONGEST else None
    return kept


def write_table(types: list[str]) -> None:
    """Write the table, with new entries for these model types, or for all."""
    recorded: dict[str, set[str]] = {}
    known = [name for name in sorted({*MODULES, *WRAPPERS, *BORROWED}) if BORROWED.get(name, name) in CONFIG_MAPPING]
    kept: dict[str, Any] = {"READ": {}, "ANYWHERE": ""}
    if types:
        exec(TABLE.read_text(encoding="utf-8"), kept)
    cuda_on_meta.emulate()
    for model_type in types or known:
        for other, names in read_at_run_time(model_type).items():
            recorded.setdefault(other, set()).update(names)
    every: set[str] = set(kept["ANYWHERE"].split())
    for model_type in CONFIG_MAPPING:
        with contextlib.suppress(Exception):  # needs a library that is not here
            every |= set(fields_of(model_type, recorded.get(model_type, set())))
    text = '"""Generated by tools/class_fields.py from the classes themselves."""\n\n'
    text += "from __future__ import annotations\n\n"
    text += f"TRANSFORMERS = {transformers.__version__!r}\n"
    text += "# model_type → JSON: each field that its class reads, with what its default configuration writes\n"
    text += "READ: dict[str, str] = {\n"
    for model_type in known:
        entry = kept["READ"].get(model_type)
        if entry is None or model_type in types or model_type in recorded:
            own = BORROWED.get(model_type, model_type)
            found = fields_of(own, recorded.get(own, set()) | set(json.loads(entry or "{}")))
            if model_type in BORROWED:  # its files have no common defaults
                found = dict.fromkeys(found)
            entry = json.dumps(found, separators=(",", ":"))
        text += f"    {model_type!r}: {entry!r},\n"
    text += "}\n# fields that any registered class reads\n"
    text += f"ANYWHERE = {' '.join(sorted(every))!r}\n"
    text += f"# model types of the library\nREGISTERED = {' '.join(sorted(CONFIG_MAPPING))!r}\n"
    TABLE.write_text(text, encoding="utf-8")


def write_defaults() -> None:
    """Write the files that default configurations save, one a line."""
    about = f"What default configurations of Hugging Face transformers {transformers.__version__} save."
    rows = {t: saved(t) for t in sorted({*MODULES, *WRAPPERS}) if t in CONFIG_MAPPING}
    lines = ",\n".join(json.dumps([t, fields], separators=(",", ":")) for t, fields in rows.items() if fields)
    SAVED.write_text(json.dumps({"about": about})[:-1] + ', "rows": [\n' + lines + "\n]}\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("types", nargs="*", help="model types whose entries are written anew (default: all)")
    parser.add_argument("--show", metavar="TYPE", help="print what one class reads")
    parser.add_argument("--defaults", action="store_true", help="write the files of default configurations")
    asked = parser.parse_args()
    if asked.show:
        cuda_on_meta.emulate()
        ran = read_at_run_time(asked.show).get(asked.show, set())
        print(json.dumps(fields_of(asked.show, ran), indent=1))
        print("only at run time:", *sorted(ran - read_in_text(asked.show)))
    elif asked.defaults:
        write_defaults()
    else:
        write_table(asked.types)
    return 0


if __name__ == "__main__":
    sys.exit(main())
