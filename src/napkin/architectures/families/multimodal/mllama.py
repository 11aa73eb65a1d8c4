"""Llama 3.2 Vision's language model: Llama with layers in between that attend to an image, and are skipped without."""

from __future__ import annotations

from napkin.architectures.blocks import Operations, gated_mlp
from napkin.architectures.families.decoders.llama import LLAMA
from napkin.architectures.idle import between_layers, cross_projections, tensors, waiting_before
from napkin.architectures.reading import depth, head_size, indices, kv_heads_of, width
from napkin.architectures.record import REQUIRED, Wrapper, like
from napkin.inputs.model import Config
from napkin.operations.model import Model
from napkin.record import replace

SPECIAL_ROWS = 8
"""Rows of the token embedding in addition to the vocabulary."""


def mllama(config: Config) -> Model:
    """Return Llama 3.2 Vision's language model. Without an image its cross-attention layers do not run; their weights
    are counted with the next layer's."""
    layers, hidden = depth(config), width(config)
    crossing = indices(config, "cross_attention_layers", layers)
    if len(crossing) == layers:
        raise config.refuse("cross_attention_layers", "leaves no layer that reads text")
    config.restate("num_hidden_layers", layers - len(crossing))
    model = LLAMA.build(config)
    config.notes.append("cross-attention layers are counted as parameters; they run only with images")
    kept = [i for i in range(layers) if i not in crossing]
    model = between_layers(model, waiting_before(kept, layers), _cross(config, hidden))
    (stack,) = model.stacks
    first, *rest = stack.before
    operations = (replace(first, rows=model.vocabulary + SPECIAL_ROWS), *rest)
    return replace(model, stacks=(replace(stack, before=operations),))


def _cross(config: Config, hidden: int) -> Operations:
    """Return a cross-attention layer: attention with normed queries and keys, an MLP, two gates."""
    heads = config.integer("num_attention_heads")
    head_dim, kv_heads = head_size(config, hidden, heads, own=False), kv_heads_of(config, heads)
    norms = {"q": (head_dim,), "k": (head_dim,), "input": (hidden,), "post_attention": (hidden,)}
    return (
        *cross_projections(hidden, heads * head_dim, kv_heads * head_dim, hidden, bias=False),
        *gated_mlp("x", width=hidden, inner=config.integer("intermediate_size"), prefix="cross_"),
        tensors("cross_norms", norms),
        tensors("cross_gates", {"attention": (1,), "mlp": (1,)}),
    )


CROSS_ATTENTION = {
    "cross_q": "cross_attn.q_proj", "cross_k": "cross_attn.k_proj", "cross_v": "cross_attn.v_proj",
    "cross_o": "cross_attn.o_proj", "cross_gate": "mlp.gate_proj", "cross_up": "mlp.up_proj",
    "cross_down": "mlp.down_proj",
}  # fmt: skip
"""Where a layer that attends to an image has its linear layers."""
MLLAMA = like(
    LLAMA,
    "mllama_text_model",
    build=mllama,
    config_class="MllamaTextConfig",
    wrappers=(Wrapper("mllama"),),
    defaults={
        "attention_bias": False, "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38], "head_dim": REQUIRED,
        "intermediate_size": 14336, "max_position_embeddings": 131072, "num_key_value_heads": 8,
        "vocab_size": 128256,
    },
    modules=CROSS_ATTENTION,
)  # fmt: skip

ARCHITECTURES = (MLLAMA,)
