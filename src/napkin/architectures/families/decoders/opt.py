"""OPT, BioGPT and XGLM: GPT-2 with two rows of learned positions before the first one, or with sinusoids."""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import post_norm, pre_norm
from napkin.architectures.blocks import LAYER
from napkin.architectures.decoder_parts import Embedded, Headed, Inner, activation_in, always, scored
from napkin.architectures.dimensions import Dimensions
from napkin.architectures.families.decoders.gpt2 import DROPPED, LIKE_GPT2, SAME_HEADS, dropped_inside
from napkin.architectures.record import Architecture, Wrapper
from napkin.autograd.tensors import Tensor, sized
from napkin.inputs.model import Config
from napkin.operations.implementations import FOLDED, HF, HF_EAGER, MASKS, Running
from napkin.operations.model import Model
from napkin.record import replace


def biogpt(config: Config) -> Model:
    """Return BioGPT: learned positions with two rows before the first, as in OPT; the embedding scaled by √h."""
    config.ignore("scale_embedding")
    return _BIOGPT(config)


def _opt_sizes(config: Config) -> Dimensions:
    """Read OPT's dimensions: 350M has a narrower embedding between projections."""
    sizes = SAME_HEADS(config)
    narrow = config.optional_integer("word_embed_proj_dim")
    return replace(sizes, embedding_width=0 if narrow in (None, sizes.hidden) else narrow)


def opt(config: Config) -> Model:
    """Return OPT: biases by one flag, positions with two rows before the first, and for 350M norms after the residual
    additions and no final norm."""
    before = config.flag("do_layer_norm_before")
    affine = config.flag("layer_norm_elementwise_affine")
    bias = config.flag("enable_bias")
    final = not config.flag("_remove_final_layer_norm")
    config.ignore("activation_dropout")
    made = replace(
        LIKE_GPT2,
        norm=replace(LAYER, weight=affine, bias=affine),
        arrangement=always(partial(pre_norm if before else post_norm, dropout=DROPPED)),
        sizes=_opt_sizes,
        bias=bias,
        out_bias=bias,
        mlp_bias=bias,
        fused=False,
        inner=Inner("ffn_dim"),
        embedding=Embedded(positions=2),
        head=Headed(norm=before and final),
    )
    return made(config)


_BIOGPT = replace(
    LIKE_GPT2,
    fused=False,
    inner=Inner("intermediate_size"),
    function=activation_in("hidden_act"),
    feed_forward=dropped_inside,
    embedding=Embedded(positions=2, scale=True, dropout=True),
)


def _floored(run: Running, scores: Tensor) -> Tensor:
    """Clamp the masked scores, by then of the mask's type, from below by a scalar: both are kept. Backward, half of the
    gradient and two comparisons are temporaries (torch.max of two tensors)."""
    scores = run.tape.raised(scores)
    least = run.tape.new(1, "fp32", "least", no_grad=True)
    out = run.tape.new(scores.count, scores.dtype, "cut")
    return run.tape.record("max", (scores,), out, (scores, least), scratch=out.size + 2 * sized(out.count, "bool"))


XGLM = Architecture(
    "xglm",
    replace(
        LIKE_GPT2,
        fused=False,
        attention=scored(position="sinusoidal"),
        inner=Inner("ffn_dim"),
        feed_forward=dropped_inside,
        embedding=Embedded(sines="", scale="scale_embedding", dropout=True),
    ),
    config_class="XGLMConfig",
    aliases={"attention_heads": "num_attention_heads", "d_model": "hidden_size", "num_layers": "num_hidden_layers"},
    implementation=replace(
        HF_EAGER, softmax="native", masked_scores=_floored, passes=(MASKS,), buffers=(("sines", ""),),
        closure=("masks",), variables=(FOLDED,),
    ),
    defaults={
        "activation_function": "gelu", "ffn_dim": 4096, "max_position_embeddings": 2048, "num_attention_heads": 16,
        "tie_word_embeddings": True, "vocab_size": 256008,
    },
    modules={
        "o": "self_attn.out_proj", "up": "fc1", "down": "fc2",
    },
)  # fmt: skip
BIOGPT = Architecture(
    "biogpt",
    biogpt,
    config_class="BioGptConfig",
    implementation=replace(HF, softmax="native"),
    defaults={
        "hidden_act": "gelu", "intermediate_size": 4096, "max_position_embeddings": 1024,
        "num_attention_heads": 16, "tie_word_embeddings": True, "vocab_size": 42384,
    },
    modules={
        "embedding": "biogpt.embed_tokens", "position_embedding": "biogpt.embed_positions", "o": "self_attn.out_proj",
        "up": "fc1", "down": "fc2", "lm_head": "output_projection",
    },
)  # fmt: skip
OPT = Architecture(
    "opt",
    opt,
    config_class="OPTConfig",
    implementation=replace(HF, positions="each", closure=("each ids", "mask")),
    defaults={
        "_remove_final_layer_norm": False, "activation_function": "relu", "do_layer_norm_before": True,
        "enable_bias": True, "ffn_dim": 3072, "layer_norm_elementwise_affine": True,
        "max_position_embeddings": 2048, "num_attention_heads": 12, "tie_word_embeddings": True,
        "vocab_size": 50272, "word_embed_proj_dim": None,
    },
    wrappers=(
        Wrapper("blip-2", path="language_model.model"),
        Wrapper("instructblip", path="language_model.model"),
        Wrapper("instructblipvideo", path="language_model.model"),
    ),
    modules={
        "embedding": "model.decoder.embed_tokens", "project_in": "model.decoder.project_in",
        "position_embedding": "model.decoder.embed_positions", "o": "self_attn.out_proj", "up": "fc1", "down": "fc2",
        "project_out": "model.decoder.project_out",
    },
)  # fmt: skip

ARCHITECTURES = (XGLM, BIOGPT, OPT)
