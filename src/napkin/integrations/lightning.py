"""The meter in Lightning's Trainer (`lightning` or `pytorch_lightning`, 2.0 and later)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback

from napkin.errors import NapkinError
from napkin.integrations.meter import Meter


def input_ids(batch: Any) -> int:
    """Return the tokens of a batch that is a mapping with `input_ids`, or a tensor of token ids, padding included."""
    ids = batch.get("input_ids") if hasattr(batch, "get") else batch
    if not hasattr(ids, "numel"):
        raise NapkinError("LightningMeter: the batch has no input_ids", "tokens=lambda batch: batch[0].numel()")
    return int(ids.numel())


class LightningMeter(Callback):  # type: ignore[misc,unused-ignore]
    """Logs tokens per second, MFU, the predicted step and the time left.

        trainer = Trainer(…, callbacks=[LightningMeter("llama3-8b", hardware="h100", seq=2048, micro_batch=4)])

    model, hardware, options   those of napkin.Meter     gpus   of the whole job; None: as the Trainer says
    tokens    how many tokens of one GPU a batch holds, padding included

    A step ends where `trainer.global_step` moves, so that accumulated gradients are one step. Validation is not part of
    it. The reading is in `meter.last` too.
    """

    def __init__(
        self,
        model: object = None,
        *,
        hardware: str,
        gpus: int | None = None,
        tokens: Callable[[Any], int] = input_ids,
        **options: object,
    ) -> None:
        super().__init__()
        self.meter: Meter | None = None
        self._model, self._hardware, self._gpus, self._options = model, hardware, gpus, options
        self._tokens = tokens
        self._steps = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Ask for the prediction, and begin the first step."""
        options = dict(self._options)
        steps = trainer.estimated_stepping_batches
        if not {"total_steps", "total_tokens"} & options.keys() and 0 < steps < float("inf"):
            options["total_steps"] = int(steps)
        gpus = self._gpus or trainer.world_size
        self.meter = Meter(self._model, hardware=self._hardware, gpus=gpus, **options)  # type: ignore[arg-type]
        self.meter.prepare()
        self._steps = trainer.global_step
        self.meter.resume_from(self._steps)
        self.meter.start()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count a micro-batch, and end the step where the optimizer has stepped."""
        if self.meter is None:
            return
        self.meter.add(self._tokens(batch) * trainer.world_size)
        if trainer.global_step > self._steps:
            self._steps = trainer.global_step
            pl_module.log_dict(self.meter.step().to_dict(), rank_zero_only=True)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Stop the clock."""
        if self.meter is not None and not self.meter.is_paused:
            self.meter.begin_pause()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Go on."""
        if self.meter is not None and self.meter.is_paused:
            self.meter.end_pause()
