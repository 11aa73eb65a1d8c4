"""Other names of the keys of rows: those of napkin's options and their synonyms, those of config.json, and those with a
unit at their end."""

from __future__ import annotations

import re
from collections.abc import Mapping

from napkin.evidence.rows.files import MEMORY, RUNS, SERVING, STEPS, TUNING
from napkin.evidence.rows.keys import KEYS, RUN_BLOCKS, TUNED_SPEEDS
from napkin.evidence.rows.keys import SPEEDS as MEASURED_SPEEDS
from napkin.options.meanings import said_by
from napkin.options.synonyms import VAGUE, named
from napkin.record import record

DEGREES = "tp pp dp cp ep vp sp zero ulysses micro-batch global-batch grad-accum schedule optimizer precision dropout"
ANY_LAYOUT = {
    **{option: f"layout.{option.replace('-', '_')}" for option in DEGREES.split()},
    **{name: f"layout.{name.replace('-', '_')}" for name in ("framework", "compile", "recompute", "attention")},
    **{name: f"layout.{name}" for name in ("kernels", "loss", "offload")},
}
ANYWHERE = {
    **ANY_LAYOUT,
    "hardware": "hardware.accelerator",
    "gpus": "hardware.count",
    "nodes": "hardware.nodes",
    "gpus-per-node": "hardware.per_node",
}
SPEEDS = {
    "tokens-per-second": "measured.tokens_per_second",
    "tokens-per-second-per-gpu": "measured.tokens_per_second_per_gpu",
}
TRAINED = {
    **ANYWHERE,
    **SPEEDS,
    "seq": "model.seq",
    "vocab": "model.vocab",
    "width": "model.hidden",
    "depth": "model.layers",
    "lora-rank": "layout.lora_rank",
    "lora-targets": "layout.lora_targets",
    "quantized": "layout.quantization",
    "dp-shard": "layout.fsdp_shards",
    "async-tp": "layout.async_tp",
    "tp-comm-overlap": "layout.async_tp",
    "async-dp": "layout.async_dp",
    "async-ep": "layout.async_ep",
    "dispatcher": "layout.dispatcher",
    "graphs": "layout.graphs",
    "capacity-factor": "layout.capacity_factor",
    "etp": "layout.etp",
    "expert-imbalance": "layout.expert_imbalance",
    "optimizer-in-backward": "layout.optimizer_in_backward",
    "model": "model.name",
    "mfu": "measured.mfu",
    "distributed-optimizer": "layout.distributed_optimizer",
}
PLACES: dict[str, dict[str, str]] = {
    STEPS: TRAINED,
    MEMORY: TRAINED,
    TUNING: {
        **ANYWHERE,
        **SPEEDS,
        "samples-per-second": "measured.samples_per_second",
        "seq": "layout.seq_max",  # a limit in every tool; what sequences really have is `seq`
        "target-seq": "layout.target_seq",
        "trainer": "layout.trainer",
        "stack": "layout.stack",
        "packing": "layout.packed",
        "distributed-optimizer": "layout.distributed_optimizer",
        "fsdp-version": "layout.fsdp_version",
        "optimizer-in-backward": "layout.optimizer_in_backward",
        "adapter": "method.kind",
        "lora-rank": "method.lora_rank",
        "lora-dropout": "method.lora_dropout",
        "lora-targets": "method.lora_targets",
        "quantized": "method.quantized",
        "freeze-layers": "method.freeze_layers",
        "freeze-head": "method.freeze_head",
        "modules-to-save": "method.modules_to_save",
        "prompt-tokens": "rl.prompt_length_mean",
        "response-tokens": "rl.response_length_mean",
        "max-prompt-tokens": "rl.prompt_length_max",
        "max-response-tokens": "rl.response_length_max",
        "samples-per-prompt": "rl.group",
        "rollout-tp": "rl.rollout_tp",
        "rollout-eager": "rl.enforce_eager",
        "memory-share": "rl.gpu_memory_utilization",
        "reference": "rl.reference",
        "reward": "rl.reward_model",
        "critic": "rl.critic",
        "engine": "rl.engine",
        "model": "model.name",
    },
    SERVING: {
        **{degree: f"layout.{degree}" for degree in ("tp", "pp", "dp", "ep")},
        **{name: ANYWHERE[name] for name in ("hardware", "gpus", "nodes", "gpus-per-node")},
        "model": "model.name",
        "engine": "engine.name",
        "dtype": "quant.weights",
        "cache-dtype": "quant.kv",
        "batch": "load.batch",
        "concurrency": "load.concurrency",
        "prompt-tokens": "load.input_tokens_mean",
        "response-tokens": "load.output_tokens_mean",
    },
    RUNS: {
        "hardware": "accelerator",
        "gpus": "count",
        "params": "params_total",
        "active-params": "params_active",
        "tokens": "tokens",
        "seq": "seq_len",
        "run-kind": "run_kind",
        "model": "model",
    },
}
"""Schema → option of the command line → the key that says it."""

DIMENSIONS = {
    "hidden": "hidden_size hidden_dim d_model n_embd width dim model_dim embedding_size",
    "layers": "num_layers num_hidden_layers n_layers n_layer depth",
    "heads": "num_heads num_attention_heads n_heads n_head attention_heads",
    "kv_heads": "num_key_value_heads num_kv_heads n_kv_heads n_kv_head num_query_groups key_value_heads",
    "ffn": "ffn_hidden_size intermediate_size ffn_dim d_ff n_inner dim_feedforward mlp_size feedforward_size",
    "vocab": "vocab_size vocabulary n_vocab vocabulary_size",
    "head_dim": "head_size kv_channels attention_head_dim",
    "gated": "swiglu gated_mlp glu",
    "tied": "tie_word_embeddings tie_embeddings tied_embeddings tie_weights",
    "window": "sliding_window",
}
OWN: dict[str, dict[str, str]] = {
    "model": {
        **{f"model.{key}": names for key, names in DIMENSIONS.items()},
        "model.name": "model_name model_id hf_id base_model model_name_or_path name_or_path path checkpoint",
    },
    "layout": {
        "layout.precision": "policy precision_policy",
        "layout.loss": "loss_kernel cross_entropy",
        "layout.versions": "software_versions packages",
    },
    "method": {
        "method.kind": "type method adapter peft_type finetuning_type adapter_type training_method peft_method",
        "method.lora_rank": "rank r",
        "method.lora_alpha": "alpha",
        "method.lora_dropout": "dropout",
        "method.lora_targets": "target_modules targets lora_target_modules",
        "method.trainable_params": "trainable_parameters num_trainable_params trainable",
        "method.quantized": "quantization base_quantization",
    },
    "hardware": {
        "hardware.count": "n num number gpus devices",
        "hardware.per_node": "devices_per_node gpus_per_node",
        "hardware.interconnect": "internode inter_node node_interconnect fabric_words",
    },
    "rl": {
        "rl.algorithm": "algo rl_algorithm method",
        "rl.prompts": "prompts_per_step num_prompts rollout_batch_size",
        "rl.group": "responses_per_prompt",
        "rl.samples_per_step": "responses_per_step",
    },
    "quant": {
        "quant.weights": "weight_format weights_format format quantization quantized dtype",
        "quant.kv": "kv_cache cache",
    },
    "engine": {"engine.name": "engine software server framework", "engine.version": "release"},
    "load": {
        "load.mode": "scenario",
        "load.batch": "batch_size",
        "load.concurrency": "in_flight concurrent_requests max_concurrency users",
    },
    "measured": {"measured.run_seconds": "train_runtime"},
    "": {
        "device_hours": "gpu_hours accelerator_hours chip_hours tpu_hours",
        "organisation": "organization team lab",
        "params_active": "active_params activated_params",
        "params_total": "total_params",
        "accelerator": "chip",
    },
}
"""Block → key → names that people give it there, next to the option's synonyms; read where the schema has the key."""

STEMS = {
    "step_seconds": "step step_time iteration iteration_time iter_time time_per_step time_per_iteration step_duration",
    "run_seconds": "run run_time runtime train_runtime training_time wall_time wall_clock total_time elapsed duration",
    "gen_seconds": "gen generation generation_time gen_time rollout_time",
    "logprob_seconds": "logprob logprob_time log_prob",
    "update_seconds": "update update_time actor_update",
}
"""Measured time → what its names begin with where they end in a unit."""
SECONDS = {
    **dict.fromkeys(("ms", "milliseconds", "msec"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "seconds"), 1.0),
    **dict.fromkeys(("min", "mins", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hours"), 3600.0),
}
BYTES = {"gib": 2.0**30, "gb": 1e9, "mib": 2.0**20, "mb": 1e6, "tib": 2.0**40, "bytes": 1.0}
TELLING = f"{MEASURED_SPEEDS} {TUNED_SPEEDS} peak_bytes peak_bytes_per_gpu driver_bytes driver_mib"
"""Measured keys whose names say what they are anywhere."""
SIZED = re.compile(
    r"(?:(?:peak|max|gpu|memory|mem|vram|cuda|per|used|usage|allocated|reserved)_)*"
    r"(?P<unit>gib|gb|mib|mb|tib|bytes)(?:_per_gpu)?"
)
"""Names of measured memory: words for a peak of a GPU, and the unit."""
FIGURE = re.compile(r"allocated|reserved|used")


@record
class Meant:
    """What another name says: keys of the row with the values that they get, or why it is not read."""

    values: tuple[tuple[str, object], ...] = ()
    refused: str = ""


UNKNOWN = Meant()


def plain(name: str) -> str:
    """Return a name in lowercase with underscores."""
    return re.sub(r"[-\s]+", "_", name.strip().lower())


def meant_by(schema: str, block: str, name: str, value: object) -> Meant:
    """Return what a name in a block means with its value; UNKNOWN if nothing."""
    word = plain(name)
    path = _own(schema, block, word) or _of_another_block(schema, block, word)
    if path:
        return Meant(((path, value),))
    if block == "rl" and (several := blocks_of(schema, word)):
        return Meant(refused=f"write {' or '.join(f'{one}.{word}' for one in several)}")
    if block == "" and word in TELLING.split() and word in _read(schema, "measured"):
        return Meant(((f"measured.{word}", value),))
    if block in ("measured", "memory"):
        if several := blocks_of(schema, word):
            return Meant(refused=f"write {several[0]}.{word}")
        option = named(word.replace("_", "-"), PLACES[schema])
        place = PLACES[schema].get(option or "", "")
        return Meant(((place, value),)) if place.startswith(f"{block}.") else _with_unit(schema, block, word, value)
    several = blocks_of(schema, word)
    if len(several) > 1:
        return Meant(refused=f"write {' or '.join(f'{one}.{word}' for one in several)}")
    for option, (spellings, _) in VAGUE.items():
        if word.replace("_", "-") in spellings:
            return Meant(refused=f"a GPU's or the whole step's? write {option.replace('-', '_')} or global_batch")
    return _as_option(schema, word.replace("_", "-"), value)


def _own(schema: str, block: str, word: str) -> str:
    """Return the key of the block that has this name there; "" if none."""
    if word in _read(schema, block):
        return f"{block}.{word}" if block else word
    for path, names in OWN.get(block, {}).items():
        where, _, key = path.rpartition(".")
        if word in names.split() and key in (*_read(schema, where), *_silent(schema, where)):
            return path
    return ""


def _of_another_block(schema: str, block: str, word: str) -> str:
    """Return the key of the one block that describes the run and reads this name; "" if none or several do, or what is
    here is of the rollouts, whose degrees are their own."""
    if block not in ("", *RUN_BLOCKS) or block == "rl" or word in AMBIGUOUS:
        return ""
    found = blocks_of(schema, word)
    return f"{found[0]}.{word}" if len(found) == 1 else ""


def blocks_of(schema: str, word: str) -> list[str]:
    """Return the blocks that describe the run and read this name."""
    return [one for one in RUN_BLOCKS if word in _read(schema, one)]


AMBIGUOUS = (
    "name",
    "count",
    "kind",
    "load",
    "mode",
    "group",
    "shape",
    "note",
    "critic",
    "teacher",
    "prompts",
    "freeze",
)
"""Names that say little outside of their block."""


def _read(schema: str, block: str) -> list[str]:
    keys = KEYS[schema].get(block)
    return [] if keys is None else keys.read.split()


def _silent(schema: str, block: str) -> list[str]:
    keys = KEYS[schema].get(block)
    return [] if keys is None else keys.silent.split()


def _as_option(schema: str, spelling: str, value: object) -> Meant:
    """Return what a name of the command line's options, or of another tool's, says with its value."""
    places = PLACES[schema]
    option = spelling if spelling in places else named(spelling, places)
    if option is not None:
        return Meant(((places[option], value),))
    found = said_by(spelling, value)
    if found is None:
        return UNKNOWN
    if found.refusal:
        return Meant(refused=_in_keys(found.refusal))
    if any(name not in places for name, _ in found.options):
        return UNKNOWN
    return Meant(tuple((places[name], said or True) for name, said in found.options))


def _in_keys(hint: str) -> str:
    """Return a hint of the command line without the dashes of its options."""
    return hint.replace("--", "")


def _with_unit(schema: str, block: str, word: str, value: object) -> Meant:
    """Return a measured time or memory whose name ends in a unit, in the unit of the key."""
    bare = next((key for key, names in STEMS.items() if word in names.split()), "")
    if block == "measured" and bare in _read(schema, block):
        return Meant(refused=f"it has no unit; write {bare}")
    number = _number(value)
    if number is None:
        return UNKNOWN
    stem, _, unit = word.rpartition("_")
    key = next((key for key, names in STEMS.items() if stem in names.split()), "")
    if block == "measured" and key in _read(schema, block) and unit in SECONDS:
        return Meant(((f"measured.{key}", number * SECONDS[unit]),))
    sized, peak = SIZED.fullmatch(word), "peak_bytes" if block == "measured" else "bytes"
    if sized is None or peak not in _read(schema, block):
        return UNKNOWN
    what = FIGURE.search(word)
    said = ((f"{block}.what", what[0]),) if what else ()
    return Meant(((f"{block}.{peak}", round(number * BYTES[sized["unit"]])), *said))


def _number(value: object) -> float | None:
    from napkin.units import Unreadable, number

    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(number(str(value)))
    except Unreadable:
        return None


def places_of(mapping: Mapping[str, object], schema: str) -> list[str]:
    """Return the keys under which the values of an unknown block belong."""
    return [
        meant.values[0][0] for name, value in mapping.items() if (meant := meant_by(schema, "", name, value)).values
    ]
