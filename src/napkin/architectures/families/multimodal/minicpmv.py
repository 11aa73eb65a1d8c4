"""MiniCPM-V (arXiv:2408.01800): a language model of another family in one file with a vision tower, whose results 64 or
so learned queries read (vision/resamplers.py). `version` says which language model.

Facts are those of configuration_minicpm.py and modeling_minicpmv.py, which come with the weights of openbmb's
MiniCPM-V-2, MiniCPM-Llama3-V-2_5, MiniCPM-V-2_6, MiniCPM-V-4 and MiniCPM-V-4_5.
"""

from __future__ import annotations

from napkin.architectures.families.decoders.granite import MINICPM
from napkin.architectures.families.decoders.llama import LLAMA
from napkin.architectures.families.decoders.qwen import QWEN2, QWEN3
from napkin.architectures.reading import ALONE
from napkin.architectures.record import Architecture
from napkin.inputs.class_facts import class_facts
from napkin.inputs.load import printable
from napkin.inputs.model import Config
from napkin.operations.model import Model

TEXTS = {"": MINICPM, "2.5": LLAMA, "2.6": QWEN2, "4": LLAMA, "4.0": LLAMA, "4.5": QWEN3}
"""`version`, which the files of the first two do not state → the language model."""
_IMAGES = (
    *("vision_config", "slice_config", "slice_mode", "query_num", "image_size", "patch_size", "batch_vision_input"),
    *("drop_vision_last_layer", "use_image_id", "vision_batch_size", "batch_3d_resampler", "version"),
    *("max_slice_nums", "mm_use_im_start_end", "scale_resolution", "vision_encoder"),
)


def minicpmv(config: Config) -> Model:
    """Return MiniCPM-V's language model; its class with a head is called MiniCPMV."""
    version = str(config.raw("version", required=False) or "")
    if version not in TEXTS:
        raise config.refuse("version", f"napkin does not know the language model of {printable(version, 20)}")
    text = TEXTS[version]
    config.notes.append(f"{ALONE} {config.model_type} is counted, vision and other modalities are not")
    config.ignore(*_IMAGES)
    config.fields = {name: value for name, value in config.fields.items() if name != "architectures"}
    config.defaults, config.aliases = class_facts(text.model_type)
    return text.build(config)


MINICPMV = Architecture("minicpmv", minicpmv)

ARCHITECTURES = (MINICPMV,)
