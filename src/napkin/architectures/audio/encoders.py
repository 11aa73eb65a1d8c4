"""Audio encoders of multimodal models, by the model_type of their audio_config: the tensors that they hold. Fields,
defaults and modules are those of the classes of Hugging Face transformers 5.24.0."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from napkin.architectures.reading import integers
from napkin.architectures.shapes import (
    Shapes,
    attention,
    convolution,
    feed_forward,
    linear,
    norm,
    repeated,
    together,
)
from napkin.inputs.model import Config, number_in
from napkin.record import record, replace

_NONE: Mapping[str, str] = {}
SIZES = {
    "d_model": "hidden_size", "encoder_layers": "num_hidden_layers", "encoder_ffn_dim": "intermediate_size",
    "encoder_attention_heads": "num_attention_heads",
}  # fmt: skip
"""Whisper's names of fields → those that its relatives have too."""
HALVED = 3
"""Convolutions of a stem of two dimensions, each of which halves the frequencies."""


@record
class Encoder:
    """One kind of audio encoder.

    shapes    (its config) → its tensors        width  (its config) → elements of its results
    defaults  of its configuration class        aliases  other names of its fields
    """

    shapes: Callable[[Config], Shapes]
    defaults: Mapping[str, object]
    aliases: Mapping[str, str] = _NONE
    width: Callable[[Config], int] = lambda config: config.integer("hidden_size")


# --- Whisper's and its relatives' ------------------------------------------------------------------------------------

Q_K_V = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


def _whisper_layers(config: Config, key_bias: bool = False) -> Shapes:
    width, inner = config.integer("hidden_size"), config.integer("intermediate_size")
    layer = (
        attention(width, (*Q_K_V, "self_attn.out_proj"), (True, key_bias, True, True)),
        norm("self_attn_layer_norm", width),
        feed_forward(width, inner, ("fc1", "fc2")),
        norm("final_layer_norm", width),
    )
    return repeated(config.integer("num_hidden_layers"), "layers", *layer)


def _frames(config: Config) -> Shapes:
    """Return two convolutions over frames of sound."""
    width, bins = config.integer("hidden_size"), config.integer("num_mel_bins")
    return together(convolution("conv1", bins, width, 3), convolution("conv2", width, width, 3))


def whisper(config: Config) -> Shapes:
    """Return Whisper's encoder (arXiv:2212.04356)."""
    width = config.integer("hidden_size")
    positions = {"embed_positions.weight": (config.integer("max_source_positions"), width)}
    return together(_frames(config), positions, _whisper_layers(config), norm("layer_norm", width))


def rotated(config: Config) -> Shapes:
    """Return GLM-ASR's: Whisper's with rotary positions."""
    width, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    few = config.optional_integer("num_key_value_heads") or heads
    if few != heads:
        raise config.refuse("num_key_value_heads", f"is not the number of attention heads, {heads}")
    layer = (
        attention(width, (*Q_K_V, "self_attn.o_proj"), (True, False, True, True)),
        feed_forward(width, config.integer("intermediate_size"), ("mlp.fc1", "mlp.fc2")),
        norm("input_layernorm", width),
        norm("post_attention_layernorm", width),
    )
    layers = repeated(config.integer("num_hidden_layers"), "layers", *layer)
    return together(_frames(config), layers, norm("norm", width))


def qwen_omni(config: Config) -> Shapes:
    """Return Qwen2.5-Omni's: Whisper's without positions, two learned tokens, and a projection."""
    width, out = config.integer("hidden_size"), config.integer("output_dim")
    ends: Shapes = {"audio_bos_eos_token.weight": (2, out)}
    return together(_frames(config), ends, _whisper_layers(config), norm("ln_post", width), linear("proj", width, out))


def _images_of_sound(config: Config, width: int, elements: int) -> Shapes:
    """Return convolutions over frames and frequencies, and a linear layer over their `elements`."""
    channels = config.integer("downsample_hidden_size")
    first = convolution("conv2d1", 1, channels, 3, 3)
    others = (convolution(f"conv2d{n}", channels, channels, 3, 3) for n in range(2, HALVED + 1))
    return together(first, *others, linear("conv_out", elements, width, bias=False))


def qwen3(config: Config) -> Shapes:
    """Return Qwen3-ASR's, which Qwen3-Omni's adds a projection to."""
    width, bins = config.integer("hidden_size"), config.integer("num_mel_bins")
    for _ in range(HALVED):
        bins = (bins + 1) // 2
    stem = _images_of_sound(config, width, config.integer("downsample_hidden_size") * bins)
    return together(_whisper_layers(config, key_bias=True), norm("ln_post", width), stem)


def qwen3_omni(config: Config) -> Shapes:
    """Return Qwen3-Omni's."""
    width, out = config.integer("hidden_size"), config.integer("output_dim")
    return together(qwen3(config), linear("proj1", width, width), linear("proj2", width, out))


def dots(config: Config) -> Shapes:
    """Return dots3-note's: gated networks, rotary positions, and an adapter."""
    width, out = config.integer("hidden_size"), config.integer("adapter_out_dim")
    heads, given = config.integer("num_attention_heads"), config.integer("adapter_input_size")
    if config.optional_integer("num_key_value_heads") not in (None, heads):
        raise config.refuse("num_key_value_heads", f"is not the number of attention heads, {heads}")
    bias = config.flag("attention_bias")
    layer = (
        attention(width, (*Q_K_V, "self_attn.o_proj"), (bias, False, bias, bias), heads * config.integer("head_dim")),
        norm("input_layernorm", width, bias=False),
        feed_forward(width, config.integer("intermediate_size"), ("mlp.gate_up_proj", "mlp.down_proj"), gated=True),
        norm("post_attention_layernorm", width, bias=False),
    )
    return together(
        _images_of_sound(config, width, config.integer("conv_output_size")),
        repeated(config.integer("num_hidden_layers"), "layers", *layer),
        norm("layer_norm", width, bias=False),
        norm("adapter.norm", given),
        together(linear("fc1", given, out), linear("fc2", out, out), within="adapter"),
    )


# --- Conformers (arXiv:2005.08100): attention and a convolution between two halves of a network -----------------------


def gemma(config: Config) -> Shapes:
    """Return Gemma 3n's and Gemma 4's: a stem of two convolutions, and norms before and after each part. Each
    convolution halves the frequencies; Gemma 4's class takes the first one's channels for their number."""
    width, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    channels = integers(config, "subsampling_conv_channels")
    if len(channels) != 2:
        raise config.refuse("subsampling_conv_channels", "is not of two convolutions")
    bins = config.optional_integer("input_feat_size")
    left = ((bins + 1) // 2 + 1) // 2 if bins else channels[0] // 4
    stem = together(
        *(
            together(convolution(f"conv_{n}", d_in, d_out, 3, 3, bias=False), norm(f"norm_{n}", d_out, bias=False))
            for n, (d_in, d_out) in enumerate(((1, channels[0]), tuple(channels)))
        ),
        linear("input_proj_linear", channels[1] * left, width, bias=False),
        within="subsample_conv_projection",
    )
    each = config.divides("num_attention_heads", width, heads, "(hidden_size)")

    def normed(name: str, *parts: Shapes) -> Shapes:
        return together(norm("pre_norm", width, bias=False), *parts, norm("post_norm", width, bias=False), within=name)

    halves = (
        normed(name, feed_forward(width, 4 * width, ("layer_1", "layer_2"), bias=False)) for name in ("start", "end")
    )
    layer = (
        *halves,
        normed(
            "attention",
            attention(width, ("q_proj", "k_proj", "v_proj", "post"), (False,) * 4),
            linear("pos_proj", width, width, bias=False),
            {"per_dim_scale": (each,)},
        ),
        normed(
            "convolution",
            linear("linear_start", width, 2 * width, bias=False),
            convolution("depthwise_conv1d", 1, width, config.integer("conv_kernel_size"), bias=False),
            linear("linear_end", width, width, bias=False),
        ),
        norm("norm", width, bias=False),
    )
    layers = repeated(config.integer("num_hidden_layers"), "conformer", *layer)
    out = config.optional_integer("output_proj_dims")
    return together(stem, layers, linear("output_proj", width, out) if out else {})


def granite(config: Config) -> Shapes:
    """Return Granite Speech's: relative positions of each layer's own, and a head of characters in its middle."""
    width, out, each = (config.integer(field) for field in ("hidden_dim", "output_dim", "dim_head"))
    inner, wide = config.integer("feedforward_mult") * width, config.integer("conv_expansion_factor") * width
    heads = config.integer("num_heads") * each
    halves = (
        together(norm("pre_norm", width), feed_forward(width, inner, ("up_proj", "down_proj")), within=name)
        for name in ("ff1", "ff2")
    )
    layer = (
        *halves,
        together(
            norm("pre_norm", width),
            linear("to_q", width, heads, bias=False),
            linear("to_kv", width, 2 * heads, bias=False),
            linear("to_out", heads, width),
            {"rel_pos_emb.weight": (2 * config.integer("max_pos_emb") + 1, each)},
            within="attn",
        ),
        together(
            norm("norm", width),
            convolution("up_conv", width, 2 * wide, 1),
            convolution("depth_conv", 1, wide, config.integer("conv_kernel_size"), bias=False),
            norm("batch_norm", wide),
            convolution("down_conv", wide, width, 1),
            within="conv",
        ),
        norm("post_norm", width),
    )
    return together(
        linear("input_linear", config.integer("input_dim"), width),
        repeated(config.integer("num_layers"), "layers", *layer),
        linear("out", width, out),
        linear("out_mid", out, width),
    )


def muse(config: Config) -> Shapes:
    """Return Muse Spark's: four stages of convolutions, each over patches of the results of the one before."""
    sizes, widths, depths = (integers(config, field) for field in ("patch_sizes", "hidden_sizes", "depths"))
    if not len(sizes) == len(widths) == len(depths):
        raise config.wrong("depths", "has another length than patch_sizes and hidden_sizes")
    parts: list[Shapes] = []
    before = 1
    for stage, (size, width, depth) in enumerate(zip(sizes, widths, depths, strict=True)):
        inner = int(width * number_in(config.real("mlp_ratio")))
        block = (
            convolution("conv", 1, width, config.integer("conv_kernel_size")),
            norm("norm", width, bias=False),
            feed_forward(width, inner, ("mlp.fc1", "mlp.fc2")),
        )
        parts += [
            linear(f"layers.{stage}.patches", size * before, width),
            norm(f"layers.{stage}.norm", width, bias=False),
            repeated(depth, f"layers.{stage}.blocks", *block),
        ]
        before = width
    out = config.integer("out_hidden_size")
    ends = norm("norm", before, bias=False), linear("proj", before, out), norm("post_proj_norm", out, bias=False)
    return together(*parts, *ends)


def phi(config: Config) -> Shapes:
    """Return Phi-4-multimodal's: a stem of five convolutions, and gated networks."""
    width, inner = config.integer("hidden_size"), config.integer("intermediate_size")
    channels, times = config.integer("nemo_conv_channels"), config.integer("time_reduction")
    wide, apart = config.integer("ext_pw_out_channel"), config.integer("depthwise_separable_out_channel")
    kernel, many = config.integer("kernel_size"), config.integer("depthwise_multiplier")
    stages = times.bit_length() - 1
    if times != 2**stages or stages < 1 or many != 1:
        raise config.refuse("time_reduction", "is not a power of 2, or depthwise_multiplier is not 1")
    stem = together(
        convolution("conv.0", 1, channels, 3, 3),
        repeated(
            stages - 1, "conv", convolution("apart", 1, channels, 3, 3), convolution("all", channels, channels, 1)
        ),
        linear("out", channels * config.integer("nemo_final_size"), width),
        within="embed",
    )
    halves = (
        together(
            norm("layer_norm", width),
            feed_forward(width, inner, ("gate_up_proj", "down_proj"), gated=True),
            within=name,
        )
        for name in ("feed_forward_in", "feed_forward_out")
    )
    layer = (
        *halves,
        attention(width, (*Q_K_V, "self_attn.o_proj"), (True,) * 4),
        together(
            norm("layer_norm", width),
            {"glu.b1": (wide,), "glu.b2": (wide,)},
            convolution("glu.pointwise", width, 2 * wide, 1),
            convolution("depthwise", 1, width, kernel),
            convolution("pointwise", width, apart, 1),
            convolution("last", apart, wide, 1),
            within="conv",
        ),
        norm("layer_norm_att", width),
        norm("layer_norm", width),
    )
    both = 1 if config.flag("bias_symmetric") else 2
    distances = (both * config.integer("bias_max_distance"), config.integer("num_attention_heads"))
    layers = repeated(config.integer("num_blocks"), "encoders", *layer)
    return together(stem, {"relative_attention_bias": distances}, layers)


LARGE = {"num_mel_bins": 128, "hidden_size": 1280, "num_hidden_layers": 32, "num_attention_heads": 20,
         "intermediate_size": 5120, "max_source_positions": 1500}  # fmt: skip
WHISPER = Encoder(whisper, LARGE, SIZES)
QWEN3 = {**LARGE, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
         "downsample_hidden_size": 480, "output_dim": 3584}  # fmt: skip
GEMMA3N = Encoder(
    gemma,
    {"input_feat_size": 128, "hidden_size": 1536, "num_attention_heads": 8, "num_hidden_layers": 12,
     "conv_kernel_size": 5, "subsampling_conv_channels": [128, 32], "vocab_size": 128},
    {"conf_num_attention_heads": "num_attention_heads", "conf_num_hidden_layers": "num_hidden_layers",
     "conf_conv_kernel_size": "conv_kernel_size", "sscp_conv_channel_size": "subsampling_conv_channels"},
)  # fmt: skip
GRANITE = Encoder(
    granite,
    {"input_dim": 160, "num_layers": 10, "hidden_dim": 1024, "feedforward_mult": 4, "num_heads": 8, "dim_head": 128,
     "output_dim": 42, "max_pos_emb": 512, "conv_kernel_size": 15, "conv_expansion_factor": 2},
    width=lambda config: config.integer("hidden_dim"),
)  # fmt: skip

ENCODERS: Mapping[str, Encoder] = {
    "qwen2_audio_encoder": WHISPER,
    "audioflamingo3_encoder": WHISPER,
    "voxtral_encoder": WHISPER,
    "moss_transcribe_diarize_audio": replace(
        WHISPER,
        defaults={**LARGE, "num_mel_bins": 80, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
                  "intermediate_size": 4096},
    ),
    "glmasr_encoder": Encoder(rotated, {**LARGE, "num_key_value_heads": None}),
    "qwen2_5_omni_audio_encoder": Encoder(qwen_omni, {**LARGE, "output_dim": 3584}, SIZES),
    "qwen3_asr_encoder": Encoder(qwen3, QWEN3, SIZES),
    "qwen3_omni_moe_audio_encoder": Encoder(
        qwen3_omni, {**LARGE, "downsample_hidden_size": 480, "output_dim": 3584}, SIZES
    ),
    "dots3_note_audio_encoder": Encoder(
        dots,
        {**LARGE, "attention_bias": True, "head_dim": 64, "downsample_hidden_size": 480, "conv_output_size": 7680,
         "adapter_input_size": 1280, "adapter_out_dim": 5120, "num_key_value_heads": 20},
    ),
    "gemma3n_audio": GEMMA3N,
    "gemma4_audio": replace(
        GEMMA3N,
        defaults={**GEMMA3N.defaults, "hidden_size": 1024, "output_proj_dims": 1536, "input_feat_size": None},
        width=lambda config: config.integer("output_proj_dims"),
    ),
    "granite_speech_encoder": GRANITE,
    "phi4_multimodal_audio": Encoder(
        phi,
        {"hidden_size": 1024, "intermediate_size": 1536, "num_blocks": 24, "num_attention_heads": 16,
         "ext_pw_out_channel": 1024, "depthwise_separable_out_channel": 1024, "depthwise_multiplier": 1,
         "kernel_size": 3, "time_reduction": 8, "bias_max_distance": 1000, "bias_symmetric": False,
         "nemo_conv_channels": 1024, "nemo_final_size": 10},
    ),
    "muse_spark_audio": Encoder(
        muse,
        {"patch_sizes": [16, 6, 5, 4], "hidden_sizes": [256, 512, 1024, 2048], "depths": [2, 2, 2, 2],
         "mlp_ratio": 4.0, "conv_kernel_size": 7, "out_hidden_size": 8192},
        width=lambda config: config.integer("out_hidden_size"),
    ),
}  # fmt: skip
"""model_type of the encoder's config → what it holds."""
