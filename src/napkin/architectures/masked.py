"""What stands on an encoder: the head of masked language modelling, the original pre-training heads, or none."""

from __future__ import annotations

from napkin.architectures.blocks import LAYER, Operations
from napkin.architectures.common import tied
from napkin.inputs.load import printable
from napkin.inputs.model import Config
from napkin.operations.base import LM_HEAD, VOCABULARY
from napkin.operations.linear import Matmul
from napkin.operations.model import Model, Parts, stack_of
from napkin.operations.pointwise import Activation

BARE, MASKED, PRETRAINING = "bare", "masked", "pretraining"


# --- what stands on the encoder --------------------------------------------------------------------------------------


def purpose_of(config: Config, full: str = "ForMaskedLM") -> str:
    """Which head the class named under `architectures` has: the masked language model's, also where none is named; the
    original pre-training heads; or none. Another head is refused."""
    names = [name for name in config.items("architectures", required=False) or [] if isinstance(name, str)]
    if not names or any(name.endswith(full) for name in names):
        return MASKED
    if any(name.endswith("ForPreTraining") for name in names):
        return PRETRAINING
    if any(name.endswith(("Model", "Encoder")) for name in names):
        config.notes.append("the class has no head: none is counted")
        return BARE
    raise config.refuse(
        "architectures",
        f"{printable(names[0], 60)} has another head than a masked language model's",
        "name the class with the language model's head, or remove the field",
    )


def masked_head(
    hidden: int, vocabulary: int, function: str, *, table_width: int | None = None, source: str = "x"
) -> Operations:
    """logits = table·norm(f(W·x)) + bias: the token table, tied, after one more layer into its width."""
    table = table_width or hidden
    return (
        Matmul("head_dense", (source,), hidden, table, True),
        Activation("head_activation", ("head_dense",), table, function),
        LAYER("head_norm", "head_activation", table),
        Matmul("lm_head", ("head_norm",), table, vocabulary, True, VOCABULARY, role=LM_HEAD),
    )


def must_tie(config: Config) -> None:
    """Releases of the classes differ in the untied head's biases: one or two."""
    if not tied(config):
        raise config.refuse("tie_word_embeddings", "releases of the class disagree on an untied head's biases")


def encoder(
    config: Config,
    before: Operations,
    runs: Parts,
    after: Operations,
    *,
    hidden: int,
    heads: int,
    vocabulary: int,
    tie: bool,
    shared: Operations = (),
    stack: str = "encoder",
) -> Model:
    return Model(
        name=config.name,
        stacks=(stack_of(stack, before, runs, after),),
        tied=tie,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        vocabulary=vocabulary,
        max_length=config.optional_integer("max_position_embeddings"),
        shared=shared,
    )


def head_count(config: Config, hidden: int) -> int:
    heads = config.integer("num_attention_heads")
    config.divides("num_attention_heads", hidden, heads, "(hidden_size)")
    return heads
