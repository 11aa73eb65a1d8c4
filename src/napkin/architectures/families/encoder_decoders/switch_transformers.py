"""Switch Transformers (arXiv:2101.03961): T5 with experts in some layers, one of which serves a token.

Field names and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/switch_transformers/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.blocks import Routing
from napkin.architectures.encoder_decoder import (
    routed_mlp,
)
from napkin.architectures.families.encoder_decoders.t5 import IMPLEMENTATION, network, read_sizes, ungated
from napkin.architectures.reading import FUNCTIONS, depth, width
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.implementations import EAGER, MASKS, PADDING
from napkin.operations.model import Model
from napkin.record import replace


def switch_transformers(config: Config) -> Model:
    """Return Switch Transformers (arXiv:2101.03961): T5 with experts in some layers, one of which serves a token. In
    each sequence an expert serves `expert_capacity` tokens at most; what it drops is known only in the step."""
    hidden, inner = width(config), config.integer("d_ff")
    function = config.text("dense_act_fn", known=FUNCTIONS)
    config.must_be("feed_forward_proj", function)
    config.must_be("is_gated_act", False)
    config.must_be("router_dtype", "float32")
    config.must_be("num_selected_experts", 1)
    config.must_be("batch_prioritized_routing", False)
    config.ignore("add_router_probs", "router_type")
    routing = Routing(config.integer("num_experts"), 1, config.flag("router_bias"), upcast=True)

    def step(which: str, layers: int) -> int:
        """Return n: each n-th layer has experts; with 0, or with one sparse layer wanted of none, the first of them."""
        stated = config.optional_integer(f"{which}_sparse_step", least=0)
        wanted = config.integer(f"num_sparse_{which}_layers", least=0)
        return stated if stated is not None else layers // wanted if wanted else layers

    layers = depth(config)
    steps = step("encoder", layers), step("decoder", config.optional_integer("num_decoder_layers") or layers)
    experts = partial(
        routed_mlp,
        width=hidden,
        inner=inner,
        function=function,
        routing=routing,
        capacity=config.integer("expert_capacity"),
        noise=bool(config.real("router_jitter_noise", required=False)),
        bias=False,
    )
    feed = ungated(hidden, inner, function)

    def sparse(place: int, causal: bool) -> bool:
        every = steps[causal]
        return every > 0 and (place % every == 1 or every == 1)

    sizes = read_sizes(config)
    if sizes.decoder_layers and sizes.has_head and not sizes.tied:
        config.notes.append(
            "untied embeddings: each stack and the head has its own, and the class also holds a shared one that "
            "nothing uses; published checkpoints hold fewer"
        )
    return network(sizes, feed, experts, sparse, apart=True)


SWITCH_TRANSFORMERS = Architecture(
    "switch_transformers",
    switch_transformers,
    config_class="SwitchTransformersConfig",
    aliases={"d_model": "hidden_size", "num_heads": "num_attention_heads", "num_layers": "num_hidden_layers"},
    defaults={
        "d_ff": 2048, "d_kv": 64, "dense_act_fn": "relu", "expert_capacity": 64, "num_attention_heads": 12,
        "num_decoder_layers": 12, "num_experts": 8, "num_sparse_decoder_layers": 3, "num_sparse_encoder_layers": 3,
        "relative_attention_max_distance": 128, "relative_attention_num_buckets": 32, "router_bias": False,
        "tie_word_embeddings": True, "vocab_size": 32128,
    },
    implementation=replace(
        IMPLEMENTATION, passes=(MASKS, PADDING), fp16_excepts=(), router="tokens", fp32_router=True, linear_router=True,
        looped="modules", expert_linears=("wi", "wo"), kernels=(EAGER,),
    ),
    modules={
        "root_embedding": "shared", "encoder/embedding": "encoder.embed_tokens",
        "decoder/embedding": "decoder.embed_tokens", "q": "layer.0.SelfAttention.q", "k": "layer.0.SelfAttention.k",
        "v": "layer.0.SelfAttention.v", "o": "layer.0.SelfAttention.o", "encoder/down": "layer.1.mlp.wo",
        "encoder/router": "layer.1.mlp.router.classifier", "encoder/experts": "layer.1.mlp.experts",
        "cross_q": "layer.1.EncDecAttention.q", "cross_k": "layer.1.EncDecAttention.k",
        "cross_v": "layer.1.EncDecAttention.v", "cross_o": "layer.1.EncDecAttention.o",
        "decoder/router": "layer.2.mlp.router.classifier", "decoder/experts": "layer.2.mlp.experts",
        "decoder/down": "layer.2.mlp.wo", "encoder/wi": "layer.1.mlp.wi", "decoder/wi": "layer.2.mlp.wi",
        "distances": "layer.0.SelfAttention.relative_attention_bias",
    },
)  # fmt: skip

ARCHITECTURES = (SWITCH_TRANSFORMERS,)
