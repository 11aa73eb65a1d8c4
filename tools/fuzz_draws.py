"""What tools/fuzz.py asks: command lines and files drawn from a seed, good ones spoilt in one to three places."""

from __future__ import annotations

import copy
import io
import json
import pickle
import random
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import fuzz_tables
import yaml
from fuzz_files import FILES, FLOATS, FOREIGN, HARDWARE, LAUNCHED, PHASES, PROFILE, ROOTS, ROWS, RUNS, SNAPSHOT
from fuzz_launch import launch_file
from fuzz_questions import EDGES, HOSTILE, OF_FILES, OF_LAUNCHES, OF_MODELS, OF_RUNS, WORDS

from napkin.commands.command import MODULES, WRAPPERS, find
from napkin.inputs.presets import fields_of, names
from napkin.options.registry import OPTIONS

LEFT_OUT = ("bench",)
"""The command that is not drawn: it measures the machine."""
COSTLY = {"validate": 0.05, "plan": 0.05, "calibrate": 0.05, "sensitivity": 0.15, "models": 0.15}
"""Commands that take ten to a hundred times what the others do, with how often they are drawn for once of another."""

EXAMPLES = frozenset(shlex.join(shlex.split(one)) for name in MODULES for one in find(name).examples)
"""What the tests ask as it is; here something about it is changed."""


@dataclass(frozen=True)
class Case:
    """A command line with the files that it may name and what stands on its standard input."""

    seed: int
    argv: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    stdin: bytes = b""


def draw(seed: int) -> Case:
    """Return the case of a seed, always the same."""
    rng = random.Random(seed)
    kind = rng.random()
    argv = _line(rng)
    for share, lines in ((0.25, OF_MODELS), (0.33, OF_FILES), (0.47, OF_LAUNCHES), (0.5, OF_RUNS)):
        if kind < share:
            argv = shlex.split(_example(rng, lines))
            break
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        argv = _edged(rng, argv)
    for _ in range(rng.choice((0, 0, 0, 0, 1, 1, 2))):
        argv = _spoilt(rng, argv)
    if shlex.join(argv) in EXAMPLES:
        argv = _edged(rng, argv) if rng.random() < 0.5 else _spoilt(rng, argv)
    if rng.random() < 0.6 and not {"--json", "--csv", "--markdown", "--paths", "-v", "--verbose"} & set(argv):
        argv.append("--json")
    if "mine" in argv and "--hardware-file" not in argv:
        argv += ["--hardware-file", "hardware.yaml"]
    if "watch" in argv:  # it would wait for more of the log; the last of several switches wins
        argv.insert(argv.index("--") if "--" in argv else len(argv), "--once")
    argv = [word for word in argv if "completion" not in word]  # those write into the home directory
    files = {name: _content(rng, name) for name in sorted(_named(argv))}
    stdin = _content(rng, rng.choice(("model.json", "snapshot.json", "log.txt"))) if "-" in argv else b""
    return Case(seed, tuple(argv), files, stdin)


def _named(argv: list[str]) -> set[str]:
    found = {name for name in FILES for word in argv if name in word}
    return found | ({"launch.txt"} if "launched.yaml" in found else set())


def _example(rng: random.Random, lines: tuple[str, ...]) -> str:
    """Return one of the lines, those of costly commands less often."""
    (line,) = rng.choices(lines, [COSTLY.get(one.split()[0], 1) for one in lines])
    return line


# --- command lines -------------------------------------------------------------------------------------------------


def _line(rng: random.Random) -> list[str]:
    """Return a line that is near to a good one: an example with files of ours in it, or options drawn."""
    names = [name for name in MODULES if name not in LEFT_OUT]
    (name,) = rng.choices(names, [COSTLY.get(name, 1) for name in names])
    examples = find(name).examples
    if examples and rng.random() < 0.75:
        words = shlex.split(rng.choice(examples))
        if rng.random() < 0.4:
            presets = ("llama3-8b", "gpt2", "llama3-70b", "deepseek-v3", "llama3-405b")
            words = ["model.json" if word in presets else word for word in words]
        words = [_ours(word) for word in words]
        more = (
            [one for one in find(words[0]).takes if one not in find(words[0]).arguments] if name not in WRAPPERS else []
        )
        return words + [
            word for one in rng.sample(more, min(len(more), rng.choice((0, 0, 1, 2)))) for word in _option(rng, one, 1)
        ]
    words = [name]
    if name in WRAPPERS and rng.random() < 0.9:
        name = rng.choice([one for one in MODULES if one not in (*WRAPPERS, *LEFT_OUT)])
        words.append(name)
    command = find(" ".join(words)) if len(words) == 2 else find(name)
    for argument in command.arguments:
        if rng.random() < 0.85:
            words.append(_good(rng, argument))
    names = [one for one in command.takes if one not in command.arguments]
    for one in rng.sample(names, min(len(names), rng.randrange(7))):
        words += _option(rng, one)
    return words


def _ours(word: str) -> str:
    if word.startswith("configs/"):
        kinds = {"models": "model.yaml", "runs": "run.yaml", "launch": "launch.txt", "logs": "log.txt"}
        return next((ours for kind, ours in kinds.items() if kind in word), "rows.yaml")
    return word


def _option(rng: random.Random, name: str, share_good: float = 0.8) -> list[str]:
    """Return an option with a value, good in most cases."""
    if OPTIONS[name].flag and rng.random() < 0.95:
        return [f"--{name}"]
    value = _good(rng, name) if rng.random() < share_good else rng.choice(HOSTILE)
    return [f"--{name}={value}"] if rng.random() < 0.3 else [f"--{name}", value]


def _good(rng: random.Random, name: str) -> str:
    choices = (
        WORDS.get(name)
        or OPTIONS[name].choices
        or ("1", "2", "4", "8", "16", "128", "0.5", "1e9", "bf16", "10GB", "24h")
    )
    if name == "model" and rng.random() < 0.3:
        return str(rng.choice(names()))
    return rng.choice(choices)


def _edged(rng: random.Random, argv: list[str]) -> list[str]:
    """Return the line with another number for one of its options."""
    spots = [i for i in range(1, len(argv)) if argv[i - 1].startswith("--") and argv[i][:1].isdigit()]
    if not spots:
        return argv
    at = rng.choice(spots)
    return [*argv[:at], rng.choice(EDGES), *argv[at + 1 :]]


def _spoilt(rng: random.Random, argv: list[str]) -> list[str]:
    """Return the line with one thing wrong, or one thing more."""
    argv, at = list(argv), rng.randrange(len(argv)) if argv else 0
    kind = rng.randrange(9)
    if not argv or kind == 0:
        argv.insert(at, rng.choice(HOSTILE))
    elif kind == 1:
        argv[at] = rng.choice(HOSTILE)
    elif kind == 2:
        del argv[at]
    elif kind == 3:
        argv.insert(rng.randrange(len(argv) + 1), argv[at])
    elif kind == 4:
        argv[at] = argv[at].partition("=")[0] + "=" + rng.choice(("", rng.choice(HOSTILE)))
    elif kind == 5:
        argv += _option(rng, rng.choice([name for name in OPTIONS if name != "resume"]), 0.5)
    elif kind == 6:
        word = argv[at]
        place = rng.randrange(len(word) + 1)
        argv[at] = (
            word[:place] + rng.choice(("", "e", "\x00", "9" * 30, "-", ".", "G", "é", "=", ",")) + word[place + 1 :]
        )
    elif kind == 7:
        argv += [
            rng.choice(
                ("--csv", "--json", "--markdown", "--explain", "-v", "--quiet", "--paths", "--help", "--plot=out.svg")
            )
        ]
    else:
        spots = [i for i in range(1, len(argv)) if argv[i - 1].startswith("--") and not argv[i].startswith("--")]
        argv[rng.choice(spots) if spots else at] = rng.choice(HOSTILE)
    return argv


# --- files ---------------------------------------------------------------------------------------------------------


def _content(rng: random.Random, name: str) -> bytes:
    """Return a file of that name: a good one, spoilt in its values, or in its bytes."""
    stem, _, form = name.partition(".")
    if stem == "lengths" or name == "rows.csv":
        return fuzz_tables.written(rng, fuzz_tables.lengths(rng) if stem == "lengths" else fuzz_tables.rows(rng))
    if stem == "log" and rng.random() < 0.5:
        return fuzz_tables.written(rng, fuzz_tables.log(rng))
    if stem == "log":
        data = (fuzz_tables.LOGS[0] * rng.choice((1, 3, 200))).encode()
        return (
            _broken(rng, data)
            if rng.random() < 0.7
            else rng.choice((b"", b" " * 50_000, b"time: " * 5_000, b"\n" * 50_000, data))
        )
    if stem in ("launch", "other"):
        data = launch_file(rng, unfit)
        return _broken(rng, data) if rng.random() < 0.05 else data
    base: Any = {
        "model": _model(rng) if stem == "model" else None,
        "hardware": HARDWARE,
        "profile": PROFILE,
        "run": rng.choice(RUNS),
        "launched": LAUNCHED,
        "phases": PHASES,
        "rows": ROWS,
        "snapshot": SNAPSHOT if rng.random() < 0.5 else fuzz_tables.snapshot(rng),
    }[stem]
    value = copy.deepcopy(base)
    for _ in range(rng.choice((0, 0, 1, 1, 1, 2, 4))):
        value = mutated(rng, value)
    data = _written(value, form)
    return _broken(rng, data) if rng.random() < 0.1 else data


def _model(rng: random.Random) -> dict[str, Any]:
    """Return the config of a preset, or now and then another project's model file."""
    if rng.random() < 0.08:
        return rng.choice(FOREIGN)
    return dict(fields_of(rng.choice(names()))["config"])


def _written(value: Any, form: str) -> bytes:
    if form == "pickle":
        return pickle.dumps(value)
    if form == "yaml":
        kept = io.StringIO()
        yaml.safe_dump(value, kept, allow_unicode=True, sort_keys=False)
        return kept.getvalue().encode("utf-8", "surrogatepass")
    try:
        return json.dumps(value).encode()
    except ValueError:  # an integer of more digits than Python writes
        return b'{"vocab_size": ' + b"9" * 5000 + b"}"


def mutated(rng: random.Random, value: Any) -> Any:
    """Return the tree with one place changed: type, size, length, name, or depth."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        kind = rng.randrange(10)
        if kind == 0:
            del value[key]
        elif kind == 1:
            value[rng.choice(("made_up", "", "x" * 500, "\x1b[1m", str(key) + "s", "rope_scaling", "layer_types"))] = (
                _bad(rng)
            )
        elif kind == 2:
            value[key] = value[rng.choice(list(value))]
        elif kind < 5 or not isinstance(value[key], dict | list):
            value[key] = _bad(rng, value[key])
        else:
            value[key] = mutated(rng, value[key])
        return value
    if isinstance(value, list) and value and rng.random() < 0.9:
        at, kind = rng.randrange(len(value)), rng.randrange(4)
        if kind == 0:
            return value[:at]
        if kind == 1:
            return value + value[: at + 1]
        value[at] = mutated(rng, value[at]) if kind == 2 else _bad(rng, value[at])
        return value
    return _bad(rng, value)


def _bad(rng: random.Random, old: Any = None) -> Any:
    """Return what does not belong there, or a good value changed a little."""
    if isinstance(old, bool):
        return rng.choice((not old, "true", 1, None))
    if isinstance(old, int | float) and rng.random() < 0.5:
        huge = isinstance(old, int) and abs(old) > 10**300  # no float, and hardly a text
        return rng.choice(
            (old + 1, old * 2, -old, old // 2, [old], old - 1, old if huge else str(old), 1 if huge else old / 2)
        )
    if rng.random() < 0.1:
        return rng.choice(FLOATS)
    if rng.random() < 0.05:
        deep: Any = 1
        for _ in range(rng.choice((20, 150, 300))):
            deep = [deep] if rng.random() < 0.5 else {"a": deep}
        return deep
    return copy.deepcopy(rng.choice(ROOTS))


def unfit(rng: random.Random, old: Any) -> Any:
    """Return a value for a key of a launch file: a bad one, a text of a command line, or a number at an end."""
    return rng.choice((_bad(rng, old), rng.choice(HOSTILE), rng.choice(EDGES), float(rng.choice(EDGES[:15]))))


def _broken(rng: random.Random, data: bytes) -> bytes:
    """Return the bytes cut, doubled, or with wrong ones in them."""
    at = rng.randrange(len(data) + 1)
    wrong = rng.choice(
        (b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"9" * 400, b"{" * 300, b"[" * 5000, b"\n\t", b"&a *a", b": :", b"NaN")
    )
    return rng.choice((data[:at], data[:at] + wrong + data[at:], data + data, wrong, b"\xef\xbb\xbf" + data, data[at:]))
