"""`napkin --help`: the commands, grouped by question."""

from __future__ import annotations

from napkin.commands.command import MODULES

ASKED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Does it fit?", ("memory", "max-params")),
    ("How long does it take, and what does it cost?", ("train-time", "step")),
    ("How many GPUs do I need, and in which layout?", ("plan", "memory MODEL --hardware h100 --min gpus")),
    ("What should I train with what I have?", ("optimal",)),
    ("How fast does it serve, and at what price?", ("serve",)),
    ("What is wrong with my configuration?", ("lint", "read")),
    ("Is my run fast?", ("mfu", "watch", "roofline", "bench", "calibrate")),
    ("What is in a model, or in a GPU?", ("models", "params", "flops", "init", "hardware")),
    ("What if?", ("sweep", "compare", "sensitivity", "check")),
    ("How large is it?", ("tensor", "dtype", "optimizer", "checkpoint", "data")),
    ("Can I trust the numbers?", ("validate",)),
)
"""A question, and the commands that answer it; a line with a space in it is a command line."""

EXAMPLES = (
    "memory llama3-8b --gpus 8 --hardware h100 --zero 3",
    "train-time --params 70B --tokens 15T --gpus 1024 --hardware h100",
    "plan llama3-70b --gpus 512 --hardware h100 --seq 8192",
)


def overview() -> str:
    """Return the questions, each with its commands."""
    width = max(len(name) for name in MODULES)
    left = [name for name in MODULES if not any(name in commands for _, commands in ASKED)]
    lines = ["napkin: time, memory, layout and cost of training a language model.", ""]
    lines += [f"  napkin {example}" for example in EXAMPLES]
    for question, commands in (*ASKED, *((("Other", tuple(left)),) if left else ())):
        lines += ["", question]
        lines += [_line(name, width) for name in commands]
    lines += ["", "`napkin COMMAND --help` lists options; `--explain` shows how a number is made.", ""]
    return "\n".join(lines)


def _line(name: str, width: int) -> str:
    if name in MODULES:
        return f"  {name.ljust(width)}  {MODULES[name][1]}"
    return f"  napkin {name}"
