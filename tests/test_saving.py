"""Gathering the complete state to save it, and what a node's host holds of what it has."""

from __future__ import annotations

import json

import pytest

from tests.conftest import run_line

LINE = "memory llama3.1-8b --task sft --gpus 8 --zero 3 --framework fsdp --precision amp-bf16 --hardware h100 --seq 512"
PARAMS = 8_030_261_248
ENDS = 2 * 128_256 * 4_096 + 4_096
"""Elements of embedding, head and the last norm: the unit that FSDP wraps everything else in, its largest."""


def test_a_full_state_is_gathered_unit_by_unit_on_the_first_ranks_host() -> None:
    """fp32 weights and Adam's two states of all ranks on the host; on a GPU its eighth of them and the largest unit."""
    found = run_line(f"{LINE} --save full --json").values
    assert found["memory/host/save"] == pytest.approx((4 + 8) * PARAMS, rel=1e-6)
    assert found["memory/host"] == found["memory/host/save"]
    assert found["memory/at/save"] == pytest.approx((4 + 8) * PARAMS / 8 + 4 * ENDS, rel=1e-4)


def test_torchs_default_gathers_all_weights_on_every_gpu() -> None:
    """The classic that is out of memory at the end: 4 bytes for each parameter next to a step's own states."""
    one, all_of_them = (run_line(f"{LINE} --save {how} --json").values for how in ("full", "full-on-gpu"))
    assert all_of_them["memory/at/save"] - one["memory/at/save"] == pytest.approx(4 * PARAMS, rel=1e-6)
    assert all_of_them["memory/live"] == all_of_them["memory/at/save"] > one["memory/live"]
    assert "memory/host" not in all_of_them


def test_deepspeed_gathers_the_weights_in_16_bits() -> None:
    found = run_line(f"{LINE} --save full --json".replace("amp-bf16", "bf16-mixed").replace("fsdp", "deepspeed")).values
    assert found["memory/host/save"] == pytest.approx(2 * PARAMS, rel=1e-6)


def test_a_hosts_memory_is_that_of_all_its_gpus() -> None:
    """Adam's states of 8 bytes for each parameter, of which 16 GPUs on 2 nodes offload half to each host."""
    line = LINE.replace("--gpus 8", "--gpus 16 --gpus-per-node 8")
    found = run_line(f"{line} --offload optimizer --host-memory 64GB --json").values
    assert found["memory/host"] == pytest.approx(8 * PARAMS / 2, rel=1e-4)
    assert found["memory/host/capacity"] == 64e9


@pytest.mark.parametrize(
    ("asked", "status", "says"),
    [
        ("--save full --host-memory 128GB --must-fit", 0, "per node"),
        ("--save full --host-memory 64GB --must-fit", 1, "per node does not fit"),
        ("--host-memory 64GB", 2, "nothing is kept in the host's memory"),
        ("--save full --tp 2", 3, "not modeled"),
        ("--save full --host-memory 1TB --max micro-batch", 2, "ask different things"),
    ],
)
def test_a_host_is_judged_where_something_is_kept_there(asked: str, status: int, says: str) -> None:
    found = run_line(f"{LINE} {asked}")
    assert found.status == status, found.err
    assert says in (found.out if status < 2 else found.err)


def test_a_master_copy_is_saved_with_the_states() -> None:
    """bf16 weights, and in fp32 the copy that the optimizer updates and its two moments: what `checkpoint` counts."""
    found = run_line(
        f"{LINE} --save full --json".replace("amp-bf16", "bf16-mixed").replace("--framework fsdp", "")
    ).values
    assert found["memory/host/save"] == pytest.approx(14 * PARAMS, rel=1e-6)


def test_what_would_fit_saves_as_well() -> None:
    """A suggestion fits in every phase, the saving too: 135 GiB of gathered weights are on no GPU of 80 GB."""
    line = "memory llama3-70b --hardware h100 --gpus 32 --zero 3 --recompute full --save full-on-gpu"
    found = json.loads(run_line(f"{line} --json").out)
    assert found["verdict"] == "does not fit"
    assert found["suggestions"][0]["change"] == "--save full"
    for row in found["suggestions"]:
        again = json.loads(run_line(f"{row['command'].removeprefix('napkin ')} --json").out)
        assert (again["verdict"], again["values"]["memory/used"]) == ("fits", row["used"]), row["command"]


def test_a_host_that_is_too_small_is_the_answer() -> None:
    """The GPU has room, its node's host has not: 12 bytes of states for each parameter."""
    asked = "memory llama3-8b --hardware h100 --gpus 8 --zero 3 --offload optimizer --host-memory 64GB"
    out = run_line(asked).out
    assert out.splitlines()[1].startswith("  DOES NOT FIT the host   89.7 of 59.6 GiB per node")
    assert pytest.approx(89.7, abs=0.05) == 12 * PARAMS / 2**30
    assert out.endswith("next: napkin memory llama3-8b --hardware h100 --gpus 8 --zero 3\n")


def test_what_is_not_divided_is_not_gathered() -> None:
    found = run_line("memory llama3.1-8b --hardware h200 --save full")
    assert found.status == 2
    assert "every rank has the complete weights" in found.err
