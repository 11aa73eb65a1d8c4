"""Multimodal model_types: which tower they have if the file does not say, which of its layers they read, and what
projects the result. Facts are those of Hugging Face transformers 5.23.0."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from napkin.architectures.vision.mergers import (
    deep_aligned,
    glm,
    kimi,
    kimi_vl,
    llama4,
    merged_and_projected,
    merged_mlp,
    merger,
    minimax,
    ovis2,
    paddle,
)
from napkin.architectures.vision.mllama import mllama
from napkin.architectures.vision.projectors import (
    Projector,
    aligned,
    gated,
    gemma3,
    gemma4,
    internvl,
    lfm2,
    llava,
    mistral3,
    paligemma,
    shuffled,
    unprojected,
    vip,
)
from napkin.architectures.vision.resamplers import ARIA, aria, kosmos, minicpmv, perceiver, qformer
from napkin.architectures.vision.single_projectors import (
    cosmos_edge,
    dots,
    ernie,
    git,
    hy_v4,
    muse,
    nemotron,
    phi4,
    step,
    video_llava,
)
from napkin.architectures.vision.tower import patches_alone
from napkin.inputs.model import Config
from napkin.operations.model import Vision
from napkin.record import record, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


_NONE: Mapping[str, str] = {}


@record
class Sight:
    """How one multimodal model_type sees.

    tower     model_type of the vision_config if the file says none
    named     the vision_config's model_type says which tower it is (an AutoConfig); else the class has one, whatever
              the file says
    build     builds the whole, in place of a tower and a projector
    across    layers of the language model attend to the results
    flat      there is no tower: the file itself describes patches, which `build` projects
    project   builds the projector
    fields    defaults of the fields of its own that its projector reads
    layers    the field that says which layers' results are read; "": those of the last layer and its norm
    traced    tools/vision_bytes.py counted what its class keeps, and napkin's bytes were equal
    size      the field of the whole model that states the side of an image; else the tower's
    drops     the field that says whether the class leaves out the tower's last layer
    cuts      vision_feature_select_strategy says whether the first token is left out; else learned tokens are
    """

    tower: str
    project: Projector
    fields: Mapping[str, object] = _NONE
    layers: str = ""
    size: str = ""
    drops: str = ""
    cuts: bool = False
    traced: bool = False
    named: bool = False
    build: Callable[[Config, Config, int], Vision] | None = None
    across: bool = False
    flat: bool = False


_LLAVA = {
    "multimodal_projector_bias": True,
    "projector_hidden_act": "gelu",
    "vision_feature_layer": -2,
    "vision_feature_select_strategy": "default",
}
LLAVA = Sight("clip_vision_model", llava, _LLAVA, "vision_feature_layer", cuts=True, traced=True, named=True)
LLAVA_NEXT = replace(LLAVA, project=partial(llava, newline=True), traced=False)
QWEN2_VL = Sight("qwen2_vl_vision", merger)
GEMMA3 = Sight("siglip_vision_model", gemma3, fields={"mm_tokens_per_image": 256}, traced=True, named=True)
IDEFICS3 = Sight("idefics3_vision", shuffled, fields={"scale_factor": 2})
MISTRAL3 = Sight(
    "pixtral",
    mistral3,
    {**_LLAVA, "multimodal_projector_bias": False, "spatial_merge_size": 2, "vision_feature_layer": -1},
    "vision_feature_layer",
    named=True,
)
INTERNVL = Sight(
    "internvl_vision",
    internvl,
    fields={
        "downsample_ratio": 0.5,
        "projector_hidden_act": "gelu",
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "default",
    },
    layers="vision_feature_layer",
    cuts=True,
    traced=True,
)
GLM4V = Sight("glm4v_vision", partial(glm, inner=lambda vision: vision.integer("intermediate_size")))
LFM2 = {
    "downsample_factor": 2, "projector_hidden_size": 2560, "projector_hidden_act": "gelu", "projector_bias": True,
    "projector_use_layernorm": True,
}  # fmt: skip

BLIP_2 = Sight("blip_2_vision_model", qformer, fields={"num_query_tokens": 32})
_MUSE = {"out_hidden_size": 6144, "projector_hidden_size": 4096, "projector_hidden_act": "gelu"}

SIGHTS: Mapping[str, Sight] = {
    "llava": LLAVA,
    "llava_next": LLAVA_NEXT,
    "llava_next_video": LLAVA_NEXT,
    "vipllava": replace(
        LLAVA, project=vip, fields={"vision_feature_layers": [-2, -5, -8, -11, 6]},
        layers="vision_feature_layers", cuts=False, traced=False,
    ),
    "llava_onevision": replace(
        LLAVA_NEXT,
        tower="siglip_vision_model",
        fields={**_LLAVA, "vision_feature_layer": -1, "vision_feature_select_strategy": "full"},
    ),
    "fuyu": Sight(
        "", unprojected, {"image_size": 300, "num_channels": 3, "patch_size": 30}, build=patches_alone, flat=True
    ),
    "gemma3": GEMMA3,
    "shieldgemma2": GEMMA3,
    "gemma4": Sight("gemma4_vision", gemma4),
    "mllama": Sight("mllama_vision_model", llava, build=mllama, across=True),
    "idefics": Sight("idefics_vision", unprojected, fields={"use_resampler": False}, across=True),
    "paligemma": Sight("siglip_vision_model", paligemma, fields={"projection_dim": 2048}, traced=True, named=True),
    "idefics3": IDEFICS3,
    "modernvbert": Sight(
        "siglip_vision_model",
        partial(shuffled, side="pixel_shuffle_factor"),
        fields={"pixel_shuffle_factor": 4},
        named=True,
    ),
    "smolvlm": replace(IDEFICS3, tower="smolvlm_vision"),
    "mistral3": MISTRAL3,
    "lighton_ocr": MISTRAL3,
    "mistral_large4": MISTRAL3,
    "internvl": INTERNVL,
    "internvl_chat": replace(
        INTERNVL, tower="intern_vit_6b", layers="select_layer", traced=False,
        fields={**INTERNVL.fields, "select_layer": -1},
    ),
    "qianfan_ocr": replace(INTERNVL, tower="qianfan_ocr_vision"),
    "deepseek_vl": Sight("siglip_vision_model", aligned, named=True),
    "cohere2_vision": Sight(
        "siglip_vision_model",
        partial(gated, norm=False, usual=36_864),
        fields={"downsample_factor": 2},
        named=True,
    ),
    "aya_vision": Sight(
        "siglip_vision_model",
        partial(gated, norm=True, usual=0),
        fields={"downsample_factor": 2, "vision_feature_layer": -1},
        layers="vision_feature_layer",
        named=True,
    ),
    "lfm2_vl": Sight("siglip2_vision_model", lfm2, fields=LFM2, named=True),
    "video_llama_3": Sight("video_llama_3_vision", aligned),
    "paddleocr_vl": Sight("paddleocr_vl_vision", paddle),
    "janus": Sight("janus_vision_model", deep_aligned),
    "llama4": Sight("llama4_vision_model", llama4),
    "kimi_k25": Sight("kimi_k25_vision", kimi, fields={"projection_hidden_size": 1152}),
    "kimi_vl": Sight("moonvit", kimi_vl),
    "minimax_m3_vl": Sight("minimax_m3_vl_vision", minimax, fields={"projector_hidden_size": 6144}),
    "ovis2": Sight(
        "ovis2_vision",
        ovis2,
        fields={"hidden_size": 1536},
    ),
    "qwen2_vl": replace(QWEN2_VL, traced=True),
    "qwen2_5_vl": replace(QWEN2_VL, tower="qwen2_5_vl_vision", traced=True),
    "qwen2_5_omni_thinker": replace(QWEN2_VL, tower="qwen2_5_omni_vision_encoder"),
    "hyperclovax_vision_v2": Sight("qwen2_5_vl_vision", merged_and_projected, named=True),
    "exaone4_5": replace(QWEN2_VL, tower="exaone4_5_vision"),
    "qwen3_vl": replace(QWEN2_VL, tower="qwen3_vl_vision"),
    "qwen3_vl_moe": replace(QWEN2_VL, tower="qwen3_vl_moe_vision"),
    "qwen3_omni_moe_thinker": replace(QWEN2_VL, tower="qwen3_omni_moe_vision_encoder"),
    "cosmos3_omni": replace(QWEN2_VL, tower="qwen3_vl_vision", named=True),
    "qwen3_5": replace(QWEN2_VL, tower="qwen3_5_vision"),
    "qwen3_5_moe": replace(QWEN2_VL, tower="qwen3_5_moe_vision"),
    "glm4v": GLM4V,
    "glm4v_moe": replace(GLM4V, tower="glm4v_moe_vision"),
    "glm46v": replace(GLM4V, named=True),
    "glmga": replace(GLM4V, named=True),
    "glm5_next": Sight(
        "glm5_next_vision",
        partial(glm, inner=lambda vision: vision.integer("projection_intermediate_size")),
    ),
    "inkling2": Sight("inkling2_vision", merged_mlp),
    "inkling2_loop": Sight("inkling2_vision", merged_mlp),
    "hy_v4_vl": Sight("hy_v4_vl_vision", hy_v4),
    "phi4_multimodal": Sight("phi4_multimodal_vision", phi4),
    "cohere_compass": replace(QWEN2_VL, tower="cohere_compass_vision"),
    "qwen4_exp": replace(QWEN2_VL, tower="qwen4_exp_vision"),
    "diffusion_gemma": Sight("gemma4_vision", gemma4, named=True),
    "cosmos3_edge": Sight("cosmos3_edge_vision", cosmos_edge, fields={"projector_hidden_size": 11_520}),
    "ernie4_5_vl_moe": Sight("ernie4_5_vl_moe_vision", ernie),
    "muse_glimmer": Sight("muse_glimmer_vision", muse, fields=_MUSE),
    "muse_spark": Sight("muse_spark_vision", muse, fields=_MUSE),
    "step3p7": Sight("step3p5_vision", step, fields={"projector_bias": False}),
    "nemotron_h_omni": Sight("radio", nemotron, fields={"downsample_ratio": 0.5, "projector_hidden_size": 4096}),
    "blip": Sight("blip_vision_model", unprojected, across=True),
    "git": Sight("git_vision_model", git),
    "dots_ocr": Sight("dots_vit", dots),
    "video_llava": replace(LLAVA, project=video_llava, traced=False),
    "blip-2": BLIP_2,
    "instructblip": replace(BLIP_2, tower="instructblip_vision_model", project=partial(qformer, instructed=True)),
    "instructblipvideo": replace(
        BLIP_2, tower="instructblipvideo_vision_model", project=partial(qformer, instructed=True)
    ),
    "aria": Sight("idefics3_vision", aria, fields=ARIA, named=True),
    "idefics2": Sight("idefics2_vision", perceiver),
    "minicpmv": Sight(
        "idefics2_vision",
        minicpmv,
        fields={"query_num": 64, "image_size": 448, "drop_vision_last_layer": True},
        size="image_size",
        drops="drop_vision_last_layer",
    ),
    "kosmos-2": Sight("kosmos_2_vision_model", kosmos, fields={"latent_query_num": 64}),
    "t5gemma2_encoder": GEMMA3,
    "glm_ocr": Sight(
        "glm_ocr_vision",
        partial(
            glm, inner=lambda vision: vision.integer("out_hidden_size") * vision.integer("in_channels")
        ),
    ),
}  # fmt: skip
"""Multimodal model_type → how it sees, where napkin knows it."""
