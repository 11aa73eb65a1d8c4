"""Names of optimizers in papers, libraries and launch files."""

from __future__ import annotations

SPELLINGS = {
    spelling: name
    for name, spellings in {
        "adamw": (
            *("adamw-torch", "adamw-hf", "adamw-torch-xla", "adamw-torch-npu", "adamw-torch-npu-fused", "adamw-apex"),
            *("fusedadam", "fused-adam", "distributed-fused-adam", "decoupled-adamw", "deepspeedcpuadam"),
        ),
        "adam-8bit": ("adam8bit",),
        "adamw-8bit": ("adamw8bit", "adamw-bnb-8bit", "adamw-torch-8bit", "ao-adamw-8bit"),
        "adamw-4bit": ("adamw4bit", "adamw-torch-4bit", "ao-adamw-4bit"),
        "paged-adamw": ("pagedadamw", "pagedadamw32bit", "paged-adamw-32bit"),
        "paged-adamw-8bit": ("pagedadamw8bit", "paged-adamw8bit"),
        "lion": ("lionw", "lion-32bit", "lion-pytorch", "decoupled-lionw"),
        "lion-8bit": ("lion8bit", "lion-bnb-8bit", "decoupled-lionw-8b"),
        "paged-lion": ("paged-lion-32bit",),
        "paged-lion-8bit": ("paged-lion8bit",),
        "rmsprop-32bit": ("rmsprop-bnb", "rmsprop-bnb-32bit"),
        "rmsprop-8bit": ("rmsprop-bnb-8bit",),
        "sgd-momentum": ("momentum", "sgdm"),
        "sgd-nesterov": ("nesterov",),
        "lamb": ("fusedlamb",),
        "sophia": ("sophiag",),
        "came": ("came-pytorch",),
        "adam-mini": ("adammini",),
        "shampoo": ("distributed-shampoo", "distributedshampoo"),
    }.items()
    for spelling in spellings
}
"""Another name → napkin's, in lower case with hyphens. From transformers (training_args.py, OptimizerNames),
bitsandbytes, apex, torchao, DeepSpeed and Composer."""

_SCHEDULE_FREE = "keeps the point that it averages in place of the first moment"
UNMODELED = {
    **dict.fromkeys(("ademamix", "ademamix-8bit", "paged-ademamix-32bit", "paged-ademamix-8bit"),
                    "keeps a second, slower average of the gradients"),
    **dict.fromkeys(("schedule-free-adamw", "schedule-free-radam", "schedule-free-sgd"), _SCHEDULE_FREE),
    **dict.fromkeys(("galore-adafactor", "galore-adafactor-layerwise"), "projects the gradients of Adafactor"),
    "adalomo": "updates in the backward pass with factored second moments",
    "grokadamw": "keeps a running average of the gradients that it amplifies",
    "stable-adamw": "clips its updates, and may keep the rounding error of each 16-bit weight",
    "adamw-anyprecision": "keeps its moments in types of their own",
}  # fmt: skip
"""Names of optimizers that napkin does not model → what they do. From transformers (training_args.py, OptimizerNames;
trainer_optimizer.py)."""
