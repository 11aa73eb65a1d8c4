"""Heads of classes other than language models: what follows the body in classification and question answering.

A head is a record: its linear layers and what they run over. Which class of Hugging Face transformers 5.23.0 has which
head is a generated table (tools/class_heads.py), read from the classes themselves.
"""

from __future__ import annotations

from collections.abc import Callable

from napkin._tables.class_heads import CLASS_HEADS
from napkin.architectures.blocks import LAYER, LAYER_NO_BIAS, Operations
from napkin.architectures.masked import pooler
from napkin.architectures.reading import BARE, Switch
from napkin.inputs.load import printable
from napkin.inputs.model import Config
from napkin.operations.base import Operation
from napkin.operations.linear import Matmul, PerSequence
from napkin.operations.model import Model, Stack
from napkin.operations.pointwise import Activation, Dropout
from napkin.operations.roles import LM_HEAD, POOLER
from napkin.operations.scored import SEQUENCE, SPAN, TOKEN, ClassLoss
from napkin.record import record, replace

USED, IDLE, NONE = "used", "idle", "none"
"""What a class does with the pooler that its body has: reads it, runs it for nothing, has none."""
USUAL_LABELS = 2
"""What a configuration without `id2label` has (transformers 5.23.0, configuration_utils.py)."""
LATE = "late"
"""Pooling of scores, not of the stream: the head runs over all tokens."""
LABELS = ("num_labels", "id2label", "label2id", "problem_type", "classifier_dropout", "classifier_pooling")
"""Fields that describe a head; of them, the first two say how many outputs it has."""


@record
class Head:
    """What follows the body: hidden layers, if any, and the linear layer that gives the scores.

    scores     what the loss is over: SEQUENCE, TOKEN or SPAN (where an answer begins and ends)
    path       of the last linear layer in the class          bias     it has one, or the field that says so
    early      the linear layers run over one token of each sequence, not over all of them; or the field that says
               LATE, also by leaving it out, if they run over all
    dense      path of a linear layer before, h → h; ""       function  its activation
    dense_bias, norm_bias  whether it has one, and the norm behind it, or the fields that say so
    norm       path of a norm behind it; ""
    inner      the linear layer before is an MLP of the layers' width, with a norm (BigBird)
    outputs    if they are not the labels
    pooler     what becomes of the body's
    from_labels  it has the linear layer before with at least so many labels; with fewer, `path` has one part less
    width      of what it reads, in widths of the stream
    encoder    the class has the encoder of an encoder-decoder alone
    """

    scores: str = SEQUENCE
    path: str = "score"
    bias: Switch = True
    early: Switch = False
    dense: str = ""
    dense_bias: Switch = True
    function: str = "tanh"
    norm: str = ""
    norm_bias: Switch = False
    inner: bool = False
    outputs: int = 0
    pooler: str = NONE
    from_labels: int = 0
    width: int = 1
    encoder: bool = False


def like(other: Head, **differences: object) -> Head:
    """Return the head of a relative."""
    return replace(other, **differences)


SCORE = Head(bias=False)
POOLED = Head(path="classifier", early=True, pooler=USED)
DENSE = Head(path="classifier.out_proj", early=True, dense="classifier.dense")
OF_TOKENS = Head(TOKEN)
LABELED = like(OF_TOKENS, path="classifier")
ANSWER = Head(SPAN, path="qa_outputs")
BEGIN_AND_END = like(ANSWER, outputs=2)
NORMED = Head(
    path="classifier",
    early=True,
    dense="head.dense",
    dense_bias="classifier_bias",
    function="gelu",
    norm="head.norm",
    norm_bias="norm_bias",
)
HEADS: dict[str, Head] = {
    "score": SCORE,
    "classifier": like(SCORE, path="classifier"),
    "pooled": POOLED,
    "pooled early": like(POOLED, pooler=NONE, dense="pooler.dense", function="gelu"),
    "dense": DENSE,
    "dense, idle pooler": like(DENSE, pooler=IDLE),
    "dense of both streams": like(DENSE, width=2),
    "dense behind decoder": like(DENSE, path="classification_head.out_proj", dense="classification_head.dense"),
    "hidden layer": like(DENSE, path="classifier", dense="pre_classifier", function="relu"),
    "hidden layer, late": like(DENSE, path="classifier", dense="dense", function="gelu", early="classifier_pooling"),
    "summary": Head(path="sequence_summary.summary", early=True),
    "summary and projection": Head(path="logits_proj", early=True, dense="sequence_summary.summary"),
    "normed": NORMED,
    "normed tokens": like(NORMED, early=False, bias="classifier_bias", dense_bias=False),
    "normed tokens, biased": like(NORMED, early=False, bias="classifier_bias"),
    "biased score": like(SCORE, path="score.out_proj", bias=True),
    "token scores": OF_TOKENS,
    "token scores, no bias": like(OF_TOKENS, bias=False),
    "labels": LABELED,
    "labels, ten by hidden layer": like(LABELED, path="classifier.out_proj", dense="classifier.dense", from_labels=10),
    "labels, idle pooler": like(LABELED, pooler=IDLE),
    "labels of encoder": like(LABELED, encoder=True),
    "labels, normed": like(NORMED, scores=TOKEN, early=False),
    "labels, projected": like(OF_TOKENS, path="score.out_proj"),
    "answer": ANSWER,
    "answer, idle pooler": like(ANSWER, pooler=IDLE),
    "answer, dense": like(ANSWER, path="qa_outputs.out_proj", dense="qa_outputs.dense"),
    "answer of both streams": like(ANSWER, width=2),
    "begin and end": BEGIN_AND_END,
    "begin and end, idle pooler": like(BEGIN_AND_END, pooler=IDLE),
    "answer by MLP": like(BEGIN_AND_END, path="qa_classifier.qa_outputs", inner=True),
    "answer, normed": like(NORMED, scores=SPAN, early=False),
    "choice": like(POOLED, outputs=1),
    "choice, dense": like(DENSE, outputs=1, path="classifier", dense="sequence_summary.summary"),
    "choice, no pooler": like(POOLED, outputs=1, pooler=NONE, dense="pooler.dense", function="gelu"),
    "choice by summary": Head(path="logits_proj", early=True, dense="sequence_summary.summary", outputs=1),
    "choice, normed": like(NORMED, outputs=1),
    "choice by hidden layer": like(DENSE, path="classifier", dense="pre_classifier", function="relu", outputs=1),
}


def with_class_head(config: Config, text: Config, build: Callable[[Config], Model]) -> Model:
    """Return the body of the class that a file names under `architectures`, with that class's head.

    config, text  the file, and the language model's block in it, which is built. Refused (3): a head that is not known
    """
    name = config.fields["architectures"][0]
    kind = CLASS_HEADS.get(name)
    if kind is None:
        raise config.refuse(
            "architectures",
            f"napkin does not know the head of {printable(name, 60)}",
            "name the class with the language model's head, or remove the field",
        )
    head = HEADS[kind]
    labels = head.outputs or labels_of(config)
    if labels < head.from_labels:
        head = replace(head, dense="", path=head.path.rpartition(".")[0])
    head = replace(
        head,
        early=(text.optional_text(head.early) or LATE) != LATE if isinstance(head.early, str) else head.early,
        **{name: _said(text, getattr(head, name)) for name in ("bias", "dense_bias", "norm_bias")},
    )
    for one in (config, text):
        one.ignore("architectures", *LABELS)
    text.restate("architectures", [BARE[1] if head.encoder else BARE[0]])
    model = with_head(build(text), head, labels)
    config.notes[:] = [note for note in config.notes if not note.endswith("has no head: none is counted")]
    config.notes.append(f"{name}: {labels:,} outputs in place of a language model's head")
    return model


def _said(config: Config, switch: Switch) -> bool:
    """Read a switch of a head: off where the file omits it."""
    return switch if isinstance(switch, bool) else config.flag(switch, otherwise=False)


def labels_of(config: Config) -> int:
    """Return how many labels a class has, as its configuration counts them: those of id2label, else num_labels."""
    names = config.mapping("id2label", required=False)
    stated = config.optional_integer("num_labels")
    if names is None:
        return stated or config.derived("num_labels", USUAL_LABELS)
    if not names:
        raise config.wrong("id2label", "has no labels")
    if stated is not None and stated != len(names):
        raise config.wrong("num_labels", f"is {stated}, and id2label has {len(names)}", "make them agree")
    return len(names)


def with_head(model: Model, head: Head, labels: int) -> Model:
    """Return a body with a head of this many outputs."""
    last = model.stacks[-1]
    body: Operations = tuple(op for op in last.after if op.role != POOLER)
    source = body[-1].name if body else "x"
    pooled = head.pooler == USED
    if head.pooler != NONE and len(body) < len(last.after):
        body = (*body, *pooler(model.hidden, source, used=pooled))
    source = body[-1].name if pooled else source
    after = (*body, *_operations(model, last, head, labels, source, pooled))
    stacks = (*model.stacks[:-1], replace(last, after=after))
    return replace(model, stacks=stacks, tied=False, outputs=labels, extra=())


def _operations(model: Model, last: Stack, head: Head, labels: int, source: str, pooled: bool) -> Operations:
    """Return the operations of a head that reads `source`."""
    narrow = next((layer.d_out for op in reversed(last.after) if (layer := op.linear()) and op.role != POOLER), 0)
    wide, hidden = head.width * (narrow or model.hidden), model.hidden
    found: list[Operation] = []

    def then(op: Operation) -> str:
        found.append(op)
        return op.name

    def linear(name: str, path: str, read: str, sizes: tuple[int, int], bias: bool, role: str = "") -> Operation:
        """Return a linear layer over all tokens, or over one of each sequence: the first of them picks it."""
        if not head.early:
            return Matmul(name, (read,), *sizes, bias, role=role, module=path)
        picks = not pooled and not found
        return PerSequence(name, (read,), *sizes, bias, role=role, module=path, first=picks)

    at = source
    if head.inner:
        inner = next(size for one in last.layers for op in one.operations if (size := _inner(op)))
        at = then(Dropout("head_dropped", (at,), hidden))
        at = then(Matmul("head_up", (at,), hidden, inner, True, module="qa_classifier.intermediate.dense"))
        at = then(Activation("head_activation", (at,), inner, "gelu"))
        at = then(Matmul("head_down", (at,), inner, hidden, True, module="qa_classifier.output.dense"))
        at = then(LAYER("head_norm", at, hidden))
    if head.dense:
        at = then(linear("head_dense", head.dense, at, (wide, hidden), head.dense_bias is True))
        at = then(Activation("head_activation", (at,), hidden, head.function))
        wide = hidden
    if head.norm:
        at = then((LAYER if head.norm_bias else LAYER_NO_BIAS)("head_norm", at, hidden))
    if not head.early and (head.path != SCORE.path or head.bias):
        at = then(Dropout("scores_dropped", (at,), wide))
    at = then(linear("scores", head.path, at, (wide, labels), head.bias is True, LM_HEAD))
    then(ClassLoss("class_loss", (at,), labels, over=head.scores, picks=not head.early))
    return tuple(found)


def _inner(op: Operation) -> int:
    """Return the width of an MLP, of its last linear layer."""
    linear = op.linear()
    return linear.d_in if linear is not None and linear.role == "down" else 0
