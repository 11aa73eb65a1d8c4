"""Read a launcher's GPU count, and find layouts and batches that do not divide."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.values import flag, product, whole

NODES = ("nnodes", "num_nodes", "sbatch.nodes")
EACH = ("nproc_per_node", "num_gpus", "sbatch.gpus_per_node", "sbatch.ntasks_per_node", "sbatch.gres")
"""Keys of launchers and Slurm for nodes and processes per node, in order of precedence."""
ALLOCATED = "sbatch.allocated_nodes"
"""Nodes of a batch script that starts nothing on each of them. Slurm runs the script itself on the first node alone
(sbatch(1)), so whether the others take part is not in the file."""


GPUS = ("gpus", "nodes", "dp", "tp", "pp", "cp", "ep")
BATCH = ("global-batch", "micro-batch", "grad-accum", *GPUS)
"""Options involved in a contradiction about GPUs or about the batch."""


def take_machine(reading: Reading) -> None:
    """Read the GPU count, nodes × processes per node, from the launcher or the #SBATCH lines."""
    nodes = next((key for key in NODES if reading.find(key) is not None), None)
    each = next((key for key in EACH if reading.find(key) is not None), None)
    if _take_slots(reading) or each is None:
        return
    count = reading.read(each, whole)
    machines = reading.read(nodes, lambda value: whole(str(value).split(":")[0])) if nodes else 1
    keys = [each, *([nodes] if nodes else ())]
    if nodes is None and ALLOCATED in reading.source:
        reading.ask("gpus", each, ALLOCATED)
    elif count is None or machines is None:
        reading.ask("gpus", *keys)
    elif nodes is None and each == "nproc_per_node":
        reading.derive("gpus", count, each)
    else:
        reading.derive("gpus", count * machines, *keys)


def _take_slots(reading: Reading) -> bool:
    """Read the GPUs that DeepSpeed's launcher selects: `--include localhost:0,1@worker-1:0,2`. Return whether it does.

    A host without slots counts all of its GPUs, and --exclude leaves the rest, which the line does not tell
    (deepspeed/launcher/runner.py, parse_resource_filter).
    """
    key = next((one for one in ("include", "exclude") if reading.find(one) is not None), None)
    if key is None or "deepspeed" not in reading.source.command:
        return False
    hosts = [one.partition(":")[2].split(",") for one in str(reading.source.plain(key)).split("@")]
    if key == "include" and all(slot.strip().isdecimal() for slots in hosts for slot in slots):
        reading.derive("gpus", sum(map(len, hosts)), key)
    else:
        reading.ask("gpus", key)
    return True


def take_hybrid(reading: Reading, key: str) -> None:
    """Read the ranks that divide states under HYBRID_SHARD: the GPUs of a node (torch 2.13,
    distributed/fsdp/_init_utils.py, _init_intra_node_process_group), asked for where the file does not tell them."""
    nodes = next((one for one in ("num_machines", *NODES) if reading.find(one) is not None), None)
    machines = reading.read(nodes, lambda value: whole(str(value).split(":")[0])) if nodes else 1
    gpus = reading.value_of("gpus")
    if gpus is None or not machines or gpus % machines:
        reading.ask("dp-shard", key)
    else:
        reading.derive("dp-shard", gpus // machines, key, *([nodes] if nodes else []))


def leave_frozen_open(reading: Reading) -> None:
    """Leave the precision open where the format of the frozen weights is: a policy would state a format for them."""
    held, policy = reading.inputs.get("quantized"), reading.inputs.get("precision")
    if held is not None and held.value is None and policy is not None and "frozen=" in str(policy.value):
        reading.ask("precision", *(policy.where.split(", ")[:1] or [held.where]))


def take_launcher(reading: Reading) -> None:
    """Read the GPU count of a launch line, where its format has none of its own: its options or environment."""
    line = reading.source.parts or reading.source.syntax == "shell"
    if not line or reading.inputs.get("gpus") is not None:
        return
    if any(one in reading.source for one in EACH):
        take_machine(reading)
    elif "num_processes" in reading.source:
        reading.take("gpus", "num_processes", whole)
    elif not _take_srun(reading) and not _take_mpi(reading):
        take_environment(reading)


def _take_mpi(reading: Reading) -> bool:
    """Read the processes of mpirun, `-np 8`, or of MindSpore's msrun: `--worker_num 8`. Return whether there are."""
    launchers = {"np": ("mpirun", "mpiexec"), "n": ("mpirun", "mpiexec"), "worker_num": ("msrun",)}
    key = next((one for one in launchers if one in reading.source), None)
    if key is None or not set(launchers[key]) & set(reading.source.command):
        return False
    reading.take("gpus", key, whole)
    return True


def _take_srun(reading: Reading) -> bool:
    """Read the GPUs of Slurm's srun from its own options: nodes × GPUs or tasks of a node. Return whether there are."""
    each = [one for one in ("gpus_per_node", "gres", "ntasks_per_node") if reading.find(one) is not None]
    if "srun" not in reading.source.command or "nodes" not in reading.source or not each:
        return False
    sizes = [reading.read(one, lambda value: whole(str(value).rpartition(":")[2])) for one in each]
    nodes = reading.read("nodes", whole)
    if nodes and all(sizes) and len(set(sizes)) == 1:
        reading.derive("gpus", product([nodes, sizes[0] or 1]), "nodes", *each)
    else:
        reading.ask("gpus", "nodes", *each)
    return True


EACH_VISIBLE = ("llamafactory-cli", "deepspeed")
"""Launchers that start a process on each visible GPU of a node unless told otherwise: LLaMA-Factory's
src/llamafactory/launcher.py, deepspeed/launcher/runner.py."""


def take_environment(reading: Reading, visible: Sequence[str] = EACH_VISIBLE) -> None:
    """Read the GPU count from the environment that a script sets: NPROC_PER_NODE × NNODES, or the visible GPUs.

    visible  commands that start a process on each of these
    """
    around = reading.source.environment
    starts = any(one.rsplit("/", 1)[-1] in visible for one in reading.source.command)
    each = "NPROC_PER_NODE" if "NPROC_PER_NODE" in around else "CUDA_VISIBLE_DEVICES" if starts else ""
    if each not in around:
        return
    listed = [one.strip() for one in around[each].split(",")]
    keys = (each, *(["NNODES"] if "NNODES" in around else []))
    if all(one.isdecimal() for one in (*listed, around.get("NNODES", "1"))):
        count = int(around[each]) if each == "NPROC_PER_NODE" else len(listed)
        reading.derive("gpus", count * int(around.get("NNODES", "1")), *keys)
    else:
        reading.ask("gpus", *keys)


def check_gpus(reading: Reading, *keys: str) -> None:
    """Report a contradiction if the file's parallel degrees do not divide its GPU count."""
    gpus = reading.value_of("gpus")
    if gpus is None:
        return
    (dense, layers), (spread, experts) = _ranks(reading, "tp", "pp", "cp"), _ranks(reading, "pp", "ep", "etp")
    needed, words = (dense, layers) if dense >= spread else (spread, experts)
    if gpus < needed or gpus % dense:
        what = f", but {words} needs {needed}" if gpus < needed else f" are not a multiple of {layers}"
        reading.contradict(keys[0] if keys else "gpus", f"{gpus} GPUs{what}", *GPUS)


def _ranks(reading: Reading, *names: str) -> tuple[int, str]:
    """Return the ranks that these degrees take together, and the product in words."""
    sizes = {name: int(reading.value_of(name) or 1) for name in names}
    return product(list(sizes.values())), " × ".join(f"{name} {size}" for name, size in sizes.items() if size > 1)


def check_batch(reading: Reading, key: str) -> None:
    """Report a contradiction if the global batch is not a multiple of micro-batch × data-parallel ranks."""
    total, micro, gpus = (reading.value_of(name) for name in ("global-batch", "micro-batch", "gpus"))
    if not total or not micro:
        return
    ranks = reading.value_of("dp")
    if ranks is None and gpus is not None:
        dense = product([reading.value_of(name) or 1 for name in ("tp", "pp", "cp")])
        ranks = gpus // dense if gpus >= dense else None
    if ranks and total % (micro * ranks):
        reading.contradict(
            key, f"a global batch of {total} is not a multiple of micro-batch {micro} × {ranks} ranks", *BATCH
        )
    elif total < micro:
        reading.contradict(key, f"a global batch of {total} is smaller than a micro-batch of {micro}", *BATCH)


def refuse_prediction(reading: Reading) -> None:
    """Refuse a run of a Hugging Face program that predicts and does not train."""
    if reading.read("do_predict", flag) and not reading.read("do_train", flag):
        reading.refuse("do_predict", "do_predict without do_train: no training step is run")


def take_heads_exchanged(reading: Reading, keys: str, read: Callable[[object], int | None] = whole) -> None:
    """Read context-parallel ranks that exchange heads for tokens, as Ulysses does.

    keys  spellings, separated by |
    """
    ranks = reading.take("cp", keys, read)
    if ranks and ranks > 1:
        reading.inputs["ulysses"] = reading.inputs["cp"]
