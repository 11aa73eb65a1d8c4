"""The training task, from the options: its kind, the other models in a step, and the loss."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.commands.question.adapters import read_whether_adapted
from napkin.errors import NapkinError, Refused
from napkin.operations.implementations import Implementation
from napkin.operations.model import Model
from napkin.operations.queries import generates
from napkin.options.rollout import ROLLOUT
from napkin.options.training import TORCH_LOSS
from napkin.record import replace
from napkin.training.tasks import (
    ADAPTERS_OFF,
    CRITIC,
    DIVERGENCE,
    LOGPROBS,
    NONE,
    OVER_LOG_PROBS,
    PRECOMPUTED,
    PRETRAIN,
    REWARD,
    SAME,
    TASKS,
    WIDE_DIVERGENCE,
    ForwardPass,
    Task,
    forward_passes,
    loss_of,
    micro_batched,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from napkin.training.framework import Framework
    from napkin.training.kernels import Kernels
    from napkin.training.precision import Precision
    from napkin.training.trainer import Trainer


def read_task(inputs: Inputs) -> Task:
    """Return the task; pretraining if none is named. Fine-tuning on text alone trains as pretraining does."""
    if "task" not in inputs.command.names:
        return PRETRAIN
    task = _read_on_engine(inputs, TASKS[inputs.text("task")]) if inputs.has("task") else PRETRAIN
    if task.rollout and "prompt-tokens" not in inputs.command.names:
        raise Refused(
            f"--task {task.name}: {inputs.command.name} does not answer for steps that generate",
            "napkin memory, step, plan, train-time and lint do",
        )
    if task.source:
        inputs.note(f"{task.name}: {task.source}")
    return task


def read_stated_task(inputs: Inputs) -> Task:
    """Return the task as it is stated, without recording that it matters."""
    return _read_on_engine(inputs, TASKS[str(inputs.peek("task") or PRETRAIN.name)])


def _read_on_engine(inputs: Inputs, task: Task) -> Task:
    """Return a task, with responses of an engine for a teacher to judge where --rollout places one."""
    placed = task.teacher and str(inputs.peek("rollout") or NONE) != NONE
    return replace(task, rollout=True) if placed else task


def read_whether_rollout(inputs: Inputs) -> bool:
    """Return whether an engine generates responses in a step; else reject options that belong to it."""
    task = read_stated_task(inputs)
    if task.teacher and not task.rollout:
        inputs.because(ROLLOUT, "no engine generates the responses", "--rollout colocated:0.5")
    elif not task.rollout:
        inputs.because(ROLLOUT, "only reinforcement learning generates responses", "--task grpo, rloo or ppo")
    return task.rollout


def read_as_trained(inputs: Inputs, model: Model) -> Model:
    """Return the model as the task trains it: with a score in place of the language model's head."""
    task = read_task(inputs)
    if model.outputs:
        _check_scored(inputs, model, task)
    if task.rollout:
        check_decodes(model)
    if not task.scalar:
        return model
    _read_loss(inputs, f"--task {task.name}", "scores")
    from napkin.operations.trained import with_score

    return with_score(model)


def check_decodes(model: Model) -> None:
    """Refuse a model that generates no tokens."""
    if not generates(model):
        raise Refused(f"{model.name} generates no tokens: its attention is not causal", "a decoder, such as llama3-8b")


def _check_scored(inputs: Inputs, model: Model, task: Task) -> None:
    """Raise an error for options that need the logits of a language model if the model's head scores labels."""
    hint = "a file whose architectures names the class with the language model's head"
    if task.preference or task.teacher:
        raise NapkinError(f"--task {task.name}: {model.name} scores labels, and has no logits of tokens", hint)
    if inputs.command.name == "serve":
        raise Refused(f"{model.name} scores labels: it generates nothing to serve", hint)
    _read_loss(inputs, model.name, "labels")


def _read_loss(inputs: Inputs, whose: str, what: str) -> None:
    """Record that --loss, the cross entropy over a vocabulary, has no effect: the head scores."""
    if "loss" in inputs.command.names:
        inputs.depends(("loss",), False, f"the loss of {whose} is over its {what}")


def read_forwards(inputs: Inputs, framework: Framework) -> tuple[ForwardPass, ...]:
    """Return the passes without gradients that the task needs."""
    task = read_task(inputs)
    if "reference" not in inputs.command.names:
        return ()
    if not (task.reference or task.rollout):
        why = f"--task {task.name} has no reference model" if inputs.has("task") else "no task has a reference model"
        inputs.depends(("reference",), False, why, "--task dpo, kto, gkd or distill")
        return ()
    adapters = read_whether_adapted(inputs)
    usual = ADAPTERS_OFF if adapters else SAME
    if task.rollout and task.name not in read_trainer(inputs).penalizes:
        usual = NONE
    if task.teacher:
        return _read_teacher(inputs, task)
    word = inputs.text("reference", default=usual)
    if word == NONE and not task.rollout:
        raise NapkinError(f"--reference none: --task {task.name} compares with a reference", "--task simpo has none")
    if word == PRECOMPUTED and task.rollout:
        raise NapkinError("--reference precomputed: responses are generated in each step", "same, adapters-off or none")
    if word == ADAPTERS_OFF and not adapters:
        raise NapkinError("--reference adapters-off needs adapters", "--lora-rank, or --reference same")
    model = _read_other(inputs, word) if word not in (SAME, ADAPTERS_OFF, PRECOMPUTED, NONE) else None
    if word == PRECOMPUTED:
        inputs.note("the reference's log-probabilities are computed once, before training: that pass is not in a step")
    return forward_passes(task, word, model, framework.reference_first or task.rollout)


def read_sampled(inputs: Inputs, model: Model) -> tuple[ForwardPass, ...]:
    """Return the passes over generated responses that reinforcement learning needs in addition to a reference: the one
    that computes log-probabilities before the update, and those of the reward and value models."""
    task = read_task(inputs)
    if not task.rollout:
        return ()
    if not task.preference:
        inputs.depends(("reward", "critic"), False, f"--task {task.name} learns from its teacher", "--task ppo")
        return ()
    from napkin.operations.trained import with_score

    found = [ForwardPass(LOGPROBS, adapters=True, first=True)]
    reward = inputs.text("reward", default=NONE)
    if reward != NONE:
        found.append(ForwardPass(REWARD, with_score(_read_other(inputs, reward)), held=True, first=True))
    if not task.critic:
        inputs.depends(("critic",), False, f"--task {task.name} has no value model", "--task ppo")
        return tuple(found)
    critic = inputs.text_or_none("critic")
    if critic == NONE:
        return tuple(found)
    values = with_score(model if critic is None else _read_other(inputs, critic))
    found.append(ForwardPass("values", values, first=True))
    found.append(ForwardPass(CRITIC, values, held=True, trained=True, first=True))
    return tuple(found)


def read_micro_batches(inputs: Inputs, passes: tuple[ForwardPass, ...]) -> tuple[ForwardPass, ...]:
    """Return the passes of a step, those without gradients in micro-batches of their own if the options say so, or the
    library has such."""
    if not read_task(inputs).rollout:
        return passes
    return micro_batched(passes, inputs.integer_or_none("logprob-micro-batch") or 0, read_trainer(inputs).larger)


def read_trainer(inputs: Inputs) -> Trainer:
    """Return the library that trains; a plain loop if none is named."""
    from napkin.training.trainers import LOOP, find

    return find(inputs.text("trainer")) if inputs.has("trainer") else LOOP


def _read_teacher(inputs: Inputs, task: Task) -> tuple[ForwardPass, ...]:
    """Return the teacher's pass; none if its logits are read with the data."""
    hint = "--reference MODEL, or precomputed for logits that are stored"
    if not inputs.has("reference"):
        raise NapkinError("--reference is missing: which teacher?", hint)
    word = inputs.text("reference")
    if word in (SAME, ADAPTERS_OFF, NONE):
        raise NapkinError(f"--reference {word}: a teacher is another model", hint)
    if word == PRECOMPUTED:
        inputs.note("the teacher's largest logits are read with the data: its pass is not in a step")
        return ()
    if not task.rollout:
        inputs.note("responses come from the data: none is generated in a step")
    return forward_passes(task, word, _read_other(inputs, word), False)


def _read_other(inputs: Inputs, text: str) -> Model:
    """Return another model, named by a preset, an id or a path. Rejected with several pipeline stages."""
    from napkin.architectures import build
    from napkin.commands.question.named import named_config

    if inputs.has("pp") and inputs.integer("pp") > 1:
        raise Refused("how a pipeline's stages divide another model is not modeled", "--pp 1, or the same model")
    config, described = named_config(text)
    if described:
        inputs.assume(described)
    return build(config)


def read_loss(
    inputs: Inputs, implementation: Implementation, policy: Precision, kernels: Kernels | None
) -> Implementation:
    """Return the implementation with the loss that --loss, the task, the kernels or the trainer selects."""
    from napkin.commands.question.software import read_named_trainer

    task = read_task(inputs)
    stored = str(inputs.peek("reference") or "") if "reference" in inputs.command.names else ""
    own = next((one.loss for one in (kernels, read_named_trainer(inputs)) if one is not None and one.loss), "")
    form = loss_of(task, own or implementation.loss, policy, stored, implementation.log_probs)
    loss = inputs.text("loss", default=form or TORCH_LOSS)
    if loss in (DIVERGENCE, WIDE_DIVERGENCE) and not task.teacher:
        raise Refused(f"--loss {loss}: it is between two models' distributions", "--task distill")
    if task.teacher and loss != form:
        raise Refused(f"--loss {loss}: what a divergence keeps in this form is not modeled", "leave it out")
    if task.preference and loss not in OVER_LOG_PROBS:
        raise Refused(
            f"--loss {loss}: what a loss over log-probabilities keeps in this form is not modeled",
            f"one of {', '.join(OVER_LOG_PROBS)}",
        )
    return replace(implementation, loss="" if loss == TORCH_LOSS else loss)
