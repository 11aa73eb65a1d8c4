"""The engines of AReaL's allocation, `sglang:d4t2+fsdp:d8`: what trains, on how many GPUs, and how it is divided."""

from __future__ import annotations

import re

from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.values import Open, either, flag, product, whole

ACTOR, ENGINE, OLDER = "actor.backend", "rollout.backend", "allocation_mode"
FSDP, MCORE, ARCHON = "fsdp", "megatron", "archon"
GENERATE = ("sglang", "vllm")
EAGER = {"sglang": "sglang.disable_cuda_graph", "vllm": "vllm.enforce_eager"}
"""The key by which an engine that generates captures no graphs; files hold those of both engines."""
SIZES = r"(?:[dtpce]\d+)+"
PART = re.compile(
    r"(?:(?P<engine>sglang|vllm|fsdp|megatron|archon)(?:\[\w+\])?[:.])?"
    rf"(?:(?P<sizes>{SIZES})|\(attn:(?P<attention>{SIZES})\|ffn:(?P<experts>{SIZES})\))"
)
"""One engine of an allocation (areal/api/alloc_mode.py): its name, which trains if it is left out, and its sizes,
which may be of attention and of experts apart."""


def engines(reading: Reading) -> tuple[str, dict[str, int], dict[str, int], list[str]] | None:
    """Return the trainer's engine and sizes, the sizes of the engine that generates, and their keys; None if open."""
    found, sizes, generating = "", {}, {}
    keys = [key for key in (ACTOR, ENGINE) if reading.find(key) is not None] or [OLDER]
    for key in keys:
        stated = reading.find(key)
        if stated is None or isinstance(stated.value, Open):
            return None
        for text in str(stated.value).replace(" ", "").split("+"):
            part = PART.fullmatch(text)
            if part is None:
                return None
            each = _sizes(part["sizes"] or part["attention"])
            if part["experts"] and not _joins(each, _sizes(part["experts"])):
                return None
            if part["engine"] in GENERATE:
                generating = each
            else:
                found, sizes = part["engine"] or found, each
    return found, sizes, generating, keys


def _sizes(text: str) -> dict[str, int]:
    return {size[0]: int(size[1:]) for size in re.findall(r"[a-z]\d+", text)}


def _joins(sizes: dict[str, int], experts: dict[str, int]) -> bool:
    """Add the experts' sizes to those of attention; return whether both are of as many ranks, as AReaL demands."""
    ranks = product([sizes.get(letter, 1) for letter in "dtpc"])
    each = product([experts.get("t", 1), experts.get("e", 1), experts.get("p", sizes.get("p", 1))])
    sizes |= {"e": experts.get("e", 1), "etp": experts.get("t", 1)}
    return ranks % each == 0 and experts.get("d", ranks // each) == ranks // each


def take_layout(reading: Reading) -> None:
    """Read the engines' sizes: data, tensor, pipeline, context and expert parallelism."""
    read = engines(reading)
    keys = [key for key in (ACTOR, ENGINE, OLDER) if key in reading.source]
    if read is None or not read[1]:
        for option in ("gpus", "framework"):
            reading.ask(option, *keys or [ACTOR])
        if reading.source.has_any("gconfig", "rollout"):
            reading.ask("rollout", *keys or [ENGINE])
        return
    engine, sizes, generating, keys = read
    where = keys[0]
    trainers = product([sizes.get(letter, 1) for letter in "dtpc"])
    others = product([generating.get(letter, 1) for letter in "dtp"]) if generating else 0
    reading.derive("gpus", trainers + others, *keys)
    if generating:
        reading.derive("rollout", f"separate:{others}", *keys)
        reading.derive("rollout-tp", product([generating.get(letter, 1) for letter in "tp"]), *keys)
        family = GENERATE[1] if any(GENERATE[1] in str(reading.source.plain(key)) for key in keys) else GENERATE[0]
        reading.take("rollout-eager", EAGER[family], flag)
    for letter, option in (("t", "tp"), ("p", "pp"), ("c", "cp"), ("e", "ep"), ("etp", "etp"), ("d", "dp")):
        if letter in sizes:
            reading.derive(option, sizes[letter], where)
    engine = engine or (MCORE if sizes.get("p", 1) > 1 or sizes.get("e", 1) > 1 else FSDP)
    if engine == ARCHON:
        _archon(reading, where, sizes.get("p", 1))
    elif engine == FSDP:
        reading.derive("framework", "fsdp", where)
        reading.derive("zero", 3, where)
        reading.switch("offload", "optimizer,parameters", "actor.fsdp.offload_params")
        if reading.read("actor.fsdp.per_layer_optim_step", flag):
            reading.refuse("actor.fsdp.per_layer_optim_step", "streams the states of a layer at a time", "offload")
    else:
        reading.derive("framework", "megatron-core", where)
        reading.derive("implementation", "megatron", where)
        reading.take("zero", "actor.megatron.ddp.use_distributed_optimizer", either(1, 0), default=1)
        reading.take("vp", "actor.megatron.virtual_pipeline_parallel_size", whole)
        if sizes.get("t", 1) > 1:
            reading.derive("sp", True, where)


def _archon(reading: Reading, where: str, stages: int) -> None:
    """Read AReaL's engine of its own: FSDP2, with torchtitan's choices of resharding, compilation and schedule
    (areal/experimental/engine/archon_engine.py)."""
    reading.derive("framework", "fsdp", where)
    policy = "actor.archon.reshard_after_forward_policy"
    kept = {"always": False, "never": True}.get(str(reading.source.plain(policy)), stages > 1)
    reading.derive("zero", 2 if kept else 3, where, *([policy] if policy in reading.source else []))
    reading.switch("offload", "optimizer,parameters", "actor.archon.offload_params")
    reading.take("compile", "actor.archon.enable_compile", flag)
    if stages > 1:
        reading.ask("vp", "actor.archon.pp_schedule")


def take_archon_recompute(reading: Reading) -> None:
    """Read activation checkpointing: of torchtitan's kinds, whose default is selective by operation."""
    again, mode, option = "actor.gradient_checkpointing", "actor.archon.ac_mode", "actor.archon.selective_ac_option"
    on, kind = reading.read(again, flag), str(reading.source.plain(mode) or "selective")
    each = str(reading.source.plain(option) or "op")
    keys = [key for key in (again, mode, option) if key in reading.source]
    if not on or kind == "none":
        reading.derive("recompute", "none", *keys)
    elif kind == "selective" and (each == "op" or each.isdecimal()):
        reading.derive("recompute", "operations" if each == "op" else f"every:{int(each)}", *keys)
    elif kind == "full":
        reading.derive("recompute", "full", *keys)
    else:
        reading.ask("recompute", *keys)
