"""The adapters that are trained next to frozen weights, and their size, from the options."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.errors import NapkinError, Refused
from napkin.options.training import ADAPTED

LORA_KINDS = ("lora", "dora")
RANK = "lora-rank"


def _size_of(word: str) -> str:
    """Return the option that gives the size of a kind of adapters, "" if it has none."""
    if word in LORA_KINDS:
        return RANK
    from napkin.operations.adapters.kinds import KINDS

    return KINDS[word].sized


def read_whether_adapted(inputs: Inputs) -> bool:
    """Return whether adapters are trained next to frozen weights: a rank is given, or a kind without a rank."""
    return inputs.has(RANK) or (inputs.has("adapter") and _size_of(inputs.text("adapter")) != RANK)


def read_kind(inputs: Inputs, stored: str) -> tuple[str, int | None]:
    """Return the kind of the adapters and their size; None if there are none."""
    if not read_whether_adapted(inputs):
        for name in ADAPTED[1:]:
            if name in inputs and inputs.has(name) and (stored or name != "quantized"):
                full = RANK in inputs.declined and name == "adapter"
                hint = "--adapter none trains every weight" if full else "for example --lora-rank 8"
                raise NapkinError(f"--{name} needs --lora-rank", hint)
        return "lora", None
    if "adapter" in inputs.declined:
        raise NapkinError("a contradiction: --adapter none and --lora-rank", "--lora-rank none trains every weight")
    inputs.default("adapter", "lora")
    word = inputs.text("adapter")
    size = _size_of(word)
    for name in (RANK, "adapter-block", "virtual-tokens"):
        if name != size and name in inputs and inputs.has(name):
            hint = f"--{size}" if size else "leave it out"
            raise NapkinError(f"--{name}: --adapter {word} has none", hint)
    if word in LORA_KINDS:
        return "lora", inputs.integer(RANK)
    from napkin.operations.adapters.kinds import KINDS

    kind = KINDS[word]
    if "lora-dropout" in inputs and not kind.drops:
        raise Refused(f"--lora-dropout: dropout of --adapter {word} is not modeled", "leave it out, or --adapter lora")
    if stored and not kind.quantizes:
        raise NapkinError(
            f"--adapter {word}: peft adds a delta of the weight's own shape, which quantized weights do not have",
            "--adapter lora, or --quantized none",
        )
    if int(inputs.number_or_none("tp") or 1) > 1:
        raise Refused(f"--tp: peft divides no adapter of the kind {word}", "--tp 1, or --adapter lora")
    if not size:
        return word, kind.usual
    if not inputs.has(size) and not kind.usual:
        raise NapkinError(f"--adapter {word} needs --{size}: peft has no default", f"for example --{size} 20")
    if not inputs.has(size):
        inputs.default(size, str(kind.usual))
    return word, inputs.integer(size)
