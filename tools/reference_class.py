"""The class of transformers that a config.json is for, built without weights, and napkin's own model of the config."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import recurrent_kernels
import torch
import transformers
from autocast_on_meta import Autocast, paused
from drawn_configs import BORROWED, HOLDERS, WHOLE, head_for, head_of
from transformers.initialization import no_init_weights

from napkin.architectures import MODULES, build
from napkin.inputs.load import Document
from napkin.inputs.model_file import config_from

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()

ROOT = Path(__file__).resolve().parent.parent
POLICY = {"bf16": "bf16-pure", "fp32": "fp32", "autocast": "amp-bf16"}
"""Precision of a mode → the policy that napkin calls it."""
LOOPED = (
    "glm5_next_text",
    "dbrx",
    "prophetnet",
    "reformer",
    "jetmoe",
    "led",
    "longcat_flash",
    "longformer",
    "nllb-moe",
    "switch_transformers",
    "xmod",
)
"""Types whose step depends on numbers (experts run one after the other on as many tokens as chose them, tokens are
sorted): the CPU runs them."""


CAST = ("deberta", "xlnet")
"""Types that do not run in 16 bits as they are loaded, for some weights stay in fp32: all are cast afterwards."""


def device_of(fields: dict[str, Any]) -> str:
    return "cpu" if fields["model_type"] in LOOPED else "meta"


def configured(fields: dict[str, Any]) -> Any:
    """Return the configuration of the class that is run: the language model's own, or one that holds it with a
    vision or audio tower, which is made small and sees nothing."""
    model_type = fields["model_type"]
    if head_of(model_type) is not WHOLE:
        return transformers.AutoConfig.for_model(**fields | {"model_type": BORROWED.get(model_type, model_type)})
    whole = fields
    if model_type in HOLDERS:
        tied = {"tie_word_embeddings": fields["tie_word_embeddings"]}
        whole = {"model_type": HOLDERS[model_type], "text_config": fields, **tied, **towers(fields)}
    config = transformers.AutoConfig.for_model(**whole)
    vision = getattr(config, "vision_config", None)
    for holder, name, least in ((vision, "depth", 1), (vision, "num_hidden_layers", 1), (config, "image_token_id", 0)):
        if hasattr(holder, name):  # the id is one of the vocabulary, as in published files
            setattr(holder, name, least)
    config.get_text_config().use_cache = False
    return config


def towers(fields: dict[str, Any]) -> dict[str, Any]:
    """Return what the configurations of towers must say of the language model."""
    width = fields.get("hidden_size")
    wanted = {
        "muse_spark_text": {"audio_config": {"out_hidden_size": width}},
        "inkling2_text": {"vision_config": {"text_hidden_size": width}},
        "inkling2_loop_text": {"vision_config": {"text_hidden_size": width}},
    }
    return wanted.get(fields["model_type"], {})


class Skipped(torch.nn.Module):
    """A layer that attends to an image, of which there is none."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, hidden: Any, *others: Any, **named: Any) -> Any:
        return hidden


def narrowed(weight: Any) -> Any:
    """Return a weight as autocast passes it to a matmul."""
    active = Autocast.active
    return weight if weight is None or active is None or active.off else active.lower(weight)


def attends(fields: dict[str, Any]) -> bool:
    """Whether any layer has attention."""
    layers = (layer for stack in reading(fields).stacks for _, layer in stack.runs)
    return any(op.attends() is not None for layer in layers for op in layer.operations)


def reading(fields: dict[str, Any]) -> Any:
    """napkin's model of a config."""
    return build(config_from("config", Document("config", fields), fields))


def network(fields: dict[str, Any], precision: str, kernel: str) -> Any:
    """Build the class of a config's model_type, without weights."""
    config = configured(fields)
    config.use_cache = False
    model_type = fields["model_type"]
    classes = [head_for(fields)._model_mapping[type(config)]]
    text, known = type(config.get_text_config()), transformers.AutoModel._model_mapping
    if text in known:
        classes.append(known[text])
    for module in (sys.modules[one.__module__] for one in classes):
        recurrent_kernels.install(module, recurrent_kernels.stand_ins(narrowed, paused))
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    attention = "eager" if kernel == "eager" or not attends(fields) else "sdpa"
    device = device_of(fields)
    with torch.device(device), no_init_weights():
        model = head_for(fields).from_config(config, dtype=dtype, attn_implementation=attention)
    if hasattr(model.base_model, "gated_cross_attn_layers"):
        layers = model.base_model.gated_cross_attn_layers
        model.base_model.gated_cross_attn_layers = torch.nn.ModuleList(map(Skipped, layers))
    if model_type == "udop":  # which asks for the labels' values
        model._shift_right = lambda labels: torch.cat((labels.new_zeros(len(labels), 1), labels[:, :-1]), 1)
    if device == "cpu":  # weights that send tokens to every expert
        generator = torch.Generator().manual_seed(1)
        model.tie_weights()
        with torch.no_grad():
            for weight in model.parameters():
                weight.copy_(0.3 * torch.randn(weight.shape, generator=generator))
    else:
        model = model.to("meta")
        model.tie_weights()
        # loading a checkpoint keeps the type that a class gives a weight, and fp32 where it insists on it
        insists = tuple(getattr(model, "_keep_in_fp32_modules_strict", None) or ())
        for name, weight in model.named_parameters():
            own = dtype if model_type in CAST else weight.dtype
            weight.data = weight.data.to(torch.float32 if any(part in name for part in insists) else own)
    return model.train()


def drawn_types() -> list[str]:
    """Return the model types that napkin reads and the library has."""
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES
    return [name for name in MODULES if name in known or name in BORROWED]
