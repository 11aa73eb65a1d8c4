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
        "lion": ("lionw", "lion-pytorch", "decoupled-lionw"),
        "lion-32bit": ("lion-bnb", "lion-bnb-32bit"),
        "lion-8bit": ("lion8bit", "lion-bnb-8bit", "decoupled-lionw-8b"),
        "paged-lion": ("paged-lion-32bit",),
        "paged-lion-8bit": ("paged-lion8bit",),
        "ademamix": ("ademamix-32bit", "ademamix32bit", "ademamix-bnb"),
        "ademamix-8bit": ("ademamix8bit", "ademamix-bnb-8bit"),
        "paged-ademamix": ("paged-ademamix-32bit", "pagedademamix", "pagedademamix32bit"),
        "paged-ademamix-8bit": ("paged-ademamix8bit", "pagedademamix8bit"),
        "schedule-free-adamw": ("adamwschedulefree", "adamw-schedulefree", "adamw-schedule-free", "schedulefree-adamw"),
        "schedule-free-radam": ("radamschedulefree", "radam-schedulefree", "radam-schedule-free"),
        "schedule-free-sgd": ("sgdschedulefree", "sgd-schedulefree", "sgd-schedule-free", "schedulefree-sgd"),
        "rmsprop-32bit": ("rmsprop-bnb", "rmsprop-bnb-32bit"),
        "rmsprop-8bit": ("rmsprop-bnb-8bit",),
        "sgd-momentum": ("momentum", "sgdm"),
        "sgd-nesterov": ("nesterov",),
        "lamb": ("fusedlamb",),
        "sophia": ("sophiag",),
        "came": ("came-pytorch",),
        "adam-mini": ("adammini",),
        "galore-adamw-8bit": ("galore-adamw8bit",),
        "q-galore-adamw-8bit": ("q-galore-adamw8bit",),
        "shampoo": ("distributed-shampoo", "distributedshampoo"),
    }.items()
    for spelling in spellings
}
"""Another name → napkin's, in lower case with hyphens. From transformers (training_args.py, OptimizerNames),
bitsandbytes, apex, torchao, DeepSpeed, Composer and galore_torch."""

UNMODELED = {
    **dict.fromkeys(("galore-adafactor", "galore-adafactor-layerwise"), "projects the gradients of Adafactor"),
    "adalomo": "updates in the backward pass with factored second moments",
    "grokadamw": "keeps a running average of the gradients that it amplifies",
    "stable-adamw": "clips its updates, and may keep the rounding error of each 16-bit weight",
    "adamw-anyprecision": "keeps its moments in types of their own",
}  # fmt: skip
"""Names of optimizers that napkin does not model → what they do. From transformers (training_args.py, OptimizerNames;
trainer_optimizer.py)."""
