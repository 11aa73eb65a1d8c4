"""The engine that generates responses, and what the trainer offloads meanwhile, from the options."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.commands.question.frozen import read_quantized
from napkin.errors import NapkinError
from napkin.evidence.rates.machines import machine
from napkin.inputs.hardware import Hardware
from napkin.operations.model import Model
from napkin.options.option import NONE
from napkin.planning.rollout_lengths import RolloutLengths
from napkin.planning.rollout_memory import STATES
from napkin.planning.rollouts import APART, FORMAT, Engine, ranks_needed
from napkin.record import record
from napkin.timing.generation import eager_launches
from napkin.training.trainer import Trainer
from napkin.training.trainers import LOOP


@record
class EnginePlace:
    """Where responses are generated: `word` is none, colocated, separate, or "" if unspecified; share: of each GPU's
    memory; gpus: those of a separate engine, else 0."""

    word: str
    share: float
    gpus: int


def read_place(inputs: Inputs, trainer: Trainer) -> EnginePlace:
    """Return where responses are generated, from --rollout."""
    word, _, size = (inputs.text_or_none("rollout") or "").partition(":")
    gpus = int(size) if word == "separate" else 0
    return EnginePlace(word, APART if gpus else float(size or trainer.share), gpus)


def read_away(inputs: Inputs, trainer: Trainer, place: EnginePlace) -> tuple[str, ...]:
    """Return the states that the trainer moves to the host while responses are generated, and back for the update:
    those of --rollout-offload, else the library's own, and those of --offload where the library brings them back."""
    shared = place.word in ("colocated", "")
    inputs.depends(("rollout-offload",), shared, "no engine generates on the trainer's GPUs", "--rollout colocated:0.5")
    stated = inputs.texts("rollout-offload") if "rollout-offload" in inputs else trainer.away if shared else ()
    lacking = [one for one in stated if one not in trainer.movable]
    if lacking:
        raise NapkinError(
            f"--rollout-offload {','.join(lacking)}: {trainer.name} cannot move it between the phases of a step",
            f"--rollout-offload {','.join(trainer.movable)}" if trainer.movable else "--offload optimizer",
        )
    asked = inputs.texts("offload")
    own = trainer.between(asked)
    if own:
        inputs.assume(f"{trainer.name}'s offload is back on the GPU for the update")
    return tuple(one for one in STATES if one in own or (one in stated and one not in asked))


def read_offload_of_passes(inputs: Inputs, trainer: Trainer) -> str | None:
    """Return the part of --offload that is on the host in the trainer's own passes: all but states that the library
    brings back for them."""
    offload = inputs.texts("offload")
    back = trainer.between(offload)
    return ",".join(one for one in offload if one not in back) or (NONE if "offload" in inputs.declined else None)


def read_shares(inputs: Inputs, trainer: Trainer) -> bool:
    """Return whether the trainer's frozen weights are those of an engine on its GPUs."""
    return trainer.shares and inputs.has("lora-rank")


def read_eager(inputs: Inputs, trainer: Trainer) -> float:
    """Return the seconds in which the engine's host launches the kernels of a layer, 0 if CUDA graphs hold them."""
    return eager_launches(trainer.applies and inputs.has("lora-rank")) if inputs.flag("rollout-eager") else 0.0


def read_form(inputs: Inputs, trainer: Trainer) -> str:
    """Return the number format of the weights of an engine on the trainer's GPUs: the trainer's if they share
    them."""
    return (read_quantized(inputs) or FORMAT) if read_shares(inputs, trainer) else FORMAT


def read_engine(
    inputs: Inputs,
    model: Model,
    hardware: Hardware,
    lengths: RolloutLengths,
    place: EnginePlace,
    trainer: Trainer,
) -> Engine | None:
    """Return the inference engine; None where responses are not generated here. trainer: whose library starts it."""
    generates, apart = place.word != "none", bool(place.gpus)
    inputs.depends(
        ("rollout-tp", "rollout-eager"), generates, "no response is generated here", "--rollout colocated:0.5"
    )
    if not generates:
        return None
    gpus = place.gpus or inputs.integer("gpus")
    form = FORMAT if apart else read_form(inputs, trainer)
    ranks = inputs.integer_or_none("rollout-tp")
    if ranks is None:
        node = min(int(machine(hardware, "bf16").node), gpus)
        needed = ranks_needed(model, hardware.capacity, place.share, lengths.most, node, form)
        ranks = max(needed, min(trainer.ranks, gpus))
        inputs.default("rollout-tp", str(ranks))
        inputs.value("rollout-tp")
    if gpus % ranks:
        raise NapkinError(f"--rollout-tp {ranks} does not divide the engine's {gpus:,} GPUs", "one that does")
    if not apart and trainer is LOOP:
        inputs.assume("the engine asleep while training")
    engine = Engine(
        model,
        gpus,
        ranks,
        place.share,
        apart,
        family=trainer.engine,
        broadcast=trainer.broadcast,
        form=form,
        shared=not apart and read_shares(inputs, trainer),
        eager=read_eager(inputs, trainer),
    )
    engine.check(lengths, hardware.term("capacity", "memory/capacity", "byte"))
    return engine
