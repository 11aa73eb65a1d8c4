"""`flops matmul`, `mfu matmul`, `memory linear`: words that stand in for a model, and the options they take."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.errors import NapkinError, did_you_mean
from napkin.inputs.load import printable
from napkin.options.machine import FIGURES
from napkin.options.question import LINEAR_OPTIONS
from napkin.render.answer import Answer

LINEAR = ("batch", "widths", "width", "depth")
TAKES: dict[str, dict[str, tuple[str, ...]]] = {
    "flops": {"matmul": ("size", "batch"), "linear": LINEAR},
    "mfu": {"matmul": ("size", "batch", "time", "dtype", "hardware", "hardware-file", *FIGURES)},
    "memory": {"linear": (*LINEAR, "precision", "optimizer", "optimizer-form")},
}
"""Command → word → the inputs that it reads. Others are refused rather than ignored."""


def check_one_word(word: str, size: str) -> None:
    """Reject a model's name that is written as two words: `gemma3 27b`."""
    from napkin.inputs.presets import is_preset

    whole = f"{word}-{size}".lower()
    if is_preset(whole):
        raise NapkinError(f"the model {word} {size} is written as one word", whole)


def run_matmul_or_linear(inputs: Inputs) -> Answer | None:
    """Return the answer if MODEL is `matmul` or `linear`; None for a model."""
    words = TAKES[inputs.command.name]
    word = inputs.text("model", f"a model, or {' or '.join(words)}").strip().lower()
    if word not in words:
        if "size" in inputs:
            size = inputs.text("size")
            check_one_word(word, size)
            if not size.lower().replace("x", "").isdigit():
                raise NapkinError(
                    f"unexpected word {printable(size, 60)!r}",
                    f"napkin {inputs.command.name} takes MODEL, then options",
                )
            raise NapkinError(
                f"the shape {str(size)[:60]} belongs to {' or '.join(words)}, not to a model",
                did_you_mean(word, words) or f"napkin {inputs.command.name} {next(iter(words))} …",
            )
        example = f"napkin {inputs.command.name} {next(iter(words))} …"
        hint = f"a model's shape is in its config.json; of {' or '.join(words)}: {example}"
        inputs.because(LINEAR_OPTIONS, f"it belongs to {' or '.join(words)}, not to a model", hint)
        return None
    if "size" in inputs and "size" not in words[word]:
        raise NapkinError(f"{word} takes no shape", f"it takes {', '.join(f'--{name}' for name in words[word])}")
    takes = ", ".join(f"--{name}" for name in words[word] if name != "size")
    inputs.because(inputs.command.names, f"{word} does not depend on it", f"{word} takes {takes}")
    from napkin.commands import matmul_answers

    return matmul_answers.ANSWERS[inputs.command.name, word](inputs)
