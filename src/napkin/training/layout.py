"""How the work of a run is divided over GPUs: its parallelism and batch."""

from __future__ import annotations

from napkin.elementwise import Number, maximum, where
from napkin.record import record, replace
from napkin.training.recomputation import Recompute

Stages = tuple[tuple[int, int], ...]
"""Pipeline stages in order, as (number of stages, layers of each)."""


def joined(stages: Stages) -> Stages:
    """Return the same stages in as few runs as possible, without empty runs."""
    found: list[tuple[int, int]] = []
    for count, layers in stages:
        if found and found[-1][1] == layers:
            found[-1] = (found[-1][0] + count, layers)
        elif count:
            found.append((count, layers))
    return tuple(found)


def held_by(stages: Stages, index: int) -> tuple[int, int]:
    """Return the first layer of stage `index` and the one after its last."""
    low = 0
    for count, layers in stages:
        if index < count:
            return low + index * layers, low + (index + 1) * layers
        low, index = low + count * layers, index - count
    return low, low


def with_experts(ranks: Number, tp: Number, ep: Number, etp: Number) -> Number:
    """Return, of n ranks with the same dense weights, the number with the same experts: t·n/(e·etp) (Megatron-core
    parallel_state.py, expert_data_parallel_size)."""
    return maximum(ranks * tp // (ep * etp), 1)


@record
class Layout:
    """Parallelism and batch. Every field except stages may be an array with one entry per layout.

    tp pp dp cp ep etp   tensor, pipeline, data, context, expert and expert-tensor parallel degrees: ep·etp divides
              the tp·cp·dp ranks of a stage
    vp        model chunks a stage (1: none)      sp  sequence parallelism (0 or 1)     zero  ZeRO stage 0..3
    micro     samples in one forward pass         micro_batches  forward passes of one rank in one step
    rows      sequences of a sample: 2 for a preferred and a rejected answer
    seq       tokens in a sequence                target  tokens of the decoder's, in an encoder-decoder (0: the same)
    uneven    mean square of the lengths of sequences over the square of their mean, `seq`
    scored    number of last tokens of a sequence with logits (0: all)
    images    in a sequence                         image_tokens  tokens of one in the language model (0: as the config
              says)
    stages    layers of each pipeline stage, if assigned by hand
    ulysses   context-parallel ranks exchange heads for tokens in attention, in place of passing keys and values on
    imbalance tokens of the fullest expert-parallel rank over the mean
    capacity  slots of each expert, padded, over the mean of its tokens (0: as many as it has tokens)
    """

    seq: Number
    micro: Number = 1
    rows: int = 1
    micro_batches: Number = 1
    tp: Number = 1
    pp: Number = 1
    dp: Number = 1
    cp: Number = 1
    ep: Number = 1
    etp: Number = 1
    vp: Number = 1
    sp: Number = 0
    zero: Number = 0
    target: Number = 0
    uneven: float = 1
    scored: int = 0
    images: int = 0
    image_tokens: int = 0
    schedule: str = "1f1b"
    recompute: Recompute = Recompute()
    stages: Stages = ()
    ulysses: bool = False
    imbalance: float = 1
    capacity: float = 0

    @property
    def expert_load(self) -> Number:
        """Rows of the experts on the fullest rank, over those of tokens that spread evenly."""
        if self.capacity:
            return self.capacity
        return 1 if self.imbalance == 1 else where(self.ep > 1, self.imbalance, 1)

    @property
    def gpus(self) -> Number:
        return self.tp * self.pp * self.dp * self.cp

    @property
    def sequences(self) -> Number:
        """Sequences in one forward pass."""
        return self.micro * self.rows

    @property
    def global_samples(self) -> Number:
        """Samples in one optimizer step: what --global-batch counts."""
        return self.micro * self.micro_batches * self.dp

    @property
    def global_batch(self) -> Number:
        """Sequences in one optimizer step."""
        return self.global_samples * self.rows

    def with_experts(self, ranks: Number) -> Number:
        """Return, of ranks with the same dense weights, the number with the same experts."""
        return with_experts(ranks, self.tp, self.ep, self.etp)

    def replaced(self, **changes: object) -> Layout:
        return replace(self, **changes)
