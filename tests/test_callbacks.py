"""Callbacks of training libraries: with the library on a toy model if it is installed (`make environments` does),
and in any case with a stand-in that calls the hooks in the library's order."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from typing import Any

import pytest

from napkin import NapkinError

HAS_TRANSFORMERS, HAS_LIGHTNING = (
    all(importlib.util.find_spec(name) is not None for name in names)
    for names in (("transformers", "torch", "accelerate"), ("lightning", "torch"))
)
TOY = {"model_type": "gpt2", "vocab_size": 128, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64}


class Weight:
    """A parameter that is trained, or not."""

    def __init__(self, trained: bool = True) -> None:
        self.requires_grad = trained


def toy(trained: bool = True) -> Any:
    config = types.SimpleNamespace(to_dict=lambda: TOY, _name_or_path="", _attn_implementation="sdpa")
    return types.SimpleNamespace(config=config, parameters=lambda: [Weight(trained), Weight()])


def arguments(**more: Any) -> Any:
    """TrainingArguments of 2 × 3 sequences on one GPU."""
    stated = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3, "bf16": True, "max_steps": 12, **more}
    counted = stated.pop("include_num_input_tokens_seen", "no")
    batch = {"train_batch_size": 2, "gradient_accumulation_steps": 3, "world_size": 1, "n_gpu": 1}
    return types.SimpleNamespace(
        **batch, include_num_input_tokens_seen=counted, to_dict=lambda: json.loads(json.dumps(stated))
    )


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def stand_in(monkeypatch: pytest.MonkeyPatch, library: str, module: str, **names: Any) -> Any:
    """Import a callback with a stand-in for its library."""
    parts = library.split(".")
    for at in range(len(parts)):
        monkeypatch.setitem(sys.modules, ".".join(parts[: at + 1]), types.ModuleType(library))
    for name, value in names.items():
        setattr(sys.modules[library], name, value)
    monkeypatch.setitem(sys.modules, module, types.ModuleType(module))  # what is imported now is forgotten again
    del sys.modules[module]
    return importlib.import_module(module)


def trained_by(callback: Any, args: Any, clock: Clock, model: Any) -> Any:
    """Call the hooks as transformers.Trainer does: twelve steps of 0.5 s, an evaluation and a checkpoint after four."""
    control = types.SimpleNamespace(should_evaluate=False, should_save=False)
    state = types.SimpleNamespace(
        max_steps=12, global_step=0, num_input_tokens_seen=0, is_world_process_zero=True, log_history=[]
    )
    callback.on_train_begin(args, state, control, model=model)
    for step in range(1, 13):
        callback.on_step_begin(args, state, control)
        clock.now += 0.5
        state.global_step, state.num_input_tokens_seen = step, step * 2 * 3 * 60
        control.should_evaluate = control.should_save = step % 4 == 0
        callback.on_step_end(args, state, control)
        if step % 4 == 0:
            logs = {"loss": 4.0}
            state.log_history.append({**logs, "step": step})
            callback.on_log(args, state, control, logs=logs)
            clock.now += 100
            callback.on_evaluate(args, state, control)
            clock.now += 100
            callback.on_save(args, state, control)
    return state


def test_the_trainer_s_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    hf = stand_in(monkeypatch, "transformers", "napkin.integrations.hf", TrainerCallback=object)
    clock = Clock()
    callback = hf.TrainerMeter(hardware="h100", seq=64, clock=clock, warm_up=2)
    state = trained_by(callback, arguments(), clock, toy())
    reading = callback.meter.last
    assert (reading.step, reading.tokens) == (12, 12 * 2 * 3 * 64)
    assert reading.step_seconds == 0.5  # evaluation and checkpoints are left out
    assert reading.deviation == 0.5 / reading.predicted
    assert reading.seconds_left == 0
    last = state.log_history[-1]
    assert last["loss"] == 4.0
    assert last["tokens_per_second"] == float(f"{2 * 3 * 64 / 0.5:.4g}")
    assert last["mfu"] == float(f"{reading.mfu:.4g}")
    counted = hf.TrainerMeter(hardware="h100", seq=64, clock=clock, warm_up=2)
    trained_by(counted, arguments(include_num_input_tokens_seen="all"), clock, toy())
    assert counted.meter.last.tokens == 12 * 2 * 3 * 60


def test_the_meter_refuses_frozen_weights_without_options_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    hf = stand_in(monkeypatch, "transformers", "napkin.integrations.hf", TrainerCallback=object)
    with pytest.raises(NapkinError, match="not all weights are trained"):
        trained_by(hf.TrainerMeter(hardware="h100", seq=64), arguments(), Clock(), toy(trained=False))
    with_adapter = hf.TrainerMeter(hardware="h100", seq=64, lora_rank=4, clock=Clock())
    trained_by(with_adapter, arguments(), Clock(), toy(trained=False))


def test_lightning_s_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    own = stand_in(
        monkeypatch, "lightning.pytorch.callbacks", "napkin.integrations.lightning", Callback=type("Callback", (), {})
    )
    clock, logged = Clock(), []
    callback = own.LightningMeter(TOY, hardware="h100", seq=64, micro_batch=2, clock=clock, warm_up=2)
    trainer = types.SimpleNamespace(estimated_stepping_batches=12, world_size=1, global_step=0)
    module = types.SimpleNamespace(log_dict=lambda numbers, **_: logged.append(numbers))
    batch = types.SimpleNamespace(numel=lambda: 2 * 64)
    callback.on_validation_start(trainer, module)  # the sanity check comes before training
    callback.on_validation_end(trainer, module)
    callback.on_train_start(trainer, module)
    for at in range(24):
        clock.now += 0.25
        trainer.global_step = (at + 1) // 2
        callback.on_train_batch_end(trainer, module, None, batch, at)
        if at == 15:
            callback.on_validation_start(trainer, module)
            clock.now += 100
            callback.on_validation_end(trainer, module)
    reading = callback.meter.last
    assert (reading.step, reading.tokens, reading.step_seconds) == (12, 24 * 128, 0.5)
    assert len(logged) == 12
    assert logged[-1]["mfu"] == reading.mfu
    with pytest.raises(NapkinError, match="no input_ids"):
        own.input_ids([1, 2])


@pytest.mark.skipif(
    not HAS_TRANSFORMERS, reason="transformers and torch are not installed: `make environments` runs this next to them"
)
def test_with_transformers_on_a_toy_model(tmp_path: Any) -> None:
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    from napkin.integrations.hf import TrainerMeter

    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**TOY))
    rows = [{"input_ids": torch.arange(64), "labels": torch.arange(64)} for _ in range(64)]
    args = transformers.TrainingArguments(
        output_dir=str(tmp_path), per_device_train_batch_size=2, gradient_accumulation_steps=2, max_steps=8,
        use_cpu=True, report_to=[], logging_steps=4, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    callback = TrainerMeter(hardware="h100", seq=64, gpus=1, warm_up=2)
    trainer = transformers.Trainer(model, args, train_dataset=rows, callbacks=[callback])
    trainer.train()
    assert callback.meter is not None
    reading = callback.meter.last
    assert reading is not None
    assert (reading.step, reading.tokens) == (8, 8 * 2 * 2 * 64)
    assert reading.deviation == (reading.step_seconds or 0) / (reading.predicted or 0)
    logged = [row for row in trainer.state.log_history if "loss" in row]
    assert all("tokens_per_second" in row for row in logged)


@pytest.mark.filterwarnings("default")  # those of the library
@pytest.mark.skipif(not HAS_LIGHTNING, reason="lightning is not installed: `make environments` runs this next to it")
def test_with_lightning_on_a_toy_model() -> None:
    torch, lightning = importlib.import_module("torch"), importlib.import_module("lightning.pytorch")
    from napkin.integrations.lightning import LightningMeter

    class Toy(lightning.LightningModule):  # type: ignore[misc,name-defined,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = torch.nn.Embedding(128, 32), torch.nn.Linear(32, 128)

        def training_step(self, batch: Any, at: int) -> Any:
            logits = self.head(self.table(batch))
            return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.flatten())

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters())

    loader = torch.utils.data.DataLoader(torch.randint(0, 128, (64, 64)), batch_size=2)
    callback = LightningMeter(TOY, hardware="h100", seq=64, micro_batch=2, warm_up=2)
    trainer = lightning.Trainer(
        max_steps=8, accumulate_grad_batches=2, callbacks=[callback], accelerator="cpu", devices=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Toy(), loader)
    assert callback.meter is not None
    reading = callback.meter.last
    assert reading is not None
    assert (reading.step, reading.tokens) == (8, 8 * 2 * 2 * 64)
    assert trainer.callback_metrics["tokens_per_second"] == pytest.approx(reading.tokens_per_second)
