"""Arguments of Hugging Face's programs under other spellings: abbreviated, in a block of data, or a program's own."""

from __future__ import annotations

import re

from napkin.inputs.launch.hf.adapter import RANKS, SWITCHES
from napkin.inputs.launch.hf.blocks import flattened
from napkin.inputs.launch.hf.own_settings import read_own_settings
from napkin.inputs.launch.hf.trl import GROUPED
from napkin.inputs.launch.own_names import ask_switched
from napkin.inputs.launch.program_defaults import with_defaults
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.stated import DEFAULT
from napkin.inputs.launch.values import Open, flag, natural, number, whole
from napkin.options.launches import TRAINING_ARGUMENTS

LENGTHS = (
    "max_length", "max_seq_length", "model_max_length", "model_max_len", "max_seq_len", "block_size", "seq_length",
    "seq_len", "max_len", "cutoff_len", "max_sequence_length", "sequence_length", "context_length", "ctx_len",
)  # fmt: skip
BATCHES = (
    "per_device_train_batch_size",
    "per_device_batch_size",
    "per_gpu_train_batch_size",
    "train_batch_size_per_device",
    "batch_size_per_device",
    "train_batch_size",
)
EPOCHS = ("num_train_epochs", "num_epochs", "epochs", "n_epochs")
GROUPED_TASKS = ("grpo", "rloo")
DEFAULTED = (
    ("per_device_train_batch_size", "per_device_batch_size"),
    ("gradient_accumulation_steps", "grad_accum_steps"),
    ("num_train_epochs", "num_epochs", "epochs"),
    ("max_steps",),
    ("model_max_length", *(one for one in LENGTHS if one != "model_max_length")),
    ("optim",),
    ("gradient_checkpointing",),
    ("bf16",),
    ("fp16",),
    ("torch_dtype",),
    ("attn_implementation",),
)
"""Arguments whose defaults in a program of one's own hold in place of the library's, each with its spellings."""
SAMPLED = (("num_generations",), ("max_prompt_length",), ("max_completion_length",), ("beta",))
ADAPTED = (("lora_rank", *(one for one in RANKS if one != "lora_rank")), ("lora_dropout",))
"""The same, of programs that generate samples, and of lines that name an adapter."""
SHORTEST = 7
"""Least letters of an abbreviation: `--train` may be a program's own switch."""
OWN_BATCHES = ("batch_size", "mini_batch_size", "micro_batch_size", "micro_train_batch_size", "train_bsz_per_gpu")
"""A program's own names of its batch, of one GPU or of all."""
SAME = {
    "deepspeed_config": "deepspeed",
    "activation_checkpointing": "gradient_checkpointing",
    "use_gradient_checkpointing": "gradient_checkpointing",
    "enable_gradient_checkpointing": "gradient_checkpointing",
    "model_dtype": "torch_dtype",
}
"""A program's own names of settings that mean the same everywhere (DeepSpeed's add_config_arguments) → argument."""
OWN_LENGTH = re.compile(r"(?:^|_)(?:len|length|maxlen)$")
OWN_TOKENS = re.compile(r"(?:^|_)max_tokens$|(?:^|_)tokens_per_(?:gpu|device|batch)$")
"""A program's own names of the tokens of a batch, of which it takes as many samples as fit."""
PARTS = re.compile(r"prompt|completion|response|target|answer|query|gen|new|min|eval")
PIECES = re.compile(r"(?:^|_)(?:answer|response|completion|target|output)_")
"""A program's own names of the length of its samples, words of lengths that are not, and those of answers."""
OWN_BITS = re.compile(r"(?:^|_)(?:quant\w*|load_in\w*)_n?bits?$")
"""A program's own names of the bits of the frozen weights, which do not tell the format."""
OWN_ADAPTERS = re.compile(r"(?:^|_)(?:q?lora|peft|low_rank)(?:_|$)")
"""A program's own switch of LoRA (LongLoRA's low_rank_training)."""
OWN_LORA = re.compile(r"(?:^|_)q?lora$|(?:^|_)(?:use|enable|with|do|add|apply)_(?:\w+_)?q?lora(?:_|$)")
"""A program's own switch that holds a rank or 1 (InternVL's use_llm_lora)."""
OWN_METHOD = re.compile(r"type|mode|method|tun(?:er|ing)|adapter|strategy|peft")
METHODS = ("lora", "qlora", "dora", "peft", "ia3", "adapter", "prefix", "ptuning", "p_tuning", "prompt_tuning")
"""A program's own name of the method, and words for methods that do not train the weights."""
UNADAPTED = ("false", "none", "no", "full", "0")
OWN_GPUS = ("gpus", "num_gpus", "n_gpus", "ngpus", "gpu_num")
OWN_STAGES = ("zero_stage", "ds_stage", "deepspeed_stage")
"""A program's own names of the number of GPUs and of DeepSpeed's stage."""
OWN_ENGINES = {"use_deepspeed": "deepspeed", "use_fsdp": "fsdp"}
"""A program's own switches of what shards its states → framework."""


def spelled(source: LaunchFile) -> LaunchFile:
    """Return the source with TrainingArguments' names, whatever the file makes of them."""
    flat = flattened(source)
    if flat.syntax != "shell":
        return _measured(flat)
    groups = [*DEFAULTED, *(SAMPLED if flat.has_any(*GROUPED) else ())]
    groups += ADAPTED if flat.has_any(*SWITCHES, *RANKS) else ()
    return with_defaults(_unabbreviated(_renamed(flat)), groups)


def _renamed(source: LaunchFile) -> LaunchFile:
    """Return the source with the arguments that a program gives names of its own."""
    names = {own: name for own, name in SAME.items() if own in source.values and name not in source}
    return source.renamed(names) if names else source


def _measured(source: LaunchFile) -> LaunchFile:
    """Return the source with the length of its samples under its plain name: `data.max_seq_length`."""
    inner = [key for key in source.values if key.startswith(("data", "token")) and key.rpartition(".")[2] in LENGTHS]
    if source.has_any(*LENGTHS) or len(inner) != 1:
        return source
    return source.renamed({inner[0]: inner[0].rpartition(".")[2]})


def _unabbreviated(source: LaunchFile) -> LaunchFile:
    """Return the source with TrainingArguments that argparse completes: `--per_device_train_batch 4`
    (argparse.ArgumentParser, allow_abbrev)."""
    names = {}
    for key in source.values:
        if len(key) < SHORTEST or "_" not in key or key in TRAINING_ARGUMENTS:
            continue
        meant = [one for one in TRAINING_ARGUMENTS if one.startswith(key)]
        if len(meant) == 1 and meant[0] not in source:
            names[key] = meant[0]
    return source.renamed(names) if names else source


OF_PROMPTS = ("pre_seq_len", "num_virtual_tokens", "prefix_projection")
"""Keys of prefix and prompt tuning (ChatGLM's P-tuning, peft's PrefixTuningConfig)."""


def ask_own(reading: Reading) -> None:
    """Leave open what a program states under names of its own, whose meaning only its source tells."""
    micro = reading.inputs.get("micro-batch")
    batch = next((key for key in OWN_BATCHES if key in reading.source), None)
    stated = reading.source.has_any(*BATCHES)
    if batch is not None and micro is not None and micro.origin == DEFAULT and not stated:
        reading.ask("micro-batch", batch)
    _ask_sizes(reading)
    _ask_adapter(reading)
    ask_switched(reading)
    read_own_settings(reading)
    for option, names, how in (("gpus", OWN_GPUS, whole), ("zero", OWN_STAGES, natural)):
        key = next((one for one in names if one in reading.source.values), None)
        if key is not None and option not in reading.inputs:
            size = str(reading.source.values[key].value)
            reading.assume(option, how(size), key) if size.isdecimal() else reading.ask(option, key)
            if option == "zero" and reading.value_of("framework") is None:
                reading.assume("framework", "deepspeed", key)
    engine = next((key for key in OWN_ENGINES if reading.read(key, flag)), None)
    if engine is not None and reading.value_of("framework") is None:
        reading.derive("framework", OWN_ENGINES[engine], engine)
        reading.ask("zero", engine)
    if reading.open_among("fsdp") and "zero" not in reading.inputs:
        reading.ask("zero", "fsdp")


def _is_word(value: object) -> bool:
    return isinstance(value, Open) or str(value).isalpha()


def _ask_adapter(reading: Reading) -> None:
    """Leave open the adapter that a switch of a program's own turns on, or that it names in a word napkin lacks."""
    prompt = next((key for key in OF_PROMPTS if reading.source.states(key)), None)
    if prompt is not None and "adapter" not in reading.inputs:
        reading.refuse(prompt, "trains a prefix before the prompt, not the weights", "adapter")
    stated = {key: one.value for key, one in reading.source.values.items()}
    named = [key for key, value in stated.items() if OWN_ADAPTERS.search(key) and _is_word(value)]
    named += [key for key, value in stated.items() if OWN_LORA.search(key) and str(value).isdecimal()]
    switch = next((key for key in named if str(stated[key]).lower() not in UNADAPTED), None)
    methods = [key for key in stated if OWN_METHOD.search(key) and str(stated[key]).lower() in METHODS]
    switch = switch or next(iter(methods), None)
    if switch is not None and "adapter" not in reading.inputs and switch not in reading.format.looked:
        reading.ask("adapter", switch)


def _ask_sizes(reading: Reading) -> None:
    """Leave open the sequence length and quantization that a program states under names of its own."""
    given = {key: str(one.value) for key, one in reading.source.values.items()}
    length = reading.inputs.get("seq")
    open_to_own = (length is None or length.origin == DEFAULT) and not reading.source.has_any(*LENGTHS)
    if open_to_own and reading.value_of("task") not in GROUPED_TASKS:
        named = [key for key in given if OWN_LENGTH.search(key) or OWN_TOKENS.search(key)]
        own = [key for key in named if not PARTS.search(key) and given[key].isdecimal()]
        parts = [key for key in named if PIECES.search(key) and given[key].isdecimal()]
        if own or (parts and length is not None):
            reading.ask("seq", *(own or parts))
    bits = next((key for key in given if OWN_BITS.search(key) and given[key] in ("4", "8")), None)
    if bits is not None and "quantized" not in reading.inputs:
        reading.ask("quantized", bits)


def amount(reading: Reading) -> None:
    """Read the length of the run: max_steps wins over epochs unless it is -1."""
    steps = reading.read("max_steps", number)
    if steps and steps > 0:
        reading.put("steps", int(steps), "max_steps")
        reading.told("num_train_epochs")
        return
    if steps is None and isinstance(getattr(reading.find("max_steps"), "value", None), Open):
        reading.ask("steps", "max_steps")
    epochs = reading.read("|".join(EPOCHS), number)
    if epochs:
        reading.put("epochs", epochs, reading.named(*EPOCHS))
    else:
        reading.default("epochs", 3, *EPOCHS)
