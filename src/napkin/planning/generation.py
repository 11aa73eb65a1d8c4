"""Bytes read and FLOPs of a model's passes in an inference engine: folds over its operations, for timing/generation.py.

The engine that serves requests and the one that generates rollouts are the same.
"""

from __future__ import annotations

from napkin.counting import flops
from napkin.elementwise import Number, ceil_div
from napkin.footprint import kv_cache, served_weights
from napkin.footprint.engine_kernels import FUSED, EngineKernels, activations, in_flight, widened
from napkin.footprint.served_weights import StoredWeights
from napkin.operations.fold_cache import remembered
from napkin.operations.model import Layer, Model
from napkin.operations.roles import LM_HEAD
from napkin.record import record
from napkin.term import Term, constant, multiply
from napkin.timing.generation import EnginePasses, EngineRanks

CHUNK = 8192
"""Prompt tokens in one pass (vLLM, engine/arg_utils.py, max_num_batched_tokens on GPUs of 70 GiB and more)."""
MOST_AT_ONCE = 1024
"""Maximum sequences that an engine decodes at a time (vLLM, engine/arg_utils.py, max_num_seqs on GPUs of 70 GiB and
more)."""
STREAM = 2
"""Bytes of an element of the residual stream, 16 bits."""


@record
class ServingSetup:
    """A model in an engine.

    weights             how the weights are stored
    element, cache_name bytes of an element of keys and values, and their format
    groups              tensor-, pipeline- and expert-parallel ranks
    dp                  replicas; experts divided over more ranks than one replica has are shared by several
    chunk               tokens of prompts in one pass
    most                maximum sequences decoded at a time
    kernels             how the engine's kernels move activations
    """

    model: Model
    weights: StoredWeights
    element: float
    cache_name: str
    groups: EngineRanks = EngineRanks()
    dp: int = 1
    chunk: int = CHUNK
    most: int = MOST_AT_ONCE
    kernels: EngineKernels = FUSED

    @property
    def gpus(self) -> int:
        return self.groups.tp * self.groups.pp * self.dp

    @property
    def encodes(self) -> bool:
        """Whether an encoder reads the prompt."""
        return len(self.model.stacks) > 1


@record
class Tokens:
    """Mean lengths of sequences: tokens of the prompt and of the answer."""

    prompt: int
    response: int


def decode_passes(setup: ServingSetup, tokens: Tokens, steps: Term, decoded: Number, at_once: int) -> EnginePasses:
    """Return the passes that decode `decoded` tokens in `steps` steps of at most `at_once` sequences of a replica.

    Each pipeline stage works on a part of the sequences; with fewer sequences than stages, some stages wait."""
    model, groups = setup.model, setup.groups
    part = ceil_div(at_once, groups.pp)
    on_path = decoded * (groups.pp * part / at_once)
    middle = tokens.prompt + tokens.response // 2
    linear, attention = decode_flops(model, tokens)
    moved = activations(setup.kernels, model, 1, middle)
    return EnginePasses(
        count=steps if groups.pp == 1 else multiply("passes", steps, constant("stages", groups.pp)),
        layers=model.depth / groups.pp,
        read=_read(setup, part, encodes=False),
        linear=on_path * linear / _ranks(groups),
        attention=on_path * attention / _ranks(groups),
        cached=on_path * moved_by_sequence(setup, middle, tokens.prompt) / groups.pp,
        streamed=on_path * moved / _ranks(groups),
        exchanged=on_path * model.hidden * STREAM,
        routed=on_path * routed_width(model) * STREAM / _ranks(groups),
        routed_layers=routed_layers(model),
        sequences=on_path,
    )


def prefill_passes(setup: ServingSetup, prompts: Number, prompt: int) -> EnginePasses:
    """Return the passes that run `prompts` prompts of a replica, `chunk` tokens (at least one prompt) at a time;
    pipeline stages run in sequence."""
    model, groups = setup.model, setup.groups
    total = prompts * prompt
    parts = ceil_div(total, setup.chunk)
    together = in_flight(setup.kernels, model, setup.weights, groups.pp, parts)
    turns = groups.pp * parts / together + together - 1
    path = turns / parts
    linear, attention = prefill_flops(model, prompt)
    read = _read(setup, total / parts, encodes=setup.encodes)
    pairs = prompt * (prompt + min(prompt, setup.chunk)) / 2
    moved = path * prompts * activations(setup.kernels, model, prompt, pairs) / _ranks(groups)
    return EnginePasses(
        count=constant("passes", turns),
        layers=model.depth / groups.pp,
        read=read,
        linear=path * prompts * linear / _ranks(groups),
        attention=path * prompts * attention / _ranks(groups),
        cached=path * prompts * cache_of(setup, prompt, prompt) / groups.pp,
        streamed=moved + turns * widened(setup.kernels, setup.weights, read, total / parts),
        exchanged=path * total * model.hidden * STREAM,
        routed=path * total * routed_width(model) * STREAM / _ranks(groups),
        routed_layers=routed_layers(model),
        sequences=path * prompts,
    )


def _ranks(groups: EngineRanks) -> int:
    """Return the number of ranks over which FLOPs are divided."""
    return groups.tp * groups.pp


def _read(setup: ServingSetup, tokens: Number, encodes: bool) -> Number:
    """Return the bytes of weights that one rank of a stage reads in a pass of `tokens` tokens of its replica: experts
    that several replicas share process the tokens of all of them."""
    groups = setup.groups
    wide = max(groups.ep, groups.tp)
    read = served_weights.weights_read(setup.model, tokens * wide / groups.tp, setup.weights, encodes)
    return (read.others / groups.tp + read.experts / wide) / groups.pp


# --- keys and values -------------------------------------------------------------------------------------------------


def cache_of(setup: ServingSetup, context: int, prompt: int) -> float:
    """Return the bytes that a sequence of `context` tokens caches on one tensor-parallel rank, over all layers."""
    over = _lengths(setup, context, prompt)
    return _cached(setup.model, over, setup.groups.tp) * setup.element


def moved_by_sequence(setup: ServingSetup, context: int, prompt: int) -> float:
    """Return the bytes that decoding one token of a sequence moves on a rank, all layers: what attention reads of the
    cache, and the fixed-size states, which are read and written."""
    return _moved(setup.model, _lengths(setup, context, prompt), setup.groups.tp) * setup.element


@remembered
def _cached(model: Model, over: tuple[int, int], ranks: int) -> float:
    """Return the elements that a sequence caches on one rank."""
    return float(kv_cache.cache(model, over[0], 1, 1, "elements", ranks, over[1]).value)


@remembered
def _moved(model: Model, over: tuple[int, int], ranks: int) -> float:
    """Return the elements of the cache and of states that decoding one token of a sequence moves on one rank."""
    written = kv_cache.states(model, over[0], ranks, over[1])
    return float(kv_cache.read(model, over[0], ranks, over[1]) + written)


def _lengths(setup: ServingSetup, context: int, prompt: int) -> tuple[int, int]:
    """Return the tokens of the decoder's sequence, and of the encoder's (0: there is none)."""
    return (max(context - prompt, 1), prompt) if setup.encodes else (max(context, 1), 0)


# --- FLOPs -----------------------------------------------------------------------------------------------------------


@record
class ForwardFlops:
    """FLOPs of a forward pass: linear layers without the head, attention, and the head for one token."""

    linear: float
    attention: float
    head: float


def prefill_flops(model: Model, prompt: int) -> tuple[float, float]:
    """Return the FLOPs of linear layers and of attention for one prompt; logits are computed only for its last
    token."""
    found = _forward(model, prompt, 0, decoding=False)
    return found.linear + found.head, found.attention


def decode_flops(model: Model, tokens: Tokens) -> tuple[float, float]:
    """Return the mean FLOPs of linear layers and of attention for one token of the answer."""
    before = _forward(model, tokens.prompt, 0, decoding=True)
    after = _forward(model, tokens.prompt, tokens.response, decoding=True)
    linear, attention = after.linear - before.linear, after.attention - before.attention
    return linear / tokens.response + after.head, attention / tokens.response


@remembered
def _forward(model: Model, prompt: int, made: int, decoding: bool) -> ForwardFlops:
    """Return the FLOPs of a forward pass over a prompt and `made` further tokens, with masked pairs. With an encoder,
    which reads the prompt, the decoder starts with one token. decoding: keys and values cached as a latent are used in
    that form."""
    if len(model.stacks) > 1:
        over = flops.works(model, 1, prompt, target=made + 1, pairs=flops.EXACT)
    else:
        over = flops.works(model, 1, prompt + made, pairs=flops.EXACT)
    linear = attention = head = 0.0
    for stack in model.stacks:
        work = over[stack.name]
        runs = [
            (1, Layer("", stack.before)),
            *((n, layer) for _, n, layer in stack.kinds()),
            (1, Layer("", stack.after)),
        ]
        for count, layer in runs:
            more = kv_cache.absorbed(layer) if decoding else {}
            for op in layer.operations:
                done = count * float(sum(product.flops for product in flops.products_of(op, work)))
                if op.role == LM_HEAD:
                    head += done / float(flops.over_own(op, work).tokens)
                elif op.attention_width():
                    attention += done * more.get(op.name, 1.0)
                else:
                    linear += done
    return ForwardFlops(linear, attention, head)


# --- experts ---------------------------------------------------------------------------------------------------------


def routed_layers(model: Model) -> int:
    """Return the layers whose experts a router chooses."""
    return sum(int(count) for count, _ in _routed(model))


def routed_width(model: Model) -> int:
    """Return the elements that a token sends to its experts, over all layers."""
    return sum(int(count) * used for count, used in _routed(model)) * model.hidden


@remembered
def _routed(model: Model) -> list[tuple[int, int]]:
    """Return (layers, experts of a token) for each kind of layer with routed experts."""
    found = []
    for stack in model.stacks:
        for _, count, layer in stack.kinds():
            used = [w.used for op in layer.operations for w in op.weights() if w.used < w.copies]
            if used:
                found.append((count, max(used)))
    return found
