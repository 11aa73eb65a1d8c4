"""ArcticTraining's YAML, written by hand from its configuration classes."""

from __future__ import annotations

from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.stated import ASSUMED, DEFAULT
from napkin.inputs.launch.syntax import source_of

MODEL = "model: {name_or_path: meta-llama/Llama-3.1-8B-Instruct%s}\n"
DATA = "data: {sources: [{type: huggingface_instruct, name_or_path: a/b}], max_length: 32_000}\n"


def read(text: str, model: str = "", data: str = DATA) -> Reading:
    """Return the reading of a configuration."""
    return reading_of(source_of(f"type: sft\n{MODEL % model}{data}{text}", "run.yml"))


def values(reading: Reading, *options: str) -> list[object]:
    """Return the values of options."""
    return [reading.value_of(option) for option in options]


def test_defaults() -> None:
    reading = read("")
    assert values(reading, "model", "task", "seq", "micro-batch") == ["llama3.1-8b", "sft", 32_000, 1]
    assert values(reading, "framework", "zero", "precision", "recompute") == ["deepspeed", 2, "bf16-mixed", "full"]
    assert values(reading, "epochs", "loss", "optimizer") == [1, "torch", "adamw"]
    assert {reading.inputs[one].origin for one in ("zero", "precision", "recompute", "epochs")} == {DEFAULT}
    assert not reading.not_modelled


def test_long_sequences() -> None:
    text = (
        "sequence_parallel_size: 16\nactivation_checkpoint_cpu_offload: true\nexit_iteration: 300\n"
        "deepspeed: {zero_optimization: {stage: 3, offload_optimizer: {device: cpu}}}\noptimizer: {type: cpu_adam}\n"
    )
    fused = read(text, ", type: liger")
    assert values(fused, "ulysses", "zero", "offload", "steps") == [16, 3, "optimizer,activations", 300]
    assert values(fused, "loss", "kernels", "epochs") == ["fused", "liger", None]
    plain = read(text)
    assert plain.value_of("loss") == "chunked-recomputed"
    assert plain.inputs["loss"].origin == ASSUMED


def test_adapters() -> None:
    peft = ", peft_config: {peft_type: LORA, r: 16, lora_dropout: 0.1, target_modules: [q_proj, v_proj]}"
    reading = read("", peft)
    assert values(reading, "adapter", "lora-rank", "lora-targets", "lora-dropout") == ["lora", 16, "q,v", 0.1]
    assert str(reading.value_of("precision")).startswith("frozen=bf16")


def test_other_trainers_and_optimizers_are_refused() -> None:
    text = f"type: arctic-lstm-speculator\n{MODEL % ''}{DATA}optimizer: {{type: muon9}}\n"
    reading = reading_of(source_of(text, "run.yml"))
    assert {one.key for one in reading.refused} == {"type", "optimizer.type"}
