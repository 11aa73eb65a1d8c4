"""One line of a training log as numbers: throughput, step time, TFLOP/s and MFU in the words of common trainers.

Read are the lines that Megatron-LM, torchtitan, NeMo, nanoGPT, GPT-NeoX, DeepSpeed, LLM Foundry, OLMo, MaxText,
InternEvo and the Hugging Face Trainer print. A figure "per GPU" (device, chip) is one accelerator's.
"""

from __future__ import annotations

import os
import re

from napkin.errors import NapkinError
from napkin.inputs.load import printable
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
    lines: int = 1
    slow: float = 0.0


WARM_UP = 0.1
"""Share of a log's first lines that is skipped: compilation, caches, the ramp of clocks and batch."""
SLOW = 1.2
LARGEST_LOG = 10**9


def read_log(text: str) -> Logged:
    """Read a log; `text` is a log file's name, or one line of a log."""
    return read_file(text) if os.path.isfile(text) else read_line(text)


def read_file(path: str) -> Logged:
    """Return the medians of a log's figures after warm-up, read line by line; `slow`: share of lines 1.2 × slower."""
    every: list[Logged] = []
    try:
        if os.stat(path).st_size > LARGEST_LOG:
            raise NapkinError(f"{printable(path)}: is larger than 1 GB", "give a part of the log")
        with open(path, encoding="utf-8", errors="replace") as stream:
            for line in stream:
                if any(c.isdigit() for c in line) and len(line) <= 20_000:
                    found = figures(line)
                    if set(found.quantities) - {"global_batch"}:
                        every.append(found)
    except OSError as problem:
        raise NapkinError(f"{printable(path)}: {problem.strerror or 'cannot be read'}", "check the path") from None
    if not every:
        raise NapkinError(
            f"{printable(path)}: no line says a throughput, step time, TFLOP/s or MFU that napkin knows",
            "paste a line with --log, or give the figure itself: --tokens-per-second, --step-time or --tflops",
        )
    kept = every[int(WARM_UP * len(every)) + (len(every) > 3) :] or every
    commonest = max(
        {frozenset(one.quantities) for one in kept}, key=lambda k: sum(k == set(o.quantities) for o in kept)
    )
    same = [one for one in kept if commonest <= set(one.quantities)]
    middle = {name: sorted(one.quantities[name] for one in same)[len(same) // 2] for name in commonest}
    slow = 0.0
    for name, faster in (("step_seconds", False), (_EACH, True), (_ALL, True), (_FLOPS, True)):
        if name in middle:
            ratios = [one.quantities[name] / middle[name] for one in same]
            slow = sum((1 / r if faster else r) >= SLOW for r in ratios) / len(ratios)
            break
    words = {name: f"median {same[len(same) // 2].words[name]}" for name in commonest}
    return Logged(middle, words, len(same), slow)


def read_line(line: str) -> Logged:
    """Return the figures of one log line. Refused (2) where it holds none that is known."""
    if len(line) > 20_000:
        raise NapkinError("--log: the line is longer than 20,000 characters", "paste one line of the log")
    found = figures(line)
    if not set(found.quantities) - {"global_batch"}:
        missing = f"there is no file {printable(line, 60)!r}, and as a line it says"
        what = "the line says" if " " in line else missing
        raise NapkinError(
            f"--log: {what} no throughput, step time, TFLOP/s or MFU that napkin knows",
            "give the figure itself: --tokens-per-second, --step-time or --tflops",
        )
    return found


def figures(line: str) -> Logged:
    """Return what one line says; nothing where it holds no figure that is known."""
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
    return Logged(found, words)
