"""How a training step is laid out and computed: the inputs of its time.

StepLayout has all fields; the records that it is made of have one subject each and explain its fields. Every field is a
number, or one number per layout, but for those that say otherwise.
"""

from __future__ import annotations

from napkin.elementwise import Number, where
from napkin.record import record, replace
from napkin.training.optimizer_work import Works

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import KW_ONLY

    from napkin.operations.model import Model

IDLE = {"zero-bubble": 1 / 3}
"""Pipeline schedule → share of the plain pipeline's idle slots that it leaves, 1 for the others: weight gradients fill
two thirds of them under zero bubble (ZB-H1: Qi et al. 2023, arXiv:2401.10241)."""


@record
class ParallelDegrees:
    """How many ranks divide what.

    tp, pp, vp, cp, ep, dp  ranks of each kind of parallelism, and model chunks per pipeline stage
    etp                 ranks over which each expert's width is divided
    zero                ZeRO stage
    shards              ranks over which ZeRO shards weights or states (less than dp·cp with replicas, HSDP; 0: all that
                        hold the same weights)
    exchanges           1 where context-parallel ranks exchange heads for tokens, in place of passing keys and values on
    """

    _: KW_ONLY
    tp: Number = 1
    pp: Number = 1
    vp: Number = 1
    cp: Number = 1
    ep: Number = 1
    etp: Number = 1
    dp: Number = 1
    zero: Number = 0
    shards: Number = 0
    exchanges: Number = 0


@record
class StreamDivision:
    """The stream between layers, over tensor-parallel ranks.

    sequence_parallel   1 where each rank has a part of the tokens between the divided layers
    gathers_inputs      1 where, with sequence parallelism, each rank keeps its part of what a column-parallel layer
                        reads, and gathers it once more for the gradient of its weight
    splits_boundary     1 where each tensor-parallel rank sends its part of what passes between pipeline stages, and
                        gathers the rest on arrival, although the stream between layers is whole on each
    """

    _: KW_ONLY
    sequence_parallel: Number = 0
    gathers_inputs: Number = 0
    splits_boundary: Number = 0


@record
class PipelineStages:
    """The stages of a pipeline.

    idle                share of the plain pipeline's idle slots that the schedule leaves (IDLE)
    layers_before, layers_last
                        layers of the fullest stage before the last one and of the last, if they are assigned by hand
                        (0: ⌈L/p⌉, and what is left)
    """

    _: KW_ONLY
    idle: Number = 1
    layers_before: Number = 0
    layers_last: Number = 0


@record
class Recomputed:
    """What runs again in backward.

    layers_recomputed   share of the layers
    attention_recomputed, products_recomputed
                        1 if the attention core alone runs again; share of the linear layers' forward matmuls that do
    experts_recomputed  1 where routed experts also run again, without their exchange
    parts_recomputed    parts of each layer, besides the attention core, that run again (operations/recomputed_parts.py)
    """

    _: KW_ONLY
    layers_recomputed: Number = 0
    attention_recomputed: Number = 0
    products_recomputed: Number = 0
    experts_recomputed: Number = 0
    parts_recomputed: tuple[str, ...] = ()


@record
class LayerKernels:
    """The kernels of a layer, and the formats that they compute in.

    flash               1 for a fused attention kernel, 0 if the scores are written to memory
    masked              1 where that kernel reads an explicit mask, and so computes all pairs
    lanes               size to whose multiples the fused attention kernel pads heads; 1: it pads none
    elementary          1 where norms and rotary embeddings run as the elementary kernels of a reference class
    low                 1 where linear layers multiply 8- or 4-bit numbers (their inputs are cast first)
    casts               traffic of casting over the usual: 2 where every row has a scale of its own in both directions
    wide_stream         1 where autocast over fp32 weights keeps the residual stream and its norms in fp32
    frozen_casts        bytes moved per frozen weight of a linear layer that autocast casts in every pass
    branched            1 where the kernel that expands NF4 weights decides by conditions, not by a table
    """

    _: KW_ONLY
    flash: Number = 1
    masked: Number = 0
    lanes: Number = 1
    elementary: Number = 0
    low: Number = 0
    casts: Number = 1
    wide_stream: Number = 0
    frozen_casts: Number = 0
    branched: Number = 0


@record
class ExpertRouting:
    """How routed experts get their tokens, and run.

    expert_load         rows of the experts on the fullest rank, over those of tokens that spread evenly
    sends_copies        1 where the all-to-all takes a token to each of its experts by itself, 0 where once to each node
    one_hot             1 where matmuls with one-hot masks, over a sequence's tokens and all slots, take tokens to their
                        experts and back
    shared_tile         rows of a tile of the experts' product that runs again for each expert that begins inside it, 0
                        where every expert has tiles of its own
    looped              1 where experts run one after the other, each as a linear layer of its own
    stacked             1 where each of these takes its weights out of one tensor of all experts' by its index
    unrouted            1 where every expert runs every token
    """

    _: KW_ONLY
    expert_load: Number = 1
    sends_copies: Number = 0
    one_hot: Number = 0
    shared_tile: Number = 0
    looped: Number = 0
    stacked: Number = 0
    unrouted: Number = 0


@record
class ParameterUpdate:
    """What the optimizer and the collectives move of a parameter.

    gradient_bytes      bytes of one gradient element as it is reduced
    gathered_bytes      bytes of one trained parameter as ranks gather it    frozen_bytes  of one that is not trained
    optimizer_bytes     bytes that the optimizer moves per parameter of its own part
    works               the optimizer's matrix operations, None if it works element by element
    works_on_tables     1 if these include the embedding and the head
    """

    _: KW_ONLY
    gradient_bytes: Number = 4
    gathered_bytes: Number = 2
    frozen_bytes: Number = 2
    optimizer_bytes: Number = 30
    works: Works | None = None
    works_on_tables: Number = 0


@record
class GatheredUnits:
    """What FSDP and ZeRO gather or reduce by a collective of its own.

    gathers_layers, gathers_adapters, gathers_modules
                        1 where each layer, each matrix of an adapter, and each module with weights, is gathered by
                        itself
    reduces_tensors     1 where ZeRO-1 scatters and gathers each weight's tensor by a collective of its own
    gathers_again       1 where recomputation gathers them once more, 0 where they stay until the backward pass ends
    gathers_late        1 where layers that run again are gathered once more, and none before it is needed
    """

    _: KW_ONLY
    gathers_layers: Number = 0
    gathers_adapters: Number = 0
    gathers_modules: Number = 0
    reduces_tensors: Number = 0
    gathers_again: Number = 1
    gathers_late: Number = 0


@record
class HostLink:
    """What moves between a GPU and its host.

    host                whose kernel updates the optimizer's states on the host: 0 none (each GPU does), 1 a fused one,
                        2 torch's element by element
    fetched_bytes       bytes of a trained parameter that each pass reads from the host, 0 where the GPU holds them
    returned_bytes      bytes of a gradient that goes to the host, 0 where the GPU updates: in each backward pass with
                        fetched_bytes, else in the last one
    stashes             1 where the inputs of layers that run again wait on the host
    """

    _: KW_ONLY
    host: Number = 0
    fetched_bytes: Number = 0
    returned_bytes: Number = 0
    stashes: Number = 0

    @property
    def moves(self) -> Number:
        """More than 0 where a step copies parameters, gradients or activations between a GPU and its host."""
        return self.fetched_bytes + self.returned_bytes + self.stashes


@record
class LossInParts:
    """A loss that computes the logits of some tokens at a time.

    loss_parts          parts of the tokens for which the loss computes the logits again in backward, 0 if it does not
    head_copied, head_copied_back
                        bytes moved per element of the head's weight for each of these, forward and backward
    head_gathers        all-gathers of the head's weight in a micro-batch in addition to one in each pass
    """

    _: KW_ONLY
    loss_parts: Number = 0
    head_copied: Number = 0
    head_copied_back: Number = 0
    head_gathers: Number = 0


@record
class StepLayout(
    ParallelDegrees,
    StreamDivision,
    PipelineStages,
    Recomputed,
    LayerKernels,
    ExpertRouting,
    ParameterUpdate,
    GatheredUnits,
    HostLink,
    LossInParts,
):
    """How a step is laid out and computed: its sequences, and all that the records above say.

    sequence            tokens of a sequence    micro_batch  sequences of a micro-batch on each data-parallel rank
    micro_batches       micro-batches of a step on each of them
    target, source      tokens of the decoder's sequences and of those that its cross-attention reads, in an
                        encoder-decoder (0: `sequence`)
    uneven              mean square of the lengths of sequences over the square of their mean
    images, tower_tokens, image_tokens
                        images in a sequence, and of one of them the tokens of the tower and those that the language
                        model sees
    """

    sequence: Number
    micro_batch: Number
    micro_batches: Number
    _: KW_ONLY
    target: Number = 0
    source: Number = 0
    uneven: Number = 1
    images: Number = 0
    tower_tokens: Number = 1
    image_tokens: Number = 1

    @property
    def regathers(self) -> Number:
        """Passes that gather a layer under ZeRO-3 in addition to the forward and the backward pass."""
        return self.gathers_late * self.layers_recomputed

    @property
    def keys(self) -> Number:
        """Tokens of a sequence that cross-attention reads."""
        return where(self.source > 0, self.source, self.sequence)

    def over_images(self, length: Number) -> StepLayout:
        """Return the layout over the images, of `length` tokens each; every rank of a sequence processes them in
        full."""
        images = self.micro_batch * self.images
        return replace(self, sequence=length, micro_batch=images, cp=1, sequence_parallel=0, masked=0, uneven=1)

    def inside(self, model: Model) -> StepLayout:
        """Return the layout over the tokens of a model's first stack, with those that its class adds."""
        return replace(self, sequence=self.sequence + model.added(self.sequence))

    def decoding(self) -> StepLayout:
        """Return the layout over the decoder's sequences, of an encoder-decoder."""
        return replace(self, sequence=where(self.target > 0, self.target, self.sequence), source=self.sequence)
