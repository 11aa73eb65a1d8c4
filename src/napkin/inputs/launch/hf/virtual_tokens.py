"""Read prompt tuning, p-tuning and prefix tuning as peft spells their settings."""

from __future__ import annotations

from napkin.inputs.launch.values import flag, natural, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from napkin.inputs.launch.reading import Reading

KINDS = {
    "PromptTuning": "prompt",
    "PROMPT_TUNING": "prompt",
    "PromptEncoder": "p-tuning",
    "P_TUNING": "p-tuning",
    "PrefixTuning": "prefix",
    "PREFIX_TUNING": "prefix",
}
"""peft's configuration classes, without Config, and its peft_type → --adapter."""
TOKENS = "num_virtual_tokens"
IDLE = (
    *("prompt_tuning_init", "prompt_tuning_init_text", "tokenizer_name_or_path", "tokenizer_kwargs", "init_weights"),
    *("encoder_dropout", "encoder_num_layers", "token_dim", "num_layers", "num_attention_heads"),
    "num_transformer_submodules",
)
"""Initial values, sizes that peft copies from the model, and what an encoder that is an LSTM alone reads
(peft/utils/other.py, _prepare_prompt_learning_config; peft/tuners/p_tuning/model.py)."""
SETTINGS = (TOKENS, "encoder_hidden_size", "encoder_reparameterization_type", "prefix_projection", *IDLE)
"""Arguments of peft's PromptTuningConfig, PromptEncoderConfig and PrefixTuningConfig."""


def take_virtual_tokens(reading: Reading, key: str) -> bool:
    """Read the adapter that a key names if it is virtual tokens, and return whether it is."""
    kind = KINDS.get(str(reading.source.plain(key)))
    if kind is None:
        return False
    reading.put("adapter", kind, key)
    if reading.take("virtual-tokens", TOKENS, whole) is None and "virtual-tokens" not in reading.inputs:
        reading.ask("virtual-tokens", TOKENS)
    width = reading.read("encoder_hidden_size", natural)
    if kind == "p-tuning" and width is not None and width != reading.read("token_dim", natural):
        reading.refuse("encoder_hidden_size", "an encoder of another width than the model's is not modeled", "adapter")
    if kind == "p-tuning" and str(reading.source.plain("encoder_reparameterization_type") or "MLP")[-3:] != "MLP":
        reading.refuse("encoder_reparameterization_type", "an encoder that is an LSTM is not modeled", "adapter")
    if reading.read("prefix_projection", flag):
        reading.refuse("prefix_projection", "a prefix that a network makes is not modeled", "adapter")
    reading.told(*SETTINGS)
    return True
