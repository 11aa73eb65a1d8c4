"""The time for an inference engine to run prompts and decode tokens, for serving and for rollouts.

A pass sends tokens through every layer: prefill sends prompts, decoding one token of each sequence. Symbols, on a rank
of a stage: n consecutive passes, W bytes of weights read by one pass, F and A the FLOPs of linear layers and of
attention in all passes, C the bytes of keys, values and states that all passes read, β byte/s of memory and π FLOP/s,
each times the share s that is reached:

    linear layers = max( n·W / (β·s), F / (π·s) )
    attention     = max( C / (β·s), A / (π·s) )
    activations   = M / (β·s), M the bytes that kernels between matmuls read and write
    launches      = n · (layers · seconds of a layer + routed layers · seconds of routing)
    host          = sequences of all passes · seconds of a sequence: scheduling, sampling, what is returned of each
    exchange      = tensor-parallel all-reduces, the experts' all-to-all, and the hops between pipeline stages

and a pass takes their sum, because they run in sequence in every layer (Pope et al. 2022, arXiv:2211.05102). Without
CUDA graphs it takes at least what the host needs to launch the kernels of the layers and of their routing.
"""

from __future__ import annotations

import math

from napkin import term
from napkin.elementwise import Number
from napkin.record import record
from napkin.term import Term
from napkin.timing import collectives

DECODE = "each step reads every weight that it uses and the whole cache: Pope et al. 2022, arXiv:2211.05102"
ALL_REDUCES = 2
"""All-reduces per layer: after attention and after the MLP (Shoeybi et al. 2019, arXiv:1909.08053, section 3)."""

EAGER_SOURCE = "vllm-project/vllm-omni issue 7960, A800: 22 to 23 ms a token for 28 layers, 19 to 20 for 24"
EAGER = 0.75e-3
"""Seconds in which vLLM's host launches the kernels of a layer one by one: the slope of these two models' steps of one
sequence, which wait for the host (13 and 6 ms with graphs)."""
EAGER_ADAPTERS = 0.8e-3
"""The same of a layer's adapters, which vLLM applies in two kernels for each of four fused projections
(vllm/lora/layers, punica_wrapper), more than those that it adds to: steps of Qwen2.5 with adapters take 45 ms for 28
layers, 144 for 64 and 156 for 80 (eric-haibin-lin/verl-data, logs of 7B, 32B and 72B), and rollouts as much longer than
counted as other steps (evidence/intervals/rollouts.py)."""

SINGLE, STATIC, CLOSED, OFFLINE = "single", "static", "closed loop", "offline"
"""How requests arrive: one at a time; a fixed batch that starts together; a constant number in flight; all queued, so
that the engine runs as many as it can."""
MODES = SINGLE, STATIC, CLOSED, OFFLINE


def eager_launches(adapters: bool) -> float:
    """Return the seconds in which the host launches the kernels of a layer without CUDA graphs. adapters: the engine
    applies adapters next to its weights."""
    return EAGER + (EAGER_ADAPTERS if adapters else 0.0)


@record
class Traffic:
    """Requests.

    mode      one of MODES
    at_once   sequences in flight on all GPUs; 0 for offline: as many as the engine takes
    prompt, response    mean tokens that a request sends and receives
    alike     all requests have exactly these lengths, so that in a closed loop those that start together end together
    """

    mode: str
    at_once: int
    prompt: int
    response: int
    alike: bool = False


@record
class LatencyLimits:
    """Maximum time to first token and time per output token, in seconds; None: no limit."""

    ttft: float | None = None
    tpot: float | None = None


@record
class EngineShares:
    """The shares of peak rates that an engine reaches, from published measurements.

    weights, cache      shares of the memory's bandwidth at which weights, and keys and values, are read
    matmul, attention   shares of the dense peaks
    memory              share at which kernels between matmuls stream activations
    bus                 share of the link's or the network's rate
    latency             seconds of one collective within a node
    hop                 additional seconds for each doubling of its nodes
    layer, routed       seconds to launch a layer, and extra seconds for routing to experts
    host                seconds in which the host handles one sequence of a pass, while the device waits
    source              source of these figures
    eager               seconds in which the host launches the kernels of a layer, or of its routing, where no graph
                        holds them; 0: a graph does
    """

    weights: Number
    cache: Number
    matmul: Number
    attention: Number
    memory: Number
    bus: Number
    latency: Number
    layer: Number
    routed: Number
    host: Number
    source: str = ""
    hop: Number = 0.0
    eager: Number = 0.0


@record
class GenerationRates:
    """The rates of a machine, and the shares that an engine reaches.

    peak, wide      dense FLOP/s of linear layers' format, and of 16 bits (attention)
    bandwidth, link, network
                    byte/s of memory, of the link one way, of a GPU's network card
    node            GPUs that the link joins
    """

    peak: Number
    wide: Number
    bandwidth: Number
    link: Number
    network: Number
    node: Number
    reached: EngineShares


@record
class EnginePasses:
    """Consecutive passes of one kind on one rank of a pipeline stage.

    count      number of passes                layers     layers of the stage
    read       bytes of weights that one pass reads
    linear, attention    FLOPs of all passes
    cached     bytes of keys, values and states that all passes read
    streamed   bytes that kernels between matmuls move over all passes
    exchanged  bytes of the residual stream of all passes, over all ranks: tokens · width · 2
    routed     those bytes times experts per token over all routed layers: the one-way traffic of the all-to-all
    sequences  of all passes: a sequence counts once for each pass that it is in
    """

    count: Term
    layers: Number
    read: Number
    linear: Number
    attention: Number
    cached: Number
    streamed: Number = 0
    exchanged: Number = 0
    routed: Number = 0
    routed_layers: int = 0
    sequences: Number = 0


@record
class EngineRanks:
    """Ranks that exchange data: tensor-parallel, stages of a pipeline, ranks that experts are divided over."""

    tp: int = 1
    pp: int = 1
    ep: int = 1


def passes_time(name: str, passes: EnginePasses, groups: EngineRanks, rates: GenerationRates) -> Term:
    """Return the seconds of an engine's passes: products and attention at their rooflines, activations, launches, the
    host's work and exchanges."""
    kind, reached = name.rpartition("/")[2], rates.reached
    read = term.leaf(f"{kind}/weights_of_a_pass", passes.read, "byte", term.TRUE, DECODE)
    linear = _roofline(
        f"{name}/linear",
        term.multiply(f"{kind}/weights", passes.count, read),
        term.leaf(f"{kind}/linear/flops", passes.linear, "FLOP", term.TRUE),
        _reached("weights", rates.bandwidth, reached.weights, "byte/s", reached.source),
        _reached("matmul", rates.peak, reached.matmul, "FLOP/s", reached.source),
    )
    attention = _roofline(
        f"{name}/attention",
        term.leaf(f"{kind}/cache", passes.cached, "byte", term.TRUE),
        term.leaf(f"{kind}/attention/flops", passes.attention, "FLOP", term.TRUE),
        _reached("cache", rates.bandwidth, reached.cache, "byte/s", reached.source),
        _reached("attention", rates.wide, reached.attention, "FLOP/s", reached.source),
    )
    parts = [linear, attention]
    if passes.streamed:
        moved = term.leaf(f"{kind}/activations", passes.streamed, "byte", term.TRUE, "between the products")
        stream = _reached("activations", rates.bandwidth, reached.memory, "byte/s", reached.source)
        parts.append(term.divide(f"{name}/activations", moved, stream))
    if reached.layer:
        launches = _launches_of_a_pass(kind, passes, groups, rates)
        parts.append(term.multiply(f"{name}/launches", passes.count, launches))
    if reached.host and passes.sequences:
        handled = term.leaf(f"{kind}/sequences", passes.sequences, "1", term.TRUE, "one for each pass that it is in")
        each = term.leaf("host/sequence", reached.host, "second", term.SEEN, reached.source)
        parts.append(term.multiply(f"{name}/host", handled, each))
    parts += _exchanges(name, passes, groups, rates)
    if not reached.eager:
        return term.add(name, *parts)
    launched = term.leaf(
        f"{kind}/launched",
        passes.layers + passes.routed_layers / groups.pp,
        "1",
        term.TRUE,
        "layers, and their routing",
    )
    each = term.leaf("launch/eager", reached.eager, "second", term.SEEN, EAGER_SOURCE)
    return term.largest(
        name, term.add(f"{name}/device", *parts), term.multiply(f"{name}/launched", passes.count, launched, each)
    )


def _launches_of_a_pass(kind: str, passes: EnginePasses, groups: EngineRanks, rates: GenerationRates) -> Term:
    """Return the seconds in which a stage launches its layers, and the routing of those with experts."""
    reached = rates.reached
    of_layers = term.multiply(
        f"{kind}/launches_of_layers",
        term.leaf("layers_of_a_stage", passes.layers, "1", term.TRUE),
        term.leaf("launch/layer", reached.layer, "second", term.SEEN, reached.source),
    )
    if not passes.routed_layers:
        return of_layers
    of_routed = term.multiply(
        f"{kind}/launches_of_routing",
        term.leaf("routed_layers_of_a_stage", passes.routed_layers / groups.pp, "1", term.TRUE),
        term.leaf("launch/routing", reached.routed, "second", term.SEEN, reached.source),
    )
    return term.add(f"{kind}/launches_of_a_pass", of_layers, of_routed)


def _roofline(name: str, moved: Term, flops: Term, memory: Term, compute: Term) -> Term:
    """Return the longer of moving bytes and computing."""
    return term.largest(
        name, term.divide(f"{name}/memory", moved, memory), term.divide(f"{name}/compute", flops, compute)
    )


def _reached(name: str, peak: Number, share: Number, unit: str, source: str) -> Term:
    """Return the reached share of a rate."""
    return term.multiply(
        f"rate/{name}",
        term.leaf(f"rate/{name}/peak", peak, unit, term.TRUE),
        term.leaf(f"rate/{name}/share", share, "1", term.SEEN, source),
    )


def _exchanges(name: str, one: EnginePasses, groups: EngineRanks, rates: GenerationRates) -> list[Term]:
    """Return the seconds of communication between ranks."""
    found = []
    sent = term.leaf("residual_stream", one.exchanged, "byte", term.TRUE)
    if groups.tp > 1:
        layers = term.leaf("layers_of_a_stage", one.layers, "1", term.TRUE)
        calls = term.multiply("all_reduces", term.constant(str(ALL_REDUCES), ALL_REDUCES), layers)
        payload = collectives.all_reduced("all_reduced", sent, term.constant("tensor_parallel_ranks", groups.tp))
        moved = term.multiply("all_reduced/bytes", calls, payload)
        found.append(_exchange(f"{name}/all_reduces", one.count, calls, moved, (groups.tp, 1), rates))
    if one.routed_layers and groups.ep > groups.tp:
        ranks = term.constant("expert_parallel_ranks", groups.ep)
        both = term.constant("2", 2, "1", "to the experts and back")
        layers = term.leaf("routed_layers_of_a_stage", one.routed_layers / groups.pp, "1", term.TRUE)
        calls = term.multiply("all_to_alls", both, layers)
        routed = term.leaf("routed", one.routed, "byte", term.TRUE, "of the tokens of a rank")
        moved = term.multiply("routed/bytes", both, collectives.gathered("routed/others", ranks), routed)
        found.append(_exchange(f"{name}/all_to_all", one.count, calls, moved, (groups.ep, 1), rates))
    if groups.pp > 1:
        hop = term.constant("hops", 1)
        found.append(_exchange(f"{name}/stages", one.count, hop, sent, (2, groups.tp), rates))
    return found


def _exchange(name: str, count: Term, calls: Term, moved: Term, group: tuple[int, int], rates: GenerationRates) -> Term:
    """Return the seconds of `calls` collectives per pass: their latency, and their bytes at the bus bandwidth. group:
    its ranks, and the distance of neighbors in GPUs."""
    ranks, stride = group
    latency = term.leaf("latency_of_a_collective", rates.reached.latency, "second", term.SEEN, rates.reached.source)
    nodes = math.ceil(ranks * stride / float(rates.node))
    if nodes > 1:
        doublings = term.constant("doublings_of_nodes", math.log2(nodes))
        hop = term.leaf("latency_of_a_doubling", rates.reached.hop, "second", term.SEEN, "that of training steps")
        latency = term.add("latency_over_nodes", latency, term.multiply("latency_of_nodes", doublings, hop))
    waits = term.multiply(f"{name}/latency", count, calls, latency)
    return term.add(name, waits, term.divide(f"{name}/transfer", moved, _bus(ranks, stride, rates)))


def _bus(ranks: int, stride: int, rates: GenerationRates) -> Term:
    """Return the byte/s of each rank of a group whose neighbors are `stride` GPUs apart."""
    rate = collectives.bus_bandwidth(
        "bus",
        term.constant("ranks", ranks),
        term.leaf("node", rates.node, "1", term.TRUE),
        term.constant("stride", stride),
        term.leaf("link", rates.link, "byte/s", term.TRUE),
        term.leaf("network", rates.network, "byte/s", term.TRUE),
    )
    share = term.leaf("bus/share", rates.reached.bus, "1", term.SEEN, rates.reached.source)
    return term.multiply("bus/reached", rate, share)
