"""The record of a model_type: everything that napkin knows about it.

The facts of configuration classes and of modeling code are those of Hugging Face transformers 5.23.0 (compared field by
field with 4.57.1; where the two disagree on a default, the field is required instead), unless a record says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from napkin.inputs.model import Config
from napkin.operations.implementations import HF, Implementation
from napkin.operations.model import Model
from napkin.record import record, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

Build = Callable[[Config], Model]
"""Turns a config.json into operations: a function, or a record of what sets a network apart that is called like one."""

_NONE: Mapping[str, str] = {}

REQUIRED: Final = object()
"""In `like(…, defaults=…)`: the relative's class has no default for the field."""


@record
class ConfigClass:
    """A configuration class, if it is not a network's own: of a block of fields within config.json.

    model_type    the block's, by which a family asks for it
    config_class  the class that the facts were read from
    defaults      the value of a field that the file omits; None: the class derives it from other fields or has none.
                  Width and depth are never here: napkin does not guess them
    aliases       {other spelling: the spelling used here}. Width, depth, heads and positions have one spelling
                  throughout (hidden_size, num_hidden_layers, num_attention_heads, max_position_embeddings)
    """

    model_type: str
    config_class: str
    defaults: Mapping[str, object] = _NONE
    aliases: Mapping[str, str] = _NONE


@record
class Wrapper:
    """A multimodal model_type whose config.json holds a language model's as `text_config`.

    The block has the record's model_type if it does not state another.

    config_class, defaults, aliases  as in `ConfigClass`
    path            where the language model is in this class
    flat            published files have the language model's fields on the outer level
    within          (field, model_type) of the block that holds `text_config`, if that is not the file itself
    ignored         fields that describe other networks than the language model
    unread          a field of the language model that this class does not read
    text            what this class gives fields that `text_config` omits, if that is not their class's default
    sees            the field of the language model that its class sets to the width of the vision tower
    former          model_type of the language model in earlier files, which the class reads as its own
    implementation  what its class does with text, if that differs from the language model's own class
    besides         another network that its class holds and napkin counts nowhere
    refused         why napkin does not count it
    """

    model_type: str
    config_class: str = ""
    defaults: Mapping[str, object] = _NONE
    aliases: Mapping[str, str] = _NONE
    path: str = "model.language_model"
    flat: bool = False
    within: tuple[str, str] = ("", "")
    ignored: tuple[str, ...] = ()
    unread: str = ""
    text: Mapping[str, object] = _NONE
    sees: str = ""
    former: str = ""
    implementation: Implementation | None = None
    besides: str = ""
    refused: str = ""


@record
class Architecture:
    """One model_type.

    build           turns a config.json into operations
    config_class, defaults, aliases  as in `ConfigClass`
    blocks          configuration classes of blocks within config.json
    implementation  how its class in transformers runs the operations
    wrappers        multimodal model_types that contain it
    modules         {an operation's `module`, after `STACK/` where the stacks differ: path in the class}, if it
                    differs from module_paths.USUAL
    """

    model_type: str
    build: Build
    config_class: str = ""
    defaults: Mapping[str, object] = _NONE
    aliases: Mapping[str, str] = _NONE
    blocks: tuple[ConfigClass, ...] = ()
    implementation: Implementation = HF
    wrappers: tuple[Wrapper, ...] = ()
    modules: Mapping[str, str] = _NONE


def like(
    other: Architecture,
    model_type: str,
    *,
    build: Build | None = None,
    config_class: str = "",
    defaults: Mapping[str, object] = _NONE,
    aliases: Mapping[str, str] | None = None,
    implementation: Implementation | None = None,
    wrappers: tuple[Wrapper, ...] = (),
    modules: Mapping[str, str] = _NONE,
    **differences: object,
) -> Architecture:
    """Return the record of a relative of `other`.

    `modules` and `defaults` are those that differ, of the latter REQUIRED if the relative's class has none.
    `differences` are fields of the relative's `build`, if that is a record. Wrappers are not inherited."""
    network = build or other.build
    changed = {**other.defaults, **defaults}
    return Architecture(
        model_type,
        replace(network, **differences) if differences else network,
        config_class or other.config_class,
        {field: value for field, value in changed.items() if value is not REQUIRED},
        other.aliases if aliases is None else aliases,
        other.blocks,
        implementation or other.implementation,
        wrappers,
        {**other.modules, **modules},
    )
