"""nanoGPT's configuration files: Python assignments over the defaults of train.py."""

from __future__ import annotations

from napkin.inputs.launch.checks import take_machine
from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.names import take_optimizer
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import flag, number, whole, word

SIZES = ("n_layer", "n_head", "n_embd")
DEFAULTS = {"n_layer": 12, "n_head": 12, "n_embd": 768}
VOCABULARY = 50_304


_TRAIN = """block_size n_layer n_head n_embd init_from max_iters gradient_accumulation_steps batch_size out_dir
    eval_interval eval_iters log_interval eval_only always_save_checkpoint wandb_log wandb_project wandb_run_name
    dataset dropout bias learning_rate weight_decay beta1 beta2 grad_clip decay_lr warmup_iters lr_decay_iters min_lr
    backend device dtype compile"""
OWN = frozenset(_TRAIN.split())
"""Names that train.py assigns; a configuration may override only these (configurator.py)."""
TELLING = ("block_size", "n_layer", "n_embd", "init_from", "max_iters", "gradient_accumulation_steps", "batch_size")


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is nanoGPT's: Python that assigns mostly names of train.py and imports no other library, or
    a line that starts train.py with such names as options."""
    if source.syntax == "shell":
        return is_line(source)
    if source.syntax != "python" or not source.has_any(*TELLING):
        return False
    own = source.parts[1] if source.parts else source  # a launch line's own options may be another program's
    libraries = [one for one in source.unread if one.startswith(("from ", "import ")) and one != "import time"]
    return not libraries and _mostly_own(own, len(source.values))


def is_line(source: LaunchFile) -> bool:
    """Return whether a launch line starts train.py with nanoGPT's sizes: `train.py --n_layer=24 --bias=False`."""
    return source.program == "train.py" and source.has_any(*SIZES) and _mostly_own(source, len(source.values))


MANY = 12
"""Names of train.py's that no other program has together: a fork's configuration may have as many of its own."""


def _mostly_own(source: LaunchFile, keys: int) -> bool:
    foreign = sum(key not in OWN for key in source.values)
    own = len(source.values) - foreign
    return foreign <= keys // 3 or (own >= MANY and foreign < own and source.has_all("batch_size", "block_size"))


def _model(reading: Reading) -> None:
    """Read the model: GPT-2 124M without biases by default; init_from loads GPT-2 with its own sizes."""
    start = reading.source.plain("init_from")
    if reading.open_among("init_from"):
        reading.ask("model", "init_from")
        return
    if isinstance(start, str) and start.startswith("gpt2"):
        reading.put("model", start, "init_from")
        return
    if start == "resume":
        reading.ask("model", "init_from")
        return
    sizes = {key: reading.read(key, whole) or DEFAULTS[key] for key in SIZES}
    bias, length = bool(reading.read("bias", flag)), reading.read("block_size", whole) or 1024
    stated = [key for key in SIZES if key in reading.source]
    if sizes == DEFAULTS and not bias and length == 1024:
        name = "nanogpt-124m"
        reading.put("model", name, *stated) if stated else reading.default("model", name, *SIZES)
        return
    for name, key in (("layers", "n_layer"), ("heads", "n_head"), ("hidden", "n_embd")):
        reading.dimension(name, sizes[key], key)
    reading.dimension("ffn", 4 * sizes["n_embd"], "n_embd")
    reading.dimension("positions", length, "block_size")
    reading.dimension("gated", False)
    reading.dimension("tied", True)
    reading.describe(*SIZES)
    args = {**sizes, "block_size": length, "bias": bias, "vocab_size": VOCABULARY}
    from napkin.inputs.foreign import translated

    reading.build(lambda: (translated(args, reading.source.name) or (None, ""))[0])
    reading.omit(
        "dataset", "the vocabulary depends on the data set; assumed 50,304 if the data set's name does not determine it"
    )


def _batch(reading: Reading) -> None:
    """Read the batch: accumulation counts all ranks, so it does not depend on the GPU count (train.py)."""
    micro, steps = reading.read("batch_size", whole), reading.read("gradient_accumulation_steps", whole)
    total = (micro or 12) * (steps or 40)
    keys = [key for key in ("batch_size", "gradient_accumulation_steps") if key in reading.source]
    if micro and steps and reading.source.program in ("", "train.py"):
        reading.derive("global-batch", total, *keys)
    elif micro and steps:
        reading.assume("global-batch", total, *keys)
        reading.omit(reading.source.program, "is not nanoGPT's train.py; accumulation is assumed to count all ranks")
    else:
        reading.default("global-batch", total, "batch_size", "gradient_accumulation_steps")


def _others(reading: Reading) -> None:
    kinds = {"bfloat16": "amp-bf16", "float16": "param=fp32,grad=fp32,compute=fp16,state=fp32", "float32": "fp32"}
    policy = reading.read("dtype", word(kinds))
    reading.put("precision", policy, "dtype") if policy else reading.default("precision", "amp-bf16", "dtype")
    take_optimizer(reading, "optimizer_name", "optimizer")
    reading.default("optimizer", "adamw", "device")
    if reading.value_of("optimizer") == "adamw":
        reading.default("optimizer-form", "fused", "device")
    if reading.source.syntax == "shell":
        take_machine(reading)
    reading.default("attention", "flash", "flash")
    reading.default("recompute", "none", "model.py")
    if reading.read("eval_only", flag):
        reading.refuse("eval_only", "eval_only: no training step is run")
    start = str(reading.source.plain("init_from") or "scratch")
    if start == "scratch":
        reading.default("task", "pretrain", "init_from")


FORMAT = LaunchFormat(
    "nanogpt",
    "nanoGPT's configuration",
    "karpathy/nanoGPT train.py, model.py",
    is_this,
    fixed={"implementation": "nanogpt"},
    keys=(
        Key("batch_size", "micro-batch", whole, 12),
        Key("block_size", "seq", whole, 1024),
        Key("max_iters", "steps", whole, 600_000),
        Key("dropout", "dropout", number, 0.0),
        Key("compile", "compile", flag, True),
    ),
    rules=(
        KeyRule("init_from n_layer n_head n_embd bias block_size", "model", "GPT-2 124M by default", _model),
        KeyRule("batch_size gradient_accumulation_steps", "global-batch", "accumulation counts all ranks", _batch),
        KeyRule("dtype eval_only", "precision optimizer attention task", "fp32 weights with bf16 autocast", _others),
    ),
    ignored="device backend out_dir always_save_checkpoint eval_interval eval_iters log_interval wandb_log decay_lr "
    "min_lr "
    "beta1 beta2 weight_decay grad_clip warmup_iters lr_decay_iters dataset init_from",
    not_modelled={"import": "imports are not executed"},
)
