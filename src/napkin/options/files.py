"""Options that name files to read options from, or to draw into."""

from __future__ import annotations

from napkin import units
from napkin.options.option import Option, choice

GROUP = "Files"

OPTIONS = (
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
