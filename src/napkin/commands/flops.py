"""`napkin flops MODEL`: FLOPs of one step, by operation, with the published conventions beside the count."""

from __future__ import annotations

from napkin.commands.command import Command, Inputs
from napkin.commands.model import read_documents, read_model, read_sequence
from napkin.commands.single import answered
from napkin.counting import conventions, flops
from napkin.errors import NapkinError
from napkin.options.model import MODEL_OPTIONS, PADDED
from napkin.options.small import LINEAR_OPTIONS
from napkin.render.answer import Answer


def run(inputs: Inputs) -> Answer:
    return answered(inputs) or _of_model(inputs)


def _of_model(inputs: Inputs) -> Answer:
    model = read_model(inputs)
    batch, seq = inputs.get("batch"), read_sequence(inputs, model)
    target = inputs.get("target-seq")
    if target is not None and len(model.stacks) == 1:
        raise NapkinError(f"--target-seq: {model.name} has no second stack", "leave it out")
    mtp = bool(inputs.get("mtp"))
    packed = read_documents(inputs, seq)
    over = flops.works(model, batch, seq, target=target, pairs=_pairs(inputs), documents=packed)
    counted = flops.step(model, over, mtp)
    named = conventions.all_conventions(model, over, mtp)
    terms = list(counted.values())
    terms += named.values()
    terms += [conventions.ratio(name, term, counted["flops/per_token"]) for name, term in named.items()]
    answer = Answer("flops", f"FLOPs of one step of {model.name}, {batch:,} × {seq:,} tokens", terms)
    answer.notes.append("a multiply-add is 2 FLOP; backward is twice forward; look-ups and elementwise work count 0")
    answer.notes += flops.remarks(model)
    return answer


def _pairs(inputs: Inputs) -> str:
    if inputs.get("causal"):
        if "pairs" in inputs and inputs.get("pairs") != flops.HALF:
            raise NapkinError("--causal and --pairs cannot be combined", "--causal is short for --pairs half")
        return flops.HALF
    return str(inputs.get("pairs"))


COMMAND = Command(
    "flops",
    "FLOPs of one training step, by operation, beside the conventions of published figures",
    run,
    options=(
        *MODEL_OPTIONS,
        *PADDED,
        "tp",
        "batch",
        "seq",
        "pairs",
        "causal",
        "target-seq",
        "document-lengths",
        "mean-document-length",
        "mtp",
        *LINEAR_OPTIONS,
    ),
    arguments=("model", "size"),
    defaults={"batch": "1", "pairs": "full"},
    examples=(
        "flops llama3-8b --batch 1 --seq 8192",
        "flops llama3-8b --seq 8192 --pairs exact",
        "flops gpt2 --seq 1024 --batch 8 --causal",
        "flops matmul 16384x32768x8192",
        "flops linear --widths 4,4,1 --batch 2",
    ),
)
