"""A class of transformers with peft's adapters."""

from __future__ import annotations

from typing import Any, NamedTuple

RANK = 4
"""Rank of LoRA's matrices."""


class Adapters(NamedTuple):
    """Adapters next to a frozen network: their targets (`q_proj,v_proj`), their kind by peft's name, and the dropout of
    LoRA's inputs."""

    targets: str
    kind: str = "lora"
    dropout: float = 0.0


SIZED: dict[str, dict[str, int]] = {
    "ia3": {},
    "adalora": {"init_r": RANK, "total_step": 10},
    "oft": {"oft_block_size": RANK},
    "boft": {"boft_block_size": RANK},
}
"""What gives a kind the size RANK, where it is not `r`."""


def peft_config(kind: str, targets: Any) -> Any:
    """Return peft's config of a kind of adapters, of size RANK."""
    import peft

    made = peft.PEFT_TYPE_TO_CONFIG_MAPPING[kind.upper()]
    inner = {"feedforward_modules": [n for n in targets if n in INNER]} if kind == "ia3" else {}
    return made(target_modules=targets, **SIZED.get(kind, {"r": RANK}), **inner)


INNER = ("down_proj", "fc2", "dense_4h_to_h")


def adapted(model: Any, adapters: Adapters) -> Any:
    """Return the model with peft's adapters, in the type of its weights; the rest is frozen."""
    import peft

    names = adapters.targets.split(",")
    weights = {name for name, weight in model.named_parameters() if "experts" in name and weight.dim() > 2}
    parameters = [name for name in names if "." in name and any(weight.endswith("." + name) for weight in weights)]
    modules = [name for name in names if name not in parameters]
    wanted = "all-linear" if modules == ["all-linear"] else modules
    if adapters.kind == "lora":
        config = peft.LoraConfig(
            r=RANK, target_modules=wanted, target_parameters=parameters, lora_dropout=adapters.dropout
        )
    else:
        config = peft_config(adapters.kind, wanted)
    if adapters.kind == "lora":
        model = peft.inject_adapter_in_model(config, model)
    else:  # VeRA's shared matrices are made with the model
        model = peft.get_peft_model(model, config, autocast_adapter_dtype=False).base_model.model
    model.enable_input_require_grads()  # as trainers do for quantized and for checkpointed networks
    return model
