"""The trainer's part of a reinforcement learning step, which `lint` checks."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.commands.rollout.engine import read_offload_of_passes, read_place
from napkin.commands.rollout.lengths import read_lengths, read_means_below, read_padding
from napkin.errors import NapkinError
from napkin.options.rollout import LENGTHS
from napkin.planning.padding import TrainerPasses

OF_ENGINE = (
    *LENGTHS,
    "rollout",
    "rollout-tp",
    "rollout-eager",
    "rollout-offload",
    "updates",
    "off-policy-steps",
    "micro-batch-tokens",
    "logprob-micro-batch",
    "padding",
)
"""Options of the engine and its time, and options that the trainer's step is derived from."""


def read_trainer_of_rollout(inputs: Inputs) -> tuple[Inputs, TrainerPasses]:
    """Return the inputs of the trainer's passes over the longest sequences, on its own GPUs, which the rules check; and
    what its micro-batches hold."""
    lengths = read_lengths(inputs, timed=False, judged=False)
    trainer, (likely, *_) = read_padding(inputs), read_means_below(inputs, lengths)
    inputs.depends(OF_ENGINE, True)
    if likely != lengths:
        inputs.assume(f"prompts of {likely.prompt:,} and responses of {likely.response:,} tokens")
    changes: dict[str, str | bool | None] = {
        "seq": str(lengths.most),
        "global-batch": str(lengths.batch),
        "offload": read_offload_of_passes(inputs, trainer),
        **dict.fromkeys(OF_ENGINE),
    }
    place = read_place(inputs, trainer)
    if place.gpus and inputs.has("gpus"):
        left = inputs.integer("gpus") - place.gpus
        if left < 1:
            raise NapkinError(f"--rollout separate:{place.gpus}: --gpus counts all, the trainer's too", "more --gpus")
        changes["gpus"] = str(left)
    asked = inputs.changed(changes)
    asked.assumed += inputs.assumed
    asked.note("rules look at the trainer's passes; napkin plan chooses the engine")
    tokens = () if "micro-batch" in inputs else trainer.micro_batches(lengths.most)
    stays = not (trainer.sleeps or place.gpus or place.word == "none")
    return asked, TrainerPasses(likely, trainer, tokens[0] if tokens else 0, place.share if stays else 0.0)
