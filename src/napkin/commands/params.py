"""`napkin params MODEL`: parameters, exactly: total, active, embeddings, layers, down to each weight's shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.commands.next_command import under
from napkin.commands.question.model import read_model, read_mtp
from napkin.counting.params import params
from napkin.counting.vision import params_of
from napkin.operations.model import Model
from napkin.operations.roles import LM_HEAD
from napkin.options.model import MODEL_OPTIONS, PADDED, PREDICTING
from napkin.options.training import FROZEN, OF_FROZEN
from napkin.record import record
from napkin.render.answer import Answer
from napkin.render.figures import compact, share
from napkin.render.screen import Screen, Table, shares
from napkin.term import Term, add, divide
from napkin.units import human


@record
class Trained:
    """The trained part of a model: its parameters, it in words, and whether it is added to the model (adapters)."""

    count: Term
    words: Sequence[str]
    added: bool


def run(inputs: Inputs) -> Answer:
    """Answer for a model."""
    model = read_model(inputs)
    return answer(model, read_mtp(inputs, model), _read_trained(inputs, model))


def _read_trained(inputs: Inputs, model: Model) -> Trained | None:
    """Return the part that is trained; None for the entire model."""
    if not any(name in inputs for name in FROZEN):
        return None
    from napkin.commands.question.trained_setup import read_trained_setup
    from napkin.commands.screens.setup import trained_part
    from napkin.footprint.checkpointed import trained_params

    setup = read_trained_setup(inputs, model)
    inputs.depends(OF_FROZEN, False, "it changes no count of parameters")
    return Trained(trained_params(model, setup), trained_part(setup), setup.implementation.tuning is not None)


def answer(model: Model, mtp: bool, trained: Trained | None = None) -> Answer:
    """Answer with a model's parameters; mtp: with its multi-token prediction modules; trained: the part that is."""
    counted = params(model, mtp=mtp)
    tower = {term.name: term for term in params_of(model)}
    answer = Answer("params", (*counted.values(), *tower.values()))
    if trained is not None:
        answer.terms = (*answer.terms, *_trained_terms(trained, {**counted, **tower}))
    if "params/idle_experts" in counted:
        answer.notes.append("active: everything but the routed experts that a token does not choose")
    if model.tied:
        answer.notes.append("tied embeddings: the head is the token embedding, which is counted once")
    answer.screen = _screen(model, answer.by_path(), trained)
    return answer


def _trained_terms(trained: Trained, counted: Mapping[str, Term]) -> tuple[Term, ...]:
    """Return the trained parameters, all with the adapters, and their share of these."""
    base = _whole(counted)
    every = add("params/with_adapters", base, trained.count) if trained.added else base
    more = (every,) if trained.added else ()
    return trained.count, *more, divide("params/trained_share", trained.count, every)


def _screen(model: Model, counted: Mapping[str, Term], trained: Trained | None) -> Screen:
    """Return the screen: total and active parameters, and their breakdown."""
    total, active = counted["params/total"].value, counted["params/active"].value
    headline = [f"{total:,} parameters"]
    if trained is not None:
        every = counted.get("params/with_adapters", _whole(counted))
        part = counted["params/trained_share"].value
        headline = [f"{trained.count.value:,} trained", f"{part:.4%} of {every.value:,} parameters"]
        follows = under("memory", {"hardware": "h100"})
        asked = (f"Parameters of {model.name}", *trained.words)
        return Screen(asked, headline, table=_parts(model, counted), next=follows)
    if active != total:
        headline.append(f"{active:,} active per token ({share(active / total)})")
    whole = _whole(counted)
    if whole.name != "params/total":
        senses = [word for word in ("vision", "audio") if f"params/{word}" in counted]
        headline.append(f"{whole.value:,} with {' and '.join(senses)}")
    elif active == total:
        headline.append(human(total, "param").replace(" parameters", ""))
    memory = under("memory", {"hardware": "h100", "gpus": "8", "zero": "3"})
    return Screen((f"Parameters of {model.name}",), headline, table=_parts(model, counted), next=memory)


def _whole(counted: Mapping[str, Term]) -> Term:
    """Return the parameters with those of a vision tower and an audio encoder, if there are any."""
    totals = (counted.get(f"params/total_with_{word}") for word in ("audio", "vision"))
    return next((term for term in totals if term is not None), counted["params/total"])


PARTS = (
    ("params/embedding", "token embedding"),
    ("params/outside_layers", "outside the layers"),
    ("params/lm_head", "LM head"),
    ("params/vision", "vision tower"),
    ("params/audio", "audio encoder"),
)
"""Parts of a model outside its layers."""
OF_EXPERTS = (
    ("params/experts", "  routed experts"),
    ("params/shared_experts", "  shared experts"),
    ("params/router", "  routers"),
)
"""What the layers of a mixture of experts contain, in addition to attention and norms."""
MOST_KINDS = 6
"""Number of layer types that are listed one by one."""


def _parts(model: Model, counted: Mapping[str, Term]) -> Table:
    """Return the table of parameters by part, with shares of the total."""
    total = counted["params/total"].value
    kinds = [term for path, term in counted.items() if path.startswith("params/layers/") and term.value]
    rows = [("layers", counted["params/layers"], "")]
    if len(kinds) == 1:
        rows = [("layers", kinds[0], _times(kinds[0]))]
    elif len(kinds) <= MOST_KINDS:
        rows += [(f"  {_kind(term)}", term, _times(term)) for term in kinds]
    rows += [(label, counted[path], "included in the layers") for path, label in OF_EXPERTS if path in counted]
    remarks = {
        "params/embedding": "shared with the LM head" if model.tied else "",
        "params/outside_layers": "; ".join(_outside(model, counted)),
        "params/vision": "in addition",
        "params/audio": "in addition",
    }
    rows += [(label, counted[path], remarks.get(path, "")) for path, label in PARTS if path in counted]
    return shares(
        [(label, compact(term.value, "param"), term.value / total, said) for label, term, said in rows if term.value]
    )


def _kind(term: Term) -> str:
    """Return the name of a layer type; the stack's first only if the type does not repeat it (`encoder/encoder`)."""
    stack, _, kind = term.name.removeprefix("params/layers/").rpartition("/")
    return (kind if kind.startswith(stack) else f"{stack}/{kind}").replace("_", " ")


def _outside(model: Model, counted: Mapping[str, Term]) -> list[str]:
    """Return what has parameters outside the layers, in words, the largest first."""
    weighted = [op for stack in model.stacks for op in stack.after if op.weights()]
    biased = any(op.role == LM_HEAD and any(one.name != "weight" for one in op.weights()) for op in weighted)
    return [
        *(["positions"] if "params/position_embedding" in counted else []),
        *(["head bias"] if biased else []),
        *(["final norm"] if any(op.role != LM_HEAD for op in weighted) else []),
    ]


def _times(term: Term) -> str:
    """Return the number of equal layers and the parameters of each."""
    count, one = term.parts
    return f"{count.value:,} × {human(one.value, 'param').replace(' parameters', '')}"


COMMAND = Command(
    "params",
    "Exact parameter counts of a model: total, active, embeddings, layers, and each weight's shape",
    run,
    brief="Exact parameter counts of a model",
    options=(*MODEL_OPTIONS, *PADDED, "tp", *PREDICTING, *FROZEN),
    arguments=("model",),
    examples=(
        "params llama3-8b",
        "params llama3-8b --lora-rank 16",
        "params deepseek-v3 --mtp",
        "params configs/models/gpt2.yaml --explain",
    ),
)
