"""Options that say how the answer is written."""

from __future__ import annotations

from napkin import units
from napkin.options.option import Option, choice, flag

GROUP = "Output"

OPTIONS = (
    Option("run", units.words, "A run file with these options by name; the command line wins over it", metavar="FILE"),
    flag("json", "One JSON object, base units"),
    flag("csv", "path,value,unit"),
    flag("markdown", "A Markdown table"),
    flag("explain", "Show each term's formula, inputs and source"),
    flag("verbose", "Also show every quantity, every input and all notes", short="-v"),
    flag("quiet", "Only the answer: one line, or the rows of a listing; no progress", short="-q"),
    flag("paths", "Show the quantities by their JSON paths"),
    Option("plot", units.words, "Write a picture (.svg or .png)", metavar="FILE"),
    Option("theme", choice("light", "dark"), "Colors of the picture: light or dark", metavar="NAME"),
    Option(
        "output",
        units.words,
        "Write the answer (bench: the profile) to a file; - is stdout",
        metavar="FILE",
        short="-o",
    ),
)

COMMON = ("run", "json", "csv", "markdown", "explain", "verbose", "quiet", "paths", "output")
"""Options that every command has."""

DRAWS = ("plot", "theme")
"""Options of the commands that can draw."""
