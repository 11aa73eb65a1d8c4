"""Read LoRA: rank, target modules, layers, and modules trained in full."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.inputs.launch import values
from napkin.inputs.launch.names import take_targets
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.source import FileValue
from napkin.inputs.launch.values import Open, names, number, whole
from napkin.inputs.rank_patterns import is_plain


def take_lora(reading: Reading, rank: str, targets: str, default_rank: int, default_targets: str | None) -> None:
    """Read LoRA's rank and targets. default_targets: None for peft's choice for the model type."""
    reading.put("adapter", "lora", *(rank.split("|")[:1]), origin="derived")
    reading.take("lora-rank", rank, whole)
    reading.default("lora-rank", default_rank, *(rank.split("|")[:1]))
    value = reading.find(*targets.split("|"))
    if value is not None:
        take_targets(reading, reading.named(*targets.split("|")), value.value)
    else:
        reading.default("lora-targets", default_targets or "default", targets.split("|")[0])


def take_adapter_dropout(reading: Reading, keys: str, usual: float = 0.0) -> None:
    """Read LoRA dropout.

    keys   spellings, separated by |     usual  the default (peft's LoraConfig: 0)
    """
    reading.take("lora-dropout", keys, number)
    if usual:
        reading.default("lora-dropout", usual, keys.split("|")[0])


def take_excluded(reading: Reading, key: str) -> None:
    """Read modules excluded from LoRA. A regular expression is not modeled.

    key  spellings, separated by |
    """
    value = reading.find(*key.split("|"))
    if value is None or isinstance(value.value, Open) or not names(value.value):
        return
    listed = [one.lower() for one in names(value.value)]
    if isinstance(value.value, str) and not value.value.replace("_", "").isalnum():
        return
    at = next(one for one in key.split("|") if reading.source.get(one) is value)
    _narrow(reading, [f"-{one}" for one in listed], at)


def _narrow(reading: Reading, words: Sequence[str], key: str) -> None:
    """Add words to the targets that take some of them away."""
    before = reading.inputs.get("lora-targets")
    targets = str(reading.value_of("lora-targets") or "all")
    reading.derive("lora-targets", ",".join((targets, *words)), key)
    if before is not None and before.given:
        reading.spell("lora-targets", ",".join((before.given, *words)))


def take_layers(reading: Reading, key: str) -> None:
    """Read the layers that get adapters. key: spellings, separated by |."""
    value = reading.find(*key.split("|"))
    if value is None or isinstance(value.value, Open) or value.value == []:
        return
    at = next(one for one in key.split("|") if reading.source.get(one) is value)
    listed = value.value if isinstance(value.value, list) else [value.value]
    layers = [reading.parsed(FileValue(value.key, one), values.natural) for one in listed]
    if None in layers:
        raise reading.source.error(at, "lists something that is not a layer's number", "layers are numbered from 0")
    ranges: list[list[int]] = []
    for layer in sorted({layer for layer in layers if layer is not None}):
        if ranges and ranges[-1][1] == layer - 1:
            ranges[-1][1] = layer
        else:
            ranges.append([layer, layer])
    _narrow(reading, [f"@{first}" if first == last else f"@{first}-{last}" for first, last in ranges], at)


def take_ranks(reading: Reading, key: str) -> None:
    """Read the ranks of modules that have one of their own: peft's rank_pattern, from patterns of paths to ranks.

    key  spellings, separated by |
    """
    spelled = key.split("|")
    at = next((one for one in spelled if any(reading.source.inside(one))), spelled[0])
    words: list[str] = []
    for path in reading.source.inside(at):
        pattern, value = path.removeprefix(f"{at}."), reading.source.get(path)
        if path == at and (value is None or value.value in (None, {})):
            continue
        rank = None if value is None or value.value is None else reading.parsed(value, values.whole)
        if path == at or rank is None:
            reading.refuse(path, "patterns of module paths with a rank each are expected", "lora-targets")
            continue
        if not is_plain(pattern):
            reading.refuse(path, "the pattern is not one that napkin reads", "lora-targets")
        reading.told(path)
        words.append(f"{pattern.lower()}={rank}")
    if words:
        _narrow(reading, words, at)


def take_saved(reading: Reading, key: str) -> None:
    """Read modules trained in full in addition to adapters. key: spellings, separated by |."""
    value = reading.find(*key.split("|"))
    if value is not None and not isinstance(value.value, Open) and names(value.value):
        at = next(one for one in key.split("|") if reading.source.get(one) is value)
        reading.put("modules-to-save", ",".join(names(value.value)), at)
