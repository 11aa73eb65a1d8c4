"""BERT and its relatives: encoders that predict masked tokens.

Fields and defaults are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from napkin.architectures.families.encoders.bert_network import Bert
from napkin.architectures.masked import EITHER_TOKEN, ENCODER, bert_modules
from napkin.architectures.record import Architecture, Wrapper, like
from napkin.inputs.model import Config
from napkin.inputs.own_code import own_class
from napkin.operations.implementations import ANGLES, EAGER, IDS, MASKED, MASKS, ROTARY
from napkin.operations.learned import Parameters
from napkin.operations.model import Model
from napkin.operations.roles import REPLICATED
from napkin.record import replace


def _roformer(config: Config) -> Model:
    """Return RoFormer (arXiv:2104.09864): rotary positions from fixed sinusoids, which the class holds as a
    parameter."""
    network = Bert(
        positions=False,
        rotary="interleaved",
        pooler=False,
        embedding_size="embedding_size",
        decodes=True,
        named=EITHER_TOKEN,
    )
    config.must_be("rotary_value", False)
    model = network(config)
    rows = config.integer("max_position_embeddings")
    table = Parameters("sinusoids", (), (("weight", (rows, model.head_dim)),), REPLICATED, trained=False)
    (stack,) = model.stacks
    config.notes.append("the position embedding is fixed sinusoids: counted, as the class holds it, but not trained")
    return replace(model, stacks=(replace(stack, before=(table, *stack.before)),))


NETWORK = Bert(next_sentence=True, decodes=True, named=EITHER_TOKEN)
GATES = {"original": "", "geglu": "gelu", "reglu": "relu"}
"""feed_forward_type of Jina's code → the activation of its gate."""


def bert(config: Config) -> Model:
    """Return BERT, or what Jina's own code under the same model_type makes of it (arXiv:2310.19923, modeling_bert.py of
    jinaai/jina-bert-implementation): scores that fall with the distance, in place of positions, and a gated MLP."""
    if not own_class(config):
        return NETWORK(config)
    gate = GATES[config.optional_text("feed_forward_type", known=GATES) or "original"]
    alibi = config.optional_text("position_embedding_type", known=("absolute", "alibi")) == "alibi"
    config.ignore("emb_pooler")
    network = replace(NETWORK, positions=not alibi, alibi=alibi, gated=bool(gate), fused=True, function=gate)
    config.restate("position_embedding_type", "absolute")  # what the network without another kind calls it
    return network(config)


RETURNING = replace(ENCODER, kernels=(EAGER,), weights_to="loop", variables=(*ENCODER.variables, MASKED))
"""Attention returns its weights through the layer, whether they are requested or not."""
# arXiv:1810.04805
BERT = Architecture(
    "bert",
    bert,
    config_class="BertConfig",
    defaults={
        "hidden_act": "gelu", "intermediate_size": 3072, "max_position_embeddings": 512, "num_attention_heads": 12,
        "position_embedding_type": "absolute", "tie_word_embeddings": True, "type_vocab_size": 2, "vocab_size": 30522,
    },
    implementation=ENCODER,
    wrappers=(
        Wrapper(
            "vision-encoder-decoder",
            within=("decoder", "bert"),
            ignored=("encoder", "is_encoder_decoder", "tie_word_embeddings"),
            implementation=replace(ENCODER, token_ids="copied", buffers=(IDS,)),
        ),
    ),
    modules=bert_modules("bert"),
)  # fmt: skip
# BERT for sequence generation (arXiv:1907.12461)
BERT_GENERATION = Architecture(
    "bert-generation",
    Bert(segments=False, pooler=False, decodes=True, named="Decoder", plain_head=True),
    config_class="BertGenerationConfig",
    defaults={
        "hidden_act": "gelu", "intermediate_size": 4096, "max_position_embeddings": 512, "num_attention_heads": 16,
        "position_embedding_type": "absolute", "tie_word_embeddings": True, "vocab_size": 50358,
    },
    implementation=replace(
        ENCODER, fp32_loss=True, shifted=True, buffers=(ROTARY, IDS),
    ),
    modules=bert_modules("bert", lm_head="lm_head.decoder"),
)  # fmt: skip
# arXiv:1909.08053
MEGATRON_BERT = like(
    BERT,
    "megatron-bert",
    build=replace(NETWORK, before=True, embedding_norm=False),
    config_class="MegatronBertConfig",
    defaults={"intermediate_size": 4096, "num_attention_heads": 16, "vocab_size": 29056},
    implementation=replace(ENCODER, segments="each", kernels=(EAGER,), buffers=(ROTARY, IDS)),
)  # fmt: skip
# arXiv:2004.09297: T5's biases of distances, one table for all layers
MPNET = Architecture(
    "mpnet",
    Bert(segments=False, distances=True, head="gelu"),
    config_class="MPNetConfig",
    defaults={
        "hidden_act": "gelu", "intermediate_size": 3072, "max_position_embeddings": 512, "num_attention_heads": 12,
        "relative_attention_num_buckets": 32, "tie_word_embeddings": True, "vocab_size": 30527,
    },
    implementation=replace(
        ENCODER, positions="each", kernels=(EAGER,), buffers=(ROTARY, IDS), checkpoints=False
    ),
    modules=bert_modules("mpnet", head_dense="lm_head.dense", lm_head="lm_head.decoder") | {
        "q": "attention.attn.q", "k": "attention.attn.k", "v": "attention.attn.v", "o": "attention.attn.o",
        "distances": "mpnet.encoder.relative_attention_bias",
    },
)  # fmt: skip
# arXiv:2010.12821: a narrow input embedding, and a wide output embedding of its own
REMBERT = Architecture(
    "rembert",
    Bert(
        embedding_size="input_embedding_size", head_size="output_embedding_size", decodes=True, named=EITHER_TOKEN,
    ),
    config_class="RemBertConfig",
    defaults={
        "hidden_act": "gelu", "input_embedding_size": 256, "intermediate_size": 4608, "max_position_embeddings": 512,
        "num_attention_heads": 18, "output_embedding_size": 1664, "tie_word_embeddings": False, "type_vocab_size": 2,
        "vocab_size": 250300,
    },
    implementation=replace(RETURNING, segments="each", buffers=(ROTARY, IDS)),
    modules=bert_modules("rembert", head_dense="cls.predictions.dense") | {
        "project_in": "rembert.encoder.embedding_hidden_mapping_in",
    },
)  # fmt: skip
ROFORMER = Architecture(
    "roformer",
    _roformer,
    config_class="RoFormerConfig",
    defaults={
        "embedding_size": None, "hidden_act": "gelu", "intermediate_size": 3072, "max_position_embeddings": 1536,
        "num_attention_heads": 12, "rotary_value": False, "tie_word_embeddings": True, "type_vocab_size": 2,
        "vocab_size": 50000,
    },
    implementation=replace(RETURNING, rotary="layer", segments="each", buffers=(), passes=(ANGLES, MASKS)),
    modules=bert_modules("roformer") | {
        "project_in": "roformer.embeddings_project",
    },
)  # fmt: skip

ARCHITECTURES = (
    BERT,
    BERT_GENERATION,
    MEGATRON_BERT,
    MPNET,
    REMBERT,
    ROFORMER,
)
