"""`napkin flops MODEL`: FLOPs of one step, by operation, compared with the published conventions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.commands.matmul_or_linear import run_matmul_or_linear
from napkin.commands.next_command import under
from napkin.commands.question.frozen import read_passes
from napkin.commands.question.model import (
    read_documents,
    read_images,
    read_indexer_loss,
    read_model,
    read_mtp,
    read_sequence,
    read_target,
)
from napkin.commands.question.tasks import read_task
from napkin.counting import conventions, flops, vision
from napkin.errors import NapkinError
from napkin.operations.model import Model
from napkin.options.model import MODEL_OPTIONS, PADDED, PREDICTING
from napkin.options.question import LINEAR_OPTIONS
from napkin.options.training import FROZEN, TASKED
from napkin.record import record
from napkin.render.answer import Answer
from napkin.render.figures import amount, share
from napkin.render.screen import Screen, Table, shares
from napkin.term import GIVEN, Term, add, divide, leaf, multiply
from napkin.training.tasks import Passes
from napkin.units import figures, human


@record
class FlopsQuestion:
    """One step of a model.

    passes  of a micro-batch: the model as it is trained, with frozen operations marked and adapters included
    batch   samples of `rows` sequences          seq     tokens in each
    task    the training task in words, "" for pretraining           tuned  whether a trained network is fine-tuned
    target  tokens of a decoder sequence, or None    mtp  whether multi-token prediction modules count
    pairs   (query, key) pairs: full, half, exact
    indexer_loss  whether a loss trains the indexers of sparse attention
    images  in each sequence                     image_tokens  tokens of one image in the language model, or 0
    tokens  of the entire run, or None
    documents  packed into each sequence, as (length, count)
    """

    model: Model
    passes: Passes
    batch: int
    seq: int
    target: int | None
    mtp: bool
    pairs: str
    documents: tuple[tuple[int, int], ...]
    indexer_loss: bool = False
    images: int = 0
    image_tokens: int = 0
    tokens: Term | None = None
    rows: int = 1
    task: str = ""
    tuned: bool = False


def run(inputs: Inputs) -> Answer:
    """Answer for a model, a matmul or linear layers."""
    return run_matmul_or_linear(inputs) or answer(read(inputs))


def read(inputs: Inputs) -> FlopsQuestion:
    """Read the question about a model."""
    model = read_model(inputs)
    batch, seq = inputs.integer("batch"), read_sequence(inputs, model)
    target, documents, mtp = read_target(inputs, model), read_documents(inputs, seq), read_mtp(inputs, model)
    indexer_loss, images = read_indexer_loss(inputs, model), read_images(inputs, model)
    passes, task = read_passes(inputs, model), read_task(inputs)
    tokens = inputs.term("tokens") if inputs.has("tokens") else None
    pairs = _read_pairs(inputs)
    return FlopsQuestion(
        model,
        passes,
        batch,
        seq,
        target,
        mtp,
        pairs,
        documents,
        indexer_loss,
        *images,
        tokens=tokens,
        rows=task.rows,
        task=task.says,
        tuned=any(name in inputs for name in (*FROZEN, *TASKED)),
    )


def _read_pairs(inputs: Inputs) -> str:
    """Return which (query, key) pairs count."""
    if inputs.flag("causal"):
        if "pairs" in inputs and inputs.text_or_none("pairs") != flops.HALF:
            raise NapkinError("--causal and --pairs cannot be combined", "--causal is short for --pairs half")
        return flops.HALF
    return inputs.text("pairs")


def answer(question: FlopsQuestion) -> Answer:
    """Answer with the counted FLOPs, those by every convention, and their ratio."""
    model, passes, batch = question.model, question.passes, question.batch * question.rows

    def over_times(one: Model, times: int) -> flops.Works:
        return flops.works(
            one,
            times * batch,
            question.seq,
            target=question.target,
            pairs=question.pairs,
            documents=question.documents,
            indexer_loss=question.indexer_loss,
        )

    over = over_times(model, 1)
    counted = _counted(question, over, flops.forwards_of(passes, over_times))
    named = conventions.all_conventions(model, over, question.mtp)
    frozen = passes.trained is not model
    if passes != Passes(model):  # the other conventions count the gradients of all weights, and one model
        named["torch"] = conventions.counted_per_token(passes, over_times, question.mtp)
    terms = list(counted.values())
    terms += named.values()
    terms += [conventions.ratio(name, term, counted["flops/per_token"]) for name, term in named.items()]
    terms += [] if frozen else vision.flops_of(model, batch * question.images, question.image_tokens)
    answer = Answer("flops", terms)
    run = None if question.tokens is None else multiply("run", counted["flops/per_token"], question.tokens)
    if run is not None and question.tokens is not None:
        answer.extra["run"] = {"tokens": question.tokens.value, "flops": run.value}
    back = "frozen weights have no gradients" if frozen else "backward is twice forward"
    answer.notes.append(f"a multiply-add is 2 FLOP; {back}; lookups and elementwise work count 0")
    if frozen and model.vision is not None:
        answer.notes.append("flops/vision is omitted: the tower's FLOPs are counted for training all of it")
    answer.notes += flops.remarks(model)
    answer.screen = _screen(question, {term.name: term for term in terms}, run)
    return answer


def _counted(question: FlopsQuestion, over: flops.Works, others: Sequence[Term]) -> dict[str, Term]:
    """Return the FLOPs of a step by path; others: those of passes without gradients, which the total includes."""
    counted = flops.step(question.passes.trained, over, question.mtp)
    if not others:
        return counted
    total = add("flops/total", counted["flops/total"].renamed("flops/trained"), *others)
    count = leaf("tokens", flops.tokens(over), "token", GIVEN)
    counted |= {total.name: total, "flops/per_token": divide("flops/per_token", total, count)}
    return counted | {one.name: one for one in others}


MOST_OPERATIONS = 9
"""Operations that are listed one by one, the largest first; the others are one row."""
ATTENTION = {flops.FULL: "in full", flops.HALF: "by half (causal)", flops.EXACT: "as masked"}
"""Which (query, key) pairs count → the words for it."""
CONVENTIONS = (("6nd", "6ND"), ("palm", "PaLM"), ("megatron", "Megatron"))
"""Conventions of published figures that are shown next to the count; JSON has all of them."""


def _screen(question: FlopsQuestion, terms: Mapping[str, Term], whole: Term | None) -> Screen:
    """Return the screen: the step's FLOPs, where they are, and what other conventions make of them; whole: the FLOPs of
    the entire run."""
    asked = (
        f"One training step of {question.model.name}",
        *([question.task] if question.task else []),
        f"{question.batch * question.rows:,} × {question.seq:,} tokens",
        *([f"{question.images} image{'s' * (question.images > 1)} each"] if question.images else []),
        f"attention counted {ATTENTION[question.pairs]}",
    )
    headline = [human(terms["flops/total"].value, "FLOP"), f"{_giga(terms['flops/per_token'])} per token"]
    if question.tokens is not None and whole is not None:
        run_of = f"{human(whole.value, 'FLOP')} for {amount(question.tokens.value)} tokens"
        headline = [run_of, f"{headline[0]} a step", headline[1]]
    asked_tokens = {} if question.tokens is not None else {"tokens": "1T"}
    tuned = {"samples": "52k", "sample-tokens": "350", "gpus": "1"}
    more = {**asked_tokens, "gpus": "64"} if not question.tuned else tuned if asked_tokens else {"gpus": "1"}
    run = under("train-time", {**more, "hardware": "h100"})
    others = [one.name for one in question.passes.others]
    return Screen(asked, headline, table=_table(terms, others), next=run)


def _table(terms: Mapping[str, Term], others: Sequence[str]) -> Table:
    """Return the table: forward and backward, the forward pass by operation, the conventions of published figures."""
    total, forward = terms["flops/total"].value, terms["flops/forward"].value
    rows = [
        ("forward pass", forward, total, ""),
        ("backward pass", terms["flops/backward"].value, total, ""),
    ]
    rows += [(f"{name} pass", terms[f"flops/{name}"].value, total, "") for name in others]
    path = "flops/operation/"
    each = [(name.removeprefix(path), term.value) for name, term in terms.items() if name.startswith(path)]
    each.sort(key=lambda one: -one[1])
    listed = each if len(each) <= MOST_OPERATIONS else each[: MOST_OPERATIONS - 1]
    left = [value for _, value in each[len(listed) :]]
    listed += [(f"{len(left)} others", sum(left))] if left else []
    rows[1:1] = [(f"  {name}", value, forward, "") for name, value in listed]
    if "flops/vision" in terms:
        rows.append(("vision tower", terms["flops/vision"].value, total, "in addition"))
    table = shares([(label, human(value, "FLOP"), value / whole, said) for label, value, whole, said in rows])
    other = []
    for name, word in CONVENTIONS:
        ratio = share(terms[f"flops/ratio/{name}"].value)
        other.append((f"by {word}, per token", _giga(terms[f"flops/per_token/{name}"]), ratio, "", ""))
    return Table(table.columns, (*table.rows, *other))


def _giga(per_token: Term) -> str:
    """Return FLOPs per token in units of 10⁹."""
    return f"{figures(per_token.value / 1e9)} GFLOP"


COMMAND = Command(
    "flops",
    "FLOPs of one training step, by operation, and under the conventions of published figures",
    run,
    brief="FLOPs of one training step, by operation and convention",
    options=(
        *MODEL_OPTIONS,
        *PADDED,
        "tp",
        "batch",
        "seq",
        "tokens",
        "pairs",
        "causal",
        "target-seq",
        "document-lengths",
        "mean-document-length",
        *PREDICTING,
        "indexer-loss",
        "images",
        "image-tokens",
        *TASKED,
        "freeze-head",
        "freeze-layers",
        "lora-rank",
        "adapter",
        "adapter-block",
        "virtual-tokens",
        "lora-targets",
        "modules-to-save",
        *LINEAR_OPTIONS,
    ),
    arguments=("model", "size"),
    defaults={"batch": "1", "pairs": "full"},
    examples=(
        "flops llama3-8b --batch 1 --seq 8192",
        "flops llama3-8b --seq 8192 --pairs exact",
        "flops llama3-70b --tokens 15T",
        "flops gpt2 --seq 1024 --batch 8 --causal",
        "flops matmul 16384x32768x8192",
        "flops linear --widths 4,4,1 --batch 2",
    ),
)
