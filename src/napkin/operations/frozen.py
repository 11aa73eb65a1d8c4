"""Records of the frozen part of a network and of the end of its backward pass. trained.py applies them to a model;
without frozen parts it is not needed."""

from __future__ import annotations

from napkin.operations.implementations import Implementation
from napkin.record import record


@record
class Frozen:
    """The frozen part of a network.

    implementation  its `tuning`: adapters, which freeze all else
    layers          number of frozen first layers of the language model, with the embedding; None: not even the
                    embedding
    part            of a multimodal model the last one that is frozen: vision, or projector, with it the tower
    wakes           gradients pass through the frozen layers anyway
    head            what is after the layers, the final norm and the head, is frozen
    """

    implementation: Implementation
    layers: int | None = None
    part: str = ""
    wakes: bool = False
    head: bool = False

    @property
    def anything(self) -> bool:
        parts = self.layers is not None or self.part != "" or self.head
        return parts or self.implementation.tuning is not None


@record
class Reach:
    """Where the backward pass ends.

    untouched  layers, from the first that run, which no gradient reaches: of a vision tower and its projector, images
               in place, an encoder and its end, a decoder
    begins     whether the section after them is the first trained one, so that no gradient reaches its input
    """

    untouched: int
    begins: bool
