"""Answers about one matmul or a stack of linear layers, for the commands that also take a model."""

from __future__ import annotations

from collections.abc import Callable

from napkin import units
from napkin.commands.inputs import Inputs
from napkin.commands.next_command import under
from napkin.commands.question.machine import WHICH, read_dtype, read_hardware
from napkin.commands.screens import linear as screen
from napkin.counting import linear_stack as linear
from napkin.counting.products import product_term
from napkin.counting.utilization import mfu_of_matmul, verdict_of
from napkin.errors import BROKEN, OK, NapkinError
from napkin.footprint.linear_memory import linear_memory
from napkin.inputs.hardware import Hardware
from napkin.inputs.peaks import peak_name
from napkin.operations.work import Gemm, gemm
from napkin.options.option import parsed
from napkin.record import record
from napkin.render.answer import Answer
from napkin.render.screen import Screen, quantities
from napkin.term import Term, leaf
from napkin.training import optimizer_names
from napkin.training.optimizer import Optimizer, counters_on_device
from napkin.training.precision import Precision, precision
from napkin.units import human

SHOWN = 16
"""Number of equal linear layers that are listed one by one."""


@record
class LinearStack:
    """Linear layers on `batch` examples."""

    layers: tuple[linear.EqualLayers, ...]
    batch: int

    @property
    def title(self) -> str:
        """The layers in words."""
        return f"linear layers {self._widths()}, {self.batch:,} examples"

    def _widths(self) -> str:
        """Return the widths of the layers; a long run of equal widths is abbreviated."""
        words = [str(self.layers[0].d_in)]
        for run in self.layers:
            words += [str(run.d_out)] * run.layers if run.layers <= SHOWN else [f"({run.layers:,} ×) {run.d_out}"]
        return " → ".join(words)


@record
class MeasuredMatmul:
    """A matmul that took `time` seconds on an accelerator, in a number format."""

    one: Gemm
    hardware: Hardware
    dtype: str
    time: Term


@record
class TrainedStack:
    """Linear layers in training: number formats, optimizer and its form."""

    stack: LinearStack
    policy: Precision
    optimizer: Optimizer
    form: str | None


# --- the questions ---------------------------------------------------------------------------------------------------


MATMUL = "the shape MxKxN, e.g. 4096x4096x4096"


def read_matmul(inputs: Inputs) -> Gemm:
    """Return the matmul (M×K)(K×N) from the argument, in --batch copies."""
    text = inputs.text("size", MATMUL)
    shape = parsed(units.shape, text, "SHAPE")
    if len(shape) != 3:
        raise NapkinError(
            f"SHAPE: {text[:60]!r} has {len(shape)} numbers, a matmul three", "MxKxN for (M×K)(K×N); --batch for many"
        )
    m, k, n = shape
    return gemm("matmul", m, k, n, inputs.integer_or_none("batch") or 1)


EXAMPLES = "how many examples?"


def _read_stack(inputs: Inputs) -> LinearStack:
    """Return the linear layers."""
    return LinearStack(_read_layers(inputs), inputs.integer("batch", EXAMPLES))


def _read_layers(inputs: Inputs) -> tuple[linear.EqualLayers, ...]:
    """Return the layers by their widths, listed or from one width and a depth."""
    widths = inputs.integers("widths")
    if not widths:
        width, depth = inputs.integer_or_none("width"), inputs.integer_or_none("depth")
        if width is not None and depth is not None:
            return linear.deep(width, depth)
        hint = "--widths 4,4,1, or --width D --depth L for L square layers and a head of 1"
        inputs.need_all({"batch": EXAMPLES}, [NapkinError("--widths is missing", hint)])
    if inputs.has("width") or inputs.has("depth"):
        raise NapkinError("--widths excludes --width and --depth", "give one or the other")
    if len(widths) < 2:
        raise NapkinError("--widths: one width makes no layer", "input first, e.g. 4,4,1")
    return linear.chain(widths)


def _read_measured(inputs: Inputs) -> MeasuredMatmul:
    """Return the measured matmul."""
    inputs.need_all({"size": MATMUL, "hardware": WHICH, "time": "how long did it take?"})
    one = read_matmul(inputs)
    hardware = read_hardware(inputs, ("peak-flops",))
    dtype = read_dtype(inputs, hardware)
    return MeasuredMatmul(one, hardware, dtype, inputs.term("time"))


def _read_trained(inputs: Inputs) -> TrainedStack:
    """Return the linear layers with precision and optimizer."""
    stack = _read_stack(inputs)
    policy = precision(inputs.text("precision", default="bf16-mixed"))
    name = inputs.text("optimizer", default="adamw")
    optimizer, form = optimizer_names.find(name, form=inputs.text_or_none("optimizer-form"))
    return TrainedStack(stack, policy, optimizer, form)


# --- the answers -----------------------------------------------------------------------------------------------------


def shape_terms(one: Gemm) -> list[Term]:
    """Return m, k and n as terms."""
    return [leaf(name, size, "1") for name, size in (("m", one.m), ("k", one.k), ("n", one.n))]


def matmul_words(one: Gemm) -> str:
    """Return a matmul in the usual notation."""
    many = f"{one.batch:,} × " if one.batch != 1 else ""
    return f"{many}({one.m:,} × {one.k:,}) · ({one.k:,} × {one.n:,})"


def _flops_of_matmul(one: Gemm) -> Answer:
    """Answer with the FLOP of one matmul: 2·m·k·n."""
    flops = product_term("flops/forward", one)
    training = linear.training_flops(flops)
    note = "one matmul is counted; in training, backward makes two more of the same size"
    return Answer(
        "flops",
        terms=[flops.renamed("flops/total"), flops, training, *shape_terms(one)],
        notes=[note],
        screen=Screen(
            (matmul_words(one),),
            (human(flops.value, "FLOP"), f"{human(training.value, 'FLOP')} in training, with its backward pass"),
            next=under("roofline", {"hardware": "h100"}),
        ),
    )


def _flops_of_stack(stack: LinearStack) -> Answer:
    """Answer with forward and backward of a stack of linear layers."""
    found = linear.step(stack.layers, stack.batch)
    rows = (
        ("forward pass", human(found.forward.value, "FLOP"), ""),
        ("backward pass", human(found.backward.value, "FLOP"), "gradients of weights and inputs"),
        ("without the input's gradient", human(found.total_of_data.value, "FLOP"), "which plain data does not need"),
        ("per example", human(found.per_example.value, "FLOP"), ""),
        ("parameters", f"{found.params.value:,}", "without biases"),
    )
    return Answer(
        "flops",
        terms=[
            found.total,
            found.forward,
            found.backward,
            found.of_data,
            found.total_of_data,
            found.per_example,
            found.six_nd,
            found.params,
        ],
        notes=["flops/backward counts the gradient of the input too; plain data asks for none: flops/backward/of_data"],
        screen=Screen(
            (f"One training step of {stack.title}",),
            (human(found.total.value, "FLOP"),),
            table=quantities(rows),
            next=under("memory", {"batch": str(stack.batch)}),
        ),
    )


def _mfu_of_matmul(question: MeasuredMatmul) -> Answer:
    """Answer with the FLOP/s of a measured matmul over the dense peak of its number format."""
    one, hardware, dtype = question.one, question.hardware, question.dtype
    flops = product_term("flops/total", one)
    peak = hardware.term(f"peak/{peak_name(dtype)}", "peak")
    mfu, rate = mfu_of_matmul(flops, question.time, peak)
    word = verdict_of(mfu.value)
    notes = []
    if dtype == "fp32" and "tf32" in hardware.peaks:
        notes.append("fp32 is the rate of the vector units; with TF32 allowed in fp32 matmuls, ask for --dtype tf32")
    if word == "impossible":
        notes.append("above the dense peak: the time, the shape, the dtype or the accelerator is not what was given")
    rows = (
        ("speed", human(rate.value, "FLOP/s"), f"of {human(peak.value, 'FLOP/s')} dense {dtype} peak"),
        ("compute", human(flops.value, "FLOP"), ""),
        ("time", human(question.time.value, "second"), ""),
    )
    return Answer(
        "mfu",
        terms=[mfu, rate, flops, question.time, *shape_terms(one)],
        verdict=word,
        status=BROKEN if word == "impossible" else OK,
        notes=notes,
        screen=Screen(
            (matmul_words(one), dtype, hardware.name),
            (f"MFU {human(mfu.value, '1')}", word.upper()),
            word,
            quantities(rows, right=False),
            remarks=notes[:1],
            next=under("roofline"),
        ),
    )


def _memory_of_stack(question: TrainedStack) -> Answer:
    """Answer with the bytes that training a stack of linear layers keeps."""
    stack, policy, optimizer = question.stack, question.policy, question.optimizer
    found = linear_memory(stack.layers, stack.batch, policy, optimizer)
    where = "device" if counters_on_device(question.form) else "host"
    note = f"not included in the total: step counters (on the {where}) and the saved input, which is the data itself"
    terms = [found.total, *found.parts, found.counters, found.saved_input, found.params]
    return Answer("memory", terms, notes=[note], screen=screen.memory(stack.title, found, optimizer, policy))


ANSWERS: dict[tuple[str, str], Callable[[Inputs], Answer]] = {
    ("flops", "matmul"): lambda inputs: _flops_of_matmul(read_matmul(inputs)),
    ("flops", "linear"): lambda inputs: _flops_of_stack(_read_stack(inputs)),
    ("mfu", "matmul"): lambda inputs: _mfu_of_matmul(_read_measured(inputs)),
    ("memory", "linear"): lambda inputs: _memory_of_stack(_read_trained(inputs)),
}
"""(command, word) → how it is answered."""
