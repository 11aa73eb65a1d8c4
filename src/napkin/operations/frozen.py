"""What of a network is not trained, and where its backward pass ends: the records. trained.py says how a model is
trained with them; if nothing is frozen, it is not needed."""

from __future__ import annotations

from napkin.operations.implementations import Implementation
from napkin.record import record


@record
class Frozen:
    """What is not trained.

    implementation  its `tuning`: adapters, which freeze all else
    layers          this many first layers of the language model, and the embedding before them; None: not even that
    part            of a multimodal model the last one that is frozen: vision, or projector, with it the tower
    wakes           gradients pass through the frozen layers all the same
    """

    implementation: Implementation
    layers: int | None = None
    part: str = ""
    wakes: bool = False

    @property
    def anything(self) -> bool:
        return self.implementation.tuning is not None or self.layers is not None or self.part != ""


@record
class Reach:
    """Where the backward pass ends.

    untouched  layers, from the first that run, which no gradient reaches: of a vision tower and its projector, images
               in place, an encoder and its end, a decoder
    begins     whether no gradient reaches what the piece after them reads either: it is the first that learns
    """

    untouched: int
    begins: bool
