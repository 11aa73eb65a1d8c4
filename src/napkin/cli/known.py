"""The names that an option or an argument may have as its value, for completion and hints. Each table is loaded on
demand."""

from __future__ import annotations

import functools

from napkin.options.registry import OPTIONS


@functools.cache
def known(name: str) -> tuple[str, ...] | frozenset[str]:
    """Return the names that an option accepts, in every accepted spelling; empty if its value is not a name."""
    if name in ("hardware", "accelerator"):
        from napkin._tables import hardware

        return frozenset(hardware.NAMES)
    return frozenset(offered(name))


@functools.cache
def offered(name: str) -> tuple[str, ...]:
    """Return the names that completion offers for an option, in their first spelling."""
    read = _TABLES.get(name)
    return OPTIONS[name].choices if read is None else read()


def _hardware() -> tuple[str, ...]:
    from napkin._tables import hardware

    short = (name for name, slug in hardware.NAMES.items() if slug.startswith(name))  # h800 of h800-sxm-80gb
    return tuple(sorted({*hardware.ACCELERATORS, *hardware.FAMILIES, *short}))


def _links() -> tuple[str, ...]:
    from napkin._tables import hardware

    return tuple(hardware.LINKS)


def _models() -> tuple[str, ...]:
    from napkin.inputs.presets import names

    return names()


def _families() -> tuple[str, ...]:
    from napkin.inputs.presets import all_fields

    return tuple(sorted({str(fields["family"]) for _, fields in all_fields()}))


def _vendors() -> tuple[str, ...]:
    from napkin._tables import hardware

    return tuple(sorted({str(fields["vendor"]).lower() for fields in hardware.ACCELERATORS.values()}))


def _formats() -> tuple[str, ...]:
    from napkin.formats import FORMATS

    return tuple(FORMATS)


def _policies() -> tuple[str, ...]:
    from napkin.training.precision import POLICIES

    return tuple(POLICIES)


def _optimizers() -> tuple[str, ...]:
    from napkin.training.optimizers import OPTIMIZERS

    return tuple(OPTIMIZERS)


def _trainers() -> tuple[str, ...]:
    from napkin.training.trainers import TRAINERS

    return tuple(TRAINERS)


def _frameworks() -> tuple[str, ...]:
    from napkin.training.frameworks import FRAMEWORKS

    return tuple(FRAMEWORKS)


def _implementations() -> tuple[str, ...]:
    from napkin.operations.frameworks import IMPLEMENTATIONS

    return tuple(IMPLEMENTATIONS)


def _stacks() -> tuple[str, ...]:
    from napkin.evidence.software.stacks import STACKS

    return tuple(STACKS)


def _conventions() -> tuple[str, ...]:
    from napkin.counting.conventions import NAMES

    return tuple(NAMES)


def _offloads() -> tuple[str, ...]:
    from napkin.options.parsers import OFFLOADS

    return OFFLOADS


def _moved() -> tuple[str, ...]:
    from napkin.options.rollout import MOVED

    return (*MOVED, "none")


def _measured() -> tuple[str, ...]:
    from napkin.options.comparing import MEASURED

    return MEASURED


def _target_modules() -> tuple[str, ...]:
    return ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def _sides() -> tuple[str, ...]:
    return (*_hardware(), *_models())


def _kinds_of_recomputation() -> tuple[str, ...]:
    parts = ("selective", "selective:moe_act+layernorm", "operations")
    return ("none", *parts, "full", "every:2", "group:2", "group:sqrt")


def _regions() -> tuple[str, ...]:
    from napkin.evidence.figures.power import GRIDS

    return tuple(GRIDS)


def _laws() -> tuple[str, ...]:
    from napkin.planning.laws.known import LAWS

    return tuple(LAWS)


_TABLES = {
    "law": _laws,
    "region": _regions,
    "hardware": _hardware,
    "accelerator": _hardware,
    "vendor": _vendors,
    "link": _links,
    "model": _models,
    "like": _models,
    "family": _families,
    "dtype": _formats,
    "cache-dtype": _formats,
    "out-dtype": _formats,
    "param-dtype": _formats,
    "value": _formats,
    "precision": _policies,
    "optimizer": _optimizers,
    "optimizer-name": _optimizers,
    "framework": _frameworks,
    "trainer": _trainers,
    "implementation": _implementations,
    "stack": _stacks,
    "flops": _conventions,
    "recompute": _kinds_of_recomputation,
    "offload": _offloads,
    "rollout-offload": _moved,
    "lora-targets": _target_modules,
    "what": _measured,
    "only": _measured,
    "sides": _sides,
    "reference": _models,
    "reward": _models,
    "critic": _models,
}
