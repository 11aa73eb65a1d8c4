"""Optimizers whose states are of gradients projected to a low rank, and steps in the backward pass, as files state
them."""

from __future__ import annotations

import re

from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.values import flag, whole

PROJECTED = ("galore-adamw", "galore-adamw-8bit", "apollo-adamw")
IN_BACKWARD = "-layerwise"
"""The end of transformers' names of optimizers that update each weight as soon as its gradient is ready."""
LINEARS = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
USUAL = {"proj_type": "std", "proj": "random", "scale_type": "channel"}
"""The projection that napkin models, by the arguments' names in galore_torch and apollo_torch."""
OTHER_MODULES = "projects the gradients of other modules than all linear layers of the blocks"


def take_projected(reading: Reading, key: str, word: str) -> bool:
    """Read one of transformers' names of a low-rank optimizer, with its rank among optim_args (trainer_optimizer.py,
    rank 128) and its modules; return whether it is one."""
    name = word.removesuffix(IN_BACKWARD)
    if name not in PROJECTED:
        return False
    arguments, modules = "optim_args", "optim_target_modules"
    stated = dict(one.strip().partition("=")[::2] for one in str(reading.source.plain(arguments) or "").split(","))
    rank = stated.get("rank", "128")
    named = reading.source.plain(modules)
    if reading.open_among(arguments, modules) or not rank.isdecimal():
        reading.ask("optimizer", key, arguments, modules)
    elif not _takes_layers(named):
        reading.ask("optimizer", key, modules)
        reading.refuse(modules, OTHER_MODULES, "optimizer")
    elif not _is_usual(reading, stated, arguments):
        reading.ask("optimizer", key, arguments)
    else:
        reading.assume("optimizer", f"{name}:{rank}", key, arguments, modules)
        if word.endswith(IN_BACKWARD):
            reading.put("optimizer-in-backward", True, key)
    return True


def _takes_layers(modules: object) -> bool:
    """Return whether module names cover attention and MLP of each block, and nothing else."""
    named = modules if isinstance(modules, list) else [modules]
    words = {word for one in named for word in re.findall(r"[a-z][a-z_]+", str(one or ""))}
    attention = {"attn", "self_attn", "attention"}
    return words == LINEARS or (bool(words & attention) and "mlp" in words and words <= attention | {"mlp"})


def _is_usual(reading: Reading, stated: dict[str, str], key: str) -> bool:
    """Return whether the projection is the one that napkin models; refuse another. stated: by its argument."""
    other = next((name for name, usual in USUAL.items() if stated.get(name, usual) != usual), None)
    if other is not None:
        reading.refuse(key, f"{other} {stated[other][:40]}: napkin models {USUAL[other]}", "optimizer")
    return other is None


def take_galore_of_swift(reading: Reading, base: str) -> None:
    """Read ms-swift's use_galore, of rank 128 on all linear layers of the blocks by default (modelscope/ms-swift
    swift/arguments/tuner_args.py; swift/optimizers/galore/utils.py, create_optimizer_and_scheduler).

    base  the optimizer that it projects, as napkin calls it"""
    switch, rank, modules = "use_galore", "galore_rank", "galore_target_modules"
    named = reading.source.plain(modules)
    others = [key for key in ("galore_with_embedding", "galore_quantization") if reading.read(key, flag)]
    stated = str(reading.source.plain("galore_proj_type") or USUAL["proj_type"])
    keys = [key for key in (switch, rank, modules, "galore_proj_type") if key in reading.source]
    projected = f"galore-{base}"
    if reading.open_among(*keys):
        reading.ask("optimizer", *keys)
    elif projected not in PROJECTED or stated != USUAL["proj_type"]:
        reading.ask("optimizer", switch)
        why = f"projects the gradients of {base} by {stated}, which napkin does not model"
        reading.refuse(switch, why, "optimizer")
    elif others or (named and not _takes_layers(named if isinstance(named, list) else str(named).split())):
        reading.ask("optimizer", switch)
        why = "keeps its projections in fewer bits" if "galore_quantization" in others else OTHER_MODULES
        reading.refuse(others[0] if others else modules, why, "optimizer")
    else:
        reading.assume("optimizer", f"{projected}:{reading.read(rank, whole) or 128}", *keys)


def take_switched(reading: Reading, name: str, base: str) -> None:
    """Read LLaMA-Factory's use_galore or use_apollo, whose rank is 16 and whose modules are all linear layers of the
    blocks (hparams/finetuning_args.py; train/trainer_utils.py).

    name  galore or apollo     base  the optimizer that it projects, as napkin calls it
    """
    switch, target, rank, each = f"use_{name}", f"{name}_target", f"{name}_rank", f"{name}_layerwise"
    details = {f"{name}_{one}": one for one in USUAL}
    keys = [key for key in (switch, rank, target, *details) if key in reading.source]
    stated = {one: str(reading.source.plain(key)) for key, one in details.items() if key in reading.source}
    projected = f"{name}-{base}"
    modules = str(reading.source.plain(target) or "all")
    if projected not in PROJECTED:
        reading.ask("optimizer", switch)
        reading.refuse(switch, f"projects the gradients of {base}, which napkin does not model", "optimizer")
    elif reading.open_among(*keys):
        reading.ask("optimizer", *keys)
    elif modules != "all" and not _takes_layers(modules.split(",")):
        reading.ask("optimizer", switch)
        reading.refuse(target, OTHER_MODULES, "optimizer")
    elif not _is_usual(reading, stated, next((key for key in details if key in reading.source), switch)):
        reading.ask("optimizer", switch)
    else:
        reading.assume("optimizer", f"{projected}:{reading.read(rank, whole) or 16}", *keys)
        reading.switch("optimizer-in-backward", True, each)
