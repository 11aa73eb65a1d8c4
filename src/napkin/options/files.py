"""Options that name files to read options from, or to draw into."""

from __future__ import annotations

from napkin import units
from napkin.options.option import Option, choice

GROUP = "Files"

OPTIONS = (
    Option("run", units.words, "Options by name from a YAML file", metavar="FILE"),
    Option("from", units.words, "Options from a framework's own file, repeatable", metavar="FILE", many=True),
    Option(
        "emit",
        choice("torchtitan", "megatron", "deepspeed", "accelerate", "axolotl"),
        "Write the layout as a file of torchtitan, megatron, deepspeed, accelerate or axolotl",
        metavar="NAME",
    ),
    Option("plot", units.words, "Write a picture: .svg or .png", metavar="FILE"),
    Option("theme", choice("light", "dark"), "Colors of the picture: light or dark", metavar="NAME"),
)

DRAWS = ("plot", "theme")
"""Options of the commands that can draw."""
