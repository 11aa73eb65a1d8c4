"""Nodes, the GPUs of a node and gradient accumulation: every spelling of one machine and one batch gives one answer."""

from __future__ import annotations

import pytest

from .conftest import run_line


def values(line: str) -> dict[str, float]:
    found = run_line(f"{line} --json")
    assert found.status == 0, found.err
    return dict(found.values)


@pytest.mark.parametrize(
    "question",
    [
        "memory llama3-8b --zero 3",
        "step llama3-8b --zero 3 --hardware h100",
        "plan gpt2 --hardware h100 --global-batch 64",
        "train-time llama3-8b --tokens 1T --hardware h100",
        "train-time llama3-8b --tokens 1T --hardware h100 --tp 2 --global-batch 64 --seq 4096",
        "mfu llama3-8b --tokens-per-second 90000 --hardware h100 --seq 4096",
        "max-params --hardware h100",
        "memory llama3-8b --inference --hardware h100",
    ],
)
def test_nodes_of_gpus_are_gpus(question: str) -> None:
    plain = values(f"{question} --gpus 16")
    for spelled in (
        "--nodes 2 --gpus-per-node 8",
        "--nnodes 2 --nproc-per-node 8",
        "--gpus 16 --nodes 2 --gpus-per-node 8",
        *(("--nodes 2", "--gpus 16 --nodes 2") if "--hardware" in question else ()),
    ):
        assert values(f"{question} {spelled}") == plain, spelled


def test_the_gpus_of_one_node_are_all_gpus() -> None:
    assert values("memory llama3-8b --nproc-per-node 8") == values("memory llama3-8b --gpus 8")
    found = run_line("memory llama3-8b --nproc-per-node 8 --json").data["inputs"]
    assert (found["gpus"]["value"], found["gpus"]["origin"]) == (8, "derived")


def test_smaller_nodes_are_slower() -> None:
    times = [
        values(f"step llama3-8b --gpus 24 --zero 3 --hardware h100 --gpus-per-node {node}")["step/time"]
        for node in (24, 12, 8, 6, 3, 1)
    ]
    assert times == sorted(times)
    assert times[0] < times[-1]
    assert times[2] == values("step llama3-8b --gpus 24 --zero 3 --hardware h100")["step/time"]


@pytest.mark.parametrize(
    ("line", "says", "hint"),
    [
        ("step gpt2 --gpus 12 --nodes 2 --gpus-per-node 8 --hardware h100", "= 16", "leave out --gpus"),
        ("step gpt2 --gpus 16 --nodes 3 --hardware h100", "not a multiple of --nodes 3", "--gpus 15 is"),
        ("memory gpt2 --nodes 2", "--nodes needs --gpus-per-node", "--gpus-per-node 8"),
        ("memory gpt2 --num_gpus 8 --num_nodes 2", "of each node, or of all nodes together?", "--gpus-per-node 8"),
        ("memory gpt2 --nodes 2 --min gpus --hardware h100", "cannot be combined", "leave out"),
        ("memory gpt2 --gpus 16 --gpus-per-node 4", "--gpus-per-node has no effect here", "leave it out"),
        ("step gpt2 --gpus 8 --grad-accum 4 --global-batch 16 --hardware h100", "grad-accum = 32", "leave out"),
    ],
)
def test_what_does_not_agree_is_refused(line: str, says: str, hint: str) -> None:
    found = run_line(line)
    assert found.status == 2
    assert says in found.err
    assert hint in found.err


@pytest.mark.parametrize(
    "question",
    [
        "memory llama3-8b --gpus 8 --tp 2 --micro-batch 2",
        "step llama3-8b --gpus 8 --tp 2 --micro-batch 2 --hardware h100",
        "train-time llama3-8b --tokens 1T --gpus 8 --tp 2 --micro-batch 2 --hardware h100",
        "mfu llama3-8b --step-time 5s --gpus 8 --tp 2 --micro-batch 2 --hardware h100 --seq 4096",
    ],
)
def test_accumulation_is_the_batch_over_what_one_pass_has(question: str) -> None:
    """2 sequences × 4 data-parallel ranks × 3 micro-batches = 24 sequences."""
    whole = run_line(f"{question} --global-batch 24 --json")
    for spelled in ("--grad-accum 3", "--gradient-accumulation-steps 3", "--grad-accum 3 --global-batch 24"):
        found = run_line(f"{question} {spelled} --json")
        assert found.values == whole.values
        assert found.data["inputs"]["global-batch"]["value"] == 24
    assert whole.data["inputs"]["grad-accum"]["value"] == 3 if "mfu" not in question else True


def test_a_search_keeps_the_given_accumulation() -> None:
    found = run_line("plan gpt2 --gpus 4 --hardware h100 --global-batch 64 --grad-accum 4 --rows 50 --json")
    assert found.data["rows"]
    assert {row["dp"] * row["micro-batch"] * 4 for row in found.data["rows"]} == {64}
    free = run_line("plan gpt2 --gpus 4 --hardware h100 --grad-accum 4 --rows 50 --json")
    assert all(row["global-batch"] == row["dp"] * row["micro-batch"] * 4 for row in free.data["rows"])


def test_several_counts_of_gpus_and_one_of_nodes() -> None:
    line = "plan gpt2 --gpus 8..16 --hardware h100 --seq 1024 --quiet"
    assert run_line(f"{line} --gpus-per-node 1").status == 0
    assert run_line(f"{line} --nodes 2").errors == [
        "error: a contradiction: several --gpus and one number of --nodes, 2"
    ]


@pytest.mark.parametrize("nodes", ["--gpus-per-node 4", "--nodes 16"])
def test_hosts_of_a_rack_do_not_divide_its_link(nodes: str) -> None:
    """An NVL72 has 18 hosts of four GPUs; experts on 64 of its GPUs exchange tokens over the link."""
    line = "step deepseek-v3 --gpus 64 --hardware gb200 --framework megatron-core --ep 64 --json"
    rack, hosts = run_line(line), run_line(f"{line} {nodes}")
    assert hosts.values["step/time"] == rack.values["step/time"]
    assert any("joins 72 GPUs across hosts of 4" in note for note in hosts.data["notes"])
    assert run_line(f"{line} --gpus-per-node 32").values["step/time"] > rack.values["step/time"]


def test_a_host_of_a_rack_has_its_own_memory() -> None:
    line = "memory llama3-70b --gpus 8 --hardware gb200 --zero 1 --offload optimizer --json"
    assert run_line(f"{line} --gpus-per-node 4 --host-memory 900GB").values["memory/host/capacity"] == 900e9
