"""The software that a step is taken to run on if no option names it, and whose model its memory is counted on."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.commands.question.frozen import read_implementation
from napkin.training.framework import FSDP
from napkin.training.frameworks import FRAMEWORKS, PLAIN
from napkin.training.setup import Setup

TUNES_ON = FSDP[0]
"""The software assumed for fine-tuning: the libraries run a model's own class and compile nothing by default
(torch_compile of transformers' TrainingArguments, and what TRL, axolotl, ms-swift and LLaMA-Factory make of it)."""

PLANS_ON = "megatron-core"
"""The software that `napkin plan` takes by default, for layouts with ZeRO-3 and ranks of other kinds too."""


def read_usual_stack(inputs: Inputs, setup: Setup) -> str:
    """Return the software if no option names it: that of fine-tuning on data-parallel ranks, else what the layout
    suggests."""
    layout = setup.layout
    if setup.tunes_own_class and layout.tp * layout.pp * layout.ep == 1:
        return TUNES_ON
    return "unknown" if layout.gpus == 1 else "fsdp-compiled" if layout.zero == 3 else PLANS_ON


def read_whose_model(inputs: Inputs, setup: Setup, stack: str = "") -> None:
    """Say that memory is counted on transformers' model where that is the default and `plan` counts such a layout on
    software that runs its own. stack: that software; "": what the layout suggests."""
    layout, named = setup.layout, inputs.has("trainer") or inputs.has("framework")
    stack = stack or ("" if named else read_usual_stack(inputs, setup))
    planned = not setup.tunes or layout.tp * layout.pp * layout.ep > 1
    if planned and not named and "stack" not in inputs and stack in FSDP:
        stack = PLANS_ON
    own, taken = FRAMEWORKS.get(stack, PLAIN).implementation, read_implementation(inputs)
    if own in (PLAIN.implementation, taken) or "implementation" in inputs:
        return
    inputs.assume(f"{taken} implementation")
    inputs.note(
        f"memory is that of the {taken} implementation, the default; napkin plan counts such a layout on {stack}, "
        f"whose model keeps other tensors: --implementation {own}, or --framework {stack}"
    )
