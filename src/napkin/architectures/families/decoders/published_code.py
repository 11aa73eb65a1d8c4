"""Llama and Qwen2 under other names: models whose code comes with their weights and has their relative's structure.

Fields are those of each model's own configuration class: XVERSE (configuration_xverse.py), Aquila, Skywork, Orion
(modeling_orion.py: LayerNorm in place of RMSNorm), 360Zhinao (modeling_zhinao.py: one projection of queries, keys and
values with a bias), Yi (configuration_yi.py), MiMo (modeling_mimo.py: Qwen2 with a prediction module), InternLM
(modeling_internlm.py: biases in attention), openPangu-Embedded (modeling_openpangu_dense.py: InternLM with fewer key
and value heads), TeleChat (modeling_telechat.py: biases of both output projections, keys and values from one) and
TeleChat3, MiniMind (github.com/jingyaogong/minimind, LMConfig.py and model_minimind.py), PLaMo (modeling_plamo.py:
parallel branches, a key/value head for n_shared_head queries), StableLM before it was in transformers
(configuration_stablelm_epoch.py), and two that predict masked tokens, each of which sees all others: Dream
(modeling_dream.py) and LLaDA (arXiv 2502.09992, configuration_llada.py).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import parallel
from napkin.architectures.blocks import LAYER
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import RotaryPositions, always, scored
from napkin.architectures.dimensions import Dimensions, dimensions
from napkin.architectures.families.decoders.gpt_neox import STABLELM
from napkin.architectures.families.decoders.qwen import QWEN2
from napkin.architectures.mixture import Feed, Mixture, counted
from napkin.architectures.record import Architecture, like
from napkin.inputs.model import Config
from napkin.operations.model import Model
from napkin.record import replace

XVERSE = Architecture(
    "xverse",
    Decoder(sizes=partial(dimensions, own_head_dim=False), ignored=("max_tokenizer_truncation",)),
    defaults={"hidden_act": "silu", "tie_word_embeddings": False},
)
AQUILA = like(XVERSE, "aquila")
SKYWORK = like(XVERSE, "skywork")
ORION = like(XVERSE, "orion", norm=LAYER, only=(("attention_bias", (False,)),), ignored=("pretraining_tp",))
ZHINAO = like(
    XVERSE,
    "zhinao",
    bias=True,
    fused=True,
    only=(("bias", (False, None)),),
    ignored=("use_flash_attn", "rope_theta", "bf16", "fp16"),
    modules={"qkv": "self_attn.qkv_proj"},
)
YI = like(XVERSE, "yi", sizes=dimensions, ignored=("pretraining_tp",))
MIMO = like(QWEN2, "mimo", predicts=True, only=(("attention_bias", (True,)), ("use_mrope", (False,))))
INTERNLM = like(XVERSE, "internlm", bias="bias", out_bias="bias", ignored=("rotary",), defaults={"bias": True})
PANGU = like(INTERNLM, "PanguEmbedded", ignored=())
TELECHAT3 = like(
    XVERSE,
    "telechat3",
    sizes=dimensions,
    bias="attention_bias",
    out_bias="attention_bias",
    mlp_bias="mlp_bias",
    defaults={"attention_bias": False, "mlp_bias": False, "head_dim": None},
)
STABLELM_EPOCH = like(
    STABLELM, "stablelm_epoch", config_class="",
    aliases={"num_heads": "num_attention_heads"},
    only=(("rope_pct", (0.25,)),),
    ignored=("norm_eps", "rope_theta", "rotary_scaling_factor"),
)  # fmt: skip


def _last_biased(config: Config, usual: Feed) -> Feed:
    """Give the last matrix a bias."""
    return partial(usual, out_bias=True)


TELECHAT = like(
    XVERSE,
    "telechat",
    out_bias=True,
    feed_forward=_last_biased,
    only=(("apply_residual_connection_post_layernorm", (False,)), ("embed_layernorm", (False,))),
    ignored=("base_seqlen", "logn", "seq_length", "training_seqlen", "hidden_dropout", "unk_token_id", "flash_attn"),
    aliases={
        "n_head": "num_attention_heads", "n_layer": "num_hidden_layers", "ffn_hidden_size": "intermediate_size",
    },
    modules={
        "q": "self_attention.query", "o": "self_attention.dense", "embedding": "transformer.word_embeddings",
    },
)  # fmt: skip


def _shared_heads(config: Config) -> Dimensions:
    """Read PLaMo's dimensions."""
    heads, sharing = config.integer("num_attention_heads"), config.integer("n_shared_head")
    if heads % sharing:
        raise config.refuse("n_shared_head", f"does not divide {heads} attention heads")
    return dimensions(config, kv_heads=heads // sharing, own_head_dim=False)


PLAMO = like(
    XVERSE,
    "plamo",
    sizes=_shared_heads,
    arrangement=always(parallel),
    ignored=("tokenizer_class",),
    defaults={"n_shared_head": 8},
)
_MINIMIND = Decoder(
    sizes=partial(dimensions, own_head_dim=False),
    rotary=RotaryPositions("complex", upcast=True),
    ignored=("aux_loss_alpha", "flash_attn", "multiple_of", "scoring_func", "seq_aux", "use_moe"),
)
_EXPERTS = Mixture(
    "n_routed_experts",
    inner="intermediate_size",
    shared=counted("n_shared_experts"),
    normalize="norm_topk_prob",
)


def minimind(config: Config) -> Model:
    """Return MiniMind: Llama's layers, all with experts where `use_moe` says so; an MLP's width that is not stated is
    8/3 of the hidden size, rounded up."""
    if config.raw("n_shared_experts", required=False) is True:
        config.restate("n_shared_experts", 1)
    if config.optional_integer("intermediate_size") is None:
        multiple = config.optional_integer("multiple_of") or 64
        config.restate("intermediate_size", -(-(8 * config.integer("hidden_size") // 3) // multiple) * multiple)
    if config.flag("use_moe"):
        return replace(_MINIMIND, experts=_EXPERTS)(config)
    config.ignore("n_routed_experts", "n_shared_experts", "norm_topk_prob", "num_experts_per_tok")
    return _MINIMIND(config)


MINIMIND = Architecture(
    "minimind",
    minimind,
    aliases={
        "dim": "hidden_size", "hidden_dim": "intermediate_size", "max_seq_len": "max_position_embeddings",
        "n_heads": "num_attention_heads", "n_kv_heads": "num_key_value_heads", "n_layers": "num_hidden_layers",
    },
    defaults={
        "hidden_act": "silu", "num_attention_heads": 8, "num_key_value_heads": 2, "tie_word_embeddings": True,
        "use_moe": False,
    },
    modules={"q": "attention.wq", "k": "attention.wk", "v": "attention.wv", "o": "attention.wo"},
)  # fmt: skip
BOTH_SIDES = scored(causal=False)
_MASKED_QWEN2 = like(QWEN2, "Dream", attention=BOTH_SIDES, ignored=("use_mrope", "mask_token_id"))


def dream(config: Config) -> Model:
    """Return Dream, whose class with a head is called DreamModel."""
    config.fields = {name: value for name, value in config.fields.items() if name != "architectures"}
    return _MASKED_QWEN2.build(config)


DREAM = like(_MASKED_QWEN2, "Dream", build=dream)
_ABSENT = ("alibi", "attention_layer_norm", "include_bias", "include_qkv_bias", "input_emb_norm", "scale_logits")
LLADA = Architecture(
    "llada",
    Decoder(
        sizes=partial(dimensions, own_head_dim=False),
        attention=BOTH_SIDES,
        only=(
            *((field, (False, None)) for field in _ABSENT),
            ("block_type", ("llama",)),
            ("layer_norm_type", ("rms",)),
            ("rope", (True,)),
        ),
        ignored=(
            *("attention_dropout", "bias_for_layer_norm", "block_group_size", "embedding_dropout", "embedding_size"),
            *("flash_attention", "layer_norm_with_affine", "mask_token_id", "mlp_ratio", "multi_query_attention"),
            *("precision", "residual_dropout", "rope_full_precision", "rope_theta", "init_std", "init_fn"),
            *("init_cutoff_factor", "init_device", "alibi_bias_max"),
        ),
    ),
    aliases={
        "d_model": "hidden_size", "n_heads": "num_attention_heads", "n_layers": "num_hidden_layers",
        "n_kv_heads": "num_key_value_heads", "mlp_hidden_size": "intermediate_size",
        "weight_tying": "tie_word_embeddings", "max_sequence_length": "max_position_embeddings",
        "activation_type": "hidden_act",
    },
    defaults={"hidden_act": "silu"},
    modules={
        "o": "attn_out", "q": "q_proj", "k": "k_proj", "v": "v_proj", "gate": "ff_proj", "up": "up_proj",
        "down": "ff_out", "embedding": "model.transformer.wte", "lm_head": "model.transformer.ff_out",
    },
)  # fmt: skip

ARCHITECTURES = (
    *(
        XVERSE,
        AQUILA,
        SKYWORK,
        ORION,
        ZHINAO,
        YI,
        MIMO,
        INTERNLM,
        PANGU,
        TELECHAT,
        TELECHAT3,
        PLAMO,
        STABLELM_EPOCH,
        DREAM,
    ),
    LLADA,
    MINIMIND,
)
