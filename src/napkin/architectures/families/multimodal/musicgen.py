"""MusicGen's decoders (arXiv:2306.05284), which read and write several codes of sound at each step.

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.assembly import embedding
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Heads, Scores
from napkin.architectures.blocks import LAYER, plain_mlp
from napkin.architectures.dimensions import decoder_only, dimensions
from napkin.architectures.encoder_decoder import decoder_alone
from napkin.architectures.reading import activation
from napkin.architectures.record import Architecture, like
from napkin.inputs.model import Config
from napkin.operations.implementations import HF, MASKS
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.roles import LM_HEAD, MEMORY, VOCABULARY
from napkin.record import record, replace


@record
class MusicGen:
    """A decoder of codes: an embedding and a head for each of `num_codebooks`.

    across  the class holds cross-attention, which runs next to a text encoder only"""

    across: bool

    def __call__(self, config: Config) -> Model:
        """Return the decoder as its own class has it; the embeddings of all codes are one table here, and so are the
        heads."""
        config.ignore("tie_word_embeddings", "scale_embedding", "audio_channels", "cross_attention_hidden_size")
        config.ignore("is_decoder", "add_cross_attention")
        config.restate("tie_word_embeddings", False)  # the class has nothing to tie
        sizes, books = dimensions(config, kv_heads="", own_head_dim=False), config.integer("num_codebooks")
        hidden, rows = sizes.hidden, sizes.vocabulary
        attend = Attention(Heads(hidden, sizes.heads, sizes.heads, sizes.head_dim))
        feed = partial(
            plain_mlp,
            width=hidden,
            inner=config.integer("ffn_dim"),
            function=activation(config, "activation_function"),
            bias=False,
            dropout=True,
        )
        if self.across:
            across = replace(attend, scores=Scores(causal=False), memory=MEMORY, prefix="cross_")
            operations = decoder_alone(hidden, LAYER, attend, across, feed, before=True)
            config.notes.append("the class runs only the decoder: its cross-attention is counted, but not used")
        else:
            operations = pre_norm(hidden, LAYER, attend, feed, dropout=(True, True))
        head = Matmul("lm_head", ("final_norm",), hidden, books * rows, False, VOCABULARY, role=LM_HEAD)
        model = decoder_only(
            sizes,
            embedding(books * (rows + 1), hidden, dropout=True),
            ((sizes.layers, Layer("decoder", operations)),),
            (LAYER("final_norm", "x", hidden), *(() if sizes.headless else (head,))),
        )
        config.notes.append(f"a token is one step of sound, with {books} codes")
        return replace(model, vocabulary=books * rows)


@record
class Within:
    """The decoder of a file that also describes a text encoder and a codec."""

    model_type: str
    build: MusicGen

    def __call__(self, config: Config) -> Model:
        """Return the decoder."""
        config.ignore("text_encoder", "audio_encoder", "initializer_factor", "is_encoder_decoder", "architectures")
        config.ignore("num_chroma", "chroma_length")
        config.notes.append("only the decoder is counted; the text encoder and the codec are not")
        return replace(self.build(config.nested("decoder", self.model_type)), family=self.model_type)


MUSICGEN_DECODER = Architecture(
    "musicgen_decoder",
    MusicGen(across=True),
    config_class="MusicgenDecoderConfig",
    defaults={
        "activation_function": "gelu", "cross_attention_hidden_size": None, "ffn_dim": 4096,
        "max_position_embeddings": 2048, "num_attention_heads": 16, "num_codebooks": 4, "tie_word_embeddings": False,
        "vocab_size": 2048,
    },
    implementation=replace(
        HF, softmax="native", fp32_loss=False, shifted=False, passes=(MASKS,), closure=("masks",),
        buffers=(("positions", "fp32"),),
    ),
    modules={
        "embedding": "model.decoder.embed_tokens", "o": "self_attn.out_proj", "up": "fc1", "down": "fc2",
        "lm_head": "lm_heads",
    },
)  # fmt: skip
MUSICGEN_MELODY_DECODER = like(
    MUSICGEN_DECODER,
    "musicgen_melody_decoder",
    across=False,
    config_class="MusicgenMelodyDecoderConfig",
)
MUSICGEN = Architecture("musicgen", Within("musicgen_decoder", MusicGen(across=True)), config_class="MusicgenConfig")
MUSICGEN_MELODY = Architecture(
    "musicgen_melody",
    Within("musicgen_melody_decoder", MusicGen(across=False)),
    config_class="MusicgenMelodyConfig",
)

ARCHITECTURES = (MUSICGEN_DECODER, MUSICGEN_MELODY_DECODER, MUSICGEN, MUSICGEN_MELODY)
