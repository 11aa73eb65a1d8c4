"""Write a layout as a fragment of a framework's launch file, which `napkin read` reads as the same options."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from napkin.errors import NapkinError
from napkin.inputs.launch.names import AUTOCAST, FP16, FP32, MASTER, MEGATRON, PURE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

Options = Mapping[str, "Any"]
"""Options by name: gpus tp pp dp cp ep vp sp zero micro-batch global-batch grad-accum seq recompute precision model."""


def written(name: str, options: Options) -> str:
    """Return a fragment in a format. Raises NapkinError (2) for options that the format cannot express."""
    return WRITERS[name](options)


def _must(name: str, option: str, value: K, known: Mapping[K, V]) -> V:
    """Return the format's word for an option's value. Raises NapkinError (2) if it has none."""
    if value not in known:
        other = " or ".join(str(one) for one in known)
        raise NapkinError(f"{name} has no --{option} {value}", f"--{option} {other}")
    return known[value]


def _alone(name: str, options: Options, *degrees: str) -> None:
    """Raise NapkinError (2) if a degree that the format does not have is greater than 1."""
    for degree in degrees:
        _must(name, degree, options[degree], {1: 1})


def _torchtitan(options: Options) -> str:
    _alone("torchtitan", options, "vp")
    dtype, compute = _must(
        "torchtitan",
        "precision",
        options["precision"],
        {AUTOCAST: ("float32", "bfloat16"), PURE: ("bfloat16", "bfloat16"), FP32: ("float32", "float32")},
    )
    reshard = _must("torchtitan", "zero", options["zero"], {3: "always", 2: "never", 0: "default"})
    shards, copies = (1, options["dp"]) if options["zero"] == 0 else (options["dp"], 1)
    kind, _, number = str(options["recompute"]).partition(":")
    words = {
        "none": 'mode = "none"',
        "full": 'mode = "full"',
        "operations": 'mode = "selective"\nselective_ac_option = "op"',
        "every": f'mode = "selective"\nselective_ac_option = "{number}"',
    }
    local = options["micro-batch"] * (options["grad-accum"] if options["pp"] > 1 else 1)
    return f"""[training]
local_batch_size = {local}
global_batch_size = {options["global-batch"]}
seq_len = {options["seq"]}
dtype = "{dtype}"
mixed_precision_param = "{compute}"

[parallelism]
data_parallel_replicate_degree = {copies}
data_parallel_shard_degree = {shards}
fsdp_reshard_after_forward = "{reshard}"
tensor_parallel_degree = {options["tp"]}
pipeline_parallel_degree = {options["pp"]}
pipeline_parallel_microbatch_size = {options["micro-batch"]}
context_parallel_degree = {options["cp"]}
expert_parallel_degree = {options["ep"]}

[activation_checkpoint]
{_must("torchtitan", "recompute", kind, words)}
"""


def _megatron(options: Options) -> str:
    formats = {MEGATRON: ["--bf16"], MASTER: ["--bf16", "--grad-reduce-in-bf16"], FP16: ["--fp16"], FP32: []}
    sharded = {
        0: [],
        1: ["--use-distributed-optimizer"],
        2: ["--use-megatron-fsdp", "--data-parallel-sharding-strategy optim_grads"],
        3: ["--use-megatron-fsdp", "--data-parallel-sharding-strategy optim_grads_params"],
    }
    kind, _, number = str(options["recompute"]).partition(":")
    uniform = "--recompute-granularity full --recompute-method uniform --recompute-num-layers"
    again = {
        "none": [],
        "selective": [
            "--recompute-granularity selective",
            *([f"--recompute-modules {number.replace('+', ' ')}"] if number else []),
        ],
        "full": [f"{uniform} 1"],
        "group": [f"{uniform} {number}"],
    }
    lines = [
        f"--tensor-model-parallel-size {options['tp']}",
        f"--pipeline-model-parallel-size {options['pp']}",
        f"--context-parallel-size {options['cp']}",
        f"--expert-model-parallel-size {options['ep']}",
        *([f"--num-virtual-stages-per-pipeline-rank {options['vp']}"] if options["vp"] > 1 else []),
        *(["--sequence-parallel"] if options["sp"] and options["tp"] > 1 else []),
        *_must("Megatron-LM", "zero", options["zero"], sharded),
        f"--micro-batch-size {options['micro-batch']}",
        f"--global-batch-size {options['global-batch']}",
        f"--seq-length {options['seq']}",
        *_must("Megatron-LM", "recompute", kind, again),
        *_must("Megatron-LM", "precision", options["precision"], formats),
    ]
    each = min(8, options["gpus"])
    nodes = -(-options["gpus"] // each)
    head = f"torchrun --nproc_per_node {each} --nnodes {nodes} pretrain_gpt.py"
    return " \\\n  ".join([head, *lines]) + "\n"


def _deepspeed(options: Options) -> str:
    import json

    _alone("DeepSpeed", options, "tp", "pp", "cp", "ep", "vp")
    formats = {MASTER: "bf16", FP16: "fp16", FP32: ""}
    narrow = _must("DeepSpeed", "precision", options["precision"], formats)
    data: dict[str, Any] = {
        "train_batch_size": options["global-batch"],
        "train_micro_batch_size_per_gpu": options["micro-batch"],
        "gradient_accumulation_steps": options["grad-accum"],
        "zero_optimization": {"stage": options["zero"]},
    }
    if narrow:
        data[narrow] = {"enabled": True}
    return json.dumps(data, indent=2) + "\n"


def _fsdp(options: Options, checkpoint: bool) -> list[str]:
    """Return the FSDP block that accelerate and axolotl share."""
    lines = [
        "fsdp_config:",
        "  fsdp_version: 2",
        f"  fsdp_reshard_after_forward: {str(options['zero'] == 3).lower()}",
        "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP",
        "  fsdp_state_dict_type: SHARDED_STATE_DICT",
    ]
    return [*lines, *(["  fsdp_activation_checkpointing: true"] if checkpoint else [])]


def _accelerate(options: Options) -> str:
    _alone("accelerate", options, "pp", "ep", "vp")
    full = _must("accelerate", "recompute", options["recompute"], {"none": False, "full": True})
    _must("accelerate", "zero", options["zero"], {3: 3, 2: 2})
    _must("accelerate", "precision", options["precision"], {AUTOCAST: 1})
    lines = [
        "compute_environment: LOCAL_MACHINE",
        "distributed_type: FSDP",
        *_fsdp(options, full),
        "mixed_precision: bf16",
        f"num_machines: {max(options['gpus'] // 8, 1)}",
        f"num_processes: {options['gpus']}",
    ]
    if options["tp"] * options["cp"] > 1:
        lines += [
            "parallelism_config:",
            *(
                f"  parallelism_config_{name}_size: {size}"
                for name, size in (
                    ("dp_replicate", 1),
                    ("dp_shard", options["dp"]),
                    ("tp", options["tp"]),
                    ("cp", options["cp"]),
                )
            ),
        ]
    return "\n".join(lines) + "\n"


def _axolotl(options: Options) -> str:
    _alone("axolotl", options, "pp", "ep", "vp")
    full = _must("axolotl", "recompute", options["recompute"], {"none": "false", "full": "true"})
    stage = _must("axolotl", "zero", options["zero"], {3: 3, 2: 2, 0: 0})
    _must("axolotl", "precision", options["precision"], {AUTOCAST: 1} if stage else {PURE: 1})
    lines = [
        f"base_model: {options['model']}",
        f"micro_batch_size: {options['micro-batch']}",
        f"gradient_accumulation_steps: {options['grad-accum']}",
        f"sequence_len: {options['seq']}",
        f"gradient_checkpointing: {full}",
        "bf16: true",
        f"tensor_parallel_size: {options['tp']}",
        f"context_parallel_size: {options['cp']}",
    ]
    lines += [f"dp_shard_size: {options['dp']}", *_fsdp(options, False)] if stage else []
    return "\n".join(lines) + "\n"


WRITERS: dict[str, Callable[[Options], str]] = {
    "torchtitan": _torchtitan,
    "megatron": _megatron,
    "deepspeed": _deepspeed,
    "accelerate": _accelerate,
    "axolotl": _axolotl,
}
"""Format → its writer."""
