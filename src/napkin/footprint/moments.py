"""Live bytes of a rank at the phases of a step: forward, loss, backward, optimizer step."""

from __future__ import annotations

from napkin.autograd.tensors import sized
from napkin.elementwise import Number, is_array, is_zero, maximum, minimum, product, total, where
from napkin.footprint.gathers import gathered_bytes, left_gathered
from napkin.footprint.optimizer_buffers import optimizer_temporaries, tensor_sizes
from napkin.footprint.peaks import LayerPeak, StageLayers, layer_peaks
from napkin.footprint.placeholders import buffers, placeholder_bytes
from napkin.footprint.prepared import PreparedStep
from napkin.footprint.rank import Made, Moment, MomentSums, Rank, larger
from napkin.footprint.saved_activations import dot, returned_bytes
from napkin.footprint.through_passes import Gradients, Parts, References
from napkin.operations.model import Model
from napkin.record import replace
from napkin.training.layout import Layout


def pixel_bytes(model: Model, layout: Layout) -> Number:
    """Return the bytes of the images of a micro-batch: fp32 pixels."""
    lengths = model.vision.lengths(layout.image_tokens) if model.vision is not None and layout.images else None
    if model.vision is None or lengths is None:
        return 0
    (patches,) = model.vision.patches.stacks
    elements = sum(op.d_in for one in patches.before if (op := one.linear()) is not None)
    return layout.sequences * layout.images * lengths[0] * sized(elements, "fp32")


class Moments:
    """The phases of one rank's step.

    inputs  token ids, labels, registered buffers, and tensors that modules hold from the last pass
    leaked  what the graphs of those tensors save of recomputed layers, until these run forward again
    loss    bytes of the loss
    last    bytes of the previous micro-batch's loss, which lives until its variable is reassigned, and of the leaves
            that its graph holds
    losses  the loss and its gradient
    casts   autocast's copies of weights after the forward pass of the last layer
    waiting activations of the other micro-batches in flight
    kept_casts  autocast's copies of layers' weights that autograd keeps
    placeholders  what fused kernels return in place of gradients
    through_backward  bytes that live through the backward pass: what checkpointed layers refer to, and the logits
    """

    def __init__(self, step: PreparedStep, rank: Rank, parts: Parts) -> None:
        self.step, self.rank, self.parts = step, rank, parts
        setup, run, stage = step.setup, step.run, rank.stage
        layout = setup.layout
        self.stage, self.run = stage, run
        given = 2 * layout.sequences * (layout.seq // layout.cp) * 8 + pixel_bytes(step.model, layout)
        sections = [section for _, section in run.layers]
        remembered = dot(stage.layers, (section.remembers for section in sections))
        self.inputs = stage.first * given + buffers(step, stage) + remembered
        self.leaked = dot(stage.checkpointed, (section.leaks for section in sections))
        self.gathered = gathered_bytes(step, stage, parts)
        self.gathered_at_loss = gathered_bytes(step, stage, parts, setup.framework.at_loss)
        self.gathered_in_layers = gathered_bytes(step, stage, parts, ends=False)
        self.gradients = Gradients(step, rank, parts)
        self.standing: Made = (("through_the_passes", self.gradients.standing),)
        self.placeholders: Made = (("placeholders", placeholder_bytes(step, stage)),)
        self.references = References(step, stage)
        self.loss = product(stage.last, run.loss)
        self.losses = 2 * self.loss
        self.last = (self.loss + self.leaves) * (layout.micro_batches > 1)
        cached = dot(stage.checkpointed, (section.casts - section.rest_casts for section in sections))
        biases = dot(stage.layers, (section.biases for section in sections))
        self.cached = cached = total((cached, product(stage.first, run.before.biases), biases))
        self.kept_casts = rank.casts - product(stage.last, run.after.casts)
        self.casts = self.kept_casts + cached
        self.before_head = rank.saved - product(stage.last, run.after.saved)
        self.waiting, self.optimizer = rank.waiting, rank.optimizer
        self.held = rank.parameters + rank.models + rank.optimizer
        self.bucket = rank.bucket + self.interleaved
        self.in_passes = total((self.waiting, self.inputs, self.bucket))
        held = self.references
        self.through_backward = total((held.closure, product(stage.last, run.held_logits), held.unsaved_leaf))

    @property
    def interleaved(self) -> Number:
        """Return the bytes of a copy of the gradients in a full bucket, or of the largest one, which may be larger."""
        setup, width = self.step.setup, self.gradients.width
        if not setup.framework.interleaves:
            return 0
        full = minimum(setup.bucket(self.step.model.hidden), self.rank.weights.all * width)
        largest = maximum(0, *(elements for elements, _, _ in tensor_sizes(self.step))) * width
        return where(setup.layout.zero >= 3, maximum(full, largest), 0)

    def moment(
        self,
        name: str,
        gradients: Made,
        kept: Number,
        casts: Number,
        temporaries: Made,
        left: Number = 0,
        gathered: Number | None = None,
        brief: Number = 0,
    ) -> Moment:
        """Return a phase of the passes, with the activations of waiting micro-batches and the gathered parameters.

        gradients, temporaries  bytes by name
        kept      bytes that this micro-batch keeps for backward
        casts     bytes of weights that autocast keeps cast
        left      bytes that graphs still save and no backward pass frees
        gathered  bytes of gathered parameters, if not as many as in the passes
        brief     bytes kept for backward that live no longer than the head and the loss"""
        brief = total((brief, *(size for _, size in temporaries)))
        temporaries = temporaries if is_zero(left) else (*temporaries, ("left_by_recomputation", left))
        gathered = self.gathered if gathered is None else gathered
        gradients = (*gradients, *self.placeholders)
        passing = total((self.in_passes, gathered, kept, casts, *(size for _, size in temporaries)))
        if is_array(passing):
            return MomentSums(name, passing, total((passing, self.held, *(size for _, size in gradients))), brief)
        made: dict[str, Made] = {
            "gradients": gradients,
            "activations": (("of_waiting_micro_batches", self.waiting), ("of_this_micro_batch", kept)),
            "temporaries": (("gathered", gathered), ("gradient_bucket", self.bucket), *temporaries),
        }
        sums = {bucket: total(size for _, size in parts) for bucket, parts in made.items()}
        return Moment(
            name,
            self.rank.parameters,
            sums["gradients"],
            self.optimizer,
            sums["activations"],
            casts,
            self.inputs,
            sums["temporaries"],
            made,
            self.rank.models,
            brief,
        )

    def forward(self) -> Moment:
        """Return the phase of the head or of the final norm, whichever is larger."""
        rank, stage, run, held = self.rank, self.stage, self.run, self.references
        standing = self.standing
        head = product(stage.last, run.after.burst - run.after.saved - run.after.casts)
        temporaries = (
            ("referred_to", total((held.closure, held.at_loss, held.unsaved_leaf))),
            ("head", head),
            ("last_loss", self.last),
        )
        at_head = self.moment("forward", standing, rank.saved, rank.casts + self.cached, temporaries)
        if not run.layers:
            return at_head
        last = returned_bytes(self.step, stage, stage.high)
        norm = ("final_norm", product(stage.last, total((run.final, last))))
        temporaries = (("referred_to", held.around + held.in_decoder), ("last_loss", self.last), norm)
        return larger(at_head, self.moment("forward", standing, self.before_head, self.casts, temporaries))

    def other_pass(self, peak: Number) -> Moment:
        """Return the phase of a pass without gradients after the forward pass."""
        temporaries = (("referred_to", self.references.closure), ("pass", peak), ("last_loss", self.last))
        return self.moment("forward_only", self.standing, self.rank.saved, self.rank.casts + self.cached, temporaries)

    def first_pass(self, peak: Number) -> Moment:
        """Return the phase of a pass without gradients before those of the trained model: nothing is saved yet."""
        return self.moment("forward_only", self.standing, 0, self.rank.casts + self.cached, (("pass", peak),))

    def bursting(self, peak: LayerPeak) -> Moment:
        """Return the phase of a layer's forward pass."""
        kept, casts = self.before_head - peak.gone, self.casts - peak.later
        memory = where(peak.encodes, 0, self.references.in_decoder)
        around = ("referred_to", self.references.around + memory), ("last_loss", self.last)
        return self.moment("forward", self.standing, kept, casts, (("layer", peak.bursts), *around), peak.left)

    def start(self) -> Moment:
        """Return the phase before the first layer."""
        around = ("referred_to", self.references.around), ("last_loss", self.last)
        return self.moment("forward", self.standing, self.stage.first * self.run.before.saved, 0, around, self.leaked)

    @property
    def outlives(self) -> Number:
        """Return the bytes that outlive the backward pass: a checkpointed leaf and its gradient (zeros for position
        biases, or the embedding's output), and a head's gradient of which another is a view."""
        return total((self.leaves, product(self.stage.last, self.run.undivided)))

    @property
    def leaves(self) -> Number:
        """Return the bytes of checkpointed leaves with their gradients, which a graph holds until its end."""
        woken = product(self.stage.first, 2 * self.run.after.input) if self.step.setup.wakes else 0
        return total((2 * self.references.zeros, woken))

    def at_loss(self) -> Moment:
        """Return the phase of the loss."""
        temporaries = (
            ("referred_to", self.through_backward),
            ("loss", self.losses),
            ("head", product(self.stage.last, self.step.after.peak)),
        )
        saved, casts, gathered = self.rank.saved, self.rank.casts, self.gathered_at_loss
        of_head = product(self.stage.last, self.run.after.saved)
        return self.moment("loss", self.standing, saved, casts, temporaries, gathered=gathered, brief=of_head)

    def backward(self, peak: LayerPeak) -> Moment:
        """Return the phase of a layer's backward pass."""
        gradients = self.gradients
        temporaries = (
            ("referred_to", self.through_backward - self.references.freed_masks(peak.masks)),
            ("added_gradient", gradients.added),
            ("reduced_gradients", gradients.reduced),
            ("loss", self.losses),
            ("leaf", peak.leaf),
            ("shared_between_layers", peak.mapped),
            ("layer", peak.needs),
        )
        kept = self.before_head - peak.gone - peak.shared
        if self.step.setup.framework.reentrant and self.step.setup.implementation.tuning is not None:
            kept = kept + 2 * peak.gone
        casts = self.kept_casts - peak.uncast
        made = (
            *gradients.parts_after(gradients.first + peak.made),
            ("of_layers_to_come", product(peak.waits, self.step.setup.frees_gradients)),
        )
        return self.moment("backward", made, kept, casts, temporaries, peak.left, self.gathered_in_layers)

    @property
    def of_table(self) -> Number:
        """Return the bytes of the gradient of the token embedding on a single stage, 0 if it is frozen."""
        return where(self.step.setup.layout.pp == 1, self.step.weights.table.all * self.gradients.width, 0)

    def at_seam(self, peak: LayerPeak) -> Moment:
        """Return the phase between the backward passes of a decoder and its encoder: the gradient of the decoder's
        embedding is added to a tied head's."""
        return self.backward(replace(peak, needs=peak.seam + self.of_table * (1 + self.step.model.tied)))

    def end_of_backward(self) -> Moment:
        """Return the phase of the backward pass of the operations before the layers."""
        step, rank, stage, run, gradients = self.step, self.rank, self.stage, self.run, self.gradients
        setup = step.setup
        layers = self.parts[1 : 1 + len(step.run.layers)]
        made = gradients.first + total(n * part.gradients(gradients.width) for n, part in layers)
        made = made + StageLayers(step, stage, gradients.width).reused(stage.variants)[0]
        casts = self.kept_casts - total(
            product(n, run.layers[variant.kind][1].casts)
            for n, variant in zip(stage.variants, step.order.variants, strict=True)
            if not (variant.checkpointed or variant.no_grad)
        )
        # the two gradients of a tied embedding are added into a third
        both = self.of_table if step.model.tied else 0
        own = product(both, setup.frees_gradients)  # freed in the replay
        before = maximum(step.before.peak, step.before.end + own + both) * (setup.frozen is None)
        # what layers share has gone with the first of them
        kept = rank.delayed if setup.layout.schedule == "zero-bubble" else stage.first * run.before.saved
        temporaries = (
            ("embedding", stage.first * (run.after.input + before)),
            ("left_gathered", left_gathered(step, self.parts)),
            ("logits", product(stage.last, run.held_logits)),
            ("loss", self.losses),
            ("leaf", 2 * self.references.zeros),
        )
        return self.moment("backward", gradients.parts_after(made), kept, casts, temporaries, self.leaked)

    def optimizer_step(self) -> Moment:
        """Return the phase of the optimizer step."""
        rank = self.rank
        temporaries: Made = (
            ("optimizer_step", optimizer_temporaries(self.step, rank)),
            ("gradient_bucket", rank.bucket),
            ("loss", self.loss),
            ("checkpointed_leaf", self.outlives),
            ("left_by_recomputation", self.leaked),
        )
        gradients: Made = (("computed", rank.gradients), *self.placeholders)
        made = {"gradients": gradients, "temporaries": temporaries}
        of_weights, needed = (total(size for _, size in parts) for parts in made.values())
        return Moment("step", rank.parameters, of_weights, self.optimizer, 0, 0, self.inputs, needed, made, rank.models)

    def between(self) -> tuple[Moment, Moment]:
        """Return the bytes live after the forward pass, and after the backward pass."""
        rank, stage = self.rank, self.stage
        temporaries = (
            ("referred_to", self.references.closure + self.references.unsaved_leaf),
            ("loss", self.loss),
            ("logits", stage.last * self.run.held_logits),
        )
        after_forward = self.moment("forward", self.standing, rank.saved, rank.casts, temporaries)
        after_backward = ("loss", self.loss), ("checkpointed_leaf", self.outlives)
        return after_forward, self.moment("backward", (("new", rank.gradients),), 0, 0, after_backward, self.leaked)


def moments_of(step: PreparedStep, rank: Rank, parts: Parts) -> tuple[tuple[Moment, ...], tuple[Moment, ...]]:
    """Return, for one layout, the phases of a step at which a rank's live bytes can peak, and the bytes between
    phases."""
    moments = Moments(step, rank, parts)
    forward, backward = moments.forward(), moments.moment("backward", (), 0, 0, ())
    if is_array(moments.leaked) or moments.leaked:
        forward = larger(forward, moments.start())
    for peak in layer_peaks(step, rank.stage, moments.gradients.width, moments.gradients.after):
        if not peak.below:
            forward = larger(forward, moments.bursting(peak), peak.valid)
        backward = larger(backward, moments.backward(peak), peak.valid)
        if is_array(peak.seam) or peak.seam:
            backward = larger(backward, moments.at_seam(peak), peak.valid * (peak.seam > 0))
    backward = larger(backward, moments.end_of_backward())
    alone: Number = 0
    if step.setup.forwards:
        from napkin.footprint.other_models import pass_peak

        alone = pass_peak(step, rank.stage)
    others = (moments.other_pass(alone),) if is_array(alone) or alone else ()
    found = forward, *others, moments.at_loss(), backward, moments.optimizer_step()
    return found, () if is_array(forward.live) else moments.between()
