"""Nemotron-H: layers of one block each: Mamba-2, attention, an MLP, or a mixture of experts.

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from napkin.architectures.blocks import (
    RMS_FP32,
    Block,
    Operations,
    Routing,
    moe,
    plain_mlp,
    shared_expert,
)
from napkin.architectures.common import FULL, activation, head_size, kv_heads_of, on, runs_of, width
from napkin.architectures.mixing import (
    DENSE,
    LINEAR,
    MIXTURE,
    grouped_attention,
    groups_of,
    kinds,
    mixer_layer,
    network,
)
from napkin.architectures.record import Architecture, Wrapper
from napkin.architectures.recurrent_blocks import ssd
from napkin.inputs.load import printable
from napkin.inputs.model import Config
from napkin.operations.implementations import SIGMOID_ROUTER
from napkin.operations.linear import Matmul
from napkin.operations.model import Model
from napkin.operations.pointwise import Add
from napkin.record import replace


def nemotron_h(config: Config) -> Model:
    """Nemotron-H (arXiv:2504.03624): one block a layer, by a pattern: Mamba-2, attention without positions, MLP with
    squared ReLU, or a mixture of such experts (in a narrower latent space where moe_latent_size says so)."""
    hidden = width(config)
    known = (LINEAR, FULL, MIXTURE, DENSE)
    letters = {"M": LINEAR, "E": MIXTURE, "*": FULL, "-": DENSE}

    def pattern() -> Sequence[str]:
        text = config.text("hybrid_override_pattern")
        for letter in text:
            if letter not in letters:
                raise config.refuse("hybrid_override_pattern", f"napkin does not know {printable(repr(letter))}")
        return [letters[letter] for letter in text]

    listed = kinds(config, "layers_block_type", None, known, pattern)
    if config.has("hybrid_override_pattern") and list(pattern()) != list(listed):
        raise config.wrong("hybrid_override_pattern", "contradicts layers_block_type")
    stated = config.optional_integer("num_hidden_layers")
    if stated is not None and stated != len(listed):
        raise config.wrong("num_hidden_layers", f"is {stated} where the pattern has {len(listed)} layers")
    heads = config.integer("num_attention_heads")
    for field in ("attention_bias", "mamba_proj_bias"):
        config.must_be(field, False)
    config.must_be("sliding_window", None)
    config.must_be("n_shared_experts", 1)
    config.must_be("tie_word_embeddings", False)
    config.ignore("expand", "moe_shared_expert_overlap", "mtp_layers_block_type", "mtp_hybrid_override_pattern")
    config.ignore("time_step_rank")  # of Mamba's first version
    if config.optional_integer("num_nextn_predict_layers", least=0):
        config.notes.append("the multi-token-prediction layers are left out")
    mamba_heads = config.integer("mamba_num_heads")
    inner = mamba_heads * config.integer("mamba_head_dim")
    mix = partial(
        ssd,
        width=hidden,
        inner=inner,
        heads=mamba_heads,
        state=config.integer("ssm_state_size"),
        groups=groups_of(config, "n_groups", inner, mamba_heads),
        kernel=config.integer("conv_kernel"),
        chunk=config.integer("chunk_size"),
        bias=on(config, "use_bias"),
        conv_bias=on(config, "use_conv_bias"),
        function=activation(config, "mamba_hidden_act"),
    )
    attend = grouped_attention(config, hidden, heads, None, bias=False)
    function, bias = activation(config, "mlp_hidden_act"), on(config, "mlp_bias")
    dense = partial(plain_mlp, width=hidden, inner=config.integer("intermediate_size"), function=function, bias=bias)
    experts = config.integer("n_routed_experts")
    config.ignore("n_group", "topk_group")  # how the best are found
    mixture = _latent_mixture(
        hidden,
        config.optional_integer("moe_latent_size"),
        bias,
        inner=config.integer("moe_intermediate_size"),
        routing=Routing(
            experts,
            min(config.integer("num_experts_per_tok"), experts),
            score="sigmoid",
            normalize=config.flag("norm_topk_prob", otherwise=True),
            upcast=True,
            balanced="buffer",
        ),
        function=function,
        shared=partial(
            plain_mlp,
            width=hidden,
            inner=config.integer("moe_shared_expert_intermediate_size"),
            function=function,
            bias=bias,
            prefix="shared/",
        ),
    )
    blocks: dict[str, Block] = {LINEAR: mix, FULL: attend, MIXTURE: mixture, DENSE: dense}
    names = {LINEAR: "mamba2", FULL: "attention", MIXTURE: "moe", DENSE: "mlp"}
    return network(
        config,
        runs_of(listed, lambda kind: mixer_layer(hidden, RMS_FP32, blocks[kind], names[kind])),
        hidden=hidden,
        norm=RMS_FP32,
        heads=heads,
        kv_heads=kv_heads_of(config, heads),
        head_dim=head_size(config, hidden, heads),
        tie=False,
    )


def _latent_mixture(
    hidden: int,
    latent: int | None,
    bias: bool,
    *,
    inner: int,
    routing: Routing,
    function: str,
    shared: Block,
) -> Block:
    """Experts without gates; with `latent` they work between a projection h → latent and one back."""
    if latent is None:
        return partial(moe, width=hidden, inner=inner, routing=routing, function=function, gated=False, shared=shared)
    narrow = latent

    def block(source: str) -> Operations:
        router, experts = moe("latent", width=narrow, inner=inner, routing=routing, function=function, gated=False)
        always = shared_expert(shared(source))
        wide = moe(source, width=hidden, inner=inner, routing=routing)[0]
        assert router.name == wide.name  # the router reads the full width
        return (
            wide,
            Matmul("latent", (source,), hidden, narrow, bias),
            experts,
            Matmul("latent_out", (experts.name,), narrow, hidden, bias),
            *always,
            Add("moe", ("latent_out", always[-1].name), hidden),
        )

    return block


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
    implementation=replace(SIGMOID_ROUTER, fp32_norm_weight=True),
    wrappers=(
        Wrapper("nemotron_h_omni"),
    ),
)  # fmt: skip

ARCHITECTURES = (NEMOTRON_H,)
