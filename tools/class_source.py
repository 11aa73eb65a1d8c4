"""What the classes of transformers read of a configuration, by their source: in the syntax tree of the configuration
class (attributes of self, getattr, what __post_init__ takes of its arguments, attribute_map) and of all classes and
functions that the model with a language head reaches."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import transformers
from drawn_configs import HOLDERS, ONE_CLASS
from transformers import CONFIG_MAPPING, PreTrainedConfig
from transformers.modeling_rope_utils import RotaryEmbeddingConfigMixin
from transformers.models.auto import modeling_auto

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
