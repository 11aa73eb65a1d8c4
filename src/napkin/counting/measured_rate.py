"""Tokens per second of one GPU, from any measured figure of a run.

rate = tokens/s / GPUs = samples/s · seq / GPUs = global batch · seq / (step time · GPUs) = FLOP/s/GPU / FLOP/token
"""

from __future__ import annotations

from napkin.term import GIVEN, Term, divide, leaf, multiply

PATH = "tokens_per_second_per_gpu"
LOGGED = "flops_per_second/logged"
TERA = 10**12


def of_tokens(tokens_per_second: Term, gpus: Term) -> Term:
    """Return the rate from the whole job's tokens per second."""
    return divide(PATH, tokens_per_second, gpus)


def of_samples(samples_per_second: Term, seq: Term, gpus: Term) -> Term:
    """Return the rate from the whole job's sequences per second."""
    return of_tokens(multiply("tokens_per_second", samples_per_second, seq), gpus)


def of_step(step_time: Term, global_batch: Term, seq: Term, gpus: Term) -> Term:
    """Return the rate from the seconds of an optimizer step."""
    return divide(PATH, multiply("tokens_per_step", global_batch, seq), step_time, gpus)


def of_flops(tflops: Term, per_token: Term) -> Term:
    """Return the rate from a logged TFLOP/s of one GPU; `per_token`: FLOP per token in the convention of the log."""
    tera = leaf("1e12", TERA, "FLOP/s/GPU", GIVEN)
    return divide(PATH, multiply(LOGGED, tflops, tera), per_token)


def is_of_flops(rate: Term) -> bool:
    """Return whether a rate comes from a logged TFLOP/s."""
    return any(part.name == LOGGED for part in rate.parts)


def of_job(rate: Term, gpus: Term) -> Term:
    """Return the whole job's tokens per second."""
    return multiply("tokens_per_second", rate, gpus)
