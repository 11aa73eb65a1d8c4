"""Code next to a fine-tuning library that a row names among its kernels or its framework, and what it changes there."""

from __future__ import annotations

from napkin.record import record
from napkin.training.versions import is_since


@record
class Plugin:
    """What a plugin, or a program around a library, does otherwise than the library.

    word      by which rows name it
    norms, loss  its norms and its cross entropy (operations/losses.py), "" if it leaves them as they are
    grouped   it runs all experts at once, whatever the class does, and leaves them out of FSDP (training/framework.py,
              experts_apart)
    unsharded  matrices of adapters on quantized layers stay out of FSDP
    uncast    tensors that are not quantized are loaded in the run's 16 bits, whatever the library casts
    nested    the scales of its 4-bit weights are quantized too
    narrow    without autocast its adapters are in the run's 16 bits
    kept      model types whose cross entropy it leaves as it is, since a version of transformers
    source    citation of its code
    """

    word: str
    source: str
    norms: str = ""
    loss: str = ""
    grouped: bool = False
    unsharded: bool = False
    uncast: bool = False
    nested: bool = False
    narrow: bool = False
    kept: tuple[tuple[str, tuple[int, int]], ...] = ()

    def spares(self, family: str, versions: str) -> bool:
        """Return whether it leaves the cross entropy of a model type as it is, in these versions of software."""
        since = dict(self.kept).get(family)
        return since is not None and is_since("transformers", versions, since)


PLUGINS = (
    Plugin(
        "foak",
        "foundation-model-stack/fms-acceleration plugins/fused-ops-and-kernels src/fms_acceleration_foak/utils.py, "
        "lora_adapters_switch_ddp_from_fsdp: a norm at once, a loss that writes the gradient over the logits, for "
        "torch's class, which granitemoe no longer uses (models/granitemoe.py there, without the custom-loss rule that "
        "the others have; modeling_granitemoe.py of transformers 4.46.3 and 4.48.3)",
        norms="fused",
        loss="in-place",
        unsharded=True,
        kept=(("granitemoe", (4, 48)),),
    ),
    Plugin(
        "scattermoe",
        "foundation-model-stack/fms-acceleration at 876e2ed6, plugins/accelerated-moe, framework_plugin_scattermoe.py",
        grouped=True,
    ),
    Plugin(
        "accelerated-peft",
        "foundation-model-stack/fms-acceleration plugins/accelerated-peft: its loader casts nothing",
        uncast=True,
    ),
    Plugin(
        "peft-bnb",
        "foundation-model-stack/fms-acceleration plugins/accelerated-peft, framework_plugin_bnb.py",
        nested=True,
    ),
    Plugin(
        "fsdp_qlora",
        "AnswerDotAI/fsdp_qlora train.py, by the default of bitsandbytes' Linear4bit, whose quant_storage is the run's "
        "dtype: that of adapters next to it (peft 0.9 tuners/lora/layer.py, update_layer)",
        nested=True,
        narrow=True,
    ),
    Plugin(
        "mistral-finetune",
        "mistralai/mistral-finetune finetune/wrapped_model.py, load_model: all parameters are in param_dtype",
        narrow=True,
    ),
    Plugin(
        "vectorlm",
        "VectorInstitute/vectorlm vectorlm/utils/model_utils.py, get_lora_model_from_base_model: lora_model.bfloat16()",
        narrow=True,
    ),
)


def plugins_in(words: str) -> tuple[Plugin, ...]:
    """Return the plugins that words in lower case name."""
    return tuple(one for one in PLUGINS if one.word in words)
