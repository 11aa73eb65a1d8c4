"""Draw docs/images/terminal.svg: a terminal of 80 columns, from what napkin writes to one.

python tools/terminal.py    runs COMMANDS in a pseudo-terminal and draws text and colors; tools/docs.py does it too
"""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
import termios
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "terminal.svg"
COMMANDS = (
    "napkin train-time --params 70B --tokens 15T --gpus 1024 --hardware h100",
    "napkin memory llama3-8b --gpus 8 --hardware h100 --zero 3",
)
ROWS, COLUMNS = 24, 80
CELL, LINE, MARGIN = 8.43, 18, 14
"""Pixels of a character, of a line, and around them."""
STYLES = {
    "1": "font-weight:bold",
    "2": "opacity:.6",
    "31": "fill:#ff7b72",
    "32": "fill:#7ee787",
    "33": "fill:#e3b341",
    "36": "fill:#79c0ff",
}
"""ANSI attribute → how it is drawn; the terminal is dark in both themes."""
ESCAPE = re.compile(r"\x1b\[([0-9;]*)m")


def printed(command: str) -> str:
    """Return what a command writes to a terminal, escape sequences and all."""
    ours, theirs = pty.openpty()
    _resize(theirs)
    environment = {name: text for name, text in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    environment |= {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "utf-8"}
    words = [sys.executable, "-m", "napkin", *shlex.split(command)[1:]]
    with subprocess.Popen(words, stdout=theirs, stdin=subprocess.DEVNULL, env=environment) as process:
        os.close(theirs)
        written = b""
        while piece := _read(ours):
            written += piece
    os.close(ours)
    if process.returncode:
        raise RuntimeError(f"{command}: status {process.returncode}")
    return written.decode("utf-8").replace("\r\n", "\n")


def _resize(terminal: int) -> None:
    """Give the terminal its size (termios can do it from Python 3.11 on)."""
    import fcntl
    import struct

    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so if the other end is closed
        return b""


def spans(line: str) -> list[tuple[str, str]]:
    """Return a line as (style, text)."""
    found: list[tuple[str, str]] = []
    style, at = "", 0
    for match in ESCAPE.finditer(line):
        found.append((style, line[at : match.start()]))
        codes = [code for code in match.group(1).split(";") if code not in ("", "0")]
        style, at = ";".join(STYLES[code] for code in codes), match.end()
    return [(style, text) for style, text in [*found, (style, line[at:])] if text]


def drawn() -> str:
    """Return the picture."""
    lines: list[str] = []
    for command in COMMANDS:
        lines += [f"$ {command}", *printed(command).rstrip("\n").split("\n")]
    body = []
    for row, line in enumerate(lines):
        y, column = MARGIN + LINE * (row + 0.75), 0
        for style, text in spans(line):
            for words in re.finditer(r"\S+(?: \S+)*", text):  # SVG keeps no spaces in a row
                x, shape = MARGIN + CELL * (column + words.start()), f' style="{style}"' if style else ""
                size = f'textLength="{CELL * len(words.group()):.4g}" lengthAdjust="spacingAndGlyphs"'
                body.append(f'<text x="{x:.5g}" y="{y:g}" {size}{shape}>{escape(words.group())}</text>')
            column += len(text)
    width, height = round(2 * MARGIN + CELL * COLUMNS), 2 * MARGIN + LINE * len(lines)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">',
            f"<title>{escape(' and '.join(COMMANDS))}, in a terminal</title>",
            "<style>text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
            "fill:#e6edf3}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117" stroke="#30363d"/>',
            *body,
            "</svg>\n",
        ]
    )


def update() -> bool:
    """Write the picture if it changed; return whether it did."""
    now = drawn()
    if PICTURE.exists() and PICTURE.read_text(encoding="utf-8") == now:
        return False
    PICTURE.write_text(now, encoding="utf-8")
    return True


if __name__ == "__main__":
    print(f"{PICTURE.relative_to(ROOT)}: {'written' if update() else 'unchanged'}")
