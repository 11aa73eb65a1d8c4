"""Options that say how the answer is written, and those that name files to read options from or to draw into."""

from __future__ import annotations

from napkin import units
from napkin.options.option import Option, choice, flag

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


FILES = (
    Option("run", units.words, "YAML file with options by name", metavar="FILE"),
    Option("from", units.words, "Launch file of a training framework (repeatable)", metavar="FILE", many=True),
    Option("launch", units.words, "Launch files, as for --from", metavar="FILE", positional=True, many=True),
    Option(
        "emit",
        choice("torchtitan", "megatron", "deepspeed", "accelerate", "axolotl"),
        "Write the layout for torchtitan, megatron, deepspeed, accelerate or axolotl",
        metavar="NAME",
    ),
    Option("plot", units.words, "Write a plot: .svg or .png", metavar="FILE"),
    Option("theme", choice("light", "dark"), "Plot colors: light or dark", metavar="NAME"),
)

DRAWS = ("plot", "theme")
"""Options of the commands that can draw."""
