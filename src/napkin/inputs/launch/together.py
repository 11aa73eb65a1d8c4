"""Merge the launch files of one run: accelerate's, the trainer's, DeepSpeed's."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from napkin.errors import NapkinError, listed
from napkin.inputs.launch.names import AUTOCAST, MASTER, PURE
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.stated import ASSUMED, DEFAULT, DERIVED, StatedOption

LAUNCHERS = ("accelerate", "deepspeed")
"""Formats that describe how a model is distributed, not what is trained."""
SOFT = (DEFAULT, ASSUMED)


def join(readings: Sequence[Reading], typed: Collection[str] = ()) -> Reading:
    """Return one reading of two files.

    A value wins over a default or open value of the other file; a launcher's file decides the precision. Two different
    values are a contradiction (2), unless the option is `typed` on the command line, which wins over both.
    """
    trainer = next((one for one in readings if one.format.name not in LAUNCHERS), readings[0])
    whole = Reading(trainer.source, trainer.format)
    for one in readings:
        for option, entry in one.inputs.items():
            _take(whole, option, _placed(entry, one), option in typed)
        whole.shape |= one.shape
        whole.config, whole.unbuilt = one.config or whole.config, one.unbuilt or whole.unbuilt
        whole.ignored += [key for key in one.ignored if key not in whole.ignored]
        whole.not_modelled += [said for said in one.not_modelled if said not in whole.not_modelled]
        whole.refused += [said for said in one.refused if said not in whole.refused]
    _precision(whole, readings)
    return whole


def _placed(entry: StatedOption, reading: Reading) -> StatedOption:
    """Return an entry whose keys are prefixed by the name of its file."""
    return StatedOption(entry.value, entry.origin, f"{reading.source.name}: {entry.where}", entry.place, entry.given)


def _take(whole: Reading, option: str, entry: StatedOption, settled: bool) -> None:
    mine = whole.inputs.get(option)
    if mine is None or mine.value is None:
        whole.inputs[option] = entry if mine is None or entry.value is not None else mine
        return
    if entry.value is None or entry.value == mine.value:
        return
    if mine.origin in SOFT:
        whole.inputs[option] = entry
    elif not settled and entry.origin not in SOFT and option not in ("precision", "trainer", "framework"):
        raise NapkinError(
            f"--{option} {entry.value} ({entry.where}) contradicts {mine.value} ({mine.where})",
            "give files of the same run",
        )


def _precision(whole: Reading, readings: Sequence[Reading]) -> None:
    """Set the precision that the launcher makes of the trainer's (accelerate/accelerator.py, prepare_model).

    FSDP under autocast upcasts trained weights to fp32; DeepSpeed keeps 16-bit weights with an fp32 copy.
    """
    launchers = [one for one in readings if one.format.name in LAUNCHERS]
    frameworks = [one.inputs["framework"] for one in launchers if "framework" in one.inputs]
    stated = whole.inputs.get("precision")
    if not frameworks or stated is None or whole.value_of("adapter"):
        return
    whole.inputs["framework"] = frameworks[0]
    own = [one.inputs["precision"] for one in readings if one not in launchers and "precision" in one.inputs]
    of_launcher = [one.inputs["precision"] for one in launchers if one.value_of("precision") is not None]
    kind = frameworks[0].value
    if of_launcher:
        entry = of_launcher[0]
        whole.inputs["precision"] = StatedOption(entry.value, DERIVED, _where(entry, *own), entry.place)
    elif own and own[0].value in (PURE, AUTOCAST):
        policy = {"deepspeed": MASTER, "fsdp": AUTOCAST}.get(str(kind), own[0].value)
        whole.inputs["precision"] = StatedOption(policy, DERIVED, _where(own[0], frameworks[0]), own[0].place)


def _where(*entries: StatedOption) -> str:
    return listed([one.where for one in entries]).replace(" and ", ", ")
