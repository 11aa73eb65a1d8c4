"""Options that say how the model is trained: formats, optimizer, recomputation, software, adapters."""

from __future__ import annotations

from napkin import units
from napkin.options.layout import DEGREES
from napkin.options.option import Option, choice, flag
from napkin.options.parsers import lowercase_names, offloads

GROUP = "Training"
TORCH_LOSS = "torch"
"""The form of cross entropy that torch has: log-softmax, then the likelihood."""
LOSSES = (TORCH_LOSS, "compiled", "chunked", "chunked-eager", "vocabulary", "sharded", "dtensor", "fused", "held")

OPTIONS = (
    Option("tokens", units.positive_count, "Training tokens, e.g. 15T", "token", "N"),
    Option("precision", units.words, "Policy, e.g. bf16-mixed, or param=bf16,grad=fp32,…", metavar="POLICY"),
    Option("optimizer", units.words, "Optimizer, e.g. adamw (napkin optimizer lists them)", metavar="NAME"),
    Option(
        "optimizer-form", choice("foreach", "forloop", "fused"), "How torch runs the optimizer step", metavar="FORM"
    ),
    Option("momentum", units.probability, "Momentum of sgd; 0 keeps no state", metavar="X"),
    Option(
        "recompute",
        units.words,
        "none, selective, full, every:K, group:K or group:sqrt",
        metavar="KIND",
    ),
    Option("attention", choice("flash", "eager", "efficient", "cudnn"), "Attention kernel", metavar="NAME"),
    Option("dropout", units.probability, "Dropout probability", metavar="P"),
    Option(
        "loss", choice(*LOSSES), "Form of the cross entropy, where it is not the implementation's own", metavar="FORM"
    ),
    Option("stack", units.words, "Software: megatron-core, fsdp-compiled, fsdp-eager, xla, lean, …", metavar="NAME"),
    Option("framework", units.words, "Training framework: deepspeed, fsdp, torchtitan, …", metavar="NAME"),
    flag("compile", "The step runs under torch.compile"),
    flag("async-tp", "Tensor-parallel collectives decomposed and overlapped"),
    Option("factor", units.positive, "Time of your steps over napkin's (napkin calibrate)", metavar="X"),
    Option("lora-rank", units.positive_count, "Train LoRA matrices of this rank; the rest is frozen", metavar="R"),
    Option("lora-targets", lowercase_names, "LoRA target modules, e.g. q,v (all where not given)", metavar="NAME,…"),
    Option(
        "quantized",
        choice("nf4", "nf4-dq"),
        "Number format of the frozen linear layers' weights",
        metavar="FORMAT",
    ),
    Option(
        "freeze-layers", units.count, "Freeze the embedding and the first N layers; 0: only the embedding", metavar="N"
    ),
    flag("ema", "Keep an EMA of the weights"),
    Option("offload", offloads, "What is kept in host memory: optimizer, activations, parameters", metavar="WHAT,…"),
)

POLICY_OPTIONS = ("precision", "optimizer", "optimizer-form", "momentum", "implementation", "attention", "dropout")
SETUP_OPTIONS = (*DEGREES, "distributed-optimizer", "seq", "target-seq", "recompute", *POLICY_OPTIONS)
"""What a training step depends on, in memory and in time."""

STATE_OPTIONS = (
    "dp-shard",
    "freeze-layers",
    "ema",
    "offload",
    "loss",
    "framework",
    "lora-rank",
    "lora-targets",
    "quantized",
)
"""What changes bytes and hardly time; for the commands that count bytes."""

SETUP_DEFAULTS: dict[str, str | bool] = {
    "tp": "1",
    "pp": "1",
    "cp": "1",
    "ep": "1",
    "etp": "1",
    "vp": "1",
    "zero": "0",
    "micro-batch": "1",
    "recompute": "none",
    "precision": "bf16-mixed",
    "optimizer": "adamw",
    "implementation": "hf",
    "attention": "flash",
    "dropout": "0",
}
"""The setup of a step where nothing else is asked for."""

STEP_MODEL = (*DEGREES[1:], "recompute", "precision", "optimizer", "optimizer-form", "stack")
"""What the step model takes in addition to a model, its sequence and its GPUs: given one of these, it predicts."""
