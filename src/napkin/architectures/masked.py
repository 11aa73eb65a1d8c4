"""Parts of encoders: the head of masked language modeling, the original pre-training heads, or none."""

from __future__ import annotations

from napkin.architectures.attention_parts import Scores
from napkin.architectures.blocks import LAYER, Operations
from napkin.architectures.reading import activation, class_names, depth, head_size, tied, width
from napkin.inputs.load import printable
from napkin.inputs.model import Config
from napkin.operations.implementations import IDS, INNER, MASKS, OWN_LABELS, ROTARY, SUMMED
from napkin.operations.learned import Parameters
from napkin.operations.linear import Matmul, PerSequence
from napkin.operations.model import Model, Parts, stack_of
from napkin.operations.pointwise import Activation
from napkin.operations.roles import LM_HEAD, POOLER, REPLICATED, VOCABULARY
from napkin.record import record, replace

BARE, MASKED, PRETRAINING = "bare", "masked", "pretraining"
NEXT_TOKEN = ("ForCausalLM", "LMHeadModel")
"""Ends of the names of an encoder's classes that predict the next token: with the head that predicts masked ones."""
EITHER_TOKEN = ("ForMaskedLM", *NEXT_TOKEN)
BIDIRECTIONAL = Scores(causal=False)
"""Every token sees every other."""
ENCODER = replace(
    OWN_LABELS,
    causal_loss=True,
    passes=(MASKS,),
    positions="buffer",
    buffers=(ROTARY, IDS, IDS),
    closure=("tables", "masks"),
    variables=(SUMMED, INNER),
    registers_first=("word_embeddings", "position_embeddings"),
)
"""Position and segment ids are buffers, one row for all sequences; a decoder's layers get their mask as an argument.
Segments are looked up before positions, and their table is registered after that of positions."""


def purpose_of(config: Config, full: str | tuple[str, ...] = "ForMaskedLM", *, pretraining: bool = False) -> str:
    """Return which head the class named under `architectures` has: MASKED (also if none is named), PRETRAINING or
    BARE. Another head is refused.

    full         the end of the name of the class with the language model's head
    pretraining  the model_type has a class with the original pre-training heads
    """
    names = class_names(config)
    if not names or any(name.endswith(full) for name in names):
        return MASKED
    if any(name.endswith("ForPreTraining") for name in names):
        if not pretraining:
            raise config.refuse("architectures", "the class has no pre-training heads")
        return PRETRAINING
    if any(name.endswith(("Model", "Encoder")) for name in names):
        config.notes.append("the class has no head: none is counted")
        config.ignore("tie_word_embeddings")
        return BARE
    raise config.refuse(
        "architectures",
        f"{printable(names[0], 60)} has another head than a masked language model's",
        "name the class with the language model's head, or remove the field",
    )


def masked_head(
    hidden: int, vocabulary: int, function: str, *, table_width: int | None = None, source: str = "x"
) -> Operations:
    """Return the head logits = E·norm(f(W·x)) + bias, where E is the token embedding and W projects to its width."""
    table = table_width or hidden
    return (
        Matmul("head_dense", (source,), hidden, table, True),
        Activation("head_activation", ("head_dense",), table, function),
        LAYER("head_norm", "head_activation", table),
        Matmul("lm_head", ("head_norm",), table, vocabulary, True, VOCABULARY, role=LM_HEAD),
    )


def pooler(hidden: int, source: str, *, used: bool = True) -> Operations:
    """Return the layer that reads a sequence's first token. `used`: the loss depends on it."""
    return (
        PerSequence("pooler", (source,), hidden, hidden, True, first=True, used=used, role=POOLER),
        Activation("pooler_activation", ("pooler",), hidden, "tanh", role=POOLER),
    )


def heads_apart(model: Model, config: Config, *, biases: int = 2) -> Model:
    """Return the model with an untied head if tie_word_embeddings is false.

    biases  of the head in the class. Most classes hold two, which tying the weight makes one: untied, one is unused"""
    if not model.tied or tied(config):
        return model
    (stack,) = model.stacks
    rows = (("bias", (model.vocabulary,)),)
    idle: Operations = (Parameters("unused_bias", (), rows, REPLICATED, trained=False),) if biases == 2 else ()
    if idle:
        config.notes.append(
            "untied embeddings: the head's second bias, which the class holds and does not use, is counted "
            "(transformers 4 has one bias)"
        )
    return replace(model, tied=False, stacks=(replace(stack, after=(*idle, *stack.after)),))


@record
class MaskedSizes:
    """What config.json says of an encoder as a whole, read once.

    kv_heads  key/value heads of attention, 0 if they are as many as query heads
    inner     width of the MLP            function    its activation
    purpose   which head the class has    max_length  tokens that the model was trained for, if the file says so
    next_token  the class named under `architectures` predicts the next token in place of masked ones
    """

    name: str
    hidden: int
    layers: int
    heads: int
    head_dim: int
    inner: int
    function: str
    vocabulary: int
    purpose: str
    max_length: int | None
    kv_heads: int = 0
    next_token: bool = False


def sizes_of(
    config: Config,
    *,
    inner: str = "intermediate_size",
    function: str = "hidden_act",
    own_head_dim: bool = False,
    named: str | tuple[str, ...] = "ForMaskedLM",
    pretraining: bool = False,
) -> MaskedSizes:
    """Read an encoder's sizes.

    inner, function  the fields that say them; no function: the class has one of its own
    own_head_dim     the class reads `head_dim`
    named, pretraining  as in `purpose_of`
    """
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads")
    if own_head_dim:
        head_dim = head_size(config, hidden, heads)
    else:
        head_dim = config.divides("num_attention_heads", hidden, heads, "(hidden_size)")
    return MaskedSizes(
        config.name,
        hidden,
        layers,
        heads,
        head_dim,
        config.integer(inner),
        activation(config, function) if function else "",
        config.integer("vocab_size"),
        purpose_of(config, named, pretraining=pretraining),
        config.optional_integer("max_position_embeddings"),
        next_token=named == EITHER_TOKEN and any(name.endswith(NEXT_TOKEN) for name in class_names(config)),
    )


def encoder(
    sizes: MaskedSizes,
    before: Operations,
    runs: Parts,
    after: Operations,
    *,
    tie: bool,
    shared: Operations = (),
    stack: str = "encoder",
) -> Model:
    """Return a model of one stack."""
    return Model(
        name=sizes.name,
        stacks=(stack_of(stack, before, runs, after),),
        tied=tie,
        hidden=sizes.hidden,
        heads=sizes.heads,
        kv_heads=sizes.kv_heads or sizes.heads,
        head_dim=sizes.head_dim,
        vocabulary=sizes.vocabulary,
        max_length=sizes.max_length,
        shared=shared,
        next_token=sizes.next_token,
    )


def bert_modules(
    model: str, *, head_dense: str = "cls.predictions.transform.dense", lm_head: str = "cls.predictions.decoder"
) -> dict[str, str]:
    """Return where BERT's modules are in the class of a relative, whose encoder is `model`."""
    return {
        "q": "attention.self.query",
        "k": "attention.self.key",
        "v": "attention.self.value",
        "o": "attention.output.dense",
        "cross_q": "crossattention.self.query",
        "cross_k": "crossattention.self.key",
        "cross_v": "crossattention.self.value",
        "cross_o": "crossattention.output.dense",
        "up": "intermediate.dense",
        "down": "output.dense",
        "embedding": f"{model}.embeddings.word_embeddings",
        "position_embedding": f"{model}.embeddings.position_embeddings",
        "segment_embedding": f"{model}.embeddings.token_type_embeddings",
        "head_dense": head_dense,
        "next_sentence": "cls.seq_relationship",
        "pooler": f"{model}.pooler.dense",
        "lm_head": lm_head,
    }
