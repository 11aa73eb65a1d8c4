"""Llama's layers as encoders: ESM C and UltraBERT. No token sees only those before it.

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.attention import Attention
from napkin.architectures.blocks import LAYER, LAYER_NO_BIAS, Operations
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import NormedHeads, always
from napkin.architectures.dimensions import Dimensions, dimensions
from napkin.architectures.layer_plans import Plan, Windows, laid_out
from napkin.architectures.masked import BARE, masked_head, purpose_of
from napkin.architectures.reading import FULL, WINDOWED
from napkin.architectures.record import Architecture, Wrapper
from napkin.inputs.model import Config
from napkin.operations.base import Operation
from napkin.operations.implementations import HF, OWN_LABELS
from napkin.operations.linear import Matmul
from napkin.operations.model import Model
from napkin.operations.pointwise import Activation
from napkin.operations.roles import LM_HEAD, VOCABULARY
from napkin.record import replace


def _both_ways(config: Config, usual: Attention) -> Attention:
    return replace(usual, scores=replace(usual.scores, causal=False))


def _headed(model: Model, config: Config, head: Operations, tied: bool) -> Model:
    """Return a network with a masked head in place of a decoder's."""
    (stack,) = model.stacks
    kept: list[Operation] = [op for op in stack.after if op.role != LM_HEAD]
    after = (*kept, *(() if purpose_of(config) == BARE else head))
    return replace(model, tied=tied and len(after) > len(kept), stacks=(replace(stack, after=after, name="encoder"),))


_ESMC = Decoder(
    norm=LAYER,
    arrangement=always(partial(pre_norm, scale=True)),
    sizes=partial(dimensions, square=True),
    bias="attention_bias",
    out_bias="attention_bias",
    mlp_bias="mlp_bias",
    qk_norm=NormedHeads(LAYER_NO_BIAS, over="all"),
    attention=_both_ways,
)


def esmc(config: Config) -> Model:
    """Return ESM C, a model of proteins."""
    config.restate("tie_word_embeddings", False)  # the class has a head of its own
    model = _ESMC(config)
    config.must_be("num_key_value_heads", model.heads)
    head = masked_head(model.hidden, model.vocabulary, "gelu", source="final_norm")
    model = _headed(model, config, head, tied=False)
    (stack,) = model.stacks
    final = LAYER_NO_BIAS("final_norm", "x", model.hidden)
    return replace(
        model, stacks=(replace(stack, after=tuple(final if op.name == final.name else op for op in stack.after)),)
    )


ESMC = Architecture(
    "esmc",
    esmc,
    config_class="EsmcConfig",
    implementation=replace(OWN_LABELS, fp32_loss=True),
    defaults={
        "attention_bias": False, "head_dim": None, "hidden_act": "silu", "intermediate_size": 6912,
        "max_position_embeddings": 2048, "mlp_bias": False, "num_attention_heads": 40, "num_key_value_heads": None,
        "tie_word_embeddings": False, "vocab_size": 64,
    },
    modules={"embedding": "esmc.embed_tokens", "head_dense": "lm_head.dense", "lm_head": "lm_head.decoder"},
)  # fmt: skip


def _to_each_side(config: Config, sizes: Dimensions) -> Callable[[Attention, Plan], Attention]:
    """Let a window reach `sliding_window` tokens to each side of its own."""
    return lambda usual, plan: usual if plan.window is None else usual.scored(window=plan.window + 1)


_ULTRABERT = Decoder(
    bias="attention_bias",
    out_bias="attention_bias",
    mlp_bias="mlp_bias",
    attention=_both_ways,
    layer=_to_each_side,
    windows=Windows(laid_out(lambda i, layers: WINDOWED if (i + 1) % 3 else FULL)),
)


def ultrabert(config: Config) -> Model:
    """Return UltraBERT: windows to both sides in two layers of three, and a head of two linear layers."""
    model = _ULTRABERT(config)
    hidden, inner = model.hidden, config.integer("prediction_head_size")
    config.ignore("classifier_pooling", "classifier_dropout")
    head: Operations = (
        Matmul("head_narrow", ("final_norm",), hidden, inner),
        Activation("head_narrow_activation", ("head_narrow",), inner, "gelu_pytorch_tanh"),
        Matmul("head_wide", ("head_narrow_activation",), inner, hidden),
        Activation("head_wide_activation", ("head_wide",), hidden, "gelu_pytorch_tanh"),
        Matmul("lm_head", ("head_wide_activation",), hidden, model.vocabulary, False, VOCABULARY, role=LM_HEAD),
    )
    return _headed(model, config, head, tied=model.tied)


ULTRABERT = Architecture(
    "ultrabert",
    ultrabert,
    config_class="UltrabertConfig",
    implementation=replace(HF, shifted=False, by_kind=True),
    wrappers=(
        Wrapper(
            "ultravbert",
            path="model.text_model",
            ignored=("classifier_pooling", "classifier_dropout", "initializer_cutoff_factor"),
        ),
    ),
    defaults={
        "attention_bias": False, "head_dim": None, "hidden_act": "silu", "intermediate_size": 11008,
        "layer_types": None, "max_position_embeddings": 32768, "mlp_bias": False, "num_attention_heads": 32,
        "num_key_value_heads": None, "prediction_head_size": 768, "sliding_window": 128,
        "tie_word_embeddings": False, "vocab_size": 32000,
    },
    modules={
        "head_narrow": "head.linear1", "head_wide": "head.linear2", "lm_head": "head.decoder",
    },
)  # fmt: skip

ARCHITECTURES = (ESMC, ULTRABERT)
