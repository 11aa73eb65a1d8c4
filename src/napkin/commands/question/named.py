"""The config of a model by its name: a preset, an id, a path, or a bare size."""

from __future__ import annotations

from napkin.inputs.model import Config
from napkin.inputs.model_file import load_config
from napkin.inputs.sizes import size_of


def named_config(text: str) -> tuple[Config, str]:
    """Return the config for the text of MODEL, and a description of the shape that is assumed for a bare size."""
    size = size_of(text)
    if size is None:
        return load_config(text), ""
    from napkin.planning.llama_shapes import config_of_size

    return config_of_size(size, text.strip())
