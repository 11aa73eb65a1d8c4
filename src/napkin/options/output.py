"""Options that say how the answer is written."""

from __future__ import annotations

from napkin import units
from napkin.options.option import Option, flag

GROUP = "Output"

OPTIONS = (
    flag("json", "One JSON object in base units"),
    flag("csv", "CSV: path,value,unit"),
    flag("markdown", "A Markdown table"),
    flag("explain", "Formula, inputs and source of each term"),
    flag("verbose", "Show every quantity, input and note too", short="-v"),
    flag("quiet", "Only the answer, in one line; no progress", short="-q"),
    flag("paths", "Label quantities by their JSON paths"),
    Option(
        "output",
        units.words,
        "Output file; .json, .csv or .md chooses the format",
        metavar="FILE",
        short="-o",
    ),
)

COMMON = ("run", "from", "json", "csv", "markdown", "explain", "verbose", "quiet", "paths", "output")
"""Options that every command has."""

WRITTEN_FILES = ("output", "plot", "junit")
"""Options that name a file to write."""
