"""Fields that a general draw of a config.json (drawn_configs.py) cannot make: what one model type or a few need.

A model type is in the module that has the name of its family's folder in src/napkin/architectures/families."""

from special_configs import decoders, encoder_decoders, encoders, mixtures_of_experts, multimodal, recurrent
from special_configs.common import SPECIAL
from special_configs.mixtures_of_experts import EXPERTS, experts_and_ranks

__all__ = [
    "EXPERTS",
    "SPECIAL",
    "decoders",
    "encoder_decoders",
    "encoders",
    "experts_and_ranks",
    "mixtures_of_experts",
    "multimodal",
    "recurrent",
]
