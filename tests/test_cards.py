"""Cards for slots: how they are joined, and what their matrix units reach, against published measurements."""

from __future__ import annotations

import math
import pathlib

import pytest

from napkin import term
from napkin.evidence.rates.constants import constants
from napkin.evidence.rates.machines import bridged, machine
from napkin.evidence.rates.of_step import SYNCHRONOUS, constant_names, early_of, picker, rates
from napkin.evidence.rows.words import kernel_of_torch
from napkin.evidence.software import stacks
from napkin.inputs import hardware
from napkin.record import replace
from napkin.term import GIVEN
from napkin.timing.clock import Clock
from napkin.timing.rates import Rates
from napkin.timing.step_layout import StepLayout
from tests.conftest import run_line

PCIE_4 = 31.507692e9
"""byte/s one way of 16 lanes at 16 GT/s, 128 of 130 bits."""


def rates_of(card: str, **changed: float) -> Rates:
    """Return an accelerator's rates in a loop of PyTorch's own layers; changed: constants."""
    at, stack, known = machine(hardware.find(card), "bf16"), stacks.stack("fsdp-eager"), constants()
    used = constant_names(at, stack, "flash", "rdma", SYNCHRONOUS, "", False, known)
    return rates(picker({**known, **changed}, used), at, early_of(stack), 0, 0)


@pytest.mark.parametrize(
    ("card", "link", "slots", "staged"),
    [
        ("rtx-4090", PCIE_4, 1, 1),
        ("l4", PCIE_4, 1, 0),
        ("rtx-5090", 2 * PCIE_4, 1, 1),
        ("rtx-pro-6000", 2 * PCIE_4, 1, 0),
        ("rtx-3090", PCIE_4, 1, 1),  # its bridge is an accessory
        ("rtx-a6000", PCIE_4, 1, 0),
        ("rtx-2080-ti", PCIE_4 / 2, 1, 1),
        ("t4", PCIE_4 / 2, 1, 0),
        ("arc-pro-b60", 32e9, 1, 1),  # of whose link nothing is known
        ("h100-nvl-94gb", 300e9, 0, 0),  # sold with it
        ("h100-sxm-80gb", 450e9, 0, 0),
        ("mi300x", hardware.find("mi300x").link_bandwidth, 0, 0),
        ("gaudi-2", 21 * 12.5e9, 0, 0),  # of 24 ports three leave the node
        ("gaudi-3", 21 * 25e9, 0, 0),
    ],
)
def test_how_gpus_of_a_node_are_joined(card: str, link: float, slots: int, staged: int) -> None:
    at = machine(hardware.find(card), "bf16")
    assert float(at.link) == pytest.approx(link, rel=1e-6)
    assert (at.slots, at.staged) == (slots, staged)


def test_a_bridge_joins_cards_where_it_is_stated() -> None:
    with_bridge = bridged(hardware.find("rtx-3090"))
    given = replace(hardware.find("rtx-a6000"), kinds={"link_bandwidth": GIVEN})
    for card in (with_bridge, given):
        at = machine(card, "bf16")
        assert (at.link, at.staged) == (56.25e9, 0)
    a100 = hardware.find("a100-sxm-80gb")
    assert bridged(a100) == a100


def test_a_given_rate_of_a_slot_is_the_slots() -> None:
    """So that a rate varied by a tenth around the slot's own is no bridge."""
    card = replace(hardware.find("rtx-3090"), kinds={"link_bandwidth": GIVEN})
    for rate, staged in ((0.9 * PCIE_4, 1), (1.1 * PCIE_4, 1), (56.25e9, 0)):
        at = machine(replace(card, link_bandwidth=rate), "bf16")
        assert (at.link, at.staged) == (rate, staged)
    line = "sensitivity step llama2-7b --gpus 2 --hardware rtx-3090 --zero 3 --seq 2048 --vary link-bandwidth --json"
    found = run_line(line).data
    (row,) = found["rows"]
    assert row["value"] == PCIE_4
    assert 1 < row["at_low"] / found["values"]["step/time"] < 1 / 0.9
    assert 1 / 1.1 < row["at_high"] / found["values"]["step/time"] < 1


@pytest.mark.parametrize(
    ("card", "published"),
    [
        ("rtx-4090", 18e9),  # 4 cards through the host's memory: NVIDIA/nccl issue 1603
        ("rtx-5090", 35e9),  # 4 cards: issue 1639
        ("rtx-5090", 28e9),  # 8 cards
    ],
)
def test_bus_bandwidth_through_the_host(card: str, published: float) -> None:
    found = rates_of(card)
    assert found.link * found.bus == pytest.approx(published, rel=0.2)


@pytest.mark.parametrize("published", [46.5e9, 41.1e9, 39.4e9, 41.5e9])
def test_bus_bandwidth_of_cards_that_reach_each_other(published: float) -> None:
    """Seven and eight RTX PRO 6000 in PCIe 5.0 slots: voipmonitor/rtx6kpro hardware/pcie-bandwidth.md and
    wrx90-cpayne-8gpu-root-topology-comparison.md."""
    found = rates_of("rtx-pro-6000")
    assert found.link * found.bus == pytest.approx(published, rel=0.11)
    assert rates_of("l40s").bus == found.bus > rates_of("rtx-5090").bus
    assert rates_of("a100-sxm-80gb").bus == constants()["bus"]


def tflops(card: str, side: int) -> float:
    """Return the TFLOP/s of a square bf16 matmul."""
    clock = Clock(rates_of(card), StepLayout(sequence=1, micro_batch=1, micro_batches=1))
    size = term.constant("side", side)
    return float(2 * side**3 / clock.gemm("square", size, size, size).value / 1e12)


@pytest.mark.parametrize(
    ("card", "side", "published"),
    [
        ("rtx-4090", 8192, 160.2),  # zzc0721/torch-performance-test-data, issue 78
        ("rtx-4090", 2048, 164.8),
        ("rtx-3090", 8192, 76.5),  # database.md, best of five sizes: clocks above the printed boost
        ("l4", 8192, 59.4),  # issue 120
        ("l4", 10240, 56.9),
        ("l40s", 8192, 269.2),  # database.md, best of five sizes
        ("a100-pcie-40gb", 8192, 215.3),  # issue 108
    ],
)
def test_square_matmuls(card: str, side: int, published: float) -> None:
    """Short runs on cool cards are up to a tenth faster than what training sustains, and more on an L4's 72 W."""
    assert 0.82 < tflops(card, side) / published < 1.22


CLOCKS = {"rtx-4090": 2.62 / 2.52, "rtx-5090": 2.87 / 2.407}
"""Clock of matmuls in public measurements over the boost clock behind the printed peak."""


def test_matrix_units_below_their_full_rate_reach_it() -> None:
    """GeForce cards accumulate in fp32 at half of the rate that their multiprocessors have in the cards for work; an
    H20's have a quarter of an H100's rate."""
    for card in ("rtx-4090", "rtx-3090", "l40", "rtx-5090", "h20-96gb"):
        assert machine(hardware.find(card), "bf16").held == 1
        assert rates_of(card).matmul == pytest.approx(0.95 * CLOCKS.get(card, 1))
    for card in ("l40s", "rtx-6000-ada", "rtx-a6000", "a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm-180gb"):
        assert machine(hardware.find(card), "bf16").held == 0


def test_softmax_takes_as_many_clocks_beside_hoppers_held_matrix_units() -> None:
    """What attention takes on an H100 besides its matmuls is a quarter of that, next to matmuls four times as long."""
    whole, held = rates_of("h100-sxm-80gb"), rates_of("h20-96gb")
    besides = 1 / whole.attention - 1 / whole.matmul
    assert 1 / held.attention == pytest.approx(1 / 0.95 + besides / 4)
    assert whole.attention < held.attention < held.matmul


def test_power_limits_a_clock() -> None:
    """An L4 has 72 W for 121 TFLOP/s, against 350 W for 362.05 of an L40S; a T4 does 24 of 65 TFLOP/s in a hundred
    matmuls of 4096 (NVIDIA developer forum, topic 264462). An H100 PCIe has 350 W for 756, against 700 W for 989.4."""
    assert rates_of("l4").matmul == pytest.approx(rates_of("l40s").matmul * (72 / 121) / (350 / 362.05))
    assert rates_of("t4").matmul == pytest.approx(24 / 65, rel=0.05)
    share = ((350 / 756) / (700 / 989.4)) ** constants()["power"]
    assert rates_of("h100-pcie-80gb").matmul == pytest.approx(rates_of("h100-sxm-80gb").matmul * share, rel=1e-3)
    share = ((900 / 1678) / (600 / 432)) ** constants()["power"]
    assert rates_of("gaudi-3").matmul == pytest.approx(rates_of("gaudi-2").matmul * share, rel=1e-3)
    for card, falls in (("t4", 1), ("a10", 1), ("rtx-6000-ada", 1), ("l40s", 0), ("a100-pcie-40gb", 0), ("l40", 0)):
        assert machine(hardware.find(card), "fp16").at_lowest_voltage == falls


def test_attention_beside_softmax_on_small_units() -> None:
    """An A100 at 0.6 of its peak, and at 0.8 in matmuls, spends 1/0.6 − 1/0.8 of a matmul's time on the rest; a card
    with a quarter of its rate per clock spends a quarter of that: Dao 2023, section 3.1."""
    changed = {"attention/ampere": 0.6, "matmul/ampere/16": 0.8, "chip/RTX 3090": 1.0}
    for card, part in (("rtx-4090", 512 / 2048), ("rtx-3090", 512 / 2048)):
        found = rates_of(card, **changed)
        assert found.attention == pytest.approx(CLOCKS.get(card, 1) / (1 / 0.95 + part * (1 / 0.6 - 1 / 0.8)))
    assert rates_of("a100-sxm-80gb", **changed).attention == pytest.approx(0.6)


def test_flash_attention_on_an_a5000() -> None:
    """81.9 TFLOP/s forward, heads of 64, 8,192 keys, no mask: gpu-mode/ring-attention issue 10."""
    found = rates_of("rtx-a5000")
    forward = found.peak_wide * found.attention * found.small_head * 8192 / (8192 + found.half_keys)
    assert forward == pytest.approx(81.9e12, rel=0.15)


LINE = "step llama2-7b --adapter lora --lora-rank 8 --framework fsdp --seq 2048 --json --gpus"


def test_slots_of_which_nothing_is_stated_widen_the_interval() -> None:
    """By what a link of less than a third of the rate, 2 to the power of −1.645, does to the step. A stated rate has no
    spread."""
    unstated, stated, slow = (
        run_line(f"{LINE} 2 --hardware rtx-4090{link}")
        for link in ("", *(f" --link-bandwidth {PCIE_4 * share / 1e9}GB/s" for share in (1, 2**-1.645)))
    )
    assert unstated.values["step/time"] == pytest.approx(stated.values["step/time"])
    halves = [math.log(one.data["high"]["step/time"] / one.values["step/time"]) for one in (unstated, stated)]
    effect = math.log(slow.values["step/time"] / stated.values["step/time"])
    assert effect > 0.1
    assert halves[0] == pytest.approx(math.hypot(halves[1], effect), rel=1e-3)


ROW = """schema: finetune/1
rows:
- id: a
  source: {title: hand-made}
  task: sft
  model: {preset: llama2-7b}
  hardware: {chip: RTX 3090, count: 2, per_node: 2INTERCONNECT}
  method: {kind: lora, lora_rank: 8, lora_targets_canonical: 'q,v'}
  layout: {micro_batch: 1, grad_accum: 1, seq: 2048, precision: bf16, recompute: full, stack: fsdp, trainer: hf-trainer}
  measured: {step_seconds: 3}
"""


def test_a_row_states_a_bridge(tmp_path: pathlib.Path) -> None:
    found = []
    for words in ("", ", interconnect: NVLink bridge", ", interconnect: PCIe 4.0 x16"):
        file = tmp_path / "row.yaml"
        file.write_text(ROW.replace("INTERCONNECT", words))
        found.append(run_line(f"validate {file} --json").data["rows"][0]["predicted"])
    slots, bridge, said = found
    assert bridge < slots == said


def test_a_row_states_what_joins_its_gpus(tmp_path: pathlib.Path) -> None:
    """Without NVLink, GPUs gather weights over PCIe; two nodes of one GPU gather them over their network."""

    def seconds(hardware: str, chip: str = "H100 SXM 80GB") -> float:
        file = tmp_path / "row.yaml"
        row = ROW.replace("stack: fsdp", "stack: fsdp, zero: 3").replace("RTX 3090", chip)
        file.write_text(row.replace("per_node: 2INTERCONNECT", hardware))
        found: float = run_line(f"validate {file} --json").data["rows"][0]["predicted"]
        return found

    joined = seconds("per_node: 2")
    assert seconds("per_node: 2, interconnect: NVLink") == joined
    assert seconds("per_node: 2, interconnect: 'PCIe, no NVLink'") > 1.2 * joined
    assert seconds("per_node: 2, interconnect: no NVLink bridge", "RTX 3090") == seconds("per_node: 2", "RTX 3090")
    usual, slow = (seconds(f"per_node: 1{words}") for words in ("", ", interconnect: 25 Gbit/s"))
    assert joined < usual < slow


@pytest.mark.parametrize(
    ("words", "versions", "wanted"),
    [
        ("sdpa", "torch 2.13.0, transformers 5.2", "cudnn"),
        ("", "torch==2.11", "cudnn"),
        ("transformers default (not set)", "torch 2.12.1", "cudnn"),
        ("sdpa", "torch 2.10.0", "flash2"),  # its wheels have cuDNN 9.10
        ("sdpa", "torch 2.4.1", "flash2"),
        ("sdpa", "transformers 4.48", ""),
        ("flash_attention_2", "torch 2.13.0", ""),
    ],
)
def test_the_kernel_that_torch_prefers_from_hopper_on(words: str, versions: str, wanted: str) -> None:
    """pytorch/pytorch sdp_utils.cpp, check_prefer_cudnn_attention."""
    assert kernel_of_torch(words, versions) == wanted


def test_a_step_says_that_torch_now_prefers_cudnn() -> None:
    line = "step llama3-8b --gpus 8 --stack fsdp-eager --seq 8192 --json --hardware"
    said = {
        card: " ".join(run_line(f"{line} {card}").data["notes"]) for card in ("h100", "a100", "h100 --attention flash2")
    }
    assert ["torch from 2.11 on takes cuDNN" in one for one in said.values()] == [True, False, False]
