"""What makes tokens of the language model from an audio encoder's results, by the multimodal model_type: the tensors of
it. Facts are those of the classes of Hugging Face transformers 5.24.0."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from napkin.architectures.shapes import Shapes, attention, feed_forward, linear, norm, repeated, together
from napkin.inputs.model import Config
from napkin.record import record


@record
class Hears:
    """What a projector is built from: the config of the multimodal model, with its class's defaults, the encoder's, the
    elements of the encoder's results, and the width of the language model."""

    config: Config
    encoder: Config
    width: int
    hidden: int


Projector = Callable[[Hears], Shapes]


def none(of: Hears) -> Shapes:
    """Return nothing: the encoder ends in the language model's width."""
    return {}


def one_linear(of: Hears) -> Shapes:
    """Return Qwen2-Audio's."""
    return linear("linear", of.width, of.hidden)


def two_linears(of: Hears) -> Shapes:
    """Return Audio Flamingo 3's."""
    bias = of.config.flag("projector_bias")
    return together(linear("linear_1", of.width, of.hidden, bias), linear("linear_2", of.hidden, of.hidden, bias))


def phi(of: Hears) -> Shapes:
    """Return Phi-4-multimodal's: one for sound alone, and one next to images."""
    both = linear("up_proj", of.width, of.hidden), linear("down_proj", of.hidden, of.hidden)
    return repeated(2, "speech", *both)


def voxtral(of: Hears) -> Shapes:
    """Return Voxtral's: four frames are put together, as wide as the encoder's networks are inside."""
    wide = of.encoder.integer("intermediate_size")
    return together(linear("linear_1", wide, of.hidden, False), linear("linear_2", of.hidden, of.hidden, False))


def glm(of: Hears) -> Shapes:
    """Return GLM-ASR's: Voxtral's, twice as wide inside."""
    wide, inner = of.encoder.integer("intermediate_size"), 2 * of.hidden
    return together(linear("linear_1", wide, inner), linear("linear_2", inner, of.hidden))


def qwen3_asr(of: Hears) -> Shapes:
    """Return Qwen3-ASR's."""
    out = of.encoder.integer("output_dim")
    return together(linear("linear_1", of.width, of.width), linear("linear_2", of.width, out))


def moss(of: Hears) -> Shapes:
    """Return MOSS-Transcribe-Diarize's: two linear layers over several frames, and a norm."""
    bias, wide = of.config.flag("projector_bias"), of.config.integer("audio_merge_size") * of.width
    linears = linear("linear_1", wide, of.hidden, bias), linear("linear_2", of.hidden, of.hidden, bias)
    return together(*linears, norm("norm", of.hidden))


def gemma3n(of: Hears) -> Shapes:
    """Return Gemma 3n's, which has an embedding of the tokens that stand for sound."""
    return together(
        {"embedding.weight": (of.encoder.integer("vocab_size"), of.width)},
        norm("hard_embedding_norm", of.width, bias=False),
        norm("soft_embedding_norm", of.width, bias=False),
        linear("embedding_projection", of.width, of.hidden, bias=False),
    )


def gemma4(of: Hears) -> Shapes:
    """Return Gemma 4's."""
    return linear("embedding_projection", of.width, of.hidden, bias=False)


def granite(of: Hears) -> Shapes:
    """Return Granite Speech's: queries of a Q-former (arXiv:2301.12597) attend to a window of frames."""
    former = of.config.block("projector_config", "projector_config", QFORMER)
    width, layers = former.integer("hidden_size"), former.integer("num_hidden_layers")
    seen, every = former.integer("encoder_hidden_size"), former.integer("cross_attention_frequency")
    former.must_be("use_qformer_text_input", False)
    names, biases = ("query", "key", "value", "dense"), (True,) * 4
    across = together(
        linear("query", width, width),
        linear("key", seen, width),
        linear("value", seen, width),
        linear("dense", width, width),
        norm("norm", width),
        within="crossattention",
    )
    layer = (
        together(attention(width, names, biases), norm("norm", width), within="attention"),
        feed_forward(width, former.integer("intermediate_size"), ("intermediate_query", "output_query")),
        norm("output_norm", width),
    )
    queries = of.config.integer("window_size") // of.config.integer("downsample_rate")
    return together(
        {"query": (queries, width)},
        norm("layernorm", width),
        repeated(layers, "layer", *layer),
        repeated(-(-layers // every), "layer", across),
        linear("linear", width, of.hidden),
    )


QFORMER = {
    "hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 3072, "encoder_hidden_size": 1408,
    "cross_attention_frequency": 2, "use_qformer_text_input": False,
}  # fmt: skip
_LINEAR = {"projector_bias": True}
_WINDOWS = {"downsample_rate": 5, "window_size": 15}


@record
class Hearing:
    """How one multimodal model_type hears: the model_type of its encoder's config if the file says none, the projector,
    the defaults of its own fields, the field that holds the encoder's config, and whether it sees images too."""

    encoder: str
    project: Projector = none
    fields: Mapping[str, object] = {}
    block: str = "audio_config"
    sees: bool = False


HEARINGS: Mapping[str, Hearing] = {
    "qwen2_audio": Hearing("qwen2_audio_encoder", one_linear),
    "audioflamingo3": Hearing("audioflamingo3_encoder", two_linears, _LINEAR),
    "musicflamingo": Hearing("audioflamingo3_encoder", two_linears, _LINEAR),
    "voxtral": Hearing("voxtral_encoder", voxtral),
    "glmasr": Hearing("glmasr_encoder", glm),
    "moss_transcribe_diarize": Hearing("moss_transcribe_diarize_audio", moss, {**_LINEAR, "audio_merge_size": 4}),
    "qwen2_5_omni_thinker": Hearing("qwen2_5_omni_audio_encoder", sees=True),
    "qwen3_omni_moe_thinker": Hearing("qwen3_omni_moe_audio_encoder", sees=True),
    "qwen3_asr": Hearing("qwen3_asr_encoder", qwen3_asr),
    "qwen3_asr_thinker": Hearing("qwen3_omni_moe_audio_encoder"),  # the files of Qwen3-ASR's own code
    "dots3_note": Hearing("dots3_note_audio_encoder", sees=True),
    "gemma3n": Hearing("gemma3n_audio", gemma3n, sees=True),
    "gemma4": Hearing("gemma4_audio", gemma4, sees=True),
    "granite_speech": Hearing("granite_speech_encoder", granite, _WINDOWS, "encoder_config"),
    "granite_speech_plus": Hearing("granite_speech_encoder", granite, _WINDOWS, "encoder_config"),
    "muse_spark": Hearing("muse_spark_audio", sees=True),
    "phi4_multimodal": Hearing("phi4_multimodal_audio", phi, sees=True),
}
"""Multimodal model_type → how it hears, where napkin knows it."""
