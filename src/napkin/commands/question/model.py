"""The model of a question: MODEL, the config fields to ignore, and the defaults of its config."""

from __future__ import annotations

from napkin.architectures import build, implementation_of
from napkin.commands.inputs import Inputs
from napkin.commands.question.named import named_config
from napkin.commands.question.tasks import read_as_trained
from napkin.errors import NapkinError, Refused, did_you_mean
from napkin.inputs.class_facts import SIZES
from napkin.inputs.load import printable
from napkin.inputs.model import CLASS_DEFAULT, LARGEST_DIMENSION, PRESET, Config
from napkin.operations.implementations import HUGGING_FACE
from napkin.operations.model import Model
from napkin.operations.queries import heard_operations, tower_tensors
from napkin.options.training import FROZEN, TASKED
from napkin.term import Term
from napkin.training.tasks import Passes

DEFAULT_SEQ = 4096
COUNTS = ("params", "flops")
"""Commands that count a complete model, independent of the layout."""


def read_model(inputs: Inputs) -> Model:
    """Return the model; class defaults that its config relies on are recorded among the inputs."""
    config = _read_config(inputs)
    ignorable = inputs.texts("assume-ignorable")
    strict = inputs.flag("strict-config")
    config, model = _built(config, tuple(ignorable), strict)
    if strict:
        inputs.note(f"--strict-config: {config.model_type} reads every field of the config, or it changes no count")
    for field in ignorable:
        if field not in config.assumed:
            raise NapkinError(
                f"--assume-ignorable {printable(field, 60)} has no effect here: {config.name} has no such field, or "
                "napkin knows what it changes",
                "leave it out",
            )
    _record_defaults(inputs, config)
    for note in model.notes:
        inputs.note(note)
    if model.missing:
        inputs.assume(model.missing)
    if model.extra and not ("mtp" in inputs and inputs.flag("mtp")):
        modules = f"{len(model.extra)} multi-token prediction module{'s' * (len(model.extra) > 1)}"
        how = " (--mtp counts them)" if "mtp" in inputs.command.names else ""
        inputs.note(f"{modules} of the checkpoint not counted{how}")
    if ignorable:
        inputs.note(f"config fields ignored: {', '.join(ignorable)}")
    model = read_as_trained(inputs, _read_predicting(inputs, _read_padded(inputs, model)))
    return _read_adapted(inputs, _read_tower(inputs, model))


def _read_tower(inputs: Inputs, model: Model) -> Model:
    """Return the model without gradients of a tower that is known by its tensors, where --freeze names it, or
    --freeze-layers freezes what is before the layers."""
    if "freeze" not in inputs.command.names or not tower_tensors(model):
        return model
    layers, part = inputs.integer_or_none("freeze-layers"), inputs.text_or_none("freeze")
    if layers is None and not part:
        return model
    from napkin.operations.trained import PROJECTOR, with_frozen_tower

    return with_frozen_tower(model, part if part and layers is None else PROJECTOR)


def _read_predicting(inputs: Inputs, model: Model) -> Model:
    """Return the model as a step trains it: with its multi-token prediction modules where --mtp asks for them."""
    if inputs.command.name in COUNTS or "mtp" not in inputs or not read_mtp(inputs, model):
        return model
    return model.predicting


def _read_adapted(inputs: Inputs, model: Model) -> Model:
    """Return the model with adapters on the layers, and of the ranks, that --lora-targets names, where it names any."""
    named = str(inputs.peek("lora-targets")) if "lora-targets" in inputs else ""
    if "@" not in named and "=" not in named:
        return model
    from napkin.operations.adapters.ranks import ranks_among, with_ranks
    from napkin.operations.adapters.targets import adapted_layers
    from napkin.operations.trained import with_adapted_layers

    ranks = ranks_among(inputs.texts("lora-targets"))
    if ranks:
        model = with_ranks(model, ranks, implementation_of(HUGGING_FACE, model.family))
    layers = adapted_layers(inputs.texts("lora-targets"), model)
    if layers is None:
        return model
    inputs.note(f"adapters on {len(layers)} of {model.stacks[0].depth} layers: no gradient goes past the first of them")
    return with_adapted_layers(model, layers)


_BUILT: list[tuple[tuple[object, ...], Config, Model]] = []
"""The presets built last, by how they were built: a command that runs many questions builds its model once."""
KEPT_MODELS = 4


def _built(config: Config, ignorable: tuple[str, ...], strict: bool) -> tuple[Config, Model]:
    """Return the model of a config and the config that was read for it; a preset comes from the cache."""
    asked = (config.name, config.model_type, config.unlisted, tuple(config.notes), ignorable, strict)
    for known, read, model in _BUILT:
        if known == asked and config.origin == PRESET and read.fields == config.fields:
            return read, model
    model = build(config, ignorable, strict)
    if config.origin == PRESET:
        _BUILT[:] = [*_BUILT[1 - KEPT_MODELS :], (asked, config, model)]
    return config, model


def _read_config(inputs: Inputs) -> Config:
    """Return the config of MODEL: a file's, a preset's, or that of a Llama-shaped model of the size given."""
    text = inputs.text("model", "which model?")
    config, described = named_config(text)
    if described:
        inputs.assume(described)
    inputs.shown["model"].where = config.document.name
    return config


def _read_padded(inputs: Inputs, model: Model) -> Model:
    """Return the model with its vocabulary padded as in training."""
    multiple = inputs.integer_or_none("vocab-multiple")
    if multiple is None:
        if inputs.command.name in COUNTS:
            inputs.depends(("tp",), False, "only a padded vocabulary depends on it", "--vocab-multiple 128")
        return model
    from napkin.architectures.vocabulary import padded

    ranks = inputs.integer_or_none("tp") or 1
    found = padded(model, multiple * ranks)
    if found.vocabulary > LARGEST_DIMENSION:
        raise NapkinError(
            f"--vocab-multiple {multiple:,}: the vocabulary would be {found.vocabulary:,}", "for example 128"
        )
    more = found.vocabulary - model.vocabulary
    if more:
        inputs.note(f"vocabulary: {model.vocabulary:,} padded by {more:,} to {found.vocabulary:,}")
    return found


def _record_defaults(inputs: Inputs, config: Config) -> None:
    """Record what the config leaves to class defaults."""
    for block in (config, *config.children):
        for field, (value, origin) in block.origins.items():
            if origin == CLASS_DEFAULT and value is not None:
                inputs.record(field.replace("_", "-"), value, origin)
                if field in SIZES:
                    inputs.assume(f"{field} {value:,}, {printable(block.model_type, 40)}'s default")


def read_sequence(inputs: Inputs, model: Model) -> int:
    """Return the tokens in a sequence: --seq, else 4096 or the model's maximum if that is smaller."""
    if not inputs.has("seq"):
        documents = inputs.integers("document-lengths")
        length = sum(documents) if documents else _runnable(min(DEFAULT_SEQ, model.max_length or DEFAULT_SEQ), model)
        inputs.default("seq", str(length))
    seq = inputs.integer("seq")
    if seq != _runnable(seq, model):
        least = f", of at least {model.least:,}" if model.least > model.unit else ""
        said = f"--seq {seq:,}: the class of {model.family} only runs sequences of a multiple of {model.unit:,} tokens"
        raise NapkinError(f"{said}{least}", f"--seq {_runnable(seq, model)}")
    if model.max_length is not None and seq > model.max_length:
        inputs.note(f"--seq {seq:,} is beyond the model's {model.max_length:,} positions")
    return seq


def _runnable(length: int, model: Model) -> int:
    """Return the nearest length of a sequence, downwards if there is one, that a model's class runs."""
    return max(length // model.unit, -(-model.least // model.unit)) * model.unit


def read_target(inputs: Inputs, model: Model) -> int | None:
    """Return the tokens of the decoder's sequence if they differ from the encoder's: --target-seq, or the number of its
    positions if that is smaller; else None."""
    second = len(model.stacks) > 1
    inputs.depends(("target-seq",), second, f"{model.name} has no second stack")
    if not second:
        return None
    most = model.max_target
    if most is not None and not inputs.has("target-seq") and inputs.integer("seq") > most:
        inputs.default("target-seq", str(most))
    target = inputs.integer_or_none("target-seq")
    if target is not None and most is not None and target > most:
        inputs.note(f"--target-seq {target:,} is beyond the decoder's {most:,} positions")
    return target


def read_mtp(inputs: Inputs, model: Model) -> bool:
    """Return whether multi-token prediction modules count too."""
    none = f"{model.name} has no multi-token prediction modules"
    if not model.extra and "mtp" in inputs.given and inputs.flag("mtp"):
        from napkin.inputs.launch.stated import FROM_FILE

        stated = inputs.given["mtp"]
        if stated.origin == FROM_FILE:
            raise Refused(f"{stated.where} trains them, and {none} that napkin knows", "--no-mtp: without them")
    inputs.depends(("mtp",), bool(model.extra), none)
    return inputs.flag("mtp")


def read_documents(inputs: Inputs, seq: int) -> tuple[tuple[int, int], ...]:
    """Return the documents packed into each sequence, as (length, count); empty if each sequence is one document."""
    from napkin.counting.flops import equal_documents, packed

    given, mean = inputs.integers("document-lengths"), inputs.integer_or_none("mean-document-length")
    if given and mean is not None:
        raise NapkinError("--document-lengths and --mean-document-length cannot be combined", "choose one")
    if given:
        if sum(given) != seq:
            raise NapkinError(
                f"--document-lengths: {sum(given):,} tokens do not fill a sequence of {seq:,}",
                "pad with a last document, or leave --seq out",
            )
        return packed(given)
    return equal_documents(seq, mean) if mean is not None else ()


def read_indexer_loss(inputs: Inputs, model: Model) -> bool:
    """Return whether a loss trains the indexers of sparse attention (--indexer-loss)."""
    from napkin.counting.flops import runs_backward, works

    if not inputs.flag("indexer-loss"):
        return False
    if 0 not in runs_backward(model, works(model, 1, 1)):
        raise NapkinError(f"--indexer-loss: {model.name} has no indexer of sparse attention", "leave it out")
    return True


def read_images(inputs: Inputs, model: Model) -> tuple[int, int]:
    """Return the images in each sequence, and the tokens of one image in the language model (0: as the config says)."""
    images, tokens = inputs.integer_or_none("images") or 0, inputs.integer_or_none("image-tokens") or 0
    if not images and not tokens:
        return 0, 0
    option = "--images" if images else "--image-tokens"
    if model.vision is None:
        raise NapkinError(
            f"{option}: {model.name} has no vision tower that napkin knows",
            "leave it out",
        )
    if model.vision.across:
        raise Refused(
            f"{option}: layers of {model.name} attend to images; they are counted as "
            "parameters, and a step on text alone",
            "leave it out: flops MODEL has what an image takes in the vision tower",
        )
    if model.vision.queries:
        raise Refused(
            f"{option}: learned queries of {model.name} attend to patches; what a step keeps of them is not counted",
            "leave it out: flops MODEL has what an image takes, params MODEL its parameters",
        )
    lengths = model.vision.lengths(tokens)
    if lengths is None:
        raise NapkinError("--images: an image's tokens depend on its size", "--image-tokens says how many: 1024")
    if not tokens:
        inputs.default("image-tokens", str(lengths[2]))
    return images, tokens


def read_images_of_sequence(inputs: Inputs, model: Model, seq: int) -> tuple[int, int]:
    """Return the same for sequences of `seq` tokens, which hold the images' tokens."""
    images, tokens = read_images(inputs, model)
    if heard_operations(model):
        inputs.assume("no audio")
    if model.vision is None or not images:
        inputs.depends(("image-tokens",), False, "there are no images", "--images 1")
        if model.vision is not None or tower_tensors(model):
            inputs.assume("no images")
        return 0, 0
    if len(model.stacks) > 1:
        raise Refused(
            f"--images: how a step of {model.name} runs images, which its encoder reads, is not modeled",
            "leave it out: flops MODEL --images has what they take",
        )
    each = (model.vision.lengths(tokens) or (0, 0, 0))[2]
    if images * each > seq:
        raise NapkinError(
            f"--images {images:,}: {each:,} tokens each do not fit into a sequence of {seq:,} tokens",
            f"--seq {images * each:,} or more",
        )
    return images, tokens


def parse_convention(name: str) -> str:
    """Return a FLOP convention by name."""
    from napkin.counting.conventions import NAMES

    word = name.strip().lower().replace("-", "_")
    if word not in NAMES:
        raise NapkinError(
            f"--flops: no convention is called {name[:40]!r}", did_you_mean(word, NAMES) or ", ".join(NAMES)
        )
    return word


def read_per_token(inputs: Inputs, model: Model) -> tuple[Term, Term, Term]:
    """Return the FLOPs per token in the chosen convention (--flops, else 6nd, or the count if something is frozen), as
    counted, and of the pairs of tokens that masks allow."""
    from napkin.counting import conventions, flops

    passes = Passes(model)
    if any(option in inputs for option in (*FROZEN, *TASKED)):
        from napkin.commands.question.frozen import read_passes

        passes = read_passes(inputs, model)
    name = parse_convention(inputs.text("flops", default="6nd" if passes == Passes(model) else "torch"))
    seq, target = read_sequence(inputs, model), read_target(inputs, model)

    def over(one: Model, times: int) -> flops.Works:
        return flops.works(one, times, seq, target=target)

    counted = conventions.counted_per_token(passes, over)
    named = counted if name == "torch" else conventions.per_token(model, over(model, 1), name)
    return named, counted, conventions.allowed_per_token(passes, over)
