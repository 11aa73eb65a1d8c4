"""The time of a step: parts that add up, laws that no layout breaks, figures worked out by hand."""

from __future__ import annotations

import math
import pathlib
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from napkin import term
from napkin.elementwise import Number
from napkin.evidence.fit.generic import decoder
from napkin.evidence.rates import constants
from napkin.evidence.rates.machines import Machine, machine
from napkin.evidence.rates.of_step import SYNCHRONOUS, constant_names, early_of, picker, rates
from napkin.evidence.rows.printed import PrintedDecoder
from napkin.evidence.software import stacks
from napkin.inputs import hardware
from napkin.planning.schedule import interleaved
from napkin.record import fields, replace
from napkin.term import leaf
from napkin.timing import collectives
from napkin.timing.clock import Clock
from napkin.timing.collectives import Groups, groups_of
from napkin.timing.efficiency import alignment, depth_share, halvings, tile_share
from napkin.timing.rates import Rates
from napkin.timing.step import step
from napkin.timing.step_layout import StepLayout
from tests.conftest import Napkin, preset, run_line

LLAMA = PrintedDecoder("llama", 32, 4096, 32, 8, 128, 14336, 128256, True, False)
GPT = PrintedDecoder("gpt", 24, 2048, 16, 16, 128, 8192, 51200, False, True)
MIXTURE = PrintedDecoder("moe", 32, 4096, 32, 8, 128, 0, 32000, True, False, experts=8, top_k=2, expert_ffn=14336)
H100 = Machine("hopper", "H100 SXM 80GB", 989.4e12, 989.4e12, 3.35e12, 450e9, 50e9, 8, 132, 1.0, 16)


def reached(at: Machine = H100, stack: str = "megatron-core", kernel: str = "flash") -> Rates:
    known = stacks.stack(stack)
    every = constants.constants()
    used = constant_names(at, known, kernel, "rdma", SYNCHRONOUS, "", autocast=False, known=every)
    return rates(picker(every, used), at, early_of(known), False, False)


def test_no_host_launches_the_kernels_of_one_program() -> None:
    """A step of JAX is one compiled program; eager PyTorch launches every operation of a layer."""
    program, eager = reached(stack="xla"), reached(stack="fsdp-eager")
    assert program.host_layer == program.host_experts == program.host_expert == 0
    assert reached(stack="megatron-core-2026").host_expert == 0  # captured graphs
    assert reached().host_expert == constants.constants()["host_expert"] > reached(stack="fsdp-compiled").host_expert
    assert eager.host_layer == constants.constants()["host_layer/eager"]


def seconds(shape: PrintedDecoder = LLAMA, at: Machine = H100, **layout: Any) -> float:
    plan = StepLayout(**{"sequence": 4096, "micro_batch": 1, "micro_batches": 8, **layout})
    return float(step(decoder(shape), plan, reached(at)).time.value)


# --- efficiency ---


def test_tiles_that_fit_exactly_lose_nothing() -> None:
    # 132 tiles of 128 × 256 on 132 units: one full wave
    assert tile_share(128 * 12, 256 * 11, 1, 132, 1.0) == pytest.approx(1.0)
    # one tile more needs a second wave, nearly empty (133/264); halves of it do better: 266 in three waves
    assert tile_share(128, 256 * 133, 1, 132, 1.0) == pytest.approx(0.93 * 266 / 396)
    # a row more than a tile pads a second one: no shape does better than 129/192 of 64-row tiles at 0.75
    assert tile_share(129, 256, 1, 1, 1.0) == pytest.approx(max(129 / 256, 0.75 * 129 / 192))


def test_a_product_s_prologue_costs_like_depth() -> None:
    assert depth_share(150, 150) == 0.5
    assert depth_share(15000, 150) == pytest.approx(1 / 1.01)


@pytest.mark.parametrize(("size", "count"), [(64, 0), (4096, 0), (96, 1), (48, 2), (72, 3), (108, 4), (54, 5), (7, 6)])
def test_halvings_of_64_that_divide(size: int, count: int) -> None:
    assert halvings(size) == count
    assert np.asarray(halvings(np.array([size, 64])))[0] == count
    both = (leaf("k", size, "1"), leaf("n", 64, "1"))
    assert alignment("alignment", leaf("loss", 0.9, "1"), *both).value == pytest.approx(0.9**count)


# --- communication ---


def test_bus_bandwidth_of_a_group() -> None:
    def bus(ranks: int, stride: int) -> object:
        sizes = (leaf(name, value, "1") for name, value in (("ranks", ranks), ("node", 8), ("stride", stride)))
        rates = (leaf(name, value, "byte/s") for name, value in (("link", 450e9), ("network", 50e9)))
        return collectives.bus_bandwidth("bus", *sizes, *rates).value

    assert bus(8, 1) == 450e9  # inside a node
    assert bus(16, 1) == 400e9  # eight cards of 50 GB/s carry a node's share
    assert bus(16, 8) == 50e9  # one rank a node: its own card
    ranks, payload = leaf("ranks", 4, "1"), leaf("payload", 1e9, "byte")
    assert collectives.all_reduced("sent", payload, ranks).value == pytest.approx(1.5e9)


def test_the_order_of_the_ranks_decides_which_groups_leave_a_node() -> None:
    """Megatron-LM's order, tp-cp-dp-pp: 2 · 2 · 2 · 4 ranks, and experts in theirs, etp-ep over the same GPUs."""
    groups = groups_of(StepLayout(4096, 1, 4, tp=2, cp=2, dp=2, pp=4, ep=2, etp=2, shards=2))
    placed = {
        name: (group.ranks.value, group.stride.value) for name in fields(Groups) for group in (getattr(groups, name),)
    }
    assert placed == {
        "tensor": (2, 1),
        "context": (2, 2),
        "replicas": (4, 2),
        "shards": (2, 2),
        "copies": (2, 4),
        "stages": (4, 8),
        "experts": (2, 2),
        "expert_tensor": (2, 1),
    }


@pytest.mark.parametrize(
    ("layout", "gpus"),
    [("--tp 2 --pp 4", 16), ("--pp 2", 16), ("--tp 8 --pp 2", 16), ("--tp 2 --cp 4 --zero 1", 16), ("--zero 3", 16)],
)
def test_the_network_counts_where_the_gpus_do_not_fit_one_node(layout: str, gpus: int) -> None:
    line = f"step llama3-8b --gpus {gpus} {layout} --hardware h100 --global-batch 64 --json"
    times = [
        run_line(f"{line} --network-bandwidth {rate}").values["step/time"] for rate in ("1GB/s", "5GB/s", "50GB/s")
    ]
    assert times == sorted(times, reverse=True)
    assert times[0] > 1.01 * times[-1]
    assert run_line(f"{line} --gpus-per-node 16 --network-bandwidth 1GB/s").status == 2  # nothing crosses it


def test_a_token_is_sent_once_to_each_other_node() -> None:
    def others(ranks: int, choices: int) -> object:
        sizes = (leaf(name, value, "1") for name, value in (("ranks", ranks), ("node", 8), ("choices", choices)))
        return collectives.distinct_nodes("nodes", *sizes).value

    assert others(8, 2) == 0
    # two nodes, eight choices: the other one holds none of them in one case of 256
    assert others(16, 8) == pytest.approx(1 - 0.5**8)


def test_a_token_reaches_the_nodes_of_the_groups_that_it_may_choose() -> None:
    """DeepSeek-V3 (arXiv:2412.19437, 2.1.2): 8 experts of a token in 4 of 8 groups. Over 8 nodes of a group each, half
    of all tokens choose one, and it holds none of 8 experts with (3/4)^8. Over 4 nodes of two groups each, both are
    chosen with C(6,2)/C(8,4) = 15/70, one with 2·C(6,3)/70 = 40/70. Over 16 nodes a chosen group has two."""

    def others(nodes: int, choices: int = 8) -> object:
        sizes = (leaf(name, value, "1") for name, value in (("ranks", 8 * nodes), ("node", 8), ("choices", choices)))
        return collectives.distinct_nodes("nodes", *sizes, groups=8, chosen=4).value

    assert others(1) == 0
    assert others(8) == pytest.approx(7 * 0.5 * (1 - 0.75**8))
    assert others(4) == pytest.approx(3 * (40 / 70 * (1 - 0.75**8) + 15 / 70 * (1 - 0.5**8)))
    assert others(16) == pytest.approx(15 * 0.5 * (1 - 0.875**8))
    free = (leaf(name, value, "1") for name, value in (("ranks", 64), ("node", 8), ("choices", 8)))
    assert others(8) < collectives.distinct_nodes("nodes", *free).value


@pytest.mark.parametrize(
    ("name", "groups"),
    [("deepseek-v3", (8, 4)), ("deepseek-v2", (8, 3)), ("kimi-k2", (1, 1)), ("qwen3-30b-a3b", (1, 1))],
)
def test_a_file_states_the_groups_of_experts(name: str, groups: tuple[int, int]) -> None:
    routed = next(one for op in preset(name).operations if (one := op.routed()) is not None)
    assert (routed.groups, routed.chosen_groups) == groups


def test_a_plan_is_about_the_nodes_that_a_token_may_reach() -> None:
    line = "deepseek-v3 --gpus 1024 --hardware h100 --global-batch 8192 --tp 1 --pp 4 --ep 64 --zero 1"
    row = next(row for row in run_line(f"plan {line} --json").data["rows"] if row.get("command"))
    timed = run_line(f"{row['command'].removeprefix('napkin ')} --json").values
    assert timed["step/time"] == pytest.approx(row["time"])


# --- the step ---


def test_the_breakdown_adds_up_and_its_units_combine() -> None:
    plan = StepLayout(4096, 2, 16, tp=4, pp=4, dp=4, cp=2, sequence_parallel=1, layers_recomputed=1, zero=1)
    found = step(decoder(LLAMA), plan, reached())
    assert found.time.unit == "second"
    assert sum(part.value for part in found.time.parts) == pytest.approx(found.time.value, rel=1e-12)
    for node in found.time.walk():
        if node.parts:
            assert node.value == pytest.approx(term.fold(node), rel=1e-9, abs=1e-15), node.name


def test_no_step_beats_the_peak() -> None:
    tokens = 8 * 4096
    for shape in (LLAMA, GPT, MIXTURE):
        weights = sum(
            count * weight.active
            for count, layer in decoder(shape).stacks[0].runs
            for op in layer.operations
            for weight in op.weights()
        )
        least = 6 * tokens * (weights + shape.hidden * shape.vocab) / H100.peak
        assert seconds(shape) > least


@pytest.mark.parametrize("card", ["rtx-5090", "rtx-4090", "rtx-3090"])
def test_no_matmul_beats_the_peak_at_the_clock_in_use(card: str) -> None:
    found = hardware.find(card)
    share = reached(machine(found, "bf16")).matmul_wide
    assert share == pytest.approx(0.95 * found.clock_gain)


def test_a_large_product_by_hand() -> None:
    clock = Clock(reached(), StepLayout(4096, 1, 1))
    m, k, n = (leaf(axis, 8192, "1") for axis in ("m", "k", "n"))
    found = clock.gemm("x", m, k, n)
    constant = constants.constants()
    share: Number = constant["matmul/hopper/16"] * 8192 / (8192 + constant["half_depth"])
    share *= tile_share(8192, 8192, 1, 132, constant["waves"])
    compute = 2 * 8192**3 / (989.4e12 * share)
    moved = 3 * 2 * 8192**2 / (3.35e12 * constant["memory"])
    assert found.value == pytest.approx((compute**4 + moved**4) ** 0.25, rel=1e-12)


def test_the_bubble_of_1f1b_and_of_zero_bubble() -> None:
    """Of the device: hosts take as long for a chunk of any size."""
    four, quick = StepLayout(4096, 1, 8, pp=4), replace(reached(), host_chunk=0.0)
    found = {part.name: part.value for part in step(decoder(GPT), four, quick).time.parts}
    chunks = {part.name: part.value for part in step(decoder(GPT), replace(four, vp=2), quick).time.parts}
    filled = {part.name: part.value for part in step(decoder(GPT), replace(four, idle=1 / 3), quick).time.parts}
    assert chunks["step/bubble"] == pytest.approx(found["step/bubble"] / 2)
    assert filled["step/bubble"] == pytest.approx(found["step/bubble"] / 3)
    one = {part.name: part.value for part in step(decoder(GPT), replace(four, pp=1), quick).time.parts}
    assert one["step/bubble"] == 0


def test_full_recomputation_adds_a_forward_pass() -> None:
    plain, again = seconds(), seconds(layers_recomputed=1)
    assert 1.2 < again / plain < 1.34  # a third of forward and backward, less the head's and the optimizer's share


@given(
    st.sampled_from([LLAMA, GPT, MIXTURE]),
    st.sampled_from(["peak", "bandwidth", "link", "network"]),
    st.floats(1.01, 8),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 8, 16]),
    st.sampled_from([0, 1, 3]),
)
def test_a_better_machine_never_makes_a_step_slower(
    shape: PrintedDecoder, figure: str, factor: float, tp: int, pp: int, dp: int, zero: int
) -> None:
    layout: dict[str, Any] = {
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "zero": zero if dp > 1 else 0,
        "shards": dp,
        "sequence_parallel": tp > 1,
    }
    changed = {figure: getattr(H100, figure) * factor}
    if figure == "peak":
        changed["peak_wide"] = changed["peak"]
    assert seconds(shape, replace(H100, **changed), **layout) <= seconds(shape, **layout) * (1 + 1e-12)


@given(
    st.sampled_from([LLAMA, GPT]),
    st.integers(1, 40),
    st.sampled_from([512, 1024, 2048, 4096, 8192]),
    st.integers(1, 8),
    st.sampled_from([1, 2, 4]),
)
def test_less_work_never_takes_longer(shape: PrintedDecoder, batches: int, length: int, micro: int, pp: int) -> None:
    layout: dict[str, Any] = {"sequence": length, "micro_batch": micro, "micro_batches": batches, "pp": pp}
    whole = seconds(shape, **layout)
    assert seconds(shape, **{**layout, "micro_batches": batches + 1}) > whole
    assert seconds(shape, **{**layout, "micro_batch": micro + 1}) >= whole * (1 - 1e-12)  # or waits for the host
    assert seconds(replace(shape, layers=shape.layers + pp), **layout) > whole


def test_arrays_give_what_numbers_give() -> None:
    tp, pp, batches = np.array([1.0, 2, 4, 8]), np.array([1.0, 2, 4, 2]), np.array([8.0, 4, 16, 2])
    many = step(
        decoder(LLAMA), StepLayout(4096, 2, batches, tp=tp, pp=pp, sequence_parallel=np.where(tp > 1, 1, 0)), reached()
    ).time.value
    for i in range(4):
        one = seconds(
            micro_batch=2,
            micro_batches=int(batches[i]),
            tp=int(tp[i]),
            pp=int(pp[i]),
            sequence_parallel=int(tp[i] > 1),
        )
        assert many[i] == pytest.approx(one, rel=1e-12)


def test_the_schedule_of_1f1b() -> None:
    slots = interleaved(4, 8, 1, 1.0, 2.0)
    assert len(slots) == 2 * 4 * 8
    # m + p − 1 slots of forward and backward (Narayanan et al. 2021, section 2.2)
    assert max(slot.start + slot.length for slot in slots) == pytest.approx((8 + 3) * 3.0)
    for stage in range(4):
        mine = sorted((s for s in slots if s.stage == stage), key=lambda s: s.start)
        assert all(a.start + a.length <= b.start + 1e-9 for a, b in pairwise(mine))


# --- the command ---

ASKED = "step llama3-70b --tp 8 --pp 4 --dp 32 --global-batch 1024 --seq 8192 --hardware h100 --json"


def test_paths_of_the_contract(napkin: Napkin) -> None:
    data = napkin(ASKED).data
    values = data["values"]
    parts = ("compute", "memory_bound", "communication", "bubble", "optimizer", "overhead")
    assert sum(values[f"step/{part}"] for part in parts) == pytest.approx(values["step/time"])
    assert values["step/low"] < values["step/time"] < values["step/high"]
    assert values["mfu"] == values["hfu"]  # nothing is recomputed
    assert values["tokens_per_second_per_gpu"] == pytest.approx(1024 * 8192 / values["step/time"] / 1024)
    assert values["memory/total"] > 0
    assert data["verdict"] == "compute"
    assert len(data["evidence"]) == 3


def test_hfu_counts_what_is_recomputed(napkin: Napkin) -> None:
    values = napkin(f"{ASKED} --recompute full").values
    assert 1.25 < values["hfu"] / values["mfu"] < 4 / 3


def test_a_wider_level_and_unknown_software_widen_the_interval(napkin: Napkin) -> None:
    def width(line: str) -> float:
        values = napkin(line).values
        return math.log(values["step/high"] / values["step/low"])

    assert width(f"{ASKED} --confidence 80") < width(ASKED) < width(f"{ASKED} --confidence 95")
    assert width(ASKED) < width(f"{ASKED} --stack unknown")
    assert width(f"{ASKED} --factor 1.05") < width(ASKED)
    # a chip on which no step of the evidence ran
    eight = "step llama3-8b --gpus 8 --zero 3 --stack fsdp-compiled --json --hardware"
    assert width(f"{eight} mi300x") > width(f"{eight} a100")


def test_a_step_that_waits_for_the_host_has_the_interval_of_hosts(napkin: Napkin) -> None:
    """A host that launches kernels 1.645 σ of 0.4 slower, 1.93 times as long, makes a step of 16 tokens longer by 0.93
    of its launches, and one of 4,096 no longer."""

    def half(line: str) -> float:
        found = napkin(line).data
        return math.log(found["high"]["step/time"] / found["values"]["step/time"])

    line = "step llama3.2-1b --framework fsdp --hardware a100 --gpus 1 --json --seq"
    terms = napkin(f"{line} 16 --explain").data["terms"]
    launched = 16 * terms["stack"]["value"] * terms["decoder/launch"]["value"]
    seconds = napkin(f"{line} 16").values["step/time"]
    longer = math.log(1 + (math.exp(1.645 * 0.4) - 1) * launched / seconds)
    assert longer > 0.2
    assert half(f"{line} 16") > longer
    assert half(f"{line} 16") > half(f"{line} 4096") + 0.05


@pytest.mark.parametrize(
    ("line", "status", "says"),
    [
        ("step llama3-8b --hardware h100 --stack torchtitam", 2, "unknown stack"),
        ("step llama3-8b --hardware h100 --confidence 99.9", 2, "not between 50 and 98"),
        ("step llama3-8b --hardware h100 --confidence wide", 2, "not a confidence level"),
        ("step llama3-8b --hardware v100 --precision fp8-mixed", 3, "fp8"),
        ("step llama3-8b", 2, "hardware is missing"),
    ],
)
def test_refused(napkin: Napkin, line: str, status: int, says: str) -> None:
    outcome = napkin(line)
    assert outcome.status == status
    assert says in outcome.errors[0]


def test_what_the_memory_model_does_not_know_is_left_out_with_a_note(napkin: Napkin) -> None:
    outcome = napkin("step mamba-2.8b --hardware h100 --json")
    assert outcome.status == 0
    if "memory/total" not in outcome.values:
        assert any("memory/total is left out" in note for note in outcome.data["notes"])


def test_an_edition_changes_experts_alone() -> None:
    newer = reached(stack="megatron-core-2026")
    older = reached()
    layout = StepLayout(4096, 2, 8, ep=8, dp=8)
    assert step(decoder(MIXTURE), layout, newer).time.value < step(decoder(MIXTURE), layout, older).time.value
    assert step(decoder(LLAMA), layout, newer).time.value == step(decoder(LLAMA), layout, older).time.value


def test_attention_by_kernel_and_its_edition() -> None:
    """cuDNN over FlashAttention-2, before and since 9.4; TransformerEngine takes it from Hopper on. Heads of 64 lose
    more of its rate (Shah et al. 2024, figure 5)."""
    known = constants.constants()
    for stack, kernel in (("megatron-core-2024", "kernel/cudnn-2023"), ("megatron-core", "kernel/cudnn")):
        share = reached(stack=stack, kernel="cudnn").attention / reached(stack=stack).attention
        assert share == pytest.approx(known[kernel])
    assert known["kernel/cudnn"] > known["kernel/cudnn-2023"] > 1
    assert reached(kernel="cudnn").small_head < reached().small_head < 1
    assert reached(kernel="cudnn").large_head == reached().large_head == 1
    assert reached(kernel="efficient").large_head == known["large_head/efficient"] < 1
    for name in ("megatron-core", "xla"):
        assert [stacks.stack(name).kernel(chip) for chip in ("ampere", "hopper")] == ["flash", "cudnn"]
    assert stacks.stack("megatron-core-2024").family == stacks.stack("megatron-core-2026").family == "megatron-core"


def test_a_mask_leaves_torchs_flash_kernel_to_the_memory_efficient_one(napkin: Napkin) -> None:
    """Falcon's class always passes a mask (transformers modeling_falcon.py), which torch's flash kernel does not take
    (sdp_utils.cpp, check_for_attn_mask); FlashAttention's own package gets none."""
    line = "step falcon-7b --hardware a100-80gb --seq 2048 --json"
    kernels = ("flash", "efficient", "flash2")
    flash, efficient, package = (napkin(f"{line} --attention {one}").values["step/time"] for one in kernels)
    assert flash == efficient > package


@pytest.mark.parametrize("model", ["llama3-8b", "exaone4-32b", "starcoder2-7b", "mixtral-8x7b"])
def test_long_sequences_do_not_beat_the_peak(napkin: Napkin, model: str) -> None:
    """mfu counts the full square, which causal and windowed kernels never compute; what they compute stays below 1."""
    values = napkin(f"step {model} --hardware h100 --gpus 64 --seq 131072 --json").values
    assert values["mfu/exact"] < min(values["mfu"], 0.8)


def test_a_step_that_may_not_fit_says_so(napkin: Napkin) -> None:
    line = "step llama3-70b --gpus 256 --hardware h100 --tp 8 --pp 4 --global-batch 256 --seq 8192"
    assert any("memory: does not fit" in n or "memory: too close" in n for n in napkin(f"{line} --json").data["notes"])
    fitting = napkin(f"{line} --zero 1 --implementation megatron --json").data["notes"]
    assert not any(n.startswith("memory:") for n in fitting)


@pytest.mark.parametrize(
    ("line", "binds"),
    [
        ("llama3-70b --gpus 64 --zero 3 --seq 8192", "compute"),
        ("gpt2 --gpus 1 --seq 128", "overhead"),
        ("llama3-8b --gpus 1 --seq 16", "optimizer"),
        ("llama3-8b --gpus 64 --zero 3 --seq 512 --network-bandwidth 1GB/s", "communication"),
    ],
)
def test_the_verdict_names_the_largest_part(line: str, binds: str) -> None:
    outcome = run_line(f"step {line} --hardware h100-sxm-80gb --json")
    parts = {name: outcome.values[f"step/{name}"] for name in PARTS}
    assert outcome.data["verdict"] == binds
    assert max(parts, key=lambda name: parts[name]) == binds


PARTS = ("compute", "memory_bound", "communication", "bubble", "optimizer", "overhead")


@pytest.mark.parametrize("node", [1, 2, 4, 6])
def test_the_network_counts_in_nodes_of_any_size(node: int, tmp_path: pathlib.Path) -> None:
    """Data parallelism over two nodes crosses the network, whatever a node has; a slower network is slower."""
    seconds = []
    for rate in (1e9, 50e9):
        file = tmp_path / f"card-{rate}.yaml"
        file.write_text(
            "accelerators:\n  mine:\n    name: Mine\n    vendor: NVIDIA\n    generation: hopper\n"
            "    peak_flops: {bf16: 989.4e+12, fp16: 989.4e+12}\n"
            "    memory: {bytes: 80000000000, label: 80 GB, type: HBM3, bandwidth: 3.35e+12}\n"
            f"    link: nvlink4\n    nic: {{name: net, per_direction: {rate:.1e}}}\n    devices_per_node: {node}\n"
        )
        line = f"step llama3-8b --gpus {2 * node} --zero 3 --seq 4096 --hardware-file {file} --hardware mine --json"
        seconds.append(run_line(line).values["step/time"])
    assert seconds[0] > 1.5 * seconds[1]


@pytest.mark.parametrize(("policy", "peak"), [("bf16-mixed", "989.4 TFLOP/s bf16"), ("fp8-mixed", "1.979 PFLOP/s fp8")])
def test_the_screen_says_how_the_mfu_is_counted(policy: str, peak: str) -> None:
    """The MFU of fp8 is of fp8's peak; that of a run is by 6ND and includes the goodput."""
    line = f"llama3-8b --gpus 64 --hardware h100 --zero 3 --precision {policy}"
    assert f"counted by operation, of {peak}" in run_line(f"step {line}").out
    assert "by 6nd, × goodput" in run_line(f"train-time {line} --tokens 1T").out


def test_units_of_fsdp_wait_for_the_host_in_fewer_passes_where_they_stay_gathered() -> None:
    """FSDP gathers each layer in the forward pass, reduces in the backward pass, and gathers once more to recompute
    only where it let go: three passes under FULL_SHARD, two under SHARD_GRAD_OP, none of DeepSpeed's ZeRO-2."""
    line = "step qwen2.5-0.5b --gpus 4 --hardware h100 --seq 128 --micro-batch 1 --recompute full --json"

    def host(choice: str) -> float:
        return float(run_line(f"{line} --framework {choice}").data["values"]["step/overhead/host"])

    stays, goes, none = host("fsdp --zero 2"), host("fsdp --zero 3"), host("deepspeed --zero 2")
    assert (goes - none) / (stays - none) == pytest.approx(3 / 2, rel=0.02)
