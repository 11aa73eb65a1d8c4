"""Errors for words that napkin cannot read, with the probable meaning. Loaded only if a line holds one."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from napkin.commands.command import MODULES, WRAPPERS
from napkin.commands.signature import OptionText, Signature
from napkin.errors import NapkinError, did_you_mean, listed, nearest
from napkin.options.registry import OPTIONS, spelled

SERVED = "--dtype int4, fp8, …: the format of the weights that are served"
ALIKE = {
    "micro-batch": ("batch",),
    "global-batch": ("batch",),
    "precision": ("param-dtype", "dtype"),
    "sample-tokens": ("seq",),
}
"""Option → the options, best first, that a command which lacks it may have in its place."""
POLICY = "training takes a policy: --precision bf16-mixed, fp8-mixed, fp32, …"


def unknown_option(command: Signature, head: str, spelling: str, printed: bool = True) -> NapkinError:
    """Return the error for an unknown option, with the nearest known one as the hint if it will be `printed`."""
    if not printed:
        return NapkinError(f"{command.name} has no option {head[:60]}")
    from napkin.options.launches import needless

    predicts = not {"model", "params"}.isdisjoint(command.names)
    what = needless(spelling) if predicts else None
    if what is not None:
        hint = f"leave it out: what it states ({what}) changes neither memory nor time"
    else:
        known = (*command.takes, *command.figures)
        begun = [name for name in known if name.startswith(spelling)] if len(spelling) > 1 else []
        near = begun[:3] or nearest(spelling, known)  # without the dashes, which all have alike
        close = f"did you mean {' or '.join(OPTIONS[name].shown for name in near)}?" if near else None
        valued = None if spelled(spelling, OPTIONS) else _as_value(command, spelling)
        elsewhere = None if begun and spelling not in OPTIONS else _elsewhere(command, spelling)
        meant = spelled(spelling, OPTIONS)
        policy = meant == "dtype" and "precision" in command.takes
        serves = meant == "quantized" and "engine" in command.takes
        alike = next((OPTIONS[one].usage for one in ALIKE.get(meant or "", ()) if one in command.takes), None)
        stated = POLICY if policy else SERVED if serves else alike
        hint = stated or valued or elsewhere or close or f"napkin {command.name} --help lists the options"
    return NapkinError(f"{command.name} has no option {head[:60]}", hint)


def _as_value(command: Signature, spelling: str) -> str | None:
    """Return a hint for a value that is written as an option: `--unsloth`, `--dora`, `--h100`."""
    from napkin.inputs import hardware
    from napkin.training import frameworks, trainers

    for name, known in (("trainer", trainers.TRAINERS), ("framework", frameworks.FRAMEWORKS)):
        if spelling in known and name in command.takes:
            return f"--{name} {spelling}"
    for name in command.takes:
        if spelling in OPTIONS[name].choices and spelling != "none":
            return f"--{name} {spelling}"
    if "hardware" in command.takes and any(c.isdigit() for c in spelling):
        try:
            return f"--hardware {spelling}" if hardware.find(spelling) else None
        except NapkinError:
            return None
    return None


def _elsewhere(command: Signature, spelling: str) -> str | None:
    """Return a hint that names the commands with that option, if there are any."""
    from napkin._tables.takes import TAKES
    from napkin.cli.overview import ASKED

    name, denied = spelled(spelling, OPTIONS), ""
    if name is None and spelling.startswith("no-"):
        flag = spelled(spelling[3:], OPTIONS)
        name, denied = (flag, "no-") if flag is not None and OPTIONS[flag].flag else (None, "")
    asked = [command for _, commands in ASKED for command in commands]
    commands = [one for one in asked if name in TAKES.get(one, ())]
    if commands and "against" in command.takes:  # of two names, not of a question with options
        kind = "step" if "step" in commands else commands[0]
        who, other = ("", "params") if name == "params" else (" A", "model")  # a count replaces a model
        return f"napkin compare {kind}{who} --{denied}{name} … --against {other}=B, or hardware=B"
    return f"napkin {listed(commands[:3])} take{'s' * (len(commands) == 1)} --{denied}{name}" if commands else None


def refuse_trainer_line(command: Signature, words: Sequence[str]) -> None:
    """Reject a pasted Hugging Face Trainer launch as one problem, because its options have other meanings."""
    from napkin.cli.spellings import is_trainer

    if "from" not in command.takes or not is_trainer(words):
        return
    hint = f"write that launch to run.sh, with its python or accelerate, and ask: napkin {command.name} --from run.sh"
    raise NapkinError("options of Hugging Face's Trainer mean other things here (its --bf16 keeps fp32 weights)", hint)


def refuse_missing_command(command: Signature, words: Sequence[str]) -> None:
    """Reject the line of a wrapper that does not begin with the command to run (`sweep llama3-8b --gpus 8`) as one
    problem."""
    if command.name not in WRAPPERS or "sides" in command.names:
        return  # `compare A B` names no command
    from napkin.cli.spellings import is_size
    from napkin.inputs.presets import is_preset
    from napkin.options.command_line import quoted

    first = words[0]
    if not (first.startswith("-") or is_preset(first) or is_size(first) or "/" in first):
        hint = did_you_mean(first, MODULES) or "napkin --help lists the commands"
        raise NapkinError(f"no such command {first[:60]!r}", hint)
    line = " ".join(map(quoted, words))
    example = f"napkin {command.name} step {line}" if len(line) <= 120 else f"napkin {command.examples[0]}"
    raise NapkinError(f"{command.name}: which command?", example)


def misdashed(command: Signature, head: str, spelling: str) -> NapkinError:
    """Return the error for `-tp` and `—gpus`, with the intended option as the hint."""
    name = spelled(spelling, {*command.names, *command.figures})
    if name is not None:
        return NapkinError(f"{head[:60]} is not an option", f"--{name} {OPTIONS[name].metavar}, with two hyphens")
    return NapkinError(f"{command.name} has no option {head[:60]}", f"napkin {command.name} --help lists the options")


def unexpected_word(command: Signature, word: str, given: Mapping[str, OptionText], flag: str = "") -> NapkinError:
    """Return the error for an unexpected word without dashes; flag: the option before it, if that takes no value."""
    takes = " ".join(OPTIONS[name].metavar for name in command.arguments)
    usage = f"takes {takes}, then options" if takes else f"takes options only: napkin {command.examples[0]}"
    hint = (
        _of_second_side(command, word, given)
        or _of_shape(command, word)
        or _of_model(word, given)
        or _of_number(command, word, given)
        or _of_format(command, word, given)
        or _after_flag(flag)
        or f"napkin {command.name} {usage}"
    )
    return NapkinError(f"unexpected word {word[:60]!r}", hint)


def _of_second_side(command: Signature, word: str, given: Mapping[str, OptionText]) -> str | None:
    """Return a hint for the other side named as a word, `compare step llama3-8b llama3-70b --gpus 8`, or as an option
    past a bare --."""
    name = next((one for one in command.arguments if one in given), None)
    if "against" not in command.names or name is None:
        return None
    if word.startswith("--"):
        return f"--against {word[2:62]}=VALUE: options of the other side"
    from napkin.commands.compare import LISTED

    if command.target in LISTED:
        return f"napkin compare {given[name].text} {word[:60]}"
    return f"--against {name}={word[:60]}"


def _of_shape(command: Signature, word: str) -> str | None:
    """Return a hint for a model's name given to a command that takes only a shape: `max-params llama3-8b`."""
    from napkin.inputs.presets import is_preset

    return f"--like {word}" if "like" in command.names and "model" not in command.names and is_preset(word) else None


def _of_model(word: str, given: Mapping[str, OptionText]) -> str | None:
    """Return a hint if this word and those before it spell a model's name: `llama 3 8b`."""
    from napkin.inputs.presets import is_preset

    before = [str(given[name].text) for name in ("model", "size") if name in given]
    for between in ("-", ""):
        whole = between.join(before) + f"-{word}"
        if before and is_preset(whole):
            return f"a model's name is one word: {whole.lower()}"
    return None


def _of_format(command: Signature, word: str, given: Mapping[str, OptionText]) -> str | None:
    """Return a hint for a number that follows a number format: `dtype bf16 3.14`."""
    if not {"value", "dtype"} <= {*command.names} or "value" not in given or not word[:1].isdigit():
        return None
    return f"napkin {command.name} {word} --dtype {given['value'].text}"


def _after_flag(name: str) -> str | None:
    """Return a hint for a word that follows an option without a value."""
    return f"--{name} takes no value: {OPTIONS[name].help}" if name else None


def _of_number(command: Signature, word: str, given: Container[str]) -> str | None:
    """Return a hint for a bare number: the option that it belongs to, or the question whether such a model fits."""
    from napkin.cli.spellings import is_size

    taken = {*command.names, *command.figures}
    if word.isdigit() and "gpus" in taken and "gpus" not in given:
        return f"--gpus {word}"
    if word.isdigit() and "fan-in" in taken and "fan-in" not in given:
        return f"--fan-in {word}"
    if not is_size(word):
        return None
    sized = "model" in given or "params" in given
    for name in ("tokens",) if sized else ("params", "tokens"):
        if name in taken and name not in given:
            return f"--{name} {word}"
    fits = "hardware" in taken and not {"params", "model"} & taken
    return f"napkin memory {word} --hardware h100 says whether a model of that size fits" if fits else None


def ask_sweep(command: Signature, given: Mapping[str, OptionText], several: Mapping[str, str]) -> list[NapkinError]:
    """Return the errors for lists and ranges given where one value is expected, with the `sweep` command that answers
    them."""
    from napkin.cli.spellings import digits
    from napkin.options.command_line import pieces_of, quoted, typed

    texts = {name: typed(one.text) for name, one in given.items()}
    ranges = {flag: f"{name}={text}" for flag, (name, text) in zip(("over", "by"), several.items(), strict=False)}
    first, *rest = pieces_of(f"sweep {command.target or command.name}", texts, ranges)
    files = typed(given["from"].text) if "from" in given else ()  # not an option of the question, but it states some
    listed = files if isinstance(files, (list, tuple)) else ()
    line = " ".join([first, *(f"--from {quoted(one)}" for one in listed), *rest])
    problems = []
    for name, text in several.items():
        number = digits(text)
        hint = line + (f"; one number is written {number}" if number else "")
        problems.append(NapkinError(f"{OPTIONS[name].shown}: {text[:60]!r} is several values", hint))
    return problems
