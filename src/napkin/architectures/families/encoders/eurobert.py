"""EuroBERT (arXiv:2503.05500).

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/eurobert/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.assembly import embedding
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Heads, QkvProjections, Rope
from napkin.architectures.blocks import RMS, gated_mlp
from napkin.architectures.masked import BIDIRECTIONAL, MASKED, encoder, sizes_of
from napkin.architectures.reading import kv_heads_of, on, tied
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.implementations import HF
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.roles import LM_HEAD, VOCABULARY
from napkin.record import replace


def eurobert(config: Config) -> Model:
    """Return EuroBERT (arXiv:2503.05500): Llama's layers without the causal mask, the head a single matrix."""
    sizes = sizes_of(config, own_head_dim=True)
    sizes = replace(sizes, kv_heads=kv_heads_of(config, sizes.heads))
    bias, mlp_bias = on(config, "attention_bias"), on(config, "mlp_bias")
    config.ignore("clf_pooling")
    tie = tied(config) and sizes.purpose == MASKED

    hidden = sizes.hidden
    attend = Attention(
        Heads(hidden, sizes.heads, sizes.kv_heads, sizes.head_dim),
        projections=QkvProjections(bias=bias, out_bias=bias),
        scores=BIDIRECTIONAL,
        rope=Rope(sizes.head_dim),
    )
    feed = partial(gated_mlp, width=hidden, inner=sizes.inner, function=sizes.function, bias=mlp_bias)
    final = RMS("final_norm", "x", hidden)
    head = Matmul("lm_head", ("final_norm",), hidden, sizes.vocabulary, mlp_bias, VOCABULARY, role=LM_HEAD)
    return encoder(
        sizes,
        embedding(sizes.vocabulary, hidden),
        ((sizes.layers, Layer("encoder", pre_norm(hidden, RMS, attend, feed))),),
        (final, head) if sizes.purpose == MASKED else (final,),
        tie=tie,
    )


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
