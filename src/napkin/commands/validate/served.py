"""Predictions for a measured serving row: the engine's response to its load, by quantity."""

from __future__ import annotations

import math
from collections.abc import Callable

from napkin.errors import NapkinError
from napkin.evidence.serving.rows import START, ServedRow
from napkin.footprint import served_weights
from napkin.planning import engines
from napkin.planning.engines import EngineMemory
from napkin.planning.generation import ServingSetup
from napkin.planning.service import Service, hold, serve
from napkin.planning.serving_search import GivenRanks, fullest, layouts
from napkin.record import record
from napkin.term import TRUE, Term, leaf
from napkin.timing.generation import OFFLINE, SINGLE, GenerationRates, LatencyLimits, Traffic

MOST_AT_ONCE = 2048
"""Maximum concurrent sequences (TensorRT-LLM, llmapi/llm_args.py, max_batch_size)."""
FIRST = 2
"""Assumed tokens of an answer without a stated length: the rate is that just after the prompt."""
MILLI = 1e3


@record
class Predicted:
    """Predictions for a row. limited: ln of the rate under limits on the slowest answers relative to that under limits
    on the mean; known: services by the lengths of their requests."""

    asked: ServedRow
    rates: GenerationRates
    limited: float
    known: dict[tuple[int, int], Service]

    @property
    def engine(self) -> EngineMemory:
        """The memory rule of the engine; that of the default engine if its own is unknown."""
        return engines.ENGINES.get(self.asked.family, engines.ENGINES[engines.USUAL])

    @property
    def setup(self) -> ServingSetup:
        asked = self.asked
        chunk = self.engine.chunk
        return ServingSetup(
            *(asked.model, asked.weights, asked.element, asked.cache, asked.groups, asked.dp, chunk, MOST_AT_ONCE),
            asked.kernels,
        )

    def room(self, setup: ServingSetup) -> float:
        """Return the bytes that a GPU has for keys and values."""
        capacity = self.asked.hardware.term("capacity", "memory/capacity", "byte")
        return float(engines.room(self.engine, setup, capacity, self.asked.share or None).cache.value)

    def value(self, quantity: str, over: int = 0) -> float:
        """Return a quantity by its key; over: its number of tokens (llama-bench), 0: from the load."""
        if quantity.startswith("weights_"):
            return self._weights(quantity)
        if quantity.startswith("kv_cache_"):
            return self._cache(quantity)
        if self.asked.mode == START:
            raise NapkinError("a log of the start has no speed")
        key = quantity.removesuffix("_per_gpu").replace("_mean", "").replace("_median", "")
        found = _OF[key](self._service(quantity, over), self._traffic(quantity, over))
        found /= self.asked.gpus if quantity.endswith("_per_gpu") else 1
        return found * math.exp(self.limited) if self.asked.limits is not None else found

    def _weights(self, quantity: str) -> float:
        size = float(engines.weights_on(self.setup).value)
        if quantity == "weights_gib":
            size = float(served_weights.weights(self.asked.model, self.asked.weights, 1).value)
        return size / (1e9 if "_gb_" in quantity else 2**30)

    def _cache(self, quantity: str) -> float:
        free = self.room(self.setup)
        if free <= 0:
            raise NapkinError("the weights do not fit in the memory that its engine takes")
        if quantity == "kv_cache_tokens":
            traffic = Traffic(OFFLINE, 0, 1, 1)
            found = hold(self.setup, traffic, leaf("cache/room", free, "byte", TRUE)).tokens
            assert found is not None
            return float(found.value)
        return free / (1e9 if "_gb_" in quantity else 2**30)

    def _traffic(self, quantity: str, over: int) -> Traffic:
        """Return the load; for llama-bench, a prompt of that length, or an answer of that length from an empty
        context."""
        asked = self.asked
        prompt, response = asked.prompt, asked.response
        if over:
            prompt, response = (over, 1) if quantity.startswith(("prefill", "ttft")) else (1, over)
            if quantity.startswith("itl"):
                prompt, response = over, FIRST
        elif quantity.startswith(("prefill", "ttft")) and not response:
            response = 1
        elif asked.mode == SINGLE and not response:
            response = FIRST
        if not prompt:
            raise NapkinError("how long its prompts are is not stated")
        if not response:
            raise NapkinError("how long its answers are is not stated")
        return Traffic(asked.mode, asked.at_once, prompt, response, asked.alike)

    def _service(self, quantity: str, over: int) -> Service:
        """Return the engine's response to the load of a quantity."""
        traffic = self._traffic(quantity, over)
        key = (traffic.prompt, traffic.response)
        if key not in self.known:
            self.known[key] = self._answered(traffic)
        return self.known[key]

    def _answered(self, traffic: Traffic) -> Service:
        """Return the engine's response. If the row does not state the layout or the requests in flight, take those with
        the highest rate."""
        asked = self.asked
        if asked.mode == OFFLINE:
            return self._fullest(traffic)
        return serve(self.setup, traffic, self.rates, self._left())

    def _fullest(self, traffic: Traffic) -> Service:
        """Return the service of a queue of requests, with the layout and the batch of the highest rate."""
        asked = self.asked

        def left(setup: ServingSetup) -> Term:
            return leaf("cache/room", self.room(setup), "byte", TRUE)

        setups = [self.setup] if asked.stated else layouts(self.setup, GivenRanks(asked.gpus))
        return fullest(setups, traffic, self.rates, left, asked.limits or LatencyLimits())

    def _left(self) -> Term | None:
        """Return the bytes for keys and values, None if the weights would not fit as described."""
        free = self.room(self.setup)
        return leaf("cache/room", free, "byte", TRUE) if free > 0 else None


def _tpot(service: Service) -> float:
    if service.tpot is None:
        raise NapkinError("an answer of one token has no time per further token")
    return float(service.tpot.value)


def _prefilled(service: Service, load: Traffic) -> float:
    """Return the prompt tokens processed per second."""
    return load.prompt * float(service.in_flight.value) / float(service.prefill.value)


_OF: dict[str, Callable[[Service, Traffic], float]] = {
    "output_tokens_per_second": lambda one, load: float(one.output_rate.value),
    "total_tokens_per_second": lambda one, load: float(one.total_rate.value),
    "requests_per_second": lambda one, load: float(one.request_rate.value),
    "prefill_tokens_per_second": _prefilled,
    "decode_tokens_per_second": lambda one, load: max(load.at_once, 1) / _tpot(one),
    "ttft_ms": lambda one, load: MILLI * float(one.ttft.value),
    "tpot_ms": lambda one, load: MILLI * _tpot(one),
    "itl_ms": lambda one, load: MILLI * float((one.step or one.ttft).value),
    "total_latency_ms": lambda one, load: MILLI * float(one.request.value),
}
"""Key of a quantity → its value for a service."""
