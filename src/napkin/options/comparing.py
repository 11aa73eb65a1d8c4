"""Options of the commands that ask others, list what is known, or hold answers against something; of `lint`: the file,
the rules, the figures from which a run's operation is priced; and of `bench`."""

from __future__ import annotations

from napkin import units
from napkin.options.option import Option, choice, flag

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


LINTING = (
    Option(
        "configs",
        units.words,
        "Configurations of runs, or a MODEL with options",
        metavar="FILE|MODEL",
        positional=True,
        many=True,
    ),
    Option("select", units.words, "Only these rules, by number or prefix: N1,N203", metavar="RULES"),
    Option("ignore", units.words, "Rules to skip", metavar="RULES"),
    flag("rules", "List the rules"),
    Option("warmup-steps", units.positive_count, "Learning-rate warmup steps", "step", "N"),
    Option("save-steps", units.positive_count, "Steps between checkpoints", "step", "N"),
    Option("checkpoint-interval", units.duration, "Time between checkpoints, e.g. 1h", "second", "TIME"),
)

LINT = ("select", "ignore", "rules")
OPERATION = ("checkpoint-interval", "write-bandwidth", "mtbf", "gpu-mtbf")
"""Figures for the cost of checkpoints and failures."""


MEASURED = ("matmul", "memory", "host", "train", "step", "collectives", "compare")

BENCHMARK = (
    Option(
        "what",
        units.words,
        "matmul, memory, host, train, step, collectives, or compare A B",
        metavar="WHAT",
        positional=True,
        many=True,
        default="all",
    ),
    Option("device", units.words, "cuda, cuda:0, mps or cpu", metavar="NAME", default="a CUDA device"),
    flag("quick", "Under 45 seconds: bf16 and tf32, one eager step"),
    flag("full", "Every format, more sizes: up to 8 minutes"),
    Option("only", units.words, "Groups: matmul,memory,host,train,collectives", metavar="LIST"),
    flag("resume", "Keep what the profile already has, measure the rest"),
    Option("time-limit", units.duration, "Skip what would exceed this time, e.g. 180s", "second", "TIME"),
    Option("data", units.words, "Operands: normal, or zeros (faster than real data)", metavar="NAME"),
    Option("layers", units.positive_count, "Number of layers", metavar="N"),
)
