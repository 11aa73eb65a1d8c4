"""Run every example of README.md and docs/, and write what napkin printed below it.

python tools/docs.py [FILE…]             write pages whose wording alone changed; name every number that moved
python tools/docs.py --accept [FILE…]    write those too; `make docs ACCEPT=1` does this

A number that moved on a page is a change of the program: it is printed as page, command, old → new, and the exit status
is 1 until it is accepted. tests/test_docs.py fails where a page differs from the program.

An example is a block of ```console: `$ napkin …` lines (a trailing backslash continues one), each followed by what goes
to stdout; with `2>&1` also by what goes to stderr. `$ echo $?` shows the exit status. A block that runs anything else
is left alone. A block of ```pycon is a session of Python, `>>> ` lines with what they print below; each begins anew.
Other fences (```text, ```sh) hold what cannot run everywhere, such as a GPU's output.
"""

from __future__ import annotations

import argparse
import contextlib
import doctest
import glob
import io
import os
import shlex
import sys
import traceback

from napkin.cli import main

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tools"))

from numbers_moved import moved  # noqa: E402
from plots import update as update_plots  # noqa: E402
from terminal import update as update_picture  # noqa: E402

FENCE = "```"
STARTS = (FENCE + "console", FENCE + "pycon")
PROMPTS = ("$ ", ">>> ")
ANSWERED = (0, 1, 4)  # an answer, also if a limit is broken or too close to call


def pages() -> list[str]:
    """Return README.md and the pages in docs/."""
    return [os.path.join(ROOT, "README.md"), *sorted(glob.glob(os.path.join(ROOT, "docs", "*.md")))]


def run(command: str) -> tuple[int, str]:
    """Return exit status and output of `napkin …`, run in this process; raise if it fails and the page does not show
    it."""
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
    """Return the commands of a block, continued lines joined by newlines."""
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
    """Return the block with fresh output; unchanged if it holds a command of another program, or none."""
    if block and block[0].startswith(">>> "):
        return session(block)
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


def session(block: list[str]) -> list[str]:
    """Return a session of Python with fresh output; raise if it fails and the page does not show that it does."""
    lines: list[str] = []
    names: dict[str, object] = {}
    for one in doctest.DocTestParser().get_examples("\n".join(block)):
        first, *more = one.source.rstrip("\n").split("\n")
        lines += [f">>> {first}", *(f"... {line}".rstrip() for line in more)]
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out):
                exec(compile(one.source, "<page>", "single"), names)
        except Exception as problem:
            if one.exc_msg is None:
                raise
            said = "".join(traceback.format_exception_only(problem))
            out.write(f"Traceback (most recent call last):\n  ...\n{said}")
        lines += [line.rstrip() for line in out.getvalue().splitlines()]
    return lines


def blocks(text: str) -> list[tuple[int, int]]:
    """Return (first, last) line numbers between the fences of each console block."""
    lines = text.split("\n")
    found = []
    at = 0
    while at < len(lines):
        if lines[at].strip() in STARTS:
            end = lines.index(FENCE, at + 1)
            found.append((at + 1, end))
            at = end
        at += 1
    return found


def regenerated(text: str) -> str:
    """Return the page with every example's output as it is now."""
    lines = text.split("\n")
    for first, last in reversed(blocks(text)):
        lines[first:last] = answered(lines[first:last])
    return "\n".join(lines)


def by_command(block: list[str]) -> list[tuple[str, list[str]]]:
    """Return each command of a block with the lines printed below it."""
    found: list[tuple[str, list[str]]] = []
    continued = False
    for line in block:
        if line.startswith(PROMPTS) or continued or line.startswith("... "):
            joined = continued or line.startswith("... ")
            _, _, rest = line.partition(" ")
            found = [*found[:-1], (f"{found[-1][0]} {line.strip()}", [])] if joined else [*found, (rest, [])]
            continued = line.endswith("\\")
        elif found:
            found[-1][1].append(line)
    return [(" ".join(command.replace("\\", " ").split()), lines) for command, lines in found]


def moved_on(before: str, after: str) -> list[str]:
    """Return what moved in the examples of a page, as `command: label: old → new`."""
    found: list[str] = []
    texts = before.split("\n"), after.split("\n")
    for (a, b), (c, d) in zip(blocks(before), blocks(after), strict=True):
        for (command, old), (_, new) in zip(by_command(texts[0][a:b]), by_command(texts[1][c:d]), strict=True):
            found += [f"{command}: {change}" for change in moved(old, new)]
    return found


def update(paths: list[str], accept: bool) -> int:
    """Write the pages; return the exit status: 1 if a number moved and that was not accepted."""
    os.chdir(ROOT)
    os.environ["NO_COLOR"] = "1"
    status = 0
    for path in paths:
        with open(path, encoding="utf-8") as file:
            before = file.read()
        after = regenerated(before)
        name = os.path.relpath(path, ROOT)
        changes = moved_on(before, after)
        for change in changes:
            print(f"{name}: {change}")
        if changes and not accept:
            status = 1
        elif after != before:
            with open(path, "w", encoding="utf-8") as file:
                file.write(after)
            print(f"{name}: written")
    if status:
        print("numbers moved, and those pages were not written: `make docs ACCEPT=1` accepts them", file=sys.stderr)
    return status


def parsed(argv: list[str]) -> argparse.Namespace:
    about = (__doc__ or "").replace("%", "%%")
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="FILE", help="pages to run; README.md and docs/*.md by default")
    parser.add_argument("--accept", action="store_true", help="write pages whose numbers moved")
    asked = parser.parse_args(argv)
    for path in asked.pages:
        if not os.path.isfile(path):
            parser.error(f"{path}: no such file")
    return asked


def run_all(argv: list[str]) -> int:
    asked = parsed(argv)
    status = update([os.path.abspath(path) for path in asked.pages] or pages(), asked.accept)
    if asked.pages:
        return status
    if update_picture():
        print("docs/images/terminal.svg: written")
    for name in update_plots():
        print(f"docs/images/{name}: written")
    return status


if __name__ == "__main__":
    sys.exit(run_all(sys.argv[1:]))
