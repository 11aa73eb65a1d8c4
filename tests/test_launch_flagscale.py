"""FlagScale's YAML: blocks whose inmost keys are Megatron-LM's arguments (flagscale/runner/utils.py)."""

from __future__ import annotations

from pathlib import Path

from napkin.inputs.launch.read import read_launch, reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.syntax import source_of

TRAIN = """
system:
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 4
  sequence_parallel: true
  use_distributed_optimizer: true
  precision: {bf16: true}
  recompute: {recompute_granularity: full, recompute_method: uniform, recompute_num_layers: 1}
model:
  num_layers: 24
  hidden_size: 1024
  num_attention_heads: 16
  swiglu: true
  normalization: RMSNorm
  seq_length: 2048
  micro_batch_size: 1
  global_batch_size: 64
  train_iters: 10
  weight_decay: 0.1
  optimizer: {weight_decay: 0.0, lr_scheduler: {lr: 1.0e-4}}
data:
  data_path: /path
  tokenizer: {tokenizer_type: HFTokenizer, vocab_size: 32000}
"""
EXPERIMENT = """
defaults: [_self_, {train: small}]
experiment:
  exp_name: 70b
  task: {type: train, backend: megatron, entrypoint: flagscale/train/%s.py}
  runner: {backend: torchrun, nnodes: 2, nproc_per_node: 8}
action: run
"""


def reading(text: str) -> Reading:
    return reading_of(source_of(text, "file.yaml"))


def test_the_inmost_keys_of_all_blocks_are_arguments() -> None:
    """The layout and the precision are in another block than the sizes; a name given twice counts once."""
    found = reading(TRAIN)
    values = {name: one.value for name, one in found.inputs.items()}
    expected = {"tp": 2, "pp": 4, "sp": True, "zero": 1, "recompute": "full", "micro-batch": 1, "steps": 10}
    assert {name: values[name] for name in expected} == expected
    assert values["precision"] == "param=bf16,grad=fp32,compute=bf16,state=fp32,master=fp32"
    assert found.shape["vocab"] == 32000
    assert {"model.weight_decay", "model.optimizer.weight_decay"} <= set(found.ignored)
    assert found.inputs["tp"].where == "system.tensor_model_parallel_size"


def test_what_shapes_the_model_is_not_called_irrelevant() -> None:
    found = reading(TRAIN)
    assert "model.normalization" in found.inputs["model"].where
    assert "model.normalization" not in found.ignored


def test_an_experiment_names_its_train_file_and_its_machine(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "small.yaml").write_text(TRAIN)
    (tmp_path / "train.yaml").write_text(EXPERIMENT % "train_gpt")
    found = read_launch(str(tmp_path / "train.yaml"))
    assert (found.inputs["gpus"].value, found.inputs["tp"].value, found.refused) == (16, 2, [])
    (tmp_path / "train.yaml").write_text(EXPERIMENT % "train_rwkv")
    assert [one.key for one in read_launch(str(tmp_path / "train.yaml")).refused] == ["train_rwkv.py"]


def test_what_napkin_does_not_divide_is_refused() -> None:
    for line in ("  peft_type: lora\n", "  hetero: {enable_hetero: true}\n"):
        text = TRAIN.replace("model:\n", f"model:\n{line}")
        assert len(reading(text).refused) == 1
