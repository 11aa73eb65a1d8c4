"""Which fields of a config.json each class of transformers reads, and the value it has if it writes one itself.

What a class does not read cannot change what it builds. A field counts as read where any branch could: in the syntax
tree of the configuration class (attributes of self, getattr, what __post_init__ takes of its arguments, attribute_map)
and of all classes and functions that the model with a language head reaches; and where it was read while small models
of drawn configs were built and run, which shows what the text hides (names made at run time).

    hf/bin/python tools/class_fields.py                          write the table that napkin reads
    hf/bin/python tools/class_fields.py llama bert               the same, these model types anew
    hf/bin/python tools/class_fields.py --show llama             what a class reads
    hf/bin/python tools/class_fields.py --defaults               write the files that default configs save (tests)
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import functools
import inspect
import json
import random
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]

import cuda_on_meta  # noqa: E402
import transformers  # noqa: E402
from drawn_configs import BORROWED, HOLDERS, ONE_CLASS  # noqa: E402
from transformers import CONFIG_MAPPING, PreTrainedConfig  # noqa: E402
from transformers.modeling_rope_utils import RotaryEmbeddingConfigMixin  # noqa: E402
from transformers.models.auto import modeling_auto  # noqa: E402

from napkin.architectures import MODULES, WRAPPERS  # noqa: E402

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()

TABLE = ROOT / "src" / "napkin" / "_tables" / "class_fields.py"
SAVED = ROOT / "tests" / "data" / "default_configs.json"
HEADS = ("CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM")
NOT_FOLLOWED = re.compile(
    r"transformers\.(modeling_utils|configuration_utils|generation|utils|cache_utils|processing_utils|modeling_outputs"
    r"|activations|loss|trainer|models\.auto|integrations\.(?!moe)|dynamic_module_utils|core_model_loading|conversion"
    r"|monkey_patching|quantizers|distributed|testing_utils)"
)
"""Modules whose reading of a configuration changes nothing that is built: saving, loading, generating."""
ANY_CLASS = ("tie_word_embeddings", "is_encoder_decoder", "per_layer_config", "rope_scaling", "rope_theta")
"""Fields that the base classes read for every model."""
NOT_BUILDING = ("validate_", "get_text_config", "to_", "save_", "from_", "push_")
"""Methods of configuration classes that build nothing, by the beginning of their names."""
PARSES_ROPE = frozenset(dir(RotaryEmbeddingConfigMixin))
"""Methods that bring the rotary fields of every configuration into one form."""
A_CONFIG = re.compile(r"(.*_)?(config|cfg)$")
NESTED = re.compile("(vision|audio|text|generation|quantization|image|video|backbone|perceiver|qformer|vq|codec).*")
"""Names of configurations within another one, or of other things than models."""
CASES = 3
"""Drawn configs of each model type that are run."""
LONGEST = 60
"""Characters of a default value that is kept."""


# --- the syntax tree ------------------------------------------------------------------------------------------------


@functools.cache
def definitions(module: Any) -> Mapping[str, ast.AST]:
    """Return the classes and functions that a module defines, by name."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError):
        return {}
    kinds = (ast.ClassDef, ast.FunctionDef)
    return {node.name: node for node in ast.walk(tree) if isinstance(node, kinds)} | {
        node.name: node for node in tree.body if isinstance(node, kinds)
    }


def own(thing: object) -> bool:
    """Return whether a class or function is the library's, and of a module that is followed."""
    module = getattr(thing, "__module__", "") or ""
    return (inspect.isclass(thing) or inspect.isfunction(thing)) and (
        module.startswith("transformers.") and not NOT_FOLLOWED.match(module)
    )


def reached(roots: list[Any]) -> Iterator[tuple[Any, ast.AST]]:
    """Return classes and functions that the roots name, directly or not, with their syntax trees."""
    left, seen = list(roots), set()
    while left:
        thing = inspect.unwrap(left.pop()) if not inspect.isclass(left[-1]) else left.pop()
        if id(thing) in seen or not own(thing):
            continue
        seen.add(id(thing))
        if inspect.isclass(thing) and issubclass(thing, PreTrainedConfig):
            continue
        module = sys.modules[thing.__module__]
        node = definitions(module).get(thing.__name__)
        if node is None:
            continue
        yield thing, node
        for name in {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}:
            found = getattr(module, name, None)
            left += [one for one in (found.values() if isinstance(found, dict) else (found,)) if callable(one)]


def text_of(node: ast.AST | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def last_name(node: ast.AST) -> str:
    """Return the name that an expression ends with: `text_config` of `self.config.text_config`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def asked_of(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Return (object, attribute) for each attribute that code reads, by name or through getattr and hasattr."""
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Load):
            yield part.value, part.attr
        elif isinstance(part, ast.Call) and last_name(part.func) in ("getattr", "hasattr") and len(part.args) > 1:
            yield part.args[0], text_of(part.args[1])


def of_models(config_class: type, roots: list[Any]) -> set[str]:
    """Return what the classes of a model read of its configuration, not of those nested in it."""
    found: set[str] = set()
    for thing, node in reached(roots):
        if _configured_by(thing, node) not in (None, config_class) and not issubclass(
            config_class, _configured_by(thing, node)
        ):
            continue
        for value, name in asked_of(node):
            if A_CONFIG.match(last_name(value)) and not NESTED.match(last_name(value)):
                found.add(name)
    return found


def _configured_by(thing: Any, node: ast.AST) -> Any:
    """Return the configuration class that a class's `__init__` is annotated with, or None."""
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            for argument in part.args.args:
                if A_CONFIG.match(argument.arg) and argument.annotation is not None:
                    name = last_name(argument.annotation)
                    found = getattr(sys.modules[thing.__module__], name, None)
                    return found if inspect.isclass(found) and issubclass(found, PreTrainedConfig) else None
    return None


def of_config(config_class: type) -> set[str]:
    """Return what a configuration class reads of itself and of its arguments while it is made."""
    found: set[str] = set()
    for base in config_class.__mro__:
        if not base.__module__.startswith("transformers.models."):
            continue
        node = definitions(sys.modules[base.__module__]).get(base.__name__)
        for method in getattr(node, "body", ()):
            if not isinstance(method, ast.FunctionDef) or method.name.startswith(NOT_BUILDING):
                continue
            if method.name in ("__init__", "__post_init__"):
                found |= {a.arg for a in (*method.args.args, *method.args.kwonlyargs) if a.arg != "self"}
            for value, name in asked_of(method):
                if last_name(value) == "self":
                    found.add(name)
            for part in ast.walk(method):
                if (
                    isinstance(part, ast.Call)
                    and last_name(getattr(part.func, "value", part)) == "kwargs"
                    and part.args
                ):
                    found.add(text_of(part.args[0]))
                elif isinstance(part, ast.Subscript) and last_name(part.value) == "kwargs":
                    found.add(text_of(part.slice))
                elif isinstance(part, ast.Compare) and any(last_name(c) == "kwargs" for c in part.comparators):
                    found.add(text_of(part.left))
    return found - {""}


def overwritten(config_class: type) -> set[str]:
    """Return the fields that a configuration class sets whatever a file states: assigned in `__post_init__`, outside of
    branches, from other fields."""
    found: set[str] = set()
    node = definitions(sys.modules[config_class.__module__]).get(config_class.__name__)
    for method in getattr(node, "body", ()):
        if isinstance(method, ast.FunctionDef) and method.name == "__post_init__":
            for line in method.body:
                if isinstance(line, ast.Assign) and last_name(getattr(line.targets[0], "value", line)) == "self":
                    name = last_name(line.targets[0])
                    used = {text_of(part) or last_name(part) for part in ast.walk(line.value)}
                    found |= set() if name in used else {name}
    return found


def heads_of(model_type: str) -> list[Any]:
    """Return the classes with a language head of a model type; without one, the classes that build it at all, or that
    of the model that holds it."""
    names: list[str] = []
    for head in HEADS:
        value = getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES").get(model_type, ())
        names += [value] if isinstance(value, str) else value
    if not names:
        value = modeling_auto.MODEL_MAPPING_NAMES.get(model_type, ())
        names += [value] if isinstance(value, str) else value
    if not names and model_type in ONE_CLASS:
        module, name = ONE_CLASS[model_type]
        return [getattr(getattr(transformers.models, module), name)]
    if not names and model_type in HOLDERS:
        return heads_of(HOLDERS[model_type])
    if not names:  # no automatic class has it
        config_class = CONFIG_MAPPING[model_type]
        place = import_module(config_class.__module__.replace(".configuration_", ".modeling_"))
        return [one for one in vars(place).values() if getattr(one, "config_class", None) is config_class]
    return [one for name in dict.fromkeys(names) if (one := getattr(transformers, name, None)) is not None]


def aliases_of(config_class: Any) -> dict[str, str]:
    return {str(k): str(v) for k, v in getattr(config_class, "attribute_map", {}).items()}


def read_in_text(model_type: str) -> set[str]:
    """Return the fields that a model type's classes could read, by their syntax trees."""
    config_class = CONFIG_MAPPING[model_type]
    return of_config(config_class) | of_models(config_class, heads_of(model_type)) | set(ANY_CLASS)


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
