"""EuroBERT (arXiv:2503.05500).

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/eurobert/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.attention import Attention, Heads, QkvProjections, Rope, Scores
from napkin.architectures.blocks import RMS, gated_mlp
from napkin.architectures.common import (
    activation,
    depth,
    embedding,
    head_size,
    kv_heads_of,
    on,
    tied,
    width,
)
from napkin.architectures.masked import (
    MASKED,
    encoder,
    purpose_of,
)
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.base import LM_HEAD, VOCABULARY
from napkin.operations.implementations import HF
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.record import replace


def eurobert(config: Config) -> Model:
    """EuroBERT (arXiv:2503.05500): Llama's layers without the causal mask, the head a single matrix."""
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads")
    head_dim = head_size(config, hidden, heads)
    bias, mlp_bias = on(config, "attention_bias"), on(config, "mlp_bias")
    vocabulary = config.integer("vocab_size")
    purpose = purpose_of(config)
    config.ignore("clf_pooling")
    attend = Attention(
        Heads(hidden, heads, kv_heads_of(config, heads), head_dim),
        projections=QkvProjections(bias=bias, out_bias=bias),
        scores=Scores(causal=False),
        rope=Rope(head_dim),
    )
    feed = partial(
        gated_mlp,
        width=hidden,
        inner=config.integer("intermediate_size"),
        function=activation(config, "hidden_act"),
        bias=mlp_bias,
    )
    final = RMS("final_norm", "x", hidden)
    head = Matmul("lm_head", ("final_norm",), hidden, vocabulary, mlp_bias, VOCABULARY, role=LM_HEAD)
    tie = tied(config) and purpose == MASKED
    model = encoder(
        config,
        embedding(vocabulary, hidden),
        ((layers, Layer("encoder", pre_norm(hidden, RMS, attend, feed))),),
        (final, head) if purpose == MASKED else (final,),
        hidden=hidden,
        heads=heads,
        vocabulary=vocabulary,
        tie=tie,
    )
    return replace(model, kv_heads=kv_heads_of(config, heads), head_dim=head_dim)


EUROBERT = Architecture(
    "eurobert",
    eurobert,
    config_class="EuroBertConfig",
    defaults={
        "attention_bias": False, "head_dim": None, "hidden_act": "silu", "intermediate_size": 3072,
        "max_position_embeddings": 8192, "mlp_bias": False, "num_attention_heads": 12, "num_key_value_heads": None,
        "tie_word_embeddings": False, "vocab_size": 128256,
    },
    implementation=replace(HF, shifted=False, closure=("tables", "ids")),
)  # fmt: skip

ARCHITECTURES = (EUROBERT,)
