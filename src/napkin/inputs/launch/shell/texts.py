"""Follow what a shell script reads into variables and what it writes into files."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from napkin.inputs.launch.shell.marks import marks
from napkin.inputs.launch.shell.values import Variables
from napkin.inputs.launch.shell.words import Statement

_WRITERS = ("cat", "echo", "printf", "tee")


def read_into(variables: Variables, words: Sequence[str], one: Statement) -> None:
    """Follow `read NAME <<EOF` and `IFS=, read -r FIRST REST <<< "$TEXT"`; what another command prints is unknown."""
    here = next((at for at, word in enumerate(words) if word.startswith("<<<")), None)
    names = [word for word in words[1:here] if word.isidentifier()]
    given = "".join(words[here:]).removeprefix("<<<") if here is not None else ""
    into_array = any(word.startswith("-") and "a" in word for word in words[1:here])
    if one.here is not None and names:
        variables.assign(names[-1], " ".join(_here(variables, one, " ").split()))
    elif not given or not names or (len(names) > 1 and marks(variables.text(given))[2]):
        for name in names:
            variables.forget(name, f"${name}, which is read")
    elif into_array:
        text = variables.text(given)
        variables.assign_array(names[0], _split(variables, text) if not marks(text)[2] else [text])
    else:
        parts = _split(variables, variables.text(given), len(names) - 1) if len(names) > 1 else [variables.text(given)]
        for name, text in zip_longest(names, parts, fillvalue=""):
            variables.assign(name, text)


def _split(variables: Variables, text: str, most: int = -1) -> list[str]:
    """Return the parts of a text between the separators that IFS gives, `most` of them split off."""
    sign = marks(variables.texts.pop("IFS", ""))[0]
    return text.split(sign or None, most)


def write_to(files: dict[str, str], variables: Variables, words: Sequence[str], one: Statement, unsure: bool) -> None:
    """Keep the text of a file that the script writes: `cat > FILE <<EOF`, `echo TEXT > FILE`.

    files  path → text     unsure  it is unknown whether the command runs
    """
    path = marks(variables.text(one.into or words[-1]))[0]
    if words[0] not in _WRITERS or not path or path == "/dev/null":
        return
    if unsure or (one.here is None and words[0] in ("cat", "tee")):
        files.pop(path, None)
        return
    if one.here is not None:
        text = _here(variables, one, "")
    else:
        text = " ".join(variables.text(word) for word in words[1:] if word not in ("-e", "-n")) + "\n"
    files[path] = (files.get(path, "") if one.appends else "") + text


def _here(variables: Variables, one: Statement, joint: str) -> str:
    """Return a here-document, its variables expanded; `joint` takes the place of an escaped line end."""
    text = one.here or ""
    return text if one.quoted else variables.expand(text.replace("\\\n", joint))
