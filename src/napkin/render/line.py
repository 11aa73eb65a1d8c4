"""The command line of an answer's question, to be pasted: with some options changed, or under another command."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.options.registry import OPTIONS
from napkin.render.answer import Shown
from napkin.render.screen import Next

SPELLED = ("given", "run file", "from file")
"""Origins of the inputs that a command line states."""
SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-")


def pieces_of(following: Next, command: str, inputs: Mapping[str, Shown]) -> list[str]:
    """Return the command as pieces that belong together: the words up to the arguments, then an option each."""
    texts: dict[str, str | bool | None] = {}
    for name, shown in inputs.items():
        derived = name == "gpus" and shown.origin == "derived"  # from the nodes, which it replaces
        if shown.origin not in SPELLED and not derived:
            continue
        if (shown.origin == "from file" and "from" in inputs) or name not in OPTIONS or name == "nodes":
            continue
        if name == "grad-accum" and "global-batch" in following.changes:
            continue
        if following.keep is not None and name not in following.keep:
            continue
        texts[name] = shown.value if isinstance(shown.value, bool) else _written(shown)
    texts |= following.changes
    positional = sorted((name for name in texts if OPTIONS[name].positional), key=lambda name: name == "size")
    arguments = [text for name in positional if isinstance(text := texts[name], str)]
    pieces = [" ".join(["napkin", following.command or command, *arguments])]
    for name, text in texts.items():
        if OPTIONS[name].positional or text is None:
            continue
        if isinstance(text, bool):
            pieces.append(f"--{name}" if text else f"--no-{name}")
        else:
            pieces.append(f"--{name} {text}")
    return pieces


def pieces_in(command: str) -> list[str]:
    """Return a command line as pieces that belong together: what comes before the options, then an option each."""
    first, *options = command.split(" --")
    return [first, *(f"--{option}" for option in options)]


def _written(shown: Shown) -> str:
    """Return an input as it can be typed again."""
    if shown.text is None and isinstance(shown.value, (list, tuple)):
        return " ".join(quoted(str(word)) for word in shown.value)
    return quoted(str(shown.value) if shown.text is None else shown.text)


def quoted(text: str) -> str:
    """Return a word for a shell: in quotes where it holds more than letters, digits and plain signs."""
    return text if text and SAFE.issuperset(text) else "'" + text.replace("'", "'\"'\"'") + "'"
