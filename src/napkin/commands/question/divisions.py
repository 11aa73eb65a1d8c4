"""What a library divides over ranks on a framework: layouts that it does not have are rejected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from napkin.commands.inputs import Inputs
from napkin.commands.question.software import read_framework, read_named_trainer, read_stage
from napkin.errors import NapkinError
from napkin.training.framework import ANY, Framework
from napkin.training.frameworks import FRAMEWORKS, PLAIN
from napkin.training.layout import Layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from napkin.training.trainer import Trainer

DEGREES = ("tp", "cp")


def check_layout(inputs: Inputs, framework: Framework, layout: Layout) -> None:
    """Reject a layout that the named library does not have on its framework, or a training program by itself. Another
    framework without a library may wrap a module that is divided already."""
    trainer = read_named_trainer(inputs)
    if trainer is None and not framework.program:
        return
    _check_stage(trainer, framework, int(layout.zero))
    for name in DEGREES:
        ranks = int(getattr(layout, name))
        if ranks > 1 and int(layout.zero) not in framework.divides.of(name, layout.ulysses):
            raise _read_lack(inputs, trainer, framework, name, layout.ulysses, int(layout.zero))
        if ranks > 1 and framework.divides.alone and layout.gpus != ranks:
            raise _read_others(inputs, trainer, framework, name, layout.ulysses)


def check_search(
    inputs: Inputs, frameworks: Iterable[Framework], only: Mapping[str, int], ulysses: bool = False
) -> None:
    """Reject a search for given degrees of which the named library has none on any of its frameworks, or none next to
    other ranks; and those of which a training program has none."""
    trainer, found = read_named_trainer(inputs), list(frameworks)
    if trainer is None and not found[0].program:
        return
    stage, gpus = only.get("zero", 0), inputs.peek("gpus")
    _check_stage(trainer, found[0], stage)
    for name in DEGREES:
        ranks = only.get(name, 1)
        having = [one for one in found if _has(one.divides.of(name, ulysses), only.get("zero"))]
        if ranks > 1 and not having:
            raise _read_lack(inputs, trainer, found[0], name, ulysses, stage)
        if ranks > 1 and isinstance(gpus, int) and gpus != ranks and all(one.divides.alone for one in having):
            raise _read_others(inputs, trainer, having[0], name, ulysses)


def _has(stages: tuple[int, ...], stage: int | None) -> bool:
    """Return whether ranks exist with a ZeRO stage; with any if it is None."""
    return bool(stages) if stage is None else stage in stages


def read_degrees(inputs: Inputs) -> tuple[str, ...]:
    """Return which of tp and pp the software has, on a framework that is named or that some ZeRO stage means."""
    trainer, framework = read_named_trainer(inputs), read_framework(inputs)
    found = [framework]
    if trainer is not None and framework.name == PLAIN.name:
        names = dict.fromkeys(filter(None, map(trainer.implied, ANY)))
        found += [trainer.on(FRAMEWORKS[name]) for name in names]
    has = {"tp": any(one.divides.tensor for one in found), "pp": any(one.divides.staged for one in found)}
    return tuple(name for name, there in has.items() if there)


def _check_stage(trainer: Trainer | None, framework: Framework, stage: int) -> None:
    if stage not in framework.divides.zero:
        backends = () if trainer is None else trainer.backends
        others = [f"--framework {one.framework}" for one in backends if stage in one.divides.zero]
        raise NapkinError(
            f"--zero {stage}: {_on(trainer, framework)} has no such stage",
            ", or ".join(others) or f"--zero {_or(framework.divides.zero)}",
        )


def _read_lack(
    inputs: Inputs, trainer: Trainer | None, framework: Framework, name: str, ulysses: bool, stage: int
) -> NapkinError:
    """Return the error about ranks that the library or program does not have, with what has them as the hint."""
    stages = framework.divides.of(name, ulysses)
    ways = [f"--zero {_or(stages)}"] if stages else []
    ways += _read_backends_with(inputs, trainer, framework, name, ulysses)
    said = f" with ZeRO-{stage}" if stages and stage else ""
    return NapkinError(
        f"--{name} {inputs.integer(name):,}: {_on(trainer, framework)} has no {_ranks(name, ulysses)}{said}",
        ", or ".join(ways) or f"--{name} 1",
    )


def _read_others(
    inputs: Inputs, trainer: Trainer | None, framework: Framework, name: str, ulysses: bool
) -> NapkinError:
    """Return the error about ranks next to others of a library that has them only by themselves."""
    others = _read_backends_with(inputs, trainer, framework, name, ulysses)
    ranks = inputs.integer(name)
    return NapkinError(
        f"--{name} {ranks:,}: {_on(trainer, framework)} has {_ranks(name, ulysses)} only without others",
        ", or ".join(others) or f"--gpus {ranks}",
    )


def _read_backends_with(
    inputs: Inputs, trainer: Trainer | None, framework: Framework, name: str, ulysses: bool
) -> Iterator[str]:
    """Yield the options that name another framework, or the second version of FSDP, on which the library has ranks of a
    degree next to others, with stages that it has them with if the one that is given is none of these. None without
    a library."""
    if trainer is None:
        return
    stage = read_stage(inputs) if "zero" in inputs or "distributed-optimizer" in inputs else None
    version = inputs.text_or_none("fsdp-version") or str(trainer.version)
    for one in trainer.backends:
        stages = one.divides.of(name, ulysses)
        if one.divides.alone or not stages:
            continue
        older = version == "1" and not one.divides_in(1).of(name, ulysses)
        ways = [f"--framework {one.framework}"] if one.framework != framework.name else []
        ways += ["--fsdp-version 2"] if older else []
        if ways and stage is not None and stage not in stages:
            ways.append(f"--zero {_or(stages)}")
        if ways:
            yield " ".join(ways)


def _or(stages: tuple[int, ...]) -> str:
    return " or ".join(map(str, stages))


def _on(trainer: Trainer | None, framework: Framework) -> str:
    if trainer is None:
        return f"--framework {framework.name}"
    differs = any(one.framework == framework.name and one.divides_in(1) != one.divides for one in trainer.backends)
    version = " version 1" if differs and framework.fsdp == 1 else ""
    return f"--trainer {trainer.name}" + ("" if framework.name == PLAIN.name else f" on {framework.name}{version}")


def _ranks(name: str, ulysses: bool) -> str:
    if name == "tp":
        return "tensor-parallel ranks"
    return f"context-parallel ranks that {'exchange heads' if ulysses else 'pass keys on'}"
