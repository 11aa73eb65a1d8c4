"""Parts of encoder-decoders: an encoder's stack, and a decoder's that also attends to the encoder's output.

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from collections.abc import Callable

from napkin.architectures.arrangements import post_norm, pre_norm
from napkin.architectures.blocks import Block, NormStyle, Operations, Routing, moe
from napkin.architectures.idle import idle
from napkin.architectures.reading import class_names
from napkin.inputs.load import printable
from napkin.inputs.model import Config
from napkin.operations.idle import Idle
from napkin.operations.pointwise import Add
from napkin.operations.roles import TOKEN
from napkin.operations.views import reuse
from napkin.record import replace


def parts_of(config: Config) -> tuple[bool, bool]:
    """Read (has a decoder, has a head) of the class named under `architectures`; both if none is named."""
    names = class_names(config)
    if not names or any(name.endswith(("ForConditionalGeneration", "WithLMHeadModel", "MTModel")) for name in names):
        return True, True
    if any(name.endswith("EncoderModel") for name in names):
        config.notes.append("the class is only the encoder")
        return False, False
    if any(name.endswith("Model") for name in names):
        config.notes.append("the class has no head: none is counted")
        return True, False
    raise config.refuse(
        "architectures",
        f"{printable(names[0], 60)} has another head than a language model's",
        "name the class with the language model's head, or remove the field",
    )


def runs_alone(config: Config) -> bool:
    """Read whether the class has the decoder only, with its head: `architectures` names it, or no class and the fields
    say so."""
    names = class_names(config)
    said = not names and config.fields.get("is_decoder") is True and config.fields.get("is_encoder_decoder") is False
    if not said and not any(name.endswith("ForCausalLM") for name in names):
        return False
    config.ignore("is_encoder_decoder", "is_decoder", "add_cross_attention")
    config.notes.append("the class runs only the decoder: its cross-attention is counted, but not used")
    return True


def must_be_both(config: Config) -> None:
    """Refuse fields that contradict an encoder with a decoder."""
    config.must_be("is_encoder_decoder", True)
    config.must_be("is_decoder", False)
    config.must_be("add_cross_attention", False)


def _cross(hidden: int, norm: NormStyle, across: Block, *, before: bool) -> Operations:
    """Return the decoder's middle block: y = x + cross(norm(x)), or y = norm(x + cross(x))."""
    if before:
        operations = across("cross_norm")
        return (
            norm("cross_norm", "attention_residual", hidden),
            *operations,
            Add("cross_residual", ("attention_residual", operations[-1].name), hidden, True),
        )
    operations = across("attention_norm")
    return (
        *operations,
        Add("cross_residual", ("attention_norm", operations[-1].name), hidden, True),
        norm("cross_norm", "cross_residual", hidden),
    )


def decoder_layer(
    hidden: int, norm: NormStyle, attend: Block, across: Block, feed: Block, *, before: bool
) -> Operations:
    """Return self-attention, cross-attention and MLP, each with its residual and its norm before or after."""
    both = (pre_norm if before else post_norm)(hidden, norm, attend, feed, dropout=(True, True))
    seam = next(i for i, op in enumerate(both) if op.name == ("attention_residual" if before else "attention_norm"))
    first, rest = both[: seam + 1], both[seam + 1 :]
    follows = "cross_residual" if before else "cross_norm"
    return (*first, *_cross(hidden, norm, across, before=before), *_from(rest, first[-1].name, follows))


def decoder_alone(
    hidden: int, norm: NormStyle, attend: Block, across: Block, feed: Block, *, before: bool
) -> Operations:
    """Return a decoder's layer in a class without an encoder: it holds cross-attention and its norm, and runs
    neither."""
    held = (*across("x"), norm("cross_norm", "x", hidden))
    operations = (pre_norm if before else post_norm)(hidden, norm, attend, feed, dropout=(True, True))
    return (idle("unused_cross_attention", held), *operations)


def _from(operations: Operations, old: str, new: str) -> Operations:
    """Return the operations reading `new` if they read `old`."""
    return tuple(replace(op, reads=tuple(new if read == old else read for read in op.reads)) for op in operations)


def shared_embedding(operations: Operations) -> Operations:
    """Return the encoder's embeddings for the decoder, which shares the token embedding."""
    return tuple(reuse(op) if op.name == "embedding" else op for op in operations)


def root_table(operations: Operations, *, tied: bool) -> Idle:
    """Return the token embedding of the class that holds both stacks, which neither stack looks up: its weight is
    theirs, or where nothing is tied its own."""
    table = next(op for op in operations if op.embeds() == TOKEN)
    held = replace(reuse(table) if tied else table, name="root_embedding", module="root_embedding")
    return idle("unused_embedding", (held,))


Sparse = Callable[[int, bool], bool]
"""Whether a layer has experts, by its place and whether it is the decoder's."""


def routed_mlp(
    source: str, *, width: int, inner: int, function: str, routing: Routing, capacity: int, noise: bool, bias: bool
) -> Operations:
    """Return experts that each are an MLP with dropout."""
    router, experts = moe(source, width=width, inner=inner, routing=routing, function=function, gated=False, bias=bias)
    return (replace(router, noise=noise), replace(experts, dropout=True, capacity=capacity))
