"""Options from the launch files of other frameworks (--from). They are treated like typed options; the command line
wins."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping, Sequence

from napkin.commands.command import Command, find
from napkin.commands.signature import OptionText, Signature
from napkin.errors import NapkinError, Problems, Refused
from napkin.inputs.launch.pace import pace
from napkin.inputs.launch.read import combined, read_launch
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.stated import ASSUMED, DEFAULT, DERIVED, FROM_FILE, Said, StatedOption
from napkin.inputs.load import printable
from napkin.inputs.model_file import is_path
from napkin.options.command_line import pieces_of, quoted, texts_of
from napkin.options.option import Option
from napkin.options.registry import OPTIONS
from napkin.options.training import FROZEN_FORMATS
from napkin.record import record, replace
from napkin.render.answer import Answer, Shown
from napkin.render.page import assumed_words, spelled_inputs
from napkin.render.screen import Next
from napkin.units import Unreadable

AMOUNTS = ("steps", "samples", "epochs", "tokens")
OTHERWISE = {"micro-batch": "micro-batch-tokens"}
"""Option that a file leaves open → the one that states the same in another unit."""
INSTEAD: Mapping[str, tuple[str, ...]] = {
    "dp": ("gpus", "nodes", "tp", "pp", "cp", "dp"),
    "dp-shard": ("zero", "gpus", "nodes", "dp"),
    "gpus": ("dp", "nodes", "gpus"),
    "nodes": ("gpus", "dp"),
    "grad-accum": ("global-batch", "micro-batch"),
    "micro-batch-tokens": ("micro-batch",),
    "cp": ("ulysses",),
    "ulysses": ("cp",),
    "global-batch": ("grad-accum", "samples-per-prompt"),
    "seq": ("prompt-tokens", "response-tokens", "max-prompt-tokens", "max-response-tokens"),
    "max-prompt-tokens": ("seq",),
    "max-response-tokens": ("seq",),
    "precision": ("lora-rank", "quantized", "adapter", "trainer"),
    "sp": ("tp",),
    "packing": ("tokens",),
    "vp": ("pp", "chunk-layers"),
    "schedule": ("pp",),
    "offload": ("zero",),
    "implementation": ("framework", "trainer"),
    **dict.fromkeys(AMOUNTS, AMOUNTS),
}
"""Option of a file → options of the command line that replace it."""
NEEDED = frozenset(
    [
        "model",
        "task",
        "gpus",
        "zero",
        "offload",
        "micro-batch",
        "seq",
        "precision",
        "recompute",
        "optimizer",
        "quantized",
        "lora-rank",
        "lora-targets",
        "rollout",
        "adapter",
        "freeze-head",
        "freeze-layers",
    ]
)
"""Options that change every answer; if a file leaves them open, the command line must give them."""
DEGREES = ("tp", "pp", "cp", "ep")
OF_ONE_LAYOUT = ("memory", "step", "mfu")
"""Commands that answer for the layout that they are given, where others choose the degrees that a file leaves open."""


@record
class Launch:
    """What launch files add to a command line: options, and notes for the answer."""

    paths: Sequence[str]
    typed: Collection[str]
    given: dict[str, OptionText]
    notes: list[str]
    assumed: list[str]
    clashes: tuple[Said, ...] = ()
    idle: tuple[Said, ...] = ()

    def add_to(self, answer: Answer) -> None:
        """Note in an answer what the files leave open, and name the files in the next command that it proposes."""
        answer.notes += self.notes
        answer.assumed += self.assumed
        answer.screen = replace(answer.screen, next=self._shortened(answer))

    def _shortened(self, answer: Answer) -> Next | str | None:
        """Return the next command with --from in place of the options that the files state, if that asks the same
        question; else unchanged."""
        following = answer.screen.next
        if not isinstance(following, Next) or "-" in self.paths or following.keep == ():
            return following
        name = following.command or answer.command
        stated = texts_of(spelled_inputs(answer), following.changes, following.keep)
        here = {one: text for one, text in stated.items() if one in self.typed or one in following.changes}
        try:
            command = find(name)
            files = options_of_launch(self.paths, command, {one: OptionText(text) for one, text in here.items()})
        except NapkinError:
            return following
        again = {**{one: text.text for one, text in files.given.items() if one in command.names}, **here}
        if any(again.get(one) != stated.get(one) for one in again.keys() | stated if one in answer.inputs):
            return following
        pieces = pieces_of(name, {}, here)
        return " ".join([*pieces[:1], *(f"--from {quoted(path)}" for path in self.paths), *pieces[1:]])


def options_of_launch(
    paths: Sequence[str], command: Signature, typed: Mapping[str, OptionText], clashing: bool = False
) -> Launch:
    """Return the options that files add to a command line. Raises NapkinError: 3 for a file with keys that would make
    an answer wrong, 2 for required options that the files leave open.

    clashing: keys that contradict each other are accepted and listed"""
    readings = [read_launch(path) for path in paths]
    reading = combined(readings, typed)
    refused = [one for one in reading.refused if not {one.option, *one.clash} & set(typed)]
    clashes = tuple(one for one in refused if one.clash and clashing)
    idle = tuple(one for one in reading.not_modelled if one.clash and clashing)
    _check_refused(reading, [one for one in refused if one not in clashes])
    solved = {str(typed[name].text) for name in ("max", "min") if name in typed}
    overruled = solved | {option for option, others in INSTEAD.items() if any(other in typed for other in others)}
    given: dict[str, OptionText] = {}
    problems: list[NapkinError] = []
    assumed: list[str] = []
    for option, entry in reading.inputs.items():
        if option in typed or option in overruled or (option == "model" and "params" in typed):
            continue
        if option == "zero" and (entry.value is None or entry.origin == DEFAULT) and _is_alone(reading, typed):
            continue
        if option == "model":
            _take_model(reading, entry, command, given, problems)
        elif option == "task" and entry.value is not None and not _is_known("task", str(entry.value)):
            problems.append(Refused(f"{entry.place}: napkin has no task {entry.value}", OPTIONS["task"].usage))
        elif option not in OPTIONS:
            continue
        elif entry.value is None:
            other = OTHERWISE.get(option, "")
            if other not in command.names or not reading.value_of(other):
                _ask(option, entry, command, problems, assumed)
        else:
            given[option] = _option_text(OPTIONS[option], entry)
    for option, (value, place) in ((name, one) for each in readings for name, one in pace(each.source).items()):
        if option in command.names and option not in typed:
            given.setdefault(option, OptionText(str(value), FROM_FILE, place, shared=True))
    if problems and not clashes and (not idle or "model" in {*given, *typed}):
        raise problems[0] if len(problems) == 1 else Problems(problems)
    _check_used(readings, typed)
    _agree(given, reading, typed)
    assumed = [*_assumed(reading, given), *assumed]
    notes = [f"{one.key} is not modeled: {one.why}" for one in reading.not_modelled]
    if notes:
        assumed.append(f"{len(notes)} key{'s' * (len(notes) > 1)} not modeled (napkin read)")
    return Launch(paths, frozenset(typed), given, notes, assumed, clashes, idle)


def _check_used(readings: Sequence[Reading], typed: Mapping[str, OptionText]) -> None:
    """Raise NapkinError for a file that says only what the command line says instead."""
    for one in readings:
        if one.inputs and one.inputs.keys() <= typed.keys():
            said = ", ".join(OPTIONS[name].shown for name in one.inputs if name in OPTIONS)
            raise NapkinError(
                f"{one.source.name}: says only {said}, which the command line says", "leave out one of the two"
            )


def with_launch(command: Command, options: dict[str, OptionText]) -> tuple[dict[str, OptionText], Launch | None]:
    """Return the options merged with those of the launch files that they name (the options win), and the notes of the
    files. For a command that reads launch files itself, return the options unchanged."""
    return (options, None) if command.opens else merged_with_launch(command, options)


def merged_with_launch(
    command: Signature,
    options: dict[str, OptionText],
    over: Mapping[str, OptionText] | None = None,
    clashing: bool = False,
) -> tuple[dict[str, OptionText], Launch | None]:
    """Return the same for any command.

    over: options that override both; clashing: keys that contradict each other are accepted and listed"""
    if "from" not in options:
        return options, None
    launch = options_of_launch(_files_of(options["from"]), command, {**options, **(over or {})}, clashing)
    return {**launch.given, **options}, launch


def _files_of(stated: OptionText) -> list[str]:
    """Return the files of --from; in a run file it may be one text.

    Raises NapkinError (2) for no file at all and for what is not a name.
    """
    listed = list(stated.text) if isinstance(stated.text, (list, tuple)) else [stated.text]
    if not listed or not all(isinstance(one, str) and one.strip() for one in listed):
        raise NapkinError(f"{stated.where or '--from'}: names no launch file", "for example from: train.yaml")
    return [str(one) for one in listed]


def _is_alone(reading: Reading, typed: Mapping[str, OptionText]) -> bool:
    """Return whether the run has one GPU, so that defaults for several GPUs do not apply."""
    stated = typed["gpus"].text if "gpus" in typed else reading.value_of("gpus")
    return str(stated) == "1" and "nodes" not in typed


def _assumed(reading: Reading, given: Collection[str]) -> list[str]:
    """Return what was assumed, in a few words: framework defaults, and names that napkin resolved."""
    soft = {name: one for name, one in reading.inputs.items() if name in given and one.origin in (DEFAULT, ASSUMED)}
    words = assumed_words({name: Shown(one.value, None, DEFAULT) for name, one in soft.items()})
    return [*([f"{reading.inputs['model'].value}"] if "model" in soft else []), *words]


def _check_refused(reading: Reading, found: Sequence[Said]) -> None:
    """Reject a file with keys that would make an answer wrong."""
    if found:
        places = [one.place or f"{reading.source.name}: {one.key}" for one in found]
        problems = [Refused(f"{at}: {one.why}", _hint(one.option)) for at, one in zip(places, found, strict=True)]
        raise problems[0] if len(problems) == 1 else Problems(problems)


def _hint(option: str) -> str:
    return OPTIONS[option].usage if option in OPTIONS else "remove the key if it does not matter"


def _take_model(
    reading: Reading, entry: StatedOption, command: Signature, given: dict[str, OptionText], problems: list[NapkinError]
) -> None:
    """Take the model that a file names, or a config.json built from the sizes that it gives."""
    if "model" not in command.names:
        return
    where = entry.place or entry.where
    if reading.shape and reading.config is not None:
        import json

        given["model"] = OptionText(json.dumps(dict(reading.config)), FROM_FILE, where)
    elif reading.shape.get("layers"):
        problems.append(
            reading.unbuilt or NapkinError(f"{where}: no model can be built of these sizes", "name a MODEL")
        )
    elif entry.value is None and is_path(entry.given) and not os.path.exists(os.path.expanduser(entry.given)):
        what = f"{where}: names the model {printable(entry.given, 80)}, which is not here"
        problems.append(NapkinError(what, f"name it: napkin {command.name} MODEL --from FILE"))
    elif entry.value is not None or entry.given:
        given["model"] = OptionText(str(entry.value or entry.given), FROM_FILE, where)
    else:
        what = f"leaves the model open{_because(entry)}" if entry.unknown else "names no model that napkin knows"
        problems.append(NapkinError(f"{where}: {what}", f"name it: napkin {command.name} MODEL --from FILE"))


def _because(entry: StatedOption) -> str:
    """Return what an open option depends on, in brackets."""
    return f" ({printable(entry.unknown, 60)})" if entry.unknown else ""


def _ask(option: str, entry: StatedOption, command: Signature, problems: list[NapkinError], assumed: list[str]) -> None:
    """Require an option that a file leaves open, if the command has it and its default would be a guess."""
    if option not in command.names:
        return
    if option in NEEDED or (option in DEGREES and command.name in OF_ONE_LAYOUT):
        usage = OPTIONS[option].usage
        where = entry.place or entry.where
        problems.append(NapkinError(f"{where}: leaves --{option} open{_because(entry)}", usage))
    else:
        assumed.append(f"{option} left open by {entry.where.split(', ')[0]}")


def _option_text(option: Option, entry: StatedOption) -> OptionText:
    """Return an entry as the option's text."""
    value = entry.given or entry.value if option.name == "lora-targets" else entry.value
    text: object = bool(value) if option.flag else str(value)
    return OptionText(text, FROM_FILE, entry.place or entry.where, shared=True)


def _agree(given: dict[str, OptionText], reading: Reading, typed: Mapping[str, OptionText]) -> None:
    """Drop options that follow from others or from napkin's own records: a trainer's usual precision with adapters, a
    batch computed for another number of GPUs, `all` LoRA targets without quantization. Add the prompts of a step that
    follow from the batch of a GPU."""
    if "grad-accum" in given and "global-batch" not in (*given, *typed):
        prompts = _prompts_of(given, typed)
        if prompts:
            given["global-batch"] = OptionText(str(prompts), FROM_FILE, given.pop("grad-accum").where, shared=True)
    if "global-batch" in given and "grad-accum" in given:
        derived = reading.inputs["global-batch"].origin == DERIVED
        moved = any(name in typed for name in ("gpus", "dp", "micro-batch"))
        del given["global-batch" if derived and moved else "grad-accum"]
    if str(given["lora-targets"].text if "lora-targets" in given else "") == "all":
        del given["lora-targets"]
    policy = given.get("precision")
    if policy is not None and "lora-rank" in (*given, *typed):
        text = str(policy.text)
        frozen = next((part[7:] for part in text.split(",") if part.startswith("frozen=")), "")
        if frozen in FROZEN_FORMATS:
            if "trainer" in given:
                del given["precision"]  # the trainer's own record says in what the rest is kept
            else:
                policy.text = text.replace(f"frozen={frozen}", "frozen=bf16")
    if "trainer" in given and not _is_known("trainer", str(given["trainer"].text)):
        del given["trainer"]


def _prompts_of(given: Mapping[str, OptionText], typed: Mapping[str, OptionText]) -> int:
    """Return the prompts of a step where the batch of a GPU counts responses, as TRL's does: micro-batch × accumulation
    × data-parallel GPUs ÷ responses per prompt. 0 where a factor is open, or the prompts are no whole number."""
    stated = {name: str(one.text) for name, one in {**given, **typed}.items()}
    generating = stated.get("rollout", "").partition("separate:")[2] or "0"
    degrees = [stated.get(name, "1") for name in ("tp", "pp", "cp")]
    factors = [stated.get(name, "") for name in ("micro-batch", "grad-accum", "samples-per-prompt")]
    gpus = stated.get("dp" if "dp" in typed else "gpus", "")
    if "nodes" in typed or not all(one.isdecimal() for one in (generating, gpus, *degrees, *factors)):
        return 0
    micro, accumulated, samples = map(int, factors)
    ranks, rest = divmod(int(gpus) - int(generating), math.prod(map(int, degrees)))
    if "dp" in typed:
        ranks, rest = int(gpus), 0
    responses = micro * accumulated * ranks
    return 0 if rest or ranks < 1 or not samples or responses % samples else responses // samples


def _is_known(option: str, text: str) -> bool:
    if option == "trainer":
        from napkin.training.trainers import TRAINERS

        return text in TRAINERS
    try:
        OPTIONS[option].parse(text)
    except Unreadable:
        return False
    return True
