"""Bytes that live through the passes of a step: gradients, and tensors that Python code refers to."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.autograd.tensors import sized
from napkin.elementwise import Number, ceil_div, is_zero, maximum, product, total, where
from napkin.footprint.gathers import flat_gradient
from napkin.footprint.local_weights import LocalWeights
from napkin.footprint.prepared import PreparedStep
from napkin.footprint.rank import Made, Rank
from napkin.footprint.saved_activations import (
    first_keeps_input,
    leaf_of_zeros,
    made_once_bytes,
    mapped_bytes,
    mask_bytes,
    shared_kv_bytes,
    unsaved_bytes,
)
from napkin.footprint.stages import Stage
from napkin.operations.implementations import MASKS
from napkin.training.framework import COMPUTE

Parts = Sequence[tuple[Number, LocalWeights]]
"""The weights of a rank, as (count, weights of one): memory.parts_of."""


class Gradients:
    """Bytes of gradients during the passes.

    standing  bytes that live through the passes
    added     a layer's new gradient, before it is added to the accumulated one
    first     bytes from the backward pass of the head
    reduced   of the gradients of a block, or of a head that is a unit of its own, copied for a reduction that is under
              way while the next block's are computed
    """

    def __init__(self, step: PreparedStep, rank: Rank, parts: Parts) -> None:
        setup, weights = step.setup, step.weights
        sharded = setup.layout.zero >= 2
        self.width = sized(1, setup.precision.grad)
        self.shards = setup.shards
        undivided = product(rank.stage.last, step.run.undivided)
        self.standing = where(setup.adds_up & (not setup.in_backward), rank.gradients + undivided, 0)
        self.added: Number = 0
        if setup.framework.unsynced:
            flat = [(n, flat_gradient(part, self.width)) for n, part in parts]
            unsynced = where(sharded & (self.shards > 1) & (setup.layout.micro_batches > 1), 1, 0)
            self.standing = where(unsynced > 0, total(n * size for n, size in flat), self.standing)
            self.added = unsynced * maximum(0, *(size for _, size in flat))
        deferred: Number = 0
        if setup.framework.defers:
            width = sized(1, setup.precision.gathered)
            deferred = where(sharded & (self.shards > 1) & (setup.layout.micro_batches > 1), 1, 0)
            self.standing = where(deferred > 0, total(n * part.gradients(width) for n, part in parts), self.standing)
            self.added = product(deferred, maximum(0, *(part.gradients(width) for _, part in parts)))
        at_once = 0 if setup.in_backward or "parameters" in setup.offload else where(setup.adds_up, 0, 1)
        self._whole = where(sharded, 0, at_once)
        self._sharded = where(sharded, at_once, 0)
        # a part that is copied from a view at once; a tied one's waits for the embedding's
        copied = step.run.undivided * (not step.model.tied)
        self.first = rank.stage.last * (weights.head.gradients(self.width) + copied)
        # the head's part of a tied embedding's gradient waits for the embedding's own
        one_stage = where(setup.layout.pp == 1, weights.table.all * self.width, 0) if step.model.tied else 0
        self._waits = product(one_stage, setup.frees_gradients)
        reduces = where((setup.layout.zero >= 3) & (self.shards > 1), 1, 0) - deferred
        computed = sized(1, setup.precision.gathered)
        self._of_root: Number = 0
        if setup.framework.root_last:
            self._of_root = rank.stage.last * product(reduces, weights.head.gradients(computed))
        self.reduced: Number = 0
        if setup.framework.reduced_in:
            width = computed if setup.framework.reduced_in == COMPUTE else sized(1, setup.framework.reduced_in)
            blocks = parts[1 : 1 + len(step.run.layers)]
            several = where(total(n for n, _ in blocks) > 1, 1, 0)
            block = product(several, maximum(0, *(part.gradients(width) for _, part in blocks)))
            head = product(rank.stage.last * setup.framework.ends_apart, weights.head.gradients(width))
            self.reduced = product(reduces, maximum(block, head))

    def parts_after(self, made: Number) -> Made:
        """Return the gradients that exist after gradients of `made` bytes have been computed."""
        new = product(self._whole, made)
        if not is_zero(self._sharded):
            new = new + self._sharded * ceil_div(made, self.shards)
        return (
            ("through_the_passes", self.standing),
            ("of_a_tied_head", self._waits),
            ("of_the_root", self._of_root),
            ("new", new),
        )

    def after(self, made: Number) -> Number:
        """Return the bytes that exist after gradients of `made` bytes have been computed."""
        return total(size for _, size in self.parts_after(made))


class References:
    """Bytes that Python code holds, whether or not autograd saves them.

    closure  what checkpointed layers refer to, without the rotary tables that other layers save anyway
    around   what the forward function holds while its layers run
    at_loss  embeddings and an encoder's output that it holds until the loss
    in_decoder  an encoder's output and zeros in place of position biases, while the decoder's layers run
    zeros    these zeros, if they are a leaf, which a graph holds; unsaved_leaf: if no layer saves them
    masks    causal masks that checkpointed layers refer to, unless they are passed as an argument
    """

    def __init__(self, step: PreparedStep, stage: Stage) -> None:
        run, implementation = step.run, step.setup.implementation
        checkpointed = total(stage.checkpointed)
        masks = mask_bytes(step, stage.checkpointed)
        tables, held_tables = made_once_bytes(step, stage)
        shared = shared_kv_bytes(step, stage)
        self.passes_masks = MASKS in implementation.passes
        self.masks = masks * (not self.passes_masks)
        leaf = product(stage.first, run.leaf) if step.setup.wakes else 0
        self.closure = where(checkpointed > 0, run.closure + mapped_bytes(step, stage), 0) + tables + self.masks + leaf
        stream = 0 if first_keeps_input(step) else run.stream
        looked_up = product(stage.first, total((run.embedded, stream)))
        memory, zeros = (unsaved_bytes(step, stage, one) for one in (run.memory, run.zeros))
        self.zeros = leaf_of_zeros(step, stage)
        self.unsaved_leaf = where(self.zeros > 0, zeros, 0)
        self.in_decoder = memory + zeros
        self.at_loss = looked_up * (implementation.embeddings == "loss") + memory
        other_masks = mask_bytes(step, stage.layers) - masks
        variables = maximum(looked_up, leaf)  # the leaf is one of those that the forward function holds
        self.around = total((run.closure, held_tables, self.masks, variables, other_masks, shared))

    def freed_masks(self, left: Number) -> Number:
        """Return the bytes of freed masks while checkpointed layers still refer to `left` bytes of them."""
        return self.masks - left * (not self.passes_masks)
