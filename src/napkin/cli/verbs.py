"""Words that people type instead of a command, and the hints for them."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.commands.command import MODULES
from napkin.errors import NapkinError, did_you_mean

SAME = {
    "memory": "mem vram ram gpu-memory fit fits does-it-fit oom estimate-memory memory-usage estimate footprint",
    "memory --inference": "inference infer",
    "serve": "serving server generate generation latency ttft tpot tokens-per-second",
    "train-time": "time duration eta training-time traintime how-long train training days",
    "hardware": "gpus gpu accelerators accelerator devices cards chips list-gpus list-hardware list-accelerators",
    "models": "model list-models presets architectures archs",
    "params": "parameters count param num-params count-params",
    "flops": "flop",
    "plan": "layout layouts parallelism search parallel sharding strategy",
    "step": "step-time speed iteration",
    "mfu": "utilization utilisation",
    "max-params": "max-model largest biggest max-model-size",
    "checkpoint": "ckpt checkpoints",
    "dtype": "format formats dtypes",
    "optimizer": "optimizers optim optimiser",
    "compare": "diff",
    "bench": "benchmark measure",
    "data": "dataset corpus",
    "optimal": "optimum compute-optimal chinchilla scaling-law scaling-laws what-to-train",
}
"""Command → words that mean the same."""

HINTS = {
    "explain why formula derive": (
        "--explain after the command that gave the number, e.g. napkin memory MODEL --hardware h100 --explain"
    ),
    "goodput reliability mtbf failures failure interruptions uptime": (
        "napkin train-time REST: goodput next to the time; napkin checkpoint MODEL --gpus 64: failures, what they cost"
    ),
    "cost price budget money dollars": "napkin train-time REST --price 2: what a GPU-hour costs",
    "energy power co2 carbon emissions kwh": "napkin train-time REST: energy and CO2 next to the time",
    "best": "napkin optimal --gpus 64 --within 30d --hardware h100: the model and its tokens",
    "profile profiler trace breakdown bottleneck": "napkin step MODEL --hardware h100: where the time of a step goes",
    "completion completions autocomplete shell-completion": "napkin --install-completion, or --show-completion",
    "list ls show": "napkin models, or napkin hardware",
    "matmul gemm": "napkin roofline matmul MxKxN --hardware h100, or napkin flops matmul MxKxN",
    "throughput tps": "napkin step MODEL: tokens per second of training; napkin serve MODEL: of serving",
    "lora qlora finetune fine-tune finetuning": "napkin memory MODEL --lora-rank 16 --quantized nf4 --hardware h100",
    "speedup scaling": "napkin sweep step MODEL --over gpus=8..1024",
    "kv-cache kvcache cache": "napkin serve MODEL --hardware h100, or napkin memory MODEL --inference --seq 8192",
    "how-many how-many-gpus num-gpus need": "napkin memory MODEL --hardware h100 --min gpus",
    "units convert unit conversion": "napkin reads 70B, 80GiB, 30d and 400Gb/s in every option",
    "comm communication collective collectives nccl allreduce all-reduce network": (
        "napkin step MODEL --gpus 64 --tp 8 --hardware h100: the time of each kind of communication"
    ),
    "schedule pipeline bubble": "napkin step MODEL --gpus 64 --pp 8 --schedule 1f1b --hardware h100",
    "batch batch-size max-batch": "napkin memory MODEL --hardware h100 --max micro-batch",
    "attention flash-attention": "napkin roofline MODEL --hardware h100: each operation's time",
    "torchrun deepspeed accelerate python python3 srun mpirun pretrain-gpt.py": (
        "napkin memory, step or mfu, then the options of the launch and --hardware h100"
    ),
}
"""Words → what to ask instead. MODEL: the model of the line, REST: what follows the word."""

QUESTIONS = {
    "cost money much-does expensive price": "napkin train-time MODEL --tokens 1T --gpus 64 --hardware h100 --price 2",
    "long days hours weeks months time": "napkin train-time MODEL --tokens 1T --gpus 64 --hardware h100",
    "fast slow speed tokens throughput": "napkin step MODEL --gpus 8 --hardware h100",
    "memory vram ram gb fit": "napkin memory MODEL --hardware h100",
    "big large largest": "napkin max-params --gpus 8 --hardware h100",
    "parameters params weights": "napkin params MODEL",
    "flops flop compute": "napkin flops MODEL",
}
"""Words of a question in plain English → the command that answers it; the first match counts."""
ASKS = ("how", "what", "which", "can", "will", "does", "is", "should")
"""Words that such a question begins with."""


def command_of(words: Sequence[str]) -> list[str]:
    """Return a command line that begins with a napkin command. Raises NapkinError (2) if there is none."""
    word = words[0].lower().replace("_", "-")
    if word in MODULES:
        return [word, *words[1:]]
    for meant, spellings in SAME.items():
        if word in spellings.split():
            name, *options = meant.split()
            if name == "hardware" and _model_in(words[1:2]):
                return ["memory", *words[1:], "--min", "gpus"]  # how many of them
            return [name, *words[1:], *options]
    if word in ("cost", "price") and any(one.startswith("--price") for one in words):
        return ["train-time", *words[1:]]
    if word.startswith("-"):
        at = next((n for n, one in enumerate(words) if one in MODULES), 0)
        line = " ".join((*words[at:], *words[:at])) if at else "COMMAND, then its options"
        raise NapkinError(f"{words[0][:60]} comes before the command", f"napkin {line}")
    raise NapkinError(f"no such command {words[0][:60]!r}", _hint(words[0], word, words[1:]))


def _model_in(words: Sequence[str]) -> str | None:
    """Return the first word that names a model, for a hint."""
    from napkin.cli.spellings import is_size
    from napkin.inputs.presets import is_preset

    plain = (word.strip("?,") for word in words)
    return next((word for word in plain if is_preset(word) or is_size(word)), None)


def _hint(given: str, word: str, rest: Sequence[str]) -> str:
    from napkin.cli.known import known
    from napkin.cli.spellings import is_accelerator, is_size
    from napkin.inputs.presets import is_preset

    for spellings, hint in HINTS.items():
        if word in spellings.split():
            if 0 < len(rest) < 3 and rest[0] not in MODULES:  # a model only: the complete question
                hint = hint.replace("REST", "REST --tokens 1T --gpus 64 --hardware h100")
            return hint.replace("MODEL", _model_in(rest) or "MODEL").replace("REST", " ".join(rest) or "…")
    if word in ASKS:
        asked = {one.lower().strip("?,.") for one in rest}
        meant = next((line for words, line in QUESTIONS.items() if asked & set(words.split())), None)
        line = (meant or "napkin memory MODEL --hardware h100 --min gpus").replace("MODEL", _model_in(rest) or "MODEL")
        card = next((one for one in sorted(asked) if is_accelerator(one)), "h100")
        return line.replace("--hardware h100", f"--hardware {card}")
    if is_preset(given) or is_size(given):
        return f"napkin memory {given}, or another command before the model"
    if word in known("hardware"):
        return f"napkin hardware {given}, or napkin max-params --hardware {given}"
    return did_you_mean(word, MODULES) or "napkin --help lists the commands"
