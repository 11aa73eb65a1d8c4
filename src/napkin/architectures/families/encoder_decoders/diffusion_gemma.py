"""DiffusionGemma: Gemma 4 that encodes a prompt, and with the same weights refines a canvas of tokens, which sees all
of itself and the prompt's keys and values.

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/diffusion_gemma/).
"""

from __future__ import annotations

from napkin.architectures.blocks import RMS_BARE, Operations, gated_mlp
from napkin.architectures.families.decoders.gemma4 import GEMMA4_TEXT, gemma4
from napkin.architectures.reading import activation
from napkin.architectures.record import REQUIRED, Wrapper, like
from napkin.architectures.shared_kv import NORM
from napkin.inputs.model import Config
from napkin.operations.base import Operation
from napkin.operations.learned import Parameters
from napkin.operations.model import Layer, Model, Stack, stack_of
from napkin.operations.pointwise import Add
from napkin.operations.views import ConcatTokens, EncoderKeys, reuse
from napkin.record import replace

_FACTS = {
    "attention_k_eq_v": True,
    "enable_moe_block": True,
    "hidden_size_per_layer_input": 0,
    "num_kv_shared_layers": 0,
    "use_double_wide_mlp": False,
}
"""Fields of Gemma 4 that this class does not read, with what it does."""


def diffusion_gemma(config: Config) -> Model:
    """Return both passes: the encoder's over the prompt, the decoder's over the canvas (--target-seq)."""
    for field, value in _FACTS.items():
        config.restate(field, value)
    model = gemma4(config)
    (whole,) = model.stacks
    config.notes.append(
        "a step encodes a prompt (--seq) and refines a canvas (--target-seq); both passes share their weights"
        if model.tied
        else "a step encodes a prompt (--seq) and refines a canvas (--target-seq), untied with weights of their own"
    )
    norm, *_ = whole.after
    encoder = stack_of("encoder", whole.before, whole.runs, (norm,))
    return replace(model, stacks=(encoder, _decoder(config, whole, model.hidden, shares=model.tied)))


def _decoder(config: Config, whole: Stack, hidden: int, *, shares: bool) -> Stack:
    """Return the canvas's pass: what was predicted before conditions its embedding."""

    def again(operations: Operations) -> Operations:
        return tuple(made for op in operations for made in (_again(op) if shares and op.weights() else (op,)))

    def layer(one: Layer) -> Layer:
        return replace(one, operations=again(tuple(made for op in one.operations for made in _both_ways(op))))

    inner, function = config.integer("intermediate_size"), activation(config, "hidden_activation")
    table, scaled = whole.before
    before: Operations = (
        *again((table,)),
        scaled,
        NORM("condition_norm", "embedding_scaled", hidden),
        *gated_mlp("condition_norm", width=hidden, inner=inner, function=function, prefix="condition/"),
        Add("conditioned", ("embedding_scaled", "condition/down"), hidden),
        RMS_BARE("conditioned_norm", "conditioned", hidden),
    )
    norm, *head = whole.after
    return replace(stack_of("decoder", before, whole.runs, (*again((norm,)), *head)).mapped(layer))


def _again(op: Operation) -> Operations:
    """Return an operation with the encoder's weights; biases are not shared."""
    linear = op.linear()
    if linear is None or not linear.bias:
        return (reuse(op),)
    return (Parameters(f"{op.name}_bias", (), (("bias", (linear.d_out,)),)), reuse(op))


def _both_ways(op: Operation) -> Operations:
    """Return a decoder's operation: its attention sees the prompt's keys and values, and every token of the canvas."""
    core = op.attends()
    if core is None:
        return (op,)
    query, *own = op.reads
    joined: list[Operation] = []
    for name, read, size in zip(("keys", "values"), own, (core.qk_dim, core.v_dim), strict=True):
        width = core.kv_heads * size
        joined += [EncoderKeys(f"prompt_{name}", (), width), ConcatTokens(name, (read, f"prompt_{name}"), width)]
    return (*joined, replace(op, reads=(query, "keys", "values"), causal=False, merged=True))


DIFFUSION_GEMMA = like(
    GEMMA4_TEXT,
    "diffusion_gemma_text",
    build=diffusion_gemma,
    config_class="DiffusionGemmaTextConfig",
    implementation=replace(GEMMA4_TEXT.implementation, fp32_loss=True, shifted=False),
    defaults={
        "attention_k_eq_v": REQUIRED, "enable_moe_block": REQUIRED, "final_logit_softcapping": 30.0,
        "hidden_size_per_layer_input": 0, "num_kv_shared_layers": REQUIRED, "use_double_wide_mlp": REQUIRED,
        "vocab_size_per_layer_input": REQUIRED,
    },
    modules={
        "encoder/embedding": "model.encoder.language_model.embed_tokens",
        "decoder/embedding": "model.decoder.embed_tokens",
    },
    wrappers=(Wrapper("diffusion_gemma", "DiffusionGemmaConfig", ignored=("canvas_length",)),),
)  # fmt: skip

ARCHITECTURES = (DIFFUSION_GEMMA,)
