"""What the layers of a stack are called with: the stream, the encoder's output, and what their class passes besides."""

from __future__ import annotations

from napkin.autograd.tape import Tape
from napkin.autograd.tensors import INPUT_LABEL, Storage, Tensor
from napkin.elementwise import Number, ceil_div
from napkin.operations.implementations import ANGLES, PADDING, PAIRS, POSITION_IDS, Implementation
from napkin.operations.shapes import Shape, Split, Value

ARGUMENTS = (POSITION_IDS, PADDING, PAIRS)
"""Of what a class passes to its layers, what no gradient passes through and what is not a causal mask."""
ENCODED = "encoder's output"
"""Label of the encoder's output, one tensor that all layers of a decoder read."""


class StackInputs:
    """Makes these tensors on a tape, for one micro-batch on one rank, and notes which of them a layer takes."""

    def __init__(self, tape: Tape, implementation: Implementation, shape: Shape, split: Split) -> None:
        self.tape = tape
        self.implementation = implementation
        self.split = split
        self.stack = 0
        self.arguments: dict[int, Storage] = {}
        self.over(shape)

    def over(self, shape: Shape, implementation: Implementation | None = None, split: Split | None = None) -> None:
        """Switch to another stack's sequences, with cos and sin of their own, and to how it is run and divided."""
        self.stack += 1
        self.implementation = implementation or self.implementation
        self.split = split or self.split
        self.b = shape.sequences
        self.given, self.block = shape.length, shape.block
        self.to_length()
        self.source = shape.source
        self.scored = shape.scored
        self.encoded: Tensor | None = None
        self.memory = ""
        self.passed = {name: self._argument(name) for name in self.implementation.passes if name in ARGUMENTS}

    def to_length(self) -> None:
        """Go on with the tokens that the sequences have."""
        self._go_on(self.given)

    def to_blocks(self) -> None:
        """Go on with sequences that are padded to whole blocks."""
        self._go_on(self.blocks_of(self.given))

    def blocks_of(self, length: Number) -> Number:
        """Return a length padded to whole blocks."""
        return ceil_div(length, self.block) * self.block

    def _go_on(self, length: Number) -> None:
        self.s, self.own = length, length // self.split.context
        self.tokens = self.b * self.own

    def score(self) -> None:
        """Go on with the tokens alone of which logits are made: the head reads a view of the others."""
        if self.scored:
            self._go_on(self.scored)

    def _argument(self, name: str) -> Tensor:
        """Return what the class passes to each layer and no gradient passes through, one tensor for all layers."""
        stored = "fp32" if self.tape.autocast else self.tape.compute
        count, dtype = {
            POSITION_IDS: (self.own, "int64"),
            PADDING: (self.b * self.own * (not self.source), stored),
            PAIRS: (self.b * self.own * self.s, "fp32"),
        }[name]
        given = self.tape.given(count, dtype, name, no_grad=True)
        given.storage.shared = True
        return given

    def takes_angles(self, count: Number, dtype: str) -> None:
        """Note that the layer is called with sines and cosines of `count` elements, where its class passes them."""
        if ANGLES not in self.implementation.passes:
            return
        if ANGLES not in self.passed:
            self.passed[ANGLES] = self.tape.given(count, dtype, ANGLES, no_grad=True)
            self.passed[ANGLES].storage.shared = True
        self.takes(self.passed[ANGLES])

    def takes(self, tensor: Tensor) -> None:
        """Note that the layer that runs is called with a tensor next to the stream, which its checkpoint keeps."""
        self.arguments |= {id(storage): storage for _, storage in tensor.storages}

    def reads_encoder(self, name: str, width: Number, dtype: str) -> None:
        """Provide the encoder's output, which the following layers share and read by this name."""
        self.memory = name
        self.encoded = self.tape.given(self.b * (self.source // self.split.context) * width, dtype, ENCODED)
        self.encoded.storage.shared = True

    def residual(self, width: Number, dtype: str) -> Value:
        """Return a layer's input: the residual stream."""
        count = self.tokens // self.split.sequence * width
        return Value(self.tape.given(count, dtype, INPUT_LABEL), width)

    def rows_of(self, how: str) -> Number:
        """Return the rows of position ids, or of cos and sin: one per sequence, or one for all."""
        return self.b if how in ("each", "learned") or (how == "source" and not self.source) else 1
