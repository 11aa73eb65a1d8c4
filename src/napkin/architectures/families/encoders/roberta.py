"""RoBERTa and its relatives: BERT without the next sentence, each sequence with its own position and segment ids.

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0 (src/transformers/models/<model
type>/).
"""

from __future__ import annotations

from napkin.architectures.families.encoders.bert import BERT, NETWORK
from napkin.architectures.families.encoders.bert_network import Bert
from napkin.architectures.masked import EITHER_TOKEN, ENCODER, bert_modules
from napkin.architectures.record import Architecture, like
from napkin.inputs.model import Config
from napkin.operations.implementations import OWN_LABELS
from napkin.operations.model import Model
from napkin.record import replace

_ROBERTA = replace(ENCODER, positions="each", segments="each", registers_first=())
# arXiv:1907.11692
ROBERTA = like(
    BERT,
    "roberta",
    build=replace(NETWORK, next_sentence=False, head="gelu"),
    config_class="RobertaConfig",
    defaults={"vocab_size": 50265},
    implementation=_ROBERTA,
    modules=bert_modules("roberta", head_dense="lm_head.dense", lm_head="lm_head.decoder"),
)  # fmt: skip
CAMEMBERT = like(ROBERTA, "camembert", config_class="CamembertConfig", defaults={"vocab_size": 30522})
DATA2VEC_TEXT = like(
    ROBERTA,
    "data2vec-text",
    config_class="Data2VecTextConfig",
    defaults={"vocab_size": 30522},
    modules=bert_modules("data2vec_text", head_dense="lm_head.dense", lm_head="lm_head.decoder"),
)
XLM_ROBERTA = like(ROBERTA, "xlm-roberta", config_class="XLMRobertaConfig", defaults={"vocab_size": 30522})
# fairseq
ROBERTA_PRELAYERNORM = like(
    ROBERTA,
    "roberta-prelayernorm",
    before=True,
    config_class="RobertaPreLayerNormConfig",
    modules=bert_modules("roberta_prelayernorm", head_dense="lm_head.dense", lm_head="lm_head.decoder"),
)  # fmt: skip
# arXiv:2105.00572
XLM_ROBERTA_XL = Architecture(
    "xlm-roberta-xl",
    Bert(before=True, embedding_norm=False, mlp_dropout=False, head="gelu", decodes=True, named=EITHER_TOKEN),
    config_class="XLMRobertaXLConfig",
    defaults={
        "hidden_act": "gelu", "intermediate_size": 10240, "max_position_embeddings": 514, "num_attention_heads": 32,
        "position_embedding_type": "absolute", "tie_word_embeddings": True, "type_vocab_size": 1,
        "vocab_size": 250880,
    },
    implementation=_ROBERTA,
    modules=bert_modules("roberta", head_dense="lm_head.dense", lm_head="lm_head.decoder"),
)  # fmt: skip
# arXiv:2407.19669
_GTE = Bert(positions=False, rotary="half", gated=True, pooler=False, head="gelu", biases=1)
GTE = Architecture(
    "gte",
    _GTE,
    config_class="GteConfig",
    defaults={
        "hidden_act": "gelu", "intermediate_size": 3072, "max_position_embeddings": 8192, "num_attention_heads": 12,
        "tie_word_embeddings": True, "type_vocab_size": 1, "vocab_size": 250048,
    },
    implementation=replace(OWN_LABELS, segments="each", closure=("tables",)),
    modules=bert_modules("gte", head_dense="lm_head.dense", lm_head="lm_head.decoder") | {
        "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
        "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
    },
)  # fmt: skip


def new(config: Config) -> Model:
    """Return GTE as its own code writes it (modeling.py of Alibaba-NLP/new-impl)."""
    for field, value in (("position_embedding_type", "rope"), ("layer_norm_type", "layer_norm")):
        config.must_be(field, value)
    config.ignore("logn_attention_scale", "logn_attention_clip1", "pack_qkv")
    config.restate("position_embedding_type", "absolute")  # what the network without a table calls it
    return _GTE(config)


NEW = like(
    GTE,
    "new",
    build=new,
    defaults={"layer_norm_type": "layer_norm", "position_embedding_type": "rope", "vocab_size": 30528},
)
# arXiv:2409.10173, without its adapters
JINA_EMBEDDINGS_V3 = Architecture(
    "jina_embeddings_v3",
    Bert(positions=False, rotary="half", head="gelu"),
    config_class="JinaEmbeddingsV3Config",
    defaults={
        "hidden_act": "gelu", "intermediate_size": 4096, "max_position_embeddings": 8194, "num_attention_heads": 16,
        "tie_word_embeddings": True, "type_vocab_size": 1, "vocab_size": 250002,
    },
    implementation=replace(_ROBERTA, positions="one"),
    modules=bert_modules("roberta", head_dense="lm_head.dense", lm_head="lm_head.decoder") | {
        "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
        "up": "mlp.fc1", "down": "mlp.fc2",
    },
)  # fmt: skip

ARCHITECTURES = (
    ROBERTA,
    CAMEMBERT,
    DATA2VEC_TEXT,
    XLM_ROBERTA,
    ROBERTA_PRELAYERNORM,
    XLM_ROBERTA_XL,
    GTE,
    NEW,
    JINA_EMBEDDINGS_V3,
)
