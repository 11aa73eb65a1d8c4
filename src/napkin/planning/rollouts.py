"""The inference engine of reinforcement learning on one GPU: its weights, the cache that its share leaves, what it
generates at a time."""

from __future__ import annotations

from napkin.errors import Refused
from napkin.footprint import serving as inference
from napkin.operations.model import Model
from napkin.planning.generation import MOST_AT_ONCE, ServingSetup, Tokens, cache_of, decode_passes, prefill_passes
from napkin.record import record
from napkin.term import GIVEN, TRUE, Term, leaf, multiply, subtract
from napkin.timing.generation import EngineRanks
from napkin.timing.rollout import Rollout, decoding_steps

ELEMENT, FORMAT = 2, "bf16"
"""Bytes of an element of weights and cache, and their number format."""


@record
class RolloutLengths:
    """Tokens of a prompt, of the mean and the longest answer; how many answers to a prompt, prompts in a step."""

    prompt: int
    response: int
    longest: int
    answers: int
    prompts: int

    @property
    def mean(self) -> int:
        """Tokens of a sequence."""
        return self.prompt + self.response

    @property
    def most(self) -> int:
        """Tokens of the longest sequence."""
        return self.prompt + self.longest

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.prompts * self.answers * self.mean


@record
class Engine:
    """An inference engine on `gpus` GPUs in groups of `ranks`, which has a `share` of each one's memory. apart: on GPUs
    of its own."""

    model: Model
    gpus: int
    ranks: int
    share: float
    apart: bool

    @property
    def setup(self) -> ServingSetup:
        return ServingSetup(self.model, inference.stored(FORMAT), ELEMENT, FORMAT, EngineRanks(self.ranks))

    def weights(self) -> Term:
        """Return the bytes of the weights on a rank."""
        return inference.weights(self.model, inference.stored(FORMAT), self.ranks).renamed("engine/weights")

    def memory(self, capacity: Term) -> Term:
        """Return the bytes that the engine takes of a GPU: its share of the whole memory (verl
        docs/perf/perf_tuning.rst, gpu_memory_utilization)."""
        return multiply("engine/memory", leaf("engine/share", self.share, "1", GIVEN), capacity)

    def cache(self, capacity: Term) -> Term:
        """Return the bytes that are left for keys and values."""
        return subtract("engine/kv_cache", self.memory(capacity), self.weights())

    def at_once(self, lengths: RolloutLengths, capacity: Term) -> int:
        """Return how many answers are decoded at a time, at their mean context."""
        each = float(self.cached(lengths.prompt + lengths.response // 2))
        left = float(self.cache(capacity).value)
        if left < float(self.cached(lengths.most)):
            raise Refused(
                f"the engine's share leaves no cache for an answer of {lengths.most:,} tokens",
                "a larger share, --rollout-tp, or more GPUs",
            )
        return min(MOST_AT_ONCE, int(left / each)) if each else MOST_AT_ONCE

    def cached(self, context: int) -> float:
        """Return the bytes of the cache of one sequence of so many tokens on a rank."""
        return cache_of(self.setup, context, 0)


def ranks_needed(model: Model, capacity: float, share: float, longest: int, node: int) -> int:
    """Return the fewest tensor-parallel ranks, a power of two in a node, whose share holds the weights and a cache of
    one sequence."""
    ranks = 1
    while ranks <= node and model.heads % ranks == 0:
        engine = Engine(model, ranks, ranks, share, apart=False)
        if float(engine.weights().value) + engine.cached(longest) <= share * capacity:
            return ranks
        ranks *= 2
    raise Refused(
        f"{model.name} does not fit into the engine's share of {node} GPUs",
        "a larger share, or --rollout separate:GPUS",
    )


def rollout_of(engine: Engine, lengths: RolloutLengths, capacity: Term) -> Rollout:
    """Return what each engine does in a step."""
    engines = max(engine.gpus // engine.ranks, 1)
    answers = -(-lengths.prompts * lengths.answers // engines)
    at_once = min(engine.at_once(lengths, capacity), answers)
    setup = engine.setup
    steps = decoding_steps(answers, at_once, lengths.response, lengths.longest)
    tokens = Tokens(lengths.prompt, lengths.response)
    return Rollout(
        prefill=prefill_passes(setup, -(-lengths.prompts // engines), lengths.prompt),
        decode=decode_passes(setup, tokens, steps, answers * (lengths.response - 1), at_once),
        groups=setup.groups,
    )


def held_by_rollout(engine: Engine, capacity: Term, kept: Term) -> list[Term]:
    """Return the parts of the memory of a GPU while it generates: the engine's, and what the trainer keeps there."""
    if engine.apart:
        return [engine.memory(capacity)]
    return [engine.memory(capacity), leaf("kept", kept.value, "byte", TRUE, "the trainer's")]
