"""BigBird-Pegasus (arXiv:2007.14062): Pegasus for long texts, of which each block sees a few others.

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/bigbird_pegasus/).
"""

from __future__ import annotations

from napkin.architectures.families.encoder_decoders.bart import BART
from napkin.architectures.families.encoder_decoders.bart_network import Bart
from napkin.architectures.record import like
from napkin.architectures.sparse_attention import block_sparse
from napkin.inputs.model import Config
from napkin.operations.implementations import EAGER, MASKS, OWN_LABELS
from napkin.operations.model import Model
from napkin.record import replace


def _bigbird_pegasus(config: Config) -> Model:
    """Return the network: learned positions, and biases around attention if the file sets use_bias."""
    kind = config.text("attention_type", known=("block_sparse", "original_full"))
    names = config.items("architectures", required=False) or []
    if any(isinstance(name, str) and name.endswith("ForCausalLM") for name in names):
        config.restate("tie_word_embeddings", False)  # the class with the decoder only does not tie its head
    network = Bart(before=True, bias=config.flag("use_bias"), inner_dropout=(False, True))
    if kind == "original_full":
        config.ignore("block_size", "num_random_blocks")
        return network(config)
    return replace(network, core=block_sparse(config))(config)


BIGBIRD_PEGASUS = like(
    BART,
    "bigbird_pegasus",
    build=_bigbird_pegasus,
    config_class="BigBirdPegasusConfig",
    defaults={
        "activation_function": "gelu_new", "attention_type": "block_sparse", "block_size": 64,
        "max_position_embeddings": 4096, "num_random_blocks": 3, "use_bias": False, "vocab_size": 96103,
    },
    implementation=replace(
        OWN_LABELS, kernels=(EAGER,), passes=(MASKS,), buffers=(("logits", ""),), closure=("masks",)
    ),
    modules={
        "encoder/q": "self_attn.self.query", "encoder/k": "self_attn.self.key", "encoder/v": "self_attn.self.value",
        "encoder/o": "self_attn.output",
    },
)  # fmt: skip

ARCHITECTURES = (BIGBIRD_PEGASUS,)
