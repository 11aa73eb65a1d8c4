"""Which parts of a model are trained, from the options: frozen layers and parts, adapters, the format of frozen
weights."""

from __future__ import annotations

from napkin.architectures import implementation_of
from napkin.commands.inputs import Inputs
from napkin.commands.question.adapters import read_kind, read_whether_adapted
from napkin.commands.question.software import read_framework
from napkin.commands.question.tasks import read_forwards, read_trainer
from napkin.errors import NapkinError, Refused, did_you_mean
from napkin.formats.table import NORMAL_FLOATS
from napkin.operations.frameworks import IMPLEMENTATIONS
from napkin.operations.frozen import Frozen
from napkin.operations.implementations import HUGGING_FACE, Implementation
from napkin.operations.model import Model
from napkin.operations.queries import tower_tensors
from napkin.options.training import FROZEN, FROZEN_FORMATS, UNQUANTIZED
from napkin.record import replace
from napkin.training.frameworks import FRAMEWORKS, PLAIN
from napkin.training.recomputation import Recompute
from napkin.training.tasks import Passes, passes_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from napkin.operations.tuning import Tuning
    from napkin.training.trainer import Trainer


def read_implementation(inputs: Inputs) -> str:
    """Return the name of the model implementation."""
    word = inputs.text("implementation").strip().lower()
    if word not in IMPLEMENTATIONS:
        raise NapkinError(
            f"--implementation: {word[:60]!r} is not known",
            did_you_mean(word, IMPLEMENTATIONS) or f"one of {', '.join(IMPLEMENTATIONS)}",
        )
    return word


def read_quantized(inputs: Inputs) -> str:
    """Return the format of the frozen weights, "" if they are not quantized."""
    stored = inputs.text_or_none("quantized")
    return "" if stored in (None, UNQUANTIZED) else str(stored)


TRAINED_ON = ("gptq", "awq", "bitsandbytes")
"""Quantization methods whose checkpoints peft trains adapters on without converting them (peft 0.21.2, tuners/lora)."""


def read_stored_format(inputs: Inputs, model: Model) -> None:
    """Take a quantized checkpoint's format as the default of --quantized where adapters are trained on it."""
    stored = model.checkpoint
    takes = "quantized" in inputs.command.names and "lora-rank" in inputs and "quantized" not in inputs
    if stored is None or not takes or stored.method not in TRAINED_ON or stored.format not in FROZEN_FORMATS:
        return
    inputs.redefault("quantized", stored.format)
    inputs.assume(stored.assumed)
    apart = ", less its exceptions" if stored.kept else ""
    inputs.note(f"frozen weights in {stored.format}, as the checkpoint stores them{apart}; --quantized none: 16 bits")


def read_frozen(inputs: Inputs, model: Model, implementation: Implementation) -> Frozen:
    """Return what is frozen, and the implementation as it runs the adapters."""
    layers, part = inputs.integer_or_none("freeze-layers"), inputs.text_or_none("freeze") or ""
    head = inputs.flag("freeze-head")
    if layers is not None:
        _check_freezable(inputs, model, layers)
    if part and model.vision is None and not tower_tensors(model):
        raise NapkinError(f"--freeze: {model.name} has no vision tower that napkin knows", "--freeze-layers")
    if head:
        _check_head(inputs, model, layers)
    return Frozen(_read_adapter(inputs, model, implementation), layers, part, head=head)


def read_trained(inputs: Inputs, model: Model, again: Recompute | None = None) -> Model:
    """Return a model as it is trained, for commands without a layout; the model itself if nothing is frozen. again:
    recomputation, which lets gradients pass through frozen layers."""
    if not any(name in inputs for name in FROZEN):
        return model
    read_stored_format(inputs, model)
    from napkin.operations.trained import as_trained
    from napkin.training.setup import wakes

    if "framework" in inputs.command.names:
        read_framework(inputs)  # whose implementation is the default
    word = read_implementation(inputs) if inputs.has("implementation") else HUGGING_FACE
    frozen = read_frozen(inputs, model, implementation_of(word, model.family))
    woken = again is not None and wakes(frozen.layers, again, frozen.implementation)
    return as_trained(model, replace(frozen, wakes=woken))


def read_passes(inputs: Inputs, model: Model) -> Passes:
    """Return the passes of a micro-batch, for commands without a layout."""
    return passes_of(read_trained(inputs, model), read_forwards(inputs, PLAIN))


def _check_freezable(inputs: Inputs, model: Model, frozen: int) -> None:
    """Raise an error if LoRA already freezes all layers, or if the model has no unique first layers; note that a tied
    head is frozen with the embedding."""
    from napkin.operations.queries import head_of

    depth = model.stacks[-1].depth
    if frozen > depth:
        raise NapkinError(f"--freeze-layers {frozen:,}: {model.name} has {depth:,} layers", f"at most {depth:,}")
    if read_whether_adapted(inputs):
        option = "lora-rank" if inputs.has("lora-rank") else "adapter"
        kind = "LoRA freezes" if option == "lora-rank" else f"{inputs.text(option)} freezes"
        raise NapkinError(f"--freeze-layers and --{option} cannot be combined", f"{kind} every layer")
    if len(model.stacks) > 1:
        raise Refused("--freeze-layers: freezing layers of a model with an encoder is not modeled", "--lora-rank")
    head = head_of(model)
    if model.tied and (head is None or head.linear() is None):
        raise Refused(
            f"--freeze-layers: {model.name}: its head holds the embedding and more, which is not modeled", "--lora-rank"
        )
    if model.tied:
        inputs.note("the embedding is frozen with the first layers, and so is the head, which is the same matrix")


def _check_head(inputs: Inputs, model: Model, layers: int | None) -> None:
    """Raise an error if adapters freeze the head already, if nothing else is trained, or if the head is the embedding,
    which is trained."""
    if read_whether_adapted(inputs):
        raise NapkinError("--freeze-head has no effect next to adapters", "they freeze the head; --modules-to-save")
    if layers == model.stacks[-1].depth:
        raise NapkinError(f"--freeze-layers {layers:,} and --freeze-head leave nothing to train", "fewer layers")
    if model.tied and layers is None:
        raise Refused(f"--freeze-head: {model.name}: its head is the embedding", "--freeze-layers 0 freezes both")


def _read_adapter(inputs: Inputs, model: Model, implementation: Implementation) -> Implementation:
    """Return the implementation, with LoRA on frozen weights if --lora-rank is given."""
    stored = read_quantized(inputs)
    method, rank = read_kind(inputs, stored)
    if rank is None:
        return implementation
    trainer = read_trainer(inputs)
    if trainer.nested and stored == "nf4":
        inputs.note(f"{trainer.name} quantizes the scales of 4-bit weights too by default: --quantized nf4-dq")
    from napkin.operations.adapters.checks import check_layered, check_parameters, check_runs, saved_modules
    from napkin.operations.adapters.targets import adapted_layers, modules_among, resolved

    library = FRAMEWORKS.get(implementation.name, PLAIN).quantizer
    experts = _read_quantized_experts(inputs, model, stored, trainer)
    dropout = float(inputs.number_or_none("lora-dropout" if inputs.has("lora-dropout") else "dropout") or 0.0)
    weighted = inputs.text("adapter") == "dora"
    if weighted:
        inputs.note("DoRA: the norm of each weight takes time and is not part of the FLOPs per token")
    names = inputs.texts("modules-to-save")
    if names and not implementation.of_transformers:
        raise Refused(
            f"--modules-to-save: not modeled in {implementation.name}", "--implementation hf, or leave it out"
        )
    saved = saved_modules(names, model)
    apart = _read_exceptions(inputs, model) if stored else ()
    from napkin.operations.tuning import Tuning

    tuning = Tuning(method, rank, dropout, (), stored, library, experts, magnitude=weighted, saved=saved, apart=apart)
    if not tuning.targeted:
        return replace(implementation, tuning=_read_virtual_tokens(inputs, model, tuning, implementation))
    named = inputs.texts("lora-targets")
    targets = modules_among(named)
    if "lora-targets" in inputs:
        targets = _read_found(inputs, targets, model, implementation)
    tuning = resolved(tuning, targets, model, implementation)
    if adapted_layers(named, model) is not None:
        check_layered(tuning, model, implementation)
    tuning = _read_ranks(inputs, named, model, replace(implementation, tuning=tuning))
    if implementation.of_transformers and method == "lora":
        check_parameters(tuning)
        check_runs(tuning, model, implementation)
    if tuning.quantizer.peft:
        _check_counted(inputs, model.family, targets)
    return replace(implementation, tuning=tuning)


def _read_virtual_tokens(inputs: Inputs, model: Model, tuning: Tuning, implementation: Implementation) -> Tuning:
    """Return the virtual tokens of prompt, prefix or p-tuning. Refused where they are not modeled."""
    from napkin.operations.adapters.virtual import VIRTUAL_TOKENS

    kind = VIRTUAL_TOKENS[tuning.method]
    if not implementation.of_transformers:
        raise Refused(f"--adapter {tuning.method}: not modeled in {implementation.name}", "--implementation hf")
    if inputs.has("lora-targets"):
        raise NapkinError(f"--lora-targets: --adapter {tuning.method} adapts no layer's weights", "leave it out")
    kind.check(model)
    seq = inputs.integer_or_none("seq") if "seq" in inputs and inputs.has("seq") else None
    if kind.embedded and seq is not None and tuning.rank >= seq:
        raise NapkinError(f"--virtual-tokens {tuning.rank:,}: --seq {seq:,} includes them", "a longer --seq")
    if kind.embedded:
        inputs.note(f"{tuning.rank:,} tokens of --seq are virtual: peft puts them before those of the text")
    return tuning


def _read_ranks(inputs: Inputs, named: tuple[str, ...], model: Model, implementation: Implementation) -> Tuning:
    """Return the adapter of an implementation with the ranks of modules that are in no layer; the layers have theirs
    (`read_model`)."""
    tuning = implementation.tuning
    assert tuning is not None
    if not any("=" in name for name in named):
        return tuning
    from napkin.inputs.launch.stated import FROM_FILE
    from napkin.operations.adapters.ranks import check_ranks, ranks_among, ranks_outside

    ranks = ranks_among(named)
    shown = f"--lora-targets {ranks[0][0][:40]}={ranks[0][1]}"
    if not implementation.of_transformers or tuning.method != "lora":
        own = not implementation.of_transformers
        of = f"--implementation {implementation.name}" if own else f"--adapter {tuning.method}"
        raise Refused(f"{shown}: a rank for each module is not modeled with {of}", "one --lora-rank for all")
    unused = check_ranks(model, ranks, implementation)
    if unused and inputs.origin("lora-targets") != FROM_FILE:
        raise NapkinError(
            f"--lora-targets {unused[0][:40]}={dict(ranks)[unused[0]]}: no adapter is on such a module",
            "name modules that are targets, as the class names them: q_proj,v_proj,v_proj=8",
        )
    if unused:
        inputs.note(f"LoRA: no adapter is on {', '.join(unused)[:200]}, whose ranks peft ignores")
    return replace(tuning, ranks=ranks_outside(model, ranks, implementation))


def _read_found(
    inputs: Inputs, targets: tuple[str, ...], model: Model, implementation: Implementation
) -> tuple[str, ...]:
    """Return the targets, those of a launch file without the ones that the model lacks; a note names these."""
    from napkin.inputs.launch.stated import FROM_FILE
    from napkin.operations.adapters.targets import lacking_targets

    if inputs.origin("lora-targets") != FROM_FILE:
        return targets
    lacking = lacking_targets(targets, model, implementation)
    if lacking:
        inputs.note(f"LoRA: {model.name} has no {', '.join(lacking)[:200]}, which peft ignores")
    return tuple(name for name in targets if name not in lacking)


def _read_exceptions(inputs: Inputs, model: Model) -> tuple[tuple[str, float], ...]:
    """Return the modules that a checkpoint keeps in 16 bits if the weights are stored as its file has them."""
    if "quantized" in inputs or model.checkpoint is None or not model.checkpoint.kept:
        return ()
    from napkin.footprint.stored_modules import narrow_shares  # patterns are slow to load

    return narrow_shares(model, model.checkpoint.kept)


def _check_counted(inputs: Inputs, family: str, targets: tuple[str, ...]) -> None:
    """Raise an error if peft is known to create other adapters than napkin counts; note a small difference, or a model
    type that was never compared."""
    from napkin.operations.adapters.checks import DETAIL, compared, difference, equal_targets

    share = difference(family, targets)
    if share > DETAIL:
        equal = [name for name in equal_targets(family) if not difference(family, (name,))]
        raise Refused(
            f"--lora-rank: {family}: for these targets napkin's adapters are not peft's: their parameters differ by up "
            f"to {share:.0%}",
            f"--lora-targets with some of {', '.join(equal[:8])}" if equal else "train all of it, or another model",
        )
    if share:
        inputs.assume("adapters about as peft makes them")
        inputs.note(f"LoRA on {family}: the adapters' parameters differed by up to {share:.1%} from peft's")
    elif not compared(family):
        inputs.assume("adapters not compared with peft")
        inputs.note(f"LoRA on {family}: adapters follow from its operations; peft has not counted them for comparison")


def _read_quantized_experts(inputs: Inputs, model: Model, stored: str, trainer: Trainer) -> bool:
    """Return whether experts are quantized with the linear layers (--quantize-experts)."""
    asked = inputs.flag("quantize-experts")
    if asked and not (stored and model.experts):
        why = f"{model.name} has no experts" if stored else "nothing is quantized"
        raise NapkinError(f"--quantize-experts: {why}", "leave it out" if stored else "--quantized nf4")
    if not (stored and model.experts) or asked:
        return asked
    if trainer.experts and stored in NORMAL_FLOATS:
        inputs.assume("experts quantized")
        inputs.note(f"{trainer.name} quantizes experts that are one tensor as it does linear layers")
        return True
    inputs.assume("experts not quantized")
    inputs.note(
        "transformers 5 leaves experts that are one tensor in 16 bits; they are quantized in transformers 4, where "
        "they are linear layers, or while loading: --quantize-experts"
    )
    return False
