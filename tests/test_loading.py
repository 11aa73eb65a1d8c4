"""What each GPU holds while a checkpoint is quantized and loaded, before the ranks divide it, and the verdict on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import run_line

LINE = "memory llama3-8b --hardware rtx3090 --gpus 2 --framework fsdp --lora-rank 16 --seq 512 --recompute full"
EMBEDDING = 128_256 * 4_096
NORMS = (2 * 32 + 1) * 4_096
LINEAR = 32 * (2 * 4_096 * 4_096 + 2 * 4_096 * 1_024 + 3 * 4_096 * 14_336)
ADAPTERS = 16 * 32 * (2 * 2 * 4_096 + 2 * (4_096 + 1_024) + 3 * (4_096 + 14_336))


def notes_of(more: str) -> list[str]:
    found = run_line(f"{LINE} {more} --json").data["notes"]
    return [note for note in found if note.startswith("while loading")]


def test_every_process_loads_all_quantized_weights_before_they_are_divided() -> None:
    """nf4: half a byte and an fp32 scale of 64 weights; embedding, head, norms and adapters in bf16."""
    (note,) = notes_of("--zero 3 --quantized nf4 --precision bf16-pure")
    whole = LINEAR * (0.5 + 4 / 64) + 2 * (2 * EMBEDDING + NORMS + ADAPTERS)
    said = float(note.split(": ")[1].split(" ")[0]) * 1e9
    assert said == pytest.approx(whole, rel=0.01)
    assert "fsdp_cpu_ram_efficient_loading" in note


@pytest.mark.parametrize("more", ["--zero 3", "--zero 2 --quantized nf4", "--zero 1 --quantized int8"])
def test_weights_that_are_not_quantized_or_not_divided_say_nothing_of_loading(more: str) -> None:
    assert notes_of(more) == []


LARGE = "memory llama2-70b --hardware rtx3090 --gpus 4 --zero 3 --framework fsdp --quantized nf4 --lora-rank 16"
CLOSE = f"{LARGE} --offload parameters,optimizer --seq 512 --recompute full"


@pytest.mark.parametrize(
    ("more", "verdict", "status"),
    [
        ("", "too close to call", 4),  # whether 37 GB are on a GPU of 24 is not stated
        ("--loading gpu", "does not fit", 1),
        ("--loading host", "fits", 0),
    ],
)
def test_a_load_that_exceeds_the_gpu_is_part_of_the_verdict(more: str, verdict: str, status: int) -> None:
    found = run_line(f"{CLOSE} {more} --must-fit --json")
    assert (found.data["verdict"], found.status) == (verdict, status)
    assert ("memory/loading" in found.values) == (more != "--loading host")
    assert found.values["memory/used"] < 24e9
    assert ("--loading host" in run_line(f"{CLOSE} {more}").out) == (verdict != "fits")


def test_a_load_that_fits_changes_no_verdict() -> None:
    line = f"{LINE} --zero 3 --quantized nf4"
    everywhere, waiting = (run_line(f"{line} --loading {place} --json").data for place in ("gpu", "host"))
    assert everywhere["verdict"] == waiting["verdict"] == "fits"


@pytest.mark.parametrize("more", ["--zero 3", "--zero 2 --quantized nf4", "--zero 2 --quantized nf4 --max micro-batch"])
def test_where_nothing_waits_to_be_divided_its_place_is_refused(more: str) -> None:
    assert run_line(f"{LINE} {more} --loading gpu").status == 2


AXOLOTL = """base_model: meta-llama/Meta-Llama-3-70B
load_in_4bit: true
adapter: qlora
lora_r: 16
lora_target_linear: true
sequence_len: 512
micro_batch_size: 1
gradient_accumulation_steps: 4
optimizer: adamw_torch
bf16: true
gradient_checkpointing: true
fsdp: [full_shard, auto_wrap]
fsdp_config: {fsdp_offload_params: true, fsdp_cpu_ram_efficient_loading: PLACE}
"""


@pytest.mark.parametrize(("stated", "verdict"), [("false", "does not fit"), ("true", "too close to call")])
def test_a_file_that_has_every_process_load_all_says_so(tmp_path: Path, stated: str, verdict: str) -> None:
    """With it, whether weights wait on the host depends on the release of transformers."""
    path = tmp_path / "qlora.yaml"
    path.write_text(AXOLOTL.replace("PLACE", stated))
    line = f"--from {path} --gpus 4"
    assert run_line(f"memory {line} --hardware rtx4090 --json").data["verdict"] == verdict
    assert run_line(f"memory {line} --hardware h200 --max micro-batch").status == 0
    assert run_line(f"step {line} --hardware rtx4090").status == 0


@pytest.mark.parametrize("more", ["", " --loading gpu"])
def test_suggestions_fit_while_they_are_loaded_too(more: str) -> None:
    """All 70 billion parameters in four bits are more than the card holds, on however many cards they are divided."""
    job = "llama3-70b --lora-rank 16 --quantized nf4 --gpus 4 --hardware rtx4090"
    line = f"memory {job} --zero 3 --recompute full{more}"
    rows = run_line(f"{line} --seq 1024 --json").data["suggestions"]
    assert any("--loading host" in row["command"] for row in rows)
    for row in rows:
        assert run_line(f"{row['command'].removeprefix('napkin ')} --must-fit").status == 0


PLACES = ["", " --loading gpu", " --loading host"]
QLORA = "llama2-70b --hardware rtx3090 --framework fsdp --quantized nf4 --lora-rank 16 --seq 512 --recompute full"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("gpus", ["--gpus 4", "--gpus 16", "--gpus 4 --hardware a100"])
def test_no_command_calls_fitting_what_memory_does_not(place: str, gpus: str) -> None:
    """Each answer, put back into memory, has the verdict that the command gave."""
    job = f"{QLORA} {gpus}{place}"
    found = run_line(f"memory {job} --zero 3 --max micro-batch --json").data
    largest = int(found["values"]["max/micro_batch"]) or 1
    assert run_line(f"memory {job} --zero 3 --micro-batch {largest} --json").data["verdict"] == found["verdict"]
    surely = int(found["low"]["max/micro_batch"])
    assert not surely or run_line(f"memory {job} --zero 3 --micro-batch {surely} --must-fit").status == 0
    step = run_line(f"step {job} --zero 3 --json").data["notes"]
    memory = run_line(f"memory {job} --zero 3 --json").data["verdict"]
    assert any(note.startswith(f"memory: {memory}") for note in step) == (memory != "fits")


@pytest.mark.parametrize(
    ("place", "verdict"),
    [("", "too close to call"), (" --loading gpu", "impossible"), (" --loading host", "too close to call")],
)
def test_plan_lists_layouts_with_the_verdict_that_memory_gives(place: str, verdict: str) -> None:
    """On GPUs of 24 GB and of 48 GB: only the latter hold 41 GB of weights."""
    for gpu, said in (("rtx3090", verdict), ("a40", "fits")):
        found = run_line(f"plan {QLORA.replace('rtx3090', gpu)} --gpus 4{place} --zero 3 --tp 1 --json")
        assert found.data["verdict"] == said
        for row in found.data["rows"][:3]:
            layout = row["command"].split("napkin step ")[1].replace(" --stack fsdp-eager", "")
            assert run_line(f"memory {layout} --json").data["verdict"] == row["fit"]
    assert ("while loading" in found.out) == (place != " --loading host")


def test_the_fewest_gpus_hold_the_weights_that_each_loads() -> None:
    """37 GB of weights on a GPU of 24, on however many GPUs they are divided afterwards."""
    job = f"memory {QLORA} --zero 3 --min gpus"
    unstated, everywhere, waiting = (run_line(f"{job}{place} --json") for place in PLACES)
    assert unstated.data["verdict"] == "too close to call"
    assert waiting.data["verdict"] == "fits"
    assert unstated.values["gpus"] == waiting.values["gpus"]
    assert everywhere.status == 1
    assert "--loading host" in everywhere.err


def test_what_plan_suggests_says_where_weights_wait() -> None:
    """A suggestion of plan is one that memory calls fitting: weights that do not all fit on a GPU wait in host memory
    until ranks divide them."""
    asked = "llama3-70b --seq 512 --hardware rtx-3090 --gpus 2 --zero 3 --framework fsdp --lora-rank 8 --quantized nf4"
    found = run_line(f"plan {asked} --json").data["suggestions"]
    assert found
    for one in found:
        assert "--loading host" in one["change"]
        assert run_line(f"{one['command'].removeprefix('napkin ')} --json").data["verdict"] == "fits"
