"""Shapes of a run on the tape: a micro-batch, its division over ranks, and the outputs of operations."""

from __future__ import annotations

from napkin.autograd.tensors import Tensor
from napkin.elementwise import Number, ceil_div, ceiling
from napkin.record import record


@record
class Split:
    """How a layer is divided over ranks.

    tensor, context, expert  sizes of the parallel groups
    sequence  ranks that divide the tokens outside of tensor-parallel regions (sequence parallelism); 1 if it is off
    inner     ranks that divide each expert's width (expert tensor parallelism)
    exchanges context-parallel ranks exchange heads for tokens before attention and after it (Ulysses)
    load      rows of a rank's experts over those of tokens that spread evenly, without room that is padded"""

    tensor: Number = 1
    context: Number = 1
    expert: Number = 1
    sequence: Number = 1
    inner: Number = 1
    load: Number = 1
    exchanges: bool = False

    def rows(self, chosen: Number) -> Number:
        """Return the rows that a rank's experts process of those that tokens spread evenly would make."""
        return ceiling(chosen * self.load)

    def sent(self, tokens: Number) -> Number:
        """Return the tokens for the experts of a rank that holds `tokens` tokens between layers.

        Tensor-parallel ranks divide them, and those that divide an expert gather theirs (Megatron-core,
        transformer/moe/token_dispatcher.py)."""
        return ceil_div(tokens * self.sequence * self.inner, self.tensor)


@record
class Shape:
    """A micro-batch: `sequences` of `length` tokens.

    source   length of the encoder's sequences; 0 without an encoder
    scored   number of last tokens of each sequence with logits; 0: all
    block    layers run over sequences padded to a multiple of this
    images   over all sequences
    lengths  of one of them: its patches, the tokens of the tower, those of the language model
    """

    sequences: Number
    length: Number
    source: Number = 0
    images: Number = 0
    lengths: tuple[int, int, int] = (1, 1, 1)
    scored: int = 0
    block: int = 1


@record
class Value:
    """An operation's output.

    width        elements per token before any division
    divided      over tensor-parallel ranks
    gathered     has all tokens of the sequence-parallel group
    heads_first  [batch, heads, seq, head_dim] in memory"""

    tensor: Tensor
    width: Number
    divided: bool = False
    gathered: bool = False
    heads_first: bool = False
