"""Read the options that a shell script passes to its training program, without running it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

from napkin.errors import NapkinError
from napkin.inputs.launch.checks import ALLOCATED
from napkin.inputs.launch.settings_files import named_in
from napkin.inputs.launch.shell.children import PROGRAMS
from napkin.inputs.launch.shell.closing import unclosed
from napkin.inputs.launch.shell.commands import Commands
from napkin.inputs.launch.shell.flow import Script
from napkin.inputs.launch.shell.marks import OPENED, clean, marks
from napkin.inputs.launch.source import FileValue, LaunchFile, check_size, scalar
from napkin.inputs.launch.values import Open
from napkin.inputs.load import Document
from napkin.record import record

_OPTION = re.compile(r"--?[A-Za-z][\w.\-]*(=.*)?", re.S)
_OVERRIDE = re.compile(r"[+~]*([A-Za-z_][\w.\-/@]*)=(.*)", re.S)
_DIRECTIVES = re.compile(r"^#SBATCH[ \t]+(.*?)(?:[ \t]#.*)?$", re.M)
_SBATCH = re.compile(r"(?<!\S)(?:(--(?:nodes|gpus-per-node|ntasks-per-node|gres|gpus))[=\s]\s*|(-N)\s*)(\S+)")
_ON_EACH = re.compile(r"^[^#\n]*(?<![\w./(`-])(?:srun|mpirun|mpiexec|pdsh|clush)\s", re.M)
"""A command that starts a program on every node of an allocation, and is no `$(srun hostname)`."""
SHORT = {"-N": "--nodes"}
"""Short spellings of sbatch's options."""
ONE = FileValue("#SBATCH --nodes", 1)
"""Slurm's nodes where a script asks for none."""
OF_SLURM = {
    "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "gpus_per_node": ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"),
    "gres": ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"),
    "ntasks_per_node": ("SLURM_NTASKS_PER_NODE",),
}
"""#SBATCH options → the variables in which Slurm passes them to the script."""
LAUNCHERS = ("NPROC_PER_NODE", "NNODES", "CUDA_VISIBLE_DEVICES")
"""Variables that launchers read and that have no equivalent option."""
OF_LAUNCHERS = (
    "nproc_per_node", "nnodes", "node_rank", "master_addr", "master_port", "rdzv_id", "rdzv_backend", "rdzv_endpoint",
    "num_processes", "num_machines", "machine_rank", "main_process_ip", "main_process_port", "config_file", "num_gpus",
    "num_nodes", "include", "exclude", "hostfile",
)  # fmt: skip
"""Options of torchrun, accelerate and deepspeed with one value."""
OF_SETTINGS = 8
"""Options that a settings file on a launch line counts for, when a script has several commands."""
OF_LIST = 6
"""Options in the variables of a script without a training command that make it a list of options."""
LARGEST = 1_000_000
"""Longest script, in characters. Published ones have thousands."""
TOOLS = (
    "vllm", "ray", "curl", "wget", "docker", "conda", "mamba", "aws", "gcloud", "kubectl", "hf", "[", "[[", "test",
    "grep", "sed", "awk", "scontrol",
)  # fmt: skip
"""Programs that train nothing themselves, unless they start one that does."""
MATTERS = {"PYTORCH_CUDA_ALLOC_CONF": "the allocator's settings", "PYTORCH_ALLOC_CONF": "the allocator's settings"}


def read(text: str, name: str, line: int = 0) -> LaunchFile:
    """Return the options of the script's training command: of the one with settings files or the most options.

    line  of the command, where a script has several: 0 for the first
    Raises NapkinError (2) if no command has options, or if none starts on the line.
    """
    if len(text) > LARGEST:
        raise NapkinError(f"{name}: is a script of more than 1 MB", "give the script that starts the training program")
    text = text.replace("\r\n", "\n")
    directives = _directives(text)
    slurm = {what: str(one.value) for what, one in directives.items()}
    known = {variable: slurm[what] for what, variables in OF_SLURM.items() if what in slurm for variable in variables}
    try:
        if (opened := unclosed(text)) is not None:
            raise NapkinError(f"{name}:{opened.line}: {opened.name} is opened and never closed", opened.hint)
        script = Script(clean(text), name, known).commands
    except RecursionError:
        raise NapkinError(f"{name}: is nested too deeply", "write fewer levels of brackets and quotes") from None
    words, options, others = _chosen(script, name, line)
    check_size(len(options), name)
    values: dict[str, FileValue] = {}
    lines: dict[tuple[object, ...], int] = {}
    rows = text.splitlines()
    for spelled, value in options.items():
        key = spelled.lstrip("-").replace("-", "_")
        values[key] = value
        at = next((n for n, row in enumerate(rows, 1) if spelled in row), None)
        if at is not None:
            lines[spelled,] = at
    values |= {f"sbatch.{what}": one for what, one in directives.items()}
    if directives.get("nodes", ONE).value != 1 and not _ON_EACH.search(text):
        values[ALLOCATED] = values.pop("sbatch.nodes")
    source = LaunchFile(name, "shell", values, Document(name, None, lines))
    plain = [marks(one)[0] for one in words]
    if not plain[0].startswith("-") or any(one.endswith(PROGRAMS) for one in plain):  # a list of options starts none
        source.command = tuple(marks(one)[0] for one in words if not one.startswith("-"))
    source.unread = {**_unread(script), **_of_variables(words)}
    if others and not line:
        rest = ", ".join(map(str, others[:10]))
        source.unread[f"line {rest}"] = f"starts training too; --from {name}:{others[0]} reads that command"
    source.environment = {
        name: marks(script.variables.texts[name])[0] for name in LAUNCHERS if name in script.variables.texts
    }
    source.settings = tuple(named_in(words))
    source.files = script.files
    return source


def _directives(text: str) -> dict[str, FileValue]:
    """Return the nodes, tasks and GPUs that a batch script's #SBATCH lines ask for; the last of each wins."""
    found: dict[str, FileValue] = {}
    for line in _DIRECTIVES.findall(text):
        for long, short, number in _SBATCH.findall(line):
            what = SHORT.get(short, long).lstrip("-").replace("-", "_")
            found[what] = FileValue(f"#SBATCH {long or short}", scalar(number.rsplit(":", 1)[-1]))
    return found


@record
class _Command:
    """A command of a script.

    line  where it starts     words  expanded     options  the options among them
    """

    line: int
    words: Sequence[str]
    options: Mapping[str, FileValue]

    @property
    def weight(self) -> int:
        """How much the command looks like the training program: its options, and a settings file of several."""
        plain = [marks(word)[0] for word in self.words]
        starts = any(word.endswith(PROGRAMS) for word in plain[1:])  # ray job submit -- python train.py
        if "pip" in plain[:3] or (plain[0].rsplit("/", 1)[-1] in TOOLS and not starts):  # python -m pip install
            return 0
        named = len(named_in(self.words)) if _TRAINS.search(" ".join(self.words)) else 0
        return len(self.options) + OF_SETTINGS * named

    @property
    def program(self) -> str:
        """The program that the command starts."""
        plain = [marks(word)[0] for word in self.words]
        module = next((plain[at + 1] for at, word in enumerate(plain[:-1]) if word == "-m"), "")
        return next((word.rsplit("/", 1)[-1] for word in plain if word.endswith(".py")), module or plain[0])


def _chosen(script: Commands, name: str, line: int) -> tuple[Sequence[str], Mapping[str, FileValue], list[int]]:
    """Return the words and options of the training command, and the lines of other runs of its program."""
    _check_whole(script, name)
    found: list[_Command] = []
    for commands in (script.found, script.spare, _held(script)):
        found = [_Command(at, words, _options(words)) for at, words in commands] or found
        if any(one.weight for one in found):
            break
    else:
        started = [one.program for one in found if one.program.endswith(".py")]
        what = (
            f"starts {started[0]} without options of its own"
            if started
            else "no training command with options was found"
        )
        raise unsourced(name, script.undecided) or NapkinError(
            f"{name}: {what}", "give the script that starts the training program, with its options"
        )
    best = max(found, key=lambda one: (one.weight > 0 and not _OF_OTHER_JOBS.search(one.program), one.weight))
    runs = [one for one in found if one.program == best.program and 2 * one.weight > best.weight]
    if line:
        best = next((one for one in reversed(found) if one.line <= line and one.weight), best)
        last = next((one.line for one in found if one.line > best.line), None)
        if line < best.line or (last is not None and line >= last):
            raise NapkinError(f"{name}:{line}: no command starts here", f"omit the line: --from {name}")
    return best.words, best.options, [one.line for one in runs if one is not best and one.options != best.options]


def unsourced(name: str, unread: Iterable[str]) -> NapkinError | None:
    """Return the error of a script that sources one that is not here; None if it sources none."""
    found = next((key.partition(" ")[2] for key in unread if key.startswith("source ")), "")
    return NapkinError(f"{name}: sources {found}, which was not found", "give it beside the script") if found else None


def _held(script: Commands) -> list[tuple[int, list[str]]]:
    """Return the options that a script keeps in variables for another one to pass on: `ARGS=(--num-layers 32)`."""
    texts = {name: text.split() for name, text in script.variables.texts.items()}
    lists = [words for words in (*texts.values(), *script.variables.arrays.values()) if any(map(_is_option, words))]
    words = [word for one in lists for word in one]
    script.variables.used |= {
        name for name, each in (*texts.items(), *script.variables.arrays.items()) if each in lists
    }
    return [(1, words)] if len(_options(words)) >= OF_LIST else []


_DOTTED = re.compile(r"[+~]*[A-Za-z_]\w*(?:\.\w+)+=.*", re.S)
"""Hydra's `block.key=value`, which is no assignment of a shell."""


def _check_whole(script: Commands, name: str) -> None:
    """Raise NapkinError (2) for options that bash runs as a command of their own, since the line above them ended."""
    before: Sequence[str] = ()
    for line, words in script.found:
        first = next((marks(word)[0] for word in words if not _is_array(word)), "")
        option = first.startswith("--") and first != "--"
        if (option or _DOTTED.fullmatch(first)) and any(_is_option(one) for one in before):
            if mixed := next((found for word in words[:2] if "undecided branch" in (found := marks(word)[2])), ""):
                raise NapkinError(
                    f"{name}:{line}: the command is put together from {mixed[:60]}",
                    "give the command alone: the line that the script prints or starts",
                )
            raise NapkinError(
                f"{name}:{line}: {first[:40]} begins a new command: bash ends the one above before this line",
                "move comments out of the command, and end each of its lines but the last in a backslash",
            )
        before = words


_OF_OTHER_JOBS = re.compile(
    r"(?:^|[_./])(?:create|combine|collect|build|decode|generat|eval|infer|convert|preprocess|process_|prepare|merge|serve|export|download|score|test|"
    r"report|monitor|plot|summar)"
)
"""Names of programs that do not train, of which a training script starts some before or after."""
_TRAINS = re.compile(r"train|tune|sft|dpo|grpo|orpo|kto|rlhf|\brun_|reward")


def _unread(script: Commands) -> dict[str, str]:
    """Return settings that no option receives, and external values that decided a branch."""
    from napkin.inputs.launch.harmless import is_harmless

    said = dict(script.undecided)
    for variable, why in MATTERS.items():
        if variable in script.exported:
            said[variable] = why
    for variable, text in script.variables.texts.items():
        given = variable in script.exported or variable.isdecimal() or not marks(text)[0]
        if variable in script.variables.used or given or is_harmless(variable.lower()):
            continue
        if not variable.lower().endswith(("dir", "path", "file", "port", "addr", "name", "project", "logs")):
            said[variable] = "is set but not passed to the training program"
    return said


NAMELESS = "is an option whose name has no value here"


def _of_variables(words: Sequence[str]) -> dict[str, str]:
    """Return the variables without a value here that may hold options: words of their own, behind no option's name."""
    said = {}
    for before, word in itertools.pairwise(("", *words)):
        plain, _, unknown = marks(word)
        behind = marks(before)[0].startswith("-") and "=" not in before
        if unknown and not plain and (_is_array(word) or not behind):
            said[unknown] = "has no value here; options that it holds are not read"
        elif unknown and plain == "--":
            said[f"--{unknown}"] = NAMELESS
    return said


def _options(words: Sequence[str]) -> dict[str, FileValue]:
    """Return a command's options: `--name value`, `--name=value`, or Hydra's `key=value`."""
    options: dict[str, FileValue] = {}
    at, program = 0, False
    while at < len(words):
        word, defaulted, unknown = marks(words[at])
        begins = not words[at].startswith(OPENED)  # "$(date)-sft" is no option
        at += 1
        override = _OVERRIDE.fullmatch(word) if program and begins else None
        if begins and _OPTION.fullmatch(word) and not re.fullmatch(r"-\d.*", word):
            spelled, equals, tail = word.partition("=")
            taken = [words[at - 1]] if equals else []
            launcher = not program and spelled.lstrip("-").replace("-", "_") in OF_LAUNCHERS
            while not equals and at < len(words) and not _is_next(words, at):
                if launcher and taken:  # the program's name follows its one value
                    break
                taken.append(words[at])
                at += 1
            value = _value([tail], defaulted, unknown) if equals else _values(taken)
            options[spelled] = FileValue(spelled, value[0], value[1])
            program = program or spelled == "-m"
        elif override:
            found = _value([override[2]], defaulted, unknown)
            options[override[1]] = FileValue(override[1], found[0], found[1])
        program = program or word.endswith(".py") or "." in word or word in ("verl", "train", "main")
    return options


def _is_option(word: str) -> bool:
    plain = marks(word)[0]
    return not word.startswith(OPENED) and (
        plain == "--"
        or bool(_OPTION.fullmatch(plain))
        or bool(_OVERRIDE.fullmatch(plain) and not plain.startswith(("/", ".", "'")))
    )


def _is_next(words: Sequence[str], at: int) -> bool:
    """Return whether a word is no value of the option before it."""
    return _is_option(words[at]) or _is_array(words[at]) or _begins_program(words, at)


def _is_array(word: str) -> bool:
    """Return whether a word is an array without a value here, which holds options: `--colocate ${MODEL_ARGS[@]}`."""
    plain, _, unknown = marks(word)
    return not plain and unknown.endswith(("[@]", "[*]"))


def _begins_program(words: Sequence[str], at: int) -> bool:
    """Return whether a word is the program that a launcher starts, and not the value of the option before it."""
    word = marks(words[at])[0]
    previous = marks(words[at - 1])[0]
    return word.endswith(".py") or (not previous.startswith("-") and word in ("python", "python3", "torchrun"))


def _values(words: Sequence[str]) -> tuple[object, tuple[str, ...]]:
    """Return an option's value words. Variables after the value that are unknown or empty may hold further options and
    are excluded."""
    read = [marks(word) for word in words]
    while len(read) > 1 and not read[-1][0]:
        read.pop()
    defaulted = tuple(dict.fromkeys(name for _, names, _ in read for name in names))
    unknown = next((what for _, _, what in read if what), "")
    return _value([plain for plain, _, _ in read], defaulted, unknown)


def _value(texts: list[str], defaulted: tuple[str, ...], unknown: str) -> tuple[object, tuple[str, ...]]:
    """Return an option's value: True if it has none, a list if it has several."""
    if unknown:
        return Open(unknown, " ".join(texts)), defaulted
    if not texts:
        return True, defaulted
    found = [scalar(text) if text else "" for text in texts]
    return (found[0] if len(found) == 1 else found), defaulted
