"""Nemotron-H: layers of one block each: Mamba-2, attention, an MLP, or a mixture of experts.

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from napkin.architectures.assembly import runs_of
from napkin.architectures.blocks import (
    RMS_FP32,
    Block,
    Routing,
    plain_mlp,
)
from napkin.architectures.dimensions import Dimensions, prediction_modules, predictions
from napkin.architectures.reading import FULL, activation, never_tied, on, width
from napkin.architectures.record import Architecture, Wrapper
from napkin.architectures.recurrent_parts import (
    DENSE,
    LINEAR,
    MIXTURE,
    grouped_attention,
    grouped_sizes,
    groups_of,
    kinds,
    latent_mixture,
    mixer_layer,
    network,
)
from napkin.architectures.state_space import Ssd
from napkin.inputs.load import printable
from napkin.inputs.model import Config
from napkin.operations.implementations import FP32_ROUTER
from napkin.operations.model import Layer, Model
from napkin.record import record, replace

LETTERS = {"M": LINEAR, "E": MIXTURE, "*": FULL, "-": DENSE}
"""What a layer is, by its letter in hybrid_override_pattern."""
NAMES = {LINEAR: "mamba2", FULL: "attention", MIXTURE: "moe", DENSE: "mlp"}


@record
class _NemotronH:
    """Nemotron-H, as config.json describes it: the kind of each layer and the block of each kind; the number of
    multi-token prediction modules, and the kinds of layers of each."""

    sizes: Dimensions
    kinds: Sequence[str]
    blocks: Mapping[str, Block]
    predictions: int = 0
    predicting: Sequence[str] = ()


def nemotron_h(config: Config) -> Model:
    """Return Nemotron-H (arXiv:2504.03624): one block per layer, by a pattern: Mamba-2, attention without positions,
    MLP with squared ReLU, or a mixture of such experts (in a narrower latent space where moe_latent_size says so)."""
    read = _read(config)

    def layer(kind: str) -> Layer:
        return mixer_layer(read.sizes.hidden, RMS_FP32, read.blocks[kind], NAMES[kind])

    model = network(read.sizes, runs_of(read.kinds, layer), norm=RMS_FP32)
    module = map(layer, read.predicting)
    return replace(model, extra=prediction_modules(read.predictions, read.sizes.hidden, RMS_FP32, *module))


def _read(config: Config) -> _NemotronH:
    listed = _kinds(config)
    for field in ("attention_bias", "mamba_proj_bias"):
        config.must_be(field, False)
    config.must_be("sliding_window", None)
    config.must_be("n_shared_experts", 1)
    config.ignore("expand", "moe_shared_expert_overlap")
    config.ignore("time_step_rank")  # of Mamba's first version
    never_tied(config)
    predicting = _predicting(config)
    modules = predictions(config) if predicting else 0
    if not predicting and config.optional_integer("num_nextn_predict_layers", least=0):
        config.notes.append("the multi-token-prediction layers are left out")
    sizes = grouped_sizes(config, layers=len(listed), tie=False)
    blocks: dict[str, Block] = {
        LINEAR: _mamba2(config),
        FULL: grouped_attention(sizes, None, bias=False),
        MIXTURE: _mixture(config),
        DENSE: _mlp(config, "intermediate_size"),
    }
    return _NemotronH(sizes, listed, blocks, modules, predicting)


def _predicting(config: Config) -> Sequence[str]:
    """Read what each layer of a multi-token prediction module is; none where the file does not say it."""
    config.ignore("mtp_layers_block_type")
    pattern = config.raw("mtp_hybrid_override_pattern", required=False)
    known = isinstance(pattern, str) and set(pattern) <= set(LETTERS)
    return [LETTERS[letter] for letter in str(pattern)] if known else []


def _kinds(config: Config) -> Sequence[str]:
    """Read what each layer is: a list or a pattern of letters, which must agree if both are given."""

    def pattern() -> Sequence[str]:
        text = config.text("hybrid_override_pattern")
        for letter in text:
            if letter not in LETTERS:
                raise config.refuse("hybrid_override_pattern", f"napkin does not know {printable(repr(letter))}")
        return [LETTERS[letter] for letter in text]

    listed = kinds(config, "layers_block_type", None, (LINEAR, FULL, MIXTURE, DENSE), pattern)
    if config.has("hybrid_override_pattern") and list(pattern()) != list(listed):
        raise config.wrong("hybrid_override_pattern", "contradicts layers_block_type")
    stated = config.optional_integer("num_hidden_layers")
    if stated is not None and stated != len(listed):
        raise config.wrong("num_hidden_layers", f"is {stated} where the pattern has {len(listed)} layers")
    return listed


def _mamba2(config: Config) -> Block:
    heads = config.integer("mamba_num_heads")
    inner = heads * config.integer("mamba_head_dim")
    return Ssd(
        width=width(config),
        inner=inner,
        heads=heads,
        state=config.integer("ssm_state_size"),
        groups=groups_of(config, "n_groups", inner, heads),
        kernel=config.integer("conv_kernel"),
        chunk=config.integer("chunk_size"),
        bias=on(config, "use_bias"),
        conv_bias=on(config, "use_conv_bias"),
        function=activation(config, "mamba_hidden_act"),
    )


def _mlp(config: Config, inner: str, prefix: str = "") -> Block:
    """Read an MLP whose width the field `inner` states."""
    function, bias = activation(config, "mlp_hidden_act"), on(config, "mlp_bias")
    wide = config.integer(inner)
    return partial(plain_mlp, width=width(config), inner=wide, function=function, bias=bias, prefix=prefix)


def _mixture(config: Config) -> Block:
    experts = config.integer("n_routed_experts")
    config.ignore("n_group", "topk_group")  # how the best are found
    routing = Routing(
        experts,
        min(config.integer("num_experts_per_tok"), experts),
        score="sigmoid",
        normalize=config.flag("norm_topk_prob", otherwise=True),
        upcast=True,
        balanced="buffer",
    )
    return latent_mixture(
        width(config),
        config.optional_integer("moe_latent_size"),
        on(config, "mlp_bias"),
        inner=config.integer("moe_intermediate_size"),
        routing=routing,
        function=activation(config, "mlp_hidden_act"),
        shared=_mlp(config, "moe_shared_expert_intermediate_size", "shared/"),
    )


NEMOTRON_H = Architecture(
    "nemotron_h",
    nemotron_h,
    config_class="NemotronHConfig",
    aliases={
        "attention_head_dim": "head_dim", "layer_types": "layers_block_type", "mamba_chunk_size": "chunk_size",
        "mamba_conv_bias": "use_conv_bias", "mamba_d_conv": "conv_kernel", "mamba_expand": "expand",
        "mamba_n_groups": "n_groups", "num_local_experts": "n_routed_experts",
    },
    defaults={
        "attention_bias": False, "chunk_size": 128, "conv_kernel": 4, "expand": 2, "head_dim": 128,
        "intermediate_size": 21504, "mamba_head_dim": 64, "mamba_hidden_act": "silu", "mamba_num_heads": 128,
        "mamba_proj_bias": False, "max_position_embeddings": 4096, "mlp_bias": False, "mlp_hidden_act": "relu2",
        "moe_intermediate_size": 7688, "moe_latent_size": None, "moe_shared_expert_intermediate_size": 7688,
        "moe_shared_expert_overlap": True, "mtp_layers_block_type": None, "n_groups": 8, "n_routed_experts": 8,
        "n_shared_experts": 1, "num_attention_heads": 32, "num_experts_per_tok": 2, "num_key_value_heads": 8,
        "sliding_window": None, "ssm_state_size": 128, "tie_word_embeddings": False, "use_bias": False,
        "use_conv_bias": True, "vocab_size": 131072,
    },
    implementation=replace(
        FP32_ROUTER, fp32_weights=("mixer.gate/weight",), fp32_norm_weight=True
    ),
    wrappers=(
        Wrapper("nemo_speechlm"),
        Wrapper("nemotron_h_omni", path="language_model.model"),
    ),
    modules={
        "embedding": "model.embeddings", "mixer_in_proj": "mixer.in_proj", "mixer_out_proj": "mixer.out_proj",
        "router": "mixer.gate", "experts": "mixer.experts", "shared/up": "mixer.shared_experts.up_proj",
        "latent": "mixer.fc1_latent_proj", "latent_out": "mixer.fc2_latent_proj",
        "shared/down": "mixer.shared_experts.down_proj", "up": "mixer.up_proj", "down": "mixer.down_proj",
        "q": "mixer.q_proj", "k": "mixer.k_proj", "v": "mixer.v_proj", "o": "mixer.o_proj",
    },
)  # fmt: skip

ARCHITECTURES = (NEMOTRON_H,)
