"""Answers about one matmul or a stack of linear layers, for the commands that also take a model."""

from __future__ import annotations

from collections.abc import Callable

from napkin import formats, units
from napkin.commands.command import Inputs
from napkin.commands.machine import read_dtype, read_hardware
from napkin.counting import linear_stack as linear
from napkin.counting.utilization import verdict_of
from napkin.errors import BROKEN, OK, NapkinError
from napkin.inputs.hardware import peak_name
from napkin.operations.base import Gemm, gemm
from napkin.options.option import parsed
from napkin.render.answer import Answer
from napkin.term import Term, add, ceiling, constant, divide, leaf, multiply
from napkin.training import optimizers
from napkin.training.precision import Precision, precision


def matmul_of(inputs: Inputs, axes: str = "MxKxN") -> Gemm:
    """The product (M×K)(K×N) of the argument, --batch of them."""
    text = inputs.need("size", f"the shape {axes}, e.g. 4096x4096x4096")
    shape = parsed(units.shape, text, "SIZE")
    if len(shape) != 3:
        raise NapkinError(
            f"SIZE: {text[:60]!r} has {len(shape)} numbers, a matmul three", "MxKxN for (M×K)(K×N); --batch for many"
        )
    m, k, n = shape
    return gemm("matmul", m, k, n, inputs.get("batch") or 1)


def shape_terms(product: Gemm) -> list[Term]:
    """m, k and n, so that nobody has to guess which is which."""
    return [leaf(name, size, "1") for name, size in (("m", product.m), ("k", product.k), ("n", product.n))]


def flops_matmul(inputs: Inputs) -> Answer:
    """FLOP of one matrix product: 2·m·k·n."""
    one = matmul_of(inputs)
    flops = linear.product_term(one, "flops/forward")
    inputs.note("one product is counted; in training, backward makes two more of the same size")
    return Answer("flops", _written(one), [flops.renamed("flops/total"), flops, *shape_terms(one)])


def _written(one: Gemm) -> str:
    many = f"{one.batch:,} × " if one.batch != 1 else ""
    return f"{many}({one.m:,} × {one.k:,}) · ({one.k:,} × {one.n:,})"


def _widths(inputs: Inputs) -> tuple[int, ...]:
    widths = inputs.get("widths")
    if widths is None:
        width, depth = inputs.get("width"), inputs.get("depth")
        if width is None or depth is None:
            raise NapkinError(
                "--widths is missing", "--widths 4,4,1, or --width D --depth L for L square layers and a head of 1"
            )
        return linear.deep(width, depth)
    if inputs.get("width") is not None or inputs.get("depth") is not None:
        raise NapkinError("--widths excludes --width and --depth", "give one or the other")
    if len(widths) < 2:
        raise NapkinError("--widths: one width makes no layer", "input first, e.g. 4,4,1")
    return tuple(widths)


def flops_linear(inputs: Inputs) -> Answer:
    """Forward and backward of a stack of linear layers."""
    widths, batch = _widths(inputs), inputs.need("batch", "how many examples?")
    layer = linear.chain(widths)
    forward = linear.forward(layer, batch)
    backward = linear.backward(forward)
    first = linear.input_gradient(layer, batch)
    of_data = linear.backward_of_data(backward, first)
    weights = sum(w.count for op in layer.operations for w in op.weights())
    params = leaf("params/total", weights, "param", "true")
    rule = multiply(
        "flops/6nd",
        constant("6", 6, "FLOP/param", "2 forward and 4 backward a weight and example"),
        params,
        leaf("batch", batch, "1"),
    )
    total = add("flops/total", forward, backward)
    terms = [
        total,
        forward,
        backward,
        of_data,
        add("flops/total/of_data", forward, of_data),
        divide("flops/per_example", total, leaf("batch", batch, "1")),
        rule,
        params,
    ]
    inputs.note("flops/backward counts the gradient of the input too; plain data asks for none: flops/backward/of_data")
    return Answer("flops", f"linear layers {' → '.join(map(str, widths))}, {batch:,} examples", terms)


def mfu_matmul(inputs: Inputs) -> Answer:
    """FLOP/s of a measured product over the dense peak of its number format."""
    one = matmul_of(inputs)
    hardware = read_hardware(inputs)
    dtype = read_dtype(inputs, hardware)
    inputs.need("time", "how long did it take?")
    time = inputs.term("time")
    flops = linear.product_term(one, "flops/total")
    rate = divide("rate", flops, time)
    mfu = divide("mfu", rate, hardware.term(f"peak/{peak_name(dtype)}", "peak"))
    word = verdict_of(mfu.value)
    if dtype == "fp32" and "tf32" in hardware.peaks:
        inputs.note("fp32 is the rate of the vector units; with TF32 allowed in fp32 products, ask for --dtype tf32")
    if word == "impossible":
        inputs.note("above the dense peak: the time, the shape, the dtype or the accelerator is not what was said")
    return Answer(
        "mfu",
        f"{_written(one)} in {dtype} on {hardware.name}",
        [mfu, rate, flops, time, *shape_terms(one)],
        verdict=word,
        status=BROKEN if word == "impossible" else OK,
    )


def memory_linear(inputs: Inputs) -> Answer:
    """Bytes that training a stack of linear layers keeps: parameters, gradients, optimizer, saved activations.

    The step counters of the optimizer and the saved input (the data itself) stand apart from the total."""
    widths, batch = _widths(inputs), inputs.need("batch", "how many examples?")
    policy = precision(inputs.get("precision") or inputs.default("precision", "bf16-mixed"))
    optimizer, form = optimizers.find(
        inputs.get("optimizer") or inputs.default("optimizer", "adamw"), form=inputs.get("optimizer-form")
    )
    layer = linear.chain(widths)
    shapes = [w.shape for op in layer.operations for w in op.weights()]
    params = leaf("params/total", sum(w.count for op in layer.operations for w in op.weights()), "param", "true")
    parts = [
        _sized("memory/parameters", params, policy.param),
        _sized("memory/gradients", params, policy.grad),
    ]
    if policy.master is not None:
        parts.append(_sized("memory/master", params, policy.master))
    states, scalars = _states(optimizer, shapes, policy)
    parts.append(states)
    data, kept = linear.saved(widths, batch)
    parts.append(
        _sized(
            "memory/activations",
            leaf("saved_numbers", kept, "1", "true", "what the layers after the first read"),
            policy.compute,
        )
    )
    terms = [
        add("memory/total", *parts),
        *parts,
        scalars,
        _sized(
            "memory/saved_input", leaf("input_numbers", data, "1", "true", "what the first layer reads"), policy.compute
        ),
        params,
    ]
    where = "device" if optimizers.counters_on_device(form) else "host"
    inputs.note(f"apart from the total: step counters (on the {where}) and the saved input, which is the data itself")
    return Answer(
        "memory",
        f"linear layers {' → '.join(map(str, widths))}, {batch:,} examples, {optimizer.name}, {policy.name}",
        terms,
    )


def _sized(name: str, count: Term, dtype: str) -> Term:
    """Count × bytes of the number format, whole bytes."""
    each = formats.element_bytes(formats.find(dtype), f"bytes_of_{dtype}")
    if count.unit != "1":
        each = divide(each.name, each, constant("parameter", 1, "param"))
    size = multiply(f"{name}/exact", count, each)
    return multiply(name, count, each) if isinstance(size.value, int) else ceiling(name, size)


def _states(optimizer: optimizers.Optimizer, shapes: list[tuple[int, ...]], policy: Precision) -> tuple[Term, Term]:
    """(memory/optimizer without counters, memory/step_counters), summed over the tensors."""
    width = formats.element_bytes(formats.find(policy.state), f"bytes_of_{policy.state}")
    by_state: dict[str, list[Term]] = {}
    counters: list[Term] = []
    for at, shape in enumerate(shapes, 1):
        scalar = {s.name for s in optimizer.kept(shape) if s.layout == optimizers.SCALAR}
        for term in optimizers.terms(optimizer, shape, width, f"linear{at}"):
            state = term.name.rpartition("/")[2]
            if state in scalar:
                counters.append(term)
            elif state == "code_books":
                by_state["code_books"] = [term]  # one set for all tensors
            else:
                by_state.setdefault(state, []).append(term)
    total = [add(f"memory/optimizer/{state}", *terms) for state, terms in by_state.items()]
    none = leaf("no_state", 0, "byte", "true", optimizer.source)
    return add("memory/optimizer", *(total or [none])), add("memory/step_counters", *(counters or [none]))


ANSWERS: dict[tuple[str, str], Callable[[Inputs], Answer]] = {
    ("flops", "matmul"): flops_matmul,
    ("flops", "linear"): flops_linear,
    ("mfu", "matmul"): mfu_matmul,
    ("memory", "linear"): memory_linear,
}
