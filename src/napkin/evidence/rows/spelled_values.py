"""Values of a row as people write them, in the form that is read: `ZeRO-3`, `8x A100`, `lora r=16`, GiB for bytes."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping

from napkin.errors import NapkinError
from napkin.evidence.rows.files import MEMORY, STEPS, TUNING
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.words import timed_kernel
from napkin.inputs import hardware

ROUNDED = 0.02
"""How far two statements of one quantity may be apart that are rounded."""


def same(one: object, other: object, within: float = 0.0) -> bool:
    """Return whether two values say the same: numbers as numbers, up to a share `within`; texts in any case."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    first, second = _plain(one), _plain(other)
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, rel_tol=within)
    return first == second


def _plain(value: object) -> object:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return re.sub(r"[-_ ]+", "-", value.strip().lower()) if isinstance(value, str) else value


def changed(row: RowFields, block: str, **values: object) -> RowFields:
    """Return the row with values of a block replaced; None removes a key."""
    part = {key: value for key, value in {**row.part(block), **values}.items() if value is not None}
    return row.replaced({**row.fields, block: part})


STAGE = re.compile(r"(?:deepspeed )?(?:zero)?(?: ?stage)? ?([0-3])")


def _stage(row: RowFields, told: list[str]) -> RowFields:
    """Read `ZeRO-3` and `stage 3` as the stage."""
    said = row.part("layout").get("zero")
    found = STAGE.fullmatch(re.sub(r"[-_ ]+", " ", said.strip().lower())) if isinstance(said, str) else None
    return changed(row, "layout", zero=int(found[1])) if found else row


def _optimizer_shards(row: RowFields, told: list[str]) -> RowFields:
    """Read Megatron's distributed optimizer as ZeRO-1, which it is."""
    said = row.flag("layout.distributed_optimizer")
    if said is None:
        return row
    stage = row.part("layout").get("zero")
    if stage is not None and bool(stage) != said:
        raise row.wrong("layout.distributed_optimizer", f"says {said}, and layout.zero says {stage}: a contradiction")
    return changed(row, "layout", zero=int(said) if stage is None else stage, distributed_optimizer=None)


COUNTED = (re.compile(r"(\d{1,7}) ?[x×*] ?(\D.*)"), re.compile(r"(.*?\S) ?[x×*] ?(\d{1,7})"))
"""`8x A100`, `A100 x8`."""


def _counted_machine(row: RowFields, told: list[str]) -> RowFields:
    """Read the number of accelerators before or after a name."""
    for field in ("accelerator", "chip"):
        said = row.part("hardware").get(field)
        found = _count_and_name(said) if isinstance(said, str) else None
        if found is None:
            continue
        count, name = found
        stated = row.count("hardware.count")
        if stated not in (None, count, *_of_a_node(row, count)):
            raise row.wrong(f"hardware.{field}", f"says {count}, and hardware.count says {stated}: a contradiction")
        row = changed(row, "hardware", **{field: name, "count": stated or count})
    return row


def _of_a_node(row: RowFields, count: int) -> tuple[int, ...]:
    """Return the accelerators of the machine if a name counts those of a node."""
    nodes = row.count("hardware.nodes")
    if row.count("hardware.per_node") == count:
        stated = row.count("hardware.count")
        return (stated,) if stated else ()
    return (nodes * count,) if nodes else ()


def _count_and_name(words: str) -> tuple[int, str] | None:
    for pattern, number, name in ((COUNTED[0], 1, 2), (COUNTED[1], 2, 1)):
        found = pattern.fullmatch(words.strip())
        if found is not None and _is_known(found[name]) and not _is_known(words):
            return int(found[number]), found[name]
    return None


def _is_known(name: str) -> bool:
    try:
        hardware.find(re.sub(r" \([^()]*\)$", "", name))
    except NapkinError:
        return False
    return True


def _nodes(row: RowFields, told: list[str]) -> RowFields:
    """Read the number of accelerators from the nodes and those of a node."""
    nodes, each, count = (row.count(f"hardware.{name}") for name in ("nodes", "per_node", "count"))
    if nodes is None:
        return row
    if each is None:
        even = count is not None and count % nodes == 0
        return changed(row, "hardware", per_node=count // nodes) if even and count and nodes > 1 else row
    if count is None:
        return changed(row, "hardware", count=nodes * each)
    if count != nodes * each:
        said = f"nodes {nodes} of {each}, and hardware.count says {count}: a contradiction"
        raise row.wrong("hardware.nodes", said)
    return row


THOUSANDS = re.compile(r"(\d+)k")


def _thousands(row: RowFields, told: list[str]) -> RowFields:
    """Say how a length in k is read."""
    for block, field in (("model", "seq"), ("layout", "seq"), ("layout", "seq_max")):
        said = row.part(block).get(field) if isinstance(row.fields.get(block), dict) else None
        found = THOUSANDS.fullmatch(said.strip().lower()) if isinstance(said, str) else None
        if found:
            binary = int(found[1]) * 1024
            told.append(f"{block}.{field}: {said} is read as {int(found[1]) * 1000:,} ({found[1]}Ki is {binary:,})")
    return row


UNITS = {"bytes": 1.0, "gib": 2.0**30, "gb": 1e9, "mib": 2.0**20, "mb": 1e6}


def _one_figure(row: RowFields, told: list[str]) -> RowFields:
    """Reject figures of memory in several units that are not the same. GB may be of 2³⁰ bytes."""
    stated = [(unit, value) for unit in UNITS if (value := row.number(f"memory.{unit}")) is not None]
    for (first, one), (second, other) in itertools.pairwise(stated):
        if not _alike(one * UNITS[first], other * UNITS[second], "gb" if "gb" in (first, second) else first):
            raise row.wrong(f"memory.{second}", f"{other:g}, and memory.{first} says {one:g}: a contradiction")
    return row


PEAKS = {"peak_bytes": 1.0, "peak_bytes_per_gpu": 1.0, "driver_bytes": 1.0, "driver_mib": 2.0**20}


def _peak_in_unit(row: RowFields, told: list[str]) -> RowFields:
    """Read a printed peak in its unit where no figure in bytes is the same one."""
    for unit in ("gib", "gb", "mib"):
        printed = row.number(f"measured.{unit}")
        stated = [(row.number(f"measured.{name}") or 0.0) * each for name, each in PEAKS.items()]
        if not printed or any(_alike(one, printed * UNITS[unit], unit) for one in stated):
            continue
        if stated[0] or stated[1]:
            told.append(f"measured.{unit}: not read; another figure than the peak in bytes")
        else:
            row = changed(row, "measured", peak_bytes=round(printed * UNITS[unit]))
    return row


def _alike(one: float, other: float, unit: str) -> bool:
    """Return whether two figures of memory are one, rounded; GB may be of 2³⁰ bytes."""
    binary = UNITS["gib"] / UNITS["gb"]
    ratios = (1.0, binary, 1 / binary) if unit == "gb" else (1.0,)
    return any(math.isclose(one, other * ratio, rel_tol=ROUNDED) for ratio in ratios)


def _kernel_of_the_model(row: RowFields, told: list[str]) -> RowFields:
    """Say that a kernel which a model's attention names is not read; reject one other than software runs by itself."""
    said = row.text("model.attention").lower()
    kernel = timed_kernel(said)
    if kernel == "flash":
        told.append("model.attention: flash is not read here, but in layout.attention")
    elif kernel:
        raise row.wrong("model.attention", f"{said[:40]} is a kernel: write layout.attention")
    return row


def _degrees(row: RowFields, told: list[str]) -> RowFields:
    """Say that data parallelism over another number of ranks than the others leave is not read for the time."""
    stated, count = row.count("layout.dp"), row.count("hardware.count")
    others = math.prod(row.count(f"layout.{name}") or 1 for name in ("tp", "pp", "cp", "ulysses"))
    if stated and count and count % others == 0 and stated * others != count:
        told.append(f"layout.dp: {stated} is not read; {count:,} accelerators leave {count // others}")
    return row


Reader = Callable[[RowFields, list[str]], RowFields]
"""Return a row with a value in the form that is read; say in the list what a person should know of it."""
READERS: tuple[Reader, ...] = (_stage, _counted_machine, _nodes, _thousands)
OF_SCHEMA: Mapping[str, tuple[Reader, ...]] = {
    STEPS: (_optimizer_shards, _kernel_of_the_model, _degrees),
    MEMORY: (_optimizer_shards, _kernel_of_the_model, _one_figure),
    TUNING: (_peak_in_unit,),
}
