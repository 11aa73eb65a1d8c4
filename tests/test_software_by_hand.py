"""What a software stack sends and overlaps, and what an accelerator's power takes from its clock: by hand."""

from __future__ import annotations

import os

import pytest

from napkin.evidence.predictions.step_inputs import gathered_bytes
from napkin.evidence.rates.constants import constants
from napkin.evidence.rates.machines import machine
from napkin.evidence.rates.of_step import SYNCHRONOUS, Asynchronous, constant_names, early_of
from napkin.evidence.rates.priors import PRIORS
from napkin.evidence.rows.fields import accelerator_of
from napkin.evidence.rows.row import RowFields
from napkin.evidence.software import stacks
from napkin.inputs import hardware
from napkin.inputs.load import Document
from napkin.options.training import OVERLAPS
from napkin.training.precision import POLICIES
from tests.conftest import ROOT, run_line


@pytest.mark.parametrize(
    ("policy", "zero", "low", "wanted"),
    [
        ("bf16-mixed", 1, True, 2),
        ("fp8-mixed", 1, True, 1),
        ("mxfp8-mixed", 1, True, 1),
        ("nvfp4-mixed", 1, True, 2),  # FP8_PARAM_GATHER=False where linear layers multiply 4 bits
        ("fp8-mixed", 1, False, 2),
        ("amp-bf16", 1, True, 4),
        ("amp-bf16", 3, True, 2),  # FSDP gathers its fp32 shards in the compute type
    ],
)
def test_bytes_of_a_parameter_as_ranks_gather_it(policy: str, zero: int, low: bool, wanted: int) -> None:
    assert gathered_bytes(POLICIES[policy], zero, low) == wanted


def test_every_software_stack_has_a_factor() -> None:
    """A stack without published rows keeps its prior; editions share the factor of their software."""
    wanted = {f"stack/{one.family}" for one in (*stacks.STACKS.values(), stacks.stack(stacks.UNKNOWN))}
    assert wanted == {name for name in PRIORS if name.startswith("stack/")}
    assert wanted == {name for name in constants() if name.startswith("stack/")}
    assert "stack/megatron-core" in wanted


def test_the_page_names_every_software_stack() -> None:
    with open(os.path.join(ROOT, "docs", "step-time.md"), encoding="utf-8") as file:
        page = file.read()
    assert [name for name in (*stacks.STACKS, stacks.UNKNOWN) if f"`{name}`" not in page] == []


def test_a_step_sends_what_its_software_says() -> None:
    """Of n = 8 ranks 7/8 of 8,030,261,248 parameters: 2 bytes of a gradient and 1 of a parameter in 8 bits under NeMo
    as MLPerf runs it, 2 under Megatron-core; 4 and 2 under nanotron."""
    line = "step llama3-8b --gpus 8 --hardware h100 --seq 8192 --zero 1 --precision fp8-mixed --json --explain --stack"
    for stack, scattered, gathered in (("megatron-mlperf", 2, 1), ("megatron-core", 2, 2), ("nanotron", 4, 2)):
        terms = run_line(f"{line} {stack}").data["terms"]
        assert terms["data/bytes"]["value"] == pytest.approx(scattered * 7 / 8 * 8_030_261_248)
        assert terms["data/gathered_bytes"]["value"] == pytest.approx(gathered * 7 / 8 * 8_030_261_248)


def test_what_data_parallelism_overlaps() -> None:
    """overlap_grad_reduce and overlap_param_gather of Megatron-core; nanotron gathers after its step."""
    found = {name: early_of(stacks.stack(name)) for name in ("megatron", "megatron-core", "nanotron")}
    assert {name: (one.reduces, one.gathers) for name, one in found.items()} == {
        "megatron": (0, 0),
        "megatron-core": (1, 1),
        "nanotron": (1, 0),
    }
    stated = {word: early_of(stacks.stack("nanotron"), word) for word in ("none", "gradients", "both")}
    assert {word: (one.reduces, one.gathers) for word, one in stated.items()} == {
        "none": (0, 0),
        "gradients": (1, 0),
        "both": (1, 1),
    }


def test_data_parallelism_that_does_not_overlap_is_waited_for() -> None:
    line = "step llama3-8b --gpus 64 --hardware a100 --network-bandwidth 25GB/s --zero 1 --global-batch 64 --seq 4096"
    runs = [run_line(f"{line} --stack megatron-core --json --explain --async-dp {word}") for word in OVERLAPS]
    nothing, gradients, both = (run.values["step/time"] for run in runs)
    assert nothing > gradients > both
    terms = runs[0].data["terms"]
    sent, gathered = (terms[f"data/{name}"]["value"] for name in ("bytes", "gathered_bytes"))
    assert sent == gathered == 63 / 64 * 2 * 8_030_261_248


@pytest.mark.parametrize(
    ("chip", "wanted"),
    [
        ("MI300X", 1.0),
        ("MI355X", (1400 / 2516.6) / (750 / 1307.4)),
        ("MI350X", (1000 / 2306.9) / (750 / 1307.4)),
        ("V100 SXM2 32GB", 1.0),
        ("V100 SXM2 32GB LS", 163 / 300),
        ("V100 PCIe 32GB", (250 / 112) / (300 / 125)),
    ],
)
def test_watts_for_a_flop_over_those_of_the_generations_reference(chip: str, wanted: float) -> None:
    found = hardware.find(chip)
    assert machine(found, found.default_dtype).power == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize(
    ("chip", "accelerator", "wanted"),
    [
        ("V100 SXM2 32GB", "Tesla V100-SXM2-32GB-LS", "Tesla V100-SXM2-32GB-LS"),
        ("A100 SXM 80GB", "A100", "A100 SXM 80GB"),  # a family's name says less
        ("H100 SXM 96GB 500W", "H100 96GB (30.99 GiB printed as 32.62 percent)", "H100 SXM 96GB 500W"),
        ("", "NVIDIA GeForce GTX TITAN X", "NVIDIA GeForce GTX TITAN X"),
        ("GH200 96GB", "", "GH200 96GB"),
        ("", "", ""),
    ],
)
def test_the_product_that_a_device_prints_says_more_than_its_class(chip: str, accelerator: str, wanted: str) -> None:
    row = RowFields(Document("rows", None), 0, {"hardware": {"chip": chip, "accelerator": accelerator}})
    assert accelerator_of(row) == wanted


def test_fsdp_joins_and_divides_gradients_in_16_bits_too() -> None:
    """8 bytes a weight and micro-batch, where a GPU that has all of them reads and writes a sum once: 4. Gradients of
    a unit are joined (read 2, written 2) and divided (2, 2); a rank sums those of its shard alone."""
    line = "step llama3-8b --gpus 8 --precision bf16-pure --hardware h100 --grad-accum 2 --stack fsdp-eager --json"
    path = "step/memory_bound/accumulation"
    whole, sharded = (run_line(f"{line} --zero {stage}").values[path] for stage in (0, 3))
    assert sharded / whole == pytest.approx((2 + 2 + 2 + 2) / (2 + 2))


@pytest.mark.parametrize(("stack", "copies"), [("fsdp-compiled", True), ("xla", False), ("megatron-core", False)])
def test_whose_zero_3_copies_in_and_out_of_flat_buffers(stack: str, copies: bool) -> None:
    line = f"step llama3-8b --gpus 8 --hardware h100 --stack {stack} --json --zero"
    whole, sharded = (run_line(f"{line} {stage}").values["step/memory_bound/accumulation"] for stage in (1, 3))
    assert (sharded > whole) == copies
    assert copies or sharded == whole


def test_what_recomputation_skips_under_a_software() -> None:
    """In one program the recomputed last product of a block is dead code, whole."""
    at = machine(hardware.find("H100 SXM"), "bf16")
    skipped = {
        name: constant_names(at, stacks.stack(name), "flash", "rdma", SYNCHRONOUS, "", False, ())["stops_early"]
        for name in ("fsdp-compiled", "xla", "megatron-core")
    }
    assert skipped == {"fsdp-compiled": "stops_early", "xla": "one", "megatron-core": "zero"}


@pytest.mark.parametrize(
    ("asynchronous", "tensor", "expert"),
    [
        (SYNCHRONOUS, "tensor_exposed/overlap", "one"),
        (Asynchronous(tensor=True), "tensor_exposed/overlap", "one"),
        (Asynchronous(tensor=False), "tensor_exposed/gradients", "one"),
        (Asynchronous(experts=True), "tensor_exposed/overlap", "expert_exposed/async"),
    ],
)
def test_what_a_run_overlaps_beyond_its_software(asynchronous: Asynchronous, tensor: str, expert: str) -> None:
    at = machine(hardware.find("H100 SXM"), "bf16")
    used = constant_names(at, stacks.stack("megatron-core"), "cudnn", "rdma", asynchronous, "", False, ())
    assert (used["tensor_exposed"], used["expert_exposed"]) == (tensor, expert)


@pytest.mark.parametrize(
    ("stack", "graphs", "dense", "experts", "expert"),
    [
        ("megatron-core", "", "host_layer/modules", "host_experts", "host_expert"),
        ("megatron-core", "parts", "host_layer/fused", "host_experts/parts", "host_expert"),
        ("megatron-core", "whole", "zero", "zero", "zero"),
        ("megatron-core-2026", "", "zero", "zero", "zero"),
        ("megatron-core-2026", "none", "host_layer/modules", "host_experts", "host_expert"),
        ("fsdp-eager", "parts", "host_layer/eager", "host_experts/parts", "zero"),
        ("nanotron", "", "host_layer/modules", "host_experts", "zero"),
        ("fsdp-compiled", "", "host_layer/fused", "host_experts", "zero"),
        ("xla", "none", "zero", "zero", "zero"),  # one program: there is nothing to capture
    ],
)
def test_what_no_host_launches(stack: str, graphs: str, dense: str, experts: str, expert: str) -> None:
    at = machine(hardware.find("H100 SXM"), "bf16")
    run = Asynchronous(graphs=graphs)
    used = constant_names(at, stacks.stack(stack), "flash", "rdma", run, "", False, ())
    assert (used["host_layer"], used["host_experts"], used["host_expert"]) == (dense, experts, expert)


@pytest.mark.parametrize(
    ("stack", "graphs", "chunk"),
    [
        ("megatron-core", "", "host_chunk"),
        ("megatron-core", "parts", "host_chunk"),  # the schedule runs outside the captured parts
        ("megatron-core", "whole", "zero"),
        ("unknown", "", "host_chunk"),
        ("fsdp-eager", "", "zero"),
        ("fsdp-compiled", "", "zero"),
    ],
)
def test_whose_host_takes_micro_batches_from_chunk_to_chunk(stack: str, graphs: str, chunk: str) -> None:
    at = machine(hardware.find("H100 SXM"), "bf16")
    run = Asynchronous(graphs=graphs)
    assert constant_names(at, stacks.stack(stack), "flash", "rdma", run, "", False, ())["host_chunk"] == chunk


@pytest.mark.parametrize(
    ("stack", "dtype", "kernel", "masked", "clamped"),
    [
        ("megatron-core", "fp8", "cudnn", "zero", "one"),  # attention in 16 bits; clamps are kernels of their own
        ("megatron-core-2026", "fp8", "cudnn", "one", "zero"),  # attention in 8 bits; clamps in the grouped kernel
        ("megatron-core-2026", "bf16", "cudnn", "zero", "zero"),
        ("megatron-core-2026", "fp8", "flash", "zero", "zero"),
        ("megatron-mlperf", "fp8", "cudnn", "zero", "zero"),
        ("fsdp-eager", "bf16", "flash", "zero", "zero"),
    ],
)
def test_whose_kernels_mask_and_clamp(stack: str, dtype: str, kernel: str, masked: str, clamped: str) -> None:
    at = machine(hardware.find("GB200"), dtype)
    used = constant_names(at, stacks.stack(stack), kernel, "rdma", Asynchronous(), "", False, ())
    assert (used["masked_backward"], used["clamps_apart"]) == (masked, clamped)


@pytest.mark.parametrize(
    ("stack", "dispatcher", "constant"),
    [
        ("fsdp-compiled", "", "dispatch/copies"),  # torchtitan: all_to_all_single
        ("fsdp-compiled", "once", "dispatch"),  # its expert_parallel_comm_backend deepep
        ("megatron-core", "", "dispatch"),
        ("megatron-core", "copies", "dispatch/copies"),  # --moe-token-dispatcher-type alltoall
    ],
)
def test_what_takes_tokens_to_their_experts(stack: str, dispatcher: str, constant: str) -> None:
    software = stacks.dispatched(stack, dispatcher)
    used = constant_names(
        machine(hardware.find("H100 SXM"), "bf16"), software, "cudnn", "rdma", SYNCHRONOUS, "", False, ()
    )
    assert used["dispatch"] == constant
    assert software.sends_copies == (constant == "dispatch/copies")


def test_matmuls_in_4_bits_have_their_own_peak() -> None:
    """NVIDIA's datasheets, dense: GB200 10 and 5 PFLOP/s in 4 and 8 bits, GB300 15 and 5, three times as fast."""
    found = {
        chip: (machine(hardware.find(chip), "fp4"), machine(hardware.find(chip), "fp8")) for chip in ("GB200", "GB300")
    }
    assert [float(one.peak) for one in found["GB200"]] == [10e15, 5e15]
    assert [float(one.peak) for one in found["GB300"]] == [15e15, 5e15]


@pytest.mark.parametrize(("stated", "expert"), [(None, "expert_exposed/async"), (False, "one")])
def test_a_run_may_not_overlap_what_its_software_does(stated: bool | None, expert: str) -> None:
    at = machine(hardware.find("H100 SXM"), "bf16")
    used = constant_names(
        at, stacks.stack("megatron-core-2026"), "cudnn", "rdma", Asynchronous(experts=stated), "", False, ()
    )
    assert used["expert_exposed"] == expert


def test_the_power_of_a_module_says_nothing_of_its_accelerator_s_clock() -> None:
    """GH200's 450 to 1000 W are those of processor and accelerator together; an H100 of 350 W for 756 TFLOP/s has less
    for each than one of 700 W for 989."""
    watts = {name: machine(hardware.find(name), "bf16").power for name in ("GH200 96GB", "H100 PCIe 80GB")}
    assert watts == {"GH200 96GB": 1.0, "H100 PCIe 80GB": pytest.approx(350 / 756 / (700 / 989.4), rel=0.01)}
