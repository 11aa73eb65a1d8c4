"""Run every example of README.md and docs/, and write what napkin printed below it.

python tools/docs.py [FILE…]        tests/test_docs.py fails where a page says something else than the program

An example is a block of ```console: `$ napkin …` lines (a trailing backslash continues one), each followed by what goes
to stdout; with `2>&1` also by what goes to stderr. `$ echo $?` shows the exit status. A block that runs anything else
is left alone. Other fences (```text, ```sh) hold what cannot run everywhere, such as a GPU's output.
"""

from __future__ import annotations

import glob
import io
import os
import shlex
import sys

from napkin.cli import main

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FENCE = "```"
START = FENCE + "console"
ANSWERED = (0, 1, 4)  # an answer, also where a limit is broken or too close to call


def pages() -> list[str]:
    """README.md and the pages in docs/."""
    return [os.path.join(ROOT, "README.md"), *sorted(glob.glob(os.path.join(ROOT, "docs", "*.md")))]


def run(command: str) -> tuple[int, str]:
    """Exit status and output of `napkin …`, run in this process; raises where that is an error unshown."""
    words = shlex.split(command)
    both = words[-1] == "2>&1"
    out, beside = io.StringIO(), io.StringIO()
    kept = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = out, out if both else beside
    try:
        status = main(words[1:-1] if both else words[1:])
    finally:
        sys.stdout, sys.stderr = kept
    if status not in ANSWERED and not both:
        raise RuntimeError(f"{command}: status {status}: {beside.getvalue().strip()}")
    return status, out.getvalue()


def commands_of(block: list[str]) -> list[str]:
    """The lines that a person typed, continued lines joined as they stand."""
    found: list[str] = []
    continued = False
    for line in block:
        if continued:
            found[-1] += "\n" + line
        elif line.startswith("$ "):
            found.append(line[2:])
        continued = (continued or line.startswith("$ ")) and line.endswith("\\")
    return found


def runs(command: str) -> bool:
    return command.startswith("napkin ") or command == "echo $?"


def answered(block: list[str]) -> list[str]:
    """The block with fresh output; itself where it holds a command of another program, or none."""
    commands = commands_of(block)
    if not commands or not all(runs(command) for command in commands):
        return block
    lines: list[str] = []
    status = 0
    for command in commands:
        lines += ("$ " + command).split("\n")
        if command == "echo $?":
            lines.append(str(status))
        else:
            status, out = run(command.replace("\\\n", " "))
            lines += [line.rstrip() for line in out.splitlines()]
    return lines


def blocks(text: str) -> list[tuple[int, int]]:
    """(first, last) line numbers between the fences of each console block."""
    lines = text.split("\n")
    found = []
    at = 0
    while at < len(lines):
        if lines[at].strip() == START:
            end = lines.index(FENCE, at + 1)
            found.append((at + 1, end))
            at = end
        at += 1
    return found


def regenerated(text: str) -> str:
    """The page with every example's output as it is now."""
    lines = text.split("\n")
    for first, last in reversed(blocks(text)):
        lines[first:last] = answered(lines[first:last])
    return "\n".join(lines)


def update(paths: list[str]) -> None:
    os.chdir(ROOT)
    os.environ["NO_COLOR"] = "1"
    for path in paths:
        with open(path, encoding="utf-8") as file:
            before = file.read()
        after = regenerated(before)
        if after != before:
            with open(path, "w", encoding="utf-8") as file:
                file.write(after)
            print(f"{os.path.relpath(path, ROOT)}: written")


if __name__ == "__main__":
    update([os.path.abspath(path) for path in sys.argv[1:]] or pages())
