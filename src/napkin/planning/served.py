"""Memory and speed of a GPU that serves a model: weights, KV cache, the largest batch and context, the pace."""

from __future__ import annotations

from napkin.architectures import implementation_of
from napkin.errors import UNDECIDED
from napkin.footprint import allocator, kv_cache, served_weights
from napkin.footprint.served_weights import StoredWeights
from napkin.operations.implementations import HUGGING_FACE
from napkin.operations.model import Model
from napkin.operations.queries import undivided
from napkin.planning import enlarge, verdicts
from napkin.record import record, replace
from napkin.term import ASSUMED, TRUE, Term, add, constant, divide, leaf, subtract
from napkin.timing.generation import DECODE


def undivided_when_served(model: Model, ranks: int) -> str:
    """Return what this many tensor-parallel ranks of an engine cannot divide, or "". An engine replicates keys and
    values if it has more ranks than their heads."""
    return undivided(model, replace(implementation_of(HUGGING_FACE, model.family), gathers_heads=True), ranks)


@record
class Serving:
    """A model served on tensor-parallel GPUs.

    weights    number format of the weights            element      bytes of one element of the KV cache
    sequences  sequences at a time                     cache_name   its number format
    seq        tokens in each sequence                 ranks        tensor-parallel ranks
    source     tokens of the encoder's sequence, if the model has one (0: none)
    """

    model: Model
    weights: StoredWeights
    element: float
    cache_name: str
    sequences: int
    seq: int
    source: int = 0
    ranks: int = 1

    def cache(self, sequences: int, seq: int) -> Term:
        """Return the bytes of keys and values of that many sequences of that length, on one rank."""
        return kv_cache.cache(self.model, seq, sequences, self.element, self.cache_name, self.ranks, self.source)


@record
class ServedMemory:
    """Bytes on each GPU; the interval of the total comes from the CUDA context."""

    weights: Term
    cache: Term
    context: Term
    total: Term
    low: float
    high: float


def held(serving: Serving) -> ServedMemory:
    """Return the memory of each GPU: tensor parallelism divides weights and cache."""
    weights = served_weights.weights(serving.model, serving.weights, serving.ranks)
    cache = serving.cache(serving.sequences, serving.seq)
    context = leaf("memory/context", int(allocator.CONTEXT.value), "byte", ASSUMED, allocator.CONTEXT.source)
    both = weights.value + cache.value
    low, high = both + allocator.CONTEXT.low, both + allocator.CONTEXT.high
    return ServedMemory(weights, cache, context, add("memory/total", weights, cache, context), low, high)


def cache_budget(capacity: Term, found: ServedMemory) -> Term:
    """Return capacity − weights − context, the bytes available to the KV cache."""
    return subtract("memory/cache_budget", subtract("without_weights", capacity, found.weights), found.context)


def largest(serving: Serving, free: float) -> tuple[int, int]:
    """Return the largest batch of sequences of this length, and the longest context of this many sequences, whose
    cache fits in `free` bytes."""
    if free <= 0:
        return 0, 0

    def fits(sequences: int, seq: int) -> bool:
        return bool(serving.cache(sequences, seq).value <= free)

    sequences = enlarge.largest_that_fits(lambda n: fits(n, serving.seq))
    return sequences, enlarge.largest_that_fits(lambda n: fits(serving.sequences, n))


def verdict(found: ServedMemory, capacity: float) -> str:
    """Return whether it fits: surely, surely not, or too close to call."""
    return verdicts.FITS if found.high <= capacity else verdicts.NOT if found.low > capacity else UNDECIDED


def pace(serving: Serving, cache: Term, bandwidth: Term) -> tuple[Term, Term]:
    """Return a lower bound of the time of a decoding step, which produces one token per sequence, and tokens per
    second."""
    over = constant("tensor_parallel_ranks", serving.ranks)
    weighed = served_weights.weights_read(serving.model, serving.sequences, serving.weights).total
    once = divide("decode/weights", leaf("weights_read", weighed, "byte", TRUE, DECODE), over)
    reading = cache.renamed("decode/cache")
    read = (
        serving.sequences * serving.element * kv_cache.read(serving.model, serving.seq, serving.ranks, serving.source)
    )
    if read < cache.value:
        skipped = leaf("decode/unread", cache.value - read, "byte", TRUE, "sparse attention")
        reading = subtract("decode/cache", cache, skipped)
    elif read > cache.value:
        again = leaf("decode/read_again", read - cache.value, "byte", TRUE, "by layers that share keys and values")
        reading = add("decode/cache", cache, again)
    time = divide("time/per_token", add("decode/bytes", once, reading), bandwidth, source=DECODE)
    made = constant("tokens_of_a_step", serving.sequences, "token")
    return time, divide("tokens_per_second", made, time)


@record
class OtherFormat:
    """Bytes of the weights in another format, of the cache in several, and the largest batch and context."""

    dtype: str
    weights: int
    caches: dict[str, int]
    most: tuple[int, int] | None


def in_format(serving: Serving, weights: str, caches: dict[str, float], capacity: float | None) -> OtherFormat:
    """Return the memory with weights in another format; caches: bytes of an element by cache format."""
    size = served_weights.weights(serving.model, served_weights.stored(weights), serving.ranks).value
    sizes = {
        name: replace(serving, element=element, cache_name=name).cache(serving.sequences, serving.seq).value
        for name, element in caches.items()
    }
    most = None if capacity is None else largest(serving, capacity - size - allocator.CONTEXT.value)
    return OtherFormat(weights, size, sizes, most)
