"""Read the sequence length of TrainingArguments and of programs of one's own with them."""

from __future__ import annotations

from napkin.inputs.launch.hf.names import LENGTHS
from napkin.inputs.launch.hf.trl import is_assumed, is_trl
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.values import whole
from napkin.inputs.presets import is_preset, preset

HALVES = (
    ("max_source_length", "max_target_length"),
    ("source_max_len", "target_max_len"),
    ("max_input_length", "max_output_length"),
)
"""Prompt and response, or source and target of an encoder-decoder (the second is qlora.py's); run_summarization.py is
refused."""


def seq(reading: Reading) -> None:
    """Read the sequence length: prompt + completion for tasks that generate samples."""
    if reading.value_of("task") in ("grpo", "rloo"):
        prompt = reading.read("max_prompt_length", whole)
        answer = reading.read("max_completion_length", whole)
        if "max_prompt_length" in reading.source and prompt is None:
            reading.ask("seq", "max_prompt_length", "max_completion_length")
        elif prompt or answer:
            keys = ("max_prompt_length", "max_completion_length")
            total = (prompt or 512) + (answer or 256)
            reading.derive("seq", total, *keys) if prompt and answer else reading.default("seq", total, *keys)
        return
    parts = ("max_prompt_length", "max_response_length")
    if reading.source.has_all(*parts):  # of a program of one's own that generates: TRL's second part is its completion
        lengths = [reading.read(key, whole) or 0 for key in parts]
        reading.derive("seq", sum(lengths) if all(lengths) else None, *parts)
        return
    if stated := [key for key in LENGTHS if key in reading.source]:
        if reading.take("seq", "|".join(stated), whole):
            reading.told("max_prompt_length", "max_completion_length")
        else:
            reading.ask("seq", stated[0])
        return
    for keys in HALVES:
        halves = [reading.read(key, whole) for key in keys]
        if all(halves) and _has_decoder(reading.value_of("model")):
            reading.put("seq", halves[0], keys[0])
            reading.put("target-seq", halves[1], keys[1])
            return
        if all(halves):
            reading.derive("seq", sum(one or 0 for one in halves), *keys)
            return
    if is_trl(reading) and is_assumed(reading.source):
        reading.ask("seq", "max_length")
    elif is_trl(reading):
        reading.default("seq", 1024, "max_length")
    else:  # the program's own, which it does not name
        reading.ask("seq", "max_length")


def _has_decoder(model: object) -> bool:
    """Return whether a preset is an encoder-decoder, whose decoder reads a sequence of its own."""
    config = preset(str(model)).config if is_preset(str(model)) else {}
    return any(key in config for key in ("num_decoder_layers", "decoder_layers")) or bool(
        config.get("is_encoder_decoder")
    )
