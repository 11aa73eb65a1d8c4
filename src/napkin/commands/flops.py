"""`napkin flops MODEL`: FLOPs of one step, by operation, compared with the published conventions."""

from __future__ import annotations

from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.commands.model import read_documents, read_images, read_indexer_loss, read_model, read_sequence
from napkin.commands.single import run_single
from napkin.counting import conventions, flops
from napkin.errors import NapkinError
from napkin.operations.model import Model
from napkin.options.model import MODEL_OPTIONS, PADDED
from napkin.options.small import LINEAR_OPTIONS
from napkin.record import record
from napkin.render.answer import Answer


@record
class FlopsQuestion:
    """One step of a model.

    batch   sequences                            seq     tokens in each
    target  tokens of the decoder's, or None     mtp     whether multi-token prediction modules count
    pairs   (query, key) pairs: full, half, exact
    indexer_loss  whether a loss trains the indexers of sparse attention
    images  in each sequence                     image_tokens  what the language model sees of one, or 0
    documents  packed into each sequence, as (length, how many)
    """

    model: Model
    batch: int
    seq: int
    target: int | None
    mtp: bool
    pairs: str
    documents: tuple[tuple[int, int], ...]
    indexer_loss: bool = False
    images: int = 0
    image_tokens: int = 0


def run(inputs: Inputs) -> Answer:
    """Answer for a model, a matmul or linear layers."""
    return run_single(inputs) or answer(read(inputs))


def read(inputs: Inputs) -> FlopsQuestion:
    """Read the question about a model."""
    model = read_model(inputs)
    batch, seq = inputs.integer("batch"), read_sequence(inputs, model)
    target = inputs.integer_or_none("target-seq")
    if target is not None and len(model.stacks) == 1:
        raise NapkinError(f"--target-seq: {model.name} has no second stack", "leave it out")
    documents = read_documents(inputs, seq)
    images, image_tokens = read_images(inputs, model)
    return FlopsQuestion(
        model,
        batch,
        seq,
        target,
        inputs.flag("mtp"),
        _read_pairs(inputs),
        documents,
        read_indexer_loss(inputs, model),
        images,
        image_tokens,
    )


def _read_pairs(inputs: Inputs) -> str:
    """Return which (query, key) pairs count."""
    if inputs.flag("causal"):
        if "pairs" in inputs and inputs.text_or_none("pairs") != flops.HALF:
            raise NapkinError("--causal and --pairs cannot be combined", "--causal is short for --pairs half")
        return flops.HALF
    return inputs.text("pairs")


def answer(question: FlopsQuestion) -> Answer:
    """Answer with the counted FLOPs and every convention's, and their ratio."""
    model, batch, seq = question.model, question.batch, question.seq
    over = flops.works(
        model,
        batch,
        seq,
        target=question.target,
        pairs=question.pairs,
        documents=question.documents,
        indexer_loss=question.indexer_loss,
    )
    counted = flops.step(model, over, question.mtp)
    named = conventions.all_conventions(model, over, question.mtp)
    terms = list(counted.values())
    terms += named.values()
    terms += [conventions.ratio(name, term, counted["flops/per_token"]) for name, term in named.items()]
    terms += flops.of_vision(model, batch * question.images, question.image_tokens)
    answer = Answer("flops", f"FLOPs of one step of {model.name}, {batch:,} × {seq:,} tokens", terms)
    answer.notes.append("a multiply-add is 2 FLOP; backward is twice forward; look-ups and elementwise work count 0")
    answer.notes += flops.remarks(model)
    return answer


COMMAND = Command(
    "flops",
    "FLOPs of one training step, by operation, next to the conventions of published figures",
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
        "indexer-loss",
        "images",
        "image-tokens",
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
