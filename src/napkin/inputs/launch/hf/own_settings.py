"""Settings that a launch line states under names of its program's own, in place of TrainingArguments' defaults.

A name that can mean one thing only is read, and said to be assumed. One that tells what it is about, but not how much,
leaves the option open.
"""

from __future__ import annotations

import re

from napkin.inputs.launch.own_names import OTHERS
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.stated import DEFAULT
from napkin.inputs.launch.values import Open, is_off

READ = {
    "grad-accum": r"(?:grad(?:ient)?s?_)?acc(?:um|umulate|umulation)?(?:_grad(?:ient)?)?_(?:steps?|iters?|batches)",
    "epochs": r"(?:max|num|n|total|train|training|num_train|num_training)_epochs?|epochs?",
    "steps": r"(?:(?:max|num|n|total)_)?(?:train_|training_)?(?:steps|iters|iterations)",
    "tp": r"(?:tp|tensor_parallel|tensor_model_parallel)(?:_size|_degree)?",
    "cp": r"(?:sp|cp|sequence_parallel|seq_parallel|context_parallel|ulysses)(?:_size|_degree)",
}
"""Option → its names, of which the value is a whole number."""
ASKED = {
    "precision": r"(?:\w+_)?(?:precision|half|amp|bf16|fp16|bfloat16|float16)",
    "zero": r"(?:use_|enable_)?fsdp2?|zero(?:_opt|_optimization)?|zero[123]|(?:fsdp_)?sharding_strategy",
    "quantized": r"quantize|quantization|load_?(?:in_)?[48]_?bits?|int[48]|[48]_?bits?",
    "freeze-layers": r"(?:num_)?(?:layers?_)?(?:un)?(?:freeze|frozen)(?:_\w+)?|num_layers_unfrozen|train_\w+_only|"
    r"only_train_\w+",
}
"""Option → names that tell that it is not the default."""
OUTSIDE = re.compile(r"mlp|(?:^|_)mm_|projector|aligner|adapter|audio|tower|encoder|backbone")
"""Words of frozen parts outside the language model, or that another rule reads."""
OTHER_ADAPTERS = re.compile(
    r"(?:use|enable)_(?:ada_?lora|vera|ia3|loha|lokr|b?oft|fourierft|vb_?lora|rand_?lora|hra|bone|miss|shira)"
)
"""Switches of adapters that are neither LoRA nor DoRA."""
STRATEGIES = re.compile(r"fsdp|deepspeed|zero", re.IGNORECASE)


def read_own_settings(reading: Reading) -> None:
    """Read or leave open what a launch line states under names of its program's own."""
    if reading.source.is_mapping:
        return
    looked = reading.format.looked
    own = {
        key: value.value
        for key, value in reading.source.values.items()
        if key not in looked and not OTHERS.search(key) and not is_off(value.value)
    }
    for option, names in READ.items():
        key = _stating(reading, option, names, own)
        if key and str(own[key]).isdecimal():
            reading.assume(option, int(str(own[key])), key)
        elif key and isinstance(own[key], Open):
            reading.ask(option, key)
    if reading.value_of("steps") and "epochs" in reading.inputs and reading.inputs["epochs"].origin == DEFAULT:
        del reading.inputs["epochs"]  # a limit on steps wins
    for option, names in ASKED.items():
        key = _stating(reading, option, names, own)
        if key and not (option == "freeze-layers" and (OUTSIDE.search(key) or reading.value_of("adapter"))):
            reading.ask(option, key)
    for key in own:
        if OTHER_ADAPTERS.fullmatch(key):
            reading.refuse(key, "napkin models LoRA and DoRA, not this adapter", "adapter")
    if "zero" not in reading.inputs and STRATEGIES.search(str(own.get("strategy", ""))):
        reading.ask("zero", "strategy")


def _stating(reading: Reading, option: str, names: str, own: dict[str, object]) -> str:
    """Return the key of a program's own that states an option which the line has under no other name; "" for none."""
    stated = reading.inputs.get(option)
    if stated is not None and stated.origin != DEFAULT:
        return ""
    return next((key for key in own if re.fullmatch(names, key)), "")
