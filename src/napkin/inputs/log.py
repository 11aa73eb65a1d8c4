"""One line of a training log as numbers: throughput, step time, TFLOP/s and MFU in the words of common trainers.

Read are the lines that Megatron-LM, torchtitan, NeMo, nanoGPT, GPT-NeoX, DeepSpeed, LLM Foundry, OLMo, MaxText,
InternEvo and the Hugging Face Trainer print. A figure "per GPU" (device, chip) is one accelerator's.
"""

from __future__ import annotations

import re

from napkin.errors import NapkinError
from napkin.record import record

_NUMBER = r"\s*[:=]?\s*\(?\s*'?([0-9][0-9,]*\.?[0-9]*(?:[eE][+-]?[0-9]+)?)"
_S = r"s(?:ec)?(?:ond)?"
_GPU = r"(?:gpu|device|chip)"
_MS = r"(?=\s*[:=]?\s*[0-9.,]+\s*ms)"
_SEC = r"(?=\s*[:=]?\s*[0-9.,]+\s*(?:s\b|sec|[,|}]|$))"
_FLOPS, _STEP, _EACH, _ALL = (
    "flops_per_second_per_gpu",
    "step_seconds",
    "tokens_per_second_per_gpu",
    "tokens_per_second",
)
_PATTERNS: tuple[tuple[str, str, float], ...] = (
    # what logs call it, the quantity, its scale to base units; the more particular names first
    (r"throughput per GPU \(TFLOP/s/GPU\)", _FLOPS, 1e12),
    (rf"TFLOPs?_per_GPU|TFLOPs?/s?/?{_GPU}|model[ _]tflops(?:/gpu)?|tflops(?:_per_gpu)?", _FLOPS, 1e12),
    (r"FLOPS/GPU", _FLOPS, 1.0),
    (r"elapsed time per iteration \(ms\)|iteration[ _]time ?\(ms\)|iter time ?\(ms\)|time \(ms\)", _STEP, 1e-3),
    (r"(?:train_)?step_?(?:_timing|time) ?(?:in s|\(s\)|_s)", _STEP, 1.0),
    (rf"(?:iter(?:ation)?[ _]time|step[ _]time|\btime|\bdt){_MS}", _STEP, 1e-3),
    (rf"(?:iter(?:ation)?[ _]time|step[ _]time|seconds|sec/step){_SEC}", _STEP, 1.0),
    (r"tokens per gpu per second(?: \(tgs\))?|tgs(?: \(tokens/gpu/second\))?|\btps", _EACH, 1.0),
    (rf"tok(?:en)?s?/{_S}/{_GPU}|tokens?/{_GPU}/{_S}|throughput/device/tokens_per_{_S}", _EACH, 1.0),
    (rf"(?:throughput/(?:total_)?|train_)?tok(?:en)?s?(?:[ _/]per[ _/]|/){_S}(?![/a-z])", _ALL, 1.0),
    (rf"(?:throughput/|train_)?samples?(?:[ _/]per[ _/]|/){_S}(?![/a-z])", "samples_per_second", 1.0),
    (r"(?:RunningAvg|Curr)?SamplesPerSec", "samples_per_second", 1.0),
    (rf"(?:train_)?steps?(?:[ _/]per[ _/]|/){_S}(?![/a-z])|it/s|throughput/batches_per_sec", "steps_per_second", 1.0),
    (r"global[ _]batch[ _]size", "global_batch", 1.0),
    (r"\bmfu(?: \(%\)|%)(?=\s*[:=])", "mfu", 0.01),
    (r"(?:throughput/device/)?\bmfu", "mfu", 1.0),
)


@record
class Logged:
    """What a line says, in base units, and the words that said it."""

    quantities: dict[str, float]
    words: dict[str, str]


def read_line(line: str) -> Logged:
    """The figures of one log line. Refused (2) where it holds none that is known."""
    if len(line) > 20_000:
        raise NapkinError("--log: the line is longer than 20,000 characters", "paste one line of the log")
    found: dict[str, float] = {}
    words: dict[str, str] = {}
    rest = line
    for pattern, quantity, scale in _PATTERNS:
        match = re.search(rf"['\"]?(?:{pattern})['\"]?{_NUMBER}(\s*%)?", rest, re.IGNORECASE)
        if match is None:
            continue
        text, percent = match.group(1), match.group(2)
        value = float(text.replace(",", "")) * scale
        if percent and quantity == "mfu":
            value /= 100
        rest = rest[: match.start()] + " " * (match.end() - match.start()) + rest[match.end() :]
        if quantity in found or not 0 < value < float("inf"):
            continue
        found[quantity] = value
        words[quantity] = " ".join(match.group(0).split())
    if not set(found) - {"global_batch"}:
        raise NapkinError(
            "--log: the line says no throughput, step time, TFLOP/s or MFU that napkin knows",
            "give the figure itself: --tokens-per-second, --step-time or --tflops",
        )
    return Logged(found, words)
