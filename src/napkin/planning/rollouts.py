"""The inference engine of reinforcement learning on one GPU: its weights, its KV cache, and the responses it decodes at
a time."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.errors import Refused
from napkin.footprint import served_weights
from napkin.inputs.hardware import Hardware
from napkin.operations.facts import LinearLayer
from napkin.operations.model import Model
from napkin.planning.generation import MOST_AT_ONCE, ServingSetup, Tokens, cache_of, decode_passes, prefill_passes
from napkin.planning.rollout_lengths import RolloutLengths, held_by_micro_batch
from napkin.record import record, replace
from napkin.term import GIVEN, TRUE, Term, leaf, multiply, subtract
from napkin.timing.generation import EnginePasses, EngineRanks
from napkin.timing.rollout import Rollout, decoding_steps
from napkin.training.setup import Setup

ELEMENT, FORMAT = 2, "bf16"
"""Bytes of an element of weights and cache, and their number format."""
EIGHT_BITS = "fp8"
"""The format of weights that an engine multiplies in as well."""
CHUNK, LOGITS = 8192, 4
"""Tokens of the largest pass (verl, trainer/config/rollout/rollout.yaml, max_num_batched_tokens; vLLM's own on GPUs of
70 GiB and more), and bytes of a logit (vLLM, v1/sample/sampler.py: fp32)."""

APART = 0.9
"""Share of the memory that an engine on separate GPUs takes (vLLM, config/cache.py, gpu_memory_utilization)."""

PARTS = (0.5, 0.25, 0.75)
"""Shares of the GPUs that a separate engine may have if the number is not given. The half is in NeMo RL's
recipes (examples/configs/recipes/llm/performance/*async*.yaml: all but two) and verl's (docs/advance/fully_async.md:
all tables but one)."""


def gathered(setup: Setup, lengths: RolloutLengths, sequences: int) -> Setup:
    """Return a setup with the fewest micro-batches of at most this many sequences, all of about equally many (verl
    utils/seqlen_balancing.py, rearrange_micro_batches): as many as divide a rank's sequences, if fewer than twice the
    fewest do."""
    own = max(lengths.batch // int(setup.layout.dp), 1)
    least = -(-own // sequences)
    count = next((number for number in range(least, 2 * least) if own % number == 0), least)
    return replace(setup, layout=setup.layout.replaced(micro=-(-own // count), micro_batches=count))


def packed(setup: Setup, lengths: RolloutLengths, tokens: int) -> Setup:
    """Return a setup whose micro-batches have at most this many tokens on average, and at least one sequence."""
    return gathered(setup, lengths, max(tokens // lengths.mean, 1))


def over(setup: Setup, seq: int) -> Setup:
    """Return a setup over sequences of `seq` tokens, rounded up to a multiple for context-parallel ranks."""
    cp = int(setup.layout.cp)
    return replace(setup, layout=setup.layout.replaced(seq=-(-seq // cp) * cp))


def scored(setup: Setup, tasks: Sequence[str], answer: int) -> Setup:
    """Return a setup that computes logits only for this many response tokens, if its trainer does so. tasks: tasks in
    which it does."""
    if setup.task.name not in tasks:
        return setup
    cp = int(setup.layout.cp)
    return replace(setup, layout=setup.layout.replaced(scored=-(-min(answer, int(setup.layout.seq)) // cp) * cp))


def unpadded(setup: Setup, means: Sequence[RolloutLengths], unpads: bool, tokens: int = 0) -> list[Setup]:
    """Return the setups of a trainer's largest micro-batch. A micro-batch of one sequence, or with padding, has the
    longest length: that is `setup`. Where several sequences have no padding (`unpads`), there is one for each of
    `means`; where a micro-batch may have this many `tokens`, they are one long sequence."""
    micro = int(setup.layout.micro)
    if tokens:
        return [over(replace(setup, layout=setup.layout.replaced(micro=1)), tokens)]
    if not unpads or micro == 1:
        return [setup]
    return [over(setup, held_by_micro_batch(one, micro)) for one in means]


def without_gradients(setup: Setup, means: Sequence[RolloutLengths], unpads: bool, tokens: int = 0) -> list[Setup]:
    """Return the setups of the largest micro-batch of a trainer's passes without gradients, as `unpadded`: of as many
    sequences as the passes have, at most those of an optimizer step, or with several times the tokens."""
    layout = setup.layout
    micro, larger = next(((one.micro, one.larger) for one in setup.forwards if not one.trained), (0, 1))
    if tokens and not micro:
        return unpadded(setup, means, unpads, tokens * larger)
    sequences = min(micro or int(layout.micro) * larger, int(layout.micro) * int(layout.micro_batches))
    return unpadded(replace(setup, layout=layout.replaced(micro=sequences)), means, unpads)


def micro_batches(
    setup: Setup, means: Sequence[RolloutLengths], unpads: bool, tokens: int = 0
) -> list[tuple[Setup, Setup]]:
    """Return the setups of the largest micro-batch of a trainer's update, each with that of its passes without
    gradients over sequences of the same lengths."""
    update, passes = (of(setup, means, unpads, tokens) for of in (unpadded, without_gradients))
    most = max(len(update), len(passes))
    return [(update[min(i, len(update) - 1)], passes[min(i, len(passes) - 1)]) for i in range(most)]


@record
class Engine:
    """An inference engine on `gpus` GPUs in groups of `ranks`, with a `share` of each GPU's memory.

    apart      on separate GPUs                        family   of engines, "" if unknown
    broadcast  byte/s at which the trainer's library sends it all weights, 0 if unknown
    form       number format of its weights            shared   it shares the trainer's weights
    eager      seconds in which its host launches the kernels of a layer; 0: CUDA graphs hold them
    """

    model: Model
    gpus: int
    ranks: int
    share: float
    apart: bool
    family: str = ""
    broadcast: float = 0.0
    form: str = FORMAT
    shared: bool = False
    eager: float = 0.0

    @property
    def setup(self) -> ServingSetup:
        return ServingSetup(self.model, served_weights.stored(self.form), ELEMENT, FORMAT, EngineRanks(self.ranks))

    def compute(self, hardware: Hardware) -> str:
        """Return the number format of its linear layers: 8 bits where weights and accelerator have them (vLLM,
        quantization: fp8)."""
        return self.form if self.form == EIGHT_BITS and self.form in hardware.peaks else FORMAT

    def weights(self) -> Term:
        """Return the bytes of the weights on a rank."""
        stored = served_weights.stored(self.form)
        return served_weights.weights(self.model, stored, self.ranks).renamed("engine/weights")

    def memory(self, capacity: Term) -> Term:
        """Return the bytes that the engine takes of a GPU: its share of the entire memory (verl
        docs/perf/perf_tuning.rst, gpu_memory_utilization)."""
        return multiply("engine/memory", leaf("engine/share", self.share, "1", GIVEN), capacity)

    def cache(self, capacity: Term) -> Term:
        """Return the bytes left for the KV cache after the weights and the memory of the largest pass."""
        passes = leaf("engine/largest_pass", self.profiled(), "byte", TRUE, "vLLM profiles it")
        return subtract("engine/kv_cache", subtract("engine/left", self.memory(capacity), self.weights()), passes)

    def at_once(self, lengths: RolloutLengths, capacity: Term) -> int:
        """Return how many responses are decoded at a time, at their mean context."""
        self.check(lengths, capacity)
        each = float(self.cached(lengths.prompt + round(lengths.spread.position())))
        left = float(self.cache(capacity).value)
        return min(MOST_AT_ONCE, int(left / each)) if each else MOST_AT_ONCE

    def needs(self, longest: int) -> float:
        """Return the bytes of a GPU's share with which it can generate one sequence of this many tokens."""
        return float(self.weights().value) + self.profiled() + self.cached(longest)

    def holds(self, lengths: RolloutLengths, capacity: Term) -> bool:
        """Return whether the share has room for the longest response."""
        return self.needs(lengths.most) <= self.share * float(capacity.value)

    def check(self, lengths: RolloutLengths, capacity: Term) -> None:
        """Refuse a share that cannot hold the longest response."""
        if not self.holds(lengths, capacity):
            raise Refused(
                f"the engine's share leaves no cache for a response of {lengths.most:,} tokens",
                "a larger share, --rollout-tp, or more GPUs",
            )

    def profiled(self) -> int:
        """Return the bytes of the share reserved for the largest pass: vLLM runs one before it sizes the cache, and
        keeps that memory free (v1/worker/gpu_worker.py, determine_available_memory). The residual stream and a layer's
        widest pair of tensors, or the logits of all sequences and their log-probabilities."""
        wide = max((one.d_in + one.d_out for one in _linears(self.model)), default=0)
        layer = CHUNK * ELEMENT * (2 * self.model.hidden + wide // self.ranks)
        return max(layer, 2 * LOGITS * MOST_AT_ONCE * self.model.vocabulary)

    def cached(self, context: int) -> float:
        """Return the bytes of the cache of one sequence of this many tokens on a rank."""
        return cache_of(self.setup, context, 0)


def tensors(model: Model) -> int:
    """Return the number of weight tensors of a model's layers, counting each expert's separately."""
    return sum(
        int(count) * weight.copies
        for stack in model.stacks
        for _, count, layer in stack.kinds()
        for op in layer.operations
        for weight in op.weights()
    )


def _linears(model: Model) -> list[LinearLayer]:
    """Return the linear layers inside a model's layers."""
    layers = [layer for stack in model.stacks for _, _, layer in stack.kinds()]
    return [linear for layer in layers for op in layer.operations if (linear := op.linear()) is not None]


def ranks_needed(model: Model, capacity: float, share: float, longest: int, node: int, form: str = FORMAT) -> int:
    """Return the fewest tensor-parallel ranks (a power of two within a node) whose share holds the weights in a number
    format, the memory of the largest pass and the cache of one sequence. Refused if a node has too few GPUs."""
    ranks, needed = 1, 0.0
    while ranks <= node and model.heads % ranks == 0:
        engine = Engine(model, ranks, ranks, share, apart=False, form=form)
        needed = engine.needs(longest)
        if needed <= share * capacity:
            return ranks
        ranks *= 2
    each = "the GPU" if ranks == 2 else f"each of {ranks // 2} GPUs"
    raise Refused(
        f"the engine has {share:.0%} of {each}; the weights of {model.name}, its largest pass and the cache of "
        f"one response of {longest:,} tokens need {needed / capacity:.0%}",
        "a larger share (--rollout colocated:0.7), more GPUs, or --rollout separate:GPUS",
    )


def rollout_of(engine: Engine, lengths: RolloutLengths, capacity: Term) -> Rollout:
    """Return the work of each engine in a step. The batch shrinks toward the end, so that the last steps, of the
    responses longer than the mean, are passes of their own."""
    engines = max(engine.gpus // engine.ranks, 1)
    answers = -(-lengths.prompts * lengths.answers // engines)
    at_once = engine.at_once(lengths, capacity)
    batches = max(lengths.behind, 1)
    spread = lengths.spread
    longest = lengths.response if lengths.streamed else lengths.last
    joined = lengths.joined and lengths.behind > 0
    full, last = decoding_steps(answers, at_once, lengths.response, longest, batches, joined)
    every = answers * (lengths.response - 1)
    late = min(answers, at_once / batches) * (lengths.response - 1) * spread.after(lengths.response) if last else 0.0
    later = spread.position(lengths.response)
    before = (every * spread.position() - late * later) / (every - late) if every else 0.0

    def passes(steps: Term, decoded: float, position: float) -> EnginePasses:
        in_mean = max(round(decoded / float(steps.value)), 1) if decoded else 1
        tokens = Tokens(lengths.prompt, max(round(2 * position), 1))
        return decode_passes(engine.setup, tokens, steps, decoded, in_mean)

    return Rollout(
        prefill=prefill_passes(engine.setup, -(-lengths.prompts // engines), lengths.prompt),
        decode=passes(full, every - late, before),
        last=passes(last, late, later) if last else None,
        groups=engine.setup.groups,
    )


def held_by_rollout(engine: Engine, capacity: Term, kept: Term) -> list[Term]:
    """Return the parts of the memory of a GPU during generation: the engine's, and what the trainer keeps."""
    if engine.apart:
        return [engine.memory(capacity)]
    return [engine.memory(capacity), leaf("kept", kept.value, "byte", TRUE, "the trainer's")]
