"""The software that trains, from the options: a library on top, and the framework below it."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.errors import NapkinError, did_you_mean
from napkin.operations.implementations import HUGGING_FACE
from napkin.training.framework import Framework
from napkin.training.frameworks import FRAMEWORKS, PLAIN, first_version

TYPE_CHECKING = False
if TYPE_CHECKING:
    from napkin.training.kernels import Kernels
    from napkin.training.tasks import Task
    from napkin.training.trainer import Trainer


def read_named_trainer(inputs: Inputs) -> Trainer | None:
    """Return the library that trains, if it is named; its defaults replace those of the command."""
    name = inputs.text_or_none("trainer")
    if name is None:
        return None
    from napkin.training.trainers import find

    trainer = find(name)
    inputs.note(f"{trainer.name}: {trainer.source}")
    if trainer.framework:
        inputs.redefault("framework", trainer.framework)
    return trainer


def framework_named(name: str) -> Framework:
    """Return the training framework of that name; an unknown one is refused (2)."""
    word = name.strip().lower()
    if word in FRAMEWORKS:
        return FRAMEWORKS[word]
    from napkin.training.trainers import TRAINERS

    hint = f"--trainer {word}" if word in TRAINERS else did_you_mean(word, FRAMEWORKS)
    raise NapkinError(f"--framework: {word[:60]!r} is not known", hint or f"one of {', '.join(FRAMEWORKS)}")


def read_framework(inputs: Inputs) -> Framework:
    """Return the training framework, plain torch if none is named; its defaults replace those of the command."""
    trainer = read_named_trainer(inputs)
    if trainer is not None and not trainer.framework:
        _read_implied(inputs, trainer)
    name = inputs.text_or_none("framework")
    if name is None:
        if trainer is None:
            return PLAIN
        inputs.redefault("implementation", trainer.implementation)
        return trainer.on_none(PLAIN)
    framework = _read_version(inputs, _own_fsdp(framework_named(name), trainer), trainer)
    if trainer is not None and not trainer.has(framework.name):
        raise NapkinError(
            f"--trainer {trainer.name} does not run on --framework {framework.name}",
            ", or ".join(_ways_to_run(trainer, read_stage(inputs))),
        )
    inputs.redefault("implementation", framework.implementation if trainer is None else trainer.builds(framework))
    inputs.redefault("attention", framework.attention)
    inputs.redefault("dropout", f"{framework.dropout:g}")
    return framework if trainer is None else trainer.on(framework)


def _own_fsdp(framework: Framework, trainer: Trainer | None) -> Framework:
    """Return the library's own training program where `fsdp` means the FSDP that this runs on: torchtune's."""
    own = FRAMEWORKS.get(trainer.framework) if trainer is not None else None
    return own if own is not None and own.fsdp and framework.name == "fsdp" else framework


def _ways_to_run(trainer: Trainer, stage: int | None) -> list[str]:
    """Return the options that name each framework of a library on which it has a ZeRO stage, None for any; if it has
    the stage on none, with stages that it has."""
    found = [f"--framework {one.framework}" for one in trainer.backends if stage is None or stage in one.divides.zero]
    return found or [
        f"--framework {one.framework} --zero {' or '.join(map(str, one.divides.zero))}" for one in trainer.backends
    ]


def _read_version(inputs: Inputs, framework: Framework, trainer: Trainer | None) -> Framework:
    """Return a framework with the version of FSDP that the options state, else that of the library."""
    if "fsdp-version" not in inputs.command.names:
        return framework
    why = f"{framework.name} has one version of it, or none"
    hint = "leave it out" if trainer is not None and not trainer.has("fsdp") else "--framework fsdp"
    inputs.depends(("fsdp-version",), framework.versioned, why, hint)
    if not framework.versioned:
        return framework
    from napkin.training.trainers import LOOP

    usual = (trainer or LOOP).version
    inputs.redefault("fsdp-version", str(usual))
    return first_version(framework) if inputs.text("fsdp-version") == "1" else framework


def _read_implied(inputs: Inputs, trainer: Trainer) -> None:
    """Make the framework that a given ZeRO stage means in a library the default."""
    stage = read_stage(inputs)
    implied = trainer.implied(stage or 0)
    if not implied or "framework" in inputs:
        return
    inputs.redefault("framework", implied)
    inputs.guesses("framework")
    inputs.assume(f"{implied} for ZeRO-{stage}")
    inputs.note(
        f"--framework {implied} is what --zero {stage} means in {trainer.name}, which divides no states by itself"
    )


def read_stage(inputs: Inputs) -> int | None:
    """Return the ZeRO stage that the options state, None if they state none; Megatron's distributed optimizer is the
    first."""
    if inputs.peek("distributed-optimizer"):
        return 1
    stage = inputs.peek("zero")
    return None if stage is None else int(str(stage))


def read_most_sharded(inputs: Inputs) -> dict[str, str]:
    """Return the option of the highest ZeRO stage that the software has; none if the options fix the stage."""
    highest = max(read_framework(inputs).divides.zero)
    fixed = "zero" in inputs or "distributed-optimizer" in inputs
    return {"zero": str(highest)} if highest and not fixed else {}


def read_whether_staged(inputs: Inputs) -> bool:
    """Return whether the software divides a model's layers into pipeline stages. More than one is rejected where a
    library or a training program does not; a framework that only wraps a module may wrap one that is a stage."""
    framework, trainer = read_framework(inputs), read_named_trainer(inputs)
    staged = framework.divides.staged
    given = next((name for name in ("pp", "max-pp") if name in inputs and inputs.integer(name) > 1), "")
    if staged or not given or (trainer is None and not framework.program):
        return staged
    who = f"--framework {framework.name}" if trainer is None else f"--trainer {trainer.name}"
    backends = () if trainer is None else trainer.backends
    elsewhere = next((f"--framework {one.framework}" for one in backends if one.divides.staged), "")
    raise NapkinError(
        f"--{given} {inputs.integer(given):,}: {who} does not divide a model into pipeline stages",
        f"{elsewhere}, on which it does, or --{given} 1" if elsewhere else f"--{given} 1, or leave out {who}",
    )


def read_kernels(inputs: Inputs, word: str, task: Task) -> Kernels | None:
    """Return the kernels that replace those of a Hugging Face class: named ones, else the trainer's for the task; word:
    the model's implementation."""
    if "kernels" not in inputs.command.names:
        return None
    trainer = read_named_trainer(inputs)
    hf = word == HUGGING_FACE
    inputs.depends(("kernels",), hf, f"the {word} implementation has kernels of its own", "--implementation hf")
    from napkin.training.kernels import KERNELS

    usual = KERNELS.get(trainer.kernels) if trainer is not None and hf else None
    if usual is not None and usual.texts and (task.preference or task.scalar):
        usual = None
    name = inputs.text("kernels", default="none" if usual is None else usual.name)
    if not hf or name == "none":
        return None
    inputs.note(f"{name}: {KERNELS[name].source}")
    return KERNELS[name]
