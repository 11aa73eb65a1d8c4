"""A model as a Config: a config.json (file, folder, standard input), a preset, or a napkin YAML."""

from __future__ import annotations

import os

from napkin.errors import NapkinError, Refused
from napkin.inputs.class_facts import class_facts
from napkin.inputs.file_roles import other_role
from napkin.inputs.load import STDIN, Document, name_of, parse_json, printable, read_json, read_text
from napkin.inputs.model import GIVEN, PRESET, Config

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from napkin.inputs.presets import Preset


def config_from(name: str, document: Document, data: Any, origin: str = GIVEN) -> Config:
    """Return the mapping of a config.json as a Config. Refuse (3) one without a model_type."""
    if not isinstance(data, dict):
        raise NapkinError(f"{document.name}: is not a mapping of fields", "give a config.json")
    model_type, told = data.get("model_type"), ""
    if model_type is None:
        from napkin.inputs.foreign import translated

        found = translated(data, document.name)
        if found is not None:
            data, told = found
            model_type = data["model_type"]
    if model_type is None and "peft_type" in data:
        raise _is_adapter(document.name)
    if model_type is None:
        told = other_role(data) or "add the model_type of the published config.json"
        raise Refused(f"{document.name}: model_type is missing", told)
    if not isinstance(model_type, str) or not model_type:
        raise NapkinError(
            f"{document.place('model_type')}: {printable(repr(model_type), 60)} is not a text", "for example llama"
        )
    defaults, aliases = class_facts(model_type)
    config = Config(name, document, data, model_type, defaults, aliases, (), origin)
    config.used.add("model_type")
    if told:
        config.notes.append(told)
    return config


def _is_adapter(path: str) -> NapkinError:
    """Return the error that a file is an adapter, which a model has."""
    shown = printable(path, 200)
    return NapkinError(f"{shown}: is a peft adapter, not a model", f"give it with its base model: MODEL --from {shown}")


def is_path(text: str) -> bool:
    """Return whether a MODEL can only be a path: a missing file is never taken for the preset of its last part."""
    begins = text.startswith(("./", "../", "/", "~"))
    return begins or text.count("/") > 1 or text.endswith((".json", ".yaml", ".yml", "/"))


def load_config(model: str) -> Config:
    """Return MODEL as a Config: "-" (standard input), a folder with a config.json, a .json or .yaml file, a preset, a
    model of the local Hugging Face cache, or the text of a config.json itself."""
    from napkin.inputs.presets import is_preset, preset

    if model.lstrip().startswith("{") and not os.path.exists(model):
        return _of_document(parse_json(model, "MODEL", infinite=True), "the shape given")

    if model == "-":
        return _of_document(_sniffed("-"), STDIN)
    model = os.path.expanduser(model)
    looks_like_file = is_path(model) or os.path.exists(model)
    if os.path.isdir(model):
        names = ("config.json", "params.json", "model_config.yaml")
        inside = next((at for name in names if os.path.exists(at := os.path.join(model, name))), None)
        looks_like_file = inside is not None
        inside = inside or os.path.join(model, "config.json")
        if looks_like_file:
            model = inside
        elif not is_preset(model):
            adapter = os.path.join(model, "adapter_config.json")
            if os.path.exists(adapter):
                raise _is_adapter(adapter)
            raise NapkinError(f"{printable(inside)}: there is no such file", "a folder must hold a config.json")
    if looks_like_file:
        from napkin.inputs.yaml_file import read_yaml

        kind = os.path.splitext(model)[1]
        document = (
            read_yaml(model)
            if kind in (".yaml", ".yml")
            else read_json(model, infinite=True)
            if kind == ".json"
            else _sniffed(model)
        )
        folder = os.path.basename(os.path.dirname(os.path.abspath(model)))
        return _of_document(document, folder if os.path.basename(model) == "config.json" else os.path.basename(model))
    if not is_preset(model):
        from napkin.inputs.hf_cache import cached_config

        path = cached_config(model)
        if path is not None:
            return _of_document(read_json(path, infinite=True), f"{model} (local cache)")
        if (config := _republished_config(model)) is not None:
            return config
    return preset_config(preset(model))


def _republished_config(model: str) -> Config | None:
    """Return the Config of a republication whose name states the model and the format of its weights, else None."""
    from napkin.inputs.presets import base_of, preset
    from napkin.inputs.republished import republished

    found, base = republished(model), base_of(model)
    if found is None or base is None or not found.word:
        return None
    config = preset_config(preset(base))
    config.fields = {**config.fields, "quantization_config": dict(found.fields)}
    config.unlisted = found.mixed
    apart = ", some modules apart, which the name does not tell" if found.mixed else ""
    config.notes.append(f"{printable(model, 100)}: {base} with weights in {found.word}, as its name says{apart}")
    return config


def _sniffed(path: str) -> Document:
    """Read a file whose name does not tell its format: JSON if it begins like JSON, else YAML."""
    text = read_text(path)
    name = name_of(path)
    if path.endswith(".py"):
        raise Refused(
            f"{name}: is Python, which napkin does not run",
            'write the shape as JSON: {"n_layer": 12, "n_head": 12, "n_embd": 768, "block_size": 1024}',
        )
    if path.endswith(".toml"):
        raise Refused(
            f"{name}: is TOML, in which training jobs name a model's flavor and not its sizes",
            "give the config.json of the model's Hugging Face export",
        )
    if text.lstrip()[:1] in ("{", "[", ""):
        return parse_json(text, name, infinite=True)
    from napkin.inputs.yaml_file import parse_yaml

    return parse_yaml(text, name)


def _of_document(document: Document, name: str) -> Config:
    """Return the Config of a config.json, or of a napkin model file (name, source, config)."""
    data = document.data
    if isinstance(data, dict) and isinstance(data.get("config"), dict):
        config = config_from(printable(str(data.get("name", name))), document, data["config"])
        config.prefix = ("config",)
        return config
    return config_from(printable(name), document, data)


def preset_config(preset: Preset) -> Config:
    """Return a published architecture as a Config."""
    return config_from(preset.name, Document(f"preset {preset.name}", preset.config), preset.config, PRESET)
