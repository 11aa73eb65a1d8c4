"""`flops matmul`, `mfu matmul`, `memory linear`: words in the place of a model, and the options they take."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.errors import NapkinError, did_you_mean
from napkin.options.files import DRAWS
from napkin.options.machine import FIGURES
from napkin.options.output import COMMON
from napkin.options.small import LINEAR_OPTIONS
from napkin.render.answer import Answer

LINEAR = ("batch", "widths", "width", "depth")
TAKES: dict[str, dict[str, tuple[str, ...]]] = {
    "flops": {"matmul": ("size", "batch"), "linear": LINEAR},
    "mfu": {"matmul": ("size", "batch", "time", "dtype", "hardware", "hardware-file", *FIGURES)},
    "memory": {"linear": (*LINEAR, "precision", "optimizer", "optimizer-form")},
}
"""Command → word → the inputs that it reads. Others are refused rather than ignored."""


def run_single(inputs: Inputs) -> Answer | None:
    """Return the answer where MODEL is matmul or linear; None where it is a model."""
    words = TAKES[inputs.command.name]
    word = inputs.text("model", f"a model, or {' or '.join(words)}").strip().lower()
    if word not in words:
        for name in ("size", *LINEAR_OPTIONS):
            if name in inputs:
                shown = f"the shape {inputs.text(name)}" if name == "size" else f"--{name}"
                raise NapkinError(
                    f"{shown} belongs to {' or '.join(words)}, not to a model",
                    did_you_mean(word, words) or f"napkin {inputs.command.name} {next(iter(words))} …",
                )
        return None
    for name in inputs.shown:
        if name in inputs and name not in (*words[word], "model", *COMMON, *DRAWS):
            raise NapkinError(
                f"{'a shape' if name == 'size' else f'--{name}'} does not apply to {word}",
                f"{word} takes {', '.join(n for n in words[word] if n != 'size')}",
            )
    from napkin.commands import small

    return small.ANSWERS[inputs.command.name, word](inputs)
