"""Options of the commands that ask others, list what is known, or hold answers against something."""

from __future__ import annotations

from napkin import units
from napkin.options.option import Option, choice, flag

GROUP = "Comparing"

OPTIONS = (
    Option(
        "against",
        units.words,
        "Options of the other side, e.g. hardware=b200,price=4",
        metavar="NAME=VALUE,…",
    ),
    Option("show", units.words, "Paths of the quantities to show, e.g. time,cost", metavar="PATHS"),
    Option(
        "sides",
        units.words,
        "Two run files, launch files, accelerators, models or profiles",
        metavar="A B",
        positional=True,
        many=True,
    ),
    Option("over", units.words, "Values to try: NAME=a,b,c or a..b:step or a..b:x2", metavar="NAME=VALUES"),
    Option("by", units.words, "Values of a second option: one line of the plot each", metavar="NAME=VALUES"),
    Option("change", units.fraction, "Relative change of each input, e.g. 10%", metavar="SHARE", default="10%"),
    Option("vary", units.words, "Only these inputs, e.g. mfu,price", metavar="NAMES"),
    Option("limit", units.words, 'Condition to decide, e.g. "time <= 150d"', metavar="CONDITION"),
    Option(
        "files", units.words, "Run files with limits, or folders of them", metavar="FILE...", positional=True, many=True
    ),
    Option("junit", units.words, "Write the outcome as JUnit XML", metavar="FILE"),
    Option("annotations", choice("github"), "Annotate lines of the files in GitHub Actions", metavar="FORM"),
    flag("init", "Write a starter FILE, and check it"),
    Option(
        "file",
        units.words,
        "Measured rows: steps/1, memory/1, finetune/1, …",
        metavar="FILE",
        positional=True,
    ),
    flag("in-sample", "Use constants fitted on the row's own source too"),
    flag("strict", "Refuse the file if a row cannot be read"),
    Option("worst", units.words, "List the N rows with the largest errors", metavar="N"),
    Option("family", units.words, "One family of models, e.g. llama or qwen2.5", metavar="NAME"),
    Option("min-params", units.positive_count, "At least this many parameters, e.g. 7B", "param", "N"),
    Option("max-params", units.positive_count, "At most this many parameters, e.g. 70B", "param", "N"),
    flag("moe", "Only mixture-of-experts models"),
    Option("search", units.words, "Text in a name, organization, type or citation", metavar="TEXT"),
)
