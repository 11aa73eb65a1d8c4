"""Gemma 1 to 3 and VaultGemma."""

from __future__ import annotations

from napkin.architectures.arrangements import pre_norm, sandwich_norm
from napkin.architectures.attention import Attention
from napkin.architectures.blocks import RMS_OFFSET
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import (
    Embedded,
    Headed,
    NormedHeads,
    activation_in,
    always,
    bidirectional,
    softcapped,
)
from napkin.architectures.layer_plans import Seen, every
from napkin.architectures.record import REQUIRED, Architecture, Wrapper, like
from napkin.inputs.model import Config
from napkin.operations.implementations import HF, HF_EAGER, ROTARY
from napkin.record import replace

_BOTH_SIDES = "use_bidirectional_attention"
_bidirectional = bidirectional(_BOTH_SIDES)


def _softcapped(config: Config, usual: Attention) -> Attention:
    """Cap the scores, and let every token see every other if the config says so (PaliGemma's prefix)."""
    return _bidirectional(config, softcapped("attn_logit_softcapping")(config, usual))


def _windows(config: Config, layers: int) -> Seen:
    """Read Gemma 3's windows, of which a bidirectional model (EmbeddingGemma) sees one half to each side
    (configuration_gemma3.py, Gemma3TextConfig.__post_init__)."""
    seen = every(6, "sliding_window_pattern")(config, layers)
    if seen.window is None or not config.flag(_BOTH_SIDES, otherwise=False):
        return seen
    return replace(seen, window=seen.window // 2 + 1)


def _both_sides(config: Config, usual: Attention) -> Attention:
    """Let every token see every other if the config says so: Gemma 3 then makes a mask for full attention too."""
    found = _bidirectional(config, usual)
    return found.scored(masked=not found.scores.causal)


GEMMA = Architecture(
    "gemma",
    Decoder(
        norm=RMS_OFFSET,
        bias="attention_bias",
        out_bias="attention_bias",
        function=activation_in("hidden_activation", "hidden_act"),
        embedding=Embedded(scale=True),
        attention=_bidirectional,
    ),
    config_class="GemmaConfig",
    implementation=replace(HF, buffers=(ROTARY, ("scale", ""))),
    wrappers=(Wrapper("paligemma"), Wrapper("pi0", within=("vlm_config", "paligemma"), besides="action expert")),
    defaults={
        "attention_bias": False, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "hidden_activation": None,
        "intermediate_size": 24576, "max_position_embeddings": 8192, "num_attention_heads": 16,
        "num_key_value_heads": 16, "tie_word_embeddings": True, "use_bidirectional_attention": None,
        "vocab_size": 256000,
    },
)  # fmt: skip
GEMMA2 = like(
    GEMMA,
    "gemma2",
    arrangement=always(sandwich_norm),
    windows=every(2),
    attention=_softcapped,
    head=Headed(softcap="final_logit_softcapping"),
    config_class="Gemma2Config",
    implementation=replace(HF_EAGER, buffers=(ROTARY, ("scale", ""))),
    defaults={
        "hidden_act": REQUIRED, "hidden_activation": "gelu_pytorch_tanh", "intermediate_size": 9216,
        "layer_types": None, "num_attention_heads": 8, "num_key_value_heads": 4, "sliding_window": 4096,
    },
)  # fmt: skip
GEMMA3 = like(
    GEMMA2,
    "gemma3_text",
    windows=_windows,
    attention=_both_sides,
    qk_norm=NormedHeads(RMS_OFFSET),
    config_class="Gemma3TextConfig",
    aliases={"_sliding_window_pattern": "sliding_window_pattern"},
    implementation=replace(HF, by_kind=True, buffers=(ROTARY, ("scale", ""))),
    wrappers=(
        Wrapper("gemma3", config_class="Gemma3Config", unread="final_logit_softcapping"),
        Wrapper("shieldgemma2", unread="final_logit_softcapping"),
    ),
    defaults={
        "final_logit_softcapping": None, "max_position_embeddings": 131072, "sliding_window_pattern": 6,
        "use_bidirectional_attention": False, "vocab_size": 262208,
    },
)  # fmt: skip
VAULTGEMMA = like(
    GEMMA2,
    "vaultgemma",
    arrangement=always(pre_norm),
    attention=softcapped("attn_logit_softcapping"),
    only=((_BOTH_SIDES, (False,)),),
    config_class="VaultGemmaConfig",
    implementation=replace(HF, buffers=(ROTARY, ("scale", ""))),
    defaults={"use_bidirectional_attention": REQUIRED},
)  # fmt: skip

ARCHITECTURES = (GEMMA, GEMMA2, GEMMA3, VAULTGEMMA)
