"""BART and its relatives, and NLLB-200's mixture of experts.

Fields and defaults are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.blocks import Routing
from napkin.architectures.encoder_decoder import (
    routed_mlp,
)
from napkin.architectures.families.encoder_decoders.bart_network import Bart
from napkin.architectures.reading import activation, width
from napkin.architectures.record import REQUIRED, Architecture, Wrapper, like
from napkin.inputs.model import Config
from napkin.operations.implementations import EAGER, MASKS, OWN_LABELS
from napkin.operations.model import Model
from napkin.record import replace


def _nllb_moe(config: Config) -> Model:
    """Return NLLB-200's largest model (arXiv:2207.04672): M2M-100 with experts in some layers, two of which serve a
    token."""
    config.must_be("router_dtype", "float32")
    config.must_be("output_router_logits", False)
    config.ignore("router_type", "second_expert_policy", "batch_prioritized_routing")
    config.ignore("normalize_router_prob_before_dropping", "moe_eval_capacity_token_fraction")  # who runs, not how many
    routing = Routing(config.integer("num_experts"), 2, config.flag("router_bias"), normalize=True, upcast=True)
    experts = partial(
        routed_mlp,
        width=width(config),
        function=activation(config, "activation_function"),
        routing=routing,
        capacity=config.integer("expert_capacity"),
        noise=False,
        bias=True,
    )
    steps = config.integer("encoder_sparse_step", least=0), config.integer("decoder_sparse_step", least=0)

    def sparse(place: int, decoder: bool) -> bool:
        return steps[decoder] > 0 and (place + 1) % steps[decoder] == 0

    config.notes.append(
        "two experts a token are counted, as the model was trained; the class of transformers 5.23.0 takes its marks "
        "of the chosen for their numbers, and runs its first two experts on every pair of a token and an expert"
    )
    dense = Bart(before=True, computed=True)
    return dense.network(dense.sizes(config), lambda inner: partial(experts, inner=inner), sparse)


_BART = replace(OWN_LABELS, passes=(MASKS,), buffers=(("logits", ""),), closure=("masks",))
# arXiv:1910.13461
BART = Architecture(
    "bart",
    Bart(offset=2, embedding_norm=True),
    config_class="BartConfig",
    aliases={
        "d_model": "hidden_size", "encoder_attention_heads": "num_attention_heads",
        "encoder_layers": "num_hidden_layers",
    },
    defaults={
        "activation_function": "gelu", "decoder_attention_heads": 16, "decoder_ffn_dim": 4096,
        "encoder_ffn_dim": 4096, "max_position_embeddings": 1024, "num_attention_heads": 16,
        "tie_word_embeddings": True, "vocab_size": 50265,
    },
    implementation=replace(_BART, positions="source"),
    wrappers=(Wrapper("florence2"),),
    modules={
        "root_embedding": "model.shared", "encoder/embedding": "model.encoder.embed_tokens",
        "decoder/embedding": "model.decoder.embed_tokens", "o": "self_attn.out_proj", "up": "fc1", "down": "fc2",
        "encoder/position_embedding": "model.encoder.embed_positions",
        "decoder/position_embedding": "model.decoder.embed_positions",
    },
)  # fmt: skip
# arXiv:2103.06333
PLBART = like(
    BART,
    "plbart",
    config_class="PLBartConfig",
    defaults={
        "decoder_attention_heads": 12, "decoder_ffn_dim": 3072, "encoder_ffn_dim": 3072, "num_attention_heads": 12,
        "vocab_size": 50005,
    },
)  # fmt: skip
# arXiv:2206.12131; its prompts are refused.
MVP = like(
    BART,
    "mvp",
    only=(("use_prompt", (False,)),),
    ignored=("prompt_length", "prompt_mid_dim"),
    config_class="MvpConfig",
    defaults={"prompt_length": 100, "prompt_mid_dim": 800, "use_prompt": False, "vocab_size": 50267},
    implementation=replace(_BART, positions="each", kernels=(EAGER,), weights_to="attention"),
)  # fmt: skip
# arXiv:2004.05150: Longformer's attention in the encoder
LED = like(
    BART,
    "led",
    offset=0,
    apart=True,
    bands=True,
    config_class="LEDConfig",
    defaults={
        "attention_window": 512, "max_decoder_position_embeddings": 1024, "max_encoder_position_embeddings": 16384,
        "max_position_embeddings": REQUIRED,
    },
    implementation=replace(_BART, kernels=(EAGER,), weights_to="attention"),
    modules={
        "root_embedding": "led.shared", "encoder/embedding": "led.encoder.embed_tokens",
        "decoder/embedding": "led.decoder.embed_tokens", "encoder/position_embedding": "led.encoder.embed_positions",
        "encoder/q": "self_attn.longformer_self_attn.query", "encoder/k": "self_attn.longformer_self_attn.key",
        "encoder/v": "self_attn.longformer_self_attn.value", "encoder/o": "self_attn.output",
        "decoder/position_embedding": "led.decoder.embed_positions",
        "global_q": "self_attn.longformer_self_attn.query_global",
        "global_k": "self_attn.longformer_self_attn.key_global",
        "global_v": "self_attn.longformer_self_attn.value_global",
    },
)  # fmt: skip
# arXiv:2001.08210
MBART = like(
    BART,
    "mbart",
    before=True,
    config_class="MBartConfig",
)  # fmt: skip
# arXiv:1912.08777
PEGASUS = like(
    BART,
    "pegasus",
    before=True,
    offset=0,
    embedding_norm=False,
    fixed=True,
    config_class="PegasusConfig",
    implementation=replace(_BART, positions="buffer"),
)  # fmt: skip
# arXiv:2004.13637, large
BLENDERBOT = like(
    BART,
    "blenderbot",
    before=True,
    offset=0,
    embedding_norm=False,
    config_class="BlenderbotConfig",
    defaults={
        "decoder_attention_heads": 32, "decoder_ffn_dim": 10240, "encoder_ffn_dim": 10240,
        "max_position_embeddings": 128, "num_attention_heads": 32, "vocab_size": 8008,
    },
    implementation=_BART,
)  # fmt: skip
# BlenderBot, 90M
BLENDERBOT_SMALL = like(
    BART,
    "blenderbot-small",
    offset=0,
    config_class="BlenderbotSmallConfig",
    defaults={"decoder_ffn_dim": 2048, "encoder_ffn_dim": 2048, "max_position_embeddings": 512},
    implementation=_BART,
)  # fmt: skip
MARIAN = like(
    BART,
    "marian",
    build=Bart(fixed=True, may_share="share_encoder_decoder_embeddings"),  # arXiv:1804.00344
    config_class="MarianConfig",
    defaults={"decoder_vocab_size": None, "share_encoder_decoder_embeddings": True, "vocab_size": 58101},
    implementation=replace(_BART, positions="buffer"),
)  # fmt: skip
# arXiv:2010.11125, and NLLB-200's dense models
M2M_100 = like(
    BART,
    "m2m_100",
    before=True,
    offset=0,
    embedding_norm=False,
    computed=True,
    config_class="M2M100Config",
    defaults={"activation_function": "relu", "vocab_size": 128112},
    implementation=replace(
        OWN_LABELS, positions="each", passes=(MASKS,), closure=("masks",), buffers=(("sines", ""),)
    ),
)  # fmt: skip
NLLB_MOE = like(
    M2M_100,
    "nllb-moe",
    build=_nllb_moe,
    config_class="NllbMoeConfig",
    defaults={
        "decoder_sparse_step": 4, "encoder_sparse_step": 4, "expert_capacity": 64, "num_experts": 128,
        "router_bias": False,
    },
    implementation=replace(
        OWN_LABELS, positions="each", passes=(MASKS,), closure=("masks",), router="tokens", fp32_router=True,
        linear_router=True, looped="modules", expert_linears=("fc1", "fc2"), kernels=(EAGER,), buffers=(("sines", ""),),
    ),
    modules={
        "up": "ffn.fc1", "down": "ffn.fc2", "cross_q": "cross_attention.q_proj", "cross_k": "cross_attention.k_proj",
        "cross_v": "cross_attention.v_proj", "cross_o": "cross_attention.out_proj", "router": "ffn.router.classifier",
        "experts": "ffn.experts",
    },
)  # fmt: skip

ARCHITECTURES = (
    BART,
    PLBART,
    MVP,
    LED,
    MBART,
    PEGASUS,
    BLENDERBOT,
    BLENDERBOT_SMALL,
    MARIAN,
    M2M_100,
    NLLB_MOE,
)
