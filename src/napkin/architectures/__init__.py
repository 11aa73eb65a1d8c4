"""From a config.json to the operations of its network, and how its implementation runs them.

A family of architectures is one module in a folder of `families`, with a tuple of records (`ARCHITECTURES`, record.py);
the modules next to this one are the parts that families share. Only the family of the model_type that is asked for is
imported: `napkin._tables.architectures` says which one that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from napkin._tables import architectures as _index
from napkin.architectures.module_paths import located
from napkin.architectures.reading import ALONE, check_layer_lists
from napkin.architectures.record import Architecture, Wrapper
from napkin.errors import NapkinError, Refused, did_you_mean
from napkin.inputs.class_facts import class_facts, registered
from napkin.inputs.load import printable
from napkin.inputs.model import Config
from napkin.inputs.unread import settle
from napkin.operations.frameworks import FRAMEWORKS
from napkin.operations.implementations import HF, HUGGING_FACE, Implementation
from napkin.operations.model import Model, Vision
from napkin.operations.queries import heard_operations
from napkin.record import replace

MODULES: dict[str, str] = _index.MODULES
"""model_type → the module of `families` that has its record: `decoders.llama`."""
WRAPPERS: dict[str, str] = _index.WRAPPERS
"""Multimodal model_type → the model_type of the language model within it, if its file does not state one."""

NO_AUDIO = "its audio encoder is counted nowhere"
SEEN_IN = ("vision_config", "patch_size")
"""Where files describe a vision tower, or patches that the language model itself reads."""
HEARD_IN = ("audio_config", "encoder_config")
"""Where files describe an audio encoder."""
QUANTIZED = "quantization_config"
_PREDICTION = "mtp_config"
"""Where a published file describes its multi-token prediction layers, outside of the language model's fields."""

_SCORING = ("Classification", "QuestionAnswering", "QuestionAnsweringSimple", "MultipleChoice")
"""Ends of the names of classes that score labels, in place of a language model's head."""

_OTHER_MODALITIES = (
    *("vision", "visual", "image", "video", "audio", "speech", "mm", "boi", "eoi", "boa", "eoa", "projector"),
    *("projection", "multimodal", "spatial", "media", "vt", "merge", "pixel_shuffle", "downsample", "alignment"),
    *("adapter", "anyres", "use_image", "perceiver", "resampler", "tokens_per", "scale_factor", "qformer"),
    *("num_query_tokens", "high_res_vision", "patch_size", "num_channels"),
)
"""First words of fields that describe what is not text."""


def build(config: Config, assumed: Sequence[str] = (), strict: bool = False) -> Model:
    """Return the model that a config.json describes. Refused (3): a model_type or a field that napkin does not know.

    assumed  fields that the user knows to change no count; `strict`: refuse every field that the class does not read
    """
    try:
        return _build(config, assumed, strict)
    except NapkinError as problem:
        if not config.unfit:
            raise
        from napkin.architectures.config_problems import every_problem

        raise every_problem(config, problem, lambda other: _build(other, assumed, strict)) from None


def _build(config: Config, assumed: Sequence[str], strict: bool) -> Model:
    """Return the model, or raise the first problem that is found."""
    kind, text = config.model_type, text_model(config)  # which is the config itself if its fields are on one level
    architecture, wrapper = architecture_of(text), wrapper_of(config.model_type)
    names = config.fields.get("architectures")
    headed = isinstance(names, list) and any(isinstance(name, str) and name.endswith(_SCORING) for name in names[:1])
    if headed:
        from napkin.architectures.heads import with_class_head

        model = with_class_head(config, text, architecture.build)
    else:
        model = architecture.build(text)
    model = located(model, architecture.modules, wrapper.path if wrapper is not None else "")
    if len(model.stacks) == 1:
        check_layer_lists(text, model.stacks[0].depth)
    seen = _vision(config, kind, text, model)
    model = model if seen is not None else _with_tower(config, kind, model)
    model = _heard(config, kind, model)
    if architecture.implementation.unrouted and model.experts:
        config.notes.append(
            "transformers' class runs every token through all experts, which its steps' time and memory hold; FLOPs "
            "and MFU count those that a token chooses"
        )
    settle(config, assumed, strict)
    besides = wrapper.besides if wrapper is not None else ""
    if besides:
        config.notes.append(f"its {besides} is counted nowhere")
    own = wrapper is not None and wrapper.implementation is not None
    family = config.model_type if own else text.model_type
    notes, stored = (*model.notes, *config.notes), None
    quantization = config.mapping(QUANTIZED, required=False) or text.mapping(QUANTIZED, required=False)
    if quantization is not None:
        from napkin.architectures.checkpoint import checkpoint_of

        stored = checkpoint_of(quantization, config.unlisted)
    alone = any(note.startswith(ALONE) for note in notes)
    heard = heard_operations(model)
    missing = ("no vision tower" if heard else "language model only") if alone else ""
    missing = missing or (f"no {besides}" if besides else "")
    missing = missing or ("no audio encoder" if any(note.endswith(NO_AUDIO) for note in notes) else "")
    return replace(model, notes=notes, family=family, vision=seen, checkpoint=stored, missing=missing)


def _vision(config: Config, kind: str, text: Config, model: Model) -> Vision | None:
    """Return the vision tower and projector of a multimodal config, where napkin knows them, and say so. `kind`: the
    model_type that the file states."""
    config, kind = _with_block(config, kind, *SEEN_IN)
    if not any(block in config.fields for block in SEEN_IN):
        return None
    from napkin.architectures.vision import vision_of
    from napkin.architectures.vision.models import SIGHTS

    if kind == text.model_type and kind not in SIGHTS:
        return None

    found = vision_of(config, kind, model.hidden)
    if found is not None:
        told = f"{ALONE} {printable(kind, 40)} is counted"
        config.notes[:] = [note for note in config.notes if not note.startswith(told)]
        config.notes.append(
            f"totals are those of the language model of {printable(kind, 40)}; its vision tower and projector are in "
            "params/vision and flops/vision, and memory counts them in"
            + (f"; {NO_AUDIO}" if _may_hear(config, kind) else "")
        )
    return found


def _with_tower(config: Config, kind: str, model: Model) -> Model:
    """Return the model with the tensors of the vision tower of a multimodal config, where napkin knows no more of it,
    and say so."""
    if wrapper_of(kind) is None:
        return model
    from napkin.architectures.vision.held import with_tower

    found = with_tower(model, config, kind)
    if found is None:
        return model
    told = f"{ALONE} {printable(kind, 40)} is counted"
    config.notes[:] = [note for note in config.notes if not note.startswith(told)]
    config.notes.append(
        f"totals are those of the language model of {printable(kind, 40)}; the parameters of its vision tower are in "
        "params/vision, and memory counts them in, not what images take"
    )
    return found


def _may_hear(config: Config, kind: str) -> bool:
    """Return whether the class of a config has an audio encoder."""
    if config.fields.get("audio_config") is not None:
        return True
    if "audio_config" not in config.fields:
        return False
    from napkin.architectures.audio import DEAF_WHERE_NULL

    return kind not in DEAF_WHERE_NULL


def _with_block(config: Config, kind: str, *blocks: str) -> tuple[Config, str]:
    """Return the outermost configuration that has one of these blocks, or the innermost one, and its model_type."""
    while not any(block in config.fields for block in blocks) and config.children:
        config = config.children[0]  # a model of more senses holds one of images and text, an encoder may see
        kind = config.model_type
    return config, kind


def _heard(config: Config, kind: str, model: Model) -> Model:
    """Return the model with the audio encoder of a multimodal config, where napkin knows it, and say so. `kind`: the
    model_type that the file states."""
    config, kind = _with_block(config, kind, *HEARD_IN)
    if not any(block in config.fields for block in HEARD_IN):
        return model
    from napkin.architectures.audio import with_audio

    heard = with_audio(model, config, kind)
    if heard is None:
        return model
    found, sees = heard
    told = f"{ALONE} {printable(kind, 40)}"
    alone = any(note.startswith(told) for note in config.notes)
    config.notes[:] = [note.removesuffix(f"; {NO_AUDIO}") for note in config.notes if not note.startswith(told)]
    if alone and sees:
        config.notes.append(f"{told} and its audio encoder are counted, its vision tower is not")
    config.notes.append("an audio encoder: its parameters are in params/audio, and memory counts its states in")
    return found


def architecture_of(config: Config) -> Architecture:
    """Return the record of a config's model_type. Refused (3): one that napkin does not know."""
    name = config.model_type
    if name not in MODULES:
        place = config.document.place(*config.prefix, "model_type")
        if name in WRAPPERS:
            raise Refused(
                f"{place}: {printable(name, 60)} holds a language model and is none", "write the language model's own"
            )
        if registered(name):  # no misspelling of another
            raise Refused(
                f"{place}: napkin does not read {printable(name, 60)!r}, a model type of transformers",
                "docs/adding-an-architecture.md shows how to add it; --params takes a number of parameters alone",
            )
        raise Refused(
            f"{place}: napkin does not know {printable(name, 60)!r}",
            did_you_mean(name, (*MODULES, *WRAPPERS)) or "docs/adding-an-architecture.md shows how to add it",
        )
    return _record(name)


def implementation_of(implementation: str, model_type: str) -> Implementation:
    """Return how an implementation runs a model_type: `hf` differs from one to the next, frameworks do not."""
    if implementation != HUGGING_FACE:
        return FRAMEWORKS[implementation]
    wrapper = wrapper_of(model_type)
    if wrapper is not None:
        return wrapper.implementation or HF
    return _record(model_type).implementation if model_type in MODULES else HF


def _record(model_type: str) -> Architecture:
    records: tuple[Architecture, ...] = import_module(f"{__name__}.families.{MODULES[model_type]}").ARCHITECTURES
    return next(one for one in records if one.model_type == model_type)


def wrapper_of(model_type: str) -> Wrapper | None:
    """Return the record of a multimodal model_type; None for any other."""
    if model_type not in WRAPPERS:
        return None
    return next(one for one in _record(WRAPPERS[model_type]).wrappers if one.model_type == model_type)


def text_model(config: Config) -> Config:
    """Return the language model's block of a multimodal config, with what the outer level says about it; else the
    config itself."""
    stored = config.mapping(QUANTIZED, required=False)
    if stored is not None:
        method = stored.get("quant_method")
        how = f", stored as {printable(method, 40)}" if isinstance(method, str) else ""
        config.notes.append(f"a quantized checkpoint{how}: its logical parameters are counted")
    wrapper = wrapper_of(config.model_type)
    if wrapper is None and (config.model_type in MODULES or not config.has("text_config")):
        return config
    name = printable(config.model_type, 40)
    if wrapper is None and config.raw("auto_map", required=False) is not None and not registered(config.model_type):
        raise config.refuse("model_type", f"{name} runs its own code, which napkin does not know")
    if wrapper is not None and wrapper.refused:
        raise config.refuse("model_type", f"{name} {wrapper.refused}")
    if wrapper is not None and wrapper.within[0] and config.has(wrapper.within[0]):
        return text_model(_held_within(config, wrapper))
    config.notes.append(f"{ALONE} {name} is counted, vision and other modalities are not")
    blocks = (field for field, value in config.fields.items() if field.endswith("_config") and isinstance(value, dict))
    config.ignore(*(field for field in blocks if field not in ("text_config", _PREDICTION)), "architectures")
    config.ignore(*(field for field in config.fields if _other_modality(field)))
    if wrapper is not None:
        config.ignore(*wrapper.ignored)
    if wrapper is not None and wrapper.flat and not config.has("text_config"):
        from napkin.architectures.tying import settle_tie

        kind, config.model_type = config.model_type, WRAPPERS[config.model_type]
        config.defaults, config.aliases = class_facts(config.model_type)
        settle_tie(config, config, kind)
        return config
    return _text_block(config, wrapper)


def _held_within(config: Config, wrapper: Wrapper) -> Config:
    """Return the block of the model of images and text that a model of more senses holds."""
    config.ignore(*(other for other in config.fields if other.endswith("_config") or "talker" in other))
    config.ignore("architectures", *wrapper.ignored)
    config.ignore(*(other for other in config.fields if _other_modality(other)))
    held = config.nested(*wrapper.within)
    _ignore_repeated(config, held)
    if held.model_type in MODULES:
        name = printable(config.model_type, 40)
        config.notes.append(f"{ALONE} {name} is counted, vision and other modalities are not")
    return held


def _text_block(config: Config, wrapper: Wrapper | None) -> Config:
    """Return the text_config of a multimodal config, with what the outer level says about it."""
    from napkin.architectures.tying import settle_tie

    if config.raw(_PREDICTION, required=False) is not None:
        config.notes.append("multi-token prediction layers of the checkpoint not counted")
    former = wrapper.former if wrapper is not None else ""
    text = config.nested("text_config", WRAPPERS.get(config.model_type), former)
    if wrapper is not None:
        text.defaults = {**text.defaults, **wrapper.text}
    if wrapper is not None and wrapper.unread:
        text.fields = {**text.fields, wrapper.unread: None}
    vision = config.raw("vision_config", required=False)
    if wrapper is not None and wrapper.sees and isinstance(vision, dict) and "hidden_size" in vision:
        text.restate(wrapper.sees, vision["hidden_size"])
    settle_tie(config, text, config.model_type)
    _ignore_repeated(config, text)
    return text


def _ignore_repeated(config: Config, block: Config) -> None:
    """Take fields of the outer level that repeat the block's values as read."""
    config.ignore(*(f for f, value in config.fields.items() if f in block.fields and block.fields[f] == value))


def _other_modality(field: str) -> bool:
    """Return whether a field describes images, sound or what joins them to text."""
    return any(field == word or field.startswith(f"{word}_") for word in _OTHER_MODALITIES)
