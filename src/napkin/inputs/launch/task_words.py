"""Words for tasks of post-training under keys that napkin does not know."""

from __future__ import annotations

from napkin.inputs.launch.stated import ASSUMED, DEFAULT, StatedOption

TASKS = ("dpo", "orpo", "kto", "simpo", "grpo", "rloo", "ppo", "gkd", "rm", "rlhf")
"""Words that name a task of post-training."""
TEACHERS = ("teacher", "teacher_model", "teacher_path", "teacher_name", "teacher_model_path")
"""Keys and blocks of a model that another learns from."""


def is_other_task(key: str, value: object, task: StatedOption | None) -> bool:
    """Return whether a key or its value names a task, and another than the one that was read, unless the file states
    that one: `--train-mode dpo`, `--dpo true`. A teacher is of distillation."""
    word = str(value).lower() if value is not True else key.removeprefix("use_").removeprefix("do_")
    named = word in TASKS or key.partition(".")[0] in TEACHERS
    return named and (task is None or (task.origin in (DEFAULT, ASSUMED) and task.value not in (None, word)))
