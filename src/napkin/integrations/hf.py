"""The meter in Hugging Face's Trainer (transformers 4.41 and later), and in TRL's, which are Trainers."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any

from transformers import TrainerCallback

from napkin.errors import NapkinError
from napkin.integrations.meter import Meter

TRAINED = ("lora_rank", "adapter", "freeze", "freeze_layers", "quantized")
"""Options that say which weights are trained."""


class TrainerMeter(TrainerCallback):  # type: ignore[misc]
    """Adds tokens per second, MFU, the predicted step and the time left to what the Trainer logs.

        trainer = Trainer(model, args, …, callbacks=[TrainerMeter(hardware="h100", seq=2048)])

    hardware   the accelerator     seq   tokens of a sequence as the batches hold them, padded or packed
    gpus       of the whole job; None: as the Trainer says
    options    those of napkin.Meter; batch, accumulation, precision, optimizer and recomputation are read from the
               TrainingArguments

    Tokens are counted by the Trainer if it does (`include_num_input_tokens_seen`), else taken to be full sequences.
    Evaluation and checkpoints are not part of a step. The numbers are in `meter.last` too, for other loggers.
    """

    def __init__(self, *, hardware: str, seq: int, gpus: int | None = None, **options: object) -> None:
        self.meter: Meter | None = None
        self._hardware, self._seq, self._gpus, self._options = hardware, seq, gpus, options
        self._seen = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Ask for the prediction, and begin the first step."""
        if not state.is_world_process_zero:
            return
        gpus = self._gpus or args.world_size * max(getattr(args, "n_gpu", 1), 1)
        frozen = any(not one.requires_grad for one in model.parameters())
        if frozen and not any(name in self._options for name in TRAINED):
            raise NapkinError(
                "TrainerMeter: not all weights are trained", "say which: lora_rank=16, or freeze_layers=20"
            )
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "training_arguments.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(_launch(args, model), file, default=str)
            options: dict[str, Any] = {"seq": self._seq, "from_": path, **self._options}
            self.meter = Meter(
                model.config.to_dict(), hardware=self._hardware, gpus=gpus, total_steps=state.max_steps, **options
            )
            self.meter.prepare()
        self._seen = state.num_input_tokens_seen
        self.meter.resume_from(state.global_step)
        self.meter.start()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Go on if a pause was not ended by what it was for."""
        self._go_on()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the step; what the Trainer is about to do besides training is a pause."""
        if self.meter is None:
            return
        self._go_on()
        self.meter.step(tokens=self._tokens(args, state))
        if control.should_evaluate or control.should_save:
            self.meter.begin_pause()

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the pause, unless a checkpoint follows."""
        if not control.should_save:
            self._go_on()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the pause."""
        self._go_on()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Add the reading to what is logged, in the Trainer's history too."""
        if self.meter is None or self.meter.last is None or logs is None or "loss" not in logs:
            return
        numbers = {name: float(f"{value:.4g}") for name, value in self.meter.last.to_dict().items()}
        logs.update(numbers)
        if state.log_history and state.log_history[-1].get("step") == state.global_step:
            state.log_history[-1].update(numbers)

    def _go_on(self) -> None:
        if self.meter is not None and self.meter.is_paused:
            self.meter.end_pause()

    def _tokens(self, args: Any, state: Any) -> int:
        """Return the tokens of a step, all GPUs together."""
        if str(getattr(args, "include_num_input_tokens_seen", "no")).lower() in ("no", "false", "none"):
            return int(args.train_batch_size * args.gradient_accumulation_steps * args.world_size * self._seq)
        seen, self._seen = self._seen, int(state.num_input_tokens_seen)
        return self._seen - seen


def _launch(args: Any, model: Any) -> dict[str, object]:
    """Return the Trainer's arguments as its launch files state them, for `from_`."""
    config = model.config
    attention = getattr(config, "_attn_implementation", None)
    named = {"model_name_or_path": getattr(config, "_name_or_path", "") or "model"}
    return {**named, **({"attn_implementation": attention} if attention else {}), **args.to_dict()}
