"""Data parallelism: gradient reduction overlapped with the last backward pass, or ZeRO-3's gathers in every
micro-batch."""

from __future__ import annotations

from functools import partial

from napkin import term
from napkin.elementwise import is_zero, maximum, where
from napkin.operations.model import Model
from napkin.operations.queries import head_of
from napkin.record import record
from napkin.term import Term
from napkin.timing.clock import ONE, PER_PARAM, SECOND, TWO, Clock, size
from napkin.timing.collectives import gathered
from napkin.timing.layer_weights import Held, end_operations, end_weights, head_weights, layer_weights
from napkin.timing.matrix_work import work_of
from napkin.timing.pipeline import Stages

LIMITED = (
    "1 where FSDP gathers a layer when the one before it has run: where matrices of adapters are units, of which at "
    "most two are in flight (torch/distributed/fsdp/_limiter_utils.py; _runtime_utils.py, _unshard), and where "
    "reentrant checkpoints surround its units (_register_pre_backward_hooks; _get_handle_to_prefetch)"
)


@record
class Shards:
    """What data parallelism shards: trained parameters on one GPU before ZeRO (dense and expert), the number of
    replicas of each, and the ranks over which ZeRO shards each; the layers of a mean stage, of which what is before
    them counts as one, and its weight tensors; the bytes of frozen parameters, once for each pass that gathers them;
    the bytes of the head's weight that are gathered in addition in a micro-batch; and the seconds of the optimizer's
    matrix work, before ZeRO."""

    dense: Term
    experts: Term
    frozen: Held
    head_again: Term
    layers: Term
    tensors: Term
    replicas: Term
    expert_replicas: Term
    ways: Term
    expert_ways: Term
    works: Term

    @property
    def weights(self) -> Term:
        """All parameters on one GPU."""
        return term.add("weights", self.dense, self.experts)


def shards_of(clock: Clock, stages: Stages, model: Model) -> Shards:
    """Return the parameters on a mean stage, with those before and after the layers on one GPU if there is no pipeline,
    and with the larger of both if there is; those that several layers share are on every stage."""
    runs, on_a_stage = stages.layers.runs, partial(_on_a_stage, stages)
    at_ends = partial(_at_ends, term.greater("pipeline/several", stages.pp, ONE))
    (before, frozen_before), (after, frozen_after) = end_weights(clock, model)
    shared, frozen_shared = layer_weights(model.shared, clock.layout, "shared")
    dense = term.add(
        "weights/dense",
        on_a_stage("weights/layers", [one.weights.dense for _, one in runs]),
        at_ends("weights/ends", before.dense, after.dense),
        shared.dense,
    )
    frozen = term.add(
        "frozen/dense",
        on_a_stage("frozen/layers", [one.frozen.dense for _, one in runs]),
        at_ends("frozen/ends", frozen_before.dense, frozen_after.dense),
        frozen_shared.dense,
    )
    first, last = end_operations(model)
    replicas, ways = clock.groups.replicas.ranks, clock.groups.shards.ranks
    over_experts = term.multiply("ranks_of_experts", size("ep", clock.layout.ep), size("etp", clock.layout.etp))
    with_same_experts = partial(_with_same_experts, clock, over_experts)
    return Shards(
        dense,
        on_a_stage("weights/experts", [one.weights.experts for _, one in runs]),
        Held(frozen, on_a_stage("frozen/experts", [one.frozen.experts for _, one in runs])),
        _head_again(clock, model),
        term.divide("layers/stage", stages.layers.depth, stages.pp),
        on_a_stage("tensors", [size("tensors/layer", one.tensors) for _, one in runs]),
        replicas,
        with_same_experts("expert_replicas", replicas),
        ways,
        with_same_experts("expert_shards", ways),
        term.add(
            "works",
            on_a_stage("works/layers", [one.works for _, one in runs]),
            work_of(clock, model.shared, "shared"),
            at_ends("works/ends", work_of(clock, first, "before"), work_of(clock, last, "after", model.tied)),
        ),
    )


def _on_a_stage(stages: Stages, name: str, weights: list[Term]) -> Term:
    """Return what a mean stage has of quantities of one layer of each type."""
    every = [
        term.multiply(f"{one.name}/all", size("layers", count), one)
        for (count, _), one in zip(stages.layers.runs, weights, strict=True)
    ]
    return term.divide(name, term.add(f"{name}/all", *every), stages.pp)


def _at_ends(several: Term, name: str, before: Term, after: Term) -> Term:
    """Return what one GPU has of quantities before and after the layers. several: 1 if there are several stages."""
    largest, both = term.largest(f"{name}/largest", before, after), term.add(f"{name}/both", before, after)
    return term.choose(name, several, largest, both, "before and after the layers, on one stage or on two")


def _with_same_experts(clock: Clock, over_experts: Term, name: str, ranks: Term) -> Term:
    """Return, among ranks with the same dense weights, the number with the same experts (training/layout.py).
    over_experts: ranks that divide the experts."""
    exact = term.divide(f"{name}/exact", term.multiply(f"{name}/tp", ranks, clock.tp), over_experts)
    return term.largest(name, term.floor(f"{name}/whole", exact), ONE)


def _head_again(clock: Clock, model: Model) -> Term:
    """Return the bytes of the head's weight that are gathered in a micro-batch in addition to once in each pass."""
    head = head_of(model)
    trained = head is None or head.learning.trained
    each = gathered_size(clock) if trained else frozen_size(clock)
    return term.multiply(
        "sharded/head/whole", size("head_gathers", clock.layout.head_gathers), each, head_weights(clock, model)
    )


def frozen_size(clock: Clock) -> Term:
    """Return the bytes of a frozen parameter in the gathered dtype."""
    return term.leaf("frozen_bytes", clock.layout.frozen_bytes, PER_PARAM, term.GIVEN, "as it is gathered")


def gathered_size(clock: Clock) -> Term:
    """Return the bytes of a trained parameter in the gathered dtype."""
    return term.leaf("gathered_bytes", clock.layout.gathered_bytes, PER_PARAM, term.GIVEN, "as it is gathered")


def _reductions(clock: Clock) -> Term:
    """Return how often a step reduces gradients. Divided ones leave no room to add up whole ones, so that ZeRO-2
    reduces in each micro-batch."""
    divided = term.leaf("zero_2", where(clock.layout.zero == 2, 1, 0), "1", term.GIVEN, "1 under ZeRO-2")
    return term.choose("data/reductions", divided, size("micro_batches", clock.layout.micro_batches), ONE)


def _bytes_of_a_gradient(clock: Clock, times: Term, whole: Term, none: Term) -> Term:
    """Return the bytes that a step sends of a parameter's gradient: scattered so many times, and gathered without
    ZeRO."""
    each = term.leaf("gradient_bytes", clock.layout.gradient_bytes, PER_PARAM, term.GIVEN)
    return term.add(
        "data/bytes_of_a_gradient",
        term.multiply("data/gradients", each, times),
        term.choose("data/gradients_gathered", whole, each, none),
    )


def reduction_time(clock: Clock, stages: Stages, shards: Shards, stack: Term) -> Term:
    """Return the exposed seconds of gradient reduction. ZeRO 1 and 2: reduce-scatter of gradients and all-gather of
    parameters once per step, or of gradients after each micro-batch; without ZeRO, all-reduce of gradients (Rajbhandari
    et al. 2020, arXiv:1910.02054, section 7). Gradient communication overlaps with the last backward pass, parameter
    communication, which follows the optimizer step, with the next step's first forward pass; a minimum share is always
    exposed."""
    layout, rates = clock.layout, clock.rates
    reduced = term.add(
        "data/parameters",
        term.multiply("data/dense", shards.dense, gathered("data/share", shards.replicas)),
        term.multiply("data/experts", shards.experts, gathered("data/expert_share", shards.expert_replicas)),
    )
    times = _reductions(clock)
    whole = term.leaf("whole", where(layout.zero == 0, 1, 0), "1", term.GIVEN, "1 without ZeRO")
    none = term.constant("data/none", 0, PER_PARAM)
    sent = _bytes_of_a_gradient(clock, times, whole, none)
    doublings = term.log2("data/doublings", term.largest("data/at_least_two", shards.replicas, TWO))
    latency = term.multiply("data/latency/all", clock.rate("data_latency", rates.data_latency, SECOND), doublings)
    bus = clock.bus("data/bandwidth", clock.groups.replicas)
    around = term.multiply("data/around/all", shards.tensors, clock.around("data/around", clock.groups.replicas))
    apart = term.leaf(
        "one_by_one", layout.reduces_tensors * where(layout.zero == 1, 1, 0), "1", term.GIVEN, "1 where tensors are"
    )
    waited = term.choose("data/waited", apart, around, clock.latency("data/latency", shards.replicas, latency))
    scattered = clock.transfer("data/scatter", term.multiply("data/bytes", sent, reduced), bus, waited)
    back = term.choose("data/gathered", whole, none, gathered_size(clock))
    returned = clock.transfer(
        "data/gather",
        term.multiply("data/gathered_bytes", back, reduced),
        bus,
        term.multiply("data/gather/latency", apart, around),
    )
    runs = stages.layers.runs
    backward = [term.multiply(f"{one.behind.name}/all", size("layers", count), one.behind) for count, one in runs]
    ahead = [term.multiply(f"{one.ahead.name}/all", size("layers", count), one.ahead) for count, one in runs]
    behind = _of_a_chunk(clock, stages, "data/last_backward", backward)
    before = _of_a_chunk(clock, stages, "data/first_forward", ahead)
    overlap = clock.rate("data/overlap", rates.data_overlap, source="1 where reduced while backward runs")
    early = clock.rate("data/gather/overlap", rates.gather_overlap, source="1 where gathered while forward runs")
    shown = term.add(
        "data/shown",
        _shown(clock, scattered, term.multiply("data/hidden", overlap, behind, times)),
        _shown(clock, returned, term.multiply("data/gather/hidden", early, before)),
    )
    return term.multiply("replicated/shown", stack, shown)


def _of_a_chunk(clock: Clock, stages: Stages, name: str, every: list[Term]) -> Term:
    """Return the time of a pass over one micro-batch in the last, or the first, chunk of layers of a mean stage."""
    stage = term.divide(f"{name}/stage", term.add(f"{name}/all", *every), stages.pp)
    return term.divide(name, stage, size("vp", clock.layout.vp))


def _shown(clock: Clock, transfer: Term, hidden: Term) -> Term:
    """Return the part of a collective that `hidden` does not overlap, at least the share that is always exposed."""
    exposed = clock.rate("data/exposed", clock.rates.data_exposed)
    left = term.subtract(f"{transfer.name}/unhidden", transfer, hidden)
    return term.largest(f"{transfer.name}/shown", left, term.multiply(f"{transfer.name}/least", exposed, transfer))


def sharded_time(clock: Clock, shards: Shards, work: Term, stack: Term) -> Term:
    """Return the exposed seconds of ZeRO-3: all-gathers of parameters in forward and backward, reduce-scatters of
    gradients, in every micro-batch, beyond what overlaps with compute; and the slowdown of compute by the
    collectives. work: seconds of compute in the passes; stack: the software's own factor."""
    layout, groups = clock.layout, clock.groups
    passes, across = _sharded_bytes(clock, shards), _bytes_between_copies(clock, shards)
    gathers = term.add(
        "sharded/transfer",
        clock.transfer("sharded/collectives", passes, clock.bus("sharded/bandwidth", groups.shards)),
        clock.transfer("sharded/replicas", across, clock.bus("sharded/replicas/bandwidth", groups.copies)),
        _hops(clock, shards),
    )
    gathers = term.multiply("sharded/transfer/stack", stack, gathers)
    late = maximum(layout.gathers_adapters, where(layout.regathers > 0, 1, 0))
    behind = term.leaf("gathers_late", late, "1", term.GIVEN, LIMITED)
    together = term.smooth_largest("sharded/joined", work, gathers)
    one_by_one = term.choose("sharded/with_work", behind, term.add("sharded/serial", work, gathers), together)
    unhidden = term.subtract("sharded/unhidden", one_by_one, work)
    disturbed = term.multiply(
        "sharded/interference",
        stack,
        clock.rate("interference", clock.rates.interference),
        term.divide("sharded/link", passes, clock.link),
    )
    shown = term.add("sharded/shown", unhidden, disturbed)
    if is_zero(layout.head_gathers):
        return shown
    share = gathered("sharded/share", shards.ways)
    again = term.multiply("sharded/head/bytes", size("micro_batches", layout.micro_batches), shards.head_again, share)
    bus = clock.bus("sharded/bandwidth", groups.shards)
    return term.add("sharded/with_head", shown, clock.transfer("sharded/head", again, bus))


def _hops(clock: Clock, shards: Shards) -> Term:
    """Return the seconds of the hops of a step's all-gathers and reduce-scatters under ZeRO-3: each layer, and what is
    outside the layers, is gathered twice and scattered once in every micro-batch, as parameters are."""
    counted = term.constant("sharded/collectives", 3, source="two all-gathers and a reduce-scatter of a layer")
    several = size("micro_batches", clock.layout.micro_batches)
    around = clock.around("sharded/around", clock.groups.shards)
    return term.multiply("sharded/hops", several, shards.layers, counted, around)


def _sharded_bytes(clock: Clock, shards: Shards) -> Term:
    """Return the bytes that a rank gathers and scatters in a step under ZeRO-3: trained parameters in each pass that
    gathers them and their gradients, and frozen ones, in every micro-batch."""
    share, expert_share = (
        gathered("sharded/share", shards.ways),
        gathered("sharded/expert_share", shards.expert_ways),
    )
    each = term.leaf("gradient_bytes", clock.layout.gradient_bytes, PER_PARAM, term.GIVEN)
    passes = term.add("sharded/passes", TWO, size("regathers", clock.layout.regathers))
    trained = term.multiply(
        "sharded/trained",
        term.add("sharded/bytes_of_a_parameter", term.multiply("sharded/gathered", passes, gathered_size(clock)), each),
        term.add(
            "sharded/parameters",
            term.multiply("sharded/dense", shards.dense, share),
            term.multiply("sharded/experts", shards.experts, expert_share),
        ),
    )
    frozen = term.multiply(
        "sharded/frozen",
        term.divide("sharded/frozen/passes", passes, TWO),
        term.add(
            "sharded/frozen/twice",
            term.multiply("sharded/frozen/dense", shards.frozen.dense, share),
            term.multiply("sharded/frozen/experts", shards.frozen.experts, expert_share),
        ),
    )
    return term.multiply(
        "sharded/bytes",
        size("micro_batches", clock.layout.micro_batches),
        term.add("sharded/bytes_of_a_micro_batch", trained, frozen),
    )


def _bytes_between_copies(clock: Clock, shards: Shards) -> Term:
    """Return the bytes of gradients that a rank reduces, once a step, with the ranks of the other groups that hold its
    shard."""
    copies = clock.groups.copies.ranks
    expert_copies = term.divide("expert_copies", shards.expert_replicas, shards.expert_ways)
    dense, experts = own_parts("sharded/own", shards)
    return term.multiply(
        "sharded/replicas/bytes",
        TWO,
        term.leaf("gradient_bytes", clock.layout.gradient_bytes, PER_PARAM, term.GIVEN),
        term.add(
            "sharded/replicas/parameters",
            term.multiply("sharded/replicas/dense", dense, gathered("sharded/replicas/share", copies)),
            term.multiply(
                "sharded/replicas/experts", experts, gathered("sharded/replicas/expert_share", expert_copies)
            ),
        ),
    )


def data_time(clock: Clock, replicated: Term, sharded: Term) -> Term:
    """Return the exposed seconds of data-parallel communication."""
    stage = term.leaf("sharded", where(clock.layout.zero == 3, 1, 0), "1", term.GIVEN, "1 under ZeRO-3")
    return term.choose("step/communication/data", stage, sharded, replicated)


def own_parts(name: str, shards: Shards) -> tuple[Term, Term]:
    """Return the parameters, dense and expert, that one rank holds or updates under ZeRO."""
    return (
        term.divide(f"{name}/dense", shards.dense, shards.ways),
        term.divide(f"{name}/experts", shards.experts, shards.expert_ways),
    )
