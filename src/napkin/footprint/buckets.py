"""A rank's memory as a tree of terms: the categories, their sums at each phase, and what a GPU reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from napkin.autograd.tensors import ACTIVATION
from napkin.elementwise import Number, ceil_div
from napkin.footprint import memory
from napkin.footprint.prepared import PreparedStep
from napkin.footprint.rank import BUCKETS, Moment, Rank
from napkin.footprint.saving import FULL, saved
from napkin.footprint.sections import Section
from napkin.footprint.weight_terms import HeldWeights
from napkin.record import replace
from napkin.term import TRUE, Term, add, ceil_divide, constant, largest, leaf, multiply

MODELS = "trl/models/utils.py, prepare_deepspeed, prepare_fsdp: sharded under ZeRO-3 alone"


def tree(step: PreparedStep, rank: Rank, source: str) -> dict[str, Term]:
    """Return the terms of a rank's memory by path. `source` cites the implementation that the activations are of."""
    root = "memory"
    terms: dict[str, Term] = {}

    def put(term: Term) -> Term:
        terms[term.name] = term
        return term

    weights = HeldWeights.of(step, rank)
    put(weights.parameters(f"{root}/parameters"))
    put(weights.gradients(f"{root}/gradients"))
    states = [put(weights.state(f"{root}/optimizer/{name}", name, size)) for name, size in rank.states]
    if states:
        put(add(f"{root}/optimizer", *states, source=step.setup.optimizer.source))
    else:
        put(leaf(f"{root}/optimizer", 0, "byte", TRUE, step.setup.optimizer.source))
    if rank.others:
        kept = [put(leaf(f"{root}/models/{name}", size, "byte", TRUE, MODELS)) for name, size in rank.others]
        put(add(f"{root}/models", *kept))
    saved = put(_saved(step, rank, f"{root}/activations/saved", source))
    put(_in_flight(rank, f"{root}/activations", saved))
    put(leaf(f"{root}/weight_casts", rank.casts, "byte", TRUE, "torch.autocast keeps a copy of each weight it cast"))
    moments = [_moment(put, moment, f"{root}/at/{moment.name}", terms) for moment in rank.moments]
    put(largest(f"{root}/live", *moments))
    for moment in rank.between:
        _moment(put, moment, f"{root}/after/{moment.name}", terms)
    worst = max(rank.moments, key=lambda m: m.live)
    put(
        terms[f"{root}/at/{worst.name}/temporaries"].renamed(f"{root}/temporaries", f"at the peak, in the {worst.name}")
    )
    for term in hosted(step, rank):
        put(term)
    return terms


def _moment(put: Callable[[Term], Term], moment: Moment, path: str, terms: Mapping[str, Term]) -> Term:
    """Return the live bytes of a phase: each category and its parts. `terms`: those of the rank."""
    parts = []
    for bucket in BUCKETS:
        if bucket == "models" and not moment.models:
            continue
        size, there = getattr(moment, bucket), terms.get(f"memory/{bucket}")
        made = [leaf(f"{path}/{bucket}/{name}", n, "byte", TRUE) for name, n in moment.made.get(bucket, ()) if n]
        if there is not None and there.value == size:
            parts.append(put(there.renamed(f"{path}/{bucket}")))
        elif made and add("sum", *made).value == size:
            parts.append(put(add(f"{path}/{bucket}", *made)))
        else:
            parts.append(put(leaf(f"{path}/{bucket}", size, "byte", TRUE)))
    return put(add(path, *parts))


def _in_flight(rank: Rank, path: str, saved: Term) -> Term:
    """Return the activations of all micro-batches in flight on the stage."""
    stage = rank.stage
    if rank.each == rank.saved and stage.parts == 1 and rank.stage.delayed == 0:
        return multiply(path, saved, constant("micro_batches_in_flight", stage.chunks))
    each = leaf("kept_by_another", rank.each, "byte", TRUE, "the head is done with one before the next")
    chunks = multiply("chunks_waiting", constant("chunks_of_others", stage.chunks - stage.parts), each)
    parts = [saved, ceil_divide("others", chunks, constant("chunks_of_one", stage.parts))]
    if stage.delayed:
        late = leaf("inputs_and_gradients_of_products", rank.delayed, "byte", TRUE, "arXiv:2401.10241, table 1")
        parts.append(multiply("weight_gradients_to_make", constant("micro_batches_delayed", stage.delayed), late))
    return add(path, *parts)


def hosted(step: PreparedStep, rank: Rank) -> list[Term]:
    """Return the bytes that each GPU keeps in host memory, and those that offloading moves there and back in a step."""
    setup = step.setup
    if not setup.offload and not setup.optimizer.paged:
        return _saved_on_host(step, rank)
    here = replace(setup, offload=(), optimizer=replace(setup.optimizer, paged=False))
    kept = memory.holding(step.under(here), rank.stage.index)
    found = []
    if kept.optimizer != rank.optimizer:
        away = kept.optimizer - rank.optimizer
        found.append(leaf("memory/host/optimizer", away, "byte", TRUE, setup.optimizer.source))
    if "parameters" in setup.offload:
        source = "torch FSDP, CPUOffloadPolicy: a rank's own part of parameters and gradients"
        found.append(leaf("memory/host/parameters", kept.parameters, "byte", TRUE, source))
        found.append(leaf("memory/host/gradients", kept.gradients, "byte", TRUE, source))
    if "activations" in setup.offload:
        saved = kept.saved + kept.waiting - rank.saved - rank.waiting
        found.append(leaf("memory/host/activations", saved, "byte", TRUE, "what the GPU does not keep of them"))
    if setup.offload:
        from napkin.footprint.offload import host_bytes

        moved = host_bytes(rank, setup) + 2 * setup.layout.micro_batches * (kept.saved - rank.saved)
        found.append(leaf("offload/bytes", moved, "byte", TRUE, "both ways, in one step"))
    return [*found, *_saved_on_host(step, rank)]


def _saved_on_host(step: PreparedStep, rank: Rank) -> list[Term]:
    """Return the bytes that the first rank gathers in host memory for saving."""
    if step.setup.save != FULL:
        return []
    found = saved(step, rank, memory.parts_of(step, rank.stage))
    weights = leaf("memory/host/save/weights", found.weights, "byte", TRUE, "of all ranks, on the first one's host")
    states = leaf("memory/host/save/optimizer", found.states, "byte", TRUE, "the same of the optimizer's states")
    return [weights, states, add("memory/host/save", weights, states)]


def _saved(step: PreparedStep, rank: Rank, path: str, source: str) -> Term:
    """Return the bytes saved by each operation of each layer type, by checkpointed blocks, and outside the layers."""
    stage, run, recompute = rank.stage, step.run, step.setup.layout.recompute
    size = recompute.group(step.order.depth)
    parts: list[Term] = []
    shared: dict[int, Term] = {}
    checkpointed: Number = 0
    for count, kept, (_, section) in zip(stage.layers, stage.checkpointed, run.layers, strict=True):
        checkpointed = checkpointed + kept
        if count - kept > 0:
            parts.append(multiply(f"{section.name}/layers", constant("layers", count - kept), _kept(section)))
            for storage in section.shared:
                shared[id(storage)] = leaf(storage.label, storage.saved, "byte", TRUE)
    if checkpointed and run.layers:
        block = leaf("input_of_a_block", run.layers[0][1].input, "byte", TRUE)
        parts.append(multiply("checkpoints", constant("checkpoints_kept", ceil_div(checkpointed, size)), block))
    parts += [_kept(section) for here, section in ((stage.first, run.before), (stage.last, run.after)) if here]
    parts += shared.values()
    total = add(path, *parts, source=source)
    # what a framework keeps by its own choice has no tree of its own
    return total if total.value == rank.saved else leaf(path, rank.saved, "byte", TRUE, source)


def _kept(section: Section) -> Term:
    """Return the bytes that one section saves, by operation."""
    by_operation: dict[str, Number] = {}
    for storage in section.kept:
        if storage.kind == ACTIVATION and not storage.shared:
            name = storage.label.partition("/")[0]
            by_operation[name] = by_operation.get(name, 0) + storage.saved
    leaves = [leaf(f"{section.name}/{name}", size, "byte", TRUE) for name, size in by_operation.items() if size]
    return add(section.name, *leaves) if leaves else leaf(section.name, 0, "byte", TRUE)


def peak_of(rank: Rank) -> Moment:
    """Return the phase of the peak."""
    return max(rank.moments, key=lambda m: m.live)
