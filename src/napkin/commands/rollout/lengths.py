"""The lengths of prompts and responses, and their number per step, from the options."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.commands.question.machine import WHICH
from napkin.commands.question.model import read_model
from napkin.commands.question.tasks import read_task, read_trainer
from napkin.errors import NapkinError
from napkin.evidence.figures.response_lengths import (
    TokenRange,
    answers_within,
    kind_of,
    longest_of_step,
    prompts_within,
)
from napkin.planning.rollout_lengths import RolloutLengths
from napkin.record import replace
from napkin.training.trainer import Trainer

SPANS = {"prompt-tokens": ("prompts", prompts_within), "response-tokens": ("responses", answers_within)}
"""Option of a mean length → what it measures, and the range of means for a given maximum (--max-…)."""
USAGES = {
    "global-batch": "--global-batch N: prompts of an optimizer step, for all GPUs; times --updates are generated",
    "prompt-tokens": "--prompt-tokens N: mean tokens; or --max-prompt-tokens, and they are assumed",
    "response-tokens": "--response-tokens N: mean tokens; or --max-response-tokens, and they are assumed",
}


ON_POLICY = "0.5"
"""Share of steps of GKD on responses of the model (trl/experimental/gkd/gkd_config.py and swift/arguments/rlhf_args.py,
lmbda)."""
BY_GPUS = "how many prompts per step follows from the micro-batches of all ranks"


def _read_whether_by_gpus(inputs: Inputs) -> bool:
    """Return whether a launch file states the responses of each rank, so that those of a step only lack the GPUs."""
    if inputs.has("global-batch") or inputs.has("gpus") or "micro-batch" not in inputs:
        return False
    from napkin.inputs.launch.stated import FROM_FILE

    return bool(read_trainer(inputs).group) and inputs.origin("micro-batch") == FROM_FILE


def read_spans(inputs: Inputs) -> tuple[RolloutLengths, ...]:
    """Return the lengths. If the maxima are given without the means, return those with the likely means, then those
    with the smallest and the largest means."""
    spans: dict[str, TokenRange] = {}
    said: list[str] = []
    for name, (what, within) in SPANS.items():
        longest = inputs.peek(f"max-{name}")
        if name not in inputs and isinstance(longest, (int, float)):
            spans[name] = found = within(int(longest), _read_model_type(inputs))
            said.append(f"{what} of {found.likely:,} tokens")
            inputs.note(f"{what} of {found.least:,} to {found.most:,} tokens in the mean are in the interval")
    if said:
        inputs.assume(" and ".join(said))
    lengths = read_lengths(inputs, timed=True, known=tuple(spans))
    kind = _read_model_type(inputs)
    several = tuple(_with_longest(one, kind) for one in _at_each(lengths, spans))
    if several[0].last < lengths.longest:
        inputs.note(
            f"the longest of a step's responses is taken to have {several[0].last:,} tokens, fewer than the "
            f"{lengths.longest:,} allowed: those of models that do not reason end before"
        )
    return several


def _with_longest(lengths: RolloutLengths, kind: str) -> RolloutLengths:
    """Return lengths with the longest response that a step of a model of this type is expected to have."""
    count = lengths.prompts * lengths.answers
    return replace(lengths, reached=longest_of_step(lengths.longest, lengths.response, count, kind))


def read_padding(inputs: Inputs) -> Trainer:
    """Return the library, with or without padding as --padding says, and with micro-batches of --micro-batch-tokens."""
    trainer = read_trainer(inputs)
    if "padding" in inputs:
        trainer = replace(trainer, unpads=not inputs.flag("padding"))
    tokens = inputs.integer_or_none("micro-batch-tokens")
    if tokens is None:
        return trainer
    if "micro-batch" in inputs:
        raise NapkinError(
            "--micro-batch-tokens and --micro-batch: a micro-batch has tokens or sequences", "one of them"
        )
    if not trainer.unpads:
        raise NapkinError("--micro-batch-tokens: sequences that are padded are not packed", "--no-padding")
    ranks = max(inputs.integer_or_none("cp") or 1, inputs.integer_or_none("ulysses") or 1)
    return replace(trainer, packs=tokens * ranks, longest=())  # a sequence is on all its context-parallel ranks


def _read_model_type(inputs: Inputs) -> str:
    """Return the type whose published lengths are those of the model, "" if no model is named yet."""
    return kind_of(inputs.text("model"), read_model(inputs).family) if inputs.has("model") else ""


def _at_each(lengths: RolloutLengths, spans: dict[str, TokenRange]) -> tuple[RolloutLengths, ...]:
    """Return the lengths with the likely means of `spans` (option → range), then with the least and the most means; the
    lengths as they are if there are no spans."""
    if not spans:
        return (lengths,)
    means = [{name: found.all[place] for name, found in spans.items()} for place in range(3)]
    return tuple(
        replace(
            lengths,
            prompt=one.get("prompt-tokens", lengths.prompt),
            response=one.get("response-tokens", lengths.response),
        )
        for one in means
    )


def read_means_below(inputs: Inputs, lengths: RolloutLengths) -> tuple[RolloutLengths, ...]:
    """Return the result of `read_spans` for memory, where `lengths` use the maxima in place of means that are not
    given."""
    longest = {"prompt-tokens": max(lengths.longest_prompt, lengths.prompt), "response-tokens": lengths.longest}
    kind = _read_model_type(inputs)
    asked = [name for name in SPANS if name not in inputs and f"max-{name}" in inputs]
    spans = {name: SPANS[name][1](longest[name], kind) for name in asked}
    return _at_each(lengths, spans)


def read_unbounded(inputs: Inputs, lengths: RolloutLengths) -> dict[str, str]:
    """Return the likely mean of each length of which neither a mean nor a maximum is given, as text by option: the time
    of a step needs them, and assumes the others itself."""
    prompt = lengths.longest_prompt if lengths.longest_prompt > 1 else lengths.most // 2
    longest = {"prompt-tokens": prompt, "response-tokens": lengths.longest}
    kind = _read_model_type(inputs)
    return {
        name: str(max(within(longest[name], kind).likely, 1))
        for name, (_, within) in SPANS.items()
        if name not in inputs and f"max-{name}" not in inputs
    }


def read_lengths(inputs: Inputs, timed: bool, judged: bool = True, known: tuple[str, ...] = ()) -> RolloutLengths:
    """Return the lengths and the number of responses per step. All missing options are reported at once.

    timed   the question is about time, which depends on means; memory needs only the maximum
    judged  the answer needs an accelerator
    known   options of mean lengths that may be missing, because they are assumed
    """
    whys = {"model": "which model?", **({"hardware": WHICH} if judged else {})}
    for name, (what, _) in SPANS.items():
        if name not in known and (timed or (f"max-{name}" not in inputs and "seq" not in inputs)):
            whys[name] = f"how long are {what}, on average?"
    generated = _read_generated(inputs)
    whys["samples-per-prompt"] = "how many responses per prompt?"
    whys |= {"gpus": BY_GPUS} if _read_whether_by_gpus(inputs) else {"global-batch": "how many prompts per step?"}
    inputs.need_all(whys, usages=USAGES)
    whole = inputs.integer_or_none("seq")
    prompt, longest_prompt = _read_length(inputs, "prompt-tokens", 1)
    response, longest = _read_length(inputs, "response-tokens", None if whole is None else whole - longest_prompt)
    if timed and "max-response-tokens" not in inputs and whole is None:
        inputs.assume("every response has the mean length")
    updates = inputs.integer("updates", default="1")
    trainer = read_trainer(inputs)
    found = RolloutLengths(
        prompt=prompt,
        response=response,
        longest=longest,
        answers=inputs.integer("samples-per-prompt"),
        prompts=inputs.integer("global-batch") * updates,
        longest_prompt=longest_prompt,
        updates=updates,
        behind=inputs.integer("off-policy-steps", default="0"),
        joined=trainer.joins_steps,
        dispatch=trainer.dispatch,
        generated=generated,
    )
    if whole not in (None, found.most):
        raise NapkinError(
            f"--seq {whole:,}: the longest prompt and response have {found.most:,} tokens together",
            "leave out --seq, or the longest ones",
        )
    return found


def _read_generated(inputs: Inputs) -> float:
    """Return the share of steps whose responses are generated: all of them, unless a teacher also judges responses from
    the data. There it is one response to a prompt unless more are stated."""
    task = read_task(inputs)
    inputs.depends(("on-policy",), task.teacher, f"--task {task.name} generates all responses", "leave it out")
    if not task.teacher:
        return 1.0
    inputs.default("samples-per-prompt", "1")
    return float(inputs.number("on-policy", default=ON_POLICY if task.generates else "1"))


def _read_length(inputs: Inputs, name: str, rest: int | None) -> tuple[int, int]:
    """Return the mean and the longest length of a prompt or response, in tokens. rest: the longest if no option
    states it; None: the mean."""
    most = f"max-{name}"
    mean = inputs.integer_or_none(name)
    if most in inputs or rest is None or (mean is not None and name == "prompt-tokens"):
        longest = inputs.integer(most, default=None if mean is None else str(mean))
    else:
        longest = max(rest, 1)
    if mean is not None and longest < mean:
        raise NapkinError(f"--{most} {longest:,} is below the mean of {mean:,}", "the longest allowed")
    return longest if mean is None else mean, longest
