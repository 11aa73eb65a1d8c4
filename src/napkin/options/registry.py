"""Every option of napkin, declared once: its name, how its text is read, its unit, what it is for.

Run files use the same names (dashes or underscores). Megatron's long names are hidden aliases, so that a launch line
can be pasted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from napkin import units


def choice(*words: str) -> Callable[[str], str]:
    """A parser that knows these words alone, in any letter case."""

    def parse(text: str) -> str:
        from napkin.errors import did_you_mean

        word = text.strip().lower()
        if word not in words:
            raise units.Unreadable(
                f"{text.strip()[:60]!r} is not one of {', '.join(words)}",
                did_you_mean(word, words) or f"for example {words[0]}",
            )
        return word

    return parse


class Option:
    """One option (or, with `positional`, one argument).

    name     as typed after the dashes          parse   text → value in base units, or units.Unreadable
    unit     unit of the value                  flag    present or absent (--x / --no-x)
    aliases  hidden other names                 many    an argument that takes several words
    """

    __slots__ = ("aliases", "flag", "help", "many", "metavar", "name", "parse", "positional", "unit")

    def __init__(
        self,
        name: str,
        parse: Callable[[str], Any],
        help: str,
        unit: str = "1",
        metavar: str = "TEXT",
        *,
        flag: bool = False,
        positional: bool = False,
        many: bool = False,
        aliases: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.parse = parse
        self.help = help
        self.unit = unit
        self.metavar = metavar
        self.flag = flag
        self.positional = positional
        self.many = many
        self.aliases = aliases

    @property
    def key(self) -> str:
        """The name as an identifier."""
        return self.name.replace("-", "_")


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas."""
    found = tuple(name.strip() for name in units.words(text).split(","))
    if not all(found):
        raise units.Unreadable(f"{text.strip()[:60]!r} has an empty name in it", "separate names by single commas")
    return found


def flag(name: str, help: str, aliases: tuple[str, ...] = ()) -> Option:
    """An option that is there or not."""
    return Option(name, lambda text: text, help, flag=True, aliases=aliases)


_DECLARED = (
    # --- what is asked about ---
    Option(
        "model",
        units.words,
        "A preset, a config.json, a folder with one, a napkin YAML, or -",
        metavar="MODEL",
        positional=True,
    ),
    Option("assume-ignorable", names, "Fields of the config that you vouch to change no count", metavar="FIELD,…"),
    Option("params", units.positive_count, "Parameters, e.g. 70B", "param", "N"),
    Option("active-params", units.positive_count, "Parameters that serve one token, e.g. 37B", "param", "N"),
    Option("tokens", units.positive_count, "Training tokens, e.g. 15T", "token", "N"),
    Option("gpus", units.positive_count, "Accelerators in all", "GPU", "N", aliases=("world-size",)),
    Option("hardware", units.words, "Accelerator, e.g. h100 (napkin hardware lists them)", metavar="NAME"),
    Option("hardware-file", units.words, "Your own accelerators, merged over the shipped ones", metavar="FILE"),
    Option("profile", units.words, "Rates measured by napkin bench, in place of the datasheet's", metavar="FILE"),
    Option("dtype", units.words, "Number format, e.g. bf16", metavar="NAME"),
    Option("mfu", units.fraction, "Model FLOPs utilisation, above 0 and at most 1", metavar="X"),
    Option("within", units.duration, "Time allowed, e.g. 30d", "second", "TIME"),
    Option("budget", units.positive, "Money allowed, in USD", "USD", "USD"),
    Option("price", units.positive, "USD per GPU-hour", "USD/GPU-hour", "USD"),
    Option("flops", units.words, "FLOP convention: 6nd, palm, megatron, nanogpt, torch, causal", metavar="NAME"),
    Option("power-overhead", units.at_least_one, "Host, fans and network on top of the accelerators' TDP", metavar="X"),
    Option("pue", units.at_least_one, "Power usage effectiveness of the room", metavar="X"),
    Option("carbon-intensity", units.positive, "kg of CO2 per kWh", "kg/kWh", "X"),
    Option("bytes-per-param", units.positive, "Bytes of training state per parameter", "byte/param", "X"),
    Option("precision", units.words, "Policy, e.g. bf16-mixed, or param=bf16,grad=fp32,…", metavar="POLICY"),
    Option("optimizer", units.words, "Optimizer, e.g. adamw (napkin optimizer lists them)", metavar="NAME"),
    # --- layout ---
    Option("tp", units.degree, "Tensor-parallel ranks", metavar="N", aliases=("tensor-model-parallel-size",)),
    Option("pp", units.degree, "Pipeline stages", metavar="N", aliases=("pipeline-model-parallel-size",)),
    Option("dp", units.degree, "Data-parallel ranks", metavar="N", aliases=("data-parallel-size",)),
    Option("cp", units.degree, "Context-parallel ranks", metavar="N", aliases=("context-parallel-size",)),
    Option(
        "ep",
        units.degree,
        "Expert-parallel ranks (inside dp)",
        metavar="N",
        aliases=("expert-model-parallel-size",),
    ),
    Option(
        "etp",
        units.degree,
        "Tensor-parallel ranks of the experts",
        metavar="N",
        aliases=("expert-tensor-parallel-size",),
    ),
    Option(
        "vp",
        units.degree,
        "Model chunks a stage (interleaved pipeline)",
        metavar="N",
        aliases=("virtual-stages", "virtual-pipeline-model-parallel-size", "num-virtual-stages-per-pipeline-rank"),
    ),
    flag("sp", "Sequence parallelism beside tensor parallelism", ("sequence-parallel",)),
    Option("zero", choice("0", "1", "2", "3"), "ZeRO stage (3 is FSDP)", metavar="0..3", aliases=("zero-stage",)),
    Option(
        "micro-batch",
        units.degree,
        "Sequences in one forward pass of one rank",
        metavar="N",
        aliases=("micro-batch-size",),
    ),
    Option(
        "global-batch",
        units.degree,
        "Sequences in one optimizer step, all ranks",
        metavar="N",
        aliases=("global-batch-size",),
    ),
    Option("stack", units.words, "Software: megatron-core, fsdp-compiled, fsdp-eager, xla, lean, …", metavar="NAME"),
    Option("interval", units.words, "Level of the interval, e.g. 80 or 90%", metavar="LEVEL"),
    Option("seq", units.degree, "Tokens in a sequence", "token", "N", aliases=("seq-length", "seq-len")),
    Option(
        "recompute",
        units.words,
        "none, selective, full, every:K, group:K or group:sqrt",
        metavar="KIND",
        aliases=("recompute-granularity",),
    ),
    Option("schedule", choice("gpipe", "1f1b", "interleaved", "zero-bubble"), "Pipeline schedule", metavar="NAME"),
    Option(
        "optimizer-form", choice("foreach", "forloop", "fused"), "How torch runs the optimizer step", metavar="FORM"
    ),
    Option("implementation", units.words, "Whose code runs: hf, nanogpt, megatron", metavar="NAME"),
    Option("attention", choice("flash", "eager", "efficient", "cudnn"), "Attention kernel", metavar="NAME"),
    Option("dropout", units.probability, "Dropout probability", metavar="P"),
    Option("batch", units.degree, "Sequences", metavar="N"),
    flag("inference", "Weights alone, as for inference"),
    flag("compile", "The step runs under torch.compile"),
    Option("size", units.words, "The shape, e.g. 4x8", metavar="SHAPE", positional=True),
    Option("depth", units.positive_count, "Linear layers, one after the other (a head comes on top)", metavar="L"),
    # --- what commands that ask others, or compare with what was published, share ---
    Option(
        "against",
        units.words,
        "The other side: what is different there, e.g. hardware=b200,price=4",
        metavar="NAME=VALUE,…",
    ),
    Option("show", units.words, "Paths of the quantities to show, e.g. time,cost", metavar="PATHS"),
    Option(
        "file", units.words, "Published rows: schema steps/1, memory/1 or endtoend/1", metavar="FILE", positional=True
    ),
    # --- figures of the accelerator, in place of the table's ---
    Option("peak-flops", units.compute_rate, "Dense peak of the dtype in use; others in proportion", "FLOP/s", "X"),
    Option("memory-size", units.size, "Memory of one accelerator", "byte", "SIZE"),
    Option("memory-bandwidth", units.bandwidth, "Memory bandwidth of one accelerator", "byte/s", "X"),
    Option("link-bandwidth", units.bandwidth, "Link inside a node, one way", "byte/s", "X"),
    Option("network-bandwidth", units.bandwidth, "Network of one accelerator, one way", "byte/s", "X"),
    Option("tdp", units.power_draw, "Power rating of one accelerator", "watt", "X"),
    # --- output, for every command ---
    Option("run", units.words, "A run file with these options by name; the command line wins over it", metavar="FILE"),
    flag("json", "One JSON object, base units"),
    flag("csv", "path,value,unit"),
    flag("markdown", "A Markdown table"),
    flag("explain", "Show each term's formula, inputs and source"),
    Option("plot", units.words, "Write a picture (.svg or .png)", metavar="FILE"),
    Option("theme", choice("light", "dark"), "Colours of the picture: light or dark", metavar="NAME"),
    Option("output", units.words, "Write the answer (bench: the profile) to a file; - is stdout", metavar="FILE"),
)

OPTIONS: dict[str, Option] = {option.name: option for option in _DECLARED}
COMMON = ("run", "json", "csv", "markdown", "explain", "output")
"""Options that every command has."""

DEGREES = ("gpus", "tp", "pp", "dp", "cp", "ep", "etp", "vp", "sp", "zero", "micro-batch", "global-batch", "schedule")
"""How the work is divided: options that only make sense together."""

STEP_MODEL = (*DEGREES[1:], "recompute", "precision", "optimizer", "optimizer-form", "stack")
"""What the step model takes beside a model, its sequence and its GPUs: given one of these, it predicts."""

DRAWS = ("plot", "theme")
"""Options of the commands that can draw."""

FIGURES = ("peak-flops", "memory-size", "memory-bandwidth", "link-bandwidth", "network-bandwidth", "tdp")
"""Options of every command that asks about an accelerator. They are parsed only where one is used, which keeps them
out of every start-up."""


def declare(*options: Option) -> None:
    """Add a command's own options to the registry. A name has one meaning, and one place where it is declared."""
    for option in options:
        if OPTIONS.setdefault(option.name, option) is not option:
            raise ValueError(f"--{option.name} is declared twice")


def canonical(name: str) -> str:
    """An option's name from any spelling: underscores, Megatron's names."""
    dashed = name.replace("_", "-")
    if dashed in OPTIONS:
        return dashed
    for option in OPTIONS.values():
        if dashed in option.aliases:
            return option.name
    return dashed
