"""XLNet (arXiv:1906.08237): norms after the blocks, and scores by distance with keys of their own.

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0 (src/transformers/models/xlnet/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import post_norm
from napkin.architectures.assembly import embedding
from napkin.architectures.blocks import LAYER, Operations, plain_mlp
from napkin.architectures.dimensions import decoder_only, dimensions
from napkin.architectures.reading import LOADED_IN_BOTH, activation
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.attention.shifted import DistanceKeys, Einsum, ShiftedAttention
from napkin.operations.implementations import EAGER, HF, SUMMED
from napkin.operations.learned import Parameters
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Dropout
from napkin.operations.roles import COLUMN, KEY, LM_HEAD, QUERY, REPLICATED, ROW, VALUE, VOCABULARY
from napkin.record import replace


def _attention(source: str, *, width: int, heads: int, causal: bool) -> Operations:
    """Return attention with one linear layer without bias for each of queries, keys, values and the result."""
    return (
        *(
            Einsum(name, (source,), width, width, False, COLUMN, role=role)
            for name, role in (("q", QUERY), ("k", KEY), ("v", VALUE))
        ),
        DistanceKeys("r", (), width, width, causal),
        ShiftedAttention("attention", ("q", "k", "v", "r"), heads, width // heads, causal),
        Einsum("o", ("attention",), width, width, False, ROW, folded=True),
    )


def _xlnet(config: Config) -> Model:
    """Return XLNet as its language model runs without target_mapping: one stream of all tokens."""
    sizes = dimensions(config, kv_heads="", own_head_dim=False)
    hidden, rows = sizes.hidden, sizes.vocabulary
    config.must_be("d_head", sizes.head_dim)
    causal = config.text("attn_type", known=("bi", "uni")) == "uni"
    config.must_be("mem_len", None, 0) if config.flag("use_mems_train", otherwise=False) else config.ignore("mem_len")
    config.ignore("use_mems_eval", "use_mems", "reuse_len", "clamp_len", "same_length", "start_n_top", "end_n_top")
    config.must_be("bi_data", False)
    feed = partial(
        plain_mlp, width=hidden, inner=config.integer("d_inner"), function=activation(config, "ff_activation"),
        dropout=True,
    )  # fmt: skip
    attend = partial(_attention, width=hidden, heads=sizes.heads, causal=causal)
    layer = Layer("decoder", post_norm(hidden, LAYER, attend, feed, dropout=(True, True)))
    mask = Parameters("mask_embedding", (), (("weight", (hidden,)),), REPLICATED, trained=False)
    head = Matmul("lm_head", ("final_dropped",), hidden, rows, True, VOCABULARY, role=LM_HEAD)
    config.notes.append(
        "one stream of tokens is counted; training on permutations also runs a second one, of the predicted tokens"
    )
    config.notes.append(LOADED_IN_BOTH)
    return decoder_only(
        sizes,
        (mask, *embedding(rows, hidden, dropout=True)),
        ((sizes.layers, layer),),
        (Dropout("final_dropped", ("x",), hidden), *(() if sizes.headless else (head,))),
    )


XLNET = Architecture(
    "xlnet",
    _xlnet,
    config_class="XLNetConfig",
    aliases={
        "d_model": "hidden_size", "n_head": "num_attention_heads", "n_layer": "num_hidden_layers",
        "n_token": "vocab_size",
    },
    defaults={
        "attn_type": "bi", "d_inner": 4096, "ff_activation": "gelu", "num_attention_heads": 16,
        "tie_word_embeddings": True, "vocab_size": 32000,
    },
    implementation=replace(
        HF, kernels=(EAGER,), fp32_loss=False, shifted=False, buffers=(), closure=(), checkpoints=False,
        token_ids="transposed", variables=(SUMMED,),
    ),
    modules={
        "embedding": "transformer.word_embedding", "q": "rel_attn.q", "k": "rel_attn.k", "v": "rel_attn.v",
        "r": "rel_attn.r", "o": "rel_attn.o", "up": "ff.layer_1", "down": "ff.layer_2", "lm_head": "lm_loss",
    },
)  # fmt: skip

ARCHITECTURES = (XLNET,)
