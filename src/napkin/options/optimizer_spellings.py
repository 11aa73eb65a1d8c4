"""Names of optimizers in papers, libraries and launch files."""

from __future__ import annotations

SPELLINGS = {
    spelling: name
    for name, spellings in {
        "adamw": ("adamw-torch", "adamw-hf"),
        "adam-8bit": ("adam8bit",),
        "adamw-8bit": ("adamw8bit", "adamw-bnb-8bit", "adamw-torch-8bit", "ao-adamw-8bit"),
        "adamw-4bit": ("adamw4bit", "adamw-torch-4bit", "ao-adamw-4bit"),
        "paged-adamw": ("pagedadamw", "pagedadamw32bit", "paged-adamw-32bit"),
        "paged-adamw-8bit": ("pagedadamw8bit", "paged-adamw8bit"),
        "lion": ("lionw", "lion-32bit", "lion-pytorch", "decoupled-lionw"),
        "lion-8bit": ("lion8bit", "lion-bnb-8bit", "decoupled-lionw-8b"),
        "paged-lion": ("paged-lion-32bit",),
        "paged-lion-8bit": ("paged-lion8bit",),
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
