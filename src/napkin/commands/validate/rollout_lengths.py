"""The lengths of prompts and responses in a reinforcement learning row: as stated, else a range."""

from __future__ import annotations

import math
import re

from napkin.errors import NapkinError
from napkin.evidence.figures.response_lengths import answers_within, kind_of, longest_of_step, prompts_within
from napkin.evidence.finetuning.models import model_of
from napkin.evidence.finetuning.software import trainer_of
from napkin.evidence.rows.row import RowFields
from napkin.planning.rollout_lengths import RolloutLengths
from napkin.record import replace
from napkin.timing.rollout import LENT

USUAL = {"dapo": (512, 16, 32), "dapo verl": (512, 12, 32)}
"""Algorithm, and library where it differs, → prompts per step, responses per prompt, and prompts per optimizer step, if
a row states no batch: DAPO's paper (arXiv:2503.14476, section 4.1), and most of verl's scripts of steps that are not
streamed (verl/experimental/one_step_off_policy/shell/dapo_7b_math_*.sh)."""
LONGEST_PROMPT = 1000
"""Largest mean prompt, in tokens, if a row says nothing about prompts."""
SYNCHRONOUS = ("", "on policy", "sync", "colocate sync", "colocate")
"""Words for runs whose phases run in sequence, the default of the libraries (verl ray_trainer.py, TRL
grpo_trainer.py, OpenRLHF without --async_train)."""
BEHIND = re.compile(r"(\d{1,9})-step off|one-step")
"""Words for runs whose responses may be this many steps older than the weights."""
SWITCHED = "switch"
"""Word for such runs whose trainer's GPUs generate too while they wait for responses (verl
docs/advance/v1_async_trainer.md, enable_switch)."""
STREAMED = ("fully async", "fully_async", "separate_async", "no-switch", SWITCHED)
"""Words for runs that generate continuously, on separate GPUs (verl docs/advance/fully_async.md: responses are put in a
queue as they end, and those in flight are finished, or go on with new weights, while the trainer works)."""


COMPARED = ("grpo", "rloo")
"""Tasks that compare several responses to a prompt."""


def streams(row: RowFields) -> bool:
    """Return whether responses are trained on as they end, and the engine generates all the time."""
    return _mode_of(row).startswith(STREAMED)


def _mode_of(row: RowFields) -> str:
    """Return a row's words for how generation and training overlap."""
    return (row.text("rl.on_policy") or row.text("rl.mode")).lower()


def behind_of(row: RowFields) -> int:
    """Return by how many steps responses may be older than the weights. Raises an error for other kinds of overlap."""
    said = _mode_of(row)
    if said in SYNCHRONOUS:
        return 0
    found = BEHIND.search(said)
    if found is None and not streams(row):
        raise NapkinError(f"how its phases overlap is not modeled: {said[:40]}")
    return int(found[1] or 1) if found is not None else 1


def lengths_of(row: RowFields) -> tuple[RolloutLengths, ...]:
    """Return the likely lengths, then the smallest and the largest that the row allows, if it leaves any open:
    if only a sequence's mean is stated, all of it is the response."""
    means = [row.number("rl.response_length_mean") or row.number("rl.response_length")]
    prompts = [row.number("rl.prompt_length_mean") or row.number("rl.prompt_length")]
    whole = row.number("rl.sequence_length_mean")
    samples, every = _stated_samples(row), tokens_of_step(row)
    if whole is None and samples and every:
        whole = every / samples
    if means[0] is None and whole is not None:
        means, prompts = [whole - 1], [1]
    limit = row.count("rl.response_length_max") or row.count("layout.seq_max")
    kind = kind_of(row.text("model.name"), model_of(row).family)
    answers = [one for one in means if one is not None]
    if not answers:
        if limit is None:
            raise NapkinError("how long its responses are is not stated")
        answers = [*answers_within(limit, kind).all]
    asked = [one for one in prompts if one is not None]
    if not asked:
        asked = [*prompts_within(row.count("rl.prompt_length_max") or LONGEST_PROMPT).all]
    count = max(len(answers), len(asked))
    batch = _batch_of(row)
    found = (_lengths(row, _at(asked, place), _at(answers, place), limit, batch) for place in range(count))
    return tuple(replace(one, reached=longest_of_step(one.longest, one.response, batch[0], kind)) for one in found)


def tokens_of_step(row: RowFields) -> float | None:
    """Return the tokens of a step, prompts and responses, if a row's rate and time of a step together state them."""
    rate = row.number("measured.tokens_per_second")
    each, gpus = row.number("measured.tokens_per_second_per_gpu"), row.count("hardware.count")
    if rate is None and each is not None and gpus is not None:
        rate = each * gpus
    run, steps = row.number("measured.run_seconds"), row.number("measured.steps")
    seconds = row.number("measured.step_seconds") or (run / steps if run and steps else None)
    return rate * seconds if rate and seconds else None


def _stated_samples(row: RowFields) -> int | None:
    """Return the responses of a step, if a row states them or both numbers of which they are the product."""
    samples, prompts, group = row.count("rl.samples_per_step"), row.count("rl.prompts"), row.count("rl.group")
    return samples if samples is not None or not (prompts and group) else prompts * group


def _counted_group(row: RowFields, prompts: int) -> int | None:
    """Return the responses to a prompt that give a step as many tokens as its rate and time state."""
    every, response = tokens_of_step(row), row.number("rl.response_length_mean")
    whole = row.number("rl.sequence_length_mean")
    if whole is None and response is not None:
        whole = response + (row.number("rl.prompt_length_mean") or 0)
    return max(round(every / (prompts * whole)), 1) if every and whole else None


def _at(values: list[float], place: int) -> float:
    return values[min(place, len(values) - 1)]


def _batch_of(row: RowFields) -> tuple[int, int, int]:
    """Return the responses of a step, those to a prompt, and those of an optimizer step, 0 for all of them."""
    usual = _usual_of(row)
    samples, group = row.count("rl.samples_per_step"), row.count("rl.group")
    mini = row.count("rl.mini_batch")
    if samples is None:
        prompts = row.count("rl.prompts")
        if prompts is None and usual is not None:
            prompts, group, mini = usual[0], group or usual[1], mini or usual[2]
        if prompts is None:
            samples, group = _of_micro_batches(row, group)
        else:
            if group is None and row.text("task") in COMPARED:
                group = _counted_group(row, prompts)
                if group is None:
                    raise NapkinError("how many responses a prompt has is not stated")
            samples = prompts * (group or 1)
    return samples, group or 1, row.count("layout.global_batch") or (mini or 0) * (group or 1)


def _usual_of(row: RowFields) -> tuple[int, int, int] | None:
    """Return the usual batch of a row's algorithm, None if there is none."""
    algorithm = row.text("rl.algorithm").lower()
    return USUAL.get(f"{algorithm} {trainer_of(row).name}") or USUAL.get(algorithm)


def _of_micro_batches(row: RowFields, group: int | None) -> tuple[int, int]:
    """Return the responses of a step, and those to a prompt, where the library counts a batch in responses."""
    usual, micro = trainer_of(row).group, row.count("layout.micro_batch")
    if not usual or micro is None:
        raise NapkinError("how many responses a step has is not stated")
    samples = micro * (row.count("hardware.count") or 1) * (row.count("layout.grad_accum") or 1)
    return samples, math.gcd(samples, group or usual)


def _lengths(
    row: RowFields, prompt: float, answer: float, limit: int | None, batch: tuple[int, int, int]
) -> RolloutLengths:
    """Return lengths with these means. batch: responses of a step, to a prompt, and of an optimizer step."""
    samples, group, step = batch
    trainer, streamed = trainer_of(row), streams(row)
    return RolloutLengths(
        prompt=round(prompt),
        response=round(answer),
        longest=max(limit or 0, round(answer)),
        longest_prompt=row.count("rl.prompt_length_max") or 0,
        answers=group,
        prompts=samples // group,
        updates=max(samples // step, 1) if step else 1,
        behind=behind_of(row),
        joined=trainer.joins_steps,
        dispatch=0.0 if streamed else trainer.dispatch,  # what is known is of the batch of a whole step
        padded=trainer.pads_dispatch(row.text("layout.versions")),
        streamed=streamed,
        lent=LENT if _mode_of(row) == SWITCHED else 0.0,
    )
