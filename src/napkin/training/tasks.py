"""Training tasks: the sequences of a sample, the other models that only run forward, and the loss.

Each task is a record of facts from public code: huggingface/trl at f2cd5771.
"""

from __future__ import annotations

from collections.abc import Sequence

from napkin.operations.model import Model
from napkin.record import record, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from napkin.training.precision import Precision

REFERENCE, MISMATCHED = "reference", "mismatched"
LOGPROBS, REWARD, CRITIC = "logprobs", "reward", "critic"
SAME, ADAPTERS_OFF, PRECOMPUTED, NONE = "same", "adapters-off", "precomputed", "none"
"""Sources of a reference model's log-probabilities: a copy of the model, the model with its adapters switched off,
or a pass over the data before training. Any other word names a model."""
LOG_PROBS, WIDE_LOG_PROBS = "log-probs", "log-probs-fp32"
"""Forms of the loss over log-probabilities (operations/losses.py), by the dtype of the logits."""
DIVERGENCE, WIDE_DIVERGENCE = "divergence", "divergence-fp32"
"""Forms of the loss between two models' distributions over the vocabulary."""
OVER_LOG_PROBS = (LOG_PROBS, WIDE_LOG_PROBS, "fused", "vocabulary")
"""Forms of losses over log-probabilities."""


@record
class Task:
    """A task.

    says         words for the first line of an answer
    rows         sequences of one sample in a pass with gradients
    preference   the loss is over the log-probabilities of complete responses
    reference    they are compared with those of a reference model
    teacher      the loss compares its distribution over the vocabulary with that of a larger model, the reference
    mismatched   a batch's responses with the prompts of others run as well, without gradients (KTO's estimate of the KL
                 term)
    scalar       the head has one output, a score
    generates    before some of its steps the model generates the responses that it trains on, itself or on an engine
    rollout      it trains on responses that an inference engine generates with the model in each step
    critic       a second value model is trained
    """

    name: str
    says: str = ""
    rows: int = 1
    preference: bool = False
    reference: bool = False
    teacher: bool = False
    mismatched: bool = False
    scalar: bool = False
    generates: bool = False
    rollout: bool = False
    critic: bool = False
    source: str = ""


@record
class ForwardPass:
    """A forward pass without gradients in each micro-batch.

    name      of the model, or of its input
    model     the model that runs; None: the trained model
    times     sequences that it runs over per sequence of the micro-batch
    held      it has a separate copy of its weights        dtype  their number format ("": as the model is loaded)
    adapters  the adapters of the trained model run as well
    trained   it is a separate model that is trained as well, forward and backward
    first     it runs before the pass with gradients, when there are no activations yet
    micro     sequences of its own micro-batches, 0 if they are those of the trained model, or as many times as large
    larger    how many times as large
    """

    name: str
    model: Model | None = None
    times: int = 1
    held: bool = False
    adapters: bool = False
    trained: bool = False
    first: bool = False
    dtype: str = ""
    micro: int = 0
    larger: int = 1


def loss_of(task: Task, loss: str, precision: Precision, reference: str = "", log_probs: str = "") -> str:
    """Return the form of a task's loss if an implementation has `loss` for text: over log-probabilities in the dtype of
    the logits, fp32 under autocast (accelerate, convert_outputs_to_fp32), or over both models' distributions;
    reference: the source of the other model's; log_probs: the implementation's own form over log-probabilities."""
    under_autocast = precision.param == "fp32" and precision.compute not in ("fp32", "tf32")
    wide = under_autocast or precision.network.param == "fp32"
    if task.teacher and reference != PRECOMPUTED:
        return WIDE_DIVERGENCE if wide else DIVERGENCE
    if not (task.preference or task.teacher) or loss in OVER_LOG_PROBS:
        return loss
    if log_probs and task.preference:
        return log_probs
    return WIDE_LOG_PROBS if wide else LOG_PROBS


@record
class Passing:
    """Another pass in each micro-batch. model: as the pass runs it; times: sequences per sequence of the micro-batch;
    trained: forward and backward, else without gradients; micro: sequences of its own micro-batches, 0 if they are
    `larger` times those of the trained model."""

    name: str
    model: Model
    times: int = 1
    trained: bool = False
    micro: int = 0
    larger: int = 1


@record
class Passes:
    """The passes of a micro-batch: the trained model, forward and backward, and passes without gradients."""

    trained: Model
    others: tuple[Passing, ...] = ()


def passes_of(trained: Model, forwards: tuple[ForwardPass, ...]) -> Passes:
    """Return the passes of a micro-batch. trained: the model as it is trained."""
    if not forwards:
        return Passes(trained)
    from napkin.operations.trained import forward_only

    others = []
    for one in forwards:
        model = trained if one.model is None else one.model
        run = model if one.trained else forward_only(model, one.adapters)
        others.append(Passing(one.name, run, one.times, one.trained, one.micro, one.larger))
    return Passes(trained, tuple(others))


PRETRAIN = Task("pretrain")
SFT = Task("sft", "SFT", source="trl/trainer/sft_trainer.py")
TASKS: dict[str, Task] = {
    one.name: one
    for one in (
        PRETRAIN,
        SFT,
        Task(
            "dpo",
            "DPO",
            rows=2,
            preference=True,
            reference=True,
            source="trl/trainer/dpo_trainer.py, _compute_loss: chosen and rejected are one batch; then the reference",
        ),
        Task(
            "orpo",
            "ORPO",
            rows=2,
            preference=True,
            source="trl/experimental/orpo/orpo_trainer.py, concatenated_forward: no reference",
        ),
        Task(
            "simpo",
            "SimPO",
            rows=2,
            preference=True,
            source="trl/experimental/cpo/cpo_trainer.py, loss_type simpo: no reference",
        ),
        Task(
            "kto",
            "KTO",
            preference=True,
            reference=True,
            mismatched=True,
            source="trl/trainer/kto_trainer.py, _compute_kl_logps and _compute_loss: one response a sample; mismatched "
            "responses run through the model and the reference without gradients",
        ),
        Task(
            "distill",
            "distillation",
            reference=True,
            teacher=True,
            source="trl/experimental/gkd/gkd_trainer.py, compute_loss, generalized_jsd_loss with beta 0.5: the "
            "teacher's pass without gradients follows the model's, and both logits are there in the loss",
        ),
        Task(
            "gkd",
            "GKD",
            reference=True,
            teacher=True,
            generates=True,
            source="trl/experimental/gkd/gkd_trainer.py, training_step: with probability lmbda, 0.5 by default, the "
            "model generates the responses of a batch itself before the step of distillation; ms-swift has an engine "
            "for them (swift/rlhf_trainers/gkd_trainer.py)",
        ),
        Task(
            "rm",
            "reward model",
            rows=2,
            scalar=True,
            source="trl/trainer/reward_trainer.py: num_labels 1, chosen and rejected are one batch",
        ),
        Task(
            "grpo",
            "GRPO",
            preference=True,
            rollout=True,
            source="trl/trainer/grpo_trainer.py: beta 0, no reference; log-probabilities before the update",
        ),
        Task(
            "rloo",
            "RLOO",
            preference=True,
            rollout=True,
            source="trl/trainer/rloo_trainer.py: beta 0.05, a reference; log-probabilities before the update",
        ),
        Task(
            "ppo",
            "PPO",
            preference=True,
            rollout=True,
            critic=True,
            source="trl/experimental/ppo/ppo_trainer.py: reference, reward and value model next to the policy",
        ),
    )
}


def micro_batched(passes: Sequence[ForwardPass], micro: int, larger: int) -> tuple[ForwardPass, ...]:
    """Return passes of which those without gradients have micro-batches of this many sequences, or, if it is 0, as many
    times as large as those of the trained model."""
    return tuple(one if one.trained else replace(one, micro=micro, larger=larger) for one in passes)


def forward_passes(task: Task, reference: str, model: Model | None, first: bool) -> tuple[ForwardPass, ...]:
    """Return the passes without gradients of a task. reference: the source of the reference's log-probabilities;
    model: the reference, if it is another model; first: the framework runs the reference before the model."""
    found = []
    if task.mismatched:
        found.append(ForwardPass(MISMATCHED, adapters=True, first=True))
    if (task.reference or task.rollout) and reference not in (PRECOMPUTED, NONE):
        times = 2 if task.mismatched else 1
        found.append(ForwardPass(REFERENCE, model, times, held=reference != ADAPTERS_OFF, first=first))
    return tuple(found)
