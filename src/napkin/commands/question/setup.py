"""The setup of a training step, from the options: layout, precision, optimizer, implementation, trained parts."""

from __future__ import annotations

from napkin.architectures import implementation_of
from napkin.commands.inputs import Inputs
from napkin.commands.question.adapters import read_whether_adapted
from napkin.commands.question.divisions import check_layout
from napkin.commands.question.frozen import read_frozen, read_implementation, read_quantized, read_stored_format
from napkin.commands.question.layout import check_divides, read_context, read_layout
from napkin.commands.question.machine import read_generation, read_gpus, read_usual_format, read_usual_policy
from napkin.commands.question.software import read_framework, read_kernels, read_named_trainer
from napkin.commands.question.tasks import read_forwards, read_loss, read_micro_batches, read_sampled, read_task
from napkin.elementwise import Flag, Number, is_array
from napkin.errors import NapkinError, Refused
from napkin.evidence.intervals.margins import Asked, widths_of
from napkin.operations.implementations import ALWAYS, EFFICIENT, FLASH, FLASH_2, Implementation
from napkin.operations.model import Model
from napkin.operations.queries import undivided
from napkin.operations.recomputed_parts import parts_of
from napkin.options.layout import EXPERT_LOAD
from napkin.options.training import EXPERT_ACTIVATION, LATENT_UP
from napkin.record import replace
from napkin.training import optimizer_names
from napkin.training.framework import Framework
from napkin.training.frameworks import FRAMEWORKS
from napkin.training.layout import Layout
from napkin.training.optimizer import Optimizer
from napkin.training.precision import Precision, precision
from napkin.training.recomputation import Recompute
from napkin.training.setup import Setup, keeps_adapters
from napkin.training.tasks import PRETRAIN, SFT

NEEDED = {EXPERT_ACTIVATION: "no experts", LATENT_UP: "no latent attention"}
"""Modules without which Megatron-core does not start (transformer_config.py, __post_init__), and what the model then
lacks."""


def check_parts(inputs: Inputs, framework: Framework, model: Model, recompute: Recompute) -> None:
    """Reject modules that the software does not recompute by name, or that the model cannot have. What no layer has is
    noted: it changes nothing, and files list modules for several models."""
    option = f"--recompute {recompute.word}"
    if set(recompute.apart) - {*framework.recomputes}:
        having = " or ".join(name for name, one in FRAMEWORKS.items() if {*recompute.apart} <= {*one.recomputes})
        raise NapkinError(
            f"{option}: {framework.says} does not recompute modules by name",
            f"--framework {having}, or --recompute selective, operations or full",
        )
    layers = [layer for stack in model.stacks for layer in stack.layers]
    for module in recompute.apart:
        if any(parts_of(layer.operations, (module,)) for layer in layers):
            continue
        if module in NEEDED:
            raise NapkinError(f"{option}: {model.name} has {NEEDED[module]}, so {module} fails", "leave it out")
        inputs.note(f"{option}: no layer of {model.name} has {module} apart, so that it changes nothing")


def read_setup(inputs: Inputs, model: Model) -> Setup:
    """Return everything that the memory and time of a step depend on, except the model and the hardware."""
    read_trainer_recompute(inputs)
    _read_usual_stage(inputs)
    layout = read_layout(inputs, model)
    check_layout(inputs, read_framework(inputs), layout)
    return read_setup_around(inputs, model, layout)


def read_loading(inputs: Inputs, waits: Number | Flag, whole: bool = True) -> None:
    """Refuse where weights wait until ranks divide them if none do. waits: the bytes that do; whole: the answer covers
    more than the steps."""
    if not whole:
        inputs.depends(("loading",), False, "the answer is about the steps, not about what is before them")
    why = "no weights are quantized while they are loaded and divided afterwards"
    inputs.depends(("loading",), whole and bool(waits), why, "--quantized nf4 --zero 3")


def read_trainer_recompute(inputs: Inputs) -> None:
    """Make full recomputation the default if the trainer checkpoints every block by default."""
    trainer, framework = read_named_trainer(inputs), read_framework(inputs)
    if trainer is not None and trainer.recomputes("", bool(read_quantized(inputs)), framework.name):
        inputs.redefault("recompute", "full")


def _read_usual_stage(inputs: Inputs) -> None:
    """Make the ZeRO stage of the framework, as a library runs it, the default with several data-parallel ranks."""
    stage = read_framework(inputs).zero
    read_gpus(inputs)
    read_context(inputs)
    gpus = inputs.integer_or_none("gpus") or (inputs.integer_or_none("dp") or 1) * inputs.integer("cp")
    if stage and gpus > inputs.integer("tp") * inputs.integer("pp"):
        inputs.redefault("zero", str(stage))


def read_setup_around(inputs: Inputs, model: Model, layout: Layout) -> Setup:
    """Return the setup for a given layout."""
    read_stored_format(inputs, model)
    framework = read_framework(inputs)
    policy = _read_policy(inputs, framework)
    if "fp64" in (policy.param, policy.compute):
        raise Refused("--precision: what training in fp64 keeps is not modeled", "fp32, or a 16-bit policy")
    optimizer, form = _read_optimizer_form(inputs, int(layout.tp))
    _note_padding(inputs, model, framework, int(layout.tp))
    policy = _read_formats(inputs, framework, policy)
    implementation = _read_implemented(inputs, model, framework, layout)
    shard, offload = _read_shard(inputs, layout), _read_offload(inputs, layout)
    kernels = read_kernels(inputs, implementation.name, read_task(inputs))
    frozen = read_frozen(inputs, model, read_loss(inputs, implementation, policy, kernels))
    if policy.frozen and not frozen.anything:
        raise NapkinError("--precision: frozen= needs weights that are not trained", "--lora-rank, or --freeze-layers")
    implementation = keeps_adapters(frozen.implementation, policy, framework)
    implementation = implementation if kernels is None else kernels.on(implementation)
    implementation = _read_fused_gradients(inputs, framework, implementation)
    unmasked = kernels is not None and kernels.unmasked
    if implementation.of_transformers and not unmasked and _read_padded(inputs, layout):
        implementation = replace(implementation, kernel_mask=ALWAYS)
    task = read_task(inputs)
    as_pretraining = task is PRETRAIN or (task is SFT and read_named_trainer(inputs) is None)
    asked = Asked(implementation.tuning is not None or not as_pretraining, policy.compute)
    return Setup(
        implementation,
        layout,
        policy,
        optimizer,
        form,
        FLASH if inputs.text("attention") == FLASH_2 else inputs.text("attention"),
        float(inputs.number("dropout")),
        shard,
        inputs.flag("ema"),
        offload,
        framework,
        in_backward=_read_in_backward(inputs, layout),
        frozen=frozen.layers,
        tower=_tower(model, implementation),
        asleep=frozen.part,
        still_head=frozen.head,
        compiled=inputs.flag("compile"),
        task=task,
        forwards=read_micro_batches(inputs, (*read_sampled(inputs, model), *read_forwards(inputs, framework))),
        generation=read_generation(inputs),
        loading=inputs.text_or_none("loading") or "",
        widths=widths_of(framework.name, asked),
    )


def _read_implemented(inputs: Inputs, model: Model, framework: Framework, layout: Layout) -> Implementation:
    """Return the implementation of the model that runs on these ranks, with the framework's changes."""
    word, tp = read_implementation(inputs), int(layout.tp)
    check_parts(inputs, framework, model, layout.recompute)
    implementation = framework.implements(implementation_of(word, model.family), inputs.flag("compile"), tp > 1)
    _check_ranks(model, implementation, tp)
    given = [name for name in EXPERT_LOAD if name in inputs]
    if given and implementation.unrouted:
        why = f"every expert of {model.name} runs every token in the {word} implementation"
        raise NapkinError(f"--{given[0]} has no effect here: {why}", "--implementation megatron")
    return implementation


def _read_padded(inputs: Inputs, layout: Layout) -> bool:
    """Return whether torch's attention gets a mask of padding: samples are not packed, and are all padded to the
    sequence, or several to the longest of their micro-batch."""
    if "packing" not in inputs.command.names or not inputs.has("packing") or inputs.flag("packing"):
        return False
    if "attention" in inputs and inputs.text("attention") != EFFICIENT:  # FlashAttention, if it is named, takes lengths
        return False
    if inputs.has("lengths") and not is_array(layout.sequences) and int(layout.sequences) == 1:
        return False
    inputs.note(
        "padding gives torch's attention a mask, under which its memory-efficient kernel computes all pairs; "
        "FlashAttention-2 takes lengths instead: --attention flash2"
    )
    return True


def _read_fused_gradients(inputs: Inputs, framework: Framework, implementation: Implementation) -> Implementation:
    """Return the implementation with weight gradients as the options have them: apart, or added by the layer's kernel
    to those that are there, where the framework does that."""
    name, adapted = "separate-gradients", implementation.tuning is not None
    fused = implementation.fuses_gradients and not adapted
    why = "gradients of adapters are apart" if adapted else f"gradients of {framework.name} are apart"
    inputs.depends((name,), fused, why, "leave it out" if adapted else "--framework megatron-core")
    return replace(implementation, fuses_gradients=False) if fused and inputs.flag(name) else implementation


def _read_offload(inputs: Inputs, layout: Layout) -> tuple[str, ...]:
    """Return what is kept in host memory: what --offload lists, and what the trainer offloads by itself."""
    offload, trainer = inputs.texts("offload"), read_named_trainer(inputs)
    if trainer is not None and "offload" not in inputs.declined:
        offload = trainer.moves(layout.recompute, offload)
    if "parameters" in offload and int(layout.zero) != 3:
        raise NapkinError(
            "--offload parameters needs --zero 3", "which gathers a layer's parameters for its pass only; --zero 3"
        )
    return offload


def _read_in_backward(inputs: Inputs, layout: Layout) -> bool:
    """Return whether each weight is updated as soon as it has its gradient."""
    found = inputs.flag("optimizer-in-backward")
    if found and int(layout.micro_batches) > 1:
        raise NapkinError(
            f"--optimizer-in-backward takes a step with each micro-batch: this layout has {layout.micro_batches}",
            "a global batch of one micro-batch on each rank, or leave it out",
        )
    return found


def _tower(model: Model, implementation: Implementation) -> Implementation:
    """Return the implementation of the vision tower: its own class, or the framework that runs the language model."""
    if model.vision is None or not implementation.of_transformers:
        return implementation
    return replace(model.vision.implementation, tuning=implementation.tuning)


def _read_shard(inputs: Inputs, layout: Layout) -> int:
    """Return the ranks that divide states under ZeRO; 0: all that hold the same weights."""
    if "dp-shard" not in inputs.command.names:  # `plan` divides over all ranks of each layout
        return 0
    replicas = int(layout.dp * layout.cp)
    divided = bool(layout.zero) and replicas > 1
    inputs.depends(("dp-shard",), divided, "nothing is divided over data-parallel ranks", "--zero 1 to 3")
    if divided:
        inputs.default("dp-shard", str(replicas))
    shard = inputs.integer_or_none("dp-shard") or replicas
    check_divides("dp-shard", shard, replicas, "the ranks that hold the same weights")
    return 0 if shard == replicas else shard


def read_optimizer(inputs: Inputs, form: str | None = None) -> tuple[Optimizer, str | None]:
    """Return the optimizer and its form, from its name or as given. One that torch builds without momentum by default
    (sgd, rmsprop) has it only with --momentum."""
    optimizer, form = optimizer_names.find(inputs.text("optimizer", default="adamw"), form=form)
    with_momentum = optimizer_names.with_momentum(optimizer)
    if with_momentum is not None:
        inputs.default("momentum", "0")
        return with_momentum if inputs.number_or_none("momentum") else optimizer, form
    if inputs.has("momentum"):
        if not optimizer.keeps_momentum:
            raise NapkinError(f"--momentum changes nothing in {optimizer.name}", "leave it out")
        if not inputs.number_or_none("momentum"):
            raise NapkinError(
                f"a contradiction: --momentum 0, and {optimizer.name} has momentum",
                "--optimizer sgd and rmsprop have none unless --momentum is given",
            )
        inputs.note("--momentum: its value changes neither memory nor time, only whether there is one")
    return optimizer, form


def _read_optimizer_form(inputs: Inputs, tp: int) -> tuple[Optimizer, str]:
    """Return the optimizer and the form in which torch runs its step."""
    optimizer, form = read_optimizer(inputs, inputs.text_or_none("optimizer-form"))
    if form is None:
        form = "fused" if "fused" in optimizer.forms else optimizer.forms[0]
        inputs.default("optimizer-form", form)
    if optimizer.paged or optimizer.whole:
        inputs.note(f"{optimizer.name} {optimizer.note}")
    if optimizer.unmodeled:
        inputs.assume(f"{optimizer.name} with {optimizer.unmodeled}")
    if optimizer.whole and tp > 1:
        raise NapkinError(f"--optimizer {optimizer.name} works on whole matrices, which --tp {tp} divides", "--tp 1")
    return optimizer, form


def _read_policy(inputs: Inputs, framework: Framework) -> Precision:
    """Return the precision policy; if none is given, the trainer's in the number format that the accelerator has."""
    trainer = read_named_trainer(inputs)
    if trainer is None:
        inputs.redefault("precision", read_usual_policy(inputs))
        return precision(inputs.text("precision"))
    adapters, quantized = read_whether_adapted(inputs), read_quantized(inputs)
    usual = trainer.usual_policy(framework, adapters, quantized, read_usual_format(inputs))
    if adapters and trainer.loads not in ("", usual.frozen) and usual.frozen and "precision" not in inputs:
        inputs.assume(f"base in {usual.frozen} ({trainer.name}'s own default is {trainer.loads})")
        wide = replace(usual, name="", frozen=trainer.loads).stated
        inputs.note(f"{trainer.name} loads a base in {trainer.loads} if no dtype is stated: --precision {wide}")
    inputs.redefault("precision", usual.stated)
    if adapters and trainer.dropout and "dropout" not in inputs:
        inputs.redefault("lora-dropout", f"{trainer.dropout:g}")
    return precision(inputs.text("precision"))


def _note_padding(inputs: Inputs, model: Model, framework: Framework, tp: int) -> None:
    """Add a note if the framework would pad the vocabulary."""
    padding = framework.pads * tp
    if padding and model.vocabulary % padding:
        inputs.note(
            f"{framework.name} pads the vocabulary to a multiple of {padding:,}: --vocab-multiple {framework.pads}"
        )


def _read_formats(inputs: Inputs, framework: Framework, policy: Precision) -> Precision:
    """Return a named policy with the formats that the framework uses, and note it; a policy given by its formats is
    unchanged."""
    kept = framework.formats(policy)
    if "=" in policy.name or kept == policy:
        return policy
    formats = f"{kept.param} parameters, {kept.grad} gradients, {kept.state} states"
    inputs.note(f"{framework.name} keeps {kept.name} as {formats}{' and master copies' if kept.master else ''}")
    return kept


def _check_ranks(model: Model, implementation: Implementation, tp: int) -> None:
    """Raise NapkinError if the implementation cannot run on this many tensor-parallel ranks."""
    what = undivided(model, implementation, tp)
    if not what:
        return
    fits = (d for d in range(1, model.heads + 1) if not undivided(model, implementation, d))
    near = min(fits, key=lambda d: (abs(d - tp), d))
    gathering = not undivided(model, replace(implementation, gathers_heads=True), tp)
    other = ", or --implementation megatron, which gathers heads that ranks share" if gathering else ""
    raise NapkinError(
        f"--tp {tp:,} does not divide {what} of the {implementation.name} implementation", f"--tp {near:,} does{other}"
    )
