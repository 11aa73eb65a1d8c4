"""`napkin init`: weight initialization, and its effect on the scale of activations, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.counting import init
from napkin.record import record
from napkin.render.answer import Answer
from napkin.render.screen import Column, Next, Screen, Table
from napkin.term import Term, constant
from napkin.units import figures


@record
class InitQuestion:
    """Linear layers with `fan_in` inputs. std: of the weights, None for 1/√fan-in; cut: truncation in standard
    deviations."""

    fan_in: Term
    depth: Term
    std: Term | None
    cut: Term


def run(inputs: Inputs) -> Answer:
    """Answer for a stack of linear layers."""
    return answer(read(inputs))


def read(inputs: Inputs) -> InitQuestion:
    """Read the question."""
    inputs.need("fan-in", "how many input features does a layer have?")
    depth = inputs.term("depth")
    std = inputs.term("std") if inputs.has("std") else None
    return InitQuestion(inputs.term("fan-in"), depth, std, inputs.term("cut"))


def answer(question: InitQuestion) -> Answer:
    """Answer with the standard deviation of the weights, and of the outputs after each layer."""
    fan_in, depth = question.fan_in, question.depth
    std = init.scaled_std(fan_in) if question.std is None else question.std.renamed("init/std")
    unscaled = init.output_std(constant("unit_std", 1), fan_in, "init/unscaled/output_std")
    each = init.output_std(std, fan_in, "init/output_std")
    truncated = init.truncated_output(each, question.cut)
    terms = [
        std,
        each,
        init.after(depth, each, "init/output_std/after_depth"),
        unscaled,
        init.after(depth, unscaled, "init/unscaled/output_std/after_depth"),
        truncated,
        init.after(depth, truncated, "init/truncated/output_std/after_depth"),
        init.cut_in_std(std),
    ]
    note = (
        "torch's trunc_normal_(std=1/√d, a=-3, b=3) cuts at an absolute ±3 (init/cut_in_std standard deviations), "
        "which changes nothing for wide layers; init/truncated is a cut at ± --cut standard deviations"
    )
    return Answer("init", terms=terms, notes=[note], screen=_screen(question, {term.name: term for term in terms}))


def _screen(question: InitQuestion, terms: Mapping[str, Term]) -> Screen:
    """Return the screen: the weights' standard deviation, and the scale of the outputs it leads to."""
    depth = question.depth.value

    def scale(label: str, path: str, remark: str) -> tuple[str, ...]:
        each, after = (figures(float(terms[one].value), 3) for one in (path, f"{path}/after_depth"))
        return (label, each, remark) if depth == 1 else (label, each, after, remark)

    cut = f"normal, cut at ±{question.cut.value:g} std"
    rows = (
        scale("these weights", "init/output_std", "normal"),
        scale("truncated", "init/truncated/output_std", cut),
        scale("N(0, 1) weights", "init/unscaled/output_std", "torch.randn without scaling"),
    )
    given = question.std is not None
    columns = (
        Column("std of the outputs"),
        Column("1 layer", right=True),
        *([] if depth == 1 else [Column(f"{depth:,} layers", right=True)]),
        Column(remark=True),
    )
    return Screen(
        (
            f"{depth:,} linear layers" if depth != 1 else "One linear layer",
            f"{question.fan_in.value:,} inputs each",
            "inputs of std 1",
        ),
        (
            f"weights of std {figures(float(terms['init/std'].value))}",
            "as given" if given else "1/√fan-in keeps the scale",
        ),
        table=Table(columns, rows),
        next=Next({"std": None}) if given else Next({"std": "0.02"}),
    )


COMMAND = Command(
    "init",
    "Weight initialization: the standard deviation that preserves the scale, and the effect of N(0, 1)",
    run,
    brief="Weight initialization, and the scale of activations",
    options=("fan-in", "depth", "std", "cut"),
    defaults={"depth": "1", "cut": "3"},
    examples=("init --fan-in 4096 --depth 32", "init --fan-in 4096 --depth 32 --std 0.02"),
)
