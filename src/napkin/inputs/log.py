"""One line of a training log as numbers: throughput, step time, TFLOP/s and MFU in the words of common trainers.

Read are the lines that Megatron-LM, torchtitan, NeMo, nanoGPT, GPT-NeoX, DeepSpeed, LLM Foundry, OLMo, MaxText,
InternEvo and the Hugging Face Trainer print. A figure "per GPU" (device, chip) is one accelerator's.
"""

from __future__ import annotations

import re
from functools import cache

from napkin.errors import NapkinError
from napkin.inputs.load import printable
from napkin.record import record
from napkin.units import plain

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?![0-9]|,[0-9])"
"""Digits; commas only between groups of three: one that is a decimal point leaves the figure unread."""
_NUMBER = rf"\s*[:=]?\s*\(?\s*'?({_DIGITS}\.?[0-9]*(?:[eE][+-]?[0-9]+)?)"
_S = r"s(?:ec)?(?:ond)?"
_GPU = r"(?:gpu|device|chip)"
_MS = r"(?=\s*[:=]?\s*[0-9.,]+\s*ms)"
_SEC = r"(?=\s*[:=]?\s*[0-9.,]+\s*(?:s\b|sec|[,|}]|$))"
FLOPS, STEP, EACH, TOTAL = (
    "flops_per_second_per_gpu",
    "step_seconds",
    "tokens_per_second_per_gpu",
    "tokens_per_second",
)
_PATTERNS: tuple[tuple[str, str, float], ...] = (
    # what logs call it, the quantity, its scale to base units; the more particular names first
    (r"throughput per GPU \(TFLOP/s/GPU\)", FLOPS, 1e12),
    (rf"TFLOPs?_per_GPU|TFLOPs?/s?/?{_GPU}|model[ _]tflops(?:/gpu)?|tflops(?:_per_gpu)?", FLOPS, 1e12),
    (r"FLOPS/GPU", FLOPS, 1.0),
    (r"elapsed time per iteration \(ms\)|iteration[ _]time ?\(ms\)|iter time ?\(ms\)|time \(ms\)", STEP, 1e-3),
    (r"(?:train_)?step_?(?:_timing|time) ?(?:in s|\(s\)|_s)", STEP, 1.0),
    (rf"(?:iter(?:ation)?[ _]time|step[ _]time|\btime|\bdt){_MS}", STEP, 1e-3),
    (rf"(?:iter(?:ation)?[ _]time|step[ _]time|seconds|sec/step){_SEC}", STEP, 1.0),
    (r"tokens per gpu per second(?: \(tgs\))?|tgs(?: \(tokens/gpu/second\))?|\btps", EACH, 1.0),
    (rf"tok(?:en)?s?/{_S}/{_GPU}|tokens?/{_GPU}/{_S}|throughput/device/tokens_per_{_S}", EACH, 1.0),
    (rf"(?:throughput/(?:total_)?|train_)?tok(?:en)?s?(?:[ _/]per[ _/]|/){_S}(?![/a-z])", TOTAL, 1.0),
    (rf"(?:throughput/|train_)?samples?(?:[ _/]per[ _/]|/){_S}(?![/a-z])", "samples_per_second", 1.0),
    (r"(?:RunningAvg|Curr)?SamplesPerSec", "samples_per_second", 1.0),
    (rf"(?:train_)?steps?(?:[ _/]per[ _/]|/){_S}(?![/a-z])|it/s|throughput/batches_per_sec", "steps_per_second", 1.0),
    (r"global[ _]batch[ _]size", "global_batch", 1.0),
    (r"\bmfu(?: \(%\)|%)(?=\s*[:=])", "mfu", 0.01),
    (r"(?:throughput/device/)?\bmfu", "mfu", 1.0),
)


@record
class LoggingProgram:
    """A program whose lines are recognized: its name, its convention for FLOPs per token, and the peak by which it
    divides them for an MFU whatever the accelerator, FLOP/s; 0 if it knows the accelerator's."""

    name: str
    convention: str
    peak: float = 0.0


PROGRAMS = (
    (re.compile(r"throughput per GPU \(TFLOP/s/GPU\)"), LoggingProgram("Megatron-LM", "megatron")),
    (re.compile(r"\biter \d+: loss \S+, time \S+ms, mfu "), LoggingProgram("nanoGPT", "nanogpt", 312e12)),
)
"""What a line of a program holds. NVIDIA/Megatron-LM megatron/training/training.py, training_log;
karpathy/nanoGPT train.py and model.py, estimate_mfu: "ratio of A100 bfloat16 peak flops"."""


@record
class Logged:
    """The figures of a line in base units, with the words that named them. program: the one that wrote it, if it is
    recognized."""

    quantities: dict[str, float]
    words: dict[str, str]
    lines: int = 1
    slow: float = 0.0
    program: LoggingProgram | None = None


def read_line(line: str) -> Logged:
    """Return the figures of one log line. Raises NapkinError (2) if it has none that napkin knows."""
    if len(line) > LONGEST:
        raise NapkinError(f"--log: the line is longer than {LONGEST:,} characters", "paste one line of the log")
    found = figures(line)
    if not set(found.quantities) - {"global_batch"}:
        missing = f"there is no file {printable(line, 60)!r}, and as a line it says"
        what = "the line says" if " " in line else missing
        raise NapkinError(
            f"--log: {what} no throughput, step time, TFLOP/s or MFU that napkin knows",
            "give the figure itself: --tokens-per-second, --step-time or --tflops",
        )
    return found


LONGEST = 20_000
"""Characters of a line."""
_MARKS = ("flop", "time", "sec", "/s", "_s", "(s", "in s", "tok", "tgs", "tps", "dt", "mfu", "batch")
"""Every line that holds a figure holds one of these, in small letters."""


def may_hold_figures(line: str) -> bool:
    """Return False for most lines without figures, at a hundredth of the cost of parsing them."""
    low = line.lower()
    return any(mark in low for mark in _MARKS)


def figures(line: str) -> Logged:
    """Return the figures of one line; empty if it has none that napkin knows."""
    found: dict[str, float] = {}
    words: dict[str, str] = {}
    rest = " ".join(line.split())  # a pattern may try every division of a run of blanks
    for pattern, quantity, scale in _patterns():
        match = pattern.search(rest)
        if match is None:
            continue
        text, percent = match.group(1), match.group(2)
        value = float(text.replace(",", "")) * scale
        if percent and quantity == "mfu":
            value /= 100
        rest = f"{rest[: match.start()]} {rest[match.end() :]}"
        if quantity in found or not 0 < value < float("inf"):
            continue
        found[quantity] = value
        words[quantity] = " ".join(match.group(0).split())
    program = next((one for sign, one in PROGRAMS if sign.search(line)), None) if {FLOPS, "mfu"} & set(found) else None
    return Logged(found, words, program=program)


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], str, float], ...]:
    """Return each name with the number after it as one pattern."""
    return tuple(
        (re.compile(rf"['\"]?(?:{name})['\"]?{_NUMBER}(\s*%)?", re.IGNORECASE), what, scale)
        for name, what, scale in _PATTERNS
    )


_STEP = re.compile(
    r"\b(?:iteration|iter|global[ _]step|step)\b['\"]?\s*[:=]?\s*'?(\d[\d,]*)(?:\s*/\s*(\d[\d,]*))?", re.IGNORECASE
)
_BAR = re.compile(r"\|\s*(\d+)/(\d+) \[")
_OVER = re.compile(
    r"\[after training is done\]|exiting program at iteration|`Trainer\.fit` stopped|\bTraining completed\b"
    r"|'train_runtime'.*'train_loss'"
)
"""What Megatron-LM, Lightning and NeMo, torchtitan and the Hugging Face Trainer print at the end of a run."""


def progress_of(line: str) -> tuple[int, int | None] | None:
    """Return the step that a line reports, and the total number of steps if it states that."""
    found = _STEP.search(line) or _BAR.search(line)
    if found is None:
        return None
    step, total = (None if text is None else plain(text.replace(",", "")) for text in found.groups())
    return None if step is None else (step, total)


def is_over(line: str) -> bool:
    """Return whether a line says that the run has ended."""
    return _OVER.search(line) is not None
