"""Evolla's language model: Llama, some of whose layers end with an attention to a protein, which is skipped without."""

from __future__ import annotations

from napkin.architectures.blocks import LAYER, Operations
from napkin.architectures.families.decoders.llama import LLAMA
from napkin.architectures.idle import between_layers, tensors
from napkin.architectures.reading import never_tied
from napkin.architectures.record import REQUIRED, like
from napkin.inputs.model import Config
from napkin.operations.implementations import HF
from napkin.operations.linear import Matmul
from napkin.operations.model import Model
from napkin.record import replace


def evolla(config: Config) -> Model:
    """Return Evolla's language model. Without a protein the adapters do not run."""
    never_tied(config)
    model = LLAMA.build(config)
    config.ignore("protein_encoder_config", "aligner_attention_probs_dropout_prob")
    config.ignore(*(f"resampler_{what}" for what in ("depth", "dim_head", "heads", "num_latents", "ff_mult")))
    config.notes.append(
        "the adapters that attend to a protein are counted as parameters; they run only with one; the "
        "protein's encoder is not counted"
    )
    layers, adapters = model.stacks[0].depth, config.integer("aligner_num_add_layers")
    every = max(layers // adapters, 1)
    waiting = [int((i + 1) % every == 0) for i in range(layers)]
    return between_layers(model, waiting, _adapter(config, model.hidden))


def _adapter(config: Config, hidden: int) -> Operations:
    """Return an adapter: attention to the protein, an MLP, two gates."""
    inner = int(hidden * (config.real("aligner_ffn_mult") or 0))
    biased = config.flag("aligner_enable_bias")
    return (
        *(Matmul(f"aligner_{name}", ("x",), hidden, hidden, True) for name in ("query", "key", "value")),
        Matmul("aligner_out", ("x",), hidden, hidden, biased),
        Matmul("aligner_up", ("x",), hidden, inner),
        Matmul("aligner_down", ("x",), inner, hidden),
        LAYER("aligner_mlp_norm", "x", hidden),
        tensors("aligner_others", {"attention_norm": (hidden,), "attention_gate": (1,), "mlp_gate": (1,)}),
    )


EVOLLA = like(
    LLAMA,
    "evolla",
    build=evolla,
    config_class="EvollaConfig",
    implementation=replace(HF, softmax="native"),
    defaults={
        "aligner_enable_bias": True, "aligner_ffn_mult": 4, "aligner_num_add_layers": 8, "head_dim": REQUIRED,
        "intermediate_size": 14336, "max_position_embeddings": 8192, "num_key_value_heads": 8, "vocab_size": 128256,
    },
    modules={
        "aligner_query": "adapter.query", "aligner_key": "adapter.key_protein",
        "aligner_value": "adapter.value_protein",
        "aligner_out": "adapter.out_proj", "aligner_up": "adapter.ff.fc1", "aligner_down": "adapter.ff.fc2",
    },
)  # fmt: skip

ARCHITECTURES = (EVOLLA,)
